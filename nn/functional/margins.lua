--- margins.lua -- losses composed of ops, in moth.nn.functional: margin losses of pairs and
-- triplets, cosine losses, weighted differences, Poisson and Gaussian likelihoods; and bilinear.

local define = require "moth.binding.define"
local errors = require "moth.error"
local check = require "moth.capture.tensor_check"
local lib = require "moth.binding.lib"
local ops = require("moth.binding.bind").ops

local margins = {}

local REDUCTION = {"enum", "reduction", "how the losses of the elements are reduced",
                   choices = {"mean", "sum", "none"}}

local function reduced(loss, reduction)
  if reduction == "mean" then loss = loss:mean()
  elseif reduction == "sum" then loss = loss:sum() end
  return loss
end

-- Raises unless x has the input's shape: with broadcasting, the loss would compare all pairs.
local function same_shape(name, arg, x, input)
  if x.shape == input.shape then return end
  errors.argument(name, arg, ("the shape of the input, %s, is needed, got %s"):format(
    tostring(input.shape), errors.describe(x)), "E_SHAPE")
end

-- Raises unless x has the dtype of input1, except under autocast.
local function same_dtype(name, arg, x, input1)
  if x.dtype == input1.dtype or require("moth").is_autocast_enabled() then return end
  errors.argument(name, arg, ("%s and 'input1', %s, have different dtypes; convert one with :to()")
    :format(errors.describe(x), errors.describe(input1)), "E_DTYPE")
end

-- Raises unless x can be broadcast to the first tensor.
local function same_dims(name, arg, x, first)
  local fits = x:dim() == first:dim()
  for d = 1, fits and x:dim() or 0 do
    local n, m = x:size(d), first:size(d)
    fits = fits and (n == m or n == 1 or m == 1)
  end
  if not fits then
    errors.argument(name, arg, ("%s does not fit %s"):format(errors.describe(x),
      errors.describe(first)), "E_SHAPE")
  end
end

-- ---- losses of differences: a single op if there is no weight ----

-- Defines the function of a loss computed by an op; `setting` is the row of its additional
-- argument, if any. PyTorch divides the mean by the sum of the weights; for huber_loss by the
-- number of weights.
local function of_differences(name, doc, by_weights, setting)
  local args = {
    {"tensor", "input", "any shape"},
    {"tensor", "target", "of the same shape"},
    REDUCTION,
    {"tensor", "weight", "a factor of each loss, of the same shape" .. (by_weights
      and "; a mean is divided by the sum of the weights" or ""), optional = true},
  }
  if setting then table.insert(args, 4, setting) end
  local function weighted(losses, reduction, weight)
    same_shape(name, "weight", weight, losses)
    losses = losses * weight
    if reduction == "mean" and by_weights then return losses:sum() / weight:sum() end
    return (reduced(losses, reduction))
  end
  local run
  if setting then
    run = function(input, target, reduction, number, weight)
      if weight == nil then return (ops[name](input, target, reduction, number)) end
      return (weighted(ops[name](input, target, "none", number), reduction, weight))
    end
  else
    run = function(input, target, reduction, weight)
      if weight == nil then return (ops[name](input, target, reduction)) end
      return (weighted(ops[name](input, target, "none"), reduction, weight))
    end
  end
  local more = setting and setting[2] .. " = 0.6, " or ""
  margins[name] = define {
    name = name, doc = doc, args = args, run = run,
    examples = "moth.randn(3, 4), moth.randn(3, 4)\nmoth.randn(3, 4), moth.randn(3, 4), {" .. more
      .. "reduction = 'sum', weight = moth.rand(3, 4)}",
  }
end

of_differences("mse_loss", "The squared differences between input and target.", true)
of_differences("l1_loss", "The absolute differences between input and target.", true)
of_differences("huber_loss", "Half the squared difference up to `delta`, beyond it a straight "
  .. "line (Huber, 1964).", false,
  {"float", "delta", "distance up to which the loss is quadratic", default = 1})

-- ---- cosines and rankings ----

