-- Calls that PyTorch accepts and that once raised here: results, dtypes, gradients are PyTorch's.

local moth = require "moth"
local T = moth.tensor

describe("the form in place of", function()
  it("squeeze, unsqueeze, t, transpose and others changes the shape of the tensor", function()
    local x = moth.arange(6):view(2, 3):clone()
    for _, row in ipairs {
      {"t_", {}, {3, 2}}, {"unsqueeze_", {1}, {1, 3, 2}}, {"squeeze_", {}, {3, 2}},
      {"transpose_", {1, 2}, {2, 3}}, {"swapaxes_", {1, -1}, {3, 2}}, {"swapdims_", {1, 2}, {2, 3}},
      {"unsqueeze_", {-1}, {2, 3, 1}}, {"squeeze_", {3}, {2, 3}},
      {"as_strided_", {{3, 2}, {1, 3}}, {3, 2}},
    } do
      local name, args, shape = unpack(row)
      assert.is_true(x[name](x, unpack(args)) == x)
      assert.are.same(shape, {unpack(x.shape)})
    end
    assert.are.same({{0, 3}, {1, 4}, {2, 5}}, x:tolist())
  end)

  it("t keeps the history, and views of the tensor theirs", function()
    local w = T({{1, 2, 3}, {4, 5, 6}}):requires_grad_()
    local y = w * 2
    local row = y[1]
    y:t_()
    y[{1, 1}] = 0
    local loss = (y:square():sum() + row:sum())
    loss:backward()
    assert.are.same({{0, 18, 26}, {32, 40, 48}}, w.grad:tolist())
    local v = w * 1
    v:t():unsqueeze_(1):mul_(3)
    assert.are.same({{3, 6, 9}, {12, 15, 18}}, v:tolist())
  end)

  it("t is refused where a history or a replay would not fit", function()
    local w = moth.randn(2, 3):requires_grad_()
    assert.has_error_like(function() w:t_() end, "'input' to 't_' %(a leaf that requires grad")
    assert.has_error_like(function() w[1]:unsqueeze_(1) end, "a view of a leaf")
    assert.has_error_like(function() (w * 1):unbind()[1]:unsqueeze_(1) end, "one of several views")
    moth.no_grad(function() w:t_() end)
    assert.are.same({3, 2}, {unpack(w.shape)})
    w:sum():backward()
    assert.are.same({3, 2}, {unpack(w.grad.shape)})
    assert.has_error_like(function() moth.no_grad(function() w:t_() end) end, "has a gradient")
    local step = moth.capture(function(a) return a:t_() + 1 end)
    assert.has_error_like(function() for _ = 1, 3 do step(moth.ones(2, 3)) end end,
      "a captured step cannot give another shape")
    local fine = moth.capture(function(a)
      local b = a * 2
      return b:t_():matmul(a)
    end)
    for k = 1, 4 do assert.are.equal(4 * k * k, fine(moth.ones(2, 3) * k)[{1, 1}]:item()) end
  end)

  it("cumprod, float_power, ldexp, mvlgamma, polygamma, igamma and igammac", function()
    local function close(y, ...)
      for i, v in ipairs {...} do assert.is_near(v, y[i]:item(), 1e-5) end
    end
    close(T{1, 2, 3}:cumprod_(1), 1, 2, 6)
    local x = T({2, 3}, {dtype = moth.float64})
    assert.is_true(x:float_power_(2) == x)
    close(x, 4, 9)
    assert.has_error_like(function() T{2}:float_power_(2) end,
      "'input' to 'float_power_' %(a float64 tensor is needed, got f32")
    close(T{1, 3}:ldexp_(T{2LL, -1LL}), 4, 1.5)
    close(T{3, 4}:mvlgamma_(2), 1.550195, 3.565097)
    close(T{1, 2}:polygamma_(1), 1.644934, 0.644934)
    close(T{1, 2}:igamma_(T{1, 2}), 0.6321206, 0.5939942)
    close(T{1, 2}:igammac_(T{1, 2}), 0.3678794, 0.4060058)
    local w = T{1, 2, 3}:requires_grad_()
    local y = w * 1
    y:cumprod_(1)
    y:sum():backward()
    assert.are.same({9, 4, 2}, w.grad:tolist())
  end)
end)

describe("functions of complex numbers take real ones:", function()
  it("angle", function()
    local y = moth.angle(T{-1, 0, 2, 0 / 0})
    assert.is_near(math.pi, y[1]:item(), 1e-6)
    assert.are.same({0, 0}, y[{{2, 3}}]:tolist())
    assert.is_true(y[4]:isnan():item())
    assert.are.equal(moth.float32, T{1LL, -2LL}:angle().dtype)
    local x = T{-1, 2}:requires_grad_()
    x:angle():sum():backward()
    assert.are.same({0, 0}, x.grad:tolist())
  end)

  it("isreal", function()
    assert.are.same({true, true}, moth.isreal(T{1, 0 / 0}):tolist())
    assert.are.equal(moth.bool, T{1LL}:isreal().dtype)
  end)
end)

describe("rsub", function()
  it("subtracts the input from the other one", function()
    assert.are.same({2, 1}, moth.rsub(T{1, 2}, 3):tolist())
    assert.are.same({3, 1}, T{1, 2}:rsub(T{5, 5}, {alpha = 2}):tolist())
    local x = T{1, 2}:requires_grad_()
    x:rsub(1, 3):sum():backward()
    assert.are.same({-3, -3}, x.grad:tolist())
    assert.are.equal(moth.int64, T{1LL}:rsub(3).dtype)
  end)
end)
