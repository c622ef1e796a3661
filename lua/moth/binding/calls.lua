--- calls.lua -- helpers that the generated functions of ops and of define.lua call: they tell a
-- list of arguments from a value, copy values into buffers, and raise errors.

local errors = require "moth.error"
local lib = require "moth.binding.lib"
local size = require "moth.tensor.size"

local ffi = require "ffi"
local format = string.format

local calls = {}

--- Passed after the last argument: tables of arguments are already sorted into positions.
calls.RESOLVED = {}
--- Like RESOLVED; a collection has also been tried.
calls.AGAIN = {}

--- Returns its arguments. `return T.results(f(x))` keeps the frame, which stack.lua reads; `return
-- f(x)` drops the frame.
function calls.results(...) return ... end

--- The largest number of tensor arguments of one call that may be numbers.
calls.OPERANDS = 4

--- The core's value for an ignore_index of 0, and for the targets of that value. The core counts
-- from 0, so 0 would be a position; this number is never one.
calls.NOTHING = -2 ^ 53

-- ---- values: only fill_long allocates ----

local USUAL = 64

--- The capacity of a list's buffer; calls.fill_long reads longer lists.
calls.USUAL = USUAL

--- Returns true for an integer with an absolute value of at most 2^53.
local function whole(v)
  return type(v) == "number" and v % 1 == 0 and v <= 2 ^ 53 and v >= -2 ^ 53
end
calls.whole = whole

--- Returns true for a plain table or a Size. A module or a dataset is no list of integers, even if
-- it is empty.
local function is_list(v)
  return type(v) == "table" and (getmetatable(v) == nil or size.is(v))
end
calls.is_list = is_list

--- Returns true if a list has a value after its end ({2, nil, 3} has the length 1) or before its
-- beginning (a list that counts from 0). Checks a few places after the length n.
function calls.has_hole(v, n)
  return type(rawget(v, n + 2)) ~= "nil" or type(rawget(v, n + 3)) ~= "nil"
    or type(rawget(v, n + 4)) ~= "nil" or type(rawget(v, 0)) ~= "nil"
end

--- The reason why a table is no list, for a message: "value 2 is nil", or that it counts from 0;
-- nil if it is a list.
function calls.gap(v)
  if rawget(v, 0) ~= nil then return "lists count from 1, and this one has an element 0" end
  local n = #v
  for i = 1, n do
    if rawget(v, i) == nil then return format("value %d is nil", i) end
  end
  return calls.has_hole(v, n) and format("value %d is nil", n + 1) or nil
end

--- Raises if a plain table is no list. @return the table
function calls.whole_list(fname, argname, v)
  local text = lib.is_plain(v) and calls.gap(v)
  if text then errors.argument(fname, argname, text, "E_TYPE") end
  return v
end

--- Returns true if a value may be a list: a table; a plain one must have no gaps.
function calls.is_row(v)
  return type(v) == "table" and v ~= lib.none and not (lib.is_plain(v) and calls.gap(v))
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

-- Lists of up to four numbers are copied without a loop: LuaJIT tries many times in vain to compile
-- a loop of few rounds inside the user's loop.
local function put_list(buffer, v, put, capacity)
  if not is_list(v) then return nil end
  local n = #v
  if n > (capacity or USUAL) then return nil end
  local fine = (n < 1 or put(buffer, 0, v[1])) and (n < 2 or put(buffer, 1, v[2]))
    and (n < 3 or put(buffer, 2, v[3])) and (n < 4 or put(buffer, 3, v[4]))
  if not fine then return nil end
  if n > 4 then
    for j = 5, n do
      if not put(buffer, j - 1, v[j]) then return nil end
    end
  end
  if calls.has_hole(v, n) then return nil end
  return n
end

--- Reads a number or a list of numbers into a buffer of doubles. Returns the count, or nil.
-- @param capacity  of the buffer; default USUAL
function calls.fill_floats(buffer, v, capacity)
  if type(v) == "number" then
    buffer[0] = v
    return 1
  end
  if not is_list(v) or #v > (capacity or USUAL) or calls.has_hole(v, #v) then return nil end
  for j = 1, #v do
    if type(v[j]) ~= "number" then return nil end
    buffer[j - 1] = v[j]
  end
  return #v
end

--- Reads an integer or a list of integers into an int64_t buffer. Returns the count, or nil.
function calls.fill_ints(buffer, v, capacity)
  if type(v) == "number" then
    return put_int(buffer, 0, v) and 1 or nil
  end
  return (put_list(buffer, v, put_int, capacity))
end

--- Like fill_ints, for dimensions, which count from 1.
function calls.fill_dims(buffer, v, capacity)
  if type(v) == "number" then
    return put_dim(buffer, 0, v) and 1 or nil
  end
  return (put_list(buffer, v, put_dim, capacity))
end

-- Buffers by argument number. Each lives until the next long list for that argument.
local long = {} -- luacheck: ignore 241

