--- init.lua -- nn.init: functions that initialize a tensor in place, without gradient, and return
-- it. Random numbers come from the default generator or from the argument `generator`.

local define = require "moth.binding.define"
local errors = require "moth.error"
local fillers = require "moth.nn.initialization.fillers"
local lazy = require "moth.base.lazy"

local init = {}

-- ---- helpers ----

local function moth() return require "moth" end

local skipping = false

--- Calls f(...) with all fillers disabled; nn.utils.skip_init uses it.
function init.skip(f, ...)
  local before = skipping
  skipping = true
  local function finish(ok, ...)
    skipping = before
    if not ok then error((...), 0) end
    return ...
  end
  return finish(pcall(f, ...))
end

-- Calls an in-place method of x under no_grad.
local function fill(x, method, ...)
  if skipping then return x end
  local args, n = {...}, select("#", ...)
  moth().no_grad(function() x[method](x, unpack(args, 1, n)) end)
  return x
end

-- Like fill, with a standard deviation or bound computed from the fan. The fan of an empty tensor
-- may be 0.
local function fill_by_fan(x, method, ...)
  if x:numel() == 0 then return x end
  return fill(x, method, ...)
end

-- Returns fan_in and fan_out: the sizes of dimensions 2 and 1, times the kernel's number of
-- elements.
local function fans(fname, x)
  local shape = x.shape
  if #shape < 2 then
    errors.argument(fname, "tensor", ("has no fan: %s has fewer than 2 dimensions"):format(
      errors.describe(x)), "E_SHAPE")
  end
  local window = 1
  for d = 3, #shape do window = window * shape[d] end
  return shape[2] * window, shape[1] * window
end

