-- moth.metrics.Metric and MetricCollection: updates, states, merges, errors. Values of the metrics
-- are in golden_spec.lua.

local moth = require "moth"
local raises = require("spec.support.refusals").fails
local metrics, nn = moth.metrics, moth.nn

local function near(wanted, x) assert.near(wanted, x:item(), 1e-6) end

local Hits = nn.class("Hits", metrics.Metric)
function Hits:init()
  self:add_state("hits", 0, "sum")
  self:add_state("last", {}, "cat")
end
function Hits:update(preds, target)
  self.hits:add_(preds:eq(target):sum())
  table.insert(self.last, preds)
end
function Hits:compute() return self.hits, moth.cat(self.last) end

describe("a metric", function()
  it("returns the value of a batch when it is called, and that of all from compute", function()
    local mean = metrics.MeanMetric()
    near(1, mean(1))
    near(4, mean(moth.tensor { 3, 5 }))
    near(3, mean:compute())
    assert.equal(2, mean.update_count)
    mean:reset()
    assert.equal(0, mean.update_count)
    near(7, mean(7))
  end)

  it("is unchanged after an update that raises", function()
    local accuracy = metrics.Accuracy { task = "multiclass", num_classes = 3 }
    accuracy:update(moth.tensor { 1LL, 2LL }, moth.tensor { 1LL, 3LL })
    raises("labels from 1 to 3 are needed, got 4", function()
      return accuracy(moth.tensor { 1LL }, moth.tensor { 4LL })
    end)
    near(0.5, accuracy:compute())
    assert.equal(1, accuracy.update_count)
  end)

  it("of a user's class has states as fields", function()
    local hits = Hits()
    hits:update(moth.tensor { 1, 2, 3 }, moth.tensor { 1, 0, 3 })
    hits:update(moth.tensor { 4 }, moth.tensor { 4 })
    local sum, all = hits:compute()
    near(3, sum)
    assert.same({ 1, 2, 3, 4 }, all:tolist())
    hits.hits = moth.tensor(8)
    near(8, (hits:compute()))
    assert.same({ { name = "hits", reduce = "sum" }, { name = "last", reduce = "cat" } },
      (function()
        local list = hits:states()
        for _, state in ipairs(list) do state.value = nil end
        return list
      end)())
  end)

  it("keeps its states when a scope ends, and copies what it keeps", function()
    local hits, x = Hits(), moth.tensor { 1, 2 }
    moth.scope(function() hits:update(x, moth.zeros(2)) end)
    x:zero_()
    local mean = moth.scope(function()
      local m = metrics.MeanMetric()
      m:update(3)
      return m
    end)
    near(3, mean:compute())
    assert.same({ 1, 2 }, select(2, hits:compute()):tolist())
  end)

  it("records no gradients", function()
    local w = moth.ones(2, { requires_grad = true })
    local mean, hits = metrics.MeanMetric(), Hits()
    mean:update((w * 3):sum())
    hits:update(w * 2, w)
    assert.is_false(mean.mean_value.requires_grad)
    assert.is_false(hits.last[1].requires_grad)
    assert.is_false(mean:compute().requires_grad)
  end)

  it("does not return a state that the next update overwrites", function()
    local hits = Hits()
    hits:update(moth.tensor { 1 }, moth.tensor { 1 })
    local before = hits:compute()
    hits:update(moth.tensor { 1 }, moth.tensor { 1 })
    near(1, before)
  end)

  it("saves and loads its states, also through a file", function()
    local path = os.tmpname()
    local one = metrics.MulticlassAccuracy { num_classes = 3, average = "none" }
    one:update(moth.tensor { 1LL, 2LL, 2LL }, moth.tensor { 1LL, 2LL, 3LL })
    moth.save({ accuracy = one:state_dict() }, path)
    local two = metrics.MulticlassAccuracy { num_classes = 3, average = "none" }
    two:load_state_dict(moth.load(path).accuracy)
    os.remove(path)
    assert.same({ 1, 1, 0 }, two:compute():tolist())
    assert.equal(1, two.update_count)
    two:update(moth.tensor { 3LL }, moth.tensor { 3LL })
    assert.same({ 1, 1, 0.5 }, two:compute():tolist())
    assert.same({ 1, 1, 0 }, one:compute():tolist())
  end)

  it("refuses states of another metric", function()
    local accuracy = metrics.MulticlassAccuracy(3)
    local mean = metrics.MeanMetric()
    raises("'other' to 'merge'", function() accuracy:merge(mean) end)
    raises("the state 'fn' of MulticlassAccuracy is missing", function()
      accuracy:load_state_dict { tp = moth.zeros(3), fp = moth.zeros(3), tn = moth.zeros(3) }
    end)
    local state = accuracy:state_dict()
    state.tp = moth.zeros(4)
    raises("the state 'tp' has the shape", function() accuracy:load_state_dict(state) end)
    state.tp, state.more = moth.zeros(3), moth.zeros(1)
    raises("no state 'more'", function() accuracy:merge(state) end)
  end)

  it("merges by the rule of each state", function()
    local Rules = nn.class("Rules", metrics.Metric)
    function Rules:init()
      for _, rule in ipairs { "sum", "mean", "max", "min" } do
        self:add_state(rule .. "_value", 0, rule)
      end
      self:add_state("list", {}, "cat")
    end
    function Rules:update(x)
      for _, rule in ipairs { "sum", "mean", "max", "min" } do self[rule .. "_value"]:copy_(x) end
      table.insert(self.list, x:reshape(1))
    end
    function Rules:compute() return self.sum_value end
    local one, two = Rules(), Rules()
    one:update(moth.tensor(2))
    two:update(moth.tensor(5))
    two.update_count = 3
    one:merge(two)
    near(7, one.sum_value)
    near(17 / 4, one.mean_value)
    near(5, one.max_value)
    near(2, one.min_value)
    assert.same({ 2, 5 }, moth.cat(one.list):tolist())
    assert.equal(4, one.update_count)
  end)

  it("has copies that share no state", function()
    local one = metrics.SumMetric()
    one:update(2)
    local two = one:clone()
    two:update(3)
    near(2, one:compute())
    near(5, two:compute())
  end)

  it("may be updated in a captured step", function()
    local accuracy = metrics.BinaryAccuracy()
    local step = moth.capture(function(x, y)
      accuracy:update(x, y)
      return x:sum()
    end)
    for i = 1, 4 do step(moth.tensor { 0.9, 0.2 }, moth.tensor { 1LL, i == 4 and 1LL or 0LL }) end
    near(7 / 8, accuracy:compute())
  end)

  it("warns when no data were seen", function()
    local warn, text = moth.warn, nil
    moth.warn = function(message) text = message end
    metrics.SumMetric():compute()
    moth.warn = warn
    assert.matches("SumMetric: compute was called before update", text)
  end)
end)

