--- How a workload is timed; spec/bench/peer.py does the same on PyTorch's side.
-- Calls double until a batch takes a twentieth of the wanted seconds (that is the warm-up), then
-- batches run for that many seconds, at least five. Wall clock; the collector stays on.

local ffi = require "ffi"

ffi.cdef [[
  typedef struct moth_bench_time { long seconds, nanoseconds; } moth_bench_time;
  int clock_gettime(int clock, moth_bench_time *time);
  int unsetenv(const char *name);
]]

local timing = {}

local MONOTONIC = 1
local now_at = ffi.new "moth_bench_time"

--- Seconds on a clock that only goes forward.
local function now()
  ffi.C.clock_gettime(MONOTONIC, now_at)
  return tonumber(now_at.seconds) + tonumber(now_at.nanoseconds) * 1e-9
end

--- Each workload gets loops of its own, so that the traces of one do not serve another.
local LOOPS = [[
  local step, now, scope = ...
  local function plain(n)
    local start = now()
    for _ = 1, n do step() end
    return now() - start
  end
  local left
  local function some()
    for _ = 1, left do step() end
  end
  local function scoped(n)
    local start = now()
    while n > 0 do
      left = n < 100 and n or 100
      scope(some)
      n = n - left
    end
    return now() - start
  end
  return scope and scoped or plain
]]

--- Microseconds per call of step(), one sample for each batch. With scope (moth.scope) a hundred
-- calls share one.
function timing.measure(step, seconds, scope)
  local batch = loadstring(LOOPS, "=bench")(step, now, scope)
  batch(2)
  local calls, samples, total = 1, {}, 0
  while batch(calls) < seconds / 20 do calls = calls * 2 end
  while #samples < 5 or total < seconds do
    local took = batch(calls)
    samples[#samples + 1] = took / calls * 1e6
    total = total + took
  end
  return samples
end

--- The median and the smallest of a list.
function timing.summary(samples)
  local sorted = {}
  for i, v in ipairs(samples) do sorted[i] = v end
  table.sort(sorted)
  local n = #sorted
  local middle = (sorted[math.floor((n + 1) / 2)] + sorted[math.floor(n / 2) + 1]) / 2
  return middle, sorted[1]
end

timing.now = now

return timing
