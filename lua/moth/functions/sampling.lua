--- sampling.lua -- random numbers: normal, binomial, log_normal_, cauchy_.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops = bind.ops
local sampling = {}

local GENERATOR = {"generator", "generator", "random generator; default: the default generator",
                    optional = true}

--- moth.normal(mean, std, size): random numbers of normal distributions, one for each element of
-- mean and std, or a tensor of the shape `size` for two numbers.
sampling.normal = define {
  name = "normal",
  doc = "Random numbers of normal distributions: one for each mean and deviation, or a tensor of "
    .. "`size` of one.",
  examples = "moth.tensor{1, 2}, moth.tensor{0.1, 0.2}\n0, 2, {size = {2, 3}, "
    .. "dtype = moth.float64, device = 'cpu'}\nmoth.tensor{1, 2}, {generator = moth.Generator()}",
  args = {
    {"tensor", "mean", "means, a number or a tensor", numbers = true},
    {"tensor", "std", "standard deviations, a number or a tensor", numbers = true, default = 1},
    {"shape", "size", "the result's shape, if mean and std are numbers", optional = true},
    {"generator", "generator", "random generator; default: the default generator",
      optional = true},
    {"dtype", "dtype", "element type, with `size`; default: the default dtype", optional = true},
    {"device", "device", "the device, with `size`", optional = true},
  },
  scoped = true,
  run = function(mean, std, size, generator, dtype, device)
    local many = lib.istensor(mean) and mean or lib.istensor(std) and std or nil
    if (many == nil) == (size == nil) then
      errors.argument("normal", "size", many and "is only for numbers; mean or std is a tensor"
        or "is needed if mean and std are numbers")
    elseif many and (dtype or device) then
      errors.argument("normal", dtype and "dtype" or "device",
        "is only for numbers; mean or std is a tensor")
    end
    for name, value in pairs {mean = mean, std = std} do
      if type(value) == "boolean" then
        errors.refuse("normal", name, "a number or a tensor is needed", value, "E_TYPE")
      end
    end
    local least = std
    if lib.istensor(std) then
      if std.dtype.name == "bool" then
        errors.refuse("normal", "std", "a number or a tensor of numbers is needed", std, "E_DTYPE")
      end
      least = not lib.capture and std:numel() > 0 and std:min():item() or 0
    end
    if lib.capture and lib.istensor(std) then
      require "moth.capture.tensor_check"(std:ge(0):logical_not(), function()
        errors.argument("normal", "std", "cannot be negative")
      end)
    elseif not (least >= 0) then
      errors.argument("normal", "std", "cannot be negative, got " .. least)
    end
    local autograd = require "moth.autograd"
    return (autograd.no_grad(function()
      local z
      if size then
        z = ops.randn {size = size, generator = generator, dtype = dtype, device = device}
      elseif lib.istensor(mean) and lib.istensor(std) then
        z = ops.randn_like {ops.broadcast_tensors {mean, std}[1], generator = generator}
      else
        z = ops.randn_like {many, generator = generator}
      end
      return z * std + mean
    end))
  end,
}

local binomial_of = bind.as("binomial_of", "binomial")

--- moth.binomial(count, prob, generator): the number of successes in `count` trials.
sampling.binomial = define {
  name = "binomial",
  doc = "Random numbers of binomial distributions: the number of successes in `count` trials, each "
    .. "with probability `prob`.",
  examples = "moth.full({2, 3}, 8), moth.rand(3)  -- domain: prob\n"
    .. "moth.full({2}, 8), moth.rand(2), {generator = moth.Generator()}  -- domain: prob",
  args = {{"tensor", "count", "number of trials, a float tensor"},
           {"tensor", "prob", "probability of success, broadcast with count"},
           {"generator", "generator", "random generator; default: the default generator",
             optional = true}},
  scoped = true,
  run = function(count, prob, generator)
    local both = require("moth.functions.joining").broadcast_tensors(count, prob)
    return (binomial_of(both[1], both[2], generator))
  end,
}

local function need_spread(fname, name, value)
  if value > 0 then return end
  errors.argument(fname, name, "a number above 0 is needed, got " .. value, "E_DOMAIN")
end

-- Writes the result of fn, of a tensor like x without gradients, to x: x loses its history.
local function overwrite(x, fn)
  local drawn = require("moth.autograd").no_grad(function() return fn(ops.empty_like(x)) end)
  return (ops.copy_(x, drawn))
end

--- x:log_normal_(mean, std): fills with exp of normally distributed numbers. @return x
sampling.log_normal_ = define {
  name = "log_normal_",
  doc = "Fills with random numbers whose logarithms are normally distributed.",
  examples = "moth.zeros(3)\nmoth.zeros(3), {mean = 0, std = 0.5, generator = moth.Generator()}",
  args = {
    {"tensor", "input", "float tensor to fill"},
    {"float", "mean", "mean of the logarithms", default = 1},
    {"float", "std", "standard deviation of the logarithms", default = 2},
    GENERATOR,
  },
  run = function(input, mean, std, generator)
    need_spread("log_normal_", "std", std)
    return (overwrite(input, function(y) return y:normal_(mean, std, generator):exp_() end))
  end,
}

--- x:cauchy_(median, sigma): fills with numbers of a Cauchy distribution. @return x
sampling.cauchy_ = define {
  name = "cauchy_",
  doc = "Fills with random numbers of a Cauchy distribution.",
  examples = "moth.zeros(3)\nmoth.zeros(3), {median = 1, sigma = 0.5, "
    .. "generator = moth.Generator()}",
  args = {
    {"tensor", "input", "float tensor to fill"},
    {"float", "median", "the median", default = 0},
    {"float", "sigma", "half the width at half the maximum", default = 1},
    GENERATOR,
  },
  run = function(input, median, sigma, generator)
    need_spread("cauchy_", "sigma", sigma)
    return (overwrite(input, function(y)
      return y:uniform_(-math.pi / 2, math.pi / 2, generator):tan_():mul_(sigma):add_(median)
    end))
  end,
}

return sampling
