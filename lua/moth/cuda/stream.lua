--- stream.lua -- moth.cuda's streams and events, and moth.cuda.device.
--
--     local copies = moth.cuda.Stream()
--     local batch = moth.cuda.stream(copies, function()
--       return host:to("cuda", {non_blocking = true})       -- host: in pinned memory
--     end)
--     moth.cuda.current_stream():wait_stream(copies)        -- before batch is used here
--
-- Work on one stream runs in order; work on different streams may run in any order unless one
-- waits for the other. Memory needs no record_stream: a freed tensor's memory is reused only after
-- all streams that may read it have finished.

local autograd = require "moth.autograd"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local devices = require "moth.tensor.device"
local errors = require "moth.error"
local ffi = require "ffi"
local calls = require "moth.binding.calls"
local lib = require "moth.binding.lib"

local C, ctx, Handle, check = lib.C, lib.ctx, lib.Handle, lib.check

lib.declare "streams"

local frames = autograd.frames

local streams = {}

-- A handle from C that no scope frees.
local function kept(h)
  h = lib.adopt(h, 0)
  C.moth_keep_always(ctx, h)
  return h
end

-- The core's number of a device, and the device with its index.
local function place(fname, device)
  local number = devices.gpu(fname, device)
  return number, devices.by_code[number]
end

local function check_event(fname, name, value)
  if class.isinstance(value, streams.Event) then return value end
  errors.refuse(fname, name, "an Event is needed", value, "E_TYPE")
end

--- Calls f(...) while "cuda" means another GPU, and returns its results. The previous GPU is
-- restored, also if f raises. (As torch.cuda.device.)
-- @param which  a device, its name or its index
-- @param f      a function
function streams.device(which, f, ...)
  if which == nil then errors.refuse("device", "device", "a GPU is needed", which) end
  if not calls.is_callable(f) then errors.refuse("device", "f", "a function is needed", f) end
  local at = devices.gpu("device", which)
  return frames.run(at - 1, "device", devices.vary(), f, ...)
end

-- ---- streams ----

local Stream = class("Stream")
streams.Stream = Stream

local known = setmetatable({}, {__mode = "v"}) -- "device:number" -> its object

local function name_of(device, number) return device .. ":" .. number end

Stream.signature = define.signature("Stream", {
  {"any", "device", 'a GPU: a device, its name or its index; "cuda" when absent',
   optional = true},
  {"int", "priority", "lower numbers run first; a GPU supports some from -5 to 0", default = 0},
})

--- A stream in addition to the default stream: work inside moth.cuda.stream(s, f) runs on it. The
-- handle of a collected stream is reused, even if its work is still running. (As
-- torch.cuda.Stream.)
-- @param device    a GPU: a device, its name or its index (default "cuda")
-- @param priority  lower numbers run first (default 0)
function Stream:init(device, priority)
  local at, where = place("Stream", device)
  local h = Handle()
  self.number = check(C.moth_stream_take(ctx, at, priority, h), "Stream")
  self.handle, self.at, self.device, self.priority = kept(h), at, where, priority
  known[name_of(at, self.number)] = self
end

-- A stream that owns no handle: the current stream or the default stream.
local Borrowed = class("Stream", Stream)

function Borrowed:init(at, number)
  self.number, self.at, self.device, self.priority = number, at, devices.by_code[at], 0
  known[name_of(at, number)] = self
end

local function object(at, number) return known[name_of(at, number)] or Borrowed(at, number) end

local function is_stream(value) return class.isinstance(value, Stream) end

local function stream_or_current(fname, value)
  if value == nil then return streams.current_stream() end
  if is_stream(value) then return value end
  errors.refuse(fname, "stream", "a Stream is needed", value, "E_TYPE")
end

--- The current stream of a GPU.
-- @param device  a GPU: a device, its name or its index (default "cuda")
function streams.current_stream(device)
  local at = place("current_stream", device)
  return object(at, check(C.moth_stream_use(ctx, at, -1), "current_stream"))
end

--- The default stream of a GPU.
-- @param device  a GPU: a device, its name or its index (default "cuda")
function streams.default_stream(device) return object(place("default_stream", device), 0) end

