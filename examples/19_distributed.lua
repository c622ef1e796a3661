-- Data-parallel training: several processes train one net, each with its own part of every batch.
-- The gradients are averaged, so all processes have the same net, and its loss is that of one
-- process with the whole batch.
-- Run it with: ./moth run -n 2 examples/19_distributed.lua [--data FOLDER] [--epochs 1]
-- One process: ./moth examples/19_distributed.lua. It needs an MPI: apt-get install openmpi-bin
-- The data come with Debian's package dataset-fashion-mnist; without it the example uses stripes.

local moth = require "moth"
local nn, F, optim, data, dist = moth.nn, moth.nn.functional, moth.optim, moth.data,
  moth.distributed

local parser = require "argparse"("19_distributed", "Trains one net in several processes.")
parser:option("--data", "Folder of the data set.", "/usr/share/datasets/fashion-mnist")
parser:option("--epochs", "Passes over the data.", "1"):convert(tonumber)
parser:option("--samples", "Number of training samples; 0: all.", "0"):convert(tonumber)
parser:option("--batch-size", "Samples of all processes together in a step.", "64")
  :convert(tonumber)
local args = parser:parse()

dist.init_process_group()
local rank, size = dist.get_rank(), dist.get_world_size()
local function say(...) if rank == 0 then print(...) end end

-- ---- data ----

-- Images (N, 784) and classes from 1 on.
local function load_images(name)
  local file = args.data .. "/" .. name
  local found = io.open(file .. "-labels-idx1-ubyte.gz")
  if not found then -- stripes of ten directions
    local n = name == "train" and 4000 or 1000
    local y = moth.randint(1, 11, {n})
    local angle = (y:float() * (math.pi / 10)):view(n, 1, 1)
    local at = moth.arange(28):float() - 14
    local wave = moth.cos(angle) * at:view(1, 1, 28) + moth.sin(angle) * at:view(1, 28, 1)
    return (wave:sin() + moth.randn(n, 28, 28)):view(n, 784), y
  end
  found:close()
  local x, y = data.idx(file .. "-images-idx3-ubyte.gz"), data.idx(file .. "-labels-idx1-ubyte.gz")
  return x:float():view(-1, 784) / 255 - 0.286, y:long() + 1
end

moth.manual_seed(1) -- the same data order and initial net in all processes
local x, y = load_images "train"
if args.samples > 0 then x, y = x:narrow(1, 1, args.samples), y:narrow(1, 1, args.samples) end
local set = data.TensorDataset(x, y)
local sampler = data.DistributedSampler(set)
local batch_size = math.max(1, math.floor(args.batch_size / size)) -- of this process
local loader = data.DataLoader{set, batch_size = batch_size, sampler = sampler, drop_last = true}

-- ---- training ----

local net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
local parallel = nn.parallel.DistributedDataParallel(net) -- 1: the wrapper
local optimizer = optim.Adam(parallel:parameters(), {lr = 1e-3})

local first, last
for epoch = 1, args.epochs do
  sampler:set_epoch(epoch) -- 2: a new order, the same in all processes
  local total, steps, began = moth.zeros(1), 0, os.time()
  for images, classes in loader do
    moth.scope(function()
      optimizer:zero_grad()
      local loss = F.cross_entropy(parallel(images), classes)
      loss:backward() -- averages the gradients
      optimizer:step()
      total:add_(loss:detach())
      steps = steps + 1
    end)
  end
  dist.all_reduce(total, "mean") -- 3: the mean loss of all processes
  last = total:item() / steps
  first = first or last
  say(("epoch %d  train loss %.4f  %d steps, %d s"):format(epoch, last, steps, os.time() - began))
end

-- ---- the processes have equal nets ----

local sums = {}
dist.all_gather_object(sums, nn.utils.parameters_to_vector(net:parameters()):sum():item())
for r = 2, size do assert(sums[r] == sums[1], "the nets differ") end

-- Each process tests its part; the numbers are added.
x, y = load_images "t10k"
local part = math.floor(x:size(1) / size)
x, y = x:narrow(1, 1 + rank * part, part), y:narrow(1, 1 + rank * part, part)
local right = moth.no_grad(net, x):argmax(2):eq(y):sum()
dist.all_reduce(right)
local accuracy = 100 * tonumber(right:item()) / (part * size)
say(("%d process%s: accuracy %.2f %%, equal nets"):format(size, size > 1 and "es" or "", accuracy))
assert(accuracy > (args.samples > 0 and 30 or 80))
dist.destroy_process_group()
