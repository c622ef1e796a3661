--- optim.lua -- moth.distributed.optim.ZeroRedundancyOptimizer: each process keeps the optimizer's
-- state of a part of the parameters only (stage 1 of ZeRO, Rajbhandari et al. 2020).

local class = require "moth.base.class"
local errors = require "moth.error"
local groups = require "moth.distributed.group"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"

local moth = lib.anchor.moth
local dist = moth.distributed

local Zero = class "ZeroRedundancyOptimizer"

--- An optimizer whose state is divided among the processes. step() updates the parameters of this
-- process, then each process sends its parameters to the others.
--
--     local optimizer = dist.optim.ZeroRedundancyOptimizer(net:parameters(), optim.Adam,
--       {lr = 1e-3})
--
-- Gradients must be equal in all processes: DistributedDataParallel makes them so.
-- @param params           list of parameters, the same in all processes
-- @param optimizer_class  such as moth.optim.Adam
-- @param options          table of its options, and process_group (default: all processes)
function Zero:init(params, optimizer_class, options)
  if not lib.is_plain(params) or #params == 0 then
    errors.refuse("ZeroRedundancyOptimizer", "params", "a list of parameters is needed", params,
      "E_TYPE")
  end
  local rest = {}
  for name, value in pairs(options or {}) do rest[name] = value end
  self.group = groups.of("ZeroRedundancyOptimizer", rest.process_group, "process_group")
  rest.process_group = nil
  self.params, self.place = params, self.group.place[groups.get().rank]
  -- The largest parameters first, each to the process with the fewest elements.
  local order, load = {}, {}
  for i = 1, #params do order[i] = i end
  table.sort(order, function(a, b)
    local na, nb = params[a]:numel(), params[b]:numel()
    return na > nb or (na == nb and a < b)
  end)
  self.owner = {}
  for k = 1, #self.group.ranks do load[k] = 0 end
  for _, i in ipairs(order) do
    local least = 1
    for k = 2, #load do if load[k] < load[least] then least = k end end
    self.owner[i], load[least] = least - 1, load[least] + params[i]:numel()
  end
  local mine = {}
  for i, p in ipairs(params) do
    if self.owner[i] == self.place then mine[#mine + 1] = p end
  end
  self.optim = #mine > 0 and optimizer_class(mine, rest) or nil
  self.param_groups = self.optim and self.optim.param_groups or {{params = {}, lr = rest.lr}}
  self.partitioned = true
end

--- Updates all parameters. All processes call it.
-- @param closure  computes the loss again, for optimizers that need it
-- @return the closure's result
function Zero:step(closure)
  local loss
  if self.optim then loss = self.optim:step(closure) end
  moth.no_grad(function()
    local works = {}
    for i, p in ipairs(self.params) do
      works[i] = dist.broadcast(p, self.group.ranks[self.owner[i] + 1], self.group, true)
    end
    for _, work in ipairs(works) do work:wait() end
  end)
  return loss
end

function Zero:zero_grad()
  for _, p in ipairs(self.params) do p.grad = nil end
end

-- The positions, from 1, of the parameters of this process.
local function own_positions(self)
  local list = {}
  for i, owner in ipairs(self.owner) do
    if owner == self.place then list[#list + 1] = i end
  end
  return list
end

--- The state of the parameters of this process only, for moth.distributed.checkpoint: as that of
-- the whole optimizer, without the other parameters. Not a collective.
function Zero:sharded_state_dict()
  if not self.optim then return {state = {}} end
  local inner, out, all = self.optim:state_dict(), {state = {}}, {}
  for k, i in ipairs(own_positions(self)) do
    out.state[tostring(i - 1)] = inner.state[tostring(k - 1)]
  end
  for i = 1, #self.params do all[i] = i - 1 end
  local group = {}
  for name, value in pairs(inner.param_groups[1]) do group[name] = value end
  group.params = all
  out.param_groups = {group}
  return out
end

--- Loads the state of the parameters of this process. Not a collective.
-- @param state  of sharded_state_dict or of the whole optimizer, also one that another number of
-- processes has saved
function Zero:load_sharded_state_dict(state)
  if type(state) ~= "table" or type(state.state) ~= "table"
      or type(state.param_groups) ~= "table" or type(state.param_groups[1]) ~= "table"
      or #state.param_groups[1].params ~= #self.params then
    errors.raise(("ZeroRedundancyOptimizer: the state of an optimizer of %d parameters is needed")
      :format(#self.params), "E_ARG")
  end
  if not self.optim then return end
  local inner, group, own = {state = {}}, {}, own_positions(self)
  for name, value in pairs(state.param_groups[1]) do group[name] = value end
  group.params = {}
  inner.param_groups = {group}
  for k, i in ipairs(own) do
    group.params[k] = k - 1
    inner.state[tostring(k - 1)] = state.state[tostring(i - 1)]
  end
  self.optim:load_state_dict(inner)
end

--- Does this process need the state under these keys? For moth.distributed.checkpoint.
function Zero:needs_state(first, second)
  return first ~= "state" or second == nil or self.owner[tonumber(second) + 1] == self.place
end

--- The whole state, as that of the optimizer in one process. All processes call it, and all get it;
-- moth.distributed.checkpoint saves the parts without gathering them.
function Zero:state_dict()
  local all, whole = {}, {state = {}}
  dist.all_gather_object(all, self:sharded_state_dict(), self.group)
  for _, part in ipairs(all) do
    for number, values in pairs(part.state) do whole.state[number] = values end
    whole.param_groups = whole.param_groups or part.param_groups
  end
  return whole
end

--- Loads the whole state, also of another number of processes.
function Zero:load_state_dict(state) self:load_sharded_state_dict(state) end

return (lazy.namespace("moth.distributed.optim", {ZeroRedundancyOptimizer = Zero}, {}))
