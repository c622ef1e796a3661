--- signal.lua -- signal nodes of an ONNX graph: DFT, STFT, windows. Complex numbers are pairs in a
-- last dimension of 2; real signals have a last dimension of 1.

local M = require "moth"
local rows = require "moth.onnx.load.rows"

local N, row, refuse = rows.N, rows.row, rows.refuse

-- ---- transforms ----

-- A real signal or pairs, as pairs.
local function pairs_of(x)
  if x:size(-1) == 2 then return x end
  return M.cat({x, M.zeros_like(x)}, -1)
end

-- The transform along dimension d (from 1) of pairs or real signals.
local function transformed(x, length, d, onesided, inverse)
  local dtype = x.dtype
  x = rows.wide(x)
  if inverse and onesided then
    return M.fft.irfft(pairs_of(x), {n = length, dim = d}):unsqueeze(-1):to(dtype)
  elseif inverse then
    return M.fft.ifft(pairs_of(x), {n = length, dim = d}):to(dtype)
  elseif onesided and x:size(-1) == 1 then
    return M.fft.rfft(x:squeeze(-1), {n = length, dim = d}):to(dtype)
  end
  local y = M.fft.fft(pairs_of(x), {n = length, dim = d})
  if onesided then y = y:narrow(d, 1, math.floor(y:size(d) / 2) + 1) end
  return y:to(dtype)
end

N.DFT = row("axis:int inverse=0 onesided=0", function(a, x, length, axis)
  local at = axis and axis[1] or a.axis or (a.opset < 20 and 1 or -2)
  return transformed(x, length and length[1], rows.place(x, at), a.onesided == 1, a.inverse == 1)
end, "2 3")

N.STFT = row("2 onesided=1", function(a, x, step, window, length)
  local size = length and length[1] or window and window:size(1)
  if not size then refuse "no window and no frame_length" end
  local channels = x:dim() == 2 and 1 or x:size(3)
  x = x:dim() == 2 and x:unsqueeze(3) or x
  local frames = x:unfold(2, size, step[1]):transpose(3, 4) -- (batch, frames, size, 1 or 2)
  if window then frames = frames * window:reshape(1, 1, -1, 1) end
  return transformed(frames, size, 3, a.onesided == 1 and channels == 1)
end, "2 4")

-- ---- windows ----

local function window(f)
  return row("output_datatype=1 periodic=1", function(a, size)
    local n, dtype = size[1], rows.dtype(a.output_datatype)
    local span = a.periodic == 1 and n or n - 1
    local turns = M.arange(n, {dtype = M.float64}) * (2 * math.pi / math.max(span, 1))
    return f(turns):to(dtype)
  end, "1")
end

N.HannWindow = window(function(t) return 0.5 - t:cos() * 0.5 end)
N.HammingWindow = window(function(t) return 25 / 46 - t:cos() * (21 / 46) end)
N.BlackmanWindow = window(function(t) return 0.42 - t:cos() * 0.5 + (t * 2):cos() * 0.08 end)

-- ---- mel frequencies ----

N.MelWeightMatrix = row("5 output_datatype=1", function(a, bins, length, rate, low, high)
  local count, spectrum = bins[1], math.floor(length[1] / 2) + 1
  local function mel(hertz) return 2595 * math.log10(1 + hertz / 700) end
  local first, last = mel(low[1]), mel(high[1])
  local at, list = {}, {}
  for k = 0, count + 1 do
    local hertz = 700 * (10 ^ ((first + k * (last - first) / (count + 2)) / 2595) - 1)
    at[k] = math.floor((length[1] + 1) * hertz / rate[1])
  end
  for j = 0, spectrum - 1 do
    list[j + 1] = {}
    for i = 0, count - 1 do
      local left, middle, right, value = at[i], at[i + 1], at[i + 2], 0
      if left == middle and j == middle then value = 1
      elseif j >= left and j <= middle and left < middle then
        value = (j - left) / (middle - left)
      end
      if right > middle and j >= middle and j < right then
        value = (right - j) / (right - middle)
      end
      list[j + 1][i + 1] = value
    end
  end
  return M.tensor(list, {dtype = rows.dtype(a.output_datatype)})
end, "1 2 3 4 5")

return rows
