--- zip.lua -- reads zip archives: PyTorch's files and NumPy's .npz files. The file is mapped. Each
-- offset is checked against the file before it is used, and only requested members are read.
-- Members are stored, or compressed by deflate.
--
--     local archive = zip.open("net.pth", "load")
--     archive:read "net/data.pkl"                          the bytes, their CRC checked
--     archive:tensor("net/data/0", "float32", {2, 3})      as a tensor; shares the pages if aligned
--
-- Format: PKWARE, APPNOTE.TXT 6.3 (sections 4.3 and 4.5).

local bit = require "bit"
local ffi = require "ffi"
local deflate = require "moth.io.deflate"
local files = require "moth.io.bytes"
local gzip = require "moth.io.gzip"
local shown = require("moth.error").shown

local zip = {}

local Archive = {}
Archive.__index = Archive

local END_SIZE, LOCATOR_SIZE, END64_SIZE, ENTRY_SIZE, LOCAL_SIZE = 22, 20, 56, 46, 30
local LONGEST_COMMENT = 65535
local MOST_ENTRIES = 10 ^ 6
local LARGEST_DIRECTORY = 2 ^ 28 -- bytes; a larger value means a broken file

local function refuse(archive, text, code) archive.file:refuse(text, code) end

-- ---- little-endian numbers of a string, `at` counted from 1 ----

local function u16(s, at)
  local a, b = s:byte(at, at + 1)
  return a + b * 2 ^ 8
end

local function u32(s, at) return u16(s, at) + u16(s, at + 2) * 2 ^ 16 end

-- Values above 2^53 are not exact, but larger than any file.
local function u64(s, at) return u32(s, at) + u32(s, at + 4) * 2 ^ 32 end

-- ---- the file ----

-- Exactly `size` bytes from `offset`, counted from 0.
local function bytes(archive, offset, size, what)
  if offset + size > archive.file.size then
    refuse(archive, ("is broken: %s would lie beyond its end"):format(what))
  end
  archive.file.at = offset
  return archive.file:text(size, what)
end

-- Finds the directory: its offset, size and number of entries.
local function find_directory(archive)
  local tail_size = math.min(archive.file.size, END_SIZE + LONGEST_COMMENT)
  local tail = bytes(archive, archive.file.size - tail_size, tail_size, "its last record")
  local at
  for i = #tail - END_SIZE + 1, 1, -1 do
    if tail:sub(i, i + 3) == "PK\5\6" and u16(tail, i + 20) <= #tail - i - END_SIZE + 1 then
      at = i
      break
    end
  end
  if not at then refuse(archive, "is no complete zip archive: it has no last record") end
  local count, size, offset = u16(tail, at + 10), u32(tail, at + 12), u32(tail, at + 16)
  local small = count < 0xFFFF and size < 0xFFFFFFFF and offset < 0xFFFFFFFF
  if small then return offset, size, count end
  local here = archive.file.size - tail_size + at - 1
  if here < LOCATOR_SIZE then refuse(archive, "is broken: its zip64 record is missing") end
  local locator = bytes(archive, here - LOCATOR_SIZE, LOCATOR_SIZE, "its zip64 locator")
  if locator:sub(1, 4) ~= "PK\6\7" then return offset, size, count end
  local record = bytes(archive, u64(locator, 9), END64_SIZE, "its zip64 record")
  if record:sub(1, 4) ~= "PK\6\6" then refuse(archive, "is broken: its zip64 record is wrong") end
  return u64(record, 49), u64(record, 41), u64(record, 33)
end

-- Reads the 64-bit fields of an entry from extra field 1, which has those above 32 bits only.
local function widen(archive, entry, extra)
  local at = 1
  while at + 3 <= #extra do
    local id, size = u16(extra, at), u16(extra, at + 2)
    if at + 3 + size > #extra then break end
    if id == 1 then
      local field, last = at + 4, at + 3 + size
      for _, name in ipairs {"size", "packed", "offset"} do
        if entry[name] == 0xFFFFFFFF then
          if field + 7 > last then refuse(archive, "is broken: a zip64 field is too short") end
          entry[name], field = u64(extra, field), field + 8
        end
      end
    end
    at = at + 4 + size
  end
end

