-- Cases: first and second derivatives of functions whose numbers differ from their defaults,
-- against finite differences, in float64: a default of 1 hides a factor that is missing or
-- inverted.

local moth = require "moth"

local F = moth.nn.functional
local check, twice = moth.autograd.gradcheck, moth.autograd.gradgradcheck
local F64 = {dtype = moth.float64}

-- Away from 0 and from other kinks at integers.
local function x(...)
  moth.manual_seed(4)
  local y = moth.rand({...}, F64) * 1.7 - 0.9
  return (y + y:sign() * 0.05):requires_grad_()
end
local function share(...) return (moth.rand({...}, F64) * 0.8 + 0.1):requires_grad_() end
local function classes(list) return moth.tensor(list, {dtype = moth.int64}) end

-- name, function, inputs, is the second derivative checked?
local ROWS = {
  {"celu", function(a) return F.celu(a, 0.6) end, {x(2, 3)}, true},
  {"elu", function(a) return F.elu(a, 0.6) end, {x(2, 3)}, true},
  {"leaky_relu", function(a) return F.leaky_relu(a, 0.3) end, {x(2, 3)}, true},
  {"prelu", function(a, w) return F.prelu(a, w) end, {x(2, 3), share(3)}, true},
  {"rrelu in evaluation", function(a) return F.rrelu(a, 0.1, 0.5) end, {x(2, 3)}, true},
  {"hardtanh", function(a) return F.hardtanh(a, -0.47, 0.61) end, {x(2, 3)}},
  {"softplus", function(a) return F.softplus(a, 2, 1) end, {x(2, 3)}, true},
  {"softshrink", function(a) return F.softshrink(a, 0.33) end, {x(2, 3)}},
  {"hardshrink", function(a) return F.hardshrink(a, 0.33) end, {x(2, 3)}},
  {"threshold", function(a) return F.threshold(a, 0.11, 5) end, {x(2, 3)}},
  {"gelu by tanh", function(a) return F.gelu(a, {approximate = "tanh"}) end, {x(2, 3)}, true},
  {"glu", function(a) return F.glu(a, 1) end, {x(4, 3)}, true},
  {"softmax over the first dim", function(a) return F.softmax(a, 1) end, {x(3, 2)}, true},
  {"log_softmax over the first dim", function(a) return F.log_softmax(a, 1) end, {x(3, 2)}, true},
  {"logit with eps", function(a) return moth.logit(a, 0.2) end, {share(2, 3)}},
  {"normalize", function(a) return F.normalize(a, 3, 1) end, {x(3, 2)}, true},
  {"layer_norm", function(a, w, b) return F.layer_norm(a, {3}, w, b, 0.3) end,
    {x(2, 3), share(3), share(3)}, true},
  {"rms_norm", function(a, w) return F.rms_norm(a, {3}, w, 0.3) end, {x(2, 3), share(3)}, true},
  {"group_norm", function(a, w, b) return F.group_norm(a, 2, w, b, 0.3) end,
    {x(2, 4, 2), share(4), share(4)}, true},
  {"batch_norm", function(a, w, b)
    return F.batch_norm(a, {weight = w, bias = b, training = true, eps = 0.3})
  end, {x(3, 2), share(2), share(2)}, true},
  {"instance_norm", function(a) return F.instance_norm(a, {eps = 0.3}) end, {x(2, 2, 3)}, true},
  {"local_response_norm", function(a) return F.local_response_norm(a, 2, 0.3, 0.6, 1.5) end,
    {x(2, 4, 2)}},
  {"smooth_l1_loss", function(a, b) return F.smooth_l1_loss(a, b, {beta = 0.37}) end,
    {x(2, 3), x(2, 3)}},
  {"huber_loss", function(a, b) return F.huber_loss(a * 2, b, {delta = 0.37}) end,
    {x(2, 3), x(2, 3)}},
  {"poisson_nll_loss", function(a)
    return F.poisson_nll_loss(a, moth.full({2, 3}, 2.5, F64),
      {log_input = false, full = true, eps = 0.1})
  end, {share(2, 3)}},
  {"gaussian_nll_loss", function(a, v)
    return F.gaussian_nll_loss(a, moth.ones(2, 3, F64), v, {full = true, eps = 0.01})
  end, {x(2, 3), share(2, 3)}},
  {"kl_div of log targets", function(a, b)
    return F.kl_div(a, b, {log_target = true, reduction = "batchmean"})
  end, {x(2, 3), x(2, 3)}},
  {"binary_cross_entropy with weights", function(a)
    return F.binary_cross_entropy(a, moth.ones(2, 3, F64) * 0.3, moth.ones(3, F64) * 0.7)
  end, {share(2, 3)}},
  {"binary_cross_entropy_with_logits", function(a, p)
    return F.binary_cross_entropy_with_logits(a, moth.ones(2, 3, F64) * 0.3, {pos_weight = p})
  end, {x(2, 3), share(3)}},
  {"cross_entropy with all options", function(a)
    return F.cross_entropy(a, classes {1, 3, 2}, moth.tensor({0.5, 2, 0.7}, F64),
      {label_smoothing = 0.2, ignore_index = 2})
  end, {x(3, 3)}},
  {"cross_entropy of probabilities", function(a, b)
    return F.cross_entropy(a, b, {label_smoothing = 0.1, reduction = "sum"})
  end, {x(3, 3), share(3, 3)}},
  {"nll_loss with weights", function(a)
    return F.nll_loss(a, classes {1, 3, 2}, moth.tensor({0.5, 2, 0.7}, F64))
  end, {x(3, 3)}},
  {"multi_margin_loss", function(a)
    return F.multi_margin_loss(a, classes {1, 3}, {p = 2, margin = 0.7})
  end, {x(2, 3)}},
  {"margin_ranking_loss", function(a, b)
    return F.margin_ranking_loss(a, b, moth.tensor({1, -1, 1}, F64), 0.3)
  end, {x(3), share(3)}},
  {"hinge_embedding_loss", function(a)
    return F.hinge_embedding_loss(a, moth.tensor({1, -1, -1}, F64), 0.8)
  end, {x(3)}},
  {"cosine_embedding_loss", function(a, b)
    return F.cosine_embedding_loss(a, b, moth.tensor({1, -1}, F64), -0.5)
  end, {x(2, 3), share(2, 3)}},
  {"triplet_margin_loss", function(a, b, c)
    return F.triplet_margin_loss(a, b, c, {margin = 2, p = 3, swap = true})
  end, {x(2, 3), share(2, 3), share(2, 3)}},
  {"cosine_similarity", function(a, b) return F.cosine_similarity(a, b, 1, 1e-6) end,
    {x(3, 2), share(3, 2)}},
  {"pairwise_distance", function(a, b) return F.pairwise_distance(a, b, 3, 1e-3) end,
    {x(3, 2), share(3, 2)}},
  {"cdist", function(a, b) return moth.cdist(a, b, 3) end, {x(3, 2), share(2, 2)}},
  {"renorm", function(a) return moth.renorm(a, 3, 2, 0.7) end, {x(3, 2)}},
  {"linalg.norm", function(a) return moth.linalg.norm(a, 3, 1) end, {x(3, 2)}},
  {"logsumexp", function(a) return moth.logsumexp(a, 1) end, {x(3, 2)}, true},
  {"var with a correction", function(a) return moth.var(a, 1, {correction = 2}) end, {x(4, 2)},
    true},
  {"std with a correction", function(a) return moth.std(a, 1, {correction = 0}) end, {x(4, 2)},
    true},
  {"addcmul", function(a, b, c) return moth.addcmul(a, b, c, {value = 0.3}) end,
    {x(3), share(3), x(3)}, true},
  {"addcdiv", function(a, b, c) return moth.addcdiv(a, b, c, {value = 0.3}) end,
    {x(3), share(3), x(3)}, true},
  {"lerp", function(a, b, w) return moth.lerp(a, b, w) end, {x(3), share(3), x(3)}, true},
  {"addmm", function(a, b, c) return moth.addmm(a, b, c, {beta = 0.3, alpha = -2}) end,
    {x(2, 2), share(2, 3), x(3, 2)}, true},
  {"baddbmm", function(a, b, c) return moth.baddbmm(a, b, c, {beta = 0.3, alpha = -2}) end,
    {x(2, 2, 2), share(2, 2, 3), x(2, 3, 2)}, true},
  {"conv2d", function(a, w, b)
    return F.conv2d(a, w, b, {stride = 2, padding = 1, dilation = 2, groups = 2})
  end, {x(1, 2, 5, 5), share(2, 1, 2, 2), share(2)}, true},
  {"conv_transpose2d", function(a, w, b)
    return F.conv_transpose2d(a, w, b, {stride = 2, padding = 1, output_padding = 1, groups = 2})
  end, {x(1, 2, 3, 3), share(2, 1, 2, 2), share(2)}, true},
  {"avg_pool2d", function(a)
    return F.avg_pool2d(a, 3, {stride = 2, padding = 1, ceil_mode = true,
      count_include_pad = false})
  end, {x(1, 1, 4, 4)}, true},
  {"avg_pool2d with a divisor", function(a) return F.avg_pool2d(a, 2, {divisor_override = 3}) end,
    {x(1, 1, 4, 4)}, true},
  {"max_pool2d", function(a) return F.max_pool2d(a, 3, {stride = 1, padding = 1, dilation = 2}) end,
    {x(1, 1, 5, 5)}},
  {"lp_pool1d", function(a) return F.lp_pool1d(a, 3, 2, 1) end, {share(1, 1, 4)}},
  {"attention", function(q, k, v)
    return F.scaled_dot_product_attention(q, k, v, {scale = 0.3, is_causal = true})
  end, {x(3, 2), share(3, 2), x(3, 2)}, true},
  {"grid_sample", function(a, g)
    return F.grid_sample(a, g, {align_corners = true, padding_mode = "border"})
  end, {x(1, 1, 3, 3), share(1, 2, 2, 2)}},
  {"bilinear interpolation", function(a)
    return F.interpolate(a, {scale_factor = 1.7, mode = "bilinear", align_corners = true})
  end, {x(1, 1, 3, 3)}, true},
  {"bicubic interpolation", function(a) return F.interpolate(a, {size = 4, mode = "bicubic"}) end,
    {x(1, 1, 3, 3)}, true},
  {"embedding_bag by weights", function(w, s)
    return F.embedding_bag(classes {{1, 2}, {3, 1}}, w, {mode = "sum", per_sample_weights = s})
  end, {x(3, 2), share(2, 2)}},
  {"linalg.solve from the left", function(a, b)
    return moth.linalg.solve(a + moth.eye(2, F64) * 3, b, {left = false})
  end, {x(2, 2), share(3, 2)}, true},
}

describe("the gradient with options", function()
  for _, row in ipairs(ROWS) do
    it("is that of finite differences: " .. row[1], function()
      assert.is_true(check(row[2], row[3]))
      if row[4] then assert.is_true(twice(row[2], row[3])) end
    end)
  end
end)
