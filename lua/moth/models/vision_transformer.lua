--- vision_transformer.lua -- ViT (Dosovitskiy et al., 2020), with torchvision's parameter names.

local builder = require "moth.models.builder"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local init = require "moth.nn.initialization"
local initial = require "moth.models.initial"
local lib = require "moth.binding.lib"
local nn = require "moth.nn"
local ops = require("moth.binding.bind").ops
local MLP = require("moth.ops").MLP

local Module, sight, none = nn.Module, nn.Module.sight, lib.none
local vit = {}

local function layer_norm(size) return (nn.LayerNorm(size, 1e-6)) end

local NORM = {"any", "norm_layer", "makes a normalization of some features; default: "
  .. "nn.LayerNorm with eps 1e-6", optional = true}
local DROPOUT = {"float", "dropout", "probability of a zero", default = 0, bounds = {0, 1}}
local ATTENTION_DROPOUT = {"float", "attention_dropout", "probability of a zero in the attention's "
  .. "weights", default = 0, bounds = {0, 1}}

-- ---- blocks ----

--- Two Linear layers with a GELU between them: (..., in_dim) -> (..., in_dim).
local MLPBlock = class("MLPBlock", MLP)
vit.MLPBlock = MLPBlock

MLPBlock.signature = define.signature("MLPBlock", {
  {"int", "in_dim", "features of the input and of the result", bounds = {1}},
  {"int", "mlp_dim", "features between the layers", bounds = {1}}, DROPOUT,
})

function MLPBlock:init(in_dim, mlp_dim, dropout)
  MLP.init(self, in_dim, {mlp_dim, in_dim}, none, nn.GELU, none, true, dropout)
  initial.fill(self, {Linear = function(module)
    init.xavier_uniform_(module.weight)
    init.normal_(module.bias, 0, 1e-6)
  end})
end

--- Self-attention and an MLPBlock, each after a normalization and with a shortcut: (N, L,
-- hidden_dim) -> the same shape.
local EncoderBlock = class("EncoderBlock", Module)
vit.EncoderBlock = EncoderBlock

EncoderBlock.signature = define.signature("EncoderBlock", {
  {"int", "num_heads", "number of attention heads", bounds = {1}},
  {"int", "hidden_dim", "features of a position", bounds = {1}},
  {"int", "mlp_dim", "features inside the MLPBlock", bounds = {1}},
  DROPOUT, ATTENTION_DROPOUT, NORM,
})

function EncoderBlock:init(num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm)
  norm = norm or layer_norm
  self.ln_1 = norm(hidden_dim)
  self.self_attention = nn.MultiheadAttention {hidden_dim, num_heads,
    dropout = attention_dropout, batch_first = true}
  self.dropout = nn.Dropout(dropout)
  self.ln_2 = norm(hidden_dim)
  self.mlp = MLPBlock(hidden_dim, mlp_dim, dropout)
end

function EncoderBlock:forward(input)
  local x = self.ln_1(input)
  x = self.dropout((self.self_attention(x, x, x, {need_weights = false}))) + input
  return x + self.mlp(self.ln_2(x))
end

EncoderBlock.forward = sight.scoped(EncoderBlock.forward,
  {"ln_1", "self_attention", "dropout", "ln_2", "mlp"})

-- The positions' vectors, the blocks and the last normalization.
local Encoder = class("Encoder", Module)

function Encoder:init(length, o)
  self.pos_embedding = nn.Parameter(require("moth").empty(1, length, o.hidden_dim))
  self.dropout = nn.Dropout(o.dropout)
  local layers = {}
  for i = 1, o.num_layers do
    layers[i] = {"encoder_layer_" .. i - 1, EncoderBlock(o.num_heads, o.hidden_dim, o.mlp_dim,
      o.dropout, o.attention_dropout, o.norm)}
  end
  self.layers = nn.Sequential(unpack(layers))
  self.ln = o.norm(o.hidden_dim)
  init.normal_(self.pos_embedding, 0, 0.02)
end

function Encoder:forward(input)
  return (self.ln(self.layers(self.dropout(input + self.pos_embedding))))
end

Encoder.forward = sight.scoped(Encoder.forward, {"dropout", "layers", "ln"})

-- ---- the network ----

--- Images (N, 3, image_size, image_size) -> scores (N, num_classes).
local VisionTransformer = class("VisionTransformer", Module)
vit.VisionTransformer = VisionTransformer

VisionTransformer.signature = define.signature("VisionTransformer", {
  {"int", "image_size", "height and width of the images", bounds = {1}},
  {"int", "patch_size", "height and width of a patch, which becomes one position", bounds = {1}},
  {"int", "num_layers", "number of blocks", bounds = {1}},
  {"int", "num_heads", "number of attention heads", bounds = {1}},
  {"int", "hidden_dim", "features of a position", bounds = {1}},
  {"int", "mlp_dim", "features inside a block", bounds = {1}},
  DROPOUT, ATTENTION_DROPOUT,
  {"int", "num_classes", "size of the result", default = 1000, bounds = {1}},
  {"int", "representation_size", "features of a layer before the last; default: no such layer",
   optional = true, bounds = {1}},
  NORM,
})

