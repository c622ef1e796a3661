--- terminal.lua -- draws a scene as text: curves and points of braille dots, bars of blocks,
-- pictures of half blocks. A character has 2 x 4 dots.

local machine = require "moth.base.machine"
local scene_of = require("moth.plot.scene").of
local style = require "moth.plot.style"
local ticks = require "moth.plot.ticks"

local floor = math.floor

local terminal = {}

local WIDEST = 100
local MOST_SYMBOLS = 200 -- points that are drawn as characters; more are dots
local SYMBOLS = {circle = "●", square = "■", triangle = "▲", diamond = "◆", cross = "×",
                 plus = "+", ring = "○"}

-- ---- colors ----

--- Which colors the terminal can show: "none", "16", "256" or "true".
function terminal.colors()
  local no_color = os.getenv "NO_COLOR"
  local term = os.getenv "TERM" or ""
  if no_color and no_color ~= "" or term == "dumb" or not machine.is_terminal(1) then
    return "none"
  end
  local more = os.getenv "COLORTERM"
  if more == "truecolor" or more == "24bit" then return "true" end
  return term:find("256color", 1, true) and "256" or "16"
end

-- The parameters of an escape sequence for a color {r, g, b}. ground: 38 for text, 48 for the
-- background.
local function code_of(color, ground, colors)
  if colors == "true" then
    return ("%d;2;%d;%d;%d"):format(ground, color[1], color[2], color[3])
  end
  local function six(v) return floor(v / 255 * 5 + 0.5) end
  return ("%d;5;%d"):format(ground, 16 + 36 * six(color[1]) + 6 * six(color[2]) + six(color[3]))
end

-- ---- characters ----

local function utf8(code)
  return string.char(224 + floor(code / 4096), 128 + floor(code / 64) % 64, 128 + code % 64)
end

-- The number of characters of a UTF-8 text.
local function width_of(text)
  local _, n = text:gsub("[^\128-\191]", "")
  return n
end

local function padded(text, width, right)
  local space = (" "):rep(width - width_of(text))
  return right and space .. text or text .. space
end

local function centered(text, width)
  local left = math.max(floor((width - width_of(text)) / 2), 0)
  return (" "):rep(left) .. text
end

-- ---- the canvas: cells of {dots, char, ink, ground} ----

local DOTS = {[0] = {[0] = 1, 2, 4, 64}, {[0] = 8, 16, 32, 128}} -- [x % 2][y % 4]

local function new(columns, rows)
  local canvas = {columns = columns, rows = rows}
  for i = 1, columns * rows do canvas[i] = {dots = 0} end
  return canvas
end

local function cell_at(canvas, column, row)
  if column < 0 or row < 0 or column >= canvas.columns or row >= canvas.rows then return nil end
  return canvas[row * canvas.columns + column + 1]
end

local function dot(canvas, x, y, ink)
  local cell = cell_at(canvas, floor(x / 2), floor(y / 4))
  if cell then
    cell.dots, cell.ink = bit.bor(cell.dots, DOTS[x % 2][y % 4]), ink
  end
end

-- A segment between two dots.
local function segment(canvas, x1, y1, x2, y2, ink)
  local n = math.max(math.abs(x2 - x1), math.abs(y2 - y1))
  n = math.ceil(n)
  for i = 0, n do
    local t = n == 0 and 0 or i / n
    dot(canvas, floor(x1 + (x2 - x1) * t + 0.5), floor(y1 + (y2 - y1) * t + 0.5), ink)
  end
end

local function write(canvas, column, row, text, ink)
  for char in text:gmatch "[%z\1-\127\194-\244][\128-\191]*" do
    local cell = cell_at(canvas, column, row)
    if cell then cell.char, cell.ink, cell.dots = char, ink, 0 end
    column = column + 1
  end
end

