--- dispatch.lua -- functions that choose an op by their arguments: max, min, arange, range,
-- randint, randperm, norm, cross_entropy; and equal and allclose, which return a boolean.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local dtype = require "moth.tensor.dtype"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local istensor = lib.istensor
local floor = math.floor

local dispatch = {}

-- max and min: of all elements, along a dimension with positions, or of two tensors.
local function extreme(name, pair, order)
  local own, all, along = bind.under(name), name .. "_all", name .. "_dim"
  return define {
    name = name,
    doc = ("The %s element; with `dim` the one of each slice along it, with its position; with a "
      .. "second tensor the %s of each pair."):format(order, order),
    examples = "moth.randn(2, 3)  -- domain: distinct\nmoth.randn(2, 3), 2  -- domain: distinct\n"
      .. "moth.randn(2, 3), {dim = 1, keepdim = true}  -- domain: distinct\n"
      .. "moth.randn(2, 3), {other = moth.randn(2, 3)}",
    outputs = "values, indices",
    args = {
      {"tensor", "input", "tensor of any shape", numbers = true},
      {"any", "dim", "dimension to search, or the second tensor", optional = true},
      {"bool", "keepdim", "keep the dimension with size 1", default = false},
      {"tensor", "other", "second tensor or number", numbers = true, optional = true},
    },
    run = function(input, dim, keepdim, other)
      if istensor(dim) then
        if other ~= nil then errors.argument(name, "other", "given twice") end
        other, dim = dim, nil
      end
      if type(other) ~= "nil" then
        return (own[pair](input, other))
      end
      if dim == nil then
        return (own[all](input))
      end
      local values, indices = own[along](input, dim, keepdim)
      return values, indices
    end,
  }
end

--- x:max(), x:max(dim, keepdim) -> values, indices; moth.max(a, b) elementwise.
dispatch.max = extreme("max", "maximum", "largest")
--- x:min(), x:min(dim, keepdim) -> values, indices; moth.min(a, b) elementwise.
dispatch.min = extreme("min", "minimum", "smallest")

--- moth.equal(a, b), x:equal(y): true if sizes and elements are the same.
dispatch.equal = define {
  name = "equal",
  doc = "Returns true if two tensors have the same sizes and the same elements, else false.",
  examples = "moth.randn(2, 3), moth.randn(2, 3)",
  outputs = "boolean",
  args = {
    {"tensor", "input", "tensor of any shape"},
    {"tensor", "other", "tensor to compare with"},
  },
  run = function(input, other)
    local y = bind.ops.equal(input, other)
    return y:item()
  end,
}

local norm = bind.under "norm"

--- moth.norm(x, p, dim, keepdim): the p-norm of all, or along dimensions.
dispatch.norm = define {
  name = "norm",
  doc = "The p-norm along dimensions: the p-th root of the sum of |x|^p. math.huge gives the "
    .. "largest |x|, 0 counts nonzero elements, 'fro' is 2, 'nuc' is the sum of singular values "
    .. "of matrices.",
  examples = "moth.randn(2, 3)\nmoth.randn(2, 3), 1, {dim = 2, keepdim = true}\n"
    .. "moth.randn(2, 3), 'fro', {dim = {1, 2}, dtype = moth.float64}",
  args = {
    {"tensor", "input", "tensor of any shape"},
    {"any", "p", "the power, 'fro' or 'nuc'", default = "fro"},
    {"dims", "dim", "dimensions to reduce; all of them when absent", optional = true},
    {"bool", "keepdim", "keep them as dimensions of size 1", default = false},
    {"dtype", "dtype", "converts the input first", optional = true},
  },
  run = function(input, p, dim, keepdim, kind)
    if p == "fro" or p == lib.none then p = 2 end
    if p == "nuc" then
      local n = input:dim()
      if dim == nil and n == 2 then dim = {1, 2} end
      return (require("moth.linalg").matrix_norm(input, "nuc", dim or {1, 2}, keepdim, kind))
    end
    if type(p) ~= "number" then
      errors.argument("norm", "p", "a number, 'fro' or 'nuc' is needed, got " .. errors.describe(p),
        "E_TYPE")
    end
    return (norm.norm_p(input, p, dim, keepdim, kind))
  end,
}

