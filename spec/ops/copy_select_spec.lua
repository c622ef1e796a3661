-- Ops that copy or select elements, at sizes around those of vectors, compared with plain Lua.

local moth = require "moth"

local SIZES = { 1, 7, 8, 9, 31, 33, 64, 67, 130 }
local TYPES = { "float32", "float64", "bfloat16", "int16", "int64", "uint8", "bool" }

local function numbers(n, dtype, from)
  local x = (moth.arange(n) + from) % 100
  return dtype == "bool" and (x % 3):eq(0) or x:to(moth[dtype])
end

local function each(f)
  for _, dtype in ipairs(TYPES) do
    for _, n in ipairs(SIZES) do f(n, dtype) end
  end
end

describe("a mask", function()
  it("selects between tensors, between their slices, and numbers", function()
    each(function(n, dtype)
      local p, q = numbers(n, dtype, 1), numbers(2 * n, dtype, 40)[{ { 1, -1, 2 } }]
      local mask = (moth.arange(n) * 7 % 5):lt(2)
      local a, b, m = p:tolist(), q:tolist(), mask:tolist()
      local one, two = {}, {}
      for i = 1, n do
        one[i] = m[i] and a[i] or not m[i] and b[i]
        two[i] = m[i] and b[1] or not m[i] and a[i]
      end
      assert.same(one, moth.where(mask, p, q):tolist())
      assert.same(one, moth.where(mask, p, q:contiguous()):tolist())
      assert.same(two, moth.where(mask, q[1], p):tolist())
      assert.same(two, p:masked_fill(mask, b[1]):tolist())
      p:masked_fill_(mask, b[1])
      assert.same(two, p:tolist())
    end)
  end)

  it("keeps NaN and zeros unchanged", function()
    local nan, mask = moth.full({ 40 }, 0 / 0), moth.arange(40):lt(20)
    assert.equal(20, nan:masked_fill(mask, -1 / math.huge):isnan():sum():item())
    assert.equal(-math.huge, (1 / nan:masked_fill(mask, -1 / math.huge))[1]:item())
  end)
end)

describe("flip", function()
  it("reverses rows of every type and length", function()
    each(function(n, dtype)
      local x = numbers(2 * n, dtype, 3):view(2, n)
      local rows = x:tolist()
      for i = 1, 2 do
        local turned = {}
        for j = 1, n do turned[j] = rows[i][n + 1 - j] end
        rows[i] = turned
      end
      assert.same(rows, x:flip(2):tolist())
      assert.same(rows, x:t():contiguous():t():flip(2):tolist())
    end)
  end)
end)

local WRONG = { [0] = "count from 1", [10] = "out of range", [-1] = "got %-1" }

describe("positions", function()
  it("raise for a bad one at any place of a long list", function()
    local x = moth.randn(9, 2)
    for _, n in ipairs { 1, 37, 20011 } do
      for _, at in ipairs { 1, math.ceil(n / 2), n } do
        local index = moth.ones(n):long()
        for bad, message in pairs(WRONG) do
          index[at] = bad
          assert.error_matches(function() return x:index_select(1, index) end, message)
          index[at] = 9
        end
        assert.equal(x[{ 9, 2 }]:item(), x:index_select(1, index)[{ at, 2 }]:item())
      end
    end
  end)
end)

