-- Captured steps: values that a step reads from outside are watched, or the recording raises an
-- error. A replay never has other results than the step itself.

local moth = require "moth"
local support = require "spec.support.bits"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local x = moth.tensor {1, 2}

-- A captured step, and a function that compares it with the plain function: three calls each, since
-- the step itself compares only the first two.
local function pair(fn)
  local step = moth.capture(fn, {verify = 0})
  return step, function(value)
    for _ = 1, 3 do
      local got = support.of(step(x))
      assert.are.equal(support.of(fn(x)), got)
      if value then assert.are.equal(value, got) end
    end
  end
end

local function recordings(step) return tonumber(tostring(step):match "%((%d+)") end

-- A user's object: a class by metatable.
local function class_of(methods)
  methods.__index = methods
  return function(fields) return setmetatable(fields, methods) end
end

describe("a captured step sees the fields of objects", function()
  local Agent = class_of {
    loss = function(self, input) return (input * self.beta):sum() end,
    scaled = function(self, input)
      if self.bonus then input = input + self.bonus end
      return input * self.cfg.deep.er.still.beta
    end,
  }

  it("a number of an object with a metatable", function()
    local agent = Agent {beta = 1}
    local _, check = pair(function(input) return agent:loss(input) end)
    check "3"
    agent.beta = 2
    check "6"
    agent.beta = moth.tensor {1, 0}
    check "1"
  end)

  it("a field that was absent, and one five tables deep", function()
    local agent = Agent {cfg = {deep = {er = {still = {beta = 1}}}}}
    local _, check = pair(function(input) return agent:scaled(input) end)
    check "1 2"
    agent.bonus = 1
    check "2 3"
    agent.cfg.deep.er.still.beta = 3
    check "6 9"
    agent.cfg.deep = {er = {still = {beta = 5}}}
    check "10 15"
    agent.bonus = nil
    check "5 10"
  end)

  it("a method of the object or of its class that is replaced", function()
    local Own = {loss = function(_, input) return input * 1 end}
    Own.__index = Own
    local agent = setmetatable({}, Own)
    local _, check = pair(function(input) return agent:loss(input) end)
    check "1 2"
    function Own.loss(_, input) return input * 2 end
    check "2 4"
    function agent.loss(_, input) return input * 3 end
    check "3 6"
    setmetatable(agent, {__index = {}})
    check "3 6"
  end)

  it("the base of a class, an object replaced as a whole, and its metatable", function()
    local Base = {scale = 2}
    Base.__index = Base
    local Sub = setmetatable({}, Base)
    Sub.__index = Sub
    local agent = setmetatable({}, Sub)
    local _, check = pair(function(input) return input * agent.scale end)
    check "2 4"
    Base.scale = 3
    check "3 6"
    Sub.scale = 4
    check "4 8"
    agent = {scale = 5}
    check "5 10"
    setmetatable(agent, {__index = {scale = 7}})
    check "5 10"
    agent.scale = nil
    check "7 14"
  end)

  it("fields read by computed names, and metamethods", function()
    local names = {"a", "b"}
    local Sum = class_of {
      total = function(self, input)
        for _, name in ipairs(names) do input = input + (self[name] or 0) end
        return input
      end,
      __call = function(self, input) return input * self.by end,
    }
    local sum, by = Sum {a = 1}, Sum {by = 1}
    local _, check = pair(function(input) return by(sum:total(input)) end)
    check "2 3"
    sum.b = 1
    check "3 4"
    names[3], sum.c = "c", 1
    check "4 5"
    by.by = 2
    check "8 10"
  end)
end)

