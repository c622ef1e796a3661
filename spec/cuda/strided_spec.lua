-- Elementwise functions, copies and `where` on a GPU, of operands that broadcast. If rows of all
-- operands are contiguous and aligned, a thread processes 16 bytes, with any outer strides;
-- otherwise one element. Results equal the CPU's bit by bit.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local SIZES = {1, 3, 4, 8, 12, 17, 32}

-- The second operand of x, a tensor (2, 3, n), by kind.
local SECONDS = {
  row = function(x) return x[1][1]:clone() end,
  ["a row of a larger tensor"] = function(x)
    local n = x.shape[3]
    return moth.cat({x[1][1], x[1][1]}):narrow(1, 2, n)
  end,
  column = function(x) return x:select(3, 1):clone():unsqueeze(3) end,
  ["a column of rows"] = function(x) return x:select(2, 1):clone():unsqueeze(2) end,
  ["planes' numbers"] = function(x) return x[1]:select(2, 1):clone():view(1, 3, 1) end,
  number = function(x) return x[1][1][1]:clone() end,
  transposed = function(x) return x:permute(3, 2, 1):contiguous():permute(3, 2, 1) end,
  ["rows apart"] = function(x) return moth.cat({x, x}, 3):narrow(3, 1, x.shape[3]) end,
  backwards = function(x) return x:flip(3) end,
}

local function same(want, got, name)
  assert.is_true(got.is_cuda)
  assert(want:equal(got:cpu()), ("%s: %s, wanted %s"):format(name, got, want))
end

--- Calls claim(x, second, name) with each kind of second operand, of each length, in each dtype.
local function each(dtypes, claim)
  for _, dtype in ipairs(dtypes) do
    for _, n in ipairs(SIZES) do
      local x = (moth.arange(6 * n):remainder(13) + 1):view(2, 3, n):to(moth[dtype])
      for kind, second in pairs(SECONDS) do
        claim(x, second, ("%s, %d, %s"):format(dtype, n, kind))
      end
    end
  end
end

describe("on a GPU, of operands that broadcast,", function()
  if not cuda.here then return pending("results are the CPU's: " .. cuda.why) end

  local function compare(dtypes, fn)
    each(dtypes, function(x, second, name)
      local want, got = {fn(x, second)}, {fn(x:cuda(), second)}
      for i = 1, #want do same(want[i], got[i], name) end
    end)
  end

  it("sums and comparisons equal the CPU's, in both orders", function()
    compare({"float32", "float64", "bfloat16", "float16", "int64"}, function(x, second)
      local y = second(x)
      return x + y, y - x, x:gt(y)
    end)
  end)

  it("sums of f32 and a half type do", function()
    compare({"float32"}, function(x, second)
      local half, y = x:bfloat16(), second(x:half())
      return x + y, half * second(x), y * x
    end)
  end)

  it("functions of three operands do", function()
    compare({"float32", "bfloat16"}, function(x, second)
      return moth.addcmul(x, second(x), second(x))
    end)
  end)

  it("where() does, for every size of element", function()
    compare({"bool", "int16", "float32", "float64"}, function(x, second)
      local y = second(x)
      return moth.where(second(x:double():gt(4)), x, y), moth.where(x:double():lt(7), y, x)
    end)
  end)

  it("copies do, into rows, columns and strided elements", function()
    compare({"uint8", "bfloat16", "float32", "int64"}, function(x, second)
      local y, n = second(x), x.shape[3]
      local wide = moth.zeros_like(moth.cat({x, x}, 3))
      wide:narrow(3, 2, n):copy_(y)
      local wider = moth.zeros({2, 3, 64}, {dtype = x.dtype, device = x.device})
      wider:narrow(3, 1, n):copy_(y)
      return moth.zeros_like(x):copy_(y), wide, wider, moth.zeros_like(x):transpose(1, 2):copy_(
        y:expand(2, 3, n):transpose(1, 2))
    end)
  end)

  it("a number fills a length that is not a multiple of 16 bytes", function()
    for _, dtype in ipairs {"uint8", "float16", "float32", "float64"} do
      for n = 1, 40 do
        local x = moth.zeros({n + 1}, {dtype = moth[dtype]})
        local y, one = x:cuda(), moth.ones(1, {dtype = x.dtype})
        x:narrow(1, 1, n):copy_(one:expand(n))
        y:narrow(1, 1, n):copy_(one:cuda():expand(n))
        same(x, y, dtype .. " of " .. n)
      end
    end
  end)
end)
