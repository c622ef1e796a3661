-- The refusals of ops in C, also of ops that only gradients and modules call: the whole message of
-- each, so that a wrong condition, argument, number or order of two values fails.

local moth = require "moth"
local registry = require "spec.support.registry"

local ops = require("moth.binding.bind").ops
local F, T, R = moth.nn.functional, moth.tensor, moth.rand

local deep = moth.rand(1, 1, 1, 1, 1, 1, 1, 1) -- as many dimensions as are possible

local function I(values) return T(values):long() end

-- Makes a claim for each row: the message without its position, a function that raises it.
local function refused(rows)
  for _, row in ipairs(rows) do
    it(row[1], function()
      local ok, problem = pcall(row[2])
      assert.is_false(ok)
      assert.equal(row[1], (tostring(problem):gsub("^[^ ]+:%d+: ", "")))
    end)
  end
end

describe("an op raises", function()
  refused {
    {"bad argument 'base_size' to 'strided_get' (negative offset)",
      function() ops.strided_get(R(3), {3}, {1}, -1, {2}, {1}, 0) end},
    {"bad argument 'base_size' to 'strided_get' (negative stride)",
      function() ops.strided_get(R(3), {3}, {-1}, 0, {2}, {1}, 0) end},
    {"bad argument 'size' to 'strided_get' (negative stride)",
      function() ops.strided_get(R(3), {3}, {1}, 0, {2}, {-1}, 0) end},
    {"bad argument 'base_size' to 'strided_get' (1 size with 2 strides)",
      function() ops.strided_get(R(3), {3}, {1, 1}, 0, {2}, {1}, 0) end},
    {"bad argument 'input' to 'strided_get' ((3) is needed, got f32 (4))",
      function() ops.strided_get(R(4), {3}, {1}, 0, {2}, {1}, 0) end},
    {"bad argument 'source' to 'strided_put' ((2) is needed, got f32 (3))",
      function() ops.strided_put(R(3), R(3), {3}, {1}, 0, {2}, {1}, 0) end},
    {"bad argument 'input' to 'strided_sum' ((2) is needed, got f32 (3))",
      function() ops.strided_sum(R(3), {3}, {1}, 0, {2}, {1}, 0) end},
    {"bad argument 'input' to 'embedding' (i64 (1, 1, 1, 1, 1, 1, 1, 1) has too many dimensions "
      .. "to add one)",
      function() F.embedding(moth.ones(1, 1, 1, 1, 1, 1, 1, 1):long(), R(3, 2)) end},
    {"bad argument 'input' to 'embedding_back' (f32 (3, 2) does not match i64 (2))",
      function() ops.embedding_back(R(3, 2), I{1, 2}, 4) end},
    {"bad argument 'input' to 'embedding_back' (f32 (2) does not match i64 (2))",
      function() ops.embedding_back(R(2), I{1, 2}, 4) end},
    {"bad argument 'num_embeddings' to 'embedding_back' (must be at least 0)",
      function() ops.embedding_back(R(2, 2), I{1, 2}, -1) end},
    {"bad argument 'weight' to 'embedding_renorm_' (a matrix is needed, got f32 (4))",
      function() ops.embedding_renorm_(R(4), I{1, 2}, 1) end},
    {"bad argument 'input' to 'index_sum' ((2) is needed, got f32 (3))",
      function() ops.index_sum(R(3), {I{1, 2}}, {4}) end},
    {"bad argument 'indices' to 'index' (the result would have 9 dimensions, at most 8 are "
      .. "possible)", function() local x = deep return x[I{{1}, {1}}] end},
    {"bad argument 'grads' to 'sgd_step_' (1 tensor is needed, one for each parameter, got 2)",
      function() ops.sgd_step_({R(2)}, {R(2), R(2)}, {}, 0.1) end},
    {"bad argument 'grads' to 'sgd_step_' (number 2 is f32 (2), but its parameter is f32 (3))",
      function() ops.sgd_step_({R(2), R(3)}, {R(2), R(2)}, {}, 0.1) end},
    {"bad argument 'grads' to 'sgd_step_' (number 2 is f64 (3), but its parameter is f32 (3))",
      function() ops.sgd_step_({R(2), R(3)}, {R(2), R(3):double()}, {}, 0.1) end},
    {"bad argument 'exp_avg_sqs' to 'adam_step_' (number 1 is f16 (2), but exp_avgs has f32 (2) "
      .. "there)",
      function() ops.adam_step_({R(2):half()}, {R(2):half()}, {R(2)}, {R(2):half()}, {}, 1) end},
    {"bad argument 'exp_avg_sqs' to 'adam_step_' (number 1 is f32 (3), but its parameter is f32 "
      .. "(2))", function() ops.adam_step_({R(2)}, {R(2)}, {R(2)}, {R(3)}, {}, 1) end},
    {"bad argument 'params' to 'sgd_step_' (number 1 requires a gradient; run steps under "
      .. "no_grad)", function() ops.sgd_step_({R(2):requires_grad_()}, {R(2)}, {}, 0.1) end},
    {"bad argument 'grad' to 'row_norm_back' (f32 (2, 3) does not match f32 (2, 4))",
      function() ops.row_norm_back(R(2, 3), R(2, 4), moth.none, R(2), R(2), 1, 4) end},
    {"bad argument 'sum' to 'row_norm_back' (f32 (2, 3) does not match f32 (2, 4))",
      function()
        ops.row_norm_back(R(2, 4), R(2, 4), moth.none, R(2), R(2), 1, 4, {sum = R(2, 3)})
      end},
    {"bad argument 'groups' to 'row_norm_back' (0 groups of 4 channels are not possible)",
      function() ops.row_norm_back(R(2, 4), R(2, 4), moth.none, R(2), R(2), 0, 4) end},
    {"bad argument 'groups' to 'row_norm_back' (1 group of -4 channels are not possible)",
      function() ops.row_norm_back(R(2, 4), R(2, 4), moth.none, R(2), R(2), 1, -4) end},
    {"bad argument 'rstd' to 'row_norm_back' (f32 (3) does not match f32 (2, 4))",
      function() ops.row_norm_back(R(2, 4), R(2, 4), moth.none, R(3), R(3), 1, 4) end},
    {"bad argument 'rstd' to 'row_norm_back' (f32 (2) does not match f32 (2, 4))",
      function() ops.row_norm_back(R(2, 4), R(2, 4), moth.none, R(3), R(2), 1, 4) end},
    {"bad argument 'grad' to 'row_norm_back' (f64 (2, 4) does not match f32 (2, 4))",
      function() ops.row_norm_back(R(2, 4):double(), R(2, 4), moth.none, R(2), R(2), 1, 4) end},
    {"bad argument 'input' to 'group_norm' (at least one channel is needed, got f32 (2, 0, 3))",
      function() F.group_norm(moth.zeros(2, 0, 3), 1) end},
    {"bad argument 'input' to 'group_norm' (f32 (1, 2, 1) has one value in each group: its "
      .. "variance is 0)", function() F.group_norm(moth.zeros(1, 2, 1), 2) end},
    {"bad argument 'input' to 'channel_norm' ((N, C, ...) is needed, got f32 (3))",
      function() ops.channel_norm(R(3)) end},
    {"bad argument 'var' to 'channel_norm' (is needed, since the other of mean and var is given)",
      function() ops.channel_norm(R(2, 3), {mean = R(3)}) end},
    {"bad argument 'mean' to 'channel_norm' (is needed, since the other of mean and var is "
      .. "given)", function() ops.channel_norm(R(2, 3), {var = R(3)}) end},
    {"bad argument 'map' to 'channel_norm_back' (is needed if a relu follows the norm)",
      function()
        ops.channel_norm_back(R(2, 3), R(2, 3), moth.none, R(3), R(3), {activation = "relu"})
      end},
    {"bad argument 'grad' to 'channel_norm_back' ((2, 3) is needed, got f32 (2, 4))",
      function() ops.channel_norm_back(R(2, 4), R(2, 3), moth.none, R(3), R(3)) end},
    {"bad argument 'norm_type' to 'total_norm' (is NaN)",
      function() ops.total_norm({R(2)}, 0/0) end},
    {"bad argument 'tensors' to 'total_norm' (at least one tensor is needed)",
      function() ops.total_norm({}) end},
    {"bad argument 'total_norm' to 'clip_norm_' (one element is needed, got f32 (2))",
      function() ops.clip_norm_({R(2)}, R(2), 1) end},
    {"bad argument 'found' to 'unscale_' (one element is needed, got f32 (2))",
      function() ops.unscale_({R(2)}, R(2), 1) end},
    {"bad argument 'size' to 'adaptive_avg_pool2d_back' (numbers from 1 to 2^30 are needed, got "
      .. "{0, 2})", function() ops.adaptive_avg_pool2d_back(R(1, 1, 2, 2), {0, 2}) end},
    {"bad argument 'size' to 'adaptive_avg_pool2d_back' (numbers from 1 to 2^30 are needed, got "
      .. "{2, 0})", function() ops.adaptive_avg_pool2d_back(R(1, 1, 2, 2), {2, 0}) end},
    {"bad argument 'size' to 'adaptive_avg_pool2d_back' (numbers from 1 to 2^30 are needed, got "
      .. "{2, 1073741825})",
      function() ops.adaptive_avg_pool2d_back(R(1, 1, 2, 2), {2, 2^30+1}) end},
    {"bad argument 'input' to 'adaptive_avg_pool2d_back' ((N, C, OH, OW) or (C, OH, OW) is "
      .. "needed, got f32 (2, 2))", function() ops.adaptive_avg_pool2d_back(R(2, 2), {2, 2}) end},
    {"bad argument 'alpha' to 'add' (0.5 does not fit bool)",
      function() moth.add(T{true}, T{true}, {alpha = 0.5}) end},
    {"bad argument 'other' to 'div' (the smallest i8 divided by -1 is too large for the type)",
      function()
        moth.div(T({-128}, {dtype = moth.int8}), T({-1}, {dtype = moth.int8}), {rounding_mode =
          "floor"})
      end},
    {"bad argument 'input' to 'div' (bool cannot be divided with a rounding mode)",
      function() moth.div(T{true}, T{true}, {rounding_mode = "floor"}) end},
    {"bad argument 'exponent' to 'pow' (i64 to the power of -1 is not an integer; convert the "
      .. "input to a float dtype)", function() moth.pow(I{2}, -1) end},
    {"bad argument 'min' to 'clamp_tensor' (at least one of min and max is needed)",
      function() ops.clamp_tensor(R(2)) end},
    {"bad argument 'query' to 'attention' (heads_last needs a dimension of heads)",
      function() ops.attention(R(2, 3), R(2, 3), R(2, 3), {heads_last = true}) end},
    {"bad argument 'grad' to 'attention_back' (f32 (2, 4) cannot be the gradient of a result "
      .. "for the query f32 (2, 3))",
      function() ops.attention_back(R(2, 4), R(2, 3), R(2, 3), R(2, 3), R(2, 3), R(2)) end},
    {"bad argument 'attn_mask' to 'scaled_dot_product_attention' (bool or the query's floating "
      .. "dtype is needed, got f16 (2, 2))",
      function()
        F.scaled_dot_product_attention(R(1, 2, 3), R(1, 2, 3), R(1, 2, 3), {attn_mask = R(2,
          2):half()})
      end},
    {"bad argument 'query' to 'scaled_dot_product_attention' (too many dimensions)",
      function()
        F.scaled_dot_product_attention(moth.ones(1, 1, 1, 1, 1, 4, 1, 1), moth.ones(1, 1, 1, 1, 1,
          2, 1, 1), moth.ones(1, 1, 1, 1, 1, 2, 1, 1), {enable_gqa = true})
      end},
    {"bad argument 'input' to 'bag_sum' (a 2D input, or a 1D input with offsets, is needed, got "
      .. "i64 (2))", function() ops.bag_sum(I{1, 2}, R(3, 2)) end},
    {"bad argument 'per_sample_weights' to 'bag_sum' (f32 (2, 1) does not fit i64 (1, 2))",
      function() ops.bag_sum(I{{1, 2}}, R(3, 2), R(2, 1)) end},
    {"bad argument 'list' to 'bag_sum' (the bag numbers must be ascending)",
      function() ops.bag_sum(I{1, 2, 3}, R(3, 2), moth.none, I{1, 2, 1}, 2) end},
    {"bad argument 'weight' to 'bag_sum' ((tokens, features) is needed, got f32 (3))",
      function() ops.bag_sum(I{{1, 2}}, R(3)) end},
    {"bad argument 'input' to 'conv2d_input' (f32 (1, 2, 3, 3) is not the result of the filters "
      .. "f32 (2, 1, 2, 2) for f32 (1, 1, 5, 5))",
      function() ops.conv2d_input(R(1, 2, 3, 3), R(2, 1, 2, 2), {5, 5}) end},
    {"bad argument 'output' to 'conv2d_weight' (f32 (1, 2, 3, 3) is not the result of a kernel "
      .. "of {2, 2} for f32 (1, 2, 3, 3))",
      function() ops.conv2d_weight(R(1, 2, 3, 3), R(1, 2, 3, 3), {2, 2}) end},
    {"bad argument 'input' to 'conv3d_input' (f32 (1, 2, 3, 3, 3) is not the result of the "
      .. "filters f32 (2, 1, 2, 2, 2) for f32 (1, 1, 5, 5, 5))",
      function() ops.conv3d_input(R(1, 2, 3, 3, 3), R(2, 1, 2, 2, 2), {5, 5, 5}) end},
    {"bad argument 'input' to 'spread' (f32 (2) cannot be broadcast to {2, 3})",
      function() ops.spread(R(2), {2, 3}) end},
    {"bad argument 'fill_value' to 'full' (300 does not fit u8)",
      function() moth.full({2}, 300, {dtype = moth.uint8}) end},
    {"bad argument 'fill_value' to 'full' (nan does not fit u8)",
      function() moth.full({2}, 0/0, {dtype = moth.uint8}) end},
    {"arange: the range from 0 to 1.0000000000000001e+300 by 1 has too many values",
      function() moth.arange(0, 1e300) end},
    {"arange: the range from 0 to 9.2233720368547758e+18 by 1 has too many values",
      function() moth.arange(0, 9223372036854775807LL) end},
    {"bad argument 'input_lengths' to 'ctc_losses' (one for each of 2 sequences is needed, got "
      .. "i64 (1))", function() ops.ctc_losses(R(5, 2, 4), I{{2, 3}, {3, 4}}, {5}, {2, 2}) end},
    {"bad argument 'target_lengths' to 'ctc_losses' (one for each of 2 sequences is needed, got "
      .. "i64 (1))", function() ops.ctc_losses(R(5, 2, 4), I{{2, 3}, {3, 4}}, {5, 5}, {2}) end},
    {"bad argument 'grad' to 'ctc_back' ((2) is needed, got f32 (3))",
      function() ops.ctc_back(R(3), R(5, 2, 4), I{{2, 3}, {3, 4}}, {5, 5}, {2, 2}) end},
    {"bad argument 'idxs' to 'nms_kept' ((3), one class per box, is needed, got i64 (2))",
      function() ops.nms_kept(R(3, 4), 0.5, I{1, 2}) end},
    {"bad argument 'x2' to 'distances' (rows of one length are needed, got f32 (3, 4))",
      function() ops.distances(R(3, 2), R(3, 4)) end},
    {"bad argument 'x1' to 'distances' (rows of one length are needed, got f32 (3))",
      function() ops.distances(R(3)) end},
    {"bad argument 'p' to 'distances' (1 or 2 is needed, got 3)",
      function() ops.distances(R(3, 2), {p = 3}) end},
    {"bad argument 'grad' to 'distances_back' (does not fit: f32 (3))",
      function() ops.distances_back(R(3), R(3), R(3, 2), R(3, 2)) end},
    {"bad argument 'A' to 'eig' (f32 (1, 1, 1, 1, 1, 1, 1, 1) leaves no dimension for complex "
      .. "numbers)", function() moth.linalg.eig(deep) end},
    {"bad argument 'mode' to 'qr' (a square Q of 32768 columns is too large for LAPACK)",
      function() moth.linalg.qr(moth.zeros(32768, 1), "complete") end},
    {"bad argument 'mode' to 'backward' (the gradient of R needs Q, which mode 'r' does not "
      .. "compute: use mode 'reduced')",
      function()
        local r = select(2, moth.linalg.qr(R(3, 2):requires_grad_(), "r")) r:sum():backward()
      end},
    {"bad argument 'mode' to 'backward' (the additional columns of a complete Q are not unique "
      .. "and have no gradient: use mode 'reduced')",
      function()
        local q = moth.linalg.qr(R(3, 2):requires_grad_(), "complete") q:sum():backward()
      end},
    {"bad argument 'pivots' to 'linalg_lu_order' (each row needs at most 2 pivots, got i64 (3))",
      function() ops.linalg_lu_order(I{1, 2, 3}, 2) end},
    {"bad argument 'pivots' to 'linalg_lu_order' (4 is not one of the 3 rows)",
      function() ops.linalg_lu_order(I{1, 4}, 3) end},
    {"bad argument 'input' to 'fft_r2c' (at most 7 dimensions are needed, got f32 (1, 1, 1, 1, "
      .. "1, 1, 1, 1))", function() ops.fft_r2c(deep) end},
    {"bad argument 'n' to 'fft_c2r' (6 does not match the coefficients f32 (3, 2))",
      function() ops.fft_c2r(R(3, 2), 6) end},
    {"bad argument 'n' to 'fft_c2r' (0 does not match the coefficients f32 (1, 2))",
      function() ops.fft_c2r(R(1, 2), 0) end},
    {"bad argument 'other' to 'fft_mul' (pairs are needed, (..., 2), got f32 (3) with f32 (3, "
      .. "2))", function() ops.fft_mul(R(3, 2), R(3)) end},
    {"bad argument 'steps' to 'fused' (1 to 48 steps of 9 numbers are needed)",
      function() ops.fused({}, {1}, {6}) end},
    {"bad argument 'alpha' to 'index_add' (the factor does not fit i64)",
      function() moth.index_add(I{1, 2}, 1, I{1}, I{1}, {alpha = 1.5}) end},
    {"bad argument 'input' to 'one_hot' (i64 (1, 1, 1, 1, 1, 1, 1, 1) has too many dimensions "
      .. "to add one)", function() F.one_hot(moth.ones(1, 1, 1, 1, 1, 1, 1, 1):long(), 3) end},
    {"bad argument 'grad' to 'grid_sample_back' ((1, 1, 2, 2) is needed, got f32 (1, 1, 2, 3))",
      function() ops.grid_sample_back(R(1, 1, 2, 3), R(1, 2, 2, 2), {1, 1, 4, 4}) end},
    {"bad argument 'order' to 'grid_weights' (0 to 99 are possible, got 100)",
      function() ops.grid_weights(R(1, 2, 2, 2), {4, 4}, {order = {0, 100, 0}}) end},
    {"bad argument 'order' to 'grid_weights' (0 to 99 are possible, got -1)",
      function() ops.grid_weights(R(1, 2, 2, 2), {4, 4}, {order = {-1, 0, 0}}) end},
    {"bad argument 'input' to 'histc' (the range of the elements, 1 to inf, is not valid; set "
      .. "min and max)", function() moth.histc(T{1, math.huge}) end},
    {"bad argument 'input' to 'histc' (the range of the elements, 1 to nan, is not valid; set "
      .. "min and max)", function() moth.histc(T{1, 0/0}) end},
    {"bad argument 'max' to 'histc' (the range from min to max, 0 to inf, is not valid)",
      function() moth.histc(T{1, 2}, 3, 0, math.huge) end},
    {"bad argument 'tensors' to 'cat' (number 2 is f32 (3), the first is f32 (2, 3): they may "
      .. "differ in dim 1 only)", function() moth.cat{R(2, 3), R(3)} end},
    {"bad argument 'tensors' to 'cat' (number 2 is f32 (3, 4), the first is f32 (2, 3): they "
      .. "may differ in dim 2 only)", function() moth.cat({R(2, 3), R(3, 4)}, 2) end},
    {"bad argument 'tensors' to 'cat' (tensors with dimensions are needed, got f32 (); use "
      .. "stack)", function() moth.cat{T(1)} end},
    {"bad argument 'tensors' to 'stack' (f32 (1, 1, 1, 1, 1, 1, 1, 1) has too many dimensions "
      .. "to add one)", function() moth.stack{deep, deep} end},
    {"bad argument 'input' to 'nll_loss' ((N, C, ...) or (C) is needed, got f32 ())",
      function() F.nll_loss(T(1), I{1}[1]) end},
    {"bad argument 'input' to 'nll_loss_back' (() is needed, got f32 (3))",
      function() ops.nll_loss_back(R(3), I{1, 2}, {2, 3}) end},
    {"bad argument 'grad' to 'class_entropy_back' (() is needed, got f32 (2))",
      function() ops.class_entropy_back(R(2), R(2, 3), R(2), R(2), I{1, 2}) end},
    {"bad argument 'most' to 'class_entropy_back' (f32 (3) does not match i64 (2))",
      function() ops.class_entropy_back(T(1), R(2, 3), R(3), R(2), I{1, 2}) end},
    {"bad argument 'rest' to 'class_entropy_back' (f32 (3) does not match i64 (2))",
      function() ops.class_entropy_back(T(1), R(2, 3), R(2), R(3), I{1, 2}) end},
    {"bad argument 'target' to 'cross_entropy_soft' (the shape of f32 (2, 3) is needed, got f32 "
      .. "(2, 4))", function() ops.cross_entropy_soft(R(2, 3), R(2, 4)) end},
    {"bad argument 'weight' to 'cross_entropy_soft' ((3), one weight for each class, is needed, "
      .. "got f32 (2))", function() ops.cross_entropy_soft(R(2, 3), R(2, 3), R(2)) end},
    {"bad argument 'input' to 'cross_entropy_soft' ((N, C, ...) or (C) is needed, got f32 ())",
      function() ops.cross_entropy_soft(T(1), T(1)) end},
    {"bad argument 'other' to 'outer_sum' (f32 (3, 3) and f32 (2, 3) differ before their last "
      .. "dimension)", function() ops.outer_sum(R(2, 3), R(3, 3)) end},
    {"bad argument 'other' to 'outer_sums' (input and other need the same number of tensors, at "
      .. "least one, got 2 and 1)", function() ops.outer_sums({R(2, 3)}, {R(2, 3), R(2, 2)}) end},
    {"bad argument 'other' to 'outer_sums' (f32 (3, 4) does not fit f32 (2, 3) at 2)",
      function() ops.outer_sums({R(2, 3), R(2, 3)}, {R(2, 4), R(3, 4)}) end},
    {"bad argument 'size' to 'pad_back' (the padded sizes do not match f32 (5))",
      function() ops.pad_back(R(5), {4}, {1, 1}) end},
    {"bad argument 'step' to 'slice' (a number from 1 on is needed, got 0)",
      function() ops.slice(R(5), 1, 1, 3, 0) end},
    {"slice: the range from 2 to 6 leaves dim 1 of f32 (5), which has size 5",
      function() ops.slice(R(5), 1, 1, 6) end},
    {"slice: the range from 5 to 2 leaves dim 1 of f32 (5), which has size 5",
      function() ops.slice(R(5), 1, 4, 2) end},
    {"bad argument 'input' to 'diagonal' (at least 2 dimensions are needed, got f32 (5))",
      function() moth.diagonal(R(5)) end},
    {"bad argument 'dim2' to 'diagonal' (dim 2 is named twice)",
      function() moth.diagonal(R(5, 5), 0, 2, -1) end},
    {"bad argument 'input' to 'unfold' (f32 (1, 1, 1, 1, 1, 1, 1, 1) has too many dimensions to "
      .. "add one)", function() deep:unfold(1, 1, 1) end},
    {"bad argument 'size' to 'unfold' (0 to 5 are possible in f32 (5), got 6)",
      function() R(5):unfold(1, 6, 1) end},
    {"bad argument 'step' to 'unfold' (at least 1 is needed, got 0)",
      function() R(5):unfold(1, 2, 0) end},
    {"bad argument 'stride' to 'as_strided' (strides cannot be negative, got {-1})",
      function() moth.as_strided(R(5), {2}, {-1}) end},
    {"bad argument 'storage_offset' to 'as_strided' (a number from 0 on is needed, got -1)",
      function() moth.as_strided(R(5), {2}, {1}, {storage_offset = -1}) end},
    {"bad argument 'size' to 'as_strided' (sizes {2} with strides {5} from 0 on need more than "
      .. "the 5 elements of the storage)", function() moth.as_strided(R(5), {2}, {5}) end},
    {"bad argument 'input' to 'unbind' (1048577 pieces are asked for, at most 1048576 are "
      .. "possible)", function() moth.zeros(2^20+1):unbind() end},
    {"bad argument 'input' to 'picture_resize' ((N, C, H, W) is needed, got f32 (3, 4, 5))",
      function() ops.picture_resize(R(3, 4, 5), {2, 2}) end},
    {"bad argument 'input' to 'picture_resize' (sides of 1 to 2^24 are needed, got f32 (1, 3, "
      .. "0, 5))", function() ops.picture_resize(moth.zeros(1, 3, 0, 5), {2, 2}) end},
    {"bad argument 'size' to 'picture_resize' (sides of 1 to 2^24 are needed, got {2, 0})",
      function() ops.picture_resize(moth.zeros(1, 3, 4, 5), {2, 0}) end},
    {"bad argument 'size' to 'picture_resize' (sides of 1 to 2^24 are needed, got {16777217, 1})",
      function() ops.picture_resize(moth.zeros(1, 3, 4, 5), {2^24+1, 1}) end},
    {"bad argument 'map' to 'picture_warp' (9 numbers are needed, got 3)",
      function() ops.picture_warp(R(1, 2, 4, 5), {1, 0, 0}, {2, 2}) end},
    {"bad argument 'fill' to 'picture_warp' (one number, or one for each channel of f32 (1, 2, "
      .. "4, 5), is needed, got 3)",
      function()
        ops.picture_warp(R(1, 2, 4, 5), {1, 0, 0, 0, 1, 0, 0, 0, 1}, {2, 2}, {fill = {1, 2, 3}})
      end},
    {"bad argument 'input' to 'picture_adjust' (1 or 3 channels are needed, got u8 (1, 2, 4, 5))",
      function() ops.picture_adjust(moth.zeros(1, 2, 4, 5):byte(), "contrast", 1) end},
    {"bad argument 'input' to 'picture_normalize' (f32 is not supported here, wanted u8)",
      function() ops.picture_normalize(R(1, 3, 4, 5), {1, 2}, {1, 1, 1}) end},
    {"bad argument 'size' to 'max_pool2d_back' (numbers from 1 on are needed, got {0, 2})",
      function() ops.max_pool2d_back(R(1, 2, 2), I{{{1}}}, {0, 2}) end},
    {"bad argument 'indices' to 'max_pool2d_back' (i64 (1, 1, 1) does not match f32 (1, 2, 2))",
      function() ops.max_pool2d_back(R(1, 2, 2), I{{{1}}}, {4, 2}) end},
    {"bad argument 'input' to 'avg_pool2d_back' ((N, C, OH, OW) or (C, OH, OW) is needed, got "
      .. "f32 (2))",
      function() ops.avg_pool2d_back(R(2), {5, 5}, {2, 2}, {2, 2}, {0, 0}, false, true) end},
    {"bad argument 'other' to 'inner' (f32 (1, 1, 1, 1, 1) and f32 (1, 1, 1, 1, 1, 1) have too "
      .. "many dimensions)",
      function() moth.inner(moth.ones(1, 1, 1, 1, 1, 1), moth.ones(1, 1, 1, 1, 1)) end},
    {"bad argument 'other' to 'inner' (the last dimensions of f32 (2, 2) and f32 (2, 3) differ)",
      function() moth.inner(R(2, 3), R(2, 2)) end},
    {"bad argument 'dims' to 'tile' (at most 8 dimensions are possible, got 9)",
      function() moth.tile(R(2), {1, 1, 1, 1, 1, 1, 1, 1, 1}) end},
    {"bad argument 'dims' to 'tile' (a dimension cannot be repeated -1 times)",
      function() moth.tile(R(2), {-1}) end},
    {"bad argument 'tensors' to 'meshgrid' (1 to 8 tensors are needed, got 0)",
      function() moth.meshgrid({}) end},
    {"bad argument 'tensors' to 'meshgrid' (1 to 8 tensors are needed, got 9)",
      function() local r = R(1) moth.meshgrid{r, r, r, r, r, r, r, r, r} end},
    {"bad argument 'tensors' to 'meshgrid' (number 2 is not a vector, but f32 (2, 2))",
      function() moth.meshgrid{R(1), R(2, 2)} end},
    {"bad argument 'input' to 'diag_embed' (1 to 7 dimensions are needed, got f32 (1, 1, 1, 1, "
      .. "1, 1, 1, 1))", function() moth.diag_embed(deep) end},
    {"bad argument 'dim2' to 'diag_embed' (dim 1 is named twice)",
      function() moth.diag_embed(R(2), 0, 1, 1) end},
    {"bad argument 'n' to 'bessel_of' (derivative -1 is not supported)",
      function() ops.bessel_of(R(2), 'j0', -1) end},
    {"bad argument 'n' to 'bessel_of' (derivative 1 is not supported)",
      function() ops.bessel_of(R(2), "airy", 1) end},
    {"bad argument 'n' to 'bessel_of' (derivative 17 is not supported)",
      function() ops.bessel_of(R(2), 'j0', 17) end},
    {"bad argument 'decimals' to 'round' (other than 0 needs a float dtype, got i64 (1))",
      function() moth.round(I{2}, {decimals = 1}) end},
    {"bad argument 'full_matrices' to 'svd' (all vectors of f32 (32768, 1) are too large for "
      .. "LAPACK: use full_matrices = false)",
      function() moth.linalg.svd(moth.zeros(32768, 1)) end},
    {"bad argument 'grad' to 'linalg_cofactor_back' (f32 (3, 3) does not have the shape of f32 "
      .. "(2, 2))", function() ops.linalg_cofactor_back(R(2, 2), R(3, 3)) end},
    {"bad argument 'output' to 'softmax_back' (f32 (3, 2) does not have the shape of f32 (2, 3))",
      function() ops.softmax_back(R(2, 3), R(3, 2), 1) end},
    {"bad argument 'output' to 'log_softmax_back' (f32 (3, 2) does not have the shape of f32 "
      .. "(2, 3))", function() ops.log_softmax_back(R(2, 3), R(3, 2), 1) end},
    {"bad argument 'input' to 'median' (i64 (0) has no elements to choose from)",
      function() moth.median(I{}) end},
    {"bad argument 'input' to 'unique' (a tensor with dimensions is needed, got f32 ())",
      function() moth.unique(T(1), {dim = 1}) end},
    {"bad argument 'sizes' to 'unflatten' ({1, 1} results in 9 dimensions for f32 (1, 1, 1, 1, "
      .. "1, 1, 1, 1), 1 to 8 are needed)", function() deep:unflatten(1, {1, 1}) end},
    {"bad argument 'sizes' to 'unflatten' ({} does not fit the 2 elements of f32 (2))",
      function() R(2):unflatten(1, {}) end},
    {"bad argument 'input' to 'unsqueeze' (f32 (1, 1, 1, 1, 1, 1, 1, 1) has too many dimensions "
      .. "to add one)", function() deep:unsqueeze(1) end},
    {"bad argument 'size' to 'expand' ({-1, 2} cannot keep dim 1, which is a new dimension of "
      .. "f32 (2))", function() R(2):expand(-1, 2) end},
    {"bad argument 'size' to 'expand' ({3} does not fit f32 (2): dim 1 has size 2, not 1)",
      function() R(2):expand(3) end},
    {"bad argument 'size' to 'expand' ({3} needs at least the dimensions of f32 (2, 3))",
      function() R(2, 3):expand(3) end},
    {"bad argument 'factor' to 'recur' (f32 (2) is needed, got f32 (3))",
      function() ops.recur(R(2), R(3), 1) end},
    {"bad argument 'grad' to 'cumprod_back' (f32 (3) is needed, got f32 (2))",
      function() ops.cumprod_back(R(2), R(3), 1) end},
    {"bad argument 'grad' to 'prod_back' (one for each row of f32 (3, 3) is needed, got f32 (2))",
      function() ops.prod_back(R(2), R(3, 3)) end},
    {"bad argument 'dtype' to 'cumsum' (a dtype such as moth.float32 is needed, got 99)",
      function() moth.cumsum(R(2), 1, {dtype = 99}) end},
    {"bad argument 'hx' to 'lstm_cell' (a state and a cell, {h, c}, are needed, got 1 tensor(s))",
      function() ops.lstm_cell(R(1, 2), {R(1, 3)}, R(12, 2), R(12, 3)) end},
    {"bad argument 'prob' to 'binomial_of' (the shape of count is needed, got f32 (3))",
      function() ops.binomial_of(R(2), R(3)) end},
    {"bad argument 'index' to 'row_pick' (one position for each row, (2), is needed, got i64 "
      .. "(3))", function() ops.row_pick(R(2, 3), I{1, 2, 3}, 2) end},
    {"bad argument 'input' to 'row_place' (one value for each row, (2), is needed, got f32 (3))",
      function() ops.row_place(R(3), I{1, 2}, 2, false, {2, 3}) end},
    {"bad argument 'index' to 'row_place' (one position for each row, (2), is needed, got i64 "
      .. "(3))", function() ops.row_place(R(2), I{1, 2, 3}, 2, false, {2, 3}) end},
    {"bad argument 'input' to 'min_dim' (f32 (2, 0) has no elements to choose from)",
      function() ops.min_dim(moth.zeros(2, 0), 2) end},
    {"bad argument 'input' to 'argmax' (f32 (0) has no elements to choose from)",
      function() moth.zeros(0):argmax() end},
    {"bad argument 'input' to 'resize' ((N, C, H, W) is needed, got f32 (1, 2, 3))",
      function() ops.resize(R(1, 2, 3), {2, 2}) end},
    {"bad argument 'recompute_scale_factor' to 'interpolate' (is for scale_factor only)",
      function() F.interpolate(R(1, 1, 2, 2), {size = {3, 3}, recompute_scale_factor = true}) end},
    {"bad argument 'input' to 'resize_back' ((N, C, H, W) is needed, got f32 (1, 2, 3))",
      function() ops.resize_back(R(1, 2, 3), {2, 2}) end},
    {"bad argument 'index' to 'index_copy' (positions count from 1, got 0)",
      function() moth.index_copy(R(3), 1, I{0}, R(1)) end},
    {"bad argument 'index' to 'index_fill' (a list of positions is needed, got i64 (1, 1))",
      function() moth.index_fill(R(3), 1, I{{1}}, 2) end},
    {"bad argument 'b' to 'trunc_normal_' (a number above a = 2 is needed, got 1)",
      function() moth.nn.init.trunc_normal_(R(3), 0, 1, 2, 1) end},
    {"bad argument 'reserve' to 'cell_back' ((6,) is needed, got f32 (1))",
      function()
        ops.cell_back(R(1, 2), {R(1, 3)}, R(3, 2), R(3, 3), R(1), R(1, 3), moth.none, "tanh")
      end},
    {"bad argument 'reserve' to 'recurrent_back' ((24,) is needed, got f32 (1))",
      function()
        ops.recurrent_back(R(4, 1, 2), {R(1, 1, 3)}, {R(3, 2), R(3, 3), R(3), R(3)}, R(1), {mode =
          "tanh"})
      end},
    {"bad argument 'base_size' to 'strided_get' (reaches too far)",
      function() ops.strided_get(R(4097), {4097}, {2^52}, 0, {2}, {1}, 0) end},
    {"bad argument 'size' to 'strided_get' (reaches too far)",
      function() ops.strided_get(R(4097), {4097}, {1}, 0, {4097}, {2^52}, 0) end},
    {"bad argument 'stride' to 'conv_transpose2d' (numbers up to 2^30 are needed, got "
      .. "{4503599627370496, 4503599627370496})",
      function() F.conv_transpose2d(R(1, 1, 1, 1025), R(1, 1, 1, 1), {stride = 2^52}) end},
    {"bad argument 'dims' to 'tile' (the result has too many elements)",
      function() moth.tile(R(4096), {2^52}) end},
    {"bad argument 'mean' to 'picture_normalize' (a number for each channel of u8 (1, 3, 4, 5) "
      .. "is needed, got 2)",
      function() ops.picture_normalize(moth.zeros(1, 3, 4, 5):byte(), {1, 2}, {1, 1, 1}) end},
    {"bad argument 'std' to 'picture_normalize' (a number for each channel of u8 (1, 3, 4, 5) "
      .. "is needed, got 2)",
      function() ops.picture_normalize(moth.zeros(1, 3, 4, 5):byte(), {1, 1, 2}, {1, 1}) end},
    {"bad argument 'index' to 'index_copy' (positions count from 1 here, got -1)",
      function() moth.index_copy(R(3), 1, I{-1}, R(1)) end},
    {"bad argument 'index' to 'index_fill' (positions count from 1 here, got -1)",
      function() moth.index_fill(R(3), 1, I{-1}, 1) end},
    {"bad argument 'size' to 'avg_pool2d_back' ({9, 5} does not give f32 (1, 2, 2))",
      function() ops.avg_pool2d_back(R(1, 2, 2), {9, 5}, {2, 2}, {2, 2}, {0, 0}, false, true) end},
    {"bad argument 'grad' to 'cumprod_back' (f32 (2) is needed, got f32 (3))",
      function() ops.cumprod_back(R(3), R(2), 1) end},
    {"bad argument 'b' to 'trunc_normal_' (a number above a = 2 is needed, got 2)",
      function() moth.nn.init.trunc_normal_(R(3), 0, 1, 2, 2) end},
    {"bad argument 'dh' to 'cell_back' ((1, 3) is needed, got f32 (1, 4))",
      function()
        ops.cell_back(R(1, 2), {R(1, 3)}, R(3, 2), R(3, 3), R(6), R(1, 4), moth.none, "tanh")
      end},
    {"bad argument 'reserve' to 'cell_back' ((18,) is needed, got f32 (21))",
      function()
        ops.cell_back(R(1, 2), {R(1, 3), R(1, 3)}, R(12, 2), R(12, 3), R(21), R(1, 3), R(2, 3),
          "lstm")
      end},
    {"bad argument 'dy' to 'recurrent_back' ((4, 1, 3) is needed, got f32 (4, 1, 2))",
      function()
        ops.recurrent_back(R(4, 1, 2), {R(1, 1, 3)}, {R(3, 2), R(3, 3), R(3), R(3)}, R(24), R(4,
          1, 2), {mode = "tanh"})
      end},
    {"bad argument 'dh' to 'recurrent_back' ((1, 1, 3) is needed, got f32 (1, 1, 4))",
      function()
        ops.recurrent_back(R(4, 1, 2), {R(1, 1, 3)}, {R(3, 2), R(3, 3), R(3), R(3)}, R(24), R(4,
          1, 3), R(1, 1, 4), {mode = "tanh"})
      end},
    {"bad argument 'dc' to 'recurrent_back' ((1, 1, 3) is needed, got f32 (1, 1, 4))",
      function()
        ops.recurrent_back(R(4, 1, 2), {R(1, 1, 3)}, {R(3, 2), R(3, 3), R(3), R(3)}, R(24), R(4,
          1, 3), R(1, 1, 3), R(1, 1, 4), {mode = "tanh"})
      end},
    {"bad argument 'hx' to 'recurrent_back' (1 tensor(s) are needed, got 2)",
      function()
        ops.recurrent_back(R(4, 1, 2), {R(1, 1, 3), R(1, 1, 3)}, {R(3, 2), R(3, 3), R(3), R(3)},
          R(24), {mode = "tanh"})
      end},
    {"bad argument 'hx' to 'recurrent_back' (2 tensor(s) are needed, got 1)",
      function()
        ops.recurrent_back(R(4, 1, 2), {R(1, 1, 3)}, {R(3, 2), R(3, 3), R(3), R(3)}, R(24), {mode
          = "lstm"})
      end},
    {"bad argument 'hx' to 'recurrent_back' (f64 (1, 1, 3) does not match f32 (4, 1, 2))",
      function()
        ops.recurrent_back(R(4, 1, 2), {R(1, 1, 3):double()}, {R(3, 2), R(3, 3), R(3), R(3)},
          R(24), {mode = "tanh"})
      end},
    {"bad argument 'params' to 'recurrent_back' (f64 (3, 2) does not match f32 (4, 1, 2))",
      function()
        ops.recurrent_back(R(4, 1, 2), {R(1, 1, 3)}, {R(3, 2):double(), R(3, 3), R(3), R(3)},
          R(24), {mode = "tanh"})
      end},
    {"bad argument 'reserve' to 'recurrent_back' (f64 (24) does not match f32 (4, 1, 2))",
      function()
        ops.recurrent_back(R(4, 1, 2), {R(1, 1, 3)}, {R(3, 2), R(3, 3), R(3), R(3)},
          R(24):double(), {mode = "tanh"})
      end},
    {"bad argument 'num_layers' to 'recurrent_back' (a number from 1 to the layers of params is "
      .. "needed, got 5)",
      function()
        ops.recurrent_back(R(4, 1, 2), {R(1, 1, 3)}, {R(3, 2), R(3, 3), R(3), R(3)}, R(24), {mode
          = "tanh", num_layers = 5})
      end},
    {"bad argument 'num_layers' to 'recurrent_back' (a number from 1 to the layers of params is "
      .. "needed, got 0)",
      function()
        ops.recurrent_back(R(4, 1, 2), {R(1, 1, 3)}, {R(3, 2), R(3, 3), R(3), R(3)}, R(24), {mode
          = "tanh", num_layers = 0})
      end},
    {"bad argument 'index' to 'index_select' (a list of positions is needed, got i64 (1, 1))",
      function() moth.index_select(R(3), 1, I{{1}}) end},
    {"bad argument 'base_size' to 'strided_sum' (negative offset)",
      function() ops.strided_sum(R(2), {3}, {1}, -1, {2}, {1}, 0) end},
    {"bad argument 'p' to 'norm_p' (a number is needed, got nan)",
      function() ops.norm_p(R(3), 0/0) end},
    {"bad argument 'input' to 'instance_norm' (more than one value per channel of each sample "
      .. "is needed, got f32 (2, 3, 1))", function() F.instance_norm(R(2, 3, 1)) end},
    {"bad argument 'running_mean' to 'instance_norm' (is needed if use_input_stats is false)",
      function() F.instance_norm(R(2, 3, 4), {use_input_stats = false}) end},
    {"bad argument 'input' to 'batch_norm' (more than one value per channel is needed in "
      .. "training, got f32 (1, 3))",
      function() F.batch_norm(R(1, 3), R(3), R(3), {training = true}) end},
    {"bad argument 'running_mean' to 'batch_norm' ((3) is needed, got f32 (4))",
      function() F.batch_norm(R(2, 3), R(4), R(3)) end},
    {"bad argument 'running_var' to 'batch_norm' ((3) is needed, got f32 (4))",
      function() F.batch_norm(R(2, 3), R(3), R(4)) end},
    {"bad argument 'weight' to 'batch_norm' ((3) is needed, got f32 (2))",
      function() F.batch_norm(R(2, 3), R(3), R(3), R(2)) end},
    {"bad argument 'bias' to 'batch_norm' ((3) is needed, got f32 (2))",
      function() F.batch_norm(R(2, 3), R(3), R(3), R(3), R(2)) end},
    {"bad argument 'normalized_shape' to 'layer_norm' ({4} are not the last sizes of f32 (2, 3))",
      function() F.layer_norm(R(2, 3), {4}) end},
    {"bad argument 'num_groups' to 'group_norm' (3 channels do not make 2 groups)",
      function() F.group_norm(R(2, 3), 2) end},
    {"bad argument 'num_groups' to 'group_norm' (3 channels do not make 0 groups)",
      function() F.group_norm(R(2, 3), 0) end},
    {"bad argument 'input' to 'group_norm' ((N, C, ...) is needed, got f32 (3))",
      function() F.group_norm(R(3), 1) end},
    {"bad argument 'weight' to 'group_norm' ((4) is needed, got f32 (3))",
      function() F.group_norm(R(2, 4), 2, R(3)) end},
    {"bad argument 'bias' to 'group_norm' ((4) is needed, got f32 (3))",
      function() F.group_norm(R(2, 4), 2, R(4), R(3)) end},
    {"bad argument 'eps' to 'group_norm' (a number from 0 on is needed, got -1)",
      function() F.group_norm(R(2, 4), 2, {eps = -1}) end},
    {"bad argument 'eps' to 'layer_norm' (a number from 0 on is needed, got nan)",
      function() F.layer_norm(R(2, 4), {4}, {eps = 0/0}) end},
  }
end)

