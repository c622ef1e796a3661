-- moth.distributions: functions equal PyTorch's, samples have the right moments.

local moth = require "moth"
local cases = require "spec.support.distribution_cases"

local nn, D = moth.nn, moth.distributions

local made = cases.golden "distributions"
local same, tensors = cases.same, cases.tensors

local ORDER = { loc = 1, low = 1, rate = 1, probs = 1, logits = 1, scale = 2, high = 2,
  covariance_matrix = 2, precision_matrix = 2, scale_tril = 2 }

describe("a distribution's", function()
  for i, case in ipairs(made.cases) do
    local _, names = tensors(case.params)
    local title = ("%s by %s"):format(case.class, table.concat(names, " and "))
    it(title .. " fields and functions equal PyTorch's (" .. i .. ")", function()
      local params = tensors(case.params, true)
      local d = D[case.class](params)
      local dtype = case.class == "Categorical" and moth.int64 or moth.float64
      local x = moth.tensor(case.values, { dtype = dtype })
      local shares = moth.tensor(made.shares, { dtype = moth.float64 })
      for name, wanted in pairs(case.gives) do
        local value = d[name]
        if type(value) == "function" then
          value = value(d, name == "icdf" and shares or name ~= "entropy" and x or nil)
        end
        same(wanted, value, title .. ": " .. name)
      end
      table.sort(names, function(a, b) return (ORDER[a] or 9) < (ORDER[b] or 9) end)
      local leaves = {}
      for k, name in ipairs(names) do leaves[k] = params[name] end
      local slopes = { moth.autograd.grad(d:log_prob(x):sum(), leaves) }
      if type(slopes[1]) == "table" then slopes = slopes[1] end
      for k, wanted in ipairs(case.slopes) do
        same(wanted, slopes[k], title .. ": slope by " .. names[k])
      end
    end)
  end

  for i, case in ipairs(made.pairs) do
    it(("divergence of %s from %s is PyTorch's (%d)"):format(case.p[1], case.q[1], i), function()
      local p, q = D[case.p[1]]((tensors(case.p[2]))), D[case.q[1]]((tensors(case.q[2])))
      same(case.kl, D.kl_divergence(p, q), "kl")
    end)
  end
end)

it("divergence of Wishart from Wishart is PyTorch's, for batches, with gradients", function()
  local function f64(values) return moth.tensor(values, { dtype = moth.float64 }) end
  local L, M = f64 { { 1, 0 }, { 0.5, 2 } }, f64 { { 2, 0 }, { -0.3, 0.7 } }
  local function wishart(df, triangle) return (D.Wishart { df, scale_tril = triangle }) end
  local function kl(p, q) return (D.kl_divergence(p, q)) end
  local p, q = wishart(f64(4.5), L), wishart(f64(3), M)
  same({ 15.7536344859883, 5.98933434742367, 0 }, moth.stack { kl(p, q), kl(q, p), kl(p, p) }, "kl")
  local both = wishart(f64 { 4.5, 3 }, moth.stack { L, M })
  same({ 0, 5.98933434742367 }, kl(both, p), "kl of a batch")
  moth.autograd.gradcheck(function(a, b, s, t)
    return (kl(wishart(a, s:tril()), wishart(b, t:tril())))
  end, { f64(4.5):requires_grad_(), f64(3):requires_grad_(), L:clone():requires_grad_(),
         M:clone():requires_grad_() })
  assert.has_error_like(function() kl(p, wishart(4, moth.eye(3, { dtype = moth.float64 }))) end,
    "'q' to 'kl_divergence' %(matrices of 2 rows are needed as in p, got 3")
end)

-- The mean of the first n samples minus d.mean, in standard errors.
local function has_moments(d, x)
  local n = x:size(1)
  local off = (x:mean(1) - d.mean):abs() / (d.stddev / math.sqrt(n))
  assert.is_true(off:max():item() < 5, tostring(d) .. ": mean is " .. tostring(x:mean(1)))
  assert.is_true((x:std(1) / d.stddev - 1):abs():max():item() < 0.06, tostring(d) .. ": std")
