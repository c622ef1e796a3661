-- Matrix products of f32: our own tiles against f64, over shapes that no tile fits, at every level
-- of instructions, with the same bits for any number of threads.

local moth = require "moth"
local gemm = require "spec.support.gemm"
local process = require "spec.support.process"

describe("an f32 product", function()
  it("is right for every shape and layout", function()
    assert.equal("right", gemm.every_shape())
  end)

  it("is the start, or nothing, where there is nothing to add", function()
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
  end)

  it("lets NaN and infinity through", function()
    local a, b = moth.ones(20, 40), moth.ones(40, 30)
    a[3][7], a[5][1] = 0 / 0, math.huge
    local y = a:matmul(b)
    assert.is_true(moth.isnan(y[3]):all():item())
    assert.equal(math.huge, y[5][30]:item())
    assert.equal(40, y[4][30]:item())
  end)

  it("has the same bits for any number of threads", function()
    local threads = moth.get_num_threads()
    local seen = {}
    for n = 1, 3 do
      moth.set_num_threads(n)
      seen[n] = gemm.bits()
    end
    moth.set_num_threads(threads)
    assert.equal(seen[1], seen[2])
    assert.equal(seen[1], seen[3])
  end)

  it("is right at every level of instructions", function()
    for _, level in ipairs { "plain", "avx2" } do
      local text = process.lua(([[
        local ffi = require "ffi"
        ffi.cdef "int setenv(const char *name, const char *value, int overwrite);"
        ffi.C.setenv("MOTH_ISA", "%s", 1) -- before the first product
        package.path = "%s?.lua;" .. package.path
        print(require("spec.support.gemm").every_shape())]])
        :format(level, require("moth.error").root))
      assert.equal("right\nrc=0\n", text, level)
    end
  end)
end)