local function fill_by_fan(module, fan_in)
  init.trunc_normal_(module.weight, 0, math.sqrt(1 / fan_in))
  init.zeros_(module.bias)
end

local function heads_of(hidden_dim, representation_size, num_classes)
  if not representation_size then
    return (nn.Sequential({"head", nn.Linear(hidden_dim, num_classes)}))
  end
  local before = nn.Linear(hidden_dim, representation_size)
  fill_by_fan(before, hidden_dim)
  return (nn.Sequential({"pre_logits", before}, {"act", nn.Tanh()},
    {"head", nn.Linear(representation_size, num_classes)}))
end

function VisionTransformer:init(image_size, patch_size, num_layers, num_heads, hidden_dim, mlp_dim,
                                dropout, attention_dropout, num_classes, representation_size, norm)
  if image_size % patch_size ~= 0 then
    errors.argument("VisionTransformer", "image_size", ("a multiple of patch_size, %d, is needed, "
      .. "got %d"):format(patch_size, image_size), "E_SHAPE")
  end
  self.image_size, self.patch_size, self.hidden_dim = image_size, patch_size, hidden_dim
  self.conv_proj = nn.Conv2d {3, hidden_dim, kernel_size = patch_size, stride = patch_size}
  self.class_token = nn.Parameter(require("moth").zeros(1, 1, hidden_dim))
  self.encoder = Encoder((image_size / patch_size) ^ 2 + 1, {num_layers = num_layers,
    num_heads = num_heads, hidden_dim = hidden_dim, mlp_dim = mlp_dim, dropout = dropout,
    attention_dropout = attention_dropout, norm = norm or layer_norm})
  self.heads = heads_of(hidden_dim, representation_size, num_classes)
  fill_by_fan(self.conv_proj, 3 * patch_size * patch_size)
  init.zeros_(self.heads.head.weight)
  init.zeros_(self.heads.head.bias)
end

function VisionTransformer:forward(x)
  if x:dim() ~= 4 or x:size(3) ~= self.image_size or x:size(4) ~= self.image_size then
    errors.argument("VisionTransformer", "input", ("(N, 3, %d, %d) is needed, got %s"):format(
      self.image_size, self.image_size, errors.describe(x)), "E_SHAPE")
  end
  x = ops.transpose(ops.flatten(self.conv_proj(x), 3), 2, 3)
  x = ops.cat({self.class_token:expand(x:size(1), -1, -1), x}, 2)
  return (self.heads(self.encoder(x):select(2, 1)))
end

VisionTransformer.forward = sight.scoped(VisionTransformer.forward,
  {"conv_proj", "encoder", "heads"})

-- ---- builders ----

-- patch_size, num_layers, num_heads, hidden_dim, mlp_dim
local SIZES = {
  vit_b_16 = {16, 12, 12, 768, 3072}, vit_b_32 = {32, 12, 12, 768, 3072},
  vit_l_16 = {16, 24, 16, 1024, 4096}, vit_l_32 = {32, 24, 16, 1024, 4096},
  vit_h_14 = {14, 32, 16, 1280, 5120},
}

-- Files of old versions of torchvision call the layers of an MLPBlock linear_1 and linear_2.
local function rename(name)
  return (name:gsub("%.mlp%.linear_1%.", ".mlp.0."):gsub("%.mlp%.linear_2%.", ".mlp.3."))
end

for name, size in pairs(SIZES) do
  local classes = builder.classes "heads.head"
  vit[name] = builder.define {
    name = "models." .. name, head = "heads.head", rename = rename,
    sizes = function(dict, o)
      classes(dict, o)
      local places = dict["encoder.pos_embedding"]
      if o.image_size == nil and lib.istensor(places) and places:dim() == 3 then
        o.image_size = math.floor(math.sqrt(places:size(2) - 1) + 0.5) * size[1]
      end
    end,
    doc = ("ViT-%s/%s (Dosovitskiy et al., 2020): images (N, 3, image_size, image_size) -> scores "
      .. "(N, num_classes)."):format(name:match("_(%a)_"):upper(), name:match "%d+"),
    args = {
      builder.NUM_CLASSES,
      {"int", "image_size", "height and width of the images; default: 224, or that of the weights",
       optional = true, first = 224, bounds = {1}},
      DROPOUT, ATTENTION_DROPOUT,
      {"int", "representation_size", "features of a layer before the last; default: no such layer",
       optional = true, bounds = {1}},
      NORM,
    },
    examples = "{num_classes = 10}",
    make = function(o)
      return (VisionTransformer(o.image_size or 224, size[1], size[2], size[3], size[4], size[5],
        {dropout = o.dropout, attention_dropout = o.attention_dropout, num_classes = o.num_classes,
         representation_size = o.representation_size, norm_layer = o.norm_layer}))
    end,
  }
end

return (builder.guarded(vit))
