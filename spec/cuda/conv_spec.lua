-- Convolution and pooling on a GPU, in shapes that golden data do not have: every kind of tile,
-- sums that are split among blocks, strides whose classes of pixels differ, shared positions. The
-- CPU's results are the reference.

local moth = require "moth"
local cuda = require "spec.support.cuda"
local F = moth.nn.functional

local function close(wanted, got, what, tolerance)
  got = got:cpu()
  assert.same(wanted.shape, got.shape)
  if wanted:numel() == 0 then return end
  local scale = math.max(1, wanted:abs():max():item())
  local off = (wanted - got):abs():max():item()
  assert(off <= (tolerance or 1e-10) * scale, ("%s is off by %g of %g"):format(what, off, scale))
end

-- The result and both gradients of a convolution, of images or of volumes, on the device.
local function convolved(x, w, device, options)
  x, w = x:to(device):detach(), w:to(device):detach()
  x.requires_grad, w.requires_grad = true, true
  local conv = x:dim() == 5 and F.conv3d or F.conv2d
  local y = conv(x, w, nil, options.stride, options.padding, options.dilation, options.groups)
  moth.manual_seed(3)
  y:backward(moth.randn(y.shape, { dtype = x.dtype }):to(device))
  return { result = y:detach(), images = x.grad, filters = w.grad }
end

local function check(x_size, w_size, options, dtype, tolerance)
  moth.manual_seed(1)
  local x = moth.randn(x_size, { dtype = dtype or moth.float64 })
  local w = moth.randn(w_size, { dtype = dtype or moth.float64 })
  local wanted = convolved(x, w, "cpu", options or {})
  local got = convolved(x, w, "cuda", options or {})
  for what, value in pairs(wanted) do close(value, got[what], what, tolerance) end
  return got
end

