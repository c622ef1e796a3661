--- init.lua -- moth.plot: curves, points, histograms, matrices and pictures, in the terminal and as
-- SVG and PNG files.
--
--     print(moth.plot.lines(loss))
--     moth.plot.lines{train = a, valid = b, title = "Loss"}:save "loss.svg"
--
-- The functions of kinds.lua make figures. scene.lua computes what a figure shows; vector.lua lays
-- it out for svg.lua and raster.lua, terminal.lua draws it as text.

local lazy = require "moth.base.lazy"

local rows = {Figure = {"moth.plot.figure"}}
lazy.from(rows, "moth.plot.kinds", "lines scatter hist heatmap imshow confusion_matrix")
lazy.from(rows, "moth.plot.*", "live")

return (lazy.namespace("moth.plot", {}, rows))
