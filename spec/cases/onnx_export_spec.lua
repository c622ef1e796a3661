--- Cases: exported ONNX files must have the results of the net.

local moth = require "moth"
local files = require "spec.support.files"

local nn, F = moth.nn, moth.nn.functional

setup(files.setup)
teardown(files.teardown)

local function L(list) return moth.tensor(list, { dtype = moth.int64 }) end

--- The result of the exported net for x.
local function exported(net, x, options)
  local path = files.path "net.onnx"
  options = options or {}
  options.opset_version = options.opset_version or 18
  moth.onnx.export(net, x, path, options)
  return moth.onnx.load(path)
end

local function assert_values(wanted, net, x, options)
  assert.same(wanted, exported(net, x, options)(x):tolist())
end

describe("positions that a net stores or computes", function()
  local x = moth.arange(12):float():view(3, 4)
  local rows = L { { 1 }, { 2 }, { 3 } }

  it("are read by gather", function()
    assert_values({ { 0 }, { 5 }, { 10 } }, function(y) return y:gather(2, rows) end, x)
  end)

  it("are read by scatter", function()
    assert_values({ { 9, 1, 2, 3 }, { 4, 9, 6, 7 }, { 8, 9, 9, 11 } },
      function(y) return y:scatter(2, rows, 9) end, x)
  end)

  it("are read by scatter_add", function()
    assert_values({ { 1, 1, 2, 3 }, { 4, 6, 6, 7 }, { 8, 9, 11, 11 } },
      function(y) return y:scatter_add(2, rows, moth.ones(3, 1)) end, x)
  end)

  it("are read by take", function()
    assert_values({ 11, 0 }, function(y) return y:take(L { 12, 1 }) end, x)
  end)

  it("are read by take_along_dim", function()
    assert_values({ { 0 }, { 5 }, { 10 } },
      function(y) return moth.take_along_dim(y, rows, 2) end, x)
  end)

  it("may be a buffer of a module", function()
    local Pick = nn.class("Pick", nn.Module)
    function Pick:init() self:register_buffer("rows", rows:clone()) end
    function Pick:forward(y) return y:gather(2, self.rows) end
    assert_values({ { 0 }, { 5 }, { 10 } }, Pick(), x)
  end)

  it("may come from a range or from argsort", function()
    assert_values({ { 0 }, { 5 }, { 10 } },
      function(y) return y:gather(2, moth.range(1, 3):long():view(3, 1)) end, x)
    assert_values({ { 3 }, { 4 }, { 9 } }, function(y)
      return y:gather(2, moth.tensor { { 3, 2, 1, 0 }, { 0, 1, 2, 3 }, { 1, 0, 2, 3 } }
        :argsort(2):narrow(2, 1, 1))
    end, x)
  end)

  it("may be int32, and the net's own numbers do not change", function()
    local short = rows:int()
    assert_values({ { 0 }, { 5 }, { 10 } }, function(y) return y:gather(2, short) end, x)
    assert.same({ { 1 }, { 2 }, { 3 } }, short:tolist())
  end)
end)

it("attention is 0 for a fully masked row", function()
  local x = moth.ones(1, 2, 3)
  local mask = moth.tensor { { true, true }, { false, false } }
  local function net(y) return F.scaled_dot_product_attention(y, y, y, { attn_mask = mask }) end
  assert_values({ { { 1, 1, 1 }, { 0, 0, 0 } } }, net, x)
  local low = moth.tensor { { 0, 0 }, { -math.huge, -math.huge } }
  assert_values({ { { 1, 1, 1 }, { 0, 0, 0 } } }, function(y)
    return F.scaled_dot_product_attention(y, y, y, { attn_mask = low })
  end, x)
end)

it("scatter_add reads the part of a source that its index reaches", function()
  assert_values({ { 1, 0 }, { 1, 0 } }, function(y)
    return y:scatter_add(1, L { { 1 }, { 2 } }, moth.ones(5, 5))
  end, moth.zeros(2, 2))
end)

