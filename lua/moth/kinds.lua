--- kinds.lua -- the kinds of argument: how each is checked, handed to C, and explained.
--
-- For each kind:
--   need     what a message says is needed
--   store    Lua text that checks the value in variable $v and puts it into the slots from $k on
--            (writer.lua); `bad($i, $v)` raises the error of argument $i
--   check    Lua text that only checks (define.lua)
--   table    a plain table may be its value; collects: it takes the whole array part of a table
--   prepare  Lua expression that turns $v into what `store` reads, where that may allocate
--   buffer   "ints" or "handles": the kind needs a list buffer, $b
--
-- Dimensions and positions count from 1 in Lua and from 0 in C: the shift is in `store`.

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
  store = "if istype(Handle, $v) then s[$k].handle = $v else bad($i, $v) end",
  check = "if not istype(Handle, $v) then bad($i, $v) end",
})
add("number", { -- a tensor of an op that also takes numbers
  need = "a tensor or a number is needed",
  store = "if istype(Handle, $v) then s[$k].handle = $v\n"
    .. "  else operand($i, $w, $v) s[$k].handle = operand$w end",
  check = 'if not istype(Handle, $v) and type($v) ~= "number" and type($v) ~= "boolean" and '
    .. "not istype(int64, $v) then bad($i, $v) end",
})
add("mask", {
  need = "a bool tensor is needed",
  store = list.tensor.store, check = list.tensor.check,
})
add("index", {
  need = "an integer tensor or a list of positions is needed",
  table = true,
  prepare = "to_index($i, $v)",
  store = "s[$k].handle = $v",
  check = 'if not istype(Handle, $v) and type($v) ~= "table" then bad($i, $v) end',
})
add("tensors", {
  need = "a list of tensors is needed",
  table = true, collects = true, buffer = "handles",
  store = "local n$i = fill_handles($b.at, $v)\n"
    .. "  if not n$i then bad($i, $v) end\n"
    .. "  s[$k].pointer = $b.at s[$k1].integer = n$i",
  check = "if not is_tensors($v) then bad($i, $v) end",
})
add("indices", {
  need = "a list of integer tensors and masks is needed",
  table = true, collects = true, buffer = "handles",
  prepare = "to_indices($i, $v)",
  store = list.tensors.store,
  check = 'if type($v) ~= "table" then bad($i, $v) end',
})
add("generator", {
  need = "a moth.Generator is needed",
  prepare = "to_generator($i, $v)",
  store = "s[$k].handle = $v",
  check = "if not state_of($v) then bad($i, $v) end",
})

-- ---- numbers ----

add("scalar", {
  need = "a number is needed",
  store = 'if type($v) == "number" then s[$k].integer = 0 s[$k1].number = $v\n'
    .. '  elseif type($v) == "boolean" then s[$k].integer = 2 s[$k1].integer = $v and 1 or 0\n'
    .. "  elseif istype(int64, $v) then s[$k].integer = 1 s[$k1].integer = $v\n"
    .. "  else bad($i, $v) end",
  check = 'if type($v) ~= "number" and type($v) ~= "boolean" and not istype(int64, $v) then '
    .. "bad($i, $v) end",
})
add("int", {
  need = "an integer is needed",
  store = "if " .. WHOLE .. " then s[$k].integer = $v else bad($i, $v) end",
  check = "if not (" .. WHOLE .. ") then bad($i, $v) end",
})
add("dim", {
  need = "a dimension is needed, an integer from 1 or from -1 down", zero = "dimensions",
  store = "if " .. WHOLE .. " and $v ~= 0 then s[$k].integer = " .. SHIFTED
    .. " else bad($i, $v) end",
  check = "if not (" .. WHOLE .. " and $v ~= 0) then bad($i, $v) end",
})
add("position", {
  need = "a position is needed, an integer from 1 or from -1 down", zero = "positions",
  store = list.dim.store, check = list.dim.check,
})
-- An ignore_index: 0 is no position, and may be what stands where there is none. The engine counts
-- from 0; in targets and here it becomes a number that nothing else is (bind.lua).
kinds.NOTHING = -2 ^ 53
add("ignored", {
  need = "an integer is needed",
  store = "if " .. WHOLE .. " then s[$k].integer = $v == 0 and -9007199254740992 or " .. SHIFTED
    .. " else bad($i, $v) end",
  check = "if not (" .. WHOLE .. ") then bad($i, $v) end",
})
add("float", {
  need = "a number is needed",
  store = 'if type($v) == "number" then s[$k].number = $v else bad($i, $v) end',
  check = 'if type($v) ~= "number" then bad($i, $v) end',
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
    store = format("if %s then %s\n  elseif %s then %s\n  else bad($i, $v) end", WHOLE,
      table.concat(all, " "), as_list, table.concat(each, " ")),
    check = format("if not (%s) and not (%s) then bad($i, $v) end", WHOLE, as_list),
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
      .. "  elseif %s then %s\n  elseif %s then %s\n  else bad($i, $v) end", WHOLE,
      table.concat(one, " "), as_list, table.concat(several, " ")),
    check = format("if choices$i[$v] == nil and not (%s) and not (%s) then bad($i, $v) end",
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
      .. "s[%s].integer = %s\n  else bad($i, $v) end", v, k, whole, k, v)
  end
  add("int" .. n .. "?", {
    need = format("an integer or a list of %d, each of which may be moth.none, is needed", n),
    table = true,
    store = format("if %s then %s\n  elseif is_list($v) and #$v == %d then\n  %s\n"
      .. "  else bad($i, $v) end", WHOLE, table.concat(every, " "), n,
      table.concat(stores, "\n  ")),
    check = format("if not (%s) and not (is_list($v) and #$v == %d and %s) then bad($i, $v) end",
      WHOLE, n, table.concat(parts, " and ")),
  })
end

-- ---- lists of integers ----

-- What fills a list's buffer, or where that is too short, another.
local function filled(fill)
  return {
    store = format("local at$i, n$i = $b, %s($b, $v)\n", fill)
      .. format("  if not n$i then at$i, n$i = T.fill_long($i, $v, %s) end\n", fill)
      .. "  if not n$i then bad($i, $v) end\n  s[$k].pointer = at$i s[$k1].integer = n$i",
    check = format("if not %s(scratch, $v) and not T.fill_long($i, $v, %s) then bad($i, $v) end",
      fill, fill),
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
  store = 'if type($v) == "boolean" then s[$k].integer = $v and 1 or 0 else bad($i, $v) end',
  check = 'if type($v) ~= "boolean" then bad($i, $v) end',
})
add("enum", {
  need = "a name is needed", choices = true,
  store = "local e$i = choices$i[$v]\n"
    .. "  if e$i then s[$k].integer = e$i else bad($i, $v) end",
  check = "if choices$i[$v] == nil then bad($i, $v) end",
})
add("dtype", {
  need = "a dtype such as moth.float32 is needed",
  store = "local d$i = dtypes[$v]\n"
    .. "  if d$i then s[$k].integer = d$i else bad($i, $v) end",
  check = "if dtypes[$v] == nil then bad($i, $v) end",
})
add("device", {
  need = 'a device such as "cpu" is needed',
  store = "local d$i = devices[$v]\n"
    .. "  if d$i then s[$k].integer = d$i else bad($i, $v) end",
  check = "if devices[$v] == nil then bad($i, $v) end",
})

