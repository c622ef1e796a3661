--- nodes.lua -- what the nodes of an ONNX graph do in Moth: elements, shapes, picking, reductions.
-- Layers are in layers.lua.
--
-- A row is N.Softmax = row("axis=-1", function(a, x) ... end): the attributes, then what runs. An
-- attribute is `name=default` (a number with a point is a float), `name=default!` where Moth knows
-- no other value, or `name:ints`, `name:floats`, `name:tensor`, `name:string`, `name:int` where it
-- may be absent (`name:ints!` where it may not). A number before them is how many operands there
-- must be, if more than one. `a` holds the attributes, and opset, noutputs. Operands at the places
-- in `lists` come as Lua lists of numbers, all others as tensors; absent ones are nil. Positions in
-- files count from 0.

local M = require "moth"
local proto = require "moth.onnx.proto"
local by_code = require("moth.dtype").by_code

local F = M.nn.functional
local N = {}
local nodes = { N = N }

local function row(attributes, run, lists)
  local places = {}
  for place in (lists or ""):gmatch "%d+" do places[tonumber(place)] = true end
  return { attributes = attributes, run = run, lists = places,
           needs = tonumber(attributes:match "^%d+") or 1 }
end
nodes.row = row

-- ---- helpers ----

--- A dimension that counts from 0 or from the end, as Moth counts it.
function nodes.dim(axis) return axis < 0 and axis or axis + 1 end
local dim = nodes.dim

-- The same, never negative. more: dimensions that are added.
local function place(x, axis, more)
  return axis < 0 and axis + x:dim() + (more or 0) + 1 or axis + 1
end
nodes.place = place

--- Positions of a file in a dimension of size n, as Moth's.
function nodes.positions(i, n)
  i = i:long()
  return M.where(i:lt(0), i + n, i) + 1
end
local positions = nodes.positions

--- The dtype of a number in a file; raises if Moth has none.
function nodes.dtype(number)
  local code = proto.dtypes[number]
  if not code then
    error(("element type %s of ONNX, which Moth lacks"):format(tostring(number)), 0)
  end
  return by_code[code]
end

local function whole(x) return not x:is_floating_point() end

-- ---- elements ----

for op, name in pairs { Abs = "abs", Acos = "acos", Acosh = "acosh", Asin = "asin", Asinh = "asinh",
    Atan = "atan", Atanh = "atanh", Ceil = "ceil", Cos = "cos", Cosh = "cosh", Erf = "erf",
    Exp = "exp", Floor = "floor", Log = "log", Neg = "neg", Reciprocal = "reciprocal",
    Round = "round", Sigmoid = "sigmoid", Sign = "sign", Sin = "sin", Sinh = "sinh", Sqrt = "sqrt",
    Tan = "tan", Tanh = "tanh", Relu = "relu", IsNaN = "isnan", Not = "logical_not",
    BitwiseNot = "bitwise_not" } do
  N[op] = row("", function(_, x) return (M[name](x)) end)
end

for op, name in pairs { Softsign = "softsign", HardSwish = "hardswish", Mish = "mish" } do
  N[op] = row("", function(_, x) return (F[name](x)) end)
end

N.Identity = row("", function(_, x) return x end)
N.Elu = row("alpha=1.0", function(a, x) return F.elu(x, a.alpha) end)
N.Celu = row("alpha=1.0", function(a, x) return F.celu(x, a.alpha) end)
N.LeakyRelu = row("alpha=0.01", function(a, x) return F.leaky_relu(x, a.alpha) end)
N.Selu = row("alpha=1.67326319217681884765625 gamma=1.05070102214813232421875", function(a, x)
  return M.where(x:gt(0), x, (x:exp() - 1) * a.alpha) * a.gamma
end)
N.ThresholdedRelu = row("alpha=1.0", function(a, x) return F.threshold(x, a.alpha, 0) end)
N.HardSigmoid = row("alpha=0.2 beta=0.5", function(a, x)
  return (x * a.alpha + a.beta):clamp(0, 1)
end)
N.Softplus = row("", function(_, x) return F.softplus(x) end)
N.Gelu = row("approximate=none", function(a, x)
  return F.gelu(x, { approximate = a.approximate })
end)
N.Shrink = row("bias=0.0 lambd=0.5", function(a, x)
  return M.where(x:lt(-a.lambd), x + a.bias, M.where(x:gt(a.lambd), x - a.bias, x * 0))
end)
N.PRelu = row("2", function(_, x, slope) return M.where(x:lt(0), x * slope, x) end)
N.Clip = row("", function(_, x, low, high)
  if low then x = M.maximum(x, low) end
  return high and M.minimum(x, high) or x
end)
N.IsInf = row("detect_negative=1 detect_positive=1", function(a, x)
  if a.detect_negative == 0 then return x:isposinf() end
  return a.detect_positive == 0 and x:isneginf() or x:isinf()
end)
N.Dropout = row("seed:int", function(_, x) return x, M.ones_like(x):bool() end, "2 3")
N.Cast = row("to:int! saturate=1 round_mode:string", function(a, x)
  return x:to(nodes.dtype(a.to))
end)
N.CastLike = row("2 saturate=1 round_mode:string", function(_, x, y) return x:to(y.dtype) end)

