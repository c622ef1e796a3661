--- attention.lua -- nn.MultiheadAttention (Vaswani et al. 2017).

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local init = require "moth.nn.initialization"
local linear = require "moth.nn.layer.linear"
local parameter = require "moth.nn.module.parameter"

local attention = {}

--- Multi-head attention: attention(query, key, value) -> output, weights. query (L, N, embed_dim),
-- key (S, N, kdim), value (S, N, vdim) -> output (L, N, embed_dim), weights (N, L, S), or nil
-- without need_weights. With batch_first N is the first dimension; all three inputs may omit N. In
-- masks true or -inf excludes a key, as in PyTorch; F.scaled_dot_product_attention's masks mean the
-- opposite. key_padding_mask (N, S), attn_mask (L, S) or (N * num_heads, L, S). Parameters:
-- in_proj_weight (3 embed_dim, embed_dim), or q_proj_weight, k_proj_weight and v_proj_weight if
-- kdim or vdim differ, start by xavier_uniform_; in_proj_bias and out_proj.bias with 0;
-- out_proj.weight like Linear's; bias_k and bias_v by xavier_normal_.
local MultiheadAttention = class("MultiheadAttention", Module)
attention.MultiheadAttention = MultiheadAttention

MultiheadAttention.signature = define.signature("MultiheadAttention", {
  {"int", "embed_dim", "size of a query and of the result"},
  {"int", "num_heads", "number of heads, each of embed_dim / num_heads features"},
  {"float", "dropout", "dropout probability of the weights in training", default = 0},
  {"bool", "bias", "add a bias to the projections?", default = true},
  {"bool", "add_bias_kv", "add a learned key and value?",
    default = false},
  {"bool", "add_zero_attn", "add a key and value of zeros?", default = false},
  {"int", "kdim", "size of a key; default: embed_dim", optional = true},
  {"int", "vdim", "size of a value; default: embed_dim", optional = true},
  {"bool", "batch_first", "is the batch the first dimension?", default = false},
  {"device", "device", "the parameters' device", optional = true},
  {"dtype", "dtype", "their element type; default: the default dtype", optional = true},
})

local parse = define.signature("MultiheadAttention.forward", {
  {"tensor", "query", "(L, N, embed_dim)"},
  {"tensor", "key", "(S, N, kdim)"},
  {"tensor", "value", "(S, N, vdim)"},
  {"tensor", "key_padding_mask", "(N, S): true excludes a key", optional = true},
  {"bool", "need_weights", "also return the weights?", default = true},
  {"tensor", "attn_mask", "(L, S) or (N * num_heads, L, S): true excludes a key",
    optional = true},
  {"bool", "average_attn_weights", "return the mean of the heads' weights?", default = true},
  {"bool", "is_causal", "a hint that attn_mask is causal; no effect", default = false},
})

local function bad(name, text, code)
  errors.argument("MultiheadAttention", name, text, code or "E_SHAPE")
end

function MultiheadAttention:init(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn,
                                 kdim, vdim, batch_first, device, dtype)
  local moth = require "moth"
  local function fresh(...)
    return parameter.Parameter(moth.empty({...}, dtype, device))
  end
  if embed_dim < 1 then bad("embed_dim", "a number from 1 on is needed, got " .. embed_dim) end
  if num_heads < 1 or embed_dim % num_heads ~= 0 then
    bad("num_heads", ("%d features cannot be divided into %d heads"):format(embed_dim, num_heads))
  end
  if not (dropout >= 0 and dropout <= 1) then
    bad("dropout", "a probability from 0 to 1 is needed, got " .. dropout, "E_DOMAIN")
  end
  self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim / num_heads
  self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
  self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
  self.same_dims = self.kdim == embed_dim and self.vdim == embed_dim
  if self.same_dims then
    self.in_proj_weight = fresh(3 * embed_dim, embed_dim)
  else
    self.q_proj_weight = fresh(embed_dim, embed_dim)
    self.k_proj_weight = fresh(embed_dim, self.kdim)
    self.v_proj_weight = fresh(embed_dim, self.vdim)
  end
  if bias then self.in_proj_bias = fresh(3 * embed_dim) end
  self.out_proj = linear.Linear(embed_dim, embed_dim, bias, device or moth.none,
    dtype or moth.none)
  if add_bias_kv then
    self.bias_k = fresh(1, 1, embed_dim)
    self.bias_v = fresh(1, 1, embed_dim)
  end
  self:_reset_parameters()
