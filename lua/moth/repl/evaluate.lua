--- evaluate.lua -- from the text that was typed to what it gives.
--
-- Text that is an expression gives its values, other text is run; what ends too early wants more
-- lines. What is typed, loaded and required here is not compiled by the JIT, so that Ctrl-C stops
-- it at once; Moth's own functions are.

local errors = require "moth.error"
local lexer = require "moth.repl.lexer"

local evaluate = {}

local launcher = debug.getregistry()["moth.launcher"] or {}

-- ---- compiling ----

-- Text without `=` or `return` at its front and `;` at its end, and whether the last was there.
local function trimmed(text)
  text = text:gsub("^%s*=", " "):gsub("^%s*return%f[^%w_]", " ")
  local tokens, mute = lexer.code(text), false
  for i = #tokens, 1, -1 do
    if tokens[i].text ~= ";" or tokens[i].kind ~= "op" then break end
    text = text:sub(1, tokens[i].start - 1) .. " " .. text:sub(tokens[i].stop + 1)
    mute = true
  end
  return text, mute
end

--- Compiles what was typed.
-- @param text  one or several lines
-- @param name  what its lines are called in messages: "[3]"
-- @return a function(receive) that runs it and gives an expression's values to `receive`, and
-- whether they are to be shown; or nil, the message, and whether more lines could complete it
function evaluate.compile(text, name)
  local expression, mute = trimmed(text)
  name = "=" .. name
  local fine, why = loadstring("return " .. expression, name)
  if fine then
    -- a `return f(x)` would leave no frame behind for messages to name; a comment wants a new line
    local chunk = loadstring("(...)(" .. expression .. ")", name)
      or loadstring("(...)(" .. expression .. "\n)", name)
    if chunk then return chunk, not mute end
  end
  local statements, last = lexer.last_piece(text)
  if statements and not mute and not loadstring(text, name) then -- `t = {}; t`
    local both = statements .. " ;(...)(" .. last .. "\n)"
    if loadstring("return " .. last) and loadstring(both, name) then
      return loadstring(lexer.globalized(both), name), true
    end
  end
  local chunk, message = loadstring(text, name)
  if chunk then return loadstring(lexer.globalized(text), name) or chunk, false end
  local ends = "'<eof>'$" -- as of `x +`, which is no beginning of a statement
  local more = message:find(ends) or why and expression:find "%S" and why:find(ends)
  return nil, message, more ~= nil
end

-- ---- running ----

--- Runs f(...) so that Ctrl-C stops it; returns true, or false and the message.
evaluate.guarded = launcher.guarded or function(f, ...)
  local arguments, n = { ... }, select("#", ...)
  return xpcall(function() f(unpack(arguments, 1, n)) end, debug.traceback)
end

--- A message without those lines of its traceback that lie in Moth's own files.
function evaluate.shortened(message)
  local text, trace = message:match("^(.-)\nstack traceback:\n(.*)$")
  if not text or os.getenv "MOTH_TRACEBACK" == "full" then return message end
  local lines = {}
  for line in trace:gsub("\\", "/"):gmatch("[^\n]+") do
    if line:find("in function 'chunk'", 1, true) or line:find("in main chunk", 1, true)
      or line:find("moth/repl/", 1, true) then
      break -- what was typed; below it is the prompt
    end
    local own = line:find("^%s*%[C%]") or line:find("moth/[%w_/]+%.lua:") or line:find("%[moth")
      or line:find("%[builtin") or line:find("/nn/[%w_/]+%.lua:")
    if not own then lines[#lines + 1] = line end
  end
  if #lines == 0 then return text end
  return text .. "\nstack traceback:\n" .. table.concat(lines, "\n")
end

--- A cancel that came too late for the line it was meant for must not hit the next one.
local function forget_interrupt()
  local lib = package.loaded["moth.binding.lib"]
  if type(lib) == "table" and lib.C and lib.ctx then lib.C.moth_interrupted(lib.ctx) end
end

--- Runs a chunk of evaluate.compile.
-- @param receive  function(...) that gets an expression's values; its errors count as the chunk's
-- @return true, or false and the message
function evaluate.run(chunk, receive)
  jit.off(chunk, true)
  local ok, message = evaluate.guarded(chunk, receive)
  forget_interrupt()
  return ok, not ok and evaluate.shortened(message) or nil
end

-- ---- what user code loads ----

local function uncompiled(chunk, ...)
  if type(chunk) == "function" and not errors.is_own(chunk) then jit.off(chunk, true) end
  return chunk, ...
end

--- From now on user code stays uncompiled however it comes in: by load, loadstring, loadfile,
-- dofile, and by require of files outside Moth.
function evaluate.interruptible()
  for _, name in ipairs { "load", "loadstring", "loadfile" } do
    local original = _G[name]
    _G[name] = function(...) return uncompiled(original(...)) end
  end
  _G.dofile = function(path)
    local chunk, problem = _G.loadfile(path)
    if not chunk then error(problem, 0) end
    return chunk()
  end
  for i, find in ipairs(package.loaders) do
    package.loaders[i] = function(...) return uncompiled(find(...)) end
  end
end

return evaluate
