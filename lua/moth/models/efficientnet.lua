--- efficientnet.lua -- EfficientNet B0 to B7 (Tan and Le, 2019), with torchvision's parameter
-- names.

local builder = require "moth.models.builder"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local init = require "moth.nn.initialization"
local initial = require "moth.models.initial"
local nn = require "moth.nn"
local none = require("moth.binding.lib").none
local ops = require("moth.binding.bind").ops
local vision = require "moth.ops"

local Module, sight = nn.Module, nn.Module.sight
local Conv2dNormActivation = vision.Conv2dNormActivation
local divisible = require("moth.models.mobilenetv3").divisible
local efficientnet = {}

local NORM = {"any", "norm_layer", "makes a normalization of some channels; default: "
  .. "nn.BatchNorm2d", optional = true}

local function inner_silu() return (nn.SiLU {inplace = true}) end

-- ---- the block ----

--- Four layers: a convolution to expand_ratio times as many channels, a depthwise convolution, a
-- SqueezeExcitation, and a convolution to out_channels. With a shortcut if the shapes agree.
local MBConv = class("MBConv", Module)
efficientnet.MBConv = MBConv

MBConv.signature = define.signature("MBConv", {
  {"float", "expand_ratio", "factor of the channels inside", bounds = {0, open = true}},
  {"int", "kernel", "size of the kernel", bounds = {1}},
  {"int", "stride", "step of the block", bounds = {1, 2}},
  {"int", "input_channels", "channels of the input", bounds = {1}},
  {"int", "out_channels", "channels of the result", bounds = {1}},
  {"float", "stochastic_depth_prob", "probability that a sample skips the block in training",
   default = 0, bounds = {0, 1}},
  NORM,
})

function MBConv:init(ratio, kernel, stride, inputs, outputs, drop, norm)
  norm = norm or nn.BatchNorm2d
  self.use_res_connect = stride == 1 and inputs == outputs
  local expanded, layers = divisible(inputs * ratio), {}
  if expanded ~= inputs then
    layers[1] = Conv2dNormActivation {inputs, expanded, kernel_size = 1, norm_layer = norm,
      activation_layer = nn.SiLU}
  end
  layers[#layers + 1] = Conv2dNormActivation {expanded, expanded, kernel_size = kernel,
    stride = stride, groups = expanded, norm_layer = norm, activation_layer = nn.SiLU}
  layers[#layers + 1] = vision.SqueezeExcitation(expanded, math.max(1, math.floor(inputs / 4)),
    {activation = inner_silu})
  layers[#layers + 1] = Conv2dNormActivation {expanded, outputs, kernel_size = 1,
    norm_layer = norm, activation_layer = none}
  self.block = nn.Sequential(layers)
  self.stochastic_depth = vision.StochasticDepth(drop, "row")
  self.out_channels = outputs
end

function MBConv:forward(x)
  local y = self.block(x)
  if not self.use_res_connect then return y end
  if self.training then return self.stochastic_depth(y) + x end
  return (initial.add(self.block, y, x))
end

MBConv.forward = sight.scoped(MBConv.forward, {"block"})

-- ---- the network ----

--- Images (N, 3, H, W) -> scores (N, num_classes).
local EfficientNet = class("EfficientNet", Module)
efficientnet.EfficientNet = EfficientNet

EfficientNet.signature = define.signature("EfficientNet", {
  {"any", "inverted_residual_setting", "a list of {expand_ratio, kernel, stride, input_channels, "
    .. "out_channels, number of blocks}"},
  {"float", "dropout", "probability of a zero before the last layer", bounds = {0, 1}},
  {"float", "stochastic_depth_prob", "probability that a sample skips the last block in training",
   default = 0.2, bounds = {0, 1}},
  {"int", "num_classes", "size of the result", default = 1000, bounds = {1}},
  NORM,
  {"int", "last_channel", "channels before the last layer; default: 4 times those of the last "
    .. "block", optional = true, bounds = {1}},
})

