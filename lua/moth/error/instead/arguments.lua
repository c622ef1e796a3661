--- arguments.lua -- hints for arguments of PyTorch's functions that Moth's do not have, and for
-- their values. "arguments.f" has the names of arguments of f, "arguments.f.x" values of its
-- argument x.

local LAUNCHER = "the launcher knows the processes: ./moth run -n 2 train.lua, mpirun or srun"
local DEVICE = "the net stays on its device: DistributedDataParallel(net:to(\"cuda\"))"
local AS_WORLD = "a group has the timeout and the backend of moth.distributed.init_process_group"

local MEAN = {["avg AVG average"] = "'mean' is the average"}

return {
  ["arguments.all_reduce.op"] = MEAN, ["arguments.reduce.op"] = MEAN,
  ["arguments.reduce_scatter.op"] = MEAN, ["arguments.reduce_scatter_tensor.op"] = MEAN,
  ["arguments.init_process_group"] = {["init_method rank world_size store group_name"] = LAUNCHER},
  ["arguments.init_process_group.backend"] = {
    ["gloo ucc"] = "\"mpi\" moves tensors of the CPU",
    ["cpu:gloo,cuda:nccl"] = "with \"nccl\", tensors of the CPU still go through MPI",
  },
  ["arguments.new_group"] = {["backend timeout"] = AS_WORLD},
  ["arguments.DistributedDataParallel"] = {
    ["device_ids output_device"] = DEVICE,
    dim = "each process gets its own batch: moth.data.DistributedSampler",
    device_mesh = "process_group has the processes: moth.distributed.new_group",
    mixed_precision = "moth.autocast computes in a half type",
    ["init_sync skip_all_reduce_unused_params delay_all_reduce_named_params "
      .. "param_to_hook_all_reduce"] = "the processes begin with the net of rank 0, and each "
      .. "gradient is reduced",
  },
}
