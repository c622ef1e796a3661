--- pyramid.lua -- layers for several feature maps of one network: moth.ops.FeaturePyramidNetwork
-- (Lin et al. 2017) and MultiScaleRoIAlign.
--
-- Feature maps are a list from the finest to the coarsest, or a list of {name, tensor}; a
-- FeaturePyramidNetwork returns the same form.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local moth = require "moth"

local nn, F, ops = moth.nn, moth.nn.functional, moth.ops
local plain, istensor = lib.is_plain, lib.istensor

local Module = nn.Module
local pyramid = {}

-- Maps as their names (nil for a list of tensors) and tensors.
local function read_maps(fname, x)
  if not plain(x) or #x == 0 then
    errors.refuse(fname, "x", "a list of feature maps, or of {name, map}, is needed", x, "E_TYPE")
  end
  local names, maps = nil, {}
  for i, item in ipairs(x) do
    local map = item
    if plain(item) then
      names = names or {}
      names[i], map = item[1], item[2]
    end
    if not istensor(map) or map:dim() ~= 4 or plain(item) ~= (names ~= nil)
      or names and type(names[i]) ~= "string" then
      errors.argument(fname, "x", ("(N, C, H, W), or {name, (N, C, H, W)}, is needed, got %s at "
        .. "position %d"):format(errors.describe(item), i), "E_SHAPE")
    end
    maps[i] = map
  end
  return names, maps
end

local function written(names, maps)
  if not names then return maps end
  local list = {}
  for i, map in ipairs(maps) do list[i] = {names[i], map} end
  return list
end

-- ---- FeaturePyramidNetwork ----

local function fill_kaiming(module)
  nn.init.kaiming_uniform_(module.weight, 1)
  if module.bias ~= nil then nn.init.zeros_(module.bias) end
end

--- Adds a coarser map: every second element of the last one.
local LastLevelMaxPool = class("LastLevelMaxPool", Module)
pyramid.LastLevelMaxPool = LastLevelMaxPool

