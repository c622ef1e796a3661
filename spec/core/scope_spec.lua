-- moth.scope: tensors that it frees, tensors that it keeps, and the error of a freed handle.

local moth = require "moth"
local intact = require "spec.support.intact"

local nn, optim = moth.nn, moth.optim
local refuses = intact.refuses
local lib = require "moth.binding.lib"

local function alive(x) return lib.C.moth_alive(lib.ctx, x) == 1 end

describe("a scope", function()
  it("frees the tensors that were made inside, at once", function()
    local before, inside = intact.counts(), nil
    collectgarbage "stop"
    moth.scope(function()
      for _ = 1, 100 do inside = moth.ones(1000) * 2 end
      assert.is_true(alive(inside))
    end)
    assert.is_false(alive(inside))
    assert.equal(before.bytes, moth.memory().live_bytes)
    collectgarbage "restart"
    inside = nil
    assert.at_most(before, intact.counts())
    assert.is_nil(inside)
  end)

  it("passes its arguments to its function and returns the results", function()
    local a, b, c = moth.scope(function(x, y) return x, nil, y end, 1, "two")
    assert.same({ 1, nil, "two" }, { a, b, c })
    assert.equal(0, select("#", moth.scope(function() end)))
  end)

  it("keeps tensors that are returned, also inside plain tables", function()
    local x, list = moth.scope(function()
      local t = { moth.ones(1), deep = { { moth.ones(2) } }, [moth.ones(3)] = true }
      t.itself = t
      return moth.zeros(2), t
    end)
    assert.is_true(alive(x))
    assert.is_true(alive(list[1]))
    assert.is_true(alive(list.deep[1][1]))
    for key in pairs(list) do
      if moth.is_tensor(key) then assert.is_true(alive(key)) end
    end
  end)

  it("keeps tensors passed to moth.keep, in the outer scope", function()
    local kept, inner
    moth.scope(function()
      moth.scope(function()
        kept = moth.keep(moth.ones(2))
        inner = moth.ones(3)
        local t = moth.keep{ moth.ones(4) }
        assert.is_true(alive(t[1]))
      end)
      assert.is_true(alive(kept))
      assert.is_false(alive(inner))
    end)
    assert.is_false(alive(kept))
    moth.scope(function() kept, inner = moth.keep(moth.ones(1), moth.ones(2)) end)
    assert.is_true(alive(kept) and alive(inner))
    refuses(function() moth.keep(3) end, "bad argument 'x' to 'keep'")
  end)

  it("keeps older tensors, and frees new views of them", function()
    local x, row = moth.ones(2, 3), nil
    moth.scope(function()
      row = x[1]
      x:add_(1)
    end)
    assert.is_true(alive(x))
    assert.is_false(alive(row))
    assert.same({ 2, 2, 2 }, x[1]:tolist())
  end)

  it("keeps the gradients of live leaves", function()
    local w, grad = moth.ones(2):requires_grad_(), nil
    moth.scope(function()
      local y = (w * 3):sum()
      y:backward()
      grad = w.grad
    end)
    assert.is_true(alive(grad))
    assert.same({ 3, 3 }, w.grad:tolist())
    moth.scope(function() (w * 3):sum():backward() end)
    assert.same({ 6, 6 }, w.grad:tolist())
  end)

  it("keeps tensors of modules and optimizers", function()
    local net = nn.Linear(3, 2)
    local opt, made
    moth.scope(function()
      net.extra = nn.Parameter(moth.ones(2))
      net:register_buffer("count", moth.zeros(1))
      net.sub = nn.Linear(2, 2)
      net.plain = moth.ones(5)
      made = nn.Linear(1, 1)
      opt = optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 })
    end)
    for _ = 1, 3 do
      moth.scope(function()
        local y = net(moth.ones(4, 3)):sum() + net.extra:sum()
        opt:zero_grad()
        y:backward()
        opt:step()
      end)
    end
    for name, p in net:named_parameters() do assert.is_true(alive(p), name) end
    assert.is_true(alive(net.count))
    assert.is_true(alive(net.plain))
    assert.is_true(alive(made.weight))
    for _, state in pairs(opt.state) do
      for _, value in pairs(state) do
        if moth.is_tensor(value) then assert.is_true(alive(value)) end
      end
    end
    assert.equal(4, #net:parameters() - 1)
  end)

  it("trains the same net to the same bits as without a scope", function()
    local function train(wrap)
      moth.manual_seed(3)
      local net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
      local opt = optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.5 })
      local x, t = moth.randn(6, 4), moth.randn(6, 2)
      local last
      for _ = 1, 10 do
        last = wrap(function()
          local loss = ((net(x) - t) ^ 2):mean()
          opt:zero_grad()
          loss:backward()
          opt:step()
          return loss:item()
        end)
      end
      return last, net[1].weight:tolist()
    end
    local a, b = { train(moth.scope) }, { train(function(f)
      local loss = f()
      return loss
    end) }
    assert.same(a, b)
  end)

  it("ends when its function raises, and passes the error on", function()
    local inside
    local before = intact.counts()
    local ok, message = pcall(moth.scope, function()
      inside = moth.ones(3)
      moth.scope(function() error("mine") end)
    end)
    assert.is_false(ok)
    assert.matches("mine", message)
    assert.is_false(alive(inside))
    inside = nil
    assert.at_most(before, intact.counts())
    moth.scope(function() end)
    refuses(function() moth.scope(3) end, "bad argument 'fn' to 'scope' (a function is needed")
    assert.is_nil(inside)
  end)

  it("calls an object with __call", function()
    local object = setmetatable({}, { __call = function(_, x) return x + 1 end })
    assert.equal(3, moth.scope(object, 2))
  end)

  it("nests a thousand deep", function()
    local function deep(n)
      local x = moth.ones(1)
      if n == 0 then return x end
      local y = moth.scope(deep, n - 1)
      return y + x
    end
    local level = deep(150)
    assert.equal(151, level:item())
  end)
