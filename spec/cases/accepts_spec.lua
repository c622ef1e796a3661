-- Calls that PyTorch accepts and that once raised here: results, dtypes and gradients are
-- PyTorch's.

local moth = require "moth"
local T, F = moth.tensor, moth.nn.functional

describe("the in-place form of", function()
  it("squeeze, unsqueeze, t, transpose and others changes the shape of the tensor", function()
    local x = moth.arange(6):view(2, 3):clone()
    for _, row in ipairs {
      {"t_", {}, {3, 2}}, {"unsqueeze_", {1}, {1, 3, 2}}, {"squeeze_", {}, {3, 2}},
      {"transpose_", {1, 2}, {2, 3}}, {"swapaxes_", {1, -1}, {3, 2}}, {"swapdims_", {1, 2}, {2, 3}},
      {"unsqueeze_", {-1}, {2, 3, 1}}, {"squeeze_", {3}, {2, 3}},
      {"as_strided_", {{3, 2}, {1, 3}}, {3, 2}},
    } do
      local name, args, shape = unpack(row)
      assert.is_true(x[name](x, unpack(args)) == x)
      assert.are.same(shape, {unpack(x.shape)})
    end
    assert.are.same({{0, 3}, {1, 4}, {2, 5}}, x:tolist())
  end)

  it("t keeps the history; views of the tensor keep theirs", function()
    local w = T({{1, 2, 3}, {4, 5, 6}}):requires_grad_()
    local y = w * 2
    local row = y[1]
    y:t_()
    y[{1, 1}] = 0
    local loss = (y:square():sum() + row:sum())
    loss:backward()
    assert.are.same({{0, 18, 26}, {32, 40, 48}}, w.grad:tolist())
    local v = w * 1
    v:t():unsqueeze_(1):mul_(3)
    assert.are.same({{3, 6, 9}, {12, 15, 18}}, v:tolist())
  end)

  it("t raises if a history or a replay does not allow it", function()
    local w = moth.randn(2, 3):requires_grad_()
    assert.has_error_like(function() w:t_() end, "'input' to 't_' %(a leaf that requires grad")
    assert.has_error_like(function() w[1]:unsqueeze_(1) end, "a view of a leaf")
    assert.has_error_like(function() (w * 1):unbind()[1]:unsqueeze_(1) end, "one of several views")
    moth.no_grad(function() w:t_() end)
    assert.are.same({3, 2}, {unpack(w.shape)})
    w:sum():backward()
    assert.are.same({3, 2}, {unpack(w.grad.shape)})
    assert.has_error_like(function() moth.no_grad(function() w:t_() end) end, "has a gradient")
    local step = moth.capture(function(a) return a:t_() + 1 end)
    assert.has_error_like(function() for _ = 1, 3 do step(moth.ones(2, 3)) end end,
      "a captured step cannot change the shape")
    local fine = moth.capture(function(a)
      local b = a * 2
      return b:t_():matmul(a)
    end)
    for k = 1, 4 do assert.are.equal(4 * k * k, fine(moth.ones(2, 3) * k)[{1, 1}]:item()) end
  end)

  it("cumprod, float_power, ldexp, mvlgamma, polygamma, igamma and igammac", function()
    local function close(y, ...)
      for i, v in ipairs {...} do assert.is_near(v, y[i]:item(), 1e-5) end
    end
    close(T{1, 2, 3}:cumprod_(1), 1, 2, 6)
    local x = T({2, 3}, {dtype = moth.float64})
    assert.is_true(x:float_power_(2) == x)
    close(x, 4, 9)
    assert.has_error_like(function() T{2}:float_power_(2) end,
      "'input' to 'float_power_' %(a float64 tensor is needed, got f32")
    close(T{1, 3}:ldexp_(T{2LL, -1LL}), 4, 1.5)
    close(T{3, 4}:mvlgamma_(2), 1.550195, 3.565097)
    close(T{1, 2}:polygamma_(1), 1.644934, 0.644934)
    close(T{1, 2}:igamma_(T{1, 2}), 0.6321206, 0.5939942)
    close(T{1, 2}:igammac_(T{1, 2}), 0.3678794, 0.4060058)
    local w = T{1, 2, 3}:requires_grad_()
    local y = w * 1
    y:cumprod_(1)
    y:sum():backward()
    assert.are.same({9, 4, 2}, w.grad:tolist())
  end)
end)

