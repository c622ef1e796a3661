-- Convolution, pooling, normalization and losses, at sizes on both sides of tiles and blocks.

local moth = require "moth"
local operands = require "spec.support.operands"

local F = moth.nn.functional
local r, u, ints, apart = operands.r, operands.u, operands.ints, operands.apart

local function claims(what, rows)
  describe(what, function() operands.claims(it, rows) end)
end

local function conv(f, options) return function(x, w, b)
  local given = {}
  for k, v in pairs(options or {}) do given[k] = v end
  given.bias = b
  return f(x, w, given)
end end

claims("conv1d", {
  {"plain", conv(F.conv1d), function() return {r(2, 3, 19), r(5, 3, 4), r(5)} end},
  {"no bias, wide", conv(F.conv1d), function() return {r(1, 2, 70), r(3, 2, 3)} end},
  {"stride, padding, dilation", conv(F.conv1d, {stride = 2, padding = 3, dilation = 2}),
    function() return {r(2, 4, 21), r(6, 4, 3), r(6)} end},
  {"groups", conv(F.conv1d, {groups = 3, padding = 1}),
    function() return {r(2, 6, 17), r(9, 2, 3), r(9)} end},
  {"depthwise", conv(F.conv1d, {groups = 5, padding = 2}),
    function() return {r(2, 5, 33), r(5, 1, 5), r(5)} end},
  {"transposed", conv(F.conv_transpose1d, {stride = 2, padding = 1, output_padding = 1}),
    function() return {r(2, 4, 9), r(4, 3, 3), r(3)} end},
  {"transposed groups", conv(F.conv_transpose1d, {stride = 3, groups = 2, dilation = 2}),
    function() return {r(2, 4, 9), r(4, 3, 3)} end},
})

claims("conv2d", {
  {"3x3", conv(F.conv2d, {padding = 1}),
    function() return {r(2, 3, 9, 11), r(5, 3, 3, 3), r(5)} end},
  {"3x3, many channels", conv(F.conv2d, {padding = 1}),
    function() return {r(2, 17, 6, 7), r(18, 17, 3, 3), r(18)} end, {half = 0.05}},
  {"1x1", conv(F.conv2d), function() return {r(3, 9, 5, 7), r(17, 9, 1, 1)} end},
  {"1x1, stride", conv(F.conv2d, {stride = 2}),
    function() return {r(2, 4, 7, 8), r(6, 4, 1, 1), r(6)} end},
  {"unequal options", conv(F.conv2d, {stride = {2, 1}, padding = {0, 2}, dilation = {1, 3}}),
    function() return {r(2, 3, 12, 10), r(4, 3, 2, 3), r(4)} end},
  {"groups", conv(F.conv2d, {groups = 2, stride = {1, 2}, padding = {2, 1}}),
    function() return {r(2, 4, 8, 9), r(6, 2, 3, 2), r(6)} end},
  {"depthwise 3x3", conv(F.conv2d, {groups = 6, padding = 1}),
    function() return {r(2, 6, 9, 18), r(6, 1, 3, 3), r(6)} end},
  {"depthwise 5x5, stride", conv(F.conv2d, {groups = 4, padding = 2, stride = 2}),
    function() return {r(2, 4, 11, 19), r(4, 1, 5, 5)} end},
  {"depthwise, two filters each", conv(F.conv2d, {groups = 3, padding = {1, 0}, dilation = 2}),
    function() return {r(2, 3, 9, 11), r(6, 1, 3, 3), r(6)} end},
  {"same padding", conv(F.conv2d, {padding = "same", dilation = {2, 1}}),
    function() return {r(2, 3, 8, 7), r(4, 3, 3, 4), r(4)} end},
  {"a filter as large as the image", conv(F.conv2d),
    function() return {r(3, 2, 6, 5), r(7, 2, 6, 5), r(7)} end},
  {"without a batch", conv(F.conv2d), function() return {r(2, 6, 5), r(3, 2, 3, 2), r(3)} end},
  {"transposed", conv(F.conv_transpose2d, {stride = {2, 3}, padding = {1, 0}, output_padding = {1,
    2}}),
    function() return {r(2, 4, 5, 4), r(4, 3, 3, 3), r(3)} end},
  {"transposed groups", conv(F.conv_transpose2d, {groups = 2, dilation = {2, 1}, stride = 2}),
    function() return {r(2, 4, 5, 6), r(4, 2, 2, 3), r(4)} end},
})

