--- `moth bench`: times the workloads of a suite and, with --peer, PyTorch's beside them.
--
--   moth bench small [--only PATTERN] [--seconds S] [--json FILE]
--   moth bench small --peer PYTHON [--script FILE] [--rounds N]
--
-- With a peer both sides run in processes of their own, by turns, so that what else the machine
-- does hits both. The table shows the median of the rounds' medians, in microseconds a call.

local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = here .. "/?.lua;" .. package.path

local ffi = require "ffi"
local argparse = require "argparse"
local timing = require "timing"

local LIVE_TABLES = 1e5

local launcher = debug.getregistry()["moth.launcher"] or {}

local function options_of(words)
  local parser = argparse("moth bench", "Times Moth, and PyTorch beside it.")
  parser:argument("suite", "what to time"):choices({ "small" }):default("small"):args("?")
  parser:option("--only", "only workloads whose name matches this Lua pattern", "")
  parser:option("--seconds", "timed seconds for each workload", "0.5"):convert(tonumber)
  parser:option("--threads", "threads on both sides", "1"):convert(tonumber)
  parser:option("--json", "also write the results to this file")
  parser:option("--peer", "a Python that has PyTorch: time that as well")
  parser:option("--script", "the peer's script", here .. "/peer.py")
  parser:option("--rounds", "with --peer: turns of both sides", "3"):convert(tonumber)
  return parser:parse(words)
end

--- One result as a JSON line, with the keys that the peer prints too.
local function line_of(r)
  return ('{"name": "%s", "unit": "us", "median": %.4f, "min": %.4f, "threads": %d, "n": %d}')
    :format(r.name, r.median, r.min, r.threads, r.n)
end

local function parse_line(line)
  local name = line:match('"name": "([^"]+)"')
  local median, min = line:match('"median": ([%d.e+-]+)'), line:match('"min": ([%d.e+-]+)')
  if not (name and median and min) then return nil end
  return { name = name, median = tonumber(median), min = tonumber(min) }
end

--- Tables that the collector has to walk past, as in a program that has other things to do.
local function ballast()
  local list = {}
  for i = 1, LIVE_TABLES do list[i] = { i, name = "entry" } end
  return list
end

local function time_one(moth, options, workload, variant)
  moth.manual_seed(0)
  local step, around = workload[3](moth)
  local held = variant:find("tables", 1, true) and ballast() or nil
  collectgarbage()
  local scope = variant:find("scope", 1, true) and moth.scope or nil
  local samples
  local function run() samples = timing.measure(step, options.seconds, scope) end
  if around then around(run) else run() end
  assert(not held or #held == LIVE_TABLES)
  local median, min = timing.summary(samples)
  return {
    name = workload[1] .. variant, median = median, min = min, threads = options.threads,
    n = #samples,
  }
end

--- Runs Moth's side in this process; each result goes to show(result).
local function time_suite(options, show)
  -- It chooses OpenBLAS's kernels by hand and slows them on some machines.
  ffi.C.unsetenv("OPENBLAS_CORETYPE")
  local moth = require "moth"
  moth.set_num_threads(options.threads)
  local results = {}
  for _, workload in ipairs(require(options.suite)) do
    if workload[1]:find(options.only) then
      local variants = workload.variants and { "", "+scope", "+tables", "+scope+tables" } or { "" }
      for _, variant in ipairs(variants) do
        local done, result = pcall(time_one, moth, options, workload, variant)
        if not done then
          io.stderr:write(("%s: left out: %s\n"):format(workload[1], tostring(result)))
          break
        end
        results[#results + 1] = result
        show(result, workload[2])
      end
    end
  end
  return results
end

local function write_json(path, results)
  local file = assert(io.open(path, "w"))
  for _, r in ipairs(results) do file:write(line_of(r), "\n") end
  file:close()
end

--- A word as the shell takes it literally.
local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

--- Runs one side in its own process; gives {name = {median, min}} and the order of the names.
local function run_side(words)
  local command = {}
  for i, word in ipairs(words) do command[i] = quoted(tostring(word)) end
  local pipe = assert(io.popen("env -u OPENBLAS_CORETYPE " .. table.concat(command, " ")))
  local found, order = {}, {}
  for line in pipe:lines() do
    local result = parse_line(line)
    if result then
      found[result.name], order[#order + 1] = result, result.name
    end
  end
  pipe:close()
  return found, order
end

local function median_over(rounds, name)
  local values, lowest = {}, math.huge
  for _, round in ipairs(rounds) do
    if round[name] then
      values[#values + 1] = round[name].median
      lowest = math.min(lowest, round[name].min)
    end
  end
  if #values == 0 then return nil end
  return (timing.summary(values)), lowest
end

local function compare(options)
  local ours, theirs, order = {}, {}, nil
  for round = 1, options.rounds do
    io.stderr:write(("round %d of %d\n"):format(round, options.rounds))
    ours[round], order = run_side {
      launcher.program, "bench", options.suite, "--only", options.only, "--seconds",
      options.seconds, "--threads", options.threads, "--json", "/dev/stdout",
    }
    theirs[round] = run_side {
      options.peer, options.script, "--seconds", options.seconds, "--threads", options.threads,
      "--only", options.script == here .. "/peer.py" and options.only or "^(small|op/square0)",
    }
  end

  print(("%-32s %10s %10s %10s %8s"):format("workload, us", "Moth", "(lowest)", "PyTorch", "ratio"))
  local logs, n, lines = 0, 0, {}
  for _, name in ipairs(order) do
    local mine, lowest = median_over(ours, name)
    local other = median_over(theirs, name:match("^[^+]+"))
    local row = ("%-32s %10.3f %10.3f"):format(name, mine, lowest)
    if other then
      row = row .. (" %10.3f %7.1fx"):format(other, other / mine)
      if not name:find("+", 1, true) then logs, n = logs + math.log(other / mine), n + 1 end
    end
    print(row)
    lines[#lines + 1] = { name = name, median = mine, min = lowest, threads = options.threads,
      n = options.rounds }
  end
  if n > 0 then
    print(("geometric mean over %d workloads: %.2f times as fast as PyTorch")
      :format(n, math.exp(logs / n)))
  end
  if options.json then write_json(options.json, lines) end
end

local function main(words)
  local options = options_of(words)
  if options.peer then return compare(options) end
  if options.json == "/dev/stdout" then
    time_suite(options, function(r)
      print(line_of(r))
      io.stdout:flush()
    end)
    return
  end
  print(("%-32s %10s %10s  %s"):format("workload, us", "median", "lowest", "what it does"))
  local results = time_suite(options, function(r, text)
    print(("%-32s %10.3f %10.3f  %s"):format(r.name, r.median, r.min, text))
  end)
  if options.json then write_json(options.json, results) end
end

main { ... }
