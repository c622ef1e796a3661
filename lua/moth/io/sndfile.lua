--- sndfile.lua -- moth.io.read_audio, moth.audio.load, save and info: WAVE files by wav.lua, others
-- (FLAC, Ogg, MP3, AIFF ...) by libsndfile, which is opened at the first use.
--
-- Frames are read in blocks, so that memory grows with what the file really contains, whatever
-- number of frames its header claims.

local ffi = require "ffi"
local bytes = require "moth.io.bytes"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local libraries = require "moth.io.image.library"
local wav = require "moth.io.wav"

local sound = {}

local DECLARED = [[
typedef struct {
  int64_t frames;
  int samplerate, channels, format, sections, seekable;
} moth_sf_info;
typedef struct moth_sf_file moth_sf_file;
moth_sf_file *sf_open(const char *path, int mode, moth_sf_info *info);
int sf_format_check(const moth_sf_info *info);
int64_t sf_seek(moth_sf_file *file, int64_t frames, int whence);
int sf_command(moth_sf_file *file, int command, void *data, int size);
int sf_error(moth_sf_file *file);
const char *sf_strerror(moth_sf_file *file);
int sf_close(moth_sf_file *file);
int64_t sf_readf_short(moth_sf_file *file, void *at, int64_t frames);
int64_t sf_readf_int(moth_sf_file *file, void *at, int64_t frames);
int64_t sf_readf_float(moth_sf_file *file, void *at, int64_t frames);
int64_t sf_writef_short(moth_sf_file *file, const void *at, int64_t frames);
int64_t sf_writef_int(moth_sf_file *file, const void *at, int64_t frames);
int64_t sf_writef_float(moth_sf_file *file, const void *at, int64_t frames);
int64_t sf_writef_double(moth_sf_file *file, const void *at, int64_t frames);
]]

local READ, WRITE, SET_CLIPPING = 0x10, 0x20, 0x10C0
local BLOCK = 2 ^ 20 -- samples of all channels

local loaded

-- The library, or an error that says what to install.
local function sndfile(fname)
  if loaded then return loaded end
  local opened, package = libraries.open "sndfile"
  if not opened then
    errors.raise(fname .. ": this file needs libsndfile, which cannot be loaded: apt-get install "
      .. package, "E_UNSUPPORTED")
  end
  -- Another script may have declared libsndfile's functions with its own types.
  local fine, problem = pcall(ffi.cdef, DECLARED)
  if not fine then
    errors.raise(fname .. ": libsndfile's functions are declared otherwise: " .. problem,
      "E_UNSUPPORTED")
  end
  loaded = opened
  return loaded
end

-- ---- formats ----

local SUBTYPES = {
  [1] = {"PCM_S", 8}, [2] = {"PCM_S", 16}, [3] = {"PCM_S", 24}, [4] = {"PCM_S", 32},
  [5] = {"PCM_U", 8}, [6] = {"PCM_F", 32}, [7] = {"PCM_F", 64}, [0x10] = {"ULAW", 8},
  [0x11] = {"ALAW", 8}, [0x60] = {"VORBIS", 0}, [0x64] = {"OPUS", 0}, [0x82] = {"MP3", 0},
}

local FORMATS = {wav = 0x010000, aiff = 0x020000, aif = 0x020000, au = 0x030000, caf = 0x180000,
                 w64 = 0x0B0000, flac = 0x170000, ogg = 0x200000, oga = 0x200000, opus = 0x200000,
                 mp3 = 0x230000}

local SUBTYPE_OF = {ogg = 0x60, oga = 0x60, opus = 0x64, mp3 = 0x82}
local BITS = {[8] = 1, [16] = 2, [24] = 3, [32] = 4}

-- ---- reading ----

-- Opens a file. @return the library, the open file, the moth_sf_info
local function open(fname, argument, path, mode, info)
  local library = sndfile(fname)
  info = info or ffi.new "moth_sf_info"
  local file = library.sf_open(path, mode, info)
  if file == nil then
    local text = ffi.string(library.sf_strerror(nil)):gsub("[%s%.]*$", "")
    errors.argument(fname, argument, ("%s cannot be %s: %s"):format(errors.path(path),
      mode == READ and "read" or "written", text), mode == READ and "E_FORMAT" or "E_IO")
  end
  return library, file, info
end

-- The reading function and the dtype of samples that are not normalized.
local function reader_of(format, normalize)
  local subtype = bit.band(format, 0xFFFF)
  if normalize or subtype == 0 or subtype > 5 then return "sf_readf_float", "float32" end
  if subtype == 3 or subtype == 4 then return "sf_readf_int", "int32" end
  return "sf_readf_short", "int16"
end

local function block_of(dtype, n, channels)
  local moth = require "moth"
  local x = moth.empty({n, channels}, {dtype = moth[dtype], device = "cpu"})
  return x, ffi.cast("void *", bytes.address(x))
