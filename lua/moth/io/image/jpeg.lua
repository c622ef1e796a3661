--- jpeg.lua -- JPEG files by libjpeg-turbo. The functions of its TurboJPEG API return codes.

local ffi = require "ffi"
local exif = require "moth.io.image.exif"
local lib = require "moth.binding.lib"
local library = require "moth.io.image.library"
local pixels = require "moth.io.image.pixels"

local jpeg = {}

local CDEF = [[
typedef void *moth_tj_handle;
moth_tj_handle moth_tj_init_decompress(void) __asm__("tjInitDecompress");
moth_tj_handle moth_tj_init_compress(void) __asm__("tjInitCompress");
int moth_tj_destroy(moth_tj_handle handle) __asm__("tjDestroy");
int moth_tj_header(moth_tj_handle handle, const uint8_t *bytes, unsigned long size, int *width,
                   int *height, int *subsampling, int *colors) __asm__("tjDecompressHeader3");
int moth_tj_decompress(moth_tj_handle handle, const uint8_t *bytes, unsigned long size,
                       uint8_t *to, int width, int pitch, int height, int format,
                       int flags) __asm__("tjDecompress2");
unsigned long moth_tj_capacity(int width, int height, int subsampling) __asm__("tjBufSize");
int moth_tj_compress(moth_tj_handle handle, const uint8_t *from, int width, int pitch, int height,
                     int format, uint8_t **to, unsigned long *size, int subsampling, int quality,
                     int flags) __asm__("tjCompress2");
const char *moth_tj_error(moth_tj_handle handle) __asm__("tjGetErrorStr2");
]]

local RGB, GRAY, RGBA, CMYK = 0, 6, 7, 11      -- formats of pixels
local GRAY_COLORS, CMYK_COLORS, YCCK_COLORS = 2, 3, 4
local NO_REALLOC, ACCURATE, LIMIT_SCANS = 1024, 4096, 32768
local SUBSAMPLING_GRAY, SUBSAMPLING_420 = 3, 2

local PIXELS_PER_BYTE = 1024 -- more than Huffman codes reach: one bit for a block of 64 pixels

local turbo, decompressor, compressor

function jpeg.find()
  turbo = library.find("turbojpeg", CDEF, "moth_tj_handle")
  return turbo ~= nil
end

local function made(handle)
  if handle == nil then require("moth.error").raise("libturbojpeg: out of memory", "E_MEM") end
  return ffi.gc(handle, turbo.moth_tj_destroy)
end

-- ---- decoding ----

-- Warnings that leave the picture as it is. After others libjpeg makes up pixels.
local HARMLESS = {"extraneous bytes before marker", "unknown JFIF revision",
  "Unknown Adobe color transform", "Inconsistent progression sequence",
  "Invalid SOS parameters for sequential"}

local function is_harmless(text)
  for _, known in ipairs(HARMLESS) do
    if text:find(known, 1, true) then return true end
  end
  return false
end

-- The last error. The handle is not used again: it may keep a part of the broken file's state.
local function take_error(handle)
  local text = ffi.string(turbo.moth_tj_error(handle))
  turbo.moth_tj_destroy(ffi.gc(handle, nil))
  return text
end

-- Raises after a failed call, unless it only warned.
local function failed(file)
  local text = take_error(decompressor)
  decompressor = nil
  if is_harmless(text) then
    -- libjpeg reports the first warning only: a truncated file may have another one before.
    if ffi.string(file.start, file.size):find("\255\217", 1, true) then return end
    text = "Premature end of JPEG file"
  end
  file:refuse("is broken: " .. text:gsub("^tj%w+%(%): ", ""))
end

local numbers = ffi.new "int[4]"

-- Returns the sizes that the file claims, and its colors.
local function header(file)
  numbers[0], numbers[1], numbers[2], numbers[3] = -1, -1, -1, -1
  local status = turbo.moth_tj_header(decompressor, file.start, file.size, numbers, numbers + 1,
    numbers + 2, numbers + 3)
  local width, height, colors = numbers[0], numbers[1], numbers[3]
  if width > 0 and height > 0 and colors >= 0 then return width, height, colors end
  if status ~= 0 then failed(file) end -- else a rare subsampling, an error of this function only
  file:refuse "is broken: it ends before its pixels"
