--- base.lua -- optim.lr_scheduler.LRScheduler: the base of all learning rate schedules.
--
-- A subclass defines `get_lr()`, which returns a list: the rates of all groups at
-- `self.last_epoch`. All its fields except functions are saved in its state dict.
--
--     local Warm = nn.class("Warm", optim.lr_scheduler.LRScheduler)
--     function Warm:init(optimizer, steps)
--       self.steps = steps
--       LRScheduler.init(self, optimizer)
--     end
--     function Warm:get_lr()
--       local rates = {}
--       for i, lr in ipairs(self.base_lrs) do
--         rates[i] = lr * math.min(1, (self.last_epoch + 1) / self.steps)
--       end
--       return rates
--     end

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local Optimizer = require "moth.optim.optimizer"

--- Sets the learning rates of an optimizer during training. Call `step()` once per epoch or batch,
-- after the optimizer's step. Epochs count from 0, as in PyTorch. The field `last_epoch` is the
-- number of steps so far, `base_lrs` the list of the groups' initial rates.
local LRScheduler = class("LRScheduler")

LRScheduler.OPTIMIZER = {"object", "optimizer", "the optimizer whose learning rates are set"}
LRScheduler.LAST_EPOCH = {"int", "last_epoch", "the epoch to resume from; -1: start", default = -1}
LRScheduler.signature = define.signature("LRScheduler", {
  LRScheduler.OPTIMIZER, LRScheduler.LAST_EPOCH,
})

--- Sets self.optimizer; raises unless the argument is an optimizer.
function LRScheduler:_attach(optimizer)
  if not class.isinstance(optimizer, Optimizer) then
    errors.refuse(class.typename(self), "optimizer", "an optimizer is needed", optimizer, "E_TYPE")
  end
  self.optimizer = optimizer
end

