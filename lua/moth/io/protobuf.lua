--- protobuf.lua -- protobuf's wire format: messages as tables, by a schema.
--
--     local codec = protobuf.codec("ONNX", {
--       Graph = {[1] = {"node", "Node", true}, [2] = {"name", "text"}},   -- true: repeated
--       Node = {[1] = {"input", "text", true}, [3] = {"name", "text"}},
--     })
--     local pieces = codec.encode("Graph", {name = "net", node = {{name = "a", input = {"x"}}}})
--     codec.decode(file, "Graph", 0, file.size).node[1].name           "a"
--
-- Kinds of fields: text (a string of any bytes), int, int64, float, double, another message, and
--   bytes   packed little-endian numbers, as one string
--   place   bytes that are not read: written from a string or a contiguous tensor, read as
--           {offset, size}
-- Writing returns a list of pieces (strings, and tensors whose bytes C writes), so large values
-- never become Lua strings. Each length in a file is checked against the rest of the message that
-- contains it.
--
-- Format: protobuf.dev, "Encoding".

local bit = require "bit"
local ffi = require "ffi"
local lib = require "moth.binding.lib"

local protobuf = {}

local VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

-- ---- writing ----

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
protobuf.varint = varint

local function number_bytes(ctype, x)
  local value = ffi.new(ctype, x)
  return ffi.string(value, ffi.sizeof(value))
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

-- Writes a field. encode: the function for messages inside the message.
local function write_field(encode, list, number, kind, value)
  if kind == "text" or kind == "bytes" then text_field(list, number, value)
  elseif kind == "place" then
    (type(value) == "string" and text_field or tensor_field)(list, number, value)
  elseif kind == "float" then
    key(list, number, FIXED32)
    add(list, number_bytes("float[1]", value), 4)
  elseif kind == "double" then
    key(list, number, FIXED64)
    add(list, number_bytes("double[1]", value), 8)
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

local function encoder(schema)
  local numbers = {} -- message -> list of its field numbers, sorted: the order of writing
  for name, fields in pairs(schema) do
    numbers[name] = {}
    for number in pairs(fields) do table.insert(numbers[name], number) end
    table.sort(numbers[name])
  end
  local function encode(message, value)
    local list = {size = 0}
    for _, number in ipairs(numbers[message]) do
      local field = schema[message][number]
      local x = value[field[1]]
      if x ~= nil and field[3] then
        for i = 1, #x do write_field(encode, list, number, field[2], x[i]) end
      elseif x ~= nil then
        write_field(encode, list, number, field[2], x)
      end
    end
    return list
  end
  return encode
end

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

-- A float or double at `at`.
local function read_float(r, kind, at)
  r.at = at
  if kind == "double" then return r:double() end
  return r:single()
end

local FIXED = {float = FIXED32, double = FIXED64}
local WIDTH = {[FIXED64] = 8, [FIXED32] = 4}

-- Returns the end and the start of the content of a field that begins at `at`.
local function extent(r, format, wire, at, last)
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
  local size = WIDTH[wire]
  if not size then r:refuse(("is no %s file: wire type %d at byte %d"):format(format, wire, at)) end
  if size > last - at then r:refuse("is broken: a number is cut off at byte " .. at) end
  return at, at + size
end

local function scalar(r, kind, wire, at, stop)
  if kind == "text" then return wire == LENGTH and bytes(r, at, stop - at) or nil end
  if FIXED[kind] then return wire == FIXED[kind] and read_float(r, kind, at) or nil end
  if wire ~= VARINT then return nil end
  return (read_varint(r, at, stop, kind == "int64"))
end

-- The elements of a packed list.
local function unpacked(r, kind, at, stop, list)
  local width = WIDTH[FIXED[kind]]
  while at < stop do
    local value
    if width then
      if stop - at < width then r:refuse("is broken: a number is cut off at byte " .. at) end
      value, at = read_float(r, kind, at), at + width
    else
      value, at = read_varint(r, at, stop, kind == "int64")
    end
    list[#list + 1] = value
  end
end

-- Reads a field. decode: the function for messages inside the message; nil for other kinds.
local function read_field(r, decode, into, field, wire, at, stop, depth)
  local name, kind, many = field[1], field[2], field[3]
  local number = kind == "int" or kind == "int64" or FIXED[kind]
  if kind == "place" then
    into[name] = {offset = at, size = stop - at}
  elseif kind == "bytes" then -- packed little-endian numbers: stored unchanged
    into[name] = into[name] or {}
    table.insert(into[name], bytes(r, at, stop - at))
  elseif many and number and wire == LENGTH then
    unpacked(r, kind, at, stop, into[name])
  else
    local value
    if decode then value = wire == LENGTH and decode(r, kind, at, stop, depth + 1) or nil
    else value = scalar(r, kind, wire, at, stop) end
    if value == nil then
      r:refuse(("is broken: wire type %d for field '%s' at byte %d"):format(wire, name, at))
    end
    if many then table.insert(into[name], value) else into[name] = value end
  end
end

local function decoder(format, schema)
  local function decode(r, message, at, last, depth)
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
      if number < 1 then r:refuse(("is no %s file: field 0 at byte %d"):format(format, at)) end
      at, stop = extent(r, format, wire, at, last)
      local field = fields[number]
      if field then
        read_field(r, schema[field[2]] and decode, into, field, wire, at, stop, depth)
      end
      at = stop
    end
    for _, field in pairs(fields) do
      local name = field[1]
      if field[2] == "bytes" and into[name] then into[name] = table.concat(into[name]) end
    end
    return into
  end
  return decode
end

--- The codec of a format.
-- @param format  its name, for messages: "ONNX"
-- @param schema  message -> field number -> {name, kind, repeated}
-- @return a table of two functions:
--   encode(message, value)         the pieces of a message as a list, and its `size` in bytes
--   decode(r, message, at, last)   reads a message of a file of bytes.lua, from byte `at` to
--                                  before byte `last`
function protobuf.codec(format, schema)
  return {encode = encoder(schema), decode = decoder(format, schema)}
end

return protobuf
