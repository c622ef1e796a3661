--- init.lua -- moth.ops: functions for object detection, with torchvision's names.
--
--     local keep = moth.ops.nms(boxes, scores, 0.5)       -- positions, the best box first
--     local iou = moth.ops.box_iou(boxes, truth)          -- (N, M)
--
-- A box is four numbers, x1, y1, x2, y2, with x1 <= x2 and y1 <= y2, in any unit. nms is a C op
-- (core/op/detect.c); boxes, overlaps and losses are differentiable compositions of ops.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local dtype = require "moth.tensor.dtype"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"

local ops = bind.ops
local detection = {}

-- Raises unless the argument is boxes: (..., 4), or (N, 4) for a list.
local function check_boxes(fname, name, boxes, list)
  if boxes:dim() == 0 or boxes:size(-1) ~= 4 or (list and boxes:dim() ~= 2) then
    errors.refuse(fname, name, "boxes are needed, (" .. (list and "N" or "...") .. ", 4)", boxes,
      "E_SHAPE")
  end
end

-- x1, y1, x2, y2 of boxes, each without the last dimension.
local function sides(fname, name, boxes, list)
  check_boxes(fname, name, boxes, list)
  return boxes:unbind(-1)
end

-- Products of narrow dtypes overflow: half types become f32 first, integers int32.
local function wide(boxes)
  if boxes:element_size() >= 4 then return boxes end
  return boxes:is_floating_point() and boxes:float() or boxes:int()
end

local function float(boxes)
  return boxes:is_floating_point() and wide(boxes) or boxes:float()
end

local function reduced(loss, reduction)
  if reduction == "mean" then return loss:mean() end
  return reduction == "sum" and loss:sum() or loss
end

local BOXES = {"tensor", "boxes", "corners x1, y1, x2, y2: (N, 4)"}
local A = {"tensor", "boxes1", "corners x1, y1, x2, y2: (N, 4)"}
local B = {"tensor", "boxes2", "corners x1, y1, x2, y2: (M, 4)"}
local PAIR = {"tensor", "boxes2", "as many boxes as boxes1"}
local REDUCTION = {"enum", "reduction", "reduction of the boxes' losses",
                   choices = {"none", "mean", "sum"}}
local EPS = {"float", "eps", "avoids a division by 0 for empty boxes", default = 1e-7}

-- ---- boxes ----

--- moth.ops.box_area(boxes): (x2 - x1) * (y2 - y1), (N).
detection.box_area = define {
  name = "box_area",
  doc = "The area of boxes.",
  examples = "moth.tensor{{0, 0, 2, 3}, {1, 1, 2, 2.5}}",
  args = {BOXES},
  scoped = true,
  run = function(boxes)
    local s = sides("box_area", "boxes", wide(boxes))
    return (s[3] - s[1]) * (s[4] - s[2])
  end,
}

local FORMATS = {"xyxy", "xywh", "cxcywh"}

--- moth.ops.box_convert(boxes, in_fmt, out_fmt): converts between corners, corner and size, and
-- centre and size.
detection.box_convert = define {
  name = "box_convert",
  doc = "Boxes in another form: two corners (xyxy), the first corner and the size (xywh), or the "
    .. "centre and the size (cxcywh).",
  examples = "moth.tensor{{1, 1, 2, 3}}, 'xywh', 'xyxy'\n"
    .. "moth.tensor{{1, 1, 2, 3}}, {in_fmt = 'xyxy', out_fmt = 'cxcywh'}",
  args = {
    {"tensor", "boxes", "four numbers each: (..., 4)"},
    {"enum", "in_fmt", "the present format", choices = FORMATS, required = true},
    {"enum", "out_fmt", "the new format", choices = FORMATS, required = true},
  },
  scoped = true,
  run = function(boxes, from, to)
    check_boxes("box_convert", "boxes", boxes)
    if from == to then return boxes:clone() end
    local a, b, c, d = unpack(sides("box_convert", "boxes", boxes))
    if from == "xywh" then c, d = a + c, b + d
    elseif from == "cxcywh" then a, b, c, d = a - c / 2, b - d / 2, a + c / 2, b + d / 2 end
    if to == "xywh" then c, d = c - a, d - b
    elseif to == "cxcywh" then a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b end
    return ops.stack({a, b, c, d}, -1)
  end,
}

