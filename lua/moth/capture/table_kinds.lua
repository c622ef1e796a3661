--- table_kinds.lua -- the kinds of tables that a captured step reads (outer_values.lua): modules,
-- namespaces, objects of Moth, and tables of the user.

local class = require "moth.base.class"
local errors = require "moth.error"

local getmetatable = debug and debug.getmetatable or getmetatable
local is_own = errors.is_own

local kinds = {}

--- Lua's libraries.
local LIBRARIES = {}
kinds.LIBRARIES = LIBRARIES
for _, name in ipairs {"_G", "string", "table", "math", "io", "os", "debug", "coroutine", "package",
                       "bit", "jit", "ffi"} do
  if package.loaded[name] then LIBRARIES[package.loaded[name]] = true end
end

-- A namespace of Moth or of Lua: only values with a known path are watched in it.
local function is_library(t)
  if LIBRARIES[t] then return true end
  local meta = getmetatable(t)
  if type(meta) ~= "table" or class.typename(t) then return false end
  local index = rawget(meta, "__index")
  return type(index) == "function" and is_own(index)
end

-- Returns true if a class is Moth's: its functions are defined in Moth's files.
local function own_class(c)
  for _, value in next, c do
    if type(value) == "function" then return is_own(class.written(value)) end
  end
  return false
end

local DATA = {Distribution = true, Transform = true, Constraint = true}

--- "module", "library", "data" (of Moth, all its fields count), "opaque" or "table".
function kinds.sort_of(t)
  if is_library(t) then return "library" end
  local meta = getmetatable(t)
  if meta == nil then return "table" end
  if type(meta) ~= "table" then return "opaque" end
  local c = class.of(t)
  if class.isclass(t) then return own_class(t) and "opaque" or "table" end
  if not c then
    local call = rawget(meta, "__call") or rawget(meta, "__index")
    return type(call) == "function" and is_own(call) and "opaque" or "table"
  end
  local Module = package.loaded["moth.nn.module"]
  if Module and class.isinstance(t, Module) then return "module" end
  if not own_class(c) then return "table" end
  while c do
    if DATA[class.typename(c)] then return "data" end
    c = class.base(c)
  end
  return "opaque"
end

--- Returns true if t[key] runs no function; without a key, if a missing key runs none.
function kinds.is_chained(t, key)
  for _ = 1, 100 do
    if key ~= nil and rawget(t, key) ~= nil then return true end
    local meta = getmetatable(t)
    if type(meta) ~= "table" then return meta == nil end
    local index = rawget(meta, "__index")
    if type(index) ~= "table" then return index == nil end
    t = index
  end
  return false
end

kinds.own_class = own_class

return kinds
