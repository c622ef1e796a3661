-- moth.autograd.graph: hooks on saved tensors; nodes of the graph with their edges and hooks.

local moth = require "moth"
local nn, graph = moth.nn, moth.autograd.graph

local function same(list, x) assert.same(list, x:tolist()) end

local function identity(x) return x end
local function twice(x) return x:is_floating_point() and x * 2 or x end
local function half(x) return x:is_floating_point() and x / 2 or x end

describe("saved_tensors_hooks", function()
  it("calls pack for tensors that ops save, and unpack when backward needs them", function()
    local x = moth.tensor { 1, 2, 3 }:requires_grad_()
    local packs, unpacks = {}, 0
    local y = graph.saved_tensors_hooks(function(t)
      packs[#packs + 1] = t:tolist()
      return #packs
    end, function(i)
      unpacks = unpacks + 1
      return moth.tensor(packs[i])
    end, function(k) return (x * x * k):sum() end, 5)
    same({ { 1, 2, 3 }, { 1, 2, 3 } }, { tolist = function() return { packs[1], packs[2] } end })
    assert.equal(0, unpacks)
    y:backward()
    same({ 10, 20, 30 }, x.grad)
    assert.is_true(unpacks >= 2)
  end)

  it("calls pack right after the op, under no_grad", function()
    local x = moth.ones(2):requires_grad_()
    local log = {}
    graph.saved_tensors_hooks(function(t)
      log[#log + 1] = "pack"
      assert.is_false(moth.is_grad_enabled())
      return t
    end, identity, function()
      local y = x:exp()
      log[#log + 1] = "exp"
      y = y:sin()
      log[#log + 1] = "sin"
      return y
    end)
    assert.same({ "pack", "exp", "pack", "sin" }, log)
  end)

  it("calls unpack in each pass of a retained graph", function()
    local x, unpacks = moth.tensor { 0 }:requires_grad_(), 0
    local y = graph.saved_tensors_hooks(identity, function(t)
      unpacks = unpacks + 1
      return t
    end, function() return x:exp() end)
    y:backward { retain_graph = true }
    y:backward { retain_graph = true }
    y:backward()
    assert.equal(3, unpacks)
    same({ 3 }, x.grad)
    assert.error_matches(function() y:backward() end, "a second backward pass through", 1, true)
  end)

  it("does not change gradients of layers, checkpoints and Functions", function()
    local net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2))
    local input = moth.randn(5, 4)
    local checkpoint = moth.utils.checkpoint.checkpoint
    local Square = nn.class("Square", moth.autograd.Function)
    function Square.forward(ctx, v)
      ctx:save_for_backward(v)
      return v * v
    end
    function Square.backward(ctx, grad) return grad * ctx.saved_tensors[1] * 2 end
    local function hooked(f, ...) return graph.saved_tensors_hooks(twice, half, f, ...) end
    local function gradients(f)
      net:zero_grad()
      f():backward()
      local list = {}
      for i, p in ipairs(net:parameters()) do list[i] = p.grad:clone() end
      return list
    end
    local function plain() return Square.apply(net(input)):sum() end
    local expected = gradients(plain)
    for _, f in ipairs {
      function() return hooked(plain) end,
      function() return hooked(function() return hooked(plain) end) end,
      function() return Square.apply(hooked(checkpoint, net, input)):sum() end,
      function()
        return Square.apply(checkpoint(function(x) return hooked(net, x) end, input)):sum()
      end,
      function() return hooked(function() return moth.scope(plain) end) end,
      function() return graph.save_on_cpu(plain) end,
    } do
      moth.testing.assert_close(gradients(f), expected)
    end
  end)

  it("keeps the history of inputs for second derivatives", function()
    local x = moth.tensor({ 0.5, 1 }, { dtype = moth.float64 }):requires_grad_()
    local y = graph.saved_tensors_hooks(twice, half, function() return (x:exp() * x):sum() end)
    local g = moth.autograd.grad(y, x, { create_graph = true })
    local h = moth.autograd.grad(g:sum(), x)
    moth.testing.assert_close(h, (x:exp() * (x + 2)):detach())
  end)

  it("works in a captured step", function()
    local w = moth.tensor { { 0.5 } }:requires_grad_()
    local step = moth.capture(function(x)
      w.grad = nil
      local loss = graph.saved_tensors_hooks(twice, half, function()
        return x:matmul(w):tanh():sum()
      end)
      loss:backward()
      return w.grad
    end)
    local input = moth.tensor { { 2 } }
    for _ = 1, 3 do assert.near(2 * (1 - math.tanh(1) ^ 2), step(input):item(), 1e-6) end
  end)

  it("frees packed values with the graph", function()
    local x = moth.ones(2):requires_grad_()
    local held = setmetatable({}, { __mode = "v" })
    local y = graph.saved_tensors_hooks(function()
      held[1] = {}
      return held[1]
    end, identity, function() return x:exp() end)
    moth.collect()
    assert.is_table(held[1])
    y:free()
    y = nil -- luacheck: ignore 311
    moth.collect()
    moth.collect()
    assert.is_nil(held[1])
  end)

  it("raises errors of hooks, and says what an unpack hook must return", function()
    local x = moth.ones(3):requires_grad_()
    local function of(pack, unpack_hook)
      return graph.saved_tensors_hooks(pack, unpack_hook, function() return x:exp():sum() end)
    end
    assert.error_matches(function() of(function() error("no pack", 0) end, identity) end, "no pack",
      1, true)
    local y = x:exp() -- the hooks are off now
    y:sum():backward()
    local function backward(unpack_hook)
      local loss = of(identity, unpack_hook)
      assert.error_matches(function() loss:backward() end, "unpack hook returned", 1, true)
      return select(2, pcall(function() of(identity, unpack_hook):backward() end))
    end
    assert.matches("returned f32 %(7%) where f32 %(3%) was saved", backward(function()
      return moth.ones(7)
    end))
    assert.matches("returned nil, and a tensor is needed", backward(function() end))
    assert.error_matches(function() graph.saved_tensors_hooks(1, identity, identity) end,
      "bad argument 'pack_hook' to 'saved_tensors_hooks' (a function is needed, got 1)", 1, true)
  end)

  it("is also a named function, and can be forbidden", function()
    local x = moth.ones(1):requires_grad_()
    local y = graph.saved_tensors_hooks { pack_hook = identity, unpack_hook = identity,
      f = function() return x:exp() end }
    y:backward()
    assert.error_matches(function()
      graph.disable_saved_tensors_hooks("none here", function()
        graph.save_on_cpu(function() return x:exp() end)
      end)
    end, "none here", 1, true)
    graph.save_on_cpu(function() return x:exp() end)
  end)

  it("raises if a hook yields", function()
    local problem
    coroutine.wrap(function()
      problem = select(2, pcall(graph.saved_tensors_hooks, identity, identity, coroutine.yield))
    end)()
    assert.matches("cannot yield", problem)
  end)
end)

describe("grad_fn", function()
  local a, b = moth.tensor { 2 }:requires_grad_(), moth.tensor { 3 }:requires_grad_()

  it("has a name and the next nodes of the graph", function()
    local node = (a * b + a).grad_fn
    assert.equal("Add", node:name())
    assert.equal("<Add>", tostring(node))
    local next = node.next_functions
    assert.equal(2, #next)
    assert.equal("Mul", next[1][1]:name())
    assert.equal(1, next[1][2])
    assert.equal("AccumulateGrad", next[2][1]:name())
    assert.same({}, next[2][1].next_functions)
    assert.is_true(next[1][1].next_functions[1][1] == next[2][1])
    assert.is_nil((a * 2).grad_fn.next_functions[2] and (a * 2).grad_fn.next_functions[2][1])
    assert.is_nil(a.grad_fn)
  end)

  it("counts results from 1", function()
    local parts = (moth.ones(4):requires_grad_() * 2):split(2)
    local sum = parts[1]:sum() + parts[2]:sum()
    local first = sum.grad_fn.next_functions[1][1].next_functions[1]
    assert.equal("table", type(first))
    assert.is_true(first[2] >= 1)
  end)

  it("calls hooks before and after its gradient; the hooks may replace it", function()
    a.grad, b.grad = nil, nil
    local y = a * b
    local log = {}
    y.grad_fn:register_prehook(function(outputs)
      log[#log + 1] = { "before", outputs[1]:item() }
      return { outputs[1] * 2 }
    end)
    local handle = y.grad_fn:register_hook(function(inputs, outputs)
      log[#log + 1] = { "after", inputs[1]:item(), inputs[2]:item(), outputs[1]:item() }
      return { inputs[1] * 10, inputs[2] }
    end)
    y:backward { retain_graph = true }
    assert.same({ { "before", 1 }, { "after", 6, 4, 2 } }, log)
    same({ 60 }, a.grad)
    same({ 4 }, b.grad)
    handle:remove()
    a.grad, b.grad = nil, nil
    y:backward()
    same({ 6 }, a.grad)
    assert.equal(3, #log)
  end)

  it("of a Function calls hooks too", function()
    a.grad = nil
    local Twice = nn.class("Twice", moth.autograd.Function)
    function Twice.forward(_, v) return v * 2 end
    function Twice.backward(_, grad) return grad * 2 end
    local y, seen = Twice.apply(a), nil
    assert.equal("Twice", y.grad_fn:name())
    y.grad_fn:register_hook(function(inputs)
      seen = inputs[1]:item()
      return { inputs[1] + 1 }
    end)
    y:backward()
    assert.equal(2, seen)
    same({ 3 }, a.grad)
  end)

  it("says what is wrong with a hook", function()
    local y = a * b
    assert.error_matches(function() y.grad_fn:register_hook(3) end,
      "bad argument 'fn' to 'register_hook' (a function is needed, got 3)", 1, true)
    assert.error_matches(function()
      y.grad_fn.next_functions[1][1]:register_prehook(identity)
    end, "a leaf's node takes no hooks", 1, true)
    y.grad_fn:register_hook(function() return moth.ones(2) end)
    assert.error_matches(function() y:backward() end, "returns a list of tensors or "
      .. "nothing", 1, true)
    assert.error_matches(function() return y.grad_fn.next_function end,
      "a grad_fn has no 'next_function'; did you mean 'next_functions'?", 1, true)
  end)
end)

describe("unpacked tensors", function()
  it("of a Function have their history, for second derivatives", function()
    local Square = nn.class("Square", moth.autograd.Function)
    function Square.forward(ctx, x)
      ctx:save_for_backward(x)
      return x * x
    end
    function Square.backward(ctx, dy) return dy * 2 * ctx.saved_tensors[1] end
    local x = moth.tensor { 3 }:requires_grad_()
    local y = graph.saved_tensors_hooks(identity, identity, function() return Square.apply(x) end)
    local first = moth.autograd.grad(y:sum(), x, { create_graph = true })
    assert.equal(6, first:item())
    assert.equal(2, moth.autograd.grad(first:sum(), x):item())
  end)

  it("of a checkpoint have their history", function()
    local h = moth.tensor { 0.5 }:requires_grad_()
    local y = graph.save_on_cpu(function()
      return moth.utils.checkpoint.checkpoint(function(v) return (v * 2):sin() end, h * 1)
    end)
    y:backward()
    assert.near(2 * math.cos(1), h.grad:item(), 1e-6)
  end)
end)
