--- class.lua -- classes for Lua: single inheritance, inherited metamethods, mixins.
--
--     local Shape = class("Shape")
--     function Shape:init(name) self.name = name end
--     function Shape:__tostring() return "shape " .. self.name end
--
--     local Disc = class("Disc", Shape)
--     function Disc:init(radius)
--       Shape.init(self, "disc")            -- a super call
--       self.radius = radius
--     end
--     print(Disc(2))                        --> shape disc
--
-- A class is a table of methods. One metatable for its instances holds the metamethods. Lua reads
-- metamethods raw, so a definition is copied into every subclass that does not define it. A name is
-- looked up in the class, in its metamethods, then in the base class.
--
-- Names with a meaning:
--   init(self, ...)       the constructor; it gets the arguments: Net{width = 2} passes one
--                         table, unless the class has a signature
--   signature             from define.signature, set before init: init gets the parsed arguments
--   __new(class)          creates the plain table of an instance (nn.Module overrides it)
--   __derived(class)      called with each new subclass
--   __index, __newindex   called for fields that neither the instance nor its class has

local class = {}

local INFO = {} -- the key of a metatable of instances that holds the class's description

local function raise(text)
  return require("moth.error").raise(text)
end

-- The description of a class or of the class of an instance; nil for other values.
local function info_of(x)
  if type(x) ~= "table" then return nil end
  local meta = getmetatable(x)
  return type(meta) == "table" and rawget(meta, INFO) or nil
end

local function class_info(x)
  local info = info_of(x)
  return info and info.class == x and info or nil
end

-- ---- metamethods ----

-- Instances look up fields in the class, or by the function that a base class set (class.lookup).
-- If both lack the field, the user's own __index is called.
local function install_index(info)
  local find, miss = info.find, info.miss
  if not miss then
    info.meta.__index = find or info.class
  elseif find then
    info.meta.__index = function(self, key)
      local value = find(self, key)
      if value == nil then value = miss(self, key) end
      return value
    end
  else
    local methods = info.class
    info.meta.__index = function(self, key)
      local value = methods[key]
      if value == nil then value = miss(self, key) end
      return value
    end
  end
end

local function set_meta(info, key, value)
  if key == "__index" then
    info.miss = value
    install_index(info)
  else
    info.meta[key] = value
  end
  for sub in pairs(info.subclasses) do
    local known = class_info(sub)
    if not known.own[key] then set_meta(known, key, value) end
  end
end

local unguarded = setmetatable({}, {__mode = "k"}) -- wrapped method -> the user's function

local misnamed = { -- names that other languages use for `init` and `get`
  __init = "init", __init__ = "init", __getitem = "get", __getitem__ = "get", __len__ = "len",
}

local function define(self, key, value)
  local info = class_info(self)
  if misnamed[key] then
    raise(("%s has no meaning in a class; write function %s:%s(...)"):format(key, info.name,
      misnamed[key]))
  end
  if type(key) == "string" and key:sub(1, 2) == "__" then
    if key == "__index" and type(value) == "table" then
      local from = value
      value = function(_, name) return from[name] end
    end
    info.own[key] = value ~= nil or nil
    if value == nil and info.base then
      local base = class_info(info.base)
      if key == "__index" then value = base.miss else value = base.meta[key] end
    end
    set_meta(info, key, value)
  elseif key == "init" and rawget(self, "signature") and type(value) == "function" then
    local parse, body = self.signature, value
    local init = function(object, ...) body(object, parse(...)) end
    unguarded[init] = body
    rawset(self, key, init)
  else
    rawset(self, key, value)
  end
end

-- ---- creating classes ----

local function construct(self, ...)
  local info = class_info(self)
  local meta = info.meta
  local new = meta.__new
  local object = setmetatable(new and new(self) or {}, meta)
  object:init(...)
  return object
end

class.construct = construct -- stack.lua compares with it

local class_meta = { -- each class has a copy of this with its own __index
  __newindex = define,
  __call = construct,
}

local function mix(self, mixin)
  if type(mixin) ~= "table" then
    raise("bad argument to 'class' (a mixin is a table of methods, got " ..
      require("moth.error").describe(mixin) .. ")")
  end
  for key, value in pairs(mixin) do
    if rawget(self, key) == nil and key ~= "signature" then self[key] = value end
  end
  local known = class_info(mixin)
  if known then
    for key in pairs(known.own) do
      if key == "__index" then self[key] = known.miss else self[key] = known.meta[key] end
    end
  end
  class_info(self).mixins[mixin] = true
end

local Object -- the base of all classes

--- Creates a class.
-- @param name   its name, for messages and printing
-- @param base   the class to inherit from (any class of Moth; default: none)
-- @param ...    mixins: tables whose functions the class also gets
-- @return the class; a call of it creates an instance
local function new_class(name, base, ...)
  if type(name) ~= "string" or name == "" then
    raise("bad argument 'name' to 'class' (a string is needed, got " ..
      require("moth.error").describe(name) .. ")")
  end
  if base == nil then base = Object end
  local above = class_info(base)
  if base ~= nil and not above then
    raise("bad argument 'base' to 'class' (a class is needed, got " ..
      require("moth.error").describe(base) .. "; the name comes first)")
  end
  local self, meta = {}, {}
  local info = {
    class = self, meta = meta, name = name, base = base, own = {}, mixins = {},
    subclasses = setmetatable({}, {__mode = "k"}),
  }
  if above then
    for key, value in pairs(above.meta) do
      if key ~= INFO and key ~= "__index" then meta[key] = value end
    end
    info.find, info.miss = above.find, above.miss
    above.subclasses[self] = true
  end
  meta[INFO] = info
  install_index(info)
  if base then setmetatable(meta, {__index = base}) end
  setmetatable(self, {
    [INFO] = info,
    __index = meta,
    __newindex = class_meta.__newindex,
    __call = class_meta.__call,
    __tostring = function() return "class " .. name end,
  })
  for i = 1, select("#", ...) do mix(self, (select(i, ...))) end
  local derived = above and above.meta.__derived
  if derived then derived(self) end
  return self
