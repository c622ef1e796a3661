--- stft.lua -- spectrograms: moth.stft splits a signal into overlapping frames and transforms each;
-- moth.istft reconstructs the signal (Griffin and Lim 1984: it divides the sum of the windowed
-- frames by the sum of the squared windows).

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"

local ops = bind.ops
local stft = {}

local function refuse(fname, arg, text, code)
  errors.argument(fname, arg, text, code or "E_SHAPE")
end

-- Arguments of both functions.
local HOP = {"int", "hop_length", "step between frames; default: n_fft / 4",
              optional = true}
local LENGTH = {"int", "win_length", "length of the window, centred in a frame; default: n_fft"
  .. "absent", optional = true}
local WINDOW = {"tensor", "window", "factors of the elements of a frame; default: ones",
                 optional = true}
local NORMALIZED = {"bool", "normalized", "divide by the square root of n_fft?", default = false}
local COMPLEX = {"bool", "return_complex", "not supported: there are no complex dtypes",
                  default = false}

-- Raises for invalid frame arguments.
local function check(fname, n_fft, hop, length, window)
  if n_fft < 1 then refuse(fname, "n_fft", "a length from 1 on is needed, got " .. n_fft) end
  if hop < 1 then refuse(fname, "hop_length", "a step from 1 on is needed, got " .. hop) end
  if length < 1 or length > n_fft then
    refuse(fname, "win_length", ("a length from 1 to n_fft = %d is needed, got %d"):format(n_fft,
      length))
  end
  if window and (window:dim() ~= 1 or window:size(1) ~= length) then
    refuse(fname, "window", ("a vector of win_length = %d numbers is needed, got %s"):format(length,
      errors.describe(window)))
  end
end

-- Returns hop_length, and the window padded to the length of a frame, or nil.
local function framing(fname, x, n_fft, hop, length, window)
  hop, length = hop or math.floor(n_fft / 4), length or n_fft
  check(fname, n_fft, hop, length, window)
  if length == n_fft then return hop, window end
  window = window or ops.ones(length, {dtype = x.dtype, device = x.device})
  local left = math.floor((n_fft - length) / 2)
  return hop, (ops.pad(window, {left, n_fft - length - left}))
end

local function refuse_complex(fname, wanted)
  if wanted then
    refuse(fname, "return_complex", "there are no complex dtypes; leave it out: complex numbers "
      .. "are pairs, real and imaginary part, in a last dimension of 2", "E_UNSUPPORTED")
  end
end

local real = bind.as("fft_r2c", "stft")
local complex = bind.as("fft_c2c", "stft")

