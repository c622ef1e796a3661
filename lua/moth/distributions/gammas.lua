--- gammas.lua -- Gamma and related distributions: Chi2, Beta, Dirichlet, StudentT; and Poisson.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local constraints = require "moth.distributions.constraints"
local define = require "moth.binding.define"
local Distribution = require "moth.distributions.distribution"
local errors = require "moth.error"
local func = require "moth.autograd.function"
local large = require "moth.distributions.large"

local ops, tools = bind.ops, Distribution.tools
local number, VALIDATE = tools.number, tools.VALIDATE
local positive = constraints.positive
local log, pi = math.log, math.pi

local gammas = {}

-- Random gamma numbers of rate 1, with implicit gradients with respect to the concentration.
local Drawn = class("StandardGamma", func.Function)

function Drawn.forward(ctx, shape)
  local y = ops.standard_gamma(shape)
  ctx:save_for_backward(shape, y)
  return y
end

Drawn.backward = func.once_differentiable(function(ctx, dy)
  return dy * ops.gamma_slope(ctx.saved_tensors[1], ctx.saved_tensors[2])
end)

local function drawn(shape, size) return (Drawn.apply(shape:expand(size))) end

-- Clamps numbers that were rounded to 0 or 1 to the open interval.
local function inside(share) return (share:clamp(2 ^ -126, 1 - tools.eps(share))) end

local function made(name, rows)
  gammas[name] = tools.made(name, rows)
  return gammas[name]
end

-- ---- Gamma, Chi2 ----

--- The gamma distribution with shape `concentration` and `rate`.
local Gamma = made("Gamma", {{"concentration", positive, "the shape"},
                              {"rate", positive, "the inverse scale"}})

function Gamma._support() return constraints.nonnegative end
function Gamma:_mean() return self.concentration / self.rate end
function Gamma:_mode() return ((self.concentration - 1) / self.rate):clamp(0) end
function Gamma:_variance() return self.concentration / self.rate:square() end
function Gamma:_rsample(size) return drawn(self.concentration, size) / self.rate end

function Gamma:log_prob(value)
  value = self:_check(value, "log_prob")
  local a, rate = self.concentration, self.rate
  local b, r, x = large.wide(a, rate, value)
  local y = ops.where(x:eq(math.huge), -math.huge, large.gamma(b, r, x))
  return (large.like(y, a, rate, value))
end

function Gamma:entropy()
  local a = self.concentration
  return large.like(large.gamma_entropy((large.wide(a))), a) - self.rate:log()
end

function Gamma:cdf(value)
  value = self:_check(value, "cdf")
  return (ops.igamma(self.concentration, self.rate * value))
end

--- The sum of the squares of `df` standard normal numbers.
local Chi2 = class("Chi2", Gamma)
gammas.Chi2 = Chi2
Chi2.arg_constraints = {df = positive}
Chi2.signature = define.signature("Chi2", {number("df", "degrees of freedom"), VALIDATE})

function Chi2:init(df, validate_args)
  self.df = tools.broadcast("Chi2", {"df"}, {df})
  Distribution.init(self, self.df.shape, {}, validate_args)
  self.concentration, self.rate = self.df * 0.5, ops.full_like(self.df, 0.5)
end

function Chi2:expand(...)
  local new = Distribution.expand(self, ...)
  new.concentration, new.rate = new.df * 0.5, ops.full_like(new.df, 0.5)
  return new
end

-- ---- Beta, Dirichlet ----

--- Probability vectors along the last dimension, with one concentration for each category.
local Dirichlet = class("Dirichlet", Distribution)
gammas.Dirichlet = Dirichlet
Dirichlet.has_rsample = true
local positive_vector = constraints.independent(positive, 1)
positive_vector.text = "vectors of numbers above 0"
Dirichlet.arg_constraints = {concentration = positive_vector}
Dirichlet.signature = define.signature("Dirichlet", {
  {"tensor", "concentration", "a positive number for each category, (..., K)"}, VALIDATE})

function Dirichlet:init(concentration, validate_args)
  if concentration:dim() < 1 then
    errors.argument("Dirichlet", "concentration", "a dimension of categories is needed, got "
      .. errors.describe(concentration), "E_SHAPE")
  end
  self.concentration = tools.broadcast("Dirichlet", {"concentration"}, {concentration})
  local batch = {}
  for d = 1, concentration:dim() - 1 do batch[d] = concentration:size(d) end
  Distribution.init(self, batch, {concentration:size(-1)}, validate_args)
end

function Dirichlet._support() return constraints.simplex end

function Dirichlet:_rsample(size)
  local y = drawn(self.concentration, size)
  return inside(y / y:sum(-1, {keepdim = true}))
end

function Dirichlet:_mean()
  return self.concentration / self.concentration:sum(-1, {keepdim = true})
