--- mel.lua -- filter banks on the mel scale, decibels, cosine transforms and differences of
-- spectrograms.

local ffi = require "ffi"
local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"

local ops = bind.ops
local mel = {}

local function f32() return require("moth").float32 end

local FREQS = {"int", "n_freqs", "the number of frequencies, n_fft / 2 + 1", bounds = {2}}
local LOW = {"float", "f_min", "lowest frequency (Hz)", bounds = {0}}
local HIGH = {"float", "f_max", "highest frequency (Hz)", bounds = {0}}
local RATE = {"int", "sample_rate", "samples in a second", bounds = {1}}

-- Slaney's scale: linear to 1000 Hz, then logarithmic.
local SPACING, CORNER, STEP = 200 / 3, 1000, math.log(6.4) / 27

local function to_mel(f, scale)
  if scale == "htk" then return 2595 * math.log10(1 + f / 700) end
  return f < CORNER and f / SPACING or CORNER / SPACING + math.log(f / CORNER) / STEP
end

-- The powers are rounded from f64: a difference of one bit in a frequency changes the results of
-- narrow filters in the fifth digit.
local function to_hz(m, scale)
  local f64 = require("moth").float64
  if scale == "htk" then return ((10 ^ (m / 2595):to(f64)):to(f32()) - 1) * 700 end
  local corner = CORNER / SPACING
  local power = ((m - corner) * STEP):to(f64):exp():to(f32())
  return (power * CORNER):where(m:ge(corner), m * SPACING)
end

-- Triangular filters, (freqs, n - 2). Filter i begins at point i, has its peak at point i + 1 and
-- ends at point i + 2.
local function triangles(freqs, points)
  local n = points:size(1)
  local gaps = points:narrow(1, 2, n - 1) - points:narrow(1, 1, n - 1)
  local slopes = points:unsqueeze(1) - freqs:unsqueeze(2)
  local down = slopes:narrow(2, 1, n - 2):neg() / gaps:narrow(1, 1, n - 2)
  local up = slopes:narrow(2, 3, n - 2) / gaps:narrow(1, 2, n - 2)
  return (down:minimum(up):clamp{min = 0})
end

-- The bits of torch.linspace in f32, which rounds the step and then each number; moth.linspace is
-- closer to the exact values. A narrow triangle changes by 3e-5 with the last bit of its corners.
local function between(first, last, n)
  local function round(x) return tonumber(ffi.cast("float", x)) end
  first, last = round(first), round(last)
  local step, list = n > 1 and round((last - first) / (n - 1)) or 0, {}
  for i = 0, n - 1 do
    list[i + 1] = i < n / 2 and first + step * i or last - step * (n - 1 - i)
  end
  return (require("moth").tensor(list, {dtype = f32()}))
end

local function frequencies(rate, n) return (between(0, math.floor(rate / 2), n)) end

local function check_range(fname, low, high)
  if low > high then
    errors.argument(fname, "f_min", ("a frequency up to f_max, %g, is needed, got %g"):format(high,
      low), "E_DOMAIN")
  end
end

mel.melscale_fbanks = define {
  name = "melscale_fbanks",
  doc = "Triangular filters that convert the frequencies of a spectrogram to the mel scale: "
    .. "(n_freqs, n_mels).",
  examples = "201, 0, 8000, 40, 16000\n129, 50, 4000, 20, 8000, 'slaney', 'slaney'",
  args = {
    FREQS, LOW, HIGH, {"int", "n_mels", "the number of filters", bounds = {1}}, RATE,
    {"enum", "norm", "\"slaney\": divide each filter by its width", optional = true,
      choices = {"slaney"}},
    {"enum", "mel_scale", "the scale of HTK, or of Slaney's Auditory Toolbox",
      choices = {"htk", "slaney"}},
  },
  outputs = "fb",
  scoped = true,
  run = function(n_freqs, low, high, n_mels, rate, norm, scale)
    check_range("melscale_fbanks", low, high)
    local moth = require "moth"
    local points = to_hz(between(to_mel(low, scale), to_mel(high, scale), n_mels + 2), scale)
    local fb = triangles(frequencies(rate, n_freqs), points)
    if norm then fb = fb * (2 / (points:narrow(1, 3, n_mels) - points:narrow(1, 1, n_mels))) end
    if fb:amax(1):eq(0):any():item() then
      moth.warn(("melscale_fbanks: a filter is 0 everywhere: n_mels = %d is too large for %d "
        .. "frequencies"):format(n_mels, n_freqs))
    end
    return fb
  end,
}

