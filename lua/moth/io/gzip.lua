--- gzip.lua -- zlib through the FFI, and libdeflate if it is installed: reads plain and gzip
-- files, and computes checksums. Every failure raises an error that names the file. No memory is
-- allocated before the bytes are known to exist.
--
--     local reader = gzip.open("train-labels-idx1-ubyte.gz", "idx")
--     reader:some(buffer, n)     reads up to n bytes; returns their number
--     reader:expect(size, what)  raises unless the file can be long enough for `size` more bytes
--     reader:fill(buffer, size, what)  the rest, exactly `size` bytes, directly into memory
--     reader:all(limit)          the rest, whatever its size, as a string
--     reader:close()

local ffi = require "ffi"
local bytes = require "moth.io.bytes"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local system = require "moth.base.system"

local gzip = {}

if not pcall(ffi.typeof, "moth_gz") then -- once per state, even if this file is loaded again
  ffi.cdef [[
  typedef struct moth_gz moth_gz;
  moth_gz *moth_gzopen(const char *path, const char *mode) __asm__("gzopen");
  int moth_gzread(moth_gz *file, void *buffer, unsigned length) __asm__("gzread");
  int moth_gzclose(moth_gz *file) __asm__("gzclose");
  int moth_gzbuffer(moth_gz *file, unsigned size) __asm__("gzbuffer");
  const char *moth_gzerror(moth_gz *file, int *number) __asm__("gzerror");
  unsigned long moth_crc32(unsigned long crc, const char *bytes, unsigned n) __asm__("crc32");
  long moth_gztell(moth_gz *file) __asm__("gztell");
  typedef struct moth_gz_inflater moth_gz_inflater;
  moth_gz_inflater *moth_gz_inflater_new(void) __asm__("libdeflate_alloc_decompressor");
  void moth_gz_inflater_free(moth_gz_inflater *d) __asm__("libdeflate_free_decompressor");
  int moth_gz_inflate(moth_gz_inflater *d, const void *from, size_t length, void *to, size_t room,
                   size_t *used, size_t *made) __asm__("libdeflate_gzip_decompress_ex");
  uint32_t moth_gz_crc32(uint32_t crc, const void *bytes, size_t n) __asm__("libdeflate_crc32");
  void *moth_gz_malloc(size_t n) __asm__("malloc");
  void moth_gz_free(void *block) __asm__("free");
  ]]
end

local PIECE = 2 ^ 20
local INPUT = 2 ^ 17 -- zlib's default of 8 KiB copies its 32 KiB window too often
local MOST_PER_BYTE = 1032 -- the largest expansion of one byte by deflate

local function load_any(names)
  for _, name in ipairs(names) do
    local found, library = pcall(ffi.load, name)
    if found then return library end
  end
end

local zlib

local function find_zlib()
  zlib = zlib or load_any {"z", "libz.so.1", "libz.1.dylib", "zlib1"}
  return zlib
end

local deflate

local function find_deflate()
  if deflate == nil then
    deflate = load_any {"libdeflate.so.0", "deflate", "libdeflate.0.dylib"} or false
  end
  return deflate
end

gzip.find_zlib, gzip.find_deflate = find_zlib, find_deflate

--- Raises an error about a file.
function gzip.refuse(path, text, code)
  errors.raise(("%s: %s"):format(errors.path(path), text), code or "E_FORMAT")
end
local refuse = gzip.refuse

--- The CRC-32 of a string, or of `size` bytes at an address; nil where both libraries are missing.
-- libdeflate takes a tenth of zlib's time.
-- @param crc  that of the bytes before (default 0)
function gzip.crc32(text, size, crc)
  local at, left = ffi.cast("const char *", text), size or #text
  crc = crc or 0
  if find_deflate() then return deflate.moth_gz_crc32(crc, at, left) end
  if not find_zlib() then return nil end
  while left > 0 do
    local n = math.min(left, 2 ^ 30)
    crc = zlib.moth_crc32(crc, at, n)
    at, left = at + n, left - n
  end
  return tonumber(crc)
end

local function need_zlib()
  if find_zlib() then return zlib end
  errors.raise("zlib was not found; it is "
    .. (system.windows and "zlib1.dll" or "in the Debian package zlib1g"), "E_UNSUPPORTED")
end

-- ---- a file ----

local Reader = {}
Reader.__index = Reader

