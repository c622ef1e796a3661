--- kinds.lua -- the kinds of argument: how each is checked and passed to C.
--
-- For each kind:
--   need     the requirement, for messages
--   store    Lua text that checks the value in variable $v and puts it into the slots from $k on
--            (writer.lua); `T.bad(sig, $i, $v)` raises the error of argument $i
--   check    Lua text that only checks (define.lua)
--   table    a plain table may be its value; collects: it takes the whole array part of a table
--   prepare  Lua expression that turns $v into what `store` reads, where that may allocate
--   shown    the kind's name in help, if it is another
--   buffer   "ints" or "handles": the kind needs a list buffer, $b
--
-- Dimensions and positions count from 1 in Lua and from 0 in C: the shift is in `store`.

local format = string.format

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
list.out = list.tensor -- receives a result; never a number
add("mask", {
  need = "a bool tensor is needed",
  store = list.tensor.store, check = list.tensor.check,
})
add("index", {
  need = "an integer tensor or a list of positions is needed",
  table = true,
  prepare = "T.to_index(sig, $i, $v)",
  store = "s[$k].handle = $v",
  check = "if not istype(Handle, $v) and not is_list($v) then T.bad(sig, $i, $v) end",
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
  check = "if not is_list($v) then T.bad(sig, $i, $v) end",
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
    .. "  else s[$k].integer = 0 s[$k1].number = T.number_of(sig, $i, $v) end",
  check = 'if type($v) ~= "number" and type($v) ~= "boolean" and not istype(int64, $v) then '
    .. "$v = T.number_of(sig, $i, $v) end",
})
add("element", { -- also a 0-d tensor, which valued.lua converts
  need = list.scalar.need, shown = "scalar|tensor",
  store = list.scalar.store, check = list.scalar.check,
})
add("int", {
  need = "an integer is needed",
  store = "if " .. WHOLE .. " then s[$k].integer = $v\n"
    .. "  else s[$k].integer = T.number_of(sig, $i, $v) end",
  check = "if not (" .. WHOLE .. ") then $v = T.number_of(sig, $i, $v) end",
})
add("dim", {
  need = "a dimension is needed, an integer from 1 or from -1 down", zero = "dimensions",
  store = "if " .. WHOLE .. " and $v ~= 0 then s[$k].integer = " .. SHIFTED
    .. "\n  else local n$i = T.number_of(sig, $i, $v) s[$k].integer = "
    .. SHIFTED:gsub("%$v", "n$i") .. " end",
  check = "if not (" .. WHOLE .. " and $v ~= 0) then $v = T.number_of(sig, $i, $v) end",
})
add("position", {
  need = "a position is needed, an integer from 1 or from -1 down", zero = "positions",
  store = list.dim.store, check = list.dim.check,
})
-- For an ignore_index. 0 is no position and may mark an ignored target: it becomes calls.NOTHING.
add("ignored", {
  need = "an integer is needed", shown = "position",
  store = "if " .. WHOLE .. " then s[$k].integer = $v == 0 and -9007199254740992 or " .. SHIFTED
    .. " else T.bad(sig, $i, $v) end",
  check = "if not (" .. WHOLE .. ") then T.bad(sig, $i, $v) end",
})
add("float", {
  need = "a number is needed",
  store = 'if type($v) == "number" then s[$k].number = $v\n'
    .. "  else s[$k].number = T.number_of(sig, $i, $v) end",
  check = 'if type($v) ~= "number" then $v = T.number_of(sig, $i, $v) end',
})

