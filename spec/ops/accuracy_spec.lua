-- Errors of f32 sums, products and composite functions, compared with f64. Bounds are about twice
-- the errors of PyTorch's kernels (or of these kernels, if smaller): rms and largest error in
-- units of the last place of the largest result. isa_spec.lua checks single functions.

local moth = require "moth"
local F = moth.nn.functional
local nn = moth.nn

-- {largest error, rms} of f(inputs) and of its gradients, the largest of all.
local function off(f, ...)
  local results = {}
  local inputs, weight = {...}, nil
  for i, dtype in ipairs {moth.float32, moth.float64} do
    local leaves = {}
    for k, x in ipairs(inputs) do leaves[k] = x:to(dtype):clone():requires_grad_() end
    local y = f(unpack(leaves))
    weight = weight or moth.randn_like(y:detach())
    y:backward(weight:to(dtype))
    results[i] = {y:detach()}
    for _, x in ipairs(leaves) do table.insert(results[i], x.grad) end
  end
  local most, rms = 0, 0
  for k, want in ipairs(results[2]) do
    local unit = want:abs():max():item() * 2 ^ -24
    local e = (results[1][k]:double() - want) / unit
    most = math.max(most, e:abs():max():item())
    rms = math.max(rms, e:square():mean():sqrt():item())
  end
  return most, rms
end

local function within(most, rms, f, ...)
  local m, r = off(f, ...)
  assert.is_true(m <= most and r <= rms, ("%.2f at most, %.2f rms"):format(m, r))
end

-- Without Moth's own tiles, products use OpenBLAS or plain loops: one long sum.
local function product_within(most, rms, ...)
  local tiles = jit.arch == "x64" and os.getenv "MOTH_ISA" ~= "plain"
  local room = tiles and 1 or 12
  within(most * room, rms * room, ...)
end