local HALF = {float16 = true, bfloat16 = true}

--- The cosine similarity of vectors along a dimension; both inputs are broadcast.
margins.cosine_similarity = define {
  name = "cosine_similarity",
  doc = "The cosine similarity of vectors along a dimension.",
  examples = "moth.randn(2, 3), moth.randn(2, 3)\n"
    .. "moth.randn(2, 3), moth.randn(3), {dim = 1, eps = 1e-6}",
  args = {
    {"tensor", "x1", "vectors, any shape"},
    {"tensor", "x2", "vectors, broadcast with the first"},
    {"dim", "dim", "the vectors' dimension", default = 2},
    {"float", "eps", "lower bound of the vectors' norms", default = 1e-8},
  },
  scoped = true,
  run = function(x1, x2, dim, eps)
    if x1.dtype ~= x2.dtype then
      local common = require("moth").result_type(x1, x2)
      x1, x2 = x1:to(common), x2:to(common)
    end
    local product = x1 * x2
    local dtype = product.dtype
    if HALF[dtype.name] then -- an eps of 1e-8 is 0 in f16
      x1, x2 = x1:float(), x2:float()
      product = x1 * x2
    end
    x1, x2 = x1:expand_as(product), x2:expand_as(product)
    -- Each vector is normalized first: products of large or small numbers overflow or underflow.
    x1 = x1 / x1:norm(2, dim, true):clamp(eps)
    x2 = x2 / x2:norm(2, dim, true):clamp(eps)
    return ((x1 * x2):sum(dim):to(dtype))
  end,
}

--- max(0, -target (input1 - input2) + margin): input1 should be larger where target is 1, smaller
-- where it is -1.
margins.margin_ranking_loss = define {
  name = "margin_ranking_loss",
  doc = "The margin loss of two scores whose order should be the target's.",
  examples = "moth.randn(4), moth.randn(4), moth.ones(4)\n"
    .. "moth.randn(4), moth.randn(4), moth.ones(4), {margin = 0.5, reduction = 'sum'}",
  args = {
    {"tensor", "input1", "scores, any shape"},
    {"tensor", "input2", "scores, of the same shape"},
    {"tensor", "target", "1 where input1 should be larger, -1 where input2 should be"},
    {"float", "margin", "the required difference", default = 0},
    REDUCTION,
  },
  scoped = true,
  run = function(input1, input2, target, margin, reduction)
    same_dims("margin_ranking_loss", "input2", input2, input1)
    same_dims("margin_ranking_loss", "target", target, input1)
    local loss = target * (input1 - input2)
    if not loss:is_floating_point() then loss = loss:to(require("moth").get_default_dtype()) end
    loss = ops.relu(margin - loss)
    return (reduced(loss, reduction))
  end,
}

--- The input where target is 1, max(0, margin - input) where it is -1.
margins.hinge_embedding_loss = define {
  name = "hinge_embedding_loss",
  doc = "The margin loss of distances: small where target is 1, large where it is -1.",
  examples = "moth.randn(4), moth.ones(4)\n"
    .. "moth.randn(4), -moth.ones(4), {margin = 2, reduction = 'none'}",
  args = {
    {"tensor", "input", "distances, any shape"},
    {"tensor", "target", "1 or -1 for each"},
    {"float", "margin", "distances above the margin have no loss", default = 1},
    REDUCTION,
  },
  scoped = true,
  run = function(input, target, margin, reduction)
    same_dims("hinge_embedding_loss", "target", target, input)
    local far = ops.where(target:ne(1), ops.relu(margin - input), 0)
    local near = ops.where(target:ne(-1), input, 0)
    return (reduced(far + near, reduction))
  end,
}

