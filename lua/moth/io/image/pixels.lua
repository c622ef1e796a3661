--- pixels.lua -- functions for all picture formats: the limit of pixels, modes, orientation.
--
-- A codec fills a uint8 tensor (height, width, channels) and passes it to pixels.finish, which
-- returns a view (channels, height, width) of the wanted mode.

local ffi = require "ffi"
local bind = require "moth.binding.bind"
local bytes = require "moth.io.bytes"
local lib = require "moth.binding.lib"

local pixels = {}

--- The largest number of pixels by default: PIL's limit for a decompression bomb.
pixels.LIMIT = 178956970

--- The modes of torchvision.io.ImageReadMode, and their channels; 0: those of the file.
pixels.modes = {unchanged = 0, gray = 1, gray_alpha = 2, rgb = 3, rgb_alpha = 4}

--- Raises if a file claims no pixels, or more than the limit.
function pixels.check(file, width, height, limit)
  if not (width > 0 and height > 0) then
    file:refuse(("is broken: it claims %.0f x %.0f pixels"):format(width, height))
  elseif width * height > limit then
    file:refuse(("claims %.0f x %.0f pixels, above the limit of %.0f; max_pixels sets another "
      .. "limit"):format(width, height, limit), "E_LIMIT")
  end
end

--- An uninitialized tensor (height, width, channels), and the address of its bytes.
function pixels.new(height, width, channels)
  local x = bind.ops.empty(height, width, channels, {dtype = require("moth").uint8, device = "cpu"})
  return x, ffi.cast("uint8_t *", lib.data(x, "moth.io"))
end

--- A tensor (height, width, channels) of int32 from bytes of unsigned 16-bit numbers in the order
-- of this machine.
function pixels.from_16(x, height, width, channels, fname)
  local signed = bytes.as(x, "int16", {height, width, channels}, 0, fname)
  return signed:to(require("moth").int32):bitwise_and(0xFFFF)
end

-- ---- modes ----

--- The weights of red, green and blue in gray, the rounding, and the shift: PIL's and libjpeg's
-- (ITU-R 601); libpng's, which torchvision uses for PNG, and which truncates 8 bits but rounds 16.
pixels.ITU601 = {19595, 38470, 7471, 0x8000, 16}
pixels.LIBPNG = {9794, 19234, 3740, 0, 15}
local LIBPNG_16 = {9794, 19234, 3740, 0x4000, 15}

local function to_gray(x, weights)
  local int32 = require("moth").int32
  local wide = x:to(int32)
  if x.dtype == int32 then weights = LIBPNG_16 end
  local sum = wide:narrow(3, 1, 1) * weights[1] + wide:narrow(3, 2, 1) * weights[2]
    + wide:narrow(3, 3, 1) * weights[3] + weights[4]
  return (sum:bitwise_right_shift(weights[5]):to(x.dtype))
end

local function opaque(x)
  local most = x.dtype == require("moth").uint8 and 255 or 65535
  return bind.ops.full({x:size(1), x:size(2), 1}, most, {dtype = x.dtype, device = "cpu"})
end

-- Converts a tensor (height, width, channels) to another number of channels.
local function convert(x, wanted, weights)
  local have = x:size(3)
  local color, alpha = have > 2, have % 2 == 0
  local base = alpha and x:narrow(3, 1, have - 1) or x
  if wanted > 2 and not color then base = base:expand(x:size(1), x:size(2), 3)
  elseif wanted <= 2 and color then base = to_gray(base, weights) end
  if wanted % 2 == 1 then return base end
  return (bind.ops.cat({base, alpha and x:narrow(3, have, 1) or opaque(x)}, 3))
end

--- The picture in the wanted mode.
-- @param x        (height, width, channels): 1 gray, 2 with alpha, 3 red, green, blue, 4 with alpha
-- @param wanted   {mode, orientation}
-- @param weights  those of gray (default ITU601)
-- @return (channels, height, width), often a view
function pixels.finish(x, wanted, weights)
  local channels = pixels.modes[wanted.mode]
  if channels ~= 0 and channels ~= x:size(3) then
    x = convert(x, channels, weights or pixels.ITU601)
  end
  return pixels.orient(x:permute(3, 1, 2), wanted.orientation or 1)
end

-- ---- orientation ----

-- EXIF's orientations: transpose first, then flip these dimensions.
local STEPS = {
  {}, {flip = {3}}, {flip = {2, 3}}, {flip = {2}}, {transpose = true},
  {transpose = true, flip = {3}}, {transpose = true, flip = {2, 3}}, {transpose = true, flip = {2}},
}

--- Turns a picture (channels, height, width) upright.
-- @param orientation  EXIF's number, 1 to 8
function pixels.orient(x, orientation)
  local steps = STEPS[orientation]
  if not steps then return x end
  if steps.transpose then x = x:transpose(2, 3) end
  return steps.flip and x:flip(steps.flip) or x
end

return pixels
