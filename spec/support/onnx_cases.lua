-- Nets to export: in spec/io/onnx_spec.lua, and manually in spec/golden/check_onnx.py, which runs
-- them in onnxruntime. A case is {name, net or function, list of arguments, options of export}.

local moth = require "moth"
local nn, F = moth.nn, moth.nn.functional

moth.manual_seed(7)
local R = moth.randn
local cases = {}

local function case(name, net, args, options)
  cases[#cases + 1] = { name, net, args, options or { opset_version = 17 } }
end
local BATCH = { dynamic_axes = { input = { "batch" } } }
local function batch(name, net, args) case(name, net, args, BATCH) end

-- ---- elements: each op alone ----

local function each(names, make, ...)
  for name in names:gmatch "%S+" do
    local args = { ... }
    case(name, function(...) return make(name)(...) end, args)
  end
end
local function op(name) return moth[name] end

each("abs acos asin asinh atan ceil cos cosh erf erfc exp exp2 expm1 floor frac neg relu round "
  .. "sigmoid sign sin sinh square tan tanh trunc deg2rad rad2deg isnan isinf isfinite isposinf "
  .. "isneginf atanh nan_to_num logical_not angle", op, moth.rand(3, 4) * 1.8 - 0.9)
each("log log1p log2 log10 sqrt rsqrt reciprocal logit", op, moth.rand(3, 4) * 0.9 + 0.05)
each("acosh", op, moth.rand(3, 4) + 1.5)
each("celu elu relu6 hardtanh leaky_relu hardsigmoid hardswish silu mish logsigmoid tanhshrink "
  .. "softsign softshrink hardshrink softplus gelu selu", function(name)
  return F[name]
end, R(3, 4) * 4)
each("add sub mul div maximum minimum remainder fmod hypot logaddexp logaddexp2 eq ne gt ge lt le "
  .. "logical_and logical_or logical_xor floor_divide", op, R(3, 4), R(4))
local ints = { moth.tensor { { 7LL, -7LL, 3LL } }, moth.tensor { { 2LL }, { -3LL } } }
each("add sub mul div remainder fmod floor_divide eq gt", op, unpack(ints))
case("bits", function(i, j) return i:bitwise_and(j), i:bitwise_or(j), i:bitwise_xor(j),
  i:bitwise_not(), i:gt(j):bitwise_and(j:gt(0)) end, ints, { opset_version = 18 })
case("numbers", function(x) return (x * 2 + 1) / 3 - x ^ 2, 1 - x, 2 ^ x, x:gt(0.5), x % 2 end,
  { R(2, 3) })
case("integers and numbers", function(i) return i + 2, i * 0.5, i:lt(2.5), i / 2, -i end,
  { moth.arange(5) })
case("mixed dtypes", function(x, i, b) return x + i, i * b, x:where(b, 0), x:eq(i) end,
  { R(3), moth.arange(3), moth.tensor { true, false, true } })
case("powers", function(x) return x:pow(2), x:pow(0.5), moth.pow(x, x) end, { moth.rand(3, 2) })
case("scaled", function(x, y) return moth.add(x, y, { alpha = 2 }), moth.sub(x, y, { alpha = 0.5 }),
  x:addcmul(x, y, { value = 3 }), x:lerp(y, 0.25) end, { R(2, 3), R(2, 3) })
case("clamps", function(x) return x:clamp(-0.5, 0.5), x:clamp { min = 0 }, x:clamp { max = 0 } end,
  { R(3, 4) })
case("where", function(x, y) return moth.where(x:gt(y), x, y), moth.where(x:gt(0), 1, 0),
  x:masked_fill(y:gt(0), -1) end, { R(3, 4), R(3, 4) })
case("casts", function(x) return x:long(), x:double(), x:gt(0):float(), x:bool(), x:int() end,
  { R(3, 4) * 5 })
case("gelu of tanh", function(x) return F.gelu(x, { approximate = "tanh" }) end, { R(3, 4) })
case("gelu of opset 20", nn.GELU(), { R(3, 4) }, { opset_version = 20 })
case("prelu", nn.PReLU(3), { R(2, 3, 4) })
case("glu", nn.GLU(), { R(2, 6) })
case("rounded", function(x) return x:div(2, { rounding_mode = "floor" }),
  x:div(2, { rounding_mode = "trunc" }), x:round { decimals = 1 } end, { R(3, 4) * 5 })
case("softmaxes", function(x) return x:softmax(2), x:log_softmax(1), F.softmin(x, 2) end,
  { R(3, 4) })
case("threshold", function(x) return F.threshold(x, 0.1, 20), F.softplus(x, 2, 1) end, { R(3, 4) })

-- ---- shapes ----

batch("views", function(x)
  return x:view(-1, 12), x:reshape(x:size(1), 2, -1), x:flatten(2), x:unsqueeze(2):squeeze(2),
    x:view(x:size(1), 3, 2, 2), x:view(x:size(1) * 3, 4)
end, { R(2, 3, 4) })
batch("turns", function(x)
  return x:permute(3, 1, 2), x:transpose(2, 3), x:movedim(1, 3), x:movedim({ 1, 2 }, { 3, 1 }),
    x:transpose(-1, 1)
end, { R(2, 3, 4) })
batch("parts", function(x)
  local a, b = unpack(x:split(2, 3))
  local c, d = unpack(x:chunk(2, 3))
  return x[{ {}, 2 }], x[{ {}, { 2, 3 } }], x[{ {}, {}, { 1, 4, 2 } }], a, b, c + d,
    x:select(3, -1), x:narrow(2, 1, 2), x[{ {}, -1 }], unpack(x:unbind(2))
end, { R(2, 3, 4) })
case("expanded", function(x) return x:expand(4, -1, 3), x:tile(2, 2), x:tile(2, 1, 1, 2) end,
  { R(1, 2, 3) })
batch("joined", function(x) return moth.cat({ x, x * 2 }, 2), moth.stack({ x, -x }, 2),
  moth.cat({ x, moth.zeros(x:size(1), 1) }, 2) end, { R(2, 3) })
batch("broadcast to the batch", function(x)
  return x + moth.ones(x:size(1), 1), moth.zeros(1, 3):expand(x:size(1), 3) + x,
    moth.arange(x:size(1)):view(-1, 1) * x
end, { R(2, 3) })
case("two axes", function(x)
  return x:reshape(x:size(1) * x:size(2), 4), x:view(x:size(1), x:size(2), 2, 2):transpose(2, 3),
    x + moth.arange(x:size(2)):view(1, -1, 1), x[{ {}, -1 }], x * (1 / 3)
end, { R(2, 3, 4) }, { input_names = { "x" }, dynamic_axes = { x = { "batch", "time" } },
                       output_names = { "a", "b", "c", "d", "e" } })
case("flipped", function(x) return x:flip { 1, 2 }, x:tril(), x:triu(1) end, { R(3, 4) })
each("constant reflect replicate", function(mode)
  return function(x) return F.pad(x, { 1, 2, 0, 1 }, { mode = mode }) end
end, R(1, 2, 4, 5))
case("circular", function(x) return F.pad(x, { 1, 2 }, { mode = "circular" }) end, { R(1, 2, 4) },
  { opset_version = 19 })
case("picked", function(x, i)
  return x:index_select(2, i), x:gather(2, i:view(1, -1):expand(3, 2)), x[{ {}, i }], x[{ i, i }],
    x:index_select(1, { 3, 1 }), x:take(i)
end, { R(3, 4), moth.tensor { 3LL, 1LL } })
case("scattered", function(x, i)
  return x:scatter(2, i, x[{ {}, { 1, 2 } }]), x:scatter_add(2, i, x[{ {}, { 1, 2 } }]),
    F.one_hot(i, 4)
end, { R(3, 4), moth.tensor { { 3LL, 1LL }, { 2LL, 1LL }, { 4LL, 2LL } } })
case("masked select", function(x) return x:masked_select(x:gt(0)) end, { R(3, 4) })

-- ---- reductions ----

for _, opset in ipairs { 17, 18, 21 } do
  case("reductions of opset " .. opset, function(x)
    return x:sum(), x:sum(2), x:mean(1), x:mean { 1, keepdim = true }, x:amax(2), x:amin(2),
      x:prod(1), x:logsumexp(2), x:var(2), x:std(), x:norm(), x:norm(1, 2), x:max(), (x:max(2)),
      x:any(2), x:all(), x:sum { 1, 2 }, x:std(2, { unbiased = false })
  end, { R(3, 4) }, { opset_version = opset })
end
case("positions", function(x)
  local v, i = x:max(2)
  local w, j = x:min(1)
  local t, k = x:topk(2)
  local s, m = x:sort(2, true)
  return x:argmax(2), x:argmax(), x:argmin(1), v, i, w, j, t, k, s, m, x:argsort(1), x:cumsum(2)
end, { R(3, 4) })
case("normalize", function(x) return F.normalize(x), F.normalize(x, 1, 1) end, { R(3, 4) })

-- ---- layers ----

batch("linear", nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, false)), { R(5, 3) })
batch("linear of 3d", nn.Linear(3, 4), { R(5, 2, 3) })
case("linear of a vector", nn.Linear(3, 4), { R(3) })
case("bilinear products", function(x, y) return x:matmul(y), x:bmm(y), x[1]:mm(y[1]),
  moth.addmm(x[1][{ {}, { 1, 3 } }], x[1], y[1]), moth.baddbmm(moth.ones(1), x, y, { alpha = 2 }),
  x[1][1]:dot(y[1][{ {}, 1 }]), moth.outer(x[1][1], x[1][2]) end, { R(2, 3, 4), R(2, 4, 3) })
