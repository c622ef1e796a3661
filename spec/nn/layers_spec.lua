-- Layers and losses: values by hand-made numbers, initial values, dropout, and errors for wrong
-- input. golden_spec.lua compares their functions with PyTorch's numbers.

local moth = require "moth"
local nn, F = moth.nn, moth.nn.functional

local function fraction(mask) return mask:float():mean():item() end

describe("nn.Linear", function()
  it("computes input x weight^T + bias", function()
    local m = nn.Linear(2, 2)
    m:load_state_dict {weight = moth.tensor {{1, 2}, {3, 4}}, bias = moth.tensor {10, 20}}
    assert.same({{13, 27}, {10, 20}}, m(moth.tensor {{1, 1}, {0, 0}}):tolist())
    assert.same({13, 27}, m(moth.ones(2)):tolist())
    assert.equal("(5, 4, 2)", tostring(m(moth.ones(5, 4, 2)).shape))
  end)

  it("has initial values over all of +-1 / sqrt(in_features)", function()
    local w = nn.Linear(100, 1000).weight
    assert.is_true(w:amax():item() <= 0.1 and w:amax():item() > 0.0999)
    assert.is_true(w:amin():item() >= -0.1 and w:amin():item() < -0.0999)
    assert.close(0, w:mean():item(), 1e-3)
    assert.close(0.1 / math.sqrt(3), w:std():item(), 1e-3)
    assert.is_true(nn.Linear(100, 1000).bias:abs():amax():item() <= 0.1)
  end)

  it("has the same initial values with the same seed", function()
    moth.manual_seed(5)
    local a = nn.Linear(3, 3).weight:tolist()
    moth.manual_seed(5)
    assert.same(a, nn.Linear(3, 3).weight:tolist())
    assert.are_not.same(a, nn.Linear(3, 3).weight:tolist())
  end)

  it("returns the bias for no input features", function()
    for _, m in ipairs {nn.Linear(0, 3), nn.LazyLinear(3)} do
      local y = m(moth.zeros(2, 0))
      assert.same({{0, 0, 0}, {0, 0, 0}}, y:tolist())
    end
    for _, name in ipairs {"xavier_uniform_", "xavier_normal_", "kaiming_uniform_",
                           "kaiming_normal_"} do
      assert.same({0, 0}, nn.init[name](moth.empty(0, 0)).shape)
    end
  end)

  it("accepts a dtype", function()
    assert.equal(moth.float64, nn.Linear(2, 2, {dtype = moth.float64}).bias.dtype)
  end)
end)

describe("nn.Conv2d", function()
  it("has initial values within 1 / sqrt(fan in)", function()
    local w = nn.Conv2d {4, 64, kernel_size = 5}.weight
    assert.is_true(w:abs():amax():item() <= 0.1 and w:abs():amax():item() > 0.099)
    local grouped = nn.Conv2d {4, 64, kernel_size = 5, groups = 4}
    assert.equal("(64, 1, 5, 5)", tostring(grouped.weight.shape))
    assert.is_true(grouped.weight:abs():amax():item() > 0.19)
    assert.is_true(grouped.bias:abs():amax():item() <= 0.2)
  end)

  it("passes its options on to conv2d", function()
    local m = nn.Conv2d {4, 6, kernel_size = {3, 2}, stride = {2, 1}, padding = {1, 0},
      dilation = {1, 2}, groups = 2, bias = false}
    local x = moth.randn(2, 4, 7, 8)
    assert.same(F.conv2d(x, m.weight, nil, {2, 1}, {1, 0}, {1, 2}, 2):tolist(), m(x):tolist())
  end)

  it("keeps the size with padding 'same', also for even filters and dilation", function()
    for _, k in ipairs {1, 2, 3, 4, 5} do
      local m = nn.Conv2d {1, 1, kernel_size = k, padding = "same", dilation = 2}
      assert.equal("(1, 1, 9, 10)", tostring(m(moth.ones(1, 1, 9, 10)).shape))
    end
    assert.has_error_like(function()
      nn.Conv2d {1, 1, 3, padding = "same", stride = 2}
    end, "'same' needs stride 1")
  end)

  it("puts the extra row of 'same' at the end, as PyTorch does", function()
    local m = nn.Conv2d {1, 1, kernel_size = 2, padding = "same", bias = false}
    moth.no_grad(function() m.weight:fill_(1) end)
    assert.same({{{10, 6}, {7, 4}}}, m(moth.tensor {{{1.0, 2}, {3, 4}}}):tolist())
  end)

  it("fills its border from the image in other padding modes", function()
    local x = moth.tensor {{{1.0, 2, 3}}}
    local wanted = {reflect = {2, 1, 2, 3, 2}, replicate = {1, 1, 2, 3, 3},
                    circular = {3, 1, 2, 3, 1}, zeros = {0, 1, 2, 3, 0}}
    for mode, row in pairs(wanted) do
      local m = nn.Conv2d {1, 1, kernel_size = 1, padding = {0, 1}, padding_mode = mode,
        bias = false}
      moth.no_grad(function() m.weight:fill_(1) end)
      assert.same({{row}}, m(x):tolist())
    end
    assert.has_error_like(function()
      nn.Conv2d {1, 1, 3, padding = 3, padding_mode = "reflect"}(moth.ones(1, 3, 3))
    end, "in Conv2d: bad argument 'pad' to 'pad' %(a border of 3 in mode 'reflect'")
  end)
end)

