--- picture.lua -- tensors as pictures of TensorBoard: layouts, batches, PNG.

local errors = require "moth.error"
local scope = require "moth.tensor.scope"

local picture = {}

-- Dimensions in the order of `wanted`; a format has each of its letters once.
local function arranged(x, format, wanted, fname)
  local dims = {}
  for letter in wanted:gmatch "." do
    local at = format:find(letter, 1, true)
    if not at then
      errors.argument(fname, "dataformats", ("a permutation of %s is needed for a tensor of %d "
        .. "dimensions, got '%s'"):format(wanted, x:dim(), format), "E_DOMAIN")
    end
    dims[#dims + 1] = at
  end
  return x:permute(unpack(dims))
end

local function three_channels(x) -- (H, W, C)
  if x:size(3) == 1 then return x:expand(x:size(1), x:size(2), 3) end
  return x
end

-- Pictures (N, H, W, C) side by side, at most 8 in a row: (H', W', C).
local function grid(x)
  local moth = require "moth"
  local n, h, w, c = unpack(x.shape)
  local columns = math.min(n, 8)
  local rows = math.ceil(n / columns)
  local out = moth.zeros(rows * columns, h, w, c, {dtype = x.dtype})
  out:narrow(1, 1, n):copy_(x)
  return out:view(rows, columns, h, w, c):permute(1, 3, 2, 4, 5):reshape(rows * h, columns * w, c)
end

local WANTED = {[2] = "HW", [3] = "HWC", [4] = "NHWC"}

--- A tensor as bytes of pixels: uint8 (H, W, C). Floats are scaled by 255 and clamped; uint8 stays.
-- @param x       a tensor of 2, 3 or 4 dimensions; 4: a batch, placed in a grid
-- @param format  the letters of its dimensions: "CHW", "HW", "NHWC"
-- @param fname   the function that errors name
picture.pixels = scope.inside(function(x, format, fname)
  local moth = require "moth"
  format = format:upper()
  if not WANTED[x:dim()] or #format ~= x:dim() then
    errors.argument(fname, "img_tensor", ("%s does not have the dimensions of dataformats '%s'")
      :format(errors.describe(x), format), "E_SHAPE")
  end
  local given = x
  x = arranged(x:detach():cpu(), format, WANTED[x:dim()], fname)
  if x:dim() == 4 then x = grid(x) end
  if x:dim() == 2 then x = x:unsqueeze(3) end
  local channels = x:size(3)
  if x:numel() == 0 or channels > 4 then
    errors.argument(fname, "img_tensor", ("1 to 4 channels and at least one pixel are needed, got "
      .. "%s in dataformats '%s'"):format(errors.describe(given), format), "E_SHAPE")
  end
  if x.dtype ~= moth.uint8 then
    x = moth.nan_to_num(x:float() * 255):clamp(0, 255):to(moth.uint8)
  end
  return three_channels(x):contiguous()
end)

local function message(pixels)
  local h, w, c = unpack(pixels.shape)
  local text = require("moth.io.png").encode(pixels)
  pixels:free()
  return {height = h, width = w, colorspace = c, encoded_image_string = text}
end

--- The message of a picture.
function picture.of(x, format, fname)
  return (message(picture.pixels(x, format, fname)))
end

local RED, WHITE, SIZE = {255, 0, 0}, {255, 255, 255}, 11

-- The shapes of a box and its label, for plot/raster.lua. pixel: the size of a pixel of the result.
local function add_box(shapes, box, label, pixel)
  local x1, y1, x2, y2 = unpack(box)
  shapes[#shapes + 1] = {"line", {x1, y1, x2, y1, x2, y2, x1, y2, x1, y1}, RED, 2 * pixel}
  if not label then return end
  local size = SIZE * pixel
  local width, height = require("moth.plot.font").width(label, size) + 6 * pixel, size + 4 * pixel
  local top = y1 >= height and y1 - height or y1
  shapes[#shapes + 1] = {"rect", x1 - pixel, top, width, height, RED, 1}
  shapes[#shapes + 1] = {"text", x1 + 2 * pixel, top + size, label, size, "start", false, WHITE}
end

--- The message of a picture with red boxes.
-- @param boxes   (N, 4): left, top, right, bottom, in pixels from 0 on
-- @param labels  a list of N texts; nil: none
-- @param scale   size of the result
function picture.with_boxes(x, boxes, labels, scale, format, fname)
  if boxes:dim() ~= 2 or boxes:size(2) ~= 4 then
    errors.argument(fname, "box_tensor", "boxes (N, 4) are needed, got " .. errors.describe(boxes),
      "E_SHAPE")
  end
  if labels and #labels ~= boxes:size(1) then
    errors.argument(fname, "labels", ("%d labels for %d boxes"):format(#labels, boxes:size(1)),
      "E_SHAPE")
  end
  local pixels = picture.pixels(x, format, fname)
  if pixels:size(3) ~= 3 then pixels = pixels:narrow(3, 1, 3):contiguous() end
  local h, w = pixels:size(1), pixels:size(2)
  local shapes = {{"image", 0, 0, w, h, pixels}}
  for i, box in ipairs(boxes:detach():cpu():double():tolist()) do
    add_box(shapes, box, labels and tostring(labels[i]), 1 / scale)
  end
  return (message(require("moth.plot.raster").pixels(shapes, w, h, scale)))
end

return picture
