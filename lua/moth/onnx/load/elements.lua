--- elements.lua -- elementwise nodes of an ONNX graph: activations, arithmetic, comparisons,
-- casts, softmax.

local lib = require "moth.binding.lib"
local M = require "moth"
local codes = require("moth.tensor.dtype").codes
local rows = require "moth.onnx.load.rows"

local F = M.nn.functional
local N, row, refuse, whole = rows.N, rows.row, rows.refuse, rows.whole

-- ---- one operand ----

for op, name in pairs {Abs = "abs", Acos = "acos", Acosh = "acosh", Asin = "asin", Asinh = "asinh",
    Atan = "atan", Atanh = "atanh", Ceil = "ceil", Cos = "cos", Cosh = "cosh", Erf = "erf",
    Exp = "exp", Floor = "floor", Log = "log", Neg = "neg", Reciprocal = "reciprocal",
    Round = "round", Sigmoid = "sigmoid", Sign = "sign", Sin = "sin", Sinh = "sinh", Sqrt = "sqrt",
    Tan = "tan", Tanh = "tanh", Relu = "relu", IsNaN = "isnan", Not = "logical_not",
    BitwiseNot = "bitwise_not"} do
  N[op] = row("", function(_, x) return (M[name](x)) end)
end

for op, name in pairs {Softsign = "softsign", HardSwish = "hardswish", Mish = "mish"} do
  N[op] = row("", function(_, x) return (F[name](x)) end)
end

N.Identity = row("", function(_, x) return x end)
N.Elu = row("alpha=1.0", function(a, x) return F.elu(x, a.alpha) end)
N.Celu = row("alpha=1.0", function(a, x) return F.celu(x, a.alpha) end)
N.LeakyRelu = row("alpha=0.01", function(a, x) return F.leaky_relu(x, a.alpha) end)
N.Selu = row("alpha=1.67326319217681884765625 gamma=1.05070102214813232421875", function(a, x)
  return M.where(x:gt(0), x, x:expm1() * a.alpha) * a.gamma
end)
N.ThresholdedRelu = row("alpha=1.0", function(a, x) return F.threshold(x, a.alpha, 0) end)
N.HardSigmoid = row("alpha=0.2 beta=0.5", function(a, x)
  return (x * a.alpha + a.beta):clamp(0, 1)
end)
N.Softplus = row("", function(_, x) return F.softplus(x) end)
N.Gelu = row("approximate=none", function(a, x)
  return F.gelu(x, {approximate = a.approximate})
end)
N.Swish = row("alpha=1.0", function(a, x)
  return a.alpha == 1 and F.silu(x) or x * (x * a.alpha):sigmoid()
end)
N.SwiGLU = row("2 alpha=1.0", function(a, gate, x) return N.Swish.run(a, gate) * x end)
N.Shrink = row("bias=0.0 lambd=0.5", function(a, x)
  return M.where(x:lt(-a.lambd), x + a.bias, M.where(x:gt(a.lambd), x - a.bias, x * 0)):to(x.dtype)
end)
N.PRelu = row("2", function(_, x, slope) return M.where(x:lt(0), x * slope, x) end)
N.Clip = row("min:float max:float", function(a, x, low, high)
  low, high = low or a.min, high or a.max -- attributes before opset 11
  if type(low) == "number" or type(high) == "number" then
    return x:clamp {min = low, max = high}
  end
  if low then x = M.maximum(x, low) end
  return high and M.minimum(x, high) or x
end)
N.IsInf = row("detect_negative=1 detect_positive=1", function(a, x)
  if a.detect_negative == 0 and a.detect_positive == 0 then return M.zeros_like(x):bool() end
  if a.detect_negative == 0 then return x:isposinf() end
  return a.detect_positive == 0 and x:isneginf() or x:isinf()
end)

