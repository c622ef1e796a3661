--- parametrize.lua -- nn.utils.parametrize: parameters that modules compute each time they are
-- read. `net.weight` is then the module's result; `net.parametrizations.weight` holds the trained
-- and saved tensors, as in PyTorch.
--
--     local Symmetric = nn.class("Symmetric", nn.Module)
--     function Symmetric:forward(x) return x:triu() + x:triu(1):t() end
--     nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())

local class = require "moth.base.class"
local container = require "moth.nn.layer.container"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"
local Module = require "moth.nn.module"
local parameter = require "moth.nn.module.parameter"

local parametrize = {}

local STORE = Module.store_key

local function moth() return require "moth" end

--- Returns the kind of a module's tensor that can be replaced; raises for other names.
-- @param argname  the argument of fname that has the tensor's name; default "name"
function parametrize.check(fname, module, name, argname)
  if not class.isinstance(module, Module) then
    errors.refuse(fname, "module", "a module is needed", module, "E_TYPE")
  end
  local store, names = module[STORE], {}
  local kind = store.kind[name]
  if kind ~= nil and kind ~= "module" then
    if parameter.waiting[store.fields[name]] ~= nil then
      errors.argument(fname, "module", ("'%s' of %s is created by its first call; call it first")
        :format(name, class.typename(module)), "E_STATE")
    end
    return kind
  end
  local row = store.computed and store.computed[name]
  if row then
    errors.argument(fname, argname or "name", ("'%s' of %s %s"):format(tostring(name),
      class.typename(module),
      row.how and ("already has a %s; remove_%s removes it"):format(row.how.what, row.how.what)
      or row.pruned and "is pruned; prune.remove makes it a plain parameter"
      or "is parametrized; parametrize.remove_parametrizations restores it"), "E_STATE")
  end
  for other, its in pairs(store.kind) do
    if its ~= "module" then names[#names + 1] = other end
  end
  errors.argument(fname, argname or "name", ("%s has no parameter or buffer '%s'%s"):format(
    class.typename(module), tostring(name), errors.nearest(tostring(name), names)))
end

-- ---- the list of a parameter's modules ----

local List = class("ParametrizationList", container.ModuleList)
parametrize.ParametrizationList = List

-- Returns inputs for which the module's result is `value`; several inputs as a list.
local function inverse(module, value)
  if type(module.right_inverse) ~= "function" then return {value} end
  local list = {moth().no_grad(function() return module:right_inverse(value) end)}
  for i, x in ipairs(list) do
    if not lib.istensor(x) then
      errors.raise(("%s:right_inverse returned %s; tensors are needed"):format(
        class.typename(module), errors.describe(x)), "E_TYPE")
    end
    if x.requires_grad or x == value then x = x:detach() end
    list[i] = x
  end
  return list
end

-- Creates a tensor with a value, of the same kind as another tensor.
local function like(kind, original, value)
  value = value:detach():clone()
  if kind == "parameter" then return (parameter.Parameter(value, original.requires_grad)) end
  return (parameter.Buffer(value, kind == "buffer"))
end

function List:init(module, name, kind, first)
  container.ModuleList.init(self, first)
  local original = module[name]
  local made = inverse(first, original)
  self.kind_, self.count = kind, #made
  if #made == 1 and made[1].shape == original.shape and made[1].dtype == original.dtype then
    if made[1] ~= original then moth().no_grad(original.copy_, original, made[1]) end
    self.original = parameter.mark(original, kind)
  elseif #made == 1 then
    self.original = like(kind, original, made[1])
  else
    for i, x in ipairs(made) do self["original" .. i - 1] = like(kind, original, x) end
  end
end

-- Returns the original tensors.
local function originals(self)
  if self.count == 1 then return {self.original} end
  local list = {}
  for i = 1, self.count do list[i] = self["original" .. i - 1] end
  return list
end

function List:forward()
  local value = self[1](unpack(originals(self)))
  for i = 2, #self do value = self[i](value) end
  return value
end

--- Changes the original tensors so that the parametrized value becomes this one.
function List:right_inverse(value)
  local list = {value}
  for i = #self, 1, -1 do
    if #list ~= 1 then
      errors.raise("only the first parametrization may have several original tensors")
    end
    list = inverse(self[i], list[1])
  end
  local own = originals(self)
  if #own ~= #list then
    errors.raise(("right_inverse returned %d tensors, %d are needed"):format(#list, #own))
  end
  moth().no_grad(function()
    for i, x in ipairs(own) do
      if x.shape ~= list[i].shape then
        errors.raise(("right_inverse returned %s for %s"):format(errors.describe(list[i]),
          errors.describe(x)), "E_SHAPE")
      end
      x:copy_(list[i])
    end
  end)
end

-- ---- registration ----

local caching, cache = 0, {}

local function value_of(self, name)
  local list = self.parametrizations[name]
  if caching == 0 then return (list()) end
  if cache[list] == nil then cache[list] = moth().keep(list()) end
  return cache[list]
end

--- parametrize.cached(f, ...): calls f; meanwhile each parametrized parameter is computed only
-- once.
-- @return the results of f
function parametrize.cached(f, ...)
  if type(f) ~= "function" then
    errors.refuse("cached", "f", "a function is needed", f, "E_TYPE")
  end
  local function done(ok, ...)
    caching = caching - 1
    if caching == 0 then cache = {} end
    if not ok then error((...), 0) end
    return ...
  end
  caching = caching + 1
  return done(pcall(f, ...))
end

local function assign(self, name, value)
  if not lib.istensor(value) then
    errors.raise(("%s.%s is parametrized; a tensor is needed, got %s"):format(
      class.typename(self), name, errors.describe(value)), "E_TYPE")
  end
  self.parametrizations[name]:right_inverse(value)
end

-- Replaces a tensor by the value that a list of modules computes.
local function take_place(module, name)
  module:_compute(name, function(self) return (value_of(self, name)) end,
    function(self, value) assign(self, name, value) end)
end

local function check_value(module, name, was, list)
  local value = moth().no_grad(list)
  if not lib.istensor(value) or value.shape ~= was.shape or value.dtype ~= was.dtype then
    errors.argument("register_parametrization", "parametrization",
      ("computes %s from the %s '%s' of %s;"
      .. " the same shape and dtype are needed, or {unsafe = true}"):format(
      errors.describe(value), errors.describe(was), name, class.typename(module)), "E_SHAPE")
  end
end

-- Registers the first module for a tensor of a module.
local function begin(module, name, parametrization, unsafe)
  local kind = parametrize.check("register_parametrization", module, name, "tensor_name")
  local was = module[name]
  local before = moth().no_grad(function() return was:detach():clone() end)
  local made = List(module, name, kind, parametrization)
  local ok, problem = true, nil
  if not unsafe then ok, problem = pcall(check_value, module, name, before, made) end
  if not ok then
    moth().no_grad(was.copy_, was, before)
    error(problem, 0)
  end
  if not parametrize.is_parametrized(module) then
    module.parametrizations = container.ModuleDict()
  end
  module[name] = nil
  module.parametrizations[name] = made
  take_place(module, name)
end

-- Appends a module, whose input is the previous modules' result.
local function extend(module, name, parametrization, unsafe)
  local list = module.parametrizations[name]
  local value = moth().no_grad(list)
  local made = inverse(parametrization, value)
  if #made ~= 1 then
    errors.argument("register_parametrization", "parametrization",
      "only the first parametrization may have several original tensors")
  end
  local before = {}
  moth().no_grad(function()
    for i, x in ipairs(originals(list)) do before[i] = x:clone() end
  end)
  local ok, problem = pcall(function()
    if made[1] ~= value then list:right_inverse(made[1]) end
    list:append(parametrization)
    if not unsafe then check_value(module, name, value, list) end
  end)
  if ok then return end
  if list[#list] == parametrization then list:pop() end
  moth().no_grad(function()
    for i, x in ipairs(originals(list)) do x:copy_(before[i]) end
  end)
  error(problem, 0)
end

local MODULE = {"object", "module", "the module that has the parameter"}
local NAME = {"string", "tensor_name", "the name of the parameter or buffer"}

parametrize.register_parametrization = define {
  name = "register_parametrization",
  doc = "Makes a parameter the result of a module. Its input is an original parameter of the same "
    .. "shape; or several tensors, if the module has `right_inverse`, which computes the inputs "
    .. "from a value. Each read computes the parameter; an assignment changes the inputs. A second "
    .. "module is applied to the result of the first.",
  examples = "moth.nn.Linear(2, 2), 'weight', moth.nn.Tanh()\n"
    .. "moth.nn.Linear(2, 2), 'weight', moth.nn.Tanh(), {unsafe = true}",
  args = {MODULE, NAME, {"any", "parametrization", "module: original -> parameter"},
          {"bool", "unsafe", "may shape and dtype change?", default = false}},
  outputs = "module",
  run = function(module, name, parametrization, unsafe)
    if not class.isinstance(parametrization, Module) then
      errors.refuse("register_parametrization", "parametrization", "a module is needed",
        parametrization, "E_TYPE")
    end
    if parametrize.is_parametrized(module, name) then
      extend(module, name, parametrization, unsafe)
    else
      begin(module, name, parametrization, unsafe)
    end
    return module
  end,
}

--- Returns true if a module has parametrized parameters; with a name, only if this one is
-- parametrized.
-- @param module       a module
-- @param tensor_name  a parameter's name; optional
function parametrize.is_parametrized(module, tensor_name)
  if not class.isinstance(module, Module) then return false end
  local dict = module[STORE].fields.parametrizations
  if not class.isinstance(dict, container.ModuleDict) then return false end
  return tensor_name == nil or module[STORE].computed and dict[STORE].kind[tensor_name] ~= nil
    or false
end

parametrize.remove_parametrizations = define {
  name = "remove_parametrizations",
  doc = "Makes a parametrized parameter a plain one again, with its current value, or with the "
    .. "original value.",
  examples = "moth.nn.utils.parametrizations.weight_norm(moth.nn.Linear(2, 2)), 'weight'\n"
    .. "moth.nn.utils.parametrize.register_parametrization(moth.nn.Linear(2, 2), 'weight', "
    .. "moth.nn.Tanh()), 'weight', {leave_parametrized = false}",
  args = {MODULE, NAME,
          {"bool", "leave_parametrized", "keep its current value (true) or the original value "
            .. "(false)?",
           default = true}},
  outputs = "module",
  run = function(module, name, leave_parametrized)
    if not parametrize.is_parametrized(module, name) then
      errors.argument("remove_parametrizations", "tensor_name", ("'%s' of %s is not parametrized")
        :format(name, errors.describe(module)))
    end
    local list = module.parametrizations[name]
    if not leave_parametrized and list.count > 1 then
      errors.argument("remove_parametrizations", "leave_parametrized",
        "must be true for a parameter with several original tensors")
    end
    local original = originals(list)[1]
    if list.count > 1 then
      original = like(list.kind_, original, moth().no_grad(list))
    elseif leave_parametrized then
      local value = moth().no_grad(list)
      if value.shape == original.shape and value.dtype == original.dtype then
        moth().no_grad(original.copy_, original, value)
      else
        original = like(list.kind_, original, value)
      end
    end
    module:_compute(name, nil)
    module.parametrizations[name] = nil
    if #module.parametrizations:keys() == 0 then module.parametrizations = nil end
    module[name] = parameter.mark(original, list.kind_)
    return module
  end,
}

return (lazy.namespace("moth.nn.utils.parametrize", parametrize, {}))
