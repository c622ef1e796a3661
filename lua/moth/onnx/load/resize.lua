--- resize.lua -- resampling nodes of an ONNX graph: Resize in all its modes, grids.
--
-- Resize works on one axis after another: each element of the result is a weighted sum of a few
-- elements of the input, its taps. If Moth's interpolate computes the same values, it is used.

local ffi = require "ffi"
local M = require "moth"
local rows = require "moth.onnx.load.rows"

local F = M.nn.functional
local N, row, refuse, place = rows.N, rows.row, rows.refuse, rows.place

local floor, ceil, abs = math.floor, math.ceil, math.abs

-- ---- positions in the input ----

-- Returns the input position of element y of an axis's result, both from 0. t: size, out
-- (integers), scale, wanted (size * scale, not rounded), first and last (region of interest).
local PLACES = {
  half_pixel = function(y, t) return (y + 0.5) / t.scale - 0.5 end,
  asymmetric = function(y, t) return y / t.scale end,
  align_corners = function(y, t)
    return t.wanted == 1 and 0 or y * (t.size - 1) / (t.wanted - 1)
  end,
  pytorch_half_pixel = function(y, t)
    return t.out == 1 and 0 or (y + 0.5) / t.scale - 0.5
  end,
  half_pixel_symmetric = function(y, t)
    return t.size / 2 * (1 - t.out / t.wanted) + (y + 0.5) / t.scale - 0.5
  end,
  tf_crop_and_resize = function(y, t)
    local span = t.size - 1
    if t.wanted == 1 then return 0.5 * (t.first + t.last) * span end
    return t.first * span + y * (t.last - t.first) * span / (t.wanted - 1)
  end,
}

-- ---- weights ----

local NEAREST = {
  round_prefer_floor = function(x) return ceil(x - 0.5) end,
  round_prefer_ceil = function(x) return floor(x + 0.5) end,
  floor = floor,
  ceil = ceil,
}

local function triangle(x) return math.max(1 - abs(x), 0) end

local function cubic(A)
  return function(x)
    x = abs(x)
    if x <= 1 then return ((A + 2) * x - (A + 3)) * x * x + 1 end
    return x < 2 and ((A * x - 5 * A) * x + 8 * A) * x - 4 * A or 0
  end
end

-- Returns the first tap, the number of taps and their weights around x, for a kernel of radius
-- `reach`; with antialias the kernel is widened by the downscaling factor.
local function around(x, kernel, reach, narrow)
  local left = floor(x)
  if left == x then left = left - 1 end -- as in the specification's reference
  local before = narrow < 1 and ceil(reach / narrow) - 1 or reach - 1
  local first, weights = left - before, {}
  for i = 1, 2 * before + 2 do weights[i] = kernel((first + i - 1 - x) * narrow) end
  return first, weights
end

-- ---- one axis ----

local function clamped(i, n) return math.min(math.max(i, 0), n - 1) + 1 end

local function column(list, x, d, dtype)
  local shape = {}
  for k = 1, x:dim() do shape[k] = k == d and #list or 1 end
  return M.tensor(list, {dtype = dtype, device = x.device}):reshape(shape)
end

local function taken(x, d, at)
  return x:index_select(d, M.tensor(at, {dtype = M.int64, device = x.device}))
end

-- Weights normalized to sum 1, without taps outside if `exclude`.
local function normalized(weights, first, n, exclude)
  local sum = 0
  for i, w in ipairs(weights) do
    local at = first + i - 1
    if exclude and (at < 0 or at >= n) then weights[i] = 0 else sum = sum + w end
  end
  for i, w in ipairs(weights) do weights[i] = sum == 0 and w or w / sum end
  return weights
end

