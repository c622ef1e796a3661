--- init.lua -- moth.onnx.load: reads an ONNX file as a module.
--
-- The whole file is checked on load (reader.lua). Floating-point initializers become parameters
-- under their names in the file; dots separate modules, as in any state_dict. Values that depend
-- only on shapes are computed once for each set of shapes, so the small integer graphs that
-- exporters write around Reshape cost nothing.

local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local named = require "moth.nn.module.named"
local reader = require "moth.onnx.load.reader"

local Module = require "moth.nn.module"
local class = require "moth.base.class"
local nn = require "moth.nn"

local C, ctx = lib.C, lib.ctx
local by_code = require("moth.tensor.dtype").by_code
local bare = errors.bare

local load = {}

local MOST_SHAPES = 32 -- cached sets of shapes

local Compiled = {} -- of a file; a class: no plain table in a module
Compiled.__index = Compiled

--- A net read from an ONNX file; created by moth.onnx.load.
local Net = nn.class("OnnxModule", Module)

function Net:init(graph) self.graph = graph end

function Net:extra_repr()
  local g = self.graph
  return ("%s: %d nodes, opset %d"):format(g.path, #g.nodes, g.opset)
end

-- ---- inputs ----

local function wrong(input, text, code)
  errors.argument("forward", bare(input.name), text, code)
end

local function shown(input)
  local dims = {}
  for d, size in ipairs(input.dims or {}) do dims[d] = tostring(size) end
  return ("%s (%s)"):format(input.dtype.name,
    input.dims and bare(table.concat(dims, ", "), 200) or "any shape")
end

local function check_input(input, x)
  if not lib.istensor(x) then
    wrong(input, ("%s is needed, got %s"):format(shown(input), errors.describe(x)), "E_TYPE")
  end
  local info = lib.inspect(x, "forward", bare(input.name))
  local good = input.dims == nil or #input.dims == info.ndim
  for d, size in ipairs(input.dims or {}) do
    good = good and (type(size) ~= "number" or size == tonumber(info.shape[d - 1]))
  end
  if by_code[info.dtype] ~= input.dtype then
    wrong(input, ("%s is needed, got %s"):format(shown(input), errors.describe(x)), "E_DTYPE")
  elseif not good then
    wrong(input, ("%s is needed, got %s"):format(shown(input), errors.describe(x)), "E_SHAPE")
  end
end

-- The inputs in order, by position or from one table of names.
local function inputs_of(g, ...)
  local list, first = {...}, ...
  if select("#", ...) == 1 and lib.is_plain(first) then
    list = {}
    for key, value in pairs(first) do
      local at = type(key) == "number" and key or g.places[key]
      if not at then
        errors.raise(("forward: there is no input '%s'; the inputs are %s"):format(tostring(key),
          bare(table.concat(g.names, ", "), 200)), "E_ARG")
      end
      list[at] = value
    end
  end
  if table.maxn(list) > #g.inputs then
    errors.raise(("forward: %d inputs are needed, got %d"):format(#g.inputs, table.maxn(list)),
      "E_ARG")
  end
  local key = {}
  for i, input in ipairs(g.inputs) do
    check_input(input, list[i])
    key[i] = tostring(list[i].shape)
  end
  return list, table.concat(key, ";")
end

-- ---- values of one call ----

-- A copy that survives the scope of the call.
local function lasting(x)
  C.moth_keep_always(ctx, x)
  return x
end

local function numbers_of(x)
  local list = x:cpu():reshape(-1):tolist()
  for i, value in ipairs(list) do
    list[i] = type(value) == "boolean" and (value and 1 or 0) or tonumber(value)
  end
  return list
end

-- The cached values that depend only on these shapes, on that device; computed at the first use.
local function remembered(g, key, device)
  key = tostring(device) .. " " .. key
  local known = g.known[key]
  if known then return known end
  if g.nknown >= MOST_SHAPES then g.known, g.nknown = {}, 0 end
  known = {values = {}, there = {}, lists = {}, device = device}
  if lib.capture then return known end -- replays of a captured step overwrite its tensors
  g.known[key], g.nknown = known, g.nknown + 1
  return known
end

-- The operand in a slot: as a list of numbers, on the CPU, or on the inputs' device.
local function operand(g, known, values, slot, as_list, on_cpu)
  if slot == 0 then return nil end
  if not g.static[slot] then
    return as_list and numbers_of(values[slot]) or values[slot]
  end
  local x = known.values[slot] or g.constants[slot]
  if as_list then
    known.lists[slot] = known.lists[slot] or numbers_of(x)
    return known.lists[slot]
  elseif on_cpu then
    return x
  end
  known.there[slot] = known.there[slot] or lasting(x:to(known.device))
  return known.there[slot]
end

local body_runner

local function run_node(g, known, values, node)
  local args = {}
  for k, slot in ipairs(node.inputs) do
    args[k] = operand(g, known, values, slot, node.row.lists[k], node.static)
  end
  if node.row.control then
    local env = body_runner(g, known, values, node)
    return {node.row.run(node.attributes, env, unpack(args, 1, #node.inputs))}
  end
  return {node.row.run(node.attributes, unpack(args, 1, #node.inputs))}
end

-- Stores results, and drops values that no later node reads.
local function store(known, values, node, results)
  for k, slot in ipairs(node.outputs) do
    if slot ~= 0 and results[k] == nil then
      error(("output %d is not computed by Moth"):format(k), 0)
    elseif slot ~= 0 and node.static then
      known.values[slot] = lasting(results[k])
    elseif slot ~= 0 then
      values[slot] = results[k]
    end
  end
  for _, slot in ipairs(node.last) do values[slot] = nil end
end

local function run_all(g, known, values, nodes)
  for _, node in ipairs(nodes) do
    g.at = node
    local first = node.first
    if not (node.static and (known.values[first] or g.constants[first])) then
      if node.static then
        store(known, values, node, require("moth").no_grad(run_node, g, known, values, node))
      else
        store(known, values, node, run_node(g, known, values, node))
      end
    end
  end
end

-- Returns the functions with which a node runs the graphs in its attributes (control.lua). `values`
-- has the graphs' values.
function body_runner(g, known, values, node)
  local function run(body, operands)
    for k, slot in ipairs(body.inputs) do values[slot] = operands[k] end
    run_all(g, known, values, body.nodes)
    g.at = node
    local results = {}
    for k, slot in ipairs(body.outputs) do results[k] = operand(g, known, values, slot) end
    return results
  end
  return {run = run, device = known.device}
end

-- The current parameters: they may have been replaced or moved to a device.
local function take_parameters(self, g, values)
  for _, p in ipairs(g.parameters) do
    local owner = self
    for k = 1, #p.path - 1 do owner = owner[p.path[k]] end
    values[p.slot] = owner[p.path[#p.path]]
  end
end

-- Converts an out-of-range position to the caller's counting: from 0, negative from the end.
local function from_zero(at, between, n)
  at = at - 1
  if at < 0 then at = at - n end
  return ("position %d (from 0) is out of range%ssize %s"):format(at, between, n)
end

-- Raises the error of a node. Moth's own errors have the user's line and the module's path.
local function rethrow(problem, node, path)
  local own = problem:match "%.lua:%d+: (attempt to .*)"
    or problem:match "%.lua:%d+: (bad argument #.*)"
  if own then problem = "an operand or an attribute lacks numbers: " .. own end
  problem = ("%s (in node %s, %s, of %s)"):format(bare(problem, 1000), errors.shown(node.name),
    node.op, errors.path(path))
  problem = problem:gsub("position (%-?%d+) is out of range(.-)size (%d+)", from_zero)
    :gsub("positions count from 1, got %-?%d+", "a negative position is before the first element")
  local place = errors.where()
  if place and problem:sub(1, #place + 2) == place .. ": " then error(problem, 0) end
  errors.raise(problem:gsub("^[^\n]-%.lua:%d+: ", ""), "E_UNSUPPORTED")
end

--- Runs the graph on its inputs, by position or by name: net(x, mask), net{x = x, mask = mask}.
-- Returns the graph's outputs in order. Dtypes and sizes are checked against the file.
function Net:forward(...)
  local g, values = self.graph, {}
  local inputs, key = inputs_of(g, ...)
  for i, input in ipairs(g.inputs) do values[input.slot] = inputs[i] end
  take_parameters(self, g, values)
  local known = remembered(g, key, inputs[1] and inputs[1].device or "cpu")
  local ok, problem = pcall(run_all, g, known, values, g.nodes)
  if not ok then rethrow(tostring(problem), g.at, g.path) end
  local results = {}
  for i, slot in ipairs(g.outputs) do
    results[i] = g.static[slot] and operand(g, known, values, slot) or values[slot]
  end
  return unpack(results, 1, #g.outputs)
end
named.as_given(Net.forward)

-- ---- construction ----

-- The module at a path of names, created if it does not exist; nil if a name is already used.
local function owner_of(net, path)
  local owner = net
  for k = 1, #path do
    local name, there = path[k], path[k] ~= "" and owner[path[k]]
    if there == nil and k == #path then return owner end
    if there == nil then owner:add_module(name, Module())
    elseif k == #path or not class.isinstance(there, Module) then return nil end
    owner = owner[name]
  end
end

-- Registers a tensor under its name in the file, where dots separate modules; under another name
-- if that fails. @return the names on the path
local function register(net, tensor)
  local path = {}
  for name in (tensor.name .. "."):gmatch "([^.]*)%." do path[#path + 1] = name end
  local owner, plain = owner_of(net, path), "tensor_" .. tensor.name:gsub("[^%w_]", "_")
  while not owner do
    path, plain = {plain}, plain .. "_"
    owner = owner_of(net, path)
  end
  if tensor.buffer then owner:register_buffer(path[#path], tensor.value)
  else owner:register_parameter(path[#path], nn.Parameter(tensor.value)) end
  return path
end

--- Reads an ONNX file: a module whose calls run its graph. A file contains no code; a broken file
-- or an unknown op raises before anything runs.
-- @param path  the file; tensors in separate files next to it are read too
-- @param mmap  share the files' pages instead of reading them (default true)
-- @return the module: call it with the graph's inputs, by position or by name. Floating-point
-- initializers are parameters under their names; running statistics are buffers. Constants are:
-- 0-d initializers, and single elements and initial states whose names an exporter generated.
-- Raises E_IO, E_FORMAT (the file is broken), E_UNSUPPORTED (an op, attribute or opset that Moth
-- lacks, with the node's name). Opsets 7 to 28.
load.load = define {
  name = "onnx.load",
  doc = [[
Reads an ONNX file as a module that can be run and trained. Positions and token ids are the file's:
those of a net from PyTorch count from 0. Inputs have the file's dtypes, also after net:double().
Batch norms and dropout run as in eval mode, except where the file sets training_mode. Weights that
PyTorch's net shares are one parameter if its exporter wrote them once.]],
  outputs = "net",
  examples = "'net.onnx', {mmap = false}  -- domain: file",
  args = {{"string", "path", "the file to read"},
    {"bool", "mmap", "share the files' pages instead of reading them", default = true}},
  run = function(path, mmap)
    local g = setmetatable(reader.read(path, mmap), Compiled)
    g.known, g.nknown, g.parameters = {}, 0, {}
    local net = Net(g)
    for _, tensor in ipairs(g.tensors) do
      table.insert(g.parameters, {slot = tensor.slot, path = register(net, tensor)})
    end
    g.tensors = nil
    return net
  end,
}

return load
