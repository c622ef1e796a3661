--- adaptive.lua -- nn.AdaptiveLogSoftmaxWithLoss: a softmax over many classes; rare classes are
-- grouped into clusters with smaller weights (Grave et al., 2017).

local class = require "moth.base.class"
local container = require "moth.nn.layer.container"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local linear = require "moth.nn.layer.linear"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"

local adaptive = {}

local function moth() return require "moth" end

--- The log probabilities of targets among n_classes classes, which are sorted by frequency. `head`
-- scores the first `cutoffs[1]` classes (the shortlist) and each cluster; a cluster is the classes
-- up to the next cutoff. Cluster i has the weights `tail[i]` and in_features / div_value ^ i
-- features.
local Adaptive = class("AdaptiveLogSoftmaxWithLoss", Module)
adaptive.AdaptiveLogSoftmaxWithLoss = Adaptive

Adaptive.signature = define.signature("AdaptiveLogSoftmaxWithLoss", {
  {"int", "in_features", "features of the input"},
  {"int", "n_classes", "the number of classes, sorted by frequency"},
  {"ints", "cutoffs", "the last class of the shortlist and of each cluster except the last, "
    .. "ascending"},
  {"float", "div_value", "factor by which each cluster's features decrease", default = 4},
  {"bool", "head_bias", "add a bias to the head?", default = false},
  {"device", "device", "the parameters' device", optional = true},
  {"dtype", "dtype", "their element type; default: the default dtype", optional = true},
})