describe("a program of a fused loop raises for", function()
  local x = R(2)
  local function step(...)
    local words = {...}
    for i = #words + 1, 9 do words[i] = 0 end
    return words
  end
  local rows = {
    {"no input", "input' to 'fused' (1 to 8 tensors are needed, got 0)", {}, step(0, -1, 2), {-1}},
    {"9 inputs", "input' to 'fused' (1 to 8 tensors are needed, got 9)",
      {x, x, x, x, x, x, x, x, x}, step(0, -1, 3, 9, 0, 1), {-1}},
    {"no result", "1 to 4 results are needed, each with a dtype", {x},
      step(0, -1, 3, 1, 0, 0), {-1}, 0},
    {"5 results", "1 to 4 results are needed, each with a dtype", {x}, step(0, -1, 3, 1, 0, 0),
      {-1, -1, -1, -1, -1}, 5},
    {"a result without a dtype", "1 to 4 results are needed, each with a dtype", {x},
      step(0, -1, 3, 1, 0, 0), {-1}, 2},
    {"an unknown dtype", "bad argument 'dtypes' to 'fused' (there is no such dtype)", {x},
      step(0, -1, 3, 1, 0, 0), {99}},
    {"an unknown dtype of a step", "bad argument 'steps' to 'fused' (there is no such dtype)", {x},
      step(0, 99, 3, 1, 0, 0), {-1}},
    {"an unknown function", "there is no such function", {x}, step(9999, -1, 3, 1, 0, 0), {-1}},
    {"one operand", "there is no such function", {x}, step(0, -1, 1, 1), {-1}},
    {"a result that is read before", "a value must be computed once, before it is read", {x},
      step(0, -1, 3, 1, 0, 1), {-1}},
    {"a result that is an input", "a value must be computed once, before it is read", {x},
      step(0, -1, 3, 0, 0, 0), {-1}},
    {"a value that does not exist", "a value must be computed once, before it is read", {x},
      step(0, -1, 3, 1, 0, 2), {-1}},
    {"an operand too few", "the values do not match the function", {x}, step(0, -1, 2, 1, 0), {-1}},
  }
  for _, row in ipairs(rows) do
    it(row[1], function()
      local ok, problem = pcall(ops.fused, row[3], row[4], row[5], row[6] or 1)
      assert.is_false(ok)
      assert.is_truthy(tostring(problem):find(row[2], 1, true), tostring(problem))
    end)
  end
end)