local function build(self, setting, dropout, drop, num_classes, norm, last_channel)
  norm = norm or nn.BatchNorm2d
  local layers = {Conv2dNormActivation {3, setting[1][4], kernel_size = 3, stride = 2,
    norm_layer = norm, activation_layer = nn.SiLU}}
  local total, count = 0, 0
  for _, row in ipairs(setting) do total = total + row[6] end
  for _, row in ipairs(setting) do
    local stage = nn.Sequential()
    for i = 1, row[6] do
      stage:append(MBConv(row[1], row[2], i == 1 and row[3] or 1, i == 1 and row[4] or row[5],
        row[5], drop * count / total, norm))
      count = count + 1
    end
    layers[#layers + 1] = stage
  end
  local inputs = setting[#setting][5]
  last_channel = last_channel or 4 * inputs
  layers[#layers + 1] = Conv2dNormActivation {inputs, last_channel, kernel_size = 1,
    norm_layer = norm, activation_layer = nn.SiLU}
  self.features = nn.Sequential(layers)
  self.avgpool = nn.AdaptiveAvgPool2d(1)
  self.classifier = nn.Sequential(nn.Dropout {dropout, inplace = true},
    nn.Linear(last_channel, num_classes))
end

local function fill_linear(module)
  local bound = 1 / math.sqrt(module.out_features)
  init.uniform_(module.weight, -bound, bound)
  init.zeros_(module.bias)
end

function EfficientNet:init(setting, ...)
  if type(setting) ~= "table" or type(setting[1]) ~= "table" then
    errors.refuse("EfficientNet", "inverted_residual_setting", "a list of lists is needed",
      setting, "E_TYPE")
  end
  initial.skip(build, self, setting, ...)
  initial.fill(self, {Conv2d = initial.conv, Linear = fill_linear})
end

function EfficientNet:forward(x)
  x = self.avgpool(self.features(x))
  return (self.classifier(ops.flatten(x, 2)))
end

EfficientNet.forward = sight.scoped(EfficientNet.forward, {"features", "avgpool", "classifier"})

-- ---- builders ----

local BASE = {
  {1, 3, 1, 32, 16, 1}, {6, 3, 2, 16, 24, 2}, {6, 5, 2, 24, 40, 2}, {6, 3, 2, 40, 80, 3},
  {6, 5, 1, 80, 112, 3}, {6, 5, 2, 112, 192, 4}, {6, 3, 1, 192, 320, 1},
}

-- width, depth, dropout
local SIZES = {
  b0 = {1.0, 1.0, 0.2}, b1 = {1.0, 1.1, 0.2}, b2 = {1.1, 1.2, 0.3}, b3 = {1.2, 1.4, 0.3},
  b4 = {1.4, 1.8, 0.4}, b5 = {1.6, 2.2, 0.4}, b6 = {1.8, 2.6, 0.5}, b7 = {2.0, 3.1, 0.5},
}

local function small_momentum(channels)
  return (nn.BatchNorm2d {channels, eps = 0.001, momentum = 0.01})
end

local function setting_of(width, depth)
  local list = {}
  for i, row in ipairs(BASE) do
    list[i] = {row[1], row[2], row[3], divisible(row[4] * width), divisible(row[5] * width),
      math.ceil(row[6] * depth)}
  end
  return list
end

for size, row in pairs(SIZES) do
  efficientnet["efficientnet_" .. size] = builder.define {
    name = "models.efficientnet_" .. size, head = "classifier.1",
    sizes = builder.classes "classifier.1",
    doc = ("EfficientNet %s (Tan and Le, 2019): images (N, 3, H, W) -> scores (N, num_classes).")
      :format(size:upper()),
    args = {
      builder.NUM_CLASSES,
      {"float", "dropout", "probability of a zero before the last layer", default = row[3],
       bounds = {0, 1}},
      {"float", "stochastic_depth_prob", "probability that a sample skips the last block in "
        .. "training", default = 0.2, bounds = {0, 1}},
      NORM,
    },
    examples = "{num_classes = 10}",
    make = function(o)
      return (EfficientNet {setting_of(row[1], row[2]), o.dropout,
        stochastic_depth_prob = o.stochastic_depth_prob, num_classes = o.num_classes,
        norm_layer = o.norm_layer or size > "b4" and small_momentum or nil})
    end,
  }
end

return (builder.guarded(efficientnet))
