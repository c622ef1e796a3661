-- Invalid inputs that once had results: each raises an error with the names of the function and the
-- argument, when a layer is made and when a function is called.

local moth = require "moth"
local nn, F, L = moth.nn, moth.nn.functional, moth.linalg
local T = moth.tensor
local NAN = 0 / 0

local function refused(fname, argument, f, ...)
  local ok, why = pcall(f, ...)
  assert(not ok, "computed")
  local wanted = ("bad argument '%s' to '%s'"):format(argument, fname)
  assert(why:find(wanted, 1, true), why)
end

describe("eps of a normalization", function()
  for _, eps in ipairs { -1, -1e-9, NAN } do
    it(("cannot be %g"):format(eps), function()
      for n = 1, 3 do
        refused("BatchNorm" .. n .. "d", "eps", nn["BatchNorm" .. n .. "d"], 2, { eps = eps })
        refused("InstanceNorm" .. n .. "d", "eps", nn["InstanceNorm" .. n .. "d"], 2,
          { eps = eps })
      end
      refused("LayerNorm", "eps", nn.LayerNorm, 3, { eps = eps })
      refused("GroupNorm", "eps", nn.GroupNorm, 1, 2, { eps = eps })
      local x = moth.rand(2, 2, 3)
      refused("batch_norm", "eps", F.batch_norm, x, { training = true, eps = eps })
      refused("batch_norm", "eps", F.batch_norm, x, moth.zeros(2), moth.ones(2), { eps = eps })
      refused("instance_norm", "eps", F.instance_norm, x, { eps = eps })
      refused("layer_norm", "eps", F.layer_norm, x, { 3 }, { eps = eps })
      refused("group_norm", "eps", F.group_norm, x, 1, { eps = eps })
      refused("RMSNorm", "eps", nn.RMSNorm, 3, { eps = eps })
      if eps == eps then refused("rms_norm", "eps", F.rms_norm, x, { 3 }, { eps = eps }) end
    end)
  end

  it("may be 0", function()
    local x = moth.rand(2, 2, 3)
    assert(F.layer_norm(x, { 3 }, { eps = 0 }):isfinite():all():item())
    assert(nn.BatchNorm1d(2, { eps = 0 })(x):isfinite():all():item())
  end)
end)

describe("circular padding", function()
  it("accepts inputs with channels, with and without a batch", function()
    for n = 1, 3 do
      local name = "CircularPad" .. n .. "d"
      local pad = nn[name](1)
      local shape = { 2, 2, 4, 4, 4, 4 }
      refused(name, "input", pad, moth.rand { unpack(shape, 1, n + 3) })
      refused(name, "input", pad, moth.rand { unpack(shape, 3, 2 + n) })
      assert(pad(moth.rand { unpack(shape, 2, n + 3) }))
      assert(pad(moth.rand { unpack(shape, 2, n + 2) }))
    end
  end)
end)

describe("ignore_index", function()
  it("raises if the targets are probabilities", function()
    local x, probs = moth.rand(2, 3), moth.rand(2, 3)
    refused("cross_entropy", "ignore_index", F.cross_entropy, x, probs, { ignore_index = 2 })
    refused("cross_entropy", "ignore_index", nn.CrossEntropyLoss { ignore_index = 1 }, x, probs)
    refused("linear_cross_entropy", "ignore_index", F.linear_cross_entropy, moth.rand(2, 4),
      moth.rand(3, 4), probs, { ignore_index = 2 })
    assert(F.cross_entropy(x, probs, { ignore_index = -100 }))
    assert(F.cross_entropy(x, probs, { ignore_index = -1 }))
  end)
end)

describe("nn.LinearCrossEntropyLoss", function()
  it("checks its weights and its label smoothing in the constructor", function()
    refused("LinearCrossEntropyLoss", "weight", nn.LinearCrossEntropyLoss, 3, 2,
      { weight = moth.ones(3) })
    for _, value in ipairs { 2, -1, NAN } do
      refused("LinearCrossEntropyLoss", "label_smoothing", nn.LinearCrossEntropyLoss, 3, 2,
        { label_smoothing = value })
    end
    assert(nn.LinearCrossEntropyLoss(3, 2, { weight = moth.ones(2), label_smoothing = 1 }))
  end)
end)

describe("weights of cov", function()
  local x = moth.rand(2, 2)

  it("cannot be negative or NaN", function()
    refused("cov", "fweights", moth.cov, x, { fweights = T { -1LL, 1LL } })
    refused("cov", "aweights", moth.cov, x, { aweights = T { -1, 1 } })
    refused("cov", "aweights", moth.cov, x, { aweights = T { NAN, 1 } })
  end)

  it("are integers as fweights, and floats as aweights", function()
    refused("cov", "fweights", moth.cov, x, { fweights = T { 1, 1 } })
    refused("cov", "aweights", moth.cov, x, { aweights = T { 1LL, 1LL } })
  end)
end)

describe("dimensions", function()
  it("cannot repeat in gradient", function()
    refused("gradient", "dim", moth.gradient, moth.rand(3, 3), { dim = { 2, 2 } })
    refused("gradient", "dim", moth.gradient, moth.rand(3, 3), { dim = { 2, -1 } })
  end)

  it("must be equal in both operands of cross", function()
    refused("cross", "other", L.cross, moth.ones(5, 5, 3), moth.ones(5, 3))
    refused("cross", "other", moth.cross, moth.ones(5, 3), moth.ones(3))
    assert(L.cross(moth.ones(5, 5, 3), moth.ones(1, 5, 3)))
  end)

  it("must exist in roll", function()
    refused("roll", "dims", moth.roll, T(1), 0, 1)
    refused("roll", "dims", moth.roll, T(1), 1, 1)
    assert.equal(1, moth.roll(T(1), 1):item())
  end)
end)

