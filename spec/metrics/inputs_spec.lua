-- The inputs and options of metrics: whole messages of refusals, both sides of each bound, and
-- options that change a value.

local moth = require "moth"
local refusals = require "spec.support.refusals"
local metrics = moth.metrics
local f = metrics.functional

local function near(wanted, x) assert.near(wanted, moth.is_tensor(x) and x:item() or x, 1e-6) end

-- Makes a claim for each row: a name, the text of the message (not a pattern), a function.
local function refused(rows) refusals.each(it, rows) end

local function contains(text, problem)
  if not tostring(problem):find(text, 1, true) then
    error(tostring(problem) .. "\nlacks: " .. text, 2)
  end
end

local function long(list) return moth.tensor(list, { dtype = moth.int64 }) end

-- The classes of a task, with the arguments that each needs.
local TASKS = { Binary = {}, Multiclass = { num_classes = 3 }, Multilabel = { num_labels = 3 } }

local function each_metric(visit)
  for task, needed in pairs(TASKS) do
    for _, name in ipairs { "Accuracy", "Precision", "Recall", "Specificity", "F1Score",
      "FBetaScore", "StatScores", "ConfusionMatrix", "JaccardIndex", "ROC", "AUROC",
      "AveragePrecision", "PrecisionRecallCurve" } do
      local options = {}
      for key, value in pairs(needed) do options[key] = value end
      if name == "FBetaScore" then options.beta = 2 end
      visit(task, task .. name, options)
    end
  end
end

