--- embedding.lua -- nn.Embedding: a table with a vector for each token.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local init = require "moth.nn.initialization"
local parameter = require "moth.nn.module.parameter"

local embedding = {}

--- The vectors of tokens: integers (...), from 1 to num_embeddings -> (..., embedding_dim). weight
-- (num_embeddings, embedding_dim) is initialized with the standard normal distribution. The row of
-- padding_idx is 0 and gets no gradient. With `sparse` the gradient of weight is a sparse tensor;
-- optim.SparseAdam, Adagrad, and SGD without momentum accept it.
local Embedding = class("Embedding", Module)
embedding.Embedding = Embedding

local OPTIONS = {
  {"position", "padding_idx", "a token whose vector gets no gradient", optional = true},
  {"float", "max_norm", "vectors with a larger norm are scaled to it when they are used",
    optional = true},
  {"float", "norm_type", "exponent of the norm", default = 2},
  {"bool", "scale_grad_by_freq", "divide gradients by the token's count in the batch?",
    default = false},
  {"bool", "sparse", "is the gradient sparse, with only the used rows?",
    default = false},
}

local rows = {
  {"int", "num_embeddings", "the number of tokens", bounds = {0}},
  {"int", "embedding_dim", "size of a vector", bounds = {0}},
}
for _, row in ipairs(OPTIONS) do rows[#rows + 1] = row end
for _, row in ipairs {
  {"tensor", "_weight", "the initial vectors", optional = true},
  {"bool", "_freeze", "keep the vectors unchanged in training?", default = false},
  {"device", "device", "the vectors' device", optional = true},
  {"dtype", "dtype", "their element type; default: the default dtype", optional = true},
} do rows[#rows + 1] = row end

Embedding.signature = define.signature("Embedding", rows)

--- Converts a token number that may count from the end to 1 to n; nil stays nil.
function embedding.real_padding(name, padding, n)
  if padding == nil then return nil end
  if padding > n or padding < -n then
    errors.argument(name, "padding_idx", ("%d is out of range for %d tokens"):format(padding, n),
      "E_INDEX")
  end
  return padding < 0 and padding + n + 1 or padding
end

--- Sets a layer's weight: the given vectors, or random ones.
function embedding.begin(layer, weight, freeze, device, dtype)
  local n, size = layer.num_embeddings, layer.embedding_dim
  if weight == nil then
    local fresh = require("moth").empty({n, size}, dtype, device)
    layer.weight = parameter.Parameter(fresh, not freeze)
    layer:reset_parameters()
    return
  end
  if weight:dim() ~= 2 or weight:size(1) ~= n or weight:size(2) ~= size then
    errors.refuse(class.typename(layer), "_weight", ("(%d, %d) is needed"):format(n, size), weight,
      "E_SHAPE")
  end
  layer.weight = parameter.Parameter(weight, not freeze)
end

function Embedding:init(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type,
                        scale_grad_by_freq, sparse, weight, freeze, device, dtype)
  self.sparse = sparse
  self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
  self.padding_idx = embedding.real_padding("Embedding", padding_idx, num_embeddings)
  self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
  embedding.begin(self, weight, freeze, device, dtype)
end

--- Reinitializes the vectors.
function Embedding:reset_parameters()
  local weight, padding = self.weight, self.padding_idx
  init.normal_(weight)
  if padding ~= nil then
    require("moth").no_grad(function() weight:select(1, padding):zero_() end)
  end
end

function Embedding:forward(input)
  return (functional.embedding(input, self.weight, self.padding_idx, self.max_norm,
    self.norm_type, self.scale_grad_by_freq, self.sparse))
end
Module.passing[Embedding.forward] = true
named.takes(Embedding.forward, {{"index", "input", "tokens, any shape, or a list of them"}})

function Embedding:extra_repr()
  local text = ("%d, %d"):format(self.num_embeddings, self.embedding_dim)
  if self.padding_idx ~= nil then text = text .. ", padding_idx=" .. self.padding_idx end
  if self.max_norm ~= nil then text = text .. ", max_norm=" .. self.max_norm end
  if self.norm_type ~= 2 then text = text .. ", norm_type=" .. self.norm_type end
  if self.scale_grad_by_freq then text = text .. ", scale_grad_by_freq=true" end
  if self.sparse then text = text .. ", sparse=true" end
  return text
end

--- Creates a class method that may be called with '.' or ':'. It is a callable table, since a
-- function in a class is a method and needs an object.
function embedding.pretrained(own, make)
  return setmetatable({}, {
    __call = function(_, first, ...)
      if first == own then return (make(...)) end
      return (make(first, ...))
    end,
  })
end

--- Returns the numbers of tokens and of features of a table of vectors.
function embedding.sizes(name, vectors)
  if vectors:dim() ~= 2 then
    errors.refuse(name .. ".from_pretrained", "embeddings", "(tokens, features) is needed", vectors,
      "E_SHAPE")
  end
  return vectors:size(1), vectors:size(2)
end

local pretrained_rows = {
  {"tensor", "embeddings", "the vectors, (tokens, features)"},
  {"bool", "freeze", "keep the vectors unchanged in training?", default = true},
}
for _, row in ipairs(OPTIONS) do pretrained_rows[#pretrained_rows + 1] = row end
local parse_pretrained = define.signature("Embedding.from_pretrained", pretrained_rows)

--- An Embedding that shares existing vectors: nn.Embedding.from_pretrained(vectors, freeze = true,
-- padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse).
Embedding.from_pretrained = embedding.pretrained(Embedding, function(...)
  local vectors, freeze, padding_idx, max_norm, norm_type, by_freq, sparse = parse_pretrained(...)
  local tokens, features = embedding.sizes("Embedding", vectors)
  local none = require("moth").none
  local function given(v) if v == nil then return none end return v end
  return Embedding(tokens, features, given(padding_idx), given(max_norm), norm_type, by_freq,
    sparse, vectors, freeze)
end)

return embedding
