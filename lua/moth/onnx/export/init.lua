--- init.lua -- moth.onnx.export: writes a net as an ONNX file.
--
-- The net runs once on the example inputs and each of its calls is logged (call_log.lua).
-- Values that depend on no input are constants; the other calls become nodes (plan.lua), with one
-- row for each op (elements.lua, shapes.lua, indexing.lua, layers.lua, losses.lua). With dynamic
-- axes the net runs twice more, on larger inputs: numbers that differ between the runs are sizes,
-- which the file computes from the sizes of the inputs.

local errors = require "moth.error"
local lib = require "moth.binding.lib"
local Graph = require "moth.onnx.export.graph"
local call_log = require "moth.onnx.export.call_log"
local Plan = require "moth.onnx.export.plan"
local proto = require "moth.onnx.proto"

local refuse = require("moth.onnx.export.given").refuse

-- Appends the tensors in a (nested) list of values, in order.
local function flatten(list, n, what, into)
  for i = 1, n do
    local x = list[i]
    if lib.istensor(x) then
      into[#into + 1] = x
    elseif lib.is_plain(x) then
      flatten(x, #x, what, into)
      for key in pairs(x) do
        if type(key) ~= "number" then
          refuse(what, "tensors and lists of tensors are needed, got a table with '"
            .. tostring(key) .. "'", "E_TYPE")
        end
      end
    elseif what ~= "args" then
      refuse(what, "the net must return tensors, got " .. errors.describe(x), "E_TYPE")
    end
  end
  return into
end

-- Returns the same structure with other tensors.
local function replaced(x, by)
  if lib.istensor(x) then return by[x] or x end
  if not lib.is_plain(x) then return x end
  local copy = {}
  for key, value in pairs(x) do copy[key] = replaced(value, by) end
  return copy
end

-- ---- runs ----

-- Returns an example with larger sizes: its first elements are repeated at the end.
local function larger(x, axes, reading)
  for _, axis in ipairs(axes) do
    local size = x:size(axis.dim + 1)
    local list = {}
    for i = 1, axis.sizes[reading] do list[i] = (i - 1) % size + 1 end
    x = x:index_select(axis.dim + 1, list)
  end
  return x
end

-- Runs the net once. Returns calls, inputs, outputs; or nil and the net's error for other sizes.
local function read(net, args, inputs, axes, reading)
  local by, now = {}, {}
  for i, x in ipairs(inputs) do
    local own = {}
    for _, axis in ipairs(axes) do
      if axis.at == i then own[#own + 1] = axis end
    end
    by[x] = reading > 1 and #own > 0 and larger(x, own, reading) or x
    now[i] = by[x]
  end
  local given = {}
  for i = 1, args.n do given[i] = replaced(args[i], by) end
  local module = type(net) ~= "function" and net or nil
  local ok, list, results = pcall(call_log.read, module, net, unpack(given, 1, args.n))
  if not ok and reading == 1 then error(list, 0) end
  if not ok then
    return nil, ("with inputs of other sizes, %s, the net fails: %s"):format(
      errors.describe(now[axes[1].at]), (tostring(list):gsub("^[^\n]-:%d+: ", "")))
  end
  if results.n == 0 then refuse("net", "it returns nothing", "E_TYPE") end
  return {calls = list, inputs = now,
           outputs = flatten(results, results.n, "net", {})}
end

-- Runs f in eval mode, without gradients, and restores the modes of the modules.
local function in_eval(net, f)
  local modes = {}
  if type(net) ~= "function" then
    for _, module in ipairs(net:modules()) do modes[module] = module.training end
    net:eval()
  end
  local ok, result = pcall(require("moth").no_grad, f)
  for module, training in pairs(modes) do module.training = training end
  if not ok then error(result, 0) end
  return result
end

-- Returns the reason why the runs have different graphs, or nil.
local function difference(readings)
  local first = readings[1]
  for i = 2, #readings do
    local other = readings[i]
    for k = 1, math.max(#first.calls, #other.calls) do
      local a, b = first.calls[k], other.calls[k]
      if not a or not b or a.name ~= b.name or #a.results ~= #b.results then
        return ("the ops of the net depend on the sizes: call %d is '%s', with other sizes '%s'")
          :format(k, a and a.name or "nothing", b and b.name or "nothing")
      end
    end
  end
end

-- Returns the runs with these axes; or nil and the reason.
local function try(net, args, inputs, axes)
  local list = {}
  for i = 1, #axes > 0 and 3 or 1 do
    local reading, why = read(net, args, inputs, axes, i)
    if not reading then return nil, why end
    list[i] = reading
  end
  local why = difference(list)
  return not why and list or nil, why
end

-- Returns the runs, and their axes. If the net fails for sizes that differ by 1, as a U-Net does,
-- steps that are powers of 2 are tried.
local function readings_of(net, args, inputs, axes)
  local list, why = try(net, args, inputs, axes)
  if list then return list, axes end
  local wider = require("moth.onnx.export.given").widened(axes)
  if wider then list = try(net, args, inputs, wider) end
  if not list then
    refuse("dynamic_axes", why .. " (if the net needs sizes that are multiples, set a step: "
      .. "{input = {[3] = {name = 'height', step = 32}}})", "E_UNSUPPORTED")
  end
  return list, wider
end

-- Returns the calls on which the outputs depend, in order.
local function needed(plan, outputs)
  local wanted = {}
  for _, value in ipairs(outputs) do
    if value.node and value.dynamic then wanted[value.node] = true end
  end
  local list, all = {}, plan.calls
  local function want(x)
    if Graph.is_value(x) and x.dynamic and x.node then wanted[x.node] = true end
  end
  for k = #all, 1, -1 do
    if wanted[all[k]] then
      table.insert(list, 1, all[k])
      for _, x in pairs(all[k].given) do
        want(x)
        for i = 1, type(x) == "table" and x.n or 0 do want(x[i]) end
      end
    end
  end
  return list
end

-- Warns of values that the net read and that depend on an input.
local function warn_of_reads(plan)
  local told = {}
  for _, at in ipairs(plan.readings[1].calls.reads) do
    local ok, key = pcall(Plan.key_of, at.x) -- it may have been released
    local value = plan.values[at.x] or ok and plan.aliases[key]
    local place = at.place or "?"
    if value and value.dynamic and not told[place] then
      told[place] = true
      require("moth").warn(("onnx.export: at %s the net reads values that depend on an input; "
        .. "numbers that Lua computes from these values are constants in the file"):format(place))
    end
  end
end

-- ---- the whole model ----

-- Renames the outputs to their final names.
local function name_outputs(plan, outputs, names)
  local g, taken, infos = plan.graph, {}, {}
  for i, value in ipairs(outputs) do
    g.path = ""
    if value.chance then refuse("net", "output " .. i .. " is random") end
    if not value.dynamic or value.input or taken[value] then
      value = {name = g:Identity(value), dtype = value.dtype, shapes = value.shapes}
    end
    taken[value], infos[i] = true, value
    for _, node in ipairs(g.nodes) do -- renames each use
      for _, list in ipairs {node.input, node.output} do
        for k, name in ipairs(list) do
          if name == value.name then list[k] = names[i] end
        end
      end
    end
    value.name = names[i]
  end
  return infos
end

local function info_of(plan, name, value, axes)
  local dims = {}
  for d, size in ipairs(value.shapes[1]) do
    local varies = false
    for i = 2, #plan.readings do varies = varies or value.shapes[i][d] ~= size end
    dims[d] = varies and {dim_param = axes(d - 1, value)} or {dim_value = size}
  end
  return {name = name, type = {tensor_type = {elem_type = proto.types[value.dtype],
                                               shape = {dim = dims}}}}
end

-- Returns the name of an axis: the name of an input axis with the same sizes, else a new name.
local function axis_name(plan, name)
  return function(d, value)
    for _, axis in ipairs(plan.graph.axes) do
      local same = axis.input == value and axis.dim == d or axis.input ~= value
      for i = 1, #plan.readings do same = same and axis.sizes[i] == value.shapes[i][d + 1] end
      if same then return axis.name end
    end
    return ("%s_dim_%d"):format(name, d)
  end
end

-- Returns the protobuf message of the graph.
local function message(plan, input_names, output_names, outputs)
  local g, inputs, results = plan.graph, {}, {}
  local taken = {}
  for _, t in ipairs(g.initializers) do taken[t.name] = true end
  for _, name in ipairs(input_names) do
    if taken[name] then refuse("input_names", ("'%s' is the name of a parameter"):format(name)) end
    taken[name] = true
  end
  for _, name in ipairs(output_names) do
    if taken[name] then
      refuse("output_names", ("'%s' is the name of an input or a parameter"):format(name))
    end
  end
  for i, name in ipairs(input_names) do
    inputs[i] = info_of(plan, name, plan.inputs[i], axis_name(plan, name))
  end
  for i, name in ipairs(output_names) do
    results[i] = info_of(plan, name, outputs[i], axis_name(plan, name))
  end
  return {name = "moth", node = g.nodes, initializer = g.initializers, input = inputs,
           output = results}
end

local IR = {[17] = 8, [18] = 8, [19] = 9, [20] = 9, [21] = 10} -- the first with this opset

local export = {}

--- Returns the tensors among the arguments, in order.
function export.inputs(args) return flatten(args, args.n, "args", {}) end

--- Returns the protobuf message of a net as a model.
-- @param net     a module or a function
-- @param args    its arguments, a list with its length n
-- @param given   {input_names, axes, opset}; and output_names(n): the names of n results
function export.model(net, args, given)
  local inputs = export.inputs(args)
  local axes
  local readings = in_eval(net, function()
    local list
    list, axes = readings_of(net, args, inputs, given.axes)
    return list
  end)
  local plan = Plan.of(net, readings, given, axes)
  warn_of_reads(plan)
  local outputs = {}
  for r = 1, #readings[1].outputs do
    local others = {}
    for i, reading in ipairs(readings) do others[i] = reading.outputs[r] end
    outputs[r] = plan:find(others, {name = "the result", path = "", versions = {}})
  end
  local output_names = given.output_names(#outputs)
  for _, call in ipairs(needed(plan, outputs)) do plan:emit(call) end
  local shown = name_outputs(plan, outputs, output_names)
  return {ir_version = IR[given.opset], producer_name = "moth", graph =
    message(plan, given.input_names, output_names, shown),
    opset_import = {{domain = "", version = given.opset}}}
end

return export
