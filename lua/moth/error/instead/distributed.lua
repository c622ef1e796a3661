--- distributed.lua -- hints for names of torch.distributed.

local LAUNCHER = "the launcher knows the processes: ./moth run -n 2 train.lua, mpirun or srun"
local ONE_BACKEND = "the backends are \"mpi\" and, for tensors of GPUs, \"nccl\": "
  .. "moth.distributed.init_process_group"
local OPTIONS = "operations take named arguments: moth.distributed.all_reduce(x, {async_op = true})"
local WHOLE_NET = "each process has the whole net: moth.nn.parallel.DistributedDataParallel; "
  .. "moth.distributed.optim.ZeroRedundancyOptimizer divides the optimizer's state"
local OBJECTS = "moth.distributed.broadcast_object_list and gather_object move Lua values"
local GROUPS = "moth.distributed.new_group makes a group of some processes"
local TIMEOUT = "the timeout is an argument of moth.distributed.init_process_group and work:wait"
local MESSAGE = "errors are strings; moth.errcode() is E_IO for failed messages"
local ASYNC = "start each operation with async_op = true and wait for all"

return {["moth.distributed"] = {
  ["*Options config"] = OPTIONS,
  ["Backend BackendConfig ProcessGroup* get_backend_* get_default_backend_for_device "
    .. "is_backend_available is_*_available supports_complex register_rendezvous_handler "
    .. "rendezvous BuiltinCommHookType constants distributed_c10d"] = ONE_BACKEND,
  ["*Store c10d_logger Logger logging_handlers remote_device is_torchelastic_launched "
    .. "launch launcher run elastic"] = LAUNCHER,
  ["Dist*Error QueueEmptyError"] = MESSAGE,
  ["fsdp tensor pipelining DeviceMesh device_mesh init_device_mesh "
    .. "Reducer GradBucket"] = WHOLE_NET,
  ["rpc autograd nn recv_object_list send_object_list"] = OBJECTS,
  ["group GroupMember GroupName get_pg_count new_subgroups new_subgroups_by_enumeration "
    .. "shrink_group split_group"] = GROUPS,
  ["default_pg_timeout set_timeout monitored_barrier"] = TIMEOUT,
  ["DebugLevel get_debug_level set_debug_level* breakpoint record_comm utils"] =
    "a wait that times out names the ranks that are missing; " .. TIMEOUT,
  ["P2POp batch_isend_irecv *_coalesced Work"] = ASYNC,
  ["gather_single gather_into_tensor"] = "it is moth.distributed.gather",
  all_gather_single = "it is moth.distributed.all_gather_into_tensor",
  reduce_scatter_single = "it is moth.distributed.reduce_scatter_tensor",
  ["get_local_rank local_rank"] = "it is moth.distributed.get_node_local_rank",
  reduce_op = "it is moth.distributed.ReduceOp",
}, ["moth.distributed.algorithms"] = {
  ["*"] = "moth.distributed.algorithms.model_averaging averages parameters; net:join(f) of a "
    .. "DistributedDataParallel trains with different numbers of batches",
}, ["moth.distributed.algorithms.model_averaging.utils"] = {
  ["get_params_to_average average_parameters_or_parameter_groups"] = "average_parameters takes a "
    .. "list of parameters or param_groups",
}, ["moth.distributed.optim"] = {
  ["*"] = "moth.distributed.optim.ZeroRedundancyOptimizer divides the optimizer's state among "
    .. "the processes",
}, ["moth.distributed.checkpoint"] = {
  ["*"] = "save and load take a state and a folder: moth.distributed.checkpoint.save(state, "
    .. "folder)",
}}
