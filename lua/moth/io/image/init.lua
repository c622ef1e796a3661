--- init.lua -- pictures as tensors: moth.io.read_image, decode_image, write_png and others, with
-- the names of torchvision.io.
--
--     local x = moth.io.read_image("cat.jpg", "rgb")     -- u8 (3, height, width), 0 to 255
--     moth.io.write_png(x, "cat.png")
--
-- JPEG by libjpeg-turbo, PNG by libspng, WebP by libwebp; libstb reads JPEG and PNG where the first
-- two are missing. libdeflate or zlib is enough to write PNG (moth/io/png.lua). The first frame of
-- GIF files needs no library. The format is found by the first bytes. A file's claimed size is
-- checked before memory is allocated.

local bytes = require "moth.io.bytes"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local library = require "moth.io.image.library"
local pixels = require "moth.io.image.pixels"

local image = {}

-- ---- formats ----

local function by_turbo(file, wanted)
  local jpeg, stb = require "moth.io.image.jpeg", require "moth.io.image.stb"
  if jpeg.find() then return (jpeg.decode(file, wanted)) end
  if not stb.find() then library.missing(file.fname, "a JPEG file", {"turbojpeg", "stb"}) end
  return (stb.decode(file, wanted, nil, require("moth.io.image.exif").of_jpeg))
end

local function by_spng(file, wanted)
  local png, stb = require "moth.io.image.png", require "moth.io.image.stb"
  if png.find() then return (png.decode(file, wanted)) end
  if not stb.find() then library.missing(file.fname, "a PNG file", {"spng", "stb"}) end
  return (stb.decode(file, wanted, pixels.LIBPNG, require("moth.io.image.exif").of_png))
end

local function by_webp(file, wanted)
  local webp = require "moth.io.image.webp"
  if not webp.find() then library.missing(file.fname, "a WebP file", {"webp"}) end
  return (webp.decode(file, wanted))
end

local function by_gif(file, wanted) return (require("moth.io.image.gif").decode(file, wanted)) end

local FORMATS = {
  {name = "JPEG", begins = "^\255\216\255", decode = by_turbo},
  {name = "PNG", begins = "^\137PNG\r\n\26\n", decode = by_spng},
  {name = "WebP", begins = "^RIFF....WEBP", decode = by_webp},
  {name = "GIF", begins = "^GIF8[79]a", decode = by_gif},
}

-- Other formats, for messages.
local OTHERS = {{"^BM", "BMP"}, {"^II%*%z", "TIFF"}, {"^MM%z%*", "TIFF"}, {"^....ftypavif", "AVIF"},
  {"^....ftyphei", "HEIC"}, {"^<%?xml", "XML"}, {"^<svg", "SVG"}, {"^%%PDF", "PDF"},
  {"^P[1-7]%s", "PNM"}, {"^#%?RADIANCE", "HDR"}, {"^%z%z\1%z", "ICO"}}

local function format_of(file)
  if file.size == 0 then file:refuse "is empty" end
  local start = file:text(math.min(16, file.size))
  for _, format in ipairs(FORMATS) do
    if start:find(format.begins) then return format end
  end
  for _, other in ipairs(OTHERS) do
    if start:find(other[1]) then
      file:refuse(("is in the format %s; JPEG, PNG, WebP and GIF can be read"):format(other[2]),
        "E_UNSUPPORTED")
    end
  end
  file:refuse("is no picture in a known format (JPEG, PNG, WebP, GIF)" .. (file.hint or ""))
end

-- Decodes an open file and closes it.
-- @param only  the only format that is accepted, or nil
local function decode(file, wanted, only)
  local fine, x = pcall(function()
    local format = format_of(file)
    if only and format.name ~= only then
      file:refuse(("is a %s file, not a %s file"):format(format.name, only))
    end
    return format.decode(file, wanted)
  end)
  file:close()
  if not fine then error(x, 0) end
  return x
end

local function least_of(size) return type(size) == "number" and {size, size} or size end

-- ---- reading ----

local MODE = {"string", "mode", "channels of the result: unchanged, gray, gray_alpha, rgb or "
  .. "rgb_alpha", default = "unchanged"}
local UPRIGHT = {"bool", "apply_exif_orientation", "turns a JPEG or PNG picture as its EXIF data "
  .. "says", default = false}
local LIMIT = {"int", "max_pixels", "the largest number of pixels that a file may claim",
               default = pixels.LIMIT, bounds = {1, 2 ^ 40}}
local LEAST = {"int2?", "min_size", "height and width: a JPEG is decoded at 1/2, 1/4 or 1/8 of its "
  .. "size, the smallest with both sides at least this long", optional = true}

