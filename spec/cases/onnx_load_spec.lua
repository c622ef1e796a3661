-- Loading ONNX: forms of ops, options and dtypes that once raised or had wrong results. The
-- expected values are those of onnx's reference implementation and of onnxruntime.

local lfs = require "lfs"
local moth = require "moth"
local files = require "spec.support.files"
local models = require "spec.support.onnx_models"

local node, graph, load = models.node, models.graph, models.load

setup(files.setup)
teardown(files.teardown)

local function of(dtype) return function(value) return moth.tensor(value, { dtype = dtype }) end end
local f32, i64, i32, bool = of(moth.float32), of(moth.int64), of(moth.int32), of(moth.bool)
local u8, i8 = of(moth.uint8), of(moth.int8)
local function empty(f, shape) return moth.zeros(shape, { dtype = f(0).dtype }) end

-- Fails unless y has the dtype, the shape and the numbers of `wanted`.
local function same(wanted, y)
  assert.equal(wanted.dtype, y.dtype)
  assert.same({ unpack(wanted.shape) }, { unpack(y.shape) })
  assert.is_true(moth.allclose(y:double(), wanted:double(), { rtol = 1e-4, atol = 1e-5 }),
    tostring(y))
end

-- A claim, the op, its attributes, the opset, operands (false: absent), results.
local ROWS = {
  -- nearest Resize
  { "nearest takes the lower of two equally near elements by default", "Resize", {}, 19,
    { f32({ { { { 1, 2 }, { 3, 4 } } } }), false, false, i64({ 1, 1, 7, 8 }) },
    { f32({ { { { 1, 1, 1, 1, 2, 2, 2, 2 }, { 1, 1, 1, 1, 2, 2, 2, 2 }, { 1, 1, 1, 1, 2, 2, 2, 2 },
      { 1, 1, 1, 1, 2, 2, 2, 2 }, { 3, 3, 3, 3, 4, 4, 4, 4 }, { 3, 3, 3, 3, 4, 4, 4, 4 }, { 3, 3,
      3, 3, 4, 4, 4, 4 } } } }) } },
  -- pytorch_half_pixel
  { "pytorch_half_pixel to one element takes the first", "Resize", { mode = "linear",
    coordinate_transformation_mode = "pytorch_half_pixel" }, 19,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }),
      false, false, i64({ 1, 1, 3, 1 }) },
    { f32({ { { { 1.666667 }, { 7 }, { 12.33333 } } } }) } },
  -- Resize
  { "linear align_corners by scales", "Resize", { mode = "linear",
    coordinate_transformation_mode = "align_corners" }, 19,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 } } } }), false, f32({ 1, 1, 0.6, 0.6 }) },
    { f32({ { { { 1, 3.142857 } } } }) } },
  { "linear asymmetric", "Resize", { mode = "linear",
    coordinate_transformation_mode = "asymmetric" }, 19,
    { f32({ { { { 1, 2 }, { 3, 4 } } } }), false, f32({ 1, 1, 2, 1 }) },
    { f32({ { { { 1, 2 }, { 2, 3 }, { 3, 4 }, { 3, 4 } } } }) } },
  { "cubic asymmetric", "Resize", { mode = "cubic",
    coordinate_transformation_mode = "asymmetric" }, 19,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }),
      false, f32({ 1, 1, 0.5, 0.5 }) },
    { f32({ { { { 1, 3 }, { 9, 11 } } } }) } },
  { "cubic with another coefficient", "Resize", { mode = "cubic", cubic_coeff_a = -0.5 }, 19,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }),
      false, f32({ 1, 1, 0.5, 0.8 }) },
    { f32({ { { { 2.827148, 4.125, 5.448242 }, { 11.32715, 12.625, 13.94824 } } } }) } },
  { "linear half_pixel_symmetric", "Resize", { mode = "linear",
    coordinate_transformation_mode = "half_pixel_symmetric" }, 19,
    { f32({ { { { 1, 2, 3, 4 } } } }), false, f32({ 1, 1, 1, 0.6 }) },
    { f32({ { { { 1.666667, 3.333333 } } } }) } },
  { "linear antialias", "Resize", { mode = "linear", antialias = 1 }, 19,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }),
      false, f32({ 1, 1, 0.6, 0.6 }) },
    { f32({ { { { 2.875, 4.5 }, { 9.375, 11 } } } }) } },
  { "cubic antialias", "Resize", { mode = "cubic", antialias = 1 }, 19,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }),
      false, f32({ 1, 1, 0.6, 0.6 }) },
    { f32({ { { { 2.51807, 4.285886 }, { 9.589335, 11.35715 } } } }) } },
  { "cubic exclude_outside", "Resize", { mode = "cubic", exclude_outside = 1,
    cubic_coeff_a = -0.5 }, 19,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }),
      false, f32({ 1, 1, 0.8, 0.8 }) },
    { f32({ { { { 1.368127, 2.669501, 4.013337 }, { 6.573626, 7.875, 9.218835 }, { 11.94897,
      13.25034, 14.59418 } } } }) } },
  { "keep_aspect_ratio_policy not_larger", "Resize", { keep_aspect_ratio_policy = "not_larger",
    axes = { 2, 3 } }, 19,
    { f32({ { { { 1, 2 }, { 3, 4 } } } }), false, false, i64({ 7, 8 }) },
    { f32({ { { { 1, 1, 1, 1, 2, 2, 2 }, { 1, 1, 1, 1, 2, 2, 2 }, { 1, 1, 1, 1, 2, 2, 2 }, { 1, 1,
      1, 1, 2, 2, 2 }, { 3, 3, 3, 3, 4, 4, 4 }, { 3, 3, 3, 3, 4, 4, 4 }, { 3, 3, 3, 3, 4, 4,
      4 } } } }) } },
  { "keep_aspect_ratio_policy not_smaller", "Resize", { keep_aspect_ratio_policy = "not_smaller",
    axes = { 2, 3 } }, 19,
    { f32({ { { { 1, 2 }, { 3, 4 } } } }), false, false, i64({ 3, 4 }) },
    { f32({ { { { 1, 1, 2, 2 }, { 1, 1, 2, 2 }, { 3, 3, 4, 4 }, { 3, 3, 4, 4 } } } }) } },
  { "tf_crop_and_resize", "Resize", { mode = "linear",
    coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = { float = 10 } },
    19,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }),
      f32({ 0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7 }), false, i64({ 1, 1, 3, 3 }) },
    { f32({ { { { 7.6, 10, 10 }, { 12.4, 10, 10 }, { 10, 10, 10 } } } }) } },
  { "axes in another order", "Resize", { axes = { 3, 2 } }, 18,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 } } } }), false, f32({ 2, 3 }) },
    { f32({ { { { 1, 1, 2, 2, 3, 3, 4, 4 }, { 1, 1, 2, 2, 3, 3, 4, 4 }, { 1, 1, 2, 2, 3, 3, 4, 4 },
      { 5, 5, 6, 6, 7, 7, 8, 8 }, { 5, 5, 6, 6, 7, 7, 8, 8 }, { 5, 5, 6, 6, 7, 7, 8, 8 } } } }) } },
  { "nearest_mode round_prefer_floor", "Resize", { nearest_mode = "round_prefer_floor",
    coordinate_transformation_mode = "align_corners" }, 19,
    { f32({ { { 1, 2, 3, 4 } } }), false, false, i64({ 1, 1, 7 }) },
    { f32({ { { 1, 1, 2, 2, 3, 3, 4 } } }) } },
  { "nearest_mode round_prefer_ceil", "Resize", { nearest_mode = "round_prefer_ceil",
    coordinate_transformation_mode = "align_corners" }, 19,
    { f32({ { { 1, 2, 3, 4 } } }), false, false, i64({ 1, 1, 7 }) },
    { f32({ { { 1, 2, 2, 3, 3, 4, 4 } } }) } },
  { "nearest_mode floor", "Resize", { nearest_mode = "floor",
    coordinate_transformation_mode = "align_corners" }, 19,
    { f32({ { { 1, 2, 3, 4 } } }), false, false, i64({ 1, 1, 7 }) },
    { f32({ { { 1, 1, 2, 2, 3, 3, 4 } } }) } },
  { "nearest_mode ceil", "Resize", { nearest_mode = "ceil",
    coordinate_transformation_mode = "align_corners" }, 19,
    { f32({ { { 1, 2, 3, 4 } } }), false, false, i64({ 1, 1, 7 }) },
    { f32({ { { 1, 2, 2, 3, 3, 4, 4 } } }) } },
  { "linear of integers is rounded", "Resize", { mode = "linear" }, 19,
    { u8({ { { 1, 2, 4, 200 } } }), false, false, i64({ 1, 1, 7 }) },
    { u8({ { { 1, 1, 2, 3, 18, 130, 200 } } }) } },
  -- reductions of integers
  { "ReduceSum of int32", "ReduceSum", { keepdims = 0 }, 18,
    { i32({ { 1, 2 }, { 3, 4 } }), i64({ 1 }) },
    { i32({ 3, 7 }) } },
  { "ReduceProd of int32", "ReduceProd", { keepdims = 0 }, 18,
    { i32({ { 1, 2 }, { 3, 4 } }) },
    { i32(24) } },
  { "ReduceL1 of int32", "ReduceL1", {}, 18,
    { i32({ { -1, -2 }, { -3, -4 } }) },
    { i32({ { 10 } }) } },
  { "ReduceSumSquare of int32", "ReduceSumSquare", { keepdims = 0 }, 18,
    { i32({ { 1, 2 }, { 3, 4 } }) },
    { i32(30) } },
  { "CumSum of int32", "CumSum", { exclusive = 1, reverse = 1 }, 14,
    { i32({ { 1, 2 }, { 3, 4 } }), i32(1) },
    { i32({ { 2, 0 }, { 4, 0 } }) } },
  { "ReduceL2 of int64", "ReduceL2", { keepdims = 0 }, 18,
    { i64({ { 1, 2 }, { 3, 4 } }) },
    { i64(5) } },
  { "ReduceLogSum of int64", "ReduceLogSum", { keepdims = 0 }, 18,
    { i64({ { 9, 18 }, { 27, 36 } }) },
    { i64(4) } },
  { "ReduceLogSumExp of int64", "ReduceLogSumExp", { keepdims = 0 }, 18,
    { i64({ { 1, 2 }, { 3, 4 } }) },
    { i64(4) } },
  { "ReduceMean of int32", "ReduceMean", { keepdims = 0 }, 18,
    { i32({ 2, 3 }) },
    { i32(2) } },
  -- training mode
  { "BatchNormalization in training mode", "BatchNormalization", { training_mode = 1,
    momentum = 0.7 }, 15,
    { f32({ { 1, 2 }, { 3, 6 } }), f32({ 1, 2 }), f32({ 0, 1 }), f32({ 0, 0 }), f32({ 1, 1 }) },
    { f32({ { -0.999995, -0.9999975 }, { 0.999995, 2.999997 } }), f32({ 0.6, 1.2 }), f32({ 1,
      1.9 }) } },
  { "Dropout in training mode with ratio 0", "Dropout", {}, 13,
    { f32({ 1, 2 }), f32(0), bool(true) },
    { f32({ 1, 2 }), bool({ true, true }) } },
  -- recurrent nets
  { "LSTM with lengths, backward", "LSTM", { hidden_size = 1, direction = "reverse" }, 14,
    { f32({ { { 1 }, { 0.5 } }, { { -1 }, { 2 } }, { { 0.5 }, { 1 } } }), f32({ { { 0.5 },
      { -0.5 }, { 1 }, { 0.25 } } }), f32({ { { 0.1 }, { 0.2 }, { -0.3 }, { 0.4 } } }), false,
      i32({ 3, 1 }) },
    { f32({ { { { 0.03406337 }, { 0.03055774 } } }, { { { -0.04335817 }, { 0 } } },
      { { { 0.03055774 }, { 0 } } } }), f32({ { { 0.03406337 }, { 0.03055774 } } }),
      f32({ { { 0.09096356 }, { 0.06990833 } } }) } },
  { "LSTM with peepholes", "LSTM", { hidden_size = 1 }, 14,
    { f32({ { { 1 }, { 0.5 } }, { { -1 }, { 2 } }, { { 0.5 }, { 1 } } }), f32({ { { 0.5 },
      { -0.5 }, { 1 }, { 0.25 } } }), f32({ { { 0.1 }, { 0.2 }, { -0.3 }, { 0.4 } } }), false,
      false, false, false, f32({ { 0.5, -0.5, 0.25 } }) },
    { f32({ { { { 0.05443138 }, { 0.02995863 } } }, { { { -0.02985919 }, { 0.08995961 } } },
      { { { 0.01429573 }, { 0.1485218 } } } }), f32({ { { 0.01429573 }, { 0.1485218 } } }),
      f32({ { { 0.03308181 }, { 0.4924713 } } }) } },
  { "LSTM with clip", "LSTM", { hidden_size = 1, clip = 0.4 }, 14,
    { f32({ { { 1 }, { 0.5 } }, { { -1 }, { 2 } }, { { 0.5 }, { 1 } } }), f32({ { { 1.5 },
      { -1.5 }, { 3 }, { 0.75 } } }), f32({ { { 0.1 }, { 0.2 }, { -0.3 }, { 0.4 } } }) },
    { f32({ { { { 0.08974426 }, { 0.08480207 } } }, { { { -0.03658888 }, { 0.1370929 } } },
      { { { 0.06766424 }, { 0.1661846 } } } }), f32({ { { 0.06766424 }, { 0.1661846 } } }),
      f32({ { { 0.170233 }, { 0.4405531 } } }) } },
  { "LSTM with input_forget", "LSTM", { hidden_size = 1, input_forget = 1 }, 14,
    { f32({ { { 1 }, { 0.5 } }, { { -1 }, { 2 } }, { { 0.5 }, { 1 } } }), f32({ { { 0.5 },
      { -0.5 }, { 1 }, { 0.25 } } }), f32({ { { 0.1 }, { 0.2 }, { -0.3 }, { 0.4 } } }) },
    { f32({ { { { 0.05711501 }, { 0.03055774 } } }, { { { 0.006298524 }, { 0.09417617 } } },
      { { { 0.03311736 }, { 0.1152708 } } } }), f32({ { { 0.03311736 }, { 0.1152708 } } }),
      f32({ { { 0.07573182 }, { 0.3114703 } } }) } },
  { "LSTM of two directions and lengths", "LSTM", { hidden_size = 1, direction = "bidirectional" },
    14,
    { f32({ { { 1 }, { 0.5 } }, { { -1 }, { 2 } }, { { 0.5 }, { 1 } } }), f32({ { { 0.5 },
      { -0.5 }, { 1 }, { 0.25 } }, { { -0.5 }, { 0.5 }, { -1 }, { -0.25 } } }), f32({ { { 0.1 },
      { 0.2 }, { -0.3 }, { 0.4 } }, { { 0.1 }, { 0.2 }, { -0.3 }, { 0.4 } } }), false, i32({ 2,
      3 }) },
    { f32({ { { { 0.05711501 }, { 0.03055774 } }, { { -0.02756674 }, { -0.06936608 } } },
      { { { -0.02756674 }, { 0.1041659 } }, { { 0.05711501 }, { -0.1011813 } } }, { { { 0 },
      { 0.1682085 } }, { { 0 }, { -0.05739331 } } } }), f32({ { { -0.02756674 }, { 0.1682085 } },
      { { -0.02756674 }, { -0.06936608 } } }), f32({ { { -0.04412553 }, { 0.472007 } },
      { { -0.04412553 }, { -0.125142 } } }) } },
  { "GRU with linear_before_reset 0", "GRU", { hidden_size = 1, linear_before_reset = 0 }, 14,
    { f32({ { { 1 }, { 0.5 } }, { { -1 }, { 2 } }, { { 0.5 }, { 1 } } }), f32({ { { 0.5 },
      { -0.5 }, { 1 } } }), f32({ { { 0.1 }, { 0.2 }, { -0.3 } } }), f32({ { 0.1, 0.2, 0.3, 0.4,
      0.5, 0.6 } }) },
    { f32({ { { { 0.2571718 }, { 0.2840397 } } }, { { { 0.05194022 }, { 0.410484 } } },
      { { { 0.3177083 }, { 0.551219 } } } }), f32({ { { 0.3177083 }, { 0.551219 } } }) } },
  { "GRU with linear_before_reset 1 and lengths", "GRU", { hidden_size = 1,
    linear_before_reset = 1 }, 14,
    { f32({ { { 1 }, { 0.5 } }, { { -1 }, { 2 } }, { { 0.5 }, { 1 } } }), f32({ { { 0.5 },
      { -0.5 }, { 1 } } }), f32({ { { 0.1 }, { 0.2 }, { -0.3 } } }), f32({ { 0.1, 0.2, 0.3, 0.4,
      0.5, 0.6 } }), i32({ 1, 3 }) },
    { f32({ { { { 0.2490525 }, { 0.264071 } } }, { { { 0 }, { 0.3931904 } } }, { { { 0 },
      { 0.5302404 } } } }), f32({ { { 0.2490525 }, { 0.5302404 } } }) } },
  { "RNN with another activation", "RNN", { hidden_size = 1, activations = { "HardSigmoid" },
    activation_alpha = { 0.3 }, activation_beta = { 0.4 } }, 14,
    { f32({ { { 1 }, { 0.5 } }, { { -1 }, { 2 } }, { { 0.5 }, { 1 } } }), f32({ { { 0.5 } } }),
      f32({ { { 0.2 } } }) },
    { f32({ { { { 0.55 }, { 0.475 } } }, { { { 0.283 }, { 0.7285 } } }, { { { 0.49198 },
      { 0.59371 } } } }), f32({ { { 0.49198 }, { 0.59371 } } }) } },
  -- older and newer opsets
  { "Dropout of opset 7", "Dropout", { ratio = 0.3 }, 7,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }) },
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }) } },
  { "Clip of opset 6", "Clip", { min = 1.5, max = 4.5 }, 10,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }) },
    { f32({ { 3, 1.5, 2 }, { 4, 4.5, 4.5 } }) } },
  { "Pad of opset 2", "Pad", { pads = { 0, 1, 1, 0 }, value = 2.5 }, 10,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }) },
    { f32({ { 2.5, 3, 1, 2 }, { 2.5, 4, 6, 5 }, { 2.5, 2.5, 2.5, 2.5 } }) } },
  { "Slice of opset 1", "Slice", { starts = { 0, 1 }, ends = { 1, 9 }, axes = { 0, 1 } }, 9,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }) },
    { f32({ { 1, 2 } }) } },
  { "TopK of opset 1", "TopK", { k = 2, axis = 1 }, 9,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }) },
    { f32({ { 3, 2 }, { 6, 5 } }), i64({ { 0, 2 }, { 1, 2 } }) } },
  { "Upsample of opset 7", "Upsample", { mode = "nearest", scales = { 1, 1, 2, 1.5 } }, 7,
    { f32({ { { { 1, 2 }, { 3, 4 } } } }) },
    { f32({ { { { 1, 1, 2 }, { 1, 1, 2 }, { 3, 3, 4 }, { 3, 3, 4 } } } }) } },
  { "Upsample of opset 9", "Upsample", { mode = "linear" }, 9,
    { f32({ { { { 1, 2 }, { 3, 4 } } } }), f32({ 1, 1, 2, 1 }) },
    { f32({ { { { 1, 2 }, { 2, 3 }, { 3, 4 }, { 3, 4 } } } }) } },
  { "Resize of opset 10", "Resize", { mode = "linear" }, 10,
    { f32({ { { { 1, 2 }, { 3, 4 } } } }), f32({ 1, 1, 2, 1 }) },
    { f32({ { { { 1, 2 }, { 2, 3 }, { 3, 4 }, { 3, 4 } } } }) } },
  { "Scatter of opset 9", "Scatter", { axis = 1 }, 9,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }), i64({ { 2 }, { 0 } }), f32({ { 9 }, { 8 } }) },
    { f32({ { 3, 1, 9 }, { 8, 6, 5 } }) } },
  { "Squeeze of opset 1", "Squeeze", { axes = { 0 } }, 11,
    { f32({ { { 3, 1, 2 }, { 4, 6, 5 } } }) },
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }) } },
  { "ReduceSum of opset 11", "ReduceSum", { axes = { 1 }, keepdims = 0 }, 11,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }) },
    { f32({ 6, 15 }) } },
  { "Softmax of opset 11", "Softmax", { axis = 0 }, 11,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }) },
    { f32({ { 0.03154963, 0.004269778, 0.01160646 }, { 0.08576079, 0.6336913, 0.233122 } }) } },
  { "Split of opset 2", "Split", { axis = 1, split = { 1, 2 } }, 11,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }) },
    { f32({ { 3 }, { 4 } }), f32({ { 1, 2 }, { 6, 5 } }) } },
  { "Swish of opset 24", "Swish", { alpha = 0.5 }, 24,
    { f32({ 1, -2 }) },
    { f32({ 0.6224594, -0.5378828 }) } },
  { "CumProd of opset 26", "CumProd", { exclusive = 1 }, 26,
    { f32({ 2, 3, 4 }), i64(0) },
    { f32({ 1, 2, 6 }) } },
  -- corners
  { "Pow of int32 by float32", "Pow", {}, 15,
    { i32({ 2, 3 }), f32({ 2.5, 0.5 }) },
    { i32({ 5, 1 }) } },
  { "NonZero of a single number", "NonZero", {}, 13,
    { f32(3) },
    { i64({ { 0 } }) } },
  { "ReduceMax of no elements", "ReduceMax", { keepdims = 0 }, 20,
    { empty(f32, { 2, 0 }), i64({ 1 }) },
    { f32({ -math.huge, -math.huge }) } },
  { "ReduceMin of no integers", "ReduceMin", { keepdims = 0 }, 20,
    { empty(i32, { 2, 0 }), i64({ 1 }) },
    { i32({ 2147483647, 2147483647 }) } },
  -- ops
  { "LRN", "LRN", { size = 3, alpha = 0.3, beta = 0.6, bias = 1.5 }, 18,
    { f32({ { { { 1 } }, { { 2 } }, { { 3 } }, { { 4 } } } }) },
    { f32({ { { { 0.659754 } }, { { 1.055823 } }, { { 1.233246 } }, { { 1.741101 } } } }) } },
  { "DequantizeLinear along an axis", "DequantizeLinear", { axis = 1 }, 19,
    { u8({ { 0, 100, 200 }, { 255, 3, 128 } }), f32({ 0.1, 0.2, 0.5 }), u8({ 0, 100, 128 }) },
    { f32({ { 0, 0, 36 }, { 25.5, -19.4, 0 } }) } },
  { "DequantizeLinear of blocks", "DequantizeLinear", { axis = 1, block_size = 2 }, 21,
    { i8({ { 1, 2, 3, 4 } }), f32({ { 0.5, 2 } }) },
    { f32({ { 0.5, 1, 6, 8 } }) } },
  { "QuantizeLinear along an axis", "QuantizeLinear", { axis = 0 }, 19,
    { f32({ { 30, 10, 20 }, { 40, 60, 50 } }), f32({ 0.5, 0.1 }), i8({ 10, -20 }) },
    { i8({ { 70, 30, 50 }, { 127, 127, 127 } }) } },
  { "QuantizeLinear rounds halves to even", "QuantizeLinear", {}, 19,
    { f32({ 0.5, 1.5, 2.5, -1, 300 }), f32(1) },
    { u8({ 0, 2, 2, 0, 255 }) } },
  { "DynamicQuantizeLinear", "DynamicQuantizeLinear", {}, 11,
    { f32({ { -1, -3, -2 }, { 0, 2, 1 } }) },
    { u8({ { 102, 0, 51 }, { 153, 255, 204 } }), f32(0.01960784), u8(153) } },
  { "MatMulInteger", "MatMulInteger", {}, 10,
    { u8({ { 0, 100, 200 }, { 255, 3, 128 } }), u8({ { 1 }, { 2 }, { 3 } }), u8(100), u8({ 2 }) },
    { i32({ { 200 }, { -127 } }) } },
  { "ConvInteger", "ConvInteger", { pads = { 1, 0 } }, 10,
    { u8({ { { 0, 100, 200 } } }), u8({ { { 1, 2 } } }), u8(10) },
    { i32({ { { -20, 170, 470 } } }) } },
  { "QLinearMatMul", "QLinearMatMul", {}, 10,
    { u8({ { 0, 100, 200 }, { 255, 3, 128 } }), f32(0.02), u8(100), u8({ { 1, 200 }, { 2, 3 },
      { 30, 40 } }), f32(0.1), u8(20), f32(0.5), u8(128) },
    { u8({ { 140, 64 }, { 124, 248 } }) } },
  { "QLinearConv", "QLinearConv", {}, 10,
    { u8({ { { 0, 100, 200 }, { 255, 3, 128 } } }), f32(0.02), u8(100), i8({ { { 1, -2 }, { 3,
      4 } }, { { 5, 6 }, { -7, 8 } } }), f32({ 0.1, 0.2 }), i8({ 0, 0 }), f32(0.5), u8(128),
      i32({ 100, -100 }) },
    { u8({ { { 128, 127 }, { 108, 139 } } }) } },
  { "Attention with a causal mask", "Attention", { is_causal = 1 }, 23,
    { f32({ { { { 1, 0 }, { 0, 1 }, { 1, 1 } } } }), f32({ { { { 2, 0 }, { 0, 2 }, { 2, 2 } } } }),
      f32({ { { { 2, 1 }, { 1, 2 }, { 2, 2 } } } }) },
    { f32({ { { { 2, 1 }, { 1.19557, 1.80443 }, { 1.836421, 1.836421 } } } }) } },
  { "Attention with shared heads and softcap", "Attention", { softcap = { float = 2 },
    q_num_heads = 2, kv_num_heads = 1 }, 23,
    { f32({ { { 1, 0, 0, 1 }, { 1, 1, 0.5, 0 } } }), f32({ { { 1, 0 }, { 0, 2 } } }), f32({ { { 1,
      2 }, { 3, 4 } } }) },
    { f32({ { { 1.672948, 2.672948, 2.543324, 3.543324 }, { 2.263007, 3.263007, 1.826806,
      2.826806 } } }) } },
  { "Attention with a cache", "Attention", {}, 23,
    { f32({ { { { 1, 0 } } } }), f32({ { { { 0, 1 } } } }), f32({ { { { 1, 1 } } } }), false,
      f32({ { { { 1, 0 }, { 0, 1 } } } }), f32({ { { { 0, 1 }, { 1, 1 } } } }) },
    { f32({ { { { 0.4965101, 0.9999999 } } } }), f32({ { { { 1, 0 }, { 0, 1 }, { 0, 1 } } } }),
      f32({ { { { 0, 1 }, { 1, 1 }, { 1, 1 } } } }) } },
  { "Attention of a window", "Attention", { left_window_size = 1, right_window_size = 0 }, 25,
    { f32({ { { { 1, 0 }, { 0, 1 }, { 1, 1 } } } }), f32({ { { { 2, 0 }, { 0, 2 }, { 2, 2 } } } }),
      f32({ { { { 2, 1 }, { 1, 2 }, { 2, 2 } } } }) },
    { f32({ { { { 2, 1 }, { 1.19557, 1.80443 }, { 1.80443, 2 } } } }) } },
  { "RotaryEmbedding", "RotaryEmbedding", { interleaved = 1 }, 23,
    { f32({ { { { 1, 2, 3, 4 } } } }), f32({ { 0.5, 1 }, { 0.6, 0.8 } }), f32({ { 0.1, 0 }, { 0.8,
      0.6 } }), i64({ { 1 } }) },
    { f32({ { { { -1, 2, 0, 5 } } } }) } },
  { "RMSNormalization", "RMSNormalization", {}, 23,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }), f32({ 1, 2, 3 }) },
    { f32({ { 1.388729, 0.9258191, 2.777457 }, { 0.7895419, 2.368626, 2.960782 } }) } },
  { "Col2Im", "Col2Im", {}, 18,
    { f32({ { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 }, { 10, 11, 12 } } }), i64({ 2, 4 }), i64({ 2,
      2 }) },
    { f32({ { { { 1, 6, 8, 6 }, { 7, 18, 20, 12 } } } }) } },
  { "SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLoss", { ignore_index = 2 }, 13,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }), i64({ 0, 2 }) },
    { f32(0.407606), f32({ { -0.407606, -2.407606, -1.407606 }, { -2.407606, -0.407606,
      -1.407606 } }) } },
  { "NegativeLogLikelihoodLoss with weights", "NegativeLogLikelihoodLoss", {}, 13,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }), i64({ 1, 2 }), f32({ 1, 2, 3 }) },
    { f32(-3.4) } },
  { "NonMaxSuppression", "NonMaxSuppression", {}, 11,
    { f32({ { { 0, 0, 1, 1 }, { 0, 0.1, 1, 1.1 }, { 0, 5, 1, 6 } } }), f32({ { { 0.9, 0.8,
      0.7 } } }), i64({ 3 }), f32({ 0.5 }) },
    { i64({ { 0, 0, 0 }, { 0, 0, 2 } }) } },
  { "RoiAlign", "RoiAlign", { output_height = 2, output_width = 2, sampling_ratio = 2 }, 16,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }),
      f32({ { 0, 0, 3, 3 } }), i64({ 0 }) },
    { f32({ { { { 2.5625, 4 }, { 8.3125, 9.75 } } } }) } },
  { "RoiAlign of maxima", "RoiAlign", { output_height = 2, output_width = 2, mode = "max",
    sampling_ratio = 1 }, 16,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }),
      f32({ { 0, 0, 3, 3 } }), i64({ 0 }) },
    { f32({ { { { 0.9375, 1.6875 }, { 5.0625, 6.1875 } } } }) } },
  { "BitShift", "BitShift", { direction = "RIGHT" }, 11,
    { u8({ 16, 255 }), u8({ 2, 9 }) },
    { u8({ 4, 0 }) } },
  { "Hardmax", "Hardmax", {}, 13,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }) },
    { f32({ { 1, 0, 0 }, { 0, 1, 0 } }) } },
  { "LpPool", "LpPool", { kernel_shape = { 2 }, p = 2 }, 18,
    { f32({ { { 3, 1, 2 }, { 4, 6, 5 } } }) },
    { f32({ { { 3.162278, 2.236068 }, { 7.211102, 7.81025 } } }) } },
  { "Unique of rows", "Unique", { axis = 0 }, 11,
    { f32({ { 1, 0 }, { 0, 1 }, { 1, 0 } }) },
    { f32({ { 0, 1 }, { 1, 0 } }), i64({ 1, 0 }), i64({ 1, 0, 1 }), i64({ 1, 2 }) } },
  { "Unique in the order of the input", "Unique", { sorted = 0 }, 11,
    { i64({ 3, 1, 3, 2 }) },
    { i64({ 3, 1, 2 }), i64({ 0, 1, 3 }), i64({ 0, 1, 0, 2 }), i64({ 2, 1, 1 }) } },
  { "EyeLike", "EyeLike", { k = 1, dtype = 7 }, 9,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }) },
    { i64({ { 0, 1, 0 }, { 0, 0, 1 } }) } },
  { "Det", "Det", {}, 11,
    { f32({ { { 1, 2 }, { 3, 4 } } }) },
    { f32({ -2 }) } },
  { "DFT", "DFT", { axis = 1, onesided = 1 }, 17,
    { f32({ { { 1 }, { 2 }, { 4 } } }) },
    { f32({ { { 7, -1.460314e-06 }, { -1.999999, 1.732052 } } }) } },
  { "DFT back", "DFT", { inverse = 1 }, 20,
    { f32({ { { 1, 0 }, { 2, -1 }, { 4, 1 } } }), false, i64(1) },
    { f32({ { { 2.333333, -5.364418e-07 }, { -0.08931661, -0.5773503 }, { -1.244017,
      0.5773501 } } }) } },
  { "STFT", "STFT", {}, 17,
    { f32({ { { 1 }, { 2 }, { 4 }, { 3 } } }), i64(1), f32({ 1, 0.5 }), i64(2) },
    { f32({ { { { 2, 0 }, { 0, 8.742278e-08 } }, { { 4, 0 }, { 0, 1.748456e-07 } }, { { 5.5, 0 },
      { 2.5, 1.311342e-07 } } } }) } },
  { "STFT of both sides", "STFT", { onesided = 0 }, 17,
    { f32({ { { 1 }, { 2 }, { 4 } } }), i64(1), f32({ 1, 1, 1 }) },
    { f32({ { { { 7, 0 }, { -2, 1.732051 }, { -2, -1.732051 } } } }) } },
  { "STFT of complex numbers, which has both sides", "STFT", {}, 17,
    { f32({ { { 1, 0 }, { 0, 1 }, { 2, 0 } } }), i64(1), f32({ 1, 1 }) },
    { f32({ { { { 1, 1 }, { 1, -1 } }, { { 2, 1 }, { -2, 1 } } } }) } },
  { "DFT of complex numbers, onesided", "DFT", { axis = 1, onesided = 1 }, 17,
    { f32({ { { 1, 0 }, { 0, 1 } } }) }, { f32({ { { 1, 1 }, { 1, -1 } } }) } },
  { "HannWindow", "HannWindow", { periodic = 0 }, 17,
    { i64(4) },
    { f32({ 0, 0.75, 0.75, 0 }) } },
  { "HammingWindow", "HammingWindow", {}, 17,
    { i64(3) },
    { f32({ 0.0869565, 0.7717391, 0.7717391 }) } },
  { "BlackmanWindow", "BlackmanWindow", {}, 17,
    { i64(3) },
    { f32({ 1.490116e-08, 0.63, 0.63 }) } },
  { "MelWeightMatrix", "MelWeightMatrix", {}, 17,
    { i64(2), i64(8), i64(4000), f32(0), f32(2000) },
    { f32({ { 1, 0 }, { 0, 1 }, { 0, 0 }, { 0, 0 }, { 0, 0 } }) } },
  { "AffineGrid", "AffineGrid", { align_corners = 1 }, 20,
    { f32({ { { 1, 0, 0.5 }, { 0, 2, 0 } } }), i64({ 1, 1, 2, 2 }) },
    { f32({ { { { -0.5, -2 }, { 1.5, -2 } }, { { -0.5, 2 }, { 1.5, 2 } } } }) } },
  { "GridSample", "GridSample", { mode = "cubic" }, 20,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }),
      f32({ { { { 0.1, -0.3 } } } }) },
    { f32({ { { { 6.104942 } } } }) } },
  { "DeformConv", "DeformConv", {}, 19,
    { f32({ { { { 1, 2 }, { 5, 6 } } } }), f32({ { { { 1 } } } }), f32({ { { { 0.5, 0 }, { 0,
      0 } }, { { 0, 0.5 }, { 0, -1 } } } }) },
    { f32({ { { { 3, 1 }, { 5, 5 } } } }) } },
  { "MaxUnpool", "MaxUnpool", { kernel_shape = { 2, 2 }, strides = { 2, 2 } }, 11,
    { f32({ { { { 5 } } } }), i64({ { { { 2 } } } }) },
    { f32({ { { { 0, 0 }, { 5, 0 } } } }) } },
  { "CenterCropPad", "CenterCropPad", {}, 18,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }), i64({ 4, 2 }) },
    { f32({ { 0, 0 }, { 3, 1 }, { 4, 6 }, { 0, 0 } }) } },
  { "ReverseSequence", "ReverseSequence", { batch_axis = 0, time_axis = 1 }, 10,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }), i64({ 2, 3 }) },
    { f32({ { 1, 3, 2 }, { 5, 6, 4 } }) } },
  { "MeanVarianceNormalization", "MeanVarianceNormalization", { axes = { 0, 1 } }, 13,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }) },
    { f32({ { -0.29277, -1.46385, -0.87831 }, { 0.29277, 1.46385, 0.87831 } }) } },
  { "com.microsoft DynamicQuantizeLSTM", "com.microsoft.DynamicQuantizeLSTM", { hidden_size = 1 },
    14,
    { f32({ { { 1 }, { 0.5 } }, { { -1 }, { 2 } }, { { 0.5 }, { 1 } } }), i8({ { { 50, -50, 100,
      25 } } }), i8({ { { 10, 20, -30, 40 } } }), false, false, false, false, false, f32({ 0.01 }),
      i8({ 0 }), f32({ 0.01 }), i8({ 0 }) },
    { f32({ { { { 0.05711501 }, { 0.03021413 } } }, { { { -0.02756674 }, { 0.103961 } } },
      { { { 0.01546385 }, { 0.1680161 } } } }), f32({ { { 0.01546385 }, { 0.1680161 } } }),
      f32({ { { 0.03538482 }, { 0.4713818 } } }) } },
  -- options
  { "LayerNormalization gives mean and deviation", "LayerNormalization", {}, 17,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }), f32({ 1, 2, 3 }) },
    { f32({ { 1.224736, -2.449471, 0 }, { -1.224736, 2.449471, 0 } }), f32({ { 2 }, { 5 } }),
      f32({ { 1.224736 }, { 1.224736 } }) } },
  { "MaxPool gives positions", "MaxPool", { kernel_shape = { 2, 2 } }, 12,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }) },
    { f32({ { { { 6, 7, 8 }, { 10, 11, 12 }, { 14, 15, 16 } } } }), i64({ { { { 5, 6, 7 }, { 9, 10,
      11 }, { 13, 14, 15 } } } }) } },
  { "MaxPool with storage_order 1", "MaxPool", { kernel_shape = { 2, 2 }, strides = { 2, 2 },
    storage_order = 1 }, 12,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }) },
    { f32({ { { { 6, 8 }, { 14, 16 } } } }), i64({ { { { 5, 13 }, { 7, 15 } } } }) } },
  { "MaxPool with uneven padding", "MaxPool", { kernel_shape = { 3 }, pads = { 0, 2 },
    strides = { 2 } }, 12,
    { f32({ { { 3, 1, 2 }, { 4, 6, 5 } } }) },
    { f32({ { { 3, 2 }, { 6, 5 } } }), i64({ { { 0, 2 }, { 4, 5 } } }) } },
  { "MaxPool of integers", "MaxPool", { kernel_shape = { 2 } }, 12,
    { u8({ { { 0, 100, 200 }, { 255, 3, 128 } } }) },
    { u8({ { { 100, 200 }, { 255, 128 } } }) } },
  { "AveragePool with dilations", "AveragePool", { kernel_shape = { 2, 2 }, dilations = { 2, 2 } },
    19,
    { f32({ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }) },
    { f32({ { { { 6, 7 }, { 10, 11 } } } }) } },
  { "AveragePool with uneven padding", "AveragePool", { kernel_shape = { 2 }, pads = { 0, 1 } }, 19,
    { f32({ { { 3, 1, 2 }, { 4, 6, 5 } } }) },
    { f32({ { { 2, 1.5, 2 }, { 5, 5.5, 5 } } }) } },
  { "AveragePool with ceil_mode", "AveragePool", { kernel_shape = { 2 }, strides = { 2 },
    ceil_mode = 1, pads = { 0, 1 }, count_include_pad = 1 }, 19,
    { f32({ { { 3, 1, 2 }, { 4, 6, 5 } } }) },
    { f32({ { { 2, 1 }, { 5, 2.5 } } }) } },
  { "ConvTranspose with SAME_UPPER", "ConvTranspose", { auto_pad = "SAME_UPPER", strides = { 2 } },
    11,
    { f32({ { { 1, 2, 3 } } }), f32({ { { 1, 2, 3 } } }) },
    { f32({ { { 1, 2, 5, 4, 9, 6 } } }) } },
  { "ConvTranspose with output_shape", "ConvTranspose", { output_shape = { 6 }, strides = { 2 } },
    11,
    { f32({ { { 1, 2, 3 } } }), f32({ { { 1, 2, 3 } } }) },
    { f32({ { { 2, 5, 4, 9, 6, 9 } } }) } },
  { "ScatterND mul", "ScatterND", { reduction = "mul" }, 18,
    { f32({ 1, 2, 3, 4 }), i64({ { 1 }, { 1 }, { -1 } }), f32({ 5, -2, 3 }) },
    { f32({ 1, -20, 3, 12 }) } },
  { "ScatterND max", "ScatterND", { reduction = "max" }, 18,
    { f32({ 1, 2, 3, 4 }), i64({ { 1 }, { 1 }, { -1 } }), f32({ 5, -2, 3 }) },
    { f32({ 1, 5, 3, 4 }) } },
  { "ScatterND min", "ScatterND", { reduction = "min" }, 18,
    { f32({ 1, 2, 3, 4 }), i64({ { 1 }, { 1 }, { -1 } }), f32({ 5, -2, 3 }) },
    { f32({ 1, -2, 3, 3 }) } },
  { "ScatterElements max", "ScatterElements", { reduction = "max", axis = 1 }, 18,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }), i64({ { 0, 0 }, { 2, 2 } }), f32({ { 5, 7 }, { 1, 9 } }) },
    { f32({ { 7, 1, 2 }, { 4, 6, 9 } }) } },
  { "ArgMax with select_last_index", "ArgMax", { select_last_index = 1, axis = 1 }, 13,
    { f32({ { 1, 3, 3 }, { 2, 2, 1 } }) },
    { i64({ { 2 }, { 1 } }) } },
  { "GatherND with batch_dims", "GatherND", { batch_dims = 1 }, 13,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }), i64({ { 2 }, { 0 } }) },
    { f32({ 2, 4 }) } },
  { "Pad in wrap mode of integers", "Pad", { mode = "wrap" }, 19,
    { i64({ { 1, 2 }, { 3, 4 } }), i64({ 0, 1, 1, 0 }) },
    { i64({ { 2, 1, 2 }, { 4, 3, 4 }, { 2, 1, 2 } }) } },
  { "Reflecting Pad of any axis", "Pad", { mode = "reflect" }, 18,
    { f32({ { 3, 1, 2 }, { 4, 6, 5 } }), i64({ 1, 0, 0, 0 }) },
    { f32({ { 4, 6, 5 }, { 3, 1, 2 }, { 4, 6, 5 } }) } },
}

