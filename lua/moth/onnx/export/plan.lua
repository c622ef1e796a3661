--- plan.lua -- finds the inputs and results of a net's calls, and converts the calls to nodes.
--
-- A tensor of the net is a value (graph.lua). A value that depends on no input is a constant. A
-- write in place gives a storage a new root; views that are read later are taken from the new
-- root.

local lib = require "moth.binding.lib"
local Graph = require "moth.onnx.export.graph"
local proto = require "moth.onnx.proto"

local C, Value = lib.C, Graph.Value

local ops, sized = {}, {}
for _, name in ipairs {"elements", "indexing", "layers", "losses", "shapes"} do
  local rows = require("moth.onnx.export." .. name)
  for op, fn in pairs(rows.ops or rows) do ops[op] = fn end
  for op, fn in pairs(rows.sized or {}) do ops[op], sized[op] = fn, true end
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

-- others: the handles of the same tensor in all runs; value: its other fields.
function Plan:add(others, value)
  value.handle, value.dtype, value.shapes = others[1], lib.inspect(others[1]).dtype, {}
  for i = 1, #self.readings do value.shapes[i] = {unpack(others[i].shape)} end
  value.storage = tostring(lib.inspect(others[1]).storage)
  value.time = self.time
  self.values[others[1]] = setmetatable(value, Value)
  local made_by = value.node and value.node.name
  if made_by ~= "count_from_one" and not (made_by or ""):match "^positions" then
    self.aliases[key_of(others[1])] = value
  end
  return value
end

-- Returns the value of a tensor that is not the result of a call: a parameter, or a tensor that Lua
-- created. It is a constant if it is the same in all runs.
function Plan:constant(others, call)
  local value = self:add(others, {state = self.state[others[1]], time = 0})
  value.number = #value.shapes[1] == 0 and not value.state
  local equal = true
  for i = 2, #self.readings do
    equal = equal and (others[i] == others[1] or (table.concat(value.shapes[i], ",")
      == table.concat(value.shapes[1], ",") and require("moth").equal(others[i], others[1])))
  end
  if equal then return value end
  self.graph.call = call
  if not value.number then
    self.graph:refuse("it reads a tensor that no op computed and whose values depend on the sizes "
      .. "of the dynamic axes")
  end
  value.sizes, value.dynamic, value.varies = {}, true, true
  for i = 1, #self.readings do value.sizes[i] = {tonumber(others[i]:item())} end
  return value
end

-- ---- writes in place ----
--
-- The root of a storage is the tensor with which it was created. A write replaces the root: by the
-- result of the op if it writes all elements, else by a copy of the old root in which the elements
-- of a view are replaced. A view that is read later is taken from the current root.

-- Returns the calls that created a view of a root, in order.
local function chain_of(value)
  local list = {}
  while value.view do
    table.insert(list, 1, value.view)
    value = value.view.from
  end
  return list
end

