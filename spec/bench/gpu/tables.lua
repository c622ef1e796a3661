--- tables.lua -- the rows of both sides of `moth bench cuda --peer` as Markdown: the machine, a
-- table for each group, and a summary.

local timing = require "timing"

local tables = {}

tables.GROUPS = { "launch", "gemm", "memory", "conv", "attention", "train", "process" }

-- The compared fields. A workload of new processes has a row for each figure.
local FIELDS = {
  launch = { "host_us", "sync_us" }, gemm = { "device_us" }, memory = { "device_us" },
  conv = { "device_us" }, attention = { "device_us" }, train = { "wall_us", "peak_mib" },
  process = { "wall", "peak_rss", "device_memory" },
}
local LABELS = { moth = "Moth", pytorch = "PyTorch", run = "run" }

-- Variants of the same work: the last word of a step's name, an attention kernel, a layout.
local MODES = { eager = true, graph = true, compile = true, fused = true, foreach = true,
  default = true }

-- Small networks, for which the goal is a third of PyTorch's time.
local SMALL = { "^launch/xor_step", "^launch/agent_step", "^launch/agent_infer",
  "^launch/lstmcell_loop", "^train/mnist_net_b64", "^train/mlp784" }
local WANTED = 3

-- Limits of an H200, from its data sheet and from published measurements. TFLOP/s; GB/s.
local NOMINAL = { bf16 = 790, f16 = 790, tf32 = 495, f32 = 67, copy = 4300, host = 64 }

local MAX_CLOCKS = 1.03

-- ---- names ----

local function group_of(name) return name:match "^%w+" end

--- The name that all variants share.
local function family_of(name)
  local stem, mode = name:match "^(.*)/(%l+)$"
  if MODES[mode] then return stem end
  return (name:gsub("^(attention/)%l+_", "%1"):gsub("^(conv/.*)_cl/", "%1/"))
end

--- The word that distinguishes a variant.
local function way_of(name)
  local mode = name:match "/(%l+)$"
  if MODES[mode] then return mode end
  if name:find "^conv/" then return name:find("_cl/", 1, true) and "_cl" or "contiguous" end
  return name:match "^attention/(%l+)_" or ""
end

local function number_in(row, key)
  local value = row and row[key]
  return type(value) == "number" and value > 0 and value or nil
end

local function value_of(row, field) return number_in(row, field) or number_in(row, "median") end

--- The fields by which a row is compared.
local function fields_of(name)
  local fields = FIELDS[group_of(name)] or {}
  if not name:find "^process/" then return fields end
  for _, field in ipairs(fields) do
    if name:find("/" .. field .. "$") then return { field } end
  end
  return {}
end

-- ---- rows by name ----

