--- norm.lua -- batch normalization with the statistics of the batches of all processes, for
-- nn.SyncBatchNorm.

local class = require "moth.base.class"
local lib = require "moth.binding.lib"

local moth = lib.anchor.moth
local dist = moth.distributed

-- The sum over the processes. Its gradient is the sum of the gradients.
local Sum = class("AllReduceSum", moth.autograd.Function)

function Sum.forward(ctx, x, group)
  ctx.group = group
  local y = x:clone()
  dist.all_reduce(y, "sum", group)
  return y
end

function Sum.backward(ctx, dy) return (Sum.forward(ctx, dy:contiguous(), ctx.group)) end

-- @param momentum  of the running statistics
return function(layer, x, momentum)
  local group = layer.process_group
  local dims, shape = {1}, {1, x:size(2)}
  for d = 3, x:dim() do dims[#dims + 1], shape[d] = d, 1 end
  local wide = x:float()
  local count =
    moth.full({1}, x:numel() / x:size(2), {dtype = wide.dtype, device = wide.device})
  -- The sums and the number of elements travel in one message.
  local sums = Sum.apply(moth.cat {wide:sum(dims), count}, group)
  local n = sums[-1]
  local mean = sums:narrow(1, 1, x:size(2)) / n
  local centered = wide - mean:view(shape)
  local var = Sum.apply(centered:square():sum(dims), group) / n
  if layer.training and layer.track_running_stats then
    moth.no_grad(function()
      layer.running_mean:mul_(1 - momentum):add_(mean, {alpha = momentum})
      layer.running_var:mul_(1 - momentum):add_(var * (n / (n - 1)), {alpha = momentum})
    end)
  end
  local y = centered * (var + layer.eps):rsqrt():view(shape)
  if layer.weight ~= nil then y = y * layer.weight:view(shape) end
  if layer.bias ~= nil then y = y + layer.bias:view(shape) end
  return y:to(x.dtype)
end
