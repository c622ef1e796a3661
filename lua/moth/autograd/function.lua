--- function.lua -- moth.autograd.Function: an op with a gradient, written in Lua.
--
--   local Square = nn.class("Square", moth.autograd.Function)
--
--   function Square.forward(ctx, x)
--     ctx:save_for_backward(x)
--     return x * x
--   end
--
--   function Square.backward(ctx, dy)
--     local x = ctx.saved_tensors[1]
--     return 2 * x * dy
--   end
--
--   local y = Square.apply(x)
--
-- forward runs without gradients; its results become the results of one node of the graph.
-- backward gets the gradient of each result of forward and returns one gradient or nil for each
-- argument of forward. The core, not Lua, holds the tensors of save_for_backward, so a Function
-- that saves its output creates no cycle. backward is differentiable if it is written with ops.

local ffi = require "ffi"
local autograd = require "moth.autograd"
local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local istensor = lib.istensor

local functions = {}

-- ---- ctx ----

-- The state of one call of apply: the user's fields, and Moth's fields under the private key.
local PRIVATE = {}

local function check_tensors(fname, ...)
  local list = lib.pack(...)
  for i = 1, list.n do
    if list[i] ~= nil and not istensor(list[i]) then
      errors.argument(fname, "tensors", "tensors are needed, got " .. errors.describe(list[i])
        .. " at position " .. i)
    end
  end
  return list
end

local function in_forward(self, fname)
  if type(self) ~= "table" then errors.no_self(fname, "ctx") end
  local state = rawget(self, PRIVATE)
  if not state.forward then errors.raise(fname .. " belongs into forward") end
  return state
end

--- The `ctx` that forward and backward of a Function share. Users may set fields. It has
-- ctx.needs_input_grad, a list that is true for each argument of forward that needs a gradient,
-- and in backward ctx.saved_tensors, the list of the tensors that forward saved.
local FunctionCtx = class("FunctionCtx")
functions.FunctionCtx = FunctionCtx

function FunctionCtx.init()
  errors.raise "each call of apply creates a ctx and passes it to forward and backward"
end

--- Saves tensors for backward, as ctx.saved_tensors. A nil keeps its position. If a saved tensor is
-- changed in place, backward raises.
function FunctionCtx:save_for_backward(...)
  in_forward(self, "save_for_backward").saved = check_tensors("save_for_backward", ...)
end

--- Declares inputs that forward wrote in place; they must be among its results.
function FunctionCtx:mark_dirty(...)
  in_forward(self, "mark_dirty").dirty = check_tensors("mark_dirty", ...)
end

--- Declares results that have no gradient.
function FunctionCtx:mark_non_differentiable(...)
  in_forward(self, "mark_non_differentiable").constant =
    check_tensors("mark_non_differentiable", ...)
end

--- Sets if backward gets zeros (true, the default) or nil for results on which nothing depends.
-- Results without a gradient (integers, and marked ones) always get nil.
function FunctionCtx:set_materialize_grads(on)
  if type(on) ~= "boolean" then
    errors.refuse("set_materialize_grads", "on", "a boolean is needed", on)
  end
  in_forward(self, "set_materialize_grads").zeros = on
end

local Context = {__name = "ctx"}
function Context:__index(key)
  if key == "saved_tensors" then
    local saved = rawget(self, PRIVATE).saved
    if not saved then errors.raise "ctx.saved_tensors can be read in backward only" end
    return saved
  end
  return FunctionCtx[key]
end

-- In backward, the user's functions see the state of forward through an object of this run. Nested
-- or interleaved runs of one node do not share unpacked tensors.
local Run = {__name = "ctx"}
function Run:__index(key)
  local run = rawget(self, PRIVATE)
  if key == "saved_tensors" then
    local list = {}
    for i = 1, run.nsaved do
      local h = Handle()
      local status = C.moth_task_saved(ctx, run.task, i - 1, h)
      if status < 0 then autograd.fail(status) end
      if h._slot ~= 0 then list[i] = lib.adopt(h, status) end
    end
    rawset(self, key, list)
    return list
  elseif key == "needs_input_grad" then
    return run.needs
  end
  return run.state[key]
end
function Run:__newindex(key, value) rawget(self, PRIVATE).state[key] = value end

-- ---- Function.apply ----

local function contains(list, x)
  for i = 1, list and list.n or 0 do
    if list[i] ~= nil and list[i] == x then return true end
  end
  return false
end

