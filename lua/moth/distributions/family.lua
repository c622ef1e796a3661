--- family.lua -- ExponentialFamily: entropies and divergences computed from a log normalizer.

local class = require "moth.base.class"
local Distribution = require "moth.distributions.distribution"

local tools = Distribution.tools
local family = {}

--- The base of distributions with the density exp(<t(x), params> - F(params) + k(x)). Your subclass
-- defines _natural_params(), a list of tensors; _log_normalizer(...), which is F of these; and, if
-- the mean of k(x) is not 0, the field _mean_carrier_measure. Then entropy, and kl_divergence of
-- two distributions of the class, are available.
local Family = class("ExponentialFamily", Distribution)
family.ExponentialFamily = Family
Family._mean_carrier_measure = 0

for name, call in pairs {_natural_params = ":_natural_params()",
    _log_normalizer = ":_log_normalizer(...)"} do
  Family[name] = function(self) class.abstract(self, name, call) end
end

--- Returns F of the natural parameters, its derivatives, and these parameters.
function Family:_normalized()
  local list = {}
  for i, x in ipairs(self:_natural_params()) do
    list[i] = x.requires_grad and x or x:detach():requires_grad_()
  end
  local moth = require "moth"
  local derivatives, F
  moth.enable_grad(function()
    F = self:_log_normalizer(unpack(list))
    derivatives = {moth.autograd.grad(F:sum(), list, {create_graph = true})}
  end)
  if type(derivatives[1]) == "table" then derivatives = derivatives[1] end
  return F, derivatives, list
end

-- Returns the product of parameters and derivatives, summed over each value.
local function product(self, a, b)
  return (tools.sum_last(a * b, a:dim() - #self.batch_shape))
end

function Family:entropy()
  local y, derivatives, params = self:_normalized()
  for i, x in ipairs(params) do y = y - product(self, x, derivatives[i]) end
  return y - self._mean_carrier_measure
end

--- Returns the Bregman divergence of F for two distributions of one class; kl.lua uses it.
function family.divergence(p, q)
  local F, derivatives, params = p:_normalized()
  local others = q:_natural_params()
  local y = q:_log_normalizer(unpack(others)) - F
  for i, x in ipairs(others) do y = y - product(p, x - params[i], derivatives[i]) end
  return y
end

return family
