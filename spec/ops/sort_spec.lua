-- Sorting of large and small rows, ties, NaN, and searches in sorted rows.

local moth = require "moth"

local NAN = 0 / 0

describe("sort", function()
  it("sorts rows of every size, and returns the positions", function()
    for _, n in ipairs { 1, 2, 15, 16, 17, 100, 192, 193, 1000, 5000 } do
      for _, dtype in ipairs { moth.float32, moth.float64, moth.int64, moth.int8 } do
        local x = (moth.randn(3, n, { dtype = moth.float64 }) * 40):to(dtype)
        local y, at = x:sort(2)
        assert.is_true(moth.equal(x:gather(2, at), y))
        if n > 1 then
          assert.is_true(y[{ {}, { 2, n } }]:ge(y[{ {}, { 1, n - 1 } }]):all():item())
        end
        local down, order = x:sort { dim = 2, descending = true, stable = true }
        for _, share in ipairs { 10, 40, 100 } do
          local k = math.ceil(n / share)
          local top, where = x:topk(k, 2)
          assert.is_true(moth.equal(top, down[{ {}, { 1, k } }]))
          assert.is_true(moth.equal(where, order[{ {}, { 1, k } }]))
          assert.is_true(moth.equal(top, (y:topk(k, 2)))) -- k grows
        end
      end
    end
  end)

  it("sorts the ends of int64 together with numbers on both sides of 0", function()
    local least = -9223372036854775807LL - 1
    for _, n in ipairs { 3, 100, 1000 } do
      local x = moth.arange(n) - math.floor(n / 2)
      x[1], x[2] = 9223372036854775807LL, least
      for _, down in ipairs { false, true } do
        local y, at = x:sort { descending = down }
        assert.is_true(x[{ at }]:equal(y))
        assert.is_true(y[down and n or 1]:eq(least):item())
        local small = (x[{ { 3, n } }] * 1e9):long()
        local z, place = small:sort { descending = down }
        assert.is_true(small[{ place }]:equal(z))
        assert.is_true(z[down and -1 or 1]:eq(small:min()):item())
      end
    end
  end)

  it("keeps the order of equal elements in both directions", function()
    local x = moth.arange(1000) % 3
    local _, up = x:sort()
    local _, down = x:sort { descending = true }
    assert.same({ 1, 4, 7 }, up[{ { 1, 3 } }]:tolist())
    assert.same({ 3, 6, 9 }, down[{ { 1, 3 } }]:tolist())
    assert.same({ 1, 4, 7 }, down[{ { 668 - 1, 670 - 1 } }]:tolist())
  end)

  it("treats NaN as the greatest and -0 as 0", function()
    local x = moth.tensor { NAN, 1, math.huge, -0.0, 0 }
    assert.same({ 4, 5, 2, 3, 1 }, x:argsort():tolist())
    assert.same({ 1, 3, 2, 4, 5 }, x:argsort { descending = true }:tolist())
  end)

  it("passes the gradient to the positions of the values", function()
    local x = moth.tensor({ 3, 1, 2 }, { requires_grad = true })
    local y = x:sort();
    (y * moth.tensor { 1, 10, 100 }):sum():backward()
    assert.same({ 100, 1, 10 }, x.grad:tolist())
  end)
end)

describe("unique", function()
  it("returns values, inverse and counts; the first two rebuild the input", function()
    local x = moth.randint(0, 20, { 7, 30 })
    local values, inverse, counts = x:unique { return_inverse = true, return_counts = true }
    assert.is_true(moth.equal(values:index_select(1, inverse:flatten()):view(7, 30), x))
    assert.equal(210, counts:sum():item())
    local only = x:unique()
    assert.is_true(moth.equal(only, values))
    local _, second = x:unique { return_counts = true }
    assert.is_true(moth.equal(second, counts))
  end)

  it("counts runs of slices, of any width, and each NaN separately", function()
    local rows = moth.tensor { { 1, 1, 0, 1, 1, 1, 1 }, { 5, 5, 5, 5, 5, NAN, NAN } }:t()
    local function runs(x, dim)
      local values, inverse, counts = moth.unique_consecutive { x, dim = dim,
        return_inverse = true, return_counts = true }
      assert.is_true(moth.equal(values:index_select(dim, inverse):nan_to_num(9), x:nan_to_num(9)))
      return values:size(dim), inverse:tolist(), counts:tolist()
    end
    local wanted = { 5, { 1, 1, 2, 3, 3, 4, 5 }, { 2, 1, 2, 1, 1 } }
    assert.same(wanted, { runs(rows, 1) })
    assert.same(wanted, { runs(moth.cat({ rows:t(), rows:t() }, 1), 2) })
    local _, among, each = moth.unique { rows, dim = 1, return_inverse = true,
      return_counts = true }
    assert.same({ { 2, 2, 1, 2, 2, 3, 4 }, { 1, 4, 1, 1 } }, { among:tolist(), each:tolist() })
    assert.equal(1, (runs(moth.zeros(4, 0), 1)))
    assert.equal(0, (runs(moth.zeros(0, 3), 1)))
  end)
end)

