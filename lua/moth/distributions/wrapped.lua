--- wrapped.lua -- distributions derived from others: Independent, TransformedDistribution.

local class = require "moth.base.class"
local constraints = require "moth.distributions.constraints"
local define = require "moth.binding.define"
local Distribution = require "moth.distributions.distribution"
local errors = require "moth.error"

local tools = Distribution.tools
local wrapped = {}

-- Returns the given distribution; raises for other values.
local function checked(name, field, given)
  if not class.isinstance(given, Distribution) then
    errors.argument(name, field, "a distribution is needed, got " .. errors.describe(given),
      "E_TYPE")
  end
  return given
end

-- Splits sizes into two lists: all but the last n, and the last n.
local function parted(shape, n)
  local front, back = {}, {}
  for d = 1, #shape do
    local list = d > #shape - n and back or front
    list[#list + 1] = shape[d]
  end
  return front, back
end

-- ---- Independent ----

--- Makes the last dimensions of a distribution's batch part of one value: log_prob and entropy are
-- summed over them.
local Independent = class("Independent", Distribution)
wrapped.Independent = Independent

Independent.signature = define.signature("Independent", {
  {"any", "base_distribution", "a distribution with a batch"},
  {"int", "reinterpreted_batch_ndims", "the number of batch dimensions to reinterpret"},
  tools.VALIDATE})

function Independent:init(base, n, validate_args)
  self.base_dist = checked("Independent", "base_distribution", base)
  if n < 0 or n > #base.batch_shape then
    errors.argument("Independent", "reinterpreted_batch_ndims",
      ("0 to %d are possible with the batch %s, got %d"):format(#base.batch_shape,
        tostring(base.batch_shape), n))
  end
  self.reinterpreted_batch_ndims, self.has_rsample = n, base.has_rsample
  local batch, events = parted(base.batch_shape, n)
  Distribution.init(self, batch, tools.join(events, base.event_shape), validate_args)
end

function Independent:_like() return (self.base_dist:_like()) end
function Independent:_mean() return self.base_dist.mean end
function Independent:_variance() return self.base_dist.variance end
function Independent:_mode() return self.base_dist.mode end

function Independent:_support()
  return (constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims))
end

function Independent:_sample(_, shape) return (self.base_dist:sample(shape)) end
function Independent:_rsample(_, shape) return (self.base_dist:rsample(shape)) end

function Independent:log_prob(value)
  return (tools.sum_last(self.base_dist:log_prob(value), self.reinterpreted_batch_ndims))
end

function Independent:enumerate_support(expand)
  if self.reinterpreted_batch_ndims > 0 then
    errors.raise("Independent has no list of its values: of several dimensions they are too many",
      "E_UNSUPPORTED")
  end
  return (self.base_dist:enumerate_support(expand))
end

function Independent:entropy()
  return (tools.sum_last(self.base_dist:entropy(), self.reinterpreted_batch_ndims))
end

function Independent:expand(...)
  local new = Distribution.expand(self, ...)
  local _, events = parted(self.base_dist.batch_shape, self.reinterpreted_batch_ndims)
  new.base_dist = self.base_dist:expand(tools.join(new.batch_shape, events))
  return new
end

function Independent:__tostring()
  return ("Independent(%s, %d)"):format(tostring(self.base_dist), self.reinterpreted_batch_ndims)
end

-- ---- TransformedDistribution ----

--- The distribution of a base distribution's samples after transforms, which are applied in order.
local Transformed = class("TransformedDistribution", Distribution)
wrapped.TransformedDistribution = Transformed

Transformed.signature = define.signature("TransformedDistribution", {
  {"any", "base_distribution", "the distribution before the transforms"},
  {"any", "transforms", "a transform, or a list of them"}, tools.VALIDATE})

function Transformed:init(base, given, validate_args)
  checked("TransformedDistribution", "base_distribution", base)
  local transforms = require "moth.distributions.transforms"
  if class.isinstance(given, transforms.Transform) then given = {given} end
  for i, t in ipairs(type(given) == "table" and given or {given}) do
    transforms.checked("TransformedDistribution", ("transforms[%d]"):format(i), t)
  end
  local composed = transforms.ComposeTransform(given)
  local needs, events = composed.domain.event_dim, #base.event_shape
  local shape = tools.join(base.batch_shape, base.event_shape)
  if #shape < needs then
    errors.argument("TransformedDistribution", "base_distribution", ("values of %d dimensions are "
      .. "needed, got those of %s"):format(needs, tostring(shape)), "E_SHAPE")
  end
  local after = tools.join(composed:forward_shape(shape))
  local before = tools.join(composed:inverse_shape(after))
  if not (before == shape) then base = base:expand((parted(before, events))) end
  if needs > events then base = Independent(base, needs - events) end
  self.base_dist, self.transforms, self.has_rsample = base, given, base.has_rsample
  self._composed = composed
  local front, back = parted(after, composed.codomain.event_dim + math.max(events - needs, 0))
  Distribution.init(self, front, back, validate_args)
end

function Transformed:_like() return (self.base_dist:_like()) end

function Transformed:_support()
  local last = self.transforms[#self.transforms]
  if not last then return self.base_dist.support end
  local more = #self.event_shape - last.codomain.event_dim
  return more > 0 and constraints.independent(last.codomain, more) or last.codomain
end

local function apply(self, x)
  for _, transform in ipairs(self.transforms) do x = transform(x) end
  return x
end

function Transformed:_sample(_, shape) return (apply(self, self.base_dist:sample(shape))) end
function Transformed:_rsample(_, shape) return (apply(self, self.base_dist:rsample(shape))) end

function Transformed:log_prob(value)
  local y, total, events = self:_check(value, "log_prob"), 0, #self.event_shape
  for i = #self.transforms, 1, -1 do
    local transform = self.transforms[i]
    local x, n = transform:_inverse(y), transform.domain.event_dim
    events = events + n - transform.codomain.event_dim
    total = total - tools.sum_last(transform:log_abs_det_jacobian(x, y), events - n)
    y = x
  end
  return tools.sum_last(self.base_dist:log_prob(y), events - #self.base_dist.event_shape) + total
end

-- Maps probabilities of the base to probabilities of the transformed values, and back: decreasing
-- transforms reverse them.
local function turned(self, share)
  local sign = 1
  for _, transform in ipairs(self.transforms) do sign = transform:sign() * sign end
  return (share - 0.5) * sign + 0.5
end

function Transformed:cdf(value)
  local y = self:_check(value, "cdf")
  for i = #self.transforms, 1, -1 do y = self.transforms[i]:_inverse(y) end
  return (turned(self, self.base_dist:cdf(y)))
end

function Transformed:icdf(value)
  return (apply(self, self.base_dist:icdf(turned(self, value))))
end

function Transformed:expand(...)
  local new = Distribution.expand(self, ...)
  local shape = self._composed:inverse_shape(tools.join(new.batch_shape, new.event_shape))
  new.base_dist = self.base_dist:expand((parted(shape, #self.base_dist.event_shape)))
  return new
end

function Transformed:__tostring()
  local names = {}
  for i, transform in ipairs(self.transforms) do names[i] = class.typename(transform) end
  return ("%s(%s, {%s})"):format(class.typename(self), tostring(self.base_dist),
    table.concat(names, ", "))
end

return wrapped
