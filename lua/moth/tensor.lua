--- tensor.lua -- what a tensor is to Lua: operators, fields, methods.
--
-- A tensor is a handle of two numbers; all it can do stands in the metatype that is filled here.
-- x[key] asks by the kind of key: a number selects a row, a table or a tensor indexes (index.lua),
-- a name is a method or a field. Most methods are ops, bound at their first use; here are those
-- that are not: facts about a tensor, its values in Lua, conversion, and its part in a graph.

local ffi = require "ffi"
local autograd = require "moth.autograd"
local bind = require "moth.bind"
local devices = require "moth.device"
local dtypes = require "moth.dtype"
local errors = require "moth.error"
local index = require "moth.index"
local layout = require "moth.layout"
local lib = require "moth.lib"
local size = require "moth.size"

local C, ctx, Handle, ops = lib.C, lib.ctx, lib.Handle, bind.ops
local istensor, take = lib.istensor, autograd.take
local band = bit.band

local M = {}

local BOOL, I8, I64 = C.MOTH_BOOL, C.MOTH_I8, C.MOTH_I64
local FLOATS = C.MOTH_F16 -- the first of the float dtypes
local IS_CONTIGUOUS, IS_LEAF = C.MOTH_IS_CONTIGUOUS, C.MOTH_IS_LEAF
local IS_GRAD, IS_RETAIN = C.MOTH_IS_GRAD, C.MOTH_IS_RETAIN
local IS_CHANNELS_LAST = C.MOTH_IS_CHANNELS_LAST

local methods, getters, setters = {}, layout.getters, {}
M.methods, M.getters, M.setters = methods, getters, setters

local info, seen = ffi.new "moth_tensor_info", 0

-- For methods written here: x stood before a ':'.
local function own(x, fname)
  if not istensor(x) then errors.no_self(fname, "x") end
end

-- The facts about x, in a struct that the next call overwrites.
local function facts(x, fname)
  own(x, fname)
  seen = seen + 1
  if C.moth_inspect(ctx, x, info) < 0 then errors.status(C.MOTH_E_STATE, fname, nil, x) end
  return info
end

-- What read(facts) makes of several of them. Since it may allocate, a finalizer may ask for the
-- facts of another tensor meanwhile; then it is read again.
local function several(x, fname, read)
  local result, mine
  repeat
    local t = facts(x, fname)
    mine = seen
    result = read(t)
  until seen == mine
  return result
end

local function checked(status, fname, x)
  if status < 0 then errors.status(status, fname, nil, x) end
end

-- ---- facts ----

local function read_sizes(t)
  local sizes = {}
  for d = 1, t.ndim do sizes[d] = tonumber(t.shape[d - 1]) end
  return sizes
end

local function read_strides(t)
  local list = {}
  for d = 1, t.ndim do list[d] = tonumber(t.stride[d - 1]) end
  return list
end

local function read_bytes(t) return tonumber(t.numel) * tonumber(t.itemsize) end

local function sizes_of(x, fname) return several(x, fname, read_sizes) end

-- A user's dim, 1-based or negative, as 0-based.
local function checked_dim(fname, dim, ndim)
  if type(dim) ~= "number" or dim % 1 ~= 0 then
    errors.argument(fname, "dim", "a whole number is needed, got " .. errors.describe(dim))
  end
  local d = dim < 0 and ndim + dim or dim - 1
  if d < 0 or d >= ndim or dim == 0 then
    errors.argument(fname, "dim", dim .. " is out of range for " .. ndim
      .. (ndim == 1 and " dimension" or " dimensions"), "E_INDEX")
  end
  return d
end

function getters.shape(x) return size.wrap(sizes_of(x, "shape")) end
function getters.ndim(x) return facts(x, "ndim").ndim end
function getters.dtype(x) return dtypes.by_code[facts(x, "dtype").dtype] end
function getters.device(x) return devices.by_code[facts(x, "device").device] end
function getters.is_cuda(x) return facts(x, "is_cuda").device ~= 0 end
function getters.itemsize(x) return tonumber(facts(x, "itemsize").itemsize) end
function getters._version(x) return tonumber(facts(x, "_version").version) end

function getters.nbytes(x) return several(x, "nbytes", read_bytes) end

-- size and stride are called often: named arguments and mistakes take the long way.
local function parser(fname)
  local parse
  return function(...)
    parse = parse or require "moth.define".signature(fname, { { "tensor", "input", "tensor" },
      { "dim", "dim", "the dimension; all of them when absent", optional = true } })
    local _, dim = parse(...)
    return dim
  end
