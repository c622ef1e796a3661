-- Products beyond the registry's examples: einsum, tensordot, and beta = 0.

local moth = require "moth"

local function t(v) return moth.tensor(v, {dtype = moth.float64}) end

describe("einsum", function()
  local a, b = t{{1, 2, 3}, {4, 5, 6}}, t{{1, 0}, {2, 1}, {0, 3}}

  it("multiplies, sums and permutes by the letters", function()
    assert.same(a:matmul(b):tolist(), moth.einsum("ij,jk->ik", a, b):tolist())
    assert.same(a:matmul(b):t():tolist(), moth.einsum("ij , jk -> ki", {a, b}):tolist())
    assert.same(a:sum(1):tolist(), moth.einsum("ij->j", a):tolist())
    assert.equal(21, moth.einsum("ij->", a):item())
    assert.same(a:matmul(b):matmul(a):tolist(), moth.einsum("ij,jk,kl->il", a, b, a):tolist())
  end)

  it("sorts the letters without an output: ba is the transpose", function()
    assert.same(a:t():tolist(), moth.einsum("ba", a):tolist())
    assert.same(a:matmul(b):tolist(), moth.einsum("ij,jk", a, b):tolist())
  end)

  it("uses a repeated letter for the diagonal", function()
    local square = t{{1, 2}, {3, 4}}
    assert.same({1, 4}, moth.einsum("ii->i", square):tolist())
    assert.equal(5, moth.einsum("ii", square):item())
  end)

  it("broadcasts the dimensions of an ellipsis", function()
    local x, y = moth.randn(5, 1, 2, 3), moth.randn(4, 3, 2)
    assert.same({5, 4, 2, 2}, {unpack(moth.einsum("...ij,...jk->...ik", x, y).shape)})
  end)

  it("has second derivatives", function()
    local x = moth.randn(2, 3, 3, {dtype = moth.float64}):requires_grad_()
    local y = moth.randn(3, 2, {dtype = moth.float64}):requires_grad_()
    local function f(p, q) return moth.einsum("bii,ib->b", p, q) end
    moth.autograd.gradcheck(f, {x, y})
    moth.autograd.gradgradcheck(f, {x, y})
  end)

  it("names the label and the sizes that do not match", function()
    local function refuses(text, ...)
      local arguments = {...}
      assert.has_error_like(function() return (moth.einsum(unpack(arguments))) end, text)
    end
    refuses("label 'j' has size 2 in operand 2 and 3 in an earlier one", "ij,jk->ik", a, a)
    refuses("label 'z' of the result is in no operand", "ij->iz", a)
    refuses("label 'i' occurs twice in the result", "ij->ii", a)
    refuses("label 'i' has size 3 in operand 1 and 2 in an earlier one", "ii", a)
    refuses("operand 1 has 2 dimensions, but 3 labels in the equation", "ijk", a)
    refuses("has 2, got 1", "ij,jk", a)
    refuses("is not a label", "i1->i", a)
  end)
end)

describe("tensordot", function()
  it("sums over the last dims of one and the first of the other, or over the given dims", function()
    local a, b = moth.randn(2, 3, 4), moth.randn(3, 4, 5)
    local want = a:reshape(2, 12):matmul(b:reshape(12, 5)):tolist()
    assert.same(want, moth.tensordot(a, b):tolist())
    assert.same(want, moth.tensordot(a, b, {{2, 3}, {1, 2}}):tolist())
    assert.same({2, 3, 4, 3, 4, 5}, {unpack(moth.tensordot(a, b, 0).shape)})
  end)
  it("names the wrong argument", function()
    local a = moth.randn(2, 3)
    assert.has_error_like(function() return (moth.tensordot(a, a, 1)) end, "'dims' to 'tensordot'")
    assert.has_error_like(function() return (moth.tensordot(a, a, {{1}, {1, 2}})) end,
      "different lengths, 1")
  end)
end)

describe("products with an addend", function()
  local nan = moth.full({2, 2}, 0 / 0)
  local one = moth.ones(2, 2)

  it("do not read the addend if beta is 0", function()
    assert.same({{2, 2}, {2, 2}}, moth.addmm(nan, one, one, {beta = 0}):tolist())
  end)
  it("broadcast the addend to the product, never the product to the addend", function()
    assert.same({{3, 4}, {3, 4}}, moth.addmm(t{1, 2}:float(), one, one):tolist())
    assert.has_error_like(function() return (moth.addmm(moth.ones(3, 2), moth.ones(1, 2), one)) end,
      "'input' to 'addmm' %(f32 %(3, 2%) cannot be broadcast")
  end)
  it("accept integers, with integer factors only", function()
    local i = moth.tensor{{1LL, 2LL}, {3LL, 4LL}}
    assert.same({{15, 22}, {33, 48}}, moth.addmm(i, i, i, {beta = 1, alpha = 2}):sub(i * 0)
      :float():tolist())
    assert.has_error_like(function() return (moth.addmm(i, i, i, {alpha = 0.5})) end,
      "'alpha' to 'addmm'")
  end)
end)
