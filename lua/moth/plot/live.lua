--- live.lua -- moth.plot.live: curves that are redrawn during a training.
--
--     local live = moth.plot.live{title = "loss", path = "loss.svg"}
--     for step = 1, n do
--       ...
--       live:add(step, {train = loss})
--     end
--     live:close()
--
-- A redraw is measured, and the next one waits until all redraws together took at most the given
-- share of the time, 1 % by default.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local Figure = require "moth.plot.figure"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"

local Live = class("Live")

local now = lib.C.moth_seconds

Live.signature = define.signature("live", {
  {"string", "title", "a line above", optional = true},
  {"string", "xlabel", "a name of the x axis", default = "step"},
  {"string", "ylabel", "a name of the y axis", optional = true},
  {"enum", "yscale", "the scale of the y axis", choices = {"linear", "log"}},
  {"string", "path", "a file that is written at each redraw: .svg, .png or .txt", optional = true},
  {"float", "share", "the largest share of the time for redraws", default = 0.01},
  {"int", "rows", "height of the axes in the terminal", default = 12},
  {"any", "out", "a file to write to instead of standard output", optional = true},
})

local FIRST = 0.02 -- seconds of a redraw, until the first one is measured

--- Curves that are redrawn while they grow, of at most 4096 points each: of longer ones the least
-- and the largest values are kept. In a terminal the plot is redrawn in place; in a log it is
-- written once, by close, unless a path is given.
-- @param title   a line above
-- @param xlabel  a name of the x axis (default "step")
-- @param ylabel  a name of the y axis
-- @param yscale  "linear" (default) or "log"
-- @param path    a file that is written at each redraw: .svg, .png or .txt
-- @param share   the largest share of the time for redraws (default 0.01)
-- @param rows    height of the axes in the terminal (default 12)
-- @param out     a file to write to instead of standard output
function Live:init(title, xlabel, ylabel, yscale, path, share, rows, out)
  self.options = {title = title, xlabel = xlabel, ylabel = ylabel, yscale = yscale}
  self.path, self.share, self.rows = path, share, rows
  self.out = out or io.stdout
  self.in_place = out == nil and machine.is_terminal(1) and os.getenv "TERM" ~= "dumb"
  self.layers, self.by_name = {}, {}
  self.start, self.spent, self.last, self.lines = now(), 0, FIRST, 0
end

--- The curves as a figure.
function Live:figure()
  local options = {}
  for key, value in pairs(self.options) do options[key] = value end
  local layers = {}
  for i, layer in ipairs(self.layers) do
    layers[i] = {kind = "line", series = i, x = layer.x, y = layer.y, name = layer.name}
  end
  return (Figure(layers, options))
end

local function write_terminal(self, text)
  if self.in_place and self.lines > 0 then
    self.out:write(("\27[%dA\r\27[J"):format(self.lines))
  end
  self.out:write(text, "\n")
  self.out:flush()
  self.lines = select(2, text:gsub("\n", "")) + 1
end

local function draw(self, last)
  local begin = now()
  local figure = self:figure()
  if self.path then figure:save(self.path) end
  if self.in_place or last and not self.path then
    write_terminal(self, figure:text {rows = self.rows,
      color = self.in_place and "auto" or "none"})
  end
  self.last = now() - begin
  self.spent = self.spent + self.last
end

local MOST_POINTS = 4096 -- of a curve

-- Keeps the least and the largest of each four points, so that a redraw does not take longer and
-- longer.
local function halve(layer)
  local xs, ys, n = layer.x, layer.y, 0
  for i = 1, #xs - 3, 4 do
    local least, most = i, i
    for k = i + 1, i + 3 do
      if ys[k] < ys[least] then least = k end
      if ys[k] > ys[most] then most = k end
    end
    if most == least then most = i + 3 end
    local first, second = math.min(least, most), math.max(least, most)
    xs[n + 1], ys[n + 1], xs[n + 2], ys[n + 2] = xs[first], ys[first], xs[second], ys[second]
    n = n + 2
  end
  for i = #xs, n + 1, -1 do xs[i], ys[i] = nil, nil end
end

local function add_point(self, name, x, y)
  local layer = self.by_name[name]
  if not layer then
    layer = {name = name, x = {}, y = {}}
    self.by_name[name] = layer
    self.layers[#self.layers + 1] = layer
    table.sort(self.layers, function(a, b) return a.name < b.name end)
  end
  if #layer.x >= MOST_POINTS then halve(layer) end
  local n = #layer.x + 1
  layer.x[n], layer.y[n] = x, y
end

--- Adds a point to each curve, and redraws if that is due.
-- @param step    the place on the x axis
-- @param values  name -> number, or tensor of one element
function Live:add(step, values)
  if type(step) ~= "number" then
    errors.refuse("add", "step", "a number is needed", step, "E_TYPE")
  end
  for name, value in pairs(values) do
    if lib.istensor(value) then value = value:item() end
    if type(value) ~= "number" then
      errors.argument("add", "values", ("'%s' is no number, got %s"):format(tostring(name),
        errors.describe(value)), "E_TYPE")
    end
    add_point(self, name, step, value)
  end
  if not (self.in_place or self.path) then return end
  if self.spent + self.last <= self.share * (now() - self.start) then draw(self, false) end
end

--- Draws the curves for the last time.
function Live:close()
  if self.closed or #self.layers == 0 then return end
  self.closed = true
  draw(self, true)
end

class.guard(Live, "live")

return Live
