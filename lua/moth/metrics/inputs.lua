--- inputs.lua -- predictions and targets of classification metrics: checks, and conversion to
-- labels. Classes count from 1. Labels of the tasks "binary" and "multilabel" are 0 and 1.
--
-- Values are checked on the CPU only, so that an update does not wait for a GPU; there the ops that
-- use a label as a position check it.

local errors = require "moth.error"
local lib = require "moth.binding.lib"

local inputs = {}

-- ---- arguments that many metrics have ----

--- Rows of constructor arguments, by name.
inputs.rows = {
  task = {"enum", "task", "the kind of classification", required = true,
    choices = {"binary", "multiclass", "multilabel"}},
  num_classes = {"int", "num_classes", "the number of classes", optional = true, bounds = {2}},
  classes = {"int", "num_classes", "the number of classes", bounds = {2}},
  num_labels = {"int", "num_labels", "the number of labels", optional = true, bounds = {2}},
  labels = {"int", "num_labels", "the number of labels", bounds = {2}},
  threshold = {"float", "threshold", "probabilities above it are predictions of 1", default = 0.5,
    bounds = {0, 1}},
  average = {"enum", "average", "\"micro\": of all classes together, \"macro\": the mean of the "
    .. "classes, \"weighted\": weighted by the targets of a class, \"none\": one value for each "
    .. "class", choices = {"macro", "micro", "weighted", "none"}},
  micro = {"enum", "average", "as \"macro\" for the classes; \"micro\": of all classes together",
    choices = {"micro", "macro", "weighted", "none"}},
  multidim_average = {"enum", "multidim_average", "\"samplewise\": one value for each sample",
    choices = {"global", "samplewise"}},
  top_k = {"int", "top_k", "predicted: a target with one of the k highest scores", default = 1,
    bounds = {1}},
  ignore_index = {"int", "ignore_index", "targets of this value are left out", optional = true},
  validate_args = {"bool", "validate_args", "check the inputs?", default = true},
  normalize = {"enum", "normalize", "\"true\": divide by the targets of a class, \"pred\": by its "
    .. "predictions, \"all\": by their number", choices = {"none", "true", "pred", "all"}},
  thresholds = {"any", "thresholds", "a number of thresholds from 0 to 1, or a list or tensor of "
    .. "them: the memory is then fixed; default: all predictions are kept", optional = true},
  curve_average = {"enum", "average", "\"none\": a curve for each class, \"macro\": their mean, "
    .. "\"micro\": the curve of all classes together", choices = {"none", "macro", "micro"}},
  class_average = {"enum", "average", "\"macro\": the mean of the classes, \"weighted\": weighted "
    .. "by their targets, \"none\": one value for each class",
    choices = {"macro", "weighted", "none"}},
  max_fpr = {"float", "max_fpr", "only the part of the curve up to this false positive rate, "
    .. "scaled to 0.5 for chance and 1 for perfect scores", optional = true,
    bounds = {0, 1, open = true}},
  zero_division = {"float", "zero_division", "the value of 0 / 0", default = 0, bounds = {0, 1}},
  beta = {"float", "beta", "the weight of recall", bounds = {0, open = true}},
  beta_1 = {"float", "beta", "the weight of recall", default = 1, bounds = {0, open = true}},
}

