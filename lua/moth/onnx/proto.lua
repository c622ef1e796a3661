--- proto.lua -- ONNX files as tables: the fields of the messages, and protobuf's wire format.
--
-- A message is a table with the field names of onnx.proto. Writing returns a list of pieces
-- (strings, and tensors whose bytes C writes), so weights never become Lua strings. Reading is
-- lazy: for a weight it stores only the position of the bytes. Each length in a file is checked
-- against the rest of the message that contains it.
--
-- Formats: onnx/onnx.proto (IR version 11); protobuf.dev, "Encoding".

local bit = require "bit"
local ffi = require "ffi"
local lib = require "moth.binding.lib"

local proto = {}

-- ---- the fields: number -> {name, type, repeated} ----

local schema = {
  Model = {[1] = {"ir_version", "int"}, [2] = {"producer_name", "text"},
    [3] = {"producer_version", "text"}, [7] = {"graph", "Graph"},
    [8] = {"opset_import", "Opset", true}, [25] = {"functions", "Function", true}},
  Opset = {[1] = {"domain", "text"}, [2] = {"version", "int"}},
  Function = {[1] = {"name", "text"}, [4] = {"input", "text", true},
    [5] = {"output", "text", true}, [7] = {"node", "Node", true},
    [9] = {"opset_import", "Opset", true}, [10] = {"domain", "text"},
    [11] = {"attribute_proto", "Attribute", true}},
  Graph = {[1] = {"node", "Node", true}, [2] = {"name", "text"},
    [5] = {"initializer", "Tensor", true}, [11] = {"input", "ValueInfo", true},
    [12] = {"output", "ValueInfo", true}, [15] = {"sparse_initializer", "Sparse", true}},
  Sparse = {},
  Node = {[1] = {"input", "text", true}, [2] = {"output", "text", true},
    [3] = {"name", "text"}, [4] = {"op_type", "text"}, [5] = {"attribute", "Attribute", true},
    [7] = {"domain", "text"}},
  Attribute = {[1] = {"name", "text"}, [2] = {"f", "float"}, [3] = {"i", "int"},
    [4] = {"s", "text"}, [5] = {"t", "Tensor"}, [6] = {"g", "Graph"},
    [7] = {"floats", "float", true}, [8] = {"ints", "int", true},
    [9] = {"strings", "text", true}, [20] = {"type", "int"},
    [21] = {"ref_attr_name", "text"}},
  ValueInfo = {[1] = {"name", "text"}, [2] = {"type", "Type"}},
  Type = {[1] = {"tensor_type", "TensorType"}},
  TensorType = {[1] = {"elem_type", "int"}, [2] = {"shape", "Shape"}},
  Shape = {[1] = {"dim", "Dim", true}},
  Dim = {[1] = {"dim_value", "int"}, [2] = {"dim_param", "text"}},
  Entry = {[1] = {"key", "text"}, [2] = {"value", "text"}},
  Tensor = {[1] = {"dims", "int", true}, [2] = {"data_type", "int"},
    [4] = {"float_data", "bytes"}, [5] = {"int32_data", "int", true},
    [7] = {"int64_data", "int64", true}, [8] = {"name", "text"}, [9] = {"raw_data", "place"},
    [10] = {"double_data", "bytes"}, [11] = {"uint64_data", "int64", true},
    [13] = {"external_data", "Entry", true}, [14] = {"data_location", "int"}},
}

local numbers = {} -- message -> list of its field numbers, sorted: the order of writing
for name, fields in pairs(schema) do
  numbers[name] = {}
  for number in pairs(fields) do table.insert(numbers[name], number) end
  table.sort(numbers[name])
end

--- Codes of element types in files, by Moth's dtype, and the reverse; and the C type of an element
-- (half types: their bits).
proto.types = {[0] = 9, 2, 3, 5, 6, 7, 10, 16, 1, 11}
proto.dtypes = {}
for code, number in pairs(proto.types) do proto.dtypes[number] = code end
proto.ctypes = {[0] = "uint8_t", "uint8_t", "int8_t", "int16_t", "int32_t", "int64_t", "uint16_t",
                 "uint16_t", "float", "double"}

