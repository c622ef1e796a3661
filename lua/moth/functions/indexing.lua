--- indexing.lua -- functions that read or write elements by position: nonzero, where, scatter,
-- index_reduce, put, slice_scatter, select_scatter, diagonal_scatter, unravel_index, narrow_copy;
-- unfold and fill_diagonal_.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops = bind.ops
local indexing = {}

local function refuse(fname, arg, wanted, got, code)
  errors.refuse(fname, arg, wanted, got, code or "E_SHAPE")
end

local INPUT = {"tensor", "input", "tensor of any shape"}
local DIM = {"dim", "dim", "the dimension of the positions"}

-- ---- nonzero, where ----

-- Returns a list of position vectors, one for each dimension: as an index they select the nonzero
-- elements.
local function as_tuple(x)
  if x:dim() == 0 then x = x:view(1) end
  return (bind.ops.nonzero(x):unbind(2))
end

--- moth.nonzero(x): one row of positions for each element; with {as_tuple = true} a list with one
-- vector for each dimension.
indexing.nonzero = define {
  name = "nonzero",
  doc = "The positions of all elements that are not zero: one row for each; with as_tuple one "
    .. "vector for each dimension.",
  examples = "moth.tensor{{0, 1}, {2, 0}}\nmoth.tensor{{0, 1}, {2, 0}}, {as_tuple = true}",
  outputs = "positions",
  args = {
    {"tensor", "input", "tensor to search"},
    {"bool", "as_tuple", "return a list with one vector for each dimension", default = false},
  },
  run = function(input, tuple)
    if tuple then
      return (as_tuple(input))
    end
    return (bind.ops.nonzero(input))
  end,
}

--- moth.where(condition, input, other); moth.where(condition) is nonzero with as_tuple.
indexing.where = define {
  name = "where",
  doc = "Elements of one tensor where a condition is true, of another elsewhere. With only a "
    .. "condition: the positions where it is true, a list with one vector for each dimension.",
  examples = "moth.tensor{true, false}, moth.randn(2), 0\nmoth.tensor{true, false}",
  args = {
    {"tensor", "condition", "true where the result is `input`: a bool tensor"},
    {"tensor", "input", "values where the condition is true", numbers = true, optional = true},
    {"tensor", "other", "values elsewhere; all three are broadcast", numbers = true,
      optional = true},
    {"tensor", "out", "tensor for the result", optional = true},
  },
  run = function(condition, input, other, out)
    if type(input) == "nil" and type(other) == "nil" then
      return (as_tuple(condition))
    end
    if type(out) == "nil" then return (bind.ops.where(condition, input, other)) end
    return (bind.ops.where(condition, input, other, {out = out}))
  end,
}

--- x:where(condition, other): x where the condition holds.
indexing.where_method = define {
  name = "where",
  doc = "The elements of the input where a condition is true, of another tensor elsewhere.",
  examples = "moth.randn(2), moth.tensor{true, false}, 0",
  args = {
    {"tensor", "input", "values where the condition is true"},
    {"tensor", "condition", "a bool tensor"},
    {"tensor", "other", "values elsewhere; all three are broadcast", numbers = true},
  },
  run = function(input, condition, other)
    return (bind.ops.where(condition, input, other))
  end,
}

local unfold = bind.under "unfold"

--- x:unfold(dimension, size, step): a view. (F.unfold is im2col.)
indexing.unfold_method = define {
  name = "unfold",
  doc = "A view of the windows of a dimension; the last dimension is the position in a window.",
  examples = "moth.randn(2, 7), 2, 3, 2\nmoth.randn(4, 3), 1, 2, 1",
  args = {
    {"tensor", "input", "tensor of any shape"},
    {"dim", "dimension", "dimension of the windows"},
    {"int", "size", "positions in a window"},
    {"int", "step", "distance between windows"},
  },
  run = function(input, dimension, size, step)
    return (unfold.unfold_dim(input, dimension, size, step))
  end,
}

