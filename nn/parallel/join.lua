--- join.lua -- DistributedDataParallel:join: processes with different numbers of batches.
--
-- Before each forward pass the processes exchange a row of flags: has this process a batch, does it
-- reduce gradients, does it copy buffers. A process without batches takes part in the same
-- reductions with zeros, until no process has a batch.

local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local moth = lib.anchor.moth
local dist = moth.distributed

local join = {}

join.parse = define.signature("join", {
  {"function", "f", "the training loop of this process"},
  {"bool", "divide_by_initial_world_size", "divide the sum of the gradients by the number of all "
    .. "processes? false: of those that have a batch", default = true},
  {"bool", "enable", "false: only call f", default = true},
  {"bool", "throw_on_early_termination", "raise in all processes when the first has no more "
    .. "batches", default = false},
})

-- Exchanges the flags. Sets net._src, the lowest rank with a batch. Returns the sums of the flags.
local function exchange(net, here, reduces, copies)
  local group, state = net._group, net._join
  local all = moth.empty({#group.ranks, 3}, {dtype = moth.int32})
  dist.all_gather_into_tensor(all, moth.tensor({here, reduces, copies}, {dtype = moth.int32}),
    group)
  local sums, src = {0, 0, 0}, nil
  for r, row in ipairs(all:tolist()) do
    for i = 1, 3 do sums[i] = sums[i] + row[i] end
    if row[1] == 1 and not src then src = group.ranks[r] end
  end
  if sums[1] == 0 then return sums end
  rawset(net, "_src", src)
  rawset(net, "_divisor", not state.by_all and sums[1] or false)
  if state.throws and sums[1] < #group.ranks then
    errors.raise(("join: %d of %d processes have no more batches"):format(
      #group.ranks - sums[1], #group.ranks), "E_STATE")
  end
  return sums
end

--- Called before a forward pass inside join.
function join.notify(net)
  local reduces = net._sync and moth.is_grad_enabled()
  local copies = net._broadcast and net.training and net._sync
  moth.no_grad(exchange, net, 1, reduces and 1 or 0, copies and 1 or 0)
end

-- Takes part in the passes of the other processes, until no process has a batch.
local function follow(net, shadow)
  while true do
    local sums = exchange(net, 0, 0, 0)
    if sums[1] == 0 then return end
    shadow(net, sums[2] > 0, sums[3] > 0)
  end
end

--- Runs f with a net in join.
-- @param shadow     function(net, reduces, copies): takes part in one pass
-- @param broadcast  function(tensors, group, src)
function join.run(net, shadow, broadcast, ...)
  local f, by_all, enable, throws = join.parse(...)
  local group = net._group
  if not enable or #group.ranks == 1 then return f() end
  if net._join then errors.raise("join: this net is in join already", "E_STATE") end
  rawset(net, "_join", {by_all = by_all, throws = throws})
  local results = lib.pack(pcall(f))
  local ok, problem = results[1], results[2]
  if ok then ok, problem = pcall(moth.no_grad, follow, net, shadow) end
  local src = net._src
  for _, name in ipairs {"_join", "_src", "_divisor"} do rawset(net, name, false) end
  if not ok then error(problem, 0) end
  if src then -- the weights of a process that had the last batch
    moth.no_grad(function()
      broadcast(net.module:parameters(), group, src)
      broadcast(net.module:buffers(), group, src)
    end)
  end
  return unpack(results, 2, results.n)
end

return join
