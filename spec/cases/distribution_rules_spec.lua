-- Cases: rules for each constraint, transform and distribution of a table: the bounds of a
-- constraint, a transform with its inverse, the moments of a batch and of its values.

local moth = require "moth"

local D = moth.distributions
local C, nan = D.constraints, 0 / 0

local function f64(x) return moth.tensor(x, {dtype = moth.float64}) end

describe("a constraint", function()
  -- name, constraint, values that hold, values that do not
  local ROWS = {
    {"real", C.real, {0, -1e300, math.huge}, {nan}},
    {"positive", C.positive, {1e-300, math.huge}, {0, -1e-300, nan}},
    {"nonnegative", C.nonnegative, {0, 5}, {-1e-300, nan}},
    {"nonzero", C.nonzero, {1e-300, -2}, {0, nan}},
    {"boolean", C.boolean, {0, 1}, {0.5, -1, 2, nan}},
    {"nonnegative_integer", C.nonnegative_integer, {0, 1, 1e6}, {-1, 0.5, nan}},
    {"positive_integer", C.positive_integer, {1, 2}, {0, 1.5, -1, nan}},
    {"greater_than", C.greater_than(2), {2.001}, {2, 1, nan}},
    {"greater_than_eq", C.greater_than_eq(2), {2, 3}, {1.999, nan}},
    {"less_than", C.less_than(2), {1.999, -9}, {2, 3, nan}},
    {"interval", C.interval(-1, 2), {-1, 0, 2}, {-1.001, 2.001, nan}},
    {"half_open_interval", C.half_open_interval(-1, 2), {-1, 1.999}, {2, -1.001, nan}},
    {"unit_interval", C.unit_interval, {0, 1, 0.5}, {-0.001, 1.001, nan}},
    {"integer_interval", C.integer_interval(-1, 2), {-1, 0, 1, 2}, {-2, 3, 0.5, nan}},
    {"a bound as a tensor", C.greater_than(f64(1)), {1.5}, {1}},
  }
  for _, row in ipairs(ROWS) do
    it("holds within its bounds: " .. row[1], function()
      for _, v in ipairs(row[3]) do assert.is_true(row[2]:check(f64(v)):item(), tostring(v)) end
      for _, v in ipairs(row[4]) do assert.is_false(row[2]:check(f64(v)):item(), tostring(v)) end
    end)
  end

  local L = {{2, 0}, {-1, 1}}
  local s = math.sqrt(0.75)
  -- name, constraint, vectors or matrices that hold, those that do not
  local WHOLE = {
    {"real_vector", C.real_vector, {{1, -2}}, {{1, nan}}},
    {"simplex", C.simplex, {{0.25, 0.75}, {1, 0}}, {{0.25, 0.7}, {1.5, -0.5}, {0, 0}}},
    {"one_hot", C.one_hot, {{0, 1}, {1, 0}}, {{1, 1}, {0, 0}, {0.5, 0.5}, {2, -1}}},
    {"multinomial", C.multinomial(3), {{1, 2}, {0, 0}}, {{2, 2}, {-1, 2}, {0.5, 1}}},
    {"independent", C.independent(C.positive, 1), {{1, 2}}, {{1, 0}}},
    {"square", C.square, {L}, {{{1, 2, 3}, {1, 2, 3}}}},
    {"symmetric", C.symmetric, {{{1, 2}, {2, -1}}}, {{{1, 2}, {2.1, 1}}}},
    {"positive_definite", C.positive_definite, {{{2, 1}, {1, 2}}},
      {{{1, 2}, {2, 1}}, {{2, 1}, {0, 2}}, {{1, 1}, {1, 1}}}},
    {"positive_semidefinite", C.positive_semidefinite, {{{2, 0}, {0, 0}}},
      {{{1, 2}, {2, 1}}, {{2, 1}, {0, 2}}}},
    {"lower_triangular", C.lower_triangular, {L, {{-1, 0}, {1, 0}}}, {{{1, 1}, {0, 1}}}},
    {"lower_cholesky", C.lower_cholesky, {L}, {{{-1, 0}, {1, 1}}, {{1, 0}, {1, 0}},
      {{1, 1}, {0, 1}}}},
    {"corr_cholesky", C.corr_cholesky, {{{1, 0}, {0.5, s}}},
      {{{1, 0}, {0.5, 0.5}}, {{1, 0}, {0.5, -s}}}},
    {"stack", C.stack({C.positive, C.real}, -1), {{1, -1}}, {{-1, 1}}},
    {"cat", C.cat({C.positive, C.real}, -1, {1, 1}), {{1, -1}}, {{-1, 1}}},
  }
  for _, row in ipairs(WHOLE) do
    it("holds for whole values: " .. row[1], function()
      for _, v in ipairs(row[3]) do assert.is_true(row[2]:check(f64(v)):all():item()) end
      for _, v in ipairs(row[4]) do assert.is_false(row[2]:check(f64(v)):all():item()) end
    end)
  end

  it("is checked for booleans and integers too", function()
    assert.same({true, true}, C.nonnegative_integer:check(moth.tensor {true, false}):tolist())
    assert.same({true, false}, C.positive_integer:check(moth.tensor {1LL, 0LL}):tolist())
    assert.same({true, false}, C.integer_interval(0, 1):check(moth.tensor {1LL, 2LL}):tolist())
  end)

  it("prints its bounds", function()
    for text, constraint in pairs {["numbers above 2"] = C.greater_than(2),
      ["numbers from 2 on"] = C.greater_than_eq(2), ["numbers below 0.5"] = C.less_than(0.5),
      ["numbers from -1 to 2"] = C.interval(-1, 2),
        ["numbers from 0 to below 1"] = C.half_open_interval(0, 1),
      ["integers from 1 to 6"] = C.integer_interval(1, 6),
      ["vectors of integers from 0 on whose sum is at most 3"] = C.multinomial(3)} do
      assert.matches(text, constraint.text, 1, true)
    end
  end)
end)

