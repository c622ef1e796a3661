--- signal.lua -- moth.signal: moth.signal.windows, as torch.signal.

local lazy = require "moth.lazy"

return (lazy.namespace("moth.signal", {}, { windows = { "moth.windows" } }))
