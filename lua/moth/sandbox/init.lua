--- init.lua -- moth.sandbox: runs scripts that make mistakes, in this Lua state, under limits.
--
--     local box = moth.sandbox {memory = 2^24, time = 0.1}
--     box:run "function rule(x) return x:sum():item() end"
--     local score = box:call("rule", x)
--
-- A script gets its own globals: copies of Lua's harmless functions (library.lua) and a part of
-- Moth (namespace.lua). Each call runs under the hook of core/host/sandbox.c, which ends it after a
-- limit. docs/guide/sandbox.md says what is promised.

local ffi = require "ffi"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local measure = require "moth.sandbox.measure"
local system = require "moth.base.system"
local text = require "moth.sandbox.text"

local C, ctx = lib.C, lib.ctx
local load, setfenv, jit_off = load, setfenv, jit.off
local find, format = string.find, string.format

lib.declare "sandbox"

local sandbox = {}

local Box = {}
Box.__index = Box
function Box.__tostring() return "a sandbox" end

local path = lib.path == system.found_as and system.library or lib.path
local guarded = package.loadlib(path, "moth_sandbox_call")

local TIME = C.MOTH_GUARD_TIME
local strings = debug.getmetatable("") -- its __index serves s:upper(); each call replaces it

-- ---- options ----

local OPTIONS = {memory = 2 ^ 24, tensors = 2 ^ 26, time = 0.1, string = 2 ^ 20}
local OTHERS = {modules = "table", globals = "table", print = "function", folder = "string"}

