--- chain.lua -- compositions of schedules: SequentialLR runs them in sequence, ChainedScheduler
-- together.

local calls = require "moth.binding.calls"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local LRScheduler = require "moth.optim.schedule.base"

local chain = {}

local function check(fname, list, optimizer)
  if not lib.is_plain(list) or #list == 0 then
    errors.refuse(fname, "schedulers", "a list of schedulers is needed", list, "E_TYPE")
  end
  lib.few(fname, "schedulers", #list)
  calls.whole_list(fname, "schedulers", list)
  for i, scheduler in ipairs(list) do
    if not class.isinstance(scheduler, LRScheduler) then
      errors.argument(fname, "schedulers", ("element %d is %s, not a scheduler"):format(i,
        errors.describe(scheduler)), "E_TYPE")
    elseif class.typename(scheduler) == "ReduceLROnPlateau" then
      errors.argument(fname, "schedulers", ("element %d is a ReduceLROnPlateau, whose step " ..
        "needs a metric"):format(i), "E_TYPE")
    elseif optimizer ~= nil and scheduler.optimizer ~= optimizer then
      errors.argument(fname, "schedulers", ("element %d belongs to another optimizer"):format(i))
    end
  end
end

local function state_of(self)
  local state = LRScheduler.state_dict(self)
  state._schedulers = {}
  for i, scheduler in ipairs(self._schedulers) do state._schedulers[i] = scheduler:state_dict() end
  return state
end

local function load_state(self, state)
  local inner = type(state) == "table" and state._schedulers
  if type(inner) ~= "table" or #inner ~= #self._schedulers then
    errors.argument("load_state_dict", "state_dict", ("the state of %s with %d " ..
      "schedulers is needed, got %s"):format(class.typename(self), #self._schedulers,
      type(inner) == "table" and "one with " .. #inner or errors.describe(state)), "E_TYPE")
  end
  for i, scheduler in ipairs(self._schedulers) do scheduler:load_state_dict(inner[i]) end
  for name, value in pairs(state) do
    if name ~= "_schedulers" and name ~= "optimizer" then self[name] = value end
  end
end

-- ---- in sequence ----

--- Runs the first schedule until the first milestone, then the second from its epoch 0, and so on.
-- `SequentialLR(optimizer, {warmup, decay}, {5})`
local SequentialLR = class("SequentialLR", LRScheduler)
chain.SequentialLR = SequentialLR
SequentialLR.signature = define.signature("SequentialLR", {
  LRScheduler.OPTIMIZER, {"any", "schedulers", "a list of the optimizer's schedulers"},
  {"any", "milestones", "the epochs at which the next scheduler starts"},
  LRScheduler.LAST_EPOCH,
})

-- Undoes the first step, which each schedule has taken in its constructor.
local function undo(scheduler)
  if scheduler._schedulers then
    for _, inner in ipairs(scheduler._schedulers) do undo(inner) end
  elseif scheduler.last_epoch then
    scheduler.last_epoch = scheduler.last_epoch - 1
  end
end

function SequentialLR:init(optimizer, schedulers, milestones, last_epoch)
  self:_attach(optimizer)
  check("SequentialLR", schedulers, optimizer)
  if type(milestones) ~= "table" or #milestones ~= #schedulers - 1 then
    errors.refuse("SequentialLR", "milestones",
      ("a list of %d, one fewer than schedulers, is needed"):format(#schedulers - 1),
      milestones)
  end
  self._schedulers, self._milestones = {unpack(schedulers)}, {unpack(milestones)}
  self.last_epoch, self.optimizer = last_epoch + 1, optimizer
  for _, group in ipairs(optimizer.param_groups) do group.lr = group.initial_lr end
  undo(self)
  local first = self._schedulers[self:_at(0)]
  first:_initial_step()
  self._last_lr = first:get_last_lr()
end

--- Returns the index of the schedule that is active in an epoch.
function SequentialLR:_at(epoch)
  local at = 1
  while self._milestones[at] and self._milestones[at] <= epoch do at = at + 1 end
  return at
end

--- Steps the active schedule.
function SequentialLR:step()
  self.last_epoch = self.last_epoch + 1
  local at = self:_at(self.last_epoch)
  local scheduler = self._schedulers[at]
  if at > 1 and self._milestones[at - 1] == self.last_epoch then
    scheduler:_update_lr(0)
  else
    scheduler:step()
  end
  self._last_lr = scheduler:get_last_lr()
end

SequentialLR.state_dict, SequentialLR.load_state_dict = state_of, load_state

-- ---- together ----

--- Steps several schedules together; their factors multiply.
local ChainedScheduler = class("ChainedScheduler", LRScheduler)
chain.ChainedScheduler = ChainedScheduler
ChainedScheduler.signature = define.signature("ChainedScheduler", {
  {"any", "schedulers", "a list of schedulers of one optimizer"},
  {"any", "optimizer", "their optimizer; default: the first scheduler's", optional = true},
})

function ChainedScheduler:init(schedulers, optimizer)
  check("ChainedScheduler", schedulers)
  optimizer = optimizer or schedulers[1].optimizer
  check("ChainedScheduler", schedulers, optimizer)
  self._schedulers, self.optimizer = {unpack(schedulers)}, optimizer
  self._last_lr = self:_rates()
end

--- Steps each schedule.
function ChainedScheduler:step()
  for _, scheduler in ipairs(self._schedulers) do scheduler:step() end
  self._last_lr = self:_rates()
end

ChainedScheduler.state_dict, ChainedScheduler.load_state_dict = state_of, load_state

return chain
