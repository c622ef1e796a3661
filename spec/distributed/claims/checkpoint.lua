-- Claims about moth.distributed.checkpoint: see spec/support/ranks.lua.

local moth = require "moth"
local claims = require "spec.support.claims"
local machine = require "moth.base.machine"
local nn, F, optim, dist = moth.nn, moth.nn.functional, moth.optim, moth.distributed
local checkpoint = dist.checkpoint
local DDP = nn.parallel.DistributedDataParallel
local in_folder = claims.in_folder

local function files_in(folder)
  local names = {}
  for _, entry in ipairs(machine.entries(folder)) do
    if entry.name:find "safetensors" then names[#names + 1] = entry.name end
  end
  table.sort(names)
  return names
end

local function raises(pattern, f, ...)
  local ok, problem = pcall(f, ...)
  if ok or not tostring(problem):find(pattern) then
    error(("expected an error with '%s', got %s"):format(pattern, tostring(problem)), 2)
  end
end

-- A net and an optimizer after three steps of all processes.
local function trained(rank, make)
  moth.manual_seed(4)
  local net = DDP(nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(),
    nn.Linear(30, 3)))
  local optimizer = make(net:parameters())
  local function step(seed)
    moth.manual_seed(seed + rank)
    optimizer:zero_grad()
    F.cross_entropy(net(moth.randn(8, 6)), moth.randint(1, 4, {8})):backward()
    optimizer:step()
  end
  for i = 1, 3 do step(10 * i) end
  return net, optimizer, step
end

local function zero(params)
  return dist.optim.ZeroRedundancyOptimizer(params, optim.Adam, {lr = 0.01})
end

local function weights(net) return nn.utils.parameters_to_vector(net:parameters()):detach() end

