-- nn.utils clips gradients as PyTorch does; nn.init fills tensors.

local moth = require "moth"
local nn = moth.nn
local utils, init = nn.utils, nn.init

-- Parameters of several dtypes and layouts. Their gradients are 3, -4 and 12: the 2-norm is 13, the
-- 1-norm 19.
local function parameters(dtype)
  dtype = dtype or moth.float32
  local p, q = nn.Parameter(moth.zeros(2, {dtype = dtype})), nn.Parameter(moth.zeros(1, 2):t())
  local r = nn.Parameter(moth.zeros(3))
  p.grad = moth.tensor({3.0, -4.0}, {dtype = dtype})
  q.grad = moth.tensor {{12.0}, {0.0}}
  return {p, q, r}
end

describe("clip_grad_norm_", function()
  it("scales all gradients to the norm and returns the norm before", function()
    for _, dtype in ipairs {moth.float32, moth.float64, moth.float16, moth.bfloat16} do
      local list = parameters(dtype)
      assert.close(13, utils.clip_grad_norm_(list, 6.5):item(), 1e-5)
      assert.close({{1.5, -2}, {{6}, {0}}}, {list[1].grad:tolist(), list[2].grad:tolist()}, 1e-2)
      assert.is_nil(list[3].grad)
    end
  end)

  it("supports PyTorch's orders of norms", function()
    local orders = {[1] = 19, [2] = 13, [3] = 12.20705700, [math.huge] = 12, [-math.huge] = 0,
                    [0] = 2, [0.5] = 51.78461457}
    for order, wanted in pairs(orders) do
      assert.close(wanted, utils.clip_grad_norm_(parameters(), 1, order):item(), 1e-4)
    end
  end)

  it("does not change short gradients, and handles NaN as PyTorch does", function()
    local list = parameters()
    local version = list[1].grad._version
    utils.clip_grad_norm_(list, 100)
    assert.same({3, -4}, list[1].grad:tolist())
    assert.equal(version, list[1].grad._version)
    list[2].grad[1]:fill_(0 / 0)
    assert.has_error_like(function()
      utils.clip_grad_norm_(list, 1, {error_if_nonfinite = true})
    end, "the norm of order 2 is NaN")
    assert.same({3, -4}, list[1].grad:tolist())
    utils.clip_grad_norm_(list, 1)
    assert.is_true(list[1].grad:isnan():all():item())
  end)

  it("accepts one tensor, and no gradients", function()
    local list = parameters()
    assert.close(5, utils.clip_grad_norm_(list[1], 1):item())
    assert.equal(0, utils.clip_grad_norm_(nn.Linear(2, 2):parameters(), 1):item())
    assert.has_error_like(function() utils.clip_grad_norm_(nn.Linear(1, 1), 1) end,
      "for example net:parameters%(%), is needed, got")
    assert.has_error_like(function() return utils.clip_grad_nrm_ end, "did you mean")
  end)

  it("equals get_total_norm and clip_grads_with_norm_", function()
    local list = parameters()
    local total = utils.get_total_norm {list[1].grad, list[2].grad}
    assert.close(13, total:item(), 1e-5)
    utils.clip_grads_with_norm_(list, 1.3, total)
    assert.close({0.3, -0.4}, list[1].grad:tolist(), 1e-6)
  end)
end)

describe("nn.utils", function()
  it("clips gradients by value", function()
    local list = parameters()
    utils.clip_grad_value_(list, 3.5)
    assert.same({{3, -3.5}, {{3.5}, {0}}}, {list[1].grad:tolist(), list[2].grad:tolist()})
  end)

  it("makes a vector of parameters, with gradient, and parameters of a vector", function()
    local net = nn.Linear(2, 3)
    local vector = utils.parameters_to_vector(net:parameters());
    (vector * vector):sum():backward()
    assert.close((net.weight * 2):tolist(), net.weight.grad:tolist())
    utils.vector_to_parameters(moth.arange(9):float(), net:parameters())
    assert.same({{0, 1}, {2, 3}, {4, 5}}, net.weight:tolist())
    assert.same({6, 7, 8}, net.bias:tolist())
    assert.is_true(net.weight.requires_grad)
    assert.has_error_like(function() utils.vector_to_parameters(moth.ones(8), net:parameters()) end,
      "a vector of 9 elements")
  end)
end)

