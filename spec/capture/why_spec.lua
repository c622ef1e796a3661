-- A captured step detects replaced modules and changed values, and says why it was recorded again.

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local x = moth.ones(1, 2)

-- A layer that multiplies by k.
local function times(k)
  local layer = nn.Linear(2, 2, false)
  layer.weight.data = moth.eye(2) * k
  return layer
end

describe("values that a captured step reads from outside", function()
  -- The results of calls of a step, with `change` before each call except the first.
  local function calls(step, change)
    local list = {}
    for k = 1, 3 do
      if k > 1 then change(k) end
      list[k] = step(x):sum():item()
    end
    return list, step.why
  end

  it("are watched: numbers, booleans and tensors in variables of the step", function()
    local by, twice, more = 1, false, moth.zeros(2)
    local step = moth.capture(function(input) return (input * by * (twice and 2 or 1) + more) end)
    local list, why = calls(step, function(k) by = k end)
    assert.same({2, 4, 6}, list)
    assert.is_truthy(why:find("'by', which the function takes from outside, is 3 now, and was 2 "
      .. "before", 1, true), why)
    assert.same({6, 12, 12}, (calls(step, function() twice = true end)))
    list, why = calls(step, function(k) more = moth.ones(2) * k end)
    assert.same({12, 16, 18}, list)
    assert.is_truthy(why:find("'more', which the function takes from outside, is another tensor", 1,
      true), why)
  end)

  it("also in plain tables, in called functions, and in globals by their names", function()
    local options = {scale = 1, inner = {[2] = 1}}
    local function helper(input) return input * options.inner[2] end
    rawset(getfenv(1), "offset_of_step", 0)
    local step = moth.capture(function(input)
      return helper(input) * options.scale + offset_of_step -- luacheck: ignore
    end)
    assert.same({2, 4, 6}, (calls(step, function(k) options.scale = k end)))
    local list, why = calls(step, function(k) options.inner[2] = k end)
    assert.same({6, 12, 18}, list)
    assert.is_truthy(why:find("'options.inner[2]'", 1, true), why)
    local function offset(k) rawset(getfenv(1), "offset_of_step", k) end
    assert.same({18, 22, 24}, (calls(step, offset)))
    rawset(getfenv(1), "offset_of_step", nil)
  end)

  it("also in functions of tables and globals", function()
    local by, other = 1, 1
    local tools = {log = function() return other end}
    function tools.scaled(input) return input * by end
    rawset(getfenv(1), "tool_of_step", function(input) return tools.scaled(input) end)
    local step = moth.capture(function(input) return (tool_of_step(input)) end) -- luacheck: ignore
    assert.same({2, 4, 6}, (calls(step, function(k) by = k end)))
    step = moth.capture(function(input) return (tools.scaled(input)) end)
    assert.same({6, 4, 6}, (calls(step, function(k) by = k end)))
    step = moth.capture(function(input) return (tools.scaled(input)) end)
    assert.same({6, 6, 6}, (calls(step, function(k) other = k end)))
    assert.are.equal("captured step (1 recording)", tostring(step))
    rawset(getfenv(1), "tool_of_step", nil)
  end)

  it("also if there are more than the step can watch; it then frees them", function()
    local names, code = {}, {"local moth, keep = ...\n"}
    for i = 1, 58 do names[i] = "v" .. i end
    for i = 1, 58 do code[#code + 1] = ("local v%d = %s\n"):format(i, i == 48 and "keep" or "0") end
    code[#code + 1] = "return moth.capture(function(x) return x + v48 + "
      .. table.concat(names, " + ", 1, 47) .. " end)"
    local holder = setmetatable({moth.ones(2)}, {__mode = "v"})
    local step = loadstring(table.concat(code))(moth, holder[1])
    assert.are.equal(4, step(x):sum():item())
    step:free()
    step = nil -- luacheck: ignore
    moth.collect()
    assert.is_nil(holder[1])
  end)

  it("also in objects of a class without functions, and in inherited fields", function()
    local Base = nn.class("Base")
    Base.scale = 1
    local settings = nn.class("Settings", Base)()
    settings.by = 1
    local step = moth.capture(function(input) return input * settings.by * settings.scale end)
    assert.same({2, 4, 6}, (calls(step, function(k) settings.by = k end)))
    assert.same({6, 12, 18}, (calls(step, function(k) Base.scale = k end)))
    local counting = moth.capture(function(input)
      settings.by = settings.by + 1
      return input * settings.by
    end)
    assert.has_error_like(function() calls(counting, function() end) end,
      "'settings.by', which it also reads")
  end)

  it("except values that the step itself changes, and keys that a table gets later", function()
    local n, seen = 0, {}
    local step = moth.capture(function(input)
      n = n + 1
      seen.last = n
      return input * 2
    end)
    assert.same({4, 4, 4}, (calls(step, function(k) n, seen.other = 7, k end)))
    assert.are.equal("captured step (1 recording)", tostring(step))
    assert.are.equal(3, seen.other)
  end)
end)

describe("a module that replaces another in a captured step", function()
  -- Both exist before the recording, so nothing is registered meanwhile.
  local function seen(make, put)
    local five, seven = times(5), times(7)
    local run, holder = make(times(1), times(2))
    local step = moth.capture(function(input) return run(input) end)
    for _ = 1, 3 do assert.are.equal(4, step(x):sum():item()) end
    for k, other in pairs {[10] = five, [14] = seven} do
      put(holder, other)
      for _ = 1, 2 do assert.are.equal(k, step(x):sum():item()) end
    end
    assert.are.equal("captured step (3 recordings; ", tostring(step):sub(1, 29))
    assert.is_truthy(step.why:find "of %u%w+ has changed$", step.why)
  end

  it("is seen in a Sequential, also in a nested one", function()
    seen(function(a, b)
      local net = nn.Sequential(a, b)
      return net, net
    end, function(net, other) net[2] = other end)
    seen(function(a, b)
      local net = nn.Sequential(a, nn.Sequential(b))
      return net, net[2]
    end, function(inner, other) inner[1] = other end)
  end)

  it("is seen in lists and tables of the calling module", function()
    local List = nn.class("List", nn.Module)
    function List:init(a, b) self.layers = nn.ModuleList {nn.ModuleList {a}, nn.ModuleList {b}} end
    function List:forward(input)
      for _, inner in ipairs(self.layers) do input = inner[1](input) end
      return input
    end
    seen(function(a, b)
      local net = List(a, b)
      return net, net.layers
    end, function(layers, other) layers[2][1] = other end)
    local Named = nn.class("Named", nn.Module)
    function Named:init(a, b) self.a, self.layers = a, nn.ModuleDict {b = b} end
    function Named:forward(input) return (self.layers.b(self.a(input))) end
    seen(function(a, b)
      local net = Named(a, b)
      return net, net.layers
    end, function(layers, other) layers.b = other end)
  end)

  it("is seen if the step calls the submodules of a module directly", function()
    seen(function(a, b)
      local list = nn.ModuleList {a, b}
      return function(input) return (list[2](list[1](input))) end, list
    end, function(list, other) list[2] = other end)
    seen(function(a, b)
      local net = nn.Module()
      net.a, net.inner = a, nn.Module()
      net.inner.b = b
      return function(input) return (net.inner.b(net.a(input))) end, net
    end, function(net, other)
      local inner = nn.Module()
      inner.b, net.inner = other, inner
    end)
  end)

  it("is seen among the parameters of a list", function()
    local list = nn.ParameterList {nn.Parameter(moth.ones(2)), nn.Parameter(moth.ones(2) * 2)}
    local other, net = nn.Parameter(moth.ones(2) * 5), nn.Module()
    net.list = list
    function net.forward(_, input) return input * list[1] * list[2] end
    local step = moth.capture(function(input) return net(input) end)
    for _ = 1, 2 do assert.are.equal(4, step(x):sum():item()) end
    list[2] = other
    for _ = 1, 2 do assert.are.equal(10, step(x):sum():item()) end
  end)

  it("is replayed from the first recording if the old module is assigned again", function()
    local a, b = times(2), times(3)
    local net = nn.Sequential(a)
    local step = moth.capture(function(input) return net(input) end)
    for i = 1, 10 do
      net[1] = i % 2 == 0 and a or b
      assert.are.equal(i % 2 == 0 and 4 or 6, step(x):sum():item())
    end
    assert.are.equal("captured step (2 recordings;", tostring(step):sub(1, 28))
  end)
end)

describe("step.why", function()
  -- step.why after each change; step is called twice before.
  local function says(text, step, change)
    step(x)
    step(x)
    change()
    step(x) -- the second call may create the optimizer's state
    step(x)
    assert.are.equal(text, step.why)
    assert.is_truthy(tostring(step):find("; the last since " .. text, 1, true), tostring(step))
  end

  it("is nil before a second recording, and names the change after it", function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0))
    local step = moth.capture(function(input) return net(input) end)
    says("`training` of a module that ran is false now", step, function()
      assert.is_nil(step.why)
      assert.are.equal("captured step (1 recording)", tostring(step))
      net:eval()
    end)
    says("the storage of 'weight' of Linear is another", step, function()
      net[1].weight.data = moth.ones(2, 2)
    end)
    says("requires_grad of 'bias' of Linear is another", step, function()
      net[1].bias.requires_grad = false
    end)
    says("'bias' of Linear has changed", step, function()
      net[1].bias = nn.Parameter(moth.ones(2))
    end)
    says("the forward, or a hook, of Linear has changed", step, function()
      net[1]:register_forward_hook(function() end)
    end)
    says("the default dtype is another", step, function()
      moth.set_default_dtype(moth.float64)
      finally(function() moth.set_default_dtype(moth.float32) end)
    end)
  end)

  it("names inputs, modes and precision", function()
    local step = moth.capture(function(input) return input * 2 end)
    step(x)
    step(moth.ones(3))
    assert.are.equal("input 1 is f32 (3) now, and was f32 (1, 2) before", step.why)
    moth.no_grad(function() step(x) end)
    assert.are.equal("the grad mode has changed", step.why)
    step(x)
    moth.set_float32_matmul_precision("high")
    finally(function() moth.set_float32_matmul_precision("highest") end)
    step(x)
    assert.are.equal("the precision of float32 products is another", step.why)
  end)

  it("names gradients that were read, hooks, and the optimizer", function()
    local p = nn.Parameter(moth.ones(2))
    local read = moth.capture(function(input)
      if p.grad ~= nil then p.grad = nil end
      local loss = (input * p):sum()
      loss:backward()
      return loss
    end)
    says("the gradient, which it reads before its backward pass, of f32 (2) is another (zero_grad "
      .. "and p.grad = nil clear it unread)", read, function() end)
    local net = nn.Linear(2, 1)
    local opt = optim.SGD(net:parameters(), {lr = 0.1})
    local step = moth.capture(function(input)
      opt:zero_grad()
      local loss = F.mse_loss(net(input), moth.zeros(1, 1))
      loss:backward()
      opt:step()
      return loss
    end)
    says("the state, groups or options of the SGD have changed", step, function()
      opt.param_groups[1].momentum = 0.5
    end)
    says("the list of hooks of 'weight' of Linear is another", step, function()
      net.weight:register_hook(function(g) return g end)
    end)
  end)

  it("names results that were freed", function()
    local step = moth.capture(function(input) return input * 2 end)
    step(x):free()
    step(x)
    assert.are.equal("the results of its calls were freed, which ends a recording", step.why)
  end)

  it("compares with the most similar recording, not with the newest", function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    local step = moth.capture(function(input) return net(input):sum() end)
    step(x)
    step(moth.ones(2, 2))
    moth.no_grad(step, x)
    net[1] = nn.Linear(2, 2)
    step(x)
    assert.are.equal("'[1]' of Sequential has changed", step.why)
  end)
end)

