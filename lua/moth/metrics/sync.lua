--- sync.lua -- the states of a metric in all processes of a group, for Metric:sync.
--
-- One message has the numbers of updates and the small states. A large state follows in a message
-- of its own: a sum, a maximum or a minimum is reduced, other states are gathered.

local groups = require "moth.distributed.group"
local lib = require "moth.binding.lib"

local moth = lib.anchor.moth
local dist = moth.distributed

local SMALL = 2 ^ 16 -- bytes of a state that travels with the others

local REDUCED = {sum = "sum", max = "max", min = "min"}

local sync = {}

--- Does compute() of a metric add up the states of all processes?
-- @param on_step  is it the value of one batch?
function sync.wanted(metric, on_step)
  local state = groups.get()
  if not state or state.size == 1 or metric._unsynced or not metric.sync_on_compute then
    return false
  end
  return not on_step or metric.dist_sync_on_step
end

-- MPI needs CPU tensors.
local function portable(x)
  x = x:detach()
  return x.is_cuda and groups.get().backend == "mpi" and x:cpu() or x
end

-- The tensors of a state as a list, and their bytes.
local function pieces_of(value)
  local list, size = lib.istensor(value) and {value} or value, 0
  for _, x in ipairs(list) do size = size + x.nbytes end
  return list, size
end

-- What the first message says about a state: its tensors, or their dtypes and shapes if they are
-- large.
local function described(value)
  local list, size = pieces_of(value)
  local out = {large = size > SMALL}
  for i, x in ipairs(list) do out[i] = out.large and {x.dtype, x.shape} or portable(x) end
  return out
end

local function shape_of(piece)
  if lib.istensor(piece) then return piece.shape, piece.dtype end
  return piece[2], piece[1]
end

local function count_of(pieces)
  local n = 0
  for _, piece in ipairs(pieces) do
    local shape, size = shape_of(piece), 1
    for d = 1, #shape do size = size * shape[d] end
    n = n + size
  end
  return n
end

-- The dtype of all tensors of all processes; nil if there are several.
local function one_dtype(all)
  local dtype
  for _, pieces in ipairs(all) do
    for _, piece in ipairs(pieces) do
      local _, own = shape_of(piece)
      if dtype and own ~= dtype then return nil end
      dtype = own
    end
  end
  return dtype
end

-- Gathers the tensors of one state as flat tensors of one size.
local function gather_flat(all, list, dtype, group)
  local most = 0
  for _, pieces in ipairs(all) do most = math.max(most, count_of(pieces)) end
  local flat = {}
  for i, x in ipairs(list) do flat[i] = portable(x):reshape(-1) end
  local device = flat[1] and flat[1].device or "cpu"
  local mine = moth.zeros({most}, {dtype = dtype, device = device})
  if flat[1] then
    local own = moth.cat(flat)
    mine:narrow(1, 1, own:numel()):copy_(own)
  end
  local whole = moth.empty({#all, most}, {dtype = dtype, device = device})
  dist.all_gather_into_tensor(whole, mine, group)
  local out = {}
  for r, pieces in ipairs(all) do
    local at = 1
    out[r] = {}
    for i, piece in ipairs(pieces) do
      local shape = shape_of(piece)
      local n = count_of {piece}
      out[r][i] = whole:select(1, r):narrow(1, at, n):view(shape)
      at = at + n
    end
  end
  return out
end

-- The tensors of one state of all processes, by rank of the group.
local function gather(all, value, group)
  local large = false
  for _, pieces in ipairs(all) do large = large or pieces.large end
  if not large then return all end
  local list, dtype = (pieces_of(value)), one_dtype(all)
  if dtype then return gather_flat(all, list, dtype, group) end
  local copies, out = {}, {}
  for i, x in ipairs(list) do copies[i] = portable(x) end
  dist.all_gather_object(out, copies, group)
  return out
end

-- Can a large state be reduced? All processes have one tensor of one shape and dtype.
local function is_uniform(all)
  local shape, dtype = shape_of(all[1][1])
  for _, pieces in ipairs(all) do
    local other, own = shape_of(pieces[1])
    if not pieces.large or own ~= dtype or other ~= shape then return false end
  end
  return true
end

--- The states of all processes.
-- @param names   of the states
-- @param states  name -> tensor, or list of tensors
-- @param rules   name -> rule
-- @param count   the number of updates
-- @param group   a process group, or nil
-- @return for each rank of the group {states, number of updates}. A state that was reduced is in
-- the first of them, and absent in the others
function sync.gather(names, states, rules, count, group)
  group = groups.of("sync", group, "process_group")
  local mine, all, out = {count = count}, {}, {}
  for i, name in ipairs(names) do mine[i] = described(states[name]) end
  dist.all_gather_object(all, mine, group)
  for r, row in ipairs(all) do out[r] = {{}, row.count} end
  for i, name in ipairs(names) do
    local value, column = states[name], {}
    for r, row in ipairs(all) do column[r] = row[i] end
    local single, op = lib.istensor(value), REDUCED[rules[name]]
    if single and op and is_uniform(column) then
      local x = portable(value):clone()
      dist.all_reduce(x, op, group)
      out[1][1][name] = x
    else
      for r, list in ipairs(gather(column, value, group)) do
        out[r][1][name] = single and list[1] or list
      end
    end
  end
  return out
end

return sync
