--- geometry.lua -- moth.transforms.functional: sizes, crops, borders and flips.

local bind = require "moth.binding.bind"
local box = require "moth.transforms.boxes"
local define = require "moth.binding.define"
local draw = require "moth.transforms.draw"
local dtype = require "moth.tensor.dtype"
local errors = require "moth.error"
local kernels = require "moth.transforms.kernels"
local values = require "moth.transforms.values"

local ops = bind.ops
local types = dtype.by_name
local geometry = {}

-- ---- helpers ----

local function sides(x)
  local n = x:dim()
  return x:size(n - 1), x:size(n)
end

-- The elements of x at positions of rows and of columns; nil: all.
local function gathered(x, rows, columns)
  local n = x:dim()
  if rows then x = ops.index_select(x, n - 1, rows) end
  if columns then x = ops.index_select(x, n, columns) end
  return x
end

-- x as (N, C, H, W), without a copy if possible; and a function that restores its dimensions.
local function as_batch(x)
  local n = x:dim()
  if n == 4 then return x, function(y) return y end end
  if n == 3 then return ops.unsqueeze(x, 1), function(y) return (ops.squeeze(y, {1})) end end
  if n < 3 then
    errors.raise(("a picture has three dimensions or more, (..., C, H, W), got %s"):format(
      errors.describe(x)), "E_SHAPE")
  end
  local shape = {}
  for i = 1, n do shape[i] = x:size(i) end
  return ops.reshape(x, {-1, shape[n - 2], shape[n - 1], shape[n]}), function(y)
    shape[n - 1], shape[n] = sides(y)
    return (ops.reshape(y, shape))
  end
end
geometry.as_batch = as_batch

-- Subtracts {left, top} from the corners of boxes, and sets the size of their picture.
local function moved(b, left, top, height, width)
  local by = b.format == "XYXY" and {left, top, left, top} or {left, top, 0, 0}
  local data = b.data - require("moth").tensor(by, {dtype = b.data.dtype, device = b.data.device})
  return (box.clamp(values.like(b, data, {canvas_size = {height, width}})))
end

local INPUT = {"object", "inpt", "a picture, (..., C, H, W), a Mask or BoundingBoxes"}
local SIZE = "{height, width}, or a number for both"

-- Height and width from one or two numbers.
local function pair(fname, name, size)
  if type(size) == "number" then return size, size end
  if #size == 1 then return size[1], size[1] end
  if #size == 2 then return size[1], size[2] end
  errors.refuse(fname, name, "height and width are needed", size)
end
geometry.pair = pair

-- ---- sizes ----

geometry.get_size = define {
  name = "get_size",
  doc = "{height, width} of a picture, a mask, or the picture of boxes.",
  examples = "moth.zeros(3, 4, 5)",
  args = {INPUT},
  run = function(x)
    local height, width = values.size(x)
    return {height, width}
  end,
}

geometry.get_dimensions = define {
  name = "get_dimensions",
  doc = "{channels, height, width} of a picture.",
  examples = "moth.zeros(3, 4, 5)",
  args = {INPUT},
  run = function(x)
    local height, width, channels = values.size(x)
    return {channels, height, width}
  end,
}

-- ---- resize ----

local MODES = {"nearest", "nearest-exact", "bilinear", "bicubic"}
local INTERPOLATION = {"enum", "interpolation", "between pixels; masks are always nearest",
                       choices = MODES, default = "bilinear"}
local ANTIALIAS = {"bool", "antialias", "average over all pixels where the result is smaller, with "
                   .. "bilinear and bicubic", default = true, optional = true}
geometry.MODES = MODES

