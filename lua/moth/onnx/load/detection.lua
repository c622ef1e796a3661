--- detection.lua -- nodes of an ONNX graph that process boxes.

local M = require "moth"
local rows = require "moth.onnx.load.rows"

local N, row, refuse = rows.N, rows.row, rows.refuse

-- ---- non-maximum suppression ----

-- Corners (N, 4) as minimum and maximum of both sides.
local function corners(boxes, center)
  local u, v = boxes:narrow(2, 1, 2), boxes:narrow(2, 3, 2)
  if center then return u - v / 2, u + v / 2 end
  return M.minimum(u, v), M.maximum(u, v)
end

-- Which pairs of boxes have an IoU above the threshold, as lists of booleans.
local function overlaps(boxes, center, share)
  local low, high = corners(boxes:double(), center)
  local size = (high - low):prod(2)
  local from = M.maximum(low:unsqueeze(1), low:unsqueeze(2))
  local to = M.minimum(high:unsqueeze(1), high:unsqueeze(2))
  local common = (to - from):clamp {min = 0}:prod(3)
  local all = size:unsqueeze(1) + size:unsqueeze(2) - common
  return common:gt(0):logical_and((common / all):gt(share)):cpu():tolist()
end

N.NonMaxSuppression = row("2 center_point_box=0", function(a, boxes, scores, most, share, least)
  local limit = most and most[1] or 0
  local found = {}
  for b = 1, limit > 0 and boxes:size(1) or 0 do
    local over = overlaps(boxes[b], a.center_point_box == 1, share and share[1] or 0)
    for c = 1, scores:size(2) do
      local values, order = scores[b][c]:sort {descending = true, stable = true}
      values, order = values:cpu():tolist(), order:cpu():tolist()
      local kept = {}
      for k, value in ipairs(values) do
        if #kept >= limit or least and not (value > least[1]) then break end
        local at, good = tonumber(order[k]), true
        for _, other in ipairs(kept) do good = good and not over[at][other] end
        if good then
          kept[#kept + 1] = at
          found[#found + 1] = {b - 1, c - 1, at - 1}
        end
      end
    end
  end
  if #found == 0 then return M.zeros(0, 3, {dtype = M.int64}):to(boxes.device) end
  return M.tensor(found, {dtype = M.int64}):to(boxes.device)
end, "3 4 5", "loose")

-- ---- RoI pooling ----

-- The four neighbours and their weights at positions (L) of an axis of n elements; weights are 0
-- more than one element outside.
local function split(places, n)
  local outside = places:lt(-1):logical_or(places:gt(n))
  local at = places:clamp(0, n - 1)
  local low = at:detach():floor():clamp {max = math.max(n - 2, 0)}
  local high, part = (low + 1):clamp {max = n - 1}, at - low
  local zero = M.zeros_like(part)
  return low:long(), high:long(), M.where(outside, zero, 1 - part), M.where(outside, zero, part)
end

-- Samples of one region: image (C, H, W), positions along both sides.
local function sampled(image, ys, xs, join)
  local c, h, w = image:size(1), image:size(2), image:size(3)
  local y0, y1, wy0, wy1 = split(ys, h)
  local x0, x1, wx0, wx1 = split(xs, w)
  local flat, total = image:reshape(c, -1), nil
  for _, row_of in ipairs {{y0, wy0}, {y1, wy1}} do
    for _, column in ipairs {{x0, wx0}, {x1, wx1}} do
      local at = (row_of[1]:unsqueeze(2) * w + column[1]):reshape(-1) + 1
      local part = flat:index_select(2, at):reshape(c, ys:size(1), xs:size(1))
        * (row_of[2]:unsqueeze(2) * column[2])
      total = total and join(total, part) or part
    end
  end
  return total
end

-- The maximum in each cell of each region, with sides rounded to elements; 0 in empty cells.
N.MaxRoiPool = row("2 pooled_shape:ints! spatial_scale=1.0", function(a, x, boxes)
  local sizes, list = {x:size(3), x:size(4)}, {}
  local function cells(first, last, d) -- first and last element of each cell, from 0
    first = math.floor(first * a.spatial_scale + 0.5)
    last = math.floor(last * a.spatial_scale + 0.5)
    local from, to, n = {}, {}, a.pooled_shape[d]
    local size = math.max(last - first + 1, 1) / n
    for k = 1, n do
      from[k] = math.min(math.max(math.floor((k - 1) * size) + first, 0), sizes[d])
      to[k] = math.min(math.max(math.ceil(k * size) + first, 0), sizes[d])
    end
    return from, to
  end
  for _, box in ipairs(boxes:double():cpu():tolist()) do
    local top, bottom = cells(box[3], box[5], 1)
    local left, right = cells(box[2], box[4], 2)
    local image = x[box[1] + 1]
    for i = 1, #top do
      for j = 1, #left do
        local h, w = bottom[i] - top[i], right[j] - left[j]
        list[#list + 1] = h > 0 and w > 0
          and image:narrow(2, top[i] + 1, h):narrow(3, left[j] + 1, w):amax {dim = {2, 3}}
          or M.zeros(x:size(2), rows.as(x))
      end
    end
  end
  local shape = { -1, a.pooled_shape[1], a.pooled_shape[2], x:size(2)}
  if #list == 0 then return M.zeros(0, x:size(2), shape[2], shape[3], rows.as(x)) end
  return M.stack(list, 1):reshape(shape):permute(1, 4, 2, 3)
end, nil, "loose")

N.RoiAlign = row("3 coordinate_transformation_mode:string mode=avg output_height=1 output_width=1 "
  .. "sampling_ratio=0 spatial_scale=1.0", function(a, x, boxes, batches)
  local half = (a.coordinate_transformation_mode
    or (a.opset < 16 and "output_half_pixel" or "half_pixel")) == "half_pixel"
  if a.mode ~= "avg" and a.mode ~= "max" then refuse("mode %s", rows.quoted(a.mode)) end
  local join = a.mode == "avg" and M.add or M.maximum
  local sides, list = (boxes:double() * a.spatial_scale - (half and 0.5 or 0)):cpu():tolist(), {}
  local oh, ow = a.output_height, a.output_width
  for r, box in ipairs(sides) do
    local width, height = box[3] - box[1], box[4] - box[2]
    if not half then width, height = math.max(width, 1), math.max(height, 1) end
    local nh = a.sampling_ratio > 0 and a.sampling_ratio or math.ceil(height / oh)
    local nw = a.sampling_ratio > 0 and a.sampling_ratio or math.ceil(width / ow)
    if nh <= 0 or nw <= 0 then
      list[r] = M.zeros(x:size(2), oh, ow, rows.as(x))
    else
      local function places(first, size, count, samples)
        local at = M.arange(count * samples, {dtype = M.float64}) + 0.5
        at = at * (size / count / samples)
        return (at + first):to(x.dtype):to(x.device)
      end
      local values = sampled(x[batches[r] + 1], places(box[2], height, oh, nh),
        places(box[1], width, ow, nw), join):reshape(x:size(2), oh, nh, ow, nw)
      list[r] = values[a.mode == "avg" and "mean" or "amax"](values, {dim = {3, 5}})
    end
  end
  if #list == 0 then return M.zeros(0, x:size(2), oh, ow, rows.as(x)) end
  return M.stack(list, 1)
end, "3", "loose")

return rows