end)

describe("a freed handle", function()
  it("names the scope's line", function()
    local x
    local function body() x = moth.ones(2) end -- this line
    local line = debug.getinfo(body, "S").linedefined
    moth.scope(body)
    local ended = "it ended with the moth.scope at spec/core/scope_spec.lua:" .. line
    local message = refuses(function() return (x + 1) end, "this tensor was released: " .. ended)
    assert.matches("return it from there or use moth.keep", message)
    refuses(function() return (x:sum()) end, "scope_spec.lua:" .. line)
    refuses(function() return (x.shape) end, "scope_spec.lua:" .. line)
    refuses(function() x[1] = 2 end, "scope_spec.lua:" .. line)
    refuses(function() return (moth.cat{ moth.ones(2), x }) end, "scope_spec.lua:" .. line)
    assert.equal("[moth tensor, released]", tostring(x))
  end)

  it("after :free() says released, without a scope", function()
    local x = moth.ones(2)
    x:free()
    local message = refuses(function() return (x + 1) end, "this tensor was released")
    assert.is_nil(message:find("moth.scope", 1, true))
    refuses(function() x:free() end, "this tensor was released")
  end)

  it("never refers to another tensor, although its slot is used again", function()
    local old = {}
    for i = 1, 50 do moth.scope(function() old[i] = moth.full({ 1 }, i) end) end
    local new = {}
    for i = 1, 50 do new[i] = moth.full({ 1 }, -i) end
    for i = 1, 50 do
      assert.is_false(alive(old[i]))
      assert.is_true(alive(new[i]))
      assert.is_false(old[i] == new[i])
    end
  end)

  it("does not free the data that a graph still needs", function()
    local w = moth.ones(2):requires_grad_()
    local y = moth.scope(function()
      local inner = w * 3
      return (inner * inner):sum()
    end)
    y:backward()
    assert.same({ 18, 18 }, w.grad:tolist())
  end)
end)

describe("coroutines and scopes", function()
  it("may yield inside a scope that ends in order", function()
    local x
    local co = coroutine.wrap(function()
      return moth.scope(function()
        x = moth.ones(1)
        coroutine.yield(1)
        return x:item()
      end)
    end)
    assert.equal(1, co())
    assert.is_true(alive(x))
    assert.equal(1, co())
    assert.is_false(alive(x))
  end)

  it("may end after a scope that began earlier", function()
    local before = intact.counts()
    local co = coroutine.create(function()
      return moth.scope(function()
        local x = moth.ones(3)
        coroutine.yield()
        return x:sum():item()
      end)
    end)
    local inside
    moth.scope(function()
      inside = moth.ones(2)
      assert(coroutine.resume(co))
    end)
    assert.is_false(alive(inside))
    assert.same({true, 3}, {coroutine.resume(co)})
    co, inside = nil, nil
    assert.at_most(before, intact.counts())
    assert.is_true(co == nil and inside == nil)
    assert.equal(2, moth.scope(function() return moth.ones(2):sum():item() end))
  end)

  it("abandoned inside a scope do not affect the next", function()
    local co = coroutine.wrap(function()
      moth.scope(function()
        local x = moth.ones(3)
        coroutine.yield(x)
      end)
    end)
    pcall(moth.scope, function() co() end)
    co = nil
    collectgarbage()
    local y = moth.scope(function() return moth.ones(2) end)
    assert.is_true(alive(y))
    assert.is_nil(co)
  end)
end)

describe("free", function()
  it("frees the bytes at once", function()
    collectgarbage "stop"
    local before = moth.memory().live_bytes
    local x = moth.zeros(100000)
    assert.is_true(moth.memory().live_bytes >= before + 400000)
    x:free()
    assert.equal(before, moth.memory().live_bytes)
    collectgarbage "restart"
  end)

  it("does not free data of views and graphs", function()
    local x = moth.arange(4)
    local v = x[{ { 2, 3 } }]
    x:free()
    assert.same({ 1, 2 }, v:tolist())
    local w = moth.ones(2):requires_grad_()
    local y = w * 2
    local z = y * y
    y:free()
    z:sum():backward()
    assert.same({ 8, 8 }, w.grad:tolist())
  end)
end)
