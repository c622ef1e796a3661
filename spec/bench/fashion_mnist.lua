-- The program of process/fashion_mnist: loads Fashion-MNIST, trains the classic network, prints
-- the seconds of training and the accuracy after each epoch.
-- Run it with: ./moth spec/bench/fashion_mnist.lua [SEED] [EPOCHS]

package.path = (arg[0]:match "^(.*)/" or ".") .. "/?.lua;" .. package.path

local moth = require "moth"
local now = require("timing").now
local net = require("nets").mnist_net

local F, data = moth.nn.functional, moth.data

moth.manual_seed(tonumber(arg[1]) or 1)

local set = data.mnist()

local function images(x) return (x:float() / 255 - 0.286) / 0.353 end

local train = data.TensorDataset(images(set.train_images):unsqueeze(2), set.train_labels)
local test = data.TensorDataset(images(set.test_images):unsqueeze(2), set.test_labels)
local batches = data.DataLoader{train, batch_size = 64, shuffle = true}

net = net()
local optimizer = moth.optim.SGD(net:parameters(), {lr = 0.01, momentum = 0.5})

local function epoch()
  net:train()
  for input, target in batches do
    moth.scope(function()
      optimizer:zero_grad()
      F.nll_loss(net(input), target):backward()
      optimizer:step()
    end)
  end
end

local function accuracy()
  local right = 0
  net:eval()
  moth.no_grad(function()
    for input, target in data.DataLoader{test, batch_size = 1000} do
      right = right + net(input):argmax(2):eq(target):sum():item()
    end
  end)
  return right / test:len() * 100
end

for _ = 1, tonumber(arg[2]) or 1 do
  local start = now()
  epoch()
  print(("%.6f %.2f"):format(now() - start, accuracy()))
  io.flush()
end
