-- Arguments for which PyTorch raises also raise here; for others the results have PyTorch's sizes.
-- spec/golden/refusals.json has 10,000 changes to the samples of golden values, one argument at a
-- time (a dimension more, an element less, a number below 0, NaN). MOTH_SPEC_OP=PATTERN selects
-- ops.

local moth = require "moth"
local golden = require "spec.support.golden"
local run = require "spec.support.golden_run"

local only = os.getenv "MOTH_SPEC_OP"

-- Changes that raise here although PyTorch accepts them, and why: OP: ARGUMENT CHANGES; ...
local STRICTER = [[
only the batch may be empty, and there is one batch dimension
  adaptive_avg_pool1d: input empty
  adaptive_avg_pool2d: input empty more
  adaptive_avg_pool3d: input empty more
  index_add: input empty
a loss of tensors that would be broadcast is a mistake
  gaussian_nll_loss: target more less
  hinge_embedding_loss: input more less; target more less
  huber_loss: input more less short; target more less short
  kl_div: input more less short; target more less short
  l1_loss: input more less short; target more less short
  mse_loss: input more less short; target more less short
  multilabel_soft_margin_loss: input more less short; target more less short
  poisson_nll_loss: input more less; target more less
  smooth_l1_loss: input more less short; target more less short
  soft_margin_loss: input more; target less short
  ops.complete_box_iou_loss: boxes1 more less; boxes2 more less
  ops.distance_box_iou_loss: boxes1 more less; boxes2 more less
  ops.generalized_box_iou_loss: boxes1 more less; boxes2 more less
boxes are (N, 4), with a score each
  ops.batched_nms: scores more short empty
  ops.nms: scores more short empty
  ops.box_iou: boxes2 more less; boxes1 more
  ops.complete_box_iou: boxes1 more; boxes2 more
  ops.distance_box_iou: boxes2 more less; boxes1 more
  ops.generalized_box_iou: boxes2 more less; boxes1 more
  ops.remove_small_boxes: boxes more
  ops.clip_boxes_to_image: size longer
parameters have one shape
  batch_norm: input empty; weight more; bias more
  instance_norm: input empty
  linear: bias more less
  linear_cross_entropy: linear_bias more less
  gru: input short
  gru_cell: b_ih more less; b_hh more less
  lstm: input less short
  lstm_cell: b_ih more less; b_hh more less
  rnn_relu: input less short; hx more
  rnn_relu_cell: b_ih more less short; b_hh more less short
  rnn_tanh: input less short; hx more
  rnn_tanh_cell: b_ih more less short; b_hh more less short
  bincount: input empty
numbers lie within their bounds, NaN does not
  dist: p is=nan
  fake_quantize_per_tensor_affine: scale is=-1 is=0 is=nan
  linalg.norm: ord is=nan
  linalg.vector_norm: ord is=nan
  max_unpool1d: kernel_size is=0
  max_unpool2d: kernel_size is=0
  normalize: p is=nan
  ops.sigmoid_focal_loss: alpha is=2 is=nan
  pairwise_distance: p is=nan
  rms_norm: eps is=-1 is=nan
  triplet_margin_loss: margin is=nan; p is=nan
  triplet_margin_with_distance_loss: margin is=nan
positions lie in the tensor: PyTorch reads beyond it, or clamps
  scaled_dot_product_attention: key short; value empty short
  slice_scatter: start is=-1000; stop is=1001
  take_along_dim: input short
  unravel_index: shape shorter
a number of dimensions is no position: the change is another one here
  tensordot: dims is=1
]]

-- Changes that are accepted here, and why, although PyTorch raises or returns other sizes.
local LENIENT = [[
a list of one number stands for all dimensions
  fold: output_size shorter
  im2col: kernel_size shorter
  interpolate: size shorter
  unfold: kernel_size shorter
what is empty gives what is empty
  cumulative_trapezoid: y empty
  embedding_bag: input empty
  group_norm: input empty
  instance_norm: input empty
  linalg.vander: x less empty; N is=0 is=1
  nanquantile: input empty
  pixel_unshuffle: input empty
  quantile: input empty
  range: first is=1000; last is=-1000 is=-1; step is=-1000 is=-1
  scaled_dot_product_attention: value empty
  combinations: r is=1000
more batch dimensions, and batches that are broadcast
  istft: input more empty
  linalg.householder_product: A short; tau short
  linalg.lstsq: A more; B more
  linalg.lu_solve: LU more; pivots more
  lu_solve: LU more; pivots more
  orgqr: input short; tau short
  ormqr: tau short empty; other more
  stft: input more empty
a number for a vector
  fft.fftshift: input less
  fft.ifftshift: input less
  linalg.norm: A less
the count of elements that are not 0; PyTorch divides by 0
  lp_pool1d: norm_type is=0
  lp_pool2d: norm_type is=0
  lp_pool3d: norm_type is=0
positions from the end
  fake_quantize_per_channel_affine: axis is=-1
  slice_scatter: stop is=-1
  tensordot: dims is=1 is=2
the sample's own function refuses it in PyTorch
  linalg.lu_factor: A short
]]

