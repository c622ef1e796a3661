--- measures.lua -- the metrics of moth.fit: objects with update, compute and reset, as in
-- moth.metrics, and functions of (output, target), whose values are averaged over the samples.

local calls = require "moth.binding.calls"
local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local measures = {}

--- The number of samples in a batch.
function measures.samples(input, target)
  local x = lib.istensor(input) and input or target
  return lib.istensor(x) and x:dim() > 0 and x:size(1) or 1
end

-- A number from a number or a tensor of one element; other values are unchanged.
local function number_of(value)
  if lib.istensor(value) and value:numel() == 1 then value = value:item() end
  if type(value) == "cdata" and not lib.istensor(value) then value = tonumber(value) end
  if type(value) == "boolean" then value = value and 1 or 0 end
  return value
end

-- The mean of a function over the samples.
local Mean = class("Mean")

function Mean:init(fn)
  self.fn = fn
  self:reset()
end

function Mean:reset() self.sum, self.count = 0, 0 end

function Mean:update(output, target)
  local value, n = number_of(self.fn(output, target)), measures.samples(output, target)
  if type(value) ~= "number" then
    errors.argument("fit", "metrics", "a function has to return a number or a tensor of one "
      .. "element, got " .. errors.describe(value), "E_TYPE")
  end
  self.sum, self.count = self.sum + value * n, self.count + n
end

function Mean:compute() return self.sum / self.count end

function Mean:state_dict() return {sum = self.sum, count = self.count} end

function Mean:load_state_dict(state) self.sum, self.count = state.sum, state.count end

function Mean:merge(state) self.sum, self.count = self.sum + state.sum, self.count + state.count end

--- Checks the argument `metrics`: a map of names, or a list, whose names are those of the classes.
-- @return name -> metric
function measures.table(given)
  local metrics = {}
  if given ~= nil and not lib.is_plain(given) then given = {given} end
  for name, metric in pairs(given or {}) do
    local of_class = type(name) == "number" and class.typename(metric)
    if calls.is_callable(metric) and not (type(metric) == "table" and metric.update) then
      metric = Mean(metric)
    end
    local whole = type(metric) == "table"
    for _, method in ipairs {"update", "compute", "reset"} do
      whole = whole and calls.is_callable(metric[method])
    end
    if type(name) == "number" then name = of_class end
    if not whole or type(name) ~= "string" then
      errors.argument("fit", "metrics", "a table of names is needed: metrics = {acc = metric}, "
        .. "where metric has update, compute and reset, or is a function(output, target); got "
        .. errors.describe(metric), "E_TYPE")
    end
    metrics[name] = metric
  end
  return metrics
end

--- Adds a batch to all metrics.
function measures.update(metrics, output, target)
  for _, metric in pairs(metrics) do metric:update(output, target) end
end

local function members_of(collection)
  local list = {}
  for _, metric in collection:items() do list[#list + 1] = metric end
  return list
end

-- Calls compute with the group of a run, for metrics that have none.
local function computed(ranks, list, metric)
  local changed = {}
  for _, each in ipairs(list) do
    if each.process_group == nil then
      each.process_group, changed[#changed + 1] = ranks.group, each
    end
  end
  local results = lib.pack(pcall(metric.compute, metric))
  for _, each in ipairs(changed) do each.process_group = nil end
  if not results[1] then error(results[2], 0) end
  return results[2]
end

-- The value of a metric in several processes. Metrics of moth.metrics add up the states of all
-- processes themselves; functions are averaged over the samples of all; the values of other objects
-- are averaged.
local function value_in(ranks, metric)
  if class.isinstance(metric, Mean) then
    local sum, count = ranks:sums(metric.sum, metric.count)
    return sum / count
  end
  local own = metric.reductions and {metric} or metric._groups and members_of(metric)
  if own then return computed(ranks, own, metric) end
  local value = number_of(metric:compute())
  if type(value) ~= "number" then return value end
  local sum, count = ranks:sums(value, 1)
  return sum / count
end

local function names_of(metrics)
  local names = {}
  for name in pairs(metrics) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- Puts the values of all metrics into a table, under their names after a prefix, and resets them.
-- A MetricCollection has several values, under their own names.
-- @param ranks  of several processes (ranks.lua), or nil
function measures.finish(metrics, results, prefix, ranks)
  for _, name in ipairs(names_of(metrics)) do -- in one order in all processes
    local metric = metrics[name]
    local value
    if ranks then value = value_in(ranks, metric) else value = metric:compute() end
    for inner, each in pairs(lib.is_plain(value) and value or {[name] = value}) do
      results[prefix .. inner] = number_of(each)
    end
    metric:reset()
  end
end

--- The states of the metrics that have a state_dict.
function measures.state(metrics)
  local states = {}
  for name, metric in pairs(metrics) do
    if calls.is_callable(metric.state_dict) then states[name] = metric:state_dict() end
  end
  return states
end

--- Loads what measures.state returned.
function measures.load(metrics, states)
  for name, state in pairs(states) do
    if metrics[name] then metrics[name]:load_state_dict(state) end
  end
end

--- Adds what measures.state returned in another process.
function measures.merge(metrics, states)
  for name, state in pairs(states) do
    local metric = metrics[name]
    if metric and calls.is_callable(metric.merge) then metric:merge(state) end
  end
end

return measures