--- Codes of attribute types in files, by the field that holds the value.
proto.attribute_types = {f = 1, i = 2, s = 3, t = 4, g = 5, floats = 6, ints = 7, strings = 8}

local TYPES = {[0] = "undefined", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64",
  "string", "bool", "float16", "float64", "uint32", "uint64", "complex64", "complex128", "bfloat16",
  "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1",
  "float8e8m0", "uint2", "int2"}

--- The name of an element type in files.
function proto.type_name(number) return TYPES[number] or tostring(number) end

-- ---- writing ----

local VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

local function varint(n)
  if type(n) == "number" and n >= 0 and n < 128 then return string.char(n) end
  local rest, out = ffi.cast("uint64_t", ffi.cast("int64_t", n)), {}
  repeat
    local low = tonumber(bit.band(rest, 127))
    rest = bit.rshift(rest, 7)
    out[#out + 1] = string.char(rest == 0 and low or low + 128)
  until rest == 0
  return table.concat(out)
end

local function f32_bytes(x)
  local value = ffi.new("float[1]", x)
  return ffi.string(value, 4)
end

local function add(list, piece, size)
  list[#list + 1] = piece
  list.size = list.size + size
end

local function key(list, number, wire)
  local text = varint(number * 8 + wire)
  add(list, text, #text)
end

local function text_field(list, number, text)
  key(list, number, LENGTH)
  local length = varint(#text)
  add(list, length, #length)
  add(list, text, #text)
end

-- A piece with the bytes of a tensor.
local function tensor_field(list, number, x)
  local info = lib.inspect(x)
  local size = tonumber(info.numel * info.itemsize)
  key(list, number, LENGTH)
  local length = varint(size)
  add(list, length, #length)
  add(list, x, size)
end

local encode

local function one(list, number, kind, value)
  if kind == "text" or kind == "bytes" then text_field(list, number, value)
  elseif kind == "place" then
    (type(value) == "string" and text_field or tensor_field)(list, number, value)
  elseif kind == "float" then
    key(list, number, FIXED32)
    add(list, f32_bytes(value), 4)
  elseif kind == "int" or kind == "int64" then
    key(list, number, VARINT)
    local text = varint(value)
    add(list, text, #text)
  else
    local inner = encode(kind, value)
    key(list, number, LENGTH)
    local length = varint(inner.size)
    add(list, length, #length)
    for i = 1, #inner do list[#list + 1] = inner[i] end
    list.size = list.size + inner.size
  end
end

--- The pieces of a message, and their size in bytes.
function encode(message, value)
  local list = {size = 0}
  for _, number in ipairs(numbers[message]) do
    local field = schema[message][number]
    local x = value[field[1]]
    if x ~= nil and field[3] then
      for i = 1, #x do one(list, number, field[2], x[i]) end
    elseif x ~= nil then
      one(list, number, field[2], x)
    end
  end
  return list
end
proto.encode = encode

-- ---- reading ----

local DEEPEST = 100 -- messages inside each other

-- The functions below take a file of bytes.lua, `r`; no message may extend past its end.

local function bytes(r, at, size) return ffi.string(r.start + at, size) end

-- A varint at `at`, which must end before `last`; and the position after it. An int64 if `whole`
-- is true.
local function read_varint(r, at, last, whole)
  local value = 0ULL
  for i = 0, 9 do
    if at >= last then r:refuse("is broken: a number is cut off at byte " .. at) end
    local byte = r.start[at]
    at = at + 1
    value = bit.bor(value, bit.lshift(ffi.cast("uint64_t", byte % 128), 7 * i))
    if byte < 128 then
      local signed = ffi.cast("int64_t", value)
      if whole then return signed, at end
      return tonumber(signed), at
    end
  end
  r:refuse("is broken: a number of more than ten bytes before byte " .. at)
end

-- The bits of a 32-bit number. Read without a float pointer: a NaN in the file must not become a
-- Lua value.
local function f32_of(text)
  local a, b, c, d = text:byte(1, 4)
  local sign = d >= 128 and -1 or 1
  local exponent, fraction = d % 128 * 2 + math.floor(c / 128), c % 128 * 65536 + b * 256 + a
  if exponent == 255 then return fraction == 0 and sign * math.huge or 0 / 0 end
  if exponent == 0 then return sign * math.ldexp(fraction, -149) end
  return sign * math.ldexp(fraction + 8388608, exponent - 150)
end

-- Returns the end and the start of the content of a field that begins at `at`.
local function extent(r, wire, at, last)
  if wire == VARINT then
    local _, stop = read_varint(r, at, last)
    return at, stop
  elseif wire == LENGTH then
    local size
    size, at = read_varint(r, at, last)
    if size < 0 or size > last - at then
      r:refuse(("is broken: a field of %.0f bytes where %d are left, at byte %d"):format(size,
        last - at, at))
    end
    return at, at + size
  end
  local size = wire == FIXED64 and 8 or wire == FIXED32 and 4
  if not size then r:refuse(("is no ONNX file: wire type %d at byte %d"):format(wire, at)) end
  if size > last - at then r:refuse("is broken: a number is cut off at byte " .. at) end
  return at, at + size
end

local decode

local function scalar(r, kind, wire, at, stop)
  if kind == "text" then return wire == LENGTH and bytes(r, at, stop - at) or nil end
  if kind == "float" then return wire == FIXED32 and f32_of(bytes(r, at, 4)) or nil end
  if wire ~= VARINT then return nil end
  return (read_varint(r, at, stop, kind == "int64"))
end

-- The elements of a packed list.
local function unpacked(r, kind, at, stop, list)
  while at < stop do
    local value
    if kind == "float" then
      if stop - at < 4 then r:refuse("is broken: a number is cut off at byte " .. at) end
      value, at = f32_of(bytes(r, at, 4)), at + 4
    else
      value, at = read_varint(r, at, stop, kind == "int64")
    end
    list[#list + 1] = value
  end
end

local function read_field(r, into, field, wire, at, stop, depth)
  local name, kind, many = field[1], field[2], field[3]
  local number = kind == "int" or kind == "int64" or kind == "float"
  if kind == "place" then
    into[name] = {offset = at, size = stop - at}
  elseif kind == "bytes" then -- packed little-endian numbers: stored unchanged
    into[name] = into[name] or {}
    table.insert(into[name], bytes(r, at, stop - at))
  elseif many and number and wire == LENGTH then
    unpacked(r, kind, at, stop, into[name])
  else
    local value
    if schema[kind] then value = wire == LENGTH and decode(r, kind, at, stop, depth + 1) or nil
    else value = scalar(r, kind, wire, at, stop) end
    if value == nil then
      r:refuse(("is broken: wire type %d for field '%s' at byte %d"):format(wire, name, at))
    end
    if many then table.insert(into[name], value) else into[name] = value end
  end
end

--- Reads a message of a file (bytes.lua), from byte `at` to before byte `last`.
function decode(r, message, at, last, depth)
  depth = depth or 0
  if depth > DEEPEST then r:refuse("is broken: messages are nested too deeply") end
  lib.poll()
  local fields, into = schema[message], {}
  for _, field in pairs(fields) do
    if field[3] then into[field[1]] = {} end
  end
  while at < last do
    local tag, stop
    tag, at = read_varint(r, at, last)
    local wire, number = tag % 8, math.floor(tag / 8)
    if number < 1 then r:refuse("is no ONNX file: field 0 at byte " .. at) end
    at, stop = extent(r, wire, at, last)
    local field = fields[number]
    if field then read_field(r, into, field, wire, at, stop, depth) end
    at = stop
  end
  for _, field in pairs(fields) do
    local name = field[1]
    if field[2] == "bytes" and into[name] then into[name] = table.concat(into[name]) end
  end
  return into
end
proto.decode = decode

return proto
