--- raster.lua -- paints the shapes of vector.lua into pixels, with smooth edges.
--
-- A line is painted by the distance of a pixel's center to the line: the coverage of all segments
-- of a path is collected first, so that joints are not painted twice.

local ffi = require "ffi"

local font = require "moth.plot.font"
local lib = require "moth.binding.lib"
local style = require "moth.plot.style"

local floor, ceil, min, max, sqrt, abs = math.floor, math.ceil, math.min, math.max, math.sqrt,
  math.abs

local raster = {}

-- ---- the canvas ----

local function new(width, height)
  local canvas = {width = width, height = height,
                  pixels = lib.array("uint8_t", width * height * 3),
                  cover = lib.array("uint8_t", width * height)}
  ffi.fill(canvas.pixels, width * height * 3, 255)
  ffi.fill(canvas.cover, width * height)
  return canvas
end

-- Mixes a color into a pixel; share is from 0 to 1.
local function blend(pixels, at, color, share)
  local keep = 1 - share
  pixels[at] = pixels[at] * keep + color[1] * share + 0.5
  pixels[at + 1] = pixels[at + 1] * keep + color[2] * share + 0.5
  pixels[at + 2] = pixels[at + 2] * keep + color[3] * share + 0.5
end

-- ---- lines ----

-- Adds the coverage of a segment of half width r.
local function cover_segment(canvas, x1, y1, x2, y2, r)
  local width, cover = canvas.width, canvas.cover
  local dx, dy = x2 - x1, y2 - y1
  local squared = dx * dx + dy * dy
  local reach = r + 1
  local first = max(floor(min(y1, y2) - reach), 0)
  local last = min(ceil(max(y1, y2) + reach), canvas.height - 1)
  for row = first, last do
    local y = row + 0.5
    -- the part of the segment within reach of this row
    local a, b = 0, 1
    if abs(dy) > 1e-9 then
      local t1, t2 = (y - reach - y1) / dy, (y + reach - y1) / dy
      a, b = max(min(t1, t2), 0), min(max(t1, t2), 1)
    end
    if a <= b then
      local xa, xb = x1 + a * dx, x1 + b * dx
      local from = max(floor(min(xa, xb) - reach), 0)
      local to = min(ceil(max(xa, xb) + reach), width - 1)
      for column = from, to do
        local px, py = column + 0.5 - x1, y - y1
        local t = squared > 0 and min(max((px * dx + py * dy) / squared, 0), 1) or 0
        local ex, ey = px - t * dx, py - t * dy
        local share = r + 0.5 - sqrt(ex * ex + ey * ey)
        if share > 0 then
          local value = share >= 1 and 255 or floor(share * 255 + 0.5)
          local at = row * width + column
          if value > cover[at] then cover[at] = value end
        end
      end
    end
  end
end

-- Paints what was covered within a box, and clears the coverage.
local function paint(canvas, x1, y1, x2, y2, color)
  local width, cover, pixels = canvas.width, canvas.cover, canvas.pixels
  for row = max(floor(y1), 0), min(ceil(y2), canvas.height - 1) do
    for column = max(floor(x1), 0), min(ceil(x2), width - 1) do
      local at = row * width + column
      if cover[at] > 0 then
        blend(pixels, 3 * at, color, cover[at] / 255)
        cover[at] = 0
      end
    end
  end
end

local function stroke(canvas, paths, color, r)
  local x1, y1, x2, y2 = math.huge, math.huge, -math.huge, -math.huge
  for _, path in ipairs(paths) do
    if #path == 2 then cover_segment(canvas, path[1], path[2], path[1], path[2], r) end
    for i = 3, #path, 2 do
      cover_segment(canvas, path[i - 2], path[i - 1], path[i], path[i + 1], r)
    end
    for i = 1, #path, 2 do
      x1, x2 = min(x1, path[i]), max(x2, path[i])
      y1, y2 = min(y1, path[i + 1]), max(y2, path[i + 1])
    end
  end
  paint(canvas, x1 - r - 1, y1 - r - 1, x2 + r + 1, y2 + r + 1, color)
end

-- ---- shapes ----

-- Fills the pixels whose inside(x, y), the distance to the edge, is positive.
local function fill(canvas, x, y, r, color, inside)
  for row = max(floor(y - r - 1), 0), min(ceil(y + r + 1), canvas.height - 1) do
    for column = max(floor(x - r - 1), 0), min(ceil(x + r + 1), canvas.width - 1) do
      local share = min(inside(column + 0.5 - x, row + 0.5 - y) + 0.5, 1)
      if share > 0 then blend(canvas.pixels, 3 * (row * canvas.width + column), color, share) end
    end
  end
end

local function length(x, y) return sqrt(x * x + y * y) end

local markers = {}

function markers.circle(canvas, x, y, r, color)
  fill(canvas, x, y, r, color, function(u, v) return r - length(u, v) end)
end

function markers.ring(canvas, x, y, r, color)
  local half = r * 0.25
  fill(canvas, x, y, 1.3 * r, color, function(u, v) return half - abs(length(u, v) - r) end)
end