local function along(a, x, d, t)
  if t.out == 0 then return x:narrow(d, 1, 0) end
  local how, count = PLACES[a.coordinate_transformation_mode], 0
  local at, weights, inside = {}, {}, {}
  local kernel, reach = triangle, 1
  if a.mode == "cubic" then kernel, reach = cubic(a.cubic_coeff_a), 2 end
  for y = 1, t.out do
    local place_of = how(y - 1, t)
    inside[y] = place_of >= 0 and place_of <= t.size - 1
    if a.mode == "nearest" then
      count, at[1] = 1, at[1] or {}
      at[1][y] = clamped(NEAREST[a.nearest_mode](place_of), t.size)
    else
      local first, list = around(place_of, kernel, reach, a.antialias == 1 and math.min(t.scale, 1)
        or 1)
      if a.antialias == 1 or a.exclude_outside == 1 then
        list = normalized(list, first, t.size, a.exclude_outside == 1)
      end
      count = #list
      for k, w in ipairs(list) do
        at[k], weights[k] = at[k] or {}, weights[k] or {}
        at[k][y], weights[k][y] = clamped(first + k - 1, t.size), w
      end
    end
  end
  local y
  for k = 1, count do
    local part = taken(x, d, at[k])
    if weights[k] then part = part * column(weights[k], x, d, x.dtype) end
    y = y and y + part or part
  end
  if a.coordinate_transformation_mode == "tf_crop_and_resize" then
    y = M.where(column(inside, x, d, M.bool), y, a.extrapolation_value)
  end
  return y
end

-- ---- use of interpolate ----

local RANKED = {linear = {"linear", "bilinear", "trilinear"}, cubic = {false, "bicubic"}}

-- The mode of interpolate with the same result, and align_corners; or nil.
local function mode_of(a, x, axes, plan)
  local rank, how = x:dim() - 2, a.coordinate_transformation_mode
  if rank < 1 or rank > 3 or not x:is_floating_point() or a.antialias == 1
     or a.exclude_outside == 1 then
    return nil
  end
  for _, d in ipairs(axes) do
    local t = plan[d]
    if t.size == 0 or t.out == 0 or d <= 2 and t.out ~= t.size or t.wanted ~= t.out
       or how == "pytorch_half_pixel" and d > 2 and t.out == 1
       or a.mode == "nearest" and t.out % t.size ~= 0 then
      return nil
    end
  end
  if a.mode == "nearest" then
    if how == "asymmetric" and a.nearest_mode == "floor" then return "nearest" end
    return how:find "^half_pixel" and a.nearest_mode:find "round" and "nearest-exact" or nil
  end
  local name = RANKED[a.mode] and RANKED[a.mode][rank]
  if not name or a.mode == "cubic" and a.cubic_coeff_a ~= -0.75 then return nil end
  if how == "align_corners" then return name, true end
  if how:find "half_pixel" then return name end
end

-- ---- Resize ----


-- A number rounded to float32, the dtype of scales: 2.6 of 5 elements are 13.
local function single(x) return tonumber(ffi.cast("float", x)) end

-- Sizes and scales of each axis: axis -> t of PLACES.
local function plan_of(a, x, axes, roi, scales, sizes)
  local plan, common = {}, nil
  local policy = a.keep_aspect_ratio_policy
  if policy ~= "stretch" and policy ~= "not_larger" and policy ~= "not_smaller" then
    refuse("keep_aspect_ratio_policy %s", rows.quoted(policy))
  end
  if sizes and policy ~= "stretch" then
    for k, d in ipairs(axes) do
      local scale = sizes[k] / x:size(d)
      common = common and math[policy == "not_larger" and "min" or "max"](common, scale) or scale
    end
  end
  for k, d in ipairs(axes) do
    local size = x:size(d)
    local t = {size = size, first = 0, last = 1}
    if common then t.scale, t.out = common, floor(common * size + 0.5)
    elseif sizes then t.scale, t.out = sizes[k] / size, sizes[k]
    else t.scale, t.out = scales[k], floor(single(scales[k] * size)) end
    t.wanted = common and common * size or sizes and t.out or single(t.scale * size)
    if roi and #roi > 0 then t.first, t.last = roi[k], roi[k + #axes] end
    plan[d] = t
  end
  return plan
end

