--- fractional.lua -- nn.FractionalMaxPool2d: max pooling by windows that lie at random, so that any
-- size can be reached (Graham, 2014); and fractional_max_pool2d, found in moth.nn.functional.

local class = require "moth.class"
local define = require "moth.define"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local Module = require "moth.nn.module"
local window = require "moth.nn.window"

local fractional = {}

local ROWS = {
  {"int2", "kernel_size", "size of the windows"},
  {"int2", "output_size", "size of the result; or else", optional = true},
  {"any", "output_ratio", "the share of each side that is left: a number or two", optional = true},
  {"bool", "return_indices", "also give the flat position of each in its plane?", default = false},
}

local function moth() return require "moth" end

-- Where the windows begin: (N, C, n). They lie (size - kernel) / (n - 1) apart, rounded by a number
-- drawn for each plane; the last one ends with the side.
local function starts(draw, size, kernel, n)
  local step = n > 1 and (size - kernel) / (n - 1) or 0
  local shift = draw:unsqueeze(-1)
  local at = (moth().arange(n, {dtype = draw.dtype, device = draw.device}) + shift) * step
  at = at:floor() - (shift * step):floor()
  if n > 0 then at:narrow(-1, n, 1):fill_(size - kernel) end
  return (at:to(moth().int64))
end

-- The flat positions, from 0, of all elements of all windows: (N, C, OH, OW, KH KW).
local function places(draws, shape, kernel, n)
  local options = {dtype = moth().int64, device = draws.device}
  local y = starts(draws:select(-1, 2), shape[1], kernel[1], n[1]):unsqueeze(-1)
    + moth().arange(kernel[1], options)
  local x = starts(draws:select(-1, 1), shape[2], kernel[2], n[2]):unsqueeze(-1)
    + moth().arange(kernel[2], options)
  local all = y:unsqueeze(-1):unsqueeze(-3) * shape[2] + x:unsqueeze(-2):unsqueeze(-4)
  return (all:flatten(-2, -1))
end

local function output_size_of(input, kernel, given, ratio)
  local size = {}
  for i = 1, 2 do
    local whole = input:size(i - 3)
    if given ~= nil then
      size[i] = type(given) == "table" and given[i] or given
    else
      local share = type(ratio) == "table" and ratio[i] or ratio
      if type(share) ~= "number" or not (share > 0 and share < 1) then
        errors.refuse("fractional_max_pool2d", "output_ratio", "output_size, or a number between 0 "
          .. "and 1, is needed", ratio, "E_DOMAIN")
      end
      size[i] = math.floor(whole * share)
    end
    if kernel[i] < 1 or size[i] < 1 or size[i] + kernel[i] - 1 > whole then
      errors.argument("fractional_max_pool2d", "kernel_size", ("%d windows of %d do not fit a side "
        .. "of %d"):format(size[i], kernel[i], whole), "E_SHAPE")
    end
  end
  return size
end

local EXAMPLES = "moth.randn(2, 3, 8, 8), 2, 5\n"
  .. "moth.randn(3, 9, 8), {kernel_size = {3, 2}, output_ratio = {0.5, 0.6}, return_indices = true,"
  .. " _random_samples = moth.rand(1, 3, 2)}\n"
  .. "moth.randn(3, 9, 8), {kernel_size = 2, output_size = {3, 4}, "
  .. "_random_samples = moth.rand(1, 3, 2)}"

fractional.fractional_max_pool2d = define {
  name = "fractional_max_pool2d",
  doc = "The largest value in each of output_size windows that lie at random, anew for each plane.",
  examples = EXAMPLES,
  args = {
    {"tensor", "input", "images, (N, C, H, W) or (C, H, W)"}, ROWS[1], ROWS[2], ROWS[3], ROWS[4],
    {"tensor", "_random_samples", "(N, C, 2) numbers from 0 to 1 in place of drawn ones",
      optional = true},
  },
  outputs = "y, indices",
  run = function(input, kernel, output_size, ratio, return_indices, draws)
    local dims = input:dim()
    if dims ~= 3 and dims ~= 4 then
      errors.refuse("fractional_max_pool2d", "input", "(N, C, H, W) or (C, H, W) is needed", input,
        "E_SHAPE")
    end
    kernel = window.list(kernel, 2)
    local n = output_size_of(input, kernel, output_size, ratio)
    local x = dims == 3 and input:unsqueeze(1) or input
    local real = x.dtype == moth().float64 and moth().float64 or moth().float32
    local shape = {x:size(1), x:size(2), 2}
    draws = draws or moth().rand(shape, {dtype = real, device = x.device})
    if draws:dim() ~= 3 or draws:size(1) ~= shape[1] or draws:size(2) ~= shape[2]
       or draws:size(3) ~= 2 then
      errors.argument("fractional_max_pool2d", "_random_samples", ("(%d, %d, 2) is needed, got %s")
        :format(shape[1], shape[2], errors.describe(draws)), "E_SHAPE")
    end
    local at = moth().no_grad(places, draws:to(real), {x:size(3), x:size(4)}, kernel, n)
    local values = x:flatten(-2, -1):gather(-1, at:flatten(3, -1) + 1):view(at.shape)
    local y, best = values:max(-1)
    if dims == 3 then y = y:squeeze(1) end
    if not return_indices then return y end
    local indices = at:gather(-1, best:unsqueeze(-1)):squeeze(-1) + 1
    return y, dims == 3 and indices:squeeze(1) or indices
  end,
}

--- F.fractional_max_pool2d as a layer: (N, C, H, W) or (C, H, W) -> the same with output_size, or
-- with output_ratio of the input's sides.
local FractionalMaxPool2d = class("FractionalMaxPool2d", Module)
fractional.FractionalMaxPool2d = FractionalMaxPool2d
FractionalMaxPool2d.signature = define.signature("FractionalMaxPool2d", ROWS)

function FractionalMaxPool2d:init(kernel_size, output_size, output_ratio, return_indices)
  if (output_size == nil) == (output_ratio == nil) then
    errors.argument("FractionalMaxPool2d", "output_size", "this or output_ratio is needed, one of "
      .. "the two")
  end
  self.kernel_size = window.list(kernel_size, 2)
  self.output_size = output_size ~= nil and window.list(output_size, 2) or nil
  self.output_ratio, self.return_indices = output_ratio, return_indices
end

function FractionalMaxPool2d:forward(input)
  local y, indices = functional.fractional_max_pool2d(input, self.kernel_size, self.output_size,
    self.output_ratio, self.return_indices)
  if self.return_indices then return y, indices end
  return y
end

function FractionalMaxPool2d:extra_repr()
  return ("kernel_size=%s, output_size=%s"):format(window.text(self.kernel_size),
    self.output_size and window.text(self.output_size) or "none")
end

return fractional
