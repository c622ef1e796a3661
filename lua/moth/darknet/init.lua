--- moth.darknet -- Darknet's nets: reads .cfg files as modules, reads and writes .weights files.
--
--     local net = moth.darknet.load("yolov3-tiny.cfg", "yolov3-tiny.weights"):eval()
--     for _, found in ipairs(net:detect(images)) do          -- images (N, 3, 416, 416), 0 to 1
--       print(found.boxes, found.scores, found.labels)
--     end
--     moth.darknet.save(net, "yolov3-tiny.weights")
--
-- parse.lua reads a cfg, layers.lua builds modules from its sections; this file builds the net,
-- and reads and writes weights. Sections: net, convolutional, connected, maxpool, avgpool,
-- upsample, route, shortcut, dropout, softmax, yolo and cost, which has no effect.
--
-- Format: pjreddie/darknet, src/parser.c: four numbers (version, images seen), then for each layer
-- float32 biases (of batch normalisation: bias, weight, mean, variance) and weights.

local ffi = require "ffi"
local bytes = require "moth.io.bytes"
local define = require "moth.binding.define"
local errors = require "moth.error"
local layers = require "moth.darknet.layers"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"
local nn = require "moth.nn"
local parse = require "moth.darknet.parse"

local ops = require("moth.binding.bind").ops
local darknet = {}

-- ---- the net ----

local caller = "Darknet" -- the function that errors of the next cfg name

local Darknet = nn.class("Darknet", nn.Module)
darknet.Darknet = Darknet

Darknet.signature = define.signature("Darknet", {
  {"string", "cfg", "a .cfg file, or its text, of more than one line"},
})

--- A net built from a cfg, with initial weights. `net.layers` are its layers; Darknet's layer k is
-- `net.layers[k + 1]`, and `layers.k` in a state dict: `layers.0.conv.weight`,
-- `layers.0.bn.running_mean`.
-- @param cfg  a .cfg file, or its text
function Darknet:init(cfg)
  local fname = caller
  caller = "Darknet"
  local sections = parse.cfg(cfg, fname)
  local first, list = sections[1], {}
  local net = {shapes = {}, needed = {}, width = first:int("width", nil, 1),
               height = first:int("height", nil, 1)}
  if not net.width or not net.height then
    parse.refuse(sections, first, "width= and height= are needed")
  end
  local shape = {first:int("channels", 3, 1), net.height, net.width}
  self.width, self.height, self.channels, self.cfg = net.width, net.height, shape[1], cfg
  parse.warn_of_unread(first)
  self.seen = 0 -- images in training: stored in the file
  for i = 2, #sections do
    local make = layers.sections[sections[i].type]
    if not make then
      parse.refuse_unknown(sections[i], "sections [%s] are unknown to Moth", sections[i].type,
        layers.sections)
    end
    local made, layer, after = pcall(make, sections[i], shape, net)
    if not made and layer:find(sections.shown, 1, true) then error(layer, 0) end
    if not made then -- out of memory
      parse.refuse(sections, sections[i], (layer:gsub("^[^\n]-:%d+: ", "")), errors.code())
    end
    list[i - 1], shape, net.shapes[i - 1] = layer, after, after
    parse.warn_of_unread(sections[i])
  end
  if #list == 0 then parse.refuse(sections, nil, "has no layers") end
  self.layers, self.needed = nn.ModuleList(list), net.needed
end

