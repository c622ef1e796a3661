--- tails.lua -- distributions of numbers above a bound, most of them heavy-tailed: HalfCauchy,
-- Pareto, GeneralizedPareto, Weibull, InverseGamma, FisherSnedecor.

local bind = require "moth.binding.bind"
local constraints = require "moth.distributions.constraints"
local Distribution = require "moth.distributions.distribution"
local gammas = require "moth.distributions.gammas"
local large = require "moth.distributions.large"

local ops, tools = bind.ops, Distribution.tools
local real, positive = constraints.real, constraints.positive
local huge, log, pi, nan = math.huge, math.log, math.pi, 0 / 0
local EULER = tools.EULER

local tails = {}

local function made(name, rows)
  tails[name] = tools.made(name, rows)
  return tails[name]
end

-- Random exponential numbers of rate 1.
local function waits(like, size) return (tools.empty(like, size):exponential_()) end

--- The distribution of |x| for a Cauchy x around 0.
local HalfCauchy = made("HalfCauchy", {{"scale", positive, "the median"}})

function HalfCauchy._support() return constraints.nonnegative end
function HalfCauchy:_mean() return (ops.full_like(self.scale, huge)) end
function HalfCauchy:_mode() return (ops.zeros_like(self.scale)) end
function HalfCauchy:_variance() return (ops.full_like(self.scale, huge)) end

function HalfCauchy:_rsample(size)
  return tools.empty(self.scale, size):cauchy_():abs() * self.scale
end

function HalfCauchy:log_prob(value)
  value = self:_check(value, "log_prob")
  local inside = log(2 / pi) - self.scale:log() - large.log1p_square(value / self.scale)
  return (ops.where(value:ge(0), inside, -huge))
end

function HalfCauchy:entropy() return self.scale:log() + log(2 * pi) end

function HalfCauchy:cdf(value)
  return (self:_check(value, "cdf") / self.scale):atan() * (2 / pi)
end

function HalfCauchy:icdf(value) return (self:_share(value) * (pi / 2)):tan() * self.scale end

--- The Pareto distribution: numbers from scale on, where P(X > x) is proportional to x^-alpha.
local Pareto = made("Pareto", {{"scale", positive, "the smallest value"},
  {"alpha", positive, "the exponent of the tail: large for a short tail"}})

function Pareto:_support() return (constraints.greater_than_eq(self.scale)) end

function Pareto:_mean()
  local a = self.alpha:clamp(1)
  return a * self.scale / (a - 1)
end

function Pareto:_mode() return (self.scale:clone()) end

function Pareto:_variance()
  local a = self.alpha:clamp(2)
  return self.scale:square() * a / ((a - 1):square() * (a - 2))
end

function Pareto:_rsample(size) return self.scale * (waits(self.scale, size) / self.alpha):exp() end

function Pareto:log_prob(value)
  value = self:_check(value, "log_prob")
  local a, scale, x = large.wide(self.alpha, self.scale, value)
  return (large.like(a:log() + a * (scale / x):log() - x:log(), self.alpha, self.scale, value))
end

function Pareto:entropy() return (self.scale / self.alpha):log() + self.alpha:reciprocal() + 1 end

function Pareto:cdf(value)
  value = self:_check(value, "cdf")
  return -((self.scale / value):log() * self.alpha):expm1()
end

function Pareto:icdf(value)
  return self.scale * (-(-self:_share(value)):log1p() / self.alpha):exp()
end

--- The distribution of excesses over a high threshold loc: concentration 0 is exponential, above 0
-- heavy-tailed, below 0 bounded.
local GeneralizedPareto = made("GeneralizedPareto", {{"loc", real, "the smallest value"},
  {"scale", positive, "the scale"},
  {"concentration", real, "above 0: a heavy tail; below 0: bounded"}})

-- Returns a mask of concentrations near 0, and a nonzero divisor.
local function tail(self)
  local c = self.concentration
  local flat = c:abs():le(1e-8)
  return flat, (ops.where(flat, 1, c))
end

-- Transforms an exponential number x: (exp(c x) - 1) / c, times scale.
local function stretched(self, x)
  local flat, c = tail(self)
  local near = ops.where(x:eq(huge), x, x + self.concentration * x:square() / 2)
  return self.loc + self.scale * ops.where(flat, near, (x * c):expm1() / c)
end

function GeneralizedPareto:_support()
  local flat, c = tail(self)
  local last = ops.where(c:lt(0):logical_and(flat:logical_not()), self.loc - self.scale / c, huge)
  return (constraints.interval(self.loc, last))
end

function GeneralizedPareto:_mean()
  local c = self.concentration
  local some = ops.where(c:lt(1), c, 0.5)
  return (ops.where(c:lt(1), self.loc + self.scale / (1 - some), nan))
end

function GeneralizedPareto:_variance()
  local c = self.concentration
  local some = ops.where(c:lt(0.5), c, 0.25)
  return (ops.where(c:lt(0.5), self.scale:square() / ((1 - some):square() * (1 - some * 2)), nan))
end

function GeneralizedPareto:_mode() return (self.loc:clone()) end

function GeneralizedPareto:_rsample(size)
  return (stretched(self, waits(self.loc, size)))
end

function GeneralizedPareto:_log_survival(value) -- the log survival function
  local z, flat, c = (value - self.loc) / self.scale, tail(self)
  local near = ops.where(z:eq(huge), -z, self.concentration * z:square() / 2 - z)
  return (ops.where(flat, near, -(z * c):log1p() / c))
end

