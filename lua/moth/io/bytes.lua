--- bytes.lua -- binary input and output for the file formats of other programs. A file is mapped.
-- Numbers are read at a position that advances; each read is checked against the end of the file.
--
--     local file = bytes.open(path, "load")
--     file:int(4)  file:text(8)  file:double()      read at file.at, which counts from 0
--     file:tensor("float32", {2, 3}, from)          shares the file's pages if it is aligned
--     bytes.save(path, {"head", x}, "save")         writes the whole file or nothing
--
-- No float is read through a float pointer: a NaN in the file could be a forged Lua value.

local ffi = require "ffi"
local dtype = require "moth.tensor.dtype"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local system = require "moth.base.system"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local bytes = {}

local File = {}
File.__index = File

local Eight = ffi.typeof "union { uint8_t byte[8]; uint64_t word; double number; }"
local Four = ffi.typeof "union { uint8_t byte[4]; uint32_t word; float number; }"

--- Raises an error about the file: "bad argument 'path' to 'load' ('net.t7' is broken: ...)".
function File:refuse(text, code)
  errors.argument(self.fname, self.argument, self.shown .. " " .. text, code or "E_FORMAT")
end

--- Advances by n bytes. @return the position of the first of them
function File:take(n, what)
  local at = self.at
  if not (n >= 0 and n <= self.size - at) then
    self:refuse(("is broken: %s, %.0f bytes at byte %.0f, would lie beyond its end at %.0f"):format(
      what or "a value", n, at, self.size))
  end
  self.at = at + n
  return at
end

--- A string of n bytes.
function File:text(n, what)
  local at = self:take(n, what)
  return ffi.string(self.start + at, n)
end

-- An unsigned little-endian number of up to 8 bytes, as a uint64.
local function word(self, width)
  local at, value = self:take(width, "a number"), 0ULL
  for i = width - 1, 0, -1 do value = value * 256 + self.start[at + i] end
  return value
end

--- An unsigned integer; values above 2^53 are rounded, and larger than any file.
function File:uint(width) return tonumber(word(self, width)) end

--- An unsigned integer of 8 bytes: a Lua number if that is exact, else an int64, or a uint64 if it
-- does not fit.
function File:uint64()
  local value = word(self, 8)
  if value < 2ULL ^ 53 then return tonumber(value) end
  return value < 2ULL ^ 63 and ffi.cast("int64_t", value) or value
end

--- A signed integer: a Lua number if that is exact, else an int64.
function File:int(width)
  local value = ffi.cast("int64_t", word(self, width))
  if width < 8 then
    local number = tonumber(value)
    return number >= 2 ^ (8 * width - 1) and number - 2 ^ (8 * width) or number
  end
  local number = tonumber(value)
  return math.abs(number) < 2 ^ 53 and number or value
end

--- A double. Any NaN becomes the NaN that Lua can store.
function File:double()
  local value = Eight()
  value.word = word(self, 8)
  local exponent = value.byte[7] % 128 * 16 + math.floor(value.byte[6] / 16)
  if exponent == 2047 and value.word % 2 ^ 52 ~= 0 then return 0 / 0 end
  return value.number
end

--- A float of 4 bytes.
function File:single()
  local value = Four()
  value.word = word(self, 4)
  local exponent = value.byte[3] % 128 * 2 + math.floor(value.byte[2] / 128)
  if exponent == 255 and value.word % 2 ^ 23 ~= 0 then return 0 / 0 end
  return value.number
end

