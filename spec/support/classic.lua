--- classic.lua -- the network of MNIST examples, as the README writes it: images of 28 x 28 to log
-- probabilities of ten classes.

local moth = require "moth"

local nn, F = moth.nn, moth.nn.functional

local Net = nn.class("Net", nn.Module)

function Net:init()
  self.conv1 = nn.Conv2d {1, 10, kernel_size = 5}
  self.conv2 = nn.Conv2d {10, 20, kernel_size = 5}
  self.conv2_drop = nn.Dropout2d()
  self.fc1 = nn.Linear(320, 50)
  self.fc2 = nn.Linear(50, 10)
end

function Net:forward(x)
  x = F.relu(F.max_pool2d(self.conv1(x), 2))
  x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
  x = x:view(-1, 320)
  x = F.relu(self.fc1(x))
  x = F.dropout {x, training = self.training}
  x = self.fc2(x)
  return F.log_softmax(x, 2)
end

return Net
