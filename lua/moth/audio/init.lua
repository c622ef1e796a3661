--- init.lua -- moth.audio: sounds, as torchaudio: files, functions of torchaudio.functional, and
-- modules of torchaudio.transforms.
--
--     local waveform, rate = moth.audio.load "word.flac"
--     local mel = moth.audio.MelSpectrogram{sample_rate = rate, n_mels = 64}(waveform)

local class = require "moth.base.class"
local lazy = require "moth.base.lazy"

local rows, functions, modules = {}, {}, {}

local function both(space, file, names)
  lazy.from(rows, "moth.audio." .. file, names)
  lazy.from(space, "moth.audio." .. file, names)
end

lazy.from(rows, "moth.io.sndfile", "load save info")
both(functions, "spectrogram", "spectrogram inverse_spectrogram griffinlim spectral_centroid")
both(functions, "mel", "melscale_fbanks linear_fbanks create_dct amplitude_to_DB DB_to_amplitude "
  .. "compute_deltas")
both(functions, "waveform", "resample mu_law_encoding mu_law_decoding gain preemphasis add_noise")
both(functions, "masks", "mask_along_axis mask_along_axis_iid")
both(modules, "transforms", "Spectrogram InverseSpectrogram GriffinLim MelScale MelSpectrogram "
  .. "AmplitudeToDB MFCC ComputeDeltas")
both(modules, "changes", "Resample TimeMasking FrequencyMasking MuLawEncoding MuLawDecoding Vol "
  .. "Fade")

local options = {
  found = function(value)
    if class.isclass(value) then
      class.guard(value, "net", require("moth.nn.module.named").guard)
    end
  end,
}

return (lazy.namespace("moth.audio", {
  functional = lazy.namespace("moth.audio.functional", {}, functions),
  transforms = lazy.namespace("moth.audio.transforms", {}, modules, options),
}, rows, options))
