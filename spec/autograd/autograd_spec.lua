-- Gradients: values to any order, hooks, Functions, retained graphs, modes, and freed memory.

local moth = require "moth"
local intact = require "spec.support.intact"
local ag = moth.autograd

local function leaf(value)
  return moth.tensor(value, {dtype = moth.float64, requires_grad = true})
end

describe("backward", function()
  it("computes first, second and third derivatives", function()
    local x = leaf(2)
    local y = x * x * x * x
    local g1 = ag.grad(y, x, {create_graph = true})
    assert.equal(32, g1:item())
    local g2 = ag.grad(g1, x, {create_graph = true})
    assert.equal(48, g2:item())
    local g3 = ag.grad(g2, x, {create_graph = true})
    assert.equal(48, g3:item())
    assert.equal(24, ag.grad(g3, x):item())
  end)

  it("adds over the uses of a tensor and over calls", function()
    local x = leaf(3)
    local y = x * 2 + x * x
    y:backward{retain_graph = true}
    assert.equal(8, x.grad:item())
    y:backward()
    assert.equal(16, x.grad:item())
    x.grad = nil
    assert.is_nil(x.grad)
  end)

  it("adds gradients of slices that overlap or have other users", function()
    local x = leaf(moth.arange(24):reshape(4, 6):double())
    local kept = x * 1
    kept:retain_grad()
    local function loss()
      local parts, sum = x:split({1, 2, 3}, 2), (x * 10):sum()
      for i = 1, 3 do sum = sum + (parts[i] * i):sum() end
      for i = 1, 6 do sum = sum + kept[1][i] * 2 - kept[4][i] * 2 end
      for i = 1, 4 do sum = sum + (x[i] * x[i]):sum() + (kept[i] * i):sum() end
      return sum + (x[{{1, 3}, {2, 5}}] * 100):sum()
    end
    local want = x:detach() * 2 + 10 + moth.tensor({1, 2, 2, 3, 3, 3}, {dtype = moth.float64}) +
                 moth.tensor({3, 2, 3, 2}, {dtype = moth.float64}):reshape(4, 1)
    want[{{1, 3}, {2, 5}}] = want[{{1, 3}, {2, 5}}] + 100
    loss():backward{retain_graph = true}
    assert.is_true(moth.equal(want, x.grad))
    local first = x.grad:clone()
    loss():backward()
    assert.is_true(moth.equal(first * 2, x.grad))
    local row = kept.grad:sum(2)
    assert.are.same({36, 24, 36, 24}, {row[1]:item(), row[2]:item(), row[3]:item(), row[4]:item()})
  end)

  it("sums gradients over broadcast dims", function()
    local a = moth.ones(2, 3):requires_grad_()
    local b = moth.ones(3):requires_grad_()
    local c = moth.tensor(2.0):requires_grad_();
    (a * b * c):sum():backward()
    assert.same({{2, 2, 2}, {2, 2, 2}}, a.grad:tolist())
    assert.same({4, 4, 4}, b.grad:tolist())
    assert.equal(6, c.grad:item())
  end)

  it("raises for a graph that was freed, and names retain_graph", function()
    local x = leaf(3)
    local y = x * x
    y:backward()
    assert.has_error_like(function() y:backward() end, "retain_graph")
  end)

  it("raises for a root without history and for a root of several elements", function()
    assert.has_error_like(function() moth.ones(2):sum():backward() end, "does not require grad")
    local x = moth.ones(3):requires_grad_()
    assert.has_error_like(function() (x * 2):backward() end, "one element")
  end)

  it("computes only the gradients of the requested inputs", function()
    local x, w = leaf(2), leaf(5)
    local gx = ag.grad(x * w, x)
    assert.equal(5, gx:item())
    assert.is_nil(w.grad)
    assert.is_nil(x.grad)
  end)

  it("names the input that was not used", function()
    local x, w = leaf(2), leaf(5)
    local y = x * x
    assert.has_error_like(function() ag.grad(y, {x, w}, {retain_graph = true}) end, "allow_unused")
    local gx, gw = ag.grad(y, {x, w}, {allow_unused = true})
    assert.equal(4, gx:item())
    assert.is_nil(gw)
    gw = select(2, ag.grad(x * x, {x, w}, {materialize_grads = true}))
    assert.same({0, false}, {gw:item(), gw.requires_grad})
  end)

  it("raises errors that name it and its own arguments", function()
    local x, w = leaf(2), moth.ones(2)
    local y = x * x
    assert.has_error_like(function() ag.grad(y, {x, w}) end, "bad argument 'inputs' to 'grad'")
    assert.has_error_like(function() ag.grad(y, x, w) end, "bad argument 'grad_outputs' to 'grad'")
    assert.has_error_like(function() ag.grad(w:sum(), x) end, "grad: .* does not require grad")
    assert.has_error_like(function() ag.backward(y, w) end,
      "bad argument 'grad_tensors' to 'autograd.backward'")
    assert.has_error_like(function() y:backward(w) end, "bad argument 'gradient' to 'backward'")
    assert.has_error_like(function() y:backward{inputs = w} end, "'inputs' to 'backward'")
    assert.equal(4, ag.grad(y, x):item())
  end)

  it("runs through a chain of a hundred thousand ops", function()
    local x = leaf(1)
    moth.scope(function()
      local y = x
      for _ = 1, 100000 do y = y + 1 end
      y:backward()
    end)
    assert.equal(1, x.grad:item())
  end)

  it("keeps gradients of results after retain_grad", function()
    local x = leaf(3)
    local y = x * 2
    y:retain_grad()
    local z = y * y
    z:backward()
    assert.equal(12, y.grad:item())
    assert.equal(24, x.grad:item())
  end)

  it("frees all of its memory", function()
    local before = intact.counts()
    do
      local x = moth.randn(64, 64):requires_grad_()
      for _ = 1, 5 do
        local y = (x:matmul(x) * x):sum()
        y:backward()
      end
      x = nil -- luacheck: ignore
    end
    assert.at_most(before, intact.counts())
  end)

  it("frees an unused graph with its last output", function()
    local x = leaf{1, 2, 3}
    local _ = x * x -- now the leaf has a node for its gradient
    local before = intact.counts()
    do
      local y = x
      for _ = 1, 100 do y = y * x end
      y = nil -- luacheck: ignore
    end
    assert.at_most(before, intact.counts())
  end)
end)

