--- unet.lua -- U-Net (Ronneberger et al., 2015), with the parameter names of the repository
-- milesial/Pytorch-UNet.

local builder = require "moth.models.builder"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local nn = require "moth.nn"
local ops = require("moth.binding.bind").ops

local F = nn.functional
local Module, sight = nn.Module, nn.Module.sight
local unet = {}

--- Two convolutions of 3 x 3, each with BatchNorm and ReLU: the size of images is kept.
local DoubleConv = class("DoubleConv", Module)
unet.DoubleConv = DoubleConv

DoubleConv.signature = define.signature("DoubleConv", {
  {"int", "in_channels", "channels of the input", bounds = {1}},
  {"int", "out_channels", "channels of the result", bounds = {1}},
  {"int", "mid_channels", "channels between the layers", same = "out_channels", bounds = {1}},
})

function DoubleConv:init(inputs, outputs, middle)
  self.double_conv = nn.Sequential(
    nn.Conv2d {inputs, middle, kernel_size = 3, padding = 1, bias = false},
    nn.BatchNorm2d(middle), nn.ReLU {inplace = true},
    nn.Conv2d {middle, outputs, kernel_size = 3, padding = 1, bias = false},
    nn.BatchNorm2d(outputs), nn.ReLU {inplace = true})
end

function DoubleConv:forward(x) return (self.double_conv(x)) end

-- Halves the size.
local Down = class("Down", Module)

function Down:init(inputs, outputs)
  self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(inputs, outputs))
end

function Down:forward(x) return (self.maxpool_conv(x)) end

-- Doubles the size, and concatenates `skip`, the result of that size from the way down.
local Up = class("Up", Module)

function Up:init(inputs, outputs, bilinear)
  if bilinear then
    self.up = nn.Upsample {scale_factor = 2, mode = "bilinear", align_corners = true}
    self.conv = DoubleConv(inputs, outputs, inputs / 2)
  else
    self.up = nn.ConvTranspose2d {inputs, inputs / 2, kernel_size = 2, stride = 2}
    self.conv = DoubleConv(inputs, outputs)
  end
end

function Up:forward(x, skip)
  x = self.up(x)
  local dy, dx = skip:size(3) - x:size(3), skip:size(4) - x:size(4)
  if dy ~= 0 or dx ~= 0 then
    local left, top = math.floor(dx / 2), math.floor(dy / 2)
    x = F.pad(x, {left, dx - left, top, dy - top})
  end
  return (self.conv(ops.cat({skip, x}, 2)))
end

Up.forward = sight.scoped(Up.forward, {"up", "conv"})

local OutConv = class("OutConv", Module)

function OutConv:init(inputs, outputs) self.conv = nn.Conv2d(inputs, outputs, 1) end

function OutConv:forward(x) return (self.conv(x)) end

-- ---- the network ----

local ARGS = {
  {"int", "in_channels", "channels of the images", default = 3, bounds = {1}},
  {"int", "num_classes", "channels of the result; default: 2, or that of the weights",
   optional = true, first = 2, bounds = {1}},
  {"bool", "bilinear", "upsample by interpolation? false: by transposed convolutions",
   default = false},
  {"int", "base_channels", "channels at full size; they double at each of 4 steps down",
   default = 64, bounds = {2}},
}

--- Images (N, in_channels, H, W) -> scores of each pixel (N, num_classes, H, W), H and W from 16.
local UNet = class("UNet", Module)
unet.UNet = UNet

UNet.signature = define.signature("UNet", ARGS)

function UNet:init(in_channels, num_classes, bilinear, base)
  if base % 2 ~= 0 then
    errors.argument("UNet", "base_channels", "an even number is needed, got " .. base, "E_SHAPE")
  end
  local factor = bilinear and 2 or 1
  self.inc = DoubleConv(in_channels, base)
  self.down1 = Down(base, 2 * base)
  self.down2 = Down(2 * base, 4 * base)
  self.down3 = Down(4 * base, 8 * base)
  self.down4 = Down(8 * base, 16 * base / factor)
  self.up1 = Up(16 * base, 8 * base / factor, bilinear)
  self.up2 = Up(8 * base, 4 * base / factor, bilinear)
  self.up3 = Up(4 * base, 2 * base / factor, bilinear)
  self.up4 = Up(2 * base, base, bilinear)
  self.outc = OutConv(base, num_classes or 2)
end

function UNet:forward(x)
  local x1 = self.inc(x)
  local x2 = self.down1(x1)
  local x3 = self.down2(x2)
  local x4 = self.down3(x3)
  local y = self.up1(self.down4(x4), x4)
  y = self.up3(self.up2(y, x3), x2)
  return (self.outc(self.up4(y, x1)))
end

UNet.forward = sight.scoped(UNet.forward,
  {"inc", "down1", "down2", "down3", "down4", "up1", "up2", "up3", "up4", "outc"})

for _, own in ipairs {DoubleConv, Down, OutConv} do
  local field = own == DoubleConv and "double_conv" or own == Down and "maxpool_conv" or "conv"
  own.forward = sight.scoped(own.forward, {field})
end

--- The function that makes a U-Net.
unet.unet = builder.define {
  name = "models.unet", head = "outc.conv", sizes = builder.classes "outc.conv",
  doc = "U-Net (Ronneberger et al., 2015): images (N, in_channels, H, W) -> scores of each pixel "
    .. "(N, num_classes, H, W).",
  args = ARGS, examples = "{in_channels = 1, num_classes = 3, base_channels = 8}",
  make = function(o)
    return (UNet(o.in_channels, o.num_classes or 2, o.bilinear, o.base_channels))
  end,
}

return (builder.guarded(unet))