describe("inputs of two dtypes raise in", function()
  local x, wide = R(2, 2), R(2, 2):double()
  refused {
    {"bad argument 'mat2' to 'mm' (f64 (2, 2) does not match 'input', f32 (2, 2); convert one of "
      .. "them with :to())", function() moth.mm(x, wide) end},
    {"bad argument 'mat2' to 'addmm' (f64 (2, 2) does not match 'input', f32 (2, 2); convert one "
      .. "of them with :to())", function() moth.addmm(x, x, wide) end},
    {"bad argument 'weight' to 'conv2d' (f64 (1, 1, 1, 1) does not match 'input', f32 (1, 1, 2, "
      .. "2); convert one of them with :to())",
      function() F.conv2d(R(1, 1, 2, 2), R(1, 1, 1, 1):double()) end},
    {"bad argument 'bias' to 'linear' (f64 (2) does not match 'input', f32 (2, 2); convert one of "
      .. "them with :to())", function() F.linear(x, x, R(2):double()) end},
    {"bad argument 'B' to 'solve' (f64 (2, 2) does not match 'A', f32 (2, 2); convert one of them "
      .. "with :to())", function() moth.linalg.solve(x, wide) end},
  }
end)

-- Makes a claim for each row: a name, a function, the sizes of its result.
local function taken(rows)
  for _, row in ipairs(rows) do
    it(row[1], function() assert.same(row[3], row[2]():size()) end)
  end
