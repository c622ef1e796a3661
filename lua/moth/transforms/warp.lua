--- warp.lua -- moth.transforms.functional: rotations, affine maps, perspectives, displacements.
--
-- Pictures in bytes or f32 on the CPU are warped by a C op; others, and those with gradients, are
-- sampled at the points of a grid, as torchvision does.

local bind = require "moth.binding.bind"
local box = require "moth.transforms.boxes"
local define = require "moth.binding.define"
local dtype = require "moth.tensor.dtype"
local errors = require "moth.error"
local geometry = require "moth.transforms.geometry"
local kernels = require "moth.transforms.kernels"
local values = require "moth.transforms.values"

local ops = bind.ops
local types = dtype.by_name
local warp = {}

local INPUT = {"object", "inpt", "a picture, (..., C, H, W), a Mask or BoundingBoxes"}
local FILL = {"floats?", "fill", "value outside: one number, or one for each channel; default: 0"}
local MODES = {"nearest", "bilinear"}
warp.MODES = MODES

-- ---- sampling at positions ----

-- Samples x, (N, C, H, W), at a grid of positions from -1 to 1, (1, OH, OW, 2).
local function sampled(x, grid, mode, fill)
  local kind = x.dtype
  local y = (kind == types.float32 or kind == types.float64) and x or x:float()
  grid = grid:to(y.dtype):expand(y:size(1), -1, -1, -1)
  if not fill then
    y = ops.grid_sample(y, grid, mode, "zeros", false)
  else
    local moth = require "moth"
    local mask = moth.ones(y:size(1), 1, y:size(3), y:size(4), {dtype = y.dtype,
      device = y.device})
    local both = ops.grid_sample(ops.cat({y, mask}, 2), grid, mode, "zeros", false)
    local n = y:size(2)
    y, mask = ops.narrow(both, 2, 1, n), ops.narrow(both, 2, n + 1, 1)
    local value = moth.tensor(fill, {dtype = y.dtype, device = y.device}):view(-1, 1, 1)
    if mode == "nearest" then y = moth.where(mask:lt(0.5), value, y)
    else y = (y - value) * mask + value end
  end
  return (geometry.back(y, kind))
end

-- The positions that a map reads, as a grid: m has 9 numbers (see picture_warp).
local function grid_of(m, height, width, out_h, out_w, device)
  local where = {dtype = types.float64, device = device}
  local moth = require "moth"
  local x = moth.arange(0, out_w, where):view(1, out_w)
  local y = moth.arange(0, out_h, where):view(out_h, 1)
  local by = x * m[7] + y * m[8] + m[9]
  local px, py = (x * m[1] + y * m[2] + m[3]) / by, (x * m[4] + y * m[5] + m[6]) / by
  return (ops.stack({(px * 2 + 1) / width - 1, (py * 2 + 1) / height - 1}, -1):unsqueeze(1))
end

-- Raises unless `fill` fits the channels. Returns a list, or nil.
local function fill_of(fname, fill, x)
  if type(fill) == "number" then return {fill} end
  local channels = x:size(-3)
  if fill and #fill ~= 1 and #fill ~= channels then
    errors.argument(fname, "fill", ("of %d numbers does not fit %d channels"):format(#fill,
      channels), "E_SHAPE")
  end
  return fill
end

local function warped(fname, x, m, out_h, out_w, mode, fill)
  if x:dim() < 3 then errors.refuse(fname, "inpt", "(..., C, H, W) is needed", x, "E_SHAPE") end
  fill = fill_of(fname, fill, x)
  local batch, restore = geometry.as_batch(x)
  local kind = x.dtype
  if kernels.plain(x) and (kind == types.uint8 or kind == types.float32) then
    return (restore(ops.picture_warp(batch, m, {out_h, out_w}, mode, fill)))
  end
  local grid = grid_of(m, x:size(-2), x:size(-1), out_h, out_w, x.device)
  return (restore(sampled(batch, grid, mode, fill)))
end

-- ---- affine maps ----

