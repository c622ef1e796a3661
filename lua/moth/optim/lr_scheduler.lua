--- lr_scheduler.lua -- moth.optim.lr_scheduler: learning rate schedules. Each file of schedule/ is
-- loaded at the first use of one of its names.

local class = require "moth.base.class"
local lazy = require "moth.base.lazy"

local rows = {LRScheduler = {"moth.optim.schedule.base"}}
lazy.from(rows, "moth.optim.schedule.plain", "StepLR MultiStepLR ConstantLR LinearLR ExponentialLR "
  .. "PolynomialLR LambdaLR MultiplicativeLR")
lazy.from(rows, "moth.optim.schedule.cosine", "CosineAnnealingLR CosineAnnealingWarmRestarts")
lazy.from(rows, "moth.optim.schedule.cycle", "OneCycleLR CyclicLR")
lazy.from(rows, "moth.optim.schedule.plateau", "ReduceLROnPlateau")
lazy.from(rows, "moth.optim.schedule.chain", "SequentialLR ChainedScheduler")

return (lazy.namespace("moth.optim.lr_scheduler", {}, rows, {
  found = function(scheduler) class.guard(scheduler, "scheduler") end,
}))