end

describe("an op accepts the last value before a refusal:", function()
  local seven, eight = {1, 1, 1, 1, 1, 1, 2}, {1, 1, 1, 1, 1, 1, 1, 2}
  local flat = deep:reshape(1, 1, 1, 1, 1, 1, 1)
  taken {
    {"a stride of 0", function() return ops.strided_get(R(3), {3}, {1}, 0, {2}, {0}, 0) end, {2}},
    {"tokens of 7 dimensions", function() return F.embedding(flat:long() + 1, R(3, 2)) end, eight},
    {"no tokens of an empty table",
      function() return ops.embedding_back(R(0, 2), T({}):long(), 0) end, {0, 2}},
    {"a result of 8 dimensions", function() return flat[I {{1, 1}}] end, {1, 2, 1, 1, 1, 1, 1, 1}},
    {"an integer to the power of 0", function() return moth.pow(I {2}, 0) end, {1}},
    {"a bag without tokens", function()
      return ops.bag_sum(I {1, 2}, R(3, 2), moth.none, I {2, 2}, 3)
    end, {3, 2}},
    {"1 number of a Fourier transform", function() return ops.fft_c2r(R(1, 2), 1) end, {1}},
    {"7 dimensions of numbers to transform",
      function() return ops.fft_r2c(flat) end, {1, 1, 1, 1, 1, 1, 1, 2}},
    {"one window of all elements", function() return R(5):unfold(1, 5, 1) end, {1, 5}},
    {"windows without elements", function() return R(5):unfold(1, 0, 1) end, {6, 0}},
    {"the last window of a step", function() return R(5):unfold(1, 3, 2) end, {2, 3}},
    {"a slice to the last element", function() return ops.slice(R(5), 1, 0, 5) end, {5}},
    {"the last element of a step", function() return ops.slice(R(5), 1, 0, 5, 4) end, {2}},
    {"one element less than a step", function() return ops.slice(R(5), 1, 1, 5, 4) end, {1}},
    {"a slice without elements", function() return ops.slice(R(5), 1, 5, 5) end, {0}},
    {"8 repeats", function() return moth.tile(R(2), {1, 1, 1, 1, 1, 1, 1, 1}) end, eight},
    {"0 repeats", function() return moth.tile(R(2), {0}) end, {0}},
    {"8 vectors of a grid", function()
      local r = R(1)
      return moth.meshgrid {r, r, r, r, r, r, r, R(2)}[1]
    end, eight},
    {"7 dimensions of diagonals", function() return moth.diag_embed(flat) end,
      {1, 1, 1, 1, 1, 1, 1, 1}},
    {"7 dimensions to stack", function() return moth.stack({flat, flat}, -1) end, eight},
    {"7 dimensions to unsqueeze", function() return R(unpack(seven)):unsqueeze(1) end, eight},
    {"8 dimensions after unflatten", function() return R(unpack(seven)):unflatten(1, {1, 1}) end,
      eight},
    {"8 dimensions of an inner product",
      function() return moth.inner(R(1, 1, 1, 1, 3), R(1, 1, 1, 2, 3)) end, eight},
    {"7 dimensions of eigenvectors",
      function() return (select(2, moth.linalg.eig(moth.ones(1, 1, 1, 1, 1, 1, 1)))) end,
      {1, 1, 1, 1, 1, 1, 1, 2}},
    {"as many pivots as rows", function() return ops.linalg_lu_order(I {3, 2, 3}, 3) end, {3}},
    {"the storage's last element",
      function() return moth.as_strided(R(5), {2, 2}, {3, 1}) end, {2, 2}},
    {"a number of channels to fill", function()
      return ops.picture_warp(R(1, 2, 4, 5), {1, 0, 0, 0, 1, 0, 0, 0, 1}, {2, 3}, {fill = {1, 2}})
    end, {1, 2, 2, 3}},
    {"order 16 of a Bessel function", function() return ops.bessel_of(R(2), "j0", 16) end, {2}},
    {"derivative 99 of a grid's weights", function()
      return ops.grid_weights(R(1, 2, 2, 2), {4, 4}, {order = {99, 0, 0}})
    end, {1, 4, 4}},
    {"two values in a group", function() return F.group_norm(R(1, 2, 2), 2) end, {1, 2, 2}},
    {"one value in a group of two samples", function() return F.group_norm(R(2, 2, 1), 2) end,
      {2, 2, 1}},
    {"a probability of 1 to smooth labels",
      function() return F.cross_entropy(R(2, 3), I {1, 3}, {label_smoothing = 1}) end, {}},
    {"8 operands of a fused loop", function()
      local r = R(2)
      return ops.fused({r, r, r, r, r, r, r, r}, {0, -1, 3, 8, 0, 7, 0, 0, 0}, {-1})
    end, {2}},
  }
end)

