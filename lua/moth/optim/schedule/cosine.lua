--- cosine.lua -- CosineAnnealingLR and CosineAnnealingWarmRestarts (Loshchilov and Hutter, 2017).

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local LRScheduler = require "moth.optim.schedule.base"

local cosine = {}
local cos, pi = math.cos, math.pi

--- The rate follows half a cosine from the initial rate to eta_min in T_max epochs, and back.
local CosineAnnealingLR = class("CosineAnnealingLR", LRScheduler)
cosine.CosineAnnealingLR = CosineAnnealingLR
CosineAnnealingLR.signature = define.signature("CosineAnnealingLR", {
  LRScheduler.OPTIMIZER, {"int", "T_max", "epochs from the highest to the lowest rate"},
  {"float", "eta_min", "the lowest rate", default = 0}, LRScheduler.LAST_EPOCH,
})

function CosineAnnealingLR:init(optimizer, T_max, eta_min, last_epoch)
  if T_max < 1 then
    errors.argument("CosineAnnealingLR", "T_max", "a number from 1 on is needed, got " .. T_max,
      "E_DOMAIN")
  end
  self.T_max, self.eta_min = T_max, eta_min
  LRScheduler.init(self, optimizer, last_epoch)
end

function CosineAnnealingLR:get_lr()
  local epoch, T_max, eta_min = self.last_epoch, self.T_max, self.eta_min
  if self._is_initial then return (self:_rates()) end
  if (epoch - 1 - T_max) % (2 * T_max) == 0 then
    return (self:_each(function(group, base)
      return group.lr + (base - eta_min) * (1 - cos(pi / T_max)) / 2
    end))
  end
  local ratio = (1 + cos(pi * epoch / T_max)) / (1 + cos(pi * (epoch - 1) / T_max))
  return (self:_each(function(group) return ratio * (group.lr - eta_min) + eta_min end))
end

function CosineAnnealingLR:_get_closed_form_lr()
  local height = 1 + cos(pi * self.last_epoch / self.T_max)
  return (self:_each(function(_, base)
    return self.eta_min + (base - self.eta_min) * height / 2
  end))
end

--- The rate follows half a cosine from the initial rate to eta_min; it restarts after T_0 epochs,
-- then after T_0 T_mult, T_0 T_mult^2 and so on.
local Restarts = class("CosineAnnealingWarmRestarts", LRScheduler)
cosine.CosineAnnealingWarmRestarts = Restarts
Restarts.signature = define.signature("CosineAnnealingWarmRestarts", {
  LRScheduler.OPTIMIZER, {"int", "T_0", "epochs of the first cosine"},
  {"int", "T_mult", "factor between the lengths of successive cycles", default = 1},
  {"float", "eta_min", "the lowest rate", default = 0}, LRScheduler.LAST_EPOCH,
})

function Restarts:init(optimizer, T_0, T_mult, eta_min, last_epoch)
  for name, value in pairs {T_0 = T_0, T_mult = T_mult} do
    if value < 1 then
      errors.argument("CosineAnnealingWarmRestarts", name,
        "a number from 1 on is needed, got " .. value, "E_DOMAIN")
    end
  end
  self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
  self.T_cur = last_epoch
  LRScheduler.init(self, optimizer, last_epoch)
end

function Restarts:get_lr()
  local height = 1 + cos(pi * self.T_cur / self.T_i)
  return (self:_each(function(_, base)
    return self.eta_min + (base - self.eta_min) * height / 2
  end))
end

-- Sets the cycle's length and the position in it for an epoch, which may be fractional.
local function go_to(self, epoch)
  local T_0, T_mult = self.T_0, self.T_mult
  if epoch < T_0 then
    self.T_i, self.T_cur = T_0, epoch
  elseif T_mult == 1 then
    self.T_cur = epoch % T_0
  else
    local n = math.floor(math.log(epoch / T_0 * (T_mult - 1) + 1) / math.log(T_mult))
    self.T_cur = epoch - T_0 * (T_mult ^ n - 1) / (T_mult - 1)
    self.T_i = T_0 * T_mult ^ n
  end
end

--- Sets the rates of the next epoch, or of the given epoch: `step(epoch + batch / batches)`.
function Restarts:step(epoch)
  if lib.capture then require("moth.capture.recording").refuse("a schedule's step") end
  if epoch == nil and self.last_epoch < 0 then epoch = 0 end
  if epoch == nil then
    epoch = self.last_epoch + 1
    self.T_cur = self.T_cur + 1
    if self.T_cur >= self.T_i then
      self.T_cur = self.T_cur % self.T_i
      self.T_i = self.T_i * self.T_mult
    end
  elseif type(epoch) ~= "number" or not (epoch >= 0) then
    errors.refuse("step", "epoch", "a number from 0 on is needed", epoch, "E_DOMAIN")
  else
    go_to(self, epoch)
  end
  self.last_epoch = math.floor(epoch)
  self:_set(self:get_lr())
end

-- Called by SequentialLR at the schedule's start.
function Restarts:_update_lr(epoch)
  self:step(epoch)
end

return cosine