describe("functions of complex numbers accept real numbers:", function()
  it("angle", function()
    local y = moth.angle(T{-1, 0, 2, 0 / 0})
    assert.is_near(math.pi, y[1]:item(), 1e-6)
    assert.are.same({0, 0}, y[{{2, 3}}]:tolist())
    assert.is_true(y[4]:isnan():item())
    assert.are.equal(moth.float32, T{1LL, -2LL}:angle().dtype)
    local x = T{-1, 2}:requires_grad_()
    x:angle():sum():backward()
    assert.are.same({0, 0}, x.grad:tolist())
  end)

  it("isreal", function()
    assert.are.same({true, true}, moth.isreal(T{1, 0 / 0}):tolist())
    assert.are.equal(moth.bool, T{1LL}:isreal().dtype)
  end)
end)

describe("rsub", function()
  it("subtracts the input from the other argument", function()
    assert.are.same({2, 1}, moth.rsub(T{1, 2}, 3):tolist())
    assert.are.same({3, 1}, T{1, 2}:rsub(T{5, 5}, {alpha = 2}):tolist())
    local x = T{1, 2}:requires_grad_()
    x:rsub(1, 3):sum():backward()
    assert.are.same({-3, -3}, x.grad:tolist())
    assert.are.equal(moth.int64, T{1LL}:rsub(3).dtype)
  end)
end)

-- ---- 0-d tensors, and none ----

local function same(wanted, y)
  if type(wanted) == "number" then
    assert.is_near(wanted, y:item(), 1e-5)
    assert.are.equal(0, y:dim())
  else
    assert.are.same(wanted, y:tolist())
  end
end

describe("a 0-d tensor counts as one element for", function()
  local x = T(3)

  it("index_select", function()
    same(3, x:index_select(1, {1}))
    same(3, x:index_select(-1, T(1LL)))
    assert.has_error_like(function() return x:index_select(1, {1, 1}) end, "'index_select'")
  end)

  it("index_add, index_copy and index_fill, in place as well", function()
    same(5, x:index_add(1, T(1LL), T(2)))
    same(2, x:index_copy(1, {1}, T{2}))
    same(4, x:index_fill(1, {1}, 4))
    local y = T(3)
    assert.is_true(y:index_add_(1, {1}, T{2}) == y)
    same(5, y)
    same(7, y:index_fill_(1, {1}, 7))
    same(8, y:index_copy_(1, T(1LL), T(8)))
  end)

  it("index_reduce", function() same(6, x:index_reduce(1, T(1LL), T(2), "prod")) end)

  it("gather and take", function()
    same({3, 3}, x:gather(1, {1, 1}))
    same(3, x:gather(1, T(1LL)))
    same(2, T{0, 1, 2}:gather(1, T(3LL)))
    same({3, 3}, x:take(T{1LL, 1LL}))
  end)

  it("scatter, scatter_add and scatter_reduce", function()
    same(5, x:scatter(1, T{1LL}, T{5}))
    same({0, 5, 0}, moth.zeros(3):scatter(1, T(2LL), T(5)))
    same(8, x:scatter_add(1, T{1LL}, T{5}))
    same(15, x:scatter_reduce(1, T{1LL}, T{5}, "prod"))
    local y = T(3)
    y:scatter_(1, T{1LL}, 7)
    same(7, y)
  end)

  it("them all, with gradients", function()
    local w, v = T(3):requires_grad_(), T(2):requires_grad_()
    local y = w:index_add(1, {1}, v) + w:gather(1, T{1LL, 1LL}):sum() + v:index_select(1, {1})
    y:backward()
    assert.are.same({3, 2}, {w.grad:item(), v.grad:item()})
  end)

  it("vander, cov and vecdot", function()
    same({{1, 3}}, moth.linalg.vander(x, {N = 2}))
    assert.is_true(moth.cov(x, {fweights = T(1LL)}):isnan():item())
    same({9, 9}, moth.linalg.vecdot(x, moth.ones(2, 3)))
  end)

  it("inner and kron", function()
    same({3, 6}, moth.inner(x, T{1, 2}))
    same({3, 6}, moth.kron(x, T{1, 2}))
  end)
end)

