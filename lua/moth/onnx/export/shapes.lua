--- shapes.lua -- ONNX nodes of ops that copy, join, reduce and create tensors. The rows have the
-- form of elements.lua. Rows in `sized` read numbers that may depend on the sizes of inputs;
-- c.all has the numbers of each run.

local lib = require "moth.binding.lib"
local proto = require "moth.onnx.proto"

local ops, sized = {}, {}

local LAST = 0x7fffffffffffffffLL
local C = lib.C
local BOOL, I64 = C.MOTH_BOOL, C.MOTH_I64

local function wrap(d, n) return d < 0 and d + n or d end
local function ndim(x) return #x.shapes[1] end

-- The dimension counted from the front, or nil.
local function dim_of(d, x) return d and wrap(d, ndim(x)) end

-- f(args of run i, i) for all runs.
local function each(g, c, f)
  local list = {}
  for i = 1, g.readings do list[i] = f(c.all[i], i) end
  return list
end

-- ---- other shapes ----

local function reshaped(g, a, c) return g:reshape(a.input, c.results[1]) end
for name in ("view reshape flatten unflatten squeeze view_as reshape_as ravel"):gmatch "%S+" do
  sized[name] = reshaped
end

function ops.unsqueeze(g, a)
  return g:Unsqueeze(a.input, g:ints {wrap(a.dim, ndim(a.input) + 1)})
end

function sized.expand(g, a, c)
  return g:Expand(a.input, g:sizes_of(c.results[1].shapes, "a size"))
end
sized.broadcast_to, sized.expand_as = sized.expand, sized.expand

local function permuted(g, x, perm) return g:Transpose(x, {perm = perm}) end

function ops.permute(g, a)
  local perm = {}
  for k, d in ipairs(a.dims) do perm[k] = dim_of(d, a.input) end
  return permuted(g, a.input, perm)
end

local function swapped(g, x, d, e)
  local perm = {}
  for k = 1, ndim(x) do perm[k] = k - 1 end
  perm[d + 1], perm[e + 1] = e, d
  return permuted(g, x, perm)
end

function ops.transpose(g, a)
  return swapped(g, a.input, dim_of(a.dim0 or a.axis0, a.input),
    dim_of(a.dim1 or a.axis1, a.input))
end
ops.swapaxes, ops.swapdims = ops.transpose, ops.transpose
function ops.t(g, a)
  return ndim(a.input) < 2 and g:Identity(a.input) or swapped(g, a.input, 0, 1)
end

function ops.movedim(g, a)
  local n, perm, moved = ndim(a.input), {}, {}
  for k, d in ipairs(a.destination) do
    perm[wrap(d, n) + 1] = wrap(a.source[k], n)
    moved[wrap(a.source[k], n)] = true
  end
  local d = 0
  for k = 1, n do
    if not perm[k] then
      while moved[d] do d = d + 1 end
      perm[k], d = d, d + 1
    end
  end
  return permuted(g, a.input, perm)
end
ops.moveaxis = ops.movedim

-- ---- slices ----

-- first(args, size), last(args, size): for each run.
local function slice(g, a, c, first, last, step)
  local d, to_end = dim_of(a.dim, a.input), true
  local function size(i) return a.input.shapes[i][d + 1] end
  local starts = each(g, c, function(args, i) return {first(args, size(i))} end)
  local ends = each(g, c, function(args, i)
    to_end = to_end and last(args, size(i)) == size(i)
    return {last(args, size(i))}
  end)
  return g:Slice(a.input, g:sizes_of(starts, "a position"),
    to_end and g:ints {LAST} or g:sizes_of(ends, "a position"), g:ints {d}, g:ints {step})
end

function sized.narrow(g, a, c)
  local function first(args, size) return wrap(args.start, size) end
  return slice(g, a, c, first, function(args, size) return first(args, size) + args.length end, 1)
end

function sized.slice(g, a, c)
  if a.step < 1 then g:refuse "steps below 1 are not supported" end
  return slice(g, a, c, function(args, size) return wrap(args.start, size) end,
    function(args, size) return math.min(wrap(args.stop, size), size) end, a.step)
