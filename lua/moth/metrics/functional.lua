--- functional.lua -- moth.metrics.functional: the value of a metric for one batch, by the names of
-- torchmetrics.functional.

local define = require "moth.binding.define"
local Metric = require "moth.metrics.metric"
local tasks = require "moth.metrics.tasks"

local functional = {}

local PREDS = "moth.tensor{0.9, 0.2, 0.7}, moth.tensor{1LL, 0LL, 0LL}"
local SCORES = "moth.tensor{{0.9, 0.1, 0}, {0.2, 0.3, 0.5}}, moth.tensor{1LL, 2LL}"
local LABELS = "moth.tensor{{0.9, 0.1}, {0.2, 0.3}}, moth.tensor{{1LL, 0LL}, {1LL, 1LL}}"

-- ---- counts ----

local COMMON = " multidim_average ignore_index validate_args"

-- @param more   arguments after the others
-- @param first  "beta": an argument before the others
local function counted(name, class_name, doc, more, first)
  local before = first and first .. " " or ""
  local beta = first and ", 0.5" or ""
  more = more and " " .. more or ""
  tasks.functions(functional, {name, class_name}, {
    any = (first and "beta_1 " or "") .. "threshold num_classes num_labels micro multidim_average "
      .. "top_k ignore_index validate_args" .. more,
    binary = before .. "threshold" .. COMMON .. more,
    multiclass = before .. "num_classes average top_k" .. COMMON .. more,
    multilabel = before .. "labels threshold average" .. COMMON .. more,
  }, {
    doc = doc,
    any = SCORES .. ", {task = 'multiclass', num_classes = 3}",
    binary = PREDS .. beta, multiclass = SCORES .. beta .. ", 3",
    multilabel = LABELS .. beta .. ", 2",
  })
end

counted("accuracy", "Accuracy", "The share of right predictions.")
counted("precision", "Precision", "The share of right ones among the predictions of a class.",
  "zero_division")
counted("recall", "Recall", "The share of the targets of a class that are predicted.",
  "zero_division")
counted("specificity", "Specificity", "The share of the other targets that are not predicted as a "
  .. "class.")
counted("fbeta_score", "FBetaScore", "The weighted harmonic mean of precision and recall.",
  "zero_division", "beta")
counted("f1_score", "F1Score", "The harmonic mean of precision and recall.", "zero_division")
counted("stat_scores", "StatScores", "The numbers of true and false positives, true and false "
  .. "negatives, and targets of a class: (..., 5).")

-- ---- matrices and curves ----

local MULTICLASS = ", {task = 'multiclass', num_classes = 3}"

local function simple(name, class_name, doc, orders, binary)
  tasks.functions(functional, {name, class_name}, orders, {
    doc = doc, any = SCORES .. MULTICLASS, binary = PREDS .. (binary or ""),
    multiclass = SCORES .. ", 3", multilabel = LABELS .. ", 2",
  })
end

simple("confusion_matrix", "ConfusionMatrix", "The numbers of samples by target (rows) and "
  .. "prediction (columns).", {
  any = "threshold num_classes num_labels normalize ignore_index validate_args",
  binary = "threshold normalize ignore_index validate_args",
  multiclass = "classes normalize ignore_index validate_args",
  multilabel = "labels threshold normalize ignore_index validate_args",
})

simple("jaccard_index", "JaccardIndex", "The intersection over the union of the predictions and "
  .. "targets of a class.", {
  any = "threshold num_classes num_labels average ignore_index validate_args zero_division",
  binary = "threshold ignore_index validate_args zero_division",
  multiclass = "classes average ignore_index validate_args zero_division",
  multilabel = "labels threshold average ignore_index validate_args zero_division",
})

for name, row in pairs {
  precision_recall_curve = {"PrecisionRecallCurve", "Precision, recall and thresholds"},
  roc = {"ROC", "False positive rate, true positive rate and thresholds"},
} do
  simple(name, row[1], row[2] .. ": three vectors, or lists of vectors, one for each class.", {
    any = "thresholds num_classes num_labels curve_average ignore_index validate_args",
    binary = "thresholds ignore_index validate_args",
    multiclass = "classes thresholds curve_average ignore_index validate_args",
    multilabel = "labels thresholds ignore_index validate_args",
  })
