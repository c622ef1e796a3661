--- pickled.lua -- reads Python's and NumPy's own objects in a pickle as data: training scripts
-- save them with the weights. pickle.lua loads this file for names that tensors do not need.
-- Nothing is called.
--
-- Sets and deques become lists. A Namespace becomes a table of its attributes. Paths, devices and
-- bytes become texts. A complex number becomes {real, imaginary}. NumPy's scalars become numbers.
-- A Counter of texts becomes a table of counts.

local pickled = {}

-- Name -> function(self, arguments) -> the result of a call. self is the machine of pickle.lua.
local builders = {}
pickled.builders = builders

local function refuse(self, text) self.archive.file:refuse(text, "E_UNSUPPORTED") end

local function names(list, build)
  for name in list:gmatch "%S+" do builders[name] = build end
end

local function unread(self, what)
  self:note(what .. " is not loaded")
  return require("moth.io.foreign").unread(what)
end

-- ---- of PyTorch: tensors that are not strided ----

names("torch.serialization._get_layout", function(_, args) return args[1] end)
names("torch._utils._rebuild_sparse_tensor", function(self, args)
  return unread(self, ("a sparse tensor, %s; save it dense, by to_dense()"):format(
    type(args[1]) == "string" and args[1] or "of an unknown layout"))
end)
names("torch._utils._rebuild_nested_tensor", function(self)
  return unread(self, "a nested tensor")
end)

-- ---- of Python ----

local function as_list(self, args)
  local list = args[1] or {}
  if type(list) ~= "table" then refuse(self, "holds a set or list of something else") end
  self.kinds[list] = "list"
  return list
end
names("__builtin__.set __builtin__.frozenset __builtin__.list __builtin__.tuple builtins.set "
  .. "builtins.frozenset builtins.list builtins.tuple collections.deque", as_list)

-- The attributes follow (BUILD).
local function with_attributes(self)
  local object = {}
  self.attributes[object] = true
  return object
end
names("argparse.Namespace types.SimpleNamespace", with_attributes)

names("collections.defaultdict __builtin__.dict builtins.dict", function(self)
  local dict = {}
  self.kinds[dict] = "dict"
  return dict
end)

