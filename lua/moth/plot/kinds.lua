--- kinds.lua -- the functions of moth.plot that make figures from data.

local data = require "moth.plot.data"
local define = require "moth.binding.define"
local errors = require "moth.error"
local Figure = require "moth.plot.figure"
local lib = require "moth.binding.lib"
local scope = require "moth.tensor.scope"
local style = require "moth.plot.style"

local kinds = {}

-- ---- arguments ----

local TITLES = {
  {"string", "title", "a line above", optional = true},
  {"string", "xlabel", "a name of the x axis", optional = true},
  {"string", "ylabel", "a name of the y axis", optional = true},
}
local AXES = {
  {"enum", "xscale", "the scale of the x axis", choices = {"linear", "log"}},
  {"enum", "yscale", "the scale of the y axis", choices = {"linear", "log"}},
  {"any", "xlim", "{first, last} of the x axis; default: of the data", optional = true},
  {"any", "ylim", "{first, last} of the y axis; default: of the data", optional = true},
  {"bool", "legend", "show the names of the series?", default = true},
  {"bool", "grid", "draw lines at the ticks?", default = true},
}
local SIZE = {
  {"int", "width", "of SVG and PNG, in pixels", optional = true},
  {"int", "height", "of SVG and PNG, in pixels", optional = true},
}

