--- pool.lua -- pooling nodes of an ONNX graph.

local lib = require "moth.binding.lib"
local M = require "moth"
local rows = require "moth.onnx.load.rows"
local windows = require "moth.onnx.load.windows"

local N, row, refuse = rows.N, rows.row, rows.refuse
local ranked, equal = windows.ranked, windows.equal

-- ---- windows in general ----

-- Sizes of the result. With ceil_mode a window may start before the padding at the end.
local function counts(a, x, kernel, strides, dilations, before, after)
  local list = {}
  for d = 1, #kernel do
    local size = x:size(d + 2)
    local left = size + before[d] + after[d] - (kernel[d] - 1) * dilations[d] - 1
    if a.ceil_mode == 1 then
      list[d] = math.ceil(left / strides[d]) + 1
      if (list[d] - 1) * strides[d] >= size + before[d] then list[d] = list[d] - 1 end
    else
      list[d] = math.floor(left / strides[d]) + 1
    end
    if list[d] < 1 then refuse("a window of %d does not fit %d elements", kernel[d], size) end
  end
  return list
end

-- Pads x with `value` so that exactly `sizes` windows fit; returns a view for each tap.
local function taps(x, kernel, strides, dilations, before, sizes, value)
  local after, n, list = {}, #kernel, {}
  for d = 1, n do
    local last = (sizes[d] - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1
    after[d] = last - before[d] - x:size(d + 2)
  end
  x = windows.padded(x, before, after, value)
  local at = lib.filled(n, 0)
  while at do
    local index = {{}, {}}
    for d = 1, n do
      local first = at[d] * dilations[d] + 1
      index[d + 2] = {first, first + (sizes[d] - 1) * strides[d], strides[d]}
    end
    list[#list + 1] = {x[index], {unpack(at)}}
    local d = n
    while d > 0 and at[d] == kernel[d] - 1 do at[d], d = 0, d - 1 end
    if d == 0 then at = nil else at[d] = at[d] + 1 end
  end
  return list
end

-- Checks that Moth's own pool applies: its padding is equal on both sides and at most half the
-- window.
local function usual(kernel, before, after)
  local good = equal(before, after)
  for d = 1, #kernel do good = good and before[d] <= kernel[d] / 2 end
  return good
end

-- ---- max pools ----

-- Row-major positions in the whole tensor from positions in planes; with storage_order 1 the
-- plane's dimensions are in reverse order.
local function everywhere(a, x, at)
  local size, n = 1, x:dim()
  for d = 3, n do size = size * x:size(d) end
  if a.storage_order == 1 then
    local rest, place, factor = at, 0, 1
    local sizes, parts = {}, {}
    for d = n, 3, -1 do
      parts[d], sizes[d] = rest % x:size(d), x:size(d)
      rest = rest:div(x:size(d), {rounding_mode = "floor"})
    end
    for d = 3, n do
      place = parts[d] * factor + place
      factor = factor * sizes[d]
    end
    at = place
  end
  local planes = M.arange(x:size(1) * x:size(2)):to(x.device)
  local shape = lib.filled(n, 1)
  shape[1], shape[2] = x:size(1), x:size(2)
  return planes:reshape(shape) * size + at
end

-- The maximum of each window, and its position in the plane, from 0.
local function largest(x, kernel, strides, dilations, before, sizes)
  local list = taps(x, kernel, strides, dilations, before, sizes,
    rows.whole(x) and (x.dtype == M.uint8 and 0 or -128) or -math.huge)
  local values = {}
  for t, tap in ipairs(list) do values[t] = tap[1] end
  local all = M.stack(values, 1)
  local best, tap = all:max(1)
  local at = M.zeros_like(tap)
  for d = 1, #kernel do
    local offsets, own = {}, lib.filled(x:dim(), 1)
    for t = 1, #list do offsets[t] = list[t][2][d] * dilations[d] - before[d] end
    own[d + 2] = sizes[d]
    local start = (M.arange(sizes[d]) * strides[d]):reshape(own):to(x.device)
    local offset = M.tensor(offsets, {dtype = M.int64}):to(x.device)
    at = at * x:size(d + 2) + start + offset[tap]
  end
  return best, at
end

N.MaxPool = row("kernel_shape:ints!" .. windows.ATTRIBUTES .. "ceil_mode=0 storage_order=0",
  function(a, x)
    local kernel = a.kernel_shape
    local strides, dilations = windows.steps(a, #kernel)
    local before, after = windows.padding(a, x, kernel, strides, dilations)
    local best, at
    if usual(kernel, before, after) and not rows.whole(x) then
      best, at = ranked("max_pool", #kernel)(x, {kernel_size = kernel, stride = strides,
        padding = before, dilation = dilations, ceil_mode = a.ceil_mode == 1,
        return_indices = a.noutputs > 1})
      at = at and at - 1
    elseif a.noutputs == 1 and not rows.whole(x) and a.ceil_mode == 0 then
      best = ranked("max_pool", #kernel)(windows.padded(x, before, after, -math.huge),
        {kernel_size = kernel, stride = strides, dilation = dilations})
    else
      best, at = largest(x, kernel, strides, dilations, before,
        counts(a, x, kernel, strides, dilations, before, after))
    end
    return best, at and a.noutputs > 1 and everywhere(a, x, at) or nil
  end)

-- Zeros, with values written at positions in the whole tensor.
N.MaxUnpool = row("2 kernel_shape:ints! pads:ints strides:ints", function(a, x, at, shape)
  local n, least = #a.kernel_shape, {x:size(1), x:size(2)}
  local strides = windows.steps(a, n)
  for d = 1, n do
    least[d + 2] = (x:size(d + 2) - 1) * strides[d] + a.kernel_shape[d]
      - (a.pads and a.pads[d] + a.pads[d + n] or 0)
  end
  local size, more = 1, shape and #shape > 0 and shape
  for d = 1, n + 2 do size = size * least[d] end
  local y = M.zeros({size}, rows.as(x)):scatter(1, at:reshape(-1):long() + 1, x:reshape(-1))
    :reshape(least)
  if not more then return y end
  -- Positions refer to the smallest shape; the rest of a larger shape is zero.
  local index = {}
  for d = 1, n + 2 do index[d] = more[d] - least[d] end
  return windows.padded(y, lib.filled(n + 2, 0), index, 0)
end, "3")

-- ---- averages and norms ----

-- Window sums of x, divided by the number of elements of x (or of the padded x) in the window.
local function means(a, x, kernel, strides, dilations, before, after)
  local sizes = counts(a, x, kernel, strides, dilations, before, after)
  local total, inside
  for _, tap in ipairs(taps(x, kernel, strides, dilations, before, sizes, 0)) do
    total = total and total + tap[1] or tap[1]
  end
  local one = M.ones({1, 1, unpack(x.shape, 3)}, rows.as(x))
  if a.count_include_pad == 1 then one = windows.padded(one, before, after, 1) end
  local first = a.count_include_pad == 1 and lib.filled(#kernel, 0) or before
  for _, tap in ipairs(taps(one, kernel, strides, dilations, first, sizes, 0)) do
    inside = inside and inside + tap[1] or tap[1]
  end
  return total / inside
end

N.AveragePool = row("kernel_shape:ints!" .. windows.ATTRIBUTES
  .. "ceil_mode=0 count_include_pad=0", function(a, x)
  local kernel = a.kernel_shape
  local n = #kernel
  local strides, dilations = windows.steps(a, n)
  local before, after = windows.padding(a, x, kernel, strides, dilations)
  local plain = equal(dilations, lib.filled(n, 1))
  if plain and (a.count_include_pad == 1 and a.ceil_mode == 0 or usual(kernel, before, after)) then
    if not usual(kernel, before, after) then
      x, before = windows.padded(x, before, after, 0), lib.filled(n, 0)
    end
    return ranked("avg_pool", n)(x, {kernel_size = kernel, stride = strides, padding = before,
      ceil_mode = a.ceil_mode == 1, count_include_pad = a.count_include_pad == 1})
  end
  return means(a, x, kernel, strides, dilations, before, after)
end)

N.LpPool = row("kernel_shape:ints!" .. windows.ATTRIBUTES .. "ceil_mode=0 p=2", function(a, x)
  local kernel = a.kernel_shape
  local strides, dilations = windows.steps(a, #kernel)
  local before, after = windows.padding(a, x, kernel, strides, dilations)
  local sizes = counts(a, x, kernel, strides, dilations, before, after)
  local total
  for _, tap in ipairs(taps(x:abs():pow(a.p), kernel, strides, dilations, before, sizes, 0)) do
    total = total and total + tap[1] or tap[1]
  end
  return total:pow(1 / a.p)
end)

local function rest(x)
  local dims = {}
  for d = 3, x:dim() do dims[d - 2] = d end
  return {dim = dims, keepdim = true}
end

local function global(name)
  return row("", function(_, x) return M[name](x, rest(x)) end)
end
N.GlobalAveragePool, N.GlobalMaxPool = global "mean", global "amax"
N.GlobalLpPool = row("p=2", function(a, x)
  return x:abs():pow(a.p):sum(rest(x)):pow(1 / a.p)
end)

return rows