describe("convolution on a GPU", function()
  if not cuda.here then
    pending("agrees with the CPU's: " .. cuda.why)
    return
  end

  it("agrees with the CPU for few channels in a group, and for one", function()
    check({ 2, 1, 9, 8 }, { 4, 1, 3, 3 })
    check({ 2, 6, 9, 8 }, { 6, 1, 3, 3 }, { groups = 6, padding = 1, stride = 2 })
    check({ 2, 3, 70, 70 }, { 6, 1, 5, 3 }, { groups = 3, dilation = { 2, 3 } })
    check({ 3, 4, 8, 7 }, { 4, 2, 2, 3 }, { groups = 2, stride = { 3, 2 }, padding = 2 })
  end)

  it("agrees with the CPU in tiles of every form", function()
    check({ 2, 20, 13, 11 }, { 24, 20, 3, 3 }, { padding = 1 })
    check({ 1, 70, 9, 10 }, { 40, 70, 3, 2 })
    check({ 1, 9, 6, 5 }, { 130, 9, 1, 1 })
    check({ 2, 36, 7, 7 }, { 36, 18, 3, 3 }, { groups = 2, padding = "same", dilation = 2 })
  end)

  it("agrees with the CPU for filters along the depth alone", function()
    for _, options in ipairs { {}, { padding = { 1, 0, 0 }, dilation = { 2, 1, 1 } },
                               { stride = { 2, 1, 1 }, dilation = { 3, 2, 1 } },
                               { stride = { 3, 1, 1 }, padding = { 2, 0, 0 }, groups = 3 } } do
      local channels = options.groups and 1 or 3
      check({ 2, 3, 9, 4, 5 }, { 6, channels, 3, 1, 1 }, options)
    end
  end)

  it("agrees with the CPU for floats in the widest tiles", function()
    check({ 3, 16, 107, 107 }, { 66, 16, 1, 1 }, {}, moth.float32, 1e-5)
  end)

  it("agrees with the CPU where a stride makes classes of pixels", function()
    check({ 2, 12, 11, 10 }, { 16, 12, 3, 3 }, { stride = 2, padding = 1 })
    check({ 2, 12, 12, 12 }, { 16, 12, 2, 2 }, { stride = 3 })
    check({ 1, 12, 17, 16 }, { 16, 12, 3, 2 }, { stride = { 4, 2 }, dilation = { 2, 3 },
      padding = { 3, 2 } })
    check({ 2, 12, 16, 16 }, { 12, 12, 8, 8 }, { stride = 8 })
    check({ 2, 12, 3, 3 }, { 12, 12, 3, 3 }, { stride = 7 })
  end)

  it("returns the same bits each time, also where sums are split", function()
    local a = check({ 4, 10, 40, 40 }, { 12, 10, 3, 3 })
    local b = check({ 4, 10, 40, 40 }, { 12, 10, 3, 3 })
    for what, value in pairs(a) do assert.is_true(value:cpu():equal(b[what]:cpu()), what) end
  end)

  it("agrees with the CPU for volumes, whole and in chunks", function()
    check({ 2, 3, 5, 6, 7 }, { 4, 3, 3, 3, 3 }, { padding = 1 })
    check({ 2, 4, 7, 6, 8 }, { 6, 2, 3, 2, 3 }, { groups = 2, stride = { 2, 1, 3 },
      padding = { 2, 0, 1 }, dilation = { 2, 3, 1 } })
    check({ 2, 3, 9, 4, 5 }, { 2, 3, 2, 2, 2 }, { stride = { 4, 1, 1 } })
    check({ 3, 5, 6, 4, 5 }, { 5, 1, 3, 3, 3 }, { groups = 5, padding = "same" })
    check({ 2, 3, 6, 4, 5 }, { 4, 3, 2, 1, 1 }, { padding = "same" })
    check({ 2, 20, 4, 5, 5 }, { 24, 20, 2, 3, 3 }, { padding = 1 }, moth.bfloat16, 0.02)
    check({ 3, 2, 33, 200, 200 }, { 2, 2, 4, 1, 2 }, { stride = { 1, 8, 8 } }, moth.float32, 1e-5)
  end)

  it("rounds a gradient of filters once, however many partial sums it has", function()
    for dtype, wanted in pairs { bfloat16 = 772, float64 = 771 } do
      local x = moth.ones(3, 1, 33, 240, 248, { dtype = moth[dtype] })
      local dy = moth.zeros(3, 17 * 30 * 31, { dtype = moth[dtype] })
      dy[{ {}, { 1, 257 } }] = 1
      local dw = require("moth.binding.bind").ops.conv3d_weight(x:cuda(), dy:view(3, 1, 17, 30,
        31):cuda(),
        { 17, 1, 2 }, { stride = { 1, 8, 8 } })
      dw = dw:cpu():double()
      assert.same({ wanted, wanted }, { dw:min():item(), dw:max():item() })
    end
  end)

  it("agrees with the CPU in half types", function()
    check({ 2, 20, 9, 9 }, { 24, 20, 3, 3 }, { padding = 1 }, moth.bfloat16, 0.02)
    check({ 2, 20, 9, 9 }, { 24, 20, 3, 3 }, { padding = 1 }, moth.float16, 0.002)
  end)

  it("of no images is empty, and its gradient of the filters is 0", function()
    local got = check({ 0, 12, 5, 5 }, { 12, 12, 3, 3 })
    assert.equal(0, got.result:numel())
    assert.is_true(got.filters:cpu():equal(moth.zeros(12, 12, 3, 3, { dtype = moth.float64 })))
  end)
end)

-- ---- integers: every product and sum is exact in any order, and rounded once ----

local formats = { [4] = "channels_last", [5] = "channels_last_3d" }

local function whole(size, dtype, step)
  moth.manual_seed(step)
  return moth.randint(-2, 3, size):to(moth[dtype])
end