--- 1 - cos where target is 1, max(0, cos - margin) where it is -1; cos is the cosine similarity.
margins.cosine_embedding_loss = define {
  name = "cosine_embedding_loss",
  doc = "The loss of vectors that should be similar where target is 1, dissimilar where it is -1.",
  examples = "moth.randn(4, 3), moth.randn(4, 3), moth.ones(4)\n"
    .. "moth.randn(4, 3), moth.randn(4, 3), -moth.ones(4), {margin = 0.2, reduction = 'sum'}",
  args = {
    {"tensor", "input1", "vectors, (N, D) or (D)"},
    {"tensor", "input2", "vectors, of the same shape"},
    {"tensor", "target", "1 or -1 for each, (N) or ()"},
    {"float", "margin", "cosines below the margin have no loss where target is -1", default = 0},
    REDUCTION,
  },
  scoped = true,
  run = function(input1, input2, target, margin, reduction)
    same_dims("cosine_embedding_loss", "input2", input2, input1)
    if input1:dim() ~= target:dim() + 1 or target:dim() > 1
       or (target:dim() == 1 and target:size(1) ~= math.max(input1:size(1), input2:size(1))) then
      errors.argument("cosine_embedding_loss", "target", ("%s does not fit %s: (N) is for (N, D), "
        .. "() for (D)"):format(errors.describe(target), errors.describe(input1)), "E_SHAPE")
    end
    local tiny = 1e-12
    local a, b = input1:square():sum(-1) + tiny, input2:square():sum(-1) + tiny
    local cos = (input1 * input2):sum(-1) / (a * b):sqrt()
    local near = ops.where(target:eq(1), 1 - cos, 0)
    local far = ops.where(target:eq(-1), ops.relu(cos - margin), 0)
    return (reduced(near + far, reduction))
  end,
}

-- Raises unless the margin is positive: without a margin the loss is smallest when all vectors are
-- equal.
local function some_margin(name, margin)
  if not (margin > 0) then
    errors.refuse(name, "margin", "a number above 0 is needed", margin, "E_DOMAIN")
  end
end

--- max(0, |anchor - positive| - |anchor - negative| + margin) (Balntas et al., 2016).
margins.triplet_margin_loss = define {
  name = "triplet_margin_loss",
  doc = "The loss of anchors whose distance to the positive is not smaller, by a margin, than "
    .. "their distance to the negative.",
  examples = "moth.randn(4, 3), moth.randn(4, 3), moth.randn(4, 3)\n"
    .. "moth.randn(4, 3), moth.randn(4, 3), moth.randn(4, 3), "
    .. "{margin = 2, p = 1, eps = 1e-5, swap = true, reduction = 'none'}",
  args = {
    {"tensor", "anchor", "vectors, (N, D) or (D)"},
    {"tensor", "positive", "vectors that should be near the anchors"},
    {"tensor", "negative", "vectors that should be far from the anchors"},
    {"float", "margin", "the required difference", default = 1},
    {"float", "p", "the order of the norm", default = 2},
    {"float", "eps", "added to differences, so that a distance of 0 has a gradient",
     default = 1e-6},
    {"bool", "swap", "also use the distance between positive and negative?", default = false},
    REDUCTION,
  },
  scoped = true,
  run = function(anchor, positive, negative, margin, p, eps, swap, reduction)
    some_margin("triplet_margin_loss", margin)
    same_dims("triplet_margin_loss", "positive", positive, anchor)
    same_dims("triplet_margin_loss", "negative", negative, anchor)
    local near = (anchor - positive + eps):norm(p, -1)
    local far = (anchor - negative + eps):norm(p, -1)
    if swap then far = ops.minimum(far, (positive - negative + eps):norm(p, -1)) end
    return (reduced(ops.relu(near - far + margin), reduction))
  end,
}

