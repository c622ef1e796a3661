--- evaluate.lua -- compiles and runs the text of an input, and returns its values.
--
-- An expression returns its values; other text is run; text that is incomplete requests more
-- lines. Code that is typed, loaded and required here is not JIT-compiled, so that Ctrl-C stops it
-- at once; Moth's own functions are compiled.

local errors = require "moth.error"
local lexer = require "moth.repl.lexer"

local evaluate = {}

local launcher = debug.getregistry()["moth.launcher"] or {}

-- ---- compiling ----

-- Removes `=` or `return` at the start and `;` at the end; also returns true if there was a `;`.
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

--- Compiles an input.
-- @param text  one or several lines
-- @param name  the chunk name for messages: "[3]"
-- @return a function(receive) that runs it and passes an expression's values to `receive`, and
-- true if they are to be shown; or nil, the message, and true if more lines could complete it
function evaluate.compile(text, name)
  local expression, mute = trimmed(text)
  name = "=" .. name
  local fine, why = loadstring("return " .. expression, name)
  if fine then
    -- `return f(x)` is a tail call without a frame for messages; a comment needs the newline
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
  local ends = "'<eof>'$" -- as for `x +`, which cannot begin a statement
  local more = message:find(ends) or why and expression:find "%S" and why:find(ends)
  return nil, message, more ~= nil
end

-- ---- running ----

--- Runs f(...) so that Ctrl-C stops it; returns true, or false and the message.
evaluate.guarded = launcher.guarded or function(f, ...)
  local arguments, n = {...}, select("#", ...)
  return xpcall(function() f(unpack(arguments, 1, n)) end, debug.traceback)
end

--- Removes the lines of a traceback that are in Moth's own files.
function evaluate.shortened(message)
  local text, trace = message:match("^(.-)\nstack traceback:\n(.*)$")
  if not text or os.getenv "MOTH_TRACEBACK" == "full" then return message end
  local lines = {}
  for line in trace:gsub("\\", "/"):gmatch("[^\n]+") do
    if line:find("in function 'chunk'", 1, true) or line:find("in main chunk", 1, true)
      or line:find("moth/repl/", 1, true) then
      break -- the user's code; the prompt's frames follow
    end
    local own = line:find("^%s*%[C%]") or line:find("moth/[%w_/]+%.lua:") or line:find("%[moth")
      or line:find("%[builtin") or line:find("/nn/[%w_/]+%.lua:")
    if not own then lines[#lines + 1] = line end
  end
  if #lines == 0 then return text end
  return text .. "\nstack traceback:\n" .. table.concat(lines, "\n")
end

--- Clears a cancel that arrived too late for its line, so that it does not stop the next line.
local function forget_interrupt()
  local lib = package.loaded["moth.binding.lib"]
  if type(lib) == "table" and lib.C and lib.ctx then lib.C.moth_interrupted(lib.ctx) end
end

--- Runs a chunk of evaluate.compile.
-- @param receive  function(...) for an expression's values; its errors are reported like the
-- chunk's
-- @return true, or false and the message
function evaluate.run(chunk, receive)
  jit.off(chunk, true)
  local ok, message = evaluate.guarded(chunk, receive)
  forget_interrupt()
  return ok, not ok and evaluate.shortened(message) or nil
end

-- ---- code that user code loads ----

local function uncompiled(chunk, ...)
  if type(chunk) == "function" and not errors.is_own(chunk) then jit.off(chunk, true) end
  return chunk, ...
end

--- Keeps user code out of the JIT compiler: code of load, loadstring, loadfile, dofile, and of
-- require for files outside Moth.
function evaluate.interruptible()
  for _, name in ipairs {"load", "loadstring", "loadfile"} do
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
