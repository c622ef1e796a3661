-- Composite losses: PyTorch's values in float64, gradients, and integer targets.
-- numbers.

local moth = require "moth"
local F = moth.nn.functional

local function f64(values) return moth.tensor(values, {dtype = moth.float64}) end

describe("gaussian_nll_loss", function()
  it("accepts one number as the variance of all", function()
    local x, y = moth.randn(4, 3), moth.randn(4, 3)
    assert.equal(F.gaussian_nll_loss(x, y, moth.ones(4, 3) * 0.5):item(),
      F.gaussian_nll_loss(x, y, 0.5):item())
    assert.has_error_like(function() F.gaussian_nll_loss(x, y, -1) end, "may be negative")
  end)
end)

describe("the composed losses", function()
  local x, y = f64{{1, 2}, {-3, 0.5}}, f64{{0.5, -1}, {2, 2}}
  local sign = f64{1, -1}

  it("have the values of their definitions", function()
    local function near(want, got)
      assert.is_true(math.abs(want - got:item()) < 1e-12, ("%g, got %g"):format(want, got:item()))
    end
    near((0.3 + 0) / 2, F.margin_ranking_loss(f64{1, 2}, f64{1, 4}, sign, {margin = 0.3}))
    near(0.4 + 0.8, F.hinge_embedding_loss(f64{0.4, 0.2}, sign, {reduction = "sum"}))
    near(1 / math.sqrt(2), F.cosine_similarity(f64{{1, 0}}, f64{{3, 3}}))
    near(math.exp(0.5) - 1, F.poisson_nll_loss(f64{0.5}, f64{2}))
    near(0.5 * (math.log(2) + 4.5), F.gaussian_nll_loss(f64{1}, f64{4}, f64{2}))
    near(4 - 1 + 1, F.triplet_margin_loss(f64{{0, 0}}, f64{{4, 0}}, f64{{0, 1}}, {eps = 0}))
  end)

  it("raise for shapes that would be broadcast against each other", function()
    local column, row = f64{{1}, {2}, {3}}, f64{3, 2, 1}
    local vectors = moth.eye(3, {dtype = moth.float64})
    local class = moth.tensor({1}, {dtype = moth.int64})
    for name, call in pairs {
      margin_ranking_loss = function(f) f(column, row, moth.ones(3)) end,
      hinge_embedding_loss = function(f) f(column, row) end,
      poisson_nll_loss = function(f) f(column, row) end,
      gaussian_nll_loss = function(f) f(column, row, row) end,
      soft_margin_loss = function(f) f(column, row) end,
      multilabel_soft_margin_loss = function(f) f(column, row) end,
      multi_margin_loss = function(f) f(vectors, class) end,
      cosine_embedding_loss = function(f) f(vectors, vectors, column) end,
      triplet_margin_loss = function(f) f(vectors, row, vectors) end,
    } do
      assert.has_error_like(function() call(F[name]) end, "bad argument '%w+' to '" .. name .. "'")
    end
    assert.has_error_like(function() F.soft_margin_loss(column, row) end,
      "the shape of the input, %(3, 1%), is needed, got f64 %(3%)")
    assert.equal(1, F.margin_ranking_loss(row, row, moth.ones(1), {margin = 1}):item())
  end)

  it("raise for triplets without a margin, which could not be learned", function()
    for _, name in ipairs {"triplet_margin_loss", "triplet_margin_with_distance_loss"} do
      assert.has_error_like(function() F[name](x, y, y, {margin = 0}) end,
        "bad argument 'margin' to '" .. name .. "' %(a number above 0 is needed, got 0%)")
    end
  end)

  it("have the right first and second derivatives", function()
    for _, f in ipairs {
      function(a, b) return (F.cosine_similarity(a, b)) end,
      function(a, b) return (F.cosine_embedding_loss(a, b, sign, {margin = -2})) end,
      function(a, b) return (F.triplet_margin_loss(a, b, a * b)) end,
      function(a, b) return (F.gaussian_nll_loss(a, b, a:square() + 1)) end,
    } do
      local p, q = x:clone():requires_grad_(), y:clone():requires_grad_()
      moth.autograd.gradcheck(f, {p, q})
      moth.autograd.gradgradcheck(f, {p, q})
    end
  end)

  it("accept a variance for each row, or for each element, in gaussian_nll_loss", function()
    local rows = F.gaussian_nll_loss(x, y, f64{0.5, 4}, {reduction = "none"})
    assert.same(F.gaussian_nll_loss(x, y, f64{{0.5, 0.5}, {4, 4}}, {reduction = "none"}):tolist(),
      rows:tolist())
    assert.same(rows:tolist(),
      F.gaussian_nll_loss(x, y, f64{{0.5}, {4}}, {reduction = "none"}):tolist())
    for _, var in ipairs {f64{{{1, 2}, {3, 4}}}, f64{1, 2, 3}, f64(1), f64{{1}}} do
      assert.has_error_like(function() F.gaussian_nll_loss(x, y, var) end,
        "'var' to 'gaussian_nll_loss' %(f64 %(.*%) does not fit the input, f64 %(2, 2%)%)")
    end
  end)

  it("raise for a negative variance in gaussian_nll_loss", function()
    for _, var in ipairs {f64{-0.5, 4}, f64{{1, 1}, {1, -1e-9}}} do
      assert.has_error_like(function() F.gaussian_nll_loss(x, y, var) end,
        "'var' to 'gaussian_nll_loss' %(no variance may be negative")
    end
    F.gaussian_nll_loss(x, y, f64{0, 0})
    F.gaussian_nll_loss(moth.zeros(0, 2), moth.zeros(0, 2), moth.zeros(0, 2))
    local step = moth.capture(function(var) return (F.gaussian_nll_loss(x, y, var)) end)
    for i = 1, 3 do
      assert.equal(F.gaussian_nll_loss(x, y, f64{i, 4}):item(), step(f64{i, 4}):item())
    end
  end)

  it("accept class probabilities in cross_entropy", function()
    local hot = f64{{0, 1}, {1, 0}}
    assert.is_true(moth.allclose(F.cross_entropy(x, hot), F.cross_entropy(x, {2, 1})))
    local p = x:clone():requires_grad_()
    moth.autograd.gradcheck(function(a)
      return (F.cross_entropy(a, hot, {label_smoothing = 0.1, weight = f64{1, 3}}))
    end, {p})
  end)
end)

