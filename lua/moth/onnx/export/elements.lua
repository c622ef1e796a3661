--- elements.lua -- ONNX nodes of elementwise ops: functions of one and two operands, comparisons,
-- activations, casts.
--
-- A row is name -> function(g, a, c), which returns the name of the result: g is the graph
-- (graph.lua), a the arguments by name, c the call. Operands are cast to the dtype of the result
-- if that is wider; number operands are constants of that dtype.

local Graph = require "moth.onnx.export.graph"
local proto = require "moth.onnx.proto"

local float = Graph.float
local ops = {}

local C = require("moth.binding.lib").C
local BOOL, I64, F32, F64 = C.MOTH_BOOL, C.MOTH_I64, C.MOTH_F32, C.MOTH_F64

-- ---- functions of one element ----

for name, op in pairs {abs = "Abs", acos = "Acos", acosh = "Acosh", asin = "Asin", asinh = "Asinh",
    atan = "Atan", atanh = "Atanh", ceil = "Ceil", cos = "Cos", cosh = "Cosh", erf = "Erf",
    exp = "Exp", floor = "Floor", log = "Log", neg = "Neg", reciprocal = "Reciprocal",
    sigmoid = "Sigmoid", sign = "Sign", sgn = "Sign", sin = "Sin", sinh = "Sinh", sqrt = "Sqrt",
    tan = "Tan", tanh = "Tanh", relu = "Relu", isnan = "IsNaN", isinf = "IsInf", selu = "Selu",
    softsign = "Softsign", hardswish = "HardSwish", positive = "Identity", clone = "Identity",
    contiguous = "Identity", to_device = "Identity"} do
  ops[name] = function(g, a) return g[op](g, a.input) end
end

function ops.erfc(g, a) return g:Sub(1, g:Erf(a.input)) end
function ops.exp2(g, a) return g:Pow(2, a.input) end
function ops.expm1(g, a) return g:Sub(g:Exp(a.input), 1) end
function ops.log1p(g, a) return g:Log(g:Add(a.input, 1)) end
function ops.log2(g, a) return g:Mul(g:Log(a.input), 1 / math.log(2)) end
function ops.log10(g, a) return g:Mul(g:Log(a.input), 1 / math.log(10)) end
function ops.rsqrt(g, a) return g:Reciprocal(g:Sqrt(a.input)) end
function ops.square(g, a) return g:Mul(a.input, a.input) end
function ops.deg2rad(g, a) return g:Mul(a.input, math.pi / 180) end
function ops.rad2deg(g, a) return g:Mul(a.input, 180 / math.pi) end
function ops.trunc(g, a) return g:Mul(g:Sign(a.input), g:Floor(g:Abs(a.input))) end
function ops.frac(g, a) return g:Sub(a.input, ops.trunc(g, a)) end
function ops.isposinf(g, a) return g:IsInf(a.input, {detect_negative = 0}) end
function ops.isneginf(g, a) return g:IsInf(a.input, {detect_positive = 0}) end
function ops.angle(g, a)
  local x = a.input
  return g:Where(g:IsNaN(x), x, g:Where(g:Less(x, 0), math.pi, 0))
end
function ops.isfinite(g, a) return g:Not(g:Or(g:IsInf(a.input), g:IsNaN(a.input))) end
function ops.bitwise_not(g, a, c)
  if c.results[1].dtype == BOOL then return g:Not(a.input) end
  if g.opset < 18 then g:refuse "it needs opset_version = 18" end
  return g:BitwiseNot(a.input)
end
function ops.logical_not(g, a) return g:Not(g:cast(a.input, BOOL)) end

function ops.round(g, a)
  if a.decimals == 0 then return g:Round(a.input) end
  return g:Div(g:Round(g:Mul(a.input, 10 ^ a.decimals)), 10 ^ a.decimals)
end

function ops.logit(g, a)
  local x = a.eps and g:Clip(a.input, a.eps, 1 - a.eps) or a.input
  return g:Log(g:Div(x, g:Sub(1, x)))
end

function ops.nan_to_num(g, a, c)
  local of = require("moth.tensor.dtype").by_code[c.results[1].dtype]
  local most = require("moth.tensor.types").finfo(of).max
  local x = g:Where(g:IsNaN(a.input), a.nan, a.input)
  x = g:Where(g:IsInf(x, {detect_negative = 0}), a.posinf or most, x)
  return g:Where(g:IsInf(x, {detect_positive = 0}), a.neginf or -most, x)
