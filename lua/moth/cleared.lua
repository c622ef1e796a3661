--- cleared.lua -- zero_grad, which modules and optimizers share.

local define = require "moth.define"
local lib = require "moth.lib"

local cleared = {}

--- Reads the arguments of zero_grad.
cleared.parse = define.signature("zero_grad", {
  {"bool", "set_to_none", "remove the gradients (true) or fill them with zeros", default = true},
})

--- Clears the gradients of a list of parameters. A gradient that goes is not read before: to a step
-- that is captured this would be a gradient that it begins with, another at each call.
function cleared.clear(params, set_to_none)
  for i = 1, #params do
    local p = params[i]
    if set_to_none then
      p.grad = nil
    elseif p.grad ~= nil then
      if lib.capture then -- replays clear the gradient that the step was recorded with
        require("moth").no_grad(p.grad.zero_, p.grad)
      else
        p.grad = require("moth").zeros_like(p.grad)
      end
    end
  end
end

return cleared
