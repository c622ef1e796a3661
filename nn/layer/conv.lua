--- conv.lua -- nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, 2d and 3d.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local init = require "moth.nn.initialization"
local parameter = require "moth.nn.module.parameter"
local window = require "moth.nn.layer.window"

local conv = {}

local WHERE = {
  {"device", "device", "the parameters' device", optional = true},
  {"dtype", "dtype", "their element type; default: the default dtype", optional = true},
}

local BIAS = {"bool", "bias", "add a bias to each channel?", default = true}
local GROUPS = {"int", "groups", "number of groups; each connects some input channels with some "
  .. "outputs",
  default = 1}

-- Returns the first argument rows, for n dimensions, which all these classes share.
local function channels(n)
  return {"int", "in_channels", "channels of the input"},
    {"int", "out_channels", "channels of the result: number of filters"},
    {"int" .. n, "kernel_size", "size of the filters"},
    {"int" .. n, "stride", "step between windows", default = 1}
end

local function dilation(n)
  return {"int" .. n, "dilation", "step between the elements of a window", default = 1}
end

local function conv_signature(name, n)
  local a, b, c, d = channels(n)
  return define.signature(name, {
    a, b, c, d,
    {"int" .. n .. "-or-enum", "padding", "border on each side, or 'valid' (none) or 'same' "
      .. "(keeps the size)", default = 0, choices = {"valid", "same"}},
    dilation(n), GROUPS, BIAS,
    {"enum", "padding_mode", "the values of the padding",
      choices = {"zeros", "reflect", "replicate", "circular"}},
    unpack(WHERE),
  })
end

-- ---- common initialization ----

local function check(self, name)
  local function bad(arg, text) errors.argument(name, arg, text, "E_SHAPE") end
  local groups = self.groups
  if groups < 1 then bad("groups", "a number from 1 on is needed, got " .. groups) end
  for _, arg in ipairs {"in_channels", "out_channels"} do
    if self[arg] < 1 then bad(arg, "a number from 1 on is needed, got " .. self[arg]) end
    if self[arg] % groups ~= 0 then
      bad(arg, ("%d is no multiple of groups, %d"):format(self[arg], groups))
    end
  end
  for i, arg in ipairs {"kernel_size", "stride", "dilation", "padding", "output_padding"} do
    local least = i <= 3 and 1 or 0
    for _, v in ipairs(type(self[arg]) == "table" and self[arg] or {}) do
      if v < least then
        bad(arg, ("numbers from %d on are needed, got %s"):format(least,
          errors.describe(self[arg])))
      end
    end
  end
  if self.padding == "same" and not window.all(self.stride, 1) then
    bad("padding", "'same' needs stride 1")
  end
end

-- Initializes the parameters; first and second are the weight's first two sizes.
local function begin(self, first, second, bias, device, dtype)
  local moth = require "moth"
  local size = {first, second, unpack(self.kernel_size)}
  self.weight = parameter.Parameter(moth.empty(size, dtype, device))
  if bias then
    self.bias = parameter.Parameter(moth.empty({self.out_channels}, dtype, device))
  end
  self:reset_parameters()
end

local function reset_parameters(self) init.reset(self.weight, self.bias) end