end

simple("auroc", "AUROC", "The area under the ROC curve.", {
  any = "thresholds num_classes num_labels average max_fpr ignore_index validate_args",
  binary = "max_fpr thresholds ignore_index validate_args",
  multiclass = "classes class_average thresholds ignore_index validate_args",
  multilabel = "labels average thresholds ignore_index validate_args",
})

simple("average_precision", "AveragePrecision", "The mean of the precisions at all thresholds, "
  .. "weighted by the increase of recall.", {
  any = "thresholds num_classes num_labels average ignore_index validate_args",
  binary = "thresholds ignore_index validate_args",
  multiclass = "classes class_average thresholds ignore_index validate_args",
  multilabel = "labels average thresholds ignore_index validate_args",
})

-- ---- numbers and texts ----

-- Makes a function of preds and target from a class and its constructor's arguments.
local function of_class(name, class_name, doc, rows, examples, preds, target)
  local args = {preds, target}
  for _, row in ipairs(rows) do args[#args + 1] = row end
  functional[name] = define {
    name = name, doc = doc, args = args, examples = examples, scoped = true,
    run = function(a, b, ...)
      local given = {}
      for i, row in ipairs(rows) do given[row[2]] = (select(i, ...)) end
      local Class = require("moth.metrics")[class_name]
      local metric = next(given) and Class(given) or Class()
      metric:update(a, b)
      return metric:compute(Metric._on_step)
    end,
  }
end

local VALUES = {"tensor", "preds", "predicted numbers"}
local TRUE = {"tensor", "target", "the true numbers, of the same shape"}
local OUTPUTS = {"int", "num_outputs", "the number of outputs: each has a mean", default = 1,
  bounds = {1}}

of_class("mean_absolute_error", "MeanAbsoluteError", "The mean of |preds - target|.", {OUTPUTS},
  "moth.rand(4), moth.rand(4)", VALUES, TRUE)

of_class("mean_squared_error", "MeanSquaredError", "The mean of (preds - target)^2.", {
  {"bool", "squared", "false: the square root", default = true}, OUTPUTS,
}, "moth.rand(4), moth.rand(4)", VALUES, TRUE)

of_class("r2_score", "R2Score", "The coefficient of determination.", {
  {"int", "adjusted", "the number of independent regressors", default = 0, bounds = {0}},
  {"enum", "multioutput", "of several outputs: their mean, one value for each, or their mean "
    .. "weighted by variance", choices = {"uniform_average", "raw_values", "variance_weighted"}},
}, "moth.rand(4), moth.rand(4)", VALUES, TRUE)

of_class("perplexity", "Perplexity", "exp of the mean negative log-likelihood of tokens.", {
  {"int", "ignore_index", "targets of this value are left out", optional = true},
}, "moth.randn(1, 2, 3), moth.tensor{{3LL, 1LL}}", {"tensor", "preds", "logits (N, L, V)"},
  {"tensor", "target", "token ids from 1 to V, (N, L)"})

of_class("bleu_score", "BLEUScore", "The n-grams of translations that are in their references "
  .. "(Papineni et al., 2002).", {
  {"int", "n_gram", "the longest n-grams", default = 4, bounds = {1}},
  {"bool", "smooth", "add 1 to the counts of all n-grams of more than one word?", default = false},
  {"any", "weights", "the weight of each n; default: equal", optional = true},
}, "{'a cat is on the mat'}, {{'there is a cat on the mat'}}",
  {"map", "preds", "a list of sentences"},
  {"map", "target", "a list of references for each, or lists of them"})

of_class("mean_average_precision", "MeanAveragePrecision", "The mean average precision and recall "
  .. "of detections (COCO): a table, see moth.metrics.MeanAveragePrecision.",
  require("moth.metrics.detection").rows,
  "{{boxes = moth.tensor{{1, 1, 5, 5}}, scores = moth.ones(1), labels = moth.ones(1):long()}}, "
    .. "{{boxes = moth.tensor{{1, 1, 5, 6}}, labels = moth.ones(1):long()}}",
  {"map", "preds", "for each image {boxes =, scores =, labels =}"},
  {"map", "target", "for each image {boxes =, labels =}"})

return functional
