-- The rarer distributions, transforms and divergences: their functions equal PyTorch's, and their
-- samples follow their distribution.

local moth = require "moth"
local cases = require "spec.support.distribution_cases"

local D = moth.distributions

local made = cases.golden "rare_distributions"
local same, f64 = cases.same, cases.f64
local function tensors(...) return (cases.tensors(...)) end -- without their names

-- The parameters of a golden case; integer arguments that are no tensors stay numbers.
local function parameters(case, grad)
  local params = tensors(case.params, grad)
  for name, value in pairs(case.fixed or {}) do
    params[name] = type(value) == "table" and f64(value) or value
  end
  return params
end

describe("a rarer distribution's", function()
  for i, case in ipairs(made.cases) do
    local title = ("%s by %s"):format(case.class, table.concat(case.order, " and "))
    it(title .. " fields and functions equal PyTorch's (" .. i .. ")", function()
      local params = parameters(case, true)
      local d, x, shares = D[case.class](params), f64(case.values), f64(made.shares)
      for name, wanted in pairs(case.gives) do
        local value = d[name]
        if type(value) == "function" then
          value = value(d, name == "icdf" and shares or name ~= "entropy" and x or nil)
        end
        same(wanted, value, title .. ": " .. name)
      end
      if not case.slopes then return end
      local leaves = {}
      for k, name in ipairs(case.order) do leaves[k] = params[name] end
      local slopes = { moth.autograd.grad(d:log_prob(x):sum(), leaves) }
      if type(slopes[1]) == "table" then slopes = slopes[1] end
      for k, wanted in ipairs(case.slopes) do
        same(wanted, slopes[k], title .. ": slope by " .. case.order[k])
      end
    end)

    it(title .. " batch can be expanded, sampled and printed (" .. i .. ")", function()
      local d = D[case.class](parameters(case))
      local wide = d:expand(moth.broadcast_shapes({ 3, 1, 1 }, d.batch_shape))
      local x = wide:sample(2)
      assert.equal(tostring(D.Distribution.tools.join({ 2 }, wide.batch_shape, d.event_shape)),
        tostring(x.shape))
      assert.is_true(d.support:check(d:sample(50)):all():item(), title)
      assert.equal(2 * wide.batch_shape:numel(), wide:log_prob(x):numel())
      assert.is_true(tostring(d):find(case.class, 1, true) ~= nil)
    end)
  end
end)

describe("kl_divergence", function()
  for i, case in ipairs(made.pairs) do
    it(("of %s from %s is PyTorch's (%d)"):format(case.p[1], case.q[1], i), function()
      local p, q = D[case.p[1]](tensors(case.p[2])), D[case.q[1]](tensors(case.q[2]))
      same(case.kl, D.kl_divergence(p, q), "kl")
    end)
  end
end)

it("kl_divergence is NaN, not infinite, for NaN parameters", function()
  local nan = 0 / 0
  for _, pair in ipairs {
    { D.Exponential(nan, false), D.Gamma(1, 1) }, { D.Gamma(nan, nan, false), D.Exponential(1) },
    { D.Beta(nan, nan, false), D.ContinuousBernoulli(0.3) },
    { D.Uniform(nan, 2, false), D.Gamma(1, 1) },
  } do
    assert.is_true(D.kl_divergence(pair[1], pair[2]):isnan():item())
  end
  assert.equal(math.huge, D.kl_divergence(D.Beta(2, 3), D.Uniform(0, 0.5)):item())
  assert.equal(math.huge, D.kl_divergence(D.Pareto(1, 2), D.Uniform(0, 5)):item())
end)

it("kl_divergence of Weibulls is the mean difference of their log_prob", function()
  moth.manual_seed(1)
  local p, q = D.Weibull(2, 1.5), D.Weibull(1.5, 2)
  assert.equal(0, D.kl_divergence(p, p):item())
  local drawn = p:sample(100000)
  assert.near((p:log_prob(drawn) - q:log_prob(drawn)):mean():item(),
    D.kl_divergence(p, q):item(), 0.03)
end)