local function restore(stream, before, ok, ...)
  C.moth_stream_use(ctx, stream.at, before)
  if not ok then error((...), 0) end
  return ...
end

local function run_on(stream, f, ...)
  local before = check(C.moth_stream_use(ctx, stream.at, stream.number), "stream")
  return restore(stream, before, pcall(f, ...))
end

--- Calls f(...) with a stream as the current one of its GPU, and returns its results. The previous
-- stream is restored, also if f raises. A backward pass runs on the stream that is current where
-- backward is called. In a coroutine f may not yield: all coroutines share the current stream.
-- @param stream  a Stream
-- @param f       a function
function streams.stream(stream, f, ...)
  if not is_stream(stream) then
    errors.refuse("stream", "stream", "a Stream is needed", stream, "E_TYPE")
  end
  if not calls.is_callable(f) then
    errors.refuse("stream", "f", "a function is needed", f)
  end
  if lib.coroutine() then
    local run = require("moth.base.coroutines").without_yields
    return run("a function under stream", run_on, stream, f, ...)
  end
  return run_on(stream, f, ...)
end

--- Waits until all work on the stream has finished. Deferred errors are raised here.
function Stream:synchronize()
  check(C.moth_stream_wait(ctx, self.at, self.number), "synchronize")
end

--- Returns true if all work on the stream has finished.
function Stream:query()
  return check(C.moth_stream_query(ctx, self.at, self.number), "query") == 1
end

--- Makes later work on this stream wait for the present work of another stream. The host does not
-- wait.
function Stream:wait_stream(stream)
  stream = stream_or_current("wait_stream", stream)
  check(C.moth_stream_join(ctx, self.at, self.number, stream.at, stream.number), "wait_stream")
end

--- Makes later work on this stream wait for an event.
function Stream:wait_event(event) check_event("wait_event", "event", event):wait(self) end

--- Records an event after the present work of this stream.
-- @param event  an Event; default: a new one
-- @return the event
function Stream:record_event(event)
  event = event == nil and streams.Event() or check_event("record_event", "event", event)
  event:record(self)
  return event
end

function Stream:__tostring()
  return ("Stream %d of %s"):format(self.number, tostring(self.device))
end

-- ---- events ----

local Event = class("Event")
streams.Event = Event

Event.signature = define.signature("Event", {
  {"bool", "enable_timing", "allow elapsed_time?", default = false},
  {"bool", "blocking", "accepted as in PyTorch, without effect", default = false},
})

--- A marker in a stream that others can wait for. (As torch.cuda.Event.)
-- @param enable_timing  allow elapsed_time? (default false)
-- @param blocking       accepted as in PyTorch, without effect
function Event:init(enable_timing)
  local h = Handle()
  check(C.moth_event_take(ctx, enable_timing and 1 or 0, h), "Event")
  self.handle = kept(h)
end

--- Records the event after the present work of a stream; replaces an earlier record.
-- @param stream  a Stream; default: the current one
function Event:record(stream)
  stream = stream_or_current("record", stream)
  check(C.moth_event_record(ctx, self.handle, stream.at, stream.number), "record")
end

--- Makes later work on a stream wait for the event. An event that was never recorded does not
-- block.
-- @param stream  a Stream; default: the current one
function Event:wait(stream)
  stream = stream_or_current("wait", stream)
  check(C.moth_event_wait(ctx, self.handle, stream.at, stream.number), "wait")
end

--- Waits until all work before the event has finished.
function Event:synchronize()
  check(C.moth_event_wait(ctx, self.handle, 0, 0), "synchronize")
end

--- Returns true if all work before the event has finished.
function Event:query() return check(C.moth_event_query(ctx, self.handle), "query") == 1 end

local ms = ffi.new("double[1]")

--- Milliseconds from this event to another event that was recorded later. Both need enable_timing,
-- and the GPU must have reached them: synchronize the later event first.
function Event:elapsed_time(end_event)
  check_event("elapsed_time", "end_event", end_event)
  check(C.moth_event_elapsed(ctx, self.handle, end_event.handle, ms), "elapsed_time")
  return ms[0]
end

class.guard(Stream, "stream")
class.guard(Event, "event")

return streams
