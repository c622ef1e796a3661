-- Gradients computed in one pass. They overwrite the gradient of the result if it has no other
-- reference, and only then. Gradients of losses equal their formulas.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local F = moth.nn.functional

-- Functions whose gradient is the last reader of the gradient of their result.
local MAPS = {
  exp = moth.exp, log = moth.log, sqrt = moth.sqrt, sin = moth.sin, cos = moth.cos,
  neg = moth.neg, square = moth.square, reciprocal = moth.reciprocal, tanh = moth.tanh,
  relu = F.relu, gelu = F.gelu, leaky_relu = F.leaky_relu,
  ["a product with a number"] = function(x) return x * 1.5 end,
  ["a product with itself"] = function(x) return x * x end,
  ["a product with fewer dimensions"] = function(x) return x * moth.full({40}, 0.7) end,
  ["a product of both"] = function(x) return x * x:neg() end,
  ["a quotient by a number"] = function(x) return x / 1.5 end,
  ["a quotient of both"] = function(x) return x / x:exp() end,
}

local function leaf() return (moth.rand(30, 40) + 0.5):requires_grad_() end

-- The gradient of f(x) with create_graph, which overwrites nothing.
local function wanted(f, x, dy)
  local options = {grad_outputs = {dy}, create_graph = true}
  return (moth.autograd.grad(f(x), {x}, options)):detach()
end

-- Each function between two others, so that only the backward pass refers to its gradient.
local function each(check)
  moth.manual_seed(5)
  for name, map in pairs(MAPS) do
    check(function(x) return map(x:neg():neg()):neg():neg() end, name, map)
  end
end

describe("a gradient written over another", function()
  it("equals the one in new memory", function()
    each(function(f, name)
      local x, dy = leaf(), moth.randn(30, 40)
      local want = wanted(f, x, dy)
      f(x):backward(dy)
      assert.is_true(moth.equal(want, x.grad), name)
    end)
  end)

  it("does not overwrite the argument of backward", function()
    each(function(_, name, map)
      local dy = moth.randn(30, 40)
      local copy = dy:clone()
      map(leaf()):backward(dy)
      assert.is_true(moth.equal(copy, dy), name)
    end)
  end)

  it("does not overwrite gradients of hooks, of retain_grad and of other branches", function()
    each(function(_, name, map)
      local x, dy, kept, copy = leaf(), moth.randn(30, 40), nil, nil
      local middle = x:neg()
      middle:register_hook(function(g) kept, copy = g, g:clone() end)
      local retained = map(middle:neg())
      retained:retain_grad()
      local both = retained:neg() + middle -- the gradient passes through to both
      local want = -dy
      both:backward(dy)
      assert.is_true(moth.equal(want, retained.grad), name)
      assert.is_true(moth.equal(copy, kept), name)
      assert.is_true(moth.equal(-copy, x.grad), name)
    end)
  end)

  it("does not overwrite the other branch of a sum, also through a view", function()
    each(function(_, name, map)
      local function f(x) return map(x:neg():neg()):view(40, 30) + x:sin():view(40, 30) end
      local x, dy = leaf(), moth.randn(40, 30)
      local want = wanted(f, x, dy)
      f(x):neg():neg():backward(dy)
      assert.is_true((want - x.grad):abs():max():item() <= 1e-5, name)
    end)
  end)

  it("leaves a retained graph with the same results", function()
    each(function(f, name)
      local x, dy = leaf(), moth.randn(30, 40)
      local y = f(x)
      y:backward(dy, {retain_graph = true})
      local first = x.grad:clone()
      x.grad = nil
      y:backward(dy)
      assert.is_true(moth.equal(first, x.grad), name)
    end)
  end)

  it("is the same in every replay of a recording", function()
    each(function(f, name)
      local x = leaf()
      local step = moth.capture(function(dy)
        x.grad = nil
        f(x):backward(dy)
        return x.grad
      end)
      for _ = 1, 3 do
        local dy = moth.randn(30, 40)
        local want = wanted(f, x, dy)
        assert.is_true(moth.equal(want, step(dy)), name)
      end
      step:free()
    end)
  end)

  it("writes gradients of slices of a transposed tensor to their places", function()
    local function parts(x)
      local q, k, v = unpack(x:view(4, 5, 3, 2, 3):permute(3, 1, 4, 2, 5):unbind(1))
      return q * k + v * 2 + k[2]:sum()
    end
    local x, dy = moth.randn(4, 5, 18):requires_grad_(), moth.randn(4, 2, 5, 3)
    local want = moth.autograd.grad(parts(x), x, dy, { create_graph = true }):detach()
    parts(x):backward(dy)
    assert.is_true(moth.allclose(want, x.grad, 1e-6, 1e-6))
    x.grad = nil
    local step = moth.capture(function(g)
      x.grad = nil
      parts(x):backward(g)
      return x.grad
    end)
    for _ = 1, 3 do assert.is_true(moth.allclose(want, step(dy), 1e-6, 1e-6)) end
  end)

  it("is contiguous for a hook of a slice", function()
    local x = moth.randn(2, 3, 4):requires_grad_()
    local p, seen = x:permute(3, 1, 2), nil
    p:register_hook(function(g) seen = g:view(-1):size(1) end)
    p[1]:sum():backward()
    assert.equal(24, seen)
    p = x:permute(3, 1, 2)
    assert.is_true(moth.autograd.grad(p[2]:sum(), p):is_contiguous())
  end)

  it("allocates no memory", function()
    local n = 1e6
    local x = moth.rand(n):requires_grad_()
    local y = x
    for _ = 1, 10 do y = y * 1.5 end
    local dy = moth.ones(n)
    local before = moth.memory().live_bytes
    moth.reset_peak_memory()
    y:backward(dy)
    local more = (moth.memory().peak_bytes - before) / (4 * n)
    assert.is_true(more <= 1.5, ("%.1f tensors more"):format(more)) -- the first is the caller's
  end)
end)

