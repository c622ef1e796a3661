-- Matrix products on a GPU: every layout and dtype, sizes at and beyond tile edges, sums that are
-- split among blocks, batches; and the precision of f32.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local F = moth.nn.functional

-- The largest difference, relative to the largest element.
local function difference(there, here)
  local x, y = there:cpu():to(moth.float64), here:to(moth.float64)
  return (x - y):abs():max():item() / math.max(y:abs():max():item(), 1e-300)
end

local MOST = { float64 = 1e-14, float32 = 2e-6, float16 = 2e-3, bfloat16 = 2e-2, int64 = 0,
               int8 = 0 }

local function matrix(rows, cols, turned, dtype)
  local x = (turned and moth.randn(cols, rows) or moth.randn(rows, cols)) * 3
  x = x:to(moth[dtype])
  return turned and x:t() or x
end

describe("a product on a GPU", function()
  if not cuda.here then
    pending("is the CPU's: " .. cuda.why)
    return
  end

  for _, size in ipairs { { 1, 1, 1 }, { 3, 5, 7 }, { 70, 130, 33 }, { 129, 257, 100 }, { 5, 3, 0 },
                          { 20, 3, 1000 }, { 1, 10, 3001 } } do
    local m, n, k = size[1], size[2], size[3]
    it(("of (%d, %d) and (%d, %d) is the CPU's, however they lie"):format(m, k, k, n), function()
      moth.manual_seed(m + n + k)
      for dtype, most in pairs(MOST) do
        for turns = 0, 3 do
          local a, b = matrix(m, k, turns % 2 == 1, dtype), matrix(k, n, turns > 1, dtype)
          assert.is_true(difference(a:cuda():matmul(b:cuda()), a:matmul(b)) <= most)
        end
      end
    end)
  end

  -- Small integers: every product and sum is exact, in whatever order.
  for _, dtype in ipairs { "float16", "bfloat16", "float32" } do
    it("of integers is exact, in " .. dtype .. " on tensor cores", function()
      moth.manual_seed(4)
      moth.set_float32_matmul_precision("high")
      local function whole(rows, cols, turned)
        local x = moth.randint(-4, 5, { turned and cols or rows, turned and rows or cols })
        return turned and x:to(moth[dtype]):t() or x:to(moth[dtype])
      end
      for _, size in ipairs { { 64, 64, 32 }, { 8, 264, 48 }, { 200, 136, 24 }, { 16, 8, 1040 } } do
        local m, n, k = size[1], size[2], size[3]
        for turns = 0, 3 do
          local a, b = whole(m, k, turns % 2 == 1), whole(k, n, turns > 1)
          local y = a:to(moth.float64):matmul(b:to(moth.float64)):to(moth[dtype])
          assert.is_true(moth.equal(a:cuda():matmul(b:cuda()):cpu(), y))
        end
      end
      moth.set_float32_matmul_precision("highest")
    end)
  end

  it("in f32 uses TF32 only where the chosen precision allows it", function()
    if moth.cuda.get_device_capability() < 8 then return pending "this GPU has no TF32" end
    moth.manual_seed(5)
    local a, b = moth.randn(96, 64), moth.randn(64, 80)
    local y = a:matmul(b)
    assert.is_true(difference(a:cuda():matmul(b:cuda()), y) < 2e-6)
    moth.set_float32_matmul_precision("high")
    local far = difference(a:cuda():matmul(b:cuda()), y)
    moth.set_float32_matmul_precision("highest")
    assert.is_true(far < 2e-3 and far > 2e-6, tostring(far))
  end)

  it("of half types adds a bias and the previous values, batch by batch", function()
    moth.manual_seed(6)
    for _, dtype in ipairs { "float16", "bfloat16" } do
      local function draw(...) return moth.randn(...):to(moth[dtype]) end
      local x, w, b = draw(3, 40, 64), draw(72, 64), draw(72)
      assert.is_true(difference(F.linear(x:cuda(), w:cuda(), b:cuda()), F.linear(x, w, b))
        <= MOST[dtype])
      local c, y, z = draw(3, 40, 72), draw(3, 64, 40), draw(3, 64, 72)
      local here = c:baddbmm(y:transpose(2, 3), z, { alpha = 0.5, beta = 2 })
      local there = c:cuda():baddbmm(y:cuda():transpose(2, 3), z:cuda(), { alpha = 0.5, beta = 2 })
      assert.is_true(difference(there, here) <= MOST[dtype])
    end
  end)

  it("of batches equals the CPU's, broadcast or transposed", function()
    moth.manual_seed(1)
    for _, pair in ipairs {
      { moth.randn(5, 1, 20, 30), moth.randn(3, 30, 40) },
      { moth.randn(5, 4, 20, 30):transpose(1, 2), moth.randn(5, 30, 40) },
      { moth.randn(2, 3, 4):expand(6, 2, 3, 4), moth.randn(1, 2, 4, 4) },
    } do
      local a, b = pair[1], pair[2]
      assert.is_true(difference(a:cuda():matmul(b:cuda()), a:matmul(b)) < 2e-6)
    end
  end)

  it("applies relu with the same bits as a separate relu", function()
    moth.manual_seed(3)
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16", "int32", "uint8" } do
      for _, size in ipairs { { 5, 7, 3 }, { 40, 64, 72 }, { 300, 16, 200 }, { 4, 2048, 6 } } do
        local m, k, n = unpack(size)
        local function draw(...)
          local x = moth.randn(...)
          if dtype == "uint8" then x = x:abs() end
          return (x * 3):to(moth[dtype]):cuda()
        end
        local x, w, b = draw(m, k), draw(n, k), draw(n)
        for _, bias in ipairs { b, moth.none } do
          local y = F.linear { x, w, bias = bias, activation = "relu" }
          assert.is_true(moth.equal(F.relu(F.linear { x, w, bias = bias }), y), dtype .. " " .. k)
        end
      end
    end
    local x = moth.tensor({ { 0 / 0 }, { -1 } }, { device = "cuda" })
    local y = F.linear(x, moth.ones(1, 1):cuda(), nil, "relu")
    assert.same({ true, false }, y:isnan():view(-1):tolist())
  end)

  it("of rows with irregular strides adds its bias", function()
    moth.manual_seed(2)
    local x, w, b = moth.randn(5, 20, 30):transpose(1, 2), moth.randn(40, 30), moth.randn(40)
    assert.is_true(difference(F.linear(x:cuda(), w:cuda(), b:cuda()), F.linear(x, w, b)) < 2e-6)
  end)
end)