claims("conv3d", {
  {"plain", conv(F.conv3d, {padding = {1, 0, 1}}),
    function() return {r(2, 3, 4, 5, 6), r(4, 3, 2, 3, 3), r(4)} end},
  {"unequal options", conv(F.conv3d, {stride = {2, 1, 3}, padding = {0, 1, 2}, dilation = {1, 2,
    1}}),
    function() return {r(1, 2, 6, 6, 7), r(3, 2, 3, 2, 2)} end},
  {"groups", conv(F.conv3d, {groups = 2, stride = 2}),
    function() return {r(2, 4, 5, 4, 6), r(6, 2, 2, 3, 2), r(6)} end},
  {"transposed", conv(F.conv_transpose3d, {stride = {1, 2, 2}, padding = {0, 1, 0},
    output_padding = {0, 1, 1}}), function() return {r(1, 3, 3, 4, 3), r(3, 2, 2, 3, 3), r(2)} end},
})

local function with(f, ...)
  local given = {...}
  return function(x) return f(x, unpack(given)) end
end

claims("pooling", {
  {"max_pool1d", with(F.max_pool1d, 3, {stride = 2, padding = 1}),
    function() return {apart(2, 3, 20)} end},
  {"max_pool2d", with(F.max_pool2d, {3, 2}, {stride = {2, 1}, padding = {1, 0}, dilation = {1, 2}}),
    function() return {apart(2, 3, 9, 17)} end},
  {"max_pool2d 2x2", with(F.max_pool2d, 2), function() return {apart(2, 3, 10, 37)} end},
  {"max_pool2d 3x3, stride 2", with(F.max_pool2d, 3, {stride = 2, padding = 1}),
    function() return {apart(2, 3, 13, 19)} end},
  {"max_pool2d, ceil_mode", with(F.max_pool2d, 3, {stride = 2, ceil_mode = true}),
    function() return {apart(2, 2, 8, 10)} end},
  {"max_pool3d", with(F.max_pool3d, {2, 3, 2}, {stride = {1, 2, 2}, padding = {1, 1, 0},
    ceil_mode = true}),
    function() return {apart(2, 2, 5, 6, 7)} end},
  {"avg_pool1d", with(F.avg_pool1d, 4, {stride = 3, padding = 2, ceil_mode = true}),
    function() return {r(2, 3, 20)} end},
  {"avg_pool2d", with(F.avg_pool2d, {3, 2}, {stride = {2, 1}, padding = {1, 0}}),
    function() return {r(2, 3, 9, 17)} end},
  {"avg_pool2d 2x2", with(F.avg_pool2d, 2), function() return {r(2, 3, 10, 37)} end},
  {"avg_pool2d without padding counted", with(F.avg_pool2d, 3, {stride = 2, padding = 1,
    count_include_pad = false, ceil_mode = true}), function() return {r(2, 2, 8, 11)} end},
  {"avg_pool2d, divisor", with(F.avg_pool2d, {2, 3}, {padding = 1, divisor_override = 5}),
    function() return {r(2, 2, 8, 11)} end},
  {"avg_pool3d", with(F.avg_pool3d, {2, 3, 2}, {stride = {1, 2, 2}, padding = {1, 1, 0},
    count_include_pad = false}), function() return {r(2, 2, 5, 6, 7)} end},
  {"avg_pool3d, divisor", with(F.avg_pool3d, 2, {padding = 1, divisor_override = 3,
    ceil_mode = true}),
    function() return {r(2, 2, 5, 6, 7)} end},
  {"lp_pool2d", with(F.lp_pool2d, 3, {2, 3}, {stride = {1, 2}}),
    function() return {u(2, 2, 6, 9) + 0.2} end},
  {"adaptive_avg_pool1d", with(F.adaptive_avg_pool1d, 5), function() return {r(2, 3, 17)} end},
  {"adaptive_avg_pool2d", with(F.adaptive_avg_pool2d, {3, 5}),
    function() return {r(2, 3, 8, 13)} end},
  {"adaptive_avg_pool2d to 1x1", with(F.adaptive_avg_pool2d, 1),
    function() return {r(2, 5, 8, 13)} end},
  {"adaptive_avg_pool3d", with(F.adaptive_avg_pool3d, {2, 3, 4}),
    function() return {r(2, 3, 5, 4, 7)} end},
  {"adaptive_max_pool1d", with(F.adaptive_max_pool1d, 5), function() return {apart(2, 3, 17)} end},
  {"adaptive_max_pool2d", with(F.adaptive_max_pool2d, {3, 5}),
    function() return {apart(2, 3, 8, 13)} end},
  {"adaptive_max_pool3d", with(F.adaptive_max_pool3d, {2, 3, 4}),
    function() return {apart(2, 3, 5, 4, 7)} end},
})

