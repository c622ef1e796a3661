-- Claims about processes with different numbers of batches: see spec/support/ranks.lua.

local moth = require "moth"
local nn, optim, dist = moth.nn, moth.optim, moth.distributed
local DDP = nn.parallel.DistributedDataParallel

-- The weights are equal in all processes.
local function same_nets(net)
  local all = {}
  dist.all_gather_object(all, nn.utils.parameters_to_vector(net:parameters()):detach())
  for i = 2, #all do assert(moth.equal(all[i], all[1]), "the weights of the processes differ") end
end

local function net_of() return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)) end

-- Trains with rank + 1 batches in a process. Returns the number of batches.
local function train(net, rank, options)
  moth.manual_seed(10 + rank)
  local optimizer, steps = optim.SGD(net:parameters(), {lr = 0.1}), 0
  net:join(function()
    for _ = 1, rank + 1 do
      optimizer:zero_grad()
      net(moth.randn(5, 3)):square():mean():backward()
      optimizer:step()
      steps = steps + 1
    end
  end, options)
  return steps
end

return {
  {"a process that has run out of batches takes part in the reductions", function(rank, n)
    for _, options in ipairs {{bucket_cap_mb = 1}, {find_unused_parameters = true},
                              {bucket_cap_mb = 0.0001}, {gradient_as_bucket_view = true}} do
      local net = DDP(net_of(), options)
      assert(train(net, rank) == rank + 1)
      same_nets(net)
    end
    dist.barrier()
    return n
  end},
  {"the result of the loop is returned", function(rank)
    local net = DDP(net_of())
    local a, b = net:join(function() return rank, "x" end)
    assert(a == rank and b == "x")
    assert(net:join(function() return 1 end, {enable = false}) == 1)
  end},
  {"gradients are divided by the number of all processes, or of those with a batch",
   function(rank, n)
    for _, by_all in ipairs {true, false} do
      local net = DDP(nn.Linear(1, 1, {bias = false}))
      local last
      net:join(function()
        for _ = 1, rank + 1 do
          net.module.weight.grad = nil
          net(moth.full({1, 1}, 6)):sum():backward()
          last = net.module.weight.grad:item()
        end
      end, {divide_by_initial_world_size = by_all})
      -- in the last pass of rank r, n - r processes have a batch
      local want = by_all and 6 * (n - rank) / n or 6
      assert(math.abs(last - want) < 1e-5, last)
    end
  end},
  {"buffers come from a process that has a batch", function(rank)
    local net = DDP(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
    train(net, rank)
    same_nets(net)
    local all = {}
    dist.all_gather_object(all, net.module[2].num_batches_tracked:item())
    for i = 1, #all do assert(all[i] == #all, tostring(all[i])) end
  end},
  {"accumulated gradients are not reduced in join either", function(rank)
    local net = DDP(nn.Linear(2, 1))
    local optimizer = optim.SGD(net:parameters(), {lr = 0.1})
    net:join(function()
      for _ = 1, 1 + rank do
        optimizer:zero_grad()
        net:no_sync(function() net(moth.ones(1, 2)):sum():backward() end)
        net(moth.ones(1, 2)):sum():backward()
        optimizer:step()
      end
    end)
    same_nets(net)
  end},
  {"throw_on_early_termination raises in all processes", function(rank)
    local net = DDP(net_of())
    local ok, problem = pcall(train, net, rank, {throw_on_early_termination = true})
    assert(not ok and tostring(problem):find "have no more batches", problem)
    train(net, 1)
    same_nets(net)
  end},
}
