--- dropout.lua -- nn.Dropout and its variants, which zero random elements in training and scale the
-- other elements; also the functions of moth.nn.functional that are composed of ops.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local errors = require "moth.error"
local functional = require "moth.nn.functional"

local dropout = {}

-- ---- functions ----

local function rows(input, inplace)
  return {
    {"tensor", "input", input},
    {"float", "p", "probability that a channel becomes 0", default = 0.5},
    {"bool", "training", "false: the result is the input", default = true},
    {"bool", "inplace", "write the result to the input?", default = inplace},
  }
end

local function done(input, y, inplace)
  return inplace and input:copy_(y) or y
end

local function check_dims(name, input, most, shown)
  local ndim = input:dim()
  if ndim ~= most and ndim ~= most - 1 then
    errors.refuse(name, "input", shown .. " is needed", input, "E_SHAPE")
  end
end

--- Zeros whole channels of sequences (Tompson et al., 2015): (N, C, L) or (C, L).
dropout.dropout1d = define {
  name = "dropout1d",
  doc = "Zeros random channels of sequences with probability p; divides the others by 1 - p.",
  examples = "moth.randn(2, 3, 4)\nmoth.randn(3, 4), {p = 0.2, training = false}",
  args = rows("sequences, (N, C, L) or (C, L)", false),
  scoped = true,
  run = function(input, p, training, inplace)
    check_dims("dropout1d", input, 3, "(N, C, L) or (C, L)")
    local y = functional.dropout2d(input:unsqueeze(-1), p, training):squeeze(-1)
    return (done(input, y, inplace))
  end,
}

--- Zeros whole channels of volumes: (N, C, D, H, W) or (C, D, H, W).
dropout.dropout3d = define {
  name = "dropout3d",
  doc = "Zeros random channels of volumes with probability p; divides the others by 1 - p.",
  examples = "moth.randn(2, 3, 2, 2, 2)\nmoth.randn(3, 2, 2, 2), {p = 0.2, training = false}",
  args = rows("volumes, (N, C, D, H, W) or (C, D, H, W)", false),
  scoped = true,
  run = function(input, p, training, inplace)
    check_dims("dropout3d", input, 5, "(N, C, D, H, W) or (C, D, H, W)")
    local y = functional.dropout2d(input:flatten(-3, -2), p, training):view_as(input)
    return (done(input, y, inplace))
  end,
}

local SATURATED = -1.7580993408473766 -- the limit of selu(x) as x approaches -infinity

-- Alpha dropout with one random decision for each element of a tensor with these sizes.
local function alpha_dropout(fname, input, sizes, p, training, inplace)
  if not (p >= 0 and p <= 1) then
    errors.refuse(fname, "p", "a probability from 0 to 1 is needed", p, "E_DOMAIN")
  end
  if not training or p == 0 then return input end
  if p == 1 then return (done(input, input * 0, inplace)) end
  local a = 1 / math.sqrt((SATURATED * SATURATED * p + 1) * (1 - p))
  local drawn = functional.rand(sizes, {dtype = input.dtype, device = input.device})
  local kept = drawn:ge(p):to(input.dtype)
  local y = input * (kept * a) + ((kept - 1) * (SATURATED * a) + SATURATED * a * p)
  return (done(input, y, inplace))
end

--- Sets random elements to selu's saturation value and keeps mean and variance (Klambauer et al.,
-- 2017).
dropout.alpha_dropout = define {
  name = "alpha_dropout",
  doc = "Dropout that keeps the mean and variance of selu's results.",
  examples = "moth.randn(3, 4), {training = true}\nmoth.randn(3, 4), {p = 0.2}",
  args = {
    {"tensor", "input", "any shape"},
    {"float", "p", "probability that an element is dropped", default = 0.5},
    {"bool", "training", "false: the result is the input", default = false},
    {"bool", "inplace", "write the result to the input?", default = false},
  },
  scoped = true,
  run = function(input, p, training, inplace)
    return (alpha_dropout("alpha_dropout", input, input.shape, p, training, inplace))
  end,
}

--- Sets whole channels to selu's saturation value.
dropout.feature_alpha_dropout = define {
  name = "feature_alpha_dropout",
  doc = "Dropout of whole channels that keeps the mean and variance of selu's results.",
  examples = "moth.randn(2, 3, 4), {training = true}\nmoth.randn(3, 4), {p = 0.2}",
  args = {
    {"tensor", "input", "(N, C, ...)"},
    {"float", "p", "probability that a channel is dropped", default = 0.5},
    {"bool", "training", "false: the result is the input", default = false},
    {"bool", "inplace", "write the result to the input?", default = false},
  },
  scoped = true,
  run = function(input, p, training, inplace)
    if input:dim() < 2 and training then
      errors.refuse("feature_alpha_dropout", "input", "(N, C, ...) is needed", input, "E_SHAPE")
    end
    local sizes = {}
    for d = 1, input:dim() do sizes[d] = d <= 2 and input:size(d) or 1 end
    return (alpha_dropout("feature_alpha_dropout", input, sizes, p, training, inplace))
  end,
}

-- ---- layers ----

-- Dropout zeros single elements; Dropout1d, 2d, 3d whole channels of sequences, images, volumes.
for name, fname in pairs {Dropout = "dropout", Dropout1d = "dropout1d", Dropout2d = "dropout2d",
                          Dropout3d = "dropout3d", AlphaDropout = "alpha_dropout",
                          FeatureAlphaDropout = "feature_alpha_dropout"} do
  local Layer = class(name, Module)
  dropout[name] = Layer

  Layer.signature = define.signature(name, {
    {"float", "p", "probability of a zero", default = 0.5},
    {"bool", "inplace", "write the result to the input?", default = false},
  })

  function Layer:init(p, inplace)
    if not (p >= 0 and p <= 1) then
      errors.refuse(name, "p", "a probability from 0 to 1 is needed", p, "E_DOMAIN")
    end
    self.p, self.inplace = p, inplace
  end

  function Layer:forward(input)
    if not self.training then return input end
    local y = functional[fname](input, self.p, self.training)
    if self.inplace then return (input:copy_(y)) end
    return y
  end
  Module.passing[Layer.forward] = true

  function Layer:extra_repr()
    return ("p=%g, inplace=%s"):format(self.p, tostring(self.inplace))
  end
end

return dropout
