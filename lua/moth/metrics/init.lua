--- init.lua -- moth.metrics: measures of a model's quality, as torchmetrics. Each file is loaded at
-- the first use of one of its names.
--
--     local accuracy = moth.metrics.Accuracy{task = "multiclass", num_classes = 10}
--     for input, target in loader do accuracy:update(net(input), target) end
--     print(accuracy:compute():item())

local class = require "moth.base.class"
local lazy = require "moth.base.lazy"

local rows = {
  Metric = {"moth.metrics.metric"},
  MetricCollection = {"moth.metrics.collection"},
  functional = {"moth.metrics.functional"},
}

local function from(file, names) lazy.from(rows, "moth.metrics." .. file, names) end

from("aggregation", "MeanMetric SumMetric MaxMetric MinMetric CatMetric")
from("regression", "MeanAbsoluteError MeanSquaredError R2Score")
from("text", "Perplexity BLEUScore")
from("detection", "MeanAveragePrecision")
for file, names in pairs {
  classification = "Accuracy Precision Recall Specificity FBetaScore F1Score StatScores",
  confusion = "ConfusionMatrix JaccardIndex",
  curves = "PrecisionRecallCurve ROC AUROC AveragePrecision",
} do
  from(file, (names:gsub("%S+", "%0 Binary%0 Multiclass%0 Multilabel%0")))
end

return (lazy.namespace("moth.metrics", {}, rows, {
  found = function(value)
    if class.isclass(value) then class.guard(value, "metric") end
  end,
}))
