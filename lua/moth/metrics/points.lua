--- points.lua -- the points of precision-recall and ROC curves, and areas under them.
--
-- The data of one curve are {tp, fp, positives, negatives, thresholds}: numbers of true and false
-- positives in f64, by falling threshold without `binned`, by the given thresholds with it.
-- `defined`: recall is 1 if there are no positives, else NaN.

local points = {}

-- The counts of predictions above each distinct probability, from the largest on.
local function cumulated(preds, truth)
  local moth = require "moth"
  local n = preds:size(1)
  truth = truth:to(moth.int64)
  if n == 0 then
    local none = moth.zeros(0, {dtype = moth.float64, device = preds.device})
    return {
      tp = none, fp = none, thresholds = preds, positives = none:sum(), negatives = none:sum(),
    }
  end
  local sorted, order = preds:sort({descending = true})
  local tp = truth:index_select(1, order):cumsum(1)
  local last = moth.ones(n, {dtype = moth.bool, device = preds.device})
  if n > 1 then last:narrow(1, 1, n - 1):copy_(sorted:narrow(1, 1, n - 1):ne(
    sorted:narrow(1, 2, n - 1))) end
  local at = last:nonzero():flatten()
  tp = tp:index_select(1, at)
  return {
    tp = tp:to(moth.float64), fp = (at - tp):to(moth.float64),
    thresholds = sorted:index_select(1, at),
    positives = truth:sum(), negatives = n - truth:sum(),
  }
end

--- The data of all curves from probabilities (n, C) and targets.
-- @param micro  one curve of all classes
function points.all(preds, target, task, ignore, micro)
  local valid = ignore and target:ne(ignore)
  local width = preds:size(2)
  if task == "multiclass" then
    if valid then
      local at = valid:nonzero():flatten()
      preds, target = preds:index_select(1, at), target:index_select(1, at)
    end
    valid = nil
  end
  local function truth_of(k)
    if task == "multiclass" then return target:eq(k) end
    return target:select(2, k):eq(1)
  end
  local list = {}
  for k = 1, width do
    local p, truth = preds:select(2, k), truth_of(k)
    if valid then
      local at = valid:select(2, k):nonzero():flatten()
      p, truth = p:index_select(1, at), truth:index_select(1, at)
    end
    list[k] = {p, truth}
  end
  if micro then
    local moth, p, truth = require "moth", {}, {}
    for k, one in ipairs(list) do p[k], truth[k] = one[1], one[2] end
    list = {{moth.cat(p), moth.cat(truth)}}
  end
  for k, one in ipairs(list) do
    list[k] = cumulated(one[1], one[2])
    list[k].defined = task ~= "multiclass" or micro
  end
  return list
end

--- The data of a curve from counts (T, 2, 2).
function points.binned(confmat, thresholds)
  local moth = require "moth"
  local first = confmat:select(1, 1):sum(2)
  return {
    tp = confmat:select(2, 2):select(2, 2):to(moth.float64),
    fp = confmat:select(2, 1):select(2, 2):to(moth.float64),
    thresholds = thresholds, binned = true, negatives = first:select(1, 1),
    positives = first:select(1, 2),
  }
end

--- The number of targets of a class.
function points.positives(one) return one.positives end

local function ends(x, value, first)
  local moth = require "moth"
  local more = moth.full({1}, value, {dtype = x.dtype, device = x.device})
  return (moth.cat(first and {more, x} or {x, more}))
end

--- Precision, recall, thresholds of one curve, by rising threshold; a last point (1, 0).
function points.precision_recall(one)
  local tp, fp = one.tp, one.fp
  local precision, recall = tp / (tp + fp), tp / one.positives
  if one.defined then recall = recall:where(one.positives:ne(0), 1) end -- no targets of 1
  if one.binned then return ends(precision, 1), ends(recall, 0), one.thresholds end
  return ends(precision:flip(1), 1), ends(recall:flip(1), 0), one.thresholds:flip(1)
end

local function rate(x, all)
  return ((x / all):where(all:ne(0), 0))
end

--- False positive rate, true positive rate, thresholds, by falling threshold.
function points.roc(one)
  local fpr, tpr = rate(one.fp, one.negatives), rate(one.tp, one.positives)
  if one.binned then return fpr:flip(1), tpr:flip(1), one.thresholds:flip(1) end
  return ends(fpr, 0, true), ends(tpr, 0, true), ends(one.thresholds, 1, true)
end

local function trapezoids(x, y) return (require("moth").trapezoid(y, x)) end

-- The area up to a false positive rate, scaled (McClish 1989).
local function partial_area(x, y, most)
  local moth = require "moth"
  if x:sum():item() == 0 or y:sum():item() == 0 then return trapezoids(x, y) end
  local limit = moth.full({1}, most, {dtype = x.dtype, device = x.device})
  local stop = moth.searchsorted(x, limit, {right = true}):item() -- the first above the limit
  if stop <= x:size(1) then
    local x1, y1, x2, y2 = x[stop - 1], y[stop - 1], x[stop], y[stop]
    local last = y1 + (y2 - y1) * ((most - x1) / (x2 - x1))
    y = moth.cat{y:narrow(1, 1, stop - 1), last:reshape(1)}
    x = moth.cat{x:narrow(1, 1, stop - 1), limit}
  end
  local least = most * most / 2
  return ((trapezoids(x, y) - least) / (most - least) + 1) / 2
end

--- The area under a ROC curve.
function points.roc_area(one, metric)
  local x, y = points.roc(one)
  local most = metric.max_fpr
  if most and most < 1 then return partial_area(x, y, most) end
  return trapezoids(x, y)
end

--- The average precision of one curve. NaN for a class without targets, 0 with thresholds.
function points.average_precision(one, metric)
  local precision, recall = points.precision_recall(one)
  if one.binned or metric._task == "binary" then
    precision = precision:where(precision:isnan():logical_not(), 0)
    recall = recall:where(recall:isnan():logical_not(), 0)
  end
  local n = recall:size(1) - 1
  return ((recall:narrow(1, 1, n) - recall:narrow(1, 2, n)) * precision:narrow(1, 1, n)):sum()
end

-- y at positions x, linear between the points of a curve (xs, ys).
local function interpolated(x, xs, ys)
  local n = xs:size(1) - 1
  local run = xs:narrow(1, 2, n) - xs:narrow(1, 1, n)
  local slope = ((ys:narrow(1, 2, n) - ys:narrow(1, 1, n)) / run):where(run:ne(0), 0)
  local start = ys:narrow(1, 1, n) - slope * xs:narrow(1, 1, n)
  local at = x:unsqueeze(2):ge(xs:unsqueeze(1)):sum(2):clamp(1, n)
  return slope:index_select(1, at) * x + start:index_select(1, at)
end

--- The mean of several curves: the x of all of them, the mean y, and all thresholds.
-- @param falling  sort the thresholds from the largest on?
function points.mean_curve(a, b, thresholds, falling)
  local moth = require "moth"
  local x = moth.cat(a):sort()
  local sum = moth.zeros_like(x)
  for k = 1, #a do sum = sum + interpolated(x, a[k], b[k]) end
  return x, sum / #a, (moth.cat(thresholds):sort({descending = falling or false}))
end

return points
