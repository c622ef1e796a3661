--- memory.lua -- the core's memory: counters, limit, cache, and the owners of live tensors.

local ffi = require "ffi"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx

local memory = {}

local info = ffi.new("moth_memory_info")
local FIELDS = {
  "live_bytes", "peak_bytes", "cached_bytes", "limit_bytes", "goal_bytes", "shared_bytes",
  "live_tensors", "live_handles", "live_nodes", "live_storages", "live_tasks", "allocations",
  "collections", "collection_seconds",
}

local function read()
  C.moth_memory(ctx, info)
  local t = {}
  for _, name in ipairs(FIELDS) do t[name] = tonumber(info[name]) end
  return t
end

--- The core's memory counters.
-- @return a table: live_bytes (in storages), peak_bytes (their maximum), cached_bytes (free blocks
-- kept for reuse: bounded by a quarter of the recent maximum of bytes in use and 32 MiB, plus the
-- bytes freed since that maximum), limit_bytes (0: none), goal_bytes (live bytes that trigger a
-- collection), shared_bytes (of tensors passed between contexts), live_tensors, live_handles,
-- live_nodes, live_storages, live_tasks (running backward passes), allocations (blocks requested
-- from the system), collections (started by the core or moth.collect), collection_seconds (their
-- total time)
function memory.memory() return read() end

--- Sets the limit of live bytes; an op that would exceed it raises E_LIMIT. Free blocks count too:
-- they are returned to the system before live and cached bytes together exceed the limit. A block
-- is up to an eighth larger than its tensor; this difference does not count.
memory.set_memory_limit = define {
  name = "set_memory_limit",
  doc = "Sets the limit in bytes of live tensors and cached blocks; 0 or none: no limit.",
  examples = "2^30",
  args = {{"int?", "bytes", "limit of live bytes"}},
  run = function(bytes)
    if bytes and bytes < 0 then
      errors.refuse("set_memory_limit", "bytes", "a size is not negative", bytes)
    end
    C.moth_memory_limit(ctx, bytes or 0)
  end,
}

--- Sets how much may be created between two collections at least. A collection is due when one of
-- these is true: live bytes exceed the live bytes after the last collection by the floor or by a
-- 64th, and are near their recent maximum; 8192 handles were created since; or a quarter of the
-- live handles were.
-- A due collection runs if collections then take at most a 25th of the time. The smaller the rest
-- of that time, the rarer they are. It also runs if it costs less than to touch as much new memory
-- and as many new tensors instead of cached ones.
-- A collection always runs when the growth reaches the largest of: 15 floors of bytes, all live
-- bytes, and 4 times Lua's heap (1 GiB at most); or 8 floors of handles.
memory.set_memory_floor = define {
  name = "set_memory_floor",
  doc = "Sets the bytes and tensors that may be created between two collections.",
  examples = "2^20, 8192",
  args = {
    {"int", "bytes", "bytes", default = 2 ^ 20},
    {"int", "handles", "tensors", default = 8192},
  },
  run = function(bytes, handles)
    if bytes < 0 or handles < 0 then
      errors.refuse("set_memory_floor", bytes < 0 and "bytes" or "handles",
        "a number from 0 on is needed", bytes < 0 and bytes or handles, "E_DOMAIN")
    end
    C.moth_memory_floor(ctx, bytes, handles)
  end,
}

--- Returns the free blocks that are cached for reuse to the system, including those of tensors that
-- Lua has collected.
function memory.empty_cache()
  lib.sweep()
  C.moth_empty_cache(ctx)
end

--- Restarts peak_bytes from the live bytes.
function memory.reset_peak_memory() C.moth_memory_reset_peak(ctx) end

--- Collects until nothing more is freed: Lua's garbage, and the tensors that only it held.
-- @return the number of live bytes
function memory.collect()
  local before
  for _ = 1, 8 do
    if not lib.collect(true) then break end
    C.moth_memory(ctx, info)
    local now = tonumber(info.live_handles + info.live_nodes + info.live_storages)
    if before == now then break end
    before = now
  end
  C.moth_memory(ctx, info)
  return tonumber(info.live_bytes)
end

--- The live tensors after a full collection, to find what holds memory.
-- @return a table: the counters of moth.memory(), and `tensors`, a list of {tensor, text,
-- history}, the largest first; print shows the list
function memory.leaks()
  memory.collect()
  local t = read()
  local list, sizes = {}, {}
  for slot = 1, C.moth_slot_count(ctx) do
    local x = lib.live[slot]
    if x and C.moth_alive(ctx, x) == 1 then
      local tensor = lib.inspect(x)
      local bytes = tonumber(tensor.numel * tensor.itemsize)
      local name = C.moth_node_name(ctx, x)
      local item = {tensor = x, text = errors.describe(x), bytes = bytes,
                    history = name ~= nil and ffi.string(name) or nil}
      list[#list + 1] = item
      sizes[item] = bytes
    end
  end
  table.sort(list, function(a, b) return sizes[a] > sizes[b] end)
  t.tensors = list
  return setmetatable(t, {__tostring = memory.report})
end

--- The text that print shows for moth.leaks().
function memory.report(t)
  local lines = {("%d tensors with a handle, %d in all; %d bytes live, %d nodes of graphs")
    :format(t.live_handles, t.live_tensors, t.live_bytes, t.live_nodes)}
  for i = 1, math.min(#t.tensors, 20) do
    local item = t.tensors[i]
    lines[#lines + 1] = ("  %10d bytes  %s%s"):format(item.bytes, item.text,
      item.history and ", from " .. item.history or "")
  end
  if #t.tensors > 20 then lines[#lines + 1] = ("  ... and %d more"):format(#t.tensors - 20) end
  return table.concat(lines, "\n")
end

return memory
