--- t7.lua -- reads files of Torch7's torch.save for moth.load: binary files of this byte order,
-- with names that end in .t7.
--
-- Numbers, texts, booleans and tables keep their types. Tensors and storages become tensors and
-- share memory as before. Any other object, such as nn.Linear, becomes the table of its fields,
-- with its class name under "torch_type". Functions are Lua bytecode or source: they raise an
-- error.
--
-- Format: torch/torch7, File.lua, generic/Tensor.c and generic/Storage.c.

local bytes = require "moth.io.bytes"
local dtypes = require("moth.tensor.dtype").by_name
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local ops = require("moth.binding.bind").ops

local t7 = {}

local MAX_DEPTH = 150 -- levels of nested tables
local TYPES = {Byte = "uint8", Char = "int8", Short = "int16", Int = "int32", Long = "int64",
               Float = "float32", Double = "float64", Half = "float16"}
local FUNCTIONS = {[6] = true, [7] = true, [8] = true}

local Reader = {}
Reader.__index = Reader

local function text(self)
  local n = self.file:int(4)
  return self.file:text(n, "a text")
end

-- A count of elements of that many bytes each; checked against the file's size.
local function count(self, n, each, what)
  if type(n) ~= "number" or n < 0 or n > (self.file.size - self.file.at) / each then
    self.file:refuse(("is broken: %s %s in %.0f bytes"):format(tostring(n), what,
      self.file.size - self.file.at))
  end
  return n
end

local function read_storage(self, element)
  local kind = dtypes[element]
  local n = count(self, self.file:int(8), kind.itemsize, "elements of a storage")
  local from = self.file:take(n * kind.itemsize, "a storage")
  return self.file:tensor(element, {n}, from):to(self.device)
end

local function longs(self, n)
  local list = {}
  for i = 1, n do list[i] = self.file:int(8) end
  return list
end

local function read_tensor(self, element)
  local ndim = self.file:int(4)
  if ndim < 0 or ndim > 8 then
    self.file:refuse(("has a tensor of %d dimensions, at most 8 are possible"):format(ndim),
      "E_UNSUPPORTED")
  end
  local size, stride, offset = longs(self, ndim), longs(self, ndim), self.file:int(8)
  local data = self:value()
  if data == nil or ndim == 0 then
    return ops.empty({0}, dtypes[element], self.device)
  end
  local last, empty, numel = offset - 1, false, 1
  for d = 1, ndim do
    local n, step = size[d], stride[d]
    if type(n) ~= "number" or n < 0 or type(step) ~= "number" or step < 0 then
      self.file:refuse "is broken: a tensor has a size or a stride that is none"
    end
    empty, numel = empty or n == 0, numel * math.max(n, 1)
    last = last + (n - 1) * step
  end
  if numel > 2 ^ 52 then self.file:refuse "is broken: a tensor has impossible sizes" end
  local known = self.storages[data]
  if known ~= element then self.file:refuse "is broken: a tensor without its storage" end
  if empty then return ops.empty(size, dtypes[element], self.device) end
  if type(offset) ~= "number" or offset < 1 or last >= data:numel() then
    self.file:refuse "is broken: a tensor reaches beyond its storage"
  end
  return data:as_strided(size, stride, data:storage_offset() + offset - 1)
end

local function read_table(self, target)
  for _ = 1, count(self, self.file:int(4), 8, "entries of a table") do
    local key = self:value()
    local value = self:value()
    if key == nil or key ~= key then
      self.file:refuse "is broken: a table has a key that is none"
    end
    target[key] = value
  end
  return target
end

-- An object: the class name follows the version; then the data of the class.
local function read_object(self, index)
  local class = text(self)
  if class:find "^V %d+$" then class = text(self) end
  local element, storage = class:match "^torch%.(%a-)Storage$", true
  if not element then element, storage = class:match "^torch%.(%a-)Tensor$", false end
  local dtype = element and (element == "Cuda" and "float32" or TYPES[(element:gsub("^Cuda", ""))])
  if dtype then
    local x = (storage and read_storage or read_tensor)(self, dtype)
    if storage then self.storages[x] = dtype end
    self.known[index] = x
    return x
  end
  local object = {}
  self.known[index] = object
  if self.file:int(4) ~= 3 then
    self.file:refuse(("holds an object of %s, which is no table of fields"):format(
      errors.bare(class)), "E_UNSUPPORTED")
  end
  local inner = self.file:int(4)
  if self.known[inner] ~= nil then self.file:refuse "is broken: an object's table is another's" end
  self.known[inner] = object
  read_table(self, object)
  object.torch_type = class
  return object
end

local readers = {
  [0] = function() return nil end,
  [1] = function(self) return self.file:double() end,
  [2] = text,
  [5] = function(self) return self.file:int(4) == 1 end,
}

-- The next value. Tables and objects have an index; a repeated index is a reference.
function Reader:value()
  lib.poll()
  local file = self.file
  local at = file.at
  local kind = file:int(4)
  if readers[kind] then return (readers[kind](self)) end
  if FUNCTIONS[kind] then
    file:refuse("holds a function, which is code and is never read; save parameters and tables",
      "E_UNSUPPORTED")
  end
  if kind ~= 3 and kind ~= 4 then
    file:refuse(("is broken: a value of the unknown type %d at byte %d"):format(kind, at))
  end
  local index = file:int(4)
  local known = self.known[index]
  if known ~= nil then return known end
  self.deep = self.deep + 1
  if self.deep > MAX_DEPTH then file:refuse("nests deeper than any checkpoint") end
  local value
  if kind == 4 then
    value = read_object(self, index)
  else
    value = {}
    self.known[index] = value
    read_table(self, value)
  end
  self.deep = self.deep - 1
  return value
end

--- Reads a file that Torch7's torch.save wrote.
-- @param path    the file
-- @param fname   the function that errors name
-- @param device  the device of the tensors
-- @param mmap    share the file's pages
-- @return the value; raises E_IO, E_FORMAT, or E_UNSUPPORTED for functions and unknown objects
function t7.load(path, fname, device, mmap)
  local file = bytes.open(path, fname, "path", mmap)
  local self = setmetatable({file = file, device = device, known = {}, storages = {}, deep = 0},
    Reader)
  local value = self:value()
  if file.at ~= file.size then
    file:refuse(("is no file of Torch7: its value ends %.0f bytes before the end"):format(
      file.size - file.at))
  end
  return value
end

return t7
