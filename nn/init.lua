--- init.lua -- moth.nn: modules, layers and losses. Each file is loaded at the first use of one of
-- its names.

local class = require "moth.base.class"
local lazy = require "moth.base.lazy"

local rows = {
  functional = {"moth.nn.functional"},
  init = {"moth.nn.initialization"},
  utils = {"moth.nn.utils"},
  parallel = {"moth.nn.parallel"},
  attention = {"moth.nn.functional.focus"},
  Module = {"moth.nn.module"},
}

local function from(file, names) lazy.from(rows, "moth.nn." .. file, names) end

from("module.parameter", "Parameter Buffer isinstance typename")
from("module.uninitialized", "UninitializedParameter UninitializedBuffer")
from("layer.container", "Sequential ModuleList ModuleDict")
from("module.parameters", "ParameterList ParameterDict")
from("layer.linear", "Identity Linear Bilinear")
from("layer.conv", "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d")
from("layer.pool", "MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d "
  .. "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d "
  .. "AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d")
from("layer.pad", "ConstantPad1d ConstantPad2d ConstantPad3d ZeroPad1d ZeroPad2d ZeroPad3d "
  .. "ReflectionPad1d ReflectionPad2d ReflectionPad3d "
  .. "ReplicationPad1d ReplicationPad2d ReplicationPad3d "
  .. "CircularPad1d CircularPad2d CircularPad3d")
from("layer.resize", "Upsample UpsamplingNearest2d UpsamplingBilinear2d PixelShuffle "
  .. "PixelUnshuffle "
  .. "Unfold Fold")
from("layer.lppool", "LPPool1d LPPool2d LPPool3d")
from("layer.unpool", "MaxUnpool1d MaxUnpool2d MaxUnpool3d")
from("layer.activation", "ReLU ReLU6 LeakyReLU PReLU ELU CELU SELU GELU SiLU Mish Hardswish "
  .. "Hardsigmoid "
  .. "Hardtanh Threshold Softplus Softshrink Hardshrink Softsign Tanh Tanhshrink Sigmoid "
  .. "LogSigmoid RReLU GLU Softmax Softmin Softmax2d LogSoftmax")
from("layer.norm", "BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d "
  .. "InstanceNorm3d "
  .. "LayerNorm RMSNorm GroupNorm SyncBatchNorm")
from("layer.channels", "LocalResponseNorm ChannelShuffle")
from("layer.embedding", "Embedding")
from("layer.bag", "EmbeddingBag")
from("layer.attention", "MultiheadAttention")
from("layer.transformer", "TransformerEncoderLayer TransformerEncoder TransformerDecoderLayer "
  .. "TransformerDecoder Transformer")
from("layer.dropout", "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout")
from("layer.adaptive", "AdaptiveLogSoftmaxWithLoss")
from("layer.fractional", "FractionalMaxPool2d FractionalMaxPool3d")
from("layer.flatten", "Flatten Unflatten")
from("layer.loss", "CosineSimilarity PairwiseDistance SoftMarginLoss HingeEmbeddingLoss "
  .. "PoissonNLLLoss "
  .. "GaussianNLLLoss MarginRankingLoss CosineEmbeddingLoss TripletMarginLoss "
  .. "NLLLoss CrossEntropyLoss MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss "
  .. "BCEWithLogitsLoss KLDivLoss MultiMarginLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss "
  .. "TripletMarginWithDistanceLoss LinearCrossEntropyLoss")
from("functional.ctc", "CTCLoss")
from("layer.lazy", "LazyLinear LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d "
  .. "LazyConvTranspose2d "
  .. "LazyConvTranspose3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d "
  .. "LazyInstanceNorm2d LazyInstanceNorm3d")
from("layer.recurrent", "RNN LSTM GRU RNNCell LSTMCell GRUCell")

local nn, names = lazy.namespace("moth.nn", {
  --- Creates a class: nn.class("Net", nn.Module).
  class = class,
}, rows, {
  find = function(name)
    if name:find "^register_module_" then return require("moth.nn.module.hooks").for_all[name] end
  end,
  found = function(value)
    if class.isclass(value) then
      class.guard(value, "net", require("moth.nn.module.named").guard)
    end
  end,
  hint = lazy.HELP,
})

--- The sorted names of the namespace.
nn.names = names

return nn
