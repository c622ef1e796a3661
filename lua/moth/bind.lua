--- bind.lua -- from the registry's record of an op to the Lua function that calls it.
--
-- An op is written out at its first use as one straight-line function: every argument is checked
-- and stored where moth_call wants it, then comes the call. No varargs and no closures, so that
-- LuaJIT compiles the whole of it into the caller's loop. print(bind.text("add")) shows one.
--
-- What C reads of a call lies in buffers shared by all calls of the op. Between filling them and
-- the call itself the interpreter may collect garbage, and a finalizer may call an op. So every
-- call counts itself in `state.calls`; if the count has moved before moth_call, it starts over.

local ffi = require "ffi"
local bit = require "bit"
local alias = require "moth.alias"
local dtype = require "moth.dtype"
local errors = require "moth.error"
local forms = require "moth.forms"
local kinds = require "moth.kinds"
local lib = require "moth.lib"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local concat, format = table.concat, string.format
local loadstring = lib.loadstring

local bind = {}

local HIDDEN, MUTATES, LIST = C.MOTH_OP_HIDDEN, C.MOTH_OP_MUTATES, C.MOTH_OP_LIST
local NUMBERS = 512 -- MOTH_OP_NUMBERS
local FROM_ONE = 0x400000 -- MOTH_OP_FROM_ONE
local OPERANDS = 4 -- numbers that one call may take in place of tensors

local state = { calls = 0 }

-- ---- reading the registry ----

local function text_of(pointer) return pointer ~= nil and ffi.string(pointer) or "" end

