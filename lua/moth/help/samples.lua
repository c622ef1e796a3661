--- samples.lua -- the example of each class, which help shows. A spec runs all of them.
--
--     samples.of("nn.Conv2d", Conv2d)   --> "nn.Conv2d(3, 16, 3, {padding = 1})(moth.randn(...))"

local samples = {}

-- One path and its example a line.
local LINES = [[
nn.Bilinear nn.Bilinear(2, 3, 4)(moth.randn(5, 2), moth.randn(5, 3))
nn.ConstantPad1d nn.ConstantPad1d(2, 0.5)(moth.randn(1, 3, 4))
nn.ConstantPad2d nn.ConstantPad2d({1, 1, 2, 2}, 0.5)(moth.randn(1, 3, 4, 4))
nn.ConstantPad3d nn.ConstantPad3d(1, 0.5)(moth.randn(1, 3, 4, 4, 4))
nn.Embedding nn.Embedding(10, 3)(moth.tensor{1LL, 5LL, 10LL})
nn.EmbeddingBag nn.EmbeddingBag(10, 3)(moth.tensor{{1LL, 5LL, 10LL}})
nn.Flatten nn.Flatten()(moth.randn(2, 3, 4))
nn.Unflatten nn.Unflatten(2, {3, 4})(moth.randn(2, 12))
nn.Fold nn.Fold({4, 5}, 2)(moth.randn(1, 12, 12))
nn.Unfold nn.Unfold(2)(moth.randn(1, 3, 4, 5))
nn.GroupNorm nn.GroupNorm(2, 6)(moth.randn(2, 6, 4))
nn.LocalResponseNorm nn.LocalResponseNorm(3)(moth.randn(2, 6, 4))
nn.ChannelShuffle nn.ChannelShuffle(2)(moth.randn(2, 6, 4))
nn.MaxUnpool1d nn.MaxUnpool1d(2)(F.max_pool1d(moth.randn(2, 3, 8), 2, {return_indices = true}))
nn.MaxUnpool2d nn.MaxUnpool2d(2)(F.max_pool2d(moth.randn(2, 3, 8, 8), 2, {return_indices = true}))
nn.MaxUnpool3d nn.MaxUnpool3d(2)(F.max_pool3d(moth.randn(3, 8, 8, 8), 2, {return_indices = true}))
moth.distributed.checkpoint.Slice moth.distributed.checkpoint.Slice(moth.ones(2), {6}, {3})
data.DistributedSampler data.DistributedSampler(100, {num_replicas = 2, rank = 0})
nn.SyncBatchNorm nn.SyncBatchNorm(6)(moth.randn(2, 6, 4))
nn.LayerNorm nn.LayerNorm(6)(moth.randn(2, 6))
nn.RMSNorm nn.RMSNorm(6)(moth.randn(2, 6))
nn.Linear nn.Linear(20, 30)(moth.randn(128, 20))
nn.LazyLinear nn.LazyLinear(30)(moth.randn(128, 20))
nn.PixelShuffle nn.PixelShuffle(2)(moth.randn(1, 8, 3, 3))
nn.PixelUnshuffle nn.PixelUnshuffle(2)(moth.randn(1, 2, 6, 6))
nn.Threshold nn.Threshold(0.1, 20)(moth.randn(4))
nn.GLU nn.GLU()(moth.randn(2, 4))
nn.Softmax nn.Softmax(2)(moth.randn(2, 3))
nn.LogSoftmax nn.LogSoftmax(2)(moth.randn(2, 3))
nn.Softmin nn.Softmin(2)(moth.randn(2, 3))
nn.Softmax2d nn.Softmax2d()(moth.randn(2, 3, 4, 4))
nn.Upsample nn.Upsample{scale_factor = 2, mode = "nearest"}(moth.randn(1, 3, 4, 4))
nn.UpsamplingNearest2d nn.UpsamplingNearest2d{scale_factor = 2}(moth.randn(1, 3, 4, 4))
nn.UpsamplingBilinear2d nn.UpsamplingBilinear2d{scale_factor = 2}(moth.randn(1, 3, 4, 4))
nn.ZeroPad1d nn.ZeroPad1d(2)(moth.randn(1, 3, 4))
nn.ReflectionPad1d nn.ReflectionPad1d(2)(moth.randn(1, 3, 4))
nn.ReplicationPad1d nn.ReplicationPad1d(2)(moth.randn(1, 3, 4))
nn.CircularPad1d nn.CircularPad1d(2)(moth.randn(1, 3, 4))
nn.ParameterList nn.ParameterList{moth.randn(3), moth.randn(2, 3)}
nn.ParameterDict nn.ParameterDict{left = moth.randn(3), right = moth.randn(2, 3)}
nn.Sequential nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 3))(moth.randn(5, 20))
nn.ModuleDict nn.ModuleDict{relu = nn.ReLU(), tanh = nn.Tanh()}
nn.RNN output, h = nn.RNN(10, 20)(moth.randn(5, 3, 10))
nn.LSTM output, states = nn.LSTM(10, 20, {batch_first = true})(moth.randn(3, 5, 10))
nn.GRU output, h = nn.GRU(10, 20)(moth.randn(5, 3, 10))
nn.RNNCell h = nn.RNNCell(10, 20)(moth.randn(3, 10))
nn.LSTMCell h, c = nn.LSTMCell(10, 20)(moth.randn(3, 10))
nn.GRUCell h = nn.GRUCell(10, 20)(moth.randn(3, 10), moth.zeros(3, 20))
nn.TransformerEncoderLayer nn.TransformerEncoderLayer(8, 2)(moth.randn(5, 3, 8))
nn.Transformer nn.Transformer(8, 2, 1, 1, 16)(moth.randn(5, 3, 8), moth.randn(4, 3, 8))
nn.CosineSimilarity nn.CosineSimilarity()(moth.randn(5, 3), moth.randn(5, 3))
nn.PairwiseDistance nn.PairwiseDistance()(moth.randn(5, 3), moth.randn(5, 3))
nn.CrossEntropyLoss nn.CrossEntropyLoss()(moth.randn(4, 3), moth.tensor{1LL, 3LL, 2LL, 1LL})
nn.LinearCrossEntropyLoss nn.LinearCrossEntropyLoss(4, 9)(moth.randn(3, 4), {1, 9, 2})
nn.NLLLoss nn.NLLLoss()(F.log_softmax(moth.randn(4, 3), 2), moth.tensor{1LL, 3LL, 2LL, 1LL})
nn.BCELoss nn.BCELoss()(moth.rand(4), moth.tensor{0, 1, 1, 0})
nn.AdaptiveLogSoftmaxWithLoss nn.AdaptiveLogSoftmaxWithLoss(8, 9, 3)(moth.randn(2, 8), {1, 9})
nn.BCEWithLogitsLoss nn.BCEWithLogitsLoss()(moth.randn(4), moth.tensor{0, 1, 1, 0})
nn.GaussianNLLLoss nn.GaussianNLLLoss()(moth.randn(4), moth.randn(4), moth.ones(4))
nn.MarginRankingLoss nn.MarginRankingLoss()(moth.randn(4), moth.randn(4), moth.ones(4))
nn.CosineEmbeddingLoss nn.CosineEmbeddingLoss()(moth.randn(4, 3), moth.randn(4, 3), moth.ones(4))
nn.TripletMarginLoss nn.TripletMarginLoss()(moth.randn(4, 3), moth.randn(4, 3), moth.randn(4, 3))
nn.MultiMarginLoss nn.MultiMarginLoss()(moth.randn(2, 3), moth.tensor{1LL, 3LL})
nn.MultiLabelMarginLoss nn.MultiLabelMarginLoss()(moth.randn(3), moth.tensor{3LL, 1LL, 0LL})
nn.MultiLabelSoftMarginLoss nn.MultiLabelSoftMarginLoss()(moth.randn(3), moth.tensor{0, 1, 1})
nn.utils.rnn.PackedSequence nn.utils.rnn.pack_sequence{moth.randn(3, 2), moth.randn(1, 2)}
optim.Optimizer optim.SGD(nn.Linear(2, 1):parameters(), {lr = 0.1}):step()
optim.SGD optim.SGD(nn.Linear(2, 1):parameters(), {lr = 0.1, momentum = 0.9})
optim.Muon optim.Muon({moth.zeros(4, 3)}, {lr = 0.02})
optim.SparseAdam optim.SparseAdam(nn.Embedding{9, 4, sparse = true}:parameters(), {lr = 0.1})
optim.LBFGS optim.LBFGS(nn.Linear(2, 1):parameters(), {line_search_fn = "strong_wolfe"})
optim.swa_utils.AveragedModel optim.swa_utils.AveragedModel(nn.Linear(2, 1)):parameters()
optim.swa_utils.get_swa_avg_fn optim.swa_utils.get_swa_avg_fn()
optim.swa_utils.get_swa_multi_avg_fn optim.swa_utils.get_swa_multi_avg_fn()
optim.swa_utils.SWALR optim.swa_utils.SWALR(optim.SGD(nn.Linear(2, 1):parameters()), 0.05)
data.TensorDataset data.TensorDataset(moth.randn(10, 3), moth.arange(10)):get(1)
data.Subset data.Subset(moth.randn(10, 3), {1, 4, 7}):len()
data.ConcatDataset data.ConcatDataset{moth.randn(10, 3), moth.randn(5, 3)}:len()
data.StackDataset data.StackDataset(moth.randn(10, 3), moth.arange(10)):get(1)
data.Sampler data.DataLoader(moth.randn(10, 3), {sampler = data.RandomSampler(10)})
data.SequentialSampler data.SequentialSampler(moth.randn(10, 3)):iter()
data.RandomSampler data.RandomSampler(10, {replacement = true, num_samples = 4})
data.SubsetRandomSampler data.SubsetRandomSampler{1, 4, 7}
data.WeightedRandomSampler data.WeightedRandomSampler({0.1, 0.9}, 5)
data.BatchSampler data.BatchSampler(data.RandomSampler(10), 3, true)
data.ChainDataset data.ChainDataset{data.IterableDataset(function() return ipairs{3, 1, 4} end)}
data.random_split data.random_split(moth.randn(10, 3), {0.8, 0.2})
data.source data.DataLoader(data.source("moth:randn", 10, 3), {batch_size = 4, num_workers = 2})
data.default_collate data.default_collate{moth.ones(2), moth.zeros(2)}
moth.time moth.time()
moth.ops.RoIAlign moth.ops.RoIAlign(2, 1, 2)(moth.rand(1, 2, 5, 5), moth.tensor{{1, 0, 0, 3, 4}})
moth.ops.RoIPool moth.ops.RoIPool(2, 1)(moth.rand(1, 2, 5, 5), moth.tensor{{1, 0, 0, 3, 4}})
moth.ops.PSRoIAlign moth.ops.PSRoIAlign(2, 1, 2)(moth.rand(1, 4, 5, 5), moth.ones(1, 5))
moth.ops.PSRoIPool moth.ops.PSRoIPool(2, 1)(moth.rand(1, 4, 5, 5), moth.tensor{{1, 0, 0, 3, 4}})
moth.ops.StochasticDepth moth.ops.StochasticDepth(0.5, "row")(moth.rand(4, 2))
moth.ops.DropBlock2d moth.ops.DropBlock2d(0.1, 3)(moth.rand(2, 3, 8, 8))
moth.ops.DropBlock3d moth.ops.DropBlock3d(0.1, 3)(moth.rand(2, 3, 8, 8, 8))
moth.ops.Permute moth.ops.Permute{2, 3, 1}(moth.rand(2, 3, 4))
moth.ops.DeformConv2d moth.ops.DeformConv2d(2, 3, 3)(moth.rand(1, 2, 5, 5), moth.rand(1, 18, 3, 3))
moth.ops.FrozenBatchNorm2d moth.ops.FrozenBatchNorm2d(3)(moth.rand(2, 3, 4, 4))
moth.ops.Conv2dNormActivation moth.ops.Conv2dNormActivation(2, 3)(moth.rand(2, 2, 4, 4))
moth.ops.Conv3dNormActivation moth.ops.Conv3dNormActivation(2, 3)(moth.rand(2, 2, 4, 4, 4))
moth.ops.MLP moth.ops.MLP(4, {8, 2})(moth.rand(3, 4))
moth.ops.SqueezeExcitation moth.ops.SqueezeExcitation(4, 2)(moth.rand(2, 4, 3, 3))
moth.timer moth.timer(function() moth.ones(2):exp() end):timeit(10)
moth.utils.benchmark.Timer moth.utils.benchmark.Timer(function() moth.ones(2):exp() end):timeit(10)
moth.audio.Spectrogram moth.audio.Spectrogram{n_fft = 64, power = 1}(moth.randn(2, 500))
moth.audio.InverseSpectrogram moth.audio.InverseSpectrogram{n_fft = 8}(moth.randn(5, 9, 2), 30)
moth.audio.GriffinLim moth.audio.GriffinLim{n_fft = 64, n_iter = 8}(moth.rand(33, 20))
moth.audio.MelScale moth.audio.MelScale{n_mels = 20, n_stft = 65}(moth.rand(65, 9))
moth.audio.MelSpectrogram moth.audio.MelSpectrogram{n_mels = 40}(moth.randn(2, 2000))
moth.audio.AmplitudeToDB moth.audio.AmplitudeToDB("power", 80)(moth.rand(40, 9))
moth.audio.MFCC moth.audio.MFCC{n_mfcc = 13, melkwargs = {n_mels = 40}}(moth.randn(2, 2000))
moth.audio.ComputeDeltas moth.audio.ComputeDeltas()(moth.rand(40, 9))
moth.audio.Resample moth.audio.Resample(48000, 16000)(moth.randn(2, 480))
moth.audio.TimeMasking moth.audio.TimeMasking(4)(moth.rand(40, 9))
moth.audio.FrequencyMasking moth.audio.FrequencyMasking{8, iid_masks = true}(moth.rand(2, 40, 9))
moth.audio.MuLawEncoding moth.audio.MuLawEncoding()(moth.rand(9))
moth.audio.MuLawDecoding moth.audio.MuLawDecoding()(moth.tensor{0LL, 128LL, 255LL})
moth.audio.Vol moth.audio.Vol(-6, "db")(moth.rand(9))
moth.audio.Fade moth.audio.Fade(100, 200)(moth.rand(2, 500))
moth.callbacks.EarlyStopping moth.callbacks.EarlyStopping{patience = 5, restore_best = true}
moth.callbacks.ModelCheckpoint moth.callbacks.ModelCheckpoint{"run", save_top_k = 3}
moth.callbacks.LRFinder moth.callbacks.LRFinder{num_training = 50}
moth.metrics.Metric moth.metrics.MeanMetric()(moth.rand(4))
moth.metrics.MeanMetric moth.metrics.MeanMetric()(moth.rand(4), moth.ones(4))
moth.metrics.SumMetric moth.metrics.SumMetric()(moth.rand(4))
moth.metrics.MaxMetric moth.metrics.MaxMetric()(moth.rand(4))
moth.metrics.MinMetric moth.metrics.MinMetric()(moth.rand(4))
moth.metrics.CatMetric moth.metrics.CatMetric()(moth.rand(4))
moth.metrics.MeanAbsoluteError moth.metrics.MeanAbsoluteError()(moth.rand(4), moth.rand(4))
moth.metrics.MeanSquaredError moth.metrics.MeanSquaredError()(moth.rand(4), moth.rand(4))
moth.metrics.R2Score moth.metrics.R2Score()(moth.rand(4), moth.rand(4))
moth.metrics.Perplexity moth.metrics.Perplexity()(moth.randn(1, 2, 3), moth.tensor{{3LL, 1LL}})
moth.metrics.BLEUScore moth.metrics.BLEUScore()({"a cat sat on the mat"}, {"a cat is on the mat"})
moth.metrics.MetricCollection moth.metrics.MetricCollection{loss = moth.metrics.MeanMetric()}
moth.distributions.LogNormal moth.distributions.LogNormal(0, 1):sample(3)
moth.distributions.HalfNormal moth.distributions.HalfNormal(2):log_prob(0.5)
moth.distributions.Uniform moth.distributions.Uniform(-1, moth.tensor{1, 2}):sample()
moth.distributions.Exponential moth.distributions.Exponential(2):cdf(1)
moth.distributions.Laplace moth.distributions.Laplace(0, 1):rsample{2, 3}
moth.distributions.Gumbel moth.distributions.Gumbel(0, 1):sample(3)
moth.distributions.Cauchy moth.distributions.Cauchy(0, 1):log_prob(moth.tensor{-1, 0, 4})
moth.distributions.Gamma moth.distributions.Gamma(moth.tensor{0.5, 3}, 2):rsample()
moth.distributions.Chi2 moth.distributions.Chi2(3):log_prob(2)
moth.distributions.Beta moth.distributions.Beta(2, 5):sample(3)
moth.distributions.Dirichlet moth.distributions.Dirichlet(moth.tensor{1, 2, 3}):sample()
moth.distributions.StudentT moth.distributions.StudentT(5):log_prob(0.5)
moth.distributions.Poisson moth.distributions.Poisson(4):sample(3)
moth.distributions.Bernoulli moth.distributions.Bernoulli{logits = moth.zeros(3)}:sample()
moth.distributions.Geometric moth.distributions.Geometric(0.25).mean
moth.distributions.ExpTransform moth.distributions.ExpTransform()(moth.zeros(2))
moth.distributions.SigmoidTransform moth.distributions.SigmoidTransform().inv(moth.rand(2))
moth.distributions.TanhTransform moth.distributions.TanhTransform()(moth.randn(2))
moth.distributions.AffineTransform moth.distributions.AffineTransform(1, 2)(moth.randn(2))
moth.distributions.HalfCauchy moth.distributions.HalfCauchy(2):cdf(1)
moth.distributions.Pareto moth.distributions.Pareto(1, 3):sample(3)
moth.distributions.GeneralizedPareto moth.distributions.GeneralizedPareto(0, 1, 0.2):icdf(0.99)
moth.distributions.Weibull moth.distributions.Weibull(10, 1.5):sample(3)
moth.distributions.InverseGamma moth.distributions.InverseGamma(3, 2).mean
moth.distributions.FisherSnedecor moth.distributions.FisherSnedecor(3, 8):log_prob(0.5)
moth.distributions.Kumaraswamy moth.distributions.Kumaraswamy(2, 5):rsample()
moth.distributions.ContinuousBernoulli moth.distributions.ContinuousBernoulli(0.8):log_prob(0.3)
moth.distributions.VonMises moth.distributions.VonMises(0, 4):sample(3)
moth.distributions.Binomial moth.distributions.Binomial(10, 0.25):sample(3)
moth.distributions.NegativeBinomial moth.distributions.NegativeBinomial(3, 0.5):log_prob(4)
moth.distributions.Multinomial moth.distributions.Multinomial(6, moth.tensor{1, 2, 3}):sample()
moth.distributions.RelaxedBernoulli moth.distributions.RelaxedBernoulli(0.5, 0.3):rsample(3)
moth.distributions.AbsTransform moth.distributions.AbsTransform()(moth.randn(2))
moth.distributions.SoftplusTransform moth.distributions.SoftplusTransform()(moth.randn(2))
moth.distributions.PowerTransform moth.distributions.PowerTransform(2).inv(moth.rand(2))
moth.distributions.SoftmaxTransform moth.distributions.SoftmaxTransform()(moth.randn(2, 3))
moth.distributions.StickBreakingTransform moth.distributions.StickBreakingTransform()(moth.zeros(3))
moth.distributions.CorrCholeskyTransform moth.distributions.CorrCholeskyTransform()(moth.zeros(3))
nn.Parameter nn.Parameter(moth.zeros(3))
nn.Buffer nn.Buffer(moth.zeros(3))
nn.isinstance nn.isinstance(nn.Conv2d(1, 2, 3), nn.Module)
nn.UninitializedParameter p = nn.UninitializedParameter(); p:materialize(2, 3); nn.init.ones_(p)
nn.UninitializedBuffer b = nn.UninitializedBuffer(); b:materialize{2, 3}; b:zero_()
moth.darknet.Darknet moth.darknet.Darknet "[net]\nwidth=8\nheight=8\n[convolutional]\nfilters=2\n"
moth.models.ResNet moth.models.ResNet(moth.models.BasicBlock, {1, 1, 1, 1}, {num_classes = 10})
moth.models.BasicBlock moth.models.BasicBlock(4, 4)(moth.rand(1, 4, 8, 8))
moth.models.Bottleneck moth.models.Bottleneck(16, 4)(moth.rand(1, 16, 8, 8))
moth.models.MobileNetV3 moth.models.MobileNetV3({{16, 3, 16, 16}}, 64, {num_classes = 10})
moth.models.InvertedResidual moth.models.InvertedResidual(8, 3, 16, 8)(moth.rand(1, 8, 8, 8))
moth.models.EfficientNet moth.models.EfficientNet({{6, 3, 1, 8, 8, 1}}, 0.2, {num_classes = 10})
moth.models.MBConv moth.models.MBConv(6, 3, 1, 8, 8)(moth.rand(1, 8, 8, 8))
moth.models.VGG moth.models.VGG(nn.Conv2d(3, 512, 3), {num_classes = 10, dropout = 0})
moth.models.VisionTransformer moth.models.VisionTransformer(32, 16, 2, 4, 16, 32)
moth.models.EncoderBlock moth.models.EncoderBlock(4, 16, 32)(moth.rand(1, 5, 16))
moth.models.MLPBlock moth.models.MLPBlock(16, 32)(moth.rand(1, 5, 16))
moth.models.UNet moth.models.UNet{base_channels = 4}(moth.rand(1, 3, 32, 32))
moth.models.DoubleConv moth.models.DoubleConv(3, 8)(moth.rand(1, 3, 8, 8))
moth.models.GPT2LMHeadModel moth.models.GPT2LMHeadModel{n_embd = 24, n_layer = 1}
moth.models.GPT2Model moth.models.GPT2Model{n_embd = 24, n_layer = 1}
moth.models.GPT2Block moth.models.GPT2Block{n_embd = 24, n_layer = 1}
moth.models.Conv1D moth.models.Conv1D(3, 2)(moth.rand(4, 2))
moth.models.BertModel moth.models.BertModel{hidden_size = 24, num_hidden_layers = 1}
moth.models.BertLayer moth.models.BertLayer{hidden_size = 24, num_hidden_layers = 1}
moth.autocast moth.autocast("cpu", moth.bfloat16, moth.matmul, moth.ones(2, 2), moth.ones(2, 2))
moth.GradScaler moth.GradScaler():scale(moth.ones(1)):item()
moth.no_grad moth.no_grad(function() return moth.ones(2) * 2 end)
moth.scope moth.scope(function() return moth.ones(2):sum():item() end)
moth.capture moth.capture(function(x) return x * 2 end)(moth.ones(2))
moth.kernel moth.kernel(function(x, y) return x * moth.sigmoid(x) * y end)(moth.ones(2), 3)
moth.Generator moth.rand(3, {generator = moth.Generator():manual_seed(1)})
moth.summary print(moth.summary(nn.Linear(20, 3), {1, 20}))
moth.profiler.profile print(moth.profiler.profile(function() moth.ones(2):exp() end))
moth.profiler.record_function moth.profiler.record_function("load", moth.ones, 2)
]] .. "moth.profiler.EventList print(moth.profiler.profile(function() moth.ones(2):exp() end)"
  .. ":key_averages():table{row_limit = 5})\n"

