--- init.lua -- moth.distributed: tensors and values between processes, through MPI and NCCL.
--
--     local dist = moth.distributed
--     dist.init_process_group()      -- in each process of: mpirun -n 4 ./moth train.lua
--     local x = moth.ones(3) * dist.get_rank()
--     dist.all_reduce(x)                         -- x is now the sum over all processes
--     dist.destroy_process_group()
--
-- The names are torch.distributed's. A rank, the number of a process, counts from 0. Each function
-- that moves tensors has an argument async_op: it then returns a Work, and work:wait() ends the
-- operation. The core does the transfers (core/host/processes.c).

local define = require "moth.binding.define"
local errors = require "moth.error"
local ffi = require "ffi"
local groups = require "moth.distributed.group"
local rendezvous = require "moth.distributed.rendezvous"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx
local ops = lib.anchor.moth

local current, group_of, place_of = groups.current, groups.of, groups.place
local start, dense, tensors_of, joined = groups.start, groups.dense, groups.tensors, groups.joined
local split_into = groups.split_into

local dist = {}

local BACKENDS = {"mpi", "nccl"}
local GROUP = {"any", "group", "processes that take part; default: all", optional = true}
local ASYNC = {"bool", "async_op", "return a Work at once?", default = false}

-- Variables in which launchers write the number of processes: Open MPI, MPICH and its like, srun,
-- torchrun.
local SIZES = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE"}

-- Raises if a launcher has started several processes, and MPI finds only this one.
local function check_size(size)
  for _, name in ipairs(SIZES) do
    local started = tonumber(os.getenv(name) or "")
    if started and started > 1 and size == 1 then
      local version = dist.get_version()
      dist.destroy_process_group()
      errors.raise(("init_process_group: the launcher has started %d processes (%s), but %s finds "
        .. "one: start them with its own mpirun, or srun --mpi=pmix; or name the library of the "
        .. "launcher in MOTH_MPI"):format(started, name, version), "E_STATE")
    end
    if started then return end
  end
end

--- moth.distributed.init_process_group{backend, timeout}: joins the processes of this run.
dist.init_process_group = define {
  name = "init_process_group",
  doc = "Joins the processes that mpirun or srun has started. All of them call it, once. A process "
    .. "that was started alone gets rank 0 of 1. It opens the MPI library of "
    .. "the launcher: Open MPI or MPICH. MOTH_MPI names another library. With backend \"nccl\", "
    .. "NCCL moves tensors of GPUs, and MPI those of the CPU; torchrun may then start the "
    .. "processes, too. When a script ends with an error, all processes end. Ranks count from 0.",
  examples = "{timeout = 60}", outputs = "none",
  args = {{"enum", "backend", "the library that moves the tensors", choices = BACKENDS},
          {"float", "timeout", "seconds after which an operation raises an error that names the "
            .. "ranks that are missing", default = 1800, bounds = {0, open = true}},
          {"string?", "library", "path of the MPI library; default: the one that is found"},
          {"any", "device_id", "with \"nccl\", the GPU of this process; default: that of "
            .. "moth.cuda.set_device, or the one with the number of the process on its machine",
            optional = true}},
  run = function(backend, timeout, library, device_id)
    if groups.get() then
      errors.raise("init_process_group: this process is in a process group already", "E_STATE")
    end
    local gpu = backend == "nccl" and rendezvous.gpu(device_id) or nil
    local rank, size, mpi = rendezvous.processes(backend, timeout, library)
    local ranks = {}
    for i = 1, size do ranks[i] = i - 1 end
    groups.set {rank = rank, size = size, backend = backend, timeout = timeout, mpi = mpi,
      device = gpu, world = groups.new(0, ranks)}
    lib.anchor.finish = dist.finish
    if mpi then check_size(size) end
    if gpu then rendezvous.connect("init_process_group", groups.get().world) end
  end,
}

--- moth.distributed.destroy_process_group(group): waits for all processes, then leaves MPI.
dist.destroy_process_group = define {
  name = "destroy_process_group",
  doc = "Ends the use of MPI, or of one group. All of its processes call it. ./moth calls it when "
    .. "a script ends without an error.",
  examples = "", outputs = "none",
  args = {{"any", "group", "the group to end; default: all", optional = true}},
  run = function(group)
    if group and group ~= current("destroy_process_group").world then
      group = group_of("destroy_process_group", group)
      lib.check(C.moth_group_free(ctx, group.index), "destroy_process_group")
      return
    end
    local s = current "destroy_process_group"
    -- MPI_Finalize would wait without a limit, and without an answer to the others' questions. With
    -- the tag 1 the barrier meets no message that another process has started.
    if s.size > 1 and s.mpi then
      start("destroy_process_group", "BARRIER", s.world, false, nil, nil, nil, 0, 0, 1)
    end
    lib.check(C.moth_mpi_close(ctx), "destroy_process_group")
    groups.set(nil)
    lib.anchor.finish = nil
  end,
}

