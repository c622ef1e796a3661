-- Sorting on a GPU and on the CPU: short and long rows, equal elements, NaN, every dtype. The
-- samples of golden_spec are short.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local DTYPES = {"uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"}

local function rows(dtype, ...)
  return (moth.randn(...) * 20):to(moth[dtype])
end

local function same(wanted, got, name)
  assert(got:cpu():equal(wanted), name .. " is not the CPU's")
end

describe("sorting on a GPU", function()
  if not cuda.here then
    pending("is the CPU's: " .. cuda.why)
    return
  end

  it("equals the CPU's in every dtype, and is stable", function()
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

  it("works along any dimension", function()
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

  -- In rows of more than 2048 elements the first k are selected, not sorted, unless there are many
  -- rows.
  it("finds the first of long rows, by position among equal elements", function()
    for _, dtype in ipairs { "uint8", "int64", "float16", "float32", "float64" } do
      local x = moth.randint(0, 200, { 2, 2500 }):to(moth[dtype])
      x[{ 2, { 1, 2400 } }] = 7 -- more of them than are requested
      local there = x:cuda()
      for _, k in ipairs { 1, 10, 700, 1500 } do
        for _, largest in ipairs { true, false } do
          local v, at = x:topk { k, largest = largest }
          local w, places = there:topk { k, largest = largest }
          same(v, w, dtype .. " topk " .. k)
          same(at, places, dtype .. " topk's positions " .. k)
        end
      end
    end
  end)

  it("finds the first of long rows along any dimension, NaN last", function()
    local x = moth.randn(3, 2300, 2)
    x[{ 2, 17, 1 }] = 0 / 0
    x[{ 2, 9, 1 }] = 0 / 0
    x[{ 3, 9, 2 }] = -math.huge
    local there = x:cuda()
    local function nans_as_numbers(y) return moth.where(y:isnan(), 1e9, y) end
    for _, call in ipairs {
      function(y) return y:topk(5, 2) end,
      function(y) return y:topk { 5, dim = 2, largest = false } end,
      function(y) return y:median(2) end,
      function(y) return y:kthvalue(1, 2) end,
      function(y) return y:kthvalue(2299, 2) end,
    } do
      local v, at = call(x)
      local w, places = call(there)
      same(nans_as_numbers(v), nans_as_numbers(w), "a selection")
      same(at, places, "its positions")
    end
  end)

  it("finds the first of equal extremes, with every split of the work", function()
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

  it("puts NaN last, and makes it the median", function()
    local x = moth.tensor { 3, 0 / 0, -1, 0 / 0, 2 }
    local _, at = x:cuda():sort()
    assert.same({ 3, 5, 1, 2, 4 }, at:tolist())
    local m, where = x:cuda():median(1)
    assert.is_true(m:item() ~= m:item())
    assert.equal(2, where:item())
    assert.equal(2, x:cuda():kthvalue(2):item())
  end)

  it("finds unique elements and their counts, as the CPU does", function()
    local nan = 0 / 0
    local all = { return_inverse = true, return_counts = true }
    for _, x in ipairs {
      moth.tensor { 3, nan, -1, nan, 3, 0, -0.0, 1 / 0, -1, 0 }, moth.randint(-4, 5, { 7, 30 }),
      moth.randint(0, 9, { 5000 }):half(), moth.randint(0, 3, { 300 }):double():reshape(3, 10, 10),
      moth.randint(0, 250, { 3000 }):to(moth.uint8), moth.zeros(2), moth.ones(1), moth.zeros(0),
      moth.randn(40):gt(0), moth.randint(0, 4, { 12, 20 }):t(),
    } do
      for name, f in pairs { unique = moth.unique, consecutive = moth.unique_consecutive } do
        local v, i, n = f(x, all)
        local w, j, m = f(x:cuda(), all)
        assert.is_true(w.is_cuda and j.is_cuda and m.is_cuda)
        same(v:nan_to_num(7), w:nan_to_num(7), name)
        same(i, j, name .. "'s inverse")
        same(n, m, name .. "'s counts")
      end
    end
    local pairs_of = moth.randint(0, 3, { 50, 2 })
    same(moth.unique(pairs_of, { dim = 1 }), moth.unique(pairs_of:cuda(), { dim = 1 }), "rows")
  end)

  it("searches values and counts them", function()
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

  it("counts few bins in each block, and many in global memory", function()
    local long = moth.randn(20000)
    for _, bins in ipairs { 1, 2, 4096, 4097 } do
      for _, dtype in ipairs { "float32", "float64", "bfloat16", "int32" } do
        local f = (long * 50):to(moth[dtype])
        same(f:histc(bins), f:cuda():histc(bins), bins .. " of " .. dtype)
      end
      local k = moth.randint(0, bins, { 20000 })
      k[1] = bins - 1
      same(k:bincount(), k:cuda():bincount(), bins .. " numbers")
      same(k[{ { 1, 1 } }]:bincount(), k[{ { 1, 1 } }]:cuda():bincount(), "one of " .. bins)
    end
    local none = moth.zeros(0)
    same(none:histc(3, 0, 1), none:cuda():histc(3, 0, 1), "none")
    same(none:long():bincount { minlength = 3 }, none:long():cuda():bincount { minlength = 3 },
      "no numbers")
    same(none:long():bincount { weights = none, minlength = 3 },
      none:long():cuda():bincount { weights = none:cuda(), minlength = 3 }, "no weights")
  end)
end)
