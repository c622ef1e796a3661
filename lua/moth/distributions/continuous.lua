--- continuous.lua -- distributions of real numbers: Normal, LogNormal, HalfNormal, Uniform,
-- Exponential, Laplace, Gumbel, Cauchy.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local constraints = require "moth.distributions.constraints"
local define = require "moth.binding.define"
local Distribution = require "moth.distributions.distribution"
local errors = require "moth.error"
local large = require "moth.distributions.large"

local ops, tools = bind.ops, Distribution.tools
local number, VALIDATE = tools.number, tools.VALIDATE
local huge, log, pi = math.huge, math.log, math.pi

local LOG_ROOT_2PI = 0.5 * log(2 * pi)
local EULER = tools.EULER

local continuous = {}

-- Defines a class with loc and scale.
local function loc_scale(name, loc, scale, arguments)
  local new = class(name, Distribution)
  continuous[name] = new
  new.has_rsample = true
  new.arg_constraints = {loc = constraints.real, scale = constraints.positive}
  new.signature = define.signature(name, {number("loc", loc, arguments),
                                           number("scale", scale, arguments), VALIDATE})
  function new:init(at, by, validate_args)
    self.loc, self.scale = tools.broadcast(name, {"loc", "scale"}, {at, by})
    Distribution.init(self, self.loc.shape, {}, validate_args)
  end
  function new._support() return constraints.real end
  function new:_mode() return (self.loc:clone()) end
  return new
end

-- Returns the standardized value: (value - loc) / scale.
local function standardized(self, value) return (value - self.loc) / self.scale end

-- ---- Normal and related distributions ----

--- The normal distribution with mean loc and standard deviation scale.
local Normal = loc_scale("Normal", "the mean", "the standard deviation")

function Normal:_mean() return (self.loc:clone()) end
function Normal:_variance() return (self.scale:square()) end
function Normal:_stddev() return (self.scale:clone()) end

function Normal:_rsample(size)
  return self.loc + tools.empty(self.loc, size):normal_() * self.scale
end

function Normal:log_prob(value)
  value = self:_check(value, "log_prob")
  return standardized(self, value):square() * -0.5 - self.scale:log() - LOG_ROOT_2PI
end

function Normal:entropy() return self.scale:log() + (0.5 + LOG_ROOT_2PI) end

function Normal:cdf(value)
  value = self:_check(value, "cdf")
  return (standardized(self, value) * -math.sqrt(0.5)):erfc() * 0.5
end

function Normal:icdf(value)
  return self.loc + self.scale * ops.erfinv(self:_share(value) * 2 - 1) * math.sqrt(2)
end

--- The distribution of exp(x) for a normal x with mean loc and standard deviation scale.
local LogNormal = loc_scale("LogNormal", "the mean of the logarithms",
  "the standard deviation of the logarithms")

-- Returns the distribution of the logarithms.
local function below(self) return (Normal(self.loc, self.scale, false)) end

function LogNormal._support() return constraints.positive end
function LogNormal:_mean() return ((self.loc + self.scale:square() / 2):exp()) end
function LogNormal:_mode() return ((self.loc - self.scale:square()):exp()) end

function LogNormal:_variance()
  local square = self.scale:square()
  return square:expm1() * (self.loc * 2 + square):exp()
end

function LogNormal:_rsample(size) return (below(self):_rsample(size):exp()) end

function LogNormal:log_prob(value)
  local x = self:_check(value, "log_prob"):log()
  return below(self):log_prob(x) - x
end

function LogNormal:entropy() return below(self):entropy() + self.loc end

function LogNormal:cdf(value)
  value = self:_check(value, "cdf")
  return (below(self):cdf(value:log()))
end

function LogNormal:icdf(value) return (below(self):icdf(self:_share(value)):exp()) end

--- The distribution of |x| for a normal x with mean 0 and standard deviation scale.
local HalfNormal = class("HalfNormal", Distribution)
continuous.HalfNormal = HalfNormal

