--- reduce.lua -- reduction nodes of an ONNX graph, and running sums. Results have the input's
-- dtype.

local M = require "moth"
local rows = require "moth.onnx.load.rows"

local N, row, dim = rows.N, rows.row, rows.dim

local function reduction(f)
  return row("axes:ints keepdims=1 noop_with_empty_axes=0", function(a, x, axes)
    axes = axes or a.axes
    if axes and #axes == 0 then axes = nil end
    local dims = {}
    if axes or a.noop_with_empty_axes ~= 1 then
      for d = 1, axes and #axes or x:dim() do dims[d] = axes and dim(axes[d]) or d end
    end
    if x:is_floating_point() then return f(x, dims, a.keepdims == 1) end
    return f(x, dims, a.keepdims == 1, true):to(x.dtype)
  end, "2")
end

-- A Moth op over dims; with no dims, over each element separately.
local function over(name, x, dims, keep)
  if #dims == 0 then return x end
  return (M[name](x, {dim = dims, keepdim = keep}))
end

-- The reduction f(x, dims, keep), computed in float64 for integers.
local function in_doubles(f)
  return reduction(function(x, dims, keep, whole)
    return f(whole and x:double() or x, dims, keep)
  end)
end

-- Sums and products of integers are computed as int64, then wrap to their dtype.
N.ReduceSum = reduction(function(x, dims, keep) return over("sum", x, dims, keep) end)
N.ReduceProd = reduction(function(x, dims, keep) return over("prod", x, dims, keep) end)
N.ReduceSumSquare = reduction(function(x, dims, keep) return over("sum", x * x, dims, keep) end)
N.ReduceL1 = reduction(function(x, dims, keep) return over("sum", x:abs(), dims, keep) end)
-- Means of integers are rounded towards zero.
N.ReduceMean = in_doubles(function(x, dims, keep) return over("mean", x, dims, keep) end)
N.ReduceL2 = in_doubles(function(x, dims, keep) return over("sum", x * x, dims, keep):sqrt() end)
N.ReduceLogSum = in_doubles(function(x, dims, keep) return over("sum", x, dims, keep):log() end)
N.ReduceLogSumExp = in_doubles(function(x, dims, keep) return over("logsumexp", x, dims, keep) end)

-- The maximum or minimum; of no elements, the lowest or highest value of the dtype.
local LIMITS = {[M.bool] = {0, 1}, [M.uint8] = {0, 255}, [M.int8] = { -128, 127},
  [M.int16] = { -32768, 32767}, [M.int32] = { -2 ^ 31, 2 ^ 31 - 1},
  [M.int64] = { -0x7fffffffffffffffLL - 1, 0x7fffffffffffffffLL}}

local function extreme(name, side)
  return reduction(function(x, dims, keep)
    if x:numel() > 0 or #dims == 0 then return over(name, x, dims, keep) end
    local limits = LIMITS[x.dtype] or { -math.huge, math.huge}
    local count = over("sum", x:double(), dims, keep)
    return M.full(rows.shape(count), limits[side], rows.as(x))
  end)
end
N.ReduceMax, N.ReduceMin = extreme("amax", 1), extreme("amin", 2)

-- ---- running ----

-- The exclusive form: each position holds the sum of the elements before it.
local function shifted(y, d, first)
  local n = y:size(d)
  if n == 0 then return y end
  local head = M.full_like(y:narrow(d, 1, 1), first)
  return M.cat({head, y:narrow(d, 1, n - 1)}, d)
end

local function running(name, first)
  return row("2 exclusive=0 reverse=0", function(a, x, axis)
    local d, dtype = dim(axis[1]), x.dtype
    if a.reverse == 1 then x = x:flip {d} end
    local y = M[name](x, d)
    if y.dtype ~= dtype then y = y:to(dtype) end
    if a.exclusive == 1 then y = shifted(y, d, first) end
    return a.reverse == 1 and y:flip {d} or y
  end, "2")
end
N.CumSum, N.CumProd = running("cumsum", 0), running("cumprod", 1)

return rows
