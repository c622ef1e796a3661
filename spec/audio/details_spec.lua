-- Masks, inverses and refusals of moth.audio: both sides of each bound, whole messages. Values are
-- in golden_spec.lua.

local moth = require "moth"

local audio = moth.audio
local F = audio.functional

local function check(text, f)
  local ok, problem = pcall(f)
  assert.is_false(ok, "was taken: " .. text)
  local message = tostring(type(problem) == "table" and problem.message or problem)
  if not message:find(text, 1, true) then error(message .. "\nlacks: " .. text, 2) end
end

local x, spec = moth.randn(400), moth.rand(3, 5, 20)
local hann = moth.hann_window(16)

-- Rows: the text of a message, a call that is refused, and a call at the bound that is taken.
local ROWS = {
  {"'axis' to 'mask_along_axis' (one of the last two dimensions is needed, got 1 of f32 (3, 5, 20)",
    function() F.mask_along_axis(spec, 3, 0, 1) end,
      function() F.mask_along_axis(spec, 3, 0, 2) end},
  {"'axis' to 'mask_along_axis' (one of the last two dimensions is needed, got 1 of f32 (5)",
    function() F.mask_along_axis(moth.ones(5), 3, 0, 1) end,
    function() F.mask_along_axis(moth.ones(2, 5), 3, 0, 1) end},
  {"'specgrams' to 'mask_along_axis_iid' ((..., freq, time) with a dimension of spectrograms is "
    .. "needed", function() F.mask_along_axis_iid(spec[1], 3, 0, 2) end,
    function() F.mask_along_axis_iid(spec, 3, 0, 2) end},
  {"'mask_param' to 'mask_along_axis'", function() F.mask_along_axis(spec, -1, 0, 2) end,
    function() assert.is_true(moth.equal(spec, F.mask_along_axis(spec, 0, 9, 2))) end},
  {"'p' to 'mask_along_axis'", function() F.mask_along_axis(spec, 1, 0, 2, 1.1) end,
    function() assert.is_true(moth.equal(spec, F.mask_along_axis(spec, 9, 9, 2, 0))) end},
  {"'waveform' to 'resample' (floating-point signals (..., time) are needed, got i64 (4)",
    function() F.resample(moth.arange(4), 2, 1) end},
  {"'waveform' to 'resample' (floating-point signals (..., time) are needed, got f32 ()",
    function() F.resample(moth.tensor(1), 2, 1) end, function() F.resample(moth.ones(1), 2, 1) end},
  {"'waveform' to 'Resample' (floating-point signals (..., time) are needed",
    function() audio.Resample(2, 1)(moth.arange(4)) end},
  {"'x' to 'mu_law_encoding' (floating-point signals",
    function() F.mu_law_encoding(moth.arange(4), 8) end},
  {"'orig_freq' to 'resample'", function() F.resample(x, 0, 1) end},
  {"'lowpass_filter_width' to 'resample'", function() F.resample(x, 2, 1, 0) end},
  {"'rolloff' to 'resample'", function() F.resample(x, 2, 1, 6, 0) end,
    function() F.resample(x, 2, 1, 6, 1) end},
  {"'rolloff' to 'resample'", function() F.resample(x, 2, 1, 6, 1.01) end},
  {"'quantization_channels' to 'mu_law_encoding'", function() F.mu_law_encoding(x, 1) end,
    function() F.mu_law_encoding(x, 2) end},
  {"'gain' to 'Vol' (a number from 0 on is needed, got -1", function() audio.Vol(-1) end,
    function() audio.Vol(0) end},
  {"'gain' to 'Vol' (a number from 0 on is needed, got -1",
    function() audio.Vol(-1, "power") end, function() audio.Vol(-1, "db") end},
  {"'waveform' to 'Fade' (at least 401 samples are needed, got 400",
    function() audio.Fade(401, 3)(x) end, function() audio.Fade(400, 3)(x) end},
  {"'waveform' to 'Fade' (at least 401 samples are needed, got 400",
    function() audio.Fade(3, 401)(x) end, function() audio.Fade(3, 400)(x) end},
  {"'fade_in_len' to 'Fade'", function() audio.Fade(-1) end},
  {"'noise' to 'add_noise' ((400) with a ratio for each signal is needed, got (3) with () ratios",
    function() F.add_noise(x, moth.ones(3), moth.tensor(1)) end},
  {"'noise' to 'add_noise' ((400) with a ratio for each signal is needed, got (400) with (1) "
      .. "ratios",
    function() F.add_noise(x, x, moth.ones(1)) end,
      function() F.add_noise(x, x, moth.tensor(1)) end},
  {"'normalized' to 'spectrogram' (true, false, \"window\" or \"frame_length\" is needed, got 3",
    function() F.spectrogram(x, 0, hann, 16, 8, 16, 2, {normalized = 3}) end},
  {"'normalized' to 'Spectrogram' (true, false, \"window\" or \"frame_length\" is needed",
    function() audio.Spectrogram {normalized = "frame"} end},
  {"'normalized' to 'InverseSpectrogram' (true, false,",
    function() audio.InverseSpectrogram {normalized = 0} end},
  {"'win_length' to 'Spectrogram' (a length up to n_fft = 16 is needed, got 17",
    function() audio.Spectrogram(16, 17) end, function() audio.Spectrogram(16, 16) end},
  {"'win_length' to 'GriffinLim' (a length up to n_fft = 16 is needed, got 17",
    function() audio.GriffinLim {16, win_length = 17} end},
  {"'window_fn' to 'Spectrogram' (a function that returns a vector of 16 numbers is needed; it "
    .. "returned f32 (3)",
    function() audio.Spectrogram {16, window_fn = function() return moth.ones(3) end} end},
  {"'window_fn' to 'InverseSpectrogram' (a function that returns a vector of 16 numbers is needed; "
    .. "it returned 3",
      function() audio.InverseSpectrogram {16, window_fn = function() return 3 end}
  end},
  {"'window_fn' to 'Spectrogram' (a function that returns a vector of 16 numbers is needed; it "
    .. "returned f32 (1, 16)",
    function() audio.Spectrogram {16, window_fn = function() return moth.ones(1, 16) end} end},
  {"'momentum' to 'GriffinLim' (a number from 0 to below 1 is needed, got 1",
    function() audio.GriffinLim {momentum = 1} end, function() audio.GriffinLim {momentum = 0} end},
  {"'momentum' to 'griffinlim' (a number from 0 to below 1 is needed, got 1",
    function() F.griffinlim(moth.rand(9, 5), hann, 16, 8, 16, 1, 2, 1) end},
  {"'power' to 'GriffinLim'", function() audio.GriffinLim {power = 0} end},
  {"'n_mfcc' to 'MFCC' (a number up to n_mels = 20 is needed, got 21",
    function() audio.MFCC {n_mfcc = 21, melkwargs = {n_mels = 20}} end,
    function() audio.MFCC {n_mfcc = 20, melkwargs = {n_mels = 20}} end},
  {"'dct_type' to 'MFCC'", function() audio.MFCC {dct_type = 3} end},
  {"'f_min' to 'melscale_fbanks' (a frequency up to f_max, 400, is needed, got 500",
    function() F.melscale_fbanks(201, 500, 400, 4, 8000) end},
  {"'f_min' to 'linear_fbanks' (a frequency up to f_max, 400, is needed, got 401",
    function() F.linear_fbanks(201, 401, 400, 4, 8000) end},
  {"'n_mels' to 'melscale_fbanks'", function() F.melscale_fbanks(201, 0, 400, 0, 8000) end},
  {"'n_filter' to 'linear_fbanks'", function() F.linear_fbanks(201, 0, 400, 0, 8000) end},
  {"'n_freqs' to 'linear_fbanks'", function() F.linear_fbanks(1, 0, 400, 1, 8000) end},
  {"'x' to 'amplitude_to_DB' ((freq, time) is needed for top_db, got f32 (400)",
    function() F.amplitude_to_DB(x, 10, 1e-10, 0, 80) end,
    function() F.amplitude_to_DB(x:view(20, 20), 10, 1e-10, 0, 80) end},
  {"'amin' to 'amplitude_to_DB'", function() F.amplitude_to_DB(x, 10, 0, 0) end},
  {"'win_length' to 'compute_deltas'", function() F.compute_deltas(spec, 2) end,
    function() F.compute_deltas(spec, 3) end},
}

