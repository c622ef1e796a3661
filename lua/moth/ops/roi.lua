--- roi.lua -- pools regions of feature maps to a fixed size: moth.ops.roi_align, roi_pool,
-- ps_roi_align, ps_roi_pool. (He et al. 2017, Girshick 2015, Li et al. 2018, Dai et al. 2016.)
--
-- Coordinates count from 0 at the first element, as in torchvision; an image's index in the batch
-- counts from 1. Gradients flow to the input, not to the boxes.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local sample = require "moth.ops.sample"

local ops, istensor = bind.ops, lib.istensor
local roi = {}

-- ---- arguments ----

local INPUT = {"tensor", "input", "feature maps, (N, C, H, W)"}
local BOXES = {"any", "boxes", "(K, 5): the image's position and x1, y1, x2, y2; or a list of "
  .. "(L, 4), one for each image"}
local SIZE = {"int2", "output_size", "height and width of the result"}
local SCALE = {"float", "spatial_scale", "factor of the coordinates", default = 1}
local RATIO = {"int", "sampling_ratio", "points for each side of a cell; from 0 down: by the "
  .. "region's size", default = -1}

-- Converts a list of boxes for each image to (K, 5).
local function joined(fname, list)
  local parts = {}
  for i, boxes in ipairs(list) do
    if not istensor(boxes) or boxes:dim() ~= 2 or boxes:size(2) ~= 4 then
      errors.argument(fname, "boxes", ("(L, 4) is needed for each image, got %s at position %d")
        :format(errors.describe(boxes), i), "E_SHAPE")
    end
    parts[i] = ops.cat({ops.full({boxes:size(1), 1}, i, boxes.dtype, boxes.device), boxes}, 2)
  end
  return ops.cat(parts, 1)
end

