--- colors.lua -- moth.transforms: colours, blur and noise. Masks and boxes do not change.

local base = require "moth.transforms.transform"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local draw = require "moth.transforms.draw"
local errors = require "moth.error"
local filters = require "moth.transforms.filters"
local kernels = require "moth.transforms.kernels"
local maybe = require "moth.transforms.maybe"

local Transform, Maybe, run = base.Transform, base.Maybe, kernels.run
local colors = {}

local P = {"float", "p", "the probability", default = 0.5}

-- ---- grey ----

local Grayscale = class("Grayscale", Transform)
colors.Grayscale = Grayscale
Grayscale.signature = define.signature("Grayscale", {
  {"int", "num_output_channels", "1, or 3 equal channels", default = 1},
})

--- The brightness of each pixel.
-- @param num_output_channels  1 (default), or 3 equal channels
function Grayscale:init(channels) self.num_output_channels = channels end

function Grayscale:transform(x, _, kind)
  return (run("rgb_to_grayscale", kind, x, self.num_output_channels))
end

local RandomGrayscale = class("RandomGrayscale", Maybe)
colors.RandomGrayscale = RandomGrayscale
RandomGrayscale.signature = define.signature("RandomGrayscale", {
  {"float", "p", "the probability", default = 0.1},
})

--- Removes the colours, with a probability; the number of channels stays.
-- @param p  the probability (default 0.1)
function RandomGrayscale:init(p) Maybe.init(self, p) end

function RandomGrayscale:transform(x, _, kind)
  if kind ~= "image" then return x end
  return (run("rgb_to_grayscale", kind, x, x:size(-3)))
end

local RGB = class("RGB", Transform)
colors.RGB = RGB

--- Grey pictures with three equal channels; others do not change.
function RGB:init() end
function RGB:transform(x, _, kind) return (run("grayscale_to_rgb", kind, x)) end

-- ---- jitter ----

local STEPS = {"adjust_brightness", "adjust_contrast", "adjust_saturation", "adjust_hue"}

-- {least, most} from a number or a list, or nil if it changes nothing.
local function range(name, given, middle, low, high)
  if given == nil then return nil end
  if type(given) == "number" then
    if given < 0 then
      errors.refuse("ColorJitter", name, "one number is from 0 on", given, "E_DOMAIN")
    end
    given = {middle - given, middle + given}
    if middle == 1 then given[1] = math.max(given[1], 0) end
  end
  if #given ~= 2 or given[1] > given[2] or given[1] < low or given[2] > high then
    errors.refuse("ColorJitter", name, ("a number, or {least, most} from %g to %g, is needed")
      :format(low, high), given, "E_DOMAIN")
  end
  if given[1] == middle and given[2] == middle then return nil end
  return given
end

local ColorJitter = class("ColorJitter", Transform)
colors.ColorJitter = ColorJitter
ColorJitter.signature = define.signature("ColorJitter", {
  {"floats?", "brightness", "limits of the factor, {least, most}, or b: {1 - b, 1 + b}"},
  {"floats?", "contrast", "the same for contrast"},
  {"floats?", "saturation", "the same for saturation"},
  {"floats?", "hue", "limits of the shift, {least, most}, or h: {-h, h}; from -0.5 to 0.5"},
})

--- Changes brightness, contrast, saturation and hue at random, in random order.
-- @param brightness  limits of the factor, {least, most}, or b: {1 - b, 1 + b}
-- @param contrast    the same for contrast
-- @param saturation  the same for saturation
-- @param hue         limits of the shift, {least, most}, or h: {-h, h}; from -0.5 to 0.5
function ColorJitter:init(brightness, contrast, saturation, hue)
  self.brightness = range("brightness", brightness, 1, 0, math.huge)
  self.contrast = range("contrast", contrast, 1, 0, math.huge)
  self.saturation = range("saturation", saturation, 1, 0, math.huge)
  self.hue = range("hue", hue, 0, -0.5, 0.5)
end

function ColorJitter:make_params()
  local function between(limits)
    return limits and draw.uniform(self.generator, limits[1], limits[2]) or false
  end
  return {fn_idx = draw.order(self.generator, 4),
          factors = {between(self.brightness), between(self.contrast), between(self.saturation),
                     between(self.hue)}}
end

function ColorJitter:transform(x, p, kind)
  for _, i in ipairs(kind == "image" and p.fn_idx or {}) do
    if p.factors[i] then x = run(STEPS[i], kind, x, p.factors[i]) end
  end
  return x
end

local RandomChannelPermutation = class("RandomChannelPermutation", Transform)
colors.RandomChannelPermutation = RandomChannelPermutation

--- The channels in a random order.
function RandomChannelPermutation:init() end

function RandomChannelPermutation:make_params(parts)
  local _, _, channels = Transform.size_of(parts)
  return draw.order(self.generator, channels or 1)
end

function RandomChannelPermutation:transform(x, order, kind)
  return (run("permute_channels", kind, x, order))
end

local RandomPhotometricDistort = class("RandomPhotometricDistort", Transform)
colors.RandomPhotometricDistort = RandomPhotometricDistort
RandomPhotometricDistort.signature = define.signature("RandomPhotometricDistort", {
  {"floats", "brightness", "limits of the factor", default = {0.875, 1.125}},
  {"floats", "contrast", "limits of the factor", default = {0.5, 1.5}},
  {"floats", "saturation", "limits of the factor", default = {0.5, 1.5}},
  {"floats", "hue", "limits of the shift", default = {-0.05, 0.05}}, P,
})