local allclose = bind.under "allclose"

--- moth.allclose(a, b), x:allclose(y): true if all elements are nearly the same.
dispatch.allclose = define {
  name = "allclose",
  doc = "Whether |input - other| <= atol + rtol |other| everywhere: true or false, no tensor.",
  examples = "moth.randn(2, 3), moth.randn(2, 3)\n"
    .. "moth.randn(2, 3), moth.randn(3), {rtol = 0.1, atol = 2, equal_nan = true}",
  outputs = "boolean",
  args = {
    {"tensor", "input", "tensor of any shape"},
    {"tensor", "other", "tensor to compare with, broadcast with the first"},
    {"float", "rtol", "allowed difference relative to `other`", default = 1e-5},
    {"float", "atol", "allowed difference, added to that", default = 1e-8},
    {"bool", "equal_nan", "is NaN close to NaN?", default = false},
  },
  run = function(input, other, rtol, atol, equal_nan)
    local y = allclose.isclose(input, other, rtol, atol, equal_nan):all()
    return y:item()
  end,
}

local losses = bind.under "cross_entropy"
local FLOATS = lib.C.MOTH_F16 -- the first floating-point dtype

--- F.cross_entropy(input, target): the target holds classes from 1, or probabilities of the
-- classes.
dispatch.cross_entropy = define {
  name = "cross_entropy",
  doc = "Cross entropy between scores and the right classes, or probabilities of the classes.",
  examples = "moth.randn(3, 5), moth.tensor{1LL, 5LL, 2LL}\n"
    .. "moth.randn(3, 2), moth.tensor{1LL, 2LL, 2LL}, {weight = moth.tensor{0.5, 2}, "
    .. "ignore_index = 1, label_smoothing = 0.2}\n"
    .. "moth.randn(3, 5), moth.rand(3, 5), {reduction = 'sum'}",
  args = {
    {"tensor", "input", "scores of the classes, (N, C, ...) or (C)"},
    {"any", "target", "right classes, (N, ...) or (); or probabilities, shaped as the scores"},
    {"tensor", "weight", "weight of each class, (C)", optional = true},
    {"int", "ignore_index", "targets of this value are ignored", default = -100},
    {"enum", "reduction", "reduction of the losses", choices = {"mean", "sum", "none"}},
    {"float", "label_smoothing", "share of the target distributed evenly over all classes",
     default = 0},
  },
  run = function(input, target, weight, ignore_index, reduction, label_smoothing)
    if istensor(target) and lib.inspect(target, "cross_entropy", "target").dtype >= FLOATS then
      if target.shape ~= input.shape then
        errors.argument("cross_entropy", "target", ("targets are classes (integers from 1; convert "
          .. "with :long()) or probabilities of the input's shape, %s, got %s"):format(
          tostring(input.shape), errors.describe(target)), "E_SHAPE")
      end
      if ignore_index > 0 then
        errors.argument("cross_entropy", "ignore_index", "names a class; targets that are "
          .. "probabilities have none, got " .. ignore_index, "E_ARG")
      end
      return (losses.cross_entropy_soft(input, target, weight, reduction, label_smoothing))
    end
    return (losses.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing))
  end,
}

local WHERE = {
  {"dtype", "dtype", "element type; default: int64 if all are integers, else the default dtype",
   optional = true},
  {"device", "device", "where the elements live", optional = true},
  {"bool", "requires_grad", "record gradients for it", default = false},
}

