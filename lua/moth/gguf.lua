--- gguf.lua -- moth.gguf: reads the files of ggml and llama.cpp.
--
--     local tensors, metadata = moth.gguf.load "model.gguf"
--     local file = moth.gguf.open "model.gguf"            -- reads single tensors
--     print(file:info("output.weight").type, file:tensor "output.weight")
--
-- A file is mapped, and tensors of plain types share its pages. Quantised tensors are converted to
-- float32 or float16 when they are read, block by block, with ops on bytes. Counts and sizes are
-- checked against the end of the file before memory is allocated.
--
-- Format: ggml-org/ggml, docs/gguf.md; blocks: ggml-org/ggml, src/ggml-common.h and ggml-quants.c.

local bytes = require "moth.io.bytes"
local define = require "moth.binding.define"
local dtypes = require("moth.tensor.dtype").by_name
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"
local scope = require "moth.tensor.scope"

local ops = require("moth.binding.bind").ops
local gguf = {}

local MAX_DEPTH = 8 -- levels of nested lists
local MOST_DIMS = 8

-- ---- blocks of quantised numbers: uint8 (n, bytes of a block) -> float32 (n, block) ----

local function cut(x, from, n) return x:narrow(2, from + 1, n) end

-- 16-bit floats at a byte offset of each block, (n, 1).
local function half(x, from)
  return bytes.as(cut(x, from, 2):contiguous(), "float16", {x:size(1), 1}, 0, "gguf"):float()
end

local function signed(x, from, n)
  return bytes.as(cut(x, from, n):contiguous(), "int8", {x:size(1), n}, 0, "gguf"):float()
end

local function low(x) return x:bitwise_and(15) end
local function high(x) return x:bitwise_right_shift(4) end

-- 32 4-bit numbers from 16 bytes: the low nibbles, then the high nibbles.
local function nibbles(x, from)
  local q = cut(x, from, 16)
  return ops.cat({low(q), high(q)}, 2)
end

-- 32 5-bit numbers: 4 bytes with the fifth bits, then nibbles.
local function fives(x, from)
  local places = ops.arange(0, 8, 1, {dtype = dtypes.uint8})
  local top = cut(x, from, 4):unsqueeze(3):bitwise_right_shift(places):bitwise_and(1)
  return nibbles(x, from + 4):bitwise_or(top:reshape(-1, 32):bitwise_left_shift(4))
end

-- Scales and minima of the 8 parts of a Q4_K or Q5_K block: 6 bits each, from 12 bytes.
local function six_bits(x)
  local a, b, c = cut(x, 4, 4), cut(x, 8, 4), cut(x, 12, 4)
  local function top(y) return y:bitwise_right_shift(6):bitwise_left_shift(4) end
  local scales = ops.cat({a:bitwise_and(63), low(c):bitwise_or(top(a))}, 2)
  local minima = ops.cat({b:bitwise_and(63), high(c):bitwise_or(top(b))}, 2)
  return scales:float(), minima:float()
end

-- Numbers of `bits` bits each. In each 32 bytes the lowest bits are the first 32 numbers, the next
-- bits the next 32. The result is (n, parts, numbers in a byte, 32).
local function layers(x, from, n, bits)
  local shifts = ops.arange(0, 8, bits, {dtype = dtypes.uint8}):view(-1, 1)
  local q = cut(x, from, n):reshape(x:size(1), -1, 1, 32)
  return q:bitwise_right_shift(shifts):bitwise_and(2 ^ bits - 1)
end

-- Blocks of 256 numbers in equal parts: q (n, 256) times scale (n, parts), minus the minimum (n,
-- parts) if given.
local function scaled(q, scales, minima)
  local n, parts = scales:size(1), scales:size(2)
  local y = q:float():view(n, parts, -1) * scales:unsqueeze(3)
  if minima then y = y - minima:unsqueeze(3) end
  return y:view(n, 256)
end

local function q2_k(x)
  local parts = cut(x, 0, 16)
  return scaled(layers(x, 16, 64, 2), half(x, 80) * low(parts), half(x, 82) * high(parts))
end

local function q3_k(x)
  local n = x:size(1)
  local set = layers(x, 0, 32, 1):view(n, 2, 4, 32):bitwise_left_shift(2)
  -- 16 6-bit scales: nibbles of 8 bytes, then 4 bytes with the upper two bits.
  local a, c = cut(x, 96, 8), cut(x, 104, 4):unsqueeze(2)
  local shifts = ops.arange(0, 8, 2, {dtype = dtypes.uint8}):view(4, 1)
  local top = c:bitwise_right_shift(shifts):bitwise_and(3):bitwise_left_shift(4):view(n, 16)
  local scales = ops.cat({low(a), high(a)}, 2):bitwise_or(top):float() - 32
  return scaled(layers(x, 32, 64, 2):bitwise_or(set):float() - 4, half(x, 108) * scales)
