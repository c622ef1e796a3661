--- crops.lua -- moth.transforms: sizes, crops, borders and flips.

local base = require "moth.transforms.transform"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local draw = require "moth.transforms.draw"
local errors = require "moth.error"
local geometry = require "moth.transforms.geometry"
local kernels = require "moth.transforms.kernels"
local fills = require "moth.transforms.fills"
local maybe = require "moth.transforms.maybe"

local Transform, run = base.Transform, kernels.run
local crops = {}

local INTERPOLATION = {"enum", "interpolation", "between pixels; masks are always nearest",
                       choices = geometry.MODES, default = "bilinear"}
local ANTIALIAS = {"bool", "antialias", "average over all pixels where the result is smaller?",
                   default = true, optional = true}
local SIZE = {"ints", "size", "{height, width}, or a number for both"}
local FILL = {"any", "fill", "value outside the picture: a number, one for each channel, or a "
              .. "table by kind, {image = , mask = }", default = 0, optional = true}
local BORDER = {"enum", "padding_mode", "constant, edge, reflect or symmetric",
                choices = geometry.BORDERS}

-- {height, width} from one or two numbers.
local function pair(self, size)
  return {geometry.pair(class.typename(self), "size", size)}
end

-- ---- Resize ----

local Resize = class("Resize", Transform)
crops.Resize = Resize
Resize.signature = define.signature("Resize", {
  {"ints?", "size", "{height, width}, or one number: the shorter side"}, INTERPOLATION,
  {"int?", "max_size", "limit of the longer side; needs a size of one number, or none"}, ANTIALIAS,
})

--- Resamples to another size. Bytes are computed with integers: the result is torchvision's.
-- @param size           {height, width}, or one number: the shorter side; the ratio is kept
-- @param interpolation  "nearest", "nearest-exact", "bilinear" (default) or "bicubic"; masks are
-- always nearest
-- @param max_size       limit of the longer side
-- @param antialias      average over all pixels where the result is smaller (default true)
function Resize:init(size, interpolation, max_size, antialias)
  if type(size) == "number" then size = {size} end
  geometry.resized_size(1, 1, size, max_size) -- raises if they do not fit
  self.size, self.interpolation = size, interpolation
  self.max_size, self.antialias = max_size, antialias or false
end

function Resize:transform(x, _, kind)
  return (run("resize", kind, x, self.size, self.interpolation, self.max_size, self.antialias))
end

-- ---- crops ----

local CenterCrop = class("CenterCrop", Transform)
crops.CenterCrop = CenterCrop
CenterCrop.signature = define.signature("CenterCrop", {SIZE})

--- The window in the middle. A picture that is too small gets a border of 0.
-- @param size  {height, width}, or a number for both
function CenterCrop:init(size) self.size = pair(self, size) end

function CenterCrop:transform(x, _, kind) return (run("center_crop", kind, x, self.size)) end

local RandomCrop = class("RandomCrop", Transform)
crops.RandomCrop = RandomCrop
RandomCrop.signature = define.signature("RandomCrop", {
  SIZE, {"ints?", "padding", "border that is added first: 1, 2 or 4 numbers, as for Pad"},
  {"bool", "pad_if_needed", "add a border if the picture is too small?", default = false},
  FILL, BORDER,
})

--- A window at a random place.
-- @param size           {height, width}, or a number for both
-- @param padding        border that is added first: 1, 2 or 4 numbers, as for Pad
-- @param pad_if_needed  add a border if the picture is too small (default false)?
-- @param fill           value of the border (default 0)
-- @param padding_mode   "constant" (default), "edge", "reflect" or "symmetric"
function RandomCrop:init(size, padding, pad_if_needed, fill, padding_mode)
  self.size, self.pad_if_needed, self.padding_mode = pair(self, size), pad_if_needed, padding_mode
  self.fill = fills.checked("RandomCrop", fill)
  if padding then
    local left, right, top, bottom = geometry.borders("RandomCrop", padding)
    self.padding = {left, top, right, bottom}
  end
end

function RandomCrop:make_params(parts)
  local height, width = Transform.size_of(parts)
  local left, top, right, bottom = unpack(self.padding or {0, 0, 0, 0})
  local wanted_h, wanted_w = self.size[1], self.size[2]
  height, width = height + top + bottom, width + left + right
  if self.pad_if_needed then
    local more_h, more_w = math.max(wanted_h - height, 0), math.max(wanted_w - width, 0)
    top, bottom, left, right = top + more_h, bottom + more_h, left + more_w, right + more_w
    height, width = height + 2 * more_h, width + 2 * more_w
  end
  if height < wanted_h or width < wanted_w then
    errors.raise(("RandomCrop: the size {%d, %d} is larger than the picture, {%d, %d}%s"):format(
      wanted_h, wanted_w, height, width, self.padding and " with its padding"
      or "; padding or pad_if_needed adds a border"), "E_SHAPE")
  end
  local u = draw.numbers(self.generator, 2)
  return {
    top = draw.whole(u[1], 0, height - wanted_h + 1), height = wanted_h,
    left = draw.whole(u[2], 0, width - wanted_w + 1), width = wanted_w,
    padding = (left ~= 0 or right ~= 0 or top ~= 0 or bottom ~= 0) and {left, top, right, bottom},
  }
end

function RandomCrop:transform(x, p, kind)
  if p.padding then
    x = run("pad", kind, x, p.padding, fills.of(self.fill, kind), self.padding_mode)
  end
  return (run("crop", kind, x, p.top, p.left, p.height, p.width))
end

