--- kernel.lua -- a kernel of Jupyter: cells are run as inputs of the prompt.
--
-- The value of the last expression of a cell is its result; a figure of moth.plot is shown as a
-- picture. print, io.write and io.stderr go to the notebook.

local class = require "moth.base.class"
local complete = require "moth.repl.complete"
local evaluate = require "moth.repl.evaluate"
local json = require "moth.json"
local lexer = require "moth.repl.lexer"
local lib = require "moth.binding.lib"
local repl = require "moth.repl"
local show = require "moth.repl.show"
local wire = require "moth.jupyter.wire"

local kernel = {}

local connection, current -- the sockets; the request that is answered
local count = 0           -- executed cells

-- ---- JSON ----

-- A string; bytes that are not UTF-8 become question marks.
local function text_of(s)
  local at = json.bad_utf8(s)
  while at do
    s = s:sub(1, at - 1) .. "?" .. s:sub(at + 1)
    at = json.bad_utf8(s)
  end
  return json.string(s)
end

local function list_of(strings)
  local parts = {}
  for i, s in ipairs(strings) do parts[i] = text_of(s) end
  return "[" .. table.concat(parts, ",") .. "]"
end

-- ---- output ----

local function publish(kind, content) connection:send("iopub", kind, content, current) end

local function stream(name, text)
  if text ~= "" then
    publish("stream", ('{"name":"%s","text":%s}'):format(name, text_of(text)))
  end
end

-- The data of a value by MIME types.
local function data_of(values, n)
  local parts = {'"text/plain":' .. text_of(show.values(values, n))}
  if n == 1 and class.typename(values[1]) == "Figure" then
    parts[2] = '"image/svg+xml":' .. text_of(values[1]:svg())
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

--- The global `display`: shows values below the cell, figures as pictures.
local function display(...)
  local values, n = {...}, select("#", ...)
  for i = 1, n do
    publish("display_data", ('{"data":%s,"metadata":{},"transient":{}}'):format(
      data_of({values[i]}, 1)))
  end
end

local files = {} -- the objects below

-- An object in place of io.stdout or io.stderr.
local function file_of(name)
  local file = {}
  files[file] = true
  function file:write(...)
    local parts = {}
    for i = 1, select("#", ...) do parts[i] = tostring((select(i, ...))) end
    stream(name, table.concat(parts))
    return self
  end
  function file.flush() return true end
  function file.setvbuf() return true end
  function file.close() return true end
  return file
end

local function redirect()
  local stdout = file_of "stdout"
  local replaced = {
    stdout = stdout, stderr = file_of "stderr",
    write = function(...) return stdout:write(...) end,
    read = function() error("a notebook has no standard input", 2) end,
  }
  for name, value in pairs(replaced) do rawset(io, name, value) end
  function _G.print(...)
    local parts = {}
    for i = 1, select("#", ...) do parts[i] = tostring((select(i, ...))) end
    stream("stdout", table.concat(parts, "\t") .. "\n")
  end
end

-- ---- cells ----