claims("normalization", {
  {"layer_norm", function(x, w, b) return F.layer_norm(x, {17}, {weight = w, bias = b}) end,
    function() return {r(5, 17), r(17), r(17)} end},
  {"layer_norm without weight", function(x) return F.layer_norm(x, {33}) end,
    function() return {r(3, 2, 33)} end},
  {"layer_norm of two dims", function(x, w) return F.layer_norm(x, {4, 9}, {weight = w}) end,
    function() return {r(2, 3, 4, 9), r(4, 9)} end},
  {"layer_norm of 300", function(x, w, b) return F.layer_norm(x, {300}, {weight = w, bias = b,
    eps = 0.1}) end,
    function() return {r(9, 300), r(300), r(300)} end},
  {"rms_norm", function(x, w) return F.rms_norm(x, {17}, {weight = w, eps = 0.01}) end,
    function() return {r(5, 17), r(17)} end},
  {"rms_norm without weight", function(x) return F.rms_norm(x, {65}) end,
    function() return {r(5, 65)} end},
  {"group_norm", function(x, w, b) return F.group_norm(x, 3, {weight = w, bias = b}) end,
    function() return {r(2, 6, 5, 4), r(6), r(6)} end},
  {"group_norm without weight", function(x) return F.group_norm(x, 2, {eps = 0.1}) end,
    function() return {r(3, 4, 17)} end},
  {"instance_norm", function(x, w, b) return F.instance_norm(x, {weight = w, bias = b}) end,
    function() return {r(2, 3, 5, 7), r(3), r(3)} end},
  {"batch_norm in training", function(x, w, b)
    return F.batch_norm(x, nil, nil, {weight = w, bias = b, training = true})
  end, function() return {r(4, 5, 6, 3), r(5), r(5)} end},
  {"batch_norm of rows", function(x, w) return F.batch_norm(x, nil, nil, {weight = w,
    training = true, eps = 0.1}) end,
    function() return {r(17, 9), r(9)} end},
  {"batch_norm without weight", function(x) return F.batch_norm(x, nil, nil, {training = true}) end,
    function() return {r(3, 4, 33)} end},
  {"batch_norm with given statistics", function(x, w, b)
    return F.batch_norm(x, moth.linspace(-1, 1, 5):to(x.dtype), moth.linspace(1, 2, 5):to(x.dtype),
      {weight = w, bias = b})
  end, function() return {r(4, 5, 6, 3), r(5), r(5)} end},
  {"normalize", with(F.normalize), function() return {r(5, 17)} end},
  {"normalize, p = 3, first dim", with(F.normalize, {p = 3, dim = 1}),
    function() return {r(5, 17)} end},
  {"local_response_norm", with(F.local_response_norm, 3, {alpha = 0.5, beta = 0.6, k = 1.5}),
    function() return {r(2, 7, 4, 5)} end},
})