--- Runs the net. In training a detector returns the list of its heads' results, each (N, A, H, W,
-- 5 + classes); in evaluation all boxes, (N, boxes, 5 + classes): centre and size in pixels,
-- objectness, class probabilities. A net without heads returns its last layer's result.
function Darknet:forward(x)
  if x:dim() ~= 4 or x:size(2) ~= self.channels or x:size(3) ~= self.height
    or x:size(4) ~= self.width then
    errors.argument("Darknet", "input", ("(N, %d, %d, %d) is needed, got %s"):format(self.channels,
      self.height, self.width, errors.describe(x)), "E_SHAPE")
  end
  local earlier, heads = {}, {}
  for i = 1, #self.layers do
    local layer = self.layers[i]
    if layers.is_head(layer) then
      heads[#heads + 1] = layer(x)
    else
      x = layer(x, earlier)
    end
    earlier[i] = self.needed[i] and x or nil
  end
  if #heads == 0 then return x end
  return self.training and heads or ops.cat(heads, 2)
end

local THRESHOLD = {"float", "threshold", "minimum score, objectness times probability",
                   default = 0.5}
local IOU_THRESHOLD = {"float", "iou_threshold", "larger overlaps of boxes of a class: the "
                       .. "better box is kept", default = 0.45}
local parse_detect = define.signature("detect", {
  {"tensor", "images", "(N, channels, height, width)"}, THRESHOLD, IOU_THRESHOLD})

--- Detects objects in images: a list with a table for each image, {boxes = (n, 4), corners in
-- pixels; scores = (n); labels = (n), classes from 1}, the best first. Runs in evaluation mode,
-- without gradients, and restores the mode of each layer.
-- @param images  (N, channels, height, width)
-- @param threshold  the minimum score, objectness times probability (default 0.5)
-- @param iou_threshold  of two boxes of a class with a larger overlap the better is kept (0.45)
function Darknet:detect(...)
  local images, threshold, iou_threshold = parse_detect(...)
  local modes = {}
  for _, module in ipairs(self:modules()) do modes[module] = module.training end
  self:eval()
  local fine, all = pcall(require("moth.autograd").no_grad, self, images)
  for module, training in pairs(modes) do module.training = training end
  if not fine then error(all, 0) end
  if all:dim() ~= 3 then errors.raise("detect: the net has no [yolo] section", "E_STATE") end
  local list = {}
  for n = 1, all:size(1) do
    list[n] = darknet.boxes(all:select(1, n), threshold, iou_threshold)
  end
  return list
end
define.takes(Darknet.detect, parse_detect, "found")

--- Selects from (boxes, 5 + classes), a head's result in evaluation: a table as in detect.
darknet.boxes = define {
  name = "darknet.boxes",
  doc = "Selects boxes, scores and labels from a net's result for one image in evaluation mode.",
  outputs = "found",
  examples = "moth.rand(6, 7), {threshold = 0.3, iou_threshold = 0.6}",
  args = {{"tensor", "found", "(boxes, 5 + classes): centre, size, objectness, probabilities"},
          THRESHOLD, IOU_THRESHOLD},
  run = function(found, threshold, iou_threshold)
    if found:dim() ~= 2 or found:size(2) < 6 then
      errors.refuse("darknet.boxes", "found", "(boxes, 5 + classes) is needed", found, "E_SHAPE")
    end
    local boxops = require "moth.ops"
    local scores = found:narrow(2, 5, 1) * found:narrow(2, 6, found:size(2) - 5)
    local at = scores:gt(threshold):nonzero()
    local rows, labels = at:select(2, 1), at:select(2, 2)
    local boxes = boxops.box_convert(found:narrow(2, 1, 4):index_select(1, rows), "cxcywh", "xyxy")
    scores = scores:masked_select(scores:gt(threshold))
    local keep = boxops.batched_nms(boxes, scores, labels, iou_threshold)
    return {boxes = boxes:index_select(1, keep), scores = scores:index_select(1, keep),
            labels = labels:index_select(1, keep)}
  end,
}

-- ---- weights ----

-- Calls f(tensor, layer number, layer) in the file's order.
local function each_tensor(net, f)
  for i = 1, #net.layers do
    local layer = net.layers[i]
    for _, x in ipairs(layer.weights and layer:weights() or {}) do f(x, i - 1, layer) end
  end
end

local function read(net, path, fname)
  local file, total = bytes.open(path, fname, "weights"), 0
  each_tensor(net, function(x) total = total + x:numel() end)
  local major, minor = file:int(4), file:int(4)
  file:take(4)
  local wide = major * 10 + minor >= 2 and major < 1000 and minor < 1000
  local seen, turned = file:int(wide and 8 or 4), major > 1000 or minor > 1000
  local have = (file.size - file.at) / 4
  each_tensor(net, function(x, index, layer)
    local n, left = x:numel(), math.floor((file.size - file.at) / 4)
    if n > left then
      file:refuse(("ends within layer %d, [%s]: %d of %d numbers are left; the net needs %d, the "
        .. "file has %s"):format(index, nn.typename(layer):lower(), left, n, total, tostring(have)))
    end
    local shape = {unpack(x.shape)}
    local by_inputs = turned and #shape == 2 -- old files transpose the weights of [connected]
    if by_inputs then shape[1], shape[2] = shape[2], shape[1] end
    local values = file:tensor("float32", shape, file:take(4 * n))
    x:detach():copy_(by_inputs and values:t() or values)
  end)
  if file.at ~= file.size then
    file:refuse(("has %s numbers, but the net needs %d"):format(tostring(have), total))
  end
  net.seen = seen
end

--- A net built from a cfg, with the weights of a file. A file that does not fit changes nothing.
-- @param cfg      a .cfg file, or its text, of more than one line
-- @param weights  a .weights file (default: initial weights)
-- @return the net, a moth.darknet.Darknet in training mode
-- Raises E_IO; E_FORMAT with the section and the counts; E_UNSUPPORTED for an unknown section.
darknet.load = define {
  name = "darknet.load",
  doc = "A net of Darknet: a .cfg file as a module, with the weights of a .weights file.",
  outputs = "net",
  examples = "'[net]\\nwidth=8\\nheight=8\\n[convolutional]\\nfilters=2\\n'",
  args = {
    {"string", "cfg", "a .cfg file, or its text, of more than one line"},
    {"string", "weights", "a .weights file", optional = true},
  },
  run = function(cfg, weights)
    caller = "darknet.load"
    local net = Darknet(cfg)
    if weights then read(net, weights, "darknet.load") end
    return net
  end,
}

--- Writes a net's weights in Darknet's format; the file is written completely or not at all.
-- @param net   a moth.darknet.Darknet
-- @param path  the file
darknet.save = define {
  name = "darknet.save",
  doc = "Writes the weights of a net as a .weights file of Darknet.",
  outputs = "nothing",
  examples = "moth.darknet.load '[net]\\nwidth=8\\nheight=8\\n[convolutional]\\nfilters=2\\n', "
    .. "os.tmpname()",
  args = {{"any", "net", "a net of darknet.load"}, {"string", "path", "the file to write"}},
  run = function(net, path)
    if not nn.isinstance(net, Darknet) then
      errors.refuse("darknet.save", "net", "a net of darknet.load is needed", net, "E_TYPE")
    end
    local head, list = lib.array("uint32_t", 5), {}
    head[0], head[1], head[2] = 0, 2, 5 -- version
    local seen = ffi.cast("uint64_t", net.seen)
    head[3], head[4] = seen % 2 ^ 32, seen / 2 ^ 32
    list[1] = ffi.string(head, 20)
    each_tensor(net, function(x) list[#list + 1] = x:detach():float():cpu():contiguous() end)
    bytes.save(path, list, "darknet.save")
  end,
}

--- The sections of a cfg as plain tables, [net] first: {type = "convolutional",
-- options = {filters = "16"}, line = 9}.
-- @param cfg  a .cfg file, or its text, of more than one line
darknet.parse = define {
  name = "darknet.parse",
  doc = "The sections of a .cfg file as a list of {type =, options =, line =}.",
  outputs = "sections",
  examples = "'[net]\\nwidth=8\\nheight=8\\n'",
  args = {{"string", "cfg", "a .cfg file, or its text, of more than one line"}},
  run = function(cfg)
    local list = {}
    for i, section in ipairs(parse.cfg(cfg, "darknet.parse")) do
      list[i] = {type = section.type, options = section.options, line = section.line}
    end
    return list
  end,
}

return (lazy.namespace("moth.darknet", darknet, {}))
