--- detection.lua -- MeanAveragePrecision: COCO's evaluation of detected boxes or masks, with the
-- results of pycocotools.
--
-- update keeps tensors; compute reads them and matches detections with targets in Lua.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local match = require "moth.metrics.match"
local Metric = require "moth.metrics.metric"

local NAME = "MeanAveragePrecision"

--- The mean average precision and recall of detections (COCO). metric:update(preds, target): lists
-- with a table for each image. preds: {boxes = (n, 4), scores = (n), labels = (n)}; target: {boxes
-- = (m, 4), labels = (m)}, and optionally iscrowd and area (m). With iou_type = "segm", masks (n,
-- H, W) take the place of boxes. compute returns a table: map, map_50, map_75, map_small,
-- map_medium, map_large, mar_1, mar_10, mar_100, mar_small, mar_medium, mar_large, map_per_class,
-- mar_100_per_class, classes; -1 where there are no targets.
local MeanAveragePrecision = class(NAME, Metric)
MeanAveragePrecision.higher_is_better = true

local NUMBERS = "a list of numbers"
local ROWS = {
  {"enum", "box_format", "two corners, a corner and the size, or the centre and the size",
    choices = {"xyxy", "xywh", "cxcywh"}},
  {"enum", "iou_type", "compare boxes or masks?", choices = {"bbox", "segm"}},
  {"any", "iou_thresholds", NUMBERS .. "; default: 0.5, 0.55, ..., 0.95", optional = true},
  {"any", "rec_thresholds", NUMBERS .. "; default: 0, 0.01, ..., 1", optional = true},
  {"any", "max_detection_thresholds", "three numbers of detections of an image; default: 1, 10, "
    .. "100", optional = true},
  {"bool", "class_metrics", "also compute the values of each class?", default = false},
  {"enum", "average", "\"micro\": all classes together", choices = {"macro", "micro"}},
}
MeanAveragePrecision.signature = define.signature(NAME, ROWS)

local LISTS = {"detection_box", "detection_mask", "detection_scores", "detection_labels",
               "groundtruth_box", "groundtruth_mask", "groundtruth_labels", "groundtruth_crowds",
               "groundtruth_area"}

local function read_list(argument, value, default)
  if value == nil then return default end
  if lib.istensor(value) then value = value:tolist() end
  if not lib.is_plain(value) or #value == 0 then
    errors.refuse(NAME, argument, "a list of numbers is needed", value, "E_TYPE")
  end
  for _, x in ipairs(value) do
    if type(x) ~= "number" then
      errors.refuse(NAME, argument, "a list of numbers is needed", value, "E_TYPE")
    end
  end
  return {unpack(value)}
end

-- A list of n numbers, as in pycocotools in f64: a recall of 1/20 reaches the threshold 0.05.
local function evenly(first, last, n)
  local moth = require "moth"
  return moth.linspace(first, last, n, {dtype = moth.float64, device = "cpu"}):tolist()
end

function MeanAveragePrecision:init(format, iou_type, ious, recalls, most, class_metrics, average)
  self.box_format, self.iou_type, self.class_metrics = format, iou_type, class_metrics
  self.average = average
  self.iou_thresholds = read_list("iou_thresholds", ious, evenly(0.5, 0.95, 10))
  self.rec_thresholds = read_list("rec_thresholds", recalls, evenly(0, 1, 101))
  most = read_list("max_detection_thresholds", most, {1, 10, 100})
  if #most ~= 3 then
    errors.refuse(NAME, "max_detection_thresholds", "three numbers are needed", most)
  end
  table.sort(most)
  self.max_detection_thresholds = most
  for _, name in ipairs(LISTS) do self:add_state(name, {}) end
end

-- ---- updates ----

local FIELDS = {bbox = "boxes", segm = "masks"}

local function check_item(argument, i, item, shape_field, scores)
  if not lib.is_plain(item) then
    errors.refuse(NAME, argument, "a list of tables is needed", item, "E_TYPE")
  end
  for _, name in ipairs {shape_field, "labels", scores and "scores" or nil} do
    if not lib.istensor(item[name]) then
      errors.argument(NAME, argument, ("image %d: a tensor '%s' is needed, got %s"):format(i, name,
        errors.describe(item[name])), "E_TYPE")
    end
  end
  local n, shapes = item.labels:numel(), item[shape_field]
  local fits = shapes:numel() == 0 and n == 0 or shapes:dim() > 0 and shapes:size(1) == n
  if shape_field == "boxes" then
    fits = fits and (n == 0 or shapes:dim() == 2 and shapes:size(2) == 4)
  else
    fits = fits and (n == 0 or shapes:dim() == 3)
  end
  if not fits or item.labels:dim() > 1 then
    errors.argument(NAME, argument, ("image %d: '%s' for %d labels is needed, got %s"):format(i,
      shape_field == "boxes" and "(n, 4) boxes" or "(n, H, W) masks", n,
      tostring(shapes.shape)), "E_SHAPE")
  end
  for _, name in ipairs {"scores", "iscrowd", "area"} do
    if item[name] ~= nil and (not lib.istensor(item[name]) or item[name]:numel() ~= n) then
      errors.argument(NAME, argument, ("image %d: '%s' has a number for each of %d labels, got %s")
        :format(i, name, n, errors.describe(item[name])), "E_SHAPE")
    end
  end
end

-- Boxes as corner, width and height.
local function corner_form(boxes, format)
  if boxes:numel() == 0 then return boxes:reshape(0, 4) end
  if not boxes:is_floating_point() then boxes = boxes:to(require("moth").get_default_dtype()) end
  local first, second = boxes:narrow(2, 1, 2), boxes:narrow(2, 3, 2)
  if format == "xyxy" then second = second - first
  elseif format == "cxcywh" then first = first - second * 0.5 end
  return (require("moth").cat({first, second}, 2))
