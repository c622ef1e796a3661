--- benchmark.lua -- a clock and a timer: moth.time, moth.timer.
--
--     print(moth.timer(function() return x:matmul(y) end):blocked_autorange())

local ffi = require "ffi"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C = lib.C
local benchmark = {}

--- moth.time(): seconds of a monotonic clock; the difference of two calls is a duration.
function benchmark.time() return C.moth_seconds() end

--- Counts the completed cycles of Lua's collector from now on.
-- @return a function: the count so far. Counting ends when the function is collected
function benchmark.cycles()
  local state = {ended = 0}
  local weak = setmetatable({state}, {__mode = "v"})
  local function arm()
    ffi.gc(ffi.new "char[1]", function() -- is garbage at once: the next cycle finalizes it
      local counter = weak[1]
      if not counter then return end
      counter.ended = counter.ended + 1
      arm()
    end)
  end
  arm()
  return function() return state.ended end
end

-- ---- measurements ----

local Measurement = class("Measurement")

--- A list of durations. Timers create it.
-- @param number_per_run  the number of calls in each duration
-- @param raw_times       the durations in seconds
-- @param timer           the Timer
function Measurement:init(number_per_run, raw_times, timer)
  self.number_per_run, self.raw_times, self.timer = number_per_run, raw_times, timer
end

--- Seconds of one call: a list with a number for each run.
function Measurement:times()
  local list = {}
  for i, seconds in ipairs(self.raw_times) do list[i] = seconds / self.number_per_run end
  return list
end

-- A quantile of the sorted numbers.
local function quantile(sorted, share)
  local at = 1 + share * (#sorted - 1)
  local low = math.floor(at)
  local high = math.min(low + 1, #sorted)
  return sorted[low] + (at - low) * (sorted[high] - sorted[low])
end

local function sorted_times(self)
  local list = self:times()
  table.sort(list)
  return list
end

--- The median of `times`.
function Measurement:median() return quantile(sorted_times(self), 0.5) end

--- The mean of `times`.
function Measurement:mean()
  local sum, list = 0, self:times()
  for _, seconds in ipairs(list) do sum = sum + seconds end
  return sum / #list
end

--- The interquartile range of `times`.
function Measurement:iqr()
  local list = sorted_times(self)
  return quantile(list, 0.75) - quantile(list, 0.25)
end

local UNITS = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}}

local function shown(seconds)
  for i, unit in ipairs(UNITS) do
    if seconds >= unit[1] or i == #UNITS then
      return ("%.2f %s"):format(seconds / unit[1], unit[2])
    end
  end
end

