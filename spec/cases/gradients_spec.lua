-- Values and derivatives at the ends of the range: their parts overflow, underflow, cancel or are
-- infinite, but the results are ordinary numbers. Expected values are exact, or from mpmath.

local moth = require "moth"

local F, special, T = moth.nn.functional, moth.special, moth.tensor
local inf, nan = math.huge, 0 / 0

local function leaf(values, dtype)
  return T(values, {dtype = moth[dtype or "float32"]}):requires_grad_()
end

local function numbers(x)
  if type(x) == "number" then return {x} end
  if type(x) == "table" and getmetatable(x) == nil then return x end
  return (x:detach():double():flatten():tolist())
end

-- Each number is within a relative tolerance of the expected one; NaN and infinities must be equal.
local function near(wanted, got, tolerance)
  wanted, got, tolerance = numbers(wanted), numbers(got), tolerance or 2e-6
  assert.equal(#wanted, #got)
  for i, w in ipairs(wanted) do
    local g = got[i]
    if not (w == g or (w ~= w and g ~= g) or math.abs(w - g) <= tolerance * math.abs(w)) then
      error(("number %d is %.9g, wanted %.9g"):format(i, g, w), 2)
    end
  end
end

local function gradient(f, values, dtype)
  local x = leaf(values, dtype)
  f(x):sum():backward()
  return x.grad
end

-- The value and n derivatives of f at a number.
local function derivatives(f, at, n, dtype)
  local x = leaf(at, dtype)
  local y = f(x)
  local list = {y:item()}
  for k = 1, n do
    y = moth.autograd.grad(y, x, {create_graph = true})
    list[k + 1] = y:item()
  end
  return list
end

describe("the gradient of a product", function()
  local function prod(x) return x:prod() end

  it("is y / x if products of fewer factors leave the range", function()
    near({1e25, 1e25, 1e-25, 1e-25}, gradient(prod, {1e-25, 1e-25, 1e25, 1e25}))
    near({1e250, 1e250, 1e-250, 1e-250},
      gradient(prod, {1e-250, 1e-250, 1e250, 1e250}, "float64"), 1e-12)
  end)

  it("is right for 50 times 0.1 and 50 times 10, and for 100 times 1e-30 and 1e30", function()
    local x = moth.cat{moth.full({50}, 0.1), moth.full({50}, 10)}
    near(moth.cat{moth.full({50}, 10), moth.full({50}, 0.1)}, gradient(prod, x:tolist()), 1e-5)
    x = moth.cat{moth.full({100}, 1e-30), moth.full({100}, 1e30)}:requires_grad_()
    local y = x:prod()
    y:backward()
    near(1, y, 1e-4)
    near({1e30, 1e-30}, {x.grad[1]:item(), x.grad[200]:item()}, 1e-4)
  end)

  it("is exact with one zero, and 0 with two", function()
    near({1, 0, 0, 0, 0}, gradient(prod, {0, 1e-25, 1e-25, 1e25, 1e25}))
    near({0, 0, 0}, gradient(prod, {0, 0, 3}))
  end)

  it("is right along dimensions", function()
    local x = leaf{{{1e-25, 2}, {1e25, 3}}, {{1e25, 4}, {1e-25, 5}}}
    x:prod{1, 2}:sum():backward()
    near({1e25, 60, 1e-25, 40, 1e-25, 30, 1e25, 24}, x.grad)
  end)

  it("is right in half types", function()
    near({4096, 4096, 2 ^ -12, 2 ^ -12},
      gradient(prod, {2 ^ -12, 2 ^ -12, 4096, 4096}, "float16"), 1e-3)
    near({1e25, 1e25, 1e-25, 1e-25}, gradient(prod, {1e-25, 1e-25, 1e25, 1e25}, "bfloat16"), 2e-2)
  end)

  it("has the right second derivatives, too", function()
    local x = leaf{1e-25, 1e-25, 1e25, 1e25}
    local g = moth.autograd.grad(x:prod(), x, {create_graph = true})
    near({0, inf, 1, 1}, moth.autograd.grad(g[1], x, {retain_graph = true}))
    near({1, 1, 0, 0}, moth.autograd.grad(g[3], x))
  end)

  it("is the same with and without create_graph, along any dimension", function()
    local far = {moth.full({40, 3}, 1e-9), moth.full({40, 3}, 1e9)}
    local rows = moth.cat({moth.rand(40, 70) + 0.5, far[1], far[2]}, 2)
    rows[2][5], rows[3][5], rows[3][60], rows[4][1] = 0, 0, 0, 1e-40
    for _, dtype in ipairs{"float32", "float64"} do
      for dim = 1, 2 do
        local x = (dim == 2 and rows or rows:t():contiguous()):to(moth[dtype])
        x.requires_grad = true
        local weight = moth.randn(40):to(x.dtype)
        local fast = moth.autograd.grad((x:prod(dim) * weight):sum(), x)
        local formula = moth.autograd.grad((x:prod(dim) * weight):sum(), x, {create_graph = true})
        near(formula:detach(), fast, 1e-5)
      end
    end
  end)

  it("of infinite and NaN factors is the product of the others", function()
    near({inf, 0, nan}, gradient(prod, {0, inf, 3}))
    near({inf, 12, inf}, gradient(prod, {3, inf, 4}))
    near({inf, -12, -inf}, gradient(prod, {3, -inf, -4}))
    near({nan, nan, 6}, gradient(prod, {2, 3, nan}))
  end)

  it("is the same in a captured step", function()
    local x = leaf{1e-25, 1e-25, 1e25, 1e25}
    local step = moth.capture(function()
      return (moth.autograd.grad(x:prod(), x))
    end)
    for _ = 1, 3 do near({1e25, 1e25, 1e-25, 1e-25}, step()) end
  end)
end)

describe("a product", function()
  it("does not depend on the order of its factors", function()
    near(1, T{1e-30, 1e-30, 1e30, 1e30}:prod())
    near(1, T({1e-300, 1e-300, 1e300, 1e300}, {dtype = moth.float64}):prod(), 1e-12)
    near(1, T({1e300, 1e300, 1e-300, 1e-300}, {dtype = moth.float64}):prod(), 1e-12)
    near({1, 1}, T({{1e300, 1e-300}, {1e300, 1e-300}, {1e-300, 1e300}, {1e-300, 1e300}},
      {dtype = moth.float64}):prod(1), 1e-12)
  end)

  it("of denormal partial products keeps its digits", function()
    near(1.23456789e-8 * 1.5, T({1.23456789e-8, 1e-310, 1.5e155, 1e155},
      {dtype = moth.float64}):prod(), 1e-9)
  end)

  it("along a row returns from beyond the range", function()
    near({1e-250, 0, 1e-250, 1}, T({1e-250, 1e-250, 1e250, 1e250},
      {dtype = moth.float64}):cumprod(1), 1e-12)
    near({1e30, inf, 1e30, 1}, T{1e30, 1e30, 1e-30, 1e-30}:cumprod(1))
  end)

  it("of many factors is right in rows and columns of any length", function()
    for _, n in ipairs{1, 3, 9, 40, 130, 3000} do
      for _, dtype in ipairs{"float32", "float64"} do
        local x = (moth.rand(13, n) + 0.5):to(moth[dtype])
        local want = x:double():log():sum(2)
        for _, y in ipairs{x:prod(2), x:t():contiguous():prod(1), x:t():prod(1)} do
          y = y:double()
          local log = moth.where(y:gt(1e-30), y:log(), want)
          near(want, log, 1e-5)
        end
        local pairs_of = moth.cat{x, 1 / x}
        near(moth.ones(1), pairs_of:to(moth.float64):prod():reshape(1), 1e-4)
      end
    end
  end)

  it("is 0, infinite or NaN according to its factors", function()
    near({0, inf, nan}, T{{0, 5}, {inf, 2}, {0, inf}}:prod(2))
  end)
end)

describe("the gradient of cumprod", function()
  local function cumprod(x) return x:cumprod(1) end

  it("is right if running products leave the range", function()
    near({1e25, 1e25, 1e-25, 1e-25}, gradient(cumprod, {1e-25, 1e-25, 1e25, 1e25}))
    near({1e250, 1e250, 1e-250, 1e-250},
      gradient(cumprod, {1e-250, 1e-250, 1e250, 1e250}, "float64"), 1e-12)
    near({16, 10, 6}, gradient(cumprod, {2, 3, 4}))
  end)

  it("is right after a zero", function()
    near({2, 0, 0, 0, 0}, gradient(cumprod, {0, 1e-25, 1e-25, 1e25, 1e25}))
    near({1, 0, 0}, gradient(cumprod, {0, 0, 3}))
  end)

  it("is the same with and without create_graph, along any dimension", function()
    local far = {moth.full({9, 3}, 1e-9), moth.full({9, 3}, 1e9)}
    local rows = moth.cat({moth.rand(9, 70) + 0.5, far[1], far[2], moth.rand(9, 20) + 0.5}, 2)
    rows[2][5], rows[3][5], rows[3][60], rows[4][1], rows[9][40] = 0, 0, 0, 1e-40, -1e30
    for _, dtype in ipairs{"float32", "float64"} do
      for dim = 1, 2 do
        local x = leaf((dim == 2 and rows or rows:t():contiguous()):tolist(), dtype)
        local weight = moth.randn(x.shape):to(x.dtype)
        local fast = moth.autograd.grad((x:cumprod(dim) * weight):sum(), x)
        local formula = moth.autograd.grad((x:cumprod(dim) * weight):sum(), x,
          {create_graph = true})
        near(formula:detach(), fast, dtype == "float64" and 1e-9 or 1e-4)
      end
    end
  end)

  it("passes gradcheck with zeros", function()
    local x = leaf({{0, 2, 0}, {0, 1, 3}}, "float64")
    for _, f in ipairs{function(v) return v:cumprod(2) end, function(v) return v:prod{1} end} do
      assert.is_true(moth.autograd.gradcheck(f, {x}))
      assert.is_true(moth.autograd.gradgradcheck(f, {x}))
    end
  end)
end)

describe("logarithms of sums of exponentials", function()
  it("pass their gradient to an infinite element", function()
    near({1, 0}, gradient(function(x) return x:logsumexp(1) end, {inf, 1}))
    near({0, 1}, gradient(function(x) return x:logsumexp(1) end, {-inf, 1}))
    near({0, 0}, gradient(function(x) return x:logsumexp(1) end, {-inf, -inf}))
    near({1, 0}, gradient(function(x) return x:logsumexp(1) end, {inf, 1}, "float64"))
  end)

  it("of two infinite operands divide it between both", function()
    local a, b = leaf{inf, 1, inf, -inf}, leaf{1, inf, inf, 0}
    moth.logaddexp(a, b):sum():backward()
    near({1, 0, 0.5, 0}, a.grad)
    near({0, 1, 0.5, 1}, b.grad)
  end)

  it("keep finite gradients next to -inf in log_softmax and cross_entropy", function()
    near({0, 0.5, -0.5}, gradient(function(x) return x:log_softmax(1)[2] end, {-inf, 0, 0}))
    near({0, -0.5, 0.5}, gradient(function(x)
      return F.cross_entropy(x:unsqueeze(1), {2})
    end, {-inf, 0, 0}))
  end)
end)

describe("derivatives near a removable singularity", function()
  it("of sinc are smooth", function()
    local p2 = math.pi ^ 2
    for _, dtype in ipairs{"float32", "float64"} do
      for _, x in ipairs{0, 1e-12, 1e-8} do
        local got = derivatives(moth.sinc, x, 3, dtype)
        near({1, -p2 / 3 * x, -p2 / 3, p2 ^ 2 / 5 * x}, got)
      end
    end
  end)

  it("of spherical_bessel_j0 are smooth", function()
    for _, dtype in ipairs{"float32", "float64"} do
      for _, x in ipairs{0, 1e-12, 1e-8} do
        near({1, -x / 3, -1 / 3, x / 5}, derivatives(special.spherical_bessel_j0, x, 3, dtype))
      end
    end
  end)

  it("of bessel_j1 and i1 are smooth", function()
    for _, dtype in ipairs{"float32", "float64"} do
      for _, x in ipairs{0, 1e-12, 1e-8} do
        near({x / 2, 0.5, -3 / 8 * x, -3 / 8}, derivatives(special.bessel_j1, x, 3, dtype))
        near({x / 2, 0.5, 3 / 8 * x, 3 / 8}, derivatives(special.i1, x, 3, dtype))
        near({1, x / 2, 0.5, 3 / 8 * x}, derivatives(moth.i0, x, 3, dtype))
      end
    end
  end)

  it("of the scaled functions are one-sided", function()
    near({1, -1, 1.5, -2.5}, derivatives(special.i0e, 1e-12, 3, "float64"), 1e-9)
    near({5e-13, 0.5, -1, 1.875}, derivatives(special.i1e, 1e-12, 3, "float64"), 1e-9)
  end)

  -- value and three derivatives, by mpmath with 60 digits
  local FAR = {
    {"sinc", 0.7, {0.367883010572, -1.36524037552, 0.269827006976, 7.13103841713}},
    {"sj0", 0.001, {0.999999833333, -0.0003333333, -0.333333233333, 0.00019999997619}},
    {"sj0", 35, {-0.012233790557, -0.0254702404153, 0.0136892328665, 0.0246464144712}},
    {"i0", 2.5, {3.28983914405, 2.51671624529, 2.28315264593, 2.00612978616}},
    {"i1", 0.001, {0.0005000000625, 0.5000001875, 0.000375000052083, 0.37500015625}},
    {"i0e", 0.7, {0.559305526507, -0.374635543744, 0.485456826399, -0.752352255034}},
    {"i0e", 200, {0.0282271599491, -7.0656554279e-05, 5.30591583831e-07, -6.64076931556e-09}},
    {"i1e", 35, {0.0667044317295, -0.000931894285635, 3.90258130609e-05, -2.72153805217e-06}},
    {"j0", 5.5, {-0.00684386941782, 0.341438215429, -0.0552358061147, -0.320108127857}},
    {"j1", 0.001, {0.0004999999375, 0.4999998125, -0.000374999947917, -0.37499984375}},
    {"j1", 20, {0.0668331241759, 0.163683008132, -0.074850191772, -0.159138791784}},
    {"k0e", 2.5, {0.759548690328, -0.14062573358, 0.0788183024036, -0.0741689174114}},
    {"k1e", 0.7, {2.11501131285, -2.23655707603, 6.05976173582, -25.5099420355}},
    {"y1", 2.5, {0.145918137967, 0.439703104429, -0.298452477664, -0.198294641606}},
    {"erfcx", 1.3, {0.357642669086, -0.198508227472, 0.199163946746, -0.276206648348}},
    {"erfcx", -0.5, {1.95236048918, -3.08073965628, 6.98546063464, -19.3084192598}},
    {"erfcx", 10, {0.0561409927438, -0.00555931221906, 0.00109574110643, -0.000322426747683}},
    {"log_ndtr", -5, {-15.064998394, 5.18650396713, -0.967303565383, 0.0108257645064}},
    {"log_ndtr", -1, {-1.84102164501, 1.52513527616, -0.80090233443, 0.116931195406}},
    {"log_ndtr", 3, {-0.00135080996475, 0.00443783904213, -0.0133332115417, 0.0356801368766}},
    {"log_ndtr", -30, {-454.321243956, 30.0332596674, -0.998896228488, 7.30999301578e-05}},
  }
  local NAMES = {
    sinc = moth.sinc, i0 = moth.i0, i1 = special.i1, i0e = special.i0e, i1e = special.i1e,
    sj0 = special.spherical_bessel_j0, j0 = special.bessel_j0, j1 = special.bessel_j1,
    y1 = special.bessel_y1, k0e = special.scaled_modified_bessel_k0,
    k1e = special.scaled_modified_bessel_k1, erfcx = special.erfcx, log_ndtr = special.log_ndtr,
  }
  for _, row in ipairs(FAR) do
    it(("equal mpmath's to the third order: %s at %g"):format(row[1], row[2]), function()
      near(row[3], derivatives(NAMES[row[1]], row[2], 3, "float64"), 1e-11)
      local x = T(row[2]):item() -- the value as f32
      if x == row[2] then near(row[3], derivatives(NAMES[row[1]], x, 3), 2e-6) end
    end)
  end

  it("of log_ndtr are 0 far above 0, and keep their digits far below 0", function()
    near({0, 0, 0, 0}, derivatives(special.log_ndtr, 40, 3))
    local got = derivatives(special.log_ndtr, 15, 2)
    assert.is_true(got[3] == 0)
    got = derivatives(special.log_ndtr, -30, 3, "float64")
    near({-454.3212439563, 30.0332596674, -0.99889622849}, {got[1], got[2], got[3]}, 1e-8)
    got = derivatives(special.log_ndtr, -1e4, 2)
    near({1e4, -1}, {got[2], got[3]}, 1e-6)
  end)

  it("of erfcx keep their digits for large arguments", function()
    -- -1 / (sqrt(pi) x^2) and so on, at 1000
    local r = 1 / math.sqrt(math.pi)
    near({r / 1000, -r / 1e6, 2 * r / 1e9}, derivatives(special.erfcx, 1000, 2), 1e-5)
  end)

  it("of scaled Bessel functions keep their digits for large arguments", function()
    local got = derivatives(special.i0e, 1e20, 1)
    near({3.9894228e-11, -1.9947114e-31}, got, 1e-5)
  end)
end)

describe("a maximum that is NaN", function()
  local X = {1, nan, 3}

  it("of all elements has the gradient 1 at the NaN", function()
    near({0, 1, 0}, gradient(function(x) return x:max() end, X))
    near({0, 1, 0}, gradient(function(x) return x:min() end, X))
    near({0, 0.5, 0.5}, gradient(function(x) return x:max() end, {1, nan, nan}))
    near({0, 0.5, 0.5}, gradient(function(x) return x:max() end, {1, 3, 3}))
  end)

  it("along a dimension has it at the first NaN", function()
    near({0, 1, 0}, gradient(function(x) return (x:max(1)) end, X))
    near({0, 1, 0}, gradient(function(x) return (x:min(1)) end, X))
    near({0, 1, 0}, gradient(function(x) return x:median() end, X))
  end)

  it("by amax, amin and aminmax has a NaN gradient", function()
    near({nan, nan, nan}, gradient(function(x) return x:amax() end, X))
    near({nan, nan, nan}, gradient(function(x) return x:amin() end, X))
    near({nan, nan, nan}, gradient(function(x)
      local least, most = x:aminmax()
      return least + most
    end, X))
    near({0, 0, 0.5, 0.5, nan, nan}, gradient(function(x) return x:view(3, 2):amax(2) end,
      {1, 2, 3, 3, nan, 1}) * T{0, 0, 1, 1, 1, 1})
  end)

  it("by quantile and nanquantile has the gradient at the selected element", function()
    near({0, 1, 0}, gradient(function(x) return moth.quantile(x, 0.5) end, X))
    near({0.5, 0, 0.5}, gradient(function(x) return moth.nanquantile(x, 0.5) end, X))
    near({1, 0, 0}, gradient(function(x) return moth.nanmedian(x) end, X))
  end)

  it("of windows and of pairs has the gradient at the selected element", function()
    near({0, 1, 0, 1}, gradient(function(x) return F.max_pool1d(x:view(1, 1, 4), 2) end,
      {1, nan, 3, 4}))
    near({0, 1, 0, 1}, gradient(function(x) return F.adaptive_max_pool1d(x:view(1, 1, 4), 2) end,
      {1, nan, 3, 4}))
    near({1, 2, 0}, gradient(function(x) return (x:cummax(1)) end, X))
    near({0, 1, 1}, gradient(function(x) return moth.maximum(x, T{2, 1, nan}) end, X))
    near({0, 0, 1}, gradient(function(x) return moth.fmax(x, T{2, 1, nan}) end, X))
  end)
end)

describe("norms", function()
  local cube = 0.5 ^ (2 / 3) -- gradient of the 3-norm of two equal elements

  for _, size in ipairs{1e20, 1e-20} do
    it(("of %g have ordinary gradients"):format(size), function()
      local x = {size, size}
      near({cube, cube}, gradient(function(v) return v:norm(3) end, x))
      near({0.5 ^ 0.5, 0.5 ^ 0.5}, gradient(function(v) return v:norm() end, x))
      near({2, 2}, gradient(function(v) return v:norm(0.5) end, x))
      near({cube, cube}, gradient(function(v) return moth.linalg.vector_norm(v, 3) end, x))
      near({cube, cube}, gradient(function(v) return moth.dist(v, moth.zeros(2), 3) end, x))
      near({cube, cube}, gradient(function(v)
        return moth.cdist(v:view(1, 2), moth.zeros(1, 2), 3)
      end, x))
      near({cube, cube}, gradient(function(v)
        return F.pdist(moth.stack{v, v * 0}, 3)
      end, x))
      near({cube, cube}, gradient(function(v)
        return F.pairwise_distance(v:view(1, 2), moth.zeros(1, 2), 3, 0)
      end, x))
      near({0.5 ^ 0.95, 0.5 ^ 0.95}, gradient(function(v) return v:norm(20) end, x))
      near({4, 4}, gradient(function(v) return v:norm(-1) end, x):reciprocal())
    end)
  end

  it("are finite although their powers are not", function()
    near(2 ^ (1 / 20) * 1e20, T{1e20, 1e20}:norm(20))
    near({2 ^ 0.5 * 1e200, 2 ^ (1 / 3) * 1e-200}, {
      T({1e200, 1e200}, {dtype = moth.float64}):norm():item(),
      T({1e-200, 1e-200}, {dtype = moth.float64}):norm(3):item()}, 1e-12)
    near(2 ^ 0.5 * 1e-200, T({1e-200, 1e-200}, {dtype = moth.float64}):norm(), 1e-12)
  end)

  it("of 0 have the gradient 0", function()
    near({0, 0}, gradient(function(v) return v:norm(3) end, {0, 0}))
    near({0, 0}, gradient(function(v) return v:norm() end, {0, 0}))
    near({0, 0}, gradient(function(v) return moth.hypot(v[1], v[2]) end, {0, 0}))
  end)

  it("divide vectors whose products leave the range", function()
    for _, size in ipairs{1e20, 1e-20, 1e30} do
      local a, b = leaf{size, 2 * size}, leaf{2 * size, size}
      local y = F.cosine_similarity(a, b, 1, 0)
      y:backward()
      near(0.8, y)
      near({0.24 / size, -0.12 / size}, a.grad, 1e-5)
    end
    near({0.6, 0.8}, F.normalize(T{3e20, 4e20}, 2, 1))
    near({0.6, 0.8}, F.normalize(T{3e-20, 4e-20}, {dim = 1, eps = 0}))
  end)

  it("are right in clipping of gradients and in renorm", function()
    local p = leaf{0, 0}
    p.grad = T{3e20, 4e20}
    near(5e20, moth.nn.utils.clip_grad_norm_({p}, 1))
    near({0.6, 0.8}, p.grad, 1e-5)
    near({0.6, 0.8}, T{{3e20, 4e20}}:renorm(2, 1, 1), 1e-5)
  end)

  it("of windows and of a matrix product stay in the range", function()
    near({5e20}, F.lp_pool1d(T{{{3e20, 4e20}}}, 2, 2))
    near({0.6, 0.8}, gradient(function(x) return F.lp_pool1d(x:view(1, 1, 2), 2, 2) end,
      {3e-30, 4e-30}))
    near({0.6, 0.8}, gradient(function(x)
      return moth.cdist(x:view(1, 2), moth.zeros(1, 2), 2, "use_mm_for_euclid_dist")
    end, {3e20, 4e20}))
  end)

  it("of layers are right at 1e20", function()
    near(F.layer_norm(T{1, 2, 5}, {3}), F.layer_norm(T{1e20, 2e20, 5e20}, {3}), 1e-4)
    near({1 / math.sqrt(10), 2 / math.sqrt(10), 5 / math.sqrt(10)},
      F.rms_norm(T{1e20, 2e20, 5e20}, {3}))
  end)

  it("of deviations keep the gradient of small numbers", function()
    local wanted = gradient(function(x) return x:std() end, {1, 2, 5})
    near(wanted, gradient(function(x) return x:std() end, {1e-30, 2e-30, 5e-30}), 1e-5)
    near(wanted, gradient(function(x) return x:std() end, {1e20, 2e20, 5e20}), 1e-5)
  end)
end)

describe("activations at the ends of the range", function()
  -- value, first and second derivative at 1e20, -1e20, -100
  local ENDS = {
    gelu = {F.gelu, {1e20, 1, 0}, {0, 0, 0}, {0, 0, 0}},
    ["gelu by tanh"] = {function(x) return F.gelu(x, {approximate = "tanh"}) end, {1e20, 1, 0},
      {0, 0, 0}, {0, 0, 0}},
    silu = {F.silu, {1e20, 1, 0}, {0, 0, 0}, {-3.7835059e-42, -3.68e-42, -3.65e-42}},
    mish = {F.mish, {1e20, 1, 0}, {0, 0, 0}, {-3.7835059e-42, -3.68e-42, -3.65e-42}},
    softplus = {F.softplus, {1e20, 1, 0}, {0, 0, 0}, {3.78e-44, 3.78e-44, 3.78e-44}},
    elu = {F.elu, {1e20, 1, 0}, {-1, 0, 0}, {-1, 3.78e-44, 3.78e-44}},
    celu = {F.celu, {1e20, 1, 0}, {-1, 0, 0}, {-1, 3.78e-44, 3.78e-44}},
    sigmoid = {moth.sigmoid, {1, 0, 0}, {0, 0, 0}, {3.78e-44, 3.78e-44, 3.78e-44}},
    tanh = {moth.tanh, {1, 0, 0}, {-1, 0, 0}, {-1, 0, 0}},
    hardswish = {F.hardswish, {1e20, 1, 0}, {0, 0, 0}, {0, 0, 0}},
    logsigmoid = {F.logsigmoid, {0, 0, 0}, {-1e20, 1, 0}, {-100, 1, -3.78e-44}},
    softsign = {F.softsign, {1, 1e-40, 0}, {-1, 1e-40, 0}, {-100 / 101, 101 ^ -2, 2 / 101 ^ 3}},
  }
  for name, row in pairs(ENDS) do
    it("have finite derivatives: " .. name, function()
      for i, x in ipairs{1e20, -1e20, -100} do
        local got, wanted = derivatives(row[1], x, 2), row[i + 1]
        for k = 1, 3 do
          local off = math.abs(got[k] - wanted[k])
          assert.is_true(off <= 1e-6 * math.abs(wanted[k]) + 2e-43,
            ("%s(%g), derivative %d: %g, wanted %g"):format(name, x, k - 1, got[k], wanted[k]))
        end
      end
    end)
  end

  it("approach their limits at infinity", function()
    for _, name in ipairs{"gelu", "silu", "mish", "hardswish"} do
      near({inf, 1, 0}, derivatives(F[name], inf, 2))
      near({0, 0, 0}, derivatives(F[name], -inf, 2))
    end
    near({1, -1}, F.softsign(T{inf, -inf}))
    near({0, 0, inf}, F.gelu(T{-inf, -inf, inf}, {approximate = "tanh"}))
  end)

  it("keep the tail of sigmoid in f32 below -88", function()
    near({2.2273639e-39}, moth.sigmoid(T{-89}), 1e-4)
    near({6.0546e-39}, moth.sigmoid(T{-88}), 1e-4)
  end)

  it("have third derivatives at large numbers", function()
    for _, f in ipairs{F.gelu, F.silu, F.mish, F.elu, F.selu} do
      near({0}, {derivatives(f, 1e3, 3)[4]})
    end
  end)
end)

describe("derivatives whose squares leave the range", function()
  it("of inverse functions are right", function()
    near({1e-20}, {derivatives(moth.asinh, 1e20, 1)[2]})
    near({1e-20}, {derivatives(moth.acosh, 1e20, 1)[2]})
    near({1e-30}, {derivatives(moth.atan, 1e15, 1)[2]})
    local x = 1 - 2 ^ -20
    local wanted = 1 / math.sqrt((1 - x) * (1 + x))
    near({wanted, -wanted, wanted ^ 2}, {derivatives(moth.asin, x, 1)[2],
      derivatives(moth.acos, x, 1)[2], derivatives(moth.atanh, x, 1)[2]})
  end)

  it("of angles and lengths are right", function()
    for _, size in ipairs{1e20, 1e-30} do
      local y, x = leaf(size), leaf(size)
      moth.atan2(y, x):backward()
      near({0.5 / size, -0.5 / size}, {y.grad:item(), x.grad:item()})
      y, x = leaf(size), leaf(size)
      moth.hypot(y, x):backward()
      near({0.5 ^ 0.5, 0.5 ^ 0.5}, {y.grad:item(), x.grad:item()})
    end
  end)

  it("of quotients with a sum are right", function()
    local a, p, q = T{0}, leaf{1e25}, leaf{1e20}
    moth.addcdiv(a, p, q):backward(T{1})
    near({1e-20}, p.grad)
    near({-1e-15}, q.grad)
  end)

  it("of singular values and correlations are right", function()
    local wanted = gradient(function(x) return moth.linalg.svd(x, false) end, {{1, 2}, {3, 5}})
    near(wanted, gradient(function(x)
      return moth.linalg.svd(x * 1, false)
    end, {{1e20, 2e20}, {3e20, 5e20}}) * 1e20, 1e-3)
    near(moth.corrcoef(T{{1, 2, 4}, {3, 1, 1}}), moth.corrcoef(T{{1e30, 2e30, 4e30}, {3, 1, 1}}))
  end)

  it("of logit with bounds are 0 beyond the bounds, also the second", function()
    near({0, 0}, {unpack(derivatives(function(x) return moth.logit(x, 0.3) end, 1e-30, 2), 2)})
  end)
end)
