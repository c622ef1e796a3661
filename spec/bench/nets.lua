--- The networks of workloads.txt. The sizes are those of spec/bench/peer/nets.py.

local moth = require "moth"

local nn, F = moth.nn, moth.nn.functional

local nets = {}

--- Linear layers with an activation between them: mlp(784, 512, 10); act is nn.ReLU unless given.
function nets.mlp(sizes, act)
  local net = nn.Sequential()
  for i = 1, #sizes - 1 do
    net:append(nn.Linear(sizes[i], sizes[i + 1]))
    if i < #sizes - 1 then net:append((act or nn.ReLU)()) end
  end
  return net
end

--- The classic network of MNIST examples, 1x28x28 -> 10 log probabilities.
function nets.mnist_net()
  return nn.Sequential(
    nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
    nn.Conv2d(10, 20, 5), nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
    nn.Linear(320, 50), nn.ReLU(), nn.Dropout(), nn.Linear(50, 10), nn.LogSoftmax(2))
end

-- ---- ResNet-18 (He et al., 2016) for 3x32x32 ----

local function conv_bn(n_in, n_out, size, stride)
  local conv = nn.Conv2d{n_in, n_out, size, stride = stride or 1, padding = (size - 1) / 2,
    bias = false}
  return conv, nn.BatchNorm2d(n_out)
end

local Residual = nn.class("Residual", nn.Module)

function Residual:init(n_in, n_out, stride)
  self.conv1, self.bn1 = conv_bn(n_in, n_out, 3, stride)
  self.conv2, self.bn2 = conv_bn(n_out, n_out, 3)
  if stride > 1 then self.skip = nn.Sequential(conv_bn(n_in, n_out, 1, stride)) end
end

function Residual:forward(x)
  local y = self.bn1(self.conv1(x)):relu_()
  y = self.bn2(self.conv2(y)) + (self.skip and self.skip(x) or x)
  return y:relu_()
end

function nets.resnet18()
  local net = nn.Sequential(conv_bn(3, 64, 3))
  net:append(nn.ReLU{inplace = true})
  local before = 64
  for _, channels in ipairs {64, 128, 256, 512} do
    net:append(Residual(before, channels, before == channels and 1 or 2))
    net:append(Residual(channels, channels, 1))
    before = channels
  end
  net:append(nn.AdaptiveAvgPool2d(1))
  net:append(nn.Flatten())
  return net:append(nn.Linear(512, 10))
end

-- ---- VGG-11 (Simonyan and Zisserman, 2015), its head a mean and one layer ----

function nets.vgg11()
  local net, before = nn.Sequential(), 3
  for _, channels in ipairs {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0} do
    if channels == 0 then
      net:append(nn.MaxPool2d(2))
    else
      net:append(nn.Conv2d{before, channels, 3, padding = 1})
      net:append(nn.ReLU{inplace = true})
      before = channels
    end
  end
  net:append(nn.AdaptiveAvgPool2d(1))
  net:append(nn.Flatten())
  return net:append(nn.Linear(512, 1000))
end

-- ---- a GPT (Radford et al., 2019) that can keep its keys and values ----

local Block = nn.class("Block", nn.Module)

function Block:init(width, heads)
  self.heads = heads
  self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
  self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
  self.mlp = nets.mlp({width, 4 * width, width}, nn.GELU)
end

--- @param cache  a table that keeps the keys and values of earlier positions, or nil
function Block:forward(x, cache)
  local n, length, width = x:size(1), x:size(2), x:size(3)
  local qkv = self.qkv(self.ln1(x)):view(n, length, 3, self.heads, width / self.heads)
  local q, k, v = unpack(qkv:permute(3, 1, 4, 2, 5):unbind(1))
  if cache then
    if cache.k then k, v = moth.cat({cache.k, k}, 3), moth.cat({cache.v, v}, 3) end
    cache.k, cache.v = k, v
  end
  local seen = F.scaled_dot_product_attention{q, k, v, is_causal = length > 1}
  x = x + self.proj(seen:transpose(2, 3):reshape(n, length, width))
  return x + self.mlp(self.ln2(x))
end

local Gpt = nn.class("Gpt", nn.Module)

function Gpt:init(vocabulary, context, width, heads, layers)
  self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
  self.blocks = nn.ModuleList()
  for _ = 1, layers do self.blocks:append(Block(width, heads)) end
  self.ln, self.head = nn.LayerNorm(width), nn.Linear{width, vocabulary, bias = false}
end

