-- nn.utils: parametrized weights (weight_norm, spectral_norm, parametrize) and pruned weights
-- (prune): PyTorch's numbers and names, and other properties.

local moth = require "moth"
local golden = require "spec.support.golden"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local U, P = nn.utils, nn.utils.prune
local parametrize = U.parametrize

-- As in golden/reparametrize.py.
local function sines(shape, start)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return (moth.arange(n, {dtype = moth.float64}) + (start or 1)):sin():view(shape)
end

local makers = {
  linear = function() return nn.Linear(3, 2), sines({4, 3}, 50) end,
  conv = function() return nn.Conv2d(2, 3, 2), sines({1, 2, 3, 3}, 50) end,
}

local function made(layer)
  local net, x = makers[layer]()
  net:double()
  moth.no_grad(function()
    for _, p in ipairs(net:parameters()) do p:copy_(sines({unpack(p.shape)})) end
  end)
  return net, x
end

local function begin_spectral(net)
  local part = parametrize.is_parametrized(net) and net.parametrizations.weight[1]
  local u = part and part._u or net.weight_u
  local v = part and part._v or net.weight_v
  for _, x in ipairs {u, v} do
    local s = sines({x:numel()}, 9)
    x:copy_(s / s:norm())
  end
end

local function keys(map)
  local list = {}
  for key in pairs(map) do list[#list + 1] = key end
  table.sort(list)
  return list
end

local function same_tensors(wanted, got)
  assert.same(keys(wanted), keys(got))
  for name, values in pairs(wanted) do
    assert.close(values, got[name]:detach():reshape(-1):tolist(), 1e-12)
  end
end

describe("a parametrized weight has PyTorch's values, gradients and names:", function()
  for _, case in ipairs(golden.cases "reparametrize") do
    it(case.name .. " of a " .. case.layer, function()
      local net, x = made(case.layer)
      setfenv(assert(loadstring(case.name)), {U = U, P = P, moth = moth, math = math, net = net})()
      if case.name:find "spectral" then begin_spectral(net) end
      for _ = 1, case.steps do
        net:zero_grad()
        net(x):square():sum():backward()
      end
      local grads, state = {}, {}
      for name, p in net:named_parameters() do grads[name] = p.grad end
      for name, value in net:state_dict():items() do state[name] = value end
      same_tensors(case.grads, grads)
      same_tensors(case.state, state)
      net:eval()
      assert.close(case.weight, net.weight:detach():reshape(-1):tolist(), 1e-12)
    end)
  end
end)

describe("weight_norm", function()
  local ways = {
    older = {U.weight_norm, U.remove_weight_norm},
    newer = {U.parametrizations.weight_norm,
      function(net) return (parametrize.remove_parametrizations(net, "weight")) end},
  }
  for name, way in pairs(ways) do
    it("trains, is copied, saved, cast and made plain again, by the " .. name .. " way", function()
      local net = way[1](nn.Linear(3, 2))
      local x, y = moth.randn(16, 3), moth.randn(16, 2)
      local opt = optim.SGD(net:parameters(), {lr = 0.1})
      local first, loss
      for _ = 1, 20 do
        opt:zero_grad()
        loss = F.mse_loss(net(x), y)
        first = first or loss:item()
        loss:backward()
        opt:step()
      end
      assert.is_true(loss:item() < first)
      local copy = net:deepcopy()
      assert.same(net(x):tolist(), copy(x):tolist())
      copy:parameters()[1].data:zero_()
      local other = way[1](nn.Linear(3, 2))
      other:load_state_dict(net:state_dict())
      assert.same(net(x):tolist(), other(x):tolist())
      assert.equal(moth.float64, other:double().weight.dtype)
      local before = net(x):tolist()
      way[2](net)
      assert.same({"bias", "weight"}, keys(net:state_dict()))
      assert.close(before, net(x):tolist(), 1e-6)
      assert.is_true(net.weight.is_leaf and net.weight.requires_grad)
    end)

    it("has one norm for all rows if dim is -1, by the " .. name .. " way", function()
      for _, dim in ipairs {-1, moth.none, 2} do
        local net, lengths = way[1](nn.Linear(3, 2), {dim = dim}), {}
        for _, p in ipairs(net:parameters()) do lengths[p:numel()] = true end
        assert.same({[2] = true, [6] = true, [dim == 2 and 3 or 1] = true}, lengths)
      end
    end)

    it("works in a captured step, by the " .. name .. " way", function()
      local function losses(captured)
        moth.manual_seed(5)
        local net = way[1](nn.Linear(3, 2))
        local opt = optim.SGD(net:parameters(), {lr = 0.1})
        local function step(x)
          opt:zero_grad()
          local loss = net(x):square():sum()
          loss:backward()
          opt:step()
          return loss
        end
        if captured then step = moth.capture(step) end
        local list = {}
        for i = 1, 6 do list[i] = step(moth.full({4, 3}, i)):item() end
        return list
      end
      assert.same(losses(false), losses(true))
    end)
  end

  it("works for vectors, for other names and in a scope", function()
    local net = nn.Linear(3, 2)
    moth.scope(function() U.weight_norm(net, "bias") end)
    assert.same({2}, {unpack(net.bias_g.shape)})
    moth.scope(function() net(moth.ones(1, 3)):sum():backward() end)
    assert.equal(2, #net.bias_v.grad:tolist())
  end)

  it("raises for fields that are no parameters, and for invalid dimensions", function()
    local net = nn.Linear(3, 2)
    assert.has_error_like(function() U.weight_norm(net, "weigth") end,
      "Linear has no parameter or buffer 'weigth'; did you mean 'weight'%?")
    assert.has_error_like(function() U.weight_norm(net, {dim = 3}) end, "3 is no dimension of")
    assert.has_error_like(function() U.remove_weight_norm(net) end, "no weight_norm of 'weight'")
    assert.has_error_like(function() U.weight_norm(moth.ones(2)) end, "a module is needed")
    U.weight_norm(net)
    assert.has_error_like(function() U.weight_norm(net) end,
      "'weight' of Linear already has a weight_norm; remove_weight_norm removes it")
    assert.has_error_like(function() U.spectral_norm(net) end, "already has a weight_norm")
    local normed = U.spectral_norm(nn.Linear(3, 2))
    assert.has_error_like(function() U.spectral_norm(normed) end, "already has a spectral_norm")
    local newer = U.parametrizations.spectral_norm(nn.Linear(3, 2))
    assert.has_error_like(function() U.spectral_norm(newer) end, "'weight' of .* is parametrized")
    local pruned = U.prune.identity(nn.Linear(3, 2), "weight")
    assert.has_error_like(function() U.weight_norm(pruned) end, "'weight' of Linear is pruned")
    assert.has_error_like(function() net.weight = moth.ones(2, 3) end,
      "Linear.weight is computed from weight_g, weight_v; assign to these")
  end)
end)

describe("spectral_norm", function()
  it("has a largest singular value of 1, and does not change in evaluation", function()
    for _, norm in ipairs {U.spectral_norm, U.parametrizations.spectral_norm} do
      local net = norm(nn.Linear(6, 5, {bias = false}))
      for _ = 1, 50 do net(moth.randn(2, 6)) end
      net:eval()
      local before = net.weight:tolist()
      for _ = 1, 20 do
        local x = moth.randn(1, 6)
        assert.is_true(net(x):norm():item() <= x:norm():item() * 1.01)
      end
      assert.same(before, net.weight:tolist())
    end
  end)

  it("divides along the outputs of transposed convolutions, which are dimension 2", function()
    local net = U.spectral_norm(nn.ConvTranspose2d(2, 3, 2))
    assert.equal(3, net.weight_u:numel())
  end)

  it("can be made plain again", function()
    local net = U.spectral_norm(nn.Linear(3, 2))
    net(moth.randn(2, 3))
    local u, weight = net.weight_u:tolist(), net:eval().weight:tolist()
    net:train()
    U.remove_spectral_norm(net)
    assert.close(weight, net.weight:tolist(), 1e-6)
    assert.is_nil(net.weight_u)
    assert.equal(2, #u)
    assert.is_true(net.training)
  end)
end)

describe("register_parametrization", function()
  local Symmetric = nn.class("Symmetric", nn.Module)
  function Symmetric:forward(x) return x:triu() + x:triu(1):t() end -- luacheck: ignore self

  local Twice = nn.class("Twice", nn.Module)
  function Twice:forward(x) return x * 2 end -- luacheck: ignore self
  function Twice:right_inverse(x) return x / 2 end -- luacheck: ignore self

  it("computes a parameter by modules, and keeps its value by right_inverse", function()
    local net = nn.Linear(3, 3)
    local p = net.weight
    parametrize.register_parametrization(net, "weight", Symmetric())
    assert.same(net.weight:t():tolist(), net.weight:tolist())
    assert.equal(p, net.parametrizations.weight.original)
    local before = net.weight:tolist()
    parametrize.register_parametrization(net, "weight", Twice())
    assert.close(before, net.weight:tolist(), 1e-6)
    assert.equal(2, #net.parametrizations.weight)
    assert.is_true(parametrize.is_parametrized(net, "weight"))
    assert.is_false(parametrize.is_parametrized(net, "bias"))
    assert.equal(2, #net:parameters())
    net(moth.randn(2, 3)):sum():backward()
    assert.same({3, 3}, {unpack(p.grad.shape)})
  end)

  it("accepts assignments, by right_inverse", function()
    local net = nn.Linear(3, 3)
    parametrize.register_parametrization(net, "weight", Twice())
    net.weight = moth.ones(3, 3)
    assert.close({0.5, 0.5, 0.5}, net.parametrizations.weight.original[1]:tolist())
    assert.close({1, 1, 1}, net.weight[1]:tolist())
    assert.has_error_like(function() net.weight = 3 end, "Linear.weight is parametrized")
  end)

  it("restores the original, or stores the value", function()
    for _, leave in ipairs {true, false} do
      local net = nn.Linear(3, 3)
      local was = net.weight:tolist()
      parametrize.register_parametrization(net, "weight", Symmetric())
      local value = net.weight:tolist()
      parametrize.remove_parametrizations(net, "weight", {leave_parametrized = leave})
      assert.same(leave and value or was, net.weight:tolist())
      assert.is_nil(net.parametrizations)
    end
  end)

  it("computes once within cached", function()
    local net, count = nn.Linear(3, 3), 0
    local Counted = nn.class("Counted", nn.Module)
    function Counted:forward(x) -- luacheck: ignore self
      count = count + 1
      return x * 1
    end
    parametrize.register_parametrization(net, "weight", Counted())
    count = 0
    local a, b = parametrize.cached(function() return net.weight, net.weight end)
    assert.equal(a, b)
    assert.equal(1, count)
    assert.has_error_like(function() parametrize.cached(error, "no luck") end, "no luck")
    local _ = net.weight
    assert.equal(2, count)
  end)

  it("raises for a module that changes the shape, and changes nothing", function()
    local Cut = nn.class("Cut", nn.Module)
    function Cut:forward(x) return x[1] end -- luacheck: ignore self
    local net = nn.Linear(3, 2)
    local was = net.weight:tolist()
    assert.has_error_like(function()
      parametrize.register_parametrization(net, "weight", Cut())
    end, "computes .*f32 %(3%).* from .*f32 %(2, 3%).* the same shape and dtype are needed")
    assert.same(was, net.weight:tolist())
    assert.same({"bias", "weight"}, keys(net:state_dict()))
    parametrize.register_parametrization(net, "weight", Twice())
    assert.has_error_like(function()
      parametrize.register_parametrization(net, "weight", Cut())
    end, "the same shape")
    assert.equal(1, #net.parametrizations.weight)
    assert.close(was, net.weight:tolist(), 1e-6)
  end)
end)

describe("pruning", function()
  it("keeps zeros at zero while the rest is trained, and accumulates", function()
    local net = nn.Linear(8, 4)
    P.l1_unstructured(net, "weight", 0.5)
    assert.equal(16, net.weight_mask:sum():item())
    P.random_unstructured(net, "weight", 0.25)
    assert.equal(12, net.weight_mask:sum():item())
    P.random_unstructured(net, "weight", 2)
    assert.equal(10, net.weight_mask:sum():item())
    local opt = optim.SGD(net:parameters(), {lr = 0.1})
    net(moth.randn(5, 8)):square():sum():backward()
    opt:step()
    local zeros = net.weight_mask:eq(0)
    assert.is_true(net.weight[zeros]:eq(0):all():item())
    assert.is_true(P.is_pruned(net) and P.is_pruned(nn.Sequential(net)))
    P.remove(net, "weight")
    assert.is_true(net.weight[zeros]:eq(0):all():item())
    assert.is_false(P.is_pruned(net))
    assert.same({"bias", "weight"}, keys(net:state_dict()))
  end)

  it("removes slices, at random or by norm, of the remaining ones", function()
    local net = nn.Linear(6, 4)
    P.random_structured(net, "weight", 0.5, 1)
    assert.equal(2, net.weight_mask:sum(2):eq(0):sum():item())
    P.ln_structured(net, "weight", 1, 2, 1)
    assert.equal(3, net.weight_mask:sum(2):eq(0):sum():item())
  end)

  it("compares slices by their remaining elements", function()
    local net = nn.Linear(2, 2, false)
    moth.no_grad(function() net.weight:copy_(moth.tensor {{3, 1}, {2, 2}}) end)
    P.custom_from_mask(net, "weight", moth.tensor {{0, 1}, {1, 1}})
    P.ln_structured {net, "weight", amount = 1, n = 2, dim = 1}
    assert.same({{0, 0}, {1, 1}}, net.weight_mask:tolist())
  end)

  it("accepts masks and scores of the user", function()
    local net = nn.Linear(3, 2)
    P.custom_from_mask(net, "bias", moth.tensor {1, 0})
    assert.equal(0, net.bias[2]:item())
    P.l1_unstructured(net, "weight", 1, {importance_scores = moth.tensor {{3, 2, 1}, {4, 5, 6}}})
    assert.same({{1, 1, 0}, {1, 1, 1}}, net.weight_mask:tolist())
    local copy = net:deepcopy()
    assert.same(net.weight:tolist(), copy.weight:tolist())
  end)

  it("compares the weights of a whole network", function()
    local net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    P.global_unstructured({{net[1], "weight"}, {net[2], "weight"}}, P.l1_unstructured, 0.5)
    assert.equal(9, (net[1].weight_mask:sum() + net[2].weight_mask:sum()):item())
    P.global_unstructured({{net[1], "weight"}, {net[2], "weight"}}, P.random_unstructured, 4)
    assert.equal(5, (net[1].weight_mask:sum() + net[2].weight_mask:sum()):item())
  end)

  it("raises for invalid amounts and names", function()
    local net = nn.Linear(3, 2)
    assert.has_error_like(function() P.l1_unstructured(net, "weight", -1) end,
      "bad argument 'amount' to 'l1_unstructured'")
    assert.has_error_like(function() P.l1_unstructured(net, "weight", 1.5) end, "'amount'")
    assert.has_error_like(function() P.l1_unstructured(net, "weight", 7) end,
      "cannot prune 7 elements, only 6 remain")
    assert.has_error_like(function() P.l1_unstructured(net, "wait", 1) end, "or buffer 'wait'")
    assert.has_error_like(function() P.ln_structured(net, "bias", 1, 2) end, "'dim'")
    assert.has_error_like(function() P.custom_from_mask(net, "bias", moth.ones(3)) end, "'mask'")
    assert.has_error_like(function() P.remove(net, "weight") end, "is not pruned")
    assert.has_error_like(function() P.global_unstructured({}, P.l1_unstructured, 1) end,
      "a list of {module, name} is needed")
    P.identity(net, "weight")
    assert.has_error_like(function() net.weight = moth.ones(2, 3) end, "Linear.weight is pruned")
  end)
end)