end
local parse_size, parse_stride = parser "size", parser "stride"

--- x:size() is the moth.Size of x, x:size(dim) one number.
function methods.size(x, dim, more)
  own(x, "size")
  if type(dim) == "table" or type(more) ~= "nil" then dim = parse_size(x, dim, more) end
  if dim == nil then return size.wrap(sizes_of(x, "size")) end
  local t = facts(x, "size")
  return tonumber(t.shape[checked_dim("size", dim, t.ndim)])
end

--- x:stride() is a list, x:stride(dim) one number: elements from one position to the next.
function methods.stride(x, dim, more)
  own(x, "stride")
  if type(dim) == "table" or type(more) ~= "nil" then dim = parse_stride(x, dim, more) end
  if dim == nil then return several(x, "stride", read_strides) end
  local t = facts(x, "stride")
  return tonumber(t.stride[checked_dim("stride", dim, t.ndim)])
end

--- The number of dimensions.
function methods.dim(x) return facts(x, "dim").ndim end
methods.ndimension = methods.dim

--- The number of elements.
function methods.numel(x) return tonumber(facts(x, "numel").numel) end
methods.nelement = methods.numel

--- Elements of the storage before the first of x.
function methods.storage_offset(x) return tonumber(facts(x, "storage_offset").offset) end

--- Bytes of one element.
function methods.element_size(x) return tonumber(facts(x, "element_size").itemsize) end

--- The address of the first element as a number, for comparing; nothing can be read through it.
function methods.data_ptr(x)
  local t = facts(x, "data_ptr")
  local h = x
  if band(t.flags, IS_CONTIGUOUS) == 0 then -- the address of the first element alone
    h = methods.detach(x)
    while facts(h, "data_ptr").ndim > 0 do h = ops.select(h, 1, 1) end
  end
  local address = C.moth_data(ctx, h)
  return tonumber(ffi.cast("intptr_t", address))
end

--- Whether the elements lie in row-major order without gaps; or in that of another memory_format.
function methods.is_contiguous(x, memory_format)
  local found = facts(x, "is_contiguous")
  local flag = layout.read("is_contiguous", memory_format, true) == "channels_last"
    and IS_CHANNELS_LAST or IS_CONTIGUOUS
  return band(found.flags, flag) ~= 0
end

--- Whether the dtype is one of the float dtypes.
function methods.is_floating_point(x) return facts(x, "is_floating_point").dtype >= FLOATS end

--- Whether the dtype has negative numbers.
function methods.is_signed(x) return facts(x, "is_signed").dtype >= I8 end

--- Whether x and other are the same part of the same storage.
function methods.is_set_to(x, other)
  own(x, "is_set_to")
  if not istensor(other) then
    errors.argument("is_set_to", "other", "a tensor is needed, got " .. errors.describe(other))
  end
  local a = ffi.new "moth_tensor_info"
  checked(C.moth_inspect(ctx, x, a), "is_set_to", x)
  local b = facts(other, "is_set_to")
  if a.storage ~= b.storage or a.offset ~= b.offset or a.ndim ~= b.ndim then return false end
  for d = 0, a.ndim - 1 do
    if a.shape[d] ~= b.shape[d] or a.stride[d] ~= b.stride[d] then return false end
  end
  return true
end

-- ---- values in Lua ----

-- One value that moth_read gave.
local function value_of(slot, dtype)
  if dtype >= FLOATS then return slot.number end
  if dtype == BOOL then return slot.integer ~= 0 end
  if dtype < I64 then return tonumber(slot.integer) end
  local v = slot.integer
  local n = tonumber(v)
  if ffi.cast("int64_t", n) == v then return n end
  return v
end

local slot1 = ffi.new "moth_slot[1]"

--- The value of a tensor with one element: a number, a boolean for bool, an int64 cdata where a
-- number would lose bits. Raises for any other number of elements.
function methods.item(x)
  local t = facts(x, "item")
  if t.numel ~= 1 then
    if t.numel > 0 then checked(C.moth_read(ctx, x, 0, 1, slot1), "item", x) end -- may it be read?
    errors.raise("item: only a tensor with one element has an item, got " .. errors.describe(x),
      "E_SHAPE")
  end
  local dtype = t.dtype
  checked(C.moth_read(ctx, x, 0, 1, slot1), "item", x)
  return value_of(slot1[0], dtype)
end

local BLOCK = 4096

