--- png.lua -- the bytes of PNG files, by libdeflate or zlib: for moth.io.encode_png, plots and
-- TensorBoard.
--
--     png.encode(pixels, 6)    pixels: uint8 (H, W, C) with C = 1, 2, 3 or 4
--
-- Format: W3C, PNG (third edition); RFC 1950.

local bytes = require "moth.io.bytes"
local deflate = require "moth.io.deflate"
local ffi = require "ffi"
local gzip = require "moth.io.gzip"
local scope = require "moth.tensor.scope"

local png = {}

local COLORS = {0, 4, 2, 6} -- PNG's color type, by the number of channels
local LEVEL = 6

local function big(n)
  return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 2 ^ 16) % 256,
    math.floor(n / 256) % 256, n % 256)
end

local function chunk(name, content)
  local text = name .. content
  return big(#content) .. text .. big(gzip.crc32(text))
end

local function size_of(x) return (x:maximum(-x)) end -- faster than abs

-- Paeth's predictor: the neighbour nearest to left + up - corner.
local function paeth(left, up, corner)
  local moth = require "moth"
  left, up, corner = left:to(moth.int16), up:to(moth.int16), corner:to(moth.int16)
  local far_left, far_up = up - corner, left - corner
  local far_corner = size_of(far_left + far_up)
  far_left, far_up = size_of(far_left), size_of(far_up)
  local y = up:where(far_up:le(far_corner), corner)
  y = left:where(far_left:le(far_up:minimum(far_corner)), y)
  return (y:to(moth.uint8))
end

-- The predictions of the filters 1 to 4 for the values after the first row and column of `padded`.
local function predictions(padded, h, n, c)
  local above, left = padded:narrow(1, 1, h), padded:narrow(1, 2, h):narrow(2, 1, n)
  local up = above:narrow(2, c + 1, n)
  local mean = left:bitwise_and(up) + left:bitwise_xor(up):bitwise_right_shift(1)
  return {left, up, mean, paeth(left, up, above:narrow(2, 1, n))}
end

-- Gives each row of `out` the filter whose differences have the least sum.
-- @param x    rows of values, after the row above if `above`
-- @param out  the rows of the file: a byte with the filter's number, then the differences
-- @param c    bytes of a pixel
local choose = scope.inside(function(x, above, out, c)
  local moth = require "moth"
  local h, n = out:size(1), x:size(2)
  local padded = moth.zeros(h + 1, n + c, {dtype = moth.uint8})
  padded:narrow(1, above and 1 or 2, x:size(1)):narrow(2, c + 1, n):copy_(x)
  if above then x = x:narrow(1, 2, h) end
  local filter, body = out:narrow(2, 1, 1), out:narrow(2, 2, n)
  body:copy_(x)
  local least = body:minimum(-body):sum(2, true)
  for i, predicted in ipairs(predictions(padded, h, n, c)) do
    local rest = x - predicted
    local sum = rest:minimum(-rest):sum(2, true)
    local better = sum:lt(least)
    local rows = better:squeeze(2):nonzero():squeeze(2)
    body:index_copy_(1, rows, rest:index_select(1, rows))
    filter:masked_fill_(better, i)
    least = sum:minimum(least)
  end
end)

local BAND = 2 ^ 17 -- bytes of the rows that `choose` compares at once: they remain in the cache

-- The rows as PNG filters them. If `adaptive`, each row gets the best filter; else all get 2, the
-- difference to the row above.
local filtered = scope.inside(function(pixels, adaptive)
  local moth = require "moth"
  local h, n, c = pixels:size(1), pixels:size(2) * pixels:size(3), pixels:size(3)
  local x, out = pixels:reshape(h, n), moth.zeros(h, n + 1, {dtype = moth.uint8})
  if not adaptive then
    local body = out:narrow(2, 2, n)
    out:select(2, 1):fill_(2)
    body:copy_(x)
    if h > 1 then body:narrow(1, 2, h - 1):sub_(x:narrow(1, 1, h - 1)) end
    return out
  end
  local step = math.max(1, math.floor(BAND / n))
  for first = 1, h, step do
    local count, above = math.min(step, h - first + 1), first > 1 and 1 or 0
    choose(x:narrow(1, first - above, count + above), above == 1, out:narrow(1, first, count), c)
  end
  return out
end)

--- A picture as the bytes of a PNG file.
-- @param pixels  uint8 tensor (H, W, C) on the CPU
-- @param level   of compression, 0 to 9; nil for drawings: 6, without the search for the best
-- filters, which takes more time than the compression of flat colors
function png.encode(pixels, level)
  local h, w, c = pixels:size(1), pixels:size(2), pixels:size(3)
  local rows = filtered(pixels, level ~= nil)
  local packed = deflate.compress(rows, level or LEVEL, true)
  local data = ffi.string(bytes.address(packed), packed:numel())
  rows:free()
  packed:free()
  return "\137PNG\r\n\26\n" .. chunk("IHDR", big(w) .. big(h)
    .. string.char(8, COLORS[c], 0, 0, 0)) .. chunk("IDAT", data) .. chunk("IEND", "")
end

return png
