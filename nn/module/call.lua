--- call.lua -- calling modules: `net(x)` runs forward, and hooks (hooks.lua) if there are any.
--
-- This file also tracks whether anything observes calls, which module fields a captured step has
-- read, and the paths of modules for messages.

local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local scope = require "moth.tensor.scope"

-- ---- observers ----

-- Counters. changes: counts changes of hooks, of single modules' forward functions, and
-- replacements of modules. parts: counts these too, and changes of the tensors that modules read;
-- captured steps check it. The two are separate because a forward that sets a buffer must not make
-- each Sequential check its modules again, which takes ten times as long as a small module's call.
-- fields: counts changes of other fields; captured steps compare fields only after a change.
-- parents: module -> a module that holds it, if known; used for modules that a step calls directly.
local sight = {changes = 0, parts = 0, fields = 0, parents = setmetatable({}, {__mode = "kv"})}

function sight.changed()
  sight.changes, sight.parts = sight.changes + 1, sight.parts + 1
end

local global = {pre = {}, forward = {}, backward_pre = {}, backward = {}}

local function has_global()
  return #global.pre + #global.forward + #global.backward_pre + #global.backward > 0
end

local in_profile -- function(run, module, ...): wraps a call in a profile's range, or nil
local watched = false -- true if anything observes the calls of all modules

local function look() watched = has_global() or in_profile ~= nil end

-- Hooks for all modules, by kind; look() must be called when their number changes.
sight.global, sight.look = global, look

--- The hook kinds. Each has the name of the list that stores a module's hooks of this kind.
sight.kinds = {
  forward_pre = "pre", forward = "forward",
  full_backward_pre = "backward_pre", full_backward = "backward",
  state_dict_pre = "state_dict_pre", state_dict_post = "state_dict_post",
  load_state_dict_pre = "load_state_dict_pre", load_state_dict_post = "load_state_dict_post",
}

-- ---- the call ----

local CALLED = {"pre", "forward", "backward_pre", "backward"}

