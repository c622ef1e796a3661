--- init.lua -- moth.utils: PyTorch's torch.utils; moth.utils.data is moth.data.

local lazy = require "moth.base.lazy"

local rows = {data = {"moth.data"}}
lazy.from(rows, "moth.utils.*", "checkpoint benchmark tensorboard")
lazy.from(rows, "moth.utils.loggers", "CSVLogger JSONLogger")
lazy.from(rows, "moth.utils.image", "make_grid save_image draw_bounding_boxes "
  .. "draw_segmentation_masks")

return (lazy.namespace("moth.utils", {}, rows))
