--- node.lua -- nodes of the graph: x.grad_fn, its next_functions and hooks.
--
-- A node is held by a tensor whose grad_fn it is: the user's tensor, or a tensor without elements
-- that the core creates for an edge.

local ffi = require "ffi"
local autograd = require "moth.autograd"
local calls = require "moth.binding.calls"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle

lib.declare "nodes"
local info = ffi.new "moth_node_info"
local Node = {__name = "grad_fn"}
local methods = {}

local function inspect(x)
  local status = C.moth_node_inspect(ctx, x, info)
  if status < 0 then errors.status(status, "grad_fn", nil, x) end
end

--- The node of a tensor or of an edge; nil if it needs no gradient.
local function node_of(x)
  inspect(x)
  local id = tonumber(info.id)
  if id == 0 then return nil end
  local name = "AccumulateGrad"
  if info.name ~= nil then name = require("moth.tensor.print").node_name(ffi.string(info.name)) end
  return setmetatable({x = x, id = id, called = name, ninputs = info.ninputs,
                       noutputs = info.noutputs}, Node), info.output + 1
end

--- The op's name: "Mul"; "AccumulateGrad" for a leaf.
function methods:name() return self.called end

--- The targets of the gradients: for each input of the op, {node, position of its result}; the node
-- is nil if that input needs no gradient.
local function next_functions(self)
  local list = {}
  for i = 1, self.ninputs do
    local h = Handle()
    local next = autograd.take(h, C.moth_node_next(ctx, self.x, i - 1, h), "next_functions")
    if next then
      C.moth_keep_always(ctx, next)
      list[i] = {node_of(next)}
    else
      list[i] = {nil, 1}
    end
  end
  return list
end

-- ---- hooks ----

local Removable = {}
Removable.__index = Removable

--- Removes the hook. A second call does nothing.
function Removable:remove()
  local entry = autograd.nodes[self.id]
  local list = entry and entry[self.kind]
  self.hook.removed = true
  for i = #(list or {}), 1, -1 do
    if list[i] == self.hook then table.remove(list, i) end
  end
end

local function add_hook(self, fn, kind, fname)
  if not calls.is_callable(fn) then
    errors.refuse(fname, "fn", "a function is needed", fn, "E_TYPE")
  end
  if self.called == "AccumulateGrad" then
    errors.raise(fname .. ": a leaf's node takes no hooks; x:register_hook and "
      .. "x:register_post_accumulate_grad_hook are called with its gradient", "E_GRAPH")
  end
  local status = C.moth_node_hook(ctx, self.x, kind == "results" and 1 or 0)
  if status < 0 then errors.status(status, fname) end
  local nodes = autograd.nodes
  local entry = nodes[self.id] or {}
  nodes[self.id] = entry
  entry[kind] = entry[kind] or {}
  entry.ninputs, entry.noutputs = self.ninputs, self.noutputs
  local hook = {fn = fn}
  table.insert(entry[kind], hook)
  return setmetatable({hook = hook, id = self.id, kind = kind}, Removable)
end

--- fn(grad_outputs) is called before the node's gradient is computed, with a list of the gradients
-- of its results; a list that it returns replaces them.
-- @return a handle with :remove()
function methods:register_prehook(fn)
  return (add_hook(self, fn, "before", "register_prehook"))
end

--- fn(grad_inputs, grad_outputs) is called after the node's gradient was computed, with lists of
-- the gradients of its inputs and results; a list that it returns replaces grad_inputs. A gradient
-- that is not needed is nil.
-- @return a handle with :remove()
function methods:register_hook(fn) return (add_hook(self, fn, "results", "register_hook")) end

local function listed(task, n, read)
  local list = {}
  for i = 1, n do
    local h = Handle()
    list[i] = autograd.take(h, read(ctx, task, i - 1, h), "backward")
  end
  return list
end

local function put(task, list, n, fname)
  if list == nil then return end
  if not lib.is_plain(list) then
    errors.raise("a hook of " .. fname .. " returns a list of tensors or nothing, got "
      .. errors.describe(list), "E_TYPE")
  end
  for i = 1, n do
    local grad = list[i]
    if grad ~= nil and not lib.istensor(grad) then
      errors.raise("a hook of " .. fname .. " returns a list of tensors, got "
        .. errors.describe(grad) .. " at position " .. i, "E_TYPE")
    end
    local status = C.moth_task_put(ctx, task, i - 1, grad or lib.NONE)
    if status < 0 then errors.status(status, fname) end
  end
end

local run = {}

function run.before(entry, hook, task)
  put(task, hook.fn(listed(task, entry.noutputs, C.moth_task_given)), entry.noutputs,
    "register_prehook")
end

function run.results(entry, hook, task)
  put(task, hook.fn(listed(task, entry.ninputs, C.moth_task_taken),
    listed(task, entry.noutputs, C.moth_task_given)), entry.ninputs, "register_hook")
end

local function run_all(entry, kind, task)
  for _, hook in ipairs {unpack(entry[kind])} do
    if not hook.removed then run[kind](entry, hook, task) end
  end
end

--- Calls the hooks of a kind, "before" or "results", of a node at which a pass has stopped.
local function call_hooks(task, id, mode, kind)
  local entry = autograd.nodes[id]
  if entry and entry[kind] then autograd.under(mode, run_all, entry, kind, task) end
end

-- ---- the object ----

function Node:__index(key)
  if methods[key] then return methods[key] end
  if key == "next_functions" then return next_functions(self) end
  if type(key) == "string" then
    errors.raise(("a grad_fn has no '%s'%s"):format(key, errors.nearest(key,
      {"name", "next_functions", "register_hook", "register_prehook"})))
  end
end

function Node:__tostring() return "<" .. self.called .. ">" end
function Node.__eq(a, b) return a.id == b.id end

return {of = node_of, call_hooks = call_hooks, Node = Node}