end

function ops.clamp(g, a) return g:Clip(a.input, a.min or false, a.max or false) end

function ops.clamp_tensor(g, a)
  local x = a.min and g:Max(a.input, a.min) or a.input
  return a.max and g:Min(x, a.max) or x
end

function ops.cast(g, a, c)
  return g:Cast(a.input, {to = proto.types[c.results[1].dtype]})
end

-- Converts positions between counting from 1 and from 0.
function ops.to_index(g, a) return g:Sub(g:cast(a.input, I64), g:constant(1, I64)) end
function ops.from_index(g, a) return g:Add(a.input, g:constant(1, I64)) end
ops.positions, ops.positions_there, ops.count_from_one = ops.to_index, ops.to_index, ops.to_index

-- ---- activations ----

function ops.celu(g, a) return g:Celu(a.input, {alpha = float(a.alpha)}) end
function ops.elu(g, a) return g:Elu(a.input, {alpha = float(a.alpha)}) end
function ops.relu6(g, a) return g:Clip(a.input, 0, 6) end
function ops.hardtanh(g, a) return g:Clip(a.input, a.min_val, a.max_val) end
function ops.leaky_relu(g, a)
  return g:LeakyRelu(a.input, {alpha = float(a.negative_slope)})
end
function ops.hardsigmoid(g, a) return g:HardSigmoid(a.input, {alpha = float(1 / 6)}) end
function ops.silu(g, a) return g:Mul(a.input, g:Sigmoid(a.input)) end
function ops.mish(g, a) return g:Mul(a.input, g:Tanh(g:Softplus(a.input))) end
function ops.logsigmoid(g, a) return g:Neg(g:Softplus(g:Neg(a.input))) end
function ops.tanhshrink(g, a) return g:Sub(a.input, g:Tanh(a.input)) end
function ops.softshrink(g, a)
  return g:Shrink(a.input, {lambd = float(a.lambd), bias = float(a.lambd)})
end
function ops.hardshrink(g, a) return g:Shrink(a.input, {lambd = float(a.lambd)}) end
function ops.threshold(g, a) -- NaN stays
  return g:Where(g:LessOrEqual(a.input, a.threshold), a.value, a.input)
end

function ops.softplus(g, a)
  local scaled = a.beta ~= 1 and g:Mul(a.input, a.beta) or a.input
  local y = g:Softplus(scaled)
  if a.beta ~= 1 then y = g:Div(y, a.beta) end
  return g:Where(g:Greater(scaled, a.threshold), a.input, y)
end

function ops.gelu(g, a)
  if g.opset >= 20 then return g:Gelu(a.input, {approximate = a.approximate}) end
  local x = a.input
  if a.approximate == "none" then
    return g:Mul(g:Mul(x, 0.5), g:Add(g:Erf(g:Mul(x, math.sqrt(0.5))), 1))
  end
  local cube = g:Mul(g:Mul(g:Mul(x, x), x), 0.044715)
  return g:Mul(g:Mul(x, 0.5), g:Add(g:Tanh(g:Mul(g:Add(x, cube), math.sqrt(2 / math.pi))), 1))
end

function ops.prelu(g, a)
  local weight, n = a.weight, #a.input.shapes[1]
  if weight.shapes[1][1] == 1 or n < 3 then return g:PRelu(a.input, weight) end
  local sizes = { -1}
  for d = 3, n do sizes[d - 1] = 1 end
  return g:PRelu(a.input, g:Reshape(weight, g:ints(sizes)))
end

function ops.glu(g, a)
  local x, gate = g:Split(a.input, false, {axis = a.dim, outputs = 2,
                                            num_outputs = g.opset >= 18 and 2 or nil})
  return g:Mul(x, g:Sigmoid(gate))
end

function ops.softmax(g, a) return g:Softmax(a.input, {axis = a.dim}) end
function ops.log_softmax(g, a) return g:LogSoftmax(a.input, {axis = a.dim}) end
function ops.softmin(g, a) return g:Softmax(g:Neg(a.input), {axis = a.dim}) end

