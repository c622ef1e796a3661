--- loss.lua -- losses as modules: how far an answer is from its target.

local bind = require "moth.bind"
local class = require "moth.class"
local define = require "moth.define"
local Module = require "moth.nn.module"
local named = require "moth.nn.named"
local functional = require "moth.nn.functional"

local loss = {}

local WEIGHT = {"tensor", "weight", "weight of each class, (C)", optional = true}
local IGNORE = {"int", "ignore_index", "a target that counts for nothing", default = -100}
local REDUCTION = {"enum", "reduction", "what the losses of single elements become",
                   choices = {"mean", "sum", "none"}}

--- The negated logarithm of each target's probability: input (N, C, ...) holds logarithms of
-- probabilities, target (N, ...) classes from 1.
local NLLLoss = class("NLLLoss", Module)
loss.NLLLoss = NLLLoss

NLLLoss.signature = define.signature("NLLLoss", {WEIGHT, IGNORE, REDUCTION})

function NLLLoss:init(weight, ignore_index, reduction)
  if weight ~= nil then self:register_buffer("weight", weight) end
  self.ignore_index, self.reduction = ignore_index, reduction
end

function NLLLoss:forward(input, target)
  return (functional.nll_loss(input, target, self.weight, self.ignore_index, self.reduction))
end

--- nll_loss of log_softmax: input (N, C, ...) holds scores, target (N, ...) classes from 1.
local CrossEntropyLoss = class("CrossEntropyLoss", Module)
loss.CrossEntropyLoss = CrossEntropyLoss

CrossEntropyLoss.signature = define.signature("CrossEntropyLoss", {
  WEIGHT, IGNORE, REDUCTION,
  {"float", "label_smoothing", "share of the target spread evenly over all classes", default = 0},
})

function CrossEntropyLoss:init(weight, ignore_index, reduction, label_smoothing)
  if weight ~= nil then self:register_buffer("weight", weight) end
  self.ignore_index, self.reduction = ignore_index, reduction
  self.label_smoothing = label_smoothing
end

function CrossEntropyLoss:forward(input, target)
  return (functional.cross_entropy(input, target, self.weight, self.ignore_index, self.reduction,
    self.label_smoothing))
end

-- ---- losses of pairs of numbers: input and target of the same shape ----

-- Makes a class that holds at most one number beside its reduction.
local function pairwise(name, fname, reduction, row)
  local Loss = class(name, Module)
  loss[name] = Loss
  Loss.signature = define.signature(name, {reduction, row})
  local field = row and row[2]
  function Loss:init(chosen, value)
    self.reduction = chosen
    if field then self[field] = value end
  end
  function Loss:forward(input, target)
    if field then
      return (functional[fname](input, target, self.reduction, self[field]))
    end
    return (functional[fname](input, target, self.reduction))
  end
end

pairwise("MSELoss", "mse_loss", REDUCTION)
pairwise("L1Loss", "l1_loss", REDUCTION)
pairwise("SmoothL1Loss", "smooth_l1_loss", REDUCTION,
  {"float", "beta", "where squares turn into sizes", default = 1})
pairwise("HuberLoss", "huber_loss", REDUCTION,
  {"float", "delta", "where squares turn into sizes", default = 1})
pairwise("KLDivLoss", "kl_div",
  {"enum", "reduction", "what the losses of single elements become; batchmean is the divergence",
   choices = {"mean", "sum", "none", "batchmean"}},
  {"bool", "log_target", "does the target hold logarithms too?", default = false})

--- Binary cross entropy of probabilities, each with a target from 0 to 1.
-- `nn.BCELoss(weight, reduction)`: the weight rescales the losses of single elements.
local BCELoss = class("BCELoss", Module)
loss.BCELoss = BCELoss

local ELEMENTS = {"tensor", "weight", "weight of each element, broadcast", optional = true}

BCELoss.signature = define.signature("BCELoss", {ELEMENTS, REDUCTION})

function BCELoss:init(weight, reduction)
  if weight ~= nil then self:register_buffer("weight", weight) end
  self.reduction = reduction
end

function BCELoss:forward(input, target)
  return (functional.binary_cross_entropy(input, target, self.weight, self.reduction))
end

--- Binary cross entropy of scores: a sigmoid and BCELoss in one, exact for large scores.
-- `nn.BCEWithLogitsLoss(weight, reduction, pos_weight)`: pos_weight weighs the targets 1.
local BCEWithLogitsLoss = class("BCEWithLogitsLoss", Module)
loss.BCEWithLogitsLoss = BCEWithLogitsLoss

