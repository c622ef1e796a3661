--- moth.budget and moth.reserve: work in slices of time.

local moth = require "moth"
local lib = require "moth.binding.lib"
local process = require "spec.support.process"
local nn = moth.nn
local F = nn.functional

local LEAST = 1e-9 -- seconds: each slice ends at the first poll

-- Runs fn(...) in slices. @return the number of slices, then the results
local function in_slices(seconds, between, fn, ...)
  local slices = 0
  while true do
    slices = slices + 1
    local results = {moth.budget(seconds, fn, ...)}
    if results[1] then return slices, unpack(results, 2) end
    if between then between(slices) end
    assert(slices < 1e6, "the work does not end")
  end
end

local function small_net()
  moth.manual_seed(3)
  local net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.BatchNorm2d(8), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(8 * 7 * 7, 10))
  return net, moth.optim.Adam(net:parameters(), 0.01)
end

local function train(net, optimizer, steps)
  for i = 1, steps do
    moth.manual_seed(i)
    local x, y = moth.randn(16, 1, 16, 16), moth.randint(1, 11, {16})
    optimizer:zero_grad()
    F.cross_entropy(net(x), y):backward()
    optimizer:step()
  end
  return net
end

-- The parameters after `steps` steps, as strings.
local function weights_of(net)
  local list = {}
  for i, p in ipairs(net:parameters()) do
    local t = p:detach():contiguous():view(-1)
    list[i] = table.concat(t:tolist(), " ")
  end
  return table.concat(list, "\n")
end

