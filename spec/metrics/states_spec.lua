-- The states of a metric, and its refusals: whole messages, both sides of each bound, and what a
-- failed call leaves behind. Values of metrics are in golden_spec.lua.

local moth = require "moth"
local refusals = require "spec.support.refusals"
local metrics, nn = moth.metrics, moth.nn

local function near(wanted, x) assert.near(wanted, moth.is_tensor(x) and x:item() or x, 1e-6) end

-- Makes a claim for each row: a name, the text of the message (not a pattern), a function.
local function refused(rows) refusals.each(it, rows) end

-- Returns the text of moth.warn in a call of f, and f's result.
local function warned(f)
  local warn, text = moth.warn, nil
  moth.warn = function(message) text = message end
  local ok, result = pcall(f)
  moth.warn = warn
  assert.is_true(ok, tostring(result))
  return text, result
end

local function long(list) return moth.tensor(list, { dtype = moth.int64 }) end

local NAN = 0 / 0

-- A metric with one state of each rule, which takes {name = tensor}.
local Rules = nn.class("Rules", metrics.Metric)
function Rules:init()
  self:add_state("total", moth.zeros(2), "sum")
  self:add_state("mean", 0, "mean")
  self:add_state("whole_mean", long(0), "mean")
  self:add_state("largest", -math.huge, "max")
  self:add_state("least", math.huge, "min")
  self:add_state("joined", moth.zeros(0), "cat")
  self:add_state("list", {}, "cat")
  self:add_state("loose", {})
end
function Rules:update(values)
  for name, x in pairs(values) do
    if name == "list" or name == "loose" then table.insert(self[name], x) else self[name] = x end
  end
end
function Rules:compute() return self.total end

local function full(k)
  local one = Rules()
  one:update { total = moth.tensor { k, 2 * k }, mean = moth.tensor(k), whole_mean = long(k),
    largest = moth.tensor(k), least = moth.tensor(k), joined = moth.tensor { k },
    list = moth.tensor { k, k }, loose = moth.tensor { k } }
  return one
end

