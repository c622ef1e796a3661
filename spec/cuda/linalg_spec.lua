-- moth.linalg on a GPU and on the CPU: sizes around the edges of tiles, stacks and their
-- broadcasting, layouts, matrices that are not positive-definite or are singular; and that nothing
-- synchronizes with the GPU.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local linalg = moth.linalg
local SIZES = { 1, 2, 15, 16, 17, 31, 32, 33, 64, 65, 100 }
local FEWER = { 1, 2, 17, 32, 33, 70 } -- with an emulator, hundreds of threads are slow

-- Symmetric, and well-conditioned.
local function positive(dtype, ...)
  local x = moth.randn(..., { dtype = moth[dtype] })
  local n = x:size(-1)
  return x:matmul(x:transpose(-1, -2)) / n + moth.eye(n, { dtype = moth[dtype] })
end

local function triangle(dtype, ...)
  local x = moth.randn(..., { dtype = moth[dtype] })
  local n = x:size(-1)
  return x / (2 * n) + moth.eye(n, { dtype = moth[dtype] })
end

-- Well-conditioned, and with pivoting.
local function regular(dtype, ...)
  local x = triangle(dtype, ...)
  return x:flip(-2)
end

local function near(wanted, got, what)
  local most = got.dtype == moth.float64 and 1e-11 or 2e-5
  got = got:cpu()
  assert.same(wanted:size(), got:size())
  if wanted:numel() == 0 then return end
  local off = (wanted - got):abs():max():item()
  assert(off <= most, ("%s is off by %g"):format(what, off))
end

-- The results of all(there) for the same matrices on the CPU and on the GPU.
local function alike(all)
  local got = all(function(t) return t:cuda() end)
  for i, wanted in ipairs(all(function(t) return t end)) do near(wanted, got[i], "number " .. i) end
end

