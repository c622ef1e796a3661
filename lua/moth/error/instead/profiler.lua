--- profiler.lua -- hints for names of torch.profiler.

return {["moth.profiler"] = {
  ["CuspyConfig PerformanceMetricsConfig ProfilerActivityConfig"] =
    "moth.profiler.profile takes its options as named arguments",
  ["DeviceType"] = "an event's device_time is above 0 if it ran on a GPU: "
    .. "moth.profiler.ProfilerActivity",
  tensorboard_trace_handler = "on_trace_ready = function(prof) prof:export_chrome_trace(path) end",
  ExecutionTraceObserver = "prof:export_chrome_trace(path) writes the events",
  ["kineto_available supported_activities"] = "moth.profiler.ProfilerActivity lists the activities",
  itt = "moth.profiler.record_function marks a part of a profile",
}}
