--- quantize_spec.lua -- fake quantization per tensor and per channel: values are PyTorch's, and
-- gradients pass through elements that were not clamped.

local moth = require "moth"
local intact = require "spec.support.intact"

local whole, each = moth.fake_quantize_per_tensor_affine, moth.fake_quantize_per_channel_affine
local refuses = intact.refuses

describe("fake_quantize_per_tensor_affine", function()
  local x = {-1.3, -0.25, 0, 0.25, 0.74, 0.75, 1.6, 300}

  it("has the values of the integers, with halves rounded to even", function()
    -- torch.fake_quantize_per_tensor_affine(x, 0.5, 2, 0, 5)
    assert.same({-1, 0, 0, 0, 0.5, 1, 1.5, 1.5}, whole(moth.tensor(x), 0.5, 2, 0, 5):tolist())
    assert.same({-1, 0, 0, 0, 0.5, 1, 1.5, 1.5}, whole(moth.tensor(x), moth.tensor(0.5),
      moth.tensor({2}, {dtype = moth.int32}), 0, 5):tolist())
    assert.same({-1.5, 0, 0, 0, 0.5, 1, 1.5, 63.5}, whole(moth.tensor(x), 0.5, 0, -128,
      127):tolist())
  end)

  it("passes the gradient of elements that were not clamped, also of higher order", function()
    local v = moth.tensor(x, {requires_grad = true})
    local g = moth.autograd.grad((whole(v, 0.5, 2, 0, 5) ^ 2):sum(), v, {create_graph = true})
    assert.same({0, 0, 0, 0, 1, 2, 3, 0}, g:tolist())
    g:sum():backward()
    assert.same({0, 2, 2, 2, 2, 2, 2, 0}, v.grad:tolist())
  end)

  it("keeps half types and float64, and accepts transposed tensors", function()
    for _, dtype in ipairs {moth.float16, moth.bfloat16, moth.float64} do
      local v = moth.tensor({{0.25, 0.75}, {1.6, -9}}, {dtype = dtype}):t():requires_grad_()
      local y = whole(v, 0.5, 2, 0, 5)
      assert.equal(dtype, y.dtype)
      assert.same({{0, 1.5}, {1, -1}}, y:tolist())
      y:sum():backward()
      assert.equal(dtype, v.grad.dtype)
      assert.same({{1, 1}, {1, 0}}, v.grad:tolist())
    end
    assert.same({0}, {unpack(whole(moth.empty(0), 0.5, 0, 0, 1).shape)})
  end)

  it("can be captured", function()
    local step = moth.capture(function(v) return whole(v, 0.1, 3, 0, 15) end)
    for _ = 1, 4 do
      local v = moth.randn(8)
      assert.is_true(moth.equal(step(v), whole(v, 0.1, 3, 0, 15)))
    end
  end)

  it("raises for integers, invalid scales and zero points, and limits in wrong order", function()
    refuses(function() return (whole(moth.tensor{1LL}, 0.5, 0, 0, 5)) end, "'input'")
    refuses(function() return (whole(moth.ones(1), 0, 0, 0, 5)) end, "'scale'")
    refuses(function() return (whole(moth.ones(1), moth.ones(2), 0, 0, 5)) end, "'scale'")
    refuses(function() return (whole(moth.ones(1), 0.5, 9, 0, 5)) end, "'zero_point'")
    refuses(function() return (whole(moth.ones(1), 0.5, 1.5, 0, 5)) end, "'zero_point'")
    refuses(function() return (whole(moth.ones(1), 0.5, moth.tensor(0), 5, 0)) end, "'quant_min'")
    refuses(function() return (whole(moth.ones(1), 0.5, moth.tensor(9LL), 0, 5)) end,
      "numbers from quant_min, 0, to quant_max, 5")
    refuses(function()
      return (moth.fake_quantize_per_channel_affine(moth.ones(2, 2), moth.ones(2),
        moth.tensor{0LL, -1LL}, 1, 0, 5))
    end, "'zero_point'")
  end)
end)

describe("fake_quantize_per_channel_affine", function()
  local scale, zero = moth.tensor{0.5, 0.25}, moth.tensor({0, 1}, {dtype = moth.int32})

  it("has a scale and a zero point for each position of the axis", function()
    local x = moth.tensor({{0.3, 0.3, 9}, {0.3, -0.3, -9}}, {requires_grad = true})
    local y = each(x, scale, zero, 1, 0, 7)
    assert.same({{0.5, 0.5, 3.5}, {0.25, -0.25, -0.25}}, y:tolist())
    y:sum():backward()
    assert.same({{1, 1, 0}, {1, 1, 0}}, x.grad:tolist())
    local turned = each(x:t(), scale, zero, -1, 0, 7)
    assert.is_true(moth.equal(turned, y:t()))
  end)

  it("raises for an unknown axis, and for another number of channels", function()
    refuses(function() return (each(moth.ones(2, 3), scale, zero, 3, 0, 7)) end, "'axis'")
    refuses(function() return (each(moth.ones(2, 3), scale, zero, 2, 0, 7)) end, "of 3 elements")
  end)
end)
