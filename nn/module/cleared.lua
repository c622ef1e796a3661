--- cleared.lua -- zero_grad of modules and optimizers.

local define = require "moth.binding.define"

local cleared = {}

--- Parses the arguments of zero_grad.
cleared.parse = define.signature("zero_grad", {
  {"bool", "set_to_none", "remove the gradients (true) or fill them with zeros", default = true},
})

--- Clears the gradients of a list of parameters. It does not read a gradient that it removes, since
-- a captured step would then treat the gradient as an input.
function cleared.clear(params, set_to_none)
  for i = 1, #params do
    local p = params[i]
    local grad = not set_to_none and p.grad
    if not grad then
      p.grad = nil
    elseif grad.is_sparse then
      p.grad = require("moth").zeros_like(grad)
    else -- in place: a buffer or a captured step may contain the gradient
      if grad.requires_grad then grad:detach_() end
      require("moth").no_grad(grad.zero_, grad)
    end
  end
end

return cleared