end

local function q4_k(x)
  local scales, minima = six_bits(x)
  return scaled(layers(x, 16, 128, 4), half(x, 0) * scales, half(x, 2) * minima)
end

local function q5_k(x)
  local scales, minima = six_bits(x)
  local top = layers(x, 16, 32, 1):view(-1, 4, 2, 32):bitwise_left_shift(4)
  return scaled(layers(x, 48, 128, 4):bitwise_or(top), half(x, 0) * scales, half(x, 2) * minima)
end

local function q6_k(x)
  local n = x:size(1)
  local q = cut(x, 0, 128):reshape(n, 2, 64)
  q = ops.stack({low(q), high(q)}, 3):view(n, 2, 4, 32)
  q = q:bitwise_or(layers(x, 128, 64, 2):bitwise_left_shift(4)):float() - 32
  return scaled(q, signed(x, 192, 16) * half(x, 208))
end

-- Dtypes by their code in files. A block type has the numbers and the bytes of a block, and its
-- reader.
local types = {
  [0] = {name = "F32", dtype = "float32"},
  [1] = {name = "F16", dtype = "float16"},
  [30] = {name = "BF16", dtype = "bfloat16"},
  [24] = {name = "I8", dtype = "int8"},
  [25] = {name = "I16", dtype = "int16"},
  [26] = {name = "I32", dtype = "int32"},
  [27] = {name = "I64", dtype = "int64"},
  [28] = {name = "F64", dtype = "float64"},
  [2] = {name = "Q4_0", block = 32, bytes = 18, read = function(x)
    return (nibbles(x, 2):float() - 8) * half(x, 0)
  end},
  [3] = {name = "Q4_1", block = 32, bytes = 20, read = function(x)
    return nibbles(x, 4):float() * half(x, 0) + half(x, 2)
  end},
  [6] = {name = "Q5_0", block = 32, bytes = 22, read = function(x)
    return (fives(x, 2):float() - 16) * half(x, 0)
  end},
  [7] = {name = "Q5_1", block = 32, bytes = 24, read = function(x)
    return fives(x, 4):float() * half(x, 0) + half(x, 2)
  end},
  [8] = {name = "Q8_0", block = 32, bytes = 34, read = function(x)
    return signed(x, 2, 32) * half(x, 0)
  end},
  [10] = {name = "Q2_K", block = 256, bytes = 84, read = q2_k},
  [11] = {name = "Q3_K", block = 256, bytes = 110, read = q3_k},
  [12] = {name = "Q4_K", block = 256, bytes = 144, read = q4_k},
  [13] = {name = "Q5_K", block = 256, bytes = 176, read = q5_k},
  [14] = {name = "Q6_K", block = 256, bytes = 210, read = q6_k},
}

-- ---- metadata ----

local function text(file) return file:text(file:uint(8), "a text") end

local value_of

-- A list: each element takes at least one byte, so its count is checked before the list is
-- created.
local function list(file, deep)
  local kind, n, values = file:uint(4), file:uint(8), {}
  if deep == MAX_DEPTH then file:refuse("is broken: its lists are nested too deeply") end
  if n > file.size - file.at then
    file:refuse(("is broken: a list of %.0f values in %.0f bytes"):format(n, file.size - file.at))
  end
  for i = 1, n do values[i] = value_of(file, kind, deep + 1) end
  return values
end

local readers = {
  [0] = function(file) return file:uint(1) end, function(file) return file:int(1) end,
  function(file) return file:uint(2) end, function(file) return file:int(2) end,
  function(file) return file:uint(4) end, function(file) return file:int(4) end,
  function(file) return file:single() end, function(file) return file:uint(1) ~= 0 end,
  text, list, function(file) return file:uint64() end, function(file) return file:int(8) end,
  function(file) return file:double() end,
}

function value_of(file, kind, deep)
  local read = readers[kind]
  if not read then file:refuse(("is broken: a value of the unknown type %d"):format(kind)) end
  lib.poll()
  return read(file, deep)
end

