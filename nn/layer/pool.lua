--- pool.lua -- nn.MaxPool1d to 3d, AvgPool1d to 3d and the adaptive pooling layers.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local functional = require "moth.nn.functional"
local window = require "moth.nn.layer.window"

local pool = {}

local text = window.text

local function steps(n, border)
  return {"int" .. n, "kernel_size", "size of the window", bounds = {1}},
    {"int" .. n, "stride", "step between windows", same = "kernel_size", bounds = {1}},
    {"int" .. n, "padding", border .. " on each side, at most half the window", default = 0,
     bounds = {0}}
end

local CEIL = {"bool", "ceil_mode", "include windows that extend over the far edge?",
  default = false}
local INDICES = {"bool", "return_indices", "also return the position of each value?",
  default = false}

-- ---- max pooling ----

for n = 1, 3 do
  local name, op = "MaxPool" .. n .. "d", "max_pool" .. n .. "d"
  local Pool = class(name, Module)
  pool[name], Pool._doc = Pool, "The maximum of each window of " .. window.INPUT[n] .. "."
  local kernel_size, stride, padding = steps(n, "border of -inf")
  Pool.signature = define.signature(name, {
    kernel_size, stride, padding,
    {"int" .. n, "dilation", "step between the elements of a window", default = 1,
     bounds = {1}},
    INDICES, CEIL,
  })

  function Pool:init(kernel_size_, stride_, padding_, dilation, return_indices, ceil_mode)
    self.kernel_size, self.stride, self.padding = kernel_size_, stride_, padding_
    self.dilation, self.ceil_mode, self.return_indices = dilation, ceil_mode, return_indices
  end

  function Pool:forward(input)
    if self.return_indices then
      local y, indices = functional[op](input, self.kernel_size, self.stride, self.padding,
        self.dilation, self.ceil_mode, true)
      return y, indices
    end
    return (functional[op](input, self.kernel_size, self.stride, self.padding, self.dilation,
      self.ceil_mode))
  end
  Module.passing[Pool.forward] = true

  function Pool:extra_repr()
    return ("kernel_size=%s, stride=%s, padding=%s, dilation=%s, ceil_mode=%s"):format(
      text(self.kernel_size), text(self.stride), text(self.padding), text(self.dilation),
      tostring(self.ceil_mode))
  end
end

-- ---- average pooling ----

for n = 1, 3 do
  local name, op = "AvgPool" .. n .. "d", "avg_pool" .. n .. "d"
  local Pool = class(name, Module)
  pool[name], Pool._doc = Pool, "The mean of each window of " .. window.INPUT[n] .. "."
  local kernel_size, stride, padding = steps(n, "border of zeros")
  Pool.signature = define.signature(name, {
    kernel_size, stride, padding, CEIL,
    {"bool", "count_include_pad", "divide by the window's size, border included?",
      default = true},
    n > 1 and {"int", "divisor_override", "divide by this number instead", optional = true} or nil,
  })

  function Pool:init(kernel_size_, stride_, padding_, ceil_mode, count_include_pad, divisor)
    self.kernel_size, self.stride, self.padding = kernel_size_, stride_, padding_
    self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
    self.divisor_override = divisor
  end

  function Pool:forward(input)
    return (functional[op](input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
      self.count_include_pad, self.divisor_override))
  end
  Module.passing[Pool.forward] = true

  function Pool:extra_repr()
    return ("kernel_size=%s, stride=%s, padding=%s"):format(text(self.kernel_size),
      text(self.stride), text(self.padding))
  end
end

-- ---- adaptive pooling ----

local SIZES = {
  {"int1", "output_size", "length of the result", bounds = {0}},
  {"int2?", "output_size", "height and width of the result; moth.none keeps a size",
   bounds = {0}},
  {"int3?", "output_size", "depth, height and width of the result; moth.none keeps a size",
   bounds = {0}},
}

local function make_adaptive(kind, n, which)
  local name = "Adaptive" .. kind .. "Pool" .. n .. "d"
  local op = "adaptive_" .. kind:lower() .. "_pool" .. n .. "d"
  local max = kind == "Max"
  local Pool = class(name, Module)
  pool[name] = Pool
  Pool._doc = ("Pools %s to a given size: each element is %s of its window."):format(
    window.INPUT[n], which)
  Pool.signature = define.signature(name, {
    SIZES[n], max and INDICES or nil,
  })

  function Pool:init(output_size, return_indices)
    self.output_size, self.return_indices = output_size, return_indices
  end

  function Pool:forward(input)
    if self.return_indices then
      local y, indices = functional[op](input, self.output_size, true)
      return y, indices
    end
    return (functional[op](input, self.output_size))
  end
  Module.passing[Pool.forward] = true

  function Pool:extra_repr()
    return "output_size=" .. text(self.output_size)
  end
end

for n = 1, 3 do
  make_adaptive("Avg", n, "the mean")
  make_adaptive("Max", n, "the largest")
end

return pool
