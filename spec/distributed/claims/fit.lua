-- Claims about moth.fit in several processes: see spec/support/ranks.lua.

local moth = require "moth"
local claims = require "spec.support.claims"
local nn, F, optim, data, dist = moth.nn, moth.nn.functional, moth.optim, moth.data,
  moth.distributed
local DDP = nn.parallel.DistributedDataParallel
local in_folder = claims.in_folder

local function all_of(value)
  local list = {}
  dist.all_gather_object(list, value)
  return list
end

local function vector(net) return nn.utils.parameters_to_vector(net:parameters()):detach() end

local function same_everywhere(net, history)
  local columns = history:state_dict()
  columns.seconds = nil
  local all = all_of {vector(net), columns}
  for r = 2, #all do
    assert(moth.equal(all[r][1], all[1][1]), "the weights differ")
    for name, column in pairs(all[1][2]) do
      for i, value in ipairs(column) do
        local other = all[r][2][name][i]
        assert(other == value or other ~= other and value ~= value, name)
      end
    end
  end
end

local function model(dropout)
  return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(dropout or 0), nn.Linear(16, 3))
end

local function set_of(n)
  moth.manual_seed(2)
  local x = moth.randn(n, 6)
  return data.TensorDataset(x, x:narrow(2, 1, 3):argmax(2))
end

local function accuracy() return moth.metrics.MulticlassAccuracy {3, average = "micro"} end
local function share(output, target) return output:argmax(2):eq(target):float():mean() end

