--- image.lua -- moth.utils: grids of pictures, pictures as files, boxes and masks on pictures, with
-- the names of torchvision.utils.

local bind = require "moth.binding.bind"
local colors = require "moth.utils.colors"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local no_grad = require("moth.autograd").no_grad

local ops = bind.ops
local image = {}

-- ---- grids ----

local GRID = {
  {"int", "nrow", "pictures in a row", default = 8, bounds = {1, 2 ^ 30}},
  {"int", "padding", "pixels between pictures, and around them", default = 2, bounds = {0, 2 ^ 20}},
  {"bool", "normalize", "shift the values to the range 0 to 1", default = false},
  {"floats", "value_range", "{least, most}, which become 0 and 1; default: those of the pictures",
   optional = true},
  {"bool", "scale_each", "normalize each picture by its own range", default = false},
  {"float", "pad_value", "value of the pixels between pictures", default = 0},
}

-- One tensor (n, channels, height, width) with 3 channels where there was one.
local function batch_of(x, fname)
  if lib.is_plain(x) then
    for i, each in ipairs(x) do
      if not lib.istensor(each) then
        errors.refuse(fname, "tensor", ("a tensor is needed at %d"):format(i), each, "E_TYPE")
      end
    end
    if #x == 0 then errors.refuse(fname, "tensor", "at least one picture is needed", x) end
    x = ops.stack(x, 1)
  elseif not lib.istensor(x) then
    errors.refuse(fname, "tensor", "a tensor or a list of tensors is needed", x, "E_TYPE")
  end
  local given = x
  if x:dim() == 2 then x = x:unsqueeze(1) end
  if x:dim() == 3 then x = x:unsqueeze(1) end
  if x:dim() ~= 4 or x:size(1) == 0 then
    errors.refuse(fname, "tensor", "pictures (n, channels, height, width) are needed", given,
      "E_SHAPE")
  end
  if x:size(2) == 1 then x = x:expand(x:size(1), 3, x:size(3), x:size(4)) end
  return x
end

local function to_range(x, range)
  local low = range and range[1] or x:min():item()
  local high = range and range[2] or x:max():item()
  x:clamp_(low, high):sub_(low):div_(math.max(high - low, 1e-5))
end

local function normalized(x, range, each)
  x = x:clone()
  if not each then to_range(x, range) end
  for i = 1, each and x:size(1) or 0 do to_range(x:select(1, i), range) end
  return x
end

local function grid_of(fname, x, nrow, padding, normalize, range, each, pad_value)
  x = batch_of(x, fname)
  if range and #range ~= 2 then
    errors.refuse(fname, "value_range", "{least, most} is needed", range)
  elseif normalize and not x.dtype.is_floating_point then
    errors.refuse(fname, "tensor", "normalize needs pictures of a floating-point dtype", x,
      "E_DTYPE")
  end
  if normalize then x = normalized(x, range, each) end
  local n, channels, height, width = x:size(1), x:size(2), x:size(3), x:size(4)
  if n == 1 then return x:select(1, 1):clone() end
  local across = math.min(nrow, n)
  local down = math.ceil(n / across)
  local h, w = height + padding, width + padding
  local grid = ops.full({channels, h * down + padding, w * across + padding}, pad_value,
    {dtype = x.dtype, device = x.device})
  for i = 0, n - 1 do
    local top, left = math.floor(i / across) * h + padding, i % across * w + padding
    grid:narrow(2, top + 1, height):narrow(3, left + 1, width):copy_(x:select(1, i + 1))
  end
  return grid
end

--- Pictures side by side, as one picture.
-- @param tensor       (n, channels, height, width), or a list of pictures of one size; pictures of
-- one channel become gray ones of 3
-- @param nrow         pictures in a row (default 8)
-- @param padding      pixels between pictures, and around them (default 2)
-- @param normalize    shift the values to the range 0 to 1 (default false)
-- @param value_range  {least, most}, which become 0 and 1 (default: those of the pictures)
-- @param scale_each   normalize each picture by its own range (default false)
-- @param pad_value    value of the pixels between pictures (default 0)
-- @return (channels, height, width); of a single picture without a border
-- Source: torchvision.utils.make_grid
image.make_grid = define {
  name = "make_grid", doc = "Pictures side by side, as one picture (channels, height, width).",
  examples = "moth.rand(10, 3, 8, 8), {nrow = 5}",
  args = {{"any", "tensor", "(n, channels, height, width), or a list of pictures of one size"},
          unpack(GRID)},
  outputs = "grid",
  run = function(...) return (no_grad(grid_of, "make_grid", ...)) end,
}

