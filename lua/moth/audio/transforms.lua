--- transforms.lua -- modules that compute spectrograms and features of them, with the parameters
-- and buffers of torchaudio.transforms.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local mel = require "moth.audio.mel"
local Module = require "moth.nn.module"
local spectrogram = require "moth.audio.spectrogram"

local transforms = {}

-- ---- arguments ----

local ROWS = {
  sample_rate = {"int", "sample_rate", "samples in a second", default = 16000, bounds = {1}},
  n_fft = {"int", "n_fft", "length of a frame", default = 400, bounds = {1}},
  win_length = {"int", "win_length", "length of the window; default: n_fft", optional = true,
    bounds = {1}},
  hop_length = {"int", "hop_length", "step between frames; default: win_length / 2",
    optional = true, bounds = {1}},
  pad = {"int", "pad", "zeros on both sides of the signal", default = 0, bounds = {0}},
  window_fn = {"any", "window_fn", "makes the window: window_fn(win_length); default: "
    .. "moth.hann_window", optional = true},
  power = {"float", "power", "of the absolute values: 1 magnitude, 2 power; none: complex numbers "
    .. "as pairs", default = 2, optional = true},
  normalized = {"any", "normalized", "divide by the norm of the window (true, \"window\"), or by "
    .. "the square root of n_fft (\"frame_length\")?", default = false},
  wkwargs = {"any", "wkwargs", "a table of further arguments of window_fn", optional = true},
  center = {"bool", "center", "is the middle of frame k at sample k * hop_length?", default = true},
  pad_mode = {"enum", "pad_mode", "the padding of centred frames",
    choices = {"reflect", "constant", "replicate", "circular"}},
  onesided = {"bool", "onesided", "omit the frequencies that mirror others?", default = true},
  f_min = {"float", "f_min", "lowest frequency (Hz)", default = 0, bounds = {0}},
  f_max = {"float", "f_max", "highest frequency (Hz); default: sample_rate / 2", optional = true},
  n_mels = {"int", "n_mels", "the number of mel filters", default = 128, bounds = {1}},
  norm = {"enum", "norm", "\"slaney\": divide each filter by its width", optional = true,
    choices = {"slaney"}},
  mel_scale = {"enum", "mel_scale", "the scale of HTK, or of Slaney's Auditory Toolbox",
    choices = {"htk", "slaney"}},
}

