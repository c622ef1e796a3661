--- outer_compare.lua -- generated functions that compare the values that a captured step reads from
-- outside (outer_values.lua) with the recorded ones. They have no loops, so LuaJIT compiles them.
-- They read upvalues by debug.upvaluejoin, and fields by name.
--
-- Compiled code may keep such a function forever. So values and tables are arguments: the function
-- keeps only its joined upvalues alive, until `drop`.

local lib = require "moth.binding.lib"

local look = {}

local UPVALUES = 60 -- LuaJIT's limit for a function
look.UPVALUES = UPVALUES
local CELLS, ROWS = 50, 100 -- per function; LuaJIT limits the length of traces
local STRAIGHT = 300 -- rows; more of the kind "raw" are compared in a loop

--- Returns true if a table has exactly n entries.
local function holds(t, n)
  local key
  for _ = 1, n do
    key = next(t, key)
    if key == nil then return false end
  end
  return next(t, key) == nil
end
look.holds = holds

--- Returns true if two values are equal. NaN equals NaN here.
local function equal(a, b)
  return rawequal(a, b) or type(a) == "number" and type(b) == "number" and a ~= a and b ~= b
end
look.equal = equal

--- Returns true if two values have equal contents, except that tensors may differ.
local function same_shape(a, b, depth)
  if equal(a, b) then return true end
  if lib.istensor(a) and lib.istensor(b) then return true end
  if not lib.is_plain(a) or not lib.is_plain(b) or depth > 20 then return false end
  for key, value in next, a do
    if not same_shape(value, rawget(b, key), depth + 1) then return false end
  end
  for key in next, b do
    if rawget(a, key) == nil then return false end
  end
  return true
end
look.same_shape = same_shape

local function key_text(key, i)
  if type(key) == "string" and #key < 100 then return ("%q"):format(key) end
  if type(key) == "number" and key == math.floor(key) and math.abs(key) < 2 ^ 31 then
    return ("%d"):format(key)
  end
  return ("K[%d]"):format(i)
end

-- The code of a row's comparison; i is its number.
local text_of = {
  raw = function(row, i) return ("rawget(T[%d], %s)"):format(i, key_text(row.key, i)) end,
  index = function(row, i) return ("T[%d][%s]"):format(i, key_text(row.key, i)) end,
  meta = function(_, i) return ("getmetatable(T[%d])"):format(i) end,
  count = function(_, i) return ("holds(T[%d], V[%d])"):format(i, i) end,
}

local function compare(text, value, i, kind)
  local stale = " then return false end"
  if kind == "count" then return ("if not %s%s"):format(text, stale) end
  if value == nil then return ("if %s ~= nil%s"):format(text, stale) end
  if type(value) == "number" and value ~= value then -- NaN
    return ("do local v = %s if v == v%s end"):format(text, stale)
  end
  local line = ("do local v = %s if not rawequal(v, V[%d])%s end"):format(text, i, stale)
  if type(value) == "number" and value == 0 then -- 0 and -0 differ
    line = line .. (" if 1 / %s ~= 1 / V[%d]%s"):format(text, i, stale)
  end
  return line
end

local function build(names, lines)
  local source = ("local rawequal, rawget, getmetatable, holds = ...\n%s\n"
    .. "return function(V, T, K)\n%s\nreturn true end"):format(
    #names > 0 and "local " .. table.concat(names, ", ") or "", table.concat(lines, "\n"))
  local chunk = assert(lib.loadstring(source, "=[moth.look]"))
  return chunk(rawequal, rawget, getmetatable, holds)
end

local function join(f, cells, first, last)
  local place = {}
  for i = 1, UPVALUES do
    local name = debug.getupvalue(f, i)
    if not name then break end
    place[name] = i
  end
  for i = first, last do
    local cell, at = cells[i], place["u" .. i]
    debug.upvaluejoin(f, at, cell.fn, cell.at)
    cell.fn, cell.at = f, at
  end
end

local function add_cells(list, cells)
  for first = 1, #cells, CELLS do
    local last = math.min(first + CELLS - 1, #cells)
    local names, lines = {}, {}
    for i = first, last do
      names[#names + 1] = "u" .. i
      lines[#lines + 1] = compare("u" .. i, cells[i].value, i)
    end
    local f = build(names, lines)
    join(f, cells, first, last)
    list[#list + 1] = f
  end
end

local function in_loop(row)
  local value = row.value
  return row.kind == "raw" and (type(value) ~= "number" or value ~= 0 and value == value)
end

local function add_rows(list, rows, from)
  local many, lines, rest = #rows > STRAIGHT, {}, {}
  for i, row in ipairs(rows) do
    local n = from + i
    if many and in_loop(row) then
      rest[#rest + 1] = n
    else
      lines[#lines + 1] = compare(text_of[row.kind](row, n), row.value, n, row.kind)
    end
    if #lines == ROWS then
      list[#list + 1], lines = build({}, lines), {}
    end
  end
  if #lines > 0 then list[#list + 1] = build({}, lines) end
  if #rest == 0 then return end
  list[#list + 1] = function(V, T, K)
    for k = 1, #rest do
      local i = rest[k]
      if not rawequal(rawget(T[i], K[i]), V[i]) then return false end
    end
    return true
  end
end

--- Makes a function look(V, T, K) that returns true if all values are unchanged, and its lists.
-- @param cells  variables: {fn, at, value}; afterwards they name the upvalue of the generated
-- function
-- @param rows   entries of tables: {kind = "raw", "index", "meta" or "count", table, key, value}
function look.make(cells, rows)
  local V, T, K, list = {}, {}, {}, {}
  for i, cell in ipairs(cells) do V[i] = cell.value end
  for i, row in ipairs(rows) do
    local n = #cells + i
    V[n], T[n], K[n] = row.value, row.table, row.key
  end
  add_cells(list, cells)
  add_rows(list, rows, #cells)
  local f = list[1] or function() return true end
  for i = 2, #list do
    local before, after = f, list[i]
    f = function(v, t, k) return before(v, t, k) and after(v, t, k) end
  end
  return {look = f, V = V, T = T, K = K, joined = list}
end

--- Releases upvalues after a recording was freed.
function look.drop(joined)
  local none = false
  local function empty() return none end
  for _, f in ipairs(joined) do
    for i = 1, UPVALUES do
      local name = debug.getupvalue(f, i)
      if not name then break end
      if name:find "^u%d" then debug.upvaluejoin(f, i, empty, 1) end
    end
  end
end

return look
