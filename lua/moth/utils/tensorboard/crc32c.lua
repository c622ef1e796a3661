--- crc32c.lua -- the checksum of records in event files: CRC-32C, reflected polynomial 82f63b78.

local bit = require "bit"
local ffi = require "ffi"

local band, bxor, rshift, ror, tobit = bit.band, bit.bxor, bit.rshift, bit.ror, bit.tobit

local TABLE = ffi.new "int32_t[256]"
for i = 0, 255 do
  local c = i
  for _ = 1, 8 do c = c % 2 == 1 and bxor(rshift(c, 1), 0x82f63b78) or rshift(c, 1) end
  TABLE[i] = c
end

local crc32c = {}

--- The checksum of n bytes of memory, starting at offset `at`, as an integer of 32 bits with sign.
-- @param bytes  an array of uint8_t
function crc32c.of(bytes, at, n)
  local c = -1
  for i = at, at + n - 1 do
    c = bxor(TABLE[band(bxor(c, bytes[i]), 255)], rshift(c, 8))
  end
  return bxor(c, -1)
end

--- The checksum as records store it: rotated, plus a constant.
function crc32c.masked(bytes, at, n)
  return tobit(ror(crc32c.of(bytes, at, n), 15) + 0xa282ead8)
end

return crc32c
