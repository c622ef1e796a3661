-- Numbers that an op restricts to a range: the last values inside are accepted, the first values
-- outside and NaN raise, and the error names the argument.

local moth = require "moth"
local registry = require "spec.support.registry"

local ops = require("moth.binding.bind").ops
local F, T, R = moth.nn.functional, moth.tensor, moth.rand
local NAN, INF = 0 / 0, math.huge
local above, below = 1 + 2 ^ -40, -2 ^ -40 -- just outside of 0 to 1

local function I(values) return T(values):long() end

local one, two = R(1), R(2)
local image, volume = R(1, 1, 4, 4), R(1, 1, 4, 4, 4)
local options = setmetatable({}, {__index = function(_, name)
  return function(v) return {[name] = v} end
end})

-- function, argument, call, values that are accepted, values that raise
local rows = {
  {"softshrink", "lambd", function(v) return F.softshrink(two, v) end, {0, 2}, {below, NAN}},
  {"hardshrink", "lambd", function(v) return F.hardshrink(two, v) end, {0, -1, 2}, {}},
  {"celu", "alpha", function(v) return F.celu(two, v) end, {1e-9, -1}, {0}},
  {"dropout", "p", function(v) return F.dropout(two, v) end, {0, 1}, {below, above, NAN}},
  {"alpha_dropout", "p", function(v) return F.alpha_dropout(two, v) end, {0, 1},
    {below, above, NAN}},
  {"bernoulli_", "p", function(v) return moth.empty(2):bernoulli_(v) end, {0, 1},
    {below, above, NAN}},
  {"bernoulli", "input", function(v) return moth.bernoulli(T {0.5, v}) end, {0, 1},
    {-1e-7, 1 + 2 ^ -22, NAN}},
  {"scaled_dot_product_attention", "dropout_p", function(v)
    local x = R(1, 2, 3)
    return F.scaled_dot_product_attention(x, x, x, {dropout_p = v})
  end, {0, 1}, {below, above, NAN}},
  {"exponential_", "lambd", function(v) return moth.empty(2):exponential_(v) end, {1e-9, INF},
    {0, -1, NAN}},
  {"geometric_", "p", function(v) return moth.empty(2):geometric_(v) end, {1e-9, 1 - 2 ^ -50},
    {0, 1, NAN}},
  {"multinomial", "input", function(v) return moth.multinomial(T {1, v}, 1) end, {0, 5},
    {-1e-30, INF, NAN}},
  {"poisson", "input", function(v) return moth.poisson(T {1, v}) end, {0, 5}, {-1e-30, NAN}},
  {"isclose", "rtol", function(v) return moth.isclose(two, two, v) end, {0, 1}, {below, NAN}},
  {"isclose", "atol", function(v) return moth.isclose(two, two, {atol = v}) end, {0, 1},
    {below, NAN}},
  {"cross_entropy", "label_smoothing", function(v)
    return F.cross_entropy(R(1, 3), I {2}, {label_smoothing = v})
  end, {0, 1}, {below, above, NAN}},
  {"cross_entropy", "label_smoothing", function(v)
    return F.cross_entropy(R(1, 3), R(1, 3), {label_smoothing = v})
  end, {0, 1}, {below, above, NAN}},
  {"huber_loss", "delta", function(v) return F.huber_loss(two, two, options.delta(v)) end, {1e-9},
    {0, -1, NAN}},
  {"smooth_l1_loss", "beta", function(v) return F.smooth_l1_loss(two, two, options.beta(v)) end,
    {0, 1}, {below, NAN}},
  {"binary_cross_entropy", "input", function(v) return F.binary_cross_entropy(T {v}, one) end,
    {0, 1}, {-1e-7, 1 + 2 ^ -22}},
  {"layer_norm", "eps", function(v) return F.layer_norm(R(2, 3), {3}, options.eps(v)) end, {0, 1},
    {below, NAN}},
  {"group_norm", "eps", function(v) return F.group_norm(R(2, 4), 2, options.eps(v)) end, {0, 1},
    {below, NAN}},
  {"instance_norm", "eps", function(v) return F.instance_norm(R(2, 3, 4), options.eps(v)) end,
    {0, 1}, {below, NAN}},
  {"batch_norm", "eps", function(v)
    return F.batch_norm(R(2, 3), R(3), R(3), options.eps(v))
  end, {0, 1}, {below, NAN}},
  {"rms_norm", "eps", function(v) return F.rms_norm(R(2, 3), {3}, options.eps(v)) end, {0, 1},
    {below, NAN}},
  {"conv2d", "groups", function(v) return F.conv2d(image, R(1, 1, 2, 2), options.groups(v)) end,
    {1}, {0, -1}},
  {"conv2d", "stride", function(v) return F.conv2d(image, R(1, 1, 2, 2), options.stride(v)) end,
    {1, 9}, {0, -1}},
  {"conv2d", "dilation", function(v) return F.conv2d(image, R(1, 1, 2, 2), options.dilation(v)) end,
    {1, 3}, {0, -1}},
  {"conv2d", "padding", function(v) return F.conv2d(image, R(1, 1, 2, 2), options.padding(v)) end,
    {0, 9}, {-1}},
  {"conv3d", "stride", function(v) return F.conv3d(volume, R(1, 1, 2, 2, 2), options.stride(v)) end,
    {1, 9}, {0, -1}},
  {"conv_transpose2d", "output_padding", function(v)
    return F.conv_transpose2d(image, R(1, 1, 2, 2), {stride = 2, output_padding = v})
  end, {0, 1}, {2, -1}},
  {"conv_transpose2d", "output_padding", function(v)
    return F.conv_transpose2d(image, R(1, 1, 2, 2), {dilation = 3, output_padding = v})
  end, {0, 2}, {3, -1}},
  {"max_pool2d", "padding", function(v) return F.max_pool2d(image, 3, {padding = v}) end, {0, 1},
    {2, -1}},
  {"max_pool3d", "padding", function(v) return F.max_pool3d(volume, 3, {padding = v}) end, {0, 1},
    {2, -1}},
  {"avg_pool2d", "padding", function(v) return F.avg_pool2d(image, 4, {padding = v}) end, {0, 2},
    {3, -1}},
  {"avg_pool2d", "divisor_override", function(v)
    return F.avg_pool2d(image, 2, {divisor_override = v})
  end, {1, -1}, {0}},
  {"avg_pool3d", "divisor_override", function(v)
    return F.avg_pool3d(volume, 2, {divisor_override = v})
  end, {1, -1}, {0}},
  {"max_pool2d", "kernel_size", function(v) return F.max_pool2d(image, v, 1) end, {1, 4}, {0, -1}},
  {"adaptive_avg_pool2d", "output_size", function(v) return F.adaptive_avg_pool2d(image, v) end,
    {0, 1, 9}, {-1}},
  {"adaptive_avg_pool3d", "output_size", function(v) return F.adaptive_avg_pool3d(volume, v) end,
    {0, 1, 9}, {-1}},
  {"pixel_shuffle", "upscale_factor", function(v) return F.pixel_shuffle(R(1, 4, 2, 2), v) end,
    {1, 2}, {0, -1}},
  {"pixel_unshuffle", "downscale_factor", function(v)
    return F.pixel_unshuffle(R(1, 1, 4, 4), v)
  end, {1, 4}, {0, -1}},
  {"interpolate", "size", function(v) return F.interpolate(image, options.size(v)) end, {1, 7},
    {0, -1}},
  {"fold", "output_size", function(v) return F.fold(R(1, 1, 1), {v, 1}, {v > 0 and v or 1, 1}) end,
    {1}, {0, -1}},
  {"polygamma", "n", function(v) return moth.polygamma(v, one + 1) end, {0, 3}, {-1}},
  {"bincount", "input", function(v) return moth.bincount(I {3, v}) end, {0, 5}, {-1}},
  {"total_norm", "error_if_nonfinite", function(v)
    return ops.total_norm({T {1, v}}, {error_if_nonfinite = true})
  end, {0, 1e9}, {INF, NAN}},
}