-- The map of a rotation, translation, scale and shear around a centre: {a, b, c, d, e, f}. With
-- `inverted` the map from the result to the picture.
local function affine_matrix(center, angle, translate, scale, shear, inverted)
  local rot, sx, sy = math.rad(angle), math.rad(shear[1]), math.rad(shear[2])
  local cx, cy = center[1], center[2]
  local to_x, to_y = cx + translate[1], cy + translate[2]
  local a = math.cos(rot - sy) / math.cos(sy)
  local b = -(a * math.tan(sx) + math.sin(rot))
  local c = math.sin(rot - sy) / math.cos(sy)
  local d = math.cos(rot) - c * math.tan(sx)
  if inverted then
    local m = {d / scale, -b / scale, 0, -c / scale, a / scale, 0}
    m[3] = cx - m[1] * to_x - m[2] * to_y
    m[6] = cy - m[4] * to_x - m[5] * to_y
    return m
  end
  local m = {a * scale, b * scale, 0, c * scale, d * scale, 0}
  m[3] = to_x - m[1] * cx - m[2] * cy
  m[6] = to_y - m[4] * cx - m[5] * cy
  return m
end

-- Converts a map of positions relative to the middle of the picture to a map of pixels.
local function of_pixels(m, height, width, out_h, out_w)
  local x, y = (out_w - 1) / 2, (out_h - 1) / 2
  return {m[1], m[2], m[3] - m[1] * x - m[2] * y + (width - 1) / 2,
          m[4], m[5], m[6] - m[4] * x - m[5] * y + (height - 1) / 2, 0, 0, 1}
end

local function shear_of(fname, shear)
  if type(shear) == "number" then return {shear, 0} end
  if #shear == 1 then return {shear[1], shear[1]} end
  if #shear == 2 then return shear end
  errors.refuse(fname, "shear", "one or two numbers are needed", shear)
end

local function check_two(fname, name, list)
  if type(list) ~= "table" or #list ~= 2 then
    errors.refuse(fname, name, "two numbers, across and down, are needed", list)
  end
end

local function middle_of(center, height, width)
  if not center then return {0, 0} end
  check_two("affine", "center", center)
  return {center[1] - width / 2, center[2] - height / 2}
end

local function affine_image(x, angle, translate, scale, shear, mode, fill, center)
  check_two("affine", "translate", translate)
  if scale <= 0 then
    errors.refuse("affine", "scale", "a number above 0 is needed", scale, "E_DOMAIN")
  end
  local height, width = x:size(-2), x:size(-1)
  local m = affine_matrix(middle_of(center, height, width), angle, translate, scale,
    shear_of("affine", shear), true)
  return (warped("affine", x, of_pixels(m, height, width, height, width), height, width, mode,
    fill))
end

-- ---- boxes ----

-- Maps the corners of boxes by f(x, y) -> x, y, and returns the boxes around the results.
local function around_corners(b, f)
  local data, format = b.data, b.format
  local float = data:is_floating_point() and data or data:float()
  local s = box.converted(float, format, "XYXY"):unbind(-1)
  local xs, ys = {}, {}
  for i, at in ipairs {{1, 2}, {3, 2}, {3, 4}, {1, 4}} do xs[i], ys[i] = f(s[at[1]], s[at[2]]) end
  local function extreme(list, pick)
    return pick(pick(list[1], list[2]), pick(list[3], list[4]))
  end
  local low, high = ops.minimum, ops.maximum
  return (ops.stack({extreme(xs, low), extreme(ys, low), extreme(xs, high), extreme(ys, high)},
    -1))
end

-- Makes boxes from corners: clipped to a picture of this size, in the format of b.
local function finished(b, corners, size)
  local new = box.clamp(values.like(b, corners, {format = "XYXY", canvas_size = size}))
  return (values.like(new, box.converted(new.data, "XYXY", b.format):to(b.data.dtype),
    {format = b.format}))
end

-- The size of a picture that contains the whole rotated picture.
local function expanded(m, height, width)
  local xs, ys = {}, {}
  for i, at in ipairs {{-0.5, -0.5}, {-0.5, 0.5}, {0.5, 0.5}, {0.5, -0.5}} do
    local x, y = at[1] * width, at[2] * height
    xs[i], ys[i] = m[1] * x + m[2] * y + m[3] + width / 2, m[4] * x + m[5] * y + m[6] + height / 2
  end
  local function extent(list) -- a ten thousandth of a pixel is a rounding error
    local function cut(v) return (v < 0 and math.ceil or math.floor)(v * 1e4) * 1e-4 end
    return math.ceil(cut(math.max(unpack(list)))) - math.floor(cut(math.min(unpack(list))))
  end
  return extent(ys), extent(xs)
