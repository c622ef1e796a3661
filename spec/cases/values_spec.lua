-- Values and gradients of inputs that once gave another number, or an error: in-place reductions,
-- half-precision optimizers, log-probabilities of large counts, results that follow from nothing.

local moth = require "moth"
local nn, F, L = moth.nn, moth.nn.functional, moth.linalg
local T = moth.tensor

local function near(wanted, x, tolerance)
  if type(wanted) ~= "cdata" then wanted = T(wanted, { dtype = x.dtype }) end
  assert.same({ unpack(wanted.shape) }, { unpack(x.shape) })
  local ok = moth.allclose(x:double(), wanted:double(), { rtol = tolerance or 1e-5, atol = 1e-7 })
  assert(ok, ("%s\nwanted %s"):format(x, wanted))
end

describe("scatter_reduce_ in place", function()
  local grads = { -- by reduction: with the input's own values, without
    sum = { { 1, 1, 1 }, { 1, 1, 1 } }, mean = { { 1 / 3, 1 / 3, .5 }, { .5, .5, 1 } },
    prod = { { 6, 3, 3 }, { 2, 1, 1 } }, amax = { { 0, 0, 0 }, { 0, 1, 1 } },
    amin = { { 1, 0, 1 }, { 1, 0, 1 } },
  }
  local own = { sum = { 1, 1, 1 }, mean = { 1 / 3, .5, 1 }, prod = { 2, 3, 1 },
                amax = { 1, 1, 1 }, amin = { 0, 0, 1 } }
  for how, wanted in pairs(grads) do
    for i, include in ipairs { true, false } do
      it(("has gradients by %s, include_self = %s"):format(how, tostring(include)), function()
        local s = T { 1, 2, 3 }:requires_grad_()
        local y = moth.full({ 3 }, how == "amin" and 9 or how == "amax" and 9 or 3)
        y:scatter_reduce_(1, T { 1LL, 1LL, 2LL }, s, { reduce = how, include_self = include })
        y:sum():backward()
        near(wanted[i], s.grad)
      end)
    end

    it("has gradients for the tensor that it writes, by " .. how, function()
      local x = moth.full({ 3 }, 3):requires_grad_()
      local y = x * 1
      if how == "amin" then y = y + 1 end
      y:scatter_reduce_(1, T { 1LL, 1LL, 2LL }, T { 1, 2, 3 }, how)
      if how == "sum" or how == "prod" then
        y:sum():backward()
        near(how == "sum" and own.sum or own.prod, x.grad)
      else
        local z = x:detach():requires_grad_()
        local same = z * 1
        if how == "amin" then same = same + 1 end
        same:scatter_reduce(1, T { 1LL, 1LL, 2LL }, T { 1, 2, 3 }, how):sum():backward()
        y:sum():backward()
        near(z.grad, x.grad)
      end
    end)
  end

  it("has them through a view", function()
    local s = T { 1, 2 }:requires_grad_()
    local y = moth.zeros(2, 3)
    y[2]:scatter_reduce_(1, T { 1LL, 1LL }, s, "sum");
    (y * T { { 1, 1, 1 }, { 5, 1, 1 } }):sum():backward()
    near({ 5, 5 }, s.grad)
  end)
end)

