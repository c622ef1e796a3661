--- budget.lua -- work in slices of 2 ms by moth.budget, as a game would run it: by how much slices
-- exceed their time, and what slicing costs beside the same work in one piece.
--
--   ./moth spec/bench/budget.lua [FRAMES]     (5000)
--
-- The network is ResNet-18 for images of 32x32; the language model has 10 million parameters; the
-- loader makes batches of random crops. The times are by the wall clock, of one thread.

local folder = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = folder .. "/?.lua;" .. package.path

local moth = require "moth"
local nets = require "nets"
local lib = require "moth.binding.lib"
local nn, F = moth.nn, moth.nn.functional

local FRAMES, SLICE = tonumber(arg[1]) or 5000, 0.002
moth.set_num_threads(1)
moth.manual_seed(1)

local function seconds() return lib.C.moth_seconds() end

local works = {}

function works.resnet18_forward()
  local net = nets.resnet18():eval()
  local x = moth.randn(8, 3, 32, 32)
  return function() return moth.no_grad(function() return net(x):sum():item() end) end
end

function works.gpt_step()
  local net = nets.Gpt(65, 128, 384, 6, 6)
  local optimizer = moth.optim.AdamW(net:parameters(), 3e-4)
  local ids = moth.randint(1, 66, {4, 129})
  local x, y = ids[{{}, {1, 128}}], ids[{{}, {2, 129}}]
  return function()
    optimizer:zero_grad()
    local loss = F.cross_entropy(net(x):view(-1, 65), y:reshape(-1))
    loss:backward()
    optimizer:step()
  end
end

function works.data_loader()
  local images = moth.randint(0, 256, {256, 3, 36, 36}):to(moth.uint8)
  local Crops = nn.class("Crops", moth.data.Dataset)
  function Crops:len() return 256 end
  function Crops:get(i)
    local top, left = (i * 7) % 4 + 1, (i * 5) % 4 + 1
    return images[i][{{}, {top, top + 31}, {left, left + 31}}]:to(moth.float32) / 255
  end
  local loader = moth.data.DataLoader(Crops(), {batch_size = 32, shuffle = true})
  return function()
    local total = 0
    for batch in loader do total = total + batch:size(1) end
    return total
  end
end

local function quantile(list, share) return list[math.max(1, math.ceil(share * #list))] end

-- The seconds of one call, the least of a few.
local function whole(work)
  local least = math.huge
  for _ = 1, 3 do
    local start = seconds()
    moth.scope(work)
    least = math.min(least, seconds() - start)
  end
  return least
end

print(("%-18s %8s %8s %10s %10s %10s %9s %8s"):format("work", "frames", "calls", "median ms",
  "p99 ms", "worst ms", "cost", "allocs"))
for _, name in ipairs {"resnet18_forward", "gpt_step", "data_loader"} do
  local work = works[name]()
  local function scoped() return moth.scope(work) end
  moth.reserve(scoped)
  scoped()
  local one = whole(work)
  local over, calls, spent, first = {}, 0, 0, nil
  local call = 0 -- seconds of the call that is not finished
  for _ = 1, FRAMES do
    local start = seconds()
    local done = moth.budget(SLICE, scoped)
    local took = seconds() - start
    call = call + took
    if not done then over[#over + 1] = (took - SLICE) * 1e3 end
    if done then
      if first then calls, spent = calls + 1, spent + call end
      call = 0
      first = first or moth.memory().allocations
    end
  end
  table.sort(over)
  print(("%-18s %8d %8d %10.3f %10.3f %10.3f %9.3f %8d"):format(name, FRAMES, calls,
    quantile(over, 0.5) or 0, quantile(over, 0.99) or 0, over[#over] or 0,
    spent / (calls * one), moth.memory().allocations - first))
  moth.cancel_budget(scoped)
end
