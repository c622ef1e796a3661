--- transformer.lua -- nn.Transformer, its encoder and decoder and their layers (Vaswani et al.
-- 2017).

local bind = require "moth.binding.bind"
local calls = require "moth.binding.calls"
local class = require "moth.base.class"
local container = require "moth.nn.layer.container"
local define = require "moth.binding.define"
local dropout_layer = require "moth.nn.layer.dropout"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"
local attention = require "moth.nn.layer.attention"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local lib = require "moth.binding.lib"
local linear = require "moth.nn.layer.linear"
local norm = require "moth.nn.layer.norm"

local transformer = {}

local C, ctx, sight = lib.C, lib.ctx, Module.sight

--- Self-attention, then two linear layers, each with a residual connection and a LayerNorm: src
-- (L, N, d_model), (N, L, d_model) with batch_first, or without N -> the same shape. The masks
-- are those of nn.MultiheadAttention: true excludes a position.
local EncoderLayer = class("TransformerEncoderLayer", Module)
transformer.TransformerEncoderLayer = EncoderLayer

local LAYER = {
  {"int", "d_model", "features of a position"},
  {"int", "nhead", "number of attention heads"},
  {"int", "dim_feedforward", "features between the two linear layers", default = 2048},
  {"float", "dropout", "dropout probability in training", default = 0.1},
  {"any", "activation", "between the linear layers: \"relu\", \"gelu\" or a function",
    default = "relu"},
  {"float", "layer_norm_eps", "eps of the LayerNorms", default = 1e-5},
  {"bool", "batch_first", "is the batch the first dimension?", default = false},
  {"bool", "norm_first", "normalize before each part, not after it?", default = false},
  {"bool", "bias", "do the linear layers and the LayerNorms have a bias?", default = true},
  {"device", "device", "the parameters' device", optional = true},
  {"dtype", "dtype", "their element type; default: the default dtype", optional = true},
}

EncoderLayer.signature = define.signature("TransformerEncoderLayer", LAYER)

local ACTIVATIONS = {
  relu = function(x) return (functional.relu(x)) end,
  gelu = function(x) return (functional.gelu(x)) end,
}

local function activation_of(v, fname)
  if type(v) == "string" then
    local found = ACTIVATIONS[v]
    if not found then
      errors.argument(fname, "activation",
        ("\"relu\", \"gelu\" or a function is needed, got '%s'"):format(v), "E_ARG")
    end
    return found
  end
  if calls.is_callable(v) then return v end
  errors.refuse(fname, "activation", "\"relu\", \"gelu\" or a function is needed", v, "E_TYPE")
end

local function is_own_activation(self)
  return self.activation == ACTIVATIONS.relu or self.activation == ACTIVATIONS.gelu
end

local ENCODER_PARTS = {"self_attn", "linear1", "linear2", "dropout", "dropout1", "dropout2",
                       "norm1", "norm2"}
local DECODER_PARTS = {"multihead_attn", "dropout3", "norm3", unpack(ENCODER_PARTS)}

-- Builds the common parts of encoder and decoder layers; attentions and norms are lists of field
-- names.
local function build(self, fname, attentions, norms, d_model, nhead, dim_feedforward, dropout,
                     activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype)
  local none = require("moth").none
  device, dtype = device or none, dtype or none
  self.norm_first = norm_first
  for _, name in ipairs(attentions) do
    self[name] = attention.MultiheadAttention{d_model, nhead, dropout = dropout, bias = bias,
      batch_first = batch_first, device = device, dtype = dtype}
  end
  self.linear1 = linear.Linear(d_model, dim_feedforward, bias, device, dtype)
  self.dropout = dropout_layer.Dropout(dropout)
  self.linear2 = linear.Linear(dim_feedforward, d_model, bias, device, dtype)
  for i = 1, norms do
    self["norm" .. i] = norm.LayerNorm(d_model, layer_norm_eps, true, bias, device, dtype)
  end
  for i = 1, norms do self["dropout" .. i] = dropout_layer.Dropout(dropout) end
  self.activation = activation_of(activation, fname)
end

function EncoderLayer:init(...)
  build(self, "TransformerEncoderLayer", {"self_attn"}, 2, ...)
end

