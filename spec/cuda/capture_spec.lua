-- Captured steps on a GPU: replays are CUDA graphs whose results equal those of the uncaptured
-- step bit for bit; what graphs contain, the work between graphs, and ownership of their scratch
-- memory.

local ffi = require "ffi"
local moth = require "moth"
local support = require "spec.support.bits"
local cuda = require "spec.support.cuda"
local process = require "spec.support.process"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local bits, state_of = support.of, support.state_of

local function there(...) return moth.randn(..., {device = "cuda"}) end

-- Losses of n steps, and the network after them. make() returns the step, a function of its inputs
-- for step i, the network and, optionally, a function to call after each step.
local function run(make, n, capture)
  moth.manual_seed(11)
  local step, inputs, net, after = make()
  if capture then step = capture(step) end
  local losses = {}
  for i = 1, n do
    losses[i] = bits(step(inputs(i)))
    if after then after(i) end
  end
  local text, shown = table.concat(losses, "\n") .. "\n" .. state_of(net), tostring(step)
  if capture then step:free() end
  return text, shown
end

-- Asserts that captured steps return the same bits; returns the text of the captured step.
local function same(make, n)
  local eager = run(make, n or 20)
  local captured, shown = run(make, n or 20, moth.cuda.graph)
  assert.are.equal(eager, captured)
  return shown
end

local function training(net, opt, loss)
  return function(x, y)
    opt:zero_grad()
    local l = loss(net(x), y)
    l:backward()
    opt:step()
    return l
  end
end

ffi.cdef [[int setenv(const char *, const char *, int); int unsetenv(const char *);]]

-- Calls f() with an environment variable set; the GPU emulator reads some.
local function with_variable(name, value, f)
  ffi.C.setenv(name, value, 1)
  local ok, result = pcall(f)
  ffi.C.unsetenv(name)
  return assert(ok, result) and result
end

local ONE = "captured step (1 recording; a call is 1 graph)"

if not cuda.here then
  describe("a captured step on a GPU", function()
    pending("gives what the step gives: " .. cuda.why)
  end)
  return
end

-- The first collection frees unreferenced steps, the second the objects that only these
-- referenced.
teardown(function()
  moth.collect()
  moth.collect()
end)

