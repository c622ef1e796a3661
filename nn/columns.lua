--- columns.lua -- nn.Unfold and nn.Fold: the windows of images as columns, and back.

local class = require "moth.class"
local define = require "moth.define"
local Module = require "moth.nn.module"
local functional = require "moth.nn.functional"
local window = require "moth.nn.window"

local columns = {}

local STEPS = {
  {"int2", "kernel_size", "window height and width"},
  {"int2", "dilation", "step between the elements of a window", default = 1},
  {"int2", "padding", "border of zeros on each side", default = 0},
  {"int2", "stride", "step between windows", default = 1},
}

local function steps_text(self)
  return ("kernel_size=%s, dilation=%s, padding=%s, stride=%s"):format(
    window.text(self.kernel_size), window.text(self.dilation), window.text(self.padding),
    window.text(self.stride))
end

--- The windows of images as columns: (N, C, H, W) -> (N, C KH KW, L).
local Unfold = class("Unfold", Module)
columns.Unfold = Unfold
Unfold.signature = define.signature("Unfold", STEPS)

function Unfold:init(kernel_size, dilation, padding, stride)
  self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding,
    stride
end

function Unfold:forward(input)
  return (functional.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride))
end

Unfold.extra_repr = steps_text

--- Columns added up to images of output_size: (N, C KH KW, L) -> (N, C, H, W).
local Fold = class("Fold", Module)
columns.Fold = Fold
Fold.signature = define.signature("Fold", {
  {"int2", "output_size", "height and width of the images"}, unpack(STEPS),
})

function Fold:init(output_size, kernel_size, dilation, padding, stride)
  self.output_size = output_size
  self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding,
    stride
end

function Fold:forward(input)
  return (functional.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding,
    self.stride))
end

function Fold:extra_repr()
  return "output_size=" .. window.text(self.output_size) .. ", " .. steps_text(self)
end

return columns
