--- kinds.lua -- the kinds of argument: how each is checked, handed to C, and explained.
--
-- For each kind:
--   need     what a message says is needed
--   store    Lua text that checks the value in variable $v and puts it into the slots from $k on
--            (writer.lua); `T.bad(sig, $i, $v)` raises the error of argument $i
--   check    Lua text that only checks (define.lua)
--   table    a plain table may be its value; collects: it takes the whole array part of a table
--   prepare  Lua expression that turns $v into what `store` reads, where that may allocate
--   buffer   "ints" or "handles": the kind needs a list buffer, $b
--
-- Dimensions and positions count from 1 in Lua and from 0 in C: the shift is in `store`.

local calls = require "moth.calls"
local device = require "moth.device"
local dtype = require "moth.dtype"
local errors = require "moth.error"
local lib = require "moth.lib"
local size = require "moth.size"

local format, floor = string.format, math.floor

local kinds = {}
local list = {}

local WHOLE = 'type($v) == "number" and $v % 1 == 0 and $v <= 9007199254740992 and '
  .. "$v >= -9007199254740992"
local SHIFTED = "$v > 0 and $v - 1 or $v"

local function add(name, row)
  row.name = name
  list[name] = row
end

-- ---- tensors ----

add("tensor", {
  need = "a tensor is needed",
  store = "if istype(Handle, $v) then s[$k].handle = $v else T.bad(sig, $i, $v) end",
  check = "if not istype(Handle, $v) then T.bad(sig, $i, $v) end",
})
add("number", { -- a tensor of an op that also takes numbers
  need = "a tensor or a number is needed",
  store = "if istype(Handle, $v) then s[$k].handle = $v\n"
    .. "  else T.operand(sig, $i, $w, $v) s[$k].handle = operand$w end",
  check = 'if not istype(Handle, $v) and type($v) ~= "number" and type($v) ~= "boolean" and '
    .. "not istype(int64, $v) then T.bad(sig, $i, $v) end",
})
add("mask", {
  need = "a bool tensor is needed",
  store = list.tensor.store, check = list.tensor.check,
})
add("index", {
  need = "an integer tensor or a list of positions is needed",
  table = true,
  prepare = "T.to_index(sig, $i, $v)",
  store = "s[$k].handle = $v",
  check = 'if not istype(Handle, $v) and type($v) ~= "table" then T.bad(sig, $i, $v) end',
})
add("tensors", {
  need = "a list of tensors is needed",
  table = true, collects = true, buffer = "handles",
  store = "local n$i = fill_handles($b.at, $v)\n"
    .. "  if not n$i then T.bad(sig, $i, $v) end\n"
    .. "  s[$k].pointer = $b.at s[$k1].integer = n$i",
  check = "if not T.is_tensors($v) then T.bad(sig, $i, $v) end",
})
add("indices", {
  need = "a list of integer tensors and masks is needed",
  table = true, collects = true, buffer = "handles",
  prepare = "T.to_indices(sig, $i, $v)",
  store = list.tensors.store,
  check = 'if type($v) ~= "table" then T.bad(sig, $i, $v) end',
})
add("generator", {
  need = "a moth.Generator is needed",
  prepare = "T.to_generator(sig, $i, $v)",
  store = "s[$k].handle = $v",
  check = "if not T.state_of($v) then T.bad(sig, $i, $v) end",
})

-- ---- numbers ----

