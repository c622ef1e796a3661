-- moth.capture: replays compute, bit for bit, the results of the step itself.

local moth = require "moth"
local support = require "spec.support.bits"
local lib = require "moth.binding.lib"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local bits, state_of = support.of, support.state_of

-- Runs n steps, captured or plain. make() returns the step, a function of i that returns its
-- inputs, the network and, optionally, more values to compare at the end.
local function run(make, n, captured, after)
  moth.manual_seed(11)
  local step, inputs, net, more = make()
  if captured then step = moth.capture(step) end
  local losses = {}
  for i = 1, n do
    local loss = step(inputs(i))
    losses[i] = bits(loss)
    if after then after(i, net) end
  end
  local shown = tostring(step)
  local text = table.concat(losses, "\n") .. "\n" .. state_of(net) .. (more and more() or "")
  if captured then step:free() end
  return text, shown
end

local function same(make, n, most, after)
  local eager = run(make, n or 12, false, after)
  local captured, shown = run(make, n or 12, true, after)
  assert.are.equal(eager, captured)
  local count = tonumber(shown:match "%((%d+) rec")
  assert.is_true(count >= 1 and count <= (most or 1), shown)
end

local function regression(net, opt, loss)
  loss = loss or F.mse_loss
  return function(x, y)
    opt:zero_grad()
    local l = loss(net(x), y)
    l:backward()
    opt:step()
    return l
  end
end

local function small()
  return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
end

local function drawn(...)
  local shapes = {...}
  return function()
    local list = {}
    for i, shape in ipairs(shapes) do list[i] = moth.randn(shape) end
    return unpack(list)
  end
end

