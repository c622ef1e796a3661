--- layers.lua -- modules of moth.ops, with torchvision's names, arguments and parameter names.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local nn = require("moth").nn

local ops = require "moth.ops"
local tensor_ops = require("moth.binding.bind").ops
local sizes = require("moth.ops.sample").sizes

local Module, plain = nn.Module, lib.is_plain
local layers = {}

-- Defines a module that stores its arguments; forward(self, ...) computes.
local function simple(name, doc_rows, forward)
  local Layer = class(name, Module)
  layers[name] = Layer
  Layer.signature = define.signature(name, doc_rows)
  local names = {}
  for i, row in ipairs(doc_rows) do names[i] = row[2] end
  function Layer:init(...)
    for i, key in ipairs(names) do self[key] = (select(i, ...)) end
  end
  function Layer:extra_repr()
    local parts = {}
    for i, key in ipairs(names) do
      local value = self[key]
      if plain(value) then value = "(" .. table.concat(value, ", ") .. ")" end
      parts[i] = key .. "=" .. tostring(value)
    end
    return table.concat(parts, ", ")
  end
  Layer.forward = forward
  Module.passing[forward] = true
  return Layer
end

-- ---- roi layers and regularization ----

local SIZE = {"int2", "output_size", "height and width of the result", bounds = {1}}
local SCALE = {"float", "spatial_scale", "factor of the coordinates"}
local RATIO = {"int", "sampling_ratio", "points for each side of a cell"}

simple("RoIAlign", {SIZE, SCALE, RATIO,
  {"bool", "aligned", "are coordinates shifted by half an element?", default = false}},
  function(self, input, rois)
    return (ops.roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio,
      self.aligned))
  end)

simple("RoIPool", {SIZE, SCALE}, function(self, input, rois)
  return (ops.roi_pool(input, rois, self.output_size, self.spatial_scale))
end)

simple("PSRoIAlign", {SIZE, SCALE, RATIO}, function(self, input, rois)
  return (ops.ps_roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio))
end)

simple("PSRoIPool", {SIZE, SCALE}, function(self, input, rois)
  return (ops.ps_roi_pool(input, rois, self.output_size, self.spatial_scale))
end)

simple("StochasticDepth", {{"float", "p", "probability of a drop", bounds = {0, 1}},
  {"enum", "mode", "the unit that is dropped", choices = {"batch", "row"}, required = true}},
  function(self, input)
    return (ops.stochastic_depth(input, self.p, self.mode, self.training))
  end)

for n = 2, 3 do
  simple("DropBlock" .. n .. "d", {
    {"float", "p", "share of elements that are dropped", bounds = {0, 1}},
    {"int", "block_size", "length of a block's sides, odd", bounds = {1}},
    {"bool", "inplace", "write into the input?", default = false},
    {"float", "eps", "keeps the scale finite", default = 1e-6},
  }, function(self, input)
    return (ops["drop_block" .. n .. "d"](input, self.p, self.block_size, self.inplace, self.eps,
      self.training))
  end)
end

simple("Permute", {{"dims", "dims", "the order of the dims"}}, function(self, input)
  return (tensor_ops.permute(input, self.dims))
end)

-- ---- deformable convolution ----

local DeformConv2d = class("DeformConv2d", Module)
layers.DeformConv2d = DeformConv2d

DeformConv2d.signature = define.signature("DeformConv2d", {
  {"int", "in_channels", "channels of the input"},
  {"int", "out_channels", "channels of the result"},
  {"int2", "kernel_size", "height and width of the kernel", bounds = {1}},
  {"int2", "stride", "step of the kernel", default = 1, bounds = {1}},
  {"int2", "padding", "border of zeros", default = 0, bounds = {0}},
  {"int2", "dilation", "step between points of the kernel", default = 1, bounds = {1}},
  {"int", "groups", "groups of channels", default = 1},
  {"bool", "bias", "add a bias?", default = true},
})

