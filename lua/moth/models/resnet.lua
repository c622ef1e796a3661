--- resnet.lua -- ResNet (He et al., 2015), with torchvision's parameter names: resnet18 to
-- resnet152, and their blocks.

local builder = require "moth.models.builder"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local initial = require "moth.models.initial"
local nn = require "moth.nn"
local ops = require("moth.binding.bind").ops

local Module, sight = nn.Module, nn.Module.sight
local resnet = {}

local NORM = {"any", "norm_layer", "class of the normalization; default: nn.BatchNorm2d",
              optional = true}

local BLOCK = {
  {"int", "inplanes", "channels of the input", bounds = {1}},
  {"int", "planes", "channels of the convolutions; a Bottleneck returns 4 times as many",
   bounds = {1}},
  {"int", "stride", "step of the block", default = 1, bounds = {1}},
  {"any", "downsample", "the module that changes the input to the shape of the result",
   optional = true},
  {"int", "groups", "groups of channels", default = 1, bounds = {1}},
  {"int", "base_width", "channels of a group, for 64 planes", default = 64, bounds = {1}},
  {"int", "dilation", "step between the elements of a window", default = 1, bounds = {1}},
  NORM,
}

local function conv3x3(inputs, outputs, stride, groups, dilation)
  return (nn.Conv2d {inputs, outputs, kernel_size = 3, stride = stride, padding = dilation,
    groups = groups, bias = false, dilation = dilation})
end

local function conv1x1(inputs, outputs, stride)
  return (nn.Conv2d {inputs, outputs, kernel_size = 1, stride = stride, bias = false})
end

-- ---- blocks ----

--- Two convolutions of 3 x 3 and a shortcut.
local BasicBlock = class("BasicBlock", Module)
resnet.BasicBlock = BasicBlock
BasicBlock.expansion = 1
BasicBlock.signature = define.signature("BasicBlock", BLOCK)

local BOTTLENECK_ONLY = "only a Bottleneck supports this; use resnet50 or a larger model"

function BasicBlock:init(inplanes, planes, stride, downsample, groups, base_width, dilation, norm)
  if groups ~= 1 or base_width ~= 64 or dilation ~= 1 then
    errors.argument("BasicBlock", groups ~= 1 and "groups" or base_width ~= 64 and "base_width"
      or "dilation", BOTTLENECK_ONLY, "E_UNSUPPORTED")
  end
  norm = norm or nn.BatchNorm2d
  self.conv1 = conv3x3(inplanes, planes, stride, 1, 1)
  self.bn1 = norm(planes)
  self.relu = nn.ReLU {inplace = true}
  self.conv2 = conv3x3(planes, planes, 1, 1, 1)
  self.bn2 = norm(planes)
  self.downsample = downsample
  self.stride = stride
end

function BasicBlock:forward(x)
  local y = initial.norm_relu(self.bn1, self.relu, self.conv1(x))
  y = self.bn2(self.conv2(y))
  if self.downsample ~= nil then x = self.downsample(x) end
  return (self.relu(initial.add(self.bn2, y, x)))
end

BasicBlock.forward = sight.scoped(BasicBlock.forward, {"conv1", "bn1", "relu", "conv2", "bn2"})

--- Convolutions of 1 x 1, 3 x 3 and 1 x 1, and a shortcut. The stride is that of the second one.
local Bottleneck = class("Bottleneck", Module)
resnet.Bottleneck = Bottleneck
Bottleneck.expansion = 4
Bottleneck.signature = define.signature("Bottleneck", BLOCK)

function Bottleneck:init(inplanes, planes, stride, downsample, groups, base_width, dilation, norm)
  norm = norm or nn.BatchNorm2d
  local width = math.floor(planes * (base_width / 64)) * groups
  self.conv1 = conv1x1(inplanes, width, 1)
  self.bn1 = norm(width)
  self.conv2 = conv3x3(width, width, stride, groups, dilation)
  self.bn2 = norm(width)
  self.conv3 = conv1x1(width, planes * Bottleneck.expansion, 1)
  self.bn3 = norm(planes * Bottleneck.expansion)
  self.relu = nn.ReLU {inplace = true}
  self.downsample = downsample
  self.stride = stride
end

function Bottleneck:forward(x)
  local y = initial.norm_relu(self.bn1, self.relu, self.conv1(x))
  y = initial.norm_relu(self.bn2, self.relu, self.conv2(y))
  y = self.bn3(self.conv3(y))
  if self.downsample ~= nil then x = self.downsample(x) end
  return (self.relu(initial.add(self.bn3, y, x)))
end

Bottleneck.forward = sight.scoped(Bottleneck.forward,
  {"conv1", "bn1", "conv2", "bn2", "conv3", "bn3", "relu"})

-- ---- the network ----

local OPTIONS = {
  {"bool", "zero_init_residual", "does each block begin as its shortcut?", default = false},
  {"int", "groups", "groups of channels in the blocks", default = 1, bounds = {1}},
  {"int", "width_per_group", "channels of a group, for 64 planes", default = 64, bounds = {1}},
  {"any", "replace_stride_with_dilation", "for layer2, layer3 and layer4: does dilation replace "
    .. "the stride? a list of 3 booleans", optional = true},
  NORM,
  {"int", "in_channels", "channels of the input", default = 3, bounds = {1}},
}

--- Images (N, in_channels, H, W) -> scores (N, num_classes).
local ResNet = class("ResNet", Module)
resnet.ResNet = ResNet

