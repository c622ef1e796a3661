--- bounded.lua -- distributions on a bounded interval: Kumaraswamy, ContinuousBernoulli, VonMises.

local bind = require "moth.binding.bind"
local constraints = require "moth.distributions.constraints"
local Distribution = require "moth.distributions.distribution"
local large = require "moth.distributions.large"
local lib = require "moth.binding.lib"

local ops, tools = bind.ops, Distribution.tools
local positive = constraints.positive
local pi = math.pi
local EULER = tools.EULER

local bounded = {}

--- The distribution function is 1 - (1 - x^a)^b, for x from 0 to 1; it is similar to Beta.
local Kumaraswamy = tools.made("Kumaraswamy", {
  {"concentration1", positive, "a: the exponent of x; the larger, the closer to 1"},
  {"concentration0", positive, "b: the exponent of 1 - x^a; the larger, the closer to 0"}})
bounded.Kumaraswamy = Kumaraswamy

-- The n-th moment.
local function moment(self, n)
  local a, b = large.wide(self.concentration1, self.concentration0)
  local at = a:reciprocal() * n + 1
  local y = (at:lgamma() - large.lgamma_step(b + 1, at - 1)):exp()
  return (large.like(y, self.concentration1, self.concentration0))
end

function Kumaraswamy._support() return constraints.unit_interval end
function Kumaraswamy:_mean() return (moment(self, 1)) end
function Kumaraswamy:_variance() return moment(self, 2) - moment(self, 1):square() end

function Kumaraswamy:_mode()
  local a, b = self.concentration1, self.concentration0
  local none = a:lt(1):logical_or(b:lt(1)):logical_or(a:eq(1):logical_and(b:eq(1)))
  return (ops.where(none, 0 / 0, ((a - 1) / (a * b - 1)):pow(a:reciprocal())))
end

function Kumaraswamy:_rsample(size)
  return (self:_beyond(tools.clamped(tools.empty(self:_like(), size):uniform_())))
end

-- The inverse of the survival function.
function Kumaraswamy:_beyond(share)
  local inside = -(share:log() / self.concentration0):expm1() -- 1 - share^(1/b)
  return (inside:pow(self.concentration1:reciprocal()))
end

function Kumaraswamy:icdf(value) return (self:_beyond(1 - self:_share(value))) end

function Kumaraswamy:log_prob(value)
  value = self:_check(value, "log_prob")
  local a, b, x = large.wide(self.concentration1, self.concentration0, value)
  local y = (a * b):log() + ops.xlogy(a - 1, x) + ops.xlogy(b - 1, 1 - x:pow(a))
  return (large.like(y, self.concentration1, self.concentration0, value))
end

function Kumaraswamy:cdf(value)
  value = self:_check(value, "cdf")
  return 1 - (1 - value:pow(self.concentration1)):pow(self.concentration0)
end

function Kumaraswamy:entropy()
  local a, b = self.concentration1, self.concentration0
  return (1 - a:reciprocal()) * ((b + 1):digamma() + EULER) + 1 - b:reciprocal() - (a * b):log()
end

--- The distribution of numbers from 0 to 1 with a density proportional to probs^x (1 - probs)^(1 -
-- x) (Loaiza-Ganem and Cunningham, "The continuous Bernoulli", 2019).
local Continuous = tools.of_one(tools.either("ContinuousBernoulli",
  "the ratio of the densities at 1 and 0 is probs / (1 - probs); not a probability",
  "log(probs / (1 - probs))", {probs = constraints.unit_interval, logits = constraints.real}))
bounded.ContinuousBernoulli = Continuous
Continuous.has_rsample = true

function Continuous:init(probs, logits, validate_args)
  local x = tools.choose(self, probs, logits)
  Distribution.init(self, x.shape, {}, validate_args)
  if probs ~= nil then self.probs = tools.clamped(self.probs) end
end

-- B_2n / (2n)!, the coefficients of series in x^2. They replace functions near 0, where these lose
-- precision. (PyTorch uses fewer terms, and an argument, lims, for the range.)
local SERIES = {1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160,
                 -691 / 1307674368000, 1 / 74724249600}

-- Returns f(x) for logits x; for small x the sum of weight(n) SERIES[n] x^(2n - 2).
local function of_logits(self, f, weight)
  local x = self.logits
  local small = x:abs():lt(0.5)
  local square, sum = ops.where(small, x, 0):square(), 0
  for n = #SERIES, 1, -1 do sum = square * sum + SERIES[n] * weight(n) end
  return small, f(ops.where(small, 1, x)), sum, (ops.where(small, x, 0))
end

