--- forms.lua -- lists the ways to write a call, from the kinds of its arguments.

local forms = {}

function forms.isplain(v) return type(v) == "table" and getmetatable(v) == nil end

local function copy(t)
  local c = {}
  for k, v in pairs(t) do c[k] = v end
  return c
end

local function haskey(t)
  for k in pairs(t) do if type(k) == "string" then return true end end
  return false
end

--- An example's arguments by position: named arguments and sizes in a row are put in place.
-- @return a table with holes
function forms.positional(op, arguments)
  local given, k = {}, 1
  local last = arguments.n
  local names
  if last > 0 and forms.isplain(arguments[last]) and haskey(arguments[last]) then
    names, last = arguments[last], last - 1
  end
  for i = 1, last do
    local arg = op.args[k]
    if arg.kind == "shape" and type(arguments[i]) == "number" then
      given[k] = given[k] or {}
      table.insert(given[k], arguments[i])
      if type(arguments[i + 1]) ~= "number" then k = k + 1 end
    else
      given[k] = arguments[i]
      k = k + 1
    end
  end
  for name, value in pairs(names or {}) do
    for i, arg in ipairs(op.args) do
      if arg.name == name then given[i] = value end
    end
    if type(name) == "number" then given[name] = value end
  end
  return given
end

--- By name.
function forms.named(op, given)
  local names = {}
  for i, arg in ipairs(op.args) do names[arg.name] = given[i] end
  return names
end

local COLLECTS = { shape = true, tensors = true, indices = true }
local ROW_BLOCKERS = { int = true, ["int?"] = true, float = true, scalar = true, element = true,
                       dim = true }

-- The number of leading arguments without a hole.
local function run_length(op, given)
  local n = 0
  while n < #op.args and given[n + 1] ~= nil do n = n + 1 end
  return n
end

local function rest_names(op, given, from)
  local names, any = {}, false
  for i = from, #op.args do
    if given[i] ~= nil then
      names[op.args[i].name] = given[i]
      any = true
    end
  end
  return any and names or nil
end

-- f(a, b, {c = ...}): the first n by position.
local function trailing(op, given, n)
  local list = {}
  for i = 1, n do list[i] = given[i] end
  local names = rest_names(op, given, n + 1)
  if names then list[n + 1] = names end
  return { n = names and n + 1 or n, unpack(list, 1, n + 1) }
end

-- f{a, b, c = ...}: one table; an argument that takes the rest takes the whole array part.
local function one_table(op, given, first, n)
  local t = rest_names(op, given, n + 1) or {}
  local arg = op.args[first]
  if arg and COLLECTS[arg.kind] then
    if n > first then -- the first element is the value, the rest follow
      for i = first, n do t[i - first + 1] = given[i] end
      return t
    end
    for i, v in ipairs(given[first]) do t[i] = v end
    return t
  end
  for i = first, n do t[i - first + 1] = given[i] end
  return t
end

local TABLE = { tensors = true, index = true, ["index?"] = true, indices = true, int1 = true,
  int2 = true, int3 = true, ["int2?"] = true, ["int3?"] = true, ["int1-or-enum"] = true,
  ["int2-or-enum"] = true, ["int3-or-enum"] = true,
  floats = true, ints = true, shape = true, dims = true }

--- All ways to write one call: list of {name, method (call it as x:name(...)), arguments}.
function forms.all(op, given)
  local list, run = {}, run_length(op, given)
  local function add(name, arguments, method)
    list[#list + 1] = { name = name, arguments = arguments, method = method }
  end
  for n = 0, run do add("f(" .. n .. " by position, {...})", trailing(op, given, n)) end
  local names = forms.named(op, given)
  if next(names) ~= nil then add("f{name = ...}", { n = 1, copy(names) }) end
  for n = 1, run do
    local t = one_table(op, given, 1, n)
    local first = op.args[1]
    local lone = haskey(t) or not TABLE[first.kind] or COLLECTS[first.kind]
    if lone and (n == run or not COLLECTS[first.kind] or n == 1) then
      add("f{" .. n .. " by position, name = ...}", { n = 1, t })
    end
  end
  if op.args[1] and op.args[1].kind == "shape" and forms.isplain(given[1]) and #given[1] > 0
    and not (op.args[2] and ROW_BLOCKERS[op.args[2].kind]) then
    local row = { unpack(given[1]) }
    local rest = rest_names(op, given, 2)
    row[#row + 1] = rest
    add("f(sizes in a row)", { n = #row, unpack(row) })
  end
  if op.method and given[1] ~= nil and not forms.isplain(given[1]) then
    for n = 1, run do
      local t = trailing(op, given, n)
      add("x:f(" .. n - 1 .. " by position, {...})", { n = t.n - 1, unpack(t, 2, t.n) }, given[1])
      if n > 1 then
        t = one_table(op, given, 2, n)
        local second = op.args[2]
        if haskey(t) or not TABLE[second.kind] or (COLLECTS[second.kind] and n == 2) then
          add("x:f{" .. n - 1 .. " by position, name = ...}", { n = 1, t }, given[1])
        end
      end
    end
  end
  return list
end

return forms
