--- coroutines.lua -- grad modes and scopes of coroutines other than the main one.
--
-- The core checks which coroutine runs and stores separate modes for each (core/base/coroutine.c).
-- At the first use, this file finds where LuaJIT stores the running coroutine. It also creates
-- probes. A probe reports that a coroutine has left the function that set a mode. A coroutine also
-- leaves it when it is collected, or when it is reset and reused; nginx reuses the coroutines of
-- its requests.

local ffi = require "ffi"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

lib.declare "coroutines"

local C, ctx = lib.C, lib.ctx
local running, upvalueid = coroutine.running, debug.upvalueid

local coroutines = {}

-- ---- where LuaJIT stores the running coroutine ----

local function pointer(thread)
  return ffi.cast("void *", ffi.cast("uintptr_t", tonumber(string.format("%p", thread))))
end

local serial = 0
local probes = {} -- token -> a function whose upvalue is open while the token is in use

local function new_token()
  serial = serial + 1
  return serial + 0.5 -- not an integer: some builds store integers in another form
end

-- Returns true if the core can tell an open upvalue from a closed one.
local function probes_work()
  local id, token, probe
  local function inner()
    local value = new_token()
    probe, token = function() return value end, value
    id = upvalueid(probe, 1)
    return (C.moth_coroutine_probe(ctx, id, token) == 1)
  end
  local open = inner()
  return open and C.moth_coroutine_probe(ctx, id, token) == 0 and probe() == token
end

-- nginx renames Lua's coroutine functions to these names and replaces them.
local function plain(name) return coroutine["_" .. name] or coroutine[name] end

local function search()
  local version = jit and jit.version_num
  if not version or version < 20100 or version >= 20200 or not upvalueid then return false end
  local wide = ffi.abi "gc64" and 1 or 0
  local create, resume = plain "create", plain "resume"
  local me, sleeper = pointer(running()), create(function() end)
  local asleep, found = pointer(sleeper), 0
  local function look() found = C.moth_coroutine_find(ctx, wide, pointer(running()), asleep, me) end
  for _ = 1, 3 do
    C.moth_coroutine_find(ctx, wide, me, asleep, nil)
    resume(create(look))
  end
  return found == 1 and probes_work()
end

local known -- true if the search succeeded; nil before the search

local function find()
  if known == nil then known = search() end
  return known
end

-- ---- modes set by a function ----

--- Calls f(...), which may not yield: no other coroutine runs under the mode that f has set.
-- @param what  the name of f for the error if it yields
-- @return the results of f
function coroutines.without_yields(what, f, ...)
  local args, results = lib.pack(...), nil
  local ok, problem = errors.unyielding(what, function()
    results = lib.pack(f(unpack(args, 1, args.n)))
  end)
  if not ok then error(problem, 0) end
  return unpack(results, 1, results.n)
end

--- Calls f(...) in the running coroutine, which is not the main one. Modes set before f returns
-- apply to this coroutine and to those that it resumes. Returns the results of f.
-- @param name  the function that the user called, for messages
function coroutines.run(name, f, ...)
  if not find() then
    return coroutines.without_yields("a function under " .. name .. " on this Lua", f, ...)
  end
  local token = new_token()
  local function probe() return token end
  local status = C.moth_coroutine_enter(ctx, upvalueid(probe, 1), token)
  if status < 0 then errors.status(status, name) end
  probes[token] = probe
  local results = lib.pack(pcall(f, ...))
  C.moth_coroutine_leave(ctx)
  probes[token] = nil
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, results.n)
end

-- ---- modes set without a function ----

local held = {} -- coroutines that have set a mode: kept until they end

local function in_nginx()
  local ngx = rawget(_G, "ngx")
  return type(ngx) == "table" and type(ngx.get_phase) == "function"
end

--- Keeps the modes that the running coroutine sets from now on, until it ends. Not for the main
-- coroutine.
-- @param name  the function that the user called, for messages
-- @param form  the alternative that the message suggests if this is not possible
function coroutines.hold(name, form)
  local thread = running()
  if held[thread] then return end
  if not find() then
    errors.raise(("%s sets a mode for one coroutine, which this Lua cannot tell from others; "
      .. "write %s"):format(name, form), "E_STATE")
  end
  if in_nginx() then -- nginx reuses the coroutine of a request for other requests
    if C.moth_mode(ctx, lib.modes.inside, lib.modes.ask) == 1 then return end
    errors.raise(("%s would hold for later requests of nginx too; write %s"):format(name, form),
      "E_STATE")
  end
  held[thread] = true
  C.moth_coroutine_hold(ctx)
end

--- Ends the modes and scopes of a coroutine that will not be resumed. Its tensors stay.
function coroutines.forget(thread)
  held[thread] = nil
  C.moth_coroutine_forget(ctx, pointer(thread))
end

--- Returns true if a coroutine other than the main one has set a mode that still applies to it.
function lib.others_set() return C.moth_coroutine_sweep(ctx) > 0 end

function lib.on_sweep.coroutines()
  if next(probes) == nil and next(held) == nil then return end
  C.moth_coroutine_sweep(ctx)
  for token in pairs(probes) do
    if C.moth_coroutine_known(ctx, token) == 0 then probes[token] = nil end
  end
  for thread in pairs(held) do
    if plain "status"(thread) == "dead" then coroutines.forget(thread) end
  end
end

return coroutines
