--- png.lua -- reads PNG files by libspng. moth/io/png.lua writes them.

local ffi = require "ffi"
local errors = require "moth.error"
local exif = require "moth.io.image.exif"
local library = require "moth.io.image.library"
local pixels = require "moth.io.image.pixels"

local png = {}

local CDEF = [[
typedef struct moth_spng_ctx moth_spng_ctx;
typedef struct moth_spng_ihdr {
  uint32_t width, height;
  uint8_t bit_depth, color_type, compression_method, filter_method, interlace_method;
} moth_spng_ihdr;
typedef struct moth_spng_trns {
  uint16_t gray, red, green, blue; uint32_t entries; uint8_t alpha[256];
} moth_spng_trns;
moth_spng_ctx *moth_spng_new(int flags) __asm__("spng_ctx_new");
void moth_spng_free(moth_spng_ctx *ctx) __asm__("spng_ctx_free");
int moth_spng_set_buffer(moth_spng_ctx *ctx, const void *bytes,
                         size_t size) __asm__("spng_set_png_buffer");
int moth_spng_set_limits(moth_spng_ctx *ctx, size_t chunk,
                         size_t cache) __asm__("spng_set_chunk_limits");
int moth_spng_get_ihdr(moth_spng_ctx *ctx, moth_spng_ihdr *ihdr) __asm__("spng_get_ihdr");
int moth_spng_get_trns(moth_spng_ctx *ctx, moth_spng_trns *trns) __asm__("spng_get_trns");
int moth_spng_decode(moth_spng_ctx *ctx, void *to, size_t size, int format,
                     int flags) __asm__("spng_decode_image");
int moth_spng_decoded_size(moth_spng_ctx *ctx, int format,
                           size_t *size) __asm__("spng_decoded_image_size");
const char *moth_spng_error(int status) __asm__("spng_strerror");
]]

local RGBA8, RGBA16, RGB8, G8, AS_STORED = 1, 2, 4, 64, 256 -- formats of pixels
local USE_TRNS = 1
local GRAY, RGB, PALETTE, GRAY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6 -- types of color
local CHANNELS = {[GRAY] = 1, [RGB] = 3, [PALETTE] = 1, [GRAY_ALPHA] = 2, [RGB_ALPHA] = 4}

local CHUNK_LIMIT = 2 ^ 26  -- bytes of one chunk, and of all that libspng keeps
local MOST_PER_BYTE = 1032  -- the largest expansion of one byte by deflate

local spng

function png.find()
  spng = library.find("spng", CDEF, "moth_spng_ctx")
  return spng ~= nil
end

-- ---- decoding ----

local function checked(file, status)
  if status ~= 0 then
    file:refuse("is broken: " .. ffi.string(spng.moth_spng_error(status)))
  end
end

--- Raises if the file is too short for the pixels that it claims.
local function check_length(file, ihdr)
  local bits = tonumber(ihdr.width) * ihdr.bit_depth * (CHANNELS[ihdr.color_type] or 1)
  local size = ihdr.height * math.ceil(bits / 8)
  if size > MOST_PER_BYTE * file.size then
    file:refuse(("is truncated: it claims %d x %d pixels in %.0f bytes"):format(ihdr.width,
      ihdr.height, file.size))
  end
end

-- Returns libspng's format, the channels and the bytes of a channel.
local function format_of(ihdr, mode, has_trns)
  local kind, alpha = ihdr.color_type, mode == "rgb_alpha" or mode == "gray_alpha"
  if ihdr.bit_depth == 16 then
    if has_trns and alpha then return RGBA16, 4, 2 end
    return AS_STORED, CHANNELS[kind], 2
  elseif has_trns and (alpha or kind == PALETTE and mode == "unchanged") then
    return RGBA8, 4, 1
  elseif kind == GRAY then
    return G8, 1, 1
  elseif kind == GRAY_ALPHA then
    return AS_STORED, 2, 1
  end
  if kind == RGB_ALPHA then return RGBA8, 4, 1 end
  return RGB8, 3, 1
end

local function read(ctx, file, wanted)
  checked(file, spng.moth_spng_set_limits(ctx, CHUNK_LIMIT, CHUNK_LIMIT))
  checked(file, spng.moth_spng_set_buffer(ctx, file.start, file.size))
  local ihdr, trns = ffi.new "moth_spng_ihdr", ffi.new "moth_spng_trns"
  checked(file, spng.moth_spng_get_ihdr(ctx, ihdr))
  local width, height = tonumber(ihdr.width), tonumber(ihdr.height)
  pixels.check(file, width, height, wanted.limit)
  check_length(file, ihdr)
  local has_trns = spng.moth_spng_get_trns(ctx, trns) == 0
  local format, channels, bytes = format_of(ihdr, wanted.mode, has_trns)
  local size = ffi.new "size_t[1]"
  checked(file, spng.moth_spng_decoded_size(ctx, format, size))
  if size[0] ~= width * height * channels * bytes then
    file:refuse("is of a kind that cannot be read", "E_UNSUPPORTED")
  end
  local x, to = pixels.new(height, width, channels * bytes)
  local clear = has_trns and (format == RGBA8 or format == RGBA16)
  checked(file, spng.moth_spng_decode(ctx, to, size[0], format, clear and USE_TRNS or 0))
  if bytes == 2 then return pixels.from_16(x, height, width, channels, file.fname) end
  return x
end


--- Decodes a file of moth.io.bytes.
-- @param wanted  {mode, upright, limit}
function png.decode(file, wanted)
  local ctx = spng.moth_spng_new(0)
  if ctx == nil then errors.raise("libspng: out of memory", "E_MEM") end
  local fine, x = pcall(read, ctx, file, wanted)
  spng.moth_spng_free(ctx)
  if not fine then error(x, 0) end
  if wanted.upright then wanted.orientation = exif.of_png(file.start, file.size) end
  return pixels.finish(x, wanted, pixels.LIBPNG)
end

return png
