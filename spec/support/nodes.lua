--- nodes.lua -- counts the graph nodes of a call.

local moth = require "moth"

local nodes = {}

--- The number of nodes that f() created and that are alive after it, and its result.
function nodes.of(f)
  moth.collect()
  local before = moth.memory().live_nodes
  local y = f()
  return moth.memory().live_nodes - before, y
end

return nodes
