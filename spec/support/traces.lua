--- traces.lua -- watches LuaJIT's compiler on a function: traces, aborts and their positions.

local traces = {}

local found_util, util = pcall(require, "jit.util")
local found_names, names = pcall(require, "jit.vmdef")

--- Returns true if that is possible: the compiler is on and its modules are installed.
traces.possible = found_util and found_names and (jit.status()) == true

local function reason(code, info)
  local text = names.traceerr[code] or tostring(code)
  if type(info) == "function" then
    local fn = util.funcinfo(info)
    info = fn.loc or (fn.ffid and names.ffnames[fn.ffid]) or fn.addr and "a C function"
  end
  if type(info) == "number" and text:find("bytecode", 1, true) then
    info = names.bcnames:sub(info * 6 + 1, info * 6 + 6)
  end
  local ok, whole = pcall(string.format, (text:gsub("%%d", "%%s")), info or "")
  return ok and whole or text
end

--- Runs fn and counts the traces and aborts.
-- @return a table: made (number of traces), aborts (list of {reason, source, line})
function traces.watch(fn)
  local result = { made = 0, aborts = {} }
  local function event(what, _, func, pc, code, info)
    if what == "stop" then
      result.made = result.made + 1
    elseif what == "abort" then
      local at = util.funcinfo(func, pc)
      result.aborts[#result.aborts + 1] = { reason = reason(code, info),
        source = at.source or "?", line = at.currentline or 0 }
    end
  end
  jit.flush()
  jit.opt.start "hotloop=56" -- the default; setting it clears the shared hot counters
  jit.attach(event, "trace")
  local ok, message = pcall(fn)
  jit.attach(event)
  if not ok then error(message, 0) end
  return result
end

--- All aborts as text.
function traces.text(result)
  local list = {}
  for i, abort in ipairs(result.aborts) do
    list[i] = ("%s at %s:%d"):format(abort.reason, abort.source, abort.line)
  end
  return table.concat(list, "; ")
end

--- The aborts in Moth's own code by an operation that LuaJIT cannot compile.
function traces.blame(result)
  local errors = require "moth.error"
  local list = {}
  for _, abort in ipairs(result.aborts) do
    local own = abort.source:find("^=%[moth") or abort.source:find(errors.folder, 1, true)
      or abort.source:find("nn/[%w_]+%.lua$")
    -- a return to a lower frame only means that a trace starts elsewhere
    local kind = abort.reason:find "NYI" and not abort.reason:find "lower frame"
    if own and (kind or abort.reason:find "blacklisted") then
      list[#list + 1] = ("%s at %s:%d"):format(abort.reason, abort.source, abort.line)
    end
  end
  return list
end

return traces
