--- joining.lua -- functions that join and split tensors: atleast_1d, column_stack, block_diag,
-- cartesian_prod, combinations, meshgrid, broadcast_tensors, broadcast_shapes, tensor_split,
-- hsplit, split_with_sizes.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops = bind.ops
local joining = {}

local function promote(a, b)
  return require("moth.tensor.types").promote_types(a, b)
end

local function refuse(fname, arg, wanted, got, code)
  errors.refuse(fname, arg, wanted, got, code or "E_SHAPE")
end

-- ---- adding dimensions ----

local WIDER = {
  function(x) return x:dim() == 0 and x:reshape(1) or x end,
  function(x) return x:dim() == 0 and x:reshape(1, 1) or x:dim() == 1 and x:unsqueeze(1) or x end,
  function(x)
    if x:dim() == 0 then return x:reshape(1, 1, 1) end
    if x:dim() == 1 then return x:unsqueeze(1):unsqueeze(3) end
    return x:dim() == 2 and x:unsqueeze(3) or x
  end,
}

for n, wider in ipairs(WIDER) do
  local name = ("atleast_%dd"):format(n)
  --- moth.atleast_1d(x) and so on: a view with at least so many dimensions; for several tensors a
  -- list.
  local one = define {
    name = name,
    doc = ("A view of the tensor with at least %d dimension%s; for a list of tensors, or several "
      .. "tensors, a list of views."):format(n, n > 1 and "s" or ""),
    examples = "moth.randn(3)\nmoth.randn(2, 3)",
    args = {{"tensor", "input", "tensor of any shape"}},
    run = function(input)
      return (wider(input))
    end,
  }
  joining[name] = function(first, ...)
    local several = lib.is_plain(first) and #first > 0 and next(first, #first) == nil
    if not several and select("#", ...) == 0 then return (one(first)) end
    local list = {}
    for i, x in ipairs(several and first or {first, ...}) do list[i] = one(x) end
    return list
  end
  bind.register(joining[name], bind.signature(one))
end

-- ---- joining ----

local TENSORS = {"tensors", "tensors", "tensors, as arguments or in a list"}

--- moth.column_stack(a, b, ...): a matrix whose columns are the vectors.
joining.column_stack = define {
  name = "column_stack",
  doc = "Tensors side by side; vectors are columns.",
  examples = "moth.randn(3), moth.randn(3, 2)\n{moth.randn(2), moth.randn(2)}",
  args = {TENSORS},
  run = function(tensors)
    local list = {}
    for i, x in ipairs(tensors) do list[i] = x:dim() < 2 and x:reshape(-1, 1) or x end
    return (ops.cat(list, 2))
  end,
}

--- moth.block_diag(a, b, ...): a matrix with the given matrices along its diagonal.
joining.block_diag = define {
  name = "block_diag",
  doc = "A matrix with the tensors along its diagonal, else 0; vectors are rows.",
  examples = "moth.randn(2, 3), moth.randn(2)\n{moth.randn(1, 1), moth.randn(2, 2)}",
  args = {TENSORS},
  scoped = true,
  run = function(tensors)
    if #tensors == 0 then
      errors.argument("block_diag", "tensors", "at least one tensor is needed, got none", "E_ARG")
    end
    local rows, height, width, dtype = {}, 0, 0, nil
    for i, x in ipairs(tensors) do
      if x:dim() > 2 then refuse("block_diag", "tensors", "matrices are needed", x) end
      x = WIDER[2](x):dim() == x:dim() and x or x:reshape(1, -1)
      rows[i], height, width = x, height + x:size(1), width + x:size(2)
      dtype = dtype and dtype ~= x.dtype and promote(dtype, x.dtype) or x.dtype
    end
    local y = rows[1]:new_zeros({height, width}, {dtype = dtype})
    local down, across = 1, 1
    for _, x in ipairs(rows) do
      local h, w = x:size(1), x:size(2)
      ops.copy_(y:narrow(1, down, h):narrow(2, across, w), x)
      down, across = down + h, across + w
    end
    return y
  end,
}

-- Defines an op on a list of tensors that PyTorch also accepts as separate arguments.
local function in_a_row(name)
  local op = bind.ops[name]
  local function call(first, ...)
    if not lib.istensor(first) then
      return (op(first, ...))
    end
    local tensors, rest, n = {first}, {...}, select("#", ...)
    local given = 0
    while lib.istensor(rest[given + 1]) do
      given = given + 1
      tensors[given + 1] = rest[given]
    end
    return (op(tensors, unpack(rest, given + 1, n)))
  end
  bind.register(call, bind.signature(op))
  return call
end

