-- Memory: peaks of loops with temporaries, limits, failing allocations, leaks().

local moth = require "moth"
local intact = require "spec.support.intact"
local lib = require "moth.binding.lib"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local C, ctx = lib.C, lib.ctx
local refuses = intact.refuses

local TEMPORARY, MIB = 80 * 1024, 1024 * 1024
local FLOATS = TEMPORARY / 4

-- The garbage that may remain if collections are expensive.
local function most(live)
  return math.max(16 * MIB, live or 0, 4.5 * 1024 * collectgarbage "count")
end

describe("a loop of ten thousand temporaries of 80 KB", function()
  local function loop(wrap)
    moth.collect()
    moth.reset_peak_memory()
    local before = moth.memory().live_bytes
    local a = moth.ones(FLOATS)
    for _ = 1, 10000 do wrap(a) end
    return moth.memory().peak_bytes - before
  end

  it("needs at most 1.3 x the peak of reference counting, more with a large Lua heap", function()
    -- reference counting: a and one result, or two while the old one is still referenced
    local peak = loop(function(a)
      local b = a * 2
      return b
    end)
    assert.is_true(peak <= 1.3 * 3 * TEMPORARY + most(), ("%.1f MiB"):format(peak / MIB))
  end)

  it("does so also with many Lua tables, and in chains of ops", function()
    local heap = {}
    for i = 1, 100000 do heap[i] = { i } end
    local peak = loop(function(a) return (a * 2 + a):relu():mul(a) end)
    assert.is_true(peak <= 1.3 * 5 * TEMPORARY + most(), ("%.1f MiB"):format(peak / MIB))
    assert.equal(100000, #heap)
  end)

  it("needs no more than reference counting in a scope", function()
    local peak = loop(function(a)
      moth.scope(function()
        local b = a * 2
        return b:dim()
      end)
    end)
    assert.is_true(peak <= 2 * TEMPORARY + 64, ("%d bytes"):format(peak)) -- 64: the 2
  end)

  it("does so with recorded ops, too", function()
    local w = moth.ones(FLOATS):requires_grad_()
    moth.collect()
    moth.reset_peak_memory()
    local before = moth.memory().live_bytes
    for _ = 1, 2000 do
      local y = (w * 2):exp()
      assert(y)
    end
    local peak = moth.memory().peak_bytes - before
    assert.is_true(peak <= 1.3 * 4 * TEMPORARY + most(), ("%.1f MiB"):format(peak / MIB))
  end)

  it("never needs more than its recent peak, if collections are expensive", function()
    local live = moth.ones(10 * MIB) -- 40 MiB
    local peak = loop(function(a) return a * 2 end)
    assert.is_true(peak <= most(40 * MIB) + 4 * MIB, ("%.1f MiB"):format(peak / MIB))
    live:free()
  end)
end)

describe("cdist", function()
  local function in_one_piece(a, b, p) return ((a:unsqueeze(-2) - b:unsqueeze(-3)):norm(p, -1)) end

  it("computes a part of the differences at a time if no gradient needs them", function()
    moth.manual_seed(1)
    local a, b = moth.randn(2, 700, 30), moth.randn(600, 30)
    for _, p in ipairs { 0, 1, 2.5, math.huge } do
      moth.collect()
      local before = moth.memory().live_bytes
      moth.reset_peak_memory()
      local y = moth.cdist(a, b, p)
      local taken = moth.memory().peak_bytes - before
      assert.is_true(taken < 3 * y.nbytes, taken / y.nbytes) -- 30 times as much in one piece
      assert.is_true(y:equal(in_one_piece(a, b, p)))
    end
    local x = a:clone():requires_grad_()
    assert.is_true(moth.cdist(x, b, 1):detach():equal(in_one_piece(a, b, 1)))
  end)
end)

describe("many small tensors", function()
  it("are collected although they have few bytes", function()
    moth.collect()
    local before = moth.memory()
    for _ = 1, 300000 do moth.ones(1) end
    local after = moth.memory()
    assert.is_true(after.live_handles - before.live_handles <= 140000,
      tostring(after.live_handles))
  end)

  it("are also swept after Lua's own collections", function()
    moth.collect()
    local before = moth.memory().live_handles
    for _ = 1, 1000 do moth.ones(1) end
    collectgarbage()
    collectgarbage()
    moth.ones(1)
    local x = moth.ones(1)
    assert.is_true(moth.memory().live_handles - before <= 10)
    assert(x)
  end)
end)

describe("a collection", function()
  local function gives_back()
    for _ = 1, 100 do moth.ones(1) end
    local before = moth.memory().live_handles
    lib.collect()
    return before - moth.memory().live_handles >= 99
  end

  it("frees garbage, at any state of Lua's own collection", function()
    local held = {}
    for i = 1, 3000 do held[i] = { i } end
    for _ = 1, 60 do
      collectgarbage("step", 20)
      assert.is_true(gives_back())
      for _ = 1, 8 do collectgarbage("step", 0) end
      assert.is_true(gives_back())
    end
    assert.equal(3000, #held)
  end)

  it("does so if the host has made the collector's steps small", function()
    local mul = collectgarbage("setstepmul", 1)
    local all = gives_back()
    collectgarbage("setstepmul", mul)
    assert.is_true(all)
  end)
end)

describe("the host's collector setting", function()
  it("is the same after a collection by Moth", function()
    collectgarbage "stop"
    local before = moth.memory().collections
    for _ = 1, 1000 do -- the time of the next collection depends on the rest of Lua's heap
      for _ = 1, 1000 do moth.ones(FLOATS) end
      if moth.memory().collections > before then break end
    end
    local after = moth.memory()
    local running = collectgarbage "isrunning"
    collectgarbage "restart"
    assert.is_false(running)
    assert.is_true(after.collections > before, "no collection was made")
    local pause, step = collectgarbage("setpause", 150), collectgarbage("setstepmul", 300)
    for _ = 1, 1000 do moth.ones(FLOATS) end
    assert.equal(150, collectgarbage("setpause", pause))
    assert.equal(300, collectgarbage("setstepmul", step))
    assert.is_true(collectgarbage "isrunning")
  end)

  it("is also kept if a finalizer runs ops", function()
    local ran = 0
    for _ = 1, 20 do
      local proxy = newproxy(true)
      getmetatable(proxy).__gc = function()
        local x = moth.ones(3) + 1
        ran = ran + x:sum():item()
      end
    end
    moth.collect()
    collectgarbage()
    assert.equal(20 * 6, ran)
    assert.equal(3, moth.ones(3):sum():item())
  end)
end)

describe("a memory limit", function()
  after_each(function() moth.set_memory_limit(0) end)

  it("raises for larger allocations, and the context stays usable", function()
    moth.collect()
    moth.set_memory_limit(moth.memory().live_bytes + 10 * MIB)
    local x = moth.ones(MIB)
    refuses(function() return (moth.ones(4 * MIB)) end, "limit", { x })
    assert.equal("E_LIMIT", moth.errcode())
    refuses(function() return (x:expand(8, MIB):contiguous()) end, "limit")
    assert.equal(moth.memory().limit_bytes > 0, true)
    moth.set_memory_limit(0)
    assert.equal(4 * MIB, moth.ones(4 * MIB):numel())
  end)

  it("collects garbage before it raises", function()
    moth.collect()
    moth.set_memory_limit(moth.memory().live_bytes + 8 * MIB)
    local sum = 0
    for _ = 1, 100 do sum = sum + moth.ones(MIB)[1]:item() end
    assert.equal(100, sum)
  end)

  it("is a number of bytes", function()
    refuses(function() moth.set_memory_limit(-1) end, "'bytes' to 'set_memory_limit'")
    refuses(function() moth.set_memory_limit("1") end, "'bytes' to 'set_memory_limit'")
  end)
end)

local function nothing_to_collect() return false end

-- Runs f with the k-th allocation failing, for k = 1, 2, ... until f succeeds. The core does not
-- try a failed allocation again here. Returns the memory held beyond the memory before; older
-- garbage may be freed meanwhile.
local function lost(held)
  for name, count in pairs(intact.counts()) do
    if held[name] < count then return ("%s: %d, not %d"):format(name, count, held[name]) end
  end
end

-- A count needs a full collection, so there is one at the end. If it shows a leak, each failure is
-- counted, to find the allocation.
local function each_failure(f, watched)
  local expected = f()
  local held = intact.counts()
  local failures = 0
  for k = 1, 2000 do
    local collect = lib.collect
    lib.collect = nothing_to_collect
    C.moth_fail_allocation(ctx, k)
    local ok, result = pcall(f)
    C.moth_fail_allocation(ctx, 0)
    lib.collect = collect
    if ok then
      assert.equal(expected, result)
    else
      failures = failures + 1
      assert.matches("out of memory", result)
      assert.equal("E_MEM", moth.errcode())
    end
    if watched then assert.is_nil(lost(held), "allocation " .. k) end
    if ok and k > failures + 3 then
      if lost(held) then return each_failure(f, true) end
      return failures
    end
  end
  error "it never succeeds"
end

local Twice = nn.class("Twice", moth.autograd.Function)
function Twice.forward(call, x)
  call:save_for_backward(x)
  return x * 2
end
function Twice.backward(_, dy) return dy * 2 end

describe("an allocation that fails", function()
  setup(function() moth.ones(1) end)

  local x, w = moth.randn(6, 8), moth.randn(8, 8):requires_grad_()
  local cases = {
    add = function() return (x + x):sum():item() end,
    ["a number"] = function() return (x * 2 + 1 - 0.5):sum():item() end,
    matmul = function() return x:matmul(w):sum():item() end,
    ["an integer divided"] = function() return (moth.arange(6) / 4):sum():item() end,
    softmax = function() return (x:softmax(2)):max():item() end,
    sum = function() return (x:sum{ 1 }:sum():item()) end,
    max = function() return (select(2, x:max(2)):sum():item()) end,
    cat = function() return moth.cat{ x, x:t():contiguous():t(), x }:sum():item() end,
    split = function() return #x:split(1) + #x:unbind() end,
    conv2d = function()
      return F.conv2d(moth.ones(1, 2, 6, 6), moth.ones(3, 2, 3, 3)):sum():item()
    end,
    max_pool2d = function() return F.max_pool2d(moth.ones(1, 2, 6, 6), 2):sum():item() end,
    indexing = function() return x[{ moth.tensor{ 1LL, 3LL }, { 2, 4 } }]:numel() end,
    ["a write by index"] = function()
      local y = x:clone()
      y[{ {}, { { 1, 3 } } }] = 2
      y[y:gt(1)] = 0
      return y:max():item()
    end,
    ["in place"] = function() return x:clone():mul_(2):add_(x):clamp_(-1, 1):numel() end,
    ["a table"] = function() return moth.tensor{ { 1, 2 }, { 3, 4 } }:sum():item() end,
    random = function() return moth.randn(4):numel() + moth.randperm(5):numel() end,
    ["a cast"] = function() return x:to(moth.float16):to(moth.float64):numel() end,
    backward = function()
      local y = (w * w):matmul(w):exp():mean()
      y:backward()
      local norm = w.grad:numel()
      w.grad = nil
      return norm
    end,
    ["a second derivative"] = function()
      local y = (w * w * w):sum()
      local g = moth.autograd.grad(y, w, { create_graph = true })
      local h = moth.autograd.grad((g * g):sum(), w)
      return h:numel()
    end,
    ["a hook"] = function()
      local y = w * 2
      y:register_hook(function(g) return g * 3 end)
      y:sum():backward()
      local v = w.grad:numel()
      w.grad = nil
      return v
    end,
    ["a write through a view"] = function()
      local y = w * 1
      y[2]:mul_(3)
      y[{ {}, 1 }] = x[1]
      local g = moth.autograd.grad(y:sum(), w)
      return g:numel()
    end,
    ["a scope"] = function()
      return moth.scope(function() return (x * 2):sum():numel() end)
    end,
    ["a kept gradient"] = function()
      local y = w * 2
      y:retain_grad()
      y:retain_grad()
      y:sum():backward()
      return y.grad:numel()
    end,
    ["a gradient that is set"] = function()
      local y = moth.ones(3):requires_grad_()
      y.grad = moth.ones(3)
      return y.grad:numel() + y:detach():numel() + y.data:numel()
    end,
    ["a new leaf"] = function()
      local y = x:clone():requires_grad_()
      y:sum():backward()
      y:mean():backward()
      return y.grad:numel()
    end,
    ["a hook of an accumulated gradient"] = function()
      local y = moth.ones(3):requires_grad_()
      local handle = y:register_post_accumulate_grad_hook(function(leaf) leaf.grad:mul_(2) end)
      ;(y * y):sum():backward()
      handle:remove()
      return y.grad:sum():item()
    end,
    ["a custom function"] = function()
      local y = Twice.apply(w)
      y:sum():backward()
      return w.grad:numel()
    end,
    ["gradients of a part of the graph"] = function()
      local y = w * 2
      local z, other = (y * y):sum(), (w * 3):sum()
      local g, h = moth.autograd.grad({z, other}, {y, w}, {retain_graph = true})
      return g:numel() + h:numel() + #{moth.autograd.grad(z, {w})}
    end,
    ["a batch of gradients"] = function()
      local y = w:sum {1}
      local g = moth.autograd.grad(y, w, {grad_outputs = moth.eye(8), is_grads_batched = true})
      return g:numel()
    end,
    ["anomaly detection"] = function()
      return moth.autograd.detect_anomaly(function()
        (w * w):sum():backward()
        return w.grad:numel()
      end)
    end,
    ["a token"] = function() return moth.open_token(moth.token(x:clone())):numel() end,
  }
  local names = {}
  for name in pairs(cases) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    it("at any allocation of " .. name .. " raises, leaks nothing and spoils nothing", function()
      local failures = each_failure(function()
        w.grad = nil
        local value = cases[name]()
        return value
      end)
      assert.is_true(failures > 0)
    end)
  end

  it("at any allocation of a training step leaves the net usable", function()
    local net = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))
    local opt = optim.SGD(net:parameters(), { lr = 0.01, momentum = 0.9 })
    local target = { 1, 2, 3, 1, 2, 3 }
    local function step()
      opt:zero_grad()
      local loss = F.cross_entropy(net(x), target)
      loss:backward()
      opt:step()
      return loss:numel()
    end
    for _ = 1, 2 do step() end
    each_failure(function() -- without the gradients, which may be fewer after a failure
      local ok, result = pcall(step)
      for _, p in ipairs(net:parameters()) do p.grad = nil end
      if not ok then error(result, 0) end
      return result
    end)
    for _, p in ipairs(net:parameters()) do
      assert.is_true(p:isfinite():all():item())
    end
  end)
end)