-- ---- files ----

local function format_of(path, format)
  local name = (format or path:match "%.([%w]+)$" or ""):lower()
  if name == "jpg" then name = "jpeg" end
  if name == "png" or name == "jpeg" then return name end
  errors.argument("save_image", format and "format" or "fp", "'png' or 'jpeg' is needed, got "
    .. (name == "" and "a name without an ending" or errors.shown(name)), "E_UNSUPPORTED")
end

-- uint8 of a picture in floating point from 0 to 1.
local function to_bytes(x)
  local uint8 = require("moth").uint8
  if x.dtype == uint8 then return x end
  return (x:mul(255):add_(0.5):clamp_(0, 255):to("cpu"):to(uint8))
end

--- Writes pictures to one PNG or JPEG file, all or nothing, as make_grid arranges them.
-- @param tensor  a picture, a batch of pictures or a list of them: floating point from 0 to 1, or
-- uint8 from 0 to 255
-- @param fp      the file to write; its ending says the format, .png, .jpg or .jpeg
-- @param format  "png" or "jpeg", instead of the ending
-- The other arguments are those of make_grid. Source: torchvision.utils.save_image
image.save_image = define {
  name = "save_image", doc = "Writes pictures to a PNG or JPEG file, side by side.",
  examples = "moth.rand(3, 8, 8), os.tmpname(), 'png'",
  args = {{"any", "tensor", "a picture, a batch of pictures or a list of them: floating point from "
           .. "0 to 1, or uint8"},
          {"string", "fp", "the file to write: .png, .jpg or .jpeg"},
          {"string", "format", "png or jpeg, instead of the ending", optional = true},
          unpack(GRID)},
  outputs = "",
  run = function(tensor, fp, format, ...)
    local kind = format_of(fp, format)
    local grid = no_grad(grid_of, "save_image", tensor, ...)
    local write = require("moth.io")[kind == "png" and "write_png" or "write_jpeg"]
    write(no_grad(to_bytes, grid), fp)
  end,
}

-- ---- drawing ----

local FILL_ALPHA = 100 -- from 0 to 255; torchvision's value

-- Checks a picture to draw on. @return uint8 (3, height, width), another tensor
local function canvas_of(x, fname, gray)
  local uint8 = require("moth").uint8
  if x.dtype ~= uint8 and not x.dtype.is_floating_point then
    errors.refuse(fname, "image", "uint8 or floating point is needed", x, "E_DTYPE")
  elseif x:dim() ~= 3 or not (x:size(1) == 3 or gray and x:size(1) == 1) then
    errors.refuse(fname, "image", ("one picture (%s3, height, width) is needed"):format(
      gray and "1 or " or ""), x, "E_SHAPE")
  end
  if x:size(1) == 1 then x = x:expand(3, x:size(2), x:size(3)) end
  return x:detach()
end

-- The pixels from column x1 to x2 and row y1 to y2, counted from 0, as far as they exist.
local function part(canvas, x1, y1, x2, y2)
  x1, y1 = math.max(x1, 0), math.max(y1, 0)
  x2, y2 = math.min(x2, canvas:size(3) - 1), math.min(y2, canvas:size(2) - 1)
  if x1 > x2 or y1 > y2 then return nil end
  return canvas:narrow(2, y1 + 1, y2 - y1 + 1):narrow(3, x1 + 1, x2 - x1 + 1)
end

local function paint(canvas, color, x1, y1, x2, y2)
  local pixels = part(canvas, x1, y1, x2, y2)
  for c = 1, pixels and 3 or 0 do pixels:select(1, c):fill_(color[c]) end
end

-- Mixes the color in, with PIL's rounding.
local function blend(canvas, color, x1, y1, x2, y2)
  local pixels = part(canvas, x1, y1, x2, y2)
  for c = 1, pixels and 3 or 0 do
    local plane = pixels:select(1, c)
    local sum = plane:to(require("moth").int32) * (255 - FILL_ALPHA)
      + (color[c] * FILL_ALPHA + 128)
    plane:copy_((sum:bitwise_right_shift(8) + sum):bitwise_right_shift(8))
  end
end

