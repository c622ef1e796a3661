--- pickled.lua -- Python's and NumPy's own objects in a pickle, as data: what training scripts put
-- beside weights. pickle.lua comes here for names that tensors do not need; nothing is called.
--
-- Sets and deques are lists, a Namespace a table of its attributes, paths and devices are texts,
-- bytes too, a complex number is {real, imaginary}, NumPy's scalars are numbers, a Counter of texts
-- is a table of counts.

local pickled = {}

-- Name -> function(self, arguments) -> what a call of it gives. self is the machine of pickle.lua.
local builders = {}
pickled.builders = builders

local function refuse(self, text) self.archive.file:refuse(text, "E_UNSUPPORTED") end

local function names(list, build)
  for name in list:gmatch "%S+" do builders[name] = build end
end

-- ---- of Python ----

local function as_list(self, args)
  local list = args[1] or {}
  if type(list) ~= "table" then refuse(self, "holds a set or list of something else") end
  return list
end
names("__builtin__.set __builtin__.frozenset __builtin__.list __builtin__.tuple builtins.set "
  .. "builtins.frozenset builtins.list builtins.tuple collections.deque", as_list)

-- Attributes come later (BUILD).
local function with_attributes(self)
  local object = {}
  self.attributes[object] = true
  return object
end
names("argparse.Namespace types.SimpleNamespace", with_attributes)

names("collections.defaultdict __builtin__.dict builtins.dict", function() return {} end)

local function first(_, args) return args[1] end
names("__builtin__.int __builtin__.float __builtin__.str __builtin__.bool builtins.int "
  .. "builtins.float builtins.str builtins.bool __builtin__.bytearray builtins.bytearray", first)

names("__builtin__.complex builtins.complex", function(self, args)
  if type(args[1]) ~= "number" or type(args[2]) ~= "number" then
    refuse(self, "holds a complex number of something else than numbers")
  end
  return { args[1], args[2] }
end)

-- Bytes are written as a text whose code points they are.
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

local KINDS = { f8 = "float64", f4 = "float32", f2 = "float16", i8 = "int64", i4 = "int32",
                i2 = "int16", i1 = "int8", u1 = "uint8", b1 = "bool" }
local Kind = {}

builders["numpy.dtype"] = function(self, args)
  if not KINDS[args[1]] then
    refuse(self, "holds a NumPy scalar of kind " .. require("moth.error").describe(args[1]))
  end
  return setmetatable({ name = KINDS[args[1]] }, Kind)
end

local function scalar(self, args)
  local moth = require "moth"
  local kind, bytes = args[1], args[2]
  if type(kind) ~= "table" or getmetatable(kind) ~= Kind or type(bytes) ~= "string"
    or #bytes ~= moth[kind.name].itemsize then
    refuse(self, "holds a NumPy scalar in an unknown way")
  end
  return (moth.frombuffer(bytes, moth[kind.name]):item())
end
names("numpy.core.multiarray.scalar numpy._core.multiarray.scalar", scalar)

-- ---- attributes ----

--- Puts the attributes in `state`, as BUILD has them, into an object that has some.
function pickled.build(self, object, state)
  if type(object) ~= "table" or type(state) ~= "table" then return end
  if getmetatable(object) == Kind and state[2] == ">" then
    refuse(self, "holds NumPy scalars of a big-endian machine")
  elseif self.attributes[object] then
    for name, value in pairs(state) do object[name] = value end
  end
end

--- What may stand where Python wants a function that makes the values a dict lacks.
pickled.factories = {}
for name in ("list dict int float str set bool tuple"):gmatch "%S+" do
  pickled.factories["__builtin__." .. name], pickled.factories["builtins." .. name] = true, true
end

return pickled
