--- layers.lua -- builds modules from the sections of a Darknet cfg. Each row takes a section, the
-- input shape {channels, height, width} and the net so far, and returns the module and its output
-- shape.
--
-- Format: pjreddie/darknet, src/parser.c; groups of routes, scale_x_y: AlexeyAB/darknet.

local class = require "moth.base.class"
local nn = require "moth.nn"
local ops = require("moth.binding.bind").ops
local parse = require "moth.darknet.parse"

local F = nn.functional
local layers = {}

local EPS, MOMENTUM = 1e-6, 0.01 -- the epsilon of Darknet's batch normalisation

local activations = {
  linear = function(x) return x end,
  leaky = function(x) return (F.leaky_relu(x, 0.1)) end,
  relu = F.relu, relu6 = F.relu6, logistic = ops.sigmoid, tanh = ops.tanh, elu = F.elu,
  selu = F.selu, mish = F.mish, swish = F.silu, gelu = F.gelu,
}

local function activation_of(section, default)
  local name = section:text("activation", default)
  local f = activations[name]
  if not f then
    parse.refuse_unknown(section, "the activation '%s' is unknown", name, activations)
  end
  return f, name
end

local function described(shape) return table.concat(shape, " x ") end

-- ---- layers with weights: `weights` lists their tensors in the order of the file ----

local Convolutional = nn.class("Convolutional", nn.Module)

function Convolutional:init(options, act, name)
  self.conv = nn.Conv2d(options)
  if options.bias == false then
    self.bn = nn.BatchNorm2d(options.out_channels, EPS, MOMENTUM)
  end
  self.act, self.activation = act, name
end

function Convolutional:forward(x)
  x = self.conv(x)
  if self.bn then x = self.bn(x) end
  return (self.act(x))
end

function Convolutional:extra_repr() return self.activation end

local function norms(bn) return {bn.bias, bn.weight, bn.running_mean, bn.running_var} end