describe("errors of f32 stay small", function()
  before_each(function() moth.manual_seed(3) end)

  it("in sums of ten million", function()
    local x = moth.rand(1e7)
    local want = x:sum({dtype = moth.float64}):item()
    local function near(got, value, units)
      local e = math.abs(got:item() - value) / (value * 2 ^ -24)
      assert.is_true(e <= units, ("%.2f units"):format(e))
    end
    near(x:sum(), want, 2)
    near(x:mean(), want / 1e7, 3)
  end)

  it("in sums, means and variances of rows and columns", function()
    local x = moth.rand(500, 1000)
    for _, name in ipairs {"sum", "mean", "var", "std", "logsumexp", "softmax", "log_softmax"} do
      for dim = 1, 2 do
        local m, r = off(function(t) return moth[name](t, dim) end, x)
        assert.is_true(m <= 24 and r <= 4.5, ("%s: %.2f, %.2f"):format(name, m, r))
      end
    end
  end)

  it("in the means of var_mean along columns", function() -- PyTorch's are sums of doubles
    for _, make in ipairs {moth.rand, moth.randn} do
      local x = make(300, 200)
      within(2, 0.8, function(t) return select(2, moth.var_mean(t, 1)) end, x)
      within(2, 0.8, function(t) return select(2, moth.std_mean(t:view(300, 20, 10), 1)) end, x)
    end
  end)

  it("in softmax of rows of any length and number, each as if computed alone", function()
    for _, n in ipairs {1, 3, 8, 10, 16, 17, 33, 64, 255, 257} do
      for _, rows in ipairs {1, 3, 5, 16, 17} do
        local x = moth.randn(rows, n) * 3
        for _, name in ipairs {"softmax", "log_softmax"} do
          local y, case = moth[name](x, 2), ("%s of (%d, %d)"):format(name, rows, n)
          local wrong = (y:double() - moth[name](x:double(), 2)):abs():max():item()
          assert.is_true(wrong <= 3e-6, case .. (" is %g off"):format(wrong))
          assert.is_true(moth.equal(moth[name](x[{{rows, rows}}], 2), y[{{rows, rows}}]), case)
        end
      end
    end
  end)

  it("in sums and norms of rows of any length and number, each as if computed alone", function()
    for _, n in ipairs {1, 3, 15, 16, 17, 33, 64, 127, 128, 129} do
      local x = moth.randn(37, n) * (20 * moth.randn(37, 1)):exp() -- some with squares beyond f32
      local sums, norms = x:sum(2), x:norm(2, 2)
      for i = 1, 37 do
        assert.equal(x[i]:sum():item(), sums[i]:item())
        assert.equal(x[i]:norm():item(), norms[i]:item())
      end
    end
  end)

  it("in products with sums of any length", function()
    for k, bounds in pairs {
      [64] = {9, 2}, [200] = {8, 1.3}, [300] = {10, 2.4}, [1000] = {10, 2.4}, [5000] = {12, 3},
    } do
      product_within(bounds[1], bounds[2], moth.mm, moth.rand(48, k), moth.rand(k, 40))
      product_within(bounds[1], bounds[2], F.linear, moth.rand(2, k), moth.rand(40, k))
    end
  end)

  it("in products of vectors and in traces", function()
    local x = moth.rand(1e5)
    product_within(5, 5, moth.dot, x, moth.rand(1e5))
    within(2, 2, moth.trace, moth.rand(1000, 1000) - 0.4)
  end)

  it("in products of three matrices", function()
    product_within(9, 1.7, F.bilinear, moth.rand(64, 40), moth.rand(64, 50), moth.rand(30, 40, 50))
    product_within(9, 1.7, F.bilinear, moth.rand(200, 20), moth.rand(200, 20),
                   moth.rand(10, 20, 20))
  end)

  it("in repeated elements", function()
    within(3, 1.5, function(x) return x:repeat_interleave(1000, 1) end, moth.rand(20))
    within(3, 1.5, function(x) return x:expand(1000, 20) end, moth.rand(1, 20))
  end)

  it("in convolutions", function()
    product_within(16, 3.2, function(x, w) return (F.conv2d(x, w, nil, 1, 1)) end,
                   moth.rand(1, 64, 14, 14), moth.rand(32, 64, 3, 3))
    product_within(12, 2, function(x, w) return (F.conv2d(x, w, nil, 1, 1)) end,
                   moth.rand(1, 512, 7, 7), moth.rand(16, 512, 3, 3))
    product_within(16, 3.2, function(x, w) return (F.conv2d(x, w, nil, 2, 1)) end,
                   moth.rand(1, 64, 14, 14), moth.rand(32, 64, 3, 3))
    product_within(12, 3, function(x, w) return (F.conv2d(x, w)) end,
                   moth.rand(1, 256, 14, 14), moth.rand(64, 256, 1, 1))
    product_within(14, 3.2, function(x, w) return (F.conv1d(x, w, nil, 1, 2)) end,
                   moth.rand(2, 64, 200), moth.rand(32, 64, 5))
    product_within(8, 1.8, function(x, w) return (F.conv1d(x, w, nil, 1, 4, 4):sum()) end,
                   moth.rand(2, 60, 100), moth.rand(40, 60, 3))
    product_within(14, 3.2, function(x, w) return (F.conv_transpose2d(x, w, nil, 2, 1)) end,
                   moth.rand(2, 64, 10, 10), moth.rand(64, 32, 4, 4))
    product_within(12, 1.25, function(x, w) return (F.conv_transpose1d(x, w, nil, 2, 2, 1)) end,
                   moth.rand(4, 32, 100), moth.rand(32, 64, 5))
  end)

  it("in attention", function()
    local function q() return moth.randn(1, 2, 256, 64) end
    within(24, 2, function(a, b, c) return (F.scaled_dot_product_attention(a, b, c)) end,
           q(), q(), q())
  end)

  it("in normalization", function()
    within(9, 3, function(x, w) return (F.layer_norm(x, {1000}, w)) end,
           moth.randn(64, 1000) + 5, moth.rand(1000) + 0.5)
    within(9, 3, function(x, w) return (F.rms_norm(x, {1000}, w)) end,
           moth.randn(64, 1000) + 5, moth.rand(1000) + 0.5)
    within(9, 3, function(x, w) return (F.batch_norm(x, nil, nil, w, nil, true)) end,
           moth.randn(16, 8, 28, 28), moth.rand(8) + 0.5)
  end)

  it("in the gradients of recurrent layers", function()
    for _, name in ipairs {"RNN", "GRU", "LSTM"} do
      local layer, x, dy = nn[name](16, 32), moth.randn(50, 8, 16), moth.randn(50, 8, 32)
      local function gradients(dtype)
        layer:to(dtype)
        layer:zero_grad()
        layer(x:to(dtype)):backward(dy:to(dtype))
        local list = {}
        for _, p in ipairs(layer:parameters()) do table.insert(list, p.grad:double()) end
        return list
      end
      local got, want = gradients(moth.float32), gradients(moth.float64)
      for k, w in ipairs(want) do
        local e = ((got[k] - w) / (w:abs():max() * 2 ^ -24)):square():mean():sqrt():item()
        assert.is_true(e <= 2, ("%s, parameter %d: %.2f rms"):format(name, k, e))
      end
    end
  end)

  it("in the gradient of a mean", function() -- rounded once
    local x = moth.randn(1000)
    within(1, 1, F.l1_loss, x, moth.randn(1000))
    within(2, 1, F.mse_loss, x, moth.randn(1000))
  end)
end)

