-- The values of new parameters: the range or the standard deviation of each, as PyTorch's source
-- states it, and reset_parameters, which draws what a new layer draws.

local moth = require "moth"

local nn = moth.nn
local sqrt = math.sqrt

-- A path of names and positions in a module: "tail.1.2.weight".
local function at(net, path)
  for part in path:gmatch "[^.]+" do net = net[tonumber(part) or part] end
  return net
end

-- Uniform within a bound: close to it on both sides, with its standard deviation.
local function uniform(x, bound)
  assert.is_true(x:max():item() <= bound and x:max():item() > 0.98 * bound, "max")
  assert.is_true(x:min():item() >= -bound and x:min():item() < -0.98 * bound, "min")
  assert.close(bound / sqrt(3), x:std():item(), 0.04 * bound)
end

local function normal(x, std)
  assert.close(0, x:mean():item(), 5 * std / sqrt(x:numel()))
  assert.close(std, x:std():item(), 5 * std / sqrt(x:numel()))
  assert.is_true(x:abs():max():item() > 2 * std)
end

local function constant(x, value)
  assert.is_true(x:eq(value):all():item())
end

-- a constructor, then for each parameter its path, its distribution and the distribution's number
local ROWS = {
  {function() return nn.Linear(20, 400) end,
    {"weight", uniform, 1 / sqrt(20)}, {"bias", uniform, 1 / sqrt(20)}},
  {function() return nn.Bilinear(9, 20, 300) end,
    {"weight", uniform, 1 / 3}, {"bias", uniform, 1 / 3}},
  {function() return nn.Conv1d(6, 400, 5, {groups = 2}) end,
    {"weight", uniform, 1 / sqrt(15)}, {"bias", uniform, 1 / sqrt(15)}},
  {function() return nn.Conv2d(4, 400, {3, 5}) end,
    {"weight", uniform, 1 / sqrt(60)}, {"bias", uniform, 1 / sqrt(60)}},
  {function() return nn.Conv3d(2, 400, {3, 5, 2}) end,
    {"weight", uniform, 1 / sqrt(60)}, {"bias", uniform, 1 / sqrt(60)}},
  -- PyTorch computes the fan of a transposed convolution from the weight's second size
  {function() return nn.ConvTranspose1d(6, 400, 5, {groups = 2}) end,
    {"weight", uniform, 1 / sqrt(1000)}, {"bias", uniform, 1 / sqrt(1000)}},
  {function() return nn.ConvTranspose2d(4, 400, {3, 5}) end,
    {"weight", uniform, 1 / sqrt(6000)}, {"bias", uniform, 1 / sqrt(6000)}},
  {function() return nn.ConvTranspose3d(2, 400, {3, 5, 2}) end,
    {"weight", uniform, 1 / sqrt(12000)}, {"bias", uniform, 1 / sqrt(12000)}},
  {function() return nn.RNN(30, 100) end,
    {"weight_ih_l0", uniform, 0.1}, {"weight_hh_l0", uniform, 0.1}, {"bias_ih_l0", uniform, 0.1},
    {"bias_hh_l0", uniform, 0.1}},
  {function() return nn.LSTM(30, 100, {proj_size = 20}) end,
    {"weight_ih_l0", uniform, 0.1}, {"weight_hh_l0", uniform, 0.1}, {"bias_hh_l0", uniform, 0.1},
    {"weight_hr_l0", uniform, 0.1}},
  {function() return nn.GRUCell(30, 100) end,
    {"weight_ih", uniform, 0.1}, {"weight_hh", uniform, 0.1}, {"bias_ih", uniform, 0.1},
    {"bias_hh", uniform, 0.1}},
  {function() return nn.Embedding(100, 50) end, {"weight", normal, 1}},
  {function() return nn.EmbeddingBag(100, 50) end, {"weight", normal, 1}},
  {function() return nn.MultiheadAttention(40, 2, {add_bias_kv = true}) end,
    {"in_proj_weight", uniform, sqrt(6 / 160)}, {"in_proj_bias", constant, 0},
    {"out_proj.weight", uniform, 1 / sqrt(40)}, {"out_proj.bias", constant, 0}},
  -- the fans of (1, 1, 40) are 40 and 40
  {function() return nn.MultiheadAttention(400, 2, {add_bias_kv = true, bias = false}) end,
    {"bias_k", normal, sqrt(2 / 800)}, {"bias_v", normal, sqrt(2 / 800)}},
  {function() return nn.MultiheadAttention(40, 2, {kdim = 20}) end,
    {"q_proj_weight", uniform, sqrt(6 / 80)}, {"k_proj_weight", uniform, sqrt(6 / 60)},
    {"v_proj_weight", uniform, sqrt(6 / 80)}},
  {function() return nn.MultiheadAttention(40, 2, {vdim = 20}) end,
    {"q_proj_weight", uniform, sqrt(6 / 80)}, {"k_proj_weight", uniform, sqrt(6 / 80)},
    {"v_proj_weight", uniform, sqrt(6 / 60)}},
  {function() return nn.Transformer(40, 2, 1, 1, 60) end,
    {"encoder.layers.1.linear1.weight", uniform, sqrt(6 / 100)},
    {"encoder.layers.1.self_attn.out_proj.weight", uniform, sqrt(6 / 80)},
    {"decoder.layers.1.linear2.weight", uniform, sqrt(6 / 100)},
    {"decoder.layers.1.norm3.weight", constant, 1}, {"decoder.norm.bias", constant, 0}},
  {function() return nn.AdaptiveLogSoftmaxWithLoss(40, 600, {200}, 2) end,
    {"head.weight", uniform, 1 / sqrt(40)}, {"tail.1.1.weight", uniform, 1 / sqrt(40)},
    {"tail.1.2.weight", uniform, 1 / sqrt(20)}},
  {function() return nn.PReLU(3, 0.5) end, {"weight", constant, 0.5}},
  {function() return nn.PReLU() end, {"weight", constant, 0.25}},
  {function() return nn.BatchNorm2d(3) end,
    {"weight", constant, 1}, {"bias", constant, 0}, {"running_mean", constant, 0},
    {"running_var", constant, 1}, {"num_batches_tracked", constant, 0}},
  {function() return nn.InstanceNorm1d(3, {affine = true, track_running_stats = true}) end,
    {"weight", constant, 1}, {"bias", constant, 0}, {"running_mean", constant, 0},
    {"running_var", constant, 1}},
  {function() return nn.GroupNorm(3, 6) end, {"weight", constant, 1}, {"bias", constant, 0}},
  {function() return nn.LayerNorm({3, 2}) end, {"weight", constant, 1}, {"bias", constant, 0}},
  {function() return nn.RMSNorm(3) end, {"weight", constant, 1}},
}