describe("a captured training step on a GPU", function()
  it("launches no separate relu after a linear", function()
    local function launches(f)
      local w, x = there {8, 8}, there {4, 8}
      local step = moth.capture(function(v) return f(F.linear(f(F.linear(v, w)), w)) end)
      for _ = 1, 3 do assert.are.equal(bits(f(F.linear(f(F.linear(x, w)), w))), bits(step(x))) end
      return tostring(step)
    end
    assert.are.equal(ONE, launches(F.tanh)) -- 4 or more launches become a graph
    assert.are.equal("captured step (1 recording)", launches(F.relu))
  end)

  it("copies from and to the CPU once for each call, asynchronously if allowed", function()
    local kept = moth.zeros(300):to("cuda")
    local step = moth.capture(function(x)
      local y = x * 2
      local here = y:to("cpu", {non_blocking = true})
      y:add_(100)
      kept:copy_(moth.ones(300), {non_blocking = true})
      local z = kept * 1
      kept:add_(5)
      return here, y, z
    end)
    for i = 1, 4 do
      local here, y, z = step(moth.full({300}, i):to("cuda"))
      moth.cuda.synchronize()
      assert.are.same({2 * i, 2 * i + 100, 1, 6},
        {here[1]:item(), y[1]:item(), z[1]:item(), kept[1]:item()})
    end
  end)

  it("of a small network is one graph, including the step's losses", function()
    assert.are.equal(ONE, same(function()
      local net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)):to("cuda")
      local opt = optim.SGD(net:parameters(), {lr = 0.5})
      local x = moth.tensor({{0, 0}, {0, 1}, {1, 0}, {1, 1}}, {device = "cuda"})
      local y = moth.tensor({{0}, {1}, {1}, {0}}, {device = "cuda"})
      return training(net, opt, F.mse_loss), function() return x, y end, net
    end, 30))
  end)

  it("with a GradScaler skips the optimizer step if gradients overflow", function()
    local scales = {}
    local function make()
      local net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)):to("cuda")
      local opt = optim.Adam(net:parameters(), {lr = 0.05})
      local scaler = moth.GradScaler("cuda", {init_scale = 4096, growth_interval = 4})
      local x = there({4, 3})
      local list = {}
      scales[#scales + 1] = list
      local function step(factor)
        opt:zero_grad()
        local loss = moth.autocast("cuda", moth.float16, function()
          return (net(x):float() * factor):square():mean()
        end)
        scaler:scale(loss):backward()
        scaler:unscale_(opt)
        nn.utils.clip_grad_norm_(net:parameters(), 1)
        scaler:step(opt)
        scaler:update()
        return loss
      end
      return step, function(i)
        return moth.tensor(i % 4 == 0 and 1e20 or 1, {device = "cuda"})
      end, net, function() list[#list + 1] = scaler:get_scale() end
    end
    local shown = same(make, 14)
    assert.are.same(scales[1], scales[2])
    assert.are.equal(512, scales[2][14])
    assert.are.equal("captured step (1 recording; a call is 1 graph, 1 op on the GPU, "
      .. "1 op on the CPU)", shown)
  end)

  it("with a Function in Lua and a hook on a parameter is one graph", function()
    local Least = nn.class("Least", moth.autograd.Function)
    function Least.forward(ctx, x, low)
      ctx:save_for_backward(x:ge(low))
      return x:clamp(low)
    end
    function Least.backward(ctx, dy) return dy * ctx.saved_tensors[1], nil end
    assert.are.equal(ONE, same(function()
      local net = nn.ModuleList {nn.Linear(3, 8), nn.Linear(8, 2)}:to("cuda")
      net[1].weight:register_hook(function(dw) return dw:clamp(-0.01, 0.01) end)
      local opt = optim.SGD(net:parameters(), {lr = 0.5})
      local function forward(x) return net[2](Least.apply(net[1](x), -0.2)) end
      local function inputs() return there({4, 3}), there({4, 2}) end
      return training(forward, opt, F.mse_loss), inputs, net
    end))
  end)

  it("of a convolutional network with dropout and momentum is one graph", function()
    local shown = same(function()
      local net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 2),
        nn.Dropout2d(), nn.ReLU(), nn.Flatten(), nn.Linear(24, 10), nn.Dropout(),
        nn.LogSoftmax(2)):to("cuda")
      local opt = optim.SGD(net:parameters(), {lr = 0.05, momentum = 0.9})
      return training(net, opt, F.nll_loss),
        function() return there {5, 1, 8, 8}, moth.randint(1, 11, {5}):cuda() end, net
    end)
    assert.are.equal(ONE, shown)
  end)

  it("supports Adam, StepLR, dropout and BatchNorm in one graph", function()
    local shown = same(function()
      local net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3),
        nn.Linear(8, 2)):to("cuda")
      local opt = optim.Adam(net:parameters(), {lr = 0.05})
      local scheduler = optim.lr_scheduler.StepLR(opt, 7, 0.5)
      return training(net, opt, F.mse_loss), function() return there {6, 3}, there {6, 2} end, net,
        function() scheduler:step() end
    end, 25)
    assert.are.equal(ONE, shown)
  end)

  it("runs attention with embeddings, and an LSTM, whose masks alone vary", function()
    same(function()
      local net = nn.ModuleList {nn.Embedding(7, 8), nn.TransformerEncoderLayer(8, 2, 16,
        {batch_first = true}), nn.LayerNorm(8), nn.Linear(8, 7)}:to("cuda")
      local opt = optim.AdamW(net:parameters())
      return function(x, y)
        opt:zero_grad()
        local z = net[4](net[3](net[2](net[1](x))))
        local loss = F.cross_entropy(z:view(-1, 7), y:view(-1), {label_smoothing = 0.1})
        loss:backward()
        nn.utils.clip_grad_norm_(net:parameters(), 0.5)
        opt:step()
        return loss
      end, function()
        return moth.randint(1, 8, {2, 5}):cuda(), moth.randint(1, 8, {2, 5}):cuda()
      end, net
    end, 8)
    assert.are.equal(ONE, same(function()
      local net = nn.ModuleList {nn.LSTM(3, 5, 2, {dropout = 0.2}), nn.Linear(5, 2)}:to("cuda")
      local opt = optim.Adam(net:parameters())
      return function(x, y)
        opt:zero_grad()
        local loss = F.mse_loss(net[2]((net[1](x))), y)
        loss:backward()
        opt:step()
        return loss
      end, function() return there {6, 4, 3}, there {6, 4, 2} end, net
    end, 8))
  end)

  it("leaves copies from and to the CPU outside of its graph", function()
    local shown
    same(function()
      local net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)):to("cuda")
      local opt = optim.SGD(net:parameters(), {lr = 0.1})
      local train = training(net, opt, F.mse_loss)
      return function(x, y) return train(x:cuda(), y:cuda()):cpu() * 2 end,
        function() return moth.randn(4, 3), moth.randn(4, 2) end, net
    end)
    local step = moth.capture(function(x)
      return (x:cuda():exp() + 1):log():square():sum():cpu()
    end)
    for i = 1, 3 do
      assert.near(math.log(math.exp(i) + 1) ^ 2, step(moth.full({1}, i)):item(), 1e-5)
    end
    shown = tostring(step)
    assert.are.equal("captured step (1 recording; a call is 1 graph, 2 ops on the CPU)", shown)
  end)

  it("works with a driver without graphs", function()
    if not cuda.name:find "emulated" then
      pending "a real driver makes graphs"
      return
    end
    local function make()
      local net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.3), nn.Linear(8, 2)):to("cuda")
      local opt = optim.Adam(net:parameters(), {lr = 0.05})
      return training(net, opt, F.mse_loss), function() return there {6, 3}, there {6, 2} end, net
    end
    local eager = run(make, 6)
    ffi.C.setenv("MOTH_EMULATED_GRAPHS", "none", 1)
    local ok, captured, shown = pcall(run, make, 6, moth.cuda.graph)
    ffi.C.unsetenv "MOTH_EMULATED_GRAPHS"
    assert(ok, captured)
    assert.are.equal(eager, captured)
    assert.are.equal("captured step (1 recording)", shown)
  end)

  it("launches ops singly with MOTH_CUDA_BLOCKING, but not with the value 0", function()
    local function shown(value)
      local pipe = io.popen("MOTH_CUDA_BLOCKING=" .. value .. " " .. process.program .. [[ -e '
        local moth = require "moth"
        local step = moth.cuda.graph(function(x) return ((x * 2 + 1):tanh() * 3 - 1):exp() end)
        for _ = 1, 4 do step(moth.ones(2, {device = "cuda"})) end
        print(step)' 2>&1]])
      local text = pipe:read "*a"
      pipe:close()
      return text
    end
    assert.are.equal("captured step (1 recording)\n", shown "1")
    for _, off in ipairs {"0", ""} do assert.are.equal(ONE .. "\n", shown(off)) end
  end)
end)

describe("a captured step on a GPU", function()
  local function chain(x) return ((x * 2 + 1):tanh() * 3 - 1):exp() end

  it("is captured again for other shapes, dtypes and precisions", function()
    local w = there {3, 3}
    local runs = 0
    local step = moth.cuda.graph(function(x)
      runs = runs + 1
      return chain(x:matmul(w:to(x.dtype)))
    end)
    for i, x in ipairs {there {2, 3}, there {4, 3}, there({2, 3}):double()} do
      for _ = 1, 3 do
        local got = bits(step(x))
        assert.are.equal(bits(chain(x:matmul(w:to(x.dtype)))), got)
      end
      assert.are.equal(i, runs)
    end
    moth.set_float32_matmul_precision "high"
    local ok, problem = pcall(step, there {2, 3})
    moth.set_float32_matmul_precision "highest"
    assert(ok, problem)
    assert.are.equal(4, runs)
    moth.backends.cudnn.enabled = false
    ok, problem = pcall(step, there {2, 3})
    moth.backends.cudnn.enabled = true
    assert(ok, problem)
    assert.are.equal(5, runs)
  end)

  it("draws the same numbers as the uncaptured step", function()
    local function draw(x)
      return chain(x + moth.rand_like(x) + moth.randn({4}, {device = "cuda"}))
    end
    local step, x = moth.cuda.graph(draw), there {4}
    local texts = {}
    for k, fn in ipairs {step, draw} do
      moth.manual_seed(5)
      texts[k] = bits(fn(x)) .. "\n" .. bits(fn(x)) .. "\n" .. bits(fn(x))
    end
    assert.are.equal(texts[2], texts[1])
    assert.are.equal(ONE, tostring(step))
  end)

  it("draws from the user's own generator outside of its graph", function()
    local generator = moth.Generator()
    local function draw(x) return chain(x + moth.rand_like(x, {generator = generator})) end
    local step, x = moth.cuda.graph(draw), there {4}
    local texts = {}
    for k, fn in ipairs {step, draw} do
      generator:manual_seed(5)
      texts[k] = bits(fn(x)) .. "\n" .. bits(fn(x)) .. "\n" .. bits(fn(x))
    end
    assert.are.equal(texts[2], texts[1])
    assert.are.equal("captured step (1 recording; a call is 1 graph, 1 op on the GPU)",
      tostring(step))
  end)

  it("reads numbers on the CPU again for each replay", function()
    local factor = moth.tensor(2)
    local step = moth.cuda.graph(function(x) return chain(x * factor) end)
    local x = there {5}
    for i = 1, 4 do
      factor:fill_(i)
      assert.are.equal(bits(chain(x * i)), bits(step(x)))
    end
    assert.are.equal(ONE, tostring(step))
  end)

  it("leaves memory of other computations between its calls unchanged", function()
    local w = there {1024, 64}
    local function product(x) return x:matmul(w):softmax(2):cumsum(1):sum(2):exp() end
    local step = moth.cuda.graph(product)
    local x = there {64, 1024}
    local wanted = bits(product(x))
    for i = 1, 4 do
      local mine = {}
      for k = 0, 16 do mine[k] = moth.full({2 ^ k * 8}, i, {device = "cuda"}) end
      assert.are.equal(wanted, bits(step(x)))
      for k = 0, 16 do assert.is_true(mine[k]:eq(i):all():item(), "of 8 * 2^" .. k) end
    end
  end)

  it("runs on the current stream, after that stream's earlier work", function()
    local step = moth.cuda.graph(function(x) return chain(x + moth.rand_like(x)) end)
    local stream, got, wanted = moth.cuda.Stream(), {}, {}
    local function on(i, fn, ...)
      if i % 2 == 0 then return fn(...) end
      return moth.cuda.stream(stream, fn, ...)
    end
    for k, fn in ipairs {step, function(x) return chain(x + moth.rand_like(x)) end} do
      moth.manual_seed(3)
      for i = 1, 6 do
        local text = on(i, function()
          local x = moth.full({4000}, i, {device = "cuda"}) * 2
          return bits(fn(x):sum())
        end)
        table.insert(k == 1 and got or wanted, text)
      end
    end
    assert.are.same(wanted, got)
  end)

  it("keeps its order on several streams: each call follows the last", function()
    local w = moth.zeros(4000, {device = "cuda"})
    local step = moth.cuda.graph(function(x) return w:add_(x) end)
    local streams = {moth.cuda.default_stream(), moth.cuda.Stream(), moth.cuda.Stream()}
    local x = moth.ones(4000, {device = "cuda"})
    moth.cuda.synchronize()
    for i = 1, 8 do moth.cuda.stream(streams[i % 3 + 1], step, x) end
    local got = moth.cuda.stream(streams[8 % 3 + 1], function() return w:cpu() end)
    assert.is_true(got:eq(8):all():item())
  end)

  it("is run once if streams fail to wait for each other", function()
    if not cuda.name:find "emulated" then return end
    for n = 1, 4 do
      local w, stream = moth.zeros(4000, {device = "cuda"}), moth.cuda.Stream()
      local step = moth.cuda.graph(function(x) return chain(w:add_(x)) end)
      local x = moth.ones(4000, {device = "cuda"})
      for _ = 1, 2 do step(x) end
      moth.cuda.stream(stream, step, x)
      local told = with_variable("MOTH_EMULATED_WAITS", tostring(n), function()
        return moth.cuda.stream(stream, function() return {pcall(step, x)} end)
      end)
      moth.cuda.synchronize()
      assert.are.equal(told[1] and 4 or 3, w[1]:item(), "wait " .. n)
    end
  end)

  it("becomes a graph later if memory was short at first", function()
    if not cuda.name:find "emulated" then return end
    local step = moth.cuda.graph(chain)
    local x = there {5}
    step(x)
    with_variable("MOTH_EMULATED_GRAPHS", "none", function() return step(x) end)
    assert.are.equal(bits(chain(x)), bits(step(x)))
    assert.are.equal(ONE, tostring(step))
  end)

  it("can use its results as inputs", function()
    local step = moth.cuda.graph(function(a, b) return a + b, a * 1 + 0, chain(a) end)
    local a, b = moth.ones(1, {device = "cuda"}), moth.ones(1, {device = "cuda"})
    local got = {}
    for i = 1, 6 do
      a, b = step(a, b)
      got[i] = a:item()
    end
    assert.are.same({2, 3, 5, 8, 13, 21}, got)
  end)

  it("reports a wrong position at the next synchronization, with the op's name", function()
    local w = there {10, 4}
    local step = moth.cuda.graph(function(i) return chain(F.embedding(i, w)) end)
    local good = moth.tensor({1LL, 10LL}, {device = "cuda"})
    local wanted = bits(chain(F.embedding(good, w)))
    for _ = 1, 2 do
      step(good)
      assert.are.equal(wanted, bits(step(good)))
      assert.has_error_like(function()
        step(moth.tensor({1LL, 99LL}, {device = "cuda"}))
        moth.cuda.synchronize()
      end, "'embedding', which ran before on the GPU, got position 99 of 10")
      assert.are.equal(wanted, bits(step(good)))
      step(moth.tensor({1LL, 99LL}, {device = "cuda"}))
      assert.has_error_like(function() step:free() moth.cuda.synchronize() end, "got position 99")
      step = moth.cuda.graph(function(i) return chain(F.embedding(i, w)) end)
    end
  end)

  it("raises the errors of its ops, and can be called again after them", function()
    local net = nn.Linear(3, 2):to("cuda")
    local opt = optim.SGD(net:parameters(), {lr = 0.1})
    local step = moth.cuda.graph(training(net, opt, F.mse_loss))
    local x, y = there {4, 3}, there {4, 2}
    for _ = 1, 3 do step(x, y) end
    local before = state_of(net)
    opt.param_groups[1].lr = -1
    assert.has_error_like(function() step(x, y) end, "'lr' to 'SGD'")
    assert.are.equal(before, state_of(net))
    opt.param_groups[1].lr = 0.1
    step(x, y)
    step(x, y)
    assert.are.equal(ONE, tostring(step))
  end)

  it("verifies itself without changing the results of steps", function()
    local function make()
      local net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5),
        nn.Linear(8, 2)):to("cuda")
      local opt = optim.AdamW(net:parameters())
      return training(net, opt, F.mse_loss), function() return there {4, 3}, there {4, 2} end, net
    end
    local verified = run(make, 10, function(fn) return moth.cuda.graph(fn, {verify = 5}) end)
    assert.are.equal(run(make, 10), verified)
    local n = 0
    local bad = moth.cuda.graph(function(x)
      n = n + 1
      return chain(n > 3 and x * 2 or x)
    end, {verify = 5})
    assert.has_error_like(function() for _ = 1, 6 do bad(there {2}) end end, "constant")
  end)

  it("returns its memory when it is freed, and when it is collected", function()
    local net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)):to("cuda")
    local opt = optim.SGD(net:parameters(), {lr = 0.1})
    local x, y = there {64, 64}, there {64, 64}
    local function count()
      moth.collect()
      moth.cuda.empty_cache()
      return moth.cuda.memory_allocated(), moth.cuda.memory_reserved(), moth.memory().live_storages
    end
    training(net, opt, F.mse_loss)(x, y)
    opt:zero_grad()
    local before = {count()}
    for k = 1, 2 do
      local step = moth.cuda.graph(training(net, opt, F.mse_loss))
      for _ = 1, 3 do step(x, y) end
      if k == 1 then step:free() end
      step = nil -- luacheck: ignore 311
      opt:zero_grad()
      assert.are.same(before, {count()})
    end
  end)

  it("uses no more memory with more calls", function()
    local net = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 16)):to("cuda")
    local opt = optim.Adam(net:parameters())
    local step = moth.cuda.graph(training(net, opt, F.mse_loss))
    local x, y = there {16, 16}, there {16, 16}
    for _ = 1, 4 do step(x, y) end
    moth.collect()
    local before = moth.cuda.memory_reserved()
    for _ = 1, 30 do step(x, y) end
    moth.collect()
    assert.are.equal(before, moth.cuda.memory_reserved())
  end)
end)

describe("moth.cuda.graph", function()
  it("only captures steps on a GPU", function()
    local step = moth.cuda.graph(function(x) return x * 2 end)
    assert.has_error_like(function() step(moth.ones(2)) end, "this one has no GPU op")
    assert.are.equal("E_DEVICE", moth.errcode())
    assert.are.same({2, 2}, step(moth.ones(2, {device = "cuda"})):tolist())
  end)

  it("refuses the same functions as moth.capture", function()
    local step = moth.cuda.graph(function(x) return x * x:sum():item() end)
    assert.has_error_like(function() step(there {2}) end, "values are read")
  end)
end)
