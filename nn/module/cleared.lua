--- cleared.lua -- zero_grad, which modules and optimizers share.

local define = require "moth.binding.define"

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
    local grad = not set_to_none and p.grad
    if not grad then
      p.grad = nil
    elseif grad.is_sparse then
      p.grad = require("moth").zeros_like(grad)
    else -- in place: it may be a part of a buffer, or what a captured step was recorded with
      if grad.requires_grad then grad:detach_() end
      require("moth").no_grad(grad.zero_, grad)
    end
  end
end

return cleared
