-- Claims about moth.metrics in several processes: see spec/support/ranks.lua.

local moth = require "moth"
local metrics, dist = moth.metrics, moth.distributed

-- Batches of different sizes: process r has r batches, the first none.
local function batches(rank, n)
  moth.manual_seed(3)
  local mine, all = {}, {}
  for r = 0, n - 1 do
    for b = 1, r do
      local size = 2 * r + b
      local batch = {moth.randn(size, 4):softmax(2), moth.randint(1, 5, {size})}
      all[#all + 1] = batch
      if r == rank then mine[#mine + 1] = batch end
    end
  end
  return mine, all
end

local function same(a, b, what)
  if moth.is_tensor(a) then
    assert(a.shape == b.shape and moth.allclose(a:double(), b:double(), 1e-6, 1e-7, true), what
      .. ": " .. tostring(a) .. " " .. tostring(b))
  elseif type(a) == "table" then
    for key, value in pairs(a) do same(value, b[key], what .. "." .. tostring(key)) end
  else
    assert(a == b, what)
  end
end

-- The value of all processes is that of one process with all batches.
local function compare(make, feed, rank, n, what)
  local mine, all = batches(rank, n)
  local part, whole = make(), make()
  whole.sync_on_compute = false
  for _, batch in ipairs(mine) do feed(part, batch) end
  for _, batch in ipairs(all) do feed(whole, batch) end
  local before = part.update_count
  for _ = 1, 2 do same({whole:compute()}, {part:compute()}, what) end
  assert(part.update_count == before, what)
  local copies = {}
  local value = part:compute()
  dist.all_gather_object(copies, moth.is_tensor(value) and value or 0)
  for r = 2, n do same(copies[1], copies[r], what .. " in all processes") end
end

local function pair(metric, batch) metric:update(batch[1], batch[2]) end
local function numbers(metric, batch) metric:update(batch[1]) end
local function scores(metric, batch) metric:update(batch[1]:select(2, 1), batch[1]:select(2, 2)) end

local CLASSES = {"Accuracy", "F1Score", "ConfusionMatrix", "JaccardIndex", "AUROC",
                 "AveragePrecision", "StatScores", "Recall"}

return {
  {"metrics of classes add up over the processes", function(rank, n)
    for _, name in ipairs(CLASSES) do
      compare(function() return metrics["Multiclass" .. name](4) end, pair, rank, n, name)
    end
    compare(function() return metrics.MulticlassAUROC {4, thresholds = 50} end, pair, rank, n,
      "AUROC")
    compare(function() return metrics.Accuracy {task = "multiclass", num_classes = 4} end, pair,
      rank, n, "Accuracy")
  end},
  {"means, sums, extremes and lists of values add up over the processes", function(rank, n)
    for _, name in ipairs {"Mean", "Sum", "Max", "Min", "Cat"} do
      compare(metrics[name .. "Metric"], numbers, rank, n, name)
    end
    for _, name in ipairs {"MeanSquaredError", "MeanAbsoluteError", "R2Score"} do
      compare(metrics[name], scores, rank, n, name)
    end
  end},
  {"detections of all processes are matched", function(rank, n)
    compare(metrics.MeanAveragePrecision, function(metric, batch)
      local corner = batch[1]:narrow(2, 1, 2) * 10
      local boxes = moth.cat({corner, corner + 5}, 2)
      metric:update({{boxes = boxes, scores = batch[1]:select(2, 3), labels = batch[2]}},
        {{boxes = boxes + 1, labels = batch[2]}})
    end, rank, n, "mAP")
  end},
  {"large states travel in messages of their own", function(rank, n)
    local function make(rule, default)
      local metric = metrics.Metric()
      metric:add_state("x", default, rule)
      return metric
    end
    local sum = make("sum", moth.zeros({200, 200}, {dtype = moth.int64}))
    sum.x:add_(rank + 1)
    local list = make("cat", {})
    for i = 1, rank do table.insert(list.x, moth.full({20000, i}, rank)) end
    sum:sync()
    list:sync()
    assert(moth.equal(sum.x, moth.full({200, 200}, n * (n + 1) / 2, {dtype = moth.int64})))
    assert(#list.x == n * (n - 1) / 2)
    for r = 1, n - 1 do
      for i = 1, r do
        assert(moth.equal(list.x[r * (r - 1) / 2 + i], moth.full({20000, i}, r)))
      end
    end
    sum:unsync()
    list:unsync()
    assert(sum.x[1][1]:item() == rank + 1 and #list.x == rank)
  end},
  {"means are weighted by the updates of a process", function(rank, n)
    local Running = moth.class("Running", metrics.Metric)
    function Running:init() self:add_state("mean", 0, "mean") end
    function Running:update(x) self.mean:add_((x - self.mean) / (self.update_count + 1)) end
    function Running:compute() return self.mean end
    local metric, sum, count = Running(), 0, 0
    for r = 0, n - 1 do
      for i = 1, r do
        if r == rank then metric:update(10 * r + i) end
        sum, count = sum + 10 * r + i, count + 1
      end
    end
    assert(math.abs(metric:compute():item() - sum / count) < 1e-4)
  end},
  {"sync_on_compute = false, a call and functions have the value of this process", function(rank)
    local metric = metrics.MeanMetric()
    metric.sync_on_compute = false
    metric:update(rank)
    assert(metric:compute():item() == rank)
    metric = metrics.MeanMetric()
    assert(metric(rank):item() == rank and metric(rank + 2):item() == rank + 2)
    if rank == 0 then -- alone
      local x = moth.tensor {1LL, 2LL}
      assert(metrics.functional.accuracy(x, x, {task = "multiclass", num_classes = 3}):item() == 1)
      assert(metrics.functional.mean_squared_error(moth.ones(2), moth.zeros(2)):item() == 1)
    end
    metric.dist_sync_on_step = true
    assert(metric(rank):item() == (dist.get_world_size() - 1) / 2)
  end},
  {"a group has a value of its own", function(rank, n)
    local group = dist.new_group {0, 1}
    if rank > 1 then return end
    local metric = metrics.SumMetric()
    metric.process_group = group
    metric:update(rank + 1)
    assert(metric:compute():item() == 3 and n > 1)
  end},
  {"a collection adds up the states of a group of metrics once", function(rank, n)
    local mine, all = batches(rank, n)
    local function make()
      return metrics.MetricCollection {acc = metrics.MulticlassAccuracy(4),
        f1 = metrics.MulticlassF1Score(4), cm = metrics.MulticlassConfusionMatrix(4)}
    end
    local part, whole = make(), make()
    for _, metric in whole:items() do metric.sync_on_compute = false end
    for _, batch in ipairs(mine) do part:update(batch[1], batch[2]) end
    for _, batch in ipairs(all) do whole:update(batch[1], batch[2]) end
    for _ = 1, 2 do same(whole:compute(), part:compute(), "collection") end
    part:update(all[1][1], all[1][2])
    part:reset()
  end},
  {"update between sync and unsync raises", function()
    local metric = metrics.SumMetric()
    metric:update(1)
    metric:sync()
    local ok, problem = pcall(metric.update, metric, 1)
    assert(not ok and tostring(problem):find "between sync and unsync")
    metric:unsync()
    metric:update(1)
    assert(metric:compute():item() == 2 * dist.get_world_size())
  end},
}
