--- rows.lua -- what the rows of the subject files are made with, and where the row of an op is.
--
-- A row is N.Softmax = row("axis=-1", function(a, x) ... end): the attributes, then what runs. An
-- attribute is `name=default` (a number with a point is a float), `name=default!` where Moth knows
-- no other value, or `name:ints`, `name:floats`, `name:tensor`, `name:string`, `name:strings`,
-- `name:int`, `name:float`, `name:graph` where it may be absent (`name:ints!` where it may not). A
-- number before them is how many operands there must be, if more than one. `a` holds the
-- attributes, and opset, noutputs. Operands at the places in `lists` come as Lua lists of numbers,
-- all others as tensors; absent ones are nil. Positions in files count from 0.
-- Further fields of a row: `loose`, the values of operands decide on the shapes of results;
-- `control`, the node runs graphs of its own (control.lua); `sequence`, it has lists of tensors.

local M = require "moth"
local errors = require "moth.error"
local proto = require "moth.onnx.proto"
local by_code = require("moth.tensor.dtype").by_code

local rows = {}

-- The ops of each subject file. Its file is loaded when a graph has one of them.
local SUBJECTS = {
  elements = "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitCast BitShift BitwiseAnd BitwiseNot "
    .. "BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Cos Cosh Div Dropout Elu Equal Erf Exp "
    .. "Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Hardmax Identity IsInf IsNaN "
    .. "LeakyRelu Less LessOrEqual Log LogSoftmax Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow "
    .. "Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Sub "
    .. "Sum SwiGLU Swish Tan Tanh ThresholdedRelu Where Xor",
  shapes = "CenterCropPad Compress Concat ConstantOfShape DepthToSpace Expand EyeLike Flatten Pad "
    .. "Range Reshape Shape Size Slice SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze "
    .. "ReverseSequence",
  index = "ArgMax ArgMin Gather GatherElements GatherND NonZero OneHot Scatter ScatterElements "
    .. "ScatterND TensorScatter TopK Unique",
  reduce = "CumProd CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
    .. "ReduceMin ReduceProd ReduceSum ReduceSumSquare",
  products = "Det Einsum Gemm MatMul",
  conv = "CausalConvWithState Col2Im Conv ConvTranspose DeformConv",
  pool = "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxUnpool",
  norm = "BatchNormalization GroupNormalization InstanceNormalization LayerNormalization "
    .. "LRN LpNormalization MeanVarianceNormalization RMSNormalization",
  resize = "AffineGrid GridSample Resize Upsample",
  recurrent = "GRU LSTM RNN com.microsoft.DynamicQuantizeLSTM",
  quantized = "ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv "
    .. "QLinearMatMul QuantizeLinear",
  control = "If Loop OptionalGetElement OptionalHasElement Scan",
  attention = "Attention LinearAttention RotaryEmbedding",
  signal = "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT",
  loss = "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
  detection = "MaxRoiPool NonMaxSuppression RoiAlign",
  sequence = "ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase "
    .. "SequenceInsert SequenceLength SequenceMap SplitToSequence",
}

--- Names of the ops that have rows, sorted.
rows.ops = {}
local subject_of = {}
for subject, ops in pairs(SUBJECTS) do
  for op in ops:gmatch "%S+" do
    subject_of[op] = subject
    rows.ops[#rows.ops + 1] = op
  end
end
table.sort(rows.ops)

--- op -> row; nil where there is none.
rows.N = setmetatable({}, { __index = function(N, op)
  if not subject_of[op] then return nil end
  require("moth.onnx.load." .. subject_of[op])
  return rawget(N, op)
end })

--- Why ops that are in no file are not read: op -> reason.
rows.reasons = {}
local function because(reason, ops)
  for op in ops:gmatch "%S+" do rows.reasons[op] = reason end
end
because("Moth has no tensors of strings", "StringConcat StringNormalizer StringSplit "
  .. "RegexFullMatch TfIdfVectorizer LabelEncoder")
because("Moth has no optional values", "Optional")
because("another generator would draw other numbers", "Bernoulli Multinomial RandomNormal "
  .. "RandomNormalLike RandomUniform RandomUniformLike")
because("training is done by moth.optim", "Adagrad Adam Gradient Momentum")
because("images are decoded outside of nets", "ImageDecoder")

function rows.row(attributes, run, lists, more)
  local places = {}
  for place in (lists or ""):gmatch "%d+" do places[tonumber(place)] = true end
  local new = { attributes = attributes, run = run, lists = places,
                needs = tonumber(attributes:match "^%d+") or 1 }
  if more then new[more] = true end
  return new
end

--- Raises an error about a node, which the caller adds.
function rows.refuse(...) error(string.format(...), 0) end

--- A name of the file's, for messages.
rows.quoted = errors.shown

--- A dimension that counts from 0 or from the end, as Moth counts it.
function rows.dim(axis) return axis < 0 and axis or axis + 1 end

--- The same, never negative. more: dimensions that are added.
function rows.place(x, axis, more)
  return axis < 0 and axis + x:dim() + (more or 0) + 1 or axis + 1
end

--- Positions of a file in a dimension of size n, as Moth's.
function rows.positions(i, n)
  i = i:long()
  return M.where(i:lt(0), i + n, i) + 1
end

--- The dtype of a number in a file; raises if Moth has none.
function rows.dtype(number)
  local code = proto.dtypes[number]
  if not code then
    rows.refuse("element type %s of ONNX, which Moth lacks", proto.type_name(number))
  end
  return by_code[code]
end

--- Sizes as a list.
function rows.shape(x)
  local list = {}
  for d = 1, x:dim() do list[d] = x:size(d) end
  return list
end

--- The dtype and the device of a tensor, as options.
function rows.as(x) return { dtype = x.dtype, device = x.device } end

--- Half types as float32, which ONNX's operators accumulate in; all others as they are.
function rows.wide(x)
  return (x.dtype == M.float16 or x.dtype == M.bfloat16) and x:float() or x
end

--- Is it a tensor of integers or booleans?
function rows.whole(x) return not x:is_floating_point() end

return rows
