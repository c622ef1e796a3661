--- lexer.lua -- splits Lua text into tokens, also incomplete text: the prompt needs the positions
-- of names, strings and brackets.

local lexer = {}

local KEYWORDS = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat
    return then true until while]]):gmatch("%a+") do
  KEYWORDS[word] = true
end

--- The keywords of Lua, as a set.
lexer.keywords = KEYWORDS

-- The last byte of the string whose opening quote is at `at`, and true if it is closed.
local function end_of_string(text, at)
  local quote = text:sub(at, at)
  local i = at + 1
  while i <= #text do
    local c = text:sub(i, i)
    if c == quote then return i, true end
    if c == "\n" then return i - 1, false end
    i = i + (c == "\\" and 2 or 1)
  end
  return #text, false
end

-- Like end_of_string for [[...]] with this number of equals signs.
local function end_of_long(text, at, level)
  local _, stop = text:find("]" .. level .. "]", at, true)
  return stop or #text, stop ~= nil
end

-- Kind and last byte of the token at `at`, and true if it is complete.
local function token_at(text, at)
  local dashes = text:match("^%-%-()", at)
  local level = text:match("^%[(=*)%[", dashes or at)
  if level then
    local stop, closed = end_of_long(text, dashes or at, level)
    return dashes and "comment" or "string", stop, closed
  elseif dashes then
    local stop = (text:find("\n", at, true) or #text + 1) - 1
    return "comment", stop, stop < #text
  end
  local stop = text:match("^[%a_][%w_]*()", at)
  if stop then
    return KEYWORDS[text:sub(at, stop - 1)] and "keyword" or "name", stop - 1, true
  end
  stop = text:match("^%.?%d[%w]*%.?[%w]*()", at)
  if stop then return "number", stop - 1, true end
  if text:find("^[\"']", at) then
    local last, closed = end_of_string(text, at)
    return "string", last, closed
  end
  stop = text:match("^%.%.?%.?()", at) or text:match("^[=~<>]=()", at) or at + 1
  return "op", stop - 1, true
end

--- The tokens of a text in order: {kind, text, start, stop, closed}. Kinds are name, keyword,
-- number, string, comment and op; an unclosed string or comment has closed = false.
function lexer.tokens(text)
  local list = {}
  local at = text:match("^%s*()")
  while at <= #text do
    local kind, stop, closed = token_at(text, at)
    list[#list + 1] = {kind = kind, text = text:sub(at, stop), start = at, stop = stop,
                       closed = closed}
    at = text:match("^%s*()", stop + 1)
  end
  return list
end

--- The tokens without comments.
function lexer.code(text)
  local list = {}
  for _, token in ipairs(lexer.tokens(text)) do
    if token.kind ~= "comment" then list[#list + 1] = token end
  end
  return list
end

local OPENS = {["function"] = 1, ["do"] = 1, ["if"] = 1, ["repeat"] = 1, ["("] = 1, ["{"] = 1,
               ["["] = 1, ["end"] = -1, ["until"] = -1, [")"] = -1, ["}"] = -1, ["]"] = -1}

-- The byte after which the values of `local a, b` are missing, or nil.
local function lacks_value(tokens, at)
  local name = tokens[at]
  while name and name.kind == "name" do
    local after = tokens[at + 1]
    if not after or (after.text ~= "=" and after.text ~= ",") then return name.stop end
    if after.text == "=" then return nil end
    at = at + 2
    name = tokens[at]
  end
end

--- Replaces the outermost `local x = 1` of a text by `x = 1`, so that the next input can use x.
-- Lines and columns do not change.
function lexer.globalized(text)
  local tokens, depth, edits = lexer.code(text), 0, {}
  for i, token in ipairs(tokens) do
    local mark = (token.kind == "keyword" or token.kind == "op") and token.text
    depth = depth + (OPENS[mark] or 0)
    if mark == "local" and depth == 0 then
      edits[#edits + 1] = {token.start, token.stop, "     "}
      local stop = lacks_value(tokens, i + 1)
      if stop then edits[#edits + 1] = {stop + 1, stop, " = nil"} end
    end
  end
  for i = #edits, 1, -1 do
    local from, to, new = unpack(edits[i])
    text = text:sub(1, from - 1) .. new .. text:sub(to + 1)
  end
  return text
end

--- The texts before and after the last outermost `;` of a text; nil if there is none.
function lexer.last_piece(text)
  local tokens, depth = lexer.code(text), 0
  for i = #tokens, 1, -1 do
    local token = tokens[i]
    local mark = (token.kind == "keyword" or token.kind == "op") and token.text
    depth = depth + (OPENS[mark] or 0)
    if mark == ";" and depth == 0 and i < #tokens then
      return text:sub(1, token.start - 1), text:sub(token.stop + 1)
    end
  end
end

return lexer
