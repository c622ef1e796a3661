-- Matrix products of f32 and of half types: Moth's own kernels compared with f64, for shapes that
-- are no multiples of a tile, at every instruction level, with the same bits for any number of
-- threads.

local ffi = require "ffi"

local lib = require "moth.binding.lib"
local moth = require "moth"
local gemm = require "spec.support.gemm"
local process = require "spec.support.process"

-- The results of f with one number of threads and with another.
local function on_threads(one, other, f)
  local threads, seen = moth.get_num_threads(), {}
  for i, n in ipairs { one, other } do
    moth.set_num_threads(n)
    seen[i] = f()
  end
  moth.set_num_threads(threads)
  return seen[1], seen[2]
end

local function at_level(level, check)
  return process.lua(([[
    local ffi = require "ffi"
    ffi.cdef "int setenv(const char *name, const char *value, int overwrite);"
    ffi.C.setenv("MOTH_ISA", "%s", 1) -- before the first product
    package.path = "%s?.lua;" .. package.path
    print(require("spec.support.gemm").%s())]]):format(level, require("moth.error").root, check))
end

describe("an f32 product", function()
  it("is right for every shape and layout", function()
    assert.equal("right", gemm.every_shape())
  end)

  it("is the addend, or zero, if the inner dimension is empty", function()
    assert.same({ { 0, 0 } }, moth.zeros(1, 0):matmul(moth.zeros(0, 2)):tolist())
    assert.same({ 0, 2 }, moth.zeros(0, 3):matmul(moth.zeros(3, 2)).shape)
    local y = moth.nn.functional.linear(moth.zeros(2, 0), moth.zeros(3, 0), moth.tensor { 1, 2, 3 })
    assert.same({ { 1, 2, 3 }, { 1, 2, 3 } }, y:tolist())
  end)

  it("broadcasts batches of any strides", function()
    moth.manual_seed(3)
    local a = moth.randn(4, 1, 9, 20):transpose(3, 4)
    local b = moth.randn(1, 3, 9, 17):expand(4, 3, 9, 17)
    assert.is_true(gemm.off(a:matmul(b), a, b) <= 1)
    assert.is_true(gemm.off(b:transpose(3, 4):matmul(a:transpose(3, 4)), b:transpose(3, 4),
                       a:transpose(3, 4)) <= 1)
    for n = 1, 5 do
      local p, q = moth.randn(30, n, 3):transpose(2, 3), moth.randn(30, n, 4)
      assert.is_true(gemm.off(p:matmul(q), p, q) <= 1)
    end
  end)

  it("keeps NaN and infinity", function()
    local a, b = moth.ones(20, 40), moth.ones(40, 30)
    a[3][7], a[5][1] = 0 / 0, math.huge
    local y = a:matmul(b)
    assert.is_true(moth.isnan(y[3]):all():item())
    assert.equal(math.huge, y[5][30]:item())
    assert.equal(40, y[4][30]:item())
  end)

  it("has the same bits for any number of threads", function()
    local one, three = on_threads(1, 3, gemm.bits)
    assert.equal(one, three)
  end)

  it("has the same bits for a row with any other rows", function()
    local engine = ffi.string(lib.C.moth_config(lib.ctx))
    if engine:find("loops plain", 1, true) then return pending("a library multiplies here") end
    for _, k in ipairs { 5, 31 } do
      for n = 1, 40 do
        local a, b = moth.randn(13, k), moth.randn(k, n)
        local all = a:matmul(b)
        for m = 1, 12 do
          local y = a:narrow(1, 14 - m, m):matmul(b)
          assert.is_true(moth.equal(y, all:narrow(1, 14 - m, m)), ("%d, %d, %d"):format(m, k, n))
        end
      end
    end
  end)

  it("is right at every level of instructions", function()
    for _, level in ipairs { "plain", "avx2" } do
      assert.equal("right\nrc=0\n", at_level(level, "every_shape"), level)
    end
  end)
end)

describe("a product of half types", function()
  it("is rounded once, for every shape and layout", function()
    assert.equal("right", gemm.every_half())
  end)

  it("is so at every instruction level", function()
    for _, level in ipairs { "plain", "avx2" } do
      assert.equal("right\nrc=0\n", at_level(level, "every_half"), level)
    end
  end)

  it("keeps NaN and infinity in their rows and columns only", function()
    for _, dtype in ipairs { moth.bfloat16, moth.float16 } do
      local a, b = moth.ones(20, 41):to(dtype), moth.ones(41, 30):to(dtype)
      a[3][41], a[5][1], b[2][30] = 0 / 0, math.huge, -math.huge
      local y = a:matmul(b)
      assert.is_true(moth.isnan(y[3]):all():item())
      assert.equal(math.huge, y[5][29]:item())
      assert.is_true(moth.isnan(y[5][30]):item())
      assert.equal(-math.huge, y[4][30]:item())
      assert.equal(41, y[4][29]:item())
      assert.equal(41, y[20][1]:item())
    end
  end)

  it("is the addend, or zero, if the inner dimension is empty", function()
    local bias = moth.tensor({ 1, 2, 3 }, moth.bfloat16)
    local y = moth.nn.functional.linear(moth.zeros(2, 0):bfloat16(), moth.zeros(3, 0):bfloat16(),
      bias)
    assert.same({ { 1, 2, 3 }, { 1, 2, 3 } }, y:tolist())
    assert.same({ { 0, 0 } }, moth.zeros(1, 0):bfloat16():matmul(moth.zeros(0, 2):bfloat16())
      :tolist())
  end)

  it("has the same bits for any number of threads", function()
    local one, three = on_threads(1, 3, gemm.half_bits)
    assert.equal(one, three)
  end)
end)

describe("a product of integers", function()
  it("is right for every type, shape and layout, at every instruction level", function()
    assert.equal("right", gemm.every_integer())
    for _, level in ipairs { "plain", "avx2" } do
      assert.equal("right\nrc=0\n", at_level(level, "every_integer"), level)
    end
  end)

  it("has the same bits for any number of threads", function()
    local a, b = moth.randint(-99, 99, { 130, 300 }), moth.randint(-99, 99, { 300, 520 })
    local one, three = on_threads(1, 3, function() return a:matmul(b) end)
    assert.is_true(moth.equal(one, three))
  end)
end)
