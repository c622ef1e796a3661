--- quantize.lua -- fake_quantize_per_tensor_affine and fake_quantize_per_channel_affine: round
-- floats to a few quantization levels, for quantization-aware training.
--
-- q = round(x / scale) + zero_point, clamped to [quant_min, quant_max]; the result is (q -
-- zero_point) scale. The gradient is 1 where q was not clamped, and 0 elsewhere (the
-- straight-through estimator: Jacob et al., 2018).

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local func = require "moth.autograd.function"
local lib = require "moth.binding.lib"

local ops, istensor = bind.ops, lib.istensor

local quantize = {}

local function moth() return require "moth" end

local Fake = class("FakeQuantize", func.Function)

function Fake.forward(ctx, x, scale, zero, low, high)
  local q = (x * scale:reciprocal()):round() + zero
  ctx:save_for_backward(q:ge(low):logical_and(q:le(high)))
  return (q:clamp(low, high) - zero) * scale
end

function Fake.backward(ctx, dy) return dy * ctx.saved_tensors[1], nil, nil end

-- Quantizes x by scale and zero_point tensors of a float type; returns x's dtype.
local function run(fname, x, scale, zero, low, high)
  local dtype = x.dtype
  local narrow = dtype == moth().float16 or dtype == moth().bfloat16
  if not x:is_floating_point() then
    errors.refuse(fname, "input", "a floating tensor is needed", x, "E_DTYPE")
  elseif low > high then
    errors.argument(fname, "quant_min", ("%d is above quant_max, %d"):format(low, high))
  end
  if narrow then x = x:float() end
  local y = Fake.apply(x, scale:to(x.dtype), zero:to(x.dtype), low, high)
  return narrow and y:to(dtype) or y
end

-- Raises for zero points out of range, if the check needs no synchronization.
local function check_points(fname, zero, low, high)
  if zero.dtype == moth().bool then
    errors.refuse(fname, "zero_point", "numbers are needed", zero, "E_DTYPE")
  end
  if zero.is_cuda or zero:numel() == 0 then return end
  local check = require "moth.capture.tensor_check"
  check(zero:ge(low):logical_and(zero:le(high)):logical_not(), function()
    errors.refuse(fname, "zero_point", ("numbers from quant_min, %d, to quant_max, %d, are needed")
      :format(low, high), zero, "E_DOMAIN")
  end)
end

-- Converts a number, or a tensor of one element, to a float tensor. Numbers are rounded as in
-- PyTorch.
local function one(fname, name, value, x)
  if istensor(value) and value:numel() == 1 then return (value:detach():reshape({}):float()) end
  if type(value) ~= "number" then
    errors.refuse(fname, name, "a number or a tensor of one element is needed", value, "E_TYPE")
  end
  return (ops.full({}, value, {dtype = moth().float32, device = x.device}))
end

local LIMITS = {
  {"int", "quant_min", "the smallest quantized integer"},
  {"int", "quant_max", "the largest quantized integer"},
}

quantize.fake_quantize_per_tensor_affine = define {
  name = "fake_quantize_per_tensor_affine",
  doc = "Rounds each element to a quantization level: computes round(x / scale) + zero_point, "
    .. "clamps it to [quant_min, quant_max] and converts it back. Halves are rounded to the even "
    .. "integer. The gradient is 1 where nothing was clamped, else 0.",
  examples = "moth.randn(2, 3), 0.1, 10, 0, 255\n"
    .. "moth.randn(2, 3), moth.tensor(0.1), moth.tensor(3LL), -128, 127",
  args = {
    {"tensor", "input", "floats of any shape"},
    {"any", "scale", "distance between levels: a number above 0, or a tensor of one element"},
    {"any", "zero_point", "the integer that represents 0, from quant_min to quant_max: a "
      .. "number, or a tensor of one element, checked on the CPU outside captured steps"},
    unpack(LIMITS),
  },
  outputs = "output", scoped = true,
  run = function(x, scale, zero, low, high)
    local fname = "fake_quantize_per_tensor_affine"
    if type(scale) == "number" and not (scale > 0 and scale < math.huge) then
      errors.refuse(fname, "scale", "a number above 0 is needed", scale, "E_DOMAIN")
    elseif type(zero) == "number" and not (zero >= low and zero <= high and zero % 1 == 0) then
      errors.refuse(fname, "zero_point", ("an integer from quant_min, %d, to quant_max, %d, "
        .. "is needed"):format(low, high), zero, "E_DOMAIN")
    elseif istensor(zero) and low <= high then
      check_points(fname, zero, low, high)
    end
    return (run(fname, x, one(fname, "scale", scale, x), one(fname, "zero_point", zero, x), low,
      high))
  end,
}

quantize.fake_quantize_per_channel_affine = define {
  name = "fake_quantize_per_channel_affine",
  doc = "As fake_quantize_per_tensor_affine, with one scale and zero_point for each position of a "
    .. "dimension. Scales are not checked, a zero_point only on the CPU and outside of captured "
    .. "steps.",
  examples = "moth.randn(2, 3), moth.tensor{0.1, 0.2}, moth.tensor{0LL, 1LL}, 1, 0, 255",
  args = {
    {"tensor", "input", "floats of any shape"},
    {"tensor", "scale", "(channels), above 0"},
    {"tensor", "zero_point", "(channels), the integers that represent 0"},
    {"int", "axis", "the dimension of the channels"},
    unpack(LIMITS),
  },
  outputs = "output", scoped = true,
  run = function(x, scale, zero, axis, low, high)
    local fname, n = "fake_quantize_per_channel_affine", x:dim()
    if n == 0 then errors.refuse(fname, "input", "a dimension is needed", x, "E_SHAPE") end
    local d = errors.dim(fname, "axis", axis, n)
    local sizes = lib.filled(n, 1)
    sizes[d] = x:size(d)
    for _, row in ipairs {{"scale", scale}, {"zero_point", zero}} do
      local name, t = unpack(row)
      if t:dim() ~= 1 or t:size(1) ~= sizes[d] then
        errors.refuse(fname, name, ("a tensor of %d elements is needed, one for each position of "
          .. "dimension %d"):format(sizes[d], d), t, "E_SHAPE")
      end
    end
    if low <= high then check_points(fname, zero, low, high) end
    return (run(fname, x, scale:detach():float():view(sizes), zero:detach():view(sizes), low,
      high))
  end,
}

return quantize
