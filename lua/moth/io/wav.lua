--- wav.lua -- moth.io.read_wav and write_wav: WAVE files of PCM samples of 8, 16, 24 and 32 bits
-- and of floats of 32 and 64 bits.
--
--     "RIFF", size, "WAVE", then chunks: a name of 4 bytes, u32 size, its bytes, a pad to 2 bytes
--     "fmt ": u16 format, u16 channels, u32 sample rate, u32 bytes a second, u16 bytes a frame, u16
--             bits; WAVE_FORMAT_EXTENSIBLE continues with u16 size, u16 valid bits, u32 speakers,
--             and a GUID that begins with the format
--     "data": the frames, each with one sample of each channel
--
-- The file is mapped, and only the requested frames are read. A chunk must fit into the file before
-- anything is allocated. Format: Microsoft, "Multiple channel audio data and WAVE files".

local bytes = require "moth.io.bytes"
local define = require "moth.binding.define"
local errors = require "moth.error"

local wav = {}

local PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
local STREAMED = 0x7FFFF000 -- a chunk of this size or more was written to a pipe
local GUID = "\0\0\0\0\16\0\128\0\0\170\0\56\155\113" -- after the format

local OTHERS = {[2] = "ADPCM", [6] = "A-law", [7] = "mu-law", [17] = "IMA ADPCM", [49] = "GSM",
                [80] = "MPEG", [85] = "MP3"}

-- ---- headers ----

local function read_format(file, size)
  if size < 16 then file:refuse(("is broken: its format has %d bytes"):format(size)) end
  local format = {
    tag = file:uint(2), channels = file:uint(2), rate = file:uint(4), byte_rate = file:uint(4),
    align = file:uint(2), bits = file:uint(2),
  }
  if format.tag == EXTENSIBLE then
    if size < 40 then
      file:refuse(("is broken: its extensible format has %d bytes"):format(size))
    end
    file:take(8) -- size, valid bits, speakers
    format.tag = file:uint(2)
    if file:text(14) ~= GUID then
      file:refuse("has samples of an unknown format", "E_UNSUPPORTED")
    end
  end
  return format
end

local function check_format(file, format)
  local bits, tag = format.bits, format.tag
  if tag ~= PCM and tag ~= FLOAT then
    file:refuse(("has samples of the format %s, wanted PCM or float; moth.io.read_audio reads "
      .. "others"):format(OTHERS[tag] or tostring(tag)), "E_UNSUPPORTED")
  end
  local known = tag == PCM and (bits == 8 or bits == 16 or bits == 24 or bits == 32)
    or tag == FLOAT and (bits == 32 or bits == 64)
  if not known then
    file:refuse(("has %s samples of %d bits"):format(tag == PCM and "PCM" or "float", bits),
      "E_UNSUPPORTED")
  end
  if format.channels == 0 then file:refuse "is broken: it has no channels" end
  if format.rate == 0 then file:refuse "is broken: its sample rate is 0" end
  if format.align ~= format.channels * bits / 8 then
    file:refuse(("is broken: %d channels of %d bits in frames of %d bytes"):format(
      format.channels, bits, format.align))
  end
end

-- Reads chunks up to the data. Returns the format, with `start` and `frames`.
local function read_header(file)
  if file.size < 12 or file:text(4) ~= "RIFF" then
    file.at = 0
    local magic = file.size >= 4 and file:text(4) or ""
    if magic == "RIFX" or magic == "RF64" then
      file:refuse(("is a file of the kind %s, wanted RIFF"):format(magic), "E_UNSUPPORTED")
    end
    file:refuse "is not a WAVE file"
  end
  file:take(4) -- the size; files that were written to a pipe have a wrong one
  if file:text(4) ~= "WAVE" then file:refuse "is not a WAVE file" end
  local format
  while true do
    if file.size - file.at < 8 then
      file:refuse(("is broken: it has no %s"):format(format and "samples" or "format"))
    end
    local name, size = file:text(4), file:uint(4)
    if name == "data" and size >= STREAMED then size = math.min(size, file.size - file.at) end
    local at = file:take(size, ("the chunk '%s'"):format(name))
    if name == "data" then
      if not format then file:refuse "is broken: its samples come before their format" end
      format.start, format.frames = at, math.floor(size / format.align)
      return format
    elseif name == "fmt " then
      file.at = at
      format = read_format(file, size)
      check_format(file, format)
      file.at = at + size
    end
    if size % 2 == 1 and file.at < file.size then file:take(1) end
  end
end

-- ---- samples ----

-- Samples of 24 bits as i32, in its upper 24 bits.
local function from_24(file, shape, at)
  local moth, n = require "moth", shape[1] * shape[2]
  local low = file:tensor("uint8", {n, 3}, at)
  local high = file:tensor("int8", {n, 3}, at)
  local x = high:select(2, 3):to(moth.int32) * 2 ^ 24
  x:add_(low:select(2, 2):to(moth.int32), {alpha = 2 ^ 16})
  x:add_(low:select(2, 1):to(moth.int32), {alpha = 2 ^ 8})
  return x:reshape(shape)