local RandomResizedCrop = class("RandomResizedCrop", Transform)
crops.RandomResizedCrop = RandomResizedCrop
RandomResizedCrop.signature = define.signature("RandomResizedCrop", {
  SIZE, {"floats", "scale", "limits of the window's part of the area", default = {0.08, 1}},
  {"floats", "ratio", "limits of the ratio of width to height", default = {3 / 4, 4 / 3}},
  INTERPOLATION, ANTIALIAS,
})

local function check_range(fname, name, range)
  if type(range) ~= "table" or #range ~= 2 or range[1] > range[2] or range[1] <= 0 then
    errors.refuse(fname, name, "two numbers above 0 in order, {least, most}, are needed", range)
  end
  return range
end

--- A window of random size and place, resampled to one size.
-- @param size           {height, width} of the result, or a number for both
-- @param scale          limits of the window's part of the area (default {0.08, 1})
-- @param ratio          limits of the ratio of width to height (default {3 / 4, 4 / 3})
-- @param interpolation  "nearest", "nearest-exact", "bilinear" (default) or "bicubic"
-- @param antialias      average over all pixels where the result is smaller (default true)
function RandomResizedCrop:init(size, scale, ratio, interpolation, antialias)
  self.size = pair(self, size)
  self.scale = check_range("RandomResizedCrop", "scale", scale)
  self.ratio = check_range("RandomResizedCrop", "ratio", ratio)
  self.interpolation, self.antialias = interpolation, antialias or false
end

-- The largest window in the middle with a ratio within the limits.
local function middle(height, width, ratio)
  local w, h = width, height
  if width / height < ratio[1] then h = draw.round(w / ratio[1])
  elseif width / height > ratio[2] then w = draw.round(h * ratio[2]) end
  return {top = math.floor((height - h) / 2), left = math.floor((width - w) / 2), height = h,
          width = w}
end

--- Draws a window.
-- @param height, width  of the picture
-- @param scale, ratio   the limits
-- @param generator      optional
-- @return {top = , left = , height = , width = }
function RandomResizedCrop.get_params(height, width, scale, ratio, generator)
  local low, high = math.log(ratio[1]), math.log(ratio[2])
  for _ = 1, 10 do
    local u = draw.numbers(generator, 4)
    local area = height * width * (scale[1] + u[1] * (scale[2] - scale[1]))
    local by = math.exp(low + u[2] * (high - low))
    local w, h = draw.round(math.sqrt(area * by)), draw.round(math.sqrt(area / by))
    if w > 0 and w <= width and h > 0 and h <= height then
      return {top = draw.whole(u[3], 0, height - h + 1), left = draw.whole(u[4], 0, width - w + 1),
              height = h, width = w}
    end
  end
  return middle(height, width, ratio)
end

function RandomResizedCrop:make_params(parts)
  local height, width = Transform.size_of(parts)
  return RandomResizedCrop.get_params(height, width, self.scale, self.ratio, self.generator)
end

function RandomResizedCrop:transform(x, p, kind)
  return (run("resized_crop", kind, x, p.top, p.left, p.height, p.width, self.size,
    self.interpolation, self.antialias))
end

-- ---- lists of crops ----

local function check_pictures(self, parts)
  for _, part in ipairs(parts) do
    if part.kind ~= "image" then
      errors.raise(class.typename(self) .. ": masks and boxes cannot follow", "E_UNSUPPORTED")
    end
  end
end

local FiveCrop = class("FiveCrop", Transform)
crops.FiveCrop = FiveCrop
FiveCrop.signature = define.signature("FiveCrop", {SIZE})

--- A list of five windows: the corners and the middle.
-- @param size  {height, width}, or a number for both
function FiveCrop:init(size) self.size = pair(self, size) end
function FiveCrop:make_params(parts) check_pictures(self, parts) end
function FiveCrop:transform(x) return (run("five_crop", "image", x, self.size)) end

local TenCrop = class("TenCrop", Transform)
crops.TenCrop = TenCrop
TenCrop.signature = define.signature("TenCrop", {
  SIZE, {"bool", "vertical_flip", "flip the rows, not the columns?", default = false},
})

--- A list of ten windows: five, then five of the flipped picture.
-- @param size           {height, width}, or a number for both
-- @param vertical_flip  flip the rows, not the columns (default false)?
function TenCrop:init(size, vertical) self.size, self.vertical_flip = pair(self, size), vertical end
function TenCrop:make_params(parts) check_pictures(self, parts) end
function TenCrop:transform(x)
  return (run("ten_crop", "image", x, self.size, self.vertical_flip))
end

-- ---- borders ----

local Pad = class("Pad", Transform)
crops.Pad = Pad
Pad.signature = define.signature("Pad", {
  {"ints", "padding", "pixels: one number; {left and right, top and bottom}; or {left, top, right, "
    .. "bottom}"}, FILL, BORDER,
})

--- Adds a border.
-- @param padding       one number; {left and right, top and bottom}; or {left, top, right, bottom}
-- @param fill          value of a constant border (default 0): a number, one for each channel, or
-- a table by kind, {image = , mask = }
-- @param padding_mode  "constant" (default), "edge": the edge repeated, "reflect": mirrored without
-- the edge, "symmetric": mirrored with the edge
function Pad:init(padding, fill, padding_mode)
  geometry.borders("Pad", padding)
  self.padding, self.padding_mode = padding, padding_mode
  self.fill = fills.checked("Pad", fill)
end

function Pad:transform(x, _, kind)
  return (run("pad", kind, x, self.padding, fills.of(self.fill, kind), self.padding_mode))
end

-- ---- flips ----

crops.RandomHorizontalFlip = maybe("RandomHorizontalFlip", "horizontal_flip", "Mirrors with a "
  .. "probability: left becomes right.")
crops.RandomVerticalFlip = maybe("RandomVerticalFlip", "vertical_flip", "Mirrors with a "
  .. "probability: top becomes bottom.")

return crops