-- The warnings while f runs.
local function heard(f)
  local old, list = moth.warn, {}
  moth.warn = function(text) list[#list + 1] = text end
  local ok, problem = pcall(f)
  moth.warn = old
  if not ok then error(problem, 0) end
  return list
end

describe("a captured training step", function()
  local optimizers = {
    SGD = {lr = 0.1}, ["SGD "] = {lr = 0.1, momentum = 0.9, weight_decay = 0.01, nesterov = true},
    Adam = {lr = 0.01, amsgrad = true}, AdamW = {lr = 0.01}, NAdam = {eps = 1e-6},
    RAdam = {lr = 0.01}, Adamax = {lr = 0.01},
    RMSprop = {momentum = 0.5, centered = true}, Adagrad = {lr_decay = 0.1}, Adadelta = {rho = 0.8},
    Rprop = {lr = 0.01}, ASGD = {lr = 0.1, lambd = 0.1, t0 = 9}, Adafactor = {weight_decay = 0.1},
  }
  for name, options in pairs(optimizers) do
    it("continues as " .. name .. (options.momentum and " with momentum" or ""), function()
      same(function()
        local net = small()
        local opt = optim[name:match "%w+"](net:parameters(), options)
        return regression(net, opt), drawn({4, 3}, {4, 2}), net, function()
          local text = {}
          for key, values in pairs(opt:state_dict().state) do
            for field, value in pairs(values) do
              text[#text + 1] = key .. field .. (moth.is_tensor(value) and bits(value) or value)
            end
          end
          table.sort(text)
          return table.concat(text, "\n")
        end
      end, 50)
    end)
  end

  it("follows StepLR, dropout and BatchNorm over 50 steps", function()
    local scheduler
    same(function()
      local net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3),
        nn.Linear(8, 2))
      local opt = optim.Adam(net:parameters(), {lr = 0.05})
      scheduler = optim.lr_scheduler.StepLR(opt, 10, 0.5)
      return regression(net, opt), drawn({6, 3}, {6, 2}), net
    end, 50, 1, function() scheduler:step() end)
  end)

  it("follows a schedule with optimizers made of several ops, without another recording", function()
    for name, options in pairs {Adafactor = {weight_decay = 0.1}, Muon = {lr = 0.1}} do
      local scheduler, layer
      same(function()
        layer = nn.Linear(3, 2, {bias = false})
        local opt = optim[name](layer:parameters(), options)
        scheduler = optim.lr_scheduler.ExponentialLR(opt, 0.9)
        return regression(layer, opt), drawn({4, 3}, {4, 2}), layer
      end, 20, 1, function() scheduler:step() end)
    end
  end)

  it("clips gradients and accumulates them over several losses", function()
    same(function()
      local net = small()
      local opt = optim.SGD(net:parameters(), {lr = 0.1})
      return function(x, y)
        opt:zero_grad {set_to_none = false}
        for k = 0, 1 do
          local half = F.mse_loss(net(x[{{1 + 2 * k, 2 + 2 * k}}]), y[{{1 + 2 * k, 2 + 2 * k}}])
          half:backward()
        end
        local norm = nn.utils.clip_grad_norm_(net:parameters(), 0.1)
        opt:step()
        return norm
      end, drawn({4, 3}, {4, 2}), net
    end, 12, 3)
  end)

  it("adds to gradients that are not cleared, and sees that they were cleared outside", function()
    same(function()
      local net = small()
      return function(x)
        local loss = net(x):square():sum()
        loss:backward()
        return loss
      end, drawn {4, 3}, net, function() return bits(net[1].weight.grad) end
    end, 10, 3, function(i, net) if i == 5 then net:zero_grad() end end)
  end)

  it("has its gradients in p.grad", function()
    local net = small()
    local opt = optim.SGD(net:parameters(), {lr = 0})
    local step = moth.capture(regression(net, opt))
    local x, y = moth.randn(4, 3), moth.randn(4, 2)
    step(x, y)
    opt:zero_grad()
    x = moth.randn(4, 3)
    step(x, y)
    local got = bits(net[1].weight.grad)
    opt:zero_grad()
    F.mse_loss(net(x), y):backward()
    assert.are.equal(bits(net[1].weight.grad), got)
  end)

  it("supports tied weights, views and in-place ops", function()
    same(function()
      local net = small()
      net[3].bias = nil
      local opt = optim.SGD(net:parameters(), {lr = 0.05})
      return function(x, y)
        opt:zero_grad()
        local h = (x:matmul(net[1].weight:t()) + net[1].bias):tanh_() * 1
        h[{{}, {1, 4}}]:mul_(2)
        local z = h:matmul(net[1].weight)
        z[{1}] = 0.5
        local count = moth.tensor {0, 0, 0}
        count:add_(z:detach():sum(1))
        local loss = (z[{{}, {1, 2}}] - y):square():mean() + net[3].weight:square():sum() * 0.1
          + count:mean()
        loss:backward()
        opt:step()
        return loss
      end, drawn({4, 3}, {4, 2}), net
    end)
  end)

  it("supports an LSTM, attention with embeddings, and a convolutional net", function()
    same(function()
      local net = nn.ModuleList {nn.LSTM(3, 5, 2, {dropout = 0.2}), nn.Linear(5, 2)}
      local opt = optim.Adam(net:parameters())
      return function(x, y)
        opt:zero_grad()
        local loss = F.mse_loss(net[2]((net[1](x))), y)
        loss:backward()
        opt:step()
        return loss
      end, drawn({6, 4, 3}, {6, 4, 2}), net
    end)
    same(function()
      local net = nn.ModuleList {nn.Embedding(7, 8), nn.TransformerEncoderLayer(8, 2, 16,
        {batch_first = true}), nn.LayerNorm(8), nn.Linear(8, 7)}
      local opt = optim.AdamW(net:parameters())
      return function(x, y)
        opt:zero_grad()
        local z = net[4](net[3](net[2](net[1](x))))
        local loss = F.cross_entropy(z:view(-1, 7), y:view(-1), {label_smoothing = 0.1})
        loss:backward()
        opt:step()
        return loss
      end, function() return moth.randint(1, 8, {2, 5}), moth.randint(1, 8, {2, 5}) end, net
    end)
    same(function()
      local net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout2d(0.2), nn.Flatten(), nn.Linear(36, 3))
      local opt = optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
      return regression(net, opt, F.cross_entropy),
        function() return moth.randn(5, 1, 8, 8), moth.randint(1, 4, {5}) end, net
    end)
  end)

  it("supports an optimizer written in Lua that changes its state in place", function()
    local Own = nn.class("Own", optim.Optimizer)
    function Own:init(params, lr) optim.Optimizer.init(self, params, {lr = lr}) end
    function Own:update(group)
      for _, p in ipairs(group.params) do
        local own = self.state[p] or {mean = moth.zeros_like(p)}
        self.state[p] = own
        own.mean:mul_(0.5):add_(p.grad)
        p:add_(own.mean, {alpha = -group.lr})
      end
    end
    same(function()
      local net = small()
      local opt = Own(net:parameters(), 0.1)
      return regression(net, opt), function(i)
        if i == 6 then opt.param_groups[1].lr = 0.02 end
        return moth.randn(4, 3), moth.randn(4, 2)
      end, net
    end, 12, 2)
  end)