case("einsum", function(x, y) return moth.einsum("bij,bjk->bik", x, y), moth.einsum("ij,kj->ik",
  x[1], y[1]:t()) end, { R(2, 3, 4), R(2, 4, 3) })
batch("conv1d", nn.Conv1d(2, 4, 3, { padding = 1, dilation = 2, groups = 2 }), { R(2, 2, 9) })
batch("conv2d", nn.Conv2d(3, 4, { 3, 2 }, { stride = { 2, 1 }, padding = { 1, 0 } }),
  { R(2, 3, 8, 9) })
case("conv2d same", nn.Conv2d(3, 4, 4, { padding = "same" }), { R(3, 8, 9) })
case("conv3d", nn.Conv3d(2, 3, 2, { padding = 1 }), { R(1, 2, 4, 5, 4) })
batch("conv_transpose2d",
  nn.ConvTranspose2d(3, 4, 3, { stride = 2, padding = 1, output_padding = 1 }), { R(2, 3, 5, 4) })
case("conv_transpose1d", nn.ConvTranspose1d(4, 4, 3, { groups = 2 }), { R(2, 4, 5) })
case("conv padded by reflection", nn.Conv2d(2, 2, 3, { padding = 1, padding_mode = "reflect" }),
  { R(1, 2, 5, 5) })
