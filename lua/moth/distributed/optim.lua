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
  self.group = groups.of("ZeroRedundancyOptimizer", rest.process_group)
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
  self.param_groups = self.optim and self.optim.param_groups or {}
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

--- The states of all processes, by rank: a table that load_state_dict of as many processes takes.
-- All processes call it.
function Zero:state_dict()
  local all = {}
  dist.all_gather_object(all, self.optim and self.optim:state_dict() or false, self.group)
  return {partitions = all, owner = {unpack(self.owner)}}
end

function Zero:load_state_dict(state)
  if type(state) ~= "table" or type(state.partitions) ~= "table"
      or #state.partitions ~= #self.group.ranks then
    errors.raise(("ZeroRedundancyOptimizer: the state of %d processes is needed"):format(
      #self.group.ranks), "E_ARG")
  end
  local mine = state.partitions[self.place + 1]
  if self.optim and mine then self.optim:load_state_dict(mine) end
end

return (lazy.namespace("moth.distributed.optim", {ZeroRedundancyOptimizer = Zero}, {}))