end

local function affine_boxes(b, angle, translate, scale, shear, center, expand)
  local height, width = b.canvas_size[1], b.canvas_size[2]
  center = center or {width / 2, height / 2}
  local m = affine_matrix(center, angle, translate, scale, shear, false)
  local dx, dy, size = 0, 0, b.canvas_size
  if expand then
    dx, dy = math.huge, math.huge
    for _, at in ipairs {{0, 0}, {0, height}, {width, height}, {width, 0}} do
      dx = math.min(dx, m[1] * at[1] + m[2] * at[2] + m[3])
      dy = math.min(dy, m[4] * at[1] + m[5] * at[2] + m[6])
    end
    size = {expanded(affine_matrix(center, angle, translate, scale, shear, true), height, width)}
  end
  if b.data:numel() == 0 then return (values.like(b, b.data, {canvas_size = size})) end
  return (finished(b, around_corners(b, function(x, y)
    return x * m[1] + y * m[2] + (m[3] - dx), x * m[4] + y * m[5] + (m[6] - dy)
  end), size))
end

kernels.add("affine", {
  image = affine_image,
  mask = kernels.of_mask(function(x, angle, translate, scale, shear, _, fill, center)
    return (affine_image(x, angle, translate, scale, shear, "nearest", fill, center))
  end),
  boxes = function(b, angle, translate, scale, shear, _, _, center)
    return (affine_boxes(b, angle, translate, scale, shear_of("affine", shear), center))
  end,
})

local CENTER = {"floats?", "center", "{x, y} in pixels from the left upper corner; default: the "
                .. "middle"}
local NEAREST = {"enum", "interpolation", "between pixels; masks are always nearest",
                 choices = MODES}
local BILINEAR = {"enum", "interpolation", "between pixels; masks are always nearest",
                  choices = MODES, default = "bilinear"}

warp.affine = define {
  name = "affine",
  doc = "Rotates clockwise, moves, enlarges and shears a picture around its middle.",
  examples = "moth.rand(3, 8, 9), 30, {1, 2}, 1.5, {10, 0}\nmoth.rand(3, 8, 9), -20, {0, 0}, 1, 5, "
    .. "{interpolation = 'bilinear', fill = {.1, .2, .3}, center = {0, 0}}",
  args = {
    INPUT, {"float", "angle", "degrees, clockwise"},
    {"floats", "translate", "pixels, {across, down}"}, {"float", "scale", "factor of the size"},
    {"floats", "shear", "degrees: one number, or {across, down}"}, NEAREST, FILL, CENTER,
  },
  run = kernels.of("affine"),
}

-- ---- rotations ----

local function rotate_image(x, angle, mode, expand, center, fill)
  angle = angle % 360
  local height, width = x:size(-2), x:size(-1)
  if not center then
    if angle == 0 then return x:clone() end
    if angle == 180 then return (ops.flip(x, {-2, -1})) end
    if expand or height == width then
      if angle == 90 then return (ops.flip(ops.transpose(x, -2, -1), {-2})) end
      if angle == 270 then return (ops.flip(ops.transpose(x, -2, -1), {-1})) end
    end
  end
  local m = affine_matrix(middle_of(center, height, width), -angle, {0, 0}, 1, {0, 0}, true)
  local out_h, out_w = height, width
  if expand then out_h, out_w = expanded(m, height, width) end
  return (warped("rotate", x, of_pixels(m, height, width, out_h, out_w), out_h, out_w, mode, fill))
end

kernels.add("rotate", {
  image = rotate_image,
  mask = kernels.of_mask(function(x, angle, _, expand, center, fill)
    return (rotate_image(x, angle, "nearest", expand, center, fill))
  end),
  boxes = function(b, angle, _, expand, center)
    return (affine_boxes(b, -(angle % 360), {0, 0}, 1, {0, 0}, center, expand))
  end,
})

