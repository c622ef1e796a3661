--- resize.lua -- nn.Upsample and its variants; nn.PixelShuffle, PixelUnshuffle, Unfold, Fold.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local functional = require "moth.nn.functional"
local layer = require "moth.nn.layer"
local window = require "moth.nn.layer.window"

local resize = {}

local SIZE = {"ints", "size", "sizes of the result: a number for all dimensions, or a list",
  optional = true}
local FACTOR = {"floats", "scale_factor", "the result's size divided by the input's: a number, "
  .. "or a list",
  optional = true, bounds = {0, open = true}}

local function copied(v)
  return type(v) == "table" and {unpack(v)} or v
end

--- Resizes sequences, images or volumes: (N, C, L), (N, C, H, W) or (N, C, D, H, W), to `size` or
-- by `scale_factor`.
local Upsample = class("Upsample", Module)
resize.Upsample = Upsample

Upsample.signature = define.signature("Upsample", {
  SIZE, FACTOR,
  {"enum", "mode", "the interpolation",
    choices = {"nearest", "linear", "bilinear", "bicubic", "area", "nearest-exact",
      "trilinear"}},
  {"bool", "align_corners", "align the centres of corner elements?", default = false},
  {"bool", "recompute_scale_factor", "use the ratio of the sizes instead of the factor?",
    default = false},
})

function Upsample:init(size, scale_factor, mode, align_corners, recompute_scale_factor)
  self.size, self.scale_factor = copied(size), copied(scale_factor)
  self.mode, self.align_corners = mode, align_corners
  self.recompute_scale_factor = recompute_scale_factor or false
end

function Upsample:forward(input)
  return (functional.interpolate(input, self.size, self.scale_factor, self.mode,
    self.align_corners, self.recompute_scale_factor))
end
Module.passing[Upsample.forward] = true

function Upsample:extra_repr()
  local how = self.scale_factor ~= nil and "scale_factor=" .. window.text(self.scale_factor)
    or "size=" .. window.text(self.size)
  return ("%s, mode='%s'"):format(how, self.mode)
end

--- Resizes images by nearest neighbour: (N, C, H, W) -> (N, C, H', W').
local UpsamplingNearest2d = class("UpsamplingNearest2d", Upsample)
resize.UpsamplingNearest2d = UpsamplingNearest2d
UpsamplingNearest2d.signature = define.signature("UpsamplingNearest2d", {SIZE, FACTOR})

function UpsamplingNearest2d:init(size, scale_factor)
  Upsample.init(self, size, scale_factor, "nearest", false)
end

--- Resizes images bilinearly with aligned corners: (N, C, H, W) -> (N, C, H', W').
local UpsamplingBilinear2d = class("UpsamplingBilinear2d", Upsample)
resize.UpsamplingBilinear2d = UpsamplingBilinear2d
UpsamplingBilinear2d.signature = define.signature("UpsamplingBilinear2d", {SIZE, FACTOR})

function UpsamplingBilinear2d:init(size, scale_factor)
  Upsample.init(self, size, scale_factor, "bilinear", true)
end

return (layer.of(resize, {
  PixelShuffle = "pixel_shuffle", PixelUnshuffle = "pixel_unshuffle", Unfold = "unfold",
  Fold = "fold",
}))