-- The logarithm of the integral of exp(x v) over v from 0 to 1, minus x / 2.
function Continuous:_log_size()
  local small, far, near, x = of_logits(self, function(x)
    local size = x:abs()
    return (-(-size):expm1() / size):log() + size / 2
  end, function(n) return 1 / (2 * n) end)
  return (ops.where(small, x:square() * near, far))
end

function Continuous._support() return constraints.unit_interval end

function Continuous:_mean()
  local small, far, near, x = of_logits(self, function(x)
    return (-(-x):expm1()):reciprocal() - x:reciprocal()
  end, function() return 1 end)
  return (ops.where(small, x * near + 0.5, far))
end

function Continuous:_variance()
  local small, far, near = of_logits(self, function(x)
    return x:square():reciprocal() - ((x * 0.5):sinh() * 2):square():reciprocal()
  end, function(n) return 2 * n - 1 end)
  return (ops.where(small, near, far))
end

function Continuous:_rsample(size)
  return (self:_up_to(tools.clamped(tools.empty(self:_like(), size):uniform_())))
end

-- log(1 + share (e^x - 1)) / x, computed from the end with the higher density
function Continuous:_up_to(share)
  local x = self.logits
  local small, up = x:abs():lt(1e-8), x:gt(0)
  local away = ops.where(small, 1, -x:abs())
  local part = ops.where(up, 1 - share, share)
  local at = (part * away:expm1()):log1p() / away
  return (ops.where(small, share + share * (1 - share) * x * 0.5, ops.where(up, 1 - at, at)))
end

function Continuous:icdf(value) return (self:_up_to(self:_share(value))) end

function Continuous:cdf(value)
  value = self:_check(value, "cdf")
  local x = self.logits
  local small, up = x:abs():lt(1e-8), x:gt(0)
  local away = ops.where(small, 1, -x:abs())
  local part = (ops.where(up, 1 - value, value) * away):expm1() / away:expm1()
  local near = value - value * (1 - value) * x * 0.5
  return (ops.where(small, near, ops.where(up, 1 - part, part)):clamp(0, 1))
end

-- Returns the log_prob of a value, or the mean log_prob of values with this mean.
function Continuous:_mean_log_prob(mean) return (mean - 0.5) * self.logits - self:_log_size() end

function Continuous:log_prob(value)
  return (self:_mean_log_prob(self:_check(value, "log_prob")))
end

function Continuous:entropy() return -self:_mean_log_prob(self.mean) end

--- Angles around loc, in radians. A higher concentration makes the distribution narrower.
local VonMises = tools.made("VonMises", {
  {"loc", constraints.real, "the mean direction, in radians"},
  {"concentration", positive, "approximately 1 / variance if it is large"}})
bounded.VonMises = VonMises
VonMises.has_rsample = false

local function special(name, x) return (require("moth").special[name](x)) end

function VonMises._support() return constraints.real end
function VonMises:_mean() return (self.loc:clone()) end
function VonMises:_mode() return (self.loc:clone()) end

--- The circular variance: 1 minus the mean cosine.
function VonMises:_variance()
  return 1 - special("i1e", self.concentration) / special("i0e", self.concentration)
end

function VonMises:log_prob(value)
  value = self:_check(value, "log_prob")
  local k = self.concentration
  return k * ((value - self.loc) * 0.5):sin():square() * -2 - (special("i0e", k) * (2 * pi)):log()
end

-- Rejection sampling from wrapped Cauchy numbers, which accepts at least two of three; 60 rounds
-- suffice (Best and Fisher, "Efficient simulation of the von Mises distribution", 1979).
function VonMises:_sample(size)
  local moth = require "moth"
  local k = self.concentration:to(moth.float64)
  local tau = (k:square() * 4 + 1):sqrt() + 1
  local rho = k * 2 / (tau + (tau * 2):sqrt()) -- (tau - sqrt(2 tau)) / 2k, without cancellation
  local r = ((rho:square() + 1) / (rho * 2)):expand(size)
  k = k:expand(size)
  local cosine, done = ops.ones_like(r), ops.zeros_like(r, moth.bool)
  local function uniform() return (tools.empty(r, size):uniform_()) end
  for _ = 1, 60 do
    local z = (uniform() * pi):cos()
    local f = (r * z + 1) / (r + z)
    local c = k * (r - f)
    local taken = (c:log() + 1 - c):ge(uniform():log())
    cosine = ops.where(done, cosine, f)
    done = done:logical_or(taken)
    if not (lib.capture or lib.verifying) and done:all():item() then break end
  end
  local turn = ops.where(uniform():lt(0.5), -1, 1) * cosine:clamp(-1, 1):acos()
  local angle = self.loc:to(moth.float64) + turn
  return ((((angle + pi):remainder(2 * pi)) - pi):to(self.loc.dtype))
end

return bounded
