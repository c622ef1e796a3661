--- pointwise.lua -- functions of each element: ldexp, frexp, float_power, clamp_min, clamp_max,
-- rsub, isreal, mvlgamma, polygamma.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops = bind.ops
local pointwise = {}

local function refuse(fname, arg, wanted, got, code)
  errors.refuse(fname, arg, wanted, got, code or "E_SHAPE")
end

local INPUT = {"tensor", "input", "tensor of any shape"}

local subtract = bind.as("sub", "rsub", {input = "other", other = "input"})

--- moth.ldexp(x, n): x 2^n.
pointwise.ldexp = define {
  name = "ldexp",
  doc = "The input times 2 to the power of another tensor.",
  examples = "moth.randn(2, 3), moth.tensor{1LL, -2LL, 3LL}",
  args = {INPUT, {"tensor", "other", "exponents, broadcast with the input"}},
  scoped = true,
  run = function(input, other)
    return input * ops.pow(2, other:is_floating_point() and other
      or other:to(input:is_floating_point() and input.dtype or require("moth").get_default_dtype()))
  end,
}

--- moth.isreal(x): all true, since there are no complex dtypes.
pointwise.isreal = define {
  name = "isreal",
  doc = "True for each real element: all are real.",
  examples = "moth.randn(2, 3)",
  args = {INPUT},
  run = function(input) return (ops.ones_like(input, require("moth").bool)) end,
}

--- moth.rsub(x, other, alpha): other - alpha x.
pointwise.rsub = define {
  name = "rsub",
  doc = "The other tensor, or number, minus the input: other - alpha * input.",
  examples = "moth.randn(2, 3), 1\nmoth.randn(2, 3), moth.randn(3), {alpha = 2}",
  args = {INPUT, {"tensor", "other", "tensor or number to subtract from", numbers = true},
           {"scalar", "alpha", "factor of the input", default = 1}},
  run = function(input, other, alpha)
    if lib.istensor(other) then return (subtract(other, input, alpha)) end
    return (other - (alpha == 1 and input or input * alpha))
  end,
}

-- x 2^n in two steps: 2^n or its inverse may overflow.
local function scaled(x, n)
  local half = (n * 0.5):floor()
  return x * half:to(x.dtype):exp2() * (n - half):to(x.dtype):exp2()
end

local frexp_of = bind.as("frexp_of", "frexp")

--- moth.frexp(x) -> mantissa, exponent: x is mantissa 2^exponent.
pointwise.frexp = define {
  name = "frexp",
  doc = "Splits the input into mantissa * 2^exponent. The mantissa is 0, or from 1/2 up to, but "
    .. "not including, 1; the exponent is int32. A value that is not finite is its own mantissa.",
  examples = "moth.randn(2, 3)  -- domain: positive",
  outputs = "mantissa, exponent",
  args = {{"tensor", "input", "float tensor of any shape"}},
  scoped = true,
  run = function(input)
    if not input:is_floating_point() then
      refuse("frexp", "input", "a float tensor is needed", input, "E_DTYPE")
    end
    local trace = package.loaded["moth.kernel.trace"]
    if input.device.type == "cpu" and not (trace and trace.reading) then
      local mantissa, exponent = frexp_of(input)
      return mantissa, exponent
    end
    local x = input:detach()
    if x:element_size() < 4 then x = x:float() end
    local plain = x:isfinite():logical_and(x:ne(0))
    local n = ops.where(plain, x:abs():log2():floor() + 1, 0)
    local m = scaled(x, -n):abs() -- log2 may be rounded up or down by one
    n = n + ops.where(plain, m:ge(1):to(n.dtype) - m:lt(0.5):to(n.dtype), 0)
    return (scaled(input, (-n):to(input.dtype))), (n:to(require("moth").int32))
  end,
}

--- moth.mvlgamma(x, p), moth.special.multigammaln(x, p): the logarithm of the multivariate gamma
-- function.
for name in ("mvlgamma multigammaln"):gmatch "%S+" do
  pointwise[name] = define {
    name = name,
    doc = "The logarithm of the multivariate gamma function of dimension p.",
    examples = "moth.rand(2, 3) + 2, 3  -- domain: positive\nmoth.rand(3), 1  -- domain: positive",
    args = {{"tensor", "input", "numbers above (p - 1) / 2"},
             {"int", "p", "from 1 on", bounds = {1, 1e6}}},
    scoped = true,
    run = function(input, p)
      local y = ops.lgamma(input)
      for k = 1, p - 1 do y = y + ops.lgamma(input - k / 2) end
      return y + p * (p - 1) / 4 * math.log(math.pi)
    end,
  }
end

--- moth.float_power(x, exponent): a power, in float64.
pointwise.float_power = define {
  name = "float_power",
  doc = "A power computed in float64, for all dtypes.",
  examples = "moth.rand(2, 3), 1.5  -- domain: positive\n"
    .. "moth.rand(3), moth.rand(2, 3)  -- domain: positive",
  args = {{"tensor", "input", "the base, a number or a tensor", numbers = true},
           {"tensor", "exponent", "a number or a tensor", numbers = true}},
  run = function(input, exponent)
    if not lib.istensor(input) then
      if not lib.istensor(exponent) then
        errors.argument("float_power", "input", "at least one tensor is needed, got "
          .. errors.describe(input), "E_TYPE")
      end
      return (ops.pow(input, exponent:double()))
    end
    if lib.istensor(exponent) then exponent = exponent:double() end
    return (input:double():pow(exponent))
  end,
}

--- moth.polygamma(n, x), x:polygamma(n).
pointwise.polygamma = define {
  name = "polygamma",
  doc = "The n-th derivative of digamma.",
  examples = "1, moth.rand(2, 3)  -- domain: positive",
  args = {{"int", "n", "the order of the derivative, from 0 on"}, {"tensor", "input",
    "tensor of any shape"}},
  run = function(n, input) return (ops.polygamma_of(input, n)) end,
}

--- x:polygamma(n).
pointwise.polygamma_method = define {
  name = "polygamma",
  doc = "The n-th derivative of digamma.",
  examples = "moth.rand(2, 3), 1  -- domain: positive",
  args = {{"tensor", "input", "tensor of any shape"}, {"int", "n",
    "the order of the derivative, from 0 on"}},
  run = function(input, n) return (ops.polygamma_of(input, n)) end,
}

-- Defines clamp with one bound as a function, or its in-place form.
local function bounded(name, bound, beyond, inplace)
  local own, clamp = bind.under(name), inplace and "clamp_" or "clamp"
  return define {
    name = name,
    doc = ("Each element, or the bound where it is %s it%s."):format(beyond,
      inplace and ", in place" or ""),
    examples = "moth.randn(2, 3), 0.5  -- domain: distinct\n"
      .. "moth.randn(2, 3), {" .. bound .. " = moth.randn(3)}  -- domain: distinct",
    args = {
      {"tensor", "input", "tensor of any shape"},
      {"tensor", bound, "the bound, a number or a tensor", numbers = true},
    },
    run = bound == "min" and function(input, min)
      return (own[clamp](input, min))
    end or function(input, max)
      return (own[clamp](input, nil, max))
    end,
  }
end

--- x:clamp_min(min), x:clamp_max(max) and in place: clamp with one bound, which is required.
pointwise.clamp_min = bounded("clamp_min", "min", "below")
pointwise.clamp_max = bounded("clamp_max", "max", "above")
pointwise.clamp_min_ = bounded("clamp_min_", "min", "below", true)
pointwise.clamp_max_ = bounded("clamp_max_", "max", "above", true)

return pointwise
