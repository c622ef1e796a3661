--- Times a workload; spec/bench/peer/__main__.py does the same on PyTorch's side. The number of
-- calls doubles until a batch takes a twentieth of the requested seconds (the warm-up). Then
-- batches run for the requested seconds, at least one. The figure is the mean of all these calls,
-- because the collector stays on, and a median of batches would leave out the few batches in
-- which it ran. Rows of the small group run until the collector has finished ten cycles, if they
-- create garbage. The clock is the wall clock; timing.use_cpu_time() selects the CPU time of the
-- process, for busy machines and one thread. On a GPU a batch ends with a synchronization.

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

local wait -- waits for the device

--- Seconds on a monotonic clock, after all work on the device.
function timing.now()
  if wait then wait() end
  return (seconds_on(clock))
end

--- The same, even if timing.now uses another clock.
function timing.wall() return (seconds_on(MONOTONIC)) end

function timing.use_cpu_time() clock = PROCESS end

--- Makes the clock wait for a GPU: `synchronize` is moth.cuda.synchronize.
function timing.use_device(synchronize) wait = synchronize end

-- Each workload gets new loops, so that it does not use the traces of another one.
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

--- A function that runs step(x, y) n times and returns the seconds.
-- @param scope  moth.scope, if `each` calls share a scope; else nil
function timing.batch(step, x, y, scope, each)
  return loadstring(LOOPS, "=bench")(step, timing.now, scope, each, x, y)
end

--- The number of calls in a batch. (The faster of two runs: one pause must not end the search.)
function timing.warm_up(batch, seconds)
  local calls = 1
  while math.min(batch(calls), batch(calls)) < seconds / 20 do calls = calls * 2 end
  return calls
end

local MOST = 20 -- limit for a run that waits for the collector, in requested seconds

--- Microseconds per call: the mean of a run of batches.
-- @param cycles  the minimum of collector cycles in the run, if it creates garbage
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

--- A quantile of a sorted copy of the list, interpolated.
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
