--- lu.lua -- moth.linalg.lu, lu_factor, lu_solve, lstsq.

local attach = require("moth.autograd.attach").attach
local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops = bind.ops
local lu = {}

local A = {"tensor", "A", "matrices, (..., M, N)"}
local PIVOT = {"bool", "pivot", "swap rows? must be true, since small pivots are inaccurate",
                default = true}

-- Raises if row swaps are disabled.
local function need_pivot(name, pivot)
  if pivot then return end
  errors.argument(name, "pivot", "factors without swapped rows are not supported, got false",
    "E_UNSUPPORTED")
end
lu.PIVOT, lu.need_pivot = PIVOT, need_pivot

local factor = bind.as("linalg_lu_factor", "lu_factor")

--- moth.linalg.lu_factor(A) -> LU, pivots.
lu.lu_factor = define {
  name = "lu_factor",
  doc = "The triangular factors of A with swapped rows, both in one matrix: L, without its "
    .. "diagonal of ones, below the diagonal, and U. lu_solve uses them.",
  examples = "moth.eye(3) * 2  -- domain: matrix\nmoth.eye(3) * 2, {pivot = true}"
    .. "  -- domain: matrix",
  outputs = "LU, pivots",
  args = {A, PIVOT},
  run = function(x, pivot)
    need_pivot("lu_factor", pivot)
    local y, pivots = factor(x)
    return y, pivots
  end,
}

local factor_lu = bind.as("linalg_lu_factor", "lu")

