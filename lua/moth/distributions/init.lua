--- init.lua -- moth.distributions: what can be drawn, how likely it is, how far two of them are
-- apart. Each file is loaded at the first use of one of its names.

local class = require "moth.class"
local lazy = require "moth.lazy"

local rows = {
  Distribution = {"moth.distributions.distribution"},
}

local function from(file, names) lazy.from(rows, "moth.distributions." .. file, names) end

from("continuous", "Normal LogNormal HalfNormal Uniform Exponential Laplace Gumbel Cauchy")
from("discrete", "Bernoulli Geometric Categorical OneHotCategorical")
from("gammas", "Gamma Chi2 Beta Dirichlet StudentT Poisson")
from("multivariate", "MultivariateNormal")
from("wrapped", "Independent TransformedDistribution")
from("transforms", "Transform AffineTransform ExpTransform SigmoidTransform TanhTransform "
  .. "ComposeTransform")
from("constraints", "set_default_validate_args")
from("kl", "kl_divergence register_kl")

return (lazy.namespace("moth.distributions", {}, rows, {
  found = function(value)
    if class.isclass(value) then class.guard(value, "d") end
  end,
}))
