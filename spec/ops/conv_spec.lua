-- Convolution in f32, with several fast methods, compared with f64, which uses im2col; the same
-- bits for any number of threads; and bf16 compared with f32.

local moth = require "moth"
local conv2d = moth.nn.functional.conv2d
local ops = require("moth.binding.bind").ops

--- Three tensors for a shape: result, gradient of images, gradient of filters.
local function all(x, w, b, dy, c)
  local size = { x:size(3), x:size(4) }
  local kernel = { w:size(3), w:size(4) }
  local rest = { stride = c.stride, padding = c.padding, dilation = c.dilation, groups = c.groups }
  return conv2d(x, w, b, rest), ops.conv2d_input(dy, w, size, rest),
    ops.conv2d_weight(x, dy, kernel, rest)
end

local function far(got, wanted)
  return (got:double() - wanted):abs():max():item() / (wanted:abs():max():item() + 1e-30)
end

--- Checks that a shape has the results of f64, and the same on one thread and on two.
local function check(c)
  c.stride, c.padding, c.dilation = c.stride or 1, c.padding or 0, c.dilation or 1
  c.groups = c.groups or 1
  local x = moth.randn(c.n or 2, c.channels, c[1], c[2])
  local w = moth.randn(c.filters, c.channels / c.groups, c.kernel[1], c.kernel[2])
  local b = moth.randn(c.filters)
  local dy = moth.randn(conv2d(x, w, b, c.stride, c.padding, c.dilation, c.groups):size())
  local wanted = { all(x:double(), w:double(), b:double(), dy:double(), c) }
  local threads, results = moth.get_num_threads(), {}
  for n = 1, 2 do
    moth.set_num_threads(n)
    results[n] = { all(x, w, b, dy, c) }
  end
  moth.set_num_threads(threads)
  for i, what in ipairs { "result", "gradient of images", "gradient of filters" } do
    local error = far(results[1][i], wanted[i])
    assert.is_true(error < 5e-6, ("%s: off by %g"):format(what, error))
    assert.is_true(moth.equal(results[1][i], results[2][i]), what .. " depends on threads")
  end
end

describe("convolution in f32 equals that in f64", function()
  before_each(function() moth.manual_seed(4) end)

  it("for results of every width", function()
    for width = 1, 40 do
      check { 5, width, channels = 3, filters = 5, kernel = { 3, 3 }, padding = 1 }
    end
  end)

  it("for every number of channels and filters", function()
    for n = 1, 40 do
      check { 6, 7, channels = n, filters = 41 - n, kernel = { 3, 2 }, padding = { 1, 0 } }
    end
  end)

  it("for more products than are summed at a time", function()
    check { 9, 11, n = 3, channels = 290, filters = 20, kernel = { 3, 3 }, padding = 1 }
    check { 4, 4, n = 5, channels = 300, filters = 33, kernel = { 3, 3 }, padding = 1 }
    check { 40, 130, n = 1, channels = 70, filters = 17, kernel = { 3, 3 }, padding = 1 }
  end)

  it("for strides, also wider than the kernel", function()
    for stride = 2, 4 do
      check { 13, 22, channels = 8, filters = 12, kernel = { 3, 3 }, stride = stride, padding = 1 }
      check { 12, 21, channels = 9, filters = 7, kernel = { 2, 1 }, stride = { stride, 3 } }
      check { 16, 16, channels = 6, filters = 10, kernel = { 4, 4 }, stride = stride, padding = 1 }
    end
    check { 9, 17, channels = 16, filters = 24, kernel = { 1, 1 }, stride = 2 }
  end)

  it("for dilated kernels and for padding larger than them", function()
    check { 15, 18, channels = 5, filters = 6, kernel = { 3, 3 }, dilation = 2, padding = 2 }
    check { 15, 18, channels = 5, filters = 6, kernel = { 3, 2 }, dilation = { 3, 2 },
            stride = { 2, 3 }, padding = { 4, 1 } }
    check { 6, 5, channels = 8, filters = 9, kernel = { 2, 2 }, padding = 4 }
    check { 3, 3, channels = 8, filters = 9, kernel = { 5, 5 }, padding = 3 }
  end)

  it("for groups, and for depthwise filters", function()
    check { 10, 19, channels = 12, filters = 18, kernel = { 3, 3 }, groups = 3, padding = 1 }
    for _, width in ipairs { 1, 7, 16, 17, 33, 40 } do
      for stride = 1, 3 do
        check { 9, width, channels = 6, filters = 6, groups = 6, kernel = { 3, 3 }, padding = 1,
                stride = stride }
        check { 9, width, channels = 4, filters = 8, groups = 4, kernel = { 5, 1 }, padding = 2,
                stride = { 1, stride }, dilation = { 2, 1 } }
      end
    end
  end)

  it("for 1x1 kernels, and kernels as large as the image", function()
    for _, side in ipairs { 1, 3, 7, 14, 16 } do
      check { side, side, n = 3, channels = 40, filters = 13, kernel = { 1, 1 } }
    end
    check { 4, 5, n = 7, channels = 6, filters = 10, kernel = { 4, 5 } }
    check { 4, 5, n = 7, channels = 6, filters = 10, kernel = { 4, 5 }, groups = 2 }
  end)

  it("for tiles of 4x4, at all ends of images and of groups of tiles", function()
    for width = 1, 40, 3 do
      check { 7, width, n = 13, channels = 19, filters = 23, kernel = { 3, 3 }, padding = 1 }
      check { 8, width + 2, n = 13, channels = 16, filters = 16, kernel = { 3, 3 } }
    end
    for border = 0, 5 do
      check { 11, 12, n = 3, channels = 17, filters = 37, kernel = { 3, 3 }, padding = border }
    end
    check { 4, 3, n = 2, channels = 16, filters = 16, kernel = { 3, 3 }, padding = { 3, 170 } }
    check { 14, 14, n = 5, channels = 64, filters = 96, kernel = { 3, 3 }, padding = 1,
            groups = 4 }
    check { 4, 4, n = 32, channels = 300, filters = 20, kernel = { 3, 3 }, padding = 1 }
  end)

  it("for small images together, with padding and without", function()
    for side = 4, 9 do
      for border = 0, 1 do
        for stride = 1, 2 do
          check { side, side + 1, n = 23, channels = 6, filters = 20, kernel = { 3, 4 },
                  padding = border, stride = stride, groups = 2 }
        end
      end
    end
    check { 5, 5, n = 17, channels = 200, filters = 70, kernel = { 3, 3 }, stride = 2 }
  end)

  it("for one large image, which threads divide", function()
    check { 64, 64, n = 1, channels = 16, filters = 16, kernel = { 3, 3 }, padding = 1 }
    check { 8, 8, n = 1, channels = 128, filters = 128, kernel = { 3, 3 }, padding = 1 }
    check { 1, 300, channels = 24, filters = 30, kernel = { 1, 5 }, padding = { 0, 2 } }
  end)
end)

