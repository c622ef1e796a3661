-- moth.linalg on a GPU beside the CPU's: sizes around the edges of tiles, stacks and their
-- broadcasting, layouts, what is not positive-definite, and that nothing waits for the GPU.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local linalg = moth.linalg
local SIZES = { 1, 2, 15, 16, 17, 31, 32, 33, 64, 65, 100 }

-- Symmetric, far from singular.
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

local function near(wanted, got, what)
  local most = got.dtype == moth.float64 and 1e-11 or 2e-5
  got = got:cpu()
  assert.same(wanted:size(), got:size())
  if wanted:numel() == 0 then return end
  local off = (wanted - got):abs():max():item()
  assert(off <= most, ("%s is off by %g"):format(what, off))
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

  it("solves triangular systems as the CPU does, at any size, from each side", function()
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

  it("takes matrices as they lie, and broadcasts stacks", function()
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
      local got = all(function(t) return t:cuda() end)
      for i, wanted in ipairs(all(function(t) return t end)) do
        near(wanted, got[i], "number " .. i)
      end
    end
  end)

  it("takes stacks of nothing, matrices of nothing, and no right sides", function()
    for _, size in ipairs { { 0, 3, 3 }, { 0, 40, 40 }, { 2, 0, 0 }, { 0, 0 } } do
      local x = moth.zeros(size)
      local y, info = linalg.cholesky_ex(x:cuda())
      local wanted, codes = linalg.cholesky_ex(x)
      assert.same(wanted:size(), y:size())
      assert.same(codes:tolist(), info:cpu():tolist())
    end
    for _, k in ipairs { 0, 2 } do
      local y = linalg.solve_triangular(moth.zeros(0, 3, 3):cuda(), moth.zeros(3, k):cuda(),
        { upper = true })
      assert.same({ 0, 3, k }, { unpack(y.shape) })
    end
  end)

  it("says which leading block is not positive-definite, as the CPU does", function()
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

  it("tells late of a matrix that is not positive-definite", function()
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

  it("gives zeros on a diagonal as infinities", function()
    local x = moth.eye(3)
    x[{ 2, 2 }] = 0
    local y = linalg.solve_triangular(x:cuda(), moth.ones(3, 1):cuda(), { upper = true }):cpu()
    assert.equal(math.huge, y[{ 2, 1 }]:item())
  end)

  it("repeats to the bit", function()
    local a = positive("float32", { 3, 70, 70 }):cuda()
    assert(linalg.cholesky(a):cpu():equal(linalg.cholesky(a):cpu()))
  end)

  it("has the CPU's gradients, of tiles too", function()
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

  it("is captured as one graph: nothing waits", function()
    for _, n in ipairs { 8, 70 } do
      local function f(x, b)
        local l = linalg.cholesky(x)
        local y = linalg.solve_triangular(l, b, { upper = false })
        return linalg.solve_triangular(l:transpose(-1, -2), y * 2, { upper = true }) + y
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
