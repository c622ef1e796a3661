--- autograd.lua -- hints for names of torch.autograd and its namespaces.

local MODES = "the modes are functions: moth.no_grad(f), moth.enable_grad(f), "
  .. "moth.set_grad_enabled(mode)"

return {
  ["moth.autograd"] = {
    forward_ad = "moth.func.jvp and moth.autograd.functional.jvp compute directional derivatives",
    ["Variable variable"] = "a tensor is a variable: x:requires_grad_()",
    ["NestedIOFunction"] = "moth.autograd.Function takes and returns several tensors",
    inference_mode = "moth.inference_mode(f)",
    grad_mode = MODES,
    ["set_multithreading_enabled enforce_grad_layout_policy"] = "a backward pass runs on the "
      .. "thread "
      .. "that calls it; moth.set_num_threads sets the threads of one op",
    profiler = "moth.profiler.profile and moth.profiler.record_function",
    ["function"] = "moth.autograd.Function, moth.autograd.FunctionCtx, "
      .. "moth.autograd.once_differentiable",
    anomaly_mode = "moth.autograd.detect_anomaly and moth.autograd.set_detect_anomaly",
  },
  ["moth.autograd.graph"] = {
    ["GradientEdge get_gradient_edge"] = "x.grad_fn.next_functions lists the edges of a node",
    ["allow_mutation_on_saved_tensors"] = "x:clone() keeps the values that a graph needs",
    increment_version = "x:add_(0) counts as a write",
    register_multi_grad_hook = "x:register_hook(f) on each tensor calls f with its gradient",
    node_creation_hook = "x.grad_fn is the node of a result",
    queue_callback = "what follows x:backward() runs when the pass has ended",
    region_activation_memory_budget = "moth.utils.checkpoint.checkpoint saves memory",
    ["set_override_stale_capture_stream set_warn_on_accumulate_grad_stream_mismatch"] =
      "moth.cuda.stream(s, f) calls f on a stream, its backward too",
  },
}
