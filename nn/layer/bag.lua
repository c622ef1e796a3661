--- bag.lua -- nn.EmbeddingBag: the sum, mean or maximum of the vectors of each bag of tokens; and
-- embedding_bag of moth.nn.functional.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"
local embedding = require "moth.nn.layer.embedding"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local lib = require "moth.binding.lib"
local bind = require "moth.binding.bind"
local ops = bind.ops
local own = bind.under "embedding_bag"

local bag = {}

local MAX_NORM = {"float", "max_norm", "vectors with a larger norm are scaled to it when they "
  .. "are used",
                  optional = true}
local NORM_TYPE = {"float", "norm_type", "exponent of the norm", default = 2}
local BY_FREQ = {"bool", "scale_grad_by_freq", "divide gradients by the token's count in the "
  .. "batch?",
                 default = false}
local MODE = {"enum", "mode", "the reduction of a bag's vectors",
              choices = {"mean", "sum", "max"}}
local SPARSE = {"bool", "sparse", "is the gradient of `weight` sparse, with only the used rows?",
                default = false}
local LAST = {"bool", "include_last_offset", "does `offsets` also contain the end of the last bag?",
              default = false}
local OFFSETS = {"tensor", "offsets", "number of tokens before each bag, (B); the first is 0",
                 optional = true}
local WEIGHTS = {"tensor", "per_sample_weights",
                 "factor of each vector in a sum, shaped as the input", optional = true}
local PADDING = {"position", "padding_idx", "a token that is ignored", optional = true}

local HALF = {float16 = true, bfloat16 = true}

-- ---- the function ----

local function refuse(argument, text, code)
  errors.argument("embedding_bag", argument, text, code)
end

local function check(input, weight, offsets, by_freq, mode, weights)
  local ndim = input:dim()
  if ndim ~= 1 and ndim ~= 2 then
    refuse("input", "(N) with offsets or (B, N) is needed, got " .. errors.describe(input),
      "E_SHAPE")
  end
  if weight:dim() ~= 2 then
    refuse("weight", "(tokens, features) is needed, got " .. errors.describe(weight), "E_SHAPE")
  end
  if ndim == 1 and offsets == nil then
    refuse("offsets", "a value is needed for concatenated tokens (N), got nothing", "E_ARG")
  end
  if ndim == 2 and offsets ~= nil then
    refuse("offsets", "is for concatenated tokens (N) only, got " .. errors.describe(input),
      "E_SHAPE")
  end
  if offsets ~= nil and offsets:dim() ~= 1 then
    refuse("offsets", "(B) is needed, got " .. errors.describe(offsets), "E_SHAPE")
  end
  if offsets ~= nil and (offsets.dtype.is_floating_point or offsets.dtype.name == "bool") then
    refuse("offsets", "integers are needed, got " .. errors.describe(offsets), "E_DTYPE")
  end
  if mode == "max" and by_freq then
    refuse("scale_grad_by_freq", "is for the modes 'sum' and 'mean' only", "E_ARG")
  end
  if weights ~= nil and mode ~= "sum" then
    refuse("per_sample_weights", ("is for the mode 'sum' only, got '%s'"):format(mode), "E_ARG")
  end
  if weights ~= nil and weights.shape ~= input.shape then
    refuse("per_sample_weights", ("%s does not fit %s"):format(errors.describe(weights),
      errors.describe(input)), "E_SHAPE")
  end
end

-- Raises for invalid offsets.
local function refuse_offsets(offsets, input)
  local before = 0
  for i, from in ipairs(offsets:tolist()) do
    if i == 1 and from ~= 0 then
      refuse("offsets", ("the first must be 0, got %d"):format(from), "E_DOMAIN")
    elseif from < before then
      refuse("offsets", ("they must not decrease, got %d after %d"):format(from,
        before), "E_DOMAIN")
    end
    before = from
  end
  refuse("offsets", ("they must not exceed the number of tokens, got %d for %s"):format(before,
    errors.describe(input)), "E_DOMAIN")
end