describe("convolution and pooling", function()
  it("name the wrong argument", function()
    local x, w = moth.ones(2, 3, 8, 8), moth.ones(4, 3, 3, 3)
    assert.has_error_like(function() F.conv2d(x, moth.ones(4, 2, 3, 3)) end, "to 'conv2d'")
    assert.has_error_like(function() F.conv2d(x, moth.ones(4, 3, 9, 9)) end, "to 'conv2d'")
    assert.has_error_like(function() F.conv2d(x, w, moth.ones(5)) end, "'bias' to 'conv2d'")
    assert.has_error_like(function() F.conv2d(x, w, {stride = 0}) end, "'stride' to 'conv2d'")
    assert.has_error_like(function() F.conv2d(x, w, {padding = -1}) end, "'padding' to 'conv2d'")
    assert.has_error_like(function() F.conv2d(x, w, {groups = 2}) end, "to 'conv2d'")
    assert.has_error_like(function() F.conv2d(moth.ones(8, 8), w) end, "'input' to 'conv2d'")
    assert.has_error_like(function() F.conv2d(x:double(), w) end, "f64 %(2, 3, 8, 8%)")
    assert.has_error_like(function() F.max_pool2d(x, 9) end,
      "bad argument 'kernel_size' to 'max_pool2d' %({9, 9} does not fit f32 %(2, 3, 8, 8%)%)")
    assert.has_error_like(function() F.max_pool2d(x, 2, {padding = 2}) end,
      "'padding' to 'max_pool2d'")
    assert.has_error_like(function() F.max_pool2d(moth.ones(8), 2) end, "'input' to 'max_pool2d'")
  end)

  it("work on views of any strides, as on copies", function()
    local x = moth.randn(8, 3, 7, 2):transpose(1, 4):requires_grad_()
    local w = moth.randn(3, 3, 3, 4):transpose(1, 4)
    local copy = x:detach():contiguous():requires_grad_()
    local a = F.max_pool2d(F.conv2d(x, w), 2)
    local b = F.max_pool2d(F.conv2d(copy, w:contiguous()), 2)
    assert.close(b:tolist(), a:tolist(), 1e-5)
    a:sum():backward()
    b:sum():backward()
    assert.close(copy.grad:tolist(), x.grad:tolist(), 1e-5)
  end)

  it("accept empty batches", function()
    local x = moth.zeros(0, 3, 8, 8):requires_grad_()
    local w = moth.ones(4, 3, 3, 3):requires_grad_()
    local y = F.max_pool2d(F.conv2d(x, w), 2)
    assert.equal("(0, 4, 3, 3)", tostring(y.shape))
    y:sum():backward()
    assert.equal(0, w.grad:abs():sum():item())
  end)

  it("return NaN for a window with NaN", function()
    local x = moth.tensor {{{1.0, 0 / 0}, {2, 3}}}
    local y = F.max_pool2d(x, 2):item()
    assert.is_true(y ~= y)
  end)

  it("pass the gradient to the first of equal maxima", function()
    local x = moth.ones(1, 2, 2):requires_grad_()
    F.max_pool2d(x, 2):sum():backward()
    assert.same({{{1, 0}, {0, 0}}}, x.grad:tolist())
  end)

  it("agree as layers with the functions", function()
    local x = moth.randn(2, 3, 9, 9)
    local m = nn.MaxPool2d {3, stride = 2, padding = 1, ceil_mode = true}
    assert.same(F.max_pool2d(x, 3, 2, 1, 1, true):tolist(), m(x):tolist())
    assert.same(F.max_pool2d(x, 3):tolist(), nn.MaxPool2d(3)(x):tolist())
  end)
end)

