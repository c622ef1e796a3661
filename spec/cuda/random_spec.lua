-- Random numbers on a GPU are those of the CPU, bit for bit, for the same generator, which is on
-- the CPU and advances by as much.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local F = moth.nn.functional

local FLOATS = {"float16", "bfloat16", "float32", "float64"}
local ALL = {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
             "float64"}

-- By name: a function of a device, a generator and a dtype, and the dtypes to test.
local DRAWN = {
  {"rand", FLOATS, function(d, g, t)
    return moth.rand(3, 333, {generator = g, dtype = t, device = d})
  end},
  {"randn", FLOATS, function(d, g, t)
    return moth.randn(7, 143, {generator = g, dtype = t, device = d})
  end},
  {"uniform_", FLOATS, function(d, g, t)
    return moth.zeros(1001, {dtype = t, device = d}):uniform_(-3, 0.7, {generator = g})
  end},
  {"normal_", FLOATS, function(d, g, t)
    return moth.zeros(1001, {dtype = t, device = d}):normal_(0.3, 1.7, {generator = g})
  end},
  {"normal_ of a transposed tensor", FLOATS, function(d, g, t)
    return moth.zeros(9, 7, {dtype = t, device = d}):t():normal_(0, 2, {generator = g})
  end},
  {"randint", {"uint8", "int32", "int64", "float32"}, function(d, g, t)
    return moth.randint(3, 117, {501}, {generator = g, dtype = t, device = d})
  end},
  {"randint of a wide range", {"int64"}, function(d, g, t)
    return moth.randint(-2 ^ 52, 2 ^ 53, {501}, {generator = g, dtype = t, device = d})
  end},
  {"random_", ALL, function(d, g, t)
    return moth.zeros(501, {dtype = t, device = d}):random_ {generator = g}
  end},
  {"exponential_", FLOATS, function(d, g, t)
    return moth.zeros(501, {dtype = t, device = d}):exponential_(2.5, {generator = g})
  end},
  {"geometric_", {"int32", "float32", "float64"}, function(d, g, t)
    return moth.zeros(501, {dtype = t, device = d}):geometric_(0.3, {generator = g})
  end},
  {"poisson", FLOATS, function(d, g, t)
    return moth.poisson(moth.linspace(0, 60, 501, {dtype = t, device = d}), g)
  end},
  {"binomial", FLOATS, function(d, g, t)
    local count = moth.full({501}, 50, {dtype = t, device = d})
    return moth.binomial(count, moth.linspace(0, 1, 501, {dtype = t, device = d}), g)
  end},
  {"standard_gamma", FLOATS, function(d, g, t)
    local shapes = moth.linspace(0.01, 30, 501, {dtype = t, device = d})
    return (require("moth.binding.bind").ops.standard_gamma(shapes, g))
  end},
  {"bernoulli_", ALL, function(d, g, t)
    return moth.zeros(501, {dtype = t, device = d}):bernoulli_(0.3, {generator = g})
  end},
  {"bernoulli", FLOATS, function(d, g, t)
    return moth.linspace(0, 1, 501, {dtype = t, device = d}):bernoulli {generator = g}
  end},
  {"multinomial", {"float32", "float64", "bfloat16"}, function(d, g, t)
    local w = moth.arange(0, 1200, {dtype = t}):remainder(7):view(2, 600):to(d)
    return w:multinomial(20, {generator = g})
  end},
  {"multinomial of many", {"float32"}, function(d, g)
    local w = moth.arange(0, 2600, {dtype = moth.float32}):remainder(5):to(d)
    return moth.cat {w:multinomial(12, {generator = g}), w:multinomial(1300, {generator = g})}
  end},
  {"multinomial with replacement", {"float32", "float64", "bfloat16"}, function(d, g, t)
    local w = moth.arange(0, 1200, {dtype = t}):remainder(7):view(2, 600):to(d)
    return w:multinomial(333, {replacement = true, generator = g})
  end},
  {"dropout", FLOATS, function(d, g, t)
    return F.dropout(moth.ones(7, 143, {dtype = t, device = d}), {p = 0.3, generator = g})
  end},
  {"dropout of all", {"float32"}, function(d, g, t)
    return F.dropout(moth.ones(143, {dtype = t, device = d}), {p = 1, generator = g})
  end},
  {"dropout2d", FLOATS, function(d, g, t)
    return F.dropout2d(moth.ones(5, 7, 3, 3, {dtype = t, device = d}), {p = 0.3, generator = g})
  end},
}

describe("a GPU draws what the CPU draws:", function()
  if not cuda.here then
    pending(cuda.why)
    return
  end

  for _, row in ipairs(DRAWN) do
    local name, dtypes, draw = row[1], row[2], row[3]
    it(name, function()
      for _, dtype in ipairs(dtypes) do
        local g = {moth.Generator{ seed = 5 }, moth.Generator{ seed = 5 }}
        for _ = 1, 2 do
          local x, y = draw("cpu", g[1], moth[dtype]), draw("cuda", g[2], moth[dtype])
          assert.is_true(y.is_cuda)
          assert(y:cpu():equal(x), dtype)
        end
        assert.is_true(moth.rand(3, {generator = g[1]}):equal(moth.rand(3, {generator = g[2]})))
      end
    end)
  end

  it("nothing, for no elements", function()
    assert.same({0, 3}, moth.randn(0, 3, {device = "cuda"}).shape)
    assert.same({0}, F.dropout(moth.ones(0, {device = "cuda"})).shape)
  end)
end)

describe("on a GPU", function()
  if not cuda.here then
    pending("dropout has a gradient: " .. cuda.why)
    return
  end

  it("dropout uses its mask in the gradient, and saves no dropped values", function()
    local x = moth.full({999}, 1 / 0, {device = "cuda"}):requires_grad_()
    local y = F.dropout(x, {p = 0.25})
    y:backward(moth.full({999}, 3, {device = "cuda"}))
    local kept = y:cpu():ne(0)
    assert.is_true(x.grad:cpu():ne(0):equal(kept))
    assert.is_true(x.grad:cpu():masked_select(kept):equal(moth.full({kept:sum():item()}, 4)))
  end)

  it("too few nonzero weights are reported", function()
    assert.has_error_like(function()
      return moth.tensor({0, 1, 0}, {device = "cuda"}):multinomial(2):tolist()
    end, "outside of its domain")
  end)

  it("invalid probabilities are reported", function()
    assert.has_error_like(function()
      return moth.tensor({0.5, 1.5}, {device = "cuda"}):bernoulli():tolist()
    end, "outside of its domain")
  end)
end)