--- The size of a resized picture.
-- @param size      nil, {the shorter side} or {height, width}
-- @param max_size  limit of the longer side, or nil
function geometry.resized_size(height, width, size, max_size)
  if type(size) == "number" then size = {size} end
  if size and #size > 2 then
    errors.refuse("resize", "size", "one or two numbers are needed", size)
  elseif size and #size == 0 then
    errors.refuse("resize", "size", "one number or {height, width} is needed", size, "E_TYPE")
  elseif size and #size == 2 then
    if max_size then
      errors.argument("resize", "max_size", "needs a size of one number, the shorter side")
    end
    return size[1], size[2]
  end
  local short, long = math.min(height, width), math.max(height, width)
  local new_short, new_long
  if not size then
    if not max_size then errors.argument("resize", "size", "size or max_size is needed") end
    new_short, new_long = math.floor(max_size * short / long), max_size
  else
    new_short, new_long = size[1], math.floor(size[1] * long / short)
    if max_size and max_size <= new_short then
      errors.argument("resize", "max_size", ("must be greater than the size of the shorter side, "
        .. "%d, got %d"):format(new_short, max_size), "E_DOMAIN")
    elseif max_size and new_long > max_size then
      new_short, new_long = math.floor(max_size * new_short / new_long), max_size
    end
  end
  if width <= height then return new_long, new_short end
  return new_short, new_long
end

-- The positions that `nearest` reads: an i64 tensor, or nil if it reads every position once.
local function nearest(x, n, wanted, mode)
  if n == wanted then return nil end
  local ramp = ops.arange(1, n + 1, 1, types.float32, x.device):view(1, 1, 1, n)
  return (ops.interpolate(ramp, {1, wanted}, nil, mode):view(wanted):long())
end

-- The matrix (wanted, n) that resamples one side.
local function matrix(x, n, wanted, mode, antialias)
  local one = ops.eye(n, n, x.dtype):view(1, 1, n, n)
  return (ops.picture_resize(one, {wanted, n}, mode, antialias):view(wanted, n):to(x.device))
end

-- Resamples (N, C, H, W) in floating point, with gradients and on any device.
local function resampled(x, height, width, mode, antialias)
  if not antialias then
    return (ops.interpolate(x, {height, width}, nil, mode))
  end
  local rows, columns = matrix(x, x:size(3), height, mode, true),
    matrix(x, x:size(4), width, mode, true)
  return (ops.matmul(ops.matmul(rows, x), columns:t()))
end

-- Converts an f32 result to the dtype of the picture.
local function back(y, kind)
  if y.dtype == kind then return y end
  if kind == types.uint8 then return (y:round():clamp(0, 255):to(kind)) end
  return ((kind.is_floating_point and y or y:round()):to(kind))
end
geometry.back = back

local function resize_image(x, size, mode, max_size, antialias)
  local old_height, old_width = sides(x)
  local height, width = geometry.resized_size(old_height, old_width, size, max_size)
  if height == old_height and width == old_width then return x end
  if height < 1 or width < 1 then
    errors.argument("resize", "size", ("of %d by %d pixels is empty"):format(height, width),
      "E_DOMAIN")
  end
  if mode == "nearest" or mode == "nearest-exact" then
    return (gathered(x, nearest(x, old_height, height, mode), nearest(x, old_width, width, mode)))
  end
  local kind, batch, restore = x.dtype, as_batch(x)
  local plain = kernels.plain(x)
  if plain and (kind == types.uint8
                or antialias and (kind == types.float32 or kind == types.float64)) then
    return (restore(ops.picture_resize(batch, {height, width}, mode, antialias or false)))
  end
  if kind ~= types.float32 and kind ~= types.float64 then batch = batch:float() end
  local y
  if plain and antialias then y = ops.picture_resize(batch, {height, width}, mode, true)
  else y = resampled(batch, height, width, mode, antialias) end
  return (restore(back(y, kind)))
end

local function resize_mask(x, size, mode, max_size)
  return (resize_image(x, size, mode == "nearest-exact" and mode or "nearest", max_size))
end

local function resize_boxes(b, size, _, max_size)
  local old_height, old_width = b.canvas_size[1], b.canvas_size[2]
  local height, width = geometry.resized_size(old_height, old_width, size, max_size)
  if height == old_height and width == old_width then return b end
  local across, down = width / old_width, height / old_height
  local ratios = require("moth").tensor({across, down, across, down}, {device = b.data.device})
  return (values.like(b, (b.data * ratios):to(b.data.dtype), {canvas_size = {height, width}}))
end

kernels.add("resize", {image = resize_image, mask = kernels.of_mask(resize_mask),
                       boxes = resize_boxes})

