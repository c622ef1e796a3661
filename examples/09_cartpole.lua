-- A game whose player learns while it runs: CartPole, balanced by REINFORCE (Williams, 1992). Each
-- frame computes an action and advances the simulation by 0.02 s; after an episode the network
-- learns from it. The temporary tensors of a frame are freed at its end.
-- Run it with: ./moth examples/09_cartpole.lua [--show] [--episodes N]

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local parser = require "argparse"("09_cartpole", "Learns to balance a pole on a cart.")
parser:option("--episodes", "Maximal number of rounds.", "1000"):convert(tonumber)
parser:option("--goal", "Mean steps of the last 100 rounds that end the training.", "195")
  :convert(tonumber)
parser:option("--seed", "Seed of the random numbers.", "1"):convert(tonumber)
parser:flag("--show", "Draw the last round in the terminal.")
parser:option("--device", "Device: cpu or cuda.", "cpu")
local args = parser:parse()

moth.manual_seed(args.seed)
math.randomseed(args.seed)

-- ---- the world: Barto, Sutton and Anderson (1983), as in Gymnasium's CartPole-v1 ----

local World = moth.class("World")
local GRAVITY, MASS, LENGTH, POLE_MOMENT, FORCE, DT = 9.8, 1.1, 0.5, 0.05, 10, 0.02
local EDGE, TILT, LAST = 2.4, math.rad(12), 500

function World:init()
  self:reset()
end

function World:reset()
  for _, name in ipairs {"x", "v", "angle", "spin"} do self[name] = math.random() * 0.1 - 0.05 end
  self.steps = 0
end

function World:state()
  return {self.x, self.v, self.angle, self.spin}
end

--- Pushes the cart to the left (1) or right (2). @return true if the episode is over
function World:step(action)
  local force = action == 2 and FORCE or -FORCE
  local sin, cos = math.sin(self.angle), math.cos(self.angle)
  local push = (force + POLE_MOMENT * self.spin ^ 2 * sin) / MASS
  local turn = (GRAVITY * sin - cos * push) / (LENGTH * (4 / 3 - 0.1 * cos ^ 2 / MASS))
  self.x, self.v = self.x + DT * self.v, self.v + DT * (push - POLE_MOMENT * turn * cos / MASS)
  self.angle, self.spin = self.angle + DT * self.spin, self.spin + DT * turn
  self.steps = self.steps + 1
  return math.abs(self.x) > EDGE or math.abs(self.angle) > TILT or self.steps == LAST
end

function World:draw()
  local at = math.floor((self.x / EDGE + 1) * 30 + 0.5)
  local lean = self.angle > 0.03 and "/" or self.angle < -0.03 and "\\" or "|"
  io.write(("\r%s%s%s  step %3d "):format((" "):rep(at), lean, (" "):rep(60 - at), self.steps))
  io.flush()
  local now = os.clock()
  while os.clock() - now < DT do end
end

-- ---- the player ----

local Player = nn.class("Player", nn.Module)

function Player:init()
  self.hidden = nn.Linear(4, 64)
  self.out = nn.Linear(64, 2)
  self.states, self.moves = {}, {}
end

function Player:forward(states)
  return self.out(F.tanh(self.hidden(states)))
end

--- One frame: samples an action from the network's probabilities.
function Player:play(state)
  return moth.no_grad(moth.scope, function()
    local right = F.softmax(self(moth.tensor(state, {device = args.device})), 1)[2]:item()
    local move = math.random() < right and 2 or 1
    table.insert(self.states, state)
    table.insert(self.moves, move)
    return move
  end)
end

-- Discounted returns of rewards of 1 per step, normalized to mean 0 and standard deviation 1.
local function returns(n)
  local list, sum = {}, 0
  for t = n, 1, -1 do
    sum = 1 + 0.99 * sum
    list[t] = sum
  end
  local r = moth.tensor(list, {device = args.device})
  return (r - r:mean()) / (r:std() + 1e-8)
end

--- After an episode: raises the probability of actions with a good return.
function Player:learn(optimizer)
  moth.scope(function()
    local states = moth.tensor(self.states, {device = args.device})
    local moves = moth.tensor(self.moves, {dtype = moth.int64, device = args.device})
    local surprise = F.cross_entropy{self(states), moves, reduction = "none"}
    local loss = (surprise * returns(#self.moves)):sum()
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
  end)
  self.states, self.moves = {}, {}
end

-- ---- the game ----

local world, player = World(), Player():to(args.device)
local optimizer = optim.Adam(player:parameters(), {lr = 1e-2})
local lasting, best = {}, 0

local function mean_of_last(n)
  local sum = 0
  for i = #lasting - n + 1, #lasting do sum = sum + (lasting[i] or 0) end
  return sum / n
end

while #lasting < args.episodes and best < args.goal do
  world:reset()
  repeat local over = world:step(player:play(world:state())) until over
  lasting[#lasting + 1] = world.steps
  player:learn(optimizer)
  best = math.max(best, mean_of_last(100))
  if #lasting % 50 == 0 then
    print(("round %4d  mean of the last 100: %.1f steps"):format(#lasting, mean_of_last(100)))
  end
end

if args.show then
  world:reset()
  repeat
    local over = world:step(player:play(world:state()))
    world:draw()
  until over
  print()
end

print(("%.1f steps a round after %d rounds; %.1f MB of tensors live"):format(best, #lasting,
  moth.memory().live_bytes / 1e6))
local short = args.episodes < 1000 and best < args.goal
if short then print("to balance the pole takes up to 1000 rounds") end
assert(short or best >= math.min(args.goal, 195), "the pole was not balanced")