end

local function is_arithmetic(file)
  local text = ffi.string(file.start, math.min(file.size, 65536))
  for marker = 0xC9, 0xCB do
    if text:find("\255" .. string.char(marker), 1, true) then return true end
  end
  return false
end

-- The height and width at which a picture is decoded: those of the file, or 1/2, 1/4 or 1/8 of
-- them if both are at least `least`.
local function scaled(width, height, least)
  local w, h = width, height
  for _, by in ipairs {2, 4, 8} do
    local smaller_w, smaller_h = math.ceil(width / by), math.ceil(height / by)
    if not least or smaller_h < least[1] or smaller_w < least[2] then break end
    w, h = smaller_w, smaller_h
  end
  return w, h
end

-- Red, green and blue of inks, which are stored inverted.
local function from_inks(x)
  local wide = x:to(require("moth").int32)
  local k = wide:narrow(3, 4, 1)
  local v = (255 - wide:narrow(3, 1, 3)) * k + 128
  v = (v:bitwise_right_shift(8) + v):bitwise_right_shift(8)
  return ((k - v):to(x.dtype))
end

local CHANNELS = {[GRAY] = 1, [RGB] = 3, [RGBA] = 4, [CMYK] = 4}

local function format_of(mode, colors)
  if colors == CMYK_COLORS or colors == YCCK_COLORS then return CMYK end
  if mode == "gray" or mode == "gray_alpha" then return GRAY end
  if mode == "rgb_alpha" then return RGBA end
  return mode == "unchanged" and colors == GRAY_COLORS and GRAY or RGB
end

--- Decodes a file of moth.io.bytes.
-- @param wanted  {mode, upright, limit, least}
function jpeg.decode(file, wanted)
  decompressor = decompressor or made(turbo.moth_tj_init_decompress())
  local width, height, colors = header(file)
  pixels.check(file, width, height, wanted.limit)
  if width * height > PIXELS_PER_BYTE * file.size + 65536 and not is_arithmetic(file) then
    file:refuse(("is truncated: it claims %d x %d pixels in %.0f bytes"):format(width, height,
      file.size))
  end
  local format = format_of(wanted.mode, colors)
  width, height = scaled(width, height, wanted.least)
  local x, to = pixels.new(height, width, CHANNELS[format])
  local status = turbo.moth_tj_decompress(decompressor, file.start, file.size, to, width, 0, height,
    format, ACCURATE + LIMIT_SCANS)
  if status ~= 0 then failed(file) end
  if format == CMYK and wanted.mode ~= "unchanged" then x = from_inks(x) end
  if wanted.upright then wanted.orientation = exif.of_jpeg(file.start, file.size) end
  return pixels.finish(x, wanted)
end

-- ---- encoding ----

--- The bytes of a JPEG file, as a uint8 tensor.
-- @param x        contiguous uint8 (height, width, 1 or 3)
-- @param quality  1 to 100
function jpeg.encode(x, quality, fname)
  compressor = compressor or made(turbo.moth_tj_init_compress())
  local height, width, channels = x:size(1), x:size(2), x:size(3)
  local gray = channels == 1
  local subsampling = gray and SUBSAMPLING_GRAY or SUBSAMPLING_420
  local capacity = tonumber(turbo.moth_tj_capacity(width, height, subsampling))
  local out, to = pixels.new(capacity, 1, 1)
  local at, size = ffi.new("uint8_t *[1]", to), ffi.new("unsigned long[1]", capacity)
  local from = ffi.cast("const uint8_t *", lib.data(x, fname))
  local status = turbo.moth_tj_compress(compressor, from, width, 0, height, gray and GRAY or RGB,
    at, size, subsampling, quality, ACCURATE + NO_REALLOC)
  if status ~= 0 then
    local text = take_error(compressor)
    compressor = nil
    require("moth.error").raise(("%s: %s"):format(fname, text), "E_UNSUPPORTED")
  end
  return (out:view(-1):narrow(1, 1, tonumber(size[0])):clone())
end

return jpeg
