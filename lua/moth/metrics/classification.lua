--- classification.lua -- metrics of true and false positives and negatives: Accuracy, Precision,
-- Recall, Specificity, FBetaScore, F1Score, StatScores.
--
-- Counts are kept for each class, for every `average`, so that metrics of one task share them in a
-- MetricCollection. Quotients are computed in f64 and returned as f32.

local class = require "moth.base.class"
local counts = require "moth.metrics.counts"
local errors = require "moth.error"
local inputs = require "moth.metrics.inputs"
local Metric = require "moth.metrics.metric"
local tasks = require "moth.metrics.tasks"

local classification = {}

local NAMES = {"tp", "fp", "tn", "fn"}

-- ---- states ----

-- The base of these metrics.
local Counted = class("Counted", Metric)

function Counted:_begin()
  local moth = require "moth"
  if self._task == "multiclass" and not self.num_classes then
    if self.average ~= "micro" then
      errors.argument(class.typename(self), "num_classes", ("average = %q needs it"):format(
        self.average))
    end
  elseif self.top_k and self.top_k > (self.num_classes or 1) then
    errors.argument(class.typename(self), "top_k", ("a number up to num_classes = %d is needed, "
      .. "got %d"):format(self.num_classes or 1, self.top_k), "E_DOMAIN")
  end
  local n = self.num_classes or self.num_labels
  local zero = moth.zeros(n and {n} or self._task == "multiclass" and {1} or {},
    {dtype = moth.int64})
  for _, name in ipairs(NAMES) do
    if self.multidim_average == "samplewise" then self:add_state(name, {}, "cat")
    else self:add_state(name, zero, "sum") end
  end
end

-- Equal for metrics with equal counts.
function Counted:_group()
  return table.concat({self._task, tostring(self.num_classes or self.num_labels),
    tostring(self.threshold), tostring(self.top_k), self.multidim_average,
    tostring(self.ignore_index), tostring(self.validate_args)}, " ")
end

local function count(self, preds, target)
  local name, ignore = class.typename(self), self.ignore_index
  local samples = self.multidim_average == "samplewise"
  if self._task == "binary" then
    if self.validate_args then inputs.check_binary(name, preds, target, ignore) end
    return counts.binary(preds, target, self.threshold, ignore, samples)
  elseif self._task == "multilabel" then
    if self.validate_args then
      inputs.check_multilabel(name, preds, target, self.num_labels, ignore)
    end
    return counts.multilabel(preds, target, self.threshold, ignore, samples)
  end
  local scores
  if self.validate_args then
    scores = inputs.check_multiclass(name, preds, target, self.num_classes, ignore)
  else
    scores = preds:dim() == target:dim() + 1
  end
  if self.top_k > 1 and not scores then
    errors.argument(name, "preds", "scores are needed for top_k, got labels, "
      .. errors.describe(preds), "E_SHAPE")
  end
  return counts.multiclass(preds, target, scores, self.num_classes, self.top_k, ignore, samples)
end

--- Adds a batch of predictions and targets. Binary: `preds` are labels 0 and 1, probabilities, or
-- logits (if one is outside 0 to 1), of target's shape. Multiclass: scores (N, C, ...) or labels
-- from 1 to C, and targets (N, ...) from 1 to C. Multilabel: as binary, (N, L, ...).
function Counted:update(preds, target)
  local results = {count(self, preds, target)}
  for i, name in ipairs(NAMES) do
    if self.multidim_average == "samplewise" then table.insert(self[name], results[i])
    else self[name]:add_(results[i]) end
  end
end

--- The value of all batches since the last reset, an f32 tensor: a number, or (C) if average is
-- "none"; with a first dimension of samples if multidim_average is "samplewise".
function Counted:compute()
  local moth, values = require "moth", {}
  for i, name in ipairs(NAMES) do
    local x = self[name]
    if type(x) == "table" then
      local n = self.num_classes or self.num_labels or self._task == "multiclass" and 1 or nil
      x = x[1] and moth.cat(x, 1) or moth.zeros{0, n}
    end
    values[i] = x:to(moth.float64)
  end
  return (self:_value(unpack(values)):to(moth.float32))
