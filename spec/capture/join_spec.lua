-- Elementwise ops in a captured step: a chain of ops is one instruction. It computes the same bits
-- and stores no intermediate results.

local moth = require "moth"
local F = moth.nn.functional
local guard = require "moth.capture.conditional"
local support = require "spec.support.bits"
local program = require "spec.support.programs"
local captured = require "spec.support.captured"

local bits, recorded = support.of, captured.recorded
local FLOATS = {moth.float32, moth.float64, moth.float16, moth.bfloat16}

local function gelu(x) return 0.5 * x * (1 + (0.7978845608 * (x + 0.044715 * x ^ 3)):tanh()) end

describe("a chain of elementwise ops in a captured step", function()
  it("is one op, with the same bits, for every float dtype", function()
    moth.manual_seed(1)
    for _, dtype in ipairs(FLOATS) do
      for _, size in ipairs {{7}, {3, 5}, {33, 70}, {2000}, {}} do
        local x = moth.randn(size, {dtype = moth.float64}):to(dtype)
        assert.equal(1, recorded(gelu, x))
        assert.equal(1, recorded(function(v) return (v * 2 - 1):sigmoid() * v:relu() end, x))
      end
    end
  end)

  it("may have integers, bools and conversions between them", function()
    for _, dtype in ipairs {moth.int8, moth.int16, moth.int32, moth.int64, moth.uint8} do
      local x = moth.randint(0, 9, {40, 70}):to(dtype)
      assert.equal(1, recorded(function(v) return (v * 3 + 1):maximum(v) - 2 end, x))
      assert.equal(1, recorded(function(v)
        return moth.where((v + 1):gt(4):logical_or(v:eq(2)), v * 2, 7)
      end, x))
    end
    local x, m = moth.randn(20, 70), moth.randn(20, 70):gt(0)
    assert.equal(1, recorded(function(v)
      return (v * 2):masked_fill(m, -1 / 0):exp() + v:gt(1):to(moth.float32)
    end, x))
    assert.equal(1, recorded(function(v) return ((v:half() * 3):float() + v):double() / 3 end, x))
    assert.equal(1, recorded(function(v) return v:half() * v:bfloat16() + v end, x))
  end)

  it("reads rows, single elements and numbers together with its tensors", function()
    local row, column = moth.randn(70), moth.randn(20, 1)
    local one, single = moth.tensor(0.3), moth.randn(1, 1)
    assert.equal(1, recorded(function(v) return (v + row):tanh() * column * one - single end,
                             moth.randn(20, 70)))
    assert.equal(3, recorded(function(v) return ((v * one) ^ 2 + one:exp()):sqrt() end,
                             moth.randn(20, 70))) -- the exponential has another shape
  end)

  it("has up to four results, and is split for more", function()
    local x = moth.randn(100)
    assert.equal(1, recorded(function(v)
      local a, b = v * 2, v:exp()
      local c = a + b
      return a, b, c, c:tanh()
    end, x))
    assert.equal(2, recorded(function(v)
      local a, b = v * 2, v:exp()
      local c = a + b
      return a, b, c, c:tanh(), c * a, c - v
    end, x))
  end)

  it("may be long", function()
    local n = recorded(function(v)
      for i = 1, 40 do v = (v * 0.5 + i / 8):sin() end
      return v
    end, moth.randn(300))
    assert.is_true(n <= 10, n)
  end)

  it("writes in place, into views and through aliases", function()
    local x, w = moth.randn(30, 64), moth.randn(30, 64)
    assert.equal(1, recorded(function(v) return (v * 2):add_(w):relu_():mul_(v) end, x))
    local state = moth.zeros(30, 64)
    local function add(v)
      state:mul_(0.9):add_(v, {alpha = 0.1})
      return state * v
    end
    assert.is_true(recorded(function(v)
      state:copy_(w)
      return add(v)
    end, x) <= 2)
    assert.is_true(recorded(function(v)
      local y = v * 2
      y[{{1, 10}}]:add_(1):mul_(3)
      return y + 1, y[{{5, 12}}] - 1
    end, x) <= 4)
    assert.is_true(recorded(function(v)
      local y = v + 1
      y.data:mul_(2)
      return y * 3
    end, x) <= 3)
    assert.is_true(recorded(function(v)
      local y = v[{{1, 30}, {1, 32}}] * 2
      y:add_(y[1]):add_(y:t()[1]:sum())
      return y * 2
    end, x) >= 3)
    local out = moth.empty(30, 64)
    assert.is_true(recorded(function(v)
      moth.mul(v, 2, {out = out})
      moth.add(out, w, {out = out})
      return out * 1
    end, x) <= 1)
  end)

  it("is not joined for short or strided rows, or before an op that reads values", function()
    local w = moth.randn(64, 70)
    assert.equal(2, recorded(function(v) return (v * 2 + w:t()) end, moth.randn(70, 64)))
    local i = moth.randint(1, 9, {100})
    assert.equal(3, recorded(function(v) return ((v + 1):floor_divide(i)) * 2 end,
                             moth.randint(0, 90, {100})))
    local e = moth.tensor(2)
    local step = moth.capture(function(v) return (v * 1) ^ e end)
    local x = moth.tensor{-1 / math.huge, -1 / 0, 0.3, 2.2}
    for _, power in ipairs {2, 0.5, 3, -0.5} do
      e:fill_(power)
      assert.equal(bits((x * 1) ^ e), bits(step(x)))
    end
  end)

  it("ends with a guarded part, also before instructions that replays leave out", function()
    local state, flag = moth.zeros(1000), moth.zeros(1)
    local function step(x)
      guard.unless({flag}, function() end, function()
        state:mul_(0.5)
        state:add_(x)
      end)
      local one = moth.zeros(3) -- the same in each replay
      return x * 2 + 1, one:sum()
    end
    local again = moth.capture(step)
    for _, f in ipairs {step, again} do
      state:zero_()
      for i = 1, 4 do
        flag:fill_(i > 2 and 1 or 0)
        assert.equal(2 * i + 1, f(moth.full({1000}, i))[1]:item())
      end
      assert.equal(2.5, state[1]:item())
    end
  end)

  it("reads a single element again after an op of whole tensors writes it", function()
    local function step(x)
      local mean, var = moth.tensor {0.0}, moth.tensor {1.0}
      F.batch_norm(x, {running_mean = mean, running_var = var, training = true, momentum = 0.5})
      return x * mean + 1, x ^ mean
    end
    recorded(step, moth.rand(64, 1) + 1)
  end)

  it("uses less memory", function()
    local x = moth.randn(500, 400)
    local function taken(f)
      moth.collect()
      local before = moth.memory().live_bytes
      local step = moth.capture(f)
      step(x)
      moth.collect()
      local bytes = moth.memory().live_bytes - before
      step:free()
      return bytes / (500 * 400 * 4)
    end
    local bytes = taken(function(v) return gelu(v):sum() end) -- the argument, the sum's input
    assert.is_true(bytes > 1.9 and bytes < 2.2, bytes)
  end)

  it("verifies", function()
    local w = moth.randn(50, 64):requires_grad_()
    local step = moth.capture(function(v)
      w.grad = nil
      local loss = (gelu(v * w) + v:gt(0):float() * w):square():mean()
      loss:backward()
      return loss, w.grad * 2
    end, {verify = 3})
    for _ = 1, 4 do step(moth.randn(50, 64)) end
  end)

  it("equals the uncaptured results in many random programs", function()
    for seed = 1, 60 do
      local trouble = program.differs(seed)
      assert.is_nil(trouble, trouble)
    end
  end)

  it("clamps between tensors after any number of functions of single elements", function()
    local x = moth.tensor {-2.5, 0.5, 3}
    local low, high = moth.tensor {-1, 0, -1}, moth.tensor {-0.5, 1, 1}
    for n = 0, 6 do
      local function f(a, b, c)
        local all = {}
        for k = 1, n do all[k] = 2 / (k % 2 == 0 and all[k - 1] or a) end
        all[n + 1] = a:clamp {min = b, max = c}
        all[n + 2] = (a * 2):clamp {min = b, max = all[n + 1]}
        return all
      end
      local step, wanted = moth.capture(f), f(x, low, high)
      for _ = 1, 3 do
        for k, y in ipairs(step(x, low, high)) do assert.is_true(moth.equal(wanted[k], y)) end
      end
    end
  end)
end)