--- Changes brightness, contrast, saturation, hue and the order of channels, each with a probability
-- (Liu et al. 2016).
-- @param brightness  limits of the factor (default {0.875, 1.125})
-- @param contrast    the same for contrast (default {0.5, 1.5})
-- @param saturation  the same for saturation (default {0.5, 1.5})
-- @param hue         limits of the shift (default {-0.05, 0.05})
-- @param p           the probability of each (default 0.5)
function RandomPhotometricDistort:init(brightness, contrast, saturation, hue, p)
  self.brightness, self.contrast, self.saturation = brightness, contrast, saturation
  self.hue, self.p = hue, Maybe.check_p("RandomPhotometricDistort", p)
end

function RandomPhotometricDistort:make_params(parts)
  local _, _, channels = Transform.size_of(parts)
  local u = draw.numbers(self.generator, 10)
  local function drawn(k, limits)
    return u[k] < self.p and limits[1] + u[k + 1] * (limits[2] - limits[1])
  end
  return {brightness = drawn(1, self.brightness), contrast = drawn(3, self.contrast),
          saturation = drawn(5, self.saturation), hue = drawn(7, self.hue),
          contrast_before = u[9] < 0.5,
          order = u[10] < self.p and draw.order(self.generator, channels or 1)}
end

function RandomPhotometricDistort:transform(x, p, kind)
  local function apply(name, factor)
    if factor then x = run(name, kind, x, factor) end
  end
  apply("adjust_brightness", p.brightness)
  apply("adjust_contrast", p.contrast_before and p.contrast)
  apply("adjust_saturation", p.saturation)
  apply("adjust_hue", p.hue)
  apply("adjust_contrast", not p.contrast_before and p.contrast)
  apply("permute_channels", p.order)
  return x
end

-- ---- values, with a probability ----

colors.RandomInvert = maybe("RandomInvert", "invert", "The negative, with a probability.")
colors.RandomPosterize = maybe("RandomPosterize", "posterize", "Keeps the first bits of each "
  .. "value, with a probability.", {"int", "bits", "the number of bits that are kept, 0 to 8"})
colors.RandomSolarize = maybe("RandomSolarize", "solarize", "The negative of all values from a "
  .. "threshold on, with a probability.",
  {"float", "threshold", "the smallest value that is inverted"})
colors.RandomEqualize = maybe("RandomEqualize", "equalize", "Makes all values of a channel equally "
  .. "frequent, with a probability.")
colors.RandomAutocontrast = maybe("RandomAutocontrast", "autocontrast", "Stretches the values of "
  .. "each channel to the full range, with a probability.")
colors.RandomAdjustSharpness = maybe("RandomAdjustSharpness", "adjust_sharpness", "Blurs or "
  .. "sharpens, with a probability.",
  {"float", "sharpness_factor", "0 is blurred, 1 is the picture itself, 2 is sharpened"})

-- ---- blur and noise ----

local GaussianBlur = class("GaussianBlur", Transform)
colors.GaussianBlur = GaussianBlur
GaussianBlur.signature = define.signature("GaussianBlur", {
  {"ints", "kernel_size", "pixels, odd: one number, or {width, height}"},
  {"floats", "sigma", "standard deviation in pixels, or its limits, {least, most}",
    default = {0.1, 2}},
})

--- Blurs with a bell curve of random width.
-- @param kernel_size  pixels, odd: one number, or {width, height}
-- @param sigma        standard deviation in pixels, or its limits, {least, most} (default {0.1, 2})
function GaussianBlur:init(kernel_size, sigma)
  self.kernel_size = {filters.kernel_size("GaussianBlur", kernel_size)}
  if type(sigma) == "number" then sigma = {sigma, sigma} end
  self.sigma = {sigma[1], sigma[2] or sigma[1]}
  if not (self.sigma[1] > 0 and self.sigma[1] <= self.sigma[2]) then
    errors.refuse("GaussianBlur", "sigma", "numbers above 0, {least, most}, are needed", sigma,
      "E_DOMAIN")
  end
end

function GaussianBlur:make_params()
  return {sigma = draw.uniform(self.generator, self.sigma[1], self.sigma[2])}
end

function GaussianBlur:transform(x, p, kind)
  return (run("gaussian_blur", kind, x, self.kernel_size, p.sigma))
end

local GaussianNoise = class("GaussianNoise", Transform)
colors.GaussianNoise = GaussianNoise
GaussianNoise.signature = define.signature("GaussianNoise", {
  {"float", "mean", "of the noise, for values from 0 to 1", default = 0},
  {"float", "sigma", "its standard deviation", default = 0.1},
  {"bool", "clip", "clip to the range of values?", default = true},
})

--- Adds normal noise.
-- @param mean   of the noise, for values from 0 to 1 (default 0)
-- @param sigma  its standard deviation (default 0.1)
-- @param clip   clip to the range of values (default true)?
function GaussianNoise:init(mean, sigma, clip)
  self.mean, self.sigma, self.clip = mean, sigma, clip
end

function GaussianNoise:transform(x, _, kind)
  return (run("gaussian_noise", kind, x, self.mean, self.sigma, self.clip, self.generator))
end

return colors