local parse_layer = define.signature("TransformerEncoderLayer.forward", {
  {"tensor", "src", "(L, N, d_model)"},
  {"tensor", "src_mask", "(L, L) or (N * nhead, L, L)", optional = true},
  {"tensor", "src_key_padding_mask", "(N, L)", optional = true},
  {"bool", "is_causal", "a hint that src_mask is causal; no effect", default = false},
})

local function attend(self, x, mask, padding)
  local y = self.self_attn(x, x, x, {attn_mask = mask, key_padding_mask = padding,
    need_weights = false})
  return self.dropout1(y)
end

local function feed_forward(self, x, dropout)
  local first, y = self.linear1
  if self.activation == ACTIVATIONS.relu and linear.takes_relu(first) then
    y = linear.with_relu(first, x)
  else
    y = self.activation(first(x))
  end
  return dropout(self.linear2(self.dropout(y)))
end

function EncoderLayer:forward(...)
  local x, mask, padding = parse_layer(...)
  if self.norm_first then
    x = x + attend(self, self.norm1(x), mask, padding)
    return x + feed_forward(self, self.norm2(x), self.dropout2)
  end
  x = self.norm1(x + attend(self, x, mask, padding))
  return (self.norm2(x + feed_forward(self, x, self.dropout2)))
end

EncoderLayer.forward = sight.scoped(EncoderLayer.forward, ENCODER_PARTS, is_own_activation)
named.takes(EncoderLayer.forward, parse_layer)

-- Copies a layer `num_layers` times, and adds an optional final norm.
local function repeated(self, fname, aname, layer, num_layers, final)
  for _, row in ipairs {{aname, layer}, final ~= nil and {"norm", final} or nil} do
    local name, module = unpack(row)
    if not class.isinstance(module, Module) then
      errors.refuse(fname, name, "a module is needed", module, "E_TYPE")
    end
  end
  local list = {}
  for i = 1, num_layers do list[i] = layer:deepcopy() end
  self.layers = container.ModuleList(list)
  self.num_layers = num_layers
  if final ~= nil then self.norm = final end
end

-- Runs the layers and the final norm. The input of a layer is freed after the call if it is the
-- result of one of Moth's layers and nothing else holds it.
local function run_layers(self, x, run)
  local ours = false
  local function replace(module, y)
    if not rawequal(y, x) then
      if ours and sight.passes(module) then C.moth_free(ctx, x) end
      x, ours = y, sight.passes(module)
    end
  end
  for _, layer in ipairs(self.layers) do replace(layer, run(layer, x)) end
  if self.norm ~= nil then replace(self.norm, self.norm(x)) end
  return x
end

--- Several copies of a layer in sequence, and an optional final norm. Any module that accepts (src,
-- {src_mask, src_key_padding_mask}) may be the layer.
local Encoder = class("TransformerEncoder", Module)
transformer.TransformerEncoder = Encoder

Encoder.signature = define.signature("TransformerEncoder", {
  {"object", "encoder_layer", "a TransformerEncoderLayer, or a module like it"},
  {"int", "num_layers", "the number of copies", bounds = {1, 2 ^ 20}},
  {"any", "norm", "a module applied to the result", optional = true},
  {"bool", "enable_nested_tensor", "no effect: padding is always computed", default = true},
  {"bool", "mask_check", "no effect", default = true},
})

function Encoder:init(encoder_layer, num_layers, final)
  repeated(self, "TransformerEncoder", "encoder_layer", encoder_layer, num_layers, final)
end

local parse_encoder = define.signature("TransformerEncoder.forward", {
  {"tensor", "src", "(L, N, d_model)"},
  {"tensor", "mask", "(L, L) or (N * nhead, L, L)", optional = true},
  {"tensor", "src_key_padding_mask", "(N, L)", optional = true},
  {"bool", "is_causal", "a hint that mask is causal; no effect", default = false},
})

function Encoder:forward(...)
  local x, mask, padding = parse_encoder(...)
  local options = {src_mask = mask, src_key_padding_mask = padding}
  return (run_layers(self, x, function(layer, y)
    if next(options) == nil then return (layer(y)) end
    return (layer(y, options))
  end))
end

named.takes(Encoder.forward, parse_encoder)

-- ---- the decoder ----

--- Self-attention and attention to `memory`, an encoder's output, then two linear layers, each
-- with a residual connection and a LayerNorm: tgt (T, N, d_model), memory (S, N, d_model), with
-- batch_first (N, T, d_model) and (N, S, d_model) -> tgt's shape.
local DecoderLayer = class("TransformerDecoderLayer", Module)
transformer.TransformerDecoderLayer = DecoderLayer

