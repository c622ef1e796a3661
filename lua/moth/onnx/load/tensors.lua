--- tensors.lua -- the tensors of an ONNX file, as views of its pages or of files next to it.

local ffi = require "ffi"
local files = require "moth.io.bytes"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local proto = require "moth.onnx.proto"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local by_code = require("moth.tensor.dtype").by_code
local quoted = errors.shown

local MOST_DIMS = 8
local F32, F64 = C.MOTH_F32, C.MOTH_F64

-- The number of elements of a tensor, with its sizes checked.
local function count_of(t, refuse)
  local count = 1
  if #t.dims > MOST_DIMS then
    refuse(("has the tensor %s of %d dimensions; at most %d are supported"):format(
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

-- The data file that a tensor's entries name, and the offset of its bytes.
local function external(t, size, state)
  local at, name = {}, quoted(t.name or "")
  for _, entry in ipairs(t.external_data) do at[entry.key or ""] = entry.value end
  local place = at.location or ""
  if place == "" or place:find("^[/\\]") or place:find("%.%.") or place:find("%z") then
    state.refuse(("stores the tensor %s in %s, which is not in the folder of the file"):format(
      name, quoted(place)))
  end
  if not state.beside[place] then
    local path = (state.path:match "^(.*/)" or "") .. place
    local file = files.open(path, "onnx.load", "path", state.mmap)
    if not files.beside(path, state.path) then
      state.refuse(("stores the tensor %s in %s, which is a link"):format(name, quoted(place)))
    end
    state.beside[place] = file
  end
  local file, offset = state.beside[place], size == 0 and 0 or tonumber(at.offset or "0") or -1
  if not (offset >= 0 and offset % 1 == 0 and offset + size <= file.size) then
    state.refuse(("is broken: %s ends within the tensor %s"):format(quoted(place), name))
  end
  return file, offset
end

-- Integers, and half types as bits, from a list of values.
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

-- A tensor on the pages of a file; a copy if the bytes overlap an earlier tensor.
local function within(file, kind, shape, from, size, state)
  local x, stop = file:tensor(kind, shape, from), state.stops[file] or 0
  if from < stop then x = x:clone() end
  state.stops[file] = math.max(stop, from + size)
  return x
end

--- A tensor of the model, and the code of its dtype.
return function(t, state)
  local code, name = proto.dtypes[t.data_type or 0], t.name or ""
  if not code then
    state.refuse(("has the tensor %s of element type %s, which Moth does not support"):format(
      quoted(name), tostring(t.data_type)), "E_UNSUPPORTED")
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
    state.refuse(("is broken: the tensor %s needs %.0f bytes, the file has %.0f"):format(
      quoted(name), size, got))
  end
  if from then return within(file, by_code[code].name, t.dims, from, size, state), code end
  local shape, h = lib.int64s(math.max(#t.dims, 1)), Handle()
  for d, n in ipairs(t.dims) do shape[d - 1] = n end
  lib.check(C.moth_from_bytes(ctx, code, shape, #t.dims, bytes, size, h), "onnx.load")
  return lib.adopt(h, 0), code
end
