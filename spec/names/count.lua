--- count.lua -- counts the public names of PyTorch that exist here, names whose error says what to
-- write instead, and other missing names. The names are in names.txt.
--
--     ./moth spec/names/table.lua          prints the counts of each namespace

local moth = require "moth"

local count = {}

local FILE = "spec/names/names.txt"

-- The namespaces of torchvision whose names differ here.
local PLACES = { ["torch.Tensor"] = "tensor" }

--- The namespaces in the order of the file: a list of {path = PyTorch's, names = list}.
function count.namespaces()
  local list = {}
  for line in io.lines(FILE) do
    local path, names = line:match "^([%w_.]+): ?(.*)$"
    if path then
      local space = { path = path, names = {} }
      for name in names:gmatch "%S+" do space.names[#space.names + 1] = name end
      list[#list + 1] = space
    end
  end
  return list
end

--- Where a namespace of PyTorch is here: "moth.nn" for "torch.nn"; "tensor" for a tensor's.
function count.place(path)
  return PLACES[path] or (path:gsub("^torchvision", "moth"):gsub("^torch", "moth"))
end

local function index(space, name) return space[name] end

-- A tensor with all that one can have: what only sparse ones have is sought there.
local function tensor_with(name)
  local dense = moth.eye(2):requires_grad_()
  local sparse = " indices values "
  return sparse:find(" " .. name .. " ", 1, true)
    and moth.sparse_coo_tensor({ { 1 } }, moth.ones(1), { 2 }):coalesce() or dense
end

--- The state of a name: "present", "told" (an error says what to write) with the line, or "silent"
-- with the message.
-- @param path  the namespace, as PyTorch calls it
function count.outcome(path, name)
  local place = count.place(path)
  local value, rest = moth, place:match "^moth%.(.*)$" or ""
  if place == "tensor" then
    value, rest = tensor_with(name), ""
  end
  local problem
  for part in (rest .. "." .. name):gmatch "[^.]+" do
    if type(value) ~= "table" and type(value) ~= "cdata" then
      return "silent", ("%s is a %s"):format(place, type(value))
    end
    local ok, found = pcall(index, value, part)
    if not ok then
      problem = found
      break
    elseif found == nil and place ~= "tensor" then
      return "silent", "nil"
    end
    value = found
  end
  if not problem then return "present" end
  if problem:find "'; " and not problem:find("did you mean", 1, true) then
    return "told", problem
  end
  return "silent", problem
end

--- Counts all names: a list of {path, present = n, told = n, silent = list of names}, and totals.
function count.all()
  local rows, totals = {}, { present = 0, told = 0, silent = 0 }
  for _, space in ipairs(count.namespaces()) do
    local row = { path = space.path, present = 0, told = 0, silent = {} }
    for _, name in ipairs(space.names) do
      local outcome = count.outcome(space.path, name)
      if outcome == "silent" then row.silent[#row.silent + 1] = name
      else row[outcome] = row[outcome] + 1 end
      totals[outcome] = totals[outcome] + 1
    end
    rows[#rows + 1] = row
  end
  return rows, totals
end

return count
