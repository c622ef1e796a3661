--- png.lua -- writes pictures as PNG, with zlib only. moth.io.encode_png has more options.
--
--     png.encode(pixels, "add_image")    pixels: uint8 (H, W, C) with C = 1, 2, 3 or 4
--
-- Each row is stored as its difference to the row above (filter 2), which compresses well.
--
-- Format: W3C, PNG (third edition); RFC 1950.

local gzip = require "moth.io.gzip"
local lib = require "moth.binding.lib"
local scope = require "moth.tensor.scope"

local png = {}

local COLORS = {0, 4, 2, 6} -- PNG's color type, by the number of channels

local function big(n)
  return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 2 ^ 16) % 256,
    math.floor(n / 256) % 256, n % 256)
end

local function chunk(name, content)
  local text = name .. content
  return big(#content) .. text .. big(gzip.crc32(text))
end

-- The rows as PNG filters them: a byte with the filter's number, then the differences.
local filtered = scope.inside(function(pixels)
  local moth = require "moth"
  local h = pixels:size(1)
  local rows = pixels:reshape(h, -1)
  local out = moth.empty(h, rows:size(2) + 1, {dtype = moth.uint8})
  out:select(2, 1):fill_(2)
  local body = out:narrow(2, 2, rows:size(2))
  body:copy_(rows)
  if h > 1 then body:narrow(1, 2, h - 1):sub_(rows:narrow(1, 1, h - 1)) end
  return out
end)

--- A picture as the bytes of a PNG file.
-- @param pixels  uint8 tensor (H, W, C) on the CPU
-- @param fname   the function that errors name
function png.encode(pixels, fname)
  local h, w, c = pixels:size(1), pixels:size(2), pixels:size(3)
  local rows = filtered(pixels)
  local data = gzip.compress(lib.data(rows, fname), rows:numel(), fname)
  rows:free()
  return "\137PNG\r\n\26\n" .. chunk("IHDR", big(w) .. big(h)
    .. string.char(8, COLORS[c], 0, 0, 0)) .. chunk("IDAT", data) .. chunk("IEND", "")
end

return png
