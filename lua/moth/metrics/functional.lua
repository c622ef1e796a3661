--- functional.lua -- moth.metrics.functional: the value of a metric for one batch, by the names of
-- torchmetrics.functional.

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

return functional
