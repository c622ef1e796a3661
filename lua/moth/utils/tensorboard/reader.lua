--- reader.lua -- reads event files: moth.utils.tensorboard.read and scalars.
--
-- A file is mapped. Lengths are checked against the file, and checksums are compared. A record that
-- the end of the file cuts off ends the reading: its writer may still run, or has crashed.

local bytes = require "moth.io.bytes"
local crc32c = require "moth.utils.tensorboard.crc32c"
local define = require "moth.binding.define"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"
local messages = require "moth.utils.tensorboard.messages"

local reader = {}

local HEAD, FOOT = 12, 4 -- bytes before and after the Event of a record
local START = 1 -- status of a session

local function int32(file, at)
  local b = file.start + at
  return bit.bor(b[0], bit.lshift(b[1], 8), bit.lshift(b[2], 16), bit.lshift(b[3], 24))
end

local function check(file, at, size, what)
  if crc32c.masked(file.start, at, size) ~= int32(file, at + size) then
    file:refuse(("is broken: the checksum of %s at byte %.0f does not match"):format(what, at))
  end
end

-- The next Event; nil at the end.
local function next_event(file)
  local at = file.next
  if file.size - at < HEAD then return nil end
  check(file, at, 8, "a length")
  file.at = at
  local size = file:uint(8)
  if size > file.size - at - HEAD - FOOT then return nil end
  check(file, at + HEAD, size, "an event")
  file.next = at + HEAD + size + FOOT
  return (messages.decode(file, "Event", at + HEAD, at + HEAD + size))
end

local function events(path, fname)
  local file = bytes.open(path, fname)
  lib.check(lib.C.moth_keep_always(lib.ctx, file.all), fname) -- the iterator may outlive a scope
  file.next = 0
  return function()
    local event = file and next_event(file)
    if file and not event then
      file:close()
      file = nil
    end
    return event
  end
end

reader.read = define {
  name = "read",
  doc = "Reads an event file. Returns an iterator of its events: tables with wall_time, step and "
    .. "summary.value, a list of {tag, simple_value | histo | image | audio | tensor}. Raises "
    .. "E_FORMAT if a checksum is wrong; a last record that is not complete is left out.",
  examples = "{bytes = ''}",
  args = {
    {"string", "path", "the file", optional = true},
    {"any", "bytes", "its content instead: a string or a uint8 tensor", optional = true},
  },
  outputs = "events",
  run = function(path, given) return events(bytes.source(path, given, "read"), "read") end,
}

-- Drops the points of a series at `step` and later.
local function purge(series, step)
  local kept = 0
  for i = 1, #series.step do
    if series.step[i] < step then
      kept = kept + 1
      for _, list in pairs(series) do list[kept] = list[i] end
    end
  end
  for _, list in pairs(series) do
    for i = #list, kept + 1, -1 do list[i] = nil end
  end
end

local function gather(all, path)
  for event in events(path, "scalars") do
    local step, log = event.step or 0, event.session_log
    if log and log.status == START then
      for _, series in pairs(all) do purge(series, step) end
    end
    for _, value in ipairs(event.summary and event.summary.value or {}) do
      if value.simple_value then
        local tag = value.tag or ""
        local series = all[tag] or {step = {}, value = {}, wall_time = {}}
        all[tag] = series
        local n = #series.step + 1
        series.step[n], series.value[n], series.wall_time[n] = step, value.simple_value,
          event.wall_time or 0
      end
    end
  end
end

reader.scalars = define {
  name = "scalars",
  doc = "Reads the numbers of a run from the event files in its folder: a table of tag -> {step, "
    .. "value, wall_time}, three lists. Events that a later run replaced (purge_step) are left "
    .. "out.",
  examples = "os.tmpname() .. '.run'",
  args = {{"string", "log_dir", "the folder of a run"}},
  outputs = "series",
  run = function(log_dir)
    local names, all = {}, {}
    for _, entry in ipairs(machine.entries(log_dir)) do
      if entry.name:find("tfevents", 1, true) then names[#names + 1] = entry.name end
    end
    table.sort(names) -- by their time
    for _, name in ipairs(names) do gather(all, log_dir .. "/" .. name) end
    return all
  end,
}

return reader
