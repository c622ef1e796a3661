-- Random numbers: Philox, seeds, states, and properties of distributions.

local ffi = require "ffi"
local moth = require "moth"
local intact = require "spec.support.intact"

local F = moth.nn.functional

-- Philox4x32-10 in plain Lua, on numbers below 2^32.
local function philox(counter, key)
  local function wide(a, b) -- high and low word of a product
    local p = ffi.cast("uint64_t", a) * ffi.cast("uint64_t", b)
    return tonumber(p / 2 ^ 32), tonumber(p % (2ULL ^ 32))
  end
  local function xor(...)
    return tonumber(ffi.cast("uint32_t", bit.bxor(...)))
  end
  local c, k0, k1 = { unpack(counter) }, key[1], key[2]
  for _ = 1, 10 do
    local ha, la = wide(0xd2511f53, c[1])
    local hb, lb = wide(0xcd9e8d57, c[3])
    c = { xor(hb, c[2], k0), lb, xor(ha, c[4], k1), la }
    k0, k1 = (k0 + 0x9e3779b9) % 2 ^ 32, (k1 + 0xbb67ae85) % 2 ^ 32
  end
  return c
end

describe("Philox", function()
  it("in Lua has the published numbers", function()
    assert.same({ 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 },
      philox({ 0, 0, 0, 0 }, { 0, 0 }))
    local f = 0xffffffff
    assert.same({ 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd },
      philox({ f, f, f, f }, { f, f }))
    assert.same({ 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 },
      philox({ 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 }))
  end)

  it("is the generator of the core", function()
    -- rand is the upper 24 bits of a word
    for _, seed in ipairs{ 0, 1, 1234567 } do
      local x = moth.rand(600, { generator = moth.Generator{ seed = seed } }):tolist()
      for block = 0, 149 do
        local w = philox({ block, 0, 0, 0 }, { seed % 2 ^ 32, math.floor(seed / 2 ^ 32) })
        for i = 1, 4 do
          assert.equal(math.floor(w[i] / 256) / 2 ^ 24, x[block * 4 + i])
        end
      end
    end
  end)
end)

describe("a seed", function()
  local function draw()
    return { moth.randn(7):tolist(), moth.rand(5):tolist(), moth.randperm(9):tolist(),
      moth.randint(10, { 6 }):tolist(), F.dropout(moth.ones(8)):tolist(),
      moth.rand(3):bernoulli():tolist() }
  end

  it("repeats the same numbers", function()
    moth.manual_seed(5)
    local first = draw()
    moth.manual_seed(5)
    assert.same(first, draw())
    moth.manual_seed(6)
    assert.are_not.same(first, draw())
    assert.equal(6, moth.initial_seed())
  end)

  it("is an integer from 0 to 2^53", function()
    moth.manual_seed(2 ^ 53)
    moth.manual_seed(0)
    for _, bad in ipairs{ -1, 1.5, 2 ^ 53 + 2, 0 / 0, math.huge, "1" } do
      intact.refuses(function() moth.manual_seed(bad) end, "bad argument 'seed' to 'manual_seed'")
      intact.refuses(function() moth.Generator{ seed = bad } end, "'seed' to 'Generator'")
    end
    intact.refuses(function() moth.manual_seed(nil) end, "got nothing")
  end)

  it("from the clock differs and is returned", function()
    local seed = moth.seed()
    assert.equal(seed, moth.initial_seed())
  end)
end)

