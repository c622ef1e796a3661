-- Matrix products on a GPU: every layout and dtype, sizes beside and beyond those of tiles, sums
-- that several blocks share, batches; and how exact f32 is to be.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local F = moth.nn.functional

-- Largest difference, as a part of the largest element.
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

  it("of batches is the CPU's, broadcast or turned", function()
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

  it("of rows that do not step evenly has its bias", function()
    moth.manual_seed(2)
    local x, w, b = moth.randn(5, 20, 30):transpose(1, 2), moth.randn(40, 30), moth.randn(40)
    assert.is_true(difference(F.linear(x:cuda(), w:cuda(), b:cuda()), F.linear(x, w, b)) < 2e-6)
  end)
end)

describe("use_deterministic_algorithms", function()
  it("tells what it was set to, and products are as they were", function()
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

  it("refuses what is no boolean", function()
    assert.has_error_like(function() moth.use_deterministic_algorithms(1) end, "mode")
  end)
end)

describe("set_float32_matmul_precision", function()
  it("tells what it was set to", function()
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