HalfNormal.has_rsample = true
HalfNormal.arg_constraints = {scale = constraints.positive}
HalfNormal.signature = define.signature("HalfNormal", {
  number("scale", "the standard deviation of x"), VALIDATE})

function HalfNormal:init(scale, validate_args)
  self.scale = tools.broadcast("HalfNormal", {"scale"}, {scale})
  Distribution.init(self, self.scale.shape, {}, validate_args)
end

function HalfNormal._support() return constraints.nonnegative end
function HalfNormal:_mean() return self.scale * math.sqrt(2 / pi) end
function HalfNormal:_mode() return (ops.zeros_like(self.scale)) end
function HalfNormal:_variance() return self.scale:square() * (1 - 2 / pi) end

function HalfNormal:_rsample(size)
  return tools.empty(self.scale, size):normal_():abs() * self.scale
end

function HalfNormal:log_prob(value)
  value = self:_check(value, "log_prob")
  local inside = (value / self.scale):square() * -0.5 - self.scale:log()
    + (log(2) - LOG_ROOT_2PI)
  return (ops.where(value:ge(0), inside, -huge))
end

function HalfNormal:entropy() return self.scale:log() + (0.5 + LOG_ROOT_2PI - log(2)) end

function HalfNormal:cdf(value)
  value = self:_check(value, "cdf")
  return ((value / self.scale * math.sqrt(0.5)):erf())
end

function HalfNormal:icdf(value)
  return self.scale * ops.erfinv(self:_share(value)) * math.sqrt(2)
end

-- ---- Uniform, Exponential ----

--- The uniform distribution over [low, high).
local Uniform = class("Uniform", Distribution)
continuous.Uniform = Uniform

Uniform.has_rsample = true
Uniform.arg_constraints = {low = constraints.real, high = constraints.real}
Uniform.signature = define.signature("Uniform", {
  number("low", "the smallest value"), number("high", "the upper bound, excluded"), VALIDATE})

function Uniform:init(low, high, validate_args)
  self.low, self.high = tools.broadcast("Uniform", {"low", "high"}, {low, high})
  Distribution.init(self, self.low.shape, {}, validate_args)
  if self.validate_args and not require("moth.binding.lib").capture
      and not self.low:lt(self.high):all():item() then
    errors.argument("Uniform", "high", "numbers above low are needed", "E_DOMAIN")
  end
end

local function width(self) return self.high - self.low end

function Uniform:_support() return (constraints.interval(self.low, self.high)) end
function Uniform:_mean() return (self.low + self.high) * 0.5 end
function Uniform:_variance() return width(self):square() / 12 end
function Uniform:_stddev() return width(self) / math.sqrt(12) end

function Uniform:_mode() return (ops.full_like(self.low, 0 / 0)) end

function Uniform:_rsample(size)
  return self.low + tools.empty(self.low, size):uniform_() * width(self)
end

function Uniform:log_prob(value)
  value = self:_check(value, "log_prob")
  local inside = value:ge(self.low):logical_and(value:lt(self.high))
  return (ops.where(inside, -width(self):log(), -huge))
end

function Uniform:entropy() return (width(self):log()) end

function Uniform:cdf(value)
  value = self:_check(value, "cdf")
  return (((value - self.low) / width(self)):clamp(0, 1))
end

function Uniform:icdf(value) return self.low + width(self) * self:_share(value) end

--- The exponential distribution: waiting times of events that occur `rate` times per unit of time.
local Exponential = class("Exponential", Distribution)
continuous.Exponential = Exponential

Exponential.has_rsample = true
Exponential.arg_constraints = {rate = constraints.positive}
Exponential.signature = define.signature("Exponential", {
  number("rate", "events per unit of time: 1 / mean"), VALIDATE})

function Exponential:init(rate, validate_args)
  self.rate = tools.broadcast("Exponential", {"rate"}, {rate})
  Distribution.init(self, self.rate.shape, {}, validate_args)
end