DecoderLayer.signature = define.signature("TransformerDecoderLayer", LAYER)

function DecoderLayer:init(...)
  build(self, "TransformerDecoderLayer", {"self_attn", "multihead_attn"}, 3, ...)
end

local DECODER = {
  {"tensor", "tgt", "(T, N, d_model)"},
  {"tensor", "memory", "(S, N, d_model)"},
  {"tensor", "tgt_mask", "(T, T) or (N * nhead, T, T)", optional = true},
  {"tensor", "memory_mask", "(T, S) or (N * nhead, T, S)", optional = true},
  {"tensor", "tgt_key_padding_mask", "(N, T)", optional = true},
  {"tensor", "memory_key_padding_mask", "(N, S)", optional = true},
  {"bool", "tgt_is_causal", "a hint that tgt_mask is causal; no effect",
   default = false},
  {"bool", "memory_is_causal", "a hint that memory_mask is causal; no effect", default = false},
}

local parse_decoder_layer = define.signature("TransformerDecoderLayer.forward", DECODER)

local function attend_memory(self, x, memory, mask, padding)
  local y = self.multihead_attn(x, memory, memory, {attn_mask = mask, key_padding_mask = padding,
    need_weights = false})
  return self.dropout2(y)
end

function DecoderLayer:forward(...)
  local x, memory, mask, memory_mask, padding, memory_padding = parse_decoder_layer(...)
  if self.norm_first then
    x = x + attend(self, self.norm1(x), mask, padding)
    x = x + attend_memory(self, self.norm2(x), memory, memory_mask, memory_padding)
    return x + feed_forward(self, self.norm3(x), self.dropout3)
  end
  x = self.norm1(x + attend(self, x, mask, padding))
  x = self.norm2(x + attend_memory(self, x, memory, memory_mask, memory_padding))
  return (self.norm3(x + feed_forward(self, x, self.dropout3)))
end

DecoderLayer.forward = sight.scoped(DecoderLayer.forward, DECODER_PARTS, is_own_activation)
named.takes(DecoderLayer.forward, parse_decoder_layer)

--- Several copies of a layer in sequence, and an optional final norm.
local Decoder = class("TransformerDecoder", Module)
transformer.TransformerDecoder = Decoder

Decoder.signature = define.signature("TransformerDecoder", {
  {"object", "decoder_layer", "a TransformerDecoderLayer, or a module like it"},
  {"int", "num_layers", "the number of copies", bounds = {1, 2 ^ 20}},
  {"any", "norm", "a module applied to the result", optional = true},
})

function Decoder:init(decoder_layer, num_layers, final)
  repeated(self, "TransformerDecoder", "decoder_layer", decoder_layer, num_layers, final)
end

local parse_decoder = define.signature("TransformerDecoder.forward", DECODER)

function Decoder:forward(...)
  local x, memory, mask, memory_mask, padding, memory_padding = parse_decoder(...)
  local options = {tgt_mask = mask, memory_mask = memory_mask, tgt_key_padding_mask = padding,
    memory_key_padding_mask = memory_padding}
  return (run_layers(self, x, function(layer, y)
    if next(options) == nil then return (layer(y, memory)) end
    return (layer(y, memory, options))
  end))
end

named.takes(Decoder.forward, parse_decoder)

-- ---- encoder and decoder ----

--- An encoder and a decoder, each with a final LayerNorm: src (S, N, d_model) and tgt (T, N,
-- d_model), with batch_first (N, S, d_model) and (N, T, d_model) -> tgt's shape.
local Transformer = class("Transformer", Module)
transformer.Transformer = Transformer

Transformer.signature = define.signature("Transformer", {
  {"int", "d_model", "features of a position", default = 512},
  {"int", "nhead", "number of attention heads", default = 8},
  {"int", "num_encoder_layers", "layers of the encoder", default = 6, bounds = {1, 2 ^ 20}},
  {"int", "num_decoder_layers", "layers of the decoder", default = 6, bounds = {1, 2 ^ 20}},
  LAYER[3], LAYER[4], LAYER[5],
  {"any", "custom_encoder", "a module that replaces the encoder", optional = true},
  {"any", "custom_decoder", "a module that replaces the decoder", optional = true},
  LAYER[6], LAYER[7], LAYER[8], LAYER[9], LAYER[10], LAYER[11],
})

