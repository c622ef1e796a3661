--- group.lua -- process groups, and operations of moth.distributed that are under way.

local class = require "moth.base.class"
local device = require "moth.tensor.device"
local errors = require "moth.error"
local ffi = require "ffi"
local lib = require "moth.binding.lib"

lib.declare "distributed"
local C, ctx = lib.C, lib.ctx
local ops = lib.anchor.moth

local groups = {}

-- ---- the process group of this process ----

local state -- nil before init_process_group: rank, size, backend, timeout, world

--- The state of this process, or an error.
function groups.current(fname)
  if not state then
    errors.raise(fname .. ": there is no process group; call init_process_group first", "E_STATE")
  end
  return state
end

--- A set of processes that exchange tensors. dist.new_group makes it.
local Group = class "ProcessGroup"

--- The group that was given, or that of all processes.
-- @param argname  the name of the argument; default: group
function groups.of(fname, group, argname)
  local s = groups.current(fname)
  if group == nil then return s.world end
  if not class.isinstance(group, Group) then
    errors.refuse(fname, argname or "group", "a process group is needed", group, "E_TYPE")
  end
  return group
end

function Group:__tostring()
  return ("ProcessGroup(ranks = {%s})"):format(table.concat(self.ranks, ", "))
end

--- @param ranks  global ranks of the members
function groups.new(index, ranks)
  local group = Group()
  group.index, group.ranks, group.place = index, ranks, {}
  for i, rank in ipairs(ranks) do group.place[rank] = i - 1 end
  return group
end

--- Converts a global rank to a rank in the group.
function groups.place(fname, argname, group, rank)
  local place = group.place[rank]
  if not place then
    errors.argument(fname, argname, ("a rank of the group is needed, one of %s; got %s"):format(
      table.concat(group.ranks, ", "), tostring(rank)), "E_INDEX")
  end
  return place
end

--- @param new  the state of init_process_group, or nil
function groups.set(new) state = new end

function groups.get() return state end

--- The device of this process in transfers of GPU tensors, or nil.
function groups.gpu() return state.device and device.by_code[state.device] or nil end

--- Where tensors are that the groups' own functions exchange: the CPU, if there is MPI.
function groups.device() return state.mpi and "cpu" or groups.gpu() end

-- ---- operations under way ----

--- An operation that was started with async_op. The tensors may be used after wait().
local Work = class "Work"

local source = ffi.new "int32_t[1]"

local function end_work(work)
  local after = work.after
  work.transfer, work.after, work.source = nil, nil, source[0]
  if after then ops.no_grad(after) end
  return work
end

local function free_transfer(transfer) C.moth_transfer_free(ctx, transfer) end

--- Waits for the end of the operation. For tensors of a GPU only its current stream waits, unless a
-- timeout is given.
-- @param timeout  seconds; default: that of init_process_group
function Work:wait(timeout)
  if not self.transfer then return true end
  local seconds = timeout or (self.on_gpu and -1) or groups.current(self.name).timeout
  lib.check(C.moth_transfer_wait(ctx, self.transfer, seconds, source), self.name)
  free_transfer(ffi.gc(self.transfer, nil))
  end_work(self)
  return true
end

--- Has the operation ended?
function Work:is_completed()
  if self.transfer and lib.check(C.moth_transfer_done(ctx, self.transfer), self.name) == 1 then
    self:wait()
  end
  return self.transfer == nil
end

--- The rank that sent the tensor that recv or irecv received.
function Work:source_rank() return self.group.ranks[self.source + 1] end

function Work:__tostring()
  return ("Work(%s, %s)"):format(self.name, self.transfer and "under way" or "done")
end

local exchange = ffi.new "moth_transfer_args"
local made = ffi.new "moth_transfer *[1]"

--- Starts a transfer. input, output: contiguous tensors or nil. after: a function that runs when it
-- has ended.
-- @return the Work if async; else nil, the Work
function groups.start(fname, kind, group, async, input, output, after, peer, op, tag, sizes)
  exchange.kind, exchange.group, exchange.op = C["MOTH_TRANSFER_" .. kind], group.index, op or 0
  exchange.peer, exchange.tag, exchange.sizes = peer or 0, tag or 0, sizes
  exchange.input = input or lib.Handle()
  exchange.output = output or lib.Handle()
  exchange.seconds = state.timeout
  lib.check(C.moth_transfer_start(ctx, exchange, made), fname)
  local work = Work()
  work.name, work.group, work.after = fname, group, after
  work.on_gpu = (input or output) ~= nil and (input or output).is_cuda
  work.transfer = ffi.gc(made[0], free_transfer)
  if async then return work end
  work:wait()
  return nil, work
end

--- A contiguous tensor with these elements, without history; and a function that copies it back.
function groups.dense(fname, argname, x)
  if x.is_sparse then
    errors.refuse(fname, argname, "a dense tensor is needed", x, "E_UNSUPPORTED")
  end
  local flat = x:detach()
  if flat:is_contiguous() then return flat end
  flat = flat:contiguous()
  return flat, function() x:detach():copy_(flat) end
end

--- Checks a list of n tensors, each with the dtype and number of elements of `like`.
function groups.tensors(fname, argname, list, n, like)
  if not lib.is_plain(list) or #list ~= n then
    errors.refuse(fname, argname, ("a list of %d tensors is needed"):format(n), list, "E_TYPE")
  end
  for _, x in ipairs(list) do
    if not ops.is_tensor(x) then errors.refuse(fname, argname, "a list of tensors is needed", x) end
    if like and (x.dtype ~= like.dtype or x:numel() ~= like:numel()) then
      errors.argument(fname, argname, ("tensors like %s are needed, got %s"):format(
        errors.describe(like), errors.describe(x)), "E_SHAPE")
    end
  end
  return list
end

--- One contiguous tensor with the elements of all.
function groups.joined(list)
  local flat = {}
  for i, x in ipairs(list) do flat[i] = x:detach():reshape(-1) end
  return ops.cat(flat)
end

--- An empty tensor for n tensors like x, and a function that copies its parts to the list.
function groups.split_into(list, x)
  local all = ops.empty({#list, x:numel()}, {dtype = x.dtype, device = x.device})
  return all, function()
    for i, y in ipairs(list) do y:detach():copy_(all[i]:view(y.shape)) end
  end
end

return groups