geometry.resize = define {
  name = "resize",
  doc = "Resamples a picture to another size. Bytes are computed with integers: the result is "
    .. "torchvision's.",
  examples = "moth.rand(3, 8, 6), 4\nmoth.rand(3, 8, 6), {4, 4}\n"
    .. "moth.rand(3, 8, 6), {size = 5, interpolation = 'bicubic', max_size = 6}",
  args = {
    INPUT,
    {"ints?", "size", "{height, width}, or one number: the shorter side"},
    INTERPOLATION,
    {"int?", "max_size", "limit of the longer side; needs a size of one number, or none"},
    ANTIALIAS,
  },
  run = kernels.of("resize"),
}

-- ---- borders ----

--- Left, right, top and bottom from 1, 2 (left and right, top and bottom) or 4 numbers (left, top,
-- right, bottom).
function geometry.borders(fname, padding)
  if type(padding) == "number" then return padding, padding, padding, padding end
  local a, b, c, d = unpack(padding)
  if #padding == 1 then return a, a, a, a end
  if #padding == 2 then return a, a, b, b end
  if #padding == 4 then return a, c, b, d end
  errors.refuse(fname, "padding", "1, 2 or 4 numbers are needed", padding)
end

-- For each element of a side with borders: the position that it copies.
local COPIES = {
  edge = function(i, n) return math.max(1, math.min(i, n)) end,
  reflect = function(i, n) return i < 1 and 2 - i or i > n and 2 * n - i or i end,
  symmetric = function(i, n) return i < 1 and 1 - i or i > n and 2 * n + 1 - i or i end,
}

