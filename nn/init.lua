--- init.lua -- moth.nn: modules, layers and losses. Each file is loaded at the first use of one of
-- its names.

local class = require "moth.class"
local errors = require "moth.error"

local files = {} -- name -> the file that has it

local function from(file, names)
  for name in names:gmatch "%S+" do files[name] = file end
end

from("module", "Module")
from("parameter", "Parameter Buffer isinstance typename")
from("container", "Sequential ModuleList ModuleDict")
from("parameters", "ParameterList ParameterDict")
from("linear", "Identity Linear")
from("conv", "Conv1d Conv2d ConvTranspose1d ConvTranspose2d")
from("pool", "MaxPool1d MaxPool2d AvgPool1d AvgPool2d AdaptiveAvgPool1d AdaptiveAvgPool2d "
  .. "AdaptiveMaxPool1d AdaptiveMaxPool2d")
from("pad", "ConstantPad1d ConstantPad2d ZeroPad1d ZeroPad2d ReflectionPad1d ReflectionPad2d "
  .. "ReplicationPad1d ReplicationPad2d CircularPad1d CircularPad2d")
from("resize", "Upsample UpsamplingNearest2d UpsamplingBilinear2d PixelShuffle PixelUnshuffle")
from("columns", "Unfold Fold")
from("activation", "ReLU ReLU6 LeakyReLU PReLU ELU CELU SELU GELU SiLU Mish Hardswish Hardsigmoid "
  .. "Hardtanh Threshold Softplus Softshrink Hardshrink Softsign Tanh Tanhshrink Sigmoid "
  .. "LogSigmoid GLU Softmax Softmin Softmax2d LogSoftmax")
from("norm", "BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d "
  .. "LayerNorm RMSNorm GroupNorm")
from("embedding", "Embedding")
from("attention", "MultiheadAttention")
from("transformer", "TransformerEncoderLayer TransformerEncoder")
from("dropout", "Dropout Dropout2d")
from("flatten", "Flatten")
from("loss", "NLLLoss CrossEntropyLoss MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss "
  .. "BCEWithLogitsLoss KLDivLoss")
from("recurrent", "RNN LSTM GRU RNNCell LSTMCell GRUCell")
from("functional", "functional")
from("weights", "init")
from("utils", "utils")

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
  __names = nn.names, -- for completion
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