describe("no elements are valid for", function()
  it("gather and scatter: the result has the shape of the positions, of any shape", function()
    local none = moth.zeros(2, 0, {dtype = moth.int64})
    for _, x in ipairs {T(3), moth.ones(3), moth.ones(3, 4), moth.ones(1, 5), moth.ones(1, 3, 4)} do
      assert.are.same({2, 0}, {unpack(x:gather(1, none).shape)})
    end
    same({1, 1, 1}, moth.ones(3):scatter(1, none, moth.ones(3)))
  end)

  it("batch_norm", function()
    for _, shape in ipairs {{0}, {0, 3}, {2, 3, 0}, {2, 0, 4, 4}} do
      local c = shape[2] or 0
      local y = F.batch_norm(moth.zeros(shape), moth.zeros(c), moth.ones(c))
      assert.are.same(shape, {unpack(y.shape)})
    end
  end)

  it("nanmedian and cumulative_trapezoid", function()
    assert.is_true(moth.nanmedian(moth.zeros(0)):isnan():item())
    assert.are.same({2, 0}, {unpack(moth.cumulative_trapezoid(moth.zeros(2, 0)).shape)})
  end)
end)

describe("a vector without a batch is accepted by", function()
  it("feature_alpha_dropout outside training", function()
    same({1, 2}, F.feature_alpha_dropout(T{1, 2}, 0.5, false))
    assert.has_error_like(function() return F.feature_alpha_dropout(T{1, 2}, 0.5, true) end,
      "%(N, C, ...%) is needed")
  end)

  it("multi_margin_loss with a target of one element", function()
    same(0.3, F.multi_margin_loss(T{.1, .2, .7}, T{3LL}))
    same(0.3, F.multi_margin_loss(T{.1, .2, .7}, T(3LL)))
  end)

  it("linear, as its weight", function()
    same({6, 15}, F.linear(T{{1, 2, 3}, {4, 5, 6}}, moth.ones(3)))
    same(6, F.linear(T{1, 2, 3}, moth.ones(3)))
    local w = moth.ones(3):requires_grad_()
    F.linear(T{{1, 2, 3}, {4, 5, 6}}, w):sum():backward()
    same({5, 7, 9}, w.grad)
    assert.has_error_like(function() return F.linear(moth.ones(2, 3), moth.ones(4)) end,
      "'weight' to 'linear'")
  end)
end)

-- ---- arguments ----

describe("std, var, std_mean and var_mean accept", function()
  local x = T{1, 2, 4}

  it("unbiased by position", function()
    same(1.2472191, x:std(false))
    same(1.5555555, x:var(false))
    same(1.5275252, moth.std(x, true))
    same({1.5, 1.5}, T{{1, 2}, {4, 5}}:std(1, false))
    same({{0.5}, {0.5}}, T{{1, 2}, {4, 5}}:std(2, false, true))
    local s, m = moth.std_mean(x, false)
    same(1.2472191, s)
    same(2.3333333, m)
    s, m = moth.var_mean(x, {unbiased = false})
    same(1.5555555, s)
    same(2.3333333, m)
  end)

  it("a fractional correction, with its gradient", function()
    same(1.3662601, x:std{correction = 0.5})
    same(1.8666667, x:var{correction = 0.5})
    local w = T({1, 2, 4}, {dtype = moth.float64}):requires_grad_()
    w:var{correction = 0.5}:backward()
    for i, v in ipairs {-1.0666667, -0.2666667, 1.3333333} do
      assert.is_near(v, w.grad[i]:item(), 1e-6)
    end
  end)

  it("dimensions in a list", function()
    same(2.5, T{{1, 2}, {4, 5}}:var({1, 2}, 0))
    local y = moth.zeros(2)
    assert.is_true(moth.var(T{{1, 2}, {4, 5}}, {dim = 1, out = y}) == y)
    same({4.5, 4.5}, y)
    assert.has_error_like(function() return x:std(1, "no") end, "'correction' to 'std'")
    assert.has_error_like(function() return x:std("no") end, "'dim' to 'std'")
  end)
end)

