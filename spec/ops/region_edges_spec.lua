-- Functions of regions and boxes at borders, ties and ends: torchvision's values and gradients
-- (spec/golden/regions.py).

local json = require "moth.json"
local moth = require "moth"
local ops = moth.ops

local file = assert(io.open("spec/golden/regions.json", "rb"))
local golden = json.decode(file:read "*a")
file:close()

local f64 = { dtype = moth.float64 }

-- The maps of regions.py.
local function numbers(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  local k = moth.arange(n)
  return (((3 * k * k + 7 * k):remainder(101) - 50):double() / 64):view(shape)
end

local function near(wanted, x, what)
  local got = x:flatten():tolist()
  assert.equal(#wanted, #got, what)
  for i, value in ipairs(wanted) do
    if math.abs(value - got[i]) > 1e-6 * math.max(1, math.abs(value)) then
      error(("%s, element %d: wanted %.9g, got %.9g"):format(what, i, value, got[i]))
    end
  end
end

local function text_of(case)
  local parts = {}
  for name, value in pairs(case.options) do parts[#parts + 1] = name .. "=" .. tostring(value) end
  table.sort(parts)
  return ("%s to %dx%d, %s"):format(case.name, case.size[1], case.size[2], table.concat(parts, " "))
end

describe("regions", function()
  local boxes = moth.tensor(golden.boxes, f64)

  for _, case in ipairs(golden.regions) do
    local title = text_of(case)
    it("have torchvision's values and gradients: " .. title, function()
      local x = numbers(case.shape):requires_grad_()
      local y = ops[case.name](x, boxes, case.size, case.options)
      near(case.values, y, title)
      local weights = moth.arange(y:numel()):remainder(7):double():view(y.shape);
      (y * weights):sum():backward()
      if case.gradient then near(case.gradient, x.grad, title .. ", gradient") end
    end)
  end

  it("may be lists of boxes of each image, also of none", function()
    local x = numbers { 2, 4, 5, 6 }
    local order, lists = {}, { {}, {} }
    for image = 1, 2 do
      for _, box in ipairs(golden.boxes) do
        if box[1] == image then
          order[#order + 1] = box
          table.insert(lists[image], { unpack(box, 2) })
        end
      end
    end
    local all = moth.tensor(order, f64)
    lists = { moth.tensor(lists[1], f64), moth.tensor(lists[2], f64) }
    for _, name in ipairs { "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool" } do
      assert.is_true(ops[name](x, lists, 2):equal(ops[name](x, all, 2)), name)
      local channels = name:find "^ps" and 1 or 4
      local none = ops[name](x, { moth.zeros(0, 4), moth.zeros(0, 4) }, { 2, 2 })
      assert.same({ 0, channels, 2, 2 }, { unpack(none.shape) })
      assert.same({ 0, channels, 2, 2 }, { unpack(ops[name](x, moth.zeros(0, 5), 2).shape) })
    end
  end)

  it("are pooled from the map of their level", function()
    for _, case in ipairs(golden.levels) do
      local list, x = {}, {}
      for i, side in ipairs(case.sides) do list[i] = { 0, 0, side, side } end
      for k, name in ipairs { "a", "b", "c" } do
        local step = 2 * 2 ^ k
        x[k] = { name, numbers { 1, 1, 48 / step, 48 / step }:float() + 100 * step }
      end
      local pool = ops.MultiScaleRoIAlign({ "a", "b", "c" }, 1, 1,
        { canonical_scale = case.canonical_scale, canonical_level = case.canonical_level })
      near(case.values, pool(x, { moth.tensor(list) }, { { 48, 48 } }), "level")
    end
  end)
end)

describe("nms and batched_nms", function()
  for _, case in ipairs(golden.kept) do
    it("keep torchvision's boxes at ties and equal overlaps: " .. case.threshold, function()
      local boxes, scores = moth.tensor(case.boxes), moth.tensor(case.scores)
      local classes = moth.tensor(case.classes, { dtype = moth.int64 })
      assert.same(case.nms, ops.nms(boxes, scores, case.threshold):tolist())
      local kept = ops.batched_nms(boxes, scores, classes, case.threshold)
      assert.same(case.batched_nms, kept:tolist())
    end)
  end
end)

describe("deform_conv2d", function()
  for i, case in ipairs(golden.deformed) do
    it(("has torchvision's values (%d)"):format(i), function()
      local x, w = numbers { 2, 4, 6, 7 }, numbers { 4, 4 / case.groups, 3, 2 }
      local h, v = case.shape[3], case.shape[4]
      local offset = numbers { 2, case.moves * 12, h, v } * 4
      local mask = case.mask and numbers { 2, case.moves * 6, h, v } + 1 or nil
      local y = ops.deform_conv2d(x, offset, w, numbers { 4 }, case.stride, case.padding,
        case.dilation, mask)
      assert.same(case.shape, { unpack(y.shape) })
      near(case.values, y, "deform_conv2d")
    end)
  end
end)

it("FeaturePyramidNetwork and LastLevelP6P7 have torchvision's initial values", function()
  -- kaiming_uniform_ with a = 1: up to sqrt(3 / fan_in); biases are 0.
  moth.manual_seed(1)
  local function check(conv)
    local bound = math.sqrt(3 / conv.weight[1]:numel())
    local most = conv.weight:abs():max():item()
    assert.is_true(most <= bound and most > 0.95 * bound, most / bound)
    assert.is_true(conv.bias:eq(0):all():item())
  end
  local net = ops.FeaturePyramidNetwork({ 16, 32 }, 16)
  for i = 1, 2 do
    check(net.inner_blocks[i][1])
    check(net.layer_blocks[i][1])
  end
  local last = ops.LastLevelP6P7(16, 16)
  check(last.p6)
  check(last.p7)
end)
