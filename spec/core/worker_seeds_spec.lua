-- Random numbers of a DataLoader's workers: their seeds, and resumed passes.

local moth = require "moth"
local answers = require "spec.support.answers"
local sets = require "spec.support.sets"

local data = moth.data
local batches, plain = answers.batches, answers.plain

describe("a worker", function()
  it("draws random numbers that depend only on the seed and the batch", function()
    local function drawn(seed, n)
      moth.manual_seed(seed)
      local loader = data.DataLoader(sets.Noise(12), {batch_size = 2, num_workers = n})
      return batches(loader), batches(loader)
    end
    local first, second = drawn(1, 1)
    assert.same({first, second}, {drawn(1, 3)})
    assert.are_not.same(first, second)
    assert.are_not.same(first, (drawn(2, 3)))
    assert.are_not.same(first[1], first[2])
  end)

  it("draws other numbers in each loader, pass and generator, the same after seeding", function()
    local function drawn(generator)
      return batches(data.DataLoader(sets.Noise(4), {num_workers = 1, generator = generator}))
    end
    moth.manual_seed(3)
    local first, second = drawn(), drawn()
    assert.are_not.same(first, second)
    moth.manual_seed(3)
    assert.same({first, second}, {drawn(), drawn()})

    local g = moth.Generator {seed = 5}
    local default = moth.get_rng_state():tolist()
    local own, next_own = drawn(g), drawn(g)
    assert.are_not.same(own, next_own)
    assert.are_not.same(own, drawn(moth.Generator {seed = 6}))
    assert.same(own, drawn(moth.Generator {seed = 5}))
    assert.same(default, moth.get_rng_state():tolist())

    local loader = data.DataLoader(sets.Noise(4), {num_workers = 1})
    moth.manual_seed(3)
    assert.same({first, second}, {batches(loader), batches(loader)})
    moth.manual_seed(3)
    assert.same(first, batches(loader))
    local sampler = data.RandomSampler(4, false, nil, moth.Generator {seed = 1})
    local function sampled(generator)
      sampler.generator:manual_seed(1)
      return batches(data.DataLoader(sets.Noise(4),
        {num_workers = 1, sampler = sampler, generator = generator}))
    end
    assert.are_not.same(sampled(), sampled())
    assert.same(sampled(moth.Generator {seed = 2}), sampled(moth.Generator {seed = 2}))
  end)

  it("draws other numbers in every pass of a stream, too", function()
    local function drawn()
      return batches(data.DataLoader(sets.NoiseStream(3), {num_workers = 1}))
    end
    moth.manual_seed(3)
    local first, second = drawn(), drawn()
    assert.are_not.same(first, second)
    moth.manual_seed(3)
    assert.same({first, second}, {drawn(), drawn()})
  end)
end)

describe("a pass with workers resumed in the middle", function()
  it("continues with the same batches and random numbers", function()
    local function make(n)
      return data.DataLoader(data.StackDataset(sets.Squares(10), sets.Noise(10)),
        {batch_size = 3, shuffle = true, num_workers = n})
    end
    moth.manual_seed(7)
    local loader, state, random = make(2), nil, nil
    batches(loader)
    local step, rest = loader:iter(), {}
    for i = 1, 4 do
      local x, y = step()
      if i == 2 then
        moth.rand(3) -- the model's random numbers
        state, random = loader:state_dict(), moth.get_rng_state()
      elseif i > 2 then
        rest[#rest + 1] = plain {x, y}
      end
    end
    assert.is_nil(step())
    local after = batches(loader)
    loader = make(1)
    loader:load_state_dict(state)
    moth.set_rng_state(random)
    assert.same(rest, batches(loader))
    assert.same(after, batches(loader))
  end)

  it("does so for its own order, for a stream, and after other random draws", function()
    for _, set in ipairs {sets.Noise(6), sets.NoiseStream(6)} do
      local options = {num_workers = 1, generator = moth.Generator {seed = 4}}
      local loader = data.DataLoader(set, options)
      batches(loader)
      local step = loader:iter()
      step()
      local state, rest = loader:state_dict(), {}
      for _ = 2, 6 do rest[#rest + 1] = plain {step()} end
      moth.manual_seed(99)
      options.generator = moth.Generator {seed = 8}
      loader = data.DataLoader(set, options)
      loader:load_state_dict(state)
      assert.same(state, loader:state_dict())
      assert.same(rest, batches(loader))
      assert.has_error_like(function()
        loader:load_state_dict {batch = 1, random = {1, 2}, seed = "x"}
      end, "'state_dict'.*the result of a DataLoader's state_dict")
    end
  end)
end)