describe("a 0-d tensor is accepted as a number:", function()
  it("the value of masked_fill, with its gradient", function()
    local x, v = moth.ones(3):requires_grad_(), T(5):requires_grad_()
    local y = x:masked_fill(T{true, false, true}, v)
    same({5, 1, 5}, y)
    y:sum():backward()
    same(2, v.grad)
    same({0, 1, 0}, x.grad)
    local z = moth.ones(3) * 1
    z:masked_fill_(T{true, false, true}, v)
    same({5, 1, 5}, z)
    same({7, 2}, T{1LL, 2LL}:masked_fill(T{true, false}, T(7LL)))
    assert.has_error_like(function() return x:masked_fill(T{true, false, true}, moth.ones(2)) end,
      "'value' to 'masked_fill' %(a number or a 0%-d tensor is needed, got f32 %(2%)")
    assert.has_error_like(function() return T{1LL}:masked_fill(T{true}, T(.5)) end,
      "'value' to 'masked_fill' %(f32 %(%) cannot be written into i64")
  end)

  it("the value of index_fill and fill_, with its gradient", function()
    local x, v = moth.ones(2, 2):requires_grad_(), T(5):requires_grad_()
    local y = x:index_fill(2, {1}, v)
    same({{5, 1}, {5, 1}}, y)
    y:sum():backward()
    same(2, v.grad)
    same({{0, 1}, {0, 1}}, x.grad)
    local z = moth.ones(2) * 1
    same({5, 5}, z:fill_(v))
    assert.is_true(z.requires_grad)
  end)

  it("the start of narrow, bounds of linspace and logspace, the value of full", function()
    same({1, 2}, moth.narrow(moth.arange(5), 1, T(2LL), 2))
    same({0, 0.5, 1}, moth.linspace(T(0), T(1), 3))
    same({1, 10}, moth.logspace(T(0), T(1), 2))
    same({3, 3}, moth.full({2}, T(3)))
  end)

  it("the lr of every optimizer, in its options and in a group's", function()
    for name in ("SGD Adam AdamW RMSprop Adagrad Adadelta Rprop LBFGS NAdam RAdam Adamax ASGD "
      .. "Adafactor Muon"):gmatch "%S+" do
      local w = moth.ones(2, 2):requires_grad_()
      assert.are.equal(0.5, moth.optim[name]({w}, {lr = T(.5)}).param_groups[1].lr)
    end
    local w = moth.ones(1):requires_grad_()
    local optimizer = moth.optim.SGD({{params = {w}, lr = T(.25)}}, {lr = T(.5)})
    w:sum():backward()
    optimizer:step()
    same({.75}, w:detach())
  end)

  it("tolerances of pinv, for all matrices or for each", function()
    local A = T{{1, 0}, {0, 0.125}}
    same({{1, 0}, {0, 0}}, moth.linalg.pinv(A, {rtol = T(.5)}))
    same({{1, 0}, {0, 8}}, moth.linalg.pinv(A, {rtol = T(.0625)}))
    same({{{1, 0}, {0, 0}}, {{1, 0}, {0, 8}}},
      moth.linalg.pinv(moth.stack{A, A}, {rtol = T{.5, .0625}}))
    assert.has_error_like(function() return moth.linalg.pinv(A, {atol = moth.ones(3)}) end,
      "'atol' to 'pinv'")
  end)

  it("but not in other arguments: it may be a second result passed on by mistake", function()
    assert.has_error_like(function() return moth.ones(2):softmax(T(1LL)) end, "second result")
    assert.has_error_like(function() return moth.add(T{1}, 1, {alpha = T(1)}) end, "second result")
    assert.has_error_like(function() return moth.full({2}, T(1):requires_grad_()) end, "fill_value")
  end)
end)

