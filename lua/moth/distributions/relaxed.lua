--- relaxed.lua -- differentiable relaxations of discrete distributions: RelaxedBernoulli,
-- RelaxedOneHotCategorical, OneHotCategoricalStraightThrough; and LogisticNormal.
--
-- A sample is a sigmoid or softmax of the logits plus Gumbel noise, divided by a temperature
-- (Maddison, Mnih and Teh, "The concrete distribution", 2016; Jang, Gu and Poole, "Categorical
-- reparameterization", 2016).

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local constraints = require "moth.distributions.constraints"
local continuous = require "moth.distributions.continuous"
local define = require "moth.binding.define"
local discrete = require "moth.distributions.discrete"
local Distribution = require "moth.distributions.distribution"
local vectors = require "moth.distributions.vectors"
local wrapped = require "moth.distributions.wrapped"

local ops, tools = bind.ops, Distribution.tools
local relaxed = {}

local TEMPERATURE = tools.number("temperature", "near 0 the samples are almost 0 or 1")

--- Numbers between 0 and 1 that approximate Bernoulli's samples: the lower the temperature, the
-- closer to 0 and 1.
local RelaxedBernoulli = tools.of_one(tools.either("RelaxedBernoulli", "the probability of a 1",
  "log(probs / (1 - probs))", {temperature = constraints.positive,
    probs = constraints.unit_interval, logits = constraints.real}, {TEMPERATURE}))
relaxed.RelaxedBernoulli = RelaxedBernoulli
RelaxedBernoulli.has_rsample = true

function RelaxedBernoulli:init(temperature, probs, logits, validate_args)
  local x = tools.choose(self, probs, logits, "temperature", temperature)
  Distribution.init(self, x.shape, {}, validate_args)
end

function RelaxedBernoulli._support() return constraints.unit_interval end

function RelaxedBernoulli:_rsample(size)
  local like = self:_like()
  local u = tools.clamped(tools.empty(like, size):uniform_())
  local y = (self.logits + u:log() - (-u):log1p()) / self.temperature
  return (tools.clamped(y:sigmoid()))
end

function RelaxedBernoulli:log_prob(value)
  value = tools.clamped(self:_check(value, "log_prob"))
  local y = value:log() - (-value):log1p()
  local off = self.logits - y * self.temperature
  return self.temperature:log() + off + 2 * ops.logsigmoid(-off) - value:log() - (-value):log1p()
end

--- Probability vectors that approximate OneHotCategorical's one-hot vectors.
local RelaxedOneHot = tools.of_several(tools.either("RelaxedOneHotCategorical", tools.WEIGHTS,
  tools.LOGITS, tools.SEVERAL, {TEMPERATURE}))
relaxed.RelaxedOneHotCategorical = RelaxedOneHot
RelaxedOneHot.has_rsample = true

function RelaxedOneHot:init(temperature, probs, logits, validate_args)
  tools.init_several(self, probs, logits, validate_args, true)
  local like = self:_like()
  self.temperature = type(temperature) == "number"
    and ops.full({}, temperature, like.dtype, like.device) or temperature
  if self.validate_args then
    tools.enforce("RelaxedOneHotCategorical", "temperature", self.temperature, constraints.positive)
  end
end

function RelaxedOneHot._support() return constraints.simplex end

function RelaxedOneHot:_rsample(size)
  local noise = -tools.empty(self:_like(), size):exponential_():log()
  return (((self.logits + noise) / self.temperature):softmax(-1))
end

function RelaxedOneHot:log_prob(value)
  value = self:_check(value, "log_prob")
  local k, t, x = self.event_shape[1], self.temperature, value:log()
  local score = (self.logits - x * t):log_softmax(-1)
  return (score - x):sum(-1) + t:log() * (k - 1) + ops.lgamma(ops.full_like(t, k))
end

--- OneHotCategorical whose rsample passes gradients to the probabilities (straight-through).
local StraightThrough = class("OneHotCategoricalStraightThrough", discrete.OneHotCategorical)
relaxed.OneHotCategoricalStraightThrough = StraightThrough
StraightThrough.has_rsample = true

function StraightThrough:_rsample(_, shape)
  local probs = self.probs
  return self:sample(shape) + (probs - probs:detach())
end

--- Probability vectors of K elements: StickBreakingTransform of normal vectors of K - 1 elements.
local LogisticNormal = class("LogisticNormal", wrapped.TransformedDistribution)
relaxed.LogisticNormal = LogisticNormal
LogisticNormal.arg_constraints = {loc = constraints.real_vector,
                                   scale = constraints.independent(constraints.positive, 1)}
LogisticNormal.signature = define.signature("LogisticNormal", {
  tools.number("loc", "the means before the transform, (..., K - 1)"),
  tools.number("scale", "the standard deviations before the transform"), tools.VALIDATE})

function LogisticNormal:init(loc, scale, validate_args)
  local base = continuous.Normal(loc, scale, validate_args)
  if #base.batch_shape == 0 then base = base:expand(1) end
  self.loc, self.scale = base.loc, base.scale
  wrapped.TransformedDistribution.init(self, base, vectors.StickBreakingTransform(),
    validate_args)
end

return relaxed
