--- init.lua -- moth.nn.parallel: training by several processes.

local lazy = require "moth.base.lazy"

local rows = {}
lazy.from(rows, "moth.nn.parallel.distributed", "DistributedDataParallel")
return (lazy.namespace("moth.nn.parallel", {}, rows))