--- moth.linalg.lu(A) -> P, L, U.
lu.lu = define {
  name = "lu",
  doc = "A = P L U: a permutation matrix, a lower triangular matrix with ones on the diagonal, and "
    .. "an upper triangular matrix.",
  examples = "moth.eye(3) * 2  -- domain: matrix\nmoth.eye(3) * 2, {pivot = true}"
    .. "  -- domain: matrix",
  outputs = "P, L, U",
  args = {A, PIVOT},
  scoped = true,
  run = function(x, pivot)
    need_pivot("lu", pivot)
    local both, pivots = factor_lu(x)
    local m, n = x:size(-2), x:size(-1)
    local k = math.min(m, n)
    local like = {dtype = x.dtype, device = x.device}
    local at = ops.linalg_lu_order(pivots, m, true)
    local swaps = ops.eye(m, like):index_select(1, at:reshape(-1))
    local shape = {unpack(x.shape)}
    shape[#shape] = m
    local lower = both:narrow(-1, 1, k):tril(-1) + ops.eye(m, k, like)
    local upper = both:narrow(-2, 1, k):triu()
    return swaps:reshape(shape), lower, upper
  end,
}

-- Reorders the rows of x by positions `at`, (..., N).
local function rows_at(x, at)
  local shape, batch = {}, at:dim() - 1
  local n = math.max(x:dim(), batch + 2)
  for d = 1, n do shape[d] = d > n - x:dim() and x:size(d - n + x:dim()) or 1 end
  for d = 1, batch do -- for each leading dimension, counted from the right
    local own = at:size(batch + 1 - d)
    local place = n - 1 - d
    if shape[place] == 1 then shape[place] = own end
  end
  return (x:expand(shape):gather(-2, at:unsqueeze(-1):expand(shape)))
end

-- Returns the number of pivots of each matrix, from a tensor or from lists.
local function pivots_of(x)
  if lib.istensor(x) then return x:dim() > 0 and x:size(-1) or 0 end
  while type(x[1]) == "table" do x = x[1] end
  return #x
end

local solve = bind.as("linalg_solve_triangular", "lu_solve")
local order = bind.as("linalg_lu_order", "lu_solve")

--- moth.linalg.lu_solve(LU, pivots, B): solves with the factors of lu_factor.
lu.lu_solve = define {
  name = "lu_solve",
  doc = "Solves A X = B with the factors of A from lu_factor.",
  examples = "moth.eye(2), moth.tensor{1LL, 2LL}, moth.ones(2, 1)  -- domain: matrix\n"
    .. "moth.eye(2), moth.tensor{2LL, 2LL}, moth.ones(1, 2), {left = false, adjoint = true}"
    .. "  -- domain: matrix",
  args = {
    {"tensor", "LU", "factors, (..., N, N)"},
    {"index", "pivots", "the row with which each row was swapped, (..., N)"},
    {"tensor", "B", "right sides, (..., N, K); (..., K, N) without `left`"},
    {"bool", "left", "A X = B, not X A = B", default = true},
    {"bool", "adjoint", "solve with A transposed?", default = false},
  },
  scoped = true,
  run = function(factors, pivots, b, left, adjoint)
    if factors:dim() < 2 or factors:size(-1) ~= factors:size(-2) then
      errors.refuse("lu_solve", "LU", "square factors, (..., N, N), are needed", factors, "E_SHAPE")
    end
    if b:dim() < 2 or b:size(left and -2 or -1) ~= factors:size(-1) then
      errors.argument("lu_solve", "B", ("%s does not fit %s"):format(errors.describe(b),
        errors.describe(factors)), "E_SHAPE")
    end
    local n = factors:size(-1)
    if pivots_of(pivots) ~= n then
      errors.refuse("lu_solve", "pivots",
        ("%d are needed for each of %s"):format(n, errors.describe(factors)), pivots, "E_SHAPE")
    end
    if not left then b, adjoint = b:transpose(-1, -2), not adjoint end
    local y
    if adjoint then -- U' L' P' X = B
      local turned = factors:transpose(-1, -2)
      y = solve(turned, b, {upper = false})
      y = solve(turned, y, {upper = true, unitriangular = true})
      y = rows_at(y, order(pivots, n, true))
    else
      y = rows_at(b, order(pivots, n))
      y = solve(factors, y, {upper = false, unitriangular = true})
      y = solve(factors, y, {upper = true})
    end
    if not left then y = y:transpose(-1, -2) end
    return y
  end,
}

-- ---- least squares ----

local least = bind.as("linalg_lstsq_solve", "lstsq")

-- Returns true if b is a stack of vectors for the matrices x.
local function vectors(x, b)
  if b:dim() == 1 then return true end
  if b:dim() ~= x:dim() - 1 then return false end
  for d = 1, b:dim() do
    if b:size(d) ~= x:size(d) then return false end
  end
  return true
end

--- moth.linalg.lstsq(A, B) -> solution, residuals, rank, singular_values.
lu.lstsq = define {
  name = "lstsq",
  doc = "The X that minimizes |A X - B|, the smallest if there are several; the squared residuals, "
    .. "if M > N and every A has full rank; the ranks, except with the driver gels; and the "
    .. "singular values, if the driver computes them.",
  examples = "moth.randn(4, 2), moth.randn(4, 1)  -- domain: matrix\n"
    .. "moth.randn(4, 2), moth.randn(4), {rcond = 1e-4, driver = 'gelsd'}  -- domain: matrix",
  outputs = "solution, residuals, rank, singular_values",
  args = {
    A,
    {"tensor", "B", "right sides, (..., M, K) or (..., M)"},
    {"float", "rcond", "relative tolerance: smaller singular values count as 0; default: the "
      .. "larger "
      .. "size times the dtype's precision", optional = true},
    {"enum", "driver", "LAPACK's driver: QR with column pivoting, QR for matrices of full "
      .. "rank, singular values (two)", choices = {"gelsy", "gels", "gelsd", "gelss"}},
  },
  scoped = true,
  run = function(x, b, rcond, driver)
    local vector = x:dim() >= 2 and b:dim() >= 1 and vectors(x, b)
    if vector then b = b:unsqueeze(-1) end
    local y, rank, values = least(x, b, rcond, driver)
    local residuals
    if x:size(-2) > x:size(-1) and rank:eq(x:size(-1)):all():item() then
      residuals = (x:matmul(y) - b):square():sum(-2)
      if vector then residuals = residuals:squeeze(-1) end
    else
      residuals = ops.zeros({0}, {dtype = x.dtype, device = x.device})
      residuals = attach(attach(residuals, x), b)
    end
    if vector then y = y:squeeze(-1) end
    if driver == "gels" then rank = ops.zeros({0}, {dtype = rank.dtype, device = x.device}) end
    if driver == "gels" or driver == "gelsy" then
      values = ops.zeros({0}, {dtype = x.dtype, device = x.device})
    end
    return y, residuals, rank, values
  end,
}

return lu
