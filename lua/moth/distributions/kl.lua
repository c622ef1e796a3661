--- kl.lua -- kl_divergence of two distributions: a formula for each pair of classes.

local bind = require "moth.bind"
local class = require "moth.class"
local define = require "moth.define"
local Distribution = require "moth.distributions.distribution"
local errors = require "moth.error"

local ops, tools = bind.ops, Distribution.tools
local huge, log, pi = math.huge, math.log, math.pi
local EULER = 0.57721566490153286061

local M = {}
local formulas = {} -- list of {class of p, class of q, function}, what came last first

-- The formula of the nearest classes: p's own before its base's.
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

--- How much log_prob of p exceeds that of q on average where p draws: 0 where both are the same.
M.kl_divergence = define {
  name = "kl_divergence",
  doc = "How much the log_prob of p exceeds that of q on average in what p draws.",
  examples = "moth.distributions.Normal(0, 1), moth.distributions.Normal(1, 2)",
  args = { { "any", "p", "what draws, a distribution" },
           { "any", "q", "what is compared with it, a distribution" } },
  run = function(p, q)
    for name, value in pairs { p = p, q = q } do
      if not class.isinstance(value, Distribution) then
        errors.argument("kl_divergence", name, "a distribution is needed, got "
          .. errors.describe(value), "E_TYPE")
      end
    end
    local formula = find(p, q)
    if not formula then
      errors.raise(("kl_divergence: no formula for %s and %s; see register_kl"):format(
        class.typename(p), class.typename(q)), "E_UNSUPPORTED")
    end
    return (formula(p, q))
  end,
}

local function add(p, q, formula) table.insert(formulas, 1, { p, q, formula }) end

--- Tells kl_divergence of a formula(p, q) for two classes.
M.register_kl = define {
  name = "register_kl",
  doc = "Tells kl_divergence of a formula(p, q) for two classes of distributions.",
  examples = "moth.class('Mine', moth.distributions.Normal), moth.distributions.Laplace, "
    .. "function(p, q) return (p.loc - q.loc):abs() end",
  outputs = "",
  args = { { "any", "type_p", "the class of p" }, { "any", "type_q", "the class of q" },
           { "function", "formula", "called with p and q, gives a tensor" } },
  run = function(type_p, type_q, formula)
    for name, value in pairs { type_p = type_p, type_q = type_q } do
      if not class.isclass(value) or not class.issubclass(value, Distribution) then
        errors.argument("register_kl", name, "a class of distributions is needed, got "
          .. errors.describe(value), "E_TYPE")
      end
    end
    add(type_p, type_q, formula)
  end,
}

-- ---- formulas ----

local gammas = require "moth.distributions.gammas"
local wide = require "moth.distributions.continuous"
local whole = require "moth.distributions.discrete"
local several = require "moth.distributions.multivariate"
local wrapped = require "moth.distributions.wrapped"

-- Of two distributions of one class.
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

pair(several.MultivariateNormal, several.divergence)

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
  local sum = (p.scale + q.scale):square() + (p.loc - q.loc):square()
  return sum:log() - (p.scale * q.scale * 4):log()
end)

pair(wide.Gumbel, function(p, q)
  local ratio, apart = p.scale / q.scale, (p.loc - q.loc) / q.scale
  return apart - ratio:log() + EULER * (ratio - 1) + (ops.lgamma(ratio + 1) - apart):exp() - 1
end)

add(wide.Uniform, wide.Normal, function(p, q)
  local width, apart = p.high - p.low, (p.high + p.low) * 0.5 - q.loc
  local spread = (width:square() / 12 + apart:square()) / q.scale:square()
  return (q.scale / width):log() + (spread + log(2 * pi)) * 0.5
end)

add(wide.Laplace, wide.Normal, function(p, q)
  local ratio = (p.scale / q.scale):square()
  return ratio - (ratio * (2 / pi)):log() * 0.5 + ((p.loc - q.loc) / q.scale):square() * 0.5 - 1
end)

-- weight * difference, infinite where q has no chance, 0 where p has none
local function part(weight, difference, chance)
  local value = ops.where(chance:eq(0), huge, weight * difference)
  return (ops.where(weight:eq(0), 0, value))
end

pair(whole.Bernoulli, function(p, q)
  local a, b = p.logits, q.logits
  local ones = part(p.probs, ops.logsigmoid(a) - ops.logsigmoid(b), q.probs)
  return ones + part(1 - p.probs, ops.logsigmoid(-a) - ops.logsigmoid(-b), 1 - q.probs)
end)

pair(whole.Geometric, function(p, q)
  return -p:entropy() - (-q.probs):log1p() / p.probs - q.logits
end)

-- A mean number of nothing is certain: 0 log 0 is 0.
pair(gammas.Poisson, function(p, q)
  return ops.xlogy(p.rate, p.rate) - ops.xlogy(p.rate, q.rate) - p.rate + q.rate
end)

pair(gammas.Gamma, function(p, q)
  local a, b = p.concentration, q.concentration
  return b * (p.rate / q.rate):log() + b:lgamma() - a:lgamma() + (a - b) * a:digamma()
    + a * (q.rate / p.rate - 1)
end)

-- Of shares, the categories in the last dimension.
local function shares(a, b)
  local total = a:sum(-1, { keepdim = true })
  local each = b:lgamma() - a:lgamma() + (a - b) * (a:digamma() - total:digamma())
  return total:squeeze(-1):lgamma() - b:sum(-1):lgamma() + each:sum(-1)
end

pair(gammas.Dirichlet, function(p, q) return shares(p.concentration, q.concentration) end)

pair(gammas.Beta, function(p, q)
  local a = ops.stack({ p.concentration1, p.concentration0 }, -1)
  return shares(a, ops.stack({ q.concentration1, q.concentration0 }, -1))
end)

add(gammas.Beta, gammas.Gamma, function(p, q)
  local a, total, b = p.concentration1, p.concentration1 + p.concentration0, q.concentration
  return b:lgamma() - ops.xlogy(b, q.rate) - (b - 1) * (a:digamma() - total:digamma())
    + q.rate * p.mean - p:entropy()
end)

local function categorical(p, q)
  return (part(p.probs, p.logits - q.logits, q.probs):sum(-1))
end
pair(whole.Categorical, categorical)
pair(whole.OneHotCategorical, categorical)

pair(wrapped.Independent, function(p, q)
  local n = p.reinterpreted_batch_ndims
  if n ~= q.reinterpreted_batch_ndims then
    errors.argument("kl_divergence", "q", ("%d dimensions are needed as in p, got %d"):format(n,
      q.reinterpreted_batch_ndims), "E_SHAPE")
  end
  return (tools.sum_last(M.kl_divergence(p.base_dist, q.base_dist), n))
end)

pair(wrapped.TransformedDistribution, function(p, q)
  for i = 1, math.max(#p.transforms, #q.transforms) do
    if p.transforms[i] ~= q.transforms[i] then
      errors.raise("kl_divergence: two distributions through different transforms have no formula; "
        .. "give both the same objects", "E_UNSUPPORTED")
    end
  end
  local more = #p.event_shape - #p.base_dist.event_shape
  return (tools.sum_last(M.kl_divergence(p.base_dist, q.base_dist), more))
end)

return M