--- max(0, d(anchor, positive) - d(anchor, negative) + margin), with any distance function d.
margins.triplet_margin_with_distance_loss = define {
  name = "triplet_margin_with_distance_loss",
  doc = "triplet_margin_loss with any distance function.",
  examples = "moth.randn(4, 3), moth.randn(4, 3), moth.randn(4, 3)\n"
    .. "moth.randn(4, 3), moth.randn(4, 3), moth.randn(4, 3), "
    .. "{distance_function = function(a, b) return (a - b):abs():sum(-1) end, margin = 2, "
    .. "swap = true, reduction = 'none'}",
  args = {
    {"tensor", "anchor", "vectors, (N, D) or (D)"},
    {"tensor", "positive", "vectors that should be near the anchors"},
    {"tensor", "negative", "vectors that should be far from the anchors"},
    {"function", "distance_function", "called with two batches of vectors; default: "
      .. "pairwise_distance",
     optional = true},
    {"float", "margin", "the required difference", default = 1},
    {"bool", "swap", "also use the distance between positive and negative?", default = false},
    REDUCTION,
  },
  scoped = true,
  run = function(anchor, positive, negative, distance, margin, swap, reduction)
    some_margin("triplet_margin_with_distance_loss", margin)
    for _, row in ipairs {{"positive", positive}, {"negative", negative}} do
      local name, x = unpack(row)
      if x:dim() ~= anchor:dim() then
        errors.argument("triplet_margin_with_distance_loss", name, ("%d dimensions are needed, as "
          .. "the anchor has, got %s"):format(anchor:dim(), errors.describe(x)), "E_SHAPE")
      end
    end
    distance = distance or margins.pairwise_distance
    local near, far = distance(anchor, positive), distance(anchor, negative)
    if not lib.istensor(near) or not lib.istensor(far) then
      errors.argument("triplet_margin_with_distance_loss", "distance_function", "a function that "
        .. "returns a tensor is needed; it returned "
        .. errors.describe(lib.istensor(near) and far or near), "E_TYPE")
    end
    if swap then far = ops.minimum(far, distance(positive, negative)) end
    return (reduced(ops.relu(near - far + margin), reduction))
  end,
}

--- exp(input) - target input: the negative log likelihood of counts, up to a constant.
margins.poisson_nll_loss = define {
  name = "poisson_nll_loss",
  doc = "The negative log likelihood of counts under a Poisson distribution.",
  examples = "moth.randn(4), moth.tensor{0, 1, 2, 5}\n"
    .. "moth.rand(4) + 1, moth.tensor{0, 1, 2, 5}, "
    .. "{log_input = false, full = true, eps = 1e-6, reduction = 'sum'}  -- domain: positive",
  args = {
    {"tensor", "input", "expected counts or their logarithms, any shape"},
    {"tensor", "target", "counts, of the same shape"},
    {"bool", "log_input", "is the input a logarithm?", default = true},
    {"bool", "full", "add Stirling's approximation of log(target!)?", default = false},
    {"float", "eps", "added to the input before the logarithm", default = 1e-8},
    REDUCTION,
  },
  scoped = true,
  run = function(input, target, log_input, full, eps, reduction)
    same_dims("poisson_nll_loss", "target", target, input)
    local loss
    if log_input then loss = input:exp() - target * input
    else loss = input - target * (input + eps):log() end
    if full then
      local large = target:gt(1)
      local t = ops.where(large, target, 1) -- the gradient of log 0 would be infinite
      local stirling = t * t:log() - t + 0.5 * (2 * math.pi * t):log()
      loss = loss + ops.where(large, stirling, 0)
    end
    return (reduced(loss, reduction))
  end,
}

-- Returns the variances in a shape that broadcasts with the input. If they lack the input's last
-- dimension, a dimension of size 1 is added: variances (N) belong to the rows of an input (N, N).
local function variances(input, var)
  local n, fit = input:dim(), var
  if var:dim() == n - 1 then fit = var:unsqueeze(-1) end
  local misfits = fit:dim() == n and 0 or 2
  for d = 1, misfits == 0 and n or 0 do
    if fit:size(d) ~= input:size(d) then misfits = misfits + (fit:size(d) == 1 and 1 or 2) end
  end
  if misfits > 1 then
    errors.argument("gaussian_nll_loss", "var", ("%s does not fit the input, %s"):format(
      errors.describe(var), errors.describe(input)), "E_SHAPE")
  end
  return fit
end

