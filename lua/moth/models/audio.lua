--- audio.lua -- ResNets for spectrograms, which have one channel.

local builder = require "moth.models.builder"
local class = require "moth.base.class"
local lib = require "moth.binding.lib"
local resnet = require "moth.models.resnet"

local audio = {}

-- Converts the first convolution of weights for pictures to one channel: the sum over the three
-- channels. Its result is that of the old one for a grey picture.
local function sum_channels(dict, own)
  local given, name = dict["conv1.weight"], "conv1.weight"
  if lib.istensor(given) and given:dim() == 4 and given:size(2) == 3 and own[name]:size(2) == 1 then
    dict[name] = given:sum(2, true)
  end
end

--- A ResNet for spectrograms: (N, 1, frequencies, frames) or (N, frequencies, frames) -> scores
-- (N, num_classes). Any number of frequencies and frames is possible.
local AudioResNet = class("AudioResNet", resnet.ResNet)

function AudioResNet:forward(x)
  if x:dim() == 3 then x = x:unsqueeze(2) end
  return (resnet.ResNet.forward(self, x))
end

local function make(name, options)
  local size = resnet.SIZES[name]
  return (AudioResNet(size[1], size[2], {num_classes = options.num_classes, in_channels = 1,
    zero_init_residual = options.zero_init_residual}))
end

for _, name in ipairs {"resnet18", "resnet34", "resnet50"} do
  audio["audio_" .. name] = builder.define {
    name = "models.audio_" .. name, head = "fc", sizes = builder.classes "fc",
    doc = ("ResNet-%s for sound: spectrograms (N, 1, frequencies, frames) -> scores (N, "
      .. "num_classes). Weights for pictures fit: the first convolution is summed over its "
      .. "channels."):format(name:match "%d+"),
    args = {builder.NUM_CLASSES, resnet.OPTIONS[1]},
    examples = "{num_classes = 10}",
    adapt = sum_channels,
    make = function(options) return (make(name, options)) end,
  }
end

return (builder.guarded(audio))
