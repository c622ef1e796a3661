--- utils.lua -- hints for names of torch.utils, its namespaces, and torchvision.utils.

local CHECKPOINT = "moth.utils.checkpoint.checkpoint and "
  .. "moth.utils.checkpoint.checkpoint_sequential need no settings"
local DRAW = "moth.utils.draw_bounding_boxes, moth.utils.draw_segmentation_masks draw too"
local NATIVE = "a C host links libmoth: core/moth.h; moth.kernel(f) compiles a function of elements"

return {
  ["moth.utils"] = {
    ["ThroughputBenchmark throughput_benchmark"] = "moth.utils.benchmark.Timer measures a function",
    ["backend_registration generate_methods_for_privateuse1_backend rename_privateuse1_backend"] =
      "the devices are the CPU and CUDA",
    ["cpp_extension cmake_prefix_path"] = NATIVE,
    ["cpp_backtrace get_cpp_backtrace backcompat"] = "errors name the line of the user's program; "
      .. "moth.autograd.set_detect_anomaly(true) that of the forward call",
    collect_env = "the command 'moth doctor' prints what was found",
    deterministic = "moth.use_deterministic_algorithms(true)",
    dlpack = "moth.frombuffer reads bytes; a host passes memory by moth_from_memory",
    flop_counter = "moth.summary(net, x) counts parameters and multiplications",
    mobile_optimizer = "moth.capture(f) replays a whole step as one call",
    model_zoo = "nothing is downloaded; moth.load reads .pth and .safetensors files",
    module_tracker = "moth.profiler.profile{f, with_modules = true} names the modules that ran",
    hooks = "x:register_hook(f) and module:register_forward_hook(f) return a handle with :remove()",
    swap_tensors = "x.data = y replaces the values of a tensor",
    set_module = "moth.nn.typename(module) is a class's name",
    weak = "Lua has weak tables: setmetatable({}, {__mode = \"k\"})",
    torch = "it is moth",
    ["draw_keypoints flow_to_image"] = DRAW,
  },
  ["moth.utils.checkpoint"] = {
    ["CheckpointError CheckpointFunction CheckpointPolicy DefaultDeviceType GraphExecGroup "
      .. "SAC_IGNORED_OPS SelectiveCheckpointContext check_backward_validity "
      .. "create_selective_checkpoint_contexts detach_variable get_device_states noop_context_fn "
      .. "set_checkpoint_debug_enabled set_checkpoint_early_stop set_device_states"] = CHECKPOINT,
  },
  ["moth.utils.benchmark"] = {
    ["CallgrindStats CopyIfCallgrind FunctionCount FunctionCounts"] = "moth.profiler.profile "
      .. "counts "
      .. "calls; moth.utils.benchmark.Timer measures time",
    ["Fuzzer FuzzedParameter FuzzedTensor FuzzedSparseTensor ParameterAlias"] =
      "moth.testing.make_tensor draws a tensor",
    ["Compare Colorize TaskSpec Language ordered_unique select_unit trim_sigfig unit_to_english "
      .. "utils"] = "moth.utils.benchmark.Timer returns a Measurement, which prints itself",
    timer = "moth.time() is the clock",
    set_torch_threads = "moth.set_num_threads sets the threads of an op",
  },
}
