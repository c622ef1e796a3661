--- parameter.lua -- nn.Parameter and nn.Buffer: tensors that a module registers when they are
-- assigned to a field.
--
-- A tensor is a bare handle without fields. So a weak table, with the handle as the key, marks the
-- Parameters. A module's store holds the handle, so that the mark lives long enough.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local parameter = {}

--- Uninitialized tensors (uninitialized.lua) -> their owner's name, or false.
parameter.waiting = setmetatable({}, {__mode = "k"})

--- The classes of uninitialized.lua -> the kind of their tensors.
parameter.uninitialized = {}

local marks = setmetatable({}, {__mode = "k"}) -- tensor -> "parameter", "buffer" or "transient"

local function own(kind, fname, data, requires_grad)
  local moth = require "moth"
  if data == nil then data = moth.empty(0) end
  local x = data:detach()
  if requires_grad then lib.check(lib.C.moth_requires_grad(lib.ctx, x, 1), fname, x) end
  marks[x] = kind
  return x
end

local parse_parameter = define.signature("Parameter", {
  {"tensor", "data", "the values; the Parameter shares their storage", optional = true},
  {"bool", "requires_grad", "does it require a gradient?", default = true},
})

-- Raises for Parameter{1, 2}: as in PyTorch, only tensors are accepted.
local function refuse_numbers(data)
  if getmetatable(data) ~= nil then return end
  local first = data[1]
  if lib.is_plain(first) then first = first[1] end
  if type(first) == "number" then
    errors.argument("Parameter", "data", "a tensor is needed, got a table; write moth.tensor{"
      .. (type(data[1]) == "table" and "..." or errors.describe(data):gsub("[{}]", "")) .. "}",
      "E_TYPE")
  end
end

local parse_buffer = define.signature("Buffer", {
  {"tensor", "data", "the values; the buffer shares their storage", optional = true},
  {"bool", "persistent", "is it part of the state_dict?", default = true},
})

--- A tensor that becomes one of a module's parameters when it is assigned to a field.
-- `nn.Parameter(data, requires_grad = true)`: data is a tensor (default: empty) of any float dtype,
-- or of any dtype without requires_grad. The result is a leaf that shares data's storage.
parameter.Parameter = setmetatable({signature = parse_parameter}, {
  __call = function(_, ...)
    if type((...)) == "table" then refuse_numbers(...) end
    local data, requires_grad = parse_parameter(...)
    return own("parameter", "Parameter", data, requires_grad)
  end,
  __tostring = function() return "class Parameter" end,
})

--- A tensor that is part of a module's state but not trained, as a running mean. `nn.Buffer(data,
-- persistent = true)`: a state_dict omits buffers that are not persistent.
parameter.Buffer = setmetatable({signature = parse_buffer}, {
  __call = function(_, ...)
    local data, persistent = parse_buffer(...)
    return own(persistent and "buffer" or "transient", "Buffer", data,
      data ~= nil and data.requires_grad)
  end,
  __tostring = function() return "class Buffer" end,
})

--- Returns "parameter", "buffer", "transient" (a buffer that is not in the state_dict), or nil for
-- other values.
function parameter.kind(x)
  return marks[x]
end

--- Marks an existing tensor; nn.Module's register_* methods and load_state_dict use it.
function parameter.mark(x, kind)
  marks[x] = kind
  return x
end

--- Keeps a tensor alive after all scopes end; also tensors in plain tables.
-- @param value  the value assigned to a module's field
-- @param depth  the maximal depth of nested tables (default 4)
function parameter.keep(value, depth)
  depth = depth or 4
  if lib.istensor(value) then
    lib.check(lib.C.moth_keep_always(lib.ctx, value), "keep", value)
  elseif type(value) == "table" and depth > 0 and getmetatable(value) == nil then
    for _, inner in pairs(value) do
      local kind = type(inner)
      if kind == "cdata" or kind == "table" then parameter.keep(inner, depth - 1) end
    end
  end
end

--- Returns true if x is an instance of a class or of its subclass; Parameter and Buffer count as
-- classes. `nn.isinstance(net.fc, nn.Linear)`, `nn.isinstance(net.fc.weight, nn.Parameter)`
function parameter.isinstance(x, wanted)
  if wanted == parameter.Parameter then return marks[x] == "parameter" end
  if wanted == parameter.Buffer then
    return marks[x] == "buffer" or marks[x] == "transient"
  end
  if parameter.uninitialized[wanted] then
    return parameter.waiting[x] ~= nil
      and (marks[x] == "parameter") == (parameter.uninitialized[wanted] == "parameter")
  end
  if not class.isclass(wanted) then
    errors.raise("bad argument 'class' to 'isinstance' (a class is needed, got " ..
      errors.describe(wanted) .. ")")
  end
  return class.isinstance(x, wanted)
end

--- The name of a module's class, as "Conv2d"; for a tensor "Parameter", "UninitializedParameter",
-- "Buffer", "UninitializedBuffer" or "Tensor"; for other values Lua's type.
function parameter.typename(x)
  local name = class.typename(x)
  if name then return name end
  if marks[x] then
    return (parameter.waiting[x] ~= nil and "Uninitialized" or "")
      .. (marks[x] == "parameter" and "Parameter" or "Buffer")
  end
  if lib.istensor(x) then return "Tensor" end
  return type(x)
end

return parameter
