--- aggregation.lua -- metrics of plain values: MeanMetric, SumMetric, MaxMetric, MinMetric,
-- CatMetric.
--
-- NaNs are counted in a state, and reported when the value is computed, so that an update does not
-- wait for a GPU.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local Metric = require "moth.metrics.metric"

local istensor = lib.istensor
local aggregation = {}

local NAN = {"any", "nan_strategy", 'NaNs among the values: "ignore" leaves them out, "warn" also '
  .. 'prints a warning, "error" raises; "disable" uses them, and a number replaces them',
  default = "warn"}

local STRATEGIES = {warn = true, error = true, ignore = true, disable = true}

-- Declares the states that all these metrics have.
local function begin(self, name, strategy)
  if type(strategy) ~= "number" and not STRATEGIES[strategy] then
    errors.refuse(name, "nan_strategy", '"error", "warn", "ignore", "disable" or a number is '
      .. "needed", strategy)
  end
  self.nan_strategy = strategy
  self:add_state("nans", require("moth").tensor(0LL), "sum")
end

local function count_nans(self, x, bad)
  if self.nan_strategy == "error" and not x.is_cuda and not lib.capture and bad:any():item() then
    errors.argument(class.typename(self), "value", errors.describe(x) .. " has NaNs", "E_DOMAIN")
  end
  if self.nan_strategy ~= "ignore" then self.nans:add_(bad:sum()) end
end

-- Raises or warns if there were NaNs.
local function report(self)
  if self.nan_strategy ~= "warn" and self.nan_strategy ~= "error" then return end
  if lib.capture or not self.nans:gt(0):item() then return end
  local text = ("%s: %d of the values were NaN"):format(class.typename(self),
    tonumber(self.nans:item()))
  if self.nan_strategy == "error" then errors.raise(text, "E_DOMAIN") end
  require("moth").warn(text .. " and are left out")
end

-- A float tensor of an input that is a tensor, a number or a nested list.
local function tensor_of(self, argument, value)
  if istensor(value) then
    return value:is_floating_point() and value or value:to(require("moth").float64)
  end
  if type(value) ~= "number" and not lib.is_plain(value) then
    errors.refuse(class.typename(self), argument, "a tensor or a number is needed", value, "E_TYPE")
  end
  local moth = require "moth"
  return moth.tensor(value, {dtype = moth.float64, device = self.nans.device})
end

-- Returns the values with NaNs replaced by a number, and the mask of the NaNs that are left out.
local function cleaned(self, value, filler)
  local x, strategy = tensor_of(self, "value", value), self.nan_strategy
  if strategy == "disable" then return x end
  local bad = x:isnan()
  if type(strategy) == "number" then return (x:masked_fill(bad, strategy)) end
  count_nans(self, x, bad)
  return x:masked_fill(bad, filler), bad
end

local function in_default(x)
  return x:to(require("moth").get_default_dtype())
end

-- Creates a class with one state.
-- @param state  its name, start and rule
local function new(name, state, update, compute)
  local Class = class(name, Metric)
  aggregation[name] = Class
  Class.signature = define.signature(name, {NAN})
  function Class:init(strategy)
    begin(self, name, strategy)
    local start = state[2]
    if type(start) == "number" then
      start = require("moth").tensor(start, {dtype = require("moth").float64})
    end
    self:add_state(state[1], start, state[3])
  end
  Class.update = update
  function Class:compute()
    report(self)
    return in_default(compute(self))
  end
  return Class
end

local SumMetric = new("SumMetric", {"sum_value", 0, "sum"}, function(self, value)
  if type(value) == "number" and value == value then
    self.sum_value:add_(value)
  else
    self.sum_value:add_((cleaned(self, value, 0)):sum())
  end
end, function(self) return self.sum_value end)
SumMetric._doc = "The sum of all values: metric:update(value), a tensor of any shape or a number."

local MaxMetric = new("MaxMetric", {"max_value", -math.huge, "max"}, function(self, value)
  local x = cleaned(self, value, -math.huge)
  if x:numel() > 0 then self.max_value:copy_(self.max_value:maximum(x:max())) end
end, function(self) return self.max_value end)
MaxMetric._doc = "The largest of all values: metric:update(value), a tensor or a number."

local MinMetric = new("MinMetric", {"min_value", math.huge, "min"}, function(self, value)
  local x = cleaned(self, value, math.huge)
  if x:numel() > 0 then self.min_value:copy_(self.min_value:minimum(x:min())) end
end, function(self) return self.min_value end)
MinMetric._doc = "The smallest of all values: metric:update(value), a tensor or a number."

-- Reads the mask of NaNs, since the number of the values that stay is needed.
local CatMetric = new("CatMetric", {"value", {}, "cat"}, function(self, value)
  local x, bad = cleaned(self, value, 0)
  if bad and bad:any():item() then x = x:masked_select(bad:logical_not()) end
  if x:dim() == 0 then x = x:reshape(1) end
  if x:numel() > 0 then table.insert(self.value, x) end
end, function(self)
  local moth = require "moth"
  return self.value[1] and (moth.cat(self.value, 1)) or moth.zeros(0)
end)
CatMetric._doc = "All values, joined along the first dimension: metric:update(value), a tensor or "
  .. "a number. NaNs are left out: the values of that update are then a vector. Its memory grows "
  .. "with the number of values."

local MeanMetric = class("MeanMetric", Metric)
aggregation.MeanMetric = MeanMetric
MeanMetric._doc = "The mean of all values: metric:update(value, weight). value is a tensor of any "
  .. "shape or a number; weight (default 1) is broadcast to it, such as the number of samples "
  .. "behind the mean loss of a batch."

MeanMetric.signature = define.signature("MeanMetric", {NAN})

function MeanMetric:init(strategy)
  begin(self, "MeanMetric", strategy)
  local zero = require("moth").tensor(0, {dtype = require("moth").float64})
  self:add_state("mean_value", zero, "sum")
  self:add_state("weight", zero, "sum")
end

function MeanMetric:update(value, weight)
  if type(weight) == "nil" then weight = 1 end
  if type(value) == "number" and type(weight) == "number" and value == value then
    self.mean_value:add_(value * weight)
    self.weight:add_(weight)
    return
  end
  local x, bad = cleaned(self, value, 0)
  if type(weight) == "number" then
    self.mean_value:add_(x:sum(), {alpha = weight})
    self.weight:add_(bad and bad:logical_not():sum() or x:numel(), {alpha = weight})
    return
  end
  local w = tensor_of(self, "weight", weight)
  if not (w.shape == x.shape) then w = w:expand(x.shape) end
  if bad then w = w:masked_fill(bad, 0) end
  self.mean_value:add_((x * w):sum())
  self.weight:add_(w:sum())
end

function MeanMetric:compute()
  report(self)
  return in_default(self.mean_value / self.weight)
end

return aggregation
