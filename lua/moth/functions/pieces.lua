--- pieces.lua -- tensors put together and taken apart, made of a few ops each: atleast_1d and its
-- kin, column_stack, block_diag, cartesian_prod, combinations, vander, hsplit and its kin,
-- select_scatter, diagonal_scatter; pdist, trapezoid, cov, corrcoef, float_power.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops = bind.ops
local pieces = {}

local function refuse(fname, arg, wanted, got, code)
  errors.refuse(fname, arg, wanted, got, code or "E_SHAPE")
end

-- ---- more dimensions ----

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
  --- moth.atleast_1d(x) and so on: a view with that many dimensions; of several tensors a list.
  local one = define {
    name = name,
    doc = ("The tensor as a view with at least %d dimension%s; of a list of tensors, or of several "
      .. "in a row, a list."):format(n, n > 1 and "s" or ""),
    examples = "moth.randn(3)\nmoth.randn(2, 3)",
    args = { { "tensor", "input", "tensor of any shape" } },
    run = function(input)
      return (wider(input))
    end,
  }
  pieces[name] = function(first, ...)
    local several = lib.is_plain(first) and #first > 0 and next(first, #first) == nil
    if not several and select("#", ...) == 0 then return (one(first)) end
    local list = {}
    for i, x in ipairs(several and first or { first, ... }) do list[i] = one(x) end
    return list
  end
  bind.register(pieces[name], bind.signature(one))
end

-- ---- together ----

local TENSORS = { "tensors", "tensors", "tensors, in a row or in a list" }

--- moth.column_stack(a, b, ...): vectors become columns.
pieces.column_stack = define {
  name = "column_stack",
  doc = "Tensors side by side, of which vectors become columns.",
  examples = "moth.randn(3), moth.randn(3, 2)\n{moth.randn(2), moth.randn(2)}",
  args = { TENSORS },
  run = function(tensors)
    local list = {}
    for i, x in ipairs(tensors) do list[i] = x:dim() < 2 and x:reshape(-1, 1) or x end
    return (ops.cat(list, 2))
  end,
}

--- moth.block_diag(a, b, ...): matrices along the diagonal of one.
pieces.block_diag = define {
  name = "block_diag",
  doc = "A matrix of zeros with the tensors along its diagonal; vectors are rows.",
  examples = "moth.randn(2, 3), moth.randn(2)\n{moth.randn(1, 1), moth.randn(2, 2)}",
  args = { TENSORS },
  scoped = true,
  run = function(tensors)
    local rows, width, before = {}, 0, 0
    for i, x in ipairs(tensors) do
      if x:dim() > 2 then refuse("block_diag", "tensors", "matrices are needed", x) end
      rows[i] = WIDER[2](x):dim() == x:dim() and x or x:reshape(1, -1)
      width = width + rows[i]:size(2)
    end
    for i, x in ipairs(rows) do
      rows[i] = ops.pad(x, { before, width - before - x:size(2) })
      before = before + x:size(2)
    end
    return (ops.cat(rows, 1))
  end,
}

local function vectors(fname, tensors)
  for _, x in ipairs(tensors) do
    if x:dim() ~= 1 then refuse(fname, "tensors", "vectors are needed", x) end
  end
end

--- moth.cartesian_prod(a, b, ...): every choice of one element of each.
pieces.cartesian_prod = define {
  name = "cartesian_prod",
  doc = "Rows with an element of each vector, in all ways; the last one changes fastest.",
  examples = "moth.randn(2), moth.randn(3)\n{moth.randn(2), moth.randn(1), moth.randn(2)}",
  args = { TENSORS },
  scoped = true,
  run = function(tensors)
    vectors("cartesian_prod", tensors)
    if #tensors == 1 then return tensors[1] end
    local columns = {}
    local grids = require("moth.functions.results").meshgrid(tensors, { indexing = "ij" })
    for i, x in ipairs(grids) do columns[i] = x:reshape(-1) end
    return (ops.stack(columns, 2))
  end,
}

