-- F.linear_cross_entropy computes pieces of its rows, with the same values and gradients, and needs
-- less memory than all results of the linear layer.

local moth = require "moth"
local F = moth.nn.functional

describe("linear_cross_entropy", function()
  local function drawn(...) return (moth.randn(...):double():requires_grad_()) end

  for _, reduction in ipairs {"mean", "sum", "none"} do
    it("equals linear and cross_entropy, for any number of rows, by " .. reduction, function()
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

  it("is a module that contains the layer, as in PyTorch", function()
    local loss = moth.nn.LinearCrossEntropyLoss{4, 5, weight = moth.arange(1, 6):float(),
      bias = true, label_smoothing = 0.1, reduction = "sum", ignore_index = 2}
    local names = {}
    for name in loss:named_parameters() do names[#names + 1] = name end
    assert.same({"linear.weight", "linear.bias"}, names)
    assert.same({1, 2, 3, 4, 5}, loss:state_dict().weight:tolist())
    local x, t = moth.randn(6, 4), moth.tensor{1, 2, 3, 4, 5, 2}:long()
    assert.is_true(loss(x, t):allclose(F.cross_entropy(loss.linear(x), t, {
      weight = loss.weight, label_smoothing = 0.1, reduction = "sum", ignore_index = 2})))
    assert.is_nil(moth.nn.LinearCrossEntropyLoss(4, 5).linear.bias)
    assert.has_error(function() loss(moth.randn(6, 3), t) end)
  end)

  it("sums half types in float32", function()
    local x, t = moth.ones(600, 1):bfloat16(), moth.ones(600):long()
    local w = moth.zeros(2, 1):bfloat16():requires_grad_()
    F.linear_cross_entropy(x, w, t, {reduction = "sum", batch_chunk_size = 1}):backward()
    assert.same({{-300}, {300}}, w.grad:tolist()) -- 256 and 1/2 are 256 in bfloat16
  end)

  it("has a mean of half types whose sum would overflow", function()
    local t = moth.arange(30000):remainder(100):long() + 1
    local x, w = moth.randn(30000, 4):half(), moth.randn(100, 4):half()
    assert.is_true(F.linear_cross_entropy(x, w, t):allclose(F.cross_entropy(F.linear(x, w), t)))
    for _, reduction in ipairs {"mean", "sum"} do
      for _, classes in ipairs {moth.none, moth.ones(3):half()} do
        local ones, zeros = moth.ones(80000, 2):half(), moth.zeros(3, 2):half():requires_grad_()
        local y = F.linear_cross_entropy(ones, zeros, moth.ones(80000):long(), {
          batch_chunk_size = 1000, weight = classes, reduction = reduction})
        y:backward(reduction == "sum" and moth.full({}, 1 / 80000):half() or moth.ones_like(y))
        if reduction == "mean" then
          assert.equal(moth.float16, y.dtype)
          assert.is_true(math.abs(y:item() - math.log(3)) < 1e-3)
        end
        assert.is_true(zeros.grad:float():allclose(
          moth.tensor{{-2 / 3, -2 / 3}, {1 / 3, 1 / 3}, {1 / 3, 1 / 3}}, {rtol = 1e-2}))
      end
    end
  end)

  it("raises if a target or class weight changes before the backward pass", function()
    for _, reduction in ipairs {"mean", "none"} do
      for _, create_graph in ipairs {false, true} do
        for at = 1, 2 do
          local x, w, t = moth.randn(3, 4):requires_grad_(), moth.randn(5, 4), moth.ones(3):long()
          local classes = moth.ones(5)
          local y = F.linear_cross_entropy(x, w, t, {weight = classes, reduction = reduction})
          if at == 1 then t:fill_(2) else classes:mul_(2) end
          assert.error_matches(function()
            moth.autograd.grad(y, x, moth.ones_like(y), {create_graph = create_graph})
          end, "saved for the gradient at version 0")
        end
      end
    end
  end)

  it("needs less memory than all results of the linear layer", function()
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

  it("is recorded by capture, with its gradients", function()
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

  it("equals cross_entropy for no rows: nan, 0, none", function()
    local x, w, b = moth.randn(0, 4):requires_grad_(), drawn(5, 4):float(), moth.randn(5)
    local t = moth.zeros(0):long()
    local function of(reduction)
      return (F.linear_cross_entropy(x, w, t, {linear_bias = b, reduction = reduction}))
    end
    local mean = of("mean"):item()
    assert.is_true(mean ~= mean)
    assert.equal(0, of("sum"):item())
    assert.equal("(0)", tostring(of("none").shape))
    local loss = of("sum")
    local dx, dw = moth.autograd.grad(loss, {x, w})
    assert.equal("(0, 4)", tostring(dx.shape))
    assert.equal(0, dw:abs():max():item())
    of("none"):sum():backward()
    assert.equal("(0, 4)", tostring(x.grad.shape))
  end)

  it("names the wrong argument", function()
    local x, w, t = moth.randn(3, 4), moth.randn(5, 4), moth.tensor {1LL, 2LL, 3LL}
    local function refuses(f, text) assert.error_matches(f, text, 1, true) end
    refuses(function() F.linear_cross_entropy(x, w:t(), t) end,
      "bad argument 'input' to 'linear_cross_entropy' ((N, 5) or (5) is needed")
    refuses(function() F.linear_cross_entropy(x, w, t[{{1, 2}}]) end, "'target'")
    refuses(function() F.linear_cross_entropy(x, w, t, {batch_chunk_size = 0}) end,
      "'batch_chunk_size'")
    refuses(function() F.linear_cross_entropy(x, w, t, {chunk = 2}) end, "chunk")
    refuses(function() F.linear_cross_entropy(x, w, t, {bias = w[1]}) end, "'linear_bias'?")
    refuses(function() F.linear_cross_entropy(x, w, t, {weight = w[1]}) end,
      "bad argument 'weight' to 'linear_cross_entropy'")
    for _, class in ipairs {0, 6} do
      t[3] = class
      refuses(function() F.linear_cross_entropy(x, w, t, {batch_chunk_size = 1}) end,
        ("'linear_cross_entropy' (the target at position 3 is class %d"):format(class))
    end
  end)
end)
