--- summary.lua -- moth.summary: prints a network layer by layer, with output sizes and parameters.
--
--     print(moth.summary(net, {2, 1, 28, 28}))
--
--     Net                        output             parameters
--       conv1  Conv2d            (2, 10, 24, 24)           260
--       fc1    Linear            (2, 50)                16,050
--     ...
--     input (2, 1, 28, 28); 21,840 parameters, 21,840 trainable, 85.3 KiB
--
--     moth.summary(net, {2, 1, 28, 28}):save "net.svg"       the graph as a picture

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local Summary = class("Summary")

Summary.signature = define.signature("summary", {
  {"any", "model", "a module"},
  {"any", "input", "the size of its input (with the batch), or a tensor; several: a list of these",
    optional = true},
  {"dtype", "dtype", "of inputs given by size; integers are filled with 1", optional = true},
})

-- ---- inputs ----

local function is_size(value)
  if type(value) ~= "table" or lib.istensor(value[1]) then return false end
  for i = 1, #value do
    if type(value[i]) ~= "number" then return false end
  end
  return #value > 0
end

local function one_input(value, dtype, i)
  local moth = require "moth"
  if lib.istensor(value) then return value end
  if not is_size(value) then
    errors.argument("summary", "input", ("a size such as {2, 1, 28, 28} or a tensor is " ..
      "needed%s, got %s"):format(i and " as number " .. i or "", errors.describe(value)), "E_TYPE")
  end
  return moth.ones(value, {dtype = dtype or moth.get_default_dtype()})
end

local function inputs_of(input, dtype)
  if lib.istensor(input) or is_size(input) then return {one_input(input, dtype)} end
  if type(input) ~= "table" or #input == 0 then one_input(input, dtype) end
  local list = {}
  for i, value in ipairs(input) do list[i] = one_input(value, dtype, i) end
  return list
end

