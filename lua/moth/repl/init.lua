--- init.lua -- the prompt of `moth` on a terminal: reads an input, runs it, prints its values.
--
--     [1]> x = moth.randn(2, 3)
--     [2]> x:sum(1)
--     {0.3117, -1.2650, 0.8830}
--     [moth.float32 of size 3]
--     [3]> ? F.conv2d
--
-- The value of an expression is printed and stored in `ans`, `_` and `_N`, where N is the number of
-- the input; a `;` at its end suppresses the output. An incomplete line continues on the next line.
-- `? name` shows help. Messages name an input by the number in its prompt: "[3]:1: ...".

local complete = require "moth.repl.complete"
local editor = require "moth.repl.editor"
local evaluate = require "moth.repl.evaluate"
local history = require "moth.repl.history"
local lexer = require "moth.repl.lexer"
local show = require "moth.repl.show"
local tools = require "moth.repl.tools"

local repl = {}

local launcher = debug.getregistry()["moth.launcher"] or {}

local function complain(text)
  io.flush()
  io.stderr:write(show.has_colors(2) and show.painted(text, "error") or text, "\n")
end

local words = {} -- exit, quit and help

-- ---- help ----

-- The names in a user's table.
local function listed(name, value)
  local list = {}
  for key in pairs(complete.names(value, ".")) do
    if key:find("^[%a][%w_]*$") then list[#list + 1] = key end
  end
  table.sort(list)
  return ("In %s: %s"):format(name, show.filled(list, " ", ""))
end

--- The text of `? name`: for a value in scope if there is one, else for a name of Moth.
function repl.help(name)
  local help = require "moth.help"
  if name == "" then return help.text() end
  local value = complete.value((name:gsub(":", ".")))
  if value == nil or type(value) == "string" then
    local found, text = pcall(help.text, name)
    return found and text or text:match("%((there is no .*)%)$") or text
  end
  if words[value] then return tostring(value) end
  if type(value) == "table" and not help.knows(value) then return listed(name, value) end
  return help.text(value)
end

local function asks_for_help(text)
  return text:match("^%s*%?%s*([%w_.:%[%]]*)%s*$") or text:match("^%s*([%a_][%w_.:%[%]]*)%?%s*$")
end

-- ---- one input ----

local KEPT = 100 -- numbered results: an older one is dropped, so that its memory is freed

local function receive(show_them, number)
  return function(...)
    local n = select("#", ...)
    if n == 0 then return end
    for _, name in ipairs {"ans", "_", "_" .. number} do rawset(_G, name, (...)) end
    rawset(_G, "_" .. number - KEPT, nil)
    if show_them then print(show.values({...}, n, show.has_colors(1))) end
  end
end

--- Reads lines until they are a complete input.
-- @param input   an editor with `remember`
-- @param number  the input's number
-- @return a function that runs it, and its argument; false for an empty input; nil at the end of
-- input
function repl.read(input, number)
  local name, text, blank = ("[%d]"):format(number), nil, 0
  local first = name .. "> "
  local later = (" "):rep(#first - 3) .. ".. "
  while true do
    local line = input.read(text and later or first, text and text .. "\n" or "")
    if not line then
      if not text then return line end
      input.remember(text)
      return false -- Ctrl-C and Ctrl-D drop an incomplete input
    end
    blank = line:find("%S") and 0 or blank + 1
    if blank > 0 and (not text or input.blank_leaves and blank == 2) then return false end
    text = text and text .. "\n" .. line or line
    local wanted = text == line and asks_for_help(line)
    local chunk, message, more
    if not wanted then chunk, message, more = evaluate.compile(text, name) end
    if wanted or chunk or not more then input.remember(text) end
    if wanted then return function() tools.page(repl.help(wanted)) end end
    if chunk then return chunk, receive(message, number) end
    if not more then
      complain(require("moth.repl.python").explained(message, text))
      return false
    end
  end
end

-- ---- the loop ----

-- An object that prints a hint when it is typed alone, and acts when it is called.
local function word(text, does)
  local object = setmetatable({}, {
    __call = function(_, ...) does(...) end,
    __tostring = function() return text end,
  })
  words[object] = true
  return object
end

-- Python's commands, with hints.
local function python_words()
  local function leave(code) os.exit(type(code) == "number" and code or 0) end
  for _, name in ipairs {"exit", "quit"} do
    rawset(_G, name, word(name .. "() or Ctrl-D leaves", leave))
  end
  rawset(_G, "help", word("help(F.conv2d), help 'conv2d' or ? F.conv2d explains one thing; ? alone "
    .. "lists what there is", function(what) tools.page(require("moth.help").text(what)) end))
  rawset(_G, "who", tools.who)
  rawset(_G, "time", tools.time)
end

-- The user's start file, ~/.config/moth/init.lua.
local function run_init()
  local path = history.path("CONFIG", ".config", "init.lua")
  local file = path and io.open(path)
  if not file then return end
  file:close()
  local chunk, message = loadfile(path)
  local ok = chunk ~= nil
  if ok then ok, message = evaluate.run(chunk) end
  if not ok then complain(message) end
end

-- The file of `moth -i FILE`. Its outermost local variables stay defined, as those of an input.
local function run_file(path, ...)
  local file, problem = io.open(path, "rb")
  if not file then return complain(problem) end
  local text = file:read "*a":gsub("^#[^\n]*", "")
  file:close()
  local chunk, message = loadstring(lexer.globalized(text), "@" .. path)
  local ok = chunk ~= nil
  if ok then
    jit.on(chunk, true) -- unlike an input: it may be a long computation
    ok, message = evaluate.guarded(chunk, ...)
  end
  if not ok then complain(evaluate.shortened(message)) end
end

--- The loop. Ends with the input (Ctrl-D).
-- @param ...  with `moth -i FILE`: the arguments of the file
function repl.main(...)
  evaluate.guarded(require, "moth.repl.preload")
  python_words()
  require("moth.repl.plots").define()
  evaluate.interruptible()
  local past = history.open()
  local input = editor.open(past.lines)
  function input.remember(line)
    if past:add(line) and input.add then input.add(line) end
  end
  print(("Moth %s, %s. ? shows help, TAB completes, Ctrl-D leaves."):format(
    launcher.version or "", jit.version))
  tools.remember_globals()
  run_init()
  if arg and arg[-1] == "-i" then run_file(arg[0], ...) end
  local number = 1
  while true do
    local chunk, receiver = repl.read(input, number)
    if chunk == nil then break end
    if chunk then
      local ok, message = evaluate.run(chunk, receiver)
      if not ok then complain(message) end
      number = number + 1
    end
  end
end

return repl
