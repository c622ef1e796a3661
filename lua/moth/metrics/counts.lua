--- counts.lua -- true and false positives and negatives of the three tasks.
--
-- Each function returns tp, fp, tn, fn as i64. With `samples` there is a first dimension of
-- samples; multiclass and multilabel counts have a last dimension of classes or labels. There is no
-- list of positions whose length depends on values, so that nothing is read from a GPU.

local inputs = require "moth.metrics.inputs"

local counts = {}

-- tp, fp, tn, fn from masks, summed over dimensions; `valid` is a mask or nil.
local function of_masks(guess, truth, valid, dims)
  local function count(mask)
    if valid then mask = mask:logical_and(valid) end
    return (mask:sum(dims))
  end
  local not_guess, not_truth = guess:logical_not(), truth:logical_not()
  return count(guess:logical_and(truth)), count(guess:logical_and(not_truth)),
    count(not_guess:logical_and(not_truth)), count(not_guess:logical_and(truth))
end

--- Counts of the binary task.
function counts.binary(preds, target, threshold, ignore, samples)
  local valid = ignore and target:ne(ignore)
  local guess, truth = inputs.decide(preds, threshold, valid), target:eq(1)
  if samples then
    local n = target:size(1)
    guess, truth, valid = guess:reshape(n, -1), truth:reshape(n, -1),
      valid and valid:reshape(n, -1)
    return of_masks(guess, truth, valid, 2)
  end
  return of_masks(guess:flatten(), truth:flatten(), valid and valid:flatten(), 1)
end

--- Counts of the multilabel task: (N, L, ...).
function counts.multilabel(preds, target, threshold, ignore, samples)
  local n, labels = target:size(1), target:size(2)
  local function three(x) return x and x:reshape(n, labels, -1) end
  local valid = ignore and target:ne(ignore)
  return of_masks(three(inputs.decide(preds, threshold, valid)), three(target:eq(1)), three(valid),
    samples and {3} or {1, 3})
end

-- Counts of labels from 1 to n, in rows: preds and target are (rows, some).
local function of_labels(preds, target, n, valid)
  local moth = require "moth"
  local int64 = moth.int64
  if valid then
    preds, target = preds:where(valid, 1), target:where(valid, 1)
  end
  local hit = preds:eq(target)
  if valid then hit = hit:logical_and(valid) end
  local rows = target:size(1)
  local one = valid and valid:to(int64) or moth.ones_like(target)
  local zero = moth.zeros({rows, n}, {dtype = int64, device = target.device})
  local tp = zero:scatter_add(2, target, hit:to(int64))
  local fp = zero:scatter_add(2, preds, one):sub_(tp)
  local fn = zero:scatter_add(2, target, one):sub_(tp)
  local all = valid and valid:sum(2, {keepdim = true}) or target:size(2)
  return tp, fp, tp:add(fp):add_(fn):neg_():add_(all), fn
end

--- Counts of the multiclass task.
-- @param scores  have preds a dimension of classes?
-- @param n       the number of classes; nil: all classes together
function counts.multiclass(preds, target, scores, n, k, ignore, samples)
  preds, target = inputs.classes(preds, target, scores, k)
  local rows = samples and target:size(1) or 1
  preds, target = preds:reshape(rows, -1), target:reshape(rows, -1)
  local valid = ignore and target:ne(ignore)
  local tp, fp, tn, fn
  if n then
    tp, fp, tn, fn = of_labels(preds, target, n, valid)
  else
    local hit = preds:eq(target)
    local miss = hit:logical_not()
    if valid then hit, miss = hit:logical_and(valid), miss:logical_and(valid) end
    tp, fp = hit:sum(2, true), miss:sum(2, true)
    tn, fn = tp * 0, fp:clone()
  end
  if samples then return tp, fp, tn, fn end
  return tp:squeeze(1), fp:squeeze(1), tn:squeeze(1), fn:squeeze(1)
end

return counts
