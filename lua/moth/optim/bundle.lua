--- bundle.lua -- gathers the parameters of a group for one call into the engine.
--
-- Parameters without a gradient are left out. Those that have taken the same number of steps go
-- together: as a rule, all of them. Such a whole bundle is kept for the steps to come, as long as
-- it would come out the same; its list of gradients is empty, which tells the engine to take the
-- parameters' own. That saves their handles; those made for other bundles end with the step.

local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx

local bundle = {}

local wholes = setmetatable({}, {__mode = "k"}) -- group -> bundle
local numbers = setmetatable({}, {__mode = "k"}) -- group -> name and place -> tensor
local NONE = {}

--- Handles of gradients that the step under way has made, or nil.
bundle.borrowed = nil

--- Puts a new tensor into a parameter's state, to stay; a step that is being recorded is void.
-- @return the tensor
function bundle.put(own, name, x)
  if lib.capture then require("moth.capture.recording").void() end
  lib.check(C.moth_keep_always(ctx, x), name)
  own[name] = x
  return x
end

--- The dtype of what is kept for a parameter: float32 beside half types, in which the squares of
-- small gradients are 0 and a mean that moves by a thousandth stands still.
function bundle.state_dtype(p)
  local moth, dtype = require "moth", p.dtype
  if dtype == moth.float16 or dtype == moth.bfloat16 then return moth.float32 end
  return dtype
end

--- A tensor of one value, or of zeros, for the state of a parameter.
function bundle.fresh(p, value)
  return (require("moth").full_like(p, value or 0, { dtype = bundle.state_dtype(p) }))
end

--- A parameter or its gradient, as computed with: float32 for half types.
function bundle.real(x)
  local dtype = bundle.state_dtype(x)
  return dtype == x.dtype and x or x:to(dtype)
end

local function start(p, own, name, first)
  return (bundle.put(own, name, bundle.fresh(p, first and first[name])))
end

-- The state of a parameter, as it is or as it begins.
local function state_of(self, p)
  local own = self.state[p]
  if not own then
    own = {step = 0}
    self.state[p] = own
  end
  own.step = own.step or 0
  return own
end

--- The same with its tensors.
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

-- Whether a parameter's state is what the bundle holds.
local function same(found, own, i)
  local names = found.names
  for k = 1, #names do
    local name = names[k]
    if not rawequal(own[name], found[name][i]) then return false end
  end
  return true
end

--- The whole bundle of a group, if it still holds and every parameter has a gradient; else nil.
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

--- Keeps a bundle for the steps to come if it has all parameters of its group.
-- @param found   {params, states and the lists of `names`}
-- @param counts  do the parameters count their steps?
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

--- The gradient of a parameter, until the step ends; or nil.
-- @param self    the optimizer
-- @param sparse  a list that takes {p =, grad =} instead where the gradient is sparse; an error
--                where that is absent
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

--- The bundles of a group, a list of tables of lists that belong together: params, grads, states
-- (the parameters' tables in self.state) and one for each of `names`, the tensors of the state;
-- a tensor that is missing begins as zeros, or filled with what `first` says.
-- @param self   the optimizer
-- @param group  one of its groups
-- @param names  which tensors each parameter's state has
-- @param key    function(state, group) -> what must be equal in a bundle (default: the step)
-- @param first  name -> the value that a tensor begins with
-- @param sparse a list that takes the parameters with sparse gradients; absent: these are refused
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

-- Before a replay: false if the step would go another way.
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

-- After it.
local function done(cell)
  local states, step = cell.states, cell.step
  for i = 1, #states do states[i].step = step end
  if cell.more then cell.more(cell) end
end

--- While a step is recorded: what the op that ran for a bundle is to get in a replay.
-- @param self, group  the optimizer and the group
-- @param found   the bundle
-- @param op      the op's name
-- @param number  function(cell, group, slots, at, step) that writes the op's numbers and returns
--                true, or false if another op, or other lists, would be needed
-- @param more    function(cell), called after each replay
function bundle.note(self, group, found, op, number, more)
  if not lib.capture then return end
  require("moth.capture.recording").cell(op, {write = write, done = done, number = number, more =
    more,
    group = group, states = found.states, params = found.params, state = self.state,
    optimizer = self, count = #group.params, groups = #self.param_groups,
    amsgrad = group.amsgrad, centered = group.centered, buffered = (group.momentum or 0) > 0})
end

--- Where numbers lie that go with a parameter, as a name: on the CPU those in float64 go with all
-- dtypes there. On a GPU they are of its own dtype, so that ops read them where they lie, and a
-- captured step is one graph; half types go with float32.
function bundle.place(p)
  if p.device.type == "cpu" then return "cpu float64" end
  return ("%s %s"):format(p.device, p.dtype == require("moth").float64 and "float64" or "float32")
end

--- A number of the step as a tensor of one element, for optimizers made of several ops. A note of
-- "fill_" after it lets replays fill it anew.
-- @param group  the group whose number it is
-- @param place  where it lies (bundle.place)
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

--- Ends the handles of gradients that a step has made.
function bundle.give_back()
  for _, grad in ipairs(bundle.borrowed) do C.moth_free(ctx, grad) end
  bundle.borrowed = nil
end

--- Counts a step of every parameter of a bundle.
function bundle.count(found)
  local states = found.states
  for i = 1, #states do states[i].step = found.step + 1 end
end

return bundle
