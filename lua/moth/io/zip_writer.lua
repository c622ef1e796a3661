--- zip_writer.lua -- makes zip archives. The bytes of a stored member begin at a multiple of 64, so
-- that a reader can map them.
--
--     local writer = zip_writer.new(false)
--     writer:add("a.npy", "head", tensor)
--     bytes.save(path, writer:finish(), "save")
--
-- Format: PKWARE, APPNOTE.TXT 6.3 (sections 4.3 and 4.5).

local ffi = require "ffi"
local bytes = require "moth.io.bytes"
local deflate = require "moth.io.deflate"
local errors = require "moth.error"
local gzip = require "moth.io.gzip"

local zip_writer = {}

local Writer = {}
Writer.__index = Writer

local ALIGNMENT = 64
local DATE = 0x21        -- 1 January 1980: the same arrays give the same file
local UTF8 = 0x800       -- flag: names are UTF-8

zip_writer.largest = 0xFFFFFFFE -- larger sizes, offsets and counts need the records of zip64
zip_writer.most_members = 0xFFFE

local function le(n, width)
  local list = {}
  for i = 1, width do
    list[i] = n % 256
    n = math.floor(n / 256)
  end
  return string.char(unpack(list))
end

-- A field of 4 bytes; all bits are set if the number is too large.
local function field(n) return le(n > zip_writer.largest and 0xFFFFFFFF or n, 4) end

-- The extra field of zip64, with the numbers that were too large.
local function wide(numbers)
  return numbers == "" and "" or le(1, 2) .. le(#numbers, 2) .. numbers
end

-- The head and the elements of x as one uint8 tensor.
local function joined(head, x)
  local size = x:numel() * x.dtype.itemsize
  local all = require("moth").empty(#head + size, {dtype = require("moth").uint8})
  local to = ffi.cast("uint8_t *", bytes.address(all))
  ffi.copy(to, head, #head)
  ffi.copy(to + #head, bytes.address(x), size)
  return all
end

--- Adds a member.
-- @param name  its name
-- @param head  its first bytes, a string
-- @param x     a tensor: its elements follow
function Writer:add(name, head, x)
  x = x:cpu():contiguous()
  local size = #head + x:numel() * x.dtype.itemsize
  local crc = gzip.crc32(head)
  crc = crc and gzip.crc32(bytes.address(x), size - #head, crc)
  if not crc then errors.raise("zlib was not found, which computes the checksums of .npz files",
    "E_UNSUPPORTED") end
  local parts, packed = {head, x}, size
  if self.compressed then
    parts = {deflate.compress(joined(head, x))}
    packed = parts[1]:numel()
  end
  local big = math.max(size, packed) > zip_writer.largest
  local both = big and le(size, 8) .. le(packed, 8) or ""
  local offset = self.offset > zip_writer.largest and le(self.offset, 8) or ""
  local common = le(big and 45 or 20, 2) .. le(UTF8, 2) .. le(self.compressed and 8 or 0, 2)
    .. le(0, 2) .. le(DATE, 2) .. le(crc, 4) .. field(big and 2 ^ 53 or packed)
    .. field(big and 2 ^ 53 or size) .. le(#name, 2)
  local extra, last = wide(both), wide(both .. offset)
  if not self.compressed then
    local gap = -(self.offset + 30 + #name + #extra + 4) % ALIGNMENT
    extra = extra .. "FB" .. le(gap, 2) .. ("\0"):rep(gap)
  end
  local start = "PK\3\4" .. common .. le(#extra, 2) .. name .. extra
  self.directory[#self.directory + 1] = "PK\1\2" .. le(45, 2) .. common .. le(#last, 2)
    .. ("\0"):rep(10) .. field(self.offset) .. name .. last
  self.pieces[#self.pieces + 1] = start
  for _, part in ipairs(parts) do self.pieces[#self.pieces + 1] = part end
  self.offset = self.offset + #start + packed
end

--- Ends the archive. @return its pieces, for bytes.save
function Writer:finish()
  local count, offset, all = #self.directory, self.offset, table.concat(self.directory)
  local last = ""
  if count > zip_writer.most_members or math.max(offset, #all) > zip_writer.largest then
    last = "PK\6\6" .. le(44, 8) .. le(45, 2) .. le(45, 2) .. le(0, 8) .. le(count, 8)
      .. le(count, 8) .. le(#all, 8) .. le(offset, 8)
      .. "PK\6\7" .. le(0, 4) .. le(offset + #all, 8) .. le(1, 4)
  end
  local shown = le(math.min(count, zip_writer.most_members + 1), 2)
  self.pieces[#self.pieces + 1] = all .. last .. "PK\5\6" .. le(0, 4) .. shown .. shown
    .. field(#all) .. field(offset) .. le(0, 2)
  return self.pieces
end

--- A writer without members.
-- @param compressed  members are compressed by deflate
function zip_writer.new(compressed)
  return setmetatable({pieces = {}, directory = {}, offset = 0, compressed = compressed}, Writer)
end

return zip_writer