-- Adds all ways to choose `left` more positions from `first` to n.
local function choose(found, row, first, n, left, again)
  if left == 0 then
    found[#found + 1] = { unpack(row) }
    return
  end
  for i = first, again and n or n - left + 1 do
    row[#row + 1] = i
    choose(found, row, again and i or i + 1, n, left - 1, again)
    row[#row] = nil
  end
end

-- How many ways there are, as a number that may be rounded or infinite.
local function ways(n, r, again)
  local count = 1
  if again then n = n + r - 1 end
  for i = 1, math.min(r, n - r) do count = count * (n - i + 1) / i end
  return n < r and 0 or count
end

local MOST_CHOSEN = 1e8 -- numbers: they are listed in Lua first

--- moth.combinations(x, r, with_replacement): every choice of r elements.
pieces.combinations = define {
  name = "combinations",
  doc = "Rows of r elements of a vector, chosen in all ways, in their order.",
  examples = "moth.randn(4)\nmoth.randn(3), {r = 2, with_replacement = true}",
  args = { { "tensor", "input", "a vector" },
           { "int", "r", "how many are chosen", default = 2 },
           { "bool", "with_replacement", "may an element be chosen again?", default = false } },
  scoped = true,
  run = function(input, r, again)
    if input:dim() ~= 1 then refuse("combinations", "input", "a vector is needed", input) end
    if r < 0 then refuse("combinations", "r", "a number from 0 on is needed", r, "E_DOMAIN") end
    if r == 0 then return (input:narrow(1, 1, 0)) end
    if r == 2 and not lib.capture then -- whose sizes would be read
      local n = input:size(1)
      local at = require("moth.functions.composed").triu_indices(n, n, again and 0 or 1,
                                                       { device = input.device })
      return (input:index_select(1, at:t():reshape(-1)):reshape(-1, 2))
    end
    local rows = ways(input:size(1), r, again)
    if rows * r > MOST_CHOSEN then
      refuse("combinations", "r", ("at most %d elements are listed, these are %.3g rows of %d")
        :format(MOST_CHOSEN, rows, r), r, "E_DOMAIN")
    end
    local found = {}
    choose(found, {}, 1, input:size(1), r, again)
    if #found == 0 then return (input:narrow(1, 1, 0):reshape(0, r)) end
    local at = require("moth").tensor(found, { dtype = require("moth").int64,
                                               device = input.device })
    return (input:index_select(1, at:reshape(-1)):reshape(#found, r))
  end,
}

--- moth.vander(x, N, increasing): powers of x as columns.
pieces.vander = define {
  name = "vander",
  doc = "The powers of the elements of a vector as columns of a matrix.",
  examples = "moth.rand(3)  -- domain: positive\n"
    .. "moth.rand(3), {N = 4, increasing = true}  -- domain: positive",
  args = { { "tensor", "x", "a vector" },
           { "int", "N", "how many powers; as many as elements when absent", optional = true },
           { "bool", "increasing", "from the power 0 on?", default = false } },
  run = function(x, count, increasing)
    if x:dim() ~= 1 then refuse("vander", "x", "a vector is needed", x) end
    local powers = require("moth.linalg.matfun").vander(x, count)
    return (increasing and powers or powers:flip(2))
  end,
}

-- ---- apart ----

-- How many dimensions are needed, and which one is cut.
local CUTS = { hsplit = { 1, 2 }, vsplit = { 2, 1 }, dsplit = { 3, 3 } }
for name, cut in pairs(CUTS) do
  --- moth.hsplit(x, 3), x:vsplit{2, 5}: a list of views.
  pieces[name] = define {
    name = name,
    doc = ("Pieces of dimension %d%s: so many of one size, or cut behind the counts given."):format(
      cut[2], name == "hsplit" and ", or of a vector" or ""),
    examples = "moth.randn(4, 4, 4), 2\nmoth.randn(4, 4, 4), {1, 3}",
    outputs = "list",
    args = { { "tensor", "input", "tensor to take apart" },
             { "any", "indices_or_sections", "how many pieces, or a list of how far each goes" } },
    run = function(input, sections)
      if input:dim() < cut[1] then
        refuse(name, "input", ("at least %d dimensions are needed"):format(cut[1]), input)
      end
      local dim = math.min(cut[2], input:dim())
      if type(sections) == "number" and sections > 0 and input:size(dim) % sections ~= 0 then
        refuse(name, "indices_or_sections", ("a divisor of %d is needed"):format(input:size(dim)),
          sections)
      end
      return (require("moth.functions.results").tensor_split(input, sections, dim))
    end,
  }
end

-- A copy of input, of which src replaces a part.
local function replaced(name, input, src, part)
  local y = input:clone()
  local view = part(y)
  if not (view.shape == src.shape) then
    refuse(name, "src", tostring(view.shape) .. " is needed", src)
  end
  view:copy_(src)
  return y
end

--- moth.select_scatter(x, src, dim, index): x with src in place of x:select(dim, index).
pieces.select_scatter = define {
  name = "select_scatter",
  doc = "The input with another tensor in place of what select gives.",
  examples = "moth.randn(2, 3), moth.randn(2), 2, 1\nmoth.randn(2, 3), moth.randn(3), 1, -1",
  args = { { "tensor", "input", "tensor of any shape" }, { "tensor", "src", "what replaces it" },
           { "dim", "dim", "dimension to select from" }, { "position", "index", "position" } },
  run = function(input, src, dim, index)
    return (replaced("select_scatter", input, src, function(y) return (y:select(dim, index)) end))
  end,
}

--- moth.diagonal_scatter(x, src, offset, dim1, dim2): x with src as its diagonal.
pieces.diagonal_scatter = define {
  name = "diagonal_scatter",
  doc = "The input with another tensor in place of what diagonal gives.",
  examples = "moth.randn(3, 3), moth.randn(3)\n"
    .. "moth.randn(2, 3, 4), moth.randn(3, 2), {offset = 1, dim1 = 1, dim2 = 3}",
  args = { { "tensor", "input", "tensor of two dimensions or more" },
           { "tensor", "src", "what replaces it" },
           { "int", "offset", "which diagonal: above the main one if positive", default = 0 },
           { "dim", "dim1", "dimension of its rows", default = 1 },
           { "dim", "dim2", "dimension of its columns", default = 2 } },
  run = function(input, src, offset, dim1, dim2)
    return (replaced("diagonal_scatter", input, src,
      function(y) return (y:diagonal(offset, dim1, dim2)) end))
  end,
}

-- ---- measures ----

local MANY = 1e6 -- numbers in the differences of all pairs, beyond which no room is taken for them

--- moth.pdist(x, p): the distances of all pairs of rows.
pieces.pdist = define {
  name = "pdist",
  doc = "The p-norm distances of all pairs of rows of a matrix: of 1 and 2, 1 and 3, ...",
  examples = "moth.randn(4, 3)\nmoth.randn(3, 2), {p = 3}",
  args = { { "tensor", "input", "rows, (N, M)" },
           { "float", "p", "the power of the norm", default = 2 } },
  scoped = true,
  run = function(input, p)
    if input:dim() ~= 2 then refuse("pdist", "input", "(N, M) is needed", input) end
    if not (p >= 0) then refuse("pdist", "p", "a number from 0 on is needed", p, "E_DOMAIN") end
    local n = input:size(1)
    if n < 2 then
      return (require("moth.autograd.attach").attach(input:new_zeros { 0 }, input))
    end
    if require("moth.functions.composed").has_kernel(input, p) then
      return (bind.under("pdist").distances(input, nil, p))
    end
    if n * (n - 1) / 2 * input:size(2) > MANY then
      local parts = {}
      for i = 1, n - 1 do
        local apart = input:narrow(1, i, 1) - input:narrow(1, i + 1, n - i)
        parts[i] = apart:norm(p, 2)
        apart:free()
      end
      return (ops.cat(parts, 1))
    end
    local at = require("moth.functions.composed").triu_indices(n, n, 1, { device = input.device })
    local apart = input:index_select(1, at[1]) - input:index_select(1, at[2])
    return (apart:norm(p, 2))
  end,
}

local function mean_of_neighbours(y, dim)
  local n = y:size(dim)
  return (y:narrow(dim, 2, n - 1) + y:narrow(dim, 1, n - 1)) * 0.5
end

--- moth.trapezoid(y, x, dx, dim): the area under y.
pieces.trapezoid = define {
  name = "trapezoid",
  doc = "The area under values along a dimension, by straight lines between neighbours.",
  examples = "moth.randn(2, 4)\nmoth.randn(2, 4), moth.randn(4)\n"
    .. "moth.randn(4, 2), {dx = 0.5, dim = 1}",
  args = { { "tensor", "y", "values" },
           { "tensor", "x", "where they are: a vector, or of y's shape", optional = true },
           { "float", "dx", "distance of neighbours, without x", default = 1 },
           { "dim", "dim", "dimension along which they lie", default = -1 } },
  scoped = true,
  run = function(y, x, dx, dim)
    dim = errors.dim("trapezoid", "dim", dim, math.max(y:dim(), 1))
    if y:size(dim) == 0 then return (require("moth.autograd.attach").attach(y:sum(dim), x)) end
    if x == nil then
      return ((y:sum(dim) - (y:select(dim, 1) + y:select(dim, -1)) * 0.5) * dx)
    end
    if x:dim() == 1 and y:dim() > 1 then
      x = x:reshape(lib.filled(y:dim(), 1, dim, x:size(1)))
    end
    if x:dim() < dim or x:size(dim) ~= y:size(dim) then
      refuse("trapezoid", "x", ("%d of them are needed"):format(y:size(dim)), x)
    end
    return ((mean_of_neighbours(y, dim) * x:diff(1, dim)):sum(dim))
  end,
}

local function weights_of(name, w, n)
  if w ~= nil and w:dim() == 0 and n == 1 then w = w:reshape(1) end
  if w ~= nil and (w:dim() ~= 1 or w:size(1) ~= n) then
    refuse("cov", name, ("(%d) is needed"):format(n), w)
  end
  return w
end

-- Counts are integers, weights floats, and neither is negative.
local function check_weights(f, w)
  if f ~= nil and (f:is_floating_point() or f.dtype == require("moth").bool) then
    refuse("cov", "fweights", "integers are needed", f, "E_DTYPE")
  elseif w ~= nil and not w:is_floating_point() then
    refuse("cov", "aweights", "a float tensor is needed", w, "E_DTYPE")
  end
  if lib.capture then return end
  for name, x in pairs { fweights = f, aweights = w } do
    if not x:ge(0):all():item() then
      errors.argument("cov", name, "numbers from 0 on are needed", "E_DOMAIN")
    end
  end
end

--- moth.cov(x, correction, fweights, aweights): rows are variables, columns observations.
pieces.cov = define {
  name = "cov",
  doc = "The covariances of variables, the rows, from observations, the columns.",
  examples = "moth.randn(3, 5)\nmoth.randn(5), {correction = 0}\n"
    .. "moth.randn(2, 3), {fweights = moth.tensor{1LL, 3LL, 2LL}, aweights = moth.rand(3)}"
    .. "  -- domain: positive",
  args = { { "tensor", "input", "(variables, observations), or a single variable" },
           { "int", "correction", "what is taken off the number of observations", default = 1 },
           { "tensor", "fweights", "how often each was observed", optional = true },
           { "tensor", "aweights", "how much each counts", optional = true } },
  scoped = true,
  run = function(input, correction, fweights, aweights)
    if input:dim() > 2 then refuse("cov", "input", "a matrix or a vector is needed", input) end
    local x = input:dim() == 2 and input or input:reshape(1, -1)
    if not x:is_floating_point() then x = x:to(require("moth").get_default_dtype()) end
    local n = x:size(2)
    local f, w = weights_of("fweights", fweights, n), weights_of("aweights", aweights, n)
    check_weights(f, w)
    local by = f ~= nil and w ~= nil and f * w or f == nil and w or f
    local y
    if by == nil then
      local apart = x - x:mean(2, true)
      y = apart:matmul(apart:t()) / math.max(n - correction, 0)
    else
      if not by:is_floating_point() then by = by:to(x.dtype) end
      local total = by:sum()
      local apart = x - (x * by):sum(2, true) / total
      local left = (w ~= nil and correction ~= 0) and total - (by * w):sum() / total * correction
        or total - correction
      y = (apart * by):matmul(apart:t()) / left:clamp(0)
    end
    return x:size(1) == 1 and y:reshape {} or y
  end,
}

--- moth.corrcoef(x): covariances divided by the deviations.
pieces.corrcoef = define {
  name = "corrcoef",
  doc = "The correlations of variables, the rows, from observations, the columns: from -1 to 1.",
  examples = "moth.randn(3, 5)",
  args = { { "tensor", "input", "(variables, observations), or a single variable" } },
  scoped = true,
  run = function(input)
    if input:is_floating_point() and input:numel() > 0 then -- squares stay in the range
      local most = input:detach():abs():amax { -1, keepdim = true }
      input = input / ops.where(most:gt(0):logical_and(most:isfinite()), most, 1)
    end
    local c = pieces.cov(input)
    if c:dim() == 0 then return c / c end
    local spread = c:diagonal():sqrt()
    return ((c / spread:unsqueeze(2) / spread:unsqueeze(1)):clamp(-1, 1))
  end,
}

--- moth.float_power(x, exponent): a power, in float64.
pieces.float_power = define {
  name = "float_power",
  doc = "A power computed in float64, whatever the dtypes are.",
  examples = "moth.rand(2, 3), 1.5  -- domain: positive\n"
    .. "moth.rand(3), moth.rand(2, 3)  -- domain: positive",
  args = { { "tensor", "input", "the base, a number or a tensor", numbers = true },
           { "tensor", "exponent", "a number or a tensor", numbers = true } },
  run = function(input, exponent)
    if not lib.istensor(input) then
      if not lib.istensor(exponent) then
        errors.argument("float_power", "input", "at least one tensor is needed, got "
          .. errors.describe(input), "E_TYPE")
      end
      return (ops.pow(input, exponent:double()))
    end
    if lib.istensor(exponent) then exponent = exponent:double() end
    return (input:double():pow(exponent))
  end,
}

return pieces
