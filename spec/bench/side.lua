--- Moth's side of `moth bench`: a process that reads requests from standard input, and answers on
-- standard output. It waits while the other side runs. The protocol:
--
--   setup NAME                    sets a workload up; `done`, or `error TEXT`
--   record JSON                   the same for a row of records.lua
--   time VARIANT SECONDS ROUND    `part SUFFIX UNIT VALUE` for each figure, then `done`; a variant
--                                 is `plain`, `+scope`, `+tables`, `+scope+tables`, `+capture`,
--                                 `+fsync`
--   drop                          frees the workload
--   version                       `done TEXT`

local here = arg[0]:match "^(.*)/" or "."
package.path = here .. "/?.lua;" .. here .. "/../../?.lua;" .. package.path

local ffi = require "ffi"

local timing = require "timing"
local workloads = require "workloads"

ffi.cdef "int unsetenv(const char *name);"
-- These variables select OpenBLAS's kernels, and make it slow on some machines.
ffi.C.unsetenv "OPENBLAS_CORETYPE"
ffi.C.unsetenv "OPENBLAS_L2_SIZE"

local moth = require "moth"

moth.set_num_threads(tonumber(arg[1]) or 1)
if arg[2] == "cpu" then timing.use_cpu_time() end
if arg[3] ~= "cpu" then
  moth.set_default_device(arg[3])
  moth.backends.cudnn.benchmark = true
  timing.use_device(moth.cuda.synchronize)
end

local LIVE_TABLES, CALLS_A_SCOPE, CYCLES = 1e5, 100, 10
local SCOPE_BYTES = 2 ^ 23 -- bytes of results in a scope; more memory is returned to the system
local LITTLE = 2e-5 -- seconds of a call that shares a scope with others

-- Files to load for rows that need more than ops.lua.
local function setup_in(module, kind)
  return function(row) return require(module)[kind](row) end
end

-- kind -> function(row) -> the step, its two arguments, a function for the end
local setups = {
  call = setup_in("ops", "call"), graph = setup_in("ops", "graph"), op = setup_in("ops", "op"),
  train = setup_in("train", "train"), infer = setup_in("train", "infer"),
}

function setups.record(row) return require("recorded").step(row.call) end

function setups.step(row)
  local from_data = row.group == "data" or row.group == "io"
  return require(from_data and "data" or "train").step[row.fn](row)
end

function setups.whole(row)
  local whole = require "whole"
  return (whole[row.fn] or whole[row.group])(row)
end

local current -- {row, step, x, y, finish, loops by variant}

local function drop()
  if current and current.finish then current.finish() end
  current = nil
  collectgarbage()
  collectgarbage()
end

local function setup_row(row)
  drop()
  jit.flush() -- as in a program without other work
  moth.manual_seed(0)
  local step, x, y, finish = setups[row.kind](row)
  current = {row = row, step = step, x = x, y = y, finish = finish, loops = {}}
end

-- Drops other rows: each garbage collection would traverse them.
local function setup(name)
  local found
  for _, row in ipairs(workloads.read()) do
    if row.name == name then found = row end
  end
  setup_row(assert(found, "no such workload"))
end

local function record(call) setup_row{kind = "record", group = "op", call = call} end

-- Returns true for a short call, such as a view.
local function takes_little(step)
  local took = math.huge
  for _ = 1, 3 do
    local start = timing.wall()
    moth.scope(step)
    took = math.min(took, timing.wall() - start)
  end
  return took < LITTLE
end

-- The number of calls in a scope: PyTorch's side frees each result before the next call.
local function calls_in_scope(step)
  local bytes = 1
  moth.scope(function()
    local before = moth.memory().live_bytes
    step()
    bytes = math.max(1, moth.memory().live_bytes - before)
  end)
  return math.max(1, math.min(CALLS_A_SCOPE, math.floor(SCOPE_BYTES / bytes)))
end

-- The loop of a variant, and its number of calls at a time.
local function loop_of(variant, seconds)
  local loop = current.loops[variant]
  if loop then return loop end
  local kind, step = current.row.kind, current.step
  if variant:find("+capture", 1, true) then step = moth.capture(step) end
  local scoped = kind == "record" or variant:find("+scope", 1, true)
  local scope = scoped and moth.scope or nil
  local x = current.x
  if variant:find("+fsync", 1, true) then x = true end
  local each = 1
  if kind == "record" then
    if takes_little(step) then each = calls_in_scope(step) end
  elseif current.row.group == "small" and kind ~= "train" and kind ~= "step" then
    each = CALLS_A_SCOPE
  end
  local batch = timing.batch(step, x, current.y, scope, each)
  loop = {batch = batch, calls = timing.warm_up(batch, seconds)}
  current.loops[variant] = loop
  return loop
end

-- Tables that each garbage collection traverses, as in a larger program.
local function ballast()
  local list = {}
  for i = 1, LIVE_TABLES do list[i] = {i, name = "entry"} end
  return list
end

local function time_step(variant, seconds)
  local held = variant:find("+tables", 1, true) and ballast() or nil
  collectgarbage()
  local mean
  local function run()
    local loop = loop_of(variant, seconds)
    local cycles = current.row.group == "small" and CYCLES or 0
    mean = timing.mean(loop.batch, loop.calls, seconds, cycles)
  end
  if current.row.kind == "infer" then moth.no_grad(run) else run() end
  assert(not held or #held == LIVE_TABLES)
  return {{"", "us", mean}}
end

local function time(variant, seconds, round)
  if not current then error("nothing is set up", 0) end
  local whole = current.row.kind == "whole"
  local parts = whole and current.step(variant, round) or time_step(variant, seconds)
  for _, part in ipairs(parts) do
    print(("part %s %s %.17g"):format(part[1] == "" and "-" or part[1], part[2], part[3]))
  end
end

local commands = {setup = setup, record = record, drop = drop}

function commands.time(rest)
  local variant, seconds, round = rest:match "^(%S+) (%S+) (%S+)$"
  time(variant, tonumber(seconds), tonumber(round))
end

function commands.version() return moth._VERSION .. ", " .. jit.version end

io.stdout:setvbuf "line"
for line in io.lines() do
  local command, rest = line:match "^(%S+)%s*(.*)$"
  local ok, result = pcall(commands[command], rest)
  local text = tostring(result or ""):gsub("%s+", " ")
  print(ok and "done " .. text or "error " .. text)
end
drop()
