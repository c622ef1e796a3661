--- mutations.lua -- the rules of .ci/mutate: small mistakes in a line of C or Lua. A mistake keeps
-- the number of lines. It is a table { line, rule, from, to }: `to` replaces the text `from` of
-- that line. Comments and the contents of strings are not changed.

local mistakes = {}

-- ---- code without comments and strings ----

local function blank(text, fill)
  return (text:gsub("[^\n]", fill))
end

-- Patterns that begin comments and strings, their ends, and the replacement of the contents.
local OPENERS = {
  c = {
    { "/%*", function(text, at) return select(2, text:find("*/", at + 2, true)) end, " " },
    { "//", function(text, at) return (text:find("\n", at, true) or #text + 1) - 1 end, " " },
    { '"', false, "_" },
    { "'", false, "_" },
  },
  lua = {
    { "%-%-%[=*%[", function(text, at)
      local level = text:match("^%-%-%[(=*)%[", at)
      return select(2, text:find("]" .. level .. "]", at, true))
    end, " " },
    { "%-%-", function(text, at) return (text:find("\n", at, true) or #text + 1) - 1 end, " " },
    { "%[=*%[", function(text, at)
      local level = text:match("^%[(=*)%[", at)
      return select(2, text:find("]" .. level .. "]", at, true))
    end, "_" },
    { '"', false, "_" },
    { "'", false, "_" },
  },
}

local function string_end(text, at)
  local quote, i = text:sub(at, at), at + 1
  while i <= #text do
    local c = text:sub(i, i)
    if c == quote or c == "\n" then return i end
    i = i + (c == "\\" and 2 or 1)
  end
  return #text
end

-- The text with blanks for comments and underscores for the contents of strings.
local function code_of(text, language)
  local out, at = {}, 1
  while at <= #text do
    local first, opener
    for _, one in ipairs(OPENERS[language]) do
      local found = text:find(one[1], at)
      if found and (not first or found < first) then first, opener = found, one end
    end
    if not first then break end
    out[#out + 1] = text:sub(at, first - 1)
    local last
    if opener[2] then
      last = opener[2](text, first) or #text
      out[#out + 1] = blank(text:sub(first, last), opener[3])
    else
      last = string_end(text, first)
      local inside = text:sub(first + 1, last - 1)
      out[#out + 1] = text:sub(first, first) .. blank(inside, "_") .. text:sub(last, last)
    end
    at = last + 1
  end
  out[#out + 1] = text:sub(at)
  return table.concat(out)
end

local function lines_of(text)
  local list = {}
  for line in (text:gsub("\n?$", "\n")):gmatch "(.-)\n" do list[#list + 1] = line end
  return list
end

-- C: directives are skipped, except macro bodies; text outside functions is skipped.
local function only_bodies(lines)
  local depth, directive, macro = 0, false, false
  for i, line in ipairs(lines) do
    local starts = line:find "^%s*#"
    if starts then
      directive = true
      macro = line:find "^%s*#%s*define" ~= nil
    end
    local goes_on = line:find "\\%s*$"
    if directive then
      if starts and macro then
        local head = line:match "^%s*#%s*define%s+[%w_]+%b()"
          or line:match "^%s*#%s*define%s+[%w_]+" or line
        lines[i] = blank(head, " ") .. line:sub(#head + 1)
      elseif not macro then
        lines[i] = blank(line, " ")
      end
      directive = directive and goes_on ~= nil
    else
      local before = depth
      for brace in line:gmatch "[{}]" do depth = depth + (brace == "{" and 1 or -1) end
      if before == 0 then
        local body = line:find "{.*[;}]"
        lines[i] = body and blank(line:sub(1, body), " ") .. line:sub(body + 1) or blank(line, " ")
      end
    end
  end
  return lines
end

-- ---- positions in a line ----

-- All matches of a pattern with one capture: first, last, text.
local function each(line, pattern, visit)
  local at = 1
  while true do
    local start, stop, text, first = line:find(pattern, at)
    if not start then return end
    if type(text) == "number" then
      visit(text, first - 1, line:sub(text, first - 1))
    end
    at = math.max(start + 1, stop)
  end
end

local function closes(line, at, step, stops)
  local depth, i = 0, at
  while i >= 1 and i <= #line do
    local c = line:sub(i, i)
    local opens = step > 0 and "[%(%[{]" or "[%)%]}]"
    local shuts = step > 0 and "[%)%]}]" or "[%(%[{]"
    if c:find(opens) then
      depth = depth + 1
    elseif c:find(shuts) then
      if depth == 0 then return i - step end
      depth = depth - 1
    elseif depth == 0 then
      for _, stop in ipairs(stops) do
        if line:sub(i, i + #stop - 1) == stop then return i - step end
      end
    end
    i = i + step
  end
  return i - step
end

local STOPS = {
  c = { "&&", "||", "?", ";", ",", " : ", "return ", " = " },
  lua = { " and ", " or ", " then", " do", ",", "return ", " = " },
}

-- ---- rules: each calls add(first, last, text) for its changes of a line ----

local rules = {}

local COMPARED = { ["<"] = "<=", ["<="] = "<", [">"] = ">=", [">="] = ">" }

rules["comparison flipped"] = function(code, add, language)
  local unequal = language == "c" and "!=" or "~="
  each(code, "%s()[<>=!~]=?()%s", function(first, last, text)
    local to = COMPARED[text] or text == "==" and unequal or text == unequal and "=="
    if to then add(first, last, to) end
  end)
end

-- C: a macro that is only a number of at least 1024 or a shifted one: nearly always for speed.
local function is_macro(head, number, tail)
  return head:find "^%s*%(?$" and
    (tail:find "^%s*<<%s*%d+%)%s*$" or number >= 1024 and tail:find "^%s*$")
end

-- C: the size in the declaration of an array; a larger size changes nothing.
local function is_size(head, tail)
  return head:find "^%s*[%a_][%w_ ]*[%s*][%a_][%w_]*%[$" and tail:find "^%];"
end

rules["off by one"] = function(code, add, language)
  each(code, "%f[%w_.]()%d+()%f[^%w_.]", function(first, last, text)
    local number, head, tail = tonumber(text), code:sub(1, first - 1), code:sub(last + 1)
    if not number or language == "c" and is_macro(head, number, tail) then return end
    if language ~= "c" or not is_size(head, tail) then add(first, last, tostring(number + 1)) end
    if number > 0 then add(first, last, tostring(number - 1)) end
  end)
  if language == "lua" then
    each(code, "()#[%a_][%w_.]*()", function(first, last, text)
      add(first, last, text .. " - 1")
    end)
  end
end

rules["constant"] = function(code, add, language)
  each(code, "%f[%w_.]()%d+[%de.+-]*()", function(first, last, text)
    if text:find "%." and tonumber(text) then
      add(first, last, (text:gsub("[1-9]", function(d) return tostring(d % 9 + 1) end, 1)))
    end
  end)
  each(code, "%f[%w_]()true()%f[^%w_]", function(first, last) add(first, last, "false") end)
  each(code, "%f[%w_]()false()%f[^%w_]", function(first, last) add(first, last, "true") end)
  if language == "c" then
    each(code, "()%f[%w_][A-Z][A-Z_0-9]*_MAX()%f[^%w_]", function(first, last, text)
      add(first, last, "(" .. text .. " / 2)")
    end)
  end
end

local SIGNS = { ["+"] = "-", ["-"] = "+", ["*"] = "/", ["/"] = "*", ["+="] = "-=", ["-="] = "+=",
  ["*="] = "/=", ["/="] = "*=", ["%"] = "/" }

rules["sign"] = function(code, add)
  each(code, "%S%s()[-+*/%%]=?()%s", function(first, last, text)
    if SIGNS[text] then add(first, last, SIGNS[text]) end
  end)
  each(code, "[(,=]%s*()%-()[%w(]", function(first, last) add(first, last, "") end)
  each(code, "return ()%-()[%w(]", function(first, last) add(first, last, "") end)
end

rules["and for or"] = function(code, add, language)
  if language == "c" then
    each(code, "%s()&&()%f[^&]", function(first, last) add(first, last, "||") end)
    each(code, "%s()||()%f[^|]", function(first, last) add(first, last, "&&") end)
  else
    each(code, "%s()and()%f[^%w_]", function(first, last) add(first, last, "or") end)
    each(code, "%s()or()%f[^%w_]", function(first, last) add(first, last, "and") end)
  end
end

rules["condition dropped"] = function(code, add, language)
  local function operand(first, last)
    local stop = closes(code, last + 1, 1, STOPS[language])
    if stop > last then add(first, stop, "") end
    local start = first - 1
    local head = code:sub(1, start)
    local from = language == "c" and (head:match "%f[%w]if %(()[^&|()]*$" or
      head:match "return ()[^&|()]*$") or
      language == "lua" and (head:match "%f[%w]if ()[^()]*$" or head:match "return ()[^()]*$")
    if from then add(from, last, "") end
  end
  if language == "c" then
    each(code, "()%s&&()%s", operand)
    each(code, "()%s||()%s", operand)
    each(code, "[(%s]()!()[%a(]", function(first, last) add(first, last, "") end)
    each(code, "%f[%w]if ()%b()()", function(first, last)
      add(first, last, "(0 && " .. code:sub(first, last) .. ")")
      add(first, last, "(1 || " .. code:sub(first, last) .. ")")
    end)
  else
    each(code, "()%sand()%s", operand)
    each(code, "()%sor()%s", operand)
    each(code, "%f[%w]()not ()[%a(]", function(first, last) add(first, last, "") end)
    each(code, "%f[%w]if ().-() then", function(first, last)
      add(first, last, "false and (" .. code:sub(first, last) .. ")")
      add(first, last, "true or " .. code:sub(first, last))
    end)
  end
end

-- A statement that is one line.
local function statement(code, language)
  local first = code:find "%S"
  if not first then return end
  local body = code:sub(first):gsub("%s+$", "")
  if select(2, body:gsub("[%(%[{]", "")) ~= select(2, body:gsub("[%)%]}]", "")) then return end
  local word = body:match "^[%w_]+"
  if language == "c" then
    if not body:find ";$" or body:find("[{}]") then return end
    if not word and not body:find "^%*" then return end
    if body:find "^[%w_]+%s*%(.*%);$" and word ~= "if" and word ~= "for" and word ~= "while" and
      word ~= "return" and word ~= "switch" then
      return first, first + #body - 1
    end
    if body:find "^%*?[%w_%.%->%[%]%s+*]-%s?[-+*/|&]?= " and
      not body:find "^[%w_]+[%s*]+[%w_]+[^-+*/|&.%->%[]*= " then
      return first, first + #body - 1
    end
  else
    if word == "local" or word == "return" or word == "if" or word == "for" or word == "end" or
      word == "function" or word == "while" or word == "elseif" or word == "else" or
      body:find "[,{]$" or body:find "= function" then
      return
    end
    if body:find "^[%a_][%w_.:]*%s*%b()$" or body:find "^[%a_][%w_.:]*%s*[\"{].*[\"}]$" or
      body:find "^[%a_][%w_.%[%]]*[%s,%w_.%[%]]* = .+[^,]$" then
      return first, first + #body - 1
    end
  end
end

local RELEASES = { "free", "release", "close", "drop", "unref", "unlock", "leave", "restore",
  "remove", "clear", "forget", "pop", "finish", "give" }

local function releases(text)
  local name = text:match "^([%w_.:>-]+)%s*[(\"]"
  for _, word in ipairs(RELEASES) do
    if name and name:find(word) then return true end
  end
end

rules["statement dropped"] = function(code, add, language)
  local first, last = statement(code, language)
  if first and not releases(code:sub(first)) then
    add(first, last, language == "c" and ";" or "")
  end
end

rules["release dropped"] = function(code, add, language)
  local first, last = statement(code, language)
  if first and releases(code:sub(first)) then add(first, last, language == "c" and ";" or "") end
end

rules["early return"] = function(code, add, language)
  local first = statement(code, language)
  if not first then return end
  if language == "lua" then
    add(first, first - 1, "if true then return end ")
  else
    for _, what in ipairs { "return;", "return 0;", "return NULL;", "return false;" } do
      add(first, first - 1, "if (1) " .. what .. " ")
    end
  end
end

-- Functions of which the first two arguments may be swapped.
local COMMUTE = {}
for name in ([[PLUS TIMES Add Mul Max Min And Or Xor add mul max min fmax fmin maximum minimum hypot
  band bor bxor equal gcd lcm logical_and logical_or logical_xor moth_add_overflow
  moth_mul_overflow]]):gmatch "%S+" do
  COMMUTE[name] = true
end

rules["arguments swapped"] = function(code, add, _, original)
  local at = 1
  while true do
    local start, open = code:find("[%w_]%s?%(", at)
    if not start then return end
    at = open + 1
    local head = code:sub(1, open)
    if not head:find "function[%s%w_.:]*%($" and not head:find "%f[%w_]if %($" and
      not head:find "%f[%w_]for %($" and not head:find "%f[%w_]while %($" then
      local list, from = {}, open + 1
      while true do
        local stop = closes(code, from, 1, { "," })
        if stop < from then break end
        list[#list + 1] = { from, stop }
        if code:sub(stop + 1, stop + 1) ~= "," then break end
        from = stop + 2
      end
      -- A tensor's method has its first argument before the colon; g:Mul(a, b) has not.
      local mark, name = head:match "(:?)([%w_]+)%s?%($"
      local commutes = COMMUTE[name] and (mark == "" or name:find "^%u")
      for i = commutes and 2 or 1, #list - 1 do
        local a, b = list[i], list[i + 1]
        local one = original:sub(a[1], a[2]):match "^%s*(.-)%s*$"
        local two = original:sub(b[1], b[2]):match "^%s*(.-)%s*$"
        -- The order of fields by name does not matter.
        local fields = one:find "^%.[%a_][%w_]* = " and two:find "^%.[%a_][%w_]* = "
        if one ~= two and one ~= "" and two ~= "" and two ~= "..." and not fields then
          local gap = i == 1 and a[1] == open + 1 and "" or " "
          add(a[1], b[2], gap .. two .. ", " .. one)
        end
      end
    end
  end
end

local NAMES = {}
for name in pairs(rules) do NAMES[#NAMES + 1] = name end
table.sort(NAMES)

--- The lines of a file's code, and the mistakes of one of them: rule -> list.
function mistakes.code(text, language)
  local lines = lines_of(code_of(text, language))
  return language == "c" and only_bodies(lines) or lines
end

--- The possible changes of a line: a list of { rule, list of {from, to} } without empty lists.
function mistakes.at(code, original, language)
  local all = {}
  if code:find "^%s*$" then return all end
  for _, name in ipairs(NAMES) do
    local list = {}
    rules[name](code, function(first, last, text)
      -- A rule works on the line without strings; its `from` is taken from the original line.
      local from = original:sub(first, last)
      local bare = code:sub(first, last)
      if bare ~= from and text:find(bare, 1, true) then
        local a, b = text:find(bare, 1, true)
        text = text:sub(1, a - 1) .. from .. text:sub(b + 1)
      end
      list[#list + 1] = original:sub(1, first - 1) .. text .. original:sub(last + 1)
    end, language, original)
    if #list > 0 then all[#all + 1] = { name, list } end
  end
  return all
end

mistakes.lines, mistakes.bare = lines_of, code_of

return mistakes
