-- Order on a GPU beside the CPU's: short rows and long ones, equals, NaN, every dtype. The samples
-- of golden_spec are short.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local DTYPES = {"uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"}

local function rows(dtype, ...)
  return (moth.randn(...) * 20):to(moth[dtype])
end

local function same(wanted, got, name)
  assert(got:cpu():equal(wanted), name .. " is not the CPU's")
end

describe("order on a GPU", function()
  if not cuda.here then
    pending("is the CPU's: " .. cuda.why)
    return
  end

  it("is the CPU's in every dtype, equals as they came", function()
    for _, dtype in ipairs(DTYPES) do
      local long = dtype == "int16" or dtype == "float32" -- sorted by another kernel
      for _, size in ipairs { {5}, {3, 70}, long and {2, 2100} or {1} } do
        local x = rows(dtype, size)
        for _, descending in ipairs { false, true } do
          local v, at = x:sort(-1, descending)
          local w, there = x:cuda():sort(-1, descending)
          same(v, w, dtype)
          same(at, there, dtype .. " positions")
        end
      end
    end
  end)

  it("runs along any dimension", function()
    local x = rows("float32", 30, 4, 3)
    for d = 1, 3 do
      local v, at = x:topk(2, d)
      local w, there = x:cuda():topk(2, d)
      same(v, w, "topk")
      same(at, there, "topk's positions")
      local m, where = x:median(d)
      local n, found = x:cuda():median(d)
      same(m, n, "median")
      same(where, found, "median's positions")
    end
  end)

  it("finds the first of equal extremes, however the work is cut", function()
    for _, size in ipairs { {9000}, {4, 1100}, {300, 6}, {3, 70, 40} } do
      local x = rows("int16", size)
      same(x:argmax(), x:cuda():argmax(), "argmax")
      for d = 1, #size do
        local v, at = x:min(d)
        local w, there = x:cuda():min(d)
        same(v, w, "min")
        same(at, there, "min's positions")
      end
    end
  end)

  it("puts NaN behind all, and gives it for a median", function()
    local x = moth.tensor { 3, 0 / 0, -1, 0 / 0, 2 }
    local _, at = x:cuda():sort()
    assert.same({ 3, 5, 1, 2, 4 }, at:tolist())
    local m, where = x:cuda():median(1)
    assert.is_true(m:item() ~= m:item())
    assert.equal(2, where:item())
    assert.equal(2, x:cuda():kthvalue(2):item())
  end)

  it("finds values and counts them", function()
    local x, test = rows("int16", 2000), rows("int16", 2100)
    same(moth.isin(x, test), moth.isin(x:cuda(), test:cuda()), "isin")
    local sorted, wanted = moth.randn(500):sort(), moth.randn(40)
    same(moth.searchsorted(sorted, wanted), moth.searchsorted(sorted:cuda(), wanted:cuda()),
      "a search")
    local v, i, n = moth.unique(x, { return_inverse = true, return_counts = true })
    local w, j, m = moth.unique(x:cuda(), { return_inverse = true, return_counts = true })
    same(v, w, "unique")
    same(i, j, "unique's inverse")
    same(n, m, "unique's counts")
    local k = x:abs():narrow(1, 1, 900)
    local weights = moth.randn(900)
    same(k:bincount(), k:cuda():bincount(), "bincount")
    local there = k:cuda():bincount { weights = weights:cuda() }
    same(k:bincount { weights = weights }, there, "bincount of weights")
    local f = moth.randn(2000)
    same(f:histc(20), f:cuda():histc(20), "histc")
  end)
end)