-- The tensors among the results, their positions, which of them are marked as constant and which
-- have a gradient. All are without history: a result that is an input becomes an alias, unless it
-- was written in place.
local function outputs_of(name, results, inputs, state)
  local outputs, nondiff, places, flows = {}, 0ULL, {}, {}
  for i = 1, results.n do
    local y = results[i]
    if istensor(y) then
      if contains(inputs, y) and not contains(state.dirty, y) then
        local h = Handle()
        y = autograd.take(h, C.moth_detach(ctx, y, h), name)
        results[i] = y
      end
      local n = #outputs + 1
      outputs[n], places[n] = y, i
      flows[n] = y:is_floating_point()
      if contains(state.constant, y) and n <= 64 then
        nondiff, flows[n] = nondiff + bit.lshift(1ULL, n - 1), false
      end
    end
  end
  for i = 1, state.dirty and state.dirty.n or 0 do
    if not contains(results, state.dirty[i]) then
      errors.raise(name .. ".forward marks argument " .. i .. " of mark_dirty as written in place, "
        .. "so it must return it")
    end
  end
  return {outputs = outputs, places = places, nondiff = nondiff, flows = flows}
end

local node_out = ffi.new "uint64_t[1]"

-- Connects the results to the inputs by a node.
local function record(self, name, object, args, inputs, results, made)
  local state, outputs, places, flows = object[PRIVATE], made.outputs, made.places, made.flows
  local nsaved = state.saved and state.saved.n or 0
  local array = autograd.pack(outputs, #outputs, "outputs")
  local given = autograd.pack(inputs, inputs.n, "inputs")
  local status = C.moth_function(ctx, name, given, inputs.n, array,
    #outputs, made.nondiff, autograd.pack(state.saved or {}, nsaved, "saved"), nsaved, node_out)
  if status < 0 then errors.status(status, name .. ".apply") end
  local id = tonumber(node_out[0])
  for i = 1, #outputs do
    local old, new = outputs[i], array[i - 1]
    if new._slot ~= old._slot or new._gen ~= old._gen then
      local h = Handle()
      h._slot, h._gen = new._slot, new._gen
      results[places[i]] = lib.adopt(h, 0)
    end
  end
  if id == 0 then return end
  state.saved, state.forward, state.dirty, state.constant = nil, nil, nil, nil
  autograd.nodes[id] = {
    class = self, state = object, nargs = args.n, nsaved = nsaved,
    tensors = state.tensors, zeros = state.zeros ~= false and flows or {},
  }
  if autograd.anomaly then autograd.anomaly.made(id) end
end

-- `function Foo:forward(ctx, x)` would get ctx as self.
local written = setmetatable({}, {__mode = "k"}) -- marked function -> the user's

local function check_dot(self, name, key)
  local fn = written[self[key]] or self[key]
  if debug.getlocal(fn, 1) == "self" and debug.getlocal(fn, 2) == "ctx" then
    errors.raise(("write function %s.%s(ctx, ...), with a '.'"):format(name, key))
  end
end

-- Runs forward. Returns its results as a list, and the tensors among them.
local function run_forward(call, object, inputs, any, ...)
  local results = lib.pack(autograd.no_grad(call.fn, object, ...))
  call.returned = true
  local made = outputs_of(call.class, results, inputs, object[PRIVATE])
  if any and #made.outputs == 0 then
    errors.raise(call.name .. " must return a tensor, got " .. errors.describe(results[1]))
  end
  return results, made
end
errors.user_call(run_forward)

local function apply(self, ...)
  local name = class.typename(self)
  local args = lib.pack(...)
  local needs, inputs, tensors, any = {}, {n = 0}, {}, false
  local recording = C.moth_grad_mode(ctx, -1) == 1
  for i = 1, args.n do
    local x = args[i]
    needs[i] = false
    if istensor(x) then
      inputs.n = inputs.n + 1
      inputs[inputs.n], tensors[inputs.n] = x, i
      local flags = lib.inspect(x).flags
      needs[i] = recording and bit.band(flags, C.MOTH_IS_GRAD) ~= 0
      any = any or needs[i]
    end
  end
  if type(self.forward) ~= "function" then
    errors.raise("class '" .. name .. "' has no function 'forward(ctx, ...)'")
  end
  check_dot(self, name, "forward")
  local state = {forward = true, tensors = tensors}
  local object = setmetatable({needs_input_grad = needs, [PRIVATE] = state}, Context)
  local call = {fn = self.forward, name = name .. ".forward", class = name}
  local results, made = run_forward(call, object, any and inputs or {n = 0}, any, ...)
  if any then record(self, name, object, args, inputs, results, made) end
  return unpack(results, 1, results.n)
end

-- ---- backward ----

local function check_count(name, entry, results)
  local n = results.n
  while n > entry.nargs and results[n] == nil do n = n - 1 end
  local least = #entry.tensors > 0 and entry.tensors[#entry.tensors] or 0
  if n > entry.nargs or n < least then
    errors.raise(("%s.backward returned %d %s, but %s.forward has %d %s"):format(name, results.n,
      results.n == 1 and "gradient" or "gradients", name, entry.nargs,
      entry.nargs == 1 and "argument" or "arguments"))
  end
end

-- Calls backward and passes its results to the pass.
local function call_backward(call, entry, task, run, ...)
  local name, needs = class.typename(entry.class), run.needs
  local results = lib.pack(call.fn(setmetatable({[PRIVATE] = run}, Run), ...))
  call.returned = true
  check_count(name, entry, results)
  for i = 1, results.n do
    if results[i] ~= nil and not istensor(results[i]) then
      errors.raise(("%s returned %s as gradient %d; a tensor or nil is needed"):format(call.name,
        errors.describe(results[i]), i))
    end
  end
  if autograd.anomaly then autograd.anomaly.refuse_nan(name, results) end
  for k, i in ipairs(entry.tensors) do
    if results[i] ~= nil and needs[i] then
      local status = C.moth_task_put(ctx, task, k - 1, results[i])
      if status < 0 then errors.status(status, call.name) end
    end
  end
end
errors.user_call(call_backward)

--- Runs the backward of the Function at whose node `task` has stopped; called by autograd's loop.
-- @param entry the node's entry in autograd.nodes
-- @param grads the gradients of its results, with holes
function functions.run_backward(entry, task, grads, ngiven)
  local self = entry.class
  local name = class.typename(self)
  if type(self.backward) ~= "function" then
    errors.raise("class '" .. name .. "' has no function 'backward(ctx, ...)'")
  end
  check_dot(self, name, "backward")
  for i = 1, ngiven do
    if grads[i] == nil and entry.zeros[i] then
      local h = Handle()
      grads[i] = autograd.take(h, C.moth_task_zeros(ctx, task, i - 1, h), name .. ".backward")
    end
  end
  local needs = {}
  for i = 1, entry.nargs do needs[i] = false end
  for k, i in ipairs(entry.tensors) do needs[i] = C.moth_task_wants(ctx, task, k - 1) == 1 end
  local run = {task = task, state = entry.state, nsaved = entry.nsaved, needs = needs}
  local call = {fn = self.backward, name = name .. ".backward", written = written[self.backward]}
  call_backward(call, entry, task, run, unpack(grads, 1, ngiven))
end

-- ---- the class ----

--- The base class of user-defined ops with a gradient: a class with `forward(ctx, ...)`, which runs
-- without recording, and `backward(ctx, grad...)`, which returns a gradient for each argument of
-- forward (nil: no gradient). `Cube.apply(...)` calls it.
local Function = class("Function")

function Function.__derived(self)
  self.apply = function(first, ...)
    if first == self then
      errors.raise(("write %s.apply(x), with a '.'"):format(class.typename(self)))
    end
    return apply(self, first, ...)
  end
end

function Function.init(self)
  errors.raise("a Function has no instances; call " .. class.typename(self) .. ".apply(...)")
end

functions.Function = Function

-- ---- backward functions that are not differentiable ----

-- Its results are those of a backward function, with the n tensors before them as inputs.
local Once = class("OnceDifferentiable", Function)
function Once.forward(_, n, ...) return select(n + 1, ...) end
function Once.backward()
  errors.raise("a second-order gradient goes through a Function whose backward "
    .. "is marked by once_differentiable", "E_GRAPH")
end

-- The tensors on which the results of backward may depend: gradients and saved tensors.
local function sources(state, ...)
  local list = {}
  for i = 1, select("#", ...) do list[#list + 1] = (select(i, ...)) end
  for i = 1, rawget(state, PRIVATE).nsaved do list[#list + 1] = state.saved_tensors[i] end
  local wanted = {}
  for _, x in ipairs(list) do
    if x.requires_grad then wanted[#wanted + 1] = x end
  end
  return wanted
end

--- Marks a backward function whose results cannot be differentiated again, or need not be:
-- `Foo.backward = moth.autograd.once_differentiable(function(ctx, dy) ... end)`. It runs without
-- recording; a second-order gradient through it raises. (As
-- torch.autograd.function.once_differentiable.)
-- @param fn  backward(ctx, grad...)
-- @return the function to assign to `backward`
function functions.once_differentiable(fn)
  if type(fn) ~= "function" then
    errors.refuse("once_differentiable", "fn", "a function is needed", fn, "E_TYPE")
  end
  local function backward(state, ...)
    local from = autograd.is_grad_enabled() and sources(state, ...) or {}
    local results = lib.pack(autograd.no_grad(fn, state, ...))
    local n = #from
    if n == 0 then return unpack(results, 1, results.n) end
    for i = 1, results.n do from[n + i] = results[i] end
    return Once.apply(n, unpack(from, 1, n + results.n))
  end
  written[backward] = fn
  return backward
end

return functions
