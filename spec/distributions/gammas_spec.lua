-- Distributions derived from the gamma distribution: values equal PyTorch's, samples agree with
-- them, gradients reach the parameters.

local moth = require "moth"
local D = moth.distributions

local N = 40000
local function f64(list) return moth.tensor(list, {dtype = moth.float64}) end

-- A distribution, values, and PyTorch's results: log_prob, entropy.
local CASES = {
  Gamma = {D.Gamma(f64 {0.5, 3}, 2), f64 {0.25, 1.5},
    {-0.03264417208478221, -0.8027754226637808}, {-0.6025372506459566, 1.154431329803066}},
  Chi2 = {D.Chi2(f64 {1, 4}), f64 {0.5, 2}, {-0.8223649429247001, -1.6931471805599454},
    {0.7837571104739339, 2.270362845461478}},
  Beta = {D.Beta(2, f64 {0.5, 3}), f64 {0.25, 0.75}, {-1.5301353973457812, -0.5753641449035615},
    {-0.7652789553347761, -0.23490664978800035}},
  StudentT = {D.StudentT(f64 {1.5, 5}, 1, 2), f64 {-3, 2},
    {-3.3939011955546623, -1.8081372621229654}, {2.8428066484045944, 2.3206498529743413}},
  Poisson = {D.Poisson(f64 {0.3, 20}), f64 {2, 17}, {-3.4010927892118175, -2.5776247997190467}},
  Dirichlet = {D.Dirichlet(f64 {{0.5, 1, 3}, {2, 2, 2}}), f64 {{0.25, 0.25, 0.5},
    {0.125, 0.375, 0.5}}, {0.4950772667978516, 1.0340737675305385},
    {-1.9322417410261492, -0.9374917427820464}},
}