-- The sides of the frame go from the upper to the lower edge. If the edges overlap, the sides go
-- from the lower to the upper edge, as in PIL.
local function draw_box(canvas, box, color, width, fill)
  local x1, y1, x2, y2 = unpack(box)
  if fill then blend(canvas, color, x1, y1, x2, y2) end
  local from, to = y1 + width, y2 - width
  if from > to + 1 then from, to = to + 2, from end
  for i = 0, width - 1 do
    paint(canvas, color, x1, y1 + i, x2, y1 + i)
    paint(canvas, color, x1, y2 - i, x2, y2 - i)
    paint(canvas, color, x1 + i, from, x1 + i, to)
    paint(canvas, color, x2 - i, from, x2 - i, to)
  end
end

-- Converts to uint8 from 0 to 255, as torchvision's to_dtype(uint8, scale = true).
local function bytes_of(x)
  local uint8 = require("moth").uint8
  if x.dtype == uint8 then return x:clone() end
  return (x:mul(255 + 1 - 1e-3):to(uint8))
end

local function boxes_of(boxes)
  if boxes:dim() ~= 2 or boxes:size(2) ~= 4 then
    errors.refuse("draw_bounding_boxes", "boxes", "(n, 4) is needed: left, top, right, bottom",
      boxes, "E_SHAPE")
  end
  local list = boxes:detach():to("cpu"):to(require("moth").float64):tolist()
  for i, box in ipairs(list) do
    for k = 1, 4 do box[k] = box[k] < 0 and math.ceil(box[k]) or math.floor(box[k]) end
    if box[1] > box[3] or box[2] > box[4] then
      errors.argument("draw_bounding_boxes", "boxes", ("row %d is {%g, %g, %g, %g}; left, top, "
        .. "right, bottom in order are needed; moth.ops.box_convert converts others"):format(i,
        unpack(box)))
    end
  end
  return list
end

-- The texts of the boxes, their colors, and the colors behind them (nil: none).
local function labels_of(n, given, box_colors)
  local fname = "draw_bounding_boxes"
  local list = given.labels
  if not list then return nil end
  if type(list) ~= "table" or #list ~= n then
    errors.refuse(fname, "labels", ("a list of %d texts, one for each box, is needed"):format(n),
      list, "E_SHAPE")
  end
  local own = given.label_colors or given.fill_labels and "black"
  local behind = given.fill_labels and given.label_background_colors
  return list, own and colors.list(own, n, fname, "label_colors") or box_colors,
    given.fill_labels and (behind and colors.list(behind, n, fname, "label_background_colors")
    or box_colors) or nil
end

