-- arguments.lua -- a search for bad messages and for wrong acceptances, run by hand.
--
--     ./moth spec/search/arguments.lua              everything
--     ./moth spec/search/arguments.lua conv         names that match a Lua pattern
--     MOTH_SEARCH_SHOW=part ./moth spec/search/arguments.lua     calls refused in part too
--     MOTH_SEARCH_SHOW=accepted ./moth spec/search/arguments.lua calls that were accepted
--
-- Every public function, method and class with a known signature is called as its first example
-- says, with one argument at a time replaced by a wrong value: a string, a fraction, NaN, -1, a
-- table, a tensor of another rank, of another dtype, of another size; classes also when their
-- instances are called. The outcome of a call:
--
--   well      refused, and the message names the function (or the layer) and the argument, or
--             another argument of the call
--   part      refused, and the message names one of the two
--   badly     refused, and the message names neither
--   accepted  nothing was raised
--
-- Printed are the calls refused badly, a table of the outcomes by the kind of argument, and totals.

local moth = require "moth"
local bind = require "moth.binding.bind"
local registry = require "spec.support.registry"
local samples = require "moth.help.samples"

local nn = moth.nn
local only, show = arg and arg[1], os.getenv "MOTH_SEARCH_SHOW" or "badly"

-- Not called: they write files, run for long, wait, or change the process.
local SKIPPED = {
  "^save$", "^load", "^open$", "^profile", "^capture$", "seed", "set_", "^timer$", "^doctor",
  "^help",
  "^Timer$", "^progress$", "^export$", "use_deterministic", "^download", "^source$", "^compile$",
}

