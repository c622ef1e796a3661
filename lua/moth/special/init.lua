--- init.lua -- moth.special: elementwise functions of probability and analysis.
--
--     moth.special.entr(p):sum()      moth.special.ndtri(moth.rand(3))
--
-- Most are ops of the core; this file has the functions composed of several ops.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"

local ops, istensor = bind.ops, require("moth.binding.lib").istensor
local special = {}

-- The ops, by their names here; most names are the same.
local OPS = {expit = "sigmoid", gammaln = "lgamma", psi = "digamma", gammainc = "igamma",
              gammaincc = "igammac", modified_bessel_i0 = "i0",
              modified_bessel_i1 = "special_i1"}
for name in ("digamma erf erfc erfinv exp2 expm1 i0 log1p log_softmax logit logsumexp round sinc "
  .. "softmax xlogy"):gmatch "%S+" do OPS[name] = name end
for name in ("erfcx i0e i1 i1e log_ndtr ndtri"):gmatch "%S+" do OPS[name] = "special_" .. name end

local INPUT = {"tensor", "input", "tensor of any shape"}

-- Converts a number to a float tensor for x.
local function as_tensor(number, x)
  local dtype = x:is_floating_point() and x.dtype or require("moth").get_default_dtype()
  return (ops.full({}, number, dtype, x.device))
end

--- moth.special.entr(p): -p log p.
special.entr = define {
  name = "entr",
  doc = "-input * log(input), the summand of the entropy for this probability; 0 at 0, -math.huge "
    .. "below 0.",
  examples = "moth.rand(2, 3)  -- domain: positive",
  args = {INPUT},
  scoped = true,
  run = function(x)
    local zero = x:eq(0) -- log 0 is infinite, and so is the derivative of sqrt at 0
    local some = ops.where(zero, 1, x)
    local value = ops.where(zero, (x + 0):sqrt(), -ops.xlogy(some, some)) -- + 0: -0 becomes 0
    return (ops.where(x:lt(0), -math.huge, value))
  end,
}

--- moth.special.ndtr(x): the distribution function of the standard normal distribution.
special.ndtr = define {
  name = "ndtr",
  doc = "The distribution function of the standard normal distribution.",
  examples = "moth.randn(2, 3)",
  args = {INPUT},
  scoped = true,
  run = function(x) return (x * -math.sqrt(0.5)):erfc() * 0.5 end,
}

--- moth.special.xlog1py(x, y): x log(1 + y).
special.xlog1py = define {
  name = "xlog1py",
  doc = "input * log(1 + other), and 0 where input is 0.",
  examples = "moth.rand(2, 3), moth.rand(3)  -- domain: positive",
  args = {{"tensor", "input", "a number or a tensor", numbers = true},
           {"tensor", "other", "a number or a tensor", numbers = true}},
  scoped = true,
  run = function(x, y)
    if not istensor(x) and not istensor(y) then
      errors.argument("xlog1py", "input", "at least one tensor is needed, got "
        .. errors.describe(x))
    end
    if not istensor(y) then y = as_tensor(y, x) end
    if not istensor(x) then x = as_tensor(x, y) end
    local none = x:eq(0):logical_and(y:isnan():logical_not())
    return (ops.where(none, 0, x * ops.where(none, 0, y:log1p())))
  end,
}

--- moth.special.zeta(s, q): Hurwitz's zeta function.
special.zeta = define {
  name = "zeta",
  doc = "Hurwitz's zeta function, the sum of (other + k)^-input over k from 0 on. No gradient for "
    .. "`input`.",
  examples = "3, moth.rand(2, 3)  -- domain: positive",
  args = {{"tensor", "input", "the exponent, a number or a tensor", numbers = true},
           {"tensor", "other", "the start of the sum, a number or a tensor", numbers = true}},
  run = function(x, q)
    if not istensor(x) and not istensor(q) then
      errors.argument("zeta", "input", "at least one tensor is needed, got " .. errors.describe(x))
    end
    if not istensor(q) then q = as_tensor(q, x) end
    if not istensor(x) then x = as_tensor(x, q) end
    return (ops.special_zeta(x, q))
  end,
}

-- Name -> the function's name in bessel_of, and its doc.
local BESSEL = {
  bessel_j0 = {"j0", "The Bessel function of the first kind of order 0."},
  bessel_j1 = {"j1", "The Bessel function of the first kind of order 1."},
  bessel_y0 = {"y0", "The Bessel function of the second kind of order 0, for numbers above 0."},
  bessel_y1 = {"y1", "The Bessel function of the second kind of order 1, for numbers above 0."},
  modified_bessel_k0 = {"k0", "The modified Bessel function of the second kind of order 0, for "
    .. "numbers above 0."},
  modified_bessel_k1 = {"k1", "The modified Bessel function of the second kind of order 1, for "
    .. "numbers above 0."},
  scaled_modified_bessel_k0 = {"scaled_k0", "exp(input) times modified_bessel_k0."},
  scaled_modified_bessel_k1 = {"scaled_k1", "exp(input) times modified_bessel_k1."},
  airy_ai = {"airy", "Airy's function Ai; float64 results lose precision as |input|^1.5 grows."},
}
for name, row in pairs(BESSEL) do
  special[name] = define {
    name = name,
    doc = row[2],
    examples = "moth.rand(2, 3)  -- domain: positive",
    args = {INPUT},
    run = function(x) return (ops.bessel_of(x, row[1])) end,
  }
end

--- moth.special.spherical_bessel_j0(x): sin(x) / x.
special.spherical_bessel_j0 = define {
  name = "spherical_bessel_j0",
  doc = "The spherical Bessel function of the first kind of order 0: sin(input) / input, 1 at 0.",
  examples = "moth.rand(2, 3)  -- domain: positive",
  args = {INPUT},
  run = function(x) return (ops.sinc_slope(x, 0)) end,
}

local rows = {}
for family in ("chebyshev_polynomial_* shifted_chebyshev_polynomial_*"):gmatch "%S+" do
  lazy.from(rows, "moth.special.polynomials", (("t u v w"):gsub("%w", function(kind)
    return (family:gsub("*", kind))
  end)))
end
lazy.from(rows, "moth.special.polynomials", "hermite_polynomial_h hermite_polynomial_he "
  .. "laguerre_polynomial_l legendre_polynomial_p")
lazy.from(rows, "moth.functions.pointwise", "multigammaln")
lazy.from(rows, "moth.functions.pointwise", "polygamma")

return (lazy.namespace("moth.special", special, rows, {
  find = function(name) return OPS[name] and bind.as(OPS[name], name) end,
  names = function()
    local list = {}
    for name in pairs(OPS) do list[#list + 1] = name end
    return list
  end,
}))
