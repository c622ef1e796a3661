--- exif.lua -- the orientation of a picture in its EXIF data, read by hand.

local ffi = require "ffi"

local exif = {}

local ORIENTATION, SHORT = 0x0112, 3

local function u16(at, from, big)
  if big then return at[from] * 256 + at[from + 1] end
  return at[from + 1] * 256 + at[from]
end

local function u32(at, from, big)
  if big then return u16(at, from, true) * 65536 + u16(at, from + 2, true) end
  return u16(at, from + 2, false) * 65536 + u16(at, from, false)
end

-- The orientation in a TIFF structure of `size` bytes; 1 if it has none or is broken.
local function in_tiff(at, size)
  if size < 14 then return 1 end
  local order = ffi.string(at, 2)
  if order ~= "II" and order ~= "MM" then return 1 end
  local big = order == "MM"
  local first = u32(at, 4, big)
  if u16(at, 2, big) ~= 42 or first > size - 2 then return 1 end
  for i = 0, u16(at, first, big) - 1 do
    local entry = first + 2 + 12 * i
    if entry + 12 > size then return 1 end
    if u16(at, entry, big) == ORIENTATION then
      local value = u16(at, entry + 8, big)
      local fits = u16(at, entry + 2, big) == SHORT and u32(at, entry + 4, big) == 1
      return fits and value >= 1 and value <= 8 and value or 1
    end
  end
  return 1
end

--- The orientation in the APP1 segment of a JPEG file, 1 to 8.
function exif.of_jpeg(at, size)
  local from = 2
  while from + 4 <= size and at[from] == 0xFF do
    local marker, length = at[from + 1], u16(at, from + 2, true)
    if marker == 0xFF then
      from = from + 1 -- a fill byte
    elseif marker == 0xDA or marker == 0xD9 or length < 2 or from + 2 + length > size then
      return 1
    elseif marker == 0xE1 and length >= 8 and ffi.string(at + from + 4, 6) == "Exif\0\0" then
      return in_tiff(at + from + 10, length - 8)
    else
      from = from + 2 + length
    end
  end
  return 1
end

--- The orientation in the eXIf chunk of a PNG file, 1 to 8.
function exif.of_png(at, size)
  local from = 8
  while from + 12 <= size do
    local length, name = u32(at, from, true), ffi.string(at + from + 4, 4)
    if length > size - from - 12 or name == "IEND" then return 1 end
    if name == "eXIf" then return in_tiff(at + from + 8, length) end
    from = from + 12 + length
  end
  return 1
end

return exif