add("scalar", {
  need = "a number is needed",
  store = 'if type($v) == "number" then s[$k].integer = 0 s[$k1].number = $v\n'
    .. '  elseif type($v) == "boolean" then s[$k].integer = 2 s[$k1].integer = $v and 1 or 0\n'
    .. "  elseif istype(int64, $v) then s[$k].integer = 1 s[$k1].integer = $v\n"
    .. "  else T.bad(sig, $i, $v) end",
  check = 'if type($v) ~= "number" and type($v) ~= "boolean" and not istype(int64, $v) then '
    .. "T.bad(sig, $i, $v) end",
})
add("int", {
  need = "an integer is needed",
  store = "if " .. WHOLE .. " then s[$k].integer = $v else T.bad(sig, $i, $v) end",
  check = "if not (" .. WHOLE .. ") then T.bad(sig, $i, $v) end",
})
add("dim", {
  need = "a dimension is needed, an integer from 1 or from -1 down", zero = "dimensions",
  store = "if " .. WHOLE .. " and $v ~= 0 then s[$k].integer = " .. SHIFTED
    .. " else T.bad(sig, $i, $v) end",
  check = "if not (" .. WHOLE .. " and $v ~= 0) then T.bad(sig, $i, $v) end",
})
add("position", {
  need = "a position is needed, an integer from 1 or from -1 down", zero = "positions",
  store = list.dim.store, check = list.dim.check,
})
-- An ignore_index: 0 is no position, and may be what stands where there is none: calls.NOTHING.
add("ignored", {
  need = "an integer is needed",
  store = "if " .. WHOLE .. " then s[$k].integer = $v == 0 and -9007199254740992 or " .. SHIFTED
    .. " else T.bad(sig, $i, $v) end",
  check = "if not (" .. WHOLE .. ") then T.bad(sig, $i, $v) end",
})
add("float", {
  need = "a number is needed",
  store = 'if type($v) == "number" then s[$k].number = $v else T.bad(sig, $i, $v) end',
  check = 'if type($v) ~= "number" then T.bad(sig, $i, $v) end',
})

