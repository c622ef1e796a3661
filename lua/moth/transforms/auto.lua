--- auto.lua -- moth.transforms: AutoAugment, RandAugment, TrivialAugmentWide, AugMix.

local base = require "moth.transforms.transform"
local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local draw = require "moth.transforms.draw"
local errors = require "moth.error"
local fills = require "moth.transforms.fills"
local kernels = require "moth.transforms.kernels"
local pixels = require "moth.transforms.pixels"
local policies = require "moth.transforms.policies"
local warp = require "moth.transforms.warp"

local ops = bind.ops
local Transform, run = base.Transform, kernels.run
local auto = {}

-- ---- operations ----

local function affine(x, o, translate, shear, center)
  return (run("affine", "image", x, 0, translate, 1, shear, o.interpolation, o.fill, center))
end

local function degrees(m) return math.deg(math.atan(m)) end

-- Truncates towards 0.
local function whole(m) return m < 0 and math.ceil(m) or math.floor(m) end

-- By name: function(x, magnitude, options).
local APPLY = {
  Identity = function(x) return x end,
  ShearX = function(x, m, o) return (affine(x, o, {0, 0}, {degrees(m), 0}, {0, 0})) end,
  ShearY = function(x, m, o) return (affine(x, o, {0, 0}, {0, degrees(m)}, {0, 0})) end,
  TranslateX = function(x, m, o) return (affine(x, o, {whole(m), 0}, {0, 0})) end,
  TranslateY = function(x, m, o) return (affine(x, o, {0, whole(m)}, {0, 0})) end,
  Rotate = function(x, m, o)
    return (run("rotate", "image", x, m, o.interpolation, false, nil, o.fill))
  end,
  Brightness = function(x, m) return (run("adjust_brightness", "image", x, 1 + m)) end,
  Color = function(x, m) return (run("adjust_saturation", "image", x, 1 + m)) end,
  Contrast = function(x, m) return (run("adjust_contrast", "image", x, 1 + m)) end,
  Sharpness = function(x, m) return (run("adjust_sharpness", "image", x, 1 + m)) end,
  Posterize = function(x, m) return (run("posterize", "image", x, m)) end,
  Solarize = function(x, m)
    return (run("solarize", "image", x, pixels.largest(x.dtype) * m))
  end,
  AutoContrast = function(x) return (run("autocontrast", "image", x)) end,
  Equalize = function(x) return (run("equalize", "image", x)) end,
  Invert = function(x) return (run("invert", "image", x)) end,
}

-- Magnitude i, from 0 to bins - 1, of an operation; 0 for an operation without a magnitude.
-- @param rule  {first, last, signed =, side = "width" or "height", whole =}
local function magnitude(rule, i, bins, height, width)
  if not rule[1] then return 0 end
  if rule.whole then return draw.round(rule[1] - i / ((bins - 1) / (rule[1] - rule[2]))) end
  local m = rule[1] + (rule[2] - rule[1]) * i / (bins - 1)
  return rule.side and m * (rule.side == "width" and width or height) or m
end

-- ---- the base ----

local Auto = class("AutoAugmentBase", Transform)

local FILL = {"any", "fill", "value outside the picture: a number, or one for each channel; "
              .. "default: 0", optional = true}
local NEAREST = {"enum", "interpolation", "between pixels", choices = warp.MODES}

function Auto:start(interpolation, fill)
  self.interpolation, self.fill = interpolation, fills.checked(class.typename(self), fill)
end

-- Height and width of the only picture.
function Auto:size(parts)
  if #parts ~= 1 or parts[1].kind ~= "image" then
    errors.raise(("%s: a sample with one picture, without masks and boxes, is needed"):format(
      class.typename(self)), "E_UNSUPPORTED")
  end
  local height, width = Transform.size_of(parts)
  return height, width
end

-- One operation with its magnitude, {name, magnitude}; half of the signed ones are negative.
function Auto:drawn(name, rule, i, bins, height, width)
  local m = magnitude(rule, i, bins, height, width)
  if rule.signed and draw.numbers(self.generator, 1)[1] <= 0.5 then m = -m end
  return {name, m}
