--- events.lua -- writes an event file of TensorBoard. Records are collected in memory and written
-- by one call of the system for several whole records: after a crash the file has all records up
-- to some point. A record is
--
--     length (8 bytes), checksum of the length (4), an Event, checksum of the Event (4)
--
-- Checksums are masked CRC-32C; numbers are little-endian. After a fork the child drops the records
-- that the parent has not written and continues in a file of its own.

local ffi = require "ffi"
local bit = require "bit"

local class = require "moth.base.class"
local crc32c = require "moth.utils.tensorboard.crc32c"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"
local messages = require "moth.utils.tensorboard.messages"

local floor = math.floor
local band, rshift = bit.band, bit.rshift

local EventFile = class("EventFile")

local HEAD, FOOT = 12, 4 -- bytes before and after the Event of a record
local FIRST_SIZE = 2 ^ 14

local count = 0 -- files of this state: two files of one second have different names

-- ---- the file ----

local function open(self)
  machine.make_folders(self.folder)
  count = count + 1
  self.process = machine.process()
  self.path = ("%s/events.out.tfevents.%010d.%s.%d.%d%s"):format(self.folder, machine.time(),
    machine.host(), self.process, count, self.suffix)
  local file, problem = io.open(self.path, "ab")
  if not file then
    errors.raise(("%s: the event file cannot be written: %s"):format(self.fname, problem), "E_IO")
  end
  file:setvbuf "no"
  self.file = file
end

-- Drops what belongs to the process that forked this one.
local function after_fork(self)
  self.used, self.pending, self.file = 0, 0, nil
  self:start()
end

--- Opens a file in a folder, which is created.
-- @param folder      the folder
-- @param max_queue   the number of records that are collected before they are written
-- @param flush_secs  seconds after which the next record writes all
-- @param suffix      the end of the file's name
-- @param fname       the function that errors name
function EventFile:init(folder, max_queue, flush_secs, suffix, fname)
  self.folder, self.max_queue, self.flush_secs = folder, max_queue, flush_secs
  self.suffix, self.fname = suffix, fname
  self.size, self.used, self.pending = FIRST_SIZE, 0, 0
  self.buffer = lib.array("uint8_t", FIRST_SIZE)
  self:start()
  self.guard = newproxy(true) -- writes what is left at the end of the program
  getmetatable(self.guard).__gc = function() pcall(self.last_flush, self) end
end

--- Opens the file and writes its first record.
function EventFile:start()
  open(self)
  self:event {wall_time = machine.time(), file_version = "brain.Event:2"}
  self:flush()
end

-- Writes the collected records. After an error the records stay in memory; the next call writes
-- them to a new file, since this one may end in the middle of a record.
local function write(self)
  if self.used == 0 then return end
  if not self.file then open(self) end
  local done, problem = self.file:write(ffi.string(self.buffer, self.used))
  if not done then
    pcall(self.file.close, self.file)
    self.file = nil
    errors.raise(("%s: %s: %s"):format(self.fname, errors.path(self.path), problem), "E_IO")
  end
  self.used, self.pending = 0, 0
end

--- Passes all records to the system.
function EventFile:flush()
  self.flushed = machine.time()
  if machine.process() ~= self.process then return after_fork(self) end
  write(self)
end

function EventFile:close()
  if self.closed then return end
  self:flush()
  if self.file then self.file:close() end
  self.file, self.closed = nil, true
end

-- At the end of the program the collector may have closed the file before.
function EventFile:last_flush()
  if self.used == 0 or machine.process() ~= self.process then return end
  self.file = io.open(self.path, "ab")
  write(self)
  self.file:close()
end

-- ---- records ----

-- Makes sure that `size` more bytes fit. @return the buffer
local function reserve(self, size)
  if self.used + size > self.size then
    local larger = math.max(2 * self.size, self.used + size)
    local buffer = lib.array("uint8_t", larger)
    ffi.copy(buffer, self.buffer, self.used)
    self.buffer, self.size = buffer, larger
  end
  return self.buffer
end

local function put32(b, at, x)
  b[at], b[at + 1] = band(x, 255), band(rshift(x, 8), 255)
  b[at + 2], b[at + 3] = band(rshift(x, 16), 255), rshift(x, 24)
end

-- Completes the record whose Event of `size` bytes begins at used + HEAD.
local function finish(self, size, now)
  local b, at = self.buffer, self.used
  local high = floor(size / 2 ^ 32)
  put32(b, at, bit.tobit(size % 2 ^ 32))
  put32(b, at + 4, high)
  put32(b, at + 8, crc32c.masked(b, at, 8))
  put32(b, at + HEAD + size, crc32c.masked(b, at + HEAD, size))
  self.used, self.pending = at + HEAD + size + FOOT, self.pending + 1
  if self.pending >= self.max_queue or now - self.flushed > self.flush_secs then self:flush() end
end

--- Adds a record.
-- @param event  a table: an Event of messages.lua
function EventFile:event(event)
  if machine.process() ~= self.process then after_fork(self) end
  local pieces = messages.encode("Event", event)
  local b, at = reserve(self, HEAD + pieces.size + FOOT), self.used + HEAD
  for i = 1, #pieces do
    local piece = pieces[i]
    if type(piece) == "string" then
      ffi.copy(b + at, piece, #piece)
      at = at + #piece
    else
      local info = lib.inspect(piece)
      local size = tonumber(info.numel * info.itemsize)
      ffi.copy(b + at, lib.data(piece, "SummaryWriter"), size)
      at = at + size
    end
  end
  local now = machine.time()
  self.flushed = self.flushed or now
  finish(self, pieces.size, now)
end

-- ---- a scalar, without tables: it is written often ----

local bits = ffi.new "union { double number; float single; uint8_t byte[8]; }"

local function put_varint(b, at, n)
  while n >= 128 do
    b[at] = n % 128 + 128
    n, at = floor(n / 128), at + 1
  end
  b[at] = n
  return at + 1
end

local function varint_size(n)
  local size = 1
  while n >= 128 do n, size = floor(n / 128), size + 1 end
  return size
end

--- Adds a record with one number.
-- @param tag    a string
-- @param value  a number
-- @param step   an integer, or nil
-- @param time   seconds since 1970; nil: now
function EventFile:scalar(tag, value, step, time)
  if step and step < 0 then
    return self:event {wall_time = time or machine.time(), step = step,
      summary = {value = {{tag = tag, simple_value = value}}}}
  end
  if machine.process() ~= self.process then after_fork(self) end
  local now = machine.time()
  local b, at, n = reserve(self, #tag + 80), self.used + HEAD, #tag
  local begin = at
  bits.number = time or now
  b[at] = 0x09 -- wall_time
  ffi.copy(b + at + 1, bits, 8)
  at = at + 9
  if step then
    b[at] = 0x10
    at = put_varint(b, at + 1, step)
  end
  local size = 1 + varint_size(n) + n + 5
  b[at] = 0x2a -- summary
  at = put_varint(b, at + 1, 1 + varint_size(size) + size)
  b[at] = 0x0a -- value
  at = put_varint(b, at + 1, size)
  b[at] = 0x0a -- tag
  at = put_varint(b, at + 1, n)
  ffi.copy(b + at, tag, n)
  at = at + n
  bits.single = value
  b[at] = 0x15 -- simple_value
  ffi.copy(b + at + 1, bits, 4)
  finish(self, at + 5 - begin, now)
end

return EventFile