describe("MeanMetric", function()
  it("weights values, and leaves NaNs out", function()
    local mean = metrics.MeanMetric { nan_strategy = "ignore" }
    mean:update(moth.tensor { 1, 0 / 0, 4 }, moth.tensor { 1, 9, 3 })
    mean:update(2, 4)
    near(21 / 8, mean:compute())
    raises("has NaNs", function()
      metrics.MeanMetric { nan_strategy = "error" }:update(moth.tensor { 0 / 0 })
    end)
    raises("nan_strategy", function() metrics.MeanMetric { nan_strategy = "skip" } end)
  end)
end)

describe("Accuracy", function()
  it("names the argument that a task needs, or that does not fit", function()
    raises("'num_classes' to 'Accuracy'", function()
      return metrics.Accuracy { task = "multiclass", average = "macro" }
    end)
    raises("'num_labels' to 'Accuracy'", function()
      return metrics.Accuracy { task = "multilabel" }
    end)
    raises("'task'", function() return metrics.Accuracy { num_classes = 3 } end)
    local accuracy = metrics.Accuracy { task = "multiclass", num_classes = 3 }
    raises("'preds' to 'MulticlassAccuracy'", function()
      accuracy:update(moth.rand(4, 2), moth.ones(4, { dtype = moth.int64 }))
    end)
    raises("integer labels are needed", function()
      accuracy:update(moth.rand(4, 3), moth.ones(4))
    end)
    raises("a tensor is needed", function() accuracy:update(moth.rand(4, 3), { 1 }) end)
    raises("top_k", function() return metrics.MulticlassAccuracy(3, 4) end)
  end)

  it("needs no number of classes for average = 'micro'", function()
    local accuracy = metrics.Accuracy { task = "multiclass" }
    near(0.5, accuracy(moth.tensor { { 0, 1, 0 }, { 1, 0, 0 } }, moth.tensor { 2LL, 3LL }))
  end)
end)