mel.linear_fbanks = define {
  name = "linear_fbanks",
  doc = "Triangular filters at equal distances: (n_freqs, n_filter).",
  examples = "129, 0, 4000, 20, 8000",
  args = {FREQS, LOW, HIGH, {"int", "n_filter", "the number of filters", bounds = {1}}, RATE},
  outputs = "fb",
  scoped = true,
  run = function(n_freqs, low, high, n, rate)
    check_range("linear_fbanks", low, high)
    return (triangles(frequencies(rate, n_freqs), between(low, high, n + 2)))
  end,
}

mel.create_dct = define {
  name = "create_dct",
  doc = "The matrix of a cosine transform (DCT-II), (n_mels, n_mfcc): a matrix product with it "
    .. "computes the coefficients.",
  examples = "13, 40, 'ortho'\n13, 40",
  args = {
    {"int", "n_mfcc", "the number of coefficients", bounds = {1}},
    {"int", "n_mels", "the number of mel filters", bounds = {1}},
    {"enum", "norm", "\"ortho\": orthonormal rows", optional = true, choices = {"ortho"}},
  },
  outputs = "dct",
  scoped = true,
  run = function(n_mfcc, n_mels, norm)
    local moth = require "moth"
    local n = moth.arange(n_mels, {dtype = moth.float64}):add_(0.5)
    local k = moth.arange(n_mfcc, {dtype = moth.float64}):unsqueeze(2)
    local dct = (n * k):mul_(math.pi / n_mels):cos_()
    if not norm then
      dct:mul_(2)
    else
      dct:select(1, 1):mul_(math.sqrt(0.5))
      dct:mul_(math.sqrt(2 / n_mels))
    end
    return (dct:t():to(f32()):contiguous())
  end,
}

mel.amplitude_to_DB = define {
  name = "amplitude_to_DB",
  doc = "Decibels: multiplier log10(x), at least top_db below the largest value of each "
    .. "spectrogram.",
  examples = "moth.rand(2, 4, 5), 10, 1e-10, 0\nmoth.rand(2, 1, 4, 5), 20, 1e-10, 0, {top_db = 80}",
  args = {
    {"tensor", "x", "(..., channel, freq, time); with top_db, (freq, time) at least"},
    {"float", "multiplier", "10 for power, 20 for amplitude"},
    {"float", "amin", "smaller values are replaced by it", bounds = {0, open = true}},
    {"float", "db_multiplier", "log10 of the reference, which is 0 dB"},
    {"float", "top_db", "the range below the largest value", optional = true},
  },
  scoped = true,
  run = function(x, multiplier, amin, db_multiplier, top_db)
    local y = x:clamp{min = amin}:log10() * multiplier - multiplier * db_multiplier
    if not top_db then return y end
    if x:dim() < 2 then
      errors.argument("amplitude_to_DB", "x", "(freq, time) is needed for top_db, got "
        .. errors.describe(x), "E_SHAPE")
    end
    local dims = x:dim() > 2 and {-3, -2, -1} or {-2, -1}
    return (y:maximum(y:amax(dims, true) - top_db))
  end,
}

mel.DB_to_amplitude = define {
  name = "DB_to_amplitude",
  doc = "The inverse of amplitude_to_DB: ref (10^(x / 10))^power.",
  examples = "moth.randn(4, 5), 1, 0.5",
  args = {
    {"tensor", "x", "decibels"}, {"float", "ref", "the value of 0 dB"},
    {"float", "power", "1: power, 0.5: amplitude"},
  },
  scoped = true,
  run = function(x, ref, power) return (10 ^ (x * 0.1)):pow(power) * ref end,
}

mel.compute_deltas = define {
  name = "compute_deltas",
  doc = "The differences in time of a spectrogram, by linear regression in a window.",
  examples = "moth.randn(2, 4, 9)\nmoth.randn(4, 9), 3, 'constant'",
  args = {
    {"tensor", "specgram", "(..., freq, time)"},
    {"int", "win_length", "the length of the window", default = 5, bounds = {3}},
    {"enum", "mode", "the padding at the ends", choices = {"replicate", "reflect", "constant",
      "circular"}},
  },
  scoped = true,
  run = function(x, length, mode)
    local n, frames = math.floor((length - 1) / 2), x:size(-1)
    local rows = x:reshape(-1, 1, frames)
    local kernel = require("moth").arange(-n, n + 1, {dtype = x.dtype, device = x.device})
    local y = require("moth").nn.functional.conv1d(ops.pad(rows, {n, n}, {mode = mode}),
      kernel:view(1, 1, -1))
    return (y / (n * (n + 1) * (2 * n + 1) / 3)):reshape(x.shape)
  end,
}

return mel
