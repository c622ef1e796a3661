-- DataLoaders with each combination of options against a plain model in Lua; the bounds of
-- datasets, samplers and streams, and the whole messages of their refusals.

local moth = require "moth"
local nn, data = moth.nn, moth.data

-- Samples are 10, 20, ... in each kind of dataset.
local Asked = nn.class("Asked", data.Dataset)
function Asked:init(n) self.n = n end
function Asked:len() return self.n end
function Asked:get(i) return moth.tensor(10 * i) end

local function stream(n, length)
  local made = data.IterableDataset(function()
    local i = 0
    return function()
      i = i + 1
      if i <= n then return moth.tensor(10 * i) end
    end
  end)
  if length then function made:len() return n end end -- luacheck: ignore
  return made
end

local function rows(n) return moth.arange(1, n + 1) * 10 end

local kinds = {
  tensor = rows,
  dataset = Asked,
  subset = function(n)
    local all = {}
    for i = 1, n do all[i] = i end
    return data.Subset(rows(n + 2), all)
  end,
  stream = function(n) return stream(n, true) end,
}

-- The batches that a loader must return.
local function model(n, size, drop_last, skip)
  local list, batch = {}, {}
  for i = 1, n do
    batch[#batch + 1] = 10 * i
    if #batch == size then list[#list + 1], batch = batch, {} end
  end
  if #batch > 0 and not drop_last then list[#list + 1] = batch end
  return {unpack(list, 1 + (skip or 0))}
end

local function all(loader)
  local list = {}
  for x in loader do list[#list + 1] = x:tolist() end
  return list
end

local function walked(sampler)
  local list = {}
  for at in sampler:iter() do list[#list + 1] = at end
  return list
end

local function refuses(f, text)
  local fine, problem = pcall(f)
  assert.is_false(fine)
  problem = tostring(problem)
  assert.is_true(problem:find(text, 1, true) ~= nil, problem .. "\ndoes not contain\n" .. text)
end

describe("a DataLoader of 0 to 7 samples in batches of 1 to 4", function()
  for kind, make in pairs(kinds) do
    it(("has the samples of a %s in order; drop_last removes the rest"):format(kind), function()
      for n = kind == "tensor" and 0 or 1, 7 do
        for size = 1, 4 do
          for _, drop_last in ipairs {false, true} do
            local loader = data.DataLoader {make(n), batch_size = size, drop_last = drop_last}
            local wanted = model(n, size, drop_last)
            assert.equal(#wanted, loader:len())
            assert.same(wanted, all(loader))
            assert.same(wanted, all(loader)) -- a second pass
          end
        end
      end
    end)

    it(("continues with a %s after each number of batches"):format(kind), function()
      local n, size = 7, 2
      for skip = 0, 4 do
        local loader = data.DataLoader {make(n), batch_size = size}
        local step = loader:iter()
        for _ = 1, skip do step() end
        local state = loader:state_dict()
        assert.equal(skip, state.batch)
        assert.equal(size, state.batch_size)
        assert.equal(n, state.samples)
        local other = data.DataLoader {make(n), batch_size = size}
        other:load_state_dict(state)
        assert.equal(skip, other:state_dict().batch) -- before the pass begins
        assert.same(model(n, size, false, skip), all(other))
        assert.same(model(n, size), all(other))
      end
    end)
  end

  it("has a sampler's or a batch sampler's order", function()
    for _, set in ipairs {rows(5), Asked(5)} do
      assert.same({{50, 10}, {30}}, all(data.DataLoader {set, sampler = {5, 1, 3},
        batch_size = 2}))
      assert.same({{50, 10}}, all(data.DataLoader {set, sampler = moth.tensor({5LL, 1LL, 3LL}),
        batch_size = 2, drop_last = true}))
      local loader = data.DataLoader {set, batch_sampler = {{2}, {5, 5, 1}}}
      assert.equal(2, loader:len())
      assert.same({{20}, {50, 50, 10}}, all(loader))
      local random = data.DataLoader {set, batch_size = 2, sampler = data.RandomSampler(set)}
      assert.equal(3, random:len())
    end
  end)

  it("has random orders of all samples, which a generator repeats", function()
    for _, set in ipairs {rows(6), Asked(6)} do
      local function order(seed)
        local flat = {}
        for _, batch in ipairs(all(data.DataLoader {set, batch_size = 4, shuffle = true,
                                                    generator = moth.Generator {seed = seed}})) do
          for _, value in ipairs(batch) do flat[#flat + 1] = value end
        end
        return flat
      end
      assert.same(order(1), order(1))
      assert.is_false(pcall(assert.same, order(1), order(2)))
      local sorted = order(3)
      table.sort(sorted)
      assert.same({10, 20, 30, 40, 50, 60}, sorted)
    end
  end)

  it("returns single samples in the form of the dataset if there are no batches", function()
    local loader = data.DataLoader {data.StackDataset(rows(3), rows(3) + 1),
                                    batch_size = moth.none}
    local seen = {}
    for x, y in loader do seen[#seen + 1] = {x:item(), y:item()} end
    assert.same({{10, 11}, {20, 21}, {30, 31}}, seen)
    assert.equal(3, loader:len())
    seen = {}
    for x in data.DataLoader {stream(3), batch_size = moth.none,
                              collate_fn = function(x) return x + 1 end} do
      seen[#seen + 1] = x:item()
    end
    assert.same({11, 21, 31}, seen)
  end)

  it("uses collate_fn for each kind of dataset", function()
    for _, make in pairs(kinds) do
      local sizes = {}
      local loader = data.DataLoader {make(5), batch_size = 2, collate_fn = function(list)
        return #list
      end}
      for n in loader:iter() do sizes[#sizes + 1] = n end
      assert.same({2, 2, 1}, sizes)
    end
  end)

  it("prints its number of batches and its dataset", function()
    assert.equal("DataLoader of 3 batches of Asked of 5 samples",
      tostring(data.DataLoader {Asked(5), batch_size = 2}))
    assert.equal("DataLoader of 2 batches of Asked of 5 samples",
      tostring(data.DataLoader {Asked(5), batch_size = 2, drop_last = true}))
    assert.equal("DataLoader of IterableDataset", tostring(data.DataLoader {stream(5)}))
    assert.equal("DataLoader of 3 batches of IterableDataset",
      tostring(data.DataLoader {stream(5, true), batch_size = 2}))
  end)

  it("raises for options that exclude each other", function()
    local batches = "bad argument 'batch_sampler' to 'DataLoader' (cannot be combined with "
      .. "batch_size, shuffle, sampler and drop_last)"
    local set = rows(4)
    for _, options in ipairs {{batch_size = 2}, {shuffle = true}, {sampler = {1}},
                              {drop_last = true}} do
      options[1], options.batch_sampler = set, {{1}}
      refuses(function() data.DataLoader(options) end, batches)
    end
    refuses(function() data.DataLoader {set, batch_size = moth.none, batch_sampler = {{1}}} end,
      "bad argument 'batch_sampler' to 'DataLoader' (needs batches, but batch_size is moth.none)")
    refuses(function() data.DataLoader {set, batch_size = moth.none, drop_last = true} end,
      "bad argument 'drop_last' to 'DataLoader' (needs batches, but batch_size is moth.none)")
    for name, value in pairs {shuffle = true, sampler = {1}, batch_sampler = {{1}}} do
      refuses(function() data.DataLoader {stream(3), [name] = value} end,
        ("bad argument '%s' to 'DataLoader' (cannot be used with IterableDataset: a stream has no "
         .. "positions"):format(name))
    end
    refuses(function() data.DataLoader {stream(3)}:len() end,
      "a DataLoader of IterableDataset has no length: the stream has no :len()")
    for _, wrong in ipairs {{iter = print}, {len = print}, {}} do
      refuses(function() data.DataLoader {set, sampler = wrong} end,
        "bad argument 'sampler' to 'DataLoader' (a sampler with :iter() and :len(), or a list, is")
    end
  end)

  it("raises for a state that no loader returns", function()
    local function with(state)
      return function() data.DataLoader(rows(4)):load_state_dict(state) end
    end
    for _, state in ipairs {{}, {batch = "1"}, {batch = 1, random = 3},
                            {batch = 1, seed = "x"}} do
      refuses(with(state), "the result of a DataLoader's state_dict() is needed")
    end
    with({batch = 0})()
  end)

  it("raises for a call that is no loop, and for an index", function()
    local loader = data.DataLoader {rows(4)}
    refuses(function() loader(nil, moth.ones(1)) end,
      "write `for input, target in loader do`, or loader:iter()")
    refuses(function() loader(nil, "x") end,
      "write `for input, target in loader do`, or loader:iter()")
    refuses(function() return loader[1] end,
      "a DataLoader has no [1]; write `for x, y in loader do`")
  end)
end)

describe("default_collate", function()
  local collate = data.default_collate

  it("stacks tensors and makes tensors of numbers, booleans and int64s", function()
    assert.same({{1, 2}, {3, 4}}, collate {moth.tensor {1, 2}, moth.tensor {3, 4}}:tolist())
    assert.equal(moth.float32, collate {1, 2}.dtype)
    assert.equal(moth.bool, collate {true, false}.dtype)
    assert.equal(moth.int64, collate {1LL, 2LL}.dtype)
    assert.same({"a", "b"}, collate {"a", "b"})
    local t = collate {{x = 1, y = {2, "a"}}, {x = 3, y = {4, "b"}}}
    assert.same({1, 3}, t.x:tolist())
    assert.same({2, 4}, t.y[1]:tolist())
    assert.same({"a", "b"}, t.y[2])
    local a, b = collate {{n = 2, 1, "x"}, {n = 2, 2, "y"}}
    assert.same({1, 2}, a:tolist())
    assert.same({"x", "y"}, b)
  end)

  it("raises and names the first sample that differs", function()
    for _, case in ipairs {
      {{1, true}, "samples 1 and 2 of a batch cannot be combined: 1 and true"},
      {{true, true, 1}, "samples 1 and 3 of a batch cannot be combined: true and 1"},
      {{1LL, 2LL, moth.ones(1)}, "samples 1 and 3 of a batch cannot be combined"},
      {{moth.ones(1), 2}, "samples 1 and 2 of a batch cannot be combined: f32 (1) and 2"},
      {{moth.ones(1), moth.ones(1), moth.ones(1, {dtype = moth.int64})},
       "samples 1 and 3 of a batch cannot be combined: f32 (1) and i64 (1)"},
      {{{a = 1}, {a = 1, b = 2}}, "samples 1 and 2 of a batch cannot be combined"},
      {{{a = 1, b = 2}, {a = 1, b = 2}, {a = 1}}, "samples 1 and 3 of a batch"},
      {{{a = 1}, {a = 1}, 3}, "samples 1 and 3 of a batch cannot be combined"},
      {{{n = 2, 1, 2}, {n = 2, 1, 2}, {n = 1, 1}},
       "sample 1 of a batch has 2 components, sample 3 has 1"},
      {{{n = 2, 1, 2}, {n = 2, 1, nil}}, "component 2 of sample 2 of a batch is nil"},
    } do
      refuses(function() collate(case[1]) end, case[2])
    end
    refuses(function() collate(3) end,
      "bad argument 'samples' to 'default_collate' (a list of samples is needed, got 3)")
  end)

  it("proposes Resize only for pictures of one dtype and number of channels", function()
    local zeros = moth.zeros
    local hint = "moth.transforms.Resize({height, width}) gives pictures one size"
    local other = "pass the DataLoader a collate_fn"
    for _, case in ipairs {
      {zeros(3, 4, 4), zeros(3, 4, 5), hint}, {zeros(1, 4, 4), zeros(1, 5, 4), hint},
      {zeros(2, 4, 4), zeros(2, 4, 5), other}, {zeros(4, 4, 4), zeros(4, 4, 5), other},
      {zeros(3, 4, 4), zeros(1, 4, 4), other}, {zeros(3, 4), zeros(3, 5), other},
      {zeros(3, 4, 4), zeros(3, 4, 5, {dtype = moth.uint8}), other},
      {zeros(3, 4, 4), zeros(3, 4), other},
    } do
      refuses(function() collate {case[1], case[2]} end, "(" .. case[3] .. ")")
    end
  end)
end)

describe("datasets", function()
  local pieces = data.ConcatDataset {rows(1), rows(3) + 1, rows(2) + 2}

  it("take the first and the last position, from both ends", function()
    local sets = {
      TensorDataset = data.TensorDataset(rows(4)),
      ListDataset = data.DataLoader({10, 20, 30, 40}).dataset,
      Subset = data.Subset(rows(9), {1, 2, 3, 4}),
      StackDataset = data.StackDataset(rows(4)),
      ConcatDataset = data.ConcatDataset {rows(2), rows(4):narrow(1, 3, 2)},
    }
    for name, set in pairs(sets) do
      local function at(i)
        local x = set:get(i)
        return moth.is_tensor(x) and x:item() or x
      end
      assert.equal(4, set:len())
      assert.equal(10, at(1))
      assert.equal(40, at(4))
      assert.equal(40, at(-1))
      assert.equal(10, at(-4))
      for _, i in ipairs {0, 5, -5} do
        refuses(function() set:get(i) end, ("position %d of 4 samples"):format(i))
      end
      for _, i in ipairs {1.5, "1"} do
        refuses(function() set:get(i) end, "bad argument 'i' to 'get' (a position is needed")
      end
      refuses(function() return set[1] end, ("a %s has no [1]; write dataset:get(1)"):format(name))
      assert.equal(name .. " of 4 samples", tostring(set))
    end
  end)

  it("ConcatDataset finds each position's part", function()
    local seen = {}
    for i = 1, 6 do seen[i] = pieces:get(i):item() end
    assert.same({10, 11, 21, 31, 12, 22}, seen)
  end)

  it("Subset takes the first and the last position, and no other number", function()
    assert.equal(2, data.Subset(rows(4), {1, 4}):len())
    for _, wrong in ipairs {0, 5, 1.5} do
      refuses(function() data.Subset(rows(4), {1, wrong}) end,
        ("argument 'indices' to 'Subset' (element 2 is %s; positions are 1 to 4)"):format(wrong))
    end
    refuses(function() data.Subset(rows(4), {"x"}) end,
      "element 1 is a string ('x'); positions are 1 to 4")
    refuses(function() data.Subset(rows(4), 3) end, "a list of positions is needed, got 3")
  end)

  it("name the argument that is wrong", function()
    for _, case in ipairs {
      {function() data.TensorDataset() end, "at least one tensor is needed, got none"},
      {function() data.TensorDataset {} end, "at least one tensor is needed, got none"},
      {function() data.TensorDataset(rows(2), 3) end, "element 2 is 3, not a tensor"},
      {function() data.TensorDataset(rows(2), moth.tensor(1)) end,
       "element 2 has no rows: it is 0-d"},
      {function() data.TensorDataset(rows(2), rows(3)) end,
       "element 2 is i64 (3), the first is i64 (2): their first sizes differ"},
      {function() data.TensorDataset {rows(2), label = rows(2)} end,
       "its samples have no names, got 'label'; StackDataset{label = ...} has"},
      {function() data.StackDataset() end, "at least one dataset is needed, got none"},
      {function() data.StackDataset(rows(2), rows(3)) end, "differ in length: 2 and 3 samples"},
      {function() data.ConcatDataset {} end, "a list of datasets is needed, got {}"},
      {function() data.ConcatDataset(3) end, "a list of datasets is needed, got 3"},
      {function() data.DataLoader {Asked} end, "got the class Asked; create a dataset: Asked(...)"},
      {function() data.DataLoader {{Asked(1), 2}} end,
       "got {dataset, number}; write the name: {dataset, batch_size = 2}"},
      {function() data.DataLoader {{Asked(1), Asked(2)}} end,
       "got a list of 2 datasets; write local a, b = unpack(list)"},
    } do
      refuses(case[1], case[2])
    end
  end)
end)

describe("random_split", function()
  local function sizes(n, lengths)
    local list = {}
    for i, part in ipairs(data.random_split(Asked(n), lengths)) do list[i] = part:len() end
    return list
  end

  -- torch.utils.data.random_split has these sizes.
  it("gives the rest of fractions to the first parts", function()
    assert.same({5, 5}, sizes(10, {0.5, 0.5}))
    assert.same({4, 3, 3}, sizes(10, {1 / 3, 1 / 3, 1 / 3}))
    assert.same({4, 4, 3}, sizes(11, {1 / 3, 1 / 3, 1 / 3}))
    assert.same({7, 3}, sizes(10, {0.7, 0.3}))
    assert.same({1, 2, 9}, sizes(12, {1, 2, 9}))
    assert.same({1, 0}, sizes(1, {1, 0}))
    assert.same({0, 1}, sizes(1, {0, 1}))
    assert.same({0, 4}, sizes(4, {0, 4}))
    assert.same({0, 4}, sizes(4, {0.0, 1.0}))
  end)

  it("raises for lengths that do not add up", function()
    refuses(function() sizes(4, {2, 1}) end, "add up to 3, the dataset has 4 samples)")
    refuses(function() sizes(4, {2, -1}) end, "element 2 is -1, not a length")
    refuses(function() sizes(4, {2, "2"}) end, "element 2 is a string ('2'), not a length")
    refuses(function() sizes(4, {}) end, "a list of sizes is needed, got {}")
    refuses(function() sizes(4, {0.5, 0.4}) end, "add up to 0.9, the dataset has 4 samples")
  end)

  it("uses each position once, and repeats with a generator", function()
    local function parts()
      local list = {}
      for _, part in ipairs(data.random_split(Asked(9), {4, 5}, moth.Generator {seed = 2})) do
        for _, at in ipairs(part.indices) do list[#list + 1] = at end
      end
      return list
    end
    local sorted = parts()
    assert.same(sorted, parts())
    table.sort(sorted)
    assert.same({1, 2, 3, 4, 5, 6, 7, 8, 9}, sorted)
  end)
end)

describe("samplers", function()
  it("have the length of what they return", function()
    local options = {
      data.SequentialSampler(5), data.SequentialSampler {5}, data.SequentialSampler(rows(5)),
      data.RandomSampler(5), data.RandomSampler {5, num_samples = 3},
      data.RandomSampler {5, num_samples = 5}, data.RandomSampler {5, num_samples = 10},
      data.RandomSampler {5, num_samples = 11}, data.RandomSampler {5, replacement = true},
      data.RandomSampler {5, replacement = true, num_samples = 1},
      data.SubsetRandomSampler {2, 4}, data.SubsetRandomSampler(moth.tensor {2, 4}),
      data.SubsetRandomSampler {}, data.WeightedRandomSampler({1, 1}, 7),
      data.WeightedRandomSampler({1, 0, 1}, 2, false),
      data.BatchSampler(data.SequentialSampler(5), 2),
      data.BatchSampler(data.SequentialSampler(5), 2, true),
      data.BatchSampler(data.SequentialSampler(4), 2, true),
      data.BatchSampler(data.SequentialSampler(1), 2, true),
    }
    local lengths = {5, 5, 5, 5, 3, 5, 10, 11, 5, 1, 2, 2, 0, 7, 2, 3, 2, 2, 0}
    for i, sampler in ipairs(options) do
      assert.equal(lengths[i], sampler:len())
      assert.equal(lengths[i], #walked(sampler))
    end
  end)

  it("RandomSampler starts a new order only after all positions", function()
    local list = walked(data.RandomSampler {3, num_samples = 8})
    for first = 1, 4, 3 do
      local three = {}
      for i = first, first + 2 do three[#three + 1] = list[i] end
      table.sort(three)
      assert.same({1, 2, 3}, three)
    end
    assert.is_true(list[7] ~= list[8])
  end)

  it("RandomSampler with replacement draws the first and the last position", function()
    local seen = {}
    for _, at in ipairs(walked(data.RandomSampler {3, replacement = true, num_samples = 200})) do
      seen[at] = true
    end
    assert.same({true, true, true}, seen)
  end)

  it("WeightedRandomSampler draws no position without a weight", function()
    for _, replacement in ipairs {true, false} do
      local seen = {}
      for _ = 1, 50 do
        for _, at in ipairs(walked(data.WeightedRandomSampler({0, 2, 0, 1, 0}, 2, replacement))) do
          seen[at] = true
        end
      end
      assert.same({[2] = true, [4] = true}, seen)
    end
  end)

  it("WeightedRandomSampler says what it cannot draw", function()
    local function with(...)
      local arguments = {...}
      return function() data.WeightedRandomSampler(unpack(arguments)) end
    end
    local name = "' to 'WeightedRandomSampler' ("
    refuses(with({0, 0}, 1), "bad argument 'weights" .. name .. "are all 0)")
    refuses(with({1, 1}, 0), "'num_samples" .. name .. "a number from 1 on is needed, got 0)")
    refuses(with({1, 0, 1}, 3, false), "'num_samples" .. name
      .. "3 samples cannot be drawn without replacement from 2 with a weight)")
    for _, weight in ipairs {-1, 0 / 0, math.huge} do
      refuses(with({1, weight}, 1), "'weights" .. name .. "finite numbers from 0 on are needed)")
    end
    with({1, 0, 1}, 2, false)()
    with({1}, 1)()
  end)

  -- torch.utils.data.distributed.DistributedSampler has these positions, counted from 0.
  it("DistributedSampler divides the positions between processes", function()
    local function of(n, replicas, rank, options)
      options = options or {}
      options[1], options.num_replicas, options.rank = n, replicas, rank
      if options.shuffle == nil then options.shuffle = false end
      local sampler = data.DistributedSampler(options)
      local list = walked(sampler)
      assert.equal(#list, sampler:len())
      return list
    end
    assert.same({1, 4, 7, 10}, of(10, 3, 0))
    assert.same({2, 5, 8, 1}, of(10, 3, 1))
    assert.same({3, 6, 9, 2}, of(10, 3, 2))
    assert.same({1, 4, 7}, of(10, 3, 0, {drop_last = true}))
    assert.same({3, 6, 9}, of(10, 3, 2, {drop_last = true}))
    assert.same({1, 4, 7, 10}, of(10, 3, 0, {even = false}))
    assert.same({2, 5, 8}, of(10, 3, 1, {even = false}))
    assert.same({3, 6, 9}, of(10, 3, 2, {even = false}))
    assert.same({1}, of(1, 3, 2))
    assert.same({}, of(1, 3, 2, {even = false}))
    assert.same({}, of(1, 3, 0, {drop_last = true}))
    assert.same({1, 2, 3}, of(3, 1, 0))
    for _, rank in ipairs {-1, 3} do
      refuses(function() of(10, 3, rank) end,
        ("bad argument 'rank' to 'DistributedSampler' (a number from 0 to 2 is needed, got %d)")
          :format(rank))
    end
  end)

  it("DistributedSampler's orders change with the seed and the epoch, not with the rank", function()
    local function all_ranks(seed, epoch)
      local list = {}
      for rank = 0, 1 do
        local sampler = data.DistributedSampler {20, num_replicas = 2, rank = rank, seed = seed}
        sampler:set_epoch(epoch)
        for i, at in ipairs(walked(sampler)) do list[2 * i - 1 + rank] = at end
      end
      return list
    end
    local order = all_ranks(3, 0)
    assert.same(order, all_ranks(3, 0))
    assert.same(all_ranks(4, 0), all_ranks(3, 1)) -- as PyTorch: seed + epoch
    assert.is_false(pcall(assert.same, order, all_ranks(3, 1)))
    table.sort(order)
    local wanted = {}
    for i = 1, 20 do wanted[i] = i end
    assert.same(wanted, order)
  end)
end)

describe("streams", function()
  local function numbers(n, length)
    local made = data.IterableDataset(function()
      local i = 0
      return function()
        i = i + 1
        if i <= n then return i end
      end
    end)
    if length then function made:len() return n end end -- luacheck: ignore
    return made
  end

  it("are divided into shards, whose lengths are known", function()
    for n = 0, 7 do
      for shards = 1, 4 do
        local seen = {}
        for index = 0, shards - 1 do
          local shard = numbers(n, true):shard(shards, index)
          local list = walked(shard)
          assert.equal(#list, shard:len())
          for k, value in ipairs(list) do
            assert.equal(index + 1 + (k - 1) * shards, value)
            seen[#seen + 1] = value
          end
        end
        assert.equal(n, #seen)
      end
    end
    assert.same({2, 5}, walked(numbers(5):shard {num_shards = 3, index = 1}))
    assert.same({3}, walked(numbers(5):shard {3, 2}))
    assert.same({1, 2, 3}, walked(numbers(3):shard()))
    assert.equal(3, numbers(3, true):shard():len())
    refuses(function() numbers(3):shard(2, 0):len() end,
      "ShardDataset has no length: its stream has no length")
  end)

  it("name a wrong shard", function()
    for _, case in ipairs {
      {0, 0, "bad argument 'num_shards' to 'shard' (an integer is needed, got 0)"},
      {1.5, 0, "bad argument 'num_shards' to 'shard' (an integer is needed, got 1.5)"},
      {"x", 0, "bad argument 'num_shards' to 'shard' (an integer is needed, got a string ('x'))"},
      {2, -1, "bad argument 'index' to 'shard' (an integer is needed, got -1)"},
      {2, 0.5, "bad argument 'index' to 'shard' (an integer is needed, got 0.5)"},
      {2, 2, "bad argument 'index' to 'shard' (a number from 0 to 1 is needed, got 2)"},
      {2, nil, "bad argument 'index' to 'shard' (an integer is needed"},
      {nil, 1, "bad argument 'num_shards' to 'shard' (an integer is needed"},
    } do
      refuses(function() numbers(3):shard(case[1], case[2]) end, case[3])
    end
  end)

  it("follow each other, also if some are empty", function()
    local chain = data.ChainDataset {numbers(0, true), numbers(2, true), numbers(0, true),
                                     numbers(1, true)}
    assert.same({1, 2, 1}, walked(chain))
    assert.equal(3, chain:len())
    assert.equal(0, data.ChainDataset({}):len())
    refuses(function() data.ChainDataset {numbers(1, true), numbers(1)}:len() end,
      "ChainDataset has no length: its dataset 2 has no length")
    refuses(function() data.ChainDataset(3) end, "a list of IterableDatasets is needed, got 3")
    refuses(function() data.ChainDataset {numbers(1), rows(2)} end, "element 2 is i64 (2), not an")
  end)

  it("take iterators with a state, as `for` does", function()
    assert.same({"a", "b"}, (function()
      local list = {}
      for x in data.IterableDataset(function() return ("a b"):gmatch "%a" end):iter() do
        list[#list + 1] = x
      end
      return list
    end)())
    local keys = walked(data.IterableDataset(function() return ipairs {7, 8, 9} end))
    assert.same({1, 2, 3}, keys)
    refuses(function() data.IterableDataset(3) end,
      "bad argument 'begin' to 'IterableDataset' (a function that starts a pass is needed, got 3)")
    refuses(function() data.IterableDataset(function() return 3 end):iter() end,
      "the function of an IterableDataset returned 3; a function that returns the next sample is")
  end)

  it("may have samples of several components", function()
    local set = data.IterableDataset(function() return ipairs {7, 8, 9} end)
    local xs, ys = {}, {}
    for x, y in data.DataLoader {set, batch_size = 2} do
      xs[#xs + 1], ys[#ys + 1] = x:tolist(), y:tolist()
    end
    assert.same({{1, 2}, {3}}, xs)
    assert.same({{7, 8}, {9}}, ys)
  end)
end)

it("a DataLoader has 0 to 256 workers, which make 2 batches in advance by default", function()
  local function with(options)
    options[1] = rows(4)
    return data.DataLoader(options)
  end
  assert.is_nil(with({num_workers = 0}).workers)
  assert.equal(2, with({num_workers = 1}).workers.ahead)
  assert.equal(1, with({num_workers = 256, prefetch_factor = 1}).workers.ahead)
  for _, n in ipairs {-1, 257} do
    refuses(function() with {num_workers = n} end, ("bad argument 'num_workers' to 'DataLoader' (a "
      .. "number from 0 to 256 is needed, got %d)"):format(n))
  end
  refuses(function() with {num_workers = 1, prefetch_factor = 0} end,
    "bad argument 'prefetch_factor' to 'DataLoader' (a number from 1 on is needed, got 0)")
  refuses(function() with {num_workers = 1, timeout = -1} end,
    "bad argument 'timeout' to 'DataLoader' (seconds from 0 on are needed, got -1)")
  for name, value in pairs {timeout = 1, prefetch_factor = 2, persistent_workers = true} do
    refuses(function() with {[name] = value} end,
      ("bad argument '%s' to 'DataLoader' (needs workers, but num_workers is 0)"):format(name))
  end
end)
