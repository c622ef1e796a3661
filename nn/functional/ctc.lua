--- ctc.lua -- connectionist temporal classification (Graves et al. 2006): the loss of sequences of
-- scores with unaligned targets.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local Module = require "moth.nn.module"

local ops = bind.ops
local losses = bind.as("ctc_losses", "ctc_loss")
local ctc = {}

local OPTIONS = {
  {"position", "blank", "the blank class", default = 1},
  {"enum", "reduction", "the reduction; the mean divides each loss by the length of "
    .. "its target", choices = {"mean", "sum", "none"}},
  {"bool", "zero_infinity", "use 0, without a gradient, for the loss of targets that are "
    .. "longer than the input?", default = false},
}

local MOST = 2 ^ 53 -- doubles above this value have gaps

local function no_length(name, n)
  errors.argument("ctc_loss", name, "lengths from 0 to 2^53 are needed, got " .. n, "E_SHAPE")
end

-- Converts lengths (a number, a list or a tensor) to a tensor on x's device. Also returns each
-- length plus 1, the position after the last element.
local function counts(name, lengths, x)
  local moth = require "moth"
  if type(lengths) == "number" then lengths = {lengths} end
  local given = lib.istensor(lengths) and lengths:numel() or type(lengths) == "table" and #lengths
  if given and x:dim() == 3 and given ~= x:size(2) then
    errors.refuse("ctc_loss", name, ("one for each of %d sequences is needed"):format(x:size(2)),
      lengths, "E_SHAPE")
  end
  if lib.istensor(lengths) then
    if lengths:is_floating_point() or lengths.dtype == moth.bool then
      errors.refuse("ctc_loss", name, "integers are needed", lengths, "E_DTYPE")
    end
    lengths = lengths:reshape(-1):to {dtype = moth.int64}
    if not lengths.is_cuda and not lib.capture then -- a GPU's op reports them
      local wrong = lengths:lt(0):logical_or(lengths:gt(MOST))
      if wrong:any():item() then
        no_length(name, tostring(lengths:masked_select(wrong)[1]:item()))
      end
    end
    if lib.capture and not lengths.is_cuda then
      local check = require "moth.capture.tensor_check"
      check(lengths:lt(0), function() no_length(name, "a negative length") end)
      lengths = lengths:clamp(0)
    end
    return lengths:to(x.device) + 1
  end
  if not lib.is_plain(lengths) then
    errors.refuse("ctc_loss", name, "a number, a list or a tensor of numbers is needed", lengths,
      "E_TYPE")
  end
  local more = {}
  for i, n in ipairs(lengths) do
    if type(n) ~= "number" or n % 1 ~= 0 then
      errors.refuse("ctc_loss", name, "integers are needed", n, "E_TYPE")
    end
    if n < 0 or n > MOST then no_length(name, errors.describe(n)) end
    more[i] = n + 1
  end
  return moth.tensor(more, {dtype = moth.int64, device = x.device})
end

-- Converts targets to a tensor (N, S). Elements after a sequence's length may have any value, even
-- 0; they become 1. Concatenated targets are split into rows.
local function labels(targets, sizes, x)
  local moth = require "moth"
  if not lib.istensor(targets) then
    targets = moth.tensor(targets, {dtype = moth.int64, device = x.device})
  end
  targets = targets:to(x.device)
  if targets:dim() > 2 or targets:dim() == 2 and targets:size(1) ~= sizes:size(1) then
    return targets -- the op raises for this shape
  end
  local rows, width = targets:dim() == 2, targets:size(-1)
  if not rows then
    local sum = (sizes - 1):sum():item()
    if sum ~= width then
      errors.argument("ctc_loss", "target_lengths", ("their sum is %d, but targets are %s"):format(
        tonumber(sum), errors.describe(targets)), "E_SHAPE")
    end
    width = width > 0 and tonumber(sizes:max():item()) - 1 or 0
  end
  local place = ops.arange(1, width + 1, 1, moth.int64, x.device)
  local behind = place:ge(sizes:unsqueeze(2))
  if not rows and width > 0 then
    local first = sizes:cumsum(1) - sizes - ops.arange(0, sizes:size(1), 1, moth.int64, x.device)
    local at = (first:unsqueeze(2) + place):masked_fill(behind, 1)
    targets = targets:take(at)
  elseif not rows then
    targets = targets:reshape(1, 0):expand(sizes:size(1), 0)
  end
  return (targets:masked_fill(behind, 1))
end

--- F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity).
ctc.ctc_loss = define {
  name = "ctc_loss",
  doc = "The negative log probability of the targets, summed over all alignments: equal classes of "
    .. "neighbouring steps are merged, then blanks are removed (Graves et al. 2006). Targets after "
    .. "a sequence's length are ignored. PyTorch's gradient with respect to log_probs also "
    .. "contains their softmax, which the gradient of log_softmax cancels.",
  examples = "moth.randn(6, 2, 4):log_softmax(3), moth.tensor{{2LL, 3LL, 2LL}, {4LL, 2LL, 0LL}},"
    .. " {6, 5}, {3, 2}\n"
    .. "moth.randn(6, 4):log_softmax(2), {2, 3, 1}, 6, 3, {blank = 4, reduction = 'sum', "
    .. "zero_infinity = true}",
  args = {
    {"tensor", "log_probs", "log probabilities of the classes, (T, N, C) or (T, C)"},
    {"index", "targets", "classes from 1, (N, S), or the targets of all sequences concatenated"},
    {"any", "input_lengths", "the number of steps of each sequence; a list or a tensor"},
    {"any", "target_lengths", "the number of targets of each sequence"},
    OPTIONS[1], OPTIONS[2], OPTIONS[3],
  },
  scoped = true,
  run = function(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero)
    local single = log_probs:dim() == 2
    local x = single and log_probs:unsqueeze(2) or log_probs
    local steps = counts("input_lengths", input_lengths, x)
    local sizes = counts("target_lengths", target_lengths, x)
    local loss = losses(x, labels(targets, sizes, x), steps, sizes, blank)
    if zero then loss = ops.where(loss:eq(math.huge), 0, loss) end
    if reduction == "sum" then return (loss:sum()) end
    if reduction == "mean" then return ((loss / (sizes - 1):clamp(1)):mean()) end
    return single and loss:squeeze(1) or loss
  end,
}

--- The CTC loss of sequences of scores: log_probs (T, N, C), targets (N, S) or concatenated, and
-- the lengths of both. `nn.CTCLoss(blank, reduction, zero_infinity)`: by default class 1 is the
-- blank.
local CTCLoss = class("CTCLoss", Module)
ctc.CTCLoss = CTCLoss

CTCLoss.signature = define.signature("CTCLoss", OPTIONS)

function CTCLoss:init(blank, reduction, zero_infinity)
  self.blank, self.reduction, self.zero_infinity = blank, reduction, zero_infinity
end

function CTCLoss:forward(log_probs, targets, input_lengths, target_lengths)
  return (ctc.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank,
    self.reduction, self.zero_infinity))
end

return ctc
