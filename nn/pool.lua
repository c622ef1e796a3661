--- pool.lua -- nn.MaxPool2d and nn.AvgPool2d.

local class = require "moth.class"
local define = require "moth.define"
local Module = require "moth.nn.module"
local functional = require "moth.nn.functional"

local pool = {}

-- A number, or "(3, 2)" for two different ones.
local function window_text(v)
  if type(v) == "table" then return ("(%d, %d)"):format(v[1], v[2]) end
  return tostring(v)
end

--- The largest value in each window: (N, C, H, W) or (C, H, W) -> the same with fewer rows.
local MaxPool2d = class("MaxPool2d", Module)
pool.MaxPool2d = MaxPool2d

MaxPool2d.signature = define.signature("MaxPool2d", {
  {"int2", "kernel_size", "window height and width"},
  {"int2", "stride", "step between windows", same = "kernel_size"},
  {"int2", "padding", "border of -inf on each side, at most half the window", default = 0},
  {"int2", "dilation", "step between the elements of a window", default = 1},
  {"bool", "ceil_mode", "count windows that hang over the far edge?", default = false},
})

function MaxPool2d:init(kernel_size, stride, padding, dilation, ceil_mode)
  self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
  self.dilation, self.ceil_mode = dilation, ceil_mode
end

function MaxPool2d:forward(input)
  return (functional.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation,
    self.ceil_mode))
end

function MaxPool2d:extra_repr()
  return ("kernel_size=%s, stride=%s, padding=%s, dilation=%s, ceil_mode=%s"):format(
    window_text(self.kernel_size), window_text(self.stride), window_text(self.padding),
    window_text(self.dilation), tostring(self.ceil_mode))
end

--- The mean of each window: (N, C, H, W) or (C, H, W) -> the same with fewer rows.
local AvgPool2d = class("AvgPool2d", Module)
pool.AvgPool2d = AvgPool2d

AvgPool2d.signature = define.signature("AvgPool2d", {
  {"int2", "kernel_size", "window height and width"},
  {"int2", "stride", "step between windows", same = "kernel_size"},
  {"int2", "padding", "border of zeros, at most half the window", default = 0},
  {"bool", "ceil_mode", "count windows that hang over the far edge?", default = false},
  {"bool", "count_include_pad", "divide by the window's size, border included?", default = true},
  {"int", "divisor_override", "divide by this instead", optional = true},
})

function AvgPool2d:init(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor)
  self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
  self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
  self.divisor_override = divisor
end

function AvgPool2d:forward(input)
  return (functional.avg_pool2d(input, self.kernel_size, self.stride, self.padding,
    self.ceil_mode, self.count_include_pad, self.divisor_override))
end

function AvgPool2d:extra_repr()
  return ("kernel_size=%s, stride=%s, padding=%s"):format(window_text(self.kernel_size),
    window_text(self.stride), window_text(self.padding))
end

return pool
