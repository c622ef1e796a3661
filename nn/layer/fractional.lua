--- fractional.lua -- nn.FractionalMaxPool2d and 3d: max pooling with pseudorandom windows, for any
-- output size (Graham, 2014); and their functions in moth.nn.functional.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local Module = require "moth.nn.module"
local window = require "moth.nn.layer.window"

local fractional = {}

local function moth() return require "moth" end

-- The start of each window: (N, C, n). Windows are (size - kernel) / (n - 1) elements apart,
-- rounded with a random offset for each plane; the last window ends at the end of the dimension.
local function starts(draw, size, kernel, n)
  local step = n > 1 and (size - kernel) / (n - 1) or 0
  local shift = draw:unsqueeze(-1)
  local at = (moth().arange(n, {dtype = draw.dtype, device = draw.device}) + shift) * step
  at = at:floor() - (shift * step):floor()
  if n > 0 then at:narrow(-1, n, 1):fill_(size - kernel) end
  return (at:to(moth().int64))
end

-- The flat indices, from 1, of the selected windows of a plane or a volume: (N, C, OH, OW) or (N,
-- C, OD, OH, OW).
local function windows(draws, shape, kernel, n)
  local all
  for i = 1, #n do
    local draw = draws:select(-1, #n == 2 and 3 - i or i) -- PyTorch's first value is for the width
    local at = starts(draw, shape[i], kernel[i], n[i])
    for _ = 2, i do at = at:unsqueeze(3) end
    if i == #n then at = at + 1 end
    all = all and all:unsqueeze(-1) * (shape[i] - kernel[i] + 1) + at or at
  end
  return all
end

-- Returns the position of each window's maximum. All windows are pooled, then some are selected:
-- max pooling is so fast that the unused windows cost less than gathering elements.
local function largest(x, draws, kernel, n)
  local pool = #n == 2 and moth().max_pool2d or moth().max_pool3d
  local _, dense = pool(x, kernel, {stride = 1, return_indices = true})
  local at = windows(draws, {unpack(x.shape, 3)}, kernel, n)
  return (dense:flatten(3, -1):gather(-1, at:flatten(3, -1)):view(at.shape))
end

-- Returns the output ratio of dimension i.
local function share_of(fname, ratio, i)
  local share = type(ratio) == "table" and ratio[i] or ratio
  if type(share) ~= "number" or not (share > 0 and share < 1) then
    errors.refuse(fname, "output_ratio", "output_size, or a number between 0 and 1, is needed",
      ratio, "E_DOMAIN")
  end
  return share
end

local function output_size_of(fname, input, kernel, given, ratio)
  local size = {}
  for i = 1, #kernel do
    local whole = input:size(i - 1 - #kernel)
    if given ~= nil then
      size[i] = type(given) == "table" and given[i] or given
    else
      size[i] = math.floor(whole * share_of(fname, ratio, i))
    end
    if kernel[i] < 1 or size[i] < 1 or size[i] + kernel[i] - 1 > whole then
      errors.argument(fname, "kernel_size", ("%d windows of %d do not fit a side of %d"):format(
        size[i], kernel[i], whole), "E_SHAPE")
    end
  end
  return size
end

-- Defines the function and the layer for d dimensions.
local function make(d, what, sizes, examples)
  local fname, name = ("fractional_max_pool%dd"):format(d), ("FractionalMaxPool%dd"):format(d)
  local shapes = ("(N, C, %s) or (C, %s)"):format(sizes, sizes)
  local rows = {
    {"int" .. d, "kernel_size", "size of the windows", bounds = {1}},
    {"int" .. d, "output_size", "size of the result, instead of", optional = true,
      bounds = {1}},
    {"any", "output_ratio", "the result's size divided by the input's: a number, or a list",
      optional = true},
    {"bool", "return_indices", "also return the flat position of each in its plane?",
      default = false},
  }

  local function run(input, kernel, output_size, ratio, return_indices, draws)
    local dims = input:dim()
    if dims ~= d + 1 and dims ~= d + 2 then
      errors.refuse(fname, "input", shapes .. " is needed", input, "E_SHAPE")
    end
    kernel = window.list(kernel, d)
    local n = output_size_of(fname, input, kernel, output_size, ratio)
    local x = dims == d + 1 and input:unsqueeze(1) or input
    local real = x.dtype == moth().float64 and moth().float64 or moth().float32
    local shape = {x:size(1), x:size(2), d}
    draws = draws or moth().rand(shape, {dtype = real, device = x.device})
    if draws.shape ~= moth().Size(shape) then
      errors.argument(fname, "_random_samples", ("(%d, %d, %d) is needed, got %s"):format(shape[1],
        shape[2], d, errors.describe(draws)), "E_SHAPE")
    end
    local best = moth().no_grad(largest, x, draws:to(real), kernel, n)
    local y = x:flatten(3, -1):gather(-1, best:flatten(3, -1)):view(best.shape)
    if dims == d + 1 then y, best = y:squeeze(1), best:squeeze(1) end
    if return_indices then return y, best end
    return y
  end

  fractional[fname] = define {
    name = fname,
    doc = "The maximum of each of output_size windows at random positions, drawn for each plane.",
    examples = examples,
    args = {
      {"tensor", "input", what .. ", " .. shapes}, rows[1], rows[2], rows[3], rows[4],
      {"tensor", "_random_samples", ("(N, C, %d) numbers from 0 to 1, used instead of random ones")
        :format(d), optional = true},
    },
    outputs = "y, indices", scoped = true, run = run,
  }

  local Layer = class(name, Module)
  fractional[name] = Layer
  Layer.signature = define.signature(name, rows)
  Layer._doc = ("F.%s as a layer: %s\n-> the same with output_size, or with output_ratio of the "
    .. "input's sides."):format(fname, shapes)

  function Layer:init(kernel_size, output_size, output_ratio, return_indices)
    if (output_size == nil) == (output_ratio == nil) then
      errors.argument(name, "output_size", "either this or output_ratio is needed")
    end
    for i = 1, output_ratio ~= nil and d or 0 do share_of(name, output_ratio, i) end
    self.kernel_size = window.list(kernel_size, d)
    self.output_size = output_size ~= nil and window.list(output_size, d) or nil
    self.output_ratio, self.return_indices = output_ratio, return_indices
  end

  function Layer:forward(input)
    local y, indices = functional[fname](input, self.kernel_size, self.output_size,
      self.output_ratio, self.return_indices)
    if self.return_indices then return y, indices end
    return y
  end

  function Layer:extra_repr()
    return ("kernel_size=%s, output_size=%s"):format(window.text(self.kernel_size),
      self.output_size and window.text(self.output_size) or "none")
  end
end

make(2, "images", "H, W", "moth.randn(2, 3, 8, 8), 2, 5\n"
  .. "moth.randn(3, 9, 8), {kernel_size = {3, 2}, output_ratio = {0.5, 0.6}, return_indices = true,"
  .. " _random_samples = moth.rand(1, 3, 2)}\n"
  .. "moth.randn(3, 9, 8), {kernel_size = 2, output_size = {3, 4}, "
  .. "_random_samples = moth.rand(1, 3, 2)}")

make(3, "volumes", "D, H, W", "moth.randn(1, 2, 5, 6, 5), 2, 3\n"
  .. "moth.randn(2, 5, 6, 7), {kernel_size = {2, 3, 2}, output_ratio = {0.5, 0.4, 0.6}, "
  .. "return_indices = true, _random_samples = moth.rand(1, 2, 3)}\n"
  .. "moth.randn(2, 5, 6, 7), {kernel_size = 2, output_size = {3, 4, 2}, "
  .. "_random_samples = moth.rand(1, 2, 3)}")

return fractional
