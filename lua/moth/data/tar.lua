--- tar.lua -- reads tar archives member by member: ustar, pax and GNU's long names, plain or gzip.
-- Nothing is unpacked to the disk. Each header's checksum is compared, and each size with the
-- bytes that are there.
--
--     local archive = tar.open("shard.tar", "WebDataset")
--     local name, text = archive:next()        nil at the end
--     archive:close()
--
-- Format: IEEE Std 1003.1, pax; GNU tar, "Basic Tar Format".

local ffi = require "ffi"
local bytes = require "moth.io.bytes"
local errors = require "moth.error"
local gzip = require "moth.io.gzip"
local lib = require "moth.binding.lib"

local tar = {}

local BLOCK = 512
local LONGEST_NAME = 2 ^ 16
local LARGEST_PAX = 2 ^ 20
local PIECE = 2 ^ 20
local ZEROS = ("\0"):rep(BLOCK)

local Reader = {}
Reader.__index = Reader

function Reader:refuse(text, code)
  errors.raise(("%s: member %d at byte %.0f %s"):format(self.shown, self.count + 1, self.member,
    text), code or "E_FORMAT")
end

-- ---- bytes ----

local function fill(self, n)
  local parts, have = {}, 0
  while have < n do
    local got = self.stream:some(self.buffer, math.min(n - have, PIECE))
    if got == 0 then break end
    have = have + got
    parts[#parts + 1] = ffi.string(self.buffer, got)
  end
  return table.concat(parts)
end

-- Up to n bytes: fewer at the end of the file.
local function take(self, n)
  local at = self.at
  local text
  if self.stream then
    text = fill(self, n)
  else
    text = ffi.string(self.file.start + at, math.min(n, self.file.size - at))
  end
  self.at = at + #text
  return text
end

-- Checks a size before memory is allocated.
local function check_room(self, size)
  local whole = self.file.size
  local most = self.stream and whole * 1032 or whole - self.at
  if size > most then
    self:refuse(("is broken: it claims %.0f bytes in a file of %.0f"):format(size, whole))
  end
end

-- Skips n bytes.
local function skip(self, n)
  if not self.stream then
    self.at = self.at + n
    if self.at > self.file.size then self:refuse "ends too early" end
    return
  end
  while n > 0 do
    local got = self.stream:some(self.buffer, math.min(n, PIECE))
    if got == 0 then self:refuse "ends too early" end
    n, self.at = n - got, self.at + got
  end
end

local function body(self, size)
  check_room(self, size)
  local text = take(self, size)
  if #text < size then self:refuse "ends too early" end
  skip(self, -size % BLOCK)
  return text
end

-- ---- headers ----

-- A number of a header: octal digits, or GNU's base 256.
local function number(self, head, from, width, what)
  local field = head:sub(from, from + width - 1)
  if field:byte() == 128 then
    local value = 0
    for i = 2, width do value = value * 256 + field:byte(i) end
    if value < 2 ^ 53 then return value end
  else
    local digits = field:match "^ *([0-7]*)[ %z]*$"
    if digits then return tonumber(digits == "" and "0" or digits, 8) end
  end
  self:refuse("is broken: " .. what .. " is no number")
end

local function sum_of(head)
  local sum = 0
  for i = 1, BLOCK do sum = sum + (i > 148 and i <= 156 and 32 or head:byte(i)) end
  return sum
end

local function text_of(head, from, width)
  return (head:sub(from, from + width - 1):match "^[^%z]*")
end

-- The records of a pax header, "20 path=a/long/name\n": those that matter here.
local function pax(self, text, into)
  local at = 1
  while at <= #text do
    local digits, key = text:match("^(%d+) ([^=\n]+)=", at)
    local size = digits and #digits <= 7 and tonumber(digits)
    local from = size and at + #digits + 1 + #key + 1
    if not size or at + size - 1 > #text or from > at + size - 1
      or text:byte(at + size - 1) ~= 10 then
      self:refuse "is broken: its pax header is no list of records"
    end
    local value = text:sub(from, at + size - 2)
    if key == "path" then into.name = value end
    if key == "size" then
      if not value:find "^%d+$" or #value > 15 then
        self:refuse "is broken: its size is no number"
      end
      into.size = tonumber(value)
    end
    if key:find "^GNU%.sparse" then self:refuse("is a sparse file", "E_UNSUPPORTED") end
    at = at + size
  end
end

local function header(self)
  self.member = self.at
  local head = take(self, BLOCK)
  if head == ZEROS then return nil end
  if #head < BLOCK then
    self:refuse(#head == 0 and "is missing: the archive was cut short" or "ends in its header")
  end
  if number(self, head, 149, 8, "its checksum") ~= sum_of(head) then
    self:refuse(self.count == 0 and self.member == 0 and "is no tar header"
      or "is broken: its header has a wrong checksum")
  end
  local name = text_of(head, 1, 100)
  if head:sub(258, 263) == "ustar\0" and head:byte(346) ~= 0 then
    name = text_of(head, 346, 155) .. "/" .. name
  end
  return {name = name, size = number(self, head, 125, 12, "its size"), kind = head:sub(157, 157)}
end

local REGULAR = {["0"] = true, ["\0"] = true, ["7"] = true}

-- Reads the name or the size that a pax or GNU header has for the next member.
local function describe_next(self, head, own)
  if head.size > (head.kind == "x" and LARGEST_PAX or LONGEST_NAME) then
    self:refuse(("is broken: a name of %.0f bytes"):format(head.size))
  end
  local text = body(self, head.size)
  if head.kind == "x" then pax(self, text, own) else own.name = text:match "^[^%z]*" end
end

--- The name and the bytes of the next regular file; nil at the end.
-- @param wanted  function(name): false for files that are skipped
function Reader:next(wanted)
  local own = {}
  while true do
    lib.poll()
    local head = header(self)
    if not head then return nil end
    if head.kind == "x" or head.kind == "L" then
      describe_next(self, head, own)
    elseif head.kind == "S" or head.kind == "M" then
      self:refuse("is a sparse file, or a part of one", "E_UNSUPPORTED")
    else
      local name, size = own.name or head.name, own.size or head.size
      own = {}
      local taken = REGULAR[head.kind] and not name:find "/$" and (not wanted or wanted(name))
      local text = taken and body(self, size)
      if not taken then
        if head.kind:find "^[1-6]$" and head.kind ~= "5" then size = 0 end -- links, devices
        check_room(self, size)
        skip(self, size + -size % BLOCK)
      end
      self.count = self.count + 1
      if taken then return name, text end
    end
  end
end

--- Closes the archive.
function Reader:close()
  if self.stream then self.stream:close() end
  self.file:close()
end

--- Opens an archive.
-- @param source  the path, or bytes.memory(...)
-- @param fname   the function that errors name
function tar.open(source, fname)
  local file = bytes.open(source, fname)
  local self = setmetatable({file = file, at = 0, count = 0, member = 0,
    shown = bytes.is_memory(source) and source.shown or errors.path(source)}, Reader)
  lib.C.moth_keep_always(lib.ctx, file.all)
  if file.size == 0 then self:refuse "is missing: the archive is empty" end
  if file.size > 2 and file.start[0] == 31 and file.start[1] == 139
    and not bytes.is_memory(source) then
    self.stream, self.buffer = gzip.open(source, fname), lib.array("uint8_t", PIECE)
  end
  return self
end

return tar