end

local INTEGERS = {[8] = "uint8", [16] = "int16", [32] = "int32"}

-- Frames as a tensor (n, channels) of the dtype in the file.
local function samples(file, format, first, n)
  local shape, at = {n, format.channels}, format.start + first * format.align
  if format.tag == FLOAT then return file:tensor(format.bits == 32 and "float32" or "float64",
    shape, at) end
  if format.bits == 24 then return from_24(file, shape, at) end
  return file:tensor(INTEGERS[format.bits], shape, at)
end

-- Samples as f32 from -1 to 1.
local function normalized(x)
  local moth = require "moth"
  if x:is_floating_point() then return x:to(moth.float32) end
  if x.dtype == moth.uint8 then return x:to(moth.float32):sub_(128):mul_(1 / 128) end
  return x:to(moth.float32):mul_(x.dtype == moth.int16 and 2 ^ -15 or 2 ^ -31)
end

--- The frames that a reader returns, of all frames in a file.
function wav.range(fname, frames, offset, n)
  if offset < 0 then
    errors.refuse(fname, "frame_offset", "a number from 0 on is needed", offset, "E_DOMAIN")
  elseif n < -1 then
    errors.refuse(fname, "num_frames", "a number from 0 on is needed, or -1 for all", n, "E_DOMAIN")
  end
  offset = math.min(offset, frames)
  return offset, n < 0 and frames - offset or math.min(n, frames - offset)
end

--- Reads an opened file. @return samples, sample rate
function wav.read(file, offset, n, normalize, channels_first)
  local format = read_header(file)
  local first, count = wav.range(file.fname, format.frames, offset, n)
  local x = samples(file, format, first, count)
  local converted = format.bits == 24 or normalize and (format.tag == PCM or format.bits == 64)
  if not converted then x = x:clone() end -- it shares the file's pages
  if normalize then x = normalized(x) end
  if channels_first then x = x:t() end
  file:close()
  return x:contiguous(), format.rate
end

--- The arguments of readers after the path.
wav.READ = {
  {"int", "frame_offset", "frames to leave out at the start", default = 0},
  {"int", "num_frames", "the most frames to read; -1: all", default = -1},
  {"bool", "normalize", "f32 from -1 to 1? false: the integers of the file", default = true},
  {"bool", "channels_first", "(channels, frames)? false: (frames, channels)", default = true},
}

local SAMPLE = "(function() local path = os.tmpname(); "
  .. "moth.io.write_wav(path, moth.rand(2, 8) - 0.5, 8000); return path end)()"

--- Reads a WAVE file. See torchaudio.load.
wav.read_wav = define {
  name = "read_wav",
  doc = "Reads a WAVE file of PCM samples (8, 16, 24, 32 bits) or floats (32, 64 bits). Samples of "
    .. "24 bits are in the upper bits of int32 if `normalize` is false.",
  examples = SAMPLE .. "\n" .. SAMPLE .. ", 2, 3, {normalize = false, channels_first = false}",
  args = {
    {"string?", "path", "the file"}, wav.READ[1], wav.READ[2], wav.READ[3], wav.READ[4],
    {"any?", "bytes", "the bytes of a file, in place of a path: a string or a uint8 tensor"},
  },
  order = "moth.io.read_wav(path)",
  outputs = "waveform, sample_rate",
  run = function(path, offset, n, normalize, channels_first, data)
    local file = bytes.open(bytes.source(path, data, "read_wav"), "read_wav")
    return wav.read(file, offset, n, normalize, channels_first)
  end,
}

-- ---- writing ----

local function u16(n) return string.char(n % 256, math.floor(n / 256) % 256) end
local function u32(n) return u16(n % 65536) .. u16(math.floor(n / 65536)) end

-- Bits and format of a dtype.
local function usual(x)
  local moth = require "moth"
  return x.dtype == moth.float64 and 64 or x:is_floating_point() and 32
    or x.dtype == moth.uint8 and 8 or x.dtype == moth.int16 and 16 or 32,
    x:is_floating_point() and "PCM_F" or "PCM"
end

-- Numbers from -1 to 1 in f64, of integers too.
local function scaled(x)
  local moth = require "moth"
  local y = x:to(moth.float64)
  if x:is_floating_point() then return y end
  if x.dtype == moth.uint8 then return y:sub_(128):mul_(1 / 128) end
  return y:mul_(x.dtype == moth.int16 and 2 ^ -15 or 2 ^ -31)
end

-- The samples as a tensor whose bytes are those of the file.
local function encoded(x, bits, float)
  local moth = require "moth"
  if float then return x:to(bits == 64 and moth.float64 or moth.float32) end
  if not x:is_floating_point() and usual(x) == bits then return x end
  local most = 2 ^ (bits - 1)
  local y = scaled(x):mul_(most):round():clamp(-most, most - 1)
  if bits == 8 then return (y + 128):to(moth.uint8) end
  if bits ~= 24 then return y:to(bits == 16 and moth.int16 or moth.int32) end
  local low, rest = y:remainder(256), (y / 256):floor()
  return moth.stack({low, rest:remainder(256), (rest / 256):remainder(256):floor()}, -1)
    :to(moth.uint8)
