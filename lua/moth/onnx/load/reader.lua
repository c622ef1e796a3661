--- reader.lua -- reads an ONNX file as a graph that can run, and checks all of it.
--
-- Names are replaced by numbers (slots), counted through the graph and its subgraphs. A node is
-- static if it depends only on shapes and constants. A value is loose if its shape depends on more
-- than the shapes of the inputs: that shape is not static. Nodes are sorted in a file: a node that
-- reads a later value, as in a cycle, is an error.

local files = require "moth.io.bytes"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local proto = require "moth.onnx.proto"
local tensor = require "moth.onnx.load.tensors"
local rows = require "moth.onnx.load.rows"

local C, ctx = lib.C, lib.ctx
local by_code = require("moth.tensor.dtype").by_code
local quoted = errors.shown

local reader = {}

local OLDEST, NEWEST = 7, 28 -- opsets
local MOST_VALUES = 4000 -- operands or results of a node: the limit of a Lua call
local DEEPEST = 100 -- nested function calls
local F16 = C.MOTH_F16

-- ---- attributes ----

local SPELLED = {int = "i", float = "f", string = "s", tensor = "t", ints = "ints",
                  floats = "floats", strings = "strings", graph = "g"}

-- The attributes that a row declares: name -> {field, default, only} or {field, needed}.
local function parse(text)
  local known = {}
  for item in text:gsub("^%d+", ""):gmatch "%S+" do
    local name, kind, needed = item:match "^([%w_]+):(%a+)(!?)$"
    if name then
      known[name] = {field = SPELLED[kind], needed = needed == "!"}
    else
      local value, only
      name, value, only = item:match "^([%w_]+)=(.-)(!?)$"
      local number = tonumber((value:gsub("%.$", "")))
      known[name] = {field = not number and "s" or value:find "%." and "f" or "i",
                     default = number or value, only = only == "!"}
    end
  end
  return known
end

local function shown(node)
  return ("node %s (%s)"):format(quoted(node.name), errors.bare(node.op_type))
end

local compile_body

-- The attributes of a node of graph b.
local function attributes_of(b, node, row, state)
  local refuse = state.refuse
  row.known = row.known or parse(row.attributes)
  local values = {opset = state.opset, noutputs = 0}
  for k, name in ipairs(node.output) do
    if name ~= "" then values.noutputs = k end
  end
  for name, known in pairs(row.known) do values[name] = known.default end
  for _, attribute in ipairs(node.attribute) do
    local name = attribute.name or ""
    local known = row.known[name]
    if not known then
      refuse(("has the unknown attribute %s at %s"):format(quoted(name),
        shown(node)), "E_UNSUPPORTED")
    end
    local field = known.field
    if attribute.type ~= proto.attribute_types[field] then
      refuse(("is broken: attribute '%s' of %s %s"):format(name, shown(node), attribute.type
        and "is of type " .. tostring(attribute.type) or "has no type"))
    end
    local value = attribute[field]
    if value == nil then value = field == "s" and "" or 0 end -- a value of 0 may be absent
    if field == "t" then
      if type(value) ~= "table" then refuse("is broken: no tensor at " .. shown(node)) end
      value = tensor(value, state)
    end
    if field == "g" then
      if type(value) ~= "table" then refuse("is broken: no graph at " .. shown(node)) end
      value = compile_body(b, value, state)
    end
    if known.only and value ~= known.default then
      refuse(("has %s = %s at %s; only %s is supported"):format(name, errors.describe(value),
        shown(node), tostring(known.default)), "E_UNSUPPORTED")
    end
    values[name] = value
  end
  for name, known in pairs(row.known) do
    if known.needed and values[name] == nil then
      refuse(("is broken: %s has no attribute '%s'"):format(shown(node), name))
    end
  end
  return values
end

-- ---- constants ----

local CONSTANT = parse("value:tensor value_int:int value_ints:ints value_float:float "
  .. "value_floats:floats")

local function constant(node, state)
  local moth = require "moth"
  local a = node.attribute[1]
  local known = a and CONSTANT[a.name or ""]
  if #node.attribute ~= 1 or not known then
    state.refuse(("has %s with %s"):format(shown(node), a and "the unsupported attribute "
      .. quoted(a.name or "") or "no value"), "E_UNSUPPORTED")
  end
  local value = a[known.field]
  if value == nil then value = 0 end
  if known.field == "t" then
    if type(value) ~= "table" then state.refuse("is broken: no tensor at " .. shown(node)) end
    return (tensor(value, state))
  end
  local whole = known.field:sub(1, 1) == "i"
  return moth.tensor(value, {dtype = whole and moth.int64 or moth.float32})
end

-- ---- values ----

