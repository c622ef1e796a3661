--- values.lua -- the kinds of values in a sample: pictures, masks and boxes.
--
-- A plain tensor is a picture. Mask and BoundingBoxes mark other tensors.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local values = {}

local FORMATS = {XYXY = true, XYWH = true, CXCYWH = true}

--- The name of a format in capitals; raises if there is no such format.
function values.format(fname, name, format)
  local known = type(format) == "string" and format:upper()
  if known and FORMATS[known] then return known end
  errors.refuse(fname, name, "one of 'XYXY', 'XYWH' and 'CXCYWH' is needed", format)
end

--- Height and width from a list of two integers.
function values.canvas(fname, name, size)
  if type(size) == "table" and #size == 2 then return {size[1], size[2]} end
  errors.refuse(fname, name, "height and width are needed", size)
end

local function tensor_of(fname, data)
  if lib.istensor(data) then return data end
  if lib.is_plain(data) then return (require("moth").tensor(data)) end
  errors.refuse(fname, "data", "a tensor is needed", data, "E_TYPE")
end

local function show(self)
  return class.typename(self) .. "(" .. tostring(self.data) .. ")"
end

-- ---- classes ----

local Image = class("Image")
values.Image = Image
Image.signature = define.signature("Image", {{"any", "data", "a tensor, (..., C, H, W)"}})

--- Marks a tensor as a picture. Only tables need it, where a tensor under another key than `image`
-- is no picture. The field `data` is the tensor.
-- @param data  a tensor, (..., C, H, W)
function Image:init(data) self.data = tensor_of("Image", data) end
Image.__tostring = show

local Mask = class("Mask")
values.Mask = Mask
Mask.signature = define.signature("Mask", {{"any", "data", "a tensor, (H, W) or (..., H, W)"}})

--- A mask: each pixel is a class or a flag. Transforms of size and place change it, without
-- interpolation; transforms of colour do not. The field `data` is the tensor.
-- @param data  a tensor, (H, W) or (..., H, W)
function Mask:init(data) self.data = tensor_of("Mask", data) end
Mask.__tostring = show

local BoundingBoxes = class("BoundingBoxes")
values.BoundingBoxes = BoundingBoxes
BoundingBoxes.signature = define.signature("BoundingBoxes", {
  {"any", "data", "four numbers for each box, (..., 4)"},
  {"string", "format", "XYXY: two corners; XYWH: corner and size; CXCYWH: centre and size"},
  {"ints", "canvas_size", "height and width of the picture"},
  {"string", "clamping_mode", "\"soft\" or \"hard\": clip boxes to the picture; \"none\": do not",
    default = "soft"},
})

--- Boxes in a picture. The fields are data, format, canvas_size and clamping_mode.
-- @param data           a tensor or a list, (..., 4), in pixels: 0 is the left or upper edge
-- @param format         "XYXY": left, top, right, bottom; "XYWH": left, top, width, height;
-- "CXCYWH": centre, width, height
-- @param canvas_size    height and width of the picture
-- @param clamping_mode  clip boxes to the picture when they move (default "soft"; "hard" is the
-- same for these formats)? "none": do not
function BoundingBoxes:init(data, format, canvas_size, clamping_mode)
  self.data = tensor_of("BoundingBoxes", data)
  if self.data:dim() == 0 or self.data:size(-1) ~= 4 then
    errors.refuse("BoundingBoxes", "data", "four numbers for each box are needed, (..., 4)",
      self.data, "E_SHAPE")
  end
  self.format = values.format("BoundingBoxes", "format", format)
  self.canvas_size = values.canvas("BoundingBoxes", "canvas_size", canvas_size)
  self.clamping_mode = clamping_mode
end

function BoundingBoxes:__tostring()
  return ("BoundingBoxes(%s, format = %s, canvas_size = {%d, %d})"):format(tostring(self.data),
    self.format, self.canvas_size[1], self.canvas_size[2])
end

-- ---- what a value is ----

local KINDS = {[Image] = "image", [Mask] = "mask", [BoundingBoxes] = "boxes"}

--- "image", "mask" or "boxes"; nil for other values.
function values.kind(x)
  if lib.istensor(x) then return "image" end
  return KINDS[class.of(x)]
end

--- Boxes with the fields of other boxes, and new data.
-- @param changes  new values of fields: format, canvas_size; optional
function values.like(boxes, data, changes)
  local new = {data = data, format = boxes.format, canvas_size = boxes.canvas_size,
               clamping_mode = boxes.clamping_mode}
  for key, value in pairs(changes or {}) do new[key] = value end
  return setmetatable(new, getmetatable(boxes))
end

--- Marks a tensor as the given kind: "image" or "mask".
function values.wrap(kind, data)
  return kind == "mask" and Mask(data) or Image(data)
end

--- Height and width of a value; the channels of a picture.
function values.size(x)
  local kind = values.kind(x)
  if kind == "boxes" then return x.canvas_size[1], x.canvas_size[2] end
  local data = x
  if type(x) == "table" then data = x.data end
  if not lib.istensor(data) then
    errors.raise("a picture, a tensor (..., C, H, W), is needed, got " .. errors.describe(x),
      "E_TYPE")
  end
  local n = data:dim()
  if n < (kind == "mask" and 2 or 3) then
    errors.raise(("a picture has three dimensions or more, (..., C, H, W), got %s"):format(
      errors.describe(data)), "E_SHAPE")
  end
  return data:size(n - 1), data:size(n), n > 2 and data:size(n - 2) or 1
end

return values