describe("the values of a new layer:", function()
  for i, row in ipairs(ROWS) do
    local name = moth.class.typename(row[1]())
    for k = 2, #row do
      it(("%s (%d), %s"):format(name, i, row[k][1]), function()
        moth.manual_seed(7)
        row[k][2](at(row[1](), row[k][1]):detach(), row[k][3])
      end)
    end
  end
end)

describe("reset_parameters draws what a new layer draws:", function()
  for i, row in ipairs(ROWS) do
    local net = row[1]()
    if net.reset_parameters then
      it(("%s (%d)"):format(moth.class.typename(net), i), function()
        moth.manual_seed(3)
        local fresh = row[1]()
        for _, x in pairs(net:state_dict()) do x:fill_(7) end
        moth.manual_seed(3)
        net:reset_parameters()
        for name, x in fresh:state_dict():items() do
          assert(moth.equal(x, net:state_dict()[name]), name)
        end
      end)
    end
  end

  it("of a padded Embedding, whose row stays 0", function()
    for _, make in ipairs {nn.Embedding, nn.EmbeddingBag} do
      local net = make(4, 3, {padding_idx = 2})
      assert.same({0, 0, 0}, net.weight[2]:tolist())
      net:state_dict().weight:fill_(7)
      net:reset_parameters()
      assert.same({0, 0, 0}, net.weight[2]:tolist())
      assert.is_true(net.weight[1]:ne(7):all():item())
      assert.is_true(net.weight[1]:ne(0):all():item())
    end
  end)

  it("of running statistics alone", function()
    local net = nn.BatchNorm1d(3)
    net(moth.randn(4, 3))
    net:state_dict().weight:fill_(7)
    net:reset_running_stats()
    assert.same({7, 7, 7}, net.weight:tolist())
    assert.same({0, 0, 0}, net.running_mean:tolist())
    assert.same({1, 1, 1}, net.running_var:tolist())
    assert.equal(0, net.num_batches_tracked:item())
  end)
end)

