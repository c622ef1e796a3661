--- json.lua -- a small, strict JSON reader and writer, for checkpoints and configuration files.
--
--     json.decode('{"lr": 0.1, "steps": [1, 2]}').steps[2]     2
--     json.string 'a "b"'                                      "a \"b\""
--
-- The reader accepts exactly RFC 8259: valid UTF-8, no comments, no trailing commas, no duplicate
-- keys, nesting up to a limit. It never runs text as code. Lists and objects become plain tables,
-- null becomes `json.null`. json.encode writes a value; writers of large texts build them from
-- json.string and json.number.

local concat, format = table.concat, string.format
local byte, char, find, sub = string.byte, string.char, string.find, string.sub

local json = {}

--- JSON's null, which a Lua table cannot hold.
json.null = setmetatable({}, {__tostring = function() return "null" end})

json.max_depth = 1000

-- ---- UTF-8 ----

-- The length of a sequence by its first byte, and the range of the second byte if it is narrower
-- than 80..bf.
local function sequence(s, i)
  local a, b = byte(s, i, i + 1)
  local n = a < 0x80 and 1 or a >= 0xc2 and a <= 0xdf and 2 or a >= 0xe0 and a <= 0xef and 3
    or a >= 0xf0 and a <= 0xf4 and 4 or nil
  if not n or i + n - 1 > #s then return nil end
  if n == 1 then return 1 end
  local low = a == 0xe0 and 0xa0 or a == 0xf0 and 0x90 or 0x80
  local high = a == 0xed and 0x9f or a == 0xf4 and 0x8f or 0xbf
  if b < low or b > high then return nil end
  for k = i + 2, i + n - 1 do
    local c = byte(s, k)
    if c < 0x80 or c > 0xbf then return nil end
  end
  return n
end

--- Position of the first byte of a string that is not well-formed UTF-8, or nil.
function json.bad_utf8(s)
  local i = find(s, "[\128-\255]")
  while i do
    local n = sequence(s, i)
    if not n then return i end
    i = find(s, "[\128-\255]", i + n)
  end
  return nil
end

--- A code point as UTF-8.
local function utf8_char(code)
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xc0 + code / 64, 0x80 + code % 64) end
  if code < 0x10000 then
    return char(0xe0 + code / 4096, 0x80 + code / 64 % 64, 0x80 + code % 64)
  end
  return char(0xf0 + code / 262144, 0x80 + code / 4096 % 64, 0x80 + code / 64 % 64,
    0x80 + code % 64)
end

json.utf8_char = utf8_char

-- ---- writing ----