describe("one position for each element", function()
  -- gather, take and the scatters by hand.
  local function gathered(x, index)
    local y = {}
    for i, row in ipairs(index:tolist()) do
      y[i] = {}
      for j, at in ipairs(row) do y[i][j] = x[{ i, at }]:item() end
    end
    return y
  end

  it("is read in any layout and integer type", function()
    local x = moth.arange(3 * 50):view(3, 50)
    local index = moth.randint(1, 51, { 3, 2100 })
    local wanted = gathered(x, index)
    local wide = moth.cat({ index, index }, 2)
    assert.same(wanted, x:gather(2, index):tolist())
    assert.same(wanted, x:gather(2, index:int()):tolist())
    assert.same(wanted, x:gather(2, wide[{ {}, { 1, 2100 } }]):tolist())
    assert.same(wanted, x:gather(2, index:t():contiguous():t()):tolist())
    assert.same(wanted, x:t():contiguous():gather(1, index:t()):t():tolist())
    assert.same(wanted, x:take_along_dim(index, 2):tolist())
    local flat = index + moth.tensor { { 0LL }, { 50LL }, { 100LL } }
    assert.same(wanted, x:take(flat):tolist())
    assert.same(wanted, x:take(flat:t():contiguous():t()):tolist())
    assert.same({ 2, 0 }, moth.arange(3):gather(1, { 3, 1 }):tolist())
  end)

  it("adds repeated positions, in every dimension", function()
    for dim = 1, 3 do
      local index = moth.randint(1, 4, { 4, 5, 6 })
      local values = moth.arange(4 * 5 * 6):view(4, 5, 6)
      local sizes = { 4, 5, 6 }
      sizes[dim] = 3
      local y, wanted = moth.zeros(sizes):long():scatter_add_(dim, index, values), moth.zeros(sizes)
      for i = 1, 4 do
        for j = 1, 5 do
          for k = 1, 6 do
            local at = { i, j, k }
            at[dim] = index[{ i, j, k }]:item()
            wanted[at]:add_(values[{ i, j, k }])
          end
        end
      end
      assert.same(wanted:tolist(), y:tolist())
      local x = moth.zeros(sizes):requires_grad_()
      x:gather(dim, index):backward(values:float())
      assert.same(wanted:tolist(), x.grad:tolist())
    end
  end)

  it("raises for a bad one at any place, before any write", function()
    for _, n in ipairs { 1, 37, 20011 } do
      for _, at in ipairs { 1, math.ceil(n / 2), n } do
        local x, index = moth.zeros(2, 9), moth.ones(2, n):long()
        for bad, message in pairs(WRONG) do
          index[{ 2, at }] = bad
          assert.error_matches(function() return x:gather(2, index) end, message)
          assert.error_matches(function() return x[1]:take(index) end, message)
          if n < 10 then
            assert.error_matches(function() x:scatter_(2, index, 1) end, message)
            assert.error_matches(function() x:scatter_add_(2, index, moth.ones(2, n)) end, message)
            assert.error_matches(function()
              x:scatter_reduce_(2, index, moth.ones(2, n), "sum")
            end, message)
          end
          assert.equal(0, x:sum():item())
          index[{ 2, at }] = 9
        end
      end
    end
    assert.error_matches(function() return moth.zeros(0):gather(1, { 1 }) end, "out of range")
  end)

  it("may be in the written tensor", function()
    local x = moth.tensor { 3LL, 1LL, 2LL }
    assert.same({ 1, 2, 3 }, x:clone():scatter_(1, x, x):tolist())
    x:scatter_(1, x, x)
    assert.same({ 1, 2, 3 }, x:tolist())
  end)

  it("must not change before the gradient is computed", function()
    local x, index = moth.randn(3):requires_grad_(), moth.tensor { 1LL, 3LL }
    local y = x:gather(1, index):sum()
    index[1] = 2
    assert.error_matches(function() y:backward() end, "was changed in place")
  end)
end)

describe("index_add_", function()
  it("reads the old values of a source that is a part of the tensor", function()
    local x = moth.tensor { { 1, 2 }, { 10, 20 }, { 100, 200 } }
    x:index_add_(1, { 2, 3, 2 }, x)
    assert.same({ { 1, 2 }, { 111, 222 }, { 110, 220 } }, x:tolist())
  end)
end)

describe("a sum over few rows", function()
  it("is right for any number of columns", function()
    for _, n in ipairs(SIZES) do
      for _, r in ipairs { 2, 4, 10, 17, 70 } do
        local x = (moth.arange(3 * r * n) * 7 % 101 - 50):view(3, r, n)
        local wanted = x:sum(2):double():tolist()
        for _, dtype in ipairs { "float32", "float64" } do
          assert.same(wanted, x:to(moth[dtype]):sum(2):double():tolist())
        end
      end
    end
  end)
end)

