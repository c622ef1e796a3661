-- Backward passes that stop in Lua. They interleave in any order, and each has its own grad mode.

local moth = require "moth"
local profiler = require "spec.support.profiler"
local nn, optim = moth.nn, moth.optim

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
    it("continue " .. name, function()
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

  it("over one graph compute the whole gradient each", function()
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
  it("runs only its own nodes; the outer pass still runs the others", function()
    local x = leaf(3)
    local node = x * 2
    local old, new = node * 3, node * node -- old's hook runs before node
    local inner, total, calls = node * 5, new + old, 0
    node:register_hook(function() calls = calls + 1 end)
    old:register_hook(function() inner:backward{retain_graph = true} end)
    total:backward()
    assert.equal(2, calls)
    assert.equal(2 * (12 + 3) + 2 * 5, x.grad:item())
  end)
end)

describe("the grad mode of a pass", function()
  it("holds in its hooks, and not outside while a hook is stopped", function()
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

  it("ends after a hook raised, for every caller that resumed the pass", function()
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
    local h, used = moth.ones(1, 24, {dtype = moth.float64}), {}
    for i = 1, 80 do
      used[i] = h + x[i]
      h = moth.nn.functional.linear(used[i], w):tanh()
      if spoil and i % 7 == 0 then
        h:register_hook(function()
          for k = i + 1, 80 do used[k]:detach():zero_() end -- the pass has used them
        end)
      end
    end
    return h:sum()
  end

  local function inputs()
    moth.manual_seed(4)
    local w = moth.randn(24, 24, {dtype = moth.float64}) / 8
    return w:requires_grad_(), moth.randn(80, 1, 24, {dtype = moth.float64})
  end

  it("add up to the gradient with create_graph", function()
    local w, x = inputs()
    local want = moth.autograd.grad(steps(w, x), {w}, {create_graph = true})
    local got = moth.autograd.grad(steps(w, x), {w})
    assert.is_true(moth.allclose(got, want:detach(), {rtol = 1e-10}))
    for _ = 1, 2 do steps(w, x):backward() end
    assert.is_true(moth.allclose(w.grad, got * 2, {rtol = 1e-10}))
  end)

  it("are computed before a hook can change their inputs", function()
    local w, x = inputs()
    steps(w, x:clone(), true):backward()
    local spoilt = w.grad
    w.grad = nil
    steps(w, x):backward()
    assert.is_true(moth.allclose(spoilt, w.grad, {rtol = 1e-10}))
  end)

  -- The products of a pass over n steps with `rows` rows each: outer_sums, outer_sum.
  local function products(size, n, rows, bias)
    local linear = moth.nn.Linear(size, size, {bias = bias or false})
    local loss = 0
    for _ = 1, n do loss = loss + linear(moth.randn(rows or 1, size)):sum() end
    local ops = profiler.rows_of(moth.profiler.profile(function() loss:backward() end))
    local function count(name) return ops[name] and ops[name].count or 0 end
    return count "outer_sums" .. " " .. count "outer_sum"
  end

  it("are one product, until the operands have as many elements as the weight", function()
    assert.equal("0 1", products(24, 1))
    assert.equal("1 0", products(24, 2))
    assert.equal("1 0", products(24, 12)) -- 12 * (24 + 24) = 24 * 24
    assert.equal("1 1", products(24, 13))
    assert.equal("2 0", products(24, 24))
    assert.equal("2 1", products(24, 25))
    assert.equal("1 0", products(256, 64)) -- at most 64
    assert.equal("1 1", products(256, 65))
    assert.equal("1 0", products(24, 12, 1, true))
  end)

  it("are not deferred if an operand has more than a sixteenth of the weight's elements", function()
    assert.equal("1 0", products(16, 3)) -- 16 = 16 * 16 / 16
    assert.equal("0 3", products(15, 3))
    assert.equal("1 0", products(32, 3, 2))
    assert.equal("0 3", products(32, 3, 3))
  end)

  it("are freed with a pass that fails", function()
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

  it("are deferred together with the rows of a bias", function()
    local w, x = inputs()
    local b = moth.randn(24, {dtype = moth.float64}):requires_grad_()
    local function run() -- 80 steps, one with another number of rows
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

  it("also work in recurrent cells", function()
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

describe("a hook after a leaf's gradient was added", function()
  it("receives the leaf with its summed gradient, once a pass, after the older hooks", function()
    local x, log = leaf {1, 2}, {}
    x:register_post_accumulate_grad_hook(function(p)
      assert.equal(x, p)
      log[#log + 1] = p.grad:tolist()
    end)
    x:register_hook(function(grad) return grad * 10 end)
    local y = x * 3 + x
    y:sum():backward()
    x:sum():backward()
    assert.same({{40, 40}, {50, 50}}, log)
  end)

  it("runs during the pass, as soon as all ops that use the leaf have run", function()
    local first, second, both, log = leaf {1}, leaf {2}, leaf {3}, {}
    for name, x in pairs {first = first, second = second, both = both} do
      x:register_post_accumulate_grad_hook(function(p)
        log[#log + 1] = name .. " " .. p.grad:item()
      end)
    end
    local hidden = first * both
    hidden:register_hook(function() log[#log + 1] = "hidden" end)
    local late = hidden * 5
    late:register_hook(function() log[#log + 1] = "late" end)
    local loss = (late * second * both):sum()
    loss:backward()
    assert.same({"second 45", "late", "hidden", "first 90", "both 60"}, log)
  end)

  it("runs at the end if an op returned no gradient for the leaf", function()
    local Cut = nn.class("Cut", moth.autograd.Function)
    function Cut.forward(_, x) return x * 1 end
    function Cut.backward() return nil end
    local x, log = leaf {2}, {}
    x:register_post_accumulate_grad_hook(function(p) log[#log + 1] = p.grad:item() end)
    local y = x * 3
    y:register_hook(function() log[#log + 1] = "y" end)
    local loss = (Cut.apply(x * 7) + y):sum()
    loss:backward()
    assert.same({"y", 3}, log)
  end)

  it("runs once with the whole gradient if a checkpoint runs its ops again", function()
    local x, log = leaf {2}, {}
    x:register_post_accumulate_grad_hook(function(p) log[#log + 1] = p.grad:item() end)
    local y = moth.utils.checkpoint.checkpoint(function(a) return (a * x):square() end, leaf {3})
    local loss = (y * x):sum()
    loss:backward()
    assert.same({108}, log)
  end)

  it("stays until it is removed, and removal does not affect other hooks", function()
    local x, count, other = leaf {1}, 0, 0
    local handle = x:register_post_accumulate_grad_hook(function() count = count + 1 end)
    x:register_hook(function() other = other + 1 end)
    x:sum():backward()
    handle:remove()
    handle:remove()
    x:sum():backward()
    assert.same({1, 2}, {count, other})
  end)

  it("may be the optimizer's step, after which no gradient remains", function()
    local function train(inside)
      moth.manual_seed(3)
      local net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
      local opts = {}
      for _, p in ipairs(net:parameters()) do
        opts[p] = optim.SGD({p}, {lr = 0.1, momentum = 0.9})
        if inside then
          p:register_post_accumulate_grad_hook(function(q)
            opts[q]:step()
            q.grad = nil
          end)
        end
      end
      for _ = 1, 5 do
        net(moth.randn(4, 3)):square():sum():backward()
        for _, p in ipairs(net:parameters()) do
          if inside then
            assert.is_nil(p.grad)
          else
            opts[p]:step()
            p.grad = nil
          end
        end
      end
      return nn.utils.parameters_to_vector(net:parameters()):tolist()
    end
    assert.same(train(false), train(true))
  end)

  it("runs in backward, and not in autograd.grad", function()
    local x, y, seen = leaf {1, 2}, leaf {3, 4}, {}
    x:register_post_accumulate_grad_hook(function(p) seen[#seen + 1] = p.grad:tolist() end)
    y:register_post_accumulate_grad_hook(function() error("not asked for") end)
    local loss = (x * y):sum()
    moth.autograd.grad(loss, x, {retain_graph = true})
    loss:backward {inputs = {x}}
    assert.same({{3, 4}}, seen)
    assert.is_nil(y.grad)
  end)

  it("is recorded only if the pass is recorded, and may start another pass", function()
    local x, modes, inner = leaf {2}, {}, leaf {1}
    x:register_post_accumulate_grad_hook(function(p)
      modes[#modes + 1] = moth.is_grad_enabled()
      moth.enable_grad(function() (inner * 2):sum():backward() end)
      modes[#modes + 1] = p.grad.requires_grad
    end)
    x:square():sum():backward()
    x.grad = nil
    x:square():sum():backward {create_graph = true}
    assert.same({false, false, true, true}, modes)
    assert.same({4}, inner.grad:tolist())
  end)

  it("that raises ends the pass; gradients so far are kept", function()
    local x, before = leaf {2}, moth.memory().live_tasks
    local handle = x:register_post_accumulate_grad_hook(function() error("mine", 0) end)
    local ok, message = pcall(function() (x * 3):sum():backward() end)
    assert.same({false, "mine"}, {ok, message})
    assert.equal(before, moth.memory().live_tasks)
    assert.same({3}, x.grad:tolist())
    handle:remove()
    x:sum():backward()
    assert.same({4}, x.grad:tolist())
  end)

  it("may yield during the pass", function()
    local x = leaf {2}
    x:register_post_accumulate_grad_hook(function(p) coroutine.yield(p.grad:item()) end)
    local co = coroutine.create(function() (x * 3):sum():backward() return "over" end)
    assert.same({true, 3}, {coroutine.resume(co)})
    assert.same({true, "over"}, {coroutine.resume(co)})
  end)

  it("raises for a tensor that is no leaf or needs no gradient, and for a wrong hook", function()
    local name = "register_post_accumulate_grad_hook"
    local x = leaf {1}
    local y = x * 2
    local function refuses(wanted, ...)
      local args = {...}
      assert.has_error_like(function() args[1][name](unpack(args)) end, wanted)
    end
    refuses("result of an op", y, print)
    refuses("does not require grad", moth.ones(2), print)
    refuses("'hook' to '" .. name .. "'", x, 3)
    x[name](x, function() return 1 end)
    assert.has_error_like(function() y:sum():backward() end, "returns nothing, got 1")
  end)
end)
