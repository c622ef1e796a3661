--- gpt2.lua -- GPT-2 (Radford et al., 2019), with the parameter names of transformers'
-- GPT2LMHeadModel. Token ids count from 1: the tokenizer's id k is k + 1 here.

local builder = require "moth.models.builder"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local init = require "moth.nn.initialization"
local lib = require "moth.binding.lib"
local named = require "moth.nn.module.named"
local nn = require "moth.nn"
local ops = require("moth.binding.bind").ops

local F, Module = nn.functional, nn.Module
local gpt2 = {}

local FORWARD = {
  {"index", "input_ids", "token ids from 1, (N, L)"},
  {"map", "cache", "keys and values of earlier positions, of net:new_cache; ids are added to it",
   optional = true},
}

local function moth() return require "moth" end

-- ---- layers ----

--- A Linear whose weight is stored as (in, out): (..., nx) -> (..., nf).
local Conv1D = class("Conv1D", Module)
gpt2.Conv1D = Conv1D

Conv1D.signature = define.signature("Conv1D", {
  {"int", "nf", "features of the result", bounds = {1}},
  {"int", "nx", "features of the input", bounds = {1}},
})

function Conv1D:init(nf, nx)
  self.nf, self.nx = nf, nx
  self.weight = nn.Parameter(moth().empty(nx, nf))
  self.bias = nn.Parameter(moth().zeros(nf))
  init.normal_(self.weight, 0, 0.02)
end

function Conv1D:forward(x) return (F.linear(x, self.weight:t(), self.bias)) end
Module.passing[Conv1D.forward] = true

function Conv1D:extra_repr() return ("nf=%d, nx=%d"):format(self.nf, self.nx) end

-- The sizes and probabilities that a model's parts share.
local CONFIG = {
  {"int", "vocab_size", "number of tokens; default: 50257, or that of the weights",
   optional = true, first = 50257, bounds = {1}},
  {"int", "n_positions", "the largest number of tokens; default: 1024, or that of the weights",
   optional = true, first = 1024, bounds = {1}},
  {"int", "n_embd", "features of a token", default = 768, bounds = {1}},
  {"int", "n_layer", "number of blocks", default = 12, bounds = {1}},
  {"int", "n_head", "number of attention heads", default = 12, bounds = {1}},
  {"int", "n_inner", "features inside a block; default: 4 * n_embd", optional = true,
   bounds = {1}},
  {"float", "resid_pdrop", "probability of a zero in the result of each layer", default = 0.1,
   bounds = {0, 1}},
  {"float", "embd_pdrop", "probability of a zero in the tokens' vectors", default = 0.1,
   bounds = {0, 1}},
  {"float", "attn_pdrop", "probability of a zero in the attention's weights", default = 0.1,
   bounds = {0, 1}},
  {"float", "layer_norm_epsilon", "added to the variance", default = 1e-5, bounds = {0}},
}

local function config_of(...)
  local config = {}
  for i, arg in ipairs(CONFIG) do config[arg[2]] = (select(i, ...)) end
  config.vocab_size, config.n_positions = config.vocab_size or 50257, config.n_positions or 1024
  config.n_inner = config.n_inner or 4 * config.n_embd
  return config
end

-- ---- attention with a cache ----

-- Returns the mask of `length` new positions after `start` earlier ones.
local function mask_after(start, length, device)
  local all = moth().ones(length, start + length, {dtype = moth().bool, device = device})
  return all:tril(start)
end

local Attention = class("GPT2Attention", Module)

function Attention:init(config)
  local size, heads = config.n_embd, config.n_head
  if size % heads ~= 0 then
    errors.argument("GPT2Model", "n_head", ("%d features cannot be divided into %d heads"):format(
      size, heads), "E_SHAPE")
  end
  self.num_heads, self.head_dim, self.attn_pdrop = heads, size / heads, config.attn_pdrop
  self.c_attn = Conv1D(3 * size, size)
  self.c_proj = Conv1D(size, size)
  self.resid_dropout = nn.Dropout(config.resid_pdrop)
  init.normal_(self.c_proj.weight, 0, 0.02 / math.sqrt(2 * config.n_layer))
end

-- Stores the keys and values of new positions; returns those of all positions.
local function remember(cache, layer, start, k, v)
  local stop = start + k:size(3)
  cache.keys[layer]:narrow(3, start + 1, k:size(3)):copy_(k)
  cache.values[layer]:narrow(3, start + 1, k:size(3)):copy_(v)
  return cache.keys[layer]:narrow(3, 1, stop), cache.values[layer]:narrow(3, 1, stop)
end

function Attention:forward(x, cache, layer)
  local n, length = x:size(1), x:size(2)
  local qkv = self.c_attn(x):view(n, length, 3, self.num_heads, self.head_dim)
  local q, k, v = unpack(qkv:permute(3, 1, 4, 2, 5):unbind(1)) -- each (n, heads, length, head_dim)
  local start, mask = cache and cache.length or 0, nil
  if cache then k, v = remember(cache, layer, start, k, v) end
  if start > 0 and length > 1 then mask = mask_after(start, length, x.device) end
  local y = F.scaled_dot_product_attention {q, k, v, attn_mask = mask,
    dropout_p = self.training and self.attn_pdrop or 0, is_causal = start == 0 and length > 1}
  return self.resid_dropout(self.c_proj(y:transpose(2, 3):reshape(n, length, -1)))
