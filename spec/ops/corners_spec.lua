-- Rare combinations of arguments: a fraction with integers, a dimension of only one operand, equal
-- bounds, an empty dimension. Numbers are PyTorch's.

local moth = require "moth"
local intact = require "spec.support.intact"
local F = moth.nn.functional

local function gives(wanted, x)
  assert.equal(wanted.dtype, x.dtype)
  assert.same({unpack(wanted.shape)}, {unpack(x.shape)})
  assert(moth.allclose(x, wanted, {rtol = 1e-5}), ("%s\n%s"):format(wanted, x))
end

describe("a fraction with integers", function()
  local whole = moth.tensor({1, 2}, {dtype = moth.int32})

  it("is kept in special.xlog1py", function()
    gives(moth.tensor {0.4054651, 0.8109302}, moth.special.xlog1py(whole, 0.5))
    gives(moth.tensor {0.4054651, 0}, moth.special.xlog1py(moth.tensor {true, false}, 0.5))
    gives(moth.tensor {0.3465736, 0.5493061}, moth.special.xlog1py(0.5, whole))
  end)

  it("is kept in special.zeta", function()
    gives(moth.tensor {0.9348022, 0.4143983}, moth.special.zeta(whole + 1, 1.5))
    gives(moth.tensor {2.6123753, 1.6123753}, moth.special.zeta(1.5, whole))
  end)
end)

describe("the dtype", function()
  it("of ldexp is the dtype of the float operands", function()
    local half = moth.ones {1, dtype = moth.float16}
    assert.equal(moth.float16, moth.ldexp(moth.tensor {3LL}, half).dtype)
    assert.equal(moth.float16, moth.ldexp(half, moth.tensor {3LL}).dtype)
    assert.equal(moth.float64, moth.ldexp(half, moth.ones {1, dtype = moth.float64}).dtype)
    gives(moth.tensor {6}, moth.ldexp(moth.tensor {3LL}, moth.tensor {1LL}))
  end)

  it("of vander is int64 for integers of any size", function()
    gives(moth.tensor {{1LL, 1LL}}, moth.vander(moth.tensor {true}, {N = 2}))
    assert.equal(moth.int64, moth.vander(moth.tensor({100, 2}, {dtype = moth.int8})).dtype)
  end)
end)

describe("vander", function()
  it("raises at once for more powers than memory can hold", function()
    assert.has_error_like(function() moth.vander(moth.ones(2), 2 ^ 53) end, "out of memory")
    assert.same({{1}, {1}}, moth.vander(moth.tensor {2, 3}, 1):tolist())
    assert.same({2, 0}, {unpack(moth.vander(moth.tensor {2, 3}, 0).shape)})
  end)
end)

describe("a single variable", function()
  it("has a scalar cov and corrcoef, also as a row", function()
    local x = moth.tensor {{1, 2, 6}}
    gives(moth.tensor(7), moth.cov(x))
    gives(moth.tensor(1), moth.corrcoef(x))
    gives(moth.tensor(7), moth.cov(x[1]))
  end)
end)

