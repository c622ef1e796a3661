--- fusion.lua -- nn.utils.fuse_conv_bn_eval and related functions: merge a batch normalization
-- with fixed statistics into the layer before it; and nn.utils.skip_init.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local Module = require "moth.nn.module"
local parameter = require "moth.nn.module.parameter"
local weights = require "moth.nn.initialization"

local fusion = {}

local function moth() return require "moth" end

local STATISTICS = {
  {"tensor", "bn_rm", "running mean, (C)"},
  {"tensor", "bn_rv", "running variance, (C)"},
  {"float", "bn_eps", "the eps of the batch_norm"},
  {"tensor", "bn_w", "weight of the batch_norm, (C); default: 1", optional = true},
  {"tensor", "bn_b", "bias of the batch_norm, (C); default: 0", optional = true},
}

local function rows(...)
  local list = {...}
  for i, row in ipairs(STATISTICS) do table.insert(list, i + 2, row) end
  return list
end

-- Returns the scale of each channel, and the new bias.
local function folded(bias, mean, var, eps, factor, shift)
  local scale = (var + eps):rsqrt()
  if factor ~= nil then scale = scale * factor end
  local b = (bias == nil and -mean or bias - mean) * scale
  if shift ~= nil then b = b + shift end
  return scale, b
end

-- Makes Parameters of the new weight w and bias b, with dtype and requires_grad of the old ones.
local function parameters(weight, bias, w, b)
  local trained = bias == nil and weight.requires_grad or bias ~= nil and bias.requires_grad
  return parameter.Parameter(w:detach():to(weight.dtype), weight.requires_grad),
    parameter.Parameter(b:detach():to((bias == nil and weight or bias).dtype), trained)
end

fusion.fuse_conv_bn_weights = define {
  name = "fuse_conv_bn_weights", outputs = "weight, bias",
  doc = "Weight and bias of a convolution merged with a batch_norm in eval mode.",
  examples = "moth.randn(4, 3, 2, 2), moth.randn(4), moth.randn(4), moth.rand(4), 1e-5\n"
    .. "moth.randn(3, 4, 2), moth.none, moth.randn(4), moth.rand(4), 1e-3, {bn_w = moth.randn(4), "
    .. "bn_b = moth.randn(4), transpose = true}",
  args = rows({"tensor", "conv_w", "(out_channels, ...), or (in_channels, out_channels, ...)"},
    {"tensor?", "conv_b", "(out_channels)"},
    {"bool", "transpose", "is it a transposed convolution?", default = false}),
  run = function(weight, bias, mean, var, eps, factor, shift, transpose)
    local scale, b = folded(bias, mean, var, eps, factor, shift)
    local channels = mean:numel()
    local shape = lib.filled(weight:dim(), 1, 1, channels)
    if transpose then -- each group's channels are in the second dimension
      local groups = channels / weight:size(2)
      shape[1], shape[2] = weight:size(1), weight:size(2)
      scale = scale:reshape(groups, 1, shape[2]):expand(groups, shape[1] / groups, shape[2])
    end
    return parameters(weight, bias, weight * scale:reshape(shape), b)
  end,
}

fusion.fuse_linear_bn_weights = define {
  name = "fuse_linear_bn_weights", outputs = "weight, bias",
  doc = "Weight and bias of a Linear merged with a batch_norm in eval mode.",
  examples = "moth.randn(4, 3), moth.randn(4), moth.randn(4), moth.rand(4), 1e-5\n"
    .. "moth.randn(4, 3), moth.none, moth.randn(4), moth.rand(4), 1e-3, {bn_w = moth.randn(4), "
    .. "bn_b = moth.randn(4)}",
  args = rows({"tensor", "linear_w", "(out_features, in_features)"},
    {"tensor?", "linear_b", "(out_features)"}),
  run = function(weight, bias, mean, var, eps, factor, shift)
    local scale, b = folded(bias, mean, var, eps, factor, shift)
    return parameters(weight, bias, weight * scale:unsqueeze(-1), b:expand(weight:size(1)):clone())
  end,
}

-- Returns a copy of the layer, with the weight and bias from fuse(...).
local function fused(fname, aname, layer, bn, features, fuse, ...)
  if not class.isinstance(layer, Module) or layer.weight == nil then
    errors.refuse(fname, aname, "a layer is needed", layer, "E_TYPE")
  elseif not class.isinstance(bn, Module) or bn.num_features == nil then
    errors.refuse(fname, "bn", "a BatchNorm is needed", bn, "E_TYPE")
  elseif layer.training or bn.training then
    errors.argument(fname, layer.training and aname or "bn", "is in training mode; call :eval()",
      "E_STATE")
  elseif bn.running_mean == nil then
    errors.argument(fname, "bn", "it has no running statistics", "E_STATE")
  elseif bn.num_features ~= features and not (aname == "linear" and bn.num_features == 1) then
    errors.argument(fname, "bn", ("%d features, but the layer has %d"):format(
      bn.num_features, features), "E_SHAPE")
  end
  local copy = layer:deepcopy()
  copy.weight, copy.bias = fuse(layer.weight, layer.bias == nil and moth().none or layer.bias,
    bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, ...)
  return copy
end

local BN = {"any", "bn", "a BatchNorm with running statistics, in eval mode"}

fusion.fuse_conv_bn_eval = define {
  name = "fuse_conv_bn_eval", outputs = "conv",
  doc = "A convolution merged with the BatchNorm after it; both in eval mode.",
  examples = "moth.nn.Conv2d(3, 4, 2):eval(), moth.nn.BatchNorm2d(4):eval()\n"
    .. "moth.nn.ConvTranspose2d(3, 4, 2):eval(), moth.nn.BatchNorm2d(4):eval(), "
    .. "{transpose = true}",
  args = {{"any", "conv", "a convolution, in eval mode"}, BN,
    {"bool", "transpose", "is it a transposed convolution? default: by its class",
      optional = true}},
  run = function(conv, bn, transpose)
    if transpose == nil then
      transpose = class.isinstance(conv, Module) and conv.output_padding ~= nil
    end
    local features = class.isinstance(conv, Module) and conv.out_channels
    return (fused("fuse_conv_bn_eval", "conv", conv, bn, features, fusion.fuse_conv_bn_weights,
      transpose))
  end,
}

fusion.fuse_linear_bn_eval = define {
  name = "fuse_linear_bn_eval", outputs = "linear",
  doc = "A Linear merged with the BatchNorm after it; both in eval mode.",
  examples = "moth.nn.Linear(3, 4):eval(), moth.nn.BatchNorm1d(4):eval()",
  args = {{"any", "linear", "a Linear, in eval mode"}, BN},
  run = function(linear, bn)
    local features = class.isinstance(linear, Module) and linear.out_features
    return (fused("fuse_linear_bn_eval", "linear", linear, bn, features,
      fusion.fuse_linear_bn_weights))
  end,
}

--- nn.utils.skip_init(nn.Linear, 20, 30): creates a module without initializing its parameters,
-- which are loaded or filled later. Until then their values are undefined.
-- @param module_cls  the class
-- @param ...         its constructor's arguments
-- @return the module
function fusion.skip_init(module_cls, ...)
  if not class.isclass(module_cls) or not class.issubclass(module_cls, Module) then
    errors.refuse("skip_init", "module_cls", "a class of modules is needed", module_cls, "E_TYPE")
  end
  return (weights.skip(module_cls, ...))
end

return fusion