for n = 1, 3 do
  local all, each, whole = {}, {}, {}
  for j = 0, n - 1 do
    all[#all + 1] = format("s[$k%s].integer = $v", j == 0 and "" or j)
    each[#each + 1] = format("s[$k%s].integer = $v[%d]", j == 0 and "" or j, j + 1)
    whole[#whole + 1] = (WHOLE:gsub("%$v", format("$v[%d]", j + 1)))
  end
  local as_list = format('type($v) == "table" and #$v == %d and ', n)
    .. table.concat(whole, " and ")
  add("int" .. n, {
    need = n == 1 and "an integer is needed" or
      format("an integer or a list of %d integers is needed", n),
    table = true,
    store = format("if %s then %s\n  elseif %s then %s\n  else T.bad(sig, $i, $v) end", WHOLE,
      table.concat(all, " "), as_list, table.concat(each, " ")),
    check = format("if not (%s) and not (%s) then T.bad(sig, $i, $v) end", WHOLE, as_list),
  })
  local function at(k) return k == 0 and "$k" or "$k" .. k end
  local one, several = { "s[$k].integer = 0" }, { "s[$k].integer = 0" }
  for j = 1, n do
    one[j + 1] = format("s[%s].integer = $v", at(j))
    several[j + 1] = format("s[%s].integer = $v[%d]", at(j), j)
  end
  add("int" .. n .. "-or-enum", { -- padding = "same"
    need = list["int" .. n].need:gsub(" is needed", ""),
    table = true, choices = true, numbers = true,
    store = format("local e$i = choices$i[$v]\n  if e$i then s[$k].integer = e$i\n"
      .. "  elseif %s then %s\n  elseif %s then %s\n  else T.bad(sig, $i, $v) end", WHOLE,
      table.concat(one, " "), as_list, table.concat(several, " ")),
    check = format("if choices$i[$v] == nil and not (%s) and not (%s) then T.bad(sig, $i, $v) end",
      WHOLE, as_list),
  })
end

for n = 2, 3 do -- sizes, each of which may be moth.none: "as it is"
  local every, parts, stores = {}, {}, {}
  for j = 1, n do
    local v, k = format("$v[%d]", j), j == 1 and "$k" or "$k" .. j - 1
    local whole = WHOLE:gsub("%$v", v)
    every[j] = format("s[%s].integer = $v", k)
    parts[j] = format("(%s == none or %s)", v, whole)
    stores[j] = format("if %s == none then s[%s].integer = NO_INT\n  elseif %s then "
      .. "s[%s].integer = %s\n  else T.bad(sig, $i, $v) end", v, k, whole, k, v)
  end
  add("int" .. n .. "?", {
    need = format("an integer or a list of %d, each of which may be moth.none, is needed", n),
    table = true,
    store = format("if %s then %s\n  elseif is_list($v) and #$v == %d then\n  %s\n"
      .. "  else T.bad(sig, $i, $v) end", WHOLE, table.concat(every, " "), n,
      table.concat(stores, "\n  ")),
    check = format("if not (%s) and not (is_list($v) and #$v == %d and %s) then "
      .. "T.bad(sig, $i, $v) end", WHOLE, n, table.concat(parts, " and ")),
  })
end

-- ---- lists of integers ----

-- What fills a list's buffer, or where that is too short, another.
local function filled(fill)
  return {
    store = format("local at$i, n$i = $b, %s($b, $v)\n", fill)
      .. format("  if not n$i then at$i, n$i = T.fill_long($i, $v, %s) end\n", fill)
      .. "  if not n$i then T.bad(sig, $i, $v) end\n  s[$k].pointer = at$i s[$k1].integer = n$i",
    check = format("if not %s(scratch, $v) and not T.fill_long($i, $v, %s) then "
      .. "T.bad(sig, $i, $v) end", fill, fill),
  }
end

local function ints(name, need, fill, more)
  local row = filled(fill)
  row.need, row.table, row.buffer = need, true, "ints"
  for key, value in pairs(more or {}) do row[key] = value end
  add(name, row)
end
ints("ints", "an integer or a list of integers is needed", "fill_ints")
ints("shape", "sizes are needed, integers in a row or in a list", "fill_ints", { collects = true })
ints("dims", "a dimension or a list of them is needed", "fill_dims", { zero = "dimensions" })

local floats = filled "fill_floats"
floats.need, floats.table = "a number or a list of numbers is needed", true
floats.buffer = "floats"
add("floats", floats)

-- ---- choices ----

add("bool", {
  need = "true or false is needed",
  store = 'if type($v) == "boolean" then s[$k].integer = $v and 1 or 0 else T.bad(sig, $i, $v) end',
  check = 'if type($v) ~= "boolean" then T.bad(sig, $i, $v) end',
})
add("enum", {
  need = "a name is needed", choices = true,
  store = "local e$i = choices$i[$v]\n"
    .. "  if e$i then s[$k].integer = e$i else T.bad(sig, $i, $v) end",
  check = "if choices$i[$v] == nil then T.bad(sig, $i, $v) end",
})
add("dtype", {
  need = "a dtype such as moth.float32 is needed",
  store = "local d$i = T.dtypes[$v]\n"
    .. "  if d$i then s[$k].integer = d$i else T.bad(sig, $i, $v) end",
  check = "if T.dtypes[$v] == nil then T.bad(sig, $i, $v) end",
})
add("device", {
  need = 'a device such as "cpu" is needed',
  store = "local d$i = T.devices[$v]\n"
    .. "  if d$i then s[$k].integer = d$i else T.bad(sig, $i, $v) end",
  check = "if T.devices[$v] == nil then T.bad(sig, $i, $v) end",
})

-- ---- for Lua-side functions only ----

add("any", { need = "a value is needed", table = true,
  check = "if $v == nil then T.bad(sig, $i, $v) end" })
add("string", { need = "a string is needed",
  check = 'if type($v) ~= "string" then T.bad(sig, $i, $v) end' })
add("function", { need = "a function is needed",
  check = "if not T.is_callable($v) then T.bad(sig, $i, $v) end" })
add("map", { need = "a table is needed", table = true, map = true,
  check = 'if type($v) ~= "table" then T.bad(sig, $i, $v) end' })
add("data", { need = "numbers, booleans, tensors or nested lists of them are needed",
  table = true, collects = true,
  check = "if not T.is_data($v) then T.bad(sig, $i, $v) end" })
add("modules", { need = "a list of modules is needed", table = true, collects = true,
  check = 'if type($v) ~= "table" then T.bad(sig, $i, $v) end' })
add("params", { need = "a list of parameters is needed, such as net:parameters()",
  table = true, collects = true, -- a function: what net:named_parameters() gives
  check = 'if type($v) ~= "table" and type($v) ~= "function" then T.bad(sig, $i, $v) end' })

-- ---- lookups ----

--- The row of a kind and whether the kind may be absent: kinds.find("tensor?").
function kinds.find(name)
  if list[name] then return list[name], false end
  local bare = name:match("^(.*)%?$") or name:match("^maybe_(.*)$")
  return list[bare], bare ~= nil
end

-- ---- what is wrong with a value ----

local function choices_text(arg)
  local names = {}
  for j, name in ipairs(arg.choices) do names[j] = "'" .. name .. "'" end
  return table.concat(names, ", ")
end

-- Why a tensor may have come where none is wanted.
local function explain_tensor(fname)
  if fname and fname:find "^%u" and require("moth.nn")[fname] then
    return format("nn.%s(...) makes a module; that is then called with tensors)", fname)
  end
  return "a second result passed on? wrap the call in parentheses)"
end
local SINGLE = { bool = true, int = true, float = true, enum = true, dim = true, position = true,
                 scalar = true, dtype = true, device = true, string = true }

local function explain_enum(arg, value)
  local need = "one of " .. choices_text(arg) .. " is needed"
  if arg.row.numbers then need = arg.row.need .. " or " .. need end
  if type(value) ~= "string" then return need .. ", got " .. errors.describe(value), "E_TYPE" end
  return format("%s, got '%s'%s", need, value, errors.nearest(value, arg.choices)), "E_ARG"
end

local function explain_list(arg, value)
  for j = 1, #value do
    local x = rawget(value, j)
    if x == nil then return format("value %d is nil", j), "E_TYPE" end
    if arg.row.buffer == "handles" then
      if not lib.istensor(x) then
        return format("%s, got %s at position %d", arg.row.need, errors.describe(x), j), "E_TYPE"
      end
    elseif arg.row.zero and type(x) == "number" and x == 0 then
      return format("%s count from 1, got 0 at position %d", arg.row.zero, j), "E_INDEX"
    elseif not calls.whole(x) then
      return format("%s, got %s at position %d%s", arg.row.need, errors.describe(x), j,
        #value == 1 and lib.is_plain(x) and "; take one pair of braces away" or ""),
        type(x) == "number" and "E_ARG" or "E_TYPE"
    end
  end
  if calls.has_hole(value, #value) then return format("value %d is nil", #value + 1), "E_TYPE" end
end

local function explain_name(arg, value)
  if arg.row.name == "device" then
    return device.missing(value), "E_DEVICE"
  end
  local known = dtype.by_name[value:match("^[a-z]+%.(.*)$") or value]
  return arg.row.need .. format(", got a string ('%s')", value)
    .. (known and "; write " .. tostring(known) or ""), "E_TYPE"
end

--- Why a value is not what an argument needs.
-- @param arg    the argument: row (its kind), choices, ...
-- @param value  what was given; nil: nothing
-- @param fname  the function's name, if it is known
-- @return the text for a message and its code
function kinds.explain(arg, value, fname)
  local row = arg.row
  local name = row.name
  if row.choices and value ~= nil and not lib.istensor(value) then
    return explain_enum(arg, value)
  end
  local need = row.choices and "one of " .. choices_text(arg) .. " is needed" or row.need
  if value == nil then return need .. ", got nothing" .. (arg.hint or ""), "E_ARG" end
  if row.zero and type(value) == "number" and value == 0 then
    return row.zero .. " count from 1, got 0", "E_INDEX"
  end
  if device.is(value) and name == "device" then return device.missing(value), "E_DEVICE" end
  if type(value) == "string" and (name == "device" or name == "dtype") then
    return explain_name(arg, value)
  end
  if type(value) == "table" and (getmetatable(value) == nil or size.is(value)) and row.buffer then
    local text, code = explain_list(arg, value)
    if text then return text, code end
  end
  local text = errors.unwanted(need, value)
  if lib.istensor(value) and SINGLE[name] then
    local number = row.need:find "number" and text:find "%(%)$" -- it may have been released
    text = text .. (number and " (x:item() is its number; " or " (")
      .. explain_tensor(fname)
  end
  local number = type(value) == "number" and need:find("integer")
  if number and value == floor(value) and math.abs(value) >= 2 ^ 53 and value - value == 0 then
    text = format("%s, got %.17g, which is beyond 2^53", need, value)
  end
  return text, number and "E_ARG" or "E_TYPE"
end

return kinds
