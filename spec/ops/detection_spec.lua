-- moth.ops: boxes, their overlaps, and nms. spec/golden/samples/detection.py compares values with
-- torchvision's definitions.

local cuda = require "spec.support.cuda"
local moth = require "moth"
local ops = moth.ops

-- n boxes in the unit square, with scores.
local function drawn(n, options)
  local boxes = moth.rand(n, 4, options) * moth.tensor{1, 1, 0.3, 0.3}:to((options or {}).dtype
    or moth.float32)
  return ops.box_convert(boxes, "xywh", "xyxy"), moth.rand(n)
end

-- nms as a plain loop.
local function stay(boxes, scores, idxs, threshold)
  local iou, list, keep = ops.box_iou(boxes, boxes):tolist(), scores:tolist(), {}
  local order = {}
  for i = 1, #list do order[i] = i end
  table.sort(order, function(i, j) return list[i] > list[j] end)
  for _, i in ipairs(order) do
    local good = true
    for _, j in ipairs(keep) do
      if iou[i][j] > threshold and (not idxs or idxs[i] == idxs[j]) then good = false end
    end
    if good then keep[#keep + 1] = i end
  end
  return keep
end

local function refuses(text, f)
  assert.error_matches(f, text, 1, true)
end

describe("nms", function()
  it("keeps the same boxes as a plain loop, best first, counted from 1", function()
    for _, n in ipairs {1, 2, 17, 300} do
      local boxes, scores = drawn(n)
      local classes = moth.randint(-1, 2, {n})
      assert.same(stay(boxes, scores, nil, 0.2), ops.nms(boxes, scores, 0.2):tolist())
      assert.same(stay(boxes, scores, classes:tolist(), 0.2),
        ops.batched_nms(boxes, scores, classes, 0.2):tolist())
    end
  end)

  it("keeps the same on a GPU, with the positions on the GPU", function()
    if not cuda.here then return pending(cuda.why) end
    for _, n in ipairs {0, 1, 64, 65, 300} do
      for _, dtype in ipairs {moth.float16, moth.float32, moth.float64} do
        local boxes, scores = drawn(n, {dtype = dtype})
        local classes = moth.randint(-1, 2, {n})
        local there, best = boxes:cuda(), scores:cuda()
        local keep = ops.nms(there, best, 0.2)
        assert.equal("cuda:0", tostring(keep.device))
        assert.same(ops.nms(boxes, scores, 0.2):tolist(), keep:tolist())
        assert.same(ops.batched_nms(boxes, scores, classes, 0.2):tolist(),
          ops.batched_nms(there, best, classes:cuda(), 0.2):tolist())
      end
    end
  end)

  it("accepts boxes of any layout and float dtype, and none", function()
    local boxes, scores = drawn(50, {dtype = moth.float64})
    local keep = ops.nms(boxes, scores, 0.2):tolist()
    assert.same(keep, ops.nms(boxes:t():contiguous():t(), scores, 0.2):tolist())
    assert.same(keep, ops.nms(moth.cat({boxes, boxes}, 2):narrow(2, 5, 4), scores, 0.2):tolist())
    assert.same(ops.nms(boxes:half():float(), scores, 0.2):tolist(),
      ops.nms(boxes:half(), scores, 0.2):tolist())
    assert.same({0}, {unpack(ops.nms(moth.zeros(0, 4), moth.zeros(0), 0.5).shape)})
    assert.equal(moth.int64, ops.nms(boxes, scores, 0.2).dtype)
  end)

  it("removes equal boxes only above the threshold", function()
    local boxes = moth.tensor{{0, 0, 2, 2}, {0, 0, 2, 2}, {0, 0, 2, 1}}
    local scores = moth.tensor{0.5, 0.5, 0.4}
    assert.same({1, 2, 3}, ops.nms(boxes, scores, 1):tolist())
    assert.same({1, 3}, ops.nms(boxes, scores, 0.5):tolist())
    assert.same({1}, ops.nms(boxes, scores, 0.4):tolist())
    assert.same({1, 2}, ops.nms(moth.zeros(2, 4), moth.ones(2), 0):tolist()) -- 0 / 0
  end)

  it("records no gradient and does not change the boxes", function()
    local boxes, scores = drawn(20)
    local before = boxes:tolist()
    local keep = ops.nms(boxes:requires_grad_(), scores, 0.2)
    assert.is_false(keep.requires_grad)
    boxes[{{{1}}}]:sum():backward()
    assert.same(before, boxes:tolist())
  end)

  it("raises for other arguments, with a text", function()
    local boxes, scores = drawn(3)
    refuses("bad argument 'boxes' to 'nms' ((N, 4) is needed, got f32 (3, 5))", function()
      ops.nms(moth.ones(3, 5), scores, 0.5)
    end)
    refuses("bad argument 'scores' to 'nms' (one for each of the boxes f32 (3, 4) is needed, got "
      .. "f32 (4))", function() ops.nms(boxes, moth.ones(4), 0.5) end)
    refuses("'boxes' to 'nms' (i64 is not supported here, wanted f16|bf16|f32|f64", function()
      ops.nms(boxes:long(), scores, 0.5)
    end)
    refuses("did you mean 'iou_threshold'?", function()
      ops.nms(boxes, scores, {iou_treshold = 0.5})
    end)
    refuses("bad argument 'idxs' to 'batched_nms'", function()
      ops.batched_nms(boxes, scores, moth.ones(3), 0.5)
    end)
    refuses("'idxs' to 'batched_nms' (one integer for each", function()
      ops.batched_nms(boxes, scores, moth.ones(3):bool(), 0.5)
    end)
    refuses("moth.ops has no 'nsm'; did you mean 'nms'?", function() return ops.nsm end)
  end)

  it("raises in a captured step, since the number of results depends on the values", function()
    local boxes, scores = drawn(5)
    local step = moth.capture(function(b, s) return ops.nms(b, s, 0.5) end)
    assert.has_error(function() for _ = 1, 3 do step(boxes, scores) end end)
  end)
end)

describe("boxes of small integer dtypes", function()
  it("are converted before the products: their areas would overflow", function()
    local a, b = {{0, 0, 20, 20}}, {{0, 0, 20, 10}}
    for _, dtype in ipairs {"uint8", "int8", "int16", "int32", "int64"} do
      local one, two = moth.tensor(a, {dtype = moth[dtype]}), moth.tensor(b, {dtype = moth[dtype]})
      assert.same({400}, ops.box_area(one):tolist())
      assert.same({{0.5}}, ops.box_iou(one, two):tolist())
      assert.same({{0.5}}, ops.generalized_box_iou(one, two):tolist())
      assert.near(0.5, ops.generalized_box_iou_loss(one, two, "sum"):item(), 1e-5)
    end
    for _, dtype in ipairs {moth.float16, moth.bfloat16} do
      local large = moth.tensor({{0, 0, 320, 320}}, {dtype = dtype})
      assert.same({320 * 320}, ops.box_area(large):tolist())
      assert.equal(moth.float32, ops.box_iou(large, large).dtype)
      assert.same({{1}}, ops.generalized_box_iou(large, large):tolist())
      for _, name in ipairs {"generalized", "distance", "complete"} do
        assert.near(0, ops[name .. "_box_iou_loss"](large, large, "sum"):item(), 1e-5)
      end
    end
  end)
end)

describe("losses of boxes", function()
  it("are 0 for the same box, and have second derivatives", function()
    local a, b = (drawn(4, {dtype = moth.float64})), (drawn(4, {dtype = moth.float64}))
    for _, name in ipairs {"generalized", "distance", "complete"} do
      local loss = ops[name .. "_box_iou_loss"]
      assert.near(0, loss(a, a, {reduction = "mean", eps = 1e-12}):item(), 1e-6)
      local x = a:clone():requires_grad_()
      local first = moth.autograd.grad(loss(x, b, "sum"), {x}, {create_graph = true})
      assert.is_true(moth.autograd.grad(first:square():sum(), {x}):abs():sum():item() > 0)
    end
    refuses("bad argument 'boxes1' to 'box_iou' (boxes are needed, (N, 4), got f32 (3, 5)",
      function() ops.box_iou(moth.rand(3, 5), moth.rand(2, 4)) end)
    refuses("bad argument 'boxes2' to 'generalized_box_iou_loss' ((4, 4) is needed, as boxes1 has, "
      .. "got f64 (3, 4))", function() ops.generalized_box_iou_loss(a, b:narrow(1, 1, 3)) end)
  end)

  it("move a box onto another one", function()
    local box = moth.tensor{{0, 0, 1, 1}}:requires_grad_()
    local optimizer = moth.optim.Adam({box}, {lr = 0.05})
    local truth = moth.tensor{{2, 1, 4, 2}}
    for _ = 1, 300 do
      optimizer:zero_grad()
      ops.complete_box_iou_loss(box, truth, "sum"):backward()
      optimizer:step()
    end
    assert.is_true(ops.box_iou(box, truth):item() > 0.9)
  end)

  it("sigmoid_focal_loss raises for a wrong alpha", function()
    refuses("'alpha' to 'sigmoid_focal_loss' (0 to 1 or -1 is needed, got 2)", function()
      ops.sigmoid_focal_loss(moth.ones(2), moth.ones(2), 2)
    end)
  end)
end)

describe("box_convert, clip_boxes_to_image", function()
  it("convert to every form and back", function()
    local boxes = (drawn(6))
    for _, form in ipairs {"xyxy", "xywh", "cxcywh"} do
      local there = ops.box_convert(boxes, {in_fmt = "xyxy", out_fmt = form})
      assert.is_true(moth.allclose(boxes, ops.box_convert(there, form, "xyxy"), {atol = 1e-6}))
    end
    refuses("'out_fmt'", function() ops.box_convert(boxes, "xyxy", "xyhw") end)
  end)

  it("keep boxes inside the image, of {height, width}", function()
    local boxes = moth.tensor{{-1, 2, 9, 9}}
    assert.same({{0, 2, 5, 4}}, ops.clip_boxes_to_image(boxes, {4, 5}):tolist())
    refuses("height and width are needed, got 3 numbers", function()
      ops.clip_boxes_to_image(moth.ones(1, 4), {1, 2, 3})
    end)
  end)

  it("gives no boxes a loss of 0, with a gradient", function()
    for _, name in ipairs { "generalized", "distance", "complete" } do
      local boxes = moth.zeros(0, 4):requires_grad_(true)
      local loss = ops[name .. "_box_iou_loss"](boxes, moth.zeros(0, 4), "mean")
      assert.are.equal(0, loss:item())
      loss:backward()
      assert.same({ 0, 4 }, { unpack(boxes.grad.shape) })
    end
  end)

  it("use their own names in errors, not those of inner ops", function()
    assert.error_matches(function()
      ops.sigmoid_focal_loss(moth.tensor {1, 2}, moth.tensor {1, 0, 1})
    end, "bad argument 'targets' to 'sigmoid_focal_loss' (the shape of f32 (2) is needed", 1, true)
    assert.error_matches(function()
      moth.capture(function(boxes) return ops.nms(boxes, moth.rand(3), 0.5) end)(moth.rand(3, 4))
    end, "nms: the number of kept boxes depends on values, so moth.capture", 1, true)
  end)
end)
