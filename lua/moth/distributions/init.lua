--- init.lua -- moth.distributions: probability distributions, transforms and KL divergences. Each
-- file is loaded at the first use of one of its names.

local class = require "moth.base.class"
local lazy = require "moth.base.lazy"

local rows = {
  Distribution = {"moth.distributions.distribution"},
  constraints = {"moth.distributions.constraints"},
}

local function from(file, names) lazy.from(rows, "moth.distributions." .. file, names) end

from("continuous", "Normal LogNormal HalfNormal Uniform Exponential Laplace Gumbel Cauchy")
from("discrete", "Bernoulli Geometric Categorical OneHotCategorical")
from("gammas", "Gamma Chi2 Beta Dirichlet StudentT Poisson")
from("tails", "HalfCauchy Pareto GeneralizedPareto Weibull InverseGamma FisherSnedecor")
from("bounded", "Kumaraswamy ContinuousBernoulli VonMises")
from("counts", "Binomial NegativeBinomial Multinomial")
from("relaxed", "RelaxedBernoulli RelaxedOneHotCategorical OneHotCategoricalStraightThrough "
  .. "LogisticNormal")
from("multivariate", "MultivariateNormal LowRankMultivariateNormal")
from("matrices", "LKJCholesky Wishart")
from("mixture", "MixtureSameFamily")
from("family", "ExponentialFamily")
from("wrapped", "Independent TransformedDistribution")
local transforms = {}
for _, names in ipairs {rows, transforms} do -- PyTorch's submodules have them too
  lazy.from(names, "moth.distributions.transforms", "Transform AbsTransform AffineTransform "
    .. "ComposeTransform CumulativeDistributionTransform ExpTransform IndependentTransform "
    .. "PowerTransform SigmoidTransform SoftplusTransform TanhTransform identity_transform")
  lazy.from(names, "moth.distributions.vectors", "CatTransform CorrCholeskyTransform "
    .. "LowerCholeskyTransform PositiveDefiniteTransform ReshapeTransform SoftmaxTransform "
    .. "StackTransform StickBreakingTransform")
end
from("spaces", "biject_to transform_to")
from("constraints", "set_default_validate_args")
from("kl", "kl_divergence register_kl")
local divergences = {}
lazy.from(divergences, "moth.distributions.kl", "kl_divergence register_kl")

local options = {
  found = function(value)
    if class.isclass(value) then class.guard(value, "d") end
  end,
}
local inner = lazy.namespace("moth.distributions.transforms", {}, transforms, options)
return (lazy.namespace("moth.distributions", {
  transforms = inner, kl = lazy.namespace("moth.distributions.kl", {}, divergences),
}, rows, options))