end

describe("a sample", function()
  before_each(function() moth.manual_seed(11) end)

  it("has the mean and deviation of its distribution", function()
    local loc, scale = moth.tensor { -1, 2 }, moth.tensor { 0.5, 3 }
    local probs = moth.tensor { 0.25, 0.875 }
    for _, d in ipairs { D.Normal(loc, scale), D.HalfNormal(scale), D.Uniform(loc, loc + scale),
        D.Exponential(scale), D.Laplace(loc, scale), D.Gumbel(loc, scale), D.Bernoulli(probs),
        D.Bernoulli { logits = loc }, D.Geometric(probs), D.LogNormal(loc, 0.25),
        D.OneHotCategorical { probs = moth.tensor { 1, 2, 5 } },
        D.MultivariateNormal(loc, moth.tensor { { 2, -1 }, { -1, 3 } }) } do
      local x = d:sample(40000)
      has_moments(d, x)
      assert.is_false(x.requires_grad)
      assert.is_true(d.support:check(x):all():item())
    end
  end)

  it("is below the median half of the time, if there is no mean", function()
    local d = D.Cauchy(moth.tensor { -1, 2 }, 0.5)
    local x = d:sample(40000)
    assert.is_true((x:lt(d.loc):float():mean(1) - 0.5):abs():max():item() < 0.015)
    assert.is_true((x:lt(d:icdf(0.75)):float():mean(1) - 0.75):abs():max():item() < 0.015)
  end)

  it("of positions counts from 1 and follows the weights", function()
    local probs = moth.tensor { { 0.5, 0.25, 0.25 }, { 0, 0.125, 0.875 } }
    local d = D.Categorical(probs)
    local x = d:sample(40000)
    assert.equal("(40000, 2)", tostring(x.shape))
    assert.equal(moth.int64, x.dtype)
    for k = 1, 3 do
      local share = x:eq(k):float():mean(1)
      assert.is_true((share - probs:select(2, k)):abs():max():item() < 0.015)
    end
    assert.equal(0, x:select(2, 2):eq(1):sum():item())
  end)

  it("has the requested sizes before those of the batch and the event", function()
    local d = D.Normal(moth.zeros(3, 1), moth.ones(2))
    assert.equal("(3, 2)", tostring(d.batch_shape))
    assert.equal("(3, 2)", tostring(d:sample().shape))
    assert.equal("(4, 3, 2)", tostring(d:sample(4).shape))
    assert.equal("(4, 5, 3, 2)", tostring(d:rsample { 4, 5 }.shape))
    assert.equal("(4, 5, 3, 2)", tostring(d:sample { sample_shape = { 4, 5 } }.shape))
    assert.equal("(0, 3, 2)", tostring(d:sample(0).shape))
    local hot = D.OneHotCategorical { logits = moth.zeros(5, 4) }
    assert.equal("(2, 5, 4)", tostring(hot:sample(2).shape))
    assert.equal("(5)", tostring(hot:log_prob(hot:sample()).shape))
    assert.equal("(0, 5)", tostring(D.Categorical { logits = moth.zeros(5, 4) }:sample(0).shape))
    assert.equal("()", tostring(D.Categorical(moth.ones(4)):sample().shape))
  end)

  it("of OneHotCategorical can be listed", function()
    local d = D.OneHotCategorical(moth.ones(2, 3))
    local all = d:enumerate_support()
    assert.equal("(3, 2, 3) (3, 1, 3)", tostring(all.shape) .. " "
      .. tostring(d:enumerate_support(false).shape))
    assert.is_true(all:select(2, 1):equal(moth.eye(3)))
  end)

  it("of rsample passes gradients to the parameters", function()
    for _, name in ipairs { "Normal", "LogNormal", "Laplace", "Gumbel", "Cauchy" } do
      local loc = moth.zeros(2):requires_grad_()
      local x = D[name](loc, 2):rsample(3)
      x:sum():backward()
      assert.is_true(loc.grad:ne(0):all():item(), name)
      assert.is_true(D[name].has_rsample)
    end
    assert.has_error_like(function() D.Bernoulli(0.5):rsample() end, "Bernoulli has no rsample")
    assert.is_false(D.Categorical.has_rsample)
  end)

  it("keeps the dtype of the parameters, also half types", function()
    for _, dtype in ipairs { moth.float64, moth.float16, moth.bfloat16 } do
      local d = D.Laplace(moth.zeros(2, { dtype = dtype }), 1)
      assert.equal(dtype, d:sample(50).dtype)
      assert.is_true(d:sample(5000):isfinite():all():item())
      assert.equal(dtype, d:log_prob(0.5).dtype)
    end
  end)
end)

