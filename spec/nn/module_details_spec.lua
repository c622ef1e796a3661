-- Details of modules, their lists and state dicts: both ends of a range, names after changes, what
-- an option's other value does, calls by name in captured steps.

local moth = require "moth"
local fails = require("spec.support.refusals").fails

local nn = moth.nn

local function keys(net) return table.concat(net:state_dict():keys(), " ") end

local function kinds(list)
  local names = {}
  for i, m in ipairs(list) do names[i] = nn.typename(m) end
  return table.concat(names, " ")
end

describe("a call by names", function()
  local Coupling = nn.class("Coupling", nn.Module)
  Coupling.forward_args = {"x", "inverse"}
  function Coupling:init() self.fc = nn.Linear(2, 2) end
  function Coupling:forward(x, inverse)
    local y = self.fc(x)
    return inverse and x - y or x + y
  end

  it("works in a captured step, which sees a replaced part", function()
    local net = Coupling()
    local step = moth.capture(function(x) return (net {x, inverse = true}) end)
    for _ = 1, 3 do
      local x = moth.randn(1, 2)
      assert.is_true(step(x):allclose(x - net.fc(x), {atol = 1e-6}))
    end
    net.fc = nn.Linear(2, 2)
    local x = moth.randn(1, 2)
    assert.is_true(step(x):allclose(x - net.fc(x), {atol = 1e-6}))
  end)

  it("reaches the hooks in order", function()
    local net, seen = Coupling(), nil
    net:register_forward_pre_hook(function(_, args) seen = args end)
    local x = moth.randn(1, 2)
    net {inverse = true, x = x}
    assert.equal(x, seen[1])
    assert.is_true(seen[2])
    assert.equal(2, seen.n)
  end)

  it("raises for an argument by position and by name", function()
    fails("bad argument 'x' to 'Coupling' (given twice, by position and by name)", Coupling(),
      {moth.ones(1, 2), x = moth.ones(1, 2)})
    fails("'Coupling' has no argument 'invers'; did you mean 'inverse'", Coupling(),
      {moth.ones(1, 2), invers = true})
  end)
end)

