--- outside.lua -- what a captured step takes from outside of itself: numbers, strings, booleans and
-- tensors in its upvalues, in globals that it names, in plain tables among these, and what
-- functions among these take. A recording holds them as constants; before a replay they are looked
-- at, and if one is another, the step is recorded anew.
--
-- Of tables every value counts, read or not; a function in one if its name is written in the step.
-- What the step itself changes is left out, since a replay does not run it. Upvalues are read by a
-- function that is joined to them, so that LuaJIT compiles the look.

local errors = require "moth.error"
local lib = require "moth.lib"

local outside = {}

local getupvalue, upvaluejoin = debug and debug.getupvalue, debug and debug.upvaluejoin
local found, util = pcall(require, "jit.util")
local funck = found and util.funck

local UPVALUES = 60     -- that a function may have
local MOST_CELLS = 50   -- upvalues that are looked at
local MOST_ROWS = 200   -- values in tables
local MOST_DEPTH = 3    -- how deep these tables lie in others, and functions in functions
local CONSTANTS = 200   -- of a function, among which names of globals are

local SCALAR = {number = true, string = true, boolean = true}

local function is_watched(value)
  return SCALAR[type(value)] and value == value or lib.istensor(value)
end

local LIBRARIES = {}
for _, name in ipairs {"_G", "string", "table", "math", "io", "os", "debug", "coroutine", "package",
                       "bit", "jit", "ffi"} do
  if package.loaded[name] then LIBRARIES[package.loaded[name]] = true end
end

local add_function

local function add_table(all, t, name, depth)
  if all.seen[t] or LIBRARIES[t] or depth > MOST_DEPTH then return end
  all.seen[t] = true
  for key, value in next, t do
    if #all.rows >= MOST_ROWS then return end
    local place = type(key) == "string" and name .. "." .. key or ("%s[%s]"):format(name,
      tostring(key))
    if is_watched(value) and SCALAR[type(key)] then
      all.rows[#all.rows + 1] = {table = t, key = key, value = value, name = place}
    elseif lib.is_plain(value) then
      add_table(all, value, place, depth + 1)
    elseif type(value) == "function" and all.names[key] then
      add_function(all, value, depth + 1)
    end
  end
end

-- The names of fields and globals that a function has, with other texts.
local function names_of(fn)
  local list = {}
  for i = 1, funck and CONSTANTS or 0 do
    local there, name = pcall(funck, fn, -i)
    if not there or name == nil then break end
    if type(name) == "string" then list[#list + 1] = name end
  end
  return list
end

local function add_globals(all, fn, names, depth)
  local env = getfenv(fn)
  for _, name in ipairs(names) do
    local value = rawget(env, name)
    if is_watched(value) and #all.rows < MOST_ROWS then
      all.rows[#all.rows + 1] = {table = env, key = name, value = value, name = name}
    elseif lib.is_plain(value) then
      add_table(all, value, name, depth)
    elseif type(value) == "function" then
      add_function(all, value, depth + 1)
    end
  end
end

add_function = function(all, fn, depth)
  if all.seen[fn] or depth > MOST_DEPTH or errors.is_own(fn) then return end
  all.seen[fn] = true
  local names = names_of(fn)
  for _, name in ipairs(names) do all.names[name] = true end
  for i = 1, UPVALUES do
    local name, value = getupvalue(fn, i)
    if not name then break end
    local id = debug.upvalueid(fn, i)
    if is_watched(value) and not all.seen[id] and #all.cells < MOST_CELLS then
      all.seen[id] = true
      all.cells[#all.cells + 1] = {fn = fn, at = i, value = value, name = name}
    elseif type(value) == "function" then
      add_function(all, value, depth + 1)
    elseif lib.is_plain(value) then
      add_table(all, value, name, depth)
    end
  end
  add_globals(all, fn, names, depth)
end

local function now(row)
  if row.table then return rawget(row.table, row.key) end
  return (select(2, getupvalue(row.fn, row.at)))
end

local function unchanged(rows)
  local left = {}
  for _, row in ipairs(rows) do
    if rawequal(now(row), row.value) then left[#left + 1] = row end
  end
  return left
end

-- Joined to upvalues; what it is compared with comes with each call, so that this function, which
-- compiled code may keep for good, keeps no more than they hold.
local function look_at(cells, nrows)
  local names, text = {}, {}
  for i in ipairs(cells) do
    names[i] = "u" .. i
    text[#text + 1] = ("if not rawequal(u%d, V[%d]) then return false end"):format(i, i)
  end
  for i = 1, nrows do
    text[#text + 1] = ("if not rawequal(rawget(T[%d], K[%d]), V[%d]) then return false end"):format(
      i, i, #cells + i)
  end
  local source = ("local rawequal, rawget = ...\n%s\nreturn function(V, T, K)\n%s\nreturn true end")
    :format(#names > 0 and "local " .. table.concat(names, ", ") or "", table.concat(text, "\n"))
  local chunk = assert(lib.loadstring(source, "=[moth.outside]"))
  return chunk(rawequal, rawget)
end

local function join(look, cells)
  local place = {}
  for i = 1, UPVALUES do
    local name = getupvalue(look, i)
    if not name then break end
    place[name] = i
  end
  for i, cell in ipairs(cells) do
    upvaluejoin(look, place["u" .. i], cell.fn, cell.at)
    cell.fn, cell.at = look, place["u" .. i]
  end
end

--- What fn takes from outside before it runs, for `settle`; nil where the host hides `debug`.
function outside.note(fn)
  if not getupvalue or not upvaluejoin or not debug.upvalueid then return nil end
  local all = {seen = {}, names = {}, cells = {}, rows = {}}
  add_function(all, fn, 1)
  return all
end

--- What is to be looked at before a replay, now that fn has run, or nil if that is nothing: a table
-- for `find`, of which look(values, tables, keys) says whether all is as it was.
function outside.settle(all)
  if not all then return nil end
  local cells, rows = unchanged(all.cells), unchanged(all.rows)
  if #cells + #rows == 0 then return nil end
  local watch = {values = {}, tables = {}, keys = {}, list = {}}
  for i, row in ipairs(rows) do watch.tables[i], watch.keys[i] = row.table, row.key end
  watch.look = look_at(cells, #rows)
  join(watch.look, cells)
  for _, list in ipairs {cells, rows} do
    for _, row in ipairs(list) do
      watch.list[#watch.list + 1] = row
      watch.values[#watch.values + 1] = row.value
    end
  end
  return watch
end

--- The first value that is another now: its name, the value, and the one before.
function outside.find(watch)
  for _, row in ipairs(watch.list) do
    local value = now(row)
    if not rawequal(value, row.value) then return row.name, value, row.value end
  end
end

--- Lets go of upvalues, when a recording is gone.
function outside.drop(look)
  local none = false
  local function empty() return none end
  for i = 1, UPVALUES do
    local name = getupvalue(look, i)
    if not name then return end
    if name:find "^u%d" then upvaluejoin(look, i, empty, 1) end
  end
end

return outside
