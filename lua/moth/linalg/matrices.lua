--- matrices.lua -- functions of moth.linalg that are also tensor methods or at the top level, some
-- with other arguments: x:det(), x:svd(), moth.cross.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local linalg = require "moth.linalg"

local ops = bind.ops

local matrices = {
  cholesky = linalg.cholesky,
  det = linalg.det,
  slogdet = linalg.slogdet,
  matrix_exp = linalg.matrix_exp,
  matrix_power = linalg.matrix_power,
  --- moth.inverse(A), x:inverse(): linalg.inv.
  inverse = bind.as("linalg_inv", "inverse"),
}

local MATRICES = {"tensor", "input", "matrices, (..., M, N)"}

local slogdet = bind.as("linalg_slogdet", "logdet")

--- moth.logdet(A), x:logdet().
matrices.logdet = define {
  name = "logdet",
  doc = "The logarithm of the determinant of a matrix: -inf if it is singular, NaN if the "
    .. "determinant is negative.",
  examples = "moth.eye(3) * 2  -- domain: matrix",
  args = {{"tensor", "A", "matrices, (..., N, N)"}},
  scoped = true,
  run = function(x)
    local sign, y = slogdet(x)
    return (ops.where(sign:lt(0), 0 / 0, y))
  end,
}

local pinv = bind.as("linalg_pinv", "pinverse")

--- moth.pinverse(x, rcond), x:pinverse(): linalg.pinv with a relative tolerance.
matrices.pinverse = define {
  name = "pinverse",
  doc = "The pseudoinverse of a matrix, see linalg.pinv.",
  examples = "moth.eye(2, 3)  -- domain: matrix\n"
    .. "moth.eye(2, 3), {rcond = 1e-3}  -- domain: matrix",
  args = {
    MATRICES,
    {"float", "rcond", "relative tolerance: smaller singular values count as 0",
      default = 1e-15},
  },
  run = function(x, rcond)
    return (pinv(x, 0, rcond))
  end,
}

local factor = bind.as("linalg_qr", "qr")

--- moth.qr(x, some), x:qr(): linalg.qr; Q is complete if `some` is false.
matrices.qr = define {
  name = "qr",
  doc = "Q with orthonormal columns and upper triangular R, input = Q times R; see linalg.qr.",
  examples = "moth.randn(3, 2)  -- domain: matrix\n"
    .. "moth.randn(3, 3), {some = false}  -- domain: matrix",
  outputs = "Q, R",
  args = {MATRICES, {"bool", "some", "reduced form? if false, Q is square", default = true}},
  run = function(x, some)
    local q, r = factor(x, some and "reduced" or "complete")
    return q, r
  end,
}

local decompose = bind.as("linalg_svd", "svd")
local values_of = bind.as("linalg_svdvals", "svd")

