--- history.lua -- the history of the prompt: a text file with one input each, in the user's state
-- directory. In the file the line ends of a block are the byte 31. Inputs are appended as they are
-- typed, so several prompts can be open at once. If the file cannot be written the prompt works
-- without history.

local machine = require "moth.base.machine"
local system = require "moth.base.system"

local history = {}

local MAX_LINES = 2000 -- inputs that are kept
local JOIN = "\31"

--- A path in the user's folders: $XDG_<kind>_HOME/moth/<name>, or its default; nil without a home.
function history.path(kind, fallback, name)
  local base = os.getenv("XDG_" .. kind .. "_HOME")
  if not base or not base:find(system.root) then base = machine.user_folder(fallback) end
  return base and base .. "/moth/" .. name
end

-- Creates the parent directories of a file.
local function make_way(path)
  for directory in path:gmatch("()/") do
    if directory > 1 then machine.make_folder(path:sub(1, directory - 1)) end
  end
end

--- Reads the file, and truncates it at twice the number of kept lines.
-- @return an object with `lines` and `add`
function history.open()
  local path = history.path("STATE", ".local/state", "history")
  local lines = {}
  local file = path and io.open(path)
  if file then
    for line in file:lines() do lines[#lines + 1] = (line:gsub(JOIN, "\n")) end
    file:close()
  elseif path then
    make_way(path)
  end
  local long = #lines >= 2 * MAX_LINES
  if #lines > MAX_LINES then lines = {unpack(lines, #lines - MAX_LINES + 1)} end
  file = path and long and io.open(path, "w")
  if file then
    for _, line in ipairs(lines) do file:write(line:gsub("\n", JOIN), "\n") end
    file:close()
  end
  return setmetatable({path = path or false, lines = lines}, {__index = history})
end

--- Adds an input of one or several lines, unless it is blank or equal to the last one. Returns true
-- if it was added.
function history:add(line)
  if not line:find("%S") or line == self.lines[#self.lines] then return false end
  self.lines[#self.lines + 1] = line
  local file = self.path and io.open(self.path, "a")
  if file then
    file:write(line:gsub("\n", JOIN), "\n")
    file:close()
  end
  return true
end

return history
