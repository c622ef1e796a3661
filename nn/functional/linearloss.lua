--- linearloss.lua -- F.linear_cross_entropy: a linear layer and the cross entropy of its results
-- in chunks of rows, so that the full results are never in memory.
--
-- With reduction "mean" or "sum" the forward pass also computes the gradients from each chunk;
-- the backward pass scales them. With "none" the backward pass recomputes the results. Double
-- differentiation uses all results at once.

local autograd = require "moth.autograd"
local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local func = require "moth.autograd.function"
local lib = require "moth.binding.lib"

local ops, istensor = bind.ops, lib.istensor
local linear = bind.as("linear", "linear_cross_entropy", {weight = "linear_weight",
                                                           bias = "linear_bias"})

local own = bind.under "linear_cross_entropy"

local function cross_entropy(scores, target, o, reduction)
  if target:is_floating_point() then
    return (own.cross_entropy_soft(scores, target, o.weight, reduction, o.label_smoothing))
  end
  return (own.cross_entropy(scores, target, o.weight, o.ignore_index, reduction, o.label_smoothing))
end

-- The dtype of sums over chunks: half types become float32, since the sums could overflow.
local function sum_type(x) return x:element_size() > 2 and x.dtype or require("moth").float32 end

local function sums_like(x) return (ops.zeros(x.shape, sum_type(x), x.device)) end

local function add_product(sum, a, b)
  if sum.dtype == a.dtype and sum.dtype == b.dtype then return sum:addmm_(a, b) end
  return sum:add_(a:matmul(b):to(sum.dtype))
end

-- The dtype of the losses of a chunk.
local function part_of(losses, o)
  if o.reduction == "none" then return losses end
  return (losses:sum {dtype = sum_type(losses)})
end

