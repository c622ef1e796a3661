-- Products with a zero factor, norms of zeros: gradients that a division would make NaN.

local moth = require "moth"

local function grads(f, x)
  x = x:double():requires_grad_()
  local first = moth.autograd.grad(f(x), x, { create_graph = true })
  local second = moth.autograd.grad((first * first):sum(), x)
  return first:tolist(), second:tolist()
end

describe("a product with zeros", function()
  it("has the gradient of the other factors, also in second derivatives", function()
    local first, second = grads(function(x) return x:prod() end, moth.tensor { 2, 0, 3 })
    assert.same({ 0, 6, 0 }, first)
    assert.same({ 36, 0, 24 }, second)
    first = grads(function(x) return x:prod() end, moth.tensor { 2, 0, 0 })
    assert.same({ 0, 0, 0 }, first)
    first = grads(function(x) return x:cumprod(1):sum() end, moth.tensor { 2, 0, 3 })
    assert.same({ 1, 8, 0 }, first)
  end)
end)

describe("a product with alpha or beta", function()
  it("of half types is rounded once, and its factors are not rounded", function()
    for _, dtype in ipairs { moth.float16, moth.bfloat16 } do
      local x = moth.tensor({ { 0.7 } }, { dtype = dtype })
      local exact = x:double() * -4.775 + x:double() * x:double() * 2.0315
      local product = (x:double() * x:double()):to(dtype):double() -- the result of matmul
      local wanted = (x:double() * -4.775 + product * 2.0315):to(dtype)
      local y = moth.addmm(x, x, x, { beta = -4.775, alpha = 2.0315 })
      assert.equal(dtype, y.dtype)
      assert.equal(wanted:item(), y:item())
      assert.close(exact:item(), y:item(), dtype == moth.float16 and 1e-3 or 8e-3)
      assert.equal((product * 2.0315):to(dtype):item(),
        moth.addmm(x, x, x, { beta = 0, alpha = 2.0315 }):item())
      local b = x:view(1, 1, 1)
      assert.equal(y:item(), moth.baddbmm(b, b, b, { beta = -4.775, alpha = 2.0315 }):item())
    end
  end)

  it("of half types has gradients of these types", function()
    local x = moth.randn(2, 2):to(moth.bfloat16):requires_grad_()
    moth.addmm(x, x, x, { beta = 0.3, alpha = 0.7 }):sum():backward()
    assert.equal(moth.bfloat16, x.grad.dtype)
  end)
end)

describe("a norm", function()
  it("has the subgradient 0 at zero", function()
    for _, p in ipairs { 2, 1, 0.5, 3, 0 } do
      local x = moth.zeros(3):requires_grad_()
      x:norm(p):backward()
      assert.same({ 0, 0, 0 }, x.grad:tolist())
    end
    local _, second = grads(function(x) return x:norm() end, moth.zeros(3))
    assert.same({ 0, 0, 0 }, second)
  end)

  it("accepts 'fro', infinities, several dims, and names invalid orders", function()
    local x = moth.tensor { { 3, -4 }, { 0, 12 } }
    assert.equal(13, x:norm("fro"):item())
    assert.equal(12, x:norm(math.huge):item())
    assert.equal(0, x:norm(-math.huge):item())
    assert.same({ { 2 }, { 1 } }, x:norm(0, { dim = 2, keepdim = true }):tolist())
    assert.near(15, moth.tensor({ { 3, 0 }, { 0, 12 } }):norm("nuc"):item(), 1e-5)
    assert.has_error(function() x:norm "nuk" end)
  end)
end)

describe("small products", function()
  it("are exact sums for every type and any number of columns", function()
    for _, dtype in ipairs { "float32", "float64", "int64", "int16" } do
      for n = 1, 17 do
        local a = (moth.arange(2 * 3 * 5) % 7 - 3):to(moth[dtype]):view(2, 3, 5)
        local b = (moth.arange(2 * 5 * n) % 11 - 5):to(moth[dtype]):view(2, 5, n)
        local c = (moth.arange(2 * 3 * n) % 5):to(moth[dtype]):view(2, 3, n)
        local wanted = (a:unsqueeze(4) * b:unsqueeze(2)):sum(3)
        assert.same(wanted:tolist(), a:bmm(b):tolist())
        assert.same((wanted + c):tolist(), moth.baddbmm(c, a, b):tolist())
      end
    end
  end)
end)
