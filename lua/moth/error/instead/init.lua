--- init.lua -- replacements for names of PyTorch that Moth does not have: the hint in the error for
-- an unknown name.
--
-- The files of this folder have the hints, by namespace; a file is loaded when a name is missing.
-- Each returns a table of namespaces: path -> rows. A row is a text of names -> the hint; a name
-- with a * covers all names that match. `moth.x.y`, `nn.X`, `F.x` and `x:f` in a hint must exist:
-- spec/cases/names_spec.lua checks it.

local bind = require "moth.binding.bind"

local instead = {}

local FILES = " moth tensor nn optim linalg fft autograd func cuda backends data utils ops random "
  .. "testing signal distributions profiler onnx amp special sparse io "
  .. "distributed transforms models plot arguments "

-- The table with the hints of a namespace: for "moth.nn.utils" the table in nn.lua, for
-- "arguments.new_group" that in arguments.lua.
local function load_file(path)
  local name = path:match "^moth%.([%w_]+)" or path:match "^[%w_]+"
  if not FILES:find(" " .. name .. " ", 1, true) then return {} end
  return require("moth.error.instead." .. name)
end

local function fits(name, pattern)
  return name:find("^" .. pattern:gsub("[%-%.]", "%%%0"):gsub("%*", "[%%w_]*") .. "$") ~= nil
end

--- The hint in the tables for a name, or nil.
function instead.row(path, name)
  local rows, found = load_file(path)[path] or {}, nil
  for names, text in pairs(rows) do
    if (" " .. names .. " "):find(" " .. name .. " ", 1, true) then return text end
    if names:find("*", 1, true) then
      for pattern in names:gmatch "%S+" do
        if pattern:find("*", 1, true) and fits(name, pattern) then found = text end
      end
    end
  end
  return found
end

local function built_in(space, name)
  return getmetatable(space).__built_in(name) ~= nil
end

local function is_method(name)
  return require("moth.tensor").written()[name] ~= nil or bind.method(name) ~= nil
end

-- Namespaces whose functions PyTorch also has in torch itself.
local SPACES = {"nn.functional", "linalg", "special", "fft"}

-- The hint for a function of torch that is derived from existing names.
local function of_moth(name)
  for _, space in ipairs(SPACES) do
    if built_in(require("moth." .. space), name) then
      return "it is moth." .. space .. "." .. name
    end
  end
  local bare = name:match "^(.*%w)_$"
  local copied = name:match "^(%w.*)_copy$"
  if is_method(name) then return ("it is a method: x:%s()"):format(name) end
  if copied and is_method(copied) then
    return ("x:%s():clone() is a copy of that view"):format(copied)
  end
  if bare and built_in(require "moth", bare) then
    return ("%s has no form in place; write x = moth.%s(x)"):format(bare, bare)
  end
end

-- The hint for a method that is derived from existing names.
local function of_tensor(name)
  local bare = name:match "^(.*%w)_$"
  if bare and is_method(bare) then
    return ("x:%s() has no form in place; write x = x:%s()"):format(bare, bare)
  end
  local moth = require "moth"
  if built_in(moth, name) and type(moth[name]) == "function" then
    return ("it is a function: moth.%s(x)"):format(name)
  end
  return instead.row("moth", name)
end

--- The hint for a name, or nil.
-- @param path  the namespace as in messages: "moth.nn"; "tensor" for tensor methods
function instead.find(path, name)
  local text = instead.row(path, name)
  if text then return text end
  if path == "moth" then return of_moth(name) end
  if path == "tensor" then return of_tensor(name) end
end

--- All rows, as a list of {path, names, text}: for the specs.
function instead.all()
  local list = {}
  for file in FILES:gmatch "%S+" do
    for path, rows in pairs(require("moth.error.instead." .. file)) do
      for names, text in pairs(rows) do list[#list + 1] = {path, names, text} end
    end
  end
  return list
end

return instead
