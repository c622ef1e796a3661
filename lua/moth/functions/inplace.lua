--- inplace.lua -- in-place forms of composed methods: float_power_, igamma_, igammac_, ldexp_,
-- mvlgamma_, polygamma_.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"

local inplace = {}

local INPUT = {"tensor", "input", "the tensor to change"}

-- Defines name_, the in-place form of `name`. Gradients read the input, so it is copied first.
local function form(name, doc, examples, args)
  inplace[name .. "_"] = define {
    name = name .. "_", doc = doc, examples = examples, args = args,
    run = function(input, ...)
      local y = bind.method(name)(input:clone(), ...)
      if y.dtype ~= input.dtype and not input:is_floating_point() then
        errors.argument(name .. "_", "input", ("the result is %s and cannot be written into %s")
          :format(tostring(y.dtype), errors.describe(input)), "E_DTYPE")
      end
      return (input:copy_(y))
    end,
  }
end

form("ldexp", "The tensor times 2 to the power of another tensor, in place.",
  "moth.randn(2, 3), moth.tensor{1LL, -2LL, 3LL}",
  {INPUT, {"tensor", "other", "exponents, broadcast with the input"}})

form("mvlgamma", "The logarithm of the multivariate gamma function of dimension p, in place.",
  "moth.rand(2, 3) + 2, 3  -- domain: positive",
  {INPUT, {"int", "p", "from 1 on"}})

form("polygamma", "The n-th derivative of digamma, in place.",
  "moth.rand(2, 3), 1  -- domain: positive", {INPUT, {"int", "n",
    "the order of the derivative, from 0 on"}})

for name, side in pairs {igamma = "below", igammac = "above"} do
  form(name, "The probability, by the gamma distribution of shape `input`, of a value " .. side
    .. " `other`, in place.", "moth.rand(2, 3) + 1, moth.rand(2, 3)  -- domain: positive",
    {INPUT, {"tensor", "other", "tensor, broadcast with the input"}})
end

--- x:float_power_(exponent): a power of a float64 tensor, in place.
inplace.float_power_ = define {
  name = "float_power_",
  doc = "A power of a float64 tensor, in place: float_power computes in float64.",
  examples = "moth.rand(2, 3, {dtype = moth.float64}), 1.5  -- domain: positive",
  args = {INPUT, {"tensor", "exponent", "a number or a tensor", numbers = true}},
  run = function(input, exponent)
    if input.dtype ~= require("moth").float64 then
      errors.refuse("float_power_", "input", "a float64 tensor is needed", input, "E_DTYPE")
    end
    return (input:pow_(exponent))
  end,
}

return inplace
