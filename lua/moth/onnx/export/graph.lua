--- graph.lua -- builds an ONNX graph: nodes, constants, and sizes that depend on a dynamic axis.
--
--     g:Add(x, 1)                               adds a node; returns the name of its output
--     g:Softmax(x, { axis = 1 })                attributes: a plain table, the last argument
--     local a, b = g:Split(x, g:ints { 2, 3 }, { axis = 0, outputs = 2 })
--
-- An operand is a value (a tensor of the net), the name of a node's output, a number (a constant
-- in the dtype g.dtype), or false for an absent optional operand.

local ffi = require "ffi"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local proto = require "moth.onnx.proto"

local C = lib.C
local F32, KINDS = C.MOTH_F32, proto.attribute_types

local Graph = {}
local methods = {}

--- A tensor of the net: {handle, dtype, shapes = one for each run, node = its call, or name}.
local Value = {}
Graph.Value = Value

function Graph.is_value(x) return getmetatable(x) == Value end

--- Returns a FLOAT attribute: a plain integer would become an INT.
function Graph.float(x) return {f = x} end

function Graph.new(opset, readings)
  return setmetatable({opset = opset, readings = readings, nodes = {}, initializers = {},
    constants = {}, counts = {}, sizes = {}, path = "", dtype = F32}, Graph)
end

-- ---- nodes ----

local function attribute(name, x)
  local record
  if type(x) == "number" then record = {i = x, type = KINDS.i}
  elseif type(x) == "boolean" then record = {i = x and 1 or 0, type = KINDS.i}
  elseif type(x) == "string" then record = {s = x, type = KINDS.s}
  elseif x.f then record = {f = x.f, type = KINDS.f}
  elseif type(x[1]) == "string" then record = {strings = x, type = KINDS.strings}
  else record = {ints = x, type = KINDS.ints} end
  record.name = name
  return record
end

