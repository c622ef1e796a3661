--- npy.lua -- reads and writes NumPy's arrays: .npy files, format 1.0 to 3.0.
--
--     "\147NUMPY", major, minor;  the header's size, u16 (version 1) or u32;  the header: a dict of
--     Python, {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), };  the elements
--
-- The array of a mapped file shares its pages. Elements of the other byte order, and elements that
-- are not aligned, are copied. An array in Fortran order becomes a transposed tensor. The header is
-- parsed here: nothing in it is run. Its sizes are compared with the file's before memory is
-- allocated.
--
-- Format: numpy/numpy, numpy/lib/_format_impl.py.

local ffi = require "ffi"
local bytes = require "moth.io.bytes"
local dtypes = require "moth.tensor.dtype"
local errors = require "moth.error"
local foreign = require "moth.io.foreign"
local json = require "moth.json"
local literal = require "moth.io.literal"

local npy = {}

local MAGIC = "\147NUMPY"
local MOST_DIMS = 8
local LARGEST = 2 ^ 52 -- bytes; a larger array means a broken header
local LONGEST_HEADER = 2 ^ 24 -- bytes

-- A reader is {all = uint8 tensor, at = offset, last = offset after its bytes, refuse = function,
-- notes = text -> count}. Functions that return values of a type that Moth cannot read return nil
-- and the reason.

-- ---- the header ----

local function take(self, n, what)
  local at = self.at
  if n > self.last - at then self.refuse(("ends within %s"):format(what)) end
  self.at = at + n
  return ffi.string(self.start + at, n)
end

local function is_size(n) return type(n) == "number" and n >= 0 and n <= LARGEST end

local KEYS = {descr = true, fortran_order = true, shape = true}

-- The header: a table with descr, fortran_order and shape.
local function header(self)
  if take(self, 6, "its first bytes") ~= MAGIC then self.refuse "is not an array of NumPy" end
  local major, minor = take(self, 2, "its version"):byte(1, 2)
  if major < 1 or major > 3 or minor ~= 0 then
    self.refuse(("has the version %d.%d; 1.0, 2.0 and 3.0 are known"):format(major, minor),
      "E_UNSUPPORTED")
  end
  local size = 0
  for i, byte in ipairs {take(self, major == 1 and 2 or 4, "its header"):byte(1, -1)} do
    size = size + byte * 256 ^ (i - 1)
  end
  if size > LONGEST_HEADER then self.refuse(("has a header of %.0f bytes"):format(size)) end
  local text = take(self, size, "its header")
  if major < 3 then -- Latin-1
    text = text:gsub("[\128-\255]", function(c) return json.utf8_char(c:byte()) end)
  end
  local head, why = literal.parse(text)
  local function broken(fault) self.refuse("has a broken header: " .. fault) end
  if why then broken(why) end
  if literal.kind(head) ~= "dict" then broken "it is no dict" end
  for key in pairs(head) do
    if not KEYS[key] then broken("the unknown key " .. errors.shown(tostring(key))) end
  end
  if type(head.fortran_order) ~= "boolean" then broken "fortran_order is no bool" end
  if literal.kind(head.shape) ~= "list" then broken "shape is no tuple" end
  for _, n in ipairs(head.shape) do
    if not is_size(n) then broken "shape has an impossible size" end
  end
  if head.descr == nil then broken "descr is missing" end
  return head
end

-- ---- types ----

-- The type that a descr describes: {size = bytes of an element, ...} with `name`, a dtype of Moth;
-- `format`, a type of foreign.lua; `text`, "S" or "U"; or `fields`, a list of {name, type, shape}.
-- `unread`: it cannot be read.
local type_of

local function simple_type(self, descr)
  local order, kind, size, unit = descr:match "^([<>|=]?)(%a)(%d*)(.*)$"
  local swapped, n = order == ">", tonumber(size)
  if ffi.abi "be" then swapped = order == "<" end
  local code = kind and kind .. size or ""
  local name, format = foreign.numpy_dtypes[code], foreign.numpy_formats[code]
  if unit == "" and name then
    return {size = dtypes.by_name[name].itemsize, name = name, swapped = swapped, descr = descr}
  elseif unit == "" and format then
    return {size = foreign.width(format), format = format, swapped = swapped, descr = descr}
  elseif (code == "M8" or code == "m8") and (unit == "" or unit:find "^%[%w+%]$") then
    return {size = 8, name = "int64", swapped = swapped, descr = descr, note = "int64"}
  elseif unit == "" and n and n <= LARGEST and (kind == "S" or kind == "a" or kind == "U") then
    return {size = kind == "U" and 4 * n or n, text = kind == "U" and "U" or "S",
      swapped = swapped, descr = descr}
  elseif kind == "O" then
    return {size = 1, unread = "holds objects of Python, which only Python's pickle reads",
      descr = descr}
  elseif unit == "" and n and n <= LARGEST and (kind == "V" or kind == "f" or kind == "c") then
    return {size = n, unread = ("has elements of %s, which Moth has no dtype for"):format(
      errors.shown(descr)), descr = descr}
  end
  self.refuse("has a broken header: the unknown type " .. errors.shown(descr))
