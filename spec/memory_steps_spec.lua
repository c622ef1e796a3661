-- Memory of training steps: what goes without a collection, and when one is made.

local moth = require "moth"
local lib = require "moth.lib"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local C, ctx = lib.C, lib.ctx

local ROWS, WIDTH = 64, 1024
local BYTES = ROWS * WIDTH * 4

-- Bytes that f() needs at most beyond those live before, its garbage included: none is collected.
local function peak_of(f)
  moth.collect()
  local collect, before = lib.collect, moth.memory().live_bytes
  lib.collect = function() return false end
  collectgarbage "stop"
  moth.reset_peak_memory()
  local ok, problem = pcall(f)
  collectgarbage "restart"
  lib.collect = collect
  assert(ok, problem)
  return moth.memory().peak_bytes - before
end

local function at_most(bytes, peak)
  assert.is_true(peak <= bytes, ("%d bytes, not %d"):format(peak, bytes))
end

describe("what nn.Sequential hands from layer to layer", function()
  local function chain(...)
    local list = {}
    for _ = 1, 8 do
      for _, make in ipairs { ... } do list[#list + 1] = make() end
    end
    return nn.Sequential(list)
  end

  local x = moth.randn(ROWS, WIDTH)

  it("goes as soon as the next of Moth's layers has read it", function()
    at_most(3 * BYTES, peak_of(function() moth.no_grad(chain(nn.Tanh, nn.ReLU), x) end))
  end)

  it("goes also where layers give back their input, and where they are many", function()
    local net = chain(nn.Tanh, nn.Identity, function() return nn.ReLU{ inplace = true } end)
    at_most(3 * BYTES, peak_of(function() moth.no_grad(net, x) end))
    local long = nn.Sequential()
    for _ = 1, 70 do long:append(nn.Tanh()) end
    at_most(3 * BYTES, peak_of(function() moth.no_grad(long, x) end))
  end)

  it("stays the caller's: input and result live on", function()
    local net = nn.Sequential(nn.Identity(), nn.Tanh(), nn.Identity())
    local y = net(x)
    assert.equal(ROWS, y:size(1))
    assert.equal(ROWS, x:size(1))
    assert.is_true(moth.equal(y, x:tanh()))
  end)

  it("lives on for a module of one's own, a hook, a forward put in place of a layer's", function()
    local Keeping = nn.class("Keeping", nn.Module)
    function Keeping:forward(input)
      self.input = input
      return input * 1
    end
    local net = nn.Sequential(nn.Tanh(), Keeping(), nn.Tanh())
    net(x)
    assert.is_true(moth.equal(net[2].input, x:tanh()))

    local seen
    net = nn.Sequential(nn.Tanh(), nn.Tanh(), nn.Tanh())
    net(x)
    local hook = net[2]:register_forward_hook(function(_, args) seen = args[1] end)
    net(x)
    assert.is_true(moth.equal(seen, x:tanh()))
    hook:remove()

    net = nn.Sequential(nn.Tanh(), nn.Tanh(), nn.Tanh())
    net(x)
    net[2].forward = function(_, input)
      seen = input
      return input * 1
    end
    net(x)
    assert.is_true(moth.equal(seen, x:tanh()))
    net[2] = Keeping()
    net(x)
    assert.is_true(moth.equal(net[2].input, x:tanh()))
  end)

  it("is what gradients need all the same", function()
    local net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(0), nn.Linear(5, 1))
    local input = moth.randn(3, 4)
    net(input):sum():backward()
    local h = net[2](net[1](input))
    local expected = moth.autograd.grad(net[4](h):sum(), net[1].weight)
    assert.is_true(moth.allclose(net[1].weight.grad, expected))
  end)
end)

describe("a backward pass", function()
  it("puts the gradient of a function of each element in the place of the result's", function()
    local x = moth.randn(ROWS, WIDTH):requires_grad_()
    local y = x:tanh():sigmoid():relu()
    local g = y:sum()
    at_most(2 * BYTES + 64, peak_of(function() g:backward() end))
    x.grad = nil
    local first = x:tanh():sigmoid()
    local expected = moth.autograd.grad(first:sum(), x, { create_graph = true })
    first:sum():backward()
    assert.is_true(moth.allclose(expected, x.grad))
  end)

  it("leaves a gradient alone that someone has", function()
    local x = moth.randn(ROWS, WIDTH):requires_grad_()
    local dy = moth.ones(ROWS, WIDTH)
    x:tanh():backward(dy)
    assert.equal(dy:numel(), dy:sum():item())
    local seen
    local y = x:tanh()
    y:register_hook(function(grad) seen = grad end)
    local z = y * 3
    z:retain_grad()
    z:sigmoid():sum():backward()
    assert.is_true(moth.allclose(seen, z.grad * 3))
  end)

  it("gives back what a layer has saved before the gradient of that is made", function()
    local layer = nn.Linear(WIDTH, 8)
    local h = moth.randn(ROWS, WIDTH):requires_grad_():tanh()
    local loss = layer(h * 1):sum()
    local weight = WIDTH * 8 * 4
    at_most(weight + ROWS * 8 * 4 + 8 * 4 + 64, peak_of(function() loss:backward() end) - BYTES)
  end)

  it("can be run again where the graph is retained", function()
    local layer = nn.Linear(WIDTH, 8)
    local loss = layer(moth.randn(ROWS, WIDTH)):sum()
    loss:backward{ retain_graph = true }
    local first = layer.weight.grad:clone()
    loss:backward()
    assert.is_true(moth.allclose(layer.weight.grad, first * 2))
    assert.has_error(function() loss:backward() end)
  end)
end)

