-- Backward passes that stop in Lua: they interleave in any order, and each has its own grad mode.

local moth = require "moth"

local function leaf(value)
  return moth.tensor(value, {dtype = moth.float64, requires_grad = true})
end

-- A coroutine whose backward yields once in a hook.
local function pass(x, options)
  return coroutine.create(function()
    local y = x * x
    y:register_hook(function(grad)
      coroutine.yield(moth.is_grad_enabled())
      return grad * 2
    end)
    y:backward(options or {})
    return "done"
  end)
end

describe("two passes that yield in their hooks", function()
  for name, order in pairs{["first in, first out"] = {1, 2}, ["last in, first out"] = {2, 1}} do
    it("go on " .. name, function()
      local xs = {leaf(3), leaf(5)}
      local passes = {pass(xs[1]), pass(xs[2])}
      assert(coroutine.resume(passes[1]))
      assert(coroutine.resume(passes[2]))
      for _, i in ipairs(order) do
        local ok, result = coroutine.resume(passes[i])
        assert.is_true(ok, result)
        assert.equal("done", result)
      end
      assert.equal(12, xs[1].grad:item())
      assert.equal(20, xs[2].grad:item())
      assert.is_true(moth.is_grad_enabled())
      assert.equal(0, moth.memory().live_tasks)
    end)
  end

  it("over one graph give each their whole gradient", function()
    local x = leaf(3)
    local y = x * x
    local z = y * 1
    z:register_hook(function() coroutine.yield() end)
    local function run() z:backward{retain_graph = true} end
    local a, b = coroutine.create(run), coroutine.create(run)
    assert(coroutine.resume(a))
    assert(coroutine.resume(b))
    assert(coroutine.resume(a))
    assert(coroutine.resume(b))
    assert.equal(12, x.grad:item())
  end)
end)

describe("a pass inside a hook of another", function()
  it("leaves nodes that wait in the outer one with one entry", function()
    local x = leaf(3)
    local node = x * 2
    local old, new = node * 3, node * node -- node waits for old's gradient when old's hook runs
    local inner, total, calls = node * 5, new + old, 0
    node:register_hook(function() calls = calls + 1 end)
    old:register_hook(function() inner:backward{retain_graph = true} end)
    total:backward()
    assert.equal(2, calls)
    assert.equal(2 * (12 + 3) + 2 * 5, x.grad:item())
  end)
end)

describe("the grad mode of a pass", function()
  it("holds in its hooks, and not outside while a hook waits", function()
    local co = pass(leaf(3))
    local _, inside = coroutine.resume(co)
    assert.is_false(inside)
    assert.is_true(moth.is_grad_enabled())
    assert.is_true((leaf(2) * 3).requires_grad)
    assert(coroutine.resume(co))
    local with = pass(leaf(3), {create_graph = true})
    local _, recorded = coroutine.resume(with)
    assert.is_true(recorded)
    moth.no_grad(function() assert(coroutine.resume(with)) end)
    assert.is_true(moth.is_grad_enabled())
  end)

  it("is gone after a hook raised, whoever resumed it", function()
    local x = leaf(1)
    local y = x * 2
    y:register_hook(function() coroutine.yield() error("late", 0) end)
    local co = coroutine.create(function() y:backward() end)
    assert(coroutine.resume(co))
    local ok, message = coroutine.resume(co)
    assert.is_false(ok)
    assert.equal("late", message)
    assert.is_true(moth.is_grad_enabled())
    assert.equal(0, moth.memory().live_tasks)
  end)
end)

describe("products of a weight that many small steps share", function()
  local function steps(w, x, spoil)
    local h = moth.ones(1, 24, {dtype = moth.float64})
    for i = 1, 80 do
      local now = x[i]:clone()
      h = moth.nn.functional.linear(h + now, w):tanh()
      if spoil and i % 7 == 0 then
        h:register_hook(function() x:zero_() now:zero_() end)
      end
    end
    return h:sum()
  end

  local function inputs()
    moth.manual_seed(4)
    local w = moth.randn(24, 24, {dtype = moth.float64}) / 8
    return w:requires_grad_(), moth.randn(80, 1, 24, {dtype = moth.float64})
  end

  it("add up to the gradient that create_graph gives", function()
    local w, x = inputs()
    local want = moth.autograd.grad(steps(w, x), {w}, {create_graph = true})
    local got = moth.autograd.grad(steps(w, x), {w})
    assert.is_true(moth.allclose(got, want:detach(), {rtol = 1e-10}))
    for _ = 1, 2 do steps(w, x):backward() end
    assert.is_true(moth.allclose(w.grad, got * 2, {rtol = 1e-10}))
  end)

  it("are done before a hook can change what they are made of", function()
    local w, x = inputs()
    steps(w, x:clone(), true):backward()
    local spoilt = w.grad
    w.grad = nil
    steps(w, x):backward()
    assert.is_true(moth.allclose(spoilt, w.grad, {rtol = 1e-10}))
  end)

  it("go with a pass that fails", function()
    local w, x = inputs()
    local before = moth.memory().live_bytes
    local h = moth.nn.functional.linear(moth.ones(1, 24, {dtype = moth.float64}), w)
    h:register_hook(function() error("stop", 0) end)
    for i = 1, 10 do h = moth.nn.functional.linear(h + x[i], w) end
    assert.is_false(pcall(h.sum(h).backward, h:sum()))
    assert.is_nil(w.grad)
    assert.equal(0, moth.memory().live_tasks)
    assert.is_true(before > 0)
  end)

  it("have the rows of a bias wait beside them", function()
    local w, x = inputs()
    local b = moth.randn(24, {dtype = moth.float64}):requires_grad_()
    local function run() -- 80 steps, one of them of other rows
      local h, sum = moth.ones(1, 24, {dtype = moth.float64}), 0
      for i = 1, 80 do
        h = moth.nn.functional.linear(h + x[i], w, b):tanh()
        if i == 40 then sum = sum + moth.nn.functional.linear(x[i][1], w, b):sum() * 2 end
      end
      return sum + h:sum() + (b * b):sum()
    end
    local want = moth.autograd.grad(run(), {b}, {create_graph = true})
    local got = moth.autograd.grad(run(), {b})
    assert.is_true(moth.allclose(got, want:detach(), {rtol = 1e-10}))
    for _ = 1, 2 do run():backward() end
    assert.is_true(moth.allclose(b.grad, got * 2, {rtol = 1e-10}))
  end)

  it("are cells' too", function()
    moth.manual_seed(5)
    for _, kind in ipairs{"LSTMCell", "GRUCell", "RNNCell"} do
      local cell, x = moth.nn[kind](8, 24), moth.randn(40, 2, 8)
      local function run()
        local h, c = moth.zeros(2, 24), moth.zeros(2, 24)
        for i = 1, 40 do
          if kind == "LSTMCell" then h, c = cell(x[i], {h, c}) else h = cell(x[i], h) end
        end
        return h:sum()
      end
      local want = {moth.autograd.grad(run(), cell:parameters(), {create_graph = true})}
      local got = {moth.autograd.grad(run(), cell:parameters())}
      for i, g in ipairs(got) do
        assert.is_true(moth.allclose(g, want[i]:detach(), {rtol = 1e-3, atol = 1e-5}))
      end
    end
  end)
end)