-- The last error message of zlib, or nil.
local function complaint(reader)
  local number = ffi.new("int[1]")
  local text = ffi.string(zlib.moth_gzerror(reader.file, number))
  if number[0] == 0 then return nil end
  local start = reader.path .. ": "
  return text:sub(1, #start) == start and text:sub(#start + 1) or text
end

--- Opens a file. Raises E_IO, or E_UNSUPPORTED if zlib is missing.
-- @param path      the file
-- @param fname     the function that errors name
-- @param argument  ... and its argument (default "path")
function gzip.open(path, fname, argument)
  local whole = bytes.open(path, fname, argument) -- opening a pipe would block in zlib
  if whole.size == 0 then whole:refuse "is empty" end
  need_zlib()
  local file = zlib.moth_gzopen(path, "rb") -- reads plain files as they are
  if file == nil then whole:refuse("cannot be opened", "E_IO") end
  zlib.moth_gzbuffer(file, INPUT)
  return setmetatable({path = path, file = file, whole = whole}, Reader)
end

function Reader:close()
  if self.file then zlib.moth_gzclose(self.file) end
  self.file = nil
  self.whole:close()
end

--- Reads up to n bytes into a buffer. @return how many there were
function Reader:some(buffer, n)
  lib.poll()
  local got = zlib.moth_gzread(self.file, buffer, n)
  if got < 0 then refuse(self.path, "is damaged: " .. (complaint(self) or "cannot be read")) end
  return got
end

-- Reads up to `most` bytes of the rest: returns a list of strings and their total size.
local function gather(reader, most)
  local buffer, parts, have = lib.array("uint8_t", math.min(most, PIECE)), {}, 0
  while have < most do
    local got = reader:some(buffer, math.min(most - have, PIECE))
    if got == 0 then break end
    have = have + got
    parts[#parts + 1] = ffi.string(buffer, got)
  end
  local problem = complaint(reader) -- gzread does not report a truncated stream
  if problem then refuse(reader.path, "is damaged: " .. problem) end
  return parts, have
end

local function too_short(reader, have, size, what)
  refuse(reader.path, ("ends too early: %d of %d bytes of %s"):format(have, size, what))
end

--- Raises E_FORMAT if the file is too short to hold `size` more bytes of `what` at the best
-- compression. Called before memory is allocated.
function Reader:expect(size, what)
  if size > self.whole.size * MOST_PER_BYTE then
    local _, have = gather(self, size)
    too_short(self, have, size, what)
  end
end

-- ---- a whole file at once ----

-- libdeflate takes 0.4 of zlib's time, but needs the whole file and its result in memory.
local MIN_BYTES = 2 ^ 20 -- bytes; smaller files do not need it

-- Inflates a file in memory. @return true if it was one gzip stream of exactly `size` bytes
local function inflate(from, length, to, size)
  local inflater = deflate.moth_gz_inflater_new()
  if inflater == nil then return false end
  local used, made = ffi.new "size_t[1]", ffi.new "size_t[1]"
  local status = deflate.moth_gz_inflate(inflater, from, length, to, size, used, made)
  deflate.moth_gz_inflater_free(inflater)
  return status == 0 and used[0] == length and made[0] == size
end

--- Inflates the rest of a gzip file into a buffer, from the reader's position. It inflates the
-- whole file into a scratch buffer and copies the rest, because libdeflate cannot skip bytes.
-- @return false if libdeflate cannot be used, or if the file is broken: zlib then reads it and
-- reports the error
function gzip.at_once(reader, buffer, size)
  local whole, before = reader.whole, tonumber(zlib.moth_gztell(reader.file))
  if size < MIN_BYTES or whole.size > size or not find_deflate() then return false end
  local scratch = ffi.C.moth_gz_malloc(before + size)
  local good = scratch ~= nil and inflate(whole.start, whole.size, scratch, before + size)
  if good then ffi.copy(buffer, ffi.cast("uint8_t *", scratch) + before, size) end
  ffi.C.moth_gz_free(scratch)
  return good
end

--- Reads the rest of the file into a buffer: exactly `size` bytes of `what`, else raises E_FORMAT.
function Reader:fill(buffer, size, what)
  if gzip.at_once(self, buffer, size) then return end
  local have, beyond = 0, lib.array("uint8_t", 1)
  while have < size do
    local got = self:some(buffer + have, math.min(size - have, 16 * PIECE))
    if got == 0 then break end
    have = have + got
  end
  local more = self:some(beyond, 1) -- at the end zlib compares the checksum
  local problem = complaint(self)
  if problem then refuse(self.path, "is damaged: " .. problem) end
  if more > 0 then refuse(self.path, ("has bytes beyond its %d of %s"):format(size, what)) end
  if have < size then too_short(self, have, size, what) end
end

--- Returns the rest of the file as a string; raises E_LIMIT above `limit` bytes.
function Reader:all(limit)
  local parts, have = gather(self, limit + 1)
  if have > limit then refuse(self.path, ("is longer than %d bytes"):format(limit), "E_LIMIT") end
  return table.concat(parts)
end

return gzip
