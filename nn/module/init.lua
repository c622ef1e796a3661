--- init.lua -- nn.Module: the base of all networks and layers.
--
--     local Net = nn.class("Net", nn.Module)
--     function Net:init() self.fc = nn.Linear(320, 50) end
--     function Net:forward(x) return F.relu(self.fc(x)) end
--
-- Assigning a Module, Parameter or Buffer to a field registers it. The order is the order of
-- assignment (Lua assigns `self.a, self.b = x, y` from the right). nil unregisters; other values
-- are plain fields. A module's table contains only its store, which contains the fields, so that
-- __newindex sees each assignment. Containers of nn/layer/container.lua also store their modules in
-- the array part of the table.
--
-- This file has the store, registration and printing. walk.lua (children, parameters, train, to)
-- and call.lua (calling, hooks) add the other methods; state.lua implements state dicts.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local parameter = require "moth.nn.module.parameter"

--- The base of all networks and layers. Your class defines `init`, which creates its parts, and
-- `forward`, which `net(...)` calls with its arguments. Modules, Parameters and Buffers in fields
-- are registered: net:parameters(), net:state_dict(), net:to() and print(net) include them.
local Module = class("Module")

local STORE = "(store)"
local keep, kind_of, waiting = parameter.keep, parameter.kind, parameter.waiting

-- ---- the store ----

function Module.__new(own)
  return {
    [STORE] = {
      class = own,
      fields = {training = true},
      kind = {},      -- name -> "module", "parameter", "buffer" or "transient"
      order = {},     -- the registered names, in order of assignment
      names = false, -- custom names of a container's array part, by position
      watch = false,  -- plain table fields that may contain modules
      hooks = false,
      computed = false, -- fields computed each time they are read: name -> {get =, set =}
    },
  }
end

class.lookup(Module, function(self, key)
  local store = self[STORE]
  local value = store.fields[key]
  if value ~= nil then return value end
  local computed = store.computed
  if computed and computed[key] then return (computed[key].get(self)) end
  local n = store.names and #self
  if n and lib.is_plain(key) then
    local owner = errors.one(class.typename(self))
    return (self:_slice(require("moth.tensor.index").bounds(key, n, owner)))
  elseif n and type(key) == "number" then
    if key >= -n and key < 0 then return rawget(self, n + 1 + key) end
    errors.raise(("%s[%s]: %s"):format(class.typename(self), tostring(key),
      n == 0 and "it is empty" or ("positions are 1 to %d"):format(n)), "E_INDEX")
  end
  return store.class[key]
end)

local function ismodule(x)
  return class.isinstance(x, Module)
end

-- Called when a part of the given kind is added, removed or replaced.
local function see(kind)
  local sight = Module.sight
  if kind == "module" then sight.changed() else sight.parts = sight.parts + 1 end
end

local function drop_name(store, name)
  see(store.kind[name])
  store.kind[name] = nil
  for i, other in ipairs(store.order) do
    if other == name then return table.remove(store.order, i) end
  end
end

local function check_name(self, name)
  if type(name) ~= "string" or name == "" or name:find(".", 1, true) then
    errors.raise(("cannot register under %s in %s (names are strings, not empty, without dots; " ..
      "nn.ModuleList holds modules by position)"):format(errors.describe(name),
      class.typename(self)))
  end
end

local registered = {module = {}, parameter = {}, buffer = {}} -- hooks on registration, by kind
Module.registration_hooks = registered