warp.rotate = define {
  name = "rotate",
  doc = "Rotates a picture around its middle.",
  examples = "moth.rand(3, 8, 9), 30\nmoth.rand(3, 8, 9), 90, {expand = true}\nmoth.rand(3, 8, 9), "
    .. "45, {interpolation = 'bilinear', center = {1, 2}, fill = 0.5}",
  args = {
    INPUT, {"float", "angle", "degrees, counterclockwise"}, NEAREST,
    {"bool", "expand", "enlarge the result so that it contains the whole picture?",
      default = false}, CENTER, FILL,
  },
  run = kernels.of("rotate"),
}

-- ---- perspectives ----

-- Solves a system of linear equations; each row of m ends with its right side.
local function solved(m)
  local n = #m
  for i = 1, n do
    local best = i
    for k = i + 1, n do if math.abs(m[k][i]) > math.abs(m[best][i]) then best = k end end
    m[i], m[best] = m[best], m[i]
    if m[i][i] == 0 then return nil end
    for k = 1, n do
      local by = k ~= i and m[k][i] / m[i][i] or 0
      for j = i, by ~= 0 and n + 1 or 0 do m[k][j] = m[k][j] - by * m[i][j] end
    end
  end
  local x = {}
  for i = 1, n do x[i] = m[i][n + 1] / m[i][i] end
  return x
end

