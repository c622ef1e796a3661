-- Claims about data of several processes: see spec/support/ranks.lua.

local moth = require "moth"
local data, dist = moth.data, moth.distributed

-- Raises unless the numbers of all processes are 1 to n, each once.
local function each_once(mine, n)
  local all, seen, count = {}, {}, 0
  dist.all_gather_object(all, mine)
  for _, list in ipairs(all) do
    for _, value in ipairs(list) do
      assert(not seen[value], "twice: " .. value)
      seen[value], count = true, count + 1
    end
  end
  assert(count == n and #seen == n, count .. " of " .. n)
end

local function numbers_of(loader)
  local list = {}
  for batch in loader do
    for _, value in ipairs(batch:tolist()) do list[#list + 1] = tonumber(value) end
  end
  return list
end

-- Writes archives of samples 1 to n to a folder of all processes. Returns their pattern.
local function archives(rank, count, each)
  local list = {os.tmpname()}
  dist.broadcast_object_list(list)
  if rank == 0 then
    for k = 0, count - 1 do
      local tar = data.TarWriter(("%s-%d.tar"):format(list[1], k))
      for i = 1, each do
        local number = k * each + i
        tar:write {__key__ = ("%04d"):format(number), id = tostring(number)}
      end
      tar:close()
    end
  end
  dist.barrier()
  return ("%s-{0..%d}.tar"):format(list[1], count - 1), list[1]
end

return {
  {"the shards of a stream have each sample once", function(rank, n)
    local stream = data.IterableDataset(function() return coroutine.wrap(function()
      for i = 1, 23 do coroutine.yield(moth.tensor(i)) end
    end) end)
    each_once(numbers_of(data.DataLoader {stream:shard(), batch_size = 3}), 23)
    local mine = numbers_of(data.DataLoader(stream:shard(n, n - 1 - rank), 1))
    each_once(mine, 23)
    for _, value in ipairs(mine) do assert((value - 1) % n == n - 1 - rank) end
    assert(#numbers_of(data.DataLoader(stream, 4)) == 23) -- the whole stream in each process
  end},
  {"get_shard_info counts processes and workers", function(rank, n)
    local info = data.get_shard_info()
    assert(info.id == rank + 1 and info.num_shards == n)
    for _, workers in ipairs {0, 2} do
      local loader = data.DataLoader {data.source("spec.distributed.stream", 30), batch_size = 2,
        num_workers = workers}
      each_once(numbers_of(loader), 30)
      loader = data.DataLoader {data.source("spec.distributed.stream", 30, true), batch_size = 2,
        num_workers = workers}
      each_once(numbers_of(loader), 30)
    end
  end},
  {"the archives of a WebDataset are shared out to processes and workers", function(rank, n)
    local pattern, start = archives(rank, 2 * n, 3)
    local function stream(options)
      options[1], options.decode, options.to_tuple = pattern, true, {"id"}
      return data.WebDataset(options)
    end
    for _, workers in ipairs {0, 2} do
      each_once(numbers_of(data.DataLoader {stream {shuffle = 4}, batch_size = 2,
        num_workers = workers}), 6 * n)
    end
    assert(#numbers_of(data.DataLoader(stream {shard = {0, 1}}, 2)) == 6 * n)
    local ok, problem = pcall(data.WebDataset, start .. "-0.tar")
    assert(not ok and tostring(problem):find "cannot be shared out", problem)
    dist.barrier()
    for k = 0, rank == 0 and 2 * n - 1 or -1 do os.remove(("%s-%d.tar"):format(start, k)) end
    if rank == 0 then os.remove(start) end
  end},
  {"a DistributedSampler with even = false repeats no sample", function(_, n)
    for _, shuffle in ipairs {true, false} do
      local sampler = data.DistributedSampler(4 * n + 1, {shuffle = shuffle, even = false})
      local mine = {}
      for at in sampler:iter() do mine[#mine + 1] = tonumber(at) end
      assert(#mine == sampler:len())
      each_once(mine, 4 * n + 1)
    end
  end},
}
