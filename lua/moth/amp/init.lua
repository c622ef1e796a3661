--- init.lua -- moth.amp: mixed precision by the names that PyTorch has for it; the same functions
-- stand in moth itself.

local lazy = require "moth.base.lazy"

local rows = {}
lazy.from(rows, "moth.amp.autocast", "autocast")
lazy.from(rows, "moth.amp.scaler", "GradScaler")

return (lazy.namespace("moth.amp", {}, rows, {}))