describe("moth.audio refuses", function()
  for i, row in ipairs(ROWS) do
    it(("%d: %s"):format(i, row[1]), function()
      check("bad argument " .. row[1], row[2])
      if row[3] then row[3]() end
    end)
  end
end)

describe("masks", function()
  -- The first and last masked place of each row along the last dimension; nil: none.
  local function range(row)
    local at = row:eq(9):nonzero():flatten()
    if at:numel() == 0 then return nil end
    assert.equal(at:numel(), at:max():item() - at:min():item() + 1)
    return tonumber(at:min():item()), tonumber(at:max():item())
  end

  it("are ranges of one dimension, shorter than their bound", function()
    local lengths, starts, ends = {}, 0, 0
    local y = moth.zeros(4, 30)
    for _ = 1, 300 do
      local z = F.mask_along_axis(y, 8, 9, 2)
      local first, last = range(z[1])
      assert.is_true(moth.equal(z[1], z[4]))
      local n = first and last - first + 1 or 0
      lengths[n] = true
      if first == 1 then starts = starts + 1 end
      if last == 29 then ends = ends + 1 end -- of the last it stays clear, as in torchaudio
    end
    for n = 0, 7 do assert.is_true(lengths[n], n) end
    assert.is_nil(lengths[8])
    assert.is_true(starts > 0 and ends > 0)
    local rows = F.mask_along_axis(moth.zeros(30, 4), 8, 9, 1)
    assert.is_true(moth.equal(rows:select(2, 1), rows:select(2, 4)))
  end)

  it("are at most a share of the dimension", function()
    for _ = 1, 100 do
      local z = F.mask_along_axis(moth.zeros(4, 30), 30, 9, 2, 0.1)
      assert.is_true(z[1]:eq(9):sum():item() <= 2)
    end
  end)

  it("differ between spectrograms where that is wanted", function()
    local y = moth.zeros(40, 2, 4, 30)
    for axis = 3, 4 do
      local one, each = F.mask_along_axis(y, 4, 9, axis), F.mask_along_axis_iid(y, 4, 9, axis)
      local differ = 0
      for i = 2, 40 do
        assert.is_true(moth.equal(one[1], one[i]))
        if not moth.equal(each[1][1], each[i][2]) then differ = differ + 1 end
      end
      assert.is_true(differ > 15, differ)
    end
  end)

  it("of modules have value 0 and their dimension", function()
    moth.manual_seed(4)
    local ones = moth.ones(1, 6, 40)
    for name, axis in pairs {TimeMasking = 3, FrequencyMasking = 2} do
      local module, seen = audio[name](6), 0
      for _ = 1, 40 do
        local y = module(ones)
        local masked = y:eq(0):any(axis == 3 and 2 or 3):sum():item()
        local all = y:eq(0):all(axis == 3 and 2 or 3):sum():item()
        assert.equal(masked, all)
        seen = math.max(seen, masked)
      end
      assert.equal(5, seen)
      assert.is_true(module(ones, 7):eq(0):sum():item() == 0)
    end
    local iid = audio.TimeMasking {6, iid_masks = true}(moth.ones(50, 6, 40))
    assert.is_false(moth.equal(iid[1], iid[2]) and moth.equal(iid[2], iid[3])
      and moth.equal(iid[3], iid[4]))
    local few = audio.TimeMasking {40, p = 0.1}
    for _ = 1, 40 do assert.is_true(few(ones):eq(0):select(2, 1):sum():item() <= 3) end
  end)
end)

