--- color.lua -- moth.transforms.functional: colours.
--
-- Integers are computed in f32 and truncated, as torchvision does, so that the values are equal.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local dtype = require "moth.tensor.dtype"
local errors = require "moth.error"
local kernels = require "moth.transforms.kernels"
local pixels = require "moth.transforms.pixels"

local ops = bind.ops
local types = dtype.by_name
local color = {}

local INPUT = {"object", "inpt", "a picture, (..., C, H, W)"}

-- Adds a function of pictures under its name.
local function add(name, image, record)
  kernels.add(name, {image = image})
  record.name, record.run = name, kernels.of(name)
  table.insert(record.args, 1, INPUT)
  color[name] = define(record)
end

-- The number of channels; raises unless it is 1 or 3.
local function channels_of(fname, x)
  local n = x:dim() >= 3 and x:size(-3)
  if n == 1 or n == 3 then return n end
  errors.refuse(fname, "inpt", "a picture with 1 or 3 channels is needed, (..., C, H, W)", x,
    "E_SHAPE")
end

local function check_factor(fname, name, factor)
  if factor < 0 then
    errors.refuse(fname, name, "a number from 0 on is needed", factor, "E_DOMAIN")
  end
end

local function as_float(x) return x:is_floating_point() and x or x:float() end

-- Clips to the range of a dtype, and converts to it.
local function clipped(y, kind)
  return (y:clamp(0, pixels.largest(kind)):to(kind))
end

-- ---- grey ----

-- The grey picture of three channels, in floating point, (..., 1, H, W).
local function grey_of(x)
  local r, g, b = unpack(as_float(x):unbind(-3))
  return (r * 0.2989 + g * 0.587 + b * 0.114):unsqueeze(-3)
end

local function grayscale(x, channels)
  local n = channels_of("rgb_to_grayscale", x)
  if channels ~= 1 and channels ~= 3 then
    errors.refuse("rgb_to_grayscale", "num_output_channels", "1 or 3 is needed", channels,
      "E_DOMAIN")
  end
  local y = n == 3 and grey_of(x):to(x.dtype) or x:clone()
  if channels == 1 then return y end
  local copies = {}
  for i = 1, x:dim() do copies[i] = 1 end
  copies[x:dim() - 2] = 3
  return (ops["repeat"](y, copies))
end

add("rgb_to_grayscale", grayscale, {
  doc = "The brightness of each pixel: 0.2989 R + 0.587 G + 0.114 B.",
  examples = "moth.rand(3, 4, 5)\nmoth.rand(3, 4, 5), {num_output_channels = 3}",
  args = {{"int", "num_output_channels", "1, or 3 equal channels", default = 1}},
})

add("grayscale_to_rgb", function(x)
  if x:size(-3) >= 3 then return x end
  return (grayscale(x, 3))
end, {
  doc = "A grey picture with three equal channels; a picture with three channels is returned.",
  examples = "moth.rand(1, 4, 5)",
  args = {},
})

-- ---- brightness, contrast, saturation ----

-- The result for bytes on the CPU, in one pass; nil for other pictures.
local function of_bytes(x, what, factor)
  if x.dtype ~= types.uint8 or not kernels.plain(x) then return nil end
  local batch, restore = require("moth.transforms.geometry").as_batch(x)
  return (restore(ops.picture_adjust(batch, what, factor)))
end

-- x * ratio + y * (1 - ratio), clipped to the range of x.
local function blend(x, y, ratio)
  return (clipped(as_float(x) * ratio + y * (1 - ratio), x.dtype))
end

add("adjust_brightness", function(x, factor)
  check_factor("adjust_brightness", "brightness_factor", factor)
  channels_of("adjust_brightness", x)
  return of_bytes(x, "brightness", factor) or (clipped(as_float(x) * factor, x.dtype))
end, {
  doc = "Multiplies all values: 0 is black, 1 is the picture itself.",
  examples = "moth.rand(3, 4, 5), 1.5",
  args = {{"float", "brightness_factor", "from 0 on"}},
})

-- Grey, rounded down for integers.
local function whole_grey(x)
  local y = grey_of(x)
  return x:is_floating_point() and y or y:floor()
end

add("adjust_contrast", function(x, factor)
  check_factor("adjust_contrast", "contrast_factor", factor)
  local channels, y = channels_of("adjust_contrast", x), of_bytes(x, "contrast", factor)
  if y then return y end
  local grey = channels == 3 and whole_grey(x) or as_float(x)
  return (blend(x, grey:mean({-3, -2, -1}, true), factor))
end, {
  doc = "Moves all values towards, or away from, the mean of the grey picture: 0 is grey, 1 is the "
    .. "picture itself.",
  examples = "moth.rand(3, 4, 5), 0.5",
  args = {{"float", "contrast_factor", "from 0 on"}},
})

