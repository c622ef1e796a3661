-- F.linear_cross_entropy cuts its rows without a trace in values or gradients, and needs less
-- memory than all results take.

local moth = require "moth"
local F = moth.nn.functional

describe("linear_cross_entropy", function()
  local function drawn(...) return (moth.randn(...):double():requires_grad_()) end

  for _, reduction in ipairs {"mean", "sum", "none"} do
    it("is what linear and cross_entropy give, for rows of any number, by " .. reduction, function()
      local x, w, b, t = drawn(7, 4), drawn(5, 4), drawn(5), moth.randint(1, 6, {7})
      local dy = reduction == "none" and moth.randn(7):double() or moth.tensor(0.7):double()
      local wanted = F.cross_entropy(F.linear(x, w, b), t, {reduction = reduction})
      local slopes = {moth.autograd.grad(wanted, {x, w, b}, dy)}
      for _, rows in ipairs {1, 3, 7, 100} do
        local y = F.linear_cross_entropy(x, w, t, {linear_bias = b, reduction = reduction,
                                                    batch_chunk_size = rows})
        assert.is_true(y:allclose(wanted))
        for i, dx in ipairs {moth.autograd.grad(y, {x, w, b}, dy)} do
          assert.is_true(dx:allclose(slopes[i]))
        end
      end
      local function f(...)
        local input, weight, bias = ...
        return (F.linear_cross_entropy(input, weight, t, {linear_bias = bias, batch_chunk_size = 2,
                                                           reduction = reduction}))
      end
      moth.autograd.gradcheck(f, {x, w, b})
      moth.autograd.gradgradcheck(f, {x, w, b})
    end)
  end

  it("sums half types in float32", function()
    local x, t = moth.ones(600, 1):bfloat16(), moth.ones(600):long()
    local w = moth.zeros(2, 1):bfloat16():requires_grad_()
    F.linear_cross_entropy(x, w, t, {reduction = "sum", batch_chunk_size = 1}):backward()
    assert.same({{-300}, {300}}, w.grad:tolist()) -- 256 and 1/2 are 256 in bfloat16
  end)

  it("takes less memory than all results", function()
    local n, d, classes = 2048, 8, 4096
    local x, w = moth.randn(n, d):requires_grad_(), moth.randn(classes, d):requires_grad_()
    local t = moth.randint(1, classes + 1, {n})
    moth.collect()
    moth.reset_peak_memory()
    local before = moth.memory().live_bytes
    moth.scope(function()
      F.linear_cross_entropy(x, w, t, {batch_chunk_size = 128}):backward()
    end)
    assert.is_true(moth.memory().peak_bytes - before < n * classes * 4 / 2)
  end)

  it("is recorded as a step, with its gradients", function()
    local w = moth.randn(5, 4):requires_grad_()
    local step = moth.capture(function(x, t)
      w.grad = nil
      local loss = F.linear_cross_entropy(x, w, t, {batch_chunk_size = 4})
      loss:backward()
      return loss, w.grad
    end)
    for _ = 1, 4 do
      local x, t = moth.randn(8, 4), moth.randint(1, 6, {8})
      local loss, dw = step(x, t)
      local wanted = F.cross_entropy(F.linear(x, w), t)
      assert.is_true(loss:allclose(wanted))
      assert.is_true(dw:allclose(moth.autograd.grad(wanted, w), {atol = 1e-6}))
    end
  end)

  it("names what does not fit", function()
    local x, w, t = moth.randn(3, 4), moth.randn(5, 4), moth.tensor {1LL, 2LL, 3LL}
    local function refuses(f, text) assert.error_matches(f, text, 1, true) end
    refuses(function() F.linear_cross_entropy(x, w:t(), t) end,
      "bad argument 'input' to 'linear_cross_entropy' ((N, 5) or (5) is needed")
    refuses(function() F.linear_cross_entropy(x, w, t[{{1, 2}}]) end, "'target'")
    refuses(function() F.linear_cross_entropy(x, w, t, {batch_chunk_size = 0}) end,
      "'batch_chunk_size'")
    refuses(function() F.linear_cross_entropy(x, w, t, {chunk = 2}) end, "chunk")
  end)
end)
