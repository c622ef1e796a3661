--- masks.lua -- masks over times or frequencies of a spectrogram (SpecAugment: Park et al., 2019).

local define = require "moth.binding.define"
local errors = require "moth.error"

local masks = {}

local SPECGRAM = {"tensor", "specgram", "(..., freq, time)"}
local MORE = {
  {"int", "mask_param", "a mask is shorter than this", bounds = {0}},
  {"float", "mask_value", "the value in a mask"},
  {"dim", "axis", "the dimension that is masked: one of the last two"},
  {"float", "p", "the longest mask, as a share of the dimension", default = 1, bounds = {0, 1}},
  {"generator", "generator", "random generator", optional = true},
}

-- The checked axis and the bound of a mask's length.
local function read(fname, x, param, axis, p)
  local dim = x:dim()
  axis = errors.dim(fname, "axis", axis, dim)
  if dim < 2 or axis < dim - 1 then
    errors.argument(fname, "axis", ("one of the last two dimensions is needed, got %d of %s")
      :format(axis, errors.describe(x)), "E_INDEX")
  end
  return axis, p == 1 and param or math.min(param, math.floor(x:size(axis) * p))
end

-- Masks with one random start and length for each element of a shape.
local function masked(x, shape, axis, param, value, generator)
  local moth, size = require "moth", x:size(axis)
  local options = {generator = generator, device = x.device}
  local length = moth.rand(shape, options) * param
  local first = (moth.rand(shape, options) * (size - length)):floor()
  local last = first + length:floor()
  for _ = 1, 2 do first, last = first:unsqueeze(-1), last:unsqueeze(-1) end
  local at = moth.arange(size, {device = x.device, dtype = first.dtype})
  if axis == x:dim() - 1 then at = at:unsqueeze(2) end
  return (x:masked_fill(at:ge(first):logical_and(at:lt(last)), value))
end

masks.mask_along_axis = define {
  name = "mask_along_axis",
  doc = "Replaces a random range of times or frequencies, the same in all spectrograms.",
  examples = "moth.rand(2, 4, 9), 3, 0, 3\nmoth.rand(4, 9), 3, 0.5, 1, {p = 0.5}",
  args = {SPECGRAM, unpack(MORE)},
  scoped = true,
  run = function(x, param, value, axis, p, generator)
    axis, param = read("mask_along_axis", x, param, axis, p)
    if param < 1 then return x end
    return (masked(x, {}, axis, param, value, generator))
  end,
}

masks.mask_along_axis_iid = define {
  name = "mask_along_axis_iid",
  doc = "Replaces random ranges of times or frequencies, another in each spectrogram.",
  examples = "moth.rand(2, 3, 4, 9), 3, 0, 4\nmoth.rand(2, 4, 9), 3, 0.5, 2, {p = 0.5}",
  args = {{"tensor", "specgrams", "(..., freq, time)"}, unpack(MORE)},
  scoped = true,
  run = function(x, param, value, axis, p, generator)
    axis, param = read("mask_along_axis_iid", x, param, axis, p)
    if x:dim() < 3 then
      errors.refuse("mask_along_axis_iid", "specgrams", "(..., freq, time) with a dimension of "
        .. "spectrograms is needed", x, "E_SHAPE")
    end
    if param < 1 then return x end
    local shape = {unpack(x.shape)}
    shape[#shape], shape[#shape - 1] = nil, nil
    return (masked(x, shape, axis, param, value, generator))
  end,
}

return masks
