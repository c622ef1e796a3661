--- stateless_spec.lua -- moth.func.functional_call: a module runs with other tensors, which get the
-- gradients. The module is unchanged afterwards, also after an error.

local moth = require "moth"
local intact = require "spec.support.intact"

local nn, F, call = moth.nn, moth.nn.functional, moth.func.functional_call
local refuses = intact.refuses

local function same(a, b) assert.is_true(moth.allclose(a, b)) end

describe("functional_call", function()
  local net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
  local x = moth.randn(5, 2)

  it("computes with the given tensors, and does not change the module", function()
    local w = moth.randn(3, 2, {requires_grad = true})
    local own, mine = net(x), net[1].weight
    local y = call(net, {["0.weight"] = w}, x)
    same(y, net[3](moth.tanh(F.linear(x, w, net[1].bias))))
    y:sum():backward()
    assert.is_truthy(w.grad)
    assert.is_nil(mine.grad)
    assert.is_truthy(net[3].weight.grad)
    assert.equal(mine, net[1].weight)
    same(own, net(x))
    assert.same({"0.weight", "0.bias", "2.weight", "2.bias"}, (function()
      local names = {}
      for name in net:named_parameters() do names[#names + 1] = name end
      return names
    end)())
  end)

  it("has second derivatives through an inner step, as in MAML", function()
    local layer = nn.Linear(1, 1):double()
    layer:load_state_dict{weight = moth.tensor({{3}}, {dtype = moth.float64}),
                          bias = moth.zeros(1, {dtype = moth.float64})}
    local one = moth.ones(1, 1, {dtype = moth.float64})
    local g = moth.autograd.grad((layer(one) ^ 2):sum(), layer.weight, {create_graph = true})
    local y = (call(layer, {weight = layer.weight - 0.1 * g}, {one}) ^ 2):sum()
    y:backward()          -- w' = w - 0.2 w, so y = (0.8 w)^2 and dy/dw = 2 * 0.64 w
    assert.near(5.76, y:item(), 1e-12)
    assert.near(3.84, layer.weight.grad:item(), 1e-12)
  end)

  it("accepts several tables, lists of arguments, named arguments; returns all results", function()
    local Two = nn.class("Two", nn.Module)
    function Two:init() self.a = nn.Parameter(moth.ones(1)); self.b = nn.Parameter(moth.ones(1)) end
    function Two:forward(u, v, with) return self.a * u * with.scale, self.b * v end
    local two, given = Two(), {{a = moth.tensor{2}}, {b = moth.tensor{3}}}
    local p, q = call(two, given, {moth.tensor{5}, moth.tensor{7}}, {kwargs = {scale = 10}})
    assert.same({100, 21}, {p:item(), q:item()})
    refuses(function() return (call(two, {given[1], given[1]}, {})) end, "'a' is given twice")
  end)

  it("is recorded once in a captured function, for all given tensors", function()
    local w = moth.randn(3, 2)
    local step = moth.capture(function(u, scale)
      return call(net, {["0.weight"] = w * scale}, u) + net(u)
    end)
    for k = 1, 4 do
      local scale = moth.tensor(k)
      moth.no_grad(w.add_, w, 1)
      same(call(net, {["0.weight"] = w * k}, x) + net(x), step(x, scale))
    end
    assert.is_nil(step.why)
    net[1].weight = nn.Parameter(moth.ones(3, 2))
    same(call(net, {["0.weight"] = w}, x) + net(x), step(x, moth.tensor(1)))
    assert.is_truthy(step.why:find("'weight' of Linear has changed", 1, true))
  end)

  it("writes to the given buffers, not to the module's", function()
    local norm = nn.BatchNorm1d(2)
    local mean = moth.zeros(2)
    call(norm, {running_mean = mean}, x + 3)
    assert.is_true(mean:abs():sum():item() > 0)
    assert.same({0, 0}, norm.running_mean:tolist())
  end)

  it("replaces tied tensors under each name, unless tie_weights is false", function()
    local tied = nn.Sequential(nn.Linear(2, 2, {bias = false}), nn.Linear(2, 2, {bias = false}))
    tied[2].weight = tied[1].weight
    local w, eye = moth.randn(2, 2), tied[1].weight
    same(call(tied, {["0.weight"] = w}, x), x:matmul(w:t()):matmul(w:t()))
    same(call(tied, {["1.weight"] = w}, x, {tie_weights = false}),
      x:matmul(eye:t()):matmul(w:t()))
    refuses(function() return (call(tied, {["0.weight"] = w, ["1.weight"] = w + 1}, x)) end,
      "tied to another name")
    assert.equal(tied[1].weight, tied[2].weight)
  end)

  it("restores the module's tensors after an error", function()
    local own = net[1].weight
    refuses(function() return (call(net, {["0.weight"] = moth.randn(3, 9)}, x)) end,
      "in Sequential[1]: bad argument")
    assert.equal(own, net[1].weight)
  end)

  it("names a wrong name, value or module, and missing names if strict is set", function()
    refuses(function() return (call(net, {["0.wieght"] = x}, x)) end, "did you mean '0.weight'")
    refuses(function() return (call(net, {["0.weight"] = 3}, x)) end, "got 3 under '0.weight'")
    refuses(function() return (call(F.relu, {}, x)) end, "a module is needed")
    refuses(function() return (call(net, {["0.weight"] = x}, x, {strict = true})) end,
      "'0.bias' is missing")
  end)

  it("can be captured", function()
    local step = moth.capture(function(w, v) return call(net, {["0.weight"] = w}, v) end)
    for _ = 1, 4 do
      local w = moth.randn(3, 2)
      same(step(w, x), call(net, {["0.weight"] = w}, x))
    end
  end)
end)
