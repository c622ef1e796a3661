-- How much of Moth lies in Lua's heap, where each collection has to walk over it: what a script
-- does not use is not there.

local moth = require "moth"
local run = require "spec.support.run"