describe("a captured step sees values that were nil", function()
  it("an upvalue, a global, a field of a table", function()
    local teacher, cfg = nil, {}
    local env = setmetatable({}, {__index = _G})
    local fn = setfenv(function(input)
      if cfg.kl then input = input + cfg.kl end
      if teacher then input = teacher(input) end
      if extra_of_step then input = input * extra_of_step end -- luacheck: ignore
      return input * 1
    end, env)
    local _, check = pair(fn)
    check "1 2"
    cfg.kl = 1
    check "2 3"
    teacher = function(input) return input * 2 end
    check "4 6"
    env.extra_of_step = 2
    check "8 12"
    teacher, cfg.kl, env.extra_of_step = nil, nil, nil
    check "1 2"
  end)

  it("a submodule of a module that ran", function()
    local Net = nn.class("Net", nn.Module)
    function Net:forward(input)
      if self.aux then input = self.aux(input) end
      return input * 2
    end
    local net = Net()
    local _, check = pair(function(input) return net(input) end)
    check "2 4"
    net.aux = function(input) return input + 1 end
    check "4 6"
    net.aux = nn.Identity()
    check "2 4"
    net.aux = nil
    check "2 4"
  end)

  it("a value that becomes nil or false", function()
    local flag, t = true, {on = 1}
    local _, check = pair(function(input)
      return flag == nil and input * 5 or flag and t.on and input * 2 or input * 3
    end)
    check "2 4"
    flag = false
    check "3 6"
    flag = nil
    check "5 10"
    flag, t.on = true, nil
    check "3 6"
  end)
end)

describe("a captured step sees lists", function()
  it("that grow and shrink", function()
    local list = {1, 2}
    local _, check = pair(function(input)
      for i = 1, #list do input = input * list[i] end
      return input * 1
    end)
    check "2 4"
    list[3] = 3
    check "6 12"
    list[2] = nil
    list[3] = nil
    check "1 2"
  end)

  it("of functions and tensors, by ipairs, pairs, unpack and table.concat", function()
    local list, map, words = {function(v) return v + 1 end}, {a = 1}, {"a"}
    local numbers = {1, 2}
    local _, check = pair(function(input)
      for _, f in ipairs(list) do input = f(input) end
      for _, v in pairs(map) do input = input + v end
      local a, b = unpack(numbers)
      return input * a * b * #table.concat(words)
    end)
    check "6 8"
    list[2] = function(v) return v * 2 end
    check "10 14"
    map.b = 1
    check "12 16"
    numbers[2] = 1
    check "6 8"
    words[2] = "b"
    check "12 16"
  end)

  it("of modules: ModuleList:append, Sequential and a plain table", function()
    local list, plain = nn.ModuleList {nn.Identity()}, {nn.Identity()}
    local Twice = nn.class("Twice", nn.Module)
    function Twice:forward(input) return input * 2 end
    local _, check = pair(function(input)
      for _, layer in ipairs(list) do input = layer(input) end
      for i = 1, #plain do input = plain[i](input) end
      return input * 1
    end)
    check "1 2"
    list:append(Twice())
    check "2 4"
    plain[2] = Twice()
    check "4 8"
    plain[1] = Twice()
    check "8 16"
    list[1] = Twice()
    check "16 32"
  end)

  it("of 200 words and 300 tensors", function()
    local words, vectors = {}, {}
    for i = 1, 200 do words[i] = "word" .. i end
    for i = 1, 300 do vectors[i] = moth.tensor {i} end
    local _, check = pair(function(input)
      local n = 0
      for _, word in ipairs(words) do n = n + #word end
      return input * n + vectors[300]
    end)
    check(("%d %d"):format(1292 + 300, 2 * 1292 + 300))
    words[200] = ""
    check(("%d %d"):format(1285 + 300, 2 * 1285 + 300))
    vectors[300] = moth.tensor {0}
    check(("%d %d"):format(1285, 2570))
  end)
end)