--- moth.ops.clip_boxes_to_image(boxes, {height, width}).
detection.clip_boxes_to_image = define {
  name = "clip_boxes_to_image",
  doc = "Clips boxes to an image.",
  examples = "moth.tensor{{-1, 2, 5, 9}}, {4, 4}",
  args = {{"tensor", "boxes", "corners x1, y1, x2, y2: (..., 4)"},
          {"shape", "size", "height and width of the image"}},
  scoped = true,
  run = function(boxes, size)
    if #size ~= 2 then
      errors.argument("clip_boxes_to_image", "size", "height and width are needed, got "
        .. #size .. " numbers", "E_SHAPE")
    end
    local s = sides("clip_boxes_to_image", "boxes", boxes)
    for i = 1, 4 do s[i] = s[i]:clamp(0, size[i % 2 == 1 and 2 or 1]) end
    return ops.stack(s, -1)
  end,
}

--- moth.ops.remove_small_boxes(boxes, min_size): the positions of boxes with at least that width
-- and height.
detection.remove_small_boxes = define {
  name = "remove_small_boxes",
  doc = "The positions of boxes with at least that width and height.",
  examples = "moth.tensor{{0, 0, 2, 3}, {1, 1, 1.5, 2.5}}, 1",
  outputs = "positions",
  args = {BOXES, {"float", "min_size", "the least width and height"}},
  scoped = true,
  run = function(boxes, least)
    local s = sides("remove_small_boxes", "boxes", boxes, true)
    local large = (s[3] - s[1]):ge(least):logical_and((s[4] - s[2]):ge(least))
    return large:nonzero():squeeze(-1)
  end,
}

-- ---- overlaps ----

-- The intersection, the union, and the sides of the enclosing box.
local function overlap(a, b)
  local w = (a[3]:minimum(b[3]) - a[1]:maximum(b[1])):clamp(0)
  local h = (a[4]:minimum(b[4]) - a[2]:maximum(b[2])):clamp(0)
  local both = w * h
  local all = (a[3] - a[1]) * (a[4] - a[2]) + (b[3] - b[1]) * (b[4] - b[2]) - both
  return both, all, a[3]:maximum(b[3]) - a[1]:minimum(b[1]),
    a[4]:maximum(b[4]) - a[2]:minimum(b[2])
end

-- Like overlap, for all pairs of N boxes and M boxes.
local function all_overlaps(fname, boxes1, boxes2)
  local a = sides(fname, "boxes1", wide(boxes1), true)
  local b = sides(fname, "boxes2", wide(boxes2), true)
  for i = 1, 4 do a[i], b[i] = a[i]:unsqueeze(-1), b[i]:unsqueeze(-2) end
  return overlap(a, b)
end

--- moth.ops.box_iou(boxes1, boxes2): (N, M).
detection.box_iou = define {
  name = "box_iou",
  doc = "The intersection over union of all pairs of boxes.",
  examples = "moth.tensor{{0, 0, 2, 2}}, moth.tensor{{1, 1, 3, 3}, {0, 0, 2, 1}}",
  args = {A, B},
  scoped = true,
  run = function(boxes1, boxes2)
    local both, all = all_overlaps("box_iou", boxes1, boxes2)
    return both / all
  end,
}

--- moth.ops.generalized_box_iou(boxes1, boxes2): (N, M), from -1 to 1. (Rezatofighi et al., 2019.)
detection.generalized_box_iou = define {
  name = "generalized_box_iou",
  doc = "box_iou, minus the uncovered fraction of the enclosing box.",
  examples = "moth.tensor{{0, 0, 2, 2}}, moth.tensor{{1, 1, 3, 3}, {4, 4, 5, 5}}",
  args = {A, B},
  scoped = true,
  run = function(boxes1, boxes2)
    local both, all, w, h = all_overlaps("generalized_box_iou", boxes1, boxes2)
    local around = w * h
    return both / all - (around - all) / around
  end,
}

-- The squared distance of the centres, divided by the squared diagonal of the enclosing box.
local function distance(a, b, w, h, eps)
  local dx, dy = (a[1] + a[3] - b[1] - b[3]) / 2, (a[2] + a[4] - b[2] - b[4]) / 2
  return (dx * dx + dy * dy) / (w * w + h * h + eps)
end

-- The weighted penalty for different aspect ratios.
local function ratios(a, b, iou, eps)
  local turn = ((b[3] - b[1]) / (b[4] - b[2])):atan() - ((a[3] - a[1]) / (a[4] - a[2])):atan()
  local v = turn * turn * (4 / math.pi ^ 2)
  return (v / (1 - iou + v + eps)):detach() * v
end

-- An overlap of all pairs of N boxes and M boxes, minus the result of `more`.
local function pairwise(name, doc, more)
  detection[name] = define {
    name = name, doc = doc,
    examples = "moth.tensor{{0, 0, 2, 2}}, moth.tensor{{1, 1, 3, 3}, {4, 4, 5, 5}}\n"
      .. "moth.tensor{{0, 0, 2, 2}}, moth.tensor{{1, 1, 3, 3}}, {eps = 1e-6}",
    args = {A, B, EPS},
    scoped = true,
    run = function(boxes1, boxes2, eps)
      local a = sides(name, "boxes1", float(boxes1), true)
      local b = sides(name, "boxes2", float(boxes2), true)
      for i = 1, 4 do a[i], b[i] = a[i]:unsqueeze(-1), b[i]:unsqueeze(-2) end
      local both, all, w, h = overlap(a, b)
      local iou = both / all
      return iou - more(a, b, iou, w, h, eps)
    end,
  }
end

--- moth.ops.distance_box_iou(boxes1, boxes2, eps): (N, M). (Zheng et al., 2019.)
pairwise("distance_box_iou", "box_iou, minus the squared distance of the centres divided by the "
  .. "squared diagonal of the enclosing box.", function(a, b, _, w, h, eps)
  return distance(a, b, w, h, eps)
end)

--- moth.ops.complete_box_iou(boxes1, boxes2, eps): (N, M). (Zheng et al., 2019.)
pairwise("complete_box_iou", "distance_box_iou, minus a penalty for different aspect ratios.",
  function(a, b, iou, w, h, eps)
    return distance(a, b, w, h, eps) + ratios(a, b, iou, eps)
  end)

--- moth.ops.masks_to_boxes(masks): (N, 4), the boxes around the masks.
detection.masks_to_boxes = define {
  name = "masks_to_boxes",
  doc = "The boxes around masks: the first and last column and row, from 0, that are not all 0; "
    .. "for an empty mask 0, 0, 0, 0.",
  examples = "moth.tensor{{{0, 1, 1}, {0, 0, 1}}}",
  outputs = "boxes",
  args = {{"tensor", "masks", "(N, H, W): 0 or false outside"}},
  scoped = true,
  run = function(masks)
    if masks:dim() ~= 3 then
      errors.refuse("masks_to_boxes", "masks", "(N, H, W) is needed", masks, "E_SHAPE")
    end
    if masks:numel() == 0 then
      return ops.zeros({0, 4}, dtype.by_name.float32, masks.device)
    end
    local mask = masks:ne(0)
    local function ends(some) -- (N, size)
      local last = some:size(2) - 1
      return some:float():argmax(2):float() - 1, last + 1 - some:flip(2):float():argmax(2):float()
    end
    local top, bottom = ends(mask:any(3))
    local left, right = ends(mask:any(2))
    local boxes = ops.stack({left, top, right, bottom}, 2)
    return (boxes * mask:flatten(2):any(2, true):float())
  end,
}

-- ---- losses ----

local ITEMS = "moth.tensor{{0, 0, 2, 2}, {1, 1, 2, 3}}, moth.tensor{{1, 1, 3, 3}, {1, 0, 2, 2}}"

-- A loss of 1 - iou and the result of `more`.
local function box_loss(name, doc, more)
  detection[name] = define {
    name = name,
    doc = doc,
    examples = ITEMS .. "\n" .. ITEMS .. ", {reduction = 'mean', eps = 1e-6}",
    args = {A, PAIR, REDUCTION, EPS},
    scoped = true,
    run = function(boxes1, boxes2, reduction, eps)
      local a = sides(name, "boxes1", float(boxes1))
      local b = sides(name, "boxes2", float(boxes2))
      if boxes1.shape ~= boxes2.shape then
        errors.argument(name, "boxes2", ("%s is needed, as boxes1 has, got %s"):format(
          tostring(boxes1.shape), errors.describe(boxes2)), "E_SHAPE")
      end
      local both, all, w, h = overlap(a, b)
      local iou = both / (all + eps)
      if reduction == "mean" and iou:numel() == 0 then reduction = "sum" end -- 0, not NaN
      return reduced(1 - iou + more(a, b, iou, all, w, h, eps), reduction)
    end,
  }
end

--- moth.ops.generalized_box_iou_loss(boxes1, boxes2, reduction, eps). (Rezatofighi et al., 2019.)
box_loss("generalized_box_iou_loss", "1 - generalized_box_iou of each pair of boxes.",
  function(_, _, _, all, w, h, eps)
    local around = w * h
    return (around - all) / (around + eps)
  end)

--- moth.ops.distance_box_iou_loss(boxes1, boxes2, reduction, eps). (Zheng et al., 2019.)
box_loss("distance_box_iou_loss",
  "1 - distance_box_iou of each pair of boxes.",
  function(a, b, _, _, w, h, eps) return distance(a, b, w, h, eps) end)

--- moth.ops.complete_box_iou_loss(boxes1, boxes2, reduction, eps). (Zheng et al., 2019.)
box_loss("complete_box_iou_loss", "1 - complete_box_iou of each pair "
  .. "of boxes.",
  function(a, b, iou, _, w, h, eps)
    return distance(a, b, w, h, eps) + ratios(a, b, iou, eps)
  end)

--- moth.ops.sigmoid_focal_loss(inputs, targets, alpha, gamma, reduction). (Lin et al., 2017.)
detection.sigmoid_focal_loss = define {
  name = "sigmoid_focal_loss",
  doc = "binary_cross_entropy_with_logits with a low weight for well-classified elements.",
  examples = "moth.randn(2, 3), moth.tensor{{0, 1, 1}, {1, 0, 0}}\n"
    .. "moth.randn(3), moth.tensor{0, 1, 1}, {alpha = -1, gamma = 1, reduction = 'sum'}",
  args = {
    {"tensor", "inputs", "scores before sigmoid, any shape"},
    {"tensor", "targets", "1 for positive elements, 0 for negative ones: the same shape"},
    {"float", "alpha", "weight of positive elements; negative ones have 1 - alpha; -1: none",
     default = 0.25},
    {"float", "gamma", "how little", default = 2},
    REDUCTION,
  },
  scoped = true,
  run = function(inputs, targets, alpha, gamma, reduction)
    if alpha ~= -1 and not (alpha >= 0 and alpha <= 1) then
      errors.argument("sigmoid_focal_loss", "alpha", "0 to 1 or -1 is needed, got " .. alpha,
        "E_DOMAIN")
    end
    if inputs.shape ~= targets.shape then
      errors.argument("sigmoid_focal_loss", "targets", ("the shape of %s is needed, got %s"):format(
        errors.describe(inputs), errors.describe(targets)), "E_SHAPE")
    end
    local p = inputs:sigmoid()
    local loss = ops.binary_cross_entropy_with_logits(inputs, targets, {reduction = "none"})
    loss = loss * (1 - p * targets - (1 - p) * (1 - targets)) ^ gamma
    if alpha >= 0 then loss = loss * (targets * (2 * alpha - 1) + (1 - alpha)) end
    return reduced(loss, reduction)
  end,
}

-- ---- non-maximum suppression ----

local kept = {} -- by the name of the calling function

local function suppress(fname, boxes, scores, idxs, threshold)
  if require("moth.binding.lib").capture then
    errors.raise(fname .. ": the number of kept boxes depends on values, so moth.capture cannot "
      .. "record it; do this outside of the captured function", "E_UNSUPPORTED")
  end
  kept[fname] = kept[fname] or bind.as("nms_kept", fname)
  if scores:dim() ~= 1 or boxes:dim() == 2 and scores:size(1) ~= boxes:size(1) then
    errors.argument(fname, "scores", ("one for each of the boxes %s is needed, got %s"):format(
      errors.describe(boxes), errors.describe(scores)), "E_SHAPE")
  end
  local order = scores:argsort(-1, true)
  if boxes:dim() == 2 then boxes = boxes:index_select(1, order) end
  if idxs then idxs = idxs:index_select(1, order) end
  return (order:masked_select(kept[fname](boxes, threshold, idxs)))
end

local SCORES = {"tensor", "scores", "score of each box, (N)"}
local THRESHOLD = {"float", "iou_threshold",
                   "a box with a larger overlap with a better box is dropped"}

--- moth.ops.nms(boxes, scores, iou_threshold): positions of the kept boxes, from 1, the highest
-- score first; equal on every device. Greedy non-maximum suppression.
detection.nms = define {
  name = "nms",
  doc = "The positions of boxes that overlap no kept box with a higher score, best first.",
  examples = "moth.tensor{{0, 0, 2, 2}, {0, 0, 2, 1.5}, {3, 3, 4, 4}}, "
    .. "moth.tensor{0.5, 0.9, 0.3}, 0.5",
  outputs = "positions",
  args = {BOXES, SCORES, THRESHOLD},
  scoped = true,
  run = function(boxes, scores, threshold)
    return suppress("nms", boxes, scores, nil, threshold)
  end,
}

--- moth.ops.batched_nms(boxes, scores, idxs, iou_threshold): nms in each class separately.
detection.batched_nms = define {
  name = "batched_nms",
  doc = "nms in each class: boxes of different classes do not affect each other.",
  examples = "moth.tensor{{0, 0, 2, 2}, {0, 0, 2, 1.5}, {0, 0, 2, 1.7}}, "
    .. "moth.tensor{0.5, 0.9, 0.3}, moth.tensor{1LL, 2LL, 1LL}, 0.5",
  outputs = "positions",
  args = {BOXES, SCORES, {"tensor", "idxs", "integers, (N): the class, or image, of each"},
          THRESHOLD},
  scoped = true,
  run = function(boxes, scores, idxs, threshold)
    local whole = not idxs:is_floating_point() and idxs.dtype ~= dtype.by_name.bool
    if not whole or idxs:dim() ~= 1 or idxs:size(1) ~= boxes:size(1) then
      errors.argument("batched_nms", "idxs", ("one integer for each of the boxes %s is needed, "
        .. "got %s"):format(errors.describe(boxes), errors.describe(idxs)),
        whole and "E_SHAPE" or "E_DTYPE")
    end
    if idxs:numel() > 0 then idxs = idxs:long() - idxs:min() + 1 end -- classes count from 1
    return suppress("batched_nms", boxes, scores, idxs:long(), threshold)
  end,
}

local elsewhere = {}
lazy.from(elsewhere, "moth.ops.roi", "roi_align roi_pool ps_roi_align ps_roi_pool")
lazy.from(elsewhere, "moth.ops.deform", "deform_conv2d")
lazy.from(elsewhere, "moth.ops.drop", "stochastic_depth drop_block2d drop_block3d")
lazy.from(elsewhere, "moth.ops.layers", "RoIAlign RoIPool PSRoIAlign PSRoIPool StochasticDepth "
  .. "DropBlock2d DropBlock3d Permute DeformConv2d FrozenBatchNorm2d Conv2dNormActivation "
  .. "Conv3dNormActivation MLP SqueezeExcitation")
lazy.from(elsewhere, "moth.ops.pyramid", "FeaturePyramidNetwork MultiScaleRoIAlign "
  .. "LastLevelMaxPool LastLevelP6P7")

return (lazy.namespace("moth.ops", detection, elsewhere))
