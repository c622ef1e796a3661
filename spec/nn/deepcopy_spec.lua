-- Copies of networks: moth.deepcopy and net:deepcopy().

local moth = require "moth"
local nn = moth.nn

local function network()
  return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))
end

describe("a copy of a network", function()
  it("has new tensors, equal in values, kind and requires_grad", function()
    local net = network()
    net[4].weight.requires_grad = false
    net(moth.randn(4, 2)):sum():backward()
    local copy = net:deepcopy()
    assert.equal(tostring(net), tostring(copy))
    for name, x in net:state_dict():items() do
      local y = copy:state_dict()[name]
      assert.is_true(x:equal(y))
      assert.not_equal(x:data_ptr(), y:data_ptr())
    end
    assert.equal("Parameter", nn.typename(copy[1].weight))
    assert.is_true(copy[1].weight.requires_grad)
    assert.is_false(copy[4].weight.requires_grad)
    assert.is_nil(copy[1].weight.grad) -- as in PyTorch
    moth.no_grad(function() copy[1].weight:zero_() end)
    assert.is_true(net[1].weight:abs():sum():item() > 0)
  end)

  it("keeps ties, hooks, plain fields and references to itself", function()
    local net, calls = nn.Module(), 0
    net.a, net.b = nn.Linear(2, 2), nn.Linear(2, 2)
    net.b.weight = net.a.weight
    net.self, net.kind, net.notes = net, moth.float32, {1, {x = moth.ones(2)}}
    net.a:register_forward_hook(function() calls = calls + 1 end)
    local copy = net:deepcopy()
    assert.equal(copy.a.weight, copy.b.weight)
    assert.equal(copy, copy.self)
    assert.equal(moth.float32, copy.kind)
    assert.not_equal(net.notes[2].x, copy.notes[2].x)
    copy.a(moth.ones(1, 2))
    assert.equal(1, calls)
  end)

  it("outlives the scope in which it was made", function()
    local net, copy = network(), nil
    moth.scope(function() copy = net:deepcopy() end)
    assert.is_true(copy[1].weight:equal(net[1].weight))
  end)

  it("can be updated as a moving average", function()
    local net = network()
    local ema = net:deepcopy():requires_grad_(false)
    moth.no_grad(function()
      local live = net:parameters()
      for i, p in ipairs(ema:parameters()) do p:mul_(0.9):add_(live[i], {alpha = 0.1}) end
    end)
    assert.near(net[1].weight:sum():item(), ema[1].weight:sum():item(), 1e-5)
  end)
end)

describe("a copy of tensors", function()
  it("copies leaves and tables of leaves, with their gradients", function()
    local x = moth.ones(2):requires_grad_()
    ;(x * 2):sum():backward()
    local t = moth.deepcopy{x = x, list = {x, 3}}
    assert.equal(t.x, t.list[1])
    assert.not_equal(x, t.x)
    assert.same({2, 2}, t.x.grad:tolist())
    assert.same({1, 1}, moth.deepcopy(x):tolist())
  end)

  it("raises for a tensor with a history, with its path", function()
    local x = moth.ones(2):requires_grad_()
    assert.error_matches(function() moth.deepcopy{a = {x * 2}} end,
      "deepcopy: a[1], f32 (2) was computed and has a history; copy x:detach()", 1, true)
  end)
end)