describe("a node of an ONNX file", function()
  for _, row in ipairs(ROWS) do
    local title, op, attributes, opset, operands, results = unpack(row)
    it("is computed as specified: " .. title, function()
      local got = { models.run(op, attributes, operands, opset, #results) }
      for k, wanted in ipairs(results) do same(wanted, got[k]) end
    end)
  end
end)

-- ---- graphs in attributes ----

describe("a sequence", function()
  it("is a list of tensors within a graph", function()
    local net = load(graph({ node("SplitToSequence", "x n", "a", { axis = 1 }),
      node("SequenceInsert", "a z at", "b"), node("SequenceErase", "b", "c"),
      node("SequenceLength", "c", "length"), node("SequenceAt", "c last", "end"),
      node("ConcatFromSequence", "c", "y", { axis = 1 }) }, "x z", "y end length b",
      { n = i64(2), at = i64(0), last = i64(-1) }), { f32 { { 1 } }, f32 { { 1 } } })
    local y, last, length, list = net(f32 { { 1, 2, 3 } }, f32 { { 7, 8 } })
    same(f32 { { 7, 8, 1, 2 } }, y)
    same(f32 { { 1, 2 } }, last)
    same(i64(2), length)
    assert.equal(3, #list)
    same(f32 { { 3 } }, list[3])
  end)

  it("can be collected by a loop", function()
    local body = graph({ node("SequenceInsert", "s i", "t"), node("Identity", "c", "c2") },
      "i c s", "c2 t")
    local net = load(graph({ node("SequenceEmpty", "", "e", { dtype = 7 }),
      node("Loop", "n - e", "s", { body = body }),
      node("ConcatFromSequence", "s", "y", { axis = 0, new_axis = 1 }) }, "n", "y"), { i64(1) })
    same(i64 { 0, 1, 2 }, net(i64(3)))
  end)
end)

describe("control flow", function()
  it("runs the branch of a condition, which reads outer values", function()
    local branches = {
      then_branch = graph({ node("Add", "x w", "t") }, "", "t", { w = f32 { 10, 20 } }),
      else_branch = graph({ node("Neg", "x", "e") }, "", "e"),
    }
    local net = load(graph({ node("If", "c", "y", branches) }, "c x", "y"),
      { bool(true), f32 { 1, 2 } })
    same(f32 { 11, 22 }, net(bool(true), f32 { 1, 2 }):detach())
    same(f32 { -1, -2 }, net(bool(false), f32 { 1, 2 }))
  end)

  it("trains parameters in a branch", function()
    local branches = {
      then_branch = graph({ node("Mul", "x w", "t") }, "", "t", { w = f32 { 10, 20 } }),
      else_branch = graph({ node("Neg", "x", "e") }, "", "e"),
    }
    local net = load(graph({ node("If", "c", "y", branches) }, "c x", "y"),
      { bool(true), f32 { 1, 2 } })
    net(bool(true), f32 { 3, 4 }):sum():backward()
    same(f32 { 3, 4 }, net.w.grad)
  end)

  -- y doubles until it is above the limit; s collects it.
  local function doubling()
    local body = graph({ node("Add", "v v", "w"), node("ReduceSum", "w", "sum", { keepdims = 0 }),
      node("Less", "sum limit", "going") }, "i c v", "going w w")
    return load(graph({ node("Loop", "n c x", "y s", { body = body }) }, "n c x limit", "y s"),
      { i64(1), bool(true), f32 { 1 }, f32(1) })
  end

  it("loops while a condition holds, and collects the results of each step", function()
    local y, s = doubling()(i64(10), bool(true), f32 { 1 }, f32(7))
    same(f32 { 8 }, y)
    same(f32 { { 2 }, { 4 }, { 8 } }, s)
  end)

  it("loops for the given count, or not at all", function()
    local net = doubling()
    same(f32 { 4, 8 }, (net(i64(2), bool(true), f32 { 1, 2 }, f32(99))))
    local y, s = net(i64(0), bool(true), f32 { 1, 2 }, f32(99))
    same(f32 { 1, 2 }, y)
    assert.equal(0, s:numel())
  end)

  it("has gradients through the steps of a loop", function()
    local x = f32({ 1, 2 }):requires_grad_()
    local y = doubling()(i64(3), bool(true), x, f32(99))
    y:sum():backward()
    same(f32 { 8, 8 }, x.grad)
  end)

  it("scans sequences, backward too, with a state", function()
    local body = graph({ node("Add", "state x", "next"), node("Mul", "next k", "out") },
      "state x", "next out")
    for back, wanted in pairs { [0] = { { 2, 12, 30 } }, [1] = { { 30, 28, 18 } } } do
      local net = load(graph({ node("Scan", "s x", "last y", { body = body, num_scan_inputs = 1,
        scan_input_directions = { back }, scan_output_directions = { back },
        scan_input_axes = { 1 }, scan_output_axes = { 1 } }) }, "s x k", "last y"),
        { f32 { 0 }, f32 { { 1, 5, 9 } }, f32 { 2 } })
      local last, y = net(f32 { 0 }, f32 { { 1, 5, 9 } }, f32 { 2 })
      same(f32 { 15 }, last)
      same(f32(wanted), y)
    end
  end)

  it("nests: a branch in a loop reads values of both outer graphs", function()
    local branches = {
      then_branch = graph({ node("Add", "v k", "t") }, "", "t"),
      else_branch = graph({ node("Sub", "v k", "e") }, "", "e"),
    }
    local body = graph({ node("Cast", "i", "odd", { to = 9 }), node("If", "odd", "w", branches),
      node("Identity", "c", "c2") }, "i c v", "c2 w")
    local net = load(graph({ node("Loop", "n - x", "y", { body = body }) }, "n x k", "y"),
      { i64(1), f32 { 1 }, f32 { 1 } })
    same(f32 { 13 }, (net(i64(3), f32 { 10 }, f32 { 3 })))
  end)

  it("calls functions that a file defines, with their attributes", function()
    local leaky = node("LeakyRelu", "a", "b")
    leaky.attribute[1] = { name = "alpha", ref_attr_name = "slope", type = 1 }
    local f = { name = "Twice", domain = "here", input = { "a" }, output = { "c" },
                node = { leaky, node("Add", "b b", "c") }, opset_import = { { version = 18 } } }
    local net = load(graph({ node("here.Twice", "x", "h", { slope = 0.5 }),
      node("here.Twice", "h", "y", { slope = 0.25 }) }, "x", "y"), { f32 { 1 } }, 18, { f })
    same(f32 { 4, -1 }, net(f32 { 1, -2 }))
  end)
end)

-- ---- shapes ----

describe("a shape", function()
  it("that depends on values is computed in each call", function()
    local net = load(graph({ node("NonZero", "x", "at"), node("Shape", "at", "y") }, "x", "y"),
      { f32 { 1 } })
    same(i64 { 1, 1 }, net(f32 { 0, 5, 0 }))
    same(i64 { 1, 3 }, net(f32 { 1, 5, 2 }))
  end)

  it("of a value in a loop is the shape in that step", function()
    local body = graph({ node("Concat", "v v", "w", { axis = 0 }), node("Shape", "v", "n"),
      node("Identity", "c", "c2") }, "i c v", "c2 w n")
    local net = load(graph({ node("Loop", "n - x", "y s", { body = body }) }, "n x", "y s"),
      { i64(1), f32 { 1 } })
    local y, s = net(i64(3), f32 { 1 })
    same(moth.ones(8), y)
    same(i64 { { 1 }, { 2 }, { 4 } }, s)
  end)

  it("of an input is free if the file has -1 or a name", function()
    local g = graph({ node("Neg", "x", "y") }, "", "y")
    g.input[1] = models.info("x", 1, { -1, "n", 2 })
    local net = load(g, {})
    same(f32 { { { -1, -2 } } }, net(f32 { { { 1, 2 } } }))
    assert.has_error(function() net(f32 { { { 1, 2, 3 } } }) end)
  end)
end)

-- ---- training mode ----

describe("training mode", function()
  it("of Dropout keeps a share of the elements, and returns the mask", function()
    moth.manual_seed(3)
    local x = moth.ones(4000)
    local y, mask = models.run("Dropout", {}, { x, f32(0.25), bool(true) }, 13, 2)
    local kept = mask:float():mean():item()
    assert.is_true(kept > 0.7 and kept < 0.8)
    same(mask:float() / 0.75, y)
  end)

  it("of Dropout is off if the file does not set it", function()
    same(f32 { 1, 2 }, (models.run("Dropout", {}, { f32 { 1, 2 } }, 13)))
  end)
end)

-- ---- outputs that are absent ----

describe("a recurrent net", function()
  it("may return only its last state", function()
    local x, w, r = f32 { { { 1 } }, { { 2 } } }, f32 { { { 0.5 } } }, f32 { { { 0.25 } } }
    local net = load(graph({ node("RNN", "x w r", "- h", { hidden_size = 1 }) }, "x w r", "h"),
      { x, w, r })
    same(f32 { { { math.tanh(1 + 0.25 * math.tanh(0.5)) } } }, net(x, w, r))
  end)

  it("may have the batch first", function()
    local x, w, r = f32 { { { 1 }, { 2 } } }, f32 { { { 0.5 } } }, f32 { { { 0.25 } } }
    local y, h = models.run("RNN", { hidden_size = 1, layout = 1 }, { x, w, r }, 14, 2)
    local first = math.tanh(0.5)
    local last = math.tanh(1 + 0.25 * first)
    same(f32 { { { { first } }, { { last } } } }, y)
    same(f32 { { { last } } }, h)
  end)
end)

-- ---- unsupported files ----

describe("an unsupported file", function()
  local function problem(f, ...)
    local ok, text = pcall(f, ...)
    assert.is_false(ok)
    return text
  end

  it("raises with the reason", function()
    for op, reason in pairs { Optional = "no optional values", RandomNormalLike = "other numbers",
      StringSplit = "no tensors of strings", ImageDecoder = "images are decoded outside",
      Adagrad = "training is done by moth.optim", Momentum = "training is done by moth.optim",
      Sofmax = "did you mean 'Softmax'" } do
      local text = problem(models.run, op, {}, { f32 { 1 } })
      assert.is_truthy(text:find(op, 1, true), text)
      assert.is_truthy(text:find(reason, 1, true), text)
    end
  end)

  it("raises for a position beyond a sequence", function()
    local net = load(graph({ node("SequenceConstruct", "x x", "s"), node("SequenceAt", "s at", "y")
      }, "x", "y", { at = i64(2) }), { f32 { 1 } })
    assert.is_truthy(problem(net, f32 { 1 }):find "position 2 %(from 0%) is out of range")
  end)

  it("raises for an unknown opset", function()
    assert.is_truthy(problem(models.run, "Neg", {}, { f32 { 1 } }, 99):find "opset 99; 7 to 28")
  end)

  it("raises for an unknown mode of an op", function()
    for op, operands in pairs { SpaceToDepth = { moth.ones(1, 1, 2, 2) },
                                Pad = { f32 { 1 }, i64 { 1, 1 } } } do
      local text = problem(models.run, op, { mode = "none", blocksize = op ~= "Pad" and 2 or nil },
        operands)
      assert.is_truthy(text:find("'none'", 1, true), text)
    end
  end)

  it("raises for an element type that Moth lacks, with its name", function()
    local text = problem(models.run, "Cast", { to = 14 }, { f32 { 1 } })
    assert.is_truthy(text:find("complex64", 1, true), text)
  end)
end)

-- ---- data in separate files ----

describe("data in a separate file", function()
  local function model(name)
    local entries = { { key = "location", value = "w.data" } }
    local g = graph({ node("Add", "x w", "y") }, "x", "y")
    g.initializer[1] = { name = "w", dims = { 2 }, data_type = 1, data_location = 1,
                         external_data = entries }
    return models.write(g, files.path(name), { f32 { 1, 2 } })
  end
  local one = ("\0\0\128\63"):rep(2)

  if jit.os ~= "Windows" then
    it("raises if a symbolic or hard link leaves the folder", function()
      lfs.mkdir(files.path "net")
      files.write("secret", one)
      for _, symbolic in ipairs { true, false } do
        os.remove(files.path "net/w.data")
        assert(lfs.link(files.path "secret", files.path "net/w.data", symbolic))
        local path = model "net/a.onnx"
        assert.has_error_like(function() moth.onnx.load(path) end, "which is a link")
      end
    end)

    it("is read if a link stays in the folder, or in the folder of a linked model", function()
      lfs.mkdir(files.path "kept")
      files.write("kept/real", one)
      lfs.link("real", files.path "kept/w.data", true)
      local net = moth.onnx.load(model "kept/a.onnx")
      same(f32 { 2, 3 }, net(f32 { 1, 2 }):detach())
      lfs.mkdir(files.path "blobs")
      model "blobs/1"
      files.write("blobs/2", one)
      lfs.mkdir(files.path "snap")
      lfs.link("../blobs/1", files.path "snap/a.onnx", true)
      lfs.link("../blobs/2", files.path "snap/w.data", true)
      same(f32 { 2, 3 }, moth.onnx.load(files.path "snap/a.onnx")(f32 { 1, 2 }):detach())
    end)
  end
end)

-- ---- steps ----

describe("a net of these ops", function()
  it("can be captured if no value decides on shapes", function()
    local net = load(graph({ node("Resize", "x - s", "a", { mode = "cubic", antialias = 1 }),
      node("LpPool", "a", "y", { kernel_shape = { 2, 2 } }) }, "x", "y",
      { s = f32 { 1, 1, 0.6, 0.6 } }), { moth.ones(1, 1, 5, 5) })
    local x = moth.randn(1, 1, 5, 5)
    local wanted = net(x)
    local step = moth.capture(function(input) return moth.no_grad(net, input) end)
    for _ = 1, 3 do same(wanted, step(x)) end
    local other = moth.randn(1, 1, 5, 5)
    same(net(other), step(other))
  end)

  it("names the node of an error in a loop's body", function()
    local body = graph({ node("MatMul", "v v", "w"), node("Identity", "c", "c2") }, "i c v", "c2 w")
    local net = load(graph({ node("Loop", "n - x", "y", { body = body }) }, "n x", "y"),
      { i64(1), f32 { { 1 } } })
    assert.has_error_like(function() net(i64(1), moth.ones(2, 3)) end, "in node 'matmul', MatMul")
  end)
end)