describe("the states of a metric", function()
  it("merge by their rules, weighted by the numbers of updates", function()
    local one, two = full(4), full(8)
    two.update_count = 3
    one:merge(two)
    assert.same({ 12, 24 }, one.total:tolist())
    near(7, one.mean)
    assert.equal(7, tonumber(one.whole_mean:item()))
    near(8, one.largest)
    near(4, one.least)
    assert.same({ 4, 8 }, one.joined:tolist())
    assert.equal(2, #one.list)
    assert.same({ 8, 8 }, one.list[2]:tolist())
    assert.equal(2, #one.loose)
    assert.equal(4, one.update_count)
    assert.same({ 8, 16 }, two.total:tolist())
  end)

  it("are unchanged by the mean of a metric without updates", function()
    local one = full(4)
    one:merge(Rules())
    near(4, one.mean)
    near(4, one.largest)
    near(4, one.least)
    assert.equal(1, one.update_count)
  end)

  it("are copies in a state_dict, and after load_state_dict and merge", function()
    local one = full(3)
    local state = one:state_dict()
    assert.same({ 3, 3 }, state.list:tolist())
    assert.equal(1, #state.loose)
    assert.equal(1, state.update_count)
    local two = Rules()
    two:load_state_dict(state)
    state.total:fill_(9)
    state.list:fill_(9)
    one.total:fill_(7)
    assert.same({ 3, 6 }, two.total:tolist())
    assert.same({ 3, 3 }, two.list[1]:tolist())
    two:update { list = moth.tensor { 5 } }
    assert.same({ 3, 3, 5 }, two:state_dict().list:tolist())
    assert.equal(2, two.update_count)
  end)

  it("have one update if the state_dict has no number", function()
    local state = full(3):state_dict()
    state.update_count = nil
    local two = Rules()
    two:load_state_dict(state)
    assert.equal(1, two.update_count)
  end)

  it("return to their defaults, in the same tensors if the shape is unchanged", function()
    local one = Rules()
    local total = one.total
    one.total:add_(3)
    one:update { joined = moth.ones(4), list = moth.ones(1) }
    one:reset()
    assert.is_true(rawequal(total, one.total))
    assert.same({ 0, 0 }, total:tolist())
    assert.same({ 0 }, { one.joined:size(1) })
    assert.equal(0, #one.list)
    near(-math.huge, one.largest:exp():log())
    assert.equal(math.huge, one.least:item())
    one:update { list = moth.ones(1) }
    assert.equal(1, #one.list)
  end)

  it("are listed in order, with their rules", function()
    local names, rules = {}, {}
    for i, state in ipairs(Rules():states()) do
      names[i], rules[i] = state.name, state.reduce or ""
    end
    assert.same({ "total", "mean", "whole_mean", "largest", "least", "joined", "list", "loose" },
      names)
    assert.same({ "sum", "mean", "mean", "max", "min", "cat", "cat", "" }, rules)
  end)

  it("are declared by a table of names, too", function()
    local Named = nn.class("Named", metrics.Metric)
    function Named:init()
      self:add_state { name = "a", default = 3, dist_reduce_fx = "max" }
      self:add_state { "b", {}, "cat" }
      self:add_state("c", 2, { dist_reduce_fx = "min" })
    end
    local one = Named()
    near(3, one.a)
    assert.same({ a = "max", b = "cat", c = "min" }, one.reductions)
  end)

  it("are those of the outer batches again after a call that raises", function()
    local mean = metrics.MeanMetric()
    mean:update(4)
    assert.has_error(function() return mean("text") end)
    near(4, mean:compute())
    assert.equal(1, mean.update_count)
  end)

  it("that need no gradients lose them when they are set", function()
    local one = Rules()
    one.total = moth.ones(2, { requires_grad = true })
    assert.is_false(one.total.requires_grad)
    one.list = { moth.ones(3), moth.ones(2) }
    one:update { list = moth.ones(1) }
    assert.same({ 1, 1, 1, 1, 1, 1 }, one:state_dict().list:tolist())
  end)

  it("move to a device, which to returns the metric for", function()
    local one = full(2)
    assert.is_true(rawequal(one, one:to(moth.device "cpu")))
    assert.same({ 2, 4 }, one.total:tolist())
    assert.equal("Rules()", tostring(one))
  end)

  local one = full(1)
  local function state(name, value)
    local all = full(1):state_dict()
    all[name] = value
    return all
  end
  local Base = nn.class("Empty", metrics.Metric)
  local None = nn.class("None", metrics.Metric)
  function None:init() self:add_state("x", 0) end
  function None:update(x) self.x:add_(x) end
  function None:compute() return self.x end
  refused {
    { "refuse a name of a method", "bad argument 'name' to 'add_state' (the name of a new field is "
      .. "needed, got a string ('update')", function() Rules():add_state("update", 0) end },
    { "refuse a second state of a name", "the name of a new field is needed, got a string "
      .. "('total')", function() Rules():add_state("total", 0) end },
    { "refuse an empty name", "bad argument 'name' to 'add_state'",
      function() Rules():add_state("", 0) end },
    { "refuse a number as name", "bad argument 'name' to 'add_state'",
      function() Rules():add_state(3, 0) end },
    { "refuse an unknown rule", "bad argument 'dist_reduce_fx' to 'add_state' (\"sum\", \"mean\", "
      .. "\"max\", \"min\" or \"cat\" is needed, got a string ('product')",
      function() Rules():add_state("more", 0, "product") end },
    { "refuse a text as default", "bad argument 'default' to 'add_state' (a tensor, a number or an "
      .. "empty list is needed", function() Rules():add_state("more", "0") end },
    { "refuse a filled list as default", "bad argument 'default' to 'add_state'",
      function() Rules():add_state("more", { 1 }) end },
    { "refuse a number for a tensor", "Rules: the state 'total' is a tensor, got 3",
      function() one.total = 3 end },
    { "refuse a tensor for a list", "Rules: the state 'list' is a list of tensors, got",
      function() one.list = moth.ones(1) end },
    { "refuse no table to load", "bad argument 'state_dict' to 'load_state_dict' (a table of "
      .. "states is needed, got 3", function() one:load_state_dict(3) end },
    { "refuse a number to load", "the state 'total' is",
      function() one:load_state_dict(state("total", 3)) end },
    { "refuse a text for a list", "the state 'list' is a list of tensors, got a string ('a')",
      function() one:load_state_dict(state("list", "a")) end },
    { "refuse a number in a list", "the state 'loose' is a list of tensors, got 5 in it",
      function() one:load_state_dict(state("loose", { 5 })) end },
    { "refuse another shape to load", "the state 'total' has the shape (2), got (3)",
      function() one:load_state_dict(state("total", moth.ones(3))) end },
    { "refuse a number to merge", "bad argument 'other' to 'merge' (a metric or a table of states "
      .. "is needed, got 3", function() one:merge(3) end },
    { "refuse a metric of another class to merge", "bad argument 'other' to 'merge' (Rules is "
      .. "needed, got SumMetric", function() one:merge(metrics.SumMetric()) end },
    { "without a rule do not merge", "None: the state 'x' has no rule by which two states become "
      .. "one", function() None():merge(None()) end },
    { "need a metric of which update is called", "update",
      function() metrics.SumMetric().update(3) end },
    { "need a metric of which compute is called", "compute",
      function() metrics.SumMetric().compute() end },
    { "need an update", "Empty", function() Base():update(3) end },
    { "are not synchronized twice", "Rules: unsync was called without sync",
      function() Rules():unsync() end },
  }

  it("take another shape for a joined state", function()
    local two = Rules()
    two:load_state_dict(state("joined", moth.ones(5)))
    assert.equal(5, two.joined:size(1))
  end)

  it("are unchanged after a load that is refused", function()
    local two = full(6)
    assert.has_error(function() two:load_state_dict(state("loose", { 5 })) end)
    assert.same({ 6, 12 }, two.total:tolist())
    assert.equal(1, two.update_count)
  end)
end)

describe("a metric of plain values", function()
  local function values(strategy)
    local x = moth.tensor { 1, NAN, 5 }
    local out = {}
    for _, name in ipairs { "SumMetric", "MeanMetric", "MaxMetric", "MinMetric", "CatMetric" } do
      local one = metrics[name] { nan_strategy = strategy }
      one:update(x)
      local value = one:compute()
      out[#out + 1] = name == "CatMetric" and value:tolist() or value:item()
    end
    return out
  end

  it("leaves NaNs out, with a warning by default", function()
    assert.same({ 6, 3, 5, 1, { 1, 5 } }, values "ignore")
    local text, list = warned(function() return values "warn" end)
    assert.same({ 6, 3, 5, 1, { 1, 5 } }, list)
    assert.equal("CatMetric: 1 of the values were NaN and are left out", text)
    local default = warned(function()
      local sum = metrics.SumMetric()
      sum:update(moth.tensor { NAN, NAN })
      return sum:compute()
    end)
    assert.equal("SumMetric: 2 of the values were NaN and are left out", default)
    assert.is_nil((warned(function() return values "ignore" end)))
  end)

  it("replaces NaNs by a number", function()
    assert.same({ 13, 13 / 3, 7, 1, { 1, 7, 5 } }, (function()
      local list = values(7)
      list[2] = math.abs(list[2] - 13 / 3) < 1e-6 and 13 / 3 or list[2]
      return list
    end)())
  end)

  it("uses NaNs with \"disable\"", function()
    local list = values "disable"
    for i = 1, 4 do assert.is_true(list[i] ~= list[i], i) end
    assert.equal(3, #list[5])
  end)

  it("raises for NaNs with \"error\", and is then unchanged", function()
    for _, name in ipairs { "SumMetric", "MeanMetric", "MaxMetric", "MinMetric", "CatMetric" } do
      local one = metrics[name] { nan_strategy = "error" }
      one:update(2)
      local ok, problem = pcall(one.update, one, moth.tensor { 1, NAN })
      assert.is_false(ok)
      assert.matches("bad argument 'value' to '" .. name, tostring(problem))
      assert.equal(1, one.update_count)
      near(2, one:compute():reshape(-1)[1])
    end
  end)

  it("takes integers, numbers, lists and empty tensors", function()
    local largest, least = metrics.MaxMetric(), metrics.MinMetric()
    for _, x in ipairs { long { -3, 4 }, 2, { { 1, 3 }, { 0, 2 } }, moth.zeros(0) } do
      largest:update(x)
      least:update(x)
    end
    near(4, largest:compute())
    near(-3, least:compute())
    local cat = metrics.CatMetric()
    local _, none = warned(function() return cat:compute() end)
    assert.equal(0, none:size(1))
    cat:update(2)
    cat:update(moth.zeros(0))
    cat:update(moth.tensor { 3, 4 })
    assert.same({ 2, 3, 4 }, cat:compute():tolist())
  end)

  it("weights by numbers and by tensors that are broadcast", function()
    local mean = metrics.MeanMetric()
    mean:update(moth.tensor { 1, 3 }, 2)       -- 8 of 4
    mean:update(5, moth.tensor(4))             -- 20 of 4
    mean:update(moth.tensor { { 1, 2 }, { 3, 4 } }, moth.tensor { 1, 3 }) -- 22 of 8
    near(50 / 16, mean:compute())
    local ignoring = metrics.MeanMetric "ignore"
    ignoring:update(moth.tensor { 1, NAN }, 2)
    ignoring:update(NAN, 5)
    ignoring:update(4)
    near(2, ignoring:compute())
  end)

  refused {
    { "refuses a text", "bad argument 'value' to 'SumMetric' (a tensor or a number is needed, got "
      .. "a string ('3')", function() metrics.SumMetric():update "3" end },
    { "refuses a text as weight", "bad argument 'weight' to 'MeanMetric' (a tensor or a number is "
      .. "needed", function() metrics.MeanMetric():update(moth.ones(2), "3") end },
    { "refuses an unknown strategy", "bad argument 'nan_strategy' to 'MaxMetric' (\"error\", "
      .. "\"warn\", \"ignore\", \"disable\" or a number is needed, got a string ('skip')",
      function() metrics.MaxMetric "skip" end },
  }
end)

describe("a collection of metrics", function()
  local function made(...)
    return metrics.MetricCollection({ metrics.SumMetric(), metrics.MaxMetric() }, ...)
  end

  it("iterates in order, with prefix and postfix", function()
    local all = metrics.MetricCollection({ metrics.SumMetric(), b = metrics.MaxMetric(),
      a = metrics.MinMetric() }, "train_", "_1")
    local names = {}
    for name, metric in all:items() do
      names[#names + 1] = name
      assert.is_truthy(tostring(metric):find "Metric%(%)$")
    end
    assert.same({ "train_SumMetric_1", "train_a_1", "train_b_1" }, names)
    assert.equal("MetricCollection(\n  (train_SumMetric_1): SumMetric()\n  (train_a_1): "
      .. "MinMetric()\n  (train_b_1): MaxMetric()\n)", tostring(all))
    local copy = all:clone(nil, "_2")
    assert.same({ "train_SumMetric_2", "train_a_2", "train_b_2" }, copy:keys())
    assert.same({ "SumMetric_1", "a_1", "b_1" }, all:clone { "" }:keys())
    assert.same({ "xSumMetricy", "xay", "xby" }, all:clone { "x", "y" }:keys())
  end)

  it("contains the metrics of another one, whose name comes before theirs", function()
    local all = metrics.MetricCollection { inner = made(), metrics.MinMetric() }
    assert.same({ "MinMetric", "inner_SumMetric", "inner_MaxMetric" }, all:keys())
    assert.same({ "SumMetric", "MaxMetric" }, metrics.MetricCollection { made() }:keys())
    assert.same({ "SumMetric" }, metrics.MetricCollection(metrics.SumMetric()):keys())
  end)

  it("grows by add_metrics", function()
    local all = made()
    all:add_metrics { least = metrics.MinMetric() }
    all:add_metrics(metrics.MeanMetric())
    assert.same({ "SumMetric", "MaxMetric", "least", "MeanMetric" }, all:keys())
    all:update(moth.tensor { 1, 5 })
    near(1, all:compute().least)
    near(3, all:compute().MeanMetric)
  end)

  it("computes each metric by itself without groups", function()
    local function pair(groups)
      return metrics.MetricCollection({
        metrics.Accuracy { task = "binary" }, metrics.F1Score { task = "binary" },
      }, { compute_groups = groups })
    end
    assert.equal(1, #pair(true)._groups)
    assert.equal(2, #pair(false)._groups)
    local preds, target = moth.tensor { 0.9, 0.8, 0.1 }, long { 1, 0, 0 }
    for _, groups in ipairs { true, false } do
      local all = pair(groups)
      all:update(preds, target)
      near(2 / 3, all:compute().BinaryAccuracy)
      near(2 / 3, all:compute().BinaryF1Score)
    end
  end)

  it("does not group a metric that has data with one that has none", function()
    local one = metrics.Accuracy { task = "binary" }
    one:update(moth.tensor { 0.9 }, long { 1 })
    local all = metrics.MetricCollection { metrics.F1Score { task = "binary" }, one }
    all:update(moth.tensor { 0.9 }, long { 0 })
    near(0.5, all:compute().BinaryAccuracy)
    near(0, all:compute().BinaryF1Score)
  end)

  it("groups metrics with equal states only", function()
    local function groups(first, second)
      return #metrics.MetricCollection({ a = first, b = second })._groups
    end
    for _, name in ipairs { "Accuracy", "ConfusionMatrix", "ROC" } do
      local make, base = metrics[name], { task = "multiclass", num_classes = 3 }
      local function with(key, value)
        local options = { task = "multiclass", num_classes = 3 }
        options[key] = value
        return make(options)
      end
      assert.equal(1, groups(make(base), make(base)), name)
      assert.equal(2, groups(make(base), with("num_classes", 4)), name)
      assert.equal(2, groups(make(base), with("ignore_index", 1)), name)
      assert.equal(2, groups(make(base), with("validate_args", false)), name)
    end
    local function accuracy(options)
      options.task = options.task or "binary"
      return metrics.Accuracy(options)
    end
    assert.equal(2, groups(accuracy { threshold = 0.3 }, accuracy {}))
    assert.equal(2, groups(accuracy { multidim_average = "samplewise" }, accuracy {}))
    assert.equal(2, groups(accuracy { task = "multiclass", num_classes = 3, top_k = 2 },
      accuracy { task = "multiclass", num_classes = 3 }))
    assert.equal(2, groups(accuracy { task = "multilabel", num_labels = 2 },
      accuracy { task = "multiclass", num_classes = 2 }))
    local function roc(list) return metrics.ROC { task = "binary", thresholds = list } end
    assert.equal(2, groups(roc(5), roc(6)))
    assert.equal(2, groups(roc(5), roc()))
    assert.equal(1, groups(roc(3), roc { 0, 0.5, 1 }))
    local function matrix(threshold)
      return metrics.ConfusionMatrix { task = "binary", threshold = threshold }
    end
    assert.equal(2, groups(matrix(0.3), matrix(0.5)))
    assert.equal(1, groups(matrix(0.3), metrics.JaccardIndex { task = "binary", threshold = 0.3 }))
    assert.equal(2, groups(matrix(0.5), accuracy {}))
  end)

  it("gives equal names of the results of two metrics their metrics' names", function()
    local Pair = nn.class("Pair", metrics.Metric)
    function Pair:init() self:add_state("x", 0, "sum") end
    function Pair:update(x) self.x:add_(x) end
    function Pair:compute() return { half = self.x / 2, all = self.x } end
    local all = metrics.MetricCollection({ a = Pair(), b = Pair() }, "p_")
    all:update(4)
    local values, n = all:compute(), 0
    for _ in pairs(values) do n = n + 1 end
    assert.equal(4, n)
    near(2, values.p_half)
    near(2, values.p_b_half)
    near(4, values.p_b_all)
    assert.is_true(rawequal(all, all:to(moth.device "cpu")))
  end)

  local function one() return metrics.MetricCollection { metrics.SumMetric() } end
  refused {
    { "refuses the name of a method", "bad argument 'metrics' to 'MetricCollection' ('update' is a "
      .. "method; choose another name",
      function() metrics.MetricCollection { update = metrics.SumMetric() } end },
    { "refuses a second metric of a name", "there are two metrics named 'SumMetric'; give them "
      .. "names: {name = metric}", function() one():add_metrics(metrics.SumMetric()) end },
    { "refuses what is no metric", "bad argument 'metrics' to 'add_metrics' (metrics are "
      .. "needed, got 3", function() one():add_metrics { 3 } end },
    { "refuses no table to load", "bad argument 'state_dict' to 'load_state_dict' (a table of the "
      .. "states of each metric is needed, got 3", function() one():load_state_dict(3) end },
    { "refuses no table to merge", "bad argument 'state_dict' to 'merge' (a table of the",
      function() one():merge(3) end },
    { "refuses states of an unknown metric", "the collection has no metric 'MaxMetric'",
      function() one():load_state_dict(made():state_dict()) end },
    { "needs the states of each metric", "the states of 'SumMetric' are missing",
      function() one():load_state_dict {} end },
  }
end)

describe("the class of a metric", function()
  it("says whether a higher value is better, as torchmetrics' does", function()
    local function check(wanted, names, tasks)
      for name in names:gmatch "%S+" do
        for _, task in ipairs(tasks or { "" }) do
          assert.equal(wanted, metrics[task .. name].higher_is_better, task .. name)
        end
      end
    end
    local tasks = { "Binary", "Multiclass", "Multilabel" }
    check(true, "AUROC Accuracy AveragePrecision F1Score FBetaScore JaccardIndex Precision Recall",
      tasks)
    check(nil, "ConfusionMatrix PrecisionRecallCurve ROC StatScores", tasks)
    check(true, "BLEUScore MeanAveragePrecision R2Score")
    check(false, "MeanAbsoluteError MeanSquaredError Perplexity")
    check(nil, "CatMetric MaxMetric MeanMetric MinMetric SumMetric")
  end)

  it("adds up the states of all processes in compute, not in a call", function()
    assert.same({ true, false, false }, { metrics.Metric.sync_on_compute,
      metrics.Metric.dist_sync_on_step, metrics.Metric.is_differentiable })
    assert.is_nil(metrics.Metric.process_group)
  end)
end)

describe("JaccardIndex", function()
  it("ignores the first or the last class", function()
    local target = moth.tensor { 1LL, 1LL, 2LL, 3LL, 3LL, 2LL }
    local preds = moth.tensor { 1LL, 2LL, 2LL, 3LL, 1LL, 3LL }
    -- Four pairs are left: of the two classes, 1 of 2 and 1 of 3 agree.
    for _, ignored in ipairs { 1, 3 } do
      for average, wanted in pairs { micro = 2 / 5, macro = 5 / 12, weighted = 5 / 12 } do
        local metric = metrics.MulticlassJaccardIndex { 3, average = average,
          ignore_index = ignored }
        near(wanted, metric(preds, target))
      end
    end
  end)

  it("takes an ignored number that is no class", function()
    local target, preds = moth.tensor { 1LL, 2LL, -1LL }, moth.tensor { 1LL, 1LL, 2LL }
    for average, wanted in pairs { micro = 1 / 3, macro = 1 / 4 } do
      near(wanted, metrics.MulticlassJaccardIndex { 2, average = average,
        ignore_index = -1 }(preds, target))
    end
  end)
end)

describe("MeanAveragePrecision", function()
  it("has the limits of COCO by default, and sorts the numbers of detections", function()
    local metric = metrics.MeanAveragePrecision()
    assert.equal(10, #metric.iou_thresholds)
    assert.equal(101, #metric.rec_thresholds)
    for i = 1, 10 do assert.near(0.45 + 0.05 * i, metric.iou_thresholds[i], 1e-12) end
    for i = 1, 101 do assert.near((i - 1) / 100, metric.rec_thresholds[i], 1e-12) end
    assert.same({ 1, 10, 100 }, metric.max_detection_thresholds)
    metric = metrics.MeanAveragePrecision { max_detection_thresholds = { 20, 3, 5 } }
    assert.same({ 3, 5, 20 }, metric.max_detection_thresholds)
  end)
end)
