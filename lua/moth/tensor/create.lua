--- create.lua -- tensors from Lua values: moth.tensor, as_tensor, frombuffer.
--
--   moth.tensor{{1, 2}, {3, 4}}               f32 (2, 2)
--   moth.tensor({1, 2}, {dtype = moth.int64}) i64 (2)
--   moth.tensor{true, false}                  bool (2)
--   moth.tensor{1LL, 2LL}                     i64 (2)
--   moth.tensor(3)                            f32 ()
--
-- Numbers have the default dtype whatever their values; booleans are bool, int64 cdata are i64.

local ffi = require "ffi"
local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local devices = require "moth.tensor.device"
local dtypes = require "moth.tensor.dtype"
local errors = require "moth.error"
local calls = require "moth.binding.calls"
local lib = require "moth.binding.lib"

local C, ctx, Handle, ops = lib.C, lib.ctx, lib.Handle, bind.ops
local istensor = lib.istensor
local concat = table.concat

local create = {}

local MAX_DIMS = 8
local BOOL, I64 = C.MOTH_BOOL, C.MOTH_I64
local NUMBER, INTEGER, BOOLEAN, TENSOR = 1, 2, 3, 4 -- kinds of element

local function kind_of(v)
  local t = type(v)
  if t == "number" then return NUMBER end
  if t == "boolean" then return BOOLEAN end
  if t == "cdata" then
    if ffi.istype("int64_t", v) or ffi.istype("uint64_t", v) then return INTEGER end
    if istensor(v) then return TENSOR end
  end
  return nil
end

-- ---- walking nested tables ----

-- The state of a read: sizes so far, kinds of element found, and the path for messages.
local function new_walk(fname, aname)
  return {fname = fname, aname = aname or "data", sizes = {}, seen = {}, path = {}, count = 0,
          tensors = false}
end

local function where(walk, depth)
  local parts = {}
  for d = 1, depth do parts[d] = "[" .. walk.path[d] .. "]" end
  return walk.aname .. concat(parts)
end

local function counted(n) return n .. (n == 1 and " element" or " elements") end

local function bad(walk, text, code) errors.argument(walk.fname, walk.aname, text, code) end

local function ragged(walk, depth, n)
  local size = walk.sizes[depth]
  local row, first = walk.path[depth - 1], walk.first and walk.first[depth] or 1
  if depth == 2 then
    bad(walk, ("row %d has %s where row %d has %d"):format(row, counted(n), first, size),
      "E_SHAPE")
  end
  bad(walk, ("%s has %s where those before it have %d"):format(where(walk, depth - 1), counted(n),
    size), "E_SHAPE")
end

local function bad_element(walk, depth, v)
  bad(walk, where(walk, depth) .. " is " .. errors.describe(v)
    .. "; numbers, booleans, int64s, tensors or tables of them are needed", "E_TYPE")
end

-- Finds and checks the shape of `list` at that depth, and counts the kinds of elements.
local function survey(walk, list, depth)
  local n = #list
  if depth > MAX_DIMS then bad(walk, "more than " .. MAX_DIMS .. " nested tables") end
  if rawget(list, 0) ~= nil then bad(walk, calls.gap(list), "E_TYPE") end
  if calls.has_hole(list, n) then
    walk.path[depth] = n + 1
    bad(walk, depth == 1 and ("value %d is nil"):format(n + 1) or where(walk, depth) .. " is nil",
      "E_TYPE")
  end
  if walk.sizes[depth] == nil then
    walk.sizes[depth] = n
  elseif walk.sizes[depth] ~= n then
    ragged(walk, depth, n)
  end
  if n == 0 and next(list) ~= nil then
    bad(walk, where(walk, depth - 1) .. " has keys, but no elements")
  end
  for i = 1, n do
    local v = list[i]
    walk.path[depth] = i
    local kind = kind_of(v)
    if kind == nil then
      if type(v) ~= "table" then bad_element(walk, depth, v) end
      if walk.leaf and walk.leaf <= depth then
        bad(walk, where(walk, depth) .. " is a table where others are single values", "E_SHAPE")
      end
      survey(walk, v, depth + 1)
    else
      if walk.leaf == nil then
        if walk.sizes[depth + 1] then
          bad(walk, where(walk, depth) .. " is a single value where others are tables", "E_SHAPE")
        end
        walk.leaf = depth
      elseif walk.leaf ~= depth then
        bad(walk, where(walk, depth) .. " is a single value where others are tables", "E_SHAPE")
      end
      walk.seen[kind] = true
      walk.count = walk.count + 1
    end
  end