local losses = {}
for _, reduction in ipairs {"none", "mean", "sum"} do
  local function loss(name, f, make, options)
    losses[#losses + 1] = {name .. ", " .. reduction, function(...)
      return f(reduction, ...)
    end, make, options}
  end
  loss("mse_loss", function(how, x, y) return F.mse_loss(x, y, {reduction = how}) end,
    function() return {r(3, 19), r(3, 19)} end)
  loss("l1_loss", function(how, x, y) return F.l1_loss(x, y, {reduction = how}) end,
    function() return {r(3, 19), r(3, 19)} end)
  loss("smooth_l1_loss", function(how, x, y) return F.smooth_l1_loss(x, y, {reduction = how,
    beta = 0.7}) end,
    function() return {r(3, 19), r(3, 19)} end)
  loss("huber_loss", function(how, x, y) return F.huber_loss(x, y, {reduction = how,
    delta = 0.7}) end,
    function() return {r(3, 19), r(3, 19)} end)
  loss("soft_margin_loss", function(how, x, y) return F.soft_margin_loss(x, y,
    {reduction = how}) end,
    function() return {r(3, 19), r(3, 19):sign():to(moth.int64)} end)
  loss("binary_cross_entropy", function(how, x, y, w)
    return F.binary_cross_entropy(x, y, {weight = w, reduction = how})
  end, function() return {u(3, 19) * 0.8 + 0.1, u(3, 19)} end)
  loss("binary_cross_entropy_with_logits", function(how, x, y)
    return F.binary_cross_entropy_with_logits(x, y, {reduction = how,
      weight = moth.linspace(0.5, 2, 19):to(x.dtype), pos_weight = moth.linspace(2, 1,
        19):to(x.dtype)})
  end, function() return {r(3, 19), u(3, 19)} end)
  loss("kl_div", function(how, x, y) return F.kl_div(x, y, {reduction = how}) end,
    function() return {r(3, 19), u(3, 19) + 0.1} end)
  loss("kl_div, log_target", function(how, x, y) return F.kl_div(x, y, {reduction = how,
    log_target = true}) end,
    function() return {r(3, 19), r(3, 19)} end)
  loss("poisson_nll_loss", function(how, x, y)
    return F.poisson_nll_loss(x, y, {reduction = how, full = true})
  end, function() return {r(3, 19), u(3, 19) * 4 + 1.2} end)
  loss("gaussian_nll_loss", function(how, x, y, v)
    return F.gaussian_nll_loss(x, y, v, {reduction = how, full = true})
  end, function() return {r(3, 19), r(3, 19), u(3, 19) + 0.5} end)
  loss("cross_entropy", function(how, x, y) return F.cross_entropy(x, y, {reduction = how}) end,
    function() return {r(7, 19), ints(19, 7)} end)
  loss("cross_entropy, weight, smoothing, ignored", function(how, x, y)
    return F.cross_entropy(x, y, {reduction = how, ignore_index = 3, label_smoothing = 0.2,
      weight = moth.linspace(0.5, 2, 9):to(x.dtype)})
  end, function() return {r(17, 9), ints(9, 17)} end)
  loss("cross_entropy of images", function(how, x, y)
    return F.cross_entropy(x, y, {reduction = how, weight = moth.linspace(0.5, 2, 5):to(x.dtype)})
  end, function() return {r(2, 5, 3, 7), ints(5, 2, 3, 7)} end)
  loss("cross_entropy with probabilities", function(how, x, y)
    return F.cross_entropy(x, y, {reduction = how, label_smoothing = 0.1})
  end, function() return {r(5, 9), r(5, 9):softmax(2)} end)
  loss("nll_loss", function(how, x, y)
    return F.nll_loss(x, y, {reduction = how, weight = moth.linspace(0.5, 2, 9):to(x.dtype),
      ignore_index = 2})
  end, function() return {r(17, 9), ints(9, 17)} end)
  loss("nll_loss of images", function(how, x, y) return F.nll_loss(x, y, {reduction = how}) end,
    function() return {r(2, 5, 3, 7), ints(5, 2, 3, 7)} end)
  loss("multi_margin_loss", function(how, x, y)
    return F.multi_margin_loss(x, y, {reduction = how, p = 2, margin = 0.8,
      weight = moth.linspace(0.5, 2, 9):to(x.dtype)})
  end, function() return {r(5, 9), ints(9, 5)} end)
  loss("multilabel_margin_loss", function(how, x) return F.multilabel_margin_loss(x,
    moth.tensor({{3, 1, 0, 2}, {4, 0, 1, 1}}, {dtype = moth.int64}), {reduction = how}) end,
      function() return {r(2, 4)} end)
  loss("multilabel_soft_margin_loss", function(how, x, y)
    return F.multilabel_soft_margin_loss(x, y, {reduction = how})
  end, function() return {r(5, 9), u(5, 9)} end)
  loss("hinge_embedding_loss", function(how, x, y)
    return F.hinge_embedding_loss(x, y, {reduction = how, margin = 0.7})
  end, function() return {r(5, 9), r(5, 9):sign():to(moth.int64)} end)
  loss("cosine_embedding_loss", function(how, x, y, t)
    return F.cosine_embedding_loss(x, y, t, {reduction = how, margin = 0.1})
  end, function() return {r(5, 9), r(5, 9), moth.tensor({1, -1, 1, -1, 1},
    {dtype = moth.int64})} end)
  loss("margin_ranking_loss", function(how, x, y, t)
    return F.margin_ranking_loss(x, y, t, {reduction = how, margin = 0.1})
  end, function() return {r(9), r(9), r(9):sign():to(moth.int64)} end)
  loss("triplet_margin_loss", function(how, x, y, z)
    return F.triplet_margin_loss(x, y, z, {reduction = how, swap = true, margin = 3})
  end, function() return {r(5, 9), r(5, 9), r(5, 9)} end)
end
claims("a loss", losses)
