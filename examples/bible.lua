-- The text of examples 05, 06, 12 and 17: the King James Bible as symbols, split into training and
-- validation text, with random windows of each; or as a list of verses. The text is in the Debian
-- package bible-kjv.

local moth = require "moth"

local bible = {}

-- One verse a line, without its reference (`Ge1:1 In the beginning ...`).
local function verses()
  local pipe = io.popen("bible -f gen1:1-rev22:21 2>/dev/null")
  local text = pipe and pipe:read("*a") or ""
  if pipe then pipe:close() end
  return #text > 4e6 and text:gsub("\n%s*\n", "\n"):gsub("([^\n]*)\n", function(verse)
    local words = verse:match("^%S+%s+(.*)$")
    return words and words .. "\n" or ""
  end)
end

-- Used without the package: generated sentences of a few words, much easier to predict.
local function stand_in()
  print "The program `bible` was not found; the Debian package bible-kjv has the text"
  print "(apt-get install bible-kjv). Learning made-up sentences instead."
  local who, does = {"the king", "a man", "his son", "the people"}, {"went", "said", "came", "saw"}
  local where = {"unto the city", "in the land", "of the house", "before him"}
  local lines = {}
  for i = 1, 6000 do
    lines[i] = who[math.random(4)] .. " " .. does[math.random(4)] .. " " .. where[math.random(4)]
  end
  return table.concat(lines, ".\n") .. ".\n"
end

--- Reads the text. @return {symbols, count, text, real, train, valid}: `symbols` is a string of all
-- characters in the order of their bytes; train and valid are i64 tensors of positions in it.
function bible.read()
  local text = verses()
  local real = text and true or false
  text = text or stand_in()
  local codes, seen = moth.frombuffer(text, {dtype = moth.uint8}):long(), {}
  local place = moth.zeros(256, {dtype = moth.int64})
  for byte = 0, 255 do
    if text:find(string.char(byte), 1, true) then
      seen[#seen + 1] = string.char(byte)
      place[byte + 1] = #seen
    end
  end
  local ids = place:index_select(1, codes + 1)
  local cut = math.floor(#text * 0.9)
  return {symbols = table.concat(seen), count = #seen, text = text, real = real,
          train = ids[{{1, cut}}], valid = ids[{{cut + 1, #text}}]}
end

local LETTERS = "abcdefghijklmnopqrstuvwxyz"

--- Lists the verses.
-- @return a list of {book = 1, chapter = "Ge1", text = "In the beginning ..."}; and true, or false
-- without the package: then they are sentences whose words depend on the book
function bible.verses()
  local pipe = io.popen("bible -f gen1:1-rev22:21 2>/dev/null")
  local list, last, book = {}, nil, 0
  for line in pipe:lines() do -- Ge1:1 In the beginning God created the heaven and the earth.
    local name, chapter, text = line:match "^(%d?%a+)(%d+):%d+%s+(.*)$"
    if name and name ~= last then last, book = name, book + 1 end
    if name then list[#list + 1] = {book = book, chapter = name .. chapter, text = text} end
  end
  pipe:close()
  if #list > 0 then return list, true end
  print "The program `bible` was not found; the Debian package bible-kjv has the text"
  print "(apt-get install bible-kjv). Learning made-up sentences instead."
  for i = 1, 66 * 50 do
    local words, at = {}, math.ceil(i / 50)
    local third = math.ceil(at / 3)
    for k = 1, 8 do words[k] = LETTERS:sub(third, third) .. LETTERS:sub(k, at % 3 + k) end
    list[i] = {book = at, chapter = tostring(math.ceil(i / 5)), text = table.concat(words, " a ")}
  end
  return list, false
end

--- n windows of `part` at random positions: the symbols, and the next symbol after each. Both are
-- (n, length).
function bible.windows(part, n, length)
  local first = moth.randint(1, #part - length, {n, 1})
  local at = first + moth.arange(length)
  return part[at], part[at + 1]
end

--- The text of a list of positions.
function bible.spell(symbols, ids)
  local letters = {}
  for i, id in ipairs(ids) do letters[i] = symbols:sub(id, id) end
  return table.concat(letters)
end

return bible
