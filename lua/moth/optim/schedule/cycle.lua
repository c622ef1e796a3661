--- cycle.lua -- OneCycleLR and CyclicLR (Smith, 2017; Smith and Topin, 2018): the rate rises and
-- falls, once or periodically; the momentum changes inversely. A step is a batch, not an epoch.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local LRScheduler = require "moth.optim.schedule.base"

local cycle = {}

-- Sets the momentum of a group, or the first of its betas.
local function set_momentum(self, group, value)
  if self.use_beta1 then
    group.betas = {value, select(2, unpack(group.betas))}
  else
    group.momentum = value
  end
end

-- Finds the momentum option that is cycled and stores its bounds in the groups.
local function begin_momentum(self, fname, optimizer, base, most, begins)
  if optimizer.defaults.momentum == nil and optimizer.defaults.betas == nil then
    errors.argument(fname, "cycle_momentum", ("is true, but %s has neither momentum nor betas")
      :format(class.typename(optimizer)))
  end
  self.use_beta1 = optimizer.defaults.betas ~= nil
  self.base_momentums = self:_numbers("base_momentum", base)
  self.max_momentums = self:_numbers("max_momentum", most)
  if not begins then return end
  for i, group in ipairs(optimizer.param_groups) do
    set_momentum(self, group, self.max_momentums[i])
    group.max_momentum, group.base_momentum = self.max_momentums[i], self.base_momentums[i]
  end
end

-- ---- one cycle ----

--- The rate rises from max_lr / div_factor to max_lr, then falls to the minimum, in total_steps
-- steps.
local OneCycleLR = class("OneCycleLR", LRScheduler)
cycle.OneCycleLR = OneCycleLR
OneCycleLR.signature = define.signature("OneCycleLR", {
  LRScheduler.OPTIMIZER, {"any", "max_lr", "the highest rate; a number or a list"},
  {"int", "total_steps", "the number of steps of the cycle", optional = true},
  {"int", "epochs", "instead of total_steps: the number of epochs", optional = true},
  {"int", "steps_per_epoch", "with epochs: the steps per epoch", optional = true},
  {"float", "pct_start", "share of the steps in which the rate rises", default = 0.3},
  {"enum", "anneal_strategy", "the curve", choices = {"cos", "linear"}},
  {"bool", "cycle_momentum", "cycle momentum (or the first beta) inversely?",
    default = true},
  {"any", "base_momentum", "the value at the highest rate; a number or a list",
    default = 0.85},
  {"any", "max_momentum", "the value at the lowest rate; a number or a list", default = 0.95},
  {"float", "div_factor", "max_lr / the initial rate", default = 25},
  {"float", "final_div_factor", "the initial rate / the final rate", default = 1e4},
  {"bool", "three_phase", "a third phase for the fall below the initial rate?", default = false},
  LRScheduler.LAST_EPOCH,
})

local function steps_of(total_steps, epochs, steps_per_epoch)
  local name, n = "total_steps", total_steps
  if n == nil and epochs ~= nil and steps_per_epoch ~= nil then
    name, n = epochs < 1 and "epochs" or "steps_per_epoch", epochs * steps_per_epoch
    if epochs < 1 then n = epochs end
  end
  if n == nil then
    errors.argument("OneCycleLR", "total_steps",
      "is needed, or epochs and steps_per_epoch instead")
  elseif n < 1 then
    errors.argument("OneCycleLR", name, "a number from 1 on is needed, got " .. n, "E_DOMAIN")
  end
  return n
end

-- Returns a phase: its end, and the group's fields that store its initial and final values. State
-- dicts have PyTorch's form.
local function phase(end_step, start_lr, end_lr, start_momentum, end_momentum)
  return {end_step = end_step, start_lr = start_lr, end_lr = end_lr,
    start_momentum = start_momentum, end_momentum = end_momentum}
end

