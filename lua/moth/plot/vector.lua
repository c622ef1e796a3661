--- vector.lua -- lays out a scene in pixels: margins, axes, legend. The result is a list of simple
-- shapes, which svg.lua writes and raster.lua paints:
--
--   {"line", points, color, width, dash}     points = {x, y, x, y, ...}, y grows downwards
--   {"rect", x, y, w, h, color, opacity}
--   {"marker", shape, x, y, size, color}
--   {"text", x, y, text, size, anchor, turned, color}   anchor start, middle or end; y: baseline
--   {"image", x, y, w, h, pixels}            uint8 (H, W, 3)

local font = require "moth.plot.font"
local scene_of = require("moth.plot.scene").of
local style = require "moth.plot.style"
local ticks = require "moth.plot.ticks"

local vector = {}

local INK, GREY, FAINT = {40, 40, 40}, {110, 110, 110}, {228, 228, 228}
local WHITE = {255, 255, 255}
local TITLE, LABEL, TICK = 15, 12, 11 -- sizes of the font in pixels
local GAP = 6
local YGAP = 4 -- more room between the labels of the y axis and its name
local LINE, MARKER = 1.8, 6.5
local SAMPLE = 30 -- the length of a line in the legend
local BAR = 14    -- the width of the bar of a heat map's colors

-- ---- sizes ----

local function widest(list, size)
  local most = 0
  for _, tick in ipairs(list) do most = math.max(most, font.width(tick.label, size)) end
  return most
end