local function wanted_of(fname, mode, upright, least, limit)
  local name = mode:lower() -- torchvision's are in capital letters
  if not pixels.modes[name] then
    errors.refuse(fname, "mode", "'unchanged', 'gray', 'gray_alpha', 'rgb' or 'rgb_alpha' is "
      .. "needed", mode)
  end
  return {mode = name, upright = upright, limit = limit,
          least = least_of(least)}
end

local EXAMPLE = "(function() local path = os.tmpname(); moth.io.write_png(moth.zeros({3, 4, 5}, "
  .. "{dtype = moth.uint8}), path); return path end)()"

--- Reads a picture from a file.
-- @param path  the file: JPEG, PNG, WebP, or GIF (of animations the first frame)
-- @param mode  "unchanged" (default), "gray", "gray_alpha", "rgb" or "rgb_alpha", also in capitals
-- @param apply_exif_orientation  turns JPEG and PNG pictures as their EXIF data says
-- @param min_size  decodes a large JPEG at 1/2, 1/4 or 1/8 of its size, the smallest with both
-- sides at least this long
-- @param max_pixels  raises for files that claim more; the default is PIL's limit
-- @return uint8 (channels, height, width), often a view that is not contiguous. Of a PNG with 16
-- bits: int32, 0 to 65535. "unchanged" gives a palette's colors, and of a CMYK JPEG the four inks
-- as stored. Raises E_IO; E_FORMAT if the file is broken; E_LIMIT above max_pixels;
-- E_UNSUPPORTED for other formats and where a library is missing.
-- Source: torchvision.io.read_image
image.read_image = define {
  name = "read_image",
  doc = "Reads a JPEG, PNG, WebP or GIF file as uint8 (channels, height, width).",
  examples = EXAMPLE .. "\n" .. EXAMPLE .. ", {mode = 'gray'}",
  args = {{"string", "path", "the file to read"}, MODE, UPRIGHT, LEAST, LIMIT},
  outputs = "image",
  run = function(path, mode, upright, least, limit)
    local wanted = wanted_of("read_image", mode, upright, least, limit)
    return (decode(bytes.open(path, "read_image", "path", false), wanted))
  end,
}

-- The bytes as an open file.
local function opened(input, fname)
  local memory = bytes.memory(input)
  if not memory then
    errors.refuse(fname, "input", "a uint8 tensor on the CPU or a string of bytes is needed", input,
      "E_TYPE")
  end
  local file = bytes.open(memory, fname)
  file.argument = "input"
  if type(input) == "string" and #input < 4096 and input:find "^[%w%p ]+%.%a+$" then
    file.hint = "; moth.io.read_image takes the path of a file"
  end
  return file
end

local INPUT = {"any", "input", "the bytes of a file: a uint8 tensor or a string"}

-- A function that decodes the only accepted format (nil: any).
local function decoder(name, only, doc, examples)
  return define {
    name = name, doc = doc, examples = examples, outputs = "image",
    args = {INPUT, MODE, UPRIGHT, LEAST, LIMIT},
    run = function(input, mode, upright, least, limit)
      local wanted = wanted_of(name, mode, upright, least, limit)
      return (decode(opened(input, name), wanted, only))
    end,
  }
end

local PNG_BYTES = "moth.io.encode_png(moth.zeros({3, 4, 5}, {dtype = moth.uint8}))"

--- Decodes the bytes of a picture. Arguments, results and errors as for read_image.
-- @param input  a uint8 tensor of one dimension, or a string of bytes (not a path)
-- Source: torchvision.io.decode_image
image.decode_image = decoder("decode_image", nil,
  "The picture in the bytes of a JPEG, PNG, WebP or GIF file, as uint8 (channels, height, width).",
  PNG_BYTES)

--- Decodes the bytes of a JPEG file, as decode_image. Source: torchvision.io.decode_jpeg
image.decode_jpeg = decoder("decode_jpeg", "JPEG",
  "The picture in the bytes of a JPEG file, as uint8 (channels, height, width).",
  (PNG_BYTES:gsub("png", "jpeg")))

--- Decodes the bytes of a PNG file, as decode_image. Source: torchvision.io.decode_png
image.decode_png = decoder("decode_png", "PNG", "The picture in the bytes of a PNG file, as uint8 "
  .. "(channels, height, width); of 16 bits as int32.", PNG_BYTES)

--- Decodes the bytes of a WebP file, as decode_image. Source: torchvision.io.decode_webp
image.decode_webp = decoder("decode_webp", "WebP",
  "The picture in the bytes of a WebP file, as uint8 (channels, height, width).",
  [['RIFF\28\0\0\0WEBPVP8L\15\0\0\0/\1\0\0\0\7\16\253\143\254\7\34\162\255\1\0']])

--- Decodes the first frame of a GIF file, as decode_image. Source: torchvision.io.decode_gif, which
-- returns all frames of an animation.
image.decode_gif = decoder("decode_gif", "GIF",
  "The first frame in the bytes of a GIF file, as uint8 (channels, height, width).",
  [['GIF87a\2\0\1\0\129\0\0\255' .. ('\0'):rep(11) .. ',\0\0\0\0\2\0\1\0\0\8\5\0\1\0\8\8\0;']])

