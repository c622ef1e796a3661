-- moth.testing: what assert_close accepts and reports, with the tolerances of torch.testing; the
-- ranges of make_tensor.

local moth = require "moth"

local testing = moth.testing
local close = testing.assert_close
local f16, bf16, f32, f64 = moth.float16, moth.bfloat16, moth.float32, moth.float64

local function fails(text, ...)
  local ok, problem = pcall(close, ...)
  assert.is_false(ok)
  local message = tostring(type(problem) == "table" and problem.message or problem)
  if not message:find(text, 1, true) then error(message .. "\nlacks: " .. text) end
end

local function full(value, dtype) return moth.full({2}, value, {dtype = dtype}) end

describe("assert_close", function()
  -- dtype, a number that is close to 1000 by its rtol and atol, one that is not
  local rows = {
    {f64, 1000.00009, 1000.00011}, {f32, 1000.00122, 1000.0014}, {f16, 1001, 1001.5},
    {bf16, 1016, 1020},
  }
  for _, row in ipairs(rows) do
    it("has PyTorch's tolerances for " .. tostring(row[1]), function()
      close(full(row[2], row[1]), full(1000, row[1]))
      fails("2 of 2 elements are not close", full(row[3], row[1]), full(1000, row[1]))
    end)
  end

  it("has the larger tolerances of two dtypes, if they may differ", function()
    close(full(1001, f64), full(1000, f16), {check_dtype = false})
    fails("the dtypes differ: moth.float64 and moth.float16", full(1000, f64), full(1000, f16))
    fails("elements are not close", full(1001, f64), full(1000, f32), {check_dtype = false})
  end)

  it("is exact for integers and booleans", function()
    close(moth.tensor {1LL, 2LL}, moth.tensor {1LL, 2LL})
    fails("1 of 2 elements are not close; the largest difference is 1 at {2} (rtol 0, atol 0)",
      moth.tensor {1LL, 2LL}, moth.tensor {1LL, 3LL})
    fails("1 of 2 elements", moth.tensor {true, false}, moth.tensor {true, true})
  end)

  it("takes tolerances: rtol of the expected value, and atol", function()
    close(full(110, f32), full(100, f32), {rtol = 0.1, atol = 0})
    fails("(rtol 0.1, atol 0)", full(100, f32), full(90, f32), {rtol = 0.1, atol = 0})
    close(full(2, f32), full(1, f32), {rtol = 0, atol = 1})
    fails("(rtol 0, atol 0.5)", full(2, f32), full(1, f32), {rtol = 0, atol = 0.5})
    fails("bad argument 'atol' to 'assert_close' (rtol and atol are given both or neither", 1, 1,
      {rtol = 1})
    fails("bad argument 'rtol' to 'assert_close' (rtol and atol are given both or neither", 1, 1,
      {atol = 1})
  end)

  it("names the place of the largest difference", function()
    local x = moth.zeros(2, 3, 4)
    x[{1, 1, 2}], x[{2, 3, 1}], x[{2, 3, 4}] = 1, -5, 4
    fails("3 of 24 elements are not close; the largest difference is 5 at {2, 3, 1}", x,
      moth.zeros(2, 3, 4))
    fails("the largest difference is 2 at {}", moth.tensor(3.0), moth.tensor(1.0))
    fails("the largest difference is inf at {2}", moth.tensor {1, math.huge}, moth.tensor {1, 1})
    fails("1 of 2 elements are not close; the largest difference is inf at {1}",
      moth.tensor {0 / 0, 1}, moth.tensor {1, 1})
  end)

  it("takes NaN for NaN if requested, in tensors and numbers", function()
    local nan = moth.tensor {0 / 0, 1}
    fails("1 of 2 elements", nan, nan)
    close(nan, nan, {equal_nan = true})
    fails("are not close", 0 / 0, 0 / 0)
    close(0 / 0, 0 / 0, {equal_nan = true})
    fails("are not close", 0 / 0, 1, {equal_nan = true})
    fails("are not close", 1, 0 / 0, {equal_nan = true})
    close(moth.tensor(math.huge), moth.tensor(math.huge))
    close(math.huge, math.huge)
  end)

  it("compares shapes, and strides if requested", function()
    local x = moth.ones(2, 2)
    fails("the shapes differ: (2, 2) and (4)", x, moth.ones(4))
    fails("the shapes differ: (1) and ()", moth.ones(1), moth.tensor(1.0))
    close(x, x:t())
    fails("the strides of dim 1 differ: 2 and 1", x, x:t(), {check_stride = true})
    close(x, moth.ones(2, 2), {check_stride = true})
    close(moth.ones(0, 3), moth.ones(0, 3))
  end)

  it("compares numbers, texts, booleans and tables, and names the place", function()
    close(1, 1 + 1e-8)
    fails("1 and 1.000001 are not close (rtol 1e-07, atol 1e-07)", 1, 1.000001)
    close(1, 1.1, {rtol = 0.1, atol = 0})
    close("a", "a")
    fails("a and b differ", "a", "b")
    close(true, true)
    fails("true and false differ", true, false)
    close({1, a = {moth.ones(2)}}, {1, a = {moth.ones(2)}}, {})
    fails("(at [a][1])", {1, a = {moth.ones(2)}}, {1, a = {moth.zeros(2)}}, {})
    fails("a value is missing (at [2])", {1}, {1, 2})
    fails("a value was not expected (at [2])", {1, 2}, {1})
    fails("a value was not expected (at [a][b])", {a = {b = 1}}, {a = {}}, {})
    fails("1 and a string ('a') cannot be compared", 1, "a")
    fails("f32 (2) and 1 cannot be compared", moth.ones(2), 1)
    fails("1 and f32 (2) cannot be compared", 1, moth.ones(2))
  end)

  it("has the tolerances of the dtypes, the larger ones of two", function()
    for name, row in pairs {float16 = {1e-3, 1e-5}, bfloat16 = {1.6e-2, 1e-5},
      float32 = {1.3e-6, 1e-5}, float64 = {1e-7, 1e-7}, int64 = {0, 0}, int32 = {0, 0},
      uint8 = {0, 0}, bool = {0, 0}} do
      local x = moth.tensor({1}, {dtype = moth[name]})
      fails(("(rtol %g, atol %g)"):format(row[1], row[2]), x, moth.tensor({0},
        {dtype = moth[name]}))
      fails(("(rtol %g, atol %g)"):format(math.max(row[1], 1e-7), math.max(row[2], 1e-7)),
        x, moth.zeros(1, {dtype = moth.float64}), {check_dtype = false})
    end
  end)

  it("takes values at the bound, not beyond it", function()
    local function pair(difference, expected)
      return moth.tensor({expected + difference}, {dtype = moth.float64}),
        moth.tensor({expected}, {dtype = moth.float64})
    end
    local a, b = pair(1 + 2, 8)
    close(a, b, {rtol = 0.25, atol = 1}) -- 1 + 0.25 * 8
    a, b = pair(3.001, 8)
    fails("1 of 1 element is not close; the largest difference is 3.001 at {1} (rtol 0.25, "
      .. "atol 1)",
      a, b, {rtol = 0.25, atol = 1})
    a, b = pair(-3, 8)
    close(a, b, {rtol = 0.25, atol = 1})
    a, b = pair(-3, -8)
    close(a, b, {rtol = 0.25, atol = 1})
    close(8 + 3, 8, {rtol = 0.25, atol = 1})
    fails("11.5 and 8 are not close (rtol 0.25, atol 1)", 11.5, 8, {rtol = 0.25, atol = 1})
    close(1 + 1.9e-7, 1)
    fails("are not close (rtol 1e-07, atol 1e-07)", 1 + 2.1e-7, 1)
    close(math.huge, math.huge)
    fails("inf and -inf are not close", math.huge, -math.huge)
    fails("1 and inf are not close", 1, math.huge)
    fails("inf and 1 are not close", math.huge, 1)
    fails("1 of 1 element is not close", moth.tensor {1}, moth.tensor {math.huge})
  end)

  it("names the position of the largest difference in each dimension", function()
    for i = 1, 2 do
      for j = 1, 3 do
        for k = 1, 4 do
          local x, y = moth.zeros(2, 3, 4), moth.zeros(2, 3, 4)
          x[i][j][k], y[1][1][1] = 5, 1
          if not (i == 1 and j == 1 and k == 1) then
            fails(("2 of 24 elements are not close; the largest difference is 5 at {%d, %d, %d}")
              :format(i, j, k), x, y)
          end
        end
      end
    end
    fails("at {}", moth.tensor(1), moth.tensor(3))
  end)

  it("finds differences of shapes, dtypes and strides", function()
    local x = moth.ones(2, 3)
    fails("the shapes differ: (2, 3) and (3, 2)", x, moth.ones(3, 2))
    fails("the shapes differ: () and (1)", moth.tensor(1), moth.ones(1))
    fails("the dtypes differ: moth.float32 and moth.int64", x, x:long())
    close(x, x:long(), {check_dtype = false})
    close(x, moth.ones(3, 2):t())
    fails("the strides of dim 1 differ: 3 and 1", x, moth.ones(3, 2):t(), {check_stride = true})
    fails("the strides of dim 2 differ: 1 and 2", x, moth.ones(6, 2):view(2, 6, 1):expand(2, 6, 1)
      :as_strided({2, 3}, {3, 2}), {check_stride = true})
  end)

  it("finds differences of kinds and of tables, with their place", function()
    fails("1 and f32 () cannot be compared", 1, moth.tensor(1))
    fails("f32 () and 1 cannot be compared", moth.tensor(1), 1)
    fails("1 and true cannot be compared", 1, true)
    fails("a and b differ", "a", "b")
    fails("true and false differ (at [2])", {1, true}, {1, false})
    fails("a value is missing (at [1][k])", {{}}, {{k = 1}})
    fails("a value was not expected (at [1][k])", {{k = 1}}, {{}})
    fails("a value was not expected (at [1][b])", {{a = 1, b = 2}}, {{a = 1}})
    fails("1 and 2 are not close (rtol 1e-07, atol 1e-07) (at [1][a][1])", {{a = {1}}},
      {{a = {2}}})
    close({{a = {1, "x", {true}}}}, {{a = {1, "x", {true}}}})
    fails("assert_close: mine (at [1])", {1}, {2}, {msg = "mine"})
  end)

  it("raises its own text, with the place", function()
    fails("assert_close: mine (at [1])", {1}, {2}, {msg = "mine"})
    local ok, problem = pcall(close, 1, 2, {msg = "mine"})
    assert.is_false(ok)
    assert.is_truthy(tostring(problem):find("assert_close: mine$"))
    assert.equal("E_VALUE", moth.errcode())
  end)

  it("does not record, and compares tensors with gradients", function()
    local x = moth.ones(2):requires_grad_()
    close(x * 2, moth.full({2}, 2))
  end)
end)

