--- python.lua -- hints for lines of Python, at the prompt and in scripts; loaded after a syntax
-- error.

local python = {}

-- A pattern of a line, and what to write; the first that fits counts.
local LINES = {
  {"^%s*import%s+[%a_]", "Lua's import is a function: local x = require \"x\""},
  {"^%s*from%s+[%w_.]+%s+import%s", "Lua's import is a function: local x = require \"x\""},
  {"^%s*print%s+[%w_]", "print is a function: print(x)"},
  {"^%s*def%s+[%a_]", "a function is: function f(x) return x * 2 end"},
  {"^%s*class%s+[%a_]", "a class is: Net = nn.class(\"Net\", nn.Module)"},
  {"^%s*for%s.*%sin%s+range%s*%(", "a loop is: for i = 1, 10 do ... end"},
  {"^%s*for%s.*:%s*$", "a loop is: for x, y in loader do ... end"},
  {"^%s*if%s.*:%s*$", "a condition is: if x then ... end"},
  {"^%s*with%s+[%a_]", "Lua has no `with`: moth.no_grad(function() ... end)"},
  {"[%w_%)%]]%s*[%+%-%*/]=[^=]", "Lua has no += and -=: x = x + 1"},
  {"!=", "not equal is ~="},
  {"[%w_%)]%s*%*%*%s*[%w_%(]", "a power is x ^ 2"},
  {"[%w_%)]%s+@%s+[%w_%(]", "a matrix product is a:matmul(b)"},
  {"%f[%w_]lambda%s", "a function is: function(x) return x * 2 end"},
}

--- A syntax error's message, with the Lua for the Python that an input seems to be.
-- @param message  Lua's message
-- @param text     the input
function python.explained(message, text)
  local code = text:gsub("%-%-[^\n]*", ""):gsub('"[^"\n]*"', '""'):gsub("'[^'\n]*'", "''")
  for line in code:gmatch "[^\n]+" do
    for _, row in ipairs(LINES) do
      if (line .. " "):find(row[1]) then return ("%s (%s)"):format(message, row[2]) end
    end
  end
  return message
end

local ABOVE = 2 -- lines above that of the message: Lua may read on behind a line of Python

--- The same for the lines of a program near the one that the message names.
-- @param message  Lua's message, "train.lua:3: ..."
-- @param path     the file, or nil
-- @param text     the text, if there is no file
function python.located(message, path, text)
  local at = tonumber(message:match ":(%d+): ")
  local file = path and io.open(path, "rb")
  if file then
    text = file:read "*a"
    file:close()
  end
  local lines = {}
  for line in ((text or "") .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = line end
  for i = at or 0, math.max((at or 0) - ABOVE, 1), -1 do
    local found = python.explained(message, lines[i] or "")
    if found ~= message then return found end
  end
  return message
end

return python
