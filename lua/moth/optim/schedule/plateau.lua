--- plateau.lua -- ReduceLROnPlateau: reduces the rates when a metric stops improving.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local LRScheduler = require "moth.optim.schedule.base"

--- Multiplies the rate by factor when the metric has not improved for `patience` epochs.
local Plateau = class("ReduceLROnPlateau", LRScheduler)
Plateau.signature = define.signature("ReduceLROnPlateau", {
  LRScheduler.OPTIMIZER,
  {"enum", "mode", "is a lower or a higher metric better?", choices = {"min", "max"}},
  {"float", "factor", "factor of a drop, below 1", default = 0.1},
  {"int", "patience", "epochs without improvement before the rate drops", default = 10},
  {"float", "threshold", "smaller changes are not improvements", default = 1e-4},
  {"enum", "threshold_mode", "is threshold relative to the best value, or absolute?",
    choices = {"rel", "abs"}},
  {"int", "cooldown", "epochs after a drop that are ignored", default = 0},
  {"any", "min_lr", "the lowest rate; a number or a list with one for each group", default = 0},
  {"float", "eps", "smaller changes of the rate are skipped", default = 1e-8},
})

function Plateau:init(optimizer, mode, factor, patience, threshold, threshold_mode, cooldown,
                      min_lr, eps)
  self:_attach(optimizer)
  if not (factor < 1) then
    errors.argument("ReduceLROnPlateau", "factor", ("a number below 1 is needed, got %g"):format(
      factor), "E_DOMAIN")
  end
  self.factor, self.patience, self.cooldown = factor, patience, cooldown
  self.min_lrs = self:_numbers("min_lr", min_lr)
  self.default_min_lr = type(min_lr) == "number" and min_lr or nil
  self.mode, self.threshold, self.threshold_mode, self.eps = mode, threshold, threshold_mode, eps
  self.last_epoch = 0
  self._last_lr = self:_rates()
  self.best = mode == "min" and math.huge or -math.huge
  self.cooldown_counter, self.num_bad_epochs = 0, 0
end

local function is_better(self, value)
  local best, threshold = self.best, self.threshold
  if self.mode == "min" then
    if self.threshold_mode == "rel" then return value < best * (1 - threshold) end
    return value < best - threshold
  end
  if self.threshold_mode == "rel" then return value > best * (1 + threshold) end
  return value > best + threshold
end

local function reduce(self)
  local groups = self.optimizer.param_groups
  if #groups ~= #self.min_lrs then
    if self.default_min_lr == nil then
      errors.raise(("ReduceLROnPlateau has %d min_lrs, its optimizer now %d groups; extend " ..
        "scheduler.min_lrs"):format(#self.min_lrs, #groups), "E_STATE")
    end
    for i = 1, #groups do self.min_lrs[i] = self.default_min_lr end
  end
  for i, group in ipairs(groups) do
    local lr = math.max(group.lr * self.factor, self.min_lrs[i])
    if group.lr - lr > self.eps then group.lr = lr end
  end
end

--- Processes the metric of an epoch, `scheduler:step(validation_loss)`: reduces the rates if it has
-- stopped improving.
-- @param metrics  a number, or a tensor of one element
function Plateau:step(metrics, epoch)
  if lib.capture then require("moth.capture.recording").refuse("a schedule's step") end
  if lib.istensor(metrics) then metrics = metrics:item() end
  metrics = type(metrics) == "cdata" and tonumber(metrics) or metrics
  if type(metrics) ~= "number" then
    errors.refuse("step", "metrics", "a number is needed, for example the validation loss", metrics,
      "E_TYPE")
  end
  self.last_epoch = epoch or self.last_epoch + 1
  if is_better(self, metrics) then
    self.best, self.num_bad_epochs = metrics, 0
  else
    self.num_bad_epochs = self.num_bad_epochs + 1
  end
  if self.cooldown_counter > 0 then
    self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
  end
  if self.num_bad_epochs > self.patience then
    reduce(self)
    self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
  end
  self._last_lr = self:_rates()
end

return {ReduceLROnPlateau = Plateau}
