--- lazy.lua -- namespaces that load a name at its first use: moth, moth.nn and others.
--
--     local rows = {}
--     lazy.from(rows, "moth.data.sampler", "Sampler SequentialSampler RandomSampler")
--     return lazy.namespace("moth.data", {}, rows)
--
-- A row names the source of a value: {module, field}, or {module} if the module is the value. Names
-- from one module are kept as one string, which costs the collector less. A loaded value is stored
-- in the namespace. An unknown name raises an error that suggests the nearest name.

local errors = require "moth.error"

local lazy = {}

--- Adds names that are fields of one module.
-- @param rows    name -> row; its array part holds what this adds
-- @param module  as `require` takes it; with a * in it, which stands for the name, a module each
-- @param names   the names, with spaces between. Marks say where else a function of moth is found:
--   "name:" is also a method of tensors, ":name" is only that, "name*" and "name*:" are also in
--   moth.nn.functional
function lazy.from(rows, module, names)
  rows[#rows + 1] = module
  rows[#rows + 1] = " " .. names .. " "
end

-- By mark: how a name may be written.
local WRITTEN = {
  [""] = { " %s ", " %s:", " %s*" },
  [":"] = { " %s:", " %s*:", " :%s " },
  ["*"] = { " %s*" },
}

--- The module of a name that lazy.from has added; nil for others.
-- @param mark  ":" for methods, "*" for moth.nn.functional; none: the namespace of the rows
function lazy.module(rows, name, mark)
  for _, pattern in ipairs(WRITTEN[mark or ""]) do
    local written = pattern:format(name)
    for i = 2, #rows, 2 do
      if rows[i]:find(written, 1, true) then return rows[i - 1] end
    end
  end
end

--- Calls f(name, module) for each name that lazy.from has added.
-- @param mark  as for lazy.module
function lazy.each(rows, f, mark)
  for i = 2, #rows, 2 do
    for before, name, marks in rows[i]:gmatch "(:?)([^%s:*]+)(%S*)" do
      local marked = mark == ":" and before == ":" or marks:find(mark or "", 1, true)
      if marked and (before == "" or mark == ":") then f(name, rows[i - 1]) end
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

-- What there is, what the rows would give, and what only `find` knows; sorted, each name once.
local function names_of(space, rows, more)
  local list, seen = {}, {}
  local function add(name)
    if type(name) == "string" and not seen[name] then list[#list + 1], seen[name] = name, true end
  end
  for name in pairs(space) do add(name) end
  for name in pairs(rows) do add(name) end -- not the positions of what lazy.from has added
  lazy.each(rows, add)
  for _, name in ipairs(more.names and more.names() or {}) do add(name) end
  for _, name in ipairs(more.also or {}) do add(name) end
  table.sort(list)
  return list
end

--- Lets a table find further names; it is the result, and a function that lists all its names.
-- @param path   what messages call it: "moth.nn"
-- @param space  the table, with what is there already
-- @param rows   name -> row
-- @param more   what only some namespaces need, optional:
--   find(name)   what no row has; nil if there is no such name
--   names()      lists those names, and the list `also` some that it leaves out
--   found(value) is called with each value that is found
--   guesses(names, wrong)  lists those of the names that are worth guessing
--   hint         stands at the end of the error
function lazy.namespace(path, space, rows, more)
  more = more or {}
  local function names() return names_of(space, rows, more) end
  local function missing(name)
    local known, instead = names(), require("moth.error.instead").find(path, name)
    if more.guesses then known = more.guesses(known, name) end
    errors.raise(("%s has no '%s'%s%s"):format(path, name, instead and "; " .. instead
      or errors.nearest(name, known), more.hint or ""))
  end
  local own = {} -- what was found; in the namespace a user's may stand instead
  local function built_in(name)
    local value = own[name]
    if value == nil then value = find_row(rows, name) end
    if value == nil and more.find then value = more.find(name) end
    own[name] = value
    return value
  end
  return setmetatable(space, {
    __names = names, -- for completion
    __built_in = built_in, -- what a name stands for, whatever was put in its place
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