end

-- Applies a list of operations.
function Auto:applied(x, list)
  local options = {interpolation = self.interpolation, fill = fills.of(self.fill, "image")}
  for _, each in ipairs(list) do x = APPLY[each[1]](x, each[2], options) end
  return x
end

function Auto:transform(x, list) return (self:applied(x, list)) end

-- ---- AutoAugment ----

--- The names of policies.
auto.AutoAugmentPolicy = {IMAGENET = "imagenet", CIFAR10 = "cifar10", SVHN = "svhn"}

local AutoAugment = class("AutoAugment", Auto)
auto.AutoAugment = AutoAugment
AutoAugment.signature = define.signature("AutoAugment", {
  {"enum", "policy", "the data set for which it was found",
    choices = {"imagenet", "cifar10", "svhn"}}, NEAREST, FILL,
})

--- Applies one of 25 pairs of operations at random (Cubuk et al. 2018). For bytes, with 1 or 3
-- channels.
-- @param policy         "imagenet" (default), "cifar10" or "svhn"
-- @param interpolation  "nearest" (default) or "bilinear"
-- @param fill           value outside the picture (default 0)
function AutoAugment:init(policy, interpolation, fill)
  self.policy = policy
  self:start(interpolation, fill)
end

function AutoAugment:make_params(parts)
  local height, width = self:size(parts)
  local pairs_of, list = policies[self.policy], {}
  for _, each in ipairs(pairs_of[draw.integer(self.generator, 1, #pairs_of + 1)]) do
    if draw.numbers(self.generator, 1)[1] <= each[2] then
      list[#list + 1] = self:drawn(each[1], policies.AUTO[each[1]], each[3] or 0, 10, height,
        width)
    end
  end
  return list
end

-- ---- RandAugment, TrivialAugmentWide ----

local RandAugment = class("RandAugment", Auto)
auto.RandAugment = RandAugment
RandAugment.signature = define.signature("RandAugment", {
  {"int", "num_ops", "operations for each picture", default = 2},
  {"int", "magnitude", "their strength, from 0 to num_magnitude_bins - 1", default = 9},
  {"int", "num_magnitude_bins", "the number of strengths", default = 31}, NEAREST, FILL,
})

--- Applies random operations of one strength (Cubuk et al. 2019). For bytes, with 1 or 3 channels.
-- @param num_ops             operations for each picture (default 2)
-- @param magnitude           their strength (default 9), from 0 to num_magnitude_bins - 1
-- @param num_magnitude_bins  the number of strengths (default 31)
-- @param interpolation       "nearest" (default) or "bilinear"
-- @param fill                value outside the picture (default 0)
function RandAugment:init(num_ops, strength, bins, interpolation, fill)
  if num_ops < 0 then
    errors.refuse("RandAugment", "num_ops", "a number from 0 on is needed", num_ops, "E_DOMAIN")
  elseif strength < 0 or strength >= bins then
    errors.refuse("RandAugment", "magnitude", ("a number from 0 to %d is needed"):format(bins - 1),
      strength, "E_DOMAIN")
  end
  self.num_ops, self.magnitude, self.num_magnitude_bins = num_ops, strength, bins
  self:start(interpolation, fill)
end

function RandAugment:make_params(parts)
  local height, width = self:size(parts)
  local list = {}
  for i = 1, self.num_ops do
    local name = policies.RAND_NAMES[draw.integer(self.generator, 1, #policies.RAND_NAMES + 1)]
    list[i] = self:drawn(name, policies.AUTO[name], self.magnitude, self.num_magnitude_bins,
      height, width)
  end
  return list
end

local TrivialAugmentWide = class("TrivialAugmentWide", Auto)
auto.TrivialAugmentWide = TrivialAugmentWide
TrivialAugmentWide.signature = define.signature("TrivialAugmentWide", {
  {"int", "num_magnitude_bins", "the number of strengths", default = 31}, NEAREST, FILL,
})

--- Applies one random operation of random strength (Mueller and Hutter 2021). For bytes, with 1 or
-- 3 channels.
-- @param num_magnitude_bins  the number of strengths (default 31)
-- @param interpolation       "nearest" (default) or "bilinear"
-- @param fill                value outside the picture (default 0)
function TrivialAugmentWide:init(bins, interpolation, fill)
  if bins < 2 then
    errors.refuse("TrivialAugmentWide", "num_magnitude_bins", "a number from 2 on is needed", bins,
      "E_DOMAIN")
  end
  self.num_magnitude_bins = bins
  self:start(interpolation, fill)
end

function TrivialAugmentWide:make_params(parts)
  local height, width = self:size(parts)
  local name = policies.RAND_NAMES[draw.integer(self.generator, 1, #policies.RAND_NAMES + 1)]
  local i = draw.integer(self.generator, 0, self.num_magnitude_bins)
  return {self:drawn(name, policies.WIDE[name], i, self.num_magnitude_bins, height, width)}
end

-- ---- AugMix ----

local AugMix = class("AugMix", Auto)
auto.AugMix = AugMix
AugMix.signature = define.signature("AugMix", {
  {"int", "severity", "strength of the operations, 1 to 10", default = 3},
  {"int", "mixture_width", "the number of chains", default = 3},
  {"int", "chain_depth", "operations in a chain; below 1: 1 to 3 at random", default = -1},
  {"float", "alpha", "parameter of the distributions of the weights", default = 1},
  {"bool", "all_ops", "also brightness, colour, contrast and sharpness?", default = true},
  {"enum", "interpolation", "between pixels", choices = warp.MODES, default = "bilinear"}, FILL,
})

--- Mixes the picture with chains of random operations (Hendrycks et al. 2019). For bytes, with 1 or
-- 3 channels.
-- @param severity       strength of the operations, 1 to 10 (default 3)
-- @param mixture_width  the number of chains (default 3)
-- @param chain_depth    operations in a chain; below 1 (default): 1 to 3 at random
-- @param alpha          parameter of the distributions of the weights (default 1)
-- @param all_ops        also brightness, colour, contrast and sharpness (default true)?
-- @param interpolation  "bilinear" (default) or "nearest"
-- @param fill           value outside the picture (default 0)
function AugMix:init(severity, width, depth, alpha, all_ops, interpolation, fill)
  if severity < 1 or severity > 10 then
    errors.refuse("AugMix", "severity", "a number from 1 to 10 is needed", severity, "E_DOMAIN")
  end
  self.severity, self.mixture_width, self.chain_depth = severity, width, depth
  self.alpha, self.all_ops = alpha, all_ops
  self:start(interpolation, fill)
end

-- n numbers with the sum 1, of a Dirichlet distribution.
local function dirichlet(generator, alpha, n)
  local moth = require "moth"
  local x = ops.standard_gamma(moth.full({n}, alpha, {dtype = moth.float64}), generator):tolist()
  local sum = 0
  for i = 1, n do sum = sum + x[i] end
  for i = 1, n do x[i] = sum > 0 and x[i] / sum or 1 / n end
  return x
end

function AugMix:make_params(parts)
  local height, width = self:size(parts)
  local g, names = self.generator, policies.MIX_NAMES
  local count = self.all_ops and #names or policies.MIX_PARTIAL
  local p = {own = dirichlet(g, self.alpha, 2),
             weights = dirichlet(g, self.alpha, self.mixture_width), chains = {}}
  for k = 1, self.mixture_width do
    local chain = {}
    for i = 1, self.chain_depth > 0 and self.chain_depth or draw.integer(g, 1, 4) do
      local name = names[draw.integer(g, 1, count + 1)]
      chain[i] = self:drawn(name, policies.MIX[name], draw.integer(g, 0, self.severity), 10,
        height, width)
    end
    p.chains[k] = chain
  end
  return p
end

function AugMix:transform(x, p)
  local kind = x.dtype
  local y = x:float() * p.own[1]
  for k, chain in ipairs(p.chains) do
    y = y + self:applied(x, chain):float() * (p.weights[k] * p.own[2])
  end
  return (y:to(kind))
end

return auto
