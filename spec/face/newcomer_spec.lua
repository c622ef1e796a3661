--- newcomer_spec.lua -- typical mistakes of PyTorch users raise errors that say what to write.

local moth = require "moth"
local help = require "moth.help"
local intact = require "spec.support.intact"

local nn, F, optim, data = moth.nn, moth.nn.functional, moth.optim, moth.data
local refuses = intact.refuses
local launcher = debug.getregistry()["moth.launcher"] or {}

local function dataset(get)
  local Own = nn.class("Own", data.Dataset)
  function Own:len() return 4 end -- luacheck: ignore 212
  Own.get = get
  return Own()
end

describe("names in portable scripts", function()
  it("exist: backends.mps, distributions.transforms", function()
    assert.is_false(moth.backends.mps.is_available())
    local d = moth.distributions
    assert.equal(d.ExpTransform, d.transforms.ExpTransform)
    assert.equal(d.StickBreakingTransform, d.transforms.StickBreakingTransform)
    assert.error_matches(function() return moth.polar end, "moth.fft.polar")
  end)
end)

describe("an epoch", function()
  it("does not end where a sample is nil", function()
    local holes = dataset(function(_, i) if i ~= 3 then return moth.ones(2) end end)
    refuses(function()
      for _ in data.DataLoader(holes, { batch_size = 2 }) do moth.ones(1) end
    end, "sample 3 of the dataset is nil")
  end)

  it("is not a position of a dataset", function()
    local Adder = nn.class("Adder", data.Dataset)
    refuses(function() return (Adder()[1]) end, "an Adder has no [1]; write dataset:get(1)")
  end)

  it("does not end where a batch is nil", function()
    local loader = data.DataLoader(dataset(function() return moth.ones(2) end),
      { collate_fn = function() end })
    refuses(function() for _ in loader do moth.ones(1) end end, "collate_fn returned nil")
  end)

  it("raises for a class in place of an object", function()
    refuses(function() return (data.DataLoader(data.TensorDataset)) end,
      "got the class TensorDataset; create a dataset: TensorDataset(...)")
  end)

  it("needs len and get, not Python's names", function()
    local Odd = nn.class("Odd", data.Dataset)
    refuses(function() function Odd.__getitem() end end, "write function Odd:get(...)")
    function Odd.__len() return 3 end
    refuses(function() return (data.DataLoader(Odd(), { batch_size = 2 }):len()) end,
      "class 'Odd' has no method ':len()'; __len is not called for it")
  end)
end)

describe("a nil among values", function()
  local x = moth.ones(3, 3)
  local gone = ({}).gone -- a variable that was never set

  it("is reported, in sizes", function()
    refuses(function() return (moth.zeros(2, gone, 3)) end, "value 2 is nil")
    refuses(function() return (moth.zeros{ 2, gone, 3 }) end, "value 2 is nil")
    refuses(function() return (moth.randn(gone, 3)) end, "'size' to 'randn' (value 1 is nil)")
    refuses(function() return (x:reshape(gone, 3)) end, "value 1 is nil")
    refuses(function() return (x:view(3, gone, 3)) end, "value 2 is nil")
    assert.same({ 2, 3 }, { unpack(moth.zeros(2, 3, gone).shape) })
  end)

  it("is reported, in values and positions", function()
    refuses(function() return (moth.tensor{ 1, gone, 3 }) end, "value 2 is nil")
    refuses(function() return (moth.tensor{ { 1, 2, 3 }, { 1, gone, 3 } }) end,
      "data[2][2] is nil")
    refuses(function() return (x[{ 1, gone, 2 }]) end, "value 2 of an index is nil")
    refuses(function() return (x[{ { 1, gone, 2 } }]) end, "value 2 of index 1 is nil")
    refuses(function() x[1] = { 1, gone, 3 } end, "value 2 is nil")
    refuses(function() return (moth.cat{ x, gone, x }) end, "value 2 is nil")
  end)

  it("is also reported after assignment", function()
    local list = { 1 }
    list[3] = 3
    refuses(function() return (moth.tensor(list)) end, "value 2 is nil")
    refuses(function() return (moth.zeros(list)) end, "value 2 is nil")
    refuses(function() return (x[list]) end, "value 2 of an index is nil")
  end)
end)