-- The rows as text.
local function rows_of(canvas, colors)
  local list = {}
  for row = 0, canvas.rows - 1 do
    local parts, last = {}, ""
    for column = 0, canvas.columns - 1 do
      local cell = cell_at(canvas, column, row)
      local char = cell.char or cell.dots > 0 and utf8(0x2800 + cell.dots) or " "
      if colors ~= "none" then
        local codes = {}
        if cell.ink and char ~= " " then codes[1] = cell.ink end
        if cell.ground then codes[#codes + 1] = cell.ground end
        local now = table.concat(codes, ";")
        if now ~= last then
          parts[#parts + 1] = last ~= "" and "\27[0m" or ""
          if now ~= "" then parts[#parts + 1] = "\27[" .. now .. "m" end
          last = now
        end
      end
      parts[#parts + 1] = char
    end
    if last ~= "" then parts[#parts + 1] = "\27[0m" end
    list[row + 1] = table.concat(parts)
  end
  return list
end

-- ---- marks ----

local draw = {}

local function ink_of(series) return tostring(style.of(series).code) end

local DASH = 1.2 -- dots for each unit of a dash

local function dotted_path(canvas, path, s, ink)
  style.dashed(path, s.dash, DASH, function(part)
    if #part == 2 then segment(canvas, part[1], part[2], part[1], part[2], ink) end
    for i = 3, #part, 2 do
      segment(canvas, part[i - 2], part[i - 1], part[i], part[i + 1], ink)
    end
  end)
end

local function to_dots(canvas, x, y)
  return x * (2 * canvas.columns - 1), (1 - y) * (4 * canvas.rows - 1)
end

function draw.line(canvas, mark)
  local s, ink = style.of(mark.series), ink_of(mark.series)
  for _, path in ipairs(mark.paths) do
    local points = {}
    for i = 1, #path, 2 do points[i], points[i + 1] = to_dots(canvas, path[i], path[i + 1]) end
    dotted_path(canvas, points, s, ink)
  end
end

function draw.points(canvas, mark)
  local s, ink = style.of(mark.series), ink_of(mark.series)
  local many = #mark.points / 2 > MOST_SYMBOLS
  for i = 1, #mark.points, 2 do
    local x, y = to_dots(canvas, mark.points[i], mark.points[i + 1])
    if many then
      dot(canvas, floor(x + 0.5), floor(y + 0.5), ink)
    else
      write(canvas, floor(x / 2), floor(y / 4), SYMBOLS[s.marker], ink)
    end
  end
end

local BLOCKS = {[0] = " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}

local function outline(canvas, mark)
  local points = {}
  for i = 1, #mark.rects, 4 do
    local x, y, w, h = unpack(mark.rects, i, i + 3)
    local n = #points
    points[n + 1], points[n + 2] = to_dots(canvas, x, y + h)
    points[n + 3], points[n + 4] = to_dots(canvas, x + w, y + h)
  end
  if #points > 0 then
    dotted_path(canvas, points, style.of(mark.series), ink_of(mark.series))
  end
end

function draw.bars(canvas, mark)
  if mark.light then return outline(canvas, mark) end
  local ink, at = ink_of(mark.series), 1
  for column = 0, canvas.columns - 1 do
    local x = (column + 0.5) / canvas.columns
    while at <= #mark.rects and mark.rects[at] + mark.rects[at + 2] < x do at = at + 4 end
    if at <= #mark.rects and mark.rects[at] <= x then
      local eighths = floor((mark.rects[at + 1] + mark.rects[at + 3]) * canvas.rows * 8 + 0.5)
      for row = 0, canvas.rows - 1 do
        local full = math.min(math.max(eighths - 8 * (canvas.rows - 1 - row), 0), 8)
        if full > 0 then write(canvas, column, row, BLOCKS[full], ink) end
      end
    end
  end
end

local SHADES = {[0] = " ", "░", "▒", "▓", "█"}

-- The color of a picture, or the share of a matrix, at a place from 0 to 1; y grows downwards.
local function sampler(mark, pixels)
  local rows, columns = #pixels, #pixels[1]
  return function(x, y)
    local column = floor((x - mark.x) / mark.w * columns)
    local row = floor((y - (1 - mark.y - mark.h)) / mark.h * rows)
    if column < 0 or row < 0 or column >= columns or row >= rows then return nil end
    return pixels[row + 1][column + 1]
  end
end

-- A picture in shades: more ink is a larger value, or more light.
local function shaded(canvas, mark)
  local sample = sampler(mark, mark.shares or mark.pixels:tolist())
  for row = 0, canvas.rows - 1 do
    for column = 0, canvas.columns - 1 do
      local value = sample((column + 0.5) / canvas.columns, (row + 0.5) / canvas.rows)
      if type(value) == "table" then value = style.brightness(unpack(value)) end
      if value == value and value then
        cell_at(canvas, column, row).char = SHADES[floor(value * 4 + 0.5)]
      end
    end
  end
end

function draw.image(canvas, mark, colors)
  if colors == "none" or colors == "16" then return shaded(canvas, mark) end
  local sample = sampler(mark, mark.pixels:tolist())
  for row = 0, canvas.rows - 1 do
    for column = 0, canvas.columns - 1 do
      local x = (column + 0.5) / canvas.columns
      local above = sample(x, (row + 0.25) / canvas.rows)
      local below = sample(x, (row + 0.75) / canvas.rows)
      local cell = cell_at(canvas, column, row)
      if above then
        cell.char, cell.ink = "▀", code_of(above, 38, colors)
        cell.ground = code_of(below or above, 48, colors)
      end
    end
  end
end

-- Numbers in cells: on the color of the cell.
function draw.texts(canvas, mark, colors)
  for _, item in ipairs(mark) do
    local n = width_of(item[3])
    local column = floor(item[1] * canvas.columns - n / 2 + 0.5)
    local row = math.min(floor((1 - item[2]) * canvas.rows), canvas.rows - 1)
    if colors == "none" or colors == "16" then
      write(canvas, column - 1, row, " " .. item[3] .. " ")
    else
      write(canvas, column, row, item[3], item.dark and "30" or "97")
    end
  end
end

-- ---- axes ----

local function label_width(list)
  local most = 0
  for _, tick in ipairs(list) do most = math.max(most, width_of(tick.label)) end
  return most
end

-- Labels below the axis; a label that would touch the one before is left out.
local function label_row(list, columns, left)
  local row, stop = (" "):rep(left), left
  for _, tick in ipairs(list) do
    local n = width_of(tick.label)
    local at = left + math.max(floor(tick.at * (columns - 1) + 0.5 - (n - 1) / 2), 0)
    if at + n > left + columns then at = left + columns - n end
    if at >= stop + (stop > left and 1 or 0) then
      row = row .. (" "):rep(at - stop) .. tick.label
      stop = at + n
    end
  end
  return row
end

local function axis_rows(scene, body, columns, width)
  local rows, at = {}, {}
  for _, tick in ipairs(scene.yticks) do
    at[math.min(floor((1 - tick.at) * #body), #body - 1) + 1] = tick.label
  end
  for i, text in ipairs(body) do
    rows[i] = padded(at[i] or "", width, true) .. (at[i] and " ┤" or " │") .. text
  end
  local line = {}
  for i = 1, columns do line[i] = "─" end
  for _, tick in ipairs(scene.xticks) do
    local column = math.min(math.max(floor(tick.at * (columns - 1) + 0.5), 0), columns - 1) + 1
    line[column] = "┬"
  end
  rows[#rows + 1] = (" "):rep(width) .. " └" .. table.concat(line)
  if #scene.xticks > 0 then rows[#rows + 1] = label_row(scene.xticks, columns, width + 2) end
  return rows
end

-- ---- legend ----

local SAMPLE = 6 -- characters

local function sample_of(item, colors)
  local s, ink = style.of(item.series), ink_of(item.series)
  local canvas = new(SAMPLE, 1)
  if item.kind == "points" then
    write(canvas, SAMPLE / 2, 0, SYMBOLS[s.marker], ink)
  else
    dotted_path(canvas, {0, 1, 2 * SAMPLE - 1, 1}, s, ink)
  end
  return rows_of(canvas, colors)[1]
end

local function legend_rows(scene, width, left, colors)
  local rows, row, n = {}, {}, 0
  for _, item in ipairs(scene.legend) do
    local w = SAMPLE + 1 + width_of(item.name) + 3
    if n > 0 and n + w > width then
      rows[#rows + 1] = (" "):rep(left) .. table.concat(row, "   ")
      row, n = {}, 0
    end
    row[#row + 1], n = sample_of(item, colors) .. " " .. item.name, n + w
  end
  if #row > 0 then rows[#rows + 1] = (" "):rep(left) .. table.concat(row, "   ") end
  return rows
end

-- ---- the whole text ----

local function bold(text, colors)
  return colors == "none" and text or "\27[1m" .. text .. "\27[0m"
end

-- The size of the canvas of a picture, which keeps its shape: a character is twice as high as wide.
local function picture_size(figure, columns)
  local h, w = figure.layers[1].pixels:size(1), figure.layers[1].pixels:size(2)
  local wide = math.min(w * math.max(1, floor(48 / w)), columns)
  local high = math.max(floor(wide * h / w / 2 + 0.5), 1)
  if high > 40 then wide, high = math.max(floor(wide * 40 / high), 1), 40 end
  return wide, high
end

-- "0 ░▒▓█ 1": the range of a heat map's colors.
local function bar_row(bar, left, colors)
  local map, parts = style.map(bar.map), {}
  for i = 0, 15 do
    local color = map[floor(i / 15 * 255 + 0.5) + 1]
    parts[#parts + 1] = (colors == "none" or colors == "16")
      and SHADES[floor(i / 15 * 4 + 0.5)]
      or "\27[" .. code_of(color, 48, colors) .. "m "
  end
  if colors ~= "none" then parts[#parts + 1] = "\27[0m" end
  return (" "):rep(left) .. ticks.short(bar.low) .. " " .. table.concat(parts) .. " "
    .. ticks.short(bar.high)
end

--- The text of a figure.
-- @param columns  width; nil: of the terminal, at most 100
-- @param rows     height of the axes
-- @param color    index of {"auto", "none", "16", "256", "true"}, or one of them
function terminal.text(figure, columns, rows, color)
  local colors = color == "auto" and terminal.colors() or color
  columns = columns or math.min(machine.columns() or 80, WIDEST)
  local scene = scene_of(figure, {columns = 2 * columns, x = math.max(columns / 10, 2),
                                  y = math.max(rows / 3, 2)})
  local width = label_width(scene.yticks)
  local wide, high = columns - width - 3, rows
  if figure.picture then wide, high = picture_size(figure, columns) end
  if figure.flipped and not figure.picture then -- a row of the matrix has the same height as others
    local n = figure.layers[1].pixels:size(1)
    high = n <= rows and n * math.max(floor(rows / n), 1) or rows
    local m = figure.layers[1].pixels:size(2)
    if m <= wide then wide = m * math.min(floor(wide / m), figure.aspect and 8 or 1000) end
  end
  wide = math.max(wide, 5)
  local canvas = new(wide, high)
  for _, mark in ipairs(scene.marks) do draw[mark.kind](canvas, mark, colors) end
  local out, left = {}, scene.frame and width + 2 or 0
  if scene.title then
    out[1] = (" "):rep(left) .. bold(centered(scene.title, wide), colors)
  end
  for _, row in ipairs(legend_rows(scene, columns, left, colors)) do out[#out + 1] = row end
  if scene.ylabel and scene.frame then out[#out + 1] = scene.ylabel end
  local body = rows_of(canvas, colors)
  for _, row in ipairs(scene.frame and axis_rows(scene, body, wide, width) or body) do
    out[#out + 1] = row
  end
  if scene.xlabel then out[#out + 1] = (" "):rep(left) .. centered(scene.xlabel, wide) end
  if scene.bar then out[#out + 1] = bar_row(scene.bar, left, colors) end
  for i, row in ipairs(out) do out[i] = row:gsub(" +$", "") end
  return table.concat(out, "\n")
end

--- The figure for print: pictures in the terminal's graphics where it has them, else text.
function terminal.shown(figure)
  if (figure.picture or figure.bar) and machine.is_terminal(1) then
    local graphics = require "moth.plot.graphics"
    local protocol = graphics.protocol()
    if protocol == "kitty" then return graphics.kitty(figure:png(1)) end
    if protocol == "sixel" then
      local pixels = figure:image(1):permute(2, 3, 1):contiguous()
      return graphics.sixel(pixels)
    end
  end
  return terminal.text(figure, nil, 16, "auto")
end

return terminal