describe("a list of modules", function()
  local function three() return nn.ModuleList {nn.ReLU(), nn.Tanh(), nn.Sigmoid()} end

  it("counts from both ends, up to its length", function()
    local list = three()
    assert.equal(list[1], list[-3])
    list[-3] = nn.Identity()
    assert.equal("Identity Tanh Sigmoid", kinds(list))
    fails("ModuleList[-4]: positions are 1 to 3", function() return list[-4] end)
    fails("ModuleList[0]: positions are 1 to 3", function() return list[0] end)
    fails("ModuleList[4]: positions are 1 to 3", function() return list[4] end)
    fails("ModuleList[1]: it is empty", function() return nn.ModuleList()[1] end)
    fails("ModuleList[-4]: positions are 1 to 4", function() list[-4] = nn.ReLU() end)
    list[4] = nil
    assert.equal(3, #list)
  end)

  it("inserts at each position, and pops from each", function()
    local wanted = {"Identity ReLU Tanh Sigmoid", "ReLU Identity Tanh Sigmoid",
      "ReLU Tanh Identity Sigmoid", "ReLU Tanh Sigmoid Identity"}
    for at = 1, 4 do
      local list = three()
      list:insert(at, nn.Identity())
      assert.equal(wanted[at], kinds(list))
      assert.equal("Identity", nn.typename(list:pop(at)))
      assert.equal("ReLU Tanh Sigmoid", kinds(list))
    end
    local list = three()
    list:insert(-1, nn.Identity())
    assert.equal("ReLU Tanh Identity Sigmoid", kinds(list))
    assert.equal("Tanh", nn.typename(list:pop(-3)))
    fails("bad argument 'index' to 'insert' (positions are 1 to 4, got 5", list.insert, list, 5,
      nn.ReLU())
    fails("bad argument 'index' to 'pop' (positions are 1 to 3, got 1.5", list.pop, list, 1.5)
    fails("bad argument 'index' to 'pop' (positions are 1 to 3, got -4", list.pop, list, -4)
    fails("bad argument 'module' to 'insert' (a module is needed, got 3", list.insert, list, 1, 3)
    fails("bad argument 'module' to 'append' (a module is needed, got 3", list.append, list, 3)
    fails("bad argument 'modules' to 'extend' (a list of modules is needed, got 3", list.extend,
      list, 3)
    fails("bad argument 'modules' to 'extend' (a module is needed, got 3 at position 2",
      list.extend, list, {nn.ReLU(), 3})
  end)

  it("of a Sequential's range keeps its names at inserts and pops", function()
    local function linears(n)
      local seq = nn.Sequential()
      for _ = 1, n do seq:append(nn.Linear(1, 1, false)) end
      return seq
    end
    local part = linears(4)[{3, 4}]
    assert.equal("2.weight 3.weight", keys(part))
    part:insert(1, nn.Linear(1, 1, false))
    assert.equal("0.weight 2.weight 3.weight", keys(part):gsub("^4", "0"))
    part:pop(2)
    assert.equal(2, #part)
    assert.is_truthy(keys(part):find "3.weight$")
    assert.equal("0.weight 2.weight", keys(linears(4)[{1, 3, 2}]))
    assert.equal("1.weight 0.weight", keys(nn.Sequential {{"1", nn.Linear(1, 1, false)},
      {"0", nn.Linear(1, 1, false)}}))
  end)

  it("reads a Sequential's modules by their names", function()
    local seq = nn.Sequential {{"a", nn.ReLU()}, {"b", nn.Tanh()}}
    assert.equal(seq[2], seq.b)
    assert.is_nil(seq.c)
    assert.equal(seq[1], seq:get_submodule "a")
    fails("names are strings, not empty, without dots; got a string ('a.b')", nn.Sequential,
      {{"a.b", nn.ReLU()}})
    fails("names are strings, not empty, without dots; got a string ('')", nn.Sequential,
      {{"", nn.ReLU()}})
  end)

  it("raises for an element that is no module, at its walk", function()
    local list = three()
    list[2] = 5
    fails("ModuleList[2] is 5, not a module", list.parameters, list)
  end)

  it("replaces a module by its path, in lists and dicts", function()
    local Net = nn.class("Net", nn.Module)
    function Net:init()
      self.list = three()
      self.dict = nn.ModuleDict {a = nn.Sequential {{"x", nn.ReLU()}, {"y", nn.ReLU()}}}
      self.plain = nn.ReLU()
    end
    local net, new = Net(), nn.Identity()
    for _, path in ipairs {"list.0", "list[2]", "list.2", "dict.a.y", "dict.a", "plain", "more"} do
      net:set_submodule(path, new)
      assert.equal(new, net:get_submodule(path))
    end
    assert.equal("Identity Identity Identity", kinds(net.list))
    net:set_submodule("list.3", nn.Tanh())
    assert.equal("Tanh", nn.typename(net.list[4]))
    assert.equal(net, net:get_submodule "")
    fails("bad argument 'target' to 'set_submodule' (an empty path is not allowed",
      net.set_submodule, net, "", new)
    fails("bad argument 'module' to 'set_submodule' (a module is needed, got 3",
      net.set_submodule, net, "plain", 3)
    fails("bad argument 'target' to 'get_submodule' (a path like 'layers.0' is needed, got 3",
      net.get_submodule, net, 3)
    fails([[ModuleList has no submodule '4'; names count from 0: net[4] is "3"]],
      net.get_submodule, net, "list.4")
    fails("Net has no submodule 'lst'; did you mean 'list'", net.get_submodule, net, "lst.0")
    fails("bad argument 'target' to 'get_parameter' (Net has no submodule", net.get_parameter, net,
      "nothing.weight")
  end)
end)

describe("a dict of modules", function()
  it("takes the modules of another one, of pairs and of a table", function()
    local relu = nn.ReLU()
    local dict = nn.ModuleDict(nn.ModuleDict {{"z", relu}, {"a", nn.Tanh()}})
    assert.same({"z", "a"}, dict:keys())
    assert.equal(relu, dict.z)
    assert.equal(2, dict:len())
    assert.equal("ReLU Tanh", kinds(dict:values()))
    dict:update {m = nn.Tanh(), b = nn.Tanh(), z = nn.Identity()}
    assert.same({"z", "a", "b", "m"}, dict:keys())
    assert.equal("Identity", nn.typename(dict.z))
    dict:clear()
    assert.equal(0, dict:len())
    fails("bad argument 'modules' to 'ModuleDict' (element 2 is a ReLU, not {name, module}",
      nn.ModuleDict, {{"a", nn.ReLU()}, nn.ReLU()})
    fails("bad argument 'modules' to 'ModuleDict' (a module is needed, got 3 at position 1",
      nn.ModuleDict, {{"a", 3}})
    fails("bad argument 'modules' to 'ModuleDict' (a module is needed, got 3 under 'a'",
      nn.ModuleDict, {a = 3})
    fails("there is no module 'b'", nn.ModuleDict({a = nn.ReLU()}).pop, dict, "b")
  end)
end)

describe("a list of parameters", function()
  it("counts from both ends, prints its positions and has ranges", function()
    local list = nn.ParameterList {moth.ones(1), moth.ones(2), moth.ones(3)}
    list[-3] = moth.ones(4)
    assert.equal(4, list[1]:numel())
    assert.equal(2, list[-2]:numel())
    assert.equal(3, list:len())
    assert.equal("ParameterList(\n  (1): Parameter f32 (4)\n  (2): Parameter f32 (2)\n"
      .. "  (3): Parameter f32 (3)\n)", tostring(list))
    assert.equal("ParameterList()", tostring(nn.ParameterList()))
    assert.equal(2, #list[{1, 3, 2}])
    assert.equal(3, list[{1, 3, 2}][2]:numel())
    fails("ParameterList[-4]: positions are 1 to 4", function() list[-4] = moth.ones(1) end)
    fails("ParameterList[0]: positions are 1 to 4", function() list[0] = moth.ones(1) end)
    fails("ParameterList[1.5]: positions are 1 to 4", function() list[1.5] = moth.ones(1) end)
    fails("bad argument 'parameter' to 'append' (a tensor is needed, got 3", list.append, list, 3)
    assert.equal(3, #list)
    list:extend(nn.ParameterList {moth.ones(9)})
    assert.equal(9, list[4]:numel())
  end)

  it("has integer tensors without gradient, and keeps a Parameter that is frozen", function()
    local frozen = nn.Parameter(moth.ones(1), false)
    local list = nn.ParameterList {moth.tensor {1LL}, frozen, moth.ones(1)}
    assert.is_false(list[1].requires_grad)
    assert.equal(frozen, list[2])
    assert.is_false(list[2].requires_grad)
    assert.is_true(list[3].requires_grad)
  end)

  it("by name takes another one's, and prints names", function()
    local dict = nn.ParameterDict(nn.ParameterDict {{"z", moth.ones(2)}, {"a", moth.ones(1)}})
    assert.same({"z", "a"}, dict:keys())
    assert.equal("ParameterDict(\n  (z): Parameter f32 (2)\n  (a): Parameter f32 (1)\n)",
      tostring(dict))
    assert.equal(2, dict:values()[1]:numel())
  end)
end)

describe("a state dict", function()
  it("keeps its order at writes", function()
    local dict = nn.Linear(1, 1):state_dict()
    dict.other = nil
    assert.same({"weight", "bias"}, dict:keys())
    dict.weight = nil
    assert.equal(1, dict:len())
    dict.weight = moth.ones(1)
    assert.same({"bias", "weight"}, dict:keys())
    assert.matches("^StateDict {\n  bias: f32 %(1%)\n  weight: f32 %(1%)\n}$", tostring(dict))
  end)

  it("holds the Parameters themselves if requested, else detached tensors", function()
    local net = nn.Linear(1, 1)
    assert.equal(net.weight, net:state_dict({keep_vars = true}).weight)
    assert.is_false(net:state_dict().weight.requires_grad)
    fails("bad argument 'destination' to 'state_dict' (a table is needed, got 3", net.state_dict,
      net, 3)
  end)

  it("reports what was missing and unexpected, at most 100 names", function()
    local net = nn.Linear(1, 1)
    local fine = net:load_state_dict(net:state_dict())
    assert.equal("<All keys matched>", tostring(fine))
    local found = net:load_state_dict({weight = moth.ones(1, 1), a = moth.ones(1)},
      {strict = false})
    assert.equal("missing: 'bias'\nunexpected: 'a'", tostring(found))
    local many = {weight = moth.ones(1, 1), bias = moth.ones(1)}
    for i = 1, 100 do many["x" .. i] = 1 end
    local ok, problem = pcall(net.load_state_dict, net, many)
    assert.is_false(ok)
    assert.is_falsy(tostring(problem):find "more")
    many.x101 = 1
    fails("and 1 more", net.load_state_dict, net, many)
  end)

  it("that is assigned keeps requires_grad of the module's parameters", function()
    local net = nn.Linear(1, 1)
    net.weight.requires_grad = false
    local given = {weight = moth.ones(1, 1, {dtype = moth.float64}), bias = net.bias}
    local bias = net.bias
    net:load_state_dict(given, {assign = true})
    assert.is_false(net.weight.requires_grad)
    assert.equal(moth.float64, net.weight.dtype)
    assert.equal(bias, net.bias)
    assert.is_true(nn.isinstance(net.weight, nn.Parameter))
    fails("cannot be a parameter that requires grad", net.load_state_dict, net,
      {weight = moth.ones(1, 1), bias = moth.tensor {1LL}}, {assign = true})
  end)

  it("of a buffer that is not saved is neither missing nor loaded", function()
    local net = nn.Module()
    net:register_buffer("a", moth.ones(1), false)
    net:register_buffer("b", moth.ones(1))
    assert.equal("b", keys(net))
    net:load_state_dict {b = moth.zeros(1)}
    assert.equal(1, net.a:item())
    assert.equal(net.a, net:get_buffer "a")
    net:register_buffer("b", moth.none)
    assert.is_nil(net.b)
  end)
end)

describe("a kind of tensor", function()
  it("prints its name, and is told by isinstance", function()
    assert.equal("class Parameter", tostring(nn.Parameter))
    assert.equal("class Buffer", tostring(nn.Buffer))
    assert.equal("class UninitializedParameter", tostring(nn.UninitializedParameter))
    assert.equal("class UninitializedBuffer", tostring(nn.UninitializedBuffer))
    assert.equal("Parameter", nn.typename(nn.Parameter(moth.ones(1))))
    assert.equal("Buffer", nn.typename(nn.Buffer(moth.ones(1))))
    assert.equal("Buffer", nn.typename(nn.Buffer(moth.ones(1), false)))
    assert.equal("UninitializedParameter", nn.typename(nn.UninitializedParameter()))
    assert.equal("UninitializedBuffer", nn.typename(nn.UninitializedBuffer()))
    local hidden = nn.UninitializedBuffer {persistent = false}
    assert.is_true(nn.isinstance(hidden, nn.UninitializedBuffer))
    assert.is_false(nn.isinstance(hidden, nn.UninitializedParameter))
    assert.is_false(nn.isinstance(nn.Parameter(moth.ones(1)), nn.UninitializedParameter))
    assert.is_false(nn.isinstance(moth.ones(1), nn.Parameter))
    assert.is_false(nn.isinstance(nn.Parameter(moth.ones(1)), nn.Buffer))
    assert.is_true(nn.isinstance(nn.Buffer(moth.ones(1), false), nn.Buffer))
  end)

  it("is empty without data; a Parameter needs gradients by default", function()
    assert.equal(0, nn.Parameter():numel())
    assert.is_true(nn.Parameter().requires_grad)
    assert.is_false(nn.Parameter(moth.ones(1), false).requires_grad)
    assert.is_false(nn.Buffer(moth.ones(1)).requires_grad)
    assert.is_true(nn.Buffer(moth.ones(1, {requires_grad = true})).requires_grad)
    assert.is_true(nn.UninitializedParameter().requires_grad)
    assert.is_false(nn.UninitializedBuffer().requires_grad)
  end)

  it("without a size is saved by default, and materialized with another dtype", function()
    local net = nn.Module()
    net.a, net.b = nn.UninitializedBuffer(), nn.UninitializedBuffer {persistent = false}
    net.c = nn.UninitializedParameter {dtype = moth.float64}
    assert.equal("c a", keys(net))
    net.c:materialize({2, 3})
    assert.equal(moth.float64, net.c.dtype)
    assert.same({2, 3}, {unpack(net.c.shape)})
    assert.is_true(net.c.requires_grad)
    net.a:materialize({1}, {dtype = moth.float64})
    assert.equal(moth.float64, net.a.dtype)
    fails("materialize: an uninitialized tensor is needed, got f64 (1)", net.a.materialize, net.a,
      {1})
  end)
end)

describe("a walk over modules", function()
  local function tied()
    local net, one = nn.Module(), nn.Linear(1, 1)
    net.a, net.b, net.own = one, nn.Sequential(one), nn.Parameter(moth.ones(1))
    net.c = nn.BatchNorm1d(1)
    return net
  end

  local function names(iterator)
    local list = {}
    for name in iterator do list[#list + 1] = name == "" and "-" or name end
    return table.concat(list, " ")
  end

  it("lists shared ones once, or under each name", function()
    local net = nn.Module()
    net.own = nn.Parameter(moth.ones(1))
    net.a = nn.Linear(1, 1)
    net.b = nn.Sequential(net.a)
    assert.equal("- a b", names(net:named_modules()))
    assert.equal("- a b b.0", names(net:named_modules {remove_duplicate = false}))
    assert.equal("p p.a p.b", names(net:named_modules "p"))
    assert.equal("own a.weight a.bias", names(net:named_parameters()))
    assert.equal("own a.weight a.bias b.0.weight b.0.bias",
      names(net:named_parameters {remove_duplicate = false}))
    assert.equal("own", names(net:named_parameters {recurse = false}))
    assert.equal("p.own", names(net:named_parameters("p", false)))
    assert.equal(1, #net:parameters(false))
    assert.equal(3, #net:parameters())
    assert.equal("a b", names(net:named_children()))
  end)

  it("lists buffers of the module alone, or of all", function()
    local net = tied()
    net.mine = nn.Buffer(moth.ones(1))
    assert.equal("mine", names(net:named_buffers {recurse = false}))
    assert.equal("mine c.running_mean c.running_var c.num_batches_tracked",
      names(net:named_buffers()))
    assert.equal(1, #net:buffers(false))
    assert.equal(4, #net:buffers())
  end)

  it("ends for a module that contains itself: train, apply, printing; others raise", function()
    local net = nn.Module()
    net.inner = nn.Sequential()
    net.inner[1] = net
    local count = 0
    net:apply(function() count = count + 1 end)
    assert.equal(2, count)
    net:eval()
    assert.is_false(net.inner.training)
    assert.equal(2, #net:modules())
    fails("contains itself, at 'inner.0.inner", function()
      net:named_modules {remove_duplicate = false}
    end)
    fails("contains itself, at", net.state_dict, net)
  end)

  it("clears gradients that have a graph, in place", function()
    local p = nn.Parameter(moth.ones(2))
    local net = nn.Module()
    net.p = p
    p.grad = moth.ones(2, {requires_grad = true}) * 2
    local grad = p.grad
    net:zero_grad(false)
    assert.equal(grad, p.grad)
    assert.same({0, 0}, p.grad:tolist())
    assert.is_false(p.grad.requires_grad)
    net:zero_grad()
    assert.is_nil(p.grad)
  end)

  it("casts all with type, float ones with the others, and gradients too", function()
    local net = nn.BatchNorm1d(2)
    net.weight.grad = moth.ones(2)
    assert.equal(net, net:double())
    assert.equal(moth.float64, net.weight.grad.dtype)
    assert.equal(moth.float64, net.running_mean.dtype)
    assert.equal(moth.int64, net.num_batches_tracked.dtype)
    local frozen = nn.BatchNorm1d(2):requires_grad_(false)
    frozen:type(moth.float64)
    assert.equal(moth.float64, frozen.num_batches_tracked.dtype)
    for name, dtype in pairs {float = moth.float32, half = moth.float16,
                              bfloat16 = moth.bfloat16} do
      assert.equal(dtype, net[name](net).bias.dtype)
    end
    local image = nn.Conv2d(2, 2, 1):to {memory_format = moth.channels_last}
    assert.is_true(image.weight:is_contiguous(moth.channels_last))
    image:to(moth.float64, {memory_format = moth.channels_last})
    assert.equal(moth.float64, image.bias.dtype)
  end)
end)

describe("a backward hook", function()
  it("may return one tensor for one gradient", function()
    local net, x = nn.Linear(2, 2), moth.ones(1, 2):requires_grad_()
    net:register_full_backward_hook(function() return moth.full({1, 2}, 5) end)
    net:register_full_backward_pre_hook(function(_, grads) return grads[1] * 2 end)
    net(x):sum():backward()
    assert.same({{5, 5}}, x.grad:tolist())
    assert.same({2, 2}, net.bias.grad:tolist())
  end)

  it("is removed once", function()
    local net = nn.Linear(2, 2)
    local handle = net:register_forward_hook(function(_, _, y) return y * 0 end)
    assert.is_not_nil(handle:remove())
    assert.is_nil(handle:remove())
    assert.is_true(net(moth.ones(1, 2)):ne(0):any():item())
  end)
end)
