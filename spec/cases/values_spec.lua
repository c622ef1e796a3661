-- Values and gradients of inputs that once had wrong results or raised: in-place reductions,
-- half-precision optimizers, log-probabilities of large counts, results without an input.

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
  local grads = { -- reduction -> results with include_self = true, false
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

  it("has gradients through a view", function()
    local s = T { 1, 2 }:requires_grad_()
    local y = moth.zeros(2, 3)
    y[2]:scatter_reduce_(1, T { 1LL, 1LL }, s, "sum");
    (y * T { { 1, 1, 1 }, { 5, 1, 1 } }):sum():backward()
    near({ 5, 5 }, s.grad)
  end)
end)

describe("functions with an auxiliary result", function()
  it("return it without a history", function()
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
  it("has a gradient for q", function()
    local q = T(.4):requires_grad_()
    moth.quantile(T { 1, 2, 3, 4 }, q):backward()
    near(3, q.grad)
    local several = T { .4, .5, 1 }:requires_grad_()
    moth.quantile(T { { 1, 2, 3, 5 }, { 0, 8, 4, 5 } }, several, { dim = 2 }):sum():backward()
    near({ 3 + 3, 3 + 3, 0 }, several.grad)
  end)

  it("that skips NaN has it too", function()
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

  it("have second derivatives, also in batches", function()
    for _, shape in ipairs { { 2, 3, 5 }, { 2, 5, 3 }, { 4, 1 }, { 1, 4 }, { 3, 3 } } do
      local x = moth.randn(shape, { dtype = moth.float64 }):requires_grad_()
      local function f(a) return (L.lu_factor(a)) end
      assert(moth.autograd.gradcheck(f, { x }))
      assert(moth.autograd.gradgradcheck(f, { x }))
    end
  end)

  it("of an empty matrix have an empty gradient", function()
    for _, shape in ipairs { { 0, 3 }, { 3, 0 } } do
      local x = moth.randn(shape):requires_grad_()
      L.lu_factor(x):sum():backward()
      assert.same(shape, { unpack(x.grad.shape) })
    end
  end)
end)

describe("a result", function()
  it("of diff with n = 0 is the input, with any prepend and append", function()
    near({ 1, 2, 4 }, moth.diff(T { 1, 2, 4 }, 0, 1, T { 0 }))
    near({ 1, 2, 4 }, moth.diff(T { 1, 2, 4 }, 0, 1, T { 0 }, T { 9 }))
  end)

  it("of squeeze with an empty list of dims is the input", function()
    assert.same({ 1, 2, 1 }, { unpack(moth.squeeze(moth.ones(1, 2, 1), {}).shape) })
    assert.same({ 1, 2, 1 }, { unpack(moth.ones(1, 2, 1):squeeze({}).shape) })
    assert.same({ 2 }, { unpack(moth.ones(1, 2, 1):squeeze().shape) })
  end)

  it("of cov has the promoted dtype of its arguments", function()
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

  it("of lstsq that the driver does not compute is empty", function()
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

describe("products of a few long rows", function()
  for _, dtype in ipairs { moth.float16, moth.float32, moth.float64, moth.int64 } do
    it("are right in each row, of " .. tostring(dtype), function()
      for _, n in ipairs { 1000, 100000, 300000 } do
        local x = moth.ones({ 5, n }, { dtype = dtype })
        x:narrow(2, n / 4, 2):copy_(T { { 3, 1 }, { 1, 5 }, { 7, 2 }, { 11, 1 }, { 2, 2 } })
        near({ 3, 5, 14, 11, 4 }, x:prod(2))
        near({ 3, 5, 14, 11, 4 }, x:t():contiguous():prod(1))
        near({ 3, 5, 14, 11, 4 }, x:reshape(5, n / 50, 50):prod { 2, 3 })
      end
    end)
  end
end)

describe("half-type products with an addend", function()
  -- The root mean square error against f64 is minimal for the f64 result rounded once.
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

  it("name both dtypes if they do not match", function()
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

describe("a result that does not depend on its input", function()
  it("has a history, and zero gradients", function()
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

  it("has finite gradients for a fully masked row", function()
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

  it("reads only the lower triangle", function()
    near(L.inv(T { { 2, 1 }, { 1, 3 } }), L.pinv(T { { 2, 77 }, { 1, 3 } }, { hermitian = true }))
  end)
end)

-- ---- distributions: mpmath's numbers for the same float32 parameters ----

local D = moth.distributions

local function compared(title, rows)
  describe(title, function()
    for _, row in ipairs(rows) do
      it("is right to the digits of float32: " .. row[1], function()
        local y = assert(loadstring("local D, T, kl = ... return " .. row[1]))(D, T,
          D.kl_divergence)
        assert.equal(moth.float32, y.dtype)
        local got = y:item()
        local off = math.abs(got - row[2])
        assert(off <= 2.4e-7 * math.max(math.abs(row[2]), 0.5), ("%.9g, not %.9g"):format(got,
          row[2]))
      end)
    end
  end)
end

compared("log_prob", {
    { "D.Binomial(1e8, 0.5):log_prob(5e7)", -9.43613172712 },
    { "D.Binomial(1e8, 0.1):log_prob(1e7)", -8.92530611051 },
    { "D.Binomial(1e8, 1e-10):log_prob(0)", -0.010000000134 },
    { "D.Binomial(1e8, 5e-8):log_prob(7)", -2.25909593565 },
    { "D.Binomial(1e10, 0.25):log_prob(2.5e9)", -11.5948757814 },
    { "D.Binomial(1e7, 0.999999):log_prob(9999990)", -2.07943507001 },
    { "D.Binomial(20, 0.3):log_prob(7)", -1.80629259815 },
    { "D.NegativeBinomial(1e8, 0.5):log_prob(1e8)", -10.4758524967 },
    { "D.NegativeBinomial(0.5, 0.99999):log_prob(1e5)", -13.0859761483 },
    { "D.NegativeBinomial(1e8, 1e-7):log_prob(9)", -2.07856179482 },
    { "D.NegativeBinomial(1e-20, 0.5):log_prob(3)", -49.229755722 },
    { "D.Poisson(1e10):log_prob(1e10)", -12.4318639982 },
    { "D.Poisson(1e8):log_prob(100010000)", -10.6293122377 },
    { "D.Poisson(4.5):log_prob(3)", -1.7795272789 },
    { "D.Poisson(1e30):log_prob(1e30)", -35.4577149356 },
    { "D.Gamma(1e8, 1):log_prob(1e8)", -10.129278906 },
    { "D.Gamma(1e8, 1e4):log_prob(10001)", -1.4190051982 },
    { "D.Gamma(0.5, 2):log_prob(0.25)", -0.0326441720848 },
    { "D.Chi2(1e8):log_prob(1e8)", -10.4758524971 },
    { "D.InverseGamma(1e8, 1e8):log_prob(1.0001)", 7.7912025656 },
    { "D.Beta(1e8, 1e8):log_prob(0.5)", 9.33112260836 },
    { "D.Beta(1e8, 3):log_prob(0.99999994)", 15.3373658188 },
    { "D.Beta(1e6, 3e6):log_prob(0.25)", 7.51895205285 },
    { "D.Beta(0.5, 0.5):log_prob(0.125)", -0.0382434186972 },
    { "D.Dirichlet(T{1e8, 1e8}):log_prob(T{0.5, 0.5})", 9.33112260836 },
    { "D.Dirichlet(T{1e6, 2e6, 1e6}):log_prob(T{0.25, 0.5, 0.25})", 15.0967956166 },
    { "D.Dirichlet(T{2, 1e6, 0.5}):log_prob(T{2e-6, 0.9999975, 5e-7})", 25.5949831069 },
    { "D.Multinomial(1e8, T{0.25, 0.75}):log_prob(T{2.5e7, 7.5e7})", -9.29229069201 },
    { "D.Multinomial(1e7, T{0.5, 0.25, 0.25}):log_prob(T{5e6, 2.5e6, 2.5e6})", -16.223104841 },
    { "D.StudentT(1e6):log_prob(1)", -1.4189390332 },
    { "D.StudentT(1e30):log_prob(1)", -1.4189385332 },
    { "D.StudentT(3):log_prob(1e25)", -229.062173397 },
    { "D.StudentT(1):log_prob(2)", -2.75416779828 },
    { "D.Cauchy(0, 1):log_prob(1e20)", -93.2481336457 },
    { "D.Cauchy(0, 1e-20):log_prob(1e30)", -185.351537387 },
    { "D.HalfCauchy(1):log_prob(1e25)", -115.580837267 },
    { "D.FisherSnedecor(1e8, 1e8):log_prob(1)", 7.59825465571 },
    { "D.FisherSnedecor(4, 1e8):log_prob(1.5)", -1.20824054077 },
    { "D.FisherSnedecor(1e8, 4):log_prob(1.5)", -1.16343431209 },
    { "D.FisherSnedecor(3, 5):log_prob(0.75)", -0.768474861214 },
    { "D.Pareto(1, 1e7):log_prob(1.0000001)", 14.9260027073 },
    { "D.Weibull(1, 1e6):log_prob(0.9999999)", 12.8086793755 },
    { "D.VonMises(0, 1e6):log_prob(0.001)", 5.48881661495 },
})

compared("entropy", {
    { "D.Gamma(1e8, 2):entropy()", 9.93613172129 },
    { "D.Gamma(0.5, 2):entropy()", -0.602537250646 },
    { "D.Chi2(1e9):entropy()", 12.1271450413 },
    { "D.InverseGamma(1e8, 2):entropy()", -25.5189353955 },
    { "D.Beta(1e8, 1e7):entropy()", -9.08565968407 },
    { "D.Beta(0.5, 3):entropy()", -1.1080502011 },
    { "D.Dirichlet(T{1e8, 1e6, 2}):entropy()", -26.9623282109 },
    { "D.StudentT(1e7):entropy()", 1.4189386332 },
    { "D.StudentT(3):entropy()", 1.77347757186 },
})

compared("kl_divergence", {
    { "kl(D.Gamma(1e8, 1), D.Gamma(100010000, 1))", 0.499983336666 },
    { "kl(D.Gamma(0.5, 1), D.Gamma(2, 3))", 1.17567551877 },
    { "kl(D.InverseGamma(1e8, 1), D.InverseGamma(100010000, 1))", 0.499983336666 },
    { "kl(D.Beta(1e7, 1e7), D.Beta(10001000, 1e7))", 0.0249987519478 },
    { "kl(D.Dirichlet(T{1e7, 3, 1e5}), D.Dirichlet(T{1e7, 2, 1e5}))", 0.229637105034 },
    { "kl(D.Poisson(1e8), D.Poisson(100010000))", 0.499966669166 },
    { "kl(D.Binomial(1e8, 0.5), D.Binomial(1e8, 0.50001))", 0.0200543581781 },
    { "kl(D.Cauchy(0, 1e20), D.Cauchy(1e25, 2e20))", 20.9464092615 },
    { "kl(D.HalfCauchy(1e30), D.HalfCauchy(2e30))", 0.117783035656 },
})

describe("gradients of log_prob", function()
  local function check_gradient(wanted, make, parameter, value)
    local p = T(parameter):requires_grad_()
    make(p):log_prob(value):sum():backward()
    near(wanted, p.grad, 1e-5)
  end

  it("keep their digits at large counts", function()
    check_gradient(4.99833333234e-7, function(p) return D.StudentT(p) end, 1000, 1)
    check_gradient(0.000100000000333, function(p) return D.Gamma(p, 1) end, 1e8, 100010000)
    check_gradient(0.0001, function(p) return D.Poisson(p) end, 1e8, 100010000)
    check_gradient(40000, function(p) return D.Binomial(1e8, p) end, 0.5, 50010000)
    check_gradient(-4.99712540406e-5, function(p) return D.Beta(p, 1e7) end, 10001000, 0.5)
  end)

  it("are finite if an unused branch is infinite", function()
    for _, total in ipairs { 4, 1e6 } do
      for _, value in ipairs { 0, 4 } do
        local p = T { 0.25, 0.5, 0 }:requires_grad_()
        D.Binomial(total, p):log_prob(value):narrow(1, 1, 2):sum():backward()
        assert(p.grad:isfinite():all():item())
      end
    end
    local a = T { 0.5, 1, 2, 1e6 }:requires_grad_()
    D.Gamma(a, 1):log_prob(3):sum():backward()
    assert(a.grad:isfinite():all():item())
    local rate = T { 1e-30, 3, 1e6 }:requires_grad_()
    D.Poisson(rate):log_prob(0):sum():backward()
    near({ -1, -1, -1 }, rate.grad)
    local c = T { { 1, 1e6, 0.5 } }:requires_grad_()
    D.Dirichlet(c):log_prob(T { 0.25, 0.25, 0.5 }):sum():backward()
    assert(c.grad:isfinite():all():item())
    local n = T { 0, 1e7, 2 }:requires_grad_()
    D.NegativeBinomial(n, 0.5):log_prob(0):sum():backward()
    assert(n.grad:narrow(1, 2, 2):isfinite():all():item())
  end)

  it("are right to the second order, on both sides of the series", function()
    local a = moth.tensor({ 0.5, 9, 9.99, 10, 11, 200 }, { dtype = moth.float64 })
      :requires_grad_()
    local v = moth.tensor({ 0.2, 8, 10, 9, 12, 190 }, { dtype = moth.float64 })
    for _, make in ipairs { function(x) return D.Gamma(x, 1, false) end,
        function(x) return D.StudentT(x, 0, 1, false) end,
        function(x) return D.Poisson(x, false) end } do
      assert(moth.autograd.gradgradcheck(function(x) return make(x):log_prob(v) end, { a }))
    end
    assert(moth.autograd.gradgradcheck(function(x) return D.Gamma(x, 1, false):entropy() end,
      { a }))
    assert(moth.autograd.gradgradcheck(function(x)
      return D.kl_divergence(D.Gamma(x, 1, false), D.Gamma(v, 2, false))
    end, { a }))
  end)
end)

describe("log_prob", function()
  it("at the ends of the support is exact", function()
    assert.equal(0, D.Binomial(5, 0):log_prob(0):item())
    assert.equal(-math.huge, D.Binomial(5, 0):log_prob(1):item())
    assert.equal(0, D.Binomial(5, 1):log_prob(5):item())
    assert.equal(0, D.Binomial(0, 0.5):log_prob(0):item())
    assert.equal(0, D.Poisson(0):log_prob(0):item())
    assert.equal(-math.huge, D.Poisson(0):log_prob(1):item())
    assert.equal(-math.huge, D.Poisson(0):log_prob(1e6):item())
    assert.equal(0, D.NegativeBinomial(0, 0.5):log_prob(0):item())
    assert.equal(-math.huge, D.Gamma(20, 1):log_prob(0):item())
    assert.equal(-math.huge, D.Beta(20, 20):log_prob(0):item())
    near(0, D.Gamma(1, 1):log_prob(0))
    near(0, D.Beta(1, 1):log_prob(0))
    assert.equal(0, D.Multinomial(0, T { 0.5, 0.5 }):log_prob(T { 0, 0 }):item())
  end)

  it("is the same in a captured step, which cannot read values", function()
    for _, f in ipairs {
      function(a, x) return D.Gamma(a, a, false):log_prob(x) end,
      function(a, x) return D.Beta(a, a, false):log_prob(x) end,
      function(a, x) return D.Poisson(a, false):log_prob(x) end,
      function(a, x) return D.Dirichlet(a, false):log_prob(x / x:sum()) end,
      function(a, x) return D.Binomial(20, x, nil, false):log_prob(a:floor()) end,
      function(a) return D.StudentT(a, 0, 1, false):entropy() end,
    } do
      local step = moth.capture(f)
      for _ = 1, 3 do
        local a, x = moth.rand(7) * 18 + 1, moth.rand(7) * 0.9 + 0.05
        near(f(a, x), step(a, x), 1e-6)
      end
    end
  end)

  it("has the dtype of the parameters", function()
    for _, dtype in ipairs { moth.float16, moth.bfloat16, moth.float64 } do
      local x = T({ 2, 3 }, { dtype = dtype })
      assert.equal(dtype, D.Gamma(x, x):log_prob(x):sum().dtype)
      assert.equal(dtype, D.Poisson(x):log_prob(x).dtype)
      assert.equal(dtype, D.StudentT(x):log_prob(x).dtype)
      assert.equal(dtype, D.Beta(x, x):entropy().dtype)
    end
    assert.equal(moth.float32, D.Poisson(2):log_prob(T { 1LL, 2LL }).dtype)
    assert.equal(moth.float64, D.Poisson(2):log_prob(T({ 1, 2 }, { dtype = moth.float64 })).dtype)
  end)
end)

-- ---- optimizers of half-precision parameters ----

describe("an optimizer of half-precision parameters", function()
  local optim = moth.optim
  local OPTIONS = {
    SGD = { lr = 1e-3, momentum = 0.9 }, Adam = { lr = 1e-4 }, AdamW = { lr = 1e-4 },
    RMSprop = { lr = 1e-4, momentum = 0.5, centered = true }, Adagrad = { lr = 1e-3 },
    Adadelta = { lr = 1 }, Adamax = { lr = 1e-4 }, NAdam = { lr = 1e-4 }, RAdam = { lr = 1e-4 },
    Rprop = { lr = 1e-4 }, ASGD = { lr = 1e-1 },
    Adafactor = { lr = 1e-2, eps = { 1e-7, 1e-3 } },
    Muon = { lr = 1e-4 },
  }

  -- Steps with small gradients that alternate a little; all values that an optimizer keeps.
  local function run(name, dtype, count, more)
    local p = nn.Parameter(moth.full({ 4, 3 }, 0.125, { dtype = dtype }))
    local given = { lr = OPTIONS[name].lr }
    for key, value in pairs(OPTIONS[name]) do given[key] = value end
    for key, value in pairs(more or {}) do given[key] = value end
    local o = optim[name]({ p }, given)
    local g = moth.linspace(0.75, 1.25, 12):view(4, 3) * 0x1p-10
    for i = 1, count do
      p.grad = (g * (1 + 0.25 * (i % 2))):to(moth.float16):to(dtype)
      o:step()
    end
    return p, o
  end

  it("makes steps of the right size", function()
    local p = nn.Parameter(moth.zeros({ 4 }, { dtype = moth.float16 }))
    local o = optim.Adam({ p }, { lr = 1e-4 })
    for _ = 1, 400 do
      p.grad = moth.full_like(p, 1e-3)
      o:step()
    end
    local moved = -p[1]:item() / 1e-4
    assert(moved > 396 and moved < 404, moved)
  end)

  for name in pairs(OPTIONS) do
    it("keeps its state in float32: " .. name, function()
      for _, dtype in ipairs { moth.float16, moth.bfloat16 } do
        local p, o = run(name, dtype, 3)
        assert.equal(dtype, p.dtype)
        local tensors = 0
        for _, x in pairs(o.state[p]) do
          if type(x) == "cdata" then
            tensors = tensors + 1
            assert.equal(moth.float32, x.dtype)
          end
        end
        assert(tensors > 0)
      end
    end)

    it("follows the path of float32: " .. name, function()
      local p, o = run(name, moth.float16, 60)
      local q, exact = run(name, moth.float32, 60)
      for key, x in pairs(o.state[p]) do
        if type(x) == "cdata" and key ~= "ax" and key ~= "acc_delta" then
          near(exact.state[q][key], x, 2e-2)
        end
      end
      local moved = (q - 0.125):abs():max():item()
      local off = (p:float() - q):abs():max():item()
      assert(off <= 0.05 * moved + 60 * 0x1p-14, ("%g beside %g"):format(off, moved))
    end)

    it("is restored from a state dict, also one of PyTorch: " .. name, function()
      local p, o = run(name, moth.float16, 3)
      local saved = o:state_dict()
      for _, own in pairs(saved.state) do
        for key, x in pairs(own) do
          if type(x) == "cdata" then own[key] = x:clone() end
        end
      end
      local q = nn.Parameter(p:detach():clone())
      local again = optim[name]({ q }, { lr = OPTIONS[name].lr })
      again:load_state_dict(saved)
      for _, x in ipairs { p, q } do x.grad = moth.full_like(x, 1e-3) end
      o:step()
      again:step()
      assert(p:equal(q))
      for _, own in pairs(saved.state) do
        for key, x in pairs(own) do
          if type(x) == "cdata" then own[key] = x:to(moth.float16) end
        end
      end
      again:load_state_dict(saved)
      for _, x in pairs(again.state[q]) do
        if type(x) == "cdata" then assert.equal(moth.float32, x.dtype) end
      end
      q.grad = moth.full_like(q, 1e-3)
      again:step()
    end)
  end

  it("is the same in a captured step", function()
    for _, name in ipairs { "Adam", "SGD", "RMSprop", "Adagrad", "NAdam" } do
      local function train(captured)
        local p = nn.Parameter(moth.full({ 4 }, 0.125, { dtype = moth.float16 }))
        local given = { lr = OPTIONS[name].lr }
        if name == "SGD" then given.momentum = 0.9 end
        local o = optim[name]({ p }, given)
        local function step(x)
          o:zero_grad()
          local loss = (p * x):sum()
          loss:backward()
          o:step()
          return loss
        end
        local f = captured and moth.capture(step) or step
        local x = moth.full({ 4 }, 1e-3, { dtype = moth.float16 })
        for _ = 1, 20 do f(x) end
        return p:detach(), o.state[p]
      end
      local p, state = train(false)
      local q, other = train(true)
      assert(p:equal(q), name)
      for key, x in pairs(state) do
        if type(x) == "cdata" then assert(x:equal(other[key]), name .. " " .. key) end
      end
    end
  end)

  it("LBFGS computes in float32", function()
    local p = nn.Parameter(T({ 1, -1 }, { dtype = moth.float16 }))
    local o = optim.LBFGS({ p }, { line_search_fn = "strong_wolfe" })
    local function closure()
      o:zero_grad()
      local loss = ((p.data:float() * 0 + p:float()) - T { 0.5, 0.25 }):square():sum()
      loss:backward()
      return loss
    end
    for _ = 1, 5 do o:step(closure) end
    near({ 0.5, 0.25 }, p:detach():float(), 1e-2)
    assert.equal(moth.float32, o.state[p].d.dtype)
  end)

  it("takes sparse gradients", function()
    for _, name in ipairs { "SparseAdam", "Adagrad" } do
      local e = nn.Embedding(5, 3, { sparse = true, dtype = moth.float16 })
      local o = optim[name](e:parameters(), { lr = 1e-2 })
      local before = e.weight:detach():clone()
      for _ = 1, 3 do
        o:zero_grad()
        e(T { 2LL, 4LL }):sum():backward()
        o:step()
      end
      local moved = e.weight:detach():ne(before):sum(2)
      assert.same({ 0, 3, 0, 3, 0 }, moved:tolist())
    end
  end)
end)

describe("frexp", function()
  it("has the parts of the smallest and largest numbers; infinities and NaN stay", function()
    local inf = math.huge
    local m, e = moth.frexp(T { 1, -3, 0, 1e-45, 3e38, inf, -inf })
    assert.same({ 0.5, -0.75, 0, 0.5 }, m:narrow(1, 1, 4):tolist())
    assert.same({ inf, -inf }, m:narrow(1, 6, 2):tolist())
    assert.same({ 1, 2, 0, -148, 128, 0, 0 }, e:tolist())
    assert.equal(moth.int32, e.dtype)
    m, e = moth.frexp(T({ 5e-324, 1.7e308 }, { dtype = moth.float64 }))
    assert.same({ -1073, 1024 }, e:tolist())
    assert.equal(0.5, m[1]:item())
  end)

  it("has the gradient 2^-exponent, and its derivative", function()
    local x = T({ 3, 0, 8 }, { dtype = moth.float64 }):requires_grad_()
    local g = moth.autograd.grad((moth.frexp(x) * T { 1, 1, 2 }):sum(), x, { create_graph = true })
    assert.same({ 0.25, 1, 0.125 }, g:tolist())
    assert.is_true(moth.autograd.gradgradcheck(function(v) return (moth.frexp(v)) end,
      { T({ 3, 8.5 }, { dtype = moth.float64 }):requires_grad_() }))
  end)
end)