--- An integer of any size, the lowest byte first, as decimal text.
function pickled.long(text)
  local digits, negative = {0}, text:byte(#text) >= 128 -- groups of 6 digits, the lowest first
  local carried = negative and 1 or 0
  local list = {}
  for i = 1, #text do -- the two's complement of a negative number
    local byte = negative and 255 - text:byte(i) + carried or text:byte(i)
    list[i], carried = byte % 256, negative and math.floor(byte / 256) or 0
  end
  for i = #list, 1, -1 do
    local carry = list[i]
    for k = 1, #digits do
      carry = digits[k] * 256 + carry
      digits[k], carry = carry % 1000000, math.floor(carry / 1000000)
    end
    if carry > 0 then digits[#digits + 1] = carry end
  end
  local parts = {negative and "-" or "", ("%d"):format(digits[#digits])}
  for k = #digits - 1, 1, -1 do parts[#parts + 1] = ("%06d"):format(digits[k]) end
  return "an integer of more than 64 bits, " .. table.concat(parts)
end

local function first(_, args) return args[1] end
names("__builtin__.int __builtin__.float __builtin__.str __builtin__.bool builtins.int "
  .. "builtins.float builtins.str builtins.bool __builtin__.bytearray builtins.bytearray", first)

names("__builtin__.complex builtins.complex", function(self, args)
  if type(args[1]) ~= "number" or type(args[2]) ~= "number" then
    refuse(self, "holds a complex number of something else than numbers")
  end
  return {args[1], args[2]}
end)

-- Bytes are stored as a text; its code points are the bytes.
builders["_codecs.encode"] = function(self, args)
  local text = args[1]
  if type(text) ~= "string" or args[2] ~= "latin1" or text:find "[\196-\255]" then
    refuse(self, "holds bytes in an unknown way")
  end
  return (text:gsub("([\194\195])([\128-\191])", function(high, low)
    return string.char((high:byte() - 192) * 64 + low:byte() - 128)
  end))
end

local function path(self, args)
  for _, part in ipairs(args) do
    if type(part) ~= "string" then refuse(self, "holds a path of something else than texts") end
  end
  return (table.concat(args, "/"):gsub("^//", "/"))
end
for class in ("PosixPath PurePosixPath WindowsPath PureWindowsPath"):gmatch "%S+" do
  names("pathlib." .. class .. " pathlib._local." .. class, path)
end

-- ---- of PyTorch ----

builders["torch.device"] = function(self, args)
  if type(args[1]) ~= "string" then refuse(self, "holds a device without a name") end
  return args[2] and args[1] .. ":" .. tostring(args[2]) or args[1]
end

-- ---- of NumPy ----

local Kind, Array = {}, {}

--- Classes that are only values, such as dtypes: the value is the name.
pickled.names = {["numpy.ndarray"] = true, ["torch.per_tensor_affine"] = true,
                 ["torch.per_channel_affine"] = true}

builders["numpy.dtype"] = function(self, args)
  if type(args[1]) ~= "string" then refuse(self, "holds a dtype of NumPy without a name") end
  local foreign = require "moth.io.foreign"
  return setmetatable({code = args[1], name = foreign.numpy_dtypes[args[1]],
    format = foreign.numpy_formats[args[1]]}, Kind)
end

-- Elements of a dtype from bytes: a tensor, or a placeholder that names the dtype.
local function elements(self, kind, bytes, shape, what)
  local moth, foreign = require "moth", require "moth.io.foreign"
  local width = kind.name and moth[kind.name].itemsize or kind.format
    and foreign.width(kind.format)
  local count = 1
  for _, n in ipairs(shape) do count = count * n end
  if not width then return unread(self, ("%s of NumPy's dtype '%s'"):format(what, kind.code)) end
  if type(bytes) ~= "string" or #bytes ~= count * width then
    refuse(self, ("holds %s in an unknown way"):format(what))
  end
  if #bytes == 0 then return moth.zeros(shape, {dtype = moth[kind.name or "int64"]}) end
  local given = moth.frombuffer(bytes, moth.uint8)
  if kind.name then
    return require("moth.io.bytes").as(given, kind.name, shape, 0, "load", kind.big)
  end
  local x, target = foreign.convert(given, kind.format, shape, 0, kind.big)
  if not x then return unread(self, ("%s of %s %s"):format(what, kind.format, target)) end
  self:note(("%s of %s is loaded as %s"):format(what, kind.format, target))
  return x
end

local function scalar(self, args)
  local kind, bytes = args[1], args[2]
  if type(kind) ~= "table" or getmetatable(kind) ~= Kind then
    refuse(self, "holds a NumPy scalar in an unknown way")
  end
  local x = elements(self, kind, bytes, {}, "a NumPy scalar")
  if not require("moth.binding.lib").istensor(x) then return x end
  return x:dim() == 0 and x:item() or x:tolist()
end
names("numpy.core.multiarray.scalar numpy._core.multiarray.scalar", scalar)

-- An array is empty until its state is read (BUILD).
names("numpy.core.multiarray._reconstruct numpy._core.multiarray._reconstruct", function(self, args)
  if args[1] ~= "numpy.ndarray" then refuse(self, "holds an array of an unknown class") end
  return setmetatable({}, Array)
end)

-- (version, shape, dtype, Fortran order (bool), bytes)
local function array(self, state)
  local shape, kind = state[2], state[3]
  if type(shape) ~= "table" or type(kind) ~= "table" or getmetatable(kind) ~= Kind then
    refuse(self, "holds a NumPy array in an unknown way")
  end
  if #shape > 8 then return unread(self, "a NumPy array of more than 8 dimensions") end
  for _, n in ipairs(shape) do
    if type(n) ~= "number" or not (n >= 0 and n <= 2 ^ 52) then
      refuse(self, "holds a NumPy array of impossible sizes")
    end
  end
  local sizes, dims = {}, {}
  for d = 1, #shape do
    local at = state[4] == true and #shape - d + 1 or d
    sizes[d], dims[d] = shape[at], at
  end
  local x = elements(self, kind, state[5], sizes, "a NumPy array")
  if not require("moth.binding.lib").istensor(x) or state[4] ~= true then return x end
  for d = #dims + 1, x:dim() do dims[d] = d end -- the dimension of the pairs
  return x:permute(dims):contiguous()
end

-- ---- attributes ----

--- Applies the attributes in `state` (BUILD) to an object; most objects need none of them.
function pickled.build(self, object, state)
  if type(object) ~= "table" or type(state) ~= "table" then return object end
  if getmetatable(object) == Kind then
    object.big = state[2] == ">"
  elseif getmetatable(object) == Array then
    return (array(self, state))
  elseif self.attributes[object] then
    for name, value in pairs(state) do object[name] = value end
  end
  return object
end

--- Accepts the factory of a defaultdict: the function that creates missing values.
pickled.factories = {}
for name in ("list dict int float str set bool tuple"):gmatch "%S+" do
  pickled.factories["__builtin__." .. name], pickled.factories["builtins." .. name] = true, true
end

return pickled
