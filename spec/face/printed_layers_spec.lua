-- What layers print: each argument that differs from its default, as in PyTorch.

local moth = require "moth"

local nn = moth.nn

-- code, its text
local ROWS = {
  {"nn.Linear(2, 3)", "Linear(in_features=2, out_features=3, bias=true)"},
  {"nn.Linear(2, 3, false)", "Linear(in_features=2, out_features=3, bias=false)"},
  {"nn.Bilinear(2, 3, 4)", "Bilinear(in1_features=2, in2_features=3, out_features=4, bias=true)"},
  {"nn.Bilinear(2, 3, 4, false)",
    "Bilinear(in1_features=2, in2_features=3, out_features=4, bias=false)"},
  {"nn.Identity()", "Identity()"},
  {"nn.Conv1d(2, 4, 3)", "Conv1d(2, 4, kernel_size=(3), stride=(1))"},
  {[[nn.Conv1d(2, 4, 3, {stride = 2, padding = 1, dilation = 2, groups = 2, ]]
    .. [[bias = false, padding_mode = "reflect"})]],
    "Conv1d(2, 4, kernel_size=(3), stride=(2), padding=(1), dilation=(2), groups=2, "
      .. "bias=false, padding_mode=reflect)"},
  {[[nn.Conv2d(2, 4, {3, 2}, {padding = "same"})]],
    "Conv2d(2, 4, kernel_size=(3, 2), stride=(1, 1), padding=same)"},
  {"nn.ConvTranspose2d(2, 4, 3, {stride = 2, output_padding = 1, padding = 1})",
    "ConvTranspose2d(2, 4, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), "
      .. "output_padding=(1, 1))"},
  {"nn.ConvTranspose1d(2, 4, 3, {groups = 2, dilation = 3, bias = false})",
    "ConvTranspose1d(2, 4, kernel_size=(3), stride=(1), dilation=(3), groups=2, bias=false)"},
  {"nn.MaxPool1d(2)", "MaxPool1d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=false)"},
  {"nn.MaxPool2d(2, {stride = 1, padding = 1, dilation = 2, ceil_mode = true})",
    "MaxPool2d(kernel_size=2, stride=1, padding=1, dilation=2, ceil_mode=true)"},
  {"nn.AvgPool2d({3, 2}, {stride = 2, padding = 1})",
    "AvgPool2d(kernel_size=(3, 2), stride=2, padding=1)"},
  {"nn.AvgPool1d(3)", "AvgPool1d(kernel_size=3, stride=3, padding=0)"},
  {"nn.AdaptiveAvgPool2d({2, 3})", "AdaptiveAvgPool2d(output_size=(2, 3))"},
  {"nn.AdaptiveAvgPool2d({2, moth.none})", "AdaptiveAvgPool2d(output_size=(2, none))"},
  {"nn.AdaptiveMaxPool1d(2)", "AdaptiveMaxPool1d(output_size=2)"},
  {"nn.LPPool1d(2, 3)", "LPPool1d(norm_type=2, kernel_size=3, stride=3, ceil_mode=false)"},
  {"nn.MaxUnpool1d(2)", "MaxUnpool1d(kernel_size=2, stride=2, padding=0)"},
  {"nn.MaxUnpool2d({2, 3}, 1, 1)", "MaxUnpool2d(kernel_size=(2, 3), stride=1, padding=1)"},
  {"nn.FractionalMaxPool2d(2, {output_size = 3})",
    "FractionalMaxPool2d(kernel_size=(2, 2), output_size=(3, 3))"},
  {"nn.FractionalMaxPool2d(2, {output_ratio = 0.5})",
    "FractionalMaxPool2d(kernel_size=(2, 2), output_size=none)"},
  {"nn.Fold(3, 2)", "Fold(output_size=3, kernel_size=2, dilation=1, padding=0, stride=1)"},
  {"nn.Unfold(2, {dilation = 2, padding = 1, stride = 3})",
    "Unfold(kernel_size=2, dilation=2, padding=1, stride=3)"},
  {"nn.BatchNorm1d(3)",
    "BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=true, track_running_stats=true)"},
  {"nn.BatchNorm2d(3, {eps = 0.01, momentum = 0.5, affine = false, track_running_stats = false})",
    "BatchNorm2d(3, eps=0.01, momentum=0.5, affine=false, track_running_stats=false)"},
  {"nn.InstanceNorm1d(3)",
    "InstanceNorm1d(3, eps=1e-05, momentum=0.1, affine=false, track_running_stats=false)"},
  {"nn.LayerNorm({2, 3})", "LayerNorm((2, 3), eps=1e-05, elementwise_affine=true)"},
  {"nn.LayerNorm(3, {eps = 0.1, elementwise_affine = false})",
    "LayerNorm((3), eps=0.1, elementwise_affine=false)"},
  {"nn.LayerNorm(3, {bias = false})", "LayerNorm((3), eps=1e-05, elementwise_affine=true)"},
  {"nn.RMSNorm({2, 3}, {eps = 0.1, elementwise_affine = false})",
    "RMSNorm((2, 3), eps=0.1, elementwise_affine=false)"},
  {"nn.GroupNorm(2, 4)", "GroupNorm(2, 4, eps=1e-05, affine=true)"},
  {"nn.GroupNorm(2, 4, {eps = 0.1, affine = false})", "GroupNorm(2, 4, eps=0.1, affine=false)"},
  {"nn.LocalResponseNorm(2)", "LocalResponseNorm(2, alpha=0.0001, beta=0.75, k=1)"},
  {"nn.SyncBatchNorm(2)",
    "SyncBatchNorm(2, eps=1e-05, momentum=0.1, affine=true, track_running_stats=true)"},
  {"nn.Embedding(5, 3)", "Embedding(5, 3)"},
  {"nn.Embedding(5, 3, {padding_idx = 2, max_norm = 2, norm_type = 1, "
    .. "scale_grad_by_freq = true, sparse = true})",
    "Embedding(5, 3, padding_idx=2, max_norm=2, norm_type=1, "
      .. "scale_grad_by_freq=true, sparse=true)"},
  {"nn.EmbeddingBag(5, 3)", "EmbeddingBag(5, 3, mode='mean')"},
  {[[nn.EmbeddingBag(5, 3, {padding_idx = 2, max_norm = 2, norm_type = 1, ]]
    .. [[scale_grad_by_freq = true, mode = "sum"})]],
    "EmbeddingBag(5, 3, max_norm=2, norm_type=1, scale_grad_by_freq=true, "
      .. "mode='sum', padding_idx=2)"},
  {"nn.EmbeddingBag(5, 3, {sparse = true})", "EmbeddingBag(5, 3, sparse=true, mode='mean')"},
  {"nn.RNN(2, 3)", "RNN(2, 3)"},
  {[[nn.RNN(2, 3, {nonlinearity = "relu"})]], "RNN(2, 3)"},
  {"nn.LSTM(2, 3, {num_layers = 2, bias = false, batch_first = true, "
    .. "dropout = 0.25, bidirectional = true, proj_size = 2})",
    "LSTM(2, 3, num_layers=2, bias=false, batch_first=true, dropout=0.25, "
      .. "bidirectional=true, proj_size=2)"},
  {"nn.GRU(2, 3, 2)", "GRU(2, 3, num_layers=2)"},
  {"nn.RNNCell(2, 3)", "RNNCell(2, 3)"},
  {[[nn.RNNCell(2, 3, false, "relu")]], "RNNCell(2, 3, bias=false, nonlinearity=relu)"},
  {"nn.LSTMCell(2, 3)", "LSTMCell(2, 3)"},
  {"nn.GRUCell(2, 3, false)", "GRUCell(2, 3, bias=false)"},
  {"nn.Dropout()", "Dropout(p=0.5, inplace=false)"},
  {"nn.Dropout(0.25, true)", "Dropout(p=0.25, inplace=true)"},
  {"nn.Dropout1d(0.3)", "Dropout1d(p=0.3, inplace=false)"},
  {"nn.AlphaDropout(0.1)", "AlphaDropout(p=0.1, inplace=false)"},
  {"nn.FeatureAlphaDropout(0.1)", "FeatureAlphaDropout(p=0.1, inplace=false)"},
  {"nn.ReLU()", "ReLU()"},
  {"nn.ReLU(true)", "ReLU(inplace=true)"},
  {"nn.RReLU()", "RReLU(lower=0.125, upper=0.333333)"},
  {"nn.RReLU(0.1, 0.5)", "RReLU(lower=0.1, upper=0.5)"},
  {"nn.LeakyReLU(0.2)", "LeakyReLU(negative_slope=0.2)"},
  {"nn.LeakyReLU(0.2, true)", "LeakyReLU(negative_slope=0.2, inplace=true)"},
  {"nn.PReLU(3)", "PReLU(num_parameters=3)"},
  {"nn.ELU(2)", "ELU(alpha=2)"},
  {"nn.CELU(2)", "CELU(alpha=2)"},
  {"nn.SELU()", "SELU()"},
  {"nn.GELU()", "GELU(approximate='none')"},
  {[[nn.GELU("tanh")]], "GELU(approximate='tanh')"},
  {"nn.Hardtanh(-2, 3)", "Hardtanh(min_val=-2, max_val=3)"},
  {"nn.Softplus(2, 10)", "Softplus(beta=2, threshold=10)"},
  {"nn.Threshold(0.1, 20)", "Threshold(threshold=0.1, value=20)"},
  {"nn.Softmax(2)", "Softmax(dim=2)"},
  {"nn.LogSoftmax(1)", "LogSoftmax(dim=1)"},
  {"nn.GLU(2)", "GLU(dim=2)"},
  {"nn.Hardshrink(0.2)", "Hardshrink(lambd=0.2)"},
  {"nn.Softshrink(0.2)", "Softshrink(lambd=0.2)"},
  {"nn.Softmin(2)", "Softmin(dim=2)"},
  {"nn.Softmax2d()", "Softmax2d()"},
  {"nn.Tanh()", "Tanh()"},
  {"nn.Flatten()", "Flatten(start_dim=2, end_dim=-1)"},
  {"nn.Flatten(2, 3)", "Flatten(start_dim=2, end_dim=3)"},
  {"nn.Unflatten(2, {2, -1})", "Unflatten(dim=2, unflattened_size=(2, -1))"},
  {"nn.Upsample({scale_factor = 2})", "Upsample(scale_factor=2, mode='nearest')"},
  {[[nn.Upsample({size = {3, 4}, mode = "bilinear"})]], "Upsample(size=(3, 4), mode='bilinear')"},
  {"nn.UpsamplingNearest2d({size = 4})", "UpsamplingNearest2d(size=4, mode='nearest')"},
  {"nn.PixelShuffle(2)", "PixelShuffle(upscale_factor=2)"},
  {"nn.PixelUnshuffle(2)", "PixelUnshuffle(downscale_factor=2)"},
  {"nn.ChannelShuffle(2)", "ChannelShuffle(groups=2)"},
  {"nn.ZeroPad2d(1)", "ZeroPad2d((1, 1, 1, 1))"},
  {"nn.ConstantPad1d({1, 2}, 0.5)", "ConstantPad1d(padding=(1, 2), value=0.5)"},
  {"nn.ReflectionPad2d({1, 2, 3, 4})", "ReflectionPad2d((1, 2, 3, 4))"},
  {"nn.ReplicationPad3d(1)", "ReplicationPad3d((1, 1, 1, 1, 1, 1))"},
  {"nn.CircularPad1d(2)", "CircularPad1d((2, 2))"},
  {"nn.CosineSimilarity(2, 0.1)", "CosineSimilarity()"},
  {"nn.PairwiseDistance(1)", "PairwiseDistance()"},
  {"nn.CrossEntropyLoss()", "CrossEntropyLoss()"},
  {[[nn.MSELoss({reduction = "sum"})]], "MSELoss()"},
  {"nn.LazyLinear(3)", "LazyLinear(in_features=0, out_features=3)"},
  {"nn.LazyLinear(3, {bias = false})", "LazyLinear(in_features=0, out_features=3, bias=false)"},
  {"nn.LazyConv2d(4, 3, {stride = 2})",
    "LazyConv2d(in_channels=0, out_channels=4, kernel_size=3, stride=2)"},
  {"nn.LazyBatchNorm1d({eps = 0.1})", "LazyBatchNorm1d(num_features=0, eps=0.1)"},
  {"nn.Sequential(nn.Linear(1, 2), nn.ReLU())",
    [[Sequential(
  (1): Linear(in_features=1, out_features=2, bias=true)
  (2): ReLU()
)]]},
  {"nn.ModuleList {nn.Identity(), nn.Tanh()}", [[ModuleList(
  (1): Identity()
  (2): Tanh()
)]]},
  {"nn.ModuleDict {b = nn.Tanh(), a = nn.Identity()}",
    [[ModuleDict(
  (a): Identity()
  (b): Tanh()
)]]},
  {"nn.ParameterList {moth.zeros(2), moth.zeros(1, 3)}",
    [[ParameterList(
  (1): Parameter f32 (2)
  (2): Parameter f32 (1, 3)
)]]},
  {"nn.ParameterDict {b = moth.zeros(2), a = moth.zeros(1)}",
    [[ParameterDict(
  (a): Parameter f32 (1)
  (b): Parameter f32 (2)
)]]},
  {"nn.ParameterList()", "ParameterList()"},
  {"nn.ModuleList()", "ModuleList()"},
  {"nn.MultiheadAttention(4, 2)",
    [[MultiheadAttention(
  (out_proj): Linear(in_features=4, out_features=4, bias=true)
)]]},
  {"nn.TransformerEncoderLayer(4, 2, 8)",
    [[TransformerEncoderLayer(
  (self_attn): MultiheadAttention(
    (out_proj): Linear(in_features=4, out_features=4, bias=true)
  )
  (linear1): Linear(in_features=4, out_features=8, bias=true)
  (dropout): Dropout(p=0.1, inplace=false)
  (linear2): Linear(in_features=8, out_features=4, bias=true)
  (norm1): LayerNorm((4), eps=1e-05, elementwise_affine=true)
  (norm2): LayerNorm((4), eps=1e-05, elementwise_affine=true)
  (dropout1): Dropout(p=0.1, inplace=false)
  (dropout2): Dropout(p=0.1, inplace=false)
)]]},
  {"nn.AdaptiveLogSoftmaxWithLoss(4, 6, {2})",
    [[AdaptiveLogSoftmaxWithLoss(
  (head): Linear(in_features=4, out_features=3, bias=false)
  (tail): ModuleList(
    (1): Sequential(
      (1): Linear(in_features=4, out_features=1, bias=false)
      (2): Linear(in_features=1, out_features=4, bias=false)
    )
  )
)]]},
  {"nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2))",
    [[Linear(
  in_features=2, out_features=2, bias=true
  (parametrizations): ModuleDict(
    (weight): ParametrizationList(
      (1): SpectralNorm(n_power_iterations=1, eps=1e-12, dim=1)
    )
  )
)]]},
  {"nn.utils.parametrizations.orthogonal(nn.Linear(2, 2))",
    [[Linear(
  in_features=2, out_features=2, bias=true
  (parametrizations): ModuleDict(
    (weight): ParametrizationList(
      (1): _Orthogonal(orthogonal_map=matrix_exp)
    )
  )
)]]},
  {"nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))",
    [[Linear(
  in_features=2, out_features=2, bias=true
  (parametrizations): ModuleDict(
    (weight): ParametrizationList(
      (1): WeightNorm(dim=1)
    )
  )
)]]},
}

describe("a layer prints its arguments:", function()
  for _, row in ipairs(ROWS) do
    it(row[1], function()
      local code = assert(loadstring("local moth, nn = ... return " .. row[1]))
      assert.equal(row[2], tostring(code(moth, nn)))
    end)
  end
end)
