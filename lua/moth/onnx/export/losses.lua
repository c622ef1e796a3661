--- losses.lua -- ONNX nodes of losses. The rows have the form of elements.lua.

local lib = require "moth.binding.lib"

local C = lib.C
local I64 = C.MOTH_I64
local ops = {}

local function reduced(g, y, reduction)
  if reduction == "none" then return y end
  return g[reduction == "sum" and "ReduceSum" or "ReduceMean"](g, y, {keepdims = 0})
end

-- ---- element by element ----

function ops.mse_loss(g, a)
  local d = g:Sub(a.input, a.target)
  return reduced(g, g:Mul(d, d), a.reduction)
end

function ops.l1_loss(g, a) return reduced(g, g:Abs(g:Sub(a.input, a.target)), a.reduction) end

function ops.smooth_l1_loss(g, a)
  local d = g:Abs(g:Sub(a.input, a.target))
  if a.beta == 0 then return reduced(g, d, a.reduction) end
  local y = g:Where(g:Less(d, a.beta), g:Mul(g:Mul(d, d), 0.5 / a.beta), g:Sub(d, a.beta / 2))
  return reduced(g, y, a.reduction)
end

function ops.huber_loss(g, a)
  local d = g:Abs(g:Sub(a.input, a.target))
  local y = g:Where(g:Less(d, a.delta), g:Mul(g:Mul(d, d), 0.5),
    g:Mul(g:Sub(d, a.delta / 2), a.delta))
  return reduced(g, y, a.reduction)
end

-- Logarithms are bounded from below by -100, as in PyTorch.
function ops.binary_cross_entropy(g, a)
  local function bounded_log(x) return g:Max(g:Log(x), -100) end
  local x, t = a.input, a.target
  local y = g:Neg(g:Add(g:Mul(t, bounded_log(x)),
    g:Mul(g:Sub(1, t), bounded_log(g:Sub(1, x)))))
  if a.weight then y = g:Mul(y, a.weight) end
  return reduced(g, y, a.reduction)
end

-- (1 - t) x + (1 + (p - 1) t) log(1 + exp(-x))
function ops.binary_cross_entropy_with_logits(g, a)
  local x, t = a.input, a.target
  local soft = g:Softplus(g:Neg(x))
  if a.pos_weight then
    soft = g:Mul(soft, g:Add(g:Mul(g:Sub(a.pos_weight, 1), t), 1))
  end
  local y = g:Add(g:Mul(g:Sub(1, t), x), soft)
  if a.weight then y = g:Mul(y, a.weight) end
  return reduced(g, y, a.reduction)
end

function ops.kl_div(g, a)
  local t, y = a.target
  if a.log_target then
    y = g:Mul(g:Exp(t), g:Sub(t, a.input))
  else -- 0 log 0 is 0
    local log = g:Log(g:Where(g:Equal(t, 0), 1, t))
    y = g:Mul(t, g:Sub(log, a.input))
  end
  if a.reduction ~= "batchmean" then return reduced(g, y, a.reduction) end
  local n = g:Cast(g:Gather(g:Shape(a.input), g:constant(0, I64)),
    {to = require("moth.onnx.proto").types[g.dtype]})
  return g:Div(reduced(g, y, "sum"), n)
end

-- ---- classes ----

-- A number for each class, in a shape that broadcasts with (N, C, ...).
local function per_class(g, weight, rank)
  local shape = lib.filled(math.max(rank, 2), 1)
  shape[2] = -1
  return g:Reshape(weight, g:ints(shape))
end

-- ignore_index in the file: less 1 if the targets were converted to count from 0 there.
local function ignored_class(a)
  local target = a.target
  local shifted = a.ignore_index < 0 and target.dynamic and target.node
    and (target.node.name == "to_index" or target.node.name:find "^positions")
  return shifted and a.ignore_index - 1 or a.ignore_index
end

-- The loss of log probabilities (N, C, ...) at target.
local function of_classes(g, log_p, a, rank, smoothing)
  local x, target = log_p, a.target
  if rank == 1 then -- one sample without a batch
    x, target = g:Unsqueeze(x, g:ints {0}), g:Unsqueeze(target, g:ints {0})
  end
  local kept = g:Not(g:Equal(target, g:constant(ignored_class(a), I64)))
  local class = g:Where(kept, target, g:constant(0, I64))
  local axis = g:ints {1}
  local picked = g:GatherElements(x, g:Unsqueeze(class, axis), {axis = 1})
  local each = g:Neg(g:Squeeze(picked, axis))
  local weight = a.weight and g:Gather(a.weight, class, {axis = 0})
  if weight then each = g:Mul(each, weight) end
  if smoothing > 0 then
    local all = a.weight and g:Mul(x, per_class(g, a.weight, rank)) or x
    local classes = a.input.shapes[1][rank == 1 and 1 or 2]
    each = g:Sub(g:Mul(each, 1 - smoothing),
      g:Mul(g:ReduceSum(all, axis, {keepdims = 0}), smoothing / classes))
  end
  each = g:Where(kept, each, 0)
  if a.reduction == "none" then
    return rank == 1 and g:Squeeze(each, g:ints {0}) or each
  end
  local sum = g:ReduceSum(each, {keepdims = 0})
  if a.reduction == "sum" then return sum end
  return g:Div(sum, g:ReduceSum(g:Where(kept, weight or 1, 0), {keepdims = 0}))
end

function ops.nll_loss(g, a)
  return of_classes(g, g:Identity(a.input), a, #a.input.shapes[1], 0)
end

local function log_softmax(g, x)
  return g:LogSoftmax(x, {axis = #x.shapes[1] == 1 and 0 or 1})
end

function ops.cross_entropy(g, a)
  return of_classes(g, log_softmax(g, a.input), a, #a.input.shapes[1], a.label_smoothing)
end

function ops.cross_entropy_soft(g, a)
  local rank = #a.input.shapes[1]
  local dim = rank == 1 and 0 or 1
  local classes, target = a.input.shapes[1][dim + 1], a.target
  if a.label_smoothing > 0 then
    target = g:Add(g:Mul(target, 1 - a.label_smoothing), a.label_smoothing / classes)
  end
  local y = g:Mul(log_softmax(g, a.input), target)
  if a.weight then
    y = g:Mul(y, rank == 1 and a.weight or per_class(g, a.weight, rank))
  end
  y = g:Neg(g:ReduceSum(y, g:ints {dim}, {keepdims = 0}))
  return reduced(g, y, a.reduction)
end

return ops