describe("gradients of half types", function()
  local halves = {moth.float16, moth.bfloat16}

  it("are rounded once for a mean of any number of elements", function()
    for _, dtype in ipairs(halves) do
      for _, n in ipairs {1000, 70001} do
        local x = moth.ones(n, {dtype = dtype}):requires_grad_()
        x:mean():backward()
        local want = moth.full({n}, 1 / n):to(dtype)
        assert.is_true(moth.equal(want, x.grad), ("%s of %d"):format(tostring(dtype), n))
      end
    end
  end)

  it("are rounded once in losses", function()
    moth.manual_seed(3)
    for _, dtype in ipairs(halves) do
      for _, name in ipairs {"mse_loss", "smooth_l1_loss", "huber_loss", "kl_div"} do
        local x, t = moth.randn(70, 1000):to(dtype), moth.rand(70, 1000):to(dtype)
        local grads = {}
        for i, as in ipairs {dtype, moth.float32} do
          local leaf = x:to(as):clone():requires_grad_()
          F[name](leaf, t:to(as)):backward()
          grads[i] = leaf.grad:to(dtype)
        end
        assert.is_true(moth.equal(grads[1], grads[2]), name)
      end
    end
  end)

  it("of attention with a learnt bias are near those of f32", function()
    moth.manual_seed(3)
    for _, dtype in ipairs(halves) do
      local inputs, grads = {}, {}
      for i, shape in ipairs {{2, 60, 32}, {2, 90, 32}, {2, 90, 32}, {60, 90}} do
        inputs[i] = moth.rand(shape):to(dtype)
      end
      for k, as in ipairs {dtype, moth.float32} do
        local leaves = {}
        for i, x in ipairs(inputs) do leaves[i] = x:to(as):clone():requires_grad_() end
        F.scaled_dot_product_attention(unpack(leaves)):sum():backward()
        for i, x in ipairs(leaves) do
          grads[i] = grads[i] or {}
          grads[i][k] = x.grad:double()
        end
      end
      for i, pair in ipairs(grads) do
        local most = pair[2]:abs():max():item() * (dtype == moth.float16 and 2 ^ -10 or 2 ^ -7)
        local apart = (pair[1] - pair[2]):abs():max():item()
        assert.is_true(apart <= most, ("input %d: %g of %g"):format(i, apart, most))
      end
    end
  end)
end)

describe("piecewise functions", function()
  it("change at PyTorch's points", function()
    local x = moth.tensor({-3, 3}):requires_grad_()
    F.hardswish(x):sum():backward()
    assert.are.same({0, 1}, {x.grad[1]:item(), x.grad[2]:item()})
  end)
end)

describe("Bessel's functions of f32", function()
  it("equal those of f64, rounded, and so do their derivatives", function()
    local size = moth.cat {moth.linspace(1e-3, 30, 4001), moth.tensor {1e-18, 2.4048255, 7.9999995,
      8.000001, 100, 12345.6, 1e5, 3e7}}
    for name in ("i0 i1 i0e i1e bessel_j0 bessel_j1 bessel_y0 bessel_y1 airy_ai "
      .. "spherical_bessel_j0"):gmatch "%S+" do
      local x = name:find "_y" and size or moth.cat {size, -size}
      if name == "i0" or name == "i1" then x = x:clamp(-80, 80) end
      if name == "airy_ai" then x = x:clamp(-1000, 20) end
      local both = {}
      for i, dtype in ipairs {moth.float32, moth.float64} do
        local leaf = x:to(dtype):detach():requires_grad_()
        local y = moth.special[name](leaf)
        y:sum():backward()
        both[i] = {y:detach():double(), leaf.grad:double()}
      end
      for k = 1, 2 do
        local got, want = both[1][k], both[2][k]
        local rest = (got - want):abs() - want:abs() * 2 ^ -23 - 1e-37
        assert.is_true(rest:max():item() <= 1e-10, name .. ", order " .. k - 1)
      end
    end
  end)

  it("have the limits of the f64 functions at 0, infinity and NaN", function()
    local x = moth.tensor {0, -1, math.huge, -math.huge, 0 / 0}
    for name in ("i0 i1 i0e i1e bessel_j0 bessel_j1 bessel_y0 bessel_y1 airy_ai "
      .. "spherical_bessel_j0"):gmatch "%S+" do
      local got, want = moth.special[name](x), moth.special[name](x:double()):float()
      assert.is_true(moth.allclose(got, want, {equal_nan = true, rtol = 1e-6}), name)
    end
  end)
end)

