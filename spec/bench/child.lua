--- A child process that answers requests line by line: one side of a comparison.

local ffi = require "ffi"

ffi.cdef "int mkfifo(const char *path, unsigned mode);"

local child = {}
child.__index = child

local function quoted(word) return "'" .. tostring(word):gsub("'", "'\\''") .. "'" end
child.quoted = quoted

--- Makes a temporary folder. @return its path
function child.folder()
  local pipe = assert(io.popen "mktemp -d")
  local path = pipe:read "*l"
  pipe:close()
  return assert(path, "mktemp made no folder")
end

--- A side that is not started.
-- @param label    its name for people
-- @param words    the command
-- @param setting  {NAME = value} for its environment; false removes a variable
-- @param folder   the folder of its pipe
function child.new(label, words, setting, folder)
  local command = {"exec env"}
  for name, value in pairs(setting) do
    if not value then table.insert(command, 2, "-u " .. name) end
  end
  for name, value in pairs(setting) do
    if value then table.insert(command, name .. "=" .. quoted(value)) end
  end
  for _, word in ipairs(words) do table.insert(command, quoted(word)) end
  local self = {label = label, command = table.concat(command, " ")}
  self.path = folder .. "/" .. label:gsub("%W", "")
  return setmetatable(self, child)
end

function child:start()
  os.remove(self.path)
  assert(ffi.C.mkfifo(self.path, 384) == 0, "mkfifo failed") -- 0600
  self.to = assert(io.popen(self.command .. " >" .. quoted(self.path), "w"))
  self.from = assert(io.open(self.path, "r"))
end

--- Ends the process.
function child:stop()
  if not self.to then return end
  self.to:close() -- it reads the end of its input
  self.from:close()
  self.to, self.from = nil, nil
  os.remove(self.path)
end

--- Sends a line. @return the text after `done`, and the lines before it; or nil and the error
function child:ask(...)
  if not self.to then self:start() end
  self.to:write(table.concat({...}, " "), "\n")
  self.to:flush()
  local lines = {}
  for line in self.from:lines() do
    local word, rest = line:match "^(%S+)%s?(.*)$"
    if word == "done" then return rest, lines end
    if word == "error" then return nil, rest end
    lines[#lines + 1] = line
  end
  self:stop()
  return nil, "the process ended"
end

--- Times the current workload. @return a list of {part, unit, value}; or nil and the error
function child:time(variant, seconds, round)
  local ok, lines = self:ask("time", variant, seconds, round)
  if not ok then return nil, lines end
  local parts = {}
  for _, line in ipairs(lines) do
    local part, unit, value = line:match "^part (%S+) (%S+) (%S+)$"
    if part then parts[#parts + 1] = {part == "-" and "" or "/" .. part, unit, tonumber(value)} end
  end
  return parts
end

return child