it("kl_divergence raises for batches that do not broadcast", function()
  assert.error_matches(function()
    D.kl_divergence(D.Normal(moth.zeros(2), 1), D.Normal(moth.zeros(3), 1))
  end, "'q' to 'kl_divergence' (a batch that broadcasts with (2) is needed, got (3)", 1, true)
end)

it("constraints.multinomial bounds the sum of counts", function()
  local three = D.constraints.multinomial(3)
  assert.same({ true, true, false, false }, three:check(
    moth.tensor { { 1, 1, 0 }, { 1, 1, 1 }, { 2, 1, 1 }, { 3, 1, -1 } }):tolist())
end)

describe("the transform", function()
  for _, case in ipairs(made.transforms) do
    it(case.lua .. " has PyTorch's values, inverse and log-determinant", function()
      local chunk = setfenv(assert(loadstring("return " .. case.lua)), { D = D, f64 = f64 })
      local t, x = chunk(), f64(case.x)
      local y = t(x)
      assert.is_true(y:allclose(f64(case.y), 1e-12, 1e-12))
      assert.is_true(t.inv(y):allclose(f64(case.back), 1e-10, 1e-10))
      assert.same({ unpack(y.shape) }, { unpack(t:forward_shape(x.shape)) })
      assert.same({ unpack(x.shape) }, { unpack(t:inverse_shape(y.shape)) })
      assert.is_true(t.codomain:check(y):all():item())
      if case.size then
        local size = t:log_abs_det_jacobian(x, y)
        assert.same(case.size_shape, { unpack(size.shape) })
        same(case.size, size, case.lua)
      end
      assert.is_true(moth.autograd.gradcheck(function(v) return t(v) end, { x:requires_grad_() }))
    end)
  end
end)

-- ---- samples ----

local N = 20000

local function leaf(x) return f64(x):requires_grad_() end

-- The Kolmogorov-Smirnov distance of numbers from a distribution, times the root of their count.
-- It is below 2.2 in all but one of 8000 tests.
local function distance(shares)
  local n = shares:numel()
  local wanted = (moth.arange(n, { dtype = moth.float64 }) + 0.5) / n
  return (shares:sort() - wanted):abs():max():item() * math.sqrt(n)
end

local function sampled()
  return {
    D.HalfCauchy(leaf(1.5)), D.Pareto(leaf(0.5), leaf(4.5)), D.Weibull(leaf(2), leaf(0.75)),
    D.GeneralizedPareto(leaf(-1), leaf(2), leaf(0.125)),
    D.GeneralizedPareto(leaf(-1), leaf(2), leaf(-0.5)),
    D.InverseGamma(leaf(4.5), leaf(2)), D.Kumaraswamy(leaf(1.5), leaf(2.5)),
    D.ContinuousBernoulli(leaf(0.875)), D.ContinuousBernoulli { logits = leaf(-0.25) },
    D.ContinuousBernoulli(leaf(0.5)),
  }
end