function markers.square(canvas, x, y, r, color)
  fill(canvas, x, y, r, color, function(u, v) return 0.9 * r - max(abs(u), abs(v)) end)
end

function markers.diamond(canvas, x, y, r, color)
  fill(canvas, x, y, 1.3 * r, color, function(u, v)
    return (1.25 * r - abs(u) - abs(v)) * 0.7071
  end)
end

function markers.triangle(canvas, x, y, r, color)
  local nx, ny = 2 / sqrt(1.1 ^ 2 + 2 ^ 2), 1.1 / sqrt(1.1 ^ 2 + 2 ^ 2)
  fill(canvas, x, y, 1.3 * r, color, function(u, v)
    return min(0.8 * r - v, (v + 1.2 * r) * ny - abs(u) * nx)
  end)
end

function markers.cross(canvas, x, y, r, color, scale)
  stroke(canvas, {{x - r, y - r, x + r, y + r}, {x - r, y + r, x + r, y - r}}, color, 0.9 * scale)
end

function markers.plus(canvas, x, y, r, color, scale)
  r = 1.2 * r
  stroke(canvas, {{x - r, y, x + r, y}, {x, y - r, x, y + r}}, color, 0.9 * scale)
end

-- ---- painting ----

local draw = {}

-- Thin lines along an axis are moved to the middle of a pixel, to be sharp.
local function sharp(points, width)
  local out = {}
  for i = 1, #points do
    out[i] = floor(points[i] - width / 2 + 0.5) + width / 2
  end
  return out
end

local function along_axes(points)
  for i = 3, #points, 2 do
    if points[i] ~= points[i - 2] and points[i + 1] ~= points[i - 1] then return false end
  end
  return true
end

function draw.line(canvas, scale, points, color, width, dash)
  local scaled = {}
  for i = 1, #points do scaled[i] = points[i] * scale end
  if width == 1 and along_axes(points) then scaled = sharp(scaled, scale) end
  local paths = {}
  style.dashed(scaled, dash, width * scale, function(path) paths[#paths + 1] = path end)
  if #paths > 0 then stroke(canvas, paths, color, width * scale / 2) end
end

function draw.rect(canvas, scale, x, y, w, h, color, opacity)
  local x1, y1 = floor(x * scale + 0.5), floor(y * scale + 0.5)
  local x2, y2 = floor((x + w) * scale + 0.5), floor((y + h) * scale + 0.5)
  for row = max(y1, 0), min(y2, canvas.height) - 1 do
    for column = max(x1, 0), min(x2, canvas.width) - 1 do
      blend(canvas.pixels, 3 * (row * canvas.width + column), color, opacity)
    end
  end
end

function draw.marker(canvas, scale, shape, x, y, size, color)
  markers[shape](canvas, x * scale, y * scale, size * scale / 2, color, scale)
end

function draw.text(canvas, scale, x, y, text, size, anchor, turned, color)
  x, y, size = x * scale, y * scale, size * scale
  local shift = font.width(text, size) * (anchor == "middle" and 0.5 or anchor == "end" and 1 or 0)
  if turned then y = y + shift else x = x - shift end
  local paths = {}
  font.draw(text, x, y, size, turned, function(path) paths[#paths + 1] = path end)
  if #paths > 0 then stroke(canvas, paths, color, max(size / 22, 0.6)) end
end

-- The nearest pixel of the picture for each pixel of the canvas.
function draw.image(canvas, scale, x, y, w, h, pixels)
  local x1, y1 = floor(x * scale + 0.5), floor(y * scale + 0.5)
  local wide, high = floor(w * scale + 0.5), floor(h * scale + 0.5)
  local rows, columns = pixels:size(1), pixels:size(2)
  local from = ffi.cast("const uint8_t *", lib.data(pixels, "plot"))
  for row = max(y1, 0), min(y1 + high, canvas.height) - 1 do
    local source = floor((row - y1) * rows / high) * columns
    for column = max(x1, 0), min(x1 + wide, canvas.width) - 1 do
      local at = 3 * (row * canvas.width + column)
      local k = 3 * (source + floor((column - x1) * columns / wide))
      canvas.pixels[at], canvas.pixels[at + 1] = from[k], from[k + 1]
      canvas.pixels[at + 2] = from[k + 2]
    end
  end
end

--- Paints shapes on white.
-- @param shapes         of vector.lua
-- @param width, height  in units of the shapes
-- @param scale          pixels a unit
-- @return uint8 tensor (height, width, 3)
function raster.pixels(shapes, width, height, scale)
  local canvas = new(floor(width * scale + 0.5), floor(height * scale + 0.5))
  for _, shape in ipairs(shapes) do draw[shape[1]](canvas, scale, unpack(shape, 2, 9)) end
  local h, sizes = lib.Handle(), lib.int64s(3)
  sizes[0], sizes[1], sizes[2] = canvas.height, canvas.width, 3
  lib.check(lib.C.moth_from_bytes(lib.ctx, lib.C.MOTH_U8, sizes, 3,
    ffi.cast("const char *", canvas.pixels), canvas.height * canvas.width * 3, h), "save")
  return lib.adopt(h, 0)
end

return raster
