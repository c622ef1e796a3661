--- init.lua -- moth.onnx.export: a net as an ONNX file.
--
-- The net runs once on the example inputs and each of its calls of the engine is noted (noted.lua).
-- What depends on no input is a constant; the rest becomes nodes, by one row for each op
-- (elements.lua, shapes.lua, layers.lua). With dynamic axes it runs twice more on larger inputs:
-- numbers that differ then are sizes, and are computed in the file from those of the inputs.

local errors = require "moth.error"
local lib = require "moth.lib"
local Graph = require "moth.onnx.export.graph"
local noted = require "moth.onnx.export.noted"
local proto = require "moth.onnx.proto"

local C = lib.C
local Value, refuse = Graph.Value, require("moth.onnx.export.given").refuse

local ops, sized = {}, {}
for _, name in ipairs { "elements", "layers", "shapes" } do
  local rows = require("moth.onnx.export." .. name)
  for op, fn in pairs(rows.ops or rows) do ops[op] = fn end
  for op, fn in pairs(rows.sized or {}) do ops[op], sized[op] = fn, true end
end

-- The tensors in a list of values and of lists of such, in order.
local function flatten(list, n, what, into)
  for i = 1, n do
    local x = list[i]
    if lib.istensor(x) then
      into[#into + 1] = x
    elseif lib.is_plain(x) then
      flatten(x, #x, what, into)
      for key in pairs(x) do
        if type(key) ~= "number" then
          refuse(what, "tensors and lists of these are needed, got a table with '"
            .. tostring(key) .. "'", "E_TYPE")
        end
      end
    elseif what ~= "args" then
      refuse(what, "a tensor is needed from the net, got " .. errors.describe(x), "E_TYPE")
    end
  end
  return into
end

-- The same structure with other tensors.
local function replaced(x, by)
  if lib.istensor(x) then return by[x] or x end
  if not lib.is_plain(x) then return x end
  local copy = {}
  for key, value in pairs(x) do copy[key] = replaced(value, by) end
  return copy
end

-- ---- readings ----

-- An example with other sizes: its first positions come once more at the end.
local function larger(x, axes, reading)
  for _, axis in ipairs(axes) do
    local size = x:size(axis.dim + 1)
    local list = {}
    for i = 1, axis.sizes[reading] do list[i] = (i - 1) % size + 1 end
    x = x:index_select(axis.dim + 1, list)
  end
  return x
end

-- One reading: calls, inputs, outputs.
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
  local ok, list, results = pcall(noted.read, module, net, unpack(given, 1, args.n))
  if not ok and reading == 1 then error(list, 0) end
  if not ok then
    refuse("dynamic_axes", ("with inputs of other sizes, %s, the net fails: %s"):format(
      errors.describe(now[axes[1].at]), (tostring(list):gsub("^[^\n]-:%d+: ", ""))),
      "E_UNSUPPORTED")
  end
  if results.n == 0 then refuse("net", "it returns nothing", "E_TYPE") end
  return { calls = list, inputs = now,
           outputs = flatten(results, results.n, "net", {}) }
end

-- Runs f in eval mode, without gradients; the modes of the modules come back.
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

local function same_calls(readings)
  local first = readings[1]
  for i = 2, #readings do
    local other = readings[i]
    for k = 1, math.max(#first.calls, #other.calls) do
      local a, b = first.calls[k], other.calls[k]
      if not a or not b or a.name ~= b.name or #a.results ~= #b.results then
        refuse("dynamic_axes", ("with other sizes the net does something else, from call %d on: "
          .. "'%s', then '%s'"):format(k, a and a.name or "nothing", b and b.name or "nothing"),
          "E_UNSUPPORTED")
      end
    end
  end
end

-- ---- values ----

local Plan = {}
Plan.__index = Plan

local function key_of(x)
  local info, parts = lib.inspect(x), {}
  for d = 0, info.ndim - 1 do
    parts[#parts + 1] = tostring(info.shape[d]) .. ":" .. tostring(info.stride[d])
  end
  return ("%s %s %d %s"):format(tostring(info.storage), tostring(info.offset), info.dtype,
    table.concat(parts, " "))
end

-- others: the handles of the same tensor in all readings; value: what else is known of it.
function Plan:add(others, value)
  value.handle, value.dtype, value.shapes = others[1], lib.inspect(others[1]).dtype, {}
  for i = 1, #self.readings do value.shapes[i] = { unpack(others[i].shape) } end
  value.storage = tostring(lib.inspect(others[1]).storage)
  value.time = self.time
  self.values[others[1]] = setmetatable(value, Value)
  local made_by = value.node and value.node.name
  if made_by ~= "count_from_one" and not (made_by or ""):match "^positions" then
    self.aliases[key_of(others[1])] = value
  end
  return value
end

-- A tensor that no call made: a parameter, or one that Lua made, which is a constant if it is the
-- same in all readings.
function Plan:constant(others, call)
  local value = self:add(others, { state = self.state[others[1]], time = 0 })
  value.number = #value.shapes[1] == 0 and not value.state
  local equal = true
  for i = 2, #self.readings do
    equal = equal and (others[i] == others[1] or (table.concat(value.shapes[i], ",")
      == table.concat(value.shapes[1], ",") and require("moth").equal(others[i], others[1])))
  end
  if equal then return value end
  self.graph.call = call
  if not value.number then
    self.graph:refuse("a tensor that it reads, which no op made, has other values where the "
      .. "dynamic axes have other sizes")
  end
  value.sizes, value.dynamic, value.varies = {}, true, true
  for i = 1, #self.readings do value.sizes[i] = { tonumber(others[i]:item()) } end
  return value
end

-- The value that a call reads.
function Plan:find(others, call)
  local x = others[1]
  local value = self.values[x] or self.aliases[key_of(x)]
  if not value then return self:constant(others, call) end
  local written = self.written[value.storage]
  if written and value ~= written.value and value.time < written.time then
    self.graph.call = call
    self.graph:refuse(("it reads a tensor that '%s' changed through a view of it; make a new one "
      .. "(cat, where) instead"):format(written.name))
  end
  return value
end

local function is_number(x) return type(x) == "number" end

-- The name of an argument whose numbers differ from reading to reading, or nil.
local function differing(all)
  for name, x in pairs(all[1]) do
    for i = 2, #all do
      local y = all[i][name]
      if is_number(x) and x ~= y then return name end
      if type(x) == "table" and (is_number(x[1]) or is_number(y[1])) then
        for k = 1, math.max(#x, #y) do
          if x[k] ~= y[k] then return name end
        end
      end
    end
  end
end

-- Arguments with values for tensors.
function Plan:arguments(k, call)
  local args = {}
  local function value(pick)
    local others = {}
    for i, reading in ipairs(self.readings) do others[i] = pick(reading.calls[k].args) end
    local found = self:find(others, call)
    if not found.dynamic then
      self.graph.call = call
      call.constants[found] = call.versions[others[1]]
    end
    call.dynamic = call.dynamic or found.dynamic
    call.chance = call.chance or found.chance
    return found
  end
  for name, x in pairs(call.args) do
    if lib.istensor(x) then
      args[name] = value(function(a) return a[name] end)
    elseif type(x) == "table" and x.n then
      args[name] = { n = x.n }
      for i = 1, x.n do
        args[name][i] = x[i] and value(function(a) return a[name][i] end) or false
      end
    else
      args[name] = x
    end
  end
  return args
end

-- Layers that draw only in training refuse that themselves.
local function draws(call) return call.random and (not ops[call.name] or call.args.training) end

-- Takes in call k of all readings.
function Plan:take(k)
  local call = self.readings[1].calls[k]
  local shifted
  self.time, call.constants, call.all = k, {}, {}
  for i, reading in ipairs(self.readings) do call.all[i] = reading.calls[k].args end
  call.given = self:arguments(k, call)
  call.chance = call.chance or draws(call)
  call.differs = differing(call.all)
  if call.name == "empty" then call.chance = false end
  local results = {}
  for r = 1, #call.results do
    local others = {}
    for i, reading in ipairs(self.readings) do others[i] = reading.calls[k].results[r] end
    local value = self:add(others, { node = call, chance = call.chance })
    shifted = shifted or self.graph:varies(value.shapes)
    results[r] = value
  end
  call.dynamic = call.dynamic or shifted or call.differs ~= nil
  for _, value in ipairs(results) do value.dynamic = call.dynamic end
  call.values = results
  if call.writes and results[1] and call.dynamic then
    self.written[results[1].storage] = { value = results[1], time = k, name = call.name }
  end
end

-- ---- nodes ----

-- In place: by the op that it comes down to.
local function row_of(name)
  return ops[name] or (name:sub(-1) == "_" and ops[name:sub(1, -2)]) or nil
end

-- Operands in the dtype of the result where that is the wider one; numbers in any case.
local function promote(g, args, dtype, fixed)
  for name, x in pairs(args) do
    if Graph.is_value(x) and not fixed[name]
       and (x.dtype < dtype or (x.number and x.dtype ~= dtype)) then
      args[name] = g:cast(x, dtype)
    elseif type(x) == "table" and x.n and name == "tensors" then
      args[name] = { n = x.n }
      for i = 1, x.n do args[name][i] = g:cast(x[i], dtype) end
    end
  end
end

local AS_GIVEN = { cast = true, scaled_dot_product_attention = true, argmax = true, argmin = true,
                   count_nonzero = true }

-- A number of the host's that is a size, as an operand.
local function sized_number(g, value)
  local y = g:Squeeze(g:sizes_of(value.sizes, "a number"))
  value.name = value.dtype == C.MOTH_I64 and y or g:Cast(y, { to = proto.types[value.dtype] })
end

function Plan:emit(call)
  local g, args = self.graph, {}
  g.call, g.path = call, call.path == "" and "" or "/" .. call.path:gsub("%.", "/")
  for name, x in pairs(call.given) do args[name] = x end
  for x, version in pairs(call.constants) do
    if x.chance then g:refuse "it reads random numbers; pass them as an input" end
    if not x.name and not x.number and lib.inspect(x.handle).version ~= version then
      g:refuse "a tensor that it reads was changed in place afterwards"
    end
  end
  for _, x in pairs(args) do
    if Graph.is_value(x) and x.sizes and not x.name then sized_number(g, x) end
  end
  local row = row_of(call.name)
  if call.chance then g:refuse "it draws random numbers; export in eval mode, or pass them in" end
  if not row then
    g:refuse("ONNX has no node for it, or Moth does not know which: compute it from other ops, or "
      .. "outside of the net that is exported")
  end
  if call.differs and not sized[call.name] then
    g:refuse(("its argument '%s' follows from a dynamic axis"):format(call.differs))
  end
  local dtype = call.values[1].dtype
  g.dtype = dtype
  if not AS_GIVEN[call.name] and dtype ~= C.MOTH_BOOL then promote(g, args, dtype, call.fixed) end
  if dtype == C.MOTH_BOOL and args.input and args.input.dtype then g.dtype = args.input.dtype end
  local names = { row(g, args, { results = call.values, all = call.all }) }
  for r, value in ipairs(call.values) do value.name = names[r] end
end

-- The calls that the outputs need, in order.
local function needed(plan, outputs)
  local wanted = {}
  for _, value in ipairs(outputs) do
    if value.node and value.dynamic then wanted[value.node] = true end
  end
  local list, all = {}, plan.readings[1].calls
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

-- Warns of values that the net read and that other inputs would change.
local function warn_of_reads(plan)
  local told = {}
  for _, at in ipairs(plan.readings[1].calls.reads) do
    local ok, key = pcall(key_of, at.x) -- it may have been released
    local value = plan.values[at.x] or ok and plan.aliases[key]
    local place = at.place or "?"
    if value and value.dynamic and not told[place] then
      told[place] = true
      require("moth").warn(("onnx.export: at %s the net reads values that depend on an input; what "
        .. "follows from them in Lua is a constant of the file"):format(place))
    end
  end
end

-- ---- the whole ----

local function names_of_state(net)
  local state = {}
  if type(net) == "function" then return state end
  for name, p in net:named_parameters() do state[p] = state[p] or name end
  for name, b in net:named_buffers() do state[b] = state[b] or name end
  return state
end

-- Outputs under the names that they are to have.
local function name_outputs(plan, outputs, names)
  local g, taken, infos = plan.graph, {}, {}
  for i, value in ipairs(outputs) do
    g.path = ""
    if value.chance then refuse("net", "output " .. i .. " is random") end
    if not value.dynamic or value.input or taken[value] then
      value = { name = g:Identity(value), dtype = value.dtype, shapes = value.shapes }
    end
    taken[value], infos[i] = true, value
    for _, node in ipairs(g.nodes) do -- under its new name wherever it stands
      for _, list in ipairs { node.input, node.output } do
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
    dims[d] = varies and { dim_param = axes(d - 1, value) } or { dim_value = size }
  end
  return { name = name, type = { tensor_type = { elem_type = proto.types[value.dtype],
                                                 shape = { dim = dims } } } }
end

-- What an axis is called: as that of the inputs with the same sizes, else by itself.
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

-- The graph's message.
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
  return { name = "moth", node = g.nodes, initializer = g.initializers, input = inputs,
           output = results }
end

local IR = { [17] = 8, [18] = 8, [19] = 9, [20] = 9, [21] = 10 } -- the first with that opset

local M = {}

--- The tensors among the arguments, in order.
function M.inputs(args) return flatten(args, args.n, "args", {}) end

--- The message of a net as a model.
-- @param net     a module or a function
-- @param args    what it is called with, a list with its length n
-- @param given   {input_names, axes, opset}; and output_names(n): the names of n results
function M.model(net, args, given)
  local inputs = M.inputs(args)
  local readings = in_eval(net, function()
    local list = {}
    for i = 1, #given.axes > 0 and 3 or 1 do
      list[i] = read(net, args, inputs, given.axes, i)
    end
    return list
  end)
  same_calls(readings)
  local g = Graph.new(given.opset, #readings)
  local plan = setmetatable({ readings = readings, graph = g, values = {}, aliases = {},
    written = {}, time = 0, state = names_of_state(net), inputs = {} }, Plan)
  for i, name in ipairs(given.input_names) do
    local others = {}
    for k, reading in ipairs(readings) do others[k] = reading.inputs[i] end
    plan.inputs[i] = plan:add(others, { name = name, dynamic = true, input = true })
  end
  g.axes = given.axes
  for _, axis in ipairs(g.axes) do axis.input = plan.inputs[axis.at] end
  for k = 1, #readings[1].calls do plan:take(k) end
  warn_of_reads(plan)
  local outputs = {}
  for r = 1, #readings[1].outputs do
    local others = {}
    for i, reading in ipairs(readings) do others[i] = reading.outputs[r] end
    outputs[r] = plan:find(others, { name = "the result", path = "", versions = {} })
  end
  local output_names = given.output_names(#outputs)
  for _, call in ipairs(needed(plan, outputs)) do plan:emit(call) end
  local shown = name_outputs(plan, outputs, output_names)
  return { ir_version = IR[given.opset], producer_name = "moth", graph =
    message(plan, given.input_names, output_names, shown),
    opset_import = { { domain = "", version = given.opset } } }
end

return M