end)

describe("a captured step", function()
  it("counts its first call once, and returns the same tensors in later calls", function()
    local total = moth.zeros(1)
    local step = moth.capture(function(x)
      total:add_(x:sum())
      return {double = x * 2}, x + 1, "constant"
    end)
    local a, b, c = step(moth.ones(2))
    assert.are.equal(2, total:item())
    local d, e = step(moth.full({2}, 3))
    assert.are.equal(8, total:item())
    assert.is_true(rawequal(a.double, d.double) and rawequal(b, e))
    assert.are.same({6, 6}, a.double:tolist())
    assert.are.same({4, 4}, b:tolist())
    assert.are.equal("constant", c)
  end)

  it("distinguishes 0 from -0 among its constants", function()
    local step = moth.capture(function(x, a, t) return x / a, x / t.a end)
    for _ = 1, 2 do
      for _, zero in ipairs {0, -1 / math.huge} do -- LuaJIT for ARM reads -0.0 as 0
        local y, z = step(moth.ones(1), zero, {a = zero})
        assert.are.same({1 / zero, 1 / zero}, {y:item(), z:item()})
      end
    end
  end)

  it("outlives scopes around its calls, and accepts its results as arguments", function()
    local step = moth.capture(function(h) return h * 2 end)
    local h = moth.ones(2)
    for _ = 1, 5 do
      h = moth.scope(function() return step(h) end)
    end
    assert.are.same({32, 32}, h:tolist())
  end)

  it("is recorded again for other shapes, dtypes, constants, modes and parameters", function()
    local net = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
    local runs = 0
    local step = moth.capture(function(x, factor)
      runs = runs + 1
      return net(x) * (factor or 1)
    end)
    local function expect(n, ...)
      step(...)
      assert.are.equal(n, runs)
    end
    local x = moth.ones(4, 3)
    expect(1, x)
    expect(1, x)
    expect(2, moth.ones(2, 3))
    expect(2, x)
    expect(3, x, 2)
    expect(4, x, 3)
    net:eval()
    expect(5, x)
    assert.are.equal(bits(net(x)), bits(step(x)))
    net:train()
    expect(5, x)
    moth.no_grad(function() expect(6, x) end)
    net[1].weight.data = moth.zeros(2, 3)
    expect(7, x)
    net:to(moth.float64)
    expect(8, x:to(moth.float64))
  end)

  it("keeps 8 recordings at most", function()
    local step = moth.capture(function(x) return x + 1 end)
    heard(function()
      for n = 1, 20 do assert.are.equal(n, step(moth.ones(n)):numel()) end
    end)
    assert.are.equal("captured step (8 recordings, 20 made; the last since input 1 is f32 (20) "
      .. "now, and was f32 (19) before)", tostring(step))
  end)

  it("warns once, with a reason, when it makes more recordings than it keeps", function()
    local net = nn.Linear(2, 2)
    local p, x = net.weight, moth.ones(1, 2)
    local function says(text, fn, input)
      local step = moth.capture(fn)
      assert.are.same({}, heard(function() for i = 1, 8 do step(input(i)) end end))
      local list = heard(function() for i = 9, 30 do step(input(i)) end end)
      assert.are.equal(1, #list)
      assert.is_truthy(list[1]:find("recorded for the 9th time", 1, true), list[1])
      assert.is_truthy(list[1]:find(text, 1, true), list[1])
    end
    says("input 1 is f32 (9) now, and was f32 (8) before", function(a) return a + 1 end, moth.ones)
    says("input 1[k] is 9 now, and was 8 before (numbers", function(t) return x * t.k end,
      function(i) return {k = i} end)
    says("'bias' of Linear has changed", function(a) return net(a) end, function(i)
      net:train(i % 2 == 1)
      net.bias = nn.Parameter(moth.zeros(2))
      return x
    end)
    says("the gradient, which it reads before its backward pass, of f32 (2, 2)", function(a)
      if p.grad ~= nil then p.grad = nil end
      local loss = (a * p):sum()
      loss:backward()
      return loss
    end, function() return x end)
  end)

  it("raises an error for a graph over tensors that a replay has changed", function()
    local w = moth.ones(2)
    local step = moth.capture(function(x) moth.no_grad(function() w:add_(x) end) end)
    step(moth.ones(2))
    local p = moth.ones(2):requires_grad_()
    local y = (p * w):sum()
    step(moth.ones(2))
    assert.has_error_like(function() y:backward() end, "changed")
  end)

  it("stops at an interrupt", function()
    local step = moth.capture(function(x) return x:exp():log():sum() end)
    step(moth.ones(4))
    lib.C.moth_cancel(lib.ctx, 1)
    assert.has_error_like(function() step(moth.ones(4)) end, "interrupt")
    assert.are.equal(moth.ones(4):exp():log():sum():item(), step(moth.ones(4)):item())
  end)

  it("uses the caller's name of a function in errors", function()
    local step = moth.capture(function(x) return moth.linalg.cholesky(x) end)
    for _ = 1, 2 do step(moth.eye(2)) end
    assert.has_error_like(function() step(-moth.eye(2)) end, "bad argument 'A' to 'cholesky'")
  end)

  it("verifies: it finds a step that depends on a Lua counter", function()
    local n, net = 0, small()
    local opt = optim.Adam(net:parameters())
    local train = regression(net, opt)
    local good = moth.capture(train, {verify = 3})
    for _ = 1, 8 do good(moth.randn(4, 3), moth.randn(4, 2)) end
    local bad = moth.capture(function(x)
      n = n + 1
      return n > 3 and x * 2 or x
    end, {verify = 5})
    bad(moth.ones(1))
    bad(moth.ones(1))
    assert.has_error_like(function() for _ = 1, 4 do bad(moth.ones(1)) end end, "constant")
    for _ = 1, 6 do -- more calls than it compares: the result does not change
      assert.has_error_like(function() bad(moth.ones(1)) end, "constant")
    end
    bad:free()
    assert.has_error_like(function() bad(moth.ones(1)) end, "was freed")
  end)

  it("verifies without a change of results", function()
    local texts = {}
    for k, verify in ipairs {0, 6} do
      moth.manual_seed(3)
      local net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5),
        nn.Linear(8, 2))
      local opt = optim.AdamW(net:parameters())
      local step = moth.capture(regression(net, opt), {verify = verify})
      for _ = 1, 12 do step(moth.randn(4, 3), moth.randn(4, 2)) end
      texts[k] = state_of(net) .. opt:state_dict().state["0"].step
    end
    assert.are.equal(texts[1], texts[2])
  end)
