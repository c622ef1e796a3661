--- init.lua -- moth.optim: optimizers, and learning rate schedules in lr_scheduler. Each file is
-- loaded at the first use of one of its names.

local class = require "moth.base.class"
local lazy = require "moth.base.lazy"

local rows = {
  Optimizer = {"moth.optim.optimizer"},
  SGD = {"moth.optim.sgd"},
  lr_scheduler = {"moth.optim.lr_scheduler"},
  swa_utils = {"moth.optim.swa_utils"},
}
lazy.from(rows, "moth.optim.adam", "Adam AdamW")
lazy.from(rows, "moth.optim.rows", "SparseAdam")
lazy.from(rows, "moth.optim.variants", "NAdam RAdam Adamax")
lazy.from(rows, "moth.optim.sized", "RMSprop Adagrad Adadelta")
lazy.from(rows, "moth.optim.steady", "Rprop ASGD")
lazy.from(rows, "moth.optim.matrix", "Adafactor Muon")
lazy.from(rows, "moth.optim.lbfgs", "LBFGS")

return (lazy.namespace("moth.optim", {}, rows, {
  found = function(value)
    if not class.isclass(value) then return end
    class.guard(value, "optimizer")
    class.guard(require "moth.optim.optimizer", "optimizer")
  end,
}))
