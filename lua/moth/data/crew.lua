--- crew.lua -- the host's side of a DataLoader's workers (worker.lua is the workers' side).
--
-- A crew requests a few batches in advance, prefetch_factor for each worker, and returns the
-- batches in the order of the positions. Any free worker processes the next request. When a crew is
-- garbage-collected, its workers end (core/host/workers.c).

local errors = require "moth.error"
local ffi = require "ffi"
local lib = require "moth.binding.lib"
local pack = require "moth.data.pack"
local machine = require "moth.base.machine"
local seeds = require "moth.data.seeds"

local C, ctx = lib.C, lib.ctx

lib.declare "workers"

local crew = {}

-- ---- starting ----

ffi.cdef [[
void *luaL_newstate(void);
void luaL_openlibs(void *L);
int lua_cpcall(void *L, void *f, void *argument);
int luaL_loadbuffer(void *L, const char *text, size_t size, const char *name);
int lua_pcall(void *L, int nargs, int nresults, int handler);
const char *lua_tolstring(void *L, int index, size_t *size);
void lua_close(void *L);
]]

-- Returns the process's own Lua library. If the host does not export it, or if a new Lua state
-- would lack libraries of this state, workers are impossible: it raises.
local function host_lua()
  local found, lua = pcall(function()
    local l = ffi.C
    return ffi.new("moth_lua", l.luaL_newstate, l.luaL_openlibs, l.lua_cpcall, l.luaL_loadbuffer,
      l.lua_pcall, l.lua_tolstring, l.lua_close)
  end)
  if not found then
    errors.argument("DataLoader", "num_workers", "this host does not export its Lua library "
      .. "(luaL_newstate), so that no other state can be created; leave it at 0", "E_UNSUPPORTED")
  end
  if package.loaded.ffi ~= ffi or not (rawget(_G, "io") and rawget(_G, "os")) then
    errors.argument("DataLoader", "num_workers", "this host hides libraries from its scripts, "
      .. "which a worker's state would have; leave it at 0", "E_UNSUPPORTED")
  end
  return lua
end

local PROGRAM = [[
package.path, package.cpath = %q, %q
if not %s then jit.off() end
require("moth.data.worker").run(%q, {%s})
]]

-- Returns package.path and package.cpath, with which this state found Moth; workers use the same.
local function search_path()
  local root = errors.folder:match("^(.*)moth[/\\]$")
  local own = root and ("%s?.lua;%s?/init.lua;"):format(root, root) or ""
  return own .. package.path
end

-- Returns the programs of all workers, and the objects that must stay alive while the workers read
-- them.
local function programs_of(job, first, n)
  local programs, held = lib.array("moth_message", n), {}
  for id = 1, n do
    job.id = first + id - 1
    local text, tensors = pack.write(1, job)
    local tokens, digits = pack.tokens(tensors), {}
    held[id] = {tokens = tokens, n = #tensors}
    for i = 1, #tensors do digits[i] = tostring(tokens[i - 1]) end
    local code = PROGRAM:format(search_path(), package.cpath, tostring((jit.status())), text,
      table.concat(digits, ","))
    held[id].code = code
    local program = programs[id - 1]
    program.text.at, program.text.size = code, #code
    program.tokens, program.ntokens = tokens, #tensors
  end
  return programs, held
end

local FEW = 4
local crews, most = setmetatable({}, {__mode = "k"}), FEW -- all; their limit

local function count()
  local n = 0
  for each in pairs(crews) do
    if each.handle then n = n + 1 end
  end
  return n
end

-- To Lua a crew is a small table: without forced collections, crews of abandoned passes would
-- accumulate.
local function drop_left()
  if count() < most then return end
  require("moth").collect()
  most = math.max(FEW, 2 * count())
end

local TRIES = 8

-- Starts workers. The system may refuse threads until those of abandoned passes have ended: each
-- failed attempt waits a moment.
local function start(job, first, n)
  local lua, h = host_lua(), lib.Handle()
  for try = 1, TRIES do
    local programs, held = programs_of(job, first, n)
    local status = C.moth_workers_start(ctx, lua, programs, n, h)
    if status >= 0 then return lib.adopt(h, status) end
    local _, problem = pcall(lib.check, status, "DataLoader")
    for _, each in ipairs(held) do pack.drop(each.tokens, each.n) end
    if try == TRIES or status ~= C.MOTH_E_MEM then error(problem, 0) end
    require("moth").collect()
  end
end

--- Starts workers.
-- @param job          {source, num_workers, whole, samples, stream, collate, init, seed}
-- @param first, last  the range of worker ids
function crew.start(job, first, last)
  local moth = require "moth"
  drop_left()
  job.dtype, job.limit = moth.get_default_dtype(), moth.memory().limit_bytes
  job.processes = {require("moth.data.workers").ranks()}
  local h = start(job, first, last - first + 1)
  C.moth_keep_always(ctx, h)
  local self = {handle = h, number = 0, message = ffi.new("moth_message"),
                answer = ffi.new("moth_message"), process = machine.process()}
  crews[self] = true
  return self
end

--- Raises if workers cannot be created from a job; called before the first is created.
function crew.check(job)
  host_lua()
  local _, tensors = pack.write(1, job)
  pack.drop(pack.tokens(tensors), #tensors)
end

-- ---- passes ----

local function send(self, pass, k)
  local m, text = self.message, pass.waiting[k]
  m.number, m.tokens, m.ntokens = pass.base + k, nil, 0
  m.text.at, m.text.size = text, #text
  lib.check(C.moth_workers_send(ctx, self.handle, m, pass.base + 1), "DataLoader")
end

-- Requests one more batch, unless the pass has no more.
local function ask(self, pass)
  if pass.ended then return end
  local positions = pass.next_batch()
  if positions == nil then
    pass.ended = true
    return
  end
  if lib.istensor(positions) then positions = positions:tolist() end
  local k = pass.asked + 1
  pass.waiting[k] = (pack.write(2, seeds.mixed(pass.seed, pass.skip + k), positions))
  pass.asked, self.number = k, pass.base + k
  send(self, pass, k)
end

-- Waits for the result of batch k.
local function wait(self, pass, k)
  local m = self.answer
  m.number = pass.base + k
  local seconds = pass.timeout > 0 and pass.timeout or -1
  local status = C.moth_workers_receive(ctx, self.handle, seconds, m)
  if status == 0 then
    errors.raise(("DataLoader: no worker returned batch %d within %g seconds (timeout)"):format(
      pass.skip + k, pass.timeout), "E_STATE")
  elseif status == C.MOTH_E_STATE then
    errors.raise("a worker of the DataLoader has failed: " .. ffi.string(C.moth_error(ctx, 1)),
      "E_STATE")
  end
  lib.check(status, "DataLoader")
end

local function read(pass, ...)
  pass.opened = nil
  return ...
end

-- Returns the result of batch k. It is kept until it has been read completely: if memory was
-- insufficient, pass.opened has the tensors opened so far, and the next call continues there.
local function receive(self, pass, k)
  if not pass.opened then
    wait(self, pass, k)
    pass.opened = {}
  end
  local m = self.answer
  return read(pass, pack.read(ffi.string(m.text.at, m.text.size), m.tokens, m.ntokens, pass.opened))
end

-- Returns batch k or raises its error. A batch that an interrupt stopped in the worker is
-- requested again.
local function settle(self, pass, k, kind, ...)
  if kind == "again" then
    send(self, pass, k)
    return settle(self, pass, k, receive(self, pass, k))
  end
  pass.given, pass.waiting[k] = k, nil
  if kind == "batch" then
    if select("#", ...) == 0 then crew.finish(self, pass) end -- the end of a stream
    return ...
  end
  local id, text, code = ...
  errors.raise(("in worker %d: %s"):format(id, text), code)
end

--- Starts a pass of a crew; a previous pass ends.
-- @param next_batch  function that returns lists of positions, then nil
-- @param options     {ahead = batches requested in advance, seed, skip = batches to skip, timeout,
-- once = end the crew with the pass}
-- @return a function that returns one batch at a time, then nil
function crew.pass(self, next_batch, options)
  local pass = {next_batch = next_batch, asked = 0, given = 0, waiting = {}, base = self.number,
                seed = options.seed, skip = options.skip, timeout = options.timeout,
                once = options.once}
  self.pass = pass
  for _ = 1, options.ahead do ask(self, pass) end
  return function()
    if pass.over then return nil end
    if self.pass ~= pass then
      errors.raise("this pass of the DataLoader has ended: another pass has started, and with "
        .. "persistent_workers only one runs at a time", "E_STATE")
    end
    if pass.asked - pass.given <= options.ahead then ask(self, pass) end
    local k = pass.given + 1
    if k > pass.asked then
      crew.finish(self, pass)
      return nil
    end
    return settle(self, pass, k, receive(self, pass, k))
  end
end

--- Ends a pass, and its workers if they were started for this pass.
function crew.finish(self, pass)
  pass.over = true
  if not pass.once then return end
  self.handle:free()
  self.handle = nil
end

--- Returns true if the workers exist; in a forked child they do not.
function crew.lives(self)
  return self.handle ~= nil and self.process == machine.process()
end

return crew