describe("a field of a module that ran in a captured step", function()
  local Scaled = nn.class("Scaled", nn.Module)
  function Scaled:init() self.scale, self.calls = 2, 0 end
  function Scaled:forward(input)
    self.calls = self.calls + 1
    return input * self.scale
  end

  it("is watched: a number, a tensor, a table, also in submodules", function()
    local net = nn.Sequential(Scaled(), nn.Sequential(Scaled()))
    local step = moth.capture(function(input) return net(input) end)
    for _ = 1, 3 do assert.are.equal(8, step(x):sum():item()) end
    net[2][1].scale = 5
    for _ = 1, 2 do assert.are.equal(20, step(x):sum():item()) end
    assert.are.equal("'scale' of Scaled has changed", step.why)
    net[1].scale = moth.tensor {1, 3}
    for _ = 1, 2 do assert.are.equal(20, step(x):sum():item()) end
    net[1].scale = moth.tensor {1, 0}
    for _ = 1, 2 do assert.are.equal(5, step(x):sum():item()) end
    local conv = nn.Conv1d(1, 1, 3)
    local slid = moth.capture(function(input) return conv(input) end)
    for _ = 1, 2 do assert.are.equal(8, slid(moth.ones(1, 10)):size(2)) end
    conv.stride = 2
    for _ = 1, 2 do assert.are.equal(4, slid(moth.ones(1, 10)):size(2)) end
  end)

  it("follows a schedule of Dropout", function()
    local drop = nn.Dropout(0)
    local step = moth.capture(function(input) return drop(input) end)
    for _ = 1, 2 do assert.are.equal(2, step(x):sum():item()) end
    drop.p = 1
    for _ = 1, 2 do assert.are.equal(0, step(x):sum():item()) end
    drop.p = 0 -- an earlier recording is valid again
    local text = tostring(step)
    for _ = 1, 2 do assert.are.equal(2, step(x):sum():item()) end
    assert.are.equal(text, tostring(step))
  end)

  it("is also watched if another method than forward reads it", function()
    local Net = nn.class("Net", nn.Module)
    function Net:init() self.body, self.temperature = nn.Sequential(Scaled()), 1 end
    function Net:encode(input) return self.body[1](input) / self.temperature end
    local net = Net()
    local step = moth.capture(function(input) return net:encode(input) end)
    for _ = 1, 3 do assert.are.equal(4, step(x):sum():item()) end
    net.temperature = 4
    for _ = 1, 2 do assert.are.equal(1, step(x):sum():item()) end
    assert.are.equal("'temperature' of Net has changed", step.why)
    local outer = nn.Sequential(net)
    outer[1].temperature = 1
    local text = tostring(step)
    for _ = 1, 2 do assert.are.equal(4, step(x):sum():item()) end
    assert.are.equal(text, tostring(step))
  end)

  it("is not watched if the step itself changes it, as a counter", function()
    local net = Scaled()
    local step = moth.capture(function(input) return net(input) end)
    for _ = 1, 5 do step(x) end
    assert.are.equal("captured step (1 recording", tostring(step):sub(1, 26))
    assert.are.equal(1, net.calls)
  end)
end)