local function read_directory(archive)
  local offset, size, count = find_directory(archive)
  if count > MOST_ENTRIES or size > LARGEST_DIRECTORY or count * ENTRY_SIZE > size then
    refuse(archive, ("is broken: %.0f members in %.0f bytes"):format(count, size))
  end
  local text, at, all = bytes(archive, offset, size, "its directory"), 1, 0
  for _ = 1, count do
    if at + ENTRY_SIZE - 1 > #text or text:sub(at, at + 3) ~= "PK\1\2" then
      refuse(archive, "is broken: an entry of its directory is wrong")
    end
    local name_size, extra_size = u16(text, at + 28), u16(text, at + 30)
    local after = at + ENTRY_SIZE + name_size + extra_size + u16(text, at + 32)
    if after - 1 > #text then refuse(archive, "is broken: its directory ends too early") end
    local name = text:sub(at + ENTRY_SIZE, at + ENTRY_SIZE + name_size - 1)
    local entry = {
      flags = u16(text, at + 8), method = u16(text, at + 10), crc = u32(text, at + 16),
      packed = u32(text, at + 20), size = u32(text, at + 24), offset = u32(text, at + 42),
    }
    widen(archive, entry, text:sub(at + ENTRY_SIZE + name_size,
      at + ENTRY_SIZE + name_size + extra_size - 1))
    all = all + entry.packed -- overlapping members would let a small file expand without limit
    if all > archive.file.size then refuse(archive, "is broken: its members overlap") end
    if archive.entries[name] then refuse(archive, "has two members " .. shown(name)) end
    archive.entries[name] = entry
    archive.names[#archive.names + 1] = name
    at = after
  end
end

--- The number of bytes of a member, or nil if the archive has no such member.
function Archive:length(name)
  local entry = self.entries[name]
  return entry and entry.size
end

-- The bytes of a compressed member, as a uint8 tensor.
local function inflated(self, entry, start, what)
  if entry.method ~= 8 then
    refuse(self, ("has %s compressed by method %d; deflate is known"):format(what, entry.method),
      "E_UNSUPPORTED")
  elseif entry.size > entry.packed * deflate.MOST_PER_BYTE then
    refuse(self, ("is broken: %s, %.0f bytes, claims to have %.0f"):format(what, entry.packed,
      entry.size))
  end
  local x, why = deflate.inflate(self.file.start + start, entry.packed, entry.size)
  if not x then
    refuse(self, why == deflate.MISSING and ("has %s compressed, but %s"):format(what, why)
      or ("is damaged: %s %s"):format(what, why), why == deflate.MISSING and "E_UNSUPPORTED" or nil)
  end
  self.inflated = x -- keeps the address valid
  return x, files.address(x)
end

--- The bytes of a member, their checksum compared.
-- @return a uint8 tensor, the offset of the first byte in it, the number of bytes, their address
function Archive:bytes(name)
  local entry = self.entries[name]
  if not entry then refuse(self, "has no member " .. shown(name)) end
  local what = "its member " .. shown(name)
  if bit.band(entry.flags, 1) ~= 0 then refuse(self, what .. " is encrypted", "E_UNSUPPORTED") end
  local head = bytes(self, entry.offset, LOCAL_SIZE, what)
  if head:sub(1, 4) ~= "PK\3\4" then refuse(self, "is broken: " .. what .. " is not there") end
  self.file.at = entry.offset + LOCAL_SIZE + u16(head, 27) + u16(head, 29)
  local start = self.file:take(entry.packed, what)
  local all, from, address = self.file.all, start, self.file.start + start
  if entry.method ~= 0 then
    all, address = inflated(self, entry, start, what)
    from = 0
  elseif entry.packed ~= entry.size then
    refuse(self, ("is broken: %s is stored, but has two sizes"):format(what))
  end
  local crc = gzip.crc32(address, entry.size)
  if crc and crc ~= entry.crc then
    refuse(self, ("is damaged: %s has a wrong checksum"):format(what))
  end
  return all, from, entry.size, address
end

--- The bytes of a member, as a string.
function Archive:read(name)
  local _, _, size, address = self:bytes(name)
  return ffi.string(address, size)
end

--- Closes the file. Tensors that share its pages stay valid.
function Archive:close() self.file:close() end

--- A member as a tensor that shares the file's pages, or a copy if they are not aligned.
-- @param name   the member
-- @param kind   the name of its dtype
-- @param shape  a list of sizes; the member may have more elements
function Archive:tensor(name, kind, shape)
  local all, from = self:bytes(name)
  return files.as(all, kind, shape, from, self.file.fname)
end

--- Opens an archive and reads its directory.
-- @param path   the file
-- @param fname  the function that errors name
-- @param mmap   share the file's pages instead of reading it (default true)
-- @return the archive: `names` in its order, `:length(name)`, `:read(name)`, `:tensor(name, ...)`
function zip.open(path, fname, mmap)
  local archive = setmetatable({entries = {}, names = {},
    file = files.open(path, fname, "path", mmap)}, Archive)
  read_directory(archive)
  return archive
end

return zip
