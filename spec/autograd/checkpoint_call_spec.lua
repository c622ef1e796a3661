-- moth.utils.checkpoint: the backward pass calls the function again instead of saving tensors.

local moth = require "moth"
local support = require "spec.support.bits"
local cuda = require "spec.support.cuda"
local lib = require "moth.binding.lib"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local checkpoint = moth.utils.checkpoint.checkpoint
local sequential = moth.utils.checkpoint.checkpoint_sequential

local bits = support.of

local function plain(fn, ...) return fn(...) end

-- The loss, the gradients of the parameters and of the input, and the random numbers that follow.
-- `call` of forward(call, net, x) is checkpoint or a plain call.
local function gradients(call, make, forward, shape)
  moth.manual_seed(3)
  local net = make()
  local x = moth.randn(shape or {4, 6}, {requires_grad = true})
  local list = {}
  for _ = 1, 2 do -- the second pass adds to the gradients of the first
    local loss = forward(call, net, x)
    loss:backward()
    list[#list + 1] = bits(loss)
  end
  list[#list + 1] = x.grad ~= nil and bits(x.grad) or "none"
  for name, p in net:named_parameters() do
    list[#list + 1] = name .. " " .. (p.grad ~= nil and bits(p.grad) or "none")
  end
  list[#list + 1] = bits(moth.rand(2))
  return table.concat(list, "\n")
end

local function same(make, forward, shape)
  local wanted = gradients(plain, make, forward, shape)
  assert.are.equal(wanted, gradients(checkpoint, make, forward, shape))
end

local function mlp()
  return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.4), nn.Linear(8, 6), nn.Tanh())
end

-- Six steps of training, captured by `record` or not: all bits of the losses and of the net.
local function train(device, call, record)
  moth.manual_seed(4)
  local net = mlp():to(device)
  local opt = optim.Adam(net:parameters())
  local function step(x)
    opt:zero_grad()
    local loss = call(net, call(net, x)):square():mean()
    loss:backward()
    opt:step()
    return loss
  end
  if record then step = record(step, {verify = 2}) end
  local text = {}
  for i = 1, 6 do text[i] = bits(step(moth.randn({4, 6}, {device = device}))) end
  if record then assert.truthy(tostring(step):find "1 recording") end
  return table.concat(text, "\n") .. support.state_of(net)
end

describe("checkpoint computes, bit for bit, the gradients of a plain call", function()
  it("of a network with dropout", function()
    same(mlp, function(call, net, x) return call(net, x):square():sum() end)
  end)

  it("where calls and other code share parameters", function()
    same(mlp, function(call, net, x)
      local h = x * 1
      for _ = 1, 3 do h = call(net, h) end
      return (net(h) * h):sum() + net[1].weight:square():sum()
    end)
  end)

  it("where no argument needs a gradient", function()
    same(mlp, function(call, net, x) return call(net, x:detach()):square():sum() end)
  end)

  it("with numbers, strings, nil and tables among the arguments, and several results", function()
    same(mlp, function(call, net, x)
      local y, n, t = call(function(a, factor, none, names, b)
        assert(none == nil and names.label == "a")
        return net(a) * factor + names.list[1][1], factor + 1, {a * b}
      end, x * 2, 3, nil, {label = "a", list = {{x + 1}}}, x)
      assert.are.equal(4, n)
      return (y * t[1]):sum()
    end)
  end)

  it("of tensors from outside of the function", function()
    same(mlp, function(call, net, x)
      local h = net(x)
      return call(function(a) return (a * h):tanh() * h end, x):sum()
    end)
  end)

  it("of nested calls", function()
    same(mlp, function(call, net, x)
      local function inner(a) return call(function(b) return net(b):exp() end, a * 2) end
      local y = call(function(a) return call(inner, a):sin() * inner(a) end, x)
      return y:square():sum()
    end)
  end)

  it("of convolutions, norms, an LSTM and attention", function()
    same(function()
      return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout2d(), nn.Conv2d(4, 2, 2))
    end, function(call, net, x)
      for _, m in ipairs(net:modules()) do m.momentum = m.momentum and 0 end
      return call(net, x):square():sum()
    end, {2, 1, 8, 8})
    same(function() return nn.LSTM(6, 5, 2, {dropout = 0.3}) end, function(call, net, x)
      local y, states = call(net, x)
      return (y:sum() + states[1]:square():sum())
    end, {7, 3, 6})
    same(function() return nn.TransformerEncoderLayer(6, 2, 8) end, function(call, net, x)
      return call(net, x):square():sum()
    end, {7, 3, 6})
  end)

  it("of writes in place, views and Functions written in Lua", function()
    local Least = nn.class("Least", moth.autograd.Function)
    function Least.forward(ctx, x, low)
      ctx.low = low
      ctx:save_for_backward(x)
      return x:clamp(low)
    end
    function Least.backward(ctx, dy) return dy * ctx.saved_tensors[1]:ge(ctx.low), nil end
    same(mlp, function(call, net, x)
      return call(function(a)
        local h = net(a) * 3
        h[{{}, {1, 3}}]:mul_(2)
        h[{{}, {1, 3}}]:sigmoid_()
        local left, right = unpack(h:chunk(2, {dim = 2}))
        return Least.apply(left * right, 0.3) * left
      end, x):sum()
    end)
  end)

  it("that change in place the input of a product outside of them", function()
    local function gradient(call)
      moth.manual_seed(1)
      local w, z = moth.randn(64, 64):requires_grad_(), moth.randn(2, 64):requires_grad_()
      local buffer = moth.randn(2, 64)
      local early = w:sum() -- older than the call: its gradient comes later
      local h = call(function(x)
        moth.no_grad(function() buffer:add_(1) end)
        return x:sin() * x
      end, z)
      ;((F.linear(buffer, w) * h):sum() + early):backward()
      return w.grad
    end
    assert.is_true(moth.allclose(gradient(plain), gradient(checkpoint)))
  end)

  it("with hooks, and a backward pass inside of the call", function()
    same(mlp, function(call, net, x)
      local y = call(function(a)
        a = a * 1
        local h = net(a)
        h:register_hook(function(dh) return dh * 2 end)
        local da = moth.autograd.grad(h:square():sum(), a, {create_graph = true})
        return h * da
      end, x)
      y:register_hook(function(dy) return dy:clamp(-1, 0.5) end)
      return y:square():sum()
    end)
  end)

  it("in mixed precision, with one call for each weight", function()
    same(mlp, function(call, net, x)
      local y = moth.autocast("cpu", moth.bfloat16, function() return call(net, x) end)
      return y:float():square():sum()
    end)
  end)

  it("of a sequence in segments", function()
    local function make()
      local list = {}
      for i = 1, 7 do list[i] = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.2)) end
      return nn.Sequential(unpack(list))
    end
    local wanted = gradients(plain, make, function(_, net, x) return net(x):sum() end)
    for segments = 1, 7 do
      assert.are.equal(wanted, gradients(nil, make, function(_, net, x)
        return sequential(net, segments, x):sum()
      end))
    end
    assert.are.equal(wanted, gradients(nil, make, function(_, net, x)
      local list = {}
      for i = 1, 7 do list[i] = net[i] end
      return sequential(list, 3, x, {use_reentrant = false}):sum()
    end))
  end)

  it("twice, with retain_graph and create_graph, and through autograd.grad", function()
    same(mlp, function(call, net, x)
      local y = call(net, x * 1)
      local dx = moth.autograd.grad(y:square():sum(), x, {create_graph = true})
      local d2 = moth.autograd.grad((dx * dx):sum(), x, {create_graph = true})
      y:sum():backward {retain_graph = true}
      return y:sum() + dx:square():sum() + d2:sum()
    end)
  end)

  it("in a step that moth.capture records", function()
    local wanted = train("cpu", plain)
    assert.are.equal(wanted, train("cpu", checkpoint))
    assert.are.equal(wanted, train("cpu", checkpoint, moth.capture))
  end)
