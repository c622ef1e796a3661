--- nodes.lua -- how much of the graph a call makes.

local moth = require "moth"

local nodes = {}

--- How many nodes f() makes that are still there when it has returned, and its result.
function nodes.of(f)
  moth.collect()
  local before = moth.memory().live_nodes
  local y = f()
  return moth.memory().live_nodes - before, y
end

return nodes