--- Is MPI installed?
function dist.is_available() return C.moth_mpi_found(ctx) ~= 0 end

dist.is_mpi_available = dist.is_available

--- Is there a GPU, and NCCL?
function dist.is_nccl_available() return rendezvous.has_nccl() end

--- Is this process in a process group?
function dist.is_initialized() return groups.get() ~= nil end

--- The rank of this process, from 0; in a group, -1 for a process outside.
dist.get_rank = define {
  name = "get_rank", doc = "The number of this process in the group, from 0; -1 if it is outside.",
  examples = "", outputs = "rank", args = {GROUP},
  run = function(group)
    group = group_of("get_rank", group)
    return group.place[groups.get().rank] or -1
  end,
}

dist.get_world_size = define {
  name = "get_world_size", doc = "The number of processes in the group; -1 for a process outside.",
  examples = "", outputs = "size", args = {GROUP},
  run = function(group)
    group = group_of("get_world_size", group)
    return group.place[groups.get().rank] and #group.ranks or -1
  end,
}

--- The ranks of a group, as a list.
function dist.get_process_group_ranks(group)
  return {unpack(group_of("get_process_group_ranks", group).ranks)}
end

--- Converts a global rank to a rank in the group.
function dist.get_group_rank(group, global_rank)
  return place_of("get_group_rank", "global_rank", group_of("get_group_rank", group), global_rank)
end

