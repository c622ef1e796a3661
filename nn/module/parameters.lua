--- parameters.lua -- modules that hold parameters: ParameterList and ParameterDict.
--
-- A ParameterList stores its parameters in the array part of its own table, so that `#list`,
-- `ipairs(list)` and `list[i] = p` work as on any list. In a state_dict their names count from 0,
-- as in PyTorch. Plain tensors become Parameters that share their storage.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local dict = require "moth.nn.module.dict"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local Module = require "moth.nn.module"
local parameter = require "moth.nn.module.parameter"

local parameters = {}

local STORE = Module.store_key

-- Converts a tensor to a Parameter; a Parameter is returned unchanged.
local function of(fname, argname, value, where)
  if not lib.istensor(value) then
    errors.argument(fname, argname, ("a tensor is needed, got %s%s"):format(
      errors.describe(value), where or ""), "E_TYPE")
  end
  if parameter.kind(value) == "parameter" then return value end
  return (parameter.Parameter(value, value:is_floating_point()))
end

local function is_list(x)
  return type(x) == "table" and (getmetatable(x) == nil or class.isinstance(x, Module))
end

-- ---- lists ----

--- A list of parameters that belong to the module that holds it.
-- `self.weights = nn.ParameterList{nn.Parameter(moth.zeros(2)), nn.Parameter(moth.ones(3))}`
local ParameterList = class("ParameterList", Module)
parameters.ParameterList = ParameterList

ParameterList.signature = define.signature("ParameterList", {
  {"tensors", "values", "parameters, or tensors that become Parameters", optional = true},
})

local function extend(self, fname, argname, values)
  if not is_list(values) then
    errors.refuse(fname, argname, "a list of tensors is needed", values, "E_TYPE")
  end
  local new = {}
  for i, value in ipairs(values) do new[i] = of(fname, argname, value, " at position " .. i) end
  for _, value in ipairs(new) do self[#self + 1] = value end
  return self
end

function ParameterList:init(values)
  if values ~= nil then extend(self, "ParameterList", "values", values) end
end

-- Registers the values of the array part: `list[i] = p` is a raw write.
local function gather(self)
  local fields = self[STORE].fields
  for i, value in ipairs(self) do
    local name = tostring(i - 1)
    if fields[name] ~= value then
      value = of("ParameterList", "values", value, " at position " .. i)
      Module.__newindex(self, name, value)
      rawset(self, i, value)
    end
  end
end

function ParameterList:_members(kind)
  gather(self)
  return (Module._members(self, kind))
end

-- __newindex: called for empty positions, and for names, which load_state_dict assigns.
function ParameterList:__newindex(key, value)
  local at = type(key) == "string" and tonumber(key)
  if at and at == math.floor(at) and at >= 0 and at < #self then
    rawset(self, at + 1, value)
    return Module.__newindex(self, key, value)
  elseif type(key) ~= "number" then
    return Module.__newindex(self, key, value)
  end
  if key < 0 and key >= -#self then key = #self + 1 + key end
  if key < 1 or key > #self + 1 or key ~= math.floor(key) then
    errors.raise(("%s[%s]: positions are 1 to %d"):format(class.typename(self), tostring(key),
      #self + 1), "E_INDEX")
  end
  rawset(self, key, of("ParameterList", "values", value, " at position " .. key))
  gather(self)
end

--- Returns a parameter by a negative position, counted from the end, or a list for a range; other
-- keys are plain fields.
function ParameterList:__index(key)
  if type(key) == "number" and key < 0 then return rawget(self, #self + 1 + key) end
  if lib.is_plain(key) then
    return (self:_slice(require("moth.tensor.index").bounds(key, #self, "a ParameterList")))
  end
end

--- Adds a parameter at the end. @return the list
function ParameterList:append(value)
  self[#self + 1] = of("append", "parameter", value)
  return self
end

--- Adds the parameters of a list or of another ParameterList. @return the list
function ParameterList:extend(values) return (extend(self, "extend", "parameters", values)) end

-- Implements list[{first, last[, step]}].
function ParameterList:_slice(start, stop, step)
  local part = ParameterList()
  for i = start + 1, stop, step do part:append(self[i]) end
  return part
end

--- The number of parameters.
function ParameterList:len() return #self end

-- Returns the printed text of both classes: one line for each parameter.
local function listing(self, first)
  local lines = {}
  for _, member in ipairs(self:_members("parameter")) do
    local name = first and tonumber(member[1]) + first or member[1]
    lines[#lines + 1] = ("  (%s): Parameter %s"):format(name, errors.describe(member[2]))
  end
  local name = class.typename(self)
  return #lines == 0 and name .. "()" or name .. "(\n" .. table.concat(lines, "\n") .. "\n)"
end

function ParameterList:__tostring() return listing(self, 1) end

-- ---- dictionaries ----

--- Named parameters. The keys of a plain table are registered in sorted order; a list of {name,
-- parameter} pairs keeps its order. `dict.name` reads, `dict.name = p` sets.
local ParameterDict = class("ParameterDict", Module)
parameters.ParameterDict = ParameterDict

ParameterDict.signature = define.signature("ParameterDict", {
  {"map", "parameters", "names and tensors, or a list of {name, tensor} pairs", optional = true},
})

function ParameterDict:init(values)
  if values ~= nil then self:update(values) end
end

function ParameterDict:__newindex(name, value)
  if lib.istensor(value) then value = of("ParameterDict", "parameters", value) end
  return Module.__newindex(self, name, value)
end

--- Adds the parameters of a table, of a list of {name, tensor} pairs, or of another ParameterDict.
function ParameterDict:update(values)
  if class.isinstance(values, ParameterDict) then
    for name, value in values:items() do self[name] = value end
    return
  elseif not is_list(values) then
    errors.refuse("ParameterDict", "parameters", "a table of tensors is needed", values, "E_TYPE")
  end
  local names, new = {}, {}
  for key, value in pairs(values) do
    if type(key) == "number" and type(value) == "table" then key, value = value[1], value[2] end
    names[#names + 1] = key
    new[key] = of("ParameterDict", "parameters", value, (" under '%s'"):format(tostring(key)))
  end
  if #values == 0 then table.sort(names) end
  for _, name in ipairs(names) do self:register_parameter(name, new[name]) end
end

dict(ParameterDict, "parameter")

function ParameterDict:__tostring() return listing(self) end

return parameters
