--- native.lua -- makes `require "moth"` find the native library in a shipped game. The system
-- cannot load a library from inside an archive, so a library in the archive is copied to the save
-- directory, once for each version. Each thread runs this file before `require "moth"`.

local files = require "love.filesystem"
local data = require "love.data"

local extension = jit.os == "Windows" and ".dll" or ".so"
local name = "libmoth" .. extension

local function search(folder)
  package.cpath = folder .. "/?" .. extension .. ";" .. package.cpath
end

search(files.getSourceBaseDirectory()) -- next to the executable or the .love file
local bytes = files.read(name)
if bytes then
  local hash = data.encode("string", "hex", data.hash("md5", bytes))
  local folder = files.getSaveDirectory() .. "/" .. hash
  if not files.getInfo(hash .. "/" .. name) then
    files.createDirectory(hash)
    assert(files.write(hash .. "/part", bytes))
    assert(os.rename(folder .. "/part", folder .. "/" .. name)) -- never half a file
  end
  search(folder)
end