local escapes = {['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t"}

local function escape(c) return escapes[c] or format("\\u%04x", byte(c)) end

--- A string as JSON, quotes included. The string must be valid UTF-8; NUL bytes are fine.
function json.string(s) return '"' .. s:gsub('[%c"\\]', escape) .. '"' end

--- A finite number as JSON, with all its digits.
function json.number(x) return format("%.17g", x) end

-- The shortest text that reads as the same number; nil for NaN and infinity.
local function number_text(x)
  if x - x ~= 0 then return nil end
  if x % 1 == 0 and x > -2 ^ 53 and x < 2 ^ 53 then return format("%d", x) end
  for digits = 15, 17 do
    local text = format("%." .. digits .. "g", x)
    if tonumber(text) == x then return text end
  end
end

local function refuse(path, what)
  error({refused = format("%s cannot be written as JSON%s", what,
    path == "" and "" or format(" (at '%s')", path))}, 0)
end

local write

local function write_object(value, path, depth)
  local keys, parts = {}, {}
  for key in pairs(value) do
    if type(key) ~= "string" then refuse(path, "a table with the key " .. tostring(key)) end
    if json.bad_utf8(key) then refuse(path, "a key that is not UTF-8") end
    keys[#keys + 1] = key
  end
  table.sort(keys)
  for i, key in ipairs(keys) do
    local below = path == "" and key or path .. "." .. key
    parts[i] = json.string(key) .. ":" .. write(value[key], below, depth + 1)
  end
  return "{" .. concat(parts, ",") .. "}"
end

local function write_table(value, path, depth)
  if depth > json.max_depth then refuse("", "a table of more levels, or in itself,") end
  local n = #value
  if n == 0 then return write_object(value, path, depth) end
  local count, parts = 0, {}
  for _ in pairs(value) do count = count + 1 end
  if count ~= n then refuse(path, "a table with names and a list") end
  for i = 1, n do parts[i] = write(value[i], format("%s[%d]", path, i), depth + 1) end
  return "[" .. concat(parts, ",") .. "]"
end

function write(value, path, depth)
  local kind = type(value)
  if kind == "string" then
    if json.bad_utf8(value) then refuse(path, "a string that is not UTF-8") end
    return json.string(value)
  elseif kind == "number" then
    return number_text(value) or refuse(path, tostring(value))
  elseif kind == "boolean" then
    return tostring(value)
  elseif value == json.null then
    return "null"
  elseif kind == "table" and getmetatable(value) == nil then
    return write_table(value, path, depth)
  end
  local lib = require "moth.binding.lib"
  if lib.istensor(value) then
    return write(value:dim() == 0 and value:item() or value:tolist(), path, depth)
  end
  local digits = kind == "cdata" and tostring(value):match "^(-?%d+)U?LL$"
  return digits or refuse(path, require("moth.error").describe(value))
end

--- A value as JSON, on one line: tables of strings, finite numbers, booleans, int64s, json.null and
-- tensors (as nested lists). Keys are sorted. An empty table is an object.
-- @return the text; or nil and a message
function json.encode(value)
  local fine, text = pcall(write, value, "", 1)
  if fine then return text end
  if type(text) ~= "table" then error(text, 0) end -- out of memory
  return nil, text.refused
end

-- ---- reading ----
-- A reader is {text, depth}. Every function takes a position, and returns the value and the
-- position after it. It raises a table {position, what was expected}.

local function expected(position, what) error({position = position, what = what}, 0) end

local function skip(text, i) return find(text, "[^ \t\r\n]", i) or #text + 1 end

local unescaped = {['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n",
  r = "\r", t = "\t"}

-- The character of \uXXXX and the position after it; XXXX begins at i.
local function unicode_escape(text, i)
  local hex = sub(text, i, i + 3)
  if not find(hex, "^%x%x%x%x$") then expected(i, "four hexadecimal digits") end
  local code = tonumber(hex, 16)
  if code < 0xd800 or code > 0xdfff then return utf8_char(code), i + 4 end
  local low = code <= 0xdbff and text:match("^\\u(%x%x%x%x)", i + 4)
  low = low and tonumber(low, 16)
  if not low or low < 0xdc00 or low > 0xdfff then expected(i, "a pair of surrogates") end
  return utf8_char(0x10000 + (code - 0xd800) * 1024 + low - 0xdc00), i + 10
end

local function read_string(text, i)
  local parts, n = {}, 0
  local from = i + 1
  while true do
    local stop = find(text, '[%c"\\]', from)
    if not stop then expected(#text + 1, "the end of a string") end
    n = n + 1
    parts[n] = sub(text, from, stop - 1)
    local c = sub(text, stop, stop)
    if c == '"' then return concat(parts), stop + 1 end
    if c == "\127" then -- a control character to Lua, an ordinary one to JSON
      n, from = n + 1, stop + 1
      parts[n] = c
    elseif c == "\\" then
      local e = sub(text, stop + 1, stop + 1)
      n = n + 1
      if e == "u" then
        parts[n], from = unicode_escape(text, stop + 2)
      else
        parts[n], from = unescaped[e] or expected(stop, "a valid escape"), stop + 2
      end
    else
      expected(stop, "no control character in a string")
    end
  end
end

local function read_number(text, i)
  local stop = select(2, find(text, "^-?%d+%.?%d*[eE]?[+-]?%d*", i))
  local word = stop and sub(text, i, stop)
  local whole, rest = (word or ""):match("^-?(%d+)(.*)$")
  local fits = whole and (whole == "0" or sub(whole, 1, 1) ~= "0") and
    (rest == "" or find(rest, "^%.%d+$") or find(rest, "^[eE][+-]?%d+$")
      or find(rest, "^%.%d+[eE][+-]?%d+$"))
  local value = fits and tonumber(word)
  if not value or value - value ~= 0 then expected(i, "a value") end
  return value, stop + 1
end

local read_value

local function read_list(text, i, depth)
  local list, n = {}, 0
  i = skip(text, i + 1)
  if sub(text, i, i) == "]" then return list, i + 1 end
  while true do
    n = n + 1
    list[n], i = read_value(text, i, depth)
    i = skip(text, i)
    local c = sub(text, i, i)
    if c == "]" then return list, i + 1 end
    if c ~= "," then expected(i, "',' or ']'") end
    i = skip(text, i + 1)
  end
end

local function read_object(text, i, depth)
  local object = {}
  i = skip(text, i + 1)
  if sub(text, i, i) == "}" then return object, i + 1 end
  while true do
    if sub(text, i, i) ~= '"' then expected(i, "a key") end
    local key, after = read_string(text, i)
    if object[key] ~= nil then expected(i, "a key that was not there before") end
    after = skip(text, after)
    if sub(text, after, after) ~= ":" then expected(after, "':'") end
    object[key], i = read_value(text, skip(text, after + 1), depth)
    i = skip(text, i)
    local c = sub(text, i, i)
    if c == "}" then return object, i + 1 end
    if c ~= "," then expected(i, "',' or '}'") end
    i = skip(text, i + 1)
  end
end

local words = {t = {"true", true}, f = {"false", false}, n = {"null", json.null}}

function read_value(text, i, depth)
  local c = sub(text, i, i)
  if c == '"' then return read_string(text, i) end
  if c == "{" or c == "[" then
    if depth == json.max_depth then
      expected(i, format("at most %d levels of nesting", json.max_depth))
    end
    if c == "{" then return read_object(text, i, depth + 1) end
    return read_list(text, i, depth + 1)
  end
  local word = words[c]
  if not word then return read_number(text, i) end
  if sub(text, i, i + #word[1] - 1) ~= word[1] then expected(i, "a value") end
  return word[2], i + #word[1]
end

--- Reads a JSON text.
-- @param text  a string
-- @return the value: table, string, number, boolean or json.null; or nil and a message, such as
-- "expected ':' at byte 12". Never raises for bad text.
function json.decode(text)
  local bad = json.bad_utf8(text)
  if bad then return nil, format("invalid UTF-8 at byte %d", bad) end
  local fine, value, after = pcall(read_value, text, skip(text, 1), 0)
  if not fine then
    if type(value) ~= "table" then error(value, 0) end -- out of memory
    return nil, format("expected %s at byte %d", value.what, value.position)
  end
  after = skip(text, after)
  if after <= #text then return nil, format("expected the end at byte %d", after) end
  return value
end

return json
