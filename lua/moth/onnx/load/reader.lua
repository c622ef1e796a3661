--- reader.lua -- an ONNX file as a graph that can be run: read, and checked as a whole.
--
-- Values get numbers (slots) in place of names. A node is static if it follows from shapes and
-- constants alone. Nodes stand in order in a file, each behind those that it reads: one that reads
-- what comes later, as in a cycle, is an error.

local ffi = require "ffi"
local files = require "moth.bytes"
local errors = require "moth.error"
local lib = require "moth.lib"
local proto = require "moth.onnx.proto"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local by_code = require("moth.dtype").by_code
local quoted = errors.shown

local reader = {}

local OLDEST, NEWEST = 9, 23 -- opsets
local MOST_DIMS = 8
local MOST_VALUES = 4000 -- that go into a node, or come out: Lua calls have no more arguments
local F16, F32, F64 = C.MOTH_F16, C.MOTH_F32, C.MOTH_F64

-- ---- tensors ----

-- How many elements a tensor has; its sizes are checked.
local function count_of(t, refuse)
  local count = 1
  if #t.dims > MOST_DIMS then
    refuse(("has the tensor %s of %d dimensions, at most %d are possible"):format(
      quoted(t.name or ""), #t.dims, MOST_DIMS), "E_UNSUPPORTED")
  end
  local empty = false
  for _, size in ipairs(t.dims) do
    empty = empty or size == 0
    count = count * math.max(size, 1)
    if size < 0 or count > 2 ^ 52 then
      refuse(("is broken: the tensor %s has impossible sizes"):format(quoted(t.name or "")))
    end
  end
  return empty and 0 or count
end

-- The file beside the model's that a tensor's entries name, and where in it its bytes begin.
local function external(t, size, state)
  local at, name = {}, quoted(t.name or "")
  for _, entry in ipairs(t.external_data) do at[entry.key or ""] = entry.value end
  local place = at.location or ""
  if place == "" or place:find("^[/\\]") or place:find("%.%.") or place:find("%z") then
    state.refuse(("keeps the tensor %s in %s, which is not beside it"):format(name, quoted(place)))
  end
  state.beside[place] = state.beside[place] or files.open((state.path:match "^(.*/)" or "")
    .. place, "onnx.load", "path", state.mmap)
  local file, offset = state.beside[place], size == 0 and 0 or tonumber(at.offset or "0") or -1
  if not (offset >= 0 and offset % 1 == 0 and offset + size <= file.size) then
    state.refuse(("is broken: %s ends within the tensor %s"):format(quoted(place), name))
  end
  return file, offset
end

-- Integers, and half types as their bits, from the list of their values.
local function packed(list, code, refuse, name)
  if code == F32 or code == F64 then
    refuse(("is broken: the tensor %s has no values"):format(quoted(name)))
  end
  local ctype = proto.ctypes[code]
  local array = lib.array(ctype, math.max(#list, 1))
  for i, x in ipairs(list) do array[i - 1] = x end
  return ffi.string(array, #list * ffi.sizeof(ctype))
end

local function listed(t, code, size, state)
  local text = code == F32 and t.float_data or code == F64 and t.double_data
  if text then return text end
  local list = #t.int64_data > 0 and t.int64_data or #t.uint64_data > 0 and t.uint64_data
    or t.int32_data
  if size == 0 and #list == 0 then return "" end
  return packed(list, code, state.refuse, t.name or "")
end

-- A tensor of a file, over its pages; a copy where another one may have them.
local function within(file, kind, shape, from, size, state)
  local x, stop = file:tensor(kind, shape, from), state.stops[file] or 0
  if from < stop then x = x:clone() end
  state.stops[file] = math.max(stop, from + size)
  return x
end

-- A tensor of the model.
local function tensor(t, state)
  local code, name = proto.dtypes[t.data_type or 0], t.name or ""
  if not code then
    state.refuse(("has the tensor %s of element type %s, which Moth lacks"):format(quoted(name),
      tostring(t.data_type)), "E_UNSUPPORTED")
  end
  local count = count_of(t, state.refuse)
  local size, file, got, from, bytes = count * by_code[code].itemsize, state.file
  if t.data_location == 1 then
    got, file, from = size, external(t, size, state)
  elseif t.raw_data then
    from, got = t.raw_data.offset, t.raw_data.size
  else
    bytes = listed(t, code, size, state)
    got = #bytes
  end
  if got ~= size then
    state.refuse(("is broken: the tensor %s takes %.0f bytes, the file has %.0f"):format(
      quoted(name), size, got))
  end
  if from then return within(file, by_code[code].name, t.dims, from, size, state), code end
  local shape, h = lib.int64s(math.max(#t.dims, 1)), Handle()
  for d, n in ipairs(t.dims) do shape[d - 1] = n end
  lib.check(C.moth_from_bytes(ctx, code, shape, #t.dims, bytes, size, h), "onnx.load")
  return lib.adopt(h, 0), code
end

-- ---- attributes ----

local SPELLED = { int = "i", float = "f", string = "s", tensor = "t", ints = "ints",
                  floats = "floats", strings = "strings" }

-- What a row says of its attributes: name -> {field, default, only} or {field, needed}.
local function parse(text)
  local rows = {}
  for item in text:gsub("^%d+", ""):gmatch "%S+" do
    local name, kind, needed = item:match "^([%w_]+):(%a+)(!?)$"
    if name then
      rows[name] = { field = SPELLED[kind], needed = needed == "!" }
    else
      local value, only
      name, value, only = item:match "^([%w_]+)=(.-)(!?)$"
      local number = tonumber((value:gsub("%.$", "")))
      rows[name] = { field = not number and "s" or value:find "%." and "f" or "i",
                     default = number or value, only = only == "!" }
    end
  end
  return rows
end

local function shown(node)
  return ("node %s (%s)"):format(quoted(node.name), errors.bare(node.op_type))
end

local function attributes_of(node, row, state)
  local refuse = state.refuse
  row.known = row.known or parse(row.attributes)
  local values = { opset = state.opset, noutputs = #node.output }
  for name, known in pairs(row.known) do values[name] = known.default end
  for _, attribute in ipairs(node.attribute) do
    local name = attribute.name or ""
    local known = row.known[name]
    if not known then
      refuse(("has the attribute %s at %s, which Moth does not know"):format(quoted(name),
        shown(node)), "E_UNSUPPORTED")
    end
    local field = known.field
    if attribute.type ~= proto.attribute_types[field] then
      refuse(("is broken: attribute '%s' of %s %s"):format(name, shown(node), attribute.type
        and "is of type " .. tostring(attribute.type) or "has no type"))
    end
    local value = attribute[field]
    if value == nil then value = field == "s" and "" or 0 end -- what is 0 may be left out
    if field == "t" then
      if type(value) ~= "table" then refuse("is broken: no tensor at " .. shown(node)) end
      value = tensor(value, state)
    end
    if known.only and value ~= known.default then
      refuse(("has %s = %s at %s; Moth knows %s alone"):format(name, errors.describe(value),
        shown(node), tostring(known.default)), "E_UNSUPPORTED")
    end
    values[name] = value
  end
  for name, known in pairs(row.known) do
    if known.needed and values[name] == nil then
      refuse(("is broken: %s lacks its attribute '%s'"):format(shown(node), name))
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
    state.refuse(("has %s with %s, which Moth does not know"):format(shown(node),
      a and quoted(a.name or "") or "no value"), "E_UNSUPPORTED")
  end
  local value = a[known.field]
  if value == nil then value = 0 end
  if known.field == "t" then
    if type(value) ~= "table" then state.refuse("is broken: no tensor at " .. shown(node)) end
    return (tensor(value, state))
  end
  local whole = known.field:sub(1, 1) == "i"
  return moth.tensor(value, { dtype = whole and moth.int64 or moth.float32 })
end

-- ---- the graph ----

local function new_slot(g, name, state)
  if g.slots[name] then
    state.refuse("is broken: two values are called " .. quoted(name))
  end
  g.nslots = g.nslots + 1
  g.slots[name] = g.nslots
  return g.nslots
end

local MADE_UP = { "^val_%d+$", "::", "^constant_%d+$", "^held_%d+$" }

-- Is it a name that an exporter gives to what has none in the net?
local function made_up(name)
  for _, pattern in ipairs(MADE_UP) do
    if name:find(pattern) then return true end
  end
end

local STATEFUL = { LSTM = true, GRU = true, RNN = true } -- from operand 6 on initial states

-- Which initializers nodes read otherwise than as lists, as statistics of a norm and as initial
-- states (or parts of these) that are no parameters.
local function uses_of(nodes, rows)
  local weights, statistics, states = {}, {}, {}
  for i = #nodes, 1, -1 do
    local node = nodes[i]
    local op, row = node.op_type, rows[node.op_type]
    for k, name in ipairs(node.input) do
      local state = STATEFUL[op] and k >= 6 or op == "Slice" and k == 1 and states[node.output[1]]
      states[name] = states[name] or state
      if op == "BatchNormalization" and k >= 4 then statistics[name] = true
      elseif not (row and row.lists[k] or state and made_up(name)) then weights[name] = true end
    end
  end
  return weights, statistics
end

local function take_initializers(g, graph, rows, state)
  local weights, statistics = uses_of(graph.node, rows)
  for _, t in ipairs(graph.initializer) do
    local x, code = tensor(t, state)
    local name = t.name or ""
    local slot = new_slot(g, name, state)
    local number = #t.dims == 0 or x:numel() == 1 and made_up(name) or name:find "^zeros_like"
    if code >= F16 and not number and (weights[t.name] or statistics[t.name]) then
      g.tensors[#g.tensors + 1] = { slot = slot, name = t.name, value = x,
                                    buffer = not weights[t.name] }
    else
      C.moth_keep_always(ctx, x)
      g.constants[slot], g.static[slot] = x, true
    end
  end
end

local function take_inputs(g, graph, state)
  for _, info in ipairs(graph.input) do
    local name = info.name or ""
    if not g.slots[name] then -- files before IR version 4 list initializers too
      local t = info.type and info.type.tensor_type
      local code = t and proto.dtypes[t.elem_type or 0]
      if not code then
        state.refuse(("has the input %s, which is no tensor of a type that Moth has"):format(
          quoted(name)), "E_UNSUPPORTED")
      end
      local dims = t.shape and {}
      for d, dim in ipairs(t.shape and t.shape.dim or {}) do
        dims[d] = dim.dim_value or dim.dim_param or "?"
      end
      g.inputs[#g.inputs + 1] = { name = name, slot = new_slot(g, name, state), dims = dims,
                                  dtype = by_code[code] }
      g.names[#g.names + 1] = name
      g.places[name] = #g.inputs
    end
  end
end

local STATIC = { Shape = true, Size = true } -- they follow from shapes, whatever they are given

local function take_node(g, node, rows, state)
  local refuse = state.refuse
  node.name = node.name or node.output[1] or ""
  node.op_type = node.op_type or ""
  local domain = node.domain or ""
  local row = (domain == "" or domain == "ai.onnx") and rows[node.op_type]
  if node.op_type == "Constant" and domain == "" then
    local slot = new_slot(g, node.output[1] or "", state)
    g.constants[slot], g.static[slot] = constant(node, state), true
    C.moth_keep_always(ctx, g.constants[slot])
    return
  elseif not row then
    refuse(("has %s%s, which Moth does not know%s"):format(shown(node),
      domain == "" and "" or " of " .. errors.bare(domain),
      errors.nearest(node.op_type, state.known)), "E_UNSUPPORTED")
  end
  if #node.input > MOST_VALUES or #node.output > MOST_VALUES then
    refuse(("has %s of %d inputs and %d outputs; %d are possible"):format(shown(node), #node.input,
      #node.output, MOST_VALUES), "E_UNSUPPORTED")
  end
  local new = { name = node.name, op = node.op_type, row = row, inputs = {}, outputs = {},
                last = {}, attributes = attributes_of(node, row, state), static = true }
  for k, name in ipairs(node.input) do
    local slot = name == "" and 0 or g.slots[name]
    if not slot then
      refuse(("is broken: %s reads %s, which nothing before it gives"):format(shown(node),
        quoted(name)))
    end
    new.inputs[k] = slot
    new.static = new.static and (slot == 0 or g.static[slot] or false)
  end
  if #new.inputs == 0 then refuse(("is broken: %s reads nothing"):format(shown(node))) end
  for k = 1, row.needs do
    if (new.inputs[k] or 0) == 0 then
      refuse(("is broken: %s lacks its operand %d"):format(shown(node), k))
    end
  end
  new.static = new.static or STATIC[new.op] or false
  for k, name in ipairs(node.output) do
    new.outputs[k] = name == "" and 0 or new_slot(g, name, state)
    if name ~= "" then g.static[new.outputs[k]] = new.static or nil end
  end
  if (new.outputs[1] or 0) == 0 then refuse(("is broken: %s gives nothing"):format(shown(node))) end
  g.nodes[#g.nodes + 1] = new
end

-- Leaves out nodes that no output needs, and notes where each value is read last.
local function finish(g)
  local wanted, kept, seen = {}, {}, {}
  for _, slot in ipairs(g.outputs) do wanted[slot], seen[slot] = true, true end
  for i = #g.nodes, 1, -1 do
    local node, needed = g.nodes[i], false
    for _, slot in ipairs(node.outputs) do needed = needed or wanted[slot] end
    if needed then
      table.insert(kept, node)
      for _, slot in ipairs(node.inputs) do
        if slot ~= 0 and not seen[slot] and not g.static[slot] then
          table.insert(node.last, slot)
        end
        wanted[slot], seen[slot] = true, true
      end
    end
  end
  g.nodes = {}
  for i = #kept, 1, -1 do g.nodes[#g.nodes + 1] = kept[i] end
end

local function opset_of(model, refuse)
  for _, import in ipairs(model.opset_import) do
    local domain = import.domain or ""
    if domain == "" or domain == "ai.onnx" then
      local version = import.version or 0
      if version < OLDEST or version > NEWEST then
        refuse(("is of opset %d; %d to %d are read"):format(version, OLDEST, NEWEST),
          "E_UNSUPPORTED")
      end
      return version
    end
  end
  refuse "is no ONNX model, or lacks its opset"
end

local function compile(path, model, rows, file, mmap)
  local graph = model.graph
  local function refuse(text, code) file:refuse(text, code) end
  local state = { path = path, file = file, mmap = mmap, refuse = refuse, known = {}, beside = {},
                  stops = {} }
  if not graph then refuse "is no ONNX model: it has no graph" end
  state.opset = opset_of(model, refuse)
  if #graph.sparse_initializer > 0 then refuse("has sparse tensors", "E_UNSUPPORTED") end
  for name in pairs(rows) do state.known[#state.known + 1] = name end
  local g = { path = path, opset = state.opset, nslots = 0, slots = {}, static = {}, constants = {},
              tensors = {}, inputs = {}, names = {}, places = {}, nodes = {}, outputs = {} }
  take_initializers(g, graph, rows, state)
  take_inputs(g, graph, state)
  for _, node in ipairs(graph.node) do take_node(g, node, rows, state) end
  for i, info in ipairs(graph.output) do
    g.outputs[i] = g.slots[info.name or ""]
    if not g.outputs[i] then
      refuse("is broken: nothing gives the output " .. quoted(info.name or ""))
    end
  end
  if #g.outputs == 0 then refuse "is broken: it has no output" end
  if #g.outputs > MOST_VALUES then
    refuse(("has %d outputs; %d are possible"):format(#g.outputs, MOST_VALUES), "E_UNSUPPORTED")
  end
  finish(g)
  g.slots = nil
  return g
end

--- Reads and checks a file.
-- @param rows  op -> row, of nodes.lua
-- @param mmap  share the files' pages
-- @return {path, opset, nodes, inputs, outputs, tensors (to be parameters and buffers), constants,
-- static}
function reader.read(path, rows, mmap)
  local file = files.open(path, "onnx.load", "path", mmap)
  if file.size == 0 then file:refuse "is empty" end
  return (compile(path, proto.decode(file, "Model", 0, file.size), rows, file, mmap))
end

return reader
