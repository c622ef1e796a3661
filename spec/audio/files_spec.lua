-- Files of sounds: moth.io.read_wav, write_wav, read_audio, moth.audio.load, save, info. Files of
-- spec/golden/sounds.py are those that libsndfile writes.

local ffi = require "ffi"
local moth = require "moth"
local files = require "spec.support.files"
local json = require "moth.json"
local io_, audio = moth.io, moth.audio

setup(files.setup)
teardown(files.teardown)

local has_sndfile = pcall(ffi.load, "libsndfile.so.1")

local file = assert(io.open("spec/golden/sounds.json", "rb"))
local golden = json.decode(file:read "*a")
file:close()

local function from_hex(text)
  return (text:gsub("..", function(pair) return string.char(tonumber(pair, 16)) end))
end

local function write(path, text)
  local out = assert(io.open(path, "wb"))
  out:write(text)
  out:close()
  return path
end

local function read(path)
  local input = assert(io.open(path, "rb"))
  local text = input:read "*a"
  input:close()
  return text
end

-- Checks that f raises an error with this text and code.
local function raises(text, code, f)
  local ok, message = pcall(f)
  assert.is_false(ok, "no error, wanted: " .. text)
  assert.is_truthy(tostring(message):find(text, 1, true), message)
  if code then assert.equal(code, moth.errcode(), message) end
end

local function u16(n) return string.char(n % 256, math.floor(n / 256) % 256) end
local function u32(n) return u16(n % 65536) .. u16(math.floor(n / 65536)) end

