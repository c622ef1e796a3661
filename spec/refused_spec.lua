-- Calls of functions and classes written in Lua that are refused: each names the function and the
-- argument and says what is needed. Ops of the engine are errors_spec's and golden_refusals_spec's.

local moth = require "moth"

-- A call and how its message begins, in turn.
local ROWS = [=[
  moth.autocast("tpu")
    bad argument 'device_type' to 'autocast' ("cpu" or "cuda" is needed, got a string ('tpu'))
  moth.autocast("cpu", 3)
    bad argument 'dtype' to 'autocast' (moth.bfloat16, moth.float16 or false is needed, got 3)
  moth.autograd.backward({})
    bad argument 'tensors' to 'autograd.backward' (an empty list)
  moth.autograd.backward("x")
    bad argument 'tensors' to 'autograd.backward' (a tensor or a list of tensors is needed, got
  moth.autograd.backward({ moth.ones(2), 3 })
    bad argument 'tensors' to 'autograd.backward' (a list of tensors is needed, got 3 at positio
  moth.autograd.backward({ grad:sum() }, { moth.ones{}, moth.ones{} })
    bad argument 'grad_tensors' to 'autograd.backward' (2 gradients for 1 tensor)
  moth.autograd.backward({ grad:sum() }, { inputs = {} })
    bad argument 'inputs' to 'autograd.backward' (an empty list)
  moth.autograd.grad({}, { grad })
    bad argument 'outputs' to 'grad' (a tensor or a list of tensors is needed, got an empty list
  moth.autograd.grad({ grad:sum() }, {})
    bad argument 'inputs' to 'grad' (a tensor or a list of tensors is needed, got an empty list)
  moth.backends.cudnn.enabled = 3
    bad argument 'enabled' to 'backends.cudnn' (a boolean is needed, got 3)
  moth.quantile(moth.tensor{ 1LL, 2LL }, 0.5)
    bad argument 'input' to 'quantile' (a float tensor is needed, got i64 (2))
  moth.cdist(moth.ones(2, 3), moth.ones(2, 4))
    bad argument 'x2' to 'cdist' (rows of one length are needed, got f32 (2, 3) and f32 (2, 4))
  moth.tril_indices(-1, 3)
    bad argument 'row' to 'tril_indices' (a size is not negative, got -1)
  moth.triu_indices(3, -2)
    bad argument 'col' to 'triu_indices' (a size is not negative, got -2)
  moth.ones(3):fill_diagonal_(1)
    bad argument 'input' to 'fill_diagonal_' (at least 2 dimensions are needed, got f32 (3))
  moth.tensordot(moth.ones(2, 3), moth.ones(3, 2), 1.5)
    bad argument 'dims' to 'tensordot' (a count of dimensions of both tensors is needed, got 1.5
  moth.tensordot(moth.ones(2, 3), moth.ones(3, 2), -1)
    bad argument 'dims' to 'tensordot' (a count of dimensions of both tensors is needed, got -1)
  moth.tensordot(moth.ones(2, 3), moth.ones(3, 2), "x")
    bad argument 'dims' to 'tensordot' (a count or a pair of lists of dimensions is needed, got
  moth.tensordot(moth.ones(2, 2), moth.ones(2, 2), { { 1, 1 }, { 1, 2 } })
    bad argument 'dims' to 'tensordot' (dimension 1 stands twice)
  moth.tensor{ 1, print }
    bad argument 'data' to 'tensor' (data[2] is a function; numbers, booleans, int64s, tensors o
  data.Subset(list, 3)
    bad argument 'indices' to 'Subset' (a list of positions is needed, got 3)
  data.StackDataset()
    bad argument 'datasets' to 'StackDataset' (at least one dataset is needed, got none)
  data.random_split(list, { 1, "x" })
    bad argument 'lengths' to 'random_split' (element 2 is a string ('x'), not a length)
  data.random_split(list, 3)
    bad argument 'lengths' to 'random_split' (a list of sizes is needed, got 3)
  data.random_split(list, {})
    bad argument 'lengths' to 'random_split' (a list of sizes is needed, got {})
  data.ChainDataset(3)
    bad argument 'datasets' to 'ChainDataset' (a list of IterableDatasets is needed, got 3)
  data.ChainDataset({ 3 })
    bad argument 'datasets' to 'ChainDataset' (element 1 is 3, not an IterableDataset)
  data.default_collate(3)
    bad argument 'samples' to 'default_collate' (a list of samples is needed, got 3)
  data.DataLoader(list, { batch_sampler = { { 1 } }, batch_size = 2 })
    bad argument 'batch_sampler' to 'DataLoader' (goes without batch_size, shuffle, sampler and
  data.SubsetRandomSampler(3)
    bad argument 'indices' to 'SubsetRandomSampler' (a list of positions is needed, got 3)
  data.WeightedRandomSampler(moth.ones(2, 2), 3)
    bad argument 'weights' to 'WeightedRandomSampler' (a list of numbers is needed, got f32 (2,
  data.WeightedRandomSampler({}, 3)
    bad argument 'weights' to 'WeightedRandomSampler' (a list of numbers is needed, got {})
  data.BatchSampler({ 1, 2 }, 0, false)
    bad argument 'batch_size' to 'BatchSampler' (a number from 1 on is needed, got 0)
  D.constraints.greater_than("x")
    a constraint needs a number or a tensor, got a string ('x')
  D.constraints.independent(3, 1)
    a constraint needs another one, got 3
  D.constraints.independent(D.constraints.real, "x")
    a constraint needs a number of dimensions, got a string ('x')
  D.constraints.cat(3)
    a constraint needs a list of others, got 3
  D.constraints.cat({ 3 })
    a constraint needs a list of others, got 3
  D.Binomial(moth.tensor{ 1, 2 }, 0.5):enumerate_support()
    Binomial: values can be listed, and entropy computed, where all of total_count is one number
  D.Normal(0, 1):sample(-1)
    bad argument 'sample_shape' to 'Normal.sample' (sizes from 0 on are needed, got -1)
  D.register_kl(3, D.Normal, print)
    bad argument 'type_p' to 'register_kl' (a class of distributions is needed, got 3)
  D.kl_divergence(D.Binomial(2, 0.5), D.Binomial(3, 0.5))
    bad argument 'q' to 'kl_divergence' (there is no formula where q's total_count is above p's)
  D.kl_divergence(normal_of(2), normal_of(3))
    bad argument 'q' to 'kl_divergence' (vectors of 2 numbers are needed as in p, got 3)
  D.kl_divergence(independent(1), independent(2))
    bad argument 'q' to 'kl_divergence' (1 dimension is needed as in p, got 2)
  D.Wishart(3, moth.ones(2, 3))
    bad argument 'covariance_matrix' to 'Wishart' ((..., K, K) is needed, got f32 (2, 3))
  D.Wishart(moth.ones(2) * 5, moth.eye(3):expand(3, 3, 3))
    bad argument 'df' to 'Wishart' (f32 (2) cannot be broadcast with covariance_matrix, f32 (3,
  D.MixtureSameFamily(D.Categorical(moth.ones(2)), 3)
    bad argument 'component_distribution' to 'MixtureSameFamily' (a distribution is needed, got
  D.MultivariateNormal(moth.zeros(2, 3), moth.eye(3):expand(4, 3, 3))
    bad argument 'covariance_matrix' to 'MultivariateNormal' (f32 (4, 3, 3) cannot be broadcast
  D.LowRankMultivariateNormal(moth.zeros(3), moth.ones(4, 1), moth.ones(3))
    bad argument 'cov_factor' to 'LowRankMultivariateNormal' ((..., K), (..., K, R) and (..., K)
  D.ExpTransform()("x")
    bad argument 'x' to 'ExpTransform' (a tensor is needed, got a string ('x'))
  D.CumulativeDistributionTransform(3)
    bad argument 'distribution' to 'CumulativeDistributionTransform' (a distribution is needed,
  D.ReshapeTransform({ 4 }, { 2, 2 })(moth.ones(3))
    bad argument 'x' to 'ReshapeTransform' (sizes that end in (4) are needed, got (3))
  D.Independent(3, 1)
    bad argument 'base_distribution' to 'Independent' (a distribution is needed, got 3)
  D.Independent(D.Bernoulli(moth.ones(2) * 0.5), 1):enumerate_support()
    Independent has no list of its values: of several dimensions they are too many
  D.TransformedDistribution(D.Normal(0, 1), { D.StickBreakingTransform() })
    bad argument 'base_distribution' to 'TransformedDistribution' (values of 1 dimension is need
  moth.ormqr(moth.ones(4, 3), moth.ones(3), moth.ones(3, 2))
    bad argument 'other' to 'ormqr' (4 rows are needed for the reflections f32 (4, 3), got f32 (
  moth.lu_unpack(moth.ones(3), moth.tensor{ 1LL })
    bad argument 'LU_data' to 'lu_unpack' (factors, (..., M, N), are needed, got f32 (3))
  moth.fft.fft(moth.ones(3), { dim = 2 })
    bad argument 'input' to 'fft' (complex numbers are needed, pairs in a last dimension of 2, g
  moth.fft.fft2(moth.ones(3, 3, 2), { 2, 2 }, { 1 })
    bad argument 's' to 'fft2' (2 lengths for 1 dimension)
  moth.fft.fftfreq(0)
    bad argument 'n' to 'fftfreq' (a number from 1 on is needed, got 0)
  moth.fft.fftfreq(4, 0)
    bad argument 'd' to 'fftfreq' (a number other than 0 is needed, got 0)
  moth.func.functional_call(nn.Linear(2, 2), {}, moth.ones(2), 3)
    bad argument 'kwargs' to 'functional_call' (a table is needed, got 3)
  moth.autograd.gradcheck(same, grad, 3)
    bad argument 'options' to 'gradcheck' (a table of named options is needed, got 3)
  moth.autograd.gradcheck(same, grad, { epsilon = 1 })
    'gradcheck' has no argument 'epsilon'
  moth.autograd.gradcheck(same, 3)
    bad argument 'inputs' to 'gradcheck' (a tensor or a list is needed, got 3)
  moth.autograd.gradcheck(same, grad:float())
    bad argument 'inputs' to 'gradcheck' (input 1 is f32 (3); finite differences need float64)
  moth.autograd.gradcheck(same, grad:detach()[1]:expand(3):requires_grad_())
    bad argument 'inputs' to 'gradcheck' (input 1 is expanded, its elements overlap; expand it i
  moth.renorm(moth.ones(2, 3), 2, 1, -1)
    bad argument 'maxnorm' to 'renorm' (a number from 0 on is needed, got -1)
  moth.renorm(moth.ones(2, 3), 2, 1, 0 / 0)
    bad argument 'maxnorm' to 'renorm' (a number from 0 on is needed, got nan)
  moth.renorm(moth.ones(2, 3), 0, 1, 1)
    bad argument 'p' to 'renorm' (a number above 0 is needed, got 0)
  moth.renorm(moth.ones(3), 2, 1, 1)
    bad argument 'input' to 'renorm' (at least 2 dimensions are needed, got f32 (3))
  schedulers.CosineAnnealingLR(sgd(), 0)
    bad argument 'T_max' to 'CosineAnnealingLR' (a number from 1 on is needed, got 0)
  schedulers.CosineAnnealingWarmRestarts(sgd(), 0)
    bad argument 'T_0' to 'CosineAnnealingWarmRestarts' (a number from 1 on is needed, got 0)
  schedulers.CosineAnnealingWarmRestarts(sgd(), 5):step(-1)
    bad argument 'epoch' to 'step' (a number from 0 on is needed, got -1)
  schedulers.StepLR(sgd(), 0)
    bad argument 'step_size' to 'StepLR' (a number from 1 on is needed, got 0)
  schedulers.LinearLR(sgd(), 2)
    bad argument 'start_factor' to 'LinearLR' (a number above 0 to 1 is needed, got 2)
  schedulers.ConstantLR(sgd(), 2)
    bad argument 'factor' to 'ConstantLR' (a number from 0 to 1 is needed, got 2)
  schedulers.OneCycleLR(sgd(), 0.1)
    bad argument 'total_steps' to 'OneCycleLR' (is needed, or epochs and steps_per_epoch instead
  schedulers.OneCycleLR(sgd(), 0.1, { total_steps = 10, pct_start = 2 })
    bad argument 'pct_start' to 'OneCycleLR' (a number from 0 to 1 is needed, got 2)
  schedulers.CyclicLR(sgd(), 0.1, 0.2, { mode = "square" })
    bad argument 'mode' to 'CyclicLR' (one of 'triangular', 'triangular2', 'exp_range' is needed
  schedulers.ReduceLROnPlateau(sgd(), { factor = 1 })
    bad argument 'factor' to 'ReduceLROnPlateau' (a number below 1 is needed, got 1)
  schedulers.SequentialLR(sgd(), {}, {})
    bad argument 'schedulers' to 'SequentialLR' (a list of schedulers is needed, got {})
  schedulers.ChainedScheduler({})
    bad argument 'schedulers' to 'ChainedScheduler' (a list of schedulers is needed, got {})
  schedulers.LambdaLR(sgd(), 3)
    bad argument 'lr_lambda' to 'LambdaLR' (a function for group 1 is needed, got 3)
  moth.optim.SGD(3, 0.1)
    bad argument 'params' to 'SGD' (a list of parameters is needed, such as net:parameters(), go
  moth.optim.SGD({ { lr = 0.1 } }, 0.1)
    SGD: {params = list of tensors, ...} is needed, got a table
  moth.optim.SGD({}, 0.1)
    bad argument 'params' to 'SGD' (a list of tensors is needed, got an empty one)
  nn.utils.parameters_to_vector({})
    bad argument 'parameters' to 'parameters_to_vector' (the list is empty)
  nn.utils.clip_grad_norm_(3, 1)
    bad argument 'parameters' to 'clip_grad_norm_' (a tensor or a list of them, as net:parameter
  nn.utils.clip_grad_value_({ grad }, -1)
    bad argument 'clip_value' to 'clip_grad_value_' (a number from 0 on is needed, got -1)
  nn.utils.clip_grad_value_({ grad }, 0 / 0)
    bad argument 'clip_value' to 'clip_grad_value_' (a number from 0 on is needed, got nan)
  nn.utils.prune.l1_unstructured(nn.Linear(2, 2), "weight", 2.5)
    bad argument 'amount' to 'l1_unstructured' (a share from 0 to below 1 or a whole number is n
  nn.utils.prune.l1_unstructured(nn.Linear(2, 2), "none", 1)
    bad argument 'name' to 'l1_unstructured' (Linear has no parameter or buffer 'none')
  nn.utils.prune.random_unstructured(nn.Linear(2, 2), "weight", 5)
    bad argument 'amount' to 'random_unstructured' (5 are to go, but only 4 are left)
  nn.utils.prune.ln_structured(nn.Linear(2, 2), "weight", 1, 2, 3)
    bad argument 'dim' to 'ln_structured' (3 is no dimension of a parameter with slices, f32 (2,
  nn.utils.rnn.pad_sequence({})
    pad_sequence: at least one tensor is needed, got none
  nn.utils.rnn.pack_sequence({ moth.ones(2), moth.ones(3) })
    pack_sequence: are not falling; sort the batch or say {enforce_sorted = false}
  nn.utils.rnn.pack_padded_sequence(moth.ones(3, 2, 1), { 3 })
    bad argument 'lengths' to 'pack_padded_sequence' (1 of them do not fit f32 (3, 2, 1))
  parametrize.register_parametrization(nn.Linear(2, 2), "none", nn.ReLU())
    bad argument 'tensor_name' to 'register_parametrization' (Linear has no parameter or buffer
  nn.utils.parametrizations.orthogonal(nn.Linear(2, 2), "weight", "other")
    bad argument 'orthogonal_map' to 'orthogonal' (one of 'matrix_exp', 'cayley', 'householder'
  nn.init.orthogonal_(moth.ones(3))
    bad argument 'tensor' to 'orthogonal_' (2 or more dimensions are needed, got f32 (3))
  nn.init.dirac_(moth.ones(3))
    bad argument 'tensor' to 'dirac_' (3 to 5 dimensions are needed, got f32 (3))
  nn.init.sparse_(moth.ones(3), 0.5)
    bad argument 'tensor' to 'sparse_' (2 dimensions are needed, got f32 (3))
  nn.init.xavier_uniform_(moth.ones(3))
    bad argument 'tensor' to 'xavier_uniform_' (has no fan: f32 (3) has fewer than 2 dimensions)
  nn.init.eye_(moth.ones(3))
    bad argument 'tensor' to 'eye_' (2 dimensions are needed, got f32 (3))
  nn.init.calculate_gain("swish")
    bad argument 'nonlinearity' to 'calculate_gain' (unknown: 'swish')
  nn.MultiheadAttention(5, 2)
    bad argument 'num_heads' to 'MultiheadAttention' (5 features do not make 2 heads)
  nn.GroupNorm(3, 4)
    bad argument 'num_groups' to 'GroupNorm' (4 channels do not make 3 groups)
  nn.Conv2d(3, 4, 3, { groups = 2 })
    bad argument 'in_channels' to 'Conv2d' (3 is no multiple of groups, 2)
  nn.Conv2d(4, 3, 3, { groups = 2 })
    bad argument 'out_channels' to 'Conv2d' (3 is no multiple of groups, 2)
  nn.LSTM(2, 3, { num_layers = 0 })
    bad argument 'num_layers' to 'LSTM' (a number from 1 to 1048576 is needed, got 0)
  nn.LSTM(2, 3, { dropout = 2 })
    bad argument 'dropout' to 'LSTM' (a probability from 0 to 1 is needed, got 2)
  nn.LSTM(2, 3, { proj_size = 3 })
    bad argument 'proj_size' to 'LSTM' (0 to hidden_size - 1, 2, is needed, got 3)
  nn.Embedding(5, 2, { padding_idx = 6 })
    bad argument 'padding_idx' to 'Embedding' (6 is out of range for 5 tokens)
  nn.EmbeddingBag(5, 2, { mode = "median" })
    bad argument 'mode' to 'EmbeddingBag' (one of 'mean', 'sum', 'max' is needed, got 'median';
  nn.Unflatten(1, { 2, 3 })(moth.ones(4, 2))
    in Unflatten: bad argument 'sizes' to 'unflatten' ({2, 3} does not fit the 4 elements of f32
  nn.PixelShuffle(2)(moth.ones(3, 2, 2))
    in PixelShuffle: bad argument 'upscale_factor' to 'pixel_shuffle' (the channels of f32 (3, 2
  nn.ParameterList({ 3 })
    bad argument 'values' to 'ParameterList' (a list of tensors is needed, got 3 at position 1)
  nn.ModuleList({ 3 })
    bad argument 'modules' to 'ModuleList' (a module is needed, got 3 at position 1)
  nn.Sequential(3)
    bad argument 'modules' to 'Sequential' (number 1 is 3, not a module)
  nn.ModuleDict({ a = 3 })
    bad argument 'modules' to 'ModuleDict' (a module is needed, got 3 under 'a')
  nn.FractionalMaxPool2d(2)
    bad argument 'output_size' to 'FractionalMaxPool2d' (this or output_ratio is needed, one of
  nn.FractionalMaxPool2d(2, { output_ratio = 2 })
    bad argument 'output_ratio' to 'FractionalMaxPool2d' (output_size, or a number between 0 and
  nn.AdaptiveLogSoftmaxWithLoss(4, 10, { 5, 3 })
    bad argument 'cutoffs' to 'AdaptiveLogSoftmaxWithLoss' (ascending numbers from 1 to 9 are ne
  nn.AdaptiveLogSoftmaxWithLoss(4, 10, { 11 })
    bad argument 'cutoffs' to 'AdaptiveLogSoftmaxWithLoss' (ascending numbers from 1 to 9 are ne
  moth.combinations(moth.ones(2, 2))
    bad argument 'input' to 'combinations' (a vector is needed, got f32 (2, 2))
  moth.cartesian_prod(moth.ones(2, 2))
    bad argument 'tensors' to 'cartesian_prod' (vectors are needed, got f32 (2, 2))
  moth.block_diag(moth.ones(2, 2, 2))
    bad argument 'tensors' to 'block_diag' (matrices are needed, got f32 (2, 2, 2))
  moth.vander(moth.ones(2, 2))
    bad argument 'x' to 'vander' (a vector is needed, got f32 (2, 2))
  moth.cross(moth.ones(2), moth.ones(2))
    bad argument 'input' to 'cross' (no dimension has the size 3 in f32 (2))
  moth.kron(moth.ones(2), 3)
    bad argument 'other' to 'kron' (a tensor is needed, got 3)
  moth.bincount(moth.ones(2))
    bad argument 'input' to 'bincount' (integers are needed, got f32 (2))
  moth.histc(moth.ones(3), { min = 2, max = 1 })
    bad argument 'max' to 'histc' (2 to 1 is no range)
  moth.histogram(moth.ones(3), 0)
    bad argument 'bins' to 'histogram' (a number from 1 on or a vector is needed, got 0)
  moth.cov(moth.ones(2, 2, 2))
    bad argument 'input' to 'cov' (a matrix or a vector is needed, got f32 (2, 2, 2))
  moth.corrcoef(moth.ones(2, 2, 2))
    bad argument 'input' to 'corrcoef' (a matrix or a vector is needed, got f32 (2, 2, 2))
  moth.take_along_dim(moth.ones(2, 3), moth.tensor{ 1LL }, 1)
    bad argument 'indices' to 'take_along_dim' (i64 (1) cannot be broadcast with f32 (2, 3) outs
  moth.stft(moth.ones(10), 20)
    bad argument 'input' to 'stft' (signals of more than n_fft / 2 = 10 numbers are needed for p
  moth.bartlett_window(-1)
    bad argument 'window_length' to 'bartlett_window' (a number from 0 on is needed, got -1)
  moth.kaiser_window(-1)
    bad argument 'window_length' to 'kaiser_window' (a number from 0 on is needed, got -1)
  moth.signal.windows.gaussian(5, { std = -1 })
    bad argument 'std' to 'gaussian' (a number above 0 is needed, got -1)
  moth.signal.windows.general_cosine(5)
    bad argument 'a' to 'general_cosine' (a number or a list of numbers is needed, got nothing)
  nn.FractionalMaxPool3d(2, { output_ratio = { 0.5, 0.5, 0 / 0 } })
    bad argument 'output_ratio' to 'FractionalMaxPool3d' (output_size, or a number between 0 and
  moth.histogram(moth.ones(3), 3, { 1, 2, 3 })
    bad argument 'range' to 'histogram' (two finite numbers in order are needed, got {1, 2, 3})
  moth.split_with_sizes(moth.ones(5), { 2 })
    bad argument 'split_sizes' to 'split_with_sizes' (sizes that add up to 5 are needed, got {2}
  moth.ops.box_convert(moth.ones(3, 3), "xyxy", "xyxy")
    bad argument 'boxes' to 'box_convert' (boxes are needed, (..., 4), got f32 (3, 3))
  moth.slice_scatter(moth.zeros(4, 0), moth.zeros(2, 3))
    bad argument 'src' to 'slice_scatter' ((4, 0) is needed, got f32 (2, 3))
  moth.mode(moth.ones(2, 3), 5)
    bad argument 'dim' to 'mode' (dim 5 is out of range: wanted 1 to 2 or -2 to -1)
  moth.tensor_split(moth.ones(2, 3), 2, -5)
    bad argument 'dim' to 'tensor_split' (dim -5 is out of range: wanted 1 to 2 or -2 to -1)
  moth.gradient(moth.ones(3, 3), { dim = -7 })
    bad argument 'dim' to 'gradient' (dim -7 is out of range: wanted 1 to 2 or -2 to -1)
  moth.trapezoid(moth.ones(3), { dim = 2 })
    bad argument 'dim' to 'trapezoid' (dim 2 is out of range: wanted 1 to 1 or -1 to -1)
  moth.ones(3, 2):index_reduce(4, moth.tensor{ 1LL }, moth.ones(1, 2), "prod")
    bad argument 'dim' to 'index_reduce' (dim 4 is out of range: wanted 1 to 2 or -2 to -1)
  moth.cholesky_solve(moth.ones(2, 1), moth.ones(2, 3))
    bad argument 'L' to 'cholesky_solve' (factors, (..., N, N), are needed, got f32 (2, 3))
]=]

local nn, D = moth.nn, moth.distributions

local words = {
  moth = moth, nn = nn, D = D, data = moth.utils.data, schedulers = moth.optim.lr_scheduler,
  parametrize = nn.utils.parametrize, list = { 1, 2, 3 },
  grad = moth.ones(3, { dtype = moth.float64, requires_grad = true }),
  same = function(x) return x end,
  sgd = function() return moth.optim.SGD({ moth.ones(2):requires_grad_() }, 0.1) end,
  normal_of = function(n) return D.MultivariateNormal(moth.zeros(n), moth.eye(n)) end,
  independent = function(n) return D.Independent(D.Normal(moth.zeros(2, 2), 1), n) end,
}

describe("a call that cannot be meant", function()
  for code, wanted in ROWS:gmatch "  ([^\n]+)\n    ([^\n]+)\n" do
    it("is refused: " .. code, function()
      local chunk = loadstring("return " .. code) or assert(loadstring(code))
      setfenv(chunk, setmetatable({ print = print }, { __index = words }))
      local ok, message = pcall(chunk)
      assert(not ok, "it was taken")
      message = tostring(message):gsub('^%[string .-"%]:1: ', ""):gsub("^[^%s']+:%d+: ", "")
      assert.equal(wanted, message:sub(1, #wanted))
    end)
  end
end)
