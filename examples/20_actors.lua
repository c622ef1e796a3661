-- Reinforcement learning in several processes: actors simulate many carts with poles, and one
-- learner trains the player by PPO (Schulman et al., 2017). While the learner trains on a batch,
-- the actors simulate the next one, with weights that are one batch old.
-- Run it with: ./moth run -n 2 examples/20_actors.lua [--iterations N] [--worlds N]
-- One process is the actor and the learner: ./moth examples/20_actors.lua

local moth = require "moth"
local nn, F, optim, dist = moth.nn, moth.nn.functional, moth.optim, moth.distributed

local parser = require "argparse"("20_actors", "Balances poles by actors and a learner.")
parser:option("--iterations", "Maximal number of batches.", "150"):convert(tonumber)
parser:option("--worlds", "Worlds that an actor simulates at the same time.", "16")
  :convert(tonumber)
parser:option("--goal", "Mean steps of the rounds of a batch that end the training.", "400")
  :convert(tonumber)
parser:option("--seed", "Seed of the random numbers.", "1"):convert(tonumber)
local args = parser:parse()

dist.init_process_group()
local rank, size = dist.get_rank(), dist.get_world_size()
local alone, LEARNER = size == 1, 0
local STEPS, LAST, DISCOUNT, LAMBDA = 64, 500, 0.99, 0.95

-- ---- the worlds: Barto, Sutton and Anderson (1983), one in each row ----

local GRAVITY, MASS, LENGTH, POLE_MOMENT, FORCE, DT = 9.8, 1.1, 0.5, 0.05, 10, 0.02
local EDGE, TILT = 2.4, math.rad(12)

local function new_worlds(n) return moth.rand(n, 4) * 0.1 - 0.05 end

-- Pushes each cart to the left (1) or right (2). Returns the next states.
local function advance(states, moves)
  local x, v, angle, spin = unpack(states:unbind(2))
  local sin, cos = angle:sin(), angle:cos()
  local push = ((moves:float() * 2 - 3) * FORCE + POLE_MOMENT * spin ^ 2 * sin) / MASS
  local turn = (GRAVITY * sin - cos * push) / (LENGTH * (4 / 3 - 0.1 * cos ^ 2 / MASS))
  return moth.stack({x + DT * v, v + DT * (push - POLE_MOMENT * turn * cos / MASS),
    angle + DT * spin, spin + DT * turn}, 2)
end

-- ---- the player: probabilities of the moves, and the value of a state ----

local Player = nn.class("Player", nn.Module)

function Player:init()
  self.hidden, self.move, self.value = nn.Linear(4, 64), nn.Linear(64, 2), nn.Linear(64, 1)
end

function Player:forward(states)
  local h = F.tanh(self.hidden(states))
  return F.log_softmax(self.move(h), -1), self.value(h):squeeze(-1)
end

-- ---- an actor ----

local worlds, ages = new_worlds(args.worlds), moth.zeros(args.worlds)

-- Simulates STEPS steps. Returns a row for each step of each world: the state, the move, its log
-- probability, its advantage, the return; and a pair: the rounds that ended, and their steps.
local function simulate(player)
  local rows, values, ends, counts = {}, {}, {}, moth.zeros(2)
  for t = 1, STEPS do
    local logp, value = player(worlds)
    local moves = logp:exp():multinomial(1)
    rows[t] = moth.cat({worlds, moves:float(), logp:gather(2, moves)}, 2)
    values[t] = value
    worlds, ages = advance(worlds, moves:squeeze(2)), ages + 1
    local over = (worlds:select(2, 1):abs():gt(EDGE) + worlds:select(2, 3):abs():gt(TILT)
      + ages:ge(LAST)):gt(0)
    ends[t] = over:float()
    counts:add_(moth.stack {ends[t]:sum(), (ends[t] * ages):sum()})
    worlds = moth.where(over:unsqueeze(2), new_worlds(args.worlds), worlds)
    ages = ages * (1 - ends[t])
  end
  local _, later = player(worlds)
  local advantage = moth.zeros(args.worlds)
  for t = STEPS, 1, -1 do
    local goes_on = 1 - ends[t]
    local surprise = 1 + DISCOUNT * goes_on * later - values[t]
    advantage = surprise + DISCOUNT * LAMBDA * goes_on * advantage
    rows[t] = moth.cat({rows[t], moth.stack({advantage, advantage + values[t]}, 2)}, 2)
    later = values[t]
  end
  return moth.cat(rows), counts
end

-- ---- the learner ----

local function learn(player, optimizer, batch)
  for _ = 1, 4 do
    for _, part in ipairs(batch:index_select(1, moth.randperm(batch:size(1))):split(256)) do
      local old, advantage, target = unpack(part:narrow(2, 6, 3):unbind(2))
      advantage = (advantage - advantage:mean()) / (advantage:std() + 1e-8)
      local logp, value = player(part:narrow(2, 1, 4))
      local chosen = logp:gather(2, part:narrow(2, 5, 1):long()):squeeze(2)
      local ratio = (chosen - old):exp()
      local gain = moth.minimum(ratio * advantage, ratio:clamp(0.8, 1.2) * advantage):mean()
      local entropy = -(logp:exp() * logp):sum(2):mean()
      local loss = F.smooth_l1_loss(value, target) * 0.5 - gain - entropy * 0.01
      optimizer:zero_grad()
      loss:backward()
      optimizer:step()
    end
  end
end

-- ---- the training ----

moth.manual_seed(args.seed) -- equal weights in all processes
local player = Player()
moth.manual_seed(args.seed + rank) -- different worlds
local optimizer = optim.Adam(player:parameters(), {lr = 2.5e-3})
local began, frames, best, batch = os.time(), 0, 0, nil

for iteration = 1, args.iterations do
  local state = moth.cat {nn.utils.parameters_to_vector(player:parameters()):detach(),
    moth.tensor {best >= args.goal and 1 or 0}}
  dist.broadcast(state, LEARNER) -- the weights, and whether the training is over
  if state[-1]:item() == 1 then break end
  moth.no_grad(nn.utils.vector_to_parameters, state:narrow(1, 1, state:numel() - 1),
    player:parameters())
  local rows, counts = moth.empty(0, 8), moth.zeros(2)
  if alone or rank ~= LEARNER then rows, counts = moth.no_grad(simulate, player) end
  if rank == LEARNER and batch then moth.scope(learn, player, optimizer, batch) end
  if rank ~= LEARNER then dist.send(rows, LEARNER) end
  if rank == LEARNER then
    local parts = {rows}
    for actor = 1, size - 1 do
      parts[actor + 1] = moth.empty(STEPS * args.worlds, 8)
      dist.recv(parts[actor + 1], actor)
    end
    batch = moth.cat(parts)
    frames = frames + batch:size(1)
  end
  dist.reduce(counts, LEARNER)
  local mean = counts[2]:item() / math.max(1, counts[1]:item())
  best = math.max(best, mean)
  if rank == LEARNER and (iteration % 10 == 0 or best >= args.goal) then
    print(("batch %3d  %6d steps  %.0f steps a round"):format(iteration, frames, mean))
  end
end

if rank == LEARNER then
  print(("%d actor%s: at best %.0f steps a round, after %d steps of simulation, %d s"):format(
    math.max(1, size - 1), size > 2 and "s" or "", best, frames, os.time() - began))
  assert(args.iterations < 100 or best >= math.min(args.goal, 195), "the pole was not balanced")
end
dist.destroy_process_group()