describe("convolution in bf16", function()
  local shapes = {
    { 9, 9, n = 2, channels = 4, filters = 5, kernel = { 3, 3 }, padding = 1 },
    { 13, 11, n = 3, channels = 7, filters = 20, kernel = { 3, 3 }, padding = 1, stride = 2 },
    { 8, 8, n = 5, channels = 33, filters = 40, kernel = { 4, 4 }, padding = 1, stride = 2 },
    { 20, 21, n = 9, channels = 3, filters = 17, kernel = { 7, 7 }, padding = 3, stride = 2 },
    { 6, 6, n = 2, channels = 40, filters = 19, kernel = { 1, 1 } },
    { 4, 5, n = 7, channels = 6, filters = 18, kernel = { 3, 3 } },
    { 4, 4, n = 8, channels = 300, filters = 33, kernel = { 3, 3 }, padding = 1 },
    { 12, 30, n = 1, channels = 20, filters = 36, kernel = { 3, 2 }, groups = 2, dilation = 2 },
    { 11, 12, n = 4, channels = 2, filters = 50, kernel = { 5, 5 }, padding = 2 },
    { 16, 16, n = 4, channels = 64, filters = 96, kernel = { 4, 4 }, padding = 1, stride = 2 },
    { 8, 8, n = 4, channels = 64, filters = 128, kernel = { 1, 1 }, stride = 2 },
    { 8, 9, n = 4, channels = 32, filters = 256, kernel = { 1, 1 }, stride = 2 },
    { 8, 8, n = 4, channels = 128, filters = 256, kernel = { 1, 1 }, stride = 2, groups = 2 },
    { 2, 1, n = 16, channels = 40, filters = 36, kernel = { 3, 1 }, padding = { 1, 0 } },
    { 2, 2, n = 8, channels = 40, filters = 36, kernel = { 3, 1 }, padding = { 1, 0 } },
    { 2, 2, n = 16, channels = 40, filters = 36, kernel = { 3, 1 }, padding = { 1, 0 } },
    { 14, 1, n = 8, channels = 40, filters = 36, kernel = { 3, 3 }, padding = 1 },
    { 14, 1, n = 16, channels = 40, filters = 36, kernel = { 3, 3 }, padding = 1 },
  }

  before_each(function() moth.manual_seed(5) end)

  local function drawn(c)
    c.stride, c.padding, c.dilation = c.stride or 1, c.padding or 0, c.dilation or 1
    c.groups = c.groups or 1
    local x = moth.randn(c.n, c.channels, c[1], c[2]):bfloat16()
    local w = moth.randn(c.filters, c.channels / c.groups, c.kernel[1], c.kernel[2]):bfloat16()
    local b = moth.randn(c.filters):bfloat16()
    local y = conv2d(x, w, b, c.stride, c.padding, c.dilation, c.groups)
    return x, w, b, moth.randn(y:size()):bfloat16()
  end

  it("equals that in f32 of the same numbers, rounded, for any number of threads", function()
    local threads = moth.get_num_threads()
    for _, c in ipairs(shapes) do
      local x, w, b, dy = drawn(c)
      local wanted = { all(x:float(), w:float(), b:float(), dy:float(), c) }
      local results = {}
      for n = 1, 2 do
        moth.set_num_threads(n)
        results[n] = { all(x, w, b, dy, c) }
      end
      moth.set_num_threads(threads)
      for i = 1, 3 do
        assert.is_true(far(results[1][i], wanted[i]:double()) < 2 ^ -8)
        assert.is_true(moth.equal(results[1][i], results[2][i]))
      end
    end
  end)

  it("is not affected by numbers outside of its window", function()
    for _, c in ipairs(shapes) do
      local x, w, b, dy = drawn(c)
      local before = { all(x, w, b, dy, c) }
      local bad = moth.full(x:size(), 0 / 0):bfloat16()
      all(bad, moth.full_like(w, 0 / 0), b, moth.full_like(dy, 0 / 0), c)
      local after = { all(x, w, b, dy, c) }
      for i = 1, 3 do assert.is_true(moth.equal(before[i], after[i])) end
    end
  end)
end)
