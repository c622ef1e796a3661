--- rendezvous.lua -- how init_process_group joins the processes: by MPI, or by the variables of
-- torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT); and with backend "nccl", the GPU of this
-- process and the connections of groups.

local device = require "moth.tensor.device"
local errors = require "moth.error"
local ffi = require "ffi"
local groups = require "moth.distributed.group"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx
local ops = lib.anchor.moth

local rendezvous = {}

local ID = 128 -- bytes

-- Variables of launchers: the rank of a process among those of its machine, and signs of MPI.
local LOCAL = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}
local OF_MPI = {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK"}

local function number(name) return tonumber(os.getenv(name) or nil) end

local function started_by_mpi()
  for _, name in ipairs(OF_MPI) do if os.getenv(name) then return true end end
  return false
end

-- The rank and number of processes by torchrun's variables, or nil.
local function torchrun()
  local rank, size = number "RANK", number "WORLD_SIZE"
  if rank and size and os.getenv "MASTER_ADDR" and not started_by_mpi() then return rank, size end
end

local function by_mpi(library)
  local rank, size = ffi.new "int32_t[1]", ffi.new "int32_t[1]"
  lib.check(C.moth_mpi_open(ctx, library, rank, size), "init_process_group")
  return rank[0], size[0], true
end

local function by_tcp(rank, size, timeout)
  local port = number "MASTER_PORT" or 29500
  -- torchrun itself listens at MASTER_PORT.
  if os.getenv "TORCHELASTIC_USE_AGENT_STORE" == "True" then port = port + 1 end
  lib.check(C.moth_rendezvous_open(ctx, os.getenv "MASTER_ADDR" or "localhost", port, rank, size,
    timeout), "init_process_group")
  return rank, size, false
end

--- Joins the processes. @return the rank, the number of processes, and whether MPI is open
function rendezvous.processes(backend, timeout, library)
  local rank, size = torchrun()
  if backend == "nccl" then
    if rank then return by_tcp(rank, size, timeout) end
    if library or started_by_mpi() or C.moth_mpi_found(ctx) ~= 0 then return by_mpi(library) end
    return by_tcp(0, 1, timeout)
  end
  if rank and size > 1 then
    errors.raise(("init_process_group: this process has rank %d of %d by torchrun's variables, but "
      .. "backend \"mpi\" needs mpirun: mpirun -n %d ./moth train.lua"):format(rank, size, size),
      "E_STATE")
  end
  return by_mpi(library)
end

--- The core's number of the GPU that this process uses: the one that was given, that of
-- moth.cuda.set_device, or the one with the local rank, which becomes the current one. An error
-- without a GPU or without NCCL.
function rendezvous.gpu(given)
  local count = device.gpus()
  if count == 0 then
    errors.argument("init_process_group", "backend", ("\"nccl\" needs a GPU: %s; \"mpi\" moves "
      .. "tensors of the CPU"):format(device.missing "cuda"), "E_DEVICE")
  end
  lib.check(C.moth_nccl_id(ctx, lib.array("uint8_t", ID)), "init_process_group")
  if given ~= nil then return device.gpu("init_process_group", given) end
  local index = device.current()
  for _, name in ipairs(LOCAL) do
    if index == 0 and number(name) then index = number(name) % count end
  end
  if index ~= device.current() then ops.cuda.set_device(index) end
  return index + 1
end

--- Is there a GPU, and NCCL?
function rendezvous.has_nccl()
  return device.gpus() > 0 and C.moth_nccl_id(ctx, lib.array("uint8_t", ID)) == 0
end

--- Connects the members of a new group for tensors of GPUs. With MPI the members call it, without
-- MPI all processes.
function rendezvous.connect(fname, group)
  local s = groups.get()
  local member, first = group.place[s.rank] ~= nil, group.ranks[1]
  local x = ops.empty({ID}, {dtype = ops.uint8})
  local id = ffi.cast("uint8_t *", x:data_ptr())
  if s.rank == first then lib.check(C.moth_nccl_id(ctx, id), fname) end
  if not s.mpi then
    lib.check(C.moth_rendezvous_share(ctx, first, id, ID, s.timeout), fname)
  elseif member then
    groups.start(fname, "BROADCAST", group, false, nil, x, nil, 0)
  end
  if member then
    lib.check(C.moth_nccl_open(ctx, group.index, s.device, id, s.timeout), fname)
  end
end

return rendezvous