-- ---- for Lua-side functions only ----

add("any", { need = "a value is needed", table = true,
  check = "if $v == nil then bad($i, $v) end" })
add("string", { need = "a string is needed",
  check = 'if type($v) ~= "string" then bad($i, $v) end' })
add("function", { need = "a function is needed",
  check = "if not is_callable($v) then bad($i, $v) end" })
add("map", { need = "a table is needed", table = true, map = true,
  check = 'if type($v) ~= "table" then bad($i, $v) end' })
add("data", { need = "numbers, booleans, tensors or nested lists of them are needed",
  table = true, collects = true,
  check = "if not is_data($v) then bad($i, $v) end" })
add("modules", { need = "a list of modules is needed", table = true, collects = true,
  check = 'if type($v) ~= "table" then bad($i, $v) end' })
add("params", { need = "a list of parameters is needed, such as net:parameters()",
  table = true, collects = true,
  check = 'if type($v) ~= "table" then bad($i, $v) end' })

-- ---- lookups ----

--- The row of a kind and whether the kind may be absent: kinds.find("tensor?").
function kinds.find(name)
  if list[name] then return list[name], false end
  local bare = name:match("^(.*)%?$") or name:match("^maybe_(.*)$")
  return list[bare], bare ~= nil
end

--- The devices there are, as objects and as names -> the engine's number.
kinds.devices = device.codes

-- ---- helpers that the generated code calls; all but fill_long allocate nothing ----

local help = {}
kinds.help = help

local USUAL = 64

--- How many numbers the buffer of a list has room for; help.fill_long takes longer lists.
kinds.USUAL = USUAL

local function whole(v)
  return type(v) == "number" and v % 1 == 0 and v <= 2 ^ 53 and v >= -2 ^ 53
end

-- A plain table or a Size: a module or a dataset is no list of integers, even an empty one.
local function is_list(v)
  return type(v) == "table" and (getmetatable(v) == nil or size.is(v))
end

--- Whether a value stands behind the end of a list: {2, nil, 3} has the length 1.
-- Looks a few places ahead; the length is given.
function help.has_hole(v, n)
  return type(rawget(v, n + 2)) ~= "nil" or type(rawget(v, n + 3)) ~= "nil"
    or type(rawget(v, n + 4)) ~= "nil"
end

local function put_int(buffer, j, x)
  if not whole(x) then return false end
  buffer[j] = x
  return true
end

local function put_dim(buffer, j, x)
  if not whole(x) or x == 0 then return false end
  buffer[j] = x > 0 and x - 1 or x
  return true
end