describe("Categorical", function()
  it("has an entropy with a steep but finite gradient where a probability is 0", function()
    local p = moth.tensor({ 0, 0.3, 0.7 }, { dtype = moth.float64 }):requires_grad_()
    D.Categorical(p):entropy():backward()
    assert.close({ 36.4328, 0.5931, -0.2542 }, p.grad:tolist(), 1e-4) -- PyTorch's
    local logits = moth.tensor { -math.huge, 0.3, 0.7 }:requires_grad_()
    local y = D.Categorical { logits = logits, validate_args = false }:entropy()
    y:backward()
    assert.close(0.6735, y:item(), 1e-4)
    assert.close({ 0, 0.0961, -0.0961 }, logits.grad:tolist(), 1e-4)
  end)
end)

describe("MultivariateNormal", function()
  local cov = moth.tensor({ { 2, -1 }, { -1, 3 } }, { dtype = moth.float64 })
  local loc = moth.zeros(4, 2, { dtype = moth.float64 })

  it("accepts one of three matrices, and computes the others", function()
    local d = D.MultivariateNormal(loc, cov)
    local x = d:rsample(3)
    assert.equal("(4) (3, 4, 2)", tostring(d.batch_shape) .. " " .. tostring(x.shape))
    for _, name in ipairs { "precision_matrix", "scale_tril" } do
      local other = D.MultivariateNormal(loc, { [name] = d[name] })
      assert.is_true(other:log_prob(x):allclose(d:log_prob(x)))
      assert.is_true(other.covariance_matrix:allclose(cov:expand(4, 2, 2)))
    end
    assert.equal("(5, 4, 2)", tostring(d:expand(5, 4):sample().shape))
    local apart = moth.tensor { { 4, 0 }, { 0, 9 } }
    assert.is_true(D.MultivariateNormal(moth.zeros(2), apart):log_prob(moth.ones(2)):allclose(
      D.Normal(0, moth.tensor { 2, 3 }):log_prob(1):sum()))
  end)

  it("draws correlated values by its matrix", function()
    moth.manual_seed(3)
    local x = D.MultivariateNormal(loc[1], cov):sample(40000)
    assert.is_true((moth.cov(x:t()) - cov):abs():max():item() < 0.08)
  end)

  it("raises for invalid matrices", function()
    assert.has_error_like(function() D.MultivariateNormal(loc, cov, cov) end, "got two")
    assert.has_error_like(function() D.MultivariateNormal(loc) end,
      "one of covariance_matrix, precision_matrix and scale_tril is needed")
    assert.has_error_like(function() D.MultivariateNormal(loc, moth.ones(3, 3)) end,
      "'covariance_matrix' to 'MultivariateNormal' %(%(..., K%)")
    assert.has_error_like(function() D.MultivariateNormal(loc, cov:triu()) end,
      "symmetric matrices are needed")
    assert.has_error_like(function() D.MultivariateNormal(loc, { scale_tril = cov }) end,
      "lower triangles with a positive diagonal are needed")
    assert.has_error_like(function() D.MultivariateNormal(loc, -cov) end,
      "'covariance_matrix' to 'MultivariateNormal' %(f64 %(2, 2%) is not positive%-definite")
    assert.has_error_like(function() D.MultivariateNormal(loc, { precision_matrix = -cov }) end,
      "'precision_matrix' to 'MultivariateNormal' %(f64 %(2, 2%) is not positive%-definite")
  end)
end)

