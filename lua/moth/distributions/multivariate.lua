--- multivariate.lua -- correlated normal vectors: MultivariateNormal, LowRankMultivariateNormal.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local constraints = require "moth.distributions.constraints"
local define = require "moth.binding.define"
local Distribution = require "moth.distributions.distribution"
local errors = require "moth.error"

local ops, tools = bind.ops, Distribution.tools
local LOG_2PI = math.log(2 * math.pi)

local multivariate = {}

--- Normal vectors with mean loc. One of three matrices determines the covariance: the covariance,
-- its inverse, or its Cholesky factor L, lower triangular with L L^T = covariance.
local MultivariateNormal = class("MultivariateNormal", Distribution)
multivariate.MultivariateNormal = MultivariateNormal

MultivariateNormal.has_rsample = true
MultivariateNormal.arg_constraints = {
  loc = constraints.real_vector, covariance_matrix = constraints.covariance,
  precision_matrix = constraints.covariance, scale_tril = constraints.lower_cholesky,
}
MultivariateNormal.signature = define.signature("MultivariateNormal", {
  {"tensor", "loc", "the mean, (..., K)"},
  {"tensor", "covariance_matrix", "the covariance, (..., K, K)", optional = true},
  {"tensor", "precision_matrix", "the inverse of the covariance", optional = true},
  {"tensor", "scale_tril", "the Cholesky factor of the covariance", optional = true},
  tools.VALIDATE,
})

local function linalg() return require("moth").linalg end

local function transposed(x) return (x:transpose(-2, -1)) end

local MATRICES = {"covariance_matrix", "precision_matrix", "scale_tril"}

-- Returns a function that computes Cholesky factors; its errors name the constructor's argument.
local function cholesky(name, field) return (bind.as("linalg_cholesky", name, {A = field})) end

-- Returns the Cholesky factor of the inverse of P: reverses rows and columns of P, factors it,
-- reverses the factor and inverts it.
local function of_precision(name, P)
  local turned = cholesky(name, "precision_matrix")(P:flip { -2, -1}):flip { -2, -1}
  local one = ops.eye(P:size(-1), P:size(-1), P.dtype, P.device):expand(P.shape)
  return (linalg().solve_triangular(transposed(turned), one, {upper = false}))
end

local function front(x, last) return {unpack(x.shape, 1, x:dim() - last)} end

--- Returns the one given matrix of three, checked; for MultivariateNormal and Wishart.
-- @return its name, the matrix
function multivariate.one_matrix(name, given)
  local which
  for i, field in ipairs(MATRICES) do
    if given[i] ~= nil and which then
      errors.argument(name, field, "one of the three matrices is needed, got two")
    elseif given[i] ~= nil then
      which = i
    end
  end
  if not which then
    errors.argument(name, "covariance_matrix", "one of covariance_matrix, "
      .. "precision_matrix and scale_tril is needed")
  end
  return MATRICES[which], given[which]
end

--- Returns the Cholesky factor from one of the three matrices, for a batch.
function multivariate.triangle(name, field, matrix, batch)
  local L = field == "covariance_matrix" and cholesky(name, field)(matrix)
    or field == "precision_matrix" and of_precision(name, matrix) or matrix
  return (L:expand(tools.join(batch, {matrix:size(-1), matrix:size(-1)})))
end

function MultivariateNormal:init(loc, covariance, precision, triangle, validate_args)
  local fname = "MultivariateNormal"
  local name, matrix = multivariate.one_matrix(fname, {covariance, precision, triangle})
  local k = loc:dim() > 0 and loc:size(-1) or 0
  if loc:dim() == 0 or matrix:dim() < 2 or matrix:size(-1) ~= k or matrix:size(-2) ~= k then
    errors.argument(fname, loc:dim() == 0 and "loc" or name,
      ("(..., K) and (..., K, K) are needed, got %s and %s"):format(errors.describe(loc),
        errors.describe(matrix)), "E_SHAPE")
  end
  local batch = tools.broadcast_shape(front(loc, 1), front(matrix, 2))
  if not batch then
    errors.argument(fname, name, ("%s cannot be broadcast with loc, %s"):format(
      errors.describe(matrix), errors.describe(loc)), "E_SHAPE")
  end
  self.loc, self[name] = loc:expand(tools.join(batch, {k})), matrix
  Distribution.init(self, batch, {k}, validate_args)
  self[name] = nil
  self.scale_tril = multivariate.triangle(fname, name, matrix, batch)
end

function MultivariateNormal._support() return constraints.real_vector end
function MultivariateNormal:_mean() return (self.loc:clone()) end
function MultivariateNormal:_mode() return (self.loc:clone()) end
function MultivariateNormal:_variance() return (self.scale_tril:square():sum(-1)) end

function MultivariateNormal:_covariance_matrix()
  return (self.scale_tril:matmul(transposed(self.scale_tril)))
end

function MultivariateNormal:_precision_matrix() return (linalg().inv(self.covariance_matrix)) end

function MultivariateNormal:_rsample(size)
  local x = tools.empty(self.loc, size):normal_():unsqueeze(-1)
  return self.loc + self.scale_tril:matmul(x):squeeze(-1)
end