describe("a metric of a classification", function()
  it("checks targets, unless validate_args is false", function()
    local preds = { Binary = moth.tensor { 0.9, 0.2, 0.8 },
      Multiclass = moth.tensor { { 0.7, 0.2, 0.1 }, { 0.2, 0.2, 0.6 } },
      Multilabel = moth.tensor { { 0.7, 0.2, 0.1 }, { 0.2, 0.2, 0.6 } } }
    -- Each is wrong by one at one end.
    local targets = { Binary = { long { 1, 0, 2 }, long { 1, -1, 0 } },
      Multiclass = { long { 0, 3 }, long { 1, 4 } },
      Multilabel = { long { { 1, 0, 1 }, { 0, 2, 0 } }, long { { -1, 0, 1 }, { 0, 1, 0 } } } }
    local wrong = { Binary = { 2, -1 }, Multiclass = { 0, 4 }, Multilabel = { 2, -1 } }
    each_metric(function(task, name, options)
      for k, target in ipairs(targets[task]) do
        local range = task == "Multiclass" and "1 to 3" or "0 to 1"
        local metric = metrics[name](next(options) and options or nil)
        local ok, problem = pcall(metric.update, metric, preds[task], target)
        assert.is_false(ok, name)
        local text = ("bad argument 'target' to '%s' (labels from %s are needed, got %d")
          :format(name, range, wrong[task][k])
        contains(text, problem)
        assert.equal(0, metric.update_count)
        options.ignore_index = wrong[task][k]
        metrics[name](options):update(preds[task], target)
        options.ignore_index = wrong[task][k] + 7
        assert.has_error(function() metrics[name](options):update(preds[task], target) end)
        options.ignore_index = nil
      end
      if task ~= "Multiclass" then
        options.validate_args = false
        local metric = metrics[name](options)
        metric:update(preds[task], targets[task][1])
        assert.equal(1, metric.update_count)
        options.validate_args = nil
      end
    end)
  end)

  it("checks labels that are predicted", function()
    for _, name in ipairs { "Accuracy", "ConfusionMatrix" } do
      local binary = metrics["Binary" .. name]()
      binary:update(long { 0, 1 }, long { 1, 0 })
      for _, label in ipairs { -1, 2 } do
        local ok, problem = pcall(binary.update, binary, long { 0, label }, long { 1, 0 })
        assert.is_false(ok)
        contains("(labels from 0 to 1 are needed, got " .. label, problem)
        contains("'preds'", problem)
      end
      local multi = metrics["Multiclass" .. name](3)
      multi:update(long { 1, 3 }, long { 1, 2 })
      for _, label in ipairs { 0, 4 } do
        local ok, problem = pcall(multi.update, multi, long { 1, label }, long { 1, 2 })
        assert.is_false(ok)
        contains("(labels from 1 to 3 are needed, got " .. label, problem)
        contains("'preds'", problem)
      end
    end
  end)

  it("needs tensors", function()
    each_metric(function(_, name, options)
      options = next(options) and options or nil
      local ok, problem = pcall(function() metrics[name](options):update(3, long { 1 }) end)
      assert.is_false(ok)
      contains("bad argument 'preds' to '" .. name .. "' (a tensor is needed, got 3", problem)
      ok, problem = pcall(function() metrics[name](options):update(moth.rand(1), true) end)
      assert.is_false(ok)
      contains("bad argument 'target' to '" .. name .. "' (a tensor is needed, got true", problem)
    end)
  end)

  it("takes scores outside 0 to 1 as logits, a value at an end as probability", function()
    local target = long { 1, 0, 1 }
    near(2 / 3, f.binary_accuracy(moth.tensor { 0.4, 0, 1 }, target))
    near(1, f.binary_accuracy(moth.tensor { 0.4, -1e-3, 1 }, target))
    near(1, f.binary_accuracy(moth.tensor { 0.4, -0.1, 1.001 }, target))
    local preds = moth.tensor { 0.4, 0.2, 7 } -- the value outside is ignored
    near(0.5, f.binary_accuracy(preds, long { 1, 0, 5 }, { ignore_index = 5 }))
    near(0, metrics.BinaryAccuracy { ignore_index = 5 }(moth.zeros(0), long {}))
  end)

  it("predicts 1 above the threshold, not at it", function()
    local preds, target = moth.tensor { 0.5, 0.25, 0.75 }, long { 1, 1, 1 }
    near(1 / 3, f.binary_accuracy(preds, target))
    near(2 / 3, f.binary_accuracy(preds, target, { threshold = 0.25 }))
    near(1, f.binary_accuracy(preds, target, { threshold = 0 }))
    near(0, f.binary_accuracy(preds, target, { threshold = 1 }))
  end)

  it("counts the k highest scores for top_k", function()
    local preds = moth.tensor { { 0.5, 0.3, 0.2 }, { 0.5, 0.3, 0.2 }, { 0.5, 0.3, 0.2 } }
    local target = long { 1, 2, 3 }
    for k = 1, 3 do
      near(k / 3, f.multiclass_accuracy(preds, target,
        { num_classes = 3, top_k = k, average = "micro" }))
    end
  end)

  it("leaves an ignored class out of an average, the first and the last one, too", function()
    local preds, target = long { 1, 2, 3, 3, 2 }, long { 1, 2, 3, 2, 2 }
    for ignored, row in pairs { [0] = { 13 / 18, 2 / 3 }, { 7 / 12, 3 / 5 }, { 1, 1 },
      { 5 / 6, 3 / 4 }, [9] = { 13 / 18, 2 / 3 } } do
      for k, average in ipairs { "macro", "micro" } do
        near(row[k], f.multiclass_jaccard_index(preds, target, { num_classes = 3,
          average = average, ignore_index = ignored }))
      end
    end
  end)

  it("counts all classes together without num_classes", function()
    local preds, target = long { 1, 2, 2, 9 }, long { 1, 2, 3, 7 }
    near(0.5, f.accuracy(preds, target, { task = "multiclass", average = "micro" }))
    near(2 / 3, f.accuracy(preds, target,
      { task = "multiclass", average = "micro", ignore_index = 7 }))
    local samples = f.accuracy(long { { 1, 2 }, { 3, 3 } }, long { { 1, 1 }, { 3, 3 } },
      { task = "multiclass", average = "micro", multidim_average = "samplewise" })
    assert.same({ 0.5, 1 }, samples:tolist())
    local empty = metrics.MulticlassAccuracy { average = "micro", multidim_average = "samplewise" }
    empty.update_count = 1
    assert.same({ 0 }, { unpack(empty:compute().shape) })
  end)

  it("of samples without data has an empty value", function()
    local metric = metrics.MulticlassAccuracy { num_classes = 3, average = "none",
      multidim_average = "samplewise" }
    metric.update_count = 1
    assert.same({ 0, 3 }, { metric:compute():size(1), metric:compute():size(2) })
  end)

  refused {
    { "needs num_classes for other averages", "bad argument 'num_classes' to 'Accuracy' (task = "
      .. '"multiclass" needs it', function()
      metrics.Accuracy { task = "multiclass", average = "macro" }
    end },
    { "needs num_classes for a curve", "bad argument 'num_classes' to 'ROC' (task = \"multiclass\" "
      .. "needs it", function() metrics.ROC { task = "multiclass" } end },
    { "needs num_labels", "bad argument 'num_labels' to 'F1Score' (task = \"multilabel\" needs it",
      function() metrics.F1Score { task = "multilabel" } end },
    { "refuses a top_k above num_classes", "bad argument 'top_k' to 'MulticlassRecall' (a "
      .. "number up "
      .. "to num_classes = 3 is needed, got 4", function() metrics.MulticlassRecall(3, 4) end },
    { "refuses a top_k of 0", "'top_k'", function() metrics.MulticlassRecall(3, 0) end },
    { "refuses one class", "'num_classes'", function() metrics.MulticlassRecall(1) end },
    { "refuses one label", "'num_labels'", function() metrics.MultilabelRecall(1) end },
    { "refuses a threshold above 1", "'threshold'", function() metrics.BinaryRecall(1.01) end },
    { "refuses a negative threshold", "'threshold'", function() metrics.BinaryRecall(-0.01) end },
    { "refuses a beta of 0", "'beta'", function() metrics.BinaryFBetaScore(0) end },
    { "refuses a max_fpr of 0", "'max_fpr'", function() metrics.BinaryAUROC { max_fpr = 0 } end },
    { "refuses labels for top_k = 2", "bad argument 'preds' to 'MulticlassAccuracy' (scores are "
      .. "needed for top_k, got labels, i64 (2)", function()
      metrics.MulticlassAccuracy { num_classes = 3, top_k = 2 }:update(long { 1, 2 }, long { 1, 2 })
    end },
    { "refuses other shapes of labels", "(the shape of target, (3), is needed, got (2)",
      function() metrics.BinaryRecall():update(moth.rand(2), long { 1, 0, 1 }) end },
    { "refuses too few labels", "(N, 3, ...) with num_labels = 3 is needed, got (2, 2)", function()
      metrics.MultilabelRecall(3):update(moth.rand(2, 2), long { { 1, 0 }, { 1, 1 } })
    end },
    { "refuses vectors of labels", "(N, 2, ...) with num_labels = 2 is needed, got (2)",
      function() metrics.MultilabelRecall(2):update(moth.rand(2), long { 1, 0 }) end },
    { "refuses a wrong number of samples", "(N, C, ...) scores or labels of the shape of target, "
      .. "(2), are needed, got (3, 3)",
      function() metrics.MulticlassRecall(3):update(moth.rand(3, 3), long { 1, 2 }) end },
    { "refuses a wrong inner size", "scores or labels of the shape of target, (2, 4), are needed, "
      .. "got (2, 3, 5)", function()
      metrics.MulticlassRecall(3):update(moth.rand(2, 3, 5),
        long { { 1, 2, 1, 1 }, { 1, 1, 1, 1 } })
    end },
    { "refuses integer scores", "scores of classes are floating-point numbers, got i64 (2, 2)",
      function() metrics.MulticlassRecall(2):update(long { { 1, 2 }, { 1, 2 } },
        long { 1, 2 }) end },
    { "refuses too many scores", "(num_classes = 2 scores are needed, got (2, 3)",
      function() metrics.MulticlassRecall(2):update(moth.rand(2, 3), long { 1, 2 }) end },
    { "refuses floating-point targets", "(integer labels are needed, got f32 (2)",
      function() metrics.MulticlassRecall(2):update(moth.rand(2, 2), moth.ones(2)) end },
    { "refuses labels for a curve", "bad argument 'preds' to 'MulticlassROC' (floating-point "
      .. "scores "
      .. "are needed, got i64 (2)",
      function() metrics.MulticlassROC(2):update(long { 1, 2 }, long { 1, 2 }) end },
    { "refuses floating-point labels for a curve", "bad argument 'preds' to 'MulticlassROC' "
      .. "((N, C, "
      .. "...) scores are needed, got f32 (2)",
      function() metrics.MulticlassROC(2):update(moth.ones(2), long { 1, 2 }) end },
    { "refuses one threshold", "bad argument 'thresholds' to 'BinaryROC' (a number of thresholds "
      .. "from 2 on is needed, got 1", function() metrics.BinaryROC(1) end },
    { "refuses a broken number of thresholds", "thresholds from 2 on is needed, got 2.5",
      function() metrics.BinaryROC(2.5) end },
    { "refuses no thresholds", "(a number, a list or a vector of thresholds is needed",
      function() metrics.BinaryROC(moth.zeros(0)) end },
    { "refuses a matrix of thresholds", "(a number, a list or a vector of thresholds is needed",
      function() metrics.BinaryROC(moth.zeros(2, 2)) end },
  }
end)