add("adjust_saturation", function(x, factor)
  check_factor("adjust_saturation", "saturation_factor", factor)
  if channels_of("adjust_saturation", x) == 1 then return x end
  return of_bytes(x, "saturation", factor) or (blend(x, whole_grey(x), factor))
end, {
  doc = "Moves colours towards, or away from, grey: 0 is grey, 1 is the picture itself.",
  examples = "moth.rand(3, 4, 5), 2",
  args = {{"float", "saturation_factor", "from 0 on"}},
})

-- ---- hue ----

-- Hue, saturation and value of pixels from 0 to 1; each (..., H, W).
local function hsv_of(x)
  local r, g, b = unpack(x:unbind(-3))
  local high, low = ops.amax(x, {-3}), ops.amin(x, {-3})
  local range, flat = high - low, high:eq(low)
  local s = range / ops.masked_fill(high, flat, 1)
  local by = ops.masked_fill(range, flat, 1)
  local rc, gc, bc = (high - r) / by, (high - g) / by, (high - b) / by
  local moth = require "moth"
  local h = moth.where(high:eq(r), bc - gc, moth.where(high:eq(g), rc + 2 - bc, gc + 4 - rc))
  return (h * (1 / 6) + 1):fmod(1), s, high
end

-- Red, green and blue from hue, saturation and value. Each sixth of the circle of hues has another
-- order of v, q, p and t.
local function rgb_of(h, s, v)
  local moth = require "moth"
  local h6 = h * 6
  local i = h6:floor()
  local f = h6 - i
  local sector = i:remainder(6)
  local p = ((1 - s) * v):clamp(0, 1)
  local q = ((1 - s * f) * v):clamp(0, 1)
  local t = ((s * f + (1 - s)) * v):clamp(0, 1)
  local is = {}
  for k = 0, 5 do is[k] = sector:eq(k) end
  local function chosen(a, b, c, d, e, last)
    local y = last
    for k, value in ipairs {a, b, c, d, e} do y = moth.where(is[k - 1], value, y) end
    return y
  end
  return (ops.stack({chosen(v, q, p, p, t, v), chosen(t, v, v, q, p, p),
    chosen(p, p, t, v, v, q)}, -3))
end

add("adjust_hue", function(x, factor)
  if not (factor >= -0.5 and factor <= 0.5) then
    errors.refuse("adjust_hue", "hue_factor", "a number from -0.5 to 0.5 is needed", factor,
      "E_DOMAIN")
  end
  if channels_of("adjust_hue", x) == 1 or x:numel() == 0 then return x end
  local kind, to_dtype = x.dtype, kernels.run
  local h, s, v = hsv_of(to_dtype("to_dtype", "image", x, types.float32, true))
  return (to_dtype("to_dtype", "image", rgb_of((h + factor):remainder(1), s, v), kind, true))
end, {
  doc = "Turns the hue of each pixel in the circle of colours.",
  examples = "moth.rand(3, 4, 5), 0.25",
  args = {{"float", "hue_factor", "part of the circle, -0.5 to 0.5"}},
})

add("adjust_gamma", function(x, gamma, gain)
  check_factor("adjust_gamma", "gamma", gamma)
  local y = kernels.run("to_dtype", "image", x, x:is_floating_point() and x.dtype
    or types.float32, true):pow(gamma)
  if gain ~= 1 then y = (y * gain):clamp(0, 1) end
  return (kernels.run("to_dtype", "image", y, x.dtype, true))
end, {
  doc = "Gamma correction: gain * x ^ gamma, for values from 0 to 1.",
  examples = "moth.rand(3, 4, 5), 0.5\nmoth.rand(3, 4, 5), 2, {gain = 1.5}",
  args = {{"float", "gamma", "from 0 on: above 1 shadows become darker"},
          {"float", "gain", "a factor", default = 1}},
})

-- ---- sharpness ----

add("adjust_sharpness", function(x, factor)
  check_factor("adjust_sharpness", "sharpness_factor", factor)
  local channels = channels_of("adjust_sharpness", x)
  local height, width = x:size(-2), x:size(-1)
  if x:numel() == 0 or height <= 2 or width <= 2 then return x end
  local batch, restore = require("moth.transforms.geometry").as_batch(x)
  local y = as_float(batch)
  local a, b = 1 / 13, 5 / 13
  local filter = require("moth").tensor({{a, a, a}, {a, b, a}, {a, a, a}}, {dtype = y.dtype,
    device = y.device}):view(1, 1, 3, 3):expand(channels, 1, 3, 3)
  local soft = ops.conv2d(y, filter, nil, 1, 0, 1, channels)
  if not x:is_floating_point() then soft = soft:round() end
  local inner = ops.narrow(ops.narrow(y, 3, 2, height - 2), 4, 2, width - 2)
  soft = ops.pad(soft - inner, {1, 1, 1, 1}, "constant", 0)
  return (restore(clipped(y + soft * (1 - factor), x.dtype)))
end, {
  doc = "Blurs or sharpens: 0 is blurred, 1 is the picture itself, 2 is sharpened.",
  examples = "moth.rand(3, 4, 5), 2",
  args = {{"float", "sharpness_factor", "from 0 on"}},
})

