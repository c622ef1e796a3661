--- lib.lua -- the core library, the context of this Lua state, and its live handles.
--
-- A tensor is a handle {slot, gen} into a table that C owns; handles have no finalizer. The weak
-- table `live` holds all handles. A sweep passes to C the slots whose handle was collected. C
-- requests a sweep with the status MOTH_WANT: when live bytes or handles pass their limit, or after
-- a Lua collection. A canary object with a finalizer in C detects a collection (the tick).
--
-- All this is stored in the registry of the Lua state, so a reloaded Moth finds the same context.

local ffi = require "ffi"
local errors = require "moth.error"
local recent = require "moth.base.recent"
local system = require "moth.base.system"

local ABI = 1  -- the moth_lua_abi_version that these files need

local registry = debug.getregistry()
local anchor = registry.moth
if anchor and anchor.lib then
  if anchor.ffi ~= ffi then
    error("moth: the module 'ffi' was loaded a second time, which breaks every cdata of this "
      .. "state; start a new one", 0)
  end
  return anchor.lib
end
anchor = anchor or {loaded = {}}
anchor.ffi = ffi
registry.moth = anchor

local lib = {anchor = anchor}

-- ---- the library ----

local function candidates()
  local list = {}
  local named = os.getenv("MOTH_LIB")
  if named and named ~= "" then return {named} end
  list[1] = package.searchpath("libmoth", package.cpath)
  if errors.root then list[#list + 1] = errors.root .. system.build .. system.library end
  -- installed: PREFIX/share/lua/5.1/moth and PREFIX/lib
  local prefix = errors.folder:match "^(.*)share[/\\]lua[/\\]5%.1[/\\]moth[/\\]$"
  for _, folder in ipairs(prefix and {"lib/", "lib64/", ("lib/%s-linux-gnu/"):format(
      jit.arch == "x64" and "x86_64" or "aarch64")} or {}) do
    list[#list + 1] = prefix .. folder .. system.library
  end
  list[#list + 1] = system.found_as
  return list
end

local function open_library()
  local tried = {}
  for _, path in ipairs(candidates()) do
    local found, library = pcall(ffi.load, path)
    if found then return library, path end
    tried[#tried + 1] = tostring(library)
  end
  error("moth: the library " .. system.library .. " was not found; build it (./moth does), or name "
    .. "it in MOTH_LIB" .. (#tried > 0 and "\n  " .. table.concat(tried, "\n  ") or ""), 0)
end

local C, path = open_library()
ffi.cdef [[
const char *moth_header(void);
uint32_t moth_lua_abi_version(void);
]]
do
  local found, abi = pcall(function() return C.moth_lua_abi_version() end)
  if not found or abi ~= ABI then
    error(("moth: the library %s is not of the version of these Lua files (ABI %s, not %d); "
      .. "install both from one version"):format(path, found and abi or "unknown", ABI), 0)
  end
  if not pcall(ffi.typeof, "moth_memory_info") then
    ffi.cdef(ffi.string(C.moth_header()):match "^[^@]*")
  end
end

anchor.declared = anchor.declared or {}

--- Declares a part of moth_lua.h that few programs need. LuaJIT's table of C types stays small.
-- @param part  the name after "cdef continues" there
function lib.declare(part)
  if anchor.declared[part] then return end
  ffi.cdef(ffi.string(C.moth_header()):match("@" .. part .. "\n([^@]*)"))
  anchor.declared[part] = true
end

local WANT, KNOWN, E_MEM, E_LIMIT = C.MOTH_WANT, C.MOTH_KNOWN, C.MOTH_E_MEM, C.MOTH_E_LIMIT
local E_PAUSED = C.MOTH_E_PAUSED

require("moth.base.traverse")(path, anchor)

-- The context is in Lua's memory: it is freed after the last finalizer of the state, so a finalizer
-- that still uses a tensor gets an error. Each step may raise; then the next `require` repeats all
-- steps.
anchor.room = anchor.room or ffi.new("uint8_t[?]", C.moth_open_size())
local ctx = anchor.ctx or C.moth_open_at(anchor.room)
if ctx == nil then error("moth: out of memory", 0) end
anchor.ctx = ctx
ffi.gc(ctx, C.moth_close)

local Handle = ffi.typeof("moth_handle")
local live = setmetatable({}, {__mode = "v"})

lib.C, lib.ctx, lib.path, lib.Handle, lib.live = C, ctx, path, Handle, live

--- The modes of a coroutine as C.moth_mode numbers them, and two values for its argument.
lib.modes = {grad = 0, autocast = 1, anomaly = 2, gpu = 3, inside = 4, ask = -2, unset = -3}

local running_now = coroutine.running
local INSIDE, ASK = lib.modes.inside, lib.modes.ask

--- The running coroutine, or nil in the main one.
function lib.coroutine()
  local thread, is_main = running_now()
  if is_main then return nil end
  return thread
end

--- Returns true in a coroutine that is outside coroutines.run. A function that sets a mode or opens
-- a scope needs coroutines.run there.
function lib.is_outside()
  return lib.coroutine() ~= nil and C.moth_mode(ctx, INSIDE, ASK) == 0
end

--- The values as a list with their number n, because some may be nil.
function lib.pack(...) return {n = select("#", ...), ...} end

--- Raises if Ctrl-C or the host requested a stop: for long loops that call no op.
function lib.poll()
  if C.moth_interrupted(ctx) ~= 0 then errors.raise("interrupted", "E_INTERRUPT") end
end

--- Raises unless n values fit into the arguments or the results of one call.
function lib.few(fname, argname, n)
  if n > 7000 then -- LuaJIT's limit is near 8000
    errors.argument(fname, argname, ("a call in Lua takes at most 7000 values, got %d"):format(n),
      "E_UNSUPPORTED")
  end
end

--- A list of n equal values, optionally with `other` at position `dim`: lib.filled(3, 1, 2, 5) is
-- {1, 5, 1}.
function lib.filled(n, value, dim, other)
  local list = {}
  for d = 1, n do list[d] = value end
  if dim then list[dim] = other end
  return list
end

--- Returns true for a table without a metatable, as written in braces: no tensor, module, dataset
-- or moth.Size.
function lib.is_plain(x)
  return type(x) == "table" and getmetatable(x) == nil
end

--- A zeroed C array whose length is a run-time value. This function is never compiled: when LuaJIT
-- sinks the allocation, it forgets the length of the array, and C then writes past the end.
-- @param element  the C type of an element, e.g. "moth_slot"
-- @param n        the number of elements
function lib.array(element, n) return ffi.new(element .. "[?]", n) end
jit.off(lib.array)

function lib.slots(n) return lib.array("moth_slot", n) end
function lib.handles(n) return lib.array("moth_handle", n) end
function lib.int64s(n) return lib.array("int64_t", n) end
function lib.doubles(n) return lib.array("double", n) end
lib.int64 = ffi.typeof("int64_t")
lib.NONE = ffi.new("moth_handle") -- {0, 0}: no tensor
errors.attach(C, ctx)

--- Kept here: a host may remove it from its scripts after Moth is loaded.
lib.loadstring = loadstring

--- Passes None for a named argument: `F.softmax(x, {dtype = moth.none})`.
lib.none = setmetatable({}, {__tostring = function() return "moth.none" end})

--- Sets the methods and operators of handles. Only the first call in a Lua state has an effect.
-- @return the metatable in use
function lib.metatype(mt)
  anchor.metatype = anchor.metatype or mt
  pcall(ffi.metatype, "moth_handle", anchor.metatype) -- fails if it is set already
  return anchor.metatype
end

--- Returns true if a value is a tensor (live or released).
function lib.istensor(x)
  -- No tail call: a trace that begins here could not return from it, and after a few attempts
  -- LuaJIT would blacklist this function and every loop that calls it.
  local is = ffi.istype(Handle, x)
  return is
end

-- ---- sweeps and collections ----

local ids = ffi.new("uint64_t[64]")
local canary = setmetatable({}, {__mode = "v"})
local busy = false
local traced = 0

--- Functions that are called with the id of each freed node, to clear Lua's data on it. The key is
-- a name, so that a module which is loaded again after an error replaces its function.
lib.on_dead = {}

--- Functions that each sweep calls before it lists the dead handles.
lib.on_sweep = {}

local function arm()
  if not canary[1] then
    canary[1] = ffi.gc(ffi.new("moth_ctx *[1]", C.moth_tick_arm(ctx)), C.moth_tick)
  end
end

--- Drops Lua's data on freed nodes.
function lib.forget_dead()
  repeat
    local n = C.moth_dead_ids(ctx, ids, 64)
    for i = 0, n - 1 do
      local id = tonumber(ids[i])
      for _, clear in pairs(lib.on_dead) do clear(id) end
    end
  until n == 0
end

local function clear_dead()
  for _, run in pairs(lib.on_sweep) do run() end
  lib.forget_dead()
end

-- Drops every slot whose handle was collected. Only a collection changes the weak table, and
-- nothing in the loop allocates. (`not` because == nil would call the metatype's __eq.)
local function drop_unheld()
  for slot = 1, C.moth_slot_count(ctx) do
    if not live[slot] then C.moth_drop(ctx, slot) end
  end
end

--- Frees the tensors without a handle, as far as Lua's collector has run. Does nothing in a
-- finalizer that runs in lib.collect, which sweeps itself.
function lib.sweep()
  if busy then return end
  drop_unheld()
  C.moth_swept(ctx, 0, 0, 0, 0)
  clear_dead()
  arm()
end

-- Returns true inside a finalizer or a debug hook: hooks are not called there. Called only while
-- the collector is stopped: in a finalizer, or because the host stopped it.
local function in_finalizer()
  local hook, mask, count = debug.gethook()
  if hook ~= nil and type(hook) ~= "function" then return false end
  local fired = false
  debug.sethook(function() fired = true end, "c")
  tostring(nil)
  debug.sethook(hook, mask, count)
  return not fired
end

-- One cycle of Lua's collector, in steps. "collect" sweeps the heap before and after it marks,
-- which takes half as much time again. An object that dies during the mark phase may survive until
-- the next cycle.
local probe = setmetatable({}, {__mode = "v"})

local function cycle()
  local kilobytes = collectgarbage("count")
  probe[1] = {}
  for _ = 1, 16 do
    if collectgarbage("step", kilobytes) and not probe[1] then return end
  end
  collectgarbage("collect") -- the host has set small steps
end

--- A collection and a sweep. The host's collector settings stay as they were. Does nothing inside a
-- finalizer.
-- @param all  true: collect everything, even if it takes longer
-- @return true if it ran
function lib.collect(all)
  local running = collectgarbage("isrunning")
  if busy or (not running and in_finalizer()) then return false end
  busy = true
  recent.passed(anchor.loaded)
  local start = C.moth_thread_seconds() -- threads of the pool keep spinning during this time
  local clean, message = pcall(all and collectgarbage or cycle) -- users' finalizers may raise
  if not running then collectgarbage("stop") end
  local collected = C.moth_thread_seconds()
  drop_unheld()
  clear_dead()
  local ended = C.moth_thread_seconds()
  C.moth_swept(ctx, 1, ended - start, ended - collected, collectgarbage("count") * 1024)
  arm()
  busy = false
  if not clean then error(message, 0) end
  return true
end

--- Handles MOTH_WANT: a sweep, and a collection if the sweep freed too little. In anomaly mode
-- every call comes here with its result, and lib.trace stores the position of the call. In a
-- profile with lines, lib.note_line does. Under saved_tensors_hooks, lib.packing calls the hooks.
function lib.due(x)
  if busy then return end
  if lib.packing then lib.packing() end
  if lib.note_line then lib.note_line() end
  if lib.trace or lib.note_line then
    if x and lib.trace then lib.trace(x) end
    traced = traced + 1
    if traced % 256 ~= 0 and C.moth_above_goal(ctx) == 0 then return end
  end
  lib.sweep()
  if C.moth_above_goal(ctx) ~= 0 then lib.collect() end
end
jit.off(lib.due)
jit.off(lib.collect)

--- Called after a failed call, whose line a profile may need too. Returns true if a collection has
-- freed memory and the call should be tried again, or if a slice of moth.budget was over and the
-- next one has begun (lib.pause of budget.lua).
function lib.recover(status)
  if lib.note_line then lib.note_line() end
  if status == E_PAUSED then return lib.pause() end
  return (status == E_MEM or status == E_LIMIT) and lib.collect(true)
end

-- ---- results ----

--- Takes over a handle that C has just filled.
-- @param h       a Handle; {0, 0} gives nil
-- @param status  the status of the call; MOTH_WANT in it runs the due sweep
-- @return the one Lua object of that tensor: h, or an older handle of the same tensor
function lib.adopt(h, status)
  local slot = h._slot
  if slot == 0 then
    if lib.note_line and status > 0 then lib.due() end
    return nil
  end
  local old = live[slot]
  if old and old._gen == h._gen then h = old else live[slot] = h end
  if status == WANT or status == WANT + KNOWN then lib.due(h) end
  return h
end

--- The gradient of a leaf, for a short use inside a function of Moth.
-- @param p      the leaf
-- @param fname  the function to blame if p was released
-- @return the gradient or nil; true if there is no other handle to it. Then call C.moth_free(ctx,
-- grad) after use: the handle would keep the gradient until the next collection.
function lib.borrow_grad(p, fname)
  local h = Handle()
  local status = C.moth_get_grad(ctx, p, h)
  if status < 0 then errors.status(status, fname, nil, p) end
  local slot = h._slot
  if slot == 0 then return nil, false end
  local old = live[slot]
  if old and old._gen == h._gen then return old, false end
  live[slot] = h
  return h, not lib.capture
end

--- Raises the error of a negative status.
-- @param status  the status of the call
-- @param name    the function as the user knows it
-- @param ...     its tensors: the message names the released one
function lib.check(status, name, ...)
  if status < 0 then return errors.status(status, name, nil, ...) end
  return status
end

local info = ffi.new("moth_tensor_info")

--- The address of the first element of a contiguous tensor; NULL if it has no elements.
-- @param name  the function as the user knows it
function lib.data(x, name)
  local at = C.moth_data(ctx, x)
  if at == nil and lib.inspect(x, name).numel > 0 then
    errors.status(C.MOTH_E_STATE, name, nil, x)
  end
  return at
end

--- Dtype, sizes, strides and so on of a tensor, in a struct that the next call overwrites.
-- @param fname, aname  the function and the argument to blame if x was released
function lib.inspect(x, fname, aname)
  info.output = 0 -- a store: otherwise LuaJIT may read the last tensor's fields after the call
  local status = C.moth_inspect(ctx, x, info)
  if status < 0 then errors.status(status, fname or "tensor", aname, x) end
  return info
end

--- The sizes in a struct of lib.inspect, as a new list.
function lib.sizes(facts)
  local sizes = {}
  for d = 1, facts.ndim do sizes[d] = tonumber(facts.shape[d - 1]) end
  return sizes
end

local describe_info = ffi.new("moth_tensor_info")

errors.set_describe(function(x)
  if not ffi.istype(Handle, x) then return nil end
  if C.moth_inspect(ctx, x, describe_info) < 0 then return "a released tensor" end
  if bit.band(describe_info.flags, C.MOTH_IS_SHAPELESS) ~= 0 then
    return "an uninitialized tensor"
  end
  local text = table.concat(lib.sizes(describe_info), ", ")
  local sparse = bit.band(describe_info.flags, C.MOTH_IS_SPARSE) ~= 0 and "sparse " or ""
  return ("%s%s (%s)"):format(sparse, ffi.string(C.moth_dtype_name(describe_info.dtype)), text)
end)

arm()
anchor.lib = lib
return lib