describe("special values", function()
  local function text(x) -- NaNs without a sign
    local list = {}
    for i = 1, #x do
      local v = x[i]:item()
      list[i] = v ~= v and "nan" or v == 0 and (1 / v < 0 and "-0" or "0") or ("%g"):format(v)
    end
    return table.concat(list, " ")
  end
  local values = moth.tensor {0, -1, math.huge, -math.huge, 0 / 0}
  values[{2}] = moth.tensor(0):neg()

  it("of activations are their limits", function()
    for name, want in pairs {
      elu = "0 -0 inf -1 nan", celu = "0 -0 inf -1 nan", hardswish = "0 -0 inf 0 nan",
      softshrink = "0 -0 inf -inf nan", logsigmoid = "-0.693147 -0.693147 0 -inf nan",
    } do
      for _, dtype in ipairs {moth.float32, moth.float64} do
        assert.are.equal(want, text(F[name](values:to(dtype))), name)
      end
    end
  end)

  it("of square roots as powers are PyTorch's", function()
    for _, dtype in ipairs {moth.float32, moth.float64} do
      assert.are.equal("0 -0 inf nan nan", text(values:to(dtype):pow(0.5)))
      assert.are.equal("inf -inf 0 nan nan", text(values:to(dtype):pow(-0.5)))
    end
  end)
end)

describe("powers of small integers", function()
  it("are products, in place too, for any dtype", function()
    for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16", "int64", "int8"} do
      local x = (moth.randn(50) * 5):to(moth[dtype])
      local cube = dtype:find "16" and (x:float() * x:float() * x:float()):to(x.dtype) or x * x * x
      assert.is_true(moth.equal(cube, x:pow(3)), dtype)
      assert.is_true(moth.equal(cube, x:clone():pow_(moth.tensor(3LL))), dtype)
      assert.is_true(moth.equal(x, x:pow(1)), dtype)
    end
  end)

  it("are quotients for negative exponents", function()
    local x = moth.tensor {2, -4, 0, math.huge}
    assert.is_true(moth.equal(moth.tensor {0.5, -0.25, math.huge, 0}, x:pow(-1)))
    assert.is_true(moth.equal(moth.tensor {0.25, 0.0625, math.huge, 0}, x:pow(-2)))
    assert.has_error(function() return x:long():pow(-1) end)
    assert.is_true(moth.autograd.gradcheck(function(v) return v:pow(-2) + v:pow(3) + v:pow(-1) end,
      {moth.rand(4, {dtype = moth.float64, requires_grad = true}) + 0.5}))
  end)
end)

describe("remainders of f32", function()
  it("equal C's, for both methods of their loop", function()
    moth.manual_seed(3)
    for e = -10, 27 do
      local y = moth.randn(600)
      for _, x in ipairs { moth.randn(600) * 2 ^ e, y * (moth.rand(600) * 2 ^ e):round() } do
        local beside = moth.stack({ y, moth.full({ 600 }, math.huge) }, 2):view(-1) -- C's method
        for _, name in ipairs { "fmod", "remainder", "floor_divide" } do
          local near = moth[name](x, y)
          local far = moth[name](moth.stack({ x, x }, 2):view(-1), beside):view(-1, 2):select(2, 1)
          assert.is_true(moth.equal(near, far), name)
          assert.is_true(moth.equal(near:signbit(), far:signbit()), name)
        end
      end
    end
  end)
end)