function Transformer:init(d_model, nhead, encoders, decoders, dim_feedforward, dropout, activation,
                          encoder, decoder, layer_norm_eps, batch_first, norm_first, bias, device,
                          dtype)
  local none = require("moth").none
  device, dtype = device or none, dtype or none
  local options = {d_model = d_model, nhead = nhead, dim_feedforward = dim_feedforward,
    dropout = dropout, activation = activation, layer_norm_eps = layer_norm_eps,
    batch_first = batch_first, norm_first = norm_first, bias = bias, device = device,
    dtype = dtype}
  local function final()
    return (norm.LayerNorm(d_model, layer_norm_eps, true, bias, device, dtype))
  end
  self.encoder = encoder or Encoder(EncoderLayer(options), encoders, final())
  self.decoder = decoder or Decoder(DecoderLayer(options), decoders, final())
  self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
  local init = require "moth.nn.initialization"
  for _, p in ipairs(self:parameters()) do
    if p:dim() > 1 then init.xavier_uniform_(p) end
  end
end

local parse_transformer = define.signature("Transformer", {
  {"tensor", "src", "(S, N, d_model)"},
  {"tensor", "tgt", "(T, N, d_model)"},
  {"tensor", "src_mask", "(S, S) or (N * nhead, S, S)", optional = true},
  {"tensor", "tgt_mask", "(T, T) or (N * nhead, T, T)", optional = true},
  {"tensor", "memory_mask", "(T, S) or (N * nhead, T, S)", optional = true},
  {"tensor", "src_key_padding_mask", "(N, S)", optional = true},
  {"tensor", "tgt_key_padding_mask", "(N, T)", optional = true},
  {"tensor", "memory_key_padding_mask", "(N, S)", optional = true},
  {"bool", "src_is_causal", "a hint that src_mask is causal; no effect",
   default = false},
  {"bool", "tgt_is_causal", "a hint that tgt_mask is causal; no effect", default = false},
  {"bool", "memory_is_causal", "a hint that memory_mask is causal; no effect", default = false},
})

function Transformer:forward(...)
  local src, tgt, src_mask, tgt_mask, memory_mask, src_padding, tgt_padding, memory_padding =
    parse_transformer(...)
  for _, row in ipairs {{"src", src}, {"tgt", tgt}} do
    local name, x = unpack(row)
    if x:dim() < 2 or x:dim() > 3 or x:size(-1) ~= self.d_model or x:dim() ~= src:dim() then
      errors.argument("Transformer", name, ("%d features at each position are needed, and "
        .. "the same number of dimensions in src and tgt, got %s"):format(self.d_model,
        errors.describe(x)),
        "E_SHAPE")
    end
  end
  local memory = self.encoder(src, {mask = src_mask, src_key_padding_mask = src_padding,
    is_causal = false})
  return (self.decoder(tgt, memory, {tgt_mask = tgt_mask, memory_mask = memory_mask,
    tgt_key_padding_mask = tgt_padding, memory_key_padding_mask = memory_padding,
    tgt_is_causal = false}))
end

named.takes(Transformer.forward, parse_transformer)

local causal_mask = define {
  name = "generate_square_subsequent_mask",
  doc = "The mask of a causal attention: -inf above the diagonal, 0 elsewhere.",
  examples = "3",
  args = {
    {"int", "size", "positions"},
    {"device", "device", "the mask's device", optional = true},
    {"dtype", "dtype", "element type; default: the default dtype", optional = true},
  },
  run = function(size, device, dtype)
    return (functional.full({size, size}, -math.huge, {device = device,
      dtype = dtype or require("moth").get_default_dtype()}):triu(1))
  end,
}

--- The causal mask for `size` positions: -inf above the diagonal, 0 elsewhere.
-- `nn.Transformer.generate_square_subsequent_mask(size)` is (size, size) and has the default dtype.
-- It is also a method.
Transformer.generate_square_subsequent_mask = setmetatable({}, {
  __call = function(_, first, ...)
    if class.isinstance(first, Transformer) then return (causal_mask(...)) end
    return (causal_mask(first, ...))
  end,
})
bind.register(Transformer.generate_square_subsequent_mask, bind.signature(causal_mask))

return transformer
