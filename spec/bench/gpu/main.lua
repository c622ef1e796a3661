--- main.lua -- `moth bench cuda`: named workloads on one GPU, one line of JSON each.
--
-- Names and fields are those of PyTorch's side, which is run in turn with this one; what the fields
-- mean stands in measure.lua. tflop_s and gb_s come from device_us; images_s, tokens_s and what
-- training does of flop from wall_us (mfu: of 989 TFLOP/s). peak_mib: the most that tensors took
-- on the device, less what there was before. A row that fails has `error`, and the others go on.

local argparse = require "argparse"
local moth = require "moth"
local json = require "moth.json"
local rows = require "gpu.rows"
local timing = require "timing"
local workloads = require "workloads"

local rounded = timing.rounded

local RATES = {
  { "flop", "tflop_s", 1e6 }, { "mfu", "mfu", 989e6 }, { "bytes", "gb_s", 1e3 },
  { "images", "images_s", 1e-6 }, { "tokens", "tokens_s", 1e-6 },
}

local function options_of(words)
  local parser = argparse("moth bench cuda", "Times Moth on a GPU, one line of JSON a workload.")
  parser:option("--only", "only workloads whose name matches: Lua patterns, a|b", "")
  parser:option("--seconds", "timed seconds of a workload", "0.3"):convert(tonumber)
  parser:option("--json", "also write the results to this file, row by row")
  parser:flag("--list", "print names and descriptions only")
  parser:flag("--dry", "each workload once, tiny")
  return parser:parse(words)
end

local function text_of(value)
  if type(value) == "string" then return json.string(value) end
  return type(value) == "number" and ("%.14g"):format(value) or tostring(value)
end

-- A row as JSON: a list of {key, value}.
local function line_of(fields)
  local parts = {}
  for i, field in ipairs(fields) do
    parts[i] = json.string(field[1]) .. ": " .. text_of(field[2])
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- What a workload of fresh processes gave: a row for each figure.
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
  rows.dry = options.dry or false
  require "gpu.ops"
  require "gpu.train"
  local lines, failed = {}, 0
  local function report(fields)
    lines[#lines + 1] = line_of(fields)
    print(lines[#lines])
    io.stdout:flush()
    if options.json then
      local file = assert(io.open(options.json, "w"))
      file:write("[", table.concat(lines, ",\n"), "]\n")
      file:close()
    end
  end
  local chosen = {}
  for _, row in ipairs(rows.list) do
    if workloads.matches(row.name, options.only) then chosen[#chosen + 1] = row end
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
