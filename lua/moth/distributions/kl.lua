--- kl.lua -- kl_divergence of two distributions: a formula for each pair of classes.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local Distribution = require "moth.distributions.distribution"
local errors = require "moth.error"

local ops, tools = bind.ops, Distribution.tools
local EULER, huge, log, pi = tools.EULER, math.huge, math.log, math.pi

local kl = {}
local formulas = {} -- {class of p, class of q, function}; later registrations come first

-- Returns the formula of the most specific classes: a class precedes its base.
local function find(p, q)
  local of_p = class.of(p)
  while of_p do
    local of_q = class.of(q)
    while of_q do
      for _, row in ipairs(formulas) do
        if row[1] == of_p and row[2] == of_q then return row[3] end
      end
      of_q = class.base(of_q)
    end
    of_p = class.base(of_p)
  end
end

local function no_formula(p, q)
  errors.raise(("kl_divergence: no formula for %s and %s; see register_kl"):format(
    class.typename(p), class.typename(q)), "E_UNSUPPORTED")
end

--- The Kullback-Leibler divergence: the mean of log_prob of p minus log_prob of q, over samples of
-- p.
kl.kl_divergence = define {
  name = "kl_divergence",
  doc = "The Kullback-Leibler divergence: the mean of log(p / q) over samples of p.",
  examples = "moth.distributions.Normal(0, 1), moth.distributions.Normal(1, 2)",
  args = {{"any", "p", "the distribution whose samples the mean is over"},
           {"any", "q", "the distribution that p is compared with"}},
  run = function(p, q)
    for name, value in pairs {p = p, q = q} do
      if not class.isinstance(value, Distribution) then
        errors.refuse("kl_divergence", name, "a distribution is needed", value, "E_TYPE")
      end
    end
    local both = p.batch_shape and q.batch_shape
    if both and not tools.broadcast_shape(p.batch_shape, q.batch_shape) then
      errors.argument("kl_divergence", "q", ("a batch that broadcasts with %s is needed, got %s")
        :format(tostring(p.batch_shape), tostring(q.batch_shape)), "E_SHAPE")
    end
    local formula = find(p, q) or no_formula
    return (formula(p, q))
  end,
}

local function add(p, q, formula) table.insert(formulas, 1, {p, q, formula}) end

--- Registers a formula(p, q) of kl_divergence for two classes.
kl.register_kl = define {
  name = "register_kl",
  doc = "Registers the formula(p, q) that kl_divergence uses for two classes of distributions.",
  examples = "moth.class('Mine', moth.distributions.Normal), moth.distributions.Laplace, "
    .. "function(p, q) return (p.loc - q.loc):abs() end",
  outputs = "",
  args = {{"any", "type_p", "the class of p"}, {"any", "type_q", "the class of q"},
           {"function", "formula", "called with p and q, returns a tensor"}},
  run = function(type_p, type_q, formula)
    for name, value in pairs {type_p = type_p, type_q = type_q} do
      if not class.isclass(value) or not class.issubclass(value, Distribution) then
        errors.refuse("register_kl", name, "a class of distributions is needed", value, "E_TYPE")
      end
    end
    add(type_p, type_q, formula)
  end,
}

-- ---- formulas ----

local bounded = require "moth.distributions.bounded"
local counts = require "moth.distributions.counts"
local family = require "moth.distributions.family"
local gammas = require "moth.distributions.gammas"
local large = require "moth.distributions.large"
local tails = require "moth.distributions.tails"
local matrices = require "moth.distributions.matrices"
local wide = require "moth.distributions.continuous"
local discrete = require "moth.distributions.discrete"
local several = require "moth.distributions.multivariate"
local wrapped = require "moth.distributions.wrapped"

-- Adds a formula for two distributions of the same class.
local function pair(one, formula) add(one, one, formula) end

local function squares(p_scale, q_scale, apart)
  local ratio = (p_scale / q_scale):square()
  return (ratio + (apart / q_scale):square() - 1 - ratio:log()) * 0.5
end

local function normal(p, q) return (squares(p.scale, q.scale, p.loc - q.loc)) end

pair(wide.Normal, normal)
pair(wide.LogNormal, normal)
pair(wide.HalfNormal, function(p, q)
  return (squares(p.scale, q.scale, ops.zeros_like(p.scale)))
end)

-- Returns terms of two covariances from their Cholesky factors: log |Q| - log |P|, the trace, the
-- squared distance.
local function together(p, q)
  local P, Q, k = p.scale_tril, q.scale_tril, p.loc:size(-1)
  if q.loc:size(-1) ~= k then
    errors.argument("kl_divergence", "q", ("vectors of %d numbers are needed as in p, got %d")
      :format(k, q.loc:size(-1)), "E_SHAPE")
  end
  local ratio = require("moth").linalg.solve_triangular(Q, P, {upper = false})
  return several.log_size(Q) - several.log_size(P)
    + (ratio:square():sum { -2, -1} + several.length(Q, q.loc - p.loc) - k) * 0.5
