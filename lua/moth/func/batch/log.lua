--- log.lua -- logs the ops that a function calls, in order, for a replay with a batch (replay.lua).
--
-- The calls come from a call log (core/capture/call_log.c). An entry is {event = "op", meta =,
-- slots =, tensors =, versions = of the tensors at the call, nin =, results =, writes =, recorded
-- =, numbers = set of slots with numbers, or nil}. `slots` are the call's slots; a tensor in them
-- is its position in `tensors`. The first `nin` tensors are arguments, the others are `results`.
-- Other events are "data", "detach", "requires", "read" and "other"; autograd.grad adds "grad"
-- itself.

local bit = require "bit"
local ffi = require "ffi"
local autograd = require "moth.autograd"
local lib = require "moth.binding.lib"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
lib.declare "calls"

local log = {}

local EVENTS = {[0] = "op", "data", "detach", "requires", "read", "other"}

-- ---- ops ----

local metas = {}

local TENSOR = {tensor = true, ["tensor?"] = true, mask = true, index = true, ["index?"] = true,
                generator = true}
local LIST = {tensors = true, indices = true}

--- The description of an op for rules: {op, name, flags, nslots, nrows, args = list, by = name ->
-- argument}, without `out` and `inplace`. An argument is {name, kind, slot, nslots, fallback,
-- tensor = bool, list = bool}.
function log.meta(op)
  local key = tonumber(ffi.cast("intptr_t", op))
  local meta = metas[key]
  if meta then return meta end
  local info = C.moth_op_describe(op)
  meta = {op = op, name = ffi.string(info.name), flags = tonumber(info.flags), by = {}, args = {},
          nslots = tonumber(info.nslots), family = ffi.string(info.family)}
  for k = 0, info.nargs - 1 do
    local row = info.args[k]
    local arg = {name = ffi.string(row.name), kind = ffi.string(row.kind), slot = row.slot,
                 nslots = row.nslots, fallback = ffi.string(row.fallback)}
    if arg.name ~= "out" and arg.name ~= "inplace" then
      arg.kind = arg.kind:gsub("^maybe_(.*)$", "%1?"):gsub("_", "-")
      arg.tensor, arg.list = TENSOR[arg.kind] or false, LIST[arg.kind] or false
      meta.args[#meta.args + 1], meta.by[arg.name] = arg, arg
    end
  end
  local outputs = info.outputs ~= nil and ffi.string(info.outputs) or ""
  local asked = outputs:match ":%s*([%w_]+)%s*$"
  meta.asked = asked and meta.by[asked] or false
  meta.nout = select(2, outputs:gsub("[^,]+", ""))
  meta.random = bit.band(meta.flags, C.MOTH_OP_RANDOM) ~= 0
  meta.view = bit.band(meta.flags, C.MOTH_OP_VIEW) ~= 0
  meta.mutates = bit.band(meta.flags, C.MOTH_OP_MUTATES) ~= 0
  metas[key] = meta
  return meta
end

-- ---- entries ----

local function tensor_at(i, k, version)
  local h = Handle()
  lib.check(C.moth_call_log_tensor(ctx, i, k, h, version), "vmap")
  return lib.adopt(h, 0) or false, tonumber(version[0])
end

local NUMBER = 0xffffffff -- marks a number argument, which has no version

local function read(i, record, version)
  lib.check(C.moth_call_log_at(ctx, i, record), "vmap")
  local entry = {event = EVENTS[record.event], tensors = {}, versions = {},
                 recorded = record.recorded ~= 0, writes = record.writes ~= 0}
  local n, nresults = record.ntensors, record.nresults
  local op, slots = record.op, record.slots
  for k = 1, n do
    local x, seen = tensor_at(i, k - 1, version)
    entry.tensors[k], entry.versions[k] = x, seen
    if x and seen == NUMBER then
      entry.numbers = entry.numbers or {}
      entry.numbers[x._slot] = true
    end
  end
  if entry.event ~= "op" then return entry end
  entry.meta, entry.nin, entry.results = log.meta(op), n - nresults, {}
  entry.slots = slots
  local asked = entry.meta.asked -- the last result is optional
  if asked and slots[asked.slot].integer == 0 then
    nresults = math.min(nresults, entry.meta.nout - 1)
  end
  for k = 1, nresults do entry.results[k] = entry.tensors[entry.nin + k] end
  return entry
end

local function entries_of(n)
  local list = {}
  local record, version = ffi.new "moth_logged_call", ffi.new "uint32_t[1]"
  for i = 0, n - 1 do list[i + 1] = read(i, record, version) end
  return list
end

-- The entries, with the observer's entries inserted where they were made.
local function merged(list, added)
  if #added == 0 then return list end
  local all, k = {}, 1
  for i = 1, #list + 1 do
    while added[k] and added[k].at < i do
      all[#all + 1] = added[k]
      k = k + 1
    end
    all[#all + 1] = list[i]
  end
  return all
end

-- Replaces autograd.grad during a log: one entry for the whole backward pass.
local function differentiate(added, observer)
  return function(grad, outputs, inputs, options)
    if lib.istensor(outputs) then outputs = {outputs} end
    if lib.istensor(inputs) then inputs = {inputs} end
    if lib.istensor(options.grad_outputs) then options.grad_outputs = {options.grad_outputs} end
    local entry = {event = "grad", at = C.moth_call_log_count(ctx), outputs = outputs,
                   inputs = inputs, options = options, recorded = C.moth_grad_mode(ctx, -1) == 1}
    lib.observer, autograd.stopped = nil, observer.lost
    C.moth_call_log_pause(ctx, 1)
    local results = lib.pack(pcall(grad, outputs, inputs, options))
    C.moth_call_log_pause(ctx, 0)
    lib.observer, autograd.stopped = observer, false
    if not results[1] then error(results[2], 0) end
    entry.results = {unpack(results, 2, results.n)}
    added[#added + 1] = entry
    return unpack(results, 2, results.n)
  end
end

--- Runs f() and logs its ops; then calls use(entries) before the log is freed. The entries are nil
-- if they do not describe all of f.
-- @param pass  true: f is a backward pass, whose ops are entries
-- @return the results of `use`; nil if a log is not possible and f did not run
function log.with(pass, f, use)
  local flags = C.MOTH_CALL_LOG_EVENTS + (pass and C.MOTH_CALL_LOG_BACKWARD or 0)
  if C.moth_call_log_begin(ctx, flags) < 0 then return nil end
  local outer, stopped, added, observer = lib.observer, autograd.stopped, {}, {}
  observer.differentiate = differentiate(added, observer)
  function observer.lost() observer.is_lost = true end
  lib.observer, autograd.stopped = not pass and observer or nil, pass and observer.lost
  local ok, result = pcall(f)
  lib.observer, autograd.stopped = outer, stopped
  local n = C.moth_call_log_count(ctx)
  C.moth_call_log_end(ctx)
  local fine, entries = pcall(entries_of, n)
  local used, value
  if fine and ok then
    entries = not observer.is_lost and merged(entries, added) or nil
    used, value = pcall(use, entries)
  end
  C.moth_call_log_free(ctx)
  if not ok then error(result, 0) end
  if not fine then error(entries, 0) end
  if not used then error(value, 0) end
  return value
end

return log
