--- warps.lua -- moth.transforms: random rotations, affine maps, perspectives and displacements.

local base = require "moth.transforms.transform"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local draw = require "moth.transforms.draw"
local errors = require "moth.error"
local fills = require "moth.transforms.fills"
local kernels = require "moth.transforms.kernels"
local warp = require "moth.transforms.warp"

local Transform, Maybe, run = base.Transform, base.Maybe, kernels.run
local warps = {}

local FILL = {"any", "fill", "value outside the picture: a number, one for each channel, or a "
              .. "table by kind, {image = , mask = }", default = 0, optional = true}
local NEAREST = {"enum", "interpolation", "between pixels; masks are always nearest",
                 choices = warp.MODES}
local BILINEAR = {"enum", "interpolation", "between pixels; masks are always nearest",
                  choices = warp.MODES, default = "bilinear"}
local CENTER = {"floats?", "center", "{x, y} in pixels from the left upper corner; default: the "
                .. "middle"}
local DEGREES = {"floats", "degrees", "limits of the angle, {least, most}, or d: {-d, d}"}

-- {least, most} from one number or a list of 2 (or `also`) numbers.
local function limits(fname, name, given, also)
  if type(given) == "number" then
    if given < 0 then
      errors.refuse(fname, name, "one number is from 0 on", given, "E_DOMAIN")
    end
    return {-given, given}
  elseif #given == 2 or #given == also then
    return given
  end
  errors.refuse(fname, name, "one number, or {least, most}, is needed", given)
end

-- ---- rotations ----

local RandomRotation = class("RandomRotation", Transform)
warps.RandomRotation = RandomRotation
RandomRotation.signature = define.signature("RandomRotation", {
  DEGREES, NEAREST,
  {"bool", "expand", "enlarge the result so that it contains the whole picture?",
    default = false}, CENTER, FILL,
})

--- Rotates by a random angle, counterclockwise.
-- @param degrees        limits of the angle, {least, most}, or d: {-d, d}
-- @param interpolation  "nearest" (default) or "bilinear"; masks are always nearest
-- @param expand         enlarge the result so that it contains the whole picture (default false)?
-- @param center         {x, y} in pixels from the left upper corner; default: the middle
-- @param fill           value outside (default 0)
function RandomRotation:init(degrees, interpolation, expand, center, fill)
  self.degrees = limits("RandomRotation", "degrees", degrees)
  self.interpolation, self.expand, self.center = interpolation, expand, center
  self.fill = fills.checked("RandomRotation", fill)
end

function RandomRotation:make_params()
  return {angle = draw.uniform(self.generator, self.degrees[1], self.degrees[2])}
end

function RandomRotation:transform(x, p, kind)
  return (run("rotate", kind, x, p.angle, self.interpolation, self.expand, self.center,
    fills.of(self.fill, kind)))
end

-- ---- affine maps ----

local RandomAffine = class("RandomAffine", Transform)
warps.RandomAffine = RandomAffine
RandomAffine.signature = define.signature("RandomAffine", {
  DEGREES, {"floats?", "translate", "largest shift, {across, down}, as part of the sides"},
  {"floats?", "scale", "limits of the factor of the size, {least, most}"},
  {"floats?", "shear", "degrees: d; limits across {least, most}; or also down, four numbers"},
  NEAREST, FILL, CENTER,
})

--- Rotates clockwise, moves, enlarges and shears, each at random.
-- @param degrees        limits of the angle, {least, most}, or d: {-d, d}
-- @param translate      largest shift, {across, down}, as part of the sides, from 0 to 1
-- @param scale          limits of the factor of the size, {least, most}
-- @param shear          degrees: d: {-d, d} across; {least, most} across; or four numbers, also
-- down
-- @param interpolation  "nearest" (default) or "bilinear"; masks are always nearest
-- @param fill           value outside (default 0)
-- @param center         {x, y} in pixels from the left upper corner; default: the middle
function RandomAffine:init(degrees, translate, scale, shear, interpolation, fill, center)
  local name = "RandomAffine"
  self.degrees = limits(name, "degrees", degrees)
  for _, each in ipairs(translate or {}) do
    if each < 0 or each > 1 then
      errors.refuse(name, "translate", "parts from 0 to 1 are needed", each, "E_DOMAIN")
    end
  end
  for _, each in ipairs(scale or {}) do
    if each <= 0 then
      errors.refuse(name, "scale", "factors above 0 are needed", each, "E_DOMAIN")
    end
  end
  if translate and #translate ~= 2 then
    errors.refuse(name, "translate", "two numbers are needed", translate)
  elseif scale and #scale ~= 2 then
    errors.refuse(name, "scale", "two numbers are needed", scale)
  end
  self.translate, self.scale = translate, scale
  self.shear = shear and limits(name, "shear", shear, 4)
  self.interpolation, self.center = interpolation, center
  self.fill = fills.checked(name, fill)
end