local gains = {
  linear = 1, sigmoid = 1, tanh = 5 / 3, relu = math.sqrt(2), selu = 3 / 4, leaky_relu = false,
  conv1d = 1, conv2d = 1, conv3d = 1,
  conv_transpose1d = 1, conv_transpose2d = 1, conv_transpose3d = 1,
}
local gain_names = {}
for name in pairs(gains) do gain_names[#gain_names + 1] = name end
table.sort(gain_names)

local function gain_of(fname, nonlinearity, param)
  local gain = gains[nonlinearity]
  if gain == nil then
    errors.argument(fname, "nonlinearity", ("unknown: '%s'%s"):format(tostring(nonlinearity),
      errors.nearest(tostring(nonlinearity), gain_names)))
  end
  if nonlinearity == "leaky_relu" then
    local slope = param == nil and 0.01 or param
    return math.sqrt(2 / (1 + slope * slope))
  end
  return gain
end

local TENSOR, GENERATOR = fillers.TENSOR, fillers.GENERATOR

-- ---- constants and distributions with given parameters ----

fillers.add(init, {
  {
    name = "uniform_", doc = "Fills with a uniform distribution over [a, b).",
    examples = "moth.empty(3, 5)\nmoth.empty(3, 5), -1, 1",
    args = {TENSOR, {"float", "a", "lower bound", default = 0},
            {"float", "b", "upper bound", default = 1}, GENERATOR},
    run = function(x, a, b, generator)
      return fill(x, "uniform_", a, b, generator)
    end,
  },
  {
    name = "normal_", doc = "Fills with a normal distribution.",
    examples = "moth.empty(3, 5)\nmoth.empty(3, 5), 1, 0.1",
    args = {TENSOR, {"float", "mean", "mean", default = 0},
            {"float", "std", "standard deviation", default = 1}, GENERATOR},
    run = function(x, mean, std, generator)
      return fill(x, "normal_", mean, std, generator)
    end,
  },
  {
    name = "constant_", doc = "Fills with one value.", examples = "moth.empty(3, 5), 0.3",
    args = {TENSOR, {"scalar", "val", "the value"}},
    run = function(x, val) return fill(x, "fill_", val) end,
  },
  {
    name = "ones_", doc = "Fills with 1.", examples = "moth.empty(3, 5)", args = {TENSOR},
    run = function(x) return fill(x, "fill_", 1) end,
  },
  {
    name = "zeros_", doc = "Fills with 0.", examples = "moth.empty(3, 5)", args = {TENSOR},
    run = function(x) return fill(x, "zero_") end,
  },
})

-- ---- distributions scaled by the fan ----

local GAIN = {"float", "gain", "factor of the standard deviation or bound", default = 1,
  bounds = {0}}
local SLOPE = {"float", "a", "negative slope of leaky_relu", default = 0}
local MODE = {"enum", "mode", "the fan by which the weights are scaled", choices = {"fan_in",
  "fan_out"}}
local NONLINEARITY = {"string", "nonlinearity", "the function after the layer",
  default = "leaky_relu"}

local function kaiming_std(fname, x, a, mode, nonlinearity)
  local fan_in, fan_out = fans(fname, x)
  return gain_of(fname, nonlinearity, a) / math.sqrt(mode == "fan_out" and fan_out or fan_in)
end

fillers.add(init, {
  {
    name = "xavier_uniform_",
    doc = "Fills weights uniformly, scaled to keep the variance in the forward and backward pass "
      .. "(Glorot and Bengio, 2010).",
    examples = "moth.empty(3, 5)\nmoth.empty(3, 5), {gain = 2}",
    args = {TENSOR, GAIN, GENERATOR},
    run = function(x, gain, generator)
      local fan_in, fan_out = fans("xavier_uniform_", x)
      local bound = gain * math.sqrt(6 / (fan_in + fan_out))
      return fill_by_fan(x, "uniform_", -bound, bound, generator)
    end,
  },
  {
    name = "xavier_normal_",
    doc = "Fills weights normally, scaled to keep the variance in the forward and backward pass "
      .. "(Glorot and Bengio, 2010).",
    examples = "moth.empty(3, 5)\nmoth.empty(3, 5), {gain = 2}",
    args = {TENSOR, GAIN, GENERATOR},
    run = function(x, gain, generator)
      local fan_in, fan_out = fans("xavier_normal_", x)
      return fill_by_fan(x, "normal_", 0, gain * math.sqrt(2 / (fan_in + fan_out)), generator)
    end,
  },
  {
    name = "kaiming_uniform_",
    doc = "Fills uniformly, scaled to keep the variance constant through layers of ReLUs (He et "
      .. "al., 2015).",
    examples = "moth.empty(3, 5)\n"
      .. "moth.empty(3, 5), {mode = \"fan_out\", nonlinearity = \"relu\"}",
    args = {TENSOR, SLOPE, MODE, NONLINEARITY, GENERATOR},
    run = function(x, a, mode, nonlinearity, generator)
      local bound = math.sqrt(3) * kaiming_std("kaiming_uniform_", x, a, mode, nonlinearity)
      return fill_by_fan(x, "uniform_", -bound, bound, generator)
    end,
  },
  {
    name = "kaiming_normal_",
    doc = "Fills normally, scaled to keep the variance constant through layers of ReLUs (He et "
      .. "al., 2015).",
    examples = "moth.empty(3, 5)\n"
      .. "moth.empty(3, 5), {mode = \"fan_out\", nonlinearity = \"relu\"}",
    args = {TENSOR, SLOPE, MODE, NONLINEARITY, GENERATOR},
    run = function(x, a, mode, nonlinearity, generator)
      return fill_by_fan(x, "normal_", 0,
        kaiming_std("kaiming_normal_", x, a, mode, nonlinearity), generator)
    end,
  },
})

init.calculate_gain = define {
  name = "calculate_gain",
  doc = "The recommended gain of a nonlinearity.",
  examples = "\"tanh\"\n\"leaky_relu\", 0.2", outputs = "gain",
  args = {{"string", "nonlinearity", "for example 'relu', 'tanh', 'leaky_relu', 'linear'"},
          {"float", "param", "negative slope of leaky_relu", optional = true}},
  run = function(nonlinearity, param) return (gain_of("calculate_gain", nonlinearity, param)) end,
}

--- Returns fan_in and fan_out of a weight.
init.fans = fans

--- The default initialization of Linear and the convolutions, as in PyTorch: weights by
-- kaiming_uniform_ with a = sqrt(5), biases uniform within 1 / sqrt(fan_in).
-- @param weight  (out, in, ...)
-- @param bias    (out), or nil
function init.reset(weight, bias)
  init.kaiming_uniform_(weight, math.sqrt(5))
  if bias ~= nil then
    local fan_in = fans("uniform_", weight)
    local bound = fan_in > 0 and 1 / math.sqrt(fan_in) or 0
    init.uniform_(bias, -bound, bound)
  end
end

local others = {}
lazy.from(others, "moth.nn.initialization.shapes", "trunc_normal_ eye_ dirac_ orthogonal_ sparse_")

return (lazy.namespace("moth.nn.init", init, others))
