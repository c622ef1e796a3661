-- State dicts: PyTorch's names, loading of all tensors or none, extra state, files, and the state
-- of optimizers.

local moth = require "moth"
local files = require "spec.support.files"
local Net = require "spec.support.classic"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

setup(files.setup)
teardown(files.teardown)

local function values(module)
  local list = {}
  for _, x in ipairs(module:parameters()) do list[#list + 1] = x:reshape(-1):tolist() end
  return list
end

describe("a state dict", function()
  it("has PyTorch's names in PyTorch's order", function()
    assert.same({"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight",
      "fc1.bias", "fc2.weight", "fc2.bias"}, Net():state_dict():keys())
  end)

  -- PyTorch 2.15's list for the same module.
  it("has them in containers, also for buffers and tied weights", function()
    local Deep = nn.class("Deep", nn.Module)
    function Deep:init()
      self.embed = nn.Parameter(moth.zeros(2))
      self:register_buffer("pos", moth.zeros(3))
      self.layers = nn.ModuleList()
      for _ = 1, 2 do
        self.layers:append(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)))
      end
      self.heads = nn.ModuleDict {a = nn.Linear(2, 1, {bias = false}), b = nn.Linear(2, 3)}
      self.scale = nn.Parameter(moth.ones(1))
      self.tied = self.layers[1][1]
    end
    assert.same({"embed", "scale", "pos", "layers.0.0.weight", "layers.0.0.bias",
      "layers.0.2.weight", "layers.0.2.bias", "layers.1.0.weight", "layers.1.0.bias",
      "layers.1.2.weight", "layers.1.2.bias", "heads.a.weight", "heads.b.weight", "heads.b.bias",
      "tied.weight", "tied.bias"}, Deep():state_dict():keys())
  end)

  it("contains detached tensors that share the module's values", function()
    local m = nn.Linear(1, 1)
    local sd = m:state_dict()
    assert.is_false(sd.weight.requires_grad)
    moth.no_grad(function() m.weight:fill_(7) end)
    assert.equal(7, sd.weight:item())
    assert.equal(m.weight, m:state_dict {keep_vars = true}.weight)
  end)

  it("is indexed by name, iterated in order, counted and printed", function()
    local sd = nn.Linear(3, 2):state_dict()
    assert.equal(2, sd:len())
    local seen = {}
    for name, x in sd:items() do seen[#seen + 1] = name .. tostring(x.shape) end
    assert.same({"weight(2, 3)", "bias(2)"}, seen)
    assert.is_nil(sd.nothing)
    assert.is_truthy(tostring(sd):find("weight: f32 (2, 3)", 1, true))
  end)

  it("accepts a prefix and adds to another one", function()
    local sd = nn.Linear(1, 1):state_dict {prefix = "a."}
    nn.Linear(1, 1):state_dict {destination = sd, prefix = "b."}
    assert.same({"a.weight", "a.bias", "b.weight", "b.bias"}, sd:keys())
  end)
end)

