-- moth.linalg: errors, singular and infinite matrices, signs, threads, a machine without LAPACK.
-- golden_spec and ops_spec check values and gradients.

local moth = require "moth"
local process = require "spec.support.process"

local linalg = moth.linalg
local f64 = {dtype = moth.float64}

local function refuses(fn, message, code)
  assert.error_matches(fn, message, 1, true)
  assert.equal(code, moth.errcode())
end

describe("a singular matrix", function()
  local stack = moth.stack {moth.eye(2), moth.tensor{{1, 2}, {2, 4}}, moth.zeros(2, 2)}

  it("is named, with the op and its position in the batch", function()
    refuses(function() linalg.inv(stack) end,
      "bad argument 'A' to 'inv' (matrix 2 of f32 (3, 2, 2) is singular", "E_DOMAIN")
    refuses(function() return (stack:inverse()) end, "to 'inverse' (matrix 2 of", "E_DOMAIN")
    refuses(function() linalg.solve(stack, moth.ones(2, 1)) end,
      "bad argument 'A' to 'solve' (matrix 2 of", "E_DOMAIN")
    refuses(function() linalg.solve(moth.zeros(2, 2), moth.ones(2)) end,
      "'solve' (f32 (2, 2) is singular", "E_DOMAIN")
    refuses(function() linalg.matrix_power(stack, -1) end, "'matrix_power' (matrix 2", "E_DOMAIN")
    refuses(function() linalg.cholesky(stack * 1) end,
      "to 'cholesky' (matrix 2 of f32 (3, 2, 2) is not positive-definite: the leading block of "
      .. "size 2 is not)", "E_DOMAIN")
    local flat = moth.tensor{{1, 0}, {0, 0}, {0, 0}}
    refuses(function() linalg.lstsq(flat, moth.ones(3, 1), {driver = "gels"}) end,
      "'gels' needs", "E_DOMAIN")
  end)

  it("is no error in inv_ex and cholesky_ex, which return its position", function()
    local y, info = linalg.inv_ex(stack)
    assert.same({0, 2, 1}, info:tolist())
    assert.equal(moth.int32, info.dtype)
    assert.same({false, true, true}, {y[1]:isnan():any():item(), y[2]:isnan():all():item(),
      y[3]:isnan():all():item()})
    local l, codes = linalg.cholesky_ex(stack, {upper = true})
    assert.same({0, 2, 1}, codes:tolist())
    assert.same({{1, 0}, {0, 1}}, l[1]:tolist())
    assert.same({true, true, false}, {l[2][1][1]:isnan():item(), l[2][1][2]:isnan():item(),
      l[2][2][1]:isnan():item()})
    refuses(function() linalg.inv_ex(stack, true) end, "to 'inv_ex' (matrix 2 of", "E_DOMAIN")
    refuses(function() linalg.cholesky_ex(stack, {check_errors = true}) end,
      "to 'cholesky_ex' (matrix 2 of", "E_DOMAIN")
    codes = select(2, linalg.cholesky_ex(moth.full({2, 2}, 0 / 0)))
    assert.equal(1, codes:item())
  end)

  it("has a determinant, with the cofactors as gradient", function()
    assert.same({1, 0, 0}, linalg.det(stack):tolist())
    local sign, log = linalg.slogdet(stack)
    assert.same({{1, 0, 0}, {0, -math.huge, -math.huge}}, {sign:tolist(), log:tolist()})
    local x = moth.tensor({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, f64):requires_grad_()
    x:det():backward()
    assert.close({{-3, 6, -3}, {6, -12, 6}, {-3, 6, -3}}, x.grad:tolist(), 1e-12)
    local y = moth.zeros(3, 3, f64):requires_grad_()
    y:det():backward()
    assert.close({{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, y.grad:tolist(), 1e-12)
    -- also for elements far from 1
    for _, options in ipairs {f64, {dtype = moth.float32}} do
      for _, scale in ipairs {2 ^ -40, 2 ^ 40} do
        x = (moth.tensor({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, options) * scale):requires_grad_()
        x:det():backward()
        assert.close({{-3, 6, -3}, {6, -12, 6}, {-3, 6, -3}}, (x.grad / scale / scale):tolist(),
          options == f64 and 1e-12 or 1e-4)
      end
    end
    assert.equal(math.huge, linalg.cond(stack, 1)[2]:item())
    assert.same({2, 1, 0}, linalg.matrix_rank(stack):tolist())
  end)

  it("raises with the function's own name, also in a replay and in backward", function()
    local step = moth.capture(function(x) return linalg.inv(x) end)
    step(moth.eye(2))
    step(moth.eye(2))
    assert.has_error_like(function() step(moth.zeros(2, 2)) end, "bad argument 'A' to 'inv' %(")
    local y = linalg.inv(moth.eye(2):requires_grad_())
    y:detach():add_(1)
    assert.has_error_like(function() y:sum():backward() end, "to 'inv' %(.* was changed in place")
  end)
end)

describe("the second derivative of a determinant", function()
  -- d/dA of the sum of its squared cofactors by PyTorch, which cannot differentiate below rank 1.
  local function grad(rows, options)
    local x = moth.tensor(rows, options):requires_grad_()
    local g = moth.autograd.grad(linalg.det(x):sum(), x, {create_graph = true})
    g = type(g) == "table" and g[1] or g
    g:square():sum():backward()
    return x.grad:tolist()
  end

  it("exists for singular matrices, of any rank", function()
    assert.close({{2, 4}, {4, 8}}, grad {{1, 2}, {2, 4}}, 1e-5)
    assert.close({{-414, -36, 342}, {-108, 0, 108}, {198, 36, -126}},
      grad({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, f64), 1e-9)
    assert.close({{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, grad(moth.zeros(3, 3):tolist()), 0)
    assert.close({{{2, 4}, {4, 8}}, {{10, 0}, {0, 6}}}, grad {{{1, 2}, {2, 4}}, {{5, 0}, {0, 3}}},
      1e-5)
    assert.same({{0}}, grad {{3}})
  end)

  it("equals finite differences if the rank is lower by two", function()
    local x, w = moth.zeros(3, 3, f64), moth.randn(3, 3, f64)
    x[{1, 2}] = 2
    x:requires_grad_()
    local function cofactors(y)
      local g = moth.autograd.grad(linalg.det(y), y, {create_graph = true})
      return type(g) == "table" and g[1] or g
    end
    local function total(y) return (cofactors(y) * w):sum() end
    total(x):backward()
    for i = 1, 3 do
      for j = 1, 3 do
        local function shifted(step)
          local y = x:detach():clone()
          y[{i, j}] = y[{i, j}]:item() + step
          return total(y:requires_grad_()):item()
        end
        assert.near((shifted(0.01) - shifted(-0.01)) / 0.02, x.grad[{i, j}]:item(), 1e-10)
      end
    end
  end)
end)

describe("a batch of small matrices", function()
  -- LAPACK computes single matrices; Moth's own kernels compute many together.
  local function alike(fn, ...)
    local all = {fn(...)}
    for i = 1, 21 do
      local own = {}
      for k, x in ipairs {...} do own[k] = x:dim() > 2 and x[i] or x end
      for k, y in ipairs {fn(unpack(own))} do
        assert.is_true(moth.allclose(y:double(), all[k][i]:double(),
          {rtol = 2e-4, atol = 2e-4, equal_nan = true}), ("result %d of matrix %d"):format(k, i))
      end
    end
  end

  it("has the results of each matrix alone", function()
    moth.manual_seed(5)
    for _, dtype in ipairs {moth.float32, moth.float64} do
      for _, n in ipairs {1, 2, 3, 5, 16, 17} do
        local x = moth.randn(21, n, n, {dtype = dtype})
        local s = x:matmul(x:transpose(-1, -2)) + moth.eye(n, {dtype = dtype})
        local b, one = moth.randn(21, n, 3, {dtype = dtype}), moth.randn(n, n, {dtype = dtype})
        x = x + moth.eye(n, {dtype = dtype}) * 4
        x[4] = 0
        x[6][1] = 0 / 0
        x[7][1] = -math.huge
        for _, fn in ipairs {linalg.inv_ex, linalg.det, linalg.slogdet, linalg.lu_factor} do
          alike(fn, x)
        end
        x[4] = x[5]
        alike(linalg.inv, x)
        alike(linalg.solve, x, b)
        alike(linalg.solve, x, one)
        alike(linalg.solve, one, b)
        alike(function(p, q) return linalg.solve(p, q:transpose(-1, -2), {left = false}) end, x, b)
        alike(linalg.cholesky, s)
        alike(function(p) return linalg.cholesky_ex(p, {upper = true}) end, s - 1)
        for _, upper in ipairs {true, false} do
          for _, unit in ipairs {true, false} do
            local named = {upper = upper, unitriangular = unit}
            alike(function(p, q) return linalg.solve_triangular(p / n, q, named) end, s, b)
            alike(function(p, q)
              named.left = false
              return linalg.solve_triangular(p / n, q:transpose(-1, -2), named)
            end, s, b)
          end
        end
        alike(function(p)
          p = p:detach():requires_grad_()
          local det = linalg.det(p)
          det:sum():backward()
          return p.grad / det:unsqueeze(-1):unsqueeze(-1)
        end, moth.cat {x[{{1, 5}}], x[{{8, 21}}], s[{{1, 2}}]})
      end
    end
  end)

  it("names the first singular one, at any position", function()
    local x = moth.eye(3):expand(70, 3, 3):clone()
    x[{70, 2, 2}] = 0
    refuses(function() linalg.inv(x) end, "matrix 70 of f32 (70, 3, 3) is singular", "E_DOMAIN")
    x[{33, 3, 3}] = -1
    refuses(function() linalg.cholesky(x) end, "matrix 33 of f32 (70, 3, 3) is not positive-"
      .. "definite: the leading block of size 3", "E_DOMAIN")
    assert.equal(2, select(2, linalg.inv_ex(x))[70]:item())
  end)
end)

describe("infinities and NaN", function()
  local function stack(bad)
    local x = moth.eye(3):expand(3, 3, 3):clone() * 2
    x[{2, 3, 1}] = bad
    return x
  end

  it("raise if LAPACK might not return", function()
    for _, bad in ipairs {0 / 0, math.huge, -math.huge} do
      local x = stack(bad)
      for name, fn in pairs {eigh = linalg.eigh, eigvalsh = linalg.eigvalsh, svd = linalg.svd,
                             eig = linalg.eig, eigvals = linalg.eigvals,
                             svdvals = linalg.svdvals, pinv = linalg.pinv,
                             cholesky = linalg.cholesky} do
        refuses(function() fn(x) end,
          ("bad argument 'A' to '%s' (matrix 2 of f32 (3, 3, 3) has infinities or NaN)")
          :format(name), "E_DOMAIN")
      end
      for _, driver in ipairs {"gelsy", "gels", "gelsd", "gelss"} do
        refuses(function() linalg.lstsq(x, moth.ones(3, 3, 1), {driver = driver}) end,
          "has infinities or NaN", "E_DOMAIN")
      end
    end
  end)

  it("in the right sides of lstsq raise with their name", function()
    for _, driver in ipairs {"gelsy", "gels", "gelsd", "gelss"} do
      refuses(function()
        linalg.lstsq(moth.eye(3), stack(0 / 0)[2], {driver = driver})
      end, "bad argument 'B' to 'lstsq' (f32 (3, 3) has infinities or NaN)", "E_DOMAIN")
    end
  end)

  it("have no effect outside of the triangle that is read", function()
    local x = stack(0)[2]
    for _, bad in ipairs {0 / 0, math.huge} do
      local y = stack(bad)[2]
      assert.is_true(linalg.cholesky(y, {upper = true}):equal(linalg.cholesky(x)))
      assert.is_true(linalg.cholesky(y:t()):equal(linalg.cholesky(x)))
      assert.same({2, 2, 2}, linalg.eigvalsh(y, {UPLO = "U"}):tolist())
      local values, vectors = linalg.eigh(y:t())
      assert.same({2, 2, 2}, values:tolist())
      assert.is_true(vectors:isfinite():all():item())
      refuses(function() linalg.cholesky(y:t(), {upper = true}) end, "infinities or NaN",
        "E_DOMAIN")
      refuses(function() linalg.eigh(y) end, "infinities or NaN", "E_DOMAIN")
    end
  end)

  it("make only their own matrix NaN in other functions", function()
    local x = stack(math.huge)
    local function numbers(y)
      local list = {}
      for i = 1, 3 do list[i] = y[i]:isnan():any():item() end
      return list
    end
    local q, r = linalg.qr(x)
    for _, y in ipairs {linalg.inv(x), linalg.solve(x, moth.ones(3, 1)), linalg.det(x), q, r,
                        (linalg.lu_factor(x))} do
      assert.same({false, true, false}, numbers(y))
    end
  end)
end)

describe("linear algebra", function()
  it("continues with singular matrices in the _ex functions", function()
    local x = moth.stack {moth.eye(2) * 2, moth.tensor{{1, 2}, {2, 4}}}
    local y, info = linalg.solve_ex(x, moth.ones(2, 2))
    assert.same({{0, 2}, {0.5, 0.5}}, {info:tolist(), y[1]:tolist()})
    assert.is_true(y[2]:isnan():all():item())
    assert.same({0, 2}, select(3, linalg.lu_factor_ex(x)):tolist())
    refuses(function() linalg.solve_ex(x, moth.ones(2, 2), {check_errors = true}) end,
      "bad argument 'A' to 'solve_ex' (matrix 2 of f32 (2, 2, 2) is singular", "E_DOMAIN")
    refuses(function() linalg.lu_factor_ex(x, true) end, "to 'lu_factor_ex' (", "E_DOMAIN")
    x = x[1]:clone():requires_grad_()
    linalg.solve_ex(x, moth.ones(2, 1)):sum():backward()
    assert.close({{-0.25, -0.25}, {-0.25, -0.25}}, x.grad:tolist(), 1e-6)
  end)

  it("names the shapes and dtypes that it accepts", function()
    refuses(function() linalg.inv(moth.ones(2, 3)) end,
      "bad argument 'A' to 'inv' (a square matrix or a stack of them, (..., N, N), is needed, got "
      .. "f32 (2, 3))", "E_SHAPE")
    refuses(function() linalg.svd(moth.ones(3)) end, "(..., M, N), is needed, got f32 (3)",
      "E_SHAPE")
    refuses(function() linalg.solve(moth.eye(2), moth.ones(3, 1)) end,
      "bad argument 'B' to 'solve' (f32 (3, 1) does not fit f32 (2, 2): 2 rows", "E_SHAPE")
    refuses(function() linalg.solve(moth.eye(2):expand(3, 2, 2), moth.ones(4, 2, 1)) end,
      "the leading dimensions of f32 (4, 2, 1) and f32 (3, 2, 2) do not match", "E_SHAPE")
    refuses(function() linalg.solve(moth.eye(2), moth.ones(2, f64)) end, "", "E_DTYPE")
    refuses(function() linalg.det(moth.eye(2):half()) end, "wanted f32|f64", "E_DTYPE")
    refuses(function() linalg.svd(moth.eye(2):long()) end, "to 'svd'", "E_DTYPE")
    refuses(function() linalg.solve_triangular(moth.eye(2), moth.ones(2, 1)) end, "'upper'",
      "E_ARG")
    refuses(function() return linalg.chol end, "moth.linalg has no 'chol'", "E_ARG")
    refuses(function() linalg.norm(moth.ones(2, 2, 2), 1) end, "bad argument 'dim' to 'norm'",
      "E_SHAPE")
    refuses(function() linalg.matrix_norm(moth.ones(2, 2), "frob") end, "to 'matrix_norm'",
      "E_ARG")
    refuses(function() linalg.cond(moth.ones(2, 3), 1) end, "to 'cond' (a square matrix", "E_SHAPE")
    refuses(function() linalg.lu_solve(moth.eye(2), moth.tensor{3LL, 2LL}, moth.ones(2, 1)) end,
      "bad argument 'pivots' to 'lu_solve' (3 is not one of the 2 rows", "E_INDEX")
    for _, pivots in ipairs {{2}, moth.tensor{2LL}, moth.tensor{{2LL}, {1LL}}, moth.tensor(2LL)} do
      refuses(function() linalg.lu_solve(moth.eye(2), pivots, moth.ones(2, 1)) end,
        "bad argument 'pivots' to 'lu_solve' (2 are needed for each of f32 (2, 2), got", "E_SHAPE")
    end
    refuses(function() linalg.matrix_norm(moth.ones(2, 2), 1, {1, 5}) end,
      "bad argument 'dim' to 'matrix_norm' (dim 5 is out of range", "E_INDEX")
    refuses(function() linalg.norm(moth.ones(2, 2), "nuc", {1, -2}) end,
      "bad argument 'dim' to 'norm' (dim 1 is named twice", "E_ARG")
    refuses(function() linalg.matrix_exp(moth.eye(2):long()) end,
      "bad argument 'A' to 'matrix_exp' (a float tensor is needed, got i64 (2, 2))", "E_DTYPE")
    refuses(function() linalg.cross(moth.ones(2, 3), moth.ones(2, 3), 3) end,
      "3 numbers are needed along dim 3, got f32 (2, 3)", "E_SHAPE")
  end)

  it("gives each vector a sign that does not depend on the library", function()
    moth.manual_seed(3)
    local x = moth.randn(20, 5, 5, f64)
    local u = linalg.svd(x)
    local _, v = linalg.eigh(x + x:transpose(-1, -2))
    for _, m in ipairs {u, v} do
      for _, matrix in ipairs(m:transpose(-1, -2):tolist()) do
        for _, vector in ipairs(matrix) do
          local largest = 0
          for _, number in ipairs(vector) do largest = math.max(largest, math.abs(number)) end
          for _, number in ipairs(vector) do
            if math.abs(number) > 0.1 * largest then
              assert.is_true(number > 0)
              break
            end
          end
        end
      end
    end
  end)

  it("has the same bits for any number of threads", function()
    moth.manual_seed(4)
    local x, threads, seen = moth.randn(200, 24, 24), moth.get_num_threads(), {}
    local b = moth.randn(200, 24, 3)
    for i, n in ipairs {1, 3} do
      moth.set_num_threads(n)
      local all = {linalg.solve(x, b), linalg.inv(x), linalg.det(x), linalg.qr(x)}
      all[#all + 1], all[#all + 2] = linalg.svd(x)
      all[#all + 1], all[#all + 2] = linalg.eigh(x)
      seen[i] = all
    end
    moth.set_num_threads(threads)
    for k, y in ipairs(seen[1]) do assert.is_true(moth.equal(y, seen[2][k]), "result " .. k) end
  end)

  it("computes complex eigenvalues and vectors", function()
    moth.manual_seed(6)
    local a = moth.randn(5, 6, 6, f64)
    local values, v = linalg.eig(a)
    local re, im = v:select(-1, 1), v:select(-1, 2)
    local x, y = values:select(-1, 1):unsqueeze(-2), values:select(-1, 2):unsqueeze(-2)
    assert.is_true(y:abs():amax():item() > 0.1)
    assert.is_true(moth.allclose(a:matmul(re), re * x - im * y))
    assert.is_true(moth.allclose(a:matmul(im), re * y + im * x))
    assert.is_true(moth.allclose((re * re + im * im):sum(-2), moth.ones(5, 6, f64)))
    assert.is_true(linalg.eigvals(a):allclose(values))
  end)

  it("has exact first and second derivatives of complex eigenvectors", function()
    moth.manual_seed(7)
    local a = moth.tensor({{1, 2, 0.5}, {-3, 1, 0.2}, {0.3, 0.1, 4}}, f64):requires_grad_()
    local w, u = moth.randn(3, 2, f64), moth.randn(3, 3, 2, f64)
    local function total(x)
      local values, v = linalg.eig(x)
      return (values * w):sum() + (v * u):sum()
    end
    assert.is_true(moth.autograd.gradcheck(total, {a}))
    assert.is_true(moth.autograd.gradgradcheck(total, {a}))
    assert.is_true(moth.autograd.gradcheck(function(x) return linalg.eigvals(x) end, {a}))
  end)

  it("stops between two matrices after an interrupt", function()
    local lib = require "moth.binding.lib"
    lib.C.moth_cancel(lib.ctx, 1)
    refuses(function() linalg.inv(moth.eye(3)) end, "interrupt", "E_INTERRUPT")
    assert.equal(1, linalg.det(moth.eye(3)):item())
  end)

  it("has methods, and PyTorch's older names", function()
    local x = moth.tensor({{4, 1}, {1, 3}}, f64)
    assert.close(11, x:det():item(), 1e-12)
    assert.close(math.log(11), x:logdet():item(), 1e-12)
    assert.close(moth.eye(2):tolist(), x:matmul(x:inverse()):tolist(), 1e-12)
    local l = x:cholesky()
    assert.close(x:tolist(), l:matmul(l:t()):tolist(), 1e-12)
    assert.close(x:inverse():tolist(), l:cholesky_inverse():tolist(), 1e-12)
    local b = moth.ones(2, 1, f64)
    assert.close(linalg.solve(x, b):tolist(), b:cholesky_solve(l):tolist(), 1e-12)
    local q, r = x:qr()
    assert.close(x:tolist(), q:matmul(r):tolist(), 1e-12)
    local u, s, v = x:svd()
    assert.close(x:tolist(), (u * s):matmul(v:t()):tolist(), 1e-12)
    assert.close(x:inverse():tolist(), x:pinverse():tolist(), 1e-12)
    assert.close(x:matmul(x):tolist(), x:matrix_power(2):tolist(), 1e-12)
  end)

  it("accepts sizes of 0 and of 1", function()
    assert.equal(1, linalg.det(moth.zeros(0, 0)):item())
    assert.same({0, 2, 2}, linalg.inv(moth.zeros(0, 2, 2)).shape)
    assert.same({3, 2}, linalg.lstsq(moth.zeros(0, 3), moth.zeros(0, 2)).shape)
    assert.same(moth.eye(3):tolist(), linalg.qr(moth.zeros(3, 0), "complete"):tolist())
    local u, s, vh = linalg.svd(moth.zeros(2, 0))
    assert.same({{1, 0}, {0, 1}}, u:tolist())
    assert.same({{0}, {0, 0}}, {s.shape, vh.shape})
  end)

  it("returns the properties of A without right sides", function()
    local x = moth.tensor{{3, 0}, {0, 4}, {0, 0}}
    for _, driver in ipairs {"gelsd", "gelss"} do
      local y, _, rank, values = linalg.lstsq(x:expand(5, 3, 2), moth.zeros(3, 0),
        {driver = driver})
      assert.same({5, 2, 0}, y.shape)
      assert.same({2, 2, 2, 2, 2}, rank:tolist())
      assert.close({4, 3}, values[5]:tolist(), 1e-6)
    end
    assert.same({2, 1}, {select(3, linalg.lstsq(x, moth.zeros(3, 0))):item(),
      select(3, linalg.lstsq(x:t() * moth.tensor{{1}, {0}}, moth.zeros(2, 0))):item()})
  end)

  it("counts no rounding as rank unless atol is above 0", function()
    local x = moth.tensor{{1, 0}, {0, 1e-9}}
    assert.equal(1, linalg.matrix_rank(x):item())
    assert.equal(1, linalg.matrix_rank(x, {atol = 0}):item())
    assert.equal(2, linalg.matrix_rank(x, {atol = 1e-12}):item())
    assert.equal(2, linalg.matrix_rank(x, {atol = 0, rtol = 0}):item())
    assert.same({1, 2}, linalg.matrix_rank(x:expand(2, 2, 2), moth.tensor{0, 1e-12}):tolist())
    assert.equal(1, linalg.matrix_rank(x, {atol = 0, hermitian = true}):item())
  end)

  it("names the zero pivot, of one matrix and of many, small and large", function()
    for _, n in ipairs {2, 40, 100} do
      local x = moth.eye(n) + moth.eye(n):roll(1, 2)
      x[1] = 0                                  -- the last pivot of A is 0, the first of A'
      assert.equal(n, select(2, linalg.inv_ex(x)):item())
      assert.equal(n, select(2, linalg.solve_ex(x, moth.ones(n))):item())
      assert.equal(n, select(2, linalg.inv_ex(x:expand(70, n, n)))[70]:item())
    end
  end)

  it("factors subnormal numbers by quotients, also in wide and tall matrices", function()
    for dtype, v in pairs {[moth.float32] = 1e-41, [moth.float64] = 1e-312} do
      for _, shape in ipairs {{2, 2}, {3, 2}, {2, 3}, {70, 2, 2}, {70, 50}} do
        local x = moth.rand(shape, {dtype = dtype}):add(moth.eye(shape[#shape - 1], shape[#shape],
          {dtype = dtype})) * v
        local p, l, u = linalg.lu(x)
        assert.is_true(p:matmul(l):matmul(u):allclose(x, {rtol = 0.01, atol = v / 100}))
        assert.is_true(l:abs():max():item() <= 1)
      end
    end
  end)

  it("divides by subnormal pivots", function()
    local tiny = {[moth.float32] = 1e-40, [moth.float64] = 1e-310}
    for dtype, v in pairs(tiny) do
      for _, n in ipairs {3, 40, 100} do
        local x = moth.eye(n, {dtype = dtype}) + 0
        x[{2, 2}], x[{3, 2}] = v, v / 2
        assert.equal(x[2][2]:item(), linalg.det(x):item())
        assert.equal(0, linalg.det(moth.rand(n, n, {dtype = dtype}) * v):item())
      end
    end
  end)

  it("says what is missing without LAPACK", function()
    local text = process.lua [[
      local ffi = require "ffi"
      ffi.cdef "int setenv(const char *name, const char *value, int overwrite);"
      ffi.C.setenv("MOTH_BLAS", "builtin", 1) -- before the first product
      local moth = require "moth"
      print(pcall(moth.linalg.det, moth.eye(2)))
      print(moth.errcode(), moth.eye(2):matmul(moth.eye(2)):sum():item())]]
    assert.matches("det: this needs LAPACK.*libopenblas0, unset MOTH_BLAS", text)
    assert.matches("E_UNSUPPORTED\t2", text)
  end)
end)