-- The arguments of optimizers' steps. Other numbers have no range.
local STEPS = {
  step = {{1, 1e9}, {0, 1 - 2 ^ -50, NAN}}, lr = {{0, 2}, {below, NAN}},
  lr_decay = {{0, 2}, {below, NAN}}, eta = {{0, 2}, {below, NAN}}, lambd = {{0, 2}, {below, NAN}},
  mu = {{0, 1}, {below, above, NAN}}, beta1 = {{0, 1}, {below, above, NAN}},
  beta2 = {{0, 1}, {below, above, NAN}}, alpha = {{0, 2}, {below, NAN}},
  rho = {{0, 1}, {below, above, NAN}}, eps = {{0, 2}, {below, NAN}},
  momentum = {{0, 2}, {below, NAN}}, weight_decay = {{0, 2}, {below, NAN}},
  etaminus = {{0, 1}, {below, above, NAN}}, etaplus = {{1, 9}, {1 - 2 ^ -50, NAN}},
  lr_grad = {{-9, 0, 9}, {}}, dampening = {{-9, 0, 9}, {}}, step_size_min = {{-9, 0, 9}, {}},
  step_size_max = {{-9, 0, 9}, {}},
}
for _, op in ipairs(registry.ops()) do
  for _, arg in ipairs(op.name:find "_step_$" and op.args or {}) do
    if arg.kind == "float" then
      local range = STEPS[arg.name]
      rows[#rows + 1] = {op.name, arg.name, function(v)
        local lists, given = {}, {}
        for i, other in ipairs(op.args) do
          if other.kind == "tensors" then lists[i] = {moth.ones(2)}
          elseif other.fallback == "" then given[other.name] = 1 end
        end
        given[arg.name] = v
        lists[#lists + 1] = given
        return op.fn(unpack(lists))
      end, range[1], range[2]}
    end
  end
end

describe("the range of", function()
  for _, row in ipairs(rows) do
    it(("%s of %s"):format(row[2], row[1]), function()
      for _, v in ipairs(row[4]) do
        local ok, problem = pcall(row[3], v)
        assert.is_true(ok, ("%.17g: %s"):format(v, tostring(problem)))
      end
      for _, v in ipairs(row[5]) do
        local ok, problem = pcall(row[3], v)
        assert.is_false(ok, ("%.17g is accepted"):format(v))
        assert.is_truthy(tostring(problem):find("'" .. row[2] .. "'", 1, true), tostring(problem))
      end
    end)
  end
end)