describe("gradients that an optimizer or clipping has read", function()
  it("go with zero_grad, without a collection", function()
    for _, name in ipairs { "SGD", "Adam", "NAdam", "RMSprop" } do
      local p = nn.Parameter(moth.randn(WIDTH, WIDTH))
      local optimizer = optim[name]({ p }, { lr = 0.1 })
      p.grad = moth.ones(WIDTH, WIDTH)
      moth.collect()
      local handles = moth.memory().live_handles
      nn.utils.clip_grad_norm_({ p }, 1)
      nn.utils.clip_grad_value_({ p }, 1)
      optimizer:step()
      local states = 0
      for _, own in pairs(optimizer.state) do
        for _, value in pairs(own) do states = states + (lib.istensor(value) and 1 or 0) end
      end
      local before = moth.memory().live_bytes
      optimizer:zero_grad()
      assert.equal(WIDTH * WIDTH * 4, before - moth.memory().live_bytes, name)
      assert.is_true(moth.memory().live_handles <= handles + states + 2, name) -- the norm, a loss
    end
  end)

  it("stay where someone has them", function()
    local p = nn.Parameter(moth.randn(4))
    p.grad = moth.ones(4)
    local grad = p.grad
    nn.utils.clip_grad_norm_({ p }, 100)
    optim.SGD({ p }, { lr = 0.1, momentum = 0.9 }):step()
    assert.equal(4, grad:sum():item())
  end)
end)

describe("a collection", function()
  local MIB = 2 ^ 20
  after_each(moth.collect)

  -- As if the last one had just ended.
  local function took(seconds, heap)
    C.moth_swept(ctx, 1, seconds, heap)
  end

  -- Whether one is wanted when so many bytes are made.
  local function asked_after(bytes)
    local collect, asked = lib.collect, false
    lib.collect = function() asked = true end
    moth.empty(math.floor(bytes / 4)):free()
    lib.collect = collect
    return asked
  end

  it("is made for a MiB of garbage where it costs nothing", function()
    took(0, 0)
    assert.is_true(asked_after(moth.memory().live_bytes / 32 + 2 * MIB))
  end)

  it("waits where it would take more than its share of the time", function()
    moth.collect()
    local live = moth.memory().live_bytes
    took(1000, 0)
    assert.is_false(asked_after(14 * MIB))
    took(1000, 100 * MIB)
    assert.is_false(asked_after(390 * MIB))
    took(1000, 0)
    assert.is_true(asked_after(math.max(16 * MIB, live) + MIB))
    took(1000, 100 * MIB)
    assert.is_true(asked_after(math.max(400 * MIB, live) + MIB))
    took(1000, 2 ^ 40)
    assert.is_true(asked_after(math.max(1024 * MIB, live) + MIB))
    took(0, 0)
  end)

  it("is made before a backward pass", function()
    local live = moth.empty(64 * MIB) -- 256 MiB: without it, 3 MiB are enough at any time
    local w = moth.randn(512, 512):requires_grad_()
    local loss = (w * 2):sum()
    moth.collect()
    took(0, 0)
    local before = moth.memory().collections
    moth.empty(3 * MIB / 4)
    assert.equal(before, moth.memory().collections)
    loss:backward()
    assert.equal(before + 1, moth.memory().collections)
    assert.equal(2 * 512 * 512, w.grad:sum():item())
    live:free()
  end)
end)

describe("training steps in a scope", function()
  it("take no more than without one", function()
    local net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    local optimizer = optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 })
    local x, y = moth.randn(256, 64), moth.randint(1, 11, { 256 })
    local function step()
      optimizer:zero_grad()
      F.cross_entropy(net(x), y):backward()
      optimizer:step()
    end
    for _ = 1, 3 do moth.scope(step) end
    local after = moth.memory().live_bytes
    for _ = 1, 3 do moth.scope(step) end
    assert.equal(after, moth.memory().live_bytes)
    local peak = peak_of(function() moth.scope(step) end)
    at_most(4 * 256 * 256 * 4, peak)
  end)
end)