describe("the state", function()
  it("is saved and restored", function()
    moth.randn(3)
    local state = moth.get_rng_state()
    local x = moth.randn(100)
    moth.set_rng_state(state)
    assert.is_true(moth.equal(x, moth.randn(100)))
    assert.equal(moth.int64, state.dtype)
    intact.refuses(function() moth.set_rng_state(moth.ones(2)) end, "'state' to 'set_rng_state'")
    intact.refuses(function() moth.set_rng_state(3) end, "'state' to 'set_rng_state'")
  end)

  it("of a generator is separate", function()
    local a, b = moth.Generator{ seed = 3, device = "cpu" }, moth.Generator(3)
    moth.manual_seed(3)
    local x = moth.randn(4, { generator = a })
    moth.randn(10)
    assert.is_true(moth.equal(x, moth.randn(4, { generator = b })))
    local state = a:get_state()
    local y = moth.rand(5, { generator = a })
    b:set_state(state)
    assert.is_true(moth.equal(y, moth.rand(5, { generator = b })))
    assert.equal(3, a:initial_seed())
    a:manual_seed(3)
    assert.is_true(moth.equal(x, moth.randn(4, { generator = a })))
    assert.equal("Generator{seed = 3}", tostring(a))
  end)

  it("does not depend on the number of threads, and neither do the numbers", function()
    local threads = moth.get_num_threads()
    local function draw(n)
      moth.set_num_threads(n)
      moth.manual_seed(9)
      return { moth.randn(100003), moth.rand(70001), F.dropout(moth.ones(300000), 0.3),
        moth.randint(1000, { 50000 }), moth.get_rng_state() }
    end
    local one, two = draw(1), draw(2)
    moth.set_num_threads(threads)
    for i = 1, #one do assert.is_true(moth.equal(one[i], two[i])) end
  end)

  it("is the same for any division of draws into blocks", function()
    local function first(n, total)
      local g = moth.Generator{ seed = 11 }
      local x = moth.rand(n, { generator = g })
      local y = moth.rand(total - n, { generator = g })
      return moth.cat{ x, y }
    end
    local whole = moth.rand(1024, { generator = moth.Generator{ seed = 11 } })
    for _, n in ipairs{ 4, 8, 256, 260, 512, 1020 } do
      assert.is_true(moth.equal(whole, first(n, 1024)), n .. " numbers first")
    end
    -- a longer draw begins with the shorter draw
    for _, n in ipairs{ 1, 3, 255, 257, 1000 } do
      local short = moth.rand(n, { generator = moth.Generator{ seed = 11 } })
      assert.is_true(moth.equal(whole[{ { 1, n } }], short))
    end
  end)
end)

describe("the distributions", function()
  it("have their mean, deviation and bounds", function()
    moth.manual_seed(2)
    local n = 200000
    local u, z = moth.rand(n), moth.randn(n)
    assert.close(0.5, u:mean():item(), 0.01)
    assert.close(1 / 12, u:var():item(), 0.01)
    assert.is_true(u:min():item() >= 0 and u:max():item() < 1)
    assert.close(0, z:mean():item(), 0.01)
    assert.close(1, z:std():item(), 0.01)
    assert.close(0.6827, z:abs():lt(1):to(moth.float32):mean():item(), 0.01)
    assert.close(0.9973, z:abs():lt(3):to(moth.float32):mean():item(), 0.002)
    assert.close(0, (z * z * z):mean():item(), 0.05)
    assert.close(3, z:pow(4):mean():item(), 0.05)
    local i = moth.randint(-2, 5, { n })
    assert.equal(moth.int64, i.dtype)
    assert.equal(-2, i:min():item())
    assert.equal(4, i:max():item())
    for v = -2, 4 do
      assert.close(1 / 7, i:eq(v):to(moth.float32):mean():item(), 0.01)
    end
    assert.close(0.3, moth.full({ n }, 0.3):bernoulli():mean():item(), 0.01)
    local w = moth.empty(n):uniform_(-3, 5)
    assert.close(1, w:mean():item(), 0.02)
    assert.is_true(w:min():item() >= -3 and w:max():item() < 5)
    local v = moth.empty(n):normal_(2, 3)
    assert.close(2, v:mean():item(), 0.02)
    assert.close(3, v:std():item(), 0.02)
  end)

  it("have PyTorch's default bounds, means and probabilities", function()
    local function drawn(f, ...)
      moth.manual_seed(11)
      return (f(moth.zeros(50, { dtype = moth.float64 }), ...))
    end
    for name, given in pairs { uniform_ = { 0, 1 }, normal_ = { 0, 1 }, bernoulli_ = { 0.5 },
      exponential_ = { 1 }, cauchy_ = { 0, 1 }, log_normal_ = { 1, 2 } } do
      local function filled(x, ...) return x[name](x, ...) end
      local wanted = drawn(filled, unpack(given))
      for n = 0, #given - 1 do
        assert.is_true(moth.equal(wanted, drawn(filled, unpack(given, 1, n))), name)
      end
    end
    for name, given in pairs { uniform_ = { 0, 1 }, normal_ = { 0, 1 },
      trunc_normal_ = { 0, 1, -2, 2 }, xavier_uniform_ = { 1 }, xavier_normal_ = { 1 } } do
      local function filled(x, ...) return moth.nn.init[name](x:view(5, 10), ...) end
      local wanted = drawn(filled, unpack(given))
      for n = 0, #given - 1 do
        assert.is_true(moth.equal(wanted, drawn(filled, unpack(given, 1, n))), name)
      end
    end
  end)

  it("never return the open bound, also not in half types", function()
    for _, dtype in ipairs{ moth.float16, moth.bfloat16, moth.float32, moth.float64 } do
      local x = moth.rand(100000, { dtype = dtype })
      assert.is_true(x:lt(1):all():item(), tostring(dtype))
      assert.is_true(x:ge(0):all():item())
    end
  end)

  it("raise for bounds in the wrong order", function()
    intact.refuses(function() return (moth.randint(5, 5, { 2 })) end, "randint")
    intact.refuses(function() return (moth.randint(0, { 2 })) end, "randint")
    intact.refuses(function() return (moth.randint(0, 300, { 2 }, { dtype = moth.uint8 })) end,
      "randint")
    local x = moth.zeros(2)
    intact.refuses(function() x:normal_(0, -1) end, "'std' to 'normal_'", { x })
    intact.refuses(function() x:uniform_(2, 1) end, "to 'uniform_'", { x })
    intact.refuses(function() return (moth.full({ 2 }, 1.5):bernoulli()) end, "from 0 to 1")
  end)

  it("support the forms of randint", function()
    for _, x in ipairs{ moth.randint(10, { 2, 3 }), moth.randint(0, 10, { 2, 3 }),
      moth.randint{ 10, { 2, 3 } }, moth.randint{ low = 0, high = 10, size = { 2, 3 } } } do
      assert.same({ 2, 3 }, { unpack(x.shape) })
      assert.is_true(x:ge(0):all():item() and x:lt(10):all():item())
    end
  end)
end)