-- For concatenated tokens: returns the number of tokens in bags, the bag of each token, and the
-- number of bags. A captured step cannot read values: it checks the offsets after each replay.
local function shared_out(input, offsets, last)
  local moth = require "moth"
  local n, bags = input:size(1), offsets:size(1)
  if last and bags == 0 then
    refuse("offsets", "the end of the last bag is needed, got no elements", "E_SHAPE")
  end
  offsets = offsets:to(moth.int64)
  local stop = 0
  if bags > 0 then
    -- Reads one value from the device: the last offset, or -1 if the offsets are invalid.
    local wrong = offsets[1]:ne(0):logical_or(offsets[-1]:gt(n))
    if bags > 1 then
      local falls = offsets:narrow(1, 2, bags - 1):lt(offsets:narrow(1, 1, bags - 1))
      wrong = wrong:logical_or(falls:any())
    end
    if last or not lib.capture then
      stop = offsets[-1]:masked_fill(wrong, -1):item()
      if stop < 0 then refuse_offsets(offsets, input) end
    else
      require "moth.capture.tensor_check"(wrong, function()
        refuse("offsets", "the first must be 0; they must not decrease, or exceed the number of "
          .. "tokens", "E_DOMAIN")
      end)
    end
  end
  if last then
    n, bags = stop, bags - 1
    offsets = offsets:narrow(1, 1, bags)
  end
  if bags == 0 then n = 0 end
  local at = moth.arange(n, {dtype = moth.int64, device = offsets.device})
  return n, moth.searchsorted(offsets, at, {right = true}) - 1, bags
end

-- Reduces the bags of x, (B, N, features), to sums or maxima.
local function of_rows(x, largest)
  if largest and x:size(2) > 0 then return (x:max(2)) end
  return x:sum(2)
end

-- Reduces the bags of x, (N, features); `list` has the bag of each row.
local function of_list(x, largest, list, bags)
  local y = x:new_zeros(bags, x:size(2))
  if not largest or x:size(1) == 0 then return y:index_add(1, list, x) end
  list = list:unsqueeze(2):expand_as(x)
  local values, alone = x:detach(), {include_self = false}
  y = y:scatter_reduce(1, list, values, "amax", alone)
  if not x.requires_grad then return y end
  -- Of several equal maxima the first gets the gradient, as for (B, N).
  local n = x:size(1)
  local moth = require "moth"
  local at = moth.arange(n, {dtype = moth.int64, device = x.device}) + 1
  local top = values:eq(y:gather(1, list)):logical_or(values:isnan())
  at = at:unsqueeze(2):expand_as(x):masked_fill(top:logical_not(), n)
  local first = y:new_full(y.shape, n, {dtype = at.dtype})
  return x:gather(1, first:scatter_reduce(1, list, at, "amin", alone))
end

-- Sums the bags of (B, N), or of a list, by one kernel that reads the weight in place. Returns nil
-- if there is no kernel for the arguments.
local function summed(input, weight, weights, list, bags, padding, by_freq)
  local kind = weight.dtype.name
  if (kind ~= "float32" and kind ~= "float64") or weight.device.type ~= "cpu"
    or (weights and (weights.dtype ~= weight.dtype or weights.device ~= weight.device)) then
    return nil
  end
  return (own.bag_sum(input, weight, weights, list, bags, padding, by_freq))
end

--- Reduces the vectors of each bag of tokens. A bag is a row of (B, N), or the tokens between two
-- offsets.
bag.embedding_bag = define {
  name = "embedding_bag",
  doc = "The sum, mean or maximum of the vectors of each bag of tokens; 0 for an empty bag.",
  examples = "moth.tensor({{1, 2}, {3, 1}}, {dtype = moth.int64}), moth.randn(3, 2)\n"
    .. "moth.tensor({1, 2, 3, 1, 4}, {dtype = moth.int64}), moth.randn(4, 2), "
    .. "moth.tensor({0, 2}, {dtype = moth.int64}), {mode = 'max', padding_idx = 4}\n"
    .. "moth.tensor({1, 2, 3}, {dtype = moth.int64}), moth.randn(3, 2), "
    .. "moth.tensor({0, 2, 3}, {dtype = moth.int64}), {mode = 'sum', include_last_offset = true, "
    .. "per_sample_weights = moth.randn(3), scale_grad_by_freq = true}\n"
    .. "moth.tensor({{1, 2}}, {dtype = moth.int64}), moth.randn(2, 3), "
    .. "{max_norm = 1e6, norm_type = 1, sparse = true}",
  args = {
    {"tensor", "input", "tokens, (B, N), or (N) with offsets"},
    {"tensor", "weight", "the vectors, (tokens, features)"},
    OFFSETS, MAX_NORM, NORM_TYPE, BY_FREQ, MODE, SPARSE, WEIGHTS, LAST, PADDING,
  },
  scoped = true,
  run = function(input, weight, offsets, max_norm, norm_type, by_freq, mode, sparse, weights,
                 last, padding)
    check(input, weight, offsets, by_freq, mode, weights)
    padding = embedding.real_padding("embedding_bag", padding, weight:size(1))
    local join, list, bags = of_rows, nil, nil
    if offsets ~= nil then
      local n
      n, list, bags = shared_out(input, offsets, last)
      join, input = of_list, input:narrow(1, 1, n)
      weights = weights and weights:narrow(1, 1, n)
    end
    local largest = mode == "max"
    local y = not largest and not max_norm and not sparse
      and summed(input, weight, weights, list, bags, padding, by_freq)
    if not y then
      local x = ops.embedding(input, weight, padding, max_norm, norm_type, by_freq, sparse)
      if HALF[x.dtype.name] then x = x:float() end
      if weights then x = x * weights:unsqueeze(-1) end
      if padding then
        x = x:masked_fill(input:eq(padding):unsqueeze(-1), largest and -math.huge or 0)
      end
      y = join(x, largest, list, bags)
    end
    if mode ~= "sum" and (padding or list) then
      local counted = padding and input:ne(padding) or input:eq(input)
      local count = join(counted:unsqueeze(-1):to(y.dtype), false, list, bags)
      y = largest and y:masked_fill(count:eq(0), 0) or y / count:clamp(1)
    elseif mode == "mean" then
      y = y / math.max(input:size(2), 1)
    end
    return (y:to(weight.dtype))
  end,
}

