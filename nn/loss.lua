--- loss.lua -- losses as modules: how far an answer is from its target.

local class = require "moth.class"
local define = require "moth.define"
local Module = require "moth.nn.module"
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

-- Losses of pairs of numbers: input and target of the same shape.
local pairwise = {
  MSELoss = "mse_loss", L1Loss = "l1_loss",
  BCEWithLogitsLoss = "binary_cross_entropy_with_logits",
}
for name, fname in pairs(pairwise) do
  local Loss = class(name, Module)
  loss[name] = Loss
  Loss.signature = define.signature(name, {REDUCTION})
  function Loss:init(reduction)
    self.reduction = reduction
  end
  function Loss:forward(input, target)
    return (functional[fname](input, target, self.reduction))
  end
end

return loss
