--- deform.lua -- moth.ops.deform_conv2d: a convolution with learned offsets of its sampling
-- points. (Dai et al. 2017; with a mask: Zhu et al. 2018.)

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local sample = require "moth.ops.sample"

local ops = bind.ops

local FNAME = "deform_conv2d"

local function wrong(name, format, ...)
  errors.argument(FNAME, name, format:format(...), "E_SHAPE")
end

-- Checks the shapes. Returns the numbers of offset groups and weight groups, and the result's
-- size.
local function measure(input, offset, weight, bias, stride, padding, dilation, mask)
  if input:dim() ~= 4 then wrong("input", "(N, C, H, W) is needed, got "
    .. "%s", errors.describe(input)) end
  if weight:dim() ~= 4 then
    wrong("weight", "(out, C / groups, kH, kW) is needed, got %s", errors.describe(weight))
  end
  local kh, kw = weight:size(3), weight:size(4)
  local height = math.floor((input:size(3) + 2 * padding[1] - dilation[1] * (kh - 1) - 1)
    / stride[1]) + 1
  local width = math.floor((input:size(4) + 2 * padding[2] - dilation[2] * (kw - 1) - 1)
    / stride[2]) + 1
  if height < 1 or width < 1 then
    wrong("weight", "{%d, %d} does not fit %s", kh, kw, errors.describe(input))
  end
  local moves = offset:dim() == 4 and offset:size(2) / (2 * kh * kw) or 0
  if moves < 1 or moves % 1 ~= 0 or input:size(2) % moves ~= 0 or offset:size(1) ~= input:size(1)
    or offset:size(3) ~= height or offset:size(4) ~= width then
    wrong("offset", "(%d, groups * %d, %d, %d) is needed, got "
      .. "%s", input:size(1), 2 * kh * kw, height,
      width, errors.describe(offset))
  end
  local groups = input:size(2) / weight:size(2)
  if groups % 1 ~= 0 or weight:size(1) % groups ~= 0 then
    wrong("weight", "%s does not fit the channels of %s", errors.describe(weight),
      errors.describe(input))
  end
  if mask and (mask:dim() ~= 4 or mask:size(1) ~= input:size(1)
    or mask:size(2) ~= moves * kh * kw or mask:size(3) ~= height or mask:size(4) ~= width) then
    wrong("mask", "(%d, %d, %d, %d) is needed, got "
      .. "%s", input:size(1), moves * kh * kw, height, width,
      errors.describe(mask))
  end
  if bias and (bias:dim() ~= 1 or bias:size(1) ~= weight:size(1)) then
    wrong("bias", "(%d) is needed, got %s", weight:size(1), errors.describe(bias))
  end
  return moves, groups, height, width
end

-- Coordinates of the points without their offsets: (1, 1, k, out or 1, 1 or out).
local function grid(like, kernel, out, stride, padding, dilation, other)
  local k = sample.steps(kernel, like, 0, 0) * dilation
  local o = sample.steps(out, like, 0, 0) * stride - padding
  if other then -- along the width
    return k:view(1, 1, 1, -1, 1, 1) + o:view(1, 1, 1, 1, 1, -1)
  end
  return k:view(1, 1, -1, 1, 1, 1) + o:view(1, 1, 1, 1, -1, 1)
end

return {
  --- moth.ops.deform_conv2d(input, offset, weight): (N, out, height, width).
  deform_conv2d = define {
    name = FNAME,
    doc = "A convolution with sampling points shifted by offsets, with bilinear values between "
      .. "elements and "
      .. "0 outside; with a mask, each point's value is multiplied by it.",
    examples = "moth.rand(1, 2, 4, 4), moth.rand(1, 8, 3, 3), moth.rand(3, 2, 2, 2)\n"
      .. "moth.rand(1, 4, 5, 5), moth.rand(1, 16, 3, 3), moth.rand(4, 2, 2, 2), {bias = "
      .. "moth.rand(4), "
      .. "stride = 2, padding = 1, dilation = 2, mask = moth.rand(1, 8, 3, 3)}",
    args = {
      {"tensor", "input", "images, (N, C, H, W)"},
      {"tensor", "offset", "(N, groups of offsets * kH * kW * 2, height, width): down and "
       .. "right, for "
       .. "each point of the kernel"},
      {"tensor", "weight", "(out, C / groups, kH, kW)"},
      {"tensor", "bias", "(out)", optional = true},
      {"int2", "stride", "step of the kernel", default = 1},
      {"int2", "padding", "border of zeros", default = 0},
      {"int2", "dilation", "step between points of the kernel",
       default = 1},
      {"tensor", "mask", "(N, groups of offsets * kH * kW, height, width)", optional = true},
    },
    scoped = true,
    run = function(input, offset, weight, bias, stride, padding, dilation, mask)
      stride, padding = sample.sizes(stride), sample.sizes(padding)
      dilation = sample.sizes(dilation)
      local moves, groups, height, width = measure(input, offset, weight, bias, stride, padding,
        dilation, mask)
      local n, channels, h, w = input:size(1), input:size(2), input:size(3), input:size(4)
      local out, kh, kw = weight:size(1), weight:size(3), weight:size(4)
      local cells = height * width
      local moved = offset:view(n, moves, kh, kw, 2, height, width)
      local y = moved:select(5, 1) + grid(offset, kh, height, stride[1], padding[1], dilation[1])
      local x = moved:select(5, 2)
        + grid(offset, kw, width, stride[2], padding[2], dilation[2], true)
      local long = require("moth").int64
      local base = (ops.arange(0, n * moves, 1, long, input.device) * (h * w))
        :view(n, moves, 1, 1, 1, 1)
      local values = sample.bilinear(sample.flat(input, moves), base, y, x, h, w, true)
      if mask then values = values * mask:view(n, moves, kh, kw, height, width):unsqueeze(-1) end
      -- (n, moves, kh, kw, height, width, c) -> (n, groups, channels of a group * kh * kw, cells)
      local columns = values:permute(1, 2, 7, 3, 4, 5, 6)
        :reshape(n, groups, channels / groups * kh * kw, cells)
      local result = weight:reshape(1, groups, out / groups, channels / groups * kh * kw)
        :matmul(columns):view(n, out, height, width)
      return bias and result + bias:view(1, -1, 1, 1) or result
    end,
  },
}