local function phases_of(total, pct_start, three_phase)
  local up = phase(pct_start * total - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
  if not three_phase then
    return {up, phase(total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")}
  end
  return {up,
    phase(2 * pct_start * total - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
    phase(total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")}
end

function OneCycleLR:init(optimizer, max_lr, total_steps, epochs, steps_per_epoch, pct_start,
                         anneal_strategy, cycle_momentum, base_momentum, max_momentum, div_factor,
                         final_div_factor, three_phase, last_epoch)
  self:_attach(optimizer)
  self.total_steps = steps_of(total_steps, epochs, steps_per_epoch)
  if not (pct_start >= 0 and pct_start <= 1) then
    errors.argument("OneCycleLR", "pct_start", "a number from 0 to 1 is needed, got " .. pct_start,
      "E_DOMAIN")
  end
  self._schedule_phases = phases_of(self.total_steps, pct_start, three_phase)
  self._anneal_func_type = anneal_strategy
  local highest = self:_numbers("max_lr", max_lr)
  if last_epoch == -1 then
    for i, group in ipairs(optimizer.param_groups) do
      group.initial_lr, group.max_lr = highest[i] / div_factor, highest[i]
      group.min_lr = group.initial_lr / final_div_factor
    end
  end
  self.cycle_momentum = cycle_momentum
  if cycle_momentum then
    begin_momentum(self, "OneCycleLR", optimizer, base_momentum, max_momentum, last_epoch == -1)
  end
  LRScheduler.init(self, optimizer, last_epoch)
end

local function anneal(self, from, to, share)
  if self._anneal_func_type == "linear" then return (to - from) * share + from end
  return to + (from - to) / 2 * (math.cos(math.pi * share) + 1)
end

function OneCycleLR:get_lr()
  local step, phases = self.last_epoch, self._schedule_phases
  if step > self.total_steps then
    errors.raise(("OneCycleLR has taken its %d steps; there is no rate for another (total_steps "
      .. "is the " ..
      "number of all scheduler:step() calls)"):format(self.total_steps), "E_STATE")
  end
  local at, start = 1, 0
  while at < #phases and step > phases[at].end_step do
    start = phases[at].end_step
    at = at + 1
  end
  local now = phases[at]
  local share = (step - start) / (now.end_step - start)
  return (self:_each(function(group)
    if self.cycle_momentum then
      set_momentum(self, group,
        anneal(self, group[now.start_momentum], group[now.end_momentum], share))
    end
    return anneal(self, group[now.start_lr], group[now.end_lr], share)
  end))
end

-- ---- many cycles ----

--- The rate periodically rises from base_lr to max_lr in step_size_up steps and falls in
-- step_size_down steps.
local CyclicLR = class("CyclicLR", LRScheduler)
cycle.CyclicLR = CyclicLR
CyclicLR.signature = define.signature("CyclicLR", {
  LRScheduler.OPTIMIZER, {"any", "base_lr", "the lowest rate; a number or one for each group"},
  {"any", "max_lr", "the highest rate; a number or a list"},
  {"int", "step_size_up", "steps of the rise", default = 2000},
  {"int", "step_size_down", "steps of the fall; default: step_size_up", optional = true},
  {"enum", "mode", "a cycle's height: 1, half the previous height, or gamma ^ steps",
    choices = {"triangular", "triangular2", "exp_range"}},
  {"float", "gamma", "the decay factor of mode exp_range", default = 1},
  {"function", "scale_fn", "function(cycle or steps) -> height, instead of a mode; not saved",
    optional = true},
  {"enum", "scale_mode", "the argument of scale_fn", choices = {"cycle", "iterations"}},
  {"bool", "cycle_momentum", "cycle momentum (or the first beta) inversely?",
    default = true},
  {"any", "base_momentum", "the value at the highest rate; a number or a list",
    default = 0.8},
  {"any", "max_momentum", "the value at the lowest rate; a number or a list", default = 0.9},
  LRScheduler.LAST_EPOCH,
})

function CyclicLR:init(optimizer, base_lr, max_lr, step_size_up, step_size_down, mode, gamma,
                       scale_fn, scale_mode, cycle_momentum, base_momentum, max_momentum,
                       last_epoch)
  self:_attach(optimizer)
  local lowest = self:_numbers("base_lr", base_lr)
  if last_epoch == -1 then
    for i, group in ipairs(optimizer.param_groups) do group.lr = lowest[i] end
  end
  self.max_lrs = self:_numbers("max_lr", max_lr)
  self.total_size = step_size_up + (step_size_down or step_size_up)
  if step_size_up < 1 or self.total_size <= step_size_up then
    local down = step_size_up >= 1
    errors.argument("CyclicLR", down and "step_size_down" or "step_size_up", "a number "
      .. (down and "above 0" or "from 1 on") .. " is needed, got "
      .. (down and step_size_down or step_size_up), "E_DOMAIN")
  end
  self.step_ratio = step_size_up / self.total_size
  self.mode, self.gamma, self.scale_fn = mode, gamma, scale_fn
  self.scale_mode = scale_fn and scale_mode or mode == "exp_range" and "iterations" or "cycle"
  self.cycle_momentum = cycle_momentum
  if cycle_momentum then
    begin_momentum(self, "CyclicLR", optimizer, base_momentum, max_momentum, last_epoch == -1)
  end
  LRScheduler.init(self, optimizer, last_epoch)
  self.base_lrs = lowest
end

-- Returns the height of the cycle, a function of x: the cycle's number, from 1, or the number of
-- steps.
local function height(self, x)
  if self.scale_fn then return self.scale_fn(x) end
  if self.mode == "triangular" then return 1 end
  if self.mode == "triangular2" then return 1 / 2 ^ (x - 1) end
  return self.gamma ^ x
end

function CyclicLR:get_lr()
  local number = math.floor(1 + self.last_epoch / self.total_size)
  local x = 1 + self.last_epoch / self.total_size - number
  local share = x <= self.step_ratio and x / self.step_ratio or (x - 1) / (self.step_ratio - 1)
  local factor = share * height(self, self.scale_mode == "cycle" and number or self.last_epoch)
  return (self:_each(function(group, base, i)
    if self.cycle_momentum then
      local most = self.max_momentums[i]
      set_momentum(self, group, most - (most - self.base_momentums[i]) * factor)
    end
    return base + (self.max_lrs[i] - base) * factor
  end))
end

return cycle
