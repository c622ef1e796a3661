-- nn.Module: registration by assignment, iterators, modes, casts and printing. Hooks:
-- hooks_spec.lua; state dicts: state_spec.lua; containers and errors: containers_spec.lua.

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local function names_of(iterator)
  local list = {}
  for name in iterator do list[#list + 1] = name end
  return table.concat(list, " ")
end

-- A module made by init(self), with an optional forward.
local function made(init, forward)
  local Made = nn.class("Made", nn.Module)
  Made.init = init
  Made.forward = forward
  return Made()
end

-- The warnings of fn.
local function warnings(fn)
  local list, old = {}, moth.warn
  moth.warn = function(text) list[#list + 1] = text end
  local ok, message = pcall(fn)
  moth.warn = old
  if not ok then error(message, 0) end
  return list
end

describe("assigning to a field of a module", function()
  it("registers modules, Parameters and buffers; other values are plain fields", function()
    local m = made(function(self)
      self.fc = nn.Linear(2, 3)
      self.w = nn.Parameter(moth.ones(2))
      self.mean = nn.Buffer(moth.zeros(4))
      self.plain = moth.ones(5)
      self.size, self.name, self.fn = 3, "x", print
    end)
    assert.equal("fc", names_of(m:named_children()))
    assert.equal("w fc.weight fc.bias", names_of(m:named_parameters()))
    assert.equal("mean", names_of(m:named_buffers()))
    assert.equal(3, m.size)
    assert.equal(print, m.fn)
    assert.equal(5, #m.plain)
  end)

  it("registers in the order of assignment", function()
    local m = made(function(self)
      for _, name in ipairs {"zeta", "alpha", "mid", "beta"} do self[name] = nn.ReLU() end
    end)
    assert.equal("zeta alpha mid beta", names_of(m:named_children()))
  end)

  it("keeps the position of a field that is assigned again, and replaces its value", function()
    local m = made(function(self)
      self.a = nn.Linear(1, 1)
      self.b = nn.Linear(2, 2)
    end)
    local old = m.a
    m.a = nn.Linear(3, 3)
    assert.equal("a b", names_of(m:named_children()))
    assert.are_not.equal(old, m.a)
    assert.equal(3, m:parameters()[1]:size(1))
    assert.equal(4, #m:parameters())
  end)

  it("unregisters by nil; a new assignment is at the end", function()
    local m = made(function(self)
      self.a = nn.ReLU()
      self.b = nn.ReLU()
    end)
    m.a = nil
    assert.is_nil(m.a)
    assert.equal("b", names_of(m:named_children()))
    m.a = nn.Tanh()
    assert.equal("b a", names_of(m:named_children()))
  end)

  it("replaces a plain field by a registered one, and a module by a Parameter", function()
    local m = made(function(self) self.x = 3 end)
    m.x = nn.Linear(1, 1)
    assert.equal(2, #m:parameters())
    m.x = nn.Parameter(moth.ones(1))
    assert.equal("x", names_of(m:named_parameters()))
    assert.equal(0, #m:children())
  end)

  it("replaces the tensor of a buffer, which stays a buffer", function()
    local m = nn.Module()
    m:register_buffer("mean", moth.zeros(2))
    m.mean = moth.ones(3)
    assert.equal(3, #m:buffers()[1])
    m.mean = nil
    assert.equal(0, #m:buffers())
  end)

  it("raises for a plain value in place of a registered one, and names the old value", function()
    local m = made(function(self)
      self.fc, self.w = nn.Linear(1, 1), nn.Parameter(moth.ones(2))
      self:register_buffer("mean", moth.zeros(2))
    end)
    assert.has_error_like(function() m.fc = 3 end,
      "cannot assign 3 to the module 'fc' of Made %(a module or nil is needed%)")
    assert.has_error_like(function() m.w = moth.ones(2) end,
      "cannot assign f32 %(2%) to the parameter 'w' of Made %(nn%.Parameter or nil is needed%)")
    assert.has_error_like(function() m.mean = "x" end, "to the buffer 'mean' of Made")
    assert.equal(1, m.fc.in_features)
  end)

  it("raises at the line of the assignment", function()
    local m = made(function(self) self.fc = nn.Linear(1, 1) end)
    local line = debug.getinfo(1, "l").currentline + 1
    assert.has_error_like(function() m.fc = 3 end, "module_spec%.lua:" .. line .. ": cannot assign")
  end)

  it("registers from the right in a multiple assignment, as Lua assigns", function()
    local m = made(function(self) self.a, self.b = nn.ReLU(), nn.ReLU() end)
    assert.equal("b a", names_of(m:named_children()))
  end)
end)

describe("a plain table that holds modules", function()
  it("causes one warning, with its path and the remedy", function()
    local m
    local list = warnings(function()
      m = made(function(self) self.layers = {nn.Linear(1, 1), nn.Linear(1, 1)} end)
      m:parameters()
      m:parameters()
      m:state_dict()
    end)
    assert.equal(1, #list)
    assert.is_truthy(list[1]:find("Made.layers[1] is a Linear in a plain table", 1, true))
    assert.is_truthy(list[1]:find("nn.ModuleList", 1, true))
    assert.equal(0, #m:parameters())
  end)

  it("is found if it is filled later, and if modules are nested deeper", function()
    local m = made(function(self) self.blocks = {} end, function(_, x) return x end)
    local list = warnings(function()
      m.blocks.first = {inner = nn.ReLU()}
      m(moth.ones(1))
    end)
    assert.equal(1, #list)
    assert.is_truthy(list[1]:find("Made.blocks.first.inner is a ReLU", 1, true))
  end)

  it("causes a warning if it holds Parameters", function()
    local list = warnings(function()
      made(function(self) self.list = {nn.Parameter(moth.ones(1))} end):parameters()
    end)
    assert.is_truthy(list[1]:find("Made.list[1] is a Parameter", 1, true))
  end)

  it("causes none otherwise", function()
    local list = warnings(function()
      made(function(self) self.sizes = {1, {2, "x"}, moth.ones(1)} end):parameters()
    end)
    assert.same({}, list)
  end)
end)

describe("registering by name", function()
  it("equals assignment", function()
    local m = nn.Module()
    m:add_module("a", nn.ReLU())
    m:register_module("b", nn.ReLU())
    m:register_parameter("w", nn.Parameter(moth.ones(1)))
    m:register_parameter("absent", moth.none)
    assert.is_nil(m.absent)
    m:register_buffer("mean", moth.ones(1))
    assert.equal("a b", names_of(m:named_children()))
    assert.equal("w", names_of(m:named_parameters()))
    assert.equal("mean", names_of(m:named_buffers()))
  end)

  it("leaves a buffer that is not persistent out of the state dict", function()
    local m = nn.Module()
    m:register_buffer("kept", moth.ones(1))
    m:register_buffer("scratch", moth.ones(1), false)
    m.scratch2 = nn.Buffer(moth.ones(1), {persistent = false})
    assert.equal("kept scratch scratch2", names_of(m:named_buffers()))
    assert.same({"kept"}, m:state_dict():keys())
  end)

  it("raises for names that would hide a method or field, and for invalid names", function()
    local m = made(function(self) self.size = 3 end)
    assert.has_error_like(function() m:add_module("forward", nn.ReLU()) end,
      "cannot register the module 'forward': Made already has a field or method of that name")
    assert.has_error_like(function() m:register_buffer("size", moth.ones(1)) end,
      "cannot register the buffer 'size'")
    for _, name in ipairs {"a.b", ""} do
      assert.has_error_like(function() m:add_module(name, nn.ReLU()) end, "cannot register under")
    end
    assert.has_error_like(function() m:add_module(1, nn.ReLU()) end, "cannot register under 1")
  end)

  it("raises for values of another kind", function()
    local m = nn.Module()
    assert.has_error_like(function() m:add_module("a", 3) end, "a module is needed, got 3")
    assert.has_error_like(function() m:register_parameter("a", moth.ones(2)) end,
      "nn%.Parameter is needed, got f32 %(2%)")
    assert.has_error_like(function() m:register_buffer("a", {}) end, "a tensor is needed")
    assert.has_error_like(function() m:register_buffer("a", nn.Parameter(moth.ones(1))) end,
      "is an nn%.Parameter; pass its detach%(%)")
  end)

  it("keeps assigned tensors at the end of scopes", function()
    local m = nn.Module()
    moth.scope(function()
      m.plain = moth.ones(2)
      m.table = {{x = moth.ones(1)}}
      m.w = nn.Parameter(moth.ones(3))
      m:register_buffer("mean", moth.ones(4))
    end)
    assert.equal(10, (m.plain:sum() + m.table[1].x + m.w:sum() + m.mean:sum()):item())
  end)

  it("finds modules, parameters and buffers by path", function()
    local net = made(function(self)
      self.layers = nn.ModuleList {nn.Linear(1, 2), nn.Linear(2, 3)}
      self.layers[2]:register_buffer("mean", moth.ones(1))
    end)
    assert.equal(net, net:get_submodule(""))
    assert.equal(net.layers[2], net:get_submodule("layers.1"))
    assert.equal(net.layers[2], net:get_submodule("layers[2]"))
    assert.equal(net.layers[1].weight, net:get_parameter("layers.0.weight"))
    assert.equal(net.layers[2].mean, net:get_buffer("layers.1.mean"))
    net:set_submodule("layers.0", nn.Linear(7, 7))
    assert.equal(7, net.layers[1].in_features)
    net:set_submodule("head", nn.ReLU())
    assert.equal("ReLU", nn.typename(net.head))
  end)

  it("suggests the nearest name for an unknown path", function()
    local net = made(function(self) self.fc = nn.Linear(1, 1) end)
    assert.has_error_like(function() net:get_submodule("fcc") end,
      "Made has no submodule 'fcc'; did you mean 'fc'%?")
    assert.has_error_like(function() net:get_parameter("fc.wieght") end,
      "Linear has no parameter 'wieght'; did you mean 'weight'%?")
    assert.has_error_like(function() net:get_buffer("fc.weight") end, "Linear has no buffer")
  end)
end)

describe("iteration over a module", function()
  local function nested()
    return made(function(self)
      self.body = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
      self.head = nn.Linear(3, 1)
    end)
  end

  it("names parameters by path, as PyTorch does", function()
    assert.equal("body.0.weight body.0.bias head.weight head.bias",
      names_of(nested():named_parameters()))
    assert.equal("net.head.weight net.head.bias",
      names_of(nested():named_parameters {prefix = "net"}):match("net%.head.*"))
    assert.equal("", names_of(nested():named_parameters {recurse = false}))
  end)

  it("returns plain lists", function()
    local net = nested()
    assert.equal(4, #net:parameters())
    assert.is_nil(getmetatable(net:parameters()))
    assert.equal(net.head, net:children()[2])
    assert.equal(5, #net:modules())
    assert.equal(net, net:modules()[1])
    assert.equal(0, #net:parameters {recurse = false})
    assert.equal(0, #net:buffers())
  end)

  it("names modules, itself first as ''", function()
    assert.equal(" body body.0 body.1 head", names_of(nested():named_modules()))
  end)

  it("visits a tied parameter and a shared module once", function()
    local net = made(function(self)
      self.a = nn.Linear(3, 3, false)
      self.b = nn.Linear(3, 3, false)
      self.b.weight = self.a.weight
      self.c = self.a
    end)
    assert.equal(1, #net:parameters())
    assert.equal("a.weight", names_of(net:named_parameters()))
    assert.equal(3, #net:modules())
    assert.equal("a.weight b.weight c.weight",
      names_of(net:named_parameters {remove_duplicate = false}))
    assert.same({"a.weight", "b.weight", "c.weight"}, net:state_dict():keys())
  end)

  it("adds a tied weight's gradients from both places, and steps it once", function()
    local net = made(function(self)
      self.a, self.b = nn.Linear(2, 2, false), nn.Linear(2, 2, false)
      self.b.weight = self.a.weight
    end, function(self, x) return self.b(self.a(x)) end)
    moth.no_grad(function() net.a.weight:copy_(moth.eye(2)) end)
    net(moth.ones(1, 2)):sum():backward()
    assert.close({{2, 2}, {2, 2}}, net.b.weight.grad:tolist())
    optim.SGD(net:parameters(), {lr = 0.5}):step()
    assert.close({{0, -1}, {-1, 0}}, net.a.weight:tolist())
  end)

  it("uses a snapshot: children may be added and removed meanwhile", function()
    local seq, seen = nn.Sequential(nn.ReLU(), nn.ReLU()), 0
    for _ in seq:named_modules() do
      seen = seen + 1
      seq:append(nn.Tanh())
    end
    assert.equal(3, seen)
    assert.equal(5, #seq)
    local m = nested()
    for name in m:named_children() do m[name] = nil end
    assert.equal(0, #m:children())
    for _ in m:named_parameters() do m.extra = nn.Parameter(moth.ones(1)) end
  end)

  it("applies a function to children first, each once", function()
    local net, log = nested(), {}
    local result = net:apply(function(m) log[#log + 1] = nn.typename(m) end)
    assert.equal("Linear ReLU Sequential Linear Made", table.concat(log, " "))
    assert.equal(net, result)
    assert.has_error_like(function() net:apply(3) end, "a function is needed, got 3")
  end)
end)

describe("modes", function()
  it("train and eval set all modules below and return the module", function()
    local net = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()))
    assert.is_true(net.training)
    assert.equal(net, net:eval())
    assert.is_false(net[2][1].training)
    net:train()
    assert.is_true(net[2][1].training)
    net:train(false)
    assert.is_false(net.training)
    assert.has_error_like(function() net:train(3) end,
      "bad argument 'mode' to 'train' %(true or false is needed, got 3%)")
  end)

  it("train calls a module's own train", function()
    local Frozen = nn.class("Frozen", nn.Sequential)
    function Frozen:train() return (nn.Sequential.train(self, false)) end
    local net = nn.Sequential(nn.Dropout(), nn.Sequential(Frozen(nn.Dropout())))
    net:train()
    assert.is_true(net[1].training)
    assert.is_false(net[2][1].training)
    assert.is_false(net[2][1][1].training)
  end)

  it("requires_grad_ freezes and unfreezes", function()
    local net = nn.Linear(2, 2)
    net:requires_grad_(false)
    assert.is_false(net.weight.requires_grad)
    assert.is_false(net(moth.ones(1, 2)).requires_grad)
    net:requires_grad_()
    assert.is_true(net.bias.requires_grad)
  end)

  it("zero_grad clears gradients, or fills them with zeros", function()
    local net = nn.Linear(2, 1)
    net(moth.ones(1, 2)):sum():backward()
    net:zero_grad {set_to_none = false}
    assert.close({{0, 0}}, net.weight.grad:tolist())
    net:zero_grad()
    assert.is_nil(net.weight.grad)
  end)
end)

describe("casts", function()
  it("change the dtype and keep the tensors, so that an optimizer continues", function()
    local net = nn.Linear(2, 1)
    local opt, weight = optim.SGD(net:parameters(), {lr = 0.5, momentum = 0.9}), net.weight
    net:double()
    assert.equal(weight, net.weight)
    assert.equal(moth.float64, weight.dtype)
    assert.is_true(weight.requires_grad)
    local before = weight:tolist()
    net(moth.ones(1, 2):double()):sum():backward()
    opt:step()
    assert.close({{before[1][1] - 0.5, before[1][2] - 0.5}}, weight:tolist())
  end)

  it("cast gradients too", function()
    local net = nn.Linear(2, 1)
    net(moth.ones(1, 2)):sum():backward()
    net:double()
    assert.equal(moth.float64, net.weight.grad.dtype)
    assert.close({{1, 1}}, net.weight.grad:tolist())
  end)

  it("exist for all floats, by name and by to", function()
    local net = nn.Linear(1, 1)
    assert.equal(moth.float16, net:half().weight.dtype)
    assert.equal(moth.bfloat16, net:bfloat16().weight.dtype)
    assert.equal(moth.float32, net:float().weight.dtype)
    assert.equal(moth.float64, net:to(moth.float64).weight.dtype)
    assert.equal(moth.float32, net:to {dtype = moth.float32}.weight.dtype)
    assert.equal(net, net:to("cpu"))
    assert.equal(net, net:cpu())
    assert.has_error_like(function() net:to("cuda:99") end, "bad argument 'device'")
  end)

  it("to_empty returns new storage of the same shapes", function()
    local net = nn.Linear(2, 3)
    local weight = net.weight
    local before = weight:detach()
    net:to_empty {device = "cpu"}
    assert.equal(weight, net.weight)
    assert.equal("(3, 2)", tostring(weight.shape))
    moth.no_grad(function() weight:fill_(7) end)
    assert.is_false(before:equal(weight))
    assert.is_true(weight.requires_grad)
    assert.has_error_like(function() net:to_empty("gpu") end, "'device' to 'to_empty'")
    assert.has_error_like(function() net:cuda(99) end, "bad argument 'device'")
  end)

  it("raise for integer dtypes if gradients are needed, and change nothing", function()
    local net = nn.Linear(2, 3)
    assert.has_error_like(function() net:to(moth.int64) end, "i64")
    assert.has_error_like(function() net:type(moth.int64) end, "i64")
    assert.equal(moth.float32, net.weight.dtype)
    assert.equal(moth.float32, net.bias.dtype)
  end)

  it("keep integer buffers, except type", function()
    local m = nn.Module()
    m:register_buffer("count", moth.tensor(3LL))
    m:register_buffer("mean", moth.zeros(2))
    m:double()
    assert.equal(moth.int64, m.count.dtype)
    assert.equal(moth.float64, m.mean.dtype)
    m:type(moth.float32)
    assert.equal(moth.float32, m.count.dtype)
  end)

  it("keep tied weights tied", function()
    local a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    b.weight = a.weight
    local net = nn.Sequential(a, b):double()
    assert.equal(a.weight, b.weight)
    assert.equal(3, #net:parameters())
  end)
end)

describe("type queries", function()
  it("isinstance knows subclasses, typename the class", function()
    local My = nn.class("My", nn.Linear)
    local m = My(1, 1)
    assert.is_true(nn.isinstance(m, nn.Linear))
    assert.is_true(nn.isinstance(m, nn.Module))
    assert.is_false(nn.isinstance(m, nn.Conv2d))
    assert.is_false(nn.isinstance(3, nn.Linear))
    assert.is_true(nn.isinstance(m.weight, nn.Parameter))
    assert.is_false(nn.isinstance(moth.ones(1), nn.Parameter))
    assert.is_true(nn.isinstance(nn.Buffer(moth.ones(1)), nn.Buffer))
    assert.equal("My", nn.typename(m))
    assert.equal("Parameter", nn.typename(m.weight))
    assert.equal("Tensor", nn.typename(moth.ones(1)))
    assert.equal("number", nn.typename(3))
    assert.has_error_like(function() nn.isinstance(m, "Linear") end, "a class is needed")
  end)

  it("a Parameter is a leaf that shares the tensor's storage", function()
    local x = moth.zeros(2)
    local p = nn.Parameter(x)
    x[1] = 5
    assert.equal(5, p[1]:item())
    assert.is_true(p.requires_grad)
    assert.is_true(p.is_leaf)
    assert.is_false(nn.Parameter(moth.tensor {1LL}, {requires_grad = false}).requires_grad)
    assert.has_error_like(function() nn.Parameter(moth.tensor {1LL}) end,
      "only floating tensors can require grad")
  end)
end)

describe("printing a module", function()
  it("shows its tree with names, positions as Lua counts them, and extra_repr", function()
    local Net = nn.class("Net", nn.Module)
    function Net:init()
      self.conv = nn.Conv2d {1, 10, kernel_size = 5}
      self.body = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    end
    assert.equal([[
Net(
  (conv): Conv2d(1, 10, kernel_size=(5, 5), stride=(1, 1))
  (body): Sequential(
    (1): Linear(in_features=3, out_features=2, bias=true)
    (2): ReLU()
  )
)]], tostring(Net()))
  end)

  it("uses a user's extra_repr", function()
    local Scale = nn.class("Scale", nn.Module)
    function Scale:init(by) self.by = by end
    function Scale:extra_repr() return "by=" .. self.by end
    assert.equal("Scale(by=3)", tostring(Scale(3)))
  end)

  it("ends for a module that contains itself", function()
    local m = nn.Module()
    m.child = nn.Module()
    m.child.parent = m
    assert.equal("Module(\n  (child): Module(\n    (parent): Module(...)\n  )\n)", tostring(m))
    assert.equal(2, #m:modules())
    m:train(false)
    assert.is_false(m.child.training)
  end)

  it("shows arguments that are not a layer's defaults", function()
    assert.equal("Conv2d(4, 2, kernel_size=(3, 1), stride=(2, 2), padding=(1, 0), dilation=(2, 2), "
      .. "groups=2, bias=false)", tostring(nn.Conv2d {4, 2, {3, 1}, stride = 2, padding = {1, 0},
      dilation = 2, groups = 2, bias = false}))
    assert.equal("MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=false)",
      tostring(nn.MaxPool2d(2)))
    assert.equal("Dropout(p=0.25, inplace=false)", tostring(nn.Dropout(0.25)))
    assert.equal("Flatten(start_dim=2, end_dim=-1)", tostring(nn.Flatten()))
  end)
end)

describe("inheritance of modules", function()
  it("works over three levels, with super calls and metamethods", function()
    local Base = nn.class("Base", nn.Module)
    function Base:init(n) self.fc = nn.Linear(n, n) end
    function Base:forward(x) return self.fc(x) end
    function Base:__len() return 42 end
    local Middle = nn.class("Middle", Base)
    function Middle:init(n) Base.init(self, n) self.act = nn.ReLU() end
    function Middle:forward(x) return self.act(Base.forward(self, x)) end
    local Top = nn.class("Top", Middle)
    function Top:init(n) Middle.init(self, n) self.scale = nn.Parameter(moth.full({1}, 2)) end
    function Top:forward(x) return Middle.forward(self, x) * self.scale end
    function Top:__tostring() return "Top of " .. nn.Module.__tostring(self) end
    local net = Top(3)
    assert.equal("scale fc.weight fc.bias", names_of(net:named_parameters()))
    local x = moth.randn(2, 3)
    assert.close((F.relu(net.fc(x)) * 2):tolist(), net(x):tolist())
    assert.equal(42, getmetatable(net).__len(net))
    assert.is_truthy(tostring(net):find("^Top of Top%("))
  end)
end)
