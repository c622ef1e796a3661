--- init.lua -- moth.utils: PyTorch's torch.utils; moth.utils.data is moth.data.

local lazy = require "moth.base.lazy"

local rows = {data = {"moth.data"}}
lazy.from(rows, "moth.utils.*", "checkpoint benchmark tensorboard")
lazy.from(rows, "moth.utils.loggers", "CSVLogger JSONLogger")

return (lazy.namespace("moth.utils", {}, rows))
