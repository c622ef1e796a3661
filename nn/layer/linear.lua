--- linear.lua -- nn.Identity and nn.Linear.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local layer = require "moth.nn.layer"
local init = require "moth.nn.initialization"
local parameter = require "moth.nn.module.parameter"

local linear = {}

--- Returns its input; accepts and ignores any arguments.
local Identity = class("Identity", Module)
linear.Identity = Identity

function Identity:forward(input)
  return input
end
Module.passing[Identity.forward] = true
named.as_given(Identity.forward)

--- input x weight^T + bias: (..., in_features) -> (..., out_features). weight (out_features,
-- in_features) and bias (out_features) are initialized as in PyTorch: uniformly within 1 /
-- sqrt(in_features).
local Linear = class("Linear", Module)
linear.Linear = Linear

Linear.signature = define.signature("Linear", {
  {"int", "in_features", "size of the last dimension of the input"},
  {"int", "out_features", "size of the last dimension of the result"},
  {"bool", "bias", "add a bias?", default = true},
  {"device", "device", "the parameters' device", optional = true},
  {"dtype", "dtype", "their element type; default: the default dtype", optional = true},
})

function Linear:init(in_features, out_features, bias, device, dtype)
  local moth = require "moth"
  if in_features < 0 or out_features < 0 then
    errors.argument("Linear", in_features < 0 and "in_features" or "out_features",
      "a number from 0 on is needed, got " .. math.min(in_features, out_features), "E_SHAPE")
  end
  self.in_features, self.out_features = in_features, out_features
  self.weight = parameter.Parameter(moth.empty({out_features, in_features}, dtype, device))
  if bias then self.bias = parameter.Parameter(moth.empty({out_features}, dtype, device)) end
  self:reset_parameters()
end

--- Reinitializes weight and bias.
function Linear:reset_parameters()
  init.reset(self.weight, self.bias)
end

function Linear:forward(input)
  return (functional.linear(input, self.weight, self.bias))
end
Module.passing[Linear.forward] = true

--- relu of a Linear's result in one op. Containers use it for a Linear followed by a ReLU if
-- linear.takes_relu says that nothing observes the value between.
function linear.with_relu(module, input)
  if layer.replaced "relu" then return (functional.relu(Linear.forward(module, input))) end
  return (functional.linear(input, module.weight, module.bias, "relu"))
end
errors.module_frame(linear.with_relu, function(modules) return class.typename(modules[1]) end)
Module.rectified[Linear.forward] = linear.with_relu

function linear.takes_relu(module)
  return module.forward == Linear.forward and Module.sight.passes(module)
end

function Linear:extra_repr()
  return ("in_features=%d, out_features=%d, bias=%s"):format(self.in_features, self.out_features,
    tostring(self.bias ~= nil))
end

--- input1^T weight[k] input2 + bias[k]: (..., in1_features), (..., in2_features) -> (...,
-- out_features). weight (out_features, in1_features, in2_features) and bias are initialized
-- uniformly within 1 / sqrt(in1_features).
local Bilinear = class("Bilinear", Module)
linear.Bilinear = Bilinear

Bilinear.signature = define.signature("Bilinear", {
  {"int", "in1_features", "size of the last dimension of the first input"},
  {"int", "in2_features", "size of the last dimension of the second input"},
  {"int", "out_features", "size of the last dimension of the result"},
  {"bool", "bias", "add a bias?", default = true},
  {"device", "device", "the parameters' device", optional = true},
  {"dtype", "dtype", "their element type; default: the default dtype", optional = true},
})

function Bilinear:init(in1_features, in2_features, out_features, bias, device, dtype)
  local moth = require "moth"
  if in1_features < 1 then
    errors.argument("Bilinear", "in1_features", "at least 1 is needed, got " .. in1_features,
      "E_ARG")
  end
  self.in1_features, self.in2_features = in1_features, in2_features
  self.out_features = out_features
  self.weight = parameter.Parameter(moth.empty({out_features, in1_features, in2_features}, dtype,
    device))
  if bias then self.bias = parameter.Parameter(moth.empty({out_features}, dtype, device)) end
  self:reset_parameters()
end

--- Reinitializes weight and bias.
function Bilinear:reset_parameters()
  local bound = 1 / math.sqrt(self.in1_features)
  init.uniform_(self.weight, -bound, bound)
  if self.bias ~= nil then init.uniform_(self.bias, -bound, bound) end
end

function Bilinear:forward(input1, input2)
  return (functional.bilinear(input1, input2, self.weight, self.bias))
end

named.takes(Bilinear.forward, {
  {"tensor", "input1", "(..., in1_features)"}, {"tensor", "input2", "(..., in2_features)"},
})

function Bilinear:extra_repr()
  return ("in1_features=%d, in2_features=%d, out_features=%d, bias=%s"):format(self.in1_features,
    self.in2_features, self.out_features, tostring(self.bias ~= nil))
end

return linear
