--- The rows for which records.lua needs more than a function's first example.

local inputs = {}

local function each_name(text, fn)
  for name in text:gmatch "%S+" do fn(name) end
end

-- ---- handwritten calls, with the descriptions of values.lua ----

inputs.calls = {
  arange = "400000", range = "1, 400000", randint = "10, {400000}",
  as_strided = "randn(1000, 400), {400, 500}, {1, 400}",
  pad = "randn(500, 800), {10, 20}", roll = "randn(500, 800), 1000",
  narrow = "randn(500, 800), 2, 2, 700", narrow_copy = "randn(500, 800), 2, 2, 700",
  slice_scatter = "zeros(800, 500), randn(400, 500), {start = 101, stop = 500}",
  split = "randn(800, 500), 100", split_with_sizes = "randn(500, 200), {200, 300}",
  topk = "randn(500, 800), 10", kthvalue = "randn(250, 800), 100",
  repeat_interleave = "randn(500, 400), 2",
  cross = "randn(3, 100000), randn(3, 100000)",
  ["linalg.cross"] = "randn(100000, 3), randn(100000, 3)",
  isin = "whole(1, 4000, 300, 300), whole(1, 4000, 500)",
  bucketize = "randn(300, 300), ordered(1000)",
  searchsorted = "ordered(1000), rand(300, 300)",
  histc = "randn(400000), {bins = 100, min = -2, max = 2}",
  histogram = "randn(100000), 100, {range = {-2, 2}}",
  bincount = "integers(0, 999, 400000)",
  masked_scatter = "randn(500, 800), mask(500, 800), randn(400000)",
  take = "randn(600, 600), ids(360000, 300, 600)",
  index = "randn(600, 600), {ids(600, 200000), ids(600, 200000)}",
  index_put = "randn(600, 600), {ids(600, 100000), ids(600, 100000)}, randn(100000)",
  put = "zeros(600, 600), ids(360000, 100000), randn(100000)",
  take_along_dim = "randn(600, 700), ids(700, 600, 300), {dim = 2}",
  gather = "randn(600, 700), 2, ids(700, 600, 400)",
  scatter = "randn(600, 700), 2, ids(700, 600, 400), randn(600, 400)",
  scatter_add = "randn(600, 700), 2, ids(700, 600, 400), randn(600, 400)",
  scatter_reduce = "randn(600, 700), 2, ids(700, 600, 400), randn(600, 400), 'sum'",
  index_select = "randn(800, 500), 1, ids(800, 800)",
  index_add = "randn(800, 500), 1, ids(800, 800), randn(800, 500)",
  index_copy = "randn(800, 500), 1, ids(800, 400), randn(400, 500)",
  index_fill = "randn(800, 500), 1, ids(800, 400), 2",
  one_hot = "ids(100, 4000), 100",
  unravel_index = "ids(400000, 100000), {800, 500}",
  unique = "integers(0, 999, 100000)", unique_consecutive = "integers(0, 3, 400000)",
  nonzero = "whole(0, 1, 400, 500)", argwhere = "whole(0, 1, 400, 500)",
  combinations = "randn(300)", vander = "rand(300), 20", ["linalg.vander"] = "rand(300), {N = 20}",
  diag_embed = "randn(8, 150)", diagflat = "randn(400)",
  block_diag = "{randn(200, 300), randn(200, 300)}",
  einsum = "'ij,jk->ik', randn(128, 192), randn(192, 256)",
  stft = "randn(16000), 512, {window = ones(512), return_complex = false}",
  istft = "pairs(257, 126, 2), 512, {window = ones(512)}",
  conv1d = "randn(16, 32, 256), randn(32, 32, 3)",
  conv2d = "randn(8, 16, 32, 32), randn(32, 16, 3, 3)",
  conv3d = "randn(2, 8, 8, 16, 16), randn(16, 8, 3, 3, 3)",
  conv_transpose1d = "randn(16, 32, 256), randn(32, 32, 3)",
  conv_transpose2d = "randn(8, 16, 32, 32), randn(16, 16, 3, 3)",
  conv_transpose3d = "randn(2, 8, 8, 16, 16), randn(8, 8, 3, 3, 3)",
  im2col = "randn(8, 16, 32, 32), 3", fold = "randn(8, 144, 900), {32, 32}, 3",
  grid_sample = "randn(4, 8, 64, 64), uniform(-1, 1, 4, 64, 64, 2)",
  ["nn.functional.affine_grid"] = "randn(8, 2, 3), {8, 3, 128, 128}",
  adaptive_avg_pool1d = "randn(8, 64, 512), 32", adaptive_avg_pool2d = "randn(8, 64, 28, 28), 7",
  adaptive_avg_pool3d = "randn(4, 16, 16, 16, 16), 4",
  adaptive_max_pool1d = "randn(8, 64, 512), 32", adaptive_max_pool2d = "randn(8, 64, 28, 28), 7",
  adaptive_max_pool3d = "randn(4, 16, 16, 16, 16), 4",
  batch_norm = "randn(16, 32, 28, 28), {training = true}",
  instance_norm = "randn(8, 32, 1024)", group_norm = "randn(8, 64, 784), 8",
  scaled_dot_product_attention = "randn(4, 4, 128, 32), randn(4, 4, 128, 32), randn(4, 4, 128, 32)",
  embedding = "ids(5000, 16, 64), randn(5000, 128)",
  ["nn.functional.embedding_bag"] = "ids(5000, 64, 16), randn(5000, 128)",
  ["nn.functional.ctc_loss"] =
    "randn(100, 16, 32), integers(2, 31, 16, 20), lengths(100, 16), lengths(20, 16)",
  ["nn.functional.multi_margin_loss"] = "randn(400, 500), ids(500, 400)",
  ["nn.functional.multilabel_margin_loss"] = "randn(200, 50), ids(50, 200, 50)",
  ["nn.functional.bilinear"] = "randn(64, 48), randn(64, 48), randn(48, 48, 48)",
  ["nn.functional.linear_cross_entropy"] = "randn(256, 128), randn(500, 128), ids(500, 256)",
  ["nn.functional.max_unpool1d"] = "randn(8, 32, 128), ids(256, 8, 32, 128), 2",
  ["nn.functional.max_unpool2d"] = "randn(8, 16, 16, 16), ids(1024, 8, 16, 16, 16), 2",
  ["nn.functional.max_unpool3d"] = "randn(2, 8, 8, 8, 8), ids(4096, 2, 8, 8, 8, 8), 2",
  ["nn.functional.fractional_max_pool2d"] = "randn(8, 16, 32, 32), 2, 20",
  ["nn.functional.fractional_max_pool3d"] = "randn(2, 8, 16, 16, 16), 2, 10",
  ["nn.functional.local_response_norm"] = "randn(8, 32, 784), 5",
  multinomial = "uniform(0.05, 0.95, 200, 500), 2",
  lstm = "randn(32, 16, 64), {randn(1, 16, 64), randn(1, 16, 64)}, "
    .. "{randn(256, 64), randn(256, 64), randn(256), randn(256)}",
  gru = "randn(32, 16, 64), randn(1, 16, 64), "
    .. "{randn(192, 64), randn(192, 64), randn(192), randn(192)}",
  rnn_tanh = "randn(32, 16, 64), randn(1, 16, 64), "
    .. "{randn(64, 64), randn(64, 64), randn(64), randn(64)}",
  rnn_relu = "randn(32, 16, 64), randn(1, 16, 64), "
    .. "{randn(64, 64), randn(64, 64), randn(64), randn(64)}",
  ["linalg.lu_solve"] = "matrix(100, 100), int32(1, 1, 100), randn(100, 20)",
  lu_solve = "randn(100, 20), matrix(100, 100), int32(1, 1, 100)",
  lu_unpack = "matrix(100, 100), int32(1, 1, 100)",
  cholesky_solve = "randn(100, 20), triangle(100, 100)",
  cholesky_inverse = "triangle(100, 100)",
  orgqr = "randn(100, 60), rand(60)", ormqr = "randn(100, 60), rand(60), randn(100, 50)",
  ["linalg.householder_product"] = "randn(100, 60), rand(60)",
  ["linalg.solve_triangular"] = "matrix(100, 100), randn(100, 50), {upper = true}",
  ["linalg.tensorinv"] = "matrix(1, 100, 100)",
  ["linalg.tensorsolve"] = "matrix(1, 100, 100), randn(1, 100)",
  matrix_power = "matrix(100, 100), 3", matrix_exp = "matrix(60, 60)",
  chain_matmul = "{randn(128, 192), randn(192, 128), randn(128)}",
  tensordot = "randn(32, 24, 32), randn(24, 32, 40)",
  tril_indices = "500, 500", triu_indices = "500, 500", eye = "600",
  igamma = "uniform(0.5, 3, 300, 300), uniform(0.5, 3, 300, 300)",
  igammac = "uniform(0.5, 3, 300, 300), uniform(0.5, 3, 300, 300)",
  ["special.zeta"] = "uniform(1.5, 5, 200, 200), uniform(0.5, 1.5, 200, 200)",
  binomial = "whole(8, 8, 100, 100), uniform(0.05, 0.95, 100, 100)",
  ldexp = "randn(500, 800), integers(-2, 3, 800)",
  gradient = "randn(500, 800)", trapezoid = "randn(500, 800)",
  ["signal.windows.general_cosine"] = "100000, {0.46, 0.23, 0.31}",
  nan_to_num = "randn(500, 800)",
  equal = "ones(500, 800), ones(500, 800)",
  logsumexp = "randn(500, 800), 2",
  fake_quantize_per_channel_affine =
    "randn(500, 800), uniform(0.1, 0.2, 500), int32(0, 9, 500), 1, 0, 255",
  column_stack = "{randn(400), randn(400, 500)}",
  ["Tensor.unfold"] = "randn(1000, 400), 2, 8, 4",
  ["Tensor.sum_to_size"] = "randn(500, 800), {1, 800}",
}

