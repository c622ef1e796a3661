--- walk.lua -- iterates over a module's children, parameters and buffers; and the methods that
-- apply to all of them: apply, train, eval, requires_grad_, zero_grad, to and the casts.
--
-- Each iteration uses a snapshot, so that a loop over `net:named_modules()` may add and remove
-- modules. A module or tensor that is reached twice (tied weights) is visited once, at its first
-- name.

local class = require "moth.base.class"
local cleared = require "moth.nn.module.cleared"
local define = require "moth.binding.define"
local devices = require "moth.tensor.device"
local errors = require "moth.error"
local layout = require "moth.tensor.layout"
local lib = require "moth.binding.lib"
local parameter = require "moth.nn.module.parameter"

-- Iterates over a list of pairs.
local function pairs_of(list)
  local i = 0
  return function()
    i = i + 1
    local pair = list[i]
    if pair then return pair[1], pair[2] end
  end
end

local function firsts(list, which)
  local out = {}
  for i, pair in ipairs(list) do out[i] = pair[which] end
  return out
end

local function join(prefix, name)
  return prefix == "" and name or prefix .. "." .. name
end

local parse_recurse = define.signature("parameters", {
  {"bool", "recurse", "include submodules?", default = true},
})
local parse_members = define.signature("named_parameters", {
  {"string", "prefix", "put before every name, with a dot", default = ""},
  {"bool", "recurse", "include submodules?", default = true},
  {"bool", "remove_duplicate", "list each tensor once?", default = true},
})
local parse_modules = define.signature("named_modules", {
  {"string", "prefix", "put before every name, with a dot", default = ""},
  {"bool", "remove_duplicate", "list each module once?", default = true},
})
local parse_flag = define.signature("train", {
  {"bool", "mode", "training (true) or evaluation (false)", default = true},
})
local parse_requires = define.signature("requires_grad_", {
  {"bool", "requires_grad", "do the parameters require gradients?", default = true},
})
local parse_device = define.signature("to_empty", {
  {"device", "device", "the device of the new storage", default = "cpu"},
})

-- ---- converting ----

-- Converts a module's tensor to another dtype or device. The Lua object stays the same, so that
-- the optimizer, tied modules and the user's variables see the change.
local function convert(x, make)
  local moth = require "moth"
  if parameter.waiting[x] ~= nil then
    return require("moth.nn.module.uninitialized").convert(x, make)
  end
  local new, grad
  moth.no_grad(function()
    new = make(x)
    if new ~= x and x.grad ~= nil then grad = make(x.grad) end
  end)
  if new == x then return end
  lib.check(lib.C.moth_become(lib.ctx, x, new), "to")
  if grad ~= nil then x.grad = grad end
end

local function convert_all(self, make)
  local seen = {}
  for _, module in ipairs(self:modules()) do
    for _, entry in ipairs(module:_members()) do
      local x = entry[2]
      if not seen[x] then
        seen[x] = true
        convert(x, make)
      end
    end
  end
  return self
end

-- ---- methods of Module ----

