--- init.lua -- the metatype of tensors: operators, fields, methods.
--
-- A tensor is a handle of two numbers; this file fills the metatype. x[key] depends on the kind of
-- key: a number selects a row, a table or a tensor indexes (index.lua), a name is a method or a
-- field. Most methods are ops, bound at their first use. The others are in tensor/, by subject;
-- each file is loaded at the first use of one of its names.

local bind = require "moth.binding.bind"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"
local look = require "moth.tensor.look"

local ops, istensor = bind.ops, lib.istensor

local tensors = {}

local methods, getters, setters = {}, {}, {}

-- ---- fields and methods written in Lua ----

--- The names that each file of tensor/ defines, in the format of lazy.from.
tensors.parts = {}
lazy.from(tensors.parts, "moth.tensor.facts",
  "shape ndim dtype device is_cuda itemsize _version nbytes "
  .. "size stride dim ndimension numel nelement storage_offset element_size data_ptr "
  .. "is_contiguous is_floating_point is_signed is_set_to is_sparse layout values indices "
  .. "T mT H mH adjoint")
lazy.from(tensors.parts, "moth.tensor.values", "item tolist")
lazy.from(tensors.parts, "moth.tensor.convert",
  "to pin_memory is_pinned record_stream type type_as cpu "
  .. "cuda bool byte char short int long half bfloat16 float double")
lazy.from(tensors.parts, "moth.tensor.graph",
  "requires_grad is_leaf retains_grad grad_fn grad data "
  .. "backward detach detach_ requires_grad_ retain_grad free")
lazy.from(tensors.parts, "moth.tensor.hooks", "register_hook register_post_accumulate_grad_hook")
lazy.from(tensors.parts, "moth.tensor.later", "materialize")

local loaded = {}

-- Loads the file that defines a name. Returns true if a file was loaded.
local function load_part(name)
  local part = lazy.module(tensors.parts, name)
  if not part or loaded[part] then return false end
  local found = require(part)
  for key, method in pairs(found.methods) do methods[key] = method end
  for key, getter in pairs(found.getters or {}) do getters[key] = getter end
  for key, setter in pairs(found.setters or {}) do setters[key] = setter end
  loaded[part] = true
  return true
end

--- name -> method, for all methods written in Lua and all ops bound so far.
function tensors.written()
  lazy.each(tensors.parts, load_part)
  return methods
end

-- ---- x[key] ----

--- The names of a tensor's methods and fields; only methods if of_methods is true.
function tensors.names(of_methods)
  local list = {}
  for name in pairs(tensors.written()) do
    if name ~= "short" and name ~= "int" then list[#list + 1] = name end -- near to too much
  end
  for name in pairs(of_methods and {} or getters) do list[#list + 1] = name end
  for _, name in ipairs(bind.method_names()) do list[#list + 1] = name end
  return list
end

-- The replacement of an unknown name, if there is one.
local function missing(name)
  local text = require("moth.error.instead").find("tensor", name)
  return text and "; " .. text
end

-- A method or field at its first use. Raises for an unknown name and suggests the nearest name.
local function first_time(x, name)
  if load_part(name) then return x[name] end
  local f = bind.method(name)
  if f == nil then
    errors.raise("a tensor has no field or method '" .. name .. "'"
      .. (missing(name) or errors.nearest(name, tensors.names()))
      .. require("moth.error.stack").dotted(function(v) return istensor(v) and v._slot ==
      x._slot end))
  end
  methods[name] = f
  return f
end

local index -- moth.index after its first use

local function get_other(x, key)
  index = index or require "moth.tensor.index"
  if type(key) == "table" then return index.get(x, key) end
  if istensor(key) then
    return (index.get_tensor(x, key))
  end
  errors.raise("a tensor is indexed by a position, a table, a mask or an integer tensor, got "
    .. errors.describe(key), "E_TYPE")
end

local function get(x, key)
  if type(key) == "string" then
    local f = methods[key]
    if f ~= nil then return f end
    local getter = getters[key]
    if getter then return getter(x) end
    return first_time(x, key)
  end
  if type(key) == "number" then return ops.select(x, 1, key) end
  return get_other(x, key)
end

local function set_other(x, key, value)
  index = index or require "moth.tensor.index"
  if type(key) == "number" then
    index.set_position(x, key, value)
  elseif type(key) == "table" then
    index.set(x, key, value)
  elseif istensor(key) then
    index.set_tensor(x, key, value)
  else
    errors.raise("a tensor has no field '" .. tostring(key) .. "' to assign")
  end
end

local function set(x, key, value)
  if type(key) ~= "string" then
    set_other(x, key, value)
  elseif setters[key] then
    setters[key](x, value)
  elseif load_part(key) then
    x[key] = value
  elseif getters[key] or methods[key] or bind.method(key) then
    errors.raise("'" .. key .. "' of a tensor cannot be assigned")
  else
    tensors.written()
    local list = {}
    for name in pairs(setters) do list[#list + 1] = name end
    errors.raise("a tensor has no field '" .. key .. "' to assign"
      .. errors.nearest(key, list))
  end
end

-- ---- operators ----

tensors.metatable = {
  __index = get,
  __newindex = set,
  __len = function(x)
    local t = look.inspect(x, "#")
    if t.ndim == 0 then errors.raise("a 0-d tensor has no length", "E_SHAPE") end
    return tonumber(t.shape[0])
  end,
  __tostring = function(x) return (require("moth.tensor.print").tostring(x)) end,
}

for name, fn in pairs(require "moth.tensor.operators") do tensors.metatable[name] = fn end
lib.metatype(tensors.metatable)

return tensors
