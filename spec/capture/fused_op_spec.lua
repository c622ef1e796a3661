-- The op that computes joined elementwise functions: the same bits as the single ops, and no access
-- outside of its tensors for any malformed program.

local moth = require "moth"
local fused = require("moth.binding.bind").ops.fused

local ADD, MORE, CONVERT = 0, 1, -1

local function same(a, b) return assert.is_true(moth.equal(a, b)) end

describe("the op fused", function()
  it("has the bits of the single ops, for every float dtype and with broadcasting", function()
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
      local x, y = moth.randn(37, 700):to(moth[dtype]), moth.randn(700):to(moth[dtype])
      local first, second = fused({ x, y }, {
        MORE, -1, 3, 4, 0, 1, 0, 0, 0,
        ADD, -1, 3, 2, 4, 0, 0, 0, 0,
        ADD, -1, 3, 3, 2, 1, 0, 0, 0,
      }, { -1, -1, -1 }, 2, { 0.3, 0, 0, 0, 0, 0, 0, 0, 0 })
      local between = moth.add(x, y, { alpha = 0.3 })
      same(first, between + x)
      same(second, between + x + y)
    end
  end)

  it("converts between dtypes inside", function()
    local x = moth.randn(1000)
    local halves = require("moth.tensor.dtype").by_name.float16.code
    local y = fused({ x }, {
      CONVERT, -1, 2, 2, 0, 0, 0, 0, 0,
      ADD, halves, 3, 1, 2, 2, 0, 0, 0,
    }, { halves, halves })
    same(y, x:half() + x:half())
  end)

  it("raises for programs that read undefined values, write an input, or omit a result", function()
    local x = moth.randn(3)
    local function refused(steps, dtypes, results, numbers)
      local ok, text = pcall(fused, { x }, steps, dtypes, results or 1, numbers)
      assert.is_false(ok)
      assert.is_truthy(text:find("bad argument", 1, true), text)
    end
    refused({ ADD, -1, 3, 1, 0, 1, 0, 0, 0 }, { -1 })
    refused({ ADD, -1, 3, 0, 0, 0, 0, 0, 0 }, { -1 })
    refused({ ADD, -1, 3, 2, 0, 0, 0, 0, 0 }, { -1, -1 })
    refused({ ADD, -1, 3, 1, 0, -1, 0, 0, 0 }, { -1 })
    refused({ ADD, -1, 3, 1, 0, 64, 0, 0, 0 }, { -1 })
    refused({ ADD, -1, 2, 1, 0, 0, 0, 0, 0 }, { -1 })
    refused({ ADD, 99, 3, 1, 0, 0, 0, 0, 0 }, { -1 })
    refused({ 100000, -1, 3, 1, 0, 0, 0, 0, 0 }, { -1 })
    refused({ ADD, -1, 3, 1, 0, 0, 0, 0 }, { -1 })
    refused({ ADD, -1, 3, 1, 0, 0, 0, 0, 0 }, { 99 })
    refused({ ADD, -1, 3, 1, 0, 0, 0, 0, 0 }, { 0 })
    refused({ ADD, -1, 3, 1, 0, 0, 0, 0, 0 }, { -1 }, 2)
    refused({ ADD, -1, 3, 1, 0, 0, 0, 0, 0 }, { -1 }, 1, { 1, 2 })
  end)
end)