describe("arguments of PyTorch:", function()
  it("out_int32 and sorter of searchsorted, out_int32 of bucketize", function()
    local s = T{1, 3, 5}
    assert.are.equal(moth.int32, moth.searchsorted(s, T{2}, {out_int32 = true}).dtype)
    same({2}, moth.searchsorted(T{5, 1, 3}, T{2}, {sorter = T{2LL, 3LL, 1LL}}))
    same({{2}, {1}}, moth.searchsorted(T{{5, 1, 3}, {9, 8, 7}}, T{{2}, {7}},
      {sorter = T{{5, 1, 3}, {9, 8, 7}}:argsort(2)}))
    local y = moth.bucketize(T{2, 9}, s, {out_int32 = true})
    assert.are.equal(moth.int32, y.dtype)
    same({2, 4}, y)
    assert.are.equal(moth.int32, T{2}:bucketize(s, {out_int32 = true}).dtype)
    assert.has_error_like(function() return moth.searchsorted(s, s, {sorter = T{1LL}}) end,
      "'sorter' to 'searchsorted'")
  end)

  it("dtype of softmin", function()
    local y = F.softmin(T{1, 1}, 1, {dtype = moth.float64})
    assert.are.equal(moth.float64, y.dtype)
    same({.5, .5}, y)
    same({.5, .5}, F.softmin(T{1LL, 1LL}, 1, moth.float32))
  end)

  it("'nuc' of norm", function()
    same(2, moth.norm(moth.eye(2), "nuc"))
    same({3, 7}, moth.stack{T{{1, 0}, {0, 2}}, T{{3, 0}, {0, 4}}}:norm("nuc", {2, 3}))
    assert.has_error_like(function() return moth.norm(moth.eye(2), "neck") end, "'p' to 'norm'")
  end)

  it("pivot of lu, lu_factor and lu_factor_ex", function()
    local A = T{{0, 1}, {2, 3}}
    for _, name in ipairs {"lu", "lu_factor", "lu_factor_ex"} do
      local one, other = moth.linalg[name](A), moth.linalg[name](A, {pivot = true})
      assert.are.same(one:tolist(), other:tolist())
      assert.has_error_like(function() return moth.linalg[name](A, {pivot = false}) end,
        "'pivot' to '" .. name .. "'")
    end
  end)

  it("reduce and value of scatter", function()
    same({1, 0, 0}, moth.zeros(3):scatter(1, T{1LL}, moth.ones(1), {reduce = "add"}))
    same({6, 1, 1}, moth.ones(3):scatter_(1, T{1LL, 1LL}, T{2, 3}, {reduce = "multiply"}))
    same({0, 2, 0}, moth.zeros(3):scatter(1, {2}, {value = 2, reduce = "add"}))
    same({0, 2, 0}, moth.zeros(3):scatter_(1, {2}, {value = 2}))
    local w = T{2, 3}:requires_grad_()
    moth.ones(3):scatter(1, T{1LL, 1LL}, w, {reduce = "multiply"}):sum():backward()
    same({3, 2}, w.grad)
  end)

  it("a list of one number for several sizes", function()
    assert.are.same({1, 1, 3, 3}, {unpack(F.avg_pool2d(moth.ones(1, 1, 4, 4), {2},
      {padding = {1}}).shape)})
    assert.are.same({1, 1, 2, 2}, {unpack(F.conv2d(moth.ones(1, 1, 4, 4), moth.ones(1, 1, 3, 3),
      nil, {2}, {1}).shape)})
    assert.are.equal("Conv2d(1, 1, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))",
      tostring(moth.nn.Conv2d(1, 1, {3}, {padding = {1}})))
  end)

  it("lists and rows of tensors to atleast_1d, 2d and 3d", function()
    local list = moth.atleast_1d {T(1), T(2)}
    same({1}, list[1])
    same({2}, list[2])
    list = moth.atleast_2d(T(1), T{1, 2})
    same({{1}}, list[1])
    same({{1, 2}}, list[2])
    assert.are.same({1, 2, 1}, {unpack(moth.atleast_3d(T{1, 2}).shape)})
    assert.are.same({1}, {unpack(moth.atleast_1d {input = T(1)}.shape)})
  end)

  it("weights with several dimensions for linear_cross_entropy", function()
    local x, w = moth.arange(6):view(2, 3):float(), moth.arange(60):view(4, 5, 3) / 50
    local target = T{{1LL, 2LL, 3LL, 4LL, 1LL}, {4LL, 3LL, 2LL, 1LL, 2LL}}
    assert.is_near(3.9509, F.linear_cross_entropy(x, w, target):item(), 1e-4)
    local bias = moth.arange(20):view(4, 5) / 10
    assert.is_near(46.8808, F.linear_cross_entropy(x, w, target,
      {linear_bias = bias, reduction = "sum"}):item(), 1e-4)
    local loss = moth.nn.LinearCrossEntropyLoss(3, 4, {out_features = {5}, bias = true})
    assert.are.same({20, 3}, {unpack(loss.linear.weight.shape)})
    moth.no_grad(function()
      loss.linear.weight:copy_(w:view(20, 3))
      loss.linear.bias:copy_(bias:view(20))
    end)
    loss(x, target):backward()
    assert.is_near(4.68808, loss(x, target):item(), 1e-4)
    assert.are.same({20, 3}, {unpack(loss.linear.weight.grad.shape)})
  end)
end)

