--- Runs before all specs: finds Moth and loads it once.
-- Under ./moth test the launcher has set the paths; a plain `busted` gets build/ here.

if not debug.getregistry()["moth.launcher"] then
  package.path = "./lua/?.lua;./lua/?/init.lua;" .. package.path
  package.cpath = "./build/?.so;" .. package.cpath
end

local moth = require "moth"

-- Each spec draws the same random numbers, independent of other specs.
require("busted").subscribe({ "test", "start" }, function()
  moth.manual_seed(1)
  return nil, true
end)

-- Compiled code may keep a tensor alive as a constant: specs that measure memory flush it.
local collect = moth.collect
function moth.collect()
  jit.flush()
  return collect()
end

dofile "spec/support/assertions.lua"
