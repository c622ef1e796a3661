-- Sequential, ModuleList and ModuleDict; arguments of constructors; and the module path in error
-- messages.

local moth = require "moth"
local nn, F = moth.nn, moth.nn.functional

local function names_of(iterator)
  local list = {}
  for name in iterator do list[#list + 1] = name end
  return table.concat(list, " ")
end

describe("Sequential", function()
  it("runs its modules in order", function()
    local seq = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    local x = moth.randn(4, 2)
    assert.close(seq[3](F.relu(seq[1](x))):tolist(), seq(x):tolist())
  end)

  it("returns its input if it is empty", function()
    assert.equal(5, nn.Sequential()(moth.tensor(5)):item())
  end)

  it("accepts modules, a list of them, names with them, or a table by names", function()
    assert.equal(2, #nn.Sequential(nn.ReLU(), nn.Tanh()))
    assert.equal(2, #nn.Sequential {nn.ReLU(), nn.Tanh()})
    local named = nn.Sequential {{"lin", nn.Linear(2, 3)}, {"act", nn.ReLU()}}
    assert.equal(named[1], named.lin)
    assert.equal("lin.weight lin.bias", names_of(named:named_parameters()))
    assert.equal("lin act", names_of(nn.Sequential({"lin", nn.ReLU()}, {"act", nn.ReLU()})
      :named_children()))
  end)

  it("raises for lists without names in a table, gaps, or an element 0", function()
    local relu, tanh = nn.ReLU(), nn.Tanh()
    local function refused(make, pattern)
      assert.has_error_like(make, pattern)
    end
    refused(function() nn.Sequential {b = relu, a = tanh} end,
      "'Sequential' %(names in a table have no order, got '[ab]'; write {{'[ab]', module}")
    refused(function() nn.Sequential {relu, act = tanh} end, "no order, got 'act'")
    refused(function() nn.ModuleList {a = relu} end, "'ModuleList' %(names .* write nn.ModuleDict")
    refused(function() nn.Sequential {[0] = relu, tanh} end, "lists count from 1")
    refused(function() nn.ModuleList {[0] = relu, tanh} end, "lists count from 1")
    refused(function() nn.ModuleList {relu, nil, tanh} end, "value 2 is nil")
    refused(function() nn.Sequential(relu, nil, tanh) end, "element 2 is nil")
  end)

  it("passes on only the first value", function()
    local Two = nn.class("Two", nn.Module)
    function Two:forward(x) return x + 1, "state" end
    assert.equal(3, nn.Sequential(Two(), Two())(moth.tensor(1)):item())
    assert.equal(1, select("#", nn.Sequential(Two())(moth.tensor(1))))
  end)

  it("sees modules that are replaced, added and removed between calls", function()
    local Add = nn.class("Add", nn.Module)
    function Add:init(by) self.by = by end
    function Add:forward(x) return x + self.by end
    local seq, x = nn.Sequential(Add(1), Add(10)), moth.tensor(0)
    assert.equal(11, seq(x):item())
    seq[1] = Add(2)
    assert.equal(12, seq(x):item())
    seq:append(Add(100))
    assert.equal(112, seq(x):item())
    seq:pop(1)
    assert.equal(110, seq(x):item())
  end)

  it("works with as many modules as the generated code has, and with more", function()
    for _, n in ipairs {50, 56, 60, 64, 70} do
      local seq = nn.Sequential()
      for _ = 1, n do seq:append(nn.Identity()) end
      assert.equal(4, seq(moth.tensor(4)):item())
      local tanh = nn.Sequential()
      for _ = 1, n do tanh:append(nn.Tanh()) end
      assert.equal(0, tanh(moth.tensor(0)):item())
      local passes = tanh[nn.Module.store_key].passes
      tanh(moth.tensor(0))
      assert.equal(passes, tanh[nn.Module.store_key].passes) -- not checked again
      tanh[n] = nn.Identity()
      tanh[1] = nn.Linear(1, 1)
      assert.is_truthy(tanh(moth.ones(1)).grad_fn)
    end
  end)

  -- Calls net twice; before the second call its Tanhs begin to store their inputs.
  local function inputs_kept(net, x)
    local kept, forward = {}, nn.Tanh.forward
    net(x)
    nn.Tanh.forward = function(self, input)
      kept[#kept + 1] = input
      return forward(self, input)
    end
    local ok, problem = pcall(net, x)
    nn.Tanh.forward = forward
    assert.is_true(ok, problem)
    return kept
  end

  it("frees no tensors that a forward stores, if its class got it after a first call", function()
    local linear, x = nn.Linear(2, 3), moth.randn(4, 2)
    local inner = nn.Sequential(linear, nn.Tanh())
    for _, net in ipairs {inner, nn.Sequential(nn.Identity(), nn.Sequential(inner))} do
      local kept = inputs_kept(net, x)
      assert.equal(1, #kept)
      assert.close(linear(x):tolist(), kept[1]:tolist())
    end
  end)

  it("frees no tensors that a module stores, if it replaced one of a nested list", function()
    local kept = {}
    local Keep = nn.class("Keep", nn.Module)
    function Keep:forward(x) -- luacheck: no unused args
      kept[#kept + 1] = x
      local y = x * 2
      kept[#kept + 1] = y
      return y
    end
    local inner = nn.Sequential(nn.Tanh(), nn.Tanh())
    local block = moth.models.DoubleConv(1, 1)
    block.double_conv = nn.Sequential(nn.Tanh(), nn.Tanh())
    local x = moth.ones(2)
    for _, case in ipairs {{inner, nn.Sequential(nn.Tanh(), nn.Sequential(inner), nn.Tanh())},
                           {block.double_conv, nn.Sequential(nn.Tanh(), block, nn.Tanh())}} do
      local list, net = case[1], case[2]
      net(x)
      list[2] = Keep() -- a raw assignment
      net(x)
      assert.close(2 * kept[#kept - 1]:sum():item(), kept[#kept]:sum():item())
      list[2] = nn.Tanh()
      net(x)
      list:append(Keep())
      net(x)
      assert.close(2 * kept[#kept - 1]:sum():item(), kept[#kept]:sum():item())
    end
    assert.equal(8, #kept)
  end)

  it("frees intermediate results of nested lists before the next collection", function()
    local function block() return nn.Sequential(nn.Tanh(), nn.Sequential(nn.Tanh(), nn.Tanh())) end
    local net, x = nn.Sequential(), moth.ones(2 ^ 16)
    for _ = 1, 6 do net:append(block()) end
    moth.no_grad(function()
      net(x)
      collectgarbage()
      collectgarbage "stop"
      moth.reset_peak_memory()
      local before = moth.memory().live_bytes
      net(x)
      assert.is_true(moth.memory().peak_bytes - before <= 3 * 2 ^ 18)
      collectgarbage "restart"
    end)
  end)

  it("returns a range of its modules as a Sequential", function()
    local net, x = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 3)), moth.randn(2, 2)
    assert.is_true(net(x):equal(net[{2, 3}](net[{1, 1}](x))))
  end)

  it("keeps names in a range, as PyTorch does, and uses none twice", function()
    local part = nn.Sequential(nn.ReLU(), nn.Linear(1, 1), nn.Linear(1, 1))[{2, 3}]
    part:append(nn.Linear(1, 1))
    assert.same({"1.weight", "1.bias", "2.weight", "2.bias", "3.weight", "3.bias"},
      part:state_dict():keys())
  end)

  it("names an argument that is no module", function()
    assert.has_error_like(function() nn.Sequential(nn.ReLU(), 3) end,
      "element 2 is 3, not a module")
    assert.has_error_like(function() nn.Sequential {{"a", nn.ReLU()}, {"a", nn.ReLU()}} end,
      "the name 'a' occurs twice")
  end)
end)

describe("ModuleList", function()
  local function list()
    return nn.ModuleList {nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4)}
  end

  it("is a list: #, ipairs, positions from both ends", function()
    local l, seen = list(), {}
    for i, m in ipairs(l) do seen[i] = nn.typename(m) end
    assert.same({"Linear", "ReLU", "Linear"}, seen)
    assert.equal(3, #l)
    assert.equal(3, l:len())
    assert.equal(l[3], l[-1])
    assert.has_error(function() return l[4] end)
  end)

  it("registers its modules under PyTorch's names, which count from 0", function()
    local Net = nn.class("Net", nn.Module)
    function Net:init() self.layers = list() end
    assert.same({"layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"},
      Net():state_dict():keys())
  end)

  it("grows, shrinks and accepts other modules", function()
    local l = nn.ModuleList()
    assert.equal(l, l:append(nn.ReLU()))
    l:extend {nn.Tanh(), nn.Identity()}
    l[4] = nn.Sigmoid()
    l:insert(1, nn.Flatten())
    l[2] = nn.Dropout()
    l[-1] = nn.Softmax(1)
    local first = l:pop(1)
    local names = {}
    for i, m in ipairs(l) do names[i] = nn.typename(m) end
    assert.same({"Dropout", "Tanh", "Identity", "Softmax"}, names)
    assert.equal("Flatten", nn.typename(first))
    assert.equal("Softmax", nn.typename(l:pop()))
  end)

  it("returns a range of its modules as a list", function()
    local l = list()
    assert.equal("ModuleList", nn.typename(l[{2, 3}]))
    assert.is_true(#l[{2, -1}] == 2 and l[{2, -1}][1] == l[2] and #l[{1, 3, 2}] == 2)
    local params = nn.ParameterList {moth.ones(1), moth.ones(2), moth.ones(3)}
    assert.is_true(params[{2, 3}][1] == params[2])
    assert.has_error_like(function() return l[{2, 4}] end,
      "range {2, 4} leaves a ModuleList of size 3")
    assert.has_error_like(function() return l[{}] end, "range {} must hold integers")
  end)

  it("names the valid positions", function()
    local l = list()
    assert.has_error_like(function() l[7] = nn.ReLU() end,
      "ModuleList%[7%]: positions are 1 to 4")
    assert.has_error_like(function() l[4] = 3 end, "a module is needed, got 3")
    assert.has_error_like(function() l:pop(5) end, "positions are 1 to 3, got 5")
    assert.has_error_like(function() l:insert(0, nn.ReLU()) end, "positions are 1 to 4, got 0")
    assert.has_error_like(function() l:extend {nn.ReLU(), "x"} end, "a module is needed")
    assert.equal(3, #l)
  end)

  it("raises if nil was assigned to a module in its middle", function()
    local l = list()
    l[1] = nil
    assert.has_error_like(function() l:parameters() end,
      "ModuleList%[1%] is nil, with modules after it; remove modules with pop%(1%)")
    l[1] = nn.ReLU()
    l[3] = nil
    assert.equal(0, #l:parameters())
    assert.equal(3, #l:modules())
  end)

  it("has no forward", function()
    assert.has_error_like(function() list()(moth.ones(1)) end,
      "class 'ModuleList' has no method ':forward%(%.%.%.%)'")
  end)
end)

describe("ModuleDict", function()
  it("registers a table's modules in sorted order, and pairs in their order", function()
    assert.same({"alpha", "mid", "zeta"},
      nn.ModuleDict {zeta = nn.ReLU(), alpha = nn.ReLU(), mid = nn.ReLU()}:keys())
    assert.same({"zeta", "alpha"}, nn.ModuleDict {{"zeta", nn.ReLU()}, {"alpha", nn.ReLU()}}:keys())
  end)

  it("reads, assigns, queries and removes by name", function()
    local d = nn.ModuleDict {fc = nn.Linear(1, 1)}
    d.act = nn.ReLU()
    assert.is_true(d:contains "act")
    assert.is_false(d:contains "forward")
    assert.equal(2, d:len())
    assert.equal("Linear", nn.typename(d:pop "fc"))
    assert.same({"act"}, d:keys())
    assert.has_error_like(function() d:pop "acct" end, "no module 'acct'; did you mean 'act'%?")
    d:update {more = nn.Tanh()}
    assert.equal("act more", names_of(d:items()))
    d:clear()
    assert.equal(0, d:len())
  end)

  it("raises for names that are methods, and for values that are no modules", function()
    assert.has_error_like(function() nn.ModuleDict {forward = nn.ReLU()} end,
      "a field or method of that name")
    assert.has_error_like(function() nn.ModuleDict {a = 3} end, "a module is needed, got 3")
    assert.has_error_like(function() nn.ModuleDict {nn.ReLU()} end, "element 1 is .*not {name,")
  end)

  it("puts its modules under its name in a state dict", function()
    local Net = nn.class("Net", nn.Module)
    function Net:init() self.heads = nn.ModuleDict {b = nn.Linear(1, 1), a = nn.Linear(1, 1)} end
    assert.same({"heads.a.weight", "heads.a.bias", "heads.b.weight", "heads.b.bias"},
      Net():state_dict():keys())
  end)
end)

describe("an error inside a network", function()
  local Net = nn.class("Net", nn.Module)
  function Net:init()
    self.layers = nn.ModuleList {nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 4))}
    self.head = nn.ModuleDict {out = nn.Linear(9, 9)}
  end
  function Net:forward(x, skip)
    if skip then
      local y = self.head.out(x)
      return y
    end
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return x
  end

  local function raised(fn)
    local ok, message = pcall(fn)
    assert(not ok, "no error")
    return message
  end

  it("begins with the user's line and the path of the module", function()
    local net = Net()
    local message = raised(function() local y = net(moth.randn(1, 5)) return y and 1 end)
    assert.is_truthy(message:find("containers_spec%.lua:%d+: in net%.layers%[1%]: bad argument"))
    assert.is_truthy(message:find("'input' to 'linear'", 1, true))
    assert.is_truthy(message:find("f32 (1, 5)", 1, true))
  end)

  it("has the path through nested containers", function()
    local net = Net()
    assert.has_error_like(function() local y = net(moth.randn(1, 2)) return y and 1 end,
      "in net%.layers%[2%]%[2%]: bad argument 'input' to 'linear'")
    assert.has_error_like(function() local y = net(moth.randn(1, 2), true) return y and 1 end,
      "in net%.head%.out: ")
  end)

  it("names the class if the network is in no variable", function()
    assert.has_error_like(function() local y = Net()(moth.randn(1, 5)) return y and 1 end,
      "in Net%.layers%[1%]: ")
  end)

  it("also has the path for a network's own call of a function", function()
    local Bad = nn.class("Bad", nn.Module)
    function Bad:forward(x)
      local y = F.max_pool2d(x, 9)
      return y
    end
    local bad = Bad()
    assert.has_error_like(function() local y = bad(moth.ones(2, 3, 8, 8)) return y and 1 end,
      "in bad: bad argument 'kernel_size' to 'max_pool2d' %({9, 9} does not fit f32 %(2, 3, 8, 8%)")
  end)

  it("does not affect the network or the path of the next error", function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    pcall(function() net(moth.ones(1, 3)) end)
    assert.equal(2, net(moth.ones(1, 2)):size(2))
    assert.has_error_like(function() moth.ones(2):view(3) end, "containers_spec%.lua:%d+: bad")
  end)

  it("names a missing or misspelt forward", function()
    local Typo = nn.class("Typo", nn.Module)
    function Typo:foward(x) return x end
    assert.has_error_like(function() Typo()(1) end,
      "class 'Typo' has no method ':forward%(%.%.%.%)'; did you mean 'foward'%?")
  end)
end)

describe("a constructor", function()
  it("accepts arguments in order, by name, or mixed", function()
    for _, m in ipairs {nn.Conv2d(1, 10, 5), nn.Conv2d {1, 10, kernel_size = 5},
                        nn.Conv2d {in_channels = 1, out_channels = 10, kernel_size = 5},
                        nn.Conv2d(1, 10, {kernel_size = 5})} do
      assert.same({5, 5}, m.kernel_size)
      assert.equal(10, m.out_channels)
    end
    assert.same({5, 3}, nn.Conv2d(1, 10, {5, 3}).kernel_size)
  end)

  it("suggests the nearest argument for an unknown one", function()
    assert.has_error_like(function() nn.Conv2d {1, 2, kernel_sise = 3} end,
      "'Conv2d' has no argument 'kernel_sise'; did you mean 'kernel_size'%?")
    assert.has_error_like(function() nn.Dropout {prob = 0.5} end, "'Dropout' has no argument 'prob")
  end)

  it("names a missing argument and an argument of a wrong kind, at the user's line", function()
    local line = debug.getinfo(1, "l").currentline + 1
    assert.has_error_like(function() nn.Conv2d(1) end, "containers_spec%.lua:" .. line ..
      ": bad argument 'out_channels' to 'Conv2d' %(an integer is needed, got nothing%)")
    assert.has_error_like(function() nn.Linear(2, "x") end,
      "bad argument 'out_features' to 'Linear'")
    assert.has_error_like(function() nn.Linear(2, 1.5) end,
      "bad argument 'out_features' to 'Linear'")
  end)

  it("checks its values", function()
    assert.has_error_like(function() nn.Conv2d {3, 4, 2, groups = 2} end,
      "bad argument 'in_channels' to 'Conv2d' %(3 is no multiple of groups, 2%)")
    assert.has_error_like(function() nn.Conv2d {3, 4, 0} end, "'kernel_size' to 'Conv2d'")
    assert.has_error_like(function() nn.Dropout(1.5) end,
      "a probability from 0 to 1 is needed, got 1%.5")
    assert.has_error_like(function() nn.CrossEntropyLoss {reduction = "avg"} end,
      "one of 'mean', 'sum', 'none' is needed, got 'avg'")
  end)

  it("with a misspelt name raises an error that suggests the right name", function()
    assert.has_error_like(function() return nn.Lineer end,
      "moth%.nn has no 'Lineer'; did you mean 'Linear'%?")
    assert.has_error_like(function() return F.max_pol2d end, "did you mean 'max_pool2d'%?")
    assert.has_error_like(function() return moth.autograd.gradchek end, "'gradcheck'%?")
    assert.has_error_like(function() return nn.utils.rnn.pad end, "moth.nn.utils.rnn has no 'pad'")
    assert.has_error_like(function() return moth.optim.Adm end, "did you mean 'Adam'%?")
  end)
end)

describe("help", function()
  -- The standard output of a function.
  local function printed(fn)
    local path, old = os.tmpname(), io.output()
    io.output(path)
    local ok, message = pcall(fn)
    io.output():close()
    io.output(old)
    local file = assert(io.open(path))
    local text = file:read("*a")
    file:close()
    os.remove(path)
    assert(ok, message)
    return text
  end

  it("of a layer shows its arguments and defaults", function()
    local text = printed(function() moth.help(nn.Conv2d) end)
    for _, wanted in ipairs {"Conv2d", "in_channels", "kernel_size", "stride", "groups", "= 1"} do
      assert.is_truthy(text:find(wanted, 1, true), wanted .. " is not in\n" .. text)
    end
  end)

  it("of a function shows its arguments and its source line", function()
    local text = printed(function() moth.help(F.conv2d) end)
    for _, wanted in ipairs {"conv2d", "weight", "dilation", "core/op/conv.c"} do
      assert.is_truthy(text:find(wanted, 1, true), wanted .. " is not in\n" .. text)
    end
  end)

  it("of an optimizer shows its options", function()
    local text = printed(function() moth.help(moth.optim.SGD) end)
    assert.is_truthy(text:find("momentum", 1, true), text)
  end)
end)