local function extra_repr(self)
  local parts = {
    ("%d, %d, kernel_size=%s, stride=%s"):format(self.in_channels, self.out_channels,
      window.text(self.kernel_size), window.text(self.stride)),
  }
  local function add(name, value) parts[#parts + 1] = name .. "=" .. value end
  if not window.all(self.padding, 0) then add("padding", window.text(self.padding)) end
  if not window.all(self.dilation, 1) then add("dilation", window.text(self.dilation)) end
  if self.output_padding and not window.all(self.output_padding, 0) then
    add("output_padding", window.text(self.output_padding))
  end
  if self.groups ~= 1 then add("groups", self.groups) end
  if self.bias == nil then add("bias", "false") end
  if self.padding_mode ~= "zeros" then add("padding_mode", self.padding_mode) end
  return table.concat(parts, ", ")
end

-- ---- Conv1d, Conv2d, Conv3d ----

-- The padding in F.pad's order: before and after, starting with the last dimension.
local function border(self, n)
  local sides = {}
  for d = n, 1, -1 do
    local before, after = 0, 0
    if self.padding == "same" then
      local all = self.dilation[d] * (self.kernel_size[d] - 1)
      before = math.floor(all / 2)
      after = all - before
    elseif self.padding ~= "valid" then
      before, after = self.padding[d], self.padding[d]
    end
    sides[#sides + 1] = before
    sides[#sides + 1] = after
  end
  return sides
end

local function make_conv(Conv, n)
  local name, op = "Conv" .. n .. "d", "conv" .. n .. "d"
  conv[name] = Conv
  Conv.signature = conv_signature(name, n)

  function Conv:init(in_channels, out_channels, kernel_size, stride, padding, dilation_, groups,
                     bias, padding_mode, device, dtype)
    self.in_channels, self.out_channels = in_channels, out_channels
    self.kernel_size, self.stride = window.list(kernel_size, n), window.list(stride, n)
    self.padding, self.dilation = window.list(padding, n), window.list(dilation_, n)
    self.groups, self.padding_mode = groups, padding_mode
    check(self, name)
    if padding_mode ~= "zeros" then self.border = border(self, n) end
    begin(self, out_channels, in_channels / groups, bias, device, dtype)
  end

  Conv.reset_parameters = reset_parameters
  Conv.extra_repr = extra_repr

  function Conv:forward(input)
    local padding = self.padding
    if self.border and input:dim() > n then -- for fewer dimensions the op raises
      input, padding = functional.pad(input, self.border, self.padding_mode), 0
    end
    return (functional[op](input, self.weight, self.bias, self.stride, padding, self.dilation,
      self.groups))
  end
  Module.passing[Conv.forward] = true
end

--- Convolution of sequences: (N, in_channels, L) or (in_channels, L) -> (N, out_channels, L'), L'
-- = (L + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1, rounded down. weight
-- (out_channels, in_channels / groups, K) and bias (out_channels) are initialized as in PyTorch.
local Conv1d = class("Conv1d", Module)
make_conv(Conv1d, 1)

--- Convolution of images: (N, in_channels, H, W) or (in_channels, H, W) -> (N, out_channels, H',
-- W'), H' = (H + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1, rounded down. weight
-- (out_channels, in_channels / groups, KH, KW) and bias (out_channels) are initialized as in
-- PyTorch.
local Conv2d = class("Conv2d", Module)
make_conv(Conv2d, 2)

--- Convolution of volumes: (N, in_channels, D, H, W) or (in_channels, D, H, W) -> (N,
-- out_channels, D', H', W'), D' = (D + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1,
-- rounded down. weight (out_channels, in_channels / groups, KD, KH, KW) and bias (out_channels)
-- are initialized as in PyTorch.
local Conv3d = class("Conv3d", Module)
make_conv(Conv3d, 3)

-- ---- ConvTranspose1d, ConvTranspose2d, ConvTranspose3d ----

local function transpose_signature(name, n)
  local a, b, c, d = channels(n)
  return define.signature(name, {
    a, b, c, d,
    {"int" .. n, "padding", "elements removed from each side of the result", default = 0},
    {"int" .. n, "output_padding", "additional size of the result, less than the stride",
      default = 0},
    GROUPS, BIAS, dilation(n),
    {"enum", "padding_mode", "only zeros", choices = {"zeros"}},
    unpack(WHERE),
  })
end

-- Returns the output_padding for a requested output size.
local function reaching(self, name, n, input, output_size)
  local function bad(text) errors.argument(name, "output_size", text, "E_SHAPE") end
  local sizes = window.list(output_size, n)
  if type(sizes) ~= "table" or #sizes ~= n then
    bad(("%d sizes are needed, got %s"):format(n, errors.describe(output_size)))
  end
  local more = {}
  for d = 1, n do
    local least = (input:size(d - n - 1) - 1) * self.stride[d] - 2 * self.padding[d]
      + self.dilation[d] * (self.kernel_size[d] - 1) + 1
    more[d] = sizes[d] - least
    if more[d] < 0 or more[d] >= self.stride[d] then
      bad(("%d to %d are possible for %s, got %s"):format(least, least + self.stride[d] - 1,
        errors.describe(input), window.text(sizes)))
    end
  end
  return more
end

local function make_transpose(Transpose, n)
  local name, op = "ConvTranspose" .. n .. "d", "conv_transpose" .. n .. "d"
  conv[name] = Transpose
  Transpose.signature = transpose_signature(name, n)

  function Transpose:init(in_channels, out_channels, kernel_size, stride, padding, output_padding,
                          groups, bias, dilation_, padding_mode, device, dtype)
    self.in_channels, self.out_channels = in_channels, out_channels
    self.kernel_size, self.stride = window.list(kernel_size, n), window.list(stride, n)
    self.padding, self.dilation = window.list(padding, n), window.list(dilation_, n)
    self.output_padding = window.list(output_padding, n)
    self.groups, self.padding_mode = groups, padding_mode
    check(self, name)
    begin(self, in_channels, out_channels / groups, bias, device, dtype)
  end

  Transpose.reset_parameters = reset_parameters
  Transpose.extra_repr = extra_repr

  function Transpose:forward(input, output_size)
    local more = self.output_padding
    if output_size ~= nil and input:dim() > n then
      more = reaching(self, name, n, input, output_size)
    end
    return (functional[op](input, self.weight, self.bias, self.stride, self.padding, more,
      self.groups, self.dilation))
  end
  Module.passing[Transpose.forward] = true

  named.takes(Transpose.forward, {
    {"tensor", "input", ("(N, in_channels%s) or without N"):format(n == 1 and ", L" or ", ...")},
    {"int" .. n, "output_size", "sizes of the result, if the stride allows several",
      optional = true},
  })
end

--- The transpose of Conv1d, which upsamples sequences: (N, in_channels, L) -> (N, out_channels,
-- L'), L' = (L - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1. weight
-- (in_channels, out_channels / groups, K) and bias (out_channels) are initialized as in PyTorch.
-- The call also accepts output_size, which determines output_padding.
local ConvTranspose1d = class("ConvTranspose1d", Module)
make_transpose(ConvTranspose1d, 1)

--- The transpose of Conv2d, which upsamples images: (N, in_channels, H, W) -> (N, out_channels,
-- H', W'), H' = (H - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1.
-- weight (in_channels, out_channels / groups, KH, KW) and bias (out_channels) are initialized as
-- in PyTorch. The call also accepts output_size, which determines output_padding.
local ConvTranspose2d = class("ConvTranspose2d", Module)
make_transpose(ConvTranspose2d, 2)

--- The transpose of Conv3d, which upsamples volumes: (N, in_channels, D, H, W) -> (N,
-- out_channels, D', H', W'), D' = (D - 1) stride - 2 padding + dilation (kernel_size - 1) +
-- output_padding + 1. weight (in_channels, out_channels / groups, KD, KH, KW) and bias
-- (out_channels) are initialized as in PyTorch. The call also accepts output_size, which
-- determines output_padding.
local ConvTranspose3d = class("ConvTranspose3d", Module)
make_transpose(ConvTranspose3d, 3)

return conv
