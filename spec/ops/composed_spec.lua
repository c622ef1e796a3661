-- Composite functions, in forms that golden values do not have: views, writes, positions.

local moth = require "moth"

describe("x:unfold", function()
  it("raises for more elements than int64 can count", function()
    local wide = moth.zeros(1):expand(2 ^ 52)
    assert.has_error_like(function() wide:unfold(1, 2 ^ 51, 1) end, "than can be addressed")
  end)

  it("is a view of windows, and gradients are added through it", function()
    local x = moth.arange(7):double():requires_grad_()
    local y = x:unfold(1, 3, 2)
    assert.same({{0, 1, 2}, {2, 3, 4}, {4, 5, 6}}, y:tolist())
    y:sum():backward()
    assert.same({1, 1, 2, 1, 2, 1, 1}, x.grad:tolist())
    assert.same({3, 3, 2}, {unpack(moth.ones(3, 4):unfold(2, 2, 1).shape)})
    assert.is_true(moth.autograd.gradcheck(function(v) return v:unfold(-1, 2, 1) * v:sum() end,
      {moth.rand(2, 4, {dtype = moth.float64}):requires_grad_()}))
  end)

  it("names the valid sizes and steps", function()
    assert.error_matches(function() moth.ones(3):unfold(1, 4, 1) end,
      "bad argument 'size' to 'unfold' (0 to 3 are possible in f32 (3), got 4)", 1, true)
    assert.error_matches(function() moth.ones(3):unfold(1, 2, 0) end, "'step'", 1, true)
  end)
end)

describe("where", function()
  it("accepts plain numbers as moth.tensor does, of any value", function()
    local mask = moth.tensor{true, false}
    assert.equal(moth.float32, moth.where(mask, 2, 1).dtype)
    assert.equal(moth.float32, moth.where(mask, 0.5, 1).dtype)
    assert.equal(moth.float32, moth.where(mask, 2, 1LL).dtype)
    assert.equal(moth.int64, moth.where(mask, 2LL, 1LL).dtype)
    assert.equal(moth.int64, moth.where(mask, moth.tensor{3LL, 4LL}, 1).dtype)
    assert.equal(moth.bool, moth.where(mask, false, true).dtype)
  end)
end)

describe("x:where", function()
  it("returns elements of x where the condition is true", function()
    local x = moth.tensor{1, 2, 3}
    assert.same({0, 2, 3}, x:where(x:gt(1), 0):tolist())
    assert.same({0, 2, 3}, x:where{condition = x:gt(1), other = 0}:tolist())
  end)
end)

describe("fill_diagonal_", function()
  it("writes the main diagonal of a tall matrix, once or repeatedly", function()
    local x = moth.zeros(5, 2)
    assert.equal(x, x:fill_diagonal_(1))
    assert.same({{1, 0}, {0, 1}, {0, 0}, {0, 0}, {0, 0}}, x:tolist())
    assert.same({{1, 0}, {0, 1}, {0, 0}, {1, 0}, {0, 1}},
      moth.zeros(5, 2):fill_diagonal_(1, {wrap = true}):tolist())
    assert.equal(3, moth.zeros(3, 3, 3):fill_diagonal_(1):sum():item())
    assert.error_matches(function() moth.zeros(2, 3, 2):fill_diagonal_(1) end,
      "all sizes must be equal", 1, true)
  end)
end)

describe("positions of triangles", function()
  it("index a matrix", function()
    local x = moth.range(1, 9):view(3, 3)
    local at = moth.triu_indices(3, 3, 1)
    assert.same({2, 3, 6}, x[{at[1], at[2]}]:tolist())
  end)
end)

describe("log_normal_ and cauchy_", function()
  it("have a zero gradient for the overwritten values", function()
    for _, name in ipairs {"log_normal_", "cauchy_"} do
      local x = moth.ones(3, {requires_grad = true})
      local y = x * 2
      y[name](y)
      y:sum():backward()
      assert.same({0, 0, 0}, (x.grad or moth.zeros(3)):tolist())
    end
  end)

  it("have the median of their distribution", function()
    moth.manual_seed(1)
    local x = moth.zeros(20001):log_normal_(1, 0.5)
    assert.near(math.exp(1), x:median():item(), 0.05)
    assert.near(0.5, x:log():std():item(), 0.02)
    local y = moth.zeros(20001):cauchy_(2, 0.5)
    assert.near(2, y:median():item(), 0.05)
    assert.near(2.5, y:quantile(0.75):item(), 0.05)
  end)
end)
