-- What functions do with arguments that are rare together: a fraction beside integers, a dimension
-- that only one operand has, bounds that meet, nothing along a dimension. Numbers are PyTorch's.

local moth = require "moth"
local intact = require "spec.support.intact"
local F = moth.nn.functional

local function gives(wanted, x)
  assert.equal(wanted.dtype, x.dtype)
  assert.same({unpack(wanted.shape)}, {unpack(x.shape)})
  assert(moth.allclose(x, wanted, {rtol = 1e-5}), ("%s\n%s"):format(wanted, x))
end

describe("a fraction beside integers", function()
  local whole = moth.tensor({1, 2}, {dtype = moth.int32})

  it("stays one in special.xlog1py", function()
    gives(moth.tensor {0.4054651, 0.8109302}, moth.special.xlog1py(whole, 0.5))
    gives(moth.tensor {0.4054651, 0}, moth.special.xlog1py(moth.tensor {true, false}, 0.5))
    gives(moth.tensor {0.3465736, 0.5493061}, moth.special.xlog1py(0.5, whole))
  end)

  it("stays one in special.zeta", function()
    gives(moth.tensor {0.9348022, 0.4143983}, moth.special.zeta(whole + 1, 1.5))
    gives(moth.tensor {2.6123753, 1.6123753}, moth.special.zeta(1.5, whole))
  end)
end)

describe("the dtype", function()
  it("of ldexp is that of the floats which take part", function()
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
  it("refuses more powers than memory can hold, at once", function()
    assert.has_error_like(function() moth.vander(moth.ones(2), 2 ^ 53) end, "out of memory")
    assert.same({{1}, {1}}, moth.vander(moth.tensor {2, 3}, 1):tolist())
    assert.same({2, 0}, {unpack(moth.vander(moth.tensor {2, 3}, 0).shape)})
  end)
end)

describe("a single variable", function()
  it("has a number for its cov and corrcoef, as a row too", function()
    local x = moth.tensor {{1, 2, 6}}
    gives(moth.tensor(7), moth.cov(x))
    gives(moth.tensor(1), moth.corrcoef(x))
    gives(moth.tensor(7), moth.cov(x[1]))
  end)
end)

describe("a dimension", function()
  it("that only one operand of cosine_similarity has counts in both lengths", function()
    local a, b = moth.tensor {{1, 2}, {3, 4}}, moth.tensor {{5, 6}}
    gives(moth.tensor {0.8944272, 0.9486833}, F.cosine_similarity(a, b, {dim = 1}))
    gives(moth.tensor {0.8944272, 0.9486833}, F.cosine_similarity(b, a, {dim = 1}))
  end)

  it("out of range is refused of an empty tensor too", function()
    intact.refuses(function() moth.logcumsumexp(moth.zeros(2, 0), 3) end, "'dim'")
    intact.refuses(function() moth.nanmedian(moth.zeros(2, 0), 3) end, "'dim'")
  end)

  it("in which slices of index_reduce's source are too short is refused", function()
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
  it("of -0 is that of 0, with its slope", function()
    local x = moth.tensor({-0.0}, {requires_grad = true})
    local y = moth.special.entr(x)
    assert.equal(math.huge, 1 / y:item())
    y:backward()
    assert.equal(math.huge, x.grad:item())
  end)
end)

describe("losses", function()
  it("of labels refuse a target of another shape", function()
    intact.refuses(function()
      F.multilabel_soft_margin_loss(moth.zeros(1, 1), moth.ones(1, 2))
    end, "'target' to 'multilabel_soft_margin_loss'")
  end)
end)

describe("clamp between tensors", function()
  it("gives an input that both bounds meet the whole gradient", function()
    local x = moth.tensor({0, 1, 2, 1, 3, 1}, {requires_grad = true})
    local low = moth.tensor({1, 1, 1, 1, 1, 3}, {requires_grad = true})
    local high = moth.tensor({1, 1, 1, 3, 3, 1}, {requires_grad = true})
    x:clamp {min = low, max = high}:sum():backward()
    gives(moth.tensor {0, 1, 0, 0.5, 0.5, 0}, x.grad)
    gives(moth.tensor {1, 0, 0, 0.5, 0, 0}, low.grad)
    gives(moth.tensor {0, 0, 1, 0, 0.5, 1}, high.grad)
  end)
end)
