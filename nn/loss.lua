--- loss.lua -- losses as modules: how far an answer is from its target.

local class = require "moth.class"
local define = require "moth.define"
local layer = require "moth.nn.layer"
local Module = require "moth.nn.module"
local functional = require "moth.nn.functional"

local loss = {}

local REDUCTION = {"enum", "reduction", "what the losses of single elements become",
                   choices = {"mean", "sum", "none"}}

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

return (layer.of(loss, OF))