--- moth.svd(x, some, compute_uv), x:svd() -> U, S, V: V's columns are the vectors; linalg.svd
-- returns V transposed.
matrices.svd = define {
  name = "svd",
  doc = "input = U times diag(S) times V transposed. linalg.svd returns V transposed, and all "
    .. "vectors by default.",
  examples = "moth.randn(3, 2)  -- domain: matrix\n"
    .. "moth.randn(3, 2), {some = false, compute_uv = false}  -- domain: matrix",
  outputs = "U, S, V",
  args = {
    MATRICES,
    {"bool", "some", "only as many vectors as singular values?", default = true},
    {"bool", "compute_uv", "compute U and V? if false, they are zeros", default = true},
  },
  scoped = true,
  run = function(x, some, compute_uv)
    if not compute_uv then
      local s, shape = values_of(x), {unpack(x.shape)}
      local like = {dtype = x.dtype, device = x.device}
      local m, n = shape[#shape - 1], shape[#shape]
      shape[#shape - 1], shape[#shape] = m, m
      local u = ops.zeros(shape, like)
      shape[#shape - 1], shape[#shape] = n, n
      return u, s, ops.zeros(shape, like)
    end
    local u, s, vh = decompose(x, not some)
    return u, s, vh:transpose(-1, -2)
  end,
}

local cross = linalg.cross

--- moth.cross(input, other, dim), x:cross(): linalg.cross; by default dim is the first dimension of
-- size 3.
matrices.cross = define {
  name = "cross",
  doc = "The cross product of vectors of three numbers along `dim`.",
  examples = "moth.randn(3, 2), moth.randn(3, 2)\nmoth.randn(2, 3), moth.randn(2, 3), {dim = 2}",
  args = {
    {"tensor", "input", "vectors of 3 numbers"},
    {"tensor", "other", "vectors of the same length; broadcast"},
    {"dim", "dim", "dimension of the vectors; default: the first of size 3",
      optional = true},
  },
  run = function(a, b, dim)
    for d = 1, dim and 0 or a:dim() do
      if a:size(d) == 3 then
        dim = d
        break
      end
    end
    if not dim then
      errors.argument("cross", "input", "no dimension has the size 3 in " .. errors.describe(a),
        "E_SHAPE")
    end
    return (cross(a, b, dim))
  end,
}

local function check_factors(name, l)
  if l:dim() < 2 or l:size(-1) ~= l:size(-2) then
    errors.refuse(name, "L", "factors, (..., N, N), are needed", l, "E_SHAPE")
  end
end

local triangular = bind.as("linalg_solve_triangular", "cholesky_solve")

--- moth.cholesky_solve(B, L, upper), B:cholesky_solve(L): solves A X = B with the Cholesky factor
-- of A.
matrices.cholesky_solve = define {
  name = "cholesky_solve",
  doc = "Solves A X = B with the factor of A from cholesky.",
  examples = "moth.ones(2, 1), moth.eye(2)  -- domain: matrix\n"
    .. "moth.ones(2, 1), moth.eye(2), {upper = true}  -- domain: matrix",
  args = {
    {"tensor", "B", "right sides, (..., N, K)"},
    {"tensor", "L", "factors, (..., N, N)"},
    {"bool", "upper", "are the factors upper triangular?", default = false},
  },
  scoped = true,
  run = function(b, l, upper)
    check_factors("cholesky_solve", l)
    local other = l:transpose(-1, -2)
    if upper then l, other = other, l end
    local y = triangular(l, b, {upper = false})
    return (triangular(other, y, {upper = true}))
  end,
}

local invert = bind.as("linalg_solve_triangular", "cholesky_inverse")

--- moth.cholesky_inverse(L, upper), L:cholesky_inverse(): the inverse of A from its Cholesky
-- factor.
matrices.cholesky_inverse = define {
  name = "cholesky_inverse",
  doc = "The inverse of A, from the factor of A that cholesky returned.",
  examples = "moth.eye(2) * 2  -- domain: matrix\n"
    .. "moth.eye(2) * 2, {upper = true}  -- domain: matrix",
  args = {
    {"tensor", "L", "factors, (..., N, N)"},
    {"bool", "upper", "are the factors upper triangular?", default = false},
  },
  scoped = true,
  run = function(l, upper)
    check_factors("cholesky_inverse", l)
    if upper then l = l:transpose(-1, -2) end
    local one = ops.eye(l:size(-1), {dtype = l.dtype, device = l.device})
    local y = invert(l, one, {upper = false})
    return (y:transpose(-1, -2):matmul(y))
  end,
}

--- moth.lu_solve(B, LU, pivots), B:lu_solve(LU, pivots): linalg.lu_solve with B as the first
-- argument.
matrices.lu_solve = define {
  name = "lu_solve",
  doc = "Solves A X = B with the factors of A from linalg.lu_factor.",
  examples = "moth.ones(2, 1), moth.eye(2), moth.tensor{1LL, 2LL}  -- domain: matrix",
  args = {
    {"tensor", "B", "right sides, (..., N, K)"},
    {"tensor", "LU", "factors, (..., N, N)"},
    {"index", "pivots", "the row with which each row was swapped, (..., N)"},
  },
  run = function(b, factors, pivots)
    return (linalg.lu_solve(factors, pivots, b))
  end,
}

return matrices
