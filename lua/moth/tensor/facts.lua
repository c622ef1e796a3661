--- facts.lua -- the metadata of a tensor: x.shape, x:size(dim), x.device.

local ffi = require "ffi"
local bind = require "moth.binding.bind"
local devices = require "moth.tensor.device"
local dtypes = require "moth.tensor.dtype"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local look = require "moth.tensor.look"
local size = require "moth.tensor.size"

local C, ctx, ops, istensor = lib.C, lib.ctx, bind.ops, lib.istensor
local own, inspect, several = look.own, look.inspect, look.several
local sizes_of = look.sizes_of
local band = bit.band

local I8, FLOATS = C.MOTH_I8, C.MOTH_F16 -- first signed, first float
local IS_CONTIGUOUS, IS_CHANNELS_LAST = C.MOTH_IS_CONTIGUOUS, C.MOTH_IS_CHANNELS_LAST
local IS_SPARSE = C.MOTH_IS_SPARSE

local methods, getters = {}, {}

local function read_strides(t)
  local list = {}
  for d = 1, t.ndim do list[d] = tonumber(t.stride[d - 1]) end
  return list
end

local function read_bytes(t) return tonumber(t.numel) * tonumber(t.itemsize) end
-- A user's dim, from 1 or negative, as 0-based.
local function checked_dim(fname, dim, ndim)
  if type(dim) ~= "number" or dim % 1 ~= 0 then
    errors.argument(fname, "dim", "an integer is needed, got " .. errors.describe(dim))
  end
  local d = dim < 0 and ndim + dim or dim - 1
  if d < 0 or d >= ndim or dim == 0 then
    errors.argument(fname, "dim", dim .. " is out of range for " .. ndim
      .. (ndim == 1 and " dimension" or " dimensions"), "E_INDEX")
  end
  return d
end

function getters.shape(x) return size.wrap(sizes_of(x, "shape")) end
function getters.ndim(x) return inspect(x, "ndim").ndim end
function getters.dtype(x) return dtypes.by_code[inspect(x, "dtype").dtype] end
function getters.device(x) return devices.by_code[inspect(x, "device").device] end
function getters.is_cuda(x) return inspect(x, "is_cuda").device ~= 0 end
function getters.itemsize(x) return tonumber(inspect(x, "itemsize").itemsize) end
function getters._version(x) return tonumber(inspect(x, "_version").version) end

function getters.is_sparse(x) return band(inspect(x, "is_sparse").flags, IS_SPARSE) ~= 0 end
function getters.layout(x) return getters.is_sparse(x) and "sparse_coo" or "strided" end

-- Methods of a sparse tensor. For a dense tensor, the user has probably taken it for the results
-- of max, sort or topk.
for _, name in ipairs {"values", "indices"} do
  getters[name] = function(x)
    if getters.is_sparse(x) then return (require("moth.sparse")[name]) end
    errors.raise(("a tensor has no field '%s', which a sparse one has as a method; the results of "
      .. "max, sort, topk come one by one: local values, indices = x:max(2)"):format(name),
      "E_UNSUPPORTED")
  end
end

function getters.nbytes(x) return several(x, "nbytes", read_bytes) end

-- size and stride are called often: only named arguments and mistakes use the parser.
local function parser(fname)
  local parse
  return function(...)
    parse = parse or require("moth.binding.define").signature(fname, {{"tensor", "input",
      "tensor"},
      {"dim", "dim", "the dimension; all of them when absent", optional = true}})
    local _, dim = parse(...)
    return dim
  end
end
local parse_size, parse_stride = parser "size", parser "stride"

--- x:size() is the moth.Size of x; x:size(dim) is a number.
function methods.size(x, dim, more)
  own(x, "size")
  if type(dim) == "table" or type(more) ~= "nil" then dim = parse_size(x, dim, more) end
  if dim == nil then return size.wrap(sizes_of(x, "size")) end
  local t = inspect(x, "size")
  return tonumber(t.shape[checked_dim("size", dim, t.ndim)])
end

