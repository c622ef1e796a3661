--- lazy.lua -- namespaces that load a name at its first use: moth, moth.nn and others.
--
--     local rows = {}
--     lazy.from(rows, "moth.data.sampler", "Sampler SequentialSampler RandomSampler")
--     return lazy.namespace("moth.data", {}, rows)
--
-- A row names the source of a value: {module, field}, or {module} if the module is the value. Names
-- from one module are stored as one string, which costs the collector less. A loaded value is
-- stored in the namespace. An unknown name raises an error that suggests the nearest name.

local errors = require "moth.error"

local lazy = {}

--- Adds names that are fields of one module.
-- @param rows    name -> row; its array part stores what this function adds, by one assignment, so
-- that an error in between leaves nothing half done
-- @param module  as for `require`; a * in it is replaced by the name, so that each name has a
-- module
-- @param names   the names, separated by spaces. A mark says where else the function is found:
--   "name:" is also a method of tensors, ":name" is only a method, "name*" and "name*:" are also
--   in moth.nn.functional
function lazy.from(rows, module, names)
  rows[#rows + 1] = module .. " " .. names .. " "
end

-- The marks that a name may have, by the mark that is looked up.
local WRITTEN = {
  [""] = {" %s ", " %s:", " %s*"},
  [":"] = {" %s:", " %s*:", " :%s "},
  ["*"] = {" %s*"},
}

--- The module of a name that lazy.from has added; nil for other names.
-- @param mark  ":" for methods, "*" for moth.nn.functional; default: the namespace of the rows
function lazy.module(rows, name, mark)
  for _, pattern in ipairs(WRITTEN[mark or ""]) do
    local written = pattern:format(name)
    for _, text in ipairs(rows) do
      if text:find(written, 1, true) then return (text:match "%S+") end
    end
  end
end

--- Calls f(name, module) for each name that lazy.from has added.
-- @param mark  as for lazy.module
function lazy.each(rows, f, mark)
  for _, text in ipairs(rows) do
    local module, names = text:match "^(%S+)(.*)"
    for before, name, marks in names:gmatch "(:?)([^%s:*]+)(%S*)" do
      local marked = mark == ":" and before == ":" or marks:find(mark or "", 1, true)
      if marked and (before == "" or mark == ":") then f(name, module) end
    end
  end
end

local function find_row(rows, name)
  local row = rows[name]
  if row then
    local found = require(row[1])
    if row[2] == nil then return found end
    return found[row[2]]
  end
  local module = lazy.module(rows, name)
  if module and module:find("*", 1, true) then
    return (require((module:gsub("%*", name))))
  end
  return module and require(module)[name]
end

-- The names in the table, in the rows, and those that only `find` knows; sorted, each once.
local function names_of(space, rows, more)
  local list, seen = {}, {}
  local function add(name)
    if type(name) == "string" and not seen[name] then list[#list + 1], seen[name] = name, true end
  end
  for name in pairs(space) do add(name) end
  for name in pairs(rows) do add(name) end -- skip the array part, which lazy.from uses
  lazy.each(rows, add)
  for _, name in ipairs(more.names and more.names() or {}) do add(name) end
  for _, name in ipairs(more.also or {}) do add(name) end
  table.sort(list)
  return list
end

--- Makes a table load names at their first use. Returns the table, and a function that lists all
-- its names.
-- @param path   the namespace's name in messages: "moth.nn"
-- @param space  the table, which may have fields
-- @param rows   name -> row
-- @param more   fields that only some namespaces need:
--   find(name)   the value of a name that no row has; nil if there is no such name
--   names()      lists the names that `find` knows, and a second list `also` that is not shown
--   found(value) is called with each loaded value
--   guesses(names, wrong)  lists the names that a message may suggest
--   hint         the end of the error message
function lazy.namespace(path, space, rows, more)
  more = more or {}
  local function names() return names_of(space, rows, more) end
  local function missing(name)
    local known, instead = names(), require("moth.error.instead").find(path, name)
    if more.guesses then known = more.guesses(known, name) end
    errors.raise(("%s has no '%s'%s%s"):format(path, name, instead and "; " .. instead
      or errors.nearest(name, known), more.hint or ""))
  end
  local own = {} -- loaded values; the user may have overwritten them in the namespace
  local function built_in(name)
    local value = own[name]
    if value == nil then value = find_row(rows, name) end
    if value == nil and more.find then value = more.find(name) end
    own[name] = value
    return value
  end
  return setmetatable(space, {
    __names = names, -- for completion
    __built_in = built_in, -- the built-in value of a name, even if the user has overwritten it
    __tostring = function() return path end,
    __index = function(_, name)
      if type(name) ~= "string" then return nil end
      local value = built_in(name)
      if value == nil then missing(name) end
      rawset(space, name, value)
      if more.found then more.found(value) end
      return value
    end,
  }), names
end

--- The hint of namespaces that `help` knows.
lazy.HELP = " (moth.help() lists what there is)"

return lazy