function RandomAffine:make_params(parts)
  local height, width = Transform.size_of(parts)
  local function between(low, high) return draw.uniform(self.generator, low, high) end
  local p = {angle = between(self.degrees[1], self.degrees[2]), translate = {0, 0}, scale = 1,
             shear = {0, 0}}
  if self.translate then
    local dx, dy = self.translate[1] * width, self.translate[2] * height
    p.translate = {draw.round(between(-dx, dx)), draw.round(between(-dy, dy))}
  end
  if self.scale then p.scale = between(self.scale[1], self.scale[2]) end
  if self.shear then
    p.shear[1] = between(self.shear[1], self.shear[2])
    if self.shear[3] then p.shear[2] = between(self.shear[3], self.shear[4]) end
  end
  return p
end

function RandomAffine:transform(x, p, kind)
  return (run("affine", kind, x, p.angle, p.translate, p.scale, p.shear, self.interpolation,
    fills.of(self.fill, kind), self.center))
end

-- ---- perspectives ----

local RandomPerspective = class("RandomPerspective", Maybe)
warps.RandomPerspective = RandomPerspective
RandomPerspective.signature = define.signature("RandomPerspective", {
  {"float", "distortion_scale", "how far corners move inwards, 0 to 1", default = 0.5},
  {"float", "p", "the probability", default = 0.5}, BILINEAR, FILL,
})

--- Moves the corners inwards at random, with a probability.
-- @param distortion_scale  how far, from 0 to 1 (default 0.5): 1 is the middle
-- @param p                 the probability (default 0.5)
-- @param interpolation     "bilinear" (default) or "nearest"; masks are always nearest
-- @param fill              value outside (default 0)
function RandomPerspective:init(distortion_scale, p, interpolation, fill)
  Maybe.init(self, p)
  if distortion_scale < 0 or distortion_scale > 1 then
    errors.refuse("RandomPerspective", "distortion_scale", "a number from 0 to 1 is needed",
      distortion_scale, "E_DOMAIN")
  end
  self.distortion_scale, self.interpolation = distortion_scale, interpolation
  self.fill = fills.checked("RandomPerspective", fill)
end

function RandomPerspective:make_params(parts)
  local height, width = Transform.size_of(parts)
  local down = math.floor(self.distortion_scale * math.floor(height / 2)) + 1
  local across = math.floor(self.distortion_scale * math.floor(width / 2)) + 1
  local u = draw.numbers(self.generator, 8)
  local function left(k) return draw.whole(u[k], 0, across) end
  local function right(k) return draw.whole(u[k], width - across, width) end
  local function top(k) return draw.whole(u[k], 0, down) end
  local function bottom(k) return draw.whole(u[k], height - down, height) end
  local from = {{0, 0}, {width - 1, 0}, {width - 1, height - 1}, {0, height - 1}}
  local to = {{left(1), top(2)}, {right(3), top(4)}, {right(5), bottom(6)}, {left(7), bottom(8)}}
  return {coefficients = warp.coefficients(from, to)}
end

function RandomPerspective:transform(x, p, kind)
  return (run("perspective", kind, x, nil, nil, self.interpolation, fills.of(self.fill, kind),
    p.coefficients))
end

-- ---- displacements ----

local ElasticTransform = class("ElasticTransform", Transform)
warps.ElasticTransform = ElasticTransform
ElasticTransform.signature = define.signature("ElasticTransform", {
  {"floats", "alpha", "size of the displacements in pixels: one number, or {across, down}",
    default = 50},
  {"floats", "sigma", "their smoothness in pixels: one number, or {across, down}", default = 5},
  BILINEAR, FILL,
})

local function two(given)
  if type(given) == "number" then return {given, given} end
  return {given[1], given[2] or given[1]}
end

--- Moves each pixel by a smooth random displacement.
-- @param alpha          size of the displacements in pixels (default 50): one number, or {across,
-- down}
-- @param sigma          their smoothness in pixels (default 5): one number, or {across, down}
-- @param interpolation  "bilinear" (default) or "nearest"; masks are always nearest
-- @param fill           value outside (default 0)
function ElasticTransform:init(alpha, sigma, interpolation, fill)
  self.alpha, self.sigma, self.interpolation = two(alpha), two(sigma), interpolation
  self.fill = fills.checked("ElasticTransform", fill)
end

-- Smooth noise, (1, 1, H, W).
local function waves(self, height, width, sigma)
  local moth = require "moth"
  local x = moth.rand(1, 1, height, width, {generator = self.generator, dtype = moth.float32,
    device = "cpu"}) * 2 - 1
  if sigma <= 0 then return x end
  local n = math.floor(8 * sigma + 1)
  n = n % 2 == 0 and n + 1 or n
  return (kernels.run("gaussian_blur", "image", x, {n, n}, self.sigma))
end

function ElasticTransform:make_params(parts)
  local height, width = Transform.size_of(parts)
  local dx = waves(self, height, width, self.sigma[1]) * (self.alpha[1] / width)
  local dy = waves(self, height, width, self.sigma[2]) * (self.alpha[2] / height)
  return {displacement = require("moth").cat({dx, dy}, 2):permute(1, 3, 4, 2)}
end

function ElasticTransform:transform(x, p, kind)
  return (run("elastic", kind, x, p.displacement, self.interpolation, fills.of(self.fill, kind)))
end

return warps
