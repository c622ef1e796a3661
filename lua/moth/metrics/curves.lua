--- curves.lua -- PrecisionRecallCurve, ROC, AUROC, AveragePrecision.
--
-- Without `thresholds` the states are lists of all probabilities and targets. With them the state
-- is a matrix of counts for each threshold (T, C, 2, 2), C = 1 for the binary task, which is
-- computed from a histogram: an update needs no comparison of each probability with each threshold.
-- Ignored targets are taken out when a value is computed, since their number is not known before.

local class = require "moth.base.class"
local errors = require "moth.error"
local inputs = require "moth.metrics.inputs"
local lib = require "moth.binding.lib"
local Metric = require "moth.metrics.metric"
local points = require "moth.metrics.points"
local tasks = require "moth.metrics.tasks"

local curves = {}

-- ---- thresholds ----

local function read_thresholds(name, value)
  if value == nil then return nil end
  local moth = require "moth"
  if type(value) == "number" then
    if value < 2 or value % 1 ~= 0 then
      errors.refuse(name, "thresholds", "a number of thresholds from 2 on is needed", value,
        "E_DOMAIN")
    end
    return moth.linspace(0, 1, value, {dtype = moth.float32})
  end
  local x = lib.is_plain(value) and moth.tensor(value, {dtype = moth.float32}) or value
  if not lib.istensor(x) or x:dim() ~= 1 or x:numel() == 0 then
    errors.refuse(name, "thresholds", "a number, a list or a vector of thresholds is needed", value)
  end
  return x:detach():clone()
end

-- ---- states ----

-- The base of these metrics.
local Curve = class("Curve", Metric)

function Curve:_begin()
  local moth, name = require "moth", class.typename(self)
  local thresholds = read_thresholds(name, self.thresholds)
  self.thresholds = thresholds
  if thresholds then
    local sorted, order = thresholds:sort()
    self._sorted, self._order = sorted, order
    for _, field in ipairs {"thresholds", "_sorted", "_order"} do
      lib.check(lib.C.moth_keep_always(lib.ctx, self[field]), name)
    end
    self:add_state("confmat", moth.zeros({thresholds:size(1), self:_width(), 2, 2},
      {dtype = moth.int64}), "sum")
  else
    self:add_state("preds", {}, "cat")
    self:add_state("target", {}, "cat")
  end
end

-- The number of curves.
function Curve:_width() return self.num_classes or self.num_labels or 1 end

function Curve:_group()
  local thresholds = self.thresholds and table.concat(self.thresholds:tolist(), ",") or "all"
  return table.concat({"curve", self._task, self:_width(), thresholds,
    tostring(self.ignore_index), tostring(self.validate_args)}, " ")
end

function Curve:to(device)
  Metric.to(self, device)
  for _, field in ipairs {"thresholds", "_sorted", "_order"} do
    if self[field] then
      self[field] = self[field]:to(device)
      lib.check(lib.C.moth_keep_always(lib.ctx, self[field]), "to")
    end
  end
  return self
end

-- Checks the inputs. Returns probabilities (n, C) and targets: (n, C), or (n) of multiclass tasks.
local function format(self, preds, target)
  local name, ignore, width = class.typename(self), self.ignore_index, self:_width()
  inputs.tensors(name, preds, target)
  if not preds:is_floating_point() then
    errors.argument(name, "preds", "floating-point scores are needed, got "
      .. errors.describe(preds), "E_DTYPE")
  end
  local valid = ignore and target:ne(ignore)
  if self._task == "multiclass" then
    if self.validate_args and not inputs.check_multiclass(name, preds, target, width, ignore) then
      errors.argument(name, "preds", "(N, C, ...) scores are needed, got "
        .. errors.describe(preds), "E_SHAPE")
    end
    local p = inputs.probabilities(preds, "softmax", valid and valid:unsqueeze(2))
    return p:movedim(2, -1):reshape(-1, width), target:flatten()
  end
  if self._task == "multilabel" then
    if self.validate_args then inputs.check_multilabel(name, preds, target, width, ignore) end
    local p = inputs.probabilities(preds, "sigmoid", valid)
    return p:movedim(2, -1):reshape(-1, width), target:movedim(2, -1):reshape(-1, width)
  end
  if self.validate_args then inputs.check_binary(name, preds, target, ignore) end
  return inputs.probabilities(preds, "sigmoid", valid):reshape(-1, 1), target:reshape(-1, 1)
end

-- Adds to the counts: a histogram of the number of thresholds up to each probability, summed from
-- its end.
local function count(self, preds, target)
  local moth, width = require "moth", self:_width()
  local bins = self._sorted:size(1) + 1
  local class_of = moth.arange(width, {device = preds.device})
  local truth = self._task == "multiclass" and target:unsqueeze(2):eq(class_of + 1) or target:eq(1)
  local one
  if self.ignore_index then
    one = target:ne(self.ignore_index):to(moth.int64):reshape(preds:size(1), -1)
      :expand(preds.shape):flatten()
  else
    one = moth.ones(preds:numel(), {dtype = moth.int64, device = preds.device})
  end
  preds = preds:masked_fill(preds:isnan(), -math.huge)
  local passed = moth.searchsorted(self._sorted, preds:contiguous(), {right = true}) - 1
  local index = (passed * width + class_of) * 2 + truth:to(moth.int64) + 1
  local found = moth.zeros(bins * width * 2, {dtype = moth.int64, device = preds.device})
    :scatter_add_(1, index:flatten(), one):view(bins, width, 2)
  local above = found:flip(1):cumsum(1):flip(1)
  local positive = above:narrow(1, 2, bins - 1)
  local both = moth.stack({above:narrow(1, 1, 1) - positive, positive}, -1)
  self.confmat:index_add_(1, self._order, both)
