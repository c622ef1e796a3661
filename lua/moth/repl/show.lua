--- show.lua -- formats a value for the prompt: tensors and modules print themselves, a plain table
-- shows nested tables up to a limit, a function of Moth shows its signature.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local errors = require "moth.error"
local help = require "moth.help"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"

local show = {}

local MAX_ENTRIES, MAX_DEPTH = 60, 4 -- entries of a table, levels of nested tables
local WIDEST = 200          -- columns: longer lines are hard to read

-- The width of the terminal.
local function width()
  return math.min(machine.columns() or 80, WIDEST)
end

-- ---- tables ----

local is_plain = lib.is_plain

local function size(t)
  local n = 0
  for _ in pairs(t) do n = n + 1 end
  return n
end

local entries

-- A value inside a table: one short line. path: the tables that contain it; nil: nested tables are
-- not opened.
local function inner(value, path)
  if type(value) == "string" then
    local text = ("%q"):format(value):gsub("\\\n", "\\n")
    return #text <= 60 and text or text:sub(1, 56) .. '..."'
  elseif is_plain(value) then
    local n = size(value)
    if n == 0 then return "{}" end
    if path and #path < MAX_DEPTH and not path[value] then
      local parts = entries(value, path)
      local text = "{" .. table.concat(parts, ", ") .. "}"
      if #text <= width() - 2 * #path and not text:find("\n", 1, true) then return text end
    end
    return ("{...%d}"):format(n)
  elseif lib.istensor(value) or class.typename(value) or type(value) == "function" then
    return "<" .. errors.describe(value) .. ">"
  end
  local text = tostring(value):gsub("%s*\n%s*", " ")
  return #text <= 60 and text or text:sub(1, 57) .. "..."
end

-- Sorts strings alphabetically, other keys by type.
local function before(a, b)
  local x, y = type(a), type(b)
  if x ~= y then return x < y end
  if x == "string" or x == "number" then return a < b end
  return tostring(a) < tostring(b)
end

local function key_text(key)
  if type(key) == "string" and key:find("^[%a_][%w_]*$") then return key .. " = " end
  return "[" .. inner(key) .. "] = "
end

-- The texts of a table's entries, and true if some entries have names.
function entries(t, path)
  local parts, keys, n = {}, {}, #t
  path = {t, unpack(path)}
  for _, outer in ipairs(path) do path[outer] = true end
  for i = 1, math.min(n, MAX_ENTRIES) do parts[i] = inner(t[i], path) end
  for key in pairs(t) do
    local in_list = type(key) == "number" and key >= 1 and key <= n and key % 1 == 0
    if not in_list then keys[#keys + 1] = key end
  end
  table.sort(keys, before)
  for i = 1, math.min(#keys, MAX_ENTRIES - #parts) do
    parts[#parts + 1] = key_text(keys[i]) .. inner(t[keys[i]], path)
  end
  local more = n + #keys - #parts
  if more > 0 then parts[#parts + 1] = ("... %d more"):format(more) end
  return parts, #keys > 0
end

local function of_table(t)
  local parts, named = entries(t, {})
  local line = "{" .. table.concat(parts, ", ") .. "}"
  if #line <= width() then return line end
  if named then return "{\n  " .. table.concat(parts, ",\n  ") .. ",\n}" end
  return "{\n  " .. show.filled(parts, ", ", "  ") .. "\n}"
end

-- ---- any value ----

--- Joins words into lines of the terminal's width.
-- @param separator  the text between two words
-- @param indent     the text before each line but the first
function show.filled(words, separator, indent)
  local lines, line = {}, ""
  for i, word in ipairs(words) do
    local last = i == #words and "" or separator
    local least = #word + #(last:gsub("%s+$", ""))
    if line ~= "" and #line + least + #indent > width() then
      lines[#lines + 1] = (line:gsub("%s+$", ""))
      line = ""
    end
    line = line .. word .. last
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n" .. indent)
end

--- Arranges words in columns, read downwards, for TAB.
function show.columns(words, columns)
  local widest = 0
  for _, word in ipairs(words) do widest = math.max(widest, #word) end
  local across = math.max(1, math.floor(((columns or width()) + 1) / (widest + 2)))
  local down = math.ceil(#words / across)
  local lines = {}
  for row = 1, down do
    local line = {}
    for column = 0, across - 1 do
      local word = words[column * down + row]
      if word then line[#line + 1] = word .. (" "):rep(widest + 2 - #word) end
    end
    lines[row] = table.concat(line):gsub("%s+$", "")
  end
  return table.concat(lines, "\n")
end

--- The text of one value.
function show.value(value)
  if is_plain(value) then return of_table(value) end
  if type(value) == "function" then
    local sig = bind.signature(value)
    if sig then return "function " .. help.line(sig) end
  end
  return tostring(value)
end

--- The text of several values: in one line if they are short, else one below the other.
function show.values(list, n)
  local texts, row = {}, true
  for i = 1, n do
    texts[i] = show.value(list[i])
    if #texts[i] > width() / 2 or texts[i]:find("\n", 1, true) then row = false end
  end
  return table.concat(texts, row and "\t" or "\n")
end

return show
