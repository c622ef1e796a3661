--- spectrogram.lua -- spectrograms from signals, and signals from spectrograms. A complex number is
-- a pair, real and imaginary part, in a last dimension of 2.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"

local ops = bind.ops
local spectrogram = {}

local PAD_MODES = {"reflect", "constant", "replicate", "circular"}

-- Rows of arguments that several functions have.
local ROWS = {
  pad = {"int", "pad", "zeros on both sides of the signal", bounds = {0}},
  window = {"tensor", "window", "factors of the elements of a frame, (win_length)"},
  n_fft = {"int", "n_fft", "length of a frame", bounds = {1}},
  hop_length = {"int", "hop_length", "step between frames", bounds = {1}},
  win_length = {"int", "win_length", "length of the window", bounds = {1}},
  normalized = {"any", "normalized", "divide by the norm of the window (true, \"window\"), or by "
    .. "the square root of n_fft (\"frame_length\")?", default = false},
  center = {"bool", "center", "is the middle of frame k at sample k * hop_length?", default = true},
  pad_mode = {"enum", "pad_mode", "the padding of centred frames", choices = PAD_MODES},
  onesided = {"bool", "onesided", "omit the frequencies that mirror others?", default = true},
}

--- Reads `normalized`. Returns two booleans: by the frame's length, by the window's norm.
local function norms(fname, normalized)
  if type(normalized) == "boolean" then return false, normalized end
  if normalized == "frame_length" then return true, false end
  if normalized == "window" then return false, true end
  errors.refuse(fname, "normalized", 'true, false, "window" or "frame_length" is needed',
    normalized)
end

local function stft(x, n_fft, hop, length, window, center, mode, by_frame, onesided)
  return (x:stft(n_fft, {hop_length = hop, win_length = length, window = window, center = center,
    pad_mode = mode, normalized = by_frame, onesided = onesided}))
end

-- The power of the absolute values of complex numbers.
local function absolute(x, power)
  if power == 2 then
    local real, imaginary = x:select(-1, 1), x:select(-1, 2)
    return ((real * real):addcmul(imaginary, imaginary))
  end
  local y = require("moth").linalg.vector_norm(x, 2, -1)
  return power == 1 and y or (y:pow(power))
end

spectrogram.spectrogram = define {
  name = "spectrogram",
  doc = "The spectrogram of signals: (..., freq, frames), or pairs (..., freq, frames, 2) if power "
    .. "is moth.none.",
  examples = "moth.randn(2, 40), 0, moth.hann_window(8), 8, 4, 8, 2\n"
    .. "moth.randn(40), 3, moth.hann_window(6), 8, 4, 6, moth.none, {normalized = 'window', "
    .. "center = false, onesided = false}\n"
    .. "moth.randn(40), 0, moth.hann_window(8), 8, 4, 8, 1, {pad_mode = 'constant'}",
  args = {
    {"tensor", "waveform", "signals, (..., time)"}, ROWS.pad, ROWS.window, ROWS.n_fft,
    ROWS.hop_length, ROWS.win_length,
    {"float?", "power", "of the absolute values: 1 magnitude, 2 power; none: complex numbers"},
    ROWS.normalized, ROWS.center, ROWS.pad_mode, ROWS.onesided,
  },
  outputs = "spectrogram",
  scoped = true,
  run = function(x, pad, window, n_fft, hop, length, power, normalized, center, mode, onesided)
    local by_frame, by_window = norms("spectrogram", normalized)
    if pad > 0 then x = ops.pad(x, {pad, pad}) end
    local y = stft(x, n_fft, hop, length, window, center, mode, by_frame, onesided)
    if by_window then y = y / window:square():sum():sqrt() end
    return power and absolute(y, power) or y
  end,
}