ResNet.signature = define.signature("ResNet", {
  {"any", "block", "BasicBlock or Bottleneck"},
  {"ints", "layers", "the number of blocks in layer1 to layer4", bounds = {1}},
  {"int", "num_classes", "size of the result", default = 1000, bounds = {1}},
  unpack(OPTIONS),
})

-- Creates one of the four stages.
local function stage(self, block, planes, blocks, stride, dilate, shared)
  local norm, before = shared.norm, shared.dilation
  if dilate then
    shared.dilation = shared.dilation * stride
    stride = 1
  end
  local outputs, downsample = planes * block.expansion, nil
  if stride ~= 1 or shared.inplanes ~= outputs then
    downsample = nn.Sequential(conv1x1(shared.inplanes, outputs, stride), norm(outputs))
  end
  local list = nn.Sequential()
  local function add(first_stride, down, dilation)
    list:append(block {shared.inplanes, planes, stride = first_stride, downsample = down,
      groups = self.groups, base_width = self.base_width, dilation = dilation, norm_layer = norm})
    shared.inplanes = outputs
  end
  add(stride, downsample, before)
  for _ = 2, blocks do add(1, nil, shared.dilation) end
  return list
end

local function build(self, block, layers, num_classes, dilate, norm, in_channels)
  norm = norm or nn.BatchNorm2d
  local shared = {norm = norm, inplanes = 64, dilation = 1}
  self.conv1 = nn.Conv2d {in_channels, 64, kernel_size = 7, stride = 2, padding = 3, bias = false}
  self.bn1 = norm(64)
  self.relu = nn.ReLU {inplace = true}
  self.maxpool = nn.MaxPool2d {kernel_size = 3, stride = 2, padding = 1}
  self.layer1 = stage(self, block, 64, layers[1], 1, false, shared)
  self.layer2 = stage(self, block, 128, layers[2], 2, dilate[1], shared)
  self.layer3 = stage(self, block, 256, layers[3], 2, dilate[2], shared)
  self.layer4 = stage(self, block, 512, layers[4], 2, dilate[3], shared)
  self.avgpool = nn.AdaptiveAvgPool2d(1)
  self.fc = nn.Linear(512 * block.expansion, num_classes)
end

function ResNet:init(block, layers, num_classes, zero_init, groups, width, dilate, norm,
                     in_channels)
  if block ~= BasicBlock and block ~= Bottleneck
     and not (class.isclass(block) and type(block.expansion) == "number") then
    errors.refuse("ResNet", "block", "BasicBlock, Bottleneck or a class with a field `expansion` "
      .. "is needed", block, "E_TYPE")
  elseif #layers ~= 4 then
    errors.refuse("ResNet", "layers", "4 numbers are needed", layers, "E_SHAPE")
  elseif dilate ~= nil and (type(dilate) ~= "table" or #dilate ~= 3) then
    errors.refuse("ResNet", "replace_stride_with_dilation", "a list of 3 booleans is needed",
      dilate, "E_TYPE")
  elseif block == BasicBlock and dilate
     and (dilate[1] or dilate[2] or dilate[3] and layers[4] > 1) then
    errors.argument("ResNet", "replace_stride_with_dilation", BOTTLENECK_ONLY, "E_UNSUPPORTED")
  end
  self.groups, self.base_width = groups, width
  initial.skip(build, self, block, layers, num_classes, dilate or {false, false, false}, norm,
    in_channels)
  initial.fill(self, {Conv2d = initial.conv, Linear = initial.usual})
  if not zero_init then return end
  initial.fill(self, {
    BasicBlock = function(m) nn.init.zeros_(m.bn2.weight) end,
    Bottleneck = function(m) nn.init.zeros_(m.bn3.weight) end,
  })
end

function ResNet:forward(x)
  x = self.maxpool(initial.norm_relu(self.bn1, self.relu, self.conv1(x)))
  x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
  return (self.fc(ops.flatten(self.avgpool(x), 2)))
end

ResNet.forward = sight.scoped(ResNet.forward, {"conv1", "bn1", "relu", "maxpool", "layer1",
  "layer2", "layer3", "layer4", "avgpool", "fc"})

-- ---- builders ----

--- The blocks of each model, and their number in each layer.
resnet.SIZES = {
  resnet18 = {BasicBlock, {2, 2, 2, 2}}, resnet34 = {BasicBlock, {3, 4, 6, 3}},
  resnet50 = {Bottleneck, {3, 4, 6, 3}}, resnet101 = {Bottleneck, {3, 4, 23, 3}},
  resnet152 = {Bottleneck, {3, 8, 36, 3}},
}

--- The arguments of the builders, after num_classes.
resnet.OPTIONS = OPTIONS

--- Creates a ResNet.
-- @param name     a key of SIZES
-- @param options  the arguments of the builder, by name
function resnet.make(name, options)
  local size, given = resnet.SIZES[name], {num_classes = options.num_classes}
  for _, arg in ipairs(OPTIONS) do given[arg[2]] = options[arg[2]] end
  return (ResNet(size[1], size[2], given))
end

for name in pairs(resnet.SIZES) do
  resnet[name] = builder.define {
    name = "models." .. name, head = "fc", sizes = builder.classes "fc",
    doc = ("ResNet-%s (He et al., 2015): images (N, 3, H, W) -> scores (N, num_classes)."):format(
      name:match "%d+"),
    args = {builder.NUM_CLASSES, unpack(OPTIONS)},
    examples = "{num_classes = 10}",
    make = function(options) return (resnet.make(name, options)) end,
  }
end

return (builder.guarded(resnet))
