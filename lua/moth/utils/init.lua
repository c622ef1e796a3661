--- init.lua -- moth.utils: PyTorch's torch.utils; moth.utils.data is moth.data.

local lazy = require "moth.base.lazy"

return (lazy.namespace("moth.utils", {}, {checkpoint = {"moth.utils.checkpoint"},
  data = {"moth.data"}, benchmark = {"moth.utils.benchmark"}}))
