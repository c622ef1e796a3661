--- outside.lua -- what a captured step takes from outside of itself: numbers, strings, booleans and
-- tensors in its upvalues, in globals that it names, and in plain tables among these. A recording
-- holds them as constants; before a replay they are looked at, and if one is another, the step is
-- recorded anew.
--
-- What the step itself changes is left out, since a replay does not run it. Upvalues are read by a
-- function that is joined to them, so that LuaJIT compiles the look.

local errors = require "moth.error"
local lib = require "moth.lib"

local outside = {}

local getupvalue, upvaluejoin = debug and debug.getupvalue, debug and debug.upvaluejoin
local found, util = pcall(require, "jit.util")
local funck = found and util.funck

local MOST = 50         -- upvalues, of the 60 that a function may have
local MOST_ROWS = 200   -- values in tables
local MOST_DEPTH = 3    -- how deep these tables lie in others, and functions in functions

local SCALAR = {number = true, string = true, boolean = true}

local function is_watched(value)
  return SCALAR[type(value)] and value == value or lib.istensor(value)
end

local LIBRARIES = {}
for _, name in ipairs {"_G", "string", "table", "math", "io", "os", "debug", "coroutine", "package",
                       "bit", "jit", "ffi"} do
  if package.loaded[name] then LIBRARIES[package.loaded[name]] = true end
end

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
    end
  end
end

-- Names in a function's constants that are globals' too.
local function add_globals(all, fn, depth)
  local env = getfenv(fn)
  if not funck or type(env) ~= "table" then return end
  for i = 1, 200 do
    local there, name = pcall(funck, fn, -i)
    if not there or name == nil then return end
    local value = type(name) == "string" and rawget(env, name)
    if is_watched(value) and #all.rows < MOST_ROWS then
      all.rows[#all.rows + 1] = {table = env, key = name, value = value, name = name}
    elseif lib.is_plain(value) then
      add_table(all, value, name, depth)
    end
  end
end

local function add_function(all, fn, depth)
  if all.seen[fn] or depth > MOST_DEPTH or errors.is_own(fn) then return end
  all.seen[fn] = true
  for i = 1, 60 do
    local name, value = getupvalue(fn, i)
    if not name then break end
    local id = debug.upvalueid(fn, i)
    if is_watched(value) and not all.seen[id] and #all.cells < MOST then
      all.seen[id] = true
      all.cells[#all.cells + 1] = {fn = fn, at = i, value = value, name = name}
    elseif type(value) == "function" then
      add_function(all, value, depth + 1)
    elseif lib.is_plain(value) then
      add_table(all, value, name, depth)
    end
  end
  add_globals(all, fn, depth)
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
  for i = 1, 60 do
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
  local all = {seen = {}, cells = {}, rows = {}}
  add_function(all, fn, 1)
  return all
end

--- What is to be looked at before a replay, now that fn has run, or nil if that is nothing: a table
-- for `find`, of which look(values, tables, keys) says whether all is as it was.
function outside.settle(all)
  if not all then return nil end
  local cells, rows = unchanged(all.cells), unchanged(all.rows)
  if #cells + #rows == 0 then return nil end
  local seen = {values = {}, tables = {}, keys = {}, list = {}}
  for i, row in ipairs(rows) do seen.tables[i], seen.keys[i] = row.table, row.key end
  seen.look = look_at(cells, #rows)
  join(seen.look, cells)
  for _, list in ipairs {cells, rows} do
    for _, row in ipairs(list) do
      seen.list[#seen.list + 1] = row
      seen.values[#seen.values + 1] = row.value
    end
  end
  return seen
end

--- The first that is not: its name, its value now, and the one before.
function outside.find(seen)
  for _, row in ipairs(seen.list) do
    local value = now(row)
    if not rawequal(value, row.value) then return row.name, value, row.value end
  end
end

--- Lets go of upvalues, when a recording is gone.
function outside.drop(look)
  local none = false
  local function empty() return none end
  for i = 1, MOST do
    local name = getupvalue(look, i)
    if not name then return end
    if name:find "^u%d" then upvaluejoin(look, i, empty, 1) end
  end
end

return outside
