--- channels.lua -- nn.LocalResponseNorm and nn.ChannelShuffle, and their functions in
-- moth.nn.functional.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local lib = require "moth.binding.lib"
local layer = require "moth.nn.layer"

local channels = {}

local function check(name, input)
  if input:dim() >= 3 then return end
  errors.refuse(name, "input", "(N, C, ...) of three dimensions or more is needed", input,
    "E_SHAPE")
end

-- ---- local_response_norm ----

local RESPONSE = {
  {"int", "size", "the number of channels in the window", bounds = {1}},
  {"float", "alpha", "factor of the mean square", default = 1e-4},
  {"float", "beta", "the exponent", default = 0.75},
  {"float", "k", "added to the mean square", default = 1},
}

--- input / (k + alpha mean)^beta, with the mean square of the neighbouring channels (Krizhevsky et
-- al., 2012).
channels.local_response_norm = define {
  name = "local_response_norm",
  doc = "Each channel normalized by its neighbours' mean square: input / (k + alpha * mean of "
    .. "squares) ^ beta.",
  examples = "moth.randn(2, 5, 3), 3\n"
    .. "moth.randn(1, 4, 2, 2), {size = 2, alpha = 0.5, beta = 0.5, k = 2}",
  args = {{"tensor", "input", "(N, C, ...)"}, unpack(RESPONSE)},
  scoped = true,
  run = function(input, size, alpha, beta, k)
    check("local_response_norm", input)
    if input:numel() == 0 then return input:clone() end
    local function divided(x)
      local squares = x:square():flatten(3):unsqueeze(2) -- (N, 1, C, ...)
      local before = math.floor(size / 2)
      local wide = functional.pad(squares, {0, 0, before, size - 1 - before})
      local mean = functional.avg_pool2d(wide, {size, 1}, 1):view(x.shape)
      return x / (mean * alpha + k):pow(beta), mean
    end
    local y, mean = divided(input)
    -- Did squares overflow? A captured step cannot check values, and on a GPU the check would
    -- synchronize.
    if input:element_size() < 8 and not lib.capture and not input.is_cuda
      and mean:detach():max():item() == math.huge then
      y = divided(input:double()):to(input.dtype)
    end
    return y
  end,
}

--- Normalizes each channel by its neighbours' mean square: (N, C, ...) -> the same shape.
local LocalResponseNorm = class("LocalResponseNorm", Module)
channels.LocalResponseNorm = LocalResponseNorm
LocalResponseNorm.signature = define.signature("LocalResponseNorm", RESPONSE)

function LocalResponseNorm:init(size, alpha, beta, k)
  self.size, self.alpha, self.beta, self.k = size, alpha, beta, k
end

function LocalResponseNorm:forward(input)
  return (functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k))
end

function LocalResponseNorm:extra_repr()
  return ("%d, alpha=%g, beta=%g, k=%g"):format(self.size, self.alpha, self.beta, self.k)
end

-- ---- channel_shuffle ----

--- Interleaves the channels of g groups: the first channel of each group, then the second of each,
-- and so on (Zhang et al., 2018).
channels.channel_shuffle = define {
  name = "channel_shuffle",
  doc = "Permutes channels: the first channel of each group, then the second of each group.",
  examples = "moth.randn(2, 4, 3), 2\nmoth.randn(1, 6, 2, 2), {groups = 3}",
  args = {
    {"tensor", "input", "(N, C, ...)"},
    {"int", "groups", "the number of groups"},
  },
  scoped = true,
  run = function(input, groups)
    check("channel_shuffle", input)
    local count = input:size(2)
    if groups < 1 or count % groups ~= 0 then
      errors.argument("channel_shuffle", "groups",
        ("%d channels cannot be divided into %d groups"):format(
        count, groups), "E_SHAPE")
    end
    local split = input:unflatten(2, {groups, count / groups})
    return (split:transpose(2, 3):reshape(input.shape))
  end,
}

return (layer.of(channels, {ChannelShuffle = "channel_shuffle"}))