describe("scaled_dot_product_attention", function()
  local FLOATS = {moth.float16, moth.bfloat16, moth.float32, moth.float64}
  local OTHERS = {moth.bool, moth.uint8, moth.int32, moth.int64}

  it("takes a mask of bools, of float32 or of the query's dtype, and of no other", function()
    for _, dtype in ipairs(FLOATS) do
      local x, kept = R(1, 2, 3):to(dtype), moth.tensor {{true, false}, {true, true}}
      local numbers = T {{0, -1e4}, {0, 0}}
      local want = F.scaled_dot_product_attention(x, x, x, kept)
      for _, list in ipairs {FLOATS, OTHERS} do
        for _, mask in ipairs(list) do
          local given = mask == moth.bool and kept or numbers:to(mask)
          local ok, y = pcall(F.scaled_dot_product_attention, x, x, x, given)
          local fits = mask == moth.bool or mask == moth.float32 or mask == dtype
          assert.equal(fits, ok, tostring(dtype) .. " with " .. tostring(mask))
          if ok then
            assert.equal(dtype, y.dtype)
            assert.is_true(moth.allclose(want:double(), y:double(), {atol = 1e-3}))
          else
            assert.is_truthy(tostring(y):find("'attn_mask'", 1, true))
          end
        end
      end
    end
  end)

  it("takes query, key and value of one float dtype", function()
    for _, a in ipairs(FLOATS) do
      for _, b in ipairs(FLOATS) do
        local x, y = R(1, 2, 3):to(a), R(1, 2, 3):to(b)
        local ok, problem = pcall(F.scaled_dot_product_attention, x, y, x)
        assert.equal(a == b, ok)
        if not ok then assert.is_truthy(tostring(problem):find("'key'", 1, true)) end
        ok, problem = pcall(F.scaled_dot_product_attention, x, x, y)
        assert.equal(a == b, ok)
        if not ok then assert.is_truthy(tostring(problem):find("'value'", 1, true)) end
      end
    end
    for _, dtype in ipairs(OTHERS) do
      local x = moth.ones(1, 2, 3):to(dtype)
      local ok, problem = pcall(F.scaled_dot_product_attention, x, x, x)
      assert.is_false(ok)
      assert.is_truthy(tostring(problem):find("'query'", 1, true))
    end
  end)
end)