describe("samples of", function()
  before_each(function() moth.manual_seed(7) end)

  for i, d in ipairs(sampled()) do
    it(tostring(d) .. " follow its cdf, and have gradients", function()
      local x = d:rsample(N)
      assert.is_true(distance(d:cdf(x:detach())) < 2.2, tostring(d))
      if not d.variance:isfinite():item() then return end
      local leaves = {}
      for name in pairs(d.arg_constraints) do leaves[#leaves + 1] = rawget(d, name) end
      if i == 7 then leaves = { d.concentration1, d.concentration0 } end
      for _, parameter in ipairs(leaves) do
        if parameter.is_leaf then
          local function gradient_of(y)
            parameter.grad = nil
            y:backward { retain_graph = true }
            return parameter.grad:item()
          end
          local wanted = gradient_of(d.mean:sum())
          local off = math.abs(gradient_of(x:mean()) - wanted)
          assert.is_true(off < 0.06 * math.max(1, math.abs(wanted)), tostring(d))
        end
      end
    end)
  end

  it("VonMises follow its log_prob", function()
    for _, concentration in ipairs { 1e-3, 0.5, 4, 200 } do
      local d = D.VonMises(f64(0.75), f64(concentration))
      local x = d:sample(N)
      local steps = 20000
      local turns = (moth.arange(steps, { dtype = moth.float64 }) + 0.5) / steps
      local at = turns * (2 * math.pi) - math.pi
      local share = (d:log_prob(at):exp() * (2 * math.pi / steps)):cumsum(1)
      assert.is_true(math.abs(share[steps]:item() - 1) < 1e-6)
      local cell = ((x + math.pi) / (2 * math.pi) * steps):ceil():clamp(1, steps):long()
      assert.is_true(distance(share:index_select(1, cell)) < 2.2, "at " .. concentration)
      assert.is_true(math.abs((x - d.loc):cos():mean():item() - 1 + d.variance:item()) < 0.02)
    end
  end)

  it("others have the mean and variance of their distribution", function()
    local covariance = f64 { { 2, 0.5 }, { 0.5, 1.25 } }
    for _, d in ipairs { D.Binomial(9, f64 { 0.25, 0.9 }),
        D.NegativeBinomial(2.5, f64 { 0.25, 0.6 }),
        D.Multinomial(6, f64 { 1, 2, 5 }), D.FisherSnedecor(3, f64 { 12, 20 }),
        D.LowRankMultivariateNormal(f64 { 1, 2, 3 }, f64 { { 1 }, { -2 }, { 0.5 } },
          f64 { 0.5, 1, 2 }), D.Wishart(f64(5), covariance),
        D.OneHotCategoricalStraightThrough(f64 { 1, 2, 5 }),
        D.MixtureSameFamily(D.Categorical(f64 { 0.25, 0.75 }), D.Normal(f64 { -3, 2 }, 1)) } do
      local x = d:sample(N)
      local off = (x:mean(1) - d.mean):abs() / (d.variance / N):sqrt()
      assert.is_true(off:max():item() < 5, tostring(d) .. ": mean " .. tostring(x:mean(1)))
      assert.is_true((x:var(1) / d.variance - 1):abs():max():item() < 0.12, tostring(d)
        .. ": variance " .. tostring(x:var(1)))
      assert.is_true(d.support:check(x):all():item())
    end
  end)

  it("relaxed distributions choose as the discrete ones do", function()
    local probs = f64 { 0.125, 0.625, 0.25 }
    local at = D.RelaxedOneHotCategorical(0.5, probs):sample(N):argmax(-1)
    for k = 1, 3 do
      assert.is_true(math.abs(at:eq(k):double():mean():item() - probs[k]:item()) < 0.015)
    end
    local ones = D.RelaxedBernoulli(0.5, probs):sample(N):gt(0.5):double():mean(1)
    assert.is_true((ones - probs):abs():max():item() < 0.015)
  end)

  it("matrices have the entropy, or the deviation, of their distribution", function()
    local d = D.Wishart(f64(5), f64 { { 2, 0.5 }, { 0.5, 1.25 } })
    assert.is_true(math.abs((d:log_prob(d:sample(N)):mean() + d:entropy()):item()) < 0.05)
    -- of 2 x 2 matrices 1 + the correlation is twice a Beta(eta, eta) number
    for _, eta in ipairs { 0.5, 1, 3 } do
      local L = D.LKJCholesky(2, f64(eta)):sample(N)
      local r = (L:select(-2, 2):select(-1, 1) + 1) / 2
      local variance = D.Beta(f64(eta), f64(eta)).variance:item()
      assert.is_true(math.abs(r:mean():item() - 0.5) < 0.02)
      assert.is_true(math.abs(r:var():item() / variance - 1) < 0.05)
    end
    local L = D.LKJCholesky(4, f64(1.5)):sample(N) -- each correlation: Beta(eta + 1, eta + 1)
    local C = L:matmul(L:transpose(-2, -1))
    local variance = D.Beta(f64(2.5), f64(2.5)).variance:item() * 4
    assert.is_true((C[{ {}, 4, { 1, 3 } }]:var(1) / variance - 1):abs():max():item() < 0.06)
  end)

  it("rsample have gradients for the parameters", function()
    local probs, scale = leaf { 0.25, 0.75 }, leaf { { 1, 0 }, { 0.5, 2 } }
    local function reaches(d, x)
      x.grad = nil
      d:rsample(3):square():sum():backward()
      assert.is_true(x.grad:abs():sum():item() > 0, tostring(d))
    end
    reaches(D.RelaxedBernoulli(0.5, probs), probs)
    reaches(D.RelaxedOneHotCategorical(0.5, probs), probs)
    reaches(D.Wishart(4, { scale_tril = scale }), scale)
    reaches(D.LowRankMultivariateNormal(moth.zeros(2, { dtype = moth.float64 }), scale,
      f64 { 1, 1 }), scale)
    reaches(D.LogisticNormal(probs, 1), probs)
    probs.grad = nil
    local d = D.OneHotCategoricalStraightThrough(probs)
    local x = d:rsample(5)
    assert.is_true(x:allclose(x:round()))
    x:mul(f64 { 1, 3 }):sum():backward()
    assert.is_true(probs.grad:abs():sum():item() > 0)
  end)

  it("all keep float32, and are drawn again in a recorded step", function()
    for _, d in ipairs { D.VonMises(moth.zeros(8), 2), D.Weibull(moth.ones(8), 2),
        D.Kumaraswamy(moth.ones(8), 2), D.RelaxedBernoulli(0.5, moth.full({ 8 }, 0.5)),
        D.Multinomial(5, moth.ones(8)) } do
      local step = moth.capture(function(shift)
        local x = d:sample()
        return x + shift, d:log_prob(x)
      end)
      local seen = {}
      for i = 1, 6 do
        local x, density = step(moth.zeros(1))
        assert.equal(moth.float32, x.dtype)
        assert.is_true(density:isfinite():all():item())
        seen[i] = x:clone()
      end
      assert.is_false(seen[5]:equal(seen[6]), tostring(d))
    end
  end)
end)

-- ---- parts ----

describe("counts", function()
  it("of one total_count are listed, and their probabilities sum to 1", function()
    local d = D.Binomial(4, f64 { 0.25, 0.9 })
    local all = d:enumerate_support()
    assert.same({ 5, 2 }, { unpack(all.shape) })
    assert.is_true(d:log_prob(all):exp():sum(1):allclose(f64 { 1, 1 }))
    assert.same({ 5, 1 }, { unpack(d:enumerate_support(false).shape) })
    assert.has_error_like(function() D.Binomial(f64 { 2, 3 }, f64(0.5)):entropy() end,
      "where all of total_count is one number")
  end)

  it("with total_count 0 are certain", function()
    assert.equal(0, D.NegativeBinomial(0, f64(0.5)):log_prob(0):item())
    assert.equal(0, D.NegativeBinomial(0, f64(0.5)):sample():item())
    assert.equal(0, D.Multinomial(0, f64 { 1, 1 }):sample():sum():item())
    assert.is_true(D.Multinomial(3, f64 { 1, 0 }):log_prob(f64 { 3, 0 }):abs():item() < 1e-12)
  end)
end)

describe("ContinuousBernoulli", function()
  it("is smooth near probs = 0.5", function()
    local function of(logits) return D.ContinuousBernoulli { logits = f64(logits) } end
    for _, name in ipairs { "_mean", "_variance", "_log_size" } do
      for _, at in ipairs { 0.5, -0.5 } do -- the end of the series
        local near, far = of(at * (1 - 1e-15)), of(at)
        assert.is_true(near[name](near):allclose(far[name](far), 1e-12, 1e-13), name)
      end
      assert.is_true(moth.autograd.gradcheck(function(x)
        local d = D.ContinuousBernoulli { logits = x }
        return d[name](d)
      end, { leaf { -3, -0.25, 0, 0.1, 40 } }))
    end
    local d = of { -700, -1, -1e-9, 0, 1e-9, 2, 700 }
    local x = d:icdf(f64(0.3))
    assert.is_true(d:cdf(x):allclose(moth.full({ 7 }, 0.3, { dtype = moth.float64 })))
  end)
end)

describe("MixtureSameFamily", function()
  it("has the log_prob, cdf and sizes of its components", function()
    local parts = D.Independent(D.Normal(moth.randn(3, 2), moth.rand(3, 2) + 0.5), 1)
    local d = D.MixtureSameFamily(D.Categorical(moth.tensor { 0.2, 0.3, 0.5 }), parts)
    assert.same({ 2 }, { unpack(d.event_shape) })
    local x = d:sample { 5, 4 }
    assert.same({ 5, 4, 2 }, { unpack(x.shape) })
    local each = parts:log_prob(x:unsqueeze(-2)):exp() * moth.tensor { 0.2, 0.3, 0.5 }
    assert.is_true(d:log_prob(x):allclose(each:sum(-1):log(), 1e-4, 1e-5))
    assert.same({ 6, 2 }, { unpack(d:expand(6):sample().shape) })
    local even = D.Categorical(moth.ones(2))
    local flat = D.MixtureSameFamily(even, D.Normal(moth.tensor { -9, 9 }, 1))
    assert.is_true(math.abs(flat:cdf(0):item() - 0.5) < 1e-6)
    assert.has_error_like(function() D.MixtureSameFamily(D.Categorical(moth.ones(4)), parts) end,
      "'component_distribution' to 'MixtureSameFamily' %(a batch that ends in %(4%) is needed")
    assert.has_error_like(function() D.MixtureSameFamily(parts, parts) end,
      "a Categorical is needed")
  end)
end)

describe("biject_to and transform_to", function()
  it("map all numbers to the values that a constraint allows, and back", function()
    local c = D.constraints
    for _, case in ipairs { { c.real, { 5 } }, { c.positive, { 5 } }, { c.greater_than(2), { 5 } },
        { c.less_than(-1), { 5 } }, { c.interval(-2, 3), { 5 } }, { c.unit_interval, { 5 } },
        { c.simplex, { 2, 5 } }, { c.lower_cholesky, { 3, 3 } }, { c.positive_definite, { 3, 3 } },
        { c.corr_cholesky, { 2, 6 } }, { c.independent(c.positive, 1), { 2, 3 } },
        { c.cat({ c.positive, c.unit_interval }, 1, { 2, 3 }), { 5 } },
        { c.stack({ c.positive, c.unit_interval }, 1), { 2, 4 } } } do
      local constraint, shape = case[1], case[2]
      for name, to in pairs { biject_to = D.biject_to(constraint),
          transform_to = D.transform_to(constraint) } do
        local x = moth.randn(shape, { dtype = moth.float64 })
        local y = to(x)
        assert.is_true(constraint:check(y):all():item(), name .. " " .. tostring(constraint))
        assert.is_true(to(to.inv(y)):allclose(y, 1e-9, 1e-9))
        if name == "biject_to" and to.bijective then assert.is_true(to.inv(y):allclose(x)) end
      end
    end
    for _, class in ipairs { "Normal", "Gamma", "Dirichlet", "MultivariateNormal", "Pareto" } do
      for _, constraint in pairs(D[class].arg_constraints) do D.transform_to(constraint) end
    end
  end)

  it("may be extended to a user's constraint", function()
    local even = D.constraints.Constraint("even numbers", function(x) return x:eq(x) end, 0, "even")
    assert.has_error_like(function() D.biject_to(even) end, "no transform leads to even numbers")
    D.biject_to:register(even, function() return D.AffineTransform(0, 2) end)
    assert.equal(6, D.biject_to(even)(moth.tensor(3)):item())
    assert.has_error_like(function() D.transform_to(3) end, "a constraint is needed, got 3")
  end)
end)

describe("a user's ExponentialFamily", function()
  it("has an entropy and a divergence, derived from its parameters", function()
    local Mine = moth.class("Mine", D.ExponentialFamily)
    function Mine:init(rate)
      self.rate = rate
      D.ExponentialFamily.init(self, rate.shape)
    end
    function Mine:_natural_params() return { -self.rate } end
    function Mine:_log_normalizer(x) return -(-x):log() end -- luacheck: ignore self
    local p, q = f64 { 0.5, 3 }, f64 { 2, 1.5 }
    assert.is_true(Mine(p):entropy():allclose(D.Exponential(p):entropy()))
    assert.is_true(D.kl_divergence(Mine(p), Mine(q)):allclose(
      D.kl_divergence(D.Exponential(p), D.Exponential(q))))
    assert.is_true(moth.autograd.gradcheck(function(x) return Mine(x):entropy() end,
      { leaf { 1, 2 } }))
  end)
end)

describe("a rarer distribution raises for", function()
  local function refuses(text, f) assert.has_error_like(f, text) end

  it("invalid parameters and values", function()
    refuses("'alpha' to 'Pareto' %(numbers above 0 are needed", function() D.Pareto(1, -1) end)
    refuses("'value' to 'Pareto.log_prob' %(numbers from 2 on are needed, got f32 %(%) with 1",
      function() D.Pareto(2, 1):log_prob(1) end)
    refuses("'total_count' to 'Binomial' %(integers from 0 on",
      function() D.Binomial(2.5, 1) end)
    refuses("'value' to 'Binomial.log_prob' %(integers from 0 to 3",
      function() D.Binomial(3, 0.5):log_prob(4) end)
    refuses("'probs' to 'NegativeBinomial' %(numbers from 0 to below 1",
      function() D.NegativeBinomial(3, 1) end)
    refuses("'total_count' to 'Multinomial'", function() D.Multinomial(-1, moth.ones(3)) end)
    refuses("vectors of integers from 0 on whose sum is at most 5",
      function() D.Multinomial(5, moth.ones(3)):log_prob(moth.ones(3) * 2) end)
    refuses("either probs or logits are needed, got none", function() D.Binomial(3) end)
    refuses("'temperature' to 'RelaxedOneHotCategorical' %(numbers above 0",
      function() D.RelaxedOneHotCategorical(0, moth.ones(3)) end)
    refuses("'dim' to 'LKJCholesky' %(an integer from 2 on", function() D.LKJCholesky(1) end)
    refuses("'df' to 'Wishart' %(numbers above 1 are needed",
      function() D.Wishart(1, moth.eye(2)) end)
    refuses("'covariance_matrix' to 'Wishart' %(one of covariance_matrix, ",
      function() D.Wishart(3) end)
    refuses("'cov_factor' to 'LowRankMultivariateNormal'", function()
      D.LowRankMultivariateNormal(moth.zeros(3), moth.ones(2, 1), moth.ones(3))
    end)
    refuses("'VonMises' has no argument 'kappa'", function() D.VonMises { loc = 0, kappa = 1 } end)
    refuses("VonMises has no rsample", function() D.VonMises(0, 1):rsample() end)
    refuses("D %(D %- 1%) / 2 numbers are needed, got 4",
      function() D.CorrCholeskyTransform()(moth.ones(4)) end)
    refuses("'out_shape' to 'ReshapeTransform'", function() D.ReshapeTransform({ 2, 3 }, { 5 }) end)
    refuses("'tseq%[1%]' to 'CatTransform' %(a transform is needed",
      function() D.CatTransform { { 3 } } end)
  end)
end)