describe("moth.leaks", function()
  it("lists live tensors, the largest first", function()
    local x = moth.ones(1000):requires_grad_()
    local y = x * 2
    local report = moth.leaks()
    local largest
    for _, item in ipairs(report.tensors) do
      if item.tensor == y then largest = item end
    end
    assert.equal("f32 (1000)", largest.text)
    assert.equal("mul", largest.history)
    assert.equal(4000, largest.bytes)
    for i = 2, #report.tensors do
      assert.is_true(report.tensors[i - 1].bytes >= report.tensors[i].bytes)
    end
    assert.matches("4000 bytes  f32 %(1000%), from mul", tostring(report))
    assert.matches("tensors with a handle", tostring(report))
  end)

  it("shows the cycle of a hook that refers to its own output", function()
    local before = intact.counts()
    local function cycle()
      local x = moth.ones(12345):requires_grad_()
      local y = x * 2
      y:register_hook(function() return y * 1 end)
    end
    cycle()
    local function free()
      for _, item in ipairs(moth.leaks().tensors) do
        if item.text == "f32 (12345)" and item.history then
          item.tensor:free()
          return true
        end
      end
      return false
    end
    assert.is_true(free())
    assert.at_most(before, intact.counts())
  end)
end)

describe("moth.memory", function()
  it("counts bytes, handles, nodes and storages", function()
    local before = intact.counts()
    local x = moth.ones(1000):requires_grad_()
    local y = x + x
    local after = moth.memory()
    assert.is_true(after.live_bytes >= before.bytes + 8000)
    assert.equal(before.handles + 2, after.live_handles)
    assert.equal(before.storages + 2, after.live_storages)
    assert.is_true(after.live_nodes > before.nodes)
    assert.is_true(after.peak_bytes >= after.live_bytes)
    assert.is_true(x ~= y)
    x, y = nil, nil -- luacheck: ignore 311
    assert.at_most(before, intact.counts())
  end)

  it("keeps free blocks (without AddressSanitizer) until empty_cache", function()
    local x = moth.ones(1000000)
    x:free()
    local kept = moth.memory().cached_bytes
    assert.is_true(kept >= 4000000 or os.getenv "MOTH_SANITIZED" ~= nil and kept == 0)
    moth.empty_cache()
    assert.is_true(moth.memory().cached_bytes < 4000000)
  end)
end)

describe("moth.empty_cache", function()
  it("also frees the memory of tensors that Lua has collected", function()
    moth.collect()
    moth.empty_cache()
    local before = moth.memory().live_bytes
    for _ = 1, 4 do moth.zeros(FLOATS) end
    collectgarbage "stop" -- no other sweep
    collectgarbage()
    collectgarbage()
    collectgarbage "stop"
    moth.empty_cache()
    collectgarbage "restart"
    local memory = moth.memory()
    assert.at_most(before, memory.live_bytes)
    assert.at_most(TEMPORARY - 1, memory.cached_bytes)
  end)
end)
