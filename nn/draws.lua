--- draws.lua -- functions made of ops that draw: dropout of rows and of volumes, alpha dropout,
-- gumbel_softmax. They are found in moth.nn.functional.

local define = require "moth.define"
local errors = require "moth.error"
local functional = require "moth.nn.functional"

local draws = {}

local function rows(input, inplace)
  return {
    {"tensor", "input", input},
    {"float", "p", "probability that a channel becomes 0", default = 0.5},
    {"bool", "training", "false: the result is the input", default = true},
    {"bool", "inplace", "write the input itself?", default = inplace},
  }
end

local function done(input, y, inplace)
  return inplace and input:copy_(y) or y
end

local function check_dims(name, input, most, shown)
  local ndim = input:dim()
  if ndim ~= most and ndim ~= most - 1 then
    errors.argument(name, "input", ("%s is needed, got %s"):format(shown, errors.describe(input)),
      "E_SHAPE")
  end
end

--- Whole channels of sequences become 0 (Tompson et al., 2015): (N, C, L) or (C, L).
draws.dropout1d = define {
  name = "dropout1d",
  doc = "Random channels of sequences become 0 with probability p, others are divided by 1 - p.",
  examples = "moth.randn(2, 3, 4)\nmoth.randn(3, 4), {p = 0.2, training = false}",
  args = rows("sequences, (N, C, L) or (C, L)", false),
  run = function(input, p, training, inplace)
    check_dims("dropout1d", input, 3, "(N, C, L) or (C, L)")
    local y = functional.dropout2d(input:unsqueeze(-1), p, training):squeeze(-1)
    return (done(input, y, inplace))
  end,
}

--- Whole channels of volumes become 0: (N, C, D, H, W) or (C, D, H, W).
draws.dropout3d = define {
  name = "dropout3d",
  doc = "Random channels of volumes become 0 with probability p, others are divided by 1 - p.",
  examples = "moth.randn(2, 3, 2, 2, 2)\nmoth.randn(3, 2, 2, 2), {p = 0.2, training = false}",
  args = rows("volumes, (N, C, D, H, W) or (C, D, H, W)", false),
  run = function(input, p, training, inplace)
    check_dims("dropout3d", input, 5, "(N, C, D, H, W) or (C, D, H, W)")
    local y = functional.dropout2d(input:flatten(-3, -2), p, training):view_as(input)
    return (done(input, y, inplace))
  end,
}

local SATURATED = -1.7580993408473766 -- what selu tends to far below 0

--- Elements become what selu saturates at, and the result keeps mean and variance (Klambauer et
-- al., 2017).
draws.alpha_dropout = define {
  name = "alpha_dropout",
  doc = "Dropout that keeps mean and variance of what selu gives.",
  examples = "moth.randn(3, 4), {training = true}\nmoth.randn(3, 4), {p = 0.2}",
  args = {
    {"tensor", "input", "any shape"},
    {"float", "p", "probability that an element is dropped", default = 0.5},
    {"bool", "training", "false: the result is the input", default = false},
    {"bool", "inplace", "write the input itself?", default = false},
  },
  run = function(input, p, training, inplace)
    if not (p >= 0 and p <= 1) then
      errors.argument("alpha_dropout", "p", "a probability from 0 to 1 is needed, got "
        .. errors.describe(p), "E_DOMAIN")
    end
    if not training or p == 0 then return input end
    if p == 1 then return (done(input, input * 0, inplace)) end
    local a = 1 / math.sqrt((SATURATED * SATURATED * p + 1) * (1 - p))
    local kept = functional.rand_like(input:detach()):ge(p):to(input.dtype)
    local y = input * (kept * a) + ((kept - 1) * (SATURATED * a) + SATURATED * a * p)
    return (done(input, y, inplace))
  end,
}

--- Samples of a softmax that have gradients (Jang et al., 2017; Maddison et al., 2017).
draws.gumbel_softmax = define {
  name = "gumbel_softmax",
  doc = "Draws from the categories of a softmax, softly, or hard: 1 at one category, with the "
    .. "gradient of the soft result.",
  examples = "moth.randn(3, 4)\nmoth.randn(3, 4), {tau = 0.5, dim = 1}",
  args = {
    {"tensor", "logits", "logarithms of probabilities up to a summand, any shape"},
    {"float", "tau", "temperature: the lower, the nearer to one category", default = 1},
    {"bool", "hard", "1 at one category and 0 elsewhere?", default = false},
    {"float", "eps", "changes nothing, as in PyTorch", default = 1e-10},
    {"dim", "dim", "the dimension of the categories", default = -1},
  },
  run = function(logits, tau, hard, _, dim)
    local noise = functional.empty_like(logits:detach()):exponential_():log()
    local soft = ((logits - noise) / tau):softmax(dim)
    if not hard then return soft end
    local _, index = soft:max(dim, true)
    local y = functional.zeros_like(soft:detach()):scatter(dim, index, 1)
    return y - soft:detach() + soft
  end,
}

return draws