local function choices_of(arg)
  local list, map = {}, {}
  local text = arg.fallback:gsub("^=", "")
  arg.required = arg.fallback:sub(1, 1) == "="
  if arg.row.numbers then -- "0|valid|same": choice 0 are numbers
    arg.fallback, text = text:match("^([^|]*)|(.*)$")
  end
  for name in text:gmatch("[^|]+") do
    list[#list + 1] = name
    map[name] = #list - (arg.row.numbers and 0 or 1)
  end
  arg.choices, arg.choice = list, map
end

local function read_arg(row, numbers, op_name)
  local kind = text_of(row.kind)
  local found, optional = kinds.find(kind)
  if not found then error(format("moth: op '%s' has an argument of kind '%s'", op_name, kind)) end
  local arg = {
    name = text_of(row.name), kind = kind, row = found, doc = text_of(row.doc),
    fallback = text_of(row.fallback), optional = optional, slot = row.slot,
  }
  arg.required = arg.fallback == ""
  if found.choices then choices_of(arg) end
  if found.name == "tensor" and numbers then
    arg.row, arg.number = kinds.find("number"), true
  end
  return arg
end

local function read_outputs(text)
  local list = {}
  if text == "" then text = "y" end
  for item in text:gmatch("[^,]+") do
    local name, more = item:match("^%s*([%w_]+)%s*:?%s*(.-)%s*$")
    if not more:find("hidden") then
      local asked = more ~= "" and more ~= "position" and more or nil -- given if this is true
      list[#list + 1] = { name = name, asked = asked,
                          position = asked ~= nil or more == "position" }
    end
  end
  return list
end

-- What ops that make tensors from nothing take beside their own: read in Lua, after the call.
local REQUIRES_GRAD = { name = "requires_grad", kind = "bool", row = kinds.find("bool"),
                        doc = "gather gradients for it", fallback = "false", lua = true }

local function creates(name, args)
  local dtype_given, device_given
  for _, arg in ipairs(args) do
    if arg.row.name == "number" or arg.row.name == "tensor" and not name:find("_like$") then
      return false
    end
    dtype_given = dtype_given or arg.name == "dtype"
    device_given = device_given or arg.name == "device"
  end
  return dtype_given and device_given
end

-- clamp takes numbers; where a bound is a tensor, another op does the work.
local OTHER = { clamp = "clamp_tensor", clamp_ = "clamp_tensor_" }

--- What the registry says of an op: a signature (forms.lua) with op, nslots, flags, outputs, doc,
-- examples, file, family, dtypes; nil if there is none of that name.
function bind.describe(name)
  local op = C.moth_op_find(name)
  if op == nil then return nil end
  local info = C.moth_op_describe(op)
  local flags = tonumber(info.flags)
  local args = {}
  for i = 0, info.nargs - 1 do
    local numbers = bit.band(flags, NUMBERS) ~= 0
    if i == 0 and bit.band(flags, MUTATES) ~= 0 then numbers = false end
    args[i + 1] = read_arg(info.args[i], numbers, name)
    if args[i + 1].name == "out" then
      args[i + 1].row, args[i + 1].number = kinds.find("tensor"), nil
    end
  end
  if creates(name, args) then args[#args + 1] = REQUIRES_GRAD end
  local first = args[1] and kinds.find(args[1].kind).name
  local method = first == "tensor" or first == "index" or first == "mask"
  local sig = forms.signature(name, args, method)
  sig.other = OTHER[name]
  sig.shift = bit.band(flags, FROM_ONE) ~= 0 and "positions" or "to_index"
  sig.op, sig.flags, sig.nslots, sig.method = op, flags, tonumber(info.nslots), method
  sig.family, sig.file = text_of(info.family), text_of(info.file)
  sig.doc, sig.examples = text_of(info.doc), text_of(info.examples)
  sig.dtypes, sig.outputs = tonumber(info.dtypes), read_outputs(text_of(info.outputs))
  return sig
end

-- ---- what the generated functions call ----

local T = {} -- their tools
for key, value in pairs(forms.tools) do T[key] = value end
T.C, T.ctx, T.Handle, T.istype, T.int64 = C, ctx, Handle, ffi.istype, lib.int64
T.live, T.none, T.NONE, T.state = lib.live, lib.none, lib.NONE, state
T.due, T.adopt, T.recover = lib.due, lib.adopt, lib.recover
T.require_grad = function(x) x.requires_grad = true end

--- What is due after an op with a list of results.
function T.due_list(list)
  for k = 1, lib.trace and #list or 1 do lib.due(list[k]) end
end
T.dtypes, T.devices = dtype.codes, kinds.devices

--- Raises the error of a failed call.
function T.raise(sig, status, ...)
  errors.status(status, sig.name, nil, ...)
end

local number = ffi.new("moth_slot[1]")

--- Makes a number the operand `which`.
function T.operand(sig, i, which, v)
  local kind, status = type(v), nil
  if kind == "number" then
    number[0].number = v
    status = C.moth_number(ctx, which, 0, number)
  elseif kind == "boolean" then
    number[0].integer = v and 1 or 0
    status = C.moth_number(ctx, which, 2, number)
  elseif ffi.istype(lib.int64, v) then
    number[0].integer = v
    status = C.moth_number(ctx, which, 1, number)
  else
    T.bad(sig, i, v)
  end
  if status < 0 then errors.status(status, sig.name, sig.args[i].name) end
end

--- Makes room for n handles in a list's buffer.
function T.reserve(buffer, n)
  if n > buffer.room then
    buffer.room = n * 2
    buffer.at = lib.handles(n * 2)
  end
end

local hidden, one_slot = {}, lib.slots(1)

local FLOATS = C.MOTH_F16 -- the first of the float dtypes

-- Runs one of the ops that shift positions.
local function shift(name, sig, arg, x, again)
  local op = hidden[name] or C.moth_op_find(name)
  hidden[name] = op
  local y = Handle()
  local mine = state.calls + 1
  state.calls = mine
  one_slot[0].handle = x
  if state.calls ~= mine then return shift(name, sig, arg, x, again) end
  local status = C.moth_call(ctx, op, one_slot, 1, 1, y, 1)
  if status >= 0 then return lib.adopt(y, status) end
  if not again and lib.recover(status) then return shift(name, sig, arg, x, true) end
  errors.status(status, sig.name, arg, x)
end

--- Positions from 1 on, as the user gave them in argument i, as the engine's.
function T.to_index(sig, i, v)
  local arg = sig.args[i]
  if type(v) == "table" and getmetatable(v) == nil then
    v = (require "moth.create").integers(v, sig.name, arg.name)
  end
  if not lib.istensor(v) then T.bad(sig, i, v) end
  if arg.name == "target" and lib.inspect(v, sig.name, arg.name).dtype >= FLOATS then
    errors.argument(sig.name, arg.name, "targets are classes (integers from 1), got "
      .. errors.describe(v) .. "; convert with :long()", "E_DTYPE")
  end
  return shift(sig.shift, sig, arg.name, v)
end

--- The same for a list of integer tensors, masks and `false` for a whole dimension.
function T.to_indices(sig, i, v)
  if type(v) ~= "table" or getmetatable(v) ~= nil then T.bad(sig, i, v) end
  local list, aname = {}, sig.args[i].name
  for j = 1, #v do
    local x = v[j]
    if x and (not lib.istensor(x) or lib.inspect(x, sig.name, aname).dtype ~= C.MOTH_BOOL) then
      if type(x) == "table" and getmetatable(x) == nil then
        x = (require "moth.create").integers(x, sig.name, aname)
      end
      if not lib.istensor(x) then T.bad(sig, i, v) end
      if lib.inspect(x).dtype == C.MOTH_U8 then -- a mask elsewhere: it may not pass for positions
        errors.argument(sig.name, aname, "an index is an int64 or bool tensor, got "
          .. errors.describe(x) .. "; convert a mask with :bool(), positions with :long()",
          "E_DTYPE")
      end
      x = shift("to_index", sig, aname, x)
    end
    list[j] = x
  end
  return list
end

--- The state of a generator.
function T.to_generator(sig, i, v)
  local x = kinds.help.state_of(v)
  if not x then T.bad(sig, i, v) end
  return x
end

--- Positions that the engine returned, from 1 on; into `target` if the user named one.
function T.from_index(sig, y, target)
  local x = shift("from_index", sig, nil, y)
  if not target then return x end
  bind.ops.copy_(target, x)
  return target
end

-- ---- writing an op's function ----

local HEAD = [[
local sig, op, s, T, B = ...
local type, C, ctx, Handle, istype, int64 = type, T.C, T.ctx, T.Handle, T.istype, T.int64
local live, none, NONE, state, due, adopt = T.live, T.none, T.NONE, T.state, T.due, T.adopt
local dtypes, devices, recover, raise, reserve = T.dtypes, T.devices, T.recover, T.raise, T.reserve
local fill_ints, fill_dims, fill_handles = T.fill_ints, T.fill_dims, T.fill_handles
local fill_floats, is_list, NO_INT = T.fill_floats, T.is_list, -0x8000000000000000LL
local RESOLVED, AGAIN, extra, twice, array = T.RESOLVED, T.AGAIN, T.extra, T.twice, T.array
local is_arguments, first_is_value, from_index = T.is_arguments, T.first_is_value, T.from_index
local due_list, require_grad, hole, has_hole = T.due_list, T.require_grad, T.hole, T.has_hole
local operand1, operand2 = B.operands[1], B.operands[2]
local operand3, operand4 = B.operands[3], B.operands[4]
local function bad(i, v) return T.bad(sig, i, v) end
local function operand(i, which, v) return T.operand(sig, i, which, v) end
local function to_index(i, v) return T.to_index(sig, i, v) end
local function to_indices(i, v) return T.to_indices(sig, i, v) end
local function to_generator(i, v) return T.to_generator(sig, i, v) end]]

-- What `moth.none` puts into the slots of an optional argument that has another default.
local ABSENT = {
  tensor = "s[$k].handle = NONE", index = "s[$k].handle = NONE", number = "s[$k].handle = NONE",
  int = "s[$k].integer = NO_INT", dim = "s[$k].integer = NO_INT",
  dtype = "s[$k].integer = -1",
  dims = "s[$k].integer = 0 s[$k1].integer = 0", ints = "s[$k].integer = 0 s[$k1].integer = 0",
  floats = "s[$k].integer = 0 s[$k1].integer = 0",
}

-- Text that puts argument i into its slots if it was given.
local function store(sig, i, operand, out)
  local arg = sig.args[i]
  local row = arg.row
  if arg.lua then
    out("  %s", forms.fill('if type($v) ~= "nil" and type($v) ~= "boolean" then bad($i, $v) end',
      i, "a" .. i, 0, 0))
    return
  end
  local v = (row.prepare and "p" or "a") .. i
  local function fill(text) return forms.fill(text, i, v, arg.slot, operand) end
  if arg.required then
    out("  %s", fill(row.store))
    return
  end
  local given = format("given = given + %d", 2 ^ (i - 1))
  local none = arg.fallback ~= "none" and (ABSENT[row.name] and ABSENT[row.name] .. " " .. given
    or "bad($i, none)")
  if row.name == "tensor" or row.name == "number" or row.name == "mask" then
    out("  if istype(Handle, %s) then s[%d].handle = %s %s", v, arg.slot, v, given)
    out("  elseif %s == none then %s", v, none and fill(none) or "")
    out('  elseif type(%s) ~= "nil" then %s %s end', v, fill(row.store), given)
  elseif row.prepare then
    if none then out("  if a%d == none then %s end", i, fill(none)) end
    out("  if %s then %s %s end", v, fill(row.store), given)
  else
    out('  if type(%s) ~= "nil" then', v)
    out("    if %s ~= none then", v)
    out("  %s\n    %s", fill(row.store), given)
    if none then out("    else %s", fill(none)) end
    out("    end\n  end")
  end
end

-- Conversions and room for lists: what may allocate, before anything is stored.
local function prepare(sig, out)
  for i, arg in ipairs(sig.args) do
    if arg.row.prepare then
      local expression = forms.fill(arg.row.prepare, i, "a" .. i, 0, 0)
      if arg.required then
        out("  local p%d = %s", i, expression)
      else
        out("  local p%d", i)
        out('  if type(a%d) ~= "nil" and (istype(Handle, a%d) or a%d ~= none) then p%d = %s end',
        i, i, i, i, expression)
      end
    end
    if arg.row.buffer == "handles" then
      local v = (arg.row.prepare and "p" or "a") .. i
      out('  if type(%s) == "table" then reserve(b%d, #%s) end', v, i, v)
    end
  end
end

-- A new tensor's slot may hold a dead handle or none: looked at, these are two ways to go, and what
-- LuaJIT compiles is for one of them.
local function finish_one(sig, out)
  out("  if st == 0 then live[r._slot] = r else r = adopt(r, st) end")
  if sig.outputs[1].position then
    local target = sig.index.out
    out("  r = from_index(sig, r, %s)", target and "a" .. target or "nil")
  end
  for i, arg in ipairs(sig.args) do
    if arg.lua then out("  if a%d then require_grad(r) end", i) end
  end
  out("  return r")
end

-- A second result where an argument asks for it, r2 being its handle then; else one.
local function finish_asked(out)
  out("  if r2 then")
  out("    C.moth_result(ctx, 0, r2)")
  out("    r2 = adopt(r2, 0)")
  out("    r = adopt(r, st)")
  out("    r2 = from_index(sig, r2)")
  out("    return r, r2")
  out("  end")
  out("  r = adopt(r, st)")
  out("  return r")
end

-- Each result is asked for by itself, into a handle of its own that was made before the call:
-- LuaJIT's allocation sinking forgets stores that copies out of an array would need, and what
-- allocates here might run a finalizer with an op in it, which would clear the results.
local function finish_several(sig, out)
  local names = {}
  for k = 1, #sig.outputs do
    names[k] = "r" .. k
    out("  local k%d = C.moth_result(ctx, %d, r%d)", k, k - 1, k)
  end
  for k = 1, #sig.outputs do
    out("  if k%d == 0 then live[r%d._slot] = r%d else r%d = adopt(r%d, k%d) end", k, k, k, k, k, k)
  end
  out("  if st == 1 then due(r1) end")
  for k, output in ipairs(sig.outputs) do
    if output.position then out("  r%d = from_index(sig, r%d)", k, k) end
  end
  out("  return %s", concat(names, ", "))
end

local function finish_list(sig, all, out)
  out("  local list = {}")
  out("  for k = 1, C.moth_result_count(ctx) do")
  out("    local h = Handle()")
  out("    C.moth_result(ctx, k - 1, h)")
  out("    list[k] = adopt(h, 0)")
  out("  end")
  out("  if state.calls ~= mine then return run(%sover or RESOLVED) end", all)
  out("  if st == 1 then due_list(list) end")
  if sig.outputs[1].position then
    out("  for k = 1, #list do list[k] = from_index(sig, list[k]) end")
  end
  out("  return list")
end

--- The op for tensors where an op takes numbers, under the name that the user wrote.
function T.overload(sig, min, max)
  if ffi.istype(Handle, min) and min._gen == 0 then T.bad(sig, 2, min) end
  if ffi.istype(Handle, max) and max._gen == 0 then T.bad(sig, 3, max) end
  sig.tensors = sig.tensors or bind.as(sig.other, sig.name)
  return sig.tensors
end

-- The call itself: results, arguments, moth_call, errors.
local function body(sig, out)
  if sig.other then
    out('  if (type(a2) == "cdata" and istype(Handle, a2)) or '
      .. '(type(a3) == "cdata" and istype(Handle, a3)) then')
    out("    local y = T.overload(sig, a2, a3)(a1, a2, a3%s)", sig.args[4] and ", a4" or "")
    out("    return y\n  end")
  end
  local n, given = #sig.args, 0
  local names = {}
  for i = 1, n do names[i] = "a" .. i end
  local all = concat(names, ", ") .. (n > 0 and ", " or "")
  local outputs = #sig.outputs
  local list, mutates = bit.band(sig.flags, LIST) ~= 0, bit.band(sig.flags, MUTATES) ~= 0
  prepare(sig, out)
  local asked = outputs == 2 and sig.outputs[2].asked
  local one = (outputs == 1 or asked) and not list and not mutates
  if one then out("  local r = Handle()") end
  if asked then
    local a = "a" .. sig.index[asked]
    out('  local r2 = type(%s) == "boolean" and %s and Handle()', a, a)
  end
  for k = 1, (one or list or mutates) and 0 or outputs do out("  local r%d = Handle()", k) end
  out("  local mine = state.calls + 1")
  out("  state.calls = mine")
  for i, arg in ipairs(sig.args) do
    if arg.required then given = given + 2 ^ (i - 1) end
  end
  out("  local given = %d", given)
  local operand = 0
  for i, arg in ipairs(sig.args) do
    if arg.number then operand = operand + 1 end
    store(sig, i, math.min(operand, OPERANDS), out)
  end
  out("  if state.calls ~= mine then return run(%sover or RESOLVED) end", all)
  out("  local st = C.moth_call(ctx, op, s, %d, given, %s, %d)", sig.nslots,
    one and "r" or "nil", one and 1 or 0)
  out("  if st < 0 then")
  out("    if over ~= AGAIN and recover(st) then return run(%sAGAIN) end", all)
  out("    raise(sig, st%s)", n > 0 and ", " .. concat(names, ", ") or "")
  out("  end")
  if list then
    finish_list(sig, all, out)
  elseif mutates then
    out("  if st == 1 then due(a1) end")
    out("  return a1")
  elseif asked then finish_asked(out)
  elseif outputs == 1 then finish_one(sig, out)
  else finish_several(sig, out) end
end

local function source(sig)
  local lines = {}
  local function out(pattern, ...)
    lines[#lines + 1] = select("#", ...) > 0 and format(pattern, ...) or pattern
  end
  body(sig, out)
  local head = { HEAD }
  for i, arg in ipairs(sig.args) do
    if arg.row.buffer then head[#head + 1] = format("local b%d = B[%d]", i, i) end
    if arg.choice then
      head[#head + 1] = format("local choices%d = sig.args[%d].choice", i, i)
    end
  end
  return forms.source(sig, concat(head, "\n"), concat(lines, "\n"))
end

local operands = {}
for which = 1, OPERANDS do operands[which] = ffi.new("moth_handle", { which, 0 }) end

local function build(sig)
  local B = { operands = operands }
  for i, arg in ipairs(sig.args) do
    if arg.row.buffer == "ints" then B[i] = lib.int64s(kinds.USUAL)
    elseif arg.row.buffer == "floats" then B[i] = lib.doubles(kinds.USUAL)
    elseif arg.row.buffer == "handles" then B[i] = { at = lib.handles(16), room = 16 } end
  end
  local chunk = assert(loadstring(source(sig), "=[moth.op." .. sig.name .. "]"))
  return chunk(sig, sig.op, lib.slots(math.max(sig.nslots, 1)), T, B)
end

-- ---- the functions ----

local signatures = setmetatable({}, { __mode = "k" }) -- function -> what help shows of it

--- Makes a function known to help: its signature with doc, examples, outputs and so on, or a
-- function that gives it.
function bind.register(fn, sig) signatures[fn] = sig end

--- The signature of a bound or defined function; nil for any other value.
function bind.signature(fn)
  local sig = signatures[fn]
  if type(sig) == "function" then return sig() end
  return sig
end

--- name -> function, for every op, hidden ones and in-place forms too; written at first use.
bind.ops = setmetatable({}, {
  __index = function(ops, name)
    local sig = type(name) == "string" and bind.describe(name)
    if not sig then return nil end
    local fn = build(sig)
    signatures[fn] = sig
    rawset(ops, name, fn)
    return fn
  end,
})

--- An op under the name that users know, for functions made of several ops: max of max_dim.
function bind.as(name, shown)
  local sig = bind.describe(name)
  sig.name = shown
  local fn = build(sig)
  signatures[fn] = sig
  return fn
end

--- The Lua text of an op's function.
function bind.text(name)
  local sig = bind.describe(name)
  return sig and source(sig)
end

-- The op that has this other name, under it; nil if there is none (the name of an in-place form
-- is made from the other, and not every op has one).
local function aliased(name)
  local known = alias.op(name)
  if C.moth_op_find(known) == nil then return nil end
  local fn = bind.as(known, name)
  signatures[fn].alias = known
  return fn
end

--- The op of that name if users may call it, else nil.
function bind.public(name)
  local op = C.moth_op_find(name)
  if op == nil and alias.op(name) then return aliased(name) end
  if op == nil or bit.band(C.moth_op_describe(op).flags, HIDDEN) ~= 0 then return nil end
  return bind.ops[name]
end

--- Is there an op of that name?
function bind.is_op(name) return C.moth_op_find(name) ~= nil end

-- Methods that are written in Lua over several ops.
local in_lua = { max = "moth.dispatch", min = "moth.dispatch", equal = "moth.dispatch",
                 allclose = "moth.dispatch", cross_entropy = "moth.dispatch",
                 norm = "moth.dispatch", median = "moth.results", unique = "moth.results",
                 unique_consecutive = "moth.results", nonzero = "moth.results",
                 quantile = "moth.composed", nanmedian = "moth.composed",
                 where = "moth.composed", unfold = "moth.composed",
                 fill_diagonal_ = "moth.composed", log_normal_ = "moth.composed",
                 cauchy_ = "moth.composed", new_tensor = "moth.create", new_zeros = "moth.create",
                 new_ones = "moth.create", new_empty = "moth.create", new_full = "moth.create",
                 tensor_split = "moth.results", clamp_min = "moth.composed",
                 clamp_max = "moth.composed", clamp_min_ = "moth.composed",
                 clamp_max_ = "moth.composed" }

--- The op that is the method of that name, x:name(), else nil.
function bind.method(name)
  if in_lua[name] then
    local module = require(in_lua[name])
    return module[name .. "_method"] or module[name]
  end
  local fn = bind.public(name)
  return fn and signatures[fn].method and fn or nil
end

local all_names, all_methods

local function read_names()
  all_names, all_methods = {}, {}
  for name in pairs(in_lua) do all_methods[#all_methods + 1] = name end
  for i = 0, C.moth_op_count() - 1 do
    local info = C.moth_op_describe(C.moth_op_at(i))
    if bit.band(info.flags, HIDDEN) == 0 then
      local name = text_of(info.name)
      all_names[#all_names + 1] = name
      local first = info.nargs > 0 and kinds.find(text_of(info.args[0].kind)).name
      if first == "tensor" or first == "index" or first == "mask" then
        all_methods[#all_methods + 1] = name
      end
    end
  end
  table.sort(all_methods)
end

--- The names of all ops that users may call, sorted.
function bind.names()
  if not all_names then read_names() end
  return all_names
end

--- The names of those that are methods of tensors too.
function bind.method_names()
  if not all_methods then read_names() end
  return all_methods
end

return bind