--- x:stride() is a list; x:stride(dim) is a number: the elements from one position to the next.
function methods.stride(x, dim, more)
  own(x, "stride")
  if type(dim) == "table" or type(more) ~= "nil" then dim = parse_stride(x, dim, more) end
  if dim == nil then return several(x, "stride", read_strides) end
  local t = inspect(x, "stride")
  return tonumber(t.stride[checked_dim("stride", dim, t.ndim)])
end

--- The number of dimensions.
function methods.dim(x) return inspect(x, "dim").ndim end
methods.ndimension = methods.dim

--- The number of elements.
function methods.numel(x) return tonumber(inspect(x, "numel").numel) end
methods.nelement = methods.numel

--- The number of elements of the storage before the first element of x.
function methods.storage_offset(x) return tonumber(inspect(x, "storage_offset").offset) end

--- The number of bytes of one element.
function methods.element_size(x) return tonumber(inspect(x, "element_size").itemsize) end

--- The address of the first element as a number, for comparisons; memory cannot be read through it.
function methods.data_ptr(x)
  if lib.in_sandbox then errors.raise("data_ptr: a sandbox hides addresses", "E_UNSUPPORTED") end
  local t = inspect(x, "data_ptr")
  local h = x
  if band(t.flags, IS_CONTIGUOUS) == 0 then -- only the address of the first element
    h = x:detach()
    while inspect(h, "data_ptr").ndim > 0 do h = ops.select(h, 1, 1) end
  end
  return tonumber(ffi.cast("intptr_t", lib.data(h, "data_ptr")))
end

--- Returns true if the elements are in row-major order without gaps, or in the order of
-- memory_format.
function methods.is_contiguous(x, memory_format)
  local found = inspect(x, "is_contiguous")
  local layout = require "moth.tensor.layout"
  local format = layout.read("is_contiguous", memory_format, true) or "contiguous_format"
  local flag = format == "contiguous_format" and IS_CONTIGUOUS or IS_CHANNELS_LAST
  return layout.fits(format, found.ndim) and band(found.flags, flag) ~= 0
end

--- Returns true if the dtype is a floating-point dtype.
function methods.is_floating_point(x) return inspect(x, "is_floating_point").dtype >= FLOATS end

--- Returns true if the dtype has negative numbers.
function methods.is_signed(x) return inspect(x, "is_signed").dtype >= I8 end

--- Returns true if x and other are the same part of the same storage.
function methods.is_set_to(x, other)
  own(x, "is_set_to")
  if not istensor(other) then
    errors.argument("is_set_to", "other", "a tensor is needed, got " .. errors.describe(other))
  end
  local a = ffi.new "moth_tensor_info"
  lib.check(C.moth_inspect(ctx, x, a), "is_set_to", x)
  local b = inspect(other, "is_set_to")
  if a.storage ~= b.storage or a.offset ~= b.offset or a.ndim ~= b.ndim then return false end
  for d = 0, a.ndim - 1 do
    if a.shape[d] ~= b.shape[d] or a.stride[d] ~= b.stride[d] then return false end
  end
  return true
end

-- ---- transposes ----

function getters.T(x)
  local ndim = inspect(x, "T").ndim
  local dims = {}
  for d = 1, ndim do dims[d] = ndim - d + 1 end
  return ops.permute(x, dims)
end

function getters.mT(x)
  if inspect(x, "mT").ndim < 2 then
    errors.raise("mT needs at least two dimensions, got " .. errors.describe(x), "E_SHAPE")
  end
  return ops.transpose(x, -2, -1)
end

-- Conjugate transposes. Numbers are real, so they are transposes.
getters.H, getters.mH = function(x)
  if inspect(x, "H").ndim ~= 2 then
    errors.raise("H needs two dimensions, got " .. errors.describe(x), "E_SHAPE")
  end
  return getters.mT(x)
end, getters.mT

--- x:adjoint() is x.mH: the last two dimensions swapped.
methods.adjoint = getters.mT

return {methods = methods, getters = getters}