--- (N, L) letters -> (N, L, vocabulary). start: the number of letters in the caches.
function Gpt:forward(ids, caches, start)
  start = start or 0
  local x = self.token(ids) + self.place(moth.range(start + 1, start + ids:size(2)))
  for i, block in ipairs(self.blocks) do x = block(x, caches and caches[i]) end
  return self.head(self.ln(x))
end

nets.Gpt = Gpt

function nets.gpt()
  return Gpt(65, 128, 256, 8, 4)
end

-- ---- two LSTM layers over letters ----

local CharLstm = nn.class("CharLstm", nn.Module)

function CharLstm:init(symbols, width, layers)
  self.embed = nn.Embedding(symbols, width)
  self.lstm = nn.LSTM{width, width, num_layers = layers, batch_first = true}
  self.out = nn.Linear(width, symbols)
end

function CharLstm:forward(ids)
  return self.out((self.lstm(self.embed(ids))))
end

function nets.char_lstm(width)
  return CharLstm(65, width or 256, 2)
end

-- ---- U-Net (Ronneberger et al., 2015) ----

local function double_conv(n_in, n_out)
  return nn.Sequential(
    nn.Conv2d{n_in, n_out, 3, padding = 1}, nn.BatchNorm2d(n_out), nn.ReLU{inplace = true},
    nn.Conv2d{n_out, n_out, 3, padding = 1}, nn.BatchNorm2d(n_out), nn.ReLU{inplace = true})
end

--- One level around the level below, which maps n channels to 2n at half the size.
local Level = nn.class("Level", nn.Module)

function Level:init(n_in, n, below)
  self.down, self.below = double_conv(n_in, n), below
  self.up, self.join = nn.ConvTranspose2d{2 * n, n, 2, stride = 2}, double_conv(2 * n, n)
end

function Level:forward(x)
  local skip = self.down(x)
  local up = self.up(self.below(F.max_pool2d(skip, 2)))
  return self.join(moth.cat({skip, up}, 2))
end

function nets.unet()
  local bottom = Level(32, 64, double_conv(64, 128))
  return nn.Sequential(Level(1, 16, Level(16, 32, bottom)), nn.Conv2d(16, 1, 1))
end

-- ---- DCGAN (Radford et al., 2016) for 3x64x64, ngf = ndf = width, or 32 ----

function nets.generator(width)
  local net, w = nn.Sequential(), width or 32
  local before, stride = 100, 1
  for _, channels in ipairs {8 * w, 4 * w, 2 * w, w, 3} do
    net:append(nn.ConvTranspose2d{before, channels, 4, stride = stride, padding = stride - 1,
      bias = false})
    if channels > 3 then
      net:append(nn.BatchNorm2d(channels))
      net:append(nn.ReLU{inplace = true})
    end
    before, stride = channels, 2
  end
  return net:append(nn.Tanh())
end

function nets.discriminator(width)
  local net, before, w = nn.Sequential(), 3, width or 32
  for _, channels in ipairs {w, 2 * w, 4 * w, 8 * w} do
    net:append(nn.Conv2d{before, channels, 4, stride = 2, padding = 1, bias = false})
    if before > 3 then net:append(nn.BatchNorm2d(channels)) end
    net:append(nn.LeakyReLU{0.2, inplace = true})
    before = channels
  end
  net:append(nn.Conv2d{8 * w, 1, 4, bias = false})
  net:append(nn.Sigmoid())
  return net:append(nn.Flatten(1))
end

-- ---- a variational autoencoder (Kingma and Welling, 2014) ----

local Vae = nn.class("Vae", nn.Module)

function Vae:init()
  self.hidden, self.mean, self.logvar = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
  self.widen, self.out = nn.Linear(20, 400), nn.Linear(400, 784)
end

--- Images -> reconstructions, and the mean and log variance of their codes.
function Vae:forward(x)
  local h = F.relu(self.hidden(x))
  local mean, logvar = self.mean(h), self.logvar(h)
  local code = mean + moth.randn_like(mean) * (0.5 * logvar):exp()
  return self.out(F.relu(self.widen(code))):sigmoid(), mean, logvar
end

nets.Vae = Vae

--- The network that a row names: "mlp:784,512,10", "resnet18".
function nets.build(options)
  local name, sizes = options.net:match "^(%w+_?%w*):?(.*)$"
  if name ~= "mlp" then return nets[name]() end
  local list = {}
  for size in sizes:gmatch "%d+" do list[#list + 1] = tonumber(size) end
  return nets.mlp(list, options.act and nn[options.act])
end

return nets