local function entries(file, n)
  local metadata = {}
  for _ = 1, n do
    local key = text(file)
    if metadata[key] ~= nil then file:refuse(("has the key %s twice"):format(errors.shown(key))) end
    metadata[key] = value_of(file, file:uint(4), 0)
  end
  return metadata
end

-- ---- tensors ----

local function refuse_tensor(file, name, why, code)
  file:refuse(("has the tensor %s %s"):format(errors.shown(name), why), code)
end

-- Reads one entry. The position of its bytes is checked when the start of the data is known.
local function described(file)
  local t = {name = text(file), shape = {}}
  local ndim, count = file:uint(4), 1
  if ndim > MOST_DIMS then
    refuse_tensor(file, t.name, ("of %.0f dimensions, at most %d are possible"):format(ndim,
      MOST_DIMS), "E_UNSUPPORTED")
  end
  for d = ndim, 1, -1 do -- the innermost dimension is first
    t.shape[d] = file:uint(8)
    count = count * math.max(t.shape[d], 1)
  end
  local kind, offset = file:uint(4), file:uint(8)
  local row = types[kind]
  if not row then
    refuse_tensor(file, t.name, ("of type %.0f, which Moth does not read"):format(kind),
      "E_UNSUPPORTED")
  end
  if count > 2 ^ 52 then refuse_tensor(file, t.name, "of an impossible size") end
  for _, n in ipairs(t.shape) do count = n == 0 and 0 or count end
  t.type, t.row, t.offset = row.name, row, offset
  if row.block then
    if (t.shape[ndim] or 1) % row.block ~= 0 then
      refuse_tensor(file, t.name, ("of type %s with rows of %.0f numbers, no multiple of %d")
        :format(t.type, t.shape[ndim] or 1, row.block))
    end
    t.blocks = count / row.block
    t.nbytes = t.blocks * row.bytes
  else
    t.nbytes = count * dtypes[row.dtype].itemsize
  end
  return t
end

local function check_places(file, tensors, start, align)
  local order, stop = {}, 0
  for i, t in ipairs(tensors) do
    if t.offset % align ~= 0 then
      refuse_tensor(file, t.name, ("at byte %.0f, no multiple of %d"):format(t.offset, align))
    end
    if t.nbytes > 0 and t.offset + t.nbytes > file.size - start then
      refuse_tensor(file, t.name, ("at bytes %.0f to %.0f of data, but there are %.0f"):format(
        t.offset, t.offset + t.nbytes, math.max(file.size - start, 0)))
    end
    order[i] = t
  end
  table.sort(order, function(a, b) return a.offset < b.offset end)
  for _, t in ipairs(order) do
    if t.nbytes > 0 then
      if t.offset < stop then refuse_tensor(file, t.name, "overlapping another tensor") end
      stop = t.offset + t.nbytes
    end
  end
end

-- ---- files ----

local File = {}
File.__index = File

local ALIGNMENTS = {}
for k = 0, 20 do ALIGNMENTS[2 ^ k] = true end

local function read(path, fname, mmap)
  local file = bytes.open(path, fname, "path", mmap)
  if file.size < 24 or file:text(4) ~= "GGUF" then file:refuse "is no GGUF file" end
  local version = file:uint(4)
  if version ~= 2 and version ~= 3 then
    file:refuse(("is of version %.0f; 2 and 3 are read, little-endian"):format(version),
      "E_UNSUPPORTED")
  end
  local count, keys = file:uint(8), file:uint(8)
  local left = file.size - file.at
  if count * 24 + keys * 13 > left then
    file:refuse(("is broken: %.0f tensors and %.0f keys in %.0f bytes"):format(count, keys, left))
  end
  local self = setmetatable({file = file, list = {}, by_name = {}}, File)
  self.metadata = entries(file, keys)
  for i = 1, count do
    local t = described(file)
    if self.by_name[t.name] then refuse_tensor(file, t.name, "twice") end
    self.list[i], self.by_name[t.name] = t, t
  end
  local align = self.metadata["general.alignment"] or 32
  if type(align) ~= "number" or not ALIGNMENTS[align] then
    file:refuse(("is broken: its alignment is %s, which is no power of 2 up to 2^20"):format(
      errors.describe(align)))
  end
  self.start = math.ceil(file.at / align) * align
  check_places(file, self.list, self.start, align)
  return self
end

local dequantised = scope.inside(function(file, t, from, dtype)
  local x = t.row.read(file:tensor("uint8", {t.blocks, t.row.bytes}, from))
  return (x:to(dtype):view(t.shape))
end)

