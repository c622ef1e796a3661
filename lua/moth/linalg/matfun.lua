--- matfun.lua -- moth.linalg.matrix_exp, vander, tensorinv, tensorsolve, polar,
-- householder_product.

local bind = require "moth.binding.bind"
local attach = require("moth.autograd.attach").attach
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops = bind.ops
local matfun = {}

-- ---- matrix_exp ----

-- The coefficients of the numerator of the Pade approximant of degree 13, from power 0 on. In the
-- denominator the odd coefficients have the opposite sign.
local PADE = {64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800,
  129060195264000, 10559470521600, 670442572800, 33522128640, 1323241920, 40840800, 960960,
  16380, 182, 1}
local REACH = 5.37 -- the norm up to which the approximant has full f64 precision

local solve = bind.as("linalg_solve", "matrix_exp")

-- Returns true if one scale is good for all matrices of a stack: more squarings than a matrix needs
-- lose precision.
local function alike(norms)
  local least, most = norms:aminmax()
  return most:item() <= math.max(least:item(), REACH) * 2 ^ 6
end

local function one_by_one(x)
  local list = {}
  for i = 1, x:size(1) do list[i] = matfun.matrix_exp(x:select(1, i)) end
  return (ops.stack(list, 1))
end

--- moth.linalg.matrix_exp(A): by a Pade approximant of A / 2^s, squared s times (Higham, 2005).
matfun.matrix_exp = define {
  name = "matrix_exp",
  doc = "The exponential of a square matrix: the sum of A^k / k!.",
  examples = "moth.randn(2, 2)\nmoth.randn(2, 3, 3)",
  args = {{"tensor", "A", "matrices, (..., N, N)"}},
  scoped = true,
  run = function(x)
    local n = x:dim()
    if n < 2 or x:size(n) ~= x:size(n - 1) then
      errors.refuse("matrix_exp", "A", "a square matrix or a batch, (..., N, N), is needed",
        x, "E_SHAPE")
    end
    if not x:is_floating_point() then
      errors.refuse("matrix_exp", "A", "a float tensor is needed", x, "E_DTYPE")
    end
    if x:element_size() < 4 then return (matfun.matrix_exp(x:float()):to(x.dtype)) end
    if x:numel() == 0 then return x * 1 end
    local norms = x:detach():abs():sum(-2):amax(-1)
    if n > 2 and not alike(norms) then return (one_by_one(x)) end
    local norm, times = norms:max():item(), 0
    while norm > REACH and norm < math.huge do norm, times = norm / 2, times + 1 end
    if times > 0 then x = x / 2 ^ times end
    local one = ops.eye(x:size(-1), {dtype = x.dtype, device = x.device})
    local x2 = x:matmul(x)
    local x4 = x2:matmul(x2)
    local x6 = x2:matmul(x4)
    -- Returns every second term, from `first` on: c0 + c2 x2 + c4 x4 + x6 (c6 + c8 x2 + ...).
    local function terms(first)
      local function c(k) return PADE[first + k + 1] / PADE[1] end
      local high = x2 * c(8) + x4 * c(10) + x6 * c(12)
      return x6:matmul(high) + x6 * c(6) + x4 * c(4) + x2 * c(2) + one * c(0)
    end
    local even, odd = terms(0), x:matmul(terms(1))
    local y = solve(even - odd, even + odd)
    for _ = 1, times do y = y:matmul(y) end
    return y
  end,
}

-- ---- vander ----

