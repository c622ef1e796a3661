--- leaks.lua -- what a function leaves behind: bytes, tensors, storages, nodes, passes, handles,
-- and blocks of memory that are not given back to the cache.

local moth = require "moth"
local process = require "spec.support.process"

local COUNTS = {"live_bytes", "live_tensors", "live_storages", "live_nodes", "live_tasks",
  "live_handles"}

local leaks = {}

local function live()
  local now, list = moth.memory(), {}
  for i, name in ipairs(COUNTS) do list[i] = ("%s %d"):format(name, now[name]) end
  return table.concat(list, ", ")
end

--- Runs a function often enough to fill the caches, then four times more. Returns the counters
-- before and after these four runs. A generator keeps its state until Lua collects it, so a
-- difference is measured again between two collections.
function leaks.grown(fn)
  for _ = 1, 3 do moth.scope(fn) end
  local before = live()
  for _ = 1, 4 do moth.scope(fn) end
  local after = live()
  if after == before then return before, after end
  moth.collect()
  before = live()
  for _ = 1, 4 do moth.scope(fn) end
  moth.collect()
  return before, live()
end

--- The number of blocks that four runs of fn take from the system, though earlier runs have filled
-- the cache: 0, unless a block is lost. A collection by Lua may delay the return of a block, so the
-- least of a few rounds counts.
function leaks.blocks(fn)
  if process.sanitized then return 0 end -- no block is cached
  for _ = 1, 4 do moth.scope(fn) end
  local least = math.huge
  for _ = 1, 4 do
    local before = moth.memory().allocations
    for _ = 1, 4 do moth.scope(fn) end
    least = math.min(least, moth.memory().allocations - before)
    if least == 0 then break end
    moth.collect()
    moth.scope(fn)
  end
  return least
end

--- A text that says what fn leaves behind, or "".
function leaks.of(fn)
  for _ = 1, 4 do moth.scope(fn) end
  local made, now = moth.memory().allocations, live()
  for _ = 1, 4 do moth.scope(fn) end
  local same = process.sanitized or made == moth.memory().allocations
  if same and now == live() then return "" end
  local before, after = leaks.grown(fn)
  local text = before == after and "" or before .. ", then " .. after
  local blocks = leaks.blocks(fn)
  if blocks > 0 then text = ("%s; %d blocks"):format(text, blocks) end
  return text
end

return leaks
