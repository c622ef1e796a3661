--- reindex.lua -- functions of positions and shapes made of a few ops each: index_reduce, put,
-- slice_scatter, unravel_index, narrow_copy, diagflat, sum_to_size, split_with_sizes,
-- broadcast_shapes.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops = bind.ops
local reindex = {}

local function refuse(fname, arg, wanted, got, code)
  errors.refuse(fname, arg, wanted, got, code or "E_SHAPE")
end

local INPUT = { "tensor", "input", "tensor of any shape" }
local DIM = { "dim", "dim", "dimension that the positions are along" }

-- name and name_, of which the second writes the input itself. run(name, write, ...): write(y)
-- takes what the result is.
local function both(name, doc, examples, args, run)
  for _, shown in ipairs { name, name .. "_" } do
    local inplace = shown ~= name
    local function write(input, y) return inplace and input:copy_(y) or y end
    --- x:index_reduce(...), x:index_reduce_(...) and so on.
    reindex[shown] = define {
      name = shown, doc = doc .. (inplace and ", in place." or "."), examples = examples,
      args = args, scoped = true,
      run = function(input, ...)
        local y = run(shown, inplace and input:clone() or input, ...) -- which gradients read
        return (write(input, y))
      end,
    }
  end
end

both("index_reduce", "What a tensor holds at positions along a dimension, joined with another's "
  .. "slices", "moth.ones(3, 2), 1, moth.tensor{1LL, 3LL, 1LL}, moth.rand(3, 2), 'prod'"
  .. "  -- domain: positive\n"
  .. "moth.ones(2, 3), 2, moth.tensor{3LL, 1LL}, moth.rand(2, 2), 'mean', {include_self = false}"
  .. "  -- domain: positive", {
    INPUT, DIM, { "tensor", "index", "positions, a vector" },
    { "tensor", "source", "a slice for each position, along the same dimension" },
    { "enum", "reduce", "how they are joined", choices = { "prod", "mean", "amax", "amin" },
      required = true },
    { "bool", "include_self", "does what stands there count?", default = true },
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

for _, name in ipairs { "scatter", "scatter_" } do
  local own, under = bind.as(name, name), name:match "_$" or ""
  local add = bind.as("scatter_add" .. under, name)
  local multiply = bind.as("scatter_reduce" .. under, name)
  --- x:scatter(dim, index, src, reduce), x:scatter_(...).
  reindex[name] = define {
    name = name,
    doc = "The input with values at positions along a dimension" .. (under == "_" and ", in place."
      or "."),
    examples = "moth.randn(3, 4), 2, moth.tensor{{1LL}, {4LL}, {2LL}}, moth.randn(3, 1)\n"
      .. "moth.randn(3, 4), -2, {{1, 2, 3, 1}}, 0.5\n"
      .. "moth.randn(3), 1, moth.tensor{2LL, 2LL}, moth.randn(2), {reduce = 'add'}\n"
      .. "moth.randn(3), 1, {2}, {value = 2, reduce = 'multiply'}",
    args = {
      { "tensor", "input", "tensor to change" },
      { "dim", "dim", "dimension the positions belong to" },
      { "index", "index", "positions" },
      { "tensor", "src", "values, at least as large as `index`; or one number", numbers = true,
        optional = true },
      { "enum", "reduce", "what the values at one position become, with the input's; when absent "
        .. "one of them replaces it", choices = { "add", "multiply" }, optional = true },
      { "tensor", "value", "one number, in the place of src", numbers = true, optional = true },
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
        src = ops.full({ unpack(index.shape) }, src, input.dtype, input.device)
      end
      if reduce == "add" then return (add(input, dim, index, src)) end
      return (multiply(input, dim, index, src, "prod"))
    end,
  }
end

local placed = {}
for _, name in ipairs { "put", "put_" } do
  placed[name] = bind.as("index_put", name, { indices = "index", values = "source" })
end

both("put", "Elements at positions of the tensor as if it were a vector, replaced",
  "moth.zeros(2, 3), moth.tensor{1LL, 6LL}, moth.randn(2)\n"
  .. "moth.zeros(2, 3), moth.tensor{5LL, 5LL}, moth.randn(2), {accumulate = true}", {
    INPUT, { "tensor", "index", "positions" },
    { "tensor", "source", "a number for each" },
    { "bool", "accumulate", "add to what stands there?", default = false },
  }, function(name, input, index, source, accumulate)
    if source:numel() ~= index:numel() then
      refuse(name, "source", ("%d numbers are needed"):format(index:numel()), source)
    end
    if index:is_floating_point() then
      refuse(name, "index", "integers are needed as positions", index, "E_DTYPE")
    end
    local flat = placed[name](input:reshape(-1), { index:reshape(-1) }, source:reshape(-1),
      accumulate)
    return (flat:reshape(input.shape))
  end)

--- x:slice_scatter(src, dim, start, stop, step): x with src in place of a range.
reindex.slice_scatter = define {
  name = "slice_scatter",
  doc = "The input with another tensor in place of a range of positions along a dimension.",
  examples = "moth.zeros(4, 3), moth.randn(2, 3), {start = 2, stop = 3}\n"
    .. "moth.zeros(2, 5), moth.randn(2, 3), 2, 1, 5, 2",
  args = { INPUT, { "tensor", "src", "what replaces it" },
           { "dim", "dim", "dimension along which the range is", default = 1 },
           { "position", "start", "its first position", default = 1 },
           { "position", "stop", "its last position; that of the dimension when absent",
             optional = true },
           { "int", "step", "distance of its positions", default = 1 } },
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
    local shape, stride = { unpack(y.shape) }, y:stride()
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

--- moth.unravel_index(indices, shape): a list of positions along each dimension.
reindex.unravel_index = define {
  name = "unravel_index",
  doc = "The positions along each dimension of elements whose positions in the tensor as a vector "
    .. "are given.",
  examples = "moth.tensor{1LL, 6LL}, {2, 3}",
  outputs = "list",
  args = { { "tensor", "indices", "positions, an integer tensor of any shape" },
           { "shape", "shape", "the sizes of the tensor" } },
  run = function(indices, shape)
    if indices:is_floating_point() then
      refuse("unravel_index", "indices", "an integer tensor is needed", indices, "E_DTYPE")
    end
    local list, left, total = {}, indices:long() - 1, 1
    for d = #shape, 1, -1 do total = total * shape[d] end
    if indices:numel() > 0 then
      require "moth.capture.check"(left:lt(0):logical_or(left:ge(total)), function()
        refuse("unravel_index", "indices", ("positions from 1 to %d are needed"):format(total),
          indices, "E_INDEX")
      end)
    end
    for d = #shape, 1, -1 do
      list[d] = left % shape[d] + 1
      left = left:div(shape[d], { rounding_mode = "floor" })
    end
    return list
  end,
}

--- x:narrow_copy(dim, start, length): a copy of what narrow gives.
reindex.narrow_copy = define {
  name = "narrow_copy",
  doc = "A copy of the positions from `start` on along a dimension.",
  examples = "moth.randn(2, 5), 2, 2, 3",
  args = { INPUT, { "dim", "dim", "dimension" }, { "position", "start", "first position" },
           { "int", "length", "how many positions" } },
  run = function(input, dim, start, length) return (input:narrow(dim, start, length):clone()) end,
}

--- moth.diagflat(x, offset): a matrix with all elements of x on a diagonal.
reindex.diagflat = define {
  name = "diagflat",
  doc = "A matrix of zeros with all elements of a tensor, in order, on a diagonal.",
  examples = "moth.randn(3)\nmoth.randn(2, 2), {offset = -1}",
  args = { INPUT, { "int", "offset", "which diagonal: above the main one if positive",
                    default = 0 } },
  run = function(input, offset) return (input:flatten():diag(offset)) end,
}

--- x:sum_to_size(size): the sum over what broadcasting added to that size.
reindex.sum_to_size = define {
  name = "sum_to_size",
  doc = "The tensor summed to sizes from which it could be broadcast.",
  examples = "moth.randn(2, 3), {1, 3}\nmoth.randn(4, 2, 3), {3}",
  args = { INPUT, { "shape", "size", "the sizes" } },
  run = function(input, size)
    if #size == 0 then return (input:sum()) end
    local n, over = input:dim() - #size, {}
    for d = 1, input:dim() do
      local kept = d > n and size[d - n] or 1
      if kept ~= input:size(d) then over[#over + 1] = d end
      if kept ~= 1 and kept ~= input:size(d) or n < 0 then
        refuse("sum_to_size", "size", "sizes that can be broadcast to " .. tostring(input.shape)
          .. " are needed", size)
      end
    end
    if n < 0 then refuse("sum_to_size", "size", "no more dimensions than the input's", size) end
    local y = #over > 0 and input:sum(over, true) or input
    return (y:reshape(size))
  end,
}

--- x:split_with_sizes(sizes, dim): a list of views.
reindex.split_with_sizes = define {
  name = "split_with_sizes",
  doc = "Pieces of the given sizes along a dimension, as views.",
  examples = "moth.randn(5, 2), {2, 3}\nmoth.randn(2, 4), {1, 3}, {dim = 2}",
  outputs = "list",
  args = { INPUT, { "ints", "split_sizes", "the sizes, which add up to the dimension's" },
           { "dim", "dim", "dimension to cut", default = 1 } },
  run = function(input, sizes, dim)
    local total = 0
    for _, size in ipairs(sizes) do total = total + size end
    if #sizes == 1 and total ~= input:size(dim) then -- `split` would cut pieces of that size
      refuse("split_with_sizes", "split_sizes", ("sizes that add up to %d are needed"):format(
        input:size(dim)), sizes)
    end
    return (ops.split(input, sizes, dim))
  end,
}

--- moth.broadcast_shapes(a, b, ...): the sizes they have together.
function reindex.broadcast_shapes(...)
  local sizes, tools = require "moth.tensor.size", require("moth.distributions.distribution").tools
  local y = sizes.wrap {}
  for i = 1, select("#", ...) do
    local one = select(i, ...)
    local shape = type(one) == "number" and { one } or one
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

return reindex
