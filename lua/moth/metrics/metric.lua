--- metric.lua -- moth.metrics.Metric: the base of all metrics.
--
-- A metric adds up states over batches. Each state has a rule by which the states of two workers or
-- ranks become one: "sum", "mean", "max", "min" or "cat". A subclass calls add_state in its `init`
-- and defines `update(...)` and `compute()`:
--
--     local Hits = class("Hits", moth.metrics.Metric)
--     function Hits:init() self:add_state("hits", moth.zeros(), "sum") end
--     function Hits:update(preds, target) self.hits:add_(preds:eq(target):sum()) end
--     function Hits:compute() return self.hits end
--
-- `update` runs without gradients. Tensors of states are written in place, so that a captured step
-- may contain an update.

local autograd = require "moth.autograd"
local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local istensor = lib.istensor

--- The base of all metrics. `update` adds a batch, `compute` returns the value of all batches since
-- the last `reset`; a call adds a batch and returns the value of this batch alone.
local Metric = class("Metric")

Metric.higher_is_better = nil -- true or false where one direction is better
Metric.is_differentiable = false
Metric.sync_on_compute = true -- does compute add up the states of all processes?
Metric.dist_sync_on_step = false -- does a call, metric(...), too?
Metric.process_group = nil -- of these processes; default: all

local RULES = {sum = true, mean = true, cat = true, max = true, min = true}

local function keep(x)
  lib.check(lib.C.moth_keep_always(lib.ctx, x), "update", x)
  return x
end

-- ---- updates ----

-- Tensors that `update` appended to a list are copied: the user may overwrite the original, and a
-- view would keep its whole storage.
local function keep_lists(self)
  for _, name in ipairs(self._lists) do
    local list, kept = self._state[name], self._kept[name] or 0
    for i = kept + 1, #list do list[i] = keep(list[i]:detach():clone()) end
    if #list > kept and lib.capture then
      require("moth.capture.recording").refuse("a metric that keeps all its inputs")
    end
    self._kept[name] = #list
  end
end

-- Before its first update a metric moves to the device of its inputs.
local function follow(self, ...)
  for i = 1, select("#", ...) do
    local x = select(i, ...)
    if istensor(x) then return self:to(x.device) end
  end
end

local function run_update(self, body, ...)
  if self._unsynced then
    errors.raise(("%s: update was called between sync and unsync"):format(class.typename(self)),
      "E_STATE")
  end
  if self.update_count == 0 and self._device == nil then follow(self, ...) end
  autograd.no_grad(body, self, ...)
  if self._lists[1] then keep_lists(self) end
  self.update_count = self.update_count + 1
end

-- A result that is a state is copied, because the next update writes to the state.
local function apart(self, first, ...)
  if istensor(first) then
    for _, value in pairs(self._state) do
      if rawequal(value, first) then first = first:clone() end
    end
  end
  if select("#", ...) == 0 then return first end
  return first, apart(self, ...)
end

local function value_of(self, body)
  if self.update_count == 0 then
    require("moth").warn(("%s: compute was called before update; the value is that of no data")
      :format(class.typename(self)))
  end
  return apart(self, autograd.no_grad(body, self))
end

local ON_STEP = {} -- an argument of compute: the value is that of one batch
Metric._on_step = ON_STEP

local function unsynced(self, ok, ...)
  self:unsync()
  if not ok then error((...), 0) end
  return ...
end

local function run_compute(self, body, step)
  if package.loaded["moth.distributed.group"]
      and require("moth.metrics.sync").wanted(self, step == ON_STEP) then
    self:sync()
    return unsynced(self, pcall(value_of, self, body))
  end
  return value_of(self, body)
end

-- class -> {update =, compute =, ...}: methods that instances call instead of those of the class.
local wrapped = setmetatable({}, {__mode = "k"})

local function wrappers(own)
  local made = wrapped[own]
  local update, compute = class.written(own.update), class.written(own.compute)
  if made and made.from == update and made.value == compute then return made end
  made = {
    from = update, value = compute,
    update = function(self, ...)
      if not class.isinstance(self, Metric) then errors.no_self("update", "metric") end
      run_update(self, update, ...)
    end,
    compute = function(self, step)
      if not class.isinstance(self, Metric) then errors.no_self("compute", "metric") end
      return run_compute(self, compute, step)
    end,
  }
  wrapped[own] = made
  return made
end