end
for _, one in ipairs {several.MultivariateNormal, several.LowRankMultivariateNormal} do
  add(one, several.MultivariateNormal, together)
  add(one, several.LowRankMultivariateNormal, together)
end

pair(matrices.Wishart, function(p, q)
  local k = p.event_shape[1]
  if q.event_shape[1] ~= k then
    errors.argument("kl_divergence", "q", ("matrices of %d rows are needed as in p, got %d")
      :format(k, q.event_shape[1]), "E_SHAPE")
  end
  local P, Q, a, b = large.wide(p.scale_tril, q.scale_tril, p.df, q.df)
  a, b = a / 2, b / 2
  local digammas = 0
  for i = 0, k - 1 do digammas = (a - i / 2):digamma() + digammas end
  local moth = require "moth"
  local ratio = moth.linalg.solve_triangular(Q, P, {upper = false})
  local y = (several.log_size(Q) - several.log_size(P)) * b * 2
    + a * (ratio:square():sum { -2, -1} - k) + moth.mvlgamma(b, k) - moth.mvlgamma(a, k)
    + (a - b) * digammas
  return (large.like(y, p.df, q.df, p.scale_tril, q.scale_tril))
end)

pair(wide.Uniform, function(p, q)
  local inside = q.low:le(p.low):logical_and(q.high:ge(p.high))
  return (ops.where(inside, ((q.high - q.low) / (p.high - p.low)):log(), huge))
end)

pair(wide.Exponential, function(p, q)
  local ratio = q.rate / p.rate
  return ratio - 1 - ratio:log()
end)

pair(wide.Laplace, function(p, q)
  local ratio, apart = p.scale / q.scale, (p.loc - q.loc):abs()
  return apart / q.scale + ratio * (-apart / p.scale):exp() - 1 - ratio:log()
end)

pair(wide.Cauchy, function(p, q)
  local a, b, c, d = large.wide(p.scale, q.scale, p.loc, q.loc)
  local y = ops.hypot(a + b, c - d):log() * 2 - a:log() - b:log() - log(4)
  return (large.like(y, p.scale, q.scale, p.loc, q.loc))
end)

pair(wide.Gumbel, function(p, q)
  local ratio, apart = p.scale / q.scale, (p.loc - q.loc) / q.scale
  return apart - ratio:log() + EULER * (ratio - 1) + (ops.lgamma(ratio + 1) - apart):exp() - 1
end)

-- weight * difference; infinite where q's probability is 0, 0 where p's is
local function part(weight, difference, probability)
  local value = ops.where(probability:eq(0), huge, weight * difference)
  return (ops.where(weight:eq(0), 0, value))
end

local function given_of(p)
  local probs = rawget(p, "probs")
  return probs ~= nil and probs or p.logits
end

local function coin(p, q)
  local a = large.shares(rawget(p, "probs"), rawget(p, "logits"))
  local b = large.shares(rawget(q, "probs"), rawget(q, "logits"))
  return large.deviance(a[1], b[1]) + large.deviance(a[2], b[2])
end
pair(discrete.Bernoulli, function(p, q)
  return (large.like(coin(p, q), given_of(p), given_of(q)))
end)

pair(counts.Binomial, function(p, q)
  local more = p.total_count:gt(q.total_count)
  local value = ops.where(more, huge, (large.wide(p.total_count)) * coin(p, q))
  require "moth.capture.tensor_check"(p.total_count:lt(q.total_count), function()
    errors.argument("kl_divergence", "q", "there is no formula if q's total_count is above p's",
      "E_UNSUPPORTED")
  end)
  return (large.like(value, p.total_count, q.total_count, given_of(p), given_of(q)))
end)

add(discrete.Bernoulli, gammas.Poisson, function(p, q)
  return q.rate - p:entropy() - ops.xlogy(p.probs, q.rate)
end)

pair(discrete.Geometric, function(p, q)
  return -p:entropy() - (-q.probs):log1p() / p.probs - q.logits
end)

pair(gammas.Poisson, function(p, q)
  return (large.like(large.deviance(large.wide(p.rate, q.rate)), p.rate, q.rate))
end)

local function gamma(p, q)
  local a, b, mine, other = large.wide(p.concentration, q.concentration, p.rate, q.rate)
  return (large.like(large.gamma_divergence(a, b, other / mine), p.concentration, q.concentration,
    p.rate, q.rate))
end
pair(gammas.Gamma, gamma)
pair(tails.InverseGamma, gamma)

