--- text.lua -- prepares the text of a script for a sandbox: each `..` is checked.
--
-- The operator `..` creates strings without a call, so no wrapper sees their size: `a .. a .. a`
-- may ask for a gigabyte in one instruction. So `a .. b` becomes `a .. CAT .. b`, where CAT is a
-- table with a metamethod, which library.lua defines. Lines do not change. The field __concat of
-- the script's own metatables is renamed, so that these metamethods get both operands as written.

local text = {}

--- The name of the table between two operands, which scripts may not use.
text.CAT = "__moth_concat"
--- The name of the field __concat in a script's metatables.
text.FIELD = "__moth_concat_field"

-- Not as methods: s:find() is a function of the sandbox during its calls.
local find, sub, match, gsub = string.find, string.sub, string.match, string.gsub

-- The position after a string in quotes; after a backslash any character follows, and \r\n is one.
local function after_quote(s, at)
  local quote = sub(s, at, at)
  at = at + 1
  while true do
    local stop = find(s, "[\\" .. quote .. "]", at)
    if not stop then return #s + 1 end
    if sub(s, stop, stop) == quote then return stop + 1 end
    at = stop + 2
    if find(s, "^\r\n", stop + 1) or find(s, "^\n\r", stop + 1) then at = stop + 3 end
  end
end

local function after_long(s, at, level)
  local _, stop = find(s, "]" .. level .. "]", at, true)
  return (stop or #s) + 1
end

-- Digits, letters and dots, and a sign after an exponent. Like LuaJIT's lexer.
local function after_number(s, at)
  local exponent = find(s, "^0[xX]", at) and "[pP]" or "[eE]"
  while true do
    local stop = match(s, "^[%w_.\128-\255]()", at)
    if not stop then return at end
    if find(s, "^" .. exponent .. "[+-]", at) then stop = stop + 1 end
    at = stop
  end
end

-- Kind of the token at `at`, and the position after it.
local function token(s, at)
  local comment = find(s, "^%-%-", at)
  local from = comment and at + 2 or at
  local level = match(s, "^%[(=*)%[", from)
  if level then return comment and "comment" or "string", after_long(s, from, level) end
  if comment then return "comment", find(s, "[\r\n]", at) or #s + 1 end
  local stop = match(s, "^[%a_\128-\255][%w_\128-\255]*()", at)
  if stop then return "name", stop end
  if find(s, "^%.?%d", at) then return "number", after_number(s, at) end
  if find(s, "^[\"']", at) then return "string", after_quote(s, at) end
  return "op", match(s, "^%.%.?%.?()", at) or at + 1
end

--- The text with a check at each `..`; nil and a message if it uses the reserved name.
-- @return a text whose chunk gets CAT as its argument and returns the function of the script
function text.prepare(s)
  s = gsub(gsub(s, "^\239\187\191", ""), "^#[^\r\n]*", "")
  local out, n, at, copied = {"local " .. text.CAT .. "=...;return function(...) "}, 1, 1, 1
  local function replace(from, to, new)
    out[n + 1], out[n + 2] = sub(s, copied, from - 1), new
    n, copied = n + 2, to
  end
  while true do
    at = match(s, "^%s*()", at)
    if at > #s then break end
    local kind, stop = token(s, at)
    local what = stop - at < 40 and sub(s, at, stop - 1) or ""
    if kind == "op" and what == ".." then
      replace(at, stop, ".." .. text.CAT .. "..")
    elseif kind == "name" and what == text.CAT then
      return nil, "the name '" .. text.CAT .. "' is reserved"
    elseif kind == "name" and what == "__concat" or kind == "string"
        and (what == "'__concat'" or what == '"__concat"') then
      replace(at, stop, (gsub(what, "__concat", text.FIELD)))
    end
    at = stop
  end
  out[n + 1] = sub(s, copied)
  out[n + 2] = "\nend"
  return table.concat(out)
end

return text
