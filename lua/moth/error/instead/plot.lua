--- plot.lua -- hints for names of matplotlib.pyplot, for moth.plot and its figures.

local LINES = "moth.plot.lines draws curves: moth.plot.lines{train = a, valid = b}"
local ARGUMENTS = "titles and axes are arguments: moth.plot.lines{y, title = \"loss\", xlabel = "
  .. "\"step\", yscale = \"log\"}"
local FIGURE = "a function of moth.plot returns a figure: print(figure), figure:save \"loss.svg\""
local NONE = "moth.plot has lines, scatter, hist, heatmap, imshow and confusion_matrix; "
  .. "moth.utils.tensorboard.SummaryWriter writes numbers for other programs"

return {["moth.plot"] = {
  ["plot line curve semilogy semilogx loglog"] = LINES,
  ["title xlabel ylabel xlim ylim xscale yscale legend grid"] = ARGUMENTS,
  ["show savefig save figure subplots gca gcf draw close"] = FIGURE,
  ["matshow pcolormesh image pcolor"] = "moth.plot.heatmap draws a matrix, moth.plot.imshow a "
    .. "picture",
  ["histogram hist2d"] = "it is moth.plot.hist",
  ["bar barh boxplot violinplot contour contourf errorbar pie"] = NONE,
}, ["moth.plot.Figure"] = {
  savefig = "figure:save(path) writes .svg, .png and .txt files",
  ["set_title set_xlabel set_ylabel set_xlim set_ylim set_xscale set_yscale suptitle"] = ARGUMENTS,
  ["plot scatter hist imshow"] = "figure:add(other) draws the marks of another figure over its own",
}}
