--- main.lua -- `moth bench cuda`: named workloads on one GPU, one line of JSON each.
--
-- Names and fields are those of PyTorch's side, peer/gpu.py, which --peer runs alternately with
-- this side (compare.lua); measure.lua explains the fields. tflop_s and gb_s are computed from
-- device_us; images_s, tokens_s and the flop rate of training from wall_us (mfu: of 989 TFLOP/s).
-- peak_mib: the peak of device memory, minus the memory before. A row that fails has `error`, and
-- the other rows still run.

local argparse = require "argparse"
local moth = require "moth"
local results = require "gpu.results"
local rows = require "gpu.rows"
local timing = require "timing"
local workloads = require "workloads"

local rounded = timing.rounded

local RATES = {
  { "flop", "tflop_s", 1e6 }, { "mfu", "mfu", 989e6 }, { "bytes", "gb_s", 1e3 },
  { "images", "images_s", 1e-6 }, { "tokens", "tokens_s", 1e-6 },
}

-- Options of the comparison.
local TURNS = { rounds = 2, limit = 250 }

local function positive(text)
  local number = tonumber(text)
  if number and number > 0 then return number end
  return nil, ("'%s' is not a number above 0"):format(text)
end

local function options_of(words)
  local parser = argparse("moth bench cuda", "Times Moth on a GPU, one line of JSON a workload; "
    .. "with --peer PyTorch on the same GPU in turn, and a table of both.")
  parser:option("--only", "only workloads whose name matches: Lua patterns, a|b", "")
  parser:option("--peer", "a Python that has PyTorch: time that as well")
  parser:option("--rounds", "with --peer: turns of both sides (default: 2)"):convert(positive)
  parser:option("--limit", "with --peer: seconds of a process, one group in one round "
    .. "(default: 250)"):convert(positive)
  parser:option("--seconds", "timed seconds of a workload", "0.3"):convert(tonumber)
  parser:option("--json", "also write the results to this file, row by row; with --peer of both "
    .. "sides, for --table")
  parser:option("--table", "measure nothing, make the table of these files of --peer --json")
    :args("+"):argname("<file>")
  parser:flag("--list", "print names and descriptions only")
  parser:flag("--dry", "each workload once, tiny (PyTorch: on the CPU)")
  parser:option("--names", "only the workloads that this file names, a line each"):hidden(true)
  local options = parser:parse(words)
  for name, value in pairs(TURNS) do
    if options[name] and not options.peer then parser:error("--" .. name .. " wants --peer") end
    options[name] = options[name] or value
  end
  return options
end

--- The names in a file, as a set; nil without a file.
local function names_in(path)
  if not path then return nil end
  local set = {}
  for name in io.lines(path) do set[name] = true end
  return set
end

local function print_table(paths)
  local list, problem = results.read(paths)
  if not list then
    io.stderr:write("moth bench cuda: ", problem, "\n")
    os.exit(1)
  end
  io.write(require("gpu.tables").markdown(list))
end

-- The results of a workload of new processes: a row for each figure.
local function part_rows(name, parts)
  local list = {}
  for i, part in ipairs(parts) do
    local suffix, unit, values = unpack(part)
    list[i] = { { "name", name .. "/" .. suffix }, { "unit", unit },
      { "median", rounded(timing.median(values)) }, { "min", rounded(math.min(unpack(values))) },
      { "n", #values } }
  end
  return list
end

local function add_rates(fields, name, amounts)
  local by_name = {}
  for _, field in ipairs(fields) do by_name[field[1]] = field[2] end
  local took = by_name[name:find "^train" and "wall_us" or "device_us"]
  for _, rate in ipairs(RATES) do
    local key, field, unit = unpack(rate)
    if amounts[key] then fields[#fields + 1] = { field, rounded(amounts[key] / took / unit) } end
  end
end

--- The rows of one workload: lists of {key, value}.
local function run(row, seconds)
  local tf32 = row.name:find("/tf32", 1, true) ~= nil
  moth.set_float32_matmul_precision(tf32 and "high" or "highest")
  moth.backends.cudnn.benchmark, moth.backends.cudnn.allow_tf32 = true, tf32
  moth.manual_seed(0)
  jit.flush()
  moth.collect()
  moth.cuda.empty_cache()
  local flush
  if row.l2 == "cold" then
    local much = moth.ones(rows.cap(2 ^ 28))
    flush = function() return (much:sum()) end
  end
  moth.cuda.reset_peak_memory_stats()
  local before = moth.cuda.memory_allocated()
  local step, amounts = row.setup()
  if type(step) == "table" then return part_rows(row.name, step.parts) end
  local fields = { { "name", row.name } }
  for _, field in ipairs(require("gpu.measure").fields(step, seconds, flush)) do
    fields[#fields + 1] = field
  end
  fields[#fields + 1] = { "l2", row.l2 }
  fields[#fields + 1] = { "tf32", tf32 }
  add_rates(fields, row.name, amounts or {})
  local peak = (moth.cuda.max_memory_allocated() - before) / 2 ^ 20
  fields[#fields + 1] = { "peak_mib", math.floor(peak * 10 + 0.5) / 10 }
  return { fields }
end

return function(words)
  local options = options_of(words)
  if options.table then return print_table(options.table) end
  if options.peer and not options.list then return require "gpu.compare"(options) end
  rows.dry = options.dry or false
  require "gpu.ops"
  require "gpu.train"
  local lines, failed = {}, 0
  local function report(fields)
    lines[#lines + 1] = results.line(fields)
    print(lines[#lines])
    io.stdout:flush()
    if options.json then
      local file = assert(io.open(options.json, "w"))
      file:write("[", table.concat(lines, ",\n"), "]\n")
      file:close()
    end
  end
  local chosen, named = {}, names_in(options.names)
  for _, row in ipairs(rows.list) do
    if workloads.matches(row.name, options.only) and (not named or named[row.name]) then
      chosen[#chosen + 1] = row
    end
  end
  if options.list then
    for _, row in ipairs(chosen) do print(row.name .. ": " .. row.text) end
    return
  end
  moth.set_default_device "cuda"
  report { { "name", "machine" }, { "moth", moth._VERSION }, { "gpu", moth.cuda.get_device_name() },
    { "seconds", options.seconds } }
  for _, row in ipairs(chosen) do
    local ok, found = pcall(run, row, options.dry and 0 or options.seconds)
    if ok then
      for _, fields in ipairs(found) do report(fields) end
    else
      failed = failed + 1
      report { { "name", row.name }, { "error", tostring(found):gsub("%s+", " "):sub(1, 300) } }
    end
  end
  if failed > 0 then os.exit(1) end
end
