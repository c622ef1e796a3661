--- discrete.lua -- distributions of integers: Bernoulli, Geometric, Categorical, OneHotCategorical.
-- Each accepts probs or logits; logits are the arguments of a sigmoid or softmax.

local bind = require "moth.binding.bind"
local constraints = require "moth.distributions.constraints"
local Distribution = require "moth.distributions.distribution"
local lib = require "moth.binding.lib"

local ops, tools = bind.ops, Distribution.tools

local discrete = {}

local function either(name, ...)
  discrete[name] = tools.either(name, ...)
  return discrete[name]
end

-- log(1 + exp(x))
local function softplus(x) return -ops.logsigmoid(-x) end

-- ---- distributions with one probability ----

local ONE = {probs = constraints.unit_interval, logits = constraints.real}

-- The common base of distributions with one probability.
local function single(name, probs, support)
  local new = either(name, probs, "log(probs / (1 - probs))", support)
  function new:init(p, l, validate_args)
    Distribution.init(self, tools.choose(self, p, l).shape, {}, validate_args)
  end
  return tools.of_one(new)
end

--- 1 with probability probs, else 0.
local Bernoulli = single("Bernoulli", "the probability of a 1", ONE)

function Bernoulli._support() return constraints.boolean end
function Bernoulli:_mean() return (self.probs:clone()) end
function Bernoulli:_variance() return self.probs * (1 - self.probs) end

function Bernoulli:_mode()
  local p = self.probs
  return (ops.where(p:eq(0.5), 0 / 0, p:ge(0.5):to(p.dtype)))
end

function Bernoulli:_sample(size) return (ops.bernoulli(self.probs:expand(size))) end

function Bernoulli:log_prob(value)
  value = self:_check(value, "log_prob")
  local logits = self.logits
  return value * logits - softplus(logits)
end

function Bernoulli:entropy()
  local logits = self.logits
  return softplus(logits) - self.probs * logits
end

-- Returns values along a first dimension, repeated for the batch unless `expand` is false.
function discrete.along_first(self, values, expand)
  values = values:reshape(lib.filled(1 + #self.batch_shape, 1, 1, values:size(1)))
  if expand == false then return values end
  return (values:expand(tools.join({values:size(1)}, self.batch_shape)))
end

function Bernoulli:enumerate_support(expand)
  local like = self:_like()
  return (discrete.along_first(self, ops.arange(0, 2, 1, like.dtype, like.device), expand))
end

--- The number of failures before the first success; a success has the probability probs.
local Geometric = single("Geometric", "the probability of a success",
  {probs = constraints.half_open_unit, logits = constraints.real})

function Geometric._support() return constraints.nonnegative_integer end
function Geometric:_mean() return self.probs:reciprocal() - 1 end
function Geometric:_mode() return (ops.zeros_like(self.probs)) end

function Geometric:_variance()
  local p = self.probs
  return (p:reciprocal() - 1) / p
end

function Geometric:_sample(size)
  local time = tools.empty(self:_like(), size):exponential_()
  return (time:div(-(-self.probs):log1p()):floor())
end

function Geometric:log_prob(value)
  value = self:_check(value, "log_prob")
  local p = self.probs
  local fails = ops.where(value:eq(0):logical_and(p:eq(1)), 0, p)
  return value * (-fails):log1p() + p:log()
end

function Geometric:entropy()
  local logits, p = self.logits, self.probs
  return (softplus(logits) - p * logits) / p
end

-- ---- several categories ----

local SEVERAL = tools.SEVERAL

local function several(name)
  return tools.of_several(either(name, tools.WEIGHTS, tools.LOGITS, SEVERAL))
end

--- A position from 1 to n, with the probabilities probs.
local Categorical = several("Categorical")

function Categorical:init(probs, logits, validate_args)
  tools.init_several(self, probs, logits, validate_args, false)
end

-- The number of categories.
local function choices(self) return (self:_like():size(-1)) end

function Categorical:_support() return (constraints.positions(choices(self))) end
function Categorical:_mode() return (self:_like():argmax(-1)) end

local function nothing(self)
  local like = self:_like()
  return (ops.full(self.batch_shape, 0 / 0, like.dtype, like.device))
end
Categorical._mean, Categorical._variance = nothing, nothing

function Categorical:_sample(size, shape)
  local n = shape:numel()
  if size:numel() == 0 then
    return (ops.empty(size, require("moth").int64, self:_like().device))
  end
  local rows = self.probs:reshape(-1, choices(self))
  return (ops.multinomial(rows, n, true):t():reshape(size))
end

function Categorical:log_prob(value)
  value = self:_check(value, "log_prob")
  local shape = tools.broadcast_shape(value.shape, self.batch_shape) or self.batch_shape
  local at = value:long():expand(shape):unsqueeze(-1)
  local logits = self.logits:expand(tools.join(shape, {choices(self)}))
  return (logits:gather(-1, at):squeeze(-1))
end

-- Categories of probability 0 contribute 0, though their logits may be infinite. `logits` computed
-- from probs are finite; they define the gradient of p log p at 0.
function Categorical:entropy()
  local logits, probs = self.logits, self.probs
  return -(ops.where(logits:eq(-math.huge), 0, logits) * probs):sum(-1)
end

function Categorical:enumerate_support(expand)
  local values = ops.arange(1, choices(self) + 1, 1, require("moth").int64, self:_like().device)
  return (discrete.along_first(self, values, expand))
end

--- One-hot vectors of the positions of a Categorical.
local OneHotCategorical = several("OneHotCategorical")

function OneHotCategorical:init(probs, logits, validate_args)
  tools.init_several(self, probs, logits, validate_args, true)
end

-- Returns the distribution of the positions.
function OneHotCategorical:_positions()
  return (Categorical(rawget(self, "probs"), rawget(self, "logits"), false))
end

-- Converts positions to one-hot vectors.
local function vectors(self, at) return (ops.one_hot(at, choices(self)):to(self:_like().dtype)) end

function OneHotCategorical._support() return constraints.one_hot end
function OneHotCategorical:_mean() return (self.probs:clone()) end
function OneHotCategorical:_mode() return (vectors(self, self:_like():argmax(-1))) end
function OneHotCategorical:_variance() return self.probs * (1 - self.probs) end

function OneHotCategorical:_sample(_, shape)
  return (vectors(self, self:_positions():sample(shape)))
end

function OneHotCategorical:log_prob(value)
  value = self:_check(value, "log_prob")
  return (self:_positions():log_prob(value:argmax(-1)))
end

function OneHotCategorical:entropy() return (self:_positions():entropy()) end

function OneHotCategorical:enumerate_support(expand)
  return (vectors(self, self:_positions():enumerate_support(expand)))
end


return discrete
