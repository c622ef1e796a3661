--- index.lua -- nodes of an ONNX graph that read, write or find positions.

local M = require "moth"
local rows = require "moth.onnx.load.rows"

local N, row, refuse = rows.N, rows.row, rows.refuse
local place, dim, positions = rows.place, rows.dim, rows.positions

-- ---- finding positions ----

N.NonZero = row("", function(_, x)
  if x:dim() == 0 then x = x:reshape(1) end
  return x:nonzero():t() - 1
end, nil, "loose")

local function position(name)
  return row("axis=0 keepdims=1 select_last_index=0", function(a, x)
    local d, n = dim(a.axis), nil
    if a.select_last_index == 1 then
      n = x:size(d)
      x = x:flip {d}
    end
    local at = M[name](x, {dim = d, keepdim = a.keepdims == 1})
    return n and n - at or at - 1
  end)
end
N.ArgMax, N.ArgMin = position "argmax", position "argmin"

N.TopK = row("axis=-1 largest=1 sorted=1 k:int", function(a, x, k)
  local n = k and k[1] or a.k
  if not n then refuse "no k" end
  local values, at = x:topk(n, {dim = dim(a.axis), largest = a.largest == 1,
                                 sorted = a.sorted == 1})
  return values, at - 1
end, "2")

-- The unique values, the first position of each, the inverse indices, and the counts.
N.Unique = row("axis:int sorted=1", function(a, x)
  local flat = not a.axis
  if flat then x = x:reshape(-1) end
  local d = flat and 1 or place(x, a.axis)
  local values, inverse, counts = M.unique(x, {return_inverse = true, return_counts = true,
                                                dim = not flat and d or nil})
  local n, size = values:size(d), x:size(d)
  local at = M.arange(1, size + 1):to(x.device)
  local first = M.full({n}, size, {dtype = M.int64, device = x.device})
    :scatter_reduce(1, inverse, at, "amin")
  if a.sorted == 0 then -- in order of first occurrence
    local order = first:argsort()
    values, first, counts = values:index_select(d, order), first[order], counts[order]
    inverse = order:argsort()[inverse]
  end
  return values, first - 1, inverse - 1, counts
end, nil, "loose")

N.OneHot = row("3 axis=-1", function(a, i, depth, values)
  local at = positions(i, depth[1]):unsqueeze(-1)
  local y = M.where(at:eq(M.range(1, depth[1]):to(i.device)), values[2], values[1])
  return a.axis == -1 and y or y:movedim(-1, place(i, a.axis, 1))
end, "2")

-- ---- gather ----

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

-- The columns of positions (..., k), one for each dimension of x.
local function columns(x, i)
  local list = {}
  for k = 1, i:size(-1) do list[k] = positions(i:select(-1, k), x:size(k)) end
  return list
end

N.GatherND = row("2 batch_dims=0", function(a, x, i)
  local b = a.batch_dims
  if b == 0 then return x[columns(x, i)] end
  local batch = {}
  for k = 1, b do batch[k] = x:size(k) end
  local n = 1
  for k = 1, b do n = n * batch[k] end
  -- Merge the batch dimensions; the position in that dimension is an arange.
  local inner = {n}
  for k = b + 1, x:dim() do inner[#inner + 1] = x:size(k) end
  local at, outer = {n}, {unpack(batch)}
  for k = b + 1, i:dim() do at[#at + 1] = i:size(k) end
  x, i = x:reshape(inner), i:reshape(at)
  local list, own = {}, {n}
  for k = 2, i:dim() - 1 do own[k] = 1 end
  list[1] = M.arange(1, n + 1):to(x.device):reshape(own):expand({unpack(at, 1, #at - 1)})
  for k = 1, i:size(-1) do list[k + 1] = positions(i:select(-1, k), x:size(k + 1)) end
  local y = x[list]
  for k = 2, y:dim() do outer[#outer + 1] = y:size(k) end
  return y:reshape(outer)
end)

-- ---- scatter ----

local REDUCTIONS = {add = "sum", mul = "prod", max = "amax", min = "amin"}

local function reduction(name)
  return REDUCTIONS[name] or refuse("reduction %s", rows.quoted(name))
end

N.ScatterND = row("3 reduction=none", function(a, x, i, values)
  local list = columns(x, i)
  if a.reduction == "none" or a.reduction == "add" then
    return M.index_put(x, list, values, a.reduction == "add")
  end
  -- Slices as rows, and their row-major positions.
  local how, shape, n, size = reduction(a.reduction), rows.shape(x), 1, 1
  local at = M.zeros(rows.shape(i:select(-1, 1)), {dtype = M.int64, device = x.device})
  for k = 1, #list do
    at = at * shape[k] + (list[k] - 1)
    n = n * shape[k]
  end
  for k = #list + 1, #shape do size = size * shape[k] end
  at = (at + 1):reshape(-1, 1):expand(-1, size)
  return x:reshape(n, size):scatter_reduce(1, at, values:reshape(-1, size), how):reshape(shape)
end)
N.ScatterElements = row("3 axis=0 reduction=none", function(a, x, i, values)
  local d = place(x, a.axis)
  local at = positions(i, x:size(d))
  if a.reduction == "none" then return x:scatter(d, at, values) end
  return x:scatter_reduce(d, at, values, reduction(a.reduction))
end)
N.Scatter = N.ScatterElements -- its name before opset 11

-- Writes new keys or values into a cache, each batch element at its own position.
N.TensorScatter = row("2 mode=linear axis=-2", function(a, cache, update, starts)
  local d, size = place(cache, a.axis), cache:size(place(cache, a.axis))
  local steps = M.arange(update:size(d)):to(cache.device)
  local at = steps:unsqueeze(1):expand(cache:size(1), -1)
  if starts then at = at + starts:long():unsqueeze(2) end
  if a.mode == "circular" then at = at % size
  elseif a.mode ~= "linear" then refuse("mode %s", rows.quoted(a.mode)) end
  local shape = {}
  for k = 1, cache:dim() do
    shape[k] = k == 1 and cache:size(1) or k == d and update:size(d) or 1
  end
  return cache:scatter(d, (at + 1):reshape(shape):expand(rows.shape(update)), update)
end)

return rows