-- The message for a dtype that an op does not accept names that dtype and those that it accepts. A
-- cast is suggested if only floats are accepted.
describe("a dtype that an op does not accept", function()
  local SHORT = {bool = "bool", uint8 = "u8", int8 = "i8", int16 = "i16", int32 = "i32",
    int64 = "i64", float16 = "f16", bfloat16 = "bf16", float32 = "f32", float64 = "f64"}

  local function message(op, dtype)
    local arguments = registry.map(op.examples[1].arguments(), function(x)
      return registry.isfloat(x) and x:to(moth[dtype]) or x
    end)
    local ok, problem = pcall(op.fn, unpack(arguments, 1, arguments.n))
    return not ok and tostring(problem):match "%((%w+ is not supported here.*)%)$"
  end

  it("is named, with the accepted ones", function()
    local count = 0
    for _, op in ipairs(registry.ops()) do
      for dtype, name in pairs(op.examples[1] and SHORT or {}) do
        local text = message(op, dtype)
        if text then
          count = count + 1
          assert.is_true(not op.name:find "^sub_?$" or name ~= "bool" or text:find "xor" ~= nil)
          local got, list, rest = text:match "^(%w+) is not supported here, wanted ([%w|]+)(.*)$"
          if not got then
            assert.equal("bool is not supported here; use logical_xor or logical_not, or convert "
              .. "it with :to()", text)
            assert.is_truthy(op.name == "sub" or op.name == "neg" or op.derived, op.name)
            got, list, rest = "bool", "f32", "; convert with :float()"
          end
          assert.equal(name, got, op.name)
          local wanted, others = {}, false
          for one in list:gmatch "%w+" do
            wanted[one] = true
            others = others or not one:find "f%d%d$"
          end
          assert.is_nil(wanted[name], op.name)
          local hint = not others and not name:find "f%d%d$"
          assert.equal(hint and "; convert with :float()" or "", rest, op.name .. ": " .. text)
        end
      end
    end
    assert.is_true(count > 1000)
  end)
end)

-- Numbers that a dtype cannot hold: Lua's numbers and int64 numbers.
describe("a number operand of an integer tensor", function()
  local LIMITS = {uint8 = {0, 255, "u8"}, int8 = {-128, 127, "i8"}, int16 = {-32768, 32767, "i16"},
    int32 = {-2147483648, 2147483647, "i32"}}

  it("is accepted up to the limits of the dtype, and raises above them", function()
    for dtype, row in pairs(LIMITS) do
      local x = moth.zeros({2}, {dtype = moth[dtype]})
      for i = 1, 2 do
        local outside = row[i] + (i == 1 and -1 or 1)
        for _, convert in ipairs {function(v) return v end, function(v) return v + 0LL end} do
          assert.equal(row[i], (x + convert(row[i]))[1]:item())
          local ok, problem = pcall(moth.add, x, convert(outside))
          assert.is_false(ok, dtype .. " with " .. outside)
          local text = ("'other' to 'add' (%d does not fit %s)"):format(outside, row[3])
          assert.is_truthy(tostring(problem):find(text, 1, true), tostring(problem))
        end
      end
    end
  end)
end)