end

-- The mode. If all concentrations are below 1, the density is infinite at each vertex: returns the
-- first vertex.
local function most_likely(concentration)
  local above = (concentration - 1):clamp(0)
  local first = ops.zeros_like(concentration)
  first:narrow(-1, 1, 1):fill_(1)
  return (ops.where(concentration:lt(1):all(-1, true), first,
    above / above:sum(-1, {keepdim = true})))
end

function Dirichlet:_mode() return (most_likely(self.concentration)) end

function Dirichlet:_variance()
  local total, mean = self.concentration:sum(-1, {keepdim = true}), self.mean
  return mean * (1 - mean) / (total + 1)
end

function Dirichlet:log_prob(value)
  value = self:_check(value, "log_prob")
  local a = self.concentration
  return (large.like(large.dirichlet(large.wide(a, value)), a, value))
end

function Dirichlet:entropy()
  local a = self.concentration
  return (large.like(large.dirichlet_entropy((large.wide(a))), a))
end

--- Numbers from 0 to 1: the first component of a Dirichlet distribution with two categories.
local Beta = made("Beta", {{"concentration1", positive, "the exponent of x, plus 1"},
                            {"concentration0", positive, "the exponent of 1 - x, plus 1"}})

function Beta._support() return constraints.unit_interval end

function Beta:_rsample(size)
  local a = drawn(self.concentration1, size)
  return inside(a / (a + drawn(self.concentration0, size)))
end

local function total_of(self) return self.concentration1 + self.concentration0 end

function Beta:_mean() return self.concentration1 / total_of(self) end
function Beta:_mode()
  return (most_likely(ops.stack({self.concentration1, self.concentration0}, -1)):select(-1, 1))
end

function Beta:_variance()
  local total = total_of(self)
  return self.concentration1 * self.concentration0 / (total:square() * (total + 1))
end

function Beta:log_prob(value)
  value = self:_check(value, "log_prob")
  local a, b = self.concentration1, self.concentration0
  local c, d, x = large.wide(a, b, value)
  return (large.like(large.beta(c, d, x, 1 - x), a, b, value))
end

function Beta:entropy()
  local a, b = self.concentration1, self.concentration0
  local both = ops.stack({large.wide(a, b)}, -1)
  return (large.like(large.dirichlet_entropy(both), a, b))
end

-- ---- StudentT ----

--- A normal number divided by the root of a Chi2 number over its degrees of freedom.
local StudentT = made("StudentT", {{"df", positive, "degrees of freedom"},
                                    {"loc", constraints.real, "the median", default = 0},
                                    {"scale", positive, "the factor of the values", default = 1}})

function StudentT._support() return constraints.real end
function StudentT:_mode() return (self.loc:clone()) end
function StudentT:_mean() return (ops.where(self.df:gt(1), self.loc, 0 / 0)) end

function StudentT:_variance()
  local df, some = self.df, self.scale:square() * self.df / (self.df - 2)
  return (ops.where(df:gt(2), some, ops.where(df:gt(1), math.huge, ops.full_like(df, 0 / 0))))
end

function StudentT:_rsample(size)
  local chi = drawn(self.df * 0.5, size) * 2
  return self.loc + self.scale * tools.empty(self.loc, size):normal_() / (chi / self.df):sqrt()
end

function StudentT:log_prob(value)
  value = self:_check(value, "log_prob")
  local df, loc, scale, x = large.wide(self.df, self.loc, self.scale, value)
  local y = large.lgamma_half_step(df * 0.5) - 0.5 * log(2 * pi) - scale:log()
    - (df + 1) * 0.5 * large.log1p_square((x - loc) / scale / df:sqrt())
  return (large.like(y, self.df, self.loc, self.scale, value))
end

function StudentT:entropy()
  local a = (large.wide(self.df)) * 0.5
  local b = a + 0.5
  local y = b * ((0.5 / a):log1p() + large.digamma_rest(b) - large.digamma_rest(a))
    + 0.5 * log(2 * pi) - large.lgamma_half_step(a)
  return large.like(y, self.df) + self.scale:log()
end

-- ---- counts ----

--- The number of events per unit of time; `rate` is its mean.
local Poisson = made("Poisson", {{"rate", constraints.nonnegative, "the mean"}})
Poisson.has_rsample = false

function Poisson._support() return constraints.nonnegative_integer end
function Poisson:_mean() return (self.rate:clone()) end
function Poisson:_mode() return (self.rate:floor()) end
function Poisson:_variance() return (self.rate:clone()) end
function Poisson:_sample(size) return (ops.poisson(self.rate:expand(size))) end

function Poisson:log_prob(value)
  value = self:_check(value, "log_prob")
  return (large.like(large.count(large.wide(value, self.rate)), self.rate, value))
end

return gammas