--- moth.meshgrid(a, b, ...) or moth.meshgrid({a, b, ...}, indexing) -> a list.
joining.meshgrid = in_a_row("meshgrid")
--- moth.broadcast_tensors(a, b, ...) or moth.broadcast_tensors {a, b, ...} -> a list.
joining.broadcast_tensors = in_a_row("broadcast_tensors")

--- moth.broadcast_shapes(a, b, ...): the shape to which all shapes broadcast.
function joining.broadcast_shapes(...)
  local sizes, tools = require "moth.tensor.size", require("moth.distributions.distribution").tools
  local y = sizes.wrap {}
  for i = 1, select("#", ...) do
    local one = select(i, ...)
    local shape = type(one) == "number" and {one} or one
    if type(shape) ~= "table" then refuse("broadcast_shapes", "shapes", "sizes are needed", one) end
    local found = tools.broadcast_shape(y, shape)
    if not found then
      refuse("broadcast_shapes", "shapes", "sizes that can be broadcast with " .. tostring(y)
        .. " are needed", one)
    end
    y = found
  end
  return y
end

local function vectors(fname, tensors)
  for _, x in ipairs(tensors) do
    if x:dim() ~= 1 then refuse(fname, "tensors", "vectors are needed", x) end
  end
end

--- moth.cartesian_prod(a, b, ...): all combinations of one element of each vector.
joining.cartesian_prod = define {
  name = "cartesian_prod",
  doc = "All combinations of one element of each vector, as rows; the last vector changes fastest.",
  examples = "moth.randn(2), moth.randn(3)\n{moth.randn(2), moth.randn(1), moth.randn(2)}",
  args = {TENSORS},
  scoped = true,
  run = function(tensors)
    vectors("cartesian_prod", tensors)
    if #tensors == 1 then return tensors[1] end
    local columns = {}
    local grids = joining.meshgrid(tensors, {indexing = "ij"})
    for i, x in ipairs(grids) do columns[i] = x:reshape(-1) end
    return (ops.stack(columns, 2))
  end,
}

