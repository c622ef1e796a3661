--- checkpoint.lua -- moth.utils.checkpoint: activation checkpoints, which recompute a call in
-- backward instead of saving its tensors.
--
--     local checkpoint = moth.utils.checkpoint.checkpoint
--     for _, block in ipairs(self.blocks) do x = checkpoint(block, x) end
--
-- At the end of the call its nodes' saved tensors are freed (core/autograd/checkpoint.c). When a
-- backward pass reaches such a node, it pauses, and this file runs the call again with the same
-- random numbers and mixed precision: the saved tensors of the second run go to the nodes of the
-- first run.

local autograd = require "moth.autograd"
local define = require "moth.binding.define"
local errors = require "moth.error"
local generator = require "moth.tensor.generator"
local calls = require "moth.binding.calls"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"

local C, ctx, Handle, istensor = lib.C, lib.ctx, lib.Handle, lib.istensor
local ffi = require "ffi"

lib.declare "nodes"
local EMPTY, GIVE, DROP = C.MOTH_CHECKPOINT_EMPTY, C.MOTH_CHECKPOINT_GIVE, C.MOTH_CHECKPOINT_DROP

local checkpoint = {}

-- ---- arguments: tensors are kept by the core, other values here ----

local is_plain = lib.is_plain

-- The description of a value: {tensor = its number}, {list = descriptions of its fields}, {value}.
local function note(value, tensors, open)
  if istensor(value) then
    tensors[#tensors + 1] = value
    return {tensor = #tensors}
  elseif not is_plain(value) then
    return {value = value}
  elseif open[value] then
    errors.argument("checkpoint", "args", "a table that contains itself", "E_TYPE")
  end
  local fields = {}
  open[value] = true
  for key, item in pairs(value) do fields[key] = note(item, tensors, open) end
  open[value] = nil
  return {fields = fields}
end

local function value_of(noted, tensors)
  if noted.tensor then return tensors[noted.tensor] end
  if not noted.fields then return noted.value end
  local t = {}
  for key, item in pairs(noted.fields) do t[key] = value_of(item, tensors) end
  return t
end

-- ---- the two runs ----

-- Calls fn within the checkpoint `id`, which GIVE or EMPTY ends. fn may not yield: ops of other
-- coroutines would become part of the checkpoint.
-- @return the results as a list
local function run(id, how, task, fn, args)
  local results
  local ok, problem = errors.unyielding("a checkpointed function", function()
    results = lib.pack(fn(unpack(args, 1, args.n)))
  end)
  if not ok then
    C.moth_checkpoint_end(ctx, id, DROP, 0)
    error(problem, 0)
  end
  local status = C.moth_checkpoint_end(ctx, id, how, task)
  if status < 0 then errors.status(status, "checkpoint") end
  return results
end

local id_out = ffi.new "uint64_t[1]"

local function begin(tensors, again)
  local handles = lib.handles(math.max(#tensors, 1))
  for i, x in ipairs(tensors) do handles[i - 1] = x end
  local status = C.moth_checkpoint_begin(ctx, handles, #tensors, again and 1 or 0, id_out)
  if status < 0 then errors.status(status, "checkpoint") end
  return id_out[0]
end

local function first_run(fn, preserve, args)
  local tensors, notes = {}, {n = args.n}
  for i = 1, args.n do notes[i] = note(args[i], tensors, {}) end
  local entry = {
    fn = fn, args = notes, ntensors = #tensors, preserve = preserve,
    autocast = C.moth_autocast(ctx, -2),
  }
  if preserve then tensors[#tensors + 1] = generator.get_rng_state() end
  local id = begin(tensors, false)
  autograd.nodes[tonumber(id)] = entry
  return run(id, EMPTY, 0, fn, args)
end

local function second_run(entry, task)
  local tensors, args = {}, {n = entry.args.n}
  for i = 1, entry.ntensors + (entry.preserve and 1 or 0) do
    local h = Handle()
    tensors[i] = autograd.take(h, C.moth_task_saved(ctx, task, i - 1, h), "checkpoint")
  end
  if entry.preserve then generator.set_rng_state(tensors[#tensors]) end
  for i = 1, args.n do args[i] = value_of(entry.args[i], tensors) end
  run(begin({}, true), GIVE, task, entry.fn, args)
end

--- A backward pass needs the saved tensors of a checkpoint's nodes; autograd's loop calls this.
function checkpoint.again(entry, task)
  local run_under = autograd.frames.run
  local state = entry.preserve and generator.get_rng_state()
  local ok, problem = pcall(run_under, entry.autocast, "checkpoint", lib.modes.autocast,
    run_under, 1, "checkpoint", lib.modes.grad, second_run, entry, task)
  if state then generator.set_rng_state(state) end
  if not ok then error(problem, 0) end
end

-- ---- public functions ----

local OPTIONS = {
  {"bool", "use_reentrant", "false: the only supported form", default = false},
  {"bool", "preserve_rng_state", "the second run draws the numbers of the first", default = true},
}
local NAMES = {use_reentrant = true, preserve_rng_state = true}
local parse = define.signature("checkpoint", OPTIONS)

-- Returns true if a table has only named booleans, as options have.
local function flags_only(t)
  for key, value in pairs(t) do
    if type(key) ~= "string" or type(value) ~= "boolean" then return false end
  end
  return true
end

-- The arguments of checkpoint{fn, ..., use_reentrant = false} as a list.
local function from_table(t)
  local args, options = {}, {}
  for key, value in pairs(t) do
    if type(key) == "string" then options[key] = value end
  end
  for i = 1, #t do args[i] = t[i] end
  if next(options) ~= nil then args[#args + 1] = options end
  return unpack(args)
end

-- The options if the last argument is a table of options only; else nil.
local function options_in(last)
  if not is_plain(last) then return nil end
  local known, unknown
  for key in pairs(last) do
    if NAMES[key] then known = key else unknown = key end
  end
  if not known and unknown ~= nil and flags_only(last) then
    errors.raise(("'checkpoint' has no argument '%s'%s; fn's own named arguments go into a table "
      .. "before one with preserve_rng_state or use_reentrant"):format(tostring(unknown),
      errors.nearest(tostring(unknown), {"use_reentrant", "preserve_rng_state"})))
  end
  if known and unknown ~= nil then
    errors.raise(("'%s' is no option of checkpoint; '%s' is one; fn's own named arguments go into "
      .. "a table before"):format(tostring(unknown), known))
  end
  return known and last
end

-- Returns true if the second run must draw the same random numbers.
local function read_options(options)
  local use_reentrant, preserve = parse(options or {})
  if use_reentrant then
    errors.argument("checkpoint", "use_reentrant", "only the form without re-entry exists; leave "
      .. "it out", "E_UNSUPPORTED")
  end
  return preserve
end

local function check_function(fname, aname, fn)
  if calls.is_callable(fn) then return end
  errors.refuse(fname, aname, "a function is needed", fn, "E_TYPE")
end

local function pass_on(...) return ... end

--- Calls fn(...) without saving its ops' tensors for backward: the first backward pass that needs
-- them runs fn again, with the same random numbers and mixed precision. Gradients equal those of
-- a plain call, for the arguments, for parameters and for tensors that fn captures; of every
-- order, and in a step of moth.capture. If gradients are off, it is a plain call.
--
-- Side effects of fn happen twice: BatchNorm counts a batch twice, as in PyTorch. fn must call
-- the same ops each time and may not yield. (As torch.utils.checkpoint.checkpoint with
-- use_reentrant = false; Chen et al. 2016, "Training deep nets with sublinear memory cost".)
-- @param fn   a function or module
-- @param ...  its arguments; tensors among them, also in plain tables, are kept. A table at the
-- end that has only these fields holds options: preserve_rng_state (default true), and
-- use_reentrant, which is false
-- @return the results of fn
function checkpoint.checkpoint(fn, ...)
  if is_plain(fn) and select("#", ...) == 0 and calls.is_callable(fn[1]) then
    return pass_on(checkpoint.checkpoint(from_table(fn)))
  end
  check_function("checkpoint", "fn", fn)
  local args = lib.pack(...)
  local options = options_in(args[args.n])
  if options then args[args.n], args.n = nil, args.n - 1 end
  local preserve = read_options(options)
  if C.moth_grad_mode(ctx, -1) == 0 then return pass_on(fn(unpack(args, 1, args.n))) end
  local results = first_run(fn, preserve, args)
  return unpack(results, 1, results.n)
end

-- Composes several functions.
local function row_of(functions, first, last)
  return function(x)
    for i = first, last do x = functions[i](x) end
    return x
  end
end

--- Calls functions in a row, each with the result of the one before, in segments. Each segment but
-- the last is checkpointed: backward would recompute the last one at once. (As
-- torch.utils.checkpoint.checkpoint_sequential.)
-- @param functions  an nn.Sequential, or a list of modules and functions
-- @param segments   the number of segments: from 1 to the number of functions
-- @param input      the input of the first function
-- @param options    as for checkpoint
-- @return the result of the last function
function checkpoint.checkpoint_sequential(functions, segments, input, options)
  local fname, list = "checkpoint_sequential", functions
  local nn = require("moth").nn
  if nn.isinstance(functions, nn.Sequential) then list = functions:children() end
  if not is_plain(list) or #list == 0 then
    errors.refuse(fname, "functions", "an nn.Sequential or a list of functions is needed",
      functions, "E_TYPE")
  end
  for i, fn in ipairs(list) do check_function(fname, ("functions[%d]"):format(i), fn) end
  local n = #list
  if type(segments) ~= "number" or segments % 1 ~= 0 or segments < 1 or segments > n then
    errors.refuse(fname, "segments", ("an integer from 1 to %d is needed"):format(n), segments,
      "E_DOMAIN")
  end
  local each = math.floor(n / segments)
  for k = 1, segments - 1 do
    local segment = row_of(list, (k - 1) * each + 1, k * each)
    input = checkpoint.checkpoint(segment, input, options or {use_reentrant = false})
  end
  return pass_on(row_of(list, (segments - 1) * each + 1, n)(input))
end

return (lazy.namespace("moth.utils.checkpoint", checkpoint, {}))
