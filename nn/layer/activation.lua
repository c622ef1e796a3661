--- activation.lua -- elementwise layers and softmax layers; also gumbel_softmax and rrelu of
-- moth.nn.functional.
--
-- Most classes are generated from a function by layer/init.lua.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local layer = require "moth.nn.layer"
local parameter = require "moth.nn.module.parameter"

local activation = {}

local OF = {
  Tanh = "tanh", Sigmoid = "sigmoid", LogSigmoid = "logsigmoid", Softsign = "softsign",
  Tanhshrink = "tanhshrink", ReLU = "relu", ReLU6 = "relu6", SELU = "selu", SiLU = "silu",
  Mish = "mish", Hardswish = "hardswish", Hardsigmoid = "hardsigmoid", ELU = "elu", CELU = "celu",
  LeakyReLU = "leaky_relu", Hardtanh = "hardtanh", Threshold = "threshold", Softplus = "softplus",
  Softshrink = "softshrink", Hardshrink = "hardshrink", GELU = "gelu", Softmax = "softmax",
  LogSoftmax = "log_softmax", Softmin = "softmin", GLU = "glu",
}

--- Softmax over the channels of images: (N, C, H, W) or (C, H, W).
local Softmax2d = class("Softmax2d", Module)
activation.Softmax2d = Softmax2d
Softmax2d.signature = define.signature("Softmax2d", {})

function Softmax2d:init() end

function Softmax2d:forward(input)
  return (functional.softmax(input, -3))
end

-- ---- layers with a parameter ----

--- max(x, 0) + weight min(x, 0), with a learned weight (He et al., 2015). `weight` is
-- (num_parameters): 1 for all channels, or one weight for each channel (dim 2 of the input).
local PReLU = class("PReLU", Module)
activation.PReLU = PReLU

PReLU.signature = define.signature("PReLU", {
  {"int", "num_parameters", "1, or the number of channels", default = 1},
  {"float", "init", "the initial weight", default = 0.25},
  {"dtype", "dtype", "element type; default: the default dtype", optional = true},
})

function PReLU:init(num_parameters, init, dtype)
  local moth = require "moth"
  self.num_parameters, self.start = num_parameters, init
  self.weight = parameter.Parameter(moth.full{{num_parameters}, init, dtype = dtype})
end

function PReLU:reset_parameters()
  require("moth.nn.initialization").constant_(self.weight, self.start)
end

function PReLU:forward(input)
  return (functional.prelu(input, self.weight))
end

function PReLU:extra_repr()
  return "num_parameters=" .. self.num_parameters
end

-- ---- functions ----

--- Differentiable samples of a softmax (Jang et al., 2017; Maddison et al., 2017).
activation.gumbel_softmax = define {
  name = "gumbel_softmax",
  doc = "A soft sample of a softmax's categories, or a hard sample: one-hot, with the gradient of "
    .. "the soft result.",
  examples = "moth.randn(3, 4)\nmoth.randn(3, 4), {tau = 0.5, dim = 1}",
  args = {
    {"tensor", "logits", "unnormalized log probabilities, any shape"},
    {"float", "tau", "temperature: lower values are closer to one-hot", default = 1},
    {"bool", "hard", "return one-hot samples?", default = false},
    {"float", "eps", "no effect, as in PyTorch", default = 1e-10},
    {"dim", "dim", "the dimension of the categories", default = -1},
  },
  scoped = true,
  run = function(logits, tau, hard, _, dim)
    if not (tau > 0) then
      errors.refuse("gumbel_softmax", "tau", "a number above 0 is needed", tau, "E_DOMAIN")
    end
    local noise = functional.empty_like(logits:detach()):exponential_():log()
    local soft = ((logits - noise) / tau):softmax(dim)
    if not hard then return soft end
    local _, index = soft:max(dim, true)
    local y = functional.zeros_like(soft:detach()):scatter(dim, index, 1)
    return y - soft:detach() + soft
  end,
}

activation.rrelu = define {
  name = "rrelu",
  doc = "max(x, 0) + a min(x, 0): in training a is random for each element, else it is the mean of "
    .. "its bounds (Xu et al., 2015).",
  examples = "moth.randn(3, 4)\nmoth.randn(3, 4), {lower = 0.2, upper = 0.4}",
  args = {
    {"tensor", "input", "any shape"},
    {"float", "lower", "the lower bound of the slope", default = 1 / 8},
    {"float", "upper", "the upper bound", default = 1 / 3},
    {"bool", "training", "use random slopes?", default = false},
    {"bool", "inplace", "write the result to the input?", default = false},
  },
  scoped = true,
  run = function(input, lower, upper, training, inplace)
    if not (lower <= upper) then
      errors.argument("rrelu", "lower", ("a number up to upper, %g, is needed, got %g"):format(
        upper, lower), "E_DOMAIN")
    end
    local y
    if training then
      local slope = functional.rand_like(input:detach()) * (upper - lower) + lower
      y = functional.where(input:gt(0), input, input * slope)
    else
      y = functional.leaky_relu(input, (lower + upper) / 2)
    end
    return inplace and input:copy_(y) or y
  end,
}

--- The layer of F.rrelu: in training, random slopes for negative inputs.
local RReLU = class("RReLU", Module)
activation.RReLU = RReLU

RReLU.signature = define.signature("RReLU", {
  {"float", "lower", "the lower bound of the slope", default = 1 / 8},
  {"float", "upper", "the upper bound", default = 1 / 3},
  {"bool", "inplace", "write the result to the input?", default = false},
})

function RReLU:init(lower, upper, inplace)
  if not (lower <= upper) then
    errors.argument("RReLU", "lower", ("a number up to upper, %g, is needed, got %g"):format(upper,
      lower), "E_DOMAIN")
  end
  self.lower, self.upper, self.inplace = lower, upper, inplace
end

function RReLU:forward(input)
  return (functional.rrelu(input, self.lower, self.upper, self.training, self.inplace))
end

function RReLU:extra_repr()
  return ("lower=%g, upper=%g"):format(self.lower, self.upper)
end

return (layer.of(activation, OF))