describe("use_deterministic_algorithms", function()
  it("returns its setting, and products do not change", function()
    assert.is_false(moth.are_deterministic_algorithms_enabled())
    moth.use_deterministic_algorithms(true)
    assert.is_true(moth.are_deterministic_algorithms_enabled())
    local x = moth.randn(40, 30)
    local y = cuda.here and x:cuda() or x
    local wanted = x:matmul(x:t())
    moth.use_deterministic_algorithms(false, { warn_only = true })
    assert.is_true(moth.allclose(y:matmul(y:t()):cpu(), wanted, { atol = 1e-4 }))
    assert.is_false(moth.are_deterministic_algorithms_enabled())
  end)

  it("refuses values that are not booleans", function()
    assert.has_error_like(function() moth.use_deterministic_algorithms(1) end, "mode")
  end)
end)

describe("set_float32_matmul_precision", function()
  it("returns its setting", function()
    assert.equal("highest", moth.get_float32_matmul_precision())
    moth.set_float32_matmul_precision("high")
    assert.equal("high", moth.get_float32_matmul_precision())
    moth.set_float32_matmul_precision("highest")
  end)

  it("refuses other words", function()
    assert.has_error_like(function() moth.set_float32_matmul_precision("low") end,
      "'highest', 'high' or 'medium'")
  end)
end)
