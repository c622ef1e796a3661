--- container.lua -- modules that hold modules: Sequential, ModuleList, ModuleDict.
--
-- Sequential and ModuleList store their modules in the array part of their own table, so that
-- `#list`, `ipairs(list)` and `list[i] = module` work as on any list. In a state_dict their names
-- count from 0, as in PyTorch: "layers.0.weight" is layers[1].weight. list[{2, -1}] is a list of
-- the modules from the second on; a Sequential's slice keeps the names, as in PyTorch.

local calls = require "moth.binding.calls"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local dict = require "moth.nn.module.dict"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx
local loadstring = lib.loadstring
local container = {}

local STORE = Module.store_key
local sight = Module.sight

local function ismodule(x)
  return class.isinstance(x, Module)
end

local plain = lib.is_plain

-- Writes to the array part. A captured step that ran the list checks its modules again.
local function put(self, at, module)
  rawset(self, at, module)
  if module then sight.parents[module] = self end
  sight.parts = sight.parts + 1
end

local function check_module(self, fname, value)
  if not ismodule(value) then
    errors.refuse(fname or class.typename(self), "module", "a module is needed", value, "E_TYPE")
  end
end

-- Like check_module, for an element of the argument `modules`; where: " at position 2".
local function check_element(fname, value, where)
  if not ismodule(value) then
    errors.argument(fname, "modules", ("a module is needed, got %s%s"):format(
      errors.describe(value), where), "E_TYPE")
  end
end

-- Raises unless a plain table is a list: named fields have no order and would be lost.
local function listed(fname, modules)
  calls.whole_list(fname, "modules", modules)
  for name in pairs(modules) do
    if type(name) == "string" then
      local cure = fname == "Sequential" and ("{{'%s', module}, ...}"):format(name)
        or "nn.ModuleDict, or a list"
      errors.argument(fname, "modules", ("names in a table have no order, got '%s'; write %s")
        :format(name, cure), "E_TYPE")
    end
  end
end

-- ---- lists ----

-- The common base of Sequential and ModuleList.
local List = class("ModuleList", Module)

local function new_list(own)
  local object = Module.__new(own)
  object[STORE].names = {}
  return object
end
List.__new = new_list