-- ---- writing ----

-- Converts a picture (channels, height, width) to a contiguous tensor (height, width, channels).
local function rows_of(x, fname, most, channels)
  local info = lib.inspect(x, fname, "input")
  if info.dtype ~= lib.C.MOTH_U8 or info.ndim ~= 3 then
    errors.refuse(fname, "input", "uint8 (channels, height, width) is needed", x, "E_TYPE")
  end
  local c, h, w = x:size(1), x:size(2), x:size(3)
  if not channels[c] then
    errors.refuse(fname, "input", most .. " channels are needed", x, "E_SHAPE")
  elseif h == 0 or w == 0 then
    errors.refuse(fname, "input", "at least one pixel is needed", x, "E_SHAPE")
  end
  return x:detach():cpu():permute(2, 3, 1):contiguous()
end

-- The bytes, as a string.
local function to_png(x, level, fname)
  local rows = rows_of(x, fname, "1 to 4", {true, true, true, true})
  return (require("moth.io.png").encode(rows, level))
end

local function to_jpeg(x, quality, fname)
  local rows = rows_of(x, fname, "1 or 3", {true, false, true})
  if rows:size(1) > 65500 or rows:size(2) > 65500 then
    errors.refuse(fname, "input", "a JPEG file has at most 65500 rows and columns", x, "E_SHAPE")
  end
  local jpeg = require "moth.io.image.jpeg"
  if not jpeg.find() then library.missing(fname, "a JPEG file", {"turbojpeg"}) end
  return (jpeg.encode(rows, quality, fname))
end

local PICTURE = {"tensor", "input", "uint8 (channels, height, width), values 0 to 255"}
local FILE = {"string", "filename", "the file to write"}
local QUALITY = {"int", "quality", "1 to 100; higher is better and larger", default = 75,
                 bounds = {1, 100}}
local LEVEL = {"int", "compression_level", "0 (fast) to 9 (small)", default = 6, bounds = {0, 9}}
local ZEROS = "moth.zeros({3, 4, 5}, {dtype = moth.uint8})"

--- The bytes of a PNG file, as a uint8 tensor.
-- @param input  uint8 (channels, height, width); 1 channel is gray, 2 gray and alpha, 3 red, green
-- and blue, 4 with alpha
-- @param compression_level  0 (fast) to 9 (small), default 6
-- Source: torchvision.io.encode_png
image.encode_png = define {
  name = "encode_png",
  doc = "The bytes of a PNG file of a picture, as a uint8 tensor of one dimension.",
  examples = ZEROS, args = {PICTURE, LEVEL}, outputs = "bytes",
  run = function(input, level)
    local moth = require "moth"
    return (moth.frombuffer(to_png(input, level, "encode_png"), {dtype = moth.uint8}))
  end,
}

--- The bytes of a JPEG file, as a uint8 tensor.
-- @param input    uint8 (channels, height, width); 1 channel is gray, 3 are red, green and blue
-- @param quality  1 to 100, default 75. Colors have half the resolution (4:2:0).
-- Source: torchvision.io.encode_jpeg
image.encode_jpeg = define {
  name = "encode_jpeg",
  doc = "The bytes of a JPEG file of a picture, as a uint8 tensor of one dimension.",
  examples = ZEROS, args = {PICTURE, QUALITY}, outputs = "bytes",
  run = function(input, quality) return (to_jpeg(input, quality, "encode_jpeg")) end,
}

--- Writes a PNG file, all or nothing. Arguments as for encode_png.
-- @param filename  the file to write
-- Source: torchvision.io.write_png
image.write_png = define {
  name = "write_png", doc = "Writes a picture to a PNG file: the whole file or nothing.",
  examples = ZEROS .. ", os.tmpname()", args = {PICTURE, FILE, LEVEL}, outputs = "",
  order = "moth.io.write_png(input, filename)",
  run = function(input, filename, level)
    bytes.save(filename, {to_png(input, level, "write_png")}, "write_png", false, "filename")
  end,
}

--- Writes a JPEG file, all or nothing. Arguments as for encode_jpeg.
-- @param filename  the file to write
-- Source: torchvision.io.write_jpeg
image.write_jpeg = define {
  name = "write_jpeg", doc = "Writes a picture to a JPEG file: the whole file or nothing.",
  examples = ZEROS .. ", os.tmpname()", args = {PICTURE, FILE, QUALITY}, outputs = "",
  order = "moth.io.write_jpeg(input, filename)",
  run = function(input, filename, quality)
    bytes.save(filename, {to_jpeg(input, quality, "write_jpeg")}, "write_jpeg", false,
      "filename")
  end,
}

return image
