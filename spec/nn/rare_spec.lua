-- Rare layers: AdaptiveLogSoftmaxWithLoss, FractionalMaxPool2d and 3d, RReLU and
-- FeatureAlphaDropout. Numbers are PyTorch 2.15's in float64.

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local function sines(shape, start)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return (moth.arange(n, {dtype = moth.float64}) + (start or 1)):sin():view(shape)
end

describe("AdaptiveLogSoftmaxWithLoss", function()
  local function made()
    local layer = nn.AdaptiveLogSoftmaxWithLoss(6, 7, {2, 4}, {div_value = 2, head_bias = true})
    layer:double()
    moth.no_grad(function()
      for _, p in ipairs(layer:parameters()) do p:copy_(sines({unpack(p.shape)})) end
    end)
    return layer, sines({4, 6}, 50):requires_grad_()
  end

  it("has PyTorch's log-probabilities, loss and gradients", function()
    local layer, x = made()
    local output, loss = layer(x, moth.tensor {1LL, 4LL, 7LL, 3LL})
    assert.close({-1.830697097908, -4.046850102277, -2.138092601086, -5.134245057307},
      output:tolist(), 1e-11)
    assert.close(3.2874712146446945, loss:item(), 1e-12)
    loss:backward()
    assert.close({0.6669646263918323, 0.8698949519329232, 0.2730478703929936, -0.5748381639614842,
      -0.8942206413717892, -0.3914607850146446}, x.grad[2]:tolist(), 1e-12)
    assert.close(-0.025012396036857558, layer.tail[1][1].weight.grad:sum():item(), 1e-12)
    assert.close({-1.9857781232581084, -1.1212993014321813, -1.228468842511167,
      -4.046850102277161, -2.5472646871633726, -2.5351779257001095, -2.672068155319602},
      layer:log_prob(x)[2]:tolist(), 1e-12)
    assert.same({2, 2, 2, 4}, layer:predict(x):tolist())
  end)

  it("has PyTorch's names", function()
    local names = {}
    for name in made():state_dict():items() do names[#names + 1] = name end
    assert.same({"head.weight", "head.bias", "tail.0.0.weight", "tail.0.1.weight",
      "tail.1.0.weight", "tail.1.1.weight"}, names)
  end)

  it("accepts one row, lists of classes, and classes of only one cluster", function()
    local layer, x = made()
    local output, loss = layer(x[2], 4)
    assert.equal(0, output:dim())
    assert.close(-4.046850102277, output:item(), 1e-11)
    assert.close(-output:item(), loss:item(), 1e-12)
    assert.same({4, 6}, {unpack(x.shape)})
    assert.close(layer:log_prob(x):select(2, 6):tolist(), (layer(x, {6, 6, 6, 6})):tolist(), 1e-12)
    assert.close(1, layer:log_prob(x[1]):exp():sum():item(), 1e-12)
  end)

  it("learns", function()
    moth.manual_seed(2)
    local layer = nn.AdaptiveLogSoftmaxWithLoss(16, 10, {3, 6}, 2)
    local opt = optim.Adam(layer:parameters(), {lr = 0.05})
    local x, y = moth.randn(10, 16), moth.range(1, 10)
    for _ = 1, 200 do
      opt:zero_grad()
      local _, loss = layer(x, y)
      loss:backward()
      opt:step()
    end
    assert.is_true(layer:predict(x):eq(y):float():mean():item() > 0.7)
  end)

  it("raises for wrong classes, cutoffs and shapes", function()
    local layer, x = made()
    assert.has_error_like(function() layer(x, {1, 2, 3, 8}) end, "classes from 1 to 7 are needed")
    assert.has_error_like(function() layer(x, {1, 2, 3, 0}) end, "classes from 1 to 7 are needed")
    assert.has_error_like(function() layer(x, {1, 2}) end, "%(4%) is needed")
    assert.has_error_like(function() layer(x) end, "'target'.*log_prob")
    assert.has_error_like(function() layer(x, moth.ones(4)) end, "an integer tensor of classes")
    assert.has_error_like(function() layer(moth.ones(4, 5), {1, 1, 1, 1}) end, "%(N, 6%) or %(6%)")
    for _, cutoffs in ipairs {{4, 2}, {0, 2}, {2, 7}, {2, 2}} do
      assert.has_error_like(function() nn.AdaptiveLogSoftmaxWithLoss(6, 7, cutoffs) end,
        "ascending numbers from 1 to 6 are needed")
    end
    assert.has_error_like(function() nn.AdaptiveLogSoftmaxWithLoss(6, 7, {2, 4}) end,
      "'div_value'.*leaves cluster 2 no feature of 6")
  end)
end)

describe("fractional_max_pool2d", function()
  local draws = moth.tensor({{{0.25, 0.75}, {0.9, 0.1}}}, {dtype = moth.float64})

  it("returns the maxima of PyTorch's windows", function()
    local x = sines({1, 2, 6, 7}):requires_grad_()
    local y, indices = F.fractional_max_pool2d(x, {2, 3}, {output_size = {3, 4},
      return_indices = true, _random_samples = draws})
    assert.same({8, 2, 13, 14, 15, 25, 27, 27, 38, 39, 33, 33, 10, 10, 10, 5, 16, 16, 17, 28, 29,
      30, 40, 35}, indices:view(-1):tolist())
    assert.close(x:detach():flatten(-2):gather(-1, indices:flatten(-2)):view(-1):tolist(),
      y:view(-1):tolist())
    y:square():sum():backward()
    assert.close(35.99512507761988, x.grad:sum():item(), 1e-11)
    assert.equal(19, x.grad:ne(0):sum():item())
    local _, other = F.fractional_max_pool2d(x, 2, {output_ratio = {0.5, 0.6},
      return_indices = true, _random_samples = draws})
    assert.same({8, 3, 12, 14, 15, 25, 26, 27, 37, 39, 33, 34, 9, 10, 4, 14, 16, 17, 18, 28, 29,
      39, 40, 35}, other:view(-1):tolist())
  end)

  it("does so for volumes", function()
    local x = (moth.arange(420) * 37):remainder(101):view(1, 2, 5, 6, 7):double()
    local _, at = F.fractional_max_pool3d(x, {2, 3, 2}, {output_size = {3, 2, 4},
      return_indices = true,
      _random_samples = moth.tensor({{{0.25, 0.5, 0.75}, {0.9, 0.1, 0.6}}}):double()})
    assert.same({50, 9, 61, 20, 36, 31, 39, 69, 50, 58, 61, 91, 121, 121, 110, 69, 170, 170, 137,
      132, 162, 192, 151, 167, 1, 9, 53, 20, 23, 23, 39, 83, 50, 58, 53, 91, 113, 72, 124, 83, 184,
      184, 173, 132, 162, 192, 151, 154}, at:flatten():tolist())
    assert.same({2, 2, 3, 3}, {unpack(nn.FractionalMaxPool3d(2, {output_ratio = 0.5})(
      x[1]).shape)})
  end)

  it("draws by the seed, as a layer, without a batch and for half types", function()
    local x = moth.randn(3, 20, 20)
    local pool = nn.FractionalMaxPool2d(3, {output_ratio = 0.5})
    local function drawn(seed)
      moth.manual_seed(seed)
      return pool(x):tolist()
    end
    assert.same(drawn(1), drawn(1))
    assert.is_false(pcall(assert.same, drawn(1), drawn(2)))
    assert.same({3, 10, 10}, {unpack(pool(x).shape)})
    assert.equal(moth.float16, pool(x:half()).dtype)
    assert.same({0, 3, 5, 5}, {unpack(F.fractional_max_pool2d(moth.ones(0, 3, 8, 8), 2, 5).shape)})
  end)

  it("raises for wrong sizes, and for both size arguments at once", function()
    local x = moth.ones(1, 1, 6, 6)
    assert.has_error_like(function() F.fractional_max_pool2d(x, 3, 5) end,
      "5 windows of 3 do not fit a side of 6")
    assert.has_error_like(function() F.fractional_max_pool2d(x, 2) end, "'output_ratio'")
    assert.has_error_like(function() F.fractional_max_pool2d(x, 2, {output_ratio = 1.5}) end,
      "a number between 0 and 1")
    assert.has_error_like(function() F.fractional_max_pool2d(x[{1, 1}], 2, 2) end, "'input'")
    assert.has_error_like(function() nn.FractionalMaxPool2d(2) end, "this or output_ratio")
    assert.has_error_like(function()
      F.fractional_max_pool2d(x, 2, 2, {_random_samples = moth.rand(2, 1, 2)})
    end, "%(1, 1, 2%) is needed")
  end)
end)

describe("RReLU", function()
  it("has the mean slope in evaluation, and random slopes in training", function()
    local x = moth.tensor {-12, 3, 0, -24}
    assert.close({-12 * 11 / 48, 3, 0, -24 * 11 / 48}, nn.RReLU():eval()(x):tolist(), 1e-6)
    local y = nn.RReLU(0.2, 0.4)(moth.full({20000}, -1)):neg()
    assert.is_true(y:min():item() >= 0.2 and y:max():item() <= 0.4)
    assert.close(0.3, y:mean():item(), 5e-3)
    assert.is_true(y:std():item() > 0.05)
  end)

  it("has the slope as gradient, and writes to its input if inplace is set", function()
    local x = moth.tensor({-1, 2}):requires_grad_()
    local y = F.rrelu(x, {training = true})
    y:sum():backward()
    assert.close({-y[1]:item(), 1}, x.grad:tolist())
    local z = moth.tensor {-1, 2}
    assert.equal(z, F.rrelu(z, 0.5, 0.5, {inplace = true}))
    assert.close({-0.5, 2}, z:tolist())
    assert.has_error_like(function() F.rrelu(z, 0.5, 0.25) end, "'lower' to 'rrelu'")
  end)
end)

describe("feature_alpha_dropout", function()
  it("drops whole channels, and keeps the mean and variance", function()
    local x = moth.randn(200, 100, 4)
    local y = F.feature_alpha_dropout(x, 0.3, true)
    local dropped = y:var(3):lt(1e-9)
    assert.close(0.3, dropped:float():mean():item(), 0.02)
    assert.close(0, y:mean():item(), 0.05)
    assert.close(1, y:std():item(), 0.05)
  end)

  it("is the identity in evaluation, as a layer", function()
    local x = moth.randn(2, 3, 4)
    local layer = nn.FeatureAlphaDropout(0.5)
    assert.equal(x, layer:eval()(x))
    assert.is_true(layer:train()(x):ne(x):any():item())
    assert.has_error_like(function() F.feature_alpha_dropout(moth.ones(3), 0.5, true) end,
      "%(N, C, ...%)")
  end)
end)
