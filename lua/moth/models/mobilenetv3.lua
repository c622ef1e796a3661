--- mobilenetv3.lua -- MobileNet V3 (Howard et al., 2019), with torchvision's parameter names.

local builder = require "moth.models.builder"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local initial = require "moth.models.initial"
local nn = require "moth.nn"
local ops = require("moth.binding.bind").ops
local vision = require "moth.ops"

local Module, sight = nn.Module, nn.Module.sight
local Conv2dNormActivation = vision.Conv2dNormActivation
local mobilenet = {}

local none = require("moth.binding.lib").none
local function usual_norm(channels)
  return (nn.BatchNorm2d {channels, eps = 0.001, momentum = 0.01})
end

local function excitation(channels, squeezed)
  return (vision.SqueezeExcitation(channels, squeezed, {scale_activation = nn.Hardsigmoid}))
end

--- The number of channels nearest to `value` that is a multiple of 8 and at least 90 % of it.
local function divisible(value)
  local new = math.max(8, math.floor((value + 4) / 8) * 8)
  if new < 0.9 * value then new = new + 8 end
  return new
end

--- The nearest multiple of 8 channels, for other models.
mobilenet.divisible = divisible

-- ---- the block ----

--- Up to four layers: a convolution to more channels, a depthwise convolution, an optional
-- SqueezeExcitation, and a convolution to out_channels without activation. With a shortcut if the
-- shapes agree.
local InvertedResidual = class("InvertedResidual", Module)
mobilenet.InvertedResidual = InvertedResidual

InvertedResidual.signature = define.signature("InvertedResidual", {
  {"int", "input_channels", "channels of the input", bounds = {1}},
  {"int", "kernel", "size of the kernel", bounds = {1}},
  {"int", "expanded_channels", "channels inside", bounds = {1}},
  {"int", "out_channels", "channels of the result", bounds = {1}},
  {"bool", "use_se", "does it have a SqueezeExcitation?", default = false},
  {"enum", "activation", "Hardswish or ReLU", choices = {"HS", "RE"}},
  {"int", "stride", "step of the block", default = 1, bounds = {1, 2}},
  {"int", "dilation", "step between the elements of a window", default = 1, bounds = {1}},
  {"any", "norm_layer", "makes a normalization of some channels; default: nn.BatchNorm2d with "
    .. "eps 0.001 and momentum 0.01", optional = true},
})