-- The input and the boxes in the computation's dtype, each box as columns: image (from 0), sides.
local function read(fname, input, boxes)
  if input:dim() ~= 4 or not input:is_floating_point() then
    errors.refuse(fname, "input", "floats (N, C, H, W) are needed", input, "E_SHAPE")
  end
  if lib.is_plain(boxes) and #boxes > 0 then
    if #boxes ~= input:size(1) then
      errors.argument(fname, "boxes", ("a tensor for each of %d images is needed, got %d"):format(
        input:size(1), #boxes), "E_SHAPE")
    end
    boxes = joined(fname, boxes)
  end
  if not istensor(boxes) or boxes:dim() ~= 2 or boxes:size(2) ~= 5 then
    errors.refuse(fname, "boxes", "(K, 5), or a list of (L, 4), is needed", boxes, "E_SHAPE")
  end
  boxes = boxes:detach():to(input:element_size() < 4 and require("moth").float32 or input.dtype)
  local columns = boxes:unbind(2)
  local images = columns[1]:long() - 1
  if images:numel() > 0 then
    local low, high = tonumber(images:min():item()), tonumber(images:max():item())
    if low < 0 or high >= input:size(1) then
      errors.argument(fname, "boxes", ("positions of images from 1 to %d are needed, got "
        .. "%d"):format(
        input:size(1), low < 0 and low + 1 or high + 1), "E_INDEX")
    end
  end
  local x = input:element_size() < 4 and input:float() or input
  return x, images, columns[2], columns[3], columns[4], columns[5]
end

-- The integers of a tensor, as a list.
local function numbers(x) return x:double():tolist() end

-- ---- points in cells ----

-- Coordinates of the points of each cell along a side: (K, cells, points).
local function points(start, cell, cells, count)
  local k = sample.steps(cells, start, 1, 1)
  local i = (sample.steps(count, start, 2, 0) + 0.5) / count
  return start:view(-1, 1, 1) + (k + i) * cell:view(-1, 1, 1)
end

-- Means of bilinear samples at gh x gw points in each cell: (K, PH, PW, channels of a row).
-- base(images) is the index of the first row: (K, PH or 1, PW or 1).
local function means(rows, base, where, size, gh, gw, height, width)
  local y = points(where.y, where.h, size[1], gh):unsqueeze(3):unsqueeze(5) -- (K, PH, 1, gh, 1)
  local x = points(where.x, where.w, size[2], gw):unsqueeze(2):unsqueeze(4) -- (K, 1, PW, 1, gw)
  local values = sample.bilinear(rows, base:unsqueeze(-1):unsqueeze(-1), y, x, height, width)
  return (values:sum({4, 5}) / math.max(gh * gw, 1))
end

-- means() with the number of points that each region needs: groups regions with equal counts.
local function adaptive_means(rows, base, where, size, height, width)
  local hs, ws = numbers(where.h:ceil():clamp_min(0)), numbers(where.w:ceil():clamp_min(0))
  local moth, groups, keys = require "moth", {}, {}
  local options = {dtype = moth.int64, device = base.device}
  for k = 1, #hs do
    local key = hs[k] .. " " .. ws[k]
    if not groups[key] then
      groups[key] = {h = hs[k], w = ws[k]}
      keys[#keys + 1] = key
    end
    table.insert(groups[key], k)
  end
  local parts, order = {}, {}
  for i, key in ipairs(keys) do
    local group = groups[key]
    local at = moth.tensor(group, options)
    local some = {}
    for name, column in pairs(where) do some[name] = column:index_select(1, at) end
    local own = base:index_select(1, at)
    parts[i] = means(rows, own, some, size, group.h, group.w, height, width)
    for _, k in ipairs(group) do order[#order + 1] = k end
  end
  local all = ops.cat(parts, 1)
  return (all:index_select(1, moth.tensor(order, options):argsort()))
end

local function aligned_means(rows, base, where, size, ratio, height, width)
  if where.x:numel() == 0 then
    return ops.zeros({0, size[1], size[2], rows:size(2)}, rows.dtype, rows.device)
      + rows:sum() * 0
  end
  if ratio > 0 then return means(rows, base, where, size, ratio, ratio, height, width) end
  return adaptive_means(rows, base, where, size, height, width)
end

local function checked_size(fname, size)
  size = sample.sizes(size)
  if size[1] < 1 or size[2] < 1 then
    errors.argument(fname, "output_size", ("numbers from 1 are needed, got {%d, "
      .. "%d}"):format(size[1],
      size[2]), "E_SHAPE")
  end
  return size
end

local EXAMPLE = "moth.rand(1, 2, 5, 5), moth.tensor{{1LL, 0LL, 1LL, 3LL, 4LL}}, {2, 2}"

--- moth.ops.roi_align(input, boxes, output_size): (K, C, height, width).
roi.roi_align = define {
  name = "roi_align",
  doc = "Regions of feature maps at one size: means of bilinear values at points in each cell.",
  examples = EXAMPLE .. "\n" .. EXAMPLE .. ", {spatial_scale = 0.5, sampling_ratio = 2, "
    .. "aligned = true}",
  args = {INPUT, BOXES, SIZE, SCALE, RATIO,
          {"bool", "aligned", "are coordinates shifted by half an element?", default = false}},
  scoped = true,
  run = function(input, boxes, size, scale, ratio, aligned)
    size = checked_size("roi_align", size)
    local x, images, x1, y1, x2, y2 = read("roi_align", input, boxes)
    local height, width, shift = x:size(3), x:size(4), aligned and 0.5 or 0
    local w, h = (x2 - x1) * scale, (y2 - y1) * scale
    if not aligned then w, h = w:clamp_min(1), h:clamp_min(1) end
    local where = {x = x1 * scale - shift, y = y1 * scale - shift, w = w / size[2],
                   h = h / size[1]}
    local y = aligned_means(sample.flat(x, 1), (images * (height * width)):view(-1, 1, 1), where,
      size, ratio, height, width)
    return y:permute(1, 4, 2, 3):contiguous():to(input.dtype)
  end,
}

-- Returns the number of channels of the result if each cell has its own channels of the input.
local function own_channels(fname, input, size)
  local cells = size[1] * size[2]
  if input:size(2) % cells ~= 0 then
    errors.argument(fname, "input", ("channels in multiples of output_size's %d cells are needed, "
      .. "got %s"):format(cells, errors.describe(input)), "E_SHAPE")
  end
  return input:size(2) / cells
end

-- Rows of maps with separate channels for each cell, and the first row of each cell: (N * PH * PW
-- * H * W, channels), (K, PH, PW).
local function cell_rows(x, images, size, channels)
  local n, height, width = x:size(1), x:size(3), x:size(4)
  local cells = size[1] * size[2]
  local rows = x:reshape(n, channels, cells, height, width):permute(1, 3, 4, 5, 2)
    :reshape(n * cells * height * width, channels)
  local cell = sample.steps(cells, images, 0, 0):view(1, size[1], size[2])
  return rows, (images:view(-1, 1, 1) * cells + cell) * (height * width)
end

--- moth.ops.ps_roi_align(input, boxes, output_size): (K, C / cells, height, width).
roi.ps_roi_align = define {
  name = "ps_roi_align",
  doc = "roi_align in which each cell of the result reads separate channels: channel "
    .. "c * cells + cell of the input.",
  examples = "moth.rand(1, 8, 5, 5), moth.tensor{{1LL, 0LL, 1LL, 3LL, 4LL}}, {2, 2}\n"
    .. "moth.rand(1, 4, 5, 5), moth.tensor{{1LL, 0LL, 1LL, 3LL, 4LL}}, 2, {spatial_scale = 0.5, "
    .. "sampling_ratio = 2}",
  args = {INPUT, BOXES, SIZE, SCALE, RATIO},
  scoped = true,
  run = function(input, boxes, size, scale, ratio)
    size = checked_size("ps_roi_align", size)
    local x, images, x1, y1, x2, y2 = read("ps_roi_align", input, boxes)
    local rows, base = cell_rows(x, images, size, own_channels("ps_roi_align", input, size))
    local where = {x = x1 * scale - 0.5, y = y1 * scale - 0.5, w = (x2 - x1) * scale / size[2],
                   h = (y2 - y1) * scale / size[1]}
    local y = aligned_means(rows, base, where, size, ratio, x:size(3), x:size(4))
    return y:permute(1, 4, 2, 3):contiguous():to(input.dtype)
  end,
}

-- ---- elements in cells ----

-- Rounds to the nearest integer, halves away from 0.
local function nearest(x) return (x:abs() + 0.5):floor() * x:sign() end

-- The elements of each cell along a side: their indices (K, cells, most), and a mask of the
-- elements in the cell, of the same shape. A cell ends before `limit`.
local function elements(start, extent, cells, size, limit)
  local k = sample.steps(cells, start, 1, 0)
  local cell = (extent / cells):view(-1, 1)
  local first = ((k * cell):floor() + start:view(-1, 1)):clamp(0, limit)
  local last = (((k + 1) * cell):ceil() + start:view(-1, 1)):clamp(0, limit)
  local most = math.max(1, (last - first):max():item())
  local at = first:unsqueeze(3) + sample.steps(most, start, 2, 0)
  local inside = at:lt(last:unsqueeze(3))
  return at:minimum((last - 1):clamp_min(0):unsqueeze(3)):clamp(0, size - 1):long(), inside
end

-- The rows of the elements of each cell: (K, PH, PW, elements, channels), and a mask of the
-- elements inside.
local function cell_elements(rows, base, start, extent, size, x, less)
  local height, width = x:size(3), x:size(4)
  local ys, in_y = elements(start[1], extent[1], size[1], height, height - less)
  local xs, in_x = elements(start[2], extent[2], size[2], width, width - less)
  local at = base:unsqueeze(-1):unsqueeze(-1) + ys:unsqueeze(3):unsqueeze(5) * width
    + xs:unsqueeze(2):unsqueeze(4)
  local inside = in_y:unsqueeze(3):unsqueeze(5):logical_and(in_x:unsqueeze(2):unsqueeze(4))
  return sample.rows(rows, at):flatten(4, 5), inside:flatten(4, 5)
end

local function empty(input, channels, size)
  return (ops.zeros({0, channels, size[1], size[2]}, input.dtype, input.device)) + input:sum() * 0
end

--- moth.ops.roi_pool(input, boxes, output_size): (K, C, height, width).
roi.roi_pool = define {
  name = "roi_pool",
  doc = "Regions of feature maps at one size: the largest value in each cell.",
  examples = EXAMPLE .. "\n" .. EXAMPLE .. ", {spatial_scale = 0.5}",
  args = {INPUT, BOXES, SIZE, SCALE},
  scoped = true,
  run = function(input, boxes, size, scale)
    size = checked_size("roi_pool", size)
    local x, images, x1, y1, x2, y2 = read("roi_pool", input, boxes)
    if images:numel() == 0 then return empty(input, x:size(2), size) end
    local left, top = nearest(x1 * scale), nearest(y1 * scale)
    local extent = {(nearest(y2 * scale) - top + 1):clamp_min(1),
                    (nearest(x2 * scale) - left + 1):clamp_min(1)}
    local values, inside = cell_elements(sample.flat(x, 1),
      (images * (x:size(3) * x:size(4))):view(-1, 1, 1), {top, left}, extent, size, x, 0)
    local some = inside:any(4, true):unsqueeze(-1)
    local kept = ops.where(inside:unsqueeze(-1):logical_or(some:logical_not()), values, -math.huge)
    local y = (require("moth").max(kept, 4))
    y = y:masked_fill(some:squeeze(4):logical_not(), 0)
    return y:permute(1, 4, 2, 3):contiguous():to(input.dtype)
  end,
}

--- moth.ops.ps_roi_pool(input, boxes, output_size): (K, C / cells, height, width).
roi.ps_roi_pool = define {
  name = "ps_roi_pool",
  doc = "Means over the cells of regions, in which each cell reads separate channels: channel "
    .. "c * cells + cell of the input.",
  examples = "moth.rand(1, 8, 5, 5), moth.tensor{{1LL, 0LL, 1LL, 3LL, 4LL}}, {2, 2}\n"
    .. "moth.rand(1, 4, 5, 5), moth.tensor{{1LL, 0LL, 1LL, 3LL, 4LL}}, 2, {spatial_scale = 0.5}",
  args = {INPUT, BOXES, SIZE, SCALE},
  scoped = true,
  run = function(input, boxes, size, scale)
    size = checked_size("ps_roi_pool", size)
    local x, images, x1, y1, x2, y2 = read("ps_roi_pool", input, boxes)
    local channels = own_channels("ps_roi_pool", input, size)
    if images:numel() == 0 then return empty(input, channels, size) end
    local rows, base = cell_rows(x, images, size, channels)
    local left, top = nearest(x1 * scale), nearest(y1 * scale)
    local extent = {(nearest(y2 * scale) - top):clamp_min(1),
                    (nearest(x2 * scale) - left):clamp_min(1)}
    -- A cell ends before the last row and column, as in torchvision's forward pass.
    local values, inside = cell_elements(rows, base, {top, left}, extent, size, x, 1)
    local share = inside:to(x.dtype):unsqueeze(-1)
    local y = (values * share):sum(4) / share:sum(4):clamp_min(1)
    return y:permute(1, 4, 2, 3):contiguous():to(input.dtype)
  end,
}

return roi