local function with_where(...)
  local rows = {...}
  for _, row in ipairs(WHERE) do rows[#rows + 1] = row end
  return rows
end

--- moth.arange(stop), moth.arange(start, stop, step): from start on, below stop.
dispatch.arange = define {
  name = "arange",
  doc = "Evenly spaced numbers from `start` (0 when only one is given) to below `stop`.",
  examples = "5\n1, 4\n0, 1, 0.25\n5, 0, -2, {dtype = moth.float64}",
  args = with_where(
    {"scalar", "start", "first value, 0 when absent; alone: the bound", optional = true},
    {"scalar", "stop", "end, not included", optional = true},
    {"scalar", "step", "distance of neighbours, may be negative", default = 1}),
  run = function(start, stop, step, kind, device, requires_grad)
    if stop == nil then start, stop = nil, start end
    if stop == nil then
      errors.argument("arange", "stop", "a number is needed, got nothing")
    end
    if start == nil then start = 0 end
    return (bind.ops.arange(start, stop, step, kind, device, requires_grad))
  end,
}

local function is_integer(x) return x % 1 == 0 end

--- moth.range(first, last, step): from first to last inclusive, as Lua's `for`.
dispatch.range = define {
  name = "range",
  doc = "Evenly spaced numbers from `first` to `last`, both included, as in Lua's `for`.",
  examples = "1, 5\n0, 1, 0.25\n3, 1, -1, {dtype = moth.float32}",
  args = with_where(
    {"float", "first", "first value"},
    {"float", "last", "last value"},
    {"float", "step", "distance of neighbours, may be negative", default = 1}),
  run = function(first, last, step, kind, device, requires_grad)
    if step == 0 or step ~= step then
      errors.argument("range", "step", "a number other than 0 is needed, got "
        .. errors.describe(step), "E_DOMAIN")
    end
    local count = floor((last - first) / step + 1e-9)
    if not (count >= 0) then count = -1 end
    if is_integer(first) and is_integer(last) and is_integer(step) then
      return (bind.ops.arange(first, first + (count + 1) * step, step, kind, device,
        requires_grad))
    end
    return (bind.ops.arange(first, first + (count + 0.5) * step, step,
      kind or dtype.by_code[lib.C.moth_default_dtype(lib.ctx, -1)], device, requires_grad))
  end,
}

--- moth.randint(high, size), moth.randint(low, high, size): integers from low (0) below high.
dispatch.randint = define {
  name = "randint",
  doc = "Random integers from `low` (0 when only one bound is given) to below `high`.",
  examples = "10, {2, 3}\n-5, 5, {4}\n0, 256, {2, 2}, {dtype = moth.uint8}",
  args = {
    {"int", "low", "smallest value; with the sizes after it: the bound", default = 0},
    {"any", "high", "bound above all values", optional = true},
    {"shape", "size", "sizes", optional = true},
    {"dtype", "dtype", "element type; i64 when absent", optional = true},
    {"device", "device", "where the elements live", optional = true},
    {"generator", "generator", "source of the numbers; the default one when absent",
     optional = true},
  },
  run = function(low, high, size, kind, device, generator)
    if type(high) == "table" and size == nil then low, high, size = 0, low, high
    elseif high == nil then low, high = 0, low end
    return (bind.ops.randint {low = low, high = high, size = size, dtype = kind,
                              device = device, generator = generator})
  end,
}

--- moth.randperm(n): 1 to n in random order.
dispatch.randperm = define {
  name = "randperm",
  doc = "The integers from 1 to n in random order.",
  examples = "5\n4, {generator = moth.Generator(), dtype = moth.int32, device = 'cpu'}",
  args = {
    {"int", "n", "how many positions"},
    {"generator", "generator", "source of the numbers; the default one when absent",
     optional = true},
    {"dtype", "dtype", "element type; i64 when absent", optional = true},
    {"device", "device", "where the elements live", optional = true},
  },
  run = function(n, generator, kind, device) -- shuffled by the CPU
    local y = bind.ops.randperm(n, generator)
    y = kind and y:to(kind) or y
    return y:to(device or require("moth.base.settings").get_default_device())
  end,
}

return dispatch
