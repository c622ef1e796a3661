--- augment.lua -- moth.transforms: erased rectangles, and mixtures of the pictures of a batch.

local base = require "moth.transforms.transform"
local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local draw = require "moth.transforms.draw"
local errors = require "moth.error"
local kernels = require "moth.transforms.kernels"
local labels = require "moth.transforms.labels"
local lib = require "moth.binding.lib"

local ops = bind.ops
local Transform, Maybe, run = base.Transform, base.Maybe, kernels.run
local augment = {}

-- ---- RandomErasing ----

local RandomErasing = class("RandomErasing", Maybe)
augment.RandomErasing = RandomErasing
RandomErasing.signature = define.signature("RandomErasing", {
  {"float", "p", "the probability", default = 0.5},
  {"floats", "scale", "limits of the rectangle's part of the area", default = {0.02, 0.33}},
  {"floats", "ratio", "limits of the ratio of height to width", default = {0.3, 3.3}},
  {"any", "value", "a number, a list of one for each channel, or \"random\"", default = 0},
  {"bool", "inplace", "change the picture itself?", default = false},
})

--- Sets a random rectangle to a value, with a probability (Zhong et al. 2017). Masks and boxes do
-- not change.
-- @param p        the probability (default 0.5)
-- @param scale    limits of the rectangle's part of the area (default {0.02, 0.33})
-- @param ratio    limits of the ratio of height to width (default {0.3, 3.3})
-- @param value    a number (default 0), a list of one for each channel, or "random": normal noise
-- @param inplace  change the picture itself (default false)?
function RandomErasing:init(p, scale, ratio, value, inplace)
  Maybe.init(self, p)
  if not lib.is_plain(scale) or not lib.is_plain(ratio) then
    errors.refuse("RandomErasing", lib.is_plain(scale) and "ratio" or "scale",
      "{least, most} is needed", lib.is_plain(scale) and ratio or scale, "E_TYPE")
  elseif #scale ~= 2 or scale[1] < 0 or scale[2] > 1 or scale[1] > scale[2] then
    errors.refuse("RandomErasing", "scale", "{least, most} from 0 to 1 is needed", scale,
      "E_DOMAIN")
  elseif #ratio ~= 2 or ratio[1] <= 0 or ratio[1] > ratio[2] then
    errors.refuse("RandomErasing", "ratio", "{least, most} above 0 is needed", ratio, "E_DOMAIN")
  elseif value ~= "random" and type(value) ~= "number" and not lib.is_plain(value) then
    errors.refuse("RandomErasing", "value", "a number, a list or \"random\" is needed", value,
      "E_TYPE")
  end
  self.scale, self.ratio, self.value, self.inplace = scale, ratio, value, inplace
end