batch("pools", function(x)
  return F.max_pool2d(x, 2), F.max_pool2d(x, 3, { stride = 2, padding = 1, dilation = 1 }),
    F.avg_pool2d(x, 3, { stride = 2, padding = 1 }), F.adaptive_avg_pool2d(x, 1),
    F.avg_pool2d(x, 2, { padding = 1, count_include_pad = false }),
    F.adaptive_avg_pool2d(x, { 4, 2 }), F.adaptive_max_pool2d(x, 2),
    F.max_pool2d(x, 3, { stride = 2, ceil_mode = true })
end, { R(2, 3, 8, 8) })
case("pools of 1 and 3 dimensions", function(x, y) return F.max_pool1d(x, 2), F.avg_pool1d(x, 3),
  F.max_pool3d(y, 2), F.avg_pool3d(y, 2), F.adaptive_avg_pool1d(x, 1),
  F.adaptive_avg_pool3d(y, 1) end, { R(2, 3, 8), R(1, 2, 4, 4, 4) })
case("lp_pool", nn.LPPool2d(2, 2), { moth.rand(1, 2, 4, 4) })
local bn = nn.BatchNorm2d(3)
bn(R(4, 3, 5, 5) * 2 + 1)
batch("batch_norm", bn, { R(2, 3, 4, 4) })
batch("conv, norm and relu", nn.Sequential(nn.Conv2d(3, 3, 1), bn, nn.ReLU { inplace = true }),
  { R(2, 3, 4, 4) })
case("batch_norm of rows", nn.BatchNorm1d(3), { R(2, 3) })
batch("norms", nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, { affine = true }),
  nn.LayerNorm({ 3, 3 }), nn.RMSNorm(3)), { R(2, 4, 3, 3) })
case("layer_norm without weights", nn.LayerNorm({ 4 }, { elementwise_affine = false }), { R(2, 4) })
case("embedding", nn.Embedding(6, 3), { moth.tensor { { 1LL, 6LL }, { 2LL, 2LL } } },
  { dynamic_axes = { input = { "batch", "time" } } })
