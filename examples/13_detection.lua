-- Finds coloured rectangles: a small YOLO detector, built from a Darknet cfg, learns their boxes
-- and colours. Each cell of a grid predicts whether it contains the centre of a rectangle
-- (sigmoid_focal_loss), the box (CIoU) and the colour (cross entropy).
-- Run it with: ./moth examples/13_detection.lua [--steps N] [--device cuda]

local moth = require "moth"
local nn, F, optim, ops = moth.nn, moth.nn.functional, moth.optim, moth.ops

local parser = require "argparse"("13_detection", "Trains a detector of coloured rectangles.")
parser:option("--steps", "Training steps.", "400"):convert(tonumber)
parser:option("--batch-size", "Images per step.", "16"):convert(tonumber)
parser:option("--lr", "Largest learning rate.", "0.01"):convert(tonumber)
parser:option("--seed", "Seed of the random numbers.", "1"):convert(tonumber)
parser:option("--device", "Device: cpu or cuda.", "cpu")
parser:option("--out", "File for the weights, in Darknet format."):default(os.tmpname())
local args = parser:parse()

moth.manual_seed(args.seed)
math.randomseed(args.seed)

local SIZE, CELLS, ANCHOR = 48, 6, 16   -- pixels and cells along a side, a typical box
local COLOURS = {{1, 0.2, 0.2}, {0.2, 1, 0.2}, {0.3, 0.3, 1}}

-- ---- the net, as a Darknet cfg ----

local function conv(filters)
  return ("[convolutional]\nbatch_normalize=1\nfilters=%d\nsize=3\npad=1\nactivation=leaky\n")
    :format(filters)
end

local pool = "[maxpool]\nsize=2\nstride=2\n"
local CFG = ("[net]\nwidth=%d\nheight=%d\nchannels=3\n"):format(SIZE, SIZE) .. conv(8) .. pool
  .. conv(16) .. pool .. conv(32) .. pool .. conv(32)
  .. ("[convolutional]\nfilters=%d\nsize=1\nactivation=linear\n"):format(5 + #COLOURS)
  .. ("[yolo]\nmask=0\nanchors=%d,%d\nclasses=%d\n"):format(ANCHOR, ANCHOR, #COLOURS)

local net = moth.darknet.load(CFG):to(args.device)
local head = net.layers[#net.layers]

-- ---- the data: one to three rectangles on noise, at most one centre in a cell ----

-- Images (n, 3, SIZE, SIZE); and for each image a list of boxes {x1, y1, x2, y2, colour}.
local function draw(n)
  local images, truth = moth.rand(n, 3, SIZE, SIZE) * 0.3, {}
  for i = 1, n do
    local taken = {}
    truth[i] = {}
    for _ = 1, math.random(3) do
      local w, h = math.random(8, 24), math.random(8, 24)
      local x, y = math.random(0, SIZE - w), math.random(0, SIZE - h)
      local cell = math.floor((x + w / 2) * CELLS / SIZE) + CELLS
        * math.floor((y + h / 2) * CELLS / SIZE)
      local apart = not taken[cell]
      for _, box in ipairs(truth[i]) do
        apart = apart and (x >= box[3] or box[1] >= x + w or y >= box[4] or box[2] >= y + h)
      end
      if apart then
        local colour = math.random(#COLOURS)
        images[{i, {}, {y + 1, y + h}, {x + 1, x + w}}] =
          moth.tensor(COLOURS[colour]):view(3, 1, 1)
        table.insert(truth[i], {x, y, x + w, y + h, colour, cell = cell})
        taken[cell] = true
      end
    end
  end
  return images:to(args.device), truth
end

-- ---- training ----

-- The cells that contain the centre of a box, numbered from 1 over all images; the boxes; their
-- colours.
local function targets(truth)
  local cells, boxes, colours = {}, {}, {}
  for i, list in ipairs(truth) do
    for _, box in ipairs(list) do
      cells[#cells + 1] = (i - 1) * CELLS * CELLS + box.cell + 1
      boxes[#boxes + 1], colours[#colours + 1] = {unpack(box, 1, 4)}, box[5]
    end
  end
  return moth.tensor(cells):long():to(args.device), moth.tensor(boxes):to(args.device),
    moth.tensor(colours):long():to(args.device)
end

local function loss_of(images, truth)
  local raw = net(images)[1]
  local all = raw:reshape(-1, 5 + #COLOURS)
  local cells, boxes, colours = targets(truth)
  local found = head:decode(raw):reshape(-1, 5 + #COLOURS):index_select(1, cells)
  local there = moth.zeros(all:size(1), {device = args.device}):index_fill(1, cells, 1)
  return ops.complete_box_iou_loss(ops.box_convert(found:narrow(2, 1, 4), "cxcywh", "xyxy"), boxes,
      "mean")
    + ops.sigmoid_focal_loss(all:select(2, 5), there, {alpha = 0.75, gamma = 1, reduction = "sum"})
      * 4 / cells:size(1)
    + F.cross_entropy(all:narrow(2, 6, #COLOURS):index_select(1, cells), colours)
end

local optimizer = optim.AdamW(net:parameters(), {lr = args.lr})
local schedule = optim.lr_scheduler.OneCycleLR(optimizer, {max_lr = args.lr,
  total_steps = args.steps})
local first, last
for step = 1, args.steps do
  last = moth.scope(function()
    local loss = loss_of(draw(args.batch_size))
    optimizer:zero_grad()
    loss:backward()
    nn.utils.clip_grad_norm_(net:parameters(), 5)
    optimizer:step()
    return loss:item()
  end)
  schedule:step()
  first = first or last
  if step % 100 == 0 then print(("step %3d  loss %.3f"):format(step, last)) end
end

-- ---- recall and precision on new images ----

moth.darknet.save(net, args.out)
local again = moth.darknet.load(CFG, args.out):to(args.device)
local images, truth = draw(64)
local right, wanted, given = 0, 0, 0
for i, found in ipairs(again:detect(images, 0.2)) do
  wanted, given = wanted + #truth[i], given + #found.scores
  for _, box in ipairs(truth[i]) do
    local same = found.labels:eq(box[5]):float()
    local iou = ops.box_iou(found.boxes, moth.tensor{{unpack(box, 1, 4)}}:to(args.device))
    if #found.scores > 0 and (iou:squeeze(2) * same):max():item() > 0.5 then right = right + 1 end
  end
end
print(("%d of %d rectangles found, of %d boxes"):format(right, wanted, given))
print("weights: " .. args.out)
assert(last < first)
assert(args.steps < 400 or right > 0.85 * wanted and right > 0.85 * given, "it did not learn")