local function resized(a, x, axes, plan)
  local mode, corners = mode_of(a, x, axes, plan)
  if mode then
    local size = {unpack(rows.shape(x), 3)}
    for _, d in ipairs(axes) do
      if d > 2 then size[d - 2] = plan[d].out end
    end
    local options = {size = size, mode = mode, align_corners = corners}
    return F.interpolate(x, options), options
  end
  local dtype, whole = x.dtype, rows.whole(x)
  local y, crop = x, a.coordinate_transformation_mode == "tf_crop_and_resize"
  if a.mode ~= "nearest" then y = whole and x:double() or rows.wide(x) end
  for _, d in ipairs(axes) do
    local t = plan[d]
    if t.scale ~= 1 or t.out ~= t.size or crop and (t.first ~= 0 or t.last ~= 1) then
      y = along(a, y, d, t)
    end
  end
  if dtype == y.dtype then return y end
  if whole then y = y:round() end
  if dtype == M.uint8 then y = y:clamp(0, 255) end
  if dtype == M.int8 then y = y:clamp(-128, 127) end
  return y:to(dtype)
end

-- The cached arguments of interpolate, if they still apply to x: static lists are the same tables.
local function known(a, x, roi, scales, sizes)
  local last = a.last
  if not last or last.roi ~= roi or last.scales ~= scales or last.sizes ~= sizes
     or #last.shape ~= x:dim() then
    return nil
  end
  for d, size in ipairs(last.shape) do
    if x:size(d) ~= size then return nil end
  end
  return last.dtype == x.dtype and last.options
end

local RESIZE = "mode=nearest coordinate_transformation_mode=half_pixel "
  .. "nearest_mode=round_prefer_floor cubic_coeff_a=-0.75 exclude_outside=0 "
  .. "extrapolation_value=0.0 antialias=0 keep_aspect_ratio_policy=stretch axes:ints"

N.Resize = row(RESIZE, function(a, x, roi, scales, sizes)
  local options = known(a, x, roi, scales, sizes)
  if options then return F.interpolate(x, options) end
  local axes, node = {}, a
  local last = {roi = roi, scales = scales, sizes = sizes, dtype = x.dtype,
                 shape = rows.shape(x)}
  if a.opset < 11 then -- x, scales
    roi, scales, sizes = nil, roi, nil
    a = setmetatable({coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"},
      {__index = a})
  end
  if not (a.mode == "nearest" or a.mode == "linear" or a.mode == "cubic") then
    refuse("mode %s", rows.quoted(a.mode))
  elseif not PLACES[a.coordinate_transformation_mode] then
    refuse("coordinate_transformation_mode %s", rows.quoted(a.coordinate_transformation_mode))
  elseif a.mode == "nearest" and not NEAREST[a.nearest_mode] then
    refuse("nearest_mode %s", rows.quoted(a.nearest_mode))
  end
  sizes = sizes and #sizes > 0 and sizes or nil
  if not sizes and not (scales and #scales > 0) then refuse "no scales and no sizes" end
  for d = 1, a.axes and #a.axes or x:dim() do axes[d] = a.axes and place(x, a.axes[d]) or d end
  if #(sizes or scales) ~= #axes then
    refuse("%d scales or sizes for %d axes", #(sizes or scales), #axes)
  end
  local y
  y, last.options = resized(a, x, axes, plan_of(a, x, axes, roi, scales, sizes))
  node.last = last.options and last
  return y
end, "2 3 4")

-- The name of Resize before opset 10.
N.Upsample = row("mode=nearest scales:floats", function(a, x, scales)
  return N.Resize.run({mode = a.mode == "bilinear" and "linear" or a.mode, opset = 10,
    cubic_coeff_a = -0.75, exclude_outside = 0, antialias = 0, extrapolation_value = 0,
    keep_aspect_ratio_policy = "stretch"}, x, a.scales or scales)
end, "2")

-- ---- grids ----

local GRID = {linear = "bilinear", cubic = "bicubic"}
N.GridSample = row("2 mode=bilinear padding_mode=zeros align_corners=0", function(a, x, grid)
  return F.grid_sample(x, grid, {mode = GRID[a.mode] or a.mode, padding_mode = a.padding_mode,
    align_corners = a.align_corners == 1})
end)

N.AffineGrid = row("2 align_corners=0", function(a, theta, size)
  return F.affine_grid(theta, size, a.align_corners == 1)
end, "2")

return rows