end

-- Reads up to n frames in blocks. Returns a list of tensors.
local function read_blocks(library, file, info, name, dtype, n)
  local blocks, read = {}, library[name]
  local most = math.max(math.floor(BLOCK / info.channels), 1)
  while n > 0 do
    local size = math.min(n, most)
    local x, at = block_of(dtype, size, info.channels)
    local got = tonumber(read(file, at, size))
    if got <= 0 then break end
    blocks[#blocks + 1] = got < size and x:narrow(1, 1, got) or x
    n = n - got
  end
  return blocks
end

local function read_other(fname, path, offset, n, normalize, channels_first)
  local moth = require "moth"
  local library, file, info = open(fname, "path", path, READ)
  local ok, blocks, dtype = pcall(function()
    local frames = math.min(tonumber(info.frames), 2 ^ 52)
    local first, count = wav.range(fname, frames, offset, n)
    local name, kind = reader_of(info.format, normalize)
    if first > 0 and count > 0 and library.sf_seek(file, first, 0) < 0 then return {}, kind end
    return read_blocks(library, file, info, name, kind, count), kind
  end)
  local channels, rate = info.channels, info.samplerate
  library.sf_close(file)
  if not ok then error(blocks, 0) end
  local x = blocks[1] and (moth.cat(blocks, 1)) or moth.zeros({0, channels}, {dtype = moth[dtype]})
  if channels_first then x = x:t() end
  return x:contiguous(), rate
end

-- Opens a file and returns it if it is a WAVE file that wav.lua reads.
local function as_wave(fname, path)
  local file = bytes.open(path, fname)
  local wave = file.size >= 12 and file:text(4) == "RIFF"
  if wave then
    file.at = 8
    wave = file:text(4) == "WAVE"
  end
  file.at = 0
  if not wave then
    file:close()
    return nil
  end
  return file
end

-- Checks that the samples of a WAVE file are PCM or float; others are left to libsndfile.
local function is_plain_wave(file)
  local at, plain = 12, true
  while file.size - at >= 10 do
    file.at = at
    local name, size = file:text(4), file:uint(4)
    if name == "fmt " then
      local tag = file:uint(2)
      plain = tag == 1 or tag == 3 or tag == 0xFFFE
      break
    end
    at = at + 8 + size + size % 2
  end
  file.at = 0
  return plain
end

local function reader(fname)
  return function(path, offset, n, normalize, channels_first)
    if path:find "%z" then errors.argument(fname, "path", "a path cannot hold a NUL") end
    local file = as_wave(fname, path)
    if file and is_plain_wave(file) then
      return wav.read(file, offset, n, normalize, channels_first)
    end
    if file then file:close() end
    return read_other(fname, path, offset, n, normalize, channels_first)
  end
end

local SAMPLE = "(function() local path = os.tmpname(); "
  .. "moth.io.write_wav(path, moth.rand(2, 8) - 0.5, 8000); return path end)()"

local function define_reader(name)
  return define {
    name = name,
    doc = "Reads a file of sounds: WAVE; FLAC, Ogg Vorbis, MP3, AIFF and others through "
      .. "libsndfile. Samples of 24 bits are in the upper bits of int32 if `normalize` is false.",
    examples = SAMPLE,
    args = {{"string", "path", "the file"}, unpack(wav.READ)},
    order = ("%s(path)"):format(name == "load" and "moth.audio.load" or "moth.io.read_audio"),
    outputs = "waveform, sample_rate",
    run = reader(name),
  }
end

--- Reads a file of sounds. See torchaudio.load.
sound.read_audio = define_reader "read_audio"
sound.load = define_reader "load"

-- ---- info ----

local function wave_info(file)
  local format = wav.header(file)
  file:close()
  local encoding = format.tag == wav.PCM and (format.bits == 8 and "PCM_U" or "PCM_S") or "PCM_F"
  return {sample_rate = format.rate, num_frames = format.frames, num_channels = format.channels,
          bits_per_sample = format.bits, encoding = encoding}
end

--- What a file of sounds contains, without reading the samples. See torchaudio.info.
sound.info = define {
  name = "info",
  doc = "What a file of sounds contains: a table of sample_rate, num_frames, num_channels, "
    .. "bits_per_sample (0: compressed) and encoding.",
  examples = SAMPLE,
  args = {{"string", "path", "the file"}},
  order = "moth.audio.info(path)",
  outputs = "info",
  run = function(path)
    if path:find "%z" then errors.argument("info", "path", "a path cannot hold a NUL") end
    local file = as_wave("info", path)
    if file and is_plain_wave(file) then return wave_info(file) end
    if file then file:close() end
    local library, opened, info = open("info", "path", path, READ)
    local out = {sample_rate = info.samplerate, num_frames = tonumber(info.frames),
                 num_channels = info.channels}
    local subtype = SUBTYPES[bit.band(info.format, 0xFFFF)] or {"UNKNOWN", 0}
    library.sf_close(opened)
    if bit.band(info.format, 0x0FFF0000) == FORMATS.flac then out.encoding = "FLAC" end
    out.encoding, out.bits_per_sample = out.encoding or subtype[1], subtype[2]
    return out
  end,
}

-- ---- writing ----

local WRITERS = {int16 = "sf_writef_short", int32 = "sf_writef_int", float32 = "sf_writef_float",
                 float64 = "sf_writef_double"}

local function format_of(path, format)
  format = (format or path:match "%.(%w+)$" or ""):lower()
  if not FORMATS[format] then
    local names = {}
    for name in pairs(FORMATS) do names[#names + 1] = name end
    table.sort(names)
    errors.argument("save", "format", ("a path that ends in .%s is needed, got %s"):format(
      table.concat(names, ", ."), errors.describe(path)), "E_UNSUPPORTED")
  end
  return format
end

-- Writes frames (n, channels) to an open file. Returns nil, or a message.
local function write_frames(library, file, x)
  local moth = require "moth"
  if x.dtype == moth.uint8 then x = x:to(moth.float32):sub_(128):mul_(1 / 128) end
  if x.dtype == moth.float16 or x.dtype == moth.bfloat16 then x = x:to(moth.float32) end
  x = x:contiguous()
  library.sf_command(file, SET_CLIPPING, nil, 1)
  local write, n = library[WRITERS[tostring(x.dtype):match "%w+$"]], x:size(1)
  if n > 0 and tonumber(write(file, ffi.cast("const void *", bytes.address(x)), n)) ~= n then
    return ffi.string(library.sf_strerror(file))
  end
end

-- Can the last of n frames be read? Encoders write the end when the file is closed, and then do not
-- report that the disk is full.
local function is_complete(library, path, n)
  if n == 0 then return true end
  local info = ffi.new "moth_sf_info"
  local file = library.sf_open(path, READ, info)
  if file == nil then return false end
  local one = lib.array("float", info.channels)
  local fine = tonumber(library.sf_seek(file, n - 1, 0)) == n - 1
    and tonumber(library.sf_readf_float(file, one, 1)) == 1
  library.sf_close(file)
  return fine
end

local function save_other(path, x, rate, format, bits)
  local library, info = sndfile "save", ffi.new "moth_sf_info"
  info.samplerate, info.channels = rate, x:size(2)
  local subtype = SUBTYPE_OF[format] or BITS[bits or 16]
  info.format = FORMATS[format] + (subtype or 0)
  if not subtype or library.sf_format_check(info) == 0 then
    errors.argument("save", "bits_per_sample", ("libsndfile writes no %s of %d channels, %d Hz and "
      .. "%d bits"):format(format, x:size(2), rate, bits or 16), "E_UNSUPPORTED")
  end
  local part = ("%s.%s-%d.part"):format(path, tostring({}):match "%x+$", os.time())
  local _, file = open("save", "path", part, WRITE, info)
  local ok, problem = pcall(write_frames, library, file, x)
  local closed = library.sf_close(file)
  if closed ~= 0 or ok and not problem and not is_complete(library, part, x:size(1)) then
    problem = problem or "its end is missing; is the disk full?"
  end
  if ok and not problem then ok, problem = os.rename(part, path) end
  if not ok or problem and problem ~= path then
    os.remove(part)
    errors.argument("save", "path", ("%s cannot be written: %s"):format(errors.path(path),
      tostring(problem)), "E_IO")
  end
end

--- Writes a file of sounds, all or nothing. See torchaudio.save.
sound.save = define {
  name = "save",
  doc = "Writes a file of sounds in the format of the path's ending. WAVE files are "
    .. "written as by moth.io.write_wav; FLAC, Ogg Vorbis, AIFF and others through libsndfile.",
  examples = "os.tmpname() .. '.wav', moth.rand(2, 8) - 0.5, 8000",
  args = {
    {"string", "path", "the file"}, wav.WRITE[1], wav.WRITE[2], wav.WRITE[3],
    {"string?", "format", "wav, flac, ogg ...; default: by the path"},
    {"enum", "encoding", "of WAVE files: integers or floats", optional = true,
      choices = {"PCM_S", "PCM_U", "PCM_F"}},
    {"int", "bits_per_sample", "bits of a sample; default: those of src in a WAVE file, else 16",
      optional = true},
  },
  order = "moth.audio.save(path, src, sample_rate)",
  outputs = "",
  scoped = true,
  run = function(path, src, rate, channels_first, format, encoding, bits)
    format = format_of(path, format)
    if format == "wav" then
      return wav.write_wav(path, src, rate, channels_first, encoding, bits)
    end
    if path:find "%z" then errors.argument("save", "path", "a path cannot hold a NUL") end
    save_other(path, wav.frames_of("save", src, rate, channels_first), rate, format, bits)
  end,
}

return sound