describe("a dimension", function()
  it("of only one operand of cosine_similarity counts in both norms", function()
    local a, b = moth.tensor {{1, 2}, {3, 4}}, moth.tensor {{5, 6}}
    gives(moth.tensor {0.8944272, 0.9486833}, F.cosine_similarity(a, b, {dim = 1}))
    gives(moth.tensor {0.8944272, 0.9486833}, F.cosine_similarity(b, a, {dim = 1}))
  end)

  it("out of range raises for an empty tensor too", function()
    intact.refuses(function() moth.logcumsumexp(moth.zeros(2, 0), 3) end, "'dim'")
    intact.refuses(function() moth.nanmedian(moth.zeros(2, 0), 3) end, "'dim'")
  end)

  it("of too short slices of index_reduce's source raises", function()
    local at = moth.tensor {1LL, 2LL}
    for _, rows in ipairs {2, 4} do
      intact.refuses(function()
        moth.index_reduce(moth.zeros(3, 5), 2, at, moth.ones(rows, 2), "amax")
      end, "'source' to 'index_reduce'")
    end
  end)

  it("without elements has no nanmedian", function()
    intact.refuses(function() moth.nanmedian(moth.zeros(3, 0), 2) end, "'input' to 'nanmedian'")
    gives(moth.zeros(0), moth.nanmedian(moth.zeros(0, 3), 2))
  end)

  it("with elements is reduced to an empty result if another is empty", function()
    local x = moth.zeros(0, 3)
    for name, f in pairs {
      argmax = moth.argmax, argmin = moth.argmin, max = moth.max, min = moth.min,
      amax = moth.amax, amin = moth.amin, median = moth.median, mode = moth.mode,
      nanmedian = moth.nanmedian, logsumexp = moth.logsumexp, quantile = function(t, d)
        return moth.quantile(t, 0.5, d)
      end, kthvalue = function(t, d) return moth.kthvalue(t, 2, d) end,
      aminmax = function(t, d) return moth.aminmax {t, dim = d} end,
    } do
      for _, y in ipairs {f(x, 2)} do assert.equal("(0)", tostring(y.shape), name) end
      for _, y in ipairs {f(x:t():reshape(3, 0, 2), 3)} do
        assert.equal("(3, 0)", tostring(y.shape), name)
      end
      if name ~= "logsumexp" then intact.refuses(function() f(x, 1) end, "") end
    end
  end)

  it("without elements has norms and distances of 0", function()
    local norm, none = moth.linalg.matrix_norm, moth.zeros(2, 0, 0)
    for _, ord in ipairs {1, 2, math.huge, "nuc", "fro"} do
      gives(moth.zeros(2), norm(none, ord))
    end
    gives(moth.zeros(2), norm(moth.zeros(2, 0, 3), math.huge))
    for _, ord in ipairs {-1, -2, -math.huge} do
      intact.refuses(function() norm(none, ord) end, "'A' to 'matrix_norm' (matrices without")
    end
    for _, p in ipairs {0, 1, 2, math.huge} do
      gives(moth.zeros(2, 3), moth.cdist(moth.zeros(2, 0), moth.zeros(3, 0), p))
    end
  end)
end)

describe("entr", function()
  it("of -0 equals that of 0, and so does its derivative", function()
    local x = moth.tensor({-0.0}, {requires_grad = true})
    local y = moth.special.entr(x)
    assert.equal(math.huge, 1 / y:item())
    y:backward()
    assert.equal(math.huge, x.grad:item())
  end)
end)

describe("losses", function()
  it("of labels raise for a target of another shape", function()
    intact.refuses(function()
      F.multilabel_soft_margin_loss(moth.zeros(1, 1), moth.ones(1, 2))
    end, "'target' to 'multilabel_soft_margin_loss'")
  end)
end)

describe("clamp between tensors", function()
  it("passes the whole gradient to an input that equals both bounds", function()
    local x = moth.tensor({0, 1, 2, 1, 3, 1}, {requires_grad = true})
    local low = moth.tensor({1, 1, 1, 1, 1, 3}, {requires_grad = true})
    local high = moth.tensor({1, 1, 1, 3, 3, 1}, {requires_grad = true})
    x:clamp {min = low, max = high}:sum():backward()
    gives(moth.tensor {0, 1, 0, 0.5, 0.5, 0}, x.grad)
    gives(moth.tensor {1, 0, 0, 0.5, 0, 0}, low.grad)
    gives(moth.tensor {0, 0, 1, 0, 0.5, 1}, high.grad)
  end)
end)

