-- Layers that get the size of their input from the first input.

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local function sizes(x) return {unpack(x.shape)} end

-- The names of a state dict with their shapes, in order.
local function shapes(net)
  local list = {}
  for name, x in net:state_dict():items() do list[#list + 1] = name .. tostring(x.shape) end
  return list
end

describe("a lazy layer becomes the plain one, with the same numbers:", function()
  local rows = {
    LazyLinear = {function(L) return L(4) end, {2, 3}, function() return nn.Linear(3, 4) end},
    LazyBatchNorm1d = {function(L) return L() end, {2, 3}, function() return nn.BatchNorm1d(3) end},
  }
  for n = 1, 3 do
    local shape, name = {2, 3, 5, 5, 5}, n .. "d"
    for d = 5, n + 3, -1 do shape[d] = nil end
    rows["LazyConv" .. name] = {function(L) return L(4, 2, {padding = 1}) end, shape,
      function() return nn["Conv" .. name](3, 4, 2, {padding = 1}) end}
    rows["LazyConvTranspose" .. name] = {function(L) return L {4, kernel_size = 2} end, shape,
      function() return nn["ConvTranspose" .. name](3, 4, 2) end}
    rows["LazyInstanceNorm" .. name] = {
      function(L) return L() end, shape, -- unlike layers of a known size, as in PyTorch
      function()
        return nn["InstanceNorm" .. name](3, {affine = true, track_running_stats = true})
      end}
    if n > 1 then
      rows["LazyBatchNorm" .. name] = {
        function(L) return L {momentum = 0.5, bias = n == 2} end, shape,
        function() return nn["BatchNorm" .. name](3, {momentum = 0.5, bias = n == 2}) end}
    end
  end
  for name, row in pairs(rows) do
    it(name, function()
      local lazy, x = row[1](nn[name]), moth.randn(row[2])
      assert.equal(name, nn.typename(lazy))
      moth.manual_seed(7)
      local y = lazy(x)
      moth.manual_seed(7)
      local plain = row[3]()
      assert.same(plain(x):tolist(), y:tolist())
      assert.equal(nn.typename(plain), nn.typename(lazy))
      assert.equal(tostring(plain), tostring(lazy))
      assert.same(plain(x):tolist(), lazy(x):tolist())
      assert.same(shapes(plain), shapes(lazy))
    end)
  end
end)

describe("a network of lazy layers", function()
  local function network()
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(),
      nn.LazyLinear(2))
  end

  it("is trained by an optimizer that had its parameters before their sizes were known", function()
    local net = network()
    local opt = optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.5})
    local p = net[5].weight
    local x, y = moth.randn(8, 1, 5, 5), moth.randn(8, 2)
    local first, loss
    for _ = 1, 20 do
      opt:zero_grad()
      loss = F.mse_loss(net(x), y)
      first = first or loss:item()
      loss:backward()
      opt:step()
    end
    assert.is_true(loss:item() < first / 2)
    assert.equal(p, net[5].weight)
    assert.same({2, 36}, sizes(p))
  end)

  it("keeps the device and the dtype that were set before", function()
    local net = network():double()
    local y = net(moth.randn(2, 1, 5, 5, {dtype = moth.float64}))
    assert.equal(moth.float64, y.dtype)
    assert.equal(moth.float64, net[2].running_mean.dtype)
    assert.equal(moth.float16, nn.LazyLinear(2, {dtype = moth.float16}):deepcopy().weight.dtype)
  end)

  it("also gets its sizes from a state dict, and returns one", function()
    local net, other = network(), network()
    local x = moth.randn(2, 1, 5, 5)
    net(x)
    other:load_state_dict(net:state_dict())
    net:eval()
    other:eval()
    assert.same(net(x):tolist(), other(x):tolist())
  end)

  it("works in a scope, without grad mode, in evaluation and in a captured step", function()
    local net = network():eval()
    moth.scope(function() moth.no_grad(net, moth.randn(2, 1, 5, 5)) end)
    assert.same({2, 36}, sizes(net[5].weight))
    assert.is_true(net[5].weight.requires_grad)
    local layer = nn.LazyLinear(2)
    local step = moth.capture(function(x) return layer(x) end)
    for i = 1, 4 do
      local x = moth.full({1, 3}, i)
      assert.same(step(x):tolist(), layer(x):tolist())
    end
  end)

  it("keeps hooks, frozen parameters and the mode", function()
    local layer, calls = nn.LazyLinear(2), 0
    layer:register_forward_hook(function() calls = calls + 1 end)
    layer:requires_grad_(false)
    layer(moth.ones(1, 3))
    layer(moth.ones(1, 3))
    assert.equal(2, calls)
    assert.is_false(layer.weight.requires_grad)
  end)

  it("raises for a parametrization before its size is known", function()
    local utils, layer = nn.utils, nn.LazyLinear(3)
    for _, make in ipairs {
      utils.weight_norm, utils.spectral_norm, utils.parametrizations.weight_norm,
      utils.parametrizations.spectral_norm,
      function() utils.prune.l1_unstructured(layer, "weight", 0.5) end,
      function() utils.parametrize.register_parametrization(layer, "weight", nn.Tanh()) end,
    } do
      assert.has_error_like(function() make(layer) end,
        "'weight' of LazyLinear is created by its first call; call it first%)")
    end
    assert.same({2, 3}, sizes(layer(moth.ones(2, 4))))
    assert.same({2, 3}, sizes(utils.weight_norm(layer)(moth.ones(2, 4))))
  end)

  it("names what it needs", function()
    assert.has_error_like(function() nn.LazyConv2d(2, 3)(moth.ones(3)) end,
      "bad argument 'input' to 'LazyConv2d' %(a tensor of 3 or 4 dimensions is needed, got f32")
    assert.has_error_like(function() nn.LazyLinear() end, "'out_features' to 'LazyLinear'")
    assert.has_error_like(function() nn.LazyLinear(2, {in_features = 3}) end,
      "'LazyLinear' has no argument 'in_features'")
    local layer = nn.LazyConv2d(4, 3, {groups = 3})
    assert.has_error_like(function() layer(moth.ones(1, 2, 5, 5)) end, "no multiple of groups")
    assert.equal("LazyConv2d", nn.typename(layer))
  end)
