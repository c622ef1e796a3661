--- bert.lua -- BERT's encoder (Devlin et al., 2018), with the parameter names of transformers'
-- BertModel. Token ids and token types count from 1: the tokenizer's id k is k + 1 here.

local builder = require "moth.models.builder"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local init = require "moth.nn.initialization"
local initial = require "moth.models.initial"
local lib = require "moth.binding.lib"
local named = require "moth.nn.module.named"
local nn = require "moth.nn"

local F, Module = nn.functional, nn.Module
local scoped = Module.sight.scoped
local bert = {}

local function moth() return require "moth" end

local CONFIG = {
  {"int", "vocab_size", "number of tokens; default: 30522, or that of the weights",
   optional = true, first = 30522, bounds = {1}},
  {"int", "hidden_size", "features of a token", default = 768, bounds = {1}},
  {"int", "num_hidden_layers", "number of layers", default = 12, bounds = {1}},
  {"int", "num_attention_heads", "number of attention heads", default = 12, bounds = {1}},
  {"int", "intermediate_size", "features inside a layer; default: 4 * hidden_size",
   optional = true, bounds = {1}},
  {"float", "hidden_dropout_prob", "probability of a zero in the result of each layer",
   default = 0.1, bounds = {0, 1}},
  {"float", "attention_probs_dropout_prob", "probability of a zero in the attention's weights",
   default = 0.1, bounds = {0, 1}},
  {"int", "max_position_embeddings", "the largest number of tokens; default: 512, or that of the "
    .. "weights", optional = true, first = 512, bounds = {1}},
  {"int", "type_vocab_size", "number of token types", default = 2, bounds = {1}},
  {"float", "layer_norm_eps", "added to the variance", default = 1e-12, bounds = {0}},
  {"bool", "add_pooling_layer", "does it have the pooler?", default = true},
}

local function config_of(...)
  local config = {}
  for i, arg in ipairs(CONFIG) do config[arg[2]] = (select(i, ...)) end
  config.vocab_size = config.vocab_size or 30522
  config.max_position_embeddings = config.max_position_embeddings or 512
  config.intermediate_size = config.intermediate_size or 4 * config.hidden_size
  return config
end

-- ---- layers ----

local Embeddings = class("BertEmbeddings", Module)

function Embeddings:init(c)
  self.word_embeddings = nn.Embedding {c.vocab_size, c.hidden_size, padding_idx = 1}
  self.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size)
  self.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.hidden_size)
  self.LayerNorm = nn.LayerNorm(c.hidden_size, c.layer_norm_eps)
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
end

function Embeddings:forward(ids, types, places)
  local length, most = ids:size(2), self.position_embeddings.num_embeddings
  if length > most then
    errors.argument("BertModel", "input_ids", ("at most %d positions are possible, got %d"):format(
      most, length), "E_SHAPE")
  end
  places = places or moth().range {1, length, device = ids.device}
  types = types or moth().ones_like(ids)
  local x = self.word_embeddings(ids) + self.token_type_embeddings(types)
  return (self.dropout(self.LayerNorm(x + self.position_embeddings(places))))
end

local SelfAttention = class("BertSelfAttention", Module)

function SelfAttention:init(c)
  local size, heads = c.hidden_size, c.num_attention_heads
  if size % heads ~= 0 then
    errors.argument("BertModel", "num_attention_heads", ("%d features cannot be divided into %d "
      .. "heads"):format(size, heads), "E_SHAPE")
  end
  self.heads, self.head_dim = heads, size / heads
  self.probability = c.attention_probs_dropout_prob
  self.query = nn.Linear(size, size)
  self.key = nn.Linear(size, size)
  self.value = nn.Linear(size, size)
end

function SelfAttention:forward(x, mask)
  local n, length = x:size(1), x:size(2)
  local function split(y) return y:view(n, length, self.heads, self.head_dim):transpose(2, 3) end
  local y = F.scaled_dot_product_attention {split(self.query(x)), split(self.key(x)),
    split(self.value(x)), attn_mask = mask, dropout_p = self.training and self.probability or 0}
  return y:transpose(2, 3):reshape(n, length, -1)
end

SelfAttention.forward = scoped(SelfAttention.forward, {"query", "key", "value"})

-- A Linear, and the normalization of its sum with the input of the block.
local Output = class("BertOutput", Module)

function Output:init(c, features)
  self.dense = nn.Linear(features, c.hidden_size)
  self.LayerNorm = nn.LayerNorm(c.hidden_size, c.layer_norm_eps)
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
end

function Output:forward(x, input)
  return (self.LayerNorm(self.dropout(self.dense(x)) + input))
end

Output.forward = scoped(Output.forward, {"dense", "dropout", "LayerNorm"})

local Attention = class("BertAttention", Module)

function Attention:init(c)
  self.self = SelfAttention(c)
  self.output = Output(c, c.hidden_size)
end

function Attention:forward(x, mask) return (self.output(self.self(x, mask), x)) end

Attention.forward = scoped(Attention.forward, {"self", "output"})

local Intermediate = class("BertIntermediate", Module)

function Intermediate:init(c) self.dense = nn.Linear(c.hidden_size, c.intermediate_size) end

function Intermediate:forward(x) return (F.gelu(self.dense(x))) end

Intermediate.forward = scoped(Intermediate.forward, {"dense"})

--- Self-attention and two Linear layers, each with a shortcut and a LayerNorm: (N, L, hidden_size)
-- -> the same shape.
local BertLayer = class("BertLayer", Module)
bert.BertLayer = BertLayer

BertLayer.signature = define.signature("BertLayer", CONFIG)

