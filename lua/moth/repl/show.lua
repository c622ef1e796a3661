--- show.lua -- formats a value for the prompt: tensors and modules print themselves, a plain table
-- shows nested tables up to a limit, a function of Moth shows its signature. On a terminal numbers
-- and strings have colours, unless NO_COLOR is set.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local errors = require "moth.error"
local help = require "moth.help"
local lexer = require "moth.repl.lexer"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"

local show = {}

local MAX_ENTRIES, MAX_DEPTH, MAX_ALL = 60, 12, 600 -- entries of a table, levels, entries in all
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

local of_table

-- A value inside a table that is no table: one short line.
local function simple(value)
  if type(value) == "string" then
    local text = ("%q"):format(value):gsub("\\\n", "\\n")
    return #text <= 60 and text or text:sub(1, 56) .. '..."'
  elseif lib.istensor(value) or class.typename(value) or type(value) == "function" then
    return "<" .. errors.describe(value) .. ">"
  end
  local text = tostring(value):gsub("%s*\n%s*", " ")
  return #text <= 60 and text or text:sub(1, 57) .. "..."
end

-- A value inside a table. state: the tables that contain it, and the number of entries that may
-- still be shown. room: columns for one line; indent: spaces before further lines.
local function inner(value, state, room, indent)
  if not is_plain(value) then return simple(value) end
  local n = size(value)
  if n == 0 then return "{}" end
  if state.path[value] or state.depth >= MAX_DEPTH or state.left <= 0 then
    return ("{...%d}"):format(n)
  end
  return (of_table(value, state, room, indent))
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
  return "[" .. (is_plain(key) and ("{...%d}"):format(size(key)) or simple(key)) .. "] = "
end

-- The keys of a table outside its list of n elements, sorted.
local function names_of(t, n)
  local keys = {}
  for key in pairs(t) do
    local in_list = type(key) == "number" and key >= 1 and key <= n and key % 1 == 0
    if not in_list then keys[#keys + 1] = key end
  end
  table.sort(keys, before)
  return keys
end

-- The texts of a table's entries, and true if one of them needs its own line: it has a name, or
-- several lines.
local function entries(t, state, room, indent)
  local n = #t
  local parts, keys, tall = {}, names_of(t, n), false
  local function add(prefix, value)
    state.left = state.left - 1
    local text = prefix .. inner(value, state, room - #prefix, indent)
    parts[#parts + 1], tall = text, tall or prefix ~= "" or text:find("\n", 1, true) ~= nil
  end
  for i = 1, math.min(n, MAX_ENTRIES, math.max(state.left, 1)) do add("", t[i]) end
  for i = 1, math.min(#keys, MAX_ENTRIES - #parts, math.max(state.left, 1)) do
    add(key_text(keys[i]), t[keys[i]])
  end
  local more = n + #keys - #parts
  if more > 0 then parts[#parts + 1] = ("... %d more"):format(more) end
  return parts, tall
end

-- A table in one line if it fits, else with two more spaces before each entry.
function of_table(t, state, room, indent)
  state.path[t], state.depth = true, state.depth + 1
  local deeper = indent .. "  "
  local parts, tall = entries(t, state, width() - #deeper - 1, deeper)
  state.path[t], state.depth = nil, state.depth - 1
  local line = "{" .. table.concat(parts, ", ") .. "}"
  if #line <= room and not line:find("\n", 1, true) then return line end
  if tall then
    return "{\n" .. deeper .. table.concat(parts, ",\n" .. deeper) .. ",\n" .. indent .. "}"
  end
  return "{\n" .. deeper .. show.filled(parts, ", ", deeper) .. "\n" .. indent .. "}"
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
  if is_plain(value) then
    return of_table(value, {path = {}, depth = 0, left = MAX_ALL}, width(), "")
  end
  if type(value) == "function" then
    local sig = bind.signature(value)
    if sig then return "function " .. help.line(sig) end
  end
  return tostring(value)
end

-- ---- colours ----

local RESET = "\27[0m"
local COLORS = {
  string = "\27[32m", number = "\27[36m", keyword = "\27[33m", described = "\27[35m",
  footer = "\27[90m", error = "\27[31m",
}
local WORDS = {["true"] = true, ["false"] = true, ["nil"] = true}

--- Returns true if a file descriptor shows colours: a terminal, unless NO_COLOR is set.
function show.has_colors(fd)
  if (os.getenv "NO_COLOR" or "") ~= "" or os.getenv "TERM" == "dumb" then return false end
  local found, answer = pcall(machine.is_terminal, fd)
  return found and answer
end

--- A text in a colour: "error" and others.
function show.painted(text, color) return COLORS[color] .. text .. RESET end

-- Paints the tokens of a table's text.
local function paint_table(text)
  local out, at = {}, 1
  local function put(from, to, color)
    out[#out + 1] = text:sub(at, from - 1)
    out[#out + 1] = show.painted(text:sub(from, to), color)
    at = to + 1
  end
  local tokens, i = lexer.tokens(text), 1
  while tokens[i] do
    local token = tokens[i]
    local after = token.text == "<" and text:match("^<[^<>\n]*>()", token.start)
    if after then
      put(token.start, after - 1, "described")
      while tokens[i + 1] and tokens[i + 1].start < after do i = i + 1 end
    elseif token.kind == "string" or token.kind == "number" then
      put(token.start, token.stop, token.kind)
    elseif WORDS[token.text] then
      put(token.start, token.stop, "keyword")
    end
    i = i + 1
  end
  return table.concat(out) .. text:sub(at)
end

--- The text of one value with colours.
function show.colored(value)
  local text, kind = show.value(value), type(value)
  if is_plain(value) then return paint_table(text) end
  if lib.istensor(value) then
    return (text:gsub("%[moth%.[^\n%]]*%]$", function(footer) return show.painted(footer, "footer")
      end))
  end
  if kind == "number" then return show.painted(text, "number") end
  if kind == "boolean" or kind == "nil" then return show.painted(text, "keyword") end
  return text
end

--- The text of several values: in one line if they are short, else one below the other.
-- @param colors  with colours?
function show.values(list, n, colors)
  local texts, row = {}, true
  for i = 1, n do
    texts[i] = show.value(list[i])
    if #texts[i] > width() / 2 or texts[i]:find("\n", 1, true) then row = false end
    if colors then texts[i] = show.colored(list[i]) end
  end
  return table.concat(texts, row and "\t" or "\n")
end

return show
