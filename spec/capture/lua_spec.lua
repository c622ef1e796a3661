-- moth.capture of Lua code inside a backward pass: Functions and hooks of tensors. Their ops are
-- replayed like others; other values that Lua computes are constants.

local moth = require "moth"
local support = require "spec.support.bits"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local bits, state_of = support.of, support.state_of

local Least = nn.class("Least", moth.autograd.Function)
function Least.forward(ctx, x, low)
  ctx:save_for_backward(x:ge(low))
  return x:clamp(low)
end
function Least.backward(ctx, dy) return dy * ctx.saved_tensors[1], nil end

-- Two results, of which one may have no gradient; saves an input, an output and a field of ctx.
local Both = nn.class("Both", moth.autograd.Function)
function Both.forward(ctx, x, w, label)
  ctx.half, ctx.label = x / 2, label
  local y = x * w
  ctx:save_for_backward(w, y)
  return y, ctx.half + 1
end
function Both.backward(ctx, dy, dz)
  local w, y = unpack(ctx.saved_tensors)
  local dx = ctx.needs_input_grad[1] and dy * w + dz / 2 or nil
  return dx, (dy * ctx.half * 2 + y * 0):sum(1)
end

local Negated = nn.class("Negated", moth.autograd.Function)
function Negated.forward(ctx, x)
  ctx:mark_dirty(x)
  return x:neg_()
end
function Negated.backward(_, dy) return -dy end

local Own = nn.class("Own", nn.Module)
function Own:init()
  self.fc1 = nn.Linear(3, 6)
  self.weight = nn.Parameter(moth.randn(6))
  self.fc2 = nn.Linear(6, 2)
end
function Own:forward(x)
  local h = Least.apply(self.fc1(x), -0.2)
  local y, z = Both.apply(h, self.weight, "a label")
  return self.fc2(Negated.apply(y * 1) + z), y
end

-- Losses and the network after n steps, captured or plain.
local function run(make, n, capture)
  moth.manual_seed(11)
  local step, net, after = make()
  if capture then step = capture(step) end
  local list = {}
  for i = 1, n do
    list[i] = bits(step(moth.randn(4, 3), moth.randn(4, 2)))
    if after then after(i) end
  end
  return table.concat(list, "\n") .. state_of(net), tostring(step)
end

local function same(make, most, n)
  local eager = run(make, n or 8)
  local captured, shown = run(make, n or 8, moth.capture)
  assert.are.equal(eager, captured)
  local recordings = shown:match "^captured step %((%d+) recordings?[;)]"
  assert.are.equal(most or 1, tonumber(recordings))
end

local function regression(net, opt)
  return function(x, y)
    opt:zero_grad()
    local loss = F.mse_loss((net(x)), y)
    loss:backward()
    opt:step()
    return loss
  end
end