-- Lists of up to four without a loop: one of so few rounds, within a loop of the user's, is what
-- LuaJIT tries to compile many times in vain.
local function put_list(buffer, v, put, room)
  if not is_list(v) then return nil end
  local n = #v
  if n > (room or USUAL) then return nil end
  local fine = (n < 1 or put(buffer, 0, v[1])) and (n < 2 or put(buffer, 1, v[2]))
    and (n < 3 or put(buffer, 2, v[3])) and (n < 4 or put(buffer, 3, v[4]))
  if not fine then return nil end
  if n > 4 then
    for j = 5, n do
      if not put(buffer, j - 1, v[j]) then return nil end
    end
  end
  if help.has_hole(v, n) then return nil end
  return n
end

--- Whether a value is a plain table or a Size.
help.is_list = is_list

--- Reads a number or a list of them into a buffer of doubles; the count, or nil.
-- @param room  how many the buffer takes, if not USUAL
function help.fill_floats(buffer, v, room)
  if type(v) == "number" then
    buffer[0] = v
    return 1
  end
  if not is_list(v) or #v > (room or USUAL) or help.has_hole(v, #v) then return nil end
  for j = 1, #v do
    if type(v[j]) ~= "number" then return nil end
    buffer[j - 1] = v[j]
  end
  return #v
end

--- Reads an integer or a list of them into an int64_t buffer; the count, or nil.
function help.fill_ints(buffer, v, room)
  if type(v) == "number" then
    return put_int(buffer, 0, v) and 1 or nil
  end
  local n = put_list(buffer, v, put_int, room)
  return n
end

--- The same for dimensions, which count from 1.
function help.fill_dims(buffer, v, room)
  if type(v) == "number" then
    return put_dim(buffer, 0, v) and 1 or nil
  end
  local n = put_list(buffer, v, put_dim, room)
  return n
end

-- Buffers by the number of the argument, each held until the next long list.
local long = {} -- luacheck: ignore 241

--- Reads a list that is too long for an argument's buffer into one of its own.
-- @param i     the argument's number
-- @param fill  what reads it: fill_ints, fill_dims or fill_floats
-- @return the buffer and the count, or nil
function help.fill_long(i, v, fill)
  if type(v) ~= "table" or #v <= USUAL then return nil end
  local buffer = fill == help.fill_floats and lib.doubles(#v) or lib.int64s(#v)
  local n = fill(buffer, v, #v)
  if not n then return nil end
  long[i] = buffer
  return buffer, n
end

--- Copies the handles of a list into a buffer; `false` stands for none. The count, or nil.
function help.fill_handles(buffer, v)
  if type(v) ~= "table" then return nil end
  local n = #v
  if n == 0 and getmetatable(v) ~= nil then return nil end
  for j = 1, n do
    local x = v[j]
    if x == false then x = lib.NONE
    elseif not lib.istensor(x) then return nil end
    buffer[j - 1] = x
  end
  if help.has_hole(v, n) then return nil end
  return n
end

--- Whether a value is a list of tensors.
function help.is_tensors(v)
  if type(v) ~= "table" or (#v == 0 and getmetatable(v) ~= nil) then return false end
  for j = 1, #v do
    if not lib.istensor(v[j]) then return false end
  end
  return true
end

--- Whether a value can be called.
function help.is_callable(v)
  if type(v) == "function" then return true end
  local meta = type(v) == "table" and getmetatable(v)
  return type(meta) == "table" and meta.__call ~= nil
end

--- The state of a generator: a tensor, or what a moth.Generator keeps; nil if it is neither.
function help.state_of(v)
  if lib.istensor(v) then return v end
  local state = type(v) == "table" and getmetatable(v) ~= nil and v.state
  return lib.istensor(state) and state or nil
end

--- Whether a value may be the elements of a tensor.
function help.is_data(v)
  local kind = type(v)
  return kind == "number" or kind == "boolean" or kind == "table" or lib.istensor(v)
    or require("ffi").istype(lib.int64, v)
end

-- ---- what is wrong with a value ----

local function choices_text(arg)
  local names = {}
  for j, name in ipairs(arg.choices) do names[j] = "'" .. name .. "'" end
  return table.concat(names, ", ")
end

local SECOND = " (a second result passed on? wrap the call in parentheses)"
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
    elseif not whole(x) then
      return format("%s, got %s at position %d", arg.row.need, errors.describe(x), j),
        type(x) == "number" and "E_ARG" or "E_TYPE"
    end
  end
  if help.has_hole(value, #value) then return format("value %d is nil", #value + 1), "E_TYPE" end
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
-- @return the text for a message and its code
function kinds.explain(arg, value)
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
  local text = need .. ", got " .. errors.describe(value)
  if lib.istensor(value) and SINGLE[name] then text = text .. SECOND end
  local number = type(value) == "number" and need:find("integer")
  if number and value == floor(value) and math.abs(value) >= 2 ^ 53 and value - value == 0 then
    text = format("%s, got %.17g, which is beyond 2^53", need, value)
  end
  return text, number and "E_ARG" or "E_TYPE"
end

return kinds