end

--- Reinitializes all parameters except out_proj.weight.
function MultiheadAttention:_reset_parameters()
  if self.same_dims then
    init.xavier_uniform_(self.in_proj_weight)
  else
    init.xavier_uniform_(self.q_proj_weight)
    init.xavier_uniform_(self.k_proj_weight)
    init.xavier_uniform_(self.v_proj_weight)
  end
  if self.in_proj_bias ~= nil then
    init.zeros_(self.in_proj_bias)
    init.zeros_(self.out_proj.bias)
  end
  if self.bias_k ~= nil then
    init.xavier_normal_(self.bias_k)
    init.xavier_normal_(self.bias_v)
  end
end

-- ---- checks ----

local function check(self, query, key, value)
  local dims = query:dim()
  if dims ~= 2 and dims ~= 3 then
    bad("query", "2 or 3 dimensions are needed, got " .. errors.describe(query))
  end
  local names, inputs = {"query", "key", "value"}, {query, key, value}
  local wanted = {self.embed_dim, self.kdim, self.vdim}
  for i, x in ipairs(inputs) do
    if x:dim() ~= dims then
      bad(names[i], ("%d dimensions are needed, as the query has, got %s"):format(dims,
        errors.describe(x)))
    end
  end
  for i, x in ipairs(inputs) do
    if x:size(-1) ~= wanted[i] then
      bad(names[i], ("%d is needed as the last size, got %s"):format(wanted[i],
        errors.describe(x)))
    end
  end
end

local function check_batches(query, key, value)
  if key:size(1) ~= value:size(1) or key:size(2) ~= value:size(2) then
    bad("value", ("%s and the key, %s, have different lengths"):format(errors.describe(value),
      errors.describe(key)))
  end
  if key:size(2) ~= query:size(2) then
    bad("key", ("%s and the query, %s, have different batch sizes"):format(errors.describe(key),
      errors.describe(query)))
  end
end

-- ---- the steps of forward ----

-- Projects query, key and value; each becomes (..., N, embed_dim).
local function project(self, query, key, value)
  local F, e = functional, self.embed_dim
  local bias = self.in_proj_bias
  if self.same_dims and query == key and key == value then
    local all = F.linear(query, self.in_proj_weight, bias)
    return all:narrow(-1, 1, e), all:narrow(-1, e + 1, e), all:narrow(-1, 2 * e + 1, e)
  end
  local list = {}
  for i, x in ipairs {query, key, value} do
    local weight
    if self.same_dims then
      weight = self.in_proj_weight:narrow(1, (i - 1) * e + 1, e)
    else
      weight = self[({"q", "k", "v"})[i] .. "_proj_weight"]
    end
    list[i] = F.linear(x, weight, bias ~= nil and bias:narrow(1, (i - 1) * e + 1, e) or nil)
  end
  return list[1], list[2], list[3]
end

-- Returns a mask as a tensor to add to the scores: a bool mask's true becomes -inf. nil without a
-- mask.
local function added(name, mask, like)
  local moth = require "moth"
  if mask == nil then return nil end
  if mask.dtype == moth.bool then
    return like:new_zeros(mask.shape):masked_fill(mask, -math.huge)
  end
  if not mask.dtype.is_floating_point then
    bad(name, "a bool or floating tensor is needed, got " .. errors.describe(mask), "E_DTYPE")
  end
  return mask:to(like.dtype)
end

local function sizes_are(x, ...)
  local wanted = {...}
  if x:dim() ~= #wanted then return false end
  for i, n in ipairs(wanted) do
    if x:size(i) ~= n then return false end
  end
  return true
end

-- Combines both masks into one of shape (N or 1, heads or 1, L or 1, S); nil without masks.
local function merge(self, attn_mask, padding, query, l, n, s)
  local a, p = added("attn_mask", attn_mask, query), added("key_padding_mask", padding, query)
  if a ~= nil then
    if sizes_are(a, l, s) then
      a = a:unsqueeze(1):unsqueeze(1)
    elseif sizes_are(a, n * self.num_heads, l, s) then
      a = a:view(n, self.num_heads, l, s)
    else
      bad("attn_mask", ("(%d, %d) or (%d, %d, %d) is needed, got %s"):format(l, s,
        n * self.num_heads, l, s, errors.describe(attn_mask)))
    end
  end
  if p ~= nil then
    if not sizes_are(p, n, s) then
      bad("key_padding_mask", ("(%d, %d) is needed, got %s"):format(n, s, errors.describe(padding)))
    end
    p = p:view(n, 1, 1, s)
  end
  if a ~= nil and p ~= nil then return a + p end
  return a == nil and p or a
