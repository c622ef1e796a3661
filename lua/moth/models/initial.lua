--- initial.lua -- initial values of models, and the sums of residual blocks.

local class = require "moth.base.class"
local init = require "moth.nn.initialization"
local nn = require "moth.nn"

local Module = nn.Module
local sight = Module.sight
local initial = {}

--- Runs f(...), which builds layers, without drawing their initial values.
initial.skip = init.skip

--- Sets initial values: f[class name](module) is called for each module of that class.
-- @param net  the model
-- @param f    class name -> function(module)
function initial.fill(net, f)
  for _, module in ipairs(net:modules()) do
    local set = f[nn.typename(module)]
    if set then set(module) end
  end
end

--- The values of a convolution: normal, by fan_out; the bias is 0.
function initial.conv(module)
  init.kaiming_normal_(module.weight, {mode = "fan_out", nonlinearity = "relu"})
  if module.bias ~= nil then init.zeros_(module.bias) end
end

--- Returns a function that sets the values of a Linear: normal with this deviation; the bias is 0.
function initial.linear(std)
  return function(module)
    init.normal_(module.weight, 0, std)
    if module.bias ~= nil then init.zeros_(module.bias) end
  end
end

--- PyTorch's values of a layer, for layers that were built by `skip`.
function initial.usual(module) module:reset_parameters() end

-- ---- residual blocks ----

--- y + x, where y is the result of a module: in place if nothing else can see y.
function initial.add(module, y, x)
  if sight.passes(module) then return (y:add_(x)) end
  return y + x
end

--- norm(x), then relu: in one op if nothing observes the value between.
function initial.norm_relu(norm, relu, x)
  local fused = sight.passes(norm) and sight.passes(relu)
    and Module.rectified[class.written(norm.forward)]
  if fused then return (fused(norm, x)) end
  return (relu(norm(x)))
end

return initial
