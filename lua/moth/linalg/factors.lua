--- factors.lua -- linear algebra: solve_ex and lu_factor_ex, which report singular matrices instead
-- of raising; matrix_sqrth; orgqr, ormqr, lu_unpack.

local attach = require("moth.autograd.attach").attach
local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local lu = require "moth.linalg.lu"

local ops = bind.ops
local factors = {}

local CHECK = {"bool", "check_errors", "raise for a singular matrix?", default = false}

local function like(x) return {dtype = x.dtype, device = x.device} end

-- Adds `inner` dimensions of size 1 to y, which has one number for each matrix of x.
local function with_inner_dims(y, inner)
  for _ = 1, inner do y = y:unsqueeze(-1) end
  return y
end

local solve, inverse = bind.as("linalg_solve", "solve_ex"), bind.as("linalg_inv_ex", "solve_ex")

-- Returns true if b is a stack of vectors for the matrices x.
local function vectors(x, b)
  if b:dim() ~= 1 and b:dim() ~= x:dim() - 1 then return false end
  for d = 1, b:dim() > 1 and b:dim() or 0 do
    if b:size(d) ~= x:size(d) then return false end
  end
  return true
end

--- moth.linalg.solve_ex(A, B, left, check_errors) -> result, info.
factors.solve_ex = define {
  name = "solve_ex",
  doc = "As solve, but for a singular A the result is NaN and info the first pivot that is 0, "
    .. "counted from 1; otherwise info is 0.",
  examples = "moth.eye(2) * 2, moth.ones(2, 1)  -- domain: matrix\n"
    .. "moth.eye(2), moth.ones(1, 2), {left = false, check_errors = true}  -- domain: matrix",
  outputs = "result, info",
  args = {
    {"tensor", "A", "matrices, (..., N, N)"},
    {"tensor", "B", "right sides, (..., N, K) or (..., N); (..., K, N) without `left`"},
    {"bool", "left", "A X = B, not X A = B", default = true},
    CHECK,
  },
  scoped = true,
  run = function(x, b, left, check)
    if x.device.type == "cpu" and not lib.capture then -- try one factorization
      local ok, y = pcall(solve, x, b, left)
      local batch = ok and {unpack(x.shape, 1, x:dim() - 2)}
      if ok then return y, ops.zeros(batch, {dtype = require("moth").int32}) end
    end
    local _, info = inverse(x:detach(), check)
    local gone = info:ne(0)
    local safe = ops.where(with_inner_dims(gone, 2), ops.eye(x:size(-1), like(x)), x)
    local y = solve(safe, b, left)
    return ops.where(with_inner_dims(gone, vectors(x, b) and 1 or 2), 0 / 0, y), info
  end,
}

local factor = bind.as("linalg_lu_factor", "lu_factor_ex")

--- moth.linalg.lu_factor_ex(A, check_errors) -> LU, pivots, info.
factors.lu_factor_ex = define {
  name = "lu_factor_ex",
  doc = "As lu_factor; info is the position of the first 0 on the diagonal of U, from 1, or 0.",
  examples = "moth.eye(3) * 2  -- domain: matrix\n"
    .. "moth.eye(3) * 2, {check_errors = true, pivot = true}  -- domain: matrix",
  outputs = "LU, pivots, info",
  args = {{"tensor", "A", "matrices, (..., M, N)"}, CHECK, lu.PIVOT},
  scoped = true,
  run = function(x, check, pivot)
    lu.need_pivot("lu_factor_ex", pivot)
    local y, pivots = factor(x)
    local zero = y:detach():diagonal(0, -2, -1):eq(0)
    if x.device.type == "cpu" and not lib.capture and not zero:any():item() then
      return y, pivots, ops.zeros({unpack(x.shape, 1, x:dim() - 2)},
        {dtype = require("moth").int32}) -- no zero on a diagonal: info is 0
    end
    local info = zero:sum(-1):mul(0):int() -- 0 for each matrix
    if zero:size(-1) > 0 then
      info = ops.where(zero:any(-1), zero:to(x.dtype):argmax(-1), 0):int()
    end
    if check and info:ne(0):any():item() then
      errors.argument("lu_factor_ex", "A", errors.describe(x) .. " has a singular matrix",
        "E_DOMAIN")
    end
    return y, pivots, info
  end,
}

local eigh = bind.as("linalg_eigh", "matrix_sqrth")

--- moth.linalg.matrix_sqrth(A): the symmetric square root of a symmetric matrix.
factors.matrix_sqrth = define {
  name = "matrix_sqrth",
  doc = "The symmetric positive-definite X with X X = A. Only the lower triangle of A is read; NaN "
    .. "if A has negative eigenvalues.",
  examples = "moth.eye(3) * 2  -- domain: symmetric",
  args = {{"tensor", "A", "symmetric positive-definite matrices, (..., N, N)"}},
  scoped = true,
  run = function(x)
    local values, v = eigh(x)
    return ((v * values:sqrt():unsqueeze(-2)):matmul(v:transpose(-1, -2)))
  end,
}

