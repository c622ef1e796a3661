--- bind.lua -- creates the Lua function of an op from its record in the registry.
--
-- writer.lua generates an op's function at its first use, from the record (registry.lua). This file
-- has the helpers that these functions share, and the tables that store them.

local ffi = require "ffi"
local alias = require "moth.binding.alias"
local calls = require "moth.binding.calls"
local device = require "moth.tensor.device"
local dtype = require "moth.tensor.dtype"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"
local recent = require "moth.base.recent"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local loadstring = lib.loadstring

local bind = {}

local state = {calls = 0}

-- ---- called by the generated functions ----

local T = setmetatable({}, {__index = calls}) -- the helpers
T.C, T.ctx, T.Handle, T.istype, T.int64 = C, ctx, Handle, ffi.istype, lib.int64
T.live, T.none, T.NONE, T.state = lib.live, lib.none, lib.NONE, state
T.due, T.adopt, T.recover, T.PAUSED = lib.due, lib.adopt, lib.recover, C.MOTH_E_PAUSED
T.require_grad = function(x) x.requires_grad = true end

--- A call of an op with a tensor for a number argument.
function T.valued(sig, ...) return (require("moth.functions.valued")[sig.op_name](sig, ...)) end

--- Repeats a call that a slice of moth.budget has paused until it is done. Returns its status.
function T.again(op, slots, nslots, given, out, nout)
  local status
  repeat
    lib.pause()
    status = C.moth_call(ctx, op, slots, nslots, given, out, nout)
  until status ~= C.MOTH_E_PAUSED
  return status
end

--- Runs a due sweep after an op that returns a list.
function T.due_list(list)
  for k = 1, lib.trace and #list or 1 do lib.due(list[k]) end
end
T.dtypes, T.devices = dtype.codes, device.codes

--- Raises the error of a failed call. If the op raised for a sparse tensor, for integers or for a
-- 0-d tensor, and has another definition for it, returns the results of that definition.
function T.failed(sig, status, ...)
  if status == C.MOTH_E_DTYPE or status == C.MOTH_E_SHAPE then
    local text, arg = ffi.string(C.moth_error(ctx, 1)), ffi.string(C.moth_error_arg(ctx))
    local other = status == C.MOTH_E_DTYPE and "moth.functions.integral" or "moth.functions.single"
    local y, more = require(other).instead(sig, ...)
    if y ~= nil then return y, more end
    if ffi.string(C.moth_error_arg(ctx)) ~= arg then -- an op has run: the error is cleared
      local shown = rawget(sig, "shown_args")
      errors.argument(sig.name, shown and shown[arg] or arg, text,
        ffi.string(C.moth_error_name(status)))
    end
  end
  if status == C.MOTH_E_UNSUPPORTED then
    local y = require("moth.sparse").instead(sig, ...)
    if y ~= nil then return y end
  end
  local names = rawget(sig, "shown_args")
  errors.status(status, sig.name, names and names[ffi.string(C.moth_error_arg(ctx))], ...)
end

local number = ffi.new("moth_slot[1]")

--- Stores a number as the operand `which`.
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

--- Grows a list's buffer to n handles.
function T.reserve(buffer, n)
  if n > buffer.capacity then
    buffer.capacity = n * 2
    buffer.at = lib.handles(n * 2)
  end
end

local hidden, one_slot = {}, lib.slots(1)

local FLOATS = C.MOTH_F16 -- the first floating-point dtype

-- Runs an op that shifts positions by 1.
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
  if status == C.MOTH_E_PAUSED then
    status = T.again(op, one_slot, 1, 1, y, 1)
    if status >= 0 then return lib.adopt(y, status) end
  end
  if not again and lib.recover(status) then return shift(name, sig, arg, x, true) end
  errors.status(status, sig.name, arg, x)
end

-- Replaces the ignored target 0 by NOTHING.
local function without_zeros(v)
  if lib.inspect(v).dtype == C.MOTH_BOOL then return v end -- refused later
  v = bind.ops.cast(v, dtype.by_name.int64)
  return bind.ops.masked_fill(v, bind.ops.eq(v, 0), calls.NOTHING)
end

--- Converts the positions in argument i, which count from 1, to the core's, which count from 0.
-- @param ignored  the ignore_index of the same call, if the op has one
function T.to_index(sig, i, v, ignored)
  local arg = sig.args[i]
  if lib.is_plain(v) then
    v = (require "moth.tensor.create").integers(v, sig.name, arg.name)
  end
  if not lib.istensor(v) then T.bad(sig, i, v) end
  if arg.name == "target" and lib.inspect(v, sig.name, arg.name).dtype >= FLOATS then
    errors.argument(sig.name, arg.name, "targets are classes (integers from 1), got "
      .. errors.describe(v) .. "; convert with :long()", "E_DTYPE")
  end
  if type(ignored) == "number" and ignored == 0 then v = without_zeros(v) end
  return shift(sig.shift, sig, arg.name, v)
end

--- Like to_index, for a list of integer tensors, masks and `false` for a whole dimension.
function T.to_indices(sig, i, v)
  if not lib.is_plain(v) then T.bad(sig, i, v) end
  local list, aname = {}, sig.args[i].name
  for j = 1, #v do
    local x = v[j]
    if x and (not lib.istensor(x) or lib.inspect(x, sig.name, aname).dtype ~= C.MOTH_BOOL) then
      if lib.is_plain(x) then
        x = (require "moth.tensor.create").integers(x, sig.name, aname)
      end
      if not lib.istensor(x) then T.bad(sig, i, v) end
      if lib.inspect(x).dtype == C.MOTH_U8 then -- a mask in PyTorch: no positions
        errors.argument(sig.name, aname, "an index is an int64 or bool tensor, got "
          .. errors.describe(x) .. "; convert a mask with :bool(), positions with :long()",
          "E_DTYPE")
      end
      x = shift(sig.shift, sig, aname, x)
    end
    list[j] = x
  end
  return list
