--- confusion.lua -- ConfusionMatrix and JaccardIndex. Both have one state, the matrix of counts.

local class = require "moth.base.class"
local counts = require "moth.metrics.counts"
local inputs = require "moth.metrics.inputs"
local Metric = require "moth.metrics.metric"
local tasks = require "moth.metrics.tasks"

local confusion = {}

-- The base of both.
local Crossed = class("Crossed", Metric)

function Crossed:_begin()
  local n = self.num_classes
  local shape = n and {n, n} or {2, 2}
  if self.num_labels then shape = {self.num_labels, 2, 2} end
  self:add_state("confmat", require("moth").zeros(shape, {dtype = require("moth").int64}), "sum")
end

function Crossed:_group()
  return table.concat({"confmat", self._task, tostring(self.num_classes or self.num_labels),
    tostring(self.threshold), tostring(self.ignore_index), tostring(self.validate_args)}, " ")
end

local function of_classes(self, preds, target)
  local name, n, ignore = class.typename(self), self.num_classes, self.ignore_index
  local scores
  if self.validate_args then
    scores = inputs.check_multiclass(name, preds, target, n, ignore)
  else
    scores = preds:dim() == target:dim() + 1
  end
  preds, target = inputs.classes(preds, target, scores, 1)
  preds, target = preds:flatten(), target:flatten()
  local one = require("moth").ones_like(target)
  if ignore then
    local valid = target:ne(ignore)
    one = one:where(valid, 0)
    preds, target = preds:where(valid, 1), target:where(valid, 1)
  end
  self.confmat:view(-1):scatter_add_(1, (target - 1) * n + preds, one)
end

--- Adds a batch of predictions and targets, as the other metrics of classification.
function Crossed:update(preds, target)
  local name, ignore = class.typename(self), self.ignore_index
  if self._task == "multiclass" then return of_classes(self, preds, target) end
  local tp, fp, tn, fn
  if self._task == "binary" then
    if self.validate_args then inputs.check_binary(name, preds, target, ignore) end
    tp, fp, tn, fn = counts.binary(preds, target, self.threshold, ignore, false)
  else
    if self.validate_args then
      inputs.check_multilabel(name, preds, target, self.num_labels, ignore)
    end
    tp, fp, tn, fn = counts.multilabel(preds, target, self.threshold, ignore, false)
  end
  self.confmat:add_(require("moth").stack({tn, fp, fn, tp}, -1):view(self.confmat.shape))
end

local function float(x) return x:to(require("moth").float64) end

local function divided(a, b, zero)
  return ((a / b):where(b:ne(0), zero or 0))
end

local function to_f32(x) return x:to(require("moth").float32) end

local function base() return Crossed end

local DIMS = {["true"] = {-1}, pred = {-2}, all = {-2, -1}}

tasks.make(confusion, "ConfusionMatrix", {
  doc = "The numbers of samples by target (rows) and prediction (columns).", base = base,
  binary = "threshold ignore_index normalize validate_args",
  multiclass = "classes ignore_index normalize validate_args",
  multilabel = "labels threshold ignore_index normalize validate_args",
  any = "threshold num_classes num_labels normalize ignore_index validate_args",
  methods = {
    compute = function(self)
      if self.normalize == "none" then return self.confmat end
      local x = float(self.confmat)
      return to_f32(divided(x, x:sum(DIMS[self.normalize], true)))
    end,
  },
})

local function parts(self, x)
  if self._task == "multilabel" then
    local both = x:select(2, 2):select(2, 2)
    return both, both + x:select(2, 1):select(2, 2) + x:select(2, 2):select(2, 1)
  end
  local both = x:diagonal()
  return both, x:sum(1) + x:sum(2) - both
end

-- The weights of classes in an average; an ignored class has none.
local function weights(self, x, ignored)
  if self.average == "weighted" then
    return self._task == "multilabel" and x:select(2, 2):sum(2) or x:sum(2)
  end
  if self._task == "multilabel" then
    return require("moth").ones(x:size(1), {dtype = x.dtype, device = x.device})
  end
  local w = (x:sum(1) + x:sum(2)):ne(0):to(x.dtype)
  if ignored then w:select(1, ignored):fill_(0) end
  return w
end

tasks.make(confusion, "JaccardIndex", {
  doc = "The intersection over the union of the predictions and targets of a class.", base = base,
  higher_is_better = true,
  binary = "threshold ignore_index validate_args zero_division",
  multiclass = "classes average ignore_index validate_args zero_division",
  multilabel = "labels threshold average ignore_index validate_args zero_division",
  any = "threshold num_classes num_labels average ignore_index validate_args zero_division",
  methods = {
    compute = function(self)
      local x = float(self.confmat)
      if self._task == "binary" then
        return to_f32(divided(x[2][2], x[1][2] + x[2][1] + x[2][2], self.zero_division))
      end
      local a, b = parts(self, x)
      local ignored = self._task == "multiclass" and self.ignore_index
      if not (ignored and ignored >= 1 and ignored <= x:size(1)) then ignored = nil end
      if self.average == "micro" then
        b = b:sum() - (ignored and b[ignored] or 0)
        return to_f32(divided(a:sum(), b, self.zero_division))
      end
      local index = divided(a, b, self.zero_division)
      if self.average == "none" then return to_f32(index) end
      local w = weights(self, x, ignored)
      return to_f32((w * index / w:sum()):sum())
    end,
  },
})

return confusion