--- The values as nested plain tables of numbers or booleans (int64 cdata where a number would lose
-- bits); of a 0-d tensor the value itself.
function methods.tolist(x)
  local sizes = sizes_of(x, "tolist")
  local ndim, dtype, total = #sizes, facts(x, "tolist").dtype, 1
  for d = 1, ndim do total = total * sizes[d] end
  if ndim == 0 then return methods.item(x) end
  local buffer = lib.slots(math.min(total, BLOCK) + 1)
  local first, filled, at = 0, 0, 0
  local function next_value()
    if at == filled then
      first = first + filled
      filled, at = math.min(BLOCK, total - first), 0
      checked(C.moth_read(ctx, x, first, filled, buffer), "tolist", x)
    end
    at = at + 1
    return value_of(buffer[at - 1], dtype)
  end
  local function build(d)
    local list = {}
    for i = 1, sizes[d] do
      if d == ndim then list[i] = next_value() else list[i] = build(d + 1) end
    end
    return list
  end
  return build(1)
end

-- ---- conversion ----

-- x with another dtype and on another device, by the engine's numbers, and with another memory
-- format; nil: as it is.
local function cast(x, dtype, copy, device, non_blocking, format)
  local found = facts(x, "to")
  local moves, turns = device and device ~= found.device, dtype and dtype ~= found.dtype
  if format == "channels_last" and found.ndim ~= 4 then
    errors.argument("to", "memory_format", "channels_last is for (N, C, H, W), got "
      .. tostring(x.shape), "E_SHAPE")
  end
  if copy and not moves and not turns then return ops.clone(x, format or "preserve_format") end
  if turns then x = ops.cast(x, dtypes.by_code[dtype]) end
  if moves then x = ops.to_device(x, devices.by_code[device], non_blocking) end
  if format and format ~= "preserve_format" then return (ops.contiguous(x, format)) end
  return x
end

local codes = dtypes.codes

-- The engine's number of the device that a value names; nil for none.
local function number_of(value)
  if value == lib.none then return nil end
  local code = devices.codes[value]
  if code then return code - 1 end
  local known = dtypes.by_name[value]
  if known then errors.argument("to", "dtype", "write " .. tostring(known), "E_TYPE") end
  if type(value) == "string" or devices.is(value) then
    errors.argument("to", "device", devices.missing(value), "E_DEVICE")
  end
  errors.argument("to", "dtype", "a dtype, a device or a tensor is needed, got "
    .. errors.describe(value), "E_TYPE")
end

local to_names = { "dtype", "device", "other", "copy", "non_blocking", "memory_format" }

local function boolean_of(name, value)
  if value == lib.none then return false end
  if type(value) == "boolean" then return value end
  errors.argument("to", name, "a boolean is needed, got " .. errors.describe(value), "E_TYPE")
end

--- x:to(dtype), x:to(device), x:to(device, dtype), x:to(other), x:to{dtype =, device =, copy =}:
-- x with another dtype or on another device; x itself if that changes nothing and copy is not set.
-- After these may stand non_blocking and copy, both false when absent.
-- With non_blocking = true a copy of pinned memory to a GPU is not waited for: leave x as it is
-- until the stream has come that far. memory_format says how the result lies.
function methods.to(x, ...)
  local dtype, copy, device, non_blocking, format
  for i = 1, select("#", ...) do
    local value = (select(i, ...))
    if istensor(value) then
      local found = facts(value, "to")
      dtype, device = found.dtype, found.device
    elseif codes[value] then
      dtype = codes[value]
    elseif type(value) == "table" and getmetatable(value) == nil then
      for name, given in pairs(value) do
        if name == "dtype" or name == 1 and codes[given] then
          dtype = codes[given]
          if not dtype and given ~= lib.none then
            errors.argument("to", "dtype", "a dtype is needed, got " .. errors.describe(given))
          end
        elseif name == "device" or name == 1 then device = number_of(given)
        elseif name == "other" and istensor(given) then
          local found = facts(given, "to")
          dtype, device = found.dtype, found.device
        elseif name == "copy" then copy = boolean_of(name, given)
        elseif name == "non_blocking" then non_blocking = boolean_of(name, given)
        elseif name == "memory_format" then format = layout.read("to", given)
        else
          errors.raise("'to' has no argument '" .. tostring(name) .. "'"
            .. errors.nearest(tostring(name), to_names))
        end
      end
    elseif type(value) == "boolean" then
      if non_blocking == nil then non_blocking = value
      elseif copy == nil then copy = value
      else errors.argument("to", "copy", "given twice") end
    else
      device = number_of(value)
    end
  end
  return cast(x, dtype, copy, device, non_blocking or false, format)
