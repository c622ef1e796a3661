--- tensor_check.lua -- a check of the values in a tensor, for functions written in Lua. A captured
-- step repeats it after each replay (recording.lua).

local lib = require "moth.binding.lib"

--- Raises if an element of a bool tensor is true.
-- @param bad   marks forbidden values; on a GPU it is not read while a step is recorded, because
-- the read would wait
-- @param fail  function() that raises the error
return function(bad, fail)
  if not lib.capture then
    if bad:any():item() then fail() end
  elseif not bad.is_cuda then
    require("moth.capture.recording").check(bad, fail)
  end
end