-- Returns a value that is not the result of a call: emit(g) returns its name.
function Plan:derived(name, like, given, emit)
  local call = {name = name, path = self.path or "", given = given, constants = {}, versions = {},
                 dynamic = true, emit = emit}
  local value = setmetatable({handle = like.handle, dtype = like.dtype, shapes = like.shapes,
    storage = like.storage, time = self.time, dynamic = true, chance = given.input.chance,
    node = call}, Value)
  call.values = {value}
  self.calls[#self.calls + 1] = call
  return value
end

-- Applies the same views to another root; returns a value.
function Plan:views(root, chain)
  local g, x = self.graph, root
  for _, link in ipairs(chain) do
    local call, args = link.call, {}
    g.call = call
    for name, y in pairs(call.given) do args[name] = y end
    args.input = x
    local row = self:row(call)
    local names = {row(g, args, {results = call.values, all = call.all})}
    local result = call.values[link.at]
    x = setmetatable({name = names[link.at], dtype = root.dtype, shapes = result.shapes,
                       dynamic = true}, Value)
  end
  return x
end

-- Returns the root after a write to a view: a copy with the written elements replaced.
function Plan:write_through(root, chain, written)
  return self:derived("write", root, {input = root, source = written}, function(g)
    local places = setmetatable({name = g:Reshape(g:Range(g:constant(0, C.MOTH_I64), g:Size(root),
      g:constant(1, C.MOTH_I64)), g:Shape(root)), dtype = C.MOTH_I64, shapes = root.shapes,
      dynamic = true}, Value)
    local flat = g:ints { -1}
    local index = g:Reshape(self:views(places, chain), flat)
    local y = g:ScatterElements(g:Reshape(root, flat), index, g:Reshape(written, flat),
      {axis = 0})
    return g:Reshape(y, g:Shape(root))
  end)
end

-- Updates the root of a storage after `written` replaced `target`.
function Plan:note_write(written, target)
  written.view = target.view
  local storage = written.storage
  local root = written
  if target.view then
    local chain = chain_of(target)
    root = self:write_through(self:fresh(chain[1].from), chain, written)
  end
  self.roots[storage] = {value = root, time = self.time}
end

-- Returns the current value of a tensor.
function Plan:fresh(value)
  local root = self.roots[value.storage]
  if not root or value == root.value or value.time >= root.time then return value end
  local chain = chain_of(value)
  if #chain == 0 then return root.value end
  local fresh = self:derived("view", value, {input = root.value}, function()
    return self:views(root.value, chain).name
  end)
  fresh.view = value.view
  self.values[value.handle], self.aliases[key_of(value.handle)] = fresh, fresh
  return fresh
end

-- Returns the value of an operand of the call.
function Plan:find(others, call)
  local x = others[1]
  local value = self.values[x] or self.aliases[key_of(x)]
  if not value then return self:constant(others, call) end
  return self:fresh(value)
end

local function is_number(x) return type(x) == "number" end

-- Returns the name of an argument whose numbers differ between the runs, or nil.
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

-- Returns the arguments with tensors replaced by their values.
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
      args[name] = {n = x.n}
      for i = 1, x.n do
        args[name][i] = x[i] and value(function(a) return a[name][i] end) or false
      end
    else
      args[name] = x
    end
  end
  return args
end

-- Layers that draw random numbers only in training raise their own error.
local function draws(call) return call.random and (not ops[call.name] or call.args.training) end

-- Processes call k of all runs.
function Plan:take(k)
  local call = self.readings[1].calls[k]
  local shifted
  self.time, self.path, call.constants, call.all = k, call.path, {}, {}
  for i, reading in ipairs(self.readings) do call.all[i] = reading.calls[k].args end
  call.given = self:arguments(k, call)
  call.chance = call.chance or draws(call)
  call.differs = differing(call.all)
  if call.name == "empty" then call.chance = false end
  local results = {}
  for r = 1, #call.results do
    local others = {}
    for i, reading in ipairs(self.readings) do others[i] = reading.calls[k].results[r] end
    local value = self:add(others, {node = call, chance = call.chance})
    shifted = shifted or self.graph:varies(value.shapes)
    results[r] = value
  end
  for _, value in ipairs(results) do shifted = shifted or self.forced[value.storage] end
  call.dynamic = call.dynamic or shifted or call.differs ~= nil
  for _, value in ipairs(results) do value.dynamic = call.dynamic end
  call.values = results
  self.calls[#self.calls + 1] = call
  self:note_storages(call)
end

-- Finds the results that are views, and the tensors that were written.
function Plan:note_storages(call)
  local from, first = call.given.input, call.values[1]
  if not Graph.is_value(from) or not first then return end
  if call.writes then
    if not call.dynamic then return end
    if not from.dynamic then self.missed[first.storage] = true end
    self:note_write(first, from)
    return
  end
  for r, value in ipairs(call.values) do
    if value.storage == from.storage then value.view = {call = call, from = from, at = r} end
  end
end

-- ---- nodes ----

-- Returns the row of a call; for an in-place op the row of the out-of-place op.
local function row_of(name)
  return ops[name] or (name:sub(-1) == "_" and ops[name:sub(1, -2)]) or nil
end

-- Casts operands to the dtype of the result if that is wider; casts numbers always.
local function promote(g, args, dtype, fixed)
  for name, x in pairs(args) do
    if Graph.is_value(x) and not fixed[name]
       and (x.dtype < dtype or (x.number and x.dtype ~= dtype)) then
      args[name] = g:cast(x, dtype)
    elseif type(x) == "table" and x.n and name == "tensors" then
      args[name] = {n = x.n}
      for i = 1, x.n do args[name][i] = g:cast(x[i], dtype) end
    end
  end
end

local AS_GIVEN = {cast = true, scaled_dot_product_attention = true, argmax = true, argmin = true,
                   count_nonzero = true, nonzero = true}

-- Returns a size as an operand, from a number of the call.
local function sized_number(g, value)
  local y = g:Squeeze(g:sizes_of(value.sizes, "a number"))
  value.name = value.dtype == C.MOTH_I64 and y or g:Cast(y, {to = proto.types[value.dtype]})
end

-- Returns the row of a call; raises if there is none, or if the call's numbers depend on a dynamic
-- axis.
function Plan:row(call)
  local g, row = self.graph, row_of(call.name)
  if not row then
    g:refuse("Moth has no ONNX node for it: compute it from other ops, or outside of the exported "
      .. "net")
  end
  if call.differs and not sized[call.name] then
    g:refuse(("its argument '%s' depends on a dynamic axis"):format(call.differs))
  end
  return row
end

function Plan:emit(call)
  local g, args = self.graph, {}
  g.call, g.path = call, call.path == "" and "" or "/" .. call.path:gsub("%.", "/")
  if call.emit then
    call.values[1].name = call.emit(g)
    return
  end
  for name, x in pairs(call.given) do args[name] = x end
  for x, version in pairs(call.constants) do
    if x.chance then g:refuse "it reads random numbers; pass them as an input" end
    if not x.name and not x.number and lib.inspect(x.handle).version ~= version then
      g:refuse "it reads a tensor that was changed in place later"
    end
  end
  for _, x in pairs(args) do
    if Graph.is_value(x) and x.sizes and not x.name then sized_number(g, x) end
  end
  if call.chance then g:refuse "it draws random numbers; export in eval mode, or pass them in" end
  local row = self:row(call)
  local dtype = call.values[1].dtype
  g.dtype = dtype
  if not AS_GIVEN[call.name] and dtype ~= C.MOTH_BOOL then promote(g, args, dtype, call.fixed) end
  if dtype == C.MOTH_BOOL and args.input and args.input.dtype then g.dtype = args.input.dtype end
  local names = {row(g, args, {results = call.values, all = call.all})}
  for r, value in ipairs(call.values) do value.name = names[r] end
end

local function names_of_state(net)
  local state = {}
  if type(net) == "function" then return state end
  for name, p in net:named_parameters() do state[p] = state[p] or name end
  for name, b in net:named_buffers() do state[b] = state[b] or name end
  return state
end

--- Finds the inputs and results of all calls in the runs. A constant that a later call fills with
-- values of an input must be created in the file: the calls are then processed again, with these
-- storages known.
function Plan.of(net, readings, given, axes)
  local forced = {}
  while true do
    local g = Graph.new(given.opset, #readings)
    local plan = setmetatable({readings = readings, graph = g, values = {}, aliases = {},
      roots = {}, calls = {}, forced = forced, missed = {}, time = 0, state = names_of_state(net),
      inputs = {}}, Plan)
    for i, name in ipairs(given.input_names) do
      local others = {}
      for k, reading in ipairs(readings) do others[k] = reading.inputs[i] end
      plan.inputs[i] = plan:add(others, {name = name, dynamic = true, input = true})
    end
    g.axes = axes
    for _, axis in ipairs(g.axes) do axis.input = plan.inputs[axis.at] end
    for k = 1, #readings[1].calls do plan:take(k) end
    local more = false
    for storage in pairs(plan.missed) do
      more = more or not forced[storage]
      forced[storage] = true
    end
    if not more then return plan end
    for _, call in ipairs(readings[1].calls) do call.dynamic, call.chance = nil, nil end
  end
end

Plan.key_of = key_of

return Plan