end

--- A copy of x in pinned memory, page-locked memory of the CPU, from which a GPU copies while the
-- CPU goes on: x:pin_memory():to("cuda", {non_blocking = true}). x itself if it lies there; without
-- history. Needs a GPU.
function methods.pin_memory(x)
  own(x, "pin_memory")
  local h = lib.Handle()
  local status = C.moth_pin_memory(ctx, x, h)
  if lib.recover(status) then status = C.moth_pin_memory(ctx, x, h) end
  if status < 0 then errors.status(status, "pin_memory", nil, x) end
  return lib.adopt(h, status)
end

--- Whether x lies in pinned memory.
function methods.is_pinned(x)
  own(x, "is_pinned")
  local status = C.moth_is_pinned(ctx, x)
  if status < 0 then errors.status(status, "is_pinned", nil, x) end
  return status == 1
end

--- Does nothing: memory that another stream reads is safe without being told. For scripts from
-- PyTorch.
function methods.record_stream(x) own(x, "record_stream") end

local shorthands = { bool = 0, byte = 1, char = 2, short = 3, int = 4, long = 5, half = 6,
                     bfloat16 = 7, float = 8, double = 9 }
for name, dtype in pairs(shorthands) do
  methods[name] = function(x)
    own(x, name)
    return cast(x, dtype)
  end
end

--- x:type() is the name of x's dtype, x:type(dtype) converts.
function methods.type(x, dtype)
  own(x, "type")
  if dtype == nil then return tostring(getters.dtype(x)) end
  return methods.to(x, dtype)
end

--- x with the dtype of other.
function methods.type_as(x, other)
  own(x, "type_as")
  if not istensor(other) then
    errors.argument("type_as", "other", "a tensor is needed, got " .. errors.describe(other))
  end
  return cast(x, facts(other, "type_as").dtype)
end

--- x in main memory: x itself if it lies there.
function methods.cpu(x)
  facts(x, "cpu")
  return cast(x, nil, false, 0)
end

--- x on a GPU.
-- @param which  a device, its name or its index; cuda:0 when absent
-- @param names  {non_blocking = true}, as x:to takes it
function methods.cuda(x, which, names)
  own(x, "cuda")
  if type(which) == "table" and getmetatable(which) == nil then which, names = nil, which end
  return methods.to(x, type(which) == "number" and "cuda:" .. which or which or "cuda", names or {})
end

-- ---- the graph ----

function getters.requires_grad(x) return band(facts(x, "requires_grad").flags, IS_GRAD) ~= 0 end
function getters.is_leaf(x) return band(facts(x, "is_leaf").flags, IS_LEAF) ~= 0 end
function getters.retains_grad(x) return band(facts(x, "retains_grad").flags, IS_RETAIN) ~= 0 end
function getters.grad_fn(x)
  facts(x, "grad_fn")
  return autograd.grad_fn(x)
end

-- Refuses `x.field = v` with what the engine says of it.
local function assigned(status, field, x)
  if status >= 0 then return end
  if C.moth_alive(ctx, x) == 0 then errors.status(status, field, nil, x) end
  errors.raise("x." .. field .. " cannot be assigned: " .. ffi.string(C.moth_error(ctx, 1)),
    ffi.string(C.moth_error_name(status)))
end

function getters.grad(x)
  local h = Handle()
  return take(h, C.moth_get_grad(ctx, x, h), "grad", x)
end

function setters.grad(x, value)
  if value == nil or value == lib.none then
    assigned(C.moth_set_grad(ctx, x, lib.NONE), "grad", x)
  elseif istensor(value) then
    assigned(C.moth_set_grad(ctx, x, value), "grad", x)
  else
    errors.raise("x.grad takes a tensor or nil, got " .. errors.describe(value), "E_TYPE")
  end
end

function getters.data(x)
  local h = Handle()
  return take(h, C.moth_get_data(ctx, x, h), "data", x)
end

function setters.data(x, value)
  if not istensor(value) then
    errors.raise("x.data takes a tensor, got " .. errors.describe(value), "E_TYPE")
  end
  assigned(C.moth_set_data(ctx, x, value), "data", x)
end

function setters.requires_grad(x, value)
  if type(value) ~= "boolean" then
    errors.raise("x.requires_grad takes a boolean, got " .. errors.describe(value), "E_TYPE")
  end
  assigned(C.moth_requires_grad(ctx, x, value and 1 or 0), "requires_grad", x)
end

