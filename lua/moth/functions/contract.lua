--- contract.lua -- einsum and tensordot: sums of products over named dimensions, composed of views,
-- mul and matmul.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local contract = {}

local function bad(text, code) errors.argument("einsum", "equation", text, code or "E_ARG") end

-- ---- parsing an equation ----

local ELLIPSIS = "..."

-- Splits "ij...k" into {"i", "j", "...", "k"}.
local function labels_of(text, equation)
  local list, dots, at = {}, false, 1
  while at <= #text do
    local c = text:sub(at, at)
    if text:sub(at, at + 2) == ELLIPSIS then
      if dots then bad(("'%s' has two ellipses in one operand"):format(equation)) end
      dots, c, at = true, ELLIPSIS, at + 2
    elseif not c:match("%a") then
      bad(("'%s' in '%s' is not a label; labels are letters"):format(c, equation))
    end
    list[#list + 1] = c
    at = at + 1
  end
  return list
end

-- Parses "ij,jk->ik": returns a list of labels for each operand, and the result's labels (nil if
-- omitted).
local function parse(equation)
  local text = equation:gsub("%s", "")
  local left, right = text:match("^(.-)%->(.*)$")
  local inputs, output = {}, right and labels_of(right, equation)
  for part in ((left or text) .. ","):gmatch("([^,]*),") do
    inputs[#inputs + 1] = labels_of(part, equation)
  end
  return inputs, output
end

-- Returns a label for each dimension: an ellipsis becomes "...k" to "...1", numbered from its end.
local function number_ellipsis(labels, x, k)
  local dots, ndim = false, x:dim()
  for _, c in ipairs(labels) do dots = dots or c == ELLIPSIS end
  local more = ndim - #labels + (dots and 1 or 0)
  if more < 0 or (more > 0 and not dots) then
    bad(("operand %d has %d dimensions, but %s%d labels in the equation"):format(k, ndim,
      dots and "at least " or "", #labels - (dots and 1 or 0)), "E_SHAPE")
  end
  local list = {}
  for _, c in ipairs(labels) do
    if c ~= ELLIPSIS then
      list[#list + 1] = c
    else
      for d = more, 1, -1 do list[#list + 1] = ELLIPSIS .. d end
    end
  end
  return list
end

-- Returns the result's default labels: the ellipsis' dimensions, then labels that occur once,
-- sorted.
local function implicit(inputs, most)
  local count, output = {}, {}
  for _, labels in ipairs(inputs) do
    for _, c in ipairs(labels) do count[c] = (count[c] or 0) + 1 end
  end
  for c, n in pairs(count) do
    if n == 1 and #c == 1 then output[#output + 1] = c end
  end
  table.sort(output)
  for d = 1, most do table.insert(output, 1, ELLIPSIS .. d) end
  return output
end

local function ellipsis_of(inputs)
  local most = 0
  for _, labels in ipairs(inputs) do
    for _, c in ipairs(labels) do
      if #c > 1 then most = math.max(most, tonumber(c:sub(4))) end
    end
  end
  return most
end

-- Returns the labels of all operands and of the result, with numbered ellipsis labels.
local function plan(equation, operands)
  local inputs, output = parse(equation)
  if #inputs ~= #operands then
    errors.argument("einsum", "operands", ("'%s' has %d, got %d"):format(equation, #inputs,
      #operands), "E_SHAPE")
  end
  local size, seen = {}, {}
  for k, x in ipairs(operands) do
    inputs[k] = number_ellipsis(inputs[k], x, k)
    for d, c in ipairs(inputs[k]) do
      local n = x:size(d)
      if size[c] and size[c] ~= n and size[c] ~= 1 and n ~= 1 then
        bad(("label '%s' has size %d in operand %d and %d in an earlier one"):format(c, n, k,
          size[c]),
          "E_SHAPE")
      end
      if not size[c] or size[c] == 1 then size[c] = n end
    end
  end
  local most = ellipsis_of(inputs)
  if not output then return inputs, implicit(inputs, most) end
  local result = {}
  for _, c in ipairs(output) do
    if seen[c] then bad(("label '%s' occurs twice in the result"):format(c)) end
    seen[c] = true
    if c == ELLIPSIS then
      for d = most, 1, -1 do result[#result + 1] = ELLIPSIS .. d end
    elseif size[c] then
      result[#result + 1] = c
    else
      bad(("label '%s' of the result is in no operand"):format(c))
    end
  end
  return inputs, result
end

-- ---- computing: an operand is {x = tensor, labels = a label for each dimension} ----

local function set(list)
  local s = {}
  for i, c in ipairs(list) do s[c] = i end
  return s
end

-- Replaces two dimensions with the same label by their diagonal.
local function diagonals(x, labels, k)
  local first, d = {}, 1
  while d <= #labels do
    local c = labels[d]
    local e = first[c]
    if e then
      if x:size(e) ~= x:size(d) then
        bad(("label '%s' occurs twice in operand %d, with sizes %d and %d"):format(c, k,
          x:size(e), x:size(d)), "E_SHAPE")
      end
      x = x:diagonal(0, e, d)
      table.remove(labels, d)
      table.remove(labels, e)
      labels[#labels + 1] = c
      first, d = {}, 0
    else
      first[c] = d
    end
    d = d + 1
  end
  return {x = x, labels = labels}
end

-- Sums over the labels that are not in `keep`.
local function sum_lone(operand, keep)
  local dims, left = {}, {}
  for d, c in ipairs(operand.labels) do
    if keep[c] then left[#left + 1] = c else dims[#dims + 1] = d end
  end
  if #dims == 0 then return operand end
  return {x = operand.x:sum(dims), labels = left}
end

-- Removes a shared label that has size 1 only in `a`: the result has the other operand's size.
local function drop_ones(a, b)
  local other = set(b.labels)
  for d = #a.labels, 1, -1 do
    local e = other[a.labels[d]]
    if e and a.x:size(d) == 1 and b.x:size(e) ~= 1 then
      local labels = {unpack(a.labels)}
      table.remove(labels, d)
      a = {x = a.x:squeeze(d), labels = labels}
    end
  end
  return a
end

-- Permutes the dimensions of x to the order of the groups of labels.
local function arrange(operand, groups)
  local at, order = set(operand.labels), {}
  for _, group in ipairs(groups) do
    for _, c in ipairs(group) do order[#order + 1] = at[c] end
  end
  local same = true
  for i, d in ipairs(order) do same = same and i == d end
  return same and operand.x or operand.x:permute(order)
end

-- Returns the number of elements that a group of labels spans, and its sizes.
local function extent(operand, group)
  local at, n, sizes = set(operand.labels), 1, {}
  for i, c in ipairs(group) do
    sizes[i] = operand.x:size(at[c])
    n = n * sizes[i]
  end
  return n, sizes
end

local function join(...)
  local list = {}
  for _, part in ipairs {...} do
    for _, c in ipairs(part) do list[#list + 1] = c end
  end
  return list
end

-- Returns the product of two operands, summed over the shared labels that are not in `keep`.
local function pair(a, b, keep)
  a, b = drop_ones(a, b), drop_ones(b, a)
  local in_a, in_b = set(a.labels), set(b.labels)
  local keep_a, keep_b = setmetatable({}, {__index = keep}), setmetatable({}, {__index = keep})
  for c in pairs(in_b) do keep_a[c] = true end
  for c in pairs(in_a) do keep_b[c] = true end
  a, b = sum_lone(a, keep_a), sum_lone(b, keep_b)
  local batch, left, right, inside = {}, {}, {}, {}
  for _, c in ipairs(a.labels) do
    local group = not in_b[c] and left or keep[c] and batch or inside
    group[#group + 1] = c
  end
  for _, c in ipairs(b.labels) do
    if not in_a[c] then right[#right + 1] = c end
  end
  local labels = join(batch, left, right)
  local _, shared = extent(a, batch)
  local m, rows = extent(a, left)
  local n, columns = extent(b, right)
  if #inside == 0 then
    local x = arrange(a, {batch, left}):reshape(join(shared, rows, lib.filled(#right, 1)))
    local y = arrange(b, {batch, right}):reshape(join(shared, lib.filled(#left, 1), columns))
    return {x = x * y, labels = labels}
  end
  local k = extent(a, inside)
  local x = arrange(a, {batch, left, inside}):reshape(join(shared, {m, k}))
  local y = arrange(b, {batch, inside, right}):reshape(join(shared, {k, n}))
  return {x = x:matmul(y):reshape(join(shared, rows, columns)), labels = labels}
end

local function run(equation, operands)
  local inputs, output = plan(equation, operands)
  local keep = set(output)
  local needed, after = {}, setmetatable({}, {__index = keep})
  for k = #inputs, 1, -1 do -- needed[k]: the labels of the result and of operands after k
    needed[k] = after
    after = setmetatable(set(inputs[k]), {__index = after})
  end
  local current = sum_lone(diagonals(operands[1], inputs[1], 1), needed[1])
  for k = 2, #operands do
    current = pair(current, diagonals(operands[k], inputs[k], k), needed[k])
  end
  return arrange(current, {output})
end

local fixed = define {
  name = "einsum",
  doc = "Sums of products over dimensions named by letters. Letters that are only on the left of "
    .. "-> are summed over. A letter twice in one operand selects its diagonal. ... means any "
    .. "leading dimensions, which broadcast. Without -> the result has the letters that occur "
    .. "once. Operands are multiplied from left to right.",
  examples = "'ij,jk->ik', moth.randn(2, 3), moth.randn(3, 4)\n"
    .. "'...ij,...jk', {moth.randn(5, 2, 3), moth.randn(3, 4)}\n"
    .. "'ii->i', moth.randn(3, 3)",
  args = {
    {"string", "equation", "labels of each operand, separated by commas, then -> and the "
      .. "result's"},
    {"tensors", "operands", "the operands, as arguments or in a list"},
  },
  scoped = true,
  run = run,
}

--- moth.einsum(equation, a, b, ...) or moth.einsum(equation, {a, b, ...}).
function contract.einsum(equation, first, ...)
  if lib.is_plain(equation) and lib.istensor(equation[2]) then
    first, equation = {unpack(equation, 2)}, equation[1]
  elseif lib.istensor(first) then
    first = {first, ...}
  end
  return (fixed(equation, first))
end
bind.register(contract.einsum, bind.signature(fixed))

-- ---- tensordot ----

-- Converts dims to two lists of positions: the last n of a and the first n of b, or the given
-- lists.
local function read_dims(a, b, dims)
  local function wrong(text, code) errors.argument("tensordot", "dims", text, code) end
  local p, q = {}, {}
  if type(dims) == "number" then
    if dims % 1 ~= 0 or dims < 0 or dims > a:dim() or dims > b:dim() then
      wrong(("a number of dimensions of both tensors is needed, got %g"):format(dims), "E_ARG")
    end
    for i = 1, dims do p[i], q[i] = a:dim() - dims + i, i end
    return p, q
  end
  if not lib.is_plain(dims) or #dims ~= 2 then
    wrong("a number or two lists of dimensions are needed, got " .. errors.describe(dims),
      "E_TYPE")
  end
  for side, x in ipairs {a, b} do
    local list, seen = side == 1 and p or q, {}
    local given = type(dims[side]) == "table" and dims[side] or {dims[side]}
    for i, d in ipairs(given) do
      if type(d) ~= "number" or d % 1 ~= 0 or d == 0 or math.abs(d) > x:dim() then
        wrong(("%s is not a dimension of %s"):format(tostring(d), errors.describe(x)), "E_INDEX")
      end
      list[i] = d < 0 and x:dim() + 1 + d or d
      if seen[list[i]] then wrong(("dimension %d occurs twice"):format(list[i]), "E_ARG") end
      seen[list[i]] = true
    end
  end
  if #p ~= #q then wrong(("the lists have different lengths, %d and %d"):format(#p, #q),
    "E_SHAPE") end
  return p, q
end

local function labels_except(x, dims, letter)
  local labels, free = {}, {}
  for i, d in ipairs(dims) do labels[d] = "k" .. i end
  for d = 1, x:dim() do
    if not labels[d] then
      labels[d] = letter .. d
      free[#free + 1] = labels[d]
    end
  end
  return {x = x, labels = labels}, free
end

-- Returns the product as a product of two matrices, if the summed dimensions are the last of `a`
-- and the first of `b`, in the same order and with the same sizes; else nil.
local function matrices(a, b, p, q)
  local rows, inner, columns, shape = 1, 1, 1, {}
  local before = a:dim() - #p
  if #p == 0 or not (a.dtype.is_floating_point and b.dtype.is_floating_point) then return nil end
  for i = 1, #p do
    local n = a:size(p[i])
    if p[i] ~= before + i or q[i] ~= i or n ~= b:size(i) then return nil end
    inner = inner * n
  end
  for d = 1, before do
    shape[d] = a:size(d)
    rows = rows * shape[d]
  end
  for d = #q + 1, b:dim() do
    shape[#shape + 1] = b:size(d)
    columns = columns * shape[#shape]
  end
  local y = bind.ops.matmul(a:reshape(rows, inner), b:reshape(inner, columns))
  return (y:reshape(shape))
end

--- moth.tensordot(a, b, dims): sums over the last `dims` dimensions of a and the first of b.
contract.tensordot = define {
  name = "tensordot",
  doc = "Products summed over dimensions of both tensors. The result has the other dimensions of "
    .. "`a`, then those of `b`.",
  examples = "moth.randn(2, 3, 4), moth.randn(3, 4, 5)\n"
    .. "moth.randn(2, 3), moth.randn(4, 2), {dims = {{1}, {2}}}",
  args = {
    {"tensor", "a", "first tensor"},
    {"tensor", "b", "second tensor"},
    {"any", "dims", "a number: the last of `a`, the first of `b`; or {dims of a, dims of b}",
      default = 2},
  },
  scoped = true,
  run = function(a, b, dims)
    local p, q = read_dims(a, b, dims)
    for i = 1, #p do
      local m, n = a:size(p[i]), b:size(q[i])
      if m ~= n and m ~= 1 and n ~= 1 then
        errors.argument("tensordot", "dims", ("dimension %d of %s and %d of %s differ"):format(p[i],
          errors.describe(a), q[i], errors.describe(b)), "E_SHAPE")
      end
    end
    local direct = matrices(a, b, p, q)
    if direct then return direct end
    local left, rows = labels_except(a, p, "a")
    local right, columns = labels_except(b, q, "b")
    local output = join(rows, columns)
    return (arrange(pair(left, right, set(output)), {output}))
  end,
}

return contract