describe("a transform", function()
  local square = moth.randn(3, 3, {dtype = moth.float64}):tril()
  local positive = moth.rand(3, {dtype = moth.float64}) + 0.5
  local x3, x4 = moth.randn(3, {dtype = moth.float64}), moth.randn(2, 4, {dtype = moth.float64})
  local increasing = D.ComposeTransform {D.ExpTransform(), D.AffineTransform(1, 2)}
  -- name, transform, a value, sign, is it elementwise?
  local ROWS = {
    {"exp", D.ExpTransform(), x3, 1, true}, {"sigmoid", D.SigmoidTransform(), x3, 1, true},
    {"tanh", D.TanhTransform(), x3, 1, true}, {"softplus", D.SoftplusTransform(), x3, 1, true},
    {"affine", D.AffineTransform(1, 2), x3, 1, true}, {"falling affine", D.AffineTransform(1, -2),
      x3, -1, true},
    {"affine of tensors", D.AffineTransform(f64(1), f64(-2)), x3, -1, true},
    {"power", D.PowerTransform(f64(2)), positive, 1, true},
    {"negative power", D.PowerTransform(f64(-1.5)), positive, -1, true},
    {"composed", increasing, x3, 1, true}, {"inverse", D.ExpTransform().inv, positive, 1, true},
    {"composed twice", D.ComposeTransform {D.AffineTransform(0, -1), D.AffineTransform(0, -3),
      D.AffineTransform(1, -1)},
      x3, -1, true},
    {"inverse of a composition", increasing.inv, positive + 1.5, 1, true},
    {"independent", D.IndependentTransform(D.AffineTransform(0, -2), 1), x3, -1},
    {"cumulative", D.CumulativeDistributionTransform(D.Normal(f64(0), f64(1))), x3, 1, true},
    {"with a cache", D.ExpTransform(1), x3, 1, true}, {"with_cache", D.ExpTransform():with_cache(),
      x3, 1, true},
    {"stick breaking", D.StickBreakingTransform(), x3}, {"Cholesky", D.LowerCholeskyTransform(),
      square},
    {"reshaped", D.ReshapeTransform({2, 4}, {8}), x4},
    {"concatenated", D.CatTransform({D.ExpTransform(), D.AffineTransform(0, -2)}, -1, {1, 2}), x3},
    {"stacked", D.StackTransform({D.ExpTransform(), D.TanhTransform(), D.AffineTransform(0, -2)},
      -1), x3},
  }
  for _, row in ipairs(ROWS) do
    local name, t, x, sign, elementwise = unpack(row, 1, 5)
    it("is undone by its inverse: " .. name, function()
      local y = t(x)
      assert.is_true(moth.allclose(t.inv(y), x))
      assert.is_true(t.inv.inv == t or moth.allclose(t.inv.inv(x), y))
      assert.same(t:forward_shape(x.shape), y.shape)
      assert.same(t:inverse_shape(y.shape), x.shape)
      assert.same(t.inv:forward_shape(y.shape), x.shape)
      assert.same(t.inv:inverse_shape(x.shape), y.shape)
      assert.equal(name ~= "Cholesky", t.bijective)
      if sign then
        local s = t:sign()
        assert.equal(sign, moth.is_tensor(s) and s:item() or s)
        local r = t.inv:sign()
        assert.equal(sign, moth.is_tensor(r) and r:item() or r)
      end
    end)

    local known = name ~= "Cholesky" and it or function() end
    known("has the logarithm of its derivative: " .. name, function()
      local y = t(x)
      local got = t:log_abs_det_jacobian(x, y)
      local back = t.inv:log_abs_det_jacobian(y, x)
      assert.is_true(moth.allclose(got, -back))
      if elementwise then
        local given = x:clone():requires_grad_()
        local slope = moth.autograd.grad(t(given):sum(), given)
        assert.is_true(moth.allclose(got, slope:abs():log()))
      elseif t.domain.event_dim == 1 and y:numel() == x:numel() then
        local J = moth.autograd.functional.jacobian(function(v) return t(v) end, x)
        assert.is_true(moth.allclose(got:sum(), J:reshape(x:numel(), -1):det():abs():log()))
      end
    end)
  end

  it("reduces dimensions that form one value", function()
    local t = D.AffineTransform(0, f64 {2, 3}, 1)
    assert.is_true(moth.allclose(t:log_abs_det_jacobian(f64 {1, 1}, f64 {2, 3}), f64(math.log(6))))
    local both = D.IndependentTransform(D.ExpTransform(), 2)
    assert.equal(10, both:log_abs_det_jacobian(f64 {{1, 2}, {3, 4}}):item())
    assert.equal(2, both.domain.event_dim)
    local chain = D.ComposeTransform {D.ExpTransform(), D.IndependentTransform(D.ExpTransform(), 1)}
    assert.equal(1, chain.domain.event_dim)
    local x = f64 {0.5, 1}
    assert.is_true(moth.allclose(chain:log_abs_det_jacobian(x), (x + x:exp()):sum()))
  end)

  it("is the identity if it composes nothing", function()
    local x = f64 {1, 2}
    assert.is_true(D.identity_transform(x) == x)
    assert.same({0, 0}, D.identity_transform:log_abs_det_jacobian(x, x):tolist())
    assert.equal(1, D.identity_transform:sign())
  end)

  it("that is not injective inverts to the nonnegative value", function()
    local t = D.AbsTransform()
    assert.same({2, 3}, t(f64 {-2, 3}):tolist())
    assert.same({2, 3}, t.inv(f64 {2, 3}):tolist())
    assert.is_false(t.bijective)
    assert.is_false(D.ComposeTransform({D.ExpTransform(), t}).bijective)
    assert.is_false(t.inv.bijective)
    assert.is_false(D.IndependentTransform(t, 1).bijective)
    assert.is_false(D.CatTransform({D.ExpTransform(), t}, 1).bijective)
  end)

  it("broadcasts the shape with its parameters", function()
    assert.same({3, 2},
      {unpack(D.AffineTransform(moth.zeros(3, 1), 1):forward_shape(moth.zeros(2).shape))})
    assert.same({3, 2},
      {unpack(D.PowerTransform(moth.ones(3, 1)):forward_shape(moth.zeros(2).shape))})
  end)

  it("returns its last input exactly, with a cache", function()
    local t, x = D.SigmoidTransform(1), f64 {40, -800}
    assert.is_true(t.inv(t(x)) == x)
    assert.is_false(D.SigmoidTransform().inv(D.SigmoidTransform()(x)) == x)
  end)
end)