describe("inverses", function()
  local function near(a, b) assert.is_true(moth.allclose(a, b, {atol = 1e-5}), tostring(a - b)) end

  it("of spectrograms are the signals, with each norm and padding", function()
    for _, normalized in ipairs {false, true, "window", "frame_length"} do
      for _, pad in ipairs {0, 5} do
        local options = {n_fft = 32, normalized = normalized, pad = pad}
        local forward = audio.Spectrogram {n_fft = 32, normalized = normalized, pad = pad,
          power = moth.none}
        local back = audio.InverseSpectrogram(options)
        near(x, back(forward(x), 400))
      end
    end
    local two = audio.Spectrogram {n_fft = 32, power = moth.none, onesided = false}
    near(x, audio.InverseSpectrogram {n_fft = 32, onesided = false}(two(x), 400))
    local short = audio.Spectrogram {n_fft = 32, win_length = 20, hop_length = 5,
      power = moth.none, window_fn = moth.hamming_window}
    near(x, audio.InverseSpectrogram {n_fft = 32, win_length = 20, hop_length = 5,
      window_fn = moth.hamming_window}(short(x), 400))
    assert.equal(400, audio.InverseSpectrogram {n_fft = 32}(audio.Spectrogram {n_fft = 32,
      power = moth.none}(x)):size(1))
  end)

  it("of decibels and of mu-law are near", function()
    local y = x:abs() + 0.1
    near(y, F.DB_to_amplitude(F.amplitude_to_DB(y, 10, 1e-10, 0), 1, 1))
    near(y, F.DB_to_amplitude(F.amplitude_to_DB(y, 20, 1e-10, 0), 1, 0.5))
    local z = moth.linspace(-1, 1, 101)
    local back = audio.MuLawDecoding()(audio.MuLawEncoding()(z))
    assert.is_true((back - z):abs():max():item() < 0.03)
    assert.same({0, 255}, (function()
      local ends = F.mu_law_encoding(moth.tensor {-1, 1}, 256):tolist()
      return {tonumber(ends[1]), tonumber(ends[2])}
    end)())
  end)

  it("by Griffin and Lim have the magnitudes", function()
    local magnitude = audio.Spectrogram {n_fft = 32, power = 1}
    for _, power in ipairs {1, 2} do
      local wanted = magnitude(x)
      local signal = audio.GriffinLim {n_fft = 32, power = power, n_iter = 60, length = 400}(
        wanted:pow(power))
      assert.equal(400, signal:size(1))
      local off = (magnitude(signal) - wanted):square():sum() / wanted:square():sum()
      assert.is_true(off:item() < 0.05, off:item())
    end
  end)
end)

