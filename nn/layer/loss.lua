--- loss.lua -- losses as modules.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local layer = require "moth.nn.layer"
local Linear = require("moth.nn.layer.linear").Linear
local Module = require "moth.nn.module"
local functional = require "moth.nn.functional"

local loss = {}

local REDUCTION = {"enum", "reduction", "how the losses of the elements are reduced",
                   choices = {"mean", "sum", "none"}}

-- For each class: its function, the number of tensors, and the argument that the class omits.
local OF = {
  NLLLoss = {"nll_loss", 2},
  CrossEntropyLoss = {"cross_entropy", 2},
  MSELoss = {"mse_loss", 2, "weight"},
  L1Loss = {"l1_loss", 2, "weight"},
  SmoothL1Loss = {"smooth_l1_loss", 2},
  HuberLoss = {"huber_loss", 2, "weight"},
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

--- Triplet margin loss with a distance function of the user.
local TripletMarginWithDistanceLoss = class("TripletMarginWithDistanceLoss", Module)
loss.TripletMarginWithDistanceLoss = TripletMarginWithDistanceLoss

TripletMarginWithDistanceLoss.signature = define.signature("TripletMarginWithDistanceLoss", {
  {"function", "distance_function", "called with two batches of vectors; pairwise_distance if "
    .. "absent", optional = true},
  {"float", "margin", "the required difference", default = 1, bounds = {0, open = true}},
  {"bool", "swap", "also use the distance between positive and negative?", default = false},
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

--- A linear layer to `num_classes` scores and the cross entropy of the scores, computed in chunks:
-- the full scores are never in memory. The layer is `self.linear`, as in PyTorch; by default it has
-- no bias.
local LinearCrossEntropyLoss = class("LinearCrossEntropyLoss", Module)
loss.LinearCrossEntropyLoss = LinearCrossEntropyLoss

LinearCrossEntropyLoss.signature = define.signature("LinearCrossEntropyLoss", {
  {"int", "in_features", "size of the last dimension of the input"},
  {"int", "num_classes", "the number of classes"},
  {"bool", "bias", "add a bias?", default = false},
  {"device", "device", "the layer's device", optional = true},
  {"dtype", "dtype", "its element type; default: the default dtype", optional = true},
  REDUCTION,
  {"tensor", "weight", "weight of each class, (num_classes)", optional = true},
  {"int", "ignore_index", "a target value that is ignored", default = -100},
  {"float", "label_smoothing", "share of the target distributed uniformly over all classes",
    default = 0,
   bounds = {0, 1}},
  {"shape", "out_features", "sizes of the dimensions of positions, each with a class",
    optional = true},
})

function LinearCrossEntropyLoss:init(in_features, num_classes, bias, device, dtype, reduction,
                                     weight, ignore_index, label_smoothing, out_features)
  local name = class.typename(self)
  if weight ~= nil and (weight:dim() ~= 1 or weight:size(1) ~= num_classes) then
    errors.refuse(name, "weight", ("(%d) is needed"):format(num_classes), weight, "E_SHAPE")
  end
  if weight ~= nil then self:register_buffer("weight", weight) end
  local places, n = type(out_features) == "number" and {out_features} or out_features or {}, 1
  for _, size in ipairs(places) do n = n * size end
  self.linear = Linear {in_features, num_classes * n, bias = bias, device = device, dtype = dtype}
  self.num_classes, self.out_features = num_classes, places
  self.reduction = reduction
  self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
end

function LinearCrossEntropyLoss:forward(input, target)
  local weight, bias = self.linear.weight, self.linear.bias
  if #self.out_features > 0 then
    local shape = {self.num_classes, unpack(self.out_features)}
    if bias then bias = bias:view(shape) end
    shape[#shape + 1] = weight:size(2)
    weight = weight:view(shape)
  end
  return (functional.linear_cross_entropy(input, weight, target, {
    linear_bias = bias, weight = self.weight, reduction = self.reduction,
    ignore_index = self.ignore_index, label_smoothing = self.label_smoothing}))
end

return (layer.of(loss, OF))