-- ---- sizes ----

-- The elements of the largest tensor, if 4e5 would take too long or too short.
inputs.elements = {}

local function elements(count, names)
  each_name(names, function(name) inputs.elements[name] = count end)
end

elements(1e4, [[cholesky det inverse logdet slogdet qr svd pinverse pca_lowrank svd_lowrank]])
elements(3e4, [[cdist pdist lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell corrcoef cov]])
elements(1e5, [[bartlett_window blackman_window hamming_window hann_window kaiser_window
  bartlett blackman cosine exponential gaussian general_hamming hamming hann kaiser nuttall
  fftfreq rfftfreq quantile nanquantile nanmedian median mode sort argsort msort
  polygamma digamma mvlgamma lgamma i0 sinc frexp prod cumprod poisson index_reduce]])
elements(1e5, [[dropout1d multilabel_soft_margin_loss logcumsumexp hfft hfft2 hfftn irfft2 irfftn]])
elements(3e4, [[airy_ai modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0
  scaled_modified_bessel_k1 bessel_y0 bessel_y1 i0e i1 i1e]])

-- ---- names ----

-- PyTorch's names, if they differ.
inputs.names = {
  ["fft.mul"] = "mul", ["fft.abs"] = "abs", ["fft.angle"] = "angle", ["fft.polar"] = "polar",
  im2col = "nn.functional.unfold", index = "bench.index", index_put = "bench.index_put",
  ["repeat"] = "Tensor.repeat",
  cholesky = "linalg.cholesky", qr = "linalg.qr", slice_scatter = "bench.slice_scatter",
}

