--- init.lua -- moth.func.functional_call: calls a module with other parameters and buffers and
-- restores the original ones afterwards; for inner loops (MAML), hypernetworks, ensembles.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"
local Module = require "moth.nn.module"

local FNAME, STORE = "functional_call", Module.store_key

local function wrong(format, ...)
  errors.argument(FNAME, "parameter_and_buffer_dicts", format:format(...))
end

-- Returns the positions of a module's tensors, name -> list of {fields of the store, key}; and the
-- names in order. With `tied`, the list has all positions of a tied tensor.
local function places_of(module, tied)
  local by_name, by_tensor, names = {}, {}, {}
  for _, pair in ipairs(module:_walk("", false)) do
    for _, member in ipairs(pair[2]:_members()) do
      local name = pair[1] == "" and member[1] or pair[1] .. "." .. member[1]
      local list = tied and by_tensor[member[2]] or {}
      list[#list + 1] = {pair[2][STORE].fields, member[1]}
      by_name[name], by_tensor[member[2]] = list, list
      names[#names + 1] = name
    end
  end
  return by_name, names
end

-- The given tensors by name, from a table or a list of tables.
local function given_of(value)
  local given = {}
  for _, map in ipairs(value[1] ~= nil and value or {value}) do
    if type(map) ~= "table" then
      wrong("a table of names and tensors, or a list of such tables, is needed, got %s in the list",
        errors.describe(map))
    end
    for name, x in pairs(map) do
      if type(name) ~= "string" or not lib.istensor(x) then
        wrong("a table of names and tensors is needed, got %s under '%s'", errors.describe(x),
          tostring(name))
      elseif given[name] ~= nil then
        wrong("'%s' is given twice", name)
      end
      given[name] = x
    end
  end
  return given
end

-- The tensors to set, as {fields, key, tensor}.
local function swaps_of(module, given, tied, strict)
  local by_name, names = places_of(module, tied)
  local swaps, taken = {}, {}
  for name in pairs(given) do
    if not by_name[name] then
      wrong("%s has no parameter or buffer %s%s", class.typename(module),
        errors.shown(tostring(name)), errors.nearest(name, names))
    end
  end
  for _, name in ipairs(names) do
    local x, places = given[name], by_name[name]
    if x ~= nil and taken[places] ~= nil and taken[places] ~= x then
      wrong("'%s' is tied to another name, for which another tensor is given; tie_weights = false "
        .. "allows it", name)
    end
    if x ~= nil and taken[places] == nil then
      taken[places] = x
      for _, place in ipairs(places) do swaps[#swaps + 1] = {place[1], place[2], x} end
    end
  end
  for _, name in ipairs(strict and names or {}) do
    if not taken[by_name[name]] then
      wrong("'%s' is missing (strict)", name)
    end
  end
  return swaps
end

-- Sets the tensors, and stores the old ones in the list for the way back.
local function swap(swaps)
  for i = 1, #swaps do
    local fields, key, x = unpack(swaps[i])
    swaps[i][3], fields[key] = fields[key], x
  end
  Module.sight.parts = Module.sight.parts + 1
end

local functional_call = define {
  name = FNAME,
  doc = "Calls a module with the given parameters and buffers in place of its own: "
    .. "gradients flow to the given ones. Others stay, so buffers that the call writes "
    .. "are changed. (As torch.func.functional_call.)",
  examples = "moth.nn.Linear(2, 3), {weight = moth.randn(3, 2)}, moth.randn(4, 2)\n"
    .. "moth.nn.Linear(2, 3), {{weight = moth.randn(3, 2)}, {bias = moth.zeros(3)}}, "
    .. "{moth.randn(4, 2)}, {kwargs = {}, tie_weights = false, strict = true}",
  args = {
    {"any", "module", "module to call"},
    {"map", "parameter_and_buffer_dicts", "names as in state_dict, and tensors; or a list of such "
      .. "tables"},
    {"any", "args", "its arguments: a value, or a list of several", optional = true},
    {"any", "kwargs", "a table of its named arguments", optional = true},
    {"bool", "tie_weights", "is a tied tensor replaced under each of its names?", default = true},
    {"bool", "strict", "must each parameter and buffer be given?", default = false},
  },
  outputs = "output",
  run = function(module, given, args, kwargs, tied, strict)
    if not class.isinstance(module, Module) then
      errors.refuse(FNAME, "module", "a module is needed", module, "E_TYPE")
    end
    local swaps = swaps_of(module, given_of(given), tied, strict)
    if kwargs ~= nil and not lib.is_plain(kwargs) then
      errors.refuse(FNAME, "kwargs", "a table is needed", kwargs, "E_TYPE")
    end
    if lib.is_plain(args) then lib.few(FNAME, "args", #args) end
    local list = lib.is_plain(args) and {unpack(args)} or {args}
    if kwargs and next(kwargs) ~= nil then list[#list + 1] = kwargs end
    Module.sight.note(module)
    swap(swaps)
    local results
    if lib.coroutine() then -- other coroutines would see the tensors
      results = lib.pack(pcall(require("moth.base.coroutines").without_yields, FNAME, module,
        unpack(list)))
    else
      results = lib.pack(pcall(module, unpack(list)))
    end
    swap(swaps)
    if not results[1] then error(results[2], 0) end
    return unpack(results, 2, results.n)
  end,
}

local rows = {}
lazy.from(rows, "moth.func.vmap", "vmap stack_module_state")
lazy.from(rows, "moth.func.transforms", "grad grad_and_value hessian jacfwd jacrev jvp vjp")

return (lazy.namespace("moth.func", {functional_call = functional_call}, rows))