local function new_slot(b, name, state)
  if rawget(b.slots, name) then
    state.refuse("is broken: two values are called " .. quoted(name))
  end
  local g = state.g
  g.nslots = g.nslots + 1
  b.slots[name], b.own[g.nslots] = g.nslots, true
  return g.nslots
end

-- The slot of a name in graph b or in a graph around it; nil if there is none.
local function slot_of(b, name)
  local slot = b.slots[name]
  if slot and slot ~= 0 and not b.own[slot] then b.captured[slot] = true end
  return slot
end

local MADE_UP = {"^val_%d+$", "::", "^constant_%d+$", "^held_%d+$"}

-- Checks for a name that an exporter generates for unnamed values.
local function made_up(name)
  for _, pattern in ipairs(MADE_UP) do
    if name:find(pattern) then return true end
  end
end

-- The name of a node's row.
local function key_of(node)
  local domain, op = node.domain or "", node.op_type or ""
  return (domain == "" or domain == "ai.onnx") and op or domain .. "." .. op
end

local STATEFUL = {LSTM = true, GRU = true, RNN = true} -- from operand 6 on initial states

-- Marks in `uses` the initializers that nodes read as tensors (weights), as statistics of a norm,
-- or as initial states (or slices of these) that are not parameters.
local function uses_of(nodes, uses)
  local weights, statistics, states = uses.weights, uses.statistics, uses.states
  for i = #nodes, 1, -1 do
    local node = nodes[i]
    local op, row = node.op_type, rows.N[key_of(node)]
    for k, name in ipairs(node.input) do
      local state = STATEFUL[op] and k >= 6 or op == "Slice" and k == 1 and states[node.output[1]]
      states[name] = states[name] or state
      if op == "BatchNormalization" and k >= 4 then statistics[name] = true
      elseif not (row and row.lists[k] or state and made_up(name)) then weights[name] = true end
    end
    for _, attribute in ipairs(node.attribute) do
      if attribute.g then uses_of(attribute.g.node, uses) end
    end
  end
end

-- Initializers of any graph become parameters or buffers of the net, or constants.
local function take_initializers(b, graph, state)
  local g, uses = state.g, state.uses
  if #graph.sparse_initializer > 0 then state.refuse("has sparse tensors", "E_UNSUPPORTED") end
  for _, t in ipairs(graph.initializer) do
    local x, code = tensor(t, state)
    local name = t.name or ""
    local slot = new_slot(b, name, state)
    local number = #t.dims == 0 or x:numel() == 1 and made_up(name) or name:find "^zeros_like"
    if code >= F16 and not number and (uses.weights[name] or uses.statistics[name]) then
      g.tensors[#g.tensors + 1] = {slot = slot, name = name, value = x,
                                    buffer = not uses.weights[name]}
      if b ~= g then b.own[slot] = nil end -- stored in the net
    else
      C.moth_keep_always(ctx, x)
      g.constants[slot], g.static[slot] = x, true
    end
  end
end

local function dims_of(t)
  local dims = t and t.shape and {}
  for d, dim in ipairs(t and t.shape and t.shape.dim or {}) do
    dims[d] = dim.dim_value or dim.dim_param or "?"
    if type(dims[d]) == "number" and dims[d] < 0 then dims[d] = "?" end
  end
  return dims
end