--- (log(var) + (input - target)^2 / var) / 2 (Nix and Weigend, 1994).
margins.gaussian_nll_loss = define {
  name = "gaussian_nll_loss",
  doc = "The negative log likelihood of values under a normal distribution.",
  examples = "moth.randn(4, 2), moth.randn(4, 2), moth.rand(4, 2) + 0.5  -- domain: positive\n"
    .. "moth.randn(4, 2), moth.randn(4, 2), moth.rand(4, 1) + 0.5, "
    .. "{full = true, eps = 1e-4, reduction = 'sum'}  -- domain: positive",
  args = {
    {"tensor", "input", "expected values, any shape"},
    {"tensor", "target", "values, of the same shape"},
    {"tensor", "var", "the variances: of the same shape, of size 1 in one dimension, or without "
     .. "the last dimension; a number applies to all", numbers = true},
    {"bool", "full", "add the constant log(2 pi) / 2?", default = false},
    {"float", "eps", "lower bound of the variance; gradients pass through unchanged",
     default = 1e-6},
    REDUCTION,
  },
  scoped = true,
  run = function(input, target, var, full, eps, reduction)
    same_dims("gaussian_nll_loss", "target", target, input)
    if not lib.istensor(var) then var = require("moth").full_like(input, tonumber(var)) end
    var = variances(input, var)
    if not var.is_cuda then -- on a GPU the check would synchronize
      check(var:lt(0), function()
        errors.argument("gaussian_nll_loss", "var", "no variance may be negative", "E_DOMAIN")
      end)
    end
    var = var + (var:detach():clamp(eps) - var:detach())
    local apart = input - target
    local loss = 0.5 * (var:log() + apart / var * apart)
    if full then loss = loss + 0.5 * math.log(2 * math.pi) end
    return (reduced(loss, reduction))
  end,
}

--- log(1 + exp(-target input)).
margins.soft_margin_loss = define {
  name = "soft_margin_loss",
  doc = "The logistic loss of scores that should have the target's signs.",
  examples = "moth.randn(4), moth.ones(4)\nmoth.randn(4), -moth.ones(4), {reduction = 'sum'}",
  args = {
    {"tensor", "input", "scores, any shape"},
    {"tensor", "target", "1 or -1 for each"},
    REDUCTION,
  },
  scoped = true,
  run = function(input, target, reduction)
    same_shape("soft_margin_loss", "target", target, input)
    return (reduced(ops.softplus(-target * input), reduction))
  end,
}

-- ---- several classes ----

-- Adds a batch dimension to unbatched scores and targets; also returns true if it did.
local function batched(name, input, target, below)
  local ndim = input:dim()
  if below == 1 and ndim == 1 and target:dim() == 1 and target:size(1) == 1 then
    target = target:reshape {}
  end
  if (ndim ~= 1 and ndim ~= 2) or target:dim() ~= ndim - below
     or (ndim == 2 and target:size(1) ~= input:size(1)) then
    errors.argument(name, "target", ("%s does not fit %s"):format(errors.describe(target),
      errors.describe(input)), "E_SHAPE")
  end
  if ndim == 2 then return input, target, true end
  return input:unsqueeze(1), target:unsqueeze(1), false
end

-- Raises if a target is above the number of classes, or below `least`. A replay checks after all
-- ops have run; until then the targets are clamped, so that inner ops do not raise.
-- @return y, clamped to the classes
local function classes_of(name, y, x, target, least)
  local moth = require "moth"
  if y.dtype.is_floating_point or y.dtype == moth.bool then
    errors.refuse(name, "target", "an integer tensor of classes is needed", target, "E_DTYPE")
  end
  local bad = y:gt(x:size(2))
  if least then bad = bad:logical_or(y:lt(least)) end
  local recorded, classes = lib.capture ~= nil, x:size(2)
  check(bad, function()
    if recorded then -- a replay cannot read values before its end
      errors.argument(name, "target", ("classes up to %d are needed"):format(classes), "E_INDEX")
    end
    local class = y:flatten():masked_select(bad:flatten()):select(1, 1):item()
    errors.argument(name, "target", ("class %d is out of range for %d classes"):format(
      tonumber(class), classes), "E_INDEX")
  end)
  if not recorded or y.is_cuda then return y end
  y = y:long():clamp_max(classes)
  return least and y:clamp_min(least) or y
