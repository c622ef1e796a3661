--- sample.lua -- interpolates feature maps, for detection layers.
--
-- A map is a matrix with a row for each position and a column for each channel; a position's row
-- is base + y * width + x, from 0. So one gather reads all channels of all positions.

local bind = require "moth.binding.bind"
local window = require "moth.nn.layer.window"

local ops = bind.ops
local sample = {}

--- Rows of a map at integer positions: (..., channels).
-- @param rows  (positions, channels)
-- @param at    the row indices, from 0: an integer tensor of any shape
function sample.rows(rows, at)
  local shape = {}
  for i = 1, at:dim() do shape[i] = at:size(i) end
  shape[#shape + 1] = rows:size(2)
  return (rows:index_select(1, at:reshape(-1) + 1):view(shape))
end

-- A coordinate's lower and upper neighbours with their weights: each {element, weight}.
local function clamped(t, size)
  local low = t:clamp(0, size - 1):floor()
  local high = (low + 1):clamp_max(size - 1)
  local part = (t:clamp(0, size - 1) - low)
  local inside = t:ge(-1):logical_and(t:le(size)):to(t.dtype)
  return {low, (1 - part) * inside}, {high, part * inside}
end

-- Like clamped, with zeros outside of the map.
local function padded(t, size)
  local low = t:detach():floor()
  local part = t - low
  local function corner(at, weight)
    local inside = at:ge(0):logical_and(at:le(size - 1)):to(t.dtype)
    return {at:clamp(0, size - 1), weight * inside}
  end
  return corner(low, 1 - part), corner(low + 1, part)
end

--- Bilinear samples of a map: (..., channels), with the broadcast shape of base, y and x.
-- @param rows    (positions, channels)
-- @param base    the index of each map's first row, from 0
-- @param y, x    coordinates, which broadcast
-- @param height, width  of a map
-- @param pad     true: zeros outside; else the nearest element, up to one element away
function sample.bilinear(rows, base, y, x, height, width, pad)
  local find = pad and padded or clamped
  local ys, xs = {find(y, height)}, {find(x, width)}
  local sum
  for _, v in ipairs(ys) do
    for _, h in ipairs(xs) do
      local at = base + v[1]:long() * width + h[1]:long()
      local term = sample.rows(rows, at) * (v[2] * h[2]):unsqueeze(-1)
      sum = sum and sum + term or term
    end
  end
  return sum
end

--- Converts images to rows: (N, C, H, W) -> (N * groups * H * W, C / groups).
function sample.flat(input, groups)
  local n, c, h, w = input:size(1), input:size(2), input:size(3), input:size(4)
  return (input:reshape(n, groups, c / groups, h, w):permute(1, 2, 4, 5, 3)
    :reshape(n * groups * h * w, c / groups))
end

--- A number or a list of n (2 when absent) as a list.
function sample.sizes(value, n) return (window.list(value, n or 2)) end

--- 0, 1, ..., n - 1 of a dtype on a device, with `before` and `after` dims of 1 around it.
function sample.steps(n, like, before, after)
  local shape = {}
  for i = 1, before + 1 + after do shape[i] = i == before + 1 and n or 1 end
  return (ops.arange(0, n, 1, like.dtype, like.device):view(shape))
end

return sample