function Metric.__new(own)
  local made = wrappers(own)
  return {
    update = made.update, compute = made.compute, update_count = 0,
    _state = {},    -- name -> tensor or list
    _defaults = {}, -- name -> tensor, or false for a list
    _names = {},    -- in the order of add_state
    _lists = {},    -- the names of lists
    _kept = {},     -- name of a list -> how many of its tensors are copies
    reductions = {}, -- name -> rule, or false
  }
end

-- Changes the class of an instance that has no states yet.
function Metric._become(self, wanted)
  local made = wrappers(wanted)
  self.update, self.compute = made.update, made.compute
  class.become(self, wanted)
end

-- States are fields.
function Metric:__index(name)
  local states = rawget(self, "_state")
  return states and states[name]
end

function Metric:__newindex(name, value)
  if self.reductions[name] == nil then return rawset(self, name, value) end
  if self._defaults[name] then
    if not istensor(value) then
      errors.raise(("%s: the state '%s' is a tensor, got %s"):format(class.typename(self), name,
        errors.describe(value)), "E_TYPE")
    end
    if value.requires_grad then value = value:detach() end
    keep(value)
  elseif not lib.is_plain(value) then
    errors.raise(("%s: the state '%s' is a list of tensors, got %s"):format(class.typename(self),
      name, errors.describe(value)), "E_TYPE")
  else
    self._kept[name] = 0
  end
  self._state[name] = value
end

--- Adds a batch to the states. A subclass defines it.
function Metric:update()
  class.abstract(self, "update", ":update(...)")
end

--- The value of all batches since the last reset. A subclass defines it. When moth.distributed is
-- initialized, the value is that of the batches of all processes, which all call compute; with
-- metric.sync_on_compute = false it is that of this process.
function Metric:compute()
  class.abstract(self, "compute", ":compute()")
end

-- ---- states ----

