--- init.lua -- moth.linalg: factorizations, linear systems, matrix norms.
--
--     local L = moth.linalg.cholesky(A)
--     local U, S, Vh = moth.linalg.svd(A, {full_matrices = false})
--
-- Every function accepts batches of matrices, (..., M, N). LAPACK computes them on the CPU. On a
-- GPU cholesky, cholesky_ex and solve_triangular have kernels; the others copy their tensors to the
-- CPU and back, which synchronizes. This file has the functions composed of several ops.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"
local attach = require("moth.autograd.attach").attach

local ops = bind.ops
local huge = math.huge

local linalg = {}

-- Ops that are functions of this namespace without changes.
local OPS = {}
for name in ("cholesky cholesky_ex det eigh eigvalsh inv inv_ex qr slogdet solve solve_triangular "
  .. "svd svdvals eig eigvals"):gmatch "%S+" do OPS[name] = "linalg_" .. name end
OPS.matmul = "matmul"

-- Ops whose errors name the calling function; `args` renames their arguments.
local bound = {}
local function as(op, name, args)
  local key = op .. " " .. name
  local fn = bound[key]
  if not fn then
    fn = bind.as(op, name, args)
    bound[key] = fn
  end
  return fn
end

local function need_matrices(fname, x, square)
  local n = x:dim()
  if n < 2 or square and x:size(n) ~= x:size(n - 1) then
    errors.argument(fname, "A", (square and "a square matrix or a batch, (..., N, N), "
      or "a matrix or a batch, (..., M, N), ") .. "is needed, got " .. errors.describe(x),
      "E_SHAPE")
  end
end

local EPS = {[8] = 2 ^ -52, [4] = 2 ^ -23}

-- The default relative tolerance: smaller singular values count as 0.
local function usual(x)
  return (EPS[x:element_size()] or 2 ^ -23) * math.max(x:size(-1), x:size(-2))
end

-- ---- norms ----

local REDUCE = {
  {"bool", "keepdim", "keep the dimensions with size 1", default = false},
  {"dtype", "dtype", "converts the input first", optional = true},
}

local function list_of(dim)
  if type(dim) == "number" then return {dim} end
  return dim
end

local function vector_norm(fname, x, ord, dim, keepdim, dtype)
  if type(ord) ~= "number" then
    errors.argument(fname, "ord", "a number is needed for vectors, got " .. errors.describe(ord),
      "E_TYPE")
  end
  return (as("norm_p", fname)(x, ord, dim, keepdim, dtype))
end

local WORDS = {fro = true, nuc = true}
local ORDERS = {[1] = true, [-1] = true, [2] = true, [-2] = true, [huge] = true, [-huge] = true}

-- Restores the two reduced dimensions of x, with size 1, in y.
local function kept(y, x, dims)
  local n, ones = x:dim(), {}
  for d = 1, n do ones[d] = x:size(d) end
  for _, d in ipairs(dims) do ones[d < 0 and d + n + 1 or d] = 1 end
  return (y:reshape(ones))
end

-- The maximum along the last dimension; 0 if it is empty.
local function largest(x) return x:size(-1) == 0 and x:sum(-1) or x:amax(-1) end

-- The minimum along the last dimension; `of` are the matrices, for messages.
local function smallest(fname, x, of)
  if x:size(-1) == 0 then
    errors.refuse(fname, "A", "matrices without elements have no smallest sum or singular value",
      of, "E_SHAPE")
  end
  return (x:amin(-1))
end

local function check_order(fname, argname, ord)
  if WORDS[ord] or ORDERS[ord] then return end
  errors.argument(fname, argname, "the norms of matrices are 'fro', 'nuc', math.huge, 1, 2, "
    .. "-math.huge, -1 and -2, got " .. errors.describe(ord), "E_ARG")
end