pair(gammas.Dirichlet, function(p, q)
  local a, b = p.concentration, q.concentration
  return (large.like(large.dirichlet_divergence(large.wide(a, b)), a, b))
end)

pair(gammas.Beta, function(p, q)
  local list = {p.concentration1, p.concentration0, q.concentration1, q.concentration0}
  local a, b, c, d = large.wide(unpack(list))
  local y = large.dirichlet_divergence(ops.stack({a, b}, -1), ops.stack({c, d}, -1))
  return (large.like(y, unpack(list)))
end)

local function categorical(p, q)
  return (part(p.probs, p.logits - q.logits, q.probs):sum(-1))
end
pair(discrete.Categorical, categorical)
pair(discrete.OneHotCategorical, categorical)

pair(family.ExponentialFamily, function(p, q)
  if class.of(p) ~= class.of(q) then no_formula(p, q) end
  return (family.divergence(p, q))
end)

pair(tails.HalfCauchy, function(p, q)
  local a, b = large.wide(p.scale, q.scale)
  return (large.like((a + b):log() * 2 - a:log() - b:log() - log(4), p.scale, q.scale))
end)

pair(tails.Pareto, function(p, q)
  local ratio = q.alpha / p.alpha
  local value = q.alpha * (p.scale / q.scale):log() - ratio:log() + ratio - 1
  return (ops.where(p.scale:lt(q.scale), huge, value))
end)

pair(tails.Weibull, function(p, q)
  local a, b = p.concentration, q.concentration
  local apart = p.scale:log() - q.scale:log()
  return a:log() - b:log() - b * apart - (1 - b / a) * EULER
    + (b * apart + (b / a + 1):lgamma()):exp() - 1
end)

-- ---- p and q of different classes: -entropy of p - mean log_prob of q under p ----

local mean_of_log = {
  [gammas.Beta] = function(p)
    return p.concentration1:digamma() - (p.concentration1 + p.concentration0):digamma()
  end,
  [wide.Exponential] = function(p) return -p.rate:log() - EULER end,
  [tails.Pareto] = function(p) return p.scale:log() + p.alpha:reciprocal() end,
  [wide.Uniform] = function(p)
    return (ops.xlogy(p.high, p.high) - ops.xlogy(p.low, p.low)) / (p.high - p.low) - 1
  end,
}

local mean_of_exp = { -- the mean of exp(-x t)
  [wide.Normal] = function(p, t) return ((p.scale * t):square() / 2 - p.loc * t):exp() end,
  [wide.Exponential] = function(p, t) return p.rate / (p.rate + t) end,
  [gammas.Gamma] = function(p, t) return (-p.concentration * (t / p.rate):log1p()):exp() end,
  [wide.Uniform] = function(p, t)
    return ((-p.low * t):exp() - (-p.high * t):exp()) / (t * (p.high - p.low))
  end,
}

local mean_log_prob = { -- the mean log_prob of q under p
  [wide.Normal] = function(p, q)
    local square = p.variance + (p.mean - q.loc):square()
    return square / q.scale:square() * -0.5 - q.scale:log() - 0.5 * log(2 * pi)
  end,
  [wide.Exponential] = function(p, q) return q.rate:log() - q.rate * p.mean end,
  [gammas.Gamma] = function(p, q, of_log)
    local a = q.concentration
    return ops.xlogy(a, q.rate) - a:lgamma() + (a - 1) * of_log(p) - q.rate * p.mean
  end,
  [wide.Gumbel] = function(p, q, _, of_exp)
    local t = q.scale:reciprocal()
    return (q.loc - p.mean) * t - (q.loc * t):exp() * of_exp(p, t) - q.scale:log()
  end,
  [bounded.ContinuousBernoulli] = function(p, q) return (q:_mean_log_prob(p.mean)) end,
  [gammas.Beta] = function(p, q, of_log)
    local a, b = q.concentration1, q.concentration0
    local mirror = {low = 1 - p.high, high = 1 - p.low}
    return (a - 1) * of_log(p) + (b - 1) * of_log(mirror) + (a + b):lgamma() - a:lgamma()
      - b:lgamma()
  end,
  [tails.Pareto] = function(p, q, of_log)
    return q.alpha:log() + ops.xlogy(q.alpha, q.scale) - (q.alpha + 1) * of_log(p)
  end,
  [wide.Uniform] = function(_, q) return -(q.high - q.low):log() end,
}

-- The bounds of a class's samples; classes without a row are unbounded, and have no formula for a
-- bounded q.
local bounds = {
  [wide.Exponential] = function() return 0, huge end,
  [gammas.Gamma] = function() return 0, huge end,
  [bounded.ContinuousBernoulli] = function() return 0, 1 end,
  [gammas.Beta] = function() return 0, 1 end,
  [tails.Pareto] = function(q) return q.scale, huge end,
  [wide.Uniform] = function(q) return q.low, q.high end,
}

