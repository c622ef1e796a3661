--- rows.lua -- defines rows for the subject files, and finds the row of an op.
--
-- A row is N.Softmax = row("axis=-1", function(a, x) ... end): the attributes, then the function.
-- An attribute is `name=default` (a number with a point is a float), `name=default!` if Moth
-- supports no other value, or `name:ints`, `name:floats`, `name:tensor`, `name:string`,
-- `name:strings`, `name:int`, `name:float`, `name:graph` if it is optional (`name:ints!` if it is
-- required). A number before the attributes is the minimum of operands, if above one. `a` holds
-- the attributes, and opset, noutputs. Operands at the positions in `lists` are Lua lists of
-- numbers, all others are tensors; absent operands are nil. Positions in files count from 0. Other
-- fields of a row: `loose`, the shapes of results depend on values of operands; `control`, the
-- node runs subgraphs (control.lua); `sequence`, it takes or returns lists of tensors.

local M = require "moth"
local errors = require "moth.error"
local proto = require "moth.onnx.proto"
local by_code = require("moth.tensor.dtype").by_code

local rows = {}

-- The ops of each subject file. A file is loaded if a graph has one of its ops.
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
rows.N = setmetatable({}, {__index = function(N, op)
  if not subject_of[op] then return nil end
  require("moth.onnx.load." .. subject_of[op])
  return rawget(N, op)
end})

--- Known ops that are not supported: op -> reason.
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
  local new = {attributes = attributes, run = run, lists = places,
                needs = tonumber(attributes:match "^%d+") or 1}
  if more then new[more] = true end
  return new
end

--- Raises an error about a node; the caller adds the node's name.
function rows.refuse(...) error(string.format(...), 0) end

--- A name from the file, for messages.
rows.quoted = errors.shown

--- Converts a dimension that counts from 0 or from the end to Moth's counting.
function rows.dim(axis) return axis < 0 and axis or axis + 1 end

--- The same, never negative. more: the number of added dimensions.
function rows.place(x, axis, more)
  return axis < 0 and axis + x:dim() + (more or 0) + 1 or axis + 1
end

--- Converts positions in a dimension of size n to Moth's counting.
function rows.positions(i, n)
  i = i:long()
  return M.where(i:lt(0), i + n, i) + 1
end

--- The dtype of a number in a file; raises if Moth has none.
function rows.dtype(number)
  local code = proto.dtypes[number]
  if not code then
    rows.refuse("element type %s, which Moth does not support", proto.type_name(number))
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
function rows.as(x) return {dtype = x.dtype, device = x.device} end

--- Half types as float32, in which ONNX's operators accumulate; other dtypes unchanged.
function rows.wide(x)
  return (x.dtype == M.float16 or x.dtype == M.bfloat16) and x:float() or x
end

--- Returns true for a tensor of integers or booleans.
function rows.whole(x) return not x:is_floating_point() end

return rows