--- Extends the lists results, inputs and names; names is nil for maps without names.
function LastLevelMaxPool:forward(results, _, names)
  results[#results + 1] = F.max_pool2d(results[#results], 1, 2)
  if names then names[#names + 1] = "pool" end
  return results, names
end

--- Adds two maps, P6 and P7 of RetinaNet.
local LastLevelP6P7 = class("LastLevelP6P7", Module)
pyramid.LastLevelP6P7 = LastLevelP6P7

LastLevelP6P7.signature = define.signature("LastLevelP6P7", {
  {"int", "in_channels", "channels of the coarsest input"},
  {"int", "out_channels", "channels of the results"},
})

function LastLevelP6P7:init(in_channels, out_channels)
  self.p6 = nn.Conv2d(in_channels, out_channels, 3, 2, 1)
  self.p7 = nn.Conv2d(out_channels, out_channels, 3, 2, 1)
  fill_kaiming(self.p6)
  fill_kaiming(self.p7)
  self.use_P5 = in_channels == out_channels
end

function LastLevelP6P7:forward(results, inputs, names)
  local p6 = self.p6(self.use_P5 and results[#results] or inputs[#inputs])
  local p7 = self.p7(F.relu(p6))
  results[#results + 1], results[#results + 2] = p6, p7
  if names then names[#names + 1], names[#names + 2] = "p6", "p7" end
  return results, names
end

local FeaturePyramidNetwork = class("FeaturePyramidNetwork", Module)
pyramid.FeaturePyramidNetwork = FeaturePyramidNetwork

FeaturePyramidNetwork.signature = define.signature("FeaturePyramidNetwork", {
  {"ints", "in_channels_list", "channels of each map, from the finest to the coarsest"},
  {"int", "out_channels", "channels of the results"},
  {"any", "extra_blocks", "a module that adds maps: LastLevelMaxPool(), LastLevelP6P7(...)",
   optional = true},
  {"any", "norm_layer", "class of the normalization; default: none", optional = true},
})

--- Maps with the same number of channels; each adds the upsampled coarser map.
function FeaturePyramidNetwork:init(list, out_channels, extra, norm_layer)
  if extra ~= nil and not nn.isinstance(extra, Module) then
    errors.refuse("FeaturePyramidNetwork", "extra_blocks", "a module is needed", extra, "E_TYPE")
  end
  if type(list) == "number" then list = {list} end
  self.inner_blocks = nn.ModuleList()
  self.layer_blocks = nn.ModuleList()
  local norm = norm_layer == nil and moth.none or norm_layer
  for i, channels in ipairs(list) do
    if channels < 1 then
      errors.argument("FeaturePyramidNetwork", "in_channels_list", ("numbers from 1 are needed, "
        .. "got "
        .. "%d at position %d"):format(channels, i), "E_SHAPE")
    end
    self.inner_blocks:append(ops.Conv2dNormActivation {channels, out_channels, kernel_size = 1,
      padding = 0, norm_layer = norm, activation_layer = moth.none})
    self.layer_blocks:append(ops.Conv2dNormActivation {out_channels, out_channels,
      kernel_size = 3, norm_layer = norm, activation_layer = moth.none})
  end
  for _, module in ipairs(self:modules()) do
    if nn.isinstance(module, nn.Conv2d) then fill_kaiming(module) end
  end
  self.extra_blocks = extra
end

--- x -> maps of the same sizes, followed by those of extra_blocks.
function FeaturePyramidNetwork:forward(x)
  local names, maps = read_maps("FeaturePyramidNetwork", x)
  local n = #maps
  if n ~= #self.inner_blocks then
    errors.argument("FeaturePyramidNetwork", "x", ("%d maps are needed, got %d"):format(
      #self.inner_blocks, n), "E_SHAPE")
  end
  local inner = self.inner_blocks[n](maps[n])
  local results = {}
  results[n] = self.layer_blocks[n](inner)
  for i = n - 1, 1, -1 do
    local lateral = self.inner_blocks[i](maps[i])
    inner = lateral + F.interpolate {inner, size = {lateral:size(3), lateral:size(4)}}
    results[i] = self.layer_blocks[i](inner)
  end
  if self.extra_blocks ~= nil then results, names = self.extra_blocks(results, maps, names) end
  return written(names, results)
end

-- ---- MultiScaleRoIAlign ----

local MultiScaleRoIAlign = class("MultiScaleRoIAlign", Module)
pyramid.MultiScaleRoIAlign = MultiScaleRoIAlign

MultiScaleRoIAlign.signature = define.signature("MultiScaleRoIAlign", {
  {"any", "featmap_names", "list of the names of the maps to use"},
  {"int2", "output_size", "height and width of the result"},
  {"int", "sampling_ratio", "points for each side of a cell"},
  {"int", "canonical_scale", "size of a region on canonical_level", default = 224},
  {"int", "canonical_level", "the level of a region of that size: its map is coarser by 2^level",
   default = 4},
})

--- roi_align from the map that fits each region's size.
function MultiScaleRoIAlign:init(names, size, ratio, scale, level)
  if not plain(names) or #names == 0 then
    errors.refuse("MultiScaleRoIAlign", "featmap_names", "a list of names is needed", names,
      "E_TYPE")
  end
  self.featmap_names, self.sampling_ratio = names, ratio
  self.output_size = require("moth.ops.sample").sizes(size)
  self.canonical_scale, self.canonical_level = scale, level
end

-- The selected maps, in their original order.
local function used_maps(self, x)
  local names, maps = read_maps("MultiScaleRoIAlign", x)
  local wanted, list = {}, {}
  for _, name in ipairs(self.featmap_names) do wanted[name] = true end
  for i, map in ipairs(maps) do
    if not names or wanted[names[i]] then list[#list + 1] = map end
  end
  if #list == 0 then
    errors.argument("MultiScaleRoIAlign", "x", "none of the maps is called '"
      .. table.concat(self.featmap_names, "', '") .. "'", "E_DOMAIN")
  end
  return list
end

local function round(v) return math.floor(v + 0.5) end

-- The scale of each map relative to the largest image, a power of 2.
local function scales_of(maps, shapes)
  local height, width = 0, 0
  for _, shape in ipairs(shapes) do
    height, width = math.max(height, shape[1]), math.max(width, shape[2])
  end
  local list = {}
  for i, map in ipairs(maps) do
    list[i] = 2 ^ round(math.log(map:size(3) / height) / math.log(2))
  end
  return list
end

-- The index of the map for each region, from 1.
local function levels_of(self, boxes, scales)
  local sizes = ops.box_area(moth.cat(boxes)):sqrt()
  local lowest = -math.log(scales[1]) / math.log(2)
  local highest = -math.log(scales[#scales]) / math.log(2)
  local level = ((sizes / self.canonical_scale):log2() + self.canonical_level + 1e-6):floor()
  return level:clamp(round(lowest), round(highest)):long() - round(lowest) + 1
end

--- x: maps, or a list of {name, map}; boxes: (L, 4) for each image; image_shapes: {height, width}
-- of each image. Returns (K, C, height, width).
function MultiScaleRoIAlign:forward(x, boxes, image_shapes)
  local maps = used_maps(self, x)
  if not plain(boxes) or #boxes == 0 then
    errors.refuse("MultiScaleRoIAlign", "boxes", "a list of (L, 4) is needed", boxes, "E_TYPE")
  elseif not plain(image_shapes) or #image_shapes == 0 then
    errors.refuse("MultiScaleRoIAlign", "image_shapes", "a list of {height, width} is needed",
      image_shapes, "E_TYPE")
  end
  self.scales = self.scales or scales_of(maps, image_shapes)
  local scales, size = self.scales, self.output_size
  if #maps == 1 then
    return (ops.roi_align(maps[1], boxes, size, scales[1], self.sampling_ratio))
  end
  local parts = {}
  for i, list in ipairs(boxes) do
    parts[i] = moth.cat({moth.full({list:size(1), 1}, i, list.dtype, list.device), list}, 2)
  end
  local rois, levels = moth.cat(parts), levels_of(self, boxes, scales)
  local results, order = {}, {}
  for i, map in ipairs(maps) do
    local at = levels:eq(i):nonzero():squeeze(2)
    results[i] = ops.roi_align(map, rois:index_select(1, at), size, scales[i], self.sampling_ratio)
      :to(maps[1].dtype)
    order[i] = at
  end
  return (moth.cat(results):index_select(1, moth.cat(order):argsort()))
end

function MultiScaleRoIAlign:extra_repr()
  return ("featmap_names={%s}, output_size=(%d, %d), sampling_ratio=%d"):format(
    table.concat(self.featmap_names, ", "), self.output_size[1], self.output_size[2],
    self.sampling_ratio)
end

return pyramid