-- Dims counted from the end and from the front are the same only for one rank. So each function
-- with leading dimensions is compared with its results for single elements, for two ranks.
describe("leading dimensions", function()
  local fft, linalg = moth.fft, moth.linalg

  local function draw(...) return moth.randn({ ... }, { dtype = moth.float64 }) end
  local function positive(x) return x:matmul(x:transpose(-1, -2)) + 2 * moth.eye(3):double() end

  -- The function, and the sizes of one element of its leading dimensions.
  local cases = {
    { "stft, one-sided", function(x) return moth.stft(x, 8, { hop_length = 4 }) end, 24 },
    { "stft, two-sided",
      function(x) return moth.stft(x, 8, { hop_length = 4, onesided = false }) end, 24 },
    { "istft of stft", function(x)
      local window = moth.hann_window(8):double()
      return moth.istft(moth.stft(x, 8, { hop_length = 4, window = window }), 8,
        { hop_length = 4, window = window })
    end, 24 },
    { "fft2", function(x) return fft.fft2(x) end, 3, 4, 2 },
    { "rfft2", function(x) return fft.rfft2(x) end, 3, 4 },
    { "hfft", function(x) return fft.hfft(x) end, 4, 2 },
    { "inv", function(x) return linalg.inv(positive(x)) end, 3, 3 },
    { "solve", function(x) return linalg.solve(positive(x), x) end, 3, 3 },
    { "cholesky", function(x) return linalg.cholesky(positive(x)) end, 3, 3 },
    { "cholesky_solve",
      function(x) return moth.cholesky_solve(x, linalg.cholesky(positive(x))) end, 3, 3 },
    { "cholesky_inverse",
      function(x) return moth.cholesky_inverse(linalg.cholesky(positive(x))) end, 3, 3 },
    { "lu_unpack", function(x) return select(3, moth.lu_unpack(linalg.lu_factor(x))) end, 3, 4 },
    { "lu_solve", function(x)
      local lu, pivots = linalg.lu_factor(positive(x))
      return linalg.lu_solve(lu, pivots, x)
    end, 3, 3 },
    { "qr", function(x) return select(2, linalg.qr(x)) end, 4, 3 },
    { "householder_product", function(x)
      return linalg.householder_product(x, x:select(-2, 1) * 0.5)
    end, 4, 3 },
    { "matrix_exp", function(x) return linalg.matrix_exp(x * 0.1) end, 3, 3 },
    { "matrix_power", function(x) return linalg.matrix_power(x, 3) end, 3, 3 },
    { "matrix_norm", function(x) return linalg.matrix_norm(x) end, 3, 4 },
    { "slogdet", function(x) return select(2, linalg.slogdet(x)) end, 3, 3 },
    { "pinv", function(x) return linalg.pinv(x) end, 4, 3 },
    { "vander", function(x) return linalg.vander(x, { N = 2 }) end, 4 },
    { "vecdot", function(x) return linalg.vecdot(x, x * 2) end, 4 },
    { "cdist", function(x) return moth.cdist(x, x:flip(-2)) end, 4, 3 },
    { "diag_embed", function(x) return moth.diag_embed(x, 1) end, 3 },
    { "block attention", function(x) return F.scaled_dot_product_attention(x, x, x) end, 4, 2 },
    { "glu", function(x) return F.glu(x) end, 3, 4 },
    { "pixel_shuffle", function(x) return F.pixel_shuffle(x, 2) end, 4, 2, 3 },
    { "pixel_unshuffle", function(x) return F.pixel_unshuffle(x, 2) end, 2, 4, 2 },
    { "logcumsumexp", function(x) return moth.logcumsumexp(x, -1) end, 2, 4 },
    { "rot90", function(x) return moth.rot90(x, 1, { -2, -1 }) end, 2, 3 },
  }

  for _, case in ipairs(cases) do
    it("of " .. case[1] .. " are computed one by one", function()
      local f, sizes = case[2], { unpack(case, 3) }
      local x = draw(2, 3, unpack(sizes)):requires_grad_()
      local function close(wanted, got)
        assert.equal(wanted.shape, got.shape)
        assert.truthy(moth.allclose(wanted, got, { rtol = 1e-10, atol = 1e-10 }))
      end
      local all = f(x[1]) -- one leading dimension
      for i = 1, 3 do close(f(x[1][i]), all[i]) end
      local more = case[1]:find "stft" and f(x:flatten(1, 2)):unflatten(1, { 2, 3 }) or f(x)
      close(all, more[1])
      local one = moth.autograd.grad((all * all):sum(), x)
      close(one, moth.autograd.grad((more[1] * more[1]):sum(), x))
    end)
  end
end)
