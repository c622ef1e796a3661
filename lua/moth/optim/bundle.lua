--- bundle.lua -- collects the parameters of a group for one call of an optimizer's op.
--
-- Parameters without a gradient are omitted. Parameters with the same step count form a bundle;
-- usually all do. A bundle of the whole group is cached for later steps while it is valid. Its list
-- of gradients is empty: the op then reads each parameter's gradient, which saves the handles.
-- Other bundles free their handles after the step.

local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx

local bundle = {}

local wholes = setmetatable({}, {__mode = "k"}) -- group -> bundle
local numbers = setmetatable({}, {__mode = "k"}) -- group -> name and device -> tensor
local NONE = {}

--- The handles of gradients that the current step has created, or nil.
bundle.borrowed = nil

--- Stores a new tensor in a parameter's state. A captured step that is being recorded becomes
-- invalid.
-- @return the tensor
function bundle.put(own, name, x)
  if lib.capture then require("moth.capture.recording").void() end
  lib.check(C.moth_keep_always(ctx, x), name)
  own[name] = x
  return x
end

--- The dtype of a parameter's state: float32 for half types, where the squares of small gradients
-- underflow and small changes of a mean are rounded away.
function bundle.state_dtype(p)
  local moth, dtype = require "moth", p.dtype
  if dtype == moth.float16 or dtype == moth.bfloat16 then return moth.float32 end
  return dtype
end

--- Creates a tensor with one value, or of zeros, for the state of a parameter.
function bundle.fresh(p, value)
  return (require("moth").full_like(p, value or 0, {dtype = bundle.state_dtype(p)}))
end

--- Converts a parameter or its gradient to the computation's dtype: float32 for half types.
function bundle.real(x)
  local dtype = bundle.state_dtype(x)
  return dtype == x.dtype and x or x:to(dtype)
end

local function start(p, own, name, first)
  return (bundle.put(own, name, bundle.fresh(p, first and first[name])))
end

-- Returns the state of a parameter, which is created if absent.
local function state_of(self, p)
  local own = self.state[p]
  if not own then
    own = {step = 0}
    self.state[p] = own
  end
  own.step = own.step or 0
  return own
end

--- Returns the state of a parameter, with all its tensors.
function bundle.state(self, p, names)
  local own = state_of(self, p)
  for _, name in ipairs(names) do own[name] = own[name] or start(p, own, name) end
  return own
end

local function add(found, p, grad, own, names, first)
  local n = #found.params + 1
  found.params[n], found.grads[n], found.states[n] = p, grad, own
  for i = 1, #names do
    local name = names[i]
    found[name][n] = own[name] or start(p, own, name, first)
  end
end

-- Returns true if the state of a parameter is the one in the bundle.
local function same(found, own, i)
  local names = found.names
  for k = 1, #names do
    local name = names[k]
    if not rawequal(own[name], found[name][i]) then return false end
  end
  return true
end

--- Returns the cached bundle of a group if it is valid and every parameter has a gradient; else
-- nil.
function bundle.whole(self, group, names)
  local found = wholes[group]
  if not found or found.names ~= names or lib.capture then return nil end
  local mine, now, states, state = found.params, group.params, found.states, self.state
  local n, step = #mine, found.counts and states[1].step
  if #now ~= n then return nil end
  for i = 1, n do
    local p = mine[i]
    local own = state[p]
    if not rawequal(p, now[i]) or own ~= states[i] then return nil end
    if own and (own.step ~= step and found.counts or not same(found, own, i)) then return nil end
  end
  if C.moth_have_grads(ctx, found.handles, n) == 0 then return nil end
  found.step = step
  return found
end

--- Caches a bundle for later steps if it has all parameters of its group.
-- @param found   {params, states and the lists of `names`}
-- @param counts  true if the parameters count their steps
function bundle.keep(group, names, found, counts)
  local n = #found.params
  if n == 0 or n ~= #group.params or lib.capture then return end
  local made = {names = names, counts = counts, params = found.params, states = found.states,
                grads = NONE, handles = lib.handles(n)}
  for i = 1, n do made.handles[i - 1] = found.params[i] end
  for k = 1, #names do made[names[k]] = found[names[k]] end
  made.list = {made}
  wholes[group] = made
end