-- ---- reflections ----

local REFLECTIONS = {"tensor", "tau", "factors of the reflections, (..., K)"}

-- Raises unless tau has one factor for each of the first columns of x.
local function check_reflections(fname, x, tau)
  if x:dim() < 2 or tau:dim() ~= x:dim() - 1 or tau:size(-1) > x:size(-1)
    or x:size(-1) > x:size(-2) then
    errors.argument(fname, "tau", ("factors (..., K) for the columns of input (..., M, N), and no "
      .. "more columns than rows, are needed, got %s and %s"):format(errors.describe(tau),
      errors.describe(x)), "E_SHAPE")
  end
end

--- moth.orgqr(input, tau), x:orgqr(tau): linalg.householder_product.
factors.orgqr = define {
  name = "orgqr",
  doc = "The first N columns of a product of Householder reflections: linalg.householder_product.",
  examples = "moth.randn(4, 3), moth.rand(2)",
  args = {{"tensor", "input", "the vectors of the reflections, (..., M, N)"}, REFLECTIONS},
  run = function(x, tau)
    check_reflections("orgqr", x, tau)
    local y = require("moth").linalg.householder_product(x, tau)
    return y
  end,
}

--- moth.ormqr(input, tau, other, left, transpose), x:ormqr(tau, other).
factors.ormqr = define {
  name = "ormqr",
  doc = "Q times `other`, or `other` times Q, for the full square Q of the reflections.",
  examples = "moth.randn(4, 3), moth.rand(2), moth.randn(4, 2)\n"
    .. "moth.randn(4, 3), moth.rand(2), moth.randn(2, 4), {left = false, transpose = true}",
  args = {
    {"tensor", "input", "the vectors of the reflections, (..., M, N)"}, REFLECTIONS,
    {"tensor", "other", "matrices, (..., M, K); (..., K, M) without `left`"},
    {"bool", "left", "is Q on the left?", default = true},
    {"bool", "transpose", "Q transposed", default = false},
  },
  scoped = true,
  run = function(x, tau, y, left, transpose)
    check_reflections("ormqr", x, tau)
    local m, k = x:size(-2), tau:size(-1)
    if y:dim() < 2 or y:size(left and -2 or -1) ~= m then
      errors.argument("ormqr", "other", ("%d %s are needed for the reflections %s, got %s"):format(
        m, left and "rows" or "columns", errors.describe(x), errors.describe(y)), "E_SHAPE")
    end
    if not left then y, transpose = y:transpose(-1, -2), not transpose end -- Y Q = (Q' Y')'
    y = require("moth.linalg.matfun").reflected("ormqr", x, tau, y, transpose)
    if not left then y = y:transpose(-1, -2) end
    y = y * 1 -- without reflections y is `other` itself
    if k == 0 then y = attach(attach(y, x), tau) end
    return y
  end,
}

-- ---- lu_unpack ----

--- moth.lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots) -> P, L, U.
factors.lu_unpack = define {
  name = "lu_unpack",
  doc = "P, L and U of A = P L U, from linalg.lu_factor; a part not requested is empty.",
  examples = "moth.eye(2) * 2, moth.tensor{1LL, 2LL}\n"
    .. "moth.eye(2) * 2, moth.tensor{2LL, 2LL}, {unpack_data = false}\n"
    .. "moth.eye(2) * 2, moth.tensor{2LL, 2LL}, {unpack_pivots = false}",
  outputs = "P, L, U",
  args = {
    {"tensor", "LU_data", "factors, (..., M, N)"},
    {"index", "LU_pivots", "the row with which each row was swapped, (..., K)"},
    {"bool", "unpack_data", "return L and U", default = true},
    {"bool", "unpack_pivots", "return P", default = true},
  },
  scoped = true,
  run = function(x, pivots, data, swaps)
    if x:dim() < 2 then
      errors.refuse("lu_unpack", "LU_data", "factors, (..., M, N), are needed", x, "E_SHAPE")
    end
    local m, n = x:size(-2), x:size(-1)
    local k = math.min(m, n)
    local fits = pivots:dim() == x:dim() - 1 and pivots:size(-1) == k
    for d = 1, x:dim() - 2 do fits = fits and pivots:size(d) == x:size(d) end
    if not fits then
      errors.refuse("lu_unpack", "LU_pivots", ("%d for each matrix of %s are needed"):format(k,
        errors.describe(x)), pivots, "E_SHAPE")
    end
    local p, l, u = ops.zeros({0}, like(x)), ops.zeros({0}, like(x)), ops.zeros({0}, like(x))
    if data then
      l = x:narrow(-1, 1, k):tril(-1) + ops.eye(m, k, like(x))
      u = x:narrow(-2, 1, k):triu()
    end
    if swaps then
      local shape = {unpack(x.shape)}
      shape[#shape] = m
      local at = ops.linalg_lu_order(pivots, m, true)
      p = ops.eye(m, like(x)):index_select(1, at:reshape(-1)):reshape(shape)
    end
    return p, l, u
  end,
}

return factors