describe("a result by its name in PyTorch", function()
  it("raises and says that it is a separate value", function()
    local x = moth.randn(3, 4)
    for _, name in ipairs{ "values", "indices" } do
      refuses(function() return (x:max(2)[name]) end, "local values, indices = x:max(2)")
      refuses(function() return (x[name](x)) end, "which a sparse one has as a method")
    end
    refuses(function() return (moth.linalg.qr(x).Q) end, "local Q, R = moth.linalg.qr(x)")
  end)
end)

describe("a habit from Python", function()
  it("with `with` is answered with a function", function()
    for _, name in ipairs{ "detect_anomaly", "no_grad", "enable_grad" } do
      refuses(function() return (moth.autograd[name]()) end, "a function is needed")
    end
  end)

  local x = moth.randn(2, 3)

  it("with nested parentheses is answered with braces", function()
    refuses(function() return (x:sum{ { -1, -2 } }) end, "take one pair of braces away")
    assert.equal(0, x:sum{ -1, -2 }.ndim)
  end)

  it("with braces around all arguments is answered with their number", function()
    local wanted = "take one pair of braces away"
    refuses(function() return (nn.MaxPool2d{{2, 2}}) end, wanted)
    refuses(function() return (nn.AdaptiveAvgPool2d{{2, moth.none}}) end, wanted)
    refuses(function() return (moth.transforms.Resize{{2, 2}}) end, wanted)
  end)

  it("of requesting complex numbers from stft names the argument to leave out", function()
    refuses(function() return (moth.stft(moth.randn(32), 8, { return_complex = true })) end,
      "leave it out")
  end)

  it("of replacing a buffer in a captured step is answered with a write in place", function()
    local Net = nn.class("Net", nn.Module)
    function Net:init() self:register_buffer("count", moth.zeros(1)) end
    function Net:forward(y)
      self.count = self.count + 1
      return y * 2
    end
    local net = Net()
    local step = moth.capture(function(y) return (net(y)) end)
    for _ = 1, 3 do step(x) end
    assert.is_truthy(step.why:find("'count' of Net has changed; write into it", 1, true))
    assert.equal(3, net.count:item())
  end)
end)

describe("two dtypes in one call", function()
  it("raise with the names of both arguments", function()
    refuses(function() return (nn.Linear(3, 4)(moth.ones(2, 3):double())) end,
      "bad argument 'input' to 'Linear' (f64 (2, 3) does not match the layer's weight, "
        .. "f32 (4, 3)")
  end)
end)

describe("a '.' in place of ':'", function()
  local x = moth.ones(3)

  it("is reported by the methods of tensors", function()
    for _, name in ipairs{ "backward", "item", "tolist", "detach", "free", "cpu", "to", "float",
                           "size", "dim", "type", "register_hook", "requires_grad_" } do
      refuses(function() x[name]() end, "call it with ':' -- x:" .. name .. "()")
      refuses(function() x[name](1) end, "call it with ':' -- x:" .. name .. "()")
    end
  end)

  it("is reported by modules, optimizers and loaders", function()
    local net = nn.Sequential(nn.Linear(3, 2))
    local sgd = optim.SGD(net:parameters(), { lr = 0.1 })
    local loader = data.DataLoader(moth.ones(3))
    for _, name in ipairs{ "train", "eval", "parameters", "state_dict", "to", "forward" } do
      refuses(function() net[name]() end, "call it with ':' -- net:" .. name .. "()")
      refuses(function() net[name](x) end, "call it with ':' -- net:" .. name .. "()")
    end
    refuses(function() net[1].forward(x) end, "call it with ':' -- net:forward()")
    refuses(function() sgd.step() end, "call it with ':' -- optimizer:step()")
    refuses(function() sgd.zero_grad() end, "call it with ':' -- optimizer:zero_grad()")
    refuses(function() loader.len() end, "call it with ':' -- loader:len()")
  end)

  it("is guessed if a tensor is in the module's place", function()
    local Net = nn.class("Net", nn.Module)
    function Net:init() self.fc = nn.Linear(3, 2) end
    function Net:forward(input) return (self.fc(input)) end
    local net = Net()
    local message = intact.message(function() net.forward(x) end)
    assert.is_truthy(message:find("a tensor has no field or method 'fc'; here it is the self of a "
      .. "method: call that with ':'", 1, true), message)
    assert.same({ 2 }, { unpack(net:forward(x).shape) })
  end)

  it("is right for a Function", function()
    local Same = nn.class("Same", moth.autograd.Function)
    function Same.forward(_, input) return input * 1 end
    function Same.backward(_, grad) return grad end
    refuses(function() return (Same:apply(x)) end, "write Same.apply(x)")
    assert.same({ 1, 1, 1 }, Same.apply(x):tolist())
  end)
end)

