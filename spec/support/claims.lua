--- claims.lua -- what the claims of spec/distributed share. They run in each process of mpirun, so
-- they have no busted: see ranks.lua.

local moth = require "moth"
local nn, F, dist = moth.nn, moth.nn.functional, moth.distributed

local claims = {}

--- f(...) raises an error with this pattern.
function claims.raises(pattern, f, ...)
  local ok, problem = pcall(f, ...)
  if ok or not tostring(problem):find(pattern) then
    error(("expected an error with '%s', got %s"):format(pattern, tostring(problem)), 2)
  end
end

--- The list f(1) to f(n).
function claims.each(n, f)
  local list = {}
  for i = 1, n do list[i] = f(i) end
  return list
end

--- Calls f with the name of a folder that is the same in all processes, and removes it.
function claims.in_folder(rank, f)
  local list = {rank == 0 and os.tmpname() or ""}
  dist.broadcast_object_list(list)
  if rank == 0 then os.remove(list[1]) end
  dist.barrier()
  f(list[1])
  dist.barrier()
  if rank == 0 then os.execute("rm -rf '" .. list[1] .. "'") end
  dist.barrier()
end

--- Trains one net on all samples x, and another on the parts of the processes, for five steps.
-- @param make       makes a net
-- @param wrap       makes the net of several processes from one
-- @param optimizer  makes the optimizer of a list of parameters
-- @return the largest difference of losses
function claims.compare(rank, n, make, wrap, x, optimizer)
  local size, device = x:size(1), x.device
  moth.manual_seed(5)
  local y, alone = moth.randint(1, 4, {size}):to(device), make():to(device)
  moth.manual_seed(rank == 0 and 5 or 6)
  moth.randint(1, 4, {size})
  local net = wrap(make():to(device))
  local a, b = optimizer(alone:parameters()), optimizer(net:parameters())
  local worst = 0
  local function part(t) return t:narrow(1, 1 + rank * size / n, size / n) end
  for _ = 1, 5 do
    a:zero_grad()
    local want = F.cross_entropy(alone(x), y)
    want:backward()
    a:step()
    b:zero_grad()
    local loss = F.cross_entropy(net(part(x)), part(y))
    loss:backward()
    b:step()
    local mean = loss:detach():clone()
    dist.all_reduce(mean, "mean")
    worst = math.max(worst, math.abs(mean:item() - want:item()))
  end
  local sums = {}
  dist.all_gather_object(sums, nn.utils.parameters_to_vector(net:parameters()):sum():item())
  for i = 2, n do assert(sums[i] == sums[1], "the weights of the processes differ") end
  return worst
end

return claims
