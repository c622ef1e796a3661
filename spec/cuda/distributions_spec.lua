-- Distributions whose parameters are on a GPU: their methods return the CPU's values there, and
-- they draw the same numbers.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local D = moth.distributions

describe("on a GPU the distribution", function()
  if not cuda.here then
    pending(cuda.why)
    return
  end

  local vector, triangle = moth.tensor { 0.25, 0.5, 1.5 }, moth.tensor { { 1, 0 }, { 0.5, 2 } }
  local MADE = {
    Pareto = function(at) return D.Pareto(at(vector), 3) end,
    GeneralizedPareto = function(at) return D.GeneralizedPareto(0, 1, at(vector)) end,
    Weibull = function(at) return D.Weibull(at(vector), 1.5) end,
    InverseGamma = function(at) return D.InverseGamma(at(vector), 2) end,
    Kumaraswamy = function(at) return D.Kumaraswamy(2, at(vector)) end,
    ContinuousBernoulli = function(at) return D.ContinuousBernoulli { logits = at(vector) } end,
    VonMises = function(at) return D.VonMises(0, at(vector)) end,
    Binomial = function(at) return D.Binomial { 5, logits = at(vector) } end,
    NegativeBinomial = function(at) return D.NegativeBinomial { 5, logits = at(vector) } end,
    Multinomial = function(at) return D.Multinomial(5, at(vector)) end,
    RelaxedBernoulli = function(at) return D.RelaxedBernoulli { 0.5, logits = at(vector) } end,
    RelaxedOneHotCategorical = function(at) return D.RelaxedOneHotCategorical(0.5, at(vector)) end,
    LogisticNormal = function(at) return D.LogisticNormal(at(vector), 1) end,
    LowRankMultivariateNormal = function(at)
      return D.LowRankMultivariateNormal(at(vector), at(vector):unsqueeze(-1), at(vector))
    end,
    LKJCholesky = function(at) return D.LKJCholesky(3, at(vector)) end,
    Wishart = function(at) return D.Wishart(4, { scale_tril = at(triangle) }) end,
    MixtureSameFamily = function(at)
      return D.MixtureSameFamily(D.Categorical(at(vector)), D.Normal(at(vector), 1))
    end,
  }
  local function host(x) return x end
  local function device(x) return x:to("cuda") end

  for name, make in pairs(MADE) do
    it(name .. " draws and weighs as on the CPU", function()
      local x = {}
      for i, at in ipairs { host, device } do
        moth.manual_seed(5)
        x[i] = make(at):sample(4)
      end
      assert.is_true(x[2].is_cuda)
      assert.is_true(x[2]:cpu():allclose(x[1], 1e-4, 1e-5), name)
      assert.is_true(make(device):log_prob(x[2]):cpu():allclose(make(host):log_prob(x[1]), 1e-3,
        1e-4))
    end)
  end
end)