end

local WIDTHS = {PCM = {[8] = true, [16] = true, [24] = true, [32] = true},
                PCM_F = {[32] = true, [64] = true}}
local DTYPES = {uint8 = true, int16 = true, int32 = true, float16 = true, bfloat16 = true,
                float32 = true, float64 = true}

--- Checks the samples of a writer. @return (frames, channels), contiguous, on the CPU
function wav.frames_of(fname, x, rate, channels_first)
  if not DTYPES[tostring(x.dtype):match "[%w]+$"] then
    errors.refuse(fname, "src", "floats, or uint8, int16 or int32 are needed", x, "E_DTYPE")
  elseif x:dim() ~= 2 then
    errors.argument(fname, "src", errors.unwanted(channels_first and "(channels, frames) is needed"
      or "(frames, channels) is needed", x) .. (x:dim() == 1
      and ("; x:unsqueeze(%d) has one channel"):format(channels_first and 1 or 2) or ""), "E_SHAPE")
  elseif rate < 1 or rate >= 2 ^ 31 then
    errors.refuse(fname, "sample_rate", "a rate from 1 on is needed", rate, "E_DOMAIN")
  end
  x = x:detach():cpu()
  if channels_first then x = x:t() end
  if x:size(2) < 1 or x:size(2) > 1024 then
    errors.argument(fname, "src", ("1 to 1024 channels are needed, got %d"):format(x:size(2)),
      "E_SHAPE")
  end
  return x:contiguous()
end

--- The arguments of writers after the path.
wav.WRITE = {
  {"tensor", "src", "(channels, frames): floats from -1 to 1, or uint8, int16, int32"},
  {"int", "sample_rate", "samples of a channel in a second"},
  {"bool", "channels_first", "false: src is (frames, channels)", default = true},
}

--- Writes a WAVE file, all or nothing. See torchaudio.save.
wav.write_wav = define {
  name = "write_wav",
  doc = "Writes a WAVE file: the whole file or nothing. The samples have the width of src's dtype, "
    .. "unless encoding and bits_per_sample are given.",
  examples = "os.tmpname(), moth.rand(2, 8) - 0.5, 8000\n"
    .. "os.tmpname(), moth.rand(8, 2) - 0.5, 8000, false, {encoding = 'PCM_S', "
    .. "bits_per_sample = 24}",
  args = {
    {"string", "path", "the file"}, wav.WRITE[1], wav.WRITE[2], wav.WRITE[3],
    {"enum", "encoding", "integers or floats; default: those of src", optional = true,
      choices = {"PCM_S", "PCM_U", "PCM_F"}},
    {"int", "bits_per_sample", "8 (PCM_U), 16, 24, 32; PCM_F: 32, 64; default: as in src, or 16 "
      .. "if only encoding = \"PCM_S\" is given for floats", optional = true},
  },
  order = "moth.io.write_wav(path, src, sample_rate)",
  outputs = "",
  scoped = true,
  run = function(path, src, rate, channels_first, encoding, bits)
    local x = wav.frames_of("write_wav", src, rate, channels_first)
    local width, kind = usual(x)
    if encoding == "PCM_F" then kind, width = "PCM_F", kind == "PCM_F" and width or 32
    elseif encoding then width, kind = encoding == "PCM_U" and 8 or kind == "PCM" and width or 16,
      "PCM"
    elseif bits then kind = (bits == 64 or bits == 32 and kind == "PCM_F") and "PCM_F" or "PCM" end
    bits = bits or width
    if not WIDTHS[kind][bits] or encoding == "PCM_U" and bits ~= 8
        or encoding == "PCM_S" and bits == 8 then
      errors.argument("write_wav", "bits_per_sample", ("a WAVE file has no samples %s of %d bits")
        :format(encoding or kind, bits), "E_UNSUPPORTED")
    end
    local channels, frames = x:size(2), x:size(1)
    local align = channels * bits / 8
    local size = frames * align
    if size > 2 ^ 32 - 128 then
      errors.argument("write_wav", "src", ("%.0f bytes of samples do not fit: a WAVE file holds up "
        .. "to 4 GiB"):format(size), "E_UNSUPPORTED")
    end
    local float = kind == "PCM_F"
    local format = u16(float and FLOAT or PCM) .. u16(channels) .. u32(rate) .. u32(rate * align)
      .. u16(align) .. u16(bits)
    local head = "WAVEfmt " .. u32(#format) .. format
    if float then head = head .. "fact" .. u32(4) .. u32(frames) end
    local pad = size % 2 == 1 and "\0" or ""
    head = head .. "data" .. u32(size)
    bytes.save(path, {"RIFF" .. u32(#head + size + #pad) .. head,
      encoded(x, bits, float):contiguous(), pad}, "write_wav", false)
  end,
}

-- For sndfile.lua.
wav.header = read_header
wav.PCM = PCM

return wav
