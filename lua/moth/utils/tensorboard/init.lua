--- init.lua -- moth.utils.tensorboard: writes and reads the event files of TensorBoard.

local lazy = require "moth.base.lazy"

local rows = {SummaryWriter = {"moth.utils.tensorboard.writer"}}
lazy.from(rows, "moth.utils.tensorboard.reader", "read scalars")

return (lazy.namespace("moth.utils.tensorboard", {}, rows))