describe("functions that return more beside a gradient", function()
  it("hand it on without a history", function()
    local function f(x) return (x * x):sum(), x * 2, { again = x * 3 } end
    for _, name in ipairs { "grad", "grad_and_value", "jacrev", "jacfwd" } do
      local list = { moth.func[name](f, { has_aux = true })(T { 1, 2 }) }
      local aux, more = list[#list - 1], list[#list]
      near({ 2, 4 }, aux)
      near({ 3, 6 }, more.again)
      assert.is_false(aux.requires_grad)
      assert.is_false(more.again.requires_grad)
    end
  end)

  it("keep the history of a tensor that the user differentiates", function()
    local x = T { 1, 2 }:requires_grad_()
    local _, aux = moth.func.grad(function(v) return (v * v):sum(), v * 2 end,
      { has_aux = true })(x)
    aux:sum():backward()
    near({ 2, 2 }, x.grad)
  end)
end)

describe("quantile", function()
  it("has a gradient for the share", function()
    local q = T(.4):requires_grad_()
    moth.quantile(T { 1, 2, 3, 4 }, q):backward()
    near(3, q.grad)
    local several = T { .4, .5, 1 }:requires_grad_()
    moth.quantile(T { { 1, 2, 3, 5 }, { 0, 8, 4, 5 } }, several, { dim = 2 }):sum():backward()
    near({ 3 + 3, 3 + 3, 0 }, several.grad)
  end)

  it("of what is not NaN has it too", function()
    local q = T(.4):requires_grad_()
    moth.nanquantile(T { 1, 2, 0 / 0, 3, 4 }, q):backward()
    near(3, q.grad)
  end)
end)

describe("lu and lu_factor", function()
  it("of a wide matrix have gradients", function()
    local A = T { { 1, 2, 3 }, { 4, 5, 7 } }:requires_grad_()
    local LU = L.lu_factor(A)
    local w = moth.arange(0, 6):view(2, 3):float();
    (LU * w * w):sum():backward()
    near({ { -61.5, 16, 25 }, { 15.375, -3, -2.25 } }, A.grad)
    A.grad = nil
    local _, lower, upper = L.lu(A)
    local v = w + 1;
    ((lower * moth.arange(0, 4):view(2, 2)):sum() + (upper * v * v):sum()):backward()
    near({ { -93.75, 25, 36 }, { 24.4375, -2.25, 0 } }, A.grad)
  end)

  it("of a tall matrix have gradients", function()
    local A = T { { 1, 4 }, { 2, 5 }, { 3, 7 } }:requires_grad_()
    local LU = L.lu_factor(A)
    local w = moth.arange(0, 6):view(3, 2):float();
    (LU * w * w):sum():backward()
    near({ { -12.66667, 6 }, { -29.66667, 15 }, { 24, -11 } }, A.grad)
  end)

  it("have second ones, of stacks too", function()
    for _, shape in ipairs { { 2, 3, 5 }, { 2, 5, 3 }, { 4, 1 }, { 1, 4 }, { 3, 3 } } do
      local x = moth.randn(shape, { dtype = moth.float64 }):requires_grad_()
      local function f(a) return (L.lu_factor(a)) end
      assert(moth.autograd.gradcheck(f, { x }))
      assert(moth.autograd.gradgradcheck(f, { x }))
    end
  end)

  it("of nothing have the gradient of nothing", function()
    for _, shape in ipairs { { 0, 3 }, { 3, 0 } } do
      local x = moth.randn(shape):requires_grad_()
      L.lu_factor(x):sum():backward()
      assert.same(shape, { unpack(x.grad.shape) })
    end
  end)
end)

describe("a result", function()
  it("of diff with n = 0 is the input, whatever stands before and after", function()
    near({ 1, 2, 4 }, moth.diff(T { 1, 2, 4 }, 0, 1, T { 0 }))
    near({ 1, 2, 4 }, moth.diff(T { 1, 2, 4 }, 0, 1, T { 0 }, T { 9 }))
  end)

  it("of squeeze with no dimensions named is the input", function()
    assert.same({ 1, 2, 1 }, { unpack(moth.squeeze(moth.ones(1, 2, 1), {}).shape) })
    assert.same({ 1, 2, 1 }, { unpack(moth.ones(1, 2, 1):squeeze({}).shape) })
    assert.same({ 2 }, { unpack(moth.ones(1, 2, 1):squeeze().shape) })
  end)

  it("of cov has the dtype of what takes part", function()
    local x = T({ 1, 2 }, { dtype = moth.bfloat16 })
    local y = moth.cov(x, { aweights = T { 1, 2 } })
    assert.equal(moth.float32, y.dtype)
    near(0.5, y)
    assert.equal(moth.float64, moth.cov(x, { aweights = T({ 1, 2 },
      { dtype = moth.float64 }) }).dtype)
    assert.equal(moth.bfloat16, moth.cov(x, { fweights = T { 1LL, 2LL } }).dtype)
    assert.equal(moth.bfloat16, moth.cov(x).dtype)
  end)

  it("of sum_to_size without sizes is a sum", function()
    local y = T(true):sum_to_size({})
    assert.equal(moth.int64, y.dtype)
    assert.equal(1, y:item())
    assert.equal(moth.int64, T({ 1, 2 }, { dtype = moth.int32 }):sum_to_size({}).dtype)
    assert.equal(moth.bool, T { true, true }:sum_to_size({ 2 }).dtype)
  end)

  it("of lstsq that the driver does not make is empty", function()
    for _, batch in ipairs { {}, { 3 } } do
      local A = moth.eye(2):expand(#batch > 0 and { 3, 2, 2 } or { 2, 2 })
      local B = moth.ones(#batch > 0 and { 3, 2, 1 } or { 2, 1 })
      local _, residuals, rank, values = L.lstsq(A, B, { driver = "gels" })
      assert.same({ 0 }, { unpack(residuals.shape) })
      assert.same({ 0 }, { unpack(rank.shape) })
      assert.same({ 0 }, { unpack(values.shape) })
      _, _, rank, values = L.lstsq(A, B, { driver = "gelsy" })
      assert.same(batch, { unpack(rank.shape) })
      assert.same({ 0 }, { unpack(values.shape) })
      for _, driver in ipairs { "gelsd", "gelss" } do
        _, _, rank, values = L.lstsq(A, B, { driver = driver })
        assert.same(batch, { unpack(rank.shape) })
        assert.equal(2, values:size(-1))
      end
    end
  end)
end)

describe("products of half types with something added", function()
  -- The error of the root mean square against the same in f64, rounded once, is the least there is.
  local function once(f, args)
    local wide = {}
    for i, x in ipairs(args) do wide[i] = type(x) == "cdata" and x:double() or x end
    local y = f(unpack(args))
    assert.equal(moth.bfloat16, y.dtype)
    local wanted = f(unpack(wide)):to(moth.bfloat16)
    local differ = y:ne(wanted):sum():item()
    assert(differ <= y:numel() / 100, ("%d of %d elements differ"):format(differ, y:numel()))
  end
  local function half(...) return moth.randn(..., { dtype = moth.bfloat16 }) end

  it("are rounded once", function()
    once(moth.addmm, { half { 32, 16 }, half { 32, 24 }, half { 24, 16 }, -4.775, 2.0315 })
    once(moth.addmm, { half { 32, 16 }, half { 32, 24 }, half { 24, 16 } })
    once(moth.baddbmm, { half { 2, 32, 16 }, half { 2, 32, 24 }, half { 2, 24, 16 } })
    once(moth.addbmm, { half { 32, 16 }, half { 5, 32, 24 }, half { 5, 24, 16 } })
    once(moth.addmv, { half { 320 }, half { 320, 24 }, half { 24 }, 0.3 })
    once(moth.addr, { half { 32, 16 }, half { 32 }, half { 16 } })
  end)

  it("name the dtypes that came where they do not fit", function()
    assert.has_error(function() moth.addmm(half { 2, 2 }, half { 2, 3 }, half { 2, 2 }) end,
      nil)
    local _, why = pcall(moth.addmm, half { 2, 2 }, half { 2, 3 }, half { 2, 2 })
    assert.matches("bf16 %(2, 2%)", why)
  end)

  it("make Muon's steps as exact as PyTorch's", function()
    moth.manual_seed(0)
    local g = moth.randn(64, 32)
    local p = nn.Parameter(moth.zeros(64, 32))
    p.grad = g
    moth.optim.Muon({ p }, { lr = 1, weight_decay = 0, momentum = 0, nesterov = false,
      adjust_lr_fn = "spectral_unclamped" }):step()
    local y = g:double():t() / g:double():norm()
    for _ = 1, 5 do
      local gram = y:matmul(y:t())
      y = y * 3.4445 + (gram * -4.775 + gram:matmul(gram) * 2.0315):matmul(y)
    end
    local off = (-p:detach():double() / math.sqrt(2) - y:t()):square():mean():sqrt():item()
    assert(off < 0.0019, off)
  end)
end)

describe("what follows from nothing", function()
  it("is attached, and has gradients of zeros", function()
    local x = moth.rand(2, 2):requires_grad_()
    L.matrix_power(x, 0):sum():backward()
    near({ { 0, 0 }, { 0, 0 } }, x.grad)
    local one = moth.rand(1, 2):requires_grad_()
    F.pdist(one):sum():backward()
    near({ { 0, 0 } }, one.grad)
    local none = moth.rand(0, 0):requires_grad_()
    L.householder_product(none, moth.rand(0)):sum():backward()
    assert.same({ 0, 0 }, { unpack(none.grad.shape) })
    local m = moth.rand(3, 2):requires_grad_()
    L.householder_product(m, moth.rand(0)):sum():backward()
    near({ { 0, 0 }, { 0, 0 }, { 0, 0 } }, m.grad)
  end)
end)

describe("attention with weights", function()
  local function run(need_weights)
    moth.manual_seed(3)
    local m = nn.MultiheadAttention(4, 2)
    local x = moth.rand(3, 1, 4):requires_grad_()
    local mask = T { { false, false, false }, { true, true, true }, { false, true, false } }
    local y, w = m(x, x, x, { need_weights = need_weights, attn_mask = mask })
    y:square():sum():backward()
    return x.grad, w, y:detach()
  end

  it("of a row that is masked as a whole has gradients that are numbers", function()
    local grad, weights, y = run(true)
    local wanted, _, same = run(false)
    near(wanted, grad)
    near(same, y)
    near({ 0, 0, 0 }, weights[1][2])
    near(1, weights[1][3]:sum())
  end)
end)

describe("pinv of symmetric matrices", function()
  it("has a symmetric gradient", function()
    local A = T { { 2, 1 }, { 1, 3 } }:requires_grad_()
    L.pinv(A, { hermitian = true }):sum():backward()
    near({ { -0.16, -0.08 }, { -0.08, -0.04 } }, A.grad)
  end)

  it("reads the lower triangle alone", function()
    near(L.inv(T { { 2, 1 }, { 1, 3 } }), L.pinv(T { { 2, 77 }, { 1, 3 } }, { hermitian = true }))
  end)
end)