describe("normal", function()
  it("accepts a dtype and a device with two numbers", function()
    assert.equal(moth.float64, moth.normal(0, 1, { 2 }, { dtype = moth.float64 }).dtype)
    intact.refuses(function() return (moth.normal(moth.ones(2), 1, { device = "cpu" })) end,
      "'device' to 'normal' (is only for numbers")
  end)
end)

describe("randperm", function()
  it("is a permutation of 1 to n", function()
    for _, n in ipairs{ 0, 1, 2, 17, 1000 } do
      local p = moth.randperm(n)
      assert.equal(moth.int64, p.dtype)
      local seen = {}
      for _, i in ipairs(p:tolist()) do
        assert.is_true(i >= 1 and i <= n and not seen[i])
        seen[i] = true
      end
      assert.equal(n, #p:tolist())
    end
    intact.refuses(function() return (moth.randperm(-1)) end, "'n' to 'randperm'")
  end)

  it("supports any dtype", function()
    moth.manual_seed(3)
    local p = moth.randperm(5)
    moth.manual_seed(3)
    assert.is_true(moth.randperm(5, { dtype = moth.float32 }):equal(p:float()))
  end)

  it("has each value at each place with equal probability", function()
    moth.manual_seed(4)
    local counts = {}
    for i = 1, 3 do counts[i] = { 0, 0, 0 } end
    for _ = 1, 3000 do
      for i, v in ipairs(moth.randperm(3):tolist()) do counts[i][v] = counts[i][v] + 1 end
    end
    for i = 1, 3 do
      for v = 1, 3 do assert.is_true(math.abs(counts[i][v] - 1000) < 110) end
    end
  end)
end)

describe("dropout", function()
  it("has the right mean and share of zeros", function()
    moth.manual_seed(8)
    local x = moth.ones(200000)
    local y = F.dropout(x, 0.3)
    assert.close(1, y:mean():item(), 0.01)
    assert.close(0.3, y:eq(0):to(moth.float32):mean():item(), 0.01)
    assert.close(1 / 0.7, y:max():item(), 1e-6)
    assert.is_true(moth.equal(x, F.dropout(x, 0.3, false)))
    assert.is_true(moth.equal(x, F.dropout{ x, training = false }))
    assert.equal(0, F.dropout(x, 1):sum():item())
    assert.is_true(moth.equal(x, F.dropout(x, 0)))
  end)

  it("passes gradients only through kept elements", function()
    local x = moth.ones(1000):requires_grad_()
    local y = F.dropout(x, 0.5)
    y:sum():backward()
    assert.is_true(moth.equal(x.grad, y:detach()))
  end)

  it("draws the same numbers like a tensor and by shape", function()
    local x = moth.zeros(3, 4, {dtype = moth.float64})
    for _, name in ipairs {"rand", "randn"} do
      moth.manual_seed(5)
      local wanted = moth[name](3, 4, {dtype = moth.float64})
      moth.manual_seed(5)
      assert.is_true(moth[name .. "_like"](x):equal(wanted))
    end
  end)

  it("drops whole channels as dropout2d", function()
    local y = F.dropout2d(moth.ones(20, 30, 4, 5), 0.5)
    local sums = y:sum{ 3, 4 }
    assert.is_true(sums:eq(0):logical_or(sums:eq(40)):all():item())
    assert.is_true(sums:eq(0):any():item() and sums:eq(40):any():item())
  end)

  it("raises for an invalid probability", function()
    local x = moth.ones(2)
    for _, p in ipairs{ -0.1, 1.1, 0 / 0 } do
      intact.refuses(function() return (F.dropout(x, p)) end, "'p' to 'dropout'", { x })
    end
  end)
end)