-- The arguments after the optimizer in optim.lr_scheduler.NAME(optimizer, ...).
local SCHEDULES = {
  StepLR = "30", MultiStepLR = "{30, 80}", ConstantLR = "", LinearLR = "",
  ExponentialLR = "0.9", PolynomialLR = "100",
  LambdaLR = "function(epoch) return 0.95 ^ epoch end",
  MultiplicativeLR = "function(epoch) return 0.95 end", CosineAnnealingLR = "100",
  CosineAnnealingWarmRestarts = "10", OneCycleLR = "0.1, {total_steps = 100}",
  CyclicLR = "0.001, 0.1", ReduceLROnPlateau = "{patience = 5}",
}

-- Examples of several lines.
samples.texts = {
  ["moth.profiler.schedule"] = [[
local schedule = moth.profiler.schedule{wait = 1, warmup = 1, active = 2}
moth.profiler.profile{function(prof)
  for _ = 1, 8 do
    moth.ones(2):exp()
    prof:step()
  end
end, schedule = schedule, on_trace_ready = print}]],
  ["moth.transforms.Transform"] = [[
local Double = nn.class("Double", moth.transforms.Transform)
function Double:transform(x, params, kind)
  return kind == "image" and x * 2 or x
end
print(Double()(moth.rand(3, 8, 8)):max())]],
  ["moth.transforms.MixUp"] = [[
local mixup = moth.transforms.MixUp{num_classes = 3}
local x, y = mixup(moth.rand(2, 3, 8, 8), moth.tensor{1LL, 3LL})]],
  ["moth.transforms.CutMix"] = [[
local cutmix = moth.transforms.CutMix{num_classes = 3}
local x, y = cutmix(moth.rand(2, 3, 8, 8), moth.tensor{1LL, 3LL})]],
  ["moth.transforms.RandomIoUCrop"] = [[
local crop = moth.transforms.RandomIoUCrop()
print(crop{image = moth.rand(3, 8, 8), boxes = moth.tensor{{1, 2, 5, 6}}}.boxes)]],
  ["moth.transforms.Image"] = "moth.transforms.Image(moth.rand(3, 8, 8))",
  ["moth.transforms.Mask"] = "moth.transforms.Mask(moth.zeros(8, 8))",
  ["moth.transforms.BoundingBoxes"] = [[
moth.transforms.BoundingBoxes({{1, 2, 5, 6}}, "XYXY", {8, 8})]],
  ["moth.transforms.SanitizeBoundingBoxes"] = [[
local boxes, labels = moth.tensor{{1, 2, 5, 6}, {3, 3, 3, 3}}, moth.tensor{1LL, 2LL}
local clean = moth.transforms.SanitizeBoundingBoxes()
print(clean{image = moth.rand(3, 8, 8), boxes = boxes, labels = labels}.labels)]],
  ["moth.ops.FeaturePyramidNetwork"] = [[
local fpn = moth.ops.FeaturePyramidNetwork({8, 16}, 4, {extra_blocks = moth.ops.LastLevelMaxPool()})
fpn{{"fine", moth.rand(1, 8, 16, 16)}, {"coarse", moth.rand(1, 16, 8, 8)}}]],
  ["moth.ops.MultiScaleRoIAlign"] = [[
local pool = moth.ops.MultiScaleRoIAlign({"fine", "coarse"}, 2, 2)
pool({{"fine", moth.rand(1, 4, 16, 16)}, {"coarse", moth.rand(1, 4, 8, 8)}},
  {moth.tensor{{0, 0, 20, 30}}}, {{64, 64}})]],
  ["moth.ops.LastLevelMaxPool"] = [[
moth.ops.LastLevelMaxPool()({moth.rand(1, 4, 8, 8)}, {}, {"fine"})]],
  ["moth.ops.LastLevelP6P7"] = [[
moth.ops.LastLevelP6P7(4, 4)({moth.rand(1, 4, 8, 8)}, {}, {"fine"})]],
  ["moth.autograd.graph.saved_tensors_hooks"] = [[
local pack = function(x) return x:half() end
local restore = function(x) return x:float() end
local y = moth.autograd.graph.saved_tensors_hooks(pack, restore, function()
  return moth.ones(2):requires_grad_():exp():sum()
end)
y:backward()]],
  ["moth.distributions.biject_to"] = [[
local d = moth.distributions
print(d.biject_to(d.constraints.positive)(moth.randn(3)))]],
  ["moth.distributions.transform_to"] = [[
local d = moth.distributions
print(d.transform_to(d.Gamma(1, 1).support)(moth.zeros(3)))]],
  ["moth.distributions.constraints.Constraint"] = [[
local function even(x) return (x % 2):eq(0) end
print(moth.distributions.constraints.Constraint("even numbers", even):check(moth.arange(4)))]],
  ["nn.Module"] = [[
local Net = nn.class("Net", nn.Module)
function Net:init(features)                -- the constructor; nothing above it need be called
  self.fc1 = nn.Linear(20, features)       -- modules and parameters in fields are registered
  self.fc2 = nn.Linear(features, 3)
end
function Net:forward(x, temperature)       -- the arguments of net(...)
  return self.fc2(F.relu(self.fc1(x))) / (temperature or 1)
end
local net = Net(64)
print(net(moth.randn(5, 20)).shape, net(moth.randn(5, 20), 2).shape)]],
  ["data.Dataset"] = [[
local Squares = nn.class("Squares", data.Dataset)
function Squares:init(n) self.n = n end
function Squares:len() return self.n end
function Squares:get(i)                    -- i from 1; returns one sample
  return moth.tensor{i, i * i}, i % 2 == 0 and 1LL or 2LL -- 1LL: a class, int64 in a batch
end
for input, target in data.DataLoader(Squares(10), {batch_size = 4, shuffle = true}) do
  print(input.shape, target.dtype)
end]],
  ["data.IterableDataset"] = [[
local stream = data.IterableDataset(function()
  local i = 0
  return function()
    i = i + 1
    if i <= 10 then return moth.full({3}, i) end
  end
end)
for batch in data.DataLoader(stream, 4) do print(batch.shape) end]],
  ["data.JSONLines"] = [[
local path = os.tmpname()
data.write_json_lines({{text = "good", label = 1}, {text = "bad", label = 2}}, path)
local set = data.JSONLines(path)
print(set:len(), set:get(2).text)]],
  ["data.TarWriter"] = [[
local writer = data.TarWriter(os.tmpname())
writer:write{__key__ = "0001", npy = moth.ones(2), cls = 3}
writer:close()]],
  ["data.WebDataset"] = [[
local path = os.tmpname()
local writer = data.TarWriter(path)
for i = 1, 8 do writer:write{__key__ = "sample" .. i, npy = moth.ones(2) * i, cls = i} end
writer:close()
local stream = data.WebDataset{path, shuffle = 100, decode = true, to_tuple = {"npy", "cls"}}
for x, class in data.DataLoader(stream, 4) do print(x.shape, class) end]],
  ["data.DataLoader"] = [[
local set = data.TensorDataset(moth.randn(10, 3), moth.randint(1, 3, {10}))
for input, target in data.DataLoader(set, {batch_size = 4, shuffle = true}) do
  print(input.shape, target.shape)
end]],
  ["data.get_worker_info"] = [[
-- In a module, images.lua, so that workers can create it again:
local Train = nn.class("Train", data.Dataset)
function Train:init(folder) self.folder = folder end
function Train:worker() return data.source("images:Train", self.folder) end
function Train:len() return 1000 end
function Train:get(i)
  local info = data.get_worker_info()      -- nil with num_workers = 0
  return moth.rand(3, 8, 8), info and info.id or 0
end]],
  ["data.get_shard_info"] = [[
local numbers = data.IterableDataset(function()
  local info = data.get_shard_info()       -- of this process and worker
  local i = info.id - info.num_shards
  return function()
    i = i + info.num_shards
    if i <= 10 then return moth.tensor(i) end
  end
end)
for batch in data.DataLoader(numbers, 4) do print(batch) end]],
  ["moth.autograd.Function"] = [[
local Cube = nn.class("Cube", moth.autograd.Function)
function Cube.forward(ctx, x)
  ctx:save_for_backward(x)
  return x ^ 3
end
function Cube.backward(ctx, dy)            -- a gradient for each argument of forward
  local x = ctx.saved_tensors[1]
  return 3 * x ^ 2 * dy
end
local x = moth.tensor({1, 2}, {requires_grad = true})
Cube.apply(x):sum():backward()
print(x.grad)]],
  ["moth.autograd.FunctionCtx"] = [[
local Scale = nn.class("Scale", moth.autograd.Function)
function Scale.forward(ctx, x, by)
  ctx:save_for_backward(x, by)
  return x * by
end
function Scale.backward(ctx, dy)
  local x, by = unpack(ctx.saved_tensors)
  local needs = ctx.needs_input_grad
  return needs[1] and dy * by or nil, needs[2] and (dy * x):sum() or nil
end
Scale.apply(moth.ones(3, {requires_grad = true}), moth.tensor(2)):sum():backward()]],
  ["moth.autograd.once_differentiable"] = [[
local Cube = nn.class("Cube", moth.autograd.Function)
function Cube.forward(ctx, x)
  ctx:save_for_backward(x)
  return x ^ 3
end
Cube.backward = moth.autograd.once_differentiable(function(ctx, dy)
  return 3 * ctx.saved_tensors[1] ^ 2 * dy
end)
Cube.apply(moth.ones(3, {requires_grad = true})):sum():backward()]],
  ["moth.autograd.grad"] = [[
local x = moth.tensor({1, 2}, {requires_grad = true})
local dx = moth.autograd.grad((x ^ 2):sum(), x)]],
  ["moth.utils.checkpoint.checkpoint"] = [[
local block = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 8))
local x = moth.randn(4, 8)
for _ = 1, 3 do x = moth.utils.checkpoint.checkpoint(block, x) end
x:sum():backward()]],
  ["moth.utils.checkpoint.checkpoint_sequential"] = [[
local net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8), nn.Tanh())
moth.utils.checkpoint.checkpoint_sequential(net, 2, moth.randn(4, 8)):sum():backward()]],
  ["moth.cuda.Stream"] = [[
if moth.cuda.is_available() then
  local copies, x = moth.cuda.Stream(), moth.randn(100, 3):pin_memory()
  local y = moth.cuda.stream(copies, function() return x:to("cuda", {non_blocking = true}) end)
  moth.cuda.current_stream():wait_stream(copies) -- before y is used here
end]],
  ["moth.cuda.Event"] = [[
if moth.cuda.is_available() then
  local a, b = moth.cuda.Event{enable_timing = true}, moth.cuda.Event{enable_timing = true}
  local x = moth.randn(100, 100, {device = "cuda"})
  a:record()
  x:matmul(x)
  b:record()
  b:synchronize()
  print(a:elapsed_time(b) .. " ms")
end]],
  ["moth.distributions.Distribution"] = [[
local D = moth.distributions
local Triangle = nn.class("Triangle", D.Distribution) -- the sum of two uniform numbers
function Triangle:init() D.Distribution.init(self, {}) end
function Triangle:sample(n) return moth.rand(n) + moth.rand(n) end
function Triangle:log_prob(value) return (1 - (value - 1):abs()):log() end
print(Triangle():log_prob(Triangle():sample(3)))]],
  ["moth.distributions.Normal"] = [[
local policy = moth.distributions.Normal(moth.zeros(3), 0.5)
local action = policy:sample()
local loss = -policy:log_prob(action):sum() - 0.01 * policy:entropy():sum()]],
  ["moth.distributions.Categorical"] = [[
local policy = moth.distributions.Categorical{logits = moth.randn(5, 4)}
local action = policy:sample()             -- positions from 1 to 4, one for each of the 5
local loss = -policy:log_prob(action):mean()]],
  ["moth.distributions.OneHotCategorical"] = [[
local d = moth.distributions.OneHotCategorical{probs = moth.tensor{0.2, 0.3, 0.5}}
print(d:sample(2), d.mode)]],
  ["moth.distributions.MultivariateNormal"] = [[
local triangle = moth.tensor{{1, 0}, {0.5, 2}}
local d = moth.distributions.MultivariateNormal(moth.zeros(2), {scale_tril = triangle})
print(d:log_prob(d:sample(3)))]],
  ["moth.distributions.Independent"] = [[
local D = moth.distributions
local d = D.Independent(D.Normal(moth.zeros(5, 3), 1), 1)
print(d:sample().shape, d:log_prob(d:sample()).shape)]],
  ["moth.distributions.TransformedDistribution"] = [[
local D = moth.distributions
local squash = {D.TanhTransform(), D.AffineTransform(0, 2)}
local d = D.TransformedDistribution(D.Normal(0, 1), squash)
print(d:log_prob(d:rsample(3)))]],
  ["moth.distributions.ComposeTransform"] = [[
local D = moth.distributions
local t = D.ComposeTransform{D.AffineTransform(0, 2), D.ExpTransform()}
print(t.inv(t(moth.ones(2))))]],
  ["moth.distributions.RelaxedOneHotCategorical"] = [[
local D = moth.distributions
print(D.RelaxedOneHotCategorical(0.5, moth.tensor{1, 2, 5}):rsample())]],
  ["moth.distributions.OneHotCategoricalStraightThrough"] = [[
local D = moth.distributions
print(D.OneHotCategoricalStraightThrough(moth.tensor{1, 2, 5}):rsample())]],
  ["moth.distributions.LogisticNormal"] = [[
local D = moth.distributions
print(D.LogisticNormal(moth.zeros(3), 1):sample())]],
  ["moth.distributions.LowRankMultivariateNormal"] = [[
local D = moth.distributions
print(D.LowRankMultivariateNormal(moth.zeros(3), moth.ones(3, 1), moth.ones(3)):rsample())]],
  ["moth.distributions.LKJCholesky"] = [[
local D = moth.distributions
print(D.LKJCholesky(3, 2):sample())]],
  ["moth.distributions.Wishart"] = [[
local D = moth.distributions
print(D.Wishart(5, moth.eye(2)):sample())]],
  ["moth.distributions.MixtureSameFamily"] = [[
local D = moth.distributions
local weights = D.Categorical(moth.tensor{0.25, 0.75})
local d = D.MixtureSameFamily(weights, D.Normal(moth.tensor{-3, 2}, 1))
print(d:sample(3), d:log_prob(0))]],
  ["moth.distributions.CumulativeDistributionTransform"] = [[
local D = moth.distributions
print(D.CumulativeDistributionTransform(D.Normal(0, 1))(moth.randn(3)))]],
  ["moth.distributions.IndependentTransform"] = [[
local D = moth.distributions
print(D.IndependentTransform(D.ExpTransform(), 1)(moth.randn(3)))]],
  ["moth.distributions.CatTransform"] = [[
local D = moth.distributions
print(D.CatTransform({D.ExpTransform(), D.TanhTransform()}, 1, {2, 1})(moth.randn(3)))]],
  ["moth.distributions.StackTransform"] = [[
local D = moth.distributions
print(D.StackTransform({D.ExpTransform(), D.TanhTransform()})(moth.randn(2, 3)))]],
  ["moth.distributions.LowerCholeskyTransform"] = [[
local D = moth.distributions
print(D.LowerCholeskyTransform()(moth.randn(3, 3)))]],
  ["moth.distributions.PositiveDefiniteTransform"] = [[
local D = moth.distributions
print(D.PositiveDefiniteTransform()(moth.randn(3, 3)))]],
  ["moth.distributions.ReshapeTransform"] = [[
local D = moth.distributions
print(D.ReshapeTransform({2, 3}, {6})(moth.ones(4, 2, 3)))]],
  ["moth.distributions.ExponentialFamily"] = [[
local Waits = nn.class("Waits", moth.distributions.ExponentialFamily)
function Waits:init(rate)
  self.rate = rate
  moth.distributions.ExponentialFamily.init(self, rate.shape)
end
function Waits:_natural_params() return {-self.rate} end
function Waits:_log_normalizer(x) return -(-x):log() end
print(Waits(moth.ones(2)):entropy())]],
  ["moth.distributions.Transform"] = [[
local Cube = nn.class("Cube", moth.distributions.Transform)
function Cube:_call(x) return x ^ 3 end
function Cube:_inverse(y) return y:sign() * y:abs() ^ (1 / 3) end
function Cube:log_abs_det_jacobian(x, y) return (3 * x ^ 2):log() end
print(Cube().inv(Cube()(moth.tensor{1, 2})))]],
  ["nn.ModuleList"] = [[
local layers = nn.ModuleList{nn.Linear(4, 4), nn.Linear(4, 4)}
layers:append(nn.Linear(4, 2))
local x = moth.randn(3, 4)
for i, layer in ipairs(layers) do x = F.relu(layer(x)) end
print(#layers, x.shape)]],
  ["nn.CTCLoss"] = [[
local scores = F.log_softmax(moth.randn(6, 2, 4), 3) -- 6 steps, 2 sequences, 4 classes
local targets = moth.tensor{{2LL, 3LL, 2LL}, {4LL, 2LL, 0LL}}
local loss = nn.CTCLoss()(scores, targets, {6, 5}, {3, 2})]],
  ["nn.TripletMarginWithDistanceLoss"] = [[
local angle = nn.TripletMarginWithDistanceLoss(function(a, b)
  return 1 - F.cosine_similarity(a, b)
end)
local loss = angle(moth.randn(4, 3), moth.randn(4, 3), moth.randn(4, 3))]],
  ["nn.TransformerEncoder"] = [[
local layer = nn.TransformerEncoderLayer(8, 2)
local encoder = nn.TransformerEncoder(layer, 3)
local output = encoder(moth.randn(5, 3, 8), {src_key_padding_mask = moth.zeros(3, 5):bool()})]],
  ["nn.TransformerDecoder"] = [[
local layer = nn.TransformerDecoderLayer(8, 2)
local output = nn.TransformerDecoder(layer, 3)(moth.randn(4, 3, 8), moth.randn(5, 3, 8))]],
  ["nn.TransformerDecoderLayer"] = [[
local layer = nn.TransformerDecoderLayer(8, 2)
local output = layer(moth.randn(4, 3, 8), moth.randn(5, 3, 8))]],
  ["nn.MultiheadAttention"] = [[
local attention = nn.MultiheadAttention(8, 2, {batch_first = true})
local x = moth.randn(3, 5, 8)
local output, weights = attention(x, x, x)]],
  ["moth.callbacks.Callback"] = [[
local Stop = moth.class("Stop", moth.callbacks.Callback)
function Stop:on_epoch_end(run)
  if run.results.loss < 0.1 then run.stop = "the loss is below 0.1" end
end
local callbacks = {Stop()}]],
  ["moth.progress"] = [[
local bar = moth.progress(data.DataLoader(moth.randn(100, 3), 10), {desc = "epoch 1"})
for batch in bar do bar:set_postfix{loss = batch:mean()} end -- or: for batch in bar:iter() do]],
  ["moth.plot.lines"] = [[
local loss = moth.arange(1, 101):float():pow(-0.5)
print(moth.plot.lines(loss))
moth.plot.lines{train = loss, valid = loss + 0.1, title = "Loss"}:save(os.tmpname() .. ".svg")]],
  ["moth.plot.scatter"] = "print(moth.plot.scatter(moth.randn(50), moth.randn(50)))",
  ["moth.plot.hist"] = "print(moth.plot.hist(moth.randn(1000), {bins = 20}))",
  ["moth.plot.heatmap"] = "print(moth.plot.heatmap(moth.randn(8, 12), {title = 'weights'}))",
  ["moth.plot.confusion_matrix"] = [[
local counts = moth.tensor{{9, 1}, {2, 8}}
print(moth.plot.confusion_matrix(counts, {labels = {"cat", "dog"}}))]],
  ["moth.plot.imshow"] = "print(moth.plot.imshow(moth.rand(3, 16, 16)))",
  ["moth.plot.live"] = [[
local live = moth.plot.live{title = "loss", path = os.tmpname() .. ".svg"}
for step = 1, 100 do live:add(step, {train = 1 / step}) end
live:close()]],
  ["moth.utils.tensorboard.SummaryWriter"] = [[
local writer = moth.utils.tensorboard.SummaryWriter(os.tmpname() .. ".run")
writer:add_scalar("loss/train", 0.5, 1)
writer:add_histogram("weights", moth.randn(100), 1)
writer:close()]],
  ["moth.utils.CSVLogger"] = [[
local logger = moth.utils.CSVLogger(os.tmpname() .. ".run")
logger:add_scalar("loss", 0.5, 1)
logger:close()                             -- metrics.csv has a row for step 1]],
  ["moth.utils.JSONLogger"] = [[
local logger = moth.utils.JSONLogger(os.tmpname() .. ".run")
logger:add_scalar("loss", 0.5, 1)
logger:close()                             -- metrics.jsonl has a line for step 1]],
  ["optim.lr_scheduler.LRScheduler"] = [[
local Halves = nn.class("Halves", optim.lr_scheduler.LRScheduler)
function Halves:get_lr()                   -- the rate of each group of parameters
  local rates = {}
  for i, lr in ipairs(self.base_lrs) do rates[i] = lr / 2 ^ self.last_epoch end
  return rates
end
local scheduler = Halves(optim.SGD(nn.Linear(2, 1):parameters(), 0.1))]],
  ["optim.lr_scheduler.SequentialLR"] = [[
local optimizer, schedule = optim.SGD(nn.Linear(2, 1):parameters(), 0.1), optim.lr_scheduler
local warm, main = schedule.LinearLR(optimizer), schedule.ExponentialLR(optimizer, 0.9)
local scheduler = schedule.SequentialLR(optimizer, {warm, main}, {5})]],
  ["optim.lr_scheduler.ChainedScheduler"] = [[
local optimizer, schedule = optim.SGD(nn.Linear(2, 1):parameters(), 0.1), optim.lr_scheduler
local one, two = schedule.LinearLR(optimizer), schedule.ExponentialLR(optimizer, 0.9)
local scheduler = schedule.ChainedScheduler{one, two}]],
}

samples.texts["moth.metrics.MeanAveragePrecision"] = [[
local map, box = moth.metrics.MeanAveragePrecision(), moth.tensor{{1, 1, 5, 5}}
map:update({{boxes = box, scores = moth.ones(1), labels = moth.tensor{1LL}}},
           {{boxes = box, labels = moth.tensor{1LL}}})
local values = map:compute()]]

-- Families whose members differ in the number of dimensions: the input is appended to the example.
local FAMILIES = {
  {"^LazyConv", "(16, 3)", 3}, {"^Lazy", "()", 3},
  {"^Conv%d", "(3, 16, 3)", 3}, {"^ConvTranspose", "(3, 16, 3, {stride = 2})", 3},
  {"^LPPool", "(2, 2)", 3}, {"^FractionalMaxPool", "(2, {output_size = 3})", 3},
  {"^Adaptive", "(2)", 3}, {"Pool%d", "(2)", 3}, {"Pad%d", "(1)", 3},
  {"Norm%dd", "(3)", 3}, {"^Dropout%d", "()", 3}, {"^FeatureAlpha", "()", 3},
}

local function of_family(name)
  local n = tonumber(name:match("(%d)d$"))
  for _, row in ipairs(n and FAMILIES or {}) do
    if name:find(row[1]) then
      return ("nn.%s%s(moth.randn(2, %d%s))"):format(name, row[2], row[3], (", 8"):rep(n))
    end
  end
end

-- The arguments of moth.transforms.NAME(...), to which a picture is passed.
local TRANSFORMS = {
  Compose = "{function(x) return x * 2 end}", RandomApply = "{function(x) return x * 2 end}",
  RandomChoice = "{function(x) return x * 2 end}", RandomOrder = "{function(x) return x * 2 end}",
  Lambda = "function(x) return x * 2 end",
  Resize = "4", CenterCrop = "4", RandomCrop = "8, 2", RandomResizedCrop = "4", FiveCrop = "4",
  TenCrop = "4", Pad = "1, {padding_mode = 'edge'}", RandomHorizontalFlip = "0.5",
  RandomVerticalFlip = "0.5", ToDtype = "moth.uint8, {scale = true}",
  Normalize = "{0.5, 0.4, 0.3}, {0.2, 0.2, 0.2}", ConvertImageDtype = "moth.float64",
  RandomRotation = "30", RandomAffine = "{-20, 20}, {0.1, 0.1}, {0.8, 1.2}, 5",
  RandomPerspective = "0.5, 1", ElasticTransform = "5, 1", Grayscale = "3", RGB = "",
  RandomGrayscale = "0.5", ColorJitter = "0.4, 0.4, 0.4, 0.1", RandomChannelPermutation = "",
  RandomPhotometricDistort = "", RandomInvert = "0.5", RandomPosterize = "3",
  RandomSolarize = "0.5", RandomEqualize = "0.5", RandomAutocontrast = "0.5",
  RandomAdjustSharpness = "2", GaussianBlur = "3, {0.5, 1}", GaussianNoise = "0, 0.05",
  RandomErasing = "1", AutoAugment = "'cifar10'", RandAugment = "2, 9", TrivialAugmentWide = "",
  AugMix = "", RandomResize = "6, 12", RandomShortestSize = "{6, 12}", ScaleJitter = "{16, 16}",
  RandomZoomOut = "0, {1, 2}",
  Identity = "", ToPureTensor = "", ConvertBoundingBoxFormat = "'XYWH'", ClampBoundingBoxes = "",
}

local function of_transform(path, name)
  local arguments = TRANSFORMS[name]
  return arguments and ("%s(%s)(moth.rand(3, 8, 8))"):format(path, arguments)
end

-- Metrics of classification, by their task.
local function of_metric(path, name)
  local first = name:find "FBeta" and "0.5" or nil
  local two = first and first .. ", " or ""
  if name:find "^Binary" then
    return ("%s(%s)(moth.rand(4), moth.tensor{1LL, 0LL, 0LL, 1LL})"):format(path, first or "")
  elseif name:find "^Multiclass" then
    return ("%s(%s3)(moth.rand(2, 3), moth.tensor{1LL, 3LL})"):format(path, two)
  elseif name:find "^Multilabel" then
    return ("%s(%s2)(moth.rand(1, 2), moth.tensor{{1LL, 0LL}})"):format(path, two)
  end
  return path .. '{task = "multiclass", num_classes = 3}(moth.rand(2, 3), moth.tensor{1LL, 3LL})'
end

local function lines()
  local map = {}
  for path, text in LINES:gmatch("(%S+) ([^\n]+)") do map[path] = text end
  return map
end

--- The example that this file defines: one line, or nil and several lines.
function samples.known(path)
  if samples.texts[path] then return nil, samples.texts[path] end
  return lines()[path]
end

--- The example of a class.
-- @param path  its path: "nn.Conv2d"
-- @param sig   its constructor's signature, or nil
-- @return a line, or nil and several lines, or nothing
function samples.of(path, sig)
  local line, text = samples.known(path)
  if line or text then return line, text end
  local space, name = path:match("^(.*)%.([%w_]+)$")
  if space == "moth.transforms" then return of_transform(path, name) end
  if space == "moth.metrics" then return of_metric(path, name) end
  if SCHEDULES[name] and space == "optim.lr_scheduler" then
    local more = SCHEDULES[name] ~= "" and ", " .. SCHEDULES[name] or ""
    return ("%s(optim.SGD(nn.Linear(2, 1):parameters(), 0.1)%s)"):format(path, more)
  end
  if space == "optim" then return path .. "(nn.Linear(2, 1):parameters(), {lr = 0.01})" end
  if space ~= "nn" then return nil end
  local line_of_family = of_family(name)
  if line_of_family then return line_of_family end
  for _, arg in ipairs(sig and sig.args or {}) do
    if arg.required then return nil end
  end
  if name:find("Loss$") then return path .. "()(moth.rand(4, 3), moth.rand(4, 3))" end
  return path .. "()(moth.randn(2, 3))"
end

return samples