describe("searchsorted", function()
  it("returns positions from 1, and n + 1 after the last element", function()
    local edges = moth.tensor { 1, 3, 5 }
    assert.same({ 1, 1, 2, 4 }, moth.searchsorted(edges, moth.tensor { 0, 1, 2, 9 }):tolist())
    assert.same({ 1, 2, 2, 4 },
      moth.bucketize(moth.tensor { 0, 1, 2, 9 }, edges, { right = true }):tolist())
  end)
end)

describe("a size that depends on values", function()
  local function refused(text, f)
    local ok, message = pcall(f)
    assert.is_false(ok)
    assert.matches(text, message)
  end

  it("raises before memory is allocated", function()
    local huge, most = moth.tensor { 10LL ^ 15 }, moth.tensor { 2LL ^ 62 + (2LL ^ 62 - 1) }
    refused("out of memory", function() huge:bincount() end)
    refused("more elements than can be addressed", function() most:bincount() end)
    refused("out of memory", function() moth.nn.functional.one_hot(huge) end)
    refused("more elements than can be addressed", function() moth.nn.functional.one_hot(most) end)
    local counts = moth.tensor { 1LL, 10LL ^ 15 }
    refused("out of memory", function() moth.ones(2):repeat_interleave(counts) end)
    refused("out of memory", function() moth.ones(3):tile(1e15) end)
    refused("out of memory", function() moth.ones(3):histc(1e15) end)
  end)

  it("is not counted element by element if all are the same", function()
    local wide = moth.ones(1):expand(2 ^ 52)
    refused("out of memory", function() wide:repeat_interleave(1, 1) end)
    assert.equal(0, wide:repeat_interleave(0, 1):numel())
  end)
end)

describe("an empty tensor", function()
  it("has the median NaN, and no unique slices", function()
    assert.equal("nan", tostring(math.abs(moth.zeros(0):median():item())))
    assert.equal("(0, 1099511627776)", tostring(moth.zeros(0, 2 ^ 40):unique { dim = 1 }.shape))
  end)
end)

describe("histc", function()
  it("has a bin for every number of a range, of any width", function()
    local wide = moth.tensor({ -1e308, 0, 1e308 }, { dtype = moth.float64 })
    assert.same({ 1, 0, 1, 1 }, wide:histc(4):tolist())
    assert.same({ 0, 0, 1, 0 }, moth.tensor { 1e20 }:histc(4):tolist())
  end)

  it("has the same quantiles and gradients for one q as for several, with NaN and ties", function()
    local x = moth.randn(6, 41)
    x[2][7], x[3][1], x[3][40], x[5][3] = 0 / 0, 0 / 0, 0 / 0, x[5][9]:item()
    x[6]:fill_(0 / 0)
    for _, name in ipairs { "quantile", "nanquantile" } do
      for _, how in ipairs { "linear", "lower", "higher", "midpoint", "nearest" } do
        for _, q in ipairs { 0, 0.13, 0.5, 0.71, 1 } do
          local one, two = x:clone():requires_grad_(), x:clone():requires_grad_()
          local a = moth[name](one, q, { dim = 2, interpolation = how })
          local b = moth[name](two, { q, 0.3 }, { dim = 2, interpolation = how })[1]
          assert.is_true(a:allclose(b, { equal_nan = true, rtol = 1e-6 }))
          a:sum():backward()
          b:sum():backward()
          assert.is_true(one.grad:sum(2):allclose(two.grad:sum(2), { atol = 1e-6 }))
        end
      end
    end
  end)
end)