-- ---- dtypes ----

describe("bools are accepted by", function()
  local b = T{true, false}

  local function gives(dtype, wanted, y)
    assert.are.equal(dtype, y.dtype)
    same(wanted, y)
  end

  it("square, sign and sgn", function()
    gives(moth.int64, {1, 0}, b:square())
    gives(moth.bool, {true, false}, b:sign())
    gives(moth.bool, {true, false}, moth.sgn(b))
  end)

  it("clamp, clamp_min and clamp_max", function()
    gives(moth.int64, {2, 2}, b:clamp_min(2))
    gives(moth.float32, {.5, 0}, b:clamp_max(.5))
    gives(moth.bool, {true, true}, b:clamp_min(T(true)))
    gives(moth.int64, {1, 0}, b:clamp(0, 1))
  end)

  it("kron, addr and inner of 0-d", function()
    gives(moth.bool, {true, true, false, false}, moth.kron(b, T{true, true}))
    gives(moth.bool, {{true, true}}, moth.addr(T{{true, false}}, T{true}, T{false, true}))
    gives(moth.float32, {{1, 2}}, moth.addr(T{{true, false}}, T{1}, T{0, 2}))
    gives(moth.bool, {true, false}, moth.inner(b, T(true)))
  end)

  it("scatter_reduce and index_reduce", function()
    gives(moth.bool, {true, false, true}, moth.zeros(3, {dtype = moth.bool}):scatter_reduce(1,
      T{1LL, 3LL}, T{true, true}, "sum"))
    gives(moth.bool, {true, false}, b:index_reduce(1, T{1LL, 2LL}, T{true, true}, "amin"))
  end)

  it("unfold and fold", function()
    gives(moth.bool, {{{true, false, false, true}}}, F.unfold(T{{{{true, false}, {false, true}}}},
      1))
    gives(moth.bool, {{{{true, false}}}}, F.fold(T{{{true, false}}}, {1, 2}, 1))
  end)

  it("cosine_embedding_loss, cosine_similarity and logaddexp2", function()
    same(0.2928932, F.cosine_embedding_loss(T{{true, false}}, T{{1, 1}}, T{1}))
    assert.is_near(0.7071068, F.cosine_similarity(T{{true, false}}, T{{1, 1}})[1]:item(), 1e-6)
    same({2, 1}, moth.logaddexp2(b, b))
  end)

  it("embedding, as rows of a table", function()
    gives(moth.bool, {{false, true}}, F.embedding(T{2LL}, T{{true, false}, {false, true}}))
    gives(moth.int64, {{3, 4}}, F.embedding({2}, T{{1LL, 2LL}, {3LL, 4LL}}))
  end)
end)

