-- Datasets, samplers, streams and DataLoader: both sides of each bound, whole messages of refusals,
-- options by their names and positions, and what a failed call leaves behind.

local moth = require "moth"
local dataset = require "moth.data.dataset"
local iterable = require "moth.data.iterable"

local nn, data = moth.nn, moth.data

local function check(text, f)
  local ok, problem = pcall(f)
  assert.is_false(ok, "was taken: " .. text)
  local message = tostring(type(problem) == "table" and problem.message or problem)
  if not message:find(text, 1, true) then error(message .. "\nlacks: " .. text, 2) end
end

local function refused(rows)
  for _, row in ipairs(rows) do
    it("refuses: " .. row[1], function() check(row[1], row[2]) end)
  end
end

-- The values of an iterator as a list of numbers.
local function list_of(iterator)
  local list = {}
  for x in iterator do list[#list + 1] = tonumber(moth.is_tensor(x) and x:item() or x) end
  return list
end

local function drawn(sampler) return list_of(sampler:iter()) end

local function sorted(list)
  table.sort(list)
  return list
end

-- A stream of the numbers 1 to n, with or without a length.
local function count_to(n, with_length)
  local stream = data.IterableDataset(function()
    local i = 0
    return function()
      i = i + 1
      return i <= n and i or nil
    end
  end)
  if with_length then rawset(stream, "len", function() return n end) end
  return stream
end

describe("a stream", function()
  it("of a function with a state and a control variable is read as by for", function()
    local stream = data.IterableDataset(function() return ipairs {5, 6, 7} end)
    assert.same({1, 2, 3}, list_of(stream:iter()))
    assert.same({1, 2, 3}, list_of(stream:iter()))
    assert.equal("IterableDataset", tostring(stream))
  end)

  it("is told from a dataset by its methods", function()
    assert.is_true(iterable.is(count_to(2)))
    assert.is_true(iterable.is {iter = function() end})
    assert.is_false(iterable.is {iter = function() end, get = function() end})
    assert.is_false(iterable.is {})
    assert.is_false(iterable.is(data.IterableDataset))
    assert.is_false(iterable.is(3))
    assert.equal(3, iterable.length(count_to(3, true)))
    assert.is_nil(iterable.length(count_to(3)))
  end)

  it("has shards: every n-th sample from a number on", function()
    local stream = count_to(7, true)
    assert.same({1, 4, 7}, list_of(stream:shard(3, 0):iter()))
    assert.same({2, 5}, list_of(stream:shard(3, 1):iter()))
    assert.same({3, 6}, list_of(stream:shard {num_shards = 3, index = 2}:iter()))
    assert.same({3, 6}, list_of(stream:shard {3, 2}:iter()))
    assert.same({1, 2, 3, 4, 5, 6, 7}, list_of(stream:shard(1, 0):iter()))
    assert.same({1, 2, 3, 4, 5, 6, 7}, list_of(stream:shard():iter()))
    for index, length in pairs {[0] = 3, 2, 2} do
      assert.equal(length, stream:shard(3, index):len())
    end
    assert.equal(7, stream:shard():len())
    assert.equal(0, count_to(2, true):shard(9, 8):len())
    assert.same({}, list_of(count_to(2):shard(9, 8):iter()))
    local shard = stream:shard(3, 1) -- also in a second pass
    assert.same({2, 5}, list_of(shard:iter()))
    assert.same({2, 5}, list_of(shard:iter()))
  end)

  it("follows others in a chain", function()
    local chain = data.ChainDataset {count_to(2, true), count_to(0, true), count_to(3, true)}
    assert.same({1, 2, 1, 2, 3}, list_of(chain:iter()))
    assert.equal(5, chain:len())
    assert.same({}, list_of(data.ChainDataset({}):iter()))
    assert.equal(0, data.ChainDataset({}):len())
    assert.same({2, 2}, list_of(chain:shard(2, 1):iter()))
    assert.same({1, 1, 3}, list_of(chain:shard(2, 0):iter()))
  end)

  it("is divided into batches, with a length if it has one", function()
    local function sizes(options)
      options[1] = options[1] or count_to(7, true)
      local list = {}
      local loader = data.DataLoader(options)
      for x in loader do list[#list + 1] = x:size(1) end
      return list, loader
    end
    local list, loader = sizes {batch_size = 3}
    assert.same({3, 3, 1}, list)
    assert.equal(3, loader:len())
    assert.equal("DataLoader of 3 batches of IterableDataset", tostring(loader))
    list, loader = sizes {batch_size = 3, drop_last = true}
    assert.same({3, 3}, list)
    assert.equal(2, loader:len())
    list, loader = sizes {count_to(4), batch_size = 4}
    assert.same({4}, list)
    assert.equal("DataLoader of IterableDataset", tostring(loader))
    check("a DataLoader of IterableDataset has no length: the stream has no :len()",
      function() loader:len() end)
  end)

  refused {
    {"bad argument 'begin' to 'IterableDataset' (a function that starts a pass is needed, got 3",
      function() data.IterableDataset(3) end},
    {"the function of an IterableDataset returned 3; a function that returns the next sample is "
      .. "needed", function() data.IterableDataset(function() return 3 end):iter() end},
    {"class 'IterableDataset' has no method ':iter()'",
      function() data.IterableDataset():iter() end},
    {"bad argument 'num_shards' to 'shard' (an integer is needed, got 0",
      function() count_to(2):shard(0, 0) end},
    {"bad argument 'num_shards' to 'shard' (an integer is needed, got 1.5",
      function() count_to(2):shard(1.5, 0) end},
    {"bad argument 'index' to 'shard' (an integer is needed, got -1",
      function() count_to(2):shard(2, -1) end},
    {"bad argument 'index' to 'shard' (an integer is needed, got n",
      function() count_to(2):shard(2) end},
    {"bad argument 'num_shards' to 'shard' (an integer is needed, got n",
      function() count_to(2):shard {index = 0} end},
    {"bad argument 'index' to 'shard' (a number from 0 to 1 is needed, got 2",
      function() count_to(2):shard(2, 2) end},
    {"ShardDataset has no length: its stream has no length",
      function() count_to(2):shard(2, 0):len() end},
    {"ChainDataset has no length: its dataset 2 has no length",
      function() data.ChainDataset {count_to(1, true), count_to(1)}:len() end},
    {"bad argument 'datasets' to 'ChainDataset' (a list of IterableDatasets is needed, got 3",
      function() data.ChainDataset(3) end},
    {"bad argument 'datasets' to 'ChainDataset' (element 2 is f32 (2), not an IterableDataset",
      function() data.ChainDataset {count_to(1), moth.ones(2)} end},
    {"bad argument 'shuffle' to 'DataLoader' (cannot be used with IterableDataset: a stream has no "
      .. "positions", function() data.DataLoader(count_to(2), {shuffle = true}) end},
    {"bad argument 'sampler' to 'DataLoader' (cannot be used with IterableDataset",
      function() data.DataLoader(count_to(2), {sampler = {1}}) end},
  }
end)

describe("a sampler", function()
  it("of a number, of a tensor and of a dataset has all positions", function()
    local set = data.TensorDataset(moth.zeros(4, 2))
    assert.equal(4, data.SequentialSampler {4}:len())
    for _, source in ipairs {4, moth.zeros(4), set} do
      assert.equal(4, data.SequentialSampler(source):len())
      assert.equal(4, data.RandomSampler {source}:len())
      assert.equal(4, #drawn(data.SequentialSampler(source)))
    end
    assert.same({1, 2, 3, 4}, data.SequentialSampler(4):positions():tolist())
    assert.same({1, 2, 3, 4}, sorted(drawn(data.RandomSampler(4))))
  end)

  it("at random repeats the whole order until it has the wanted number", function()
    local list = drawn(data.RandomSampler {5, num_samples = 13})
    assert.equal(13, #list)
    for first = 1, 6, 5 do
      assert.same({1, 2, 3, 4, 5}, sorted {unpack(list, first, first + 4)})
    end
    assert.equal(3, #drawn(data.RandomSampler {5, num_samples = 3}))
    assert.equal(1, #drawn(data.RandomSampler {5, num_samples = 1}))
    local seen = {}
    for _, at in ipairs(drawn(data.RandomSampler {3, replacement = true, num_samples = 200})) do
      seen[at] = (seen[at] or 0) + 1
    end
    assert.is_true(seen[1] > 30 and seen[2] > 30 and seen[3] > 30 and seen[0] == nil
      and seen[4] == nil)
  end)

  it("of one of several processes has every n-th position", function()
    local function all(n, options)
      local parts, lengths = {}, {}
      for rank = 0, 2 do
        options[1], options.num_replicas, options.rank = n, 3, rank
        local one = data.DistributedSampler(options)
        parts[rank + 1], lengths[rank + 1] = drawn(one), one:len()
        assert.equal(one:len(), #parts[rank + 1])
      end
      return parts, lengths
    end
    assert.same({{1, 4, 7, 10}, {2, 5, 8, 1}, {3, 6, 9, 2}}, (all(10, {shuffle = false})))
    assert.same({{1, 4, 7}, {2, 5, 1}, {3, 6, 2}}, (all(7, {shuffle = false})))
    assert.same({{1}, {2}, {1}}, (all(2, {shuffle = false})))
    assert.same({{1, 4, 7}, {2, 5, 8}, {3, 6, 9}}, (all(10, {shuffle = false, drop_last = true})))
    assert.same({{1, 4}, {2, 5}, {3, 6}}, (all(7, {shuffle = false, drop_last = true})))
    assert.same({{}, {}, {}}, (all(2, {shuffle = false, drop_last = true})))
    local parts, lengths = all(7, {shuffle = false, even = false})
    assert.same({{1, 4, 7}, {2, 5}, {3, 6}}, parts)
    assert.same({3, 2, 2}, lengths)
    assert.same({{1}, {}, {}}, (all(1, {shuffle = false, even = false})))
    local joined = {}
    for _, part in ipairs((all(9, {}))) do
      for _, at in ipairs(part) do joined[#joined + 1] = at end
    end
    assert.same({1, 2, 3, 4, 5, 6, 7, 8, 9}, sorted(joined))
  end)

  it("of one of several processes draws by the sum of seed and epoch", function()
    local function order(seed, epoch)
      local one = data.DistributedSampler {50, num_replicas = 1, rank = 0, seed = seed}
      if epoch then one:set_epoch(epoch) end
      return drawn(one)
    end
    assert.same(order(0), order(0, 0))
    assert.same(order(3, 1), order(1, 3))
    assert.are_not.same(order(0), order(0, 1))
    assert.are_not.same(order(0), order(1))
  end)

  it("of one of several processes needs an epoch that is an integer from 0 on", function()
    local one = data.DistributedSampler {3, num_replicas = 2, rank = 1}
    check("bad argument 'epoch' to 'set_epoch' (an integer from 0 on is needed, got nil)",
      function() one:set_epoch() end)
    for _, wrong in ipairs {-1, 1.5, "one"} do
      check("bad argument 'epoch' to 'set_epoch' (an integer from 0 on is needed",
        function() one:set_epoch(wrong) end)
    end
    one:set_epoch(moth.tensor(3LL):item())
    assert.equal(3, one.epoch)
  end)

  it("of one of several processes shuffles and repeats samples by default", function()
    local one = data.DistributedSampler {3, num_replicas = 2, rank = 1}
    assert.same({2, 1, true, 0, false, true, 0}, {one.num_replicas, one.rank, one.shuffle, one.seed,
      one.drop_last, one.even, one.epoch})
    for _, options in ipairs {{3}, {3, num_replicas = 2}, {3, rank = 0}} do
      check("DistributedSampler: there is no process group; call "
        .. "moth.distributed.init_process_group first, or pass num_replicas and rank",
        function() data.DistributedSampler(options) end)
    end
  end)

  it("by weight never has a position of weight 0", function()
    local counts = {0, 0, 0, 0}
    for _, at in ipairs(drawn(data.WeightedRandomSampler({0, 1, 3, 0}, 4000))) do
      counts[at] = counts[at] + 1
    end
    assert.same({0, 0}, {counts[1], counts[4]})
    assert.is_true(counts[3] > 2800 and counts[3] < 3200, counts[3])
    local some = drawn(data.WeightedRandomSampler({0, 1, 3, 0}, 2, false))
    assert.same({2, 3}, sorted(some))
    assert.equal(2, data.WeightedRandomSampler({1, 1}, 2, false):len())
    assert.equal(5, data.WeightedRandomSampler({1, 1}, 5):len())
  end)

  it("of batches has as many as there are", function()
    for n, row in pairs {[0] = {0, 0}, {1, 0}, {1, 0}, {1, 1}, {2, 1}} do
      for k, drop in ipairs {false, true} do
        local batches = data.BatchSampler(data.SequentialSampler(n), 3, drop)
        local lists = 0
        for _ in batches:iter() do lists = lists + 1 end
        assert.same({row[k], row[k]}, {batches:len(), lists}, n)
      end
    end
  end)

  refused {
    {"bad argument 'num_samples' to 'RandomSampler' (a number from 1 on is needed, got 0",
      function() data.RandomSampler {3, num_samples = 0} end},
    {"bad argument 'rank' to 'DistributedSampler' (a number from 0 to 1 is needed, got 2",
      function() data.DistributedSampler {3, num_replicas = 2, rank = 2} end},
    {"bad argument 'rank' to 'DistributedSampler' (a number from 0 to 1 is needed, got -1",
      function() data.DistributedSampler {3, num_replicas = 2, rank = -1} end},
    {"bad argument 'rank' to 'DistributedSampler' (a number from 0 to -1 is needed, got 0",
      function() data.DistributedSampler {3, num_replicas = 0, rank = 0} end},
    {"bad argument 'indices' to 'SubsetRandomSampler' (a list of positions is needed, got 3",
      function() data.SubsetRandomSampler(3) end},
    {"bad argument 'weights' to 'WeightedRandomSampler' (a list of numbers is needed",
      function() data.WeightedRandomSampler({}, 1) end},
    {"bad argument 'weights' to 'WeightedRandomSampler' (a list of numbers is needed",
      function() data.WeightedRandomSampler({{1}}, 1) end},
    {"bad argument 'weights' to 'WeightedRandomSampler' (finite numbers from 0 on are needed",
      function() data.WeightedRandomSampler({1, -1}, 1) end},
    {"bad argument 'weights' to 'WeightedRandomSampler' (finite numbers from 0 on are needed",
      function() data.WeightedRandomSampler({1, math.huge}, 1) end},
    {"bad argument 'weights' to 'WeightedRandomSampler' (finite numbers from 0 on are needed",
      function() data.WeightedRandomSampler({1, 0 / 0}, 1) end},
    {"bad argument 'weights' to 'WeightedRandomSampler' (are all 0",
      function() data.WeightedRandomSampler({0, 0}, 1) end},
    {"bad argument 'num_samples' to 'WeightedRandomSampler' (a number from 1 on is needed, got 0",
      function() data.WeightedRandomSampler({1}, 0) end},
    {"bad argument 'num_samples' to 'WeightedRandomSampler' (2 samples cannot be drawn without "
      .. "replacement from 1 with a weight",
      function() data.WeightedRandomSampler({1, 0}, 2, false) end},
    {"bad argument 'batch_size' to 'BatchSampler' (a number from 1 on is needed, got 0",
      function() data.BatchSampler(data.SequentialSampler(3), 0) end},
    {"class 'Sampler' has no method ':iter()'", function() data.Sampler():iter() end},
    {"class 'Sampler' has no method ':len()'", function() data.Sampler():len() end},
    {"class 'Dataset' has no method ':len()'", function() data.Dataset():len() end},
    {"class 'Dataset' has no method ':get(i)'", function() data.Dataset():get(1) end},
  }
end)

describe("a dataset", function()
  it("is split by shares, whose remainders go to the first parts", function()
    local function sizes(n, lengths)
      local list = {}
      for i, part in ipairs(data.random_split(moth.arange(n), lengths)) do list[i] = part:len() end
      return list
    end
    assert.same({6, 2, 2}, sizes(10, {0.5, 0.25, 0.25}))
    assert.same({4, 2, 1}, sizes(7, {0.5, 0.25, 0.25}))
    assert.same({2, 1, 0}, sizes(3, {0.5, 0.25, 0.25}))
    assert.same({3, 3, 4}, sizes(10, {0.3, 0.3, 0.4}))
    assert.same({3, 2, 2}, sizes(7, {0.3, 0.3, 0.4}))
    assert.same({1, 1, 1}, sizes(3, {0.3, 0.3, 0.4}))
    assert.same({0, 3}, sizes(3, {0, 3}))
    assert.same({1}, sizes(1, {1}))
    assert.same({3}, sizes(3, {1}))
    assert.same({3}, sizes(3, {1.0000005}))
  end)

  it("of several has the samples of each by name or in order", function()
    local a, b = moth.arange(3), moth.arange(3) * 10
    local list, named = data.StackDataset(a, b), data.StackDataset {x = a, y = b}
    assert.same({3, 3}, {list:len(), named:len()})
    local x, y = list:get(2)
    assert.same({1, 10}, {tonumber(x:item()), tonumber(y:item())})
    local sample = named:get(-1)
    assert.same({2, 20}, {tonumber(sample.x:item()), tonumber(sample.y:item())})
    local one = data.StackDataset {a, b} -- a list
    assert.equal(2, select("#", one:get(1)))
    local inner = data.StackDataset(data.TensorDataset(a, b), a)
    assert.equal(2, select("#", inner:get(1))) -- the first component of each
  end)

  it("of several finds a position at each border", function()
    local all = data.ConcatDataset {moth.tensor {1, 2}, moth.tensor {3}, moth.tensor {4, 5, 6}}
    local list = {}
    for i = 1, 6 do list[i] = all:get(i):item() end
    assert.same({1, 2, 3, 4, 5, 6}, list)
    assert.equal(4, all:get(-3):item())
    assert.equal(1, all:get(-6):item())
    local with_empty = data.ConcatDataset {moth.zeros(0), moth.tensor {7}, moth.zeros(0),
      moth.tensor {8}}
    assert.same({7, 8}, {with_empty:get(1):item(), with_empty:get(2):item()})
  end)

  it("whose positions are whole numbers in floats or int64 has subsets", function()
    local set = data.Subset(moth.arange(5), {1, 5, 3LL})
    assert.same({0, 4, 2}, {tonumber(set:get(1):item()), tonumber(set:get(2):item()),
      tonumber(set:get(-1):item())})
    assert.equal("Subset of 3 samples", tostring(set))
  end)

  it("gives sources to workers only if its class is Moth's", function()
    local Own = nn.class("Own", data.TensorDataset)
    assert.is_nil(dataset.source_of(Own(moth.ones(2))))
    assert.is_truthy(dataset.source_of(data.TensorDataset(moth.ones(2))))
    assert.is_nil(dataset.source_of(data.Subset(Own(moth.ones(2)), {1})))
    assert.is_truthy(dataset.source_of(data.Subset(moth.ones(2), {1})))
    assert.is_nil(dataset.source_of(data.ConcatDataset {moth.ones(2), Own(moth.ones(2))}))
    assert.is_truthy(dataset.source_of(data.StackDataset {a = moth.ones(2)}))
    assert.is_nil(dataset.source_of(data.StackDataset {a = Own(moth.ones(2))}))
    assert.is_true(dataset.is_fresh(data.Subset(moth.ones(2), {1})))
    assert.is_false(dataset.is_fresh(Own(moth.ones(2))))
  end)

  local Wrong = nn.class("Wrong", data.Dataset)
  function Wrong:worker() return 3 end
  local five = data.TensorDataset(moth.arange(5))
  refused {
    {"bad argument 'lengths' to 'random_split' (a list of sizes is needed, got {}",
      function() data.random_split(five, {}) end},
    {"bad argument 'lengths' to 'random_split' (a list of sizes is needed, got 3",
      function() data.random_split(five, 3) end},
    {"bad argument 'lengths' to 'random_split' (element 2 is -1, not a length",
      function() data.random_split(five, {6, -1}) end},
    {"bad argument 'lengths' to 'random_split' (element 1 is nan, not a length",
      function() data.random_split(five, {0 / 0}) end},
    {"bad argument 'lengths' to 'random_split' ({0.5, 0.4} add up to 0.9, the dataset has 5 "
      .. "samples",
      function() data.random_split(five, {0.5, 0.4}) end},
    {"bad argument 'datasets' to 'StackDataset' (differ in length: 5 and 4 samples",
      function() data.StackDataset(five, moth.ones(4)) end},
    {"bad argument 'datasets' to 'StackDataset' (at least one dataset is needed, got none",
      function() data.StackDataset() end},
    {"bad argument 'datasets' to 'ConcatDataset' (a list of datasets is needed",
      function() data.ConcatDataset(3) end},
    {"bad argument 'indices' to 'Subset' (a list of positions is needed, got 3",
      function() data.Subset(five, 3) end},
    {"bad argument 'indices' to 'Subset' (element 1 is 6; positions are 1 to 5",
      function() data.Subset(five, {6}) end},
    {"bad argument 'indices' to 'Subset' (element 1 is 1.5; positions are 1 to 5",
      function() data.Subset(five, {1.5}) end},
    {"bad argument 'i' to 'get' (a position is needed, got a string ('1')",
      function() five:get "1" end},
    {"bad argument 'i' to 'get' (position 6 of 5 samples", function() five:get(6) end},
    {"bad argument 'i' to 'get' (position -6 of 5 samples", function() five:get(-6) end},
    {"bad argument 'i' to 'get' (position 4 of 3 samples",
      function() data.Subset(five, {1, 2, 3}):get(4) end},
    {"a TensorDataset has no [2]; write dataset:get(2)", function() return five[2] end},
    {"a DataLoader has no [1]; write `for x, y in loader do`",
      function() return data.DataLoader(five)[1] end},
    {"Wrong:worker() returned 3; data.source(\"module\", ...) is needed",
      function() dataset.source_of(Wrong()) end},
    {"bad argument 'dataset' to 'Subset' (got the class TensorDataset; create a dataset: "
      .. "TensorDataset(...)", function() data.Subset(data.TensorDataset, {1}) end},
    {"bad argument 'dataset' to 'DataLoader' (got a list of 2 datasets; write local a, b = "
      .. "unpack(list)", function() data.DataLoader {{five, five}} end},
    {"bad argument 'tensors' to 'TensorDataset' (its samples have no names, got 'x'; "
      .. "StackDataset{x "
      .. "= ...} has", function() data.TensorDataset {moth.ones(2), x = moth.ones(2)} end},
  }
end)

describe("a DataLoader", function()
  local five = data.TensorDataset(moth.arange(5))

  it("has these defaults", function()
    local loader = data.DataLoader(five)
    assert.same({1, false, true, false}, {loader.batch_size, loader.drop_last, loader.batched,
      loader.pin_memory})
    assert.equal("SequentialSampler", moth.typename(loader.sampler))
    assert.equal("DataLoader of 5 batches of TensorDataset of 5 samples", tostring(loader))
    assert.equal("RandomSampler", moth.typename(data.DataLoader(five, {shuffle = true}).sampler))
  end)

  it("collates numbers, int64s, booleans, tables and other values", function()
    local collate = data.default_collate
    assert.equal(moth.float32, collate({1, 2}).dtype)
    assert.equal(moth.int64, collate({1LL, 2LL}).dtype)
    assert.equal(moth.bool, collate({true, false}).dtype)
    assert.same({"a", "b"}, collate {"a", "b"})
    local a, b = collate {{n = 2, 1, "x"}, {n = 2, 3, "y"}}
    assert.same({{1, 3}, {"x", "y"}}, {a:tolist(), b})
    local map = collate {{k = {1, 2}}, {k = {3, 4}}}
    assert.same({{1, 3}, {2, 4}}, {map.k[1]:tolist(), map.k[2]:tolist()})
  end)

  it("names the samples that differ, the first one first", function()
    local collate = data.default_collate
    local end_of = " (pass the DataLoader a collate_fn)"
    check("samples 1 and 3 of a batch cannot be combined: 1 and true" .. end_of,
      function() collate {1, 2, true} end)
    check("samples 1 and 2 of a batch cannot be combined: 1 and f32 ()" .. end_of,
      function() collate {1, moth.tensor(2)} end)
    check("samples 1 and 2 of a batch cannot be combined: a table and 3" .. end_of,
      function() collate {{a = 1}, 3} end)
    check("samples 1 and 2 of a batch cannot be combined: a table and a table" .. end_of,
      function() collate {{a = 1}, {b = 1}} end)
    check("samples 1 and 2 of a batch cannot be combined: a table and a table" .. end_of,
      function() collate {{a = 1, b = 2}, {a = 1}} end)
    check("samples 1 and 2 of a batch cannot be combined: f32 (2) and f64 (2)" .. end_of,
      function() collate {moth.ones(2), moth.ones(2, {dtype = moth.float64})} end)
    check("sample 1 of a batch has 2 components, sample 2 has 1",
      function() collate {{n = 2, 1, 2}, {n = 1, 1}} end)
    check("component 2 of sample 2 of a batch is nil",
      function() collate {{n = 2, 1, 2}, {n = 2, 1}} end)
    check("f32 (4, 2, 5) and f32 (4, 3, 5)" .. end_of,
      function() collate {moth.zeros(4, 2, 5), moth.zeros(4, 3, 5)} end)
    check("f32 (3, 2, 5) and f32 (1, 2, 5)" .. end_of,
      function() collate {moth.zeros(3, 2, 5), moth.zeros(1, 2, 5)} end)
    check("f32 (1, 2, 5) and f32 (1, 3, 5) (moth.transforms.Resize",
      function() collate {moth.zeros(1, 2, 5), moth.zeros(1, 3, 5)} end)
  end)

  it("keeps its position if a state is refused", function()
    local loader = data.DataLoader(five, {batch_size = 2})
    local step = loader:iter()
    step()
    local state = loader:state_dict()
    assert.same({1, 2, 5}, {state.batch, state.batch_size, state.samples})
    check("'state_dict' to 'load_state_dict' (the result of a DataLoader's state_dict() is needed",
      function() loader:load_state_dict {} end)
    check("'state_dict' to 'load_state_dict' (the result of a DataLoader's state_dict() is needed",
      function() loader:load_state_dict {batch = 1, seed = "x"} end)
    check("'state_dict' to 'load_state_dict' (the result of a DataLoader's state_dict() is needed",
      function() loader:load_state_dict {batch = 1, random = 3} end)
    check("(is of a loader with batch_size = 3, this one has 2",
      function() loader:load_state_dict {batch = 1, batch_size = 3} end)
    check("(is of a loader with samples = 6, this one has 5",
      function() loader:load_state_dict {batch = 1, samples = 6} end)
    assert.equal(1, loader:state_dict().batch)
    loader:load_state_dict(state)
    assert.same({2, 3}, (function()
      local x = loader:iter()()
      return {tonumber(x[1]:item()), tonumber(x[2]:item())}
    end)())
  end)

  refused {
    {"bad argument 'batch_size' to 'DataLoader' (a number from 1 on is needed, got 0",
      function() data.DataLoader(five, 0) end},
    {"bad argument 'shuffle' to 'DataLoader' (cannot be combined with a sampler",
      function() data.DataLoader(five, {shuffle = true, sampler = {1}}) end},
    {"bad argument 'batch_sampler' to 'DataLoader' (cannot be combined with batch_size, shuffle, "
      .. "sampler and drop_last",
      function() data.DataLoader(five, {batch_size = 2, batch_sampler = {{1}}}) end},
    {"bad argument 'batch_sampler' to 'DataLoader' (cannot be combined",
      function() data.DataLoader(five, {shuffle = true, batch_sampler = {{1}}}) end},
    {"bad argument 'batch_sampler' to 'DataLoader' (cannot be combined",
      function() data.DataLoader(five, {sampler = {1}, batch_sampler = {{1}}}) end},
    {"bad argument 'batch_sampler' to 'DataLoader' (cannot be combined",
      function() data.DataLoader(five, {drop_last = true, batch_sampler = {{1}}}) end},
    {"bad argument 'batch_sampler' to 'DataLoader' (needs batches, but batch_size is moth.none",
      function() data.DataLoader(five, {batch_size = moth.none, batch_sampler = {{1}}}) end},
    {"bad argument 'sampler' to 'DataLoader' (a sampler with :iter() and :len(), or a list, is "
      .. "needed, got {}", function() data.DataLoader(five, {sampler = {}}) end},
    {"bad argument 'batch_sampler' to 'DataLoader' (a sampler with :iter() and :len(), or a list",
      function() data.DataLoader(five, {batch_sampler = 3}) end},
    {"bad argument 'samples' to 'default_collate' (a list of samples is needed, got 3",
      function() data.default_collate(3) end},
    {"bad argument 'pin_memory' to 'DataLoader' (there is no GPU to copy to; leave it at false",
      function()
        local cuda = moth.cuda.is_available
        moth.cuda.is_available = function() return false end
        local ok, problem = pcall(data.DataLoader, five, {pin_memory = true})
        moth.cuda.is_available = cuda
        error(ok or problem, 0)
      end},
    {"write `for input, target in loader do`, or loader:iter()",
      function() data.DataLoader(five)(nil, "not a batch") end},
  }
end)