--- Converts a rank in the group to a global rank.
function dist.get_global_rank(group, group_rank)
  group = group_of("get_global_rank", group)
  if not group.ranks[group_rank + 1] then
    errors.argument("get_global_rank", "group_rank", ("a rank from 0 to %d is needed, got %s")
      :format(#group.ranks - 1, tostring(group_rank)), "E_INDEX")
  end
  return group.ranks[group_rank + 1]
end

-- Where launchers tell a process its number on its machine: torchrun, Open MPI, MPICH and Intel
-- MPI, MVAPICH, Slurm.
local LOCAL_RANK = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                    "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}

dist.get_node_local_rank = define {
  name = "get_node_local_rank",
  doc = "The number of this process among those of its machine, from 0, as the launcher set it: "
    .. "for the choice of a GPU, moth.device(\"cuda\", dist.get_node_local_rank()). It works "
    .. "before init_process_group.",
  examples = "0", outputs = "rank",
  args = {{"int", "fallback_rank", "the result for a process without a launcher; default: an error",
    optional = true}},
  run = function(fallback)
    for _, name in ipairs(LOCAL_RANK) do
      local value = tonumber(os.getenv(name))
      if value then return value end
    end
    if fallback then return fallback end
    errors.raise("get_node_local_rank: the launcher has set none of "
      .. table.concat(LOCAL_RANK, ", ") .. "; pass a fallback_rank", "E_STATE")
  end,
}

dist.get_backend = define {
  name = "get_backend", doc = "The library that moves the tensors: \"mpi\" or \"nccl\".",
  examples = "", outputs = "name", args = {GROUP},
  run = function() return current("get_backend").backend end,
}

--- The version of the MPI library; nil if the processes were joined without MPI.
function dist.get_version()
  current "get_version"
  local version = C.moth_mpi_version(ctx)
  return version ~= nil and ffi.string(version) or nil
end

dist.new_group = define {
  name = "new_group",
  doc = "A group of some processes. All processes call it, with the same ranks, members or not.",
  examples = "{0, 2}", outputs = "group",
  args = {{"any", "ranks", "list of ranks, which count from 0; default: all", optional = true}},
  run = function(ranks)
    local s = current "new_group"
    ranks = ranks or s.world.ranks
    if not lib.is_plain(ranks) or #ranks == 0 then
      errors.refuse("new_group", "ranks", "a list of ranks is needed", ranks, "E_TYPE")
    end
    local list, copy = lib.array("int32_t", #ranks), {}
    for i, rank in ipairs(ranks) do
      if type(rank) ~= "number" or rank % 1 ~= 0 then
        errors.refuse("new_group", "ranks", "a list of ranks is needed", rank, "E_TYPE")
      end
      place_of("new_group", "ranks", s.world, rank)
      list[i - 1], copy[i] = rank, rank
    end
    local made = ffi.new "int32_t[1]"
    lib.check(C.moth_group_new(ctx, list, #ranks, made), "new_group", "ranks")
    local group = groups.new(made[0], copy)
    if s.device then rendezvous.connect("new_group", group) end
    return group
  end,
}

local OPS = {sum = C.MOTH_REDUCE_SUM, product = C.MOTH_REDUCE_PRODUCT, min = C.MOTH_REDUCE_MIN,
             max = C.MOTH_REDUCE_MAX, band = C.MOTH_REDUCE_BAND, bor = C.MOTH_REDUCE_BOR,
             bxor = C.MOTH_REDUCE_BXOR, mean = C.MOTH_REDUCE_MEAN}
local OP = {"enum", "op", "the operation", choices = {"sum", "mean", "product", "min", "max",
                                                      "band", "bor", "bxor"}}

--- The operations, by PyTorch's names: ReduceOp.SUM is "sum".
dist.ReduceOp = {SUM = "sum", AVG = "mean", PRODUCT = "product", MIN = "min", MAX = "max",
                 BAND = "band", BOR = "bor", BXOR = "bxor"}

local function collective(record)
  record.outputs = "work"
  record.args[#record.args + 1] = GROUP
  record.args[#record.args + 1] = ASYNC
  return define(record)
end

-- ---- collectives ----

dist.barrier = collective {
  name = "barrier", examples = "",
  doc = "Waits until all processes of the group have called it.", args = {},
  run = function(group, async)
    group = group_of("barrier", group)
    if groups.get().mpi then return (start("barrier", "BARRIER", group, async)) end
    local x = ops.zeros({1}, {dtype = ops.uint8, device = groups.gpu()})
    local work = start("barrier", "ALL_REDUCE", group, true, x, x)
    work.on_gpu = false -- the CPU waits
    if async then return work end
    work:wait()
  end,
}

dist.broadcast = collective {
  name = "broadcast", examples = "moth.ones(3), {src = 0}",
  doc = "Copies the tensor of one process into that of all others, in place.",
  args = {{"tensor", "tensor", "sent by src, overwritten in the other processes"},
          {"int", "src", "rank of the sender", default = 0}},
  run = function(x, src, group, async)
    group = group_of("broadcast", group)
    local flat, after = dense("broadcast", "tensor", x)
    return (start("broadcast", "BROADCAST", group, async, nil, flat, after,
      place_of("broadcast", "src", group, src)))
  end,
}

dist.all_reduce = collective {
  name = "all_reduce", examples = "moth.ones(3), \"mean\"",
  doc = "Reduces the tensors of all processes, in place: all get the result. float16 and bfloat16 "
    .. "are reduced in float32, on GPUs in their own type.",
  args = {{"tensor", "tensor", "of one shape and dtype in all processes"}, OP},
  run = function(x, op, group, async)
    local flat, after = dense("all_reduce", "tensor", x)
    return (start("all_reduce", "ALL_REDUCE", group_of("all_reduce", group), async, flat, flat,
      after, 0, OPS[op]))
  end,
}

dist.reduce = collective {
  name = "reduce", examples = "moth.ones(3), {dst = 0}",
  doc = "Reduces the tensors of all processes into that of one, in place.",
  args = {{"tensor", "tensor", "of one shape and dtype in all processes"},
          {"int", "dst", "rank of the process that gets the result", default = 0}, OP},
  run = function(x, dst, op, group, async)
    group = group_of("reduce", group)
    local flat, after = dense("reduce", "tensor", x)
    return (start("reduce", "REDUCE", group, async, flat, flat, after,
      place_of("reduce", "dst", group, dst), OPS[op]))
  end,
}

dist.all_gather = collective {
  name = "all_gather", examples = "{moth.zeros(3), moth.zeros(3)}, moth.ones(3)",
  doc = "Copies the tensors of all processes into a list, by rank.",
  args = {{"any", "tensor_list", "list of tensors that are overwritten, one for each process"},
          {"tensor", "tensor", "of one shape and dtype in all processes"}},
  run = function(list, x, group, async)
    group = group_of("all_gather", group)
    tensors_of("all_gather", "tensor_list", list, #group.ranks, x)
    local all, after = split_into(list, x)
    return (start("all_gather", "ALL_GATHER", group, async, (dense("all_gather", "tensor", x)), all,
      after))
  end,
}

-- Defines a collective of two tensors, one with n times the elements of the other.
local function into_one(name, kind, doc, args, takes_op)
  if takes_op then args[#args + 1] = OP end
  return collective {
    name = name, doc = doc, args = args,
    examples = kind == "ALL_GATHER" and "moth.zeros(2, 3), moth.ones(3)"
      or "moth.zeros(3), moth.ones(2, 3)",
    run = function(output, input, op, group, async)
      if not takes_op then op, group, async = nil, op, group end
      local y, after = dense(name, "output", output)
      return (start(name, kind, group_of(name, group), async, (dense(name, "input", input)), y,
        after, 0, op and OPS[op]))
    end,
  }
end

dist.all_gather_into_tensor = into_one("all_gather_into_tensor", "ALL_GATHER",
  "Copies the tensors of all processes one after the other into one tensor.",
  {{"tensor", "output", "with as many elements as all inputs"},
   {"tensor", "input", "of this process"}})

dist.reduce_scatter_tensor = into_one("reduce_scatter_tensor", "REDUCE_SCATTER",
  "Reduces the tensors of all processes; each process gets its part of the result.",
  {{"tensor", "output", "part of the result, in the order of ranks"},
   {"tensor", "input", "with the elements of all parts"}}, true)

dist.reduce_scatter = collective {
  name = "reduce_scatter", examples = "moth.zeros(3), {moth.ones(3), moth.ones(3)}",
  doc = "Reduces the elements of lists. The process of rank r gets the result of element r + 1.",
  args = {{"tensor", "output", "the result"},
          {"any", "input_list", "list of tensors, one for each process"}, OP},
  run = function(y, list, op, group, async)
    group = group_of("reduce_scatter", group)
    tensors_of("reduce_scatter", "input_list", list, #group.ranks, y)
    local flat, after = dense("reduce_scatter", "output", y)
    return (start("reduce_scatter", "REDUCE_SCATTER", group, async, joined(list), flat, after, 0,
      OPS[op]))
  end,
}

dist.gather = collective {
  name = "gather", examples = "moth.ones(3), {moth.zeros(3), moth.zeros(3)}, {dst = 0}",
  doc = "Copies the tensors of all processes into a list of one process.",
  args = {{"tensor", "tensor", "of one shape and dtype in all processes"},
          {"any", "gather_list", "in dst: list of tensors that are overwritten", optional = true},
          {"int", "dst", "rank of the process that gets them", default = 0}},
  run = function(x, list, dst, group, async)
    group = group_of("gather", group)
    local place, all, after = place_of("gather", "dst", group, dst), nil, nil
    if dst == groups.get().rank then
      tensors_of("gather", "gather_list", list, #group.ranks, x)
      all, after = split_into(list, x)
    end
    return (start("gather", "GATHER", group, async, (dense("gather", "tensor", x)), all, after,
      place))
  end,
}

dist.scatter = collective {
  name = "scatter", examples = "moth.zeros(3), {moth.ones(3), moth.zeros(3)}, {src = 0}",
  doc = "Sends each process one tensor of a list.",
  args = {{"tensor", "tensor", "receives the tensor"},
          {"any", "scatter_list", "in src: list of tensors, one for each process", optional = true},
          {"int", "src", "rank of the sender", default = 0}},
  run = function(x, list, src, group, async)
    group = group_of("scatter", group)
    local place = place_of("scatter", "src", group, src)
    local all
    if src == groups.get().rank then
      all = joined(tensors_of("scatter", "scatter_list", list, #group.ranks, x))
    end
    local flat, after = dense("scatter", "tensor", x)
    return (start("scatter", "SCATTER", group, async, all, flat, after, place))
  end,
}

-- Converts numbers of rows to numbers of elements. A row has `row` elements.
local function fill_sizes(fname, argname, into, at, list, n, row, total)
  local sum = 0
  if list and #list ~= n then
    errors.refuse(fname, argname, ("a list of %d sizes is needed"):format(n), list, "E_SHAPE")
  end
  if not list and total % n ~= 0 then
    errors.argument(fname, argname, ("%d rows cannot be split in %d equal parts"):format(total, n),
      "E_SHAPE")
  end
  for i = 1, n do
    local size = list and list[i] or total / n
    into[at + i - 1] = size * row
    sum = sum + size
  end
  if sum ~= total then
    errors.argument(fname, argname, ("the sizes sum to %d, the tensor has %d rows"):format(sum,
      total), "E_SHAPE")
  end
end

local function rows_of(x)
  local rows = x:dim() == 0 and 1 or x:size(1)
  return rows, rows > 0 and x:numel() / rows or 0
end

dist.all_to_all_single = collective {
  name = "all_to_all_single", examples = "moth.zeros(4), moth.ones(4)",
  doc = "Splits the rows of input, sends a part to each process, and joins what arrives in output.",
  args = {{"tensor", "output", "receives the parts, in the order of ranks"},
          {"tensor", "input", "rows for all processes, in the order of ranks"},
          {"any", "output_split_sizes", "list of rows from each process; default: equal",
            optional = true},
          {"any", "input_split_sizes", "list of rows to each process; default: equal",
            optional = true}},
  run = function(y, x, from, to, group, async)
    local fname = "all_to_all_single"
    group = group_of(fname, group)
    local n = #group.ranks
    local sizes = lib.array("int64_t", 2 * n)
    local rows, row = rows_of(x)
    fill_sizes(fname, "input_split_sizes", sizes, 0, to, n, row, rows)
    rows, row = rows_of(y)
    fill_sizes(fname, "output_split_sizes", sizes, n, from, n, row, rows)
    local flat, after = dense(fname, "output", y)
    return (start(fname, "ALL_TO_ALL", group, async, (dense(fname, "input", x)), flat, after, 0, 0,
      0, sizes))
  end,
}

dist.all_to_all = collective {
  name = "all_to_all",
  examples = "{moth.zeros(2), moth.zeros(2)}, {moth.ones(2), moth.ones(2)}",
  doc = "Sends each process one tensor of a list, and receives one from each.",
  args = {{"any", "output_tensor_list", "list of tensors that are overwritten"},
          {"any", "input_tensor_list", "list of tensors, one for each process"}},
  run = function(outputs, inputs, group, async)
    group = group_of("all_to_all", group)
    local n, total = #group.ranks, 0
    tensors_of("all_to_all", "output_tensor_list", outputs, n)
    tensors_of("all_to_all", "input_tensor_list", inputs, n)
    local sizes = lib.array("int64_t", 2 * n)
    for i = 1, n do
      sizes[i - 1], sizes[n + i - 1] = inputs[i]:numel(), outputs[i]:numel()
      total = total + outputs[i]:numel()
    end
    local all = ops.empty({total}, {dtype = outputs[1].dtype, device = outputs[1].device})
    return (start("all_to_all", "ALL_TO_ALL", group, async, joined(inputs), all, function()
      local at = 1
      for _, y in ipairs(outputs) do
        y:detach():copy_(all:narrow(1, at, y:numel()):view(y.shape))
        at = at + y:numel()
      end
    end, 0, 0, 0, sizes))
  end,
}

-- ---- one process to another ----

local TAG = {"int", "tag", "number that send and recv share", default = 0, bounds = {0, 32767}}

local function sender(name, async)
  return define {
    name = name, outputs = async and "work" or "none", examples = "moth.ones(3), 1",
    doc = "Sends a tensor to another process, which calls recv."
      .. (async and " Returns a Work; change the tensor after work:wait()." or ""),
    args = {{"tensor", "tensor", "the tensor"}, {"int", "dst", "rank of the receiver"}, GROUP, TAG},
    run = function(x, dst, group, tag)
      group = group_of(name, group)
      return (start(name, "SEND", group, async, (dense(name, "tensor", x)), nil, nil,
        place_of(name, "dst", group, dst), 0, tag))
    end,
  }
end

local function receiver(name, async)
  return define {
    name = name, outputs = async and "work" or "rank", examples = "moth.zeros(3), 0",
    doc = "Receives a tensor that another process sends. Returns "
      .. (async and "a Work." or "the sender's rank."),
    args = {{"tensor", "tensor", "is overwritten; of the sender's shape and dtype"},
            {"int", "src", "rank of the sender; default: any", optional = true}, GROUP, TAG},
    run = function(x, src, group, tag)
      group = group_of(name, group)
      local flat, after = dense(name, "tensor", x)
      local work, done = start(name, "RECV", group, async, nil, flat, after,
        src and place_of(name, "src", group, src) or -1, 0, tag)
      return work or done:source_rank()
    end,
  }
end

dist.send, dist.isend = sender("send", false), sender("isend", true)
dist.recv, dist.irecv = receiver("recv", false), receiver("irecv", true)

-- ---- the end of a script ----

--- Called by the launcher when a script has ended.
-- @param failed  true: all processes end
function dist.finish(failed)
  if not groups.get() then return end
  if not failed then return dist.destroy_process_group() end
  io.stderr:write(("moth: rank %d has failed: all processes end\n"):format(groups.get().rank))
  C.moth_mpi_abort(ctx, 1)
end

local rows = {optim = {"moth.distributed.optim"}, algorithms = {"moth.distributed.algorithms"},
              checkpoint = {"moth.distributed.checkpoint"}}
lazy.from(rows, "moth.distributed.objects",
  "broadcast_object_list all_gather_object gather_object scatter_object_list")
return (lazy.namespace("moth.distributed", dist, rows))
