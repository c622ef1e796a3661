-- A batch has the results and gradients of its elements, also if it has one element or none. Sizes
-- of one work in every dimension. A bad matrix is found at each place of a batch.

local moth = require "moth"
local operands = require "spec.support.operands"

local F, nn, linalg, fft = moth.nn.functional, moth.nn, moth.linalg, moth.fft
local r, apart, check = operands.r, operands.apart, operands.check

local function positive(...)
  local x = r(...)
  return x:matmul(x:transpose(-1, -2)) + moth.eye(x:size(-1), {dtype = moth.float64})
end
local function regular(...)
  local x = r(...)
  return x * 0.2 + moth.eye(x:size(-1), {dtype = moth.float64})
end

local W = {}
moth.manual_seed(1)
for k, shape in pairs {conv1 = {4, 3, 3}, conv2 = {4, 3, 3, 2}, conv3 = {4, 3, 2, 2, 2},
  depth = {3, 1, 3, 3}, up = {3, 4, 2, 2}, linear = {4, 7}, table = {9, 5}} do
  W[k] = r(unpack(shape))
end

-- {name, f(x), make(n): n elements along the first dimension, no gradient}
local BATCHES = {
  {"conv1d", function(x) return F.conv1d(x, W.conv1, {padding = 1}) end, function(n) return r(n,
    3, 9) end},
  {"conv2d", function(x) return F.conv2d(x, W.conv2, {padding = 1}) end, function(n) return r(n,
    3, 6, 7) end},
  {"conv2d depthwise", function(x) return F.conv2d(x, W.depth, {padding = 1, groups = 3}) end,
    function(n) return r(n, 3, 6, 7) end},
  {"conv_transpose2d", function(x) return F.conv_transpose2d(x, W.up, {stride = 2}) end,
    function(n) return r(n, 3, 5, 4) end},
  {"conv3d", function(x) return F.conv3d(x, W.conv3) end, function(n) return r(n, 3, 4, 3, 5) end},
  {"linear", function(x) return F.linear(x, W.linear) end, function(n) return r(n, 7) end},
  {"max_pool2d", function(x) return F.max_pool2d(x, 2) end, function(n) return apart(n, 3, 6,
    7) end},
  {"avg_pool2d", function(x) return F.avg_pool2d(x, 3, {padding = 1}) end, function(n) return r(n,
    3, 6, 7) end},
  {"max_pool3d", function(x) return F.max_pool3d(x, 2) end, function(n) return apart(n, 2, 4, 3,
    5) end},
  {"avg_pool3d", function(x) return F.avg_pool3d(x, 2) end, function(n) return r(n, 2, 4, 3,
    5) end},
  {"adaptive_avg_pool2d", function(x) return F.adaptive_avg_pool2d(x, {2, 3}) end,
    function(n) return r(n, 3, 6, 7) end},
  {"adaptive_max_pool2d", function(x) return F.adaptive_max_pool2d(x, {2, 3}) end,
    function(n) return apart(n, 3, 6, 7) end},
  {"layer_norm", function(x) return F.layer_norm(x, {7}) end, function(n) return r(n, 7) end},
  {"group_norm", function(x) return F.group_norm(x, 2) end, function(n) return r(n, 4, 5) end},
  {"rms_norm", function(x) return F.rms_norm(x, {7}) end, function(n) return r(n, 7) end},
  {"instance_norm", function(x) return F.instance_norm(x) end, function(n) return r(n, 4, 5) end},
  {"local_response_norm", function(x) return F.local_response_norm(x, 3) end,
    function(n) return r(n, 4, 5) end},
  {"softmax", function(x) return x:softmax(2) end, function(n) return r(n, 7) end},
  {"log_softmax", function(x) return x:log_softmax(2) end, function(n) return r(n, 7, 3) end},
  {"cumsum", function(x) return x:cumsum(2) end, function(n) return r(n, 7) end},
  {"cumprod", function(x) return x:cumprod(2) end, function(n) return r(n, 7) end},
  {"cummax", function(x) return (x:cummax(2)) end, function(n) return apart(n, 7) end},
  {"logcumsumexp", function(x) return x:logcumsumexp(2) end, function(n) return r(n, 7) end},
  {"sort", function(x) return (x:sort(2)) end, function(n) return apart(n, 7) end},
  {"topk", function(x) return (x:topk(3, {dim = 2})) end, function(n) return apart(n, 7) end},
  {"kthvalue", function(x) return (x:kthvalue(3, 2)) end, function(n) return apart(n, 7) end},
  {"median", function(x) return (x:median(2)) end, function(n) return apart(n, 7) end},
  {"quantile", function(x) return x:quantile(0.3, 2) end, function(n) return apart(n, 7) end},
  {"max", function(x) return (x:max(2)) end, function(n) return apart(n, 7) end},
  {"sum", function(x) return x:sum(2) end, function(n) return r(n, 7) end},
  {"prod", function(x) return x:prod(2) end, function(n) return r(n, 7) end},
  {"var", function(x) return x:var(2) end, function(n) return r(n, 7) end},
  {"norm", function(x) return x:norm(3, 2) end, function(n) return r(n, 7) end},
  {"logsumexp", function(x) return x:logsumexp(2) end, function(n) return r(n, 7) end},
  {"normalize", function(x) return F.normalize(x) end, function(n) return r(n, 7) end},
  {"matmul", function(x) return x:matmul(W.linear:t()) end, function(n) return r(n, 5, 7) end},
  {"bmm", function(x) return x:bmm(x:transpose(2, 3)) end, function(n) return r(n, 5, 7) end},
  {"baddbmm", function(x) return moth.baddbmm(x, x, x, {beta = 0.5}) end, function(n) return r(n,
    5, 5) end},
  {"attention", function(x) return F.scaled_dot_product_attention(x, x, x, {is_causal = true}) end,
    function(n) return r(n, 2, 5, 4) end},
  {"cdist", function(x) return moth.cdist(x, x + 1) end, function(n) return r(n, 4, 5) end},
  {"cross_entropy", function(x) return F.cross_entropy(x, x:detach():argmin(2),
    {reduction = "none"}) end,
    function(n) return r(n, 7) end},
  {"mse_loss", function(x) return F.mse_loss(x, x * 2, {reduction = "none"}) end,
    function(n) return r(n, 7) end},
  {"interpolate", function(x) return F.interpolate(x, {size = {9, 4}, mode = "bilinear"}) end,
    function(n) return r(n, 2, 6, 7) end},
  {"interpolate nearest", function(x) return F.interpolate(x, {scale_factor = 2}) end,
    function(n) return r(n, 2, 6, 7) end},
  {"interpolate bicubic", function(x) return F.interpolate(x, {size = {9, 4},
    mode = "bicubic"}) end,
    function(n) return r(n, 2, 6, 7) end},
  {"pad", function(x) return F.pad(x, {1, 2}, {mode = "reflect"}) end, function(n) return r(n, 2,
    6) end},
  {"pad constant", function(x) return F.pad(x, {1, -2, 0, 3}) end, function(n) return r(n, 2,
    6) end},
  {"unfold", function(x) return F.unfold(x, 2) end, function(n) return r(n, 2, 6, 7) end},
  {"fold", function(x) return F.fold(x, {3, 4}, 2) end, function(n) return r(n, 8, 6) end},
  {"pixel_shuffle", function(x) return F.pixel_shuffle(x, 2) end, function(n) return r(n, 8, 3,
    4) end},
  {"grid_sample", function(x) return F.grid_sample(x, x:narrow(2, 1, 2):permute(1, 3, 4, 2):tanh(),
    {align_corners = false}) end, function(n) return r(n, 3, 5, 4) end},
  {"inv", linalg.inv, function(n) return regular(n, 5, 5) end},
  {"det", linalg.det, function(n) return regular(n, 5, 5) end},
  {"slogdet", function(x) return select(2, linalg.slogdet(x)) end, function(n) return regular(n,
    5, 5) end},
  {"solve", function(x) return linalg.solve(x, x:narrow(3, 1, 2)) end,
    function(n) return regular(n, 5, 5) end},
  {"solve_triangular", function(x) return linalg.solve_triangular(x:triu(), x, {upper = true}) end,
    function(n) return regular(n, 5, 5) end},
  {"cholesky", function(x) return linalg.cholesky((x + x:transpose(2, 3)) / 2) end,
    function(n) return positive(n, 5, 5) end},
  {"qr", function(x) return (linalg.qr(x)) end, function(n) return regular(n, 5, 5) end},
  {"eigvalsh", function(x) return linalg.eigvalsh(x + x:transpose(2, 3)) end,
    function(n) return regular(n, 5, 5) end},
  {"svdvals", linalg.svdvals, function(n) return r(n, 4, 6) end},
  {"pinv", function(x) return linalg.pinv(x) end, function(n) return r(n, 6, 4) end},
  {"matrix_exp", linalg.matrix_exp, function(n) return r(n, 5, 5) end},
  {"lu", function(x) return select(3, linalg.lu(x)) end, function(n) return regular(n, 5, 5) end},
  {"rfft", function(x) return fft.rfft(x):abs() end, function(n) return r(n, 9) end},
  {"irfft", function(x) return fft.irfft(fft.rfft(x) * 2) end, function(n) return r(n, 8) end},
  {"tril", function(x) return x:tril() end, function(n) return r(n, 4, 6) end},
  {"diagonal", function(x) return x:diagonal(0, 2, 3) end, function(n) return r(n, 4, 6) end},
  {"diag_embed", function(x) return moth.diag_embed(x) end, function(n) return r(n, 4) end},
  {"flip", function(x) return x:flip(2) end, function(n) return r(n, 4, 6) end},
  {"roll", function(x) return x:roll(2, 2) end, function(n) return r(n, 7) end},
  {"repeat_interleave", function(x) return x:repeat_interleave(2, 2) end, function(n) return r(n,
    7) end},
  {"gather", function(x) return x:gather(2, x:detach():argsort(2):narrow(2, 1, 4)) end,
    function(n) return r(n, 7) end},
  {"scatter_add", function(x) return moth.zeros_like(x):scatter_add(2,
    x:detach():argsort(2) % 3 + 1, x) end,
    function(n) return r(n, 7) end},
  {"index_select", function(x) return x:index_select(2, moth.tensor({3, 1},
    {dtype = moth.int64})) end,
    function(n) return r(n, 7) end},
  {"cat", function(x) return moth.cat({x, x * 2}, 2) end, function(n) return r(n, 7) end},
  {"stack", function(x) return moth.stack({x, x * 2}, 2) end, function(n) return r(n, 7) end},
  {"unfold of a dim", function(x) return x:unfold(2, 3, 2) end, function(n) return r(n, 7) end},
  {"where", function(x) return moth.where(x:gt(0), x, x * 0.1) end, function(n) return r(n, 7) end},
  {"gelu", function(x) return F.gelu(x) end, function(n) return r(n, 7) end},
  {"glu", function(x) return F.glu(x) end, function(n) return r(n, 8) end},
  {"prelu", function(x) return F.prelu(x, moth.tensor({0.2}, {dtype = x.dtype})) end,
    function(n) return r(n, 7) end},
  {"pow", function(x) return x:abs():pow(1.5) end, function(n) return r(n, 7) end},
  {"clamp", function(x) return x:clamp(-0.5, 0.5) end, function(n) return r(n, 7) end},
}

