-- The program of the memory rows: peak memory of training steps, in a separate process.
-- Run it with: ./moth spec/bench/memory.lua train/gpt [plain | +scope | +tables | ...] [STEPS]

package.path = (arg[0]:match "^(.*)/" or ".") .. "/?.lua;" .. package.path

local moth = require "moth"
local now = require("timing").now

local LIVE_TABLES = 1e6
local SECONDS = 2 -- minimum

local name, variant = arg[1], arg[2] or "plain"
local row
for _, r in ipairs(require("workloads").read()) do
  if r.name == name then row = r end
end

-- The current or the peak memory of the process in kilobytes.
local function status(key)
  for line in io.lines "/proc/self/status" do
    local kilobytes = line:match("^" .. key .. ":%s*(%d+)")
    if kilobytes then return tonumber(kilobytes) end
  end
end

local function reset_peak()
  local file = assert(io.open("/proc/self/clear_refs", "w"))
  file:write "5"
  file:close()
end

local held = {}
if variant:find("+tables", 1, true) then
  for i = 1, LIVE_TABLES do held[i] = {i, name = "entry"} end
end

moth.manual_seed(0)
local step, x, y = require("train").train(row)
local function once() step(x, y) end
local function run(steps)
  local start, done = now(), 0
  while done < steps or now() - start < SECONDS do
    if variant:find("+scope", 1, true) then moth.scope(once) else once() end
    done = done + 1
  end
end

collectgarbage()
collectgarbage()
local rss = status "VmRSS"
reset_peak()
moth.reset_peak_memory()
local before = moth.memory()
local start = now()
run(tonumber(arg[3]) or 20)
local took = now() - start
local after = moth.memory()

-- The memory that stays after a step (gradients, the optimizer's state) is in both peaks.
print(("peak_tensors MiB %.3f"):format((after.peak_bytes - before.live_bytes) / 2 ^ 20))
print(("peak_rss MiB %.3f"):format((status "VmHWM" - rss) / 1024))
print(("collections count %d"):format(after.collections - before.collections))
print(("collecting %% %.3f"):format(
  (after.collection_seconds - before.collection_seconds) / took * 100))
assert(#held == 0 or #held == LIVE_TABLES)