function ops.dropout(g, a)
  if a.training then g:refuse "it draws random numbers; export in eval mode" end
  return g:Identity(a.input)
end
ops.dropout2d = ops.dropout

-- ---- two operands ----

for name, op in pairs {mul = "Mul", maximum = "Max", minimum = "Min", pow = "Pow",
    bitwise_and = "BitwiseAnd", bitwise_or = "BitwiseOr", bitwise_xor = "BitwiseXor"} do
  ops[name] = function(g, a, c)
    if op:find "^Bitwise" and c.results[1].dtype == BOOL then
      return g[op:sub(8)](g, a.input, a.other)
    elseif op:find "^Bitwise" and g.opset < 18 then
      g:refuse "it needs opset_version = 18"
    end
    return g[op](g, a.input, a.other or a.exponent)
  end
end

-- other * alpha
local function scaled(g, other, alpha)
  return alpha == 1 and other or g:Mul(other, alpha)
end

function ops.add(g, a, c)
  if c.results[1].dtype == BOOL then return g:Or(a.input, a.other) end
  return g:Add(a.input, scaled(g, a.other, a.alpha))
end
function ops.sub(g, a) return g:Sub(a.input, scaled(g, a.other, a.alpha)) end

function ops.div(g, a, c)
  local whole = c.results[1].dtype < 6
  if whole and a.rounding_mode == "floor" then
    local y = g:Div(g:cast(a.input, F64), g:cast(a.other, F64))
    return g:Cast(g:Floor(y), {to = proto.types[c.results[1].dtype]})
  end
  local y = g:Div(a.input, a.other)
  if a.rounding_mode == "none" or whole then return y end
  if a.rounding_mode == "floor" then return g:Floor(y) end
  return g:Mul(g:Sign(y), g:Floor(g:Abs(y)))
end
function ops.floor_divide(g, a, c)
  return ops.div(g, {input = a.input, other = a.other, rounding_mode = "floor"}, c)
end

function ops.remainder(g, a, c)
  if c.results[1].dtype < 6 then return g:Mod(a.input, a.other) end
  return g:Sub(a.input, g:Mul(g:Floor(g:Div(a.input, a.other)), a.other))
end
function ops.fmod(g, a) return g:Mod(a.input, a.other, {fmod = 1}) end

function ops.addcmul(g, a)
  return g:Add(a.input, scaled(g, g:Mul(a.tensor1, a.tensor2), a.value))
end
function ops.addcdiv(g, a)
  return g:Add(a.input, scaled(g, g:Div(a.tensor1, a.tensor2), a.value))
end
function ops.lerp(g, a)
  return g:Add(a.input, g:Mul(a.weight, g:Sub(a["end"], a.input)))
end
function ops.hypot(g, a)
  return g:Sqrt(g:Add(g:Mul(a.input, a.input), g:Mul(a.other, a.other)))
end
function ops.logaddexp(g, a)
  local most = g:Max(a.input, a.other)
  return g:Add(most, g:Log(g:Add(g:Exp(g:Sub(a.input, most)), g:Exp(g:Sub(a.other, most)))))
end
function ops.logaddexp2(g, a)
  local most, log2 = g:Max(a.input, a.other), math.log(2)
  local function power(x) return g:Exp(g:Mul(g:Sub(x, most), log2)) end
  return g:Add(most, g:Mul(g:Log(g:Add(power(a.input), power(a.other))), 1 / log2))
end

-- The angle of y / x, from -pi to pi: the arc tangent, plus or minus pi if x is negative. If an
-- operand is infinite, it counts as 1 and a finite operand as 0.
function ops.atan2(g, a)
  local y, x = a.input, a.other
  local infinite = g:Or(g:IsInf(y), g:IsInf(x))
  local function negative(v) -- checks the sign bit of a zero
    return g:Less(g:Where(g:Equal(v, 0), g:Reciprocal(v), v), 0)
  end
  local function bounded(v)
    return g:Where(infinite, g:Where(g:IsInf(v), g:Sign(v), 0), v)
  end
  local half, left = g:Where(negative(y), -math.pi, math.pi), negative(x)
  local by, bx = bounded(y), bounded(x)
  local quotient = g:Atan(g:Div(by, g:Where(g:Equal(bx, 0), 1, bx)))
  local upright = g:Where(g:Equal(by, 0), g:Where(left, half, by), g:Mul(half, 0.5))
  local result = g:Where(g:Equal(bx, 0), upright, g:Where(left, g:Add(quotient, half), quotient))
  return g:Where(g:Or(g:IsNaN(y), g:IsNaN(x)), g:Add(y, x), result)