local function checked(options)
  local o = {}
  for name, default in pairs(OPTIONS) do o[name] = default end
  for name, value in pairs(options or {}) do
    local kind = OPTIONS[name] and "number" or OTHERS[name]
    if not kind then
      local names = {}
      for known in pairs(OPTIONS) do names[#names + 1] = known end
      for known in pairs(OTHERS) do names[#names + 1] = known end
      errors.argument("sandbox", tostring(name), "there is no such option"
        .. errors.nearest(tostring(name), names))
    end
    if type(value) ~= kind or kind == "number" and not (value > 0) then
      errors.refuse("sandbox", name, kind == "number" and "a number above 0 is needed"
        or "a " .. kind .. " is needed", value)
    end
    o[name] = value
  end
  return o
end

-- ---- calls ----

-- Random numbers of a sandbox come from its own stream, so that the host's do not change.
local function generator_state()
  local state = require("moth.tensor.generator").default().state
  return ffi.cast("int64_t *", C.moth_data(ctx, state))
end

local function exchange(box, state)
  local stream = box.stream
  stream[0], state[0] = state[0], stream[0]
  stream[1], state[1] = state[1], stream[1]
end

-- Bytes that the next call may use. What the sandbox keeps is measured after enough has grown.
local function allowance(box)
  if box.kept + box.since > box.memory / 2 or box.kept_tensors + box.since_tensors > box.tensors / 2
  then
    box.kept, box.kept_tensors = measure(box.env, box.metatables)
    box.since, box.since_tensors = 0, 0
  end
  local limits = box.limits
  limits.bytes = math.max(0, box.memory - box.kept - box.since)
  limits.tensor_bytes = math.max(0, box.tensors - box.kept_tensors - box.since_tensors)
  limits.seconds = box.time
  if box.kept >= box.memory or box.kept_tensors >= box.tensors then
    errors.raise(format("sandbox: it holds %d bytes in Lua and %d in tensors; its limits are %d "
      .. "and %d", box.kept, box.kept_tensors, box.memory, box.tensors), "E_LIMIT")
  end
end

local function finish(box, outer, state, ok, ...)
  local limits = box.limits
  strings.__index, lib.in_sandbox = outer, box.inside
  exchange(box, state)
  box.running = false
  box.seconds = tonumber(limits.spent)
  box.since = box.since + math.max(0, tonumber(limits.grown))
  box.since_tensors = math.max(-box.kept_tensors, box.since_tensors + tonumber(limits.live))
  if limits.reason ~= 0 then
    box.since = box.memory -- measured before the next call
    if limits.reason == TIME then
      errors.raise(format("sandbox: the time limit of %g seconds is reached", box.time),
        "E_INTERRUPT")
    end
    errors.raise(format("sandbox: the memory limit of %d bytes is reached", box.memory), "E_LIMIT")
  end
  if not ok then error((...), 0) end
  return ...
end

-- Calls fn(...) under the limits. Nothing between the change of `strings` and its return raises.
local function enter(box, fn, ...)
  if box.running then errors.raise("sandbox: a call of it is running", "E_STATE") end
  allowance(box)
  local state = generator_state()
  box.running = true
  local outer = strings.__index
  exchange(box, state)
  strings.__index, box.inside, lib.in_sandbox = box.strings, lib.in_sandbox, true
  return finish(box, outer, state, guarded(box.address, fn, ...))
end

-- ---- loading ----

-- The function of a script's text; nil and a message. Bytecode is refused.
local function compile(box, code, name, env)
  if find(code, "^\27") then return nil, "bytecode is refused in a sandbox" end
  if #code > box.string then
    return nil, format("a text of %d bytes; this sandbox allows %d", #code, box.string)
  end
  name = "@sandbox:" .. name
  local plain, problem = load(code, name, "t")
  if not plain then return nil, problem end
  local prepared
  prepared, problem = text.prepare(code)
  if not prepared then return nil, problem end
  local chunk
  chunk, problem = load(prepared, name, "t")
  if not chunk then return nil, problem end
  jit_off(chunk, true)
  setfenv(chunk, env)
  return (chunk(box.CAT))
end

local function label(name)
  name = type(name) == "string" and #name < 200 and name or "script"
  return (string.gsub(string.gsub(name, "^[@=]", ""), "[%c\"]", " "))
end

-- load and loadstring of scripts: text, or a function that returns its pieces.
local function loaders(box, env)
  function env.load(code, name, mode, own)
    if mode ~= nil and not find(tostring(mode), "t", 1, true) then
      return nil, "only text can be loaded in a sandbox"
    end
    if type(code) == "function" then
      local pieces, size = {}, 0
      for piece in code do
        if piece == "" then break end
        if type(piece) ~= "string" then return nil, "reader function must return a string" end
        size = size + #piece
        if size > box.string then return nil, "the text is too long" end
        pieces[#pieces + 1] = piece
      end
      code = table.concat(pieces)
    end
    if type(code) ~= "string" then return nil, "a text is needed" end
    return compile(box, code, label(name), type(own) == "table" and own or env)
  end
  env.loadstring = env.load

  local loaded = {}
  function env.require(name)
    if loaded[name] ~= nil then return loaded[name] end
    local value = box.modules[name]
    if value == nil then
      error("module '" .. tostring(name) .. "' is not available in this sandbox", 2)
    end
    if type(value) == "string" then
      local chunk, problem = compile(box, value, label(name), env)
      if not chunk then error(problem, 0) end
      value = chunk(name)
      if value == nil then value = true end
    end
    loaded[name] = value
    return value
  end
end
jit_off(loaders, true)

-- ---- the interface ----

--- Creates a sandbox: a table of globals in which scripts run under limits.
-- @param options  a table; all fields are optional: memory, bytes of Lua values that the scripts
--   hold (default 16 MiB); tensors, bytes of tensors (64 MiB); time, seconds of a call (0.1);
--   string, the longest string (1 MiB); modules, name -> table or text for `require`; globals, name
--   -> value; print, function(line); folder, where moth.save and moth.load of scripts work
--   (default: nowhere)
-- @return the sandbox: run, run_file, call, env, seconds (of the last call)
function sandbox.sandbox(options)
  if options ~= nil and not lib.is_plain(options) then
    errors.refuse("sandbox", "options", "a table is needed", options)
  end
  if not guarded then
    errors.raise("sandbox: the library exports no moth_sandbox_call", "E_UNSUPPORTED")
  end
  local box = checked(options)
  box.print = box.print or function(line) print(line) end
  box.kept, box.kept_tensors, box.since, box.since_tensors = 0, 0, 0, 0
  box.running, box.seconds = false, 0
  box.limits = ffi.new("moth_limits")
  box.limits.ctx = ctx
  box.address = tonumber(ffi.cast("uintptr_t", ffi.cast("void *", box.limits)))
  box.stream = ffi.new("int64_t[2]", math.random(2 ^ 31), 0)
  box.counted = function() return box.kept + box.since end
  local env = require("moth.sandbox.library").globals(box)
  local moth = require("moth.sandbox.namespace").new(require "moth", box.folder)
  local modules = {moth = moth, ["moth.nn"] = moth.nn, string = env.string, table = env.table,
                   math = env.math, coroutine = env.coroutine, bit = env.bit, os = env.os}
  for name, value in pairs(box.modules or {}) do
    if lib.is_plain(value) then
      local copy = {}
      for key, item in pairs(value) do copy[key] = item end
      value = copy
    end
    modules[name] = value
  end
  box.modules = modules
  loaders(box, env)
  env.moth = moth
  for name, value in pairs(box.globals or {}) do env[name] = value end
  box.env = env
  return setmetatable(box, Box)
end

local function resolve(box, name)
  local fn = rawget(box.env, name)
  if type(fn) ~= "function" then
    errors.raise(format("sandbox: '%s' is not a function of its scripts, it is %s",
      tostring(name), errors.describe(fn)), "E_ARG")
  end
  return fn
end

--- Runs a text, or calls the global function of that name.
-- @param code  Lua text, or the name of a global function
-- @param ...   arguments
-- @return what the text returns. Errors of the script are raised; E_INTERRUPT after the time limit,
-- E_LIMIT after a memory limit
function Box:run(code, ...)
  if type(code) ~= "string" then
    errors.refuse("run", "code", "a text or a function's name is needed", code, "E_TYPE")
  end
  if find(code, "^[%a_][%w_]*$") then return self:call(code, ...) end
  local fn, problem = compile(self, code, "script", self.env)
  if not fn then errors.raise("sandbox: " .. problem, "E_ARG") end
  return enter(self, fn, ...)
end

--- Runs a file of Lua text.
-- @param file  its path
-- @param ...   arguments
function Box:run_file(file, ...)
  local handle, problem = io.open(file, "rb")
  if not handle then errors.raise("sandbox: " .. problem, "E_IO") end
  local code = handle:read "*a"
  handle:close()
  local fn
  fn, problem = compile(self, code, label(file), self.env)
  if not fn then errors.raise("sandbox: " .. problem, "E_ARG") end
  return enter(self, fn, ...)
end

--- Calls a global function of the scripts under the limits.
-- @param name  its name, or a function that a script has returned
-- @param ...   arguments
-- @return its results
function Box:call(name, ...)
  return enter(self, type(name) == "function" and name or resolve(self, name), ...)
end

return sandbox
