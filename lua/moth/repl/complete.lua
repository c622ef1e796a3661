--- complete.lua -- the candidates of TAB: names in scope, fields and methods, the arguments of the
-- call at the cursor, the choices of an argument, file names in other strings.
--
--     x:su                       sum
--     nn.Conv2d{1, 10, ker       kernel_size =
--     {reduction = "m            mean"
--
-- Completion only looks up names, fields and positions; it calls nothing. A table with a metatable
-- lists the names that it loads on demand in `__names`.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local lexer = require "moth.repl.lexer"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"

local complete = {}

-- ---- which names a value has ----

local function add_keys(set, t, wanted)
  for key, value in pairs(t) do
    if type(key) == "string" and (not wanted or type(value) == wanted) then set[key] = true end
  end
end

local function add_list(set, list)
  for _, name in ipairs(list) do set[name] = true end
end

-- The names that a table loads on demand by its metatables.
local function add_inherited(set, t, wanted)
  local meta = getmetatable(t)
  for _ = 1, 8 do
    if type(meta) ~= "table" then return end
    local names = rawget(meta, "__names")
    if names then add_list(set, names(t)) end
    local index = rawget(meta, "__index")
    if type(index) ~= "table" then return end
    add_keys(set, index, wanted)
    meta = getmetatable(index)
  end
end

--- The names that may follow a value and a `.` or a `:`, as a set.
-- @param mark  "." or ":"; after ":" only functions
function complete.names(value, mark)
  local set, wanted = {}, mark == ":" and "function" or nil
  if lib.istensor(value) then
    add_list(set, require("moth.tensor").names(mark == ":"))
  elseif type(value) == "string" then
    add_keys(set, string)
  elseif type(value) == "table" then
    add_keys(set, value, wanted)
    if class.typename(value) then add_list(set, class.methods(value)) end
    if class.isclass(value) or mark == "." or not class.typename(value) then
      add_inherited(set, value, wanted)
    end
  elseif type(value) == "userdata" then
    add_inherited(set, value, wanted)
  end
  return set
end

-- ---- the text before the cursor ----

-- The first token of the names and fields that end at token `at`: `net.layers[1]`; nil if there
-- are none.
local function chain_start(tokens, at)
  while tokens[at] do
    local token, two = tokens[at], tokens[at - 2]
    if token.text == "]" and two and two.text == "[" and tokens[at - 1].kind ~= "op" then
      at = at - 3
    elseif token.kind ~= "name" then
      return nil
    elseif two and tokens[at - 1].text == "." then
      at = at - 2
    else
      return at
    end
  end
end

--- The value of a text of names and fields, or nil.
function complete.value(text)
  local tokens = lexer.code(text)
  if chain_start(tokens, #tokens) ~= 1 then return nil end
  local chunk = loadstring("return " .. text)
  local found, value = pcall(chunk or error)
  if found then return value end
end

local function value_at(text, tokens, at)
  local first = chain_start(tokens, at)
  return first and complete.value(text:sub(tokens[first].start, tokens[at].stop))
end

-- The innermost open bracket after the last token, and the number of commas in it.
local function open_bracket(tokens, last)
  local depth = 0
  for i = last, 1, -1 do
    local mark = tokens[i].kind == "op" and tokens[i].text
    if mark == ")" or mark == "}" or mark == "]" then
      depth = depth + 1
    elseif mark == "(" or mark == "{" or mark == "[" then
      if depth == 0 then return i, mark end
      depth = depth - 1
    end
  end
end

-- The signature of the function named by the tokens that end at `at`; and true for a method call.
local function signature_at(text, tokens, at)
  local mark = tokens[at - 1]
  local value
  if mark and mark.text == ":" and tokens[at].kind == "name" then
    local name, object = tokens[at].text, value_at(text, tokens, at - 2)
    if object == nil or lib.istensor(object) then value = bind.method(name)
    else value = object[name] end
  else
    value, mark = value_at(text, tokens, at), nil
    if class.isclass(value) then value = value.signature end
  end
  return bind.signature(value), mark ~= nil
end

-- Counts the arguments before the last token: the number of positional ones, and the names of
-- others.
local function given(tokens, open, last)
  local count, named, i, fresh = 0, {}, open + 1, true
  local depth = 0
  while i <= last do
    local token = tokens[i]
    if token.kind == "op" and token.text:find("^[({[]$") then depth = depth + 1 end
    if token.kind == "op" and token.text:find("^[]})]$") then depth = depth - 1 end
    local after = tokens[i + 1]
    if fresh and token.kind == "name" and after and after.text == "=" then
      named[token.text] = true
      fresh = "named"
    elseif depth == 0 and token.text == "," then
      if fresh ~= "named" then count = count + 1 end
      fresh = true
    elseif fresh == true then
      fresh = false
    end
    i = i + 1
  end
  return count, named
end

-- The call that the end of the text is in: {sig, count, named, brace}, or nil.
local function call_at(text, tokens, last)
  local open, mark = open_bracket(tokens, last)
  if not open or mark == "[" then return nil end
  local count, named = given(tokens, open, last)
  local outer = open
  local before = tokens[open - 1]
  if mark == "{" and before and before.kind == "op" and before.text ~= "]" then
    outer = open_bracket(tokens, open - 1)
    if not outer or tokens[outer].text ~= "(" then return nil end
    count = count + given(tokens, outer, open - 1)
  end
  if not tokens[outer - 1] then return nil end
  local found, sig, method = pcall(signature_at, text, tokens, outer - 1)
  if not found or not sig then return nil end
  if method and sig.lone == 2 then count = count + 1 end
  return {sig = sig, count = count, named = named, brace = mark == "{", open = open}
end

-- ---- candidates ----

local function sorted(set, word)
  local list = {}
  for name in pairs(set) do
    local hidden = name:sub(1, 1) == "_" and word:sub(1, 1) ~= "_"
    if name:sub(1, #word) == word and not hidden and name:find("^[%a_][%w_]*$") then
      list[#list + 1] = name
    end
  end
  table.sort(list)
  return list
end

local function arguments(call, tokens, last, word)
  local list, before = {}, tokens[last].text
  if not call or not call.brace or not before:find("^[{,;]$") then return list end
  for i, arg in ipairs(call.sig.args) do
    if i > call.count and not call.named[arg.name] and arg.name:sub(1, #word) == word then
      list[#list + 1] = arg.name .. " = "
    end
  end
  return list
end

local function choices(call, tokens, last, word)
  if not call then return nil end
  local arg = call.sig.args[call.count + 1]
  if tokens[last].text == "=" then arg = call.sig.args[call.sig.index[tokens[last - 1].text]] end
  if not arg or not arg.choices then return nil end
  local list = {}
  for _, choice in ipairs(arg.choices) do
    if choice:sub(1, #word) == word then list[#list + 1] = choice end
  end
  return list
end

local function files(path)
  local folder, word = path:match("^(.*/)([^/]*)$")
  if not folder then folder, word = "", path end
  local list = {}
  for _, entry in ipairs(machine.entries(folder == "" and "." or folder)) do
    local name = entry.name
    local hidden = name:sub(1, 1) == "." and word:sub(1, 1) ~= "."
    if name:sub(1, #word) == word and not hidden and name ~= "." and name ~= ".." then
      list[#list + 1] = folder .. name .. (entry.is_folder and "/" or "")
    end
  end
  table.sort(list)
  return list
end

local function in_string(text, tokens, open)
  local quote = open.text:match("^[\"']") or ""
  local word = open.text:sub(#quote + 1)
  local last = #tokens - 1
  local found = last > 0 and choices(call_at(text, tokens, last), tokens, last, word)
  local list = found or files(word)
  for i, name in ipairs(list) do
    if name:sub(-1) ~= "/" then list[i] = name .. quote end
  end
  return word, list
end

local function outside(text, tokens)
  local last, word = #tokens, ""
  local token = tokens[last]
  if token and (token.kind == "name" or token.kind == "keyword") and token.stop == #text then
    last, word = last - 1, token.text
  end
  local mark = tokens[last]
  if mark and (mark.text == "." or mark.text == ":") then
    local value = value_at(text, tokens, last - 1)
    local before = tokens[last - 1]
    if value ~= nil then return word, sorted(complete.names(value, mark.text), word) end
    if not before or not before.text:find("^[%])}]$") then return word, {} end
    local inside = tokens[last - 2]
    if before.text == ")" and inside and inside.kind == "string"
      and tokens[last - 3] and tokens[last - 3].text == "(" then -- ("abc"):
      local called = tokens[last - 4]
      if not called or called.kind == "op" and not called.text:find "^[%])}]$" then
        return word, sorted(complete.names("", mark.text), word)
      end
    end
    local set = {} -- the result of a call: most often a tensor
    add_list(set, require("moth.tensor").names(true))
    return word, sorted(set, word)
  end
  local list = last > 0 and arguments(call_at(text, tokens, last), tokens, last, word) or {}
  if word ~= "" then
    local set = {}
    add_keys(set, _G)
    add_inherited(set, _G)
    for keyword in pairs(lexer.keywords) do set[keyword] = true end
    for _, name in ipairs(sorted(set, word)) do list[#list + 1] = name end
  end
  return word, list
end

--- The candidates for the last word of a text.
-- @param text  the text before the cursor, with the earlier lines of the same input
-- @return the last word of the text, and a sorted list of replacements
function complete.find(text)
  local tokens = lexer.tokens(text)
  local last = tokens[#tokens]
  if last and last.kind == "comment" and not last.closed then return "", {} end
  local help = text:match("^%s*%?%s*(.*)$")
  if help and not help:find("^[%w_.:]*$") then return "", {} end
  local code = lexer.code(text)
  if last and last.kind == "string" and not last.closed then return in_string(text, code, last) end
  return outside(text, code)
end

--- The signature of the call whose arguments are typed at the end of a text, and the documentation
-- of the next argument; nil elsewhere.
function complete.signature(text)
  local tokens = lexer.code(text)
  local last = tokens[#tokens]
  if not last or not last.text:find "^[({,]$" or last.kind ~= "op" then return nil end
  local call = call_at(text, tokens, #tokens)
  if not call then return nil end
  local lines, arg = {require("moth.help").line(call.sig)}, call.sig.args[call.count + 1]
  if arg and arg.doc ~= "" then lines[2] = ("  %s: %s"):format(arg.name, arg.doc) end
  return table.concat(lines, "\n")
end

--- The longest common prefix of a list of words.
function complete.common(list)
  local common = list[1] or ""
  for _, word in ipairs(list) do
    while word:sub(1, #common) ~= common do common = common:sub(1, -2) end
  end
  return common
end

return complete