end

local function field_of(self, row, depth)
  if literal.kind(row) ~= "list" then row = {} end
  local name, descr, shape = row[1], row[2], row[3]
  if literal.kind(name) == "list" then name = name[2] end -- (title, name)
  local good = type(name) == "string" and descr ~= nil
    and (shape == nil or literal.kind(shape) == "list")
  local all = 1
  shape = good and shape or {}
  for _, n in ipairs(shape) do
    good = good and is_size(n)
    all = good and all * math.max(n, 1) or all
  end
  if not good or all > LARGEST then
    self.refuse "has a broken header: a field of its type is no (name, type) tuple"
  end
  return {name = name, type = type_of(self, descr, depth + 1), shape = shape}
end

local function count_of(shape)
  local count = 1
  for _, n in ipairs(shape) do count = count * n end
  return count
end

function type_of(self, descr, depth)
  if type(descr) == "string" then return simple_type(self, descr) end
  if literal.kind(descr) ~= "list" or depth > 8 then
    self.refuse "has a broken header: descr is no type"
  end
  if type(descr[1]) == "string" and #descr == 2 then -- (type, shape)
    return {size = 1, unread = "has elements of a type with a shape", descr = "a type with a shape"}
  end
  local all = {size = 0, fields = {}, descr = "fields"}
  for i, row in ipairs(descr) do
    local field = field_of(self, row, depth)
    field.from, all.fields[i] = all.size, field
    all.size = all.size + field.type.size * count_of(field.shape)
    if field.name ~= "" then all.unread = all.unread or field.type.unread end -- else a gap
    if all.size > LARGEST then self.refuse "has a broken header: its type is too large" end
  end
  return all
end

-- ---- elements ----

-- NumPy's strings: the elements as Lua strings, in order.
local function strings(self, kind, count)
  local list, width, start = {}, kind.size, self.start + self.at
  for i = 1, count do
    local text = ffi.string(start + (i - 1) * width, width)
    if kind.text == "U" then
      local why
      text, why = literal.from_ucs4(text, kind.swapped)
      if not text then self.refuse("has a broken element: " .. why) end
    end
    list[i] = text:gsub("%z+$", "")
  end
  return list
end

-- A list of the elements as nested lists. strides: of each dimension, in elements.
local function nest(list, shape, strides, d, at)
  if d > #shape then return list[at] end
  local part = {}
  for i = 1, shape[d] do part[i] = nest(list, shape, strides, d + 1, at + (i - 1) * strides[d]) end
  return part
end