end

-- Adds a column to a mask, for a key that is never excluded.
local function widen(mask)
  if mask == nil then return nil end
  local size = {}
  for d = 1, mask:dim() do size[d] = mask:size(d) end
  size[#size] = 1
  return require("moth").cat({mask, mask:new_zeros(size)}, -1)
end

-- (..., N, embed_dim) -> (N, heads, ..., head_dim)
local function split_heads(self, x)
  return x:unflatten(-1, {self.num_heads, self.head_dim}):permute{2, 3, 1, 4}
end

-- Appends bias_k and bias_v, or zeros, as additional keys and values.
local function more_keys(self, q, k, v, mask)
  local moth = require "moth"
  if self.bias_k ~= nil then
    local n = q:size(1)
    local function one(x)
      return x:view(1, self.num_heads, 1, self.head_dim):expand(n, -1, -1, -1)
    end
    k, v, mask = moth.cat({k, one(self.bias_k)}, 3), moth.cat({v, one(self.bias_v)}, 3),
      widen(mask)
  end
  if self.add_zero_attn then
    local zero = q:new_zeros {q:size(1), self.num_heads, 1, self.head_dim}
    k, v, mask = moth.cat({k, zero}, 3), moth.cat({v, zero}, 3), widen(mask)
  end
  return k, v, mask
end

-- Returns the output (N, heads, L, head_dim) and, if requested, the weights (N, heads, L, S).
local function attend(self, q, k, v, mask, need_weights)
  local dropout = self.training and self.dropout or 0
  if not need_weights then
    return functional.scaled_dot_product_attention(q, k, v, mask, dropout)
  end
  local scores, empty = (q / math.sqrt(self.head_dim)):matmul(k:transpose(-2, -1)), nil
  if mask ~= nil then
    scores = scores + mask
    empty = mask:detach():amax(-1, true):eq(-math.huge) -- rows in which all keys are masked
    scores = scores:masked_fill(empty, 0)
  end
  local weights = functional.softmax(scores, -1)
  if empty ~= nil then weights = weights:masked_fill(empty, 0) end
  if dropout > 0 then weights = functional.dropout(weights, dropout) end
  return weights:matmul(v), weights
end

function MultiheadAttention:forward(...)
  local query, key, value, padding, need_weights, attn_mask, average, is_causal = parse(...)
  check(self, query, key, value)
  if is_causal and attn_mask == nil then
    bad("attn_mask", "is needed with is_causal, which is only a hint", "E_ARG")
  end
  local single, self_attention = query:dim() == 2, query == key and key == value
  local function lay_out(x)
    if single then return x:unsqueeze(2) end
    return self.batch_first and x:transpose(1, 2) or x
  end
  local q = lay_out(query)
  local k = self_attention and q or lay_out(key)
  local v = self_attention and q or lay_out(value)
  if single and padding ~= nil then padding = padding:unsqueeze(1) end
  check_batches(q, k, v)
  local mask = merge(self, attn_mask, padding, query, q:size(1), q:size(2), k:size(1))
  q, k, v = project(self, q, k, v)
  q, k, v = split_heads(self, q), split_heads(self, k), split_heads(self, v)
  k, v, mask = more_keys(self, q, k, v, mask)
  local y, weights = attend(self, q, k, v, mask, need_weights)
  y = self.out_proj(y:permute{3, 1, 2, 4}:flatten(3))
  if single then y = y:squeeze(2) elseif self.batch_first then y = y:transpose(1, 2) end
  if not need_weights then return y, nil end
  if average then weights = weights:mean(2) end
  if single then weights = weights:squeeze(1) end
  return y, weights
end

MultiheadAttention.forward = Module.sight.scoped(MultiheadAttention.forward, {"out_proj"})
named.takes(MultiheadAttention.forward, parse, "output, weights")

return attention