describe("moth.budget", function()
  it("returns true and the results when the work ends in one slice", function()
    local done, a, b = moth.budget(10, function(x, y) return x + y, "second" end, 1, 2)
    assert.is_true(done)
    assert.equal(3, a)
    assert.equal("second", b)
  end)

  it("continues the work at the next call, with the results of an unsliced run", function()
    local net, optimizer = small_net()
    local expected = weights_of(train(net, optimizer, 4))
    net, optimizer = small_net()
    local slices = in_slices(2e-5, nil, function() return train(net, optimizer, 4) end)
    assert.is_true(slices > 4)
    assert.equal(expected, weights_of(net))
  end)

  it("lets the host run ops between the slices", function()
    local a = moth.arange(200 * 200):view(200, 200):to(moth.float32) / 40000
    local expected = (a:matmul(a) + 1):sum(1):softmax(1)
    local other = moth.randn(50)
    local want = (other * 2 + 1):sum():item()
    local _, y = in_slices(2e-5, function()
      assert.equal(want, (other * 2 + 1):sum():item())
      assert.has_error(function() return other:sum(9) end)
    end, function() return (a:matmul(a) + 1):sum(1):softmax(1) end)
    assert.is_true(moth.equal(expected, y))
  end)

  it("pauses inside a captured step", function()
    local function run(sliced)
      local net, optimizer = small_net()
      moth.manual_seed(5)
      local x, y = moth.randn(16, 1, 16, 16), moth.randint(1, 11, {16})
      local step = moth.capture(function(a, b)
        optimizer:zero_grad()
        local loss = F.cross_entropy(net(a), b)
        loss:backward()
        optimizer:step()
        return loss
      end)
      local slices = 0
      for _ = 1, 8 do
        if sliced then slices = slices + in_slices(2e-5, nil, step, x, y) else step(x, y) end
      end
      return weights_of(net), slices
    end
    local expected = run(false)
    local got, slices = run(true)
    assert.equal(expected, got)
    assert.is_true(slices > 16)
  end)

  it("runs several works in turn", function()
    local function work(n)
      return function()
        local x = moth.full({n}, 1)
        for _ = 1, 30 do x = x + 1 end
        return x:sum():item()
      end
    end
    local a, b = work(10), work(20)
    local done_a, done_b, ra, rb
    for _ = 1, 1e5 do
      if not done_a then done_a, ra = moth.budget(LEAST * 1000, a) end
      if not done_b then done_b, rb = moth.budget(LEAST * 1000, b) end
      if done_a and done_b then break end
    end
    assert.equal(310, ra)
    assert.equal(620, rb)
  end)

  it("raises an error of the work, and begins it again after that", function()
    local calls = 0
    local function work()
      calls = calls + 1
      if calls == 1 then moth.zeros(2):view(3) end
      return "done"
    end
    assert.error_matches(function() in_slices(1, nil, work) end, "view")
    assert.same({true, "done"}, {moth.budget(1, work)})
  end)

  it("ends a slice where the work yields", function()
    local function work() coroutine.yield() return 7 end
    assert.same({false}, {moth.budget(1, work)})
    assert.same({true, 7}, {moth.budget(1, work)})
  end)

  it("keeps the modes of the host and of the work apart", function()
    local x = moth.randn(3, {requires_grad = true})
    local function work()
      return moth.no_grad(function()
        local y = x
        for _ = 1, 20 do y = y * 2 end
        return y.requires_grad
      end)
    end
    local _, inside = in_slices(2e-6, function()
      assert.is_true((x * 2).requires_grad)
    end, work)
    assert.is_false(inside)
  end)

  it("frees unfinished work that is cancelled", function()
    local before = moth.memory()
    for _ = 1, 20 do
      local a = moth.randn(256, 256)
      local function work() return a:matmul(a):matmul(a):sum():item() end
      moth.budget(1e-5, work)
      assert.is_true(moth.cancel_budget(work))
      assert.is_false(moth.cancel_budget(work))
    end
    moth.collect()
    moth.collect()
    assert.is_true(moth.memory().live_bytes <= before.live_bytes + 1024)
  end)

  it("pauses inside one long row, with the results of an unsliced run", function()
    local n = 2 ^ 17 + 5
    local x, ties = moth.randn(n), moth.randint(-9, 10, {n})
    local down = moth.arange(n, 0, -1):float()
    for name, work in pairs {
      sort = function(v) return v:sort() end, argsort = function(v) return v:argsort() end,
      median = function(v) return v:median() end, kthvalue = function(v) return v:kthvalue(77) end,
      few = function(v) return v:topk(3) end, some = function(v) return v:topk(1000) end,
      many = function(v) return v:topk(20000) end, least = function(v) return v:topk(n - 5) end,
      unique = function(v) return v:unique{return_inverse = true, return_counts = true} end,
      nonzero = function(v) return v:gt(0):nonzero() end,
      masked = function(v) return v[v:gt(0)] end,
      histc = function(v) return v:float():histc(10) end, mode = function(v) return v:mode() end,
    } do
      for _, v in ipairs {x, ties, down} do
        local wanted = {work(v)}
        local got = {in_slices(LEAST, nil, work, v)}
        assert.is_true(got[1] > 4, ("%s: %d slices"):format(name, got[1]))
        for k, y in ipairs(wanted) do assert.is_true(moth.equal(y, got[k + 1]), name) end
      end
    end
  end)

  it("frees all results of cancelled work, wherever it was paused", function()
    local x = moth.randn(64, 500)
    local works = {
      function() return x:sort() end, function() return x:max(2) end,
      function() return x:topk(3) end,
      function() return moth.std_mean(x, 2) end, function() return x:split(8) end,
      function() return x:unique{return_counts = true} end, function() return x:frexp() end,
      function() return moth.linalg.qr(x) end,
    }
    moth.collect()
    moth.collect()
    local before = moth.memory()
    for _, work in ipairs(works) do
      for slices = 1, 40 do
        local done = false
        for _ = 1, slices do done = done or moth.budget(LEAST, work) end
        if done then break end
        assert.is_true(moth.cancel_budget(work))
      end
    end
    moth.collect()
    moth.collect()
    assert.is_true(moth.memory().live_bytes <= before.live_bytes)
  end)

  it("ends a cancelled op in its middle", function()
    local x = moth.ones(5000, 400)
    local function work() return x:matmul(x:t()) end
    local begin = os.clock()
    work()
    local whole, least = os.clock() - begin, math.huge
    for _ = 1, 5 do
      assert.is_false(moth.budget(whole / 20, work))
      begin = os.clock()
      assert.is_true(moth.cancel_budget(work))
      least = math.min(least, os.clock() - begin)
    end
    assert.is_true(least < whole / 2, ("%g s of %g s"):format(least, whole))
  end)

  it("ends the scopes and modes of cancelled work", function()
    local x = moth.randn(64, 500)
    local function inside() return x:frexp() end -- frees what it creates by a scope
    local function scoped() return moth.scope(inside) end
    local function without_gradients() return moth.no_grad(inside) end
    for _, work in ipairs {inside, scoped, without_gradients} do
      moth.budget(LEAST, work)
      assert.is_true(moth.cancel_budget(work))
      assert.is_false(lib.others_set())
    end
  end)

  it("refuses a time that is no number and work that cannot be called", function()
    assert.error_matches(function() moth.budget("1", print) end, "seconds")
    assert.error_matches(function() moth.budget(-1, print) end, "seconds")
    assert.error_matches(function() moth.budget(0 / 0, print) end, "seconds")
    assert.error_matches(function() moth.budget(1, 5) end, "fn")
  end)

  it("refuses work that calls itself", function()
    local work
    work = function() return moth.budget(1, work) end
    assert.error_matches(function() moth.budget(1, work) end, "runs already")
  end)

  it("keeps the tensors of a paused op alive, whatever the host frees", function()
    local x = moth.arange(64 * 300):view(64, 300):to(moth.float32)
    local expected = x:gather(1, moth.ones(64, 300, {dtype = moth.int64})):sum():item()
    local function work()
      return x:gather(1, moth.ones(64, 300, {dtype = moth.int64})):sum():item()
    end
    local result
    repeat
      local done, y = moth.scope(function() return moth.budget(LEAST, work) end)
      collectgarbage()
      moth.collect()
      local _ = moth.randn(64, 300) -- reuses blocks that were freed
      result = done and y
    until result
    assert.equal(expected, result)
  end)

  it("keeps the input of an op whose data the host replaces", function()
    local a = moth.full({300, 300}, 2)
    local function work() return a:matmul(a):sum():item() end
    local slices, seen = 0
    repeat
      local done, y = moth.budget(LEAST, work)
      slices = slices + 1
      if slices == 4 then a.data = moth.full({300, 300}, 7) end
      collectgarbage()
      moth.full({300, 300}, 5) -- reuses blocks that were freed
      seen = y
    until done
    assert.equal(300 * 300 * 1200, seen)
  end)

  it("keeps gradients that the host clears while the optimizer is paused", function()
    local p = moth.ones(200000, {requires_grad = true})
    local optimizer = moth.optim.SGD({p}, 0.5)
    p.grad = moth.ones(200000)
    local function work() optimizer:step() end
    local cleared
    repeat
      local done = moth.budget(LEAST, work)
      if not cleared and not done then
        cleared = true
        p.grad = nil
        collectgarbage()
        local _ = moth.full({200000}, 9)
      end
    until done
    local least, most = p:detach():min():item(), p:detach():max():item()
    assert.is_true(least == most and (most == 0.5 or most == 1))
  end)

  it("keeps a captured step that the host frees during a paused replay", function()
    local x = moth.ones(200, 200)
    local step = moth.capture(function(a) return (a:matmul(a) * 2):sum() end, 0)
    step(x)
    step(x)
    local function work() return step(x):item() end
    assert.same({false}, {moth.budget(LEAST, work)})
    step:free()
    collectgarbage()
    assert.error_matches(function() in_slices(2e-5, nil, work) end, "freed")
    assert.equal(400, (moth.ones(20, 20) * 1):sum():item())
  end)

  it("keeps the tables of a paused Fourier transform", function()
    local x = moth.randn(64, 2048)
    local expected = moth.fft.rfft(x)
    local length = 100
    local _, y = in_slices(2e-5, function()
      for _ = 1, 8 do
        length = length + 2
        moth.fft.rfft(moth.ones(length))
      end
    end, function() return moth.fft.rfft(x) end)
    assert.is_true(moth.equal(expected, y))
  end)

  it("restores the modes of the host after each slice", function()
    local a, w = moth.randn(200, 200), moth.randn(200, 200, {requires_grad = true})
    local function work() return a:matmul(w):matmul(w) end
    moth.budget(LEAST, work)
    local done, y
    repeat
      moth.no_grad(function()
        done, y = moth.budget(2e-5, work)
        assert.is_false((w * 2).requires_grad)
      end)
      assert.is_true((w * 2).requires_grad)
    until done
    assert.is_true(y.requires_grad)
  end)

  it("refuses to cancel work that runs", function()
    local outer
    local function inner() return moth.cancel_budget(outer) end
    outer = function() return moth.budget(1, inner) end
    assert.error_matches(function() moth.budget(1, outer) end, "cancel")
  end)

  it("begins again after an error in the middle of paused work", function()
    local x, fail = moth.ones(100, 100), true
    local function work()
      local y = x:matmul(x)
      if fail then error("stop") end
      return y:sum():item()
    end
    assert.error_matches(function() in_slices(LEAST, nil, work) end, "stop")
    fail = false
    local _, y = in_slices(1e-5, nil, work)
    assert.equal(1e6, y)
  end)
end)

describe("moth.reserve", function()
  it("keeps the memory of one run, so that later runs allocate nothing", function()
    if process.sanitized then return pending "with a sanitizer no block is cached" end
    local net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    local x = moth.randn(32, 64)
    local function frame() return moth.scope(function() return net(x):sum():item() end) end
    moth.no_grad(function()
      assert.is_number(moth.reserve(frame))
      frame()
      local before = moth.memory().allocations
      for _ = 1, 200 do frame() end
      assert.equal(before, moth.memory().allocations)
    end)
  end)
end)