-- Reads `shape` elements of a type at the reader's position. outer: how many of the dimensions are
-- stored in Fortran order, the first one innermost.
local function elements(self, kind, shape, outer)
  if #shape > MOST_DIMS then
    return nil, ("has %d dimensions; Moth has at most %d"):format(#shape, MOST_DIMS)
  end
  local stored, dims, strides, stride = {}, {}, {}, 1
  for d = 1, #shape do dims[d] = d <= outer and outer - d + 1 or d end
  for d = 1, #shape do stored[d] = shape[dims[d]] end
  for d = #shape, 1, -1 do -- of the stored dimensions
    strides[dims[d]], stride = stride, stride * stored[d]
  end
  if kind.text then
    if stride == 0 then return {} end
    if kind.size == 0 then return nil, "has texts without bytes" end
    return nest(strings(self, kind, stride), shape, strides, 1, 1)
  end
  local target, x = kind.note
  if kind.name then
    x = bytes.as(self.all, kind.name, stored, self.at, self.fname, kind.swapped)
  else
    x, target = foreign.convert(self.all, kind.format, stored, self.at, kind.swapped)
    if not x then return nil, ("has elements of %s %s"):format(kind.descr, target) end
  end
  if target then
    local text = ("an array of %s is loaded as %s"):format(kind.descr, target)
    self.notes[text] = (self.notes[text] or 0) + 1
  end
  if outer > 1 then
    for d = #dims + 1, x:dim() do dims[d] = d end -- the dimension of complex pairs
    x = x:permute(dims)
  end
  return x
end

local read_elements

-- The fields of records: a table of the arrays of each field.
local function fields(self, kind, shape, outer)
  local result, count = {}, count_of(shape)
  local total, records = count * kind.size, nil
  if total > 0 then records = self.all:narrow(1, self.at + 1, total):view(count, kind.size) end
  for _, field in ipairs(kind.fields) do
    local size, all = field.type.size * count_of(field.shape), {}
    if field.name ~= "" then -- else it is a gap
      if result[field.name] ~= nil then
        self.refuse("has two fields " .. errors.shown(field.name))
      end
      for d, n in ipairs(shape) do all[d] = n end
      for _, n in ipairs(field.shape) do all[#all + 1] = n end
      local column = count * size > 0
        and records:narrow(2, field.from + 1, size):contiguous():view(count * size)
        or self.all:narrow(1, 1, 0)
      local part = setmetatable({all = column, at = 0}, {__index = self})
      part.start = bytes.address(column)
      local x, why = read_elements(part, field.type, all, outer)
      if x == nil then return nil, why end
      result[field.name] = x
    end
  end
  return result
end

function read_elements(self, kind, shape, outer)
  if kind.unread then return nil, kind.unread end
  return (kind.fields and fields or elements)(self, kind, shape, outer)
end

-- The size of the array in bytes; raises if the file has another one.
local function check_size(self, kind, shape)
  local size = kind.size
  for _, n in ipairs(shape) do size = size * math.max(n, 1) end
  if size > LARGEST then
    self.refuse(("is broken: it claims the impossible shape (%s)"):format(
      table.concat(shape, ", ")))
  end
  local count = count_of(shape)
  size = count * kind.size
  local left = self.last - self.at
  if kind.unread then return end
  if size > left then
    self.refuse(("ends too early: %.0f of %.0f bytes of its elements"):format(left, size))
  elseif size < left then
    self.refuse(("has %.0f bytes beyond its %.0f of elements"):format(left - size, size))
  elseif kind.size == 0 and count > 0 then
    self.refuse "has elements without bytes"
  end
end

--- Reads an array.
-- @param all     a contiguous uint8 tensor
-- @param from, size  where the array is in it
-- @param fname   the function that errors name
-- @param refuse  function(text, code) that raises an error about the file
-- @param notes   text -> count: what was converted; this function adds to it
-- @return a tensor; a nested list for strings, a table of tensors for records; or nil and the
-- reason, if the type cannot be read
function npy.decode(all, from, size, fname, refuse, notes)
  local self = {all = all, at = from, last = from + size, start = bytes.address(all), fname = fname,
    refuse = refuse, notes = notes}
  local head = header(self)
  local kind = type_of(self, head.descr, 1)
  check_size(self, kind, head.shape)
  return read_elements(self, kind, head.shape, head.fortran_order and #head.shape or 0)
end

--- Reads a .npy file.
-- @param source  the path, or bytes.memory(...)
-- @param fname   the function that errors name
-- @param device  the device of the tensor (default "cpu")
-- @param mmap    share the file's pages instead of reading it (default true)
-- @return as npy.decode. Raises E_IO, E_FORMAT, or E_UNSUPPORTED for types that cannot be read.
function npy.load(source, fname, device, mmap)
  local file, notes = bytes.open(source, fname, "path", mmap), {}
  local x, why = npy.decode(file.all, 0, file.size, fname, function(text, code)
    file:refuse(text, code)
  end, notes)
  if x == nil then file:refuse(why, "E_UNSUPPORTED") end
  file:close()
  if next(notes) then foreign.warn(file.shown, notes) end
  return npy.moved(x, device)
end

--- Moves the tensors of a result to a device.
function npy.moved(x, device)
  local lib = require "moth.binding.lib"
  if lib.istensor(x) then return device and x:to(device) or x end
  if not lib.is_plain(x) then return x end
  for name, part in pairs(x) do x[name] = npy.moved(part, device) end
  return x
end

-- ---- writing ----

local DESCR = {}
for code, name in pairs(foreign.numpy_dtypes) do
  DESCR[name] = (code:sub(2) == "1" and "|" or ffi.abi "le" and "<" or ">") .. code
end

--- The bytes before the elements, and the tensor whose elements follow. A transposed tensor is
-- written in Fortran order, without a copy.
-- @param refuse  function(text, code) that raises an error
function npy.pieces(x, refuse)
  local descr = DESCR[x.dtype.name]
  if not descr then
    refuse(("NumPy has no dtype for %s; save x:float()"):format(tostring(x.dtype)),
      "E_UNSUPPORTED")
  end
  x = x:detach()
  local shape, fortran = x.shape, false
  if x:dim() > 1 and not x:is_contiguous() then
    local dims = {}
    for d = 1, x:dim() do dims[d] = x:dim() - d + 1 end
    local y = x:permute(dims)
    if y:is_contiguous() then x, fortran = y, true end
  end
  local sizes = table.concat(shape, ", ") .. (#shape == 1 and "," or "")
  local head = ("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }"):format(descr,
    fortran and "True" or "False", sizes)
  head = head .. (" "):rep(-(#head + 11) % 64) .. "\n"
  return MAGIC .. "\1\0" .. string.char(#head % 256, math.floor(#head / 256)) .. head, x
end

--- Writes a tensor to a .npy file.
function npy.save(value, path, _, durable)
  local function refuse(text, code) errors.argument("save", "value", text, code) end
  if not require("moth.binding.lib").istensor(value) then
    errors.refuse("save", "value", "a .npy file holds one tensor; several go into a .npz file",
      value, "E_TYPE")
  end
  local head, x = npy.pieces(value, refuse)
  bytes.save(path, {head, x}, "save", durable)
end

return npy