BCEWithLogitsLoss.signature = define.signature("BCEWithLogitsLoss", {
  ELEMENTS, REDUCTION,
  {"tensor", "pos_weight", "weight of the targets 1, broadcast", optional = true},
})

function BCEWithLogitsLoss:init(weight, reduction, pos_weight)
  if weight ~= nil then self:register_buffer("weight", weight) end
  if pos_weight ~= nil then self:register_buffer("pos_weight", pos_weight) end
  self.reduction = reduction
end

function BCEWithLogitsLoss:forward(input, target)
  return (functional.binary_cross_entropy_with_logits(input, target, self.weight, self.reduction,
    self.pos_weight))
end

-- ---- losses of functional that take options alone ----

-- Makes a class of a function's arguments behind its tensors, of which there are n.
local function options(name, fname, n)
  local Loss = class(name, Module)
  loss[name] = Loss
  local fields, rows, tensors = {}, {}, {}
  for i, arg in ipairs(bind.signature(functional[fname]).args) do
    if i <= n then
      tensors[i] = {arg.kind, arg.name, arg.doc}
    else
      fields[i - n] = arg.name
      rows[i - n] = {arg.kind, arg.name, arg.doc, default = arg.default, choices = arg.choices}
    end
  end
  Loss.signature = define.signature(name, rows)
  function Loss:init(...)
    for i, field in ipairs(fields) do self[field] = (select(i, ...)) end
  end
  local function settings(self)
    local list = {}
    for i, field in ipairs(fields) do list[i] = self[field] end
    return unpack(list, 1, #fields)
  end
  if n == 2 then
    function Loss:forward(a, b) return (functional[fname](a, b, settings(self))) end
  else
    function Loss:forward(a, b, c) return (functional[fname](a, b, c, settings(self))) end
  end
  named.takes(Loss.forward, tensors)
end

options("CosineSimilarity", "cosine_similarity", 2)
options("PairwiseDistance", "pairwise_distance", 2)
options("SoftMarginLoss", "soft_margin_loss", 2)
options("HingeEmbeddingLoss", "hinge_embedding_loss", 2)
options("PoissonNLLLoss", "poisson_nll_loss", 2)
options("GaussianNLLLoss", "gaussian_nll_loss", 3)
options("MarginRankingLoss", "margin_ranking_loss", 3)
options("CosineEmbeddingLoss", "cosine_embedding_loss", 3)
options("TripletMarginLoss", "triplet_margin_loss", 3)
options("MultiLabelMarginLoss", "multilabel_margin_loss", 2)

--- The target's score should be beyond all others: input (N, C) holds scores, target (N) classes.
-- `nn.MultiMarginLoss(p, margin, weight, reduction)`.
local MultiMarginLoss = class("MultiMarginLoss", Module)
loss.MultiMarginLoss = MultiMarginLoss

MultiMarginLoss.signature = define.signature("MultiMarginLoss", {
  {"int", "p", "the exponent, 1 or 2", default = 1},
  {"float", "margin", "by how much", default = 1},
  WEIGHT, REDUCTION,
})

function MultiMarginLoss:init(p, margin, weight, reduction)
  if weight ~= nil then self:register_buffer("weight", weight) end
  self.p, self.margin, self.reduction = p, margin, reduction
end

function MultiMarginLoss:forward(input, target)
  return (functional.multi_margin_loss(input, target, self.p, self.margin, self.weight,
    self.reduction))
end

--- The logistic loss of each class's score: input and target (N, C).
-- `nn.MultiLabelSoftMarginLoss(weight, reduction)`.
local MultiLabelSoftMarginLoss = class("MultiLabelSoftMarginLoss", Module)
loss.MultiLabelSoftMarginLoss = MultiLabelSoftMarginLoss
MultiLabelSoftMarginLoss.signature = define.signature("MultiLabelSoftMarginLoss",
  {WEIGHT, REDUCTION})

function MultiLabelSoftMarginLoss:init(weight, reduction)
  if weight ~= nil then self:register_buffer("weight", weight) end
  self.reduction = reduction
end

function MultiLabelSoftMarginLoss:forward(input, target)
  return (functional.multilabel_soft_margin_loss(input, target, self.weight, self.reduction))
end

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

return loss