describe("channels of group_norm", function()
  it("must be at least one", function()
    refused("group_norm", "input", F.group_norm, moth.rand(1, 0, 2), 1)
    assert.same({ 0, 2, 2 }, { unpack(F.group_norm(moth.rand(0, 2, 2), 1).shape) })
  end)
end)

describe("windows of max_unpool", function()
  it("have a stride and a size of at least 1", function()
    for n = 1, 3 do
      local name, one = "max_unpool" .. n .. "d", { 1, 1, 2, 2, 2 }
      local x = moth.rand { unpack(one, 1, n + 2) }
      local at = moth.ones_like(x, { dtype = moth.int64 })
      refused(name, "stride", F[name], x, at, 2, { stride = 0 })
      refused(name, "stride", F[name], x, at, 2, { stride = -1 })
      refused(name, "kernel_size", F[name], x, at, 0)
    end
  end)
end)

describe("parameters of random numbers", function()
  it("such as scales must be above 0", function()
    for _, value in ipairs { 0, -1, NAN } do
      refused("cauchy_", "sigma", moth.zeros(2).cauchy_, moth.zeros(2), 0, value)
      refused("log_normal_", "std", moth.zeros(2).log_normal_, moth.zeros(2), 0, value)
      refused("exponential_", "lambd", moth.zeros(2).exponential_, moth.zeros(2), value)
    end
    refused("normal_", "std", moth.zeros(2).normal_, moth.zeros(2), 0, -1)
    refused("normal_", "std", moth.zeros(2).normal_, moth.zeros(2), 0, NAN)
    assert.equal(0, moth.zeros(1):normal_(0, 0):item())
  end)

  it("such as probabilities must be in their range and not NaN", function()
    for _, value in ipairs { 0, 2, -1, NAN } do
      refused("geometric_", "p", moth.zeros(2).geometric_, moth.zeros(2), value)
    end
    for _, value in ipairs { -1, 2, NAN } do
      refused("bernoulli_", "p", moth.zeros(2).bernoulli_, moth.zeros(2), value)
    end
  end)
end)

describe("softshrink", function()
  it("raises for a negative or NaN lambd", function()
    for _, value in ipairs { -0.5, NAN } do
      refused("softshrink", "lambd", F.softshrink, moth.rand(2), { lambd = value })
    end
    assert.equal(2, F.softshrink(T { 2 }, { lambd = 0 }):item())
  end)
end)

describe("an argument that a function refuses", function()
  it("is refused by the constructor of its layer", function()
    for _, bad in ipairs { -0.5, NAN } do
      refused("CrossEntropyLoss", "label_smoothing", nn.CrossEntropyLoss,
        { label_smoothing = bad })
      refused("HuberLoss", "delta", nn.HuberLoss, { delta = bad })
      refused("SmoothL1Loss", "beta", nn.SmoothL1Loss, { beta = bad })
      refused("TripletMarginLoss", "margin", nn.TripletMarginLoss, { margin = bad })
      refused("TripletMarginWithDistanceLoss", "margin", nn.TripletMarginWithDistanceLoss,
        { margin = bad })
      refused("Hardtanh", "max_val", nn.Hardtanh, 1, bad)
      refused("RReLU", "lower", nn.RReLU, 0.5, bad)
      refused("Softshrink", "lambd", nn.Softshrink, bad)
      refused("Upsample", "scale_factor", nn.Upsample, { scale_factor = bad })
    end
    for _, bad in ipairs { 0, -1 } do
      for n = 1, 3 do
        refused("MaxPool" .. n .. "d", "kernel_size", nn["MaxPool" .. n .. "d"], bad)
        refused("AvgPool" .. n .. "d", "stride", nn["AvgPool" .. n .. "d"], 2, { stride = bad })
        refused("MaxUnpool" .. n .. "d", "stride", nn["MaxUnpool" .. n .. "d"], 2,
          { stride = bad })
        refused("LPPool" .. n .. "d", "kernel_size", nn["LPPool" .. n .. "d"], 2, bad)
      end
      refused("MaxPool2d", "kernel_size", nn.MaxPool2d, { 2, bad })
      refused("MaxPool2d", "dilation", nn.MaxPool2d, 2, { dilation = bad })
      refused("PixelShuffle", "upscale_factor", nn.PixelShuffle, bad)
      refused("PixelUnshuffle", "downscale_factor", nn.PixelUnshuffle, bad)
      refused("LocalResponseNorm", "size", nn.LocalResponseNorm, bad)
      refused("Unfold", "kernel_size", nn.Unfold, bad)
    end
    refused("AdaptiveAvgPool1d", "output_size", nn.AdaptiveAvgPool1d, -1)
    refused("AdaptiveMaxPool2d", "output_size", nn.AdaptiveMaxPool2d, { 2, -1 })
    assert(nn.AdaptiveAvgPool2d { moth.none, 2 })
  end)
end)

describe("the power of distances", function()
  it("cannot be negative or NaN", function()
    for _, p in ipairs { -0.5, NAN } do
      refused("pdist", "p", F.pdist, moth.rand(3, 2), p)
      refused("cdist", "p", moth.cdist, moth.rand(3, 2), moth.rand(3, 2), p)
    end
    assert(moth.cdist(moth.rand(3, 2), moth.rand(3, 2), 0))
  end)
end)

describe("bounds that are NaN", function()
  it("raise", function()
    refused("hardtanh", "min_val", F.hardtanh, moth.rand(2), 1, NAN)
    refused("hardtanh", "min_val", F.hardtanh, moth.rand(2), NAN, 1)
    refused("normal", "std", moth.normal, 0, NAN, { 2 })
  end)
end)