--- Returns the gradient of a parameter, valid until the step ends; or nil.
-- @param self    the optimizer
-- @param sparse  a list to which {p =, grad =} is appended for a sparse gradient; without it a
-- sparse gradient raises
function bundle.grad(p, self, sparse)
  local grad, ours = lib.borrow_grad(p, "grad")
  if ours then
    bundle.borrowed = bundle.borrowed or {}
    table.insert(bundle.borrowed, grad)
  end
  if grad == nil or bit.band(lib.inspect(grad).flags, C.MOTH_IS_SPARSE) == 0 then return grad end
  if sparse then
    sparse[#sparse + 1] = {p = p, grad = grad}
    return nil
  end
  errors.raise(("%s does not support sparse gradients; SparseAdam does, and SGD without momentum, "
    .. "and Adagrad"):format(class.typename(self)), "E_UNSUPPORTED")
end

--- Returns the bundles of a group: a list of tables with the lists params, grads, states (the
-- parameters' tables in self.state) and one list for each of `names`, the tensors of the state. A
-- missing tensor is created with zeros or with its value in `first`.
-- @param self   the optimizer
-- @param group  one of its groups
-- @param names  the names of each parameter's state tensors
-- @param key    function(state, group) -> a value that is equal within a bundle (default: the step)
-- @param first  name -> the initial value of a tensor
-- @param sparse a list for the parameters with sparse gradients; if absent, these raise
function bundle.of(self, group, names, key, first, sparse)
  local whole = not key and bundle.whole(self, group, names)
  if whole then return whole.list end
  local all, by_key, params = {}, {}, group.params
  for i = 1, #params do
    local p = params[i]
    local grad = bundle.grad(p, self, sparse)
    if grad ~= nil then
      local own = state_of(self, p)
      local at = key and key(own, group) or own.step
      local found = by_key[at]
      if not found then
        found = {step = own.step, params = {}, grads = {}, states = {}}
        for k = 1, #names do found[names[k]] = {} end
        by_key[at] = found
        all[#all + 1] = found
      end
      add(found, p, grad, own, names, first)
    end
  end
  if #all == 1 and not key then bundle.keep(group, names, all[1], true) end
  return all
end

-- Called before a replay: returns false if the step would take another branch.
local function write(cell, s, at)
  local group, states, number = cell.group, cell.states, cell.number
  local optimizer = cell.optimizer
  if optimizer.state ~= cell.state or #group.params ~= cell.count
     or #optimizer.param_groups ~= cell.groups then
    return false
  end
  local step, params, state = states[1].step, cell.params, cell.state
  for i = 1, #states do
    local own = states[i]
    if own.step ~= step or state[params[i]] ~= own then return false end
  end
  cell.step = step + 1
  return number(cell, group, s, at, step + 1)
end

-- Called after a replay.
local function done(cell)
  local states, step = cell.states, cell.step
  for i = 1, #states do states[i].step = step end
  if cell.more then cell.more(cell) end
end

--- Registers the arguments of the bundle's op for replays, while a step is captured.
-- @param self, group  the optimizer and the group
-- @param found   the bundle
-- @param op      the op's name
-- @param number  function(cell, group, slots, at, step) that writes the op's numbers and returns
-- true, or false if the replay needs another op or other lists
-- @param more    function(cell), called after each replay
function bundle.note(self, group, found, op, number, more)
  if not lib.capture then return end
  require("moth.capture.recording").cell(op, {write = write, done = done, number = number, more =
    more,
    group = group, states = found.states, params = found.params, state = self.state,
    optimizer = self, count = #group.params, groups = #self.param_groups,
    amsgrad = group.amsgrad, centered = group.centered, buffered = (group.momentum or 0) > 0})
end

--- Returns the device and dtype of numbers that are combined with a parameter, as a string. On the
-- CPU float64 numbers combine with all dtypes. On a GPU they have the parameter's dtype (float32
-- for half types), so that ops read them on the device and a captured step is one graph.
function bundle.place(p)
  if p.device.type == "cpu" then return "cpu float64" end
  return ("%s %s"):format(p.device, p.dtype == require("moth").float64 and "float64" or "float32")
end

--- Returns a number of the step as a tensor of one element, for optimizers composed of several ops.
-- The call log entry of its "fill_" lets replays update the value.
-- @param group  the group of the number
-- @param place  its device and dtype (bundle.place)
function bundle.number(group, name, place, value)
  local moth = require "moth"
  local own = numbers[group]
  if not own then
    own = {}
    numbers[group] = own
  end
  local device, dtype = place:match "^(%S+) (%S+)$"
  local key = name .. " " .. place
  local x = own[key] or bundle.put(own, key,
    moth.zeros({}, {dtype = moth[dtype], device = device}))
  x:fill_(value)
  return x
end

--- Frees the handles of gradients that a step has created.
function bundle.give_back()
  for _, grad in ipairs(bundle.borrowed) do C.moth_free(ctx, grad) end
  bundle.borrowed = nil
end

--- Increments the step count of every parameter of a bundle.
function bundle.count(found)
  local states = found.states
  for i = 1, #states do states[i].step = found.step + 1 end
end

return bundle
