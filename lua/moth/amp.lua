--- amp.lua -- moth.amp: mixed precision by the names that PyTorch has for it; the same functions
-- stand in moth itself.

local lazy = require "moth.lazy"

local rows = {}
lazy.from(rows, "moth.autocast", "autocast")
lazy.from(rows, "moth.scaler", "GradScaler")

return (lazy.namespace("moth.amp", {}, rows, {}))
