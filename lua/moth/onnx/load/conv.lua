--- conv.lua -- convolution nodes of an ONNX graph, and related nodes.

local lib = require "moth.binding.lib"
local M = require "moth"
local rows = require "moth.onnx.load.rows"
local windows = require "moth.onnx.load.windows"

local F = M.nn.functional
local N, row, refuse = rows.N, rows.row, rows.refuse
local ranked, equal = windows.ranked, windows.equal

N.Conv = row("2 kernel_shape:ints" .. windows.ATTRIBUTES .. "group=1", function(a, x, weight, bias)
  local kernel = {unpack(weight.shape, 3)}
  local strides, dilations = windows.steps(a, #kernel)
  local input, pad = windows.sides(a, x, kernel, strides, dilations, 0)
  return ranked("conv", #kernel)(input, weight, bias, strides, pad, dilations, a.group)
end)

-- The padding that a transposed convolution removes at both ends of each dimension, from
-- output_shape or from the size that SAME requires.
local function cut(a, x, kernel, strides, dilations, more)
  local before, after = {}, {}
  for d = 1, #kernel do
    local wanted = a.output_shape and a.output_shape[#a.output_shape - #kernel + d]
      or a.auto_pad:find "SAME" and x:size(d + 2) * strides[d]
    if not wanted then return windows.padding(a, x, kernel, strides, dilations) end
    local total = strides[d] * (x:size(d + 2) - 1) + more[d] + (kernel[d] - 1) * dilations[d] + 1
      - wanted
    local less = math.floor(total / 2)
    before[d], after[d] = less, total - less
    if a.auto_pad ~= "SAME_UPPER" then before[d], after[d] = total - less, less end
  end
  return before, after
end

N.ConvTranspose = row("2 kernel_shape:ints" .. windows.ATTRIBUTES
  .. "group=1 output_padding:ints output_shape:ints",
  function(a, x, weight, bias)
    local kernel, more = {unpack(weight.shape, 3)}, {}
    local n = #kernel
    local strides, dilations = windows.steps(a, n)
    for d = 1, n do more[d] = a.output_padding and a.output_padding[d] or 0 end
    local before, after = cut(a, x, kernel, strides, dilations, more)
    local f, plain = ranked("conv_transpose", n), equal(before, after)
    for d = 1, n do
      plain = plain and before[d] >= 0 and (more[d] < strides[d] or more[d] < dilations[d])
    end
    if plain then return f(x, weight, bias, strides, before, more, a.group, dilations) end
    -- Crops the full result. Negative padding adds zeros there, so the bias is added last.
    local y = f(x, weight, nil, strides, lib.filled(n, 0), lib.filled(n, 0), a.group, dilations)
    for d = 1, n do before[d], after[d] = -before[d], more[d] - after[d] end
    y = windows.padded(y, before, after, 0)
    if not bias then return y end
    local shape = lib.filled(n + 1, 1)
    shape[1] = -1
    return y + bias:reshape(shape)
  end)

-- A causal depthwise convolution; the state is the end of the earlier input.
N.CausalConvWithState = row("2 activation=none", function(a, x, weight, bias, past)
  local before = weight:size(3) - 1
  if past then x = M.cat({past, x}, 3)
  else x = F.pad(x, {before, 0}) end
  local y = F.conv1d(x, weight, bias, 1, 0, 1, x:size(2))
  if a.activation == "silu" or a.activation == "swish" then y = F.silu(y)
  elseif a.activation ~= "none" then refuse("activation %s", rows.quoted(a.activation)) end
  return y, x:narrow(3, x:size(3) - before + 1, before)
end)

-- ---- columns ----

-- Adds columns of windows into a tensor of n dimensions (col2im).
N.Col2Im = row("3 dilations:ints pads:ints strides:ints", function(a, x, shape, kernel)
  local n = #shape
  local strides, dilations = windows.steps(a, n)
  local batch, taps = x:size(1), 1
  for d = 1, n do taps = taps * kernel[d] end
  local channels = x:size(2) / taps
  -- The row-major position in the padded result of each tap of each window.
  local at, padded, total = M.zeros(1, 1, {dtype = M.int64}), {}, 1
  for d = 1, n do
    local before, after = a.pads and a.pads[d] or 0, a.pads and a.pads[d + n] or 0
    padded[d] = shape[d] + before + after
    local count = math.floor((padded[d] - (kernel[d] - 1) * dilations[d] - 1) / strides[d]) + 1
    local taps_of = (M.arange(kernel[d]) * dilations[d]):reshape(1, -1, 1, 1)
    local windows_of = (M.arange(count) * strides[d]):reshape(1, 1, 1, -1)
    local known = at:reshape(at:size(1), 1, at:size(2), 1) * padded[d]
    at = (known + taps_of + windows_of):reshape(at:size(1) * kernel[d], at:size(2) * count)
    total = total * padded[d]
  end
  local index = at:reshape(1, 1, -1):to(x.device):expand(batch, channels, -1) + 1
  local y = M.zeros({batch, channels, total}, rows.as(x))
    :scatter_add(3, index, x:reshape(batch, channels, -1)):reshape({batch, channels,
      unpack(padded)})
  for d = 1, n do y = y:narrow(d + 2, (a.pads and a.pads[d] or 0) + 1, shape[d]) end
  return y
end, "2 3")

-- Bilinear samples of x (N, C, H, W) at (N, L) positions; zero outside.
local function between(x, h, w)
  local n, c, height, width = x:size(1), x:size(2), x:size(3), x:size(4)
  local flat, y = x:reshape(n, c, -1), nil
  local h0, w0 = h:floor(), w:floor()
  for dh = 0, 1 do
    for dw = 0, 1 do
      local hi, wi = h0 + dh, w0 + dw
      local weight = (1 - (h - hi):abs()) * (1 - (w - wi):abs())
      local inside = hi:ge(0):logical_and(hi:lt(height)):logical_and(wi:ge(0))
        :logical_and(wi:lt(width))
      local at = (hi:clamp(0, height - 1) * width + wi:clamp(0, width - 1)):detach():long() + 1
      local part = flat:gather(3, at:unsqueeze(2):expand(-1, c, -1))
        * M.where(inside, weight, 0):unsqueeze(2)
      y = y and y + part or part
    end
  end
  return y
end

-- Deformable convolution (Dai et al. 2017): each tap of each window has its own offset.
N.DeformConv = row("3 kernel_shape:ints strides:ints pads:ints dilations:ints group=1 "
  .. "offset_group=1", function(a, x, weight, offset, bias, mask)
  if x:dim() ~= 4 then refuse("%d dimensions after batch and channels", x:dim() - 2) end
  local n, c, out, kh, kw = x:size(1), x:size(2), weight:size(1), weight:size(3), weight:size(4)
  local strides, dilations = windows.steps(a, 2)
  local pads, groups = a.pads or {0, 0, 0, 0}, a.offset_group
  local oh, ow = offset:size(3), offset:size(4)
  local options = {dtype = x.dtype, device = x.device}
  local ys = M.arange(oh, options):reshape(-1, 1) * strides[1] - pads[1]
  local xs = M.arange(ow, options):reshape(1, -1) * strides[2] - pads[2]
  offset = offset:reshape(n, groups, kh * kw, 2, oh, ow)
  mask = mask and mask:reshape(n, groups, kh * kw, 1, oh * ow)
  local size, list = c / groups, {}
  for g = 1, groups do
    local part, taps = x:narrow(2, (g - 1) * size + 1, size), {}
    for t = 1, kh * kw do
      local i, j = math.floor((t - 1) / kw), (t - 1) % kw
      local h = ys + i * dilations[1] + offset:select(2, g):select(2, t):select(2, 1)
      local w = xs + j * dilations[2] + offset:select(2, g):select(2, t):select(2, 2)
      local tap = between(part, h:reshape(n, -1), w:reshape(n, -1))
      if mask then tap = tap * mask:select(2, g):select(2, t) end
      taps[t] = tap
    end
    list[g] = M.stack(taps, 3) -- (N, C / groups, taps, L)
  end
  local columns = M.cat(list, 2):reshape(n, a.group, c / a.group * kh * kw, oh * ow)
  local filters = weight:reshape(1, a.group, out / a.group, -1)
  local y = filters:matmul(columns):reshape(n, out, oh, ow)
  return bias and y + bias:reshape(1, -1, 1, 1) or y
end)

return rows
