--- init.lua -- moth.signal: contains moth.signal.windows, as torch.signal.

local lazy = require "moth.base.lazy"

return (lazy.namespace("moth.signal", {}, {windows = {"moth.signal.windows"}}))