end

--- The sum over all other classes of max(0, margin - input[target] + input)^p, divided by the
-- number of classes.
margins.multi_margin_loss = define {
  name = "multi_margin_loss",
  doc = "The loss of targets whose score does not exceed all other scores by a margin.",
  examples = "moth.randn(2, 3), moth.tensor({1, 3}, {dtype = moth.int64})  -- domain: distinct\n"
    .. "moth.randn(2, 3), moth.tensor({2, 3}, {dtype = moth.int64}), "
    .. "{p = 2, margin = 0.5, weight = moth.rand(3), reduction = 'sum'}  -- domain: distinct",
  args = {
    {"tensor", "input", "scores, (N, C) or (C)"},
    {"tensor", "target", "the class of each row, (N) or ()"},
    {"int", "p", "the exponent, 1 or 2", default = 1},
    {"float", "margin", "the required difference", default = 1},
    {"tensor", "weight", "weight of each class, (C)", optional = true},
    REDUCTION,
  },
  scoped = true,
  run = function(input, target, p, margin, weight, reduction)
    if p ~= 1 and p ~= 2 then
      errors.argument("multi_margin_loss", "p", "1 or 2 is needed, got " .. p, "E_DOMAIN")
    end
    local x, y, many = batched("multi_margin_loss", input, target, 1)
    y = classes_of("multi_margin_loss", y, x, target, 1)
    local at = y:unsqueeze(2)
    local short = ops.relu(margin - x:gather(2, at) + x)
    if p == 2 then short = short:square() end
    if weight then short = short * weight:index_select(1, y):unsqueeze(2) end
    local loss = short:scatter(2, at, 0):sum(2) / x:size(2)
    return (reduced(many and loss or loss:squeeze(1), reduction))
  end,
}

--- The sum over targets t and other classes i of max(0, 1 - input[t] + input[i]), divided by the
-- number of classes.
margins.multilabel_margin_loss = define {
  name = "multilabel_margin_loss",
  doc = "The loss of targets whose scores do not exceed the scores of all other classes by 1.",
  examples = "moth.randn(2, 3), moth.tensor({{1, 3, 0}, {2, 0, 1}}, {dtype = moth.int64})"
    .. "  -- domain: distinct\n"
    .. "moth.randn(3), moth.tensor({1, 2, 3}, {dtype = moth.int64}), {reduction = 'sum'}"
    .. "  -- domain: distinct",
  args = {
    {"tensor", "input", "scores, (N, C) or (C)"},
    {"tensor", "target", "classes, of the same shape; a number below 1 ends the list"},
    REDUCTION,
  },
  scoped = true,
  run = function(input, target, reduction)
    same_shape("multilabel_margin_loss", "target", target, input)
    local x, y, many = batched("multilabel_margin_loss", input, target, 0)
    y = classes_of("multilabel_margin_loss", y, x, target)
    local classes = x:size(2)
    local counts = y:le(0):long():cumsum(2):eq(0)
    local at = ops.where(counts, y, classes + 1)
    local others = x:new_zeros(x:size(1), classes + 1):scatter(2, at, 1):narrow(2, 1, classes):eq(0)
    local right = x:gather(2, ops.where(counts, y, 1)):unsqueeze(3)
    local short = ops.relu(1 - right + x:unsqueeze(2))
    local loss = (short * counts:unsqueeze(3) * others:unsqueeze(2)):sum{2, 3} / classes
    return (reduced(many and loss or loss:squeeze(1), reduction))
  end,
}

