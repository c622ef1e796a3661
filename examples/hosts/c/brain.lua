--- brain.lua -- the model that frame.c runs each frame: it steers a moth to a lamp. If its weights
-- file is missing it trains for a second, to imitate a hand-written rule.

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local brain = {}

local net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(),
                          nn.Linear(32, 2))

-- Thrust towards the lamp, minus the velocity: (N, 4) -> (N, 2).
local function rule(seen)
  return (seen:narrow(2, 1, 2) * 4 - seen:narrow(2, 3, 2) * 2):clamp(-1, 1)
end

local function learn()
  moth.manual_seed(1)
  local optimizer = optim.Adam(net:parameters(), {lr = 0.01})
  for _ = 1, 300 do
    local seen = moth.rand(64, 4) * 2 - 1
    local loss = F.mse_loss(net(seen), rule(seen))
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
  end
end

local function think(...)
  local thrust = net(moth.tensor{...})
  return thrust[1]:item(), thrust[2]:item()
end

--- One frame: position of the lamp and velocity of the moth, relative to the moth -> thrust.
function brain.frame(dx, dy, vx, vy)
  return moth.scope(think, dx, dy, vx, vy)
end

--- Loads the weights, or trains them and writes the file.
function brain.wake(path)
  local file = io.open(path)
  if file then
    file:close()
    net:load_state_dict(moth.load(path))
  else
    learn()
    moth.save(net:state_dict(), path)
  end
  net:eval()
  moth.set_grad_enabled(false)
  brain.frame(0, 0, 0, 0) -- the first use of an op is slower
end

-- Three errors, to show that the host survives them.

function brain.confused() net(moth.ones(3)) end

function brain.greedy()
  local hoard = {}
  while true do hoard[#hoard + 1] = moth.zeros(2 ^ 20) end
end

function brain.lost()
  local x = moth.ones(8)
  while true do x = x * 1 end
end

return brain
