--- init.lua -- moth.nn: modules, layers and losses. Each file is loaded at the first use of one of
-- its names.

local class = require "moth.class"
local errors = require "moth.error"

local files = {
  Module = "module", Parameter = "parameter", Buffer = "parameter", isinstance = "parameter",
  typename = "parameter",
  Sequential = "container", ModuleList = "container", ModuleDict = "container",
  ParameterList = "parameters", ParameterDict = "parameters",
  Identity = "linear", Linear = "linear",
  Conv2d = "conv", MaxPool2d = "pool", AvgPool2d = "pool",
  ReLU = "activation", Tanh = "activation", Sigmoid = "activation", Softmax = "activation",
  LogSoftmax = "activation",
  Dropout = "dropout", Dropout2d = "dropout", Flatten = "flatten",
  NLLLoss = "loss", CrossEntropyLoss = "loss", MSELoss = "loss", L1Loss = "loss",
  BCEWithLogitsLoss = "loss",
  functional = "functional", init = "weights", utils = "utils",
}

-- Files that are the value.
local whole = {module = true, functional = true, weights = true, utils = true}

local nn = {
  --- Makes a class: nn.class("Net", nn.Module).
  class = class,
}

--- The names of the namespace, sorted.
function nn.names()
  local names = {"class"}
  for known in pairs(files) do names[#names + 1] = known end
  table.sort(names)
  return names
end

local function find(name)
  local file = files[name]
  if file then
    local loaded = require("moth.nn." .. file)
    local found = whole[file] and loaded or loaded[name]
    if class.isclass(found) then class.guard(found, "net") end
    return found
  elseif type(name) == "string" and name:find("^register_module_") then
    return require("moth.nn.module").global_hooks[name]
  end
end

return setmetatable(nn, {
  __index = function(_, name)
    local found = find(name)
    if found == nil then
      errors.raise(("moth.nn has no '%s'%s (moth.help() lists what there is)"):format(
        tostring(name), errors.nearest(tostring(name), nn.names())))
    end
    rawset(nn, name, found)
    return found
  end,
})
