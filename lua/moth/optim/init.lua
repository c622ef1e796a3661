--- init.lua -- moth.optim: optimizers and, in lr_scheduler, schedules of their learning rates.
-- Each file is loaded at the first use of one of its names.

local class = require "moth.class"
local errors = require "moth.error"

local files = {
  Optimizer = "moth.optim.optimizer",
  SGD = "moth.optim.sgd",
  Adam = "moth.optim.adam",
  AdamW = "moth.optim.adam",
  NAdam = "moth.optim.kin",
  RAdam = "moth.optim.kin",
  Adamax = "moth.optim.kin",
  RMSprop = "moth.optim.sized",
  Adagrad = "moth.optim.sized",
  Adadelta = "moth.optim.sized",
}

local function names()
  local list = {"lr_scheduler"}
  for name in pairs(files) do list[#list + 1] = name end
  return list
end

return setmetatable({}, {
  __names = names, -- for completion
  __index = function(optim, name)
    if name == "lr_scheduler" then
      rawset(optim, name, require "moth.optim.lr_scheduler")
      return optim[name]
    end
    local file = files[name]
    if not file then
      errors.raise(("moth.optim has no '%s'%s"):format(tostring(name),
        errors.nearest(tostring(name), names())))
    end
    local found = require(file)
    if not class.isclass(found) then found = found[name] end
    class.guard(found, "optimizer")
    class.guard(require(files.Optimizer), "optimizer")
    rawset(optim, name, found)
    return found
  end,
})