--- Returns one value for each group: a number applies to all groups, a list must have one for each.
function LRScheduler:_per_group(name, value)
  local list, n = {}, #self.optimizer.param_groups
  local several = lib.is_plain(value)
  if several and #value ~= n then
    errors.argument(class.typename(self), name,
      ("has %d values, the optimizer %d parameter groups"):format(#value, n))
  end
  for i = 1, n do
    if several then list[i] = value[i] else list[i] = value end
  end
  return list
end

--- Like _per_group, for numbers only.
function LRScheduler:_numbers(name, value)
  local list = self:_per_group(name, value)
  for _, number in ipairs(list) do
    if type(number) ~= "number" then
      errors.refuse(class.typename(self), name, "a number or a list of one for each group is "
        .. "needed", value, "E_TYPE")
    end
  end
  return list
end

--- Returns the current rates of the groups.
function LRScheduler:_rates()
  local list = {}
  for i, group in ipairs(self.optimizer.param_groups) do list[i] = group.lr end
  return list
end

--- Returns a list of f(group, base_lr, i) for each group.
function LRScheduler:_each(f)
  local list = {}
  for i, group in ipairs(self.optimizer.param_groups) do
    list[i] = f(group, self.base_lrs[i], i)
  end
  return list
end

function LRScheduler:init(optimizer, last_epoch)
  self:_attach(optimizer)
  self.base_lrs = {}
  for i, group in ipairs(optimizer.param_groups) do
    if last_epoch == -1 then
      group.initial_lr = group.initial_lr or group.lr
    elseif group.initial_lr == nil then
      errors.argument(class.typename(self), "last_epoch", ("is %d, but group %d has " ..
        "no 'initial_lr'; load the optimizer's state dict first"):format(last_epoch, i), "E_STATE")
    end
    self.base_lrs[i] = group.initial_lr
  end
  self.last_epoch = last_epoch
  if not optimizer.watched then optimizer.watched, optimizer.stepped = true, false end
  self:_initial_step()
end

function LRScheduler:_initial_step()
  self._step_count = 0
  self._is_initial = true
  local ok, problem = pcall(self.step, self)
  self._is_initial = nil
  if not ok then error(problem, 0) end
end

-- Warns once, at the second step, if the optimizer has not been stepped yet.
local function check_order(self)
  local optimizer = self.optimizer
  local usual = class.written(optimizer.step) == class.written(Optimizer.step)
  if self._step_count == 1 and usual and not optimizer.stepped then
    require("moth").warn("scheduler:step() was called before optimizer:step(), so the first " ..
      "learning rate of the schedule is skipped; call optimizer:step() first")
  end
end

--- Returns the next rates; only step calls it. Call get_last_lr() for the current rates.
function LRScheduler:get_lr()
  class.abstract(self, "get_lr", ":get_lr()")
end

--- Sets the rates of the next epoch.
-- @param epoch  the epoch to set instead of the next one (deprecated in PyTorch)
function LRScheduler:step(epoch)
  if lib.capture then require("moth.capture.recording").refuse("a schedule's step") end
  if epoch ~= nil and type(epoch) ~= "number" then
    errors.refuse("step", "epoch", "a number, or nothing, is needed", epoch, "E_TYPE")
  end
  check_order(self)
  self._step_count = self._step_count + 1
  self:_update_lr(epoch)
end

local function bad_rates(self, rates)
  errors.raise(("%s:get_lr() returned %s; a list with a number for each of %d parameter groups "
    .. "is " ..
    "needed"):format(class.typename(self), errors.describe(rates), #self.optimizer.param_groups))
end

--- Sets the groups' rates to those of the next epoch, or of the given epoch.
function LRScheduler:_update_lr(epoch)
  local rates
  if epoch == nil then
    self.last_epoch = self.last_epoch + 1
    rates = self:get_lr()
  else
    self.last_epoch = epoch
    rates = self._get_closed_form_lr and self:_get_closed_form_lr() or self:get_lr()
  end
  self:_set(rates)
end

--- Writes the rate of each group.
function LRScheduler:_set(rates)
  local groups = self.optimizer.param_groups
  if type(rates) ~= "table" or #rates ~= #groups then bad_rates(self, rates) end
  for i = 1, #groups do
    if type(rates[i]) ~= "number" then bad_rates(self, rates) end
  end
  for i, group in ipairs(groups) do group.lr = rates[i] end
  self._last_lr = self:_rates()
end

--- Returns the rates that the last step set: a list with a number for each group.
function LRScheduler:get_last_lr()
  return self._last_lr
end

-- ---- saving ----

local function copy(value)
  if not lib.is_plain(value) then return value end
  local list = {}
  for key, inner in pairs(value) do list[key] = copy(inner) end
  return list
end

local function is_data(value)
  local kind = type(value)
  if kind == "table" then
    if getmetatable(value) ~= nil then return false end
    for _, inner in pairs(value) do
      if not is_data(inner) then return false end
    end
    return true
  end
  return kind == "number" or kind == "string" or kind == "boolean" or lib.istensor(value)
end

--- Returns all fields except the optimizer, as a plain table. Functions, for example those of
-- LambdaLR, are not saved: pass them to the new schedule's constructor.
function LRScheduler:state_dict()
  local state = {}
  for name, value in pairs(self) do
    if name ~= "optimizer" and is_data(value) then state[name] = copy(value) end
  end
  return state
end

--- Loads the fields of a state dict; functions are kept. The rates themselves are in the
-- optimizer's state dict.
function LRScheduler:load_state_dict(state_dict)
  if type(state_dict) ~= "table" or state_dict.last_epoch == nil then
    errors.argument("load_state_dict", "state_dict",
      "the result of a scheduler's state_dict() is needed, got " .. (type(state_dict) == "table"
        and "a table without 'last_epoch'" or errors.describe(state_dict)), "E_TYPE")
  end
  local base = state_dict.base_lrs
  if base ~= nil and #base ~= #self.optimizer.param_groups then
    errors.argument("load_state_dict", "state_dict", ("has rates for %d parameter groups, the " ..
      "optimizer has %d"):format(#base, #self.optimizer.param_groups))
  end
  for name, value in pairs(state_dict) do
    local own = self[name] == nil or is_data(self[name])
    if name ~= "optimizer" and own then self[name] = copy(value) end
  end
end

function LRScheduler:__tostring()
  local rates = {}
  for i, lr in ipairs(self._last_lr or {}) do rates[i] = ("%.6g"):format(lr) end
  return ("%s (epoch %s, lr %s)"):format(class.typename(self), tostring(self.last_epoch),
    table.concat(rates, ", "))
end

return LRScheduler
