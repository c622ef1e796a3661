-- moth.testing: the tolerances of each dtype at their ends, as torch.testing's; every difference
-- that is found; the ranges of make_tensor.

local moth = require "moth"

local testing = moth.testing
local close = testing.assert_close

local function check(text, ...)
  local ok, problem = pcall(close, ...)
  assert.is_false(ok, "was taken")
  local message = tostring(type(problem) == "table" and problem.message or problem)
  if not message:find(text, 1, true) then error(message .. "\nlacks: " .. text, 2) end
end

describe("assert_close", function()
  it("has the tolerances of the dtypes, the larger ones of two", function()
    for name, row in pairs {float16 = {1e-3, 1e-5}, bfloat16 = {1.6e-2, 1e-5},
      float32 = {1.3e-6, 1e-5}, float64 = {1e-7, 1e-7}, int64 = {0, 0}, int32 = {0, 0},
      uint8 = {0, 0}, bool = {0, 0}} do
      local x = moth.tensor({1}, {dtype = moth[name]})
      check(("(rtol %g, atol %g)"):format(row[1], row[2]), x, moth.tensor({0},
        {dtype = moth[name]}))
      check(("(rtol %g, atol %g)"):format(math.max(row[1], 1e-7), math.max(row[2], 1e-7)),
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
    check("1 of 1 element is not close; the largest difference is 3.001 at {1} (rtol 0.25, "
      .. "atol 1)",
      a, b, {rtol = 0.25, atol = 1})
    a, b = pair(-3, 8)
    close(a, b, {rtol = 0.25, atol = 1})
    a, b = pair(-3, -8)
    close(a, b, {rtol = 0.25, atol = 1})
    close(8 + 3, 8, {rtol = 0.25, atol = 1})
    check("11.5 and 8 are not close (rtol 0.25, atol 1)", 11.5, 8, {rtol = 0.25, atol = 1})
    close(1 + 1.9e-7, 1)
    check("are not close (rtol 1e-07, atol 1e-07)", 1 + 2.1e-7, 1)
    close(math.huge, math.huge)
    check("inf and -inf are not close", math.huge, -math.huge)
    check("1 and inf are not close", 1, math.huge)
    check("inf and 1 are not close", math.huge, 1)
    check("1 of 1 element is not close", moth.tensor {1}, moth.tensor {math.huge})
  end)

  it("finds NaN", function()
    local nan = 0 / 0
    check("are not close", nan, nan)
    close(nan, nan, {equal_nan = true})
    check("are not close", nan, 1, {equal_nan = true})
    check("are not close", 1, nan, {equal_nan = true})
    check("1 of 2 elements are not close; the largest difference is inf at {2}",
      moth.tensor {1, nan}, moth.tensor {1, 1})
    check("1 of 2 elements are not close", moth.tensor {1, nan}, moth.tensor {1, nan})
  end)

  it("names the position of the largest difference in each dimension", function()
    for i = 1, 2 do
      for j = 1, 3 do
        for k = 1, 4 do
          local x, y = moth.zeros(2, 3, 4), moth.zeros(2, 3, 4)
          x[i][j][k], y[1][1][1] = 5, 1
          if not (i == 1 and j == 1 and k == 1) then
            check(("2 of 24 elements are not close; the largest difference is 5 at {%d, %d, %d}")
              :format(i, j, k), x, y)
          end
        end
      end
    end
    check("at {}", moth.tensor(1), moth.tensor(3))
  end)

  it("finds differences of shapes, dtypes and strides", function()
    local x = moth.ones(2, 3)
    check("the shapes differ: (2, 3) and (3, 2)", x, moth.ones(3, 2))
    check("the shapes differ: () and (1)", moth.tensor(1), moth.ones(1))
    check("the dtypes differ: moth.float32 and moth.int64", x, x:long())
    close(x, x:long(), {check_dtype = false})
    close(x, moth.ones(3, 2):t())
    check("the strides of dim 1 differ: 3 and 1", x, moth.ones(3, 2):t(), {check_stride = true})
    check("the strides of dim 2 differ: 1 and 2", x, moth.ones(6, 2):view(2, 6, 1):expand(2, 6, 1)
      :as_strided({2, 3}, {3, 2}), {check_stride = true})
  end)

  it("finds differences of kinds and of tables, with their place", function()
    check("1 and f32 () cannot be compared", 1, moth.tensor(1))
    check("f32 () and 1 cannot be compared", moth.tensor(1), 1)
    check("1 and true cannot be compared", 1, true)
    check("a and b differ", "a", "b")
    check("true and false differ (at [2])", {1, true}, {1, false})
    check("a value is missing (at [1][k])", {{}}, {{k = 1}})
    check("a value was not expected (at [1][k])", {{k = 1}}, {{}})
    check("a value was not expected (at [1][b])", {{a = 1, b = 2}}, {{a = 1}})
    check("1 and 2 are not close (rtol 1e-07, atol 1e-07) (at [1][a][1])", {{a = {1}}},
      {{a = {2}}})
    close({{a = {1, "x", {true}}}}, {{a = {1, "x", {true}}}})
    check("assert_close: mine (at [1])", {1}, {2}, {msg = "mine"})
  end)

  it("needs both tolerances", function()
    check("bad argument 'atol' to 'assert_close' (rtol and atol are given both or neither", 1, 1,
      {rtol = 1})
    check("bad argument 'rtol' to 'assert_close' (rtol and atol are given both or neither", 1, 1,
      {atol = 1})
    close(1, 2, {rtol = 0, atol = 1})
  end)
end)

describe("make_tensor", function()
  it("draws from the whole range of its dtype", function()
    for name, row in pairs {float32 = {-9, 9}, float64 = {-9, 9}, float16 = {-9, 9},
      int64 = {-9, 9}, int8 = {-9, 9}, uint8 = {0, 9}, bool = {0, 1}} do
      local x = testing.make_tensor({4000}, moth[name])
      assert.equal(moth[name], x.dtype)
      local low, high = x:double():min():item(), x:double():max():item()
      assert.is_true(low >= row[1] and low < row[1] + 0.1, name .. " " .. low)
      assert.is_true(high <= row[2] and high > row[2] - 0.1, name .. " " .. high)
      assert.is_false(x.requires_grad)
    end
    local x = testing.make_tensor({2, 3}, moth.int64, {low = 3, high = 4})
    assert.same({{3, 3, 3}, {3, 3, 3}}, x:double():tolist())
    assert.is_true(testing.make_tensor({2}, moth.float64, {requires_grad = true}).requires_grad)
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
