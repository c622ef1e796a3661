--- The overhead of one operation, and of networks so small that they are nothing but overhead.
-- Each workload is {name, what it does, setup}; setup(moth) gives the function to time. Names and
-- what they do are those of spec/bench/peer.py, but for positions, which count from 1 here.
-- `variants = true` times it also in a scope, beside 10^5 live Lua tables, and both.

local function mlp(nn, sizes, act)
  local layers = {}
  for i = 1, #sizes - 1 do
    layers[#layers + 1] = nn.Linear(sizes[i], sizes[i + 1])
    if i < #sizes - 1 then layers[#layers + 1] = act() end
  end
  return nn.Sequential(unpack(layers))
end

--- A training step: zero_grad, forward, mean squared error, backward, optimizer step.
local function trainer(moth, net, optimizer, x, y)
  local F = moth.nn.functional
  return function()
    optimizer:zero_grad()
    F.mse_loss(net(x), y):backward()
    optimizer:step()
  end
end

return {
  { "small/add16", "a + b", variants = true, function(moth)
    local a, b = moth.randn(16), moth.randn(16)
    return function() local _ = a + b end
  end },

  { "small/add16_grad", "a + b, recorded, then dropped", variants = true, function(moth)
    local a = moth.randn { 16, requires_grad = true }
    local b = moth.randn { 16, requires_grad = true }
    return function() local _ = a + b end
  end },

  { "small/add16_inplace", "a += b", function(moth)
    local a, b = moth.randn(16), moth.randn(16)
    return function() a:add_(b) end
  end },

  { "small/matmul4", "a @ b, 4 by 4", variants = true, function(moth)
    local a, b = moth.randn(4, 4), moth.randn(4, 4)
    return function() local _ = a:matmul(b) end
  end },

  { "small/view", "one row of a 16 by 16 matrix", function(moth)
    local x = moth.randn(16, 16)
    return function() local _ = x[4] end
  end },

  { "small/sum16", "the sum of 16 elements", function(moth)
    local x = moth.randn(16)
    return function() local _ = x:sum() end
  end },

  { "small/list_item", "a tensor from a list of 4 numbers, its first element as a number",
    function(moth)
      return function() return moth.tensor({ 0.1, 0.2, 0.3, 0.4 })[1]:item() end
    end },

  { "op/square0/fwd", "x * x, zero-dimensional", function(moth)
    local x = moth.randn {}
    return function() local _ = x * x end
  end },

  { "op/square0/fwdbwd", "x * x, zero-dimensional, and back", function(moth)
    local x, grad = moth.randn({}, { requires_grad = true }), moth.randn {}
    return function()
      x.grad = nil
      local y = x * x
      y:backward(grad)
    end
  end },

  { "small/xor_step", "train step: MLP 2-8-1, tanh, mse, SGD", variants = true, function(moth)
    local nn = moth.nn
    local net = mlp(nn, { 2, 8, 1 }, nn.Tanh)
    local optimizer = moth.optim.SGD(net:parameters(), { lr = 0.1 })
    return trainer(moth, net, optimizer, moth.randn(4, 2), moth.randn(4, 1))
  end },

  { "small/agent_infer", "forward: MLP 4-64-64-2, relu, one row", function(moth)
    local nn = moth.nn
    local net, x = mlp(nn, { 4, 64, 64, 2 }, nn.ReLU), moth.randn(1, 4)
    net:eval()
    local function forward() local _ = net(x) end
    return forward, function(run) moth.no_grad(run) end
  end },

  { "small/agent_step", "train step: MLP 4-64-64-2, relu, mse, Adam, 32 rows", function(moth)
    local nn = moth.nn
    local net = mlp(nn, { 4, 64, 64, 2 }, nn.ReLU)
    local optimizer = moth.optim.Adam(net:parameters(), { lr = 1e-3 })
    return trainer(moth, net, optimizer, moth.randn(32, 4), moth.randn(32, 2))
  end },
}
