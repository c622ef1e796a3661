--- vgg.lua -- VGG (Simonyan and Zisserman, 2014), with torchvision's parameter names.

local builder = require "moth.models.builder"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local initial = require "moth.models.initial"
local nn = require "moth.nn"
local ops = require("moth.binding.bind").ops

local Module, sight = nn.Module, nn.Module.sight
local vgg = {}

-- Channels of the convolutions; 0 is a MaxPool2d.
local SIZES = {
  vgg11 = {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0},
  vgg13 = {64, 64, 0, 128, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0},
  vgg16 = {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0},
  vgg19 = {64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512, 512, 512,
           512, 0},
}

local function layers_of(sizes, batch_norm)
  local layers, before = {}, 3
  for _, channels in ipairs(sizes) do
    if channels == 0 then
      layers[#layers + 1] = nn.MaxPool2d {kernel_size = 2, stride = 2}
    else
      layers[#layers + 1] = nn.Conv2d {before, channels, kernel_size = 3, padding = 1}
      if batch_norm then layers[#layers + 1] = nn.BatchNorm2d(channels) end
      layers[#layers + 1] = nn.ReLU {inplace = true}
      before = channels
    end
  end
  return nn.Sequential(layers)
end

local DROPOUT = {"float", "dropout", "probability of a zero in the classifier", default = 0.5,
                 bounds = {0, 1}}
local INIT = {"bool", "init_weights", "initialize as torchvision does? false: as the layers do",
              default = true}

--- Images (N, 3, H, W) -> scores (N, num_classes).
local VGG = class("VGG", Module)
vgg.VGG = VGG

VGG.signature = define.signature("VGG", {
  {"any", "features", "a module: images -> (N, 512, H', W')"},
  {"int", "num_classes", "size of the result", default = 1000, bounds = {1}},
  INIT, DROPOUT,
})

local function build(self, num_classes, dropout)
  self.avgpool = nn.AdaptiveAvgPool2d(7)
  self.classifier = nn.Sequential(
    nn.Linear(512 * 7 * 7, 4096), nn.ReLU {inplace = true}, nn.Dropout(dropout),
    nn.Linear(4096, 4096), nn.ReLU {inplace = true}, nn.Dropout(dropout),
    nn.Linear(4096, num_classes))
end

function VGG:init(features, num_classes, init_weights, dropout)
  self.features = features
  initial.skip(build, self, num_classes, dropout)
  if init_weights then
    initial.fill(self, {Conv2d = initial.conv, Linear = initial.linear(0.01)})
  else
    initial.fill(self, {Conv2d = initial.usual, Linear = initial.usual})
  end
end

function VGG:forward(x)
  x = self.avgpool(self.features(x))
  return (self.classifier(ops.flatten(x, 2)))
end

VGG.forward = sight.scoped(VGG.forward, {"features", "avgpool", "classifier"})

-- ---- builders ----

for name, sizes in pairs(SIZES) do
  for _, ending in ipairs {"", "_bn"} do
    vgg[name .. ending] = builder.define {
      name = "models." .. name .. ending, head = "classifier.6",
      sizes = builder.classes "classifier.6",
      doc = ("VGG-%s (Simonyan and Zisserman, 2014)%s: images (N, 3, H, W) -> scores (N, "
        .. "num_classes)."):format(name:match "%d+", ending == "" and "" or " with BatchNorm"),
      args = {builder.NUM_CLASSES, INIT, DROPOUT}, examples = "{num_classes = 10}",
      make = function(o)
        local features = initial.skip(layers_of, sizes, ending ~= "")
        return (VGG(features, {num_classes = o.num_classes, init_weights = o.init_weights,
          dropout = o.dropout}))
      end,
    }
  end
end

return (builder.guarded(vgg))
