--- cuda.lua -- hints for names of torch.cuda and its namespaces.

local DEVICES = "nn.parallel.DistributedDataParallel trains a net on several GPUs, a process each"
local MEMORY = "moth.cuda.memory_summary, moth.cuda.memory_allocated, "
  .. "moth.cuda.max_memory_allocated "
  .. "and moth.cuda.memory_reserved report it"
local ALLOCATOR = "there is one allocator: moth.cuda.set_memory_limit bounds it, "
  .. "moth.cuda.empty_cache returns free blocks"
local SMI = "nvidia-smi reports it"
local TENSOR = "moth.tensor(list, {dtype = moth.int64, device = \"cuda\"})"
local LIBRARIES = "the command 'moth doctor' prints which GPU and libraries were found"

return {["moth.cuda"] = {
  ["CUDAGraph graph_pool_handle make_graphed_callables is_current_stream_capturing graphs "
    .. "graph_annotations export_graph_data"] = "moth.cuda.graph(f) records a step and replays it",
  export_dot = "moth.summary prints a network, moth.profiler.profile what ran",
  amp = "moth.autocast and moth.amp.GradScaler serve all devices",
  ["nvtx profiler"] = "moth.profiler.record_function marks a part of a profile",
  ["set_stream StreamContext ExternalStream get_stream_from_external streams"] =
    "moth.cuda.stream(s, f) calls f on a stream",
  ["OutOfMemoryError CudaError DeferredCudaCallError check_error cudaStatus"] =
    "errors are caught by pcall; moth.errcode() is then \"E_MEM\" and so on",
  ["memory memory_stats memory_stats_as_nested_dict memory_snapshot max_memory_reserved "
    .. "max_memory_cached memory_cached host_memory_stats "
    .. "host_memory_stats_as_nested_dict"] = MEMORY,
  ["reset_max_memory_allocated reset_max_memory_cached reset_accumulated_memory_stats "
    .. "reset_accumulated_host_memory_stats reset_peak_host_memory_stats"] =
    "moth.cuda.reset_peak_memory_stats starts the peak again",
  ["get_rng_state_all set_rng_state_all seed_all random default_generators"] =
    "one stream of random numbers serves all devices: moth.get_rng_state and moth.set_rng_state",
  ["FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ShortTensor CharTensor "
    .. "ByteTensor BoolTensor"] = TENSOR,
  ["*Storage"] = "a tensor owns its memory: x:data_ptr() and x.nbytes describe it",
  ["comm nccl"] = "moth.distributed.init_process_group{backend = \"nccl\"} joins processes with "
    .. "a GPU each",
  can_device_access_peer = DEVICES,
  ["init is_initialized"] = "a GPU is searched for when it is first used",
  ["utilization temperature power_draw clock_rate memory_usage device_memory_used "
    .. "list_gpu_processes"] = SMI,
  ["CUDAPluggableAllocator MemPool use_mem_pool change_current_allocator caching_allocator_* "
    .. "get_allocator_backend ipc_collect GreenContext gds green_contexts"] = ALLOCATOR,
  get_per_process_memory_fraction = "moth.cuda.set_per_process_memory_fraction sets it",
  ["cudart current_blas_handle current_solver_handle get_arch_list get_gencode_flags has_half "
    .. "has_magma"] = LIBRARIES,
  is_tf32_supported = "moth.backends.cuda.matmul.allow_tf32 sets it",
  ["get_sync_debug_mode set_sync_debug_mode"] = "moth.cuda.synchronize waits; MOTH_CUDA_BLOCKING=1 "
    .. "in the environment waits after each kernel",
  device_of = "moth.cuda.device(x.device, f) calls f on a tensor's device",
  jiterator = "moth.kernel(f) compiles a function of elements",
  sparse = "moth.sparse_coo_tensor makes sparse tensors, on a GPU too",
  tunable = "the fastest kernels are chosen; moth.backends.cudnn.benchmark = true measures cuDNN's",
}}
