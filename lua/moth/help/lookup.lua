--- lookup.lua -- finds functions and classes by words of their documentation: for moth.help and
-- `?` with an unknown name.
--
--     lookup.find "learning rate warmup"
--         --> { {path = "optim.lr_scheduler.LinearLR", doc = "...", score = 9}, ... }

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local places = require "moth.help.places"

local lookup = {}

local SHOWN = 8

-- Words that carry no meaning for the search.
local COMMON = {}
for word in ([[a an and are as at be by can do does for from get how i in into is it its me my of on
    or set that the to turn use what which with]]):gmatch "%S+" do
  COMMON[word] = true
end

local ENDINGS = {}
for ending in ([[ization isation ibility ations ation izing ising ized ised izes ises ize ise ating
    ated ates ate ible able ions ion ings ing ers er ed es s e]]):gmatch "%S+" do
  ENDINGS[#ENDINGS + 1] = ending .. "$"
end

-- The stem of a word: "freeze" finds "freezing", "layers" finds "layer" and "clipping" finds
-- "clip".
local function stem(word)
  for _, ending in ipairs(#word > 3 and ENDINGS or {}) do
    local short, count = word:gsub(ending, "")
    if count > 0 and #short >= 3 then return (short:gsub("([bdgmnprt])%1$", "%1")) end
  end
  return word
end

-- Synonyms: words of questions, and the words that the documentation uses.
local SAME = {
  gpu = "cuda", move = "to", concatenate = "cat", join = "cat", multiplication = "product",
  multiply = "product", average = "mean", mean = "average", matrix = "matrices",
  disable = "off", without = "off", gradient = "gradients",
  initialize = "init", initialization = "init", he = "kaiming",
  weights = "parameters", model = "net", network = "net",
  size = "numel", length = "len", standard = "std", deviation = "std", std = "deviation",
  numpy = "tolist", array = "tolist", list = "tolist", compile = "capture", jit = "capture",
  checkpoint = "state_dict", accuracy = "argmax", crop = "narrow", repeatable = "deterministic",
  reproducibility = "deterministic", reproducible = "deterministic", print = "summary",
}

local function stems(text)
  local list, set = {}, {}
  for word in text:lower():gmatch "[%w]+" do
    local s = stem(word)
    if not COMMON[word] and not set[s] then
      set[s], list[#list + 1] = true, s
      list[s] = SAME[word] and stem(SAME[word])
    end
  end
  return list, set
end

-- The text that is searched for a value: its doc and arguments, or its help text if it has no
-- record.
local function text_of(value, path)
  local sig = type(value) == "function" and bind.signature(class.written(value))
  if not sig or sig.doc == "" then
    local fine, text = pcall(require("moth.help").text, value, path)
    return fine and text:gsub("^[^\n]*\n", ""):match "%S[^\n]*" or "", fine and text or ""
  end
  local parts = {sig.doc}
  for _, arg in ipairs(sig.args) do parts[#parts + 1] = arg.name .. " " .. arg.doc end
  return sig.doc, table.concat(parts, " ")
end

local rows -- {path, name, doc, words in the name, words in the sentence, words in all}

local function add_row(path, name, value)
  local doc, all = text_of(value, path)
  local split = path:gsub("[_.:]", " "):gsub("(%l)(%u)", "%1 %2")
  rows[#rows + 1] = {path = path, doc = doc, name = name:lower(),
    text = (split .. " " .. all):lower(),
    words = select(2, stems(split)), sentence = select(2, stems(doc)),
    all = select(2, stems(all))}
  return rows[#rows]
end

-- Adds the methods that are not functions of a namespace: x:to, net:parameters, optimizer:step.
local function read_methods()
  local moth = require "moth"
  local written, names = require("moth.tensor").written(), {}
  for name in pairs(written) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    if name:find "^%a" and not bind.is_op(name) then add_row("x:" .. name, name, written[name]) end
  end
  for path, base in pairs {["nn.Module:"] = moth.nn.Module,
                           ["optim.Optimizer:"] = moth.optim.Optimizer} do
    for _, name in ipairs(class.methods(base)) do
      if name:find "^%a" and name ~= "init" then add_row(path .. name, name, base[name]) end
    end
  end
end

-- Adds the functions and classes. An in-place variant of an op is left out.
local function read_rows()
  local seen = {}
  rows = {}
  for _, place in ipairs(places.list) do
    local space = places.space(place)
    for _, name in ipairs(places.names(place)) do
      local value = space[name]
      local kind = type(value)
      local variant = name:sub(-1) == "_" and bind.is_op(name:sub(1, -2))
      local known = seen[value]
      -- inference_mode is no_grad; its row has the name that the doc uses.
      if known and known.name ~= name:lower() and known.doc:find("torch." .. name, 1, true) then
        known.path, known.name = place.short .. "." .. name, name:lower()
      elseif (kind == "function" or kind == "table") and not known and not variant
         and not places.of(value) then
        seen[value] = add_row(place.short .. "." .. name, name, value)
      end
    end
  end
  read_methods()
end

local function add_section(name, heading, lines)
  if not heading then return end
  local text = table.concat(lines, " ")
  rows[#rows + 1] = {path = "docs/guide/" .. name, doc = heading, name = "", words = {},
    text = text:lower(), sentence = select(2, stems(heading)), all = select(2, stems(text))}
end

-- Adds the sections of the guide's pages, if the program runs in a checkout.
local function read_guide()
  local root = require("moth.error").root
  local folder = root and root .. "docs/guide/"
  local index = folder and io.open(folder .. "README.md")
  if not index then return end
  for name in index:read("*a"):gmatch "%]%((%w+%.md)%)" do
    local heading, lines = nil, {}
    for line in io.lines(folder .. name) do
      local title = line:match "^## (.*)"
      if title then
        add_section(name, heading, lines)
        heading, lines = title, {}
      else
        lines[#lines + 1] = line
      end
    end
    add_section(name, heading, lines)
  end
  index:close()
end

local function points_of(row, word)
  return row.words[word] and 5 or row.name:find(word, 1, true) and 3
    or row.sentence[word] and 3 or row.all[word] and 1
end

-- The score of a row: 100 for each word that it has, plus a bonus for words in prominent places.
local function score(row, wanted, phrase)
  local sum = 0
  for _, word in ipairs(wanted) do
    local points = points_of(row, word)
    local same = wanted[word] and points_of(row, wanted[word])
    if points or same then sum = sum + 100 + math.max(points or 0, same and same - 0.5 or 0) end
  end
  if phrase and row.text:find(phrase, 1, true) then sum = sum + 4 end
  return sum
end

--- Finds entries whose documentation has the words: all words if possible, else as many as
-- possible.
-- @param text  one or more words
-- @return a list of at most 8 tables {path, doc, score, matched}, the best first
function lookup.find(text)
  if not rows then
    read_rows()
    read_guide()
  end
  local wanted, found, best = stems(text), {}, 0
  local phrase = #wanted > 1 and text:lower()
  for _, row in ipairs(rows) do
    local points = score(row, wanted, phrase)
    local matched = math.floor(points / 100)
    if matched >= math.max(1, math.ceil(#wanted / 2)) then
      found[#found + 1] = {path = row.path, doc = row.doc, score = points, matched = matched}
      best = math.max(best, matched)
    end
  end
  table.sort(found, function(a, b)
    if a.score ~= b.score then return a.score > b.score end
    if #a.path ~= #b.path then return #a.path < #b.path end
    return a.path < b.path
  end)
  for i = #found, 1, -1 do
    if i > SHOWN or found[i].matched < best then table.remove(found, i) end
  end
  return found
end

--- The result of `find` as text for help, or nil if nothing is found.
function lookup.text(words)
  local found = lookup.find(words)
  -- A text that looks like a name must match as a whole.
  local least = words:find "%s" and 1 or #(stems(words))
  if #found == 0 or found[1].matched < least then return nil end
  local width, lines = 0, {"documented by '" .. words .. "':", ""}
  for _, row in ipairs(found) do width = math.max(width, #row.path) end
  for _, row in ipairs(found) do
    local doc = row.doc:match "^[^\n]*"
    local width_left = 98 - width - 4
    if #doc > width_left then doc = doc:sub(1, width_left - 3) .. "..." end
    lines[#lines + 1] = ("  %-" .. width .. "s  %s"):format(row.path, doc)
  end
  return table.concat(lines, "\n")
end

return lookup
