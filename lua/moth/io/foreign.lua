--- foreign.lua -- converts element types of files that Moth has no dtype for.
--
--     foreign.convert(bytes, "U16", {2, 3})    a uint8 tensor of bytes -> int32 (2, 3)
--     foreign.unread "a tensor of F4"          the placeholder of a value that cannot be read
--
-- Unsigned integers become the next wider signed type. Floats of 8 bits become float32. Complex
-- numbers become pairs in a last dimension of size 2. Formats have the names of safetensors.
--
-- Floats of 8 bits: Micikevicius et al., "FP8 Formats for Deep Learning", 2022; the FNUZ forms:
-- Noune et al., "8-bit Numerical Formats for Deep Neural Networks", 2022; E8M0: OCP Microscaling
-- Formats 1.0.

local errors = require "moth.error"
local bytes = require "moth.io.bytes"
local dtypes = require("moth.tensor.dtype").by_name

local foreign = {}

-- ---- floats of 8 bits ----

-- Bits of the mantissa, bias, and the meaning of the largest exponent: infinities ("ieee"), a NaN
-- for all ones ("fn"), or only numbers, with NaN in the place of -0 ("fnuz").
local SMALL = {F8_E4M3 = {3, 7, "fn"}, F8_E5M2 = {2, 15, "ieee"},
               F8_E4M3FNUZ = {3, 8, "fnuz"}, F8_E5M2FNUZ = {2, 16, "fnuz"}}

local function value_of(byte, bits, bias, form)
  local sign = byte >= 128 and -1 or 1
  local scale = 2 ^ bits
  local exponent, mantissa = math.floor(byte % 128 / scale), byte % scale
  local top = 128 / scale - 1
  if form == "fnuz" and byte == 128 then return 0 / 0 end
  if form == "fn" and byte % 128 == 127 then return 0 / 0 end
  if form == "ieee" and exponent == top then
    return mantissa == 0 and sign * math.huge or 0 / 0
  end
  if exponent == 0 then return sign * mantissa / scale * 2 ^ (1 - bias) end
  return sign * (1 + mantissa / scale) * 2 ^ (exponent - bias)
end

-- A tensor of the 256 values.
local function table_of(format)
  local list, small = {}, SMALL[format]
  for byte = 0, 255 do
    if small then list[byte + 1] = value_of(byte, unpack(small))
    else list[byte + 1] = byte == 255 and 0 / 0 or 2 ^ (byte - 127) end -- E8M0
  end
  return require("moth").tensor(list)
end

local function looked_up(format)
  return function(x, shape, from)
    local codes = bytes.as(x, "uint8", shape, from, "load")
    return table_of(format):index_select(1, codes:reshape(-1):long() + 1):view(shape)
  end
end

-- ---- integers, complex numbers ----

-- Reads the bits as a signed integer; the wider type then has the value modulo 2^bits.
local function unsigned(narrow, wide, bits)
  return function(x, shape, from, swapped)
    return bytes.as(x, narrow, shape, from, "load", swapped):to(dtypes[wide])
      :bitwise_and_(2 ^ bits - 1)
  end
end

-- Values above the largest int64 cannot be converted.
local function unsigned64(x, shape, from, swapped)
  local y = bytes.as(x, "int64", shape, from, "load", swapped)
  if y:numel() > 0 and y:min():item() < 0 then return nil, "with numbers beyond int64" end
  return y
end

local function pairs_of(name)
  return function(x, shape, from, swapped)
    if #shape == 8 then return nil, "of 8 dimensions: its pairs need a ninth" end
    local sizes = {unpack(shape)}
    sizes[#sizes + 1] = 2
    return bytes.as(x, name, sizes, from, "load", swapped)
  end
end

-- Format -> {bytes of an element, dtype after conversion, function}.
local FORMATS = {
  U16 = {2, "int32", unsigned("int16", "int32", 16)},
  U32 = {4, "int64", unsigned("int32", "int64", 32)},
  U64 = {8, "int64", unsigned64},
  C32 = {4, "float16 pairs", pairs_of "float16"},
  C64 = {8, "float32 pairs", pairs_of "float32"},
  C128 = {16, "float64 pairs", pairs_of "float64"},
  F8_E8M0 = {1, "float32", looked_up "F8_E8M0"},
}
for format in pairs(SMALL) do FORMATS[format] = {1, "float32", looked_up(format)} end

--- The bytes of an element, or nil for an unknown format.
function foreign.width(format) return FORMATS[format] and FORMATS[format][1] end

--- Converts elements in a contiguous uint8 tensor.
-- @param x       the tensor
-- @param format  the name of their type
-- @param shape   a list of sizes
-- @param from    the offset of the first byte (default 0)
-- @param swapped  the bytes of each number are in reverse order, the highest first
-- @return a tensor and the name of its dtype; or nil and the reason
function foreign.convert(x, format, shape, from, swapped)
  local row = FORMATS[format]
  if not row then return nil, "which Moth has no dtype for" end
  local y, why = row[3](x, shape, from, swapped)
  return y, y and row[2] or why
end

-- ---- types of NumPy ----

--- The types of NumPy by kind and size: the names of Moth's dtypes, and the formats above.
foreign.numpy_dtypes = {f8 = "float64", f4 = "float32", f2 = "float16", i8 = "int64",
  i4 = "int32", i2 = "int16", i1 = "int8", u1 = "uint8", b1 = "bool"}
foreign.numpy_formats = {u2 = "U16", u4 = "U32", u8 = "U64", c8 = "C64", c16 = "C128"}

-- ---- values that cannot be read ----

local Unread = {}
local function refuse(self) errors.raise("this was not loaded: " .. self.what, "E_UNSUPPORTED") end
function Unread.__index(self) refuse {what = rawget(self, "what")} end
function Unread.__tostring(self) return "<not loaded: " .. rawget(self, "what") .. ">" end
for name in ("add sub mul div mod pow unm call concat"):gmatch "%S+" do
  Unread["__" .. name] = function(a, b) refuse(getmetatable(a) == Unread and a or b) end
end

--- The placeholder of a value that cannot be loaded. It prints the reason; any use raises.
function foreign.unread(what) return setmetatable({what = what}, Unread) end

--- Returns true for a placeholder made by foreign.unread.
function foreign.is_unread(x) return type(x) == "table" and getmetatable(x) == Unread end

--- Warns of values that a load converted or left out.
-- @param shown  the file, for the message
-- @param notes  text -> count; an empty table prints nothing
function foreign.warn(shown, notes)
  local list = {}
  for text, count in pairs(notes) do
    list[#list + 1] = count > 1 and ("%s (%d times)"):format(text, count) or text
  end
  if #list == 0 then return end
  table.sort(list)
  require("moth").warn(("load: %s: %s"):format(shown, table.concat(list, "; ")))
end

return foreign