end)

describe("an uninitialized parameter", function()
  local UNTIL = "uninitialized until its layer's first call; run the net once before this: "
    .. "'weight' of LazyLinear"

  it("raises, with its layer's name, if its shape or values are needed", function()
    local w = nn.LazyLinear(3).weight
    for name, f in pairs {
      sum = function() return w:sum() end, add = function() return w + 1 end,
      linear = function() return F.linear(moth.ones(1, 2), w) end,
      cat = function() return moth.cat {moth.ones(2), w} end,
      select = function() return w[1] end, shape = function() return w.shape end,
      numel = function() return w:numel() end, ["#"] = function() return #w end,
      detach = function() return w:detach() end, data = function() return w.data end,
      copy_ = function() return moth.ones(2):copy_(w) end,
      register_hook = function() return w:register_hook(print) end,
    } do
      local ok, problem = pcall(f)
      assert.is_false(ok, name)
      assert.is_truthy(problem:find(name, 1, true), problem)
      assert.is_truthy(problem:find(UNTIL, 1, true), problem)
    end
  end)

  it("raises in nn.init, whose values would be lost", function()
    local net = nn.Sequential(nn.LazyLinear(3))
    for _, init in ipairs {nn.init.zeros_, nn.init.xavier_uniform_, nn.init.kaiming_normal_} do
      assert.has_error_like(function()
        net:apply(function(m) if m.weight then init(m.weight) end end)
      end, "'weight' of LazyLinear")
    end
    net(moth.ones(1, 2))
    assert.equal(0, nn.init.zeros_(net[1].weight):sum():item())
  end)

  it("prints its known properties, and is skipped by optimizers and norms", function()
    local layer = nn.LazyLinear(3, {dtype = moth.float64})
    local w = layer.weight
    assert.equal(moth.float64, w.dtype)
    assert.is_true(w.requires_grad and w.is_leaf)
    assert.is_nil(w.grad)
    assert.has_error_like(function() moth.ones(3, {requires_grad = true}).grad = w end,
      "x.grad cannot be assigned: uninitialized until its layer's first call")
    assert.equal("[uninitialized moth.float64, requires_grad]", tostring(w))
    assert.equal("UninitializedParameter", nn.typename(w))
    for _, kind in ipairs {"SGD", "Adam", "RMSprop"} do
      local opt = optim[kind](layer:parameters(), {lr = 0.1})
      opt:zero_grad()
      opt:zero_grad(false)
      opt:step()
    end
    assert.equal(0, nn.utils.clip_grad_norm_(layer:parameters(), 1):item())
  end)

  it("raises if it is loaded into another, or loaded from", function()
    local lazy, plain = nn.LazyLinear(3), nn.Linear(2, 3)
    assert.equal("<All keys matched>",
      tostring(nn.LazyLinear(3):load_state_dict(lazy:state_dict())))
    assert.has_error_like(function() plain:load_state_dict(lazy:state_dict()) end,
      "'weight' is uninitialized in the state dict")
    assert.has_error_like(function()
      lazy:load_state_dict({bias = moth.ones(3)}, {strict = false})
    end, "'bias' is uninitialized in the module")
  end)

  it("works in a user's layer, and becomes a plain one", function()
    local Scale = nn.class("Scale", nn.Module)
    function Scale:init()
      self.weight = nn.UninitializedParameter()
      self.seen = nn.UninitializedBuffer {dtype = moth.int64}
    end
    function Scale:forward(x)
      if nn.isinstance(self.weight, nn.UninitializedParameter) then
        self.weight:materialize(x:size(-1))
        self.seen:materialize({1})
        nn.init.ones_(self.weight)
      end
      return x * self.weight
    end
    local scale = Scale()
    local w, opt = scale.weight, optim.SGD(scale:parameters(), {lr = 1})
    assert.has_error_like(function() return scale.seen + 1 end, "'seen' of Scale")
    scale:double()
    scale(moth.ones(2, 3, {dtype = moth.float64})):sum():backward()
    opt:step()
    assert.same({-1, -1, -1}, w:tolist())
    assert.equal(moth.float64, w.dtype)
    assert.equal("Parameter", nn.typename(w))
    assert.is_false(nn.isinstance(w, nn.UninitializedParameter))
    assert.has_error_like(function() w:materialize(2) end, "an uninitialized tensor is needed")
    assert.has_error_like(function() nn.UninitializedParameter():materialize(2.5) end, "'shape'")
  end)

  it("is copied as an uninitialized one", function()
    local copy = nn.LazyLinear(3):deepcopy()
    assert.has_error_like(function() return copy.weight:sum() end, "uninitialized")
    assert.same({3, 2}, sizes(copy(moth.ones(1, 2)) and copy.weight))
  end)

  it("raises errors with its name", function()
    assert.error_matches(function() nn.UninitializedParameter { dtype = moth.int64 } end,
      "UninitializedParameter: only floating tensors", 1, true)
    for _, name in ipairs { "xavier_uniform_", "ones_", "zeros_", "normal_", "uniform_",
      "orthogonal_", "sparse_", "trunc_normal_" } do
      local more = name == "sparse_" and { 0.5 } or {}
      assert.error_matches(function() nn.init[name](nn.UninitializedParameter(), unpack(more)) end,
        ("'tensor' to '%s' (uninitialized until its layer's first call"):format(name), 1, true)
    end
  end)
end)
