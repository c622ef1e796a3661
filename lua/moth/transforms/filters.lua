--- filters.lua -- moth.transforms.functional: blur, noise, and erased rectangles.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local dtype = require "moth.tensor.dtype"
local errors = require "moth.error"
local geometry = require "moth.transforms.geometry"
local kernels = require "moth.transforms.kernels"

local ops = bind.ops
local types = dtype.by_name
local filters = {}

local INPUT = {"object", "inpt", "a picture, (..., C, H, W)"}

-- ---- blur ----

-- Two numbers, for the width and the height.
local function pair(fname, name, given)
  if type(given) == "number" then return given, given end
  if #given == 1 then return given[1], given[1] end
  if #given == 2 then return given[1], given[2] end
  errors.refuse(fname, name, "one or two numbers are needed", given)
end

--- Raises unless the sizes of a kernel are odd.
function filters.kernel_size(fname, size)
  local x, y = pair(fname, "kernel_size", size)
  for _, n in ipairs {x, y} do
    if n < 1 or n % 2 == 0 then
      errors.refuse(fname, "kernel_size", "odd numbers from 1 on are needed", n, "E_DOMAIN")
    end
  end
  return x, y
end

-- The normalized bell curve of n elements.
local function bell(n, sigma, like)
  local moth = require "moth"
  local limit = (n - 1) / (2 * math.sqrt(2))
  local x = moth.linspace(-limit, limit, n, {dtype = like.dtype, device = like.device})
  return ((x / sigma):pow(2):neg():softmax(1))
end

local function gaussian_blur(x, size, sigma)
  local wide, high = filters.kernel_size("gaussian_blur", size)
  local sx, sy = wide * 0.15 + 0.35, high * 0.15 + 0.35
  if sigma then sx, sy = pair("gaussian_blur", "sigma", sigma) end
  if sx <= 0 or sy <= 0 then
    errors.refuse("gaussian_blur", "sigma", "numbers above 0 are needed", sigma, "E_DOMAIN")
  end
  if x:numel() == 0 then return x end
  local batch, restore = geometry.as_batch(x)
  local kind, channels = x.dtype, x:size(-3)
  local y = x:is_floating_point() and batch or batch:float()
  local a, b = math.floor(wide / 2), math.floor(high / 2)
  y = ops.pad(y, {a, a, b, b}, "reflect")
  local row, column = bell(wide, sx, y):view(1, 1, 1, wide), bell(high, sy, y):view(1, 1, high, 1)
  y = ops.conv2d(y, row:expand(channels, 1, 1, wide), nil, 1, 0, 1, channels)
  y = ops.conv2d(y, column:expand(channels, 1, high, 1), nil, 1, 0, 1, channels)
  return (restore(geometry.back(y, kind)))
end

kernels.add("gaussian_blur", {image = gaussian_blur})

filters.gaussian_blur = define {
  name = "gaussian_blur",
  doc = "Blurs a picture with a bell curve. The border is mirrored.",
  examples = "moth.rand(3, 8, 9), 3\nmoth.rand(3, 8, 9), {5, 3}, {sigma = {1.5, 0.5}}",
  args = {
    INPUT,
    {"ints", "kernel_size", "pixels, odd: one number, or {width, height}"},
    {"floats?", "sigma", "standard deviation in pixels: one number, or {across, down}; default: "
      .. "0.15 * kernel_size + 0.35"},
  },
  run = kernels.of("gaussian_blur"),
}

-- ---- noise ----

local function gaussian_noise(x, mean, sigma, clip, generator)
  if sigma < 0 then
    errors.refuse("gaussian_noise", "sigma", "a number from 0 on is needed", sigma, "E_DOMAIN")
  end
  local bytes = x.dtype == types.uint8
  if not bytes and not x:is_floating_point() then
    errors.refuse("gaussian_noise", "inpt", "uint8 or floating point is needed", x, "E_DTYPE")
  end
  local noise = require("moth").randn(x.shape, {generator = generator, device = x.device,
    dtype = bytes and types.float32 or x.dtype})
  if bytes then
    local y = x:int() + (noise * (sigma * 255) + mean * 255):int()
    return (clip and y:clamp(0, 255) or y):to(types.uint8)
  end
  local y = x + (noise * sigma + mean)
  return clip and y:clamp(0, 1) or y
end

kernels.add("gaussian_noise", {image = gaussian_noise})

filters.gaussian_noise = define {
  name = "gaussian_noise",
  doc = "Adds normal noise.",
  examples = "moth.rand(3, 4, 5)\nmoth.rand(3, 4, 5), {sigma = 0.2, clip = false}",
  args = {
    INPUT,
    {"float", "mean", "of the noise, for values from 0 to 1", default = 0},
    {"float", "sigma", "its standard deviation", default = 0.1},
    {"bool", "clip", "clip to the range of values?", default = true},
    {"generator?", "generator", "random generator"},
  },
  run = kernels.of("gaussian_noise"),
}

-- ---- erased rectangles ----

local function erase(x, i, j, h, w, v, inplace)
  local moth = require "moth"
  local n = x:dim()
  local height, width = x:size(n - 1), x:size(n)
  if i < 0 or j < 0 or h < 0 or w < 0 or i + h > height or j + w > width then
    errors.argument("erase", "i", ("a window inside the picture is needed, got rows %d to %d and "
      .. "columns %d to %d of {%d, %d}"):format(i, i + h, j, j + w, height, width), "E_DOMAIN")
  end
  local y = inplace and x or x:clone()
  if h == 0 or w == 0 then return y end
  local value = type(v) == "table" and moth.tensor(v) or v
  if type(value) ~= "number" then
    value = value:to(x.dtype):to(x.device)
    if value:dim() == 1 then value = value:view(-1, 1, 1) end
  else
    value = moth.full({1}, value, {dtype = x.dtype, device = x.device})
  end
  moth.no_grad(ops.copy_, ops.narrow(ops.narrow(y, n - 1, i + 1, h), n, j + 1, w), value)
  return y
end

kernels.add("erase", {image = erase})

filters.erase = define {
  name = "erase",
  doc = "Sets a rectangle of a picture to a value.",
  examples = "moth.rand(3, 8, 9), 1, 2, 3, 4, 0\nmoth.rand(3, 8, 9), 1, 2, 3, 4, {.1, .2, .3}",
  args = {
    INPUT,
    {"int", "i", "rows above the rectangle"}, {"int", "j", "columns to its left"},
    {"int", "h", "its height"}, {"int", "w", "its width"},
    {"any", "v", "a number, a list of one for each channel, or a tensor, (C, h, w)"},
    {"bool", "inplace", "change the picture itself?", default = false},
  },
  run = kernels.of("erase"),
}

return filters
