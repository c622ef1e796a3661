--- init.lua -- moth.autograd: grad modes, and the loop that drives a backward pass.
--
-- The core never calls Lua. It runs a backward pass until it reaches a node with hooks or a
-- Function written in Lua, and returns the node's id to the loop in this file. The loop calls the
-- user's functions and continues the pass. One table holds Lua's data of a node (hooks, the state
-- of a Function) under the node's id. So a yield or an error in a user's function leaves no data
-- behind in C: an error frees the pass, and the next sweep frees it if its coroutine was collected.

local ffi = require "ffi"
local errors = require "moth.error"
local calls = require "moth.binding.calls"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local istensor, callable = lib.istensor, calls.is_callable

local autograd = {}

--- Lua's data of the graph's nodes: id -> {hooks = list, after = list, leaf = bool, class =, state
-- =, before = list, results = list (node.lua)}; for an activation checkpoint: the call that
-- utils/checkpoint.lua runs again; for saved_tensors_hooks: the values that graph.lua unpacks.
autograd.nodes = {}
local nodes = autograd.nodes

-- The reasons why moth_task_step stops:
local HOOK, FUNCTION, AGAIN = C.MOTH_TASK_HOOK, C.MOTH_TASK_FUNCTION, C.MOTH_TASK_AGAIN
local AFTER, PAUSED = C.MOTH_TASK_AFTER, C.MOTH_E_PAUSED
local RETAIN_GRAPH, CREATE_GRAPH = C.MOTH_RETAIN_GRAPH, C.MOTH_CREATE_GRAPH
local ALLOW_UNUSED = C.MOTH_ALLOW_UNUSED

local weak = {__mode = "v"}

-- A handle that C filled, as a tensor; nil for {0, 0}. x is the tensor of the call, if any.
local function take(h, status, fname, x)
  if status < 0 then errors.status(status, fname, nil, x) end
  if h._slot == 0 then return nil end
  return lib.adopt(h, status)
end

-- ---- modes ----
-- A mode belongs to the coroutine that sets it, see coroutines.lua. A frame stores the coroutine's
-- previous mode.

local GRAD, INSIDE, ASK = lib.modes.grad, lib.modes.inside, lib.modes.ask
local main = {}                                    -- the frames of the main coroutine
local others = setmetatable({}, {__mode = "k"})  -- coroutine -> its frames

local function frames_of(thread)
  local list = others[thread]
  if not list then
    list = {}
    others[thread] = list
  end
  return list
end

local function frames_here()
  local thread = lib.coroutine()
  return thread and frames_of(thread) or main
end

