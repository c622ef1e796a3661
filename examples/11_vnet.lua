-- Segmentation of volumes: a small V-Net (Milletari et al., 2016) finds bodies in strong noise, so
-- strong that the value of a single voxel is not enough. The loss is the Dice coefficient, the
-- overlap of prediction and target, as a Function with its own gradient.
-- Run it with: ./moth examples/11_vnet.lua [--steps N] [--device cuda]

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local parser = require "argparse"("11_vnet", "Segments volumes with a V-Net.")
parser:option("--steps", "Training steps.", "80"):convert(tonumber)
parser:option("--batch-size", "Volumes per step.", "4"):convert(tonumber)
parser:option("--size", "Voxels along each side, a multiple of 4.", "16"):convert(tonumber)
parser:option("--noise", "Standard deviation of the noise; bodies have brightness 1.", "0.6")
  :convert(tonumber)
parser:option("--seed", "Seed of the random numbers.", "1"):convert(tonumber)
parser:option("--device", "Device: cpu or cuda.", "cpu")
local args = parser:parse()

moth.manual_seed(args.seed)

-- ---- the data: n volumes with two ellipsoids each, and their masks, (N, 1, D, H, W) ----

local function bodies(n)
  local size = args.size
  local at, inside = moth.arange(size):float(), moth.zeros(n, 1, size, size, size)
  local function between(low, high) return low + (high - low) * moth.rand(n, 1, 1, 1, 1) end
  for _ = 1, 2 do
    local distance = 0
    for _, axis in ipairs {{-1, 1, 1}, {1, -1, 1}, {1, 1, -1}} do
      local centre, radius = between(0.25 * size, 0.75 * size), between(0.15 * size, 0.3 * size)
      distance = distance + ((at:view(axis) - centre) / radius):square()
    end
    inside = inside:maximum(distance:lt(1):float())
  end
  return (inside + args.noise * moth.randn_like(inside)):to(args.device), inside:to(args.device)
end

-- ---- the loss: 1 - Dice; Dice is twice the intersection over the sum of both sizes ----

local Dice = nn.class("Dice", moth.autograd.Function)

function Dice.forward(ctx, answer, truth)
  local shared = 2 * (answer * truth):sum()
  local all = answer:square():sum() + truth:square():sum()
  ctx:save_for_backward(answer, truth, shared, all)
  return shared / all
end

function Dice.backward(ctx, grad)
  local answer, truth, shared, all = unpack(ctx.saved_tensors)
  return grad * 2 * (truth - answer * (shared / all)) / all, nil -- no gradient for the target
end

local x = moth.rand(2, 5, {dtype = moth.float64, requires_grad = true})
assert(moth.autograd.gradcheck(function(v) return Dice.apply(v, x:detach():round()) end, {x}))

-- ---- the network: down to a quarter of the size, and up again with skip connections ----

-- A residual block.
local Residual = nn.class("Residual", nn.Module)

function Residual:init(channels)
  self.conv = nn.Conv3d{channels, channels, kernel_size = 3, padding = 1}
  self.norm, self.relu = nn.BatchNorm3d(channels), nn.PReLU(channels)
end

function Residual:forward(input)
  return self.relu(input + self.norm(self.conv(input)))
end

local Down = nn.class("Down", nn.Module)

function Down:init(channels)
  self.down = nn.Conv3d{channels, 2 * channels, kernel_size = 2, stride = 2}
  self.norm, self.relu = nn.BatchNorm3d(2 * channels), nn.PReLU(2 * channels)
  self.drop, self.residual = nn.Dropout3d(0.1), Residual(2 * channels)
end

function Down:forward(input)
  return self.residual(self.drop(self.relu(self.norm(self.down(input)))))
end

local Up = nn.class("Up", nn.Module)

function Up:init(channels, beside)
  self.up = nn.ConvTranspose3d{channels, beside, kernel_size = 2, stride = 2}
  self.norm, self.relu = nn.BatchNorm3d(beside), nn.PReLU(beside)
  self.residual = Residual(2 * beside)
end

function Up:forward(input, beside)
  return self.residual(moth.cat({self.relu(self.norm(self.up(input))), beside}, 2))
end

local VNet = nn.class("VNet", nn.Module)

function VNet:init(width)
  self.first = nn.Sequential(nn.Conv3d{1, width, kernel_size = 3, padding = 1},
    nn.BatchNorm3d(width), nn.PReLU(width))
  self.down2, self.down4 = Down(width), Down(2 * width)
  self.up2, self.up1 = Up(4 * width, 2 * width), Up(4 * width, width)
  self.last = nn.Conv3d(2 * width, 2, 1)
end

--- Volumes -> the probability of each voxel to be inside a body.
function VNet:forward(input)
  local whole = self.first(input)
  local half = self.down2(whole)
  local y = self.up1(self.up2(self.down4(half), half), whole)
  return F.softmax(self.last(y), 2)[{{}, {2, 2}}]
end

local net = VNet(8):to(args.device)

-- ---- training, and a test on new volumes ----

local optimizer = optim.Adam(net:parameters(), {lr = 0.01})
for step = 1, args.steps do
  moth.scope(function()
    local input, truth = bodies(args.batch_size)
    optimizer:zero_grad()
    local dice = Dice.apply(net(input), truth)
    local loss = 1 - dice
    loss:backward()
    optimizer:step()
    if step % 20 == 0 then print(("step %3d  Dice %.3f"):format(step, dice:item())) end
  end)
end

net:eval()
local input, truth = bodies(16)
local answer = moth.no_grad(function() return net(input):gt(0.5):float() end)
local found = Dice.apply(answer, truth):item()
local alone = Dice.apply(input:gt(0.5):float(), truth):item()
print(("held out: Dice %.3f; each voxel by itself: %.3f"):format(found, alone))
if args.steps < 80 then print("bodies take some 80 steps to find") end
assert(args.steps < 80 or found > 0.9, "the bodies were not found")