-- The legend as rows of {x, item}, which fit into `width`.
local function legend_rows(legend, width)
  local rows, x = {}, 0
  for _, item in ipairs(legend) do
    local w = SAMPLE + GAP + font.width(item.name, LABEL) + 3 * GAP
    if #rows == 0 or x + w > width and x > 0 then
      rows[#rows + 1] = {}
      x = 0
    end
    table.insert(rows[#rows], {x = x, item = item})
    x = x + w
  end
  return rows
end

-- The rectangle of the marks, and the margins around it.
local function layout(scene, width, height)
  local left = GAP + (#scene.yticks > 0 and widest(scene.yticks, TICK) + GAP or 0)
  if scene.ylabel then left = left + LABEL + GAP + YGAP end
  local right = 2 * GAP + (#scene.xticks > 0 and widest(scene.xticks, TICK) / 2 or 0)
  if scene.bar then
    local bar = scene.bar
    bar.ticks = ticks.scale(bar.low, bar.high).ticks(5)
    right = 3 * GAP + BAR + GAP + widest(bar.ticks, TICK)
  end
  local rows = legend_rows(scene.legend, width - left - right)
  local top = 2 * GAP + (scene.title and TITLE + GAP or 0) + #rows * (LABEL + GAP)
  local bottom = GAP + (#scene.xticks > 0 and TICK + 2 * GAP or 0)
    + (scene.xlabel and LABEL + GAP or 0)
  local area = {x = left, y = top, w = math.max(width - left - right, 20),
                h = math.max(height - top - bottom, 20)}
  if scene.aspect then -- keep the shape of a picture, in the middle
    local h = area.w * scene.aspect
    if h <= area.h then
      area.y, area.h = area.y + (area.h - h) / 2, h
    else
      local w = area.h / scene.aspect
      area.x, area.w = area.x + (area.w - w) / 2, w
    end
  end
  for _, key in ipairs {"x", "y", "w", "h"} do area[key] = math.floor(area[key] + 0.5) end
  return area, rows
end

-- ---- axes ----

local function add(list, ...) list[#list + 1] = {...} end

local function draw_grid(list, scene, area)
  if scene.grid == false then return end
  for _, tick in ipairs(scene.xticks) do
    local x = area.x + tick.at * area.w
    add(list, "line", {x, area.y, x, area.y + area.h}, FAINT, 1)
  end
  for _, tick in ipairs(scene.yticks) do
    local y = area.y + (1 - tick.at) * area.h
    add(list, "line", {area.x, y, area.x + area.w, y}, FAINT, 1)
  end
end

local function draw_axes(list, scene, area)
  local bottom = area.y + area.h
  add(list, "line", {area.x, area.y, area.x, bottom, area.x + area.w, bottom}, INK, 1)
  for _, tick in ipairs(scene.xticks) do
    local x = area.x + tick.at * area.w
    add(list, "line", {x, bottom, x, bottom + 4}, INK, 1)
    add(list, "text", x, bottom + GAP + TICK, tick.label, TICK, "middle", false, INK)
  end
  for _, tick in ipairs(scene.yticks) do
    local y = area.y + (1 - tick.at) * area.h
    add(list, "line", {area.x - 4, y, area.x, y}, INK, 1)
    add(list, "text", area.x - GAP - 1, y + TICK * 0.36, tick.label, TICK, "end", false, INK)
  end
end

local function draw_names(list, scene, area, width, height, labels_left)
  local middle = area.x + area.w / 2
  if scene.title then
    add(list, "text", width / 2, GAP + TITLE, scene.title, TITLE, "middle", false, INK)
  end
  if scene.xlabel then
    add(list, "text", middle, height - GAP - 1, scene.xlabel, LABEL, "middle", false, INK)
  end
  if scene.ylabel then
    add(list, "text", labels_left, area.y + area.h / 2, scene.ylabel, LABEL, "middle", true, INK)
  end
end

-- ---- marks ----

local draw = {}

function draw.line(list, mark, at)
  local s = style.of(mark.series)
  for _, path in ipairs(mark.paths) do
    local points = {}
    for i = 1, #path, 2 do points[i], points[i + 1] = at(path[i], path[i + 1]) end
    add(list, "line", points, s.color, LINE, s.dash)
  end
end

function draw.points(list, mark, at)
  local s = style.of(mark.series)
  local size = #mark.points > 2000 and MARKER * 0.6 or MARKER
  for i = 1, #mark.points, 2 do
    local x, y = at(mark.points[i], mark.points[i + 1])
    add(list, "marker", s.marker, x, y, size, s.color)
  end
end

-- Bars that do not hide others are filled; else they are outlines over a light ground.
function draw.bars(list, mark, at)
  local s = style.of(mark.series)
  local outline = {}
  for i = 1, #mark.rects, 4 do
    local x, y, w, h = unpack(mark.rects, i, i + 3)
    local left, top = at(x, y + h)
    local right, bottom = at(x + w, y)
    local gap = not mark.light and right - left > 4 and 1 or 0
    add(list, "rect", left, top, right - left - gap, bottom - top, s.color, mark.light and 0.2 or 1)
    local n = #outline
    if n == 0 then outline[1], outline[2], n = left, bottom, 2 end
    outline[n + 1], outline[n + 2], outline[n + 3], outline[n + 4] = left, top, right, top
    if i + 4 > #mark.rects then outline[n + 5], outline[n + 6] = right, bottom end
  end
  if mark.light and #outline > 0 then add(list, "line", outline, s.color, LINE, s.dash) end
end

function draw.image(list, mark, at)
  local x, y = at(mark.x, mark.y + mark.h)
  local right, bottom = at(mark.x + mark.w, mark.y)
  add(list, "image", x, y, right - x, bottom - y, mark.pixels)
end

function draw.texts(list, mark, at)
  for _, item in ipairs(mark) do
    local x, y = at(item[1], item[2])
    add(list, "text", x, y + TICK * 0.36, item[3], TICK, "middle", false,
      item.dark and INK or WHITE)
  end
end

-- ---- legend and color bar ----

local function draw_legend(list, rows, area, top)
  for i, row in ipairs(rows) do
    local y = top + (i - 1) * (LABEL + GAP) + LABEL
    for _, cell in ipairs(row) do
      local s, x = style.of(cell.item.series), area.x + cell.x
      local middle = y - LABEL * 0.35
      if cell.item.kind == "points" then
        add(list, "marker", s.marker, x + SAMPLE / 2, middle, MARKER, s.color)
      else
        add(list, "line", {x, middle, x + SAMPLE, middle}, s.color, LINE, s.dash)
      end
      add(list, "text", x + SAMPLE + GAP, y, cell.item.name, LABEL, "start", false, INK)
    end
  end
end

local function draw_bar(list, bar, area)
  local x, colors = area.x + area.w + 2 * GAP, style.map(bar.map)
  local steps = 64
  for i = 0, steps - 1 do
    local top = area.y + area.h * (steps - 1 - i) / steps
    add(list, "rect", x, top, BAR, area.h / steps + (i > 0 and 0.5 or 0),
      colors[math.floor(i / (steps - 1) * 255 + 0.5) + 1], 1)
  end
  for _, tick in ipairs(bar.ticks) do
    local y = area.y + (1 - tick.at) * area.h
    add(list, "line", {x + BAR, y, x + BAR + 3, y}, GREY, 1)
    add(list, "text", x + BAR + GAP, y + TICK * 0.36, tick.label, TICK, "start", false, INK)
  end
end

--- The shapes of a figure.
-- @param width, height  in pixels
function vector.shapes(figure, width, height)
  local scene = scene_of(figure, {columns = width, x = math.max(width / 90, 2),
                                  y = math.max(height / 60, 2)})
  local area, rows = layout(scene, width, height)
  local list = {}
  local function at(x, y) return area.x + x * area.w, area.y + (1 - y) * area.h end
  draw_grid(list, scene, area)
  for _, mark in ipairs(scene.marks) do draw[mark.kind](list, mark, at) end
  if scene.frame then draw_axes(list, scene, area) end
  local labels_left = area.x - GAP - YGAP
    - (#scene.yticks > 0 and widest(scene.yticks, TICK) + GAP or 0)
  draw_names(list, scene, area, width, height, labels_left)
  draw_legend(list, rows, area, 2 * GAP + (scene.title and TITLE + GAP or 0) - GAP / 2)
  if scene.bar then draw_bar(list, scene.bar, area) end
  return list
end

return vector
