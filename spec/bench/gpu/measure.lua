--- measure.lua -- the timing fields of a row of `moth bench cuda`, microseconds per call, medians:
--
--   device_us  between an event before the calls and one after, gaps included; device_min
--   wall_us    until a synchronize after the last call; wall_min
--   host_us    until the calls returned: the cost of launching them
--   sync_us    a single call, synchronized; first_ms: the very first call
--   n, calls   samples, and calls in each; sm_mhz: the clock during the calls
--
-- With a warm L2 cache a sample is a batch of calls, doubled until it takes a twentieth of the
-- seconds. With a cold cache it is one call after a read of 1 GiB, which also hides the launch
-- cost; wall_us, host_us and sync_us are then measured with an idle device.

local ffi = require "ffi"
local moth = require "moth"
local timing = require "timing"

local cuda, now = moth.cuda, timing.wall
local measure = {}

-- Each workload gets new loops, so that it does not use the traces of another one.
local LOOP = [[
  local step, now = ...
  return function(calls)
    local begin = now()
    for _ = 1, calls do step() end
    return now() - begin
  end
]]

-- ---- the clock of the multiprocessors, from NVML, a library of the driver ----

pcall(ffi.cdef, [[
  int nvmlInit_v2(void);
  int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
  int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz);
]])
local SM = 1 -- NVML_CLOCK_SM
local nvml, card

local function clock()
  if nvml == nil then
    local found, library = pcall(ffi.load, "libnvidia-ml.so.1")
    local handle = ffi.new "void *[1]"
    nvml = found and library.nvmlInit_v2() == 0
      and library.nvmlDeviceGetHandleByIndex_v2(0, handle) == 0 and library
    card = handle[0]
  end
  local mhz = ffi.new "unsigned[1]"
  if nvml and nvml.nvmlDeviceGetClockInfo(card, SM, mhz) == 0 then return mhz[0] end
end

-- ---- samples ----

local rounded = timing.rounded

--- Calls sample() for this many seconds, at least five times (once without seconds).
local function gather(sample, seconds)
  local lists, finish, n = {}, now() + seconds, 0
  while n < (seconds > 0 and 5 or 1) or now() < finish do
    n = n + 1
    for i, value in ipairs { sample() } do
      lists[i] = lists[i] or {}
      lists[i][n] = value
    end
  end
  return lists
end

--- A function batch(calls) -> device, wall and host time of a call; and a function for a single
-- call.
local function samplers(issue, flush)
  local start = cuda.Event { enable_timing = true }
  local finish = cuda.Event { enable_timing = true }
  local function batch(calls)
    cuda.synchronize()
    if flush then flush() end
    local begin = now()
    start:record()
    local host = issue(calls)
    finish:record()
    cuda.synchronize()
    local wall = now() - begin
    return start:elapsed_time(finish) / calls * 1e3, wall / calls * 1e6, host / calls * 1e6
  end
  local function alone()
    if flush then flush() end
    cuda.synchronize()
    local begin = now()
    local issued = issue(1)
    cuda.synchronize()
    return (now() - begin) * 1e6, issued * 1e6
  end
  return batch, alone
end

--- The timing fields of step(), a list of {name, value}.
-- @param seconds  timed seconds; 0: one call is enough
-- @param flush    empties the L2 cache; nil: it stays warm
function measure.fields(step, seconds, flush)
  local issue = loadstring(LOOP, "=bench")(step, now)
  local batch, alone = samplers(issue, flush)
  local first, calls = alone(), 1
  if seconds > 0 then batch(2) end
  while not flush and select(2, batch(calls)) * calls < seconds / 20 * 1e6 do calls = calls * 2 end
  local device, wall, host = unpack(gather(function() return batch(calls) end, seconds))
  local sync, sync_host = unpack(gather(alone, seconds / 4))
  if flush then wall, host = sync, sync_host end
  local row = {
    { "device_us", rounded(timing.median(device)) }, { "wall_us", rounded(timing.median(wall)) },
    { "host_us", rounded(timing.median(host)) }, { "sync_us", rounded(timing.median(sync)) },
    { "device_min", rounded(math.min(unpack(device))) },
    { "wall_min", rounded(math.min(unpack(wall))) },
    { "first_ms", rounded(first / 1e3) }, { "n", #device }, { "calls", calls },
  }
  issue(calls)
  local mhz = clock()
  if mhz then row[#row + 1] = { "sm_mhz", mhz } end
  cuda.synchronize()
  return row
end

return measure
