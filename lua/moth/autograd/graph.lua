--- graph.lua -- moth.autograd.graph: hooks on the tensors that ops save for their gradients.
--
--     local loss = moth.autograd.graph.saved_tensors_hooks(pack, unpack, function()
--       return net(x):sum()
--     end)
--
-- The core never calls Lua. A checkpoint (core/autograd/checkpoint.c) lists the nodes created
-- while f runs. A call that creates a node returns WANT, as it does when a collection is due.
-- lib.due then calls this file, which removes the saved tensors from the node and calls `pack`. A
-- backward pass that needs them stops, and autograd's loop calls `unpack`.

local ffi = require "ffi"
local autograd = require "moth.autograd"
local calls = require "moth.binding.calls"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local istensor, is_plain = lib.istensor, lib.is_plain

lib.declare "nodes"

local graph = {}

-- The results of `pack`: node's id -> number of the saved tensor -> {value}.
local packed = {}
function lib.on_dead.graph(id) packed[id] = nil end

local current -- {id = the innermost checkpoint, pack =, unpack =, busy =}
local refused -- the message of disable_saved_tensors_hooks

local checkpoint_out, node_out = ffi.new "uint64_t[1]", ffi.new "uint64_t[1]"
local slot_out = ffi.new "uint32_t[1]"

-- Keeps the tensors of a packed value out of scopes: the graph may live longer.
local function keep(value)
  if istensor(value) then
    C.moth_keep_always(ctx, value)
  elseif is_plain(value) then
    for _, item in pairs(value) do keep(item) end
  end
end

-- ---- packing ----

local function take_all(state)
  while true do
    local h = Handle()
    local status = C.moth_checkpoint_pack(ctx, state.id, node_out, slot_out, h)
    local x = autograd.take(h, status, "saved_tensors_hooks")
    if x == nil then return end
    local node, slot = tonumber(node_out[0]), slot_out[0]
    local value = autograd.no_grad(state.pack, x)
    keep(value)
    packed[node] = packed[node] or {}
    packed[node][slot] = {value}
  end
end

-- Packs the tensors saved since the last call.
local function drain()
  local state = current
  if not state or state.busy then return end
  state.busy = true
  local ok, problem = pcall(take_all, state)
  state.busy = false
  if not ok then error(problem, 0) end
end

-- ---- unpacking ----

local function unpack_all(entry, task)
  local status = C.moth_task_packed(ctx, task, node_out)
  if status < 0 then errors.status(status, "backward") end
  local node = tonumber(node_out[0])
  for slot, box in pairs(packed[node] or {}) do
    local x = entry.unpack(box[1])
    if not istensor(x) then
      errors.raise("saved_tensors_hooks: the unpack hook returned " .. errors.describe(x)
        .. ", and a tensor is needed", "E_TYPE")
    end
    status = C.moth_task_unpack(ctx, task, slot, x)
    if status < 0 then errors.status(status, "backward") end
  end
  return node
end

-- Called by autograd's loop: a pass needs the tensors of a node.
local function again(entry, task, flags)
  local node = autograd.no_grad(unpack_all, entry, task)
  if C.moth_task_packed(ctx, task, node_out) == 0 and tonumber(node_out[0]) == node then
    errors.raise("saved_tensors_hooks: a tensor that the graph needs was not packed, since the "
      .. "pack hook failed", "E_GRAPH")
  end
  if bit.band(flags, C.MOTH_RETAIN_GRAPH) == 0 then packed[node] = nil end
end

-- ---- public functions ----

local function close(state, outer, ok, ...)
  local drained, problem = true, nil
  if ok then drained, problem = pcall(drain) end
  current, lib.packing = outer, outer and drain or nil
  C.moth_checkpoint_end(ctx, state.id, C.MOTH_CHECKPOINT_DROP, 0)
  if not ok then error((...), 0) end
  if not drained then error(problem, 0) end
  return ...
end

