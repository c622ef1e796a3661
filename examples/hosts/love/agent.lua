--- agent.lua -- a network that learns to steer. It sees the way to the lamp and the speed of its
-- moth, and returns the acceleration. Its loss is the distance that the acceleration leads to.

local files = require "love.filesystem"
local moth = require "moth"
local nn, optim = moth.nn, moth.optim

local Agent = moth.class "Agent"

local POWER = 4 -- the largest acceleration
local AHEAD = 0.5 -- seconds from an acceleration to its effect
local MEMORIES, BATCH = 1024, 32

--- @param name  of its weights file
-- @param memories  what it has seen (MEMORIES x 4); random at first
function Agent:init(name, memories)
  self.file = name .. ".safetensors"
  self.memories, self.row = memories or moth.rand(MEMORIES, 4) * 4 - 2, 0
  local net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
    nn.Linear(64, 2), nn.Tanh())
  local bytes = files.read(self.file) -- from the save directory, else from the archive
  if bytes then net:load_state_dict(moth.load{bytes = bytes}) end

  local optimizer = optim.Adam(net:parameters(), {lr = 1e-3})
  self.net, self.learn = net, moth.capture(function(seen)
    local batch = seen:index_select(1, moth.randint(1, MEMORIES + 1, {BATCH}))
    local way, speed, push = batch:narrow(2, 1, 2), batch:narrow(2, 3, 2), net(batch) * POWER
    local missed = way - speed * AHEAD - push * (AHEAD ^ 2 / 2)
    local loss = (missed:square() + 0.1 * (speed + push * AHEAD):square()):mean()
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    return loss
  end)
end

--- One training step. @return the loss
function Agent:practice() return self.learn(self.memories):item() end

--- The way to the lamp and the speed -> the acceleration.
function Agent:push(dx, dy, vx, vy)
  local seen = moth.tensor {dx, dy, vx, vy}
  self.row = self.row % (MEMORIES / 2) + 1 -- the other half stays random
  self.memories[self.row] = seen
  local thrust = moth.no_grad(self.net, seen)
  return thrust[1]:item() * POWER, thrust[2]:item() * POWER
end

--- A token of all weights, which another thread passes to set_weights, once.
function Agent:token() return moth.token(nn.utils.parameters_to_vector(self.net:parameters())) end

function Agent:set_weights(token)
  nn.utils.vector_to_parameters(moth.open_token(token), self.net:parameters())
end

function Agent:save()
  moth.save(self.net:state_dict(), files.getSaveDirectory() .. "/" .. self.file)
end

return Agent
