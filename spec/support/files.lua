--- files.lua -- a temporary folder for specs of loaders, and writers of safetensors files and
-- torch.save archives that do not use Moth's own writer.

local bit = require "bit"
local lfs = require "lfs"
local moth = require "moth"

local files = {}

--- Creates the folder, and removes it at the end.
function files.setup()
  local name = os.tmpname() -- on Windows a path in the root, without the folder
  os.remove(name)
  files.folder = jit.os == "Windows" and os.getenv("TEMP") .. name or name
  assert(lfs.mkdir(files.folder))
end

local function remove(path)
  if lfs.symlinkattributes(path, "mode") == "directory" then
    for name in lfs.dir(path) do
      if name ~= "." and name ~= ".." then remove(path .. "/" .. name) end
    end
    lfs.rmdir(path)
  else
    os.remove(path)
  end
end

function files.teardown() remove(files.folder) end

--- The path of a name in the folder.
function files.path(name) return files.folder .. "/" .. name end

--- Writes bytes to a name. @return its path
function files.write(name, bytes)
  local file = assert(io.open(files.path(name), "wb"))
  file:write(bytes)
  file:close()
  return files.path(name)
end

function files.read(path)
  local file = assert(io.open(path, "rb"))
  local bytes = file:read("*a")
  file:close()
  return bytes
end

--- The names in the folder, sorted, hidden ones too.
function files.list()
  local names = {}
  for name in lfs.dir(files.folder) do
    if name ~= "." and name ~= ".." then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

--- A hostile file name: it clears the screen, has a newline, and is long.
files.evil = "\27[2J\n" .. ("x"):rep(1e6)

--- Checks that a reader refuses a file with a message that names the file and fits on a screen.
function files.refusal(path, read, ...)
  local ok, message = pcall(read, ...)
  assert(not ok, "it was read")
  local plain = message:gsub("^[^:]-:%d+: ", "")
  assert(plain:find(path, 1, true), "the file is not named: " .. message:sub(1, 500))
  assert(not plain:find "%c" and #plain < 1500, "no text for a terminal: " .. plain:sub(1, 500))
  return plain
end

function files.unhex(text)
  return (text:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

--- The length at the start of a file: eight bytes, the lowest first.
function files.le8(n)
  local bytes = {}
  for i = 1, 8 do
    bytes[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(bytes)
end

--- A complete safetensors file.
function files.safetensors(header, data) return files.le8(#header) .. header .. (data or "") end

--- A tensor's entry in a header.
function files.entry(name, dtype, shape, first, last)
  return ('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%s,%s]}'):format(name, dtype, shape,
    first, last)
end

--- Saves a value and loads it again.
function files.round(value, options)
  local path = files.path("round.st")
  moth.save(value, path)
  return moth.load(path, options)
end

-- ---- handmade archives ----

local function le(n, width) return files.le8(n):sub(1, width) end

local function crc32(text)
  local crc = bit.tobit(0xFFFFFFFF)
  for i = 1, #text do
    crc = bit.bxor(crc, text:byte(i))
    for _ = 1, 8 do
      crc = bit.bxor(bit.rshift(crc, 1), bit.band(0xEDB88320, -bit.band(crc, 1)))
    end
  end
  return bit.bnot(crc) % 2 ^ 32
end

--- A zip of {name, bytes[, method]}, stored; an entry with `again` shares the bytes of the first.
function files.archive(members)
  local body, directory = {}, {}
  local offset = 0
  for _, member in ipairs(members) do
    local name, bytes, method = member[1], member[2], member[3] or 0
    local common = le(method, 2) .. le(0, 4) .. le(crc32(bytes), 4) .. le(#bytes, 4)
      .. le(#bytes, 4) .. le(#name, 2) .. le(0, 2)
    body[#body + 1] = member.again and "" or "PK\3\4" .. le(20, 2) .. le(0, 2) .. common .. name
      .. bytes
    directory[#directory + 1] = "PK\1\2" .. le(20, 2) .. le(20, 2) .. le(0, 2) .. common
      .. ("\0"):rep(10) .. le(member.again and 0 or offset, 4) .. name
    offset = offset + #body[#body]
  end
  local all = table.concat(directory)
  return table.concat(body) .. all .. "PK\5\6" .. le(0, 4) .. le(#members, 2) .. le(#members, 2)
    .. le(#all, 4) .. le(offset, 4) .. le(0, 2)
end

--- A file as torch.save writes it: a pickle of protocol 2, and one storage.
function files.pth(code, data)
  return files.archive { { "a/data.pkl", "\128\2" .. code }, { "a/data/0", data or ("\0"):rep(8) } }
end

return files