-- Trains with everything that has a state.
local function train(rank, folder, options)
  local set = set_of(96)
  moth.manual_seed(7)
  local net = DDP(model(0.3))
  local optimizer = options.zero
    and dist.optim.ZeroRedundancyOptimizer(net:parameters(), optim.AdamW, {lr = 0.02})
    or optim.AdamW(net:parameters(), {lr = 0.02})
  moth.manual_seed(7 + rank)
  local sampler = data.DistributedSampler(set)
  local seen = {}
  local history = moth.fit {net, data.DataLoader {set, batch_size = 4, sampler = sampler},
    loss = F.cross_entropy, optimizer = optimizer, epochs = options.epochs or 3,
    val_loader = data.DataLoader {set, batch_size = 10,
      sampler = data.DistributedSampler(set, {shuffle = false, even = false})},
    metrics = {acc = accuracy(), share = share}, accumulate_grad_batches = 2, clip_grad_norm = 1,
    callbacks = {
      moth.callbacks.ModelCheckpoint {folder, save_top_k = 2},
      moth.callbacks.EarlyStopping {patience = 3},
      {on_batch_end = function(_, run)
        seen[#seen + 1] = run.step
        if options.stop and rank == dist.get_world_size() - 1 and run.step == options.stop then
          io.popen "kill -INT $PPID":close() -- os.execute would ignore it
        end
      end},
    },
    resume = true, progress = false}
  return net, history, seen, optimizer
end

return {
  {"the values of an epoch are those of one process with all samples", function(_, n)
    local set = set_of(48)
    moth.manual_seed(1)
    local alone = model()
    moth.manual_seed(1)
    local net = DDP(model())
    local function run(model_, size, options)
      local loader = data.DataLoader {set, batch_size = size, sampler = options(false)}
      return moth.fit {model_, loader, loss = F.cross_entropy,
        optimizer = optim.SGD(model_:parameters(), {lr = 0.1, momentum = 0.9}), epochs = 3,
        val_loader = data.DataLoader {set, batch_size = 5, sampler = options(true)},
        metrics = {acc = accuracy(), share = share}, progress = false}
    end
    local metric = moth.metrics.Metric
    metric.sync_on_compute = false
    local want = run(alone, 24, function() return nil end)
    metric.sync_on_compute = true
    local got = run(net, 24 / n, function(validation)
      return data.DistributedSampler(set, {shuffle = false, even = not validation})
    end)
    for _, name in ipairs {"loss", "val_loss", "acc", "val_acc", "share", "val_share"} do
      for i = 1, 3 do
        assert(math.abs(want[name][i] - got[name][i]) < 1e-5, name)
      end
    end
    same_everywhere(net, got)
  end},
  {"a captured step has the same results", function(_, n)
    local set, losses = set_of(64), {}
    for k, capture in ipairs {false, true} do
      moth.manual_seed(1)
      local net = DDP(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))
      local history = moth.fit {net, data.DataLoader {set, batch_size = 4,
          sampler = data.DistributedSampler(set)}, loss = F.cross_entropy,
        optimizer = optim.SGD(net:parameters(), {lr = 0.1}), epochs = 3, capture = capture,
        progress = false}
      same_everywhere(net, history)
      losses[k] = history.loss
    end
    for i = 1, 3 do assert(math.abs(losses[1][i] - losses[2][i]) < 1e-5 * n) end
  end},
  {"a net that is not wrapped is trained by each process alone", function(rank)
    local set = set_of(8)
    moth.manual_seed(rank)
    local net = model()
    local history = moth.fit {net, data.DataLoader(set, 4), loss = F.cross_entropy,
      optimizer = optim.SGD(net:parameters(), {lr = 0.1}), epochs = rank + 1, progress = false}
    assert(history:len() == rank + 1)
  end},
  {"the sampler gets the number of the epoch", function(_, n)
    local set = set_of(16)
    local sampler, epochs = data.DistributedSampler(set), {}
    local set_epoch = sampler.set_epoch
    function sampler:set_epoch(epoch)
      epochs[#epochs + 1] = epoch
      set_epoch(self, epoch)
    end
    local net = DDP(model())
    moth.fit {net, data.DataLoader {set, batch_size = 4, sampler = sampler},
      loss = F.cross_entropy, optimizer = optim.SGD(net:parameters(), {lr = 0.1}), epochs = 3,
      progress = false}
    assert(table.concat(epochs, " ") == "1 2 3" and n > 1)
  end},
  {"the first process writes the files and logs", function(rank)
    in_folder(rank, function(folder)
      local calls = 0
      local net, set = DDP(model()), set_of(16)
      moth.fit {net, data.DataLoader {set, batch_size = 4,
          sampler = data.DistributedSampler(set)}, loss = F.cross_entropy,
        optimizer = optim.SGD(net:parameters(), {lr = 0.1}), checkpoint = folder,
        logger = {add_scalar = function() calls = calls + 1 end}, log_every_n_steps = 1,
        progress = false}
      assert((calls > 0) == (rank == 0))
      dist.barrier()
      local state = moth.load(folder .. "/last.safetensors")
      model():load_state_dict(state.model) -- names of the net, not of the wrapper
      assert(#state.ranks == dist.get_world_size())
    end)
  end},
  {"a run that a signal to one process has ended is resumed with the same bits", function(rank)
    for _, zero in ipairs {false, true} do
      local net, history
      in_folder(rank, function(folder)
        net, history = train(rank, folder, {zero = zero})
        same_everywhere(net, history)
      end)
      in_folder(rank, function(folder)
        local per_epoch = history:len() > 0 and math.ceil(96 / dist.get_world_size() / 8)
        local _, _, seen = train(rank, folder, {zero = zero, stop = per_epoch + 2})
        assert(seen[#seen] == per_epoch + 2)
        local all = all_of(#seen)
        for r = 2, #all do assert(all[r] == all[1], "the processes stop after different steps") end
        dist.barrier()
        local again, resumed = train(rank, folder, {zero = zero})
        same_everywhere(again, resumed)
        assert(moth.equal(vector(again), vector(net)), "the weights differ after a resume")
        for _, name in ipairs {"loss", "val_loss", "acc", "val_share"} do
          for i = 1, 3 do assert(resumed[name][i] == history[name][i], name) end
        end
      end)
    end
  end},
  {"fewer processes go on from a file", function(rank, n)
    in_folder(rank, function(folder)
      local _, _, _, optimizer = train(rank, folder, {stop = 2, zero = true})
      assert(optimizer)
      local group = dist.new_group {0, 1}
      dist.barrier()
      if rank > 1 then return end
      local set = set_of(96)
      local net = DDP(model(0.3), {process_group = group})
      local zero = dist.optim.ZeroRedundancyOptimizer(net:parameters(), optim.AdamW,
        {lr = 0.02, process_group = group})
      local first
      local history = moth.fit {net, data.DataLoader {set, batch_size = 4,
          sampler = data.DistributedSampler(set, {num_replicas = 2, rank = rank})},
        loss = F.cross_entropy, optimizer = zero, epochs = 2,
        metrics = {share = share}, progress = false, resume = folder .. "/last.safetensors",
        callbacks = {on_train_begin = function(_, run) first = {run.batch, run.step} end}}
      assert(first[1] == math.floor(4 * n / 2) and first[2] == 2)
      assert(history:len() == 2 and history.loss[2] == history.loss[2])
      local all = {}
      dist.all_gather_object(all, vector(net), group)
      assert(moth.equal(all[1], all[2]))
    end)
  end},
  {"processes with different numbers of batches end together", function(rank, n)
    for _, accumulate in ipairs {1, 2} do
      local set = set_of(10 * n)
      moth.manual_seed(1)
      local net = DDP(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
      local stream = data.IterableDataset(function() return coroutine.wrap(function()
        for i = 1, 6 + 4 * rank do coroutine.yield(set:get(i)) end
      end) end)
      local steps = 0
      local history = moth.fit {net, data.DataLoader {stream, batch_size = 2, drop_last = true},
        loss = F.cross_entropy,
        optimizer = optim.Adam(net:parameters(), {lr = 0.1}), epochs = 2, progress = false,
        accumulate_grad_batches = accumulate, metrics = {acc = accuracy()},
        callbacks = {on_batch_end = function(_, run) steps = run.step end}}
      same_everywhere(net, history)
      for _, each in ipairs(all_of(steps)) do assert(each == steps) end
      assert(steps >= 2 * math.floor((3 + 2 * (n - 1)) / accumulate), steps)
    end
  end},
  {"a process that sets run.stop ends all after the same step", function(rank)
    local set, steps = set_of(32), 0
    local net = DDP(model())
    local history = moth.fit {net, data.DataLoader {set, batch_size = 2,
        sampler = data.DistributedSampler(set)}, loss = F.cross_entropy,
      optimizer = optim.SGD(net:parameters(), {lr = 0.1}), epochs = 20, progress = false,
      callbacks = {on_batch_end = function(_, run)
        steps = run.step
        if rank == 1 and run.step == 3 then run.stop = "enough" end
      end}}
    assert(steps == 3 and history.stopped == "enough" and history:len() == 1)
    same_everywhere(net, history)
  end},
  {"early stopping is decided in all processes", function(rank)
    local set = set_of(16)
    moth.manual_seed(1)
    local net = DDP(model())
    local history = moth.fit {net, data.DataLoader {set, batch_size = 4,
        sampler = data.DistributedSampler(set)}, loss = F.cross_entropy,
      optimizer = optim.SGD(net:parameters(), {lr = 0}), epochs = 20,
      metrics = {noise = function() return rank + 1 end},
      callbacks = moth.callbacks.EarlyStopping {monitor = "noise", patience = 2}, progress = false}
    assert(history:len() == 3)
    same_everywhere(net, history)
    assert(history.stopped:find "noise has not improved")
  end},
  {"dropout differs between processes, initial weights do not", function(rank)
    moth.manual_seed(3)
    local net = DDP(model(0.5))
    moth.manual_seed(3 + rank) -- random numbers of its own from here on
    local mask = net.module[3](moth.ones(64))
    local all = all_of {vector(net), mask}
    for r = 2, #all do
      assert(moth.equal(all[r][1], all[1][1]) and not moth.equal(all[r][2], all[1][2]))
    end
  end},
}
