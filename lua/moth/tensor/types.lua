--- types.lua -- the limits of dtypes (finfo, iinfo), and type promotion.

local ffi = require "ffi"
local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local dtypes = require "moth.tensor.dtype"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local settings = require "moth.base.settings"

local types = {}

local istensor = lib.istensor

-- ---- limits ----

local function shown(v)
  if type(v) ~= "number" then return (tostring(v):gsub("LL$", "")) end
  return (v % 1 == 0 and math.abs(v) < 2 ^ 53 and "%d" or "%.6g"):format(v)
end

-- The results of finfo and iinfo print their fields in this order.
local function printed(name, order)
  local meta = {}
  meta.__index = meta
  function meta:__tostring()
    local parts = {}
    for i, key in ipairs(order) do parts[i] = key .. "=" .. shown(self[key]) end
    return name .. "(" .. table.concat(parts, ", ") .. ", dtype=" .. self.dtype .. ")"
  end
  return meta
end

local Finfo = printed("finfo", {"resolution", "min", "max", "eps", "tiny"})
local Iinfo = printed("iinfo", {"min", "max"})

local FLOATS = { -- mantissa bits, largest exponent, decimal digits
  float16 = {10, 15, 1e-3}, bfloat16 = {7, 127, 1e-2},
  float32 = {23, 127, 1e-6}, float64 = {52, 1023, 1e-15},
}

--- moth.finfo(dtype): the limits of a floating-point dtype.
types.finfo = define {
  name = "finfo",
  doc = "The limits of a float dtype: a table of bits, eps (from 1 to the next number), max, "
    .. "min (-max), tiny (also smallest_normal), resolution and dtype.",
  examples = "moth.float16",
  outputs = "limits",
  args = {{"dtype", "dtype", "a float dtype; the default one when absent", optional = true}},
  run = function(dtype)
    dtype = dtype or settings.get_default_dtype()
    local row = FLOATS[dtype.name]
    if not row then
      errors.argument("finfo", "dtype", ("a float dtype is needed, got %s; moth.iinfo is for "
        .. "integers"):format(tostring(dtype)), "E_DTYPE")
    end
    local eps, exponent = 2 ^ -row[1], row[2]
    local max, tiny = (2 - eps) * 2 ^ exponent, 2 ^ (1 - exponent)
    return setmetatable({bits = dtype.itemsize * 8, eps = eps, max = max, min = -max, tiny = tiny,
      smallest_normal = tiny, resolution = row[3], dtype = dtype.name}, Finfo)
  end,
}

--- moth.iinfo(dtype): the limits of an integer dtype.
types.iinfo = define {
  name = "iinfo",
  doc = "The limits of an integer dtype: a table of bits, min, max and dtype; those of int64 are "
    .. "int64 themselves.",
  examples = "moth.uint8",
  outputs = "limits",
  args = {{"dtype", "dtype", "an integer dtype"}},
  run = function(dtype)
    if dtype.is_floating_point or dtype.name == "bool" then
      errors.argument("iinfo", "dtype", ("an integer dtype is needed, got %s%s"):format(
        tostring(dtype), dtype.is_floating_point and "; moth.finfo is for floats" or ""), "E_DTYPE")
    end
    local bits = dtype.itemsize * 8
    local low, high = dtype.is_signed and -2 ^ (bits - 1) or 0,
      dtype.is_signed and 2 ^ (bits - 1) - 1 or 2 ^ bits - 1
    if bits == 64 then low, high = ffi.cast("int64_t", low), 0x7fffffffffffffffLL end
    return setmetatable({bits = bits, min = low, max = high, dtype = dtype.name}, Iinfo)
  end,
}

-- ---- promotion ----

-- The dtype in which the core computes with two operands. where() follows the rule of all ops.
local function common(a, b)
  return bind.ops.where(bind.ops.empty({0}, {dtype = dtypes.by_name.bool}), a, b).dtype
end

local function empty(dtype, ndim)
  return bind.ops.empty(ndim == 0 and {} or {0}, {dtype = dtype, device = "cpu"})
end

--- moth.promote_types(a, b): the smallest dtype that can hold both.
types.promote_types = define {
  name = "promote_types",
  doc = "The dtype of the result of an op with tensors of both dtypes.",
  examples = "moth.int32, moth.float16",
  outputs = "dtype",
  args = {{"dtype", "type1", "a dtype"}, {"dtype", "type2", "another one"}},
  scoped = true,
  run = function(type1, type2) return common(empty(type1), empty(type2)) end,
}

-- A tensor or number with the operand's dtype, without its elements.
local function like(name, value)
  if not istensor(value) then
    if type(value) == "number" or type(value) == "boolean" or ffi.istype(lib.int64, value) then
      return value
    end
    errors.refuse("result_type", name, "a tensor or a number is needed", value, "E_TYPE")
  end
  return empty(value.dtype, value:dim())
end

--- moth.result_type(a, b): the dtype in which an op would compute.
types.result_type = define {
  name = "result_type",
  doc = "The dtype of the result of an op with both values. Tensors with dimensions decide; "
    .. "0-d tensors and numbers count only if they are of a higher category (float above int).",
  examples = "moth.ones(2, {dtype = moth.float16}), 1.5",
  outputs = "dtype",
  args = {{"any", "tensor1", "a tensor or a number"}, {"any", "tensor2", "a tensor or a number"}},
  run = function(tensor1, tensor2)
    return common(like("tensor1", tensor1), like("tensor2", tensor2))
  end,
}

--- moth.can_cast(from, to): returns true if results of one dtype may be written into a tensor of
-- another.
types.can_cast = define {
  name = "can_cast",
  doc = "Returns true if results of one dtype may be written into a tensor of another: no float "
    .. "into integers, only bool into bool.",
  examples = "moth.float32, moth.int64",
  outputs = "boolean",
  args = {{"dtype", "from_", "of the result"}, {"dtype", "to", "of the target"}},
  run = function(from, to)
    if to.name == "bool" then return from.name == "bool" end
    return to.is_floating_point or not from.is_floating_point
  end,
}

-- ---- device ----

--- x:get_device(), moth.get_device(x): the number of x's GPU, from 0 as in "cuda:0"; -1 for the
-- CPU.
function types.get_device(x)
  if not istensor(x) then
    errors.refuse("get_device", "input", "a tensor is needed", x, "E_TYPE")
  end
  local device = x.device
  return device.type == "cuda" and (device.index or 0) or -1
end

return types