describe("a captured step sees replacements of", function()
  it("a module, an optimizer, a function in a variable", function()
    local net, other = nn.Linear(2, 2, false), nn.Linear(2, 2, false)
    net.weight.data, other.weight.data = moth.eye(2), moth.eye(2) * 2
    local act = function(v) return v end
    local _, check = pair(function(input) return act(net(input)) end)
    check "1 2"
    net = other
    check "2 4"
    act = function(v) return v + 1 end
    check "3 5"
    local p, q = nn.Parameter(moth.ones(1)), nn.Parameter(moth.ones(1))
    local opt = optim.SGD({p}, {lr = 1})
    local step = moth.capture(function()
      opt:zero_grad()
      local loss = p + q
      loss:sum():backward()
      opt:step()
    end)
    for _ = 1, 4 do step() end
    assert.are.same({-3, 1}, {p:item(), q:item()})
    opt = optim.SGD({q}, {lr = 1})
    step()
    assert.are.same({-3, 0}, {p:item(), q:item()})
  end)

  it("a function of Moth's namespaces, and a parameter of a module that is not called", function()
    local own, relu = F, F.relu -- luacheck: ignore
    finally(function() F.relu = relu end)
    local net = nn.Linear(2, 2, false)
    net.weight.data = moth.eye(2)
    local _, check = pair(function(input) return own.relu(F.linear(input, net.weight)) end)
    check "1 2"
    net.weight = nn.Parameter(moth.eye(2) * 2)
    check "2 4"
    F.relu = function(v) return v * 3 end
    check "6 12"
  end)

  it("fields of tables in a module, and values that its forward reads from outside", function()
    local by = 1
    local Net = nn.class("Net", nn.Module)
    function Net:init() self.cfg = {beta = 1, inner = {1}} end
    function Net:forward(input) return input * self.cfg.beta * self.cfg.inner[1] * by end
    local net = Net()
    local _, check = pair(function(input) return net(input) end)
    check "1 2"
    net.cfg.beta = 2
    check "2 4"
    net.cfg.inner[1] = 3
    check "6 12"
    by = 2
    check "12 24"
    function Net.forward(_, input) return input end
    check "1 2"
  end)

  it("values that Functions and hooks read from outside", function()
    local by, more = 2, 0
    local Scale = nn.class("Scale", moth.autograd.Function)
    function Scale.forward(_, input) return input * by end
    function Scale.backward(_, dy) return dy * by + more end
    local w = moth.ones(2):requires_grad_()
    local hooked = 1
    w:register_hook(function(g) return g * hooked end)
    local fn = function(input)
      w.grad = nil
      Scale.apply(w * input):sum():backward()
      return w.grad
    end
    local step = moth.capture(fn)
    local function check(a, b)
      for _ = 1, 3 do assert.are.same({a, b}, step(x):tolist()) end
    end
    check(2, 4)
    by = 3
    check(3, 6)
    more = 1
    check(4, 8)
    hooked = 2
    check(8, 16)
  end)

  it("functions inside functions, and functions that moth.func makes", function()
    local by = 1
    local function inner(v) return (v * by):sum() end
    local grad = moth.func.grad(inner)
    local _, check = pair(function(input)
      return moth.no_grad(function()
        local function again(v) return v * by end
        return again(input)
      end) + grad(input)
    end)
    check "2 3"
    by = 2
    check "4 6"
  end)

  it("parameters of a distribution, and modules loaded by require", function()
    local normal = moth.distributions.Normal(0, 1)
    package.loaded["options_of_step"] = {by = 1}
    finally(function() package.loaded["options_of_step"] = nil end)
    local _, check = pair(function(input)
      return normal:log_prob(input * 0 + 1) * require("options_of_step").by
    end)
    check()
    normal = moth.distributions.Normal(1, 1)
    check()
    normal.loc = moth.tensor(2)
    check()
    require("options_of_step").by = 2
    check()
  end)

  it("the 60th variable", function()
    local names = {}
    for i = 1, 59 do names[i] = "v" .. i end
    local code = "local " .. table.concat(names, ", ") .. " = " .. ("1, "):rep(58) .. "1\n"
      .. "return function(x) return x * (" .. table.concat(names, " + ") .. ") end, "
      .. "function(v) v59 = v end"
    local fn, set = loadstring(code)()
    local _, check = pair(fn)
    check "59 118"
    set(2)
    check "60 120"
  end)

  it("an option in a table that is passed on", function()
    local options = {dim = 1}
    local _, check = pair(function(input) return input:softmax(options) end)
    check()
    options.dtype = moth.float64
    check()
  end)
end)

