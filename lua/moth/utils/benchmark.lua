--- benchmark.lua -- moth.utils.benchmark: the timer under the names of torch.utils.benchmark.

local lazy = require "moth.base.lazy"

local rows = {}
lazy.from(rows, "moth.profiler.benchmark", "Timer Measurement")

return (lazy.namespace("moth.utils.benchmark", {}, rows))