describe("the distribution", function()
  before_each(function() moth.manual_seed(11) end)

  for name, case in pairs(CASES) do
    local d, values, log_prob, entropy = unpack(case, 1, 4)

    it(name .. " has PyTorch's log_prob and entropy", function()
      assert.is_true(d:log_prob(values):allclose(f64(log_prob), {atol = 1e-12}))
      if entropy then assert.is_true(d:entropy():allclose(f64(entropy), {atol = 1e-12}))
      else assert.error_matches(function() d:entropy() end, "no entropy", 1, true) end
    end)

    it(name .. " has samples of its mean, variance and log_prob", function()
      local x = d:sample(N)
      local spread = (d.variance / N):sqrt()
      local usual = d.variance:isfinite() -- StudentT with few degrees of freedom has none
      local off = ((x:mean(1) - d.mean):abs() / spread):masked_select(usual)
      assert.is_true(off:max():item() < 5)
      if entropy and name ~= "StudentT" then
        assert.is_true((d:log_prob(x):mean(1) + d:entropy()):abs():max():item() < 0.05)
      end
    end)
  end

  it("Gamma has its cdf, which is igamma", function()
    assert.is_true(CASES.Gamma[1]:cdf(f64 {0.25, 1.5}):allclose(
      f64 {0.6826894921370859, 0.5768099188731566}, {atol = 1e-12}))
  end)

  it("passes gradients through samples, once", function()
    local a = moth.full({N}, 2.5, {requires_grad = true})
    D.Gamma(a, 1):rsample():mean():backward()
    assert.near(1, a.grad:sum():item(), 0.03) -- the mean is the shape
    local b = moth.full({N}, 2, {requires_grad = true})
    D.Beta(b, 3):rsample():mean():backward()
    assert.near(3 / 25, b.grad:sum():item(), 0.01) -- the derivative of b / (b + 3)
    local x = D.Gamma(a, 1):rsample():sum()
    assert.error_matches(function()
      moth.autograd.grad(x, a, {create_graph = true}):sum():backward()
    end, "second-order", 1, true)
  end)

  it("Beta and Dirichlet have their mode inside of the support", function()
    local none = 0 / 0
    local beta = D.Beta(f64 {0.3, 1, 0.3, 3, 1, 1.5}, f64 {1.5, 0.2, 0.2, 2, 1, 0.4}).mode
    assert.is_true(beta:allclose(f64 {0, none, 1, 2 / 3, none, 1}, {equal_nan = true}))
    local mode = D.Dirichlet(f64 {{0.3, 0.2, 0.5}, {0.3, 1, 0.5}, {0.5, 2, 3}}).mode
    assert.is_true(mode:allclose(f64 {{1, 0, 0}, {none, none, none}, {0, 1 / 3, 2 / 3}},
      {equal_nan = true}))
  end)

  it("has PyTorch's divergence from another", function()
    local function apart(p, q, wanted)
      assert.is_true(D.kl_divergence(p, q):allclose(f64(wanted), {rtol = 1e-12}))
      local shape = moth.Size(p.batch_shape)
      assert.equal(tostring(shape), tostring(D.kl_divergence(p, q).shape))
    end
    local gamma, chi, beta = D.Gamma(f64 {1.5, 0.7}, 0.5), D.Chi2(f64 {1, 4}),
      D.Beta(f64 {2, 0.5}, 3)
    apart(D.Gamma(f64 {0.5, 3}, 2), gamma, {2.9748043871413135, 0.41053008948211867})
    apart(chi, gamma, {1.2703628454614777, 0.8104868821596738})
    apart(chi, D.Chi2(f64 {3, 0.5}), {1.2703628454614777, 2.0278951111203947})
    apart(beta, D.Beta(f64 {0.5, 4}, 1.5), {0.43648935507745534, 8.11139961784969})
    apart(beta, gamma, {1.8955118496593395, 1.0055490454544092})
    apart(D.Dirichlet(f64 {{0.5, 1, 3}, {2, 2, 2}}), D.Dirichlet(f64 {{1, 1, 1}, {0.5, 3, 2}}),
      {1.239094560466204, 1.453523231981308})
    apart(D.Poisson(f64 {0.3, 20, 0}), D.Poisson(f64 {2, 17, 1}), -- PyTorch's last is nan
      {1.1308640045342355, 0.2503785899554938, 1})
    assert.near(0, D.kl_divergence(D.Beta(2, 3), D.Beta(2, 3)):item(), 1e-6)
  end)

  it("accepts integers as parameters", function()
    assert.equal("(3)", tostring(D.Dirichlet(moth.tensor {1LL, 2LL, 3LL}):sample().shape))
    assert.equal("()", tostring(D.Gamma(moth.tensor(2LL), 1):sample().shape))
  end)

  it("raises for invalid parameters and values", function()
    assert.error_matches(function() D.Gamma(-1, 1) end, "'concentration'", 1, true)
    assert.error_matches(function() D.Dirichlet(moth.tensor(1)) end, "categories", 1, true)
    assert.error_matches(function() D.Dirichlet(moth.tensor {{1, 2}, {0.5, -1}}) end,
      "got f32 (2, 2) with {0.5, -1}", 1, true)
    assert.error_matches(function() D.Poisson(1):log_prob(0.5) end, "integers", 1, true)
    assert.error_matches(function() D.Poisson(1):rsample() end, "no rsample", 1, true)
    assert.equal("(7, 2)", tostring(D.Chi2(3):expand(7, 2):sample().shape))
  end)
end)

it("digamma is -1 / x near 0, on both sides", function()
  local x = f64 {-1e-300, -1e-20, -1e-17, 1e-20, 1e-300}
  assert.is_true((moth.digamma(x) * x):allclose(-moth.ones_like(x), {rtol = 1e-15, atol = 0}))
  -- digamma(1 - x) - digamma(x) = pi / tan(pi x)
  local y = f64 {-1e-10, -1e-4, -0.5, -0.9375, -2.25, -10.75}
  local turned = math.pi / (math.pi * (y - y:round())):tan()
  assert.is_true((moth.digamma(1 - y) - turned):allclose(moth.digamma(y), {rtol = 1e-14}))
end)