end

local GPT2MLP = class("GPT2MLP", Module)

function GPT2MLP:init(config)
  self.c_fc = Conv1D(config.n_inner, config.n_embd)
  self.c_proj = Conv1D(config.n_embd, config.n_inner)
  self.dropout = nn.Dropout(config.resid_pdrop)
  init.normal_(self.c_proj.weight, 0, 0.02 / math.sqrt(2 * config.n_layer))
end

function GPT2MLP:forward(x)
  return (self.dropout(self.c_proj(F.gelu(self.c_fc(x), "tanh"))))
end

--- Causal self-attention and two layers, each after a LayerNorm and with a shortcut: (N, L,
-- n_embd) -> the same shape.
local GPT2Block = class("GPT2Block", Module)
gpt2.GPT2Block = GPT2Block

GPT2Block.signature = define.signature("GPT2Block", CONFIG)

function GPT2Block:init(...)
  local config = config_of(...)
  self.ln_1 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
  self.attn = Attention(config)
  self.ln_2 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
  self.mlp = GPT2MLP(config)
end

function GPT2Block:forward(x, cache, layer)
  x = x + self.attn(self.ln_1(x), cache, layer)
  return x + self.mlp(self.ln_2(x))
end

for own, fields in pairs {
  [Attention] = {"c_attn", "c_proj", "resid_dropout"}, [GPT2MLP] = {"c_fc", "c_proj", "dropout"},
  [GPT2Block] = {"ln_1", "attn", "ln_2", "mlp"},
} do
  own.forward = Module.sight.scoped(own.forward, fields)
end

-- ---- the model ----

--- Token ids (N, L), from 1 -> the features of each position (N, L, n_embd).
local GPT2Model = class("GPT2Model", Module)
gpt2.GPT2Model = GPT2Model

GPT2Model.signature = define.signature("GPT2Model", CONFIG)

function GPT2Model:init(...)
  local config = config_of(...)
  self.config = config
  self.wte = nn.Embedding(config.vocab_size, config.n_embd)
  self.wpe = nn.Embedding(config.n_positions, config.n_embd)
  self.drop = nn.Dropout(config.embd_pdrop)
  self.h = nn.ModuleList()
  for _ = 1, config.n_layer do self.h:append(GPT2Block(config)) end
  self.ln_f = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
  init.normal_(self.wte.weight, 0, 0.02)
  init.normal_(self.wpe.weight, 0, 0.02)
end

function GPT2Model:forward(input_ids, cache)
  local start, length = cache and cache.length or 0, input_ids:size(-1)
  if start + length > self.config.n_positions then
    errors.argument("GPT2Model", "input_ids", ("at most %d positions are possible, got %d"):format(
      self.config.n_positions, start + length), "E_SHAPE")
  end
  local places = moth().range {start + 1, start + length, device = input_ids.device}
  local x = self.drop(self.wte(input_ids) + self.wpe(places))
  for i, block in ipairs(self.h) do x = block(x, cache, i) end
  if cache then cache.length = start + length end
  return (self.ln_f(x))
end

named.takes(GPT2Model.forward, FORWARD)

--- GPT2Model and a last layer whose weight is that of the tokens' vectors: token ids (N, L), from
-- 1 -> scores of the next token (N, L, vocab_size).
local GPT2LMHeadModel = class("GPT2LMHeadModel", Module)
gpt2.GPT2LMHeadModel = GPT2LMHeadModel

GPT2LMHeadModel.signature = define.signature("GPT2LMHeadModel", CONFIG)

function GPT2LMHeadModel:init(...)
  local config = config_of(...)
  self.config = config
  self.transformer = GPT2Model(config)
  self.lm_head = nn.Linear {config.n_embd, 1, bias = false}
  self.lm_head.out_features = config.vocab_size
  self:tie_weights()
end

--- Makes the weight of the last layer that of the tokens' vectors.
function GPT2LMHeadModel:tie_weights()
  self.lm_head.weight = self.transformer.wte.weight
end

function GPT2LMHeadModel:forward(input_ids, cache)
  return (self.lm_head(self.transformer(input_ids, cache)))
end

named.takes(GPT2LMHeadModel.forward, FORWARD)

--- Memory for the keys and values of earlier positions: net(ids, cache) then computes only the
-- positions in ids, and adds them to the cache. It has no gradient.
-- @param batch_size  sequences
-- @param max_length  the largest number of positions (default n_positions)
-- @return a table with the fields keys, values and length
function GPT2LMHeadModel:new_cache(batch_size, max_length)
  local config, weight = self.config, self.lm_head.weight
  local cache = {keys = {}, values = {}, length = 0}
  local size = {batch_size, config.n_head, max_length or config.n_positions,
    config.n_embd / config.n_head}
  for i = 1, config.n_layer do
    cache.keys[i] = moth().empty(size, weight.dtype, weight.device)
    cache.values[i] = moth().empty(size, weight.dtype, weight.device)
  end
  return cache