--- moth.linalg.vander(x, N): the powers of each number, starting with 0.
matfun.vander = define {
  name = "vander",
  doc = "The powers of each number, from 0 to N - 1, as rows.",
  examples = "moth.randn(3)\nmoth.randn(2, 3), {N = 2}",
  args = {
    {"tensor", "x", "numbers, (..., M)"},
    {"int", "N", "number of powers; default: M", optional = true},
  },
  scoped = true,
  run = function(x, count)
    if x:dim() == 0 then x = x:reshape(1) end
    count = count or x:size(-1)
    if count < 0 then
      errors.argument("vander", "N", "a number from 0 on is needed, got " .. count, "E_ARG")
    end
    if not x:is_floating_point() then x = x:long() end
    x = x:unsqueeze(-1)
    if count < 2 then return (attach(ops.ones_like(x):narrow(-1, 1, count), x)) end
    local sizes = lib.filled(x:dim(), -1)
    sizes[#sizes] = count - 1
    return (ops.cat({ops.ones_like(x), x:expand(sizes):cumprod(-1)}, -1))
  end,
}

-- ---- tensors as matrices ----

local function product(list, first, last)
  local n = 1
  for i = first, last do n = n * list[i] end
  return n
end

local function sizes_of(x)
  local list = {}
  for d = 1, x:dim() do list[d] = x:size(d) end
  return list
end

local invert = bind.as("linalg_inv", "tensorinv")

--- moth.linalg.tensorinv(A, ind): the inverse for tensordot over `ind` dimensions.
matfun.tensorinv = define {
  name = "tensorinv",
  doc = "The inverse of a tensor as a matrix: the first `ind` dimensions are the matrix's rows.",
  examples = "moth.eye(3):reshape(1, 3, 3)  -- domain: matrix\n"
    .. "moth.eye(3), {ind = 1}  -- domain: matrix",
  args = {
    {"tensor", "A", "the products of the first `ind` sizes and of the others must be equal"},
    {"int", "ind", "number of dimensions of the rows", default = 2},
  },
  scoped = true,
  run = function(x, ind)
    local sizes = sizes_of(x)
    if ind < 1 or ind > #sizes then
      errors.argument("tensorinv", "ind", ("1 to %d dimensions are possible, got %d"):format(
        #sizes, ind), "E_ARG")
    end
    local rows, columns = product(sizes, 1, ind), product(sizes, ind + 1, #sizes)
    if rows ~= columns then
      errors.argument("tensorinv", "A", ("%s is not a square matrix: %d rows, %d columns"):format(
        errors.describe(x), rows, columns), "E_SHAPE")
    end
    local shape = {}
    for d = ind + 1, #sizes do shape[#shape + 1] = sizes[d] end
    for d = 1, ind do shape[#shape + 1] = sizes[d] end
    return (invert(x:reshape(rows, columns)):reshape(shape))
  end,
}

local equations = bind.as("linalg_solve", "tensorsolve")

--- moth.linalg.tensorsolve(A, B, dims): the X whose tensordot with A is B.
matfun.tensorsolve = define {
  name = "tensorsolve",
  doc = "The X for which tensordot(A, X, X:dim()) is B.",
  examples = "moth.eye(3):reshape(1, 3, 3), moth.ones(1, 3)  -- domain: matrix\n"
    .. "moth.eye(3), moth.ones(3), {dims = {1}}  -- domain: matrix",
  args = {
    {"tensor", "A", "a tensor with the sizes of B, then of X, after `dims` are moved"},
    {"tensor", "B", "right side"},
    {"dims", "dims", "dimensions of A to move to the end first", optional = true},
  },
  scoped = true,
  run = function(x, b, dims)
    if type(dims) == "number" then dims = {dims} end
    if b:dim() > x:dim() then
      errors.argument("tensorsolve", "B", ("%s has more dimensions than A, %s"):format(
        errors.describe(b), errors.describe(x)), "E_SHAPE")
    end
    for _, d in ipairs(dims or {}) do errors.dim("tensorsolve", "dims", d, x:dim()) end
    if dims then
      local ends = {}
      for i = 1, #dims do ends[i] = i - #dims - 1 end
      x = x:movedim(dims, ends)
    end
    local sizes, n, shape = sizes_of(x), b:numel(), {}
    for d = b:dim() + 1, #sizes do shape[#shape + 1] = sizes[d] end
    if product(sizes, 1, b:dim()) ~= n or product(shape, 1, #shape) ~= n then
      errors.argument("tensorsolve", "B", ("%s does not fit %s"):format(errors.describe(b),
        errors.describe(x)), "E_SHAPE")
    end
    return (equations(x:reshape(n, n), b:reshape(n)):reshape(shape))
  end,
}

-- ---- orthogonal factors ----

--- moth.linalg.polar(A) -> U, H: A = U H.
matfun.polar = define {
  name = "polar",
  doc = "A = U H: the nearest matrix to A with orthonormal columns, and a symmetric matrix without "
    .. "negative eigenvalues.",
  examples = "moth.eye(3, 2)  -- domain: matrix",
  outputs = "U, H",
  args = {{"tensor", "A", "matrices, (..., M, N) with M >= N"}},
  scoped = true,
  run = function(x)
    if x:dim() < 2 or x:size(-2) < x:size(-1) then
      errors.refuse("polar", "A", "matrices with at least as many rows as columns are needed", x,
        "E_SHAPE")
    end
    local W, S, Vh = require("moth").linalg.svd(x, {full_matrices = false})
    return W:matmul(Vh), (Vh:transpose(-1, -2):matmul(S:unsqueeze(-1) * Vh))
  end,
}

local triangular = {} -- a function's name -> linalg_solve_triangular, whose messages name it

--- Returns the product of reflections and y, or its transpose times y. The matrices x (..., M, N)
-- contain the reflections' vectors, tau (..., K) their factors. The product is 1 - V T V', where V
-- contains the vectors, and the inverse of T is upper triangular: 1 / tau on the diagonal, V' V
-- above it (Schreiber and Van Loan, 1989).
-- @param name  the function that the user called
function matfun.reflected(name, x, tau, y, transpose)
  local m, n, k = x:size(-2), x:size(-1), tau:size(-1)
  if k == 0 then return y end
  local low = x:tril(-1) + ops.eye(m, n, {dtype = x.dtype, device = x.device})
  local v, by = low:narrow(-1, 1, k), tau:unsqueeze(-1)
  local turned = v:transpose(-1, -2)
  local inner, upper = turned:matmul(y), (by * turned:matmul(v)):triu(1)
  triangular[name] = triangular[name] or bind.as("linalg_solve_triangular", name)
  local divide = triangular[name]
  if transpose then
    inner = by * divide(upper:transpose(-1, -2), inner, {upper = false, unitriangular = true})
  else
    inner = divide(upper, by * inner, {upper = true, unitriangular = true})
  end
  return y - v:matmul(inner)
end

--- moth.linalg.householder_product(A, tau): the matrix Q of the reflections.
matfun.householder_product = define {
  name = "householder_product",
  doc = "The first N columns of the product of the reflections 1 - tau[i] b b^T, where b is column "
    .. "i of A below the diagonal, and 1 on the diagonal.",
  examples = "moth.randn(4, 3), moth.rand(2)\nmoth.randn(2, 3, 3), moth.rand(2, 3)",
  args = {{"tensor", "A", "matrices, (..., M, N) with M >= N"},
           {"tensor", "tau", "(..., K) with K <= N"}},
  scoped = true,
  run = function(x, tau)
    local m, n, k = x:dim() > 1 and x:size(-2) or 0, x:dim() > 0 and x:size(-1) or 0,
      tau:dim() > 0 and tau:size(-1) or 0
    if x:dim() < 2 or m < n or k > n or tau:dim() ~= x:dim() - 1 then
      errors.argument("householder_product", "tau", ("factors (..., K) for A's first columns, and "
        .. "no more columns than rows, are needed, got %s and %s"):format(errors.describe(x),
        errors.describe(tau)), "E_SHAPE")
    end
    local like = {dtype = x.dtype, device = x.device}
    local y = matfun.reflected("householder_product", x, tau, ops.eye(m, n, like):expand_as(x))
    return (attach(attach(y, x), tau))
  end,
}

return matfun
