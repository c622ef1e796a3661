--- style.lua -- how the series of a plot differ: color, dashes and marker; and the maps from
-- numbers to colors.

local style = {}

-- Colors that people with color blindness can distinguish (Okabe and Ito, 2008); the code is the
-- color of a terminal. Dashes are lengths in multiples of the line's width, on and off in turn.
local SERIES = {
  {color = {0, 114, 178}, code = 36, dash = nil, marker = "circle"},
  {color = {213, 94, 0}, code = 33, dash = {5, 3}, marker = "square"},
  {color = {0, 158, 115}, code = 32, dash = {1.5, 2}, marker = "triangle"},
  {color = {204, 121, 167}, code = 35, dash = {7, 2.5, 1.5, 2.5}, marker = "diamond"},
  {color = {86, 180, 233}, code = 34, dash = {10, 3}, marker = "cross"},
  {color = {230, 159, 0}, code = 31, dash = {3, 1.5}, marker = "plus"},
  {color = {90, 90, 90}, code = 37, dash = {7, 2, 1.5, 2, 1.5, 2}, marker = "ring"},
}

--- The style of series i, from 1. After the last one the colors and markers begin again.
function style.of(i) return SERIES[(i - 1) % #SERIES + 1] end

-- ---- maps of colors ----

-- Colors at equal steps from 0 to 1, in hexadecimal digits.
local MAPS = {
  gray = "000000ffffff",
  blues = "f7fbffdeebf7c6dbef9ecae16baed64292c62171b508519c08306b", -- Brewer's
  -- Smith and van der Walt's viridis (CC0)
  viridis = "440154482475414487355f8d2a788e21918c22a88444bf707ad151bddf26fde725",
  -- Brewer's RdBu, from blue over white to red
  coolwarm = "0530612166ac4393c392c5ded1e5f0f7f7f7fddbc7f4a582d6604db2182b67001f",
}

local tables = {} -- name -> list of {r, g, b}

local function steps_of(name)
  if not tables[name] then
    local list = {}
    for r, g, b in MAPS[name]:gmatch "(%x%x)(%x%x)(%x%x)" do
      list[#list + 1] = {tonumber(r, 16), tonumber(g, 16), tonumber(b, 16)}
    end
    tables[name] = list
  end
  return tables[name]
end

--- The names of the maps, sorted.
style.maps = {"blues", "coolwarm", "gray", "viridis"}

--- A map as a list of 256 colors {r, g, b}, each from 0 to 255.
function style.map(name)
  local steps, list = steps_of(name), {}
  for i = 0, 255 do
    local at = i / 255 * (#steps - 1)
    local k = math.min(math.floor(at), #steps - 2)
    local a, b, share = steps[k + 1], steps[k + 2], at - k
    local color = {}
    for c = 1, 3 do color[c] = math.floor(a[c] + (b[c] - a[c]) * share + 0.5) end
    list[i + 1] = color
  end
  return list
end

--- The brightness of a color, from 0 to 1.
function style.brightness(r, g, b) return (0.299 * r + 0.587 * g + 0.114 * b) / 255 end

-- ---- dashes ----

--- Splits a path of x, y pairs into the drawn parts of a dashed line.
-- @param lengths  of dashes and gaps in turn; nil: the whole path
-- @param unit     multiplies the lengths
-- @param emit     function(path)
function style.dashed(path, lengths, unit, emit)
  if not lengths then return emit(path) end
  local k, left, on = 1, lengths[1] * unit, true
  local part = {path[1], path[2]}
  for i = 3, #path, 2 do
    local x, y, x2, y2 = path[i - 2], path[i - 1], path[i], path[i + 1]
    local length = math.sqrt((x2 - x) ^ 2 + (y2 - y) ^ 2)
    local done = 0
    while length - done > left do
      done = done + left
      local px, py = x + (x2 - x) * done / length, y + (y2 - y) * done / length
      if on then
        part[#part + 1], part[#part + 2] = px, py
        emit(part)
      end
      part, on, k = {px, py}, not on, k % #lengths + 1
      left = lengths[k] * unit
    end
    left = left - (length - done)
    part[#part + 1], part[#part + 2] = x2, y2
  end
  if on and #part >= 4 then emit(part) end
end

return style
