--- interpolate.lua -- moth.interpolate, F.interpolate and x:interpolate(), with `antialias`: each
-- element of a smaller image averages all elements that it covers.
--
-- The triangle or cubic filter (a = -1/2) is scaled to the width of an element of the result. Rows
-- and columns are each multiplied by a matrix of weights, as in PIL and PyTorch.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local scope = require "moth.tensor.scope"

local own, ops = bind.under "interpolate", bind.ops

-- Returns the weights of `from` input elements in each of `to` result elements, (to, from), of x's
-- dtype. An element of the result is as wide as `scale` input elements.
local function weights(x, from, to, scale, cubic)
  local f64 = require("moth").float64
  local function middles(n)
    return ops.arange(0, n, 1, f64, x.device) + 0.5
  end
  local t = (middles(from) - (middles(to) * scale):unsqueeze(2)):abs() / math.max(scale, 1)
  local w
  if cubic then
    local near, far = (t * 1.5 - 2.5) * t * t + 1, ((2.5 - t * 0.5) * t - 4) * t + 2
    w = ops.where(t:lt(1), near, ops.where(t:lt(2), far, 0))
  else
    w = (1 - t):clamp(0)
  end
  return (w / w:sum(2, true)):to(x.dtype)
end

local function smooth(input, size, scale_factor, mode, align_corners, recompute)
  if mode ~= "bilinear" and mode ~= "bicubic" then
    errors.argument("interpolate", "antialias", "is for the modes 'bilinear' and 'bicubic' only, "
      .. "got '" .. mode .. "'")
  end
  local function sizes_of(x) -- the result's sizes for an empty batch, or the error
    return (own.interpolate(x:detach():narrow(1, 1, 0), size, scale_factor, mode, align_corners,
      recompute))
  end
  local fine, none = pcall(sizes_of, input)
  if not fine then own.interpolate(input, size, scale_factor, mode, align_corners, recompute) end
  local x = input.dtype.itemsize < 4 and input:float() or input
  for d = 4, 3, -1 do
    local from, to = x:size(d), none:size(d)
    local factor = type(scale_factor) == "table" and scale_factor[math.min(d - 2, #scale_factor)]
      or scale_factor
    local scale = factor and not recompute and 1 / factor or from / to
    if align_corners then scale = to > 1 and (from - 1) / (to - 1) or 0 end
    local w = weights(x, from, to, scale, mode == "bicubic")
    x = d == 4 and x:matmul(w:t()) or w:matmul(x)
  end
  if input.dtype == require("moth").uint8 then x = (x + 0.5):floor():clamp(0, 255) end
  return x:to(input.dtype)
end

--- F.interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
return {interpolate = define {
  name = "interpolate",
  doc = "Resizes sequences, images or volumes to `size`, or by `scale_factor`.",
  examples = "moth.randn(2, 3, 4, 5), {scale_factor = 2}\n"
    .. "moth.randn(2, 3, 4, 5), {6, 4}, {mode = 'bilinear', align_corners = true}\n"
    .. "moth.randn(2, 3, 5), {scale_factor = 1.5, mode = 'linear', "
    .. "recompute_scale_factor = true}\n"
    .. "moth.randn(1, 2, 7, 9), {3, 4}, {mode = 'bicubic', antialias = true}",
  args = {
    {"tensor", "input", "sequences, (N, C, L), images, (N, C, H, W), or volumes, "
      .. "(N, C, D, H, W)"},
    {"ints", "size", "sizes of the result: a number for all dimensions, or a list",
      optional = true},
    {"floats", "scale_factor", "instead of `size`: the result's size divided by the input's",
      optional = true},
    {"enum", "mode", "the interpolation: linear for sequences, bilinear "
      .. "and bicubic for images, trilinear for volumes", choices = {"nearest", "linear",
      "bilinear", "bicubic", "area", "nearest-exact", "trilinear"}},
    {"bool", "align_corners", "align the centres of the corner elements, not the corners? "
      .. "for linear, bilinear, bicubic, trilinear", default = false},
    {"bool", "recompute_scale_factor", "compute positions from the sizes, not from the "
      .. "factors?", default = false},
    {"bool", "antialias", "average all elements that an element of a smaller image covers? for "
      .. "bilinear, bicubic", default = false},
  },
  run = function(input, size, scale_factor, mode, align_corners, recompute, antialias)
    local f = antialias and scope.inside(smooth) or own.interpolate
    return (f(input, size, scale_factor, mode, align_corners, recompute))
  end,
}}
