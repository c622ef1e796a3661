--- native.lua -- makes `require "moth"` find the native library in a shipped game. The system
-- cannot load a library from inside an archive, so a library in the archive is copied to the save
-- directory, once for each version. Each thread runs this file before `require "moth"`.

local files = require "love.filesystem"

local extension = jit.os == "Windows" and ".dll" or ".so"
local name = "libmoth" .. extension

local function search(folder)
  package.cpath = folder .. "/?" .. extension .. ";" .. package.cpath
end

search(files.getSourceBaseDirectory()) -- next to the executable or the .love file
local bytes = files.read(name)
if bytes then
  -- A checksum. (The results of love.data.hash in LÖVE 11.4 differ between calls for some sizes.)
  local sum = #bytes
  for at = 1, #bytes do sum = (sum * 31 + bytes:byte(at)) % 2 ^ 32 end
  local hash = ("%08x"):format(sum)
  local folder = files.getSaveDirectory() .. "/" .. hash
  if not files.getInfo(hash .. "/" .. name) then
    files.createDirectory(hash)
    assert(files.write(hash .. "/part", bytes))
    assert(os.rename(folder .. "/part", folder .. "/" .. name)) -- never half a file
  end
  search(folder)
end
