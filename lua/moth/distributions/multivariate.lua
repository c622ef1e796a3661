--- multivariate.lua -- MultivariateNormal: vectors of normal numbers that go together.

local bind = require "moth.bind"
local class = require "moth.class"
local constraints = require "moth.distributions.constraints"
local define = require "moth.define"
local Distribution = require "moth.distributions.distribution"
local errors = require "moth.error"

local ops, tools = bind.ops, Distribution.tools
local LOG_2PI = math.log(2 * math.pi)

local M = {}

--- Vectors whose mean is loc and which go together as one of three matrices says: their
-- covariances, the inverse of these, or a lower triangle L of which the covariances are L L^T.
local MultivariateNormal = class("MultivariateNormal", Distribution)
M.MultivariateNormal = MultivariateNormal

MultivariateNormal.has_rsample = true
MultivariateNormal.arg_constraints = {
  loc = constraints.real_vector, covariance_matrix = constraints.symmetric,
  precision_matrix = constraints.symmetric, scale_tril = constraints.lower_cholesky,
}
MultivariateNormal.signature = define.signature("MultivariateNormal", {
  { "tensor", "loc", "the mean, (..., K)" },
  { "tensor", "covariance_matrix", "how they vary together, (..., K, K)", optional = true },
  { "tensor", "precision_matrix", "the inverse of that", optional = true },
  { "tensor", "scale_tril", "a lower triangle with a positive diagonal", optional = true },
  tools.VALIDATE,
})

local function linalg() return require("moth").linalg end

local function transposed(x) return (x:transpose(-2, -1)) end

local MATRICES = { "covariance_matrix", "precision_matrix", "scale_tril" }

-- L of a matrix; errors call it by the constructor's name for it.
local cholesky = {}
for i = 1, 2 do
  cholesky[i] = bind.as("linalg_cholesky", "MultivariateNormal", { A = MATRICES[i] })
end

-- The triangle of the inverse of P: that of P with both sides turned around, turned and inverted.
local function of_precision(P)
  local turned = cholesky[2](P:flip { -2, -1 }):flip { -2, -1 }
  local one = ops.eye(P:size(-1), P:size(-1), P.dtype, P.device):expand(P.shape)
  return (linalg().solve_triangular(transposed(turned), one, { upper = false }))
end

function MultivariateNormal:init(loc, covariance, precision, triangle, validate_args)
  local given = { covariance, precision, triangle }
  local which
  for i, name in ipairs(MATRICES) do
    local x = given[i]
    if x ~= nil and which then
      errors.argument("MultivariateNormal", name, "one matrix is needed, got two of them")
    elseif x ~= nil then
      which = i
      local k = loc:dim() > 0 and loc:size(-1) or 0
      if loc:dim() == 0 or x:dim() < 2 or x:size(-1) ~= k or x:size(-2) ~= k then
        errors.argument("MultivariateNormal", loc:dim() == 0 and "loc" or name,
          ("(..., K) and (..., K, K) are needed, got %s and %s"):format(errors.describe(loc),
            errors.describe(x)), "E_SHAPE")
      end
    end
  end
  if not which then
    errors.argument("MultivariateNormal", "covariance_matrix", "a matrix is needed, be it this, "
      .. "precision_matrix or scale_tril")
  end
  local name, matrix, k = MATRICES[which], given[which], loc:size(-1)
  local function front(x, last) return { unpack(x.shape, 1, x:dim() - last) } end
  local batch = tools.broadcast_shape(front(loc, 1), front(matrix, 2))
  if not batch then
    errors.argument("MultivariateNormal", name, ("%s cannot be broadcast with loc, %s"):format(
      errors.describe(matrix), errors.describe(loc)), "E_SHAPE")
  end
  self.loc, self[name] = loc:expand(tools.join(batch, { k })), matrix
  Distribution.init(self, batch, { k }, validate_args)
  self[name] = nil
  local L = which == 1 and cholesky[1](matrix) or which == 2 and of_precision(matrix)
    or matrix
  self.scale_tril = L:expand(tools.join(batch, { k, k }))
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

-- |L^-1 x|^2 of vectors x; and log |L|.
local function length(L, x)
  local rows = { unpack(x.shape, 1, x:dim() - 1) }
  local all = tools.broadcast_shape(rows, { unpack(L.shape, 1, L:dim() - 2) })
  local k = L:size(-1)
  local y = linalg().solve_triangular(L:expand(tools.join(all, { k, k })),
    x:expand(tools.join(all, { k })):unsqueeze(-1), { upper = false })
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

--- The divergence of two of them; for kl.lua.
function M.divergence(p, q)
  local P, Q, k = p.scale_tril, q.scale_tril, p.loc:size(-1)
  local ratio = linalg().solve_triangular(Q, P, { upper = false }):square():sum { -2, -1 }
  return log_size(Q) - log_size(P) + (ratio + length(Q, q.loc - p.loc) - k) * 0.5
end

return M
