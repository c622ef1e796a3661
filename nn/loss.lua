--- loss.lua -- losses as modules: how far an answer is from its target.

local bind = require "moth.bind"
local class = require "moth.class"
local define = require "moth.define"
local lib = require "moth.lib"
local Module = require "moth.nn.module"
local named = require "moth.nn.named"
local functional = require "moth.nn.functional"

local loss = {}

local REDUCTION = {"enum", "reduction", "what the losses of single elements become",
                   choices = {"mean", "sum", "none"}}

-- What the class's argument is if left out, and how it is read, of an argument of the function.
local KINDS = {position = "int"}

local function row_of(arg)
  local default = arg.default
  if default == nil and not arg.choices then
    default = tonumber(arg.fallback)
    if arg.kind == "bool" then default = arg.fallback == "true" end
  end
  return {KINDS[arg.kind] or arg.kind, arg.name, arg.doc, optional = arg.optional,
          default = default, choices = arg.choices}
end

-- Makes a class of what a function takes behind its tensors, of which there are n. Weights are
-- buffers.
local function make(name, fname, n)
  local Loss = class(name, Module)
  local inputs, rows, names, settings = {}, {}, {}, {}
  for i, arg in ipairs(bind.signature(functional[fname]).args) do
    if i <= n then
      inputs[i], names[i] = {"tensor", arg.name, arg.doc}, arg.name
    else
      rows[i - n], settings[i - n] = row_of(arg), "self." .. arg.name
    end
  end
  Loss._of = fname
  Loss.signature = define.signature(name, rows)
  function Loss:init(...)
    for i, row in ipairs(rows) do
      local value = (select(i, ...))
      if not row.optional then self[row[2]] = value
      elseif value ~= nil then self:register_buffer(row[2], value) end
    end
  end
  local list = table.concat(names, ", ")
  Loss.forward = assert(lib.loadstring(("local functional = ...\n"
    .. "return function(self, %s) return (functional.%s(%s, %s)) end"):format(list, fname, list,
    table.concat(settings, ", ")), "=[moth.nn.loss]"))(functional)
  named.takes(Loss.forward, inputs)
  return Loss
end

-- The functions, and how many tensors each takes.
local OF = {
  NLLLoss = {"nll_loss", 2},
  CrossEntropyLoss = {"cross_entropy", 2},
  MSELoss = {"mse_loss", 2},
  L1Loss = {"l1_loss", 2},
  SmoothL1Loss = {"smooth_l1_loss", 2},
  HuberLoss = {"huber_loss", 2},
  KLDivLoss = {"kl_div", 2},
  BCELoss = {"binary_cross_entropy", 2},
  BCEWithLogitsLoss = {"binary_cross_entropy_with_logits", 2},
  CosineSimilarity = {"cosine_similarity", 2},
  PairwiseDistance = {"pairwise_distance", 2},
  SoftMarginLoss = {"soft_margin_loss", 2},
  HingeEmbeddingLoss = {"hinge_embedding_loss", 2},
  PoissonNLLLoss = {"poisson_nll_loss", 2},
  GaussianNLLLoss = {"gaussian_nll_loss", 3},
  MarginRankingLoss = {"margin_ranking_loss", 3},
  CosineEmbeddingLoss = {"cosine_embedding_loss", 3},
  TripletMarginLoss = {"triplet_margin_loss", 3},
  MultiMarginLoss = {"multi_margin_loss", 2},
  MultiLabelMarginLoss = {"multilabel_margin_loss", 2},
  MultiLabelSoftMarginLoss = {"multilabel_soft_margin_loss", 2},
}

--- Anchors should be nearer to their positives than to their negatives, by a distance of one's own.
local TripletMarginWithDistanceLoss = class("TripletMarginWithDistanceLoss", Module)
loss.TripletMarginWithDistanceLoss = TripletMarginWithDistanceLoss

TripletMarginWithDistanceLoss.signature = define.signature("TripletMarginWithDistanceLoss", {
  {"function", "distance_function", "called with two batches of vectors; pairwise_distance when "
    .. "absent", optional = true},
  {"float", "margin", "by how much", default = 1},
  {"bool", "swap", "also count the distance of positive and negative?", default = false},
  REDUCTION,
})

function TripletMarginWithDistanceLoss:init(distance_function, margin, swap, reduction)
  self.distance_function, self.margin, self.swap = distance_function, margin, swap
  self.reduction = reduction
end

function TripletMarginWithDistanceLoss:forward(anchor, positive, negative)
  return (functional.triplet_margin_with_distance_loss(anchor, positive, negative,
    self.distance_function, self.margin, self.swap, self.reduction))
end

-- They are made at their first use: reading what a function takes is work.
return (setmetatable(loss, {__index = function(_, name)
  local row = OF[name]
  if not row then return nil end
  rawset(loss, name, make(name, row[1], row[2]))
  return loss[name]
end}))
