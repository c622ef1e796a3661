--- counts.lua -- distributions of counts: Binomial, NegativeBinomial, Multinomial.

local bind = require "moth.binding.bind"
local constraints = require "moth.distributions.constraints"
local discrete = require "moth.distributions.discrete"
local Distribution = require "moth.distributions.distribution"
local errors = require "moth.error"
local large = require "moth.distributions.large"
local lib = require "moth.binding.lib"

local ops, tools = bind.ops, Distribution.tools
local M = {}

-- ---- distributions with one probability ----

local function single(name, count, probs, support)
  support.logits = constraints.real
  local new = tools.of_one(tools.either(name, probs,
    "log(probs / (1 - probs))", support, {count}))
  M[name] = new
  function new:init(total_count, p, l, validate_args)
    local x = tools.choose(self, p, l, "total_count", total_count)
    Distribution.init(self, x.shape, {}, validate_args)
  end
  return new
end

--- The number of successes in `total_count` trials.
local Binomial = single("Binomial",
  tools.number("total_count", "the number of trials", {default = 1}),
  "the success probability of a trial",
  {total_count = constraints.nonnegative_integer, probs = constraints.unit_interval})

function Binomial:_support() return (constraints.integer_interval(0, self.total_count)) end
function Binomial:_mean() return self.total_count * self.probs end
function Binomial:_variance() return self.mean * (1 - self.probs) end

function Binomial:_mode()
  return (((self.total_count + 1) * self.probs):floor():minimum(self.total_count))
end

function Binomial:_sample(size)
  return (require("moth").binomial(self.total_count:expand(size), self.probs:expand(size)))
end

-- Returns probabilities from the given field: probs are exact, while logits computed from them
-- would be rounded.
local function shares_of(self)
  return (large.shares(rawget(self, "probs"), rawget(self, "logits")))
end

local function given_of(self)
  local probs = rawget(self, "probs")
  return probs ~= nil and probs or self.logits
end

function Binomial:log_prob(value)
  value = self:_check(value, "log_prob")
  local n, x = large.wide(self.total_count, value)
  local y = large.choices(x, n - x, shares_of(self))
  return (large.like(y, self.total_count, given_of(self), value))
end

-- Returns all counts along a first dimension, for batches with a single total_count.
local function counts(self, expand)
  local n = self.total_count
  if n:numel() == 0 then errors.raise("Binomial: the batch is empty", "E_SHAPE") end
  local most = n:max():item()
  if n:min():item() ~= most then
    errors.raise("Binomial: values can be listed, and entropy computed, where all of total_count "
      .. "is one number", "E_UNSUPPORTED")
  end
  return (discrete.along_first(self, ops.arange(0, most + 1, 1, n.dtype, n.device), expand))
end

function Binomial:enumerate_support(expand) return (counts(self, expand)) end

function Binomial:entropy()
  local each = self:log_prob(counts(self, false))
  return -(each:exp() * ops.where(each:eq(-math.huge), 0, each)):sum(1)
end

--- The number of successes before `total_count` failures.
local NegativeBinomial = single("NegativeBinomial",
  tools.number("total_count", "the number of failures at the end, from 0 on; may be fractional"),
  "the probability of each trial to succeed",
  {total_count = constraints.nonnegative, probs = constraints.half_open_interval(0, 1)})

function NegativeBinomial._support() return constraints.nonnegative_integer end
function NegativeBinomial:_mean() return self.total_count * self.logits:exp() end
function NegativeBinomial:_variance() return self.mean / (-self.logits):sigmoid() end

function NegativeBinomial:_mode()
  return (((self.total_count - 1) * self.logits:exp()):floor():clamp(0))
end

function NegativeBinomial:_sample(size)
  local rate = ops.standard_gamma(self.total_count:expand(size)) * self.logits:exp()
  return (ops.poisson(ops.where(self.total_count:eq(0), 0, rate)))
end

function NegativeBinomial:log_prob(value)
  value = self:_check(value, "log_prob")
  local n, x = large.wide(self.total_count, value)
  local certain = (n + x):eq(0) -- 0 successes and 0 failures have probability 1
  local fails = ops.where(certain, 1, n)
  local y = large.choices(x, n, shares_of(self)) + (fails / (fails + x)):log()
  return (large.like(y, self.total_count, given_of(self), value))
end

-- ---- several categories ----

--- The number of draws of each category in `total_count` draws.
local Multinomial = tools.of_several(tools.either("Multinomial", tools.WEIGHTS, tools.LOGITS,
  tools.SEVERAL, {{"int", "total_count", "the number of draws", default = 1}}))
M.Multinomial = Multinomial

function Multinomial:init(total_count, probs, logits, validate_args)
  if total_count < 0 then
    errors.argument("Multinomial", "total_count", "a number from 0 on is needed, got "
      .. total_count, "E_DOMAIN")
  end
  self.total_count = total_count
  tools.init_several(self, probs, logits, validate_args, true)
end

function Multinomial:_support() return (constraints.multinomial(self.total_count)) end
function Multinomial:_mean() return self.probs * self.total_count end
function Multinomial:_variance() return self.mean * (1 - self.probs) end

function Multinomial:_sample(size, shape)
  local y = tools.empty(self:_like(), size):zero_()
  if self.total_count == 0 or y:numel() == 0 then return y end
  local positions = discrete.Categorical(rawget(self, "probs"), rawget(self, "logits"), false)
  local drawn = positions:sample(tools.join({self.total_count}, shape)):movedim(1, -1)
  return (y:scatter_add_(-1, drawn, ops.ones_like(drawn, {dtype = y.dtype})))
end

function Multinomial:log_prob(value)
  value = self:_check(value, "log_prob")
  local given, x = given_of(self), (large.wide(value))
  local p = (large.wide(given))
  if rawget(self, "probs") == nil then p = p:softmax(-1) else p = p / p:sum(-1, true) end
  local n = x:sum(-1, true)
  local y = large.count(x, n * p):sum(-1) - large.count(n, n):squeeze(-1)
  return (large.like(y, given, value))
end

function Multinomial:entropy()
  local n, probs = self.total_count, self.probs
  local p = (large.wide(probs))
  local each = discrete.Categorical(p, nil, false):entropy() * n
  local at = ops.arange(0, n + 1, 1, p.dtype, p.device)
  at = at:reshape(lib.filled(1 + p:dim(), 1, 1, n + 1))
  local probability = Binomial(n, p, nil, false):log_prob(at):exp()
  local expected = (probability * (at + 1):lgamma()):sum(1):sum(-1)
  return (large.like(each - ops.full_like(expected, n + 1):lgamma() + expected, probs))
end

return M
