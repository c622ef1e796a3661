-- Volumes: pools with many window shapes compared with loops, padding, resampling, their layers,
-- and layers of images that also accept volumes. spec/golden/ compares them with PyTorch.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local nn, F = moth.nn, moth.nn.functional

local function refuses(text, f) assert.has_error_like(f, text) end
local function shape(x) return tostring(x.shape) end

-- The windows of x along its last three dimensions, one tensor for each place; `edge` is outside.
local function windows(x, k, stride, padding, dilation, edge)
  local wide = F.pad(x, { padding[3], padding[3], padding[2], padding[2], padding[1], padding[1] },
    "constant", edge)
  local cut = {}
  for d = 1, 3 do
    local from, reach = {}, (k[d] - 1) * dilation[d]
    for at = 1, wide:size(d + 2) - reach, stride[d] do
      from[#from + 1] = { at, at + reach, dilation[d] }
    end
    cut[d] = from
  end
  local list = {}
  for _, a in ipairs(cut[1]) do
    for _, b in ipairs(cut[2]) do
      for _, c in ipairs(cut[3]) do
        list[#list + 1] = wide[{ {}, {}, a, b, c }]:reshape(x:size(1), x:size(2), -1)
      end
    end
  end
  return moth.stack(list, 3), { #cut[1], #cut[2], #cut[3] } -- (N, C, windows, taps)
end

local GEOMETRIES = {
  { { 2, 2, 2 }, { 2, 2, 2 }, { 0, 0, 0 }, { 1, 1, 1 } },
  { { 3, 2, 3 }, { 2, 1, 2 }, { 1, 0, 1 }, { 1, 1, 1 } },
  { { 1, 3, 2 }, { 1, 3, 1 }, { 0, 1, 1 }, { 1, 2, 1 } },
  { { 3, 1, 1 }, { 1, 2, 2 }, { 1, 0, 0 }, { 2, 1, 1 } },
  { { 4, 2, 3 }, { 3, 2, 1 }, { 2, 1, 1 }, { 1, 1, 2 } },
  { { 2, 2, 2 }, { 1, 1, 1 }, { 1, 1, 1 }, { 4, 3, 2 } },
}

describe("pooling of volumes", function()
  for i, g in ipairs(GEOMETRIES) do
    local k, stride, padding, dilation = unpack(g)
    it("finds the largest of each window and its position: geometry " .. i, function()
      local x = moth.randn(2, 3, 6, 5, 7)
      local all, out = windows(x, k, stride, padding, dilation, -math.huge)
      local y, at = F.max_pool3d(x, k, stride, padding, dilation, false, true)
      assert.is_true(y:flatten(3):equal(all:amax { dim = 4 }))
      assert.same({ 2, 3, unpack(out) }, { unpack(y.shape) })
      assert.is_true(x:flatten(3):gather(3, at:flatten(3)):equal(y:flatten(3)))
    end)

    it("passes gradients to the largest element and to all of a mean: geometry " .. i, function()
      local x = moth.randn(2, 3, 6, 5, 7)
      local z = x:clone():requires_grad_()
      x:requires_grad_()
      local y = F.max_pool3d(x, k, stride, padding, dilation)
      local dy = moth.randn_like(y:detach())
      y:backward(dy)
      windows(z, k, stride, padding, dilation, -math.huge):amax { dim = 4 }
        :backward(dy:flatten(3))
      assert.is_true(x.grad:allclose(z.grad, 1e-5, 1e-6))
      for _, by in ipairs { 1, 2, 3 } do
        if dilation[by] > 1 then return end
      end
      x.grad, z.grad = nil, nil
      y = F.avg_pool3d(x, k, stride, padding)
      local means = windows(z, k, stride, padding, dilation, 0):mean(4)
      assert.is_true(y:flatten(3):allclose(means, 1e-5, 1e-6))
      y:backward(dy)
      means:backward(dy:flatten(3))
      assert.is_true(x.grad:allclose(z.grad, 1e-5, 1e-6))
    end)
  end

  it("names the first of equal elements and the last NaN, in the order of the volume", function()
    local x = moth.zeros(1, 1, 4, 4, 4)
    local _, at = F.max_pool3d(x, 2, { return_indices = true })
    assert.same({ 1, 3, 9, 11, 33, 35, 41, 43 }, at:flatten():tolist())
    x[{ 1, 1, 1, 2, 2 }] = 0 / 0
    x[{ 1, 1, 2, 1, 2 }] = 0 / 0
    x[{ 1, 1, 4, 4, 3 }] = 1
    _, at = nn.MaxPool3d(2, { return_indices = true })(x)
    assert.same({ 18, 3, 9, 11, 33, 35, 41, 63 }, at:flatten():tolist())
    _, at = F.adaptive_max_pool3d(x, 1, { return_indices = true })
    assert.equal(18, at:item())
  end)

  it("skips windows that are between the elements", function()
    local x = moth.randn(1, 1, 2, 2, 3):requires_grad_()
    local how = { padding = 1, dilation = { 3, 1, 1 }, return_indices = true }
    local y, at = F.max_pool3d(x, 2, 1, how)
    assert.is_true(y:eq(-math.huge):all():item())
    assert.is_true(at:eq(0):all():item()) -- no position
    y:sum():backward()
    assert.equal(0, x.grad:abs():sum():item())
  end)

  it("rounds half types once", function()
    local x = moth.randn(2, 2, 6, 6, 6):half()
    for _, pool in ipairs { nn.AvgPool3d(3), nn.AdaptiveAvgPool3d(4) } do
      assert.is_true(pool(x):equal(pool(x:float()):half()))
    end
    local large = moth.full({ 1, 1, 8, 8, 8 }, 2000):half()
    assert.equal(2000, F.avg_pool3d(large, 8, { divisor_override = 512 }):item())
  end)

  it("to a given size keeps a side of none, and may be empty", function()
    local x = moth.randn(2, 3, 4, 5, 6)
    assert.equal("(2, 3, 2, 5, 6)", shape(nn.AdaptiveAvgPool3d { 2, moth.none, moth.none }(x)))
    assert.equal("(2, 3, 4, 1, 3)", shape(nn.AdaptiveMaxPool3d { moth.none, 1, 3 }(x)))
    assert.equal("(2, 3, 2, 0, 2)", shape(F.adaptive_avg_pool3d(x, { 2, 0, 2 })))
    local y, at = F.adaptive_max_pool3d(x, { 0, 2, 2 }, true)
    assert.equal("(2, 3, 0, 2, 2) (2, 3, 0, 2, 2)", shape(y) .. " " .. shape(at))
    assert.equal("(3, 1, 1, 1)", shape(F.adaptive_avg_pool3d(x[1], 1)))
  end)

  it("raises for unsupported arguments", function()
    local x = moth.randn(1, 2, 4, 4, 4)
    refuses("'input' to 'max_pool3d' %(%(N, C, D, H, W%) or %(C, D, H, W%) is needed",
      function() return (F.max_pool3d(x[{ 1, 1 }], 2)) end)
    refuses("'kernel_size' to 'avg_pool3d' %({5, 2, 2} does not fit f32 %(1, 2, 4, 4, 4%)",
      function() return (F.avg_pool3d(x, { 5, 2, 2 })) end)
    refuses("'padding' to 'max_pool3d' %({0, 0, 2} is more than half the window {2, 2, 2}",
      function() return (F.max_pool3d(x, 2, { padding = { 0, 0, 2 } })) end)
    refuses("'divisor_override' to 'avg_pool3d' %(a number other than 0",
      function() return (F.avg_pool3d(x, 2, { divisor_override = 0 })) end)
    refuses("'input' to 'adaptive_avg_pool3d' %(only the batch may be empty",
      function() return (F.adaptive_avg_pool3d(moth.zeros(1, 2, 0, 4, 4), 2)) end)
    refuses("'output_size' to 'adaptive_max_pool3d' %(numbers from 0 to 2^30",
      function() return (F.adaptive_max_pool3d(x, -1)) end)
    refuses("a list of 3, each of which may be moth.none",
      function() return (nn.AdaptiveAvgPool3d { 1, 2 }) end)
  end)

  it("as layers", function()
    assert.equal("MaxPool3d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=false)",
      tostring(nn.MaxPool3d(2)))
    local x = moth.randn(1, 2, 5, 5, 5)
    assert.equal("(1, 2, 3, 3, 3)", shape(nn.MaxPool3d { 2, ceil_mode = true }(x)))
    assert.is_true(nn.AvgPool3d { 2, divisor_override = 4 }(x):allclose(2 * nn.AvgPool3d(2)(x)))
  end)
end)

describe("padding of volumes", function()
  it("as layers", function()
    local x = moth.arange(8):float():view(1, 1, 2, 2, 2)
    assert.equal("(1, 1, 5, 3, 4)", shape(nn.ZeroPad3d { 1, 1, 0, 1, 2, 1 }(x)))
    assert.equal(3, nn.ConstantPad3d(1, 3)(x)[{ 1, 1, 1, 2, 2 }]:item())
    assert.equal(7, nn.ReflectionPad3d(1)(x)[{ 1, 1, 1, 1, 1 }]:item())
    assert.equal(0, nn.ReplicationPad3d(2)(x)[{ 1, 1, 2, 1, 2 }]:item())
    assert.equal(7, nn.CircularPad3d(1)(x)[{ 1, 1, 1, 1, 1 }]:item())
    refuses("'padding' to 'ZeroPad3d' %(a number or {left, right, top, bottom, front, back}",
      function() return (nn.ZeroPad3d { 1, 2, 3, 4 }) end)
  end)
end)

describe("interpolate of volumes", function()
  it("repeats the nearest element, or interpolates", function()
    local x = moth.tensor { 1, 2, 4 }:view(1, 1, 3, 1, 1)
    local function deep(y) return y:flatten():tolist() end
    assert.same({ 1, 1, 2, 2, 4, 4 }, deep(F.interpolate(x, { 6, 1, 1 })))
    assert.same({ 1, 1.25, 1.75, 2.5, 3.5, 4 },
      deep(F.interpolate(x, { 6, 1, 1 }, { mode = "trilinear" })))
    assert.same({ 1, 1.5, 2, 3, 4 },
      deep(F.interpolate(x, { 5, 1, 1 }, { mode = "trilinear", align_corners = true })))
    assert.same({ 1.5, 3 }, deep(F.interpolate(x, { 2, 1, 1 }, { mode = "area" })))
    local up = nn.Upsample { scale_factor = { 1, 2, 3 }, mode = "trilinear" }
    assert.equal("(1, 1, 3, 2, 3)", shape(up(x)))
    assert.is_true(up(x):eq(x):all():item())
  end)

  it("names the modes for each rank", function()
    refuses("'trilinear' needs %(N, C, D, H, W%), got f32 %(1, 1, 2, 2%)",
      function() return (F.interpolate(moth.ones(1, 1, 2, 2), 2, { mode = "trilinear" })) end)
    local x = moth.ones(1, 1, 2, 2, 2)
    refuses("'bilinear' needs %(N, C, H, W%)",
      function() return (F.interpolate(x, 2, { mode = "bilinear" })) end)
    refuses("a number or 3 of them are needed", function() return (F.interpolate(x, { 2, 2 })) end)
    refuses("sides of 1 to 2^30 are needed, got {0, 1, 1}",
      function() return (F.interpolate(x, { 0, 1, 1 })) end)
  end)
end)

-- Volumes (N, C, D, H, W) compared with images (N, C, D H, W), where both are equal.
local function on(device)
  local x
  before_each(function()
    moth.manual_seed(4)
    x = moth.randn(2, 4, 3, 4, 5):to(device)
  end)

  for kind, arguments in pairs { BatchNorm = { 4 }, InstanceNorm = { 4, { affine = true } } } do
    it("are normalized by " .. kind .. "3d", function()
      local three, two = nn[kind .. "3d"](unpack(arguments)), nn[kind .. "2d"](unpack(arguments))
      three:to(device)
      two:to(device)
      local a, b = x:clone():requires_grad_(), x:clone():requires_grad_()
      local dy = moth.randn(x.shape):to(device)
      local y, z = three(a), two(b:flatten(3, 4)):view_as(x)
      assert.is_true(y:allclose(z))
      y:backward(dy)
      z:backward(dy)
      assert.is_true(a.grad:allclose(b.grad))
    end)
  end

  it("work in GroupNorm, PReLU and softmax as images do", function()
    local group, prelu = nn.GroupNorm(2, 4):to(device), nn.PReLU(4):to(device)
    local flat = x:flatten(3, 4)
    assert.is_true(group(x):allclose(group(flat):view_as(x)))
    assert.is_true(prelu(x):allclose(prelu(flat):view_as(x)))
    assert.is_true(F.softmax(x, 2):allclose(F.softmax(flat, 2):view_as(x)))
  end)

  it("lose whole channels in Dropout3d", function()
    local kept = nn.Dropout3d(0.5)(x:abs() + 1):ne(0):flatten(3):float():mean(3)
    assert.is_true((kept:eq(0) + kept:eq(1)):all():item())
  end)

  it("have classes in cross_entropy", function()
    local target, weight = moth.randint(1, 5, { 2, 3, 4, 5 }):to(device), moth.rand(4):to(device)
    local how = { weight = weight, label_smoothing = 0.1 }
    local a, b = x:clone():requires_grad_(), x:clone():requires_grad_()
    local y = F.cross_entropy(a, target, how)
    local z = F.cross_entropy(b:flatten(3, 4), target:flatten(2, 3), how)
    assert.is_true(y:allclose(z))
    y:backward()
    z:backward()
    assert.is_true(a.grad:allclose(b.grad))
    assert.is_true(F.nll_loss(F.log_softmax(x, 2), target):allclose(F.cross_entropy(x, target)))
  end)

  it("are permuted and flattened", function()
    local rows = x:permute(1, 3, 4, 5, 2):contiguous():view(-1, 4)
    assert.is_true(rows[{ 60 + 7 }]:equal(x[{ 2, {}, 1, 2, 2 }]))
  end)

  if device == "cpu" then return end

  it("are pooled and resampled as on the CPU", function()
    local function all(v)
      v = v:clone():requires_grad_()
      local largest, at = F.max_pool3d(v, 2, 1, { padding = { 1, 0, 1 }, dilation = { 1, 2, 1 },
        return_indices = true })
      local share, place = F.adaptive_max_pool3d(v, 2, true)
      local mean = F.avg_pool3d(v, { 2, 3, 2 }, { ceil_mode = true, padding = 1 })
      local up = F.interpolate(v, { scale_factor = { 2, 1, 1.5 }, mode = "trilinear" })
      local total = largest:square():sum() + share:square():sum() + mean:square():sum()
      total = total + up:square():sum() + F.adaptive_avg_pool3d(v, 2):square():sum()
      total:backward()
      return { largest, at, share, place, mean, up, v.grad }
    end
    local there, here = all(x), all(x:cpu())
    for i, v in ipairs(here) do assert.is_true(there[i]:cpu():allclose(v, 1e-5, 1e-6)) end
  end)
end

describe("volumes", function() on "cpu" end)

describe("volumes on a GPU", function()
  if not cuda.here then
    pending("are the CPU's: " .. cuda.why)
    return
  end
  on "cuda"
end)
