--- The peak of a training step: in a scope, without a scope, and with many live Lua tables; and
-- writes to a tensor make no copies.

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local FLOOR = 16 * 2 ^ 20

-- A training step of a small network whose gradients are as large as its parameters.
local function trainer()
  local net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
  local optimizer = optim.Adam(net:parameters())
  local x, y = moth.randn(32, 256), moth.randint(1, 11, {32})
  return function()
    optimizer:zero_grad()
    F.cross_entropy(net(x), y):backward()
    optimizer:step()
  end
end

-- The most bytes that were live during n calls, and how many collections they took.
local function peak(n, call)
  call()
  moth.collect()
  local before = moth.memory().collections
  moth.reset_peak_memory()
  for _ = 1, n do call() end
  local after = moth.memory()
  return after.peak_bytes, after.collections - before
end

-- Compiled loops keep their functions alive, and these keep their networks alive.
teardown(function()
  jit.flush()
  moth.collect()
end)

describe("a training step", function()
  it("in a scope has the same peak after a thousand steps, without collections", function()
    local step = trainer()
    local one = peak(1, function() moth.scope(step) end)
    local many, collections = peak(1000, function() moth.scope(step) end)
    assert.is_true(many <= 1.05 * one, ("%d bytes, then %d"):format(one, many))
    assert.equal(0, collections)
  end)

  it("without a scope stays within 1.3 times that and 16 MiB, also with many tables", function()
    local step = trainer()
    local scoped = peak(3, function() moth.scope(step) end)
    assert.is_true(peak(600, step) <= 1.3 * scoped + FLOOR)
    local tables = {}
    for i = 1, 1e5 do tables[i] = {i} end
    assert.is_true(peak(600, step) <= 1.3 * scoped + FLOOR)
    assert.equal(1e5, #tables)
  end)

  it("frees gradients although the optimizer has read them", function()
    local step = trainer()
    step()
    moth.collect()
    local before = moth.memory().live_bytes
    collectgarbage("stop")
    for _ = 1, 20 do step() end
    local grown = moth.memory().live_bytes - before
    collectgarbage("restart")
    -- 20 steps' activations are garbage now, a sixth of what their gradients would be
    assert.is_true(grown < 20 * 110000, ("%d bytes"):format(grown))
  end)
end)

describe("the time that collections take", function()
  it("is counted", function()
    local before = moth.memory()
    moth.collect()
    local after = moth.memory()
    assert.is_true(after.collections > before.collections)
    assert.is_true(after.collection_seconds > before.collection_seconds)
  end)
end)

describe("a write to a tensor", function()
  it("does not copy an input that is the target, or another part of its storage", function()
    local x = moth.ones(4096)
    local one, two = x[{{1, 2048}}], x[{{2049, 4096}}]
    for name, write in pairs {
      ["a tensor and itself"] = function() x:add_(x) end,
      ["a tensor and itself, by out"] = function() moth.mul(x, x, {out = x}) end,
      ["halves"] = function() one:add_(two) end,
      ["halves, by out"] = function() moth.add(one, 1, {out = two}) end,
      ["equal views"] = function() one:mul_(x[{{1, 2048}}]) end,
    } do
      write()
      local prof = moth.profiler.profile(write)
      local copies, before = 0, moth.memory().live_bytes
      for _, event in ipairs(prof:events()) do
        if event.name == "clone" or event.name == "copy_" then copies = copies + 1 end
      end
      assert.equal(0, copies, name)
      moth.reset_peak_memory()
      write()
      local taken = moth.memory().peak_bytes - before
      assert.is_true(taken < 4096, name .. ": " .. taken)
    end
    local y = moth.arange(6):float()
    y[{{2, 6}}]:add_(y[{{1, 5}}]) -- the views overlap: the result uses the old values
    assert.same({0, 1, 3, 5, 7, 9}, y:tolist())
  end)
end)