function Exponential._support() return constraints.nonnegative end
function Exponential:_mean() return (self.rate:reciprocal()) end
function Exponential:_mode() return (ops.zeros_like(self.rate)) end
function Exponential:_variance() return (self.rate:square():reciprocal()) end
function Exponential:_stddev() return (self.rate:reciprocal()) end

function Exponential:_rsample(size)
  return tools.empty(self.rate, size):exponential_() / self.rate
end

function Exponential:log_prob(value)
  value = self:_check(value, "log_prob")
  return self.rate:log() - self.rate * value
end

function Exponential:entropy() return 1 - self.rate:log() end

function Exponential:cdf(value)
  value = self:_check(value, "cdf")
  return -(-self.rate * value):expm1()
end

function Exponential:icdf(value) return -(-self:_share(value)):log1p() / self.rate end

-- ---- Laplace, Gumbel, Cauchy ----

--- The Laplace distribution, with the density exp(-|x - loc| / scale) / (2 scale).
local Laplace = loc_scale("Laplace", "the mean", "the mean distance from the mean")

function Laplace:_mean() return (self.loc:clone()) end
function Laplace:_variance() return self.scale:square() * 2 end
function Laplace:_stddev() return self.scale * math.sqrt(2) end

function Laplace:_rsample(size)
  local u = tools.empty(self.loc, size):uniform_(tools.eps(self.loc) - 1, 1)
  return self.loc - self.scale * u:sign() * (-u:abs()):log1p()
end

function Laplace:log_prob(value)
  value = self:_check(value, "log_prob")
  return -standardized(self, value):abs() - (self.scale * 2):log()
end

function Laplace:entropy() return (self.scale * 2):log() + 1 end

function Laplace:cdf(value)
  local z = standardized(self, self:_check(value, "cdf"))
  return 0.5 - z:sign() * (-z:abs()):expm1() * 0.5
end

function Laplace:icdf(value)
  local part = self:_share(value) - 0.5
  return self.loc - self.scale * part:sign() * (part:abs() * -2):log1p()
end

--- The Gumbel distribution: the limit distribution of maxima.
local Gumbel = loc_scale("Gumbel", "the mode", "the scale")

function Gumbel:_mean() return self.loc + self.scale * EULER end
function Gumbel:_variance() return self.scale:square() * (pi * pi / 6) end
function Gumbel:_stddev() return self.scale * (pi / math.sqrt(6)) end

function Gumbel:_rsample(size)
  return self.loc - self.scale * tools.empty(self.loc, size):exponential_():log()
end

function Gumbel:log_prob(value)
  local z = -standardized(self, self:_check(value, "log_prob"))
  return ops.where(z:eq(huge), -huge, z - z:exp()) - self.scale:log()
end

function Gumbel:entropy() return self.scale:log() + (1 + EULER) end

function Gumbel:cdf(value)
  return ((-(-standardized(self, self:_check(value, "cdf"))):exp()):exp())
end

function Gumbel:icdf(value)
  return self.loc - self.scale * (-self:_share(value):log()):log()
end

--- The Cauchy distribution: the quotient of two normal numbers; it has no mean.
local Cauchy = loc_scale("Cauchy", "the median", "half of the width at half the maximal density")

function Cauchy:_mean() return (ops.full_like(self.loc, 0 / 0)) end
function Cauchy:_variance() return (ops.full_like(self.loc, huge)) end

function Cauchy:_rsample(size)
  return self.loc + tools.empty(self.loc, size):cauchy_() * self.scale
end

function Cauchy:log_prob(value)
  value = self:_check(value, "log_prob")
  local x, loc, scale = large.wide(value, self.loc, self.scale)
  local y = -large.log1p_square((x - loc) / scale) - scale:log() - log(pi)
  return (large.like(y, value, self.loc, self.scale))
end

function Cauchy:entropy() return self.scale:log() + log(4 * pi) end

function Cauchy:cdf(value)
  return standardized(self, self:_check(value, "cdf")):atan() / pi + 0.5
end

function Cauchy:icdf(value)
  return ((self:_share(value) - 0.5) * pi):tan() * self.scale + self.loc
end

return continuous
