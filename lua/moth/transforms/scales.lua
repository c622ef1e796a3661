--- scales.lua -- moth.transforms: random sizes and windows for object detection.

local base = require "moth.transforms.transform"
local box = require "moth.transforms.boxes"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local draw = require "moth.transforms.draw"
local errors = require "moth.error"
local fills = require "moth.transforms.fills"
local geometry = require "moth.transforms.geometry"
local kernels = require "moth.transforms.kernels"
local values = require "moth.transforms.values"

local Transform, Maybe, run = base.Transform, base.Maybe, kernels.run
local scales = {}

local INTERPOLATION = {"enum", "interpolation", "between pixels; masks are always nearest",
                       choices = geometry.MODES, default = "bilinear"}
local ANTIALIAS = {"bool", "antialias", "average over all pixels where the result is smaller?",
                   default = true, optional = true}

local function check_limits(fname, name, range, least)
  if #range ~= 2 or range[1] < least or range[1] > range[2] then
    errors.refuse(fname, name, ("{least, most} from %g on is needed"):format(least), range,
      "E_DOMAIN")
  end
  return range
end

-- The `transform` of classes that draw a size.
local function to_size(self, x, p, kind)
  return (run("resize", kind, x, p.size, self.interpolation, nil, self.antialias))
end

-- ---- sizes ----

local RandomResize = class("RandomResize", Transform)
scales.RandomResize = RandomResize
RandomResize.signature = define.signature("RandomResize", {
  {"int", "min_size", "least size of the shorter side"},
  {"int", "max_size", "end of these sizes, not included"}, INTERPOLATION, ANTIALIAS,
})

--- Resamples so that the shorter side has a random size.
-- @param min_size       least size
-- @param max_size       the end, not included
-- @param interpolation  "nearest", "nearest-exact", "bilinear" (default) or "bicubic"
-- @param antialias      average over all pixels where the result is smaller (default true)
function RandomResize:init(min_size, max_size, interpolation, antialias)
  if max_size <= min_size then
    errors.argument("RandomResize", "max_size", ("must be greater than min_size, %d, got %d")
      :format(min_size, max_size), "E_DOMAIN")
  end
  self.min_size, self.max_size = min_size, max_size
  self.interpolation, self.antialias = interpolation, antialias or false
end

function RandomResize:make_params()
  return {size = {draw.integer(self.generator, self.min_size, self.max_size)}}
end
RandomResize.transform = to_size

local RandomShortestSize = class("RandomShortestSize", Transform)
scales.RandomShortestSize = RandomShortestSize
RandomShortestSize.signature = define.signature("RandomShortestSize", {
  {"ints", "min_size", "a size of the shorter side, or a list to choose from"},
  {"int?", "max_size", "limit of the longer side"}, INTERPOLATION, ANTIALIAS,
})

--- Resamples so that the shorter side has one of several sizes.
-- @param min_size       a size of the shorter side, or a list to choose from
-- @param max_size       limit of the longer side
-- @param interpolation  "nearest", "nearest-exact", "bilinear" (default) or "bicubic"
-- @param antialias      average over all pixels where the result is smaller (default true)
function RandomShortestSize:init(min_size, max_size, interpolation, antialias)
  self.min_size = type(min_size) == "number" and {min_size} or min_size
  self.max_size, self.interpolation, self.antialias = max_size, interpolation, antialias or false
end

