--- `moth bench`: times Moth and, with --peer, PyTorch.
--
-- Both sides are processes; one waits while the other runs. They live as long as a group. An
-- allocator has a history, and PyTorch's times depend on it: a large result costs up to ten times
-- its arithmetic in page faults if malloc has not learned to keep blocks of that size; in a group
-- it mostly has. --fresh starts new processes for each workload.
--
-- For each workload both sides set it up, then run alternately: a pair of timings in each round. A
-- row's ratio is the median over the pairs of PyTorch's time over Moth's; its range is the third
-- quartile of the pairs' ratios over the first. A row with a range above 1.3 is marked as noisy
-- and left out of the counts.
--
-- `moth bench cuda` (or --device cuda without a group) is another program, with sizes for a GPU:
-- gpu/main.lua. `moth bench GROUP --device cuda` runs a CPU group there.

local here = arg[0]:match "^(.*)/" or "."
package.path = here .. "/?.lua;" .. here .. "/../../?.lua;" .. package.path

local argparse = require "argparse"
local child = require "child"
local errors = require "moth.error"
local report = require "report"
local workloads = require "workloads"

local launcher = debug.getregistry()["moth.launcher"] or {}

-- All groups, as a list and as a set.
local function groups_of()
  local groups, known = {"all", "cuda"}, {all = true, cuda = true}
  for _, row in ipairs(workloads.read()) do
    if not known[row.group] then groups[#groups + 1] = row.group end
    known[row.group] = true
  end
  return groups, known
end

--- The words of `moth bench cuda`, also if only --device selects it; nil for other commands.
local function words_of_cuda(words)
  local _, known = groups_of()
  local rest, asked, i = {}, false, 1
  while i <= #words do
    local word, before = words[i], words[i - 1] or ""
    if word == "--device=cuda" or word == "--device" and words[i + 1] == "cuda" then
      asked, i = true, word == "--device" and i + 1 or i
    elseif known[word] and not before:find "^%-%-[%a-]+$" then
      if word ~= "cuda" then return nil end -- a group of this program
      asked = true
    else
      rest[#rest + 1] = word
    end
    i = i + 1
  end
  return asked and rest or nil
end

local function options_of(words)
  local parser = argparse("moth bench", "Times Moth, and PyTorch beside it.")
  parser:argument("group", "what to time (default: all). cuda: sizes for a GPU, PyTorch on the "
    .. "same one with --peer, also by --device cuda without a group; `cuda --help` has its options")
    :choices((groups_of())):args("?")
  parser:option("--only", "only workloads whose name matches: Lua patterns, a|b", "")
  parser:option("--peer", "a Python that has PyTorch: time that as well")
  parser:flag("--best", "and PyTorch once more, in its best setting")
  parser:option("--threads", "threads on all sides", "1"):convert(tonumber)
  parser:option("--seconds", "of each timing", "0.1"):convert(tonumber)
  parser:option("--rounds", "turns of all sides", "5"):convert(tonumber)
  parser:flag("--cpu", "time of the processes, not of the wall: for busy machines, one thread")
  parser:option("--device", "where all sides compute a group: cpu or cuda", "cpu")
  parser:flag("--fresh", "each workload in processes of its own")
  parser:flag("--list", "print the names and what they are, and end")
  parser:option("--json", "also write the results to this file")
  parser:option("--markdown", "also write them as tables to this file")
  local options = parser:parse(words)
  options.group = options.group or "all"
  return options
end

-- ---- the sides ----

-- The settings of an experienced user: MKL uses its Intel code (it is slow on other CPUs
-- otherwise), and an allocator that keeps its pages. The peer adds fused optimizers.
local function best_setting(folder)
  local setting = {
    MOTH_BENCH_BEST = "1", MALLOC_MMAP_MAX_ = "0", MALLOC_TRIM_THRESHOLD_ = "100000000000",
  }
  local info = io.open "/proc/cpuinfo"
  local vendor = info and info:read(4096):match "vendor_id%s*:%s*(%S+)"
  if info then info:close() end
  if vendor == "AuthenticAMD" then
    local source = assert(io.open(folder .. "/intel.c", "w"))
    source:write "int mkl_serv_intel_cpu_true(void) { return 1; }\n"
    source:close()
    local library = folder .. "/intel.so"
    local status = os.execute(("cc -shared -fPIC -o %s %s"):format(child.quoted(library),
      child.quoted(folder .. "/intel.c")))
    assert(status == 0, "cc could not compile the library that is preloaded")
    setting.LD_PRELOAD = library
  end
  return setting
end

local function sides_of(options, folder)
  local function setting(more)
    local all = {
      OPENBLAS_CORETYPE = false, OPENBLAS_L2_SIZE = false, OMP_NUM_THREADS = options.threads,
      PYTHONDONTWRITEBYTECODE = "1",
    }
    for name, value in pairs(more or {}) do all[name] = value end
    return all
  end
  local clock = options.cpu and "cpu" or "wall"
  local words = {launcher.program, here .. "/side.lua", options.threads, clock, options.device}
  local sides = {child.new("Moth", words, setting(), folder)}
  if options.peer then
    words = {options.peer, here .. "/peer", options.threads, clock, options.device}
    sides[2] = child.new("PyTorch", words, setting(), folder)
    if options.best then
      sides[3] = child.new("PyTorch, best", words, setting(best_setting(folder)), folder)
    end
  end
  return sides
end

-- ---- alternating runs ----

-- name .. variant .. part -> {name, group, unit, values = {side -> {round -> value}}, errors}
local function gatherer(row)
  local list, by_name = {}, {}
  local function entry(name, unit)
    if not by_name[name] then
      by_name[name] = {
        name = name, group = row.mean or row.group, unit = unit, values = {}, errors = {},
      }
      list[#list + 1] = by_name[name]
    end
    by_name[name].unit = by_name[name].unit or unit
    return by_name[name]
  end
  return list, entry
end

local function variants_of(row, side)
  return side == 1 and row.variants or {""}
end

-- One timing of one side.
local function turn(row, sides, side, round, options, entry)
  for _, variant in ipairs(variants_of(row, side)) do
    local seconds = math.min(options.seconds, row.options.seconds or options.seconds)
    local named = variant == "" and "plain" or variant
    local parts, problem = sides[side]:time(named, seconds, round)
    if not parts then entry(row.name .. variant).errors[side] = problem end
    for _, part in ipairs(parts or {}) do
      local e = entry(row.name .. variant .. part[1], part[2])
      e.values[side] = e.values[side] or {}
      e.values[side][round] = part[3]
    end
  end
end

-- Sets a row up on one side. @return true if the side has the row; the error
local function set_up(row, process, side)
  if row.kind ~= "record" then return process:ask("setup", row.name) end
  local records = require "records"
  if side == 1 then return process:ask("record", records.call(row)) end
  if row.peerless then return nil, row.peerless end
  return process:ask("record", records.peer_call(row))
end

--- Times a workload on all sides. @return its entries
local function compare(row, sides, options)
  local list, entry = gatherer(row)
  local ready = {}
  for side, process in ipairs(sides) do
    local ok, problem = set_up(row, process, side)
    ready[side] = ok ~= nil
    if not ok then entry(row.name).errors[side] = problem end
  end
  for round = 1, math.min(options.rounds, row.options.rounds or options.rounds) do
    for side = 1, #sides do
      if ready[side] then turn(row, sides, side, round, options, entry) end
    end
  end
  for side, process in ipairs(sides) do
    if ready[side] then process:ask "drop" end
  end
  return list
end

-- A variant is compared with the peer's plain run: the peer has no variants.
local function lend_peers(list)
  local by_name = {}
  for _, e in ipairs(list) do by_name[e.name] = e end
  for _, e in ipairs(list) do
    local plain = by_name[(e.name:gsub("%+[%w+]+", "", 1))]
    for side, values in pairs(plain and plain.values or {}) do
      if side > 1 then e.values[side] = values end
    end
  end
end

-- All workloads of a group: those of workloads.txt, and, at the end of op, those of records.lua.
local function rows_of(group)
  local rows = {}
  for _, row in ipairs(workloads.read()) do
    if group == "all" or row.group == group then rows[#rows + 1] = row end
  end
  if group == "all" or group == "op" then
    for _, row in ipairs((require("records").read())) do rows[#rows + 1] = row end
  end
  return rows
end

local function chosen_rows(options)
  local rows = {}
  for _, row in ipairs(rows_of(options.group)) do
    if workloads.matches(row.name, options.only) then rows[#rows + 1] = row end
  end
  return rows
end

-- Raises: no row matches; the message suggests similar names of the group.
local function nothing(options)
  local near, names = {}, {}
  for _, row in ipairs(rows_of(options.group)) do names[#names + 1] = row.name end
  for word in options.only:gmatch "[%w_]+" do
    for _, name in ipairs(names) do
      local parts = {}
      for part in name:gmatch "[^/]+" do parts[#parts + 1] = part end
      if errors.nearest(word, parts) ~= "" then near[#near + 1] = name end
    end
  end
  local text = ("moth bench: no workload of '%s' matches '%s'"):format(options.group, options.only)
  if near[1] then text = text .. "; near: " .. table.concat(near, ", ", 1, math.min(#near, 8)) end
  io.stderr:write(text, " (--list shows all)\n")
  os.exit(1)
end

local function stop(sides)
  for _, side in ipairs(sides) do side:stop() end
end

local function versions_of(sides)
  local list = {}
  for i, side in ipairs(sides) do
    local text, problem = side:ask "version"
    if not text then error(side.label .. ": " .. problem, 0) end
    list[i] = text
  end
  return list
end

local function time_all(options, rows, folder)
  local sides = sides_of(options, folder)
  local about = {
    options = options, labels = {}, versions = versions_of(sides),
  }
  for i, side in ipairs(sides) do about.labels[i] = side.label end
  local results, group = {}, nil
  report.heading(about)
  for _, row in ipairs(rows) do
    if options.fresh or row.group ~= group then stop(sides) end
    group = row.group
    local list = compare(row, sides, options)
    lend_peers(list)
    for _, e in ipairs(list) do
      results[#results + 1] = e
      report.line(about, e)
    end
  end
  stop(sides)
  report.means(about, results)
  report.below(about, results)
  if options.json then report.json(about, results, options.json) end
  if options.markdown then report.markdown(about, results, options.markdown) end
end

local function main(words)
  local of_cuda = words_of_cuda(words)
  if of_cuda then return require "gpu.main"(of_cuda) end
  local options = options_of(words)
  local rows = chosen_rows(options)
  if not rows[1] then nothing(options) end
  if options.list then
    for _, row in ipairs(rows) do
      print(("%-42s %s"):format(row.name, row.text))
    end
    return
  end
  local folder = child.folder()
  local ok, problem = xpcall(time_all, debug.traceback, options, rows, folder)
  os.execute("rm -rf " .. child.quoted(folder))
  if not ok then
    io.stderr:write("moth bench: ", problem, "\n")
    os.exit(1)
  end
end

main {...}