end

--- Returns the state of a generator.
function T.to_generator(sig, i, v)
  local x = calls.state_of(v)
  if not x then T.bad(sig, i, v) end
  return x
end

--- Converts positions that the core returned to count from 1; writes them to `target` if given.
function T.from_index(sig, y, target)
  local x = shift("from_index", sig, nil, y)
  if not target then return x end
  bind.ops.copy_(target, x)
  return target
end

--- The op for tensor bounds in place of numbers, with the name that the user called.
function T.overload(sig, min, max)
  if ffi.istype(Handle, min) and min._gen == 0 then T.bad(sig, 2, min) end
  if ffi.istype(Handle, max) and max._gen == 0 then T.bad(sig, 3, max) end
  sig.tensors = sig.tensors or bind.as(sig.other, sig.name)
  return sig.tensors
end

-- ---- the functions ----

local operands = {}
for which = 1, calls.OPERANDS do operands[which] = ffi.new("moth_handle", {which, 0}) end

-- Reads the registry.
local function registry() return require "moth.binding.registry" end

local function described(sig)
  return (registry().describe(sig.op_name))
end

-- A signature of which only the name is known. Its other fields are read from the registry at first
-- use.
local shortened = {
  __index = function(sig, key)
    return (recent.of(sig, described)[key])
  end,
}

-- The signature of an op with the name `shown` in messages; nil if there is no such op.
local function signature_of(name, shown)
  if C.moth_op_find(name) == nil then return nil end
  local sig = setmetatable({op_name = name, name = shown or name}, shortened)
  sig.shift = sig.shift -- calls read this field
  return sig
end

local function build(sig)
  local B = {operands = operands}
  for i, arg in ipairs(sig.args) do
    if arg.row.buffer == "ints" then B[i] = lib.int64s(calls.USUAL)
    elseif arg.row.buffer == "floats" then B[i] = lib.doubles(calls.USUAL)
    elseif arg.row.buffer == "handles" then B[i] = {at = lib.handles(16), capacity = 16} end
  end
  local text = require("moth.binding.writer").source(sig)
  local chunk = assert(loadstring(text, "=[moth.op." .. sig.name .. "]"))
  return chunk(sig, sig.op, lib.slots(math.max(sig.nslots, 1)), T, B)
end

local signatures = setmetatable({}, {__mode = "k"}) -- function -> the signature that help shows

--- Registers a function for help: its signature with doc, examples, outputs and so on, or a record
-- whose record.read(record) returns the signature.
function bind.register(fn, sig) signatures[fn] = sig end

--- The signature of a record.
function bind.read(record)
  if not rawget(record, "read") then return record end
  return (recent.of(record, record.read))
end

--- The signature of a bound or defined function; nil for any other value.
function bind.signature(fn)
  local sig = signatures[fn]
  return sig and bind.read(sig)
end

--- name -> function of every op, also hidden ones and in-place forms; generated at first use.
bind.ops = setmetatable({}, {
  __index = function(ops, name)
    local sig = type(name) == "string" and signature_of(name)
    if not sig then return nil end
    local fn = build(sig)
    signatures[fn] = sig
    rawset(ops, name, fn)
    return fn
  end,
})

--- An op with the name that users call, for functions made of several ops: max of max_dim.
function bind.as(name, shown, args)
  local sig = signature_of(name, shown)
  sig.shown_args = args or false
  local fn = build(sig)
  signatures[fn] = sig
  return fn
end

--- bind.under("max").max_dim is the op max_dim named "max" in messages (see bind.as), bound at
-- first use.
function bind.under(shown)
  return setmetatable({}, {__index = function(own, name)
    local fn = bind.as(name, shown)
    rawset(own, name, fn)
    return fn
  end})
end

--- The generated Lua code of an op's function.
function bind.text(name)
  local sig = signature_of(name)
  return sig and require("moth.binding.writer").source(sig)
end

-- The op of which `name` is another name, bound with that name; nil if there is none. The other
-- name of an in-place form is derived, and not every op has an in-place form.
local function aliased(name)
  local known = alias.op(name)
  if not registry().has(known) then return nil end
  local fn = bind.as(known, name)
  signatures[fn].alias = known
  return fn
end

--- The op with this name if it is public, else nil.
function bind.public(name)
  if registry().is_public(name) then return bind.ops[name] end
  if alias.op(name) and not registry().has(name) then return aliased(name) end
end

--- Returns true if there is an op with this name.
function bind.is_op(name) return C.moth_op_find(name) ~= nil end

--- The functions written in Lua, in the format of lazy.from: init.lua lists them. Names with the
-- mark ":" are tensor methods; a module may define name_method for the method.
bind.written = {}

--- The op that is the tensor method x:name(), else nil.
function bind.method(name)
  local module = lazy.module(bind.written, name, ":")
  if module then
    module = require(module)
    return module[name .. "_method"] or module[name]
  end
  local fn = bind.public(name)
  return fn and signatures[fn].method and fn or nil
end

local all_names, all_methods

local function read_names()
  all_names, all_methods = registry().names()
  lazy.each(bind.written, function(name) all_methods[#all_methods + 1] = name end, ":")
  table.sort(all_methods)
end

--- The names of all public ops, sorted.
function bind.names()
  if not all_names then read_names() end
  return all_names
end

--- The names of the public ops that are also tensor methods.
function bind.method_names()
  if not all_methods then read_names() end
  return all_methods
end

return bind
