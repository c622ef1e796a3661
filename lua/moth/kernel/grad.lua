--- grad.lua -- gradients of kernels (init.lua): one graph node whose backward is a program too,
-- compiled at its first use. If that is not possible, and for second derivatives, autograd runs
-- the kernel's Lua function instead.

local bit = require "bit"
local ffi = require "ffi"
local autograd = require "moth.autograd"
local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local errors = require "moth.error"
local func = require "moth.autograd.function"
local lib = require "moth.binding.lib"
local program = require "moth.kernel.program"
local trace = require "moth.kernel.trace"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local concat, format = table.concat, string.format

local kernel_grad = {}

-- Calls a kernel's function with the constants at their positions.
local function plainly(call, p, tensors)
  local args = {}
  for i, spec in ipairs(p.specs) do
    if spec.from then args[i] = tensors[spec.from]
    else args[i] = spec.value end
  end
  local results = lib.pack(call.fn(unpack(args, 1, #p.specs)))
  call.returned = true
  return results
end
errors.user_call(plainly)

-- The derivatives of the function by autograd, at these tensors: a list with holes.
local function differentiate(p, tensors, grads, needs, create_graph)
  local results = plainly({fn = p.kernel.fn, name = p.kernel.name}, p, tensors)
  local roots, given, inputs, list = {}, {}, {}, {n = #tensors}
  for i = 1, results.n do
    if grads[i] and results[i].requires_grad then
      roots[#roots + 1], given[#given + 1] = results[i], grads[i]
    end
  end
  for i, x in ipairs(tensors) do
    if needs[i] and x.requires_grad then inputs[#inputs + 1] = x end
  end
  if #roots == 0 or #inputs == 0 then return list end
  local out = lib.pack(autograd.grad(roots, inputs, {grad_outputs = given,
    create_graph = create_graph, allow_unused = true}))
  local k = 0
  for i, x in ipairs(tensors) do
    if needs[i] and x.requires_grad then
      k = k + 1
      list[i] = out[k]
    end
  end
  return list
end

-- Like differentiate, in the modes of the forward pass, with new leaf tensors.
local function differentiate_apart(p, tensors, grads, needs)
  local leaves = {}
  for i, x in ipairs(tensors) do
    leaves[i] = x:detach()
    if needs[i] then leaves[i].requires_grad = true end
  end
  return trace.in_modes(p, true, differentiate, p, leaves, grads, needs, false)
end

-- Traces the gradients of the inputs in `needs`.
local function read_backward(p, needs, use)
  local specs, n, values = {}, #p.tensors, nil
  for i, spec in ipairs(p.tensors) do specs[i] = spec end
  for i, dtype in ipairs(p.flows) do
    specs[n + i] = {dtype = dtype or C.MOTH_F32, zero = p.all_zero}
  end
  return trace.read(specs, function(inputs)
    local tensors, grads = {}, {}
    for i = 1, n do tensors[i] = inputs[i] end
    for i, dtype in ipairs(p.flows) do grads[i] = dtype and inputs[n + i] end
    for i = 1, n do
      if needs[i] then tensors[i].requires_grad = true end
    end
    local list = trace.in_modes(p, true, function()
      local results = plainly({fn = p.kernel.fn, name = p.kernel.name}, p, tensors)
      local roots, given, wanted = {}, {}, {}
      values = results
      for i = 1, results.n do
        if grads[i] and results[i].requires_grad then
          roots[#roots + 1], given[#given + 1] = results[i], grads[i]
        end
      end
      for i = 1, n do
        if needs[i] then wanted[#wanted + 1] = tensors[i] end
      end
      C.moth_trace_backward(ctx)
      C.moth_autocast(ctx, -1)
      return lib.pack(autograd.grad(roots, wanted, {grad_outputs = given, allow_unused = true}))
    end)
    local all, k = {n = n}, 0
    for i = 1, n do
      if needs[i] then
        k = k + 1
        all[i] = list[k] or false
      else
        all[i] = false
      end
    end
    return all
  end, function(reading) use(reading, specs, values) end)
end

-- Checks that the function still returns the values of its program: upvalues and globals may have
-- changed since the trace. (Other devices round differently.)
local function unchanged(p, inputs, values)
  if p.device then return true end
  local args = {}
  for i, spec in ipairs(p.specs) do
    if spec.from then args[i] = inputs[spec.from]:detach() else args[i] = spec.value end
  end
  return trace.same_bytes({p.run(unpack(args, 1, #p.specs))}, values, p.results)
end

-- Checks that all results of a program depend on the incoming gradients: a result that does not is
-- 0 and has the wrong shape. n: the number of inputs before the gradients.
local function flows_through(q, specs, n)
  local flow, all_zero = 0, true
  for i, spec in ipairs(specs) do
    all_zero = all_zero and spec.zero
    if i > n and not spec.zero then flow = bit.bor(flow, bit.lshift(1, i - 1)) end
  end
  for _, set in ipairs(q.depends) do
    if not all_zero and bit.band(set, flow) == 0 then return false end
  end
  return true
end

-- Programs for the gradients of these inputs: several if one is too large. nil if a part is still
-- too large.
local function split(reading, specs, inputs, programs, n)
  local wanted = {}
  if #inputs == 0 then return programs end
  for k, i in ipairs(inputs) do wanted[k] = reading.wanted[i] end
  local q = program.new(reading, specs, wanted)
  if q and flows_through(q, specs, n) then
    q.inputs = inputs
    programs[#programs + 1] = q
    return programs
  end
  if #inputs == 1 then return nil end
  local half, rest = {}, {}
  for k, i in ipairs(inputs) do table.insert(k <= #inputs / 2 and half or rest, i) end
  return split(reading, specs, half, programs, n) and split(reading, specs, rest, programs, n)
end

-- If a program fails, the function itself runs and raises the error.
local FAILED = {}
local function failing() return FAILED end

local info, other = ffi.new "moth_tensor_info", ffi.new "moth_tensor_info"

local function same_shape(x, y)
  C.moth_inspect(ctx, x, info)
  C.moth_inspect(ctx, y, other)
  local n = info.ndim
  if n ~= other.ndim then return false end
  for d = 0, n - 1 do
    if info.shape[d] ~= other.shape[d] then return false end
  end
  return true
end

-- grad, summed over the dimensions along which x was broadcast.
local function sum_to(grad, x)
  if same_shape(grad, x) then return grad end
  local have, want = grad.shape, x.shape
  local dims, more = {}, #have - #want
  for d = 1, #have do
    if d <= more or (want[d - more] == 1 and have[d] ~= 1) then dims[#dims + 1] = d end
  end
  if #dims > 0 then
    local all = grad
    grad = bind.ops.sum(all, dims, true)
    if not lib.capture then C.moth_free(ctx, all) end
  end
  return more > 0 and bind.ops.view(grad, want) or grad
end

-- Sums round differently, so compare them with a tolerance.
local function near(a, b)
  return bind.ops.isclose(a, b, {rtol = 0.02, atol = 0.02, equal_nan = true}):all():item()
end

-- Checks that the programs return the values of autograd for the traced tensors; with a tolerance
-- if gradients are summed.
local function agree_all(programs, reading, summed)
  local args = {}
  for i, x in ipairs(reading.inputs) do args[i] = x:detach() end
  for _, q in ipairs(programs) do
    local results, wanted = {q.run(args)}, {}
    for k, i in ipairs(q.inputs) do wanted[k] = reading.results[i] end
    if results[1] == FAILED then return false end
    if summed then
      for k, y in ipairs(wanted) do
        if not near(sum_to(results[k], y), y) then return false end
      end
    elseif not trace.same_bytes(results, wanted, q.results) then
      return false
    end
  end
  return true
end

-- The programs that compute the gradients of `needs`, as a list; false: use autograd.
local function backward_of(p, needs)
  local programs, changed
  local ok = pcall(read_backward, p, needs, function(reading, specs, values)
    local inputs = {}
    changed = not unchanged(p, reading.inputs, values)
    for i = 1, #p.tensors do
      if reading.wanted[i] then inputs[#inputs + 1] = i end
    end
    programs = split(reading, specs, inputs, {}, #p.tensors)
    for _, q in ipairs(programs or {}) do q.run = program.compile(q, nil, failing) end
    if programs and not agree_all(programs, reading, p.summed) then programs = nil end
    for _, q in ipairs(p.device and programs or {}) do
      program.bring(q, p.device)
      q.run = program.compile(q, nil, failing)
    end
  end)
  if changed then
    errors.raise(p.kernel.name .. " has changed since it was traced: an upvalue or a global has "
      .. "another value; pass it as an argument", "E_STATE")
  end
  return ok and programs or false
end

-- Computes gradients with programs, from the arguments and the incoming gradients: a list with
-- holes; false if a program failed.
local function run_programs(programs, args)
  local list = {}
  for _, q in ipairs(programs) do
    local y1, y2, y3, y4 = q.run(args)
    if type(y1) == "table" then return false end
    local i, j, k, l = q.inputs[1], q.inputs[2], q.inputs[3], q.inputs[4]
    list[i] = sum_to(y1, args[i])
    if j then list[j] = sum_to(y2, args[j]) end
    if k then list[k] = sum_to(y3, args[k]) end
    if l then list[l] = sum_to(y4, args[l]) end
  end
  return list
end

local Node = class("Kernel", func.Function)

function Node.forward() errors.raise "a kernel is called, not applied" end

function Node.backward(run, ...)
  local p, tensors, needs = run.program, run.saved_tensors, run.needs_input_grad
  local grads, mask, n = lib.pack(...), 0, #tensors
  if autograd.is_grad_enabled() then
    local list = trace.in_modes(p, true, differentiate, p, tensors, grads, needs, true)
    return unpack(list, 1, n)
  end
  for i = 1, n do mask = mask * 2 + (needs[i] and 1 or 0) end
  if p.backwards[mask] == nil then p.backwards[mask] = backward_of(p, needs) end
  local programs, args = p.backwards[mask], {}
  for i = 1, n do args[i] = tensors[i] end
  for i = 1, grads.n do args[n + i] = grads[i] or tensors[1] end
  local list = programs and not lib.trace and run_programs(programs, args)
    or differentiate_apart(p, tensors, grads, needs)
  return unpack(list, 1, n)
end

-- The fast path: no user Lua runs, and the programs exist. Returns false if it does not apply.
local function direct(entry, task, ngiven)
  local p, n, mask = entry.state.program, entry.nargs, 0
  for i = 0, n - 1 do mask = mask * 2 + C.moth_task_wants(ctx, task, i) end
  local programs = p.backwards[mask]
  if not programs or lib.trace then return false end
  local args, mine = {}, {}
  for i = 1, n + ngiven do
    local h = Handle()
    local status = i <= n and C.moth_task_saved(ctx, task, i - 1, h)
      or C.moth_task_given(ctx, task, i - n - 1, h)
    if status >= 0 and h._slot == 0 and entry.zeros[i - n] then
      status = C.moth_task_zeros(ctx, task, i - n - 1, h)
    end
    if status < 0 then autograd.fail(status, p.kernel.name) end
    if h._slot ~= 0 then
      local old = lib.live[h._slot]
      if not old or old._gen ~= h._gen then mine[#mine + 1] = h end
      args[i] = lib.adopt(h, status)
    else
      args[i] = args[1]
    end
  end
  local ok, list = autograd.frames.unrecorded(run_programs, programs, args)
  if not ok then error(list, 0) end
  if not list then return false end
  for i = 1, n do
    local grad = list[i]
    local status = grad and C.moth_task_put(ctx, task, i - 1, grad) or 0
    if status < 0 then errors.status(status, p.kernel.name) end
    if grad and not lib.capture then C.moth_free(ctx, grad) end -- a leaf may keep it without a copy
  end
  for i = 1, lib.capture and 0 or #mine do C.moth_free(ctx, mine[i]) end
  return true
end

-- Marks the results as fresh: no other tensor shares them, so they may be written in place.
local FRESH = bit.lshift(1ULL, 63)

local TIE = [[
local C, ctx, ins, outs, nodes, class, state, tensors, flows, name, node, raise, tonumber, direct,
  fresh = ...
return function(%s)
%s
  local st = C.moth_function(ctx, name, ins, %d, outs, %d, fresh, ins, %d, node)
  if st < 0 then raise(st) end
  local id = tonumber(node[0])
  if id ~= 0 then
    nodes[id] = { class = class, state = state, nargs = %d, nsaved = %d, tensors = tensors,
                  zeros = flows, direct = direct, name = name }
  end
end]]

--- Returns the function that adds the graph node between arguments and results: tie(results...,
-- arguments...).
function kernel_grad.compile_tie(p)
  local args, fill, places, flows = {}, {}, {}, {}
  for k = 1, p.results do
    args[k] = "y" .. k
    fill[#fill + 1] = format("  outs[%d] = y%d", k - 1, k)
    flows[k] = p.flows[k] and true or false
  end
  for i, spec in ipairs(p.specs) do
    args[#args + 1] = "a" .. i
    if spec.from then
      fill[#fill + 1] = format("  ins[%d] = a%d", spec.from - 1, i)
      places[spec.from] = spec.from
    end
  end
  local n = #p.tensors
  local text = format(TIE, concat(args, ", "), concat(fill, "\n"), n, p.results, n, n, n)
  return assert(lib.loadstring(text, "=[moth.kernel]"))(C, ctx, lib.handles(n),
    lib.handles(p.results), autograd.nodes, Node, {program = p}, places, flows, p.kernel.name,
    ffi.new "uint64_t[1]", function(st) errors.status(st, p.kernel.name) end, tonumber,
    direct, FRESH)
end

kernel_grad.plainly, kernel_grad.agree_all, kernel_grad.failing = plainly, agree_all, failing

return kernel_grad
