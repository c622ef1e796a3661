--- fit.lua -- what moth.fit costs: its time for a step against the written-out loop of
-- docs/guide/training.md, on a net so small that a step takes about 15 microseconds.
--
--     ./moth spec/bench/fit.lua [ROUNDS]
--
-- Both run alternately in one process on one thread. The figures are medians of epochs of 1,024
-- steps, in microseconds of CPU time for a step.

local moth = require "moth"
local nn, F, optim, data = moth.nn, moth.nn.functional, moth.optim, moth.data

local rounds = tonumber(arg[1]) or 31
local STEPS, WARM_UP = 1024, 3

moth.set_num_threads(1)

local function problem()
  moth.manual_seed(1)
  local net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
  local x = moth.randn(4 * STEPS, 4)
  local y = x:sum(2, true):sin()
  local loader = data.DataLoader(data.TensorDataset(x, y), {batch_size = 4, shuffle = true})
  return net, loader, optim.SGD(net:parameters(), {lr = 0.01})
end

local function written_out()
  local net, loader, optimizer = problem()
  return function()
    local total = 0
    for input, target in loader do
      moth.scope(function()
        local loss = F.mse_loss(net(input), target)
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        total = total + loss:item()
      end)
    end
    return total / loader:len()
  end
end

local function fitted(more)
  local net, loader, optimizer = problem()
  local arguments = {net, loader, loss = F.mse_loss, optimizer = optimizer}
  for name, value in pairs(more) do arguments[name] = value end
  return function() return moth.fit(arguments) end
end

local quiet = {add_scalar = function() end}
local sides = {
  {"written out", written_out()},
  {"moth.fit", fitted {progress = false}},
  {"moth.fit with a display and a logger", fitted {progress = true, logger = quiet}},
}
io.stderr:setvbuf "full"

for _, side in ipairs(sides) do
  side.times = {}
  for _ = 1, WARM_UP do side[2]() end
end
for round = 1, rounds do
  for _, side in ipairs(sides) do
    local start = os.clock()
    side[2]()
    side.times[round] = (os.clock() - start) / STEPS * 1e6
  end
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local base = median(sides[1].times)
for _, side in ipairs(sides) do
  local time = median(side.times)
  print(("%-38s %6.2f us a step   %5.3f x   %+5.2f us"):format(side[1], time, time / base,
    time - base))
end