methods.backward = autograd.tensor_backward
methods.register_hook = autograd.register_hook

--- x without its history, sharing the elements and their version counter.
function methods.detach(x)
  own(x, "detach")
  local h = Handle()
  return take(h, C.moth_detach(ctx, x, h), "detach", x)
end

--- Cuts x off its history. @return x
function methods.detach_(x)
  own(x, "detach_")
  checked(C.moth_detach_(ctx, x), "detach_", x)
  return x
end

local parse_requires

--- Sets whether gradients for x are gathered (default true). @return x
function methods.requires_grad_(x, on, ...)
  own(x, "requires_grad_")
  if on == nil then
    on = true
  elseif type(on) ~= "boolean" or select("#", ...) > 0 then
    parse_requires = parse_requires or require "moth.define".signature("requires_grad_", {
      { "tensor", "input", "tensor" },
      { "bool", "requires_grad", "gather gradients for it?", default = true } })
    on = select(2, parse_requires(x, on, ...))
  end
  checked(C.moth_requires_grad(ctx, x, on and 1 or 0), "requires_grad_", x)
  return x
end

--- Lets x.grad be gathered although x is no leaf.
function methods.retain_grad(x)
  own(x, "retain_grad")
  checked(C.moth_retain_grad(ctx, x), "retain_grad", x)
end

--- Gives the tensor back now; using it after that is an error.
function methods.free(x)
  own(x, "free")
  checked(C.moth_free(ctx, x), "free", x)
end

-- ---- transposes ----

function getters.T(x)
  local ndim = facts(x, "T").ndim
  local dims = {}
  for d = 1, ndim do dims[d] = ndim - d + 1 end
  return ops.permute(x, dims)
end

function getters.mT(x)
  if facts(x, "mT").ndim < 2 then
    errors.raise("mT needs at least two dimensions, got " .. errors.describe(x), "E_SHAPE")
  end
  return ops.transpose(x, -2, -1)
end

-- ---- x[key] ----

local function names(of_methods) -- without short and int, which are near to too much
  local list = {}
  for name in pairs(methods) do
    if not shorthands[name] then list[#list + 1] = name end
  end
  for name in pairs(of_methods and {} or getters) do list[#list + 1] = name end
  for _, name in ipairs(bind.method_names()) do list[#list + 1] = name end
  return list
end

--- The names of a tensor's methods and, unless only those are wanted, of its fields.
M.names = names

-- An op's method, bound at its first use; or the error that names the nearest.
local function method(name, x)
  local f = bind.method(name)
  if f == nil then
    errors.raise("a tensor has no field or method '" .. name .. "'"
      .. errors.nearest(name, names())
      .. errors.dotted(function(v) return istensor(v) and v._slot == x._slot end))
  end
  methods[name] = f
  return f
end

local function get_other(x, key)
  if type(key) == "table" then return index.get(x, key) end
  if istensor(key) then
    local y = index.get_tensor(x, key)
    return y
  end
  errors.raise("a tensor is indexed by a position, a table, a mask or an integer tensor, got "
    .. errors.describe(key), "E_TYPE")
end

local function get(x, key)
  if type(key) == "string" then
    local f = methods[key]
    if f ~= nil then return f end
    local getter = getters[key]
    if getter then return getter(x) end
    return method(key, x)
  end
  if type(key) == "number" then return ops.select(x, 1, key) end
  return get_other(x, key)
end

local function set(x, key, value)
  if type(key) == "number" then
    index.set_position(x, key, value)
  elseif type(key) == "table" then
    index.set(x, key, value)
  elseif istensor(key) then
    index.set_tensor(x, key, value)
  elseif setters[key] then
    setters[key](x, value)
  elseif getters[key] or methods[key] then
    errors.raise("'" .. key .. "' of a tensor cannot be assigned")
  else
    local list = {}
    for name in pairs(setters) do list[#list + 1] = name end
    errors.raise("a tensor has no field '" .. tostring(key) .. "' to assign"
      .. errors.nearest(tostring(key), list))
  end
end

-- ---- operators ----

M.metatable = {
  __index = get,
  __newindex = set,
  __len = function(x)
    local t = facts(x, "#")
    if t.ndim == 0 then errors.raise("a 0-d tensor has no length", "E_SHAPE") end
    return tonumber(t.shape[0])
  end,
  __tostring = function(x) return (require "moth.print".tostring(x)) end,
}

for name, fn in pairs(require "moth.operators") do M.metatable[name] = fn end
lib.metatype(M.metatable)

return M