end

local function add_shapes(self, item, prefix)
  if self.iou_type == "bbox" then
    table.insert(self[prefix .. "_box"], corner_form(item.boxes, self.box_format))
  else
    table.insert(self[prefix .. "_mask"], item.masks:ne(0))
  end
  table.insert(self[prefix .. "_labels"], item.labels:flatten())
end

function MeanAveragePrecision:update(preds, target)
  if not lib.is_plain(preds) then
    errors.refuse(NAME, "preds", "a list of tables is needed", preds, "E_TYPE")
  elseif not lib.is_plain(target) or #target ~= #preds then
    errors.refuse(NAME, "target", ("a list of %d tables is needed"):format(#preds), target)
  end
  local field = FIELDS[self.iou_type]
  for i, item in ipairs(preds) do
    check_item("preds", i, item, field, true)
    check_item("target", i, target[i], field, false)
  end
  for i, item in ipairs(preds) do
    add_shapes(self, item, "detection")
    table.insert(self.detection_scores, item.scores:flatten())
    local wanted = target[i]
    add_shapes(self, wanted, "groundtruth")
    local none = wanted.labels:flatten():mul(0)
    table.insert(self.groundtruth_crowds, wanted.iscrowd and wanted.iscrowd:flatten() or none)
    table.insert(self.groundtruth_area, wanted.area and wanted.area:flatten() or none)
  end
end

-- ---- values ----

local function numbers(list, i)
  local out = list[i]:tolist()
  for k, x in ipairs(out) do
    if type(x) == "boolean" then out[k] = x and 1 or 0 else out[k] = tonumber(x) or x end
  end
  return out
end

-- Returns the areas of the detections and of the targets of image i, and a function that returns
-- the area of the intersection of two of them.
local function boxes_of(self, i)
  local a, b = self.detection_box[i]:tolist(), self.groundtruth_box[i]:tolist()
  local function areas(list)
    local out = {}
    for k, box in ipairs(list) do out[k] = box[3] * box[4] end
    return out
  end
  local max, min = math.max, math.min
  return areas(a), areas(b), function(k, l)
    local d, g = a[k], b[l]
    local w = min(d[1] + d[3], g[1] + g[3]) - max(d[1], g[1])
    local h = min(d[2] + d[4], g[2] + g[4]) - max(d[2], g[2])
    return w > 0 and h > 0 and w * h or 0
  end
end

local function masks_of(self, i)
  local moth = require "moth"
  local a, b = self.detection_mask[i], self.groundtruth_mask[i]
  if a:numel() == 0 or b:numel() == 0 then
    local function areas(x) return x:numel() == 0 and {} or x:flatten(2):sum(2):tolist() end
    return areas(a), areas(b), function() return 0 end
  end
  a, b = a:flatten(2):to(moth.float32), b:flatten(2):to(moth.float32)
  local both = a:matmul(b:t()):tolist()
  return a:sum(2):tolist(), b:sum(2):tolist(), function(k, l) return both[k][l] end
end

-- Reads the data of all images to Lua.
local function images_of(self, micro)
  local images = {}
  for i = 1, #self.detection_labels do
    local areas, wanted_areas, inside
    if self.iou_type == "bbox" then areas, wanted_areas, inside = boxes_of(self, i)
    else areas, wanted_areas, inside = masks_of(self, i) end
    local given = numbers(self.groundtruth_area, i)
    for k, area in ipairs(given) do
      given[k] = area > 0 and area or wanted_areas[k]
    end
    local labels, wanted = numbers(self.detection_labels, i), numbers(self.groundtruth_labels, i)
    if micro then
      for k in ipairs(labels) do labels[k] = 0 end
      for k in ipairs(wanted) do wanted[k] = 0 end
    end
    images[i] = {
      labels = labels, scores = numbers(self.detection_scores, i), areas = areas,
      wanted = wanted, wanted_areas = wanted_areas, sizes = given, inside = inside,
      crowds = numbers(self.groundtruth_crowds, i),
    }
  end
  return images
end

local function classes_of(self)
  local seen, list = {}, {}
  for _, field in ipairs {"detection_labels", "groundtruth_labels"} do
    for i = 1, #self[field] do
      for _, label in ipairs(numbers(self[field], i)) do
        if not seen[label] then seen[label], list[#list + 1] = true, label end
      end
    end
  end
  table.sort(list)
  return list
end

local function as_tensor(value)
  return (require("moth").tensor(value, {dtype = require("moth").float32}))
end

local function per_class(self, out, classes)
  local last = "mar_" .. self.max_detection_thresholds[3]
  out.map_per_class, out[last .. "_per_class"] = as_tensor(-1), as_tensor(-1)
  if not self.class_metrics or #classes == 0 then return end
  local precisions, recalls, images = {}, {}, images_of(self, false)
  for k, label in ipairs(classes) do
    local values = match.evaluate(self, images, {label})
    precisions[k], recalls[k] = values.map, values[last]
  end
  out.map_per_class, out[last .. "_per_class"] = as_tensor(precisions), as_tensor(recalls)
end

function MeanAveragePrecision:compute()
  local moth, micro, out = require "moth", self.average == "micro", {}
  local classes = classes_of(self)
  local values = match.evaluate(self, images_of(self, micro), micro and {0} or classes)
  for name, value in pairs(values) do out[name] = as_tensor(value) end
  per_class(self, out, classes)
  out.classes = #classes > 0 and moth.tensor(classes, {dtype = moth.int32})
    or moth.zeros(0, {dtype = moth.int32})
  return out
end

return {MeanAveragePrecision = MeanAveragePrecision, rows = ROWS}
