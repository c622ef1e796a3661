-- Claims about collectives, sends and groups: see spec/support/ranks.lua.

local moth = require "moth"
local claims = require "spec.support.claims"
local dist = moth.distributed

local raises, each = claims.raises, claims.each

local function same(want, got)
  if want.dtype ~= got.dtype or not moth.equal(want, got) then
    error(("expected %s, got %s"):format(tostring(want), tostring(got)), 2)
  end
end

local DTYPES = {"float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64",
                "uint8"}

return {
  {"all_reduce sums in every dtype", function(rank, n)
    for _, name in ipairs(DTYPES) do
      local x = moth.full({3, 5}, rank + 1):to(moth[name])
      dist.all_reduce(x)
      same(moth.full({3, 5}, n * (n + 1) / 2):to(moth[name]), x)
    end
  end},
  {"all_reduce has product, min, max and mean", function(rank, n)
    local product = 1
    for i = 1, n do product = product * i end
    -- a list, because the order of pairs differs between processes
    for _, row in ipairs {{"product", product}, {"min", 1}, {"max", n}, {"mean", (n + 1) / 2}} do
      for _, dtype in ipairs {moth.float32, moth.float64, moth.bfloat16} do
        local x = moth.full({4}, rank + 1, {dtype = dtype})
        dist.all_reduce(x, row[1])
        same(moth.full({4}, row[2], {dtype = dtype}), x)
      end
    end
  end},
  {"all_reduce of booleans is or; min is and", function(rank)
    local x = moth.tensor {rank == 0, true, false}
    dist.all_reduce(x)
    same(moth.tensor {true, true, false}, x)
    x = moth.tensor {rank == 0, true, false}
    dist.all_reduce(x, "min")
    same(moth.tensor {false, true, false}, x)
  end},
  {"each operation on integers and booleans is that of a loop over the ranks", function(rank, n)
    local bit = require "bit"
    local function both(a, b) return a and b end
    local function either(a, b) return a or b end
    local function unequal(a, b) return a ~= b end
    local rows = {
      {"sum", function(a, b) return a + b end, either},
      {"product", function(a, b) return a * b end, both},
      {"min", math.min, both}, {"max", math.max, either}, {"band", bit.band, both},
      {"bor", bit.bor, either}, {"bxor", bit.bxor, unequal},
    }
    local function value(r, i) return (3 * r + 5 * i) % 7 end -- of rank r, at place i
    local function reduced(f, of)
      return each(4, function(i)
        local all = of(0, i)
        for r = 1, n - 1 do all = f(all, of(r, i)) end
        return all
      end)
    end
    for _, row in ipairs(rows) do
      local name, f, logical = unpack(row)
      for _, dtype in ipairs {"int8", "int16", "int32", "int64", "uint8"} do
        local x = moth.tensor(each(4, function(i) return value(rank, i) end)):to(moth[dtype])
        local want = moth.tensor(reduced(f, value), {dtype = moth.int64}):to(moth[dtype])
        dist.all_reduce(x, name)
        same(want, x)
      end
      local function truth(r, i) return value(r, i) % 2 == 1 end
      local x = moth.tensor(each(4, function(i) return truth(rank, i) end))
      dist.all_reduce(x, name)
      same(moth.tensor(reduced(logical, truth)), x)
    end
  end},
  {"all_reduce of integers has bitwise operations", function(rank)
    local x = moth.full({2}, 2 ^ rank, {dtype = moth.int32})
    dist.all_reduce(x, "bor")
    same(moth.full({2}, 2 ^ dist.get_world_size() - 1, {dtype = moth.int32}), x)
  end},
  {"float16 is reduced in float32", function(_, n)
    local x = moth.full({1}, 40000, {dtype = moth.float16})
    dist.all_reduce(x, "mean") -- the sum is above the largest float16
    same(moth.full({1}, 40000, {dtype = moth.float16}), x)
    return n
  end},
  {"tensors may have any layout", function(rank, n)
    local x = moth.full({4, 3}, rank + 1):t()
    dist.all_reduce(x)
    same(moth.full({3, 4}, n * (n + 1) / 2), x)
    local wide = moth.zeros(4, 6)
    local part = wide:narrow(2, 2, 2)
    part:fill_(rank + 1)
    dist.all_reduce(part)
    same(moth.full({4}, n * (n + 1)), wide:sum(2))
    dist.broadcast(moth.empty(0, 3))
    local scalar = moth.tensor(rank)
    dist.all_reduce(scalar, "max")
    same(moth.tensor(n - 1), scalar)
  end},
  {"a leaf that needs a gradient is reduced without history", function(rank)
    local x = moth.full({2}, rank + 1, {requires_grad = true})
    dist.broadcast(x, 0)
    same(moth.ones(2), x:detach())
    assert(x.requires_grad and x.is_leaf)
  end},
  {"a backward pass notices a tensor that a collective has written", function()
    local w = moth.ones(2, {requires_grad = true})
    local x = moth.ones(2)
    local y = (w * x):sum()
    dist.all_reduce(x)
    raises("changed", y.backward, y)
  end},
  {"broadcast copies the tensor of src", function(rank, n)
    local x = moth.full({3}, rank)
    dist.broadcast(x, {src = n - 1})
    same(moth.full({3}, n - 1), x)
  end},
  {"reduce writes only in dst", function(rank, n)
    local x = moth.full({3}, rank + 1)
    dist.reduce(x, 1)
    same(moth.full({3}, rank == 1 and n * (n + 1) / 2 or rank + 1), x)
  end},
  {"all_gather and all_gather_into_tensor collect by rank", function(rank, n)
    local list = each(n, function() return moth.zeros(2, 2) end)
    dist.all_gather(list, moth.full({2, 2}, rank):t())
    for i = 1, n do same(moth.full({2, 2}, i - 1), list[i]) end
    local all = moth.zeros(n, 3)
    dist.all_gather_into_tensor(all, moth.full({3}, rank))
    same(moth.arange(n):float():view(n, 1):expand(n, 3):contiguous(), all)
  end},
  {"gather and scatter move a list", function(rank, n)
    local list = each(n, function() return moth.zeros(2) end)
    if rank == 1 then dist.gather(moth.full({2}, rank), list, 1)
    else dist.gather(moth.full({2}, rank), {dst = 1}) end
    local x = moth.zeros(2)
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
      local y = moth.zeros({2}, {dtype = dtype})
      dist.reduce_scatter_tensor(y, moth.arange(2 * n):to(dtype))
      same(moth.tensor({2 * rank * n, (2 * rank + 1) * n}, {dtype = dtype}), y)
    end
    local y = moth.zeros(2)
    dist.reduce_scatter(y, each(n, function(i) return moth.full({2}, i) end), "max")
    same(moth.full({2}, rank + 1), y)
  end},
  {"the input of a collective may be a part of the output, and the reverse", function(rank, n)
    local all = moth.full({n, 3}, -1)
    all[rank + 1]:fill_(rank)
    dist.all_gather_into_tensor(all, all[rank + 1])
    same(moth.arange(n):float():view(n, 1):expand(n, 3):contiguous(), all)
    for _, dtype in ipairs {moth.float32, moth.bfloat16} do
      local parts = moth.arange(2 * n):to(dtype):view(n, 2)
      dist.reduce_scatter_tensor(parts[rank + 1], parts)
      local want = moth.arange(2 * n):to(dtype):view(n, 2)
      want[rank + 1]:mul_(n)
      same(want, parts)
    end
    local x = moth.arange(n):float() + 10 * rank
    dist.all_to_all_single(x, x)
    same(moth.arange(n):float() * 10 + rank, x)
  end},
  {"all_to_all exchanges parts, of different sizes too", function(rank, n)
    local y = moth.zeros(n)
    dist.all_to_all_single(y, moth.arange(n):float() + 10 * rank)
    same(moth.arange(n):float() * 10 + rank, y)
    local sizes = each(n, function(i) return i end) -- i rows to rank i - 1
    local mine = each(n, function() return rank + 1 end)
    local x = moth.full({n * (n + 1) / 2, 2}, rank)
    y = moth.zeros(n * (rank + 1), 2)
    dist.all_to_all_single(y, x, mine, sizes)
    same(moth.arange(n):float():repeat_interleave(rank + 1):view(-1, 1):expand(-1, 2):contiguous(),
      y)
    local inputs = each(n, function(i) return moth.full({i}, rank) end)
    local outputs = each(n, function() return moth.zeros(rank + 1) end)
    dist.all_to_all(outputs, inputs)
    for i = 1, n do same(moth.full({rank + 1}, i - 1), outputs[i]) end
  end},
  {"send and recv move a tensor; recv tells the sender", function(rank, n)
    if rank == 0 then
      for i = 1, n - 1 do
        local x = moth.zeros(2)
        local from = dist.recv(x)
        same(moth.full({2}, from), x)
        assert(i >= 1)
      end
    else
      dist.send(moth.full({2}, rank), 0)
    end
  end},
  {"tags tell messages apart", function(rank)
    if rank == 0 then
      local a = dist.isend(moth.full({1}, 1), 1, {tag = 1})
      local b = dist.isend(moth.full({1}, 2), 1, {tag = 2})
      a:wait()
      b:wait()
    elseif rank == 1 then
      local x, y = moth.zeros(1), moth.zeros(1)
      dist.recv(x, 0, {tag = 2})
      dist.recv(y, 0, {tag = 1})
      same(moth.tensor {2, 1}, moth.cat {x, y})
    end
  end},
  {"an asynchronous operation returns a Work", function(rank, n)
    local x = moth.full({1000}, rank + 1)
    local work = dist.all_reduce(x, {async_op = true})
    assert(work:wait() == true and work:is_completed())
    same(moth.full({1000}, n * (n + 1) / 2), x)
    local y = moth.full({3, 2}, rank):t()
    work = dist.broadcast(y, {src = 1, async_op = true})
    while not work:is_completed() do moth.randn(8, 8):sum() end
    same(moth.full({2, 3}, 1), y)
  end},
  {"a dropped Work ends by itself", function(rank, n)
    local x = moth.full({10}, rank)
    dist.all_reduce(x, {async_op = true})
    collectgarbage()
    dist.barrier()
    dist.barrier()
    assert(n > 1)
  end},
  {"a group has ranks of its own", function(rank, n)
    local group = dist.new_group {0, n - 1}
    if rank == 0 or rank == n - 1 then
      assert(dist.get_world_size(group) == 2 and dist.get_rank(group) == (rank == 0 and 0 or 1))
      local x = moth.full({2}, rank + 1)
      dist.all_reduce(x, {group = group})
      same(moth.full({2}, n + 1), x)
      dist.broadcast(x:fill_(rank), {src = n - 1, group = group}) -- src: a rank of all processes
      same(moth.full({2}, n - 1), x)
      dist.destroy_process_group(group)
      raises("destroyed", dist.all_reduce, x, {group = group})
    else
      assert(dist.get_world_size(group) == -1 and dist.get_rank(group) == -1)
      raises("not a member", dist.all_reduce, moth.ones(1), {group = group})
    end
  end},
  {"a captured function repeats its collectives in each replay", function(rank, n)
    local step = moth.capture(function(x)
      local sum, first, all = x * 2, x + 1, moth.zeros(n, 2)
      local late = x:clone()
      local work = dist.all_reduce(late, "max", {async_op = true})
      dist.all_reduce(sum)
      dist.broadcast(first, n - 1)
      dist.all_gather_into_tensor(all, x)
      work:wait()
      return sum + 0, first * 1, all, late + 0
    end)
    for k = 1, 4 do
      local sum, first, all, late = step(moth.tensor {rank + k, k})
      same(moth.tensor {n * (n - 1) + 2 * k * n, 2 * k * n}, sum)
      same(moth.tensor {n + k, k + 1}, first)
      same(moth.stack(each(n, function(i) return moth.tensor {i - 1 + k, k} end)), all)
      same(moth.tensor {n - 1 + k, k}, late)
    end
    local forgetful = moth.capture(function(x)
      dist.all_reduce(x * 2, {async_op = true})
      return x + 1
    end)
    raises("must wait for the all_reduce that it starts", forgetful, moth.ones(2))
    dist.barrier()
    raises("cannot contain a barrier", moth.capture(function() dist.barrier() end))
  end},
  {"wrong arguments are refused before anything is sent", function(rank, n)
    raises("rank of the group", dist.broadcast, moth.ones(1), n)
    raises("list of " .. n .. " tensors", dist.all_gather, {moth.ones(1), [9] = 1}, moth.ones(1))
    raises("numbers of elements", dist.all_gather_into_tensor, moth.ones(1), moth.ones(1))
    raises("float tensor", dist.all_reduce, moth.arange(3), "mean")
    raises("integer tensor", dist.all_reduce, moth.ones(3), "bor")
    raises("process group is needed", dist.all_reduce, moth.ones(1), {group = {}})
    raises("already", dist.init_process_group)
    raises("occurs twice", dist.new_group, {0, 0})
    raises("rank of the group", dist.new_group, {0, 2 ^ 32 + 1})
    assert(rank < n)
  end},
  {"a receive that times out names the sender only", function(rank)
    local x = moth.zeros(1)
    if rank == 0 then
      local work = dist.irecv(x, 1, {tag = 9})
      local ok, problem = pcall(work.wait, work, 0.2)
      assert(not ok and problem:find "no result after 0.2 s; rank 1 has sent no such message %(",
        problem)
      assert(not problem:find "rank 2", problem)
      dist.barrier()
      work:wait()
      same(moth.ones(1), x)
    else
      dist.barrier()
      if rank == 1 then dist.send(moth.ones(1), 0, {tag = 9}) end
    end
  end},
  {"a collective that a rank does not call raises and names it", function(rank)
    if rank == 0 then
      local work = dist.all_reduce(moth.ones(2), {async_op = true})
      raises("no result after 0.2 s; rank 1 ", work.wait, work, 0.2)
      dist.barrier {async_op = true}:wait()
      work:wait()
    else
      local from = os.time()
      while os.time() - from < 3 do moth.randn(64, 64):matmul(moth.randn(64, 64)) end
      dist.all_reduce(moth.ones(2))
      dist.barrier()
    end
  end},
}
