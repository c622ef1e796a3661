--- stb.lua -- JPEG and PNG files by libstb, where libjpeg-turbo or libspng is missing.

local ffi = require "ffi"
local library = require "moth.io.image.library"
local pixels = require "moth.io.image.pixels"

local stb = {}

local CDEF = [[
typedef struct moth_stb moth_stb;
int moth_stb_info(const uint8_t *bytes, int size, int *width, int *height,
                  int *channels) __asm__("stbi_info_from_memory");
int moth_stb_is_16(const uint8_t *bytes, int size) __asm__("stbi_is_16_bit_from_memory");
uint8_t *moth_stb_load(const uint8_t *bytes, int size, int *width, int *height, int *channels,
                       int wanted) __asm__("stbi_load_from_memory");
uint8_t *moth_stb_load_16(const uint8_t *bytes, int size, int *width, int *height, int *channels,
                          int wanted) __asm__("stbi_load_16_from_memory");
void moth_stb_free(void *pixels) __asm__("stbi_image_free");
const char *moth_stb_why(void) __asm__("stbi_failure_reason");
]]

local lib_stb

function stb.find()
  lib_stb = library.find("stb", CDEF, "moth_stb")
  return lib_stb ~= nil
end

local function failed(file)
  local why = lib_stb.moth_stb_why()
  file:refuse("is broken: " .. (why ~= nil and ffi.string(why) or "it cannot be decoded"))
end

local function copied(from, height, width, channels)
  local fine, x, to = pcall(pixels.new, height, width, channels)
  if fine then ffi.copy(to, from, height * width * channels) end
  lib_stb.moth_stb_free(from)
  if not fine then error(x, 0) end
  return x
end

--- Decodes a file of moth.io.bytes.
-- @param wanted   {mode, upright, limit}
-- @param weights  those of gray
-- @param upright  function(start, size) -> EXIF's orientation
function stb.decode(file, wanted, weights, upright)
  if file.size >= 2 ^ 31 then file:refuse("is above 2 GiB", "E_UNSUPPORTED") end
  local numbers = ffi.new "int[3]"
  if lib_stb.moth_stb_info(file.start, file.size, numbers, numbers + 1, numbers + 2) == 0 then
    failed(file)
  end
  local width, height, channels = numbers[0], numbers[1], numbers[2]
  pixels.check(file, width, height, wanted.limit)
  local wide = lib_stb.moth_stb_is_16(file.start, file.size) ~= 0
  local load = wide and lib_stb.moth_stb_load_16 or lib_stb.moth_stb_load
  local from = load(file.start, file.size, numbers, numbers + 1, numbers + 2, channels)
  if from == nil then failed(file) end
  local x = copied(from, height, width, channels * (wide and 2 or 1))
  if wide then x = pixels.from_16(x, height, width, channels, file.fname) end
  if wanted.upright then wanted.orientation = upright(file.start, file.size) end
  return pixels.finish(x, wanted, weights)
end

return stb
