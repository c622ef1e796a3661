--- collection.lua -- moth.metrics.MetricCollection: several metrics with the same inputs.
--
-- Metrics whose states are equal form a group: the first of them is updated, the others read its
-- states. A metric's `_group()` returns a text that is equal for equal states.

local autograd = require "moth.autograd"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local Metric = require "moth.metrics.metric"

--- Several metrics with the same inputs: a list of metrics, whose names are those of their classes,
-- or a table of names and metrics. update, compute, reset, forward, state_dict, load_state_dict and
-- merge call those of all metrics; compute and a call return a table of names and values. Metrics
-- with equal states, such as Accuracy and F1Score of the same task, compute these once.
local MetricCollection = class("MetricCollection")

MetricCollection.signature = define.signature("MetricCollection", {
  {"map", "metrics", "a list of metrics, or a table of names and metrics"},
  {"string", "prefix", "text before each name in the results", default = ""},
  {"string", "postfix", "text after each name in the results", default = ""},
  {"bool", "compute_groups", "update metrics with equal states once?", default = true},
})

function MetricCollection.__new()
  return {_names = {}, _metrics = {}, _groups = {}}
end

function MetricCollection:init(metrics, prefix, postfix, compute_groups)
  self.prefix, self.postfix, self.compute_groups = prefix, postfix, compute_groups
  self:add_metrics(metrics)
end

function MetricCollection:__index(name)
  local metrics = rawget(self, "_metrics")
  return metrics and metrics[name]
end

-- ---- groups ----

-- The members of a group read the states of its first metric.
local function share(group)
  local first = group[1]
  for i = 2, #group do
    group[i]._state, group[i]._kept = first._state, first._kept
    group[i].update_count = first.update_count
  end
end

