--- distributed.lua -- what several processes gain, and what their messages cost.
--
--     ./moth spec/bench/distributed.lua [PYTHON] [RANKS = 2] [MPIRUN = mpirun]
--
-- Rows: all_reduce of 4 KB and 25 MB; training steps of an MLP and of ResNet-18 for images of 32x32
-- by one process, and by RANKS processes with DistributedDataParallel and the same number of
-- samples in all. Each process has one thread. PYTHON has torch and perhaps mpi4py: PyTorch's
-- DistributedDataParallel with gloo, and mpi4py's Allreduce, run beside it. Figures are medians of
-- milliseconds by the wall clock, of the slowest rank.

local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path

local moth = require "moth"
local nets = require "nets"
local lib = require "moth.binding.lib"
local nn, F, dist = moth.nn, moth.nn.functional, moth.distributed

local SIZES = {{"all_reduce/4KB", 1024, 400}, {"all_reduce/25MB", 6553600, 20}}
local TRAINED = {{"train/mlp", 512, 30}, {"train/resnet18", 64, 5}}

local function seconds() return lib.C.moth_seconds() end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- The median time of f, of the slowest rank; all ranks begin together.
local function timed(f, times, alone)
  local list = {}
  for k = -2, times do
    if not alone then dist.barrier() end
    local began = seconds()
    f()
    if k > 0 then list[k] = seconds() - began end
  end
  local worst = moth.tensor {median(list) * 1e3}
  if not alone then dist.all_reduce(worst, "max") end
  return worst:item()
end

local function training(name, samples, alone)
  moth.manual_seed(1)
  local image = name:find "resnet"
  local net = image and nets.resnet18() or nets.mlp({784, 1024, 1024, 10}, nn.ReLU)
  local n = alone and 1 or dist.get_world_size()
  if not alone then
    net = nn.parallel.DistributedDataParallel(net, {gradient_as_bucket_view = true})
  end
  local optimizer = moth.optim.SGD(net:parameters(), {lr = 0.01, momentum = 0.9})
  local x = image and moth.randn(samples / n, 3, 32, 32) or moth.randn(samples / n, 784)
  local y = moth.randint(1, 11, {samples / n})
  return function()
    moth.scope(function()
      optimizer:zero_grad()
      F.cross_entropy(net(x), y):backward()
      optimizer:step()
    end)
  end
end

-- Prints a line NAME TIME for each row.
local function as_rank(alone)
  moth.set_num_threads(1)
  if not alone then dist.init_process_group() end
  local first = alone or dist.get_rank() == 0
  local function show(name, ms) if first then print(("%s\t%.4f"):format(name, ms)) end end
  for _, row in ipairs(alone and {} or SIZES) do
    local x = moth.ones(row[2])
    show(row[1], timed(function() dist.all_reduce(x, "max") end, row[3]))
  end
  for _, row in ipairs(TRAINED) do
    show(row[1], timed(training(row[1], row[2], alone), row[3], alone))
  end
end

if arg[1] == "rank" or arg[1] == "alone" then return as_rank(arg[1] == "alone") end

local python, ranks, mpirun = arg[1], tonumber(arg[2]) or 2, arg[3] or "mpirun"
local launcher = debug.getregistry()["moth.launcher"]
local moth_here = launcher and launcher.program or "./moth"

local function output(command)
  local pipe = io.popen(command .. " </dev/null")
  local rows = {}
  for line in pipe:lines() do
    local name, ms = line:match "^(%S+)\t([%d.]+)$"
    if name then rows[name] = tonumber(ms) end
  end
  pipe:close()
  return rows
end

local env = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
  .. "OMPI_MCA_rmaps_base_oversubscribe=1 MOTH_NUM_THREADS=1 OMP_NUM_THREADS=1 "
local own = ("%s %s/distributed.lua "):format(moth_here, here)
local launch = ("%s %s -n %d "):format(env, mpirun, ranks)

local columns = {
  {"one process", output(env .. own .. "alone")},
  {ranks .. " ranks", output(launch .. own .. "rank")},
}
if python and python ~= "" then
  local peer = ("%s %s/peer/distributed.py "):format(python, here)
  table.insert(columns, {"PyTorch, one", output(env .. peer .. "alone")})
  table.insert(columns, {"PyTorch, gloo", output(("%s %s gloo %d"):format(env, peer, ranks))})
  table.insert(columns, {"mpi4py", output(launch .. peer .. "mpi4py")})
end

io.write(("%-18s"):format "milliseconds")
for _, column in ipairs(columns) do io.write(("%15s"):format(column[1])) end
print()
for _, list in ipairs {SIZES, TRAINED} do
  for _, row in ipairs(list) do
    io.write(("%-18s"):format(row[1]))
    for _, column in ipairs(columns) do
      local ms = column[2][row[1]]
      io.write(("%15s"):format(ms and ("%.3f"):format(ms) or ""))
    end
    local one, several = columns[1][2][row[1]], columns[2][2][row[1]]
    print(one and several and ("   %.2f times as fast"):format(one / several) or "")
  end
end