local function draw_labels(canvas, list, given, box_colors)
  local texts, own, behind = labels_of(#list, given, box_colors)
  if not texts then return end
  local label, margin, size = require "moth.utils.label", given.width + 1, given.font_size or 10
  for i, box in ipairs(list) do
    local x, y, text = box[1] + margin, box[2] + margin, tostring(texts[i])
    local wide, high = label.size(text, size)
    if behind then paint(canvas, behind[i], x - 1, y - 1, x + wide + 1, y + high + 1) end
    label.draw(canvas, text, x, y, size, own[i])
  end
end

local function draw_boxes(picture, boxes, given)
  picture = canvas_of(picture, "draw_bounding_boxes", true)
  local list = boxes_of(boxes)
  if #list == 0 then return picture end
  local named = colors.list(given.colors, #list, "draw_bounding_boxes", "colors")
  local canvas = bytes_of(picture):to("cpu"):contiguous()
  for i, box in ipairs(list) do draw_box(canvas, box, named[i], given.width, given.fill) end
  draw_labels(canvas, list, given, named)
  canvas = canvas:to(picture.device)
  if picture.dtype == canvas.dtype then return canvas end
  return canvas:to(picture.dtype):mul_(1 / 255)
end

local COLORS = ": a name, '#rrggbb' or {red, green, blue}, or a list of them; default: "

--- Draws rectangles on a picture.
-- @param image   uint8 (3 or 1, height, width), or floating point from 0 to 1
-- @param boxes   (n, 4): left, top, right and bottom, in pixels from 0 on
-- @param labels  a list of texts, drawn in the upper left corners in a small font of strokes
-- @param colors  a color, or a list with one for each box: a name ("red"), "#rrggbb" or {red,
-- green, blue}; default: colors that differ
-- @param fill    tint the inside (default false)
-- @param width   of the lines, in pixels (default 1)
-- @param font_size  of the labels, in pixels (default 10)
-- @param label_colors  as colors (default: those of the boxes; black if fill_labels)
-- @param label_background_colors  as colors (default: those of the boxes); needs fill_labels
-- @param fill_labels   fill the rectangle behind a label (default false)
-- @return (3, height, width) of the same dtype. Rectangles have torchvision's pixels, texts have
-- not: there is no argument `font`. Source: torchvision.utils.draw_bounding_boxes
image.draw_bounding_boxes = define {
  name = "draw_bounding_boxes", doc = "Draws rectangles, and texts in them, on a picture.",
  examples = "moth.zeros({3, 20, 30}, {dtype = moth.uint8}), moth.tensor{{2, 3, 15, 12}}, "
    .. "{colors = 'red', width = 2}\n"
    .. "moth.zeros({3, 20, 60}, {dtype = moth.uint8}), moth.tensor{{2, 3, 55, 18}}, {'cat'}",
  args = {
    {"tensor", "image", "uint8 (3 or 1, height, width), or floating point from 0 to 1"},
    {"tensor", "boxes", "(n, 4): left, top, right, bottom in pixels"},
    {"any", "labels", "a list of texts, one for each box", optional = true},
    {"any", "colors", "of the boxes" .. COLORS .. "colors that differ", optional = true},
    {"bool", "fill", "tint the inside", default = false},
    {"int", "width", "of the lines, in pixels", default = 1, bounds = {1, 2 ^ 20}},
    {"int", "font_size", "of the labels, in pixels", default = 10, bounds = {1, 1000}},
    {"any", "label_colors", "of the labels" .. COLORS .. "the boxes' colors", optional = true},
    {"any", "label_background_colors", "behind the labels" .. COLORS .. "the boxes' colors",
     optional = true},
    {"bool", "fill_labels", "fill the rectangle behind a label", default = false},
  },
  outputs = "image",
  run = function(picture, boxes, labels, given, fill, width, font_size, own, behind, fill_labels)
    return (no_grad(draw_boxes, picture, boxes, {labels = labels, colors = given, fill = fill,
      width = width, font_size = font_size, label_colors = own, label_background_colors = behind,
      fill_labels = fill_labels}))
  end,
}

-- ---- masks ----

local function draw_masks(picture, masks, alpha, given)
  local moth, fname = require "moth", "draw_segmentation_masks"
  picture = canvas_of(picture, fname, false)
  if masks:dim() == 2 then masks = masks:unsqueeze(1) end
  if masks:dim() ~= 3 or masks.dtype ~= moth.bool or masks:size(2) ~= picture:size(2)
    or masks:size(3) ~= picture:size(3) then
    errors.refuse(fname, "masks", ("bool (n, %d, %d) is needed"):format(picture:size(2),
      picture:size(3)), masks, "E_SHAPE")
  end
  local n = masks:size(1)
  if n == 0 then return picture end
  local named = colors.list(given, n, fname, "colors")
  local drawn, most = picture:clone(), picture.dtype == moth.uint8 and 1 or 255
  for i = 1, n do
    for c = 1, 3 do drawn:select(1, c):masked_fill_(masks:select(1, i), named[i][c] / most) end
  end
  drawn:masked_fill_(masks:sum(1):gt(1):unsqueeze(1), 0)
  local float = picture.dtype.is_floating_point and picture.dtype or moth.float32
  return (picture:to(float) * (1 - alpha) + drawn:to(float) * alpha):to(picture.dtype)
end

--- Colors the pixels of masks. Pixels of several masks become black.
-- @param image   uint8 (3, height, width), or floating point from 0 to 1
-- @param masks   bool (n, height, width) or (height, width)
-- @param alpha   1 hides the picture, 0 the masks (default 0.8)
-- @param colors  a color, or a list with one for each mask; default: colors that differ
-- @return (3, height, width) of the same dtype. Source: torchvision.utils.draw_segmentation_masks
image.draw_segmentation_masks = define {
  name = "draw_segmentation_masks", doc = "Colors the pixels of masks on a picture.",
  examples = "moth.zeros({3, 4, 5}, {dtype = moth.uint8}), moth.rand(2, 4, 5):gt(0.5)",
  args = {
    {"tensor", "image", "uint8 (3, height, width), or floating point from 0 to 1"},
    {"tensor", "masks", "bool (n, height, width) or (height, width)"},
    {"float", "alpha", "1 hides the picture, 0 the masks", default = 0.8, bounds = {0, 1}},
    {"any", "colors", "a color or a list of colors; default: colors that differ", optional = true},
  },
  outputs = "image",
  run = function(...) return (no_grad(draw_masks, ...)) end,
}

return image