-- Registers value under a name; a registered name keeps its position.
local function register(self, name, value, kind)
  check_name(self, name)
  local store = self[STORE]
  local hooks = registered[kind == "transient" and "buffer" or kind]
  for i = 1, #hooks do
    local other = hooks[i].fn(self, name, value)
    if other ~= nil then value = other end
  end
  if not store.kind[name] then store.order[#store.order + 1] = name end
  see(store.kind[name] and kind)
  store.kind[name] = kind
  store.fields[name] = value
  if kind == "module" then Module.sight.parents[value] = self else keep(value) end
  if waiting[value] ~= nil then
    waiting[value] = ("'%s' of %s"):format(name, class.typename(self))
  end
end

local expected = {
  module = "a module or nil", parameter = "nn.Parameter or nil",
  buffer = "a tensor or nil", transient = "a tensor or nil",
}

-- Returns the kind under which a value is registered, or nil for a plain value.
local function registers_as(value)
  if type(value) == "cdata" then return kind_of(value) end
  if ismodule(value) then return "module" end
end

-- Methods whose names may also be fields: users name fields `children`, `cuda` or `type`.
local FREE = {type = true, half = true, float = true, double = true, bfloat16 = true, cpu = true,
              cuda = true, apply = true, children = true, buffers = true}

-- Raises if a plain value would hide a method: `net.train = true` is probably a mistaken call. A
-- function may replace a method.
local function check_plain(self, name, value)
  local meta = type(value) == "table" and getmetatable(value)
  if type(value) == "function" or FREE[name] or (type(meta) == "table" and meta.__call) then
    return
  end
  local call = "choose another name for the field"
  if type(value) == "boolean" and (name == "train" or name == "eval") then
    call = ("write net:%s(); net.training is the mode"):format(
      (name == "train") == value and "train" or "eval")
  end
  errors.raise(("'%s' is a method of %s; a field of that name would hide it; %s"):format(name,
    class.typename(self), call))
end

function Module:__newindex(name, value)
  local store = self[STORE]
  if store.computed and store.computed[name] then return store.computed[name].set(self, value) end
  local was = store.kind[name]
  local kind = registers_as(value)
  if kind then
    if type(Module[name]) == "function" then
      errors.raise(("'%s' is a method of Module; choose another name for the %s"):format(name,
        kind == "transient" and "buffer" or kind))
    end
    return register(self, name, value, kind)
  end
  if was then
    if value == nil then
      drop_name(store, name)
      store.fields[name] = nil
    elseif (was == "buffer" or was == "transient") and lib.istensor(value) then
      store.fields[name] = value
      keep(value)
      see(was)
    else
      errors.raise(("cannot assign %s to the %s '%s' of %s (%s is needed)"):format(
        errors.describe(value), was == "transient" and "buffer" or was, name,
        class.typename(self), expected[was]))
    end
    return
  end
  if type(value) ~= "nil" and store.fields[name] == nil and type(Module[name]) == "function" then
    check_plain(self, name, value)
  end
  if name == "forward" then Module.sight.changed() end
  local sort = type(value)
  if sort == "cdata" or sort == "table" then
    keep(value)
    if sort == "table" and getmetatable(value) == nil then
      store.watch = store.watch or {}
      store.watch[name] = true
    end
  end
  if not rawequal(store.fields[name], value) then
    Module.sight.fields = Module.sight.fields + 1
  end
  store.fields[name] = value
end

-- ---- tables that contain unregistered modules ----

-- Returns the path of the first module or Parameter in a plain table, or nil.
local function hidden_in(value, path, depth)
  local seen = 0
  for key, inner in pairs(value) do
    seen = seen + 1
    if seen > 64 then return nil end
    local here = type(key) == "string" and path .. "." .. key
      or path .. "[" .. tostring(key) .. "]"
    if registers_as(inner) then return here, inner end
    if depth > 0 and lib.is_plain(inner) then
      local found, what = hidden_in(inner, here, depth - 1)
      if found then return found, what end
    end
  end
end

--- Warns once about each plain table field that contains modules, which are not registered. Walks
-- over a module's children call it, and a module's calls until one succeeds.
function Module:_watch()
  local store = self[STORE]
  for name in pairs(store.watch) do
    local value = store.fields[name]
    if not lib.is_plain(value) or store.kind[name] then
      store.watch[name] = nil
    else
      local path, what = hidden_in(value, class.typename(self) .. "." .. tostring(name), 2)
      if path then
        store.watch[name] = nil
        require("moth").warn(("%s is %s in a plain table, so it is not registered: " ..
          "its parameters are neither trained nor saved (hold modules in nn.ModuleList or " ..
          "nn.ModuleDict)"):format(path, errors.one(parameter.typename(what))))
      end
    end
  end
  if next(store.watch) == nil then store.watch = false end
end

-- ---- registration by name ----

-- Raises if a new name would hide a method or a plain field.
local function check_free(self, name, kind)
  check_name(self, name)
  local was = self[STORE].kind[name]
  if self[name] ~= nil and not (was == kind or (was == "transient" and kind == "buffer")) then
    errors.raise(("cannot register the %s '%s': %s already has a field or method of that "
      .. "name"):format(
      kind, name, class.typename(self)))
  end
end

--- Registers a module under a name, as `self[name] = module` does.
-- @param name    string without dots, not yet a field or method
-- @param module  a Module, or nil to unregister
function Module:add_module(name, module)
  check_free(self, name, "module")
  if module ~= nil and not ismodule(module) then
    errors.refuse("add_module", "module", "a module is needed", module)
  end
  self[name] = module
end
Module.register_module = Module.add_module

--- Registers a Parameter under a name, as `self[name] = nn.Parameter(x)` does.
-- @param name   string without dots, not yet a field or method
-- @param param  an nn.Parameter, or nil to unregister
function Module:register_parameter(name, param)
  check_free(self, name, "parameter")
  if param == lib.none then param = nil end
  if param ~= nil and kind_of(param) ~= "parameter" then
    errors.refuse("register_parameter", "param", "nn.Parameter is needed", param)
  end
  self[name] = param
end

local parse_buffer = define.signature("register_buffer", {
  {"string", "name", "without dots, not yet a field or method"},
  {"tensor", "tensor", "any tensor; none unregisters", optional = true},
  {"bool", "persistent", "is it part of the state_dict?", default = true},
})

--- Registers a tensor that is part of the module's state but not trained.
-- @param name        string without dots, not yet a field or method
-- @param tensor      any tensor, or nil to unregister
-- @param persistent  include it in the state_dict? (default true)
function Module:register_buffer(...)
  local name, tensor, persistent = parse_buffer(...)
  local given = select(2, ...)
  check_free(self, name, "buffer")
  if lib.is_plain(given) and next(given) == nil then -- an empty option table would unregister
    errors.refuse("register_buffer", "tensor", "a tensor is needed", given)
  elseif tensor == nil then
    self[name] = nil
  elseif kind_of(tensor) == "parameter" then
    errors.argument("register_buffer", "tensor", "is an nn.Parameter; pass its detach()")
  else
    register(self, name, tensor, persistent == false and "transient" or "buffer")
  end
end

define.takes(Module.register_buffer, parse_buffer)

--- Adds a computed field, which stores no value. nn.utils.parametrize and similar functions use it.
-- @param name  the field's name, which must be free
-- @param get   function(module) -> its value; nil removes the field
-- @param set   function(module, value), called when the field is assigned
function Module:_compute(name, get, set)
  local store = self[STORE]
  store.computed = store.computed or {}
  store.computed[name] = get and {get = get, set = set} or nil
  if next(store.computed) == nil then store.computed = false end
  see "computed"
end

--- Returns a copy of the module that shares no tensor with it. Parameters keep requires_grad and
-- have no gradient; buffers, plain fields and hooks are copied; tied tensors stay tied.
-- @return the copy
function Module:deepcopy()
  return (require "moth.base.deepcopy".deepcopy(self))
end

-- ---- access by path ----

-- Splits a path into its steps: PyTorch's "layers.0.weight" or Lua's "layers[1].weight".
local function steps(fname, path)
  if type(path) ~= "string" then
    errors.refuse(fname, "target", "a path like 'layers.0' is needed", path)
  end
  local list = {}
  path = path:gsub("%[(%d+)%]", function(i) return "." .. (tonumber(i) - 1) end)
  for step in path:gmatch("[^.]+") do list[#list + 1] = step end
  return list
end

local function descend(self, fname, list, last)
  local here = self
  for i = 1, last do
    local found
    for _, child in ipairs(here:_children()) do
      if child[1] == list[i] then found = child[2] end
    end
    if not found then
      local names = {}
      for _, child in ipairs(here:_children()) do names[#names + 1] = child[1] end
      local hint = errors.nearest(list[i], names)
      if here[STORE].names and list[i]:find "^%d+$" and #here > 0 then
        hint = ('; names count from 0: net[%d] is "%s"'):format(#here, names[#names])
      end
      errors.argument(fname, "target", ("%s has no submodule '%s'%s"):format(
        class.typename(here), list[i], hint))
    end
    here = found
  end
  return here
end

--- The module at a path: `net:get_submodule("layers.0")`, also written "layers[1]"; "" is the
-- module itself.
function Module:get_submodule(target)
  local list = steps("get_submodule", target)
  return descend(self, "get_submodule", list, #list)
end

--- Puts a module at a path; all modules on the path must exist, except the last.
function Module:set_submodule(target, module)
  local list = steps("set_submodule", target)
  if #list == 0 then
    errors.argument("set_submodule", "target", "an empty path is not allowed")
  elseif not ismodule(module) then
    errors.refuse("set_submodule", "module", "a module is needed", module)
  end
  local parent, name = descend(self, "set_submodule", list, #list - 1), list[#list]
  local at = parent[STORE].names and parent:_position(name)
  if at then parent[at] = module else parent[name] = module end
end

local function get_tensor(self, fname, what, target)
  local list = steps(fname, target)
  local parent, name = descend(self, fname, list, #list - 1), list[#list]
  local store, names = parent[STORE], {}
  local kind = store.kind[name]
  if kind == "transient" then kind = "buffer" end
  if kind == what then return store.fields[name] end
  for other, its in pairs(store.kind) do
    if its == what then names[#names + 1] = other end
  end
  return errors.argument(fname, "target", ("%s has no %s '%s'%s"):format(class.typename(parent),
    what, tostring(name), errors.nearest(tostring(name), names)))
end

--- The Parameter at a path: `net:get_parameter("fc.weight")`.
function Module:get_parameter(target)
  return (get_tensor(self, "get_parameter", "parameter", target))
end

--- The buffer at a path.
function Module:get_buffer(target)
  return (get_tensor(self, "get_buffer", "buffer", target))
end

-- ---- printing ----

--- The text between the parentheses of a module without children; layers override it.
function Module:extra_repr()
  return ""
end

local function printed(self)
  local lines = {}
  local extra = self:extra_repr()
  local position = self[STORE].names
  for i, child in ipairs(self:_children()) do
    local name = position and tostring(i - 1) == child[1] and tostring(i) or child[1]
    name = errors.bare(name, 120)
    lines[#lines + 1] = "  (" .. name .. "): " .. tostring(child[2]):gsub("\n", "\n  ")
  end
  local name = class.typename(self)
  if #lines == 0 then return name .. "(" .. extra .. ")" end
  if extra ~= "" then table.insert(lines, 1, "  " .. extra) end
  return name .. "(\n" .. table.concat(lines, "\n") .. "\n)"
end

--- Returns the names of the module's fields, for completion.
function Module:__names()
  local list = {}
  for name in pairs(self[STORE].fields) do list[#list + 1] = tostring(name) end
  return list
end

local printing = {} -- modules that are being printed; this list stops recursion

function Module:__tostring()
  if printing[self] then return class.typename(self) .. "(...)" end
  printing[self] = true
  local ok, text = pcall(printed, self)
  printing[self] = nil
  if not ok then error(text, 0) end
  return text
end

-- ---- state dicts ----

local parse_state = define.signature("state_dict", {
  {"any", "destination", "a state dict to add to", optional = true},
  {"string", "prefix", "put before every name", default = ""},
  {"bool", "keep_vars", "return the Parameters, not detached tensors", default = false},
})

--- The module's parameters and buffers by path, as an ordered map with PyTorch's names. The
-- tensors are detached and share the module's storage; tied tensors appear under each name.
-- `net:state_dict{destination, prefix = "", keep_vars = false}`
-- @return a StateDict: read by name, `sd:items()` iterates in order
function Module:state_dict(...)
  return (require "moth.nn.module.state".save(self, parse_state(...)))
end
define.takes(Module.state_dict, parse_state)

local parse_load = define.signature("load_state_dict", {
  {"map", "state_dict", "names and tensors, as state_dict returns them"},
  {"bool", "strict", "raise for missing and unexpected names?", default = true},
  {"bool", "assign", "use the tensors themselves instead of copying their values",
    default = false},
})

--- Copies the values of a state dict into the module's parameters and buffers. Values of another
-- dtype are converted. If names or shapes do not match, one error lists all of them, and nothing is
-- changed.
-- @param state_dict  a table of names and tensors
-- @param strict      raise for missing and unexpected names (default true)
-- @param assign      use the tensors themselves, with their dtype (default false); create the
-- optimizer afterwards
-- @return {missing_keys = list, unexpected_keys = list}
function Module:load_state_dict(...)
  return (require "moth.nn.module.state".load(self, parse_load(...)))
end
define.takes(Module.load_state_dict, parse_load)

-- ---- methods for subclasses ----

--- Returns a value that state_dict saves under "_extra_state"; optional in subclasses.
function Module:get_extra_state()
  errors.raise(class.typename(self) .. " has no extra state")
end

--- Restores the value that get_extra_state returned.
function Module:set_extra_state()
  errors.raise(class.typename(self) .. " has no extra state")
end

--- Computes the module's results; every subclass defines it. Call the module itself, so that hooks
-- run.
function Module:forward()
  class.abstract(self, "forward", ":forward(...)")
end

Module.store_key = STORE

require "moth.nn.module.walk"(Module, STORE)
require "moth.nn.module.call"(Module, STORE)
class.guard(Module, "net")

return Module