describe("Lua's own meaning of an operator", function()
  local x = moth.ones(3)

  it("raises for < and > with both methods", function()
    refuses(function() return (x > x) end, "tensors have no < or >; use a:lt(b) or a:gt(b)")
    refuses(function() return (x >= x) end, "use a:le(b) or a:ge(b)")
    refuses(function() return (x > 3) end, "use x:gt(3)")
  end)

  it("raises for loops over tensors and calls of them", function()
    refuses(function() return (x()) end, "a tensor cannot be called")
    refuses(function() for _ in ipairs(x) do moth.ones(1) end end, "for i = 1, #x do")
    refuses(function() for _ in pairs(x) do moth.ones(1) end end, "x:unbind()")
  end)

  it("counts sizes from 1 and from the end", function()
    local shape = moth.ones(2, 5).shape
    assert.equal(5, shape[-1])
    assert.equal(2, shape[-2])
    refuses(function() return (shape[0]) end, "dimensions count from 1, got 0")
    refuses(function() return (shape[9]) end,
      "dim 9 is out of range for the 2 dimensions of (2, 5)")
    refuses(function() return (shape[-3]) end, "dim -3 is out of range")
    assert.same({ 2, 5 }, { unpack(shape) })
    assert.equal(2, #shape)
  end)
end)

describe("a message", function()
  local x = moth.ones(2, 3)

  it("suggests only near names", function()
    local _, text = pcall(function() return x:lobpcg() end)
    assert.is_nil(text:find("did you mean", 1, true))
    refuses(function() return (moth.fork_rng) end,
      "moth has no 'fork_rng' (moth.help() lists what there is)")
    refuses(function() return (nn.QuantStub) end,
      "(moth.help() lists what there is)")
    refuses(function() return (F.relo) end, "(moth.help() lists what there is)")
  end)

  it("names the alternatives for torch.compile and torch.jit", function()
    for _, name in ipairs {"compile", "jit"} do
      refuses(function() return (moth[name]) end, ("moth has no '%s'; moth.capture replays a whole "
        .. "step as one call, moth.kernel makes a function of elements one pass"):format(name))
    end
  end)

  it("knows the argument names of other libraries", function()
    refuses(function() return (x:sum{ axis = 1 }) end, "did you mean 'dim'?")
    refuses(function() return (x:sum{ 1, keepdims = true }) end, "did you mean 'keepdim'?")
    refuses(function() return (F.relu{ x = x }) end, "did you mean 'input'?")
    refuses(function() return (nn.init.xavier_unform_) end, "did you mean 'xavier_uniform_'?")
  end)

  it("names the argument that is wrong", function()
    refuses(function() return (F.nll_loss(x, moth.rand(2, 3))) end,
      "targets are classes (integers from 1), got f32 (2, 3)")
    refuses(function() return (x:to("float64")) end, "write moth.float64")
    refuses(function() return (moth.full(2, 3, 7)) end, "'size' is one list here, as {2, 3}")
    refuses(function() return (moth.randint(0, 10, 2, 3)) end, "'size' is one list here, as {2, 3}")
  end)
end)

describe("a training by moth.fit", function()
  local net = nn.Linear(2, 3)
  local set = data.TensorDataset(moth.ones(4, 2), moth.arange(4) % 3)
  local function fit(arguments)
    arguments[1], arguments[2], arguments.progress = net, data.DataLoader(set, 2), false
    return function() return (moth.fit(arguments)) end
  end

  -- As refuses, which also compares the graph: the forward pass leaves nodes to the collector.
  local function raises(f, text)
    local ok, problem = pcall(f)
    assert.is_false(ok)
    local placed = problem:find "newcomer_spec.lua:%d+: "
    assert.is_truthy(placed and problem:find(text, 1, true), problem)
  end

  it("names the loss that refuses a class, not only moth.fit", function()
    local wanted = "bad argument 'target' to 'cross_entropy' (positions count from 1, got 0)"
    raises(fit{loss = F.cross_entropy, optimizer = optim.Adam}, wanted)
    raises(fit{loss = function(y, t) return F.cross_entropy(y, t) end, optimizer = optim.Adam},
      wanted)
    raises(function()
      return (moth.lr_find{net, data.DataLoader(set, 2), loss = F.cross_entropy,
        optimizer = optim.Adam})
    end, wanted)
  end)

  it("says what an absent argument is", function()
    raises(fit{loss = F.cross_entropy},
      "'optimizer' to 'fit' (a value is needed, got nothing: an optimizer, or its class")
    raises(fit{optimizer = optim.Adam},
      "(a function(output, target), such as F.cross_entropy, is needed, got nil)")
    raises(fit{criterion = F.cross_entropy, optimizer = optim.Adam}, "did you mean 'loss'?")
  end)

  it("says what is in the place of a loader", function()
    raises(function() return (moth.fit{net, optim.AdamW(net:parameters()), loss = F.mse_loss,
      optimizer = optim.Adam}) end, "(a DataLoader is needed, got an AdamW)")
    raises(function() return (moth.fit{net, nn.LSTM(1, 1), loss = F.mse_loss,
      optimizer = optim.Adam}) end, "got an LSTM")
    raises(function() return (moth.fit{net, net, loss = F.mse_loss, optimizer = optim.Adam}) end,
      "got a Linear")
  end)
end)

describe("a name of matplotlib, torchvision or torchvision.datasets", function()
  it("is answered with Moth's", function()
    refuses(function() return (moth.plot.plot) end, "moth.plot.lines draws curves")
    refuses(function() return (moth.plot.title) end, "titles and axes are arguments")
    refuses(function() return (moth.io.imread) end, "moth.io.read_image reads a picture")
    refuses(function() return (data.CIFAR10) end, "moth.data.ImageFolder a folder of pictures")
  end)

  it("is answered by a figure", function()
    local figure = moth.plot.lines{1, 2}
    refuses(function() return (figure.savefig) end,
      "a figure has no 'savefig'; figure:save(path) writes .svg, .png and .txt files")
    refuses(function() return (figure:set_title "x") end, "titles and axes are arguments")
    assert.is_nil(figure.title)
  end)

  it("is answered by a model that is to load pretrained weights", function()
    refuses(function() return (moth.models.resnet18{pretrained = true}) end,
      "did you mean 'weights'?")
    refuses(function() return (moth.models.resnet18{weights = "IMAGENET1K_V1"}) end,
      "'IMAGENET1K_V1' names a file that torchvision downloads; Moth downloads nothing")
  end)
end)

describe("a line of Python at the prompt", function()
  local explained = require("moth.repl.python").explained

  it("is answered with the Lua for it", function()
    for line, wanted in pairs {
      ["import torch"] = "local x = require", ["from torch import nn"] = "local x = require",
      ["print x"] = "print(x)", ["x += 1"] = "x = x + 1", ["if x != 1 then y() end"] = "~=",
      ["y = x ** 2"] = "x ^ 2", ["def f(x):"] = "function f(x)", ["y = x @ w"] = "a:matmul(b)",
      ["for i in range(10):"] = "for i = 1, 10 do", ["for x, y in loader:"] = "in loader do",
      ["with moth.no_grad():"] = "moth.no_grad(function()", ["f = lambda x: x"] = "function(x)",
      ["class Net(nn.Module):"] = "nn.class(", ["if x:"] = "if x then",
    } do
      assert.is_nil(loadstring(line))
      local text = explained("m", line)
      assert.is_truthy(text:find("^m %(") and text:find(wanted, 1, true), line .. " " .. text)
    end
  end)

  it("is also answered in a script, up to two lines above the message's", function()
    local located = require("moth.repl.python").located
    local text = "local x = 1\nx += 1\n"
    assert.is_truthy(located("(command line):2: m", nil, text):find("x = x + 1", 1, true))
    assert.equal("(command line):1: m", located("(command line):1: m", nil, text))
    if not launcher.program then return end
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write "local moth = require 'moth'\nfor i in range(10):\n  print(i)\nend\n"
    file:close()
    local pipe = io.popen(("'%s' %s 2>&1"):format(launcher.program, path))
    local output = pipe:read "*a"
    pipe:close()
    os.remove(path)
    assert.is_truthy(output:find("%d: [^\n]* %(a loop is: for i = 1, 10 do ... end%)\n$"), output)
  end)

  it("leaves errors of Lua as they are", function()
    for _, line in ipairs {"x = = 1", "if x == 1 y() end", "print('import x' 1)", "x = y.1",
                           "for i = 1, 3 print(i) end", "x = 'a += b' )", "-- x != y\nx = )"} do
      assert.is_nil(loadstring(line))
      assert.equal("m", explained("m", line))
    end
  end)
end)

describe("a module", function()
  it("says which fields are its methods", function()
    local net = nn.Sequential()
    refuses(function() net.train = nn.Linear(1, 1) end,
      "'train' is a method of Module; choose another name for the module")
    refuses(function() net.train = true end, "'train' is a method of Sequential; a field of that "
      .. "name would hide it; write net:train(); net.training is the mode")
    refuses(function() net.train = false end, "write net:eval()")
    refuses(function() net.eval = true end, "write net:eval()")
    for _, name in ipairs { "parameters", "to", "forward", "state_dict", "zero_grad", "modules" } do
      refuses(function() net[name] = { 1 } end, "choose another name for the field")
    end
    assert.is_true(net.training)
  end)

  it("may have fields and functions with names of some methods", function()
    local net = nn.Linear(1, 1)
    net.type, net.double, net.cuda, net.children = "linear", true, false, { 1 }
    assert.equal("linear", net.type)
    function net.forward(_, x) return x * 2 end
    assert.equal(6, net(moth.tensor{ 3 }):item())
    net.forward = nil
    net.training = false
    assert.is_false(net.training)
  end)

  it("has its constructor under init", function()
    local Net = nn.class("Net", nn.Module)
    refuses(function() function Net:__init() end end, -- luacheck: ignore 212
      "write function Net:init(...)")
  end)

  it("of Moth raises for more arguments than it takes", function()
    local relu = nn.ReLU()
    local x = moth.ones(2)
    refuses(function() return (relu(x, x)) end, "'ReLU' takes 1 argument, got one more: f32")
  end)

  it("returns a message that a state dict matched", function()
    local net = nn.Linear(2, 3)
    assert.equal("<All keys matched>", tostring(net:load_state_dict(net:state_dict())))
    local keys = net:load_state_dict({}, { strict = false })
    assert.is_truthy(tostring(keys):find("missing: 'weight', 'bias'", 1, true))
  end)
end)

describe("help", function()
  local function has(what, text)
    local page = help.text(what)
    assert.is_truthy(page:find(text, 1, true), page)
  end

  it("shows the comments above functions and classes", function()
    has("no_grad", "gradients turned off")
    has("scope", "a function, written at")
    has("backward", "x:backward{gradient")
    has("DataLoader", "Batches of a dataset.")
    has(nn.LSTM, "Long short-term memory")
    has(nn.CrossEntropyLoss, "As F.cross_entropy: ")
    has(nn.ReflectionPad2d, "Adds a border that mirrors the input without its edge, to images, ")
    has(nil, "moth.help(F.conv2d)")
    has(nil, "Linear")
  end)

  it("suggests from all names", function()
    refuses(function() return (help.text "scop") end, "did you mean 'scope'?")
    refuses(function() return (help.text "Lineer") end, "did you mean 'Linear'?")
  end)
end)

describe("the prompt", function()
  -- Types into a prompt; the list also contains steps of the shell in between.
  local function prompt(steps)
    local code = "io.stdout:setvbuf('no') require('moth.repl').main()"
    local pipe = io.popen(("(%s) | '%s' -e \"%s\" 2>&1 & job=$!; sleep 1.5; kill -INT $job; "
      .. "wait $job"):format(steps, launcher.program, code))
    local text = pipe:read "*a"
    pipe:close()
    return text
  end

  if not launcher.program then return end

  it("drops an unfinished line at Ctrl-C and continues", function()
    local text = prompt("echo 'for i = 1, 2 do'; sleep 3; echo 'print(6 * 7)'")
    assert.is_truthy(text:find("  .. \n[1]> 42", 1, true), text)
  end)

  it("shows an error without Moth's lines of the traceback", function()
    local text = prompt("sleep 3; echo 'moth.ones(2):foo()'")
    assert.is_truthy(text:find("[1]:1: a tensor has no field or method 'foo'", 1, true), text)
    assert.is_nil(text:find("traceback", 1, true), text)
  end)
end)
