--- source.lua -- data.source: a function, by its module's name, with arguments. Unlike a function,
-- a source can be sent to another Lua state.
--
--     data.source("squares", 100)           -- require("squares")(100)
--     data.source("images:Train", folder)   -- require("images").Train(folder)
--
-- A DataLoader's workers create their dataset from a source. Tensors among the arguments are
-- shared.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local calls = require "moth.binding.calls"

local Source = class("Source")

local parse = define.signature("source", {
  {"string", "module", "the module's name for require, and `:field` if it is a table"},
})

function Source:init(module, ...)
  parse(module)
  self.module, self.field = module:match("^([^:]+):?(.*)$")
  if not self.module then
    errors.refuse("source", "module", "a module's name is needed", module)
  end
  self.n, self.args = select("#", ...), {...}
  if self.n > 0 then require("moth.data.pack").check(...) end
end

local function found(module)
  local fine, value = pcall(require, module)
  if fine then return value end
  local text = tostring(value)
  local missing = text:match("module '([^\n]-)' not found:\n")
  if missing == module then text = ("there is no module '%s' on package.path"):format(module) end
  errors.raise("source: " .. text, "E_IO")
end

--- Returns the named function or class.
function Source:resolve()
  local value = found(self.module)
  for name in self.field:gmatch("[^.]+") do
    if type(value) ~= "table" then
      errors.raise(("source: '%s' has no field '%s', it is %s"):format(self.module, name,
        errors.describe(value)), "E_TYPE")
    end
    value = value[name]
  end
  if not calls.is_callable(value) then
    errors.raise(("source: %s is %s, not a function or a class%s"):format(tostring(self),
      errors.describe(value), self.field == "" and type(value) == "table"
      and ("; name its field: \"%s:Name\""):format(self.module) or ""), "E_TYPE")
  end
  return value
end

-- Appends the source's arguments to the call's arguments.
local function join(self, n, ...)
  local all = {...}
  for i = 1, self.n do all[n + i] = self.args[i] end
  return unpack(all, 1, n + self.n)
end

function Source:__call(...)
  return self:resolve()(join(self, select("#", ...), ...))
end

function Source:__tostring()
  return self.field == "" and self.module or self.module .. ":" .. self.field
end

--- A function by name, with its last arguments, for the workers of a DataLoader, which run in their
-- own Lua states. Calling the source calls the function.
-- @param module  the argument of `require`; after a colon a field of the module: "images:Train"
-- @param ...     arguments: numbers, strings, booleans, tensors, plain tables of these, sources
local function source(module, ...) return (Source(module, ...)) end

--- Returns true if x is a source.
local function is(x) return class.isinstance(x, Source) end

return {source = source, is = is}