local function args(names)
  local list = {}
  for name in names:gmatch "%S+" do list[#list + 1] = ROWS[name] end
  return list
end

-- Sets the lengths and the window of a module.
local function frame(self, name, n_fft, win_length, hop_length, window_fn, wkwargs)
  win_length = win_length or n_fft
  if win_length > n_fft then
    errors.argument(name, "win_length", ("a length up to n_fft = %d is needed, got %d"):format(
      n_fft, win_length), "E_DOMAIN")
  end
  self.n_fft, self.win_length = n_fft, win_length
  self.hop_length = hop_length or math.max(math.floor(win_length / 2), 1)
  local make = window_fn or require("moth").hann_window
  local window
  if wkwargs then window = make(win_length, wkwargs) else window = make(win_length) end
  if not lib.istensor(window) or window:dim() ~= 1 or window:size(1) ~= win_length then
    errors.argument(name, "window_fn", ("a function that returns a vector of %d numbers is needed; "
      .. "it returned %s"):format(win_length, errors.describe(window)), "E_TYPE")
  end
  self:register_buffer("window", window:detach())
end

-- ---- spectrograms ----

--- The spectrogram of signals (..., time): (..., freq, frames).
local Spectrogram = class("Spectrogram", Module)
transforms.Spectrogram = Spectrogram
Spectrogram.signature = define.signature("Spectrogram", args("n_fft win_length hop_length pad "
  .. "window_fn power normalized wkwargs center pad_mode onesided"))

function Spectrogram:init(n_fft, win_length, hop_length, pad, window_fn, power, normalized, wkwargs,
                          center, pad_mode, onesided)
  spectrogram.norms("Spectrogram", normalized)
  frame(self, "Spectrogram", n_fft, win_length, hop_length, window_fn, wkwargs)
  self.pad, self.power, self.normalized = pad, power, normalized
  self.center, self.pad_mode, self.onesided = center, pad_mode, onesided
end

function Spectrogram:forward(waveform)
  return (spectrogram.spectrogram(waveform, self.pad, self.window, self.n_fft, self.hop_length,
    self.win_length, self.power or lib.none, self.normalized, self.center, self.pad_mode,
    self.onesided))
end

function Spectrogram:extra_repr()
  return ("n_fft=%d, win_length=%d, hop_length=%d, power=%s"):format(self.n_fft, self.win_length,
    self.hop_length, tostring(self.power or "none"))
end

--- Signals from complex spectrograms, pairs (..., freq, frames, 2).
local InverseSpectrogram = class("InverseSpectrogram", Module)
transforms.InverseSpectrogram = InverseSpectrogram
InverseSpectrogram.signature = define.signature("InverseSpectrogram", args("n_fft win_length "
  .. "hop_length pad window_fn normalized wkwargs center pad_mode onesided"))

function InverseSpectrogram:init(n_fft, win_length, hop_length, pad, window_fn, normalized, wkwargs,
                                 center, pad_mode, onesided)
  spectrogram.norms("InverseSpectrogram", normalized)
  frame(self, "InverseSpectrogram", n_fft, win_length, hop_length, window_fn, wkwargs)
  self.pad, self.normalized = pad, normalized
  self.center, self.pad_mode, self.onesided = center, pad_mode, onesided
end

function InverseSpectrogram:forward(input, length)
  return (spectrogram.inverse_spectrogram(input, length or lib.none, self.pad, self.window,
    self.n_fft, self.hop_length, self.win_length, self.normalized, self.center, self.pad_mode,
    self.onesided))
end

--- Signals from spectrograms without phases (Griffin and Lim, 1984).
local GriffinLim = class("GriffinLim", Module)
transforms.GriffinLim = GriffinLim
GriffinLim.signature = define.signature("GriffinLim", {
  ROWS.n_fft, {"int", "n_iter", "the number of iterations", default = 32, bounds = {0}},
  ROWS.win_length, ROWS.hop_length, ROWS.window_fn,
  {"float", "power", "the power of the absolute values in the input", default = 2,
    bounds = {0, open = true}},
  ROWS.wkwargs,
  {"float", "momentum", "from 0 to below 1; 0: Griffin and Lim's", default = 0.99, bounds = {0}},
  {"int", "length", "the length of the signals", optional = true},
  {"bool", "rand_init", "begin with random phases?", default = true},
})

function GriffinLim:init(n_fft, n_iter, win_length, hop_length, window_fn, power, wkwargs, momentum,
                         length, rand_init)
  if momentum >= 1 then
    errors.refuse("GriffinLim", "momentum", "a number from 0 to below 1 is needed", momentum,
      "E_DOMAIN")
  end
  frame(self, "GriffinLim", n_fft, win_length, hop_length, window_fn, wkwargs)
  self.n_iter, self.power, self.momentum = n_iter, power, momentum
  self.length, self.rand_init = length, rand_init
end

function GriffinLim:forward(specgram)
  return (spectrogram.griffinlim(specgram, self.window, self.n_fft, self.hop_length,
    self.win_length, self.power, self.n_iter, self.momentum, self.length, self.rand_init))
end

-- ---- the mel scale ----

--- Converts the frequencies of a spectrogram to the mel scale: (..., n_stft, frames) to (...,
-- n_mels, frames). The filters are the buffer `fb`.
local MelScale = class("MelScale", Module)
transforms.MelScale = MelScale
MelScale.signature = define.signature("MelScale", {
  ROWS.n_mels, ROWS.sample_rate, ROWS.f_min, ROWS.f_max,
  {"int", "n_stft", "the number of frequencies, n_fft / 2 + 1", default = 201, bounds = {2}},
  ROWS.norm, ROWS.mel_scale,
})

function MelScale:init(n_mels, sample_rate, f_min, f_max, n_stft, norm, mel_scale)
  self.n_mels, self.sample_rate, self.n_stft = n_mels, sample_rate, n_stft
  self.f_min, self.f_max = f_min, f_max or math.floor(sample_rate / 2)
  self.norm, self.mel_scale = norm, mel_scale
  self:register_buffer("fb", mel.melscale_fbanks(n_stft, f_min, self.f_max, n_mels, sample_rate,
    norm, mel_scale))
end

function MelScale:forward(specgram)
  return (specgram:transpose(-1, -2):matmul(self.fb):transpose(-1, -2))
end

function MelScale:extra_repr()
  return ("n_mels=%d, sample_rate=%d, f_min=%g, f_max=%g"):format(self.n_mels, self.sample_rate,
    self.f_min, self.f_max)
end

--- The mel spectrogram of signals (..., time): (..., n_mels, frames).
local MelSpectrogram = class("MelSpectrogram", Module)
transforms.MelSpectrogram = MelSpectrogram
MelSpectrogram.signature = define.signature("MelSpectrogram", args("sample_rate n_fft win_length "
  .. "hop_length f_min f_max pad n_mels window_fn power normalized wkwargs center pad_mode norm "
  .. "mel_scale"))

function MelSpectrogram:init(sample_rate, n_fft, win_length, hop_length, f_min, f_max, pad, n_mels,
                             window_fn, power, normalized, wkwargs, center, pad_mode, norm,
                             mel_scale)
  self.sample_rate, self.n_fft, self.n_mels = sample_rate, n_fft, n_mels
  self.spectrogram = Spectrogram(n_fft, win_length, hop_length, pad, window_fn, power or 2,
    normalized, wkwargs, center, pad_mode, true)
  self.mel_scale = MelScale(n_mels, sample_rate, f_min, f_max, math.floor(n_fft / 2) + 1, norm,
    mel_scale)
end

function MelSpectrogram:forward(waveform)
  return (self.mel_scale(self.spectrogram(waveform)))
end

--- Decibels of a spectrogram: 10 log10(x) of power, 20 log10(x) of magnitude.
local AmplitudeToDB = class("AmplitudeToDB", Module)
transforms.AmplitudeToDB = AmplitudeToDB
AmplitudeToDB.signature = define.signature("AmplitudeToDB", {
  {"enum", "stype", "what the input is", choices = {"power", "magnitude"}},
  {"float", "top_db", "the range below the largest value of each spectrogram", optional = true,
    bounds = {0}},
})

function AmplitudeToDB:init(stype, top_db)
  self.stype, self.top_db = stype, top_db
end

function AmplitudeToDB:forward(x)
  return (mel.amplitude_to_DB(x, self.stype == "power" and 10 or 20, 1e-10, 0, self.top_db))
end

--- Mel-frequency cepstral coefficients of signals (..., time): (..., n_mfcc, frames).
local MFCC = class("MFCC", Module)
transforms.MFCC = MFCC
MFCC.signature = define.signature("MFCC", {
  ROWS.sample_rate, {"int", "n_mfcc", "the number of coefficients", default = 40, bounds = {1}},
  {"int", "dct_type", "the cosine transform: 2", default = 2, bounds = {2, 2}},
  {"enum", "norm", "\"ortho\": orthonormal rows; none: 2 cos", choices = {"ortho"},
    default = "ortho", optional = true},
  {"bool", "log_mels", "logarithms instead of decibels?", default = false},
  {"any", "melkwargs", "a table of arguments of MelSpectrogram", optional = true},
})

function MFCC:init(sample_rate, n_mfcc, _, norm, log_mels, melkwargs)
  local options = {sample_rate = sample_rate}
  for key, value in pairs(melkwargs or {}) do options[key] = value end
  self.sample_rate, self.n_mfcc, self.log_mels = sample_rate, n_mfcc, log_mels
  self.amplitude_to_DB = AmplitudeToDB("power", 80)
  self.MelSpectrogram = MelSpectrogram(options)
  local n_mels = self.MelSpectrogram.n_mels
  if n_mfcc > n_mels then
    errors.argument("MFCC", "n_mfcc", ("a number up to n_mels = %d is needed, got %d"):format(
      n_mels, n_mfcc), "E_DOMAIN")
  end
  self:register_buffer("dct_mat", mel.create_dct(n_mfcc, n_mels, norm or lib.none))
end

function MFCC:forward(waveform)
  local x = self.MelSpectrogram(waveform)
  if self.log_mels then x = (x + 1e-6):log() else x = self.amplitude_to_DB(x) end
  return (x:transpose(-1, -2):matmul(self.dct_mat):transpose(-1, -2))
end

--- The differences in time of spectrograms (..., freq, time).
local ComputeDeltas = class("ComputeDeltas", Module)
transforms.ComputeDeltas = ComputeDeltas
ComputeDeltas.signature = define.signature("ComputeDeltas", {
  {"int", "win_length", "the length of the window", default = 5, bounds = {3}},
  {"enum", "mode", "the padding at the ends", choices = {"replicate", "reflect", "constant",
    "circular"}},
})

function ComputeDeltas:init(win_length, mode)
  self.win_length, self.mode = win_length, mode
end

function ComputeDeltas:forward(specgram)
  return (mel.compute_deltas(specgram, self.win_length, self.mode))
end

return transforms
