--- onnx_models.lua -- writes small ONNX models for specs of moth.onnx.load.

local bytes = require "moth.io.bytes"
local dtype = require "moth.tensor.dtype"
local files = require "spec.support.files"
local lib = require "moth.binding.lib"
local moth = require "moth"
local proto = require "moth.onnx.proto"

local models = {}

local function kind_of(x) return proto.types[dtype.codes[x.dtype]] end

local function tensor(name, x)
  local dims = {}
  for d = 1, x:dim() do dims[d] = x:size(d) end
  return { name = name, dims = dims, data_type = kind_of(x), raw_data = x:contiguous() }
end

local function floats(list)
  for _, value in ipairs(list) do
    if value % 1 ~= 0 then return true end
  end
end

--- An attribute, typed by its value: a number with a fraction is a float; {float = 2} is a float
-- without a fraction.
local function attribute(name, value)
  if lib.istensor(value) then return { name = name, t = tensor("", value), type = 4 } end
  if type(value) == "string" then return { name = name, s = value, type = 3 } end
  if type(value) == "number" and value % 1 == 0 then return { name = name, i = value, type = 2 } end
  if type(value) == "number" then return { name = name, f = value, type = 1 } end
  if value.float then return { name = name, f = value.float, type = 1 } end
  if value.node then return { name = name, g = value, type = 5 } end
  if type(value[1]) == "string" then return { name = name, strings = value, type = 8 } end
  if floats(value) then return { name = name, floats = value, type = 6 } end
  return { name = name, ints = value, type = 7 }
end

local function words(text)
  local list = {}
  for word in text:gmatch "%S+" do list[#list + 1] = word == "-" and "" or word end
  return list
end

--- A node. Names are separated by spaces; "-" is an absent one.
function models.node(op, inputs, outputs, attributes)
  local domain, name = op:match "^(.*)%.(%w+)$"
  local list = {}
  for key, value in pairs(attributes or {}) do list[#list + 1] = attribute(key, value) end
  return { op_type = name or op, domain = domain, name = op:lower(), input = words(inputs),
           output = words(outputs), attribute = list }
end

--- A value of a graph: name, code of the element type (nil: not declared) and sizes.
function models.info(name, kind, dims)
  local shape
  if dims then
    shape = { dim = {} }
    for d, size in ipairs(dims) do
      shape.dim[d] = type(size) == "number" and { dim_value = size } or { dim_param = size }
    end
  end
  return { name = name, type = kind and { tensor_type = { elem_type = kind, shape = shape } } }
end

--- A graph of nodes, for attributes: names of inputs and outputs, and constants by name.
function models.graph(nodes, inputs, outputs, constants)
  local graph = { name = "g", node = nodes, input = {}, output = {}, initializer = {} }
  for i, name in ipairs(words(inputs)) do graph.input[i] = models.info(name) end
  for i, name in ipairs(words(outputs)) do graph.output[i] = models.info(name) end
  for name, x in pairs(constants or {}) do table.insert(graph.initializer, tensor(name, x)) end
  return graph
end

--- Writes a model of a graph with inputs like these tensors, in order. @return the path
function models.write(graph, path, examples, opset, functions)
  for i, info in ipairs(graph.input) do
    if not info.type then
      graph.input[i] = models.info(info.name, kind_of(examples[i]))
    end
  end
  local imports = { { version = opset or 18 }, { domain = "com.microsoft", version = 1 } }
  bytes.save(path, proto.encode("Model", { ir_version = 9, opset_import = imports, graph = graph,
    functions = functions }), "spec", false)
  return path
end

--- Loads such a model.
function models.load(graph, examples, opset, functions)
  return moth.onnx.load(models.write(graph, files.path "model.onnx", examples, opset, functions))
end

--- Runs one node on operands; false is an absent operand.
-- @return its n results (default 1)
function models.run(op, attributes, operands, opset, n)
  local names, inputs, outputs, examples = {}, {}, {}, {}
  for i, x in ipairs(operands) do
    names[i] = x and "x" .. i or "-"
    if x then
      inputs[#inputs + 1] = names[i]
      examples[#examples + 1] = x
    end
  end
  for i = 1, n or 1 do outputs[i] = "y" .. i end
  outputs = table.concat(outputs, " ")
  local node = models.node(op, table.concat(names, " "), outputs, attributes)
  local graph = models.graph({ node }, table.concat(inputs, " "), outputs)
  return models.load(graph, examples, opset)(unpack(examples))
end

return models