describe("wrapped distributions", function()
  it("Independent sums over dimensions of the batch", function()
    local base = D.Normal(moth.zeros(5, 3), moth.tensor { 1, 2, 3 })
    local d = D.Independent(base, 1)
    assert.equal("(5) (3)", tostring(d.batch_shape) .. " " .. tostring(d.event_shape))
    local x = d:sample(2)
    assert.is_true(d:log_prob(x):equal(base:log_prob(x):sum(-1)))
    assert.is_true(d:entropy():equal(base:entropy():sum(-1)))
    assert.is_true(D.kl_divergence(d, D.Independent(D.Normal(moth.zeros(5, 3), 1), 1))
      :equal(D.kl_divergence(base, D.Normal(moth.zeros(5, 3), 1)):sum(-1)))
    assert.equal("(7, 5)", tostring(d:expand(7, 5):sample().shape:numel() == 105
      and d:expand(7, 5).batch_shape))
    assert.has_error_like(function() D.Independent(base, 3) end,
      "'reinterpreted_batch_ndims' to 'Independent' %(0 to 2 are possible")
  end)

  it("TransformedDistribution has the density of transformed values", function()
    local d = D.TransformedDistribution(D.Normal(0.5, 2), D.ExpTransform())
    local wanted = D.LogNormal(0.5, 2)
    local x = moth.tensor { 0.1, 1, 5 }
    assert.is_true(d:log_prob(x):allclose(wanted:log_prob(x)))
    assert.is_true(d:cdf(x):allclose(wanted:cdf(x)))
    assert.is_true(d:icdf(moth.tensor { 0.2, 0.9 }):allclose(
      wanted:icdf(moth.tensor { 0.2, 0.9 })))
    local turned = D.TransformedDistribution(D.Uniform(0, 1), D.AffineTransform(1, -2))
    assert.is_true(turned:cdf(moth.tensor { -0.5, 0.5 }):allclose(moth.tensor { 0.25, 0.75 }))
    assert.is_true(turned:icdf(0.25):allclose(moth.tensor(-0.5)))
    assert.is_true(turned:log_prob(moth.tensor { 0 }):allclose(moth.tensor { -math.log(2) }))
  end)

  it("have transforms that cache their results if requested", function()
    local x = moth.tensor { 20, -3 }
    for _, t in ipairs { D.TanhTransform { cache_size = 1 }, D.TanhTransform():with_cache(),
      D.ComposeTransform { D.AffineTransform(0, 3, { cache_size = 1 }), D.TanhTransform() }
        :with_cache() } do
      local y = t(x)
      assert.is_true(t.inv(y) == x and t(x) == y)
      assert.is_false(t:with_cache(0).inv(y) == x)
      assert.is_true(t.inv(y * 0.5):isfinite():all():item())
    end
    local mean = moth.tensor({ 30, 0 }, { requires_grad = true }) -- tanh is 1, no derivative
    local policy = D.TransformedDistribution(D.Normal(mean, 1), D.TanhTransform { cache_size = 1 })
    policy:log_prob(policy:rsample()):sum():backward()
    assert.near(2, mean.grad[1]:item(), 1e-5)
    moth.scope(function() policy:rsample() end)
    assert.equal(2, policy:log_prob(policy:rsample()):numel())
    local t = D.TanhTransform { cache_size = 1 }
    local step = moth.capture(function(v)
      local y = t(v)
      return y, t.inv(y)
    end)
    for i = 1, 4 do assert.equal(15 + i, select(2, step(moth.tensor(15 + i))):item()) end
    assert.has_error_like(function() D.TanhTransform(2) end, "'cache_size' .- %(0 or 1 is needed")
  end)

  it("broadcast the base over the sizes of its transforms", function()
    local shift = moth.tensor { 1, 2, 3 }
    local d = D.TransformedDistribution(D.Normal(0, 1), { D.AffineTransform(shift, 1) })
    assert.equal("(3)", tostring(d.batch_shape))
    assert.equal("(2, 3)", tostring(d:rsample(2).shape))
    assert.is_true(d:log_prob(shift):allclose(D.Normal(0, 1):log_prob(moth.zeros(3))))
    assert.equal("(4, 3)", tostring(d:expand(4, 3):sample().shape))
  end)

  it("have transforms with inverses and the right derivatives", function()
    local x = moth.randn(7, { dtype = moth.float64 })
    for _, t in ipairs { D.ExpTransform(), D.SigmoidTransform(), D.TanhTransform(),
        D.AffineTransform(2, -3), D.AffineTransform(0, x:abs() + 1),
        D.ComposeTransform { D.TanhTransform(), D.AffineTransform(1, 5) } } do
      assert.is_true(t.inv(t(x)):allclose(x), tostring(t))
      assert.equal(t, t.inv.inv)
      local leaf = x:clone():requires_grad_()
      local slope = moth.autograd.grad(t(leaf):sum(), leaf)
      slope = type(slope) == "table" and slope[1] or slope
      assert.is_true(t:log_abs_det_jacobian(x, t(x)):allclose(slope:abs():log()), tostring(t))
      assert.is_true(t.inv:log_abs_det_jacobian(t(x), x):allclose(-slope:abs():log()))
    end
    local far = D.TanhTransform().inv(D.TanhTransform()(moth.tensor { 50, -50 }))
    assert.is_true(far:isfinite():all():item())
  end)
end)

