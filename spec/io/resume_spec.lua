-- A pass of a DataLoader, resumed in the middle, continues with the same batches; streams; weighted
-- samplers.

local moth = require "moth"
local nn, data = moth.nn, moth.data

local function batches(loader, most)
  local list = {}
  for x in loader do
    list[#list + 1] = x:tolist()
    if #list == most then break end
  end
  return list
end

-- Ten samples by position only, so that the loader requests each.
local Slow = nn.class("Slow", data.Dataset)
function Slow:len() return 10 end
function Slow:get(i) return moth.tensor(i) end

local function counting(n)
  return data.IterableDataset(function()
    local i = 0
    return function()
      i = i + 1
      if i <= n then return i * 1LL end
    end
  end)
end

local loaders = {
  ["a shuffled tensor"] = function()
    return data.DataLoader {moth.arange(10), batch_size = 3, shuffle = true}
  end,
  ["a shuffled dataset asked sample by sample"] = function()
    return data.DataLoader {Slow(), batch_size = 3, shuffle = true, drop_last = true}
  end,
  ["a generator of its own"] = function()
    return data.DataLoader {moth.arange(10), batch_size = 3, shuffle = true,
                            generator = moth.Generator {seed = 3}}
  end,
  ["a batch sampler"] = function()
    return data.DataLoader {Slow(), batch_sampler = data.BatchSampler(data.RandomSampler(10), 3)}
  end,
  ["samples by weight"] = function()
    return data.DataLoader {moth.arange(4), batch_size = 3,
                            sampler = data.WeightedRandomSampler({1, 2, 3, 4}, 10)}
  end,
  ["a stream"] = function() return data.DataLoader {counting(10), batch_size = 3} end,
  ["no shuffling"] = function() return data.DataLoader {moth.arange(10), batch_size = 3} end,
}

describe("a pass resumed in the middle continues with the same batches, with", function()
  for name, make in pairs(loaders) do
    it(name, function()
      moth.manual_seed(7)
      local loader, saved, rest, random = make(), nil, {}, nil
      batches(loader) -- a whole pass before
      local n = 0
      for x in loader do
        n = n + 1
        if n > 2 then rest[#rest + 1] = x:tolist() end
        if n == 2 then
          moth.rand(5) -- the model's random numbers
          saved, random = loader:state_dict(), moth.get_rng_state()
        end
      end
      local after = batches(loader)
      local path = os.tmpname()
      moth.save({loader = saved}, path)
      moth.manual_seed(99)
      loader = make()
      loader:load_state_dict(moth.load(path).loader)
      os.remove(path)
      moth.set_rng_state(random)
      assert.same(rest, batches(loader))
      if name ~= "a generator of its own" then assert.same(after, batches(loader)) end
    end)
  end
end)

describe("the state of a DataLoader", function()
  it("between passes means that the next pass is new", function()
    local loader = loaders["a shuffled tensor"]()
    batches(loader)
    local state = loader:state_dict()
    assert.same({batch = 0, batch_size = 3, samples = 10}, state)
    loader:load_state_dict(state)
    assert.equal(4, #batches(loader))
  end)

  it("after the last batch resumes at the end", function()
    local loader, state = loaders["no shuffling"](), nil
    for _ in loader do state = loader:state_dict() end
    loader:load_state_dict(state)
    assert.equal(0, #batches(loader))
    assert.equal(4, #batches(loader))
  end)

  it("raises in a loader with other arguments", function()
    local state = loaders["no shuffling"]():state_dict()
    assert.has_error_like(function()
      data.DataLoader {moth.arange(10), batch_size = 4}:load_state_dict(state)
    end, "is of a loader with batch_size = 3, this one has 4")
    assert.has_error_like(function()
      data.DataLoader {moth.arange(9), batch_size = 3}:load_state_dict(state)
    end, "samples = 10, this one has 9")
    assert.has_error_like(function() loaders["a stream"]():load_state_dict(3) end,
      "the result of a DataLoader's state_dict")
  end)
end)

describe("a stream", function()
  it("is divided into batches in its order", function()
    assert.same({{1, 2, 3}, {4, 5}}, batches(data.DataLoader {counting(5), batch_size = 3}))
    assert.same({{1, 2, 3}}, batches(data.DataLoader {counting(5), batch_size = 3,
                                                      drop_last = true}))
    assert.same({}, batches(data.DataLoader {counting(0)}))
  end)

  it("is a class with :iter(), whose samples may have several components", function()
    local Pairs = nn.class("Pairs", data.IterableDataset)
    function Pairs:iter()
      local i = 0
      return function()
        i = i + 1
        if i <= 3 then return moth.tensor(i), moth.tensor(-i) end
      end
    end
    function Pairs:len() return 3 end
    local loader = data.DataLoader {Pairs(), batch_size = 2}
    local x, y = loader:iter()()
    assert.same({{1, 2}, {-1, -2}}, {x:tolist(), y:tolist()})
    assert.equal(2, loader:len())
    assert.has_error_like(function() data.DataLoader {counting(3)}:len() end, "has no :len")
    assert.equal("DataLoader of IterableDataset", tostring(data.DataLoader {counting(3)}))
  end)

  it("raises for options that need positions", function()
    assert.has_error_like(function() data.DataLoader {counting(3), shuffle = true} end,
      "'shuffle' to 'DataLoader' %(cannot be used with IterableDataset: a stream has no positions")
    assert.has_error_like(function()
      data.DataLoader {counting(3), sampler = data.SequentialSampler(3)}
    end, "'sampler' to 'DataLoader'")
    assert.has_error_like(function() data.DataLoader {data.IterableDataset()}:iter() end,
      "has no method ':iter%(%)'")
    assert.has_error_like(function()
      data.DataLoader {data.IterableDataset(function() return 3 end)}:iter()
    end, "returned 3; a function")
  end)

  it("follows another stream in a ChainDataset", function()
    local chain = data.ChainDataset {counting(2), counting(0), counting(3)}
    assert.same({{1, 2, 1, 2}, {3}}, batches(data.DataLoader {chain, batch_size = 4}))
    assert.has_error_like(function() data.ChainDataset {Slow()} end, "not an IterableDataset")
    local lines = data.IterableDataset(function() return ipairs {"a", "b"} end)
    assert.same({{1, 2}}, batches(data.DataLoader {lines, batch_size = 2}))
  end)
end)

describe("stacked datasets", function()
  it("return samples of several components, or tables", function()
    local x, y = data.StackDataset(moth.arange(4), Slow().get and moth.arange(4) * 2):get(3)
    assert.same({2, 4}, {tonumber(x:item()), tonumber(y:item())})
    local named = data.StackDataset {image = moth.arange(4), label = moth.arange(4) * 2}
    local batch = data.DataLoader {named, batch_size = 2}:iter()()
    assert.same({{0, 1}, {0, 2}}, {batch.image:tolist(), batch.label:tolist()})
    assert.has_error_like(function() data.StackDataset(moth.ones(3), moth.ones(4)) end,
      "differ in length")
  end)
end)

describe("a WeightedRandomSampler", function()
  it("draws by weight", function()
    local sampler = data.WeightedRandomSampler({0, 1, 3, 0}, 4000)
    local counts = {0, 0, 0, 0}
    for i in sampler:iter() do counts[tonumber(i)] = counts[tonumber(i)] + 1 end
    assert.same({0, 0}, {counts[1], counts[4]})
    assert.close(0.75, counts[3] / 4000, 0.05)
    assert.equal(4000, sampler:len())
  end)

  it("draws each position once without replacement, and repeats with a seed", function()
    local function draw(seed)
      return data.WeightedRandomSampler({5, 0, 1, 1}, 3, false, moth.Generator {seed = seed})
        :positions():tolist()
    end
    local all = draw(1)
    assert.same(all, draw(1))
    table.sort(all)
    assert.same({1, 3, 4}, all)
  end)

  it("raises for weights from which it cannot draw", function()
    local S = data.WeightedRandomSampler
    assert.has_error_like(function() S({1, -1}, 2) end, "finite numbers from 0 on are needed")
    assert.has_error_like(function() S({1, 0 / 0}, 2) end, "finite numbers from 0 on are needed")
    assert.has_error_like(function() S({0, 0}, 2) end, "are all 0")
    assert.has_error_like(function() S({1, 0}, 2, false) end, "2 samples cannot be drawn")
  end)
end)

describe("a full checkpoint", function()
  -- Trains for two epochs with dropout; saves in the middle of the second epoch if requested.
  local function train(path, save_at, resume)
    moth.manual_seed(resume and 1234 or 3)
    local net = nn.Sequential {nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1)}
    local opt = moth.optim.AdamW(net:parameters(), {lr = 0.05, amsgrad = true})
    local schedule = moth.optim.lr_scheduler.OneCycleLR(opt, {max_lr = 0.1, total_steps = 12})
    local x = moth.arange(60):float():view(20, 3):sin()
    local loader = data.DataLoader {data.TensorDataset(x, x:sum(2, {keepdim = true})),
                                    batch_size = 4, shuffle = true}
    local first, step = 1, 0
    if resume then
      local saved = moth.load(path)
      net:load_state_dict(saved.model)
      opt:load_state_dict(saved.optimizer)
      schedule:load_state_dict(saved.schedule)
      loader:load_state_dict(saved.loader)
      moth.set_rng_state(saved.random)
      first, step = saved.epoch, saved.step
    end
    for epoch = first, 2 do
      for input, target in loader do
        opt:zero_grad()
        moth.nn.functional.mse_loss(net(input), target):backward()
        opt:step()
        schedule:step()
        step = step + 1
        if step == save_at then
          moth.save({model = net:state_dict(), optimizer = opt:state_dict(), step = step,
                     schedule = schedule:state_dict(), loader = loader:state_dict(),
                     random = moth.get_rng_state(), epoch = epoch}, path)
        end
      end
    end
    return nn.utils.parameters_to_vector(net:parameters()):tolist(), schedule:get_last_lr()
  end

  it("from the middle of an epoch continues bit for bit", function()
    local path = os.tmpname()
    for _, at in ipairs {3, 5, 7} do
      local wanted, rate = train(path, at)
      local got, its_rate = train(path, nil, true)
      assert.same(wanted, got)
      assert.same(rate, its_rate)
    end
    os.remove(path)
  end)
end)
