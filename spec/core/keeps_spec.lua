-- Tensors that a scope does not free, its error messages, and the operands of operators.

local moth = require "moth"
local nn, optim = moth.nn, moth.optim

describe("an optimizer written in Lua", function()
  it("keeps its state when its steps run inside scopes", function()
    local Momentum = nn.class("Momentum", optim.Optimizer)
    function Momentum:update(group)
      for _, p in ipairs(group.params) do
        local state = self.state[p] or {buffer = moth.zeros_like(p)}
        self.state[p] = state
        state.buffer = state.buffer * 0.5 + p.grad
        p:sub_(state.buffer)
      end
    end
    local p = moth.zeros(2):requires_grad_()
    local optimizer = Momentum({p}, {lr = 1})
    for _ = 1, 3 do
      moth.scope(function()
        optimizer:zero_grad()
        p:sum():backward()
        optimizer:step()
      end)
    end
    assert.same({-4.25, -4.25}, p:tolist()) -- 1 + 1.5 + 1.75
  end)
end)

describe("a tensor that its scope released", function()
  local stale
  before_each(function()
    moth.scope(function() stale = moth.ones(2):requires_grad_() end)
  end)

  for name, use in pairs{
    ["walked backward"] = function() stale:backward() end,
    ["asked for its gradient"] = function() return stale.grad end,
    ["used as an index"] = function() return moth.ones(2)[{stale}] end,
    ["assigned to a module"] = function() nn.Module().field = stale end,
    ["added"] = function() return stale + 1 end,
  } do
    it("names the scope's line if it is " .. name, function()
      assert.has_error_like(use, "released.*keeps_spec%.lua:%d+")
    end)
  end
end)

describe("the end of a scope", function()
  it("frees Lua's values for the nodes that it frees", function()
    local nodes = moth.autograd.nodes
    local function held()
      local n = 0
      for _ in pairs(nodes) do n = n + 1 end
      return n
    end
    local before = held()
    local x = moth.ones(2):requires_grad_()
    for _ = 1, 20 do
      moth.scope(function() (x * 2):register_hook(function() end) end)
    end
    assert.at_most(before, held())
  end)
end)

describe("Sequential", function()
  it("accepts its modules as arguments, as a list, and as a list within the arguments", function()
    local a, b = nn.ReLU(), nn.Tanh()
    for _, net in ipairs{nn.Sequential(a, b), nn.Sequential{a, b}, nn.Sequential{{a, b}}} do
      assert.equal(2, #net)
      assert.equal(b, net[2])
    end
  end)
end)

describe("an operator", function()
  it("raises for a table, which could be a list of arguments", function()
    local x = moth.ones(2)
    for _, use in ipairs{
      function() return x + {3} end, function() return x - {3} end,
      function() return x * {2} end, function() return x / {2} end,
      function() return x ^ {2} end, function() return x % {2} end,
      function() return {2} - x end, function() return x + {other = 3} end,
    } do
      assert.has_error_like(use, "a tensor or a number is needed")
    end
  end)
end)
