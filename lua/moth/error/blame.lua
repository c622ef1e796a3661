--- blame.lua -- translates an error of an inner function into the arguments of the function that
-- the user called; loaded at the first such error.
--
--     multi_margin_loss calls gather, which refuses its index:
--     bad argument 'target' to 'multi_margin_loss' (position 9 is out of range ...)
--
-- stack.lua finds both functions on the stack, with their arguments. The outer argument to blame
-- holds the refused value: the same object, a list with it, or a tensor that shares its memory. If
-- there is none, it is the argument with the same name and value.

local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx
local format = string.format

local info = require("ffi").new("moth_tensor_info")

local function storage_of(x)
  if not lib.istensor(x) or C.moth_inspect(ctx, x, info) < 0 then return nil end
  return info.storage
end

local function holds(list, value)
  if not lib.is_plain(list) then return false end
  for k = 1, #list do
    if rawequal(list[k], value) then return true end
  end
  return false
end

-- The first argument of a call for which `test` is true.
local function first(call, test)
  for i = 1, call.n do
    local value = call.values[i]
    if type(value) ~= "nil" and test(value, call.names[i]) then return call.names[i], value end
  end
end

local function is_object(value)
  local kind = type(value)
  return kind == "cdata" or kind == "table" or kind == "function"
end

-- The shape of a tensor as text, without its dtype.
local function shape_of(x) return lib.istensor(x) and tostring(x.shape) or nil end

-- The only tensor among the arguments that has the shape of `value`.
local function only_of_shape(call, value)
  local ok, shape = pcall(shape_of, value)
  if not ok or not shape then return nil end
  local name, found
  for i = 1, call.n do
    local x = call.values[i]
    local fine, other = pcall(shape_of, x)
    if fine and other == shape then
      if name then return nil end
      name, found = call.names[i], x
    end
  end
  return name, found
end

local function same(a, b)
  return a == b or (a ~= a and b ~= b)
end

-- The only argument that equals this number, string or boolean, or is a list with it.
local function only_equal(call, value)
  local name, found
  for i = 1, call.n do
    local v = call.values[i]
    if (type(v) == type(value) and same(v, value)) or holds(v, value) then
      if name then return nil end
      name, found = call.names[i], v
    end
  end
  return name, found
end

-- The argument that is an object, contains it, or shares its memory; and its value.
local function argument_with(outer, value)
  local name, given = first(outer, function(v) return rawequal(v, value) end)
  if name then return name, given end
  name, given = first(outer, function(v) return holds(v, value) end)
  if name then return name, given end
  local storage = storage_of(value)
  name, given = first(outer, function(v) return storage ~= nil and storage_of(v) == storage end)
  if name then return name, given end
  for k = 1, lib.is_plain(value) and #value or 0 do
    if is_object(value[k]) then
      name, given = argument_with(outer, value[k])
      if name then return name, given end
    end
  end
end

-- The tensor whose sizes are the numbers of a list.
local function argument_of_sizes(outer, list)
  local text = lib.is_plain(list) and errors.describe(list):gsub("^{", "("):gsub("}$", ")")
  return first(outer, function(v) return text and shape_of(v) == text end)
end

-- Returns true if one value is a list that contains only the other value, as {-1, -1} and -1.
local function list_of(list, value)
  if not lib.is_plain(list) or #list == 0 then return false end
  for k = 1, #list do
    if not same(list[k], value) then return false end
  end
  return true
end

-- The only tensor among the arguments.
local function only_tensor(call)
  local name, found
  for i = 1, call.n do
    if lib.istensor(call.values[i]) then
      if name then return nil end
      name, found = call.names[i], call.values[i]
    end
  end
  return name, found
end

-- The argument of the outer call that holds the inner call's argument `argname`, and its value.
local function argument_of(outer, value, argname, text)
  local name, given
  local number = lib.is_plain(value) and tonumber(text:match "^number (%d+) is ")
  if number and is_object(value[number]) then value = value[number] end
  if is_object(value) then
    name, given = argument_with(outer, value)
    if not name then name, given = only_of_shape(outer, value) end
    for k = 1, not name and lib.is_plain(value) and #value or 0 do
      local size = value[k] -- in a list of sizes: the negative one
      if type(size) == "number" and size < 0 then name, given = only_equal(outer, size) end
    end
    if not name then name, given = argument_of_sizes(outer, value) end
    if name then return name, given end
  end
  name, given = first(outer, function(v, known)
    if known ~= argname then return false end
    if type(value) == "nil" then return not lib.istensor(v) end -- the inner call has no frame
    return is_object(v) == is_object(value) and (is_object(v) or same(v, value))
      or list_of(value, v) or list_of(v, value)
  end)
  if name or is_object(value) or type(value) == "nil" then return name, given end
  return only_equal(outer, value)
end

--- The public name of an op. For a hidden op, which replays and backward passes run: the public
-- function.
local function public(op)
  local known = require("moth.binding.registry").public_name(op)
  if known then return known end
  return (op:gsub("^linalg_", ""):gsub("^special_", ""):gsub("_back$", ""):gsub("_slope$", ""))
end

local function is_function(value) return type(value) == "function" end

--- The text of an error with the outer function's arguments.
-- @param blame  {fname, argname, text}: the inner function's error; argname may be nil
-- @param inner  its call {name, names, values, n}, or nil if it has no frame
-- @param outer  the call of the function that the user called
-- @return the text, or nil to keep the inner function's error
local function translated(blame, inner, outer)
  local value
  for i = 1, inner and inner.n or 0 do
    if inner.names[i] == blame.argname then value = inner.values[i] end
  end
  local name, given = argument_of(outer, value, blame.argname, blame.text)
  if not name and type(value) ~= "number" and type(value) ~= "string" and not outer.plain then
    name, given = only_tensor(outer)
  end
  if not name and outer.values[1] == nil and blame.argname then -- an inherited constructor
    for _, known in ipairs(outer.names) do
      if known == blame.argname then name = known end
    end
  end
  if not name then
    -- The user may have called a class by its name in lower case: moth.progress.
    if outer.plain or outer.name:lower() == blame.fname:lower() then return nil end
    if first(outer, is_function) then return nil end -- it may have made the call: a loss
    return outer.name .. ": " .. blame.text
  end
  local text = blame.text
  if lib.istensor(value) and not rawequal(given, value) then
    local shown = errors.describe(given)
    if not text:find(shown, 1, true) then text = format("%s; %s is %s", text, name, shown) end
  end
  return format("bad argument '%s' to '%s' (%s)", name, outer.name, text)
end

return setmetatable({public = public}, {__call = function(_, ...) return translated(...) end})
