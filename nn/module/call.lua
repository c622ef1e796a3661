--- call.lua -- calling modules: `net(x)` runs forward, and hooks (hooks.lua) where there are any.
--
-- Here is also what is known of calls: whether anything looks on, what a recorded step has read of
-- modules, and the paths of modules in messages.

local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local scope = require "moth.tensor.scope"

-- ---- what looks on ----

-- changes: of hooks, of forwards of single modules, and of modules that take another's place.
-- parts: these, and changes of which tensors modules read, and how; a recording asks for them. Two,
-- since a forward that sets a buffer must not make each Sequential look at its modules anew, which
-- is ten times the work of running a small one.
-- fields: changes of any other field of a module; recordings compare fields only after one.
-- parents: module -> one that holds it, as far as known; for modules that a step calls itself.
local sight = {changes = 0, parts = 0, fields = 0, parents = setmetatable({}, {__mode = "kv"})}

function sight.changed()
  sight.changes, sight.parts = sight.changes + 1, sight.parts + 1
end

local global = {pre = {}, forward = {}, backward_pre = {}, backward = {}}

local function has_global()
  return #global.pre + #global.forward + #global.backward_pre + #global.backward > 0
end

local in_profile -- function(run, module, ...) that makes a call a range of a profile, or nil
local watched = false -- is there anything that looks at the calls of all modules?

local function look() watched = has_global() or in_profile ~= nil end

-- Hooks for all modules, by kind; look() is called when there are more or fewer of them.
sight.global, sight.look = global, look

--- What can be hooked, and the kind of list that such hooks of a module stand in.
sight.kinds = {
  forward_pre = "pre", forward = "forward",
  full_backward_pre = "backward_pre", full_backward = "backward",
  state_dict_pre = "state_dict_pre", state_dict_post = "state_dict_post",
  load_state_dict_pre = "load_state_dict_pre", load_state_dict_post = "load_state_dict_post",
}

-- ---- the call ----

local CALLED = {"pre", "forward", "backward_pre", "backward"}

-- What a call of a module runs and reads, in order: its forward, hooks, children and tensors, and
-- what makes those that are computed. Tensors stand as numbers, so that the list keeps none.
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

-- Whether the modules that ran, and those below them, have the parts that they had then. Asked by a
-- recording where anything has changed since.
-- @return if not, also a module that has others, and the name of the first that is another
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

-- Notes the parts of a module and of those below it: a Sequential runs a Linear without a call, and
-- attention reads the weights of its out_proj.
local function note_parts(noted, module, store_of)
  local store, n = store_of(module), #noted.modules + 1
  if noted.seen[store] then return end
  noted.seen[store] = true
  noted.modules[n], noted.stores[n], noted.lists[n] = module, store, parts_of(module, store)
  for _, child in ipairs(module:_children()) do note_parts(noted, child[2], store_of) end
end

-- A step is being recorded: a replay asks whether the module has the parts and fields that it has
-- now.
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

-- Keeps the frame of the call below it: `return f(x)` would drop it, and with it the module's
-- path in messages.
local function pass_on(...)
  return ...
end

-- ---- paths for messages ----

-- "layers[1]" for the way from one module to another below it, or nil.
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

-- The name of the variable by which the outermost module was called, or its class's name.
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

-- "net.layers[1]" for the modules that are running, outermost first.
local function path_of(STORE, call, modules)
  local path = root_name(call, modules[1])
  for i = 2, #modules do
    local found, step = pcall(way, STORE, modules[i - 1], modules[i])
    path = path .. (found and step or " > " .. class.typename(modules[i]))
  end
  return path
end

--- Adds these methods to nn.Module, whose fields lie under the key STORE.
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

  -- The same for a call by names, {x, inverse = true}.
  local function call_named(self, list)
    local store = self[STORE]
    if store.watch then self:_watch() end
    local recording = lib.capture
    if recording and not recording.seen[self] then
      note_module(recording, self, store, store_of)
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

  --- Notes the parts that a module has now, before others take their place for a while: a recorded
  -- step is still good when they are back.
  function sight.note(module)
    local recording = lib.capture
    if recording and not recording.seen[module] then
      note_module(recording, module, store_of)
    end
  end

  --- Lets a profile see the calls of modules: run(module, ...) is to be called for each, and what
  -- it returns returned. nil: no more.
  function sight.profile(fn)
    in_profile = fn
    look()
  end

  --- "layers[1]", with a dot before it, for the way from one module to another below it, or nil.
  function sight.way(from, to)
    local found, step = pcall(way, STORE, from, to)
    return found and step or nil
  end

  local passing = setmetatable({}, {__mode = "k"})

  --- The forward functions of Moth's own that hold on to neither their input nor their result.
  Module.passing = passing

  --- Of some of these, by the forward: function(module, input), relu of what it gives in one op.
  Module.rectified = setmetatable({}, {__mode = "k"})

  -- Notes the classes of a module and of those below it, each with its forward.
  local function note_classes(met, module, seen)
    if seen[module] then return end
    seen[module] = true
    met[module[STORE].class] = module[STORE].class.forward
    for _, child in ipairs(module:_children()) do note_classes(met, child[2], seen) end
  end

  --- The classes of some modules and of all below them: a list of class and forward in turn, which
  -- holds what was found of these modules as long as sight.as_met says so.
  function sight.classes(modules)
    local met, seen, list = {}, {}, {}
    for _, module in ipairs(modules) do note_classes(met, module, seen) end
    for known, forward in pairs(met) do
      list[#list + 1], list[#list + 2] = known, forward
    end
    return list
  end

  -- Whether the classes still have the forwards that were met.
  local function as_met(classes)
    for i = 1, #classes, 2 do
      if classes[i].forward ~= classes[i + 1] then return false end
    end
    return true
  end
  sight.as_met = as_met

  -- Whether all modules below one pass, and its forward meets modules where it expects them.
  local function closed(module)
    local store = module[STORE]
    if store.looked ~= sight.changes or not as_met(store.classes) then
      store.classes = sight.classes {module}
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

  --- Whether nobody but a module's caller sees what goes in, what comes out and what is made on the
  -- way. It holds as long as sight.changes, which hooks, forwards of single modules and modules
  -- that take another's place raise, and as long as sight.as_met(sight.classes {module}).
  function sight.passes(module)
    return passing[class.written(module.forward)] and not module[STORE].hooks and not has_global()
      and getmetatable(module).__call == call and closed(module) or false
  end

  --- A forward of Moth's own made of several layers: what they hand to each other goes when it
  -- returns, where nobody sees it.
  -- @param forward  the function, which keeps no tensor that it makes
  -- @param fields   names of the layers that it calls
  -- @param private  function(module): is what else it calls Moth's own? optional
  -- @return the forward to be used
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
    --- Adds a hook to this module; `{prepend = true}` puts it before the others.
    -- There is no `with_kwargs` or `always_call`.
    -- forward_pre: fn(module, args); forward: fn(module, args, output);
    -- full_backward_pre: fn(module, grad_output); full_backward: fn(module, grad_input,
    -- grad_output); state_dict_pre: fn(module, prefix, keep_vars); state_dict_post: fn(module,
    -- state_dict, prefix); load_state_dict_pre: fn(module, state_dict, prefix, strict);
    -- load_state_dict_post: fn(module, keys).
    -- @return a handle with :remove()
    Module["register_" .. name .. "_hook"] = function(self, ...)
      return (require "moth.nn.module.hooks".add(self, name, ...))
    end
  end

  errors.module_frame(call, function(modules) return (path_of(STORE, call, modules)) end)
end