-- large: a single memory format, and no gradient of the filters.
local function exact(x_size, w_size, options, large)
  options = options or {}
  local x, w = whole(x_size, "float64", 1), whole(w_size, "float64", 2)
  local conv = #x_size == 5 and F.conv3d or F.conv2d
  local function run(a, b, bias)
    a.requires_grad, b.requires_grad = true, not large
    local y = conv(a, b, bias, options.stride, options.padding, options.dilation, options.groups)
    local dy = whole(y.shape, "float64", 3):to(y.dtype):to(y.device)
    y:backward(large and dy:to { memory_format = moth.channels_last } or dy)
    return { result = y:detach(), images = a.grad, filters = b.grad }
  end
  local bias = whole({ w_size[1] }, "float64", 4)
  local wanted = run(x, w, bias)
  for _, dtype in ipairs { "float16", "bfloat16", "float32" } do
    for _, format in ipairs { formats[#x_size], not large and "contiguous_format" or nil } do
      local function there(t) return t:detach():to(moth[dtype]):cuda() end
      local function laid(t) return there(t):to { memory_format = moth[format] } end
      local got = run(laid(x), laid(w), there(bias))
      for what, value in pairs(wanted) do
        assert.is_true(moth.equal(value:to(moth[dtype]), got[what]:cpu()),
          ("%s in %s, %s"):format(what, dtype, format))
      end
      if format ~= "contiguous_format" then
        assert.is_true(got.result:is_contiguous { memory_format = moth[format] })
      end
    end
  end
end

describe("depthwise convolution on a GPU", function()
  if not cuda.here then
    pending("agrees with the CPU's: " .. cuda.why)
    return
  end

  it("is an exact sum of integers, for all filters and memory formats", function()
    exact({ 2, 16, 21, 9 }, { 16, 1, 3, 3 }, { groups = 16, padding = 1 })
    exact({ 3, 8, 11, 12 }, { 8, 1, 3, 3 }, { groups = 8, stride = 2, padding = { 0, 2 } })
    exact({ 2, 8, 13, 10 }, { 8, 1, 5, 5 }, { groups = 8, padding = "same" })
    exact({ 1, 8, 20, 9 }, { 8, 1, 5, 5 }, { groups = 8, stride = 2, padding = 5 })
    exact({ 2, 12, 9, 8 }, { 12, 1, 7, 7 }, { groups = 12, padding = 3 })
    exact({ 2, 8, 15, 14 }, { 8, 1, 7, 7 }, { groups = 8, stride = { 2, 1 }, padding = 3 })
    exact({ 2, 5, 9, 8 }, { 5, 1, 3, 3 }, { groups = 5, padding = 3 })
    exact({ 90, 12, 4, 30 }, { 12, 1, 3, 3 }, { groups = 12, padding = 1 })
  end)

  it("is exact for more channels than a block has", function()
    exact({ 1, 132, 5, 4 }, { 132, 1, 3, 3 }, { groups = 132, padding = 1 })
    exact({ 2, 260, 9, 3 }, { 260, 1, 3, 3 }, { groups = 260, stride = 2, padding = 1 })
    exact({ 1, 68, 9, 11 }, { 68, 1, 5, 5 }, { groups = 68, padding = 2 })
    exact({ 1, 36, 10, 3 }, { 36, 1, 7, 7 }, { groups = 36, padding = 3 })
  end)
end)

describe("convolution on tensor cores", function()
  if not cuda.here then
    pending("agrees with the CPU's: " .. cuda.why)
    return
  end

  before_each(function() moth.backends.cudnn.allow_tf32 = true end)
  after_each(function() moth.backends.cudnn.allow_tf32 = false end)

  it("is an exact sum of integers, with every stride, dilation and padding", function()
    exact({ 2, 16, 9, 7 }, { 24, 16, 3, 3 }, { padding = 1 })
    exact({ 2, 16, 9, 8 }, { 8, 16, 3, 2 }, { stride = { 2, 3 }, padding = { 0, 2 } })
    exact({ 1, 8, 14, 15 }, { 16, 8, 3, 4 }, { dilation = { 2, 3 }, stride = 2, padding = 3 })
    exact({ 2, 32, 9, 9 }, { 48, 16, 2, 3 }, { groups = 2, padding = "same" })
    exact({ 2, 16, 3, 3 }, { 16, 16, 3, 3 }, { stride = 7 })
  end)

  it("supports volumes", function()
    exact({ 2, 16, 4, 5, 6 }, { 8, 16, 3, 3, 3 }, { padding = 1 })
    exact({ 1, 16, 7, 6, 5 }, { 24, 8, 2, 3, 1 }, { groups = 2, stride = { 2, 1, 3 },
      dilation = { 3, 2, 1 }, padding = { 2, 0, 1 } })
  end)

  it("is an exact sum in tiles of every size, and where sums are split", function()
    exact({ 1, 8, 130, 130 }, { 8, 8, 1, 1 }, nil, "large")
    exact({ 1, 8, 92, 92 }, { 136, 8, 1, 1 }, nil, "large")
    exact({ 1, 136, 92, 92 }, { 8, 136, 1, 1 }, nil, "large")
    exact({ 2, 72, 4, 4 }, { 72, 72, 3, 3 }, { padding = 1 })
  end)

  it("rounds f32 to TF32 only where that is allowed", function()
    if moth.cuda.get_device_capability() < 8 then return pending "this GPU has no TF32" end
    local function off(tf32)
      moth.backends.cudnn.allow_tf32 = tf32
      moth.manual_seed(7)
      local x, w = moth.randn(2, 32, 9, 9), moth.randn(24, 32, 3, 3)
      local y = F.conv2d(x, w)
      return ((F.conv2d(x:cuda(), w:cuda()):cpu() - y):abs():max() / y:abs():max()):item()
    end
    local near, far = off(false), off(true)
    assert(near < 2e-6 and far > 2e-6 and far < 2e-3, near .. " " .. far)
  end)

  it("also supports tensors that are not aligned to 16 bytes", function()
    moth.manual_seed(8)
    local bytes = moth.randint(-2, 3, { 1 + 2 * 16 * 5 * 6 }):to(moth.bfloat16)
    local w = whole({ 8, 16, 3, 3 }, "bfloat16", 2)
    local function run(device)
      local x = bytes:to(device)[{ { 2, -1 } }]:view(2, 5, 6, 16):permute(1, 4, 2, 3)
      return F.conv2d(x, w:to(device)):cpu()
    end
    assert.is_true(moth.equal(run "cpu", run "cuda"))
  end)
end)

describe("pooling on a GPU", function()
  if not cuda.here then
    pending("agrees with the CPU's: " .. cuda.why)
    return
  end

  -- The result and the gradient of f(x).
  local function pooled(x, device, f)
    x = x:to(device):detach()
    x.requires_grad = true
    local y = f(x)
    moth.manual_seed(3)
    y:backward(moth.randn(y.shape, { dtype = x.dtype }):to(device))
    return y:detach(), x.grad
  end

  it("sums the gradients of overlapping windows in the CPU's order", function()
    moth.manual_seed(2)
    local x = moth.randn(2, 3, 40, 37)
    local function f(v) return F.max_pool2d(v, 5, 1, 2) end
    local _, wanted = pooled(x, "cpu", f)
    local _, got = pooled(x, "cuda", f)
    assert.is_true(wanted:equal(got:cpu()))
  end)

  it("uses a warp or a block for a large window", function()
    moth.manual_seed(2)
    local x = moth.randn(2, 2, 70, 65, { dtype = moth.float64 })
    x[{ 1, 1, 3, 4 }] = 0 / 0
    x[{ 1, 1, 9, 4 }] = 0 / 0
    for _, size in ipairs { 1, 7 } do
      local function largest(v) return F.adaptive_max_pool2d(v, size) end
      local wanted, where = pooled(x, "cpu", largest)
      local got, place = pooled(x, "cuda", largest)
      assert.is_true(where:equal(place:cpu()))
      assert.is_true(wanted:nan_to_num():equal(got:cpu():nan_to_num()))
      local y, dx = pooled(x[2], "cpu", function(v) return F.adaptive_avg_pool2d(v, size) end)
      local z, dz = pooled(x[2], "cuda", function(v) return F.adaptive_avg_pool2d(v, size) end)
      close(y, z, "the mean")
      close(dx, dz, "its gradient")
    end
  end)
end)

describe("resampling on a GPU", function()
  if not cuda.here then
    pending("agrees with the CPU's: " .. cuda.why)
    return
  end

  it("agrees with the CPU for sizes that are no multiples", function()
    moth.manual_seed(2)
    local x = moth.randn(2, 2, 11, 7)
    for _, mode in ipairs { "nearest", "nearest-exact", "bilinear", "bicubic", "area" } do
      for _, size in ipairs { { 5, 3 }, { 23, 20 }, { 11, 9 } } do
        local function moved(device)
          local v = x:to(device):detach()
          v.requires_grad = true
          local y = F.interpolate(v, { size = size, mode = mode })
          moth.manual_seed(3)
          y:backward(moth.randn(y.shape):to(device))
          return y:detach(), v.grad
        end
        local y, dx = moved "cpu"
        local z, dz = moved "cuda"
        close(y, z, mode, 1e-5)
        close(dx, dz, mode .. "'s gradient", 1e-5)
      end
    end
  end)
end)
