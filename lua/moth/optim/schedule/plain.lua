--- plain.lua -- schedules that multiply the rate: StepLR, MultiStepLR, ConstantLR, LinearLR,
-- ExponentialLR, PolynomialLR, LambdaLR, MultiplicativeLR. As in PyTorch, each changes the
-- group's current rate, so that several can be combined. step(epoch) and SequentialLR use the
-- closed forms.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local LRScheduler = require "moth.optim.schedule.base"

local OPTIMIZER, LAST_EPOCH = LRScheduler.OPTIMIZER, LRScheduler.LAST_EPOCH
local GAMMA = {"float", "gamma", "factor", default = 0.1}
local plain = {}

local function new(name, rows)
  local made = class(name, LRScheduler)
  local args = {OPTIMIZER}
  for _, row in ipairs(rows) do args[#args + 1] = row end
  args[#args + 1] = LAST_EPOCH
  made.signature = define.signature(name, args)
  plain[name] = made
  return made
end

-- Returns the groups' current rates times a factor.
local function scaled(self, factor)
  return (self:_each(function(group) return group.lr * factor end))
end

-- Returns the initial rates times a factor.
local function from_base(self, factor)
  return (self:_each(function(_, base) return base * factor end))
end

-- ---- steps ----

--- Multiplies the rate by gamma every step_size epochs.
-- @param optimizer   the optimizer
-- @param step_size   epochs between two drops
-- @param gamma       factor of a drop (default 0.1)
-- @param last_epoch  the epoch to resume from (default -1: start)
local StepLR = new("StepLR", {{"int", "step_size", "epochs between two drops"}, GAMMA})

function StepLR:init(optimizer, step_size, gamma, last_epoch)
  if step_size < 1 then
    errors.argument("StepLR", "step_size", "a number from 1 on is needed, got " .. step_size,
      "E_DOMAIN")
  end
  self.step_size, self.gamma = step_size, gamma
  LRScheduler.init(self, optimizer, last_epoch)
end

function StepLR:get_lr()
  if self.last_epoch == 0 or self.last_epoch % self.step_size ~= 0 then return self:_rates() end
  return scaled(self, self.gamma)
end

function StepLR:_get_closed_form_lr()
  return from_base(self, self.gamma ^ math.floor(self.last_epoch / self.step_size))
end

--- Multiplies the rate by gamma at each milestone.
-- @param optimizer   the optimizer
-- @param milestones  list of epochs; a repeated epoch counts twice
-- @param gamma       factor of a drop (default 0.1)
-- @param last_epoch  the epoch to resume from (default -1: start)
local MultiStepLR = new("MultiStepLR", {{"ints", "milestones", "epochs of the drops"}, GAMMA})

function MultiStepLR:init(optimizer, milestones, gamma, last_epoch)
  self.milestones, self.gamma = {}, gamma
  for i, epoch in ipairs(type(milestones) == "table" and milestones or {milestones}) do
    self.milestones[i] = epoch
  end
  table.sort(self.milestones)
  LRScheduler.init(self, optimizer, last_epoch)
end

function MultiStepLR:get_lr()
  local times = 0
  for _, epoch in ipairs(self.milestones) do
    if epoch == self.last_epoch then times = times + 1 end
  end
  return scaled(self, self.gamma ^ times)
end

function MultiStepLR:_get_closed_form_lr()
  local times = 0
  for _, epoch in ipairs(self.milestones) do
    if epoch <= self.last_epoch then times = times + 1 end
  end
  return from_base(self, self.gamma ^ times)
end

-- ---- ramps ----

local function check_share(fname, name, value, above_zero)
  if value > 1 or value < 0 or (above_zero and value == 0) then
    errors.argument(fname, name, ("a number %s 0 to 1 is needed, got %g"):format(
      above_zero and "above" or "from", value), "E_DOMAIN")
  end
end

local TOTAL = {"int", "total_iters", "number of epochs", default = 5}

--- Multiplies the rate by factor for the first total_iters epochs.
-- @param optimizer    the optimizer
-- @param factor       from 0 to 1 (default 1/3)
-- @param total_iters  epochs that it lasts (default 5)
-- @param last_epoch   the epoch to resume from (default -1: start)
local ConstantLR = new("ConstantLR", {
  {"float", "factor", "factor of the rate", default = 1 / 3}, TOTAL,
})

function ConstantLR:init(optimizer, factor, total_iters, last_epoch)
  check_share("ConstantLR", "factor", factor)
  self.factor, self.total_iters = factor, total_iters
  LRScheduler.init(self, optimizer, last_epoch)
end

function ConstantLR:get_lr()
  if self.last_epoch == 0 then return scaled(self, self.factor) end
  if self.last_epoch ~= self.total_iters then return self:_rates() end
  return scaled(self, 1 / self.factor)
end

function ConstantLR:_get_closed_form_lr()
  return from_base(self, self.last_epoch >= self.total_iters and 1 or self.factor)
end

--- Multiplies the rate by a factor that moves linearly from start_factor to end_factor over
-- total_iters epochs.
-- @param optimizer     the optimizer
-- @param start_factor  above 0, at most 1 (default 1/3)
-- @param end_factor    from 0 to 1 (default 1)
-- @param total_iters   epochs that it takes (default 5)
-- @param last_epoch    the epoch to resume from (default -1: start)
local LinearLR = new("LinearLR", {
  {"float", "start_factor", "the first factor", default = 1 / 3},
  {"float", "end_factor", "the final factor", default = 1}, TOTAL,
})

function LinearLR:init(optimizer, start_factor, end_factor, total_iters, last_epoch)
  check_share("LinearLR", "start_factor", start_factor, true)
  check_share("LinearLR", "end_factor", end_factor)
  self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
  LRScheduler.init(self, optimizer, last_epoch)
end

function LinearLR:get_lr()
  if self.last_epoch == 0 then return scaled(self, self.start_factor) end
  if self._is_initial or self.last_epoch > self.total_iters then return self:_rates() end
  local rise = self.end_factor - self.start_factor
  return scaled(self, 1 + rise / (self.total_iters * self.start_factor
    + (self.last_epoch - 1) * rise))
end

function LinearLR:_get_closed_form_lr()
  return from_base(self, self.start_factor + (self.end_factor - self.start_factor)
    * math.min(self.total_iters, self.last_epoch) / self.total_iters)
end

--- Multiplies the rate by gamma every epoch.
-- @param optimizer   the optimizer
-- @param gamma       factor of each epoch
-- @param last_epoch  the epoch to resume from (default -1: start)
local ExponentialLR = new("ExponentialLR", {{"float", "gamma", "factor of each epoch"}})

function ExponentialLR:init(optimizer, gamma, last_epoch)
  self.gamma = gamma
  LRScheduler.init(self, optimizer, last_epoch)
end

function ExponentialLR:get_lr()
  return self._is_initial and self:_rates() or scaled(self, self.gamma)
end

function ExponentialLR:_get_closed_form_lr()
  return from_base(self, self.gamma ^ self.last_epoch)
end

--- Multiplies the rate by (1 - epoch / total_iters) ^ power, down to 0.
-- @param optimizer    the optimizer
-- @param total_iters  epochs until 0 (default 5)
-- @param power        the exponent (default 1)
-- @param last_epoch   the epoch to resume from (default -1: start)
local PolynomialLR = new("PolynomialLR", {
  TOTAL, {"float", "power", "power of the polynomial", default = 1},
})

function PolynomialLR:init(optimizer, total_iters, power, last_epoch)
  self.total_iters, self.power = total_iters, power
  LRScheduler.init(self, optimizer, last_epoch)
end

function PolynomialLR:get_lr()
  if self._is_initial or self.last_epoch > self.total_iters then return self:_rates() end
  return scaled(self, ((1 - self.last_epoch / self.total_iters)
    / (1 - (self.last_epoch - 1) / self.total_iters)) ^ self.power)
end

function PolynomialLR:_get_closed_form_lr()
  return from_base(self,
    (1 - math.min(self.total_iters, self.last_epoch) / self.total_iters) ^ self.power)
end

-- ---- user functions ----

local LAMBDA = {"any", "lr_lambda", "function(epoch) -> factor, or a list with one for each group"}

local function functions(self, optimizer, lr_lambda)
  self:_attach(optimizer)
  self.lr_lambdas = self:_per_group("lr_lambda", lr_lambda)
  for i, fn in ipairs(self.lr_lambdas) do
    local meta = getmetatable(fn)
    if type(fn) ~= "function" and not (type(meta) == "table" and meta.__call) then
      errors.refuse(class.typename(self), "lr_lambda",
        ("a function for group %d is needed"):format(i), fn, "E_TYPE")
    end
  end
end

local function factor(self, i)
  local value = self.lr_lambdas[i](self.last_epoch)
  if type(value) ~= "number" then
    errors.raise(("the lr_lambda of group %d returned %s at epoch %d; a number is needed"):format(i,
      errors.describe(value), self.last_epoch), "E_TYPE")
  end
  return value
end

--- The initial rate times a function of the epoch.
-- @param optimizer   the optimizer
-- @param lr_lambda   function(epoch) -> factor, or a list with one for each group; not saved
-- @param last_epoch  the epoch to resume from (default -1: start)
local LambdaLR = new("LambdaLR", {LAMBDA})

function LambdaLR:init(optimizer, lr_lambda, last_epoch)
  functions(self, optimizer, lr_lambda)
  LRScheduler.init(self, optimizer, last_epoch)
end

function LambdaLR:get_lr()
  return (self:_each(function(_, base, i) return base * factor(self, i) end))
end

--- Multiplies the rate by a function of the epoch.
-- @param optimizer   the optimizer
-- @param lr_lambda   function(epoch) -> factor, or a list with one for each group; not saved
-- @param last_epoch  the epoch to resume from (default -1: start)
local MultiplicativeLR = new("MultiplicativeLR", {LAMBDA})

function MultiplicativeLR:init(optimizer, lr_lambda, last_epoch)
  functions(self, optimizer, lr_lambda)
  LRScheduler.init(self, optimizer, last_epoch)
end

function MultiplicativeLR:get_lr()
  if self._is_initial then return self:_rates() end
  return (self:_each(function(group, _, i) return group.lr * factor(self, i) end))
end

return plain
