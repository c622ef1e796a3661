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

-- Temporary files of specs and of examples are in a folder, which is removed at the end.
local lfs = require "lfs"
local tmpname, folder, made = os.tmpname, nil, 0
if jit.os ~= "Windows" then
  function os.tmpname() -- luacheck: ignore 122
    if not folder then
      folder = tmpname()
      os.remove(folder)
      assert(lfs.mkdir(folder))
    end
    made = made + 1
    local path = folder .. "/lua_" .. made
    assert(io.open(path, "w")):close()
    return path
  end
  require("busted").subscribe({ "suite", "end" }, function()
    if folder then os.execute("rm -rf '" .. folder .. "'") end
    return nil, true
  end)
end

dofile "spec/support/assertions.lua"
