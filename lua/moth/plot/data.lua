--- data.lua -- reads what is plotted: tensors and lists of numbers as series, and the arguments of
-- the functions of moth.plot.

local calls = require "moth.binding.calls"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local scope = require "moth.tensor.scope"

local data = {}

local is_plain, istensor = lib.is_plain, lib.istensor

-- ---- numbers ----

local tensor_list = scope.inside(function(x)
  local moth = require "moth"
  return (x:detach():cpu():to(moth.float64):tolist())
end)

--- A vector as a list of numbers.
-- @param value  a tensor of one dimension, or a list of numbers and tensors of one element
function data.numbers(value, fname, name)
  if istensor(value) then
    if value:dim() == 0 then value = value:view(1) end
    if value:dim() ~= 1 then
      errors.argument(fname, name, "a vector is needed, got " .. errors.describe(value), "E_SHAPE")
    end
    return tensor_list(value)
  elseif not is_plain(value) then
    errors.refuse(fname, name, "a tensor or a list of numbers is needed", value, "E_TYPE")
  end
  local list = {}
  for i, x in ipairs(calls.whole_list(fname, name, value)) do
    if istensor(x) and x:numel() == 1 then x = x:item() end
    list[i] = tonumber(x)
    if type(list[i]) ~= "number" or type(x) == "string" then
      errors.argument(fname, name, ("element %d is %s, not a number"):format(i,
        errors.describe(x)), "E_TYPE")
    end
  end
  return list
end

local function counted(n)
  local list = {}
  for i = 1, n do list[i] = i end
  return list
end

local function is_numbers(value)
  return istensor(value) or is_plain(value) and (#value == 0 or type(value[1]) == "number"
    or istensor(value[1]) and value[1]:numel() == 1 or type(value[1]) == "cdata"
    and not istensor(value[1]))
end

local function pair(list, name, x, y, fname)
  y = data.numbers(y, fname, "y")
  x = x and data.numbers(x, fname, "x") or counted(#y)
  if #x ~= #y then
    errors.argument(fname, "x", ("%d values for %d values of y"):format(#x, #y), "E_SHAPE")
  end
  list[#list + 1] = {name = name, x = x, y = y}
end

-- Adds the series of one value: a vector, a matrix (a series for each column), {x = , y = } or
-- {step = , value = }.
local function add(list, name, value, x, fname)
  if istensor(value) and value:dim() == 2 then
    for k = 1, value:size(2) do
      pair(list, ("%s%d"):format(name and name .. "." or "", k), x, value:select(2, k), fname)
    end
  elseif is_plain(value) and value.y ~= nil then
    pair(list, name, value.x or x, value.y, fname)
  elseif is_plain(value) and value.step ~= nil and value.value ~= nil then
    pair(list, name, value.step, value.value, fname)
  else
    pair(list, name, x, value, fname)
  end
end

--- The series of the arguments: a list of {name, x, y}.
-- @param y      a vector, a matrix, a list of these, or a table of names to these
-- @param x      the positions on the x axis; nil: 1, 2, ...
-- @param named  further series: name -> value
function data.series(y, x, named, fname)
  local list = {}
  if is_plain(y) and not is_numbers(y) and y.y == nil and (y.step == nil or y.value == nil) then
    for i, value in ipairs(y) do add(list, tostring(i), value, x, fname) end
    local rest = {}
    for name, value in pairs(y) do
      if type(name) == "string" then rest[name] = value end
    end
    named = next(rest) and rest or named
  elseif y ~= nil then
    add(list, nil, y, x, fname)
  end
  local names = {}
  for name in pairs(named or {}) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do add(list, name, named[name], x, fname) end
  if #list == 0 then
    errors.argument(fname, "y", "there is nothing to draw: a tensor, a list of numbers or named "
      .. "series are needed", "E_TYPE")
  end
  return list
end

-- ---- arguments ----

-- A table of arguments: f{y, title = "t", train = a}; not {step = , value = }, which is data.
local function is_named(value, options)
  if not is_plain(value) then return false end
  local named = false
  for key in pairs(value) do
    if options[key] then return true end
    named = named or type(key) == "string"
  end
  if named then return value.step == nil or value.value == nil end
  return type(value[1]) ~= "number" and #value > 0 and #value <= 2 and not is_plain(value[1])
end

--- Reads the arguments of a function: f(y), f(x, y), both with a table of options as the last
-- argument, or all in one table.
-- @param options  set of the names of options
-- @param name     the name of the first value
-- @return the first and the second value (nil if absent), options, and series by name
function data.arguments(options, name, ...)
  local n = select("#", ...)
  local values, given, named = {...}, {}, nil
  local last = values[n]
  if n >= 1 and is_named(last, options) then
    values[n], n = nil, n - 1
    for key, value in pairs(last) do
      if type(key) ~= "string" then
        if n == 0 then values[key] = value end
      elseif key == name then
        values[1] = value
      elseif options[key] or istensor(value) == false and type(value) ~= "table" then
        given[key] = value
      else
        named = named or {}
        named[key] = value
      end
    end
  end
  return values[1], values[2], given, named
end

return data