describe("linalg on a GPU", function()
  if not cuda.here then
    pending("is the CPU's: " .. cuda.why)
    return
  end

  it("factors by cholesky as the CPU does, at any size", function()
    for _, dtype in ipairs { "float32", "float64" } do
      for _, n in ipairs(SIZES) do
        local x = positive(dtype, { 2, n, n })
        for _, upper in ipairs { false, true } do
          local y = linalg.cholesky(x:cuda(), { upper = upper })
          near(linalg.cholesky(x, { upper = upper }), y, ("%s, %d rows"):format(dtype, n))
        end
      end
    end
  end)

  it("factors by qr as the CPU does, at any size, in each mode", function()
    for _, dtype in ipairs { "float32", "float64" } do
      for i, m in ipairs(FEWER) do
        for _, n in ipairs { m, FEWER[#FEWER + 1 - i] } do
          local x = moth.randn(2, m, n, { dtype = moth[dtype] }) + 4 * moth.eye(m, n)
          for _, mode in ipairs { "reduced", "complete", "r" } do
            local q, r = linalg.qr(x, { mode = mode })
            local got, upper = linalg.qr(x:cuda(), { mode = mode })
            near(q, got, ("Q, %s, %d by %d, %s"):format(dtype, m, n, mode))
            near(r / 20, upper / 20, ("R, %s, %d by %d, %s"):format(dtype, m, n, mode))
          end
        end
      end
    end
  end)

  it("factors by qr matrices with zeros below the diagonal, or with NaN", function()
    for _, n in ipairs { 5, 40 } do
      local x = moth.randn(3, n, n + 3, { dtype = moth.float64 }):triu()
      x[{ 2, 1, 1 }] = 0
      x[{ 3, n, 1 }] = 0 / 0
      local q, r = linalg.qr(x)
      local got, upper = linalg.qr(x:transpose(-1, -2):cuda():transpose(-1, -2))
      assert.same(q:isnan():tolist(), got:cpu():isnan():tolist())
      assert.same(r:isnan():tolist(), upper:cpu():isnan():tolist())
      near(q:nan_to_num(0), got:nan_to_num(0), "Q")
      near(r:nan_to_num(0), upper:nan_to_num(0), "R")
    end
  end)

  it("returns an identity for Q of matrices without elements", function()
    for _, size in ipairs { { 3, 0 }, { 40, 0 }, { 0, 3 }, { 0, 40, 3 } } do
      local q, r = linalg.qr(moth.zeros(size), { mode = "complete" })
      local got, upper = linalg.qr(moth.zeros(size):cuda(), { mode = "complete" })
      near(q, got, "Q")
      near(r, upper, "R")
    end
  end)

  it("solves triangular systems as the CPU does, at any size, on each side", function()
    for _, dtype in ipairs { "float32", "float64" } do
      for i, n in ipairs(SIZES) do
        local k = SIZES[#SIZES + 1 - i]
        local x = triangle(dtype, { 2, n, n })
        for code = 0, 7 do
          local left = code % 2 == 0
          local options = { upper = code % 4 > 1, left = left, unitriangular = code > 3 }
          local b = moth.randn(left and { 2, n, k } or { 2, k, n }, { dtype = moth[dtype] })
          local got = linalg.solve_triangular(x:cuda(), b:cuda(), options)
          near(linalg.solve_triangular(x, b, options), got, ("%s, %d by %d"):format(dtype, n, k))
        end
      end
    end
  end)

  it("factors by lu as the CPU does, at any size, with the same pivots", function()
    for _, dtype in ipairs { "float32", "float64" } do
      for i, m in ipairs(FEWER) do
        for _, n in ipairs { m, FEWER[#FEWER + 1 - i] } do
          local x = moth.rand(2, m, n, { dtype = moth[dtype] })
          local wanted, rows = linalg.lu_factor(x)
          local got, pivots = linalg.lu_factor(x:cuda())
          assert(rows:equal(pivots:cpu()), ("%s, %d by %d"):format(dtype, m, n))
          near(wanted / 20, got / 20, ("%s, %d by %d"):format(dtype, m, n))
        end
      end
    end
  end)

  it("chooses the first of rows with equal pivots, also 0", function()
    for _, n in ipairs { 4, 40 } do
      local x = moth.zeros(2, n, n)
      x[{ 1, {}, 1 }] = moth.tensor { 2, -2 }:repeat_interleave(n / 2)
      local wanted, rows = linalg.lu_factor(x)
      local got, pivots = linalg.lu_factor(x:cuda())
      assert.same(rows:tolist(), pivots:cpu():tolist())
      near(wanted, got, "LU")
    end
  end)

  it("solves, inverts and computes determinants as the CPU does, at any size", function()
    for _, dtype in ipairs { "float32", "float64" } do
      for i, n in ipairs(FEWER) do
        local k = FEWER[#FEWER + 1 - i]
        local x, b = regular(dtype, { 2, n, n }), moth.randn(2, n, k, { dtype = moth[dtype] })
        local function all(a, right)
          local sign, log = linalg.slogdet(a)
          local factors, pivots = linalg.lu_factor(a)
          local turned = right:transpose(-1, -2)
          return { linalg.solve(a, right), linalg.solve(a, turned, { left = false }),
            linalg.inv(a), linalg.det(a), sign, log, (linalg.inv_ex(a)),
            linalg.lu_solve(factors, pivots, right),
            linalg.lu_solve(factors, pivots, right, { adjoint = true }), linalg.lu(a) }
        end
        local got = all(x:cuda(), b:cuda())
        for at, wanted in ipairs(all(x, b)) do
          near(wanted, got[at], ("%s, %d by %d, result %d"):format(dtype, n, k, at))
        end
      end
    end
  end)

  it("solves for vectors, with strided matrices, and broadcasts stacks", function()
    for _, n in ipairs { 5, 40 } do
      local x, b = regular("float64", { 3, 1, n, n }), moth.randn(4, n, { dtype = moth.float64 })
      local wide = moth.randn(4, n, 2 * n, { dtype = moth.float64 })
      local function all(there)
        local a, every = there(x), there(wide)[{ {}, {}, { 1, -1, 2 } }]
        return { linalg.solve(a, every), linalg.solve(a:transpose(-1, -2), every),
          linalg.solve(a[{ 1, 1 }], there(b)[1]),
          linalg.solve(a[{ {}, 1 }], there(b)[{ { 1, 3 } }]),
          linalg.solve(a, every:transpose(-1, -2), { left = false }),
          linalg.inv(a:expand(3, 2, n, n)), linalg.det(a:transpose(-1, -2)),
          (linalg.lu_factor(a:transpose(-1, -2))) }
      end
      alike(all)
    end
  end)

  it("has defined results for singular matrices, and for those that are not finite", function()
    for _, n in ipairs { 6, 70 } do
      local x = regular("float64", { 4, n, n })
      x[{ 2, {}, 4 }] = 0
      x[{ 3, 1, 2 }] = math.huge
      x[{ 4, n, n }] = 0 / 0
      local function all(a)
        local sign, log = linalg.slogdet(a)
        local factors, pivots = linalg.lu_factor(a[{ { 3, 4 } }])
        return { linalg.det(a), sign, log, factors, pivots:double(), linalg.solve(a[3], a[1]) }
      end
      local got = all(x:cuda())
      for i, wanted in ipairs(all(x)) do
        local y = got[i]:cpu()
        assert.same(wanted:isnan():tolist(), y:isnan():tolist())
        near(wanted:nan_to_num(0), y:nan_to_num(0):cuda(), "number " .. i)
      end
      local y, info = linalg.inv_ex(x:cuda())
      assert.same({ 0, 4, 0, 0 }, info:cpu():tolist())
      assert.same({ false, true, true, true }, y:cpu():isnan():flatten(2):all(2):tolist())
      near(linalg.inv(x[1]), y[1], "what has an inverse")
      assert.same({ 0, 4, 0, 0 }, (select(3, linalg.lu_factor_ex(x:cuda()))):cpu():tolist())
    end
  end)

  it("factors columns of extreme numbers by reflections, too", function()
    local UNITS = { float64 = { 1e-310, 1e-170, 1e160, 1e250 }, float32 = { 1e-41 } }
    local function off(a, b) return (a - b:cpu()):abs():max():item() end
    for dtype, units in pairs(UNITS) do
      for _, shape in ipairs { { 3, 2 }, { 40, 35 } } do
        local x = regular(dtype, { 40, 40 })[{ { 1, shape[1] }, { 1, shape[2] } }]
        local first, others = x[{ {}, { 1, 1 } }], x[{ {}, { 2, -1 } }]
        local q, r = linalg.qr(x)
        for _, unit in ipairs(units) do
          local bound = math.abs(math.log10(unit)) < 300 and dtype == "float64" and 1e-11 or 1e-2
          for _, scaled in ipairs { x * unit, moth.cat({ first * unit, others }, 2) } do
            local y, upper = linalg.qr(scaled:cuda())
            assert.is_true(off(q, y) < bound, unit .. ": Q")
            assert.is_true(off(r[{ {}, 1 }], upper[{ {}, 1 }] / unit) < bound, unit .. ": R")
          end
        end
      end
    end
  end)

  it("reports a singular matrix at the next synchronization", function()
    local function checked(x) return (linalg.inv_ex(x, { check_errors = true })) end
    local function solved(x) return linalg.solve(x, x) end
    for _, n in ipairs { 3, 50 } do
      for _, f in ipairs { linalg.inv, checked, solved } do
        local x = moth.eye(n)
        x[{ 2, 2 }] = 0
        local y = f(x:cuda())
        local ok, message = pcall(moth.cuda.synchronize)
        assert.is_false(ok, y)
        assert.equal("E_DOMAIN", moth.errcode())
        assert.truthy(message:find(f == solved and "solve" or "inv", 1, true), message)
        assert.truthy(message:find("singular", 1, true), message)
      end
    end
    near(moth.eye(2), linalg.inv(moth.eye(2):cuda()), "what comes after")
  end)

  it("reports invalid pivots at the next synchronization", function()
    local y = linalg.lu_solve(moth.eye(2):cuda(), moth.tensor { 1LL, 3LL }:cuda(),
      moth.ones(2, 1):cuda())
    local ok, message = pcall(moth.cuda.synchronize)
    assert.is_false(ok, y)
    assert.truthy(message:find("position 3 of 2", 1, true), message)
  end)

  it("supports strided matrices, and broadcasts stacks", function()
    for _, n in ipairs { 5, 40 } do
      local x = positive("float64", { 3, 1, n, n })
      local wide = moth.randn(4, n, 2 * n, { dtype = moth.float64 })
      local function all(there)
        local a, b = there(x), there(wide)
        local every = b[{ {}, {}, { 1, -1, 2 } }]
        return { linalg.cholesky(a:transpose(-1, -2)), linalg.cholesky(a:expand(3, 2, n, n)),
          linalg.cholesky(a[{ 2, 1 }], { upper = true }),
          linalg.solve_triangular(a, every, { upper = true }),
          linalg.solve_triangular(a:transpose(-1, -2), b, { upper = false }),
          linalg.solve_triangular(a[{ 1, 1 }], b:transpose(-1, -2),
            { upper = true, left = false }) }
      end
      alike(all)
    end
  end)

  it("supports empty stacks, empty matrices, and no right-hand sides", function()
    for _, size in ipairs { { 0, 3, 3 }, { 0, 40, 40 }, { 2, 0, 0 }, { 0, 0 } } do
      local x = moth.zeros(size)
      local y, info = linalg.cholesky_ex(x:cuda())
      local wanted, codes = linalg.cholesky_ex(x)
      assert.same(wanted:size(), y:size())
      assert.same(codes:tolist(), info:cpu():tolist())
      local none, zeros = linalg.inv_ex(x:cuda())
      assert.same(wanted:size(), none:size())
      assert.same(codes:tolist(), zeros:cpu():tolist())
      assert.same(linalg.det(x):tolist(), linalg.det(x:cuda()):cpu():tolist())
      local sign, log = linalg.slogdet(x:cuda())
      assert.same(linalg.det(x):tolist(), sign:cpu():tolist())
      assert.equal(0, log:cpu():sum():item())
      local factors, pivots = linalg.lu_factor(x:cuda())
      near(wanted, linalg.lu_solve(factors, pivots, x:cuda()), "a solution of nothing")
    end
    for _, k in ipairs { 0, 2 } do
      local y = linalg.solve_triangular(moth.zeros(0, 3, 3):cuda(), moth.zeros(3, k):cuda(),
        { upper = true })
      assert.same({ 0, 3, k }, { unpack(y.shape) })
      y = linalg.solve(moth.zeros(0, 3, 3):cuda(), moth.zeros(3, k):cuda())
      assert.same({ 0, 3, k }, { unpack(y.shape) })
    end
  end)

  it("names the leading minor that is not positive-definite, as the CPU does", function()
    for _, n in ipairs { 6, 70 } do
      local x = positive("float32", { 5, n, n })
      x[{ 2, n, n }] = -1
      x[{ 3, 4, 4 }] = 0
      x[{ 4, 3, 2 }] = math.huge
      x[{ 5, 2, 3 }] = 0 / 0 -- in the triangle that is not read
      local wanted, codes = linalg.cholesky_ex(x)
      local y, info = linalg.cholesky_ex(x:cuda())
      assert.same({ 0, n, 4, 1, 0 }, codes:tolist())
      assert.same(codes:tolist(), info:cpu():tolist())
      assert.same(wanted:isnan():tolist(), y:cpu():isnan():tolist())
      near(wanted:nan_to_num(0), y:nan_to_num(0), "what is there")
    end
  end)

  it("reports a matrix that is not positive-definite at the next synchronization", function()
    local function checked(x) return (linalg.cholesky_ex(x, { check_errors = true })) end
    for _, n in ipairs { 3, 50 } do
      for _, f in ipairs { linalg.cholesky, checked } do
        local x = moth.eye(n)
        x[{ 2, 2 }] = -1
        local y = f(x:cuda())
        local ok, message = pcall(moth.cuda.synchronize)
        assert.is_false(ok, y)
        assert.equal("E_DOMAIN", moth.errcode())
        assert.truthy(message:find("cholesky", 1, true), message)
        assert.truthy(message:find("leading block of size 2", 1, true), message)
      end
    end
    near(moth.eye(2), linalg.cholesky(moth.eye(2):cuda()), "what comes after")
  end)

  it("divides by zeros on a diagonal, which gives infinities", function()
    local x = moth.eye(3)
    x[{ 2, 2 }] = 0
    local y = linalg.solve_triangular(x:cuda(), moth.ones(3, 1):cuda(), { upper = true }):cpu()
    assert.equal(math.huge, y[{ 2, 1 }]:item())
  end)

  it("is bit-identical each time", function()
    local a = positive("float32", { 3, 70, 70 }):cuda()
    for _, name in ipairs { "cholesky", "inv", "qr", "slogdet", "lu_factor" } do
      local once, again = { linalg[name](a) }, { linalg[name](a) }
      for i, y in ipairs(once) do
        assert(y:cpu():equal(again[i]:cpu()), ("%s, result %d"):format(name, i))
      end
    end
  end)

  it("has the CPU's gradients, also for several tiles", function()
    local x, b = positive("float64", { 2, 40, 40 }), moth.randn(40, 3, { dtype = moth.float64 })
    local function gradients(there)
      local a, r = there(x):requires_grad_(), there(b):requires_grad_()
      local l = linalg.cholesky(a)
      linalg.solve_triangular(l, r, { upper = false }):sin():sum():backward()
      return a.grad, r.grad
    end
    local da, db = gradients(function(t) return t:clone() end)
    local there_a, there_b = gradients(function(t) return t:cuda() end)
    near(da, there_a, "of A")
    near(db, there_b, "of B")
  end)

  it("has the CPU's gradients of solutions and determinants, singular ones too", function()
    for _, n in ipairs { 4, 40 } do
      local x, b = regular("float64", { 2, n, n }), moth.randn(n, 3, { dtype = moth.float64 })
      local zero, narrow = regular("float64", { 2, n, n }), regular("float32", { 2, n, n })
      zero[{ 2, {}, 2 }], narrow[{ 1, 3 }] = 0, 0
      local function gradients(there)
        local a, r, z, f = there(x), there(b), there(zero), there(narrow)
        for _, t in ipairs { a, r, z, f } do t:requires_grad_() end
        local _, log = linalg.slogdet(a)
        local y = linalg.solve(a, r):sin():sum() + linalg.inv(a):cos():sum() + log:sum()
        y = y + linalg.lu_factor(a):sin():sum() + linalg.det(z):sum() + linalg.det(f):sum()
        local q, upper = linalg.qr(a)
        y = y + q:sin():sum() + upper:cos():sum()
        y:backward()
        return { a.grad, r.grad, z.grad, f.grad }
      end
      local got = gradients(function(t) return t:cuda() end)
      for i, wanted in ipairs(gradients(function(t) return t:clone() end)) do
        near(wanted, got[i], "number " .. i)
      end
    end
  end)

  it("is captured as one graph: nothing synchronizes", function()
    for _, n in ipairs { 8, 70 } do
      local function f(x, b)
        local l = linalg.cholesky(x)
        local y = linalg.solve_triangular(l, b, { upper = false })
        y = linalg.solve_triangular(l:transpose(-1, -2), y * 2, { upper = true }) + y
        y = y + linalg.qr(x):matmul(b)
        return linalg.solve(x, y) * linalg.det(x / 2):reshape(-1, 1, 1) + linalg.inv(x):matmul(b)
      end
      local step = moth.cuda.graph(f)
      for _ = 1, 3 do
        local x, b = positive("float32", { 2, n, n }):cuda(), moth.randn(n, 2):cuda()
        assert(f(x, b):cpu():equal(step(x, b):cpu()))
      end
      assert.truthy(tostring(step):find("a call is 1 graph", 1, true), tostring(step))
      step:free()
    end
  end)
end)
