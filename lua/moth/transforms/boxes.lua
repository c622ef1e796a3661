--- boxes.lua -- moth.transforms.functional: formats of boxes, and boxes at the edge of a picture.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local values = require "moth.transforms.values"

local ops = bind.ops
local boxes = {}

-- ---- formats ----

-- Half of x; integers are rounded down, as in torchvision.
local function half(x)
  if x:is_floating_point() then return x / 2 end
  return (x:div(2, "floor"))
end

-- Corners from a centre and a size. Integers are computed as f32 and truncated.
local function corners(cx, cy, w, h)
  local whole = not cx:is_floating_point() and cx.dtype
  if whole then cx, cy, w, h = cx:float(), cy:float(), w:float(), h:float() end
  local x, y = cx - w / 2, cy - h / 2
  if not whole then return x, y, x + w, y + h end
  return x:to(whole), y:to(whole), (x + w):to(whole), (y + h):to(whole)
end

--- Converts the numbers of boxes, (..., 4), between formats.
function boxes.converted(x, from, to)
  if from == to then return x end
  local a, b, c, d = unpack(x:unbind(-1))
  if from == "XYWH" and to == "CXCYWH" then
    return (ops.stack({a + half(c), b + half(d), c, d}, -1))
  end
  if from == "XYWH" then c, d = a + c, b + d
  elseif from == "CXCYWH" then a, b, c, d = corners(a, b, c, d) end
  if to == "XYWH" then c, d = c - a, d - b
  elseif to == "CXCYWH" then
    local w, h = c - a, d - b
    a, b, c, d = half(a * 2 + w), half(b * 2 + h), w, h
  end
  return (ops.stack({a, b, c, d}, -1))
end

--- The boxes in another format.
function boxes.to(b, format)
  return values.like(b, boxes.converted(b.data, b.format, format), {format = format})
end

boxes.convert_bounding_box_format = define {
  name = "convert_bounding_box_format",
  doc = "Boxes in another format.",
  examples = "moth.tensor{{1, 1, 2, 3}}, 'XYWH', 'CXCYWH'",
  args = {
    {"object", "inpt", "BoundingBoxes, or a tensor, (..., 4)"},
    {"string?", "old_format", "the present format of a tensor: XYXY, XYWH or CXCYWH"},
    {"string", "new_format", "the format of the result"},
  },
  run = function(x, old, new)
    local name = "convert_bounding_box_format"
    new = values.format(name, "new_format", new)
    if lib.istensor(x) then
      return (boxes.converted(x, values.format(name, "old_format", old), new))
    elseif class.of(x) ~= values.BoundingBoxes then
      errors.refuse(name, "inpt", "BoundingBoxes or a tensor are needed", x, "E_TYPE")
    elseif old then
      errors.argument(name, "old_format", "is for tensors: BoundingBoxes know their format")
    end
    return (boxes.to(x, new))
  end,
}

-- ---- the edge of a picture ----

-- Clips corners, (..., 4), to a picture.
local function clipped(x, height, width)
  local a, b, c, d = unpack(x:unbind(-1))
  return (ops.stack({a:clamp(0, width), b:clamp(0, height), c:clamp(0, width),
    d:clamp(0, height)}, -1))
end

local function clamped(x, format, size)
  local float = x:is_floating_point() and x or x:float()
  local y = clipped(boxes.converted(float, format, "XYXY"), size[1], size[2])
  return (boxes.converted(y, "XYXY", format):to(x.dtype))
end

--- The boxes clipped to their picture, unless their clamping_mode is "none".
function boxes.clamp(b)
  if b.clamping_mode == "none" then return b end
  return values.like(b, clamped(b.data, b.format, b.canvas_size))
end

boxes.clamp_bounding_boxes = define {
  name = "clamp_bounding_boxes",
  doc = "Boxes clipped to the picture.",
  examples = "moth.tensor{{-1, 2, 5, 9}}, 'XYXY', {4, 4}",
  args = {
    {"object", "inpt", "BoundingBoxes, or a tensor, (..., 4)"},
    {"string?", "format", "the format of a tensor: XYXY, XYWH or CXCYWH"},
    {"ints?", "canvas_size", "height and width of the picture, for a tensor"},
  },
  run = function(x, format, size)
    local name = "clamp_bounding_boxes"
    if lib.istensor(x) then
      return (clamped(x, values.format(name, "format", format),
        values.canvas(name, "canvas_size", size)))
    elseif class.of(x) ~= values.BoundingBoxes then
      errors.refuse(name, "inpt", "BoundingBoxes or a tensor are needed", x, "E_TYPE")
    elseif format or size then
      errors.argument(name, format and "format" or "canvas_size",
        "is for tensors: BoundingBoxes know their format and canvas_size")
    end
    return values.like(x, clamped(x.data, x.format, x.canvas_size))
  end,
}

--- The mask of the boxes that are inside the picture, and wide, high and large enough.
function boxes.valid(x, format, size, min_size, min_area)
  local a, b, c, d = unpack(boxes.converted(x, format, "XYXY"):unbind(-1))
  local w, h = c - a, d - b
  local good = w:ge(min_size):logical_and(h:ge(min_size)):logical_and((w * h):ge(min_area))
  for i, side in ipairs {a, b, c, d} do
    good = good:logical_and(side:ge(0)):logical_and(side:le(size[i % 2 == 1 and 2 or 1]))
  end
  return good
end

boxes.sanitize_bounding_boxes = define {
  name = "sanitize_bounding_boxes",
  doc = "The boxes that are inside the picture and not too small, and the mask of these boxes.",
  examples = "moth.tensor{{0, 1, 3, 3}, {1, 1, 1, 3}}, 'XYXY', {4, 4}",
  outputs = "boxes, valid",
  args = {
    {"object", "bounding_boxes", "BoundingBoxes, or a tensor, (N, 4)"},
    {"string?", "format", "the format of a tensor: XYXY, XYWH or CXCYWH"},
    {"ints?", "canvas_size", "height and width of the picture, for a tensor"},
    {"float", "min_size", "the smallest width and height", default = 1},
    {"float", "min_area", "the smallest area", default = 1},
  },
  run = function(x, format, size, min_size, min_area)
    local name = "sanitize_bounding_boxes"
    if lib.istensor(x) then
      local good = boxes.valid(x, values.format(name, "format", format),
        values.canvas(name, "canvas_size", size), min_size, min_area)
      return x[good], good
    elseif class.of(x) ~= values.BoundingBoxes then
      errors.refuse(name, "bounding_boxes", "BoundingBoxes or a tensor are needed", x, "E_TYPE")
    end
    local good = boxes.valid(x.data, x.format, x.canvas_size, min_size, min_area)
    return values.like(x, x.data[good]), good
  end,
}

return boxes
