--- script_spec.lua -- ordinary code of PyTorch scripts works, or raises and says what to write.

local moth = require "moth"
local help = require "moth.help"
local intact = require "spec.support.intact"

local nn, F, data = moth.nn, moth.nn.functional, moth.data
local refuses = intact.refuses

describe("a target of the wrong dtype", function()
  local x = moth.randn(3, 5)

  it("names the remedy where classes are wanted", function()
    local classes = moth.tensor{ 1, 2, 3 } -- Lua numbers: f32
    refuses(function() return (F.cross_entropy(x, classes)) end,
      "targets are classes (integers from 1; convert with :long()) or probabilities of the "
      .. "input's shape, (3, 5), got f32 (3)")
    refuses(function() return (nn.CrossEntropyLoss()(x, classes)) end, "convert with :long()")
    refuses(function() return (F.nll_loss(x, classes)) end, "got f32 (3); convert with :long()")
    refuses(function() return (F.embedding(classes, x)) end, "convert with :long()")
    refuses(function() return (x:gather(1, classes:view(1, 3))) end, "convert with :long()")
    refuses(function() return (F.cross_entropy(x, moth.rand(3, 4))) end, "got f32 (3, 4)")
  end)

  it("names the remedy where numbers are wanted", function()
    local whole = moth.tensor{ 1LL, 0LL, 1LL }
    refuses(function() return (F.binary_cross_entropy_with_logits(moth.randn(3), whole)) end,
      "convert with :float()")
  end)
end)

describe("a loader or a dataset", function()
  local set = data.TensorDataset(moth.ones(4, 2))
  local loader = data.DataLoader{ set, batch_size = 2 }

  it("raises for an index", function()
    refuses(function() return loader[1] end, "write `for x, y in loader do`")
    refuses(function() return set[1] end, "write dataset:get(1)")
    local Own = nn.class("Own", data.Dataset)
    refuses(function() return Own()[3] end, "write dataset:get(3)")
    assert.is_nil(set.nothing)
  end)

  it("says what to write for values that a loader cannot collate", function()
    local parts = data.random_split(set, { 2, 2 })
    refuses(function() return (data.DataLoader(parts)) end,
      "got a list of 2 datasets; write local a, b = unpack(list)")
    refuses(function() return (data.DataLoader(nil, { batch_size = 2 })) end, -- luacheck: ignore
      "got nothing (from random_split? it returns one list: local a, b = unpack(list))")
    assert.equal(2, data.DataLoader{ set, batch_size = 2, num_workers = 0, pin_memory = false }
      :len())
    refuses(function() return (data.DataLoader{ set, timeout = 2 }) end,
      "needs workers, but num_workers is 0")
  end)
end)

describe("a device", function()
  local device = moth.device("cpu")

  it("is chosen as in PyTorch", function()
    assert.equal("cpu", tostring(device))
    assert.equal("using cpu", "using " .. device)
    assert.equal("cpu", device.type)
    assert.is_nil(device.index)
    assert.equal(moth.cuda.is_available(), moth.cuda.device_count() > 0)
    assert.equal(device, moth.ones(2).device)
    assert.equal(device, moth.device(device))
    assert.is_false(moth.ones(2).is_cuda)
  end)

  it("is accepted wherever a device is an argument", function()
    local net = nn.Linear(2, 2)
    local x = moth.ones(2)
    assert.equal(net, net:to(device))
    assert.equal(x, x:to(device))
    assert.equal(x, x:to("cpu"))
    assert.equal(moth.float64, x:to(device, moth.float64).dtype)
    assert.equal(moth.float64, x:to{ device = device, dtype = moth.float64 }.dtype)
    assert.equal(device, moth.zeros(2, { device = device }).device)
    assert.equal(device, moth.tensor({ 1, 2 }, { device = device }).device)
    assert.equal(device, nn.Linear(2, 2, { device = device }).weight.device)
  end)

  it("that does not exist raises an error", function()
    local text = moth.cuda.is_available() and "there is no cuda:99; this machine has cuda:0"
      or "no CUDA device: libmoth_cuda.so was not found"
    refuses(function() return (moth.ones(2):to("cuda:99")) end, text)
    refuses(function() return (moth.ones(2):to(moth.device("cuda:99"))) end, text)
    refuses(function() return (moth.ones(2):cuda(99)) end, text)
    refuses(function() return (nn.Linear(2, 2):to("cuda:99")) end, text)
    refuses(function() return (nn.Linear(2, 2):cuda(99)) end, text)
    refuses(function() return (moth.ones(2, { device = "cuda:99" })) end, text)
    refuses(function() return (moth.device("gpu")) end, "'cpu' or 'cuda', got 'gpu'")
  end)
end)

describe("an alias", function()
  local x = moth.tensor{ -1, 2, 3 }

  it("is the same function", function()
    assert.same({ -1, 2, 3, -1, 2, 3 }, moth.concat({ x, x }):tolist())
    assert.same({ 0, 2, 2 }, x:clip(0, 2):tolist())
    assert.same({ 0, 2, 2 }, x:clone():clip_(0, 2):tolist())
    assert.same({ -2, 4, 6 }, x:multiply(2):tolist())
    assert.same({ 1, 2, 3 }, moth.absolute(x):tolist())
    assert.same({ false, true, true }, x:greater(0):tolist())
    assert.same({ true, false, true }, moth.not_equal(x, 2):tolist())
    assert.equal(3, moth.inference_mode(function() return 3 end))
  end)

  it("is the name in messages and help", function()
    refuses(function() return (x:clip("a")) end, "'min' to 'clip'")
    assert.is_truthy(help.text("clip"):find("another name of clamp", 1, true), help.text("clip"))
    refuses(function() return (moth.concatenat) end, "did you mean 'concatenate'?")
  end)
end)

