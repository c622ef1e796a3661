--- pickle.lua -- reads files of torch.save for moth.load: a zip archive with one pickle and the
-- bytes of each storage, or, before PyTorch 1.6, several pickles followed by those bytes.
--
-- A pickle is a program for a small stack machine. This machine builds only tables, lists, texts,
-- numbers and tensors. A class or function that the file names is compared with a short list (in
-- pickle.lua and pickled.lua); it is never looked up and never called. Other names raise an error
-- that names them.
--
-- Format: Python's pickletools (protocols 2 to 5), PyTorch's torch/serialization.py.

local ffi = require "ffi"
local dtype = require "moth.tensor.dtype"
local errors = require "moth.error"
local files = require "moth.io.bytes"
local lib = require "moth.binding.lib"
local zip = require "moth.io.zip"
local shown = errors.shown

local pickle = {}

local STORAGES = { -- the storage classes of PyTorch, by element type
  DoubleStorage = "float64", FloatStorage = "float32", HalfStorage = "float16",
  BFloat16Storage = "bfloat16", LongStorage = "int64", IntStorage = "int32",
  ShortStorage = "int16", CharStorage = "int8", ByteStorage = "uint8", BoolStorage = "bool",
  ComplexDoubleStorage = "float64", ComplexFloatStorage = "float32",
  ComplexHalfStorage = "float16", -- pairs of those
  QInt8Storage = "int8", QUInt8Storage = "uint8", QInt32Storage = "int32",
}
-- Dtypes without a storage class, by their names in PyTorch: their formats in foreign.lua.
local FORMATS = {uint16 = "U16", uint32 = "U32", uint64 = "U64", float8_e4m3fn = "F8_E4M3",
  float8_e5m2 = "F8_E5M2", float8_e4m3fnuz = "F8_E4M3FNUZ", float8_e5m2fnuz = "F8_E5M2FNUZ",
  float8_e8m0fnu = "F8_E8M0", float4_e2m1fn_x2 = "F4"}
FORMATS.complex32, FORMATS.complex64, FORMATS.complex128 = "C32", "C64", "C128"
for name in ("qint8 quint8 qint32 quint4x2 quint2x4"):gmatch "%S+" do
  FORMATS[name] = name
end
local MAX_STACK = 10 ^ 6 -- values on the stack
local MOST_COUNTED = 10 ^ 6 -- elements of a Counter

local Machine = {}
Machine.__index = Machine

local MARK = {}
local NONE = lib.none

local function refuse(self, text, code) self.archive.file:refuse(text, code) end

-- ---- the program's bytes ----

local function take(self, n)
  if not self.code then return self.archive.file:text(n, "a part of its pickle") end
  local at = self.at
  if n < 0 or at + n - 1 > #self.code then refuse(self, "is broken: its pickle ends too early") end
  self.at = at + n
  return self.code:sub(at, at + n - 1)
end

-- An unsigned little-endian number of n bytes; values above 2^53 are larger than any file.
local function unsigned(self, n)
  local text, value = take(self, n), 0
  for i = n, 1, -1 do value = value * 256 + text:byte(i) end
  return value
end