--- moth.unravel_index(indices, shape): a list of positions along each dimension.
indexing.unravel_index = define {
  name = "unravel_index",
  doc = "Converts positions in a flattened tensor to positions along each dimension of the tensor.",
  examples = "moth.tensor{1LL, 6LL}, {2, 3}",
  outputs = "list",
  args = {{"tensor", "indices", "positions, an integer tensor of any shape"},
           {"shape", "shape", "the sizes of the tensor"}},
  scoped = true,
  run = function(indices, shape)
    if indices:is_floating_point() then
      refuse("unravel_index", "indices", "an integer tensor is needed", indices, "E_DTYPE")
    end
    local list, left, total = {}, indices:long() - 1, 1
    for d = 1, #shape do total = total * shape[d] end
    local function fail()
      refuse("unravel_index", "indices", ("positions from 1 to %d are needed"):format(total),
        indices, "E_INDEX")
    end
    if total == 0 and indices:numel() > 0 then fail() end
    for d = #shape, 2, -1 do
      local before = left:div(math.max(shape[d], 1), {rounding_mode = "floor"})
      list[d] = (left + 1):sub_(before, shape[d]) -- cheaper than a second division
      left = before
    end
    if shape[1] then list[1] = left + 1 end
    if indices:numel() > 0 then
      require "moth.capture.tensor_check"(left:lt(0):logical_or_(left:ge(shape[1] or 1)), fail)
    end
    return list
  end,
}

--- x:narrow_copy(dim, start, length): a copy of narrow's result.
indexing.narrow_copy = define {
  name = "narrow_copy",
  doc = "A copy of the positions from `start` on along a dimension.",
  examples = "moth.randn(2, 5), 2, 2, 3",
  args = {INPUT, {"dim", "dim", "dimension"}, {"position", "start", "first position"},
           {"int", "length", "number of positions"}},
  run = function(input, dim, start, length) return (input:narrow(dim, start, length):clone()) end,
}

-- ---- writing by position ----

-- Defines `name` and its in-place form name_. run(name, write, ...) computes the result in the
-- tensor `write`.
local function both(name, doc, examples, args, run)
  for _, shown in ipairs {name, name .. "_"} do
    local inplace = shown ~= name
    local function write(input, y) return inplace and input:copy_(y) or y end
    --- x:index_reduce(...), x:index_reduce_(...) and so on.
    indexing[shown] = define {
      name = shown, doc = doc .. (inplace and ", in place." or "."), examples = examples,
      args = args, scoped = true,
      run = function(input, ...)
        local y = run(shown, inplace and input:clone() or input, ...) -- gradients read the input
        return (write(input, y))
      end,
    }
  end
end

both("index_reduce", "The slices at positions along a dimension, reduced with the slices of "
  .. "another "
  .. "tensor", "moth.ones(3, 2), 1, moth.tensor{1LL, 3LL, 1LL}, moth.rand(3, 2), 'prod'"
  .. "  -- domain: positive\n"
  .. "moth.ones(2, 3), 2, moth.tensor{3LL, 1LL}, moth.rand(2, 2), 'mean', {include_self = false}"
  .. "  -- domain: positive", {
    INPUT, DIM, {"tensor", "index", "positions, a vector"},
    {"tensor", "source", "a slice for each position, along the same dimension"},
    {"enum", "reduce", "the reduction", choices = {"prod", "mean", "amax", "amin"},
      required = true},
    {"bool", "include_self", "include the old values in the reduction?", default = true},
  }, function(name, input, dim, index, source, reduce, include_self)
    if input:dim() == 0 and source:dim() == 0 and index:numel() == 1 then
      return (ops.scatter_reduce(input, dim, index:reshape {}, source, reduce, include_self))
    end
    dim = errors.dim(name, "dim", dim, math.max(input:dim(), 1))
    if index:dim() > 1 or source:dim() ~= input:dim() or source:size(dim) ~= index:numel() then
      refuse(name, "source", ("a slice for each of the positions, %s, is needed along dimension %d")
        :format(errors.describe(index), dim), source)
    end
    for d = 1, input:dim() do
      if d ~= dim and source:size(d) ~= input:size(d) then
        refuse(name, "source", ("slices of %s along dimension %d are needed"):format(
          errors.describe(input), dim), source)
      end
    end
    local shape = lib.filled(input:dim(), 1, dim, index:numel())
    return (ops.scatter_reduce(input, dim, index:reshape(shape):expand(source.shape), source,
      reduce, include_self))
  end)

-- ---- scatter ----