describe("integers have exact integer results in", function()
  local x = moth.arange(16):view(1, 1, 4, 4)

  it("conv1d, conv2d and conv3d", function()
    same({{{8, 13}}}, F.conv1d(T{{{1LL, 2LL, 3LL}}}, T{{{2LL, 3LL}}}, T{0LL}))
    local y = F.conv2d(x[{{}, {}, {1, 3}, {1, 3}}], T{{{{1LL, 2LL}, {3LL, 4LL}}}})
    same({{{{34, 44}, {74, 84}}}}, y)
    assert.are.equal(moth.int64, y.dtype)
    same({{{{{3}}}}}, F.conv3d(moth.ones(1, 1, 1, 1, 3, {dtype = moth.int64}),
      moth.ones(1, 1, 1, 1, 3, {dtype = moth.int64})))
    same({{{2, 3, 4}}}, F.conv1d(T{{{1LL, 2LL, 3LL}}}, T{{{1LL}}}, T{1LL}, {padding = "same"}))
    local large = 2 ^ 53
    local exact = F.conv1d(T{{{1LL, 2LL}}}, T{{{large, 1}}}:long())
    assert.are.equal(9007199254740994LL, exact:item())
  end)

  it("conv_transpose1d, 2d and 3d", function()
    same({{{1, 10, 2, 20, 3, 30}}}, F.conv_transpose1d(T{{{1LL, 2LL, 3LL}}}, T{{{1LL, 10LL}}}, nil,
      2))
    same({{{{1, 3}, {3, 9}}}}, F.conv_transpose2d(T{{{{1LL}}}}, T{{{{1LL, 3LL}, {3LL, 9LL}}}}))
    assert.are.same({1, 1, 2, 2, 2}, {unpack(F.conv_transpose3d(
      moth.ones(1, 1, 1, 1, 1, {dtype = moth.int64}),
      moth.ones(1, 1, 2, 2, 2, {dtype = moth.int64})).shape)})
  end)

  it("avg_pool1d, 2d and 3d, which round towards 0", function()
    same({{{{1, 2}, {5, 10}}}}, F.avg_pool2d(x, 3, 2, 1))
    same({{{-1, 2}}}, F.avg_pool1d(T{{{-2LL, -1LL, 2LL, 3LL}}}, 2))
    same({{{{{7}}}}}, F.avg_pool3d(moth.arange(16):view(1, 1, 1, 4, 4), {1, 4, 4}))
  end)

  it("max_pool2d and 3d, with positions", function()
    local y, at = F.max_pool2d(x, 2, {return_indices = true})
    same({{{{5, 7}, {13, 15}}}}, y)
    same({{{{6, 8}, {14, 16}}}}, at)
    y, at = F.max_pool2d(x, 3, 2, 1, {return_indices = true})
    same({{{{5, 7}, {13, 15}}}}, y)
    same({{{{6, 8}, {14, 16}}}}, at)
    same({{{{{15}}}}}, F.max_pool3d(x:unsqueeze(1), {1, 4, 4}))
    same({{{{5, 7}, {13, 15}}}}, F.max_pool2d(x:to(moth.uint8), 2))
  end)

  it("local_response_norm, lp_pool and margin_ranking_loss, as floats", function()
    local y = F.local_response_norm(moth.arange(8):view(1, 4, 2), 2)
    assert.is_near(5.9883, y[{1, 4, 1}]:item(), 1e-4)
    assert.is_near(3.6055512, F.lp_pool1d(T{{{2LL, 3LL}}}, 2, 2):item(), 1e-5)
    same(1, F.margin_ranking_loss(T{1LL, 3LL}, T{2LL, 1LL}, T{1LL, -1LL}, {margin = -.5}))
  end)

  it("l1_loss, dist and addr together with floats", function()
    same({1, 2}, F.l1_loss(T{1LL, 2LL}, T{2LL, 4LL}, "none"))
    same(5, moth.dist(T{0LL, 0LL}, T{3, 4}))
    same({{1, 3}}, moth.addr(T{{1LL, 1LL}}, T{1}, T{0, 2}))
  end)

  it("interpolate of uint8, rounded to the nearest", function()
    local image = T{{{{30, 60}, {90, 120}}}}:to(moth.uint8)
    local y = F.interpolate(image, {scale_factor = 2, mode = "nearest"})
    assert.are.equal(moth.uint8, y.dtype)
    same({{{{30, 30, 60, 60}, {30, 30, 60, 60}, {90, 90, 120, 120}, {90, 90, 120, 120}}}}, y)
    same({{{{75}}}}, F.interpolate(image, {1, 1}, {mode = "bilinear"}))
    y = F.interpolate(image, {1, 3}, {mode = "bilinear", align_corners = true})
    assert.are.equal(moth.uint8, y.dtype)
    same({{{{30, 45, 60}}}}, y)
    y = F.interpolate(T{{{{0, 255}}}}:to(moth.uint8), {1, 8}, {mode = "bicubic"})
    assert.are.same({0, 255}, {y:min():item(), y:max():item()})
    same({{{{75}}}}, F.interpolate(image, {1, 1}, {mode = "bilinear", antialias = true}))
  end)

  it("in-place forms and out", function()
    local b = T{true, false}
    assert.is_true(b:sign_() == b)
    local out = moth.zeros(2, {dtype = moth.int64})
    assert.is_true(moth.square(b, {out = out}) == out)
    same({1, 0}, out)
  end)
end)

