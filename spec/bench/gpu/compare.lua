--- compare.lua -- `moth bench cuda --peer PYTHON`: Moth and PyTorch on the same GPU, alternately.
--
-- In each round a new process of each side times a group of workloads (launch, gemm, ...); the
-- first side alternates. Rows are printed and stored at once. A process has --limit seconds. If it
-- dies, the current row fails and another process runs the rest; rows that failed after another
-- failure (a device error stays in its process) are tried once more.

local child = require "child"
local report = require "report"
local results = require "gpu.results"
local tables = require "gpu.tables"
local timing = require "timing"
local workloads = require "workloads"

local here = arg[0]:match "^(.*)/" or "."
local quoted = child.quoted
local LIST_LIMIT = 120 -- seconds to load a framework from a cold disk

-- Ends the run with a message for the user; other errors are bugs and show their position.
local function fail(text) error({ text = text }) end

local function message_of(problem)
  return type(problem) == "table" and problem.text or debug.traceback(problem)
end

-- ---- processes ----

-- The last line of a process's errors; Lua's message is before its traceback.
local function last_line(path)
  local last = "it says nothing"
  for text in io.lines(path) do
    if text:find "^stack traceback:" then break end
    if text:find "%S" then last = text end
  end
  return last
end

--- Runs a side's command with additional arguments; calls line(text) for each line of the output.
-- @return its exit status (124: ended by the limit), and its last error line
local function run(side, words, limit, folder, line)
  local problems = folder .. "/problems"
  local command = { "PYTHONDONTWRITEBYTECODE=1 timeout -k 5", ("%.1f"):format(limit) }
  for _, list in ipairs { side.words, words } do
    for _, word in ipairs(list) do command[#command + 1] = quoted(word) end
  end
  local pipe = assert(io.popen(("%s 2>%s; status=$?; echo; echo status=$status")
    :format(table.concat(command, " "), quoted(problems))))
  local status
  for text in pipe:lines() do -- not to the end: a surviving child may keep it open
    status = tonumber(text:match "^status=(%d+)$")
    if status then break end
    line(text)
  end
  pipe:close()
  return status or 1, last_line(problems)
end

--- The names of a side's workloads, in order.
local function names_of(side, options, folder)
  local names = {}
  local status, problem = run(side, { "--list" }, LIST_LIMIT, folder, function(text)
    local name = text:match "^(%w+/%S+): "
    if name and workloads.matches(name, options.only) then names[#names + 1] = name end
  end)
  if status ~= 0 then
    fail(("%s does not list its workloads (%s): %s"):format(side.label,
      table.concat(side.words, " "), problem))
  end
  return names
end

-- ---- a group on one side ----

--- Runs one process on some names. @return the names without a row, those that failed after
-- another failure, true if any row was printed, and the status and the last error line
local function attempt(side, names, round, options, limit, folder, keep)
  local file = assert(io.open(folder .. "/names", "w"))
  file:write(table.concat(names, "\n"), "\n")
  file:close()
  local words = { "--names", folder .. "/names", "--seconds", tostring(options.seconds) }
  if options.dry then words[#words + 1] = "--dry" end
  local seen, spoiled, any, failed = {}, {}, false, false
  local status, problem = run(side, words, limit, folder, function(text)
    local line, row = results.marked(text, side.key, round)
    if not line then return end
    any = true
    seen[row.name], seen[row.name:match "^(.*)/" or ""] = true, true -- or one of its figures
    if row.error and failed then spoiled[#spoiled + 1] = row.name end
    failed = failed or row.error ~= nil
    keep(line, row)
  end)
  local rest = {}
  for _, name in ipairs(names) do
    if not seen[name] then rest[#rest + 1] = name end
  end
  return rest, spoiled, any, status, problem
end

local function time_side(side, group, round, options, folder, keep)
  local names, finish = side.groups[group] or {}, timing.wall() + options.limit
  local spoiled, again = {}, false
  local function complain(name, text)
    keep(results.marked(results.line { { "name", name }, { "error", text } }, side.key, round))
  end
  while #names > 0 do
    local limit = math.max(1, finish - timing.wall())
    local rest, more, any, status, problem = attempt(side, names, round, options, limit, folder,
      keep)
    for _, name in ipairs(more) do spoiled[#spoiled + 1] = name end
    if #rest == 0 then
      names, spoiled, again = again and {} or spoiled, {}, true
    elseif status == 124 or timing.wall() >= finish then
      complain(group, ("ended by its limit of %g seconds, %d of %d workloads are missing")
        :format(options.limit, #rest, #side.groups[group]))
      return
    elseif not any then
      complain(group, ("the process ended with status %d: %s"):format(status, problem))
      return
    else
      complain(rest[1], ("the process ended with status %d: %s"):format(status, problem))
      names = { unpack(rest, 2) }
    end
  end
end

-- ---- all of it ----

local function groups_of(sides, options, folder)
  for _, side in ipairs(sides) do
    side.groups, side.known = {}, {}
    for _, name in ipairs(names_of(side, options, folder)) do
      local group = name:match "^%w+"
      side.known[name], side.groups[group] = true, side.groups[group] or {}
      table.insert(side.groups[group], name)
    end
  end
  local some = false
  for _, group in ipairs(tables.GROUPS) do
    for i, side in ipairs(sides) do
      local lacks = {}
      for _, name in ipairs(side.groups[group] or {}) do
        some = true
        if not sides[3 - i].known[name] then lacks[#lacks + 1] = name end
      end
      if lacks[1] then
        print(("%s alone: %s"):format(side.label, table.concat(lacks, ", ")))
      end
    end
  end
  if not some then fail(("no workload matches '%s' (--list shows Moth's)"):format(options.only)) end
end

-- The driver's description of the GPU.
local function gpu_text()
  local pipe = io.popen("nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem,"
    .. "power.limit,temperature.gpu --format=csv,noheader 2>/dev/null")
  local text = pipe:read "*l" or ""
  pipe:close()
  local name, driver, sm, memory, power, heat =
    text:match "^(.-), (.-), (.-), (.-), (.-), (.+)$"
  if not heat then return "unknown (nvidia-smi is not here)" end
  return ("%s, driver %s, at most %s (memory %s) and %s, %s degrees when it began")
    :format(name, driver, sm, memory, power, heat)
end

local function conditions(options)
  return results.marked(results.line {
    { "name", "run" }, { "date", os.date "!%Y-%m-%d %H:%M UTC" }, { "gpu", gpu_text() },
    { "cpu", report.cpu() }, { "rounds", options.rounds }, { "seconds", options.seconds },
    { "dry", options.dry or false },
  }, "run", 0)
end

local function compare(options, sides, folder)
  groups_of(sides, options, folder)
  local file = options.json and assert(io.open(options.json, "w"))
  local rows, last = {}, {} -- last: a side's row of a name
  local function keep(line, row)
    rows[#rows + 1] = row
    last[row.side .. row.name] = row
    if file then
      file:write(line, "\n")
      file:flush()
    end
    tables.show(row, last["moth" .. row.name], last["pytorch" .. row.name])
  end
  keep(conditions(options))
  for _, group in ipairs(tables.GROUPS) do
    for round = 1, options.rounds do
      for turn = 1, 2 do
        local side = sides[round % 2 == 1 and turn or 3 - turn]
        time_side(side, group, round, options, folder, keep)
      end
    end
  end
  if file then file:close() end
  io.write("\n", tables.markdown(rows))
end

--- Times both sides and prints the table.
return function(options)
  local launcher = debug.getregistry()["moth.launcher"] or {}
  local sides = {
    { label = "Moth", key = "moth", words = { launcher.program, "bench", "cuda" } },
    { label = "PyTorch", key = "pytorch", words = { options.peer, here .. "/peer/gpu.py" } },
  }
  local folder = child.folder()
  local ok, problem = xpcall(compare, message_of, options, sides, folder)
  os.execute("rm -rf " .. quoted(folder))
  if not ok then
    io.stderr:write("moth bench cuda: ", problem, "\n")
    os.exit(1)
  end
end
