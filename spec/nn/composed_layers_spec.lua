-- Composite layers: LPPool and MaxUnpool, norms and shuffles of channels, losses of several classes
-- and of triplets. PyTorch's values and gradients are in spec/golden/.

local moth = require "moth"

local nn, F = moth.nn, moth.nn.functional

local function refuses(text, f) assert.has_error_like(f, text) end
local function shape(x) return tostring(x.shape) end

describe("max_unpool", function()
  it("writes pooled values back to their positions, and zeros elsewhere", function()
    for n, size in ipairs { { 6 }, { 6, 4 }, { 4, 6, 2 } } do
      local pool = nn["MaxPool" .. n .. "d"] { 2, return_indices = true }
      local back = nn["MaxUnpool" .. n .. "d"](2)
      local x = moth.rand(2, 3, unpack(size)) + 1
      local y, at = pool(x)
      local z = back(y, at)
      assert.is_true(z:eq(0):logical_or(z:eq(x)):all():item())
      assert.is_true(pool(z):equal(y))
      assert.equal(y:numel(), z:ne(0):sum():item())
      assert.is_true(back(y[1], at[1]):equal(z[1]))
    end
  end)

  it("has the size of the pooled input, if output_size is given", function()
    local y, at = F.max_pool2d(moth.randn(1, 1, 5, 7), 2, { return_indices = true })
    local back = nn.MaxUnpool2d(2)
    assert.equal("(1, 1, 4, 6)", shape(back(F.max_pool2d(moth.randn(1, 1, 4, 6), 2,
      { return_indices = true }))))
    assert.equal("(1, 1, 5, 7)", shape(back(y, at, { 5, 7 })))
    assert.equal("(1, 1, 5, 7)", shape(back(y, at, { 1, 1, 5, 7 })))
    refuses("'output_size' to 'max_unpool2d' %(6 is too far from 4",
      function() return (back(y, at, { 6, 7 })) end)
    refuses("'indices' to 'max_unpool2d'", function() return (back(y, at[{ 1 }])) end)
    refuses("'input' to 'max_unpool2d' %(%(N, C, H, W%) or %(C, H, W%) is needed",
      function() return (back(y[{ 1, 1 }], at[{ 1, 1 }])) end)
  end)
end)

describe("lp_pool", function()
  it("is the norm of each window", function()
    local x = moth.tensor { { { 3, 4, 0, 5, 12, 9 } } }
    assert.is_true(nn.LPPool1d(2, 2)(x):allclose(moth.tensor { { { 5, 5, 15 } } }))
    assert.is_true(nn.LPPool1d(1, 3, 3)(x):allclose(moth.tensor { { { 7, 26 } } }))
    local v = moth.rand(1, 2, 4, 4, 4)
    local wanted = v:view(1, 2, -1):norm(3, -1):view(1, 2, 1, 1, 1)
    assert.is_true(nn.LPPool3d(3, 4)(v):allclose(wanted))
    assert.equal("LPPool2d(norm_type=2, kernel_size=(3, 2), stride=(2, 1), ceil_mode=false)",
      tostring(nn.LPPool2d(2, { 3, 2 }, { 2, 1 })))
  end)

  it("has a zero gradient if a window is 0", function()
    local x = moth.zeros(1, 1, 4, 4):requires_grad_()
    F.lp_pool2d(x, 2, 2):sum():backward()
    assert.equal(0, x.grad:abs():sum():item())
  end)
end)

describe("across channels", function()
  it("LocalResponseNorm divides by the mean square of neighbours", function()
    local x = moth.tensor { { { 1 }, { 2 }, { 3 } } }
    local y = nn.LocalResponseNorm(3, { alpha = 3, beta = 1, k = 1 })(x)
    assert.is_true(y:allclose(moth.tensor { { { 1 / 6 }, { 2 / 15 }, { 3 / 14 } } }))
    assert.equal("LocalResponseNorm(3, alpha=3, beta=1, k=1)",
      tostring(nn.LocalResponseNorm(3, 3, 1, 1)))
    refuses("'input' to 'local_response_norm' %(%(N, C, ...%) of three dimensions",
      function() return (F.local_response_norm(moth.ones(2, 3), 3)) end)
  end)

  it("ChannelShuffle mixes groups", function()
    local x = moth.arange(6):view(1, 6, 1)
    assert.same({ 0, 3, 1, 4, 2, 5 }, nn.ChannelShuffle(2)(x):flatten():tolist())
    refuses("'groups' to 'channel_shuffle' %(6 channels cannot be divided into 4 groups",
      function() return (F.channel_shuffle(x, 4)) end)
  end)
end)

describe("losses of several classes", function()
  it("need a margin of the target over all other classes", function()
    local x, target = moth.tensor { { 0.5, 2, 1 } }, moth.tensor({ 2 }, { dtype = moth.int64 })
    assert.is_true(math.abs(nn.MultiMarginLoss()(x, target):item()) < 1e-7)
    local wide = nn.MultiMarginLoss { margin = 2, weight = moth.tensor { 1, 3, 1 } }
    assert.is_true(math.abs(wide(x, target):item() - 3 * (0.5 + 1) / 3) < 1e-6)
    assert.same({ "weight" }, (function()
      local names = {}
      for name in wide:named_buffers() do names[#names + 1] = name end
      return names
    end)())
    refuses("'p' to 'multi_margin_loss' %(1 or 2 is needed, got 3",
      function() return (F.multi_margin_loss(x, target, 3)) end)
    refuses("'target' to 'multi_margin_loss'",
      function() return (F.multi_margin_loss(x, target[1])) end)
  end)

  it("of many labels end at the first target below 1", function()
    local x = moth.tensor { 0.1, 0.2, 0.4, 0.8 }
    local target = moth.tensor({ 4, 1, 0, 2 }, { dtype = moth.int64 }) -- PyTorch's own example
    assert.is_true(math.abs(nn.MultiLabelMarginLoss()(x, target):item() - 0.85) < 1e-6)
  end)

  it("of many labels are the mean of logistic losses", function()
    local x, right = moth.randn(3, 4), moth.randint(0, 2, { 3, 4 }):float()
    local mean = nn.BCEWithLogitsLoss()(x, right)
    assert.is_true(nn.MultiLabelSoftMarginLoss()(x, right):allclose(mean))
  end)

  it("of triplets accept any distance function", function()
    local a, p, n = moth.randn(5, 3), moth.randn(5, 3), moth.randn(5, 3)
    local default = nn.TripletMarginWithDistanceLoss { margin = 2, swap = true }
    assert.is_true(default(a, p, n):allclose(F.triplet_margin_loss(a, p, n,
      { margin = 2, swap = true })))
    local calls = 0
    local own = nn.TripletMarginWithDistanceLoss(function(x, y)
      calls = calls + 1
      return 1 - F.cosine_similarity(x, y)
    end)
    assert.is_true(own(a, p, n):item() >= 0)
    assert.equal(2, calls)
  end)
end)
