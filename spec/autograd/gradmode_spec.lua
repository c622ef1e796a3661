-- The grad mode: it belongs to a coroutine, and is restored on error.

local moth = require "moth"
local intact = require "spec.support.intact"

local refuses = intact.refuses
local function on() return moth.is_grad_enabled() end

local function leaf() return moth.ones(2):requires_grad_() end

describe("no_grad, enable_grad, set_grad_enabled", function()
  after_each(function() assert.is_true(on()) end)

  it("hold during their function and pass its values through", function()
    assert.is_true(on())
    local a, b, c = moth.no_grad(function(x)
      assert.is_false(on())
      moth.enable_grad(function()
        assert.is_true(on())
        moth.set_grad_enabled(false, function() assert.is_false(on()) end)
        assert.is_true(on())
      end)
      assert.is_false(on())
      return x, nil, 3
    end, 1)
    assert.same({ 1, nil, 3 }, { a, b, c })
  end)

  it("are restored after an error at any depth", function()
    for depth = 1, 4 do
      local function nest(n)
        local wrap = n % 2 == 0 and moth.no_grad or moth.enable_grad
        wrap(function()
          if n == depth then error("here") end
          nest(n + 1)
        end)
      end
      assert.has_error_like(function() nest(1) end, "here")
      assert.is_true(on())
    end
  end)

  it("record only while the mode is on", function()
    local x = leaf()
    local y = moth.no_grad(function() return x * 2 end)
    assert.is_false(y.requires_grad)
    assert.is_nil(y.grad_fn)
    y = moth.no_grad(function() return (moth.enable_grad(function() return x * 2 end)) end)
    assert.is_true(y.requires_grad)
    moth.set_grad_enabled(false)
    y = x * 2
    moth.set_grad_enabled(true)
    assert.is_false(y.requires_grad)
  end)

  it("keep requires_grad of creation functions", function()
    moth.no_grad(function()
      assert.is_true(moth.ones(2, { requires_grad = true }).requires_grad)
      assert.is_false((moth.ones(2, { requires_grad = true }) + 1).requires_grad)
    end)
  end)

  it("raise for a value that is no function and do not change the mode", function()
    refuses(function() moth.no_grad(3) end, "'no_grad'")
    refuses(function() moth.no_grad() end, "'no_grad'")
    refuses(function() moth.enable_grad("x") end, "'enable_grad'")
    refuses(function() moth.set_grad_enabled(1) end, "'mode' to 'set_grad_enabled'")
    refuses(function() moth.set_grad_enabled() end, "'mode' to 'set_grad_enabled'")
  end)

  it("call objects with __call", function()
    local net = moth.nn.Linear(2, 1)
    local y = moth.no_grad(net, moth.ones(2))
    assert.is_false(y.requires_grad)
  end)
end)

describe("a coroutine inside a grad mode", function()
  after_each(function() assert.is_true(on()) end)

  it("may yield and end in order", function()
    local co = coroutine.wrap(function()
      return moth.no_grad(function()
        coroutine.yield(on())
        return on()
      end)
    end)
    assert.is_false(co())
    assert.is_true(on())
    assert.is_false(co())
    assert.is_true(on())
  end)

  it("may end after a mode that began later", function()
    local co = coroutine.create(function()
      moth.no_grad(function() coroutine.yield() end)
      return on()
    end)
    moth.enable_grad(function() assert(coroutine.resume(co)) end)
    assert.is_true(on())
    assert.same({true, true}, {coroutine.resume(co)})
  end)

  it("that is dropped changes no other mode", function()
    local co = coroutine.wrap(function()
      moth.no_grad(function() coroutine.yield() end)
    end)
    co()
    assert.is_true(on())
    co = nil
    intact.counts()
    assert.is_true(on())
    assert.is_nil(co)
  end)
end)

describe("inside a backward pass", function()
  it("the mode is the pass's create_graph", function()
    local x = leaf()
    local seen = {}
    local function run(options)
      local y = x * 3
      y:register_hook(function() seen[#seen + 1] = on() end)
      y:sum():backward(options)
    end
    run()
    run{ create_graph = true }
    moth.no_grad(function()
      local y = moth.enable_grad(function()
        local z = x * 3
        z:register_hook(function() seen[#seen + 1] = on() end)
        return z:sum()
      end)
      y:backward()
      assert.is_false(on())
    end)
    assert.same({ false, true, false }, seen)
    assert.is_true(on())
    x.grad = nil
  end)

  it("a hook that changes the mode and raises does not affect the mode outside", function()
    local x = leaf()
    local y = x * 3
    y:register_hook(function()
      moth.set_grad_enabled(true)
      error("hook")
    end)
    assert.has_error_like(function() y:sum():backward() end, "hook")
    assert.is_true(on())
  end)
end)