local function chunk(name, text, size)
  return name .. u32(size or #text) .. text .. (#text % 2 == 1 and "\0" or "")
end

local function format(tag, channels, bits, rate, align)
  align = align or channels * bits / 8
  return u16(tag) .. u16(channels) .. u32(rate or 8000) .. u32((rate or 8000) * align)
    .. u16(align) .. u16(bits)
end

local function riff(...)
  local body = "WAVE" .. table.concat { ... }
  return "RIFF" .. u32(#body) .. body
end

describe("read_wav", function()
  it("reads what libsndfile writes", function()
    for _, case in ipairs(golden) do
      if case.format:find "WAV" and not case.subtype:find "LAW" then
        local x, rate = io_.read_wav { bytes = from_hex(case.hex) }
        assert.equal(8000, rate)
        assert.equal(moth.float32, x.dtype)
        assert.close(case.values, x:tolist(), 1e-7)
      end
    end
  end)

  it("keeps integers with normalize = false, 24 bits in the upper bits of int32", function()
    local dtypes = { PCM_U8 = "uint8", PCM_16 = "int16", PCM_24 = "int32", PCM_32 = "int32",
      FLOAT = "float32", DOUBLE = "float64" }
    for _, case in ipairs(golden) do
      if case.format == "WAV" and dtypes[case.subtype] then
        local x = io_.read_wav { bytes = from_hex(case.hex), normalize = false }
        assert.equal(moth[dtypes[case.subtype]], x.dtype)
        local scale = case.subtype == "PCM_16" and 2 ^ 15 or 2 ^ 31
        if case.subtype == "PCM_U8" then
          assert.close(case.values, ((x:double() - 128) / 128):tolist(), 1e-7)
        elseif case.subtype:find "PCM" then
          assert.close(case.values, (x:double() / scale):tolist(), 1e-7)
        end
      end
    end
  end)

  it("reads a range of frames, and frames first", function()
    local text = riff(chunk("fmt ", format(1, 2, 16)), chunk("data", u16(1) .. u16(2) .. u16(3)
      .. u16(4) .. u16(5) .. u16(6)))
    local function part(options)
      options.bytes, options.normalize = text, false
      return (io_.read_wav(options)):tolist()
    end
    assert.same({ { 1, 3, 5 }, { 2, 4, 6 } }, part {})
    assert.same({ { 3 }, { 4 } }, part { frame_offset = 1, num_frames = 1 })
    assert.same({ { 3, 4 }, { 5, 6 } }, part { frame_offset = 1, channels_first = false })
    assert.same({ { 5 }, { 6 } }, part { frame_offset = 2, num_frames = 9 })
    assert.same({ 2, 0 }, { unpack(io_.read_wav { bytes = text, frame_offset = 9 }.shape) })
    raises("'frame_offset' to 'read_wav'", "E_DOMAIN", function() part { frame_offset = -1 } end)
    raises("'num_frames' to 'read_wav'", "E_DOMAIN", function() part { num_frames = -2 } end)
  end)

  it("skips other chunks, and reads streams whose sizes are unknown", function()
    local samples = u16(7) .. u16(65535)
    local x = io_.read_wav { normalize = false, bytes = riff(chunk("LIST", "abc"),
      chunk("fmt ", format(1, 1, 16) .. "xx"), chunk("fact", u32(2)), chunk("data", samples),
      chunk("tail", "")) }
    assert.same({ { 7, -1 } }, x:tolist())
    x = io_.read_wav { normalize = false, bytes = "RIFF\255\255\255\255WAVE"
      .. chunk("fmt ", format(1, 1, 16)) .. "data\255\255\255\255" .. samples .. "\1" }
    assert.same({ { 7, -1 } }, x:tolist())
    x = io_.read_wav { normalize = false, bytes = "RIFF\36\240\255\127WAVE"
      .. chunk("fmt ", format(1, 1, 16)) .. "data\0\240\255\127" .. samples }
    assert.same({ { 7, -1 } }, x:tolist())
  end)

  it("reads infinities and NaNs of floats", function()
    local text = riff(chunk("fmt ", format(3, 1, 32)),
      chunk("data", "\0\0\128\127\1\2\255\255\0\0\128\63"))
    local x = io_.read_wav { bytes = text }
    assert.equal(math.huge, x[1][1]:item())
    assert.is_true(x[1][2]:item() ~= x[1][2]:item())
  end)

  it("does not share the file: it may be overwritten", function()
    local path = files.path "over.wav"
    io_.write_wav(path, moth.ones(1, 4), 8000)
    local x = io_.read_wav(path)
    write(path, riff(chunk("fmt ", format(3, 1, 32)), chunk("data", ("\0"):rep(16))))
    assert.same({ { 1, 1, 1, 1 } }, x:tolist())
  end)

  it("refuses broken files before it allocates", function()
    local fmt, data = chunk("fmt ", format(1, 1, 16)), chunk("data", "\1\2\3\4")
    local broken = {
      { "", "is not a WAVE file" },
      { "RIFF\4\0\0\0WAV", "is not a WAVE file" },
      { "RIFF\4\0\0\0AVI LIST", "is not a WAVE file" },
      { riff(), "it has no format" },
      { riff(data, fmt), "its samples come before their format" },
      { riff(fmt), "it has no samples" },
      { riff(fmt, "data" .. u32(2 ^ 30) .. "\1\2"), "would lie beyond its end" },
      { riff(chunk("LIST", "", 4000000000)), "would lie beyond its end" },
      { riff(chunk("fmt ", "\1\0\1\0")), "its format has 4 bytes" },
      { riff(chunk("fmt ", format(0xFFFE, 1, 16)), data), "its extensible format has 16 bytes" },
      { riff(chunk("fmt ", format(1, 0, 16)), data), "it has no channels" },
      { riff(chunk("fmt ", format(1, 1, 16, 0)), data), "its sample rate is 0" },
      { riff(chunk("fmt ", format(1, 2, 16, 8000, 2)), data), "in frames of 2 bytes" },
      { riff(chunk("fmt ", format(1, 2, 16, 8000, 0)), data), "in frames of 0 bytes" },
    }
    for _, case in ipairs(broken) do
      raises(case[2], "E_FORMAT", function() io_.read_wav { bytes = case[1] } end)
    end
    local unknown = {
      { riff(chunk("fmt ", format(1, 1, 12, 8000, 2)), data), "PCM samples of 12 bits" },
      { riff(chunk("fmt ", format(3, 1, 16)), data), "float samples of 16 bits" },
      { riff(chunk("fmt ", format(7, 1, 8)), data), "of the format mu-law" },
      { riff(chunk("fmt ", format(99, 1, 8)), data), "of the format 99" },
      { riff(chunk("fmt ", format(0xFFFE, 1, 16) .. ("\1"):rep(24)), data), "an unknown format" },
      { "RIFX" .. ("\0"):rep(20), "of the kind RIFX" },
      { "RF64" .. ("\0"):rep(20), "of the kind RF64" },
    }
    for _, case in ipairs(unknown) do
      raises(case[2], "E_UNSUPPORTED", function() io_.read_wav { bytes = case[1] } end)
    end
    raises("'path' to 'read_wav'", "E_IO", function() io_.read_wav(files.path "none.wav") end)
    raises("files.lua' is not a WAVE file", "E_FORMAT", function()
      io_.read_wav "spec/support/files.lua"
    end)
  end)
end)

describe("write_wav", function()
  local x = moth.tensor { { 0, 0.5, -1, 0.25, 0.125 }, { 1, -0.5, 2, -3, 0 } }

  it("writes the bytes that libsndfile writes", function()
    for _, case in ipairs(golden) do
      local bits = tonumber(case.subtype:match "%d+$")
      if case.format == "WAV" and (case.subtype == "PCM_16" or case.subtype == "PCM_24") then
        local path, theirs = files.path "same.wav", from_hex(case.hex)
        local samples = io_.read_wav { bytes = theirs, normalize = false }
        io_.write_wav(path, samples, 8000, { encoding = "PCM_S", bits_per_sample = bits })
        assert.equal(theirs, read(path))
      end
    end
  end)

  it("keeps the width of src's dtype; rounds and clips to other widths", function()
    local path = files.path "x.wav"
    for _, dtype in ipairs { "uint8", "int16", "int32", "float32", "float64" } do
      local y = dtype:find "float" and x:to(moth[dtype]) or (x * 50 + 60):to(moth[dtype])
      io_.write_wav(path, y, 44100)
      local z, rate = io_.read_wav(path, { normalize = false })
      assert.equal(44100, rate)
      assert.equal(y.dtype, z.dtype)
      assert.same(y:tolist(), z:tolist())
    end
    for bits, unit in pairs { [16] = 2 ^ -15, [24] = 2 ^ -23, [32] = 2 ^ -31 } do
      io_.write_wav(path, x, 8000, { encoding = "PCM_S", bits_per_sample = bits })
      assert.close(x:clamp(-1, 1 - unit):tolist(), (io_.read_wav(path)):tolist(), 1e-7)
    end
    io_.write_wav(path, x, 8000, { encoding = "PCM_U" })
    assert.close(x:clamp(-1, 127 / 128):tolist(), (io_.read_wav(path)):tolist(), 1e-7)
  end)

  it("takes frames first, no frames, and half floats", function()
    local path = files.path "x.wav"
    io_.write_wav(path, x:t(), 8000, false)
    assert.same(x:tolist(), (io_.read_wav(path)):tolist())
    io_.write_wav(path, moth.zeros(3, 0), 8000)
    assert.same({ 3, 0 }, { unpack(io_.read_wav(path).shape) })
    io_.write_wav(path, x:half(), 8000)
    assert.same(x:tolist(), (io_.read_wav(path)):tolist())
  end)

  it("refuses what a file cannot hold, and leaves the old file", function()
    local path = files.path "old.wav"
    io_.write_wav(path, x, 8000)
    local before = read(path)
    raises("(channels, frames) is needed, got f32 (3); x:unsqueeze(1) has one channel", "E_SHAPE",
      function() io_.write_wav(path, moth.ones(3), 8000) end)
    raises("'src'", "E_DTYPE", function() io_.write_wav(path, x:gt(0), 8000) end)
    raises("'sample_rate'", "E_DOMAIN", function() io_.write_wav(path, x, 0) end)
    raises("1 to 1024 channels", "E_SHAPE", function()
      io_.write_wav(path, moth.ones(1025, 1), 8000)
    end)
    raises("no samples PCM_S of 12 bits", "E_UNSUPPORTED", function()
      io_.write_wav(path, x, 8000, { encoding = "PCM_S", bits_per_sample = 12 })
    end)
    raises("cannot", "E_IO", function()
      io_.write_wav(files.path "none/x.wav", x, 8000)
    end)
    assert.equal(before, read(path))
  end)
end)

describe("moth.audio.load and info", function()
  it("read WAVE files without a library", function()
    local path = files.path "x.wav"
    io_.write_wav(path, moth.ones(2, 3, { dtype = moth.int16 }), 11025)
    local x, rate = audio.load(path, { normalize = false })
    assert.same({ { 1, 1, 1 }, { 1, 1, 1 } }, x:tolist())
    assert.equal(11025, rate)
    assert.same({ sample_rate = 11025, num_frames = 3, num_channels = 2, bits_per_sample = 16,
      encoding = "PCM_S" }, audio.info(path))
    raises("'path' to 'load'", "E_IO", function() audio.load(files.path "none") end)
  end)

  it("read other formats through libsndfile", function()
    if not has_sndfile then return pending "libsndfile is not installed" end
    for _, case in ipairs(golden) do
      local path = write(files.path("x." .. case.format), from_hex(case.hex))
      local x, rate = audio.load(path)
      assert.equal(8000, rate)
      assert.close(case.values, x:tolist(), 1e-6)
      assert.equal(5, audio.info(path).num_frames)
    end
    local path = write(files.path "x.flac", from_hex(golden[12].hex))
    assert.equal("FLAC", golden[12].format)
    local x = io_.read_audio(path, { normalize = false, frame_offset = 1, num_frames = 2 })
    assert.equal(moth.int16, x.dtype)
    assert.same({ 2, 2 }, { unpack(x.shape) })
    assert.equal("FLAC", audio.info(path).encoding)
    raises("cannot be read", "E_FORMAT", function() audio.load "spec/support/files.lua" end)
  end)

  it("name the library that is missing", function()
    local load = ffi.load
    ffi.load = function() error "not found" end -- luacheck: ignore 122
    package.loaded["moth.io.sndfile"] = nil
    local registry = debug.getregistry().moth
    local module = registry.loaded["moth.io.sndfile"]
    registry.loaded["moth.io.sndfile"] = nil
    local fresh = registry.need "moth.io.sndfile"
    raises("apt-get install libsndfile1", "E_UNSUPPORTED", function()
      fresh.load "spec/support/files.lua"
    end)
    ffi.load = load -- luacheck: ignore 122
    registry.loaded["moth.io.sndfile"], package.loaded["moth.io.sndfile"] = module, module
  end)
end)

describe("moth.audio.save", function()
  it("chooses the format by the path", function()
    local x = moth.rand(2, 300) - 0.5
    audio.save(files.path "x.wav", x, 8000, { encoding = "PCM_S" })
    assert.equal(2, io_.read_wav(files.path "x.wav", { normalize = false }).dtype.itemsize)
    raises("a path that ends in", "E_UNSUPPORTED", function()
      audio.save(files.path "x.txt", x, 8000)
    end)
    if not has_sndfile then return pending "libsndfile is not installed" end
    for _, name in ipairs { "flac", "aiff", "au" } do
      local path = files.path("y." .. name)
      audio.save(path, x, 8000)
      local y, rate = audio.load(path)
      assert.equal(8000, rate)
      assert.is_true((x - y):abs():max():item() < 2 ^ -14, name)
      audio.save(path, (x * 2 ^ 15):to(moth.int16), 8000)
      assert.is_true((x - audio.load(path)):abs():max():item() < 2 ^ -14, name)
    end
    audio.save(files.path "x.flac", x, 8000, { bits_per_sample = 24 })
    assert.is_true((x - audio.load(files.path "x.flac")):abs():max():item() < 2 ^ -22)
    raises("libsndfile writes no flac", "E_UNSUPPORTED", function()
      audio.save(files.path "x.flac", moth.zeros(99, 4), 8000)
    end)
    raises("cannot be written", "E_IO", function()
      audio.save(files.path "none/x.flac", x, 8000)
    end)
  end)

  it("keeps the old file when the disk is full, also if only the end does not fit", function()
    if not has_sndfile then return pending "libsndfile is not installed" end
    if jit.os == "Windows" then return pending "needs ulimit" end
    local path, moth_program = files.path "old.flac", debug.getregistry()["moth.launcher"].program
    write(path, "old")
    local script = write(files.path "full.lua", ("print(pcall(require('moth').audio.save, %q, "
      .. "require('moth').rand(2, 300), 8000))"):format(path))
    local pipe = io.popen(("trap '' XFSZ; ulimit -f 1; %s %s 2>&1"):format(moth_program, script))
    local text = pipe:read "*a"
    pipe:close()
    assert.is_truthy(text:find("its end is missing", 1, true), text)
    assert.equal("old", read(path))
  end)
end)