-- "OP ARGUMENT CHANGE" -> false, and true after its first use.
local function exceptions(text)
  local set = {}
  for op, rest in text:gmatch "\n  ([%w_.]+): ([^\n]+)" do
    for argument, changes in rest:gmatch "([%w_]+) ([^;]+)" do
      for change in changes:gmatch "%S+" do
        set[("%s %s %s"):format(op, argument, change)] = false
      end
    end
  end
  return set
end

local stricter, lenient = exceptions(STRICTER), exceptions(LENIENT)

-- ---- changes ----

local change = {}

function change.more(x) return x:unsqueeze(1) end
function change.less(x) return x:size(1) > 0 and x:select(1, 1) or x:sum(1) end
function change.short(x, d) return x:narrow(d, 1, x:size(d) - 1) end
function change.empty(x, d) return x:narrow(d, 1, 0) end
function change.is(_, v) return v == "nan" and 0 / 0 or v end

function change.longer(list)
  local copy = { unpack(list) }
  copy[#copy + 1] = list[#list]
  return copy
end

function change.shorter(list)
  local copy = { unpack(list) }
  copy[#copy] = nil
  return copy
end

-- ---- results ----

local function first_tensor(value)
  if moth.is_tensor(value) then return value end
  for _, v in ipairs(type(value) == "table" and getmetatable(value) == nil and value or {}) do
    local found = first_tensor(v)
    if found then return found end
  end
end

-- "raises" and the message, or the sizes of the first result: "2x3".
local function outcome(fn, named)
  local results = { pcall(moth.no_grad, fn, named) }
  if not results[1] then return "raises", tostring(results[2]) end
  for i = 2, #results do
    local x = first_tensor(results[i])
    if x then
      local sizes = {}
      for d = 1, x:dim() do sizes[d] = x:size(d) end
      return table.concat(sizes, "x")
    end
  end
  return "value"
end

local function is_message(message, op)
  local name = op:match "[%w_]+$"
  return message:find("bad argument '", 1, true) and message:find("to '" .. name .. "'", 1, true)
end

-- The mistake in a trial of a sample, or nil.
local function judge(case, trial, fn, named)
  local argument, how, value, wanted = unpack(trial)
  local spelled = how .. (how == "is" and "=" .. tostring(value) or "")
  local key = ("%s %s %s"):format(case.op, argument, spelled)
  named[argument] = change[how](named[argument], value)
  local got, message = outcome(fn, named)
  local text = ("[%s] %s %s %s"):format(case.sample, argument, how,
    value == golden.null and "" or tostring(value))
  if message and not is_message(message, case.op) then return text .. ": " .. message end
  if got == wanted then return nil end
  if message and stricter[key] ~= nil then
    stricter[key] = true
  elseif not message and lenient[key] ~= nil then
    lenient[key] = true
  else
    return ("%s: %s, PyTorch: %s"):format(text, message or got, wanted)
  end
end

describe("changed arguments", function()
  local shards, by_op, names = {}, {}, {}
  for _, case in ipairs(golden.cases "refusals") do
    if not by_op[case.op] then
      by_op[case.op] = {}
      names[#names + 1] = case.op
    end
    table.insert(by_op[case.op], case)
  end

  local function sample_of(case)
    shards[case.family] = shards[case.family] or golden.load(case.family)
    for _, sample in ipairs(shards[case.family].ops[case.op]) do
      if sample.name == case.sample then return sample end
    end
    error("there is no sample " .. case.sample)
  end

  for _, name in ipairs(names) do
    if not only or name:match(only) then
      it("of " .. name .. " are refused where PyTorch refuses them", function()
        local fn, wrong = assert(run.find(name), "it is not there"), {}
        for _, case in ipairs(by_op[name]) do
          local sample = sample_of(case)
          for _, trial in ipairs(case.trials) do
            local named = run.arguments(shards[case.family], sample)
            wrong[#wrong + 1] = judge(case, trial, fn, named)
          end
        end
        assert(#wrong == 0, "\n  " .. table.concat(wrong, "\n  "))
      end)
    end
  end

  it("have exceptions that are all used", function()
    if only then return end
    for _, set in ipairs { stricter, lenient } do
      for key, met in pairs(set) do assert(met, key) end
    end
    shards = {}
  end)
end)
