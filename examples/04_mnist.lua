-- A small convolutional network on real images: train, save, load into a new net, test again.
-- Run it with: ./moth examples/04_mnist.lua [--epochs N] [--data FOLDER] ...

local moth = require "moth"
local nn, F, optim, data = moth.nn, moth.nn.functional, moth.optim, moth.data

local parser = require "argparse"("04_mnist", "Trains a small convolutional network.")
parser:option("--epochs", "Passes over the training images.", "1"):convert(tonumber)
parser:option("--batch-size", "Images per step.", "64"):convert(tonumber)
parser:option("--lr", "Learning rate.", "0.01"):convert(tonumber)
parser:option("--momentum", "Momentum of SGD.", "0.5"):convert(tonumber)
parser:option("--seed", "Seed of the random numbers.", "1"):convert(tonumber)
parser:option("--data", "Folder of the four IDX files (default: Debian's Fashion-MNIST).")
parser:option("--limit", "Number of images to use of each set (default: all)."):convert(tonumber)
parser:option("--out", "File for the model.", os.tmpname())
parser:option("--device", "Device: cpu or cuda.", "cpu")
local args = parser:parse()

moth.manual_seed(args.seed)

-- ---- the network ----

local Net = nn.class("Net", nn.Module)

function Net:init()
  self.conv1 = nn.Conv2d{1, 10, kernel_size = 5}
  self.conv2 = nn.Conv2d{10, 20, kernel_size = 5}
  self.conv2_drop = nn.Dropout2d()
  self.fc1 = nn.Linear(320, 50)
  self.fc2 = nn.Linear(50, 10)
end

function Net:forward(x)
  x = F.relu(F.max_pool2d(self.conv1(x), 2))
  x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
  x = x:view(-1, 320)
  x = F.relu(self.fc1(x))
  x = F.dropout{x, training = self.training}
  x = self.fc2(x)
  return F.log_softmax(x, 2)
end

-- ---- the images ----

-- Synthetic digits, used if the data set is not installed: seven strokes, shifted, with noise.
local STROKES = {"abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg",
  "abcdfg"}
local STROKE_AT = {a = {5, 5, 9, 18}, d = {22, 22, 9, 18}, g = {13, 13, 9, 18}, f = {5, 13, 9, 9},
  b = {5, 13, 18, 18}, e = {13, 22, 9, 9}, c = {13, 22, 18, 18}} -- rows and columns, first to last

local function drawn_digits(n)
  local images, labels = moth.zeros(n, 28, 28), moth.randint(1, 11, {n})
  for i, label in ipairs(labels:tolist()) do
    local down, right = math.random(-3, 3), math.random(-3, 3)
    for stroke in STROKES[label]:gmatch "." do
      local top, bottom, left, last = unpack(STROKE_AT[stroke])
      images[{i, {top + down, bottom + 1 + down}, {left + right, last + 1 + right}}] = 200
    end
  end
  return (images + moth.rand(n, 28, 28) * 55):to(moth.uint8), labels
end

local function images_or_drawing()
  local found, set = pcall(data.mnist, args.data)
  if found then return set end
  if args.data then error(set, 0) end
  print(set)
  print "Training on digits drawn by this script instead."
  math.randomseed(args.seed)
  local drawn = {}
  drawn.train_images, drawn.train_labels = drawn_digits(6000)
  drawn.test_images, drawn.test_labels = drawn_digits(1000)
  return drawn
end

local function dataset(images, labels)
  local n = math.min(args.limit or math.huge, #images)
  local x = images[{{1, n}}]:float() / 255
  return data.TensorDataset(((x - 0.2860) / 0.3530):unsqueeze(2), labels[{{1, n}}])
end

local set = images_or_drawing()
local train_set = dataset(set.train_images, set.train_labels)
local test_set = dataset(set.test_images, set.test_labels)
local train_loader = data.DataLoader{train_set, batch_size = args.batch_size, shuffle = true}
local test_loader = data.DataLoader{test_set, batch_size = 1000}

-- ---- training and testing ----

local function train(net, optimizer, epoch)
  net:train()
  local bar = moth.progress(train_loader, {desc = "epoch " .. epoch, unit = "images"})
  for input, target in bar do
    moth.scope(function()
      optimizer:zero_grad()
      local loss = F.nll_loss(net(input:to(args.device)), target:to(args.device))
      loss:backward()
      optimizer:step()
      bar:set_postfix{loss = loss}
    end)
  end
end

local function test(net)
  net:eval()
  local loss, right = 0, 0
  moth.no_grad(function()
    for input, target in test_loader do
      moth.scope(function()
        local output = net(input:to(args.device))
        target = target:to(args.device)
        loss = loss + F.nll_loss{output, target, reduction = "sum"}:item()
        right = right + output:argmax(2):eq(target):sum():item()
      end)
    end
  end)
  return loss / test_set:len(), 100 * right / test_set:len()
end

local net = Net():to(args.device)
local optimizer = optim.SGD(net:parameters(), {lr = args.lr, momentum = args.momentum})
print(net)

local loss, accuracy
for epoch = 1, args.epochs do
  train(net, optimizer, epoch)
  loss, accuracy = test(net)
  print(("epoch %d  test loss %.4f  accuracy %.2f %%"):format(epoch, loss, accuracy))
end

-- ---- save, load, compare ----

moth.save(net:state_dict(), args.out)
local again = Net():to(args.device)
again:load_state_dict(moth.load(args.out))
local _, same = test(again)
accuracy = accuracy or same -- no epoch was run
assert(same == accuracy, "the loaded network answers differently")
local few = args.epochs * train_set:len() < 600 -- too few images to learn from
assert(few or accuracy > 20, "nothing was learned")
print(("saved to %s and loaded: accuracy %.2f %%"):format(args.out, same))