--- name -> {name, rows = {side -> {round -> row}}, errors = {side -> text}}, and the names in order
local function gathered(rows)
  local entries, names = {}, {}
  for _, group in ipairs(tables.GROUPS) do
    for _, side in ipairs { "moth", "pytorch" } do
      for _, row in ipairs(rows) do
        if row.side == side and row.name:find("^" .. group .. "/") then
          local e = entries[row.name]
          if not e then
            e = { name = row.name, rows = { moth = {}, pytorch = {} }, errors = {} }
            entries[row.name], names[#names + 1] = e, row.name
          end
          if not row.error then e.rows[side][row.round] = row end
          e.errors[side] = row.error or e.errors[side]
        end
      end
    end
  end
  return entries, names
end

local function values(entry, side, field)
  local list = {}
  for _, row in pairs(entry and entry.rows[side] or {}) do
    list[#list + 1] = value_of(row, field)
  end
  return list
end

local function median(entry, side, field)
  local list = values(entry, side, field)
  return list[1] and timing.median(list)
end

--- PyTorch's figure over Moth's. @return the median over the rounds, and the largest over the
-- smallest (nil for one round); or nil
local function ratio_of(ours, theirs, field)
  local ratios = {}
  for round, row in pairs(ours and ours.rows.moth or {}) do
    local a, b = value_of(row, field), value_of(theirs and theirs.rows.pytorch[round], field)
    if a and b then ratios[#ratios + 1] = b / a end
  end
  if not ratios[1] then return nil end
  return timing.median(ratios),
    ratios[2] and math.max(unpack(ratios)) / math.min(unpack(ratios)) or nil
end

--- Returns true if the rounds differ more than the sides.
local function tied(ratio, spread)
  return spread ~= nil and math.max(ratio, 1 / ratio) <= spread
end

--- The fastest variant of a family on a side.
local function best_of(families, name, side, field)
  local best, least
  for _, entry in ipairs(families[family_of(name)]) do
    local value = median(entry, side, field)
    if value and (not least or value < least) then best, least = entry, value end
  end
  return best, least
end

-- ---- cells ----

-- Four digits; large numbers have more.
local function shown(value)
  if not value then return "" end
  local digits = value >= 1000 and 0 or value >= 100 and 1 or value >= 10 and 2 or 3
  return ("%." .. digits .. "f"):format(value)
end

local function ratio_text(ratio, spread)
  if not ratio then return "" end
  return (ratio < 0.1 and "%.3f%s" or "%.2f%s"):format(ratio, tied(ratio, spread) and " =" or "")
end

local function table_of(titles, lines)
  local text = { "| " .. table.concat(titles, " | ") .. " |", "|" .. ("---|"):rep(#titles) }
  for _, cells in ipairs(lines) do text[#text + 1] = "| " .. table.concat(cells, " | ") .. " |" end
  return table.concat(text, "\n") .. "\n"
end

--- Prints a row at once, and its ratio when both sides have it in this round.
function tables.show(row, ours, theirs)
  if row.side == "run" or row.name == "machine" then return end
  local line = ("%d %-7s %-44s"):format(row.round, LABELS[row.side], row.name)
  if row.error then
    print(line .. " error: " .. row.error)
    return
  end
  for _, field in ipairs(fields_of(row.name)) do
    local a, b = value_of(ours, field), value_of(theirs, field)
    local both = a and b and ours.round == theirs.round
    line = ("%s %s %s%s"):format(line, field, shown(value_of(row, field)),
      both and (" (%.2f)"):format(b / a) or "")
  end
  print(line)
  io.flush()
end

-- ---- limits ----

--- The TFLOP/s of each dtype and the GB/s that a side reached, or NOMINAL.
local function limits_of(entries)
  local limits, measured = {}, {}
  local function reached(key, name, field)
    local most
    for _, side in ipairs { "moth", "pytorch" } do
      local value = median(entries[name], side, field)
      most = value and math.max(value, most or 0) or most
    end
    limits[key], measured[key] = most or NOMINAL[key], most ~= nil
  end
  for _, kind in ipairs { "bf16", "f16", "tf32", "f32" } do
    reached(kind, "gemm/8192x8192x8192/" .. kind, "tflop_s")
  end
  reached("copy", "memory/copy/8GB", "gb_s")
  limits.host = NOMINAL.host
  return limits, measured
end

local function limits_text(limits, measured)
  local list = {}
  for _, kind in ipairs { "bf16", "f16", "tf32", "f32", "copy" } do
    list[#list + 1] = ("%s %s%s"):format(kind == "copy" and "memory" or kind, shown(limits[kind]),
      measured[kind] and "" or " (not measured here)")
  end
  return table.concat(list, ", ")
end

--- Moth's rate, and its share of the machine's limit.
local function rate_cells(entry, field, limits)
  if field ~= "device_us" and field ~= "wall_us" then return "", "" end
  local flop, bytes = median(entry, "moth", "tflop_s"), median(entry, "moth", "gb_s")
  local kind = "copy"
  if flop then
    kind = entry.name:match "/(t?f32)/?" or entry.name:match "/(b?f16)" or "f32"
  elseif entry.name:find "^memory/host_copy" then
    kind = "host"
  end
  local rate = flop or bytes
  if not rate then return "", "" end
  return ("%s %s"):format(shown(rate), flop and "TFLOP/s" or "GB/s"),
    ("%.0f %%"):format(100 * rate / limits[kind])
end

-- ---- the table of a group ----

local TITLES = { "workload", "field", "Moth", "PyTorch", "ratio", "spread", "PyTorch's best",
  "ratio", "Moth a second", "of the limit" }

local function cells_of(all, entry, field)
  local theirs, least = best_of(all.families, entry.name, "pytorch", field)
  local ratio, spread = ratio_of(entry, entry, field)
  local cells = { entry.name:match "/(.*)", field }
  for _, side in ipairs { "moth", "pytorch" } do
    local value = median(entry, side, field)
    cells[#cells + 1] = value and shown(value) or entry.errors[side] and "error" or ""
  end
  cells[#cells + 1] = ratio_text(ratio, spread)
  cells[#cells + 1] = spread and ("%.2f"):format(spread) or ""
  local alone = not all.families[family_of(entry.name)][2] or field == "peak_mib"
  cells[#cells + 1] = not alone and theirs and way_of(theirs.name) .. " " .. shown(least) or ""
  cells[#cells + 1] = alone and "" or ratio_text(ratio_of(entry, theirs, field))
  cells[#cells + 1], cells[#cells + 2] = rate_cells(entry, field, all.limits)
  return cells
end

--- Calls fn(entry, field) for all comparisons in a group: rows of Moth, or rows that no side has.
local function each(all, group, fn)
  for _, name in ipairs(all.names) do
    local entry = all.entries[name]
    local ours = next(entry.rows.moth) or entry.errors.moth
    if group_of(name) == group and (ours or not best_of(all.families, name, "moth",
      fields_of(name)[1])) then
      for _, field in ipairs(fields_of(name)) do fn(entry, field) end
    end
  end
end

-- ---- the summary ----

local function mean_text(list)
  local logs, lowest = 0, list[1]
  for _, item in ipairs(list) do
    logs = logs + math.log(item.ratio)
    if item.ratio < lowest.ratio then lowest = item end
  end
  return ratio_text(math.exp(logs / #list)), #list,
    ratio_text(lowest.ratio) .. " " .. lowest.name:match "/(.*)"
end

--- Ratios of a field in a group: of the same rows, and of the best rows, one for each family, with
-- their `ways` if there are several variants.
local function ratios_in(all, group, field)
  local same, best, done = {}, {}, {}
  each(all, group, function(entry, this)
    if this ~= field then return end
    local ratio, spread = ratio_of(entry, entry, field)
    if ratio then same[#same + 1] = { name = entry.name, ratio = ratio, spread = spread } end
    local family = family_of(entry.name)
    local ours = best_of(all.families, entry.name, "moth", field)
    local theirs = best_of(all.families, entry.name, "pytorch", field)
    if done[family] or field == "peak_mib" or not (ours and theirs) then return end
    done[family] = true
    ratio, spread = ratio_of(ours, theirs, field)
    if ratio then
      best[#best + 1] = { name = family, ratio = ratio, spread = spread,
        ways = all.families[family][2] and way_of(ours.name) .. " / " .. way_of(theirs.name) }
      best.ways = best.ways or best[#best].ways
    end
  end)
  return same, best
end

--- Calls fn(group, field, same, best) for each field of each group that has ratios.
local function each_field(all, fn)
  for _, group in ipairs(tables.GROUPS) do
    for _, field in ipairs(FIELDS[group]) do
      local same, best = ratios_in(all, group, field)
      if same[1] or best[1] then fn(group, field, same, best) end
    end
  end
end

local function means(all)
  local lines = {}
  each_field(all, function(group, field, same, best)
    for i, list in ipairs { same, best.ways and best } do
      if list[1] then
        lines[#lines + 1] = { group, field, i == 1 and "the same row" or "best / best",
          mean_text(list) }
      end
    end
  end)
  return table_of({ "group", "field", "compared", "mean", "rows", "the lowest" }, lines)
end

--- Rows of a list below a ratio, the lowest first, as cells.
local function below(all, least, wanted)
  local items, lines = {}, {}
  each_field(all, function(_, field, same, best)
    for i, list in ipairs { same, best } do
      for _, item in ipairs(list) do
        item.field = field
        if item.ratio < least and (i == 1 or item.ways) and wanted(item) then
          item.compared = i == 1 and "the same row" or "best / best: " .. item.ways
          items[#items + 1] = item
        end
      end
    end
  end)
  table.sort(items, function(a, b) return a.ratio < b.ratio end)
  for i, item in ipairs(items) do
    lines[i] = { item.name, item.field, item.compared, ratio_text(item.ratio, item.spread),
      item.spread and ("%.2f"):format(item.spread) or "" }
  end
  if not lines[1] then return "None.\n" end
  return table_of({ "workload", "field", "compared", "ratio", "spread" }, lines)
end

local function is_small(item)
  for _, pattern in ipairs(SMALL) do
    if item.name:find(pattern) and item.field ~= "peak_mib" then return true end
  end
  return false
end

local function problems(all, rows)
  local lines, seen = {}, {}
  for _, row in ipairs(rows) do
    local entry = all.entries[row.name]
    local had = entry and entry.rows[row.side] and entry.rows[row.side][row.round]
    local key = row.side .. row.name .. tostring(row.error)
    if row.error and not had and not seen[key] then
      seen[key] = true
      lines[#lines + 1] = ("- %s, %s: %s"):format(LABELS[row.side], row.name, row.error)
    end
  end
  return lines
end

--- Rows whose sides ran at different clocks.
local function apart(all)
  local list = {}
  for _, name in ipairs(all.names) do
    local rows = all.entries[name].rows
    for round, row in pairs(rows.moth) do
      local a, b = number_in(row, "sm_mhz"), number_in(rows.pytorch[round], "sm_mhz")
      if a and b and math.max(a, b) / math.min(a, b) > MAX_CLOCKS then
        list[#list + 1] = ("%s (%.0f, %.0f)"):format(name, a, b)
        break
      end
    end
  end
  return list
end

-- ---- all of it ----

local INTRODUCTION = [[
# Moth beside PyTorch on a GPU

`./moth bench cuda --peer PYTHON --json FILE`, `./moth bench cuda --table FILE ...`

%s

In each round a group of workloads runs in a fresh process of either side, in turn, on the same GPU.
Figures are medians, microseconds per call, memory in MiB. A ratio above 1 is Moth's:
PyTorch's figure over Moth's in the same round, the median over the rounds. The spread is the
largest of these ratios over the smallest; a ratio within it is a tie and marked =. PyTorch's best
is its fastest way to do the same: eager, graph (CUDA graph, fused Adam), compile; default, foreach,
fused; the attention kernel that it chooses (sdpa), flash, cudnn; _cl (channels_last).
device_us is between events on the GPU, host_us until the calls were issued, sync_us one call until
it is done, wall_us a call of many until all are done, peak_mib what tensors took at most. Where
host_us and device_us agree the host is what is measured. Names: f32, tf32, bf16, f16; fwd, fwdbwd
(with backward). memory runs on a cold L2 cache, the rest on a warm one.

The limit is what a product of 8192x8192x8192 reached on the better side, TFLOP/s, and for bytes a
copy of 8 GB, GB/s: %s.
]]

local function conditions(rows)
  local lines, seen = {}, {}
  local function add(text)
    if not seen[text] then
      seen[text] = true
      lines[#lines + 1] = "- " .. text
    end
  end
  for _, row in ipairs(rows) do
    if row.side == "run" then
      add(("%s: GPU %s; CPU %s; %d rounds, %g s a workload%s"):format(row.date, row.gpu, row.cpu,
        row.rounds, row.seconds, row.dry and "; A DRY RUN: no figure means anything" or ""))
    elseif row.name == "machine" and row.torch then
      add(("PyTorch %s, CUDA %s, cuDNN %s, Python %s, on %s"):format(row.torch,
        tostring(row.cuda), tostring(row.cudnn), tostring(row.python), row.gpu))
    elseif row.name == "machine" then
      add(("Moth %s, on %s"):format(tostring(row.moth), row.gpu))
    end
  end
  local low, high -- the range of clocks
  for _, row in ipairs(rows) do
    local mhz = number_in(row, "sm_mhz")
    low, high = mhz and math.min(mhz, low or mhz) or low, mhz and math.max(mhz, high or mhz) or high
  end
  if low then add(("multiprocessors at %.0f to %.0f MHz while calls ran"):format(low, high)) end
  return table.concat(lines, "\n")
end

local function families_of(entries, names)
  local families = {}
  for _, name in ipairs(names) do
    local family = family_of(name)
    families[family] = families[family] or {}
    table.insert(families[family], entries[name])
  end
  return families
end

--- The rows of results.read or of a run as Markdown.
function tables.markdown(rows)
  local entries, names = gathered(rows)
  local all = { entries = entries, names = names, families = families_of(entries, names) }
  local limits, measured = limits_of(entries)
  all.limits = limits
  local text = { INTRODUCTION:format(conditions(rows), limits_text(limits, measured)) }
  for _, group in ipairs(tables.GROUPS) do
    local lines = {}
    each(all, group, function(entry, field) lines[#lines + 1] = cells_of(all, entry, field) end)
    if lines[1] then text[#text + 1] = ("## %s\n\n%s"):format(group, table_of(TITLES, lines)) end
  end
  text[#text + 1] = "## Geometric means\n\n" .. means(all)
  text[#text + 1] = "## Below 1\n\n" .. below(all, 1, function() return true end)
  text[#text + 1] = ("## Small networks below %d\n\n%s"):format(WANTED,
    below(all, WANTED, is_small))
  local failed, clocks = problems(all, rows), apart(all)
  if failed[1] then text[#text + 1] = "## Failed\n\n" .. table.concat(failed, "\n") .. "\n" end
  if clocks[1] then
    text[#text + 1] = "## To repeat: the clocks of the sides differ by over 3 %\n\n"
      .. table.concat(clocks, ", ") .. "\n"
  end
  return table.concat(text, "\n")
end

return tables
