--- conv.lua -- nn.Conv2d.

local class = require "moth.class"
local define = require "moth.define"
local Module = require "moth.nn.module"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local init = require "moth.nn.weights"
local parameter = require "moth.nn.parameter"

local conv = {}

local function pair(v)
  if type(v) == "number" then return {v, v} end
  return type(v) == "table" and {v[1], v[2]} or v
end

local function pair_text(v)
  return type(v) == "string" and v or ("(%d, %d)"):format(v[1], v[2])
end

--- Slides filters over images: (N, in_channels, H, W) or (in_channels, H, W) -> (N, out_channels,
-- H', W'), H' = (H + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1, rounded down.
-- weight (out_channels, in_channels / groups, KH, KW) and bias (out_channels) begin as PyTorch's.
local Conv2d = class("Conv2d", Module)
conv.Conv2d = Conv2d

Conv2d.signature = define.signature("Conv2d", {
  {"int", "in_channels", "channels of the images"},
  {"int", "out_channels", "channels of the result: number of filters"},
  {"int2", "kernel_size", "filter height and width"},
  {"int2", "stride", "step between windows", default = 1},
  {"int2-or-enum", "padding", "border on each side, or 'valid' (none) or 'same' (keeps the size)",
    default = 0, choices = {"valid", "same"}},
  {"int2", "dilation", "step between the elements of a window", default = 1},
  {"int", "groups", "each group of filters sees its own group of channels", default = 1},
  {"bool", "bias", "is something added to each channel?", default = true},
  {"enum", "padding_mode", "what the border is filled with",
    choices = {"zeros", "reflect", "replicate", "circular"}},
  {"device", "device", "where the parameters live", optional = true},
  {"dtype", "dtype", "their element type; the default one when absent", optional = true},
})

local function check(self)
  local function bad(name, text) errors.argument("Conv2d", name, text, "E_SHAPE") end
  local groups = self.groups
  if groups < 1 then bad("groups", "expected a number from 1 on, got " .. groups) end
  for _, name in ipairs {"in_channels", "out_channels"} do
    if self[name] < 1 then bad(name, "expected a number from 1 on, got " .. self[name]) end
    if self[name] % groups ~= 0 then
      bad(name, ("%d is no multiple of groups, %d"):format(self[name], groups))
    end
  end
  for _, name in ipairs {"kernel_size", "stride", "dilation"} do
    if self[name][1] < 1 or self[name][2] < 1 then
      bad(name, "expected numbers from 1 on, got " .. errors.describe(self[name]))
    end
  end
  local padding = self.padding
  if padding == "same" and (self.stride[1] ~= 1 or self.stride[2] ~= 1) then
    bad("padding", "'same' wants stride 1")
  elseif type(padding) == "table" and (padding[1] < 0 or padding[2] < 0) then
    bad("padding", "expected numbers from 0 on, got " .. errors.describe(padding))
  end
end

-- The border before and after along H and W: {top, bottom, left, right}.
local function border(self)
  local padding = self.padding
  if padding == "valid" then return {0, 0, 0, 0} end
  if padding ~= "same" then return {padding[1], padding[1], padding[2], padding[2]} end
  local sides = {}
  for d = 1, 2 do
    local all = self.dilation[d] * (self.kernel_size[d] - 1)
    sides[2 * d - 1] = math.floor(all / 2)
    sides[2 * d] = all - sides[2 * d - 1]
  end
  return sides
end

function Conv2d:init(in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
                     bias, padding_mode, device, dtype)
  local moth = require "moth"
  self.in_channels, self.out_channels = in_channels, out_channels
  self.kernel_size, self.stride = pair(kernel_size), pair(stride)
  self.padding, self.dilation = pair(padding), pair(dilation)
  self.groups, self.padding_mode = groups, padding_mode
  check(self)
  self.border = border(self)
  local window = self.kernel_size
  local size = {out_channels, in_channels / groups, window[1], window[2]}
  self.weight = parameter.Parameter(moth.empty(size, dtype, device))
  if bias then self.bias = parameter.Parameter(moth.empty({out_channels}, dtype, device)) end
  self:reset_parameters()
end

--- Draws weight and bias anew.
function Conv2d:reset_parameters()
  init.reset(self.weight, self.bias)
end

-- Which row stands where in an image of n rows with a border, by padding_mode.
local function sources(mode, n, before, after)
  local list = {}
  for at = 1 - before, n + after do
    local from = at
    if mode == "replicate" then
      from = math.min(math.max(at, 1), n)
    elseif mode == "circular" then
      from = (at - 1) % n + 1
    elseif at < 1 then
      from = 2 - at
    elseif at > n then
      from = 2 * n - at
    end
    list[#list + 1] = from
  end
  return list
end

-- The image with its border filled from itself.
local function fill_border(self, input)
  for d = 1, 2 do
    local dim, before, after = d - 3, self.border[2 * d - 1], self.border[2 * d]
    local n = input:size(dim)
    local most = self.padding_mode == "reflect" and n - 1
      or self.padding_mode == "circular" and n or math.huge
    if math.max(before, after) > most or n == 0 then
      errors.argument("Conv2d", "padding", ("%d in mode '%s' does not fit %s"):format(
        math.max(before, after), self.padding_mode, errors.describe(input)), "E_SHAPE")
    end
    if before + after > 0 then
      input = input:index_select(dim, sources(self.padding_mode, n, before, after))
    end
  end
  return input
end

function Conv2d:forward(input)
  local conv2d, sides = functional.conv2d, self.border
  if self.padding_mode ~= "zeros" then
    if input:dim() < 3 then return (conv2d(input, self.weight, self.bias)) end -- it will say why
    input = fill_border(self, input)
    return (conv2d(input, self.weight, self.bias, self.stride, 0, self.dilation, self.groups))
  end
  -- An uneven border ('same' with an even filter) is made even; the first row goes again.
  local y = conv2d(input, self.weight, self.bias, self.stride, {sides[2], sides[4]},
    self.dilation, self.groups)
  for d = 1, 2 do
    if sides[2 * d] > sides[2 * d - 1] then y = y:narrow(d - 3, 2, y:size(d - 3) - 1) end
  end
  return y
end

function Conv2d:extra_repr()
  local parts = {
    ("%d, %d, kernel_size=%s, stride=%s"):format(self.in_channels, self.out_channels,
      pair_text(self.kernel_size), pair_text(self.stride)),
  }
  local padding = pair_text(self.padding)
  if padding ~= "(0, 0)" then parts[#parts + 1] = "padding=" .. padding end
  local dilation = pair_text(self.dilation)
  if dilation ~= "(1, 1)" then parts[#parts + 1] = "dilation=" .. dilation end
  if self.groups ~= 1 then parts[#parts + 1] = "groups=" .. self.groups end
  if self.bias == nil then parts[#parts + 1] = "bias=false" end
  if self.padding_mode ~= "zeros" then
    parts[#parts + 1] = "padding_mode=" .. self.padding_mode
  end
  return table.concat(parts, ", ")
end

return conv