describe("load_state_dict", function()
  it("copies the values, from a state dict or a plain table", function()
    local a, b, c = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
    local weight = b.weight
    b:load_state_dict(a:state_dict())
    assert.equal(weight, b.weight)
    assert.close(values(a), values(b))
    c:load_state_dict {weight = a.weight, bias = a.bias}
    assert.close(values(a), values(c))
    moth.no_grad(function() a.weight:zero_() end)
    assert.are_not.equal(0, b.weight[1][1]:item())
  end)

  it("lists all mistakes in one error, and changes nothing", function()
    local net = Net()
    local before = values(net)
    local sd = Net():state_dict()
    sd["conv1.weight"] = moth.zeros(3)
    sd["fc1.weight"] = 5
    sd["fc2.bias"] = nil
    sd["fc2.bais"] = moth.zeros(10)
    local ok, message = pcall(function() net:load_state_dict(sd) end)
    assert.is_false(ok)
    for _, wanted in ipairs {"state_spec.lua:", "does not fit Net", "nothing was loaded",
      "missing: 'fc2.bias'", "unexpected: 'fc2.bais'",
      "'conv1.weight' has the shape (3), the module's is (10, 1, 5, 5)",
      "'fc1.weight' is 5, not a tensor"} do
      assert.is_truthy(message:find(wanted, 1, true), wanted .. " is not in\n" .. message)
    end
    assert.same(before, values(net))
  end)

  it("returns missing and unexpected keys if it is not strict", function()
    local m = nn.Linear(2, 2)
    local keys = m:load_state_dict({weight = moth.zeros(2, 2), other = moth.zeros(1)},
      {strict = false})
    assert.same({"bias"}, keys.missing_keys)
    assert.same({"other"}, keys.unexpected_keys)
    assert.close({{0, 0}, {0, 0}}, m.weight:tolist())
    assert.same({missing_keys = {}, unexpected_keys = {}}, m:load_state_dict(m:state_dict()))
  end)

  it("raises for wrong shapes also if it is not strict", function()
    local m = nn.Linear(2, 2)
    assert.has_error_like(function()
      m:load_state_dict({weight = moth.zeros(3)}, {strict = false})
    end, "'weight' has the shape %(3%)")
  end)

  it("converts values of another dtype to the module's", function()
    local m = nn.Linear(1, 1)
    m:load_state_dict {weight = moth.full({1, 1}, 3, {dtype = moth.float64}),
                       bias = moth.tensor {4LL}}
    assert.equal(moth.float32, m.weight.dtype)
    assert.equal(3, m.weight:item())
    assert.equal(4, m.bias:item())
  end)

  it("stores the tensors themselves with assign", function()
    local a, b = nn.Linear(2, 2):double(), nn.Linear(2, 2)
    b:load_state_dict(a:state_dict(), {assign = true})
    assert.equal(moth.float64, b.weight.dtype)
    assert.is_true(b.weight.requires_grad)
    assert.is_true(nn.isinstance(b.weight, nn.Parameter))
    assert.equal(2, #b:parameters())
    assert.has_error_like(function()
      b:load_state_dict({weight = moth.zeros(2, 2):long(), bias = moth.zeros(2)}, {assign = true})
    end, "'weight' is i64 %(2, 2%), which cannot be a parameter that requires grad")
  end)

  it("loads tied weights, and its own state dict", function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[2].weight = net[1].weight
    net:load_state_dict(net:state_dict())
    assert.equal(net[1].weight, net[2].weight)
  end)

  it("is not recorded", function()
    local m = nn.Linear(2, 2)
    m:load_state_dict {weight = moth.ones(2, 2):requires_grad_(), bias = moth.zeros(2)}
    assert.is_true(m.weight.is_leaf)
  end)

  it("raises for other values and says what it needs", function()
    assert.has_error_like(function() nn.Linear(1, 1):load_state_dict(3) end,
      "bad argument 'state_dict' to 'load_state_dict'")
  end)

  it("works for a module that contains itself", function()
    local seq = nn.Sequential()
    seq:append(seq)
    assert.has_error_like(function() seq:state_dict() end, "Sequential contains itself, at '0%.0")
  end)
end)

describe("extra state", function()
  local Counter = nn.class("Counter", nn.Module)
  function Counter:init()
    self.steps = 0
    self.w = nn.Parameter(moth.ones(1))
  end
  function Counter:get_extra_state() return {steps = self.steps} end
  function Counter:set_extra_state(state) self.steps = state.steps end

  it("has the key _extra_state and is restored", function()
    local a, b = nn.Sequential(Counter()), nn.Sequential(Counter())
    a[1].steps = 7
    local sd = a:state_dict()
    assert.same({"0.w", "0._extra_state"}, sd:keys())
    b:load_state_dict(sd)
    assert.equal(7, b[1].steps)
  end)

  it("is reported if it is missing, and nothing is loaded", function()
    local m = Counter()
    assert.has_error_like(function() m:load_state_dict {w = moth.zeros(1)} end,
      "missing: '_extra_state'")
    assert.equal(1, m.w:item())
  end)

  it("is saved to a file", function()
    local a, b = Counter(), Counter()
    a.steps = 3
    moth.save(a:state_dict(), files.path("extra.safetensors"))
    b:load_state_dict(moth.load(files.path("extra.safetensors")))
    assert.equal(3, b.steps)
  end)
end)

describe("a network", function()
  it("is loaded from a file with the same results", function()
    local net, again = Net():eval(), Net():eval()
    local x = moth.randn(3, 1, 28, 28)
    moth.save(net:state_dict(), files.path("net.safetensors"))
    again:load_state_dict(moth.load(files.path("net.safetensors")))
    assert.same(net(x):tolist(), again(x):tolist())
  end)

  it("continues training from a checkpoint without a difference", function()
    local x, y = moth.randn(8, 4), moth.randn(8, 2)
    local function step(net, opt)
      opt:zero_grad()
      F.mse_loss(net(x), y):backward()
      opt:step()
    end
    for _, make in ipairs {
      function(net) return optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9}) end,
      function(net) return optim.Adam(net:parameters(), {lr = 0.01}) end,
    } do
      local net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
      local opt = make(net)
      for _ = 1, 3 do step(net, opt) end
      moth.save({model = net:state_dict(), optimizer = opt:state_dict(), epoch = 3},
        files.path("checkpoint.safetensors"))
      local other = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
      local other_opt = make(other)
      local checkpoint = moth.load(files.path("checkpoint.safetensors"))
      other:load_state_dict(checkpoint.model)
      other_opt:load_state_dict(checkpoint.optimizer)
      assert.equal(3, checkpoint.epoch)
      for _ = 1, 3 do
        step(net, opt)
        step(other, other_opt)
      end
      assert.same(values(net), values(other))
    end
  end)