describe("the grad mode", function()
  it("records nothing under no_grad and returns what the function returns", function()
    local x = leaf(2)
    local a, b = moth.no_grad(function(k) return x * k, "b" end, 3)
    assert.equal(6, a:item())
    assert.equal("b", b)
    assert.is_false(a.requires_grad)
  end)

  it("is restored after an error", function()
    pcall(moth.no_grad, function() error "x" end)
    assert.is_true(moth.is_grad_enabled())
    local ok, message = pcall(moth.no_grad, function() return moth.ones(2, 3) + moth.ones(4) end)
    assert.is_false(ok)
    assert.matches("broadcast", message)
    assert.is_true(moth.is_grad_enabled())
  end)

  it("nests", function()
    moth.no_grad(function()
      assert.is_false(moth.is_grad_enabled())
      moth.enable_grad(function() assert.is_true(moth.is_grad_enabled()) end)
      assert.is_false(moth.is_grad_enabled())
    end)
  end)
end)

describe("detach and data", function()
  it("share memory; only detach shares the version", function()
    local x = leaf{1, 2}
    local y = x * x -- saves x
    local d, data = x:detach(), x.data
    assert.is_false(d.requires_grad)
    data[1] = 10
    assert.equal(10, x[1]:item())
    y:sum():backward{retain_graph = true}
    d[1] = 20
    assert.has_error_like(function() y:sum():backward() end, "version")
  end)

  it("leave older graphs with the old data when data is assigned", function()
    local x = leaf(2)
    local y = x * x
    x.data = moth.tensor(5, {dtype = moth.float64})
    y:backward()
    assert.equal(4, x.grad:item())
    assert.equal(5, x:item())
  end)

  it("raise for data of another dtype or shape", function()
    local x = leaf{1, 2}
    assert.has_error_like(function() x.data = moth.ones(2) end, "f32")
    local longer = moth.ones(3, {dtype = moth.float64})
    assert.has_error_like(function() x.data = longer end, "f64 %(3%)")
  end)

  it("run a program of two passes with an update between them", function()
    local x = moth.tensor(2.0):requires_grad_()
    local y = moth.tensor(3.0):requires_grad_()
    local seen, z = {}, nil
    for _ = 1, 2 do
      z = x * y
      z:backward()
      seen[#seen + 1] = x.grad:item()
      x.data = x.data - 0.1 * x.grad
      x.grad.data:zero_()
      seen[#seen + 1] = x:item()
    end
    seen[#seen + 1] = z:item()
    for i, want in ipairs{3, 1.7, 3, 1.4, 5.1} do assert.near(want, seen[i], 1e-6) end
    assert.equal("Mul", z.grad_fn:name())
  end)
end)

describe("a backward pass for some inputs", function()
  it("runs and frees only the nodes on the way to the requested inputs", function()
    local x, w = leaf{1, 2}, leaf{3, 4}
    local Loud, runs = moth.nn.class("Loud", ag.Function), 0
    function Loud.forward(_, a) return a * 1 end
    function Loud.backward(_, dy) runs = runs + 1 return dy end
    local y = Loud.apply(x * x)
    local z = (y * y * Loud.apply(w * w)):sum()
    local before = runs
    assert.same({18, 128}, ag.grad(z, y):tolist())
    assert.equal(before, runs)
    local gy, gx = ag.grad((y * 5):sum(), {y, x}, {retain_graph = true})
    assert.same({{5, 5}, {10, 20}}, {gy:tolist(), gx:tolist()})
    assert.equal(1, runs)
    y:sum():backward()
    assert.same({2, 4}, x.grad:tolist())
  end)

  it("does not run a root, or its hooks, that leads to none of the inputs", function()
    local x, w, hooks = leaf{1, 2}, leaf{3, 4}, 0
    local function root(a)
      local y = a * 3
      y:register_hook(function() hooks = hooks + 1 end)
      y:retain_grad()
      return y
    end
    local useful, other, ones = root(x), root(w), moth.ones_like(x)
    w:register_hook(function() hooks = hooks + 1 end)
    ag.backward({useful, other, w}, {ones, ones, ones}, {inputs = {x}})
    assert.equal(1, hooks)
    assert.same({1, 1}, useful.grad:tolist())
    assert.is_true(other.grad == nil and w.grad == nil)
    ag.backward(other, ones)
    assert.same({3, 3}, w.grad:tolist())
  end)

  it("requests from a Function only the gradients of those inputs", function()
    local Pair, seen = moth.nn.class("Pair", ag.Function), nil
    function Pair.forward(_, a, b) return a + b end
    function Pair.backward(ctx, dy) seen = ctx.needs_input_grad return dy, dy end
    local a, b = leaf(1), leaf(2)
    local c = Pair.apply(a * 2, b * 2)
    c:backward{inputs = b, retain_graph = true}
    assert.same({false, true}, seen)
    assert.is_nil(a.grad)
    c:backward()
    assert.same({true, true}, seen)
    assert.same({2, 4}, {a.grad:item(), b.grad:item()})
  end)
end)

describe("a hook", function()
  it("receives the gradient and may replace it", function()
    local x = leaf(2)
    local y = x * 3
    local seen
    y:register_hook(function(grad) seen = grad:item() return grad * 10 end)
    y:backward()
    assert.equal(1, seen)
    assert.equal(30, x.grad:item())
  end)

  it("on a leaf stays until removed", function()
    local x, count = leaf(2), 0
    local handle = x:register_hook(function() count = count + 1 end);
    (x * 2):backward();
    (x * 2):backward()
    assert.equal(2, count)
    handle:remove();
    (x * 2):backward()
    assert.equal(2, count)
  end)

  it("that raises ends the pass with the user's message, and the context stays usable", function()
    local x = leaf(2)
    local y = x * 3
    y:register_hook(function() error("mine", 0) end)
    local before = moth.memory().live_tasks
    local ok, message = pcall(y.backward, y)
    assert.is_false(ok)
    assert.equal("mine", message)
    assert.equal(before, moth.memory().live_tasks)
    local z = x * 2
    z:backward()
    assert.equal(2, x.grad:item())
  end)

  it("may run backward over the same graph, three deep", function()
    local x = leaf(2)
    local y = x * x
    local z = y * 1
    local depth = 0
    z:register_hook(function()
      depth = depth + 1
      if depth < 3 then z:backward{retain_graph = true} end
    end)
    z:backward{retain_graph = true}
    assert.equal(3, depth)
    assert.equal(12, x.grad:item())
    assert.equal(0, moth.memory().live_tasks)
  end)

  it("may fail at any depth and leaves no state behind", function()
    for fail_at = 1, 3 do
      local x = leaf(2)
      local z = x * x * 1
      local depth = 0
      z:register_hook(function()
        depth = depth + 1
        if depth == fail_at then error("at " .. depth, 0) end
        z:backward{retain_graph = true}
      end)
      local ok, message = pcall(function() z:backward{retain_graph = true} end)
      assert.is_false(ok)
      assert.equal("at " .. fail_at, message)
      assert.equal(0, moth.memory().live_tasks)
      assert.is_true(moth.is_grad_enabled())
    end
  end)

  it("may yield from a coroutine at any depth", function()
    local x = leaf(2)
    local z = x * x * 1
    local depth = 0
    z:register_hook(function()
      depth = depth + 1
      coroutine.yield(depth)
      if depth < 3 then z:backward{retain_graph = true} end
    end)
    local co = coroutine.wrap(function() z:backward{retain_graph = true} return "done" end)
    assert.equal(1, co())
    assert.equal(2, co())
    assert.equal(3, co())
    assert.equal("done", co())
    assert.equal(12, x.grad:item())
  end)

  it("is collected when its coroutine is abandoned", function()
    local before = intact.counts()
    do
      local x = leaf(2)
      local z = x * x
      z:register_hook(function() coroutine.yield() end)
      local co = coroutine.create(function() z:backward() end)
      assert.is_true(coroutine.resume(co))
      assert.equal(before.tasks + 1, moth.memory().live_tasks)
      x, z, co = nil, nil, nil -- luacheck: ignore
    end
    intact.counts()
    assert.at_most(before, intact.counts())
    assert.is_true(moth.is_grad_enabled())
  end)
end)

describe("a Function in Lua", function()
  local Square = moth.nn.class("Square", ag.Function)
  function Square.forward(ctx, x)
    ctx:save_for_backward(x)
    return x * x
  end
  function Square.backward(ctx, dy)
    local x = unpack(ctx.saved_tensors)
    return dy * x * 2
  end

  it("computes its gradient and its second derivative", function()
    local x = leaf{1, 2, 3}
    local y = Square.apply(x)
    assert.equal("Square", y.grad_fn:name())
    y:sum():backward()
    assert.same({2, 4, 6}, x.grad:tolist())
    assert.is_true(ag.gradcheck(Square.apply, {leaf{1, 2, 3}}))
    assert.is_true(ag.gradgradcheck(Square.apply, {leaf{1, 2, 3}}))
  end)

  it("may call autograd.grad on a saved tensor in its backward, as adjoint methods do", function()
    local Adjoint, seen = moth.nn.class("Adjoint", ag.Function), nil
    function Adjoint.forward(ctx, x, w)
      local y = x * w ^ 2
      ctx:save_for_backward(x, w, y, x:detach())
      return y
    end
    function Adjoint.backward(ctx, dy)
      local x, w, y, bare = unpack(ctx.saved_tensors)
      seen = {x.requires_grad, w.requires_grad, y.requires_grad, bare.requires_grad, w.is_leaf,
        (x * 2).requires_grad}
      return moth.enable_grad(function() return ag.grad(x * w ^ 2, {x, w}, dy) end)
    end
    local x, w = leaf{1, 2}, leaf{3, 4}
    Adjoint.apply(x * 1, w):sum():backward()
    assert.same({true, true, true, false, true, false}, seen)
    assert.same({9, 16}, x.grad:tolist())
    assert.same({6, 16}, w.grad:tolist())
  end)

  it("knows which inputs need a gradient", function()
    local Pair, seen = moth.nn.class("Pair", ag.Function), nil
    function Pair.forward(_, a, b) return a + b end
    function Pair.backward(ctx, dy) seen = ctx.needs_input_grad return dy, nil end
    Pair.apply(leaf(1), moth.tensor(2, {dtype = moth.float64})):backward()
    assert.same({true, false}, seen)
  end)

  it("may return a gradient of another float dtype, which is cast to the input's dtype", function()
    local Wide = moth.nn.class("Wide", ag.Function)
    function Wide.forward(_, a) return a * 2 end
    function Wide.backward(_, dy) return dy:double() * 2 end
    local x = moth.ones(3):requires_grad_()
    Wide.apply(x):sum():backward()
    assert.equal(moth.float32, x.grad.dtype)
    assert.same({2, 2, 2}, x.grad:tolist())
  end)

  it("that returns the wrong number of gradients raises an error with both numbers", function()
    local Bad = moth.nn.class("Bad", ag.Function)
    function Bad.forward(_, a) return a * 1 end
    function Bad.backward(_, dy) return dy, dy, dy end
    local y = Bad.apply(leaf(1))
    assert.has_error_like(function() y:backward() end, "3")
  end)

  it("that raises leaves the context usable", function()
    local Bad = moth.nn.class("Bad", ag.Function)
    function Bad.forward(_, a) return a * 1 end
    function Bad.backward() error("no way back", 0) end
    local y = Bad.apply(leaf(1))
    local ok, message = pcall(y.backward, y)
    assert.is_false(ok)
    assert.matches("no way back", message)
    assert.equal(0, moth.memory().live_tasks)
    assert.is_true(moth.is_grad_enabled())
  end)

  it("raises for a saved tensor that was changed", function()
    local x = leaf{1, 2}
    local y = x * 1
    local z = Square.apply(y)
    moth.no_grad(function() y:add_(1) end)
    assert.has_error_like(function() z:sum():backward() end, "version")
  end)

  it("leaks no memory when its graph never runs backward", function()
    local before = intact.counts()
    do
      local x = leaf{1, 2}
      for _ = 1, 20 do Square.apply(x) end
    end
    assert.at_most(before, intact.counts())
  end)
end)