function Convolutional:weights()
  local list = self.bn and norms(self.bn) or {self.conv.bias}
  list[#list + 1] = self.conv.weight
  return list
end

local Connected = nn.class("Connected", nn.Module)

function Connected:init(inputs, outputs, normalized, act, name)
  self.linear = nn.Linear(inputs, outputs, not normalized)
  if normalized then self.bn = nn.BatchNorm1d(outputs, EPS, MOMENTUM) end
  self.act, self.activation = act, name
end

function Connected:forward(x)
  x = self.linear(x:flatten(2))
  if self.bn then x = self.bn(x) end
  return (self.act(x):unsqueeze(-1):unsqueeze(-1))
end

Connected.extra_repr = Convolutional.extra_repr

function Connected:weights()
  if not self.bn then return {self.linear.bias, self.linear.weight} end
  local first, second, third, fourth = unpack(norms(self.bn))
  return {first, self.linear.weight, second, third, fourth}
end

-- ---- layers without: one class; its forward takes x and all earlier results ----

local Step = nn.class("Step", nn.Module)

function Step:init(name, run, text) self.name, self.run, self.text = name, run, text or "" end

function Step:forward(x, earlier) return (self.run(x, earlier, self.training)) end

function Step:extra_repr() return self.name .. (self.text ~= "" and ", " or "") .. self.text end

-- Darknet pads on the right and below more than on the left and above, so that a window of 2 with
-- step 1 keeps the size.
local function pool(size, stride, left, right, bottom)
  local plain = left == 0 and right == 0 and bottom == 0
  return function(x)
    if not plain then x = F.pad(x, {left, right, left, bottom}, "constant", -math.huge) end
    return (F.max_pool2d(x, size, stride))
  end
end

-- The layers that a section names, from 0: absolute numbers, or negative ones relative to the
-- section.
local function named(section, key, default, net)
  local list = section:list(key, default, true)
  for i, at in ipairs(list or {}) do
    local index = at < 0 and section.index + at or at
    if index < 0 or index >= section.index then
      parse.refuse(section.cfg, section, ("%s=%d is no earlier layer; there are %d"):format(key,
        at, section.index))
    end
    list[i] = index + 1
    net.needed[index + 1] = true
  end
  if not list or #list == 0 then
    parse.refuse(section.cfg, section, ("%s= is missing"):format(key))
  end
  return list
end

-- ---- the head of a detector ----

local Yolo = nn.class("Yolo", nn.Module)
layers.Yolo = Yolo

-- anchors: {width, height} in pixels of the net's input; size: {width, height} of the input.
function Yolo:init(anchors, classes, size, scale)
  self.classes, self.size, self.scale = classes, size, scale
  self:register_buffer("anchors", require("moth").tensor(anchors), false)
end

--- (N, A * (5 + classes), H, W) -> (N, A, H, W, 5 + classes): raw x, y, w, h, objectness, classes;
-- in evaluation (N, A * H * W, 5 + classes): boxes in pixels, centre and size, and probabilities.
function Yolo:forward(x)
  local n, h, w = x:size(1), x:size(3), x:size(4)
  local a = self.anchors:size(1)
  x = x:view(n, a, 5 + self.classes, h, w):permute(1, 2, 4, 5, 3)
  if self.training then return x end
  return (self:decode(x):reshape(n, a * h * w, 5 + self.classes))
end

--- Boxes and probabilities, (N, A, H, W, 5 + classes), from the raw results.
function Yolo:decode(x)
  local h, w = x:size(3), x:size(4)
  local where = {dtype = x.dtype, device = x.device}
  local grid = ops.stack({ops.arange(0, w, 1, where):view(1, w):expand(h, w),
    ops.arange(0, h, 1, where):view(h, 1):expand(h, w)}, -1)
  local step = ops.stack({ops.full({}, self.size[1] / w, where),
    ops.full({}, self.size[2] / h, where)})
  local centre = x:narrow(-1, 1, 2):sigmoid() * self.scale - (self.scale - 1) / 2
  local size = x:narrow(-1, 3, 2):exp() * self.anchors:to(where.dtype):view(1, -1, 1, 1, 2)
  return (ops.cat({(centre + grid) * step, size,
    x:narrow(-1, 5, 1 + self.classes):sigmoid()}, -1))
end

function Yolo:extra_repr()
  return ("%d anchors, %d classes"):format(self.anchors:size(1), self.classes)
end

-- ---- the sections ----

layers.sections = {}
local sections = layers.sections

local function windows(size, pad, window, stride, dilation)
  return math.floor((size + pad - (dilation or 1) * (window - 1) - 1) / stride) + 1
end

local function checked(section, c, h, w)
  if h < 1 or w < 1 then
    parse.refuse(section.cfg, section, ("the result has no elements: %d x %d"):format(h, w))
  end
  return {c, h, w}
end

function sections.convolutional(section, shape)
  local filters, size = section:int("filters", 1, 1), section:int("size", 1, 1)
  local stride, dilation = section:int("stride", 1, 1), section:int("dilation", 1, 1)
  local groups, act, name = section:int("groups", 1, 1), activation_of(section, "logistic")
  local pad = section:int("pad", 0) ~= 0 and math.floor(size / 2) * dilation
    or section:int("padding", 0)
  if shape[1] % groups ~= 0 or filters % groups ~= 0 then
    parse.refuse(section.cfg, section, ("%d channels and %d filters are no multiples of groups=%d")
      :format(shape[1], filters, groups))
  end
  local layer = Convolutional({in_channels = shape[1], out_channels = filters,
    kernel_size = size, stride = stride, padding = pad, dilation = dilation, groups = groups,
    bias = section:int("batch_normalize", 0) == 0}, act, name)
  return layer, checked(section, filters, windows(shape[2], 2 * pad, size, stride, dilation),
    windows(shape[3], 2 * pad, size, stride, dilation))
end

function sections.connected(section, shape)
  local outputs, act, name = section:int("output", 1, 1), activation_of(section, "logistic")
  return Connected(shape[1] * shape[2] * shape[3], outputs,
    section:int("batch_normalize", 0) ~= 0, act, name), {outputs, 1, 1}
end

function sections.maxpool(section, shape)
  local stride = section:int("stride", 1, 1)
  local size = section:int("size", stride, 1)
  local padding = section:int("padding", size - 1)
  local h, w = windows(shape[2], padding, size, stride), windows(shape[3], padding, size, stride)
  local left = math.floor(padding / 2)
  local right = math.max((w - 1) * stride + size - left - shape[3], 0)
  local bottom = math.max((h - 1) * stride + size - left - shape[2], 0)
  return Step("maxpool", pool(size, stride, left, right, bottom),
    ("size %d, stride %d"):format(size, stride)), checked(section, shape[1], h, w)
end

function sections.avgpool(_, shape)
  return Step("avgpool", function(x) return (x:mean({3, 4}, true)) end), {shape[1], 1, 1}
end

function sections.upsample(section, shape)
  local stride, scale = section:int("stride", 2, 1), section:number("scale", 1)
  return Step("upsample", function(x)
    x = F.interpolate {x, scale_factor = stride, mode = "nearest"}
    return scale == 1 and x or x * scale
  end, "stride " .. stride), {shape[1], shape[2] * stride, shape[3] * stride}
end

function sections.dropout(section, shape)
  local p = section:number("probability", 0.5)
  if not (p >= 0 and p <= 1) then
    parse.refuse(section.cfg, section, ("probability=%s is outside of 0 to 1"):format(p))
  end
  return Step("dropout", function(x, _, training)
    return (F.dropout {x, p = p, training = training})
  end, "p " .. p), shape
end

function sections.softmax(section, shape)
  local groups, heat = section:int("groups", 1, 1), section:number("temperature", 1)
  local all = shape[1] * shape[2] * shape[3]
  if all % groups ~= 0 then
    parse.refuse(section.cfg, section, ("%d numbers are no multiple of groups=%d"):format(all,
      groups))
  end
  return Step("softmax", function(x)
    local y = x:reshape(x:size(1), groups, -1)
    return ((y / heat):softmax(3):reshape(x.shape))
  end), shape
end

function sections.route(section, _, net)
  local from = named(section, "layers", nil, net)
  local groups, id = section:int("groups", 1, 1), section:int("group_id", 0)
  local first, channels = net.shapes[from[1]], 0
  for _, at in ipairs(from) do
    local shape = net.shapes[at]
    if shape[2] ~= first[2] or shape[3] ~= first[3] then
      parse.refuse(section.cfg, section, ("layers of %s and %s cannot be concatenated"):format(
        described(first), described(shape)))
    end
    if shape[1] % groups ~= 0 or id >= groups then
      parse.refuse(section.cfg, section, ("group_id=%d of groups=%d, of %d channels"):format(id,
        groups, shape[1]))
    end
    channels = channels + shape[1] / groups
  end
  return Step("route", function(_, earlier)
    local parts = {}
    for i, at in ipairs(from) do
      local part = net.shapes[at][1] / groups
      parts[i] = groups == 1 and earlier[at] or earlier[at]:narrow(2, id * part + 1, part)
    end
    return #parts == 1 and parts[1] or ops.cat(parts, 2)
  end), {channels, first[2], first[3]}
end

function sections.shortcut(section, shape, net)
  local from, act = named(section, "from", nil, net), activation_of(section, "linear")
  for _, at in ipairs(from) do
    if described(net.shapes[at]) ~= described(shape) then
      parse.refuse(section.cfg, section, ("%s cannot be added to %s"):format(
        described(net.shapes[at]), described(shape)), "E_UNSUPPORTED")
    end
  end
  return Step("shortcut", function(x, earlier)
    for _, at in ipairs(from) do x = x + earlier[at] end
    return (act(x))
  end), shape
end

function sections.yolo(section, shape, net)
  local classes, flat = section:int("classes", 20, 1), section:list("anchors", {})
  local mask, anchors = section:list("mask", nil, true), {}
  if not mask then
    mask = {}
    for i = 1, #flat / 2 do mask[i] = i - 1 end
  end
  for i, k in ipairs(mask) do
    anchors[i] = {flat[2 * k + 1], flat[2 * k + 2]}
    if k < 0 or not anchors[i][2] then
      parse.refuse(section.cfg, section, ("mask=%d, of %d anchors"):format(k,
        math.floor(#flat / 2)))
    end
  end
  if #anchors == 0 or shape[1] ~= #anchors * (5 + classes) then
    parse.refuse(section.cfg, section, ("%d channels come in; %d anchors of 5 + %d numbers need %d")
      :format(shape[1], #anchors, classes, #anchors * (5 + classes)))
  end
  return Yolo(anchors, classes, {net.width, net.height}, section:number("scale_x_y", 1)), shape
end

function sections.cost(_, shape) return Step("cost", function(x) return x end), shape end

--- Returns true if a module is the head of a detector.
function layers.is_head(layer) return class.isinstance(layer, Yolo) end

return layers
