--- forms.lua -- the forms of a call: which table is a list of arguments and which is a value.
--
--     F.max_pool2d(x, 2)      F.max_pool2d(x, {kernel_size = 2})
--     F.max_pool2d{x, 2}      F.max_pool2d{x, kernel_size = 2}      x:max_pool2d{kernel_size = 2}
--
-- The kinds of the arguments decide; calls.lua has the rules.
--
-- A signature is compiled to one straight-line Lua function. At the first call with a table, a
-- second function is generated that sorts the table's fields into positions. LuaJIT compiles both
-- like user code. They test `type(x) == "nil"` if x may be a tensor: `x == nil` would call the
-- metatype's __eq.

local concat, format = table.concat, string.format

local forms = {}

local ROW = 8 -- the largest number of separate sizes

-- ---- signatures ----

--- The description of a function's arguments for the generated code and messages.
-- @param name    the function's name in messages
-- @param args    list of {name, kind (a row of kinds.lua), doc, required, fallback, choices}
-- @param method  true if the first argument may be the object of a method call
function forms.signature(name, args, method)
  local sig = {name = name, args = args, lone = method and 2 or 1, index = {}}
  for i, arg in ipairs(args) do sig.index[arg.name] = i end
  local p = sig.lone
  local arg = args[p]
  if arg then
    local after = args[p + 1]
    if arg.row.name == "shape" then
      if not (after and after.required) then sig.row = p end
    elseif arg.required and (arg.row.name == "dims" or arg.row.name == "ints") then
      if not after or after.name == "out" then sig.row = p end
    end
  end
  return sig
end

-- ---- code generation ----

local function variables(prefix, n)
  local list = {}
  for i = 1, n do list[i] = prefix .. i end
  return list
end