--- moth.stft(x, n_fft, ...), x:stft(...): (..., freqs, frames, 2).
stft.stft = define {
  name = "stft",
  doc = "The short-time Fourier transform: splits the signal into frames of n_fft numbers, "
    .. "hop_length apart, multiplies each by the window and transforms it: (..., freqs, frames, "
    .. "2), pairs of a real and an imaginary part.",
  examples = "moth.randn(40), 8, {window = moth.hann_window(8)}\n"
    .. "moth.randn(2, 30), 8, 3, 6, moth.rand(6), {center = false, normalized = true}\n"
    .. "moth.randn(20), 6, {pad_mode = 'constant', onesided = false, return_complex = false}",
  args = {
    {"tensor", "input", "real signals, (..., n)"},
    {"int", "n_fft", "length of a frame"},
    HOP, LENGTH, WINDOW,
    {"bool", "center", "is frame k centred at k hop_length? then the signal is padded on both "
      .. "sides", default = true},
    {"enum", "pad_mode", "the padding",
      choices = {"reflect", "constant", "replicate", "circular"}},
    NORMALIZED,
    {"bool", "onesided", "omit the frequencies that mirror others?", default = true},
    COMPLEX,
  },
  scoped = true,
  run = function(x, n_fft, hop, length, window, center, mode, normalized, onesided, as_complex)
    refuse_complex("stft", as_complex)
    if x:dim() < 1 then refuse("stft", "input", "signals are needed, (..., n), got "
      .. errors.describe(x)) end
    hop, window = framing("stft", x, n_fft, hop, length, window)
    if center then
      local side, shape = math.floor(n_fft / 2), {unpack(x.shape)}
      if mode == "reflect" and side >= x:size(-1) then
        refuse("stft", "input", ("signals of more than n_fft / 2 = %d numbers are needed for "
          .. "pad_mode 'reflect', got %s"):format(side, errors.describe(x)))
      end
      shape[#shape] = x:size(-1) + 2 * side
      x = ops.pad(x:reshape(1, -1, x:size(-1)), {side, side}, {mode = mode}):reshape(shape)
    end
    if x:size(-1) < n_fft then
      refuse("stft", "n_fft", ("%d is longer than the signals of %s"):format(n_fft,
        errors.describe(x)))
    end
    local frames = x:unfold(-1, n_fft, hop)
    if window then frames = frames * window end
    local scale = normalized and n_fft ^ -0.5 or 1
    if onesided then return (real(frames, -1, false, scale):transpose(-3, -2)) end
    frames = ops.stack({frames, ops.zeros_like(frames)}, -1)
    return (complex(frames, -1, false, scale):transpose(-3, -2))
  end,
}

local signals = bind.as("fft_c2r", "istft")
local covered = bind.as("fft_covered", "istft", {input = "window"})

-- Adds overlapping frames, (batch, n, length) -> (batch, all).
local function overlapped(frames, hop)
  local batch, n, length = unpack(frames.shape)
  local all = length + hop * (n - 1)
  return (ops.fold(frames:transpose(2, 3), {1, all}, {1, length}, {stride = {1, hop}})
    :reshape(batch, all)), all
end

--- moth.istft(x, n_fft, ...), x:istft(...): (..., n).
stft.istft = define {
  name = "istft",
  doc = "Computes signals from spectrograms: the inverse of stft with the same arguments; if there "
    .. "is no exact signal, the closest one. Windows must overlap so that the sum of their squares "
    .. "is nowhere 0.",
  examples = "moth.randn(5, 9, 2), 8, {window = moth.hann_window(8)}  -- domain: positive\n"
    .. "moth.randn(2, 5, 6, 2), 8, 3, 6, moth.rand(6) + 1, {length = 16, normalized = true}"
    .. "  -- domain: positive\n"
    .. "moth.randn(6, 5, 2), 6, {center = false, onesided = false, return_complex = false}",
  args = {
    {"tensor", "input", "spectrograms, (..., freqs, frames, 2)"},
    {"int", "n_fft", "length of a frame"},
    HOP, LENGTH, WINDOW,
    {"bool", "center", "were the signals padded on both sides?", default = true},
    NORMALIZED,
    {"bool", "onesided", "does the input omit the frequencies that mirror "
      .. "others? default: by their number", optional = true},
    {"int", "length", "length of the signals: cut or padded with zeros at the end",
      optional = true},
    COMPLEX,
  },
  scoped = true,
  run = function(x, n_fft, hop, length, window, center, normalized, onesided, want, as_complex)
    refuse_complex("istft", as_complex)
    local n, shape = x:dim(), {unpack(x.shape)}
    if n < 3 or shape[n] ~= 2 or shape[n - 1] == 0 then
      refuse("istft", "input", "spectrograms are needed, (..., freqs, frames, 2), got "
        .. errors.describe(x))
    end
    local freqs, frames = shape[n - 2], shape[n - 1]
    hop, window = framing("istft", x, n_fft, hop, length, window)
    if onesided == nil then onesided = freqs ~= n_fft end
    local wanted = onesided and math.floor(n_fft / 2) + 1 or n_fft
    if freqs ~= wanted then
      refuse("istft", "input", ("%d frequencies are needed for n_fft = %d, got %s"):format(wanted,
        n_fft, errors.describe(x)))
    end
    window = window or ops.ones(n_fft, {dtype = x.dtype, device = x.device})
    x = x:reshape(-1, freqs, frames, 2):narrow(2, 1, math.floor(n_fft / 2) + 1):transpose(2, 3)
    x = signals(x, n_fft, -1, true, normalized and n_fft ^ -0.5 or 1 / n_fft)
    local y, all = overlapped(x * window, hop)
    local sums = overlapped((window * window):expand(1, frames, n_fft), hop)
    local first = center and math.floor(n_fft / 2) or 0
    local last = want and first + want or center and all - first or all
    local some = math.min(last, all) - first
    if some < 1 or want and want < 1 then
      refuse("istft", want and "length" or "input", "the signals would be empty")
    end
    y = y:narrow(2, first + 1, some) / covered(sums:narrow(2, first + 1, some))
    if last > all then y = ops.pad(y, {0, last - all}) end
    for _ = 1, 3 do shape[#shape] = nil end
    shape[#shape + 1] = y:size(2)
    return (y:reshape(shape))
  end,
}

return stft
