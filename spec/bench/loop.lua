--- Plain loops timed by the wall clock, to compare with the benchmark's figures for the same
-- calls: the cost in a program, garbage collection included. Each loop is written out, as users
-- write it.
--
--     ./moth spec/bench/loop.lua [PATTERN] [--turns N] [--rounds N] [--cpu]
--
-- The loop and the benchmark's side are processes that run alternately; figures are medians of
-- rounds, in microseconds per turn.

local here = arg[0]:match "^(.*)/" or "."
package.path = here .. "/?.lua;" .. package.path

local child = require "child"
local timing = require "timing"

local launcher = debug.getregistry()["moth.launcher"] or {}

-- ---- the loops: name -> function(moth) -> function(n), which does n turns ----

local loops = {}

loops["small/add16"] = function(moth)
  local a, b = moth.randn(16), moth.randn(16)
  return function(n)
    for _ = 1, n do local _ = a + b end
  end
end

loops["small/add16_grad"] = function(moth)
  local a = moth.randn(16, {requires_grad = true})
  local b = moth.randn(16, {requires_grad = true})
  return function(n)
    for _ = 1, n do local _ = a + b end
  end
end

loops["small/add16_inplace"] = function(moth)
  local a, b = moth.randn(16), moth.randn(16)
  return function(n)
    for _ = 1, n do a:add_(b) end
  end
end

loops["small/matmul4"] = function(moth)
  local a, b = moth.randn(4, 4), moth.randn(4, 4)
  return function(n)
    for _ = 1, n do local _ = a:matmul(b) end
  end
end

loops["small/view"] = function(moth)
  local x = moth.randn(16, 16)
  return function(n)
    for _ = 1, n do local _ = x[4] end
  end
end

loops["small/sum16"] = function(moth)
  local x = moth.randn(16)
  return function(n)
    for _ = 1, n do x:sum() end
  end
end

loops["small/chain16_grad"] = function(moth)
  local a = moth.randn(16, {requires_grad = true})
  local b, c = moth.randn(16), moth.randn(16)
  return function(n)
    for _ = 1, n do
      local y = (a + c) * b
      y:sum()
    end
  end
end

loops["small/lstmcell_loop"] = function(moth)
  local cell, x = moth.nn.LSTMCell(64, 64), moth.randn(32, 1, 64)
  return function(n)
    for _ = 1, n do
      cell:zero_grad()
      local h, c = moth.zeros(1, 64), moth.zeros(1, 64)
      for t = 1, 32 do h, c = cell(x[t], {h, c}) end
      h:sum():backward()
    end
  end
end

local DEAR = {["small/lstmcell_loop"] = 200} -- its turn costs this many turns of the others

-- ---- the process that runs a loop: "loop NAME TURNS" answers "done MICROSECONDS" ----

local function serve()
  local moth = require "moth"
  moth.set_num_threads(1)
  if arg[2] == "cpu" then timing.use_cpu_time() end
  local runs = {}
  io.stdout:setvbuf "line"
  for line in io.lines() do
    local name, turns = line:match "^loop (%S+) (%S+)$"
    runs[name] = runs[name] or loops[name](moth)
    runs[name](math.min(turns, 1e4))
    local start = timing.now()
    runs[name](tonumber(turns))
    print(("done %.17g"):format((timing.now() - start) / turns * 1e6))
  end
end

-- ---- the comparison ----

local function time_loop(side, name, turns)
  return tonumber((assert(side:ask("loop", name, math.max(turns / (DEAR[name] or 1), 1)))))
end

local function time_benchmark(side)
  local parts = assert(side:time("plain", 0.1, 1))
  return parts[1][3]
end

local function compare(name, options, folder)
  local clock = options.cpu and "cpu" or "wall"
  local loop = child.new("loop", {launcher.program, arg[0], "serve", clock}, {}, folder)
  local bench = child.new("bench", {launcher.program, here .. "/side.lua", 1, clock, "cpu"}, {},
    folder)
  assert(bench:ask("setup", name))
  local ours, theirs = {}, {}
  for round = 1, options.rounds do
    ours[round] = time_loop(loop, name, options.turns)
    theirs[round] = time_benchmark(bench)
  end
  loop:stop()
  bench:stop()
  local a, b = timing.median(ours), timing.median(theirs)
  print(("%-24s %8.3f %10.3f %8.2f"):format(name, a, b, b / a))
end

local function main()
  local parser = require "argparse"("loop.lua", "Times plain loops next to the benchmark's rows.")
  parser:argument("pattern", "only those whose name matches this Lua pattern", ""):args("?")
  parser:option("--turns", "of each loop", "1000000"):convert(tonumber)
  parser:option("--rounds", "turns of both sides", "5"):convert(tonumber)
  parser:flag("--cpu", "time of the processes, not of the wall")
  local options = parser:parse()
  local names, folder = {}, child.folder()
  for name in pairs(loops) do
    if name:find(options.pattern or "") then names[#names + 1] = name end
  end
  table.sort(names)
  print(("%-24s %8s %10s %8s"):format("us per turn", "loop", "benchmark", "ratio"))
  local ok, problem = pcall(function()
    for _, name in ipairs(names) do compare(name, options, folder) end
  end)
  os.execute("rm -rf " .. child.quoted(folder))
  if not ok then error(problem, 0) end
end

if arg[1] == "serve" then serve() else main() end