describe("nn.init", function()
  it("fills between any bounds by trunc_normal_", function()
    for _, c in ipairs {{0, 1, -2, 2}, {1, 2, 0.5, 3}, {0, 1, 2, 3}, {0, 1, -0.1, 0.1}} do
      local x = init.trunc_normal_(moth.empty(2000), unpack(c))
      assert.is_true(x:min():item() >= c[3] - 1e-6 and x:max():item() <= c[4] + 1e-6)
    end
    local x = init.trunc_normal_(moth.empty(40000), 0, 1, 0, 1)
    assert.close(0.459862, x:mean():item(), 0.01)
    x = init.trunc_normal_(moth.empty(40000), 0, 1, 2, 3)
    assert.close(2.3157926, x:mean():item(), 0.01)
    assert.has_error_like(function() init.trunc_normal_(moth.empty(2), 0, 1, 2, 1) end,
      "above a = 2 is needed, got 1")
  end)

  it("makes orthogonal matrices, of every shape", function()
    for _, shape in ipairs {{5, 5}, {40, 100}, {100, 70}, {8, 2, 3, 3}, {1, 4}, {4, 1}} do
      local x = init.orthogonal_(moth.empty(shape, {dtype = moth.float64}), {gain = 2})
      local m = x:reshape(shape[1], -1)
      if m:size(1) > m:size(2) then m = m:t() end
      assert.close((moth.eye(m:size(1), {dtype = moth.float64}) * 4):tolist(),
        m:matmul(m:t()):tolist(), 1e-12)
    end
    local p = nn.Parameter(moth.empty(70, 70))
    init.orthogonal_(p)
    assert.close(moth.eye(70):tolist(), p:matmul(p:t()):tolist(), 2e-6)
    assert.is_true(p.requires_grad and p.is_leaf)
    assert.equal(0, init.orthogonal_(moth.empty(0, 3)):numel())
  end)

  it("makes identities by eye_ and dirac_", function()
    assert.same({{1, 0, 0}, {0, 1, 0}}, init.eye_(moth.empty(2, 3)):tolist())
    local x = moth.randn(1, 4, 5, 5)
    local conv = nn.Conv2d {4, 4, kernel_size = 3, padding = 1, groups = 2, bias = false}
    init.dirac_(conv.weight, 2)
    assert.close(x:tolist(), conv(x):tolist())
    assert.same({{{0, 1, 0}, {0, 0, 0}}, {{0, 0, 0}, {0, 1, 0}}, {{0, 0, 0}, {0, 0, 0}}},
      init.dirac_(moth.empty(3, 2, 3)):tolist())
    assert.has_error_like(function() init.dirac_(moth.empty(3, 2)) end,
      "3 to 5 dimensions are needed")
    assert.has_error_like(function() init.dirac_(moth.empty(3, 2, 3), 2) end, "2 does not divide")
  end)

  it("leaves a share of each column 0 by sparse_", function()
    local x = init.sparse_(moth.empty(10, 7), 0.25)
    for column = 1, 7 do assert.equal(3, x:select(2, column):eq(0):sum():item()) end
    assert.is_true(x:abs():max():item() < 0.1)
  end)

  it("uses the given generator", function()
    local g = moth.Generator {seed = 5}
    local a = init.orthogonal_(moth.empty(3, 3), {generator = g})
    local b = init.orthogonal_(moth.empty(3, 3), {generator = moth.Generator {seed = 5}})
    assert.same(a:tolist(), b:tolist())
  end)
end)

