--- rebuild.lua -- transforms for the workers of a DataLoader, which have their own Lua states.
--
--     local source = t:worker()     -- a data.source: source(sample) is t(sample)
--
-- The source names this file's `apply`, with the transform as a plain table: {transform = class,
-- its arguments}. A worker makes the transform at the first call.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local sources = require "moth.data.source"

local rebuild = {}

local encode

-- A transform of a built-in class: its arguments have the names of its fields.
local function encode_own(t, name, own)
  local e, none = {transform = name}, {}
  if t.generator then
    errors.raise(("%s: a transform with its own generator cannot be sent to a worker"):format(name),
      "E_UNSUPPORTED")
  end
  for _, arg in ipairs(own.signature and bind.signature(own.signature).args or {}) do
    local value = t[arg.name]
    if value == nil then none[#none + 1] = arg.name
    elseif arg.kind == "modules" then
      local list = {}
      for i, each in ipairs(value) do list[i] = encode(each) end
      e[arg.name] = list
    elseif type(value) == "function" then
      errors.raise(("%s: the function %s cannot be sent to a worker; pass its name: "
        .. "moth.data.source(\"module\")"):format(name, arg.name), "E_UNSUPPORTED")
    else e[arg.name] = value end
  end
  e.none = #none > 0 and none or nil
  return e
end

encode = function(t)
  if sources.is(t) then return t end
  local name = class.typename(t)
  local own = name and getmetatable(require "moth.transforms").__built_in(name)
  if own and class.of(t) == own then return (encode_own(t, name, own)) end
  local worker = type(t) == "table" and getmetatable(t) and t.worker
  if worker and worker ~= require("moth.transforms.transform").Transform.worker then
    return {worker = t:worker()}
  end
  errors.raise((name and "%s cannot be sent to a worker: define %s:worker(), which returns "
    .. "moth.data.source(\"module:%s\", ...)" or "a function cannot be sent to a worker; pass its "
    .. "name: moth.data.source(\"module\")"):gsub("%%s", name or ""), "E_UNSUPPORTED")
end

local function decode(e)
  if sources.is(e) then return e end
  if e.worker then return (e.worker()) end
  local args = {}
  for key, value in pairs(e) do
    if key == "transforms" then
      args[key] = {}
      for i, each in ipairs(value) do args[key][i] = decode(each) end
    elseif key ~= "transform" and key ~= "none" then args[key] = value end
  end
  for _, name in ipairs(e.none or {}) do args[name] = lib.none end
  local made = require("moth.transforms")[e.transform]
  if next(args) == nil then return (made()) end
  return (made(args))
end

local made = setmetatable({}, {__mode = "k"}) -- by its plain table

local function pass_on(...) return ... end

local function split(n, ...)
  local values = {...}
  local e = values[n]
  made[e] = made[e] or decode(e)
  return pass_on(made[e](unpack(values, 1, n - 1)))
end

--- Applies a transform. @param ...  a sample, then the transform as a plain table
function rebuild.apply(...) return split(select("#", ...), ...) end

--- A data.source that applies a transform.
function rebuild.source(t)
  return (sources.source("moth.transforms.rebuild:apply", encode(t)))
end

return rebuild