end

function sized.select(g, a, c)
  local d, from_end = dim_of(a.dim, a.input), true
  local places = each(g, c, function(args, i)
    local size = a.input.shapes[i][d + 1]
    local at = wrap(args.index, size)
    from_end = from_end and at - size == wrap(c.all[1].index, a.input.shapes[1][d + 1])
      - a.input.shapes[1][d + 1]
    return {at}
  end)
  if from_end and g:varies(places) then
    return g:Gather(a.input, g:constant(places[1][1] - a.input.shapes[1][d + 1], I64), {axis = d})
  elseif not g:varies(places) then
    return g:Gather(a.input, g:constant(places[1][1], I64), {axis = d})
  end
  return g:Squeeze(g:Gather(a.input, g:sizes_of(places, "a position"), {axis = d}),
    g:ints {d})
end

local function split(g, a, c)
  local d = dim_of(a.dim, a.input)
  local sizes = {}
  for i = 1, g.readings do
    sizes[i] = {}
    for k, y in ipairs(c.results) do sizes[i][k] = y.shapes[i][d + 1] end
  end
  return d, {g:Split(a.input, g:sizes_of(sizes, "a size"), {axis = d, outputs = #c.results})}
end

function sized.split(g, a, c)
  local _, list = split(g, a, c)
  return unpack(list)
end
sized.chunk, sized.tensor_split = sized.split, sized.split

function ops.unbind(g, a, c)
  local d, list = dim_of(a.dim, a.input), {}
  for k = 1, #c.results do
    list[k] = g:Gather(a.input, g:constant(k - 1, I64), {axis = d})
  end
  return unpack(list)
end

-- ---- joining, repeating ----

function ops.cat(g, a)
  local list = {}
  for k = 1, a.tensors.n do list[k] = a.tensors[k] end
  list[#list + 1] = {axis = a.dim}
  return g:Concat(unpack(list))
end

function ops.stack(g, a)
  local list, d = {}, wrap(a.dim, ndim(a.tensors[1]) + 1)
  for k = 1, a.tensors.n do list[k] = g:Unsqueeze(a.tensors[k], g:ints {d}) end
  list[#list + 1] = {axis = d}
  return g:Concat(unpack(list))
end

ops["repeat"] = function(g, a)
  local x, sizes, n = a.input, a.repeats or a.dims, ndim(a.input)
  local list = {}
  for _ = 1, n - #sizes do list[#list + 1] = 1 end
  for _, size in ipairs(sizes) do list[#list + 1] = size end
  if #list > n then
    local front = {}
    for d = 1, #list - n do front[d] = d - 1 end
    x = g:Unsqueeze(x, g:ints(front))
  end
  return g:Tile(x, g:ints(list))
end
ops.tile = ops["repeat"]

function ops.flip(g, a)
  local n, from, to, axes, steps = #a.dims, {}, {}, {}, {}
  for k = 1, n do
    from[k], to[k], axes[k], steps[k] = -1, -LAST, dim_of(a.dims[k], a.input), -1
  end
  return g:Slice(a.input, g:ints(from), g:ints(to), g:ints(axes), g:ints(steps))
end

-- Rolls elements to the right along a dimension; elements past the end come in at the front.
local function rolled(g, x, d, shift, sizes)
  local least = math.huge
  for _, size in ipairs(sizes) do least = math.min(least, size) end
  if least == 0 then return x end
  local fixed = sizes[1] == sizes[#sizes]
  if fixed then shift = shift % least end
  if shift == 0 then return x end
  if math.abs(shift) > least then
    g:refuse "the shift is larger than a size that varies; pass the remainder by the size"
  end
  local axis, cut = g:ints {d}, g:ints { -shift}
  return g:Concat(g:Slice(x, cut, g:ints {LAST}, axis), g:Slice(x, g:ints {0}, cut, axis),
    {axis = d})
end

function ops.roll(g, a)
  local x = a.input
  local function sizes(d)
    local list = {}
    for i = 1, g.readings do list[i] = x.shapes[i][d + 1] end
    return list
  end
  if ndim(x) == 0 then return g:Identity(x) end
  if not a.dims then
    local all = {}
    for i = 1, g.readings do
      all[i] = 1
      for _, size in ipairs(x.shapes[i]) do all[i] = all[i] * size end
    end
    local y = rolled(g, g:Reshape(x, g:ints { -1}), 0, a.shifts[1], all)
    return g:Reshape(y, g:Shape(x))
  end
  local y = x
  for k, d in ipairs(a.dims) do
    y = rolled(g, y, dim_of(d, x), a.shifts[k], sizes(dim_of(d, x)))
  end
  return y == x and g:Identity(x) or y
end

-- Positions of windows: `count` windows, `step` apart, each with `size` elements `dilation` apart.
-- A table for the windows, or with inner = true for the elements of a window.
local function windows(g, count, step, size, dilation, inner)
  local list = {}
  for i = 0, (inner and size or count) - 1 do
    for k = 0, (inner and count or size) - 1 do
      local window, place = inner and k or i, inner and i or k
      list[#list + 1] = window * step + place * dilation
    end
  end
  return g:constant(list, I64, inner and {size, count} or {count, size})
end

local function fixed_size(g, x, d)
  for i = 2, g.readings do
    if x.shapes[i][d + 1] ~= x.shapes[1][d + 1] then
      g:refuse "the sizes that windows slide over cannot be dynamic axes"
    end
  end
  return x.shapes[1][d + 1]
end

function ops.unfold_dim(g, a)
  local x, d, n = a.input, dim_of(a.dimension, a.input), ndim(a.input)
  local count = math.floor((fixed_size(g, x, d) - a.size) / a.step) + 1
  local y = g:Gather(x, windows(g, count, a.step, a.size, 1), {axis = d})
  local perm = {}
  for k = 0, n do
    if k ~= d + 1 then perm[#perm + 1] = k end
  end
  perm[n + 1] = d + 1
  return permuted(g, y, perm)
end

-- Unfolds (N, C, H, W) or (C, H, W) to the columns of its windows.
function ops.im2col(g, a, c)
  local x, n = a.input, ndim(a.input)
  local y, count = x, {}
  if a.padding[1] > 0 or a.padding[2] > 0 then
    local list = lib.filled(2 * n, 0)
    for k = 1, 2 do list[n - 2 + k], list[2 * n - 2 + k] = a.padding[k], a.padding[k] end
    y = g:Pad(x, g:ints(list), {mode = "constant"})
  end
  for k = 1, 2 do
    local size = fixed_size(g, x, n - 3 + k) + 2 * a.padding[k]
    count[k] = math.floor((size - a.dilation[k] * (a.kernel_size[k] - 1) - 1) / a.stride[k]) + 1
  end
  local function rows(k)
    return windows(g, count[k], a.stride[k], a.kernel_size[k], a.dilation[k], true)
  end
  y = g:Gather(y, rows(1), {axis = n - 2}) -- (..., C, kh, oh, W)
  y = g:Gather(y, rows(2), {axis = n}) -- (..., C, kh, oh, kw, ow)
  y = permuted(g, y, n == 4 and {0, 1, 2, 4, 3, 5} or {0, 1, 3, 2, 4})
  local shape = c.results[1].shapes[1]
  return g:Reshape(y, g:ints {n == 4 and 0 or shape[1], unpack(n == 4
    and {shape[2], shape[3]} or {shape[2]})})
end

function ops.fold(g, a)
  if g.opset < 18 then g:refuse "it needs opset_version = 18" end
  local flat = ndim(a.input) == 2
  local x = flat and g:Unsqueeze(a.input, g:ints {0}) or a.input
  local y = g:Col2Im(x, g:ints(a.output_size), g:ints(a.kernel_size), {dilations = a.dilation,
    strides = a.stride, pads = {a.padding[1], a.padding[2], a.padding[1], a.padding[2]}})
  return flat and g:Squeeze(y, g:ints {0}) or y
end

function ops.meshgrid(g, a, c)
  local list = {}
  local swap = a.indexing == "xy" and a.tensors.n > 1
  for k = 1, a.tensors.n do
    local at = swap and (k == 1 and 2 or k == 2 and 1) or k
    local axes = {}
    for d = 1, a.tensors.n do
      if d ~= at then axes[#axes + 1] = d - 1 end
    end
    local x = g:Reshape(a.tensors[k], g:ints { -1})
    if #axes > 0 then x = g:Unsqueeze(x, g:ints(axes)) end
    list[k] = g:Expand(x, g:sizes_of(c.results[k].shapes, "a size"))
  end
  return unpack(list)
end

local PADS = {constant = "constant", reflect = "reflect", replicate = "edge", circular = "wrap"}

function ops.pad(g, a, c)
  if a.mode == "circular" and g.opset < 19 then
    g:refuse "the mode 'circular' needs opset_version = 19"
  end
  local n = ndim(a.input)
  local list = lib.filled(2 * n, 0)
  for k = 1, #a.pad, 2 do -- from the last dimension on
    local d = n - (k - 1) / 2
    list[d], list[d + n] = a.pad[k], a.pad[k + 1]
  end
  return g:Pad(a.input, g:ints(list), a.mode == "constant"
    and g:constant(a.value, c.results[1].dtype) or false, {mode = PADS[a.mode]})
end

local function triangle(upper)
  return function(g, a)
    return g:Trilu(a.input, g:constant(a.diagonal, I64), {upper = upper})
  end
end
ops.tril, ops.triu = triangle(0), triangle(1)

-- ---- reductions ----

-- Axes are an input from opset 13 (ReduceSum) or 18 on, and an attribute before that.
local function reduce(g, op, x, dims, keep)
  local axes
  if dims and #dims > 0 then
    axes = {}
    for k, d in ipairs(dims) do axes[k] = d end
  end
  local given = {keepdims = keep and 1 or 0}
  if axes and (op == "ReduceSum" or g.opset >= 18) then return g[op](g, x, g:ints(axes), given) end
  given.axes = axes
  return g[op](g, x, given)
end

for name, op in pairs {sum = "ReduceSum", mean = "ReduceMean", prod = "ReduceProd",
                        amax = "ReduceMax", amin = "ReduceMin"} do
  ops[name] = function(g, a) return reduce(g, op, a.input, a.dim, a.keepdim) end
end

function ops.logsumexp(g, a)
  return reduce(g, "ReduceLogSumExp", a.input, a.dim, a.keepdim)
end

function ops.max_all(g, a) return reduce(g, "ReduceMax", a.input) end
function ops.min_all(g, a) return reduce(g, "ReduceMin", a.input) end

local function extreme(op, arg)
  return function(g, a)
    return reduce(g, op, a.input, {a.dim}, a.keepdim),
      g[arg](g, a.input, {axis = a.dim, keepdims = a.keepdim and 1 or 0})
  end
end
ops.max_dim, ops.min_dim = extreme("ReduceMax", "ArgMax"), extreme("ReduceMin", "ArgMin")

local function position(op)
  return function(g, a)
    local keep = a.keepdim and 1 or 0
    if a.dim then return g[op](g, a.input, {axis = a.dim, keepdims = keep}) end
    return g[op](g, g:Reshape(a.input, g:ints { -1}), {axis = 0, keepdims = 0})
  end
end
ops.argmax, ops.argmin = position "ArgMax", position "ArgMin"

local function as_bool(op)
  return function(g, a)
    local x = g:Cast(g:cast(a.input, BOOL), {to = proto.types[C.MOTH_I32]})
    local y = reduce(g, op, x, a.dim, a.keepdim)
    return g:Cast(y, {to = proto.types[BOOL]})
  end
end
ops.any, ops.all = as_bool "ReduceMax", as_bool "ReduceMin"

local function variance(g, a)
  local mean = reduce(g, "ReduceMean", a.input, a.dim, true)
  local off, n = g:Sub(a.input, mean), 1
  local shapes = {}
  for i = 1, g.readings do
    n = 1
    for d, size in ipairs(a.input.shapes[i]) do
      local taken = not a.dim or #a.dim == 0
      for _, e in ipairs(a.dim or {}) do taken = taken or dim_of(e, a.input) == d - 1 end
      if taken then n = n * size end
    end
    shapes[i] = {n}
  end
  if g:varies(shapes) then g:refuse "the number of elements cannot depend on a dynamic axis" end
  local correction = a.unbiased == false and 0 or a.correction
  local y = reduce(g, "ReduceSum", g:Mul(off, off), a.dim, a.keepdim)
  return g:Div(y, n - correction)
end

ops.var = variance
function ops.std(g, a) return g:Sqrt(variance(g, a)) end
function ops.var_mean(g, a) return ops.var(g, a), ops.mean(g, a) end
function ops.std_mean(g, a) return ops.std(g, a), ops.mean(g, a) end

function ops.norm_p(g, a)
  if a.p == 1 then return reduce(g, "ReduceL1", a.input, a.dim, a.keepdim) end
  if a.p == 2 then return reduce(g, "ReduceL2", a.input, a.dim, a.keepdim) end
  if a.p == math.huge then return reduce(g, "ReduceMax", g:Abs(a.input), a.dim, a.keepdim) end
  local y = reduce(g, "ReduceSum", g:Pow(g:Abs(a.input), a.p), a.dim, a.keepdim)
  return g:Pow(y, 1 / a.p)
end

function ops.normalize(g, a)
  local y = ops.norm_p(g, {input = a.input, p = a.p, dim = {a.dim}, keepdim = true})
  return g:Div(a.input, g:Max(y, a.eps))
end

function ops.cumsum(g, a) return g:CumSum(a.input, g:constant(a.dim, I64)) end

function ops.topk(g, a)
  return g:TopK(a.input, g:ints {a.k}, {axis = a.dim, outputs = 2,
    largest = a.largest and 1 or 0, sorted = a.sorted and 1 or 0})
end

local function sorted(g, a)
  local d = dim_of(a.dim, a.input)
  local sizes = {}
  for i = 1, g.readings do sizes[i] = {a.input.shapes[i][d + 1]} end
  return g:TopK(a.input, g:sizes_of(sizes, "a size"),
    {axis = d, outputs = 2, largest = a.descending and 1 or 0})
end
function ops.sort(g, a) return sorted(g, a) end
function ops.argsort(g, a) return (select(2, sorted(g, a))) end

-- ---- creation; called only if it depends on the sizes of inputs ----

local function filled(value)
  return function(g, a, c)
    local y = c.results[1]
    local x = value or a.fill_value
    return g:Expand(g:constant(x, y.dtype), g:sizes_of(y.shapes, "a size"))
  end
end
sized.zeros, sized.ones, sized.full = filled(0), filled(1), filled(nil)
sized.zeros_like, sized.ones_like, sized.full_like = sized.zeros, sized.ones, sized.full
sized.empty = sized.zeros

function ops.fill(g, a) return g:Expand(a.value, g:Shape(a.input)) end
function ops.zero(g, a) return g:Expand(0, g:Shape(a.input)) end
function ops.copy(g, a) return g:Expand(a.source, g:Shape(a.input)) end

function sized.arange(g, a, c)
  local code = c.results[1].dtype
  if a.start ~= math.floor(a.start) or a.step ~= math.floor(a.step) then
    g:refuse "its arguments depend on a dynamic axis and are not integers"
  end
  local function number(field)
    local lists = each(g, c, function(args) return {args[field]} end)
    return g:Squeeze(g:sizes_of(lists, "a number"))
  end
  local y = g:Range(number "start", number "stop", number "step")
  return code == I64 and y or g:Cast(y, {to = proto.types[code]})
end

return {ops = ops, sized = sized}
