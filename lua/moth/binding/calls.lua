--- calls.lua -- helpers that the generated functions of ops and of define.lua call: they tell a
-- list of arguments from a value, copy values into buffers, and raise errors.

local errors = require "moth.error"
local lib = require "moth.binding.lib"
local size = require "moth.tensor.size"

local ffi = require "ffi"
local format = string.format

local calls = {}

--- Passed in the place after the last argument: tables are sorted already.
calls.RESOLVED = {}
--- The same, and a collection has been tried.
calls.AGAIN = {}

--- Returns what it is given. `return T.results(f(x))` keeps the frame, which stack.lua reads;
-- `return f(x)` drops it.
function calls.results(...) return ... end

--- How many numbers one call may take in place of tensors.
calls.OPERANDS = 4

--- What an ignore_index of 0 becomes, and what targets hold in its place: a number that no position
-- is. The core counts from 0.
calls.NOTHING = -2 ^ 53

-- ---- values; all but fill_long allocate nothing ----

local USUAL = 64

--- How many numbers the buffer of a list has room for; calls.fill_long takes longer lists.
calls.USUAL = USUAL

--- Whether a value is a number without fraction, of at most 2^53.
local function whole(v)
  return type(v) == "number" and v % 1 == 0 and v <= 2 ^ 53 and v >= -2 ^ 53
end
calls.whole = whole

--- Whether a value is a plain table or a Size: a module or a dataset is no list of integers, even
-- an empty one.
local function is_list(v)
  return type(v) == "table" and (getmetatable(v) == nil or size.is(v))
end
calls.is_list = is_list

--- Whether a value stands behind the end of a list, {2, nil, 3} has the length 1, or before its
-- beginning, as of one that counts from 0. Looks a few places ahead; the length is given.
function calls.has_hole(v, n)
  return type(rawget(v, n + 2)) ~= "nil" or type(rawget(v, n + 3)) ~= "nil"
    or type(rawget(v, n + 4)) ~= "nil" or type(rawget(v, 0)) ~= "nil"
end

--- What is wrong with a table as a list, for a message: "value 2 is nil", or that it counts from 0;
-- nil where it is one.
function calls.gap(v)
  if rawget(v, 0) ~= nil then return "lists count from 1, and this one has an element 0" end
  local n = #v
  for i = 1, n do
    if rawget(v, i) == nil then return format("value %d is nil", i) end
  end
  return calls.has_hole(v, n) and format("value %d is nil", n + 1) or nil
end

--- Raises if a plain table has such a gap. @return the table
function calls.whole_list(fname, argname, v)
  local text = lib.is_plain(v) and calls.gap(v)
  if text then errors.argument(fname, argname, text, "E_TYPE") end
  return v
end

--- Whether a value may be a list: a table, if a plain one then without gaps.
function calls.is_row(v)
  return type(v) == "table" and not (lib.is_plain(v) and calls.gap(v))
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
  if calls.has_hole(v, n) then return nil end
  return n
end

--- Reads a number or a list of them into a buffer of doubles; the count, or nil.
-- @param room  how many the buffer takes, if not USUAL
function calls.fill_floats(buffer, v, room)
  if type(v) == "number" then
    buffer[0] = v
    return 1
  end
  if not is_list(v) or #v > (room or USUAL) or calls.has_hole(v, #v) then return nil end
  for j = 1, #v do
    if type(v[j]) ~= "number" then return nil end
    buffer[j - 1] = v[j]
  end
  return #v
end

--- Reads an integer or a list of them into an int64_t buffer; the count, or nil.
function calls.fill_ints(buffer, v, room)
  if type(v) == "number" then
    return put_int(buffer, 0, v) and 1 or nil
  end
  return (put_list(buffer, v, put_int, room))
end

--- The same for dimensions, which count from 1.
function calls.fill_dims(buffer, v, room)
  if type(v) == "number" then
    return put_dim(buffer, 0, v) and 1 or nil
  end
  return (put_list(buffer, v, put_dim, room))
end

