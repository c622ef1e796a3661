--- counts.lua -- distributions of counts: Binomial, NegativeBinomial, Multinomial.

local bind = require "moth.bind"
local constraints = require "moth.distributions.constraints"
local discrete = require "moth.distributions.discrete"
local Distribution = require "moth.distributions.distribution"
local errors = require "moth.error"
local lib = require "moth.lib"

local ops, tools = bind.ops, Distribution.tools
local M = {}

-- ---- of one probability ----

local function single(name, count, probs, support)
  support.logits = constraints.real
  local new = tools.of_one(tools.either(name, probs,
    "its logarithm less that of the opposite", support, { count }))
  M[name] = new
  function new:init(total_count, p, l, validate_args)
    local x = tools.choose(self, p, l, "total_count", total_count)
    Distribution.init(self, x.shape, {}, validate_args)
  end
  return new
end

--- How many of `total_count` trials succeed.
local Binomial = single("Binomial", tools.number("total_count", "how many trials", { default = 1 }),
  "the probability of each to succeed",
  { total_count = constraints.nonnegative_integer, probs = constraints.unit_interval })

function Binomial:_support() return (constraints.integer_interval(0, self.total_count)) end
function Binomial:_mean() return self.total_count * self.probs end
function Binomial:_variance() return self.mean * (1 - self.probs) end

function Binomial:_mode()
  return (((self.total_count + 1) * self.probs):floor():minimum(self.total_count))
end

function Binomial:_sample(size)
  return (require("moth").binomial(self.total_count:expand(size), self.probs:expand(size)))
end

-- log n! less those of the count and the rest
local function ways(n, value) return (n + 1):lgamma() - (value + 1):lgamma()
  - (n - value + 1):lgamma() end

function Binomial:log_prob(value)
  value = self:_check(value, "log_prob")
  local n, logits = self.total_count, self.logits
  return ways(n, value) + value * logits + n * ops.logsigmoid(-logits)
end

-- All counts along a first dimension, of batches that have one total_count.
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
  return -(each:exp() * each):sum(1)
end

--- How many trials succeed before `total_count` fail.
local NegativeBinomial = single("NegativeBinomial",
  tools.number("total_count", "how many failures to stop at, from 0 on, not only whole numbers"),
  "the probability of each trial to succeed",
  { total_count = constraints.nonnegative, probs = constraints.half_open_interval(0, 1) })

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
  local n, logits = self.total_count, self.logits
  local certain = (n + value):eq(0) -- that nothing succeeds before nothing fails
  local choice = (n + value):lgamma() - (value + 1):lgamma() - n:lgamma()
  return n * ops.logsigmoid(-logits) + value * ops.logsigmoid(logits)
    + ops.where(certain, 0, choice)
end

-- ---- of several ----

--- How often each of several categories comes in `total_count` draws.
local Multinomial = tools.of_several(tools.either("Multinomial", tools.WEIGHTS, tools.LOGITS,
  tools.SEVERAL, { { "int", "total_count", "how many draws, a number", default = 1 } }))
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
  local drawn = positions:sample(tools.join({ self.total_count }, shape)):movedim(1, -1)
  return (y:scatter_add_(-1, drawn, ops.ones_like(drawn, { dtype = y.dtype })))
end

function Multinomial:log_prob(value)
  value = self:_check(value, "log_prob")
  local impossible = value:eq(0):logical_and(self.logits:eq(-math.huge))
  local powers = value * ops.where(impossible, 0, self.logits)
  return (value:sum(-1) + 1):lgamma() - (value + 1):lgamma():sum(-1) + powers:sum(-1)
end

function Multinomial:entropy()
  local n, probs = self.total_count, self.probs
  local each = discrete.Categorical(probs, nil, false):entropy() * n
  local at = ops.arange(0, n + 1, 1, probs.dtype, probs.device)
  at = at:reshape(lib.filled(1 + probs:dim(), 1, 1, n + 1))
  local chance = Binomial(n, probs, nil, false):log_prob(at):exp()
  local spread = (chance * (at + 1):lgamma()):sum(1):sum(-1)
  return each - ops.full_like(spread, n + 1):lgamma() + spread
end

return M
