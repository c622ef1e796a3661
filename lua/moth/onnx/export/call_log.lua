--- call_log.lua -- reads the call log of a net as Lua tables (core/capture/call_log.c).
--
-- A call is {name =, args = name -> value, fixed = name -> true if its dtype is fixed, as of
-- positions, results = list of tensors, versions = versions of the tensors it read, writes = true
-- if it writes its first result, random = true if it draws random numbers, path = path of the
-- calling module}. A tensor is its handle, one handle for each tensor, so that it can be a table
-- key. Positions and dimensions count from 0, as in the core.

local bit = require "bit"
local ffi = require "ffi"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
lib.declare "calls"

local call_log = {}

local NO_INT = -0x8000000000000000LL

-- ---- an argument ----

local function integer(slot)
  if slot.integer == NO_INT then return nil end
  return tonumber(slot.integer)
end

local function several(slots, at, n)
  local list = {}
  for k = 0, n - 1 do list[k + 1] = integer(slots[at + k]) or false end
  return list
end

local function numbers(slots, at, field)
  local from = ffi.cast("const moth_slot *", slots[at].pointer)
  if from == nil then return nil end
  local list = {}
  for k = 0, tonumber(slots[at + 1].integer) - 1 do list[k + 1] = tonumber(from[k][field]) end
  return list
end

local function choice_of(fallback, i)
  for name in fallback:gsub("^=", ""):gmatch "[^|]+" do
    if i == 0 then return name end
    i = i - 1
  end
end

local function scalar(slots, at)
  local kind = tonumber(slots[at].integer)
  if kind == 2 then return slots[at + 1].integer ~= 0 end
  return tonumber(kind == 0 and slots[at + 1].number or slots[at + 1].integer)
end

local function float(slot)
  local x = tonumber(slot.number)
  if x == x then return x end -- NaN: the argument is absent
end

local TENSOR = {tensor = true, mask = true, index = true}
local WHOLE = {int = true, dim = true, position = true, ignored = true}

-- Returns the value of arg; tensor(k) returns the k-th tensor of the call, or nil.
local function value_of(arg, slots, tensor)
  local kind, at, text = ffi.string(arg.kind):gsub("%?$", ""):gsub("^maybe_", ""), arg.slot,
    ffi.string(arg.fallback)
  if TENSOR[kind] then return tensor(tonumber(slots[at].integer)) end
  if kind == "tensors" or kind == "indices" then
    local list, first = {n = tonumber(slots[at + 1].integer)}, tonumber(slots[at].integer)
    for k = 1, list.n do list[k] = tensor(first + k - 1) or false end
    return list
  end
  if kind == "ints" or kind == "shape" or kind == "dims" then
    return numbers(slots, at, "integer")
  end
  if kind == "floats" then return numbers(slots, at, "number") end
  if kind == "scalar" or kind == "element" then return scalar(slots, at) end
  if kind == "float" then return float(slots[at]) end
  if kind == "bool" then return slots[at].integer ~= 0 end
  if kind == "enum" then return choice_of(text, tonumber(slots[at].integer)) end
  if kind:find "or.enum$" then
    local i = tonumber(slots[at].integer)
    return i > 0 and choice_of(text, i) or several(slots, at + 1, arg.nslots - 1)
  end
  if kind:find "^int%d" then return several(slots, at, arg.nslots) end
  if kind == "dtype" then return slots[at].integer >= 0 and tonumber(slots[at].integer) or nil end
  if kind == "generator" or kind == "device" then return nil end
  if WHOLE[kind] then return integer(slots[at]) end
  errors.raise(("onnx.export: '%s' is of the kind '%s', which is not read"):format(
    ffi.string(arg.name), kind), "E_UNSUPPORTED")
end

-- ---- a call ----

local record, version = ffi.new "moth_logged_call", ffi.new "uint32_t[1]"

local function read(i)
  lib.check(C.moth_call_log_at(ctx, i, record), "onnx.export")
  local call = {versions = {}, results = {}, args = {}, fixed = {}, writes = record.writes ~= 0}
  local all = {}
  for k = 0, record.ntensors - 1 do
    local h = Handle()
    lib.check(C.moth_call_log_tensor(ctx, i, k, h, version), "onnx.export")
    h = lib.adopt(h, 0) or false
    all[k + 1] = h
    if h and k < record.ntensors - record.nresults then
      call.versions[h] = version[0]
    elseif h then
      call.results[#call.results + 1] = h
    end
  end
  local info = C.moth_op_describe(record.op)
  call.name = ffi.string(info.name)
  call.random = bit.band(info.flags, C.MOTH_OP_RANDOM) ~= 0
  local function tensor(k) return k > 0 and all[k] or nil end
  for k = 0, info.nargs - 1 do
    local arg = info.args[k]
    local name = ffi.string(arg.name)
    if name ~= "out" and name ~= "inplace" then
      call.args[name] = value_of(arg, record.slots, tensor)
      call.fixed[name] = not ffi.string(arg.kind):find "tensor"
    end
  end
  return call
end

-- ---- logging ----

-- Records the calls of a net's modules: their names in net:named_modules(), and the index of the
-- first op of each call.
local function follow(net, marks)
  local paths, stack = {}, {""}
  if net then
    for name, module in net:named_modules() do paths[module] = name end
  end
  local function mark() marks[#marks + 1] = {C.moth_call_log_count(ctx), stack[#stack]} end
  local function leave(...)
    stack[#stack] = nil
    mark()
    return ...
  end
  return function(run, module, ...)
    stack[#stack + 1] = paths[module] or stack[#stack]
    mark()
    return leave(run(module, ...))
  end
end

local function reading(state, net, f, ...)
  local Module = require "moth.nn.module"
  local marks, reads, args = {}, {}, lib.pack(...)
  state.status = C.moth_call_log_begin(ctx, 0)
  lib.check(state.status, "onnx.export")
  Module.sight.profile(follow(net, marks))
  function lib.on_read(x) reads[#reads + 1] = {x = x, place = errors.where()} end
  local ok, results = errors.unyielding("a net that is exported", function()
    return lib.pack(f(unpack(args, 1, args.n)))
  end)
  Module.sight.profile(nil)
  lib.on_read = nil
  C.moth_call_log_end(ctx)
  if not ok then error(results, 0) end
  local list, m, path = {reads = reads}, 1, ""
  for i = 0, C.moth_call_log_count(ctx) - 1 do
    while marks[m] and marks[m][1] <= i do m, path = m + 1, marks[m][2] end
    list[i + 1] = read(i)
    list[i + 1].path = path
  end
  C.moth_call_log_free(ctx)
  return list, results
end

-- Ends a log after an error; the log of an enclosing call_log.read continues.
local function ended(state, ok, list, results)
  if ok then return list, results end
  if not state.status or state.status >= 0 then
    require("moth.nn.module").sight.profile(nil)
    lib.on_read = nil
    C.moth_call_log_end(ctx)
    C.moth_call_log_free(ctx)
  end
  error(list, 0)
end

--- Runs f(...) and returns the calls that it made.
-- @param net  the module that f calls, for the paths; or nil
-- @return the calls, with `reads`: the tensors whose values were read, and where; and the results
-- of f, as a list with its length n
function call_log.read(net, f, ...)
  local state = {}
  return ended(state, pcall(reading, state, net, f, ...))
end

return call_log
