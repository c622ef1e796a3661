--- match.lua -- COCO's matching of detections with targets, and the precision and recall that
-- follow from it, as pycocotools computes them.
--
-- An image is a table of lists: labels, scores, areas of the detections; wanted (labels),
-- wanted_areas, sizes (areas that decide small, medium, large), crowds of the targets; and
-- inside(k, l), the area of the intersection of detection k and target l.

local match = {}

local max, min = math.max, math.min

local RANGES = {{"all", 0, 1e10}, {"small", 0, 32 ^ 2}, {"medium", 32 ^ 2, 96 ^ 2},
                {"large", 96 ^ 2, 1e10}}

-- Positions sorted by falling score; equal scores stay in their order.
local function by_score(list, scores)
  table.sort(list, function(a, b)
    if scores[a] ~= scores[b] then return scores[a] > scores[b] end
    return a < b
  end)
  return list
end

local function positions(labels, label)
  local list = {}
  for k, other in ipairs(labels) do
    if other == label then list[#list + 1] = k end
  end
  return list
end

-- The detections and targets of a class in an image: {found, wanted, ious}; nil if there are none.
local function pairs_of(image, label, most)
  local found = by_score(positions(image.labels, label), image.scores)
  local wanted = positions(image.wanted, label)
  if #found == 0 and #wanted == 0 then return nil end
  for k = #found, most + 1, -1 do found[k] = nil end
  local ious = {}
  for i, k in ipairs(found) do
    ious[i] = {}
    for j, l in ipairs(wanted) do
      local inside, area = image.inside(k, l), image.areas[k]
      local union = image.crowds[l] ~= 0 and area or area + image.wanted_areas[l] - inside
      ious[i][j] = inside > 0 and inside / union or 0
    end
  end
  return {image = image, found = found, wanted = wanted, ious = ious}
end

-- The best target for detection i at a threshold, among the targets in `order`, or nil.
local function best(one, i, order, ignored, taken, threshold)
  local ious, iou, found = one.ious[i], min(threshold, 1 - 1e-10), nil
  for _, j in ipairs(order) do
    local crowd = one.image.crowds[one.wanted[j]] ~= 0
    if not taken[j] or crowd then
      if found and not ignored[found] and ignored[j] then break end
      if ious[j] >= iou then iou, found = ious[j], j end
    end
  end
  return found
end

-- Matches at all thresholds for a range of areas. Returns the number of targets that count, and for
-- each threshold two lists by detection: true if it is matched, true if it is left out.
local function matched(one, low, high, thresholds)
  local image, ignored, order, count = one.image, {}, {}, 0
  for j, l in ipairs(one.wanted) do
    local size = image.sizes[l]
    ignored[j] = image.crowds[l] ~= 0 or size < low or size > high
    if not ignored[j] then
      count = count + 1
      order[count] = j
    end
  end
  for j in ipairs(one.wanted) do
    if ignored[j] then order[#order + 1] = j end
  end
  local hits, skips = {}, {}
  for t, threshold in ipairs(thresholds) do
    local taken, hit, skip = {}, {}, {}
    for i, k in ipairs(one.found) do
      local j = best(one, i, order, ignored, taken, threshold)
      hit[i] = j ~= nil
      if j then
        taken[j], skip[i] = true, ignored[j]
      else
        skip[i] = image.areas[k] < low or image.areas[k] > high
      end
    end
    hits[t], skips[t] = hit, skip
  end
  return count, hits, skips
end

-- The mean precision at the recall thresholds and the last recall, from true (1) and false (0)
-- positives by falling score.
local function averaged(flags, count, recalls)
  local n, tp, fp = #flags, 0, 0
  local precision, recall = {}, {}
  for i, flag in ipairs(flags) do
    tp, fp = tp + flag, fp + 1 - flag
    recall[i], precision[i] = tp / count, tp / (tp + fp + 2 ^ -52)
  end
  for i = n - 1, 1, -1 do precision[i] = max(precision[i], precision[i + 1]) end
  local sum, at = 0, 1
  for _, threshold in ipairs(recalls) do
    while at <= n and recall[at] < threshold do at = at + 1 end
    if at > n then break end
    sum = sum + precision[at]
  end
  return sum / #recalls, n > 0 and recall[n] or 0
end

-- The `most` best detections of each image in one list, by falling score: {result, position}.
local function ranked(results, most)
  local list, scores, at = {}, {}, {}
  for _, result in ipairs(results) do
    local image = result.one.image
    for i = 1, min(#result.one.found, most) do
      list[#list + 1] = {result, i}
      scores[#list], at[#list] = image.scores[result.one.found[i]], #list
    end
  end
  by_score(at, scores)
  for i, k in ipairs(at) do at[i] = list[k] end
  return at
end

-- Adds the precision and recall of one class to the sums of each threshold.
local function add_class(sums, results, metric, range)
  local count = 0
  for _, result in ipairs(results) do count = count + result.count end
  if count == 0 then return end
  for m, most in ipairs(metric.max_detection_thresholds) do
    local order = ranked(results, most)
    for t in ipairs(metric.iou_thresholds) do
      local flags = {}
      for _, row in ipairs(order) do
        local result, i = row[1], row[2]
        if not result.skips[t][i] then flags[#flags + 1] = result.hits[t][i] and 1 or 0 end
      end
      local precision, recall = averaged(flags, count, metric.rec_thresholds)
      local sum = sums[range][m][t]
      sum.precision, sum.recall = sum.precision + precision, sum.recall + recall
      sum.n = sum.n + 1
    end
  end
end

local function new_sums(metric)
  local sums = {}
  for r = 1, #RANGES do
    sums[r] = {}
    for m = 1, 3 do
      sums[r][m] = {}
      for t = 1, #metric.iou_thresholds do sums[r][m][t] = {precision = 0, recall = 0, n = 0} end
    end
  end
  return sums
end

-- The mean over the classes and thresholds, or one threshold; -1 if there is none.
local function mean(list, what, metric, threshold)
  local sum, n = 0, 0
  for t, iou in ipairs(metric.iou_thresholds) do
    if not threshold or iou == threshold then sum, n = sum + list[t][what], n + list[t].n end
  end
  return n > 0 and sum / n or -1
end

--- Evaluates images for some classes.
-- @param metric   its fields iou_thresholds, rec_thresholds, max_detection_thresholds are read
-- @return a table of numbers: map, map_50, ..., mar_large
function match.evaluate(metric, images, classes)
  local sums, most = new_sums(metric), metric.max_detection_thresholds
  for _, label in ipairs(classes) do
    local data = {}
    for _, image in ipairs(images) do data[#data + 1] = pairs_of(image, label, most[3]) end
    for r, range in ipairs(RANGES) do
      local results = {}
      for i, one in ipairs(data) do
        local count, hits, skips = matched(one, range[2], range[3], metric.iou_thresholds)
        results[i] = {one = one, count = count, hits = hits, skips = skips}
      end
      add_class(sums, results, metric, r)
    end
  end
  local all = sums[1]
  local out = {
    map = mean(all[3], "precision", metric), map_50 = mean(all[3], "precision", metric, 0.5),
    map_75 = mean(all[3], "precision", metric, 0.75),
  }
  for m, n in ipairs(most) do out["mar_" .. n] = mean(all[m], "recall", metric) end
  for r = 2, #RANGES do
    out["map_" .. RANGES[r][1]] = mean(sums[r][3], "precision", metric)
    out["mar_" .. RANGES[r][1]] = mean(sums[r][3], "recall", metric)
  end
  return out
end

return match
