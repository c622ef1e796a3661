-- Shapes, dtypes and arguments that all distributions share: batches, expansion, samples, checks on
-- and off, and the messages of what they refuse.

local moth = require "moth"
local D = moth.distributions

local function f64(x) return (moth.tensor(x, {dtype = moth.float64})) end

local function sizes(shape) return {unpack(shape)} end

local function refuses(f, text)
  local fine, problem = pcall(f)
  assert.is_false(fine, text)
  assert.is_true(tostring(problem):find(text, 1, true) ~= nil, tostring(problem))
end

-- Each class with a batch of {2} and its event shape.
local half = {0.25, 0.5}
local eye = {{2, 0}, {0.5, 1}}
local ALL = {
  Normal = {{loc = {0, 1}, scale = half}, {}}, LogNormal = {{loc = {0, 1}, scale = half}, {}},
  HalfNormal = {{scale = half}, {}}, Uniform = {{low = {0, 1}, high = {2, 2}}, {}},
  Exponential = {{rate = half}, {}}, Laplace = {{loc = {0, 1}, scale = half}, {}},
  Gumbel = {{loc = {0, 1}, scale = half}, {}}, Cauchy = {{loc = {0, 1}, scale = half}, {}},
  HalfCauchy = {{scale = half}, {}}, Pareto = {{scale = half, alpha = {3, 4}}, {}},
  GeneralizedPareto = {{loc = {0, 1}, scale = half, concentration = half}, {}},
  Weibull = {{scale = half, concentration = half}, {}},
  InverseGamma = {{concentration = {3, 4}, rate = half}, {}},
  FisherSnedecor = {{df1 = {3, 4}, df2 = {5, 6}}, {}},
  Kumaraswamy = {{concentration1 = half, concentration0 = half}, {}},
  ContinuousBernoulli = {{probs = half}, {}}, VonMises = {{loc = {0, 1}, concentration = half}, {}},
  Gamma = {{concentration = half, rate = half}, {}}, Chi2 = {{df = {3, 4}}, {}},
  Beta = {{concentration1 = half, concentration0 = half}, {}},
  Dirichlet = {{concentration = {{1, 2, 3}, {4, 5, 6}}}, {3}},
  StudentT = {{df = {3, 4}, loc = {0, 1}, scale = half}, {}}, Poisson = {{rate = half}, {}},
  Bernoulli = {{probs = half}, {}}, Geometric = {{logits = half}, {}},
  Categorical = {{probs = {half, half}}, {}}, OneHotCategorical = {{logits = {half, half}}, {2}},
  Binomial = {{total_count = {3, 3}, probs = half}, {}},
  NegativeBinomial = {{total_count = {3, 4}, logits = {-1, -2}}, {}},
  RelaxedBernoulli = {{temperature = 0.5, probs = half}, {}},
  RelaxedOneHotCategorical = {{temperature = 0.5, logits = {half, half}}, {2}},
  OneHotCategoricalStraightThrough = {{probs = {half, half}}, {2}},
  LogisticNormal = {{loc = {half, half}, scale = half}, {3}},
  MultivariateNormal = {{loc = {half, half}, scale_tril = eye}, {2}},
  LowRankMultivariateNormal = {{loc = {half, half}, cov_factor = {{1}, {2}}, cov_diag = half}, {2}},
  LKJCholesky = {{dim = 3, concentration = {1, 2}}, {3, 3}},
  Wishart = {{df = {3, 4}, scale_tril = eye}, {2, 2}},
}

local function made(name, dtype)
  local params = {}
  for key, value in pairs(ALL[name][1]) do
    params[key] = type(value) == "table" and moth.tensor(value, {dtype = dtype or moth.float64})
      or value
  end
  return D[name](params)
end