local function add_own(Module, STORE)
  -- The children in order, as {PyTorch's name, module} pairs.
  function Module:_children()
    local store, list = self[STORE], {}
    if store.watch then self:_watch() end
    if store.names then
      local last = 0
      for i in pairs(self) do
        if type(i) == "number" and i > last then last = i end
      end
      for i, child in ipairs(self) do
        if not class.isinstance(child, Module) then
          errors.raise(("%s[%d] is %s, not a module"):format(class.typename(self), i,
            errors.describe(child)), "E_TYPE")
        end
        list[i] = {store.names[i] or tostring(i - 1), child}
        Module.sight.parents[child] = self
      end
      if #list < last then
        errors.raise(("%s[%d] is nil, with modules after it; remove modules with pop(%d)"):format(
          class.typename(self), #list + 1, #list + 1), "E_STATE")
      end
    end
    for _, name in ipairs(store.order) do
      if store.kind[name] == "module" then list[#list + 1] = {name, store.fields[name]} end
    end
    return list
  end

  -- Lists the module's own tensors as {name, tensor, kind}; kind wanted: "parameter", "buffer" or
  -- nil for all. Parameters come before buffers.
  function Module:_members(kind)
    local store, list = self[STORE], {}
    for _, name in ipairs(store.order) do
      if kind ~= "buffer" and store.kind[name] == "parameter" then
        list[#list + 1] = {name, store.fields[name], "parameter"}
      end
    end
    for _, name in ipairs(store.order) do
      local its = store.kind[name]
      if kind ~= "parameter" and (its == "buffer" or its == "transient") then
        list[#list + 1] = {name, store.fields[name], its}
      end
    end
    return list
  end
end

-- Adds a module and all its submodules to a list of {name, module} pairs, parents first.
local function add_below(list, seen, once, module, path, depth)
  if once and seen[module] then return end
  if depth > 200 then
    local root = class.typename(list[1][2])
    errors.raise(root .. " contains itself, at '" .. path:sub(1, 60) .. "...'")
  end
  seen[module] = true
  list[#list + 1] = {path, module}
  local children = module:_children()
  for i = 1, #children do
    local child = children[i]
    add_below(list, seen, once, child[2], join(path, child[1]), depth + 1)
  end
end

local function add_walks(Module)
  -- Lists this module and all its submodules, as {name, module} pairs.
  function Module:_walk(prefix, once)
    local list = {}
    add_below(list, {}, once, self, prefix, 0)
    return list
  end

  -- Lists the tensors of a kind, as {name, tensor} pairs.
  function Module:_tensors(kind, prefix, recurse, once)
    local list, seen = {}, {}
    for _, pair in ipairs(recurse and self:_walk(prefix, once) or {{prefix, self}}) do
      for _, member in ipairs(pair[2]:_members(kind)) do
        local x = member[2]
        if not (once and seen[x]) then
          seen[x] = true
          list[#list + 1] = {join(pair[1], member[1]), x}
        end
      end
    end
    return list
  end
end

local function add_lists(Module)
  --- The modules in the fields of this module, as a list.
  function Module:children() return firsts(self:_children(), 2) end

  --- Iterates over the names and modules in the fields of this module.
  function Module:named_children() return pairs_of(self:_children()) end

  --- This module and all submodules, parents first, each once, as a list.
  function Module:modules() return firsts(self:_walk("", true), 2) end

  --- Iterates over the paths and modules of this module (its path is "") and of all submodules.
  -- `net:named_modules{prefix = "", remove_duplicate = true}`
  function Module:named_modules(...)
    return pairs_of(self:_walk(parse_modules(...)))
  end
  define.takes(Module.named_modules, parse_modules)

  --- The Parameters of this module and, unless `recurse = false`, of all submodules, as a list.
  function Module:parameters(...)
    return firsts(self:_tensors("parameter", "", parse_recurse(...), true), 2)
  end
  define.takes(Module.parameters, parse_recurse)

  --- Iterates over the paths and Parameters, in the order of assignment. `for name, p in
  -- net:named_parameters{prefix = "", recurse = true, remove_duplicate = true} do`
  function Module:named_parameters(...)
    return pairs_of(self:_tensors("parameter", parse_members(...)))
  end
  define.takes(Module.named_parameters, parse_members)

  --- The buffers of this module and, unless `recurse = false`, of all submodules, as a list.
  function Module:buffers(...)
    return firsts(self:_tensors("buffer", "", parse_recurse(...), true), 2)
  end
  define.takes(Module.buffers, parse_recurse)

  --- Iterates over the paths and buffers.
  function Module:named_buffers(...)
    return pairs_of(self:_tensors("buffer", parse_members(...)))
  end
  define.takes(Module.named_buffers, parse_members)
end

local function add_modes(Module)
  --- Calls fn(module) for all submodules, children first, then for this one.
  -- @return the module
  function Module:apply(fn)
    if type(fn) ~= "function" then
      errors.refuse("apply", "fn", "a function is needed", fn, "E_TYPE")
    end
    local seen = {}
    local function visit(module)
      if seen[module] then return end
      seen[module] = true
      for _, child in ipairs(module:_children()) do visit(child[2]) end
      fn(module)
    end
    visit(self)
    return self
  end

  -- Calls a submodule's `train` method if its class overrides it, for example to stay in evaluation
  -- mode.
  local function set_mode(module, mode, seen)
    if seen[module] then return end
    seen[module] = true
    module.training = mode
    for _, child in ipairs(module:_children()) do
      local below = child[2]
      if below.train ~= Module.train then
        below:train(mode)
      else
        set_mode(below, mode, seen)
      end
    end
  end

  --- Sets the `training` field of this module and all submodules: Dropout and BatchNorm read it.
  -- @return the module
  function Module:train(...)
    local mode = parse_flag(...)
    set_mode(self, mode, {})
    return self
  end
  define.takes(Module.train, parse_flag)

  --- Same as `train(false)`.
  function Module:eval()
    return (self:train(false))
  end

  --- Sets requires_grad of all parameters of this module and its submodules:
  -- `requires_grad_(false)` freezes them.
  -- @return the module
  function Module:requires_grad_(...)
    local on = parse_requires(...) and 1 or 0
    for _, p in ipairs(self:parameters()) do
      lib.check(lib.C.moth_requires_grad(lib.ctx, p, on), "requires_grad_")
    end
    return self
  end
  define.takes(Module.requires_grad_, parse_requires)

  --- Clears the gradients of all parameters; with `set_to_none = false` it fills them with zeros.
  function Module:zero_grad(...)
    local set_to_none = cleared.parse(...)
    cleared.clear(self:parameters(), set_to_none)
  end
  define.takes(Module.zero_grad, cleared.parse)
end

-- Returns Tensor:to's arguments without a memory format, and the memory format.
local function without_format(args, n)
  local list, format = {}, nil
  for i = 1, n do
    local arg = args[i]
    if lib.is_plain(arg) and arg.memory_format ~= nil then
      arg, format = {}, arg.memory_format
      for name, value in pairs(args[i]) do arg[name] = name ~= "memory_format" and value or nil end
    end
    list[i] = arg
  end
  return list, format
end

local function add_casts(Module)
  --- Moves all parameters and buffers to a device, or casts those of a float dtype to another
  -- dtype. `net:to(moth.float64)`, `net:to("cpu")`, `net:to{device = "cpu", dtype = moth.float64}`,
  -- `net:to(tensor)`: the arguments of Tensor:to. A memory_format applies only to tensors with its
  -- number of dimensions. The tensors stay the same Lua objects.
  -- @return the module
  function Module:to(...)
    local n, args = select("#", ...), {...}
    local plain, format = without_format(args, n)
    return convert_all(self, function(x)
      if x:is_floating_point() then
        return x:to(unpack(layout.fits(format, x:dim()) and args or plain, 1, n))
      end
      local device = (type(args[1]) == "string" or devices.is(args[1])) and args[1]
        or lib.istensor(args[1]) and args[1].device
        or type(args[1]) == "table" and args[1].device
        or type(args[2]) == "table" and args[2].device
      return device and x:to(device) or x
    end)
  end

  --- Casts all parameters and buffers, integer ones too, to a dtype.
  function Module:type(dtype)
    return convert_all(self, function(x) return x:to(dtype) end)
  end

  --- Moves all parameters and buffers to the CPU.
  function Module:cpu() return (self:to("cpu")) end

  --- Moves all parameters and buffers to a GPU: a device, its name or its index; default cuda:0.
  function Module:cuda(which)
    return (self:to(type(which) == "number" and "cuda:" .. which or which or "cuda"))
  end

  --- Gives all parameters and buffers new uninitialized storage on a device.
  -- @return the module
  function Module:to_empty(...)
    local device = parse_device(...)
    return convert_all(self, function(x)
      return require("moth").empty(x.shape, {dtype = x.dtype, device = device})
    end)
  end
  define.takes(Module.to_empty, parse_device)

  for name, dtype in pairs {float = "float32", double = "float64", half = "float16",
                            bfloat16 = "bfloat16"} do
    --- Casts the parameters and buffers of float dtypes: float, double, half, bfloat16.
    Module[name] = function(self)
      return (self:to(require("moth")[dtype]))
    end
  end
end

--- Adds these methods to nn.Module, whose fields are stored under the key `store`.
return function(Module, store)
  add_own(Module, store)
  add_walks(Module)
  add_lists(Module)
  add_modes(Module)
  add_casts(Module)
end