describe("nn.Flatten", function()
  it("keeps the first dimension, or the given ones", function()
    assert.equal("(2, 12)", tostring(nn.Flatten()(moth.ones(2, 3, 4)).shape))
    assert.equal("(6, 4)", tostring(nn.Flatten(1, 2)(moth.ones(2, 3, 4)).shape))
  end)
end)

describe("nn.ReLU", function()
  it("is 0 for negative numbers, in place if requested", function()
    local x = moth.tensor {-1.0, 0, 2}
    assert.same({0, 0, 2}, nn.ReLU()(x):tolist())
    assert.same({-1, 0, 2}, x:tolist())
    assert.equal(x, nn.ReLU(true)(x))
    assert.same({0, 0, 2}, x:tolist())
  end)

  it("has the gradient 0 at 0 and below", function()
    local x = moth.tensor {-1.0, 0, 2}:requires_grad_()
    F.relu(x):sum():backward()
    assert.same({0, 0, 1}, x.grad:tolist())
  end)
end)

describe("dropout", function()
  it("zeros a share p and divides the rest by 1 - p", function()
    local y = F.dropout(moth.ones(100, 100), 0.25)
    assert.close(0.25, fraction(y:eq(0)), 0.02)
    assert.close(0.75, fraction(y:sub(4 / 3):abs():lt(1e-6)), 0.02)
    assert.close(1, y:mean():item(), 0.03)
  end)

  it("draws other masks in each call, and the same with the same seed", function()
    local x = moth.ones(1000)
    moth.manual_seed(7)
    local a, b = F.dropout(x), F.dropout(x)
    moth.manual_seed(7)
    assert.is_true(a:equal(F.dropout(x)))
    assert.is_false(a:equal(b))
    local function drawn(seed) return F.dropout {x, generator = moth.Generator {seed = seed}} end
    assert.is_true(drawn(1):equal(drawn(1)))
    assert.is_false(drawn(1):equal(drawn(2)))
  end)

  it("uses the same mask backward", function()
    local x = moth.ones(1000):requires_grad_()
    local y = F.dropout(x, 0.5)
    y:sum():backward()
    assert.same(y:tolist(), x.grad:tolist())
  end)

  it("is the input with p = 0 and all zeros with p = 1, also for infinite input", function()
    local x = moth.randn(50)
    assert.is_true(F.dropout(x, 0):equal(x))
    local y = F.dropout(moth.tensor {1.0, 1 / 0, -2}:requires_grad_(), 1)
    assert.same({0, 0, 0}, y:tolist())
    local z = moth.ones(3):requires_grad_()
    F.dropout(z, 1):sum():backward()
    assert.same({0, 0, 0}, z.grad:tolist())
  end)

  it("is the input when not training", function()
    local x = moth.randn(50)
    assert.is_true(F.dropout {x, training = false}:equal(x))
    for _, m in ipairs {nn.Dropout(), nn.Dropout2d()} do
      local image = x:view(1, 2, 5, 5)
      assert.is_true(m:eval()(image):equal(image))
      assert.is_false(m:train()(moth.ones(1, 64, 2, 2)):equal(moth.ones(1, 64, 2, 2)))
    end
  end)

  it("writes to its input if inplace is set", function()
    local x = moth.ones(10)
    assert.equal(x, nn.Dropout(0.5, true)(x))
    assert.equal(0, fraction(x:eq(1)))
  end)

  it("of images drops whole channels", function()
    local y = F.dropout2d(moth.ones(20, 30, 3, 3), 0.5)
    local per_channel = y:view(600, 9)
    assert.is_true(per_channel:amax(2):equal(per_channel:amin(2)))
    assert.close(0.5, fraction(y:eq(0)), 0.06)
    assert.close(2, y:amax():item())
    assert.equal("(30, 3, 3)", tostring(F.dropout2d(moth.ones(30, 3, 3)).shape))
  end)

  it("of images uses the same channels backward", function()
    local x = moth.ones(4, 5, 2, 2):requires_grad_()
    local y = F.dropout2d(x, 0.5)
    y:sum():backward()
    assert.same(y:tolist(), x.grad:tolist())
  end)

  it("raises for an invalid probability", function()
    for _, p in ipairs {-0.1, 1.1, 0 / 0} do
      assert.has_error_like(function() F.dropout(moth.ones(1), p) end, "'p' to 'dropout'")
      assert.has_error_like(function() nn.Dropout(p) end, "'p' to 'Dropout'")
    end
  end)
end)

