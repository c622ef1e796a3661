--- label.lua -- text on pictures, in the stroke font of moth.plot.

local ffi = require "ffi"
local font = require "moth.plot.font"
local lib = require "moth.binding.lib"

local ceil, floor, max, min, sqrt = math.ceil, math.floor, math.max, math.min, math.sqrt

local label = {}

local RADIUS = 0.55 -- half the width of a stroke, in pixels

-- The coverage of a segment: cover, of width x height bytes, keeps the largest value.
local function cover_segment(cover, width, height, x1, y1, x2, y2)
  local dx, dy, reach = x2 - x1, y2 - y1, RADIUS + 1
  local squared = dx * dx + dy * dy
  for row = max(floor(min(y1, y2) - reach), 0), min(ceil(max(y1, y2) + reach), height - 1) do
    for column = max(floor(min(x1, x2) - reach), 0), min(ceil(max(x1, x2) + reach), width - 1) do
      local px, py = column + 0.5 - x1, row + 0.5 - y1
      local t = squared > 0 and min(max((px * dx + py * dy) / squared, 0), 1) or 0
      local ex, ey = px - t * dx, py - t * dy
      local share = floor(255 * min(RADIUS + 0.5 - sqrt(ex * ex + ey * ey), 1) + 0.5)
      local at = row * width + column
      if share > cover[at] then cover[at] = share end
    end
  end
end

--- Width and height of a text in pixels.
function label.size(text, size) return ceil(font.width(text, size)), size end

--- Draws a text.
-- @param canvas  a contiguous uint8 tensor (3, height, width)
-- @param x, y    its upper left corner, in pixels from 0 on
-- @param size    the font's size in pixels
-- @param color   {red, green, blue}
function label.draw(canvas, text, x, y, size, color)
  local wide, high = label.size(text, size)
  wide, high = wide + 2, high + 2
  local cover = lib.array("uint8_t", wide * high)
  font.draw(text, 1, 0.85 * size, size, false, function(points)
    for i = 3, #points, 2 do
      cover_segment(cover, wide, high, points[i - 2], points[i - 1], points[i], points[i + 1])
    end
    if #points == 2 then
      cover_segment(cover, wide, high, points[1], points[2], points[1], points[2])
    end
  end)
  local height, width = canvas:size(2), canvas:size(3)
  local pixels = ffi.cast("uint8_t *", lib.C.moth_data(lib.ctx, canvas))
  for row = max(0, -y), min(high, height - y) - 1 do
    for column = max(0, -x), min(wide, width - x) - 1 do
      local share = cover[row * wide + column] / 255
      for c = 0, share > 0 and 2 or -1 do
        local at = (c * height + y + row) * width + x + column
        pixels[at] = pixels[at] * (1 - share) + color[c + 1] * share + 0.5
      end
    end
  end
end

return label
