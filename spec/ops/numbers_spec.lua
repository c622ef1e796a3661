-- Composite functions of numbers and of positions, in forms that golden values do not have:
-- in-place writes, random projections, errors.

local moth = require "moth"

local function refuses(f, text) assert.error_matches(f, text, 1, true) end

describe("functions of numbers", function()
  it("write the same values in place", function()
    local x = moth.tensor{{3, 4}, {0.3, 0.4}}
    local wanted = x:renorm(2, 1, 1)
    assert.equal(x, x:renorm_(2, 1, 1))
    assert.is_true(x:equal(wanted))
    local y = moth.zeros(2, 3)
    y:put_(moth.tensor{1LL, 6LL}, moth.tensor{1, 2})
    y:index_reduce_(1, moth.tensor{2LL}, moth.ones(1, 3), "amax")
    assert.same({{1, 0, 0}, {1, 1, 2}}, y:tolist())
    local leaf = moth.ones(2, 2):requires_grad_()
    local z = leaf * 2
    z:renorm_(2, 1, 1)
    z:sum():backward()
    assert.is_true(leaf.grad:abs():max():item() < 1e-5) -- a row of equal numbers keeps its length
  end)

  it("find the large singular values of a matrix", function()
    moth.manual_seed(3)
    local A = moth.randn(30, 3):double():matmul(moth.randn(3, 20):double()) + 5
    local U, S, V = moth.svd_lowrank(A, 4)
    assert.is_true((U * S):matmul(V:t()):allclose(A, {atol = 1e-8}))
    local P, _, W = moth.pca_lowrank(A, {q = 3})
    local centred = A - A:mean(1, true)
    assert.is_true(centred:matmul(W):matmul(W:t()):allclose(centred, {atol = 1e-8}))
    assert.equal("(30, 3)", tostring(P.shape))
  end)

  it("have PyTorch's aliases", function()
    local a, b = moth.randn(2, 3), moth.randn(3, 4)
    assert.is_true(moth.chain_matmul(a, b):allclose(a:matmul(b)))
    assert.equal(moth.trapezoid, moth.trapz)
    assert.equal("(2, 3, 4)", tostring(moth.broadcast_shapes({3, 1}, {2, 1, 4})))
    assert.near(math.pi ^ 2 / 6, moth.special.zeta(2, moth.ones(1)):item(), 1e-6)
  end)

  it("keep their digits at large and at small arguments", function() -- values by mpmath
    local special = moth.special
    local function check(f, rows, digits)
      for _, row in ipairs(rows) do
        local got = f(moth.full({}, row[1], {dtype = moth.float64}),
          moth.full({}, row[2], {dtype = moth.float64})):item()
        assert.is_true(math.abs(got / row[3] - 1) < digits,
          ("%g, %g: %.17g, got %.17g"):format(row[1], row[2], row[3], got))
      end
    end
    check(special.gammainc, {
      {20, 1e-10, 4.11031762292070903e-219}, {10000, 10000, 0.5013298083399552},
      {10000, 9000, 2.07329920243392801e-25}, {10000, 8000, 6.13544850109049448e-103},
      {20000, 20300, 0.982706448722096554}, {1e10, 1e10, 0.500001329807601339},
      {1e12, 1e12, 0.500000132980760134}, {1e15, 1e15, 0.50000000420522087},
      {1e15, 1e15 - 1e8, 0.000782700873990298722}}, 1e-12)
    check(special.gammaincc, {
      {1e-10, 0.1, 1.82292395832608382e-10}, {1e-10, 1, 2.19383934417967786e-11},
      {1e-3, 0.5, 0.000560066656470749889}, {0.05, 1e-5, 0.42235378179430349},
      {0.09, 1.05, 0.0198693367251883378}, {1e-200, 1e-5, 1.09357198000436953e-199},
      {20000, 20300, 0.0172935512779034464}, {1e10, 1e10 + 2e5, 0.0227506718551447703},
      {1e15, 1e15 + 3e8, 1.19081079563928896e-21}}, 1e-12)
    check(special.zeta, {
      {20, 12, 3.29611478010242706e-22}, {50, 10, 1.00863049543527915e-50},
      {100, 11, 7.25777946107351967e-105}, {6, 3, 0.00171806198444913971},
      {30, 40, 1.683700997121717765e-48},
      {12, 0.5, 4096.00772443579646}, {20.5, 7, 5.07463681034231615e-18}}, 1e-13)
    assert.near(-8327848.72166118657,
      special.polygamma(40, moth.full({}, 10, {dtype = moth.float64})):item(), 1e-5)
  end)

  it("raise for unsupported arguments", function()
    local x = moth.ones(2, 3)
    refuses(function() x:slice_scatter(moth.ones(1, 3), 1, 2, 3) end,
      "bad argument 'stop' to 'slice_scatter' (a range of 1 to 2")
    refuses(function() moth.unravel_index(moth.tensor{7LL}, {2, 3}) end, "positions from 1 to 6")
    refuses(function() x:index_reduce(1, moth.tensor{1LL}, x, "mean") end, "'source'")
    refuses(function() x:put(moth.tensor{1LL}, x) end, "1 number is needed")
    refuses(function() x:sum_to_size(2, 2) end, "'size' to 'sum_to_size'")
    refuses(function() moth.gradient(x, {dim = 1, edge_order = 2}) end, "at least 3 values")
    refuses(function() moth.histogram(x, 0) end, "'bins' to 'histogram'")
    refuses(function() moth.histogram(x:long()) end, "a float tensor is needed")
    refuses(function() moth.mvlgamma(x, 0) end, "'p'")
    refuses(function() moth.linalg.polar(x) end, "at least as many rows as columns")
    refuses(function() moth.linalg.eig(x) end, "a square matrix")
    refuses(function() moth.special.zeta(3) end, "'other'")
    local a = moth.ones(2):requires_grad_()
    refuses(function() moth.igamma(a, moth.ones(2)):sum():backward() end, "no gradient")
  end)

  it("use their own names in errors, not those of inner ops", function()
    local function names(text, f) assert.error_matches(f, text, 1, true) end
    names("bad argument 'count' to 'binomial'", function()
      moth.binomial(moth.tensor {-1}, moth.tensor {0.5})
    end)
    names("bad argument 'input' to 'multigammaln'", function() moth.special.multigammaln() end)
    for _, name in ipairs {"put", "put_"} do
      local x = moth.zeros(2, 3)
      names(("bad argument 'index' to '%s' (position 9"):format(name), function()
        x[name](x, moth.tensor {9LL}, moth.ones(1))
      end)
      names(("bad argument 'index' to '%s' (integers"):format(name), function()
        x[name](x, moth.tensor {1}, moth.ones(1))
      end)
    end
    names("'sample_shape' to 'Gamma.sample' (sizes from 0 on are needed, got -1)", function()
      moth.distributions.Gamma(1, 2):sample {-1}
    end)
    names("'input' to 'histogram' (finite numbers are needed, or a range, got f32 (2) with nan",
      function() moth.histogram(moth.tensor {1, 0 / 0}, 4) end)
    for _, name in ipairs {"complex", "view_as_real", "view_as_complex", "complex64"} do
      names("see moth.fft", function() return moth[name] end)
    end
  end)

  it("run under no_grad, and recorded", function()
    local step = moth.capture(function(v)
      return v:logcumsumexp(1), moth.special.entr(v), v:mode(1)
    end)
    local a, b, c
    for _ = 1, 3 do a, b, c = step(moth.tensor{1, 2, 2}) end
    assert.is_true(a:allclose(moth.tensor{1, 2, 2}:logcumsumexp(1)))
    assert.near(0, b[1]:item(), 1e-7)
    assert.equal(2, c:item())
    moth.no_grad(function() assert.is_false(moth.i0(a:detach()).requires_grad) end)
  end)
end)
