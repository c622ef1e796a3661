--- webp.lua -- WebP files by libwebp; of an animation, the first frame.

local ffi = require "ffi"
local library = require "moth.io.image.library"
local pixels = require "moth.io.image.pixels"

local webp = {}

local CDEF = [[
typedef struct moth_webp_features {
  int width, height, has_alpha, has_animation, format;
  uint32_t pad[5];
} moth_webp_features;
int moth_webp_features_of(const uint8_t *bytes, size_t size, moth_webp_features *features,
                          int version) __asm__("WebPGetFeaturesInternal");
uint8_t *moth_webp_rgb(const uint8_t *bytes, size_t size, uint8_t *to, size_t room,
                       int stride) __asm__("WebPDecodeRGBInto");
uint8_t *moth_webp_rgba(const uint8_t *bytes, size_t size, uint8_t *to, size_t room,
                        int stride) __asm__("WebPDecodeRGBAInto");
]]

local VERSION = 0x0209 -- of libwebp's decoder interface; only the first byte must agree

local lib_webp

function webp.find()
  lib_webp = library.find("webp", CDEF, "moth_webp_features")
  return lib_webp ~= nil
end

local function features_of(file, at, size)
  local features = ffi.new "moth_webp_features"
  local status = lib_webp.moth_webp_features_of(at, size, features, VERSION)
  if status == 7 then file:refuse("is truncated") end
  if status ~= 0 then file:refuse("is broken: its header is wrong") end
  return features
end

-- ---- animations ----

local function u24(at) return at[0] + at[1] * 256 + at[2] * 65536 end
local function u32(at) return u24(at) + at[3] * 2 ^ 24 end

-- Calls f(name, contents, size) for the chunks of size bytes until f returns a value. @return that
local function each_chunk(at, size, f)
  local from = 0
  while from + 8 <= size do
    local n = u32(at + from + 4)
    if n > size - from - 8 then return nil end
    local found = f(ffi.string(at + from, 4), at + from + 8, n)
    if found then return found end
    from = from + 8 + n + n % 2
  end
end

local function word(n) return string.char(n % 256, math.floor(n / 256) % 256,
  math.floor(n / 65536) % 256, math.floor(n / 2 ^ 24)) end

local function chunk(name, contents)
  return name .. word(#contents) .. contents .. (#contents % 2 == 1 and "\0" or "")
end

-- Makes a WebP file of one picture from the chunks of a frame.
local function still(frame, size, width, height)
  local alpha, data
  each_chunk(frame, size, function(name, at, n)
    if name == "ALPH" then alpha = chunk(name, ffi.string(at, n)) end
    if name == "VP8 " or name == "VP8L" then data = chunk(name, ffi.string(at, n)) end
    return data
  end)
  if not data then return nil end
  local head = alpha and chunk("VP8X", "\16\0\0\0" .. word(width - 1):sub(1, 3)
    .. word(height - 1):sub(1, 3)) or ""
  local body = "WEBP" .. head .. (alpha or "") .. data
  return "RIFF" .. word(#body) .. body
end

-- The first frame: its file and its place {x, y, width, height}.
local function first_frame(file)
  return each_chunk(file.start + 12, file.size - 12, function(name, at, n)
    if name ~= "ANMF" or n < 16 then return nil end
    local place = {x = 2 * u24(at), y = 2 * u24(at + 3), width = 1 + u24(at + 6),
                   height = 1 + u24(at + 9)}
    place.text = still(at + 16, n - 16, place.width, place.height)
    return place.text and place
  end)
end

-- ---- decoding ----

local function read(file, at, size, width, height, alpha)
  local channels = alpha and 4 or 3
  local x, to = pixels.new(height, width, channels)
  local decode = alpha and lib_webp.moth_webp_rgba or lib_webp.moth_webp_rgb
  if decode(at, size, to, width * height * channels, width * channels) == nil then
    file:refuse("is broken or truncated")
  end
  return x
end

-- The canvas is transparent black outside the first frame.
local function read_first(file, features, alpha)
  local frame = first_frame(file)
  local width, height = features.width, features.height
  if not frame or frame.x + frame.width > width or frame.y + frame.height > height then
    file:refuse("is broken: its first frame is missing or wrong")
  end
  local at = ffi.cast("const uint8_t *", frame.text)
  local own = features_of(file, at, #frame.text)
  if own.width ~= frame.width or own.height ~= frame.height then
    file:refuse("is broken: its first frame has other sizes than it claims")
  end
  local x = read(file, at, #frame.text, frame.width, frame.height, alpha)
  if frame.width == width and frame.height == height then return x end
  local canvas = pixels.new(height, width, alpha and 4 or 3):zero_()
  canvas:narrow(1, frame.y + 1, frame.height):narrow(2, frame.x + 1, frame.width):copy_(x)
  return canvas
end

--- Decodes a file of moth.io.bytes.
-- @param wanted  {mode, limit}
function webp.decode(file, wanted)
  local features = features_of(file, file.start, file.size)
  pixels.check(file, features.width, features.height, wanted.limit)
  local alpha = wanted.mode:find "alpha$" ~= nil
    or wanted.mode == "unchanged" and features.has_alpha ~= 0
  local x = features.has_animation ~= 0 and read_first(file, features, alpha)
    or read(file, file.start, file.size, features.width, features.height, alpha)
  return pixels.finish(x, wanted)
end

return webp