-- v_at, v_at+1, ... = t[1], t[2], ...
local function unpacked(n, at)
  local to, from = {}, {}
  for i = at, n do
    to[#to + 1] = "v" .. i
    from[#from + 1] = format("t[%d]", i - at + 1)
  end
  if #to == 0 then return "" end
  return concat(to, ", ") .. " = " .. concat(from, ", ")
end

-- The code that handles the array part of a list of arguments that starts at position `at`.
local function take(sig, at)
  local n, arg = #sig.args, sig.args[at]
  local all = unpacked(n, at)
  local over = n - at + 2
  local rest = format('if type(t[%d]) ~= "nil" then T.extra(sig, t[%d]) end', over, over)
  if not arg or not arg.row.collects then return all .. " " .. rest end
  if arg.row.name == "data" then
    return format("if t[%q] == nil then v%d = T.data(sig, %d, t) end", arg.name, at, at)
  end
  return format('if type(t[1]) ~= "nil" then\n'
    .. "      if T.first_is_value(sig.args[%d], t[1]) then %s %s\n"
    .. "      else v%d = T.array(t) end\n    end", at, all, rest, at)
end

local function new_text()
  local lines = {}
  return lines, function(pattern, ...)
    lines[#lines + 1] = select("#", ...) > 0 and format(pattern, ...) or pattern
  end
end

--- The text of a chunk. It takes the signature, calls.lua and the function, and returns a function
-- that sorts a list of arguments into positions and runs the function.
function forms.tables(sig)
  local lines, out = new_text()
  local n = #sig.args
  local a, v = variables("a", n), variables("v", n)
  local sep = n > 0 and ", " or ""
  out("local sig, T, run = ...")
  out("return function(%s%sx)", concat(a, ", "), sep)
  out("  local t, at = x, %d", n + 1)
  for i = n, 1, -1 do out('  if type(t) == "nil" then t, at = a%d, %d end', i, i) end
  local target = sig.index.out
  out("  if not T.is_arguments(sig, t, at) then")
  out("    if x ~= nil then T.extra(sig, x) end")
  if target then out('    if type(a%d) ~= "nil" then T.extra(sig, a%d) end', target, target) end
  out("    return run(%s%sT.RESOLVED)", concat(a, ", "), sep)
  out("  end")
  if n > 0 then out("  local %s = %s", concat(v, ", "), concat(a, ", ")) end
  for at = 1, n + 1 do
    out("  %s at == %d then\n    %s%s", at == 1 and "if" or "elseif", at,
      at <= n and format("v%d = nil\n    ", at) or "", take(sig, at))
  end
  out("  end")
  if target then out('  if type(v%d) ~= "nil" then T.extra(sig, v%d) end', target, target) end
  out("  local w")
  for i, arg in ipairs(sig.args) do
    out("  w = t[%q]", arg.name)
    out('  if type(w) ~= "nil" then')
    out('    if type(v%d) ~= "nil" then T.twice(sig, %d) end', i, i)
    out("    v%d = w\n  end", i)
  end
  if not sig.index.out then
    out('  if type(t.out) ~= "nil" then')
    out("    return T.into(sig, run, t.out%s%s)\n  end", sep, concat(v, ", "))
  end
  out("  return run(%s%sT.RESOLVED)", concat(v, ", "), sep)
  out("end")
  return concat(lines, "\n")
end

local WRITE = "tables = tables or T.tables(sig, run)"

-- `entry` comes before `run` if sizes may be separate arguments.
local function entry(sig, out)
  local p, n = sig.row, #sig.args
  local width = math.max(n + 1, p + ROW + 1)
  local a = variables("a", width)
  out("local function entry(%s)", concat(a, ", "))
  out('  if type(a%d) ~= "number" then', p)
  out('    if type(a%d) == "nil" and type(a%d) == "number" then T.hole(sig, %d, 1) end', p, p + 1,
    p)
  out("    return run(%s)\n  end", concat(a, ", ", 1, n + 1))
  local count = {} -- no loop: the caller's trace must include the whole call
  for i = p + 1, width do count[#count + 1] = format('type(a%d) ~= "number" and %d', i, i - p) end
  out("  local row = {%s}", concat(a, ", ", p, width))
  out("  local n = %s or %d", concat(count, " or "), width - p + 1)
  out("  local names = row[n + 1]")
  out('  if type(names) == "nil" and T.has_hole(row, n) then T.hole(sig, %d, n + 1) end', p)
  out("  if names == nil then return run(%s%srow%s, T.RESOLVED) end",
    concat(a, ", ", 1, p - 1), p > 1 and ", " or "", (", nil"):rep(n - p))
  out('  if type(names) ~= "table" then T.bad(sig, %d, row) end', p)
  out("  row[n + 1] = nil")
  out("  " .. WRITE)
  out("  return tables(%s%srow, names)", concat(a, ", ", 1, p - 1), p > 1 and ", " or "")
  out("end")
end

--- Generates the whole function.
-- @param sig   the signature
-- @param head  Lua lines before it: locals, with the chunk's parameters as `...`
-- @param body  the lines of the function `run`; its parameters are a1, a2, ... and `over`
-- @return the text of a chunk that returns the function
function forms.source(sig, head, body)
  local lines, out = new_text()
  local n = #sig.args
  local a = variables("a", n)
  local tests = {}
  for i = 1, n do tests[i] = format('type(a%d) == "table"', i) end
  out(head)
  out("local run, tables")
  out("run = function(%s%sover)", concat(a, ", "), n > 0 and ", " or "")
  if n > 0 then
    out("  if over == nil then")
    out("    if %s then", concat(tests, " or "))
    out("      %s\n      return tables(%s)\n    end", WRITE, concat(a, ", "))
    local target = sig.index.out
    if target then out('    if type(a%d) ~= "nil" then T.extra(sig, a%d) end', target, target) end
    out("  elseif over ~= T.RESOLVED and over ~= T.AGAIN then")
  else
    out("  if over ~= nil and over ~= T.RESOLVED and over ~= T.AGAIN then")
  end
  out("    %s\n    return tables(%s%sover)", WRITE, concat(a, ", "), n > 0 and ", " or "")
  out("  end")
  out(body)
  out("end")
  if sig.row then
    entry(sig, out)
    out("return entry")
  else
    out("return run")
  end
  return concat(lines, "\n")
end

--- Fills in a kind's text for argument i: $v variable, $i number, $k slot, $w operand, $b buffer.
function forms.fill(text, i, variable, slot, operand)
  local values = {i = tostring(i), v = variable, b = "b" .. i, w = tostring(operand)}
  return (text:gsub("%$([a-z])(%d*)", function(letter, more)
    if letter == "k" then return tostring(slot + (tonumber(more) or 0)) end
    return values[letter] .. more
  end))
end

return forms