-- Returns |L^-1 x|^2 of vectors x; and log |L|.
local function length(L, x)
  local rows = {unpack(x.shape, 1, x:dim() - 1)}
  local all = tools.broadcast_shape(rows, {unpack(L.shape, 1, L:dim() - 2)})
  local k = L:size(-1)
  local y = linalg().solve_triangular(L:expand(tools.join(all, {k, k})),
    x:expand(tools.join(all, {k})):unsqueeze(-1), {upper = false})
  return (y:squeeze(-1):square():sum(-1))
end

local function log_size(L) return (L:diagonal(0, -2, -1):log():sum(-1)) end

function MultivariateNormal:log_prob(value)
  value = self:_check(value, "log_prob")
  local square = length(self.scale_tril, value - self.loc)
  return (square + self.loc:size(-1) * LOG_2PI) * -0.5 - log_size(self.scale_tril)
end

function MultivariateNormal:entropy()
  return log_size(self.scale_tril) + 0.5 * self.loc:size(-1) * (1 + LOG_2PI)
end

multivariate.log_size, multivariate.length = log_size, length

-- ---- LowRankMultivariateNormal ----

--- Normal vectors with the covariance W W^T + diag(d), where W, cov_factor, has few columns and d
-- is cov_diag. Only matrices of the size of W^T W are factored (Woodbury's identity, and the matrix
-- determinant lemma).
local LowRank = class("LowRankMultivariateNormal", Distribution)
multivariate.LowRankMultivariateNormal = LowRank

LowRank.has_rsample = true
LowRank.arg_constraints = {
  loc = constraints.real_vector, cov_factor = constraints.independent(constraints.real, 2),
  cov_diag = constraints.independent(constraints.positive, 1),
}
LowRank.signature = define.signature("LowRankMultivariateNormal", {
  {"tensor", "loc", "the mean, (..., K)"}, {"tensor", "cov_factor", "W, (..., K, R)"},
  {"tensor", "cov_diag", "d, (..., K)"}, tools.VALIDATE})

function LowRank:init(loc, W, d, validate_args)
  local k = loc:dim() > 0 and loc:size(-1) or 0
  if loc:dim() == 0 or W:dim() < 2 or W:size(-2) ~= k or d:dim() == 0 or d:size(-1) ~= k then
    errors.argument("LowRankMultivariateNormal", "cov_factor", ("(..., K), (..., K, R) and "
      .. "(..., K) are needed, got %s, %s and %s"):format(errors.describe(loc), errors.describe(W),
        errors.describe(d)), "E_SHAPE")
  end
  local batch = tools.broadcast_shape(front(loc, 1), front(W, 2))
  batch = batch and tools.broadcast_shape(batch, front(d, 1))
  if not batch then
    errors.argument("LowRankMultivariateNormal", "cov_factor", ("%s cannot be broadcast with loc, "
      .. "%s, and cov_diag, %s"):format(errors.describe(W), errors.describe(loc),
        errors.describe(d)), "E_SHAPE")
  end
  local shape = tools.join(batch, {k})
  self.loc, self.cov_diag = loc:expand(shape), d:expand(shape)
  self.cov_factor = W:expand(tools.join(batch, {k, W:size(-1)}))
  Distribution.init(self, batch, {k}, validate_args)
end

LowRank._support = MultivariateNormal._support
LowRank._mean, LowRank._mode = MultivariateNormal._mean, MultivariateNormal._mode
LowRank._precision_matrix = MultivariateNormal._precision_matrix

function LowRank:_variance() return self.cov_factor:square():sum(-1) + self.cov_diag end

function LowRank:_covariance_matrix()
  return self.cov_factor:matmul(transposed(self.cov_factor)) + self.cov_diag:diag_embed()
end

function LowRank:_scale_tril() return (linalg().cholesky(self.covariance_matrix)) end

function LowRank:_rsample(size)
  local W, shape = self.cov_factor, {unpack(size)}
  shape[#shape] = W:size(-1)
  local along = W:matmul(tools.empty(self.loc, shape):normal_():unsqueeze(-1)):squeeze(-1)
  return self.loc + along + self.cov_diag:sqrt() * tools.empty(self.loc, size):normal_()
end

-- Returns W^T D^-1, and the Cholesky factor of 1 + W^T D^-1 W.
local function inner(self)
  local W = self.cov_factor
  local scaled = transposed(W / self.cov_diag:unsqueeze(-1))
  local one = ops.eye(W:size(-1), W:size(-1), W.dtype, W.device)
  return scaled, (linalg().cholesky(scaled:matmul(W) + one))
end

-- log |covariance| / 2
local function half_log_det(self, L) return log_size(L) + self.cov_diag:log():sum(-1) * 0.5 end

function LowRank:log_prob(value)
  local x = self:_check(value, "log_prob") - self.loc
  local scaled, L = inner(self)
  local square = (x:square() / self.cov_diag):sum(-1)
    - length(L, scaled:matmul(x:unsqueeze(-1)):squeeze(-1))
  return (square + self.loc:size(-1) * LOG_2PI) * -0.5 - half_log_det(self, L)
end

function LowRank:entropy()
  local _, L = inner(self)
  return half_log_det(self, L) + 0.5 * self.loc:size(-1) * (1 + LOG_2PI)
end

return multivariate