describe("the gradient of a loss in one pass", function()
  local LOSSES = {
    mse_loss = {}, l1_loss = {}, smooth_l1_loss = {beta = 0.3}, huber_loss = {delta = 0.2},
    binary_cross_entropy = {}, binary_cross_entropy_with_logits = {},
  }

  local function each_loss(check)
    moth.manual_seed(5)
    for name, options in pairs(LOSSES) do
      for _, reduction in ipairs {"mean", "sum", "none"} do
        local given = {reduction = reduction, beta = options.beta, delta = options.delta}
        check(function(x, t) return F[name](x, t, given) end, name .. ", " .. reduction)
      end
    end
  end

  local function inputs(dtype)
    local x, t = moth.rand(37, 21) * 0.98 + 0.01, moth.rand(37, 21)
    t[{1}] = x[{1}] -- no distance
    return x:to(dtype), t:to(dtype)
  end

  it("equals its formula, with and without a gradient of the target", function()
    for _, dtype in ipairs {moth.float32, moth.float64, moth.float16} do
      each_loss(function(f, name)
        local a, t = inputs(dtype)
        local x, u = a:requires_grad_(), t:clone():requires_grad_()
        local dy = moth.randn_like(f(x, t):detach())
        local want = wanted(function(p) return f(p, t) end, x, dy)
        f(x, t):backward(dy)
        assert.is_true(moth.equal(want, x.grad), name)
        x.grad = nil
        f(x, u):backward(dy)
        assert.is_true(moth.equal(want, x.grad), name)
        assert.is_true(moth.equal(wanted(function(p) return f(a:detach(), p) end, u, dy), u.grad))
      end)
    end
  end)

  it("is NaN where an element is NaN", function()
    each_loss(function(f, name)
      if name:find "^binary_cross_entropy," then return end -- raises for it
      local x, t = inputs(moth.float32)
      x[{2, 3}] = 0 / 0
      x:requires_grad_()
      f(x, t):sum():backward()
      local nan = x.grad:isnan()
      assert.are.same({1, true}, {nan:sum():item(), nan[2][3]:item()}, name)
    end)
  end)

  it("on a GPU equals the CPU's", function()
    if not cuda.here then return pending(cuda.why) end
    each_loss(function(f, name)
      local x, t = inputs(moth.float32)
      local there = x:cuda():requires_grad_()
      x:requires_grad_()
      f(x, t):sum():backward()
      f(there, t:cuda()):sum():backward()
      assert.is_true((there.grad:cpu() - x.grad):abs():max():item() <= 1e-5, name)
    end)
  end)
end)
