--- waveform.lua -- functions of signals (..., time): resample, mu-law, gain, preemphasis, noise.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"

local ops = bind.ops
local waveform = {}

local SIGNALS = {"tensor", "waveform", "signals, (..., time)"}

-- ---- resampling ----

local function gcd(a, b)
  while b ~= 0 do a, b = b, a % b end
  return a
end

--- The arguments of resample after the signals.
waveform.RATES = {
  {"int", "orig_freq", "sample rate of the signals", bounds = {1}},
  {"int", "new_freq", "sample rate of the result", bounds = {1}},
  {"int", "lowpass_filter_width", "zero crossings of the filter: more is sharper and slower",
    default = 6, bounds = {1}},
  {"float", "rolloff", "the filter's cut-off, as a share of the Nyquist frequency", default = 0.99,
    bounds = {0, 1, open = true}},
  {"enum", "resampling_method", "the window of the filter",
    choices = {"sinc_interp_hann", "sinc_interp_kaiser"}},
  {"float", "beta", "of the Kaiser window; default: 14.769656459379492", optional = true},
}

--- Returns the filters of resample, (new, 1, taps) in f64, and the width of the padding. The rates
-- must have no common divisor.
function waveform.sinc_kernel(old, new, width, rolloff, method, beta)
  local moth = require "moth"
  local f64 = {dtype = moth.float64}
  local rate = math.min(old, new) * rolloff
  local side = math.ceil(width * old / rate)
  local at = moth.arange(-side, side + old, f64) / old
  local t = moth.arange(0, -new, -1, f64):unsqueeze(2) / new + at
  t = (t * rate):clamp(-width, width)
  local window
  if method == "sinc_interp_hann" then
    window = (t * (math.pi / width / 2)):cos():square()
  else
    local top = moth.tensor(beta or 14.769656459379492, f64)
    window = ((1 - (t / width):square()):sqrt() * top):i0() / top:i0()
  end
  t = t * math.pi
  local sinc = (t:sin() / t):where(t:ne(0), 1)
  return (sinc * window * (rate / old)):unsqueeze(2), side
end

--- Filters signals with the kernels of sinc_kernel.
function waveform.apply_kernel(x, old, new, kernel, side)
  local n = x:size(-1)
  local shape = {unpack(x.shape)}
  local y = ops.pad(x:reshape(-1, 1, n), {side, side + old})
  y = require("moth").nn.functional.conv1d(y, kernel, {stride = old})
  shape[#shape] = math.ceil(new * n / old)
  return (y:transpose(2, 3):flatten(2):narrow(2, 1, shape[#shape]):reshape(shape))
end

--- Raises unless x is a float tensor with a dimension of time.
function waveform.check(fname, x)
  if not x:is_floating_point() or x:dim() < 1 then
    errors.refuse(fname, "waveform", "floating-point signals (..., time) are needed", x, "E_DTYPE")
  end
end

waveform.resample = define {
  name = "resample",
  doc = "Signals at another sample rate, by sinc interpolation. moth.audio.Resample computes the "
    .. "filters once.",
  examples = "moth.randn(2, 48), 48000, 16000\n"
    .. "moth.randn(30), 3, 4, {resampling_method = 'sinc_interp_kaiser', beta = 12, rolloff = 0.9, "
    .. "lowpass_filter_width = 8}",
  args = {SIGNALS, unpack(waveform.RATES)},
  scoped = true,
  run = function(x, old, new, width, rolloff, method, beta)
    waveform.check("resample", x)
    if old == new then return x end
    local common = gcd(old, new)
    old, new = old / common, new / common
    local kernel, side = waveform.sinc_kernel(old, new, width, rolloff, method, beta)
    return (waveform.apply_kernel(x, old, new, kernel:to(x.dtype):to(x.device), side))
  end,
}

waveform.gcd = gcd

-- ---- mu-law ----

local CHANNELS = {"int", "quantization_channels", "the number of values", bounds = {2}}

waveform.mu_law_encoding = define {
  name = "mu_law_encoding",
  doc = "Signals from -1 to 1 as integers from 0 to quantization_channels - 1, finer near 0 "
    .. "(mu-law).",
  examples = "moth.rand(6) * 2 - 1, 256",
  args = {{"tensor", "x", "signals from -1 to 1"}, CHANNELS},
  scoped = true,
  run = function(x, channels)
    waveform.check("mu_law_encoding", x)
    local mu = channels - 1
    local y = x:sign() * (x:abs() * mu):log1p() / math.log(1 + mu)
    return ((y + 1) / 2 * mu + 0.5):to(require("moth").int64)
  end,
}

waveform.mu_law_decoding = define {
  name = "mu_law_decoding",
  doc = "The inverse of mu_law_encoding.",
  examples = "moth.tensor{0LL, 128LL, 255LL}, 256",
  args = {{"tensor", "x_mu", "integers from 0 to quantization_channels - 1"}, CHANNELS},
  scoped = true,
  run = function(x, channels)
    local mu, moth = channels - 1, require "moth"
    if not x:is_floating_point() then x = x:to(moth.get_default_dtype()) end
    local y = x / mu * 2 - 1
    return y:sign() * ((y:abs() * math.log(1 + mu)):exp() - 1) / mu
  end,
}

-- ---- loudness, noise ----

waveform.gain = define {
  name = "gain",
  doc = "Signals that are louder by a number of decibels.",
  examples = "moth.randn(2, 6), 3",
  args = {SIGNALS, {"float", "gain_db", "decibels", default = 1}},
  run = function(x, db) return db == 0 and x or x * 10 ^ (db / 20) end,
}

waveform.preemphasis = define {
  name = "preemphasis",
  doc = "Each sample minus coeff times the sample before it: raises high frequencies.",
  examples = "moth.randn(2, 6)",
  args = {SIGNALS, {"float", "coeff", "the factor of the sample before", default = 0.97}},
  scoped = true,
  run = function(x, coeff)
    local n = x:size(-1)
    if n < 2 then return (x:clone()) end
    return (require("moth").cat({x:narrow(-1, 1, 1),
      x:narrow(-1, 2, n - 1) - x:narrow(-1, 1, n - 1) * coeff}, -1))
  end,
}

waveform.add_noise = define {
  name = "add_noise",
  doc = "Signals with noise, scaled to a ratio of signal to noise.",
  examples = "moth.randn(2, 6), moth.randn(2, 6), moth.tensor{10, 3}",
  args = {
    SIGNALS, {"tensor", "noise", "of the same shape"},
    {"tensor", "snr", "the ratio in decibels, (...)"},
    {"tensor?", "lengths", "samples that count in each signal, (...)"},
  },
  scoped = true,
  run = function(x, noise, snr, lengths)
    if not (x.shape == noise.shape) or snr:dim() ~= x:dim() - 1 then
      errors.argument("add_noise", "noise", ("%s with a ratio for each signal is needed, got %s "
        .. "with %s ratios"):format(tostring(x.shape), tostring(noise.shape),
        tostring(snr.shape)), "E_SHAPE")
    end
    local heard, other = x, noise
    if lengths then
      local at = require("moth").arange(x:size(-1), {device = x.device})
      local mask = at:lt(lengths:unsqueeze(-1))
      heard, other = x * mask, noise * mask
    end
    local ratio = (heard:square():sum(-1) / other:square():sum(-1)):log10() * 10
    return x + noise * (10 ^ ((ratio - snr) / 20)):unsqueeze(-1)
  end,
}

return waveform