describe("products of elements", function()
  -- Each is compared with a loop in Lua, whose numbers are doubles.
  it("are rounded once, for any length and alignment", function()
    moth.manual_seed(4)
    for _, dtype in ipairs {moth.float32, moth.float64} do
      for _, n in ipairs {1, 3, 4, 7, 8, 31, 64, 131} do
        local x = moth.rand(n, n) + 0.5
        local list, want = x:tolist(), {}
        for i = 1, n do
          local product, running = 1, {}
          for j = 1, n do
            product = product * list[i][j]
            running[j] = product
          end
          want[i] = running
        end
        local all = moth.tensor(want, {dtype = moth.float64})
        local last = all:select(2, n)
        x = x:to(dtype)
        local wide = moth.stack({x, x}, 3):select(3, 1)
        local few = dtype == moth.float32 and 2 ^ -23 or 2 ^ -44
        for k, y in ipairs {x:prod(2), x:t():contiguous():prod(1), x:t():prod(1), wide:prod(2),
                            wide:t():prod(1), x:cumprod(2), x:t():contiguous():cumprod(1):t()} do
          local error = (y:double() / (k < 6 and last or all) - 1):abs():max():item()
          assert.is_true(error <= few, ("%d of %d: %g"):format(k, n, error))
        end
      end
    end
  end)
end)

describe("functions of f32 compared with those of f64", function()
  -- The largest error of y in units in the last place of the result.
  local function units(y, want)
    want = want:double()
    local unit = (want:abs():clamp(2 ^ -126):log2():floor() - 23):exp2()
    return ((y:double() - want):abs() / unit):nan_to_num(0, 0):max():item()
  end
  local function near(name, bound, f, x)
    local most = units(f(x), f(x:double()))
    assert.is_true(most <= bound, ("%s: %.3f units"):format(name, most))
  end

  it("are right near their zeros, ends and poles", function()
    local little = moth.logspace(-44, -1, 5001, {dtype = moth.float64}):float()
    local both = moth.cat {little, -little}
    local about = both:double():float() * 0.5 + 1 -- both sides of 1
    for name in ("log log2 log10"):gmatch "%S+" do
      near(name, 0.6, moth[name], about)
      near(name, 0.6, moth[name], moth.logspace(-44.5, 38.5, 5001, {dtype = moth.float64}):float())
    end
    near("log1p", 0.6, moth.log1p, both)
    near("log1p", 0.6, moth.log1p, -about:clamp(0, 1))
    for name in ("sin cos tan"):gmatch "%S+" do
      near(name, 0.6, moth[name], moth.arange(-4000, 4001) * math.pi / 2)
      near(name, 0.6, moth[name], both)
    end
    for name in ("asin acos"):gmatch "%S+" do
      near(name, 0.65, moth[name], both)
      near(name, 0.65, moth[name], about:clamp(-1, 1))
      near(name, 0.65, moth[name], -about:clamp(-1, 1))
    end
    near("erfc", 0.65, moth.erfc, moth.linspace(-4, 9.1, 20001))
    near("erfc", 0.65, moth.erfc, both)
    near("ndtri", 0.6, moth.special.ndtri, little)
    near("log_ndtr", 0.6, moth.special.log_ndtr, moth.linspace(-40, 12, 5001))
    near("erfcx", 0.6, moth.special.erfcx, moth.linspace(-9, 200, 5001))
  end)

  it("are exact if their results have few bits", function()
    local k = moth.arange(-149, 128)
    assert.is_true(moth.equal(k, k:double():exp2():float():log2()))
    assert.is_true(moth.equal(moth.arange(0, 11), moth.pow(10, moth.arange(0, 11)):log10()))
    local x = moth.tensor {0, 1, -1, math.huge, -math.huge}
    assert.are.same({1, moth.erfc(moth.tensor(1)):item()}, x[{{1, 2}}]:erfc():tolist())
    assert.are.same({0, 2}, x[{{4, 5}}]:erfc():tolist())
    assert.equal(0, x:acos()[2]:item())
  end)

  it("have first derivatives of the same accuracy", function()
    local x = moth.cat {moth.linspace(-9, 60, 5001), moth.linspace(-0.2, 0.2, 1001)}
    for name, f in pairs {sinc = moth.sinc, erfcx = moth.special.erfcx, atan = moth.atan,
                          log_ndtr = moth.special.log_ndtr} do
      local function derivative(t)
        t = t:detach():requires_grad_()
        f(t):sum():backward()
        return t.grad
      end
      near(name, name == "atan" and 2.5 or 0.6, derivative, x)
    end
  end)

  it("have a gradient of logit that is 0 outside of its eps", function()
    local x = moth.tensor {-0.5, 0.0625, 0.25, 0.5, 0.9375, 1.5}
    for _, dtype in ipairs {moth.float32, moth.float64, moth.bfloat16} do
      for _, again in ipairs {false, true} do
        local leaf = x:to(dtype):requires_grad_()
        local y = leaf:logit(0.125)
        local got = moth.autograd.grad(y:sum(), {leaf}, {create_graph = again}):double()
        local want = moth.tensor({0, 0, 16 / 3, 4, 0, 0}, {dtype = dtype}):double()
        local few = dtype == moth.bfloat16 and 1e-2 or 1e-6
        assert.is_true(moth.allclose(got, want, {rtol = few}))
        local free = moth.autograd.grad(leaf:logit():sum(), {leaf}, {create_graph = again})
        assert.are.same({true, false, false, false, false, true}, free:isnan():tolist())
      end
    end
  end)
end)