--- The mean over classes of binary_cross_entropy_with_logits.
margins.multilabel_soft_margin_loss = define {
  name = "multilabel_soft_margin_loss",
  doc = "The logistic loss of each class's score, averaged over classes.",
  examples = "moth.randn(2, 3), moth.tensor{{1, 0, 1}, {0, 0, 1}}\n"
    .. "moth.randn(2, 3), moth.tensor{{1, 0, 1}, {0, 0, 1}}, "
    .. "{weight = moth.rand(3), reduction = 'sum'}",
  args = {
    {"tensor", "input", "scores, (N, C) or (C)"},
    {"tensor", "target", "1 where the class applies, else 0, of the same shape"},
    {"tensor", "weight", "weight of each class, (C)", optional = true},
    REDUCTION,
  },
  scoped = true,
  run = function(input, target, weight, reduction)
    same_shape("multilabel_soft_margin_loss", "target", target, input)
    local loss = -(target * ops.logsigmoid(input) + (1 - target) * ops.logsigmoid(-input))
    if weight then loss = loss * weight end
    return (reduced(loss:mean(-1), reduction))
  end,
}

--- The p-norm of x1 - x2 + eps along the last dimension.
margins.pairwise_distance = define {
  name = "pairwise_distance",
  doc = "The p-norm distance of vectors along the last dimension.",
  examples = "moth.randn(2, 3), moth.randn(2, 3)\n"
    .. "moth.randn(2, 3), moth.randn(3), {p = 1, eps = 1e-3, keepdim = true}",
  args = {
    {"tensor", "x1", "vectors, (..., D)"},
    {"tensor", "x2", "vectors, broadcast with the first"},
    {"float", "p", "the order of the norm", default = 2},
    {"float", "eps", "added to differences, so that a distance of 0 has a gradient",
     default = 1e-6},
    {"bool", "keepdim", "keep the dimension with size 1", default = false},
  },
  scoped = true,
  run = function(x1, x2, p, eps, keepdim)
    return ((x1 - x2 + eps):norm(p, -1, keepdim))
  end,
}

--- x1^T A x2 + bias for each of several matrices A.
margins.bilinear = define {
  name = "bilinear",
  doc = "input1^T weight[k] input2 + bias[k] for each feature k of the result.",
  examples = "moth.randn(2, 3), moth.randn(2, 4), moth.randn(5, 3, 4)\n"
    .. "moth.randn(3), moth.randn(4), moth.randn(5, 3, 4), {bias = moth.randn(5)}",
  args = {
    {"tensor", "input1", "(..., in1_features)"},
    {"tensor", "input2", "(..., in2_features)"},
    {"tensor", "weight", "(out_features, in1_features, in2_features)"},
    {"tensor", "bias", "(out_features)", optional = true},
  },
  scoped = true,
  run = function(input1, input2, weight, bias)
    if weight:dim() ~= 3 or input1:dim() < 1 or input2:dim() < 1
       or input1:size(-1) ~= weight:size(2) or input2:size(-1) ~= weight:size(3) then
      errors.argument("bilinear", "weight", ("%s does not fit %s and %s"):format(
        errors.describe(weight), errors.describe(input1), errors.describe(input2)), "E_SHAPE")
    end
    if bias and (bias:dim() ~= 1 or bias:size(1) ~= weight:size(1)) then
      errors.argument("bilinear", "bias", ("(%d) is needed, got %s"):format(weight:size(1),
        errors.describe(bias)), "E_SHAPE")
    end
    same_dtype("bilinear", "input2", input2, input1)
    same_dtype("bilinear", "weight", weight, input1)
    for d = 1, math.max(input1:dim(), input2:dim()) - 1 do
      if input1:dim() ~= input2:dim() or input1:size(d) ~= input2:size(d) then
        errors.argument("bilinear", "input2", ("%s and %s have different leading sizes"):format(
          errors.describe(input2), errors.describe(input1)), "E_SHAPE")
      end
    end
    local out, first, second = weight:size(1), weight:size(2), weight:size(3)
    local rows = input1:matmul(weight:permute(2, 1, 3):reshape(first, out * second))
    local y = (rows:unflatten(-1, {out, second}) * input2:unsqueeze(-2)):sum(-1)
    if bias then y = y + bias end
    return y.dtype == input1.dtype and y or y:to(input1.dtype) -- sums of bytes are int64
  end,
}

return margins