-- ---- two operands and more ----

for op, name in pairs { Add = "add", Sub = "sub", Mul = "mul", Equal = "eq", Greater = "gt",
    GreaterOrEqual = "ge", Less = "lt", LessOrEqual = "le", And = "logical_and", Or = "logical_or",
    Xor = "logical_xor", BitwiseAnd = "bitwise_and", BitwiseOr = "bitwise_or",
    BitwiseXor = "bitwise_xor", MatMul = "matmul" } do
  N[op] = row("2", function(_, x, y) return (M[name](x, y)) end)
end

N.Div = row("2", function(_, x, y)
  return whole(x) and x:div(y, { rounding_mode = "trunc" }) or x / y
end)
N.Mod = row("2 fmod=0", function(a, x, y)
  return a.fmod == 1 and M.fmod(x, y) or M.remainder(x, y)
end)
N.Pow = row("2", function(_, x, y) return x:pow(y:to(x.dtype)) end)
N.Where = row("3", function(_, mask, x, y) return M.where(mask, x, y) end)

local function fold(f)
  return function(_, ...)
    local y = ...
    for i = 2, select("#", ...) do y = f(y, (select(i, ...))) end
    return y
  end
end
N.Max, N.Min = row("", fold(M.maximum)), row("", fold(M.minimum))
N.Sum = row("", fold(M.add))
N.Mean = row("", function(a, ...) return N.Sum.run(a, ...) / select("#", ...) end)
N.Einsum = row("equation:string!", function(a, ...) return M.einsum(a.equation, ...) end)

-- Before opset 13 everything from the axis on was one dimension.
local function softmax(name)
  return row("axis:int", function(a, x)
    local axis = a.axis or (a.opset < 13 and 1 or -1)
    if a.opset >= 13 then return x[name](x, dim(axis)) end
    local y = x:flatten(place(x, axis))
    return y[name](y, -1):reshape(x.shape)
  end)
end
N.Softmax, N.LogSoftmax = softmax "softmax", softmax "log_softmax"

-- ---- shapes ----

local function shape_list(x)
  local list = {}
  for d = 1, x:dim() do list[d] = x:size(d) end
  return list
end

