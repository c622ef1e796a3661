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
for _, name in ipairs {"Accuracy", "Precision", "Recall", "Specificity", "FBetaScore", "F1Score",
                       "StatScores"} do
  from("classification", ("%s Binary%s Multiclass%s Multilabel%s"):gsub("%%s", name))
end

return (lazy.namespace("moth.metrics", {}, rows, {
  found = function(value)
    if class.isclass(value) then class.guard(value, "metric") end
  end,
}))