local WRONG = {
  {"string", "wrong"}, {"fraction", 0.37}, {"nan", 0 / 0}, {"-1", -1},
  {"table", function() return {"wrong"} end},
  {"rank", function(x)
    local sizes = {}
    for d = 1, 7 do sizes[d] = 1 end
    return moth.ones(sizes, {dtype = moth.is_tensor(x) and x.dtype or nil})
  end},
  {"dtype", function(x)
    if not moth.is_tensor(x) then return moth.ones(2, 3):bool() end
    return x.dtype.is_floating_point and x:long() or x:double() + 0.5
  end},
  {"size", function(x)
    if not moth.is_tensor(x) or x:dim() == 0 then return moth.ones(5, 3) end
    local sizes = {unpack(x.shape)}
    sizes[#sizes] = sizes[#sizes] + 1
    return moth.ones(sizes, {dtype = x.dtype})
  end},
}

local outcomes = {"well", "part", "badly", "accepted"}
local totals, by_kind, lines = {}, {}, {}
for _, name in ipairs(outcomes) do totals[name] = 0 end

local function word(text, name)
  return text:find("%f[%w_]" .. name:gsub("%W", "%%%0") .. "%f[^%w_]") ~= nil
end

-- A relation of two arguments may blame the other one.
local function outcome_of(text, names, argument, args)
  local named = word(text, argument)
  for _, other in ipairs(args) do
    named = named or text:find("bad argument '" .. other.name .. "' to", 1, true) ~= nil
  end
  local known = text:find "^%S+ in [%w_%.%[%]]+: " ~= nil -- the path of a layer
  for _, name in ipairs(names) do known = known or word(text, name) end
  if named and known then return "well" end
  return (named or known) and "part" or "badly"
end

local function count(kind, wrong, outcome)
  totals[outcome] = totals[outcome] + 1
  local key = ("%-14s %-9s"):format(kind, wrong)
  by_kind[key] = by_kind[key] or {}
  by_kind[key][outcome] = (by_kind[key][outcome] or 0) + 1
end

-- Calls fn with each argument in turn replaced.
-- @param title  the printed name of the function
-- @param names  a message must contain one of these
-- @param args   the arguments of the signature
-- @param make   function() -> a new list of the right values, by position
local function search(title, names, args, fn, make)
  local ok, values = pcall(make)
  if not ok or not values or not pcall(fn, values) then return false end
  for i, argument in ipairs(args) do
    for _, wrong in ipairs(WRONG) do
      local list = make()
      local value = wrong[2]
      if type(value) == "function" then value = value(list[i]) end
      list[i] = value
      moth.manual_seed(1)
      local fine, text = pcall(moth.scope, function() fn(list) end)
      local outcome = fine and "accepted" or outcome_of(tostring(text), names, argument.name, args)
      count(argument.row.name, wrong[1], outcome)
      if show == "all" or show == outcome or outcome == "badly" then
        text = fine and "" or ": " .. tostring(text):gsub("^[^:]+:%d+: ", "")
        lines[#lines + 1] = ("%-9s%s, %s = %s (%s)%s"):format(outcome, title, argument.name,
          wrong[1], argument.row.name, text)
      end
    end
  end
  return true
end

local function skipped(name)
  for _, pattern in ipairs(SKIPPED) do
    if name:find(pattern) then return true end
  end
  return only and not name:find(only)
end

-- The values of a call's arguments by position, including those passed by name.
local function by_position(sig, packed)
  local n, last = packed.n, packed[packed.n]
  local values = {}
  local named = false
  if n > 0 and type(last) == "table" and getmetatable(last) == nil then
    for key in pairs(last) do named = named or type(key) == "string" and sig.index[key] ~= nil end
  end
  if named and #last > 0 and n == 1 then
    for i = 1, #last do values[i] = last[i] end
  end
  local first = sig.args[1]
  if first and first.row.collects and type(packed[1]) == "number" then
    values[1] = {}
    for i = 1, named and n - 1 or n do values[1][i] = packed[i] end
    n = named and 1 or 0
  end
  for i = 1, named and n - 1 or n do values[i] = packed[i] end
  for key, value in pairs(named and last or {}) do
    if type(key) == "string" then values[sig.index[key]] = value end
  end
  return values
end

local function without_out(sig)
  local args = {}
  for i, argument in ipairs(sig.args) do
    if argument.name ~= "out" then args[i] = argument end
  end
  return args
end

local functions, classes, unsearched = 0, 0, {}

local done = {}
local function search_function(full, name, fn)
  local sig = bind.signature(fn)
  if done[fn] or not sig or skipped(name) then return end
  done[fn] = true
  local example = sig.examples and sig.examples ~= "" and registry.examples(sig.examples)[1]
  if not example or #sig.args == 0 then return end
  local args = without_out(sig)
  local found = search(full, {name, sig.name}, args, function(list)
    local y = fn(unpack(list, 1, #args)) -- no tail call, which would lose the line
    return y
  end, function() return by_position(sig, example.arguments()) end)
  if found then functions = functions + 1 else unsearched[#unsearched + 1] = full end
end

-- ---- classes ----

-- The arguments of a sample for a class, and for an instance.
local function calls_of(path, space, name)
  local signature = space[name].signature
  local line, lines_of = samples.of(path, signature and bind.signature(signature))
  local text = line or lines_of
  if not text then return nil end
  local made, called
  local instance = setmetatable({}, {__call = function(_, ...)
    called = called or {n = select("#", ...), ...}
    error("STOP", 0)
  end, __index = function() error("STOP", 0) end})
  local function class(...)
    made = made or {n = select("#", ...), ...}
    return instance
  end
  local env = setmetatable({F = nn.functional, nn = nn, optim = moth.optim, data = moth.data,
    moth = setmetatable({}, {__index = moth})}, {__index = _G})
  local at = env
  for part in path:gmatch "[%w_]+" do
    if part == name then at[part] = class break end
    at[part] = setmetatable({}, {__index = at[part]})
    at = at[part]
  end
  local chunk = loadstring("return " .. text) or loadstring(text)
  if not chunk then return nil end
  pcall(setfenv(chunk, env))
  return made, called
end

local function search_class(path, space, name)
  local Class = space[name]
  if type(Class) ~= "table" or done[Class] or skipped(name) then return end
  done[Class] = true
  local sig = Class.signature and bind.signature(Class.signature)
  local ok, made, called = pcall(calls_of, path, space, name)
  if not ok or not made then unsearched[#unsearched + 1] = path return end
  classes = classes + 1
  local function arguments() return select(2, pcall(calls_of, path, space, name)) end
  if sig and #sig.args > 0 then
    search(path, {name}, without_out(sig), function(list)
      local instance = Class(unpack(list, 1, #sig.args))
      return instance
    end, function() return by_position(sig, arguments()) end)
  end
  if not called or path:find "^data" then return end -- data loaders are not called
  local args = {}
  local forward = type(Class.forward) == "function"
    and require("moth.base.class").written(Class.forward)
  local declared = forward and bind.signature(forward)
  for i = 1, called.n do
    args[i] = declared and declared.args[i]
      or {name = forward and debug.getlocal(forward, i + 1) or "x", row = {name = "input"}}
  end
  search(path .. "()", {name}, args, function(list)
    local instance = Class(unpack(made, 1, made.n))
    local y = instance(unpack(list, 1, #args))
    return y
  end, function()
    local _, _, again = pcall(calls_of, path, space, name)
    return {unpack(again, 1, again.n)}
  end)
end

-- ---- everything ----

local SPACES = {"", "nn.functional", "linalg", "fft", "special", "signal.windows", "func",
  "autograd", "ops", "random", "nn.utils", "nn.utils.rnn", "nn.init", "nn", "optim",
  "optim.lr_scheduler", "distributions", "data", "onnx", "testing"}

for _, space in ipairs(SPACES) do
  local from = moth
  for part in space:gmatch "[%w_]+" do from = from[part] end
  local meta = getmetatable(from)
  local names = type(meta) == "table" and meta.__names and meta.__names() or {}
  table.sort(names)
  for _, name in ipairs(names) do
    local ok, value = pcall(function() return from[name] end)
    local full = space == "" and name or space .. "." .. name
    if ok and type(value) == "function" then search_function(full, name, value)
    elseif ok and type(value) == "table" and require("moth.base.class").isclass(value) then
      local path = (space:find "^ops" or space:find "^distrib") and "moth." .. full or full
      search_class(path, from, name)
    end
  end
end
for _, name in ipairs(bind.method_names()) do
  local fn = bind.method(name)
  if fn then search_function("x:" .. name, name, fn) end
end

table.sort(lines)
for _, line in ipairs(lines) do print((line:gsub("\n.*", ""))) end
print()
local keys = {}
for key in pairs(by_kind) do keys[#keys + 1] = key end
table.sort(keys)
print(("%-24s %8s %8s %8s %8s"):format("kind, wrong value", unpack(outcomes)))
for _, key in ipairs(keys) do
  local row = by_kind[key]
  print(("%-24s %8d %8d %8d %8d"):format(key, row.well or 0, row.part or 0, row.badly or 0,
    row.accepted or 0))
end
print()
print(("not searched: %d: %s"):format(#unsearched, table.concat(unsearched, " ")))
print(("%d functions, %d classes: %d calls refused well, %d in part, %d badly, %d accepted"):format(
  functions, classes, totals.well, totals.part, totals.badly, totals.accepted))