describe("a captured step that assigns a value that it reads", function()
  it("raises an error that says to write into the tensor", function()
    local e = moth.ones(1)
    local step = moth.capture(function(input)
      e = e * 0.5 + input
      return e
    end)
    assert.has_error_like(function() step(moth.ones(1)) end,
      "assigns 'e', a tensor that it also reads.*e:copy_%(")
    local state = moth.ones(1)
    local good = moth.capture(function(input) return state:copy_(state * 0.5 + input) end)
    for _, value in ipairs {1.5, 1.75, 1.875, 1.9375} do
      assert.are.equal(value, good(moth.ones(1)):item())
    end
  end)

  it("also raises if only the variable has the result, and for fields", function()
    local e = moth.ones(1)
    local only = moth.capture(function(input) e = e * 0.5 + input end)
    assert.has_error_like(function() only(moth.ones(1)) end, "assigns 'e'")
    local Cell = class_of {run = function(self, v)
      self.h = self.h * 0.5 + v
      return self.h
    end}
    local cell = Cell {h = moth.ones(1)}
    local step = moth.capture(function(input) return cell:run(input) end)
    assert.has_error_like(function() step(moth.ones(1)) end, "assigns 'cell.h'")
    local Net = nn.class("Net", nn.Module)
    function Net:init() self.h = moth.ones(1) end
    function Net:forward(v)
      self.h = self.h * 0.5 + v
      return self.h
    end
    local net = Net()
    local run = moth.capture(function(input) return net(input) end)
    assert.has_error_like(function() run(moth.ones(1)) end, "assigns 'net.h'")
  end)

  it("raises for numbers and lists, after correct plain calls", function()
    local n, list = 0, {}
    local counted = moth.capture(function(input)
      n = n + 1
      return input * n
    end)
    assert.are.same({1, 2}, counted(x):tolist())
    assert.are.same({2, 4}, counted(x):tolist())
    assert.has_error_like(function() counted(x) end, "'n', which it also reads")
    local grown = moth.capture(function(input)
      list[#list + 1] = 1
      return input * #list
    end)
    assert.are.same({1, 2}, grown(x):tolist())
    assert.are.same({2, 4}, grown(x):tolist())
    assert.has_error_like(function() grown(x) end, "'list")
  end)

  it("is accepted if it only counts, logs or stores its results", function()
    local n, log, holder, last = 0, {}, {calls = 0}, nil
    local step = moth.capture(function(input)
      n = n + 1
      log[#log + 1] = "run"
      table.insert(log, "again")
      holder.calls = holder.calls + 1
      last = input
      return input * 2
    end)
    for _ = 1, 5 do assert.are.same({2, 4}, step(x):tolist()) end
    assert.are.same({1, 2, 1, 1}, {n, #log, holder.calls, recordings(step)})
    assert.is_truthy(last)
  end)

  it("is accepted if a value is made once, or assigned before it is read", function()
    local Net = nn.class("Net", nn.Module)
    function Net:forward(input)
      if not self.factor then self.factor = 3 end
      self.seen = input * self.factor
      return self.seen + 1
    end
    local net = Net()
    local step = moth.capture(function(input) return net(input) end)
    for i = 1, 5 do
      assert.are.same({3 * i + 1}, step(moth.tensor {i}):tolist())
      assert.are.same({3 * i}, net.seen:tolist())
    end
    assert.are.equal(1, recordings(step))
  end)
end)

describe("a read that a captured step cannot watch", function()
  it("is an error with its name during recording", function()
    local ffi = require "ffi"
    local numbers = ffi.new("double[2]", {1, 2})
    local thread = coroutine.create(function() coroutine.yield(1) end)
    local wrapped = coroutine.wrap(function() while true do coroutine.yield(1) end end)
    local large = {}
    for i = 1, 30000 do large[i] = i end
    local sized, named = newproxy(true), newproxy(true)
    getmetatable(sized).__len = function() return 2 end
    getmetatable(named).__index = function() return 2 end
    local steps = {
      sized = function(v) return v * #sized end,
      named = function(v) return v * named.k end,
      numbers = function(v) return v * numbers[0] end,
      thread = function(v) return coroutine.resume(thread) and v end,
      wrapped = function(v) return v * wrapped() end,
      large = function(v) return v * #large end,
    }
    for name, fn in pairs(steps) do
      local step = moth.capture(fn)
      assert.has_error_like(function() step(x) end, "cannot watch '" .. name)
    end
  end)
end)

describe("a value that a captured step watches", function()
  -- A step that multiplies by s, a variable that `through` hides.
  local function follows(through)
    local s = 2
    local f = through(function(v) return v * s end)
    local step = moth.capture(function(v) return f(v):sum() end)
    for _ = 1, 2 do assert.equal(2, step(moth.ones(1)):item()) end
    s = 5
    assert.equal(5, step(moth.ones(1)):item())
  end

  it("is found through any number of Moth's functions around a user's function", function()
    for depth = 1, 7 do
      follows(function(f)
        local shape = {1}
        for d = 1, depth do
          f, shape[d + 1] = moth.func.vmap(f), 1
        end
        return function(v) return f(v:reshape(shape)) end
      end)
    end
  end)

  it("is found in a long linked list, which an error names by its ends when it is too long",
    function()
      local function list_of(n)
        local list = {v = 2}
        local last = list
        for _ = 2, n do
          last.next = {v = 2}
          last = last.next
        end
        return list, last
      end
      local list, last = list_of(3000)
      local step = moth.capture(function(v)
        local node = list
        while node.next do node = node.next end
        return v * node.v
      end)
      for _ = 1, 2 do assert.equal(2, step(moth.ones(1)):item()) end
      last.v = 5
      assert.equal(5, step(moth.ones(1)):item())
      list = list_of(20000)
      local fine, message = pcall(step, moth.ones(1))
      assert.is_false(fine)
      assert.matches("cannot watch 'list", message)
      assert.is_true(#message < 500, message)
    end)

  it("is named together with the step in an error", function()
    local large = {}
    for i = 1, 30000 do large[i] = i end
    local step = moth.capture(function(v) return v * #large end)
    assert.has_error_like(function() step(x) end, "capture_spec.lua:%d+ reads: more than 20000 "
      .. "values are read; pass the needed values as tensors among the arguments")
  end)
end)

describe("verify", function()
  it("compares the first two replays by default", function()
    local step = moth.capture(function(v) return v * os.clock() end) -- the step cannot watch this
    step(x)
    assert.has_error_like(function()
      local t = os.clock()
      while os.clock() - t < 0.01 do end
      step(x)
      step(x)
    end, "differs between a replay and the step itself")
  end)

  it("repeats no effect: parameters, states, counters, modules, random numbers", function()
    local function train(verify)
      moth.manual_seed(5)
      local net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5),
        nn.Linear(4, 1))
      local opt, calls = optim.Adam(net:parameters(), {lr = 0.1}), 0
      local fn = function(input)
        calls = calls + 1
        opt:zero_grad()
        local loss = net(input):square():mean()
        loss:backward()
        opt:step()
        return loss
      end
      local step = verify and moth.capture(fn, {verify = verify}) or fn
      local losses = {}
      for i = 1, 8 do losses[i] = support.of(step(moth.randn(4, 2))) end
      return table.concat(losses, " ") .. support.state_of(net), calls
    end
    local plain = train()
    for _, verify in ipairs {0, 1, 2, 5} do
      local text, calls = train(verify)
      assert.are.equal(plain, text)
      assert.are.equal(2, calls) -- the call that makes Adam's state, and the recording
    end
  end)

  it("restores assigned values, so that replays write to the same tensors", function()
    local kept
    local step = moth.capture(function(v)
      kept = v * 2
      return kept
    end)
    for i = 1, 5 do
      step(moth.tensor {i})
      assert.are.same({2 * i}, kept:tolist())
    end
  end)

  it("does not apply to a call that no recording fits", function()
    local runs = 0
    local step = moth.capture(function(v)
      runs = runs + 1
      return v * 2
    end)
    for i = 1, 6 do step(moth.ones(i)) end
    assert.are.equal(6, runs)
  end)
end)

describe("checks written in Lua run in replays", function()
  -- good and bad: valid and invalid arguments.
  local function raises(text, fn, good, bad)
    local step = moth.capture(fn)
    for _ = 1, 4 do step(unpack(good)) end
    assert.has_error_like(function() step(unpack(bad)) end, text)
    step(unpack(good))
    assert.are.equal(1, recordings(step))
    local fresh = moth.capture(fn)
    assert.has_error_like(function() fresh(unpack(bad)) end, text)
  end

  it("of gaussian_nll_loss: a negative variance", function()
    raises("bad argument 'var' to 'gaussian_nll_loss'", function(var)
      return F.gaussian_nll_loss(x, x + 1, var)
    end, {moth.ones(2)}, {moth.tensor {1, -1}})
  end)

  it("of moth.normal: a negative standard deviation, and NaN", function()
    local function drawn(std) return moth.normal(moth.zeros(2), std) end
    raises("bad argument 'std' to 'normal'", drawn, {moth.ones(2)}, {moth.tensor {1, -1}})
    raises("bad argument 'std' to 'normal'", drawn, {moth.ones(2)}, {moth.tensor {1, 0 / 0}})
  end)

  it("of distributions: parameters and values", function()
    local D = moth.distributions
    raises("bad argument 'scale' to 'Normal'", function(scale)
      return D.Normal(0, scale):log_prob(x)
    end, {moth.ones(2)}, {-moth.ones(2)})
    raises("bad argument 'value' to 'Exponential", function(value)
      return D.Exponential(moth.ones(2)):log_prob(value)
    end, {moth.ones(2)}, {-moth.ones(2)})
  end)

  it("of unravel_index, fake_quantize and linear_cross_entropy", function()
    raises("bad argument 'indices' to 'unravel_index'", function(at)
      return moth.unravel_index(at, {2, 3})
    end, {moth.tensor {1LL, 6LL}}, {moth.tensor {1LL, 7LL}})
    local weight = moth.randn(3, 2)
    raises("bad argument 'zero_point' to 'fake_quantize_per_channel_affine'", function(zero)
      return moth.fake_quantize_per_channel_affine(moth.ones(2, 2), moth.ones(2), zero, 1, 0, 255)
    end, {moth.tensor {1LL, 3LL}}, {moth.tensor {1LL, 400LL}})
    raises("bad argument 'target' to '%w*_?cross_entropy'", function(target)
      return F.linear_cross_entropy(moth.ones(2, 2), weight, target)
    end, {moth.tensor {1LL, 3LL}}, {moth.tensor {1LL, 4LL}})
  end)

  it("of one_hot without num_classes: as many classes as in the recording", function()
    local T = moth.tensor
    local function one_hot(at) return F.one_hot(at) * 1 end
    local step = moth.capture(one_hot)
    for _ = 1, 4 do assert.are.same({{1, 0, 0}, {0, 0, 1}}, step(T {1LL, 3LL}):tolist()) end
    assert.are.same({{0, 1, 0}, {0, 0, 1}}, step(T {2LL, 3LL}):tolist())
    assert.has_error_like(function() step(T {1LL, 4LL}) end,
      "bad argument 'input' to 'one_hot' %(class 4 is out of range")
    assert.has_error_like(function() step(T {1LL, 2LL}) end,
      "bad argument 'num_classes' to 'one_hot' %(the step was captured with 3 classes, but the "
      .. "largest is now 2; give the number of classes")
    assert.are.same({{0, 1, 0}, {0, 0, 1}}, step(T {2LL, 3LL}):tolist())
    assert.are.equal(1, recordings(step))
    local counted = moth.capture(function(at) return F.one_hot(at, 3) end)
    for _ = 1, 4 do assert.are.same({{1, 0, 0}, {0, 1, 0}}, counted(T {1LL, 2LL}):tolist()) end
  end)

  it("of ctc_loss: lengths, targets and their lengths", function()
    local T, scores = moth.tensor, moth.randn(5, 2, 4):log_softmax(3)
    local good = {T {{2LL, 3LL}, {4LL, 2LL}}, T {5LL, 4LL}, T {2LL, 1LL}}
    local function loss(targets, steps, sizes)
      return (F.ctc_loss(scores, targets, steps, sizes))
    end
    raises("bad argument 'input_lengths' to 'ctc_loss'", loss, good,
      {good[1], T {6LL, 4LL}, good[3]})
    raises("bad argument 'input_lengths' to 'ctc_loss'", loss, good,
      {good[1], T {-1LL, 4LL}, good[3]})
    raises("bad argument 'target_lengths' to 'ctc_loss'", loss, good,
      {good[1], good[2], T {3LL, 1LL}})
    raises("bad argument 'targets' to 'ctc_loss'", loss, good,
      {T {{2LL, 5LL}, {4LL, 2LL}}, good[2], good[3]})
  end)

  it("of rows of a sparse tensor", function()
    local T = moth.tensor
    raises("bad argument 'indices' to 'sparse_coo_tensor'", function(rows)
      return moth.sparse_coo_tensor(rows, moth.ones(2, 3), {4, 3}):to_dense()
    end, {T {{1LL, 4LL}}}, {T {{1LL, 5LL}}})
    assert.has_error_like(function()
      moth.capture(function(rows) return moth.sparse_coo_tensor(rows, moth.ones(2)):to_dense() end)(
        T {{1LL, 4LL}})
    end, "bad argument 'size' to 'sparse_coo_tensor' %(sizes are needed in a captured step")
  end)

  it("of multi_margin_loss and multilabel_margin_loss: classes", function()
    local T = moth.tensor
    raises("bad argument 'target' to 'multi_margin_loss' %(classes up to 3 are needed",
      function(y) return F.multi_margin_loss(moth.ones(2, 3), y) end, {T {1LL, 3LL}},
      {T {1LL, 4LL}})
    raises("bad argument 'target' to 'multilabel_margin_loss' %(classes up to 3", function(y)
      return F.multilabel_margin_loss(moth.ones(1, 3), y)
    end, {T {{1LL, 3LL, 0LL}}}, {T {{1LL, 4LL, 0LL}}})
  end)

  it("of ops: errors name the function that the step called", function()
    local emb = nn.Embedding(3, 2)
    raises("'embedding'", function(at) return emb(at) end, {moth.tensor {1LL, 3LL}},
      {moth.tensor {1LL, 4LL}})
    raises("'cross_entropy'", function(target)
      return F.cross_entropy(moth.ones(2, 3), target)
    end, {moth.tensor {1LL, 3LL}}, {moth.tensor {1LL, 4LL}})
  end)
end)

describe("a replaced function of string", function()
  local rep, word, words = string.rep, "a", {a = "a"}
  after_each(function() string.rep = rep end) -- luacheck: ignore 122

  for name, count in pairs {
    ["called by its name"] = function(text) return #string.rep(text, 3) end,
    ["called as a method"] = function(text) return #text:rep(3) end,
    ["called on a literal"] = function() return #("a"):rep(3) end,
    ["called on a variable"] = function() return #word:rep(3) end,
    ["called on a field"] = function() return #words.a:rep(3) end,
    ["called on a result"] = function() return #tostring("a"):rep(3) end,
  } do
    it("is seen if it is " .. name, function()
      local text = "a"
      local step, check = pair(function(v) return v * count(text) end)
      check()
      assert.are.same({3, 6}, step(x):tolist())
      string.rep = function() return "four" end -- luacheck: ignore 122
      assert.are.same({4, 8}, step(x):tolist())
    end)
  end
end)

describe("pack_padded_sequence in a captured step", function()
  local pack = nn.utils.rnn.pack_padded_sequence

  it("accepts lengths as a list, and is recorded again for other lengths", function()
    local step = moth.capture(function(input, lengths) return pack(input, lengths).data * 1 end)
    local input = moth.arange(6):view(3, 2, 1)
    for _ = 1, 4 do assert.are.equal(5, step(input, {3, 2}):size(1)) end
    for _ = 1, 4 do assert.are.equal(4, step(input, {3, 1}):size(1)) end
    assert.are.same({0, 1, 2, 3, 4}, step(input, {3, 2}):flatten():tolist())
  end)

  it("raises for a tensor of lengths, since the shape of the result depends on them", function()
    local step = moth.capture(function(input, lengths) return pack(input, lengths).data end)
    assert.has_error_like(function() step(moth.ones(3, 2, 1), moth.tensor {3LL, 2LL}) end,
      "bad argument 'lengths' to 'pack_padded_sequence' %(the result's shape depends on the "
      .. "lengths: in a captured step a list is needed")
  end)
end)

describe("a schedule after a captured step", function()
  it("counts the optimizer's steps in replays", function()
    local layer = nn.Linear(2, 1)
    for _, make in ipairs {optim.SGD, optim.Adam} do
      local opt = make(layer:parameters(), {lr = 0.1})
      local step = moth.capture(function(input)
        opt:zero_grad()
        local loss = layer(input):sum()
        loss:backward()
        opt:step()
        return loss
      end, {verify = 0})
      for _ = 1, 3 do step(moth.ones(1, 2)) end
      local old, warned = moth.warn, {}
      moth.warn = function(text) warned[#warned + 1] = text end
      local schedule = optim.lr_scheduler.StepLR(opt, 1)
      step(moth.ones(1, 2))
      schedule:step()
      local late = optim.lr_scheduler.StepLR(make(layer:parameters(), {lr = 0.1}), 1)
      late:step()
      moth.warn = old
      assert.are.equal(1, #warned)
      assert.is_truthy(warned[1]:find("before optimizer:step()", 1, true))
      assert.are.equal(1, recordings(step))
    end
  end)
end)