--- The Timer's label, sub_label and description.
function Measurement:title()
  local timer, parts = self.timer, {}
  for _, name in ipairs {"label", "sub_label", "description"} do
    parts[#parts + 1] = timer[name]
  end
  return #parts > 0 and table.concat(parts, ": ") or "moth.timer"
end

function Measurement:__tostring()
  local n = #self.raw_times
  local lines = {self:title()}
  if n == 1 then
    lines[2] = "  " .. shown(self:median())
    lines[3] = ("  1 measurement, %d runs"):format(self.number_per_run)
  else
    lines[2] = "  Median: " .. shown(self:median())
    lines[3] = "  IQR:    " .. shown(self:iqr())
    lines[4] = ("  %d measurements, %d runs per measurement"):format(n, self.number_per_run)
  end
  return table.concat(lines, "\n") .. (", %d thread%s"):format(self.timer.num_threads,
    self.timer.num_threads == 1 and "" or "s")
end

benchmark.Measurement = Measurement

-- ---- the timer ----

local Timer = class("Timer")

Timer.signature = define.signature("Timer", {
  {"function", "stmt", "the function to measure"},
  {"function", "setup", "is called before each measurement", optional = true},
  {"string", "label", "the name of the measured task", optional = true},
  {"string", "sub_label", "the variant", optional = true},
  {"string", "description", "the inputs", optional = true},
  {"int", "num_threads", "threads of an op during the measurement", default = 1},
  {"function", "timer", "the clock, in seconds; default: moth.time after a GPU's work",
   optional = true},
})

-- The current time, after a GPU's work has finished.
local function clock()
  local cuda = package.loaded["moth.cuda"]
  if cuda and cuda.is_available() then cuda.synchronize() end
  return C.moth_seconds()
end

--- moth.timer(f): measures a function, as torch.utils.benchmark.Timer does.
-- @param stmt         the function
-- @param setup        called before each measurement
-- @param label, sub_label, description  texts for the measurement's output
-- @param num_threads  threads of an op during the measurement
-- @param timer        another clock
function Timer:init(stmt, setup, label, sub_label, description, num_threads, timer)
  if num_threads < 1 then
    errors.argument("Timer", "num_threads", "a number from 1 is needed, got " .. num_threads,
      "E_DOMAIN")
  end
  self.stmt, self.setup, self.num_threads = stmt, setup, num_threads
  self.label, self.sub_label, self.description = label, sub_label, description
  self.timer = timer or clock
end

-- The seconds of `number` calls.
local function run(self, number)
  if self.setup then self.setup() end
  local stmt, now = self.stmt, self.timer
  local from = now()
  for _ = 1, number do stmt() end
  return now() - from
end

local function restore_threads(before, ok, ...)
  require("moth.base.settings").set_num_threads(before)
  if not ok then error((...), 0) end
  return ...
end

-- f(...) with the timer's number of threads.
local function threaded(self, f, ...)
  local settings = require "moth.base.settings"
  local before = settings.get_num_threads()
  settings.set_num_threads(self.num_threads)
  return restore_threads(before, pcall(f, ...))
end

local function positive(fname, name, value)
  if value > 0 then return end
  errors.argument(fname, name, "a number above 0 is needed, got " .. value, "E_DOMAIN")
end

local parse_timeit = define.signature("timeit", {
  {"int", "number", "the number of calls", default = 1000000},
})

--- Measures `number` calls as one run, after warm-up calls.
-- @return a Measurement
function Timer:timeit(...)
  local number = parse_timeit(...)
  positive("timeit", "number", number)
  return threaded(self, function()
    run(self, math.max(math.floor(number / 100), 2))
    return Measurement(number, {run(self, number)}, self)
  end)
end

define.takes(Timer.timeit, parse_timeit)

local CYCLES, LONG_RUN = 10, 0.05

-- Raises the number of calls in a run if they allocate garbage: a run spans ten collector cycles
-- or takes a twentieth of a second. In shorter runs the median would exclude the collector.
local function with_cycles(self, number)
  while true do
    local passed, kilobytes = benchmark.cycles(), collectgarbage "count"
    local seconds = run(self, number)
    local garbage = passed() > 0 or math.abs(collectgarbage "count" - kilobytes) > 1
    if not garbage or passed() >= CYCLES or seconds > LONG_RUN then return number end
    number = number * 2
  end
end

-- The number of calls in a run, so that the clock costs less than a thousandth of the run.
local function block_size(self, least)
  local now = self.timer
  local from = now()
  for _ = 1, 100 do now() end
  local overhead = (now() - from) / 100
  local number = 1
  while true do
    local seconds = math.min(run(self, number), run(self, number)) -- less noise
    local slow = seconds <= 0 and math.huge or overhead / seconds
    if seconds > least then return number end
    if slow <= 1e-4 and seconds >= least / 1000 then return with_cycles(self, number) end
    number = number * 10
  end
end

local parse_blocked = define.signature("blocked_autorange", {
  {"float", "min_run_time", "minimal seconds of all runs", default = 0.2},
})

--- Measures runs of many calls until they have taken min_run_time seconds.
-- @return a Measurement
function Timer:blocked_autorange(...)
  local least = parse_blocked(...)
  positive("blocked_autorange", "min_run_time", least)
  return threaded(self, function()
    local number, list, total = block_size(self, least), {}, 0
    repeat
      list[#list + 1] = run(self, number)
      total = total + list[#list]
    until total >= least
    return Measurement(number, list, self)
  end)
end

define.takes(Timer.blocked_autorange, parse_blocked)

local parse_adaptive = define.signature("adaptive_autorange", {
  {"float", "threshold", "the interquartile range relative to the median", default = 0.1},
  {"float", "min_run_time", "minimal seconds of all runs", default = 0.01},
  {"float", "max_run_time", "maximal seconds of all runs", default = 10},
})

--- As blocked_autorange, until the interquartile range is small relative to the median.
-- @return a Measurement
function Timer:adaptive_autorange(...)
  local threshold, least, most = parse_adaptive(...)
  positive("adaptive_autorange", "min_run_time", least)
  return threaded(self, function()
    local number, list, total = block_size(self, 0.05), {}, 0
    local result = Measurement(number, list, self)
    repeat
      list[#list + 1] = run(self, number)
      total = total + list[#list]
    until total >= most
      or total >= least and #list >= 3 and result:iqr() < threshold * result:median()
    return result
  end)
end

define.takes(Timer.adaptive_autorange, parse_adaptive)

class.guard(Timer, "timer")
class.guard(Measurement, "measurement")

benchmark.Timer = Timer

return benchmark