describe("a captured step with Functions written in Lua", function()
  it("trains as the step itself does", function()
    same(function()
      local net = Own()
      return regression(net, optim.SGD(net:parameters(), {lr = 0.1})), net
    end)
  end)

  it("calls their forward and backward during recording, and never in a replay", function()
    local calls = {}
    local Counted = nn.class("Counted", moth.autograd.Function)
    function Counted.forward(_, x)
      calls[#calls + 1] = "forward"
      return x * 2
    end
    function Counted.backward(_, dy)
      calls[#calls + 1] = "backward"
      return dy * 2
    end
    local w = moth.ones(2):requires_grad_()
    local step = moth.capture(function(x)
      w.grad = nil
      Counted.apply(w * x):sum():backward()
    end)
    for i = 1, 3 do
      step(moth.full({2}, i))
      assert.are.same({2 * i, 2 * i}, w.grad:tolist())
    end
    assert.are.same({"forward", "backward"}, calls)
  end)

  it("computes second derivatives through them", function()
    same(function()
      local net = Own()
      local opt = optim.SGD(net:parameters(), {lr = 0.01})
      return function(x)
        opt:zero_grad()
        x = x:detach():requires_grad_()
        local _, y = net(x)
        local dx = moth.autograd.grad(y:square():sum(), x, {create_graph = true})
        local loss = dx:square():sum()
        loss:backward()
        opt:step()
        return loss
      end, net
    end)
  end)

  it("is recorded again when one of their parameters is frozen", function()
    local frozen
    same(function()
      local net = Own()
      frozen = net
      return regression(net, optim.SGD(net:parameters(), {lr = 0.1})), net,
        function(i) if i == 4 then frozen.weight:requires_grad_(false) end end
    end, 2)
  end)

  it("raises if they read values, forward or backward", function()
    local where
    local Peek = nn.class("Peek", moth.autograd.Function)
    function Peek.forward(_, x) return where == "forward" and x * x:sum():item() or x * 1 end
    function Peek.backward(_, dy) return where == "backward" and dy * dy:sum():item() or dy * 1 end
    local w = moth.ones(2):requires_grad_()
    local step = moth.capture(function() Peek.apply(w):sum():backward() end)
    for _, name in ipairs {"forward", "backward"} do
      where = name
      assert.has_error_like(step, "values are read while moth.capture records")
    end
    where = nil
    w.grad = nil
    step()
    step()
    assert.are.same({2, 2}, w.grad:tolist())
  end)

  it("passes on their errors and restores its state", function()
    local Broken = nn.class("Broken", moth.autograd.Function)
    function Broken.forward(_, x) return x * 1 end
    function Broken.backward() error "mine" end
    local w = moth.ones(2):requires_grad_()
    local step = moth.capture(function() Broken.apply(w):sum():backward() end)
    local tasks = moth.memory().live_tasks
    assert.has_error_like(step, "lua_spec.lua:%d+: mine")
    assert.are.equal(tasks, moth.memory().live_tasks)
    local double = moth.capture(function(x) return x * 2 end)
    assert.are.equal(2, double(moth.ones(1)):item())
  end)

  it("verifies", function()
    local net = Own()
    local step = moth.capture(regression(net, optim.SGD(net:parameters(), {lr = 0.1})),
      {verify = 4})
    for _ = 1, 6 do step(moth.randn(4, 3), moth.randn(4, 2)) end
    assert.are.equal("captured step (1 recording)", tostring(step))
  end)
end)

-- A leaf whose gradient a captured step computes, and functions that return the elements of the
-- gradient and the number of recordings.
local function stepped()
  local w = moth.ones(2):requires_grad_()
  local step = moth.capture(function(x)
    w.grad = nil
    (w * x):sum():backward()
  end)
  local x = moth.ones(2)
  local function expect(value, recordings)
    for _ = 1, 3 do
      step(x)
      assert.are.same({value, value}, w.grad:tolist())
    end
    assert.are.equal(recordings, tonumber(tostring(step):match "%d+"))
  end
  return w, expect
end

describe("a captured step with hooks of tensors", function()
  it("replays their changes of gradients, of parameters and of intermediate tensors", function()
    same(function()
      local net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
      net[1].weight:register_hook(function(dw) return dw:clamp(-0.01, 0.01) end)
      local opt = optim.SGD(net:parameters(), {lr = 0.5})
      return function(x, y)
        opt:zero_grad()
        local h = net[2](net[1](x))
        h:register_hook(function(dh) return dh / (dh:norm() + 1) end)
        local loss = F.mse_loss(net[3](h), y)
        loss:backward()
        opt:step()
        return loss
      end, net
    end)
  end)

  it("is recorded again when a hook of a parameter is added, removed or added again", function()
    local w, expect = stepped()
    expect(1, 1)
    local double = w:register_hook(function(dw) return dw * 2 end)
    expect(2, 2)
    local triple = w:register_hook(function(dw) return dw * 3 end)
    expect(6, 3)
    double:remove()
    expect(3, 4)
    triple:remove()
    expect(1, 5)
    w:register_hook(function(dw) return dw * 4 end)
    expect(4, 6)
  end)

  it("replays an optimizer's step after a gradient was added", function()
    same(function()
      local net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
      for _, p in ipairs(net:parameters()) do
        local opt = optim.Adam({p}, {lr = 0.1})
        p:register_post_accumulate_grad_hook(function(q)
          opt:step()
          q.grad = nil
        end)
      end
      return function(x, y)
        local loss = F.mse_loss(net(x), y)
        loss:backward()
        return loss
      end, net
    end)
  end)

  it("is recorded again when a hook after gradient accumulation is added or removed", function()
    local w, expect = stepped()
    expect(1, 1)
    local double = w:register_post_accumulate_grad_hook(function(p) p.grad:mul_(2) end)
    expect(2, 2)
    double:remove()
    expect(1, 3)
  end)

  it("raises if a hook reads values", function()
    local w = moth.ones(2):requires_grad_()
    w:register_hook(function(dw) print(dw) end)
    local step = moth.capture(function() w:sum():backward() end)
    assert.has_error_like(step, "values are read while moth.capture records")
  end)
end)

describe("a captured step with hooks of modules", function()
  it("replays their changes of arguments, results and gradients", function()
    same(function()
      local net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
      net[1]:register_forward_pre_hook(function(_, args) return args[1] * 2 end)
      net[2]:register_forward_hook(function(_, _, y) return y + 0.1 end)
      net[3]:register_full_backward_hook(function(_, grads) return {grads[1] * 0.5} end)
      net[3]:register_full_backward_pre_hook(function(_, grads) return {grads[1]:clamp(-1, 1)} end)
      return regression(net, optim.SGD(net:parameters(), {lr = 0.5})), net
    end)
    local global
    same(function()
      if global then global:remove() end
      global = nn.register_module_forward_hook(function(_, _, y) return y * 0.9 end)
      local net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
      return regression(net, optim.Adam(net:parameters())), net
    end)
    global:remove()
  end)

  it("is recorded again when one of its modules gets or loses a hook", function()
    local net = nn.Sequential(nn.Identity(), nn.Identity())
    local step = moth.capture(function(x) return net(x) * 1 end)
    local x = moth.ones(2)
    local function expect(value, recordings)
      for _ = 1, 3 do assert.are.same({value, value}, step(x):tolist()) end
      assert.are.equal(recordings, tonumber(tostring(step):match "%d+"))
    end
    expect(1, 1)
    local other = nn.Identity():register_forward_hook(function() end)
    expect(1, 1)
    local double = net[2]:register_forward_hook(function(_, _, y) return y * 2 end)
    expect(2, 2)
    local triple = nn.register_module_forward_pre_hook(function(m, args)
      if m == net then return args[1] * 3 end
    end)
    expect(6, 3)
    double:remove()
    other:remove()
    expect(3, 4)
    triple:remove()
    expect(1, 4) -- as in the first recording
  end)

  it("raises if a hook reads values", function()
    local layer = nn.Linear(2, 1)
    layer:register_forward_hook(function(_, _, y) print(y) end)
    local step = moth.capture(function(x) return layer(x) end)
    assert.has_error_like(function() return (step(moth.ones(2))) end,
      "values are read while moth.capture records")
  end)
end)

describe("a captured step whose modules change", function()
  -- The number of recordings; the results equal those of the module.
  local function expect(step, net, recordings)
    for i = 1, 3 do
      local x = moth.full({2, 3}, i)
      assert.are.equal(bits(net(x)), bits(step(x)))
    end
    assert.are.equal(recordings, tonumber(tostring(step):match "%d+"))
  end

  local function captured(net)
    local step = moth.capture(function(x) return net(x) end)
    expect(step, net, 1)
    return step
  end

  -- A Sequential runs the Linear and its ReLU without a call of the Linear.
  local nets = {
    Linear = function() local net = nn.Linear(3, 2) return net, net end,
    Sequential = function()
      local layer = nn.Linear(3, 2)
      return nn.Sequential(layer, nn.ReLU()), layer
    end,
  }
  for name, make in pairs(nets) do
    it("uses a new parameter, in a " .. name, function()
      local net, layer = make()
      local step = captured(net)
      layer.weight = nn.Parameter(moth.ones(2, 3))
      expect(step, net, 2)
      layer.bias = nil
      expect(step, net, 3)
      layer.bias = nn.Parameter(moth.ones(2))
      expect(step, net, 4)
      layer:load_state_dict({weight = moth.zeros(2, 3), bias = moth.ones(2)}, {assign = true})
      expect(step, net, 5)
      nn.Linear(3, 2).weight = nn.Parameter(moth.ones(2, 3)) -- a parameter of another module
      expect(step, net, 5)
    end)

    it("uses a parametrized parameter, and the plain parameter later, in a " .. name, function()
      local net, layer = make()
      local step, utils = captured(net), nn.utils
      utils.prune.l1_unstructured(layer, "weight", 3)
      expect(step, net, 2)
      utils.prune.remove(layer, "weight")
      expect(step, net, 3)
      utils.weight_norm(layer)
      moth.no_grad(function() layer.weight_g:mul_(2) end)
      expect(step, net, 4)
      utils.remove_weight_norm(layer)
      utils.parametrizations.weight_norm(layer)
      moth.no_grad(function() layer.parametrizations.weight.original0:mul_(2) end)
      expect(step, net, 5)
      layer.parametrizations.weight.original1 = nn.Parameter(moth.ones(2, 3))
      expect(step, net, 6)
    end)
  end

  it("uses a replaced buffer, child and forward", function()
    local Net = nn.class("Net", nn.Module)
    function Net:init()
      self.scale, self.inner = nn.Buffer(moth.full({1}, 2)), nn.Identity()
    end
    function Net:forward(x) return self.inner(x) * self.scale end
    local net = Net()
    local step = captured(net)
    net.scale = moth.full({1}, 3)
    expect(step, net, 2)
    net.inner = nn.Tanh()
    expect(step, net, 3)
    net.inner.forward = function(_, x) return x + 1 end
    expect(step, net, 4)
  end)

  it("uses modules that are added to a list and removed from it", function()
    local net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    local step = captured(net)
    net:append(nn.Sigmoid())
    expect(step, net, 2)
    net:insert(2, nn.Tanh())
    expect(step, net, 3)
    net:pop(1)
    expect(step, net, 4)
    net[#net + 1] = nn.Tanh()
    expect(step, net, 5)
  end)

  it("is recorded at each call if each call has another buffer", function()
    local Count = nn.class("Count", nn.Module)
    function Count:init() self.n = nn.Buffer(moth.zeros(1)) end
    function Count:forward(x)
      self.n = self.n + 1
      return x * self.n
    end
    local net = Count()
    local step = moth.capture(function(x) return net(x) end)
    for i = 1, 12 do assert.are.same({i}, step(moth.ones(1)):tolist()) end
  end)
end)
