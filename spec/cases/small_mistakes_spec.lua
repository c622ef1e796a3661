-- Claims about small mistakes that no other spec caught: swapped arguments in messages, the first
-- element of a list, values that are checked in one of two places.

local moth = require "moth"
local F = moth.nn.functional

local function fails(pattern, f, ...)
  local ok, problem = pcall(f, ...)
  assert.is_false(ok)
  assert.matches(pattern, (tostring(problem)))
end

describe("a transform of distributions", function()
  local D = moth.distributions
  -- transform, a value of its domain
  local rows = {
    {D.ExpTransform(), moth.randn(4)}, {D.SigmoidTransform(), moth.randn(4)},
    {D.TanhTransform(), moth.randn(4)}, {D.SoftplusTransform(), moth.randn(4)},
    {D.SoftmaxTransform(), moth.tensor {-1.5, 0.25, 2}},
    {D.StickBreakingTransform(), moth.randn(3)},
    {D.AffineTransform(1, 2), moth.randn(4)}, {D.PowerTransform(2), moth.rand(4) + 0.1},
    {D.LowerCholeskyTransform(), moth.randn(3, 3)}, {D.CorrCholeskyTransform(), moth.randn(3)},
  }
  for _, row in ipairs(rows) do
    local transform, x = row[1], row[2]
    it("takes its domain to its codomain: " .. tostring(transform):match "%w+", function()
      assert.is_true(transform.domain:check(x):all():item())
      assert.is_true(transform.codomain:check(transform(x)):all():item())
    end)
  end

  it("to the simplex has the real vectors as domain", function()
    local softmax = D.SoftmaxTransform()
    assert.is_false(softmax.codomain:check(moth.tensor {-1, 0.5}):all():item())
    assert.is_true(softmax.domain:check(moth.tensor {-1, 0.5}):all():item())
  end)
end)

describe("a message", function()
  it("names what is needed first, then what came", function()
    fails("one integer for each of the boxes f32 %(3, 4%) is needed, got i64 %(2%)",
      moth.ops.batched_nms, moth.rand(3, 4), moth.rand(3), moth.tensor {1LL, 2LL}, 0.5)
  end)

  it("of a method without a tensor names the method", function()
    fails("record_stream", moth.ones(1).record_stream, 3)
    assert.is_nil(moth.ones(1):record_stream())
  end)
end)

describe("a Function", function()
  it("has no saved tensors in forward", function()
    local Early = moth.class("Early", moth.autograd.Function)
    function Early.forward(ctx, x)
      return x * #ctx.saved_tensors
    end
    fails("backward only", Early.apply, moth.ones(2, {requires_grad = true}))
  end)
end)

describe("the prompt", function()
  it("splits at a semicolon that begins the text", function()
    local before, after = require("moth.repl.lexer").last_piece "; x"
    assert.are.equal("", before)
    assert.are.equal(" x", after)
  end)
end)

describe("vmap", function()
  it("resizes a batch of batches of images", function()
    local x = moth.randn(3, 2, 1, 4, 5)
    local function resize(images) return F.interpolate(images, {scale_factor = 2}) end
    local y = moth.vmap(resize)(x)
    for i = 1, 3 do assert.is_true(moth.equal(resize(x[i]), y[i])) end
  end)
end)

-- A wrong number in a table of a vector kernel changes one short range only.
describe("an elementwise function of float32", function()
  local RANGES = {
    erf = {-4, 4}, erfc = {-4, 9}, exp = {-80, 80}, expm1 = {-10, 40}, exp2 = {-100, 100},
    log = {1e-6, 50}, log1p = {-0.999, 50}, log2 = {1e-6, 50}, log10 = {1e-6, 50},
    tanh = {-9, 9}, sigmoid = {-30, 30}, sinh = {-40, 40}, cosh = {-40, 40}, asinh = {-90, 90},
    acosh = {1.01, 90}, atanh = {-0.99, 0.99}, asin = {-1, 1}, acos = {-0.99, 0.99},
    atan = {-50, 50}, sqrt = {0, 90}, rsqrt = {1e-3, 90}, erfinv = {-0.999, 0.999},
    i0 = {-40, 40}, sinc = {0.01, 0.9}, logit = {0.6, 0.999},
  }
  local names = {}
  for name in pairs(RANGES) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    it("is that of float64 over its whole range: " .. name, function()
      local x = moth.linspace(RANGES[name][1], RANGES[name][2], 60001)
      local want, got = moth[name](x:double()), moth[name](x):double()
      local errors = (got - want):abs() / (want:abs() + 1e-30)
      local near = want:abs():lt(1e-30) -- below what float32 holds
      assert.is_true(moth.where(near, 0, errors):max():item() < 2e-6)
    end)
  end
end)