describe("moth.distributions raises for", function()
  local function refuses(text, f) assert.has_error_like(f, text) end

  it("invalid parameters and values", function()
    refuses("'scale' to 'Normal' %(numbers above 0 are needed, got f32 %(2%) with %-1",
      function() D.Normal(0, moth.tensor { 1, -1 }) end)
    refuses("'loc' to 'Normal'", function() D.Normal(0 / 0, 1) end)
    refuses("'scale' to 'Normal' %(f32 %(2%) cannot be broadcast with %(3%)",
      function() D.Normal(moth.zeros(3), moth.ones(2)) end)
    refuses("'high' to 'Uniform' %(numbers above low", function() D.Uniform(1, 1) end)
    refuses("either probs or logits are needed, got none", function() D.Bernoulli() end)
    refuses("either probs or logits are needed, got both", function() D.Bernoulli(0.5, 0) end)
    refuses("'probs' to 'Bernoulli' %(numbers from 0 to 1", function() D.Bernoulli(1.5) end)
    refuses("'probs' to 'Categorical' %(at least one dimension", function() D.Categorical(1) end)
    refuses("not all 0", function() D.Categorical(moth.zeros(2, 3)) end)
    refuses("'Normal' has no argument 'scal'; did you mean 'scale'",
      function() D.Normal { loc = 0, scal = 1 } end)
    local d = D.Categorical(moth.ones(2, 3))
    refuses("'value' to 'Categorical.log_prob' %(positions from 1 to 3 are needed, got i64 %(1%) "
      .. "with 0", function() d:log_prob(moth.tensor { 0LL }) end)
    refuses("cannot be broadcast with the batch %(2%)",
      function() d:log_prob(moth.tensor { 1LL, 1LL, 1LL }) end)
    refuses("'value' to 'Normal.log_prob' %(a tensor or a number",
      function() D.Normal(0, 1):log_prob("x") end)
    refuses("'value' to 'OneHotCategorical.log_prob' %(values of %(3%) are needed",
      function() D.OneHotCategorical(moth.ones(3)):log_prob(moth.ones(2)) end)
    refuses("'value' to 'Normal.icdf' %(numbers from 0 to 1",
      function() D.Normal(0, 1):icdf(2) end)
  end)

  it("functions without a closed form, with their name", function()
    refuses("Categorical has no icdf in closed form",
      function() D.Categorical(moth.ones(3)):icdf(0.5) end)
    refuses("no formula for Normal and Cauchy",
      function() D.kl_divergence(D.Normal(0, 1), D.Cauchy(0, 1)) end)
    refuses("'q' to 'kl_divergence' %(a distribution is needed, got 3",
      function() D.kl_divergence(D.Normal(0, 1), 3) end)
  end)

  it("nothing if checks are off", function()
    assert.is_true(D.Normal(0, -1, false):log_prob(1):isnan():item())
    D.set_default_validate_args(false)
    local ok = pcall(D.Normal, 0, -1)
    D.set_default_validate_args(true)
    assert.is_true(ok)
    assert.is_false(pcall(D.Normal, 0, -1))
  end)
end)

