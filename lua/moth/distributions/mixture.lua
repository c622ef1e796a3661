--- mixture.lua -- MixtureSameFamily: a weighted mixture of distributions of one class.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local discrete = require "moth.distributions.discrete"
local Distribution = require "moth.distributions.distribution"
local errors = require "moth.error"

local tools = Distribution.tools
local M = {}

--- A mixture: mixture_distribution, a Categorical, selects the component of each sample. The
-- components are the elements of the last dimension of component_distribution's batch.
local Mixture = class("MixtureSameFamily", Distribution)
M.MixtureSameFamily = Mixture

Mixture.signature = define.signature("MixtureSameFamily", {
  {"object", "mixture_distribution", "a Categorical"},
  {"object", "component_distribution", "its last batch dimension is the components"},
  tools.VALIDATE})

function Mixture:init(mixture, component, validate_args)
  local function refuse(name, wanted, got)
    errors.argument("MixtureSameFamily", name, ("%s, got %s"):format(wanted, got), "E_TYPE")
  end
  if not class.isinstance(mixture, discrete.Categorical) then
    refuse("mixture_distribution", "a Categorical is needed", errors.describe(mixture))
  elseif not class.isinstance(component, Distribution) then
    refuse("component_distribution", "a distribution is needed", errors.describe(component))
  end
  local shape, n = {unpack(component.batch_shape)}, mixture:_like():size(-1)
  if table.remove(shape) ~= n or not (tools.broadcast_shape(mixture.batch_shape, shape)
      == tools.join(shape)) then
    refuse("component_distribution", ("a batch that ends in %s is needed"):format(
      tostring(tools.join(mixture.batch_shape, {n}))), tostring(component.batch_shape))
  end
  self.mixture_distribution, self.component_distribution = mixture, component
  Distribution.init(self, shape, component.event_shape, validate_args)
end

function Mixture:_like() return (self.component_distribution:_like()) end
function Mixture:_support() return self.component_distribution.support end

-- Adds dimensions of size 1 for the event to values of the components.
local function ahead(self, x)
  for _ = 1, #self.event_shape do x = x:unsqueeze(-1) end
  return x
end

-- Returns the dimension of the components.
local function where(self) return -1 - #self.event_shape end

local function mixed(self, x)
  return ((ahead(self, self.mixture_distribution.probs) * x):sum(where(self)))
end

function Mixture:_mean() return (mixed(self, self.component_distribution.mean)) end

function Mixture:_variance()
  local parts = self.component_distribution
  local apart = parts.mean - self.mean:unsqueeze(where(self))
  return (mixed(self, parts.variance + apart:square()))
end

function Mixture:_sample(_, shape)
  local at = self.mixture_distribution:expand(self.batch_shape):sample(shape)
  local all, dim = self.component_distribution:sample(shape), where(self)
  at = ahead(self, at:unsqueeze(-1))
  return (all:gather(dim, at:expand(tools.join(shape, self.batch_shape, {1}, self.event_shape)))
    :squeeze(dim))
end

-- Adds the dimension of the components to a value.
local function each(self, value) return (value:unsqueeze(where(self))) end

function Mixture:log_prob(value)
  value = each(self, self:_check(value, "log_prob"))
  local weights = self.mixture_distribution.logits:log_softmax(-1)
  return ((self.component_distribution:log_prob(value) + weights):logsumexp(-1))
end

function Mixture:cdf(value)
  value = each(self, self:_check(value, "cdf"))
  return ((self.component_distribution:cdf(value) * self.mixture_distribution.probs):sum(-1))
end

function Mixture:expand(...)
  local new = Distribution.expand(self, ...)
  local n = self.mixture_distribution:_like():size(-1)
  new.component_distribution = self.component_distribution:expand(
    tools.join(new.batch_shape, {n}))
  new.mixture_distribution = self.mixture_distribution:expand(new.batch_shape)
  return new
end

function Mixture:__tostring()
  return ("MixtureSameFamily(%s, %s)"):format(tostring(self.mixture_distribution),
    tostring(self.component_distribution))
end

return M
