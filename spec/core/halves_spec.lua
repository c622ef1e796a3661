-- Half types: reductions, compared with the same numbers as floats; arithmetic with numbers.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local LAYOUTS = {
  function(x) return x end,
  function(x) return x:transpose(1, 3) end,
  function(x) return x:transpose(2, 3) end,
  function(x) return x:numel() > 0 and x[{ {}, { 1, -1, 2 } }] or x end,
  function(x) return x:numel() > 0 and x[{ {}, {}, { 2, -1, 3 } }] or x end,
  function(x) return x[1]:expand(4, -1, -1) end,
}
local SIZES = { { 3, 4, 5 }, { 2, 9, 1100 }, { 40, 130, 7 }, { 1, 3, 9000 }, { 2, 0, 3 } }
local DIMS = { { 1 }, { 2 }, { 3 }, { 1, 3 }, { 2, 3 }, { 1, 2, 3 } }

local function reductions(x, dim)
  local y = { x:any(dim), x:all(dim), x:count_nonzero(dim) }
  y[4], y[5], y[6] = x:sum(dim), x:mean(dim), x:norm(2, dim)
  if x:numel() > 0 then y[7], y[8] = x:amax(dim), x:amin(dim) end
  return y
end

local function each(f)
  for _, dtype in ipairs { moth.float16, moth.bfloat16 } do
    for _, size in ipairs(SIZES) do
      local x = (moth.rand(size) + 0.5):to(dtype)
      for _, layout in ipairs(LAYOUTS) do f(layout(x), dtype) end
    end
  end
end

describe("reductions of half types", function()
  it("equal those of the same numbers as floats, in any layout", function()
    each(function(x, dtype)
      for _, dim in ipairs(DIMS) do
        local wanted = reductions(x:float(), dim)
        for i, y in ipairs(reductions(x, dim)) do
          local w = wanted[i]
          if y.dtype == dtype then y, w = y:float(), w:to(dtype):float() end
          assert.is_true(w.shape == y.shape)
          assert.is_true(i >= 4 and i <= 6 and moth.allclose(w, y, 0.01, 0, true)
            or moth.equal(w, y))
        end
      end
    end)
  end)

  it("multiply as floats do", function()
    each(function(x)
      if x:numel() == 0 then return end
      local few = x[{ 1, 1, { 1, math.min(3, x:size(3)) } }]
      assert.is_true(moth.allclose(few:float():prod(), few:prod():float(), 0.01))
    end)
  end)
end)

-- x, a number, and PyTorch's results.
local X = { 0, 0.5, -1, 0.0078125, 192, -640 }
local INF, NAN = math.huge, 0 / 0
local WITH_NUMBERS = {
  { "float16", 70000,
    mul = { 0, 35008, -INF, 547, INF, -INF },
    div = { 0, 7.152557373046875e-06, -1.430511474609375e-05, 1.1920928955078125e-07,
            0.002742767333984375, -0.0091400146484375 },
    add = { INF, INF, INF, INF, INF, INF }, sub = { -INF, -INF, -INF, -INF, -INF, -INF },
    floor = { 0, 0, -1, 0, 0, -1 }, trunc = { 0, 0, 0, 0, 0, 0 },
    remainder = { 0, 0.5, INF, 0.0078125, 192, INF }, fmod = X, lt = { 1, 1, 1, 1, 1, 1 },
    where = { INF, 0.5, INF, 0.0078125, 192, INF }, slope = INF, share = 1.430511474609375e-05 },
  { "bfloat16", 1e39,
    mul = { NAN, INF, -INF, INF, INF, -INF }, div = { 0, 0, 0, 0, 0, 0 },
    add = { INF, INF, INF, INF, INF, INF }, sub = { -INF, -INF, -INF, -INF, -INF, -INF },
    floor = { 0, 0, -1, 0, 0, -1 }, trunc = { 0, 0, 0, 0, 0, 0 },
    remainder = { 0, 0.5, INF, 0.0078125, 192, INF }, fmod = X, lt = { 1, 1, 1, 1, 1, 1 },
    where = { INF, 0.5, INF, 0.0078125, 192, INF }, slope = INF, share = 0 },
  { "float16", 1.0009,
    mul = { 0, 0.50048828125, -1.0009765625, 0.00782012939453125, 192.125, -640.5 },
    div = { 0, 0.49951171875, -0.9990234375, 0.00780487060546875, 191.875, -639.5 },
    add = { 1.0009765625, 1.5009765625, 0.0009765625, 1.0087890625, 193, -639 },
    sub = { -1.0009765625, -0.5009765625, -2, -0.9931640625, 191, -641 },
    floor = { 0, 0, -1, 0, 191, -640 }, trunc = { 0, 0, 0, 0, 191, -639 },
    remainder = { 0, 0.5, 0.0009765625, 0.0078125, 0.8134765625, 0.625 },
    fmod = { 0, 0.5, -1, 0.0078125, 0.8134765625, -0.3759765625 }, lt = { 1, 1, 1, 1, 0, 1 },
    where = { 1.0009765625, 0.5, 1.0009765625, 0.0078125, 192, 1.0009765625 },
    slope = 1.0009765625, share = 0.9990234375 },
  { "bfloat16", 1.0047,
    mul = { 0, 0.50390625, -1.0078125, 0.00787353515625, 193, -644 },
    div = { 0, 0.498046875, -0.99609375, 0.007781982421875, 191, -636 },
    add = { 1.0078125, 1.5078125, 0.0078125, 1.015625, 193, -640 },
    sub = { -1.0078125, -0.5078125, -2, -1, 191, -640 },
    floor = { 0, 0, -1, 0, 191, -640 }, trunc = { 0, 0, 0, 0, 191, -636 },
    remainder = { 0, 0.5, 0.0078125, 0.0078125, 0.515625, 0.96875 },
    fmod = { 0, 0.5, -1, 0.0078125, 0.515625, -0.0390625 }, lt = { 1, 1, 1, 1, 0, 1 },
    where = { 1.0078125, 0.5, 1.0078125, 0.0078125, 192, 1.0078125 },
    slope = 1.0078125, share = 0.99609375 },
}

