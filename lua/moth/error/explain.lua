--- explain.lua -- explains why the value of an argument is wrong; loaded at the first such error.

local calls = require "moth.binding.calls"
local device = require "moth.tensor.device"
local dtype = require "moth.tensor.dtype"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local format, floor = string.format, math.floor

local function choices_text(arg)
  local names = {}
  for j, name in ipairs(arg.choices) do names[j] = "'" .. name .. "'" end
  return table.concat(names, ", ")
end

-- The probable reason for a tensor where none is needed.
local function explain_tensor(fname)
  if fname and fname:find "^%u" and pcall(function() return require("moth.nn")[fname] end) then
    return format("nn.%s(...) makes a module; that is then called with tensors)", fname)
  end
  return "a second result passed on? wrap the call in parentheses)"
end
local SINGLE = {bool = true, int = true, float = true, enum = true, dim = true, position = true,
                scalar = true, dtype = true, device = true, string = true}

local function explain_enum(arg, value, fname)
  local need = "one of " .. choices_text(arg) .. " is needed"
  if arg.row.numbers then need = arg.row.need .. " or " .. need end
  if type(value) ~= "string" then return need .. ", got " .. errors.describe(value), "E_TYPE" end
  local path = format("arguments.%s.%s", fname, arg.name)
  local hint = require("moth.error.instead").row(path, value)
  return format("%s, got '%s'%s", need, value, hint and "; " .. hint
    or errors.nearest(value, arg.choices)), "E_ARG"
end

local function explain_list(arg, value)
  for j = 1, #value do
    local x = rawget(value, j)
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
end

local function explain_name(arg, value)
  if arg.row.name == "device" then
    return device.missing(value), "E_DEVICE"
  end
  local known = dtype.by_name[value:match("^[a-z]+%.(.*)$") or value]
  return arg.row.need .. format(", got a string ('%s')", value)
    .. (known and "; write " .. tostring(known) or ""), "E_TYPE"
end

--- The reason why a value does not suit an argument.
-- @param arg    the argument: row (its kind), choices, ...
-- @param value  the value; nil: no value was passed
-- @param fname  the function's name, if known
-- @return the text for a message and its code
return function(arg, value, fname)
  local row = arg.row
  local name = row.name
  if row.choices and value ~= nil and not lib.istensor(value) then
    return explain_enum(arg, value, fname)
  end
  local need = row.choices and "one of " .. choices_text(arg) .. " is needed" or row.need
  if value == nil then
    local what = arg.hint or name == "any" and arg.doc and ": " .. arg.doc or ""
    return need .. ", got nothing" .. what, "E_ARG"
  end
  if row.zero and type(value) == "number" and value == 0 then
    return row.zero .. " count from 1, got 0", "E_INDEX"
  end
  if device.is(value) and name == "device" then return device.missing(value), "E_DEVICE" end
  if type(value) == "string" and (name == "device" or name == "dtype") then
    return explain_name(arg, value)
  end
  if calls.is_list(value) and (row.buffer or row.collects) then
    local text, code = calls.gap(value), "E_TYPE"
    if not text and row.buffer then text, code = explain_list(arg, value) end
    if text then return text, code end
  end
  local text = errors.unwanted(need, value)
  if need:find "a list of" and lib.is_plain(value) and #value == 1 and lib.is_plain(value[1]) then
    text = text .. "; take one pair of braces away"
  end
  if lib.istensor(value) and SINGLE[name] then
    local number = row.need:find "number" and text:find "%(%)$" -- the tensor may have been released
    text = text .. (number and " (x:item() is its number; " or " (")
      .. explain_tensor(fname)
  end
  local number = type(value) == "number" and need:find("integer")
  if number and value == floor(value) and math.abs(value) >= 2 ^ 53 and value - value == 0 then
    text = format("%s, got %.17g, which is beyond 2^53", need, value)
  end
  return text, number and "E_ARG" or "E_TYPE"
end