describe("cumsum", function()
  it("computes separate sums for each row, in place as well", function()
    for _, rows in ipairs { 1, 3, 4, 6, 9 } do
      for _, dtype in ipairs { "float32", "float64", "int64", "int16" } do
        local x = (moth.arange(rows * 5) * 7 % 11 - 4):to(moth[dtype]):view(rows, 5)
        local sums = x:tolist()
        for i = 1, rows do
          for j = 2, 5 do sums[i][j] = sums[i][j] + sums[i][j - 1] end
        end
        assert.same(sums, x:cumsum(2):double():tolist())
        assert.same(sums, x:t():cumsum(1):t():double():tolist())
        x:cumsum_(2)
        assert.same(sums, x:double():tolist())
      end
    end
  end)
end)

describe("an expanded index", function()
  it("gathers and scatters as its copy does, also in errors", function()
    for _, dtype in ipairs { "float32", "float64", "bfloat16", "int16", "int64" } do
      local x = numbers(6 * 5 * 4, dtype, 3):view(6, 5, 4)
      for dim = 1, 3 do
        local list, shape = moth.tensor { 3LL, 1LL, 4LL, 3LL }, { 1, 1, 1 }
        shape[dim] = 4
        local wide = { 5, 4, 3 }
        wide[dim] = 4
        local index = list:view(shape):expand(wide)
        local copy = index:contiguous()
        local src = numbers(6 * 5 * 4, dtype, 9):view(4, 5, 6):permute(3, 2, 1)
        assert.is_true(x:gather(dim, copy):equal(x:gather(dim, index)))
        assert.is_true(x:scatter(dim, copy, 7):equal(x:scatter(dim, index, 7)))
        assert.is_true(x:scatter_add(dim, copy, src):equal(x:scatter_add(dim, index, src)))
        local last = list:clone()
        last[1] = 2 -- no position twice: else the result is undefined
        index = last:view(shape):expand(wide)
        assert.is_true(x:scatter(dim, index:contiguous(), src):equal(x:scatter(dim, index, src)))
        last[2] = 7
        local y = x:clone()
        for name, how in pairs { gather = {}, scatter_ = { src }, scatter_add_ = { src } } do
          local _, message = pcall(function() return y[name](y, dim, last:view(shape), how[1]) end)
          assert.error_matches(function() return y[name](y, dim, index, how[1]) end,
            message:match "position 7 is out of range.*", 1, true)
        end
        assert.is_true(x:equal(y))
      end
    end
  end)

  it("has the gradients of its copy", function()
    local index = moth.tensor { 3LL, 1LL, 3LL }:view(3, 1):expand(3, 4)
    local grads = {}
    for k, at in ipairs { index, index:contiguous() } do
      local x, src = moth.arange(20):float():view(4, 5), moth.arange(12):float():view(3, 4)
      x:requires_grad_()
      src:requires_grad_()
      local y = x:gather(1, at) * 3
      y = y + x:scatter_add(1, at, src)[{ { 1, 3 }, { 1, 4 } }] * y
      grads[k] = moth.autograd.grad(y:sum(), { x, src })
    end
    for k = 1, 2 do assert.is_true(grads[1][k]:equal(grads[2][k])) end
  end)
end)