end

local parse_generate = define.signature("generate", {
  {"tensor", "input_ids", "token ids from 1, (N, L) or (L)"},
  {"int", "max_new_tokens", "tokens to add", default = 20, bounds = {0}},
  {"bool", "do_sample", "draw tokens? false: take the most probable", default = false},
  {"float", "temperature", "divides the scores before drawing", default = 1,
   bounds = {0, open = true}},
  {"int", "top_k", "draw from this number of tokens; default: from all", optional = true,
   bounds = {1}},
  {"int", "eos_token_id", "a sequence ends with this token; the others go on", optional = true,
   bounds = {1}},
  {"generator", "generator", "source of random numbers", optional = true},
})

-- Chooses a token for each row of scores (N, vocab_size). @return (N, 1)
local function choose(scores, do_sample, temperature, top_k, generator)
  if not do_sample then return (scores:argmax(2, true)) end
  scores = scores:float() / temperature
  if top_k and top_k < scores:size(2) then
    local best, ids = scores:topk(top_k, 2)
    local at = F.softmax(best, 2):multinomial {1, generator = generator}
    return (ids:gather(2, at))
  end
  return (F.softmax(scores, 2):multinomial {1, generator = generator})
end

--- Continues token ids: (N, L) -> (N, L + new tokens), in evaluation mode, without gradients. After
-- eos_token_id a sequence is filled with it; the call ends when all sequences have ended.
function GPT2LMHeadModel:generate(...)
  local ids, count, do_sample, temperature, top_k, eos, generator = parse_generate(...)
  local single = ids:dim() == 1
  if single then ids = ids:unsqueeze(1) end
  local total = ids:size(2) + count
  if total > self.config.n_positions then
    errors.argument("generate", "max_new_tokens", ("%d tokens and %d new ones are more than %d "
      .. "positions"):format(ids:size(2), count, self.config.n_positions), "E_SHAPE")
  end
  local modes = {}
  for _, module in ipairs(self:modules()) do modes[module] = module.training end
  local function run()
    local cache, ended = self:new_cache(ids:size(1), total), nil
    local list, last = {ids}, ids
    for _ = 1, count do
      last, ended = moth().scope(function()
        local token = choose(self(last, cache):select(2, -1), do_sample, temperature, top_k,
          generator)
        if not eos then return token end
        if ended then token = token:masked_fill(ended, eos) end
        return token, token:eq(eos)
      end)
      list[#list + 1] = last
      if ended and ended:all():item() then break end
    end
    return (ops.cat(list, 2))
  end
  self:eval()
  local fine, all = pcall(moth().no_grad, run)
  for module, training in pairs(modes) do module.training = training end
  if not fine then error(all, 0) end
  return single and all:squeeze(1) or all
end
define.takes(GPT2LMHeadModel.generate, parse_generate, "ids")

-- ---- builders ----

-- n_embd, n_layer, n_head
local SIZES = {
  gpt2 = {768, 12, 12}, gpt2_medium = {1024, 24, 16}, gpt2_large = {1280, 36, 20},
  gpt2_xl = {1600, 48, 25},
}

-- Files of GPT2Model lack the prefix `transformer.`. Old files have the causal masks attn.bias and
-- attn.masked_bias, which are left out.
local function rename(name)
  if name:find "%.attn%.bias$" or name:find "%.attn%.masked_bias$" then return nil end
  if name:find "^transformer%." or name:find "^lm_head%." then return name end
  return "transformer." .. name
end

local TOKENS, HEAD = "transformer.wte.weight", "lm_head.weight" -- one tensor, stored once or twice

local function sizes(dict, o)
  dict[HEAD] = dict[HEAD] or dict[TOKENS]
  dict[TOKENS] = dict[TOKENS] or dict[HEAD]
  local tokens, places = dict[TOKENS], dict["transformer.wpe.weight"]
  if lib.istensor(tokens) and tokens:dim() == 2 then
    o.vocab_size = o.vocab_size or tokens:size(1)
  end
  if lib.istensor(places) and places:dim() == 2 then
    o.n_positions = o.n_positions or places:size(1)
  end
end

for name, size in pairs(SIZES) do
  local args = {}
  for i, arg in ipairs(CONFIG) do args[i] = arg end
  for i = 1, 3 do
    local row = CONFIG[2 + i]
    args[2 + i] = {row[1], row[2], row[3], default = size[i], bounds = row.bounds}
  end
  gpt2[name] = builder.define {
    name = "models." .. name, rename = rename, sizes = sizes, args = args,
    doc = "GPT-2" .. name:gsub("^gpt2_?(.*)$", function(s) return s ~= "" and ", " .. s or "" end)
      .. " (Radford et al., 2019): token ids (N, L), from 1 -> scores of the next token (N, L, "
      .. "vocab_size). net:generate{ids, max_new_tokens = 20} continues a text.",
    examples = "{vocab_size = 1000}",
    make = function(o) return (GPT2LMHeadModel(o)) end,
    after = function(net) net:tie_weights() end,
  }
end

return (builder.guarded(gpt2))