local function copied(x, n, before, after, mode)
  if before == 0 and after == 0 then return nil end
  local most = mode == "reflect" and n - 1 or mode == "symmetric" and n or math.huge
  if before > most or after > most then
    errors.argument("pad", "padding", ("of mode '%s' is at most %d for %d pixels, got %d"):format(
      mode, most, n, math.max(before, after)), "E_DOMAIN")
  end
  local at = {}
  for i = 1 - before, n + after do at[#at + 1] = COPIES[mode](i, n) end
  return (require("moth").tensor(at, {dtype = types.int64, device = x.device}))
end

-- Sets the borders of a padded picture to a colour.
local function paint(y, fill, left, right, top, bottom)
  local moth = require "moth"
  local colour = moth.tensor(fill, {dtype = y.dtype, device = y.device}):view(-1, 1, 1)
  local n = y:dim()
  local height, width = sides(y)
  local function set(dim, first, count)
    if count > 0 then moth.no_grad(ops.copy_, ops.narrow(y, dim, first, count), colour) end
  end
  set(n - 1, 1, top)
  set(n - 1, height + 1 - bottom, bottom)
  set(n, 1, left)
  set(n, width + 1 - right, right)
  return y
end

local function pad_image(x, padding, fill, mode)
  local left, right, top, bottom = geometry.borders("pad", padding)
  mode = mode or "constant"
  local list = type(fill) == "table" and #fill > 1 and fill
  if mode ~= "constant" then
    if list then
      errors.argument("pad", "fill", "of each channel is for padding_mode = 'constant'")
    end
    local height, width = sides(x)
    return (gathered(x, copied(x, height, top, bottom, mode), copied(x, width, left, right, mode)))
  end
  local value = type(fill) == "table" and fill[1] or fill or 0
  local y = ops.pad(x, {left, right, top, bottom}, "constant", list and 0 or value)
  return list and paint(y, list, math.max(left, 0), math.max(right, 0), math.max(top, 0),
    math.max(bottom, 0)) or y
end

local function pad_mask(x, padding, fill, mode)
  if type(fill) == "table" and #fill > 1 then
    errors.argument("pad", "fill", "of a mask is one number")
  end
  return (pad_image(x, padding, fill, mode))
end

local function pad_boxes(b, padding, _, mode)
  if mode and mode ~= "constant" then
    errors.argument("pad", "padding_mode", ("'%s' is not possible with boxes"):format(mode))
  end
  local left, right, top, bottom = geometry.borders("pad", padding)
  return (moved(b, -left, -top, b.canvas_size[1] + top + bottom, b.canvas_size[2] + left + right))
end

kernels.add("pad", {image = pad_image, mask = kernels.of_mask(pad_mask), boxes = pad_boxes})

local BORDERS = {"constant", "edge", "reflect", "symmetric"}
geometry.BORDERS = BORDERS

geometry.pad = define {
  name = "pad",
  doc = "Adds a border. Negative numbers remove pixels.",
  examples = "moth.rand(3, 4, 5), 1\nmoth.rand(3, 4, 5), {1, 2, 0, 1}, {fill = {.1, .2, .3}}\n"
    .. "moth.rand(3, 4, 5), {2, 1}, {padding_mode = 'reflect'}",
  args = {
    INPUT,
    {"ints", "padding", "pixels: one number; {left and right, top and bottom}; or {left, top, "
      .. "right, bottom}"},
    {"floats?", "fill", "value of a constant border, one or one for each channel; default: 0"},
    {"enum", "padding_mode", "constant: `fill`; edge: the edge repeated; reflect: mirrored without "
      .. "the edge; symmetric: mirrored with the edge", choices = BORDERS},
  },
  run = kernels.of("pad"),
}

-- ---- crops ----

local function crop_image(x, top, left, height, width)
  local n = x:dim()
  local h, w = sides(x)
  if top >= 0 and left >= 0 and top + height <= h and left + width <= w then
    return (ops.narrow(ops.narrow(x, n - 1, top + 1, height), n, left + 1, width))
  end
  -- One side at a time: the part inside the picture, then a border of 0.
  local function cut(y, dim, first, count, size)
    local low, high = math.max(first, 0), math.min(first + count, size)
    if high <= low then low, high = 0, 0 end
    local part = ops.narrow(y, dim, high > low and low + 1 or 1, high - low)
    local before = high > low and low - first or 0
    return part, before, count - before - (high - low)
  end
  local rows, above, below = cut(x, n - 1, top, height, h)
  local part, before, after = cut(rows, n, left, width, w)
  return (ops.pad(part, {before, after, above, below}, "constant", 0))
end

local function crop_boxes(b, top, left, height, width)
  return (moved(b, left, top, height, width))
end

kernels.add("crop", {image = crop_image, mask = kernels.of_mask(crop_image), boxes = crop_boxes})

local TOP = {"int", "top", "rows above the window"}
local LEFT = {"int", "left", "columns to the left of the window"}
local HEIGHT, WIDTH = {"int", "height", "rows of the window"}, {"int", "width", "its columns"}

geometry.crop = define {
  name = "crop",
  doc = "A window of a picture: a view, if the window is inside; outside is 0.",
  examples = "moth.rand(3, 8, 6), 1, 2, 4, 3\nmoth.rand(3, 4, 4), {top = -1, left = 2, height = 4, "
    .. "width = 4}",
  args = {INPUT, TOP, LEFT, HEIGHT, WIDTH},
  run = kernels.of("crop"),
}

local function anchor(height, width, h, w)
  return draw.round((h - height) / 2), draw.round((w - width) / 2)
end

local function center_crop_image(x, size)
  local height, width = pair("center_crop", "output_size", size)
  local h, w = sides(x)
  if height > h or width > w then
    local more_h, more_w = math.max(height - h, 0), math.max(width - w, 0)
    x = ops.pad(x, {math.floor(more_w / 2), math.floor((more_w + 1) / 2), math.floor(more_h / 2),
      math.floor((more_h + 1) / 2)}, "constant", 0)
    h, w = sides(x)
  end
  local top, left = anchor(height, width, h, w)
  return (crop_image(x, top, left, height, width))
end

local function center_crop_boxes(b, size)
  local height, width = pair("center_crop", "output_size", size)
  local top, left = anchor(height, width, b.canvas_size[1], b.canvas_size[2])
  return (moved(b, left, top, height, width))
end

kernels.add("center_crop", {image = center_crop_image, mask = kernels.of_mask(center_crop_image),
                            boxes = center_crop_boxes})

geometry.center_crop = define {
  name = "center_crop",
  doc = "The window in the middle of a picture. A picture that is too small gets a border of 0.",
  examples = "moth.rand(3, 8, 6), 4\nmoth.rand(3, 3, 6), {4, 2}",
  args = {INPUT, {"ints", "output_size", SIZE}},
  run = kernels.of("center_crop"),
}

kernels.add("resized_crop", {
  image = function(x, top, left, height, width, size, mode, antialias)
    return (resize_image(crop_image(x, top, left, height, width), size, mode, nil, antialias))
  end,
  mask = kernels.of_mask(function(x, top, left, height, width, size, mode)
    return (resize_mask(crop_image(x, top, left, height, width), size, mode))
  end),
  boxes = function(b, top, left, height, width, size)
    return (resize_boxes(moved(b, left, top, height, width), size))
  end,
})

geometry.resized_crop = define {
  name = "resized_crop",
  doc = "A window of a picture, resampled to another size: crop, then resize.",
  examples = "moth.rand(3, 8, 6), 1, 2, 6, 3, {4, 4}",
  args = {INPUT, TOP, LEFT, HEIGHT, WIDTH, {"ints", "size", "height and width of the result"},
          INTERPOLATION, ANTIALIAS},
  run = kernels.of("resized_crop"),
}

-- ---- five and ten crops ----

local function five(x, size)
  local height, width = pair("five_crop", "size", size)
  local h, w = sides(x)
  if height > h or width > w then
    errors.argument("five_crop", "size", ("{%d, %d} is larger than the picture, {%d, %d}"):format(
      height, width, h, w), "E_SHAPE")
  end
  return {crop_image(x, 0, 0, height, width), crop_image(x, 0, w - width, height, width),
          crop_image(x, h - height, 0, height, width),
          crop_image(x, h - height, w - width, height, width),
          center_crop_image(x, {height, width})}
end

local function ten(x, size, vertical)
  local list = five(x, size)
  for _, y in ipairs(five(ops.flip(x, {vertical and -2 or -1}), size)) do list[#list + 1] = y end
  return list
end

kernels.add("five_crop", {image = five})
kernels.add("ten_crop", {image = ten})

geometry.five_crop = define {
  name = "five_crop",
  doc = "A list of five windows: the corners (top left, top right, bottom left, bottom right) and "
    .. "the middle.",
  examples = "moth.rand(3, 8, 6), 4",
  args = {INPUT, {"ints", "size", SIZE}},
  outputs = "list",
  run = kernels.of("five_crop"),
}

geometry.ten_crop = define {
  name = "ten_crop",
  doc = "A list of ten windows: those of five_crop, then those of the flipped picture.",
  examples = "moth.rand(3, 8, 6), 4\nmoth.rand(3, 8, 6), 4, {vertical_flip = true}",
  args = {INPUT, {"ints", "size", SIZE},
          {"bool", "vertical_flip", "flip the rows, not the columns?", default = false}},
  outputs = "list",
  run = kernels.of("ten_crop"),
}

-- ---- flips ----

local function hflip(x) return (ops.flip(x, {-1})) end
local function vflip(x) return (ops.flip(x, {-2})) end

-- Mirrors boxes at the middle of a side: 1 is across, 2 is down.
local function mirrored(b, side)
  local s, limit = b.data:unbind(-1), b.canvas_size[side == 1 and 2 or 1]
  local low, high = side, side + 2
  if b.format == "XYXY" then
    s[low], s[high] = limit - s[high], limit - s[low]
  elseif b.format == "XYWH" then s[low] = limit - (s[low] + s[high])
  else s[low] = limit - s[low] end
  return (values.like(b, ops.stack(s, -1)))
end

kernels.add("horizontal_flip", {image = hflip, mask = hflip,
                                boxes = function(b) return (mirrored(b, 1)) end})
kernels.add("vertical_flip", {image = vflip, mask = vflip,
                              boxes = function(b) return (mirrored(b, 2)) end})

geometry.horizontal_flip = define {
  name = "horizontal_flip",
  doc = "Mirrors a picture: left becomes right.",
  examples = "moth.rand(3, 4, 5)",
  args = {INPUT},
  run = kernels.of("horizontal_flip"),
}

geometry.vertical_flip = define {
  name = "vertical_flip",
  doc = "Mirrors a picture: top becomes bottom.",
  examples = "moth.rand(3, 4, 5)",
  args = {INPUT},
  run = kernels.of("vertical_flip"),
}

return geometry
