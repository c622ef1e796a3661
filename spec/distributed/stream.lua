--- stream.lua -- a stream of the numbers 1 to n, for workers of spec/distributed/claims/data.lua.
-- It divides itself by get_shard_info, or it is divided by shard().

local moth = require "moth"
local data = moth.data

return function(n, whole)
  local Numbers = moth.class("Numbers", data.IterableDataset)
  function Numbers:iter()
    local info = whole and {id = 1, num_shards = 1} or data.get_shard_info()
    local at = info.id - info.num_shards
    return function()
      at = at + info.num_shards
      if at <= n then return moth.tensor(at) end
    end
  end
  function Numbers:worker()
    return data.source("spec.distributed.stream", n, whole and "undivided")
  end
  return whole == true and Numbers():shard() or Numbers()
end
