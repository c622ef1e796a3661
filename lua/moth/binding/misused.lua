--- misused.lua -- the rarely used part of calls.lua: errors of a call that does not match its
-- signature, bounds of numbers, `out`, and tensors as numbers.

local errors = require "moth.error"
local lib = require "moth.binding.lib"

local format = string.format

local misused = {}

local function names_of(sig)
  local names = {}
  for i, arg in ipairs(sig.args) do names[i] = arg.name end
  return names
end

-- The only name that begins or ends with the written word, else the nearest name.
local function meant(name, names)
  local word, found = tostring(name):gsub("%W", "%%%0"), nil
  for _, known in ipairs(names) do
    if known:find("^" .. word .. "_") or known:find("_" .. word .. "$") then
      if found then return errors.nearest(name, names) end
      found = known
    end
  end
  return found and format("; did you mean '%s'?", found) or errors.nearest(name, names)
end

-- The call with its argument order, for functions whose arguments are easily swapped; else "".
local function order_of(sig)
  local record = rawget(sig, "record")
  return record and record.order and "; the order is " .. record.order or ""
end

--- Raises: there is no argument with that name.
function misused.unknown(sig, name)
  local hint = sig.name and require("moth.error.instead").row("arguments." .. sig.name,
    tostring(name)) -- a layer's call has no name
  errors.raise(format("'%s' has no argument '%s'%s%s", sig.name, name,
    hint and "; " .. hint or meant(name, names_of(sig)), order_of(sig)))
end

local PASSED_ON = " (a second result passed on? wrap the call in parentheses"

--- Raises: too many arguments. `out` has no position and is passed by name only: otherwise a second
-- result that was passed on by mistake would be overwritten.
function misused.extra(sig, value)
  local out = sig.index.out
  local n = #sig.args - (out and 1 or 0)
  local hint = ""
  if lib.istensor(value) then
    hint = PASSED_ON .. (out and "; an output is given by name, {out = y})" or ")")
  end
  errors.raise(format("'%s' takes %d argument%s%s, got one more: %s%s", sig.name, n,
    n == 1 and "" or "s", out and " by position" or "", errors.describe(value), hint))
end

--- Raises: an argument is passed by position and by name.
function misused.twice(sig, i)
  errors.argument(sig.name, sig.args[i].name, "given twice, by position and by name")
end

--- Raises: value v does not suit argument i.
function misused.bad(sig, i, v)
  local text, code = require("moth.error.explain")(sig.args[i], v, sig.name)
  if type(v) == "number" and not sig.row then -- perhaps separate sizes, where a list is needed
    for j = sig.lone, i - 1 do
      if sig.args[j].row.name == "shape" then
        text = format("%s; '%s' is one list here, as {2, 3}", text, sig.args[j].name)
      end
    end
  end
  if i == 1 and type(v) == "nil" and sig.method then
    text = format("%s; called by '.'? a method is called with ':', as x:%s()", text, sig.name)
  end
  if type(v) ~= "nil" then text = text .. order_of(sig) end
  errors.argument(sig.name, sig.args[i].name, text, code)
end

--- Raises: required argument i is missing. If an earlier argument has the wrong kind, such as a
-- name in place of a dimension, the message names that argument.
function misused.missing(sig, i, ...)
  for k = 1, i - 1 do
    local kind, v = sig.args[k].row.name, (select(k, ...))
    if (kind == "dim" or kind == "int") and type(v) ~= "number" then misused.bad(sig, k, v) end
  end
  misused.bad(sig, i, nil)
end

--- Raises unless a number, or each number of a list, is within the bounds of argument i.
function misused.within(sig, i, v)
  local arg = sig.args[i]
  local least, most, open = arg.bounds[1], arg.bounds[2], arg.bounds.open
  for _, x in ipairs(type(v) == "table" and v or {v}) do
    if type(x) == "number" and not (x >= least and (not most or x <= most)
        and not (open and x == least)) then
      local upwards = most and format(" to %.14g", most) or open and "" or " on"
      errors.argument(sig.name, arg.name, format("a number %s %.14g%s is needed, got %s",
        open and "above" or "from", least, upwards, errors.describe(v)), "E_DOMAIN")
    end
  end
end

--- The data of {1, 2, dtype = ...}: the array part of a table with names. Raises for a single list
-- in it: the list could be the data, or the first row.
function misused.data(sig, at, t)
  local list = require("moth.binding.calls").array(t)
  if #list == 1 and type(list[1]) == "table" and getmetatable(list[1]) == nil then
    errors.argument(sig.name, sig.args[at].name, ("one list with named arguments may be the data "
      .. "or a row of it; write moth.%s(list, {...})"):format(sig.name), "E_TYPE")
  end
  return list
end

--- Raises: the argument of moth.define is no record of a function.
function misused.record(record)
  local wanted, got, needed = "record", record, "a table is needed"
  if type(record) == "table" then
    wanted, got, needed = "args", record.args, "a list of arguments is needed"
    if type(record.name) ~= "string" then
      wanted, got, needed = "name", record.name, "a string is needed"
    end
  end
  errors.refuse("define", wanted, needed, got, "E_TYPE")
end

--- Raises: a nil among separate sizes, or among the elements of a table.
function misused.hole(sig, i, n)
  errors.argument(sig.name, sig.args[i].name, format("value %d is nil", n), "E_TYPE")
end

--- Raises for numbers in a single table where one operand is needed, x:sub({0.5, 0.2}): the second
-- number would be alpha, or too many. For an op with two operands, x:clamp{0, 1}, they are the
-- operands.
function misused.refuse_numbers(sig, t, at)
  local arg, after = sig.args[at], sig.args[at + 1]
  local next = after and after.row.name
  if arg.row.name == "number" and type(t[1]) == "number" and type(t[2]) == "number"
    and next ~= "number" and next ~= "float" then
    errors.argument(sig.name, arg.name, "a list of numbers is no operand; write moth.tensor"
      .. errors.describe(t), "E_TYPE")
  end
end

--- The number in a 0-d tensor if argument i accepts one; raises for other values.
function misused.number_of(sig, i, v) return (require("moth.binding.item")(sig, i, v)) end

--- Runs a function with positional arguments and writes its results to `out`.
function misused.into(...) return require("moth.binding.out").into(...) end

return misused