local function equal(note, want, got)
  if tostring(want.shape) ~= tostring(got.shape) then
    error(("%s: %s, not %s"):format(note, tostring(got.shape), tostring(want.shape)), 0)
  end
  if want:numel() > 0 then
    local off = (want:double() - got:double()):abs():max():item()
    local size = math.max(1, want:double():abs():max():item())
    if not (off <= 2e-5 * size) then error(("%s: off by %g"):format(note, off), 0) end
  end
end

describe("a batch", function()
  for _, row in ipairs(BATCHES) do
    it("has the results and gradients of its elements: " .. row[1], function()
      local name, f, make = unpack(row)
      for _, dtype in ipairs {moth.float64, moth.float32} do
        local weights = {}
        for k, w in pairs(W) do weights[k], W[k] = w, w:to(dtype) end
        moth.manual_seed(5)
        for _, n in ipairs {3, 7} do
          local x = make(n):to(dtype):requires_grad_()
          local y = f(x)
          local weight = moth.linspace(0.5, 1.5, y:numel() / n):to(dtype):view_as(y[1])
          y:backward(weight:expand_as(y))
          for i = 1, n do
            local one = x[{{i, i}}]:detach():clone():requires_grad_()
            local z = f(one)
            z:backward(weight:expand_as(z))
            equal(("%s, element %d"):format(name, i), y[{{i, i}}], z)
            equal(("%s, gradient of element %d"):format(name, i), x.grad[{{i, i}}], one.grad)
          end
          local none = x[{{1, 0}}]:detach():requires_grad_()
          local z = f(none)
          equal(name .. " of no elements", y[{{1, 0}}], z)
          z:sum():backward()
          assert.same({unpack(none.shape)}, {unpack(none.grad.shape)})
        end
        for k, w in pairs(weights) do W[k] = w end
      end
    end)
  end

  it("without elements has zero gradients for weights", function()
    local rows = {
      {function(x, w) return F.conv2d(x, w) end, {0, 3, 6, 7}, {4, 3, 3, 2}},
      {function(x, w) return F.conv1d(x, w) end, {0, 3, 7}, {4, 3, 3}},
      {function(x, w) return F.conv_transpose2d(x, w) end, {0, 3, 6, 7}, {3, 4, 3, 2}},
      {function(x, w) return F.linear(x, w) end, {0, 3}, {4, 3}},
      {function(x, w) return x:matmul(w) end, {2, 0, 3}, {3, 4}},
      {function(x, w) return F.layer_norm(x, {5}, {weight = w}) end, {0, 5}, {5}},
      {function(x, w) return F.group_norm(x, 2, {weight = w}) end, {0, 4, 3}, {4}},
      {function(x, w) return F.rms_norm(x, {5}, {weight = w}) end, {0, 5}, {5}},
      {function(x, w) return F.bilinear(x, x, w) end, {0, 3}, {4, 3, 3}},
      {function(x, w) return F.prelu(x, w) end, {0, 3}, {3}},
      {function(x, w) return x + w end, {0, 3}, {3}},
      {function(x, w) return x * w end, {0, 3}, {1}},
    }
    for i, row in ipairs(rows) do
      local x = moth.zeros(row[2]):requires_grad_()
      local w = moth.randn(row[3]):requires_grad_()
      row[1](x, w):sum():backward()
      equal("row " .. i, moth.zeros(row[3]), w.grad)
      equal("row " .. i, moth.zeros(row[2]), x.grad)
    end
    local w = moth.randn(5, 3):requires_grad_()
    F.embedding(moth.zeros({0}, {dtype = moth.int64}), w):sum():backward()
    equal("embedding", moth.zeros(5, 3), w.grad)
  end)
end)

