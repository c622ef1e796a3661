-- Claims about tensors of GPUs, with backend "nccl": see spec/support/ranks.lua.

local moth = require "moth"
local claims = require "spec.support.claims"
local nn, optim = moth.nn, moth.optim
local dist = moth.distributed
local DDP = nn.parallel.DistributedDataParallel

local raises, each, compare = claims.raises, claims.each, claims.compare

local function same(want, got)
  if not got.is_cuda then error("not on the GPU: " .. tostring(got), 2) end
  got = got:cpu()
  if want.dtype ~= got.dtype or not moth.equal(want, got) then
    error(("expected %s, got %s"):format(tostring(want), tostring(got)), 2)
  end
end

local function full(shape, value, dtype)
  return moth.full(shape, value, {device = "cuda", dtype = dtype or moth.float32})
end

local SUMS = {"float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8"}
local ALL = {"int16", "bool", unpack(SUMS)}

local function mlp() return nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)) end

local function sgd(params) return optim.SGD(params, {lr = 0.1, momentum = 0.9}) end

return {
  {"all_reduce sums in every dtype that NCCL reduces", function(rank, n)
    for _, name in ipairs(SUMS) do
      local x = full({3, 5}, rank + 1, moth[name])
      dist.all_reduce(x)
      same(moth.full({3, 5}, n * (n + 1) / 2):to(moth[name]), x)
    end
    raises("NCCL does not reduce", dist.all_reduce, full({2}, 1, moth.int16))
  end},
  {"all_reduce has product, min, max and mean", function(rank, n)
    local product = 1
    for i = 1, n do product = product * i end
    for _, row in ipairs {{"product", product}, {"min", 1}, {"max", n}, {"mean", (n + 1) / 2}} do
      for _, dtype in ipairs {moth.float32, moth.float64, moth.bfloat16, moth.float16} do
        local x = full({4}, rank + 1, dtype)
        dist.all_reduce(x, row[1])
        same(moth.full({4}, row[2], {dtype = dtype}), x)
      end
    end
    raises("float tensor", dist.all_reduce, full({2}, 1, moth.int32), "mean")
  end},
  {"all_reduce of booleans is or; min is and; other bitwise operations raise", function(rank)
    local function flags() return moth.tensor({rank == 0, true, false}, {device = "cuda"}) end
    for _, row in ipairs {{"sum", true}, {"bor", true}, {"min", false}, {"band", false}} do
      local x = flags()
      dist.all_reduce(x, row[1])
      same(moth.tensor {row[2], true, false}, x)
    end
    raises("no bitwise operations", dist.all_reduce, flags(), "bxor")
    raises("no bitwise operations", dist.all_reduce, full({2}, 1, moth.int32), "bor")
  end},
  {"tensors may have any layout, and many elements", function(rank, n)
    local x = full({4, 3}, rank + 1):t()
    dist.all_reduce(x)
    same(moth.full({3, 4}, n * (n + 1) / 2), x)
    local wide = full({4, 6}, 0)
    local part = wide:narrow(2, 2, 2)
    part:fill_(rank + 1)
    dist.all_reduce(part)
    same(moth.full({4}, n * (n + 1)), wide:sum(2))
    dist.broadcast(full({0, 3}, 0))
    dist.all_reduce(full({0}, 0))
    local large = full({300001}, rank + 1)
    dist.all_reduce(large, "mean")
    same(moth.full({300001}, (n + 1) / 2), large)
  end},
  {"all_reduce waits for the kernels before it, and kernels after it for the result",
    function(rank, n)
      local x = full({64, 64}, 1)
      for _ = 1, 5 do x = x:matmul(x) / 64 end
      x = x * (rank + 1)
      dist.all_reduce(x)
      same(moth.full({64, 64}, n * (n + 1)), x * 2)
    end},
  {"broadcast and reduce", function(rank, n)
    for _, name in ipairs(ALL) do
      local x = full({3}, rank == n - 1 and 1 or 0, moth[name])
      dist.broadcast(x, n - 1)
      same(moth.ones({3}, {dtype = moth[name]}), x)
    end
    local x = full({3}, rank + 1)
    dist.reduce(x, 1)
    same(moth.full({3}, rank == 1 and n * (n + 1) / 2 or rank + 1), x)
  end},
  {"all_gather, gather and scatter", function(rank, n)
    for _, name in ipairs(ALL) do
      local dtype = moth[name]
      local list = each(n, function() return full({2, 2}, 0, dtype) end)
      dist.all_gather(list, full({2, 2}, rank, dtype):t())
      for i = 1, n do same(moth.full({2, 2}, i - 1, {dtype = dtype}), list[i]) end
    end
    local all = full({n, 3}, 0)
    dist.all_gather_into_tensor(all, full({3}, rank))
    same(moth.arange(n):float():view(n, 1):expand(n, 3):contiguous(), all)
    local list = each(n, function() return full({2}, 9) end)
    if rank == 1 then dist.gather(full({2}, rank), list, 1)
    else dist.gather(full({2}, rank), {dst = 1}) end
    local x = full({2}, 9)
    if rank == 1 then
      for i = 1, n do same(moth.full({2}, i - 1), list[i]) end
      dist.scatter(x, list, 1)
    else
      dist.scatter(x, {src = 1})
    end
    same(moth.full({2}, rank), x)
  end},
  {"reduce_scatter gives each rank its part", function(rank, n)
    for _, dtype in ipairs {moth.float32, moth.bfloat16, moth.int64} do
      local y = full({2}, 0, dtype)
      dist.reduce_scatter_tensor(y, moth.arange(2 * n):to(dtype):cuda())
      same(moth.tensor({2 * rank * n, (2 * rank + 1) * n}, {dtype = dtype}), y)
    end
  end},
  {"all_to_all exchanges parts, of different sizes too", function(rank, n)
    local y = full({n}, 0)
    dist.all_to_all_single(y, moth.arange(n):float():cuda() + 10 * rank)
    same(moth.arange(n):float() * 10 + rank, y)
    local sizes = each(n, function(i) return i - 1 end) -- i - 1 rows to rank i - 1
    local mine = each(n, function() return rank end)
    y = full({n * rank, 2}, 9)
    dist.all_to_all_single(y, full({n * (n - 1) / 2, 2}, rank), mine, sizes)
    same(moth.arange(n):float():repeat_interleave(rank):view(-1, 1):expand(-1, 2):contiguous(), y)
    local inputs = each(n, function(i) return full({i}, rank) end)
    local outputs = each(n, function() return full({rank + 1}, 9) end)
    dist.all_to_all(outputs, inputs)
    for i = 1, n do same(moth.full({rank + 1}, i - 1), outputs[i]) end
  end},
  {"send and recv move a tensor", function(rank)
    local x = full({100000}, rank)
    if rank == 0 then
      assert(dist.recv(x, 1) == 1)
      same(moth.full({100000}, 1), x)
    elseif rank == 1 then
      dist.send(x, 0)
    end
    if rank > 1 then return end
    raises("rank of the sender", dist.recv, x)
    raises("no tags", dist.send, x, 1 - rank, {tag = 3})
  end},
  {"work:wait() does not block the CPU, and the stream waits", function(rank, n)
    local x = full({1000}, rank + 1)
    local work = dist.all_reduce(x, {async_op = true})
    assert(work:wait() == true and work:is_completed())
    same(moth.full({1000}, n * (n + 1)), x * 2)
    local y = full({3, 2}, rank):t()
    work = dist.broadcast(y, {src = 1, async_op = true})
    while not work:is_completed() do moth.randn(8, 8):sum() end
    same(moth.full({2, 3}, 1), y)
    local stream = moth.cuda.Stream()
    local z = full({1000}, rank + 1)
    work = dist.all_reduce(z, {async_op = true})
    moth.cuda.stream(stream, function()
      work:wait()
      same(moth.full({1000}, n * (n + 1)), z * 2)
    end)
  end},
  {"a rank that waits on the CPU lets its transfers advance", function(rank, n)
    local x = full({1000}, rank + 1)
    dist.all_reduce(x) -- its kernels run when the CPU waits for the device, or polls
    if rank == 0 then same(moth.full({1000}, n * (n + 1) / 2), x) end
    dist.barrier()
    same(moth.full({1000}, n * (n + 1) / 2), x)
  end},
  {"a tensor that is freed early is not overwritten", function(rank, n)
    local got = {}
    for k = 1, 4 do
      local x = full({5000}, rank == 0 and k or 0)
      dist.broadcast(x, {src = 0, async_op = true})
      got[k] = rank > 0 and x or nil
      x = nil -- luacheck: ignore
      collectgarbage()
      collectgarbage()
      full({5000}, 99)
    end
    dist.barrier()
    moth.cuda.synchronize()
    local flag = full({1}, 0)
    dist.all_reduce(flag)
    flag:item()
    for k, x in pairs(got) do same(moth.full({5000}, k), x) end
    assert(n > 1)
  end},
  {"a backward pass notices a tensor that a collective has written", function()
    local w = moth.ones(2, {requires_grad = true, device = "cuda"})
    local x = full({2}, 1)
    local y = (w * x):sum()
    dist.all_reduce(x)
    raises("changed", y.backward, y)
  end},
  {"a group has ranks of its own", function(rank, n)
    local group = dist.new_group {0, n - 1}
    if rank == 0 or rank == n - 1 then
      local x = full({2}, rank + 1)
      dist.all_reduce(x, {group = group})
      same(moth.full({2}, n + 1), x)
      dist.broadcast(x:fill_(rank), {src = n - 1, group = group})
      same(moth.full({2}, n - 1), x)
      dist.destroy_process_group(group)
      raises("destroyed", dist.all_reduce, x, {group = group})
    else
      raises("not a member", dist.all_reduce, full({1}, 1), {group = group})
    end
    local reversed = dist.new_group(each(n, function(i) return n - i end))
    local all = full({n}, 0)
    dist.all_gather_into_tensor(all, full({1}, rank), reversed)
    same((n - 1) - moth.arange(n):float(), all)
  end},
  {"tensors of the CPU go through MPI", function(rank, n)
    local x = moth.full({3}, rank + 1)
    dist.all_reduce(x)
    assert(moth.equal(x, moth.full({3}, n * (n + 1) / 2)))
    assert(dist.get_backend() == "nccl" and dist.is_nccl_available())
    raises("one device", dist.all_gather_into_tensor, moth.zeros(n), full({1}, 1))
  end},
  {"values between processes may have tensors of a GPU", function(rank, n)
    local list = {}
    dist.all_gather_object(list, {x = full({2}, rank)})
    for i = 1, n do assert(moth.equal(list[i].x, moth.full({2}, i - 1))) end
  end},
  {"DistributedDataParallel computes the loss of one process", function(rank, n)
    moth.manual_seed(2)
    local x = moth.randn(12, 6):cuda()
    for _, options in ipairs {{bucket_cap_mb = 25}, {gradient_as_bucket_view = true},
                              {bucket_cap_mb = 0.0001}, {find_unused_parameters = true}} do
      local worst = compare(rank, n, mlp, function(net) return DDP(net, options) end, x, sgd)
      assert(worst < 1e-5, worst)
    end
  end},
  {"SyncBatchNorm has the statistics of all processes", function(rank, n)
    moth.manual_seed(2)
    local x = moth.randn(12, 3, 4, 4):cuda()
    local worst = compare(rank, n, function()
      return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Linear(16, 3))
    end, function(net)
      return DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net))
    end, x, sgd)
    assert(worst < 1e-5, worst)
  end},
  {"ZeroRedundancyOptimizer steps as the whole optimizer", function(rank, n)
    moth.manual_seed(2)
    local made = {}
    local worst = compare(rank, n, mlp, DDP, moth.randn(12, 6):cuda(), function(params)
      local first = #made == 0
      made[#made + 1] = first and optim.Adam(params, {lr = 1e-3})
        or dist.optim.ZeroRedundancyOptimizer(params, optim.Adam, {lr = 1e-3})
      return made[#made]
    end)
    assert(worst < 1e-5, worst)
  end},
  {"a collective that a rank does not call raises and names it", function(rank)
    if rank == 0 then
      local x = full({2}, 1)
      local work = dist.all_reduce(x, {async_op = true})
      raises("no result after 0.2 s; rank 1 ", work.wait, work, 0.2)
      dist.barrier()
      work:wait()
      same(moth.full({2}, dist.get_world_size()), x)
    else
      local from = os.time()
      while os.time() - from < 3 do moth.randn(64, 64):matmul(moth.randn(64, 64)) end
      dist.barrier()
      local x = full({2}, 1)
      dist.all_reduce(x)
      same(moth.full({2}, dist.get_world_size()), x)
    end
  end},
}
