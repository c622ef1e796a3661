--- hooks.lua -- x:register_hook(fn): hooks on the gradients of tensors. moth.autograd calls them.

local bit = require "bit"
local ffi = require "ffi"
local autograd = require "moth.autograd"
local calls = require "moth.binding.calls"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx
local istensor, callable = lib.istensor, calls.is_callable
local nodes = autograd.nodes
local IS_LEAF = C.MOTH_IS_LEAF

local weak = {__mode = "v"}
local hooks, methods = {}, {}
hooks.methods = methods

-- ---- registration ----

local Removable = {}
Removable.__index = Removable

--- Removes the hook. A second call does nothing.
function Removable:remove()
  local hook, id, kind = self.hook, self.id, self.kind
  hook.removed = true
  local entry = nodes[id]
  local list = entry and entry[kind]
  if not list then return end
  for i = #list, 1, -1 do
    if list[i] == hook then table.remove(list, i) end
  end
  if #list == 0 then
    entry[kind] = nil
    local needed = entry.class or entry.hooks or entry.after or entry.before or entry.results
    if not needed then nodes[id] = nil end
  end
end

-- The id of the node of x, which is marked as hooked, and the number of x among its results.
local function node_of(x, fname)
  local id, output = ffi.new "uint64_t[1]", ffi.new "uint32_t[1]"
  local status = C.moth_hook_id(ctx, x, id, output)
  if status < 0 then errors.status(status, fname, nil, x) end
  return tonumber(id[0]), output[0]
end

-- Adds fn to the hooks of a kind, "hooks" or "after", of the node of x.
local function add_hook(x, fn, kind, fname)
  if not istensor(x) then errors.no_self(fname, "x") end
  if not callable(fn) then
    errors.refuse(fname, kind == "after" and "hook" or "fn", "a function is needed", fn)
  end
  local leaf = bit.band(lib.inspect(x, fname).flags, IS_LEAF) ~= 0
  if kind == "after" and not leaf then
    errors.raise(fname .. " is for leaves, and " .. errors.describe(x) .. " is the result of an "
      .. "op, which has no .grad; use register_hook", "E_GRAPH")
  end
  local id, output = node_of(x, fname)
  autograd.some_after = autograd.some_after or kind == "after"
  local entry = nodes[id] or {}
  nodes[id], entry.leaf = entry, leaf
  entry[kind] = entry[kind] or {}
  local hook = {fn = fn, output = output, tensor = setmetatable({x}, weak)}
  table.insert(entry[kind], hook)
  return setmetatable({hook = hook, id = id, kind = kind}, Removable)
end

--- x:register_hook(fn): fn(grad, x) is called in each backward pass when the gradient of x is
-- known, in the order of registration. A tensor that it returns replaces the gradient. fn gets x
-- as an argument, so that it need not capture x; x is nil if no variable holds it any more.
-- @return a handle with :remove()
function methods.register_hook(x, fn) return (add_hook(x, fn, "hooks", "register_hook")) end

--- x:register_post_accumulate_grad_hook(hook): hook(x) is called in each backward pass that adds to
-- the .grad of x, a leaf, after the addition. It returns nothing. An optimizer may step there and
-- clear x.grad: the hook runs during the pass, as soon as all ops that use x have run, so that the
-- pass no longer needs its old values. (As torch.Tensor.register_post_accumulate_grad_hook.)
-- @return a handle with :remove()
function methods.register_post_accumulate_grad_hook(x, hook)
  return (add_hook(x, hook, "after", "register_post_accumulate_grad_hook"))
end

-- ---- calls ----

local function call_hook(call, task, hook, grad, x)
  local new = call.fn(grad, x)
  call.returned = true
  if new == nil then return end
  if not istensor(new) then
    errors.raise("a hook returns a tensor or nothing, got " .. errors.describe(new))
  end
  local status = C.moth_task_put(ctx, task, hook.output, new)
  if status < 0 then errors.status(status, "register_hook") end
end
errors.user_call(call_hook)

local function call_after(call, x)
  local result = call.fn(x)
  call.returned = true
  if result ~= nil then
    errors.raise("a hook after a gradient was added returns nothing, got "
      .. errors.describe(result))
  end
end
errors.user_call(call_after)

local function tensor_of(hook)
  local x = hook.tensor[1]
  if x ~= nil and C.moth_alive(ctx, x) ~= 0 then return x end
end

local call_all = {
  hooks = function(list, task)
    for _, hook in ipairs(list) do
      local grad = not hook.removed and autograd.given(task, hook.output, "backward")
      if grad then
        call_hook({fn = hook.fn, name = "the hook"}, task, hook, grad, tensor_of(hook))
      end
    end
  end,
  after = function(list)
    for _, hook in ipairs(list) do
      local x = not hook.removed and tensor_of(hook)
      if x then call_after({fn = hook.fn, name = "the hook"}, x) end
    end
  end,
}

--- Calls the hooks of a kind, "hooks" or "after", of a node, under the grad mode of the backward
-- pass.
function hooks.run(task, id, mode, kind)
  local list = nodes[id] and nodes[id][kind]
  if lib.capture then require("moth.capture.recording").hooked(id, kind, list) end
  if list then autograd.under(mode, call_all[kind], {unpack(list)}, task) end
end

--- Calls the "after" hooks of x, a leaf whose gradient was added outside a backward pass.
function hooks.after(x, fname, mode) hooks.run(nil, (node_of(x, fname)), mode, "after") end

return hooks