--- A list of rows from their names in one text.
function inputs.args(names)
  local list = {}
  for name in names:gmatch "%S+" do list[#list + 1] = inputs.rows[name] end
  return list
end

--- Rows of `preds` and `target` for functions.
inputs.preds = {"tensor", "preds", "predictions: scores, probabilities or labels"}
inputs.target = {"tensor", "target", "the true labels, of the same shape; without the dimension of "
  .. "the classes if `preds` are scores of classes"}

-- ---- checks ----

local function refuse(name, argument, text, code)
  errors.argument(name, argument, text, code or "E_SHAPE")
end

--- Raises unless both are tensors.
function inputs.tensors(name, preds, target)
  if not lib.istensor(preds) then
    errors.refuse(name, "preds", "a tensor is needed", preds, "E_TYPE")
  elseif not lib.istensor(target) then
    errors.refuse(name, "target", "a tensor is needed", target, "E_TYPE")
  end
end

local function same_shape(name, preds, target)
  if preds.shape == target.shape then return end
  refuse(name, "preds", ("the shape of target, %s, is needed, got %s"):format(
    tostring(target.shape), tostring(preds.shape)))
end

-- Checks that elements of x, except ignored ones, are from low to high.
local function in_range(name, argument, x, low, high, ignore)
  if x.is_cuda or lib.capture or x:numel() == 0 then return end
  local bad = x:lt(low):logical_or(x:gt(high))
  if ignore then bad = bad:logical_and(x:ne(ignore)) end
  if not bad:any():item() then return end
  local value = x:masked_select(bad)[1]:item()
  refuse(name, argument, ("labels from %d to %d are needed, got %s"):format(low, high,
    tostring(value):gsub("LL$", "")), "E_INDEX")
end

inputs.in_range = in_range

-- ---- formats ----

--- Probabilities: applies the sigmoid, or the softmax over dimension 2, if a value is outside 0 to
-- 1. The test stays on the device.
-- @param valid  a mask that can be broadcast to x: other elements are not tested; optional
function inputs.probabilities(x, how, valid)
  if x:numel() == 0 then return x end
  local outside = x:lt(0):logical_or(x:gt(1))
  if valid then outside = outside:logical_and(valid) end
  local other = how == "softmax" and x:softmax(2) or x:sigmoid()
  return (x:where(outside:any():logical_not(), other))
end

--- Binary and multilabel labels: a mask of the predictions of 1.
function inputs.decide(preds, threshold, valid)
  if preds:is_floating_point() then
    return (inputs.probabilities(preds, "sigmoid", valid):gt(threshold))
  end
  return (preds:ne(0))
end

--- Checks the inputs of binary metrics.
function inputs.check_binary(name, preds, target, ignore)
  inputs.tensors(name, preds, target)
  same_shape(name, preds, target)
  in_range(name, "target", target, 0, 1, ignore)
  if not preds:is_floating_point() then in_range(name, "preds", preds, 0, 1) end
end

--- Checks the inputs of multilabel metrics, (N, L, ...).
function inputs.check_multilabel(name, preds, target, labels, ignore)
  inputs.check_binary(name, preds, target, ignore)
  if preds:dim() < 2 or preds:size(2) ~= labels then
    refuse(name, "preds", ("(N, %d, ...) with num_labels = %d is needed, got %s"):format(labels,
      labels, tostring(preds.shape)))
  end
end

-- Checks the shapes of multiclass inputs. Returns true if preds have a dimension of classes.
local function has_scores(name, preds, target, classes)
  if preds:dim() == target:dim() then
    same_shape(name, preds, target)
    return false
  end
  local fits = preds:dim() == target:dim() + 1
  for d = 1, target:dim() do
    fits = fits and preds:size(d == 1 and 1 or d + 1) == target:size(d)
  end
  if not fits then
    refuse(name, "preds", ("(N, C, ...) scores or labels of the shape of target, %s, are needed, "
      .. "got %s"):format(tostring(target.shape), tostring(preds.shape)))
  elseif not preds:is_floating_point() then
    refuse(name, "preds", "scores of classes are floating-point numbers, got "
      .. errors.describe(preds), "E_DTYPE")
  elseif classes and preds:size(2) ~= classes then
    refuse(name, "preds", ("num_classes = %d scores are needed, got %s"):format(classes,
      tostring(preds.shape)))
  end
  return true
end

--- Checks the inputs of multiclass metrics. Returns true if preds have a dimension of classes.
function inputs.check_multiclass(name, preds, target, classes, ignore)
  inputs.tensors(name, preds, target)
  local scores = has_scores(name, preds, target, classes)
  if target:is_floating_point() then
    refuse(name, "target", "integer labels are needed, got " .. errors.describe(target), "E_DTYPE")
  end
  local high = classes or scores and preds:size(2) or math.huge
  if high < math.huge then
    in_range(name, "target", target, 1, high, ignore)
    if not scores then in_range(name, "preds", preds, 1, high, ignore) end
  end
  return scores
end

inputs.has_scores = has_scores

-- The predicted label for top_k = k: the target if it has one of the k highest scores, else the
-- label of the highest score. preds (N, C, ...), target (N, ...).
local function best_of(preds, target, k)
  local _, top = preds:topk(k, 2)
  local hit = top:eq(target:unsqueeze(2)):any(2)
  return (target:to(top.dtype):where(hit, top:select(2, 1)))
end

--- Multiclass labels.
-- @param scores  have preds a dimension of classes?
-- @return preds and target as i64 of the target's shape
function inputs.classes(preds, target, scores, k)
  local moth = require "moth"
  if scores then
    if k > 1 then preds = best_of(preds, target, k) else preds = preds:argmax(2) end
  end
  return preds:to(moth.int64), target:to(moth.int64)
end

return inputs
