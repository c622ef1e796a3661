--- matrices.lua -- distributions of matrices: LKJCholesky, Wishart.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local constraints = require "moth.distributions.constraints"
local define = require "moth.binding.define"
local Distribution = require "moth.distributions.distribution"
local errors = require "moth.error"
local gammas = require "moth.distributions.gammas"
local large = require "moth.distributions.large"
local multivariate = require "moth.distributions.multivariate"

local ops, tools = bind.ops, Distribution.tools
local log, pi = math.log, math.pi
local matrices = {}

local function linalg() return require("moth").linalg end
local function mvlgamma(x, p) return (require("moth").mvlgamma(x, p)) end

-- ---- LKJCholesky ----

--- Cholesky factors of correlation matrices. The density is proportional to the determinant to the
-- power concentration - 1: it is uniform for 1 (Lewandowski, Kurowicka and Joe, "Generating random
-- correlation matrices based on vines and extended onion method", 2009).
local LKJ = class("LKJCholesky", Distribution)
matrices.LKJCholesky = LKJ

LKJ.arg_constraints = {concentration = constraints.positive}
LKJ.signature = define.signature("LKJCholesky", {
  {"int", "dim", "the number of rows and columns, from 2 on"},
  tools.number("concentration", "above 1: small correlations; below 1: large ones", {default = 1}),
  tools.VALIDATE})

function LKJ:init(dim, concentration, validate_args)
  if dim < 2 then
    errors.argument("LKJCholesky", "dim", "an integer from 2 on is needed, got " .. dim, "E_DOMAIN")
  end
  self.dim = dim
  self.concentration = tools.broadcast("LKJCholesky", {"concentration"}, {concentration})
  Distribution.init(self, self.concentration.shape, {dim, dim}, validate_args)
end

function LKJ._support() return constraints.corr_cholesky end

-- The onion method: each row has a random direction, and a Beta number is its squared length left
-- of the diagonal.
function LKJ:_sample(size, shape)
  local c, d = self.concentration, self.dim
  local before = ops.arange(-1, d - 1, 1, c.dtype, c.device):clamp(0)
  local rest = (c + 0.5 * (d - 2)):unsqueeze(-1) - before * 0.5
  local share = gammas.Beta(before * 0.5 + 0.5, rest, false):sample(shape):unsqueeze(-1)
  local x = tools.empty(c, size):normal_():tril(-1)
  local direction = x / x:norm(2, { -1}, true):clamp(2 ^ -126)
  local w = share:sqrt() * direction
  return w + (1 - w:square():sum(-1)):clamp(2 ^ -126):sqrt():diag_embed()
end

function LKJ:log_prob(value)
  value = self:_check(value, "log_prob")
  local c, d, given = (large.wide(self.concentration)), self.dim, value
  value = (large.wide(value))
  local order = ops.arange(d - 2, -1, -1, c.dtype, c.device) + ((c - 1) * 2):unsqueeze(-1)
  local diagonal = value:diagonal(0, -2, -1):narrow(-1, 2, d - 1)
  local alpha, n = c + 0.5 * (d - 1), d - 1
  local y = (order * diagonal:log()):sum(-1) - 0.5 * n * log(pi) - mvlgamma(alpha - 0.5, n)
    + alpha:lgamma() * n
  return (large.like(y, self.concentration, given))
end

-- ---- Wishart ----

--- The distribution of the sum of x x^T over df normal vectors x of mean 0. One of three matrices
-- determines the covariance.
local Wishart = class("Wishart", Distribution)
matrices.Wishart = Wishart

Wishart.has_rsample = true
Wishart.arg_constraints = {
  df = constraints.positive, covariance_matrix = constraints.covariance,
  precision_matrix = constraints.covariance, scale_tril = constraints.lower_cholesky,
}
Wishart.signature = define.signature("Wishart", {
  tools.number("df", "degrees of freedom, above K - 1; may be fractional"),
  {"tensor", "covariance_matrix", "the covariance of x, (..., K, K)", optional = true},
  {"tensor", "precision_matrix", "the inverse of the covariance", optional = true},
  {"tensor", "scale_tril", "the Cholesky factor of the covariance", optional = true},
  tools.VALIDATE,
})

function Wishart:init(df, covariance, precision, triangle, validate_args)
  local name, matrix = multivariate.one_matrix("Wishart", {covariance, precision, triangle})
  if matrix:dim() < 2 or matrix:size(-1) ~= matrix:size(-2) then
    errors.refuse("Wishart", name, "(..., K, K) is needed", matrix, "E_SHAPE")
  end
  local k = matrix:size(-1)
  local front = {unpack(matrix.shape, 1, matrix:dim() - 2)}
  df = type(df) == "number" and ops.full({}, df, matrix.dtype, matrix.device) or df:to(matrix.dtype)
  local batch = tools.broadcast_shape(df.shape, front)
  if not batch then
    errors.argument("Wishart", "df", ("%s cannot be broadcast with %s, %s"):format(
      errors.describe(df), name, errors.describe(matrix)), "E_SHAPE")
  end
  self.df, self[name] = df:expand(batch), matrix
  Distribution.init(self, batch, {k, k}, validate_args)
  if self.validate_args then
    tools.enforce("Wishart", "df", self.df, constraints.greater_than(k - 1))
  end
  self[name] = nil
  self.scale_tril = multivariate.triangle("Wishart", name, matrix, batch)
end

function Wishart._support() return constraints.positive_definite end

local function df_of(self) return (self.df:unsqueeze(-1):unsqueeze(-1)) end -- for matrices

function Wishart:_covariance_matrix()
  return (self.scale_tril:matmul(self.scale_tril:transpose(-2, -1)))
end

function Wishart:_precision_matrix() return (linalg().inv(self.covariance_matrix)) end
function Wishart:_mean() return df_of(self) * self.covariance_matrix end

function Wishart:_mode()
  local some = df_of(self) - (self.event_shape[1] + 1)
  return ops.where(some:gt(0), some, 0 / 0) * self.covariance_matrix
end

function Wishart:_variance()
  local V = self.covariance_matrix
  local diagonal = V:diagonal(0, -2, -1)
  return df_of(self) * (V:square() + diagonal:unsqueeze(-1) * diagonal:unsqueeze(-2))
end

-- Bartlett's decomposition: L A A^T L^T, where A has normal numbers below the diagonal and square
-- roots of Chi2 numbers on the diagonal.
function Wishart:_rsample(size, shape)
  local k = self.event_shape[1]
  local df = self.df:unsqueeze(-1) - ops.arange(0, k, 1, self.df.dtype, self.df.device)
  local diagonal = gammas.Chi2(df, false):rsample(shape):sqrt()
  local A = tools.empty(self.df, size):normal_():tril(-1) + diagonal:diag_embed()
  local y = self.scale_tril:matmul(A)
  return (y:matmul(y:transpose(-2, -1)))
end

function Wishart:log_prob(value)
  value = self:_check(value, "log_prob")
  local given, p = value, self.event_shape[1]
  local df, L, x = large.wide(self.df, self.scale_tril, value)
  value = x
  local _, size = linalg().slogdet(value)
  local shape = tools.broadcast_shape(value.shape, L.shape) or L.shape
  local inner = linalg().solve_triangular(L:expand(shape), value:expand(shape), {upper = false})
  local trace = linalg().solve_triangular(L:transpose(-2, -1):expand(shape), inner,
    {upper = true}):diagonal(0, -2, -1):sum(-1)
  local y = -df * (p * log(2) / 2 + multivariate.log_size(L)) - mvlgamma(df / 2, p)
    + (df - p - 1) / 2 * size - trace / 2
  return (large.like(y, self.df, self.scale_tril, given))
end

function Wishart:entropy()
  local df, L = large.wide(self.df, self.scale_tril)
  local p, digammas = self.event_shape[1], 0
  for i = 1, p do digammas = ((df + 1 - i) / 2):digamma() + digammas end
  local y = (p * log(2) / 2 + multivariate.log_size(L)) * (p + 1) + mvlgamma(df / 2, p)
    - (df - p - 1) / 2 * digammas + df * p / 2
  return (large.like(y, self.df, self.scale_tril))
end

return matrices
