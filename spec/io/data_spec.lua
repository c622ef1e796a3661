-- Datasets, samplers and the DataLoader. IDX files: idx_spec.lua.

local moth = require "moth"
local nn, data = moth.nn, moth.data

-- Ten samples: row i is {10 i, 10 i + 1}, its label i.
local function ten()
  local x = moth.arange(10):view(10, 1) * 10 + moth.tensor {{10LL, 11LL}}
  return data.TensorDataset(x:float(), moth.arange(1, 11))
end

-- The labels of a pass, in order, and the sizes of its batches.
local function labels_of(loader)
  local labels, sizes = {}, {}
  for x, y in loader do
    assert(x:size(1) == y:size(1))
    assert(x[1][1]:item() == 10 * y[1]:item(), "row and label do not belong together")
    sizes[#sizes + 1] = y:size(1)
    for _, label in ipairs(y:tolist()) do labels[#labels + 1] = tonumber(label) end
  end
  return labels, sizes
end

local function sorted(list)
  local copy = {unpack(list)}
  table.sort(copy)
  return copy
end

local ALL = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}

describe("a list of samples", function()
  it("is a dataset; a list within it is a sample of several components", function()
    local list = {}
    for i = 1, 10 do list[i] = {moth.tensor {10 * i, 10 * i + 1}, moth.tensor {i}:squeeze()} end
    local loader = data.DataLoader(list, {batch_size = 4})
    local labels, sizes = labels_of(loader)
    assert.same(ALL, labels)
    assert.same({4, 4, 2}, sizes)
    for numbers in data.DataLoader {{5, 6, 7}, batch_size = 3} do
      assert.same({5, 6, 7}, numbers:tolist())
    end
    for batch in data.DataLoader {{{a = 1, b = 2}, {a = 3, b = 4}}, batch_size = 2} do
      assert.same({1, 3}, batch.a:tolist())
    end
    assert.equal(2, data.Subset({8, 9, 7}, {1, 3}):len())
  end)

  it("of positions, or of lists of them, is a sampler", function()
    local function labels(options)
      options[1] = ten()
      return (labels_of(data.DataLoader(options)))
    end
    assert.same({4, 1, 9}, labels {sampler = {4, 1, 9}, batch_size = 2})
    assert.same({4, 1, 9}, labels {sampler = moth.tensor {4LL, 1LL, 9LL}, batch_size = 2})
    assert.same({3, 2, 5}, labels {batch_sampler = {{3, 2}, {5}}})
    assert.has_error_like(function() labels {sampler = 3} end, "or a list, is needed, got 3")
  end)

  it("is distinguished from a dataset and a number in braces", function()
    assert.has_error_like(function() data.DataLoader {ten(), 2} end,
      "'dataset' to 'DataLoader' %(got {dataset, number}; write the name")
  end)
end)

describe("a TensorDataset", function()
  it("has the rows of its tensors as samples", function()
    local set = ten()
    assert.equal(10, set:len())
    local x, y = set:get(3)
    assert.same({30, 31}, x:tolist())
    assert.equal(3, tonumber(y:item()))
    assert.same({100, 101}, (set:get(-1)):tolist())
    assert.equal("TensorDataset of 10 samples", tostring(set))
  end)

  it("accepts one tensor, and a list", function()
    assert.equal(1, select("#", data.TensorDataset(moth.ones(4, 2)):get(1)))
    assert.equal(2, select("#", data.TensorDataset {moth.ones(4), moth.ones(4)}:get(1)))
  end)

  it("raises for tensors of different lengths", function()
    assert.has_error_like(function() data.TensorDataset(moth.ones(3), moth.ones(4)) end,
      "element 2 is f32 %(4%), the first is f32 %(3%): their first sizes differ")
    assert.has_error_like(function() data.TensorDataset(moth.tensor(1)) end, "it is 0%-d")
    assert.has_error_like(function() data.TensorDataset(3) end, "element 1 is 3, not a tensor")
    assert.has_error_like(function() data.TensorDataset() end, "at least one tensor")
  end)

  it("names the valid positions", function()
    for _, at in ipairs {0, 11, -11} do
      assert.has_error_like(function() ten():get(at) end, "position %-?%d+ of 10 samples")
    end
    assert.has_error_like(function() ten():get(1.5) end, "a position is needed, got 1%.5")
  end)
end)

describe("datasets of datasets", function()
  it("Subset accepts positions, in their order, also as a tensor", function()
    assert.same({4, 2, 4}, (labels_of(data.DataLoader {data.Subset(ten(), {4, 2, 4})})))
    local sub = data.Subset(ten(), moth.tensor {7LL})
    assert.equal(1, sub:len())
    assert.equal(70, (sub:get(1))[1]:item())
    assert.has_error_like(function() data.Subset(ten(), {1, 11}) end,
      "element 2 is 11; positions are 1 to 10")
    assert.has_error_like(function() data.Subset(ten(), {0}) end, "element 1 is 0")
  end)

  it("Subset of a Subset finds the samples", function()
    local sub = data.Subset(data.Subset(ten(), {9, 7, 5}), {3, 1})
    assert.same({5, 9}, (labels_of(data.DataLoader {sub, batch_size = 2})))
  end)

  it("ConcatDataset puts them one after the other", function()
    local both = data.ConcatDataset {data.Subset(ten(), {2, 4}), ten()}
    assert.equal(12, both:len())
    local labels = labels_of(data.DataLoader {both, batch_size = 5})
    assert.same({2, 4, 1, 2, 3}, {unpack(labels, 1, 5)})
    assert.equal(10, tonumber((select(2, both:get(-1))):item()))
    assert.has_error_like(function() data.ConcatDataset {} end, "a list of datasets is needed")
  end)

  it("random_split returns parts that are disjoint and complete", function()
    local a, b = unpack(data.random_split(ten(), {7, 3}))
    assert.same({7, 3}, {a:len(), b:len()})
    local found = labels_of(data.DataLoader {data.ConcatDataset {a, b}})
    assert.same(ALL, sorted(found))
  end)

  it("random_split accepts shares, and repeats with a seed", function()
    local a, b, c = unpack(data.random_split(ten(), {0.5, 0.25, 0.25}))
    assert.same({6, 2, 2}, {a:len(), b:len(), c:len()})
    local function split(seed)
      return data.random_split(ten(), {5, 5}, moth.Generator {seed = seed})[1].indices
    end
    assert.same(split(1), split(1))
    assert.are_not.same(split(1), split(2))
    assert.has_error_like(function() data.random_split(ten(), {7, 4}) end,
      "add up to 11, the dataset has 10 samples")
  end)
end)

describe("a DataLoader", function()
  it("may run inside another loop over it, also if batches begin with equal strings", function()
    local loader = data.DataLoader {moth.arange(3), collate_fn = function(list)
      return "abc", list[1]:item()
    end}
    local seen = {}
    for _, i in loader do
      for _, j in loader do seen[#seen + 1] = 10 * i + j end
    end
    assert.same({0, 1, 2, 10, 11, 12, 20, 21, 22}, seen)
  end)

  it("returns batches in order; the last one is smaller", function()
    local loader = data.DataLoader {ten(), batch_size = 4}
    local labels, sizes = labels_of(loader)
    assert.same(ALL, labels)
    assert.same({4, 4, 2}, sizes)
    assert.equal(3, loader:len())
  end)

  it("returns single samples if batch_size is none", function()
    local seen, threes = {}, {}
    local loader = data.DataLoader {ten(), batch_size = moth.none}
    for x, y in loader do
      assert.same({1, 0}, {x:dim(), y:dim()})
      seen[#seen + 1] = y:item()
    end
    assert.same(ALL, seen)
    assert.equal(10, loader:len())
    loader = data.DataLoader {moth.arange(7), batch_size = moth.none, num_workers = 1,
                              collate_fn = function(x) return x * 3 end}
    for x in loader do threes[#threes + 1] = x:item() end
    assert.same({0, 3, 6, 9, 12, 15, 18}, threes)
    assert.has_error_like(function()
      data.DataLoader {ten(), batch_size = moth.none, drop_last = true}
    end, "'drop_last' to 'DataLoader' %(needs batches, but batch_size is moth.none")
  end)

  it("leaves out the last one with drop_last", function()
    local loader = data.DataLoader(ten(), {batch_size = 4, drop_last = true})
    local labels, sizes = labels_of(loader)
    assert.same({4, 4}, sizes)
    assert.equal(8, #labels)
    assert.equal(2, loader:len())
  end)

  it("stacks one sample by default", function()
    local x, y = data.DataLoader(ten()):iter()()
    assert.same({1, 2}, {x:size(1), x:size(2)})
    assert.equal(1, y:dim())
  end)

  it("shuffles: all samples, in a new order in each pass", function()
    local loader = data.DataLoader {ten(), batch_size = 3, shuffle = true}
    local first = labels_of(loader)
    local second = labels_of(loader)
    assert.same(ALL, sorted(first))
    assert.same(ALL, sorted(second))
    assert.are_not.same(first, second)
    assert.are_not.same(ALL, first)
  end)

  it("repeats with manual_seed, and with its own generator", function()
    local function order()
      return (labels_of(data.DataLoader {ten(), batch_size = 3, shuffle = true}))
    end
    moth.manual_seed(3)
    local first = order()
    moth.manual_seed(3)
    assert.same(first, order())
    local function seeded(seed)
      local generator = moth.Generator {seed = seed}
      return (labels_of(data.DataLoader {ten(), shuffle = true, generator = generator}))
    end
    assert.same(seeded(1), seeded(1))
    assert.are_not.same(seeded(1), seeded(2))
  end)

  it("can run twice, after a break, and inside itself", function()
    local loader = data.DataLoader {ten(), batch_size = 5}
    for x in loader do
      if x:size(1) == 5 then break end
    end
    assert.same(ALL, (labels_of(loader)))
    local count = 0
    for _ in loader do
      for _ in loader do count = count + 1 end
    end
    assert.equal(4, count)
    assert.same(ALL, (labels_of(loader)))
  end)

  it("accepts a tensor as a dataset of its rows", function()
    local seen = 0
    for x in data.DataLoader {moth.ones(6, 2), batch_size = 4} do
      seen = seen + x:size(1)
      assert.equal(2, x:size(2))
    end
    assert.equal(6, seen)
  end)

  it("works in scopes that end with each step", function()
    local labels = {}
    for _, y in data.DataLoader {ten(), batch_size = 3} do
      moth.scope(function()
        for _, label in ipairs(y:tolist()) do labels[#labels + 1] = tonumber(label) end
      end)
    end
    assert.same(ALL, labels)
  end)

  it("returns nothing for an empty dataset", function()
    for _ in data.DataLoader {moth.ones(0, 2), batch_size = 2} do error "a batch of nothing" end
    assert.equal(0, data.DataLoader {moth.ones(0, 2), batch_size = 2}:len())
  end)

  it("does not change batches that it has returned", function()
    local kept = {}
    for x in data.DataLoader {ten(), batch_size = 2} do kept[#kept + 1] = x end
    assert.equal(10, kept[1][1][1]:item())
    assert.equal(90, kept[5][1][1]:item())
  end)

  it("raises for wrong arguments", function()
    assert.has_error_like(function() data.DataLoader {5} end,
      "a dataset %(with :len%(%) and :get%(i%)%), a tensor or a list of samples is needed")
    assert.has_error_like(function() data.DataLoader {ten(), batch_size = 0} end,
      "a number from 1 on is needed, got 0")
    assert.has_error_like(function() data.DataLoader {ten(), shufle = true} end,
      "did you mean 'shuffle'%?")
    assert.has_error_like(function()
      data.DataLoader {ten(), shuffle = true, sampler = data.SequentialSampler(ten())}
    end, "cannot be combined with a sampler")
    assert.has_error_like(function() data.DataLoader {ten(), sampler = 3} end,
      "a sampler with :iter%(%) and :len%(%), or a list, is needed")
  end)
end)

describe("a user's dataset", function()
  local Squares = nn.class("Squares", data.Dataset)
  function Squares:init(n) self.n = n end
  function Squares:len() return self.n end
  function Squares:get(i)
    return moth.full({2}, i), {square = moth.tensor(i * i), name = "no " .. i}, i % 2 == 0, 3LL, i
  end

  it("is collated component by component", function()
    for x, t, even, whole, number in data.DataLoader {Squares(4), batch_size = 4} do
      assert.same({{1, 1}, {2, 2}, {3, 3}, {4, 4}}, x:tolist())
      assert.same({1, 4, 9, 16}, t.square:tolist())
      assert.same({"no 1", "no 2", "no 3", "no 4"}, t.name)
      assert.same({false, true, false, true}, even:tolist())
      assert.equal(moth.int64, whole.dtype)
      assert.same({1, 2, 3, 4}, number:tolist())
      assert.equal(moth.float32, number.dtype)
    end
  end)

  it("may have a collate_fn", function()
    local seen = {}
    local loader = data.DataLoader {Squares(3), batch_size = 2,
      collate_fn = function(samples) return #samples, samples[1].n end}
    for n, components in loader do seen[#seen + 1] = n .. ":" .. components end
    assert.same({"2:5", "1:5"}, seen)
    assert.has_error_like(function()
      for _ in data.DataLoader {Squares(3), collate_fn = function() end} do error "none" end
    end, "collate_fn returned nil")
  end)

  it("may be any table with :len() and :get(i)", function()
    local plain = {len = function() return 2 end, get = function(_, i) return moth.full({1}, i) end}
    local seen = {}
    for x in data.DataLoader(plain, {batch_size = 2}) do seen = x:tolist() end
    assert.same({{1}, {2}}, seen)
  end)

  it("raises and names the missing method", function()
    local Half = nn.class("Half", data.Dataset)
    function Half:len() return 2 end
    assert.has_error_like(function() for _ in data.DataLoader {Half()} do error "none" end end,
      "class 'Half' has no method ':get%(i%)'")
    function Half:get() end
    assert.has_error_like(function() for _ in data.DataLoader {Half()} do error "none" end end,
      "sample 1 of the dataset is nil: Half:get%(1%) returned nothing")
  end)

  it("raises and names the samples that do not match", function()
    local Ragged = nn.class("Ragged", data.Dataset)
    function Ragged:len() return 2 end
    function Ragged:get(i) return moth.zeros(i) end
    assert.has_error_like(function()
      for _ in data.DataLoader {Ragged(), batch_size = 2} do error "none" end
    end, "samples 1 and 2 of a batch cannot be combined: f32 %(1%) and f32 %(2%)"
      .. " %(pass the DataLoader a collate_fn%)")
    function Ragged:get(i) return moth.zeros(3, i, 5) end
    assert.has_error_like(function()
      for _ in data.DataLoader {Ragged(), batch_size = 2} do error "none" end
    end, "f32 %(3, 1, 5%) and f32 %(3, 2, 5%) %(moth.transforms.Resize%({height, width}%) gives "
      .. "pictures one size%)")
  end)

  it("raises its own errors at its own line", function()
    local Broken = nn.class("Broken", data.Dataset)
    function Broken:len() return 2 end
    function Broken:get() error "the disk is gone" end
    assert.has_error_like(function() for _ in data.DataLoader {Broken()} do error "none" end end,
      "data_spec%.lua:%d+: the disk is gone")
  end)
end)

describe("samplers", function()
  local function drawn(sampler)
    local list = {}
    for at in sampler:iter() do list[#list + 1] = tonumber(at) end
    return list
  end

  it("SequentialSampler counts from 1", function()
    assert.same({1, 2, 3}, drawn(data.SequentialSampler(moth.ones(3))))
  end)

  it("RandomSampler gives each position once, or draws with replacement", function()
    assert.same(ALL, sorted(drawn(data.RandomSampler(ten()))))
    local some = drawn(data.RandomSampler {ten(), replacement = true, num_samples = 50})
    assert.equal(50, #some)
    for _, at in ipairs(some) do assert.is_true(at >= 1 and at <= 10) end
    local function chosen()
      return drawn(data.RandomSampler {ten(), replacement = true, num_samples = 50,
        generator = moth.Generator {seed = 5}})
    end
    assert.same(chosen(), chosen())
    local twice = drawn(data.RandomSampler {ten(), num_samples = 20})
    assert.same({1, 1, 2, 2}, {unpack(sorted(twice), 1, 4)})
    assert.has_error_like(function() data.RandomSampler {ten(), num_samples = 0} end,
      "a number from 1 on is needed, got 0")
  end)

  it("SubsetRandomSampler shuffles the given positions", function()
    local seen = drawn(data.SubsetRandomSampler {2, 4, 6, 8})
    assert.same({2, 4, 6, 8}, sorted(seen))
    local loader = data.DataLoader {ten(), sampler = data.SubsetRandomSampler {1, 5},
      batch_size = 2}
    assert.same({1, 5}, sorted((labels_of(loader))))
  end)

  it("BatchSampler makes lists", function()
    local lists = {}
    for list in data.BatchSampler(data.SequentialSampler(ten()), 4):iter() do
      lists[#lists + 1] = list
    end
    assert.same({{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10}}, lists)
    local batches = data.BatchSampler {data.SequentialSampler(ten()), 4, drop_last = true}
    assert.equal(2, batches:len())
    assert.same({4, 4}, (select(2, labels_of(data.DataLoader {ten(), batch_sampler = batches}))))
  end)

  it("may be written by the user", function()
    local Backwards = nn.class("Backwards", data.Sampler)
    function Backwards:len() return 10 end
    function Backwards:iter()
      local i = 11
      return function()
        i = i - 1
        return i > 0 and i or nil
      end
    end
    local labels = labels_of(data.DataLoader {ten(), batch_size = 3, sampler = Backwards()})
    assert.same({10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, labels)
  end)
end)