local function take_inputs(g, graph, state)
  for _, info in ipairs(graph.input) do
    local name = info.name or ""
    if not g.slots[name] then -- before IR version 4 inputs include initializers
      local t = info.type and info.type.tensor_type
      local code = t and proto.dtypes[t.elem_type or 0]
      if not code then
        state.refuse(("has the input %s of a type that Moth does not support"):format(
          quoted(name)), "E_UNSUPPORTED")
      end
      g.inputs[#g.inputs + 1] = {name = name, slot = new_slot(g, name, state), dims = dims_of(t),
                                  dtype = by_code[code]}
      g.names[#g.names + 1] = name
      g.places[name] = #g.inputs
    end
  end
end

local function take_outputs(b, graph, state)
  for i, info in ipairs(graph.output) do
    b.outputs[i] = slot_of(b, info.name or "")
    if not b.outputs[i] or b.outputs[i] == 0 then
      state.refuse("is broken: no node computes the output " .. quoted(info.name or ""))
    end
  end
  if #b.outputs == 0 then state.refuse "is broken: it has no output" end
  if #b.outputs > MOST_VALUES then
    state.refuse(("has %d outputs; at most %d are supported"):format(#b.outputs, MOST_VALUES),
      "E_UNSUPPORTED")
  end
end

-- ---- nodes ----

local STATIC = {Shape = true, Size = true} -- they depend only on shapes, for any input

local take_node

-- A node that calls a function of the file: the function's nodes are inlined under new names.
local function inline(b, node, f, state)
  local inner = setmetatable({slots = {}}, {__index = b})
  local given, opset = {}, state.opset
  state.depth = state.depth + 1
  if state.depth > DEEPEST then state.refuse "is broken: functions are nested too deeply" end
  for k, name in ipairs(f.input) do
    local actual = node.input[k] or ""
    inner.slots[name] = actual == "" and 0 or slot_of(b, actual)
    if not inner.slots[name] then
      state.refuse(("is broken: %s reads %s, which no node before it computes"):format(shown(node),
        quoted(actual)))
    end
  end
  for _, attribute in ipairs(f.attribute_proto) do given[attribute.name or ""] = attribute end
  for _, attribute in ipairs(node.attribute) do given[attribute.name or ""] = attribute end
  for _, import in ipairs(f.opset_import) do
    if (import.domain or "") == "" then state.opset = import.version or opset end
  end
  for _, step in ipairs(f.node) do
    local copy, list = setmetatable({}, {__index = step}), {}
    for _, attribute in ipairs(step.attribute) do
      local outer = attribute.ref_attr_name and given[attribute.ref_attr_name]
      if outer then outer = setmetatable({name = attribute.name}, {__index = outer}) end
      if outer or not attribute.ref_attr_name then list[#list + 1] = outer or attribute end
    end
    copy.attribute = list
    take_node(inner, copy, state)
  end
  for k, name in ipairs(node.output) do
    local slot = inner.slots[f.output[k] or ""]
    if name ~= "" and not slot then
      state.refuse(("is broken: %s does not compute %s"):format(shown(node), quoted(name)))
    elseif name ~= "" then
      b.slots[name] = slot
    end
  end
  state.depth, state.opset = state.depth - 1, opset
end

local function refuse_op(node, state)
  local domain, reason = node.domain or "", rows.reasons[node.op_type]
  state.refuse(("has %s%s, which Moth does not support%s"):format(shown(node),
    domain == "" and "" or " of " .. errors.bare(domain), reason and ": " .. reason
    or errors.nearest(node.op_type, rows.ops)), "E_UNSUPPORTED")
end

-- The values that a node reads: its operands, and the values that its subgraphs read.
local function operands_of(b, new, node, state)
  for k, name in ipairs(node.input) do
    local slot = name == "" and 0 or slot_of(b, name)
    if not slot then
      state.refuse(("is broken: %s reads %s, which no node before it computes"):format(shown(node),
        quoted(name)))
    end
    new.inputs[k] = slot
  end
  for k = 1, new.row.needs do
    if (new.inputs[k] or 0) == 0 and new.row.needs > 0 then
      state.refuse(("is broken: %s has no operand %d"):format(shown(node), k))
    end
  end
  for _, value in pairs(new.attributes) do
    for slot in pairs(type(value) == "table" and value.captured or {}) do
      if not b.own[slot] then b.captured[slot] = true end
      new.hidden[#new.hidden + 1] = slot
    end
  end
end

-- Returns true if a node depends only on shapes, and true if the shapes of its results do.
local function kind_of(new, g)
  local row, static = new.row, true
  local loose = row.loose or row.control or row.sequence or false
  for k, slot in ipairs(new.inputs) do
    if slot ~= 0 then
      static = static and g.static[slot] or false
      loose = loose or g.loose[slot] or row.lists[k] and not g.static[slot] or false
    end
  end
  static = static and not row.control and not row.sequence
    or STATIC[new.op] and not g.loose[new.inputs[1]] or false
  return static, loose and not static
end

function take_node(b, node, state)
  local refuse, g = state.refuse, state.g
  node.name = node.name or node.output[1] or ""
  node.op_type = node.op_type or ""
  local key = key_of(node)
  local f, row = state.functions[key], rows.N[key]
  if f then return inline(b, node, f, state) end
  if key == "Constant" then
    local slot = new_slot(b, node.output[1] or "", state)
    g.constants[slot], g.static[slot] = constant(node, state), true
    C.moth_keep_always(ctx, g.constants[slot])
    return
  elseif not row then
    refuse_op(node, state)
  end
  if #node.input > MOST_VALUES or #node.output > MOST_VALUES then
    refuse(("has %s of %d inputs and %d outputs; at most %d are supported"):format(shown(node),
      #node.input, #node.output, MOST_VALUES), "E_UNSUPPORTED")
  end
  if #node.input == 0 and row.needs > 0 and not row.control then
    refuse(("is broken: %s reads nothing"):format(shown(node)))
  end
  local new = {name = node.name, op = node.op_type, row = row, inputs = {}, hidden = {},
                outputs = {}, last = {}, attributes = attributes_of(b, node, row, state)}
  operands_of(b, new, node, state)
  local static, loose = kind_of(new, g)
  new.static = static
  for k, name in ipairs(node.output) do
    new.outputs[k] = name == "" and 0 or new_slot(b, name, state)
    if name ~= "" then
      new.first = new.first or new.outputs[k]
      g.static[new.outputs[k]], g.loose[new.outputs[k]] = static or nil, loose or nil
    end
  end
  if not new.first then refuse(("is broken: %s has no output"):format(shown(node))) end
  b.nodes[#b.nodes + 1] = new
end

-- ---- graphs ----

-- Removes nodes that no output needs, and marks the last read of each value.
local function finish(b, g)
  local wanted, kept, seen = {}, {}, {}
  for _, slot in ipairs(b.outputs) do wanted[slot], seen[slot] = true, true end
  for i = #b.nodes, 1, -1 do
    local node, needed = b.nodes[i], false
    for _, slot in ipairs(node.outputs) do needed = needed or wanted[slot] end
    if needed then
      table.insert(kept, node)
      for _, list in ipairs {node.inputs, node.hidden} do
        for _, slot in ipairs(list) do
          if slot ~= 0 and not seen[slot] and not g.static[slot] and b.own[slot] then
            table.insert(node.last, slot)
          end
          wanted[slot], seen[slot] = true, true
        end
      end
    end
    node.hidden = nil
  end
  b.nodes = {}
  for i = #kept, 1, -1 do b.nodes[#b.nodes + 1] = kept[i] end
end

-- Compiled bodies; a class, because modules treat plain tables differently.
local Body = {}
Body.__index = Body

-- The subgraph in an attribute of a node of graph b.
function compile_body(b, graph, state)
  local body = setmetatable({slots = setmetatable({}, {__index = b.slots}), own = {}, nodes = {},
                              inputs = {}, outputs = {}, captured = {}, declared = {}}, Body)
  take_initializers(body, graph, state)
  for k, info in ipairs(graph.input) do
    local slot = rawget(body.slots, info.name or "") or new_slot(body, info.name or "", state)
    body.inputs[k], state.g.loose[slot] = slot, true
  end
  for _, node in ipairs(graph.node) do take_node(body, node, state) end
  take_outputs(body, graph, state)
  for k, info in ipairs(graph.output) do
    local t = info.type and info.type.tensor_type
    body.declared[k] = {elem_type = t and t.elem_type, dims = dims_of(t)}
  end
  finish(body, state.g)
  body.slots, body.own = nil, nil
  return body
end

local function opset_of(model, refuse)
  for _, import in ipairs(model.opset_import) do
    local domain = import.domain or ""
    if domain == "" or domain == "ai.onnx" then
      local version = import.version or 0
      if version < OLDEST or version > NEWEST then
        refuse(("is of opset %d; %d to %d are supported"):format(version, OLDEST, NEWEST),
          "E_UNSUPPORTED")
      end
      return version
    end
  end
  refuse "is no ONNX model, or has no opset"
end

local function compile(path, model, file, mmap)
  local graph = model.graph
  local function refuse(text, code) file:refuse(text, code) end
  local state = {path = path, file = file, mmap = mmap, refuse = refuse, beside = {}, stops = {},
                  functions = {}, depth = 0,
                  uses = {weights = {}, statistics = {}, states = {}}}
  if not graph then refuse "is no ONNX model: it has no graph" end
  state.opset = opset_of(model, refuse)
  for _, f in ipairs(model.functions) do
    state.functions[key_of {domain = f.domain, op_type = f.name}] = f
  end
  local g = {path = path, opset = state.opset, nslots = 0, slots = {}, own = {}, static = {},
              loose = {}, constants = {}, tensors = {}, inputs = {}, names = {}, places = {},
              nodes = {}, outputs = {}, captured = {}}
  state.g = g
  uses_of(graph.node, state.uses)
  for _, f in ipairs(model.functions) do uses_of(f.node, state.uses) end
  take_initializers(g, graph, state)
  take_inputs(g, graph, state)
  for _, node in ipairs(graph.node) do take_node(g, node, state) end
  take_outputs(g, graph, state)
  finish(g, g)
  g.slots, g.own, g.loose, g.captured = nil, nil, nil, nil
  return g
end

--- Reads and checks a file.
-- @param mmap  share the files' pages
-- @return {path, opset, nodes, inputs, outputs, tensors (future parameters and buffers),
-- constants, static}
function reader.read(path, mmap)
  local file = files.open(path, "onnx.load", "path", mmap)
  if file.size == 0 then file:refuse "is empty" end
  return (compile(path, proto.decode(file, "Model", 0, file.size), file, mmap))
end

return reader