-- Functions of x and the number s; the results have x's dtype, except for lt.
local CALLS = {
  mul = function(x, s) return x * s, s * x, x:clone():mul_(s), moth.mul(s, x) end,
  div = function(x, s) return x / s, x:clone():div_(s) end,
  add = function(x, s) return x + s, s + x, x:clone():add_(s) end,
  sub = function(x, s) return x - s, -(s - x) end,
  floor = function(x, s) return x:div(s, "floor"), x:floor_divide(s) end,
  trunc = function(x, s) return (x:div(s, "trunc")) end,
  remainder = function(x, s) return (x:remainder(s)) end,
  fmod = function(x, s) return (x:fmod(s)) end,
  lt = function(x, s) return (x:lt(s)) end,
  where = function(x, s) return (moth.where(x:gt(0), x, s)) end,
}

local function golden(row, f)
  for name, call in pairs(CALLS) do
    local wanted = moth.tensor(row[name]):double()
    for i, y in ipairs { call(f(moth.tensor(X):to(moth[row[1]])), row[2]) } do
      assert.equal(name == "lt" and moth.bool or moth[row[1]], y.dtype)
      assert.is_true(moth.allclose(y:cpu():double():flatten(), wanted, 0, 0, true),
        name .. " " .. i .. " of " .. tostring(y))
    end
  end
end

describe("a number with half types", function()
  it("has PyTorch's results", function()
    for _, row in ipairs(WITH_NUMBERS) do
      golden(row, function(x) return x end)
      golden(row, function(x) return (x:repeat_interleave(2)[{ { 1, -1, 2 } }]) end)
    end
  end)

  it("has them on a GPU too", function()
    if not cuda.here then pending(cuda.why) end
    for _, row in ipairs(WITH_NUMBERS) do
      golden(row, function(x) return (x:to("cuda")) end)
      golden(row, function(x) return (x:repeat_interleave(2):to("cuda")[{ { 1, -1, 2 } }]) end)
      local number = moth.tensor(row[2], { dtype = moth.float64 }) -- a GPU rounds it first
      local there = moth.tensor(X):to(moth[row[1]]):to("cuda") * number:to("cuda")
      local rounded = moth.tensor(X):to(moth[row[1]]) * number:to(moth[row[1]])
      assert.is_true(moth.allclose(there:cpu(), rounded, 0, 0, true))
    end
  end)

  it("has them also if either is a tensor of one element", function()
    for _, row in ipairs(WITH_NUMBERS) do
      for i = 1, #X do
        local one, wanted = moth.tensor(X[i]):to(moth[row[1]]), row.mul[i]
        for _, y in ipairs { one * row[2], row[2] * one } do
          assert.equal(moth[row[1]], y.dtype)
          assert.is_true(y:item() == wanted or wanted ~= wanted)
        end
      end
      local y = moth.tensor(X):to(moth[row[1]]) * moth.tensor(row[2], { dtype = moth.float64 })
      assert.equal(moth[row[1]], y.dtype)
      assert.is_true(moth.allclose(y:double(), moth.tensor(row.mul):double(), 0, 0, true))
    end
  end)

  it("is as exact in gradients", function()
    for _, row in ipairs(WITH_NUMBERS) do
      for _, shape in ipairs { { 6 }, {} } do
        local function grad(f)
          local x = moth.full(shape, 0.5):to(moth[row[1]]):requires_grad_()
          f(x):sum():backward()
          assert.equal(moth[row[1]], x.grad.dtype)
          return (x.grad:max():item())
        end
        assert.equal(row.slope, grad(function(x) return x * row[2] end))
        assert.equal(row.share, grad(function(x) return x / row[2] end))
      end
    end
    local x = moth.tensor(X):half()
    local factor = moth.tensor(70000):requires_grad_();
    (x * factor):sum():backward()
    assert.equal(moth.float32, factor.grad.dtype)
    assert.equal(-448.5, factor.grad:item())
  end)

  it("divides, and is a power, for any magnitude", function()
    local x = moth.tensor { 1.5, -2, 0.5 }:half()
    assert.same({ 46656, -35008, INF }, (70000 / x):tolist())
    assert.same({ INF, -INF, 0 }, (x ^ 70001):tolist())
    assert.same({ INF, 0, 264.5 }, (70000 ^ x):tolist())
  end)

  it("is infinite if float32 cannot hold it", function()
    local x = moth.tensor { 1, 2 }
    assert.same({ INF, INF }, (x * 1e39):tolist())
    assert.same({ -INF, -INF }, (x - 1e39):tolist())
    assert.same({ true, true }, x:lt(1e39):tolist())
  end)

  it("raises if an integer dtype cannot hold it", function()
    local x = moth.tensor { 1, 2 }:to(moth.uint8)
    assert.has_error_like(function() return x * 300 end, "300 does not fit u8")
  end)
end)