function InvertedResidual:init(inputs, kernel, expanded, outputs, use_se, activation, stride,
                               dilation, norm)
  local act = (activation == 0 or activation == "HS") and nn.Hardswish or nn.ReLU
  norm = norm or usual_norm
  self.use_res_connect = stride == 1 and inputs == outputs
  local layers = {}
  if expanded ~= inputs then
    layers[1] = Conv2dNormActivation {inputs, expanded, kernel_size = 1, norm_layer = norm,
      activation_layer = act}
  end
  layers[#layers + 1] = Conv2dNormActivation {expanded, expanded, kernel_size = kernel,
    stride = dilation > 1 and 1 or stride, dilation = dilation, groups = expanded,
    norm_layer = norm, activation_layer = act}
  if use_se then
    layers[#layers + 1] = excitation(expanded, divisible(math.floor(expanded / 4)))
  end
  layers[#layers + 1] = Conv2dNormActivation {expanded, outputs, kernel_size = 1,
    norm_layer = norm, activation_layer = none}
  self.block = nn.Sequential(layers)
  self.out_channels = outputs
end

function InvertedResidual:forward(x)
  local y = self.block(x)
  if not self.use_res_connect then return y end
  return (initial.add(self.block, y, x))
end

InvertedResidual.forward = sight.scoped(InvertedResidual.forward, {"block"})

-- ---- the network ----

--- Images (N, 3, H, W) -> scores (N, num_classes).
local MobileNetV3 = class("MobileNetV3", Module)
mobilenet.MobileNetV3 = MobileNetV3

local OPTIONS = {
  {"float", "dropout", "probability of a zero before the last layer", default = 0.2,
   bounds = {0, 1}},
  {"any", "norm_layer", "makes a normalization of some channels; default: nn.BatchNorm2d with "
    .. "eps 0.001 and momentum 0.01", optional = true},
}

MobileNetV3.signature = define.signature("MobileNetV3", {
  {"any", "inverted_residual_setting", "a list with the arguments of each InvertedResidual"},
  {"int", "last_channel", "channels before the last layer", bounds = {1}},
  {"int", "num_classes", "size of the result", default = 1000, bounds = {1}},
  unpack(OPTIONS),
})

local function build(self, setting, last_channel, num_classes, dropout, norm)
  norm = norm or usual_norm
  local layers = {Conv2dNormActivation {3, setting[1][1], kernel_size = 3, stride = 2,
    norm_layer = norm, activation_layer = nn.Hardswish}}
  for i, row in ipairs(setting) do
    layers[i + 1] = InvertedResidual(row[1], row[2], row[3], row[4], row[5], row[6], row[7] or 1,
      row[8] or 1, norm)
  end
  local inputs = setting[#setting][4]
  layers[#layers + 1] = Conv2dNormActivation {inputs, 6 * inputs, kernel_size = 1,
    norm_layer = norm, activation_layer = nn.Hardswish}
  self.features = nn.Sequential(layers)
  self.avgpool = nn.AdaptiveAvgPool2d(1)
  self.classifier = nn.Sequential(nn.Linear(6 * inputs, last_channel),
    nn.Hardswish {inplace = true}, nn.Dropout {dropout, inplace = true},
    nn.Linear(last_channel, num_classes))
end

function MobileNetV3:init(setting, ...)
  if type(setting) ~= "table" or type(setting[1]) ~= "table" then
    errors.refuse("MobileNetV3", "inverted_residual_setting", "a list of lists is needed", setting,
      "E_TYPE")
  end
  initial.skip(build, self, setting, ...)
  initial.fill(self, {Conv2d = initial.conv, Linear = initial.linear(0.01)})
end

function MobileNetV3:forward(x)
  x = self.avgpool(self.features(x))
  return (self.classifier(ops.flatten(x, 2)))
end

MobileNetV3.forward = sight.scoped(MobileNetV3.forward, {"features", "avgpool", "classifier"})

-- ---- builders ----

-- The arguments of each InvertedResidual: input, kernel, expanded and output channels, use_se,
-- activation, stride; the last three blocks may be narrower or dilated.
local function settings(name, narrow, dilated)
  local tail, dilation = narrow and 2 or 1, dilated and 2 or 1
  if name == "mobilenet_v3_large" then
    return {
      {16, 3, 16, 16, false, "RE"}, {16, 3, 64, 24, false, "RE", 2}, {24, 3, 72, 24, false, "RE"},
      {24, 5, 72, 40, true, "RE", 2}, {40, 5, 120, 40, true, "RE"}, {40, 5, 120, 40, true, "RE"},
      {40, 3, 240, 80, false, "HS", 2}, {80, 3, 200, 80, false, "HS"},
      {80, 3, 184, 80, false, "HS"}, {80, 3, 184, 80, false, "HS"},
      {80, 3, 480, 112, true, "HS"}, {112, 3, 672, 112, true, "HS"},
      {112, 5, 672, 160 / tail, true, "HS", 2, dilation},
      {160 / tail, 5, 960 / tail, 160 / tail, true, "HS", 1, dilation},
      {160 / tail, 5, 960 / tail, 160 / tail, true, "HS", 1, dilation},
    }, 1280 / tail
  end
  return {
    {16, 3, 16, 16, true, "RE", 2}, {16, 3, 72, 24, false, "RE", 2}, {24, 3, 88, 24, false, "RE"},
    {24, 5, 96, 40, true, "HS", 2}, {40, 5, 240, 40, true, "HS"}, {40, 5, 240, 40, true, "HS"},
    {40, 5, 120, 48, true, "HS"}, {48, 5, 144, 48, true, "HS"},
    {48, 5, 288, 96 / tail, true, "HS", 2, dilation},
    {96 / tail, 5, 576 / tail, 96 / tail, true, "HS", 1, dilation},
    {96 / tail, 5, 576 / tail, 96 / tail, true, "HS", 1, dilation},
  }, 1024 / tail
end

-- Multiplies all numbers of channels.
local function widen(list, factor)
  for _, row in ipairs(list) do
    for _, i in ipairs {1, 3, 4} do row[i] = divisible(row[i] * factor) end
  end
  return list
end

for _, name in ipairs {"mobilenet_v3_small", "mobilenet_v3_large"} do
  mobilenet[name] = builder.define {
    name = "models." .. name, head = "classifier.3", sizes = builder.classes "classifier.3",
    doc = ("MobileNet V3, the %s one (Howard et al., 2019): images (N, 3, H, W) -> scores (N, "
      .. "num_classes)."):format(name:match "%a+$"),
    args = {
      builder.NUM_CLASSES,
      {"float", "width_mult", "factor of the numbers of channels", default = 1,
       bounds = {0, open = true}},
      {"bool", "reduced_tail", "are the last blocks half as wide?", default = false},
      {"bool", "dilated", "does dilation replace the last stride?", default = false},
      unpack(OPTIONS),
    },
    examples = "{num_classes = 10}",
    make = function(o)
      local list, last = settings(name, o.reduced_tail, o.dilated)
      return (MobileNetV3 {widen(list, o.width_mult), divisible(last * o.width_mult),
        num_classes = o.num_classes, dropout = o.dropout, norm_layer = o.norm_layer})
    end,
  }
end

return (builder.guarded(mobilenet))