local tokens = moth.tensor { { 1LL, 6LL, 2LL }, { 2LL, 2LL, 5LL } }
for _, mode in ipairs { "sum", "mean", "max" } do
  case("embedding_bag of rows, " .. mode, nn.EmbeddingBag(6, 3, { mode = mode, padding_idx = 2 }),
    { tokens }, { dynamic_axes = { input = { "batch", "time" } } })
  local weight, offsets = R(6, 3), moth.tensor { 0LL, 2LL, 2LL }
  case("embedding_bag of a list, " .. mode, function(x)
    return F.embedding_bag(x, weight, offsets, { mode = mode, padding_idx = 5 })
  end, { tokens:flatten() }, { opset_version = 18 })
end
case("embedding_bag with weights", function(x, w)
  return F.embedding_bag(x, w.new_tensor(w, { { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 }, { 9, 0 },
    { 1, 1 } }), { mode = "sum", per_sample_weights = w })
end, { tokens, moth.rand(2, 3) })
case("distances", function(x, y)
  return moth.cdist(x, y), moth.cdist(x, y, { p = 1 }), moth.cdist(x, y, { p = 3 }), F.pdist(x),
    F.pdist(x, 1)
end, { R(4, 3), R(5, 3) })
case("distances of a batch", function(x) return moth.cdist(x, x:tanh() * 2) end, { R(2, 4, 3) },
  { dynamic_axes = { input = { "batch", "rows" } } })
case("triangles", function(x)
  return x * moth.tril_indices(3, 4).shape[1], moth.triu_indices(3, 4) + x:long():sum()
end, { R(2, 3) })
case("dropout", nn.Sequential(nn.Dropout(0.5), nn.Dropout2d(0.5)), { R(2, 3, 4, 4) })
for _, mode in ipairs { "nearest", "bilinear", "bicubic", "nearest-exact" } do
  batch("upsample " .. mode, function(x)
    return F.interpolate(x, { scale_factor = 2, mode = mode }), F.interpolate(x, { size = { 3, 7 },
      mode = mode })
  end, { R(2, 3, 4, 5) })
end
case("upsample with corners",
  nn.Upsample { scale_factor = 2, mode = "bilinear", align_corners = true }, { R(1, 2, 3, 4) })
case("pixel_shuffle", function(x) return F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2) end,
  { R(1, 4, 4, 4) })
for _, mode in ipairs { "bilinear", "nearest", "bicubic" } do
  case("grid_sample " .. mode, function(x, grid)
    return F.grid_sample(x, grid, { mode = mode, padding_mode = "border", align_corners = true })
  end, { R(1, 2, 4, 5), moth.rand(1, 3, 3, 2) * 2 - 1 })
end
case("grid_sample of opset 20", function(x, grid) return F.grid_sample(x, grid) end,
  { R(1, 2, 4, 5), moth.rand(1, 3, 3, 2) * 2 - 1 }, { opset_version = 20 })

-- ---- attention, recurrent nets ----

batch("attention", function(x)
  local attend, mask = F.scaled_dot_product_attention, moth.ones(5, 5):tril():bool()
  return attend(x, x, x), attend(x, x, x, { is_causal = true }),
    attend(x, x, x, { attn_mask = mask, scale = 0.5 })
end, { R(2, 2, 5, 4) })
case("causal attention of any length", function(x)
  return F.scaled_dot_product_attention(x, x, x, { is_causal = true })
end, { R(2, 2, 5, 4) }, { dynamic_axes = { input = { [3] = "time" } } })
batch("multi-head attention", nn.MultiheadAttention(4, 2, { batch_first = true }), { R(2, 3, 4) })
cases[#cases][2] = (function(attention) -- its second result: weights
  attention:eval()
  return function(x) return attention(x, x, x) end
end)(cases[#cases][2])
case("transformer encoder", nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2,
  { dim_feedforward = 16, batch_first = true }), 2), { R(2, 3, 8) },
  { dynamic_axes = { input = { "batch", "time" } } })
case("transformer", nn.Transformer(8, 2, 1, 1, 16), { R(3, 2, 8), R(4, 2, 8) })
for _, kind in ipairs { "LSTM", "GRU", "RNN" } do
  batch(kind, nn[kind](3, 4, { batch_first = true }), { R(2, 5, 3) })
  case(kind .. " of two layers and ways", nn[kind](3, 4, { num_layers = 2, bidirectional = true }),
    { R(5, 2, 3) }, { dynamic_axes = { input = { "time", "batch" } } })