describe("signs of half types", function()
  it("are changed as bits, in any layout, and in place", function()
    for _, dtype in ipairs {moth.float16, moth.bfloat16} do
      local x = moth.randn(40, 30):to(dtype)
      x[1][1], x[1][2], x[1][3], x[1][4] = 0, -math.huge, math.huge, 0 / 0
      for _, v in ipairs {x, x:t(), x[{{}, {3, 17}}], x[{{1, 40, 3}}]} do
        for _, name in ipairs {"neg", "abs"} do
          local y, want = moth[name](v), moth[name](v:float())
          assert.equal(dtype, y.dtype)
          assert.is_true(moth.equal(y:float():nan_to_num(7), want:nan_to_num(7)), name)
          assert.is_true(moth.equal(y:signbit():logical_and(y:isfinite()),
                                    want:signbit():logical_and(want:isfinite())), name)
          local w = v:clone()
          w[name .. "_"](w)
          assert.is_true(moth.equal(w:nan_to_num(7), y:nan_to_num(7)), name)
        end
      end
    end
  end)
end)

describe("operands of one element", function()
  it("are broadcast, in functions of three operands", function()
    moth.manual_seed(5)
    for _, dtype in ipairs {moth.float32, moth.float64, moth.bfloat16} do
      local x, y = moth.randn(37, 29):to(dtype), (moth.rand(37, 29) + 0.5):to(dtype)
      for _, z in ipairs {moth.tensor(0.3), moth.tensor(0.7), moth.rand(37, 1), moth.rand(29)} do
        z = z:to(dtype)
        local all = z:expand(37, 29):contiguous()
        for _, name in ipairs {"lerp", "addcmul", "addcdiv"} do
          local f = moth[name]
          assert.is_true(moth.equal(f(x, y, z), f(x, y, all)), name)
          assert.is_true(moth.equal(f(x, all, y), f(x, z, y)), name)
          assert.is_true(moth.equal(f(all, x, y), f(z, x, y)), name)
        end
      end
    end
  end)
end)

describe("errors of f64 stay small", function()
  local functions = {
    exp = math.exp, tanh = math.tanh, sigmoid = function(x)
      local e = math.exp(-math.abs(x))
      return (x < 0 and e or 1) / (1 + e)
    end,
  }
  local units = {exp = 1.6, tanh = 4, sigmoid = 4} -- C's tanh has an error of 2

  it("in exp, tanh and sigmoid, contiguous and strided, as C's", function()
    moth.manual_seed(5)
    for name, f in pairs(functions) do
      for _, size in ipairs {0.01, 1, 5, 50, 700} do
        local x = moth.randn {2003, 2, dtype = moth.float64} * size
        for _, view in ipairs {x:clamp(-707, 707):view(-1), x:clamp(-707, 707):t()[1]} do
          local given, got = view:tolist(), view[name](view):tolist()
          for i, v in ipairs(given) do
            local want = f(v)
            local _, e = math.frexp(want)
            local wrong = math.abs(got[i] - want) / 2 ^ (e - 53)
            assert.is_true(wrong <= units[name], ("%s(%.17g): %.2f"):format(name, v, wrong))
          end
        end
      end
    end
  end)

  it("at the ends of their range, and they keep NaN", function()
    local edges = {0, -0, 1e-300, -1e-300, 709.78, -708.5, 710, -740, -745.2, -747, 1e300, -1e300,
                   math.huge, -math.huge, 19.06, -37.5, 0.625, -0.625}
    local x = moth.tensor(edges, {dtype = moth.float64})
    for name, f in pairs(functions) do
      local got = x[name](x):tolist()
      for i, v in ipairs(edges) do
        local want = f(v)
        local near = got[i] == want or math.abs(got[i] - want) <= 5e-324 + 4e-16 * math.abs(want)
        assert.is_true(near and 1 / got[i] < 0 == (1 / want < 0), name .. " of " .. v)
      end
      local nan = moth.full({9}, 0 / 0, {dtype = moth.float64})
      assert.is_true(nan[name](nan):isnan():all():item())
    end
  end)
end)

