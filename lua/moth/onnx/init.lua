--- moth.onnx -- nets to and from ONNX files.
--
--     moth.onnx.export(net, moth.randn(1, 3, 224, 224), "net.onnx")
--     local net = moth.onnx.load "net.onnx"
--     local y = net(moth.randn(1, 3, 224, 224))
--
-- export.lua turns what a net does into a graph, module.lua a graph into a net; proto.lua knows the
-- file format.

local ffi = require "ffi"
local define = require "moth.define"
local errors = require "moth.error"
local lazy = require "moth.lazy"
local lib = require "moth.lib"

local C, ctx = lib.C, lib.ctx

local onnx = {}

local MOST_BYTES = 2 ^ 31 - 1 -- of a message, in protobuf
local FIRST, LAST = 17, 21    -- opsets that are written

local function refuse(argument, text, code)
  errors.argument("onnx.export", argument, text, code)
end

-- ---- arguments of export ----

-- A list of n different names: those given, or `name`, counted if there are several.
local function names_of(given, n, argument, name)
  local list, seen = {}, {}
  if given and type(given) ~= "table" then
    refuse(argument, "a list of names is needed, got " .. errors.describe(given), "E_TYPE")
  elseif given and #given ~= n then
    refuse(argument, ("%d names for %d tensors"):format(#given, n))
  end
  for i = 1, n do
    list[i] = given and given[i] or n == 1 and name or name .. "_" .. i
    if type(list[i]) ~= "string" or list[i] == "" then
      refuse(argument, "strings are needed, got " .. errors.describe(list[i]), "E_TYPE")
    elseif seen[list[i]] then
      refuse(argument, ("'%s' stands twice in it"):format(list[i]))
    end
    seen[list[i]] = true
  end
  for key in pairs(given or {}) do
    if type(key) ~= "number" then
      refuse(argument, "a list is needed, got a table with '" .. tostring(key) .. "'", "E_TYPE")
    end
  end
  return list
end

-- An axis: what input it is of, its dimension from 0, its name, its sizes in three readings.
local function axis_of(x, at, input, key, value, sizes)
  local dim, name = key, value
  if type(value) == "number" then dim, name = value, nil end
  local n = x:dim()
  if type(dim) ~= "number" or dim ~= math.floor(dim) or dim == 0 or math.abs(dim) > n then
    refuse("dynamic_axes", ("'%s' has dimensions 1 to %d, got %s"):format(input, n,
      errors.describe(dim)))
  elseif name ~= nil and (type(name) ~= "string" or name == "") then
    refuse("dynamic_axes", "names of axes are strings, got " .. errors.describe(name), "E_TYPE")
  end
  if dim < 0 then dim = dim + n + 1 end
  name = name or ("%s_dynamic_axes_%d"):format(input, dim)
  local size = x:size(dim)
  if size == 0 then refuse("dynamic_axes", ("'%s' is empty"):format(input)) end
  if sizes[name] and sizes[name][1] ~= size then
    refuse("dynamic_axes", ("'%s' is %d and %d in the inputs"):format(name, sizes[name][1], size))
  end
  if not sizes[name] then -- each axis grows by another number
    sizes.n = sizes.n + 1
    sizes[name] = { size, size + 2 * sizes.n - 1, size + 3 * sizes.n + 1 }
  end
  return { at = at, dim = dim - 1, name = name, sizes = sizes[name] }
end

local function axes_of(given, names, inputs, output_names)
  local list, place, sizes, known = {}, {}, { n = 0 }, {}
  if given and type(given) ~= "table" then
    refuse("dynamic_axes", "a table is needed, such as {input = {'batch'}}, got "
      .. errors.describe(given), "E_TYPE")
  end
  for i, name in ipairs(names) do place[name], known[#known + 1] = i, name end
  local outputs = {}
  for _, name in ipairs(type(output_names) == "table" and output_names or { "output" }) do
    outputs[name], known[#known + 1] = true, name
  end
  local order = {}
  for name in pairs(given or {}) do order[#order + 1] = name end
  table.sort(order, function(a, b) return tostring(a) < tostring(b) end)
  for _, name in ipairs(order) do
    local at = place[name]
    if not at and not outputs[name] then
      refuse("dynamic_axes", ("there is no input '%s'%s"):format(tostring(name),
        errors.nearest(tostring(name), known)))
    elseif type(given[name]) ~= "table" then
      refuse("dynamic_axes", ("a table is needed for '%s', such as {'batch'}, got %s"):format(name,
        errors.describe(given[name])), "E_TYPE")
    end
    for key, value in pairs(at and given[name] or {}) do
      list[#list + 1] = axis_of(inputs[at], at, name, key, value, sizes)
    end
  end
  table.sort(list, function(a, b) return a.at < b.at or a.at == b.at and a.dim < b.dim end)
  return list
end

-- ---- files ----

local function write(path, pieces)
  local array, one = lib.array("moth_piece", #pieces), ffi.new "moth_text[1]"
  for i, piece in ipairs(pieces) do
    local at = array[i - 1]
    if type(piece) == "string" then at.text.at, at.text.size = piece, #piece
    else at.tensor = piece end
  end
  one[0].at, one[0].size = path, #path
  lib.check(C.moth_file_save(ctx, one, array, #pieces, 1), "onnx.export")
end

--- Writes a net as an ONNX file. The net runs once on the examples, in eval mode and without
-- gradients; what it asks of the engine becomes the graph. Shapes, branches and numbers are those
-- of that run, as with PyTorch's tracer; sizes named in dynamic_axes stay free (it runs twice more,
-- on larger examples, to find what follows from them). What depends on no input is a constant,
-- under its name in the state_dict if it is a parameter or a buffer. Positions and token ids that
-- go in or come out count from 1, as everywhere in Moth: wrap the net to add or take 1 where
-- readers of the file count from 0.
-- @param net   a module, or a function of tensors
-- @param args  an example input; or a list of all arguments, tensors, lists of tensors and others
-- @param path  the file to write; whole or not at all
-- @param input_names, output_names  lists of names, one for each tensor, lists counted through
-- (defaults: "input", or "input_1" and so on; "output")
-- @param dynamic_axes  name of an input -> its dimensions whose sizes may differ, from 1: a list
-- {1, 2}, or names by dimension {[1] = "batch"}, which for the first is {"batch"}
-- @param opset_version  17 to 21 (default 17)
-- Raises E_UNSUPPORTED for an op that has no counterpart, with the module's path; for a size that
-- cannot vary; for more than 2 GiB. Format: onnx.ai, "Open Neural Network Exchange Intermediate
-- Representation Specification".
onnx.export = define {
  name = "onnx.export",
  doc = "Writes a net as an ONNX file, by running it once on example inputs.",
  examples = "moth.nn.Linear(2, 3), moth.randn(1, 2), os.tmpname()\n"
    .. "moth.nn.Linear(2, 3), {moth.randn(1, 2)}, os.tmpname(), "
    .. "{input_names = {'x'}, output_names = {'y'}, dynamic_axes = {x = {'batch'}}, "
    .. "opset_version = 18}",
  args = {
    { "any", "net", "a module, or a function of tensors" },
    { "any", "args", "an example input, or a list of all arguments" },
    { "string", "path", "the file to write" },
    { "any", "input_names", "a list of names, one for each tensor", optional = true },
    { "any", "output_names", "the same of the results", optional = true },
    { "any", "dynamic_axes", "name of an input -> dimensions that may have other sizes",
      optional = true },
    { "int", "opset_version", "17 to 21", default = FIRST },
  },
  run = function(net, args, path, input_names, output_names, dynamic_axes, opset)
    local export = require "moth.onnx.export"
    if type(net) ~= "function" and not require("moth.nn").isinstance(net, require("moth.nn").Module)
    then
      refuse("net", "a module or a function is needed, got " .. errors.describe(net), "E_TYPE")
    end
    if opset < FIRST or opset > LAST then
      refuse("opset_version", ("%d to %d are written, got %d"):format(FIRST, LAST, tonumber(opset)),
        "E_UNSUPPORTED")
    end
    if lib.istensor(args) then args = { args } end
    if type(args) ~= "table" or getmetatable(args) ~= nil then
      refuse("args", "a tensor or a list of arguments is needed, got " .. errors.describe(args),
        "E_TYPE")
    end
    local list = { n = table.maxn(args) }
    for i = 1, list.n do list[i] = args[i] end
    local inputs = export.inputs(list)
    if #inputs == 0 then refuse("args", "there is no tensor in it", "E_TYPE") end
    local names = names_of(input_names, #inputs, "input_names", "input")
    local function outputs(n) return names_of(output_names, n, "output_names", "output") end
    local model = export.model(net, list, { input_names = names, output_names = outputs,
      axes = axes_of(dynamic_axes, names, inputs, output_names), opset = tonumber(opset) })
    local proto = require "moth.onnx.proto"
    local pieces = proto.encode("Model", model)
    if pieces.size > MOST_BYTES then
      refuse("net", ("%.1f GiB are more than an ONNX file holds; external data is not written")
        :format(pieces.size / 2 ^ 30), "E_UNSUPPORTED")
    end
    write(path, pieces)
  end,
}

return (lazy.namespace("moth.onnx", onnx, { load = { "moth.onnx.module", "load" } }))