describe("sizes of one", function()
  local function layer(class, options)
    return function(x, h, c)
      moth.manual_seed(4)
      local net = class(1, 1, options):to(x.dtype)
      for _, p in ipairs(net:parameters()) do p:requires_grad_(false) end
      if c then return net(x, {h, c}) end
      return net(x, h)
    end
  end
  local rows = {
    {"conv1d", F.conv1d, {{1, 1, 1}, {1, 1, 1}}}, {"conv2d", F.conv2d, {{1, 1, 1, 1}, {1, 1, 1,
      1}}},
    {"conv3d", F.conv3d, {{1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}}},
    {"conv_transpose2d", F.conv_transpose2d, {{1, 1, 1, 1}, {1, 1, 1, 1}}},
    {"linear", F.linear, {{1, 1}, {1, 1}}}, {"matmul", moth.matmul, {{1, 1}, {1, 1}}},
    {"bmm", moth.bmm, {{1, 1, 1}, {1, 1, 1}}}, {"dot", moth.dot, {{1}, {1}}},
    {"bilinear", F.bilinear, {{1, 1}, {1, 1}, {1, 1, 1}}},
    {"attention", F.scaled_dot_product_attention, {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}}},
    {"avg_pool2d", function(x) return F.avg_pool2d(x, 1) end, {{1, 1, 1, 1}}},
    {"max_pool2d", function(x) return F.max_pool2d(x, 1) end, {{1, 1, 1, 1}}},
    {"interpolate", function(x) return F.interpolate(x, {size = 3, mode = "bilinear"}) end, {{1,
      1, 1, 1}}},
    {"bicubic", function(x) return F.interpolate(x, {size = 3, mode = "bicubic"}) end, {{1, 1, 1,
      1}}},
    {"RNN", layer(nn.RNN), {{1, 1, 1}, {1, 1, 1}}}, {"GRU", layer(nn.GRU), {{1, 1, 1}, {1, 1, 1}}},
    {"LSTM", layer(nn.LSTM), {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
    {"LSTM both ways", layer(nn.LSTM, {bidirectional = true, num_layers = 2}),
      {{1, 1, 1}, {4, 1, 1}, {4, 1, 1}}},
    {"GRUCell", layer(nn.GRUCell), {{1, 1}, {1, 1}}}, {"RNNCell", layer(nn.RNNCell), {{1, 1}, {1,
      1}}},
    {"LSTMCell", layer(nn.LSTMCell), {{1, 1}, {1, 1}, {1, 1}}},
    {"cross_entropy", function(x) return F.cross_entropy(x, moth.tensor({1},
      {dtype = moth.int64})) end, {{1, 1}}},
    {"cdist", function(x, y) return moth.cdist(x, y + 3) end, {{1, 1}, {1, 1}}},
    {"kron", moth.kron, {{1, 1}, {1, 1}}}, {"inv", function(x) return linalg.inv(x + 3) end, {{1,
      1}}},
    {"cholesky", function(x) return linalg.cholesky(x + 5) end, {{1, 1}}},
    {"svdvals", linalg.svdvals, {{1, 1}}}, {"eigvalsh", linalg.eigvalsh, {{1, 1}}},
    {"matrix_exp", linalg.matrix_exp, {{1, 1}}}, {"pinv",
      function(x) return linalg.pinv(x + 3) end, {{1, 1}}},
    {"cumsum", function(x) return x:cumsum(1) end, {{1}}}, {"prod",
      function(x) return x:prod() end, {{1}}},
    {"rfft", function(x) return fft.rfft(x) end, {{1}}},
    {"block_diag", function(x) return moth.block_diag(x) end, {{1, 1}}},
    {"meshgrid", function(x) return moth.meshgrid {x} end, {{1}}},
    {"cartesian_prod", function(x) return moth.cartesian_prod(x) end, {{1}}},
    {"cat", function(x) return moth.cat {x} end, {{1}}}, {"stack",
      function(x) return moth.stack {x} end, {{1}}},
  }
  for _, row in ipairs(rows) do
    it("have the right results and gradients: " .. row[1], function()
      moth.manual_seed(2)
      local list = {}
      for i, shape in ipairs(row[3]) do list[i] = r(unpack(shape)) end
      check(row[1], row[2], list, {half = false, single = 1e-3})
    end)
  end
end)

describe("a bad matrix", function()
  local F64 = moth.float64
  local bad = {
    singular = moth.tensor({{1, 2, 3}, {2, 4, 6}, {1, 0, 1}}, {dtype = F64}),
    indefinite = -moth.eye(3, {dtype = F64}),
    nan = moth.full({3, 3}, 0 / 0, {dtype = F64}),
  }
  local rows = {
    {"inv", "singular", linalg.inv}, {"cholesky", "indefinite", linalg.cholesky},
    {"solve", "singular", function(x) return linalg.solve(x, moth.ones({5, 3, 1},
      {dtype = x.dtype})) end},
    {"eigvalsh", "nan", linalg.eigvalsh}, {"svdvals", "nan", linalg.svdvals},
    {"eigvals", "nan", function(x) return linalg.eigvals(x) end},
  }
  for _, row in ipairs(rows) do
    it("raises at each place of a batch: " .. row[1], function()
      for _, dtype in ipairs {F64, moth.float32} do
        local good = moth.eye(3, {dtype = dtype}):expand(5, 3, 3):contiguous()
        assert.is_true((pcall(row[3], good)))
        for i = 1, 5 do
          local x = good:clone()
          x[i] = bad[row[2]]:to(dtype)
          local ok, problem = pcall(row[3], x)
          assert.is_false(ok, ("%s did not raise for matrix %d"):format(row[1], i))
          assert.is_truthy(tostring(problem):find(tostring(i), 1, true), problem)
          assert.is_true((pcall(row[3], good)))
        end
      end
    end)
  end

  it("has the info of its own place", function()
    local x = moth.eye(3, {dtype = F64}):expand(5, 3, 3):contiguous()
    x[2], x[5] = bad.indefinite, bad.indefinite
    local _, info = linalg.cholesky_ex(x)
    assert.same({0, 1, 0, 0, 1}, info:gt(0):to(moth.float64):tolist())
    x = moth.eye(3, {dtype = F64}):expand(5, 3, 3):contiguous()
    x[1], x[4] = bad.singular, bad.singular
    local _, info2 = linalg.inv_ex(x)
    assert.same({1, 0, 0, 1, 0}, info2:gt(0):to(moth.float64):tolist())
  end)
end)
