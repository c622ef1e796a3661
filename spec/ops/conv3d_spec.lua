-- 3-D convolution equals sums of 2-D convolutions of slices, for each method and any number of
-- threads; errors; and its modules.

local moth = require "moth"
local nn, F = moth.nn, moth.nn.functional
local ops = require("moth.binding.bind").ops
local refuses = require("spec.support.intact").refuses

-- The definition: at each depth, a sum of convolutions of the slices under the filter.
local function by_slices(x, w, c)
  local padded = F.pad(x, { 0, 0, 0, 0, c.padding[1], c.padding[1] })
  local reach = c.dilation[1] * (w:size(3) - 1) + 1
  local slices = {}
  for d = 1, padded:size(3) - reach + 1, c.stride[1] do
    local sum
    for k = 1, w:size(3) do
      local y = F.conv2d(padded:select(3, d + (k - 1) * c.dilation[1]), w:select(3, k), nil,
        { c.stride[2], c.stride[3] }, { c.padding[2], c.padding[3] },
        { c.dilation[2], c.dilation[3] }, c.groups)
      sum = sum and sum + y or y
    end
    slices[#slices + 1] = sum
  end
  return moth.stack(slices, 3)
end

local function three(v) return type(v) == "table" and v or { v, v, v } end

local function far(got, wanted)
  return (got:double() - wanted):abs():max():item() / (wanted:abs():max():item() + 1e-30)
end

--- The result and both gradients of conv3d.
local function all(x, w, dy, c)
  local rest = { stride = c.stride, padding = c.padding, dilation = c.dilation, groups = c.groups }
  local size = { x:size(3), x:size(4), x:size(5) }
  return { F.conv3d(x, w, nil, rest), ops.conv3d_input(dy, w, size, rest),
           ops.conv3d_weight(x, dy, { w:size(3), w:size(4), w:size(5) }, rest) }
end

-- A shape in all dtypes, on one thread and on two.
local function check(c)
  c.stride, c.padding = three(c.stride or 1), three(c.padding or 0)
  c.dilation, c.groups = three(c.dilation or 1), c.groups or 1
  local x = moth.randn(c.n or 2, c.channels, unpack(c)):double():requires_grad_()
  local w = moth.randn(c.filters, c.channels / c.groups, unpack(c.kernel)):double():requires_grad_()
  local y = by_slices(x, w, c)
  local dy = moth.randn(y:size()):double()
  y:backward(dy)
  local wanted, threads = { y, x.grad, w.grad }, moth.get_num_threads()
  for dtype, limit in pairs { float64 = 1e-13, float32 = 5e-6, bfloat16 = 2e-2 } do
    local results = {}
    for n = 1, 2 do
      moth.set_num_threads(n)
      results[n] = all(x:detach():to(moth[dtype]), w:detach():to(moth[dtype]),
        dy:to(moth[dtype]), c)
    end
    moth.set_num_threads(threads)
    for i, what in ipairs { "result", "gradient of volumes", "gradient of filters" } do
      local error = far(results[1][i], wanted[i])
      assert.is_true(error < limit, ("%s in %s: off by %g"):format(what, dtype, error))
      assert.is_true(moth.equal(results[1][i], results[2][i]), what .. " depends on threads")
    end
  end
end

describe("3-D convolution equals the summed convolutions of slices", function()
  before_each(function() moth.manual_seed(6) end)

  it("for filters of three sizes, with padding and without", function()
    check { 5, 7, 8, channels = 3, filters = 4, kernel = { 3, 3, 3 }, padding = 1 }
    check { 4, 5, 6, channels = 1, filters = 5, kernel = { 2, 3, 1 } }
    check { 3, 4, 5, channels = 4, filters = 2, kernel = { 2, 2, 3 }, padding = { 3, 0, 2 } }
  end)

  it("for stride and dilation along each side", function()
    check { 7, 9, 6, channels = 3, filters = 5, kernel = { 3, 2, 3 }, stride = { 2, 1, 3 } }
    check { 9, 6, 7, channels = 2, filters = 4, kernel = { 3, 3, 2 }, dilation = { 2, 1, 3 },
            stride = { 3, 2, 1 }, padding = { 2, 1, 1 } }
    check { 9, 5, 5, channels = 2, filters = 3, kernel = { 2, 3, 3 }, stride = { 4, 1, 1 } }
  end)

  it("for groups, and for depthwise filters", function()
    check { 4, 6, 6, channels = 6, filters = 9, kernel = { 3, 3, 3 }, groups = 3, padding = 1 }
    check { 4, 6, 6, channels = 5, filters = 5, kernel = { 3, 3, 3 }, groups = 5, padding = 1 }
  end)

  it("for filters along the depth only, which treat volumes as images", function()
    check { 6, 4, 5, channels = 3, filters = 4, kernel = { 3, 1, 1 }, padding = { 1, 0, 0 } }
    check { 7, 4, 5, channels = 3, filters = 4, kernel = { 2, 1, 1 }, stride = { 2, 1, 1 } }
    check { 6, 4, 5, channels = 8, filters = 7, kernel = { 1, 1, 1 } }
  end)

  it("for filters of depth 1, and as deep as the volume", function()
    check { 4, 6, 7, channels = 3, filters = 4, kernel = { 1, 3, 3 }, padding = { 0, 1, 1 } }
    check { 4, 6, 7, n = 5, channels = 3, filters = 4, kernel = { 4, 3, 3 } }
    check { 1, 6, 7, n = 5, channels = 3, filters = 4, kernel = { 1, 2, 3 }, padding = 1 }
  end)

  it("for more slices than are gathered at a time", function()
    check { 17, 48, 48, n = 1, channels = 24, filters = 16, kernel = { 3, 3, 3 }, padding = 1 }
    check { 9, 48, 40, n = 3, channels = 16, filters = 17, kernel = { 3, 3, 3 },
            stride = { 2, 1, 1 } }
    check { 3, 160, 128, n = 1, channels = 20, filters = 8, kernel = { 3, 2, 2 },
            padding = { 1, 0, 0 } }
  end)
end)

describe("conv3d", function()
  it("raises for shapes that do not fit, and names the right ones", function()
    local x, w = moth.ones(1, 2, 4, 5, 6), moth.ones(3, 2, 3, 3, 3)
    local function refused(text, ...)
      local arguments, n = { ... }, select("#", ...)
      refuses(function() return (F.conv3d(unpack(arguments, 1, n))) end, text)
    end
    refused("'weight' to 'conv3d' (a kernel of {5, 3, 3} does not fit f32 (1, 2, 4, 5, 6))", x,
      moth.ones(3, 2, 5, 3, 3))
    refused("'input' to 'conv3d' (the filters f32 (3, 4, 3, 3, 3) need 4 channels", x,
      moth.ones(3, 4, 3, 3, 3))
    refused("(N, C, D, H, W) or (C, D, H, W) is needed, got f32 (4, 5, 6)", moth.ones(4, 5, 6), w)
    refused("(O, C / groups, KD, KH, KW) is needed, got f32 (3, 2, 3, 3)", x,
      moth.ones(3, 2, 3, 3))
    refused("'bias' to 'conv3d'", x, w, moth.ones(2))
    refused("'stride' to 'conv3d' (an integer or a list of 3 integers is needed", x, w,
      { stride = { 1, 2 } })
    refused("'padding' to 'conv3d' ('same' needs stride 1, got {1, 1, 2})", x, w,
      { stride = { 1, 1, 2 }, padding = "same" })
    refused("did you mean 'same'", x, w, { padding = "sane" })
    refused("'groups' to 'conv3d' (3 channels cannot be split into 2 groups", x, w, { groups = 2 })
  end)

  it("keeps the size with padding 'same', also for even filters and dilation", function()
    local x = moth.ones(1, 1, 5, 6, 7)
    for k = 1, 4 do
      local y = F.conv3d(x, moth.ones(1, 1, k, k, k), { padding = "same", dilation = { 1, 2, 1 } })
      assert.equal("(1, 1, 5, 6, 7)", tostring(y.shape))
    end
  end)
end)

describe("nn.Conv3d and nn.ConvTranspose3d", function()
  it("have parameters of PyTorch's names and layouts, within 1 / sqrt(fan in)", function()
    local m = nn.Conv3d { 4, 64, kernel_size = { 3, 2, 5 }, groups = 2 }
    assert.equal("(64, 2, 3, 2, 5)", tostring(m.weight.shape))
    assert.equal("(64)", tostring(m.bias.shape))
    local bound, most = 1 / math.sqrt(60), m.weight:abs():amax():item()
    assert.is_true(most <= bound and most > 0.99 * bound)
    local t = nn.ConvTranspose3d { 4, 6, { 5, 2, 1 }, groups = 2, bias = false }
    assert.equal("(4, 3, 5, 2, 1)", tostring(t.weight.shape))
    assert.is_nil(t:state_dict().bias)
    assert.equal("Conv3d(4, 64, kernel_size=(3, 2, 5), stride=(1, 1, 1), groups=2)", tostring(m))
  end)

  it("pass their options on", function()
    local m = nn.Conv3d { 4, 6, kernel_size = { 3, 2, 1 }, stride = { 2, 1, 1 },
      padding = { 1, 0, 2 }, dilation = { 1, 2, 1 }, groups = 2 }
    local x = moth.randn(2, 4, 5, 6, 3)
    assert.same(F.conv3d(x, m.weight, m.bias, { 2, 1, 1 }, { 1, 0, 2 }, { 1, 2, 1 }, 2):tolist(),
      m(x):tolist())
    local t = nn.ConvTranspose3d { 4, 6, 2, stride = 2, padding = { 1, 0, 1 },
      output_padding = { 0, 1, 0 }, groups = 2 }
    assert.same(F.conv_transpose3d(x, t.weight, t.bias, 2, { 1, 0, 1 }, { 0, 1, 0 }, 2):tolist(),
      t(x):tolist())
  end)

  it("fill the border from the volume in other padding modes", function()
    local x = moth.arange(1, 28):view(1, 3, 3, 3)
    for _, mode in ipairs { "zeros", "reflect", "replicate", "circular" } do
      local m = nn.Conv3d { 1, 2, 3, padding = { 1, 2, 0 }, padding_mode = mode }
      local padded = F.pad(x:float(), { 0, 0, 2, 2, 1, 1 }, mode == "zeros" and "constant" or mode)
      assert.is_true(moth.allclose(F.conv3d(padded, m.weight, m.bias), m(x:float()), 1e-4, 1e-4))
    end
  end)

  it("transposed, accept an output_size beyond a stride, if the filter is dilated", function()
    local x, w, b = moth.randn(1, 2, 4, 3), moth.randn(2, 3, 2, 2), moth.randn(3)
    local function made(options) return F.conv_transpose2d(x, w, b, options) end
    -- beyond the last step the result is the bias; padding removes elements on all sides
    local whole = F.pad(F.conv_transpose2d(x, w, { dilation = 3 }), { 0, 2, 0, 1 })
    whole = whole + b:view(3, 1, 1)
    local got = made { dilation = 3, output_padding = { 1, 2 } }
    assert.is_true(moth.allclose(whole, got, 1e-5, 1e-6))
    assert.is_true(moth.allclose(whole[{ {}, {}, { 2, -2 }, { 2, -2 } }],
      made { dilation = 3, output_padding = { 1, 2 }, padding = 1 }, 1e-5, 1e-6))
    local v, u = moth.randn(1, 2, 2, 4, 3), moth.randn(2, 3, 1, 2, 2)
    assert.is_true(moth.allclose(
      F.pad(F.conv_transpose3d(v, u, { dilation = { 1, 3, 1 } }), { 0, 0, 0, 2 }),
      F.conv_transpose3d(v, u, { dilation = { 1, 3, 1 }, output_padding = { 0, 2, 0 } })))
  end)

  it("transposed, have the requested output_size", function()
    local m = nn.ConvTranspose3d(1, 2, 3, { stride = 2, padding = 1 })
    assert.equal("(1, 2, 7, 8, 7)", tostring(m(moth.ones(1, 1, 4, 4, 4), { 7, 8, 7 }).shape))
    refuses(function() return (m(moth.ones(1, 1, 4, 4, 4), 9)) end,
      "'output_size' to 'ConvTranspose3d' (7 to 8 are possible for f32 (1, 1, 4, 4, 4)")
  end)

  it("compute in the half type of autocast", function()
    moth.autocast("cpu", function()
      assert.equal(moth.bfloat16, nn.Conv3d(1, 2, 3)(moth.ones(1, 1, 3, 3, 3)).dtype)
      assert.equal(moth.bfloat16, nn.ConvTranspose3d(1, 2, 3)(moth.ones(1, 1, 3, 3, 3)).dtype)
    end)
  end)
end)