describe("repeat_interleave", function()
  it("repeats elements of every type, from views too", function()
    each(function(n, dtype)
      for _, by in ipairs { 2, 3, 17 } do
        local x = numbers(2 * n, dtype, 1):view(n, 2)
        local from, want, flat = x:tolist(), {}, {}
        for i = 1, n do
          want[i] = {}
          for j = 1, 2 * by do
            want[i][j] = from[i][math.ceil(j / by)]
            flat[#flat + 1] = want[i][j]
          end
        end
        assert.same(want, x:repeat_interleave(by, 2):tolist())
        assert.same(want, x:t():contiguous():t():repeat_interleave(by, 2):tolist())
        assert.same(flat, x:repeat_interleave(by):tolist())
      end
    end)
  end)
end)

describe("extreme integers", function()
  it("are found along rows, columns and views, also beyond 32 bits", function()
    for _, dtype in ipairs { "uint8", "int8", "int16", "int32", "int64" } do
      for _, n in ipairs(SIZES) do
        local by = dtype == "int64" and 0x100000001LL or 1LL
        local small = (moth.arange(5 * n) * 37 % 101):view(n, 5) - (dtype == "uint8" and 0 or 50)
        local x, rows, least, most = (small * by):to(moth[dtype]), small:tolist(), {}, {}
        for i = 1, n do
          least[i] = math.min(unpack(rows[i], 1, 5)) * by
          most[i] = math.max(unpack(rows[i], 1, 5)) * by
        end
        local function same(want, got)
          assert.is_true(moth.tensor(want):to(moth[dtype]):equal(got), dtype .. " " .. n)
        end
        same(least, x:amin(2))
        same(most, x:amax(2))
        same(least, x:t():contiguous():amin(1))
        same(most, x:t():contiguous():amax(1))
        same(most, moth.stack({ x, x }, 3)[{ {}, {}, 2 }]:amax(2))
      end
    end
  end)
end)

describe("cummax and cummin", function()
  it("return the last of equal elements and the last NaN, in rows of any length", function()
    local nan = 0 / 0
    for _, dtype in ipairs { "float32", "float64", "int64", "int8" } do
      for _, n in ipairs { 1, 15, 16, 17, 100 } do
        local whole = dtype:find "int"
        local x = moth.arange(n) * 29 % 97 - 48
        if n > 40 then x[{ { 20, 90 } }] = 3 end
        local holes = moth.where(x:eq(3):logical_and(moth.arange(n):lt(60)), nan, x)
        local other = whole and moth.zeros(n) or holes
        for _, row in ipairs { x:to(moth[dtype]), other:to(moth[dtype]) } do
          local list = row:double():tolist()
          for name, sign in pairs { cummax = 1, cummin = -1 } do
            local best, values, places = 1, {}, {}
            for i, v in ipairs(list) do
              if v ~= v or sign * v >= sign * list[best] then best = i end
              values[i], places[i] = tostring(list[best]), best
            end
            local y, at = row[name](row, 1)
            local got = y:double():tolist()
            for i = 1, n do got[i] = tostring(got[i]) end
            assert.same(values, got)
            assert.same(places, at:int():tolist())
          end
        end
      end
    end
  end)
end)

describe("floats", function()
  it("are converted to the same integers in long rows as alone", function()
    local ends = { 0 / 0, 1 / 0, -1 / 0, 1e30, -1e30, 0.5, -0.5, 1.9, -1.9, 254.9, 255, 256 }
    for _, e in ipairs { 31, 63 } do
      for _, by in ipairs { 1, 1 - 2^-24, 1 - 2^-53, 1 + 2^-23 } do
        ends[#ends + 1], ends[#ends + 2] = 2^e * by, -2^e * by
      end
      ends[#ends + 1], ends[#ends + 2] = 2^e - 0.5, -2^e - 0.5
    end
    for _, from in ipairs { "float32", "float64" } do
      for _, to in ipairs { "uint8", "int32", "int64", "bool" } do
        local x = moth.tensor(ends, { dtype = moth[from] }):tile(3)
        local all = x:to(moth[to])
        for i = 1, #x do
          assert.equal(x[i]:to(moth[to]):item(), all[i]:item())
        end
      end
    end
  end)
end)

describe("joining", function()
  it("copies parts of every type and length, contiguous or not", function()
    each(function(n, dtype)
      local p, q = numbers(3 * n, dtype, 1):view(3, n), numbers(6, dtype, 40):view(3, 2)
      local a, b, both, above = p:tolist(), q:tolist(), {}, {}
      for i = 1, 3 do
        both[i], above[i] = {}, { a[i], a[4 - i] }
        for j = 1, n + 2 do both[i][j] = j > n and b[i][j - n] or j <= n and a[i][j] end
      end
      local none = numbers(0, dtype, 0):view(3, 0)
      assert.same(both, moth.cat({ p, none, q }, 2):tolist())
      assert.same(both, moth.cat({ p:t():contiguous():t(), q }, 2):tolist())
      assert.same(above, moth.stack({ p, p:flip(1) }, 2):tolist())
    end)
  end)
end)