function RandomShortestSize:make_params(parts)
  local height, width = Transform.size_of(parts)
  local least = self.min_size[draw.integer(self.generator, 1, #self.min_size + 1)]
  local r = least / math.min(height, width)
  if self.max_size then r = math.min(r, self.max_size / math.max(height, width)) end
  return {size = {math.floor(height * r), math.floor(width * r)}}
end
RandomShortestSize.transform = to_size

local ScaleJitter = class("ScaleJitter", Transform)
scales.ScaleJitter = ScaleJitter
ScaleJitter.signature = define.signature("ScaleJitter", {
  {"ints", "target_size", "{height, width}, in which the picture fits at scale 1"},
  {"floats", "scale_range", "limits of the factor", default = {0.1, 2}}, INTERPOLATION, ANTIALIAS,
})

--- Resamples to fit into a size, times a random factor (Ghiasi et al. 2021).
-- @param target_size    {height, width}, in which the picture fits at factor 1
-- @param scale_range    limits of the factor (default {0.1, 2})
-- @param interpolation  "nearest", "nearest-exact", "bilinear" (default) or "bicubic"
-- @param antialias      average over all pixels where the result is smaller (default true)
function ScaleJitter:init(target_size, scale_range, interpolation, antialias)
  self.target_size = {geometry.pair("ScaleJitter", "target_size", target_size)}
  self.scale_range = check_limits("ScaleJitter", "scale_range", scale_range, 0)
  self.interpolation, self.antialias = interpolation, antialias or false
end

function ScaleJitter:make_params(parts)
  local height, width = Transform.size_of(parts)
  local r = math.min(self.target_size[2] / height, self.target_size[1] / width)
    * draw.uniform(self.generator, self.scale_range[1], self.scale_range[2])
  return {size = {math.max(1, math.floor(height * r)), math.max(1, math.floor(width * r))}}
end
ScaleJitter.transform = to_size

-- ---- windows ----

local RandomZoomOut = class("RandomZoomOut", Maybe)
scales.RandomZoomOut = RandomZoomOut
RandomZoomOut.signature = define.signature("RandomZoomOut", {
  {"any", "fill", "value of the border: a number, one for each channel, or a table by kind",
    default = 0, optional = true},
  {"floats", "side_range", "limits of the factor of the sides", default = {1, 4}},
  {"float", "p", "the probability", default = 0.5},
})

--- Puts the picture at a random place of a larger one, with a probability (Liu et al. 2016).
-- @param fill        value of the border (default 0)
-- @param side_range  limits of the factor of the sides (default {1, 4})
-- @param p           the probability (default 0.5)
function RandomZoomOut:init(fill, side_range, p)
  Maybe.init(self, p)
  self.fill = fills.checked("RandomZoomOut", fill)
  self.side_range = check_limits("RandomZoomOut", "side_range", side_range, 1)
end

function RandomZoomOut:make_params(parts)
  local height, width = Transform.size_of(parts)
  local u = draw.numbers(self.generator, 3)
  local r = self.side_range[1] + u[1] * (self.side_range[2] - self.side_range[1])
  local more_h, more_w = math.floor(height * r) - height, math.floor(width * r) - width
  local left, top = math.floor(more_w * u[2]), math.floor(more_h * u[3])
  return {padding = {left, top, more_w - left, more_h - top}}
end

function RandomZoomOut:transform(x, p, kind)
  return (run("pad", kind, x, p.padding, fills.of(self.fill, kind)))
end

local RandomIoUCrop = class("RandomIoUCrop", Transform)
scales.RandomIoUCrop = RandomIoUCrop
RandomIoUCrop.signature = define.signature("RandomIoUCrop", {
  {"float", "min_scale", "least part of a side", default = 0.3},
  {"float", "max_scale", "largest part of a side", default = 1},
  {"float", "min_aspect_ratio", "least ratio of width to height", default = 0.5},
  {"float", "max_aspect_ratio", "largest ratio of width to height", default = 2},
  {"floats", "sampler_options", "least IoU of the window with a box, one of these at random; "
    .. "from 1 on: the whole picture", default = {0, 0.1, 0.3, 0.5, 0.7, 0.9, 1}},
  {"int", "trials", "windows that are tried for one option", default = 40},
})

--- A random window that contains the centre of a box, and overlaps a box (Liu et al. 2016). Boxes
-- with their centre outside become empty: SanitizeBoundingBoxes removes them.
-- @param min_scale         least part of a side (default 0.3)
-- @param max_scale         largest part of a side (default 1)
-- @param min_aspect_ratio  least ratio of width to height (default 0.5)
-- @param max_aspect_ratio  largest ratio of width to height (default 2)
-- @param sampler_options   least IoU of the window with a box, one of these at random (default
-- {0, 0.1, 0.3, 0.5, 0.7, 0.9, 1}); from 1 on: the whole picture
-- @param trials            windows that are tried for one option (default 40)
function RandomIoUCrop:init(min_scale, max_scale, min_ratio, max_ratio, options, trials)
  self.min_scale, self.max_scale = min_scale, max_scale
  self.min_aspect_ratio, self.max_aspect_ratio = min_ratio, max_ratio
  self.sampler_options = type(options) == "number" and {options} or options
  self.trials = trials
end

-- A random window, or nil if it does not have the wanted form.
local function window(self, height, width)
  local u = draw.numbers(self.generator, 4)
  local range = self.max_scale - self.min_scale
  local w, h = math.floor(width * (self.min_scale + range * u[1])),
    math.floor(height * (self.min_scale + range * u[2]))
  local ratio = w / h
  if not (ratio >= self.min_aspect_ratio and ratio <= self.max_aspect_ratio) or w < 1 or h < 1 then
    return nil
  end
  return {top = math.floor((height - h) * u[4]), left = math.floor((width - w) * u[3]), height = h,
          width = w}
end

-- The mask of the boxes with their centre in a window, if one overlaps it enough; or nil.
local function overlapping(corners, p, least)
  local s = corners:unbind(-1)
  local cx, cy = (s[1] + s[3]) * 0.5, (s[2] + s[4]) * 0.5
  local inside = cx:gt(p.left):logical_and(cx:lt(p.left + p.width)):logical_and(cy:gt(p.top))
    :logical_and(cy:lt(p.top + p.height))
  if not inside:any():item() then return nil end
  local moth = require "moth"
  local own = moth.tensor({{p.left, p.top, p.left + p.width, p.top + p.height}},
    {dtype = corners.dtype, device = corners.device})
  if moth.ops.box_iou(corners[inside], own):max():item() < least then return nil end
  return inside
end

function RandomIoUCrop:make_params(parts)
  local height, width = Transform.size_of(parts)
  local b
  for _, part in ipairs(parts) do b = b or part.kind == "boxes" and part.value end
  if not b then errors.raise("RandomIoUCrop: the sample has no boxes", "E_TYPE") end
  local corners = box.converted(b.data:float(), b.format, "XYXY")
  local options = self.sampler_options
  while true do
    local least = options[draw.integer(self.generator, 1, #options + 1)]
    if least >= 1 or corners:size(1) == 0 then return {} end
    for _ = 1, self.trials do
      local p = window(self, height, width)
      p = p and {p = p, inside = overlapping(corners, p, least)}
      if p and p.inside then
        p.p.inside = p.inside
        return p.p
      end
    end
  end
end

function RandomIoUCrop:transform(x, p, kind)
  if not p.top then return x end
  local y = run("crop", kind, x, p.top, p.left, p.height, p.width)
  if kind ~= "boxes" then return y end
  return (values.like(y, y.data:masked_fill(p.inside:logical_not():unsqueeze(-1), 0)))
end

return scales