--- Reads a list that is too long for an argument's buffer into a new buffer.
-- @param i     the argument's number
-- @param fill  the function that reads it: fill_ints, fill_dims or fill_floats
-- @return the buffer and the count, or nil
function calls.fill_long(i, v, fill)
  if type(v) ~= "table" or #v <= USUAL then return nil end
  local buffer = fill == calls.fill_floats and lib.doubles(#v) or lib.int64s(#v)
  local n = fill(buffer, v, #v)
  if not n then return nil end
  long[i] = buffer
  return buffer, n
end

--- Copies the handles of a list into a buffer; `false` means no tensor. Returns the count, or nil.
function calls.fill_handles(buffer, v)
  if type(v) ~= "table" then return nil end
  local n = #v
  if n == 0 and getmetatable(v) ~= nil then return nil end
  for j = 1, n do
    local x = v[j]
    if x == false then x = lib.NONE
    elseif not lib.istensor(x) then return nil end
    buffer[j - 1] = x
  end
  if calls.has_hole(v, n) then return nil end
  return n
end

--- Returns true if a value is a list of tensors.
function calls.is_tensors(v)
  if type(v) ~= "table" or (#v == 0 and getmetatable(v) ~= nil) then return false end
  for j = 1, #v do
    if not lib.istensor(v[j]) then return false end
  end
  return not calls.has_hole(v, #v)
end

--- Returns true if a value can be called.
function calls.is_callable(v)
  if type(v) == "function" then return true end
  local meta = type(v) == "table" and getmetatable(v)
  return type(meta) == "table" and meta.__call ~= nil
end

--- The state of a generator: a tensor, or the state inside a moth.Generator; nil for other values.
function calls.state_of(v)
  if lib.istensor(v) then return v end
  local state = type(v) == "table" and getmetatable(v) ~= nil and v.state
  return lib.istensor(state) and state or nil
end

--- Returns true if a value may be the elements of a tensor.
function calls.is_data(v)
  local kind = type(v)
  return kind == "number" or kind == "boolean" or kind == "table" or lib.istensor(v)
    or ffi.istype(lib.int64, v)
end

-- ---- lists of arguments ----

-- ---- when a table is a list of arguments ----
-- The kinds of the parameters decide, not the table's content:
--   (a) a table with a metatable is never a list of arguments;
--   (b) a value for a parameter of kind map, or with `map` in its row, is never one;
--   (c) shape, tensors, modules and params collect: their value is the whole array part. If its
--       first element is a plain table, that element is the value and the others follow it;
--   (d) a single plain table is the list of arguments if it has a string key or if the first
--       parameter cannot be a table (in a method: the first parameter after the tensor);
--   (e) a last plain table with a string key holds named arguments; its array part may hold
--       more positional arguments;
--   (f) a shape may also be integers as separate arguments.

--- The function that sorts a table of arguments into positions, generated at the first table.
function calls.tables(sig, run)
  local text = require("moth.binding.forms").tables(sig)
  return assert(lib.loadstring(text, "=[moth.tables]"))(sig, calls, run)
end

-- Returns true if an empty table is a value (perhaps a wrong one) for this argument. For other
-- arguments it is an empty list of options.
local function may_be_table(arg)
  return arg.required or arg.row.table or arg.row.collects
end

--- Returns true if the last argument, t in position `at`, is a list of arguments.
function calls.is_arguments(sig, t, at)
  if type(t) ~= "table" or getmetatable(t) ~= nil then return false end
  local arg = sig.args[at]
  if arg and (arg.row.map or arg.map) then return false end
  local index, named = sig.index, false
  for key in pairs(t) do
    if type(key) == "string" then
      if not index[key] and not (key == "out" and require("moth.binding.out").takes(sig)) then
        calls.unknown(sig, key)
      end
      named = true
    end
  end
  if named then return true end
  if at > 1 and next(t) == nil and not (arg and may_be_table(arg)) then return true end
  if at > sig.lone then return false end
  if not arg then return true end
  if at > 1 then calls.refuse_numbers(sig, t, at) end
  if arg.row.collects then return calls.first_is_value(arg, t[1]) end
  return not arg.row.table
end

--- For a collecting argument: returns true if its value is the table's first element, not the
-- table.
function calls.first_is_value(arg, first)
  if type(first) ~= "table" or arg.row.name == "data" then return false end
  if arg.row.name == "shape" then return true end
  if getmetatable(first) ~= nil then return false end
  return not (arg.row.name == "params" and first.params ~= nil)
end

--- The array part of a table, which may have string keys too. The first values after a gap are
-- included, so that the gap is detected.
function calls.array(t)
  local list, n = {}, #t
  for i = 1, n do list[i] = t[i] end
  if calls.has_hole(t, n) then errors.raise(calls.gap(t), "E_TYPE") end
  return list
end

-- Rarely used functions are in another file: errors, `out`, tensors as numbers.
return setmetatable(calls, {
  __index = function(_, name) return require("moth.binding.misused")[name] end,
})
