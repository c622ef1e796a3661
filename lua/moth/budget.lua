--- budget.lua -- moth.budget and moth.reserve: work in slices of time, for hosts that draw frames
-- or answer requests.
--
-- The work runs in a coroutine. When the time is over, C pauses the op that runs and returns
-- E_PAUSED (core/call/slice.h). The binding then calls lib.pause, which yields.

local calls = require "moth.binding.calls"
local errors = require "moth.error"
local ffi = require "ffi"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx
lib.declare "slices"

local budget = {}

local GRACE = 2e-4 -- seconds that code in an inner coroutine gets until it returns to the work
local PAUSED = {}  -- what lib.pause yields

local works = {} -- function -> its unfinished work
local current    -- the work that runs

--- Called when an op was paused. Returns true: repeat the op.
function lib.pause()
  if current and coroutine.running() == current.thread and coroutine.isyieldable() then
    coroutine.yield(PAUSED)
  else -- an inner coroutine cannot yield to the host
    C.moth_slice_extend(ctx, GRACE)
  end
  return true
end
jit.off(lib.pause)

--- Calls in the current slice do not pause while this is on. Returns the old value.
function lib.hold(on) return C.moth_slice_hold(ctx, on) end

local function free_slice(slice) C.moth_slice_free(ctx, slice) end

local free = {} -- slices without a work; each has a stack

local function new_slice()
  local slice = table.remove(free)
  if slice then return slice end
  slice = C.moth_slice_new(ctx)
  if slice == nil then errors.status(C.MOTH_E_MEM, "budget") end
  return ffi.gc(slice, free_slice)
end

-- Ends the slice of time. Returns what moth.budget returns.
local function finish(fn, work, ok, ...)
  C.moth_slice_leave(ctx)
  current = work.outer
  work.outer = nil
  if coroutine.status(work.thread) ~= "dead" then return false end
  works[fn] = nil
  if ok then
    free[#free + 1] = work.slice
  else -- an op of it may be paused
    ffi.gc(work.slice, nil)
    C.moth_slice_free(ctx, work.slice)
    error((...), 0)
  end
  return true, ...
end

local function check_callable(fname, fn)
  if not calls.is_callable(fn) then
    errors.refuse(fname, "fn", "a function is needed", fn, "E_TYPE")
  end
end

--- Runs work for at most so long; the next call with the same function continues it. For a host
-- that draws frames or answers requests between the slices.
--
-- The work pauses between two ops, or inside a long one, in a captured step and in a backward pass
-- too. Lua code without ops is not paused, nor is the run that records a captured step, a profile,
-- or a coroutine that the work resumes: it pauses when control is back in fn. A slice may exceed
-- its time by 0.2 ms. A factorization, a Fourier transform and one row of a variance, scan, norm or
-- softmax run in one piece: a row of a million elements takes 1 to 3 ms. Ops of a slice run on one
-- thread. Between slices the same state may run other ops. fn may yield to end a slice early. An
-- error of fn is raised, and the work is then over.
--
--     function love.update()
--       local done, loss = moth.budget(0.002, train_one_epoch)
--     end
--
-- @param seconds  the time of this slice, from 0 on
-- @param fn       the work
-- @param ...      arguments of fn; used by the call that begins it
-- @return false if the work is not done; else true and the results of fn. The call after that
--         begins it again. Unfinished work is kept: end it by moth.cancel_budget.
function budget.budget(seconds, fn, ...)
  if type(seconds) ~= "number" or not (seconds >= 0) then
    errors.refuse("budget", "seconds", "a number from 0 on is needed", seconds, "E_DOMAIN")
  end
  local work, fresh = works[fn], 0
  if not work then
    fresh = 1
    check_callable("budget", fn)
    local slice = new_slice()
    work = {slice = slice, thread = coroutine.create(function(...) return fn(...) end)}
    works[fn] = work
  elseif coroutine.status(work.thread) ~= "suspended" then
    errors.refuse("budget", "fn", "it runs already, and calls itself", nil, "E_STATE")
  end
  work.outer = current
  lib.check(C.moth_slice_enter(ctx, work.slice, seconds, fresh), "budget")
  current = work
  return finish(fn, work, coroutine.resume(work.thread, ...))
end

--- Ends unfinished work of moth.budget: a paused op fails inside C, and fn does not continue.
-- @param fn  the work
-- @return whether there was any
function budget.cancel_budget(fn)
  local work = works[fn]
  if not work then return false end
  if coroutine.status(work.thread) ~= "suspended" then
    errors.refuse("cancel_budget", "fn", "it cannot be cancelled while it runs", nil, "E_STATE")
  end
  works[fn] = nil
  ffi.gc(work.slice, nil)
  C.moth_slice_free(ctx, work.slice)
  -- The work may be inside a scope or no_grad. A later coroutine may have its address.
  require("moth.base.coroutines").forget(work.thread)
  return true
end

local info = ffi.new "moth_memory_info"

--- Runs a function once and keeps the memory that it used: later runs take all blocks from the
-- cache, so they allocate nothing from the system. The garbage of one run starts no
-- collection. Free tensors by moth.scope or in a captured step, so that runs leave none.
-- `moth.empty_cache()` returns the blocks that are free.
-- @param fn   a frame's or a request's work
-- @param ...  its arguments
-- @return its results
function budget.reserve(fn, ...)
  check_callable("reserve", fn)
  C.moth_memory_reset_peak(ctx)
  C.moth_memory(ctx, info)
  local live, handles = info.live_bytes, info.live_handles
  local results = lib.pack(fn(...))
  C.moth_memory(ctx, info)
  local bytes = 2 * tonumber(info.peak_bytes - live)
  local more = 2 * tonumber(info.live_handles - handles)
  C.moth_memory_floor(ctx, math.max(bytes, 2 ^ 20), math.max(more, 8192))
  C.moth_memory_reserve(ctx, 1)
  return unpack(results, 1, results.n)
end

return budget
