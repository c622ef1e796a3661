--- svg.lua -- writes the shapes of vector.lua as SVG. The text has a shape a line and numbers with
-- at most two decimals, so that two plots can be compared as text.

local svg = {}

local SMALL_IMAGE = 400 -- pixels; a larger picture is embedded as PNG

local function number(x)
  return (("%.2f"):format(x):gsub("%.?0+$", ""):gsub("^%-0$", "0"))
end

local function color(c) return ("#%02x%02x%02x"):format(c[1], c[2], c[3]) end

local ESCAPES = {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;"}

-- Escapes a text for XML, and replaces the characters that XML forbids.
local function escaped(text)
  if require("moth.json").bad_utf8(text) then text = text:gsub("[\128-\255]", "?") end
  return (text:gsub("[%z\1-\8\11\12\14-\31]", " "):gsub('[&<>"]', ESCAPES))
end
svg.escaped = escaped

local write = {}

function write.line(points, ink, width, dash)
  local parts = {}
  for i = 1, #points, 2 do parts[#parts + 1] = number(points[i]) .. "," .. number(points[i + 1]) end
  local dashes = ""
  if dash then
    local lengths = {}
    for i, length in ipairs(dash) do lengths[i] = number(length * width) end
    dashes = (' stroke-dasharray="%s"'):format(table.concat(lengths, " "))
  end
  return ('<polyline points="%s" fill="none" stroke="%s" stroke-width="%s"%s/>'):format(
    table.concat(parts, " "), color(ink), number(width), dashes)
end

function write.rect(x, y, w, h, ink, opacity)
  return ('<rect x="%s" y="%s" width="%s" height="%s" fill="%s"%s/>'):format(number(x), number(y),
    number(math.max(w, 0)), number(math.max(h, 0)), color(ink),
    opacity < 1 and (' fill-opacity="%s"'):format(number(opacity)) or "")
end

local function polygon(points, ink)
  return ('<polygon points="%s" fill="%s"/>'):format(points, color(ink))
end

local markers = {}

function markers.circle(x, y, r, ink)
  return ('<circle cx="%s" cy="%s" r="%s" fill="%s"/>'):format(number(x), number(y), number(r),
    color(ink))
end

function markers.ring(x, y, r, ink)
  return ('<circle cx="%s" cy="%s" r="%s" fill="none" stroke="%s" stroke-width="1.5"/>'):format(
    number(x), number(y), number(r), color(ink))
end

function markers.square(x, y, r, ink)
  return write.rect(x - r * 0.9, y - r * 0.9, 1.8 * r, 1.8 * r, ink, 1)
end

function markers.triangle(x, y, r, ink)
  return polygon(("%s,%s %s,%s %s,%s"):format(number(x), number(y - 1.2 * r), number(x - 1.1 * r),
    number(y + 0.8 * r), number(x + 1.1 * r), number(y + 0.8 * r)), ink)
end

function markers.diamond(x, y, r, ink)
  return polygon(("%s,%s %s,%s %s,%s %s,%s"):format(number(x), number(y - 1.25 * r),
    number(x + 1.25 * r), number(y), number(x), number(y + 1.25 * r), number(x - 1.25 * r),
    number(y)), ink)
end

local function strokes(x, y, ink, list)
  local parts = {}
  for i = 1, #list, 4 do
    parts[#parts + 1] = ("M%s %sL%s %s"):format(number(x + list[i]), number(y + list[i + 1]),
      number(x + list[i + 2]), number(y + list[i + 3]))
  end
  return ('<path d="%s" stroke="%s" stroke-width="1.8"/>'):format(table.concat(parts), color(ink))
end

function markers.cross(x, y, r, ink) return strokes(x, y, ink, {-r, -r, r, r, -r, r, r, -r}) end
function markers.plus(x, y, r, ink)
  r = 1.2 * r
  return strokes(x, y, ink, {-r, 0, r, 0, 0, -r, 0, r})
end

function write.marker(shape, x, y, size, ink) return markers[shape](x, y, size / 2, ink) end

function write.text(x, y, text, size, anchor, turned, ink)
  local place = turned and ('transform="translate(%s %s) rotate(-90)"'):format(number(x), number(y))
    or ('x="%s" y="%s"'):format(number(x), number(y))
  return ('<text %s font-size="%s" text-anchor="%s" fill="%s">%s</text>'):format(place,
    number(size), anchor, color(ink), escaped(text))
end

-- A small picture as a rectangle for each pixel; equal neighbours in a row share one.
local function cells(x, y, w, h, pixels)
  local rows, columns = pixels:size(1), pixels:size(2)
  local list, out = pixels:tolist(), {}
  for r = 1, rows do
    local c = 1
    while c <= columns do
      local last = c
      local p = list[r][c]
      while last < columns and list[r][last + 1][1] == p[1] and list[r][last + 1][2] == p[2]
        and list[r][last + 1][3] == p[3] do last = last + 1 end
      out[#out + 1] = write.rect(x + (c - 1) * w / columns, y + (r - 1) * h / rows,
        (last - c + 1) * w / columns, h / rows, p, 1)
      c = last + 1
    end
  end
  return '<g shape-rendering="crispEdges">\n' .. table.concat(out, "\n") .. "\n</g>"
end

function write.image(x, y, w, h, pixels)
  if pixels:size(1) * pixels:size(2) <= SMALL_IMAGE then return cells(x, y, w, h, pixels) end
  local data = require("moth.io.png").encode(pixels)
  return ('<image x="%s" y="%s" width="%s" height="%s" preserveAspectRatio="none" '
    .. 'image-rendering="pixelated" href="data:image/png;base64,%s"/>'):format(number(x),
    number(y), number(w), number(h), require("moth.plot.base64")(data))
end

--- The text of an SVG file.
-- @param shapes         of vector.lua
-- @param width, height  in pixels
-- @param title          for readers of the screen; optional
function svg.text(shapes, width, height, title)
  local lines = {('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '
    .. 'viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" role="img">'):format(width,
    height, width, height)}
  if title then lines[2] = ("<title>%s</title>"):format(escaped(title)) end
  lines[#lines + 1] = ('<rect width="%d" height="%d" fill="#ffffff"/>'):format(width, height)
  for _, shape in ipairs(shapes) do
    lines[#lines + 1] = write[shape[1]](unpack(shape, 2, 9))
  end
  lines[#lines + 1] = "</svg>\n"
  return table.concat(lines, "\n")
end

return svg