-- ---- values ----

add("invert", function(x)
  if x:is_floating_point() then return 1 - x end
  if x.dtype == types.uint8 then return 255 - x end
  return (ops.bitwise_xor(x, pixels.largest(x.dtype)))
end, {
  doc = "The negative.",
  examples = "moth.rand(3, 4, 5)",
  args = {},
})

add("posterize", function(x, bits)
  if bits < 0 or bits > 8 then
    errors.refuse("posterize", "bits", "a number from 0 to 8 is needed", bits, "E_DOMAIN")
  end
  if x:is_floating_point() then
    local levels = 2 ^ bits
    return (x * levels):floor():clamp(0, levels - 1) * (1 / levels)
  end
  local all = pixels.BITS[x.dtype]
  if bits >= all then return x end
  local low = 2 ^ (all - bits)
  return (ops.bitwise_and(x, (2 ^ bits - 1) * low))
end, {
  doc = "Keeps the first bits of each value.",
  examples = "moth.rand(3, 4, 5):mul(255):byte(), 3",
  args = {{"int", "bits", "the number of bits that are kept, 0 to 8"}},
})

add("solarize", function(x, threshold)
  if threshold > pixels.largest(x.dtype) then
    errors.argument("solarize", "threshold", ("is above the largest value of %s, %g, got %g")
      :format(tostring(x.dtype), pixels.largest(x.dtype), threshold), "E_DOMAIN")
  end
  return (require("moth").where(as_float(x):ge(threshold), kernels.run("invert", "image", x), x))
end, {
  doc = "The negative of all values from a threshold on.",
  examples = "moth.rand(3, 4, 5), 0.5",
  args = {{"float", "threshold", "the smallest value that is inverted"}},
})

add("autocontrast", function(x)
  channels_of("autocontrast", x)
  if x:numel() == 0 then return x end
  local y = as_float(x)
  local low, high = ops.amin(y, {-2, -1}, true), ops.amax(y, {-2, -1}, true)
  local flat = high:eq(low)
  local scale = ops.masked_fill((high - low) * (1 / pixels.largest(x.dtype)), flat, 1)
  return (clipped((y - ops.masked_fill(low, flat, 0)) / scale, x.dtype))
end, {
  doc = "Stretches the values of each channel to the full range.",
  examples = "moth.rand(3, 4, 5)",
  args = {},
})

add("equalize", function(x)
  if x:numel() == 0 then return x end
  local kind, run = x.dtype, kernels.run
  local bytes = run("to_dtype", "image", x, types.uint8, true)
  local flat = bytes:flatten(-2):long()
  local rows = flat:view(-1, flat:size(-1))
  local counts = require("moth").zeros(rows:size(1), 256, {dtype = types.int64, device = x.device})
  counts = ops.scatter_add(counts, 2, rows + 1, ops.ones_like(rows))
  local sums = ops.cumsum(counts, 2)
  local last = ops.gather(counts, 2, ops.argmax(sums, 2, true))
  local step = (rows:size(2) - last):div(255, "floor")
  local before = ops.narrow(sums, 2, 1, 255) + step:div(2, "floor")
  local table_of = ops.pad(before:div(step:clamp_min(1), "floor"):clamp(0, 255), {1, 0},
    "constant", 0)
  local y = ops.gather(table_of, 2, rows + 1):to(types.uint8)
  y = require("moth").where(step:ne(0), y, rows:to(types.uint8)):view(unpack(bytes.shape))
  return (run("to_dtype", "image", y, kind, true))
end, {
  doc = "Makes all values of a channel equally frequent (histogram equalization).",
  examples = "moth.rand(3, 4, 5):mul(255):byte()",
  args = {},
})

add("permute_channels", function(x, order)
  if #order ~= x:size(-3) then
    errors.refuse("permute_channels", "permutation", ("%d positions are needed"):format(x:size(-3)),
      order, "E_SHAPE")
  end
  return (ops.index_select(x, x:dim() - 2, require("moth").tensor(order, {dtype = types.int64,
    device = x.device})))
end, {
  doc = "The channels in another order.",
  examples = "moth.rand(3, 4, 5), {3, 1, 2}",
  args = {{"ints", "permutation", "the position, from 1, of each channel of the result"}},
})

return color
