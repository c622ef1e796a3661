--- changes.lua -- modules that change signals or spectrograms, as torchaudio.transforms: Resample,
-- masks, mu-law, volume.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local masks = require "moth.audio.masks"
local Module = require "moth.nn.module"
local sound = require "moth.audio.waveform"

local changes = {}

--- Signals (..., time) at another sample rate, by sinc interpolation. The filters are the buffer
-- `kernel`.
local Resample = class("Resample", Module)
changes.Resample = Resample

local FILTER = sound.RATES -- torchaudio.transforms has the method third
Resample.signature = define.signature("Resample", {
  {"int", "orig_freq", "sample rate of the signals", default = 16000, bounds = {1}},
  {"int", "new_freq", "sample rate of the result", default = 16000, bounds = {1}},
  FILTER[5], FILTER[3], FILTER[4], FILTER[6],
  {"dtype", "dtype", "of the filters; default: f32", optional = true},
})

function Resample:init(orig_freq, new_freq, method, width, rolloff, beta, dtype)
  self.orig_freq, self.new_freq, self.resampling_method = orig_freq, new_freq, method
  self.lowpass_filter_width, self.rolloff, self.beta = width, rolloff, beta
  if orig_freq == new_freq then return end
  local common = sound.gcd(orig_freq, new_freq)
  self._old, self._new = orig_freq / common, new_freq / common
  local kernel, side = sound.sinc_kernel(self._old, self._new, width, rolloff, method, beta)
  self.width = side
  self:register_buffer("kernel", kernel:to(dtype or require("moth").float32))
end

function Resample:forward(waveform)
  sound.check("Resample", waveform)
  if self.orig_freq == self.new_freq then return waveform end
  return (sound.apply_kernel(waveform, self._old, self._new, self.kernel, self.width))
end

function Resample:extra_repr()
  return ("orig_freq=%d, new_freq=%d"):format(self.orig_freq, self.new_freq)
end

-- ---- masks ----

local IID = {"bool", "iid_masks", "another mask in each spectrogram?", default = false}

-- Masks a dimension counted from the end.
local function mask(self, specgram, value, axis)
  local run = self.iid_masks and masks.mask_along_axis_iid or masks.mask_along_axis
  return (run(specgram, self.mask_param, value or 0, axis, self.p))
end

--- Replaces a random range of frequencies of spectrograms (..., freq, time) by a value (default 0).
local FrequencyMasking = class("FrequencyMasking", Module)
changes.FrequencyMasking = FrequencyMasking
FrequencyMasking.signature = define.signature("FrequencyMasking", {
  {"int", "freq_mask_param", "a mask is shorter than this", bounds = {0}}, IID,
})

function FrequencyMasking:init(freq_mask_param, iid_masks)
  self.mask_param, self.iid_masks, self.p = freq_mask_param, iid_masks, 1
end

function FrequencyMasking:forward(specgram, mask_value)
  return (mask(self, specgram, mask_value, -2))
end

--- Replaces a random range of times of spectrograms (..., freq, time) by a value (default 0).
local TimeMasking = class("TimeMasking", Module)
changes.TimeMasking = TimeMasking
TimeMasking.signature = define.signature("TimeMasking", {
  {"int", "time_mask_param", "a mask is shorter than this", bounds = {0}}, IID,
  {"float", "p", "the longest mask, as a share of all times", default = 1, bounds = {0, 1}},
})

function TimeMasking:init(time_mask_param, iid_masks, p)
  self.mask_param, self.iid_masks, self.p = time_mask_param, iid_masks, p
end

function TimeMasking:forward(specgram, mask_value)
  return (mask(self, specgram, mask_value, -1))
end

-- ---- mu-law ----

local CHANNELS = {"int", "quantization_channels", "the number of values", default = 256,
  bounds = {2}}

--- Signals from -1 to 1 as integers from 0 to quantization_channels - 1 (mu-law).
local MuLawEncoding = class("MuLawEncoding", Module)
changes.MuLawEncoding = MuLawEncoding
MuLawEncoding.signature = define.signature("MuLawEncoding", {CHANNELS})

function MuLawEncoding:init(quantization_channels)
  self.quantization_channels = quantization_channels
end

function MuLawEncoding:forward(x)
  return (sound.mu_law_encoding(x, self.quantization_channels))
end

--- The inverse of MuLawEncoding.
local MuLawDecoding = class("MuLawDecoding", Module)
changes.MuLawDecoding = MuLawDecoding
MuLawDecoding.signature = define.signature("MuLawDecoding", {CHANNELS})

function MuLawDecoding:init(quantization_channels)
  self.quantization_channels = quantization_channels
end

function MuLawDecoding:forward(x_mu)
  return (sound.mu_law_decoding(x_mu, self.quantization_channels))
end

-- ---- volume ----

--- Signals times a gain, clipped to -1 to 1.
local Vol = class("Vol", Module)
changes.Vol = Vol
Vol.signature = define.signature("Vol", {
  {"float", "gain", "the gain"},
  {"enum", "gain_type", "is it a factor, a factor of power, or decibels?",
    choices = {"amplitude", "power", "db"}},
})

function Vol:init(gain, gain_type)
  if gain_type ~= "db" and gain < 0 then
    errors.refuse("Vol", "gain", "a number from 0 on is needed", gain, "E_DOMAIN")
  end
  self.gain, self.gain_type = gain, gain_type
end

function Vol:forward(waveform)
  local factor = self.gain
  if self.gain_type == "db" then factor = 10 ^ (factor / 20)
  elseif self.gain_type == "power" then factor = math.sqrt(factor) end
  return ((waveform * factor):clamp(-1, 1))
end

--- Fades signals (..., time) in and out.
local Fade = class("Fade", Module)
changes.Fade = Fade
Fade.signature = define.signature("Fade", {
  {"int", "fade_in_len", "samples at the start", default = 0, bounds = {0}},
  {"int", "fade_out_len", "samples at the end", default = 0, bounds = {0}},
  {"enum", "fade_shape", "the shape of the curve", choices = {"linear", "quarter_sine",
    "half_sine", "logarithmic", "exponential"}},
})

function Fade:init(fade_in_len, fade_out_len, fade_shape)
  self.fade_in_len, self.fade_out_len, self.fade_shape = fade_in_len, fade_out_len, fade_shape
end

-- The factors of a fade-in, for t from 0 to 1.
local SHAPES = {
  linear = function(t) return t end,
  quarter_sine = function(t) return (t * (math.pi / 2)):sin() end,
  half_sine = function(t) return (t * math.pi - math.pi / 2):sin() / 2 + 0.5 end,
  logarithmic = function(t) return (t + 0.1):log10() + 1 end,
  exponential = function(t) return 2 ^ (t - 1) * t end,
}

function Fade:forward(waveform)
  local n = waveform:size(-1)
  if self.fade_in_len > n or self.fade_out_len > n then
    errors.argument("Fade", "waveform", ("at least %d samples are needed, got %d"):format(
      math.max(self.fade_in_len, self.fade_out_len), n), "E_SHAPE")
  end
  local moth = require "moth"
  local function times(length)
    return moth.linspace(0, 1, length, {dtype = waveform.dtype, device = waveform.device})
  end
  local function factors(t) return SHAPES[self.fade_shape](t):clamp(0, 1) end
  local y, first, last = waveform:clone(), self.fade_in_len, self.fade_out_len
  if first > 0 then y:narrow(-1, 1, first):mul_(factors(times(first))) end
  if last > 0 then y:narrow(-1, n - last + 1, last):mul_(factors(1 - times(last))) end
  return y
end

return changes
