-- Fuzzy XOR: the smallest problem that needs a hidden layer, with noisy points around the four
-- corners. Run it with: ./moth examples/03_xor.lua [--steps N]

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local parser = require "argparse"("03_xor", "Learns the exclusive or of two noisy inputs.")
parser:option("--steps", "Training steps.", "2000"):convert(tonumber)
parser:option("--seed", "Seed of the random numbers.", "1"):convert(tonumber)
parser:option("--device", "Device: cpu or cuda.", "cpu")
local args = parser:parse()

moth.manual_seed(args.seed)

-- ---- data: corners of the unit square, each coordinate off by up to 0.2 ----

local function batch(n)
  local corners = moth.randint(0, 2, {n, 2}):float()
  local target = corners[{{}, 1}]:ne(corners[{{}, 2}]):float():view(n, 1)
  local points = corners + (moth.rand(n, 2) - 0.5) * 0.4
  return points:to(args.device), target:to(args.device)
end

-- ---- the network ----

local Xor = nn.class("Xor", nn.Module)

function Xor:init(hidden)
  self.hidden = nn.Linear(2, hidden)
  self.out = nn.Linear(hidden, 1)
end

function Xor:forward(x)
  return self.out(F.tanh(self.hidden(x)))
end

local net = Xor(8):to(args.device)
local optimizer = optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
print(net)

-- ---- training ----

for step = 1, args.steps do
  moth.scope(function()
    local x, y = batch(32)
    optimizer:zero_grad()
    local loss = F.mse_loss(net(x), y)
    loss:backward()
    optimizer:step()
    if step % (args.steps / 5) == 0 then
      print(("step %5d  loss %.5f"):format(step, loss:item()))
    end
  end)
end

-- ---- the result ----

local corners = moth.tensor{{0, 0}, {0, 1}, {1, 0}, {1, 1}}:to(args.device)
local answers = moth.no_grad(net, corners):flatten():tolist()
for i, corner in ipairs(corners:tolist()) do
  print(("%d xor %d = %.3f"):format(corner[1], corner[2], answers[i]))
end

local x, y = batch(1000)
local right = moth.no_grad(net, x):gt(0.5):float():eq(y):float():mean():item()
print(("%.1f %% of 1000 fuzzy points right"):format(right * 100))
assert(right > 0.97, "XOR was not learned")