for _, name in ipairs {"scatter", "scatter_"} do
  local own, under = bind.as(name, name), name:match "_$" or ""
  local add = bind.as("scatter_add" .. under, name)
  local multiply = bind.as("scatter_reduce" .. under, name)
  --- x:scatter(dim, index, src, reduce), x:scatter_(...).
  indexing[name] = define {
    name = name,
    doc = "The input with values written at positions along a dimension" .. (under == "_" and ", "
      .. "in place."
      or "."),
    examples = "moth.randn(3, 4), 2, moth.tensor{{1LL}, {4LL}, {2LL}}, moth.randn(3, 1)\n"
      .. "moth.randn(3, 4), -2, {{1, 2, 3, 1}}, 0.5\n"
      .. "moth.randn(3), 1, moth.tensor{2LL, 2LL}, moth.randn(2), {reduce = 'add'}\n"
      .. "moth.randn(3), 1, {2}, {value = 2, reduce = 'multiply'}",
    args = {
      {"tensor", "input", "tensor to change"},
      {"dim", "dim", "the dimension of the positions"},
      {"index", "index", "positions"},
      {"tensor", "src", "values, at least as large as `index`; or one number", numbers = true,
        optional = true},
      {"enum", "reduce", "combine the values with the input's element; default: "
        .. "one value replaces it", choices = {"add", "multiply"}, optional = true},
      {"tensor", "value", "one number, instead of src", numbers = true, optional = true},
    },
    run = function(input, dim, index, src, reduce, value)
      if type(src) == "nil" then src = value end
      if type(src) == "nil" then
        errors.argument(name, "src", "a tensor or a number is needed, got nothing")
      end
      if reduce == nil then return (own(input, dim, index, src)) end
      if lib.is_plain(index) then
        index = require("moth.tensor.create").integers(index, name, "index")
      end
      if not lib.istensor(src) then
        src = ops.full({unpack(index.shape)}, src, input.dtype, input.device)
      end
      if reduce == "add" then return (add(input, dim, index, src)) end
      return (multiply(input, dim, index, src, "prod"))
    end,
  }
end

local placed = {}
for _, name in ipairs {"put", "put_"} do
  placed[name] = bind.as("index_put", name, {indices = "index", values = "source"})
end

both("put", "Elements at positions of the flattened tensor, replaced",
  "moth.zeros(2, 3), moth.tensor{1LL, 6LL}, moth.randn(2)\n"
  .. "moth.zeros(2, 3), moth.tensor{5LL, 5LL}, moth.randn(2), {accumulate = true}", {
    INPUT, {"tensor", "index", "positions"},
    {"tensor", "source", "a number for each position"},
    {"bool", "accumulate", "add to the old value?", default = false},
  }, function(name, input, index, source, accumulate)
    if source:numel() ~= index:numel() then
      refuse(name, "source", ("%d numbers are needed"):format(index:numel()), source)
    end
    if index:is_floating_point() then
      refuse(name, "index", "integers are needed as positions", index, "E_DTYPE")
    end
    local flat = placed[name](input:reshape(-1), {index:reshape(-1)}, source:reshape(-1),
      accumulate)
    return (flat:reshape(input.shape))
  end)

--- x:slice_scatter(src, dim, start, stop, step): a copy of x with src in a range.
indexing.slice_scatter = define {
  name = "slice_scatter",
  doc = "A copy of the input in which another tensor replaces a range of positions of a dimension.",
  examples = "moth.zeros(4, 3), moth.randn(2, 3), {start = 2, stop = 3}\n"
    .. "moth.zeros(2, 5), moth.randn(2, 3), 2, 1, 5, 2",
  args = {INPUT, {"tensor", "src", "the replacement"},
           {"dim", "dim", "the range's dimension", default = 1},
           {"position", "start", "its first position", default = 1},
           {"position", "stop", "its last position; default: the dimension's last",
             optional = true},
           {"int", "step", "distance between its positions", default = 1}},
  run = function(input, src, dim, start, stop, step)
    local d = errors.dim("slice_scatter", "dim", dim, input:dim())
    local n = input:size(d)
    start, stop = start < 0 and start + n + 1 or start, stop or n
    if stop < 0 then stop = stop + n + 1 end
    if step < 1 or start < 1 or stop > n then
      errors.argument("slice_scatter", step < 1 and "step" or start < 1 and "start" or "stop",
        ("a range of 1 to %d with a step from 1 on is needed, got {%d, %d, %d}"):format(n, start,
          stop, step), "E_INDEX")
    end
    local count = math.max(math.floor((stop - start) / step) + 1, 0)
    local y = input:clone()
    local shape, stride = {unpack(y.shape)}, y:stride()
    local offset = y:storage_offset() + (start - 1) * stride[d]
    shape[d], stride[d] = count, stride[d] * step
    local fits = src:dim() == #shape
    for k = 1, #shape do fits = fits and src:size(k) == shape[k] end
    if not fits then
      refuse("slice_scatter", "src", "(" .. table.concat(shape, ", ") .. ") is needed", src)
    end
    if src:numel() == 0 then return (require("moth.autograd.attach").attach(y, src)) end
    y:as_strided(shape, stride, offset):copy_(src)
    return y
  end,
}