function GeneralizedPareto:log_prob(value)
  value = self:_check(value, "log_prob")
  return self:_log_survival(value) * (self.concentration + 1) - self.scale:log()
end

--- The log survival function.
function GeneralizedPareto:log_survival_function(value)
  return (self:_log_survival(self:_check(value, "log_survival_function")))
end

--- The log distribution function.
function GeneralizedPareto:log_cdf(value)
  return ((-self:_log_survival(self:_check(value, "log_cdf")):exp()):log1p())
end

function GeneralizedPareto:cdf(value)
  return -self:_log_survival(self:_check(value, "cdf")):expm1()
end

function GeneralizedPareto:icdf(value)
  return (stretched(self, -(-self:_share(value)):log1p()))
end

function GeneralizedPareto:entropy() return self.scale:log() + self.concentration + 1 end

--- The Weibull distribution of lifetimes: for a concentration above 1 the failure rate increases.
local Weibull = made("Weibull", {
  {"scale", positive, "the value that is exceeded with probability 1 / e"},
  {"concentration", positive, "the shape"}})

local function moment(self, n) return ((self.concentration:reciprocal() * n + 1):lgamma():exp()) end

function Weibull._support() return positive end
function Weibull:_mean() return self.scale * moment(self, 1) end

function Weibull:_mode()
  local k = self.concentration
  return self.scale * ((k - 1) / k):clamp(0):pow(k:reciprocal())
end

function Weibull:_variance()
  return self.scale:square() * (moment(self, 2) - moment(self, 1):square())
end

function Weibull:_rsample(size)
  return self.scale * waits(self.scale, size):pow(self.concentration:reciprocal())
end

function Weibull:log_prob(value)
  value = self:_check(value, "log_prob")
  local x, scale, k = large.wide(value, self.scale, self.concentration)
  local z = x / scale
  local y = (k / scale):log() + (k - 1) * z:log() - z:pow(k)
  return (large.like(ops.where(x:eq(huge), -huge, y), value, self.scale, self.concentration))
end

function Weibull:entropy()
  local k = self.concentration
  return EULER * (1 - k:reciprocal()) + (self.scale / k):log() + 1
end

function Weibull:cdf(value)
  return -(-(self:_check(value, "cdf") / self.scale):pow(self.concentration)):expm1()
end

function Weibull:icdf(value)
  return self.scale * (-(-self:_share(value)):log1p()):pow(self.concentration:reciprocal())
end

--- The distribution of 1 / x for a Gamma x.
local InverseGamma = made("InverseGamma", {{"concentration", positive, "the shape"},
                                            {"rate", positive, "the scale"}})

-- Returns the distribution of the reciprocals.
local function below(self) return (gammas.Gamma(self.concentration, self.rate, false)) end

function InverseGamma._support() return positive end
function InverseGamma:_mode() return self.rate / (self.concentration + 1) end

function InverseGamma:_mean()
  local a = self.concentration
  return (ops.where(a:gt(1), self.rate / (a - 1), huge))
end

function InverseGamma:_variance()
  local a = self.concentration
  return (ops.where(a:gt(2), self.rate:square() / ((a - 1):square() * (a - 2)), huge))
end

function InverseGamma:_rsample(size) return (below(self):_rsample(size):reciprocal()) end

function InverseGamma:log_prob(value)
  value = self:_check(value, "log_prob")
  local a, rate, x = large.wide(self.concentration, self.rate, value)
  local y = large.gamma(a, rate, x:reciprocal()) - x:log() * 2
  return (large.like(ops.where(x:eq(huge), -huge, y), self.concentration, self.rate, value))
end

function InverseGamma:entropy()
  local a = self.concentration
  local b = (large.wide(a))
  return large.like(large.gamma_entropy(b) - (b:log() + large.digamma_rest(b)) * 2, a)
    + self.rate:log()
end

function InverseGamma:cdf(value)
  return (ops.igammac(self.concentration, self.rate / self:_check(value, "cdf")))
end

--- The F distribution: the quotient of two Chi2 numbers, each divided by its degrees of freedom.
local FisherSnedecor = made("FisherSnedecor", {
  {"df1", positive, "degrees of freedom of the numerator"},
  {"df2", positive, "degrees of freedom of the denominator"}})

function FisherSnedecor._support() return positive end

function FisherSnedecor:_mean()
  local n = self.df2
  return (ops.where(n:gt(2), n / (n - 2), nan))
end

function FisherSnedecor:_mode()
  local m, n = self.df1, self.df2
  return (ops.where(m:gt(2), (m - 2) / m * n / (n + 2), nan))
end

function FisherSnedecor:_variance()
  local m, n = self.df1, self.df2
  local some = n:square() * 2 * (m + n - 2) / (m * (n - 2):square() * (n - 4))
  return (ops.where(n:gt(4), some, nan))
end

function FisherSnedecor:_rsample(size)
  local half = gammas.Gamma(self.df1 / 2, self.df1, false):_rsample(size)
  return half / gammas.Gamma(self.df2 / 2, self.df2, false):_rsample(size)
end

function FisherSnedecor:log_prob(value)
  value = self:_check(value, "log_prob")
  local m, n, x = large.wide(self.df1, self.df2, value)
  m, n = m / 2, n / 2
  local ratio = n / (m * x)
  local share, other = (ratio + 1):reciprocal(), (ratio:reciprocal() + 1):reciprocal()
  local y = large.beta(m, n, share, other) + share:log() + other:log() - x:log()
  return (large.like(ops.where(x:eq(huge), -huge, y), self.df1, self.df2, value))
end

return tails
