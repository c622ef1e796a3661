--- How results of the specs are shown: a line for each file, failures in full where they happen,
-- and the count as the last line: `N passed, 0 failed` (and how many were skipped).
-- MOTH_SLOW=1 lists the ten slowest specs; MOTH_SLOW=0.5 those above half a second.

local NAME_WIDTH = 44

return function(options)
  local busted = require "busted"
  local handler = require "busted.outputHandlers.base"()

  local passed, failed, skipped = 0, 0, 0
  local file -- {name, passed, failed, skipped, start}
  local slow, failures, skips = {}, {}, {}

  local function write(...)
    io.stdout:write(...)
    io.stdout:flush()
  end

  local function place(element, trace)
    local at = element.trace or trace
    if not (at and at.currentline) then return "" end
    return ("%s:%s: "):format(at.short_src:gsub("^%./", ""), at.currentline)
  end

  --- The text of an error value, indented below the name of its spec.
  local function text_of(message)
    if type(message) == "table" and not getmetatable(message) then
      message = require("pl.pretty").write(message)
    end
    return (tostring(message):gsub("%s+$", ""):gsub("\n", "\n    "))
  end

  --- The frames of a traceback that lie in the user's files, not in busted's or luassert's.
  local function frames_of(trace)
    local kept = {}
    for line in ((trace or {}).traceback or ""):gmatch("[^\n]+") do
      if not line:find("/busted/", 1, true) and not line:find("/luassert/", 1, true)
        and not line:find("[C]:", 1, true) and not line:find("stack traceback", 1, true) then
        kept[#kept + 1] = "\n    " .. line:gsub("^%s+", "")
      end
    end
    return table.concat(kept)
  end

  local function fail(element, message, trace)
    failed = failed + 1
    if file then file.failed = file.failed + 1 end
    local name = handler.getFullName(element)
    local head = place(element, trace) .. name
    failures[#failures + 1] = head
    write("\nFAILED ", head, "\n    ", text_of(message), frames_of(trace), "\n")
  end

  handler.fileStart = function(element)
    file = { name = element.name, passed = 0, failed = 0, skipped = 0, start = element.starttick }
    return nil, true
  end

  handler.fileEnd = function(element)
    if file and file.passed + file.failed + file.skipped > 0 then
      local counts = ("%4d passed"):format(file.passed)
      if file.failed > 0 then counts = counts .. (", %d failed"):format(file.failed) end
      if file.skipped > 0 then counts = counts .. (", %d skipped"):format(file.skipped) end
      local name = file.name:gsub("^%./", "")
      write(("%-" .. NAME_WIDTH .. "s %s  %.1f s\n"):format(name, counts, element.duration or 0))
    end
    file = nil
    return nil, true
  end

  handler.testEnd = function(element, _, status)
    if status == "success" then
      passed = passed + 1
      if file then file.passed = file.passed + 1 end
    elseif status == "pending" then
      skipped = skipped + 1
      if file then file.skipped = file.skipped + 1 end
    end
    slow[#slow + 1] = { element.duration or 0, place(element) .. handler.getFullName(element) }
    return nil, true
  end

  handler.pending = function(element, _, message)
    if type(message) == "string" then
      skips[#skips + 1] = handler.getFullName(element) .. ": " .. message
    end
    return nil, true
  end

  handler.failure = function(element, _, message, trace)
    fail(element, message, trace)
    return nil, true
  end

  local function show_slow(wanted)
    table.sort(slow, function(a, b) return a[1] > b[1] end)
    local least = tonumber(wanted) ~= 1 and tonumber(wanted) or 0
    write("\nslowest:\n")
    for i = 1, math.min(#slow, least > 0 and #slow or 10) do
      if slow[i][1] < least then break end
      write(("%8.2f s  %s\n"):format(slow[i][1], slow[i][2]))
    end
  end

  handler.suiteEnd = function()
    if os.getenv "MOTH_SLOW" then show_slow(os.getenv "MOTH_SLOW") end
    if #skips > 0 then write("\nskipped:\n  ", table.concat(skips, "\n  "), "\n") end
    if #failures > 0 then write("\nfailed:\n  ", table.concat(failures, "\n  "), "\n") end
    return nil, true
  end

  handler.exit = function()
    local skips_text = skipped > 0 and (", %d skipped"):format(skipped) or ""
    write(("\n%d passed, %d failed%s\n"):format(passed, failed, skips_text))
    -- busted's own status is the number of failures, which wraps at 256.
    if failed > 0 or passed + skipped == 0 then os.exit(1) end
    return nil, true
  end

  busted.subscribe({ "file", "start" }, handler.fileStart)
  busted.subscribe({ "file", "end" }, handler.fileEnd)
  busted.subscribe({ "test", "end" }, handler.testEnd, { predicate = handler.cancelOnPending })
  busted.subscribe({ "pending" }, handler.pending)
  busted.subscribe({ "failure" }, handler.failure)
  busted.subscribe({ "error" }, handler.failure)
  busted.subscribe({ "suite", "end" }, handler.suiteEnd)
  busted.subscribe({ "exit" }, handler.exit)

  handler.options = options
  return handler
end