-- Appends all selections of `left` more positions from `first` to n.
local function choose(found, row, first, n, left, again)
  if left == 0 then
    found[#found + 1] = {unpack(row)}
    return
  end
  for i = first, again and n or n - left + 1 do
    row[#row + 1] = i
    choose(found, row, again and i or i + 1, n, left - 1, again)
    row[#row] = nil
  end
end

-- Returns the number of selections; it may be rounded or infinite.
local function ways(n, r, again)
  local count = 1
  if again then n = n + r - 1 end
  for i = 1, math.min(r, n - r) do count = count * (n - i + 1) / i end
  return n < r and 0 or count
end

local MOST_CHOSEN = 1e8 -- elements of the result, which is first listed in Lua

--- moth.combinations(x, r, with_replacement): all selections of r elements.
joining.combinations = define {
  name = "combinations",
  doc = "All selections of r elements of a vector, as rows, in the vector's order.",
  examples = "moth.randn(4)\nmoth.randn(3), {r = 2, with_replacement = true}",
  args = {{"tensor", "input", "a vector"},
           {"int", "r", "the number of selected elements", default = 2},
           {"bool", "with_replacement", "may an element be selected several times?",
             default = false}},
  scoped = true,
  run = function(input, r, again)
    if input:dim() ~= 1 then refuse("combinations", "input", "a vector is needed", input) end
    if r < 0 then refuse("combinations", "r", "a number from 0 on is needed", r, "E_DOMAIN") end
    if r == 0 then return (input:narrow(1, 1, 0)) end
    if r == 2 and not lib.capture then -- in a captured step the sizes cannot be read
      local n = input:size(1)
      local at = require("moth.functions.creation").triu_indices(n, n, again and 0 or 1,
                                                       {device = input.device})
      return (input:index_select(1, at:t():reshape(-1)):reshape(-1, 2))
    end
    local rows = ways(input:size(1), r, again)
    if rows * r > MOST_CHOSEN then
      refuse("combinations", "r", ("the result may have at most %d elements, not %.3g rows of %d")
        :format(MOST_CHOSEN, rows, r), r, "E_DOMAIN")
    end
    local found = {}
    choose(found, {}, 1, input:size(1), r, again)
    if #found == 0 then return (input:narrow(1, 1, 0):reshape(0, r)) end
    local at = require("moth").tensor(found, {dtype = require("moth").int64,
                                               device = input.device})
    return (input:index_select(1, at:reshape(-1)):reshape(#found, r))
  end,
}

-- ---- splitting ----

local MOST_PIECES = 2 ^ 20 -- the limit of split and chunk too

-- Returns the ends of the pieces: n of about equal size, the larger ones first, or the given ends,
-- clamped as in Python.
local function ends_of(sections, size)
  local ends = {}
  if type(sections) == "number" then
    if sections < 1 or sections % 1 ~= 0 then
      errors.argument("tensor_split", "indices_or_sections", "at least one piece is needed, got "
        .. sections)
    elseif sections > MOST_PIECES then
      errors.argument("tensor_split", "indices_or_sections", ("%d pieces are requested, at most %d "
        .. "are possible"):format(sections, MOST_PIECES), "E_LIMIT")
    end
    local piece, larger = math.floor(size / sections), size % sections
    for i = 1, sections do ends[i] = i * piece + math.min(i, larger) end
    return ends
  end
  if not lib.is_plain(sections) then
    errors.argument("tensor_split", "indices_or_sections",
      "a number or a list of numbers is needed, "
      .. "got " .. errors.describe(sections), "E_TYPE")
  end
  for i, stop in ipairs(sections) do
    if type(stop) ~= "number" or stop % 1 ~= 0 then
      errors.refuse("tensor_split", "indices_or_sections", "integers are needed", stop,
        "E_TYPE")
    end
    if stop < 0 then stop = stop + size end
    ends[i] = math.max(0, math.min(stop, size))
  end
  ends[#ends + 1] = size
  return ends
end

--- moth.tensor_split(x, 3), moth.tensor_split(x, {2, 5}): a list of views.
joining.tensor_split = define {
  name = "tensor_split",
  doc = "Splits a dimension into a number of pieces of about equal size, or at the given "
    .. "positions: {2, 5} splits after the second and the fifth position.",
  examples = "moth.randn(5, 2), 3\nmoth.randn(2, 6), {2, 5}, {dim = 2}",
  outputs = "list",
  args = {
    {"tensor", "input", "the tensor to split"},
    {"any", "indices_or_sections", "number of pieces, or a list or tensor of the last "
      .. "positions of the pieces, except the last piece"},
    {"int", "dim", "dimension to split", default = 1},
  },
  run = function(input, sections, dim)
    local list, start = {}, 0
    local size = input:size(errors.dim("tensor_split", "dim", dim, input:dim()))
    if lib.istensor(sections) and sections:dim() < 2 then
      sections = sections:dim() == 0 and sections:item() or sections:tolist()
    end
    for i, stop in ipairs(ends_of(sections, size)) do
      list[i] = input:narrow(dim, math.min(start, size) + 1, math.max(0, stop - start))
      start = stop
    end
    return list
  end,
}

-- The number of dimensions that each function needs, and the dimension that it splits.
local CUTS = {hsplit = {1, 2}, vsplit = {2, 1}, dsplit = {3, 3}}
for name, cut in pairs(CUTS) do
  --- moth.hsplit(x, 3), x:vsplit{2, 5}: a list of views.
  joining[name] = define {
    name = name,
    doc = ("Splits dimension %d%s into a number of pieces, or after the given positions."):format(
      cut[2], name == "hsplit" and ", or of a vector" or ""),
    examples = "moth.randn(4, 4, 4), 2\nmoth.randn(4, 4, 4), {1, 3}",
    outputs = "list",
    args = {{"tensor", "input", "the tensor to split"},
             {"any", "indices_or_sections", "number of pieces, or a list of their last "
               .. "positions"}},
    run = function(input, sections)
      if input:dim() < cut[1] then
        refuse(name, "input", ("at least %d dimensions are needed"):format(cut[1]), input)
      end
      local dim = math.min(cut[2], input:dim())
      if type(sections) == "number" and sections > 0 and input:size(dim) % sections ~= 0 then
        refuse(name, "indices_or_sections", ("a divisor of %d is needed"):format(input:size(dim)),
          sections)
      end
      return (joining.tensor_split(input, sections, dim))
    end,
  }
end

--- x:split_with_sizes(sizes, dim): a list of views.
joining.split_with_sizes = define {
  name = "split_with_sizes",
  doc = "Splits a dimension into pieces of the given sizes, as views.",
  examples = "moth.randn(5, 2), {2, 3}\nmoth.randn(2, 4), {1, 3}, {dim = 2}",
  outputs = "list",
  args = {{"tensor", "input", "tensor of any shape"},
           {"ints", "split_sizes", "the sizes, whose sum is the dimension's size"},
           {"dim", "dim", "dimension to split", default = 1}},
  run = function(input, sizes, dim)
    local total = 0
    for _, size in ipairs(sizes) do total = total + size end
    if #sizes == 1 and total ~= input:size(dim) then -- `split` would split it into several
      refuse("split_with_sizes", "split_sizes", ("sizes that add up to %d are needed"):format(
        input:size(dim)), sizes)
    end
    return (ops.split(input, sizes, dim))
  end,
}

return joining