describe("elementwise losses accept integer targets, as PyTorch does:", function()
  for _, name in ipairs {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"} do
    local loss = F[name]

    it(name .. " in the dtype of the floats, with their gradient", function()
      for _, dtype in ipairs {moth.float16, moth.float32, moth.float64} do
        local p = moth.tensor({0.5, -2, 7}, {dtype = dtype}):requires_grad_()
        local q = p:detach():clone():requires_grad_()
        for _, whole in ipairs {moth.tensor{1LL, 2LL, 7LL}, moth.tensor{1LL, 0LL, 1LL}:bool()} do
          p.grad, q.grad = nil, nil
          local got, wanted = loss(p, whole), loss(q, whole:to(dtype))
          assert.equal(dtype, got.dtype)
          assert.equal(wanted:item(), got:item())
          assert.equal(wanted:item(), loss(whole, p):item())
          got:backward()
          wanted:backward()
          assert.equal(dtype, p.grad.dtype)
          assert.same(q.grad:tolist(), p.grad:tolist())
        end
      end
    end)

    it(name .. " with two float dtypes in the wider one, with both gradients", function()
      local p, t = moth.tensor{0.5, -2}:requires_grad_(), f64{1, 0.25}:requires_grad_()
      local y = loss(p, t)
      assert.equal(moth.float64, y.dtype)
      y:backward()
      assert.equal(moth.float32, p.grad.dtype)
      assert.equal(moth.float64, t.grad.dtype)
      assert.same(t.grad:neg():tolist(), p.grad:tolist())
    end)

    it(name .. " in a captured step, too", function()
      local p = moth.tensor{0.5, -2}:requires_grad_()
      local function step(t)
        p.grad = nil
        local y = loss(p, t)
        y:backward()
        return y + p.grad:sum()
      end
      local captured = moth.capture(step)
      for i = 1, 4 do
        local t = moth.tensor{1LL, 2LL} * i
        assert.equal(step(t):item(), captured(t):item())
      end
    end)

    it(name .. " raises for integers only, and for other shapes", function()
      local whole = moth.tensor{1LL, 2LL}
      assert.has_error_like(function() loss(whole, whole) end,
        "'input' to '" .. name .. "' %(i64 is not supported here, wanted .* convert with :float")
      assert.has_error_like(function() loss(moth.zeros(3), whole) end,
        "'target' to '" .. name .. "' %(the shape of f32 %(3%) is needed")
      assert.has_error_like(function() loss(moth.zeros(2), 3) end, "a tensor is needed, got 3")
    end)
  end
end)

describe("weights of elementwise losses", function()
  local x = {{1, -2, 0.5}, {0.25, 3, -1}}
  local t = moth.tensor {{0, 1, 0.25}, {2, -0.5, -1}}
  local w = moth.tensor {{1, 2, 0.5}, {3, 0.25, 4}}

  -- PyTorch 2.15's mean and sum, and the mean's gradients for input and weights.
  for name, wanted in pairs {
    mse_loss = {2.909883737564087, 31.28125,
      {0.1860465109348297, -1.116279125213623, 0.023255813866853714, -0.9767442345619202,
       0.1627907007932663, 0},
      {-0.17766360938549042, 0.5665224194526672, -0.2648729085922241, 0.014196842908859253,
       0.8688479661941528, -0.2706868648529053}},
    l1_loss = {1.2325581312179565, 13.25,
      {0.09302325546741486, -0.1860465109348297, 0.04651162773370743, -0.27906978130340576,
       0.023255813866853714, 0},
      {-0.021633312106132507, 0.1644132137298584, -0.09140075743198395, 0.04813413321971893,
       0.21092483401298523, -0.11465656757354736}},
    huber_loss = {1.1276042461395264, 6.765625476837158,
      {0.1, -0.2, 0.02083333395421505, -0.3, 0.025, 0},
      {0.07, 0.27, 0.0052083334885537624, 0.145, 0.32, 0}},
  } do
    it("count in " .. name .. " as in PyTorch", function()
      local a, b = moth.tensor(x):requires_grad_(), w:clone():requires_grad_()
      local options = {weight = b, delta = name == "huber_loss" and 0.6 or nil}
      local mean = F[name](a, t, options)
      assert.close(wanted[1], mean:item(), 1e-6)
      mean:backward()
      assert.close(wanted[3], a.grad:reshape(-1):tolist(), 1e-6)
      assert.close(wanted[4], b.grad:reshape(-1):tolist(), 1e-6)
      options.reduction = "sum"
      assert.close(wanted[2], F[name](a, t, options):item(), 1e-5)
      options.reduction = "none"
      assert.close(wanted[2], F[name](a, t, options):sum():item(), 1e-5)
    end)

    it("must have the shape of the input in " .. name .. ", whose class takes none", function()
      assert.has_error_like(function() F[name](t, t, {weight = w[1]}) end, "'weight' to '" .. name
        .. "' %(the shape of the input, %(2, 3%), is needed, got f32 %(3%)%)")
      local class = ({mse_loss = "MSELoss", l1_loss = "L1Loss", huber_loss = "HuberLoss"})[name]
      assert.has_error_like(function() moth.nn[class] {weight = w} end, "has no argument 'weight'")
    end)
  end
end)