-- Lists the parts that a module's call uses, in order: its forward, hooks, children and tensors,
-- and the functions of computed fields. Tensors are listed as numbers, so that the list does not
-- keep them alive.
local function parts_of(module, store)
  local list = {module.forward}
  local function add(x) list[#list + 1] = x end
  for _, from in ipairs {global, store.hooks or {}} do
    for _, kind in ipairs(CALLED) do
      add(kind)
      for _, hook in ipairs(from[kind] or {}) do add(hook) end
    end
  end
  for _, child in ipairs(module:_children()) do add(child[1]) add(child[2]) end
  for _, member in ipairs(module:_members()) do
    add(member[1]) add(tonumber(member[2]._slot)) add(tonumber(member[2]._gen))
  end
  for name, row in pairs(store.computed or {}) do add(name) add(row.get) end
  return list
end

-- Returns true if the modules that ran, and their submodules, have the same parts as when they were
-- recorded. A captured step calls it after any change.
-- @return if false, also the changed module, and the name of its first changed part
local function same_parts(noted)
  for i, module in ipairs(noted.modules) do
    local now, ran = parts_of(module, noted.stores[i]), noted.lists[i]
    local name = "forward"
    for k = 1, math.max(#now, #ran) do
      if not rawequal(now[k], ran[k]) then return false, module, name end
      if type(now[k]) == "string" then name = now[k] end
    end
  end
  noted.parts = sight.parts
  return true
end

-- Records the parts of a module and of its submodules: a Sequential runs a Linear without a call,
-- and attention reads the weights of its out_proj.
local function note_parts(noted, module, store_of)
  local store, n = store_of(module), #noted.modules + 1
  if noted.seen[store] then return end
  noted.seen[store] = true
  noted.modules[n], noted.stores[n], noted.lists[n] = module, store, parts_of(module, store)
  for _, child in ipairs(module:_children()) do note_parts(noted, child[2], store_of) end
end

-- Records a module that runs in a captured step: a replay checks that its parts and fields are
-- unchanged.
local function note_module(recording, self, store_of)
  local noted = recording.noted
  if not noted then
    noted = {same = same_parts, sight = sight, parts = sight.parts, seen = recording.seen,
             modules = {}, stores = {}, lists = {}}
    recording.noted = noted
  end
  recording.seen[self] = true
  recording.watch(self)
  note_parts(noted, self, store_of)
end

-- Returns its arguments. A call wrapped in it is no tail call: `return f(x)` would drop the
-- caller's frame, and with it the module's path in messages.
local function pass_on(...)
  return ...
end

-- ---- paths for messages ----

-- Returns the path from one module to a submodule, as "layers[1]", or nil.
local function way(STORE, from, to)
  local seen = {}
  local function search(module, path)
    if module == to then return path end
    if seen[module] then return nil end
    seen[module] = true
    local positions = module[STORE].names
    for i, child in ipairs(module:_children()) do
      local step = "." .. child[1]
      if positions and rawget(module, i) == child[2] then step = "[" .. i .. "]" end
      local found = search(child[2], path .. step)
      if found then return found end
    end
  end
  return search(from, "")
end

-- Returns the name of the variable by which the outermost module was called, or its class's name.
local function root_name(call, module)
  for level = 3, 250 do
    local info = debug.getinfo(level, "nf")
    if not info then break end
    if info.func == call then
      local _, object = debug.getlocal(level, 1)
      if object == module and info.name and info.namewhat ~= "metamethod"
         and info.namewhat ~= "method" then
        return info.name
      end
    end
  end
  return class.typename(module)
end

-- Returns the path of the running modules, outermost first, as "net.layers[1]".
local function path_of(STORE, call, modules)
  local path = root_name(call, modules[1])
  for i = 2, #modules do
    local found, step = pcall(way, STORE, modules[i - 1], modules[i])
    path = path .. (found and step or " > " .. class.typename(modules[i]))
  end
  return path
end

--- Adds these methods to nn.Module, whose fields are stored under the key STORE.
return function(Module, STORE)
  local function store_of(module) return module[STORE] end

  local function run_module(self, ...)
    local hooks = self[STORE].hooks
    if hooks or has_global() then
      return pass_on(require "moth.nn.module.hooks".run(self, hooks, ...))
    end
    return pass_on(self:forward(...))
  end

  local function observed(self, ...)
    if in_profile then return pass_on(in_profile(run_module, self, ...)) end
    return pass_on(run_module(self, ...))
  end

  -- Calls the module with arguments by name, {x, inverse = true}.
  local function call_named(self, list)
    local store = self[STORE]
    if store.watch then self:_watch() end
    local recording = lib.capture
    if recording and not recording.seen[self] then
      note_module(recording, self, store_of)
    end
    return pass_on(observed(self, unpack(list, 1, list.n)))
  end

  --- Runs the module: hooks and forward.
  local function call(self, ...)
    if type((...)) == "table" and select("#", ...) == 1 and getmetatable((...)) == nil then
      local list = require("moth.nn.module.forward").arguments(self, (...))
      if list then return pass_on(call_named(self, list)) end
    end
    local store = self[STORE]
    if store.watch then self:_watch() end
    local recording = lib.capture
    if recording and not recording.seen[self] then
      note_module(recording, self, store_of)
    end
    if store.hooks or watched then return pass_on(observed(self, ...)) end
    return pass_on(self:forward(...))
  end
  Module.__call = call

  --- Records the parts of a module before some are temporarily replaced: when they are restored, a
  -- captured step is valid again.
  function sight.note(module)
    local recording = lib.capture
    if recording and not recording.seen[module] then
      note_module(recording, module, store_of)
    end
  end

  --- Sets run(module, ...), which wraps each call of a module and returns its results; nil removes
  -- it. The profiler uses it.
  function sight.profile(fn)
    in_profile = fn
    look()
  end

  --- Returns the path from one module to a submodule, as ".layers[1]", or nil.
  function sight.way(from, to)
    local found, step = pcall(way, STORE, from, to)
    return found and step or nil
  end

  local passing = setmetatable({}, {__mode = "k"})

  --- The forward functions of Moth that keep neither their input nor their result.
  Module.passing = passing

  --- For some of these forward functions: function(module, input), which also applies relu, in one
  -- op.
  Module.rectified = setmetatable({}, {__mode = "k"})

  -- Records the classes of a module and of its submodules, each with its forward function.
  local function note_classes(met, module, seen)
    if seen[module] then return end
    seen[module] = true
    met[module[STORE].class] = module[STORE].class.forward
    for _, child in ipairs(module:_children()) do note_classes(met, child[2], seen) end
  end

  --- Lists the classes of some modules and of all their submodules: class, forward, class, forward,
  -- and so on. Facts about these modules are valid while sight.as_met returns true for the list.
  function sight.classes(modules)
    local met, seen, list = {}, {}, {}
    for _, module in ipairs(modules) do note_classes(met, module, seen) end
    for known, forward in pairs(met) do
      list[#list + 1], list[#list + 2] = known, forward
    end
    return list
  end

  -- Returns true if the classes still have the recorded forward functions.
  local function as_met(classes)
    for i = 1, #classes, 2 do
      if classes[i].forward ~= classes[i + 1] then return false end
    end
    return true
  end
  sight.as_met = as_met

  local function note_lists(lists, module, seen)
    if seen[module] then return end
    seen[module] = true
    if module[STORE].names then
      lists[#lists + 1], lists[#lists + 2] = module, #module
      for i = 1, #module do lists[#lists + 1] = rawget(module, i) end
    end
    for _, child in ipairs(module:_children()) do note_lists(lists, child[2], seen) end
  end

  --- Lists the Sequentials and ModuleLists in some modules, each followed by its length and its
  -- elements: an assignment to an element, list[i] = module, is raw and seen by no one.
  function sight.lists(modules)
    local lists, seen = {}, {}
    for _, module in ipairs(modules) do note_lists(lists, module, seen) end
    return lists
  end

  -- Returns true if the lists have the recorded elements.
  local function same_lists(lists)
    local at, last = 1, #lists
    while at < last do
      local list, n = lists[at], lists[at + 1]
      if #list ~= n then return false end
      for i = 1, n do
        if not rawequal(rawget(list, i), lists[at + 1 + i]) then return false end
      end
      at = at + 2 + n
    end
    return true
  end
  sight.same_lists = same_lists

  -- Returns true if all submodules qualify and each field that the forward reads holds a module.
  local function closed(module)
    local store = module[STORE]
    if store.looked ~= sight.changes or not as_met(store.classes)
       or not same_lists(store.lists) then
      store.classes, store.lists = sight.classes {module}, sight.lists {module}
      store.looked, store.closed = sight.changes, true
      local fields = passing[class.written(module.forward)]
      for i = 1, type(fields) == "table" and #fields or 0 do
        store.closed = store.closed and store.kind[fields[i]] == "module"
      end
      for _, child in ipairs(module:_children()) do
        store.closed = store.closed and sight.passes(child[2])
      end
    end
    return store.closed
  end

  --- Returns true if only a module's caller sees its inputs, outputs and intermediate results. The
  -- result is valid until sight.changes increases (hooks, forwards of single modules, replaced
  -- modules), and while sight.as_met(sight.classes {module}) and sight.same_lists(sight.lists
  -- {module}) are true.
  function sight.passes(module)
    return passing[class.written(module.forward)] and not module[STORE].hooks and not has_global()
      and getmetatable(module).__call == call and closed(module) or false
  end

  --- Wraps the forward of a layer of Moth that calls several layers: when it returns, their
  -- intermediate results are freed if nothing observes them.
  -- @param forward  the function, which keeps no tensor that it creates
  -- @param fields   names of the layers that it calls
  -- @param private  function(module): true if the forward's other calls are all Moth's; optional
  -- @return the wrapped forward
  function sight.scoped(forward, fields, private)
    local inside = scope.inside(forward)
    local function run(self, ...)
      if closed(self) and not has_global() and (not private or private(self)) then
        return inside(self, ...)
      end
      return forward(self, ...)
    end
    passing[run] = fields
    return run
  end

  Module.sight = sight

  for name in pairs(sight.kinds) do
    --- Adds a hook to this module; `{prepend = true}` puts it before the others. PyTorch's
    -- `with_kwargs` and `always_call` do not exist. The hook's arguments by kind: forward_pre:
    -- fn(module, args); forward: fn(module, args, output); full_backward_pre: fn(module,
    -- grad_output); full_backward: fn(module, grad_input, grad_output); state_dict_pre: fn(module,
    -- prefix, keep_vars); state_dict_post: fn(module, state_dict, prefix); load_state_dict_pre:
    -- fn(module, state_dict, prefix, strict); load_state_dict_post: fn(module, keys).
    -- @return a handle with :remove()
    Module["register_" .. name .. "_hook"] = function(self, ...)
      return (require "moth.nn.module.hooks".add(self, name, ...))
    end
  end

  errors.module_frame(call, function(modules) return (path_of(STORE, call, modules)) end)
end