-- Computes the losses of all rows, or their sum, divided by `share` if present. If requested, also
-- the inputs' gradients for the loss gradient `scale` (1, or a number for each row); they are not
-- divided. The gradients of weight and bias have the dtype of sums over chunks.
local function by_rows(input, weight, bias, o, wanted, scale, share)
  local n, losses, result_type = input:size(1), {}, nil
  local dx = wanted[1] and {} or nil
  local dw, db = wanted[2] and sums_like(weight) or nil, wanted[3] and sums_like(bias) or nil
  for first = 1, math.max(n, 1), o.rows do -- an input without rows also has a loss
    local count = math.min(o.rows, n - first + 1)
    local x, target = input:narrow(1, first, count), o.target:narrow(1, first, count)
    local scores = linear(x, weight, bias)
    if wanted[1] or wanted[2] or wanted[3] then
      scores:requires_grad_()
      local loss = autograd.enable_grad(cross_entropy, scores, target, o, "none")
      local d = autograd.grad(loss, scores, scale and scale:narrow(1, first, count)
                                              or ops.ones_like(loss))
      local turned = d:t()
      losses[#losses + 1], result_type = part_of(loss:detach(), o), loss.dtype
      if dx then dx[#dx + 1] = d:to(weight.dtype):matmul(weight) end
      if dw then add_product(dw, turned, x) end
      if db then db:add_(d:sum(1):to(db.dtype)) end
      for _, done in ipairs {loss, scores, turned, d} do done:free() end -- frees at once
    else
      local loss = cross_entropy(scores, target, o, "none")
      losses[#losses + 1], result_type = part_of(loss, o), loss.dtype
      scores:free()
    end
  end
  local y = o.reduction == "none" and ops.cat(losses, 1) or ops.stack(losses, 1):sum()
  if share then y = y / share end
  return y:to(result_type), dx and ops.cat(dx, 1):to(input.dtype), dw, db
end

-- The divisor of the mean, of `dtype`: the sum of the weights of all targets that are not ignored.
local function share_of(o, dtype)
  local target = o.target
  if target:is_floating_point() then
    return (ops.full({}, target:size(1), dtype, target.device))
  end
  local counts = target:ne(o.ignore_index)
  if o.weight == nil then return (counts:sum {dtype = dtype}) end
  local at = ops.where(counts, target, 1)
  return (ops.where(counts, o.weight:index_select(1, at), 0):sum {dtype = dtype})
end

local Loss = class("LinearCrossEntropy", func.Function)

function Loss.forward(ctx, input, weight, bias, o)
  local needs, wanted = ctx.needs_input_grad, {}
  local now = o.reduction ~= "none" and o.recorded
  for i = 1, 3 do wanted[i] = now and needs[i] end
  local share = o.reduction == "mean" and share_of(o, sum_type(weight)) or nil
  local y, dx, dw, db = by_rows(input, weight, bias, o, wanted, nil, share)
  ctx.o, ctx.now = o, now
  ctx.has = {bias ~= nil, dx ~= nil, dw ~= nil, db ~= nil, share ~= nil}
  local list = {input, weight, o.target} -- saved, so that in-place changes are detected
  for _, x in ipairs {bias or false, dx or false, dw or false, db or false, share or false,
                       o.weight or false} do
    if x then list[#list + 1] = x end
  end
  ctx:save_for_backward(unpack(list))
  return y
end

function Loss.backward(ctx, dy)
  local saved, at, o = ctx.saved_tensors, 3, ctx.o
  local got = {saved[1], saved[2]}
  for i = 1, 5 do
    if ctx.has[i] then at, got[i + 2] = at + 1, saved[at + 1] end
  end
  local input, weight, bias, share = got[1], got[2], got[3], got[7]
  local needs, result = ctx.needs_input_grad, {}
  if autograd.is_grad_enabled() then -- double differentiation
    local leaves, place = {}, {}
    for i = 1, 3 do
      if needs[i] then leaves[#leaves + 1], place[#place + 1] = got[i], i end
    end
    local y = cross_entropy(linear(input, weight, bias), o.target, o, o.reduction)
    local list = {autograd.grad(y, leaves, dy, {create_graph = true})}
    for k, i in ipairs(place) do result[i] = list[k] end
  elseif not ctx.now then
    local _, dx, dw, db = by_rows(input, weight, bias, o, needs, dy)
    result = {dx, dw and dw:to(weight.dtype), db and db:to(bias.dtype)}
  else
    local scale = dy:to(sum_type(weight))
    if share then scale = scale / share end
    for i = 1, 3 do
      if got[i + 3] then result[i] = (got[i + 3]:to(scale.dtype) * scale):to(got[i].dtype) end
    end
  end
  return result[1], result[2], result[3], nil
end

local function check(input, weight, target)
  local function refuse(arg, wanted, got)
    errors.refuse("linear_cross_entropy", arg, wanted, got, "E_SHAPE")
  end
  if weight:dim() ~= 2 then refuse("linear_weight", "(C, in_features) is needed", weight) end
  if input:dim() < 1 or input:dim() > 2 or input:size(-1) ~= weight:size(2) then
    refuse("input", ("(N, %d) or (%d) is needed"):format(weight:size(2), weight:size(2)), input)
  end
  local soft = target:is_floating_point()
  if target:dim() ~= input:dim() - (soft and 0 or 1)
      or input:dim() == 2 and target:size(1) ~= input:size(1)
      or soft and target:size(-1) ~= weight:size(1) then
    refuse("target", ("a class for each row of %s, or a probability of each class, is needed")
      :format(errors.describe(input)), target)
  end
end

-- Raises for a class out of range. The losses also raise, but with the row number within a chunk.
-- On a GPU only the losses raise: this check would synchronize.
local function check_classes(target, n, ignore_index)
  if lib.capture or target.device.type ~= "cpu" or target:is_floating_point()
      or target.dtype.name == "bool" then
    return
  end
  local wrong = target:lt(1):logical_or(target:gt(n)):logical_and(target:ne(ignore_index))
  if not wrong:any():item() then return end
  local at = wrong:nonzero()[1]:item()
  errors.argument("linear_cross_entropy", "target",
    ("the target at position %d is class %d, but there are classes 1 to %d"):format(at,
      tonumber(target[at]:item()), n), "E_INDEX")
end

-- Computes the loss for a weight (C, d1, ..., in): the scores are (N, C, d1, ...), computed without
-- chunks.
local function of_places(input, weight, bias, target, o)
  local features = weight:size(-1)
  if input:dim() < 1 or input:size(-1) ~= features then
    errors.refuse("linear_cross_entropy", "input", ("(N, %d) or (%d) is needed"):format(features,
      features), input, "E_SHAPE")
  end
  local shape = {unpack(input.shape, 1, input:dim() - 1)}
  for d = 1, weight:dim() - 1 do shape[#shape + 1] = weight:size(d) end
  local scores = linear(input, weight:reshape(-1, features), bias and bias:reshape(-1))
  return (cross_entropy(scores:reshape(shape), target, o, o.reduction))
end

--- F.linear_cross_entropy(input, linear_weight, target): cross_entropy(linear(input, ...),
-- target).
return {
  linear_cross_entropy = define {
    name = "linear_cross_entropy",
    doc = "The cross entropy of a linear layer's results: F.cross_entropy(F.linear(input, "
      .. "linear_weight, linear_bias), target), computed in chunks of rows to save memory, for "
      .. "large vocabularies. If the target or the class weights require gradients, all results "
      .. "are computed at once.",
    examples = "moth.randn(3, 4), moth.randn(5, 4), moth.tensor{1LL, 5LL, 2LL}\n"
      .. "moth.randn(4, 3), moth.randn(2, 3), moth.tensor{1LL, 2LL, 2LL, 1LL}, "
      .. "{linear_bias = moth.randn(2), weight = moth.tensor{0.5, 2}, ignore_index = 1, "
      .. "label_smoothing = 0.2, reduction = 'sum', batch_chunk_size = 3}",
    args = {
      {"tensor", "input", "rows, (N, in_features), or a single row, (in_features)"},
      {"tensor", "linear_weight", "(C, in_features); or (C, d1, ..., in_features), for a class at "
        .. "each of several positions"},
      {"any", "target", "the class of each row, (N) or (N, d1, ...); or probabilities, "
        .. "(N, C, ...)"},
      {"tensor", "linear_bias", "(C) or (C, d1, ...)", optional = true},
      {"tensor", "weight", "weight of each class, (C)", optional = true},
      {"enum", "reduction", "the reduction of the losses", choices = {"mean", "sum", "none"}},
      {"int", "ignore_index", "a target value that is ignored", default = -100},
      {"float", "label_smoothing", "share of the target distributed uniformly over all classes",
       default = 0},
      {"int", "batch_chunk_size", "rows in a chunk; default: so many that a chunk has 4 million "
        .. "scores, at least 256", optional = true},
    },
    run = function(input, weight, target, bias, class_weights, reduction, ignore_index, smoothing,
                   rows)
      if not istensor(target) then target = require("moth").tensor(target):long() end
      local o = {target = target, weight = class_weights, reduction = reduction,
                  ignore_index = ignore_index, label_smoothing = smoothing}
      if weight:dim() > 2 then return (of_places(input, weight, bias, target, o)) end
      check(input, weight, target)
      if target:is_floating_point() and ignore_index > 0 then
        errors.argument("linear_cross_entropy", "ignore_index",
          "names a class, but targets that are "
          .. "probabilities have no class to ignore, got " .. ignore_index, "E_ARG")
      end
      if rows ~= nil and rows < 1 then
        errors.argument("linear_cross_entropy", "batch_chunk_size", "a number from 1 on is needed, "
          .. "got " .. rows, "E_ARG")
      end
      local others = target.requires_grad or class_weights ~= nil and class_weights.requires_grad
      if others and autograd.is_grad_enabled() then
        return (cross_entropy(linear(input, weight, bias), target, o, reduction))
      end
      local single = input:dim() == 1
      if single then input, target = input:unsqueeze(1), target:unsqueeze(1) end
      check_classes(target, weight:size(1), ignore_index)
      o.target, o.weight = target:detach(), class_weights and class_weights:detach()
      o.rows = rows or math.max(256, math.floor(2 ^ 22 / math.max(weight:size(1), 1)))
      o.recorded = autograd.is_grad_enabled()
      local y = Loss.apply(input, weight, bias, o)
      return (single and reduction == "none" and y:squeeze(1) or y)
    end,
  },
}