--- The bytes of a contiguous uint8 tensor as elements of another dtype. The result shares the
-- memory if it is aligned, else it is a copy. Raises if there are too few bytes.
-- @param x      the tensor
-- @param name   the dtype's name
-- @param shape  a list of sizes
-- @param from   the offset of the first byte (default 0)
-- @param fname  the function that errors name
-- @param swapped  the bytes of each element are in reverse order: the result is a copy
function bytes.as(x, name, shape, from, fname, swapped)
  local sizes, h = lib.int64s(math.max(#shape, 1)), Handle()
  for d, n in ipairs(shape) do sizes[d - 1] = n end
  if swapped then lib.declare "swapped" end
  local read, code = swapped and C.moth_from_swapped or C.moth_reinterpret,
    dtype.codes[dtype.by_name[name]]
  local status = read(ctx, x, from or 0, code, sizes, #shape, h)
  if lib.recover(status) then status = read(ctx, x, from or 0, code, sizes, #shape, h) end
  lib.check(status, fname)
  return lib.adopt(h, status)
end

--- The address of the bytes of a contiguous uint8 tensor on the CPU.
function bytes.address(x) return ffi.cast("const uint8_t *", lib.data(x, "moth.io")) end

--- A tensor of the file's bytes, starting at `from`.
function File:tensor(name, shape, from) return bytes.as(self.all, name, shape, from, self.fname) end

--- Closes the file now. Tensors that share its pages stay valid.
function File:close() self.all:free() end

-- ---- bytes in memory instead of a file ----

local Memory = {}
Memory.__index = Memory

--- Wraps bytes in memory, which readers accept instead of a path.
-- @param value  a string, an FFI array, or a contiguous uint8 tensor on the CPU
-- @return an object with `at`, `size` and `shown`; nil for another value
function bytes.memory(value)
  local self = {anchor = value, shown = "this data"}
  if type(value) == "string" then
    self.at, self.size = value, #value
  elseif lib.istensor(value) then
    local info = lib.inspect(value)
    if info.dtype ~= C.MOTH_U8 or tostring(value.device) ~= "cpu" then return nil end
    self.anchor = value:contiguous()
    self.at, self.size = lib.data(self.anchor, "moth.io"), value:numel()
  elseif type(value) == "cdata" and tostring(ffi.typeof(value)):find "%[[%d?]+%]>$" then
    self.at, self.size = value, ffi.sizeof(value)
  else
    return nil
  end
  self.at = ffi.cast("const char *", self.at)
  return setmetatable(self, Memory)
end

--- The source of a reader that takes a path or bytes: exactly one of them must be given.
function bytes.source(path, given, fname)
  if (path == nil) == (given == nil) then
    errors.argument(fname, "path", path and "there are bytes as well"
      or "a path is needed, or bytes = a string")
  elseif path and path:find "%z" then
    errors.argument(fname, "path", "a path cannot hold a NUL; the bytes of a file are given by "
      .. "name: {bytes = s}")
  elseif path then
    return path
  end
  return bytes.memory(given) or errors.argument(fname, "bytes", "a string, an array of the FFI's "
    .. "or a uint8 tensor on the CPU is needed, got " .. errors.describe(given), "E_TYPE")
end

--- The bytes of a path or of memory as a moth_text, for C.
function bytes.text_of(source)
  local text, memory = ffi.new "moth_text[1]", getmetatable(source) == Memory
  text[0].at, text[0].size = memory and source.at or source, memory and source.size or #source
  return text
end

--- Returns true if a reader's `path` is bytes in memory.
function bytes.is_memory(path) return getmetatable(path) == Memory end

-- The bytes of a source as a tensor.
local function tensor_of(source, fname, argument, mmap)
  local h, shape = Handle(), lib.int64s(1)
  shape[0] = source.size or 0
  local status = bytes.is_memory(source)
    and C.moth_from_bytes(ctx, C.MOTH_U8, shape, 1, source.at, source.size, h)
    or C.moth_file_open(ctx, bytes.text_of(source), mmap == false and 0 or 1, h)
  if status < 0 then errors.status(status, fname, argument) end
  lib.check(status, fname)
  return lib.adopt(h, 0)
end

--- Opens a file.
-- @param path      the file, or bytes.memory(...)
-- @param fname     the function that errors name
-- @param argument  ... and its argument (default "path")
-- @param mmap      share the file's pages (default true)
-- @return the file: `size`, `at`, `shown` (its path, for messages), and the methods above; it is
-- unmapped with the last tensor that shares its pages
-- Raises E_IO.
function bytes.open(path, fname, argument, mmap)
  local memory = bytes.is_memory(path)
  argument = memory and "bytes" or argument or "path"
  local all = tensor_of(path, fname, argument, mmap)
  local start = bytes.address(all)
  return setmetatable({path = path, shown = memory and path.shown or errors.path(path),
    fname = fname, all = all, argument = argument, start = start, size = all:numel(),
    at = 0}, File)
end

--- Checks that a file is in the folder of another file, or below it, with links resolved. (On
-- Windows only administrators make links, and they are rare.)
function bytes.beside(path, other)
  if system.windows then return true end
  local text = ffi.new "moth_text[2]"
  text[0].at, text[0].size = path, #path
  text[1].at, text[1].size = other, #other
  return C.moth_file_beside(ctx, text, text + 1) == 1
end

--- Writes a file: all of it or nothing.
-- @param path     the file
-- @param pieces   a list of strings and tensors; their bytes are written in order
-- @param fname    the function that errors name
-- @param durable  wait until it is on the disk (default true)
-- @param argname  the argument of fname with the file's name (default "path")
-- Raises E_IO.
function bytes.save(path, pieces, fname, durable, argname)
  local array, one = lib.array("moth_piece", #pieces), ffi.new "moth_text[1]"
  for i, piece in ipairs(pieces) do
    local at = array[i - 1]
    if type(piece) == "string" then at.text.at, at.text.size = piece, #piece
    else at.tensor = piece end
  end
  one[0].at, one[0].size = path, #path
  local status = C.moth_file_save(ctx, one, array, #pieces, durable == false and 0 or 1)
  if status < 0 then errors.status(status, fname, argname) end
end

return bytes