spectrogram.inverse_spectrogram = define {
  name = "inverse_spectrogram",
  doc = "The signals of complex spectrograms (..., freq, frames, 2): the inverse of spectrogram "
    .. "with power = moth.none.",
  examples = "moth.randn(5, 9, 2), 32, 0, moth.hann_window(8), 8, 4, 8\n"
    .. "moth.randn(5, 9, 2), moth.none, 0, moth.hann_window(8), 8, 4, 8, {normalized = true}",
  args = {
    {"tensor", "spectrogram", "pairs, (..., freq, frames, 2)"},
    {"int?", "length", "the length of the signals; none: all frames"},
    ROWS.pad, ROWS.window, ROWS.n_fft, ROWS.hop_length, ROWS.win_length, ROWS.normalized,
    ROWS.center, ROWS.pad_mode, ROWS.onesided,
  },
  outputs = "waveform",
  scoped = true,
  run = function(x, length, pad, window, n_fft, hop, win, normalized, center, _, onesided)
    local by_frame, by_window = norms("inverse_spectrogram", normalized)
    if by_window then x = x * window:square():sum():sqrt() end
    local y = x:istft(n_fft, {hop_length = hop, win_length = win, window = window, center = center,
      normalized = by_frame, onesided = onesided, length = length and length + 2 * pad or nil})
    if length and pad > 0 then y = y:narrow(-1, pad + 1, length) end
    return y
  end,
}

-- Pairs scaled to absolute value 1.
local function phases(x)
  return x / (require("moth").linalg.vector_norm(x, 2, -1, true) + 1e-16)
end

spectrogram.griffinlim = define {
  name = "griffinlim",
  doc = "Signals from spectrograms without phases (Griffin and Lim, 1984; with momentum: Perraudin "
    .. "et al., 2013).",
  examples = "moth.rand(5, 9), moth.hann_window(8), 8, 4, 8, 2, 4, 0.99\n"
    .. "moth.rand(5, 9), moth.hann_window(8), 8, 4, 8, 1, 2, 0, 33, false",
  args = {
    {"tensor", "specgram", "(..., freq, frames), onesided"}, ROWS.window, ROWS.n_fft,
    ROWS.hop_length, ROWS.win_length,
    {"float", "power", "the power of the absolute values in specgram", bounds = {0, open = true}},
    {"int", "n_iter", "the number of iterations", bounds = {0}},
    {"float", "momentum", "from 0 to below 1; 0: Griffin and Lim's", bounds = {0}},
    {"int", "length", "the length of the signals", optional = true},
    {"bool", "rand_init", "begin with random phases?", default = true},
    {"generator", "generator", "random generator", optional = true},
  },
  outputs = "waveform",
  scoped = true,
  run = function(x, window, n_fft, hop, win, power, n, momentum, length, random, generator)
    if momentum >= 1 then
      errors.refuse("griffinlim", "momentum", "a number from 0 to below 1 is needed", momentum,
        "E_DOMAIN")
    end
    momentum = momentum / (1 + momentum)
    x = x:pow(1 / power):unsqueeze(-1)
    local shape = {unpack(x.shape)}
    shape[#shape] = 2
    local options = {dtype = x.dtype, device = x.device, generator = generator}
    local moth = require "moth"
    local angles
    if random then angles = moth.rand(shape, options)
    else
      angles = moth.zeros(shape, {dtype = x.dtype, device = x.device})
      angles:select(-1, 1):fill_(1)
    end
    local function signal()
      return (x * angles):istft(n_fft, {hop_length = hop, win_length = win, window = window,
        length = length})
    end
    local last
    for _ = 1, n do
      local rebuilt = stft(signal(), n_fft, hop, win, window, true, "reflect", false, true)
      angles = rebuilt
      if momentum > 0 and last then angles = angles - last * momentum end
      angles, last = phases(angles), rebuilt
    end
    return (signal())
  end,
}

spectrogram.spectral_centroid = define {
  name = "spectral_centroid",
  doc = "The mean frequency of each frame, weighted by magnitude: (..., frames).",
  examples = "moth.randn(40), 8000, 0, moth.hann_window(8), 8, 4, 8",
  args = {
    {"tensor", "waveform", "signals, (..., time)"},
    {"int", "sample_rate", "samples in a second", bounds = {1}},
    ROWS.pad, ROWS.window, ROWS.n_fft, ROWS.hop_length, ROWS.win_length,
  },
  scoped = true,
  run = function(x, rate, pad, window, n_fft, hop, length)
    local y = spectrogram.spectrogram(x, pad, window, n_fft, hop, length, 1)
    local freqs = require("moth").linspace(0, math.floor(rate / 2), math.floor(n_fft / 2) + 1,
      {dtype = y.dtype, device = y.device}):unsqueeze(2)
    return (y * freqs):sum(-2) / y:sum(-2)
  end,
}

spectrogram.norms = norms

return spectrogram
