-- moth.audio: random masks, default arguments, printed modules, and the refusals on both sides of
-- each bound. Values are in golden_spec.lua.

local moth = require "moth"
local audio = moth.audio
local F = audio.functional

local function refuses(f, text)
  local fine, problem = pcall(f)
  assert.is_false(fine, text)
  problem = tostring(problem)
  assert.is_true(problem:find(text, 1, true) ~= nil, problem .. "\ndoes not contain\n" .. text)
end

-- Filters of few frequencies warn; one claim below counts these warnings.
local warn, warnings
before_each(function() warn, warnings, moth.warn = moth.warn, {}, function(text)
  warnings[#warnings + 1] = text
end end)
after_each(function() moth.warn = warn end)

-- The lengths and first positions of 400 masks of a row of n elements.
local function masks(n, param, p)
  local x = moth.ones(400, 1, n)
  local y = F.mask_along_axis_iid(x, param, 0, 3, p or 1, moth.Generator {seed = 1})
  local lengths, firsts = {}, {}
  for _, rows in ipairs(y:tolist()) do
    local length, first, last = 0, nil, nil
    for i, value in ipairs(rows[1]) do
      if value == 0 then length, first, last = length + 1, first or i, i end
    end
    if first then
      assert.equal(length, last - first + 1) -- one piece
      firsts[first] = true
    end
    lengths[length] = true
  end
  return lengths, firsts
end

describe("masks of spectrograms", function()
  it("are shorter than mask_param, and have each shorter length", function()
    assert.same({[0] = true, true, true}, (masks(9, 3)))
    assert.same({[0] = true, true}, (masks(9, 2)))
    assert.same({[0] = true}, (masks(9, 1)))
    assert.same({[0] = true}, (masks(9, 0)))
    assert.same({[0] = true, true, true}, (masks(3, 3)))
  end)

  it("are shorter than the share p of the dimension", function()
    assert.same({[0] = true, true, true}, (masks(9, 8, 0.4))) -- floor(3.6)
    assert.same({[0] = true, true, true, true}, (masks(10, 8, 0.4)))
    assert.same({[0] = true, true}, (masks(10, 2, 0.4)))
    assert.same({[0] = true}, (masks(10, 8, 0)))
  end)

  it("begin at each position of the dimension", function()
    local _, firsts = masks(5, 3)
    assert.is_true(firsts[1] and firsts[2] and firsts[3] and firsts[4])
  end)

  it("cover one of the last two dimensions of all spectrograms, or differ between them", function()
    local x = moth.ones(3, 4, 5, 6)
    for axis, other in pairs {[3] = 4, [4] = 3, [-1] = 3, [-2] = 4} do
      for _ = 1, 20 do
        local y = F.mask_along_axis(x, 5, 7, axis)
        local row = y:select(other, 1)
        assert.is_true(y:equal(row:unsqueeze(other):expand(3, 4, 5, 6)))
        assert.is_true(y:equal(y[1][1]:expand(3, 4, 5, 6)))
        assert.is_true(y:eq(7):logical_or(y:eq(1)):all():item())
        y = F.mask_along_axis_iid(x, 5, 7, axis)
        assert.is_true(y:equal(y:select(other, 1):unsqueeze(other):expand(3, 4, 5, 6)))
      end
      local differ = false
      for _ = 1, 20 do
        local y = F.mask_along_axis_iid(x, 5, 7, axis)
        differ = differ or not y:equal(y[1][1]:expand(3, 4, 5, 6))
      end
      assert.is_true(differ)
    end
    assert.is_true(x:eq(1):all():item())
  end)

  it("are of modules, whose value is 0 by default", function()
    local x = moth.ones(2, 5, 8)
    local function seen(net, ...)
      local values, same = {}, true
      for _ = 1, 60 do
        local y = net(x, ...)
        for _, value in ipairs(y:flatten():tolist()) do values[value] = true end
        same = same and y[1]:equal(y[2])
      end
      return values, same
    end
    for _, name in ipairs {"FrequencyMasking", "TimeMasking"} do
      local values, same = seen(audio[name](4))
      assert.same({[0] = true, true}, values)
      assert.is_true(same)
      values, same = seen(audio[name](4, true), 3)
      assert.same({true, [3] = true}, values)
      assert.is_false(same)
    end
    assert.same({true}, (seen(audio.TimeMasking {8, p = 0.124}))) -- floor(0.99)
    assert.same({true}, (seen(audio.TimeMasking {1})))
    local y = F.mask_along_axis(x, 1000000, 0, 2, 1, moth.Generator {seed = 3}) -- wider than x
    assert.same({2, 5, 8}, {unpack(y.shape)})
    for _ = 1, 30 do
      local rows = audio.FrequencyMasking(5)(x)
      assert.is_true(rows:select(3, 1):unsqueeze(3):expand(2, 5, 8):equal(rows))
      local times = audio.TimeMasking(5)(x)
      assert.is_true(times:select(2, 1):unsqueeze(2):expand(2, 5, 8):equal(times))
    end
  end)

  it("need a dimension of times or frequencies, and of spectrograms", function()
    local x = moth.ones(2, 3, 4)
    refuses(function() F.mask_along_axis(x, 2, 0, 1) end, "argument 'axis' to 'mask_along_axis' "
      .. "(one of the last two dimensions is needed, got 1 of f32 (2, 3, 4))")
    refuses(function() F.mask_along_axis(moth.ones(3), 2, 0, 1) end,
      "one of the last two dimensions is needed, got 1 of f32 (3)")
    refuses(function() F.mask_along_axis_iid(moth.ones(3, 4), 2, 0, 1) end,
      "bad argument 'specgrams' to 'mask_along_axis_iid' ((..., freq, time) with a dimension of "
      .. "spectrograms is needed, got f32 (3, 4))")
    for _, p in ipairs {-0.1, 1.1} do
      refuses(function() F.mask_along_axis(x, 2, 0, 2, p) end, "bad argument 'p' to 'mask_along_")
      refuses(function() audio.TimeMasking {2, p = p} end, "bad argument 'p' to 'TimeMasking'")
    end
    refuses(function() F.mask_along_axis(x, -1, 0, 2) end, "bad argument 'mask_param' to")
    refuses(function() audio.FrequencyMasking(-1) end, "bad argument 'freq_mask_param' to")
    refuses(function() audio.TimeMasking(-1) end, "bad argument 'time_mask_param' to")
  end)
end)

describe("modules of moth.audio", function()
  it("have torchaudio's default arguments", function()
    local function has(object, fields)
      for name, value in pairs(fields) do assert.equal(value, object[name], name) end
    end
    has(audio.Spectrogram(), {n_fft = 400, win_length = 400, hop_length = 200, pad = 0, power = 2,
      normalized = false, center = true, pad_mode = "reflect", onesided = true})
    has(audio.Spectrogram {n_fft = 100, win_length = 61}, {win_length = 61, hop_length = 30})
    has(audio.Spectrogram {n_fft = 1}, {win_length = 1, hop_length = 1})
    has(audio.InverseSpectrogram(), {n_fft = 400, win_length = 400, hop_length = 200, pad = 0,
      normalized = false, center = true, pad_mode = "reflect", onesided = true})
    has(audio.GriffinLim(), {n_fft = 400, n_iter = 32, win_length = 400, hop_length = 200,
      power = 2, momentum = 0.99, length = nil, rand_init = true})
    has(audio.MelScale(), {n_mels = 128, sample_rate = 16000, f_min = 0, f_max = 8000,
      n_stft = 201, norm = nil, mel_scale = "htk"})
    assert.equal(5512, audio.MelScale {sample_rate = 11025, n_mels = 8}.f_max)
    local m = audio.MelSpectrogram()
    has(m, {n_mels = 128, sample_rate = 16000, n_fft = 400})
    assert.same({201, 128}, {unpack(m.mel_scale.fb.shape)})
    has(audio.MFCC(), {n_mfcc = 40, sample_rate = 16000, log_mels = false})
    has(audio.MFCC().amplitude_to_DB, {stype = "power", top_db = 80})
    has(audio.AmplitudeToDB(), {stype = "power", top_db = nil})
    has(audio.ComputeDeltas(), {win_length = 5, mode = "replicate"})
    has(audio.Resample(), {orig_freq = 16000, new_freq = 16000,
      resampling_method = "sinc_interp_hann", rolloff = 0.99})
    has(audio.MuLawEncoding(), {quantization_channels = 256})
    has(audio.MuLawDecoding(), {quantization_channels = 256})
    has(audio.Vol(2), {gain = 2, gain_type = "amplitude"})
    has(audio.Fade(), {fade_in_len = 0, fade_out_len = 0, fade_shape = "linear"})
    assert.equal(moth.float64, audio.Resample {3, 2, dtype = moth.float64}.kernel.dtype)
    assert.equal(moth.float32, audio.Resample {3, 2}.kernel.dtype)
  end)

  it("print their arguments", function()
    assert.equal("Spectrogram(n_fft=400, win_length=400, hop_length=200, power=2)",
      tostring(audio.Spectrogram()))
    assert.equal("Spectrogram(n_fft=8, win_length=6, hop_length=3, power=none)",
      tostring(audio.Spectrogram {n_fft = 8, win_length = 6, power = moth.none}))
    assert.equal("MelScale(n_mels=8, sample_rate=8000, f_min=0, f_max=4000)",
      tostring(audio.MelScale(8, 8000)))
    assert.equal("Resample(orig_freq=3, new_freq=2)", tostring(audio.Resample(3, 2)))
  end)

  it("use window_fn with wkwargs", function()
    local given
    local net = audio.Spectrogram {n_fft = 8, win_length = 6, window_fn = function(n, options)
      given = {n, options}
      return moth.ones(n)
    end, wkwargs = {x = 3}}
    assert.same({6, {x = 3}}, given)
    assert.same({1, 1, 1, 1, 1, 1}, net.window:tolist())
    assert.is_true(audio.Spectrogram {n_fft = 8}.window:equal(moth.hann_window(8)))
    for _, wrong in ipairs {function(n) return moth.ones(n + 1) end, function() return 3 end,
                            function(n) return moth.ones(n, 1) end} do
      refuses(function() audio.Spectrogram {n_fft = 8, window_fn = wrong} end, "bad argument "
        .. "'window_fn' to 'Spectrogram' (a function that returns a vector of 8 numbers is needed; "
        .. "it returned ")
    end
  end)

  it("return the same signal at the same rate", function()
    local x = moth.randn(2, 9)
    assert.equal(x, audio.Resample(8, 8)(x))
    assert.equal(x, F.resample(x, 8, 8))
    assert.equal(x, F.gain(x, 0))
    local e = x:to(moth.int64)
    for _, f in ipairs {function() F.resample(e, 8, 8) end, function() F.resample(e, 8, 4) end} do
      refuses(f, "bad argument 'waveform' to 'resample' (floating-point signals (..., time) are "
        .. "needed, got i64 (2, 9))")
    end
    for _, net in ipairs {audio.Resample(8, 8), audio.Resample(8, 4)} do
      refuses(function() net(e) end, "bad argument 'waveform' to 'Resample' (floating-point")
      refuses(function() net(moth.tensor(1)) end, "signals (..., time) are needed, got f32 ()")
    end
    refuses(function() F.mu_law_encoding(e, 8) end,
      "bad argument 'x' to 'mu_law_encoding' (floating-point")
  end)

  it("have lengths of new / orig, rounded up", function()
    for _, case in ipairs {{9, 3, 2, 6}, {10, 3, 2, 7}, {1, 3, 1, 1}, {3, 3, 1, 1}, {4, 3, 1, 2},
                           {5, 2, 5, 13}} do
      assert.equal(case[4], F.resample(moth.ones(case[1]), case[2], case[3]):size(1))
    end
  end)

  it("decode integers of mu-law in the default dtype", function()
    local x = moth.tensor {0LL, 255LL}
    assert.equal(moth.float32, F.mu_law_decoding(x, 256).dtype)
    assert.same({-1, 1}, audio.MuLawDecoding()(x):tolist())
    assert.same({0, 255}, audio.MuLawEncoding()(moth.tensor {-1, 1}):tolist())
    assert.equal(moth.int64, audio.MuLawEncoding()(moth.tensor {-1, 1}).dtype)
  end)
end)

describe("moth.audio", function()
  it("refuses arguments outside of their bounds, and takes the ends", function()
    local x, w = moth.randn(40), moth.hann_window(8)
    local function gl(...) return F.griffinlim(moth.rand(5, 9), w, 8, 4, 8, ...) end
    for _, case in ipairs {
      {function() audio.Spectrogram {n_fft = 8, win_length = 9} end,
       "'win_length' to 'Spectrogram' (a length up to n_fft = 8 is needed, got 9)"},
      {function() audio.GriffinLim {n_fft = 8, win_length = 9} end,
       "'win_length' to 'GriffinLim' (a length up to n_fft = 8 is needed, got 9)"},
      {function() audio.Spectrogram {normalized = "x"} end,
       "'normalized' to 'Spectrogram' (true, false, \"window\" or \"frame_length\" is needed"},
      {function() audio.InverseSpectrogram {normalized = 1} end,
       "'normalized' to 'InverseSpectrogram' (true, false, \"window\" or \"frame_length\" is"},
      {function() F.spectrogram(x, 0, w, 8, 4, 8, 2, "x") end, "'normalized' to 'spectrogram'"},
      {function() audio.GriffinLim {momentum = 1} end,
       "'momentum' to 'GriffinLim' (a number from 0 to below 1 is needed, got 1)"},
      {function() gl(2, 1, 1) end,
       "'momentum' to 'griffinlim' (a number from 0 to below 1 is needed, got 1)"},
      {function() gl(2, 1, -0.1) end, "'momentum' to 'griffinlim'"},
      {function() gl(0, 1, 0) end, "'power' to 'griffinlim'"},
      {function() gl(2, -1, 0) end, "'n_iter' to 'griffinlim'"},
      {function() F.melscale_fbanks(9, 10, 9, 2, 100) end,
       "'f_min' to 'melscale_fbanks' (a frequency up to f_max, 9, is needed, got 10)"},
      {function() F.linear_fbanks(9, 10, 9, 2, 100) end,
       "'f_min' to 'linear_fbanks' (a frequency up to f_max, 9, is needed, got 10)"},
      {function() F.melscale_fbanks(1, 0, 9, 2, 100) end, "'n_freqs' to 'melscale_fbanks'"},
      {function() audio.MFCC {n_mfcc = 9, melkwargs = {n_mels = 8}} end,
       "'n_mfcc' to 'MFCC' (a number up to n_mels = 8 is needed, got 9)"},
      {function() audio.MFCC {dct_type = 1} end, "'dct_type' to 'MFCC'"},
      {function() audio.MFCC {dct_type = 3} end, "'dct_type' to 'MFCC'"},
      {function() audio.ComputeDeltas(2) end, "'win_length' to 'ComputeDeltas'"},
      {function() F.amplitude_to_DB(x, 10, 1e-10, 0, 80) end,
       "'x' to 'amplitude_to_DB' ((freq, time) is needed for top_db, got f32 (40))"},
      {function() F.amplitude_to_DB(x, 10, 0, 0) end, "'amin' to 'amplitude_to_DB'"},
      {function() audio.Vol(-1) end, "'gain' to 'Vol' (a number from 0 on is needed, got -1)"},
      {function() audio.Vol(-1, "power") end, "'gain' to 'Vol' (a number from 0 on is needed"},
      {function() audio.Fade(41)(x) end,
       "'waveform' to 'Fade' (at least 41 samples are needed, got 40)"},
      {function() audio.Fade(3, 42)(x) end,
       "'waveform' to 'Fade' (at least 42 samples are needed, got 40)"},
      {function() audio.Fade(-1) end, "'fade_in_len' to 'Fade'"},
      {function() audio.Fade(0, -1) end, "'fade_out_len' to 'Fade'"},
      {function() audio.Resample(0, 1) end, "'orig_freq' to 'Resample'"},
      {function() audio.Resample(1, 0) end, "'new_freq' to 'Resample'"},
      {function() F.resample(x, 2, 1, 0) end, "'lowpass_filter_width' to 'resample'"},
      {function() F.resample(x, 2, 1, 6, 0) end, "'rolloff' to 'resample'"},
      {function() F.mu_law_encoding(x, 1) end, "'quantization_channels' to 'mu_law_encoding'"},
      {function() audio.MuLawDecoding(1) end, "'quantization_channels' to 'MuLawDecoding'"},
      {function() F.add_noise(x, x:narrow(1, 1, 39), moth.tensor(1)) end,
       "'noise' to 'add_noise' ((40) with a ratio for each signal is needed, got (39) with ()"},
      {function() F.add_noise(x, x, moth.tensor {1}) end,
       "'noise' to 'add_noise' ((40) with a ratio for each signal is needed, got (40) with (1)"},
      {function() F.spectrogram(x, -1, w, 8, 4, 8) end, "'pad' to 'spectrogram'"},
    } do
      refuses(case[1], "bad argument " .. case[2])
    end
    audio.Spectrogram {n_fft = 8, win_length = 8}
    audio.MFCC {n_mfcc = 8, melkwargs = {n_mels = 8}}
    audio.Vol(0)
    audio.Vol(-3, "db")
    audio.Fade(40, 40)(x)
    audio.ComputeDeltas(3)
    F.melscale_fbanks(2, 0, 9, 1, 100)
    gl(0.5, 0, 0)
    F.amplitude_to_DB(x, 10, 1e-10, 0)
    F.amplitude_to_DB(x:view(4, 10), 10, 1e-10, 0, 80)
  end)

  it("warns of filters that are 0 everywhere", function()
    F.melscale_fbanks(201, 0, 8000, 20, 16000)
    assert.same({}, warnings)
    F.melscale_fbanks(9, 0, 8000, 40, 16000)
    assert.same({"melscale_fbanks: a filter is 0 everywhere: n_mels = 40 is too large for 9 "
      .. "frequencies"}, warnings)
  end)
end)