describe("class targets", function()
  local logits = moth.zeros(2, 10)

  it("count from 1", function()
    local x = moth.tensor {{-1.0, -2, -3}}
    assert.equal(1, F.nll_loss(x, moth.tensor {1LL}):item())
    assert.equal(3, F.nll_loss(x, moth.tensor {3LL}):item())
    assert.equal(2, F.nll_loss(x, {2}):item())
  end)

  it("of 0, below, or above the classes raise an error that says so", function()
    for _, name in ipairs {"nll_loss", "cross_entropy"} do
      local loss = F[name]
      local start = "layers_spec%.lua:%d+: bad argument 'target' to '" .. name .. "' "
      assert.has_error_like(function() loss(logits, moth.tensor {0LL, 3LL}) end,
        start .. "%(positions count from 1, got 0%)")
      assert.has_error_like(function() loss(logits, {3, 11}) end,
        start .. "%(the target at position 2 is class 11, but there are 10 classes%)")
      assert.has_error_like(function() loss(logits, {-1, 3}) end,
        start .. "%(the target at position 1 is %-1, which is neither one of 10 classes nor")
    end
  end)

  it("change nothing after an error", function()
    local x = moth.zeros(2, 10):requires_grad_()
    pcall(F.nll_loss, x, {11, 3})
    F.nll_loss(x, {1, 2}):backward()
    assert.equal(-1, x.grad:sum():item())
  end)

  it("must be integers, as many as rows", function()
    assert.has_error_like(function() F.nll_loss(logits, moth.tensor {1.0, 2.0}) end,
      "'target' to 'nll_loss'")
    assert.has_error_like(function() F.nll_loss(logits, {1, 2, 3}) end, "to 'nll_loss'")
    assert.has_error_like(function() F.nll_loss(logits, {1, 2}, moth.ones(9)) end,
      "'weight' to 'nll_loss'")
  end)

  it("of -100 are ignored, others by ignore_index", function()
    local x = moth.tensor {{-1.0, -2}, {-3, -4}}
    assert.equal(4, F.nll_loss(x, {-100, 2}):item())
    assert.equal(1, F.nll_loss(x, {1, 2}, {ignore_index = 2}):item())
    assert.same({1, 0}, F.nll_loss(x, {1, -100}, {reduction = "none"}):tolist())
    local all = F.nll_loss(x, {-100, -100}):item()
    assert.is_true(all ~= all)
  end)

  it("of 0 are ignored if ignore_index is 0", function()
    local x = moth.randn(4, 3, {requires_grad = true})
    local weight = moth.tensor {1.0, 2, 3}
    local by = {F.cross_entropy, F.nll_loss}
    for _, loss in ipairs(by) do
      for _, reduction in ipairs {"mean", "sum", "none"} do
        local wanted = loss(x, {1, -100, 3, -100}, {weight = weight, reduction = reduction})
        local dx = moth.autograd.grad(wanted:sum(), x)
        for _, dtype in ipairs {moth.int64, moth.int32, moth.uint8} do
          local target = moth.tensor({1, 0, 3, 0}, {dtype = dtype})
          local got = loss(x, target, {weight = weight, reduction = reduction, ignore_index = 0})
          assert.same(wanted:tolist(), got:tolist())
          assert.same(dx:tolist(), moth.autograd.grad(got:sum(), x):tolist())
          assert.same({1, 0, 3, 0}, target:tolist())
        end
      end
      assert.same(loss(x, {1, -100, 2, 2}):item(), loss(x, {1, 0, 2, 2}, {ignore_index = 0}):item())
      assert.has_error_like(function() return (loss(x, {1, 0, 2, 2})) end, "count from 1, got 0")
      assert.has_error_like(function() return (loss(x, {1, -100, 2, 2}, {ignore_index = 0})) end,
        "'target'.*is %-100, which is neither one of 3 classes nor ignore_index")
      local mask = moth.ones(4):bool()
      assert.has_error_like(function() return (loss(x, mask, {ignore_index = 0})) end, "'target'")
      assert.has_error_like(function() return (loss(x, {1, 2, 2, 2}, {ignore_index = 0.5})) end,
        "'ignore_index'")
    end
    assert.same(F.cross_entropy(x, {1, -100, 3, 2}, {label_smoothing = 0.1}):item(),
      nn.CrossEntropyLoss {ignore_index = 0, label_smoothing = 0.1}(x, {1, 0, 3, 2}):item())
    local step = moth.capture(function(target)
      return F.cross_entropy(x:detach(), target, {ignore_index = 0})
    end)
    for _ = 1, 3 do
      local target = moth.randint(0, 3, 4)
      assert.equal(F.cross_entropy(x, target, {ignore_index = 0}):item(), step(target):item())
    end
  end)
end)