local function enter_in(list, value, name, which)
  local frame = {name = name, which = which, old = C.moth_mode(ctx, which, value), list = list}
  list[#list + 1] = frame
  return frame
end

--- Begins a frame: sets a mode (of lib.modes) of the running coroutine.
local function enter(value, name, which) return enter_in(frames_here(), value, name, which) end

-- Closes a frame and all frames above it. Returns a message if the frames are not nested.
local function leave_in(list, frame)
  local top = #list
  if list[top] == frame then
    C.moth_mode(ctx, frame.which, frame.old)
    list[top] = nil
    return nil
  end
  for i = top - 1, 1, -1 do
    if list[i] == frame then
      for k = top, i, -1 do
        C.moth_mode(ctx, list[k].which, list[k].old)
        list[k] = nil
      end
      return frame.name .. " ends while a mode that was set later holds; the mode from before "
        .. frame.name .. " is restored"
    end
  end
  return frame.name .. " ends, but a mode around it has ended already"
end

--- Ends a frame. Returns a message if the frames are not nested.
local function leave(frame)
  if frame.list ~= frames_here() then
    return frame.name .. " ends in another coroutine than it began in"
  end
  return leave_in(frame.list, frame)
end

local function left(list, frame, ...) return leave_in(list, frame), ... end

-- Sets the mode and restores it here, so that an error at any point ends in the pcall of run_in.
local function entered(list, frame, value, f, ...)
  list[#list + 1] = frame
  frame.old = C.moth_mode(ctx, frame.which, value)
  return left(list, frame, f(...))
end

local function finish(list, frame, ok, problem, ...)
  if not ok then
    leave_in(list, frame)
    error(problem, 0)
  end
  if problem then errors.raise(problem, "E_STATE") end
  return ...
end

local function run_in(list, value, name, which, f, ...)
  local frame = {name = name, which = which, old = C.moth_mode(ctx, which, ASK), list = list}
  return finish(list, frame, pcall(entered, list, frame, value, f, ...))
end

-- Sets a mode in a coroutine that has no frame yet.
local function first_in(thread, value, name, which, f, ...)
  if C.moth_mode(ctx, INSIDE, ASK) == 1 then others[thread] = nil end -- frames of an earlier use
  return run_in(frames_of(thread), value, name, which, f, ...)
end

-- Calls f(...) under a mode, and returns the results of f.
local function run_under(value, name, which, f, ...)
  local thread = lib.coroutine()
  if not thread then return run_in(main, value, name, which, f, ...) end
  if C.moth_mode(ctx, INSIDE, ASK) == 0 then
    return require("moth.base.coroutines").run(name, first_in, thread, value, name, which, f, ...)
  end
  return run_in(frames_of(thread), value, name, which, f, ...)
end

-- Called before a mode is set that no function's end restores. form: the form with a function.
local function hold(name, form)
  if lib.coroutine() then require("moth.base.coroutines").hold(name, form) end
end

local function run_unrecorded(old, f, a, b, c)
  C.moth_mode(ctx, GRAD, 0)
  local result = f(a, b, c)
  C.moth_mode(ctx, GRAD, old)
  return result
end

-- pcall(f, a, b, c) without recording. No `...`, which LuaJIT does not compile here.
local function unrecorded(f, a, b, c)
  if lib.coroutine() then return pcall(run_under, 0, "no_grad", GRAD, f, a, b, c) end
  local old = C.moth_mode(ctx, GRAD, ASK)
  local ok, result = pcall(run_unrecorded, old, f, a, b, c)
  if not ok then C.moth_mode(ctx, GRAD, old) end
  return ok, result
end

autograd.frames = {
  enter = enter, leave = leave, run = run_under, hold = hold, unrecorded = unrecorded,
}

local function with_mode(mode, name, f, ...)
  if not callable(f) then
    errors.refuse(name, "f", "a function is needed", f)
  end
  return run_under(mode, name, GRAD, f, ...)
end

--- Calls f(...) with gradients turned off, and returns the results of f (as torch.no_grad). The
-- mode is restored also when f raises.
function autograd.no_grad(f, ...)
  return with_mode(0, "no_grad", f, ...)
end

--- Calls f(...) with recording on, also inside no_grad, and returns the results of f.
function autograd.enable_grad(f, ...) return with_mode(1, "enable_grad", f, ...) end

--- Turns recording on or off. With a function after the mode: only while f(...) runs; returns the
-- results of f. Without a function: until it is changed, or until the coroutine that set it ends;
-- other coroutines are not affected.
-- @param mode boolean
function autograd.set_grad_enabled(mode, f, ...)
  if type(mode) ~= "boolean" then
    errors.refuse("set_grad_enabled", "mode", "a boolean is needed", mode)
  end
  if f == nil then
    hold("set_grad_enabled(mode)", "set_grad_enabled(mode, f)")
    C.moth_mode(ctx, GRAD, mode and 1 or 0)
    return
  end
  return with_mode(mode and 1 or 0, "set_grad_enabled", f, ...)
end

--- Returns true if ops are recorded for gradients.
function autograd.is_grad_enabled() return C.moth_grad_mode(ctx, -1) == 1 end

-- ---- the loop ----

local function given(task, i, fname)
  local h = Handle()
  return take(h, C.moth_task_given(ctx, task, i, h), fname)
end

-- Calls f(...) under the grad mode of a pass. f may yield, so that passes interleave in any order.
local function under(mode, f, ...) return run_under(mode, "backward", GRAD, f, ...) end

local function run_function(task, id, ngiven, mode)
  local func = require "moth.autograd.function"
  local entry = nodes[id]
  if not entry or not entry.class then
    errors.raise("a second backward pass through this graph: its saved tensors are freed; "
      .. "pass retain_graph = true to the first backward", "E_GRAPH")
  end
  local direct = entry.direct -- not a user's function: needs no mode
  if direct and mode == 0 and not lib.profile and direct(entry, task, ngiven) then return end
  local grads = {}
  for i = 1, ngiven do grads[i] = given(task, i - 1, "backward") end
  if lib.profile then
    local name = (entry.name or require("moth.base.class").typename(entry.class)) .. " backward"
    require("moth.profiler").within(name, under, mode, func.run_backward, entry, task, grads,
      ngiven)
    return
  end
  under(mode, func.run_backward, entry, task, grads, ngiven)
end

local node_out, given_out, wanted_out =
  ffi.new "uint64_t[1]", ffi.new "uint32_t[1]", ffi.new "uint32_t[1]"

-- Without retain_graph a node runs once: Lua's data on it can be freed.
local function forget(id, flags)
  local entry = nodes[id]
  if not entry or entry.leaf or bit.band(flags, RETAIN_GRAPH) ~= 0 then return end
  nodes[id] = nil
end

-- Runs a pass until it ends or stops for Lua. Repeats what a slice of moth.budget has paused.
local function step(task)
  local status
  repeat
    status = C.moth_task_step(ctx, task, node_out, given_out, wanted_out)
  until status ~= PAUSED or not lib.pause()
  return status
end

-- Continues a pass from the status with which it stopped.
local function drive(status, task, flags)
  local mode = bit.band(flags, CREATE_GRAPH) ~= 0 and 1 or 0
  while status ~= 0 do
    local ngiven = given_out[0]
    if autograd.stopped then autograd.stopped() end
    if status == HOOK then
      local id = tonumber(node_out[0])
      autograd.hooks.run(task, id, mode, ngiven == 0 and "after" or "hooks")
      local entry = nodes[id]
      if entry and entry.before then require("moth.autograd.node").call_hooks(task, id, mode,
        "before") end
      if entry and not (entry.class or entry.results) then forget(id, flags) end
    elseif status == FUNCTION then
      local id = tonumber(node_out[0])
      run_function(task, id, ngiven, mode)
      local entry = nodes[id]
      if entry and entry.results then require("moth.autograd.node").call_hooks(task, id, mode,
        "results") end
      forget(id, flags)
    elseif status == AFTER then
      local id = tonumber(node_out[0])
      require("moth.autograd.node").call_hooks(task, id, mode, "results")
      forget(id, flags)
    elseif status == AGAIN then
      local entry = nodes[tonumber(node_out[0])]
      local again = entry.again or require("moth.utils.checkpoint").again
      again(entry, task, flags)
    else
      autograd.fail(status)
    end
    status = step(task)
  end
end

-- Passes that stopped for Lua. Only the running function holds a pass. If that function is
-- collected (a coroutine that was never resumed), the sweep frees the pass.
local open, passes = {}, setmetatable({}, weak)

local depth, ends = 0, {} -- passes that run; functions that the outermost one calls at its end

--- Calls f when the outermost backward pass that runs has ended without an error.
function autograd.at_end(f) ends[#ends + 1] = f end

local function call_ends()
  local list = ends
  ends = {}
  for _, f in ipairs(list) do f() end
end

-- Runs the rest of a pass that has stopped for Lua. Returns the results of collect(task).
local function run_on(status, task, flags, collect)
  local pass = {} -- collected with this call
  open[task], passes[task] = true, pass
  depth = depth + 1
  local ok, result = pcall(drive, status, task, flags)
  depth = depth - 1
  if depth == 0 and #ends > 0 then
    if ok then ok, result = pcall(call_ends) else ends = {} end
  end
  if ok and collect then ok, result = pcall(collect, task) end
  open[task], passes[task], pass.over = nil, nil, true
  C.moth_task_free(ctx, task)
  if not ok then error(result, 0) end
  return result
end

local GIVEN = {grad = "grad_outputs", ["autograd.backward"] = "grad_tensors"}

-- Raises for a pass that does not start. The core names the function backward and the argument
-- gradient.
local function refused(status, fname, x)
  if not fname or ffi.string(C.moth_error_op(ctx)) ~= "backward" then
    return autograd.fail(status, nil, x)
  end
  local shown = ffi.string(C.moth_error_arg(ctx)) == "gradient" and GIVEN[fname]
  return errors.status(status, fname, shown or nil, x)
end

local task_out = ffi.new "uint32_t[1]"

-- Runs a whole backward pass. collect(task), if given, is called at the end, and its results are
-- returned. fname: the function that the user called, if it is not tensor:backward.
local function run(roots, grads, nroots, inputs, ninputs, flags, collect, fname)
  local status = C.moth_task_begin(ctx, roots, grads, nroots, inputs, ninputs, flags, task_out)
  if lib.note_line then lib.note_line() end
  if status < 0 then return refused(status, fname, istensor(roots) and roots or nil) end
  local task = task_out[0]
  if status > 0 then -- free the forward's garbage before gradients are created
    local ok, problem = pcall(lib.due)
    if not ok then
      C.moth_task_free(ctx, task)
      error(problem, 0)
    end
  end
  status = step(task)
  if status < 0 then return autograd.fail(status) end
  if status == 0 and not collect then return nil end -- the pass has ended and is freed
  return run_on(status, task, flags, collect)
end

local saved_out = ffi.new "uint32_t[1]"

-- Raises the error of a backward pass: in anomaly mode with the line that created the node; for a
-- tensor changed in place with a hint how to find the line.
function autograd.fail(status, fname, x)
  local node = tonumber(C.moth_error_node(ctx))
  local note = node ~= 0 and autograd.anomaly and autograd.anomaly.note(node)
  if not autograd.anomaly and C.moth_error_storage(ctx, saved_out) ~= 0 then
    note = "; moth.autograd.set_detect_anomaly(true) finds the line"
  end
  if not note then return errors.status(status, fname, nil, x) end
  local _, problem = pcall(errors.status, status, fname)
  error(problem .. note, 0)
end

-- Called by each sweep: frees the passes of collected coroutines.
local function sweep()
  for task in pairs(open) do
    if passes[task] == nil then
      open[task] = nil
      C.moth_task_free(ctx, task)
    end
  end
end

lib.on_sweep.autograd = sweep
function lib.on_dead.autograd(id) nodes[id] = nil end

-- ---- public functions ----

local function flags_of(retain_graph, create_graph, allow_unused)
  if retain_graph == nil then retain_graph = create_graph end
  return (retain_graph and RETAIN_GRAPH or 0) + (create_graph and CREATE_GRAPH or 0)
    + (allow_unused and ALLOW_UNUSED or 0)
end

-- Arrays that are reused, one for each use: C reads them before other code can run.
local packs, arrays = {}, {}
for _, use in ipairs {"roots", "grads", "inputs", "outputs", "saved"} do
  packs[use], arrays[use] = lib.handles(8), 8
end

-- Stores the handles of a list of tensors in a C array; holes become {0, 0}.
local function pack(list, n, use)
  if n == 0 then return nil end
  if n > arrays[use] then packs[use], arrays[use] = lib.handles(2 * n), 2 * n end
  local array = packs[use]
  for i = 1, n do
    local x = list[i]
    if istensor(x) then array[i - 1] = x
    else array[i - 1] = lib.NONE end
  end
  return array
end

-- A tensor or a list of tensors (with holes if `holes`) as a list and its length.
local function listed(value, fname, aname, n)
  if value == nil then return {}, 0 end
  if istensor(value) then return {value}, 1 end
  if not lib.is_plain(value) then
    errors.refuse(fname, aname, "a tensor or a list of tensors is needed", value)
  end
  local count = n or #value
  local list = {}
  for i = 1, count do
    local x = value[i]
    if istensor(x) then
      list[i] = x
    elseif not (n and (x == nil or x == false or x == lib.none)) then
      errors.argument(fname, aname, "a list of tensors is needed, got " .. errors.describe(x)
        .. " at position " .. i)
    end
  end
  return list, count
end

-- Raises for more gradients than tensors. The core checks for missing gradients.
local function check_length(grads, n, fname, aname)
  if type(grads) == "table" and #grads > n then
    errors.argument(fname, aname, #grads .. " gradients for " .. n
      .. (n == 1 and " tensor" or " tensors"))
  end
end

-- Parsers of the arguments, created at the first call, because define needs this file.
local parsers = {}
local FLAGS = {
  {"bool", "retain_graph", "keep the graph for another pass", optional = true},
  {"bool", "create_graph", "record the pass itself", default = false},
}
local INPUTS = {"any", "inputs", "compute the gradients of these only", optional = true}
local rows = {
  backward = {{"tensor", "x", "outputs to differentiate"},
    {"tensor", "gradient", "gradient of x", optional = true}, FLAGS[1], FLAGS[2], INPUTS},
  ["autograd.backward"] = {{"any", "tensors", "outputs to differentiate"},
    {"any", "grad_tensors", "their gradients", optional = true}, FLAGS[1], FLAGS[2], INPUTS},
  grad = {{"any", "outputs", "outputs to differentiate"},
    {"any", "inputs", "tensors to differentiate by"},
    {"any", "grad_outputs", "gradients of the outputs", optional = true}, FLAGS[1], FLAGS[2],
    {"bool", "allow_unused", "return nil for inputs that no output depends on", default = false},
    {"bool", "is_grads_batched", "the first dimension of grad_outputs, and of the results, is a "
     .. "batch of gradients", default = false},
    {"bool", "materialize_grads", "return zeros instead of nil", default = false}},
}

local function parsed(fname, ...)
  local parse = parsers[fname]
  if not parse then
    parse = require("moth.binding.define").signature(fname, rows[fname])
    parsers[fname] = parse
  end
  return parse(...)
end

local function run_backward(fname, roots, nroots, grads, retain_graph, create_graph, wanted)
  local inputs, ninputs = listed(wanted, fname, "inputs")
  if wanted ~= nil and ninputs == 0 then
    errors.argument(fname, "inputs", "an empty list")
  end
  if ninputs == 0 then
    run(roots, grads, nroots, nil, 0, flags_of(retain_graph, create_graph), nil, fname)
    return
  end
  -- Adds the gradients of `inputs` to their .grad; no other leaf gets a gradient.
  local flags = flags_of(retain_graph, create_graph, true)
  local list = autograd.collected(roots, grads, nroots, inputs, ninputs, flags, fname)
  local accumulate, mode = require("moth.binding.bind").ops, create_graph and 1 or 0
  local function add()
    for i = 1, ninputs do
      local x, grad = inputs[i], list[i]
      if grad then
        local old = x.grad
        if old then grad = accumulate.add(old, grad) end
        x.grad = grad
        if autograd.some_after and x.is_leaf then autograd.hooks.after(x, fname, mode) end
      end
    end
  end
  with_mode(mode, fname, add)
end

--- x:backward{gradient, retain_graph, create_graph, inputs}: adds to the .grad of every leaf of x's
-- graph (or only of `inputs`) the derivative of x by it. (As torch.Tensor.backward.)
-- @param x a floating tensor of the graph
-- @param gradient tensor of x's shape; optional if x has one element
-- @param retain_graph keep the graph for another pass (default: create_graph)
-- @param create_graph record the pass itself, for higher derivatives (default: false)
function autograd.tensor_backward(x, gradient, ...)
  if not istensor(x) then errors.no_self("backward", "x") end
  if gradient == nil and select("#", ...) == 0 then
    run(x, nil, 1, nil, 0, 0)
    return
  end
  local _, grad, retain_graph, create_graph, inputs = parsed("backward", x, gradient, ...)
  run_backward("backward", x, 1, grad, retain_graph, create_graph, inputs)
end

--- moth.autograd.backward(tensors, {grad_tensors, retain_graph, create_graph, inputs}): like
-- x:backward for several tensors, in one pass.
-- @param tensors a tensor or a list of tensors
-- @param grad_tensors a gradient for each of them (moth.none: no gradient, for tensors with one
-- element)
function autograd.backward(...)
  local fname = "autograd.backward"
  local tensors, grads, retain_graph, create_graph, inputs = parsed(fname, ...)
  local roots, n = listed(tensors, fname, "tensors")
  if n == 0 then errors.argument(fname, "tensors", "an empty list") end
  check_length(grads, n, fname, "grad_tensors")
  grads = pack(listed(grads, fname, "grad_tensors", n), n, "grads")
  run_backward(fname, pack(roots, n, "roots"), n, grads, retain_graph, create_graph, inputs)
end

-- Runs the pass and returns the gradients of the inputs as a list with holes.
function autograd.collected(roots, grads, nroots, inputs, ninputs, flags, fname)
  local function collect(task)
    local list = {}
    for i = 1, ninputs do
      local h = Handle()
      list[i] = take(h, C.moth_task_result(ctx, task, i - 1, h), fname)
    end
    return list
  end
  return run(roots, grads, nroots, pack(inputs, ninputs, "inputs"), ninputs, flags, collect, fname)
end

--- moth.autograd.grad(outputs, inputs, {grad_outputs, retain_graph, create_graph, allow_unused,
-- is_grads_batched, materialize_grads}): the derivatives of the sum of the outputs by each input,
-- as several values. Does not change .grad. (As torch.autograd.grad.)
-- @param outputs a tensor or a list of tensors
-- @param inputs a tensor or a list of tensors of the outputs' graph
-- @param grad_outputs the gradients of the outputs; optional for outputs with one element
-- @param allow_unused nil for an input on which no output depends, instead of an error
-- @param materialize_grads zeros for such an input
-- @param is_grads_batched true: each of grad_outputs is a batch of gradients, one pass for each
function autograd.grad(...)
  local outputs, inputs, grads, retain_graph, create_graph, unused, batched, zeros =
    parsed("grad", ...)
  if lib.observer then
    return lib.observer.differentiate(autograd.grad, outputs, inputs, {grad_outputs = grads,
      retain_graph = retain_graph, create_graph = create_graph, allow_unused = unused,
      is_grads_batched = batched, materialize_grads = zeros})
  end
  if batched then
    return require("moth.autograd.batched")(autograd.grad, outputs, inputs, grads, {
      retain_graph = retain_graph,
      create_graph = create_graph, allow_unused = unused, materialize_grads = zeros})
  end
  local roots, n = listed(outputs, "grad", "outputs")
  local list, m = listed(inputs, "grad", "inputs")
  if n == 0 or m == 0 then
    errors.argument("grad", n == 0 and "outputs" or "inputs",
      "a tensor or a list of tensors is needed, got an empty list")
  end
  check_length(grads, n, "grad", "grad_outputs")
  grads = pack(listed(grads, "grad", "grad_outputs", n), n, "grads")
  local flags = flags_of(retain_graph, create_graph, unused or zeros)
  local results = autograd.collected(pack(roots, n, "roots"), grads, n, list, m, flags, "grad")
  for i = 1, zeros and m or 0 do
    if results[i] == nil then results[i] = require("moth.binding.bind").ops.zeros_like(list[i]) end
  end
  return unpack(results, 1, m)
end

autograd.pack, autograd.take, autograd.given, autograd.under = pack, take, given, under

--- Called when a pass stops for Lua while batch/log.lua logs a function's ops.
autograd.stopped = false

--- True after the first hook that runs after a leaf's gradient is added.
autograd.some_after = false

autograd.anomaly = false -- moth.autograd.anomaly while that mode is on

-- Names defined in other files are loaded at their first use.
local elsewhere = {functional = {"moth.autograd.jacobian"}, hooks = {"moth.tensor.hooks"},
  graph = {"moth.autograd.graph"}}
lazy.from(elsewhere, "moth.autograd.function", "Function FunctionCtx once_differentiable")
lazy.from(elsewhere, "moth.autograd.gradcheck", "gradcheck gradgradcheck")
lazy.from(elsewhere, "moth.autograd.anomaly",
  "set_detect_anomaly detect_anomaly is_anomaly_enabled")

return (lazy.namespace("moth.autograd", autograd, elsewhere, {hint = lazy.HELP}))