-- ---- the layer ----

--- Reduced vectors of bags of tokens: (B, N), or (N) with offsets -> (B, embedding_dim). Tokens
-- count from 1. An offset is the number of tokens before the bag: the first is 0. weight
-- (num_embeddings, embedding_dim) is initialized as in Embedding.
local EmbeddingBag = class("EmbeddingBag", Module)
bag.EmbeddingBag = EmbeddingBag

EmbeddingBag.signature = define.signature("EmbeddingBag", {
  {"int", "num_embeddings", "the number of tokens", bounds = {0}},
  {"int", "embedding_dim", "size of a vector", bounds = {0}},
  MAX_NORM, NORM_TYPE, BY_FREQ, MODE, SPARSE,
  {"tensor", "_weight", "the initial vectors", optional = true},
  LAST, PADDING,
  {"device", "device", "the vectors' device", optional = true},
  {"dtype", "dtype", "their element type; default: the default dtype", optional = true},
})

function EmbeddingBag:init(num_embeddings, embedding_dim, max_norm, norm_type, by_freq, mode,
                           sparse, weight, last, padding, device, dtype)
  self.sparse = sparse
  self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
  self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, by_freq
  self.mode, self.include_last_offset = mode, last
  self.padding_idx = embedding.real_padding("EmbeddingBag", padding, num_embeddings)
  embedding.begin(self, weight, false, device, dtype)
end

EmbeddingBag.reset_parameters = embedding.Embedding.reset_parameters

function EmbeddingBag:forward(input, offsets, per_sample_weights)
  return (functional.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type,
    self.scale_grad_by_freq, self.mode, self.sparse, per_sample_weights, self.include_last_offset,
    self.padding_idx))
end

named.takes(EmbeddingBag.forward, {
  {"tensor", "input", "tokens, (B, N), or (N) with offsets"},
  OFFSETS, WEIGHTS,
})

local parse_pretrained = define.signature("EmbeddingBag.from_pretrained", {
  {"tensor", "embeddings", "the vectors, (tokens, features)"},
  {"bool", "freeze", "keep the vectors unchanged in training?", default = true},
  MAX_NORM, NORM_TYPE, BY_FREQ, MODE, SPARSE, LAST, PADDING,
})

--- An EmbeddingBag that shares existing vectors: nn.EmbeddingBag.from_pretrained(vectors, freeze =
-- true, max_norm, norm_type, scale_grad_by_freq, mode, sparse, include_last_offset, padding_idx).
EmbeddingBag.from_pretrained = embedding.pretrained(EmbeddingBag, function(...)
  local vectors, freeze, max_norm, norm_type, by_freq, mode, sparse, last, padding =
    parse_pretrained(...)
  local tokens, features = embedding.sizes("EmbeddingBag", vectors)
  local layer = EmbeddingBag {tokens, features, max_norm = max_norm, norm_type = norm_type,
    scale_grad_by_freq = by_freq, mode = mode, sparse = sparse, _weight = vectors,
    include_last_offset = last, padding_idx = padding}
  layer.weight.requires_grad = not freeze
  return layer
end)

function EmbeddingBag:extra_repr()
  local text = ("%d, %d"):format(self.num_embeddings, self.embedding_dim)
  if self.max_norm ~= nil then text = text .. ", max_norm=" .. self.max_norm end
  if self.norm_type ~= 2 then text = text .. ", norm_type=" .. self.norm_type end
  if self.scale_grad_by_freq then text = text .. ", scale_grad_by_freq=true" end
  if self.sparse then text = text .. ", sparse=true" end
  text = text .. (", mode='%s'"):format(self.mode)
  if self.padding_idx ~= nil then text = text .. ", padding_idx=" .. self.padding_idx end
  return text
end

return bag