end

local function fill_numbers(list, buffer, at)
  for i = 1, #list do
    local v = list[i]
    if type(v) == "table" then
      at = fill_numbers(v, buffer, at)
    else
      if v == true then v = 1 elseif v == false then v = 0 end
      buffer[at].number = tonumber(v)
      at = at + 1
    end
  end
  return at
end

local function fill_integers(walk, list, buffer, at)
  for i = 1, #list do
    local v = list[i]
    if type(v) == "table" then
      at = fill_integers(walk, v, buffer, at)
    else
      if type(v) == "boolean" then v = v and 1 or 0 end
      buffer[at].integer = v
      at = at + 1
    end
  end
  return at
end

local function whole(list)
  for i = 1, #list do
    local v = list[i]
    if type(v) == "table" then
      if not whole(v) then return false end
    elseif type(v) == "number" and (v % 1 ~= 0 or v < -2 ^ 63 or v >= 2 ^ 63) then
      return false
    end
  end
  return true
end

local function default_dtype() return C.moth_default_dtype(ctx, -1) end

-- ---- creation ----

local shape_buffer = ffi.new "int64_t[8]"

-- A tensor with these values; `type` as in moth_from_slots.
local function from_slots(fname, dtype, sizes, values, count, type, aname)
  for d = 1, #sizes do shape_buffer[d - 1] = sizes[d] end
  local h = Handle()
  local status = C.moth_from_slots(ctx, dtype, shape_buffer, #sizes, values, count, type, h)
  if status < 0 and lib.recover(status) then
    status = C.moth_from_slots(ctx, dtype, shape_buffer, #sizes, values, count, type, h)
  end
  if status < 0 then errors.status(status, fname, aname) end
  return lib.adopt(h, status)
end

-- The smallest of the three slot types for the kinds of element found.
local function numbers_type(seen)
  if seen[INTEGER] then return 1 end
  if seen[BOOLEAN] and not seen[NUMBER] then return 2 end
  return 0
end

local function from_tensors(fname, list, dtype)
  local function stack(items)
    local parts = {}
    for i = 1, #items do
      local v = items[i]
      if type(v) == "table" then v = stack(v)
      elseif not istensor(v) then v = create.convert(fname, v) end
      parts[i] = v
    end
    return ops.stack(parts, 1)
  end
  local y = stack(list)
  if dtype and dtype ~= lib.inspect(y).dtype then y = create.cast(y, dtype) end
  return y
end

--- Casts to the dtype with that core number.
function create.cast(x, dtype)
  return ops.cast(x, dtypes.by_code[dtype])
end

local function detached(x, fname)
  local h = Handle()
  local status = C.moth_detach(ctx, x, h)
  if status < 0 then errors.status(status, fname) end
  return lib.adopt(h, status)
end

local function no_grad(f, ...)
  local autograd = require "moth.autograd"
  return autograd.no_grad(f, ...)
end

-- A new tensor with a tensor's values.
local function copied(x, dtype)
  local y = ops.clone(x)
  if dtype and dtype ~= lib.inspect(y).dtype then y = create.cast(y, dtype) end
  return y
end

--- A tensor of Lua values.
-- @param fname the function the user called, for messages
-- @param data number, boolean, int64, tensor or nested plain tables of them
-- @param dtype the core's number of the dtype, or nil to infer the dtype
-- @param aname its argument, for messages (default "data")
function create.convert(fname, data, dtype, aname)
  local kind = kind_of(data)
  if kind == TENSOR then return detached(no_grad(copied, data, dtype), fname) end
  local walk = new_walk(fname, aname)
  if kind then
    walk.seen[kind], walk.count = true, 1
    data = {data}
  elseif type(data) == "table" then
    survey(walk, data, 1)
  else
    bad(walk, "numbers, booleans, tensors or tables of them are needed, got "
      .. errors.describe(data), "E_TYPE")
  end
  if walk.seen[TENSOR] then return detached(no_grad(from_tensors, fname, data, dtype), fname) end
  local type = numbers_type(walk.seen)
  if dtype == nil then
    if type == 2 then dtype = BOOL
    elseif type == 1 and not walk.seen[NUMBER] then dtype = I64
    else dtype = default_dtype() end
  end
  local values = lib.slots(walk.count)
  if type == 1 and walk.seen[NUMBER] and not whole(data) then type = 0 end
  if type == 0 then fill_numbers(data, values, 0) else fill_integers(walk, data, values, 0) end
  return from_slots(fname, dtype, walk.sizes, values, walk.count, type, aname)
end

-- Moves a new tensor to its device. `device` is the argument; nil: the default device.
local function placed(x, device, requires_grad)
  if device == nil then
    local number = tonumber(C.moth_default_device(ctx, -1))
    device = number > 0 and devices.by_code[number] or nil
  end
  if device ~= nil then x = x:to(device) end
  if requires_grad then x.requires_grad = true end
  return x
end

local function code_of(dtype) return dtype and dtypes.codes[dtype] end

--- moth.tensor(data, {dtype, device, requires_grad}): a new tensor with these values.
create.tensor = define {
  name = "tensor",
  doc = "A new tensor with the values of a number, of nested tables, or of another tensor.",
  examples = "{{1, 2}, {3, 4}}\n{1, 0, 1}, {dtype = moth.bool}\n2.5, {requires_grad = true}",
  args = {
    {"data", "data", "number, boolean, int64, tensor, or nested tables of them"},
    {"dtype", "dtype", "element type; when absent the default one for numbers, bool for "
     .. "booleans, i64 for int64s", optional = true},
    {"device", "device", "device; default: the CPU, or the device of data that is a "
     .. "tensor lies", optional = true},
    {"bool", "requires_grad", "record gradients for it", default = false},
  },
  run = function(data, dtype, device, requires_grad)
    return (placed(create.convert("tensor", data, code_of(dtype)), device, requires_grad))
  end,
}

--- moth.as_tensor(data, {dtype, device}): a tensor with that dtype and device is returned itself;
-- other data as in moth.tensor.
create.as_tensor = define {
  name = "as_tensor",
  doc = "The data as a tensor. Returns a tensor of that dtype itself, with its history.",
  examples = "{1, 2, 3}\nmoth.ones(2), {dtype = moth.float64}",
  args = {
    {"data", "data", "number, boolean, int64, tensor, or nested tables of them"},
    {"dtype", "dtype", "element type; default: the dtype of the data", optional = true},
    {"device", "device", "device; default: the CPU, or the device of data that is a "
     .. "tensor lies", optional = true},
  },
  run = function(data, dtype, device)
    if not istensor(data) then
      return placed(create.convert("as_tensor", data, code_of(dtype)), device)
    end
    if dtype ~= nil and code_of(dtype) ~= lib.inspect(data).dtype then
      data = ops.cast(data, dtype)
    end
    return device == nil and data or data:to(device)
  end,
}

--- x:new_tensor(data, {dtype, device, requires_grad}): like moth.tensor, with x's dtype.
create.new_tensor = define {
  name = "new_tensor",
  doc = "A new tensor as by moth.tensor, with this tensor's dtype by default.",
  examples = "moth.ones(2, {dtype = moth.float64}), {{1, 2}, {3, 4}}\n"
    .. "moth.ones(2), {1, 0}, {dtype = moth.bool, requires_grad = false}",
  args = {
    {"tensor", "input", "tensor with the dtype"},
    {"data", "data", "number, boolean, int64, tensor, or nested tables of them"},
    {"dtype", "dtype", "element type; default: the dtype of the input", optional = true},
    {"device", "device", "device; default: the device of the input", optional = true},
    {"bool", "requires_grad", "record gradients for it", default = false},
  },
  run = function(input, data, dtype, device, requires_grad)
    local x = create.convert("new_tensor", data, code_of(dtype) or lib.inspect(input).dtype)
    return (placed(x, device == nil and input.device or device, requires_grad))
  end,
}

-- x:new_zeros(2, 3), x:new_full({2, 3}, 7): with x's dtype by default.
local function new_like(name, doc, example, fill)
  local rows = {
    {"tensor", "input", "tensor with the dtype"},
    {"shape", "size", "sizes"},
    {"dtype", "dtype", "element type; default: the dtype of the input", optional = true},
    {"device", "device", "device; default: the device of the input", optional = true},
    {"bool", "requires_grad", "record gradients for it", default = false},
  }
  if fill then table.insert(rows, 3, {"scalar", "fill_value", "value of every element"}) end
  local op = ops[name]
  local function made(x, input, requires_grad, dtype, device)
    local found = lib.inspect(input)
    if device == nil then device = devices.by_code[found.device] end
    x = x(dtype or dtypes.by_code[found.dtype], device)
    if requires_grad then x.requires_grad = true end
    return x
  end
  create["new_" .. name] = define {
    name = "new_" .. name,
    doc = doc .. ", with this tensor's dtype by default.",
    examples = ("moth.ones(2), {2, 3}%s\nmoth.ones(2), {2, 3}%s, {dtype = moth.float64, "
      .. "requires_grad = true}"):format(example, example),
    args = rows,
    run = fill and function(input, size, value, dtype, device, requires_grad)
      local function full(kind, place) return op(size, value, kind, place) end
      return (made(full, input, requires_grad, dtype, device))
    end or function(input, size, dtype, device, requires_grad)
      local function plain(kind, place) return op(size, kind, place) end
      return (made(plain, input, requires_grad, dtype, device))
    end,
  }
end

new_like("zeros", "A new tensor of zeros", "")
new_like("ones", "A new tensor of ones", "")
new_like("empty", "A new tensor with uninitialized elements", "")
new_like("full", "A new tensor with the same value everywhere", ", 7", true)

--- moth.frombuffer(buffer, {dtype, count, offset}): a 1-d tensor with a copy of a string's bytes.
create.frombuffer = define {
  name = "frombuffer",
  doc = "A 1-d tensor with a copy of the bytes of a string.",
  examples = "'\\1\\2\\3\\4', {dtype = moth.uint8}\n'\\0\\0\\1\\0\\2\\0', "
    .. "{dtype = moth.int16, count = 1, offset = 2}",
  args = {
    {"string", "buffer", "little-endian elements"},
    {"dtype", "dtype", "element type; the default one when absent", optional = true},
    {"int", "count", "number of elements; -1: all", default = -1},
    {"int", "offset", "bytes to skip", default = 0},
    {"bool", "requires_grad", "record gradients for it", default = false},
  },
  run = function(buffer, dtype, count, offset, requires_grad)
    local code = code_of(dtype) or default_dtype()
    local size = dtypes.by_code[code].itemsize
    local left = #buffer - offset
    if offset < 0 or left < 0 then
      errors.argument("frombuffer", "offset", offset .. " lies outside of " .. #buffer .. " bytes",
        "E_INDEX")
    end
    if count == -1 and left % size ~= 0 then
      errors.argument("frombuffer", "buffer", left .. " bytes are no multiple of "
        .. dtypes.by_code[code].name .. " elements", "E_SHAPE")
    end
    if count < -1 or count * size > left then
      errors.argument("frombuffer", "count", count .. " elements need " .. count * size
        .. " bytes, got " .. left, "E_SHAPE")
    end
    if count == -1 then count = left / size end
    shape_buffer[0] = count
    local h = Handle()
    local bytes = ffi.cast("const char *", buffer) + offset
    local status = C.moth_from_bytes(ctx, code, shape_buffer, 1, bytes, count * size, h)
    if status < 0 then errors.status(status, "frombuffer") end
    local x = lib.adopt(h, status)
    if requires_grad then x.requires_grad = true end
    return x
  end,
}

--- The positions in a user's list, for a function's argument: i64.
function create.integers(list, fname, aname)
  return (create.convert(fname or "index", list, I64, aname or "indices"))
end

--- Values to be written into x, converted to its dtype.
function create.like(values, x) return create.convert("tensor", values, lib.inspect(x).dtype) end

return create
