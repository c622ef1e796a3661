--- net_graph.lua -- the graph of a net: its calls as nodes, from the call log of one run. For
-- pictures of a net (help/net_picture.lua) and for TensorBoard's add_graph.
--
--     local nodes = net_graph.of(net, {x})
--     nodes[i]    {op = "conv2d", path = "layers.0", inputs = {1, 3}, shape = {2, 8, 24, 24},
--                  parameters = {"layers.0.weight"}}
--
-- Nodes are in the order of the calls; inputs are positions of earlier nodes. The first nodes are
-- the net's inputs (op "input"), the last ones its outputs (op "output").

local call_log = require "moth.onnx.export.call_log"
local lib = require "moth.binding.lib"

local net_graph = {}

local istensor = lib.istensor

local function shape_of(x)
  return istensor(x) and {unpack(x.shape)} or nil
end

local function each_tensor(value, f, depth)
  if istensor(value) then return f(value) end
  if type(value) ~= "table" or (depth or 0) > 8 then return end
  for _, inner in pairs(value) do each_tensor(inner, f, (depth or 0) + 1) end
end

local function nothing() end

-- Runs f without gradients, with all modules in evaluation mode; restores the modes. Each module
-- gets a hook: without hooks Sequential fuses a module and the ReLU after it.
local function in_eval(model, f)
  local modes, hooks = {}, {}
  for _, module in ipairs(model:modules()) do
    modes[module] = module.training
    hooks[#hooks + 1] = module:register_forward_hook(nothing)
  end
  model:eval()
  local ok, list, results = pcall(require("moth").no_grad, f)
  for _, hook in ipairs(hooks) do hook:remove() end
  for module, training in pairs(modes) do module.training = training end
  if not ok then error(list, 0) end
  return list, results
end

-- Removes the calls that no output needs.
local function needed(nodes)
  local used, place, list = {}, {}, {}
  for i = #nodes, 1, -1 do
    local node = nodes[i]
    if node.op == "output" or node.op == "input" then used[i] = true end
    if used[i] then
      for _, k in ipairs(node.inputs) do used[k] = true end
    end
  end
  for i, node in ipairs(nodes) do
    if used[i] then
      list[#list + 1] = node
      place[i] = #list
      for k, from in ipairs(node.inputs) do node.inputs[k] = place[from] end
    end
  end
  return list
end

-- Adds the node of a call.
local function add_call(nodes, call, made, names)
  local node = {op = call.name, path = call.path, inputs = {}, parameters = {}}
  local seen = {}
  for _, value in pairs(call.args) do
    each_tensor(value, function(x)
      local from = made[x]
      if from and not seen[from] then
        seen[from] = true
        node.inputs[#node.inputs + 1] = from
      elseif names[x] then
        node.parameters[#node.parameters + 1] = names[x]
      end
    end)
  end
  table.sort(node.inputs)
  table.sort(node.parameters)
  node.shape = shape_of(call.results[1])
  nodes[#nodes + 1] = node
  for _, x in ipairs(call.results) do made[x] = #nodes end
end

--- The nodes of a net for given inputs; see the top of this file. The net runs once, in evaluation
-- mode.
-- @param model   a module
-- @param inputs  a list of tensors
function net_graph.of(model, inputs)
  local calls, results = in_eval(model, function()
    return call_log.read(model, model, unpack(inputs))
  end)
  local nodes, made, names = {}, {}, {}
  for name, x in model:named_parameters() do names[x] = name end
  for name, x in model:named_buffers() do names[x] = name end
  for i, x in ipairs(inputs) do
    nodes[i] = {op = "input", path = "", inputs = {}, parameters = {}, shape = shape_of(x)}
    made[x] = i
  end
  for _, call in ipairs(calls) do add_call(nodes, call, made, names) end
  each_tensor(results, function(x)
    nodes[#nodes + 1] = {op = "output", path = "", inputs = {made[x]}, parameters = {},
                         shape = shape_of(x)}
  end)
  return needed(nodes)
end

return net_graph