describe("dynamic axes", function()
  it("may be called n", function()
    local net = exported(function(y) return y * 2 end, moth.ones(2, 3),
      { input_names = { "x" }, dynamic_axes = { x = { "n" } } })
    assert.same({ { 2, 2, 2 } }, net(moth.ones(1, 3)):tolist())
  end)

  local function unet(y)
    return moth.cat({ y, F.interpolate(F.max_pool2d(y, 2), { scale_factor = 2 }) }, 2)
  end

  it("may allow only multiples, as in a U-Net", function()
    local net = exported(unet, moth.ones(1, 1, 8, 8),
      { dynamic_axes = { input = { [3] = "high", [4] = "wide" } } })
    local x = moth.randn(1, 1, 4, 6)
    assert.same(unet(x):tolist(), net(x):tolist())
  end)

  it("may be given with a step", function()
    local net = exported(unet, moth.ones(1, 1, 6, 6),
      { dynamic_axes = { input = { [3] = { name = "high", step = 2 } } } })
    local x = moth.randn(1, 1, 10, 6)
    assert.same(unet(x):tolist(), net(x):tolist())
  end)

  it("may be empty", function()
    local net = exported(nn.GroupNorm(2, 4), moth.ones(2, 4, 3),
      { dynamic_axes = { input = { "batch" } } })
    assert.same({ 0, 4, 3 }, { unpack(net(moth.ones(0, 4, 3)).shape) })
  end)
end)

describe("an exported file has", function()
  local x = moth.arange(6):float():view(2, 3)

  for reduce, wanted in pairs { sum = { { 3, 1, 2 }, { 3, 7, 5 } },
      mean = { { 1.5, 1, 2 }, { 3, 3.5, 5 } }, prod = { { 0, 1, 2 }, { 3, 12, 5 } },
      amax = { { 3, 1, 2 }, { 3, 4, 5 } },
      amin = { { 0, 1, 2 }, { 3, 3, 5 } } } do
    it("scatter_reduce by " .. reduce, function()
      assert_values(wanted, function(y)
        return y:scatter_reduce(2, L { { 1 }, { 2 } }, moth.full({ 2, 1 }, 3), reduce)
      end, x)
    end)
  end

  it("index_add, index_copy and index_fill", function()
    assert_values({ { 2, 3, 4 }, { 3, 4, 5 } }, function(y)
      return y:index_add(1, { 1 }, moth.ones(1, 3), { alpha = 2 })
    end, x)
    assert_values({ { 0, 1, 1 }, { 3, 4, 1 } }, function(y)
      return y:index_copy(2, { 3 }, moth.ones(2, 1))
    end, x)
    assert_values({ { 0, 9, 9 }, { 3, 9, 9 } }, function(y)
      return y:index_fill(2, { 2, 3 }, 9)
    end, x)
  end)

  it("index_put, also with accumulate", function()
    assert_values({ { 2, 1, 2 }, { 3, 4, 5 } }, function(y)
      return y:index_put({ L { 1, 1 }, L { 1, 1 } }, moth.ones(2), true)
    end, x)
  end)

  it("assignments through views", function()
    assert_values({ { 7, 8, 8 }, { 9, 0, 5 } }, function(y)
      y = y * 1
      local row = y[1]
      y[{ {}, 1 }] = moth.tensor { 7, 9 }
      row[{ { 2, 3 } }] = 8
      y[y:eq(4)] = 0
      return y
    end, x)
  end)

  it("an input written into a tensor that was a constant", function()
    assert_values({ { 5, 1 }, { 5, 4 } }, function(y)
      local z = moth.zeros(2, 2)
      z[{ {}, 1 }] = 5
      z[{ {}, 2 }] = y[{ {}, 2 }]
      return z
    end, x)
  end)

  it("views that are read after a write", function()
    assert_values({ 1, 1, 1, 3, 4, 5 }, function(y)
      y = y * 1
      local flat = y:view(-1)
      y[{ 1 }] = 1
      return flat
    end, x)
  end)

  it("roll and unfold", function()
    assert_values({ { 2, 0, 1 }, { 5, 3, 4 } }, function(y) return y:roll(1, 2) end, x)
    assert_values({ { 5, 0, 1 }, { 2, 3, 4 } }, function(y) return y:roll(1) end, x)
    assert_values({ { { 0, 1 }, { 1, 2 } }, { { 3, 4 }, { 4, 5 } } },
      function(y) return y:unfold(2, 2, 1) end, x)
  end)

  it("cross_entropy and nll_loss with ignore_index", function()
    local classes = L { 2, -100 }
    local net = exported(function(y, t)
      return F.cross_entropy(y, t), F.nll_loss(y, classes, { reduction = "none" })
    end, { x, classes })
    local loss, each = net(x, classes)
    assert.near(1.4076059, loss:item(), 1e-6)
    assert.same({ -1, 0 }, each:tolist())
  end)

  it("adaptive pools of sizes that do not divide", function()
    assert_values({ { { 0.5, 2, 3.5 } } },
      function(y) return F.adaptive_avg_pool1d(y, 3) end, moth.arange(5):float():view(1, 1, 5))
    assert_values({ { { 1, 3, 4 } } },
      function(y) return F.adaptive_max_pool1d(y, 3) end, moth.arange(5):float():view(1, 1, 5))
  end)

  it("erfinv, lgamma and atan2", function()
    local net = exported(function(y) return y:erfinv(), moth.lgamma(y * 10), moth.atan2(y, -y) end,
      moth.tensor { 0.5 })
    local e, l, a = net(moth.tensor { 0.5 })
    assert.near(0.4769363, e:item(), 1e-6)
    assert.near(3.1780538, l:item(), 1e-6)
    assert.near(2.3561945, a:item(), 1e-6)
  end)
end)

