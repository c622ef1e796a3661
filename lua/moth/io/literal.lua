--- literal.lua -- parses a value of Python's source text, such as the header of a .npy file.
--
--     literal.parse "{'shape': (2, 3), 'fortran_order': False}"     {shape = {2, 3}, ...}
--
-- It knows strings, integers, True, False, None, tuples, lists, and dicts whose keys are strings.
-- Tuples and lists become lists, None becomes literal.none.

local json = require "moth.json"

local literal = {}

literal.none = setmetatable({}, {__tostring = function() return "None" end})

local MOST_DEPTH = 20

local kinds = setmetatable({}, {__mode = "k"})

--- "list" or "dict" for a table that was parsed; nil for other values.
function literal.kind(value) return kinds[value] end

local function expected(self, what)
  error({text = ("expected %s at byte %d"):format(what, self.at)}, 0)
end

local function skip(self) self.at = self.text:find("[^ \t\r\n]", self.at) or #self.text + 1 end

-- Skips blanks, and a character if it is there.
local function next_is(self, c)
  skip(self)
  if self.text:sub(self.at, self.at) ~= c then return false end
  self.at = self.at + 1
  return true
end

local ESCAPES = {["\\"] = "\\", ["'"] = "'", ['"'] = '"', n = "\n", t = "\t", r = "\r"}

local function string_of(self, quote)
  local parts = {}
  while true do
    local stop = self.text:find("[\\\n" .. quote .. "]", self.at)
    local c = stop and self.text:sub(stop, stop)
    if not stop or c == "\n" then expected(self, "the end of a string") end
    parts[#parts + 1] = self.text:sub(self.at, stop - 1)
    self.at = stop + 1
    if c == quote then return table.concat(parts) end
    local hex = self.text:match("^x(%x%x)", self.at)
    local letter = self.text:sub(self.at, self.at)
    if not hex and not ESCAPES[letter] then expected(self, "a known escape") end
    parts[#parts + 1] = hex and string.char(tonumber(hex, 16)) or ESCAPES[letter]
    self.at = self.at + (hex and 3 or 1)
  end
end

local value_of

local function list_of(self, close, depth)
  local list = {}
  kinds[list] = "list"
  while not next_is(self, close) do
    list[#list + 1] = value_of(self, depth + 1)
    if not next_is(self, ",") then
      if not next_is(self, close) then expected(self, ("',' or '%s'"):format(close)) end
      break
    end
  end
  return list
end

local function dict_of(self, depth)
  local dict = {}
  kinds[dict] = "dict"
  while not next_is(self, "}") do
    local key = value_of(self, depth + 1)
    if type(key) ~= "string" then expected(self, "a string before") end
    if dict[key] ~= nil then expected(self, "a key that was not there before") end
    if not next_is(self, ":") then expected(self, "':'") end
    dict[key] = value_of(self, depth + 1)
    if not next_is(self, ",") then
      if not next_is(self, "}") then expected(self, "',' or '}'") end
      break
    end
  end
  return dict
end

local WORDS = {True = true, False = false, None = literal.none}

function value_of(self, depth)
  if depth > MOST_DEPTH then expected(self, "less nesting") end
  skip(self)
  local c = self.text:sub(self.at, self.at)
  local word = self.text:match("^%a+", self.at)
  local number = self.text:match("^-?%d+", self.at)
  if word and WORDS[word] ~= nil then
    self.at = self.at + #word
    return WORDS[word]
  elseif number and #number <= 18 then
    self.at = self.at + #number
    if self.text:sub(self.at, self.at) == "L" then self.at = self.at + 1 end -- Python 2
    return tonumber(number)
  elseif c == "'" or c == '"' then
    self.at = self.at + 1
    return string_of(self, c)
  elseif c == "(" or c == "[" then
    self.at = self.at + 1
    return list_of(self, c == "(" and ")" or "]", depth)
  elseif c == "{" then
    self.at = self.at + 1
    return dict_of(self, depth)
  end
  expected(self, "a value")
end

--- Parses a text.
-- @return the value; or nil and what was expected
function literal.parse(text)
  local self = {text = text, at = 1}
  local fine, value = pcall(value_of, self, 1)
  if not fine then
    if type(value) ~= "table" then error(value, 0) end -- out of memory
    return nil, value.text
  end
  skip(self)
  if self.at <= #text then return nil, ("expected the end at byte %d"):format(self.at) end
  return value
end

--- Converts a text of 4 bytes a character, as NumPy stores it, to UTF-8.
-- @param swapped  the highest byte comes first
-- @return the text; or nil and the reason
function literal.from_ucs4(text, swapped)
  local parts = {}
  for i = 1, #text, 4 do
    local a, b, c, d = text:byte(i, i + 3)
    if swapped then a, b, c, d = d, c, b, a end
    local code = a + b * 2 ^ 8 + c * 2 ^ 16 + d * 2 ^ 24
    if code > 0x10ffff or code >= 0xd800 and code <= 0xdfff then
      return nil, ("%.0f is no character"):format(code)
    end
    parts[#parts + 1] = json.utf8_char(code)
  end
  return table.concat(parts)
end

return literal
