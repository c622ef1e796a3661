-- Products where a factor is zero, norms where all is zero: gradients that division would spoil.

local moth = require "moth"

local function grads(f, x)
  x = x:double():requires_grad_()
  local first = moth.autograd.grad(f(x), x, { create_graph = true })
  local second = moth.autograd.grad((first * first):sum(), x)
  return first:tolist(), second:tolist()
end

describe("a product with zeros", function()
  it("has the gradient of the other factors, twice", function()
    local first, second = grads(function(x) return x:prod() end, moth.tensor { 2, 0, 3 })
    assert.same({ 0, 6, 0 }, first)
    assert.same({ 36, 0, 24 }, second)
    first = grads(function(x) return x:prod() end, moth.tensor { 2, 0, 0 })
    assert.same({ 0, 0, 0 }, first)
    first = grads(function(x) return x:cumprod(1):sum() end, moth.tensor { 2, 0, 3 })
    assert.same({ 1, 8, 0 }, first)
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

  it("takes 'fro', infinities, several dims, and says what else it is given", function()
    local x = moth.tensor { { 3, -4 }, { 0, 12 } }
    assert.equal(13, x:norm("fro"):item())
    assert.equal(12, x:norm(math.huge):item())
    assert.equal(0, x:norm(-math.huge):item())
    assert.same({ { 2 }, { 1 } }, x:norm(0, { dim = 2, keepdim = true }):tolist())
    assert.has_error(function() x:norm "nuc" end)
  end)
end)