--- The names of all tensors, as a list in the file's order.
function File:names()
  local names = {}
  for i, t in ipairs(self.list) do names[i] = t.name end
  return names
end

--- Information on a tensor, without reading it: {type = "Q4_0", shape = {2, 32}, nbytes = 36}; nil
-- for an unknown name.
function File:info(name)
  local t = self.by_name[name]
  return t and {type = t.type, shape = {unpack(t.shape)}, nbytes = t.nbytes}
end

local function read_tensor(self, t, dtype, fname)
  if dtype and not dtype.is_floating_point then
    errors.argument(fname, "dtype", "a floating-point dtype is needed, got " .. tostring(dtype),
      "E_DTYPE")
  end
  if t.nbytes == 0 then -- Its offset may be after the end.
    return ops.zeros(t.shape, t.blocks and (dtype or dtypes.float32) or dtypes[t.row.dtype])
  end
  local from = self.start + t.offset
  if not t.blocks then return self.file:tensor(t.row.dtype, t.shape, from) end
  return dequantised(self.file, t, from, dtype or dtypes.float32)
end

local DTYPE = {"dtype", "dtype", "the dtype of quantised tensors; float32 when absent",
               optional = true}
local parse_tensor = define.signature("tensor", {{"string", "name", "as in the file"}, DTYPE})

--- The tensor with this name. Plain types keep their dtype; quantised tensors become `dtype`.
-- @param dtype  moth.float32 (default), float16, bfloat16 or float64
function File:tensor(...)
  local name, dtype = parse_tensor(...)
  local t = self.by_name[name]
  if not t then
    errors.argument("tensor", "name", ("%s has no tensor %s%s"):format(self.file.shown,
      errors.describe(name), errors.nearest(name, self:names())), "E_INDEX")
  end
  return read_tensor(self, t, dtype, "tensor")
end
define.takes(File.tensor, parse_tensor, "tensor")

function File:__tostring()
  return ("GGUF file %s, %d tensors"):format(self.file.shown, #self.list)
end

local PATH = {"string", "path", "the file to read"}
local MMAP = {"bool", "mmap", "share the file's pages instead of reading it", default = true}

--- Opens a GGUF file: `file.metadata` (a table), `file:names()`, `file:info(name)`,
-- `file:tensor(name, dtype)`. Sizes are in PyTorch's order, the innermost last.
-- @param path  the file
-- @param mmap  share the file's pages (default true)
-- Raises E_IO, E_FORMAT, or E_UNSUPPORTED for an unknown tensor type.
gguf.open = define {
  name = "gguf.open",
  doc = "Opens a GGUF file of llama.cpp: file:tensor(name) reads one tensor, file.metadata is a "
    .. "table.",
  outputs = "file",
  examples = "'model.gguf', {mmap = false}",
  args = {PATH, MMAP},
  run = function(path, mmap) return read(path, "gguf.open", mmap) end,
}

--- All tensors of a GGUF file, by name, and its metadata.
-- @param path    the file
-- @param dtype   the dtype of quantised tensors (default moth.float32)
-- @param device  the device of the tensors (default "cpu")
-- @param mmap    share the file's pages (default true)
-- @param bytes   instead of a path: the file's bytes, as in moth.load
-- @return table of names to tensors; table of the metadata: numbers, texts, booleans, lists
-- Tensors of F32, F16, BF16, F64, I8 to I64 keep their dtype; Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and
-- Q2_K to Q6_K are dequantised; others raise E_UNSUPPORTED.
gguf.load = define {
  name = "gguf.load",
  doc = "The tensors of a GGUF file of llama.cpp, quantised ones as floats, and its metadata.",
  outputs = "tensors, metadata",
  examples = "'model.gguf', {dtype = moth.float16, device = 'cpu', mmap = false}",
  args = {
    {"string", "path", "the file to read", optional = true}, DTYPE,
    {"device", "device", "the device of the tensors", default = "cpu"}, MMAP,
    {"any", "bytes", "a file's bytes, instead of a path", optional = true},
  },
  run = function(path, dtype, device, mmap, given)
    local file = read(bytes.source(path, given, "gguf.load"), "gguf.load", mmap)
    local tensors = {}
    for _, t in ipairs(file.list) do
      tensors[t.name] = read_tensor(file, t, dtype, "gguf.load"):to(device)
    end
    lib.C.moth_trim_cache(lib.ctx) -- a model is loaded once: free cached temporaries
    return tensors, file.metadata
  end,
}

return (lazy.namespace("moth.gguf", gguf, {}))