-- The shapes in a result: "(2, 3)", "{(2, 3), {(1, 2, 3), (1, 2, 3)}}".
local function shapes(value, depth)
  if lib.istensor(value) then return tostring(value.shape) end
  if type(value) ~= "table" or (depth or 0) > 3 then return type(value) end
  local parts = {}
  for _, inner in ipairs(value) do parts[#parts + 1] = shapes(inner, (depth or 0) + 1) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- ---- looking at the network ----

local function count(params)
  local all, trained, bytes = 0, 0, 0
  for _, p in ipairs(params) do
    local n = p:numel()
    all, bytes = all + n, bytes + n * p.dtype.itemsize
    if p.requires_grad then trained = trained + n end
  end
  return all, trained, bytes
end

-- "layers.0.conv" as one writes it in Lua: layers[1].conv.
local function lua_path(path)
  path = path:gsub("%f[^.%z]%d+%f[.%z]", function(i) return "[" .. i + 1 .. "]" end)
  return (path:gsub("%.%[", "["))
end

local function rows_of(model)
  local rows, by_module = {}, {}
  for path, module in model:named_modules() do
    local _, depth = path:gsub("%.", "")
    local all, trained = count(module:parameters(false))
    local runs = class.written(module.forward) ~= class.written(require("moth").nn.Module.forward)
    local row = {path = lua_path(path), type = class.typename(module), calls = 0, runs = runs,
                 depth = path == "" and 0 or depth + 1, parameters = all, trainable = trained}
    row.name = row.path:match("[^.]+$") or row.type
    rows[#rows + 1], by_module[module] = row, row
  end
  return rows, by_module
end

-- Runs the model once, in evaluation mode and without recording; restores all modes after that.
local function run(model, by_module, inputs)
  local handles, training = {}, {}
  for module, row in pairs(by_module) do
    training[module] = module.training
    handles[#handles + 1] = module:register_forward_hook(function(_, _, output)
      row.calls = row.calls + 1
      row.output = row.output or shapes(output)
    end)
  end
  model:eval()
  local ok, problem = pcall(require("moth").no_grad, function() model(unpack(inputs)) end)
  for _, handle in ipairs(handles) do handle:remove() end
  for module, was in pairs(training) do module.training = was end
  if not ok then error(problem, 0) end
end

--- Lists the layers of a network. With an input the network runs once, in evaluation mode, and the
-- table shows the sizes of all results. The network does not change.
-- @param model  a module
-- @param input  the size of its input, with the batch, or a tensor; a list of these for several
-- @param dtype  of inputs given by size (default f32; integers are filled with 1)
-- @return an object that prints as a table. Its fields: rows (path, type, output, parameters,
-- trainable, calls), parameters, trainable, bytes
function Summary:init(model, input, dtype)
  if type(model) ~= "table" or not class.isinstance(model, require("moth").nn.Module) then
    errors.refuse("summary", "model", "a module is needed", model, "E_TYPE")
  end
  local by_module
  self.rows, by_module = rows_of(model)
  self.parameters, self.trainable, self.bytes = count(model:parameters())
  if input ~= nil then
    local inputs, list = inputs_of(input, dtype), {}
    for i, x in ipairs(inputs) do list[i] = tostring(x.shape) end
    self.input = table.concat(list, ", ")
    run(model, by_module, inputs)
    self.model, self.inputs = model, inputs
  end
end

-- ---- the picture ----

local parse_svg = define.signature("svg", {
  {"int", "depth", "modules deeper than this are part of their parent's box; default: all are "
   .. "shown", optional = true},
})

--- The net's graph as the text of an SVG file: layers from top to bottom, with the sizes of their
-- results. Needs a summary with an input.
-- @param depth  modules deeper than this are part of their parent's box (default: all are shown)
function Summary:svg(...)
  local depth = parse_svg(...)
  if not self.model then
    errors.raise("svg: the picture needs an input: moth.summary(net, {2, 1, 28, 28})", "E_STATE")
  end
  return (require("moth.help.net_picture").svg(self.model, self.inputs, depth))
end
define.takes(Summary.svg, parse_svg)

local parse_save = define.signature("save", {
  {"string", "path", "the file, .svg"},
  {"int", "depth", "modules deeper than this are part of their parent's box; default: all are "
   .. "shown", optional = true},
})

--- Writes the net's graph to an SVG file. Returns the summary.
-- @param path   the file, .svg
-- @param depth  modules deeper than this are part of their parent's box (default: all are shown)
function Summary:save(...)
  local path, depth = parse_save(...)
  if not path:lower():find "%.svg$" then
    errors.argument("save", "path", "a name that ends in .svg is needed, got "
      .. errors.path(path))
  end
  require("moth.io.bytes").save(path, {self:svg(depth)}, "save", false)
  return self
end
define.takes(Summary.save, parse_save)

-- ---- printing ----

local function grouped(n)
  local text = ("%.0f"):format(n)
  local head = (#text - 1) % 3 + 1
  return text:sub(1, head) .. text:sub(head + 1):gsub("%d%d%d", ",%0")
end

local function size_text(bytes)
  if bytes < 1024 then return ("%d bytes"):format(bytes) end
  local units, at = {"KiB", "MiB", "GiB", "TiB"}, 0
  repeat bytes, at = bytes / 1024, at + 1 until bytes < 1024 or at == #units
  return ("%.1f %s"):format(bytes, units[at])
end

local function padded(text, width)
  return text .. (" "):rep(width - #text)
end

function Summary:__tostring()
  local lines, cells, width = {}, {}, {0, 0, #"output", #"parameters"}
  for i, row in ipairs(self.rows) do
    local output = row.output or (self.input and row.runs and "not called" or "")
    if row.calls > 1 then output = output .. " x" .. row.calls end
    cells[i] = {("  "):rep(row.depth) .. row.name, row.depth == 0 and "" or row.type, output,
                row.parameters > 0 and grouped(row.parameters) or "-"}
    for k = 1, 4 do width[k] = math.max(width[k], #cells[i][k]) end
  end
  local function add(a, b, c, d)
    lines[#lines + 1] = ("%s  %s  %s  %s%s"):format(padded(a, width[1]), padded(b, width[2]),
      padded(c, width[3]), (" "):rep(width[4] - #d), d)
  end
  add("", "", self.input and "output" or "", "parameters")
  for _, row in ipairs(cells) do add(unpack(row)) end
  lines[#lines + 1] = ("%s%s parameters, %s trainable, %s"):format(
    self.input and "input " .. self.input .. "; " or "", grouped(self.parameters),
    grouped(self.trainable), size_text(self.bytes))
  return table.concat(lines, "\n")
end

return Summary
