--- large.lua -- differences of log gamma functions for log_prob and entropy, without cancellation
-- for large arguments, computed in float64.
--
-- log Gamma(x) is x log x - x plus a remainder, which Stirling's series approximates for x from 10
-- on. The large parts of several terms are combined analytically (Loader, "Fast and accurate
-- computation of binomial probabilities", 2000). Arguments are float64 tensors unless stated
-- otherwise.

local bind = require "moth.binding.bind"
local lib = require "moth.binding.lib"

local ops = bind.ops
local huge, log, pi = math.huge, math.log, math.pi
local HALF_LOG_2PI = 0.5 * log(2 * pi)
local FROM = 10 -- the series is used for x from this value on

local M = {}

-- ---- dtypes ----

--- Converts tensors of any dtype to float64.
function M.wide(...)
  local list, double = {...}, require("moth").float64
  for i, x in ipairs(list) do list[i] = x.dtype == double and x or x:to(double) end
  return unpack(list)
end

--- Converts a result to the promoted dtype of the tensors among the arguments.
function M.like(y, first, ...)
  for i = 1, select("#", ...) do
    local x = select(i, ...)
    if x.dtype ~= first.dtype then first = first + x end
  end
  return y.dtype == first.dtype and y or y:to(first.dtype)
end

-- ---- one gamma function ----

-- The remainder of log Gamma(x) after (x - 1/2) log x - x + log(2 pi) / 2, for x from FROM on.
local function rest(x)
  local r = x:reciprocal()
  local s = r:square()
  return r * (((((s * (-691 / 360360) + 1 / 1188) * s - 1 / 1680) * s + 1 / 1260) * s - 1 / 360)
    * s + 1 / 12)
end

-- The derivative of the remainder.
local function rest_derivative(x)
  local s = x:square():reciprocal()
  return s * ((((((s * (-1 / 12) + 691 / 32760) * s - 1 / 132) * s + 1 / 240) * s - 1 / 252)
    * s + 1 / 120) * s - 1 / 12)
end

-- Returns a mask of large x; or NEAR if none is large, FAR if all are. On a GPU, where reading
-- would synchronize, and in a captured step it always returns the mask.
local NEAR, FAR = "near", "far"

local function side_of(x)
  local far = x:ge(FROM)
  if lib.capture or x.device.type ~= "cpu" then return far end
  local n = far:sum():item()
  return n == 0 and NEAR or n == far:numel() and FAR or far
end

-- Returns x where it is large (or where it is not large); elsewhere a harmless constant.
local function if_far(far, x, other)
  return type(far) == "string" and x or ops.where(far, x, other)
end

local function if_near(far, x, other)
  return type(far) == "string" and x or ops.where(far, other, x)
end

-- Returns large() for large x, small() elsewhere. Each function gets only arguments of its range:
-- other arguments could have infinite gradients.
local function choose(far, small, large)
  if type(far) ~= "string" then return (ops.where(far, large(), small())) end
  if far == NEAR then return (small()) end
  return (large())
end

local function split(x, small, large)
  local far = side_of(x)
  return (choose(far, function() return small(if_near(far, x, 1)) end,
    function() return large(if_far(far, x, FROM)) end))
end

--- log Gamma(x) - x log x + x.
function M.lgamma_rest(x)
  return (split(x, function(v) return v:lgamma() - v * v:log() + v end,
    function(v) return rest(v) - v:log() * 0.5 + HALF_LOG_2PI end))
end

--- digamma(x) - log x.
function M.digamma_rest(x)
  return (split(x, function(v) return v:digamma() - v:log() end,
    function(v) return rest_derivative(v) - v:reciprocal() * 0.5 end))
end

--- log Gamma(a + k) - log Gamma(a).
function M.lgamma_step(a, k)
  local far = side_of(a)
  return (choose(far, function()
    local b = if_near(far, a, 1)
    return (b + if_near(far, k, 0)):lgamma() - b:lgamma()
  end, function()
    local b = if_far(far, a, FROM)
    return (b - 0.5) * (k / b):log1p() + k * (b + k):log() - k + rest(b + k) - rest(b)
  end))
end

--- log Gamma(a + 1/2) - log Gamma(a) - log(a) / 2.
function M.lgamma_half_step(a)
  return (split(a, function(v) return (v + 0.5):lgamma() - v:lgamma() - v:log() * 0.5 end,
    function(v) return v * (0.5 / v):log1p() - 0.5 + rest(v + 0.5) - rest(v) end))
end

-- ---- counts ----

--- x log(x / m) - x + m, for x and m from 0 on.
function M.deviance(x, m)
  local none, never = x:eq(0), m:eq(0)
  local either = none:logical_or(never)
  local a, b = ops.where(either, 1, x), ops.where(either, 1, m)
  local u = (a - b) / b
  local near = u:abs():lt(0.01)
  local t = ops.where(near, u, 0)
  local series = 0
  for k = 9, 2, -1 do series = t * series + (k % 2 == 0 and 1 or -1) / (k * (k - 1)) end
  local c = ops.where(near, 2, a)
  local d = ops.where(near, 1, b)
  local y = ops.where(near, b * t:square() * series, c * (c / d):log() - (c - d))
  return (ops.where(none, m, ops.where(never, huge, y)))
end

--- x log y, given log y: 0 if x is 0.
local function times_log(x, log_y) return x * ops.where(x:eq(0), 0, log_y) end

--- log y, -inf at 0 without an infinite gradient.
local function safe_log(y)
  local none = y:eq(0)
  return (ops.where(none, -huge, ops.where(none, 1, y):log()))
end

-- x log m - m - log Gamma(x + 1), for x from FROM on.
local function count_large(x, m)
  return -(M.deviance(x, m) + rest(x) + x:log() * 0.5) - HALF_LOG_2PI
end

--- The log probability of x in a Poisson distribution of mean m.
function M.count(x, m)
  local far = side_of(x)
  return (choose(far, function()
    local few = if_near(far, x, 0)
    return times_log(few, safe_log(m)) - m - (few + 1):lgamma()
  end, function() return count_large(if_far(far, x, FROM), m) end))
end

--- Returns p, 1 - p and their logarithms, from probs or logits; the other argument is nil.
function M.shares(probs, logits)
  if probs ~= nil then
    local p = (M.wide(probs))
    local sure = p:eq(1)
    return {p, 1 - p, safe_log(p),
             ops.where(sure, -huge, (-ops.where(sure, 0, p)):log1p())}
  end
  local l = (M.wide(logits))
  return {l:sigmoid(), (-l):sigmoid(), ops.logsigmoid(l), ops.logsigmoid(-l)}
end

-- choices() for x and y from FROM on; n is their sum.
local function choices_large(x, y, p, q)
  local n = x + y
  return rest(n) - rest(x) - rest(y) - M.deviance(x, n * p) - M.deviance(y, n * q)
    + (n / x / y):log() * 0.5 - HALF_LOG_2PI
end

--- log of Gamma(x + y + 1) / (Gamma(x + 1) Gamma(y + 1)) p^x q^y, for x and y from 0 on.
-- @param shares  the result of M.shares
function M.choices(x, y, shares)
  local p, q, log_p, log_q = unpack(shares)
  local least, most = ops.minimum(x, y), ops.maximum(x, y)
  local far = side_of(least)
  return (choose(far, function()
    local few = if_near(far, least, 0)
    return times_log(x, log_p) + times_log(y, log_q) + M.lgamma_step(most + 1, few)
      - (few + 1):lgamma()
  end, function() return choices_large(if_far(far, x, FROM), if_far(far, y, FROM), p, q) end))
end

-- ---- densities ----

--- The log density of v in a gamma distribution.
function M.gamma(a, rate, v)
  local far = side_of(a)
  return (choose(far, function()
    local b = if_near(far, a, 1)
    return ops.xlogy(b, rate) + ops.xlogy(b - 1, v) - rate * v - b:lgamma()
  end, function()
    local b, none = if_far(far, a, FROM), v:eq(0)
    local w = ops.where(none, 1, v)
    return (ops.where(none, -huge, count_large(b, rate * w) + (b / w):log()))
  end))
end

--- The logarithm of x^(a - 1) (1 - x)^(b - 1) over Euler's beta function of a and b.
-- @param y  1 - x
function M.beta(a, b, x, y)
  local least, most = ops.minimum(a, b), ops.maximum(a, b)
  local far = side_of(least)
  return (choose(far, function()
    local few = if_near(far, least, 1)
    return ops.xlogy(a - 1, x) + ops.xlogy(b - 1, y) + M.lgamma_step(most, few) - few:lgamma()
  end, function()
    local c, d = if_far(far, a, FROM), if_far(far, b, FROM)
    local none = x:eq(0):logical_or(y:eq(0))
    local p, q = ops.where(none, 0.5, x), ops.where(none, 0.5, y)
    local large = choices_large(c, d, p, q) + (c / (c + d) * d):log() - p:log() - q:log()
    return (ops.where(none, -huge, large))
  end))
end

--- The log density of a Dirichlet distribution; components are along the last dimension.
function M.dirichlet(a, x)
  local total = a:sum(-1, {keepdim = true})
  local far, all = side_of(a), total:squeeze(-1)
  local each = choose(far, function()
    local few = if_near(far, a, 1)
    return ops.xlogy(few - 1, x) + few * total:log() - total * x - few:lgamma()
  end, function()
    local many, none = if_far(far, a, FROM), x:eq(0)
    local w = ops.where(none, 1, x)
    return (ops.where(none, -huge, count_large(many, total * w) + (many / w):log()))
  end)
  return each:sum(-1) + M.lgamma_rest(all) + all * (x:sum(-1) - 1)
end

--- log(1 + z^2), even if z^2 overflows; for any dtype.
function M.log1p_square(z)
  local far = z:abs():gt(1e8)
  return (ops.where(far, ops.where(far, z, 1):abs():log() * 2,
    ops.where(far, 0, z):square():log1p()))
end

-- ---- entropies and divergences ----

--- The entropy of a gamma distribution of rate 1.
function M.gamma_entropy(a)
  return M.lgamma_rest(a) + (1 - a) * M.digamma_rest(a) + a:log()
end

--- The entropy of a Dirichlet distribution; concentrations are along the last dimension.
function M.dirichlet_entropy(a)
  local total, k = a:sum(-1), a:size(-1)
  local each = M.lgamma_rest(a) + a:log() - (a - 1) * M.digamma_rest(a)
  return each:sum(-1) - M.lgamma_rest(total) - total:log() * k
    + (total - k) * M.digamma_rest(total)
end

--- The divergence of gamma distributions of concentrations a and b; the rates have the ratio b's /
-- a's.
function M.gamma_divergence(a, b, ratio)
  return M.lgamma_rest(b) - M.lgamma_rest(a) + (a - b) * M.digamma_rest(a)
    + M.deviance(b, a * ratio)
end

--- The divergence of Dirichlet distributions; concentrations are along the last dimension.
function M.dirichlet_divergence(a, b)
  local p, q = a:sum(-1, {keepdim = true}), b:sum(-1, {keepdim = true})
  local each = M.lgamma_rest(b) - M.lgamma_rest(a) + M.deviance(b, a * (q / p))
    + (a - b) * (M.digamma_rest(a) - M.digamma_rest(p))
  return each:sum(-1) + (M.lgamma_rest(p) - M.lgamma_rest(q)):squeeze(-1)
end

return M
