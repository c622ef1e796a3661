--- norm.lua -- normalization nodes of an ONNX graph.

local M = require "moth"
local rows = require "moth.onnx.load.rows"

local F = M.nn.functional
local N, row = rows.N, rows.row

-- The mean and the biased variance over the dims of each channel.
local function statistics(x, dims)
  return x:mean {dim = dims}, x:var {dim = dims, unbiased = false}
end

-- Training mode: normalizes by the batch statistics and returns the new running statistics.
N.BatchNormalization = row("5 epsilon=1e-5. momentum=0.9 training_mode=0 spatial=1!",
  function(a, x, weight, bias, mean, var)
    if a.training_mode == 0 then
      return F.batch_norm(x, mean, var, weight, bias, false, 0, a.epsilon)
    end
    local dims, shape = {}, {1, -1}
    for d = 1, x:dim() do
      if d ~= 2 then dims[#dims + 1] = d end
      if d > 2 then shape[d] = 1 end
    end
    local now, spread = statistics(x, dims)
    local scale = (spread:reshape(shape) + a.epsilon):rsqrt() * weight:reshape(shape)
    local y = (x - now:reshape(shape)) * scale + bias:reshape(shape)
    local m = a.momentum
    return y:to(x.dtype), mean * m + now:to(mean.dtype) * (1 - m),
      var * m + spread:to(var.dtype) * (1 - m)
  end)
N.InstanceNormalization = row("3 epsilon=1e-5.", function(a, x, weight, bias)
  return F.instance_norm(x, {weight = weight, bias = bias, eps = a.epsilon})
end)

-- The sizes from an axis on, and their product.
local function from_axis(x, axis)
  local shape, n = {}, 1
  for d = rows.place(x, axis), x:dim() do
    local size = x:size(d)
    shape[#shape + 1], n = size, n * size
  end
  return shape, n
end

-- Returns true if a weight is absent or has exactly that shape, not only one that broadcasts.
local function of_shape(weight, shape, n)
  return not weight or weight:numel() == n and weight:dim() == #shape
end

N.LayerNormalization = row("2 axis=-1 epsilon=1e-5. stash_type=1", function(a, x, weight, bias)
  local shape, n = from_axis(x, a.axis)
  local y
  if of_shape(weight, shape, n) and of_shape(bias, shape, n) then
    y = F.layer_norm(x, shape, weight, bias, a.epsilon)
  else -- weights that are broadcast
    y = F.layer_norm(x, shape, nil, nil, a.epsilon) * weight
    if bias then y = y + bias end
  end
  if a.noutputs == 1 then return y end
  local dims = {}
  for d = rows.place(x, a.axis), x:dim() do dims[#dims + 1] = d end
  local wide = a.stash_type == 1 and rows.wide(x) or x
  local mean = wide:mean {dim = dims, keepdim = true}
  local var = wide:var {dim = dims, keepdim = true, unbiased = false}
  return y, mean, (var + a.epsilon):rsqrt()
end)
N.RMSNormalization = row("2 axis=-1 epsilon=1e-5. stash_type=1", function(a, x, weight)
  local shape, n = from_axis(x, a.axis)
  if of_shape(weight, shape, n) then return F.rms_norm(x, shape, weight, a.epsilon) end
  return F.rms_norm(x, shape, nil, a.epsilon) * weight
end)
local GROUPS = "3 num_groups:int! epsilon=1e-5. stash_type=1"
N.GroupNormalization = row(GROUPS, function(a, x, weight, bias)
  if a.opset < 21 then -- one weight for each group
    local per = x:size(2) / a.num_groups
    weight, bias = weight:repeat_interleave(per), bias:repeat_interleave(per)
  end
  return F.group_norm(x, a.num_groups, weight, bias, a.epsilon)
end)
N.LpNormalization = row("axis=-1 p=2", function(a, x)
  local d = rows.dim(a.axis)
  local norm = x:norm {p = a.p, dim = d, keepdim = true}
  return M.where(norm:eq(0), 0, x / norm):to(x.dtype)
end)

N.MeanVarianceNormalization = row("axes:ints", function(a, x)
  local dims = {}
  for k, axis in ipairs(a.axes or {0, 2, 3}) do dims[k] = rows.dim(axis) end
  local apart = x - x:mean {dim = dims, keepdim = true}
  local var = (apart * apart):mean {dim = dims, keepdim = true}
  return apart / (var:sqrt() + 1e-9)
end)

-- Local response normalization (Krizhevsky et al. 2012). An even size has its extra channel
-- behind, PyTorch has it before.
N.LRN = row("alpha=1e-4. beta=0.75 bias=1.0 size:int!", function(a, x)
  local before, after = math.floor((a.size - 1) / 2), math.ceil((a.size - 1) / 2)
  local n, c = x:dim(), x:size(2)
  local list = {}
  for i = 1, 2 * (n - 2) do list[i] = 0 end
  list[#list + 1], list[#list + 2] = before, after
  local squares, total = F.pad(x * x, list), nil
  for k = 1, a.size do
    local part = squares:narrow(2, k, c)
    total = total and total + part or part
  end
  return x / (total * (a.alpha / a.size) + a.bias):pow(a.beta)
end)

return rows
