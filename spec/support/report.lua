--- report.lua -- the results of a run of specs: counts, failures, skipped claims and reasons, slow
-- claims. Reports of several processes are merged; the last printed line is the count.

local report = {}

--- An empty report. An unfinished process also has `done`, the number of started claims, and
-- `now`, the current claim; `gone`: the GPU's context is broken.
function report.new()
  return { passed = 0, failed = 0, skipped = 0, failures = {}, skips = {}, slow = {} }
end

local LISTS = { "failures", "skips", "slow" }

--- Adds the results of `other` to `all`.
function report.add(all, other)
  for _, key in ipairs { "passed", "failed", "skipped" } do all[key] = all[key] + other[key] end
  for _, key in ipairs(LISTS) do
    for _, entry in ipairs(other[key]) do table.insert(all[key], entry) end
  end
end

local function source(value)
  if type(value) ~= "table" then
    return type(value) == "string" and ("%q"):format(value) or tostring(value)
  end
  local parts = {}
  for i, v in ipairs(value) do parts[i] = source(v) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

--- Writes a report to a file, for the parent process.
function report.write(found, path)
  local file = assert(io.open(path, "w"))
  file:write(("return { passed = %d, failed = %d, skipped = %d,\n"):format(found.passed,
    found.failed, found.skipped))
  for _, key in ipairs(LISTS) do file:write(key, " = ", source(found[key]), ",\n") end
  for _, key in ipairs { "done", "now", "gone" } do
    file:write(key, " = ", source(found[key]), ",\n")
  end
  file:write "}\n"
  file:close()
end

--- @return a report that report.write wrote, or nil
function report.read(path)
  local chunk = loadfile(path)
  return chunk and chunk()
end

-- MOTH_SLOW=1 lists the ten slowest specs; MOTH_SLOW=0.5 those above half a second.
local function show_slow(slow, wanted)
  table.sort(slow, function(a, b) return a[1] > b[1] end)
  local least = tonumber(wanted) ~= 1 and tonumber(wanted) or 0
  io.stdout:write "\nslowest:\n"
  for i = 1, math.min(#slow, least > 0 and #slow or 10) do
    if slow[i][1] < least then break end
    io.stdout:write(("%8.2f s  %s\n"):format(slow[i][1], slow[i][2]))
  end
end

local function show_list(name, list)
  if #list > 0 then io.stdout:write("\n", name, ":\n  ", table.concat(list, "\n  "), "\n") end
end

--- Prints a report; the last line is the count.
function report.show(found)
  if os.getenv "MOTH_SLOW" then show_slow(found.slow, os.getenv "MOTH_SLOW") end
  show_list("skipped", found.skips)
  show_list("failed", found.failures)
  if found.passed + found.failed + found.skipped == 0 then
    io.stdout:write "\nno claim is called so: nothing ran\n"
  end
  local skips = found.skipped > 0 and (", %d skipped"):format(found.skipped) or ""
  io.stdout:write(("\n%d passed, %d failed%s\n"):format(found.passed, found.failed, skips))
  io.stdout:flush()
end

--- Returns true if at least one claim ran, and none failed.
function report.good(found) return found.failed == 0 and found.passed + found.skipped > 0 end

return report
