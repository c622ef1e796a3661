--- scene.lua -- the contents of a plot, without the size and the pixels of an output: marks in a
-- square from (0, 0) at the lower left to (1, 1), ticks, names. vector.lua draws it for SVG and
-- PNG, terminal.lua as text.
--
-- A mark is one of
--   {kind = "line", series = i, paths = {{x, y, x, y, ...}, ...}}
--   {kind = "points", series = i, points = {x, y, ...}}
--   {kind = "bars", series = i, rects = {x, y, w, h, ...}, light = true if it is over others}
--   {kind = "image", pixels = uint8 (H, W, 3), x, y, w, h, shares = values from 0 to 1 by row and
--   column, for outputs without colors; nil: the brightness}
--   {kind = "texts", list of {x, y, text, dark = true on a light ground}}

local ticks = require "moth.plot.ticks"

local scene = {}

local PADDING = 0.04 -- share of the range that stays free at both ends
local huge = math.huge

-- ---- limits ----

local function extend(range, low, high)
  if low < range[1] then range[1] = low end
  if high > range[2] then range[2] = high end
end

local function extend_by(range, list, log)
  for i = 1, #list do
    local v = list[i]
    if v - v == 0 and not (log and v <= 0) then extend(range, v, v) end
  end
end

local function limits(layers, axis, log)
  local range, tight = {huge, -huge}, false
  for _, layer in ipairs(layers) do
    if layer.kind == "image" then
      extend(range, unpack(layer.extent, axis == "x" and 1 or 3, axis == "x" and 2 or 4))
      tight = true
    elseif layer.kind == "bars" and axis == "x" then
      extend(range, layer.edges[1], layer.edges[#layer.edges])
    elseif layer.kind == "bars" then
      extend_by(range, layer.heights, log)
      if not log then extend(range, 0, 0) end
    elseif layer.kind ~= "texts" then
      extend_by(range, layer[axis], log)
    end
  end
  if range[1] > range[2] then range = log and {1, 10} or {0, 1} end
  return range[1], range[2], tight
end

local function has_bars(layers)
  for _, layer in ipairs(layers) do
    if layer.kind == "bars" then return true end
  end
end

local function scale_of(figure, axis)
  local log = figure[axis .. "scale"] == "log"
  local low, high, tight = limits(figure.layers, axis, log)
  local given = figure[axis .. "lim"]
  if given then
    low, high = given[1], given[2]
  elseif not tight and low < high then
    local pad = PADDING
    if log then
      local share = (high / low) ^ pad
      low, high = low / share, high * share
    else
      local room = (high - low) * pad
      if not (axis == "y" and low == 0 and has_bars(figure.layers)) then low = low - room end
      high = high + room
    end
  end
  return ticks.scale(low, high, log)
end

-- ---- lines ----

-- The part of a segment inside the square: Liang and Barsky (1984). Nil if there is none.
local function clipped(x1, y1, x2, y2)
  local from, to = 0, 1
  local dx, dy = x2 - x1, y2 - y1
  for side = 1, 4 do
    local p = side == 1 and -dx or side == 2 and dx or side == 3 and -dy or dy
    local q = side == 1 and x1 or side == 2 and 1 - x1 or side == 3 and y1 or 1 - y1
    if p == 0 then
      if q < 0 then return nil end
    else
      local t = q / p
      if p < 0 then from = math.max(from, t) else to = math.min(to, t) end
    end
  end
  if from > to then return nil end
  -- Ends inside are exact, so that the next segment begins where this one ends.
  local x, y = x1, y1
  if from > 0 then x, y = x1 + from * dx, y1 + from * dy end
  if to < 1 then x2, y2 = x1 + to * dx, y1 + to * dy end
  return x, y, x2, y2
end

local function is_finite(x, y) return x ~= nil and x - x == 0 and y - y == 0 end

-- Paths inside the square. NaN and infinite values interrupt a path; a point between two of them is
-- a path of no length.
local function paths_of(xs, ys)
  local paths, path = {}, nil
  for i = 1, #xs do
    local x, y, px, py = xs[i], ys[i], xs[i - 1], ys[i - 1]
    local a, b, c, d
    if is_finite(x, y) then
      if is_finite(px, py) then
        a, b, c, d = clipped(px, py, x, y)
      elseif not is_finite(xs[i + 1], ys[i + 1]) then
        a, b, c, d = clipped(x, y, x, y)
      end
    end
    if a and not (path and path[#path - 1] == a and path[#path] == b) then
      path = {a, b}
      paths[#paths + 1] = path
    end
    if a then path[#path + 1], path[#path + 2] = c, d else path = nil end
  end
  return paths
end

-- Keeps the first, the least, the largest and the last value of each of `columns` columns, if the
-- places ascend. It draws the same picture as all values.
local function thinned(xs, ys, columns)
  if #xs <= 4 * columns then return xs, ys end
  local ox, oy, n = {}, {}, 0
  local i = 1
  while i <= #xs do
    local column = math.floor(xs[i] * columns)
    local first, least, most, last = i, i, i, i
    while i <= #xs and math.floor(xs[i] * columns) == column do
      if i > 1 and xs[i] < xs[i - 1] then return xs, ys end
      if ys[i] < ys[least] or ys[least] ~= ys[least] then least = i end
      if ys[i] > ys[most] or ys[most] ~= ys[most] then most = i end
      last, i = i, i + 1
    end
    if xs[last] - xs[last] ~= 0 or last < first then return xs, ys end
    local order = {first, math.min(least, most), math.max(least, most), last}
    for k = 1, 4 do
      if k == 1 or order[k] ~= order[k - 1] then
        n = n + 1
        ox[n], oy[n] = xs[order[k]], ys[order[k]]
      end
    end
  end
  return ox, oy
end

-- ---- marks ----

local function placed(list, scale)
  local out, map = {}, scale.map
  for i = 1, #list do out[i] = map(list[i]) end
  return out
end

local marks = {}

function marks.line(layer, sx, sy, columns)
  local x, y = thinned(placed(layer.x, sx), placed(layer.y, sy), columns)
  return {kind = "line", paths = paths_of(x, y)}
end

-- Points inside the square, at most one for each cell of a fine grid.
function marks.points(layer, sx, sy, columns)
  local points, seen, n = {}, {}, 0
  local cells = 2 * columns
  for i = 1, #layer.x do
    local x, y = sx.map(layer.x[i]), sy.map(layer.y[i])
    if x >= 0 and x <= 1 and y >= 0 and y <= 1 then
      local cell = math.floor(x * cells) * (cells + 1) + math.floor(y * cells)
      if not seen[cell] then
        seen[cell] = true
        points[n + 1], points[n + 2], n = x, y, n + 2
      end
    end
  end
  return {kind = "points", points = points}
end

local function within(v) return math.min(math.max(v, 0), 1) end

function marks.bars(layer, sx, sy)
  local rects = {}
  for i, height in ipairs(layer.heights) do
    local x1, x2 = within(sx.map(layer.edges[i])), within(sx.map(layer.edges[i + 1]))
    local bottom = sy.log and 0 or within(sy.map(0))
    local y = sy.map(height)
    y = y == y and within(y) or 0
    if x2 > x1 then
      local n = #rects
      rects[n + 1], rects[n + 2] = x1, math.min(bottom, y)
      rects[n + 3], rects[n + 4] = x2 - x1, math.abs(y - bottom)
    end
  end
  return {kind = "bars", rects = rects, light = layer.light}
end

function marks.image(layer, sx, sy)
  local x1, x2 = sx.map(layer.extent[1]), sx.map(layer.extent[2])
  local y1, y2 = sy.map(layer.extent[3]), sy.map(layer.extent[4])
  return {kind = "image", pixels = layer.pixels, shares = layer.shares, x = x1, y = y1,
          w = x2 - x1, h = y2 - y1}
end

function marks.texts(layer, sx, sy)
  local list = {kind = "texts"}
  for i, item in ipairs(layer.list) do
    list[i] = {sx.map(item[1]), sy.map(item[2]), item[3], dark = item.dark}
  end
  return list
end

-- ---- axes ----

local function named_ticks(names, scale)
  local list = {}
  for i, name in ipairs(names) do list[i] = {at = scale.map(i), label = tostring(name)} end
  return list
end

-- Drops every second tick until about `count` are left.
local function fewer(list, count)
  while #list > math.max(count, 1) do
    local half = {}
    for i = 1, #list, 2 do half[#half + 1] = list[i] end
    list = half
  end
  return list
end

local function ticks_of(figure, axis, scale, count)
  local names = figure[axis .. "ticks"]
  if names == false then return {} end
  if names then return fewer(named_ticks(names, scale), 2 * count) end
  return scale.ticks(count)
end

--- Computes the scene of a figure.
-- @param size  {columns = distinguishable places along x, x = wanted ticks, y = wanted ticks}
-- @return a table: marks, xticks, yticks (lists of {at, label}), legend (list of {name, series,
-- kind}), title, xlabel, ylabel, grid, bar ({low, high, map}, of a heat map), flipped (y grows
-- downwards), aspect (height by width of the square; nil: any), frame (false: no axes)
function scene.of(figure, size)
  local sx, sy = scale_of(figure, "x"), scale_of(figure, "y")
  local self = {marks = {}, legend = {}, title = figure.title, xlabel = figure.xlabel,
                ylabel = figure.ylabel, grid = figure.grid, bar = figure.bar,
                flipped = figure.flipped, aspect = figure.aspect,
                frame = figure.frame ~= false}
  for _, layer in ipairs(figure.layers) do
    local mark = marks[layer.kind](layer, sx, sy, size.columns)
    mark.series = layer.series
    self.marks[#self.marks + 1] = mark
    if layer.name and figure.legend ~= false then
      self.legend[#self.legend + 1] = {name = layer.name, series = layer.series, kind = layer.kind}
    end
  end
  self.xticks = ticks_of(figure, "x", sx, size.x)
  self.yticks = ticks_of(figure, "y", sy, size.y)
  if figure.flipped then -- the first row is at the top
    for _, tick in ipairs(self.yticks) do tick.at = 1 - tick.at end
    for _, mark in ipairs(self.marks) do
      if mark.kind == "texts" then
        for _, item in ipairs(mark) do item[2] = 1 - item[2] end
      end
    end
  end
  return self
end

return scene