local function matrix_norm(fname, x, ord, dims, keepdim, dtype)
  dims = list_of(dims) or { -2, -1}
  if #dims ~= 2 then
    errors.argument(fname, "dim", "two dimensions are needed, got " .. #dims, "E_ARG")
  end
  if x:dim() < 2 then need_matrices(fname, x) end
  check_order(fname, "ord", ord)
  if ord == "fro" then return vector_norm(fname, x, 2, dims, keepdim, dtype) end
  if dtype then x = x:to(dtype) end
  local m = as("movedim", fname, {source = "dim"})(x, dims, { -2, -1})
  local y
  if ord == "nuc" then
    y = as("linalg_svdvals", fname)(m):sum(-1)
  elseif ord == 2 or ord == -2 then
    local values = as("linalg_svdvals", fname)(m)
    y = ord == 2 and largest(values) or smallest(fname, values, x)
  else
    local sums = m:abs():sum((ord == 1 or ord == -1) and -2 or -1)
    y = ord > 0 and largest(sums) or smallest(fname, sums, x)
  end
  if keepdim then return (kept(y, x, dims)) end
  return y
end

--- moth.linalg.vector_norm(x, ord, dim, keepdim): of all elements, or along dimensions.
linalg.vector_norm = define {
  name = "vector_norm",
  doc = "The ord-norm of the elements along dimensions: the ord-th root of the sum of |x|^ord. "
    .. "math.huge: the largest |x|; 0: the number of elements that are not 0.",
  examples = "moth.randn(2, 3)\n"
    .. "moth.randn(2, 3), 1, {dim = 2, keepdim = true, dtype = moth.float64}",
  args = {
    {"tensor", "x", "tensor of any shape"},
    {"float", "ord", "the order of the norm", default = 2},
    {"dims", "dim", "dimensions to reduce; default: all", optional = true},
    REDUCE[1], REDUCE[2],
  },
  run = function(x, ord, dim, keepdim, dtype)
    return (vector_norm("vector_norm", x, ord, dim, keepdim, dtype))
  end,
}

--- moth.linalg.matrix_norm(A, ord, dim, keepdim): 'fro', 'nuc', math.huge, 1, 2 and negatives.
linalg.matrix_norm = define {
  name = "matrix_norm",
  doc = "A norm of matrices: 'fro' the norm of the elements, 'nuc' the sum of the singular values, "
    .. "2 the largest singular value, 1 the largest sum of |A| of a column, math.huge of a row; "
    .. "-2, -1 and -math.huge the smallest.",
  examples = "moth.randn(2, 3)\n"
    .. "moth.randn(2, 3, 4), 1, {dim = {1, 3}, keepdim = true, dtype = moth.float64}",
  args = {
    {"tensor", "A", "matrices, (..., M, N)"},
    {"any", "ord", "the norm", default = "fro"},
    {"dims", "dim", "dimensions of the rows and the columns; default: the last two",
      optional = true},
    REDUCE[1], REDUCE[2],
  },
  scoped = true,
  run = function(x, ord, dim, keepdim, dtype)
    return (matrix_norm("matrix_norm", x, ord, dim, keepdim, dtype))
  end,
}

--- moth.linalg.norm(A, ord, dim, keepdim): vector_norm along one dimension, matrix_norm along two.
linalg.norm = define {
  name = "norm",
  doc = "A norm of vectors along one dimension, or of matrices along two: see vector_norm and "
    .. "matrix_norm. Without `ord` it is the 2-norm of all elements.",
  examples = "moth.randn(2, 3)\nmoth.randn(2, 3), 'nuc'  -- domain: matrix\n"
    .. "moth.randn(2, 3), 1, {dim = 2, keepdim = true, dtype = moth.float64}",
  args = {
    {"tensor", "A", "tensor of any shape; a vector or a matrix with `ord` and without `dim`"},
    {"any", "ord", "the norm; default: 2, or 'fro'", optional = true},
    {"dims", "dim", "one dimension, or two; default: all", optional = true},
    REDUCE[1], REDUCE[2],
  },
  scoped = true,
  run = function(x, ord, dim, keepdim, dtype)
    dim = list_of(dim)
    if type(ord) == "nil" then return (vector_norm("norm", x, 2, dim, keepdim, dtype)) end
    if dim == nil and x:dim() > 2 then
      errors.argument("norm", "dim", "is needed with `ord` for " .. errors.describe(x), "E_SHAPE")
    end
    if (dim and #dim or x:dim()) == 2 then
      return (matrix_norm("norm", x, ord, dim, keepdim, dtype))
    end
    return (vector_norm("norm", x, ord, dim, keepdim, dtype))
  end,
}

--- moth.linalg.cond(A, p): the condition number, the largest ratio of the relative errors of a
-- solution and of the right side.
linalg.cond = define {
  name = "cond",
  doc = "The condition number: the norm of A times the norm of its inverse; infinite for a "
    .. "singular A. For p = 2 and -2 it uses singular values, and A may have any shape.",
  examples = "moth.eye(3) * 2  -- domain: matrix\nmoth.eye(3), {p = 'fro'}  -- domain: matrix",
  args = {
    {"tensor", "A", "matrices, (..., M, N); square ones unless p is 2 or -2"},
    {"any", "p", "the norm, as in matrix_norm", default = 2},
  },
  scoped = true,
  run = function(x, p)
    check_order("cond", "p", p)
    need_matrices("cond", x, p ~= 2 and p ~= -2)
    if p == 2 or p == -2 then
      local s = as("linalg_svdvals", "cond")(x)
      if s:size(-1) == 0 then return (s:sum(-1)) end
      local first, last = s:select(-1, 1), s:select(-1, s:size(-1))
      if p == 2 then return (first / last) end
      return (last / first)
    end
    local norm = matrix_norm("cond", x, p)
    local sign = as("linalg_slogdet", "cond")(x:detach())
    local gone = sign:eq(0)
    local one = ops.eye(x:size(-1), {dtype = x.dtype, device = x.device})
    local safe = ops.where(gone:unsqueeze(-1):unsqueeze(-1), one, x)
    local other = matrix_norm("cond", as("linalg_inv", "cond")(safe), p)
    return (ops.where(gone, huge, norm * other))
  end,
}

-- ---- ranks, pseudoinverses ----

local HERMITIAN = {"bool", "hermitian", "is A symmetric? only its lower triangle is read",
                    default = false}

-- Symmetric matrices from their lower triangles. The gradient is symmetric too.
local function symmetric(x)
  local y = x:detach()
  y = y:tril() + y:tril(-1):transpose(-1, -2)
  if not x.requires_grad then return y end
  local both = (x + x:transpose(-1, -2)) * 0.5
  return y + (both - both:detach())
end

--- moth.linalg.matrix_rank(A, atol, rtol, hermitian).
linalg.matrix_rank = define {
  name = "matrix_rank",
  doc = "The number of singular values of a matrix above `atol` and above `rtol` times the "
    .. "largest. The default of `rtol`, unless `atol` is above 0, is the larger size times the "
    .. "dtype's precision.",
  examples = "moth.eye(3)\nmoth.eye(3), {atol = 0.1, rtol = 0.01, hermitian = true}",
  args = {
    {"tensor", "A", "matrices, (..., M, N)"},
    {"tensor", "atol", "lower bound: a number, or one for each matrix",
      numbers = true, optional = true},
    {"tensor", "rtol", "lower bound, relative to the largest", numbers = true, optional = true},
    HERMITIAN,
  },
  scoped = true,
  run = function(x, atol, rtol, hermitian)
    need_matrices("matrix_rank", x, hermitian)
    for name, least in pairs {atol = atol, rtol = rtol} do
      if type(least) == "boolean" then
        errors.refuse("matrix_rank", name, "a number or a tensor is needed", least, "E_TYPE")
      end
    end
    x = x:detach()
    local s = hermitian and as("linalg_eigvalsh", "matrix_rank")(x):abs()
      or as("linalg_svdvals", "matrix_rank")(x)
    if s:size(-1) == 0 then return (s:sum(-1):long()) end
    if type(rtol) == "nil" then
      if type(atol) == "cdata" then rtol = ops.where(atol:gt(0), 0, usual(x))
      else rtol = (atol or 0) > 0 and 0 or usual(x) end
    end
    local least = ops.clamp(s:amax(-1) * rtol, type(atol) == "nil" and 0 or atol)
    return (s:gt(least:unsqueeze(-1)):sum(-1))
  end,
}

-- Returns tolerances in a tensor as numbers for the n matrices of a batch.
local function tolerances(name, v, batch, n)
  if type(v) ~= "cdata" then return lib.filled(n, v) end
  local fits, list = pcall(function() return v:detach():expand(batch):reshape(-1):tolist() end)
  if not fits then
    errors.refuse("pinv", name, "a number, or one for each matrix, is needed", v, "E_SHAPE")
  end
  return list
end

-- Computes the pseudoinverses of matrices with a separate tolerance for each matrix.
local function pinv_each(x, atol, rtol)
  local pinv, batch, n = as("linalg_pinv", "pinv"), {unpack(x.shape, 1, x:dim() - 2)}, 1
  for _, size in ipairs(batch) do n = n * size end
  if n == 0 then return (pinv(x)) end
  local low, part = tolerances("atol", atol, batch, n), tolerances("rtol", rtol, batch, n)
  local flat, list = x:reshape(n, x:size(-2), x:size(-1)), {}
  for i = 1, n do list[i] = pinv(flat[i], low[i], part[i]) end
  batch[#batch + 1], batch[#batch + 2] = x:size(-1), x:size(-2)
  return (ops.stack(list, 1):reshape(batch))
end

--- moth.linalg.pinv(A, atol, rtol, hermitian).
linalg.pinv = define {
  name = "pinv",
  doc = "The pseudoinverse of a matrix. Singular values up to `atol`, or up to `rtol` times the "
    .. "largest, count as 0.",
  examples = "moth.eye(2, 3)  -- domain: matrix\n"
    .. "moth.eye(3), {atol = 0.1, rtol = 0.01, hermitian = true}  -- domain: symmetric",
  args = {
    {"tensor", "A", "matrices, (..., M, N)"},
    {"tensor", "atol", "singular values up to atol count as 0: a number, or one for each matrix",
      numbers = true, default = 0},
    {"tensor", "rtol", "relative tolerance; default, if atol is 0: the larger "
      .. "size times the dtype's precision", numbers = true, optional = true},
    HERMITIAN,
  },
  scoped = true,
  run = function(x, atol, rtol, hermitian)
    need_matrices("pinv", x, hermitian)
    if hermitian then x = symmetric(x) end
    if type(atol) == "cdata" or type(rtol) == "cdata" then return (pinv_each(x, atol, rtol)) end
    return (as("linalg_pinv", "pinv")(x, atol, rtol))
  end,
}

-- ---- products ----

--- moth.linalg.matrix_power(A, n): by repeated squaring.
linalg.matrix_power = define {
  name = "matrix_power",
  doc = "The n-th power of a square matrix; for a negative n a power of its inverse.",
  examples = "moth.eye(2) * 2, 3\nmoth.eye(2) * 2, -2  -- domain: matrix",
  args = {
    {"tensor", "A", "matrices, (..., N, N)"},
    {"int", "n", "the exponent"},
  },
  scoped = true,
  run = function(x, n)
    need_matrices("matrix_power", x, true)
    if n == 0 then
      local one = ops.eye(x:size(-1), {dtype = x.dtype, device = x.device})
      return (attach(one:expand(x.shape):clone(), x))
    end
    if n < 0 then x, n = as("linalg_inv", "matrix_power")(x), -n end
    local y
    while true do
      if n % 2 == 1 then y = y and y:matmul(x) or x end
      n = math.floor(n / 2)
      if n == 0 then break end
      x = x:matmul(x)
    end
    return y:clone()
  end,
}

-- Finds the order of products with the fewest multiplications: the product of matrices i to j is
-- split after cut[i][j]. Matrix i has sizes[i] rows and sizes[i + 1] columns.
local function cuts(sizes)
  local n, cost, cut = #sizes - 1, {}, {}
  for i = 1, n do cost[i], cut[i] = {[i] = 0}, {} end
  for length = 2, n do
    for i = 1, n - length + 1 do
      local j = i + length - 1
      for k = i, j - 1 do
        local c = cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
        if not cost[i][j] or c < cost[i][j] then cost[i][j], cut[i][j] = c, k end
      end
    end
  end
  return cut
end

--- moth.linalg.multi_dot{A, B, C}: the product of several matrices.
linalg.multi_dot = define {
  name = "multi_dot",
  doc = "The product of two or more matrices, in the order that needs the fewest multiplications. "
    .. "The first and the last may be vectors.",
  examples = "{moth.randn(2, 3), moth.randn(3, 4), moth.randn(4)}",
  args = {{"tensors", "tensors", "matrices of matching sizes"}},
  scoped = true,
  run = function(list)
    local n, sizes, given = #list, {}, {}
    if n < 2 then
      errors.argument("multi_dot", "tensors", "at least two are needed, got " .. n, "E_ARG")
    end
    for i, x in ipairs(list) do
      local vector = x:dim() == 1 and (i == 1 or i == n)
      if not vector and x:dim() ~= 2 then
        errors.argument("multi_dot", "tensors", ("element %d should be a matrix, got %s"):format(i,
          errors.describe(x)), "E_SHAPE")
      end
      given[i] = vector and x:unsqueeze(i == 1 and 1 or 2) or x
      if sizes[i] and sizes[i] ~= given[i]:size(1) then
        errors.argument("multi_dot", "tensors", ("element %d, %s, should have %d rows"):format(i,
          errors.describe(x), sizes[i]), "E_SHAPE")
      end
      sizes[i], sizes[i + 1] = given[i]:size(1), given[i]:size(2)
    end
    local cut = cuts(sizes)
    local function product(i, j)
      if i == j then return given[i] end
      return (product(i, cut[i][j]):matmul(product(cut[i][j] + 1, j)))
    end
    local y = product(1, n)
    if list[n]:dim() == 1 then y = y:squeeze(2) end
    if list[1]:dim() == 1 then y = y:squeeze(1) end
    return y
  end,
}

--- moth.linalg.cross(input, other, dim).
linalg.cross = define {
  name = "cross",
  doc = "The cross product of vectors of three numbers along `dim`.",
  examples = "moth.randn(2, 3), moth.randn(2, 3)\nmoth.randn(3, 2), moth.randn(3, 2), {dim = 1}",
  args = {
    {"tensor", "input", "vectors of 3 numbers"},
    {"tensor", "other", "vectors of 3 numbers, with the same number of dimensions; broadcast"},
    {"dim", "dim", "dimension of the vectors", default = -1},
  },
  scoped = true,
  run = function(a, b, dim)
    if a:dim() ~= b:dim() then
      errors.argument("cross", "other", ("the input's number of dimensions is needed, got %s "
        .. "for %s"):format(errors.describe(b), errors.describe(a)), "E_SHAPE")
    end
    for _, row in ipairs {{"input", a}, {"other", b}} do
      local name, x = unpack(row)
      if dim == 0 or math.abs(dim) > x:dim() or x:size(dim) ~= 3 then
        errors.argument("cross", name, ("vectors of 3 numbers are needed along dim %d, got %s")
          :format(dim, errors.describe(x)), "E_SHAPE")
      end
    end
    local x, y, z = unpack(a:unbind(dim))
    local u, v, w = unpack(b:unbind(dim))
    return (ops.stack({y * w - z * v, z * u - x * w, x * v - y * u}, dim))
  end,
}

--- moth.linalg.vecdot(x, y, dim).
linalg.vecdot = define {
  name = "vecdot",
  doc = "The dot products of vectors along `dim`.",
  examples = "moth.randn(2, 3), moth.randn(2, 3)\nmoth.randn(2, 3), moth.randn(3), {dim = -1}",
  args = {
    {"tensor", "x", "vectors"},
    {"tensor", "y", "vectors of the same length; broadcast"},
    {"dim", "dim", "dimension of the vectors", default = -1},
  },
  scoped = true,
  run = function(x, y, dim)
    if dim > 0 then dim = dim - math.max(x:dim(), y:dim()) - 1 end
    if x:dim() == 0 and y:dim() > 0 then x = x:expand_as(y) end
    if y:dim() == 0 and x:dim() > 0 then y = y:expand_as(x) end
    local least = math.min(x:dim(), y:dim())
    if -dim > least or x:size(dim) ~= y:size(dim) then
      errors.argument("vecdot", "y", ("vectors of one length are needed, got %s and %s"):format(
        errors.describe(x), errors.describe(y)), "E_SHAPE")
    end
    if x.dtype == y.dtype and x:is_floating_point() and x:element_size() > 2
      and math.max(x:dim(), y:dim()) > 1 then
      return ((x * y):sum(dim)) -- twice as fast as a batched product of vectors of length 120
    end
    local row, column = x:movedim(dim, -1):unsqueeze(-2), y:movedim(dim, -1):unsqueeze(-1)
    return (row:matmul(column):squeeze(-1):squeeze(-1))
  end,
}

--- moth.linalg.diagonal(A, offset, dim1, dim2): a view; by default of the last two dimensions.
linalg.diagonal = define {
  name = "diagonal",
  doc = "A view of the diagonals of matrices, which become the last dimension.",
  examples = "moth.randn(3, 3)\nmoth.randn(2, 3, 4), {offset = 1, dim1 = 1, dim2 = 3}",
  args = {{"tensor", "A", "matrices"},
           {"int", "offset", "the diagonal; positive: above the main diagonal", default = 0},
           {"dim", "dim1", "dimension of the rows", default = -2},
           {"dim", "dim2", "dimension of the columns", default = -1}},
  run = function(x, offset, dim1, dim2) return (ops.diagonal(x, offset, dim1, dim2)) end,
}

-- ---- the namespace ----

local rows = {}
lazy.from(rows, "moth.linalg.lu", "lu lu_factor lu_solve lstsq")
lazy.from(rows, "moth.linalg.matfun", "matrix_exp vander tensorinv tensorsolve polar "
  .. "householder_product")
lazy.from(rows, "moth.linalg.factors", "solve_ex lu_factor_ex matrix_sqrth")

local function find(name) return OPS[name] and bind.as(OPS[name], name) end

local function names()
  local list = {}
  for name in pairs(OPS) do list[#list + 1] = name end
  return list
end

return (lazy.namespace("moth.linalg", linalg, rows, {find = find, names = names}))