function DeformConv2d:init(in_channels, out_channels, kernel, stride, padding, dilation, groups,
                           bias)
  for _, row in ipairs {{"in_channels", in_channels}, {"out_channels", out_channels}} do
    local name, n = unpack(row)
    if groups < 1 or n % groups ~= 0 then
      errors.argument("DeformConv2d", name, ("a multiple of groups (%d) is needed, got %d"):format(
        groups, n), "E_SHAPE")
    end
  end
  local moth = require "moth"
  self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
  kernel = sizes(kernel)
  self.kernel_size, self.stride = kernel, sizes(stride)
  self.padding, self.dilation = sizes(padding), sizes(dilation)
  self.weight = nn.Parameter(moth.empty(out_channels, in_channels / groups, kernel[1], kernel[2]))
  if bias then self.bias = nn.Parameter(moth.empty(out_channels)) end
  self:reset_parameters()
end

function DeformConv2d:reset_parameters()
  nn.init.kaiming_uniform_(self.weight, math.sqrt(5))
  if self.bias ~= nil then
    local bound = 1 / math.sqrt(self.weight[1]:numel())
    nn.init.uniform_(self.bias, -bound, bound)
  end
end

--- offset and the optional mask are those of moth.ops.deform_conv2d.
function DeformConv2d:forward(input, offset, mask)
  return (ops.deform_conv2d(input, offset, self.weight, self.bias, self.stride, self.padding,
    self.dilation, mask))
end

function DeformConv2d:extra_repr()
  local k = self.kernel_size
  return ("%d, %d, kernel_size=(%d, %d)"):format(self.in_channels, self.out_channels, k[1], k[2])
end

-- ---- normalization with fixed statistics ----

local FrozenBatchNorm2d = class("FrozenBatchNorm2d", Module)
layers.FrozenBatchNorm2d = FrozenBatchNorm2d

FrozenBatchNorm2d.signature = define.signature("FrozenBatchNorm2d", {
  {"int", "num_features", "channels, C"},
  {"float", "eps", "added to the variance", default = 1e-5},
})

--- BatchNorm2d whose statistics and factors are constant buffers.
function FrozenBatchNorm2d:init(num_features, eps)
  local moth = require "moth"
  self.eps = eps
  self.weight = nn.Buffer(moth.ones(num_features))
  self.bias = nn.Buffer(moth.zeros(num_features))
  self.running_mean = nn.Buffer(moth.zeros(num_features))
  self.running_var = nn.Buffer(moth.ones(num_features))
end

FrozenBatchNorm2d._ignored_keys = {"num_batches_tracked"} -- of a BatchNorm2d's state_dict

function FrozenBatchNorm2d:forward(x)
  local scale = self.weight * (self.running_var + self.eps):rsqrt()
  local shift = self.bias - self.running_mean * scale
  return x * scale:view(1, -1, 1, 1) + shift:view(1, -1, 1, 1)
end

function FrozenBatchNorm2d:extra_repr()
  return ("%d, eps=%g"):format(self.weight:size(1), self.eps)
end

-- ---- blocks of layers ----

-- A class or function from an argument: false if absent, nil for moth.none.
local function chosen(value, default)
  if value == false then return default end
  return value
end

local function check_maker(fname, name, value)
  if value == nil or class.isclass(value) or type(value) == "function" then return end
  errors.refuse(fname, name, "a class of modules or a function that makes one is needed", value,
    "E_TYPE")
end

local function make_activation(maker, inplace)
  if inplace == nil then return maker() end
  return maker {inplace = inplace}
end

local NORM = {"any", "norm_layer", "class of the normalization, default: BatchNorm; moth.none: "
  .. "none", optional = true, default = false}
local ACTIVATION = {"any", "activation_layer", "class of the activation, ReLU when absent; "
  .. "moth.none: none", optional = true, default = false}

-- The padding that keeps the size, for each side.
local function same_padding(kernel, dilation)
  local list = {}
  for i, k in ipairs(kernel) do list[i] = math.floor((k - 1) / 2) * dilation[i] end
  return list
end

