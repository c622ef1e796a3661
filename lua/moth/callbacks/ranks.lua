--- ranks.lua -- moth.fit in several processes. fit.lua loads it for a net that is a
-- DistributedDataParallel.
--
-- The processes agree after each step of the optimizer: a run ends in all of them after the same
-- step. The first process of the group writes files and logs.

local errors = require "moth.error"
local groups = require "moth.distributed.group"
local lib = require "moth.binding.lib"

local moth = lib.anchor.moth
local dist = moth.distributed

local Ranks = require("moth.base.class")("FitRanks")

--- @param group  the process group of the net
function Ranks:init(group)
  self.group, self.size = group, #group.ranks
  self.rank = group.place[groups.get().rank]
  self.src = group.ranks[1]
end

-- ---- messages ----

-- The largest of each of some small integers.
local function largest(self, ...)
  local x = moth.tensor({...}, {dtype = moth.int32})
  dist.all_reduce(x, "max", self.group)
  return unpack(x:tolist())
end

--- The values of all processes, by rank of the group.
function Ranks:all(value)
  local list = {}
  dist.all_gather_object(list, value, self.group)
  return list
end

--- The values of all processes in the first one; nil in the others.
function Ranks:gather(value)
  local list = self.rank == 0 and {} or nil
  dist.gather_object(value, list, self.src, self.group)
  return list
end

--- Sums of two numbers, the same bits in all processes.
function Ranks:sums(a, b)
  local all = moth.empty({self.size, 2}, {dtype = moth.float64})
  dist.all_gather_into_tensor(all, moth.tensor({a, b}, {dtype = moth.float64}), self.group)
  local x, y = 0, 0
  for _, row in ipairs(all:tolist()) do x, y = x + row[1], y + row[2] end
  return x, y
end

--- The mean of a tensor over the processes, without history.
function Ranks:mean(x)
  local mean = x:detach():clone()
  dist.all_reduce(mean, "mean", self.group)
  return mean
end

-- ---- decisions ----

--- Does some process want to end the run?
-- @param run     gets the signal and the reason of that process
-- @param wanted  does this one?
-- @param signal  that this process got, or 0
function Ranks:agree(run, wanted, signal)
  local ends, by = moth.no_grad(largest, self, wanted and 1 or 0, signal)
  if ends == 0 and by == 0 then return false end
  run.signal = by
  for _, reason in ipairs(self:all(run.stop or false)) do
    if reason then
      run.stop = reason
      break
    end
  end
  return true
end

--- Begins an epoch. Sets `even`: all processes have as many batches, and know it. Else they say
-- before each batch if they have one, and `source` is the rank of the first that has.
function Ranks:begin_epoch(run)
  local n = run.length or -1
  local most, least, unknown = moth.no_grad(largest, self, n, -n, n < 0 and 1 or 0)
  self.even, self.source = unknown == 0 and most == -least, nil
  if not self.even and (run.closure or run.capture) then
    errors.argument("fit", "loader", (run.capture and "a captured step" or "LBFGS")
      .. " needs the same known number of batches in all processes", "E_UNSUPPORTED")
  end
  run.batches = self.even and n or nil
end

--- An iterator over batches that goes on, without a batch, until no process has one.
-- @return as next_batch; `self.active` says if there is a batch
function Ranks:batches(next_batch)
  local ended = self.ended
  self.active, self.ended = true, false
  if self.even then return next_batch end
  local function given(input, ...)
    self.active = input ~= nil
    local rank = self.active and self.rank or self.size
    local first = self.size - moth.no_grad(largest, self, self.size - rank)
    if first == self.size then return nil end -- no process has a batch
    self.source = self.group.ranks[first + 1]
    if self.active then return input, ... end
    return false
  end
  local function note(input, ...)
    ended = input == nil
    return given(input, ...)
  end
  return function()
    if ended then return given(nil) end
    return note(next_batch())
  end
end

-- ---- steps ----

--- The passes of a batch. With accumulated gradients only the last pass of a window reduces them,
-- if the end of the epoch is known.
function Ranks:passes(run, passes)
  local window, net = run.window, run.net
  return function(...)
    rawset(net, "_src", self.source or false)
    if window.last or not self.even then return passes(...) end
    return net:no_sync(passes, ...)
  end
end

--- A step without a batch, for a process that has run out of them: the others need its part of
-- their reductions.
function Ranks:idle_step(run)
  local window = run.window
  if window.first then run.optimizer:zero_grad() end
  if run.scaler then run.scaler:scale(moth.zeros(1, {device = run.device})) end
  run.net:_shadow(self.source)
  if window.last then run.update() end
end

-- ---- files ----

--- Is there a file? All processes have to see it, or none.
function Ranks:exists(path)
  local file = io.open(path)
  if file then file:close() end
  local all = self:all(file ~= nil)
  for r, found in ipairs(all) do
    if found ~= all[1] then
      errors.argument("fit", "resume", ("%s is not visible to rank %d: the processes need a common "
        .. "file system"):format(errors.path(path), self.group.ranks[found and 1 or r]), "E_IO")
    end
  end
  return all[1]
end

return Ranks
