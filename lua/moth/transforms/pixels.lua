--- pixels.lua -- moth.transforms.functional: the dtype and the range of pixels.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local dtype = require "moth.tensor.dtype"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local kernels = require "moth.transforms.kernels"

local ops = bind.ops
local types = dtype.by_name
local pixels = {}

-- The number of bits of the largest value.
local BITS = {[types.uint8] = 8, [types.int8] = 7, [types.int16] = 15, [types.int32] = 31,
              [types.int64] = 63}
pixels.BITS = BITS

--- The value of white: 1 for floating point, the largest value of an integer dtype.
function pixels.largest(kind)
  local bits = BITS[kind]
  if not bits then return 1 end
  return bits == 63 and 2 ^ 63 or 2 ^ bits - 1
end

local function to_dtype(x, kind, scale)
  local from = x.dtype
  kind = kind or types.float32
  if from == kind then return x end
  if not scale then return (x:to(kind)) end
  local float, floats = from.is_floating_point, kind.is_floating_point
  if from == types.bool or kind == types.bool then
    errors.argument("to_dtype", "scale", "is not possible for bool")
  elseif float and floats then
    return (x:to(kind))
  elseif float then
    if from ~= types.float64 and (kind == types.int32 or kind == types.int64)
       or kind == types.int64 then
      errors.argument("to_dtype", "dtype", ("%s has more digits than %s"):format(tostring(kind),
        tostring(from)), "E_DTYPE")
    end
    return ((x * (pixels.largest(kind) + 1 - 1e-3)):to(kind))
  elseif floats then
    return (x:to(kind):mul_(1 / pixels.largest(from)))
  end
  local less = BITS[from] - BITS[kind]
  if less > 0 then return (ops.bitwise_right_shift(x, less):to(kind)) end
  return (ops.bitwise_left_shift(x:to(kind), -less))
end

kernels.add("to_dtype", {image = to_dtype,
                         mask = function(x, kind) return (x:to(kind or types.float32)) end})

local INPUT = {"object", "inpt", "a picture, (..., C, H, W)"}

pixels.to_dtype = define {
  name = "to_dtype",
  doc = "A picture in another dtype. With `scale` 255 of uint8 becomes 1 of float32.",
  examples = "moth.rand(3, 4, 5):mul(255):byte(), moth.float32, true\n"
    .. "moth.rand(3, 4, 5), moth.uint8, {scale = true}",
  args = {INPUT, {"dtype?", "dtype", "the new dtype; default: float32"},
          {"bool", "scale", "convert the range of values, too?", default = false}},
  run = kernels.of("to_dtype"),
}

pixels.convert_image_dtype = define {
  name = "convert_image_dtype",
  doc = "A picture in another dtype, with the range of values converted, too: 255 of uint8 becomes "
    .. "1 of float32.",
  examples = "moth.rand(3, 4, 5):mul(255):byte()",
  args = {{"object", "image", "a picture, (..., C, H, W)"},
          {"dtype?", "dtype", "the new dtype; default: float32"}},
  run = function(x, kind)
    if not lib.istensor(x) and not (type(x) == "table" and x.dtype) then
      errors.refuse("convert_image_dtype", "image", "a picture is needed", x, "E_TYPE")
    end
    return (to_dtype(x, kind, true))
  end,
}

-- ---- normalize ----

-- Numbers for each channel, in the dtype and on the device of x.
local function column(x, numbers)
  local y = require("moth").tensor(numbers, {dtype = x.dtype, device = x.device})
  return y:dim() == 1 and y:view(-1, 1, 1) or y
end

--- Raises if a standard deviation is 0.
function pixels.check_std(std)
  for _, each in ipairs(type(std) == "table" and std or {std}) do
    if each == 0 then
      errors.argument("normalize", "std", "is 0, which divides by 0", "E_DOMAIN")
    end
  end
end

local function normalize(x, mean, std, inplace)
  if not x:is_floating_point() then
    errors.argument("normalize", "inpt", ("a floating-point picture is needed, got %s (convert it: "
      .. "to_dtype(x, moth.float32, true))"):format(errors.describe(x)), "E_DTYPE")
  elseif x:dim() < 3 then
    errors.refuse("normalize", "inpt", "(..., C, H, W) is needed", x, "E_SHAPE")
  end
  pixels.check_std(std)
  local y = inplace and x:sub_(column(x, mean)) or x - column(x, mean)
  if inplace or not y.requires_grad then return (y:div_(column(x, std))) end
  return y / column(x, std)
end

kernels.add("normalize", {image = normalize})

pixels.normalize = define {
  name = "normalize",
  doc = "Subtracts the mean of each channel and divides by the standard deviation.",
  examples = "moth.rand(3, 4, 5), {0.5, 0.4, 0.3}, {0.2, 0.2, 0.2}",
  args = {INPUT, {"floats", "mean", "of each channel"},
          {"floats", "std", "the standard deviation of each channel"},
          {"bool", "inplace", "change the picture itself?", default = false}},
  run = kernels.of("normalize"),
}

--- to_dtype(x, float32, true), then normalize, in one pass for bytes.
function pixels.to_normalized(x, mean, std)
  if x.dtype == types.uint8 and x:dim() == 3 and kernels.plain(x) then
    return (ops.squeeze(ops.picture_normalize(ops.unsqueeze(x, 1), mean, std), {1}))
  elseif x.dtype == types.uint8 and x:dim() == 4 and kernels.plain(x) then
    return (ops.picture_normalize(x, mean, std))
  end
  return (normalize(to_dtype(x, types.float32, true), mean, std))
end

return pixels