describe("MetricCollection", function()
  local function made(options)
    return metrics.MetricCollection({
      acc = metrics.Accuracy { task = "multiclass", num_classes = 3 },
      f1 = metrics.F1Score { task = "multiclass", num_classes = 3, average = "none" },
      top = metrics.Accuracy { task = "multiclass", num_classes = 3, top_k = 2 },
    }, options)
  end
  local preds = moth.tensor { { 3, 1, 0 }, { 0, 2, 1 }, { 0, 2, 1 } }
  local target = moth.tensor { 1LL, 2LL, 3LL }

  it("computes equal states once", function()
    local all = made { prefix = "val_" }
    assert.same({ "val_acc", "val_f1", "val_top" }, all:keys())
    assert.equal(2, #all._groups)
    all:update(preds, target)
    local one = all(preds:flip(1), target)
    local both = all:compute()
    near(1 / 3, one.val_acc)
    near(1 / 2, both.val_acc)
    near(1 / 3, one.val_top)
    assert.equal(2, all.f1.update_count)
    local alone = metrics.F1Score { task = "multiclass", num_classes = 3, average = "none" }
    alone:update(preds, target)
    alone:update(preds:flip(1), target)
    assert.same(alone:compute():tolist(), both.val_f1:tolist())
    all:reset()
    assert.equal(0, all.f1.update_count)
    near(2 / 3, all(preds, target).val_acc)
  end)

  it("saves, loads, merges and copies all states", function()
    local one, two = made(), made()
    one:update(preds, target)
    two:load_state_dict(one:state_dict())
    two:merge(one)
    near(2 / 3, two:compute().acc)
    assert.equal(2, two.f1.update_count)
    local copy = two:clone { prefix = "test_" }
    copy:reset()
    copy:update(preds, moth.tensor { 1LL, 2LL, 2LL })
    near(1, copy:compute().test_acc)
    near(2 / 3, two:compute().acc)
    raises("no metric 'more'", function() one:merge { more = {} } end)
  end)

  it("takes lists, and names metrics by their class", function()
    local all = metrics.MetricCollection { metrics.MeanMetric(), metrics.SumMetric() }
    local values = all(moth.tensor { 1, 3 })
    near(2, values.MeanMetric)
    near(4, values.SumMetric)
    raises("two metrics named 'SumMetric'", function()
      return metrics.MetricCollection { metrics.SumMetric(), metrics.SumMetric() }
    end)
    raises("metrics are needed", function() return metrics.MetricCollection { 3 } end)
  end)
end)

describe("curves", function()
  local scores = moth.rand(200, 3)
  local target = moth.randint(1, 4, { 200 })

  it("share their states, whose size is fixed with thresholds", function()
    local all = metrics.MetricCollection {
      roc = metrics.ROC { task = "multiclass", num_classes = 3, thresholds = 11 },
      auroc = metrics.AUROC { task = "multiclass", num_classes = 3, thresholds = 11 },
      ap = metrics.AveragePrecision { task = "multiclass", num_classes = 3, thresholds = 11 },
    }
    for _ = 1, 3 do all:update(scores, target) end
    assert.equal(1, #all._groups)
    local values = all:compute()
    assert.same({ 3, 11 }, { unpack(values.roc[1].shape) })
    assert.same({ 11, 3, 2, 2 }, { unpack(all.ap:state_dict().confmat.shape) })
  end)

  it("with thresholds equal exact curves at the thresholds", function()
    local options = { task = "multiclass", num_classes = 3, average = "micro" }
    local exact = metrics.AUROC { task = "binary" }
    exact:update(scores:flatten(), moth.one_hot(target, 3):flatten())
    local fpr, tpr = metrics.ROC(options)(scores, target)
    near(exact:compute():item(), moth.trapezoid(tpr, fpr))
    options.thresholds = 5
    local x, y, thresholds = metrics.ROC(options)(scores, target)
    local a, b = metrics.ROC { task = "binary", thresholds = 5 }(scores:flatten(),
      moth.one_hot(target, 3):flatten())
    assert.same(a:tolist(), x:tolist())
    assert.same(b:tolist(), y:tolist())
    assert.same({ 1, 0.75, 0.5, 0.25, 0 }, thresholds:tolist())
  end)

  it("refuse what are no thresholds", function()
    raises("'thresholds'", function() return metrics.ROC { task = "binary", thresholds = 1 } end)
    raises("'thresholds'", function() return metrics.BinaryROC { thresholds = "x" } end)
    raises("scores are needed", function()
      return metrics.BinaryROC()(moth.tensor { 1LL }, moth.tensor { 1LL })
    end)
  end)

  it("cannot keep all inputs in a captured step", function()
    local roc = metrics.BinaryROC()
    raises("keeps all its inputs", function()
      local step = moth.capture(function(x, y) roc:update(x, y) return x end)
      for _ = 1, 3 do step(moth.rand(3), moth.tensor { 1LL, 0LL, 1LL }) end
    end)
  end)

  it("may be updated in a captured step if it keeps none", function()
    local Sum = nn.class("Sum", metrics.Metric)
    function Sum:init()
      self:add_state("sum", 0, "sum")
      self:add_state("rare", {}, "cat")
    end
    function Sum:update(x) self.sum:add_(x:sum()) end
    local metric = Sum()
    local step = moth.capture(function(x)
      metric:update(x)
      return x
    end)
    for _ = 1, 4 do step(moth.tensor {1, 2}) end
    assert.equal(12, metric.sum:item())
  end)
end)

describe("other metrics", function()
  it("refuse inputs that do not fit", function()
    raises("the shape of target", function()
      metrics.MeanSquaredError():update(moth.rand(3), moth.rand(4))
    end)
    raises("(N, 2) with num_outputs = 2", function()
      metrics.MeanAbsoluteError { num_outputs = 2 }:update(moth.rand(3), moth.rand(3))
    end)
    raises("two samples are needed", function()
      return metrics.R2Score()(moth.rand(1), moth.rand(1))
    end)
    raises("(N, L, V)", function() metrics.Perplexity():update(moth.rand(2, 3), moth.rand(2)) end)
    raises("labels from 1 to 3", function()
      metrics.Perplexity():update(moth.rand(1, 2, 3), moth.tensor { { 0LL, 1LL } })
    end)
    raises("'target' to 'BLEUScore'", function() metrics.BLEUScore():update({ "a" }, {}) end)
    raises("'preds' to 'BLEUScore'", function() metrics.BLEUScore():update({ 3 }, { "a" }) end)
    local map, box = metrics.MeanAveragePrecision(), moth.rand(1, 4)
    raises("image 1: a tensor 'scores' is needed", function()
      map:update({ { boxes = box, labels = moth.ones(1) } }, { {} })
    end)
    raises("(n, 4) boxes", function()
      map:update({ { boxes = box, labels = moth.ones(2), scores = moth.ones(2) } }, { {} })
    end)
  end)

  it("of detections save and load their lists", function()
    local labels = moth.tensor { 1LL }
    local one, two = metrics.MeanAveragePrecision(), metrics.MeanAveragePrecision()
    local box = moth.tensor { { 1, 1, 5, 5 } }
    one:update({ { boxes = box, scores = moth.ones(1), labels = labels },
      { boxes = moth.zeros(0, 4), scores = moth.zeros(0), labels = moth.zeros(0) } },
      { { boxes = box, labels = labels }, { boxes = box, labels = labels } })
    local path = os.tmpname()
    moth.save(one:state_dict(), path)
    two:load_state_dict(moth.load(path))
    os.remove(path)
    near(one:compute().map:item(), two:compute().map)
    near(0.5, two:compute().mar_100)
    local all = metrics.MetricCollection { metrics.MeanAveragePrecision() }
    assert.is_truthy(all({}, {}).map_50)
  end)
end)