--- Declares a state, which is then the field of that name.
-- @param name            the state's name
-- @param default         its value before the first update: a tensor or a number, or {} for a list
-- of tensors that grows with the batches
-- @param dist_reduce_fx  how two states become one: "sum", "mean", "max", "min", or "cat" for lists
function Metric:add_state(name, default, dist_reduce_fx)
  if lib.is_plain(name) then
    name, default, dist_reduce_fx = name.name or name[1], name.default or name[2],
      name.dist_reduce_fx or name[3]
  elseif lib.is_plain(dist_reduce_fx) then
    dist_reduce_fx = dist_reduce_fx.dist_reduce_fx
  end
  if type(name) ~= "string" or name == "" or type(self[name]) ~= "nil" then
    errors.refuse("add_state", "name", "the name of a new field is needed", name)
  end
  if dist_reduce_fx ~= nil and dist_reduce_fx ~= lib.none and not RULES[dist_reduce_fx] then
    errors.refuse("add_state", "dist_reduce_fx",
      '"sum", "mean", "max", "min" or "cat" is needed', dist_reduce_fx)
  end
  if type(default) == "number" then default = require("moth").tensor(default) end
  local list = lib.is_plain(default) and next(default) == nil
  if not list and not istensor(default) then
    errors.refuse("add_state", "default", "a tensor, a number or an empty list is needed", default,
      "E_TYPE")
  end
  self._names[#self._names + 1] = name
  self.reductions[name] = RULES[dist_reduce_fx] and dist_reduce_fx or false
  if list then
    self._lists[#self._lists + 1] = name
    self._defaults[name], self._state[name] = false, {}
  else
    self._defaults[name] = keep(default:detach():clone())
    self._state[name] = keep(default:detach():clone())
  end
end

--- Sets all states to their defaults.
function Metric:reset()
  for _, name in ipairs(self._names) do
    local default, now = self._defaults[name], self._state[name]
    if not default then
      self._state[name] = {}
    elseif now.shape == default.shape and now.dtype == default.dtype then
      autograd.no_grad(now.copy_, now, default)
    else
      self._state[name] = keep(default:clone())
    end
  end
  self.update_count, self._kept = 0, {}
end

local function fresh(self)
  local states = {}
  for _, name in ipairs(self._names) do
    local default = self._defaults[name]
    states[name] = default and keep(default:clone()) or {}
  end
  return states
end

-- Combines state b with state a in place; `mine` and `theirs` are their numbers of updates. Returns
-- the result: a new tensor if the shapes differ.
local function combine(rule, a, b, mine, theirs)
  if rule == "sum" and not (a.shape == b.shape) then return keep(a + b) end
  if rule == "sum" then
    a:add_(b)
  elseif rule == "max" or rule == "min" then
    a:copy_(rule == "max" and a:maximum(b) or a:minimum(b))
  elseif rule == "mean" and theirs > 0 then
    if a:is_floating_point() then a:lerp_(b, theirs / (mine + theirs))
    else a:copy_((a * mine + b * theirs) / (mine + theirs)) end
  end
  return a
end

-- Adds states to those of self. A state that `other` lacks is unchanged.
local function merge_states(self, other, theirs)
  local mine, states = self.update_count, self._state
  for _, name in ipairs(self._names) do
    local a, b = states[name], other[name]
    if b == nil then -- luacheck: ignore 542
    elseif not self._defaults[name] then
      for _, x in ipairs(b) do a[#a + 1] = x end
      self._kept[name] = #a
    elseif self.reductions[name] == "cat" then
      states[name] = keep(require("moth").cat({a, b}, 1))
    elseif self.reductions[name] then
      states[name] = combine(self.reductions[name], a, b, mine, theirs)
    else
      errors.raise(("%s: the state '%s' has no rule by which two states become one"):format(
        class.typename(self), name), "E_STATE")
    end
  end
  self.update_count = mine + theirs
end

local function joined(self, ok, ...)
  local batch, count = self._state, self.update_count
  self._state, self.update_count, self._kept = self._outer[1], self._outer[2], self._outer[3]
  self._outer = nil
  if not ok then error((...), 0) end
  autograd.no_grad(merge_states, self, batch, count)
  return ok, ...
end

-- Calls f(...), which updates, with default states. Afterwards adds them to the earlier states.
function Metric:_apart(f, ...)
  if self.update_count == 0 then return f(...) end
  self._outer = {self._state, self.update_count, self._kept}
  self._state, self.update_count, self._kept = fresh(self), 0, {}
  return select(2, joined(self, pcall(f, ...)))
end

local function update_and_compute(self, ...)
  self:update(...)
  return self:compute(ON_STEP)
end

--- Adds a batch and returns the value of this batch alone; metric(...) is the same. With
-- metric.dist_sync_on_step = true it is the value of the batches of all processes.
function Metric:forward(...)
  return self:_apart(update_and_compute, self, ...)
end

function Metric:__call(...)
  return self:forward(...)
end

-- ---- other workers and files ----

--- The states, for a checkpoint or for merge in another process: a table of tensors and the number
-- of updates. A list of tensors becomes one tensor where its rule is "cat".
function Metric:state_dict()
  local out = {update_count = self.update_count}
  for _, name in ipairs(self._names) do
    local value = self._state[name]
    if self._defaults[name] then
      out[name] = value:clone()
    elseif self.reductions[name] == "cat" and value[1] then
      out[name] = require("moth").cat(value, 1)
    else
      out[name] = {unpack(value)}
    end
  end
  return out
end

-- Checks a state that came from outside. Returns a tensor or a list on the metric's device.
local function imported(self, fname, name, value)
  local default = self._defaults[name]
  local device = default and default.device or self._device
  local function moved(x) return device and x.device ~= device and x:to(device) or x end
  if default then
    if not istensor(value) then
      errors.argument(fname, "state_dict", ("the state '%s' is %s, got %s"):format(name,
        errors.describe(default), errors.describe(value)), "E_STATE")
    end
    if value.shape ~= default.shape and self.reductions[name] ~= "cat" and not self._grows then
      errors.argument(fname, "state_dict", ("the state '%s' has the shape %s, got %s"):format(name,
        tostring(default.shape), tostring(value.shape)), "E_SHAPE")
    end
    return moved(value:to(default.dtype))
  end
  if istensor(value) then value = {value} end
  if not lib.is_plain(value) then
    errors.argument(fname, "state_dict", ("the state '%s' is a list of tensors, got %s"):format(
      name, errors.describe(value)), "E_STATE")
  end
  local list = {}
  for i, x in ipairs(value) do
    if not istensor(x) then
      errors.argument(fname, "state_dict", ("the state '%s' is a list of tensors, got %s in it")
        :format(name, errors.describe(x)), "E_STATE")
    end
    list[i] = keep(moved(x):detach():clone())
  end
  return list
end

local function import(self, fname, state)
  local states = {}
  for _, name in ipairs(self._names) do
    if state[name] == nil then
      errors.argument(fname, "state_dict", ("the state '%s' of %s is missing"):format(name,
        class.typename(self)), "E_STATE")
    end
    states[name] = imported(self, fname, name, state[name])
  end
  for name in pairs(state) do
    if self.reductions[name] == nil and name ~= "update_count" then
      errors.argument(fname, "state_dict", ("%s has no state '%s'"):format(class.typename(self),
        tostring(name)), "E_STATE")
    end
  end
  return states, tonumber(state.update_count) or 1
end

--- Sets all states, as state_dict returned them.
function Metric:load_state_dict(state_dict)
  if not lib.is_plain(state_dict) then
    errors.refuse("load_state_dict", "state_dict", "a table of states is needed", state_dict,
      "E_TYPE")
  end
  local states, count = import(self, "load_state_dict", state_dict)
  autograd.no_grad(function()
    for _, name in ipairs(self._names) do
      local now, value = self._state[name], states[name]
      if self._defaults[name] and now.shape == value.shape then now:copy_(value)
      else self._state[name] = self._defaults[name] and keep(value:clone()) or value end
      self._kept[name] = not self._defaults[name] and #value or nil
    end
  end)
  self.update_count = count
end

--- Adds the states of another metric of the same class, or those that its state_dict returned: the
-- value is then that of the batches of both.
function Metric:merge(other)
  local states = other
  if class.isinstance(other, Metric) then
    if class.of(other) ~= class.of(self) then
      errors.argument("merge", "other", ("%s is needed, got %s"):format(class.typename(self),
        class.typename(other)), "E_TYPE")
    end
    states = other:state_dict()
  elseif not lib.is_plain(other) then
    errors.refuse("merge", "other", "a metric or a table of states is needed", other, "E_TYPE")
  end
  local theirs, count = import(self, "merge", states)
  autograd.no_grad(merge_states, self, theirs, count)
end

Metric.merge_state = Metric.merge

-- A copy of the states of one process, on the metric's device.
local function received(self, states)
  local out = {}
  for _, name in ipairs(self._names) do
    local value, default = states[name], self._defaults[name]
    if value ~= nil then out[name] = imported(self, "sync", name, value) end
    if value ~= nil and default then out[name] = keep(out[name]:clone()) end
  end
  return out
end

--- Replaces the states by those of all processes together, until unsync. compute calls it. All
-- processes of the group call it.
-- @param process_group  default: the field process_group, else all processes
function Metric:sync(process_group)
  if self._unsynced then
    errors.raise(("%s: sync was called twice"):format(class.typename(self)), "E_STATE")
  end
  local all = require("moth.metrics.sync").gather(self._names, self._state, self.reductions,
    self.update_count, process_group or self.process_group)
  local before = {self._state, self.update_count, self._kept}
  self._unsynced = before
  local ok, problem = pcall(autograd.no_grad, function()
    self._state, self.update_count, self._kept = received(self, all[1][1]), all[1][2], {}
    for r = 2, #all do merge_states(self, received(self, all[r][1]), all[r][2]) end
  end)
  if ok then return end
  self:unsync()
  error(problem, 0)
end

--- Restores the states of this process after sync.
function Metric:unsync()
  local before = self._unsynced
  if not before then
    errors.raise(("%s: unsync was called without sync"):format(class.typename(self)), "E_STATE")
  end
  self._unsynced = nil
  self._state, self.update_count, self._kept = before[1], before[2], before[3]
end

--- Moves the states to a device.
-- @return the metric
function Metric:to(device)
  for _, name in ipairs(self._names) do
    local default, value = self._defaults[name], self._state[name]
    if default then
      if default.device ~= device then
        self._defaults[name] = keep(default:to(device))
        self._state[name] = keep(value:to(device))
      end
    else
      for i, x in ipairs(value) do value[i] = keep(x:to(device)) end
    end
  end
  self._device = device
  return self
end

--- The states, in the order of add_state: a list of {name =, value =, reduce = "sum" and so on}.
function Metric:states()
  local list = {}
  for i, name in ipairs(self._names) do
    list[i] = {name = name, value = self._state[name], reduce = self.reductions[name] or nil}
  end
  return list
end

-- Keeps the states when a scope ends.
function Metric:_keep()
  for _, states in ipairs {self._state, self._defaults} do
    for _, value in pairs(states) do
      if istensor(value) then keep(value)
      elseif value then for _, x in ipairs(value) do keep(x) end end
    end
  end
end

--- A copy that shares no state.
function Metric:clone()
  local copy = autograd.no_grad(require("moth").deepcopy, self)
  copy:_keep()
  return copy
end

function Metric:__tostring()
  return class.typename(self) .. "()"
end

return Metric
