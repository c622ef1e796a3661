-- Random draws: distributions have their means, positions their weights, and seeds repeat.

local moth = require "moth"

local function near(wanted, got, tolerance)
  assert.is_true(math.abs(wanted - got) <= tolerance, ("wanted %g, got %g"):format(wanted, got))
end

describe("a draw", function()
  before_each(function() moth.manual_seed(3) end)

  it("has the mean of its distribution", function()
    local n = 100000
    near(0.5, moth.zeros(n):exponential_(2):mean():item(), 0.01)
    near(4, moth.zeros(n):geometric_(0.25):mean():item(), 0.05)
    near(4.5, moth.zeros(n):random_(10):mean():item(), 0.05)
    near(1.5, moth.randint_like(moth.zeros(n), -2, 6):mean():item(), 0.05)
    near(7, moth.normal(moth.full({ n }, 7), 2):mean():item(), 0.05)
    assert.is_true(moth.zeros(n):exponential_():gt(0):all():item())
    assert.equal(1, moth.zeros(n):geometric_(0.9):min():item())
  end)

  it("of positions follows the weights, with replacement or without", function()
    local weights = moth.tensor { 1, 0, 3, 4 }
    local again = moth.multinomial(weights, 80000, { replacement = true })
    local counts = moth.bincount(again - 1, { minlength = 4 }):tolist()
    near(10000, counts[1], 400)
    assert.equal(0, counts[2])
    near(30000, counts[3], 600)
    local first = moth.multinomial(weights:expand(20000, 4), 3)
    local led = moth.bincount(first[{ {}, 1 }] - 1, { minlength = 4 }):tolist()
    near(2500, led[1], 200)
    near(10000, led[4], 300)
    assert.same({ 1, 3, 4 }, first[5]:sort():tolist())
  end)

  it("of few positions from many weights equal the first of many positions", function()
    local weights = (moth.rand(301, 1000) - 0.3):relu():t() -- with zeros, and transposed
    local function draw(k, row)
      moth.manual_seed(5)
      return moth.multinomial(row, k, { replacement = true })
    end
    local flat = weights:reshape(-1)
    for _, row in ipairs { flat, flat:half(), flat[{ { 1, -1, 2 } }] } do
      local few = draw(501, row)
      assert.is_true(moth.equal(few, draw(5000, row)[{ { 1, 501 } }]))
      assert.is_true(row[{ few }]:gt(0):all():item())
    end
    local rows = moth.cat({ weights, weights }, 2)[{ { 5, 7 } }]
    assert.is_true(rows:gather(2, draw(2, rows)):gt(0):all():item())
    flat[300000] = -1
    assert.has_error_like(function() draw(5, flat) end, "finite weights from 0 on")
    assert.has_error_like(function() draw(5, moth.zeros(3000)) end, "only 0 weights of row 1")
  end)

  it("that raises does not change the generator", function()
    for _, n in ipairs { 100, 3000 } do
      moth.manual_seed(5)
      local next_number = moth.rand(1):item()
      moth.manual_seed(5)
      assert.has_error(function() moth.multinomial(moth.zeros(n), 1, { replacement = true }) end)
      assert.equal(next_number, moth.rand(1):item())
    end
  end)

  it("raises for a deviation below 0", function()
    local spread = moth.tensor { 1, -1 }
    assert.has_error_like(function() moth.normal(0, -1, { 2 }) end, "cannot be negative")
    assert.has_error_like(function() moth.normal(0, spread) end, "cannot be negative")
  end)

  it("raises for invalid weights, and for more positions than there are", function()
    assert.has_error(function() moth.multinomial(moth.tensor { 1, -1 }, 1) end)
    assert.has_error(function() moth.multinomial(moth.tensor { 0, 0 }, 1) end)
    assert.has_error(function() moth.multinomial(moth.tensor { 1, 0 / 0 }, 1) end)
    assert.has_error(function() moth.multinomial(moth.tensor { 1, 0, 2 }, 3) end)
    assert.has_error(function() moth.multinomial(moth.tensor { 1, 2 }, 3) end)
  end)

  it("repeats with the same seed, in any layout", function()
    local function all()
      moth.manual_seed(5)
      local x = moth.zeros(3, 4)
      x:exponential_()
      return { x, moth.multinomial(moth.ones(3, 4), 4), moth.zeros(2, 3):random_(5) }
    end
    local a, b = all(), all()
    for i = 1, #a do assert.is_true(moth.equal(a[i], b[i])) end
    moth.manual_seed(5)
    local y = moth.zeros(4, 3):t()
    y:exponential_()
    assert.is_true(moth.equal(a[1], y))
  end)
end)