end)

describe("while a step is recorded", function()
  local x = moth.tensor {1, 2, 3}
  local net = nn.Linear(3, 1)
  local opt = optim.SGD(net:parameters())

  local refused = {
    item = function(v) return v:sum():item() end,
    tolist = function(v) return v:tolist() end,
    tostring = function(v) return tostring(v) end,
    data_ptr = function(v) return v:data_ptr() end,
    write_png = function(v) moth.io.write_png(v:to(moth.uint8):view(1, 1, 3), os.tmpname()) end,
    decode_image = function() moth.io.decode_image(moth.io.encode_png(moth.zeros(1, 2, 2)
      :to(moth.uint8))) end,
    nonzero = function(v) return v:nonzero() end,
    masked_select = function(v) return v:masked_select(v:gt(1)) end,
    unique = function(v) return moth.unique(v) end,
    ["a mask as index"] = function(v) return v[v:gt(1)] end,
    bincount = function(v) return moth.bincount(v:long()) end,
    repeat_interleave = function(v) return v:repeat_interleave(v:long()) end,
    ["a schedule"] = function() optim.lr_scheduler.StepLR(opt, 1):step() end,
    ["seeding"] = function() moth.manual_seed(1) end,
    ["a recording"] = function(v) return moth.capture(function(z) return z end)(v) end,
  }
  for name, fn in pairs(refused) do
    it(name .. " raises, and the step can be recorded later", function()
      local on = true
      local step = moth.capture(function(v)
        if on then fn(v) end
        return v * 2
      end)
      assert.has_error_like(function() step(x) end, "moth.capture")
      on = false
      assert.are.same({2, 4, 6}, step(x):tolist())
      assert.are.same({4, 8, 12}, step(x * 2):tolist())
    end)
  end

  it("inputs that require grad, and modules, raise", function()
    local step = moth.capture(function(v) return v end)
    assert.has_error_like(function() step(moth.ones(1):requires_grad_()) end, "detach")
    assert.has_error_like(function() step(net) end, "tensors")
  end)

  it("an error of the step is passed on, and no state remains", function()
    moth.collect()
    local before = moth.memory()
    local step = moth.capture(function(v)
      local h = v * 2
      error("mine" .. h:dim())
    end)
    assert.has_error_like(function() step(moth.ones(100, 100)) end, "mine2")
    step = nil -- luacheck: ignore 311
    moth.collect()
    local after = moth.memory()
    assert.is_true(after.live_bytes <= before.live_bytes)
    assert.is_true(after.live_storages <= before.live_storages)
  end)

  it("if memory runs out at any allocation, the step is as after an error", function()
    local failing = nn.Linear(3, 2)
    local step = moth.capture(function(v)
      failing:zero_grad()
      local loss = failing(v):square():sum()
      loss:backward()
      return loss
    end)
    local v = moth.ones(4, 3)
    for n = 1, 400, 3 do
      lib.C.moth_fail_allocation(lib.ctx, n)
      local ok = pcall(step, v)
      lib.C.moth_fail_allocation(lib.ctx, 0)
      if ok then break end
    end
    local got = bits(step(v))
    assert.are.equal(got, bits(failing(v):square():sum()))
  end)
end)

