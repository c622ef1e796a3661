-- Dropout in its forms: rates, scales and gradients; gumbel_softmax.

local moth = require "moth"
local nn, F = moth.nn, moth.nn.functional

describe("dropout of channels", function()
  it("drops whole rows and volumes, and scales the others", function()
    moth.manual_seed(1)
    for name, shape in pairs{dropout1d = {50, 40, 3}, dropout3d = {50, 40, 2, 1, 3}} do
      local y = F[name](moth.ones(shape), 0.25):flatten(3)
      assert.is_true(y:amin(3):equal(y:amax(3)), name)
      assert.near(0.25, y:eq(0):float():mean():item(), 0.03)
      assert.near(4 / 3, y:max():item(), 1e-6)
      assert.is_true(F[name](moth.ones(shape), {training = false}):equal(moth.ones(shape)))
    end
    assert.same({3, 2}, {unpack(nn.Dropout1d()(moth.ones(3, 2)).shape)})
    assert.error_matches(function() F.dropout1d(moth.ones(2)) end, "(N, C, L)", 1, true)
  end)

  it("keeps or drops rows of every length, also with NaN in the input", function()
    for length = 1, 70 do
      moth.manual_seed(length)
      local x = moth.full({4, 5, 1, length}, 3)
      local y = F.dropout2d(x, 0.5)
      local kept = y[{{}, {}, 1, 1}]:eq(6)
      assert.is_true(y:eq(moth.where(kept:view(4, 5, 1, 1), 6, 0):expand_as(y)):all():item())
      moth.manual_seed(length)
      local z = F.dropout2d(x / 0, 0.5)
      assert.is_true(z:eq(0):equal(y:eq(0)))
    end
  end)

  it("passes gradients to the kept elements", function()
    local x = moth.ones(8, 8, 2):requires_grad_()
    local y = F.dropout1d(x, 0.5)
    y:sum():backward()
    assert.is_true(x.grad:equal(y:detach()))
  end)
end)

describe("dropout in place", function()
  it("writes to its input", function()
    local x = moth.ones(100)
    assert.equal(x, F.dropout(x, 0.5, {inplace = true}))
    assert.is_true(x:eq(0):any():item())
    local z = moth.ones(4, 4, 2)
    assert.equal(z, F.dropout1d(z, {inplace = true}))
  end)
end)

describe("alpha_dropout", function()
  it("keeps mean and variance", function()
    moth.manual_seed(2)
    local y = F.alpha_dropout(moth.randn(40000), 0.3, true)
    assert.near(0, y:mean():item(), 0.03)
    assert.near(1, y:std():item(), 0.03)
    local net = nn.AlphaDropout(0.3):eval()
    assert.same({1, 1}, net(moth.ones(2)):tolist())
  end)
end)

describe("gumbel_softmax", function()
  it("draws categories by their probabilities", function()
    moth.manual_seed(3)
    local p = moth.tensor{0.1, 0.2, 0.7}
    local y = F.gumbel_softmax(p:log():expand(20000, 3), {hard = true})
    assert.is_true(y:sum(2):allclose(moth.ones(20000)))
    assert.is_true(y:mean(1):allclose(p, {atol = 0.02}))
  end)

  it("has the gradient of the soft result if hard is set", function()
    local x = moth.randn(4, 3):requires_grad_()
    moth.manual_seed(4)
    ;(F.gumbel_softmax(x, {hard = true}) * moth.tensor{1, 2, 3}):sum():backward()
    local hard = x.grad
    x.grad = nil
    moth.manual_seed(4)
    ;(F.gumbel_softmax(x) * moth.tensor{1, 2, 3}):sum():backward()
    assert.is_true(hard:allclose(x.grad))
  end)
end)

describe("a layer of dropout", function()
  it("returns its input outside training", function()
    local x = moth.randn(2, 3, 4, 4)
    for _, name in ipairs{"Dropout", "Dropout2d", "AlphaDropout"} do
      assert.equal(x, nn[name]():eval()(x))
    end
  end)
end)

describe("layers of functions", function()
  it("pass their options on", function()
    local a, b, c = moth.randn(3, 2), moth.randn(3, 2), moth.randn(3, 2)
    local loss = nn.TripletMarginLoss{margin = 2, p = 1, swap = true, reduction = "sum"}
    assert.is_true(loss(a, b, c):equal(F.triplet_margin_loss(a, b, c,
      {margin = 2, p = 1, swap = true, reduction = "sum"})))
    assert.is_true(nn.CosineSimilarity(2)(a, b):equal(F.cosine_similarity(a, b, 2)))
    assert.is_true(nn.GaussianNLLLoss{full = true}(a, b, c:square()):equal(
      F.gaussian_nll_loss(a, b, c:square(), {full = true})))
    assert.error_matches(function() nn.TripletMarginLoss{margn = 1} end, "'margin'", 1, true)
  end)

  it("split a dimension, and multiply two inputs", function()
    assert.equal("(4, 2, 3)", tostring(nn.Unflatten(2, {2, 3})(moth.ones(4, 6)).shape))
    local m = nn.Bilinear(2, 3, 4)
    local x, y = moth.randn(5, 2), moth.randn(5, 3)
    local wanted = moth.einsum("bn,anm,bm->ba", x, m.weight, y) + m.bias
    assert.is_true(m(x, y):allclose(wanted, {atol = 1e-5}))
  end)

  it("warn of dropout if there is only one layer", function()
    local old, heard = moth.warn, nil
    moth.warn = function(text) heard = text end
    nn.LSTM{2, 3, dropout = 0.5}
    moth.warn = old
    assert.matches("LSTM: dropout applies between layers", heard, 1, true)
  end)
end)
