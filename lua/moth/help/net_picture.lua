--- net_picture.lua -- a net's graph as SVG: layers from top to bottom, curves for what they read.
-- moth.summary(net, input):save "net.svg" writes it.
--
-- The calls of a layer are one box. A box is below all boxes that it reads (longest path); a curve
-- that passes other rows has a place of its own in each of them. Boxes of a row are sorted by the
-- mean place of what they read (Sugiyama's method, one pass down and one up).

local class = require "moth.base.class"
local net_graph = require "moth.utils.net_graph"
local svg = require "moth.plot.svg"

local picture = {}

local HEIGHT, ROW_GAP, BOX_GAP, MARGIN = 40, 34, 26, 16
local LANE = 14       -- the width of a passing curve's place
local LETTER = 6.6    -- mean width of a letter
local LEAST = 90      -- the least width of a box

-- ---- boxes ----

local function shape_text(shape)
  return shape and "(" .. table.concat(shape, ", ") .. ")" or ""
end

-- "layers.0.conv" as one writes it in Lua: layers[1].conv.
local function lua_path(path)
  path = path:gsub("%f[^.%z]%d+%f[.%z]", function(i) return "[" .. i + 1 .. "]" end)
  return (path:gsub("%.%[", "["))
end

local function cut(path, depth)
  if not depth then return path end
  local parts = {}
  for part in path:gmatch "[^.]+" do
    if #parts == depth then break end
    parts[#parts + 1] = part
  end
  return table.concat(parts, ".")
end

-- Groups successive calls of one layer, or of one module at the depth. Returns the boxes: {label,
-- detail, inputs, row}.
local function boxes_of(model, nodes, depth)
  local modules, boxes, box_of, last = {}, {}, {}, nil
  for name, module in model:named_modules() do modules[name] = module end
  local counts = {}
  for name, module in pairs(modules) do
    local n = 0
    for _, p in ipairs(module:parameters(#module:children() == 0 or depth ~= nil)) do
      n = n + p:numel()
    end
    counts[name] = n
  end
  for i, node in ipairs(nodes) do
    local path = cut(node.path, depth)
    local module = modules[path]
    local whole = path ~= "" and (#module:children() == 0 or path ~= node.path
      or depth and select(2, path:gsub("%.", "")) + 1 == depth)
    local box = last
    if not (whole and last and last.path == path) then
      box = {inputs = {}, path = whole and path or nil, number = #boxes + 1,
             label = whole and lua_path(path) .. ": " .. class.typename(module) or node.op,
             kind = whole and "layer" or node.op, parameters = whole and counts[path] or 0}
      boxes[#boxes + 1] = box
    end
    box_of[i], last = box, box
    box.shape = node.shape or box.shape
    for _, k in ipairs(node.inputs) do
      if box_of[k] ~= box then box.inputs[box_of[k]] = true end
    end
  end
  return boxes
end

local function grouped(n)
  local text = ("%d"):format(n)
  local head = (#text - 1) % 3 + 1
  return text:sub(1, head) .. text:sub(head + 1):gsub("%d%d%d", ",%0")
end

local function finish(boxes)
  for _, box in ipairs(boxes) do
    box.detail = shape_text(box.shape)
    if box.parameters > 0 then
      box.detail = box.detail .. ", " .. grouped(box.parameters) .. " parameters"
    end
    box.w = math.max(math.max(#box.label * 1.06, #box.detail) * LETTER + 20, LEAST)
    local from = {}
    for other in pairs(box.inputs) do from[#from + 1] = other end
    table.sort(from, function(a, b) return a.number < b.number end)
    box.inputs = from
    box.row = 1
    for _, other in ipairs(from) do box.row = math.max(box.row, other.row + 1) end
  end
end

-- ---- rows ----

-- Rows of boxes and of places for passing curves; and the curves, lists of what they touch.
local function rows_of(boxes)
  local rows, curves = {}, {}
  local function put(row, item)
    rows[row] = rows[row] or {}
    table.insert(rows[row], item)
    return item
  end
  for _, box in ipairs(boxes) do put(box.row, box) end
  for _, box in ipairs(boxes) do
    for _, from in ipairs(box.inputs) do
      local curve = {from}
      for row = from.row + 1, box.row - 1 do
        curve[#curve + 1] = put(row, {w = LANE, row = row, above = curve[#curve]})
      end
      curve[#curve + 1] = box
      curves[#curves + 1] = curve
    end
  end
  return rows, curves
end

local function place(row, width)
  local sum = -BOX_GAP
  for _, item in ipairs(row) do sum = sum + item.w + BOX_GAP end
  local x = MARGIN + (width - sum) / 2
  for i, item in ipairs(row) do
    item.x, item.index = x, i
    x = x + item.w + BOX_GAP
  end
end

-- Sorts a row by the mean center of the neighbours in another row.
local function sort_by(row, neighbours)
  for i, item in ipairs(row) do
    local sum, n = 0, 0
    for _, other in ipairs(neighbours[item] or {}) do
      sum, n = sum + other.x + other.w / 2, n + 1
    end
    item.key = n > 0 and sum / n or item.x + item.w / 2
    item.order = i
  end
  table.sort(row, function(a, b)
    if a.key ~= b.key then return a.key < b.key end
    return a.order < b.order
  end)
end

local function arrange(rows, curves)
  local above, below, width = {}, {}, 0
  for _, curve in ipairs(curves) do
    for i = 2, #curve do
      above[curve[i]] = above[curve[i]] or {}
      below[curve[i - 1]] = below[curve[i - 1]] or {}
      table.insert(above[curve[i]], curve[i - 1])
      table.insert(below[curve[i - 1]], curve[i])
    end
  end
  for _, row in ipairs(rows) do
    local sum = -BOX_GAP
    for _, item in ipairs(row) do sum = sum + item.w + BOX_GAP end
    width = math.max(width, sum)
  end
  for _, row in ipairs(rows) do place(row, width) end
  for i = 2, #rows do
    sort_by(rows[i], above)
    place(rows[i], width)
  end
  for i = #rows - 1, 1, -1 do
    sort_by(rows[i], below)
    place(rows[i], width)
  end
  return width
end

-- Makes a curve straight where all its places are at the same end of their rows.
local function straighten(rows, curves)
  for _, curve in ipairs(curves) do
    local left, right = true, true
    for i = 2, #curve - 1 do
      local item = curve[i]
      left = left and item.index == 1
      right = right and item.index == #rows[item.row]
    end
    if left ~= right then
      local x = curve[2].x
      for i = 3, #curve - 1 do
        x = left and math.min(x, curve[i].x) or right and math.max(x, curve[i].x)
      end
      for i = 2, #curve - 1 do curve[i].x = x end
    end
  end
end

-- ---- the text ----

local FILL = {layer = "#dbe9f6", input = "#e7f4e4", output = "#e7f4e4"}

local function top_of(item) return MARGIN + (item.row - 1) * (HEIGHT + ROW_GAP) end

local function box_text(box)
  local x, y = box.x + box.w / 2, top_of(box)
  local fill = box.kind == "layer" and box.parameters == 0 and "#f4f4f4" or FILL[box.kind]
    or "#ffffff"
  return ('<rect x="%.1f" y="%.1f" width="%.1f" height="%d" rx="%d" fill="%s" stroke="#555555"/>\n'
    .. '<text x="%.1f" y="%.1f" font-size="12" text-anchor="middle" fill="#111111">%s</text>\n'
    .. '<text x="%.1f" y="%.1f" font-size="10.5" text-anchor="middle" fill="#555555">%s</text>')
    :format(box.x, y, box.w, HEIGHT, FILL[box.kind] and 5 or 18, fill, x, y + 16,
      svg.escaped(box.label), x, y + 31, svg.escaped(box.detail))
end

-- A curve from the bottom of its first box, straight through its places, to the top of its last.
local function curve_text(curve)
  local parts = {}
  for i = 1, #curve - 1 do
    local a, b = curve[i], curve[i + 1]
    local x1, y1 = a.x + a.w / 2, top_of(a) + HEIGHT
    local x2, y2 = b.x + b.w / 2, top_of(b)
    local bend = (y2 - y1) / 2
    if i == 1 then parts[1] = ("M%.1f %.1f"):format(x1, y1) end
    if i > 1 then parts[#parts + 1] = ("L%.1f %.1f"):format(x1, y1) end
    parts[#parts + 1] = ("C%.1f %.1f %.1f %.1f %.1f %.1f"):format(x1, y1 + bend, x2, y2 - bend, x2,
      i == #curve - 1 and y2 - 5 or y2)
  end
  return ('<path d="%s" fill="none" stroke="#777777" stroke-width="1.2" marker-end="url(#a)"/>')
    :format(table.concat(parts, " "))
end

--- The text of an SVG file.
-- @param model   a module
-- @param inputs  a list of tensors
-- @param depth   modules inside others deeper than this are part of their parent's box; nil: all
function picture.svg(model, inputs, depth)
  local boxes = boxes_of(model, net_graph.of(model, inputs), depth)
  finish(boxes)
  local rows, curves = rows_of(boxes)
  local width = arrange(rows, curves) + 2 * MARGIN
  straighten(rows, curves)
  local height = 2 * MARGIN + #rows * (HEIGHT + ROW_GAP) - ROW_GAP
  local lines = {('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d '
    .. '%d" font-family="Helvetica, Arial, sans-serif" role="img">'):format(width, height, width,
    height), ("<title>%s</title>"):format(svg.escaped(class.typename(model))),
    '<defs><marker id="a" viewBox="0 0 8 8" refX="2" refY="4" markerWidth="7" markerHeight="7" '
    .. 'orient="auto"><path d="M0 0L8 4L0 8z" fill="#777777"/></marker></defs>',
    ('<rect width="%d" height="%d" fill="#ffffff"/>'):format(width, height)}
  for _, curve in ipairs(curves) do lines[#lines + 1] = curve_text(curve) end
  for _, box in ipairs(boxes) do lines[#lines + 1] = box_text(box) end
  lines[#lines + 1] = "</svg>\n"
  return table.concat(lines, "\n")
end

return picture
