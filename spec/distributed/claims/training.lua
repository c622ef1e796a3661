-- Claims about training by several processes: see spec/support/ranks.lua.

local moth = require "moth"
local claims = require "spec.support.claims"
local fails = require("spec.support.refusals").fails
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local dist = moth.distributed
local DDP = nn.parallel.DistributedDataParallel

local compare = claims.compare

local N = 24 -- samples of all processes

local function mlp()
  return nn.Sequential(nn.Linear(6, 600), nn.Tanh(), nn.Linear(600, 600), nn.Tanh(),
    nn.Linear(600, 3))
end

local function sgd(params) return optim.SGD(params, {lr = 0.1, momentum = 0.9}) end

return {
  {"the loss of n processes is that of one with the same batch", function(rank, n)
    moth.manual_seed(2)
    local x = moth.randn(N, 6)
    for _, options in ipairs {{bucket_cap_mb = 25}, {gradient_as_bucket_view = true},
                              {bucket_cap_mb = 0.001}} do
      local worst = compare(rank, n, mlp, function(net) return DDP(net, options) end, x, sgd)
      assert(worst < 1e-5, worst)
    end
  end},
  {"a unit is reduced while the backward pass still runs", function(rank)
    local net = DDP(mlp(), {bucket_cap_mb = 0.001})
    local started
    local h = net.module[1](moth.randn(2, 6) + rank)
    h:register_hook(function() started = net._next - 1 end)
    net.module[5](net.module[4](net.module[3](net.module[2](h)))):sum():backward()
    assert(started >= 3, started) -- the units of the second and the third layer
  end},
  {"a captured step reduces the gradients in each replay", function(rank, n)
    local function make(kind)
      moth.manual_seed(4)
      local layers = {nn.Conv2d(3, 4, 3), nn.Identity(), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)}
      if kind ~= "plain" then layers[2] = nn.BatchNorm2d(4) end
      local net = nn.Sequential(unpack(layers))
      if kind == "sync" then net = nn.SyncBatchNorm.convert_sync_batchnorm(net) end
      return DDP(net, {gradient_as_bucket_view = kind == "plain"})
    end
    for _, kind in ipairs {"plain", "buffers", "sync"} do
      local nets, losses = {make(kind), make(kind)}, {{}, {}}
      for i, net in ipairs(nets) do
        local optimizer = sgd(net:parameters())
        local function step(x, y)
          optimizer:zero_grad()
          local loss = F.cross_entropy(net(x), y)
          loss:backward()
          optimizer:step()
          return loss
        end
        if i == 2 then step = moth.capture(step) end
        for k = 1, 5 do
          moth.manual_seed(10 * k + rank)
          losses[i][k] = step(moth.randn(4, 3, 6, 6), moth.randint(1, 4, {4})):item()
        end
      end
      for k = 1, 5 do assert(losses[1][k] == losses[2][k], kind .. " " .. k) end
      local function vector(net) return nn.utils.parameters_to_vector(net:parameters()):detach() end
      assert(moth.equal(vector(nets[1]), vector(nets[2])), kind)
      local all = {}
      dist.all_gather_object(all, vector(nets[2]))
      for i = 2, n do assert(moth.equal(all[i], all[1]), kind) end
    end
  end},
  {"nets that differ between the processes are refused in all of them", function(rank, n)
    local last = n - 1
    local function refused(net, here, there)
      local ok, problem = pcall(DDP, net)
      local text = ("bad argument 'module' to 'DistributedDataParallel' (the nets of the processes "
        .. "differ: rank %d has %s, rank 0 has %s)"):format(last, here, there)
      assert(not ok and problem:find(text, 1, true), problem)
    end
    refused(nn.Linear(2, rank == last and 4 or 3), "weight float32 (4, 2)", "weight float32 (3, 2)")
    refused(nn.Linear(2, 3, {bias = rank < last}), "nothing more", "bias float32 (3)")
    refused(nn.Linear(2, 3, {bias = rank == last}), "bias float32 (3)", "nothing more")
    local half, frozen = nn.Linear(2, 3), nn.Linear(2, 3)
    if rank == last then half:bfloat16() end
    refused(half, "weight bfloat16 (3, 2)", "weight float32 (3, 2)")
    if rank == last then frozen.weight.requires_grad = false end
    refused(frozen, "weight float32 (3, 2) without gradient", "weight float32 (3, 2)")
    refused(nn.BatchNorm1d(3, {track_running_stats = rank == last}), "running_mean float32 (3)",
      "nothing more")
    local net = DDP(nn.Linear(2, 3)) -- the processes are still in step
    net(moth.ones(4, 2)):sum():backward()
    assert(net.module.weight.grad:sum():item() == 24)
  end},
  {"a second run has the same bits", function(rank, n)
    local function run()
      moth.manual_seed(3)
      local net, x = DDP(mlp()), moth.randn(8, 6)
      local optimizer = sgd(net:parameters())
      for _ = 1, 3 do
        optimizer:zero_grad()
        net(x + rank):square():mean():backward()
        optimizer:step()
      end
      return nn.utils.parameters_to_vector(net:parameters()):detach()
    end
    assert(moth.equal(run(), run()) and n > 1)
  end},
  {"SyncBatchNorm has the statistics of all processes", function(rank, n)
    moth.manual_seed(2)
    local x = moth.randn(N, 3, 4, 4)
    local nets = {}
    local function make()
      local net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Linear(16, 3))
      nets[#nets + 1] = net
      return net
    end
    local worst = compare(rank, n, make, function(net)
      return DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net))
    end, x, sgd)
    assert(worst < 1e-5, worst)
    assert(moth.allclose(nets[1][2].running_var, nets[2][2].running_var, 1e-4, 1e-6))
    assert(moth.allclose(nets[1][2].running_mean, nets[2][2].running_mean, 1e-4, 1e-6))
  end},
  {"SyncBatchNorm needs neither weights nor running statistics", function(rank, n)
    moth.manual_seed(2)
    local x, part = moth.randn(N, 3, 4), N / n
    local mine = x:narrow(1, 1 + rank * part, part)
    for _, options in ipairs {{affine = false}, {track_running_stats = false},
        {affine = false, track_running_stats = false}} do
      local whole, sync = nn.BatchNorm1d(3, options), nn.SyncBatchNorm(3, options)
      local want = whole(x):narrow(1, 1 + rank * part, part)
      assert(moth.allclose(want, sync(mine), 1e-4, 1e-5))
      if options.track_running_stats ~= false then
        assert(moth.allclose(whole.running_var, sync.running_var, 1e-4, 1e-6))
      end
      whole:eval()
      sync:eval()
      local there = options.track_running_stats == false and mine or x
      if there == x then
        assert(moth.allclose(whole(x):narrow(1, 1 + rank * part, part), sync(mine), 1e-4, 1e-5))
      end
    end
  end},
  {"ZeroRedundancyOptimizer steps as the whole optimizer", function(rank, n)
    moth.manual_seed(2)
    local made = {}
    local worst = compare(rank, n, mlp, DDP, moth.randn(N, 6), function(params)
      local first = #made == 0
      made[#made + 1] = first and optim.Adam(params, {lr = 1e-3})
        or dist.optim.ZeroRedundancyOptimizer(params, optim.Adam, {lr = 1e-3})
      return made[#made]
    end)
    assert(worst < 1e-5, worst)
    local state = made[2]:state_dict()
    local want = made[1]:state_dict()
    for number, values in pairs(want.state) do
      assert(moth.allclose(state.state[number].exp_avg, values.exp_avg, 1e-3, 1e-6))
      assert(state.state[number].step == values.step)
    end
    assert(#state.param_groups[1].params == #want.param_groups[1].params and n > 1)
    made[1]:load_state_dict(state)
    made[2]:load_state_dict(want)
  end},
  {"each step may run in a scope", function()
    for _, as_view in ipairs {false, true} do
      local net = DDP(mlp(), {gradient_as_bucket_view = as_view})
      local optimizer = sgd(net:parameters())
      for _ = 1, 4 do
        moth.scope(function()
          optimizer:zero_grad()
          net(moth.randn(2, 6)):square():mean():backward()
          optimizer:step()
        end)
      end
    end
  end},
  {"PeriodicModelAverager averages the parameters of all processes now and then", function(rank, n)
    local averagers = dist.algorithms.model_averaging.averagers
    local net = nn.Sequential(nn.Linear(3, 2), nn.Linear(600, 600))
    net[1].bias:requires_grad_(false)
    local averager = averagers.PeriodicModelAverager(2, {warmup_steps = 1})
    local mean = (n - 1) / 2
    for step = 0, 4 do
      moth.no_grad(function()
        for _, p in ipairs(net:parameters()) do p:fill_(rank) end
      end)
      averager:average_parameters(step < 3 and net:parameters() or {{params = net:parameters()}})
      local want = step % 2 == 1 and mean or rank
      assert(moth.equal(net[1].weight, moth.full({2, 3}, want)), step)
      assert(moth.equal(net[2].weight, moth.full({600, 600}, want)), step)
      assert(moth.equal(net[1].bias, moth.full({2}, rank)), "a frozen parameter has changed")
    end
    local p = {moth.full({3}, rank, {dtype = moth.float64}), moth.full({2, 3}, rank):t(),
               moth.full({4}, rank, {dtype = moth.bfloat16})}
    dist.algorithms.model_averaging.utils.average_parameters(p)
    for _, x in ipairs(p) do assert(x:eq(mean):all():item()) end
    local ok, problem = pcall(averagers.PeriodicModelAverager, 0)
    assert(not ok and problem:find "'period' to 'PeriodicModelAverager'", problem)
    ok, problem = pcall(averager.average_parameters, averager, {1})
    assert(not ok and problem:find "'params' to 'average_parameters'", problem)
  end},
  {"gradients accumulate without messages in no_sync", function(rank, n)
    local net = DDP(nn.Linear(2, 1))
    local x = moth.full({1, 2}, rank + 1)
    net:no_sync(function() net(x):sum():backward() end)
    assert(moth.equal(net.module.weight.grad, x))
    net(x):sum():backward()
    assert(moth.equal(net.module.weight.grad, moth.full({1, 2}, n + 1)))
  end},
  {"a parameter that no pass uses raises, or is left out on request", function(rank)
    local Net = nn.class("Net", nn.Module)
    function Net:init()
      for _, name in ipairs {"a", "b", "c"} do self[name] = nn.Linear(2, 2) end
    end
    function Net:forward(x, name) return self[name](x) end
    local net = DDP(Net(), {find_unused_parameters = true})
    net(moth.randn(4, 2), rank == 0 and "a" or "b"):sum():backward()
    assert(net.module.a.weight.grad ~= nil and net.module.b.weight.grad ~= nil)
    assert(net.module.c.weight.grad == nil)
    net = DDP(Net())
    local ok, problem = pcall(function() net(moth.randn(4, 2), "a"):sum():backward() end)
    assert(not ok and tostring(problem):find "no gradient of b.weight", problem)
  end},
  {"after the first pass the units follow the order in which gradients arrive", function(rank)
    local Net = nn.class("Net", nn.Module)
    function Net:init()
      for _, name in ipairs {"late", "early"} do self[name] = nn.Linear(600, 600) end
    end
    function Net:forward(x) return self.late(self.early(x)) end
    local net, started = DDP(Net()), {}
    local alone = Net()
    alone:load_state_dict(net.module:state_dict())
    for k = 1, 3 do
      local x = moth.randn(2, 600)
      local h = net.module.early(x + rank)
      h:register_hook(function() started[k] = net._next > 1 end)
      net.module.late(h):sum():backward()
      alone(x + rank):sum():backward()
    end
    assert(not started[1] and started[2] and started[3])
    for i, p in ipairs(alone:parameters()) do
      dist.all_reduce(p.grad, "mean")
      assert(moth.allclose(p.grad, net:parameters()[i].grad, 1e-4, 1e-4))
    end
  end},
  {"a static graph leaves out what the first pass left out", function(rank)
    local Net = nn.class("Net", nn.Module)
    function Net:init()
      for _, name in ipairs {"a", "b", "c"} do self[name] = nn.Linear(2, 2) end
    end
    function Net:forward(x, name) return self[name](x) end
    local net = DDP(Net(), {static_graph = true})
    for _ = 1, 2 do net(moth.randn(4, 2), "a"):sum():backward() end
    assert(net.module.a.weight.grad ~= nil and net.module.b.weight.grad == nil)
    local ok, problem = pcall(function() net(moth.randn(4, 2), "b"):sum():backward() end)
    assert(not ok and tostring(problem):find "first pass left it out", problem)
    assert(rank >= 0)
  end},
  {"the processes begin with the parameters and buffers of rank 0", function(rank, n)
    moth.manual_seed(rank)
    local net = DDP(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
    local all = {}
    dist.all_gather_object(all, net.module[1].weight:detach())
    for i = 2, n do assert(moth.equal(all[i], all[1])) end
    assert(net:state_dict()["module.0.weight"] ~= nil)
    fails("names of a DistributedDataParallel: save net.module:state_dict()",
      net.module.load_state_dict, net.module, net:state_dict())
    fails("this net is a DistributedDataParallel: load into net.module", net.load_state_dict, net,
      net.module:state_dict())
  end},
  {"a wrong argument of a wrapper is named", function()
    fails("bad argument 'process_group' to 'DistributedDataParallel' (a process group is needed, "
      .. "got {0})", DDP, nn.Linear(2, 2), {0})
    fails("bad argument 'process_group' to 'ZeroRedundancyOptimizer'",
      dist.optim.ZeroRedundancyOptimizer, {moth.ones(1)}, optim.SGD, {process_group = 0})
    fails("bad argument 'f' to 'no_sync' (a function is needed, got {1})",
      function() return DDP(nn.Linear(2, 2)):no_sync {1} end)
    fails("bad argument 'group' to 'all_reduce'", dist.all_reduce, moth.ones(1), {group = 0})
  end},
  {"DistributedSampler divides each epoch among the processes", function(_, n)
    local sampler = moth.data.DistributedSampler(10)
    local orders = {}
    for epoch = 0, 1 do
      sampler:set_epoch(epoch)
      local all = {}
      dist.all_gather_object(all, sampler:positions())
      local seen, count = {}, 0
      for _, positions in ipairs(all) do
        for _, at in ipairs(positions:tolist()) do seen[tonumber(at)], count = true, count + 1 end
      end
      assert(#seen == 10 and count == math.ceil(10 / n) * n)
      orders[#orders + 1] = moth.cat(all)
    end
    assert(not moth.equal(orders[1], orders[2]))
  end},
}