-- Buffers by the number of the argument, each held until the next long list.
local long = {} -- luacheck: ignore 241

--- Reads a list that is too long for an argument's buffer into one of its own.
-- @param i     the argument's number
-- @param fill  what reads it: fill_ints, fill_dims or fill_floats
-- @return the buffer and the count, or nil
function calls.fill_long(i, v, fill)
  if type(v) ~= "table" or #v <= USUAL then return nil end
  local buffer = fill == calls.fill_floats and lib.doubles(#v) or lib.int64s(#v)
  local n = fill(buffer, v, #v)
  if not n then return nil end
  long[i] = buffer
  return buffer, n
end

--- Copies the handles of a list into a buffer; `false` stands for none. The count, or nil.
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

--- Whether a value is a list of tensors.
function calls.is_tensors(v)
  if type(v) ~= "table" or (#v == 0 and getmetatable(v) ~= nil) then return false end
  for j = 1, #v do
    if not lib.istensor(v[j]) then return false end
  end
  return not calls.has_hole(v, #v)
end

--- Whether a value can be called.
function calls.is_callable(v)
  if type(v) == "function" then return true end
  local meta = type(v) == "table" and getmetatable(v)
  return type(meta) == "table" and meta.__call ~= nil
end

--- The state of a generator: a tensor, or what a moth.Generator keeps; nil if it is neither.
function calls.state_of(v)
  if lib.istensor(v) then return v end
  local state = type(v) == "table" and getmetatable(v) ~= nil and v.state
  return lib.istensor(state) and state or nil
end

--- Whether a value may be the elements of a tensor.
function calls.is_data(v)
  local kind = type(v)
  return kind == "number" or kind == "boolean" or kind == "table" or lib.istensor(v)
    or ffi.istype(lib.int64, v)
end

-- ---- lists of arguments ----

-- ---- which table is a list of arguments ----
-- The kinds of the arguments decide, not looks:
--   (a) a table with a metatable is never a list of arguments;
--   (b) nor is what a parameter of kind map is given;
--   (c) shape, tensors, modules and params collect: the whole array part is their value, unless
--       its first element is a plain table, which then is the value, the others following;
--   (d) a lone plain table is the list of arguments if it has a string key or if the first
--       parameter cannot be a table (in a method, the first one after the tensor);
--   (e) a last plain table with a string key holds named arguments, and may go on with positional
--       ones in its array part;
--   (f) a shape also comes as integers in a row.

--- What sorts the tables that a function is given, written at the first of them.
function calls.tables(sig, run)
  local text = require("moth.binding.forms").tables(sig)
  return assert(lib.loadstring(text, "=[moth.tables]"))(sig, calls, run)
end

-- Whether an empty table is meant, or mistaken, for the value of an argument. Elsewhere it is a
-- list of options of which none is given.
local function may_be_table(arg)
  return arg.required or arg.row.table or arg.row.collects
end

--- Whether the last value given, t in position `at`, is a list of arguments.
function calls.is_arguments(sig, t, at)
  if type(t) ~= "table" or getmetatable(t) ~= nil then return false end
  local arg = sig.args[at]
  if arg and arg.row.map then return false end
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

--- For a collecting argument: whether the first element of a table is its value, not the table.
function calls.first_is_value(arg, first)
  if type(first) ~= "table" or arg.row.name == "data" then return false end
  if arg.row.name == "shape" then return true end
  if getmetatable(first) ~= nil then return false end
  return not (arg.row.name == "params" and first.params ~= nil)
end

--- The array part of a table, which may have names as well.
-- The first values behind a hole come along, so that it is seen.
function calls.array(t)
  local list, n = {}, #t
  for i = 1, n do list[i] = t[i] end
  if calls.has_hole(t, n) then errors.raise(calls.gap(t), "E_TYPE") end
  return list
end

-- What few calls need is in a file of its own: errors, `out`, tensors in the place of numbers.
return setmetatable(calls, {
  __index = function(_, name) return require("moth.binding.misused")[name] end,
})