function BertLayer:init(...)
  local config = config_of(...)
  self.attention = Attention(config)
  self.intermediate = Intermediate(config)
  self.output = Output(config, config.intermediate_size)
end

function BertLayer:forward(x, mask)
  x = self.attention(x, mask)
  return (self.output(self.intermediate(x), x))
end

BertLayer.forward = scoped(BertLayer.forward, {"attention", "intermediate", "output"})

local Encoder = class("BertEncoder", Module)

function Encoder:init(config)
  self.layer = nn.ModuleList()
  for _ = 1, config.num_hidden_layers do self.layer:append(BertLayer(config)) end
end

function Encoder:forward(x, mask)
  for _, layer in ipairs(self.layer) do x = layer(x, mask) end
  return x
end

local Pooler = class("BertPooler", Module)

function Pooler:init(config)
  self.dense = nn.Linear(config.hidden_size, config.hidden_size)
end

function Pooler:forward(x) return (self.dense(x:select(2, 1)):tanh()) end

-- ---- the model ----

--- Token ids (N, L), from 1 -> the features of each position (N, L, hidden_size), and those of the
-- first after a layer and tanh (N, hidden_size), or nil without the pooler.
local BertModel = class("BertModel", Module)
bert.BertModel = BertModel

BertModel.signature = define.signature("BertModel", CONFIG)

local function build(self, config)
  self.embeddings = Embeddings(config)
  self.encoder = Encoder(config)
  if config.add_pooling_layer then self.pooler = Pooler(config) end
end

local function fill_embedding(module)
  init.normal_(module.weight, 0, 0.02)
  if module.padding_idx then
    moth().no_grad(function() module.weight:select(1, module.padding_idx):zero_() end)
  end
end

function BertModel:init(...)
  self.config = config_of(...)
  initial.skip(build, self, self.config)
  initial.fill(self, {Linear = initial.linear(0.02), Embedding = fill_embedding})
end

local parse = define.signature("BertModel.forward", {
  {"index", "input_ids", "token ids from 1, (N, L)"},
  {"tensor", "attention_mask", "(N, L): 1 or true for tokens, 0 or false for padding",
   optional = true},
  {"index", "token_type_ids", "token types from 1, (N, L); default: 1", optional = true},
  {"index", "position_ids", "positions from 1, (N, L) or (L); default: 1 to L", optional = true},
})

-- Raises unless x has an element for each of the ids; `shared`: or for each of a sequence.
local function check_sizes(name, x, ids, shared)
  if x == nil then return end
  local n, rows, length = x:dim(), ids:size(1), ids:size(2)
  if n == 2 and x:size(2) == length and (x:size(1) == rows or shared and x:size(1) == 1)
     or shared and n == 1 and x:size(1) == length then
    return
  end
  errors.refuse("BertModel", name, ("(%d, %d) is needed"):format(rows, length), x, "E_SHAPE")
end

function BertModel:forward(...)
  local ids, mask, types, places = parse(...)
  if ids:dim() ~= 2 then
    errors.refuse("BertModel", "input_ids", "(N, L) is needed", ids, "E_SHAPE")
  end
  check_sizes("attention_mask", mask, ids)
  check_sizes("token_type_ids", types, ids, true)
  check_sizes("position_ids", places, ids, true)
  if mask ~= nil then mask = mask:to(moth().bool):view(ids:size(1), 1, 1, ids:size(2)) end
  local x = self.encoder(self.embeddings(ids, types, places), mask)
  if self.pooler == nil then return x end
  return x, self.pooler(x)
end

named.takes(BertModel.forward, parse, "last_hidden_state, pooler_output")

-- ---- builders ----

-- hidden_size, num_hidden_layers, num_attention_heads
local SIZES = {bert_base = {768, 12, 12}, bert_large = {1024, 24, 16}}

-- Files of a model with a head have the prefix `bert.`; the parameters of the head are left out. In
-- old files the parameters of LayerNorm are gamma and beta, and position_ids is a tensor.
local function rename(name, dict)
  if dict["bert.embeddings.word_embeddings.weight"] ~= nil then
    name = name:match "^bert%.(.*)$"
    if not name then return nil end
  end
  if name == "embeddings.position_ids" then return nil end
  return (name:gsub("LayerNorm%.gamma$", "LayerNorm.weight"):gsub("LayerNorm%.beta$",
    "LayerNorm.bias"))
end

local function sizes(dict, o)
  for option, name in pairs {vocab_size = "word", max_position_embeddings = "position"} do
    local table_of = dict["embeddings." .. name .. "_embeddings.weight"]
    if lib.istensor(table_of) and table_of:dim() == 2 then
      o[option] = o[option] or table_of:size(1)
    end
  end
  if not dict["pooler.dense.weight"] then o.add_pooling_layer = false end
end

for name, size in pairs(SIZES) do
  local args = {}
  for i, arg in ipairs(CONFIG) do args[i] = arg end
  for i = 1, 3 do
    local row = CONFIG[1 + i]
    args[1 + i] = {row[1], row[2], row[3], default = size[i], bounds = row.bounds}
  end
  bert[name] = builder.define {
    name = "models." .. name, rename = rename, sizes = sizes, args = args,
    doc = ("BERT's encoder, %s (Devlin et al., 2018): token ids (N, L), from 1 -> features (N, L, "
      .. "hidden_size) and the pooler's (N, hidden_size)."):format(name:match "_(%a+)"),
    examples = "{vocab_size = 1000}",
    make = function(o) return (BertModel(o)) end,
  }
end

return (builder.guarded(bert))