-- Returns a copy of input in which src replaces a part.
local function replaced(name, input, src, part)
  local y = input:clone()
  local view = part(y)
  if not (view.shape == src.shape) then
    refuse(name, "src", tostring(view.shape) .. " is needed", src)
  end
  view:copy_(src)
  return y
end

--- moth.select_scatter(x, src, dim, index): a copy of x with src at x:select(dim, index).
indexing.select_scatter = define {
  name = "select_scatter",
  doc = "A copy of the input in which another tensor replaces one position of a dimension.",
  examples = "moth.randn(2, 3), moth.randn(2), 2, 1\nmoth.randn(2, 3), moth.randn(3), 1, -1",
  args = {{"tensor", "input", "tensor of any shape"},
           {"tensor", "src", "the replacement"},
           {"dim", "dim", "dimension to select from"}, {"position", "index", "position"}},
  run = function(input, src, dim, index)
    return (replaced("select_scatter", input, src, function(y) return (y:select(dim, index)) end))
  end,
}

--- moth.diagonal_scatter(x, src, offset, dim1, dim2): a copy of x with src as its diagonal.
indexing.diagonal_scatter = define {
  name = "diagonal_scatter",
  doc = "A copy of the input in which another tensor replaces a diagonal.",
  examples = "moth.randn(3, 3), moth.randn(3)\n"
    .. "moth.randn(2, 3, 4), moth.randn(3, 2), {offset = 1, dim1 = 1, dim2 = 3}",
  args = {{"tensor", "input", "tensor of two dimensions or more"},
           {"tensor", "src", "the replacement"},
           {"int", "offset", "the diagonal; positive: above the main diagonal", default = 0},
           {"dim", "dim1", "dimension of its rows", default = 1},
           {"dim", "dim2", "dimension of its columns", default = 2}},
  run = function(input, src, offset, dim1, dim2)
    return (replaced("diagonal_scatter", input, src,
      function(y) return (y:diagonal(offset, dim1, dim2)) end))
  end,
}

--- x:fill_diagonal_(value, wrap): fills the main diagonal. @return x
indexing.fill_diagonal_ = define {
  name = "fill_diagonal_",
  doc = "Writes one value along the main diagonal.",
  examples = "moth.zeros(3, 3), 1\nmoth.zeros(7, 3), 1, {wrap = true}",
  args = {
    {"tensor", "input", "a matrix, or a tensor of equal sizes"},
    {"scalar", "fill_value", "the value"},
    {"bool", "wrap", "repeat, after a gap of one row, below the square part of a tall "
      .. "matrix?", default = false},
  },
  run = function(input, value, wrap)
    local ndim, least, step = input:dim(), math.huge, 0
    if ndim < 2 then
      errors.refuse("fill_diagonal_", "input", "at least 2 dimensions are needed", input, "E_SHAPE")
    end
    for d = 1, ndim do
      local n = input:size(d)
      if ndim > 2 and n ~= input:size(1) then
        errors.refuse("fill_diagonal_", "input",
          "with more than 2 dimensions all sizes must be equal", input,
          "E_SHAPE")
      end
      least, step = math.min(least, n), step + input:stride(d)
    end
    if least == 0 then return input end
    if ndim == 2 then
      local rows, columns = input:size(1), input:size(2)
      local square = wrap and columns + 1 or rows
      for first = 1, rows, square do
        local part = input:narrow(1, first, math.min(square, rows - first + 1))
        part:diagonal():fill_(value)
      end
    else
      input:as_strided({least}, {step}, input:storage_offset()):fill_(value)
    end
    return input
  end,
}

return indexing