for n = 1, 3 do
  local all, each, integers = {}, {}, {}
  for j = 0, n - 1 do
    all[#all + 1] = format("s[$k%s].integer = $v", j == 0 and "" or j)
    each[#each + 1] = format("s[$k%s].integer = $v[%d]", j == 0 and "" or j, j + 1)
    integers[#integers + 1] = (WHOLE:gsub("%$v", format("$v[%d]", j + 1)))
  end
  local as_list = format('type($v) == "table" and #$v == %d and ', n)
    .. table.concat(integers, " and ")
  -- A list of one element applies to all dimensions.
  local lone = 'type($v) == "table" and #$v == 1 and ' .. integers[1]
  local of_one = (table.concat(all, " "):gsub("= %$v", "= $v[1]"))
  add("int" .. n, {
    need = n == 1 and "an integer is needed" or
      format("an integer or a list of %d integers is needed", n),
    table = true,
    store = format("if %s then %s\n  elseif %s then %s\n  elseif %s then %s\n"
      .. "  else T.bad(sig, $i, $v) end", WHOLE, table.concat(all, " "), as_list,
      table.concat(each, " "), lone, of_one),
    check = format("if not (%s) and not (%s) then\n"
      .. "  if %s then $v = $v[1] else T.bad(sig, $i, $v) end\n  end", WHOLE, as_list, lone),
  })
  local function at(k) return k == 0 and "$k" or "$k" .. k end
  local one, several = {"s[$k].integer = 0"}, {"s[$k].integer = 0"}
  for j = 1, n do
    one[j + 1] = format("s[%s].integer = $v", at(j))
    several[j + 1] = format("s[%s].integer = $v[%d]", at(j), j)
  end
  add("int" .. n .. "-or-enum", { -- padding = "same"
    need = list["int" .. n].need:gsub(" is needed", ""),
    table = true, choices = true, numbers = true,
    store = format("local e$i = choices$i[$v]\n  if e$i then s[$k].integer = e$i\n"
      .. "  elseif %s then %s\n  elseif %s then %s\n  elseif %s then %s\n"
      .. "  else T.bad(sig, $i, $v) end", WHOLE, table.concat(one, " "), as_list,
      table.concat(several, " "), lone, (table.concat(one, " "):gsub("= %$v", "= $v[1]"))),
    check = format("if choices$i[$v] == nil and not (%s) and not (%s) then\n"
      .. "  if %s then $v = $v[1] else T.bad(sig, $i, $v) end\n  end", WHOLE, as_list, lone),
  })
end

for n = 2, 3 do -- sizes; moth.none keeps the size of the input
  local every, parts, stores = {}, {}, {}
  for j = 1, n do
    local v, k = format("$v[%d]", j), j == 1 and "$k" or "$k" .. j - 1
    local integers = WHOLE:gsub("%$v", v)
    every[j] = format("s[%s].integer = $v", k)
    parts[j] = format("(%s == none or %s)", v, integers)
    stores[j] = format("if %s == none then s[%s].integer = NO_INT\n  elseif %s then "
      .. "s[%s].integer = %s\n  else T.bad(sig, $i, $v) end", v, k, integers, k, v)
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

-- The code that fills a list's buffer, or another buffer if the list is too long.
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
ints("shape", "sizes are needed, integers in a row or in a list", "fill_ints", {collects = true})
ints("dims", "a dimension or a list of them is needed", "fill_dims", {zero = "dimensions"})

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

add("any", {need = "a value is needed", table = true,
  check = "if $v == nil then T.bad(sig, $i, $v) end"})
add("object", {need = "an object is needed", -- never a plain table, which is a list of arguments
  check = "if $v == nil then T.bad(sig, $i, $v) end"})
add("string", {need = "a string is needed",
  check = 'if type($v) ~= "string" then T.bad(sig, $i, $v) end'})
add("function", {need = "a function is needed",
  check = "if not T.is_callable($v) then T.bad(sig, $i, $v) end"})
add("map", {need = "a table is needed", table = true, map = true,
  check = 'if type($v) ~= "table" or $v == none then T.bad(sig, $i, $v) end'})
add("data", {need = "numbers, booleans, tensors or nested lists of them are needed",
  table = true, collects = true,
  check = "if not T.is_data($v) then T.bad(sig, $i, $v) end"})
add("modules", {need = "a list of modules is needed", table = true, collects = true,
  check = "if not T.is_row($v) then T.bad(sig, $i, $v) end"})
add("params", {need = "a list of parameters is needed, such as net:parameters()",
  table = true, collects = true, -- also a function: net:named_parameters()
  check = 'if not T.is_row($v) and type($v) ~= "function" then T.bad(sig, $i, $v) end'})

-- ---- lookups ----

--- The row of a kind and whether the kind may be absent: kinds.find("tensor?").
function kinds.find(name)
  if list[name] then return list[name], false end
  local bare = name:match("^(.*)%?$") or name:match("^maybe_(.*)$")
  return list[bare], bare ~= nil
end

return kinds