end
case("lstm with a state", nn.LSTM(3, 4), { R(5, 2, 3), { R(1, 2, 4), R(1, 2, 4) } })
case("rnn of relu", nn.RNN(3, 4, { nonlinearity = "relu", bias = false }), { R(5, 2, 3) })
local lstm, gru, rnn = nn.LSTMCell(3, 4), nn.GRUCell(3, 4), nn.RNNCell(3, 4)
case("cells", function(x, h, c)
  local h1, c1 = lstm(x, { h, c })
  return h1, c1, gru(x, h), rnn(x, h)
end, { R(2, 3), R(2, 4), R(2, 4) })

-- ---- positions, writes ----

local function L(t) return moth.tensor(t, { dtype = moth.int64 }) end
local OPSET18 = { opset_version = 18 }
local rows = L { { 1 }, { 2 }, { 3 } }
case("positions of the net's own", function(x)
  return x:gather(2, rows), x:scatter(2, rows, 9), x:scatter_add(2, rows, moth.ones(3, 1)),
    x:index_select(2, { 1, 3 }), x:take(L { 12, 1 }), moth.take_along_dim(x, x:argsort(2), 2),
    x:gather(2, moth.tensor { { 3, 1, 2 }, { 1, 3, 2 }, { 2, 3, 1 } }:argsort(2)),
    x:gather(2, moth.range(1, 3):long():view(3, 1)), x[{ rows:view(-1), L { 2, 2, 4 } }]
end, { R(3, 4) })
case("parts of a source", function(x) return x:scatter_add(1, rows, moth.ones(5, 5)),
  x:scatter(1, rows, moth.ones(4, 4)) end, { R(3, 5) })
case("scatter_reduce", function(x)
  local ones = moth.ones(3, 2)
  return x:scatter_reduce(2, rows, ones, "sum"), x:scatter_reduce(2, rows, ones, "mean"),
    x:scatter_reduce(2, rows, ones, "mean", { include_self = false }),
    x:scatter_reduce(2, rows, ones * 2, "prod"), x:scatter_reduce(2, rows, ones, "amin"),
    x:scatter_reduce(2, rows, ones * 2, "amax", { include_self = false }),
    x:long():scatter_reduce(2, rows, L { { 9 }, { 9 }, { 9 } }, "amin", { include_self = false })
end, { R(3, 4) }, OPSET18)
case("index_add and its relatives", function(x)
  return x:index_add(1, { 1, 3 }, moth.ones(2, 4), { alpha = 2 }), x:index_fill(1, { 1, 3 }, 5),
    x:index_copy(2, { 4, 1 }, moth.ones(3, 2)),
    x:index_reduce(1, L { 1, 3 }, x[{ { 1, 2 } }], "amax"),
    x:index_put({ L { 1, 1 }, L { 2, 2 } }, moth.ones(2), true), x:index_put({ L { 2, 1 } }, x[1])
end, { R(3, 4) }, OPSET18)
case("assignments", function(x)
  local y = x * 1
  y[{ 1 }] = 0
  y[{ {}, { 2, 3 } }] = x[{ {}, { 1, 2 } }]
  y[{ {}, L { 1, 2 } }] = 4
  y[x:gt(0)] = 3
  y[x[{ {}, 1 }]:gt(0)] = moth.tensor { 1, 2, 3, 4 }
  local z = moth.zeros(3, 4)
  z[{ 1 }] = 5
  local row = z[{ 2 }]
  z[{ {}, 2 }] = x[{ {}, 1 }]
  return y, z, row * 2, z[{ 1 }] + 1
end, { R(3, 4) })
batch("writes through views", function(x)
  local y = x * 2
  local flat, part = y:view(-1), y[{ {}, { 2, 3 } }]
  flat[{ 1 }] = 7
  part:add_(1)
  y:transpose(1, 2)[{ 1 }]:mul_(3)
  return flat, part, y, part:sum(2)
end, { R(2, 4) })
case("assignments between dimensions", function(x)
  local y = x * 2
  y[{ {}, { 1, 2 }, L { 1, 3 } }] = moth.ones(2, 2, 2) * 9
  y[{ L { 1, 2 }, {}, L { 1, 1 } }] = moth.ones(2, 3)
  return y, x[{ {}, L { 1, 2 }, L { 2, 1 } }], x[{ L { 1, 2 }, {}, L { 2, 1 } }]
end, { R(2, 3, 4) })
case("rolls and windows", function(x) return x:roll(1, 2), x:roll({ 1, -2 }, { 1, 2 }), x:roll(1),
  x:roll(9, 1), x:unfold(2, 2, 1), x:unfold(1, 2, 2) end, { R(3, 4) })