describe("a module", function()
  it("of a list is found by its position or its path", function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    refuses(function() return (net:get_submodule("2")) end,
      'names count from 0: net[2] is "1"')
    refuses(function() return net[0] end, "positions are 1 to 2")
    refuses(function() return net[3] end, "positions are 1 to 2")
    refuses(function() return nn.ModuleList{}[1] end, "it is empty")
    local count = 0
    for _ in ipairs(net) do count = count + 1 end
    assert.equal(2, count)
    assert.equal(net[2], net[-1])
  end)

  it("shows the number of its channels", function()
    refuses(function() return (nn.BatchNorm2d(3)(moth.randn(2, 4, 5, 5))) end,
      "in BatchNorm2d: bad argument 'input' to 'batch_norm' (f32 (2, 4, 5, 5) has 4 channels, "
      .. "but the running statistics have 3)")
  end)

  it("accepts tensors, not tables, as parameters", function()
    refuses(function() return (nn.Parameter({ 1, 2 })) end,
      "a tensor is needed, got a table; write moth.tensor{1, 2}")
  end)
end)

describe("a misspelt method", function()
  local launcher = debug.getregistry()["moth.launcher"] or {}
  if not launcher.program then return end

  -- The error output of a script that fails.
  local function complaint(code)
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write("local moth = require 'moth'\nlocal nn = moth.nn\n", code)
    file:close()
    local pipe = io.popen(("'%s' '%s' 2>&1"):format(launcher.program, path))
    local text = pipe:read "*a"
    pipe:close()
    os.remove(path)
    return text
  end

  it("is followed by the right name if the script ends because of it", function()
    local text = complaint "local net = nn.Linear(1, 1) net:zero_gard()"
    assert.is_truthy(text:find("(a nil value); did you mean 'zero_grad'?", 1, true), text)
    text = complaint("local Net = nn.class('Net', nn.Module)\n"
      .. "function Net:forward(x) return (self:hiden(x)) end\nfunction Net:hidden(x) return x end\n"
      .. "Net()(moth.ones(1))")
    assert.is_truthy(text:find("did you mean 'hidden'?", 1, true), text)
    text = complaint("local F = nn.class('F', moth.autograd.Function)\n"
      .. "function F.forward(ctx, x) ctx:save_for_backwards(x) return x end F.apply(moth.ones(1))")
    assert.is_truthy(text:find("did you mean 'save_for_backward'?", 1, true), text)
    text = complaint "local sgd = moth.optim.SGD({moth.ones(1)}, {lr = 1}) sgd:setp()"
    assert.is_truthy(text:find("did you mean 'step'?", 1, true), text)
  end)

  it("says what to write for Python's words", function()
    local text = complaint "for p in nn.Linear(1, 1):parameters() do print(p) end"
    assert.is_truthy(text:find("ipairs(list)", 1, true), text)
    text = complaint "for _, p in ipairs(nn.Linear(1, 1):named_parameters()) do print(p) end"
    assert.is_truthy(text:find("needs no ipairs", 1, true), text)
    text = complaint "print(('%.3f'):format(moth.ones(1)))"
    assert.is_truthy(text:find("x:item()", 1, true), text)
  end)

  it("says that a called object is no module", function()
    local text = complaint("local Net = nn.class 'Net'\nfunction Net:forward(x) return x end\n"
      .. "local net = Net()\nprint(net(1))")
    assert.is_truthy(text:find('(Net is no module: nn.class("Net", nn.Module)', 1, true), text)
    text = complaint "local t = {} print(t(1))"
    assert.is_nil(text:find("module", 1, true), text)
  end)

  it("is nil when it is only read; Lua's own message remains if no name is near", function()
    local dotted = complaint "moth.data.TensorDataset(moth.ones(3)).get(1)"
    assert.is_truthy(dotted:find("call it with ':': x:name()", 1, true), dotted)
    local text = complaint "assert(nn.Linear(1, 1).zero_gard == nil) print 'fine'"
    assert.equal("fine\n", text)
    text = complaint "local net, t = nn.Linear(1, 1), {} t:zzz()"
    assert.is_nil(text:find("did you mean", 1, true), text)
  end)
end)

describe("the prompt", function()
  local launcher = debug.getregistry()["moth.launcher"] or {}
  if not launcher.program then return end

  local function prompt(lines)
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write(lines)
    file:close()
    local pipe = io.popen(("'%s' -e \"require('moth.repl').main()\" < '%s' 2>&1"):format(
      launcher.program, path))
    local text = pipe:read "*a"
    pipe:close()
    os.remove(path)
    return text
  end

  it("says how to exit, and exits", function()
    local text = prompt("exit\nquit\nhelp\nhelp(F.relu)\nhelp 'conv2d'\nquit()\nprint(6 * 7)\n")
    assert.is_truthy(text:find("exit() or Ctrl-D leaves", 1, true), text)
    assert.is_truthy(text:find("quit() or Ctrl-D leaves", 1, true), text)
    assert.is_truthy(text:find("help(F.conv2d)", 1, true), text)
    assert.is_truthy(text:find("relu(input", 1, true), text)
    assert.is_truthy(text:find("conv2d(input", 1, true), text)
    assert.is_nil(text:find("42", 1, true), text)
  end)

  it("drops an unfinished line at Ctrl-D", function()
    local repl = require "moth.repl"
    local input = { read = function() end, remember = function() end }
    assert.is_nil(repl.read(input, 1))
    local lines = { "for i = 1, 2 do" }
    function input.read() return table.remove(lines, 1) end
    assert.is_false(repl.read(input, 1))
  end)
end)