describe("losses as layers", function()
  local x, t = moth.randn(4, 3), moth.tensor {1LL, 3LL, 2LL, 3LL}

  it("agree with their functions", function()
    local weight = moth.tensor {1.0, 2, 3}
    for _, reduction in ipairs {"mean", "sum", "none"} do
      local m = nn.CrossEntropyLoss {weight = weight, reduction = reduction, ignore_index = 2,
        label_smoothing = 0.1}
      assert.same(F.cross_entropy(x, t, {weight = weight, reduction = reduction, ignore_index = 2,
        label_smoothing = 0.1}):tolist(), m(x, t):tolist())
      assert.same(F.nll_loss(x, t, weight, 2, reduction):tolist(),
        nn.NLLLoss(weight, 2, reduction)(x, t):tolist())
      assert.same(F.mse_loss(x, x * 2, reduction):tolist(),
        nn.MSELoss(reduction)(x, x * 2):tolist())
    end
  end)

  it("keep their weight as a buffer", function()
    local m = nn.NLLLoss(moth.ones(3))
    assert.same({"weight"}, m:state_dict():keys())
    assert.equal(moth.float64, m:double().weight.dtype)
  end)
end)

describe("nn.init", function()
  it("fills tensors and returns them, unrecorded", function()
    local p = nn.Parameter(moth.empty(3, 2))
    assert.equal(p, nn.init.zeros_(p))
    assert.same({{0, 0}, {0, 0}, {0, 0}}, p:tolist())
    nn.init.constant_(p, 3)
    assert.equal(18, p:sum():item())
    assert.is_true(p.is_leaf)
  end)

  it("uses the bounds of Xavier's and Kaiming's methods", function()
    local w = moth.empty(200, 300)
    nn.init.xavier_uniform_(w)
    local bound = math.sqrt(6 / 500)
    assert.is_true(w:abs():amax():item() <= bound and w:abs():amax():item() > 0.99 * bound)
    nn.init.kaiming_uniform_(w, {nonlinearity = "relu"})
    bound = math.sqrt(6 / 300)
    assert.is_true(w:abs():amax():item() <= bound and w:abs():amax():item() > 0.99 * bound)
    nn.init.xavier_normal_(w)
    assert.close(math.sqrt(2 / 500), w:std():item(), 2e-3)
  end)
end)

describe("the classic network", function()
  it("has gradients for all its parameters, twice the same", function()
    local net = nn.Sequential(nn.Conv2d {1, 10, kernel_size = 5}, nn.MaxPool2d(2), nn.ReLU(),
      nn.Conv2d {10, 20, kernel_size = 5}, nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU(),
      nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Dropout(), nn.Linear(50, 10),
      nn.LogSoftmax(2))
    local x = moth.randn(8, 1, 28, 28)
    local function gradients()
      moth.manual_seed(4)
      net:zero_grad()
      F.nll_loss(net(x), {1, 2, 3, 4, 5, 6, 7, 10}):backward()
      local list = {}
      for name, p in net:named_parameters() do
        assert.is_true(p.grad:abs():sum():item() > 0, name)
        list[name] = p.grad:clone()
      end
      return list
    end
    local first, second = gradients(), gradients()
    for name, grad in pairs(first) do assert.is_true(grad:equal(second[name]), name) end
  end)

  it("leaks no tensors in any step", function()
    local net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    local opt = moth.optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.5})
    local x = moth.randn(4, 1, 8, 8)
    local function step()
      moth.scope(function()
        opt:zero_grad()
        F.cross_entropy(net(x), {1, 2, 3, 4}):backward()
        opt:step()
      end)
    end
    step()
    opt:zero_grad()
    moth.collect()
    local before = moth.memory()
    for _ = 1, 5 do step() end
    opt:zero_grad()
    moth.collect()
    local after = moth.memory()
    assert.at_most(before.live_bytes, after.live_bytes)
    assert.at_most(before.live_nodes, after.live_nodes)
  end)
end)
