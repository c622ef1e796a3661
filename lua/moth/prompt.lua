--- prompt.lua -- the prompt of `moth` on a terminal: reads a line, runs it, shows what it gives.
-- A line that is an expression is echoed (`= x` too); one that is not finished is continued on
-- the next; a trailing `;` mutes. What is typed is not compiled by the JIT, so that Ctrl-C stops
-- it at once; Moth's own functions are.

local prompt = {}

local launcher = debug.getregistry()["moth.launcher"] or {}

--- Runs f(...) so that Ctrl-C stops it; returns true, or false and the message.
local guarded = launcher.guarded or function(f, ...)
  local arguments, n = { ... }, select("#", ...)
  return xpcall(function() f(unpack(arguments, 1, n)) end, debug.traceback)
end

local function show(...)
  for i = 1, select("#", ...) do
    if i > 1 then io.write("\t") end
    io.write(tostring((select(i, ...))))
  end
  if select("#", ...) > 0 then io.write("\n") end
end

--- Compiles what was typed: as an expression if it is one, else as statements. Returns the chunk
-- and whether to echo, or nil, the message and whether more lines could complete it.
local function compile(text)
  local source = text:gsub("^%s*=", "")
  local mute = source:find(";%s*$") ~= nil
  local chunk = loadstring("return " .. source:gsub(";%s*$", ""), "=stdin")
  if chunk then return chunk, not mute end
  local message
  chunk, message = loadstring(source, "=stdin")
  if chunk then return chunk, false end
  return nil, message, message:find("'<eof>'$") ~= nil
end

--- A cancel that came too late for the line it was meant for must not hit the next one.
local function forget_interrupt()
  local lib = package.loaded["moth.lib"]
  if type(lib) == "table" and lib.C and lib.ctx then lib.C.moth_interrupted(lib.ctx) end
end

--- A message without those lines of its traceback that lie in Moth's own files.
local function shortened(message)
  local text, trace = message:match("^(.-)\nstack traceback:\n(.*)$")
  if not text then return message end
  local lines = {}
  for line in trace:gmatch("[^\n]+") do
    if line:find("in function 'chunk'", 1, true) or line:find("in main chunk", 1, true) then
      break -- what was typed; below it is the prompt
    end
    local own = line:find("^%s*%[C%]") or line:find("moth/[%w_/]+%.lua:") or line:find("%[moth")
      or line:find("/nn/%w+%.lua:")
    if not own then lines[#lines + 1] = line end
  end
  if #lines == 0 then return text end
  return text .. "\nstack traceback:\n" .. table.concat(lines, "\n")
end

local function run(chunk, echo)
  jit.off(chunk, true)
  local ok, message
  if echo then
    ok, message = guarded(function() show(chunk()) end)
  else
    ok, message = guarded(chunk)
  end
  if not ok then io.stderr:write(shortened(message), "\n") end
  forget_interrupt()
end

--- A line of input; nil at its end, false if Ctrl-C came instead.
local read_line = launcher.read_line or function() return io.read("*l") end

--- Reads one complete piece of code, over several lines if need be; nil at the end of input.
-- Ctrl-C drops what was typed so far.
local function read()
  local text
  while true do
    io.write(text and ">> " or "> ")
    io.flush()
    local line = read_line()
    if line == nil then
      io.write("\n")
      return nil
    elseif line == false then
      io.write("\n")
      text = nil
    else
      text = text and text .. "\n" .. line or line
      local chunk, message, more = compile(text)
      if chunk then return chunk, message end
      if not more then
        io.stderr:write(message, "\n")
        text = nil
      end
    end
  end
end

--- The loop. Ends with the input (Ctrl-D).
function prompt.main()
  local moth = require "moth"
  rawset(_G, "moth", moth)
  for name, field in pairs { nn = "nn", optim = "optim" } do
    local found, value = pcall(function() return moth[field] end)
    if found and value then rawset(_G, name, value) end
  end
  if _G.nn then rawset(_G, "F", _G.nn.functional) end
  print(("Moth %s, %s. Ctrl-D ends it."):format(launcher.version or "", jit.version))
  for chunk, echo in read do run(chunk, echo) end
end

return prompt