case("columns of windows", function(x) return F.unfold(x, 2, { padding = 1, stride = 2 }),
  F.unfold(x[1], { 2, 3 }, { dilation = 2 }) end, { R(2, 3, 6, 7) })
case("fold", function(x) return F.fold(x, { 4, 4 }, 2), F.fold(x[1], { 4, 4 }, 2) end,
  { R(1, 8, 9) }, OPSET18)
case("meshgrid", function(x, y)
  local a, b = unpack(moth.meshgrid { x, y })
  local c, d = unpack(moth.meshgrid({ x, y }, { indexing = "xy" }))
  return a, b, c, d, x:count_nonzero(), x:gt(0):nonzero()
end, { R(3), R(2) })

-- ---- losses, special functions ----

local classes, weight = L { 1, -100, 4 }, moth.tensor { 1, 2, 3, 4 }
case("losses of classes", function(x, t)
  return F.cross_entropy(x, t), F.cross_entropy(x, t, { label_smoothing = 0.1, weight = weight }),
    F.cross_entropy(x, t, { reduction = "none", weight = weight }),
    F.nll_loss(x, t, { reduction = "sum" }), F.cross_entropy(x, classes),
    F.cross_entropy(x, x:softmax(2)),
    F.cross_entropy(x, x:softmax(2), { label_smoothing = 0.2, weight = weight }),
    F.cross_entropy(x[1], t[1])
end, { R(3, 4), classes })
case("losses of classes of pixels", function(x, t)
  return F.cross_entropy(x, t), F.cross_entropy(x, t, { reduction = "none",
    label_smoothing = 0.1, weight = weight[{ { 1, 3 } }] })
end, { R(2, 3, 4), L { { 1, 2, 3, -100 }, { 2, 1, 1, 1 } } })
case("other losses", function(x, y)
  local p, q = x:sigmoid(), y:sigmoid()
  return F.mse_loss(x, y), F.l1_loss(x, y, { reduction = "none" }), F.smooth_l1_loss(x, y),
    F.huber_loss(x, y, { reduction = "sum" }), F.binary_cross_entropy(p, q),
    F.binary_cross_entropy_with_logits(x, q, { pos_weight = weight }),
    F.kl_div(x:log_softmax(2), y:softmax(2), { reduction = "batchmean" }),
    F.cosine_similarity(x, y)
end, { R(3, 4), R(3, 4) })
case("erfinv, lgamma and atan2", function(x, y)
  return x:clamp(-1, 1):erfinv(), moth.lgamma(x * 3), moth.atan2(x, y),
    moth.lgamma(moth.tensor { 1, 2, 100, -2 } + x[1] * 0)
end, { R(3, 4) * 0.5, R(3, 4) })
do
  local ys, xs, list = {}, {}, { 0, -1 / math.huge, 2, -2, math.huge, -math.huge, 0 / 0 }
  for _, y in ipairs(list) do
    for _, x in ipairs(list) do ys[#ys + 1], xs[#xs + 1] = y, x end
  end
  case("atan2 of special values", moth.atan2, { moth.tensor(ys), moth.tensor(xs) })
end
case("adaptive pools that do not divide", function(x)
  return F.adaptive_avg_pool2d(x, 3), F.adaptive_max_pool2d(x, { 3, 2 }),
    F.adaptive_avg_pool1d(x[1], 3), F.adaptive_avg_pool2d(x, 7)
end, { R(2, 3, 5, 5) })
case("attention with rows hidden as a whole", function(x, bias)
  local attend = F.scaled_dot_product_attention
  local mask = moth.tensor { { true, false, false }, { false, false, false }, { true, true, true } }
  local low = moth.zeros(3, 3):masked_fill(mask:logical_not(), -math.huge)
  return attend(x, x, x, { attn_mask = mask }), attend(x, x, x, { attn_mask = low }),
    attend(x, x, x, { attn_mask = bias }), attend(x, x, x, { attn_mask = moth.ones(3, 3) })
end, { R(2, 3, 4), moth.tensor { { 0, 1, -math.huge }, { -math.huge, -math.huge, -math.huge },
  { 0, 0, 0 } } })
case("an axis called n, others that are multiples", function(x)
  local half = F.max_pool2d(F.relu(x), 2)
  return moth.cat({ x, F.interpolate(half, { scale_factor = 2 }) }, 2)
end, { R(1, 1, 4, 8) }, { dynamic_axes = { input = { [1] = "n" } } })

return cases