describe("a transform without arguments but cache_size", function()
  it("raises for other arguments", function()
    for _, name in ipairs { "ExpTransform", "SigmoidTransform", "TanhTransform" } do
      assert.has_error_like(function() D[name] { cache_sise = 1 } end,
        "'" .. name .. "' has no argument 'cache_sise'")
      assert.has_error_like(function() D[name](1, 2) end, "'" .. name .. "' takes 1 argument")
      assert.equal(name, nn.typename(D[name]()))
    end
  end)
end)

describe("two transformed distributions", function()
  it("have the divergence of their bases, if their transforms are equal", function()
    local function squashed(loc, scale)
      return D.TransformedDistribution(D.Normal(loc, 1),
        {D.TanhTransform(), D.AffineTransform(1, scale)})
    end
    assert.equal(2, D.kl_divergence(squashed(0, 3), squashed(2, 3)):item())
    assert.has_error_like(function() D.kl_divergence(squashed(0, 3), squashed(2, 4)) end,
      "different transforms")
  end)
end)

describe("a user's distribution", function()
  it("needs the functions that it uses, and a divergence may be registered", function()
    local Twice = nn.class("Twice", D.Normal)
    function Twice:log_prob(value) return D.Normal.log_prob(self, value) * 2 end
    local d = Twice(moth.zeros(2), 1)
    assert.is_true(d:log_prob(0):equal(D.Normal(moth.zeros(2), 1):log_prob(0) * 2))
    assert.equal(0, D.kl_divergence(d, D.Normal(0, 1)):sum():item()) -- its base's
    D.register_kl(Twice, D.Normal, function() return 7 end)
    assert.equal(7, D.kl_divergence(d, D.Normal(0, 1)))
    local Alone = nn.class("Alone", D.Distribution)
    function Alone:init() D.Distribution.init(self, { 2 }) end
    assert.has_error_like(function() Alone():sample() end, "Alone has no sample")
    assert.has_error_like(function() return Alone().mean end, "Alone has no mean")
  end)
end)

describe("a recorded step", function()
  it("draws again in every replay and checks nothing", function()
    moth.manual_seed(5)
    local logits = moth.randn(4, 3)
    local step = moth.capture(function(x)
      local d = D.Categorical { logits = x }
      local at = d:sample()
      return at, d:log_prob(at)
    end)
    local seen = {}
    for _ = 1, 12 do
      local at, density = step(logits)
      assert.is_true(density:allclose(D.Categorical { logits = logits }:log_prob(at)))
      seen[table.concat(at:tolist(), " ")] = true
    end
    local count = 0
    for _ in pairs(seen) do count = count + 1 end
    assert.is_true(count > 3)
  end)
end)

