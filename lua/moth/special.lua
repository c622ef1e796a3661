--- special.lua -- moth.special: functions of probability and analysis, element by element.
--
--     moth.special.entr(p):sum()      moth.special.ndtri(moth.rand(3))
--
-- Most are ops of the engine; what follows from a few of them stands here.

local bind = require "moth.bind"
local define = require "moth.define"
local errors = require "moth.error"
local lazy = require "moth.lazy"

local ops, istensor = bind.ops, require("moth.lib").istensor
local special = {}

-- The ops, by their names here: those that are the same, and others.
local OPS = { expit = "sigmoid", gammaln = "lgamma", psi = "digamma", gammainc = "igamma",
              gammaincc = "igammac" }
for name in ("digamma erf erfc erfinv exp2 expm1 i0 log1p log_softmax logit logsumexp round sinc "
  .. "softmax xlogy"):gmatch "%S+" do OPS[name] = name end
for name in ("erfcx i0e i1 i1e log_ndtr ndtri"):gmatch "%S+" do OPS[name] = "special_" .. name end

local INPUT = { "tensor", "input", "tensor of any shape" }

--- moth.special.entr(p): -p log p.
special.entr = define {
  name = "entr",
  doc = "-input * log(input): what an event of that probability adds to an entropy; 0 at 0, "
    .. "-math.huge below it.",
  examples = "moth.rand(2, 3)  -- domain: positive",
  args = { INPUT },
  run = function(x)
    return (ops.where(x:lt(0), -math.huge, 0 - ops.xlogy(x, x)))
  end,
}

--- moth.special.ndtr(x): the standard normal distribution up to x.
special.ndtr = define {
  name = "ndtr",
  doc = "The standard normal distribution up to x.",
  examples = "moth.randn(2, 3)",
  args = { INPUT },
  run = function(x) return (x * -math.sqrt(0.5)):erfc() * 0.5 end,
}

--- moth.special.xlog1py(x, y): x log(1 + y).
special.xlog1py = define {
  name = "xlog1py",
  doc = "input * log(1 + other), and 0 where input is 0.",
  examples = "moth.rand(2, 3), moth.rand(3)  -- domain: positive",
  args = { { "tensor", "input", "a number or a tensor", numbers = true },
           { "tensor", "other", "a number or a tensor", numbers = true } },
  run = function(x, y)
    if not istensor(x) and not istensor(y) then
      errors.argument("xlog1py", "input", "at least one tensor is needed, got "
        .. errors.describe(x))
    end
    if not istensor(y) then y = ops.full({}, y, x.dtype, x.device) end
    if not istensor(x) then x = ops.full({}, x, y.dtype, y.device) end
    local none = x:eq(0):logical_and(y:isnan():logical_not())
    return (ops.where(none, 0, x * ops.where(none, 0, y:log1p())))
  end,
}

--- moth.special.zeta(s, q): Hurwitz's zeta.
special.zeta = define {
  name = "zeta",
  doc = "Hurwitz's zeta, the sum of (other + k)^-input over k from 0 on. No gradient reaches "
    .. "`input`.",
  examples = "3, moth.rand(2, 3)  -- domain: positive",
  args = { { "tensor", "input", "the power, a number or a tensor", numbers = true },
           { "tensor", "other", "where the sum begins" } },
  run = function(x, q)
    if not istensor(x) then x = ops.full({}, x, q.dtype, q.device) end
    return (ops.special_zeta(x, q))
  end,
}

local rows = {}
lazy.from(rows, "moth.numbers", "multigammaln")
lazy.from(rows, "moth.composed", "polygamma")

return (lazy.namespace("moth.special", special, rows, {
  find = function(name) return OPS[name] and bind.as(OPS[name], name) end,
  names = function()
    local list = {}
    for name in pairs(OPS) do list[#list + 1] = name end
    return list
  end,
}))