describe("the memory of a captured step", function()
  local function count()
    jit.flush() -- a compiled trace keeps its closures alive
    moth.collect()
    local m = moth.memory()
    return m.live_bytes, m.live_storages, m.live_tensors, m.live_nodes
  end

  it("is freed with the step, also by the garbage collector", function()
    local net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    local opt = optim.SGD(net:parameters(), {lr = 0.1})
    regression(net, opt)(moth.randn(64, 64), moth.randn(64, 64))
    opt:zero_grad()
    local x, y = moth.randn(64, 64), moth.randn(64, 64)
    local before = {count()}
    local function use(freed)
      local step = moth.capture(regression(net, opt))
      for _ = 1, 3 do step(x, y) end
      if freed then step:free() end
      opt:zero_grad()
    end
    for k = 1, 2 do
      use(k == 1)
      moth.collect()
      assert.are.same(before, {count()})
    end
  end)

  it("does not grow with replays, which allocate no tensors", function()
    local net = small()
    local opt = optim.Adam(net:parameters())
    local step = moth.capture(regression(net, opt))
    local x, y = moth.randn(4, 3), moth.randn(4, 2)
    for _ = 1, 4 do step(x, y) end
    local bytes, storages, tensors = count()
    for _ = 1, 100 do step(x, y) end
    local bytes2, storages2, tensors2 = count()
    assert.are.same({bytes, storages, tensors}, {bytes2, storages2, tensors2})
  end)

  -- A freed block of a result is used again only for results of about its size.
  it("has about the peak of the step itself", function()
    local net = {}
    for i = 1, 6 do net[i] = nn.Linear(128, 128) end
    net = nn.Sequential(unpack(net))
    local opt = optim.SGD(net:parameters(), {lr = 0.1})
    local x = moth.randn(512, 128)
    local train = regression(net, opt)
    local function peak(fn)
      moth.collect()
      moth.reset_peak_memory()
      local start = moth.memory().live_bytes
      moth.set_memory_floor(2 ^ 40, 2 ^ 30) -- no garbage collection during only one of the two
      fn(x, x)
      moth.set_memory_floor()
      return moth.memory().peak_bytes - start
    end
    train(x, x)
    opt:zero_grad()
    local eager = peak(function(...) moth.scope(train, ...) end)
    opt:zero_grad()
    local inputs = 2 * 512 * 128 * 4
    local captured = peak(moth.capture(train))
    assert.is_true(captured <= 1.3 * eager + inputs, captured .. " against " .. eager)
  end)
end)
