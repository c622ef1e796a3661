--- hooks.lua -- module hooks: registration, and calls that run them. Loaded when the first hook is
-- added.
--
-- The order of a call: global forward_pre hooks, the module's forward_pre hooks, forward, global
-- forward hooks, the module's forward hooks. Hooks get (module, args[, output]): args is a list;
-- output is the value itself, or a list if forward returned several. A hook's result replaces args
-- (forward_pre) or output (forward).
--
-- Full backward hooks get (module, grad_input, grad_output). The module's inputs pass through one
-- identity Function, its outputs through another (gates), whose backward passes have both
-- gradients; the gate of the outputs runs first.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"

local STORE, sight = Module.store_key, Module.sight
local global = sight.global

local hooks = {}

-- ---- registration ----

local Handle = class("RemovableHandle")

--- The result of register_*_hook: a handle that removes the hook.
function Handle:init(list, hook)
  self.list, self.hook = list, hook
end

--- Removes the hook. A second call does nothing.
function Handle:remove()
  for i, hook in ipairs(self.list) do
    if hook == self.hook then
      sight.changed()
      table.remove(self.list, i)
      sight.look()
      return hook
    end
  end
end

local function add_hook(list, fn, prepend)
  sight.changed()
  local hook = {fn = fn}
  table.insert(list, prepend and 1 or #list + 1, hook)
  sight.look()
  return Handle(list, hook)
end

local HOOK = {"function", "hook", "the function to call"}
local PREPEND = {"bool", "prepend", "run it before the other hooks?", default = false}

local parsers = setmetatable({}, {__index = function(parsers, name)
  local rows = name:find "^register_module_" and {HOOK} or {HOOK, PREPEND}
  parsers[name] = define.signature(name, rows)
  return parsers[name]
end})

--- Adds a hook to one module; `name` is a key of sight.kinds.
function hooks.add(self, name, ...)
  local hook, prepend = parsers["register_" .. name .. "_hook"](...)
  local store, kind = self[STORE], sight.kinds[name]
  store.hooks = store.hooks or {}
  store.hooks[kind] = store.hooks[kind] or {}
  return (add_hook(store.hooks[kind], hook, prepend))
end

--- The functions of moth.nn that add hooks to all modules.
hooks.for_all = {}

local function for_all(name, list)
  local fname = "register_module_" .. name .. "_hook"
  --- Adds a hook to all modules; it runs before each module's hooks. A registration hook is
  -- fn(module, name, value), called when a value is registered; it may return a replacement.
  hooks.for_all[fname] = function(...) return (add_hook(list, (parsers[fname](...)))) end
end

for_all("forward_pre", global.pre)
for_all("forward", global.forward)
for_all("full_backward_pre", global.backward_pre)
for_all("full_backward", global.backward)
for kind, list in pairs(Module.registration_hooks) do for_all(kind .. "_registration", list) end

-- ---- running ----

-- Copies a list, so that a hook may remove itself while the copy is iterated over.
local function snapshot(list)
  local copy = {}
  for i = 1, list and #list or 0 do copy[i] = list[i].fn end
  return copy
end

-- ---- forward hooks ----

local plain = lib.is_plain

local function run_pre(list, module, args)
  for _, fn in ipairs(snapshot(list)) do
    local new = fn(module, args)
    if new ~= nil then
      if plain(new) then
        new.n = new.n or #new
        args = new
      else
        args = {new, n = 1}
      end
    end
  end
  return args
end

local function run_forward(list, module, args, output)
  for _, fn in ipairs(snapshot(list)) do
    local value = output.n == 1 and output[1] or nil
    if output.n > 1 then
      value = {}
      for i = 1, output.n do value[i] = output[i] end
    end
    local new = fn(module, args, value)
    if new ~= nil then
      if output.n > 1 and plain(new) then
        output = new
        output.n = output.n or #new
      else
        output = {new, n = 1}
      end
    end
  end
  return output
end

-- ---- backward hooks ----

local gates -- the identity Functions of inputs and outputs, created at the first use

-- Passes grads through each function of a list; a result replaces grads. other: the gradients of
-- the outputs, for full backward hooks.
local function run_backward(list, module, grads, other)
  for _, fn in ipairs(list) do
    local new = fn(module, grads, other)
    if new ~= nil then
      if lib.istensor(new) then new = {new} end
      if not plain(new) then
        errors.raise(("a list of gradients or nothing is needed from a backward hook of %s, " ..
          "got %s"):format(class.typename(module), errors.describe(new)), "E_TYPE")
      end
      grads = new
    end
  end
  return grads
end

-- Returns the backward function of a gate: it passes the gradients to `body` as a list.
local function gate_backward(body)
  return function(ctx, ...)
    local n = select("#", ...)
    local grads = body(ctx.pass, {...}) or {...}
    return nil, unpack(grads, 1, n)
  end
end

local function make_gates()
  local Function = require("moth").autograd.Function
  local function identity(ctx, pass, ...)
    ctx.pass = pass
    return ...
  end
  local Input = class("ModuleInputHook", Function)
  Input.forward = identity
  Input.backward = gate_backward(function(pass, grads)
    local all = {}
    for i, at in ipairs(pass.inputs) do all[at] = grads[i] end
    all.n = pass.ninputs
    all = run_backward(pass.backward, pass.module, all, pass.grad_output)
    local out = {}
    for i, at in ipairs(pass.inputs) do out[i] = all[at] end
    return out
  end)
  local Output = class("ModuleOutputHook", Function)
  Output.forward = identity
  Output.backward = gate_backward(function(pass, grads)
    local all = {}
    for i, at in ipairs(pass.outputs) do all[at] = grads[i] end
    all.n = pass.noutputs
    all = run_backward(pass.backward_pre, pass.module, all)
    pass.grad_output = all
    if #pass.inputs == 0 then -- no input requires a gradient: run the hooks here
      run_backward(pass.backward, pass.module, {n = pass.ninputs}, all)
    end
    local out = {}
    for i, at in ipairs(pass.outputs) do out[i] = all[at] end
    return out
  end)
  return {input = Input, output = Output}
end

-- Passes the tensors of a list that require gradients through a gate. Returns the new list and the
-- positions of these tensors in it.
local function through(gate, pass, list)
  local at, chosen, out = {}, {}, {n = list.n}
  for i = 1, list.n do
    local x = list[i]
    out[i] = x
    if lib.istensor(x) and x.requires_grad then
      at[#at + 1] = i
      chosen[#chosen + 1] = x
    end
  end
  if #at == 0 then return out, at end
  local results = {gate.apply(pass, unpack(chosen))}
  for i, place in ipairs(at) do out[place] = results[i] end
  return out, at
end

-- ---- calls ----

--- Calls a module with hooks; `own` are the module's hooks, if it has any.
function hooks.run(self, own, ...)
  local args = run_pre(global.pre, self, named.sorted(self, lib.pack(...)))
  args = run_pre(own and own.pre, self, args)
  local pass
  local backward_pre = snapshot(global.backward_pre)
  local backward = snapshot(global.backward)
  for _, fn in ipairs(snapshot(own and own.backward_pre)) do table.insert(backward_pre, fn) end
  for _, fn in ipairs(snapshot(own and own.backward)) do table.insert(backward, fn) end
  if #backward_pre + #backward > 0 and require("moth").is_grad_enabled() then
    gates = gates or make_gates()
    pass = {module = self, ninputs = args.n, backward_pre = backward_pre, backward = backward}
    args, pass.inputs = through(gates.input, pass, args)
  end
  local output = lib.pack(self:forward(unpack(args, 1, args.n)))
  output = run_forward(global.forward, self, args, output)
  output = run_forward(own and own.forward, self, args, output)
  if pass then
    pass.noutputs = output.n
    output, pass.outputs = through(gates.output, pass, output)
  end
  return unpack(output, 1, output.n)
end

return hooks