end

-- ---- values ----

local function divide(a, b, zero)
  return ((a / b):where(b:ne(0), zero or 0))
end

-- The macro or the weighted average of the values of classes, (..., C).
local function average(self, score, tp, fp, fn)
  if self.average == "none" then return score end
  local weight
  if self.average == "weighted" then
    weight = tp + fn
  elseif self._task == "multilabel" then
    weight = require("moth").ones_like(score)
  else -- absent classes do not count
    local seen = self._by_target and self.top_k > 1 and tp + fn or tp + fp + fn
    weight = seen:ne(0):to(score.dtype)
  end
  return divide(weight * score, weight:sum(-1, true)):sum(-1)
end

-- The methods of a metric that is a quotient for each class.
-- @param parts      function(self, tp, fp, tn, fn) -> numerator, denominator
-- @param by_target  top_k > 1: is a class absent if it is no target?
local function quotient(parts, by_target)
  return {
    _by_target = by_target,
    _value = function(self, tp, fp, tn, fn)
      local zero = self.zero_division
      if self._task ~= "binary" and self.average == "micro" then
        tp, fp, tn, fn = tp:sum(-1), fp:sum(-1), tn:sum(-1), fn:sum(-1)
      end
      local a, b = parts(self, tp, fp, tn, fn)
      local score = divide(a, b, zero)
      if self._task == "binary" or self.average == "micro" then return score end
      return average(self, score, tp, fp, fn)
    end,
  }
end

local function base() return Counted end

local COMMON = "multidim_average ignore_index validate_args"

-- Makes a metric.
-- @param more  further arguments; first ones are before the others
local function make(name, doc, methods, more, first)
  local before = first and first .. " " or ""
  local after = more and " " .. more or ""
  tasks.make(classification, name, {
    doc = doc, base = base, methods = methods, higher_is_better = name ~= "StatScores" or nil,
    optional_classes = true,
    binary = before .. "threshold " .. COMMON .. after,
    multiclass = before .. "num_classes top_k average " .. COMMON .. after,
    multilabel = before .. "labels threshold average " .. COMMON .. after,
    any = (first and "beta_1 " or "") .. "threshold num_classes num_labels micro multidim_average "
      .. "top_k ignore_index validate_args" .. after,
  })
end

make("Accuracy", "The share of right predictions; of a class: of its targets that are predicted.",
  quotient(function(self, tp, fp, tn, fn)
    if self._task == "multiclass" then return tp, tp + fn end
    return tp + tn, tp + fp + tn + fn
  end, true))

make("Precision", "tp / (tp + fp): the share of right ones among the predictions of a class.",
  quotient(function(_, tp, fp) return tp, tp + fp end, true), "zero_division")

make("Recall", "tp / (tp + fn): the share of the targets of a class that are predicted.",
  quotient(function(_, tp, _, _, fn) return tp, tp + fn end, true), "zero_division")

make("Specificity", "tn / (tn + fp): the share of the other targets that are not predicted as a "
  .. "class.", quotient(function(_, _, fp, tn) return tn, tn + fp end))

local function f_score(self, tp, fp, _, fn)
  local square = (self.beta or 1) ^ 2
  local a = tp * (1 + square)
  return a, a + fn * square + fp
end

make("FBetaScore", "The weighted harmonic mean of precision and recall.", quotient(f_score),
  "zero_division", "beta")
make("F1Score", "The harmonic mean of precision and recall.", quotient(f_score), "zero_division")

make("StatScores", "The numbers of true and false positives, true and false negatives, and targets "
  .. "of a class: (..., 5).", {
  _value = function(self, tp, fp, tn, fn)
    local all = require("moth").stack({tp, fp, tn, fn, tp + fn}, -1)
    if self._task == "binary" or self.average == "none" then return all end
    if self.average == "micro" then return all:sum(-2) end
    if self.average == "macro" then return all:mean(-2) end
    local weight = tp + fn
    return (all * (weight / weight:sum(-1, true)):unsqueeze(-1)):sum(-2)
  end,
})

return classification
