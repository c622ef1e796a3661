-- Mixed precision: the dtype of each op, and the gradients.

local moth = require "moth"
local profiler = require "spec.support.profiler"
local nn = moth.nn
local F = nn.functional

local function inside(f, ...) return moth.autocast("cpu", moth.bfloat16, f, ...) end

describe("autocast", function()
  it("computes products in the half type and sensitive ops in f32", function()
    local x, w, b = moth.randn(4, 6), moth.randn(5, 6), moth.randn(5)
    inside(function()
      local y = F.linear(x, w, b)
      assert.equal(moth.bfloat16, y.dtype)
      assert.equal(moth.bfloat16, x:matmul(w:t()).dtype)
      assert.equal(moth.bfloat16, F.conv2d(moth.randn(1, 2, 5, 5), moth.randn(3, 2, 3, 3)).dtype)
      assert.equal(moth.bfloat16, F.relu(y).dtype)
      assert.equal(moth.float32, F.softmax(y, 1).dtype)
      assert.equal(moth.float32, F.cross_entropy(y, moth.tensor({ 1, 2, 3, 1 }, moth.int64)).dtype)
      assert.equal(moth.float32, F.layer_norm(y, { 5 }).dtype)
      assert.equal(moth.float32, (y + b).dtype)
      assert.equal(moth.float32, moth.cat({ y, y:float() }, 1).dtype)
      assert.equal(moth.float64, x:double():matmul(w:double():t()).dtype)
    end)
    assert.equal(moth.float32, F.linear(x, w, b).dtype)
  end)

  it("casts a parameter once in a region, and again if its value or history differs", function()
    local a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    local x, wide = moth.randn(2, 4):bfloat16(), moth.randn(2, 4)
    local function casts(f) return profiler.count(moth.profiler.profile(f), "cast") end
    local function forward() return b(a(x)) end
    inside(function()
      assert.equal(4, casts(forward)) -- two weights, two biases
      assert.equal(0, casts(function() for _ = 1, 3 do forward() end end))
      moth.no_grad(function() a.weight:mul_(2) end)
      assert.equal(1, casts(forward))
      moth.no_grad(function()
        assert.equal(4, casts(forward)) -- without history
        assert.equal(0, casts(forward))
      end)
      assert.equal(4, casts(forward))
      forward():sum():backward()
      assert.equal(4, casts(forward)) -- the graph of the old casts is freed
      assert.equal(2, casts(function() b(wide) b(wide) end)) -- other tensors are cast each time
      a.weight.data = moth.zeros(4, 4)
      assert.equal(1, casts(forward))
      assert.is_true(moth.equal(b.bias:bfloat16(), b(a(x) - a.bias:bfloat16())[1]))
    end)
    inside(function() assert.equal(4, casts(forward)) end)
  end)

  it("computes sums, powers and exponentials in f32: they leave the range of float16", function()
    local w = moth.full({2, 4}, 3):requires_grad_()
    moth.autocast("cpu", moth.float16, function()
      local y = F.linear(moth.full({3, 4}, 25), w) -- elements of 300
      assert.equal(moth.float16, y.dtype)
      for name, wanted in pairs {square = 90000, exp = math.huge, cosh = math.huge} do
        assert.same({moth.float32, wanted}, {moth[name](y).dtype, moth[name](y)[{1, 1}]:item()})
      end
      assert.same({moth.float32, 9e4}, {(y ^ 2).dtype, (y ^ 2)[{1, 1}]:item()})
      assert.same({moth.float32, 76800}, {(y * 128):cumsum(1).dtype, (y[1] * 128):sum():item()})
      assert.is_true(math.abs((y * 100):norm():item() - 3e4 * math.sqrt(6)) < 1)
      assert.equal(moth.float16, y:mean().dtype)
      assert.equal(moth.float16, F.prelu(y, moth.tensor{0.25}).dtype)
      assert.equal(moth.float16, y:sum({dtype = moth.float16}).dtype)
      moth.sum(moth.square(y * 100)):backward()
    end)
    assert.equal(moth.float32, w.grad.dtype)
  end)

  it("computes distances exactly that use a matrix product", function()
    local x = moth.randn(30, 4):requires_grad_()
    local wanted = moth.cdist(x, x * 2)
    inside(function()
      assert.is_true(moth.equal(wanted, moth.cdist(x, x * 2)))
      local y = moth.cdist(x:bfloat16(), x)
      assert.equal(moth.float32, y.dtype)
      y:sum():backward()
    end)
    assert.is_false(moth.is_autocast_enabled())
    assert.equal(moth.float32, x.grad.dtype)
  end)

  it("ignores plain numbers in the choice of a result's dtype", function()
    local one = moth.tensor{1LL}
    for _, dtype in ipairs {moth.float32, moth.bfloat16} do
      local x = moth.zeros(2, 2, {dtype = dtype})
      moth.autocast("cpu", moth.bfloat16, function()
        assert.are.equal(dtype, x:repeat_interleave(2, 1).dtype)
        assert.are.equal(dtype, x:scatter(1, moth.ones(1, 2):long(), 0.5).dtype)
        assert.are.equal(dtype, x:index_put({one}, 1).dtype)
      end)
    end
  end)

  it("computes ops without half-type kernels in f32", function()
    inside(function()
      local x = moth.eye(3):to(moth.bfloat16) * 2
      assert.equal(moth.float32, moth.linalg.inv(x).dtype)
      assert.equal(moth.float32, moth.linalg.solve(x, x:double():float()).dtype)
      assert.equal(moth.float64, moth.linalg.det(x:double()).dtype)
    end)
  end)

  it("computes the f32 loss of half-type scores, without an f32 copy of the scores", function()
    local labels, half = moth.randint(1, 51, { 64 }), moth.randn(64, 50):to(moth.bfloat16)
    for _, options in ipairs { { reduction = "mean" }, { reduction = "none" },
      { label_smoothing = 0.1 }, { weight = moth.rand(50) }, { ignore_index = 3 } } do
      local function entropy(x)
        x = x:detach():requires_grad_()
        local y = inside(function() return F.cross_entropy(x, labels, options) end)
        y:sum():backward()
        return y, x.grad
      end
      local y, dx = entropy(half)
      local wanted, dx32 = entropy(half:float())
      assert.equal(moth.float32, y.dtype)
      assert.is_true(moth.allclose(wanted, y, 1e-6, 1e-6))
      assert.equal(moth.bfloat16, dx.dtype)
      assert.is_true(moth.allclose(dx32:to(moth.bfloat16):float(), dx:float(), 1e-2, 1e-6))
    end
    local v, w = half:detach():requires_grad_(), moth.rand(50):to(moth.bfloat16):requires_grad_()
    local loss = inside(function() return F.cross_entropy(v, labels, { weight = w }) end)
    local dv, dw = moth.autograd.grad(loss, { v, w }, { create_graph = true })
    assert.equal(moth.bfloat16, dv.dtype)
    assert.equal(moth.bfloat16, dw.dtype)
    local x = moth.randn(512, 512):to(moth.bfloat16):requires_grad_()
    local many = moth.randint(1, 513, { 512 })
    moth.collect()
    local before = moth.memory().live_bytes
    local y = inside(function() return F.cross_entropy(x, many) end)
    moth.collect()
    assert.is_true(moth.memory().live_bytes - before < 512 * 512)
    assert.is_true(y:item() > 0)
  end)

  it("keeps images in the half type in batch_norm; its weights and statistics stay f32", function()
    moth.manual_seed(2)
    local x, target, wanted = moth.randn(6, 3, 4, 4), moth.randn(6, 5, 2, 2), nil
    for _, short in ipairs { false, true } do
      moth.manual_seed(3)
      local conv, norm = nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)
      local function forward() return norm(conv(x)) end
      local y = short and inside(forward) or forward()
      assert.equal(short and moth.bfloat16 or moth.float32, y.dtype)
      F.mse_loss(y:float(), target, { reduction = "sum" }):backward()
      local got = { y:float():detach(), norm.weight.grad, norm.bias.grad, conv.weight.grad,
        norm.running_mean, norm.running_var }
      for i, g in ipairs(got) do
        assert.equal(moth.float32, g.dtype)
        if short then
          local off = (wanted[i] - g):abs():max():item()
          assert.is_true(off < 0.05 * (wanted[i]:abs():max():item() + 0.1), i .. ": " .. off)
        end
      end
      wanted = got
    end
  end)

  it("has f32 gradients near those of f32, with backward inside and outside", function()
    moth.manual_seed(1)
    local net = nn.Sequential(nn.Linear(20, 30), nn.LayerNorm(30), nn.ReLU(), nn.Linear(30, 3))
    local x, y = moth.randn(16, 20), moth.randint(1, 4, { 16 })
    local function loss() return F.cross_entropy(net(x), y) end
    local function gradient()
      local g = net[1].weight.grad:clone()
      assert.equal(moth.float32, g.dtype)
      net:zero_grad()
      return g
    end
    loss():backward()
    local want = gradient()
    inside(loss):backward()
    local outer = gradient()
    inside(function()
      loss():backward()
      local first = gradient()
      loss():backward() -- the cached copy of the weight was used
      assert.is_true(moth.equal(first, gradient()))
      assert.is_true(moth.equal(first, outer))
    end)
    assert.is_true((want - outer):norm():item() < 0.05 * want:norm():item())
    assert.is_false(moth.equal(want, outer))
  end)

  it("uses the new value of a weight that was changed inside the region", function()
    local w = moth.ones(2, 2):requires_grad_()
    inside(function()
      assert.equal(2, F.linear(moth.ones(2), w)[1]:item())
      moth.no_grad(function() w:mul_(3) end)
      assert.equal(6, F.linear(moth.ones(2), w)[1]:item())
      w.data = moth.full({2, 2}, 4)
      assert.equal(8, F.linear(moth.ones(2), w)[1]:item())
    end)
  end)

  it("ends with an error, nests, and can be entered by hand", function()
    assert.has_error_like(function() inside(function() error "stop" end) end, "stop")
    assert.is_false(moth.is_autocast_enabled())
    local region = moth.autocast("cpu", moth.bfloat16):enter()
    assert.is_true(moth.is_autocast_enabled())
    moth.autocast("cpu", false, function() assert.is_false(moth.is_autocast_enabled()) end)
    moth.no_grad(function() assert.is_true(moth.is_autocast_enabled()) end)
    region:exit()
    assert.is_false(moth.is_autocast_enabled())
    assert.has_error_like(function() region:exit() end, "not active")
    assert.has_error_like(function() moth.autocast("gpu", moth.bfloat16) end, "device_type")
    assert.has_error_like(function() moth.autocast("cpu", moth.int32) end, "dtype")
  end)

  it("accepts its arguments by name, and a function in place of the dtype", function()
    local x = moth.ones(2, 2)
    local function dtype_of(...) return moth.autocast(...).dtype end
    local half = { device_type = "cpu", dtype = moth.float16 }
    assert.equal(moth.float16, dtype_of(half, moth.matmul, x, x))
    assert.equal(moth.float16, dtype_of("cpu", { dtype = moth.float16 }, moth.matmul, x, x))
    assert.equal(moth.bfloat16, dtype_of({ "cpu" }, moth.matmul, x, x))
    assert.equal(moth.bfloat16, dtype_of("cpu", moth.matmul, x, x))
    assert.equal(moth.bfloat16, dtype_of("cpu", moth.none, moth.matmul, x, x))
    assert.equal(moth.float32, dtype_of("cpu", { enabled = false }, moth.matmul, x, x))
    local region = moth.autocast(half):enter()
    assert.equal(moth.float16, x:matmul(x).dtype)
    region:exit()
    assert.has_error_like(function() moth.autocast { devicetype = "cpu" } end, "'device_type'")
    assert.has_error_like(function() moth.autocast("cpu", { enable = 1 }) end, "'enabled'")
    assert.has_error_like(function() moth.autocast("cpu", { enabled = 1 }) end, "a boolean")
    assert.has_error_like(function() moth.autocast("cpu", { device_type = "cpu" }) end, "twice")
  end)

  it("is recorded by moth.capture", function()
    local function losses(captured)
      moth.manual_seed(3)
      local net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 3))
      local optimizer = moth.optim.Adam(net:parameters(), { lr = 0.01 })
      local function step(x, y)
        optimizer:zero_grad()
        local loss = inside(function() return F.cross_entropy(net(x), y) end)
        loss:backward()
        optimizer:step()
        return loss
      end
      if captured then step = moth.capture(step) end
      local list = {}
      for i = 1, 10 do list[i] = step(moth.randn(16, 20), moth.randint(1, 4, { 16 })):item() end
      return list
    end
    assert.same(losses(false), losses(true))
  end)

  it("runs recurrent layers and transformers", function()
    inside(function()
      local y = nn.LSTM(4, 5)(moth.randn(3, 2, 4):bfloat16())
      assert.equal(moth.float32, y.dtype)
      nn.TransformerEncoderLayer(8, 2, 16)(moth.randn(3, 2, 8)):sum():backward()
    end)
  end)
end)