-- Returns value, or infinity where p has samples outside of q's support.
local function within(value, p_ends, q_ends, p, q)
  local zero = ops.zeros_like(value)
  local p_low, p_high = p_ends(p)
  local q_low, q_high = q_ends(q)
  local outside = (zero + p_low):lt(q_low):logical_or((zero + p_high):gt(q_high))
  return (ops.where(outside, huge, value))
end

local classes = {
  Beta = gammas.Beta, ContinuousBernoulli = bounded.ContinuousBernoulli,
  Exponential = wide.Exponential, Gamma = gammas.Gamma, Gumbel = wide.Gumbel,
  Laplace = wide.Laplace, Normal = wide.Normal, Pareto = tails.Pareto, Uniform = wide.Uniform,
}

-- Registers a formula for q and each class p of a list.
local function cross(q_name, p_names)
  local q_class = classes[q_name]
  local of_q, q_ends = mean_log_prob[q_class], bounds[q_class]
  for p_name in p_names:gmatch "%a+" do
    local p_class = classes[p_name]
    local p_ends = bounds[p_class]
    add(p_class, q_class, function(p, q)
      local value = -p:entropy() - of_q(p, q, mean_of_log[p_class], mean_of_exp[p_class])
      return q_ends and within(value, p_ends, q_ends, p, q) or value
    end)
  end
end

cross("Normal", "Beta ContinuousBernoulli Exponential Gamma Gumbel Laplace Pareto Uniform")
cross("Exponential", "Beta ContinuousBernoulli Gamma Pareto Uniform")
cross("Gamma", "Beta Exponential Pareto Uniform")
cross("Gumbel", "Exponential Gamma Normal Uniform")
cross("ContinuousBernoulli", "Beta ContinuousBernoulli Uniform")
cross("Beta", "Uniform")
cross("Pareto", "Uniform")
cross("Uniform", "Beta ContinuousBernoulli")

add(wide.Normal, wide.Laplace, function(p, q)
  local z = (p.loc - q.loc) / p.scale
  local apart = (z:square() * -0.5):exp() * math.sqrt(2 / pi) + z * (z * math.sqrt(0.5)):erf()
  return apart * p.scale / q.scale + (q.scale * 2):log() - p:entropy()
end)

-- The formula if p has samples outside of q's support for all parameters.
local function infinite(p, q)
  local shape = tools.broadcast_shape(p.batch_shape, q.batch_shape)
  return (ops.full(shape, huge, p:_like().dtype, p:_like().device))
end

for q_name, p_names in pairs {
  Beta = "Exponential Gamma Gumbel Laplace Normal Pareto",
  ContinuousBernoulli = "Exponential Gamma Gumbel Laplace Normal Pareto",
  Pareto = "Beta ContinuousBernoulli Exponential Gamma Gumbel Laplace Normal",
  Uniform = "Exponential Gamma Gumbel Laplace Normal Pareto",
  Exponential = "Gumbel Laplace Normal", Gamma = "Gumbel Laplace Normal",
} do
  for p_name in p_names:gmatch "%a+" do add(classes[p_name], classes[q_name], infinite) end
end
add(gammas.Poisson, discrete.Bernoulli, infinite)
add(gammas.Poisson, counts.Binomial, infinite)

-- ---- derived distributions ----

pair(wrapped.Independent, function(p, q)
  local n = p.reinterpreted_batch_ndims
  if n ~= q.reinterpreted_batch_ndims then
    errors.argument("kl_divergence", "q", ("%d dimensions are needed as in p, got %d"):format(n,
      q.reinterpreted_batch_ndims), "E_SHAPE")
  end
  return (tools.sum_last(kl.kl_divergence(p.base_dist, q.base_dist), n))
end)

-- Returns true if two transforms are the same object, or of the same class with identical
-- arguments.
local function same_transform(a, b)
  if rawequal(a, b) then return true end
  if getmetatable(a) ~= getmetatable(b) then return false end
  for name, value in pairs(a) do
    local is_cache = type(value) == "function"
    if not is_cache and not rawequal(value, rawget(b, name)) then return false end
  end
  return true
end

pair(wrapped.TransformedDistribution, function(p, q)
  for i = 1, math.max(#p.transforms, #q.transforms) do
    if not same_transform(p.transforms[i], q.transforms[i]) then
      errors.raise("kl_divergence: two distributions through different transforms have no formula; "
        .. "give both the same transforms, or tensors", "E_UNSUPPORTED")
    end
  end
  local more = #p.event_shape - #p.base_dist.event_shape
  return (tools.sum_last(kl.kl_divergence(p.base_dist, q.base_dist), more))
end)

return kl
