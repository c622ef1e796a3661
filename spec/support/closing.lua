--- closing.lua -- Busted's output handler: a line for each file, failures in full when they
-- happen, and the count as the last line: `N passed, 0 failed` (and the number of skipped
-- claims). A process that runs one of many files leaves the count to its parent: it writes its
-- results before each claim to the file in MOTH_SPEC_REPORT, and skips the first MOTH_SPEC_AFTER
-- claims, which an earlier process has run. It ends if the GPU's context is broken, because all
-- later claims would fail too.

local report = dofile "spec/support/report.lua"

local path, after = os.getenv "MOTH_SPEC_REPORT", tonumber(os.getenv "MOTH_SPEC_AFTER") or 0
if path then -- not for programs that specs run
  require("ffi").cdef "int unsetenv(const char *name);"
  require("ffi").C.unsetenv "MOTH_SPEC_REPORT"
  require("ffi").C.unsetenv "MOTH_SPEC_AFTER"
end

--- Synchronizes the GPU, if claims use one, to find a late error.
-- @return nil; or a message, and true if the GPU's context is broken
local function late_error()
  local cuda = package.loaded["moth.cuda"]
  if not cuda or not cuda.is_available() then return nil end
  local ok, message = pcall(cuda.synchronize)
  if ok then return nil end
  return message, not pcall(cuda.synchronize)
end

local NAME_WIDTH = 44

return function(options)
  local busted = require "busted"
  local handler = require "busted.outputHandlers.base"()

  local all = report.new()
  local file -- {name, passed, failed, skipped, start}
  local count, done_before = 0, false -- of started claims; true if an earlier process ran this one

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

  --- The frames of a traceback in the user's files, without those of busted and luassert.
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
    all.failed = all.failed + 1
    if file then file.failed = file.failed + 1 end
    local name = handler.getFullName(element)
    local head = place(element, trace) .. name
    table.insert(all.failures, head)
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

  handler.testStart = function(element)
    count = count + 1
    done_before = count <= after
    if done_before then
      element.run = function() end
    elseif path then
      all.done, all.now = count, place(element) .. handler.getFullName(element)
      report.write(all, path)
    end
    return nil, true
  end

  handler.testEnd = function(element, _, status)
    if done_before then return nil, true end
    local late = status == "success" and late_error()
    if late then
      handler.failure(element, nil, "the GPU told late: " .. tostring(late))
    elseif status == "success" then
      all.passed = all.passed + 1
      if file then file.passed = file.passed + 1 end
    elseif status == "pending" then
      all.skipped = all.skipped + 1
      if file then file.skipped = file.skipped + 1 end
    end
    if os.getenv "MOTH_SLOW" then
      local name = place(element) .. handler.getFullName(element)
      table.insert(all.slow, { element.duration or 0, name })
    end
    return nil, true
  end

  handler.pending = function(element, _, message)
    if type(message) == "string" and not done_before then
      table.insert(all.skips, handler.getFullName(element) .. ": " .. message)
    end
    return nil, true
  end

  handler.failure = function(element, _, message, trace)
    fail(element, message, trace)
    if path and select(2, late_error()) then
      all.done, all.gone = count, true
      report.write(all, path)
      os.exit(1)
    end
    return nil, true
  end

  handler.exit = function()
    all.now = nil
    if path then report.write(all, path) else report.show(all) end
    -- busted's own status is the number of failures, which wraps at 256.
    if not report.good(all) then os.exit(1) end
    return nil, true
  end

  busted.subscribe({ "file", "start" }, handler.fileStart)
  busted.subscribe({ "file", "end" }, handler.fileEnd)
  busted.subscribe({ "test", "start" }, handler.testStart)
  busted.subscribe({ "test", "end" }, handler.testEnd, { predicate = handler.cancelOnPending })
  busted.subscribe({ "pending" }, handler.pending)
  busted.subscribe({ "failure" }, handler.failure)
  busted.subscribe({ "error" }, handler.failure)
  busted.subscribe({ "exit" }, handler.exit)

  handler.options = options
  return handler
end
