--- plots.lua -- the prompt's globals that draw: plot, hist and imshow.

local plots = {}

--- Defines the globals. moth.plot is loaded at their first use.
function plots.define()
  for name, kind in pairs {plot = "lines", hist = "hist", imshow = "imshow"} do
    rawset(_G, name, function(...) return (require("moth.plot")[kind](...)) end)
  end
end

return plots
