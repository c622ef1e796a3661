--- scope.lua -- moth.scope: frees the tensors created inside at its end, in one call.
--
--     local loss = moth.scope(function()
--       local loss = F.nll_loss(net(x), y)
--       loss:backward()
--       optimizer:step()
--       return loss:item()
--     end)
--
-- These tensors stay: returned tensors (also inside returned plain tables), moth.keep(t), tensors
-- of a module or an optimizer, gradients of live leaves, and all tensors created before.

local ffi = require "ffi"
local errors = require "moth.error"
local calls = require "moth.binding.calls"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx
local getinfo, select = debug.getinfo, select

local scope = {}

-- The positions of the last scopes, for messages about tensors that they freed.
local RING = 64
local ring_ids, ring_info = {}, {}

local function place(info)
  return info and ("%s:%d"):format(info.short_src, info.linedefined) or "an unknown place"
end

local function info_of(fn)
  return type(fn) == "function" and getinfo(fn, "S") or nil
end

errors.add_explainer(function(x)
  if not ffi.istype(lib.Handle, x) or C.moth_alive(ctx, x) == 1 then return nil end
  local id = C.moth_died_in(ctx, x)
  if id == 0 then return nil end
  local k = id % RING + 1
  if ring_ids[k] ~= id then return "its moth.scope has ended" end
  return "it ended with the moth.scope at " .. place(ring_info[k])
    .. "; return it from there or use moth.keep"
end)

-- Keeps the tensors in a value; for a plain table also the tensors in it.
local function keep_in(value, seen)
  if lib.istensor(value) then
    C.moth_keep(ctx, value)
  elseif lib.is_plain(value) and not seen[value] then
    seen[value] = true
    for key, item in pairs(value) do
      keep_in(key, seen)
      keep_in(item, seen)
    end
  end
end

local function end_scope(id, fn)
  local k = id % RING + 1
  ring_ids[k], ring_info[k] = id, info_of(fn)
  local status = C.moth_scope_close(ctx, id)
  if status < 0 then errors.status(status, "scope") end
end

local function keep_results(...)
  for i = 1, select("#", ...) do
    local value = (select(i, ...))
    if lib.istensor(value) then C.moth_keep(ctx, value)
    elseif type(value) == "table" then keep_in(value, {}) end
  end
end

local function close(id, fn, ok, ...)
  if not ok then
    end_scope(id, fn)
    error((...), 0)
  end
  keep_results(...)
  end_scope(id, fn)
  lib.forget_dead()
  return ...
end

local function run_in_scope(fn, ...)
  local id = C.moth_scope_open(ctx)
  if id == 0 then errors.status(C.MOTH_E_MEM, "scope") end
  return close(id, fn, pcall(fn, ...))
end

--- Calls fn(...) and frees the tensors created during the call, except those that fn returns. If fn
-- yields, tensors created by other coroutines do not belong to the scope.
-- @param fn   the function; its error closes the scope and propagates unchanged
-- @param ...  its arguments
-- @return the results of fn
function scope.scope(fn, ...)
  if not calls.is_callable(fn) then
    errors.refuse("scope", "fn", "a function is needed", fn, "E_TYPE")
  end
  if lib.is_outside() then return require("moth.base.coroutines").run("scope", run_in_scope, fn,
    ...) end
  return run_in_scope(fn, ...)
end

-- ---- scopes inside Moth ----

local function finish(id, ok, first, ...)
  if ok then
    if lib.istensor(first) then C.moth_keep(ctx, first) -- the usual case has no loop
    else keep_results(first) end
    if select("#", ...) > 0 then keep_results(...) end
  end
  C.moth_scope_close(ctx, id)
  if not ok then error(first, 0) end
  return first, ...
end

--- A function of several ops that frees its intermediate tensors when it returns. It must not call
-- user code, nor keep a tensor that it creates.
-- @param run  the function; it returns tensors, plain tables with tensors, and other values
-- @return the function with a scope around it
function scope.inside(run)
  return function(...)
    local id = C.moth_scope_open(ctx)
    if id == 0 then errors.status(C.MOTH_E_MEM, "scope") end
    return finish(id, pcall(run, ...))
  end
end

--- Keeps tensors beyond the end of their scope: they move to the enclosing scope.
-- @param ...  tensors, and plain tables with tensors in them
-- @return the arguments
function scope.keep(...)
  for i = 1, select("#", ...) do
    local value = (select(i, ...))
    if lib.istensor(value) then
      local status = C.moth_keep(ctx, value)
      if status < 0 then errors.status(status, "keep", nil, value) end
    elseif lib.is_plain(value) then
      keep_in(value, {})
    else
      errors.refuse("keep", "x", "a tensor or a table of tensors is needed", value, "E_TYPE")
    end
  end
  return ...
end

return scope