-- Returns a function that reads the arguments of a kind of plot: the data y, or x and y, then the
-- options.
local function reader(name, first, ...)
  local rows, options = {unpack(first)}, {}
  for _, group in ipairs {...} do
    for _, row in ipairs(group) do
      rows[#rows + 1] = row
      options[row[2]] = true
    end
  end
  local parse = define.signature(name, rows)
  local function read(...)
    local a, b, given, named = data.arguments(options, first[1][2], ...)
    local known = {[first[1][2]] = false}
    for key, value in pairs(given) do known[key] = value end
    local values = {parse(known)} -- checks the options; the data are read elsewhere
    local read_options = {}
    for i, row in ipairs(rows) do
      if i > #first then read_options[row[2]] = values[i] end
    end
    return a, b, read_options, named
  end
  return read, parse
end

local function limits(value, fname, name)
  if value == nil then return nil end
  local list = data.numbers(value, fname, name)
  if #list ~= 2 or not (list[1] < list[2]) then
    errors.argument(fname, name, "{first, last} with first < last is needed, got "
      .. errors.describe(value), "E_DOMAIN")
  end
  return list
end

local function checked_axes(options, fname)
  options.xlim = limits(options.xlim, fname, "xlim")
  options.ylim = limits(options.ylim, fname, "ylim")
  for _, axis in ipairs {"x", "y"} do
    local lim = options[axis .. "lim"]
    if lim and lim[1] <= 0 and options[axis .. "scale"] == "log" then
      errors.argument(fname, axis .. "lim", "a logarithmic axis begins above 0", "E_DOMAIN")
    end
  end
  return options
end

-- ---- lines and points ----

local SERIES = {
  {"any", "y", "a vector; a matrix, whose columns are series; a list of these; or series by name"},
  {"any", "x", "positions on the x axis; default: 1, 2, ...", optional = true},
}

-- Positional arguments are y, or x and y.
local function series_figure(fname, kind, read, ...)
  local a, b, options, named = read(...)
  local y, x = a, nil
  if b ~= nil then x, y = a, b end
  checked_axes(options, fname)
  if options.x then x = options.x end
  local list = data.series(y, x, named, fname)
  local layers = {}
  for i, one in ipairs(list) do
    layers[i] = {kind = kind, series = i, x = one.x, y = one.y, name = one.name}
  end
  return Figure(layers, options)
end

local read_lines, parse_lines = reader("lines", {SERIES[1]}, {SERIES[2]}, TITLES, AXES, SIZE)

--- Draws curves. `lines(y)`, `lines(x, y)`, or `lines{train = a, valid = b, title = "Loss"}`: names
-- that are no arguments are series. A series is a vector, a list of numbers, {x = x, y = y}, or
-- what moth.utils.tensorboard.scalars returns for a tag. NaN interrupts a curve.
-- @param y  a vector, a matrix whose columns are series, a list of these, or a table of names
-- @param x  positions on the x axis (default: 1, 2, ...)
-- @return a moth.plot.Figure
function kinds.lines(...) return series_figure("lines", "line", read_lines, ...) end
define.takes(kinds.lines, parse_lines, "figure")

local read_scatter, parse_scatter = reader("scatter", {SERIES[1]}, {SERIES[2]}, TITLES, AXES, SIZE)

--- Draws points. `scatter(x, y)`, or `scatter{a = {x = x1, y = y1}, b = {x = x2, y = y2}}`.
-- @param y  as for moth.plot.lines
-- @param x  positions on the x axis (default: 1, 2, ...)
-- @return a moth.plot.Figure
function kinds.scatter(...) return series_figure("scatter", "points", read_scatter, ...) end
define.takes(kinds.scatter, parse_scatter, "figure")

-- ---- histograms ----

local read_hist, parse_hist = reader("hist", {
  {"any", "values", "a tensor of any shape, a list of numbers, or these by name"},
}, {
  {"any", "bins", "the number of bins, edges, or 'auto', 'fd', 'doane', 'scott', 'stone', 'rice', "
   .. "'sturges', 'sqrt' as in NumPy", default = "auto"},
}, TITLES, AXES, SIZE)

-- The finite elements of a value as a float64 vector.
local function elements(value, fname)
  local moth = require "moth"
  if not lib.istensor(value) then
    value = moth.tensor(data.numbers(value, fname, "values"), {dtype = moth.float64})
  end
  local x = value:detach():cpu():to(moth.float64):flatten()
  x = x[x:isfinite()]
  if x:numel() == 0 then
    errors.argument(fname, "values", "there are no finite values", "E_SHAPE")
  end
  return x
end

local MOST_BARS = 400 -- more cannot be seen

local count_all = scope.inside(function(values, bins)
  local moth = require "moth"
  local list = {}
  for i, value in ipairs(values) do list[i] = elements(value, "hist") end
  local counts = require("moth.utils.tensorboard.histogram").counts
  local all = #list == 1 and list[1] or moth.cat(list)
  local _, edges = counts(all, bins, "hist")
  if type(bins) == "string" and edges:numel() > MOST_BARS + 1 then
    _, edges = counts(all, MOST_BARS, "hist")
  end
  local heights = {}
  for i, x in ipairs(list) do heights[i] = x:histogram(edges):tolist() end
  return edges:tolist(), heights
end)

--- Draws a histogram. Several series by name share their bins: `hist{before = a, after = b}`.
-- @param values  a tensor of any shape, a list of numbers, or these by name
-- @param bins    the number of bins, edges, or the name of an estimator as in NumPy (default
-- "auto")
-- @return a moth.plot.Figure
function kinds.hist(...)
  local first, second, options, named = read_hist(...)
  checked_axes(options, "hist")
  local values, names = {}, {}
  if lib.is_plain(first) and (lib.is_plain(first[1]) or lib.istensor(first[1])) then
    for i, value in ipairs(first) do -- a list of series
      named = named or {}
      named[#first > 1 and tostring(i) or ""] = value
    end
    first = nil
  end
  if lib.is_plain(first) and #first == 0 and next(first) then first, named = nil, first end
  if first ~= nil then values[1] = first end
  for name in pairs(named or {}) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do values[#values + 1], names[i] = named[name], name end
  if #values == 0 then
    errors.argument("hist", "values", "there is nothing to count: a tensor or a list of numbers is "
      .. "needed", "E_TYPE")
  end
  if first ~= nil and #names > 0 then table.insert(names, 1, "1") end
  local edges, heights = count_all(values, second or options.bins)
  local layers = {}
  for i, list in ipairs(heights) do
    layers[i] = {kind = "bars", series = i, edges = edges, heights = list,
                 name = names[i] ~= "" and names[i] or nil,
                 light = #heights > 1}
  end
  options.ylabel = options.ylabel or "count"
  return Figure(layers, options)
end
define.takes(kinds.hist, parse_hist, "figure")

-- ---- matrices ----

-- Colors of a matrix: uint8 (H, W, 3), and its values as numbers from 0 to 1. NaN is grey.
local function colored(x, low, high, map)
  local moth = require "moth"
  local list = style.map(map)
  list[257] = {200, 200, 200}
  local colors = moth.tensor(list, {dtype = moth.uint8})
  local share = high > low and (x - low) / (high - low) or moth.zeros_like(x)
  local shares = share:clamp(0, 1):tolist()
  local index = (share * 255):round():clamp(0, 255)
  index = moth.where(x:isnan(), moth.full_like(index, 256), index):to(moth.int64) + 1
  return colors:index_select(1, index:flatten()):view(x:size(1), x:size(2), 3), shares
end

local function matrix_of(value, fname, name)
  local moth = require "moth"
  if not lib.istensor(value) then
    if type(value) ~= "table" then
      errors.refuse(fname, name, "a matrix is needed", value, "E_TYPE")
    end
    value = moth.tensor(value)
  end
  if value:dim() ~= 2 or value:numel() == 0 then
    errors.argument(fname, name, "a matrix is needed, got " .. errors.describe(value), "E_SHAPE")
  end
  return value:detach():cpu():to(moth.float64)
end

local function range_of(x, low, high)
  local finite = x[x:isfinite()]
  if finite:numel() == 0 then return low or 0, high or 1 end
  return low or finite:min():item(), high or finite:max():item()
end

local MOST_TEXTS = 900 -- cells with numbers
local MOST_NAMED = 64  -- rows or columns whose positions are named one by one

local function positions(n)
  if n > MOST_NAMED then return nil end
  local list = {}
  for i = 1, n do list[i] = i end
  return list
end

local function texts_of(x, pixels, format)
  local numbers, colors, list = x:tolist(), pixels:tolist(), {}
  for row, values in ipairs(numbers) do
    for column, value in ipairs(values) do
      list[#list + 1] = {column, row, format(value),
                         dark = style.brightness(unpack(colors[row][column])) > 0.55}
    end
  end
  return list
end

local function names_of(value, n, fname, name)
  if value == nil then return positions(n) end
  if #value ~= n then
    errors.argument(fname, name, ("%d names for %d rows or columns"):format(#value, n), "E_SHAPE")
  end
  return value
end

local function matrix_figure(x, options, format)
  local low, high = range_of(x, options.vmin, options.vmax)
  local pixels, shares = colored(x, low, high, options.map)
  lib.check(lib.C.moth_keep_always(lib.ctx, pixels), "heatmap")
  local rows, columns = x:size(1), x:size(2)
  local layers = {{kind = "image", pixels = pixels, shares = shares,
                   extent = {0.5, columns + 0.5, 0.5, rows + 0.5}}}
  if format and rows * columns <= MOST_TEXTS then
    layers[2] = {kind = "texts", list = texts_of(x, pixels, format)}
  end
  options.flipped, options.grid = true, false
  options.bar = options.colorbar and {low = low, high = high, map = options.map} or nil
  return Figure(layers, options)
end

local NAMES = {
  {"any", "xticks", "names of the columns", optional = true},
  {"any", "yticks", "names of the rows", optional = true},
}
local function colors(...)
  return {
    {"float", "vmin", "the value of the first color; default: the least", optional = true},
    {"float", "vmax", "the value of the last color; default: the largest", optional = true},
    {"enum", "map", "the colors", choices = {...}},
  }
end

local read_heatmap, parse_heatmap = reader("heatmap", {{"any", "x", "a matrix"}}, NAMES,
  colors("viridis", "gray", "blues", "coolwarm"), {
  {"bool", "annotate", "write the numbers into the cells?", default = false},
  {"bool", "colorbar", "show what the colors mean?", default = true},
}, TITLES, SIZE)

local function short(value) return (require("moth.plot.ticks").short(value)) end

--- Draws a matrix by colors; the first row is at the top. NaN is grey.
-- @param x         a matrix
-- @param xticks    names of the columns
-- @param yticks    names of the rows
-- @param vmin      the value of the first color (default: the least)
-- @param vmax      the value of the last color (default: the largest)
-- @param map       "viridis" (default), "gray", "blues" or "coolwarm"
-- @param annotate  write the numbers into the cells? (default false)
-- @param colorbar  show what the colors mean? (default true)
-- @return a moth.plot.Figure
kinds.heatmap = scope.inside(function(...)
  local x, _, options = read_heatmap(...)
  x = matrix_of(x, "heatmap", "x")
  options.xticks = names_of(options.xticks, x:size(2), "heatmap", "xticks")
  options.yticks = names_of(options.yticks, x:size(1), "heatmap", "yticks")
  return matrix_figure(x, options, options.annotate and short)
end)
define.takes(kinds.heatmap, parse_heatmap, "figure")

local read_confusion, parse_confusion = reader("confusion_matrix", {
  {"any", "matrix", "counts: a row for each true class, a column for each predicted class"},
}, {
  {"any", "labels", "names of the classes", optional = true},
  {"bool", "normalize", "show shares of each row?", default = false},
}, TITLES, SIZE)

--- Draws a confusion matrix, as moth.metrics.ConfusionMatrix computes it, with the numbers.
-- @param matrix     counts: a row for each true class, a column for each predicted class
-- @param labels     names of the classes (default: 1, 2, ...)
-- @param normalize  show shares of each row? (default false)
-- @return a moth.plot.Figure
kinds.confusion_matrix = scope.inside(function(...)
  local x, _, options = read_confusion(...)
  x = matrix_of(x, "confusion_matrix", "matrix")
  local n = x:size(1)
  if x:size(2) ~= n then
    errors.argument("confusion_matrix", "matrix", ("a square matrix is needed, got (%d, %d)")
      :format(n, x:size(2)), "E_SHAPE")
  end
  local names = names_of(options.labels, n, "confusion_matrix", "labels")
  if options.normalize then x = x / x:sum(2, true):clamp(1e-12) end
  options.xticks, options.yticks = names, names
  options.xlabel, options.ylabel = options.xlabel or "predicted", options.ylabel or "true"
  options.map, options.vmin, options.vmax = "blues", 0, options.normalize and 1 or nil
  options.aspect = 1
  options.width = options.width or 480
  options.height = options.height or 440
  return matrix_figure(x, options, options.normalize
    and function(value) return ("%.2f"):format(value) end or short)
end)
define.takes(kinds.confusion_matrix, parse_confusion, "figure")

-- ---- pictures ----

local read_image, parse_image = reader("imshow", {
  {"any", "x", "a picture (H, W), (C, H, W), or a batch (N, C, H, W)"},
}, colors("gray", "viridis", "blues", "coolwarm"), {
  {"string", "dataformats", "the dimensions; default: HW, CHW or NCHW", optional = true},
}, TITLES, SIZE)

local PICTURE = 480 -- pixels of the longer side

local function pixels_of(x, options)
  local moth = require "moth"
  local format = options.dataformats or ({[2] = "HW", [3] = "CHW", [4] = "NCHW"})[x:dim()]
  if x:dim() == 2 and x.dtype ~= moth.uint8 then -- numbers, not light
    x = x:to(moth.float64)
    local low, high = range_of(x, options.vmin, options.vmax)
    return (colored(x, low, high, options.map))
  end
  return (require("moth.utils.tensorboard.picture").pixels(x, format or "CHW", "imshow"))
end

--- Shows a picture: floats from 0 to 1 or uint8. A matrix of floats is shown in grey, from its
-- least to its largest value.
-- @param x     a picture (H, W), (C, H, W) with 1 or 3 channels, or a batch (N, C, H, W)
-- @param vmin  of a matrix: the value of the first color (default: the least)
-- @param vmax  of a matrix: the value of the last color (default: the largest)
-- @param map   of a matrix: "gray" (default), "viridis", "blues" or "coolwarm"
-- @param dataformats  the dimensions (default "HW", "CHW" or "NCHW")
-- @return a moth.plot.Figure
kinds.imshow = scope.inside(function(...)
  local x, _, options = read_image(...)
  if not lib.istensor(x) then x = matrix_of(x, "imshow", "x") end
  if x:numel() == 0 then
    errors.argument("imshow", "x", "there are no pixels, got " .. errors.describe(x), "E_SHAPE")
  end
  local pixels = pixels_of(x:detach():cpu(), options)
  if pixels:size(3) == 4 then pixels = pixels:narrow(3, 1, 3):contiguous() end
  lib.check(lib.C.moth_keep_always(lib.ctx, pixels), "imshow")
  local h, w = pixels:size(1), pixels:size(2)
  local scale = PICTURE / math.max(h, w)
  options.width = options.width or math.floor(math.max(w * scale, 60)) + 24
  options.height = options.height or math.floor(math.max(h * scale, 60)) + (options.title and 45
    or 24)
  options.aspect, options.frame, options.picture = h / w, false, true
  options.xticks, options.yticks, options.grid = false, false, false
  return Figure({{kind = "image", pixels = pixels, extent = {0, w, 0, h}}}, options)
end)
define.takes(kinds.imshow, parse_image, "figure")

return kinds