N.Shape = row("start=0 end:int", function(a, x)
  local list, n, part = shape_list(x), x:dim(), {}
  local first, last = a.start, a["end"] or n
  if first < 0 then first = math.max(first + n, 0) end
  if last < 0 then last = last + n end
  for d = first + 1, math.min(last, n) do part[#part + 1] = list[d] end
  return M.tensor(part, { dtype = M.int64 })
end)
N.Size = row("", function(_, x) return M.tensor(x:numel(), { dtype = M.int64 }) end)

N.Reshape = row("2 allowzero=0", function(a, x, shape)
  local list = {}
  for d, size in ipairs(shape) do
    list[d] = size == 0 and a.allowzero == 0 and x:size(d) or size
  end
  return x:reshape(list)
end, "2")
N.Flatten = row("axis=1", function(a, x)
  local n, axis = 1, a.axis < 0 and a.axis + x:dim() or a.axis
  for d = 1, axis do n = n * x:size(d) end
  return x:reshape(n, n == 0 and 0 or x:numel() / n)
end)
N.Transpose = row("perm:ints", function(a, x)
  local perm = {}
  for d = 1, x:dim() do perm[d] = a.perm and a.perm[d] + 1 or x:dim() + 1 - d end
  return x:permute(perm)
end)
N.Squeeze = row("axes:ints", function(a, x, axes)
  axes = axes or a.axes
  if not axes then return x:squeeze() end
  local list = {}
  for k, axis in ipairs(axes) do
    list[k] = place(x, axis)
    if x:size(list[k]) ~= 1 then
      error(("dimension %d is %d and cannot go"):format(axis, x:size(list[k])), 0)
    end
  end
  return x:squeeze(list)
end, "2")
N.Unsqueeze = row("axes:ints", function(a, x, axes)
  axes = axes or a.axes
  local list = {}
  for k, axis in ipairs(axes) do list[k] = place(x, axis, #axes) end
  table.sort(list)
  for _, d in ipairs(list) do x = x:unsqueeze(d) end
  return x
end, "2")
N.Expand = row("2", function(_, x, shape)
  local n, list = math.max(#shape, x:dim()), {}
  for d = n, 1, -1 do
    local wanted, size = shape[d - n + #shape] or 1, 1
    if d - n + x:dim() > 0 then size = x:size(d - n + x:dim()) end
    list[d] = size == 1 and wanted or size
  end
  return x:expand(list)
end, "2")
N.Tile = row("2", function(_, x, counts) return x:tile(counts) end, "2")
N.Concat = row("axis:int!", function(a, x, ...) return M.cat({ x, ... }, dim(a.axis)) end)
N.Split = row("axis=0 split:ints num_outputs:int", function(a, x, sizes)
  local d, list = dim(a.axis), sizes or a.split
  if not list then
    local size = math.ceil(x:size(d) / a.noutputs)
    list = {}
    for k = 1, a.noutputs do
      list[k] = math.max(math.min(size, x:size(d) - (k - 1) * size), 0)
    end
  end
  return unpack(x:split(list, d))
end, "2")

-- From `first` (from 0) before `last` in steps.
local function slice(x, d, first, last, step)
  local n = x:size(d)
  if step == 0 then error("steps of 0", 0) end
  if first < 0 then first = first + n end
  if last < 0 then last = last + n end
  if step > 0 then first, last = math.max(first, 0), math.min(last, n)
  else first, last = math.min(math.max(first, 0), n - 1), math.max(last, -1) end
  local count = math.max(math.ceil((last - first) / step), 0)
  if step == 1 or count == 0 then return x:narrow(d, count == 0 and 1 or first + 1, count) end
  if step < 0 then x, first, step = x:flip(d), n - 1 - first, -step end
  local index = {}
  for k = 1, d - 1 do index[k] = {} end
  index[d] = { first + 1, first + (count - 1) * step + 1, step }
  return x[index]
end

N.Slice = row("3", function(_, x, starts, ends, axes, steps)
  for k, first in ipairs(starts) do
    x = slice(x, place(x, axes and axes[k] or k - 1), first, ends[k], steps and steps[k] or 1)
  end
  return x
end, "2 3 4 5")

local MODES = { constant = "constant", reflect = "reflect", edge = "replicate", wrap = "circular" }

N.Pad = row("2 mode=constant", function(a, x, pads, value, axes)
  local n, before, after = x:dim(), {}, {}
  for d = 1, n do before[d], after[d] = 0, 0 end
  local count = #pads / 2
  for k = 1, count do
    local d = axes and place(x, axes[k]) or k
    before[d], after[d] = pads[k], pads[k + count]
  end
  local first, list = 1, {}
  while first < n and before[first] == 0 and after[first] == 0 do first = first + 1 end
  for d = n, first, -1 do list[#list + 1], list[#list + 2] = before[d], after[d] end
  if not MODES[a.mode] then error("mode '" .. a.mode .. "'", 0) end
  return F.pad(x, list, { mode = MODES[a.mode], value = value and value[1] or 0 })
end, "2 3 4")

N.Trilu = row("upper=1", function(a, x, k)
  local f = a.upper == 1 and M.triu or M.tril
  return f(x, k and k[1] or 0)
end, "2")

local function blocks(f)
  return function(a, x)
    local n, c, h, w = x:size(1), x:size(2), x:size(3), x:size(4)
    return f(x, n, c, h, w, a.blocksize, a.mode)
  end
end
N.DepthToSpace = row("blocksize:int! mode=DCR", blocks(function(x, n, c, h, w, b, mode)
  if mode == "CRD" then return F.pixel_shuffle(x, b) end
  return x:reshape(n, b, b, c / (b * b), h, w):permute(1, 4, 5, 2, 6, 3)
    :reshape(n, c / (b * b), h * b, w * b)
end))
N.SpaceToDepth = row("blocksize:int!", blocks(function(x, n, c, h, w, b)
  return x:reshape(n, c, h / b, b, w / b, b):permute(1, 4, 6, 2, 3, 5)
    :reshape(n, c * b * b, h / b, w / b)
end))

-- ---- making ----

N.ConstantOfShape = row("value:tensor", function(a, shape)
  local value = a.value or M.zeros(1)
  return M.full(shape, value:reshape(-1)[1]:item(), { dtype = value.dtype })
end, "1")
N.Range = row("3", function(_, first, last, step)
  return M.arange(first:item(), last:item(), step:item(), { dtype = first.dtype })
end)
N.OneHot = row("3 axis=-1", function(a, i, depth, values)
  local at = positions(i, depth[1]):unsqueeze(-1)
  local y = M.where(at:eq(M.range(1, depth[1]):to(i.device)), values[2], values[1])
  return a.axis == -1 and y or y:movedim(-1, place(i, a.axis, 1))
end, "2")
N.NonZero = row("", function(_, x) return x:nonzero():t() - 1 end)

-- ---- picking ----

N.Gather = row("2 axis=0", function(a, x, i)
  local d = place(x, a.axis)
  local at = positions(i, x:size(d))
  if i:dim() == 1 then return x:index_select(d, at) end
  local y, shape = x:index_select(d, at:reshape(-1)), {}
  for k = 1, d - 1 do shape[#shape + 1] = x:size(k) end
  for k = 1, i:dim() do shape[#shape + 1] = i:size(k) end
  for k = d + 1, x:dim() do shape[#shape + 1] = x:size(k) end
  return y:reshape(shape)
end)
N.GatherElements = row("2 axis=0", function(a, x, i)
  local d = place(x, a.axis)
  return x:gather(d, positions(i, x:size(d)))
end)

-- The columns of positions (..., k), each for one dimension of x.
local function columns(x, i)
  local list = {}
  for k = 1, i:size(-1) do list[k] = positions(i:select(-1, k), x:size(k)) end
  return list
end

N.GatherND = row("2 batch_dims=0!", function(_, x, i) return x[columns(x, i)] end)
N.ScatterND = row("3 reduction=none", function(a, x, i, values)
  if a.reduction ~= "none" and a.reduction ~= "add" then
    error("reduction '" .. a.reduction .. "'", 0)
  end
  return M.index_put(x, columns(x, i), values, a.reduction == "add")
end)
local REDUCTIONS = { add = "sum", mul = "prod", max = "amax", min = "amin" }
N.ScatterElements = row("3 axis=0 reduction=none", function(a, x, i, values)
  local d = place(x, a.axis)
  local at = positions(i, x:size(d))
  if a.reduction == "none" then return x:scatter(d, at, values) end
  return x:scatter_reduce(d, at, values, REDUCTIONS[a.reduction])
end)
N.Compress = row("2 axis:int", function(a, x, mask)
  local at = mask:nonzero():select(2, 1)
  if not a.axis then return x:reshape(-1):index_select(1, at) end
  return x:index_select(dim(a.axis), at)
end)
N.TopK = row("2 axis=-1 largest=1 sorted=1", function(a, x, k)
  local values, at = x:topk(k[1], { dim = dim(a.axis), largest = a.largest == 1,
                                    sorted = a.sorted == 1 })
  return values, at - 1
end, "2")

-- ---- reductions ----

local function reduction(f)
  return row("axes:ints keepdims=1 noop_with_empty_axes=0", function(a, x, axes)
    axes = axes or a.axes
    if axes and #axes == 0 then axes = nil end
    if not axes and a.noop_with_empty_axes == 1 then return x end
    local dims = {}
    for d = 1, axes and #axes or x:dim() do dims[d] = axes and dim(axes[d]) or d end
    return f(x, dims, a.keepdims == 1)
  end, "2")
end
for op, name in pairs { ReduceSum = "sum", ReduceMean = "mean", ReduceProd = "prod",
                        ReduceMax = "amax", ReduceMin = "amin", ReduceLogSumExp = "logsumexp" } do
  N[op] = reduction(function(x, dims, keep)
    if #dims == 0 then return x end
    return M[name](x, { dim = dims, keepdim = keep })
  end)
end
local function sum(x, dims, keep) return x:sum { dim = dims, keepdim = keep } end
N.ReduceSumSquare = reduction(function(x, dims, keep) return sum(x * x, dims, keep) end)
N.ReduceL1 = reduction(function(x, dims, keep) return sum(x:abs(), dims, keep) end)
N.ReduceL2 = reduction(function(x, dims, keep) return sum(x * x, dims, keep):sqrt() end)
N.ReduceLogSum = reduction(function(x, dims, keep) return sum(x, dims, keep):log() end)

local function position(name)
  return row("axis=0 keepdims=1 select_last_index=0!", function(a, x)
    return M[name](x, { dim = dim(a.axis), keepdim = a.keepdims == 1 }) - 1
  end)
end
N.ArgMax, N.ArgMin = position "argmax", position "argmin"

N.CumSum = row("2 exclusive=0 reverse=0", function(a, x, axis)
  local d = dim(axis[1])
  local y = a.reverse == 1 and x:flip { d }:cumsum(d):flip { d } or x:cumsum(d)
  return a.exclusive == 1 and y - x or y
end, "2")

return nodes