-- ---- functions without a peer have no row ----

-- Rows without a peer (all rows of a function, or the backward row), and the reason.
inputs.peerless = {
  ["linalg.eig/fwdbwd"] = "PyTorch refuses losses that depend on the phases of eigenvectors",
  ["positive/fwd"] = "PyTorch returns the input itself",
}

local function peerless(reason, names)
  each_name(names, function(name) inputs.peerless[name .. "/fwdbwd"] = reason end)
end

peerless("PyTorch has no derivative of it", [[floor_divide heaviside vander special.airy_ai
  special.chebyshev_polynomial_t special.chebyshev_polynomial_u special.chebyshev_polynomial_v
  special.chebyshev_polynomial_w special.hermite_polynomial_h special.hermite_polynomial_he
  special.laguerre_polynomial_l special.legendre_polynomial_p special.scaled_modified_bessel_k0
  special.scaled_modified_bessel_k1 special.shifted_chebyshev_polynomial_t
  special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
  special.shifted_chebyshev_polynomial_w special.spherical_bessel_j0]])

-- In these rows Moth would copy and PyTorch would not.
peerless("PyTorch's x.grad shares the memory of the gradient that backward was given",
  [[atleast_1d atleast_2d atleast_3d flatten movedim moveaxis permute positive ravel reshape
  reshape_as squeeze swapaxes swapdims t transpose unflatten unsqueeze view view_as]])

-- Functions without a row.
inputs.reasons = {}

local function without(reason, names)
  each_name(names, function(name) inputs.reasons[name] = reason end)
end

without("it is no operation on tensors", [[can_cast finfo iinfo promote_types result_type
  manual_seed set_default_device set_default_dtype set_float32_matmul_precision set_memory_floor
  set_memory_limit set_num_threads use_deterministic_algorithms capture kernel vmap deepcopy]])
without("it reads or writes a file", "load open save")
without("it trains a net", "fit lr_find")
without("its input is a Lua value", "tensor as_tensor frombuffer Tensor.new_tensor")
without("a sparse tensor is made of two others, without work on their elements",
  "sparse_coo_tensor")

return inputs