describe("functions with their own loops on the CPU", function()
  it("are captured with the bits of the op, in a chain of other functions", function()
    local special = moth.special
    local function chain(x)
      local y = x * 0.5 + 1
      return special.bessel_j0(y) + y, special.airy_ai(y) * 2, special.spherical_bessel_j0(y) - 1,
        special.i1e(y) + special.i0e(y)
    end
    local step = moth.capture(chain)
    for _ = 1, 4 do
      local x = moth.randn(3000) * 4
      local got = {step(x)}
      for k, wanted in ipairs {chain(x)} do assert.is_true(wanted:equal(got[k]), k) end
    end
  end)

  it("are accepted by moth.kernel", function()
    local x = moth.randn(3000) * 4
    for _, name in ipairs {"bessel_j0", "bessel_y1", "airy_ai", "spherical_bessel_j0", "i1e"} do
      local f = moth.special[name]
      local kernel = moth.kernel(function(v) return f(v) * 2 end)
      assert.is_true(moth.allclose(kernel(x), f(x) * 2, {rtol = 1e-6, equal_nan = true}), name)
    end
  end)
end)

describe("a gradient in float32", function()
  local registry = require "spec.support.registry"
  local RANGES = {positive = {0.01, 6}, prob = {0.001, 0.999}, unit = {-0.999, 0.999},
    large = {1.001, 6}}
  -- Units of the last place where it is not 4: 1 - y^2 and the like lose digits, as in PyTorch.
  -- The last three gradients cross 0.
  local MOST = {tanh = 24, sigmoid = 24, expm1 = 8, erf = 8, erfc = 8, erfinv = 10, rsqrt = 8,
    gelu = 48, mish = 24, silu = 12}
  local ENDS = {threshold = true} -- float32 rounds its bound

  -- The largest error over a range, in units of the last place of the gradient, or of 0.1 if that
  -- is larger; nil if f is no function of each element.
  local function error_of(f, range, ...)
    local x = moth.linspace(range[1], range[2], 4001)
    local function gradient(dtype, ...)
      local leaf = x:clone():to(dtype):requires_grad_()
      local y = f(leaf, ...)
      if y:numel() ~= 4001 or y.dtype ~= dtype then return nil end
      y:sum():backward()
      return leaf.grad and leaf.grad:double()
    end
    local fine, got = pcall(gradient, moth.float32, ...)
    if not fine or not got then return nil end
    local wanted = gradient(moth.float64, ...)
    local e = (got - wanted):abs() / wanted:abs():clamp(0.1)
    return moth.where(e:isnan(), 0, e):max():item() * 2 ^ 24
  end

  it("has a few units of error, for each function of the elements", function()
    local count, list = 0, {}
    for _, op in ipairs(registry.ops()) do
      local example = op.grad and not op.hidden and not op.random and op.name:sub(-1) ~= "_"
        and not ENDS[op.name] and op.examples[1]
      local arguments = example and example.arguments()
      if arguments and #registry.flat(unpack(arguments, 1, arguments.n)) == 1
         and moth.is_tensor(arguments[1]) then
        local e = error_of(op.fn, RANGES[example.domain] or {-4, 4},
          unpack(arguments, 2, arguments.n))
        if e and e > (MOST[op.name] or 4) then
          list[#list + 1] = ("%s: %g units"):format(op.name, e)
        end
        count = count + (e and e > 0 and 1 or 0)
      end
    end
    assert.same({}, list)
    assert.is_true(count > 35, count)
  end)
end)
