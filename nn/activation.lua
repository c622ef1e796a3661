--- activation.lua -- layers that apply a function to each element, and the softmaxes.

local class = require "moth.class"
local define = require "moth.define"
local Module = require "moth.nn.module"
local functional = require "moth.nn.functional"

local activation = {}

--- max(x, 0) of each element; `inplace = true` writes the input.
local ReLU = class("ReLU", Module)
activation.ReLU = ReLU

ReLU.signature = define.signature("ReLU", {
  {"bool", "inplace", "write the input itself?", default = false},
})

function ReLU:init(inplace)
  self.inplace = inplace
end

function ReLU:forward(input)
  if self.inplace then return (functional.relu_(input)) end
  return (functional.relu(input))
end

function ReLU:extra_repr()
  return self.inplace and "inplace=true" or ""
end

-- Layers without arguments, by the function they apply.
for name, fname in pairs {Tanh = "tanh", Sigmoid = "sigmoid"} do
  local Layer = class(name, Module)
  activation[name] = Layer
  Layer.signature = define.signature(name, {})
  function Layer:init() end
  function Layer:forward(input)
    return (functional[fname](input))
  end
end

-- Layers along one dimension.
for name, fname in pairs {Softmax = "softmax", LogSoftmax = "log_softmax"} do
  local Layer = class(name, Module)
  activation[name] = Layer
  Layer.signature = define.signature(name, {
    {"dim", "dim", "the dimension whose elements belong together"},
  })
  function Layer:init(dim)
    self.dim = dim
  end
  function Layer:forward(input)
    return (functional[fname](input, self.dim))
  end
  function Layer:extra_repr()
    return "dim=" .. self.dim
  end
end

return activation
