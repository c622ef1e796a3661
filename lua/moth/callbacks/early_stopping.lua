--- early_stopping.lua -- moth.callbacks.EarlyStopping: ends a run that has stopped improving.

local base = require "moth.callbacks.base"
local class = require "moth.base.class"
local define = require "moth.binding.define"

local EarlyStopping = class("EarlyStopping", base.Callback)

EarlyStopping.signature = define.signature("EarlyStopping", {
  {"string", "monitor", "the value: 'val_loss', 'loss', 'val_' and a metric's name; default: "
    .. "'val_loss', or 'loss' without validation", optional = true},
  {"float", "min_delta", "smaller changes are no improvement", default = 0},
  {"int", "patience", "epochs without improvement before the run ends", default = 3},
  {"enum", "mode", "is a lower or a higher value better? auto: as the metric's higher_is_better "
    .. "says, else higher for names with acc, auc, f1, precision, recall, iou, dice, r2, bleu, map",
    choices = {"auto", "min", "max"}},
  {"bool", "restore_best", "load the weights of the best epoch at the end?", default = false},
})

--- Ends a run of moth.fit when a value has not improved for `patience` epochs. Afterwards `best`
-- and `best_epoch` are the best value and its epoch. With restore_best a checkpoint file also has
-- the weights of the best epoch.
function EarlyStopping:init(monitor, min_delta, patience, mode, restore_best)
  self.monitor, self.min_delta, self.patience = monitor, min_delta, patience
  self.mode, self.restore_best = mode, restore_best
  self.wait = 0
end

function EarlyStopping:on_epoch_end(run)
  local value, name = base.monitored(self, run)
  local sign = base.mode(self.mode, name, run) == "min" and 1 or -1
  if self.best == nil or sign * value < sign * self.best - self.min_delta then
    self.best, self.best_epoch, self.wait = value, run.epoch, 0
    if self.restore_best then
      self.weights = require("moth").deepcopy(run.module:state_dict())
    end
    return
  end
  self.wait = self.wait + 1
  if self.wait >= self.patience then
    run.stop = ("%s has not improved for %d epochs"):format(name, self.wait)
  end
end

function EarlyStopping:on_train_end(run)
  if self.weights then run.module:load_state_dict(self.weights) end
end

--- The state for a checkpoint file.
function EarlyStopping:state_dict()
  return {best = self.best, best_epoch = self.best_epoch, wait = self.wait, weights = self.weights}
end

--- Loads the state of state_dict.
function EarlyStopping:load_state_dict(state)
  self.best, self.best_epoch, self.wait = state.best, state.best_epoch, state.wait
  self.weights = self.restore_best and state.weights or nil
end

return EarlyStopping