--- The 8 coefficients of the perspective that moves four points to others.
function warp.coefficients(from, to)
  if #from ~= 4 or #to ~= 4 then
    errors.argument("perspective", #from ~= 4 and "startpoints" or "endpoints",
      "four corners are needed, got " .. (#from ~= 4 and #from or #to), "E_SHAPE")
  end
  local rows = {}
  for i = 1, 4 do
    local x, y, u, v = to[i][1], to[i][2], from[i][1], from[i][2]
    rows[2 * i - 1] = {x, y, 1, 0, 0, 0, -u * x, -u * y, u}
    rows[2 * i] = {0, 0, 0, x, y, 1, -v * x, -v * y, v}
  end
  local found = solved(rows)
  if not found then
    errors.argument("perspective", "endpoints", "three of the corners are on a line", "E_DOMAIN")
  end
  return found
end

local function given(from, to, coefficients)
  if coefficients then
    if from or to then
      errors.argument("perspective", "coefficients", "cannot be combined with points")
    elseif #coefficients ~= 8 then
      errors.argument("perspective", "coefficients", "8 numbers are needed, got " .. #coefficients,
        "E_SHAPE")
    end
    return coefficients
  elseif not from or not to then
    errors.argument("perspective", from and "endpoints" or "startpoints",
      "is needed, unless coefficients are given")
  end
  return (warp.coefficients(from, to))
end

local function perspective_image(x, from, to, mode, fill, coefficients)
  local c = given(from, to, coefficients)
  local height, width = x:size(-2), x:size(-1)
  -- Coefficients are for the middles of pixels: pixel x is at x + 1/2.
  local gx, gy, g = c[7], c[8], 1 + (c[7] + c[8]) / 2
  local m = {c[1] - gx / 2, c[2] - gy / 2, c[3] + (c[1] + c[2]) / 2 - g / 2,
             c[4] - gx / 2, c[5] - gy / 2, c[6] + (c[4] + c[5]) / 2 - g / 2, gx, gy, g}
  return (warped("perspective", x, m, height, width, mode, fill))
end

local function perspective_boxes(b, from, to, _, _, coefficients)
  if b.data:numel() == 0 then return b end
  local c = given(from, to, coefficients)
  local by = c[1] * c[5] - c[2] * c[4]
  if by == 0 then
    errors.argument("perspective", "coefficients", "cannot be inverted, which boxes need",
      "E_DOMAIN")
  end
  local m = {c[5] - c[6] * c[8], c[3] * c[8] - c[2], c[2] * c[6] - c[3] * c[5],
             c[6] * c[7] - c[4], c[1] - c[3] * c[7], c[3] * c[4] - c[1] * c[6],
             c[4] * c[8] - c[5] * c[7], c[2] * c[7] - c[1] * c[8]}
  for i = 1, 8 do m[i] = m[i] / by end
  return (finished(b, around_corners(b, function(x, y)
    local z = x * m[7] + y * m[8] + 1
    return (x * m[1] + y * m[2] + m[3]) / z, (x * m[4] + y * m[5] + m[6]) / z
  end), b.canvas_size))
end

kernels.add("perspective", {
  image = perspective_image,
  mask = kernels.of_mask(function(x, from, to, _, fill, coefficients)
    return (perspective_image(x, from, to, "nearest", fill, coefficients))
  end),
  boxes = perspective_boxes,
})

warp.perspective = define {
  name = "perspective",
  doc = "Moves four points of a picture to others.",
  examples = "moth.rand(3, 8, 9), {{0, 0}, {8, 0}, {8, 7}, {0, 7}}, {{1, 0}, {7, 1}, {8, 6}, "
    .. "{0, 7}}\nmoth.rand(3, 8, 9), {coefficients = {1, .1, 0, 0, 1, .2, .01, 0}, fill = 1}",
  args = {
    INPUT, {"any", "startpoints", "four points, {{x, y}, ...}", optional = true},
    {"any", "endpoints", "where they are moved to", optional = true}, BILINEAR, FILL,
    {"floats?", "coefficients", "8 numbers in place of points: the position (x, y) reads ((a x + "
      .. "b y + c) / (g x + h y + 1), (d x + e y + f) / (g x + h y + 1))"},
  },
  run = kernels.of("perspective"),
}

-- ---- displacements ----

local function identity(height, width, kind, device)
  local moth = require "moth"
  local where = {dtype = kind, device = device}
  local x = moth.linspace((1 - width) / width, (width - 1) / width, width, where)
  local y = moth.linspace((1 - height) / height, (height - 1) / height, height, where)
  return (ops.stack({x:view(1, width):expand(height, width),
    y:view(height, 1):expand(height, width)}, -1):unsqueeze(1))
end

local function check_displacement(displacement, height, width)
  if displacement:dim() ~= 4 or displacement:size(1) ~= 1 or displacement:size(2) ~= height
     or displacement:size(3) ~= width or displacement:size(4) ~= 2 then
    errors.refuse("elastic", "displacement", ("(1, %d, %d, 2) is needed"):format(height, width),
      displacement, "E_SHAPE")
  end
end

local function elastic_image(x, displacement, mode, fill)
  local height, width = x:size(-2), x:size(-1)
  check_displacement(displacement, height, width)
  local kind = x.dtype == types.float64 and types.float64 or types.float32
  local grid = identity(height, width, kind, x.device) + displacement:to(kind):to(x.device)
  local batch, restore = geometry.as_batch(x)
  return (restore(sampled(batch, grid, mode, fill_of("elastic", fill, x))))
end

local function elastic_boxes(b, displacement)
  local height, width = b.canvas_size[1], b.canvas_size[2]
  check_displacement(displacement, height, width)
  if b.data:numel() == 0 then return b end
  local kind = b.data:is_floating_point() and b.data.dtype or types.float32
  local device = b.data.device
  local grid = (identity(height, width, kind, device) - displacement:to(kind):to(device)):squeeze(1)
  local flat = grid:flatten(1, 2)
  return (finished(b, around_corners(b, function(x, y)
    local column, row = x:ceil():long():clamp(0, width - 1), y:ceil():long():clamp(0, height - 1)
    local shape = x.shape
    local at = ops.index_select(flat, 1, (row * width + column + 1):flatten())
    local px, py = unpack(at:unbind(-1))
    return ((px + 1) * (width / 2) - 0.5):view(shape), ((py + 1) * (height / 2) - 0.5):view(shape)
  end), b.canvas_size))
end

kernels.add("elastic", {
  image = elastic_image,
  mask = kernels.of_mask(function(x, displacement, _, fill)
    return (elastic_image(x, displacement, "nearest", fill))
  end),
  boxes = elastic_boxes,
})

warp.elastic = define {
  name = "elastic",
  doc = "Moves each pixel by its own displacement.",
  examples = "moth.rand(3, 8, 9), moth.rand(1, 8, 9, 2) * 0.1",
  args = {
    INPUT, {"tensor", "displacement", "(1, H, W, 2): across and down, in halves of the picture"},
    BILINEAR, FILL,
  },
  run = kernels.of("elastic"),
}

return warp