-- __newindex: called for empty positions; other writes are raw assignments.
function List:__newindex(key, value)
  if type(key) ~= "number" then return Module.__newindex(self, key, value) end
  if key < 0 and key >= -#self then key = #self + 1 + key end
  if value == nil then return end
  if key < 1 or key > #self + 1 or key ~= math.floor(key) then
    errors.raise(("%s[%s]: positions are 1 to %d"):format(class.typename(self), tostring(key),
      #self + 1), "E_INDEX")
  end
  check_module(self, nil, value)
  put(self, key, value)
end

-- The position of a child by its name in paths.
function List:_position(name)
  for i = 1, #self do
    if (self[STORE].names[i] or tostring(i - 1)) == name then return i end
  end
  local at = tonumber(name)
  return at and at + 1
end

-- Returns a free name for a module at a position whose number is already a name: a slice of a
-- Sequential keeps its names.
local function fresh(names, at)
  local free = at - 1
  for _, name in pairs(names) do
    local number = tonumber(name)
    if number and number >= free then free = number + 1 end
  end
  return free > at - 1 and tostring(free) or nil
end

-- Implements list[{first, last[, step]}].
function List:_slice(start, stop, step)
  local part = container.ModuleList()
  for i = start + 1, stop, step do put(part, #part + 1, self[i]) end
  return part
end

--- Adds a module at the end. @return the list
function List:append(module)
  check_module(self, "append", module)
  return (self:extend {module})
end

local function extend(self, fname, modules)
  if type(modules) ~= "table" then
    errors.refuse(fname, "modules", "a list of modules is needed", modules, "E_TYPE")
  end
  if plain(modules) then listed(fname, modules) end
  for i, module in ipairs(modules) do check_element(fname, module, " at position " .. i) end
  for i = 1, #modules do
    self[STORE].names[#self + 1] = fresh(self[STORE].names, #self + 1)
    put(self, #self + 1, modules[i])
  end
  return self
end

--- Adds the modules of a list at the end. @return the list
function List:extend(modules) return (extend(self, "extend", modules)) end

local function checked_position(self, fname, index, last)
  local at = index
  if type(at) == "number" and at < 0 then at = #self + 1 + at end
  if type(at) ~= "number" or at ~= math.floor(at) or at < 1 or at > last then
    errors.refuse(fname, "index", ("positions are 1 to %d"):format(last), index, "E_INDEX")
  end
  return at
end

--- Inserts a module before position `index`; later modules move up.
function List:insert(index, module)
  check_module(self, "insert", module)
  index = checked_position(self, "insert", index, #self + 1)
  local names = self[STORE].names
  for i = #self, index, -1 do
    names[i + 1] = names[i]
    put(self, i + 1, self[i])
  end
  names[index] = nil
  names[index] = fresh(names, index)
  put(self, index, module)
end

--- Removes a module (default: the last); later modules move down. @return the module
function List:pop(index)
  index = checked_position(self, "pop", index or -1, #self)
  local names, module, n = self[STORE].names, self[index], #self
  for i = index, n do
    names[i] = names[i + 1]
    put(self, i, rawget(self, i + 1))
  end
  return module
end

--- The number of modules.
function List:len()
  return #self
end

-- ---- ModuleList ----

--- A list of modules whose parameters belong to the module that holds it.
-- `self.layers = nn.ModuleList{nn.Linear(2, 3), nn.Linear(3, 4)}`; also without arguments.
local ModuleList = class("ModuleList", List)
container.ModuleList = ModuleList

function ModuleList:init(...)
  local first = ...
  extend(self, "ModuleList", select("#", ...) == 1 and plain(first) and first or {...})
end

-- ---- Sequential ----

--- Runs modules in order; each gets the first result of the one before. `nn.Sequential(a, b)`,
-- `nn.Sequential{a, b}`, with names `nn.Sequential{{"conv", a}, {"relu", b}}` (then also
-- `seq.conv`).
local Sequential = class("Sequential", List)
container.Sequential = Sequential

local function add_named(self, name, module)
  check_module(self, nil, module)
  if type(name) ~= "string" or name == "" or name:find(".", 1, true) then
    errors.argument("Sequential", "modules", "names are strings, not empty, without dots; got " ..
      errors.describe(name))
  end
  local names = self[STORE].names
  for i = 1, #self do
    if names[i] == name then
      errors.argument("Sequential", "modules", ("the name '%s' occurs twice"):format(name))
    end
  end
  put(self, #self + 1, module)
  names[#self] = name
end

local function ispair(x)
  return plain(x) and type(x[1]) == "string" and x[3] == nil
end

local function sorted_keys(map)
  local keys = {}
  for key in pairs(map) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end

function Sequential:init(...)
  local list = {...}
  local n = select("#", ...)
  if n == 1 and plain(list[1]) and not ispair(list[1]) then
    list = list[1]
    if plain(list[1]) and not ispair(list[1]) then list = list[1] end -- called with a list
    n = #list
    listed("Sequential", list)
  end
  for i = 1, n do
    local item = list[i]
    if ispair(item) then
      add_named(self, item[1], item[2])
    elseif not ismodule(item) then
      errors.argument("Sequential", "modules", ("element %d is %s, not a module"):format(i,
        errors.describe(item)), "E_TYPE")
    else
      put(self, #self + 1, item)
    end
  end
end

function Sequential:_slice(start, stop, step)
  local part, names = Sequential(), self[STORE].names
  for i = start + 1, stop, step do
    put(part, #part + 1, self[i])
    local name = names[i] or tostring(i - 1)
    part[STORE].names[#part] = name ~= tostring(#part - 1) and name or nil
  end
  return part
end

-- Returns a module by its name.
function Sequential:__index(key)
  for i, name in pairs(self[STORE].names) do
    if name == key then return rawget(self, i) end
  end
end

-- Frees intermediate results early. The result of a layer of Moth is used only by the next layer:
-- its handle is freed at once, since it would otherwise hold its memory until the next garbage
-- collection. `ours` is true if x is such a result; `passes` lists the modules that are such
-- layers.

-- The fused call of a module and the ReLU after it, if nothing observes the value between them.
local function rectified(module, next)
  local activation = package.loaded["moth.nn.layer.activation"]
  local with_relu = activation and next and Module.rectified[class.written(module.forward)]
  return with_relu and next.forward == activation.ReLU.forward and sight.passes(module)
    and sight.passes(next) and with_relu
end

-- Generates a function that runs the modules of `known` and checks that they are unchanged and that
-- their classes have the same forward functions. The calls are unrolled: LuaJIT compiles them into
-- the caller's trace, while a loop over modules of different classes would leave the trace. A
-- Linear or a BatchNorm is fused with the ReLU after it.
local function straight(known, passes, classes, lists)
  local names, run, same = {}, {}, {}
  local relus = {} -- functions that run a module and the ReLU after it
  local done = false -- true if the call before has already applied the ReLU
  for i = 1, #known do
    names[i] = "m" .. i
    same[i] = ("rawequal(self[%d], m%d)"):format(i, i)
    local ends = passes[i] and "if ours then free(ctx, x) end " or ""
    relus[i] = rectified(known[i], known[i + 1]) or false
    local form = "  y = " .. (relus[i] and ("relus[%d](m%%d, x)"):format(i) or "m%d(x)")
      .. " if not rawequal(y, x) then %sx, ours = y, %s end"
    if not done then run[#run + 1] = form:format(i, ends, tostring(passes[i])) end
    done = relus[i]
  end
  for i = 1, #classes, 2 do
    same[#same + 1] = ("classes[%d].forward == classes[%d]"):format(i, i + 1)
  end
  if #lists > 0 then same[#same + 1] = "same_lists(lists)" end
  local head = #known > 0 and "local " .. table.concat(names, ", ") .. " = ...\n" or ""
  local text = "local rawequal, free, ctx, relus, unpack, known, classes, same_lists, lists "
    .. "= ...\n"
    .. head:gsub("%.%.%.", "unpack(known)")
    .. "return function(x)\n  local y, ours = nil, false\n" .. table.concat(run, "\n")
    .. "\n  return x\nend, function(self) return "
    .. (#known > 0 and table.concat(same, " and ") or "true") .. " end"
  return assert(loadstring(text, "=[moth.nn.Sequential]"))(rawequal, C.moth_free, ctx,
    relus, unpack, known, classes, sight.same_lists, lists)
end

local MOST = 50 -- unrolled modules; each needs one of at most 60 upvalues; a loop runs longer lists

local function same_loop(known, classes, lists)
  return function(self)
    for i = 1, #known do
      if not rawequal(self[i], known[i]) then return false end
    end
    return sight.as_met(classes) and sight.same_lists(lists)
  end
end

local function run_loop(self, x, passes)
  local ours = false
  for i = 1, #self do
    local module = self[i]
    local y = module(x)
    if not rawequal(y, x) then
      if ours and passes[i] then C.moth_free(ctx, x) end
      x, ours = y, passes[i]
    end
  end
  return x
end

-- Marks the modules whose inputs and outputs only the container sees.
local function plan(self, store)
  local known, passes = {}, {}
  for i = 1, #self do
    known[i] = self[i]
    passes[i] = sight.passes(self[i]) or false
  end
  local classes, lists = sight.classes(known), sight.lists(known)
  store.length, store.seen = #self, sight.changes
  store.passes, store.run, store.same = passes, nil, same_loop(known, classes, lists)
  if #self <= MOST then store.run, store.same = straight(known, passes, classes, lists) end
end

function Sequential:forward(input)
  local store, n = self[STORE], #self
  if store.length ~= n or store.seen ~= sight.changes or not store.same(self) then
    plan(self, store)
  end
  local run = store.run
  if not run then return (run_loop(self, input, store.passes)) end
  return (run(input))
end

named.as_given(Sequential.forward)
Module.passing[Sequential.forward] = true

-- ---- ModuleDict ----

--- Named modules. The keys of a plain table are registered in sorted order; a list of {name,
-- module} pairs keeps its order. `dict.name` reads, `dict.name = module` sets.
local ModuleDict = class("ModuleDict", Module)
container.ModuleDict = ModuleDict

ModuleDict.signature = define.signature("ModuleDict", {
  {"map", "modules", "names and modules, or a list of {name, module} pairs", optional = true},
})

function ModuleDict:init(modules)
  if modules ~= nil then self:update(modules) end
end

--- Adds the modules of a table, of a list of {name, module} pairs, or of another ModuleDict.
function ModuleDict:update(modules)
  if class.isinstance(modules, ModuleDict) then
    for name, module in modules:items() do self:add_module(name, module) end
  elseif not lib.is_plain(modules) then
    errors.refuse("ModuleDict", "modules", "a table of modules is needed", modules, "E_TYPE")
  elseif #modules > 0 then
    for i, pair in ipairs(modules) do
      if not ispair(pair) then
        errors.argument("ModuleDict", "modules", ("element %d is %s, not {name, module}"):format(i,
          errors.describe(pair)), "E_TYPE")
      end
      check_element("ModuleDict", pair[2], " at position " .. i)
      self:add_module(pair[1], pair[2])
    end
  else
    local names = sorted_keys(modules)
    for _, name in ipairs(names) do
      check_element("ModuleDict", modules[name], (" under '%s'"):format(tostring(name)))
    end
    for _, name in ipairs(names) do self:add_module(name, modules[name]) end
  end
end

dict(ModuleDict, "module")

return container
