--- named.lua -- layers of Moth's own called with arguments by name: `lstm{x, hx = {h, c}}`,
-- `attention(q, k, v, {need_weights = false})`, `criterion{input = y, target = t}`.
--
-- What a forward takes is declared by named.takes, or else it is tensors by the names of its
-- parameters. A call without a table costs nothing more than a test of each argument's type; forms
-- as everywhere (moth.forms). A net of the user's own gets what it is called with.

local bind = require "moth.binding.bind"
local calls = require "moth.binding.calls"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local named = {}

local weak = {__mode = "k"}
local lists = setmetatable({}, weak)    -- forward -> {[position] = true} where a list is a value
local sorters = setmetatable({}, weak)  -- forward -> what puts its arguments into their places
local as_given = setmetatable({}, weak) -- forward -> true: tables are values to it

--- Declares what a forward takes, for help and for calls by name.
-- @param forward  the function
-- @param args     rows as in define, of which nothing is checked; or what define.signature
--                 returned, which forward then calls itself
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

--- Declares that a forward hands on whatever it is given, tables too.
function named.as_given(forward)
  as_given[forward] = true
end

-- ---- sorting ----

local HEAD = [[
local sig, T = ...
local type = type]]

-- The arguments that are declared, or tensors by the names of the parameters behind self.
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

--- The arguments of a call, {n = count, ...}, in their places: for hooks, which see them so.
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

-- Calls forward with what a table or one value too many is among.
local function call(forward, self, ...)
  return forward(self, sorter(forward)(self, ...))
end

-- Written out for each number of arguments: `...` costs where a call is small.
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

-- More arguments than those are of what is never small.
local function guard_many(forward, no_self, _, n)
  return function(self, ...)
    if type(self) ~= "table" then no_self() end
    for i = 1, select("#", ...) do
      if i > n or type((select(i, ...))) == "table" then return call(forward, self, ...) end
    end
    return forward(self, ...)
  end
end

--- For class.guard: the forward of a layer that takes its arguments by name too and says when it is
-- called by '.'. nil for other methods, and for forwards that look at tables themselves.
function named.guard(name, fn)
  if name ~= "forward" or as_given[fn] then return nil end
  local info = debug.getinfo(fn, "u")
  local n = info.nparams - 1
  if info.isvararg or n < 1 then return nil end
  lists[fn] = lists[fn] or {}
  return (guards[n] or guard_many)(fn, function() errors.no_self(name, "net") end, lists[fn], n)
end

return named