describe("noise", function()
  it("has the wanted ratio, of the samples that count", function()
    local signal, noise = moth.randn(2, 4000), moth.randn(2, 4000) * 3
    local y = F.add_noise(signal, noise, moth.tensor {10, 0})
    local function ratio(i, n)
      local added = (y - signal)[i]:narrow(1, 1, n)
      return 10 * math.log10((signal[i]:narrow(1, 1, n):square():sum()
        / added:square():sum()):item())
    end
    assert.near(10, ratio(1, 4000), 1e-3)
    assert.near(0, ratio(2, 4000), 1e-3)
    y = F.add_noise(signal, noise, moth.tensor {3, 3}, moth.tensor {1000, 4000})
    assert.near(3, ratio(1, 1000), 1e-3)
    assert.near(3, ratio(2, 4000), 1e-3)
  end)
end)

describe("modules of moth.audio", function()
  it("keep a signal whose rate does not change", function()
    assert.equal(x, audio.Resample()(x))
    assert.equal(x, F.resample(x, 5, 5))
    assert.equal(x, F.gain(x, 0))
    assert.equal("orig_freq=16000, new_freq=8000", audio.Resample(16000, 8000):extra_repr())
  end)

  it("have the window of win_length numbers, with its arguments", function()
    local one = audio.Spectrogram {n_fft = 16, win_length = 10, wkwargs = {periodic = false}}
    assert.same({10, 5, 16}, {one.win_length, one.hop_length, one.n_fft})
    assert.is_true(moth.equal(one.window, moth.hann_window(10, {periodic = false})))
    assert.equal(1, audio.Spectrogram {n_fft = 1}.hop_length)
    assert.equal("n_fft=16, win_length=16, hop_length=8, power=2",
      audio.Spectrogram(16):extra_repr())
    assert.equal("n_fft=16, win_length=16, hop_length=8, power=none",
      audio.Spectrogram {16, power = moth.none}:extra_repr())
    assert.equal("n_mels=4, sample_rate=8000, f_min=0, f_max=4000",
      audio.MelScale(4, 8000):extra_repr())
  end)

  it("warn if a filter is 0 everywhere", function()
    local warn, text = moth.warn, nil
    moth.warn = function(message) text = message end
    F.melscale_fbanks(9, 0, 4000, 40, 8000)
    moth.warn = warn
    assert.equal("melscale_fbanks: a filter is 0 everywhere: n_mels = 40 is too large for 9 "
      .. "frequencies", text)
  end)

  it("are in their namespaces", function()
    for name in ("Spectrogram InverseSpectrogram GriffinLim MelScale MelSpectrogram AmplitudeToDB "
      .. "MFCC ComputeDeltas Resample TimeMasking FrequencyMasking MuLawEncoding MuLawDecoding Vol "
      .. "Fade"):gmatch "%S+" do
      assert.equal(audio[name], audio.transforms[name])
      assert.equal(name, moth.typename(name == "TimeMasking" and audio[name](1)
        or name == "FrequencyMasking" and audio[name](1) or name == "Vol" and audio[name](1)
        or name == "MelScale" and audio[name](20) or name == "MelSpectrogram"
        and audio[name] {n_mels = 20} or name == "MFCC"
        and audio[name] {n_mfcc = 5, melkwargs = {n_mels = 20}} or audio[name]()))
    end
  end)
end)
