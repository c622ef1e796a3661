--- shapes.lua -- nodes of an ONNX graph that reshape, slice, join and create tensors.

local M = require "moth"
local rows = require "moth.onnx.load.rows"

local F = M.nn.functional
local N, row, refuse, place, dim = rows.N, rows.row, rows.refuse, rows.place, rows.dim

-- ---- shapes ----

N.Shape = row("start=0 end:int", function(a, x)
  local list, n, part = rows.shape(x), x:dim(), {}
  local first, last = a.start, a["end"] or n
  if first < 0 then first = math.max(first + n, 0) end
  if last < 0 then last = last + n end
  for d = first + 1, math.min(last, n) do part[#part + 1] = list[d] end
  return M.tensor(part, {dtype = M.int64})
end)
N.Size = row("", function(_, x) return M.tensor(x:numel(), {dtype = M.int64}) end)

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
      refuse("dimension %d has size %d and cannot be removed", axis, x:size(list[k]))
    end
  end
  return #list == 0 and x or x:squeeze(list)
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
N.Tile = row("2", function(_, x, counts, axis)
  if axis then -- opset 1: how often along which axis
    local list = {}
    for d = 1, x:dim() do list[d] = d == place(x, axis[1]) and counts[1] or 1 end
    counts = list
  end
  return x:tile(counts)
end, "2 3")
N.Concat = row("axis:int!", function(a, x, ...) return M.cat({x, ...}, dim(a.axis)) end)
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

-- A slice from `first` (from 0) to before `last`, with a step.
local function slice(x, d, first, last, step)
  local n = x:size(d)
  if step == 0 then refuse "steps of 0" end
  if first < 0 then first = first + n end
  if last < 0 then last = last + n end
  if step > 0 then first, last = math.max(first, 0), math.min(last, n)
  else first, last = math.min(math.max(first, 0), n - 1), math.max(last, -1) end
  local count = math.max(math.ceil((last - first) / step), 0)
  if step == 1 or count == 0 then return x:narrow(d, count == 0 and 1 or first + 1, count) end
  if step < 0 then x, first, step = x:flip(d), n - 1 - first, -step end
  local index = {}
  for k = 1, d - 1 do index[k] = {} end
  index[d] = {first + 1, first + (count - 1) * step + 1, step}
  return x[index]
end

N.Slice = row("starts:ints ends:ints axes:ints", function(a, x, starts, ends, axes, steps)
  starts, ends, axes = starts or a.starts, ends or a.ends, axes or a.axes
  if not (starts and ends) then refuse "no starts or ends" end
  for k, first in ipairs(starts) do
    x = slice(x, place(x, axes and axes[k] or k - 1), first, ends[k], steps and steps[k] or 1)
  end
  return x
end, "2 3 4 5")

local MODES = {constant = "constant", reflect = "reflect", edge = "replicate", wrap = "circular"}

-- x padded along a dimension, by mode.
local function beyond(x, d, before, after, mode)
  local n, list = x:size(d), {}
  for i = -before, n - 1 + after do
    local at
    if mode == "wrap" then at = i % n
    elseif mode == "edge" then at = math.min(math.max(i, 0), n - 1)
    else
      at = n == 1 and 0 or i % (2 * n - 2)
      if at >= n then at = 2 * n - 2 - at end
    end
    list[#list + 1] = at + 1
  end
  return x:index_select(d, M.tensor(list, {dtype = M.int64}):to(x.device))
end

-- Checks that F.pad applies: only the last three dimensions, within the limits of the mode.
local function padded_by_moth(x, before, after, mode)
  local n = x:dim()
  if mode == "constant" then return true end
  for d = 1, n do
    local most = math.max(before[d], after[d])
    if most > 0 and (d < n - 2 or d < 2 or not x:is_floating_point())
       or before[d] < 0 or after[d] < 0 or mode == "reflect" and most >= x:size(d)
       or mode == "wrap" and most > x:size(d) then
      return false
    end
  end
  return n <= 5
end

N.Pad = row("mode=constant pads:ints value=0.0", function(a, x, pads, value, axes)
  local n, before, after = x:dim(), {}, {}
  pads = pads or a.pads
  if not pads then refuse "no pads" end
  for d = 1, n do before[d], after[d] = 0, 0 end
  local count = #pads / 2
  for k = 1, count do
    local d = axes and place(x, axes[k]) or k
    before[d], after[d] = pads[k], pads[k + count]
  end
  if not MODES[a.mode] then refuse("mode %s", rows.quoted(a.mode)) end
  if not padded_by_moth(x, before, after, a.mode) then
    for d = 1, n do
      if before[d] ~= 0 or after[d] ~= 0 then x = beyond(x, d, before[d], after[d], a.mode) end
    end
    return x
  end
  local first, list = 1, {}
  while first < n and before[first] == 0 and after[first] == 0 do first = first + 1 end
  for d = n, first, -1 do list[#list + 1], list[#list + 2] = before[d], after[d] end
  return F.pad(x, list, {mode = MODES[a.mode], value = value and value[1] or a.value})
end, "2 3 4")

-- Crops to the center, or pads zeros on both sides; the smaller half comes first.
N.CenterCropPad = row("2 axes:ints", function(a, x, shape)
  for k, size in ipairs(shape) do
    local d = a.axes and place(x, a.axes[k]) or k
    local now = x:size(d)
    if now > size then
      x = x:narrow(d, math.floor((now - size) / 2) + 1, size)
    elseif now < size then
      local list, before = {}, math.floor((size - now) / 2)
      for i = 1, 2 * (x:dim() - d) do list[i] = 0 end
      list[#list + 1], list[#list + 2] = before, size - now - before
      x = F.pad(x, list)
    end
  end
  return x
end, "2")

N.Trilu = row("upper=1", function(a, x, k)
  local f = a.upper == 1 and M.triu or M.tril
  return f(x, k and k[1] or 0)
end, "2")

N.ReverseSequence = row("2 batch_axis=1 time_axis=0", function(a, x, lengths)
  local batch, time = place(x, a.batch_axis), place(x, a.time_axis)
  local n = x:size(time)
  local at = M.arange(1, n + 1):to(x.device):unsqueeze(-1)
  local length = lengths:long():unsqueeze(1)
  at = M.where(at:le(length), length + 1 - at, at) -- (time, batch)
  if batch < time then at = at:t() end
  for d = 1, x:dim() do
    if d ~= batch and d ~= time then at = at:unsqueeze(d) end
  end
  return x:gather(time, at:expand(rows.shape(x)))
end)

local function blocks(f)
  return function(a, x)
    local n, c, h, w = x:size(1), x:size(2), x:size(3), x:size(4)
    if a.mode ~= "DCR" and a.mode ~= "CRD" then refuse("mode %s", rows.quoted(a.mode)) end
    return f(x, n, c, h, w, a.blocksize, a.mode)
  end
end
N.DepthToSpace = row("blocksize:int! mode=DCR", blocks(function(x, n, c, h, w, b, mode)
  if mode == "CRD" then return F.pixel_shuffle(x, b) end
  return x:reshape(n, b, b, c / (b * b), h, w):permute(1, 4, 5, 2, 6, 3)
    :reshape(n, c / (b * b), h * b, w * b)
end))
N.SpaceToDepth = row("blocksize:int! mode=DCR", blocks(function(x, n, c, h, w, b, mode)
  x = x:reshape(n, c, h / b, b, w / b, b)
  x = mode == "CRD" and x:permute(1, 2, 4, 6, 3, 5) or x:permute(1, 4, 6, 2, 3, 5)
  return x:reshape(n, c * b * b, h / b, w / b)
end))

N.Compress = row("2 axis:int", function(a, x, mask)
  local at = mask:nonzero():select(2, 1)
  if not a.axis then return x:reshape(-1):index_select(1, at) end
  return x:index_select(dim(a.axis), at)
end, nil, "loose")

-- ---- creation ----

N.ConstantOfShape = row("value:tensor", function(a, shape)
  local value = a.value or M.zeros(1)
  return M.full(shape, value:reshape(-1)[1]:item(), {dtype = value.dtype})
end, "1")
N.Range = row("3 stash_type=1", function(_, first, last, step)
  return M.arange(first:item(), last:item(), step:item(), {dtype = first.dtype,
    device = first.device})
end, nil, "loose")
N.EyeLike = row("dtype:int k=0", function(a, x)
  local n, m = x:size(1), x:size(2)
  local i, j = M.arange(n):unsqueeze(2), M.arange(m)
  return j:sub(i):eq(a.k):to(a.dtype and rows.dtype(a.dtype) or x.dtype):to(x.device)
end)

return rows