describe("make_tensor", function()
  local function range(dtype, options)
    local x = testing.make_tensor({2000}, dtype, options):double()
    return x:min():item(), x:max():item()
  end

  it("draws from PyTorch's ranges", function()
    local rows = {
      {moth.int64, nil, -9, 9}, {moth.int8, nil, -9, 9}, {moth.uint8, nil, 0, 9},
      {moth.bool, nil, 0, 1}, {moth.int64, {low = 2, high = 4}, 2, 3},
      {moth.uint8, {low = 5}, 5, 9}, {moth.int32, {high = -7}, -9, -8},
      {moth.bool, {high = 1}, 0, 0}, {moth.bool, {low = 1}, 1, 1},
    }
    for i, row in ipairs(rows) do
      assert.same({row[3], row[4]}, {range(row[1], row[2])}, i)
    end
    local low, high = range(f32)
    assert.is_true(low >= -9 and low < -8.9 and high <= 9 and high > 8.9)
    low, high = range(f64, {low = 0, high = 0.5})
    assert.is_true(low >= 0 and low < 0.01 and high <= 0.5 and high > 0.49)
  end)

  it("has the dtype, the shape and gradients as requested", function()
    local x = testing.make_tensor({2, 3}, f64, {requires_grad = true})
    assert.equal("(2, 3)", tostring(x.shape))
    assert.equal(f64, x.dtype)
    assert.is_true(x.requires_grad)
    assert.is_false(testing.make_tensor({2}, f64).requires_grad)
    assert.is_false(testing.make_tensor({2}, moth.int64, {requires_grad = true}).requires_grad)
  end)

  it("refuses an empty range", function()
    for _, row in ipairs {{2, 2}, {3, 2}} do
      local ok, problem = pcall(testing.make_tensor, {2}, moth.float32, {low = row[1],
        high = row[2]})
      assert.is_false(ok)
      assert.is_truthy(tostring(problem):find(("bad argument 'low' to 'make_tensor' (a number "
      .. "below "
        .. "high (2) is needed, got %d"):format(row[1]), 1, true))
    end
  end)
end)
