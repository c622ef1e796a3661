-- Regions of feature maps, deformable convolution and detector layers: torchvision's values.

local moth = require "moth"
local nn, ops = moth.nn, moth.ops

local F64 = { dtype = moth.float64 }

-- sin(a), sin(2 a), ... as a tensor of that shape.
local function wave(shape, a)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return (moth.arange(1, n + 1, 1, F64) * (a or 0.37)):sin():view(shape)
end

local function near(list, x)
  local values = x:detach():double():reshape(-1):tolist()
  assert.equal(#list, #values)
  for i, value in ipairs(values) do assert.near(list[i], value, 1e-4 * (1 + math.abs(list[i]))) end
end

local function sizes(x) return { unpack(x.shape) } end

local function bad(text, f) assert.error_matches(f, text, 1, true) end

local BOXES = moth.tensor({ { 1, 0.5, 0.7, 3.2, 4.1 }, { 2, -1.5, -2, 3.3, 9.4 },
                            { 2, 2, 2, 2.3, 2.2 } }, F64)

-- The function, channels of the input, arguments, the result, the gradient of the first map.
local REGIONS = {
  { "roi_align", 1, { sampling_ratio = 2 },
    {
      0.0187788, -0.332598, -0.393936, -0.099409, 0.10356, 0.119701, 0, 0, -0.511958, -0.388685,
      0.13054, 0.274965 },
    {
      0, 0, 0, 0, 0.0238327, 0.194328, 0.286489, 0.233569, 0.0351553, 0.286651, 0.381505,
      0.299119, 0.0396024, 0.322912, 0.206029, 0.0896694, 0.0232449, 0.189535, 0.12093,
      0.052632 } },
  { "roi_align", 1, { aligned = true, spatial_scale = 0.6 },
    {
      0.641486, 0.727003, 0.394248, 0.195608, 0.184231, 0.27377, 0.0506659, 0.21683, 0.188457,
      0.163386, 0.124316, 0.097459 },
    {
      0.295378, 0.631245, 0.00845297, 0, 0.593477, 0.7327, 0.0088274, 0, 0.303257, 0.209862,
      0.00200503, 0, 0, 0, 0, 0, 0, 0, 0, 0 } },
  { "roi_pool", 1, { spatial_scale = 1 },
    {
      0.796565, 0.524044, 0.679305, 0.898708, 0.996476, 0.959375, 0.901676, 0.997024, -0.889555,
      -0.889555, -0.889555, -0.889555 },
    {
      0, 0, 0, 0, 0, 0.651834, 0.988652, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.847678, 0.297041 } },
  { "roi_pool", 1, { spatial_scale = 0.6 },
    {
      0.961275, 0.895699, 0.961275, 0.796565, 0.996476, 0.959375, 0.901676, 0.997024, -0.193984,
      -0.193984, -0.193984, -0.193984 },
    {
      0, 0, 0.988652, 0, 1.49951, 0.297041, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } },
  { "ps_roi_align", 4, { sampling_ratio = 2 },
    {
      0.496397, -0.366638, 0.381423, 0.507069, 0.195355, 0.0776542, 0.10297, 0.410789, 0.723701,
      0.363853, -0.494493, -0.717284 },
    {
      0.040485, 0.08097, 0.000763868, 0, 0.124154, 0.248308, 0.00234253, 0, 0.051281, 0.102562,
      0.000967566, 0, 0, 0, 0, 0, 0, 0, 0, 0 } },
  { "ps_roi_align", 4, { spatial_scale = 0.6 },
    {
      0.641486, 0.4598, -0.729995, -0.0432144, -0.152412, 0.275684, -0.104981, 0.357561,
      -0.0251666, 0.713594, 0.619894, -0.244394 },
    {
      0.295378, 0.0761668, 0, 0, 0.222829, 0.0574591, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } },
  { "ps_roi_pool", 4, { spatial_scale = 0.6 },
    {
      0.361615, 0.959375, -0.808758, -0.65391, 0.0134149, 0.376431, -0.719906, -0.343959,
      0.393167, 0.998755, 0.482836, -0.575262 } },
}

describe("regions of feature maps", function()
  for _, row in ipairs(REGIONS) do
    local name, channels, options = row[1], row[2], row[3]
    it(name .. " has torchvision's values and gradients", function()
      local x = wave { 2, channels, 5, 4 }:requires_grad_()
      local y = ops[name](x, BOXES, 2, options)
      near(row[4], y)
      local grad = moth.autograd.grad((y * wave(sizes(y), 0.71)):sum(), x)
      if row[5] then near(row[5], grad[1][1]) end
    end)

    it(name .. " has second derivatives", function()
      local x = wave { 2, channels, 5, 4 }:requires_grad_()
      local function f(v) return (ops[name](v, BOXES, 2, options)) end
      moth.autograd.gradcheck(f, { x })
      moth.autograd.gradgradcheck(f, { x })
    end)

    it(name .. " accepts a list of boxes for each image, half types, and no boxes", function()
      local x = wave { 2, channels, 5, 4 }
      local list = { BOXES:narrow(1, 1, 1):narrow(2, 2, 4), BOXES:narrow(1, 2, 2):narrow(2, 2, 4) }
      local y = ops[name](x, BOXES, { 2, 2 }, options)
      assert.is_true(y:equal(ops[name](x, list, { 2, 2 }, options)))
      assert.equal(moth.float16, ops[name](x:half(), BOXES:half(), 2, options).dtype)
      local none = x:clone():requires_grad_()
      local empty = ops[name](none, moth.zeros({ 0, 5 }, F64), 2, options)
      assert.same({ 0, y:size(2), 2, 2 }, sizes(empty))
      empty:sum():backward()
      assert.equal(0, none.grad:abs():sum():item())
    end)
  end

  it("raise for wrong arguments, with a text", function()
    local x = moth.zeros(2, 3, 5, 5)
    bad("bad argument 'boxes' to 'roi_align' (positions of images from 1 to 2 are needed, got 3)",
      function() ops.roi_align(x, moth.tensor { { 3, 0, 0, 1, 1 } }, 2) end)
    bad("positions of images from 1 to 2 are needed, got 0",
      function() ops.roi_pool(x, moth.tensor { { 0, 0, 0, 1, 1 } }, 2) end)
    bad("bad argument 'boxes' to 'roi_pool' ((K, 5), or a list of (L, 4), is needed, got f32 (1, "
      .. "4)",
      function() ops.roi_pool(x, moth.zeros(1, 4), 2) end)
    bad("'boxes' to 'roi_align' (a tensor for each of 2 images is needed, got 1)",
      function() ops.roi_align(x, { moth.zeros(1, 4) }, 2) end)
    bad("'input' to 'ps_roi_align' (channels in multiples of output_size's 4 cells are needed",
      function() ops.ps_roi_align(x, moth.tensor { { 1, 0, 0, 1, 1 } }, 2) end)
    bad("'output_size' to 'roi_align' (numbers from 1 are needed, got {0, 2})",
      function() ops.roi_align(x, moth.tensor { { 1, 0, 0, 1, 1 } }, { 0, 2 }) end)
    bad("'input' to 'roi_align' (floats (N, C, H, W) are needed, got f32 (3)",
      function() ops.roi_align(moth.ones(3), moth.tensor { { 1, 0, 0, 1, 1 } }, 2) end)
  end)

  it("also exist as layers", function()
    local x = wave { 2, 4, 5, 4 }
    assert.is_true(ops.RoIAlign(2, 0.6, 2, true)(x, BOXES):equal(ops.roi_align(x, BOXES, 2,
      { spatial_scale = 0.6, sampling_ratio = 2, aligned = true })))
    assert.is_true(ops.RoIPool(2, 1)(x, BOXES):equal(ops.roi_pool(x, BOXES, 2)))
    assert.is_true(ops.PSRoIAlign(2, 1, 2)(x, BOXES):equal(ops.ps_roi_align(x, BOXES, 2,
      { sampling_ratio = 2 })))
    assert.is_true(ops.PSRoIPool(2, 1)(x, BOXES):equal(ops.ps_roi_pool(x, BOXES, 2)))
    assert.matches("output_size=2, spatial_scale=0.5, sampling_ratio=2",
      tostring(ops.RoIAlign(2, 0.5, 2)))
  end)
end)

describe("deform_conv2d", function()
  local CASES = {
    { weight = { 2, 2, 2, 2 }, groups = 1, stride = 1, padding = 0, dilation = 1,
      y = {
        1.2466, 0.868888, 1.41361, 0.226373, 0.0733048, 0.584886, 0.108043, -0.000502095,
        -0.494295, 1.03758, 1.00586, 0.135219, 0.569422, 0.556092, 0.469889, 1.34532, 0.470196,
        0.540752 },
      sums = { 1.242763, -3.087943, 6.571323 } },
    { weight = { 2, 1, 2, 2 }, groups = 2, stride = 2, padding = 1, dilation = 2, mask = true,
      y = {
        0.893996, 1.47289, 1.21672, 0.632513, 0.664811, 1.00856, 1.07023, 0.679069 },
      sums = { 1.414014, 0.8462611, 1.832951, 2.676713 } },
  }

  local function arguments(case)
    local kernel = case.weight[3] * case.weight[4]
    local size = math.floor((4 + 2 * case.padding - case.dilation - 1) / case.stride) + 1
    local inputs = { wave { 1, 2, 4, 4 },
                     wave({ 1, case.groups * 2 * kernel, size, size }, 0.9) * 1.3,
                     wave(case.weight, 0.53) }
    if case.mask then inputs[4] = wave({ 1, case.groups * kernel, size, size }, 0.23) end
    for i, x in ipairs(inputs) do inputs[i] = x:detach():requires_grad_() end
    local bias = wave { case.weight[1] }
    return inputs, function(x, offset, weight, mask)
      return (ops.deform_conv2d(x, offset, weight, bias, case.stride, case.padding, case.dilation,
        mask))
    end
  end

  it("has torchvision's values and gradients", function()
    for _, case in ipairs(CASES) do
      local inputs, f = arguments(case)
      local y = f(unpack(inputs))
      near(case.y, y)
      local grads = { moth.autograd.grad((y * wave(sizes(y), 0.71)):sum(), inputs) }
      for i, grad in ipairs(grads) do
        assert.near(case.sums[i], (grad * wave(sizes(grad), 0.19)):sum():item(), 1e-5)
      end
    end
  end)

  it("has second derivatives", function()
    local inputs, f = arguments(CASES[2])
    moth.autograd.gradcheck(f, inputs)
    moth.autograd.gradgradcheck(f, inputs)
  end)

  it("with offsets of 0 is conv2d, also as a layer", function()
    local x, weight = wave { 2, 4, 6, 5 }, wave { 6, 2, 3, 2 }
    local options = { stride = { 2, 1 }, padding = { 1, 2 }, dilation = { 1, 2 } }
    local y = nn.functional.conv2d { x, weight, stride = { 2, 1 }, padding = { 1, 2 },
      dilation = { 1, 2 }, groups = 2 }
    local offset = moth.zeros({ 2, 12, y:size(3), y:size(4) }, F64)
    moth.testing.assert_close(ops.deform_conv2d(x, offset, weight, options), y)
    local layer = ops.DeformConv2d(4, 6, { 3, 2 }, { stride = { 2, 1 }, padding = { 1, 2 },
      dilation = { 1, 2 }, groups = 2 })
    assert.same({ 6, 2, 3, 2 }, sizes(layer.weight))
    assert.same({ 2, 6, y:size(3), y:size(4) }, sizes(layer(x:float(), offset:float())))
  end)

  it("raises for wrong arguments, with a text", function()
    local x, weight = moth.zeros(1, 2, 4, 4), moth.zeros(3, 2, 2, 2)
    bad("bad argument 'offset' to 'deform_conv2d' ((1, groups * 8, 3, 3) is needed, got f32 (1, "
      .. "7, 3",
      function() ops.deform_conv2d(x, moth.zeros(1, 7, 3, 3), weight) end)
    bad("'mask' to 'deform_conv2d' ((1, 4, 3, 3) is needed, got f32 (1, 3, 3, 3)", function()
      ops.deform_conv2d(x, moth.zeros(1, 8, 3, 3), weight, { mask = moth.zeros(1, 3, 3, 3) })
    end)
    bad("'bias' to 'deform_conv2d' ((3) is needed, got f32 (2)", function()
      ops.deform_conv2d(x, moth.zeros(1, 8, 3, 3), weight, moth.zeros(2))
    end)
    bad("bad argument 'out_channels' to 'DeformConv2d' (a multiple of groups (2) is needed, got 3)",
      function() ops.DeformConv2d(2, 3, 2, { groups = 2 }) end)
  end)
end)

describe("overlaps of boxes", function()
  it("with penalties for distance and aspect ratio are torchvision's", function()
    local a = moth.tensor({ { 0, 0, 2, 3 }, { 1, 1, 4, 2.5 } }, F64)
    local b = moth.tensor({ { 1, 0, 3, 3.5 }, { 5, 5, 6, 7 }, { 0, 0, 2, 3 } }, F64)
    near({
      0.25, -0.476471, 1, 0.341176, -0.443648, 0.0741667 },
      ops.distance_box_iou(a, b))
    near({
      0.249995, -0.47651, 1, 0.316233, -0.467765, 0.0615086 },
      ops.complete_box_iou(a, b))
    bad("bad argument 'boxes2' to 'complete_box_iou' (boxes are needed, (N, 4), got f64 (2, 3)",
      function() ops.complete_box_iou(a, b:narrow(2, 1, 3):narrow(1, 1, 2)) end)
  end)

  it("masks have bounding boxes, in coordinates from 0", function()
    local masks = moth.zeros(3, 5, 6)
    masks[{ 1, { 2, 3 }, { 3, 5 } }] = 1
    masks[{ 3, 5, 1 }] = -1
    local boxes = ops.masks_to_boxes(masks)
    assert.same({ { 2, 1, 4, 2 }, { 0, 0, 0, 0 }, { 0, 4, 0, 4 } }, boxes:tolist())
    assert.equal(moth.float32, boxes.dtype)
    assert.same(boxes:tolist(), ops.masks_to_boxes(masks:bool()):tolist())
    assert.same({ 0, 4 }, sizes(ops.masks_to_boxes(moth.zeros(0, 5, 6))))
    bad("bad argument 'masks' to 'masks_to_boxes' ((N, H, W) is needed, got f32 (2, 2)",
      function() ops.masks_to_boxes(moth.ones(2, 2)) end)
  end)
end)

-- Fills the parameters of a module with waves.
local function filled(module)
  module:double()
  for i, p in ipairs(module:parameters()) do p.data = wave(sizes(p), 0.21 + 0.1 * i) end
  return module
end

describe("detector layers have torchvision's values:", function()
  it("FeaturePyramidNetwork", function()
    local fpn = filled(ops.FeaturePyramidNetwork({ 2, 3 }, 2,
      { extra_blocks = ops.LastLevelMaxPool() }))
    local x, y = wave { 1, 2, 4, 4 }, wave { 1, 3, 2, 2 }
    local maps = fpn { { "a", x }, { "b", y } }
    assert.same({ "a", "b", "pool" }, { maps[1][1], maps[2][1], maps[3][1] })
    near({
      -8.97341, -15.2942, -15.3035, -9.0907, -0.720924, 2.93195, 6.95716, 8.7593, 8.17386,
      13.5273, 13.0591, 7.86165, 5.09807, 6.06675, 2.99706, 2.09333, -7.17754, -14.2626,
      -14.9051, -9.76663, -1.55212, 1.17532, 5.01379, 7.99883, 7.12048, 13.048, 13.2624, 8.8894,
      4.65938, 6.08088, 2.94031, 1.99236 }, maps[1][2])
    near({
      0.835945, 0.78254, 0.827616, 0.891276, 0.863882, 0.928574, 0.960178, 0.902677 }, maps[2][2])
    near({
      0.835945, 0.863882 }, maps[3][2])
    local plain = fpn { x, y }
    assert.is_true(plain[1]:equal(maps[1][2]) and plain[3]:equal(maps[3][2]))
    assert.is_not_nil(fpn:state_dict()["inner_blocks.0.0.weight"])
    bad("2 maps are needed, got 1", function() fpn { x } end)
    bad("got f64 (3) at position 1", function() fpn { moth.ones({ 3 }, F64), y } end)
    local p67 = ops.FeaturePyramidNetwork({ 2, 3 }, 2, { extra_blocks = ops.LastLevelP6P7(3, 2),
      norm_layer = nn.BatchNorm2d })
    assert.equal(4, #p67 { moth.rand(1, 2, 4, 4), moth.rand(1, 3, 2, 2) })
  end)

  it("MultiScaleRoIAlign", function()
    local pool = ops.MultiScaleRoIAlign({ "a", "c" }, 2, 2, { canonical_scale = 16,
      canonical_level = 2 })
    local boxes = { moth.tensor({ { 0, 0, 10, 12 }, { 3, 2, 30, 31 } }, F64),
                    moth.tensor({ { 1, 1, 5, 6 }, { 0, 0, 28, 20 } }, F64) }
    local maps = { { "a", wave { 2, 1, 16, 16 } }, { "b", wave { 2, 1, 8, 8 } },
                   { "c", wave { 2, 1, 4, 4 } } }
    near({
      0.261149, 0.856713, -0.656724, 0.110978, 0.325669, 0.0104869, -0.77103, -0.553674,
      0.694058, 0.889031, 0.33202, 0.638336, 0.707966, 0.697104, 0.0165893, -0.411206 },
      pool(maps, boxes, { { 32, 30 }, { 31, 32 } }))
    bad("none of the maps is called 'x'", function()
      ops.MultiScaleRoIAlign({ "x" }, 2, 2)(maps, boxes, { { 32, 32 } })
    end)
  end)

  it("SqueezeExcitation", function()
    near({
      0.26795, 0.499634, 0.663695, 0.737928, 0.821822, 0.681007, 0.448021, 0.154397 },
      filled(ops.SqueezeExcitation(2, 1))(wave { 1, 2, 2, 2 }))
    local other = ops.SqueezeExcitation { 4, 2, activation = nn.SiLU,
      scale_activation = nn.Hardsigmoid }
    assert.equal("SiLU", nn.typename(other.activation))
  end)

  it("FrozenBatchNorm2d, which loads the state of a BatchNorm2d", function()
    local layer = ops.FrozenBatchNorm2d(2):double()
    for i, b in ipairs(layer:buffers()) do b:copy_(wave({ 2 }, i - 0.7) + 1) end
    near({
      0.00973952, 0.451116, 0.763666, 0.905086, 2.8202, 2.59517, 2.22284, 1.75362 },
      layer(wave { 1, 2, 2, 2 }))
    assert.equal(0, #layer:parameters())
    local norm = nn.BatchNorm2d(2)
    norm(moth.randn(4, 2, 3, 3))
    layer = ops.FrozenBatchNorm2d(2)
    assert.equal("<All keys matched>", tostring(layer:load_state_dict(norm:state_dict())))
    local x = moth.randn(1, 2, 3, 3)
    moth.testing.assert_close((layer(x)), (norm:eval()(x)))
  end)

  it("MLP", function()
    near({
      4.174, -2.29682, 4.21412, -2.36502 },
      filled(ops.MLP(3, { 4, 2 }, { norm_layer = nn.LayerNorm })):eval()(wave { 2, 3 }))
    assert.equal(2, #ops.MLP(3, { 4 }))
    bad("bad argument 'hidden_channels' to 'MLP' (at least one number is needed)", function()
      ops.MLP(3, {})
    end)
  end)

  it("Conv2dNormActivation and Conv3dNormActivation", function()
    near({
      2.34771, 3.61137, 2.78743, 2.77818, 3.45982, 1.95711, 1.73274, 1.4691, 0.700221, 4.79556,
      6.51411, 4.37665, 3.45226, 2.84353, 0.790513, 1.08971, 0, 0 },
      filled(ops.Conv2dNormActivation(2, 2)):eval()(wave { 1, 2, 3, 3 }))
    local plain = ops.Conv2dNormActivation { 2, 3, kernel_size = { 5, 3 }, norm_layer = moth.none,
      activation_layer = nn.SiLU, inplace = moth.none }
    assert.equal(2, #plain)
    assert.is_not_nil(plain[1].bias)
    assert.equal(3, plain.out_channels)
    assert.same({ 1, 3, 7, 6 }, sizes(plain(moth.rand(1, 2, 7, 6))))
    assert.same({ 1, 3, 4, 4, 4 }, sizes(ops.Conv3dNormActivation(2, 3)(moth.rand(1, 2, 4, 4, 4))))
    bad("bad argument 'norm_layer' to 'Conv2dNormActivation' (a class of modules or a function",
      function() ops.Conv2dNormActivation { 2, 3, norm_layer = 3 } end)
  end)

  it("Permute, whose dims count from 1", function()
    assert.same({ 3, 4, 2 }, sizes(ops.Permute { 2, 3, 1 }(moth.ones(2, 3, 4))))
  end)
end)

describe("noise of training", function()
  it("stochastic_depth drops the batch or rows, and scales the others", function()
    moth.manual_seed(5)
    local rows = ops.stochastic_depth(moth.ones(1000, 3), 0.25, "row")
    assert.near(0.75, rows:gt(0):float():mean():item(), 0.06)
    assert.near(4 / 3, rows:max():item(), 1e-6)
    assert.is_true(rows:select(2, 1):equal(rows:select(2, 3)))
    for _ = 1, 5 do
      local all = ops.stochastic_depth(moth.ones(4, 3), 0.5, "batch")
      assert.is_true(all:sum():item() == 0 or all:sum():item() == 24)
    end
    local x = moth.ones(2, 2)
    assert.equal(x, ops.stochastic_depth(x, 0.5, "row", false))
    assert.equal(0, ops.stochastic_depth(x, 1, "row"):sum():item())
    assert.is_true(ops.StochasticDepth(0.9, "row"):eval()(x):equal(x))
    bad("bad argument 'p' to 'stochastic_depth' (a share from 0 to 1 is needed, got 2)", function()
      ops.stochastic_depth(x, 2, "row")
    end)
    bad("'mode' to 'stochastic_depth'", function() ops.stochastic_depth(x, 0.5, "column") end)
  end)

  it("drop_block drops squares and keeps the mean", function()
    moth.manual_seed(5)
    local y = ops.drop_block2d(moth.ones(8, 4, 12, 12), 0.2, 3)
    assert.near(1, y:mean():item(), 1e-4)
    assert.near(0.18, y:eq(0):float():mean():item(), 0.05)
    local dropped = 1 - y:gt(0):float() -- each dropped element is in a dropped square
    local squares = nn.functional.avg_pool2d(dropped, 3, 1):ge(1):float()
    local covered = nn.functional.max_pool2d(nn.functional.pad(squares, { 2, 2, 2, 2 }), 3, 1)
    assert.is_true(covered:equal(dropped))
    local z = ops.DropBlock3d(0.2, 3)(moth.ones(4, 2, 6, 6, 6))
    assert.near(1, z:mean():item(), 1e-4)
    local x = moth.ones(1, 1, 5, 5)
    assert.equal(x, ops.drop_block2d(x, 0.5, 3, { inplace = true }))
    assert.is_true(ops.DropBlock2d(0.9, 3):eval()(x):equal(x))
    bad("bad argument 'block_size' to 'drop_block2d' (an odd number from 1 is needed, got 2)",
      function() ops.drop_block2d(x, 0.5, 2) end)
    bad("bad argument 'input' to 'drop_block3d' ((N, C, D, H, W) is needed, got f32 (1, 1, 5, 5)",
      function() ops.drop_block3d(x, 0.5, 3) end)
  end)
end)