end
ops.arctan2 = ops.atan2

-- A polynomial in w, coefficients of the highest power first.
local function polynomial(g, w, list)
  local y = list[1]
  for k = 2, #list do y = g:Add(g:Mul(y, w), list[k]) end
  return y
end

-- Mike Giles, "Approximating the erfinv function", GPU Computing Gems 2, 2011: single precision.
local NEAR = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
               -0.00125372503, -0.00417768164, 0.246640727, 1.50140941}
local FAR = { -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
              -0.0076224613, 0.00943887047, 1.00167406, 2.83297682}

function ops.erfinv(g, a)
  if a.input.dtype == F64 then g:refuse "only float32 is supported" end
  local x = a.input
  local w = g:Neg(g:Log(g:Mul(g:Sub(1, x), g:Add(1, x))))
  local near = polynomial(g, g:Sub(w, 2.5), NEAR)
  local far = polynomial(g, g:Sub(g:Sqrt(w), 3), FAR)
  local y = g:Mul(x, g:Where(g:Less(w, 5), near, far))
  return g:Where(g:Equal(g:Abs(x), 1), g:Mul(x, math.huge), y)
end

-- C. Lanczos, "A Precision Approximation of the Gamma Function", 1964: g = 7, nine terms; float64.
local LANCZOS = {676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
                  12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
                  1.5056327351493116e-7}

function ops.lgamma(g, a, c)
  local dtype = c.results[1].dtype
  g.dtype = F64
  local x = g:cast(a.input, F64)
  local below = g:Less(x, 0.5) -- by reflection
  local z = g:Sub(g:Where(below, g:Sub(1, x), x), 1)
  local sum = g:constant(0.99999999999980993, F64)
  for k, p in ipairs(LANCZOS) do sum = g:Add(sum, g:Div(p, g:Add(z, k))) end
  local t = g:Add(z, 7.5)
  local y = g:Add(g:Sub(g:Mul(g:Add(z, 0.5), g:Log(t)), t),
    g:Add(g:Log(sum), math.log(2 * math.pi) / 2))
  y = g:Where(g:Equal(z, math.huge), math.huge, y)
  local turn = g:Abs(g:Sin(g:Mul(g:Sub(x, g:Round(x)), math.pi)))
  local reflected = g:Sub(g:Log(g:Div(math.pi, turn)), y)
  reflected = g:Where(g:Equal(x, -math.huge), math.huge, reflected)
  y = g:Where(below, reflected, y)
  g.dtype = dtype
  return dtype == F64 and y or g:Cast(y, {to = proto.types[dtype]})
end

function ops.where(g, a) return g:Where(g:cast(a.condition, BOOL), a.input, a.other) end
function ops.masked_fill(g, a) return g:Where(g:cast(a.mask, BOOL), a.value, a.input) end

-- ---- comparisons ----

-- Returns the dtype for comparing x with a number: the dtype of x if it can represent the number.
local function beside(x, number)
  if x.dtype > I64 then return x.dtype end
  local value = tonumber(number.handle:item())
  return value == math.floor(value) and math.max(x.dtype, 1) or F32
end

-- Casts both operands to the dtype of the comparison.
local function alike(g, a)
  local x, y = a.input, a.other
  local code = y.number and beside(x, y)
    or require("moth.tensor.types").result_type(x.handle, y.handle).code
  return g:cast(x, code), g:cast(y, code)
end

for name, op in pairs {eq = "Equal", gt = "Greater", ge = "GreaterOrEqual", lt = "Less",
                        le = "LessOrEqual", ne = "Equal"} do
  ops[name] = function(g, a)
    local x, y = alike(g, a)
    local z = g[op](g, x, y)
    return name == "ne" and g:Not(z) or z
  end
end

for name, op in pairs {logical_and = "And", logical_or = "Or", logical_xor = "Xor"} do
  ops[name] = function(g, a) return g[op](g, g:cast(a.input, BOOL), g:cast(a.other, BOOL)) end
end

return ops