end

Object = new_class("Object")
function Object:init() end
function Object:__tostring() return class.typename(self) end

--- The common base class: every class inherits from it.
class.Object = Object

--- Lets instances of a class and of its subclasses find all fields through one function.
-- @param self  the class
-- @param find  function(object, key); it also searches the class
function class.lookup(self, find)
  local info = class_info(self)
  info.find = find
  install_index(info)
  for sub in pairs(info.subclasses) do class.lookup(sub, find) end
end

--- Changes the class of an instance.
function class.become(object, wanted)
  setmetatable(object, class_info(wanted).meta)
end

-- ---- queries ----

--- The class of an instance, or nil.
function class.of(object)
  local info = info_of(object)
  return info and info.class ~= object and info.class or nil
end

--- The base of a class, or nil.
function class.base(self)
  local info = class_info(self)
  return info and info.base
end

--- Returns true if x is a class, not an instance.
function class.isclass(x)
  return class_info(x) ~= nil
end

--- The name of the class of an instance, or of a class itself; nil for anything else.
function class.typename(x)
  local info = info_of(x)
  return info and info.name
end

--- Returns true if `object` is an instance of `wanted`, or of a class that inherits from it or
-- mixed it in.
function class.isinstance(object, wanted)
  local info = info_of(object)
  if not info or info.class == object then return false end
  while info do
    if info.class == wanted or info.mixins[wanted] then return true end
    info = info.base and class_info(info.base)
  end
  return false
end

--- Returns true if a class inherits from another, or is the same class.
function class.issubclass(self, wanted)
  local info = class_info(self)
  while info do
    if info.class == wanted then return true end
    info = info.base and class_info(info.base)
  end
  return false
end

--- The names of all methods of a class and its bases, sorted.
function class.methods(self)
  local seen, names = {}, {}
  local info = class_info(self) or info_of(self)
  while info do
    for key, value in pairs(info.class) do
      if type(key) == "string" and type(value) == "function" and not seen[key] then
        seen[key] = true
        names[#names + 1] = key
      end
    end
    info = info.base and class_info(info.base)
  end
  table.sort(names)
  return names
end

--- Raises the error for a method that a subclass must have and lacks.
-- @param object  the instance
-- @param name    the method's name
-- @param form    how to call it, e.g. ":forward(input)"
function class.abstract(object, name, form)
  local info, names = info_of(object), {}
  local abstract = info
  while abstract and rawget(abstract.class, name) == nil do
    abstract = abstract.base and class_info(abstract.base)
  end
  -- Similar names are searched in the user's classes: the subclasses of the class that declares it.
  local walk = info
  while walk and walk ~= abstract do
    for key, value in pairs(walk.class) do
      if type(key) == "string" and type(value) == "function" then names[#names + 1] = key end
    end
    walk = walk.base and class_info(walk.base)
  end
  local hint = require("moth.error").nearest(name, names)
  if info.meta["__" .. name] then hint = ("; __%s is not called for it"):format(name) end
  raise(("class '%s' has no method '%s'%s"):format(info.name, form or name, hint))
end

-- ---- methods called by '.' ----

--- The user's function behind a wrapped method.
function class.written(fn)
  return unguarded[fn] or fn
end

-- By the user's function: its name, and the name of an object of its class in messages.
local names, shown_as = setmetatable({}, {__mode = "k"}), setmetatable({}, {__mode = "k"})

local function no_self(fn) require("moth.error").no_self(names[fn], shown_as[fn]) end

-- `forward` and `step` are called often, so their wrapper has no `...`, which would be slow.
local function too_much(self, fn, most)
  raise(("%s takes %d value%s, got more"):format(class.typename(self) or names[fn], most,
    most == 1 and "" or "s"))
end

local function guarded_often(fn, most)
  if most == 1 then
    return function(self, a, more)
      if type(self) ~= "table" then no_self(fn) end
      if type(more) ~= "nil" then too_much(self, fn, 1) end
      return fn(self, a)
    end
  end
  return function(self, a, b, more)
    if type(self) ~= "table" then no_self(fn) end
    if type(more) ~= "nil" then too_much(self, fn, 2) end
    return fn(self, a, b)
  end
end

local function guarded(name, fn, shown, own)
  local made = own and own(name, fn)
  if made then return made end
  local known = debug.getinfo(fn, "u")
  local most = known.nparams - 1
  names[fn], shown_as[fn] = name, shown
  if (name == "forward" or name == "step") and not known.isvararg and (most == 1 or most == 2) then
    return guarded_often(fn, most)
  end
  return function(self, ...)
    local info = info_of(self)
    if not info or info.class == self then no_self(fn) end
    return fn(self, ...)
  end
end

--- Makes the public methods of a class raise a clear error when they are called with '.' instead of
-- ':', and `forward` when it gets too many arguments.
-- @param self   the class, with all its methods
-- @param shown  the name of an instance in examples: "net"
-- @param own    function(name, fn): the check of one method, or nil for the usual check; optional
function class.guard(self, shown, own)
  for name, fn in pairs(self) do
    if type(fn) == "function" and name ~= "init" and name ~= "signature" and not unguarded[fn]
       and name:sub(1, 1) ~= "_" then
      local new = guarded(name, fn, shown, own)
      unguarded[new] = fn
      rawset(self, name, new)
    end
  end
  return self
end

return setmetatable(class, {__call = function(_, ...) return new_class(...) end})
