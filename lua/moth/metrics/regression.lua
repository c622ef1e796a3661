--- regression.lua -- metrics of numbers: MeanAbsoluteError, MeanSquaredError, R2Score. Sums are
-- kept in f64.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local inputs = require "moth.metrics.inputs"
local Metric = require "moth.metrics.metric"

local regression = {}

local function zeros(shape, dtype)
  local moth = require "moth"
  return moth.zeros(shape, {dtype = dtype or moth.float64})
end

-- Checks both inputs. Returns them as floats, with one dimension if there is one output.
local function pair(name, preds, target, outputs)
  inputs.tensors(name, preds, target)
  if not (preds.shape == target.shape) then
    errors.argument(name, "preds", ("the shape of target, %s, is needed, got %s"):format(
      tostring(target.shape), tostring(preds.shape)), "E_SHAPE")
  end
  if outputs > 1 and (preds:dim() < 2 or preds:size(2) ~= outputs) then
    errors.argument(name, "preds", ("(N, %d) with num_outputs = %d is needed, got %s"):format(
      outputs, outputs, tostring(preds.shape)), "E_SHAPE")
  end
  if outputs == 1 then preds, target = preds:flatten(), target:flatten() end
  local moth = require "moth"
  if not preds:is_floating_point() then preds = preds:to(moth.get_default_dtype()) end
  if not target:is_floating_point() then target = target:to(preds.dtype) end
  return preds, target
end

local function in_default(x) return x:to(require("moth").get_default_dtype()) end

local OUTPUTS = {"int", "num_outputs", "the number of outputs: each has a mean", default = 1,
  bounds = {1}}

--- The mean of |preds - target|, tensors of equal shape.
local MeanAbsoluteError = class("MeanAbsoluteError", Metric)
regression.MeanAbsoluteError = MeanAbsoluteError
MeanAbsoluteError.higher_is_better = false
MeanAbsoluteError.signature = define.signature("MeanAbsoluteError", {OUTPUTS})

function MeanAbsoluteError:init(num_outputs)
  self.num_outputs = num_outputs
  self:add_state("sum_abs_error", zeros(num_outputs == 1 and {} or {num_outputs}), "sum")
  self:add_state("total", zeros({}, require("moth").int64), "sum")
end

function MeanAbsoluteError:update(preds, target)
  preds, target = pair("MeanAbsoluteError", preds, target, self.num_outputs)
  self.sum_abs_error:add_((preds - target):abs():sum(1))
  self.total:add_(target:size(1))
end

function MeanAbsoluteError:compute()
  return in_default(self.sum_abs_error / self.total)
end

--- The mean of (preds - target)^2, tensors of equal shape; its square root if squared is false.
local MeanSquaredError = class("MeanSquaredError", Metric)
regression.MeanSquaredError = MeanSquaredError
MeanSquaredError.higher_is_better = false
MeanSquaredError.signature = define.signature("MeanSquaredError", {
  {"bool", "squared", "false: the square root", default = true}, OUTPUTS,
})

function MeanSquaredError:init(squared, num_outputs)
  self.squared, self.num_outputs = squared, num_outputs
  self:add_state("sum_squared_error", zeros(num_outputs == 1 and {} or {num_outputs}), "sum")
  self:add_state("total", zeros({}, require("moth").int64), "sum")
end

function MeanSquaredError:update(preds, target)
  preds, target = pair("MeanSquaredError", preds, target, self.num_outputs)
  self.sum_squared_error:add_((preds - target):square():sum(1))
  self.total:add_(target:size(1))
end

function MeanSquaredError:compute()
  local mean = self.sum_squared_error / self.total
  return in_default(self.squared and mean or mean:sqrt())
end

--- The coefficient of determination, 1 - residual / total sum of squares, of vectors or (N, D).
local R2Score = class("R2Score", Metric)
regression.R2Score = R2Score
R2Score.higher_is_better = true
R2Score._grows = true -- the first batch decides the shape of the states
R2Score.signature = define.signature("R2Score", {
  {"int", "adjusted", "the number of independent regressors, for the adjusted score", default = 0,
    bounds = {0}},
  {"enum", "multioutput", "of several outputs: their mean, one value for each, or their mean "
    .. "weighted by variance", choices = {"uniform_average", "raw_values", "variance_weighted"}},
})

local SUMS = {"sum_squared_error", "sum_error", "residual"}

function R2Score:init(adjusted, multioutput)
  self.adjusted, self.multioutput = adjusted, multioutput
  for _, name in ipairs(SUMS) do self:add_state(name, zeros {}, "sum") end
  self:add_state("total", zeros({}, require("moth").int64), "sum")
end

function R2Score:update(preds, target)
  inputs.tensors("R2Score", preds, target)
  if preds:dim() > 2 or preds:dim() == 0 then
    errors.argument("R2Score", "preds", "vectors or (N, D) are needed, got "
      .. errors.describe(preds), "E_SHAPE")
  end
  local flat = preds:dim() == 1
  preds, target = pair("R2Score", preds, target, flat and 1 or preds:size(2))
  local float64 = require("moth").float64
  target, preds = target:to(float64), preds:to(float64)
  local sums = {target:square():sum(1), target:sum(1), (target - preds):square():sum(1)}
  for i, name in ipairs(SUMS) do
    if self[name].shape == sums[i].shape then self[name]:add_(sums[i])
    else self[name] = self[name] + sums[i] end
  end
  self.total:add_(target:size(1))
end

local function adjust(self, r2, n)
  local k = self.adjusted
  if k == 0 then return r2 end
  if k >= n - 1 then
    require("moth").warn(("R2Score: adjusted = %d regressors need more than %d samples; the score "
      .. "is not adjusted"):format(k, n))
    return r2
  end
  return 1 - (1 - r2) * ((n - 1) / (n - k - 1))
end

function R2Score:compute()
  local n = tonumber(self.total:item())
  if n < 2 then errors.raise("R2Score: two samples are needed, got " .. n, "E_STATE") end
  local rss = self.residual
  local tss = self.sum_squared_error - self.sum_error * (self.sum_error / n)
  local some_rss, some_tss = rss:abs():gt(1e-4), tss:abs():gt(1e-4)
  local score = (1 - rss / tss):where(some_tss, 0):where(some_rss, 1)
  if self.multioutput == "variance_weighted" then score = (tss / tss:sum() * score):sum()
  elseif self.multioutput == "uniform_average" then score = score:mean() end
  return in_default(adjust(self, score, n))
end

return regression
