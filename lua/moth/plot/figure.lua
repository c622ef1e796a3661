--- figure.lua -- moth.plot.Figure: what the functions of moth.plot return. It prints itself, and
-- saves itself as SVG, PNG or text.

local bytes = require "moth.io.bytes"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"

local Figure = class("Figure")

local WIDTH, HEIGHT = 640, 400 -- pixels

--- A plot with layers of marks. `figure:save(path)` writes it; print shows it in the terminal.
-- @param layers   a list of layers, see scene.lua
-- @param options  title, xlabel, ylabel, xscale, yscale, xlim, ylim, legend, grid, width, height
function Figure:init(layers, options)
  self.layers = layers
  for key, value in pairs(options or {}) do self[key] = value end
  self.width, self.height = self.width or WIDTH, self.height or HEIGHT
end

--- Adds the layers of another figure, such as points over lines. Returns the figure.
function Figure:add(other)
  local series = 0
  for _, layer in ipairs(self.layers) do series = math.max(series, layer.series or 0) end
  for _, layer in ipairs(other.layers) do
    local copy = {}
    for key, value in pairs(layer) do copy[key] = value end
    if copy.series then copy.series = copy.series + series end
    self.layers[#self.layers + 1] = copy
  end
  return self
end

local function shapes(self)
  return (require("moth.plot.vector").shapes(self, self.width, self.height))
end

--- The text of an SVG file.
function Figure:svg()
  return (require("moth.plot.svg").text(shapes(self), self.width, self.height, self.title))
end

--- The plot as pixels: uint8 (3, H, W), as moth.io.write_png and add_image take it.
-- @param scale  pixels for each unit of width and height (default 2)
function Figure:image(scale)
  local pixels = require("moth.plot.raster").pixels(shapes(self), self.width, self.height,
    scale or 2)
  return (pixels:permute(3, 1, 2))
end

--- The bytes of a PNG file.
-- @param scale  pixels for each unit of width and height (default 2)
function Figure:png(scale)
  local pixels = require("moth.plot.raster").pixels(shapes(self), self.width, self.height,
    scale or 2)
  return (require("moth.io.png").encode(pixels))
end

local parse_text = define.signature("text", {
  {"int", "columns", "width; default: of the terminal, at most 100", optional = true},
  {"int", "rows", "height of the axes", default = 16},
  {"enum", "color", "codes for colors; 'auto': on a terminal, unless NO_COLOR is set",
   choices = {"auto", "none", "16", "256", "true"}},
})

--- The plot as text, of braille dots.
-- @param columns  width (default: of the terminal, at most 100)
-- @param rows     height of the axes (default 16)
-- @param color    "none", "16", "256", "true", or "auto" (default): what the terminal can, unless
-- NO_COLOR is set
function Figure:text(...)
  return (require("moth.plot.terminal").text(self, parse_text(...)))
end
define.takes(Figure.text, parse_text)

local parse_save = define.signature("save", {
  {"string", "path", "the file: .svg, .png or .txt"},
  {"float", "scale", "pixels of a PNG for each unit of width and height", default = 2},
})

--- Writes the plot to a file, all or nothing. The ending of its name decides: .svg, .png or .txt.
-- Returns the figure.
-- @param path   the file
-- @param scale  pixels of a PNG for each unit of width and height (default 2)
function Figure:save(...)
  local path, scale = parse_save(...)
  local ending = (path:match "%.(%w+)$" or ""):lower()
  local content
  if ending == "svg" then content = self:svg()
  elseif ending == "png" then content = self:png(scale)
  elseif ending == "txt" then content = self:text {color = "none", columns = 100} .. "\n"
  else
    errors.argument("save", "path", "a name that ends in .svg, .png or .txt is needed, got "
      .. errors.path(path))
  end
  bytes.save(path, {content}, "save", false)
  return self
end
define.takes(Figure.save, parse_save)

--- Prints the plot. A terminal that shows pictures (kitty's protocol or sixel) shows pictures.
function Figure:show() print(tostring(self)) end

-- Raises for names of matplotlib's figures.
function Figure:__index(name)
  local text = name ~= "legend" and require("moth.error.instead").row("moth.plot.Figure", name)
  if text then errors.raise(("a figure has no '%s'; %s"):format(name, text), "E_TYPE") end
end

function Figure:__tostring() return (require("moth.plot.terminal").shown(self)) end

class.guard(Figure, "figure")

return Figure