local function check_value(value, channels)
  if type(value) == "table" and #value ~= 1 and #value ~= channels then
    errors.argument("RandomErasing", "value", ("of %d numbers does not fit %d channels"):format(
      #value, channels), "E_SHAPE")
  end
end

function RandomErasing:make_params(parts)
  local height, width, channels = Transform.size_of(parts)
  check_value(self.value, channels)
  local low, high = math.log(self.ratio[1]), math.log(self.ratio[2])
  for _ = 1, 10 do
    local u = draw.numbers(self.generator, 4)
    local area = height * width * (self.scale[1] + u[1] * (self.scale[2] - self.scale[1]))
    local by = math.exp(low + u[2] * (high - low))
    local h, w = draw.round(math.sqrt(area * by)), draw.round(math.sqrt(area / by))
    if h < height and w < width then
      local v = self.value
      if v == "random" then
        v = require("moth").randn(channels, h, w, {generator = self.generator, device = "cpu"})
      end
      return {i = draw.whole(u[3], 0, height - h + 1), j = draw.whole(u[4], 0, width - w + 1),
              h = h, w = w, v = v}
    end
  end
  return {}
end

function RandomErasing:transform(x, p, kind)
  if not p.h then return x end
  return (run("erase", kind, x, p.i, p.j, p.h, p.w, p.v, self.inplace))
end

-- ---- MixUp, CutMix ----

local Mixture = class("Mixture", Transform)

local ARGUMENTS = {
  {"float", "alpha", "parameter of the Beta distribution of the mixture", default = 1},
  {"int?", "num_classes", "the number of classes, for labels that are class numbers"},
  labels.ARGUMENT,
}

function Mixture:start(alpha, num_classes, getter)
  if alpha <= 0 then
    errors.refuse(class.typename(self), "alpha", "a number above 0 is needed", alpha, "E_DOMAIN")
  end
  self.alpha, self.num_classes, self.labels_getter = alpha, num_classes, getter
end

-- Raises unless labels are (N) or (N, classes).
local function check_labels(self, y)
  local name = class.typename(self)
  if not lib.istensor(y) or y:dim() < 1 or y:dim() > 2 then
    errors.raise(("%s: labels of a batch are needed, class numbers (N) or probabilities (N, "
      .. "classes), got %s"):format(name, errors.describe(y)), "E_TYPE")
  elseif y:dim() == 1 and not self.num_classes then
    errors.argument(name, "num_classes", "is needed for labels that are class numbers")
  elseif y:dim() == 2 and self.num_classes and y:size(2) ~= self.num_classes then
    errors.argument(name, "num_classes", ("is %d, but the labels have %d"):format(
      self.num_classes, y:size(2)), "E_SHAPE")
  end
end

-- The part `lam` of x, and the rest of the previous sample of the batch.
local function mixed(x, lam)
  return ops.roll(x, {1}, {1}) * (1 - lam) + x * lam
end

local function mixed_labels(self, y, lam)
  if y:dim() == 1 then y = ops.one_hot(y, self.num_classes) end
  return (mixed(y:is_floating_point() and y or y:float(), lam))
end

function Mixture:forward(...)
  local y = labels.of(class.typename(self), self.labels_getter, ...)
  check_labels(self, y)
  local parts, copy = Transform.parts_of(select("#", ...), ...)
  local n = y:size(1)
  for _, part in ipairs(parts) do
    if part.kind ~= "image" then
      errors.raise(class.typename(self) .. ": masks and boxes cannot be mixed", "E_UNSUPPORTED")
    elseif part.value:dim() ~= 4 or part.value:size(1) ~= n then
      errors.raise(("%s: a batch of %d pictures is needed, (N, C, H, W), got %s"):format(
        class.typename(self), n, errors.describe(part.value)), "E_SHAPE")
    end
  end
  local params = self:make_params(parts)
  for _, part in ipairs(parts) do
    Transform.store(part, self:transform(part.value, params, "image"))
  end
  local function changed(x)
    if x == y then return (mixed_labels(self, y, params.lam)) end
  end
  for i = 1, copy.n do copy[i] = labels.replaced(copy[i], changed) end
  return unpack(copy, 1, copy.n)
end

local MixUp = class("MixUp", Mixture)
augment.MixUp = MixUp
MixUp.signature = define.signature("MixUp", ARGUMENTS)

--- Mixes each picture of a batch, and its label, with the previous one (Zhang et al. 2017). For a
-- collate_fn, or in the loop: x, y = mixup(x, y).
-- @param alpha          parameter of the Beta distribution of the mixture (default 1)
-- @param num_classes    the number of classes, for labels that are class numbers
-- @param labels_getter  function(sample), which returns the labels; default: the second value, or
-- the key `labels`
function MixUp:init(alpha, num_classes, getter) self:start(alpha, num_classes, getter) end

function MixUp:make_params() return {lam = draw.beta(self.generator, self.alpha)} end

function MixUp:transform(x, p) -- luacheck: ignore
  return (mixed(x, p.lam))
end

local CutMix = class("CutMix", Mixture)
augment.CutMix = CutMix
CutMix.signature = define.signature("CutMix", ARGUMENTS)

--- Puts a rectangle of the previous picture of a batch into each picture, and mixes the labels by
-- area (Yun et al. 2019). For a collate_fn, or in the loop: x, y = cutmix(x, y).
-- @param alpha          parameter of the Beta distribution of the area (default 1)
-- @param num_classes    the number of classes, for labels that are class numbers
-- @param labels_getter  function(sample), which returns the labels; default: the second value, or
-- the key `labels`
function CutMix:init(alpha, num_classes, getter) self:start(alpha, num_classes, getter) end

function CutMix:make_params(parts)
  local height, width = Transform.size_of(parts)
  local r = 0.5 * math.sqrt(1 - draw.beta(self.generator, self.alpha))
  local u = draw.numbers(self.generator, 2)
  local x, y = draw.whole(u[1], 0, width), draw.whole(u[2], 0, height)
  local w, h = math.floor(r * width), math.floor(r * height)
  local x1, y1 = math.max(x - w, 0), math.max(y - h, 0)
  local x2, y2 = math.min(x + w, width), math.min(y + h, height)
  return {box = {x1, y1, x2, y2}, lam = 1 - (x2 - x1) * (y2 - y1) / (width * height)}
end

function CutMix:transform(x, p) -- luacheck: ignore
  local x1, y1, x2, y2 = unpack(p.box)
  local y = x:clone()
  if x2 == x1 or y2 == y1 then return y end
  local function window(of) return of:narrow(3, y1 + 1, y2 - y1):narrow(4, x1 + 1, x2 - x1) end
  require("moth").no_grad(ops.copy_, window(y), window(ops.roll(x, {1}, {1})))
  return y
end

return augment
