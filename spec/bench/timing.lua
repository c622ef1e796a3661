--- How a workload is timed; spec/bench/peer/__main__.py does the same on PyTorch's side.
-- Calls double until a batch takes a twentieth of the wanted seconds (that is the warm-up); then
-- batches run for that many seconds, at least one. The figure is the mean of all these calls: the
-- collector stays on, and a median of batches would leave out the few that it ran in. Rows of the
-- small group run until the collector has finished ten cycles, if they make garbage at all.
-- The clock is the wall's; timing.use_cpu_time() takes the process's own time instead, for busy
-- machines and one thread. On a GPU a batch ends when the GPU is done.

local ffi = require "ffi"

ffi.cdef [[
  typedef struct moth_bench_time { long seconds, nanoseconds; } moth_bench_time;
  int clock_gettime(int clock, moth_bench_time *time);
]]

local timing = {}

local MONOTONIC, PROCESS = 1, 2
local clock = MONOTONIC
local now_at = ffi.new "moth_bench_time"

local function seconds_on(chosen)
  ffi.C.clock_gettime(chosen, now_at)
  return tonumber(now_at.seconds) + tonumber(now_at.nanoseconds) * 1e-9
end

local wait -- for what a device was asked to do

--- Seconds on a clock that only goes forward, when all work asked for is done.
function timing.now()
  if wait then wait() end
  return (seconds_on(clock))
end

--- The same, whatever the clock of timing.now.
function timing.wall() return (seconds_on(MONOTONIC)) end

function timing.use_cpu_time() clock = PROCESS end

--- Lets the clock wait for a GPU: `synchronize` is moth.cuda.synchronize.
function timing.use_device(synchronize) wait = synchronize end

-- Each workload gets loops of its own, so that the traces of one do not serve another.
local LOOPS = [[
  local step, now, scope, each, x, y = ...
  local function plain(n)
    local start = now()
    for _ = 1, n do step(x, y) end
    return now() - start
  end
  local left
  local function some()
    for _ = 1, left do step(x, y) end
  end
  local function scoped(n)
    local start = now()
    while n > 0 do
      left = n < each and n or each
      scope(some)
      n = n - left
    end
    return now() - start
  end
  return scope and scoped or plain
]]

--- A function that runs step(x, y) n times and gives the seconds that took.
-- @param scope  moth.scope, if `each` calls shall share a scope; else nil
function timing.batch(step, x, y, scope, each)
  return loadstring(LOOPS, "=bench")(step, timing.now, scope, each, x, y)
end

--- How many calls make a batch. (The faster of two: one pause must not end the search.)
function timing.warm_up(batch, seconds)
  local calls = 1
  while math.min(batch(calls), batch(calls)) < seconds / 20 do calls = calls * 2 end
  return calls
end

local MOST = 20 -- times the wanted seconds, which a run that waits for the collector may take

--- Microseconds per call: the mean of a run of batches.
-- @param cycles  how many of the collector's cycles the run spans at least, if it makes garbage
function timing.mean(batch, calls, seconds, cycles)
  local passed, kilobytes = require("moth.profiler.benchmark").cycles(), collectgarbage "count"
  local total, n = 0, 0
  local function more()
    if total < seconds then return true end
    local ended = passed()
    local garbage = ended > 0 or math.abs(collectgarbage "count" - kilobytes) > 1
    return garbage and ended < cycles and total < MOST * seconds
  end
  while n == 0 or more() do
    total, n = total + batch(calls), n + 1
  end
  return total / (n * calls) * 1e6
end

--- The value at a share of a sorted copy of the list, between neighbours where need be.
function timing.quantile(list, share)
  local sorted = {}
  for i, value in ipairs(list) do sorted[i] = value end
  table.sort(sorted)
  local at = 1 + share * (#sorted - 1)
  local low = math.floor(at)
  local above = sorted[math.min(low + 1, #sorted)]
  return sorted[low] + (at - low) * (above - sorted[low])
end

function timing.median(list) return (timing.quantile(list, 0.5)) end

--- To three decimals, as results are written.
function timing.rounded(x) return math.floor(x * 1000 + 0.5) / 1000 end

return timing