end)

describe("an optimizer's state dict", function()
  local function pair()
    local a = nn.Parameter(moth.tensor {1.0, 2.0})
    local b = nn.Parameter(moth.tensor {3.0})
    return a, b, optim.SGD({{params = {a}}, {params = {b}, lr = 0.5}}, {lr = 0.1, momentum = 0.9})
  end

  local function stepped()
    local a, b, opt = pair();
    (a:sum() * 2 + b:sum()):backward()
    opt:step()
    return opt, a, b
  end

  it("has PyTorch's names and numbers the parameters from 0", function()
    local sd = stepped():state_dict()
    assert.close({2, 2}, sd.state["0"].momentum_buffer:tolist())
    assert.close({1}, sd.state["1"].momentum_buffer:tolist())
    assert.same({0}, sd.param_groups[1].params)
    assert.same({1}, sd.param_groups[2].params)
    assert.equal(0.5, sd.param_groups[2].lr)
    for _, name in ipairs {"lr", "momentum", "dampening", "weight_decay", "nesterov",
                           "maximize"} do
      assert.is_not_nil(sd.param_groups[1][name], name)
    end
  end)

  it("restores state and options, as copies", function()
    local opt = stepped()
    local a, b, other = pair()
    local sd = opt:state_dict()
    sd.param_groups[1].lr = 0.25
    other:load_state_dict(sd)
    assert.equal(0.25, other.param_groups[1].lr)
    assert.equal(0.5, other.param_groups[2].lr)
    sd.state["0"].momentum_buffer:zero_()
    assert.close({2, 2}, other.state[a].momentum_buffer:tolist())
    assert.close({1}, other.state[b].momentum_buffer:tolist())
  end)

  it("accepts PyTorch's form: integers as keys, further options, steps as tensors",
    function()
      local p = nn.Parameter(moth.zeros(2))
      local opt = optim.Adam({p})
      opt:load_state_dict {
        state = {[0] = {step = moth.tensor(4.0), exp_avg = moth.tensor {0.5, 0.25},
                        exp_avg_sq = moth.tensor {0.5, 0.25}}},
        param_groups = {{lr = 0.1, betas = {0.5, 0.75}, eps = 1e-8, weight_decay = 0,
                         amsgrad = false, maximize = false, capturable = false, params = {0}}},
      }
      assert.equal(4, opt.state[p].step)
      assert.equal(0.1, opt.param_groups[1].lr)
      p.grad = moth.ones(2)
      opt:step()
      assert.equal(5, opt.state[p].step)
    end)

  it("is refused as a whole if it does not match", function()
    local opt, a = stepped()
    local function refused(change, text)
      local sd = opt:state_dict()
      change(sd)
      assert.has_error_like(function() opt:load_state_dict(sd) end, text)
      assert.equal(0.1, opt.param_groups[1].lr)
      assert.close({2, 2}, opt.state[a].momentum_buffer:tolist())
    end
    refused(function(sd) sd.param_groups[2] = nil end,
      "does not fit this SGD; nothing was loaded: it has 1 parameter groups, this one 2")
    refused(function(sd) sd.param_groups[1].params = {0, 1} end, "its group 1 has 2 parameters")
    refused(function(sd)
      sd.param_groups[1].lr = 9
      sd.state["1"].momentum_buffer = moth.zeros(7)
    end, "'momentum_buffer' is f32 %(7%), its parameter is f32 %(1%)")
    refused(function(sd)
      sd.param_groups[1].momentum = 0.5
      sd.param_groups[2].lr = -1
    end, "'lr' to 'SGD' %(a number from 0 on is needed, got %-1%)")
    refused(function(sd) sd.state = nil end, "{state = %.%.%., param_groups = %.%.%.} is needed")
  end)

  it("is cast with its parameter", function()
    local p = nn.Parameter(moth.ones(1, {dtype = moth.float64}))
    local opt = optim.SGD({p}, {momentum = 0.9})
    opt:load_state_dict {state = {["0"] = {momentum_buffer = moth.ones(1)}},
      param_groups = {{params = {0}}}}
    assert.equal(moth.float64, opt.state[p].momentum_buffer.dtype)
  end)
end)
