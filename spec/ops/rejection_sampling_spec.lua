-- Gamma, Poisson and binomial numbers have the right distribution and gradient, and depend only on
-- the generator and their position.

local moth = require "moth"

local N = 40000

-- Compares mean and variance of x with the expected ones: within five standard errors of the mean.
local function has(x, mean, variance, label)
  x = x:double()
  local m, v = x:mean():item(), x:var():item()
  local far = 5 * math.sqrt(variance / N)
  assert(math.abs(m - mean) <= far, ("%s: mean %g, wanted %g"):format(label, m, mean))
  assert(math.abs(v / variance - 1) < 0.15, ("%s: variance %g, wanted %g"):format(label, v,
    variance))
end

local function gamma(shape, options)
  return (require("moth.binding.bind").ops.standard_gamma(moth.full({N}, shape, options or {})))
end

describe("numbers drawn by rejection sampling", function()
  before_each(function() moth.manual_seed(5) end)

  it("of gamma distributions have their mean and variance", function()
    for _, shape in ipairs {0.1, 0.7, 1, 3.5, 200} do
      has(gamma(shape), shape, shape, "gamma " .. shape)
    end
    assert.is_true(gamma(1e-3):gt(0):all():item())
  end)

  it("of Poisson distributions too, and are integers", function()
    for _, rate in ipairs {0.2, 3, 9.9, 10.1, 35, 4000} do
      local x = moth.poisson(moth.full({N}, rate))
      has(x, rate, rate, "poisson " .. rate)
      assert.is_true(x:eq(x:floor()):all():item())
    end
    assert.equal(0, moth.poisson(moth.zeros(9)):sum():item())
  end)

  it("of binomial distributions too, and are at most the number of trials", function()
    for _, p in ipairs {{1, 0.3}, {10, 0.5}, {40, 0.9}, {300, 0.02}, {1000, 0.4}, {5, 1}, {5, 0}} do
      local n, chance = p[1], p[2]
      local x = moth.binomial(moth.full({N}, n), moth.tensor(chance))
      local label = ("binomial %g %g"):format(n, chance)
      if chance % 1 == 0 then assert.equal(N * n * chance, x:sum():item())
      else has(x, n * chance, n * chance * (1 - chance), label) end
      assert.is_true(x:ge(0):logical_and(x:le(n)):all():item())
    end
  end)

  it("are the same for the same generator, for any split of a tensor", function()
    local rates = moth.rand(600) * 40
    local a = moth.poisson(rates, moth.Generator():manual_seed(7))
    assert.is_true(a:equal(moth.poisson(rates, moth.Generator():manual_seed(7))))
    local g = moth.Generator():manual_seed(7)
    local first = moth.poisson(rates:narrow(1, 1, 250), g)
    local rest = moth.poisson(rates:narrow(1, 251, 350), g)
    assert.is_true(a:equal(moth.cat {first, rest}))
    assert.is_false(a:equal(moth.poisson(rates, moth.Generator():manual_seed(8))))
  end)

  it("increase with the shape as the quantiles do", function()
    -- for constant igamma(a, x), dx/da is the result of gamma_slope
    local slope = require("moth.binding.bind").ops.gamma_slope
    local h = 1e-4
    for _, a in ipairs {0.2, 1.5, 12, 90, 900, 1100} do
      for _, z in ipairs {-1.5, 0, 1, 3} do
        local shape = moth.tensor({a}, {dtype = moth.float64})
        local x = shape + shape:sqrt() * z
        if x:item() > 0 then
          local step = h * math.sqrt(a)
          local dP = (moth.igamma(shape + step, x) - moth.igamma(shape - step, x)) / (2 * step)
          local density = ((shape - 1) * x:log() - x - moth.lgamma(shape)):exp()
          local wanted, got = (-dP / density):item(), slope(shape, x):item()
          assert(math.abs(got - wanted) < 1e-5 * math.max(1, math.abs(wanted)),
            ("%g at %g: %.9g, wanted %.9g"):format(a, x:item(), got, wanted))
        end
      end
    end
  end)

  it("raise for invalid parameters", function()
    assert.error_matches(function() moth.poisson(moth.tensor {1, -1}) end,
      "bad argument 'input' to 'poisson' (finite numbers from 0 on are needed", 1, true)
    assert.error_matches(function() moth.poisson(moth.tensor {0 / 0}) end, "'poisson'", 1, true)
    assert.error_matches(function() moth.binomial(moth.ones(2), moth.tensor {0.5, 1.5}) end,
      "probabilities from 0 to 1", 1, true)
    assert.error_matches(function() moth.binomial(moth.ones(2), moth.rand(3)) end, "", 1, true)
  end)
end)
