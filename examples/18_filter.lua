-- A learned image filter: a small convolutional net learns to remove noise from photographs. It
-- trains on pieces of one photograph and is tested on another. The result is written as a PNG with
-- the noisy, the filtered and the original picture.
-- Run it with: ./moth examples/18_filter.lua [--data FOLDER] [--steps N] [--out filter.png]
-- The photographs china.jpg and flower.jpg come with Debian's package python3-sklearn; without them
-- the example draws pictures. Reading JPEG needs a library: apt-get install libturbojpeg0

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local parser = require "argparse"("18_filter", "Learns to remove noise from pictures.")
parser:option("--data", "Folder of china.jpg and flower.jpg.",
  "/usr/lib/python3/dist-packages/sklearn/datasets/images")
parser:option("--steps", "Training steps.", "400"):convert(tonumber)
parser:option("--out", "The picture to write.", os.tmpname() .. ".png")
parser:option("--seed", "Random seed.", "1"):convert(tonumber)
local args = parser:parse()
moth.manual_seed(args.seed)

local SIGMA = 25 / 255 -- the noise
local SIDE, BATCH = 48, 16

-- ---- pictures ----

-- Discs of random colors, blurred a little: (3, 240, 320).
local function drawing()
  local y = moth.arange(240):float():view(240, 1)
  local x = moth.arange(320):float():view(1, 320)
  local picture = moth.rand(3, 1, 1):expand(3, 240, 320)
  for _ = 1, 40 do
    local at, radius = moth.rand(2):tolist(), 8 + 40 * moth.rand(1):item()
    local distance = ((y - at[1] * 240):square() + (x - at[2] * 320):square()):sqrt()
    picture = moth.where(distance:lt(radius), moth.rand(3, 1, 1), picture)
  end
  return F.avg_pool2d(picture:unsqueeze(1), 3, 1, 1):squeeze(1)
end

-- A picture (3, H, W) from 0 to 1.
local function load(name)
  local path = args.data .. "/" .. name
  local file = io.open(path)
  if not file then return drawing(), false end
  file:close()
  return moth.io.read_image(path, "rgb"):float() / 255, true
end

local train, photographs = load "china.jpg"
local test = load "flower.jpg"
if not photographs then print "no photographs: python3-sklearn brings them; drawing some" end

local function with_noise(x) return x + moth.randn(x.shape) * SIGMA end

-- Random pieces (BATCH, 3, SIDE, SIDE), half of them mirrored.
local function pieces()
  local list = {}
  for i = 1, BATCH do
    local top = moth.randint(1, train:size(2) - SIDE + 2, {1}):item()
    local left = moth.randint(1, train:size(3) - SIDE + 2, {1}):item()
    local piece = train:narrow(2, top, SIDE):narrow(3, left, SIDE)
    list[i] = i % 2 == 0 and piece:flip(3) or piece
  end
  return moth.stack(list)
end

-- ---- the filter ----

local Filter = nn.class("Filter", nn.Module)

function Filter:init(width)
  self.layers = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), nn.ReLU(),
    nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(),
    nn.Conv2d(width, 3, 3, 1, 1))
end

function Filter:forward(x) return x - self.layers(x) end -- the layers find the noise

-- The peak signal-to-noise ratio in dB.
local function psnr(x, want) return -10 * math.log10(F.mse_loss(x:clamp(0, 1), want):item()) end

local net = Filter(32)
local optimizer = optim.Adam(net:parameters(), {lr = 2e-3})
local schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

local learn = moth.capture(function(clean)
  local loss = F.mse_loss(net(with_noise(clean)), clean)
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  return loss
end)

for step = 1, args.steps do
  local loss = moth.scope(function() return learn(pieces()):item() end)
  schedule:step()
  if step % 100 == 0 then print(("step %d  loss %.5f"):format(step, loss)) end
end

-- ---- the result ----

local noisy = with_noise(test)
local filtered = moth.no_grad(net, noisy:unsqueeze(1)):squeeze(1)
local before, after = psnr(noisy, test), psnr(filtered, test)
-- PyTorch, the same net and steps, seed 1: 27.4 dB
print(("the noisy picture has %.2f dB, the filtered one %.2f dB"):format(before, after))
moth.utils.save_image({noisy:clamp(0, 1), filtered:clamp(0, 1), test}, args.out, {nrow = 3})
print("written to " .. args.out)
assert(after > before + (args.steps >= 400 and 5 or 0))