-- Calls f(...) with the hooks.
local function with_hooks(pack, unpack_hook, f, ...)
  if refused then errors.raise(refused, "E_STATE") end
  local status = C.moth_checkpoint_begin(ctx, nil, 0, C.MOTH_CHECKPOINT_PACKS, checkpoint_out)
  if status < 0 then errors.status(status, "saved_tensors_hooks") end
  local outer, state = current, {id = checkpoint_out[0], pack = pack}
  autograd.nodes[tonumber(state.id)] = {again = again, unpack = unpack_hook}
  current, lib.packing = state, drain
  local args, results = lib.pack(...), nil
  local ok, problem = errors.unyielding("a function under saved_tensors_hooks", function()
    results = lib.pack(f(unpack(args, 1, args.n)))
  end)
  if not ok then return close(state, outer, false, problem) end
  return close(state, outer, true, unpack(results, 1, results.n))
end

local parse_hooks = define.signature("saved_tensors_hooks", {
  {"function", "pack_hook", "pack_hook(tensor) returns the value to store instead"},
  {"function", "unpack_hook", "the tensor again: unpack_hook(value)"},
  {"function", "f", "runs with the hooks"},
})

--- Calls f(...) and returns its results. Each tensor that an op in f saves for its gradient is
-- passed to pack_hook(tensor) after the op has run, and the graph stores the hook's result, any
-- value, instead. A backward pass that needs the tensor calls unpack_hook(value), which returns a
-- tensor of the same shape, dtype and device. Both run without recording. Only the innermost hooks
-- are called. f must not yield. (As torch.autograd.graph.saved_tensors_hooks, which is a context
-- manager.)
-- @param pack_hook    a function
-- @param unpack_hook  a function
-- @param f            a function or module
-- @param ...          its arguments
function graph.saved_tensors_hooks(pack_hook, unpack_hook, f, ...)
  if not (calls.is_callable(pack_hook) and calls.is_callable(unpack_hook)
    and calls.is_callable(f)) then
    pack_hook, unpack_hook, f = parse_hooks(pack_hook, unpack_hook, f)
  end
  return with_hooks(pack_hook, unpack_hook, f, ...)
end

define.takes(graph.saved_tensors_hooks, parse_hooks)

--- moth.autograd.graph.save_on_cpu(f): the ops in f save their tensors on the CPU.
graph.save_on_cpu = define {
  name = "save_on_cpu",
  doc = "Calls f() and returns its results. Tensors that its ops save for gradients are copied to "
    .. "the CPU's memory, and back in the backward pass; tensors of the CPU stay where they "
    .. "are.",
  examples = "function() return moth.ones(2):requires_grad_():exp() end\n"
    .. "function() return moth.ones(2):requires_grad_():exp() end, {pin_memory = false}",
  args = {
    {"function", "f", "what runs"},
    {"bool", "pin_memory", "copy into pinned memory, so that copies overlap with kernels?",
     default = false},
  },
  outputs = "...",
  run = function(f, pin_memory)
    local function pack(x)
      if not x.is_cuda then return x end
      local copy = x:cpu()
      if pin_memory then copy = copy:pin_memory() end
      local value = {copy, x.device}
      x:free()
      return value
    end
    local function unpack_copy(value)
      if istensor(value) then return value end
      return value[1]:to(value[2], {non_blocking = pin_memory})
    end
    return with_hooks(pack, unpack_copy, f)
  end,
}

local function restore(before, ok, ...)
  refused = before
  if not ok then error((...), 0) end
  return ...
end

--- moth.autograd.graph.disable_saved_tensors_hooks(message, f): hooks raise while f runs.
graph.disable_saved_tensors_hooks = define {
  name = "disable_saved_tensors_hooks",
  doc = "Calls f() and returns its results; saved_tensors_hooks and save_on_cpu raise "
    .. "error_message meanwhile.",
  examples = "'no hooks here', function() return moth.ones(2) end",
  args = {
    {"string", "error_message", "the text of the error"},
    {"function", "f", "what runs"},
  },
  outputs = "...",
  run = function(message, f)
    local before = refused
    refused = message
    return restore(before, pcall(f))
  end,
}

return (lazy.namespace("moth.autograd.graph", graph, {Node = {"moth.autograd.node", "Node"}}))