-- training_mode is fixed in a file: a constant, or computed from an input.
N.Dropout = row("seed:int ratio=0.5", function(a, x, ratio, training)
  local p = ratio and ratio[1] or a.ratio
  if not (training and training[1] ~= 0) or p == 0 then return x, M.ones_like(x):bool() end
  local mask = M.rand(rows.shape(x), {device = x.device}):ge(p)
  return M.where(mask, x, 0) / (1 - p), mask
end, "2 3")
N.Cast = row("to:int! saturate=1 round_mode:string", function(a, x)
  return x:to(rows.dtype(a.to))
end)
N.CastLike = row("2 saturate=1 round_mode:string", function(_, x, y) return x:to(y.dtype) end)
N.BitCast = row("to:int!", function(a, x)
  local dtype = rows.dtype(a.to)
  if dtype.itemsize ~= x.dtype.itemsize then
    refuse("%s has elements of another size than %s", dtype.name, x.dtype.name)
  end
  if dtype == x.dtype then return x end
  if lib.capture then refuse "BitCast is not supported in a captured step" end
  local shape, h, device = lib.int64s(math.max(x:dim(), 1)), lib.Handle(), x.device
  for d = 1, x:dim() do shape[d - 1] = x:size(d) end
  x = x:detach():cpu():contiguous()
  local start = lib.data(x, "onnx.load")
  lib.check(lib.C.moth_from_bytes(lib.ctx, codes[dtype], shape, x:dim(), start,
    x:numel() * dtype.itemsize, h), "onnx.load")
  return lib.adopt(h, 0):to(device)
end)

-- ---- two operands and more ----

for op, name in pairs {Add = "add", Sub = "sub", Mul = "mul", Equal = "eq", Greater = "gt",
    GreaterOrEqual = "ge", Less = "lt", LessOrEqual = "le", And = "logical_and", Or = "logical_or",
    Xor = "logical_xor", BitwiseAnd = "bitwise_and", BitwiseOr = "bitwise_or",
    BitwiseXor = "bitwise_xor"} do
  N[op] = row("2", function(_, x, y) return (M[name](x, y)) end)
end

N.BitShift = row("2 direction:string!", function(a, x, y)
  if a.direction ~= "LEFT" and a.direction ~= "RIGHT" then
    refuse("direction %s", rows.quoted(a.direction))
  end
  return M["bitwise_" .. a.direction:lower() .. "_shift"](x, y)
end)
N.Div = row("2", function(_, x, y)
  return whole(x) and x:div(y, {rounding_mode = "trunc"}) or x / y
end)
N.Mod = row("2 fmod=0", function(a, x, y)
  return a.fmod == 1 and M.fmod(x, y) or M.remainder(x, y)
end)
N.Pow = row("2", function(_, x, y)
  if whole(x) and not whole(y) then return x:double():pow(y:double()):to(x.dtype) end
  return x:pow(y:to(x.dtype))
end)
N.Where = row("3", function(_, mask, x, y) return M.where(mask, x, y) end)

local function fold(f)
  return function(_, ...)
    local y = ...
    for i = 2, select("#", ...) do y = f(y, (select(i, ...))) end
    return y
  end
end
N.Max, N.Min = row("", fold(M.maximum)), row("", fold(M.minimum))
N.Sum = row("", fold(M.add))
N.Mean = row("", function(a, ...) return N.Sum.run(a, ...) / select("#", ...) end)

-- ---- along an axis ----

-- Before opset 13 all dimensions from the axis on were flattened to one.
local function along(f)
  return row("axis:int", function(a, x)
    local axis = a.axis or (a.opset < 13 and 1 or -1)
    if a.opset >= 13 then return f(x, rows.dim(axis)) end
    return f(x:flatten(rows.place(x, axis)), -1):reshape(x.shape)
  end)
end
N.Softmax = along(function(x, d) return x:softmax(d) end)
N.LogSoftmax = along(function(x, d) return x:log_softmax(d) end)
N.Hardmax = along(function(x, d)
  return M.zeros_like(x):scatter(d, x:argmax {dim = d, keepdim = true}, 1)
end)

return rows