local function attributes_of(given)
  local names, list = {}, {}
  for name in pairs(given) do
    if name ~= "outputs" then names[#names + 1] = name end
  end
  table.sort(names)
  for i, name in ipairs(names) do list[i] = attribute(name, given[name]) end
  return list
end

-- Returns a name that no node has yet.
local function fresh(g, op)
  local n = g.counts[op] or 0
  g.counts[op] = n + 1
  return ("%s/%s%s"):format(g.path, op, n > 0 and "_" .. n or "")
end

local function node(g, op, ...)
  local operands, given = lib.pack(...), {}
  local last = operands[operands.n]
  if type(last) == "table" and not Graph.is_value(last) then
    given, operands.n = last, operands.n - 1
  end
  local inputs, outputs, name = {}, {}, fresh(g, op)
  for i = 1, operands.n do inputs[i] = g:name(operands[i]) end
  while inputs[#inputs] == "" do inputs[#inputs] = nil end
  for i = 1, given.outputs or 1 do outputs[i] = ("%s_output_%d"):format(name, i - 1) end
  g.nodes[#g.nodes + 1] = {name = name, op_type = op, input = inputs, output = outputs,
                            attribute = attributes_of(given)}
  return unpack(outputs)
end

local makers = {} -- one function for each type of node

function Graph.__index(_, key)
  local found = methods[key]
  if found or type(key) ~= "string" or not key:find "^%u" then return found end
  makers[key] = makers[key] or function(g, ...) return node(g, key, ...) end
  return makers[key]
end

-- ---- constants ----

local function put(g, name, shape, dtype, bytes)
  g.initializers[#g.initializers + 1] = {name = name, dims = shape,
    data_type = proto.types[dtype], raw_data = bytes}
  return name
end

--- Returns the name of a constant: a list of numbers with the given shape, or a number without a
-- shape.
function methods:constant(numbers, dtype, shape)
  local list = type(numbers) == "table" and numbers or {numbers}
  if dtype == C.MOTH_F16 or dtype == C.MOTH_BF16 then -- written in a wider dtype, then cast
    local wide = self:constant(numbers, F32, shape)
    return self:Cast(wide, {to = proto.types[dtype]})
  end
  local ctype = proto.ctypes[dtype]
  local array = lib.array(ctype, math.max(#list, 1))
  for i, x in ipairs(list) do
    array[i - 1] = type(x) == "boolean" and (x and 1 or 0) or x
  end
  local bytes = ffi.string(array, #list * ffi.sizeof(ctype))
  shape = shape or type(numbers) == "table" and {#list} or {}
  local key = dtype .. ":" .. table.concat(shape, ",") .. ":" .. bytes
  if not self.constants[key] then
    self.nconstants = (self.nconstants or 0) + 1
    self.constants[key] = put(self, "constant_" .. self.nconstants, shape, dtype, bytes)
  end
  return self.constants[key]
end

--- Returns the name of a constant vector of integers.
function methods:ints(list) return self:constant(list, C.MOTH_I64) end

-- Converts positions in a constant: in memory they count from 1, in a file from 0. Values below 1
-- are unchanged (-100 is a common ignore_index).
local function from_zero(x)
  local call = x.node
  local source = call and call.given.input
  if not source or not (call.name == "count_from_one" or call.name:find "^positions") then
    return x.handle
  end
  local moth = require "moth"
  return moth.no_grad(function()
    local list = source.handle:long()
    return moth.where(list:lt(1), list, list - 1)
  end)
end

--- Returns the name of an operand, as an input of a node.
function methods:name(x)
  if x == nil or x == false then return "" end
  if type(x) == "string" then return x end
  if type(x) == "number" then return self:constant(x, self.dtype) end
  if x.name then return x.name end
  self.nheld = (self.nheld or 0) + 1
  x.name = x.state or "held_" .. self.nheld
  put(self, x.name, x.shapes[1], x.dtype, from_zero(x))
  return x.name
end

--- Casts an operand to another dtype.
function methods:cast(x, dtype)
  if not Graph.is_value(x) or x.dtype == dtype then return x end
  if not x.dynamic and not x.state then
    local moth = require "moth"
    local code = require("moth.tensor.dtype").by_code[dtype]
    local y = moth.no_grad(function() return x.handle:to(code) end)
    return setmetatable({handle = y, dtype = dtype, shapes = x.shapes}, Value)
  end
  return self:Cast(x, {to = proto.types[dtype]})
end

-- ---- sizes ----

-- Returns k and rest with n[i] = k * axis[i] + rest for all runs i, or nil.
local function along(n, axis, r)
  local k = (n[2] - n[1]) / (axis[2] - axis[1])
  local rest = n[1] - k * axis[1]
  for i = 1, r do
    if k * axis[i] + rest ~= n[i] then return nil end
  end
  return k, rest
end

-- Returns the dynamic axes of the inputs, and products of two of them.
local function axes_of(g)
  local list, r = {}, g.readings
  for _, axis in ipairs(g.axes or {}) do list[#list + 1] = {axis, sizes = axis.sizes} end
  for i, a in ipairs(g.axes or {}) do
    for k = i, #g.axes do
      local b, sizes = g.axes[k], {}
      for n = 1, r do sizes[n] = a.sizes[n] * b.sizes[n] end
      list[#list + 1] = {a, b, sizes = sizes}
    end
  end
  return list
end

-- Returns the size of an axis of an input, as a list of one element.
local function axis_size(g, axis)
  local name = axis.input.name .. ":" .. axis.dim
  g.sizes[name] = g.sizes[name] or g:Gather(g:Shape(axis.input), g:ints {axis.dim}, {axis = 0})
  return g.sizes[name]
end

-- Returns an integer computed from the sizes of inputs, as a list of one element; nil if it is
-- neither a multiple of an axis plus a constant nor a product of two axes.
local function expression(g, n)
  for _, axes in ipairs(axes_of(g)) do
    local k, rest = along(n, axes.sizes, g.readings)
    if k then
      local y = axis_size(g, axes[1])
      if axes[2] then y = g:Mul(y, axis_size(g, axes[2])) end
      local whole, part = k, 1
      while whole ~= math.floor(whole) and part < 64 do part, whole = part + 1, k * (part + 1) end
      if whole ~= math.floor(whole) or rest ~= math.floor(rest) then return nil end
      if whole ~= 1 then y = g:Mul(y, g:ints {whole}) end
      if part ~= 1 then y = g:Div(y, g:ints {part}) end
      if rest ~= 0 then y = g:Add(y, g:ints {rest}) end
      return y
    end
  end
end

local function same(n, r)
  for i = 2, r do
    if n[i] ~= n[1] then return false end
  end
  return true
end

--- Returns true if sizes differ between the runs.
function methods:varies(lists)
  for d = 1, math.max(#lists[1], #lists[self.readings]) do
    for i = 2, self.readings do
      if lists[i][d] ~= lists[1][d] then return true end
    end
  end
  return false
end

--- Returns integers as an operand.
-- @param lists  one list for each run
-- @param what   a noun for the integers, for the error if the inputs' sizes do not determine them
function methods:sizes_of(lists, what)
  if not self:varies(lists) then return self:ints(lists[1]) end
  local parts = {}
  for d = 1, #lists[1] do
    local n = {}
    for i = 1, self.readings do n[i] = lists[i][d] end
    parts[d] = same(n, self.readings) and self:ints {n[1]} or expression(self, n)
      or self:refuse(("%s is %.6g, %.6g and %.6g for different sizes of the dynamic axes; it must "
        .. "be linear in one of them or a product of two"):format(what, n[1], n[2], n[3]))
  end
  if #parts == 1 then return parts[1] end
  parts[#parts + 1] = {axis = 0}
  return self:Concat(unpack(parts))
end

--- Reshapes x to the shape of a result: sizes equal to the size of x at the same position are
-- copied (0), and one remaining size is inferred (-1).
function methods:reshape(x, result)
  local target, unknown, from = {}, 0, Graph.is_value(x) and x.shapes or {}
  for d = 1, #result.shapes[1] do
    local n, old = {}, {}
    for i = 1, self.readings do
      n[i], old[i] = result.shapes[i][d], from[i] and from[i][d]
    end
    target[d] = n[1]
    if not same(n, self.readings) then
      local copied = true
      for i = 1, self.readings do copied = copied and n[i] == old[i] end
      target[d] = copied and 0 or -1
      unknown = unknown + (copied and 0 or 1)
    elseif n[1] == 0 then
      return self:Reshape(x, self:sizes_of(result.shapes, "a size"), {allowzero = 1})
    end
  end
  if unknown > 1 then return self:Reshape(x, self:sizes_of(result.shapes, "a size")) end
  return self:Reshape(x, self:ints(target))
end

--- Raises an error: the current call has no ONNX form.
function methods:refuse(why)
  local path = self.call.path == "" and "net" or "net." .. self.call.path
  path = path:gsub("%.(%d+)", function(i) return "[" .. i + 1 .. "]" end)
  errors.raise(("onnx.export: '%s' in %s cannot be written: %s"):format(self.call.name, path, why),
    "E_UNSUPPORTED")
end

return Graph