local function line(self)
  if not self.code then
    local list = {}
    repeat list[#list + 1] = take(self, 1) until list[#list] == "\n"
    return table.concat(list, "", 1, #list - 1)
  end
  local stop = self.code:find("\n", self.at, true)
  if not stop then refuse(self, "is broken: its pickle ends too early") end
  local text = self.code:sub(self.at, stop - 1)
  self.at = stop + 1
  return text
end

-- The placeholder of a value that cannot be loaded; also logs a warning.
local function unread(self, what)
  self:note(what .. " is not loaded")
  return require("moth.io.foreign").unread(what)
end

-- A signed number of n bytes: a Lua number if that is exact, else an int64.
local function signed(self, n)
  if n == 0 then return 0 end
  local text = take(self, n)
  if n > 8 then return unread(self, require("moth.io.pickled").long(text)) end
  local value = text:byte(n) >= 128 and -1LL or 0LL
  for i = n, 1, -1 do value = value * 256 + text:byte(i) end
  local number = tonumber(value)
  return math.abs(number) < 2 ^ 53 and number or value
end

-- One C type for all reads: parsing an anonymous type again would create another type.
local Eight = ffi.typeof "union { uint8_t byte[8]; uint64_t word; double number; }"

-- A big-endian double. tonumber converts any NaN to the NaN that Lua can store.
local function double(self)
  local bytes = take(self, 8):reverse()
  local value = Eight()
  ffi.copy(value, bytes, 8)
  local exponent = bytes:byte(8) % 128 * 16 + math.floor(bytes:byte(7) / 16)
  if exponent == 2047 and value.word % 2 ^ 52 ~= 0 then return 0 / 0 end
  return value.number
end

-- ---- the stack ----

local function push(self, value)
  if self.top == MAX_STACK then refuse(self, "nests deeper than any checkpoint", "E_LIMIT") end
  self.top = self.top + 1
  self.stack[self.top] = value
end

local function pop(self)
  local value = self.stack[self.top]
  if value == nil or value == MARK then refuse(self, "is broken: its pickle takes too much") end
  self.stack[self.top] = nil
  self.top = self.top - 1
  return value
end

-- A class or function that a file may name: compared, never looked up.
local Global = {}

-- Values for a list or a dict. A class is refused here: it may only be in a tuple such as
-- ('storage', class, key, ...). The class in a defaultdict is kept as its name.
local function plain(self, values)
  for i = 1, #values do
    if getmetatable(values[i]) == Global and values[1] ~= "storage" then
      if require("moth.io.pickled").factories[values[i].name] then
        values[i] = values[i].name
      else
        refuse(self, "holds " .. values[i].name .. " itself, which is code", "E_UNSUPPORTED")
      end
    end
  end
  return values
end

-- Removes the values above the last mark and returns them as a list.
local function pop_mark(self)
  local at = self.top
  while at > 0 and self.stack[at] ~= MARK do at = at - 1 end
  if at == 0 then refuse(self, "is broken: its pickle lacks a mark") end
  local list = {}
  for i = at + 1, self.top do
    list[i - at] = self.stack[i]
    self.stack[i] = nil
  end
  self.stack[at], self.top = nil, at - 1
  return plain(self, list)
end

-- The list or dict on top of the stack.
local function top(self, kind)
  local value = self.stack[self.top]
  if type(value) ~= "table" or self.kinds[value] ~= kind then
    refuse(self, "is broken: its pickle adds to a value that is not a " .. kind)
  end
  return value
end

-- Stores the kind of a table, "list", "dict" or "tuple": only lists accept APPEND, and only dicts
-- SETITEM.
local function as_kind(self, value, kind)
  self.kinds[value] = kind
  return value
end

-- ---- values ----

local builders = {} -- name -> function(self, arguments): the result of a call

local function builder_of(name)
  return builders[name] or require("moth.io.pickled").builders[name]
end

local function global(self, module, name)
  local kind = module == "torch" and dtype.by_name[name]
  if kind then return push(self, kind) end
  if module == "torch" and FORMATS[name] then return push(self, name) end
  if require("moth.io.pickled").names[module .. "." .. name] then
    return push(self, module .. "." .. name)
  end
  name = module .. "." .. name
  if not STORAGES[name:match "^torch%.(%w+)$" or ""] and name ~= "torch.storage.UntypedStorage"
    and not builder_of(name) then
    refuse(self, ("names %s, which is code; tensors, dicts, lists, numbers and texts are read: "
      .. "save a state_dict"):format(errors.bare(name)), "E_UNSUPPORTED")
  end
  push(self, setmetatable({name = name}, Global))
end

local function put(self, target, key, value)
  if type(key) ~= "string" and type(key) ~= "number" and type(key) ~= "boolean" or key ~= key then
    refuse(self, "has a dict whose keys are " .. errors.describe(key), "E_UNSUPPORTED")
  end
  if value ~= NONE then target[key] = value end -- None is the absence of a value
end

local function set_items(self, pairs_of)
  local target = top(self, "dict")
  if #pairs_of % 2 ~= 0 then refuse(self, "is broken: a dict has a key without a value") end
  for i = 1, #pairs_of, 2 do put(self, target, pairs_of[i], pairs_of[i + 1]) end
end

local function append(self, values)
  local target = top(self, "list")
  for _, value in ipairs(values) do target[#target + 1] = value end
end

-- The 1-d tensor of a storage, from ('storage', class, key, location, elements[, part]).
local function storage(self, id)
  if type(id) ~= "table" or id[1] ~= "storage" or getmetatable(id[2]) ~= Global
    or type(id[3]) ~= "string" or type(id[5]) ~= "number" then
    refuse(self, "refers to data in an unknown way", "E_UNSUPPORTED")
  end
  local class, key, count = id[2].name, id[3], id[5]
  local plain_class = class:match "^torch%.(%w+)$" or ""
  local element = class == "torch.storage.UntypedStorage" and "uint8" or STORAGES[plain_class]
  if not element then refuse(self, "holds data of " .. class, "E_UNSUPPORTED") end
  local known = self.root and self.storages[key]
  if known then return known end
  if not (count >= 0 and count % 1 == 0) then
    refuse(self, ("is broken: storage %s has %s elements"):format(shown(key), tostring(count)))
  end
  local pairs_in = plain_class:find "^Complex" ~= nil
  if pairs_in then count = 2 * count end
  if not self.root then
    known = self:promise(key, element, count, id[6])
    self.pairs[known] = pairs_in or nil
    return known
  end
  local kind, member = dtype.by_name[element], self.root .. "data/" .. key
  local length = self.archive:length(member)
  if length ~= count * kind.itemsize then
    refuse(self, ("is broken: storage %s has %s bytes, %.0f %s elements are announced"):format(
      shown(key), length and ("%.0f"):format(length) or "no", count, element))
  end
  known = self.archive:tensor(member, element, {count}):to(self.device)
  self.storages[key], self.pairs[known] = known, pairs_in or nil
  return known
end

local function sizes(self, list)
  if type(list) ~= "table" or getmetatable(list) then
    refuse(self, "is broken: sizes that are no list")
  elseif #list > 8 then
    refuse(self, "has a tensor of more than 8 dimensions", "E_UNSUPPORTED")
  end
  for _, n in ipairs(list) do
    if type(n) ~= "number" or not (n >= 0 and n <= 2 ^ 52) or n % 1 ~= 0 then
      refuse(self, "is broken: a tensor has a size that is no count")
    end
  end
  return list
end

-- A view of a storage with `width` numbers in each element; a width above 1 becomes the last
-- dimension.
local function view_of(self, data, offset, size, stride, width)
  if not lib.istensor(data) or type(offset) ~= "number" or offset % 1 ~= 0 or #size ~= #stride then
    refuse(self, "is broken: a tensor is described wrongly")
  end
  local last, empty, count = offset, false, 1
  for d = 1, #size do
    empty, count = empty or size[d] == 0, count * math.max(size[d], 1)
    last = last + (size[d] - 1) * stride[d]
  end
  if count > 2 ^ 52 then refuse(self, "is broken: a tensor has impossible sizes") end
  if not empty and (offset < 0 or last * width + width > data:numel()) then
    refuse(self, "is broken: a tensor reaches beyond its storage")
  end
  local shape, steps = {}, {}
  for d = 1, #size do shape[d], steps[d] = size[d], stride[d] * width end
  if width > 1 then shape[#size + 1], steps[#size + 1] = width, 1 end
  if empty then return data:narrow(1, 1, 0):view(shape) end
  return data:as_strided(shape, steps, data:storage_offset() + offset * width)
end

-- Complex numbers as pairs; PyTorch may store a tensor as the conjugates of its values.
local function complex(self, data, args, size, stride)
  local state = args[7]
  if #size == 8 then return unread(self, "a complex tensor of 8 dimensions") end
  if type(state) == "table" and next(state) and not self.root then -- its numbers are read later
    return unread(self, "a conjugated tensor in a file of before PyTorch 1.6")
  end
  local x = view_of(self, data, args[2], size, stride, 2)
  self:note("a complex tensor is loaded as pairs in a last dimension of 2")
  if type(state) == "table" and state.conj then
    x = x * require("moth").tensor({1, -1}, {dtype = x.dtype})
  end
  return x
end

-- (storage, offset, size, stride, requires_grad, hooks[, state]): a view of the storage.
builders["torch._utils._rebuild_tensor_v2"] = function(self, args)
  local size, stride = sizes(self, args[3]), sizes(self, args[4])
  local data, x = args[1]
  if self.pairs[data] then x = complex(self, data, args, size, stride)
  else x = view_of(self, data, args[2], size, stride, 1) end
  return type(args[7]) == "table" and args[7].neg and lib.istensor(x) and -x or x
end

-- (storage, offset, size, stride, requires_grad, hooks, dtype): of bytes, for newer dtypes.
builders["torch._utils._rebuild_tensor_v3"] = function(self, args)
  local foreign, size = require "moth.io.foreign", sizes(self, args[3])
  local name = args[7]
  local format = type(name) == "string" and FORMATS[name]
  local width = format and foreign.width(format)
  if not format then refuse(self, "has a tensor of an unknown dtype", "E_UNSUPPORTED") end
  local what = ("a tensor of %s"):format(name)
  if not self.root then return unread(self, what .. " in a file of before PyTorch 1.6") end
  if not width then return unread(self, what) end
  local x = view_of(self, args[1], args[2], size, sizes(self, args[4]), width)
  local y, target = foreign.convert(x:contiguous():view(-1), format, size)
  if not y then return unread(self, what .. " " .. target) end
  self:note(("%s is loaded as %s"):format(what, target))
  return y
end

builders["torch._utils._rebuild_qtensor"] = function(self)
  return unread(self, "a quantized tensor")
end

builders["torch._utils._rebuild_parameter"] = function(self, args)
  if not lib.istensor(args[1]) and not require("moth.io.foreign").is_unread(args[1]) then
    refuse(self, "is broken: a parameter without a tensor")
  end
  return args[1]
end
builders["collections.OrderedDict"] = function(self, args)
  local dict = as_kind(self, {}, "dict")
  for _, pair in ipairs(type(args[1]) == "table" and args[1] or {}) do
    if type(pair) ~= "table" or #pair ~= 2 then
      refuse(self, "is broken: an OrderedDict of something else than pairs")
    end
    put(self, dict, pair[1], pair[2])
  end
  return dict
end
-- Repeats each element by its count: PyTorch's MultiStepLR stores its milestones like this.
builders["collections.Counter"] = function(self, args)
  local list, counts = {}, type(args[1]) == "table" and args[1] or {}
  for value, count in pairs(counts) do
    if type(count) ~= "number" then
      refuse(self, "holds a collections.Counter of something else than numbers", "E_UNSUPPORTED")
    elseif type(value) == "string" then
      return counts
    elseif #list + count > MOST_COUNTED then
      refuse(self, "holds a collections.Counter of very many elements", "E_UNSUPPORTED")
    end
    for _ = 1, count do list[#list + 1] = value end
  end
  table.sort(list)
  return list
end
builders["torch.Size"] = function(self, args) return sizes(self, args[1] or {}) end

local function reduce(self)
  local args, mark = pop(self), pop(self)
  local build = getmetatable(mark) == Global and builder_of(mark.name)
  if not build or type(args) ~= "table" then
    refuse(self, "is broken: its pickle calls a value that is not a function")
  end
  push(self, build(self, args))
end

-- ---- the instructions ----

local function keep(self, key)
  local value = self.stack[self.top]
  if value == nil or value == MARK then
    refuse(self, "is broken: its pickle keeps a value that is not there")
  end
  self.memo[key] = value
end

local function memo(self, key)
  local value = self.memo[key]
  if value ~= nil and self.built[value] ~= nil then value = self.built[value] end
  if value == nil then refuse(self, "is broken: its pickle reads a memo that it never wrote") end
  push(self, value)
end

local function text(self, size)
  push(self, take(self, size))
end

local function tuple(self, n)
  local list = {}
  for i = n, 1, -1 do list[i] = pop(self) end
  push(self, as_kind(self, plain(self, list), "tuple"))
end

local steps = {
  ["\128"] = function(self)
    if self.ran > 1 then refuse(self, "is broken: its pickle begins twice") end
    local protocol = unsigned(self, 1)
    if protocol < 2 or protocol > 5 then
      refuse(self, ("has a pickle of protocol %d; 2 to 5 are read"):format(protocol),
        "E_UNSUPPORTED")
    end
  end,
  ["\149"] = function(self) -- the size of a frame
    local size = unsigned(self, 8)
    if self.code and size > #self.code - self.at + 1 then
      refuse(self, "is broken: a frame of its pickle reaches beyond its end")
    end
  end,
  ["("] = function(self) push(self, MARK) end,
  ["0"] = function(self) pop(self) end,
  N = function(self) push(self, NONE) end,
  ["\136"] = function(self) push(self, true) end,
  ["\137"] = function(self) push(self, false) end,
  J = function(self) push(self, signed(self, 4)) end,
  K = function(self) push(self, unsigned(self, 1)) end,
  M = function(self) push(self, unsigned(self, 2)) end,
  ["\138"] = function(self) push(self, signed(self, unsigned(self, 1))) end,
  ["\139"] = function(self) push(self, signed(self, unsigned(self, 4))) end,
  G = function(self) push(self, double(self)) end,
  X = function(self) text(self, unsigned(self, 4)) end,
  ["\140"] = function(self) text(self, unsigned(self, 1)) end,
  ["\141"] = function(self) text(self, unsigned(self, 8)) end,
  ["U"] = function(self) text(self, unsigned(self, 1)) end,
  ["T"] = function(self) text(self, unsigned(self, 4)) end,
  ["B"] = function(self) text(self, unsigned(self, 4)) end,
  ["C"] = function(self) text(self, unsigned(self, 1)) end,
  ["}"] = function(self) push(self, as_kind(self, {}, "dict")) end,
  ["]"] = function(self) push(self, as_kind(self, {}, "list")) end,
  [")"] = function(self) push(self, as_kind(self, {}, "tuple")) end,
  ["\133"] = function(self) tuple(self, 1) end,
  ["\134"] = function(self) tuple(self, 2) end,
  ["\135"] = function(self) tuple(self, 3) end,
  t = function(self) push(self, as_kind(self, pop_mark(self), "tuple")) end,
  l = function(self) push(self, as_kind(self, pop_mark(self), "list")) end,
  a = function(self) append(self, plain(self, {pop(self)})) end,
  e = function(self) append(self, pop_mark(self)) end,
  s = function(self)
    local value, key = pop(self), pop(self)
    set_items(self, plain(self, {key, value}))
  end,
  u = function(self) set_items(self, pop_mark(self)) end,
  q = function(self) keep(self, unsigned(self, 1)) end,
  r = function(self) keep(self, unsigned(self, 4)) end,
  ["\148"] = function(self)
    keep(self, self.kept)
    self.kept = self.kept + 1
  end,
  h = function(self) memo(self, unsigned(self, 1)) end,
  j = function(self) memo(self, unsigned(self, 4)) end,
  c = function(self)
    local module = line(self)
    global(self, module, line(self))
  end,
  ["\147"] = function(self)
    local name, module = pop(self), pop(self)
    global(self, tostring(module), tostring(name))
  end,
  Q = function(self) push(self, storage(self, pop(self))) end,
  R = reduce,
  ["\129"] = reduce,
  b = function(self) -- sets attributes, such as the _metadata of a state_dict
    local state, object = pop(self), pop(self)
    local value = require("moth.io.pickled").build(self, object, state)
    if value ~= object then self.built[object] = value end
    push(self, value)
  end,
}

local function run(self)
  while true do
    lib.poll()
    local code = take(self, 1)
    self.ran = self.ran + 1
    if code == "." then
      local value = pop(self)
      if self.top > 0 then refuse(self, "is broken: its pickle leaves values behind") end
      return value
    end
    local step = steps[code]
    if not step then
      refuse(self, ("has a pickle with the instruction 0x%02X, which no checkpoint needs"):format(
        code:byte()), "E_UNSUPPORTED")
    end
    step(self)
  end
end

-- ---- files ----

local function machine(archive, device)
  return setmetatable({archive = archive, at = 1, device = device, stack = {}, top = 0,
    memo = {}, kept = 0, storages = {}, pairs = {}, attributes = {}, built = {}, notes = {},
    kinds = {}}, Machine)
end

-- Counts a text about a value that was converted or left out, for a warning.
function Machine:note(what) self.notes[what] = (self.notes[what] or 0) + 1 end

-- The value of a pickle.
local function value_of(self)
  self.stack, self.top, self.memo, self.kept, self.ran = {}, 0, {}, 0, 0
  return plain(self, {run(self)})[1]
end

-- Warns of values that were converted or left out.
local function told(self, value)
  if next(self.notes) then require("moth.io.foreign").warn(self.archive.file.shown, self.notes) end
  return value
end

local function read(archive, device)
  local self = machine(archive, device)
  for _, name in ipairs(archive.names) do
    self.root = self.root or name:match "^(.-)data%.pkl$"
  end
  if not self.root then
    return (require("moth.io.npz").read(archive, archive.file.fname, device))
  end
  local order = self.root .. "byteorder"
  if archive:length(order) and archive:read(order) ~= "little" then
    refuse(self, "was written on a big-endian machine", "E_UNSUPPORTED")
  end
  self.code = archive:read(self.root .. "data.pkl")
  return told(self, value_of(self))
end

-- ---- several pickles in a row ----

-- PyTorch's magic number and its format version, 1001; each is a pickle.
local HEAD = "\128\2\138\10l\252\156F\249 j\168P\25.\128\2M\233\3."

-- A storage whose bytes follow the pickles: a tensor without values until they are read. The
-- oldest files have views of storages: (key, offset, elements).
function Machine:promise(key, element, count, view)
  local known = self.storages[key]
  if lib.is_plain(view) and known then
    local from, n = tonumber(view[2]), tonumber(view[3])
    if not (from and n and from >= 0 and n >= 0 and from + n <= known:numel()) then
      refuse(self, "is broken: a view reaches beyond its storage")
    end
    return (known:narrow(1, from + 1, n))
  end
  if known then
    if known:numel() ~= count then refuse(self, "is broken: a storage has two sizes") end
    return known
  end
  local size = count * dtype.by_name[element].itemsize
  self.promised = (self.promised or 0) + size
  if self.promised > self.archive.file.size then
    refuse(self, ("is broken: its storages would have more than %.0f bytes"):format(
      self.archive.file.size))
  end
  local data = require("moth").empty(count, {dtype = dtype.by_name[element]})
  self.storages[key] = data:to(self.device)
  return self.storages[key]
end

-- Reads the bytes of the storages, in the order that the last pickle lists: a count, then the
-- bytes.
local function keep_promises(self, keys)
  local file, left = self.archive.file, {}
  for key in pairs(self.storages) do left[key] = true end
  for _, key in ipairs(type(keys) == "table" and keys or {}) do
    local data = left[key] and self.storages[key]
    local count = file:uint(8)
    if not data or count ~= data:numel() then
      refuse(self, ("is broken: storage %s has %.0f elements, %s in its pickle"):format(shown(
        tostring(key)), count, data and ("%.0f"):format(data:numel()) or "none"))
    end
    lib.poll()
    local at = file:take(data:numel() * data.dtype.itemsize, "a storage")
    data:copy_(file:tensor(data.dtype.name, {data:numel()}, at))
    left[key] = nil
  end
  if next(left) then refuse(self, "is broken: it ends before its storages do") end
end

local function read_row(file, device)
  local self = machine({file = file}, device)
  if file:text(#HEAD, "its first pickles") ~= HEAD then
    refuse(self, "is a pickle that torch.save did not write", "E_UNSUPPORTED")
  end
  local system = value_of(self)
  if type(system) ~= "table" or system.little_endian ~= true then
    refuse(self, "was written on a big-endian machine", "E_UNSUPPORTED")
  end
  local value = value_of(self)
  keep_promises(self, value_of(self))
  return told(self, value)
end

--- Reads a file of torch.save. Dicts and lists become tables; dict keys keep their types; tensors
-- that shared a storage share it again. None in a dict is absent, in a list it is moth.none.
-- pickled.lua lists Python's and NumPy's own objects. Nothing in the file is called.
-- @param path  the file
-- @param fname  the function that errors name
-- @param device  the device of the tensors
-- @param mmap  share the file's pages instead of reading it (default true)
-- @return the value; raises E_IO, E_FORMAT, or E_UNSUPPORTED with the name of the object that is
-- not plain data
function pickle.load(path, fname, device, mmap)
  local file = files.open(path, fname, "path", mmap)
  if file.size > 0 and file.start[0] == HEAD:byte() then return (read_row(file, device)) end
  file:close()
  return (read(zip.open(path, fname, mmap), device))
end

return pickle
