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
    GradientEdge = "moth.autograd.graph.get_gradient_edge returns the edge of a tensor",
    ["FunctionalNode Node"] = "x.grad_fn is the node that made a tensor",
    ["allow_mutation_on_saved_tensors set_warn_on_accumulate_grad_stream_mismatch"] =
      "x:clone() keeps the values that a graph needs",
    ["DebugMode"] = "moth.autograd.set_detect_anomaly(true) names the lines of the user's program",
  },
}
