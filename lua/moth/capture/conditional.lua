--- conditional.lua -- a part of a captured step that a replay may skip, such as an optimizer's step
-- after its gradients overflowed.

local errors = require "moth.error"
local lib = require "moth.binding.lib"
local recording = require "moth.capture.recording"

local C, ctx = lib.C, lib.ctx

lib.declare "capture"

local guard = {}

local function always() return true end

local function look(cell)
  local own = cell.looks_at
  local skipped = C.moth_capture_guarded(ctx, own.recording, own.number)
  if skipped < 0 then errors.status(skipped, "step") end
  own.skipped = skipped == 1
  own.on_replay(own.skipped)
end

-- Calls f() with a guard before its recorded ops.
local function recorded(active, on_replay, f, ...)
  local own = {number = active.guards, recording = active.id, on_replay = on_replay}
  active.guards = active.guards + 1
  recording.cell(nil, {write = always, done = look, looks_at = own})
  active.guard = own
  local results = {pcall(f, ...)}
  active.guard = nil
  C.moth_capture_guard_end(ctx)
  if not results[1] then error(results[2], 0) end
  return false, unpack(results, 2)
end

--- Calls f(...) if all tensors in a list are 0. Each replay decides again, and the cells that f
-- adds are done only if its ops ran.
-- @param found      a list of tensors of one element, at most one for each device
-- @param on_replay  on_replay(skipped) is called after each replay
-- @return true if f was skipped; else false and the results of f
function guard.unless(found, on_replay, f, ...)
  local n, active = #found, lib.capture
  local handles = lib.handles(n)
  for i = 1, n do handles[i - 1] = found[i] end
  local skipped = C.moth_capture_guard(ctx, handles, n)
  if skipped < 0 then errors.status(skipped, "step") end
  if skipped == 1 then
    if active then
      C.moth_capture_guard_end(ctx)
      recording.void(true)
    end
    return true
  end
  if active then return recorded(active, on_replay, f, ...) end
  return false, f(...)
end

return guard
