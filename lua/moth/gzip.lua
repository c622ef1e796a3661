--- gzip.lua -- zlib by the FFI: files that are plain or compressed by gzip, read with a name for
-- every failure, and checksums. No memory is asked for before the bytes are there.
--
--     local reader = gzip.open "train-labels-idx1-ubyte.gz"
--     reader:some(buffer, n)     up to n bytes; how many there were
--     reader:rest(size, what)    the rest, exactly `size` bytes, as a string
--     reader:all(limit)          the rest, whatever its size
--     reader:close()

local ffi = require "ffi"
local errors = require "moth.error"
local lib = require "moth.lib"

local gzip = {}

if not pcall(ffi.typeof, "moth_gz") then -- once per state, also when this file is loaded anew
  ffi.cdef [[
  typedef struct moth_gz moth_gz;
  moth_gz *moth_gzopen(const char *path, const char *mode) __asm__("gzopen");
  int moth_gzread(moth_gz *file, void *buffer, unsigned length) __asm__("gzread");
  int moth_gzclose(moth_gz *file) __asm__("gzclose");
  const char *moth_gzerror(moth_gz *file, int *number) __asm__("gzerror");
  unsigned long moth_crc32(unsigned long crc, const char *bytes, unsigned n) __asm__("crc32");
  ]]
end

local PIECE = 2 ^ 20

local zlib

local function find_zlib()
  if zlib then return zlib end
  for _, name in ipairs {"z", "libz.so.1", "libz.1.dylib", "zlib1"} do
    local found, library = pcall(ffi.load, name)
    if found then
      zlib = library
      return zlib
    end
  end
end

--- Raises an error about a file.
function gzip.refuse(path, text, code)
  errors.raise(("%s: %s"):format(path, text), code or "E_FORMAT")
end
local refuse = gzip.refuse

--- The CRC-32 of a string; nil where zlib is missing.
function gzip.crc32(text)
  if not find_zlib() then return nil end
  local crc, at, left = 0, ffi.cast("const char *", text), #text
  while left > 0 do
    local n = math.min(left, 2 ^ 30)
    crc = zlib.moth_crc32(crc, at, n)
    at, left = at + n, left - n
  end
  return tonumber(crc)
end

-- ---- a file ----

local Reader = {}
Reader.__index = Reader

-- What zlib last complained of, or nil.
local function complaint(reader)
  local number = ffi.new("int[1]")
  local text = ffi.string(zlib.moth_gzerror(reader.file, number))
  if number[0] == 0 then return nil end
  local start = reader.path .. ": "
  return text:sub(1, #start) == start and text:sub(#start + 1) or text
end

--- Opens a file. Raises E_IO, or E_UNSUPPORTED where zlib is missing.
function gzip.open(path)
  local plain, why = io.open(path, "rb")
  if not plain then refuse(path, (why:gsub("^.-: ", "")), "E_IO") end
  local start = plain:read(1)
  plain:close()
  if start == nil then refuse(path, "is empty or cannot be read", "E_FORMAT") end
  if not find_zlib() then
    errors.raise("zlib was not found; it is in the Debian package zlib1g", "E_UNSUPPORTED")
  end
  local file = zlib.moth_gzopen(path, "rb") -- reads plain files as they are
  if file == nil then refuse(path, "cannot be opened", "E_IO") end
  return setmetatable({path = path, file = file}, Reader)
end

function Reader:close()
  if self.file then zlib.moth_gzclose(self.file) end
  self.file = nil
end

--- Reads up to n bytes into a buffer. @return how many there were
function Reader:some(buffer, n)
  local got = zlib.moth_gzread(self.file, buffer, n)
  if got < 0 then refuse(self.path, "is damaged: " .. (complaint(self) or "cannot be read")) end
  return got
end

-- The rest of the file up to `most` bytes, as a string. Grows with what arrives.
local function gather(reader, most)
  local buffer, parts, have = lib.array("uint8_t", math.min(most, PIECE)), {}, 0
  while have < most do
    local got = reader:some(buffer, math.min(most - have, PIECE))
    if got == 0 then break end
    have = have + got
    parts[#parts + 1] = ffi.string(buffer, got)
  end
  local problem = complaint(reader) -- of a stream cut short gzread itself says nothing
  if problem then refuse(reader.path, "is damaged: " .. problem) end
  return table.concat(parts)
end

--- The rest of the file as a string: exactly `size` bytes of `what`, else E_FORMAT.
function Reader:rest(size, what)
  local text = gather(self, size + 1)
  if #text > size then refuse(self.path, ("has bytes beyond its %d of %s"):format(size, what)) end
  if #text < size then
    refuse(self.path, ("ends too early: %d of %d bytes of %s"):format(#text, size, what))
  end
  return text
end

--- The rest of the file as a string; E_LIMIT if it is more than `limit` bytes.
function Reader:all(limit)
  local text = gather(self, limit + 1)
  if #text > limit then refuse(self.path, ("is longer than %d bytes"):format(limit), "E_LIMIT") end
  return text
end

return gzip