end)

describe("checkpoint on a GPU", function()
  if not cuda.here then
    pending("gives the gradients of a plain call: " .. cuda.why)
    return
  end

  it("computes, bit for bit, the gradients of a plain call, also in a CUDA graph", function()
    local wanted = train("cuda", plain)
    assert.are.equal(wanted, train("cuda", checkpoint))
    assert.are.equal(wanted, train("cuda", checkpoint, moth.cuda.graph))
  end)
end)

describe("a checkpointed call", function()
  it("runs once forward and once in the first backward pass that needs it", function()
    local runs = 0
    local x = moth.ones(2):requires_grad_()
    local function fn(a)
      runs = runs + 1
      return a:exp():sin()
    end
    local y = checkpoint(fn, x):sum()
    assert.are.equal(1, runs)
    y:backward {retain_graph = true}
    y:backward()
    assert.are.equal(2, runs)
    moth.no_grad(checkpoint, fn, x)
    assert.are.equal(3, runs)
    assert.has_error_like(function() y:backward() end, "retain_graph")
    checkpoint(function(a) return a + 1 end, x):sum():backward() -- requests no gradient
    checkpoint(fn, x)
    moth.collect()
    assert.are.equal(4, runs)
  end)

  it("keeps only its arguments between forward and backward", function()
    local layers = {}
    for i = 1, 8 do
      layers[i] = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 128), nn.Tanh())
    end
    local x = moth.randn(4096, 128)
    local function measure(call)
      local function step()
        local h = x
        for _, layer in ipairs(layers) do h = call(layer, h) end
        return h:square():sum()
      end
      step():backward()
      moth.collect()
      moth.reset_peak_memory()
      local before = moth.memory().live_bytes
      local loss = step()
      moth.collect()
      local held = moth.memory().live_bytes - before
      loss:backward()
      return held, moth.memory().peak_bytes - before
    end
    local held, peak = measure(plain)
    local held2, peak2 = measure(checkpoint)
    local activation = 4096 * 128 * 4
    assert.is_true(held2 <= 8.5 * activation, held2 / activation .. " activations are held")
    assert.is_true(held2 < 0.4 * held, held2 .. " are held, " .. held .. " by the plain run")
    assert.is_true(peak2 < 0.75 * peak, peak2 .. " at most, " .. peak .. " in the plain run")
  end)

  it("frees all memory with its graph, with and without a backward pass", function()
    local net = mlp()
    local x = moth.randn(4, 6)
    local function use(walk)
      local y = checkpoint(function(a) return checkpoint(net, a) * net(a) end, x):sum()
      if walk then y:backward() end
      net:zero_grad()
    end
    use(true)
    for _, walk in ipairs {true, false} do
      moth.collect()
      local before = moth.memory()
      for _ = 1, 3 do use(walk) end
      moth.collect()
      moth.collect()
      local after = moth.memory()
      for _, name in ipairs {"live_bytes", "live_nodes", "live_storages", "live_tensors"} do
        assert.are.equal(before[name], after[name], name)
      end
    end
  end)

  it("draws other random numbers the second time if preserve_rng_state is false", function()
    local function run(preserve)
      moth.manual_seed(1)
      local drawn = {}
      local x = moth.ones(4):requires_grad_()
      checkpoint(function(a)
        local r = moth.rand(4)
        drawn[#drawn + 1] = bits(r)
        return (a * r):exp()
      end, x, {preserve_rng_state = preserve}):sum():backward()
      return drawn[1] == drawn[2]
    end
    assert.is_true(run(true))
    assert.is_false(run(false))
  end)

  it("raises errors of both runs and interrupts, and restores all modes", function()
    local x = moth.ones(2):requires_grad_()
    local fail = false
    local function fn(a)
      local y = a:exp() * moth.rand(2)
      if fail == 1 then error "mine" end
      if fail == 2 then lib.C.moth_cancel(lib.ctx, 1) end
      return y:sin()
    end
    fail = 1
    assert.has_error_like(function() checkpoint(fn, x) end, "call_spec.lua:%d+: mine")
    for _, how in ipairs {1, 2} do
      fail = false
      local y = moth.autocast("cpu", moth.bfloat16, checkpoint, fn, x):sum()
      local state = bits(moth.get_rng_state())
      local tasks = moth.memory().live_tasks
      fail = how
      assert.has_error_like(function() moth.no_grad(y.backward, y) end,
        how == 1 and "spec.lua:%d+: mine" or "interrupt")
      assert.is_true(moth.is_grad_enabled())
      assert.is_false(moth.is_autocast_enabled())
      assert.are.equal(state, bits(moth.get_rng_state()))
      assert.are.equal(tasks, moth.memory().live_tasks)
      fail = false
      x.grad = nil
      checkpoint(fn, x):sum():backward() -- no mode is left on
      assert.is_true(x.grad ~= nil)
    end
  end)

  it("restores all modes if memory runs out at any allocation", function()
    local net = mlp()
    local x = moth.randn(4, 6)
    local function use()
      net:zero_grad()
      checkpoint(function(a) return checkpoint(net, a) * a end, x):sum():backward()
    end
    use()
    local before
    for n = 1, 300, 2 do
      lib.C.moth_fail_allocation(lib.ctx, n)
      local ok = pcall(use)
      lib.C.moth_fail_allocation(lib.ctx, 0)
      if ok then break end
      net:zero_grad()
      moth.collect()
      moth.collect()
      local nodes = moth.memory().live_nodes
      before = before or nodes
      assert.are.equal(before, nodes)
    end
    use()
  end)

  it("raises if the second run differs from the first", function()
    local x = moth.ones(3):requires_grad_()
    local n
    local function expect(text, fn)
      n = 0
      local y = checkpoint(function(a)
        n = n + 1
        return fn(a, n)
      end, x):sum()
      assert.has_error_like(function() y:backward() end, text)
      x.grad = nil
    end
    expect("'exp' where it had called 'sin'", function(a, k)
      return k == 1 and a:sin() or a:exp()
    end)
    expect("'nothing' where it had called 'sin'", function(a, k)
      return k == 1 and a:exp():sin() or a:exp()
    end)
    expect("had f32 %(2%) at 'mul' where it had had f32 %(3%)", function(a, k)
      return a:sum() * moth.ones(k == 1 and 3 or 2)
    end)
    local w = moth.ones(3)
    local y = checkpoint(function(a) return a * w end, x):sum()
    w:add_(1)
    assert.has_error_like(function() y:backward() end, "changed in place")
    local h = x * 1
    y = checkpoint(function(a) return a:exp() end, h):sum()
    moth.no_grad(function() h:add_(1) end)
    assert.has_error_like(function() y:backward() end, "changed in place")
  end)

  it("raises for wrong arguments and names what it takes", function()
    local x = moth.ones(2):requires_grad_()
    assert.has_error_like(function() checkpoint(x, x) end, "function")
    assert.has_error_like(function() checkpoint() end, "function")
    assert.has_error_like(function() checkpoint(F.relu, x, {use_reentrant = true}) end,
      "use_reentrant")
    assert.has_error_like(function() checkpoint(F.relu, x, {preserve_rng_state = 1}) end,
      "preserve_rng_state.*true or false")
    assert.has_error_like(function()
      checkpoint(F.relu, x, {preserve_rng_state = true, y = 1})
    end, "'y'")
    assert.has_error_like(function() sequential(nn.Linear(1, 1), 2, x) end, "functions")
    assert.has_error_like(function() sequential({F.relu}, 2, x) end, "segments")
    assert.has_error_like(function()
      coroutine.wrap(function() checkpoint(function(a) return coroutine.yield(a) end, x) end)()
    end, "cannot yield")
  end)
end)
