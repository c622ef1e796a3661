-- Layers without weights equal their functions: same results, PyTorch's arguments and printed form.

local moth = require "moth"
local nn, F = moth.nn, moth.nn.functional

-- the layer as written, the function with the same arguments, its printed form
local layers = {
  {"nn.Tanh()", "tanh(x)", "Tanh()"},
  {"nn.Sigmoid()", "sigmoid(x)", "Sigmoid()"},
  {"nn.LogSigmoid()", "logsigmoid(x)", "LogSigmoid()"},
  {"nn.Softsign()", "softsign(x)", "Softsign()"},
  {"nn.Tanhshrink()", "tanhshrink(x)", "Tanhshrink()"},
  {"nn.ReLU()", "relu(x)", "ReLU()"},
  {"nn.ReLU6()", "relu6(x)", "ReLU6()"},
  {"nn.SELU()", "selu(x)", "SELU()"},
  {"nn.SiLU()", "silu(x)", "SiLU()"},
  {"nn.Mish()", "mish(x)", "Mish()"},
  {"nn.Hardswish()", "hardswish(x)", "Hardswish()"},
  {"nn.Hardsigmoid()", "hardsigmoid(x)", "Hardsigmoid()"},
  {"nn.ELU(0.5)", "elu(x, 0.5)", "ELU(alpha=0.5)"},
  {"nn.CELU{alpha = 2}", "celu(x, 2)", "CELU(alpha=2)"},
  {"nn.LeakyReLU(0.2)", "leaky_relu(x, 0.2)", "LeakyReLU(negative_slope=0.2)"},
  {"nn.Hardtanh(-0.5, 0.75)", "hardtanh(x, -0.5, 0.75)", "Hardtanh(min_val=-0.5, max_val=0.75)"},
  {"nn.Threshold(0.1, 20)", "threshold(x, 0.1, 20)", "Threshold(threshold=0.1, value=20)"},
  {"nn.Softplus(2, 1)", "softplus(x, 2, 1)", "Softplus(beta=2, threshold=1)"},
  {"nn.Softshrink(0.3)", "softshrink(x, 0.3)", "Softshrink(lambd=0.3)"},
  {"nn.Hardshrink(0.3)", "hardshrink(x, 0.3)", "Hardshrink(lambd=0.3)"},
  {"nn.GELU()", "gelu(x)", "GELU(approximate='none')"},
  {"nn.GELU('tanh')", "gelu{x, approximate = 'tanh'}", "GELU(approximate='tanh')"},
  {"nn.Softmax(2)", "softmax(x, 2)", "Softmax(dim=2)"},
  {"nn.LogSoftmax{dim = -1}", "log_softmax(x, -1)", "LogSoftmax(dim=-1)"},
  {"nn.Softmin(1)", "softmin(x, 1)", "Softmin(dim=1)"},
  {"nn.GLU()", "glu(x, -1)", "GLU(dim=-1)"},
  {"nn.Softmax2d()", "softmax(x, 2)", "Softmax2d()"},
}

local INPLACE = "ReLU ReLU6 SELU SiLU Mish Hardswish Hardsigmoid ELU CELU LeakyReLU Hardtanh"

local function value(code, x)
  return setfenv(assert(loadstring("return " .. code)), {nn = nn, x = x, F = F})()
end

describe("the layer", function()
  for _, row in ipairs(layers) do
    it(row[1] .. " equals its function", function()
      local x = moth.randn(2, 4, 3, 6)
      local layer = value(row[1])
      local y = layer(x)
      assert.is_true(y:equal(value("F." .. row[2], x)))
      assert.is_false(y:equal(x))
      assert.equal(row[3], tostring(layer))
      assert.same({}, layer:parameters())
    end)
  end

  it("writes to its input if inplace = true", function()
    for name in INPLACE:gmatch "%S+" do
      local x = moth.randn(3, 4)
      local wanted = nn[name]()(x)
      local layer = nn[name]{inplace = true}
      assert.equal(x, layer(x), name)
      assert.is_true(x:equal(wanted), name)
      assert.matches("inplace=true", tostring(layer))
    end
  end)

  it("PReLU learns its slope, one for all channels or one for each", function()
    local one, each = nn.PReLU(), nn.PReLU{num_parameters = 3, init = 0.5}
    local x = moth.tensor{{-1, 2, -3}}
    assert.same({{-0.25, 2, -0.75}}, one(x):tolist())
    assert.same({{-0.5, 2, -1.5}}, each(x):tolist())
    each(x):sum():backward()
    assert.same({-1, 0, -3}, each.weight.grad:tolist())
    assert.equal("PReLU(num_parameters=3)", tostring(each))
  end)

  it("raises for arguments of the wrong kind, with their names", function()
    assert.error_matches(function() nn.ELU{alhpa = 1} end, "did you mean 'alpha'")
    assert.error_matches(function() nn.GELU("erf") end, "approximate")
    assert.error_matches(function() nn.Softmax() end, "bad argument 'dim' to 'Softmax'")
  end)
end)

describe("the loss", function()
  local x, t = moth.rand(3, 4), moth.rand(3, 4)

  it("of pairs of numbers equals its function with its options", function()
    local w = moth.rand(4)
    local rows = {
      {nn.MSELoss(), F.mse_loss(x, t)},
      {nn.L1Loss("sum"), F.l1_loss{x, t, reduction = "sum"}},
      {nn.SmoothL1Loss{beta = 0.5}, F.smooth_l1_loss{x, t, beta = 0.5}},
      {nn.HuberLoss{reduction = "none", delta = 0.3}, F.huber_loss{x, t, reduction = "none",
        delta = 0.3}},
      {nn.KLDivLoss{reduction = "batchmean", log_target = true}, F.kl_div{x, t,
        reduction = "batchmean", log_target = true}},
      {nn.BCELoss{weight = w}, F.binary_cross_entropy{x, t, weight = w}},
      {nn.BCEWithLogitsLoss{pos_weight = w, reduction = "sum"},
        F.binary_cross_entropy_with_logits{x, t, pos_weight = w, reduction = "sum"}},
    }
    for _, row in ipairs(rows) do
      assert.is_true(row[1](x, t):equal(row[2]), tostring(row[1]))
    end
  end)

  it("keeps its weights as buffers, not as parameters", function()
    local loss = nn.BCEWithLogitsLoss{weight = moth.ones(4), pos_weight = moth.ones(4)}
    assert.equal(2, #loss:buffers())
    assert.same({}, loss:parameters())
  end)
end)