describe("a batch_norm fused into the layer before it", function()
  local F = nn.functional

  -- A BatchNorm with running statistics, in eval mode.
  local function seen(bn)
    bn.running_mean:normal_()
    bn.running_var:uniform_(0.5, 2)
    moth.no_grad(function()
      if bn.weight ~= nil then bn.weight:normal_() bn.bias:normal_() end
    end)
    return bn:eval()
  end

  local function agrees(layer, bn, fuse, x)
    local fused = fuse(layer, bn)
    assert.close(0, (fused(x) - bn(layer(x))):abs():max():item(), 1e-12)
    assert.equal(nn.typename(layer), nn.typename(fused))
    assert.is_true(fused.weight.requires_grad and fused.weight.is_leaf)
    return fused
  end

  local double = {dtype = moth.float64}

  it("has the same results", function()
    for _, bias in ipairs {true, false} do
      for _, groups in ipairs {1, 2} do
        local options = {bias = bias, groups = groups, stride = 2, dtype = moth.float64}
        local x, bn = moth.randn(2, 6, 7, 7, double), seen(nn.BatchNorm2d(4, double))
        agrees(nn.Conv2d(6, 4, 3, options):eval(), bn, utils.fuse_conv_bn_eval, x)
        agrees(nn.ConvTranspose2d(6, 4, 3, options):eval(), bn, utils.fuse_conv_bn_eval, x)
      end
      local bn = seen(nn.BatchNorm1d {4, affine = false, dtype = moth.float64})
      agrees(nn.Conv1d(3, 4, 2, {bias = bias, dtype = moth.float64}):eval(), bn,
        utils.fuse_conv_bn_eval, moth.randn(2, 3, 7, double))
      agrees(nn.Linear(3, 4, {bias = bias, dtype = moth.float64}):eval(), bn,
        utils.fuse_linear_bn_eval, moth.randn(5, 3, double))
    end
  end)

  it("does not change both layers, and keeps a frozen weight frozen", function()
    local conv, bn = nn.Conv2d(3, 4, 2):eval(), seen(nn.BatchNorm2d(4))
    conv.weight.requires_grad = false
    local before = conv.weight:clone()
    local fused = utils.fuse_conv_bn_eval(conv, bn)
    assert.is_true(conv.weight:equal(before))
    assert.is_false(fused.weight.requires_grad)
    assert.is_true(fused.bias.requires_grad)
    local w, b = utils.fuse_conv_bn_weights(conv.weight, conv.bias, bn.running_mean,
      bn.running_var, bn.eps, bn.weight, bn.bias)
    assert.is_true(fused.weight:equal(w) and fused.bias:equal(b))
    local x = moth.randn(1, 3, 4, 4)
    assert.close(0, (F.conv2d(x, w, b) - bn(conv(x))):abs():max():item(), 1e-5)
  end)

  it("needs eval mode, statistics and matching layers", function()
    local conv, bn = nn.Conv2d(3, 4, 2):eval(), seen(nn.BatchNorm2d(4))
    for text, pair in pairs {
      ["'conv' to 'fuse_conv_bn_eval' %(is in training mode"] = {nn.Conv2d(3, 4, 2), bn},
      ["'bn' to 'fuse_conv_bn_eval' %(is in training mode"] = {conv, nn.BatchNorm2d(4)},
      ["no running statistics"] = {conv, nn.BatchNorm2d(4, {track_running_stats = false}):eval()},
      ["5 features, but the layer has 4"] = {conv, nn.BatchNorm2d(5):eval()},
      ["a layer is needed, got 3"] = {3, bn},
      ["a BatchNorm is needed, got a Conv2d"] = {conv, conv},
    } do
      assert.has_error_like(function() return (utils.fuse_conv_bn_eval(unpack(pair))) end, text)
    end
  end)
end)

describe("skip_init", function()
  it("makes a module and draws no random numbers", function()
    local before = moth.get_rng_state()
    local net = utils.skip_init(nn.LSTM, 20, 30, {num_layers = 2})
    utils.skip_init(nn.Transformer, {d_model = 8, nhead = 2, num_encoder_layers = 1,
      num_decoder_layers = 1, dim_feedforward = 4})
    assert.is_true(before:equal(moth.get_rng_state()))
    assert.equal(8, #net:parameters())
    assert.has_error_like(function() return (utils.skip_init(nn.Linear, 2)) end, "'out_features'")
    assert.has_error_like(function() return (utils.skip_init(3, 2)) end, "'module_cls'")
    nn.Linear(2, 2)
    assert.is_false(before:equal(moth.get_rng_state()))
  end)
end)

describe("a step over several gradients checks all before it writes to the first", function()
  local ops = require("moth.binding.bind").ops
  local fails = require("spec.support.refusals").fails
  local bad = {
    {"a gradient whose elements overlap", moth.randn(1):expand(3), "its elements overlap"},
    {"a leaf", nn.Parameter(moth.randn(3)), "a leaf that requires grad cannot be written in place"},
  }
  for _, row in ipairs(bad) do
    it(row[1], function()
      local good = moth.full({2}, 10)
      local calls = {
        clip_norm_ = function(list) ops.clip_norm_(list, moth.tensor(100), 0.5) end,
        unscale_ = function(list) ops.unscale_(list, moth.zeros(1), 0.5) end,
      }
      for name, call in pairs(calls) do
        fails("bad argument 'tensors' to '" .. name .. "'", call, {good, row[2]})
        fails(row[3], call, {good, row[2]})
        assert.same({10, 10}, good:tolist())
        call {good:clone()}
      end
    end)
  end
end)