describe("a distribution", function()
  local a, b = f64 {1.5, 2}, f64 {0.5, 3}
  -- name, distribution, its mode (nil: not compared)
  local ROWS = {
    {"Normal", D.Normal(a, b), {1.5, 2}}, {"StudentT", D.StudentT(f64 {3, 5}, a, b), {1.5, 2}},
    {"Gamma", D.Gamma(a, b), {1, 1 / 3}}, {"Gamma below 1", D.Gamma(b, a), {0, 1}},
    {"Poisson", D.Poisson(f64 {2.5, 0.5}), {2, 0}}, {"Beta", D.Beta(a + 1, b + 1), {0.75, 0.4}},
    {"Kumaraswamy", D.Kumaraswamy(f64 {2, 2}, f64 {3, 1}), {math.sqrt(1 / 5), 1}},
    {"Laplace", D.Laplace(a, b), {1.5, 2}}, {"LogNormal", D.LogNormal(a, b)},
    {"Exponential", D.Exponential(a), {0, 0}}, {"Geometric", D.Geometric(f64 {0.3, 0.9}), {0, 0}},
    {"Bernoulli", D.Bernoulli(f64 {0.3, 0.9}), {0, 1}}, {"Gumbel", D.Gumbel(a, b), {1.5, 2}},
    {"Binomial", D.Binomial(f64 {4, 7}, f64 {0.3, 0.9}), {1, 7}},
      {"HalfNormal", D.HalfNormal(b), {0, 0}},
    {"Weibull", D.Weibull(b, a + 1)}, {"Uniform", D.Uniform(a, a + b)},
      {"Cauchy", D.Cauchy(a, b), {1.5, 2}},
  }
  for _, row in ipairs(ROWS) do
    local d, mode = row[2], row[3]
    it("has a mode, which has the largest density nearby: " .. row[1], function()
      if not mode then return end
      assert.is_true(moth.allclose(d.mode, f64(mode)), tostring(d.mode))
    end)

    it("shares its moments with its independent batch: " .. row[1], function()
      local whole = D.Independent(d, 1)
      assert.is_true(moth.equal(d.mean:nan_to_num(), whole.mean:nan_to_num()))
      assert.is_true(moth.equal(d.variance:nan_to_num(), whole.variance:nan_to_num()))
      if mode then assert.is_true(moth.equal(d.mode, whole.mode)) end
      local x = d:sample()
      assert.is_true(moth.allclose(d:log_prob(x):sum(), whole:log_prob(x)))
      assert.same({}, {unpack(whole.batch_shape)})
      assert.same({2}, {unpack(whole.event_shape)})
      assert.same({5, 2}, {unpack(whole:sample(5).shape)})
      assert.same({3, 2}, {unpack(whole:expand{3}:sample().shape)})
    end)

    it("has the standard deviation of its variance, and its perplexity: " .. row[1], function()
      assert.is_true(moth.allclose(d.stddev:square(), d.variance, {equal_nan = true}))
      local known, entropy = pcall(d.entropy, d)
      if known then assert.is_true(moth.allclose(d:perplexity():log(), entropy)) end
    end)
  end

  it("of few values lists them", function()
    local d = D.Bernoulli(f64 {0.3, 0.9})
    assert.same({{0, 0}, {1, 1}}, d:enumerate_support():tolist())
    assert.same({{0}, {1}}, d:enumerate_support(false):tolist())
    assert.same({{0}, {1}}, D.Independent(D.Bernoulli(f64 {0.3}), 0):enumerate_support():tolist())
    assert.same({{1, 1}, {2, 2}, {3, 3}},
      D.Categorical(moth.ones(2, 3)):enumerate_support():tolist())
    assert.is_false((pcall(function() D.Independent(d, 1):enumerate_support() end)))
    for _, lacking in ipairs {D.Normal(0, 1), D.Poisson(f64(1))} do
      assert.is_false((pcall(lacking.enumerate_support, lacking)))
    end
  end)

  it("has the logarithms of its tails", function()
    local d = D.GeneralizedPareto(f64(1), f64(2), f64 {0.5, 0, -0.3})
    local x = f64 {2, 2, 2}
    local cdf = d:cdf(x)
    assert.is_true(moth.allclose(d:log_cdf(x), cdf:log()))
    assert.is_true(moth.allclose(d:log_survival_function(x), (1 - cdf):log()))
    assert.is_true(moth.allclose(d:icdf(cdf), x))
  end)

  it("transformed has the support of its last transform", function()
    local d = D.TransformedDistribution(D.Normal(f64 {0, 0}, 1),
      {D.ExpTransform(), D.AffineTransform(0, 2)})
    assert.is_true(d.support:check(f64 {-5, 5}):all():item())
    assert.is_true(moth.allclose(d:log_prob(f64 {2, 4}),
      D.LogNormal(f64 {0, 0}, 1):log_prob(f64 {1, 2}) - math.log(2)))
    local empty = D.TransformedDistribution(D.Exponential(f64(1)), {})
    assert.is_false(empty.support:check(f64(-1)):item())
    local whole = D.TransformedDistribution(D.Independent(D.Normal(f64 {0, 0}, 1), 1),
      {D.ExpTransform()})
    assert.same({2}, {unpack(whole.event_shape)})
    assert.equal(1, whole.support.event_dim)
  end)

  it("draws as many as are asked", function()
    local d = D.Normal(f64 {0, 1}, 1)
    assert.same({3, 2}, {unpack(d:sample(3).shape)})
    assert.same({3, 4, 2}, {unpack(d:rsample{3, 4}.shape)})
    assert.same({2}, {unpack(d:sample().shape)})
    local ok, why = pcall(d.sample, d, {-1})
    assert.is_false(ok)
    assert.matches("sizes from 0 on are needed, got -1", why, 1, true)
    assert.same({5, 2}, {unpack(d:expand{5, 2}.batch_shape)})
  end)

  -- The divergences of two distributions of one family, against the mean of many samples.
  local PAIRS = {
    {D.Normal(f64(0), f64(1)), D.Normal(f64(0.5), f64(2))},
    {D.Gamma(f64(2), f64(1)), D.Gamma(f64(3), f64(2))},
    {D.Beta(f64(2), f64(3)), D.Beta(f64(1.5), f64(2))},
    {D.Laplace(f64(0), f64(1)), D.Laplace(f64(0.5), f64(2))},
    {D.Exponential(f64(2)), D.Exponential(f64(1))}, {D.Poisson(f64(2)), D.Poisson(f64(3))},
    {D.Bernoulli(f64(0.3)), D.Bernoulli(f64(0.6))}, {D.Geometric(f64(0.3)), D.Geometric(f64(0.6))},
    {D.Gumbel(f64(0), f64(1)), D.Gumbel(f64(0.5), f64(2))},
    {D.HalfNormal(f64(1)), D.HalfNormal(f64(2))},
      {D.Uniform(f64(0), f64(1)), D.Uniform(f64(-1), f64(2))},
    {D.Pareto(f64(2), f64(3)), D.Pareto(f64(1), f64(2))},
      {D.Normal(f64(0), f64(1)), D.Gumbel(f64(0), f64(2))},
    {D.Normal(f64(0), f64(1)), D.Laplace(f64(0), f64(2))},
      {D.Exponential(f64(2)), D.Gamma(f64(2), f64(1))},
    {D.Uniform(f64(0), f64(1)), D.Normal(f64(0), f64(1))},
      {D.Gamma(f64(2), f64(1)), D.Exponential(f64(1))},
    {D.Beta(f64(2), f64(3)), D.Uniform(f64(-1), f64(2))},
      {D.Uniform(f64(0.2), f64(0.7)), D.Beta(f64(2), f64(3))},
  }
  for _, pair in ipairs(PAIRS) do
    local p, q = pair[1], pair[2]
    local name = tostring(p):match "^%w+" .. ", " .. tostring(q):match "^%w+"
    it("is as far from another as its samples say: " .. name, function()
      moth.manual_seed(5)
      local x = p:sample(200000)
      local each = p:log_prob(x) - q:log_prob(x)
      local slack = 5 * each:std():item() / math.sqrt(200000) + 1e-9
      assert.is_true(math.abs(D.kl_divergence(p, q):item() - each:mean():item()) < slack)
      assert.is_true(math.abs(D.kl_divergence(p, p):item()) < 1e-12 or p ~= q)
    end)
  end

  it("of another support is infinitely far", function()
    assert.equal(math.huge, D.kl_divergence(D.Uniform(f64(0), f64(3)),
      D.Uniform(f64(0), f64(1))):item())
    assert.equal(math.huge, D.kl_divergence(D.Pareto(f64(1), f64(3)),
      D.Pareto(f64(2), f64(3))):item())
    assert.equal(math.huge, D.kl_divergence(D.Uniform(f64(-1), f64(1)),
      D.Beta(f64(2), f64(3))):item())
  end)
end)
