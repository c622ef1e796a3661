--- named.lua -- calls of Moth's layers by argument names: `lstm{x, hx = {h, c}}`,
-- `attention(q, k, v, {need_weights = false})`, `criterion{input = y, target = t}`.
--
-- named.takes declares a forward's arguments; by default they are tensors with the names of the
-- forward's parameters. A call without a table only adds a type test for each argument. moth.forms
-- lists the call forms. A user's net gets its arguments unchanged.

local bind = require "moth.binding.bind"
local calls = require "moth.binding.calls"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local named = {}

local weak = {__mode = "k"}
local lists = setmetatable({}, weak) -- forward -> {[position] = true} if it may be a list
local sorters = setmetatable({}, weak) -- forward -> the function that sorts its arguments
local as_given = setmetatable({}, weak) -- forward -> true if it gets tables unchanged

--- Declares a forward's arguments, for help and for calls by name.
-- @param forward  the function
-- @param args     rows as in define, which are not checked; or the result of define.signature,
-- which the forward must then call
-- @param outputs  names of its results; optional
function named.takes(forward, args, outputs)
  define.takes(forward, args, outputs)
  if type(args) == "function" then
    sorters[forward] = function(_, ...) return args(...) end
    return
  end
  lists[forward] = {}
  for i, row in ipairs(args) do
    lists[forward][i] = row[1] == "any" or row[1]:find "^int" ~= nil
  end
end

--- Declares that a forward gets its arguments unchanged, including tables.
function named.as_given(forward)
  as_given[forward] = true
end

-- ---- sorting ----

local HEAD = [[
local sig, T = ...
local type = type]]

-- Returns the declared arguments, or tensors with the names of the parameters after self.
local function args_of(forward)
  local declared = bind.signature(forward)
  if declared then return declared.args end
  local args, tensor = {}, require("moth.binding.kinds").find "tensor"
  for i = 2, debug.getinfo(forward, "u").nparams do
    args[i - 1] = {name = debug.getlocal(forward, i), kind = "tensor", row = tensor,
                   doc = "", required = true, fallback = ""}
  end
  return args
end

local function compile(forward)
  local forms = require "moth.binding.forms"
  local sig = forms.signature("forward", args_of(forward), false)
  local names = {}
  for i = 1, #sig.args do names[i] = "a" .. i end
  local text = forms.source(sig, HEAD, "  return " .. table.concat(names, ", "))
  local sort = assert(lib.loadstring(text, "=[moth.nn.named]"))(sig, calls)
  return function(self, ...)
    sig.name = class.typename(self)
    return sort(...)
  end
end

local function sorter(forward)
  local sort = sorters[forward]
  if not sort then
    sort = compile(forward)
    sorters[forward] = sort
  end
  return sort
end

--- Returns the ordered arguments of a call, {n = count, ...}, for hooks.
function named.sorted(self, args)
  local forward = class.written(self.forward)
  if not sorters[forward] and not lists[forward] then return args end
  for i = 1, args.n do
    if lib.is_plain(args[i]) then
      return lib.pack(sorter(forward)(self, unpack(args, 1, args.n)))
    end
  end
  return args
end

-- ---- calls ----

-- Calls forward with arguments that contain a table, or with too many arguments.
local function call(forward, self, ...)
  return forward(self, sorter(forward)(self, ...))
end

-- One function for each number of arguments: `...` is slow in small calls.
local guards = {
  function(forward, no_self)
    return function(self, a, more)
      if type(self) ~= "table" then no_self() end
      if type(a) == "table" or type(more) ~= "nil" then return call(forward, self, a, more) end
      return forward(self, a)
    end
  end,
  function(forward, no_self, list)
    local second = list[2]
    return function(self, a, b, more)
      if type(self) ~= "table" then no_self() end
      if type(a) == "table" or type(more) ~= "nil"
         or type(b) == "table" and not (second and type(b[1]) ~= "nil") then
        return call(forward, self, a, b, more)
      end
      return forward(self, a, b)
    end
  end,
  function(forward, no_self, list)
    local third = list[3]
    return function(self, a, b, c, more)
      if type(self) ~= "table" then no_self() end
      if type(a) == "table" or type(b) == "table" or type(more) ~= "nil"
         or type(c) == "table" and not (third and type(c[1]) ~= "nil") then
        return call(forward, self, a, b, c, more)
      end
      return forward(self, a, b, c)
    end
  end,
}

-- For more arguments: such layers are large, so that the overhead does not matter.
local function guard_many(forward, no_self, _, n)
  return function(self, ...)
    if type(self) ~= "table" then no_self() end
    for i = 1, select("#", ...) do
      if i > n or type((select(i, ...))) == "table" then return call(forward, self, ...) end
    end
    return forward(self, ...)
  end
end

--- Wraps the forward of a layer, so that it accepts arguments by name and reports a call with '.';
-- class.guard calls it. Returns nil for other methods, and for forwards that parse tables
-- themselves.
function named.guard(name, fn)
  if name ~= "forward" or as_given[fn] then return nil end
  local info = debug.getinfo(fn, "u")
  local n = info.nparams - 1
  if info.isvararg or n < 1 then return nil end
  lists[fn] = lists[fn] or {}
  return (guards[n] or guard_many)(fn, function() errors.no_self(name, "net") end, lists[fn], n)
end

return named