return {
  {"tables, numbers, strings and tensors come back", function(rank, n)
    in_folder(rank, function(folder)
      local state = {epoch = 3, ["a/b"] = {1.5, "x\255", {deep = true}}, none = {},
        big = 2LL ^ 40, model = {["fc.weight"] = moth.arange(6):view(2, 3), bias = moth.ones(2)},
        own = {["rank" .. rank] = moth.full({2}, rank)}, [7] = moth.tensor(2.5)}
      checkpoint.save(state, folder)
      local all = checkpoint.load(folder)
      assert(all.epoch == 3 and all["a/b"][1] == 1.5 and all["a/b"][2] == "x\255")
      assert(all["a/b"][3].deep == true and next(all.none) == nil and all.big == 2LL ^ 40)
      assert(moth.equal(all.model["fc.weight"], state.model["fc.weight"]))
      assert(all[7]:item() == 2.5)
      for r = 0, n - 1 do assert(moth.equal(all.own["rank" .. r], moth.full({2}, r))) end
      local mine = {epoch = 0, model = {bias = moth.zeros(2)}, own = {}}
      local bias = mine.model.bias
      checkpoint.load(mine, folder)
      assert(mine.epoch == 3 and bias[1]:item() == 1 and mine.own.rank1[1]:item() == 1)
      local other = moth.ones(1)
      raises("has no 'model/biass'; did you mean 'model/bias'?", checkpoint.load,
        {model = {biass = other}}, folder)
      raises("has no 'modell'; did you mean 'model'?", checkpoint.load, {modell = other}, folder)
      raises("has no 'weights'; it has 7, a/b, big, epoch, model, none, own", checkpoint.load,
        {weights = other}, folder)
      raises("has the shape", checkpoint.load, {model = {bias = moth.ones(3)}}, folder)
    end)
  end},
  {"each process writes a part of the tensors that all have", function(rank, n)
    in_folder(rank, function(folder)
      local state = {}
      for i = 1, 2 * n do state["w" .. i] = moth.full({1000}, i) end
      checkpoint.save(state, folder)
      assert(#files_in(folder) == n)
      local file = moth.open(("%s/save_1_rank_%d.safetensors"):format(folder, rank))
      assert(#file:names() == 2, #file:names())
      local all = checkpoint.load(folder)
      for i = 1, 2 * n do assert(all["w" .. i][1000]:item() == i) end
    end)
  end},
  {"a new save replaces the files of the last one", function(rank, n)
    in_folder(rank, function(folder)
      for i = 1, 3 do checkpoint.save({["r" .. rank] = moth.full({3}, i)}, folder) end
      assert(#files_in(folder) == n and files_in(folder)[1] == "save_3_rank_0.safetensors")
      assert(checkpoint.load(folder).r0[1]:item() == 3)
    end)
  end},
  {"a save that ends early leaves the last state", function(rank)
    in_folder(rank, function(folder)
      checkpoint.save({["r" .. rank] = moth.ones(3)}, folder)
      dist.barrier()
      local save = moth.save
      if rank == 1 then moth.save = function() error "no space on the disk" end end
      local ok, problem = pcall(checkpoint.save, {["r" .. rank] = moth.zeros(3)}, folder)
      moth.save = save
      assert(not ok and tostring(problem):find "no space on the disk", problem)
      assert(checkpoint.load(folder)["r" .. rank][1]:item() == 1)
      checkpoint.save({["r" .. rank] = moth.full({3}, 5)}, folder)
      assert(checkpoint.load(folder)["r" .. rank][1]:item() == 5)
    end)
  end},
  {"slices become whole tensors and other slices", function(rank, n)
    in_folder(rank, function(folder)
      local whole = moth.arange(12 * n * 5):float():view(12 * n, 5)
      local part = whole:narrow(1, 12 * rank + 1, 12)
      checkpoint.save({w = checkpoint.Slice(part, {12 * n, 5}, {12 * rank + 1, 1})}, folder)
      assert(moth.equal(checkpoint.load(folder).w, whole))
      local state = {w = moth.zeros(12 * n, 5)}
      checkpoint.load(state, folder)
      assert(moth.equal(state.w, whole))
      local x = moth.zeros(7, 2) -- across two parts
      checkpoint.load({w = checkpoint.Slice(x, {12 * n, 5}, {9, 3})}, folder)
      assert(moth.equal(x, whole:narrow(1, 9, 7):narrow(2, 3, 2)))
      raises("elements 7 to 9 of 8", checkpoint.Slice, moth.ones(3), {8}, {7})
    end)
    in_folder(rank, function(folder)
      checkpoint.save({w = checkpoint.Slice(moth.ones(2), {4 * n}, {2 * rank + 1})}, folder)
      raises("w is incomplete", checkpoint.load, folder)
    end)
  end},
  {"values that differ between processes are refused", function(rank)
    in_folder(rank, function(folder)
      raises("differs between processes", checkpoint.save, {a = {rank = rank}}, folder)
      raises("a tensor", checkpoint.save, {a = moth.ones(2 + rank)}, folder)
      raises("is a function", checkpoint.save, {f = rank == 0 and print or 1}, folder)
    end)
  end},
  {"the state of a ZeroRedundancyOptimizer is saved without gathering", function(rank, n)
    in_folder(rank, function(folder)
      local net, optimizer, step = trained(rank, zero)
      checkpoint.save({net = net.module, optimizer = optimizer}, folder)
      local index = io.open(folder .. "/index.json"):read "*a"
      assert(index:find("optimizer/state/0/exp_avg", 1, true))
      for _, name in ipairs(files_in(folder)) do -- no file has the states of all parameters
        local count = 0
        for _, key in ipairs(moth.open(folder .. "/" .. name):names()) do
          if key:find "exp_avg$" then count = count + 1 end
        end
        assert(count < 6, count)
      end
      local other, again, other_step = trained(rank + 3, zero)
      checkpoint.load({net = other.module, optimizer = again}, folder)
      assert(moth.equal(weights(net), weights(other)))
      step(90)
      other_step(90 - 3)
      assert(moth.equal(weights(net), weights(other)))
      -- one process reads it into the optimizer that is not divided
      local alone = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(),
        nn.Linear(30, 3))
      local adam = optim.Adam(alone:parameters(), {lr = 0.5})
      checkpoint.load({net = alone, optimizer = adam}, folder)
      assert(adam.param_groups[1].lr == 0.01 and n > 1)
      assert(adam:state_dict().state["5"].step == 3)
    end)
  end},
  {"another number of processes reads it", function(rank, n)
    in_folder(rank, function(folder)
      local net, optimizer = trained(rank, zero)
      checkpoint.save({net = net.module, optimizer = optimizer, seed = n}, folder)
      local group = dist.new_group {0, 1} -- two processes go on
      if rank < 2 then
        local module = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(),
          nn.Linear(30, 3))
        local other = dist.optim.ZeroRedundancyOptimizer(module:parameters(), optim.Adam,
          {lr = 1, process_group = group})
        local state = checkpoint.load({net = module, optimizer = other, seed = 0}, folder)
        assert(state.seed == n and moth.equal(weights(net), weights(module)))
        checkpoint.save({net = module, optimizer = other, seed = n}, folder .. "/two", group)
        local whole = checkpoint.load(folder .. "/two").optimizer
        assert(whole.state["5"].step == 3 and whole.param_groups[1].lr == 0.01)
      end
      dist.barrier()
      local whole = optimizer:state_dict()
      local two = checkpoint.load(folder .. "/two").optimizer
      for number, values in pairs(whole.state) do
        assert(moth.equal(values.exp_avg_sq, two.state[number].exp_avg_sq))
      end
    end)
  end},
  {"the generators of all processes are saved", function(rank)
    in_folder(rank, function(folder)
      moth.manual_seed(5 + rank)
      local key = "generator" .. rank
      checkpoint.save({[key] = moth.get_rng_state()}, folder)
      local want = moth.rand(4)
      local state = checkpoint.load({[key] = moth.get_rng_state()}, folder)
      moth.set_rng_state(state[key])
      assert(moth.equal(moth.rand(4), want))
    end)
  end},
}