local function add_to_group(self, metric)
  local key = self.compute_groups and metric._group and metric:_group()
  if key and metric.update_count == 0 then
    for _, group in ipairs(self._groups) do
      if group.key == key then
        group[#group + 1] = metric
        return share(group)
      end
    end
  end
  self._groups[#self._groups + 1] = {key = key, metric}
end

-- ---- the metrics ----

local function add(self, name, metric)
  if class.isinstance(metric, MetricCollection) then
    for inner, one in metric:items() do
      add(self, type(name) == "string" and name .. "_" .. inner or inner, one)
    end
    return
  end
  if not class.isinstance(metric, Metric) then
    errors.refuse("MetricCollection", "metrics", "metrics are needed", metric, "E_TYPE")
  end
  if type(name) ~= "string" then name = class.typename(metric) end
  if self._metrics[name] or MetricCollection[name] ~= nil then
    errors.argument("MetricCollection", "metrics", self._metrics[name]
      and ("there are two metrics named '%s'; give them names: {name = metric}"):format(name)
      or ("'%s' is a method; choose another name"):format(name))
  end
  self._names[#self._names + 1] = name
  self._metrics[name] = metric
  add_to_group(self, metric)
end

--- Adds metrics: a metric, a list, or a table of names and metrics.
function MetricCollection:add_metrics(metrics)
  if not lib.is_plain(metrics) then return add(self, nil, metrics) end
  for _, metric in ipairs(metrics) do add(self, nil, metric) end
  local names = {}
  for name in pairs(metrics) do
    if type(name) == "string" then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do add(self, name, metrics[name]) end
end

--- The names in the results, in order.
function MetricCollection:keys()
  local list = {}
  for i, name in ipairs(self._names) do list[i] = self.prefix .. name .. self.postfix end
  return list
end

--- Iterates over names and metrics: for name, metric in collection:items() do.
function MetricCollection:items()
  local i, keys = 0, self:keys()
  return function()
    i = i + 1
    return keys[i], self._metrics[self._names[i]]
  end
end

-- ---- updates and values ----

--- Adds a batch to all metrics.
function MetricCollection:update(...)
  for _, group in ipairs(self._groups) do
    group[1]:update(...)
    share(group)
  end
end

-- Several results become a list.
local function one_of(...)
  if select("#", ...) > 1 then return {...} end
  return (...)
end

-- Adds the results of one metric; those of a table get separate names.
local function put(self, out, taken, name, value)
  if not lib.is_plain(value) or value[1] ~= nil then
    out[self.prefix .. name .. self.postfix] = value
    return
  end
  for key, inner in pairs(value) do
    local full = taken[key] and name .. "_" .. key or key
    taken[key] = true
    out[self.prefix .. full .. self.postfix] = inner
  end
end

local function values_of(self, f, ...)
  local out, taken = {}, {}
  for _, name in ipairs(self._names) do
    put(self, out, taken, name, one_of(f(self._metrics[name], ...)))
  end
  return out
end

-- Adds up the states of all processes, once for each group.
local function sync(self)
  local done = {}
  local wanted = package.loaded["moth.distributed.group"] and require("moth.metrics.sync").wanted
  for _, group in ipairs(self._groups) do
    if wanted and wanted(group[1]) then
      group[1]:sync()
      share(group)
      for i = 2, #group do group[i]._unsynced = group[1]._unsynced end
      done[#done + 1] = group
    end
  end
  return done
end

local function unsynced(groups, ok, ...)
  for _, group in ipairs(groups) do
    group[1]:unsync()
    share(group)
    for i = 2, #group do group[i]._unsynced = nil end
  end
  if not ok then error((...), 0) end
  return ...
end

--- The values of all batches since the last reset: a table of names and values. A metric with
-- several results has a list of them. As for a single metric they are those of all processes.
function MetricCollection:compute()
  local groups = sync(self)
  local function compute(metric) return metric:compute() end
  return unsynced(groups, pcall(values_of, self, compute))
end

local function batch_values(group, values, ...)
  group[1]:update(...)
  share(group)
  for _, metric in ipairs(group) do values[metric] = one_of(metric:compute(Metric._on_step)) end
end

--- Adds a batch and returns the values of this batch alone; collection(...) is the same.
function MetricCollection:forward(...)
  local values = {}
  for _, group in ipairs(self._groups) do
    group[1]:_apart(batch_values, group, values, ...)
    share(group)
  end
  return values_of(self, function(metric) return values[metric] end)
end

function MetricCollection:__call(...)
  return self:forward(...)
end

--- Sets all states to their defaults.
function MetricCollection:reset()
  for _, group in ipairs(self._groups) do
    group[1]:reset()
    share(group)
  end
end

-- ---- states ----

--- The states of all metrics, by name.
function MetricCollection:state_dict()
  local out = {}
  for _, name in ipairs(self._names) do out[name] = self._metrics[name]:state_dict() end
  return out
end

-- Calls a method of the first metric of each group with its entry in a table of states.
local function each_state(self, fname, state, method)
  if not lib.is_plain(state) then
    errors.refuse(fname, "state_dict", "a table of the states of each metric is needed", state,
      "E_TYPE")
  end
  for name in pairs(state) do
    if not self._metrics[name] then
      errors.argument(fname, "state_dict", ("the collection has no metric '%s'"):format(
        tostring(name)), "E_STATE")
    end
  end
  local names = {}
  for name, metric in pairs(self._metrics) do names[metric] = name end
  for _, group in ipairs(self._groups) do
    local name = names[group[1]]
    if not state[name] then
      errors.argument(fname, "state_dict", ("the states of '%s' are missing"):format(name),
        "E_STATE")
    end
    method(group[1], state[name])
    share(group)
  end
end

--- Sets all states, as state_dict returned them.
function MetricCollection:load_state_dict(state_dict)
  each_state(self, "load_state_dict", state_dict, function(metric, state)
    metric:load_state_dict(state)
  end)
end

--- Adds the states of another collection with the same metrics, or of its state_dict.
function MetricCollection:merge(other)
  if class.isinstance(other, MetricCollection) then other = other:state_dict() end
  each_state(self, "merge", other, function(metric, state) metric:merge(state) end)
end

--- Moves the states to a device.
-- @return the collection
function MetricCollection:to(device)
  for _, group in ipairs(self._groups) do
    group[1]:to(device)
    for i = 2, #group do group[i]:to(device) end
    share(group)
  end
  return self
end

--- A copy that shares no state, with another prefix or postfix if one is given.
function MetricCollection:clone(prefix, postfix)
  if lib.is_plain(prefix) then
    prefix, postfix = prefix.prefix or prefix[1], prefix.postfix or prefix[2]
  end
  local copy = autograd.no_grad(require("moth").deepcopy, self)
  for _, metric in pairs(copy._metrics) do metric:_keep() end
  copy.prefix, copy.postfix = prefix or self.prefix, postfix or self.postfix
  return copy
end

function MetricCollection:__tostring()
  local lines = {"MetricCollection("}
  for name, metric in self:items() do
    lines[#lines + 1] = ("  (%s): %s"):format(name, tostring(metric))
  end
  lines[#lines + 1] = ")"
  return table.concat(lines, "\n")
end

return MetricCollection