-- nn.init's functions for a weight (50, 20, 3): fan_in 60, fan_out 150.
describe("nn.init", function()
  local init = nn.init
  local function weight() return moth.empty(50, 20, 3) end
  local leaky = sqrt(2 / (1 + 0.01 ^ 2))
  local rows = {
    {"uniform_", {}, function(x)
      assert.is_true(x:min():item() >= 0 and x:max():item() < 1 and x:max():item() > 0.98)
    end},
    {"uniform_", {-2, 2}, uniform, 2},
    {"normal_", {}, normal, 1},
    {"normal_", {0, 0.25}, normal, 0.25},
    {"normal_", {3, 0.25}, function(x) normal(x - 3, 0.25) end},
    {"xavier_uniform_", {}, uniform, sqrt(6 / 210)},
    {"xavier_uniform_", {2}, uniform, 2 * sqrt(6 / 210)},
    {"xavier_normal_", {}, normal, sqrt(2 / 210)},
    {"xavier_normal_", {3}, normal, 3 * sqrt(2 / 210)},
    {"kaiming_uniform_", {}, uniform, sqrt(2) * sqrt(3 / 60)},
    {"kaiming_uniform_", {1}, uniform, sqrt(3 / 60)},
    {"kaiming_uniform_", {0, "fan_out"}, uniform, sqrt(2) * sqrt(3 / 150)},
    {"kaiming_uniform_", {0, "fan_in", "relu"}, uniform, sqrt(2) * sqrt(3 / 60)},
    {"kaiming_uniform_", {0, "fan_out", "tanh"}, uniform, 5 / 3 * sqrt(3 / 150)},
    {"kaiming_uniform_", {0, "fan_in", "linear"}, uniform, sqrt(3 / 60)},
    {"kaiming_normal_", {}, normal, sqrt(2 / 60)},
    {"kaiming_normal_", {1}, normal, sqrt(1 / 60)},
    {"kaiming_normal_", {0, "fan_out", "selu"}, normal, 0.75 / sqrt(150)},
    {"kaiming_normal_", {0.01, "fan_in", "leaky_relu"}, normal, leaky / sqrt(60)},
    {"trunc_normal_", {}, function(x)
      assert.is_true(x:abs():max():item() <= 2 and x:abs():max():item() > 1.9)
      assert.close(0.8796, x:std():item(), 0.05)
    end},
    {"trunc_normal_", {1, 0.5, 0.75, 4}, function(x)
      assert.is_true(x:min():item() >= 0.75 and x:min():item() < 0.77 and x:max():item() < 4)
      assert.close(1.2546, x:mean():item(), 0.03)
    end},
    {"trunc_normal_", {0, 1, 2, 3}, function(x)
      assert.is_true(x:min():item() >= 2 and x:max():item() <= 3)
      assert.close(2.3160, x:mean():item(), 0.02)
    end},
    {"trunc_normal_", {0, 1, -3, -2}, function(x)
      assert.is_true(x:min():item() >= -3 and x:max():item() <= -2)
      assert.close(-2.3160, x:mean():item(), 0.02)
    end},
  }
  for _, row in ipairs(rows) do
    it(("%s(%s)"):format(row[1], table.concat(row[2], ", ")), function()
      moth.manual_seed(1)
      local x = weight()
      assert.equal(x, (init[row[1]](x, unpack(row[2]))))
      row[3](x, row[4])
    end)
  end

  it("warns about a mean far outside of the interval, on both sides", function()
    local lines, warn = {}, moth.warn
    moth.warn = function(text) lines[#lines + 1] = text end
    local ok, problem = pcall(function()
      init.trunc_normal_(weight(), 2.5, 1, -2, 0.4)
      init.trunc_normal_(weight(), -2.5, 1, -0.4, 2)
      assert.equal(2, #lines)
      init.trunc_normal_(weight(), 2.5, 1, -2, 0.5)
      init.trunc_normal_(weight(), -2.5, 1, -0.5, 2)
    end)
    moth.warn = warn
    assert(ok, problem)
    assert.equal(2, #lines)
    assert.matches("the mean is more than 2 std outside", lines[1])
  end)

  it("has PyTorch's gains", function()
    local gains = {linear = 1, sigmoid = 1, conv1d = 1, conv2d = 1, conv3d = 1,
      conv_transpose1d = 1, conv_transpose2d = 1, conv_transpose3d = 1, tanh = 5 / 3,
      relu = sqrt(2), selu = 0.75, leaky_relu = leaky}
    for name, gain in pairs(gains) do assert.close(gain, init.calculate_gain(name), 1e-15) end
    assert.close(sqrt(2 / 1.25), init.calculate_gain("leaky_relu", 0.5), 1e-15)
    assert.close(sqrt(2), init.calculate_gain("leaky_relu", 0), 1e-15)
  end)

  it("draws from a generator, which alone moves on", function()
    local names = {"uniform_", "normal_", "xavier_uniform_", "xavier_normal_",
      "kaiming_uniform_", "kaiming_normal_", "trunc_normal_", "orthogonal_"}
    for _, name in ipairs(names) do
      local g = moth.Generator()
      g:manual_seed(5)
      local state = moth.get_rng_state()
      local a = init[name](weight(), {generator = g})
      local b = init[name](weight(), {generator = g})
      assert(moth.equal(state, moth.get_rng_state()), name)
      assert.is_false(moth.equal(a, b))
      g:manual_seed(5)
      assert(moth.equal(a, init[name](weight(), {generator = g})), name)
    end
  end)

  it("has a share of zeros in each column", function()
    local x = init.sparse_(moth.empty(10, 40), 0.25)
    assert.same({3, 3}, {x:eq(0):sum(1):min():item(), x:eq(0):sum(1):max():item()})
    assert.close(0.01, x[x:ne(0)]:std():item(), 2e-3)
    assert.equal(0, init.sparse_(moth.empty(10, 40), 0):eq(0):sum():item())
    assert.equal(400, init.sparse_(moth.empty(10, 40), 1):eq(0):sum():item())
    assert.close(2, init.sparse_(moth.empty(50, 40), {sparsity = 0, std = 2}):std():item(), 0.2)
  end)

  it("copies channels with dirac_, by group", function()
    local x = init.dirac_(moth.empty(3, 2, 3))
    assert.equal(2, x:sum():item())
    assert.equal(1, x[{1, 1, 2}]:item())
    assert.equal(1, x[{2, 2, 2}]:item())
    local y = init.dirac_(moth.empty(6, 2, 4, 3), 2)
    assert.equal(4, y:sum():item())
    for _, place in ipairs {{1, 1}, {2, 2}, {4, 1}, {5, 2}} do
      assert.equal(1, y[{place[1], place[2], 3, 2}]:item())
    end
  end)

  it("is orthogonal along the shorter side, times the gain", function()
    for _, shape in ipairs {{3, 5}, {5, 3}, {4, 2, 3}, {70, 40}} do
      local w = init.orthogonal_(moth.empty(shape, {dtype = moth.float64}), 2):flatten(2)
      if w:size(1) > w:size(2) then w = w:t() end
      local want = moth.eye(w:size(1), {dtype = moth.float64}) * 4
      assert.is_true((w:matmul(w:t()) - want):abs():max():item() < 1e-12)
    end
  end)
end)