describe("an exported function has its values at both sides of each of its bounds:", function()
  local inf = math.huge
  local points = moth.tensor {0, 1e-20, 0.25, 0.49, 0.5, 0.51, 0.99, 0.9965, 0.9967, 0.99999, 1,
    1.5, 2, 2.5, 2.99, 3, 3.01, 3.5, 5.99, 6, 6.01, 10, 19.9, 20.1, 40, 88, 100, 3e10, inf}
  points = moth.cat({points, -points, moth.tensor {0 / 0}})
  local numbers = moth.tensor {0, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4.5, 100}
  numbers = moth.cat({numbers, -numbers})

  local function check(f, x, name)
    local got, want = exported(f, x)(x), f(x)
    for i = 1, x:numel() do
      local a, b = got[i]:float():item(), want[i]:float():item()
      -- gelu, silu and mish are x times 0 at minus infinity; a difference of two numbers near 1
      -- has an error of 1e-7
      local same = a == b or a ~= a and (b ~= b or x[i]:item() == -inf)
        or math.abs(a - b) <= 3e-6 * math.abs(b) + 3e-7
      assert.is_true(same, ("%s of %.9g: %.9g, not %.9g"):format(name, x[i]:item(), a, b))
    end
  end

  local names = "abs acos acosh angle asin asinh atan atanh ceil cos cosh deg2rad erf erfc erfinv "
    .. "exp exp2 expm1 floor frac isfinite isinf isnan lgamma log log10 log1p log2 logit "
    .. "nan_to_num neg positive rad2deg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt "
    .. "square tan tanh trunc"
  for name in names:gmatch "%S+" do it(name, function() check(moth[name], points, name) end) end
  names = "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish "
    .. "relu6 selu silu softplus softshrink softsign tanhshrink"
  for name in names:gmatch "%S+" do it(name, function() check(F[name], points, name) end) end

  local rows = {
    gelu = function(x) return F.gelu(x, "tanh") end,
    threshold = function(x) return F.threshold(x, 0.5, -7) end,
    softplus = function(x) return F.softplus(x, 2, 5) end,
    logit = function(x) return moth.logit(x, 0.01) end,
    clamp = function(x) return x:clamp(-0.5, 3) end,
    nan_to_num = function(x) return x:nan_to_num(7, 8, 9) end,
    smooth_l1_loss = function(x)
      return F.smooth_l1_loss(x, x * 0 + 0.5, {beta = 0.5, reduction = "none"})
    end,
    huber_loss = function(x)
      return F.huber_loss(x, x * 0 + 0.5, {delta = 2.5, reduction = "none"})
    end,
  }
  for name, f in pairs(rows) do
    it(name .. " with options", function() check(f, points, name) end)
  end

  names = "atan2 float_power floor_divide fmod hypot logaddexp logaddexp2 maximum minimum pow "
    .. "remainder true_divide"
  for name in names:gmatch "%S+" do
    it(name, function()
      for _, c in ipairs {2, -1.5, 0} do
        check(function(x) return moth[name](x, x * 0 + c) end, numbers, name .. " with " .. c)
        check(function(x) return moth[name](x * 0 + c, x) end, numbers, name .. " from " .. c)
      end
    end)
  end
end)

it("accepts PyTorch's exporter options", function()
  local net = exported(nn.Linear(2, 1), moth.ones(1, 2),
    { export_params = true, do_constant_folding = true, opset_version = 17 })
  assert.equal(1, net(moth.ones(1, 2)):size(2))
end)
