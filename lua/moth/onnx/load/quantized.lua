--- quantized.lua -- nodes of an ONNX graph on quantized 8- and 16-bit integers: a value is (q -
-- zero) * scale.
--
-- Products of these integers are summed in float64, which is exact.

local M = require "moth"
local rows = require "moth.onnx.load.rows"

local N, row, refuse, place = rows.N, rows.row, rows.refuse, rows.place

local RANGES = {[M.uint8] = {0, 255}, [M.int8] = { -128, 127}, [M.int16] = { -32768, 32767}}

-- Scale or zero point, reshaped to broadcast to x: one for all, one for each slice of an axis, or
-- one for each block of an axis.
local function over(t, x, axis, block)
  if t:numel() == 1 then return t:reshape({}) end
  local d = place(x, axis)
  if block ~= 0 then
    t = t:repeat_interleave(block, d)
    return t:size(d) > x:size(d) and t:narrow(d, 1, x:size(d)) or t
  end
  if t:dim() ~= 1 then refuse("a scale of %d dimensions without a block_size", t:dim()) end
  local shape = {}
  for k = 1, x:dim() do shape[k] = k == d and -1 or 1 end
  return t:reshape(shape)
end

-- Rounds to `dtype` and clamps to its range.
local function rounded(y, zero, dtype)
  local range = RANGES[dtype]
  if not range then refuse("quantized elements of type %s", dtype.name) end
  y = y:round()
  if zero then y = y + zero:to(y.dtype) end
  return y:clamp(range[1], range[2]):to(dtype)
end

N.QuantizeLinear = row("2 axis=1 saturate=1 block_size=0 output_dtype=0 precision=0",
  function(a, x, scale, zero)
    local dtype = zero and zero.dtype or a.output_dtype ~= 0 and rows.dtype(a.output_dtype)
      or M.uint8
    local wide = a.precision ~= 0 and rows.dtype(a.precision)
      or rows.whole(x) and M.float32 or x.dtype
    local y = x:to(wide) / over(scale:to(wide), x, a.axis, a.block_size)
    return rounded(rows.wide(y), zero and over(zero, x, a.axis, a.block_size), dtype)
  end)

N.DequantizeLinear = row("2 axis=1 block_size=0 output_dtype=0", function(a, x, scale, zero)
  local wide = scale.dtype == M.float64 and M.float64 or M.float32
  local y = x:to(wide)
  if zero then y = y - over(zero:to(wide), x, a.axis, a.block_size) end
  y = y * over(scale:to(wide), x, a.axis, a.block_size)
  return y:to(a.output_dtype ~= 0 and rows.dtype(a.output_dtype) or scale.dtype)
end)

-- 8-bit integers for all of x, with the scale and the zero point of its range.
local function dynamic(x)
  local low, high = M.clamp(x:min(), {max = 0}), M.clamp(x:max(), {min = 0})
  local span = high - low
  local scale = M.where(span:eq(0), M.ones_like(span), span) / 255
  local zero = (-low / scale):clamp(0, 255):round()
  return ((x / scale):round() + zero):clamp(0, 255), scale, zero
end

N.DynamicQuantizeLinear = row("", function(_, x)
  local y, scale, zero = dynamic(x)
  return y:to(M.uint8), scale, zero:to(M.uint8)
end)
rows.dynamic = dynamic

-- ---- products ----

-- x minus its zero point as float64: one for all, or one for each slice of dimension d.
local function apart(x, zero, d)
  local y = x:double()
  if not zero then return y end
  if zero:numel() == 1 then return y - zero:double():reshape({}) end
  if zero:dim() ~= 1 then return y - zero:double() end
  local shape = {}
  for k = 1, x:dim() do shape[k] = 1 end
  shape[d < 0 and x:dim() + 1 + d or d] = -1
  return y - zero:double():reshape(shape)
end

N.MatMulInteger = row("2", function(_, x, y, x_zero, y_zero)
  return apart(x, x_zero, -2):matmul(apart(y, y_zero, -1)):to(M.int32)
end)

-- A scale or zero point of rows (d = -2) or columns (d = -1), reshaped to broadcast.
local function sided(t, d)
  return t:dim() == 1 and t:numel() > 1 and d == -2 and t:unsqueeze(-1)
    or t:numel() == 1 and t:reshape({}) or t
end

N.QLinearMatMul = row("8", function(_, x, x_scale, x_zero, y, y_scale, y_zero, scale, zero)
  local z = apart(x, x_zero, -2):matmul(apart(y, y_zero, -1))
  local factor = sided(x_scale, -2):double() * sided(y_scale, -1):double()
    / sided(scale, -2):double()
  return rounded(z * factor, sided(zero, -2), zero.dtype)
end)

local CONV = "kernel_shape:ints strides:ints pads:ints dilations:ints auto_pad=NOTSET group=1"

N.ConvInteger = row("2 " .. CONV, function(a, x, weight, x_zero, w_zero)
  return N.Conv.run(a, apart(x, x_zero, 2), apart(weight, w_zero, 1)):to(M.int32)
end)

N.QLinearConv = row("8 " .. CONV, function(a, x, x_scale, x_zero, weight, w_scale, w_zero, scale,
                                           zero, bias)
  local z = N.Conv.run(a, apart(x, x_zero, 2), apart(weight, w_zero, 1), bias and bias:double())
  local factor = x_scale:double():reshape({}) * w_scale:double() / scale:double():reshape({})
  if factor:numel() > 1 then
    local shape = {1, -1}
    for d = 3, x:dim() do shape[d] = 1 end
    factor = factor:reshape(shape)
  end
  return rounded(z * factor, zero:reshape({}), zero.dtype)
end)

return rows
