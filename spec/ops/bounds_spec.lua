--- The bounds of arguments are those of spec/names/bounds.txt, and hold: a value at a bound is
-- accepted, a value beyond it raises. Defaults that PyTorch's list (defaults.txt) lacks are those
-- of spec/names/own_defaults.txt.

local moth = require "moth"
local bind = require "moth.binding.bind"
local define = require "moth.binding.define"

local FOLDER = "spec/names/"

local function signature_of(value)
  if type(value) == "function" then return bind.signature(value) end
  if type(value) ~= "table" then return nil end
  local own = rawget(value, "signature")
  if own then return bind.signature(own) end
  local ok, found = pcall(bind.signature, value)
  return ok and found or nil
end

local function names_of(space)
  local names, meta = {}, getmetatable(space)
  for name in pairs(space) do
    if type(name) == "string" and name:sub(1, 1) ~= "_" then names[name] = true end
  end
  if type(meta) == "table" and meta.__names then
    for _, name in ipairs(meta.__names(space)) do names[name] = true end
  end
  local list = {} -- sorted: a namespace with two names is visited under the first
  for name in pairs(names) do list[#list + 1] = name end
  table.sort(list)
  return list
end

local function read(space, name) return space[name] end

-- Calls visit(path, arg) for each argument in a namespace and in the namespaces within it.
local function each_argument(path, space, visit, depth, seen)
  if seen[space] then return end
  seen[space] = true
  for _, name in ipairs(names_of(space)) do
    local ok, value = pcall(read, space, name)
    local signature = ok and signature_of(value)
    for _, arg in ipairs(signature and signature.args or {}) do visit(path .. "." .. name, arg) end
    local meta = ok and type(value) == "table" and getmetatable(value)
    if depth > 0 and type(meta) == "table" and meta.__names then
      each_argument(path .. "." .. name, value, visit, depth - 1, seen)
    end
  end
end

-- The rows of text that `row` makes of the arguments.
local function rows_of(row)
  local rows = {}
  each_argument("moth", moth, function(path, arg)
    local text = row(path, arg)
    if text then rows[text] = true end
  end, 3, {})
  return rows
end

local function compare(file, found)
  local wrong = {}
  for line in io.lines(FOLDER .. file) do
    if line:sub(1, 1) ~= "#" then
      if not found[line] then wrong[#wrong + 1] = "not found: " .. line end
      found[line] = nil
    end
  end
  for line in pairs(found) do wrong[#wrong + 1] = "not in the list: " .. line end
  table.sort(wrong)
  assert(#wrong == 0, "\n" .. table.concat(wrong, "\n"))
end

-- The arguments whose defaults defaults_spec.lua compares with PyTorch's.
local function compared()
  local set = {}
  for line in io.lines(FOLDER .. "defaults.txt") do
    local space, name, rest = line:match "^(torch[%w_.]*) ([%w_]+) (.*)$"
    local place = space and space:gsub("^torchvision%.transforms%.v2", "moth.transforms")
      :gsub("^torchvision", "moth"):gsub("^torch", "moth")
    for arg in (rest or ""):gmatch "([%w_]+)=" do set[place .. "." .. name .. " " .. arg] = true end
  end
  return set
end

local function text_of(value)
  if type(value) ~= "table" then
    return type(value) == "string" and '"' .. value .. '"' or tostring(value)
  end
  local list = {}
  for i, item in ipairs(value) do list[i] = text_of(item) end
  return "{" .. table.concat(list, ",") .. "}"
end

local function default_of(arg)
  local value = arg.default
  if value == nil then value = arg.first end
  if value == nil and arg.choices and not arg.optional and not arg.required then
    value = arg.choices[1]
  end
  return value
end

describe("the defaults of arguments that PyTorch's list lacks", function()
  it("are those of the list", function()
    local known = compared()
    compare("own_defaults.txt", rows_of(function(path, arg)
      local value = default_of(arg)
      if value == nil or known[path .. " " .. arg.name] then return nil end
      if path == "moth.data.mnist" and arg.name == "folder" then return nil end
      return ("%s %s %s"):format(path, arg.name, text_of(value))
    end))
  end)
end)

describe("the bounds of arguments", function()
  it("are those of the list", function()
    compare("bounds.txt", rows_of(function(path, arg)
      local bounds = arg.bounds
      return bounds and ("%s %s %s %s%s"):format(path, arg.name, bounds[1], bounds[2] or "-",
        bounds.open and " above" or "")
    end))
  end)

  it("include their ends, except the least one if it is open", function()
    local parse = define.signature("f", {
      {"int", "a", "", default = 1, bounds = {1}}, {"float", "b", "", default = 1, bounds = {0, 1}},
      {"float", "c", "", default = 1, bounds = {0, open = true}},
      {"float", "d", "", default = 1, bounds = {0, 1, open = true}},
      {"ints", "e", "", default = 2, bounds = {2, 3}},
    })
    local rows = {
      {"a", {1, 2 ^ 40}, {0, -1}, "from 1 on is needed"},
      {"b", {0, 0.5, 1}, {-1e-9, 1 + 1e-9, 0 / 0}, "from 0 to 1 is needed"},
      {"c", {1e-300, 1e300}, {0, -1, 0 / 0}, "above 0 is needed"},
      {"d", {1e-300, 1}, {0, 1 + 1e-9}, "is needed"},
      {"e", {2, 3, {2, 3}}, {1, 4, {2, 4}, {1, 2}}, "from 2 to 3"},
    }
    for _, row in ipairs(rows) do
      for _, value in ipairs(row[2]) do parse {[row[1]] = value} end
      for _, value in ipairs(row[3]) do
        local ok, problem = pcall(parse, {[row[1]] = value})
        assert(not ok, row[1])
        local wanted = ("bad argument '%s' to 'f'"):format(row[1])
        assert(tostring(problem):find(wanted, 1, true), problem)
        assert(tostring(problem):find(row[4], 1, true), problem)
      end
    end
  end)
end)