describe("the distribution", function()
  for name, row in pairs(ALL) do
    local event = row[2]

    local function with(...)
      local list = {}
      for _, part in ipairs {...} do
        for _, n in ipairs(part) do list[#list + 1] = n end
      end
      return list
    end

    it(name .. " has its shapes, also expanded, and of its samples", function()
      local d = made(name)
      assert.same({2}, sizes(d.batch_shape))
      assert.same(event, sizes(d.event_shape))
      local wide = d:expand {3, 2}
      assert.same({3, 2}, sizes(wide.batch_shape))
      assert.same({2}, sizes(d.batch_shape))
      assert.same(event, sizes(wide.event_shape))
      assert.equal(name, tostring(wide):match "^%w+")
      for _, each in ipairs {d, wide} do
        local batch = sizes(each.batch_shape)
        assert.same(with(batch, event), sizes(each:sample().shape))
        assert.same(with({4}, batch, event), sizes(each:sample(4).shape))
        assert.same(with({4, 5}, batch, event), sizes(each:sample({4, 5}).shape))
        assert.same(with({4, 5}, batch, event), sizes(each:sample(4, 5).shape))
        assert.same(with({0}, batch, event), sizes(each:sample(0).shape))
        local x = each:sample(4)
        assert.same(with({4}, batch), sizes(each:log_prob(x).shape))
        assert.is_false(x.requires_grad)
        for _, field in ipairs {"mean", "variance", "mode", "stddev"} do
          local known, value = pcall(function() return each[field] end)
          if known and moth.is_tensor(value) then
            assert.same(name == "Categorical" and batch or with(batch, event), sizes(value.shape),
              field)
          end
        end
        local known, entropy = pcall(each.entropy, each)
        if known then assert.same(batch, sizes(entropy.shape)) end
      end
      local x = d:sample()
      local one, many = d:log_prob(x), wide:log_prob(x)
      assert.is_true(moth.allclose(one:expand(3, 2), many, {equal_nan = true}))
    end)

    it(name .. " keeps the dtype of its parameters", function()
      for _, dtype in ipairs {moth.float32, moth.float64} do
        local d = made(name, dtype)
        local x = d:sample()
        assert.equal(name == "Categorical" and moth.int64 or dtype, x.dtype)
        assert.equal(dtype, d:log_prob(x).dtype)
      end
    end)

    it(name .. " refuses sizes below 0, and values of other types and shapes", function()
      local d = made(name)
      refuses(function() d:sample(-1) end, ("bad argument 'sample_shape' to '%s.sample' (sizes "
        .. "from 0 on are needed, got -1)"):format(name))
      local function log_prob(x) return function() d:log_prob(x) end end
      local who = ("bad argument 'value' to '%s.log_prob' ("):format(name)
      refuses(log_prob "x", who .. "a tensor or a number is needed, got")
      if #event == 0 then
        refuses(log_prob(d:sample()[1]:expand(3)), who .. tostring(d:sample()[1]:expand(3).dtype)
          :gsub("moth%.float", "f"):gsub("moth%.int", "i") .. " (3) cannot be broadcast with the "
          .. "batch (2)")
      else
        refuses(log_prob(f64 {1, 2, 3, 4, 5, 6, 7}), who .. "values of ")
      end
      if d.has_rsample then
        assert.same(sizes(d:sample(3).shape), sizes(d:rsample(3).shape))
      else
        refuses(function() d:rsample() end, name .. " has no rsample: no gradient passes through")
      end
    end)
  end

  it("of numbers has the default dtype; of integers and floats the dtype of the float", function()
    assert.equal(moth.float32, D.Normal(0, 1):sample().dtype)
    assert.equal(moth.float64, D.Normal(f64(0), 1).scale.dtype)
    assert.equal(moth.float64, D.Normal(moth.tensor {1LL}, f64 {2}).loc.dtype)
    assert.equal(moth.float32, D.Poisson(moth.tensor {1LL}).rate.dtype)
    assert.same({}, sizes(D.Normal(0, 1).batch_shape))
    assert.same({2, 3}, sizes(D.Normal(moth.zeros(2, 1), moth.ones(3)).batch_shape))
    assert.same({2, 3}, sizes(D.Normal(moth.zeros(3), moth.ones(2, 1)).scale.shape))
    refuses(function() D.Normal(moth.zeros(2), moth.ones(3)) end,
      "bad argument 'scale' to 'Normal' (f32 (3) cannot be broadcast with (2))")
    assert.near(-0.918938533, D.Normal(0, 1):log_prob(0):item(), 1e-6)
  end)

  it("takes probs or logits, not both", function()
    for _, name in ipairs {"Bernoulli", "Geometric", "Categorical", "OneHotCategorical", "Binomial",
        "NegativeBinomial", "ContinuousBernoulli", "Multinomial"} do
      local options = {probs = f64(half), logits = f64(half)}
      if name == "NegativeBinomial" then options.total_count = 1 end
      refuses(function() D[name](options) end, ("bad argument 'logits' to '%s' (either probs or "
        .. "logits are needed, got both)"):format(name))
      options.probs, options.logits = nil, nil
      refuses(function() D[name](options) end, ("bad argument 'probs' to '%s' (either probs or "
        .. "logits are needed, got none)"):format(name))
    end
    for _, name in ipairs {"Categorical", "OneHotCategorical", "Multinomial"} do
      refuses(function() D[name] {probs = 0.5} end, ("bad argument 'probs' to '%s' (at least one "
        .. "dimension is needed, got f32 ())"):format(name))
      refuses(function() D[name] {logits = 0.5} end, "bad argument 'logits' to")
    end
    refuses(function() D.Multinomial(-1, f64(half)) end,
      "bad argument 'total_count' to 'Multinomial' (a number from 0 on is needed, got -1)")
    D.Multinomial(0, f64(half))
  end)

  it("checks its parameters as set by default, or as told", function()
    assert.is_false((pcall(D.Normal, 0, -1)))
    assert.is_true((pcall(D.Normal, {0, -1, validate_args = false})))
    D.set_default_validate_args(false)
    local fine, problem = pcall(function()
      D.Normal(0, -1)
      assert.is_false(D.Normal(0, 1).validate_args)
      assert.is_false((pcall(D.Normal, {0, -1, validate_args = true})))
    end)
    D.set_default_validate_args(true)
    assert.is_true(fine, problem)
    assert.is_true(D.Normal(0, 1).validate_args)
  end)

  it("shows up to six numbers of a wrong value", function()
    refuses(function() D.Normal(0, f64 {1, -1, -2}) end,
      "numbers above 0 are needed, got f64 (3) with -1)")
    refuses(function() D.Categorical(f64 {{1, 1}, {1, -1}}) end, "got f64 (2, 2) with {1, -1})")
    refuses(function() D.Categorical(f64 {1, 1, 1, 1, 1, -1}) end,
      "got f64 (6) with {1, 1, 1, 1, 1, -1})")
    refuses(function() D.Categorical(f64 {1, 1, 1, 1, 1, 1, -1}) end,
      "got f64 (7) with {1, 1, 1, 1, 1, 1, ...})")
  end)

  it("has no functions that it lacks", function()
    for name, call in pairs {cdf = function(d) d:cdf(f64(1)) end,
        icdf = function(d) d:icdf(f64(0.5)) end, entropy = function(d) d:entropy() end} do
      refuses(function() call(D.NegativeBinomial(3, f64(0.5))) end,
        ("NegativeBinomial has no %s in closed form"):format(name))
    end
    refuses(function() D.Normal(0, 1):enumerate_support() end, "Normal has no list of its values")
    refuses(function() return D.LKJCholesky(3).mean end, "LKJCholesky has no mean in closed form")
    assert.is_nil(D.Normal(0, 1).nothing)
  end)

  it("Binomial lists its values only for one total_count", function()
    refuses(function() D.Binomial(f64 {1, 2}, f64 {0.5, 0.5}):entropy() end,
      "Binomial: values can be listed, and entropy computed, where all of total_count is one")
    refuses(function() D.Binomial(moth.zeros(0), moth.zeros(0)):enumerate_support() end,
      "Binomial: the batch is empty")
    assert.same({{0}, {1}, {2}}, D.Binomial(f64 {2}, f64 {0.5}):enumerate_support():tolist())
  end)
end)

describe("Independent, TransformedDistribution and MixtureSameFamily", function()
  local base = D.Normal(moth.zeros(2, 3), moth.ones(2, 3))

  it("move dimensions of the batch into the event", function()
    for n = 0, 2 do
      local d = D.Independent(base, n)
      local all = {2, 3}
      assert.same({unpack(all, 1, 2 - n)}, sizes(d.batch_shape))
      assert.same({unpack(all, 3 - n)}, sizes(d.event_shape))
      assert.same({unpack(all, 1, 2 - n)}, sizes(d:log_prob(moth.zeros(2, 3)).shape))
      assert.same({unpack(all, 1, 2 - n)}, sizes(d:entropy().shape))
      assert.same({5, 2, 3}, sizes(d:rsample(5).shape))
    end
    for _, n in ipairs {-1, 3} do
      refuses(function() D.Independent(base, n) end, ("bad argument 'reinterpreted_batch_ndims' to "
        .. "'Independent' (0 to 2 are possible with the batch (2, 3), got %d)"):format(n))
    end
    refuses(function() D.Independent(3, 1) end,
      "bad argument 'base_distribution' to 'Independent' (a distribution is needed, got 3)")
    local wide = D.Independent(base, 1):expand {4, 2}
    assert.same({4, 2}, sizes(wide.batch_shape))
    assert.same({4, 2, 3}, sizes(wide:sample().shape))
  end)

  it("apply transforms in order, and undo them in log_prob, cdf and icdf", function()
    local d = D.TransformedDistribution(D.Normal(f64(0), f64(1)),
      {D.AffineTransform(1, -2), D.ExpTransform()})
    local same = D.LogNormal(f64(1), f64(2)) -- a normal distribution is symmetric
    local x, p = f64 {0.25, 1, 7}, f64 {0.125, 0.5, 0.75}
    assert.is_true(moth.allclose(same:log_prob(x), d:log_prob(x)))
    assert.is_true(moth.allclose(same:cdf(x), d:cdf(x)))
    assert.is_true(moth.allclose(same:icdf(p), d:icdf(p)))
    refuses(function() D.TransformedDistribution(3, {}) end, "a distribution is needed, got 3")
    refuses(function() D.TransformedDistribution(base, {D.ExpTransform(), 3}) end,
      "bad argument 'transforms[2]' to 'TransformedDistribution' (a transform is needed, got 3)")
    refuses(function() D.TransformedDistribution(D.Normal(0, 1), D.StickBreakingTransform()) end,
      "values of 1 dimension is needed, got those of ()")
    local sticks = D.TransformedDistribution(base, D.StickBreakingTransform())
    assert.same({2}, sizes(sticks.batch_shape))
    assert.same({4}, sizes(sticks.event_shape))
    assert.same({5, 2, 4}, sizes(sticks:expand({5, 2}):sample().shape))
  end)

  it("mix components along the last dimension of their batch", function()
    local weights = D.Categorical(f64 {1, 3})
    local parts = D.Normal(f64 {{0, 4}, {1, 1}}, f64 {{1, 2}, {1, 1}})
    local d = D.MixtureSameFamily(weights, parts)
    assert.same({2}, sizes(d.batch_shape))
    assert.is_true(moth.allclose(f64 {3, 1}, d.mean))
    assert.is_true(moth.allclose(f64 {0.25 * (1 + 9) + 0.75 * (4 + 1), 1}, d.variance))
    refuses(function() D.MixtureSameFamily(parts, parts) end,
      "bad argument 'mixture_distribution' to 'MixtureSameFamily' (a Categorical is needed, got")
    refuses(function() D.MixtureSameFamily(weights, D.Normal(moth.zeros(3), 1)) end, "bad argument "
      .. "'component_distribution' to 'MixtureSameFamily' (a batch that ends in (2) is needed, got")
    assert.same({7, 5, 2}, sizes(d:expand({5, 2}):sample(7).shape))
  end)
end)

describe("constraints of constraints", function()
  local c = D.constraints

  it("need constraints and dimensions", function()
    for _, f in ipairs {function() c.independent(3, 1) end, function() c.stack({3}, 1) end,
        function() c.cat({3}, 1) end, function() c.stack(3, 1) end, function() c.cat(3, 1) end,
        function() c.independent(c.real, "x") end, function() c.stack({c.real}, "x") end,
        function() c.greater_than("x") end} do
      refuses(f, "a constraint needs ")
    end
    refuses(function() c.stack({c.real}) end, "a constraint needs a dimension, got nil")
  end)

  it("check pieces and slices", function()
    local x = f64 {{1, -1, 0.5}, {-1, 1, 0.5}}
    assert.same({{true, true, true}, {false, true, true}},
      c.cat({c.positive, c.real}, 2, {1, 2}):check(x):tolist())
    assert.same({{true, true, true}, {false, true, true}},
      c.cat({c.positive, c.real, c.unit_interval}, 2):check(x):tolist())
    assert.same({{true, true, true}, {false, false, false}},
      c.stack({c.real, c.nonnegative}, 1):check(f64 {{-1, 1, 0}, {-1, -2, -3}}):tolist())
    assert.same({true, false}, c.independent(c.positive, 1):check(f64 {{1, 2}, {1, 0}}):tolist())
  end)
end)

describe("vectors and counts", function()
  it("MultivariateNormal names the argument of a wrong shape", function()
    local eye2 = moth.eye(2)
    local text = "((..., K) and (..., K, K) are needed, got "
    refuses(function() D.MultivariateNormal(moth.tensor(1), eye2) end,
      "bad argument 'loc' to 'MultivariateNormal' " .. text)
    for i, name in ipairs {"covariance_matrix", "precision_matrix", "scale_tril"} do
      for _, matrix in ipairs {moth.eye(3), moth.ones(2), moth.ones(2, 3), moth.ones(3, 2)} do
        refuses(function() D.MultivariateNormal {moth.zeros(2), [name] = matrix} end,
          ("bad argument '%s' to 'MultivariateNormal' "):format(name) .. text)
      end
      assert.equal(2, D.MultivariateNormal({moth.zeros(2), [name] = eye2}).mean:size(1), i)
    end
  end)

  it("Multinomial has samples of no size, and of no draws", function()
    local d = D.Multinomial(3, f64 {0.5, 0.5})
    assert.same({0, 2}, sizes(d:sample(0).shape))
    assert.same({4, 2}, sizes(d:sample(4).shape))
    assert.is_true(d:sample(9):sum(-1):eq(3):all():item())
    assert.same({0, 0}, D.Multinomial(0, f64 {0.5, 0.5}):sample():tolist())
    assert.same({3, 0, 2}, sizes(D.Multinomial(3, moth.ones(0, 2)):sample(3).shape))
  end)

  it("ReshapeTransform takes sizes from 0 on", function()
    local t = D.ReshapeTransform({0, 3}, {3, 0})
    assert.same({2, 3, 0}, sizes(t(moth.zeros(2, 0, 3)).shape))
    refuses(function() D.ReshapeTransform({-1}, {-1}) end,
      "bad argument 'in_shape' to 'ReshapeTransform' (sizes from 0 on are needed, got {-1})")
    refuses(function() D.ReshapeTransform({1}, {-1}) end, "bad argument 'out_shape' to")
    refuses(function() D.ReshapeTransform({2}, {3}) end,
      "(as many elements as (2) are needed, got (3))")
  end)
end)