local function checked_cutoffs(cutoffs, n_classes)
  local list, last = {}, 0
  for i, cutoff in ipairs(type(cutoffs) == "table" and cutoffs or {cutoffs}) do
    if cutoff <= last or cutoff >= n_classes then
      errors.refuse("AdaptiveLogSoftmaxWithLoss", "cutoffs",
        ("ascending numbers from 1 to %d are needed"):format(n_classes - 1), cutoffs,
        "E_DOMAIN")
    end
    list[i], last = cutoff, cutoff
  end
  if #list == 0 then
    errors.argument("AdaptiveLogSoftmaxWithLoss", "cutoffs", "is empty", "E_DOMAIN")
  end
  list[#list + 1] = n_classes
  return list
end

function Adaptive:init(in_features, n_classes, cutoffs, div_value, head_bias, device, dtype)
  self.in_features, self.n_classes, self.div_value = in_features, n_classes, div_value
  self.cutoffs, self.head_bias = checked_cutoffs(cutoffs, n_classes), head_bias
  self.shortlist_size, self.n_clusters = self.cutoffs[1], #self.cutoffs - 1
  self.head_size = self.shortlist_size + self.n_clusters
  self.head = linear.Linear(in_features, self.head_size, head_bias, device, dtype)
  self.tail = container.ModuleList()
  for i = 1, self.n_clusters do
    local size = math.floor(in_features / div_value ^ i)
    if size < 1 then
      errors.argument("AdaptiveLogSoftmaxWithLoss", "div_value",
        ("leaves cluster %d no feature of %d"):format(i, in_features), "E_DOMAIN")
    end
    self.tail:append(container.Sequential(
      linear.Linear(in_features, size, false, device, dtype),
      linear.Linear(size, self.cutoffs[i + 1] - self.cutoffs[i], false, device, dtype)))
  end
end

--- Reinitializes all weights.
function Adaptive:reset_parameters()
  self.head:reset_parameters()
  for _, part in ipairs(self.tail) do
    part[1]:reset_parameters()
    part[2]:reset_parameters()
  end
end

local function checked(self, input, target)
  if not lib.istensor(input) then
    errors.refuse("AdaptiveLogSoftmaxWithLoss", "input", "a tensor is needed", input, "E_TYPE")
  end
  local dims = input:dim()
  if dims ~= 1 and dims ~= 2 or input:size(-1) ~= self.in_features then
    errors.argument("AdaptiveLogSoftmaxWithLoss", "input", ("(N, %d) or (%d) is needed, got %s")
      :format(self.in_features, self.in_features, errors.describe(input)), "E_SHAPE")
  end
  if target == nil then return input end
  if type(target) == "number" or type(target) == "table" then
    target = require("moth.tensor.create").integers(type(target) == "table" and target or {target},
      "AdaptiveLogSoftmaxWithLoss", "target"):to(input.device)
    if dims == 1 and target:dim() == 1 and target:size(1) == 1 then target = target:squeeze(1) end
  end
  if not lib.istensor(target) or target.dtype.is_floating_point then
    errors.refuse("AdaptiveLogSoftmaxWithLoss", "target", "an integer tensor of classes is needed",
      target, "E_DTYPE")
  elseif target:dim() ~= dims - 1 or dims == 2 and target:size(1) ~= input:size(1) then
    errors.refuse("AdaptiveLogSoftmaxWithLoss", "target",
      ("%s is needed"):format(dims == 2 and "(" .. input:size(1) .. ")" or "one class"), target,
      "E_SHAPE")
  end
  if dims == 1 then return input:unsqueeze(1), target:unsqueeze(1):to(moth().int64) end
  return input, target:to(moth().int64)
end

local function positions(mask)
  return (mask:nonzero():reshape(-1))
end

-- For targets in clusters: the log probability of each target within its cluster (0 for a target of
-- the shortlist), and the index of each target in the head.
local function by_cluster(self, input, target)
  local n = input:size(1)
  local output = moth().zeros({n}, {dtype = input.dtype, device = input.device})
  local at, found = target:clone(), 0
  local low = 0
  for i, high in ipairs(self.cutoffs) do
    local rows = positions(target:gt(low):logical_and(target:le(high)))
    found = found + rows:numel()
    if i > 1 and rows:numel() > 0 then
      local own = target:index_select(1, rows) - low
      local scores = self.tail[i - 1](input:index_select(1, rows)):log_softmax(2)
      output = output:index_copy(1, rows, scores:gather(2, own:unsqueeze(2)):squeeze(2))
      at:index_fill_(1, rows, self.shortlist_size + i - 1)
    end
    low = high
  end
  if found ~= n then
    errors.argument("AdaptiveLogSoftmaxWithLoss", "target", ("classes from 1 to %d are needed")
      :format(self.n_classes), "E_INDEX")
  end
  return output, at
end

--- Returns the log probability of each target, and the loss, their negative mean.
-- @param input   (N, in_features) or (in_features)
-- @param target  (N) classes, counted from 1, or a single class
function Adaptive:forward(input, target)
  if target == nil then
    errors.argument("AdaptiveLogSoftmaxWithLoss", "target",
      "is needed; log_prob(input) returns the values of all classes")
  end
  local given = input
  input, target = checked(self, input, target)
  local single = given:dim() == 1
  if lib.capture then
    require("moth.capture.recording").refuse("AdaptiveLogSoftmaxWithLoss, which reads the "
      .. "targets' clusters,")
  end
  local output, at = by_cluster(self, input, target)
  local head = self.head(input):log_softmax(2)
  output = output + head:gather(2, at:unsqueeze(2)):squeeze(2)
  local loss = -output:mean()
  return single and output:squeeze(1) or output, loss
end

named.takes(Adaptive.forward, {
  {"tensor", "input", "(N, in_features) or (in_features)"},
  {"any", "target", "(N) classes from 1 on, or a single class"},
}, "output, loss")

--- The log probabilities of all classes: (N, in_features) -> (N, n_classes).
function Adaptive:log_prob(input)
  input = checked(self, input)
  local single = input:dim() == 1
  if single then input = input:unsqueeze(1) end
  local head = self.head(input):log_softmax(2)
  local parts = {head:narrow(2, 1, self.shortlist_size)}
  for i, part in ipairs(self.tail) do
    parts[i + 1] = part(input):log_softmax(2) + head:narrow(2, self.shortlist_size + i, 1)
  end
  local all = moth().cat(parts, 2)
  return single and all:squeeze(1) or all
end

--- The most probable class of each row, counted from 1: (N, in_features) -> (N).
function Adaptive:predict(input)
  return (self:log_prob(input):argmax(-1))
end

return adaptive
