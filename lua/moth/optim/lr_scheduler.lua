--- lr_scheduler.lua -- moth.optim.lr_scheduler: schedules of the learning rate. Each file of
-- schedule/ is loaded at the first use of one of its names.

local class = require "moth.class"
local errors = require "moth.error"

local files = {
  LRScheduler = "base",
  StepLR = "plain", MultiStepLR = "plain", ConstantLR = "plain", LinearLR = "plain",
  ExponentialLR = "plain", PolynomialLR = "plain", LambdaLR = "plain", MultiplicativeLR = "plain",
  CosineAnnealingLR = "cosine", CosineAnnealingWarmRestarts = "cosine",
  OneCycleLR = "cycle", CyclicLR = "cycle",
  ReduceLROnPlateau = "plateau",
  SequentialLR = "chain", ChainedScheduler = "chain",
}

local function names()
  local list = {}
  for name in pairs(files) do list[#list + 1] = name end
  return list
end

return setmetatable({}, {
  __names = names, -- for completion
  __index = function(schedulers, name)
    local file = files[name]
    if not file then
      errors.raise(("moth.optim.lr_scheduler has no '%s'%s"):format(tostring(name),
        errors.nearest(tostring(name), names())))
    end
    local found = require("moth.optim.schedule." .. file)
    if file ~= "base" then found = found[name] end
    class.guard(found, "scheduler")
    rawset(schedulers, name, found)
    return found
  end,
})
