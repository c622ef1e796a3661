--- init.lua -- moth.amp: mixed precision under PyTorch's names; moth has the same functions.

local lazy = require "moth.base.lazy"

local rows = {}
lazy.from(rows, "moth.amp.autocast", "autocast")
lazy.from(rows, "moth.amp.scaler", "GradScaler")

return (lazy.namespace("moth.amp", {}, rows, {}))