end

--- Adds a batch of probabilities or logits (if one is outside 0 to 1), and targets. Binary: of
-- equal shape. Multiclass: (N, C, ...) and (N, ...) from 1 to C. Multilabel: (N, L, ...).
function Curve:update(preds, target)
  preds, target = format(self, preds, target)
  if self.thresholds then return count(self, preds, target) end
  table.insert(self.preds, preds)
  table.insert(self.target, target)
end

-- ---- values ----

-- The data of each curve: a list of {preds =, truth =} or {confmat =, thresholds =}. Without
-- ignored targets. micro: one curve of all.
local function data(self, micro)
  local width = self:_width()
  if self.thresholds then
    local x = self.confmat
    if micro then return {points.binned(x:sum(2), self.thresholds)} end
    local list = {}
    for k = 1, width do list[k] = points.binned(x:select(2, k), self.thresholds) end
    return list
  end
  local moth = require "moth"
  local preds = self.preds[1] and moth.cat(self.preds, 1) or moth.zeros(0, width)
  local target = self.target[1] and moth.cat(self.target, 1)
    or moth.zeros(self._task == "multiclass" and {0} or {0, width}, {dtype = moth.int64})
  return points.all(preds, target, self._task, self.ignore_index, micro)
end

-- Returns three vectors for one curve. For several curves each is a list of vectors, or a matrix if
-- thresholds are given.
local function curves_of(self, f)
  local average = self.average
  if self._task == "binary" then return f(data(self)[1]) end
  if average == "micro" then return f(data(self, true)[1]) end
  local a, b, c = {}, {}, {}
  for k, one in ipairs(data(self)) do a[k], b[k], c[k] = f(one) end
  if average == "macro" then return points.mean_curve(a, b, c, f == points.roc) end
  if not self.thresholds then return a, b, c end
  local moth = require "moth"
  return (moth.stack(a)), (moth.stack(b)), c[1]
end

local function in_f32(x)
  if lib.is_plain(x) then
    local list = {}
    for i, one in ipairs(x) do list[i] = in_f32(one) end
    return list
  end
  return x:to(require("moth").float32)
end

local function base() return Curve end

local function curve(name, doc, f)
  tasks.make(curves, name, {
    doc = doc, base = base,
    binary = "thresholds ignore_index validate_args",
    multiclass = "classes thresholds curve_average ignore_index validate_args",
    multilabel = "labels thresholds ignore_index validate_args",
    any = "thresholds num_classes num_labels curve_average ignore_index validate_args",
    methods = {
      compute = function(self)
        local a, b, c = curves_of(self, f)
        return in_f32(a), in_f32(b), c
      end,
    },
  })
end

curve("PrecisionRecallCurve", "Precision, recall and thresholds: three vectors, or lists of "
  .. "vectors, one for each class.", points.precision_recall)
curve("ROC", "False positive rate, true positive rate and thresholds: three vectors, or lists of "
  .. "vectors, one for each class.", points.roc)

-- The mean of the values of classes, without NaNs; weighted by their targets.
local function reduced(self, values, list)
  local moth = require "moth"
  local x = moth.stack(values)
  if self.average == "none" then return x end
  local known = x:isnan():logical_not()
  x = x:where(known, 0)
  if self.average == "macro" then return x:sum() / known:sum() end
  local weights = {}
  for k, one in ipairs(list) do weights[k] = points.positives(one) end
  local w = moth.stack(weights):to(x.dtype):where(known, 0)
  local all = w:sum()
  return (x * w / all):sum():where(all:ne(0), 0)
end

local function area(name, doc, f, rows)
  rows.doc, rows.base, rows.higher_is_better = doc, base, true
  rows.methods = {
    compute = function(self)
      local micro = self.average == "micro"
      local list = data(self, micro)
      if micro or self._task == "binary" then return in_f32(f(list[1], self)) end
      local values = {}
      for k, one in ipairs(list) do values[k] = f(one, self) end
      return in_f32(reduced(self, values, list))
    end,
  }
  tasks.make(curves, name, rows)
end

area("AUROC", "The area under the ROC curve.", points.roc_area, {
  binary = "max_fpr thresholds ignore_index validate_args",
  multiclass = "classes class_average thresholds ignore_index validate_args",
  multilabel = "labels average thresholds ignore_index validate_args",
  any = "thresholds num_classes num_labels average max_fpr ignore_index validate_args",
})

area("AveragePrecision", "The mean of the precisions at all thresholds, weighted by the increase "
  .. "of recall.", points.average_precision, {
  binary = "thresholds ignore_index validate_args",
  multiclass = "classes class_average thresholds ignore_index validate_args",
  multilabel = "labels average thresholds ignore_index validate_args",
  any = "thresholds num_classes num_labels average ignore_index validate_args",
})

return curves
