--- Prints the results of `moth bench`, and writes them as JSON and Markdown. An entry is {name,
-- group, unit, values = {side -> {round -> value}}, errors = {side -> text}}; side 1 is Moth.

local timing = require "timing"

local report = {}

local MAX_SPREAD = 1.3

--- The ratios to a peer. @return the median over the pairs, and their range; or nil
local function ratio_of(entry, peer)
  local ours, theirs = entry.values[1], entry.values[peer]
  if not (ours and theirs) or entry.unit == "%" or entry.unit == "count" then return nil end
  local ratios = {}
  for round, value in pairs(ours) do
    if theirs[round] then ratios[#ratios + 1] = theirs[round] / value end
  end
  if #ratios == 0 then return nil end
  return timing.median(ratios), timing.quantile(ratios, 0.75) / timing.quantile(ratios, 0.25)
end

local function list_of(values)
  local list = {}
  for _, value in pairs(values or {}) do list[#list + 1] = value end
  return list
end

-- Four digits; large numbers have more.
local function shown(value)
  local digits = value >= 1000 and 0 or value >= 100 and 1 or value >= 10 and 2 or 3
  return ("%." .. digits .. "f"):format(value)
end

-- The columns of an entry: Moth, and for each peer its figure, ratio and range.
local function columns(about, entry)
  local list = {}
  for side = 1, #about.labels do
    local values = list_of(entry.values[side])
    if entry.errors[side] then
      list[#list + 1] = "error"
    else
      list[#list + 1] = #values > 0 and shown(timing.median(values)) or ""
    end
    if side > 1 then
      local ratio, spread = ratio_of(entry, side)
      list[#list + 1] = ratio and ("%.2f"):format(ratio) or ""
      list[#list + 1] = ratio and ("%.2f%s"):format(spread, spread > MAX_SPREAD and "!" or "") or ""
    end
  end
  return list
end

local function titles(about)
  local list = {}
  for side, label in ipairs(about.labels) do
    list[#list + 1] = label
    if side > 1 then
      list[#list + 1] = "ratio"
      list[#list + 1] = "spread"
    end
  end
  return list
end

local function print_line(name, unit, cells)
  local line = {("%-44s %-5s"):format(name, unit or "")}
  for i, cell in ipairs(cells) do
    local narrow = i > 1 and i % 3 ~= 2
    line[#line + 1] = (narrow and "%7s" or "%13s"):format(cell)
  end
  print((table.concat(line, " "):gsub("%s+$", "")))
  io.flush()
end

function report.heading(about)
  print_line("workload", "unit", titles(about))
end

function report.line(about, entry)
  print_line(entry.name, entry.unit, columns(about, entry))
  for side, problem in pairs(entry.errors) do
    print(("    %s: %s"):format(about.labels[side], problem))
  end
end

-- ---- means ----

local function variant_of(entry) return entry.name:match "%+[%w+]+" or "" end

-- group, variant -> geometric mean, number of rows, lowest ratio, number of noisy rows
local function mean_of(results, group, variant, peer)
  local logs, n, lowest, noisy = 0, 0, math.huge, 0
  for _, entry in ipairs(results) do
    local ratio, spread = ratio_of(entry, peer)
    if ratio and entry.group == group and variant_of(entry) == variant then
      if spread > MAX_SPREAD then
        noisy = noisy + 1
      else
        logs, n, lowest = logs + math.log(ratio), n + 1, math.min(lowest, ratio)
      end
    end
  end
  return n > 0 and math.exp(logs / n) or nil, n, lowest, noisy
end

--- Calls fn(group, variant) for each, in order.
local function each_group(results, fn)
  local seen = {}
  for _, entry in ipairs(results) do
    local group, variant = entry.group, variant_of(entry)
    if not seen[group .. variant] then
      seen[group .. variant] = true
      fn(group, variant)
    end
  end
end

local function mean_lines(about, results)
  local lines = {}
  for peer = 2, #about.labels do
    each_group(results, function(group, variant)
      local mean, n, lowest, noisy = mean_of(results, group, variant, peer)
      if not mean then return end
      local line = ("%s%s: %s / Moth: %.2f (geometric mean of %d rows, the lowest %.2f)")
        :format(group, variant, about.labels[peer], mean, n, lowest)
      if noisy > 0 then line = line .. (", %d too noisy to count"):format(noisy) end
      lines[#lines + 1] = line
    end)
  end
  return lines
end

function report.means(about, results)
  for _, line in ipairs(mean_lines(about, results)) do print(line) end
end

--- Prints the rows in which Moth is slower, by ratio.
function report.below(about, results)
  for peer = 2, #about.labels do
    local list = {}
    for _, entry in ipairs(results) do
      local ratio, spread = ratio_of(entry, peer)
      if ratio and ratio < 1 then
        list[#list + 1] = {ratio = ratio, text = ("%7.2f  %s%s"):format(ratio, entry.name,
          spread > MAX_SPREAD and " (noisy)" or "")}
      end
    end
    table.sort(list, function(a, b) return a.ratio < b.ratio end)
    print(("%s / Moth below 1: %d rows"):format(about.labels[peer], #list))
    for _, row in ipairs(list) do print(row.text) end
  end
end

-- ---- files ----

local function json_string(text) return require("moth.json").string(text) end

local function json_values(values)
  local list = {}
  for round = 1, 1000 do
    local value = values and values[round]
    if value == nil and round > 5 then break end
    if value then list[#list + 1] = ("%.6g"):format(value) end
  end
  return "[" .. table.concat(list, ", ") .. "]"
end

local function json_entry(about, entry)
  local fields = {
    '"name": ' .. json_string(entry.name), '"group": ' .. json_string(entry.group),
    '"unit": ' .. json_string(entry.unit or ""),
  }
  for side, label in ipairs(about.labels) do
    local key = label:lower():gsub("%W+", "_")
    table.insert(fields, ('"%s": %s'):format(key, json_values(entry.values[side])))
    if entry.errors[side] then
      table.insert(fields, ('"%s_error": %s'):format(key, json_string(entry.errors[side])))
    end
    local ratio, spread = ratio_of(entry, side)
    if side > 1 and ratio then
      table.insert(fields, ('"%s_ratio": %.4f, "%s_spread": %.4f'):format(key, ratio, key, spread))
    end
  end
  return "{" .. table.concat(fields, ", ") .. "}"
end

--- Writes all rounds of all entries.
function report.json(about, results, path)
  local file = assert(io.open(path, "w"))
  file:write '{"versions": ['
  for i, text in ipairs(about.versions) do
    file:write(i > 1 and ", " or "", json_string(text))
  end
  file:write(('], "threads": %d, "results": [\n'):format(about.options.threads))
  for i, entry in ipairs(results) do
    file:write(json_entry(about, entry), i < #results and ",\n" or "\n")
  end
  file:write "]}\n"
  file:close()
end

--- The name of this machine's processor, and the number of processors.
function report.cpu()
  local file = io.open "/proc/cpuinfo"
  local text = file and file:read "*a" or ""
  if file then file:close() end
  local _, count = text:gsub("processor%s*:", "")
  local model = text:match "model name%s*:%s*([^\n]+)" or "unknown CPU"
  return ("%s, %d logical processors"):format(model, count)
end

local INTRODUCTION = [[
# Moth beside PyTorch

%s

Machine: %s. %d thread%s on all sides, medians of %d alternating rounds; a round is the mean of all
calls in %g s, in the small group also of at least ten cycles of Lua's collector. Figures in the
unit shown per call; %s.

A ratio above 1 is Moth's: the peer's figure over Moth's, the median over the pairs. The spread is
the third quartile of the pairs' ratios over the first; above 1.3 the row is marked ! and counts in
no mean. +scope stands inside moth.scope, +tables beside 10^5 live Lua tables (10^6 in the memory
group), +capture is replayed by moth.capture, +fsync waits for the disk, as moth.save does unless
told otherwise; PyTorch has none of these, so they repeat its figure.
]]

local function command_line(options)
  local words = {"./moth bench"}
  if options.group ~= "all" then words[#words + 1] = options.group end
  if options.peer then words[#words + 1] = "--peer PYTHON" end
  if options.best then words[#words + 1] = "--best" end
  if options.threads ~= 1 then words[#words + 1] = "--threads " .. options.threads end
  return "`" .. table.concat(words, " ") .. "`"
end

--- Writes the tables of spec/bench/RESULTS.md.
function report.markdown(about, results, path)
  local options = about.options
  local file = assert(io.open(path, "w"))
  file:write(INTRODUCTION:format(command_line(options), report.cpu(), options.threads,
    options.threads == 1 and "" or "s", options.rounds, options.seconds,
    table.concat(about.versions, "; ", 1, math.min(2, #about.versions))))
  file:write "\n"
  for _, line in ipairs(mean_lines(about, results)) do file:write("- ", line, "\n") end
  local group
  for _, entry in ipairs(results) do
    if entry.group ~= group then
      group = entry.group
      local head = titles(about)
      file:write("\n## ", group, "\n\n| workload | unit | ", table.concat(head, " | "), " |\n|",
        ("---|"):rep(#head + 2), "\n")
    end
    file:write("| ", entry.name, " | ", entry.unit or "", " | ",
      table.concat(columns(about, entry), " | "), " |\n")
  end
  file:close()
end

return report