describe("a metric of numbers", function()
  it("takes integers", function()
    near(2.5, f.mean_squared_error(long { 1, 2 }, long { 3, 1 }))
    near(1.5, f.mean_absolute_error(long { 1, 2 }, moth.tensor { 3, 1 }))
    near(1.5, f.mean_absolute_error(moth.tensor { 1, 2 }, long { 3, 1 }))
    near(0.5, f.r2_score(long { 1, 2, 4 }, long { 1, 2, 3 }))
  end)

  it("warns if there are too many regressors, one more than allowed", function()
    local warn, text = moth.warn, nil
    moth.warn = function(message) text = message end
    local preds, target = moth.tensor { 1, 2, 4, 4 }, moth.tensor { 1, 2, 3, 4 }
    -- 1 - 1 / 5; adjusted 1 - 0.2 * 3 / (4 - k - 1)
    near(0.8, f.r2_score(preds, target))
    near(0.7, f.r2_score(preds, target, { adjusted = 1 }))
    near(0.4, f.r2_score(preds, target, { adjusted = 2 }))
    assert.is_nil(text)
    near(0.8, f.r2_score(preds, target, { adjusted = 3 }))
    moth.warn = warn
    assert.equal("R2Score: adjusted = 3 regressors need more than 4 samples; the score is not "
      .. "adjusted", text)
  end)

  it("has an R2 of 1 for equal numbers, of 0 for constant targets", function()
    near(1, f.r2_score(moth.ones(3), moth.ones(3)))
    near(0, f.r2_score(moth.tensor { 1, 2, 3 }, moth.ones(3)))
    assert.same({ 1, 0.5 }, f.r2_score(moth.tensor { { 1, 1 }, { 2, 2 }, { 3, 4 } },
      moth.tensor { { 1, 1 }, { 2, 2 }, { 3, 3 } }, { multioutput = "raw_values" }):tolist())
  end)

  it("of tokens leaves ignored ones out", function()
    local logits = moth.zeros(1, 3, 4)
    near(4, f.perplexity(logits, long { { 1, 2, 4 } }))
    logits[1][3][1] = 50
    near(4, f.perplexity(logits, long { { 1, 2, 0 } }, { ignore_index = 0 }))
  end)

  it("of sentences counts n-grams, brevity and weights", function()
    local function bleu(...) return f.bleu_score({ "a b c d" }, { { "a b c d e" } }, ...) end
    near(math.exp(1 - 5 / 4), bleu())
    near(1, f.bleu_score({ "a b c d" }, { "a b c d" }))
    near(0, f.bleu_score({ "a b c d" }, { "a b c e" })) -- no 4-gram fits
    -- 3 of 4, 2 of 3
    near(math.sqrt(3 / 4 * 2 / 3), f.bleu_score({ "a b c d" }, { "a b c e" }, { n_gram = 2 }))
    near((3 / 4) ^ 0.25 * (2 / 3) ^ 0.75, f.bleu_score({ "a b c d" }, { "a b c e" },
      { n_gram = 2, weights = { 0.25, 0.75 } }))
    near(math.sqrt(3 / 4 * 3 / 4), f.bleu_score({ "a b c d" }, { "a b c e" },
      { n_gram = 2, smooth = true }))
    -- The count of a word is that of the reference with most of them.
    near(2 / 3, f.bleu_score({ "a a a" }, { { "a b b", "a a b" } }, { n_gram = 1 }))
    -- The nearest length counts, the first of two.
    near(math.exp(1 - 4 / 3), f.bleu_score({ "a b c" }, { { "a b c d", "a b" } }, { n_gram = 1 }))
    near(1, f.bleu_score({ "a b c" }, { { "a b", "a b c d" } }, { n_gram = 1 }))
    local one = metrics.BLEUScore { n_gram = 1 }
    one:update("a b", { "a b" })
    one:update({ "a" }, { "c" })
    near(2 / 3, one:compute())
  end)

  local function map(options) return metrics.MeanAveragePrecision(options) end
  local box, one = moth.tensor { { 1, 1, 5, 5 } }, moth.ones(1)
  local found = { boxes = box, scores = one, labels = one }
  local there = { boxes = box, labels = one }
  local function with(item, key, value)
    local copy = {}
    for k, x in pairs(item) do copy[k] = x end
    copy[key] = value
    return { copy }
  end
  refused {
    { "refuses a scalar for R2", "bad argument 'preds' to 'R2Score' (vectors or (N, D) are needed, "
      .. "got f32 ()", function() metrics.R2Score():update(moth.tensor(1), moth.tensor(1)) end },
    { "refuses 3 dimensions for R2", "(vectors or (N, D) are needed, got f32 (1, 2, 3)",
      function() metrics.R2Score():update(moth.rand(1, 2, 3), moth.rand(1, 2, 3)) end },
    { "needs two samples for R2", "R2Score: two samples are needed, got 1",
      function() f.r2_score(moth.ones(1), moth.ones(1)) end },
    { "refuses a wrong number of outputs", "((N, 2) with num_outputs = 2 is needed, got (3, 3)",
      function() metrics.MeanSquaredError { num_outputs = 2 }:update(moth.rand(3, 3),
        moth.rand(3, 3)) end },
    { "refuses integer logits", "bad argument 'preds' to 'Perplexity' (logits are needed, got i64 "
      .. "(1, 1, 2)",
        function() metrics.Perplexity():update(long { { { 1, 2 } } }, long { { 1 } }) end },
    { "refuses floating-point tokens", "bad argument 'target' to 'Perplexity' (integer token "
      .. "ids are "
      .. "needed, got f32 (1, 2)",
      function() metrics.Perplexity():update(moth.rand(1, 2, 3), moth.rand(1, 2)) end },
    { "refuses another length of tokens", "(N, L, V) for a target (N, L) is needed, got (1, 2, 3) "
      .. "for (1, 3)",
      function() metrics.Perplexity():update(moth.rand(1, 2, 3), long { { 1, 2, 3 } }) end },
    { "refuses a wrong number of weights", "bad argument 'weights' to 'BLEUScore' (n_gram = 4 "
      .. "numbers are needed", function() metrics.BLEUScore { weights = { 1, 2, 3 } } end },
    { "refuses a wrong number of references", "bad argument 'target' to 'BLEUScore' (a list of 2 "
      .. "lists of sentences is needed",
      function() metrics.BLEUScore():update({ "a", "b" }, { "a" }) end },
    { "refuses a number as sentence", "bad argument 'preds' to 'BLEUScore' (a list of sentences is "
      .. "needed, got 3", function() metrics.BLEUScore():update({ 3 }, { "a" }) end },
    { "refuses a number as reference", "bad argument 'target' to 'BLEUScore' (lists of "
      .. "sentences are "
      .. "needed, got 5", function() metrics.BLEUScore():update({ "a" }, { { "a", 5 } }) end },
    { "needs three numbers of detections", "bad argument 'max_detection_thresholds' to "
      .. "'MeanAveragePrecision' (three numbers are needed",
      function() map { max_detection_thresholds = { 1, 2 } } end },
    { "refuses texts as thresholds", "bad argument 'iou_thresholds' to 'MeanAveragePrecision' "
      .. "(a list "
      .. "of numbers is needed", function() map { iou_thresholds = { "a" } } end },
    { "refuses no thresholds", "bad argument 'rec_thresholds' to 'MeanAveragePrecision' (a list of "
      .. "numbers is needed", function() map { rec_thresholds = {} } end },
    { "refuses a tensor of detections", "bad argument 'preds' to 'MeanAveragePrecision' (a list of "
      .. "tables is needed", function() map():update(box, { there }) end },
    { "refuses a wrong number of images", "bad argument 'target' to 'MeanAveragePrecision' (a "
      .. "list of "
      .. "1 tables is needed", function() map():update({ found }, {}) end },
    { "refuses a number as image", "bad argument 'preds' to 'MeanAveragePrecision' (a list of "
      .. "tables "
      .. "is needed, got 3", function() map():update({ 3 }, { there }) end },
    { "needs labels", "bad argument 'target' to 'MeanAveragePrecision' (image 1: a tensor 'labels' "
      .. "is needed, got nil",
      function() map():update({ found }, { { boxes = box } }) end },
    { "needs a score of each label", "image 1: 'scores' has a number for each of 1 label, got f32 "
      .. "(2)", function() map():update(with(found, "scores", moth.ones(2)), { there }) end },
    { "needs an area of each label", "image 1: 'area' has a number for each of 1 label, got 3",
      function() map():update({ found }, with(there, "area", 3)) end },
    { "needs a mark of each label", "image 1: 'iscrowd' has a number for each of 1 label, got f32 "
      .. "(3)", function() map():update({ found }, with(there, "iscrowd", moth.ones(3))) end },
    { "refuses boxes of three numbers", "image 1: '(n, 4) boxes' for 1 label is needed, got "
      .. "(1, 3)",
      function() map():update(with(found, "boxes", moth.ones(1, 3)), { there }) end },
    { "refuses masks of two dimensions", "image 1: '(n, H, W) masks' for 1 label is needed, got "
      .. "(1, 4)", function()
      map { iou_type = "segm" }:update({ { masks = box, scores = one, labels = one } },
        { { masks = box, labels = one } })
    end },
  }

  it("has COCO's thresholds by default, in order", function()
    local m = map()
    assert.equal(10, #m.iou_thresholds)
    for i, x in ipairs(m.iou_thresholds) do assert.near(0.45 + 0.05 * i, x, 1e-12) end
    assert.equal(101, #m.rec_thresholds)
    for i, x in ipairs(m.rec_thresholds) do assert.near((i - 1) / 100, x, 1e-12) end
    assert.same({ 1, 10, 100 }, m.max_detection_thresholds)
    assert.same({ "xyxy", "bbox", false, "macro" }, { m.box_format, m.iou_type, m.class_metrics,
      m.average })
    local set = map { iou_thresholds = moth.tensor { 0.25, 0.5 }, rec_thresholds = { 0, 1 } }
    assert.same({ { 0.25, 0.5 }, { 0, 1 } }, { set.iou_thresholds, set.rec_thresholds })
  end)

  it("takes integer boxes, sorts numbers of detections, and takes areas that are given", function()
    local m = map { max_detection_thresholds = { 100, 1, 10 } }
    assert.same({ 1, 10, 100 }, m.max_detection_thresholds)
    m:update({ { boxes = long { { 1, 1, 5, 5 } }, scores = one, labels = one } },
      { { boxes = long { { 1, 1, 5, 5 } }, labels = one, area = moth.tensor { 2000 } } })
    local out = m:compute()
    near(1, out.map)
    near(-1, out.map_small)
    near(1, out.map_medium)
    near(-1, out.map_large)
  end)

  it("compares masks, also with images without any", function()
    local mask = moth.zeros(1, 4, 4)
    mask[1]:narrow(1, 1, 2):fill_(1)
    local none = { masks = moth.zeros(0, 4, 4), scores = moth.zeros(0), labels = moth.zeros(0) }
    local m = map { iou_type = "segm" }
    m:update({ { masks = mask, scores = one, labels = one }, none },
      { { masks = mask:bool(), labels = one }, { masks = mask, labels = one } })
    local out = m:compute()
    near(0.5, out.mar_100)
    near(51 / 101, out.map)
    near(0.5, out.mar_small)
    local half = map { iou_type = "segm", iou_thresholds = { 0.5, 0.75 } }
    local wide = mask:clone()
    wide[1]:narrow(1, 3, 1):fill_(1) -- 8 of 12: an IoU of 2 / 3
    half:update({ { masks = wide, scores = one, labels = one } }, { { masks = mask,
      labels = one } })
    out = half:compute()
    near(0.5, out.map)
    near(1, out.map_50)
    near(0, out.map_75)
  end)
end)
