--- convert.lua -- a tensor with another dtype, on another device, in another memory format.

local bind = require "moth.binding.bind"
local devices = require "moth.tensor.device"
local dtypes = require "moth.tensor.dtype"
local errors = require "moth.error"
local layout = require "moth.tensor.layout"
local lib = require "moth.binding.lib"
local look = require "moth.tensor.look"

local C, ctx, ops, istensor = lib.C, lib.ctx, bind.ops, lib.istensor
local own, inspect = look.own, look.inspect

local methods = {}

-- x with another dtype and on another device, by the core's numbers, and with another memory
-- format; nil: unchanged.
local function cast(x, dtype, copy, device, non_blocking, format)
  local found = inspect(x, "to")
  local moves, turns = device and device ~= found.device, dtype and dtype ~= found.dtype
  local fits, why = layout.fits(format, found.ndim)
  if not fits then
    errors.argument("to", "memory_format", why .. ", got " .. tostring(x.shape), "E_SHAPE")
  end
  if copy and not moves and not turns then return ops.clone(x, format or "preserve_format") end
  if turns then x = ops.cast(x, dtypes.by_code[dtype]) end
  if moves then x = ops.to_device(x, devices.by_code[device], non_blocking) end
  if format and format ~= "preserve_format" then return ops.contiguous(x, format) end
  return x
end

local codes = dtypes.codes

-- The core's number of the device that a value names, or nil.
local function number_of(value)
  if value == lib.none then return nil end
  local code = devices.codes[value]
  if code then return code - 1 end
  local known = dtypes.by_name[value]
  if known then errors.argument("to", "dtype", "write " .. tostring(known), "E_TYPE") end
  if type(value) == "string" or devices.is(value) then
    errors.argument("to", "device", devices.missing(value), "E_DEVICE")
  end
  errors.refuse("to", "dtype", "a dtype, a device or a tensor is needed", value, "E_TYPE")
end

local to_names = {"dtype", "device", "other", "copy", "non_blocking", "memory_format"}

local function boolean_of(name, value)
  if value == lib.none then return false end
  if type(value) == "boolean" then return value end
  errors.refuse("to", name, "a boolean is needed", value, "E_TYPE")
end

--- x:to(dtype), x:to(device), x:to(device, dtype), x:to(other), x:to{dtype =, device =, copy =}: x
-- with another dtype or on another device. Returns x itself if nothing changes and copy is not
-- true. non_blocking and copy may follow, both false by default. With non_blocking = true the call
-- does not wait for a copy from pinned memory to a GPU: do not change x until the stream has
-- finished the copy. memory_format sets the order of elements in memory.
function methods.to(x, ...)
  local dtype, copy, device, non_blocking, format
  for i = 1, select("#", ...) do
    local value = (select(i, ...))
    if istensor(value) then
      local found = inspect(value, "to")
      dtype, device = found.dtype, found.device
    elseif codes[value] then
      dtype = codes[value]
    elseif lib.is_plain(value) then
      for name, given in pairs(value) do
        if name == "dtype" or name == 1 and codes[given] then
          dtype = codes[given]
          if not dtype and given ~= lib.none then
            errors.refuse("to", "dtype", "a dtype is needed", given)
          end
        elseif name == "device" or name == 1 then device = number_of(given)
        elseif name == "other" and istensor(given) then
          local found = inspect(given, "to")
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

--- A copy of x in pinned (page-locked) memory, without history. A GPU copies from pinned memory
-- while the CPU works: x:pin_memory():to("cuda", {non_blocking = true}). Returns x itself if it is
-- pinned. Needs a GPU.
function methods.pin_memory(x)
  own(x, "pin_memory")
  local h = lib.Handle()
  local status = C.moth_pin_memory(ctx, x, h)
  if lib.recover(status) then status = C.moth_pin_memory(ctx, x, h) end
  lib.check(status, "pin_memory", x)
  return lib.adopt(h, status)
end

--- Returns true if x is in pinned memory.
function methods.is_pinned(x)
  own(x, "is_pinned")
  local status = C.moth_is_pinned(ctx, x)
  lib.check(status, "is_pinned", x)
  return status == 1
end

--- Does nothing, for scripts from PyTorch: Moth tracks the streams that read a tensor's memory.
function methods.record_stream(x) own(x, "record_stream") end

local shorthands = {bool = 0, byte = 1, char = 2, short = 3, int = 4, long = 5, half = 6,
                    bfloat16 = 7, float = 8, double = 9}
for name, dtype in pairs(shorthands) do
  methods[name] = function(x)
    own(x, name)
    return cast(x, dtype)
  end
end

--- x:type() returns the name of x's dtype; x:type(dtype) converts x.
function methods.type(x, dtype)
  own(x, "type")
  if dtype == nil then return tostring(x.dtype) end
  return methods.to(x, dtype)
end

--- x with the dtype of other.
function methods.type_as(x, other)
  own(x, "type_as")
  if not istensor(other) then
    errors.refuse("type_as", "other", "a tensor is needed", other)
  end
  return cast(x, inspect(other, "type_as").dtype)
end

--- x on the CPU: x itself if it is there.
function methods.cpu(x)
  inspect(x, "cpu")
  return cast(x, nil, false, 0)
end

--- x on a GPU.
-- @param which  a device, its name or its index; default cuda:0
-- @param names  {non_blocking = true}, as for x:to
function methods.cuda(x, which, names)
  own(x, "cuda")
  if lib.is_plain(which) then which, names = nil, which end
  return methods.to(x, type(which) == "number" and "cuda:" .. which or which or "cuda", names or {})
end

return {methods = methods}