for n = 2, 3 do
  local name, sides = "Conv" .. n .. "dNormActivation", "int" .. n
  local Block = class(name, nn.Sequential)
  layers[name] = Block
  Block.signature = define.signature(name, {
    {"int", "in_channels", "channels of the input"},
    {"int", "out_channels", "channels of the result"},
    {sides, "kernel_size", "sizes of the kernel", default = 3},
    {sides, "stride", "step of the kernel", default = 1},
    {sides, "padding", "padding; the default keeps the size", optional = true},
    {"int", "groups", "groups of channels", default = 1},
    NORM, ACTIVATION,
    {sides, "dilation", "step between points of the kernel", default = 1},
    {"bool", "inplace", "does the activation write into its input?", optional = true,
     default = true},
    {"bool", "bias", "add a bias? default: if there is no normalization",
     optional = true},
  })

  --- A convolution, its normalization and its activation.
  function Block:init(inputs, outputs, kernel, stride, padding, groups, norm_layer, activation,
                      dilation, inplace, bias)
    norm_layer = chosen(norm_layer, nn["BatchNorm" .. n .. "d"])
    activation = chosen(activation, nn.ReLU)
    check_maker(name, "norm_layer", norm_layer)
    check_maker(name, "activation_layer", activation)
    if bias == nil then bias = norm_layer == nil end
    kernel, dilation = sizes(kernel, n), sizes(dilation, n)
    local list = {nn["Conv" .. n .. "d"] {inputs, outputs, kernel_size = kernel, stride = stride,
      padding = padding or same_padding(kernel, dilation), dilation = dilation, groups = groups,
      bias = bias}}
    if norm_layer then list[#list + 1] = norm_layer(outputs) end
    if activation then list[#list + 1] = make_activation(activation, inplace) end
    nn.Sequential.init(self, list)
    self.out_channels = outputs
  end
end

local MLP = class("MLP", nn.Sequential)
layers.MLP = MLP

MLP.signature = define.signature("MLP", {
  {"int", "in_channels", "features of the input", bounds = {1}},
  {"ints", "hidden_channels", "features of each layer's result", bounds = {1}},
  {"any", "norm_layer", "class of the normalization; default: none", optional = true},
  ACTIVATION,
  {"bool", "inplace", "do activations and dropout write into their input?", optional = true},
  {"bool", "bias", "add biases?", default = true},
  {"float", "dropout", "probability of a drop", default = 0},
})

--- Linear layers with normalization, activation and dropout between them.
function MLP:init(inputs, hidden, norm_layer, activation, inplace, bias, dropout)
  if type(hidden) ~= "table" then hidden = {hidden} end
  if #hidden == 0 then
    errors.argument("MLP", "hidden_channels", "at least one number is needed", "E_SHAPE")
  end
  activation = chosen(activation, nn.ReLU) or nn.Identity
  check_maker("MLP", "norm_layer", norm_layer)
  check_maker("MLP", "activation_layer", activation)
  local list = {}
  local function drop() return nn.Dropout {dropout, inplace = inplace or false} end
  for i = 1, #hidden - 1 do
    list[#list + 1] = nn.Linear {inputs, hidden[i], bias = bias}
    if norm_layer then list[#list + 1] = norm_layer(hidden[i]) end
    list[#list + 1] = make_activation(activation, inplace)
    list[#list + 1] = drop()
    inputs = hidden[i]
  end
  list[#list + 1] = nn.Linear {inputs, hidden[#hidden], bias = bias}
  list[#list + 1] = drop()
  nn.Sequential.init(self, list)
end

local SqueezeExcitation = class("SqueezeExcitation", Module)
layers.SqueezeExcitation = SqueezeExcitation

SqueezeExcitation.signature = define.signature("SqueezeExcitation", {
  {"int", "input_channels", "channels of the input"},
  {"int", "squeeze_channels", "channels between"},
  {"any", "activation", "class of the inner activation, default: ReLU", default = false},
  {"any", "scale_activation", "class of the last activation, default: Sigmoid", default = false},
})

--- Scales each channel by a factor computed from the channels' means. (Hu et al. 2018.)
function SqueezeExcitation:init(input_channels, squeeze_channels, activation, scale_activation)
  activation = chosen(activation, nn.ReLU)
  scale_activation = chosen(scale_activation, nn.Sigmoid)
  check_maker("SqueezeExcitation", "activation", activation)
  check_maker("SqueezeExcitation", "scale_activation", scale_activation)
  self.avgpool = nn.AdaptiveAvgPool2d(1)
  self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
  self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
  self.activation = activation()
  self.scale_activation = scale_activation()
end

function SqueezeExcitation:forward(input)
  local scale = self.activation(self.fc1(self.avgpool(input)))
  return self.scale_activation(self.fc2(scale)) * input
end

SqueezeExcitation.forward = Module.sight.scoped(SqueezeExcitation.forward,
  {"avgpool", "fc1", "fc2", "activation", "scale_activation"})

return layers
