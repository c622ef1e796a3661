--- transformer.lua -- nn.TransformerEncoderLayer and nn.TransformerEncoder (Vaswani et al. 2017).

local class = require "moth.class"
local container = require "moth.nn.container"
local define = require "moth.define"
local dropout_layer = require "moth.nn.dropout"
local Module = require "moth.nn.module"
local attention = require "moth.nn.attention"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local linear = require "moth.nn.linear"
local norm = require "moth.nn.norm"

local transformer = {}

--- Attention of a sequence to itself, then two linear layers, each with a residual connection and
-- a LayerNorm: src (L, N, d_model), (N, L, d_model) with batch_first, or without N -> the same
-- shape. The masks are those of nn.MultiheadAttention: true where a position takes no part.
local EncoderLayer = class("TransformerEncoderLayer", Module)
transformer.TransformerEncoderLayer = EncoderLayer

EncoderLayer.signature = define.signature("TransformerEncoderLayer", {
  {"int", "d_model", "features of a position"},
  {"int", "nhead", "heads of the attention"},
  {"int", "dim_feedforward", "features between the two linear layers", default = 2048},
  {"float", "dropout", "probability that an element becomes 0 in training", default = 0.1},
  {"any", "activation", "between them: \"relu\", \"gelu\" or a function", default = "relu"},
  {"float", "layer_norm_eps", "eps of the LayerNorms", default = 1e-5},
  {"bool", "batch_first", "is the batch the first dimension?", default = false},
  {"bool", "norm_first", "normalise before each part, not after it?", default = false},
  {"bool", "bias", "do the linear layers and the LayerNorms have one?", default = true},
  {"device", "device", "where the parameters live", optional = true},
  {"dtype", "dtype", "their element type; the default one when absent", optional = true},
})

local ACTIVATIONS = {relu = "relu", gelu = "gelu"}

local function activation_of(v)
  if type(v) == "string" then
    local name = ACTIVATIONS[v]
    if not name then
      errors.argument("TransformerEncoderLayer", "activation",
        ("expected \"relu\", \"gelu\" or a function, got '%s'"):format(v), "E_ARG")
    end
    return function(x) return (functional[name](x)) end
  end
  return v
end

function EncoderLayer:init(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                           batch_first, norm_first, bias, device, dtype)
  local none = require("moth").none
  device, dtype = device or none, dtype or none
  self.options = {d_model = d_model, nhead = nhead, dim_feedforward = dim_feedforward,
    dropout = dropout, activation = activation, layer_norm_eps = layer_norm_eps,
    batch_first = batch_first, norm_first = norm_first, bias = bias, device = device,
    dtype = dtype}
  self.norm_first = norm_first
  self.self_attn = attention.MultiheadAttention{d_model, nhead, dropout = dropout, bias = bias,
    batch_first = batch_first, device = device, dtype = dtype}
  self.linear1 = linear.Linear(d_model, dim_feedforward, bias, device, dtype)
  self.dropout = dropout_layer.Dropout(dropout)
  self.linear2 = linear.Linear(dim_feedforward, d_model, bias, device, dtype)
  self.norm1 = norm.LayerNorm(d_model, layer_norm_eps, true, bias, device, dtype)
  self.norm2 = norm.LayerNorm(d_model, layer_norm_eps, true, bias, device, dtype)
  self.dropout1 = dropout_layer.Dropout(dropout)
  self.dropout2 = dropout_layer.Dropout(dropout)
  self.activation = activation_of(activation)
end

local parse_layer = define.signature("TransformerEncoderLayer.forward", {
  {"tensor", "src", "(L, N, d_model)"},
  {"tensor", "src_mask", "(L, L) or (N * nhead, L, L)", optional = true},
  {"tensor", "src_key_padding_mask", "(N, L)", optional = true},
  {"bool", "is_causal", "says that src_mask is causal, which changes nothing", default = false},
})

local function attend(self, x, mask, padding)
  local y = self.self_attn(x, x, x, {attn_mask = mask, key_padding_mask = padding,
    need_weights = false})
  return self.dropout1(y)
end

local function feed_forward(self, x)
  local y = self.dropout(self.activation(self.linear1(x)))
  return self.dropout2(self.linear2(y))
end

function EncoderLayer:forward(...)
  local x, mask, padding = parse_layer(...)
  if self.norm_first then
    x = x + attend(self, self.norm1(x), mask, padding)
    return x + feed_forward(self, self.norm2(x))
  end
  x = self.norm1(x + attend(self, x, mask, padding))
  return (self.norm2(x + feed_forward(self, x)))
end

--- Several layers like the one given, with its values, one after the other, and perhaps a norm at
-- the end.
local Encoder = class("TransformerEncoder", Module)
transformer.TransformerEncoder = Encoder

Encoder.signature = define.signature("TransformerEncoder", {
  {"any", "encoder_layer", "a TransformerEncoderLayer"},
  {"int", "num_layers", "how many copies of it"},
  {"any", "norm", "a module that the result goes through", optional = true},
})

function Encoder:init(encoder_layer, num_layers, final)
  if not class.isinstance(encoder_layer, EncoderLayer) then
    errors.argument("TransformerEncoder", "encoder_layer",
      "expected a TransformerEncoderLayer, got " .. errors.describe(encoder_layer), "E_TYPE")
  end
  if num_layers < 1 then
    errors.argument("TransformerEncoder", "num_layers",
      "expected a number from 1 on, got " .. num_layers, "E_ARG")
  end
  local list, state = {}, encoder_layer:state_dict()
  for i = 1, num_layers do
    list[i] = EncoderLayer(encoder_layer.options)
    list[i]:load_state_dict(state)
  end
  self.layers = container.ModuleList(list)
  self.num_layers = num_layers
  if final ~= nil then self.norm = final end
end

local parse_encoder = define.signature("TransformerEncoder.forward", {
  {"tensor", "src", "(L, N, d_model)"},
  {"tensor", "mask", "(L, L) or (N * nhead, L, L)", optional = true},
  {"tensor", "src_key_padding_mask", "(N, L)", optional = true},
  {"bool", "is_causal", "says that mask is causal, which changes nothing", default = false},
})

function Encoder:forward(...)
  local none = require("moth").none
  local x, mask, padding = parse_encoder(...)
  for _, layer in ipairs(self.layers) do
    x = layer(x, {src_mask = mask or none, src_key_padding_mask = padding or none})
  end
  if self.norm ~= nil then x = self.norm(x) end
  return x
end

return transformer
