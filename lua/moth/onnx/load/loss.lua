--- loss.lua -- loss nodes of an ONNX graph.

local M = require "moth"
local rows = require "moth.onnx.load.rows"

local N, row, refuse = rows.N, rows.row, rows.refuse

-- The weighted negative log probability of each target; targets equal to ignore_index are skipped.
local function likelihood(a, logs, target, weight)
  local n = logs:size(2)
  target = target:long()
  local ignored = a.ignore_index and target:eq(a.ignore_index)
  local at = target
  if ignored then at = M.where(ignored, 0, at) end
  at = rows.positions(at, n)
  local loss = -logs:gather(2, at:unsqueeze(2)):squeeze(2)
  local counts = weight and weight:index_select(1, at:reshape(-1)):reshape(rows.shape(at))
  if ignored then
    counts = M.where(ignored, 0, counts or M.ones_like(loss)):to(loss.dtype)
    loss = M.where(ignored, 0, loss):to(loss.dtype)
  end
  if counts then loss = loss * counts end
  if a.reduction == "none" then return loss end
  if a.reduction == "sum" then return loss:sum() end
  if a.reduction ~= "mean" then refuse("reduction %s", rows.quoted(a.reduction)) end
  return counts and loss:sum() / counts:sum() or loss:mean()
end

N.NegativeLogLikelihoodLoss = row("2 ignore_index:int reduction=mean", likelihood)
N.SoftmaxCrossEntropyLoss = row("2 ignore_index:int reduction=mean",
  function(a, x, target, weight)
    local logs = x:log_softmax(2)
    return likelihood(a, logs, target, weight), logs
  end)

return rows