describe("half types are accepted by", function()
  it("nextafter: the neighbours in their own grid", function()
    for _, row in ipairs {
      {moth.float16, {1.0009765625, -1.9990234375, 2 ^ -24, -2 ^ -24, math.huge, 65504,
        0.99951171875}},
      {moth.bfloat16, {1.0078125, -1.9921875, 2 ^ -133, -2 ^ -133, 66048, (2 - 2 ^ -7) * 2 ^ 127,
        0.99609375}},
    } do
      local x = T({1, -2, 0, 0, row[1] == moth.float16 and 65504 or 65536, math.huge, 1},
        {dtype = row[1]})
      local y = T({2, -1, 1, -1, math.huge, 0, 0}, {dtype = row[1]})
      local z = moth.nextafter(x, y)
      assert.are.equal(row[1], z.dtype)
      same(row[2], z)
      assert.is_true(x:nextafter_(y) == x)
      same(row[2], x)
    end
  end)

  it("matrix_exp", function()
    local y = moth.matrix_exp(moth.eye(2, {dtype = moth.bfloat16}))
    assert.are.equal(moth.bfloat16, y.dtype)
    same({{2.71875, 0}, {0, 2.71875}}, y)
  end)
end)

describe("further numbers in tensors, and tensors as numbers:", function()
  it("tensor_split by a tensor", function()
    local parts = moth.tensor_split(moth.arange(5), T{2LL, 4LL})
    assert.are.same({{0, 1}, {2, 3}, {4}}, {parts[1]:tolist(), parts[2]:tolist(),
      parts[3]:tolist()})
    assert.are.equal(2, #moth.arange(5):tensor_split(T(2LL)))
  end)

  it("betas of Adam", function()
    local optimizer = moth.optim.Adam({moth.ones(1):requires_grad_()},
      {betas = {T({.5}, {dtype = moth.float64})[1], .99}})
    assert.are.same({.5, .99}, optimizer.param_groups[1].betas)
  end)

  it("the base of float_power", function()
    local y = moth.float_power(2, T{3, 0.5})
    assert.are.equal(moth.float64, y.dtype)
    assert.is_near(2 ^ .5, y[2]:item(), 1e-12)
  end)
end)

describe("a net that transposes in place", function()
  local nn = moth.nn

  it("is exported with the same results", function()
    local Net = nn.class("Net", nn.Module)
    function Net:init() self.fc = nn.Linear(3, 4) end
    function Net:forward(x)
      local y = self.fc(x)
      y:t_()
      y = y + 1
      return y:unsqueeze_(1):squeeze_(1):transpose_(1, 2) * 2, y:std(1, false)
    end
    local net, path = Net(), os.tmpname()
    local x = moth.randn(2, 3)
    moth.onnx.export(net, x, path)
    local wanted, found = {net(x)}, {moth.onnx.load(path)(x)}
    os.remove(path)
    for k = 1, 2 do assert.is_true(moth.allclose(wanted[k], found[k], 1e-5, 1e-6)) end
  end)

  it("raises if it transposes its input", function()
    local path = os.tmpname()
    assert.has_error_like(function()
      moth.onnx.export(function(x) return x:t_() + 1 end, moth.randn(2, 3), path)
    end, "'input' to 't_' %(an exported net cannot change the shape")
    os.remove(path)
  end)
end)

it("optimizers take fused, foreach and capturable, which change nothing", function()
  for name in ("SGD Adam AdamW RMSprop Adagrad NAdam"):gmatch "%S+" do
    local p = moth.ones(2):requires_grad_()
    local made = moth.optim[name] { { p }, lr = 0.1, fused = true, foreach = false,
      capturable = true }
    p:sum():backward()
    made:step()
    local q = moth.ones(2):requires_grad_()
    local plain = moth.optim[name] { { q }, lr = 0.1 }
    q:sum():backward()
    plain:step()
    assert.same(q:tolist(), p:tolist())
    assert.is_nil(made.param_groups[1].fused)
  end
end)