-- Compiles a cell. Its last lines may be an expression behind statements.
local function compile(text, name)
  local chunk, shown = evaluate.compile(text, name)
  if chunk and shown then return chunk, true end
  local breaks = {}
  for at in text:gmatch "()\n" do breaks[#breaks + 1] = at end
  for i = #breaks, 1, -1 do
    local before, last = text:sub(1, breaks[i]), text:sub(breaks[i] + 1)
    if last:find "%S" and loadstring("return " .. last) then
      local both = before .. ";(...)(" .. last .. "\n)"
      if loadstring(before) and loadstring(both) then
        return loadstring(lexer.globalized(both), "=" .. name), true
      end
    end
  end
  return chunk, shown
end

local function fails(message)
  local lines = {}
  for line in (message .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = line end
  local content = ('"ename":%s,"evalue":%s,"traceback":%s'):format(text_of "Error",
    text_of(lines[1]), list_of(lines))
  publish("error", "{" .. content .. "}")
  return ('{"status":"error","execution_count":%d,%s}'):format(count, content)
end

local function execute(content)
  local silent = content.silent == true
  if not silent then
    count = count + 1
    publish("execute_input", ('{"code":%s,"execution_count":%d}'):format(text_of(content.code),
      count))
  end
  local done = ('{"status":"ok","execution_count":%d,"payload":[],"user_expressions":{}}'):format(
    count)
  local wanted = content.code:match "^%s*%?%s*([%w_.:%[%]]*)%s*$"
  if wanted then stream("stdout", repl.help(wanted) .. "\n") return done end
  if not content.code:find "%S" then return done end
  local chunk, shown = compile(content.code, ("[%d]"):format(count))
  if not chunk then return fails(shown) end
  local ok, message = evaluate.run(chunk, function(...)
    local n = select("#", ...)
    if n == 0 or files[(...)] then return end -- io.write returns a file
    for _, name in ipairs {"ans", "_", "_" .. count} do rawset(_G, name, (...)) end
    if shown and not silent then
      publish("execute_result", ('{"data":%s,"metadata":{},"execution_count":%d}'):format(
        data_of({...}, n), count))
    end
  end)
  return ok and done or fails(tostring(message))
end

-- ---- requests ----

-- The bytes before a position in code points.
local function before(code, position)
  local at = 1
  for _ = 1, position do at = (code:find("[^\128-\191]", at + 1) or #code + 1) end
  return code:sub(1, position == 0 and 0 or at - 1)
end

local answers = {}

function answers.kernel_info_request()
  local version = tostring(require "moth")
  return ('{"status":"ok","protocol_version":"5.3","implementation":"moth",'
    .. '"implementation_version":%s,"banner":%s,"help_links":[],"language_info":{"name":"lua",'
    .. '"version":"5.1","mimetype":"text/x-lua","file_extension":".lua","pygments_lexer":"lua",'
    .. '"codemirror_mode":"lua"}}'):format(text_of((version:gsub("^Moth ", ""))),
    text_of(version .. ", " .. jit.version))
end

function answers.execute_request(content) return execute(content) end

function answers.complete_request(content)
  local text = before(content.code, content.cursor_pos)
  local word, list = complete.find(text)
  return ('{"status":"ok","matches":%s,"cursor_start":%d,"cursor_end":%d,"metadata":{}}'):format(
    list_of(list), content.cursor_pos - #word, content.cursor_pos)
end

function answers.inspect_request(content)
  local text = before(content.code, content.cursor_pos)
  local rest = content.code:sub(#text + 1):match "^[%w_]*"
  local name = (text .. rest):match "([%a_][%w_.:]*)%(?$"
  local found = name and repl.help(name)
  if found and found:find "^there is no " then found = nil end
  return ('{"status":"ok","found":%s,"data":%s,"metadata":{}}'):format(tostring(found ~= nil),
    found and '{"text/plain":' .. text_of(found) .. "}" or "{}")
end

function answers.is_complete_request(content)
  local chunk, _, more = evaluate.compile(content.code, "cell")
  return ('{"status":"%s","indent":""}'):format(chunk and "complete" or more and "incomplete"
    or "invalid")
end

function answers.comm_info_request() return '{"status":"ok","comms":{}}' end
function answers.history_request() return '{"status":"ok","history":[]}' end

function answers.shutdown_request(content)
  return ('{"status":"ok","restart":%s}'):format(tostring(content.restart == true))
end

-- Answers one request. Returns true after a shutdown.
local function answer(request)
  current = request
  publish("status", '{"execution_state":"busy"}')
  local respond = answers[request.kind]
  if respond then
    local ok, content = pcall(respond, request.content)
    if not ok then content = fails(tostring(content)) end
    connection:send(request.channel, (request.kind:gsub("_request$", "_reply")), content, request)
  end
  publish("status", '{"execution_state":"idle"}')
  return request.kind == "shutdown_request"
end

--- Serves a connection file until Jupyter ends the kernel. An interrupt ends only a running cell.
function kernel.run(path)
  evaluate.guarded(require, "moth.repl.preload")
  require("moth.repl.plots").define()
  local tools = require "moth.repl.tools"
  tools.remember_globals()
  for name, value in pairs {display = display, who = tools.who, time = tools.time} do
    rawset(_G, name, value)
  end
  evaluate.interruptible()
  connection = wire.open(path)
  redirect()
  local ok, problem = pcall(function()
    repeat
      local request = connection:receive()
      lib.C.moth_interrupted(lib.ctx) -- one that came between two cells
    until request and answer(request)
  end)
  connection:close()
  if not ok then error(problem, 0) end
end

return kernel
