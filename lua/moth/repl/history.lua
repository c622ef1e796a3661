--- history.lua -- the lines typed at earlier prompts: a text file, a line each, in the user's state
-- directory. Lines are added as they are typed, so that several prompts can be open at once. Where
-- nothing can be written the prompt works without.

local machine = require "moth.base.machine"
local system = require "moth.base.system"

local history = {}

local MOST = 2000 -- lines that are kept

--- A file of the user's: $XDG_<kind>_HOME/moth/<name>, or of that folder of
-- the user's; nil where there is no home.
function history.path(kind, fallback, name)
  local base = os.getenv("XDG_" .. kind .. "_HOME")
  if not base or not base:find(system.root) then base = machine.user_folder(fallback) end
  return base and base .. "/moth/" .. name
end

-- Makes the directories that lead to a file.
local function make_way(path)
  for directory in path:gmatch("()/") do
    if directory > 1 then machine.make_folder(path:sub(1, directory - 1)) end
  end
end

--- Reads the file, and shortens it when it has grown to twice what is kept.
-- @return an object with `lines` and `add`
function history.open()
  local path = history.path("STATE", ".local/state", "history")
  local lines = {}
  local file = path and io.open(path)
  if file then
    for line in file:lines() do lines[#lines + 1] = line end
    file:close()
  elseif path then
    make_way(path)
  end
  local long = #lines >= 2 * MOST
  if #lines > MOST then lines = { unpack(lines, #lines - MOST + 1) } end
  file = path and long and io.open(path, "w")
  if file then
    file:write(table.concat(lines, "\n"), "\n")
    file:close()
  end
  return setmetatable({ path = path or false, lines = lines }, { __index = history })
end

--- Adds a line, unless it is blank or says again what the last one said. Tells whether it did.
function history:add(line)
  if not line:find("%S") or line == self.lines[#self.lines] then return false end
  self.lines[#self.lines + 1] = line
  local file = self.path and io.open(self.path, "a")
  if file then
    file:write(line, "\n")
    file:close()
  end
  return true
end

return history
