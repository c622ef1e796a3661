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
