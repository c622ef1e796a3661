-- The bounds of arguments: the last accepted value on each side works, the next one raises and the
-- message names the argument.

local moth = require "moth"
local registry = require "spec.support.registry"

local F, linalg = moth.nn.functional, moth.linalg
local INF, NAN = 1 / 0, 0 / 0
local x, v, square, image = moth.randn(2, 6), moth.rand(6), moth.eye(3), moth.randn(1, 4, 6, 6)
local volume = moth.randn(1, 2, 4, 4, 4)

local function int(...) return moth.tensor({...}, {dtype = moth.int64}) end

-- {function, the argument's name, f(value), accepted values, refused values}
local ROWS = {
  {"hardtanh", "min_val", function(k) return F.hardtanh(x, -1, k) end, {-1, 0, INF}, {-1.01, NAN}},
  {"softshrink", "lambd", function(k) return F.softshrink(x, k) end, {0, 0.5}, {-0.01, NAN}},
  {"hardshrink", nil, function(k) return F.hardshrink(x, k) end, {0, 0.5}, {}},
  {"celu", "alpha", function(k) return F.celu(x, k) end, {1e-3, -1, 2}, {0}},
  {"smooth_l1_loss", "beta", function(k) return F.smooth_l1_loss(x, x + 1, {beta = k}) end,
    {0, 0.5}, {-0.01, NAN}},
  {"huber_loss", "delta", function(k) return F.huber_loss(x, x + 1, {delta = k}) end, {1e-3, 2},
    {0, -1, NAN}},
  {"isclose", "rtol", function(k) return moth.isclose(x, x, {rtol = k}) end, {0, 1}, {-1e-9, NAN}},
  {"isclose", "atol", function(k) return moth.isclose(x, x, {atol = k}) end, {0, 1}, {-1e-9, NAN}},
  {"dropout", "p", function(k) return F.dropout(x, k) end, {0, 0.5, 1}, {-0.01, 1.01, NAN}},
  {"dropout2d", "p", function(k) return F.dropout2d(image, k) end, {0, 1}, {-0.01, 1.01, NAN}},
  {"alpha_dropout", "p", function(k) return F.alpha_dropout(x, k) end, {0, 0.9}, {-0.01, 1.01,
    NAN}},
  {"bernoulli_", "p", function(k) return moth.zeros(9):bernoulli_(k) end, {0, 0.5, 1},
    {-0.01, 1.01, NAN}},
  {"bernoulli", "input", function(k) return moth.bernoulli(moth.full({3}, k)) end, {0, 0.5, 1},
    {-0.01, 1.01, NAN}},
  {"scaled_dot_product_attention", "dropout_p", function(k)
    local q = moth.randn(1, 2, 3, 4)
    return F.scaled_dot_product_attention(q, q, q, {dropout_p = k})
  end, {0, 0.5, 1}, {-0.01, 1.01, NAN}},
  {"cross_entropy", "label_smoothing", function(k)
    return F.cross_entropy(x, int(1, 2), {label_smoothing = k})
  end, {0, 0.5, 1}, {-0.01, 1.01, NAN}},
  {"cross_entropy", "label_smoothing", function(k)
    return F.cross_entropy(x, x:softmax(2), {label_smoothing = k})
  end, {0, 0.5, 1}, {-0.01, 1.01, NAN}},
  {"cross_entropy", "target", function(k) return F.cross_entropy(x, int(1, k)) end, {1, 6},
    {0, 7, -1}},
  {"nll_loss", "target", function(k) return F.nll_loss(x, int(1, k)) end, {1, 6}, {0, 7, -1}},
  {"multi_margin_loss", nil, function(k) return F.multi_margin_loss(x, int(1, k)) end, {1, 6},
    {0, 7}},
  {"layer_norm", "eps", function(k) return F.layer_norm(x, {6}, {eps = k}) end, {0, 1}, {-1e-9,
    NAN}},
  {"group_norm", "eps", function(k) return F.group_norm(image, 2, {eps = k}) end, {0, 1},
    {-1e-9, NAN}},
  {"group_norm", "num_groups", function(k) return F.group_norm(image, k) end, {1, 2, 4}, {0, 3, 5}},
  {"rms_norm", "eps", function(k) return F.rms_norm(x, {6}, {eps = k}) end, {0, 1}, {-1e-9, NAN}},
  {"uniform_", "to", function(k) return moth.zeros(9):uniform_(2, k) end, {2, 3}, {1.99, INF, NAN}},
  {"normal_", "std", function(k) return moth.zeros(9):normal_(0, k) end, {0, 1}, {-1e-9, NAN}},
  {"exponential_", "lambd", function(k) return moth.zeros(9):exponential_(k) end, {1e-3, 1},
    {0, -1, NAN}},
  {"geometric_", "p", function(k) return moth.zeros(9):geometric_(k) end, {1e-3, 0.999},
    {0, 1, -1, NAN}},
  {"randint", "high", function(k) return moth.randint(3, k, {5}) end, {4, 9}, {3, 2}},
  {"randint", "dtype", function(k) return moth.randint(0, k, {5}, {dtype = moth.uint8}) end, {256},
    {257}},
  {"randint", "dtype", function(k) return moth.randint(k, 1, {5}, {dtype = moth.int8}) end, {-128},
    {-129}},
  {"randint_like", "high", function(k) return moth.randint_like(x, 3, k) end, {4, 9}, {3, 2}},
  {"randperm", "n", function(k) return moth.randperm(k) end, {0, 1, 5}, {-1}},
  {"multinomial", "num_samples", function(k) return moth.multinomial(v, k) end, {1, 6}, {0, 7, -1}},
  {"multinomial", "num_samples", function(k) return moth.multinomial(v, k, true) end, {1, 7}, {0}},
  {"multinomial", "input", function(k) return moth.multinomial(moth.tensor {1, k, 2}, 1) end, {0,
    3},
    {-0.1, INF, NAN}},
  {"arange", "step", function(k) return moth.arange(0, 5, k) end, {1, 0.1}, {0}},
  {"linspace", "steps", function(k) return moth.linspace(0, 1, k) end, {0, 1, 5}, {-1}},
  {"histc", "bins", function(k) return moth.histc(x, {bins = k}) end, {1, 5}, {0, -1}},
  {"histc", "max", function(k) return moth.histc(x, {min = 2, max = k}) end, {2, 3}, {1.99, INF,
    NAN}},
  {"bincount", "minlength", function(k) return moth.bincount(int(1, 2), {minlength = k}) end, {0,
    9},
    {-1}},
  {"bincount", "input", function(k) return moth.bincount(int(1, k)) end, {0, 5}, {-1}},
  {"one_hot", "input", function(k) return F.one_hot(int(1, 3), k) end, {3, 9}, {2}},
  {"one_hot", "num_classes", function(k) return F.one_hot(int(1, 1), k) end, {1, 9}, {0, -2}},
  {"topk", "k", function(k) return x:topk(k) end, {0, 1, 6}, {-1, 7}},
  {"kthvalue", "k", function(k) return x:kthvalue(k) end, {1, 6}, {0, 7}},
  {"quantile", "q", function(k) return x:quantile(k) end, {0, 0.5, 1}, {-0.01, 1.01, NAN}},
  {"unfold", nil, function(k) return x:unfold(2, k, 1) end, {1, 6}, {7, -1}},
  {"unfold", "step", function(k) return x:unfold(2, 3, k) end, {1, 6}, {0, -1}},
  {"narrow", "start", function(k) return x:narrow(2, k, 1) end, {1, 6, -1, -6}, {0, 8, -7}},
  {"narrow", "length", function(k) return x:narrow(2, 3, k) end, {0, 1, 4}, {-1, 5}},
  {"select", "index", function(k) return x:select(2, k) end, {1, 6, -1, -6}, {0, 7, -7}},
  {"split", "split_size", function(k) return x:split(k, 2) end, {1, 6, 9}, {0, -1}},
  {"chunk", "chunks", function(k) return x:chunk(k, 2) end, {1, 6, 9}, {0, -1}},
  {"sum", "dim", function(k) return x:sum(k) end, {1, 2, -1, -2}, {0, 3, -3}},
  {"softmax", "dim", function(k) return x:softmax(k) end, {1, 2, -1, -2}, {0, 3, -3}},
  {"cat", "dim", function(k) return moth.cat({x, x}, k) end, {1, 2, -1, -2}, {0, 3, -3}},
  {"stack", "dim", function(k) return moth.stack({x, x}, k) end, {1, 3, -1, -3}, {0, 4, -4}},
  {"unsqueeze", "dim", function(k) return x:unsqueeze(k) end, {1, 3, -1, -3}, {0, 4, -4}},
  {"flatten", nil, function(k) return image:flatten(2, k) end, {2, 4, -1}, {1, 5, 0}},
  {"repeat_interleave", "repeats", function(k) return x:repeat_interleave(k) end, {0, 1, 3}, {-1}},
  {"gather", "index", function(k) return x:gather(2, int(k):view(1, 1)) end, {1, 6}, {0, 7}},
  {"scatter", "index", function(k) return x:scatter(2, int(k):view(1, 1), 5) end, {1, 6}, {0, 7}},
  {"index_select", "index", function(k) return x:index_select(2, int(k)) end, {1, 6}, {0, 7}},
  {"index_add", "index", function(k) return x:index_add(2, int(k), moth.ones(2, 1)) end, {1, 6},
    {0, 7}},
  {"take", "index", function(k) return x:take(int(k)) end, {1, 12}, {0, 13}},
  {"embedding", "input", function(k) return F.embedding(int(k), x) end, {1, 2}, {0, 3}},
  {"embedding", "padding_idx", function(k) return F.embedding(int(1), x, {padding_idx = k}) end,
    {1, 2, -1, -2}, {0, 3, -3}},
  {"conv2d", "groups", function(k) return F.conv2d(image, moth.randn(4, 4 / math.max(k, 1), 1, 1),
    {groups = k}) end, {1, 2, 4}, {0, -1}},
  {"conv2d", "stride", function(k) return F.conv2d(image, moth.randn(2, 4, 3, 3), {stride = k}) end,
    {1, 9}, {0, -1}},
  {"conv2d", "dilation", function(k) return F.conv2d(image, moth.randn(2, 4, 2, 2),
    {dilation = k}) end,
    {1, 5}, {0, -1}},
  {"conv2d", "padding", function(k) return F.conv2d(image, moth.randn(2, 4, 2, 2),
    {padding = k}) end,
    {0, 5}, {-1}},
  {"conv2d", nil, function(k) return F.conv2d(image, moth.randn(2, 4, k, k)) end, {1, 6}, {7}},
  {"conv_transpose2d", "output_padding", function(k)
    return F.conv_transpose2d(image, moth.randn(4, 2, 3, 3), {stride = 3, dilation = 2,
      output_padding = k})
  end, {0, 2}, {-1, 3}},
  {"max_pool2d", "padding", function(k) return F.max_pool2d(image, 4, {padding = k}) end, {0, 2},
    {3, -1}},
  {"avg_pool2d", "padding", function(k) return F.avg_pool2d(image, 5, {padding = k}) end, {0, 2},
    {3, -1}},
  {"max_pool3d", "padding", function(k) return F.max_pool3d(volume, 3, {padding = k}) end, {0, 1},
    {2, -1}},
  {"avg_pool3d", "padding", function(k) return F.avg_pool3d(volume, 2, {padding = k}) end, {0, 1},
    {2, -1}},
  {"max_pool2d", "kernel_size", function(k) return F.max_pool2d(image, k) end, {1, 6}, {0, -1}},
  {"max_pool2d", "stride", function(k) return F.max_pool2d(image, 2, {stride = k}) end, {1, 7},
    {0, -1}},
  {"avg_pool2d", "divisor_override", function(k)
    return F.avg_pool2d(image, 2, {divisor_override = k})
  end, {1, 7, -3}, {0}},
  {"adaptive_avg_pool2d", "output_size", function(k) return F.adaptive_avg_pool2d(image, k) end,
    {0, 1, 9}, {-1}},
  {"adaptive_max_pool2d", "output_size", function(k) return F.adaptive_max_pool2d(image, k) end,
    {1, 9}, {-1}},
  {"pad", nil, function(k) return F.pad(image, {k, 0}, {mode = "reflect"}) end, {0, 5}, {6}},
  {"pad", nil, function(k) return F.pad(image, {k, 0}, {mode = "circular"}) end, {0, 6}, {7}},
  {"pad", nil, function(k) return F.pad(image, {k, 0}) end, {-6, 0, 7}, {-7}},
  {"pixel_shuffle", "upscale_factor", function(k) return F.pixel_shuffle(image, k) end, {1, 2},
    {0, -1}},
  {"pixel_unshuffle", "downscale_factor", function(k) return F.pixel_unshuffle(image, k) end, {1,
    2, 3},
    {0, -1}},
  {"interpolate", "scale_factor", function(k) return F.interpolate(image, {scale_factor = k}) end,
    {0.5, 3}, {0, -1, NAN}},
  {"interpolate", "size", function(k) return F.interpolate(image, {size = k}) end, {1, 9}, {0, -1}},
  {"cdist", "p", function(k) return moth.cdist(x, x, {p = k}) end, {0, 0.5, INF}, {-1, NAN}},
  {"pdist", "p", function(k) return F.pdist(x, {p = k}) end, {0, 0.5, INF}, {-1, NAN}},
  {"vector_norm", nil, function(k) return linalg.vector_norm(x, k) end, {0, -1, INF, -INF}, {NAN}},
  {"matrix_power", nil, function(k) return linalg.matrix_power(square, k) end, {-2, 0, 3}, {}},
  {"pow", "exponent", function(k) return int(2, 3):pow(k) end, {0, 3}, {-1}},
  {"polygamma", "n", function(k) return moth.polygamma(k, v) end, {0, 3}, {-1}},
  {"as_strided", nil, function(k) return x:as_strided({2, 2}, {1, 1}, k) end, {0, 9}, {-1, 10}},
  {"tril_indices", "row", function(k) return moth.tril_indices(k, 3) end, {0, 3}, {-1}},
  {"eye", "n", function(k) return moth.eye(k) end, {0, 3}, {-1}},
  {"repeat", nil, function(k) return x["repeat"](x, 1, k) end, {0, 2}, {-1}},
  {"diagonal", "offset", function(k) return x:diagonal(k) end, {-2, 0, 6}, {}},
  {"tile", nil, function(k) return x:tile(k) end, {0, 2}, {-1}},
  {"channel_shuffle", "groups", function(k) return F.channel_shuffle(image, k) end, {1, 2, 4}, {0,
    3}},
  {"clip_grad_norm", "norm_type", function(k)
    local p = moth.ones(3):requires_grad_()
    p:sum():backward()
    return moth.nn.utils.clip_grad_norm_({p}, 1, {norm_type = k})
  end, {0, 1, 2, INF}, {NAN}},
  {"rot90", nil, function(k) return moth.rot90(x, 1, {1, k}) end, {2, -1}, {1, -2, 3}},
  {"transpose", nil, function(k) return x:transpose(1, k) end, {1, 2, -2}, {0, 3, -3}},
  {"unflatten", nil, function(k) return x:unflatten(2, {2, k}) end, {3, -1}, {2, 4, 0}},
}

for i, row in ipairs(ROWS) do
  local name, argument, f, good, bad = unpack(row)
  describe(("%s (%s, row %d)"):format(name, argument or "a size", i), function()
    it("accepts its last values and refuses the next ones", function()
      for _, value in ipairs(good) do
        local ok, problem = pcall(f, value)
        if not ok then error(("%g was refused: %s"):format(value, problem), 0) end
      end
      for _, value in ipairs(bad) do
        local ok, problem = pcall(f, value)
        problem = tostring(problem)
        if ok then error(("%g was accepted"):format(value), 0) end
        if argument and not problem:find("bad argument '" .. argument .. "'", 1, true) then
          error(("%g: the message does not name %s: %s"):format(value, argument, problem), 0)
        end
        assert.is_truthy(moth.errcode())
      end
    end)
  end)
end

describe("each number of a pair or of three", function()
  -- {name, argument, f(list), a good list, a bad number}
  local rows = {
    {"conv2d", "stride",
      function(k) return F.conv2d(image, moth.ones(2, 4, 2, 2), {stride = k}) end, {1, 2}, 0},
    {"conv2d", "padding",
      function(k) return F.conv2d(image, moth.ones(2, 4, 2, 2), {padding = k}) end, {0, 1}, -1},
    {"conv2d", "dilation",
      function(k) return F.conv2d(image, moth.ones(2, 4, 2, 2), {dilation = k}) end,
      {1, 2}, 0},
    {"conv3d", "stride",
      function(k) return F.conv3d(volume, moth.ones(2, 2, 2, 2, 2), {stride = k}) end,
      {1, 2, 3}, 0},
    {"conv3d", "padding",
      function(k) return F.conv3d(volume, moth.ones(2, 2, 2, 2, 2), {padding = k}) end,
      {0, 1, 2}, -1},
    {"conv3d", "dilation",
      function(k) return F.conv3d(volume, moth.ones(2, 2, 2, 2, 2), {dilation = k}) end,
      {1, 2, 3}, 0},
    {"conv_transpose2d", "output_padding", function(k)
      return F.conv_transpose2d(image, moth.ones(4, 2, 3, 3), {stride = 2, output_padding = k})
    end, {0, 1}, 2},
    {"conv_transpose3d", "output_padding", function(k)
      return F.conv_transpose3d(volume, moth.ones(2, 2, 3, 3, 3), {stride = 2, output_padding = k})
    end, {0, 1, 1}, 2},
    {"max_pool2d", "kernel_size", function(k) return F.max_pool2d(image, k) end, {1, 6}, 0},
    {"max_pool2d", "stride",
      function(k) return F.max_pool2d(image, 2, {stride = k}) end, {1, 2}, 0},
    {"max_pool2d", "padding",
      function(k) return F.max_pool2d(image, 2, {padding = k}) end, {0, 1}, 2},
    {"max_pool2d", "dilation",
      function(k) return F.max_pool2d(image, 2, {dilation = k}) end, {1, 2}, 0},
    {"avg_pool2d", "kernel_size", function(k) return F.avg_pool2d(image, k) end, {1, 6}, 0},
    {"avg_pool2d", "padding",
      function(k) return F.avg_pool2d(image, 2, {padding = k}) end, {0, 1}, 2},
    {"max_pool3d", "kernel_size", function(k) return F.max_pool3d(volume, k) end, {1, 4, 2}, 0},
    {"max_pool3d", "padding",
      function(k) return F.max_pool3d(volume, 2, {padding = k}) end, {0, 1, 1}, 2},
    {"avg_pool3d", "padding",
      function(k) return F.avg_pool3d(volume, 2, {padding = k}) end, {0, 1, 1}, 2},
    {"avg_pool3d", "stride",
      function(k) return F.avg_pool3d(volume, 2, {stride = k}) end, {1, 2, 1}, 0},
    {"adaptive_avg_pool2d", "output_size",
      function(k) return F.adaptive_avg_pool2d(image, k) end, {2, 3}, -1},
    {"adaptive_max_pool2d", "output_size",
      function(k) return F.adaptive_max_pool2d(image, k) end, {2, 3}, -1},
    {"adaptive_avg_pool3d", "output_size", function(k) return F.adaptive_avg_pool3d(volume, k) end,
      {2, 3, 1}, -1},
    {"adaptive_max_pool3d", "output_size", function(k) return F.adaptive_max_pool3d(volume, k) end,
      {2, 3, 1}, -1},
    {"interpolate", "size", function(k) return F.interpolate(image, {size = k}) end, {3, 9}, 0},
    {"interpolate", "scale_factor", function(k) return F.interpolate(image, {scale_factor = k}) end,
      {0.5, 2}, 0},
    {"unfold", "kernel_size", function(k) return F.unfold(image, k) end, {1, 6}, 0},
    {"unfold", "stride", function(k) return F.unfold(image, 2, {stride = k}) end, {1, 3}, 0},
    {"unfold", "padding", function(k) return F.unfold(image, 2, {padding = k}) end, {0, 3}, -1},
    {"fold", "output_size", function(k) return F.fold(moth.ones(1, 4, 1), k, 2) end, {2, 2}, 0},
    {"tile", nil, function(k) return x:tile(k) end, {1, 2}, -1},
    {"zeros", "size", function(k) return moth.zeros(k) end, {1, 0, 2}, -1},
    {"reshape", "shape", function(k) return x:reshape(k) end, {3, 4}, -2},
    {"permute", "dims", function(k) return x:permute(k) end, {2, 1}, 3},
    {"sum", "dim", function(k) return x:sum(k) end, {1, 2}, 3},
    {"flip", "dims", function(k) return x:flip(k) end, {1, 2}, 0},
    {"expand", nil, function(k) return x:expand(k) end, {2, 6}, 3},
  }
  for _, row in ipairs(rows) do
    it(("is checked: %s of %s"):format(row[2] or "a size", row[1]), function()
      local _, argument, f, good, bad = unpack(row)
      local ok, problem = pcall(f, good)
      if not ok then error(problem, 0) end
      for i = 1, #good do
        local list = {unpack(good)}
        list[i] = bad
        ok, problem = pcall(f, list)
        problem = tostring(problem)
        if ok then error(("%g as number %d was accepted"):format(bad, i), 0) end
        if argument and not problem:find("bad argument '" .. argument, 1, true) then
          error(("%g as number %d: %s"):format(bad, i, problem), 0)
        end
      end
    end)
  end
end)

describe("the number of dimensions", function()
  -- {name, accepted numbers of dims, f(x)}
  local rows = {
    {"conv1d", {2, 3}, function(y) return F.conv1d(y, moth.ones(2, 3, 2)) end},
    {"conv2d", {3, 4}, function(y) return F.conv2d(y, moth.ones(2, 3, 2, 2)) end},
    {"conv3d", {4, 5}, function(y) return F.conv3d(y, moth.ones(2, 3, 2, 2, 2)) end},
    {"conv_transpose2d", {3, 4},
      function(y) return F.conv_transpose2d(y, moth.ones(3, 2, 2, 2)) end},
    {"max_pool1d", {2, 3}, function(y) return F.max_pool1d(y, 2) end},
    {"max_pool2d", {3, 4}, function(y) return F.max_pool2d(y, 2) end},
    {"max_pool3d", {4, 5}, function(y) return F.max_pool3d(y, 2) end},
    {"avg_pool1d", {2, 3}, function(y) return F.avg_pool1d(y, 2) end},
    {"avg_pool2d", {3, 4}, function(y) return F.avg_pool2d(y, 2) end},
    {"avg_pool3d", {4, 5}, function(y) return F.avg_pool3d(y, 2) end},
    {"adaptive_avg_pool1d", {2, 3}, function(y) return F.adaptive_avg_pool1d(y, 2) end},
    {"adaptive_avg_pool2d", {3, 4}, function(y) return F.adaptive_avg_pool2d(y, 2) end},
    {"adaptive_avg_pool3d", {4, 5}, function(y) return F.adaptive_avg_pool3d(y, 2) end},
    {"adaptive_max_pool2d", {3, 4}, function(y) return F.adaptive_max_pool2d(y, 2) end},
    {"pixel_shuffle", {3, 4, 5, 6}, function(y) return F.pixel_shuffle(y, 1) end},
    {"pixel_unshuffle", {3, 4, 5, 6}, function(y) return F.pixel_unshuffle(y, 1) end},
    {"interpolate bilinear", {4},
      function(y) return F.interpolate(y, {size = 2, mode = "bilinear"}) end},
    {"interpolate linear", {3},
      function(y) return F.interpolate(y, {size = 2, mode = "linear"}) end},
    {"interpolate trilinear", {5},
      function(y) return F.interpolate(y, {size = 2, mode = "trilinear"}) end},
    {"unfold", {3, 4}, function(y) return F.unfold(y, 2) end},
    {"bmm", {3}, function(y) return y:bmm(y) end},
    {"mm", {2}, function(y) return y:mm(y) end},
    {"mv", {2}, function(y) return y:mv(moth.ones(3)) end},
    {"dot", {1}, function(y) return y:dot(y) end},
    {"outer", {1}, function(y) return moth.outer(y, y) end},
    {"t", {0, 1, 2}, function(y) return y:t() end},
    {"tril", {2, 3, 4, 5, 6}, function(y) return y:tril() end},
    {"inv", {2, 3, 4, 5, 6}, function(y)
      return linalg.inv(y + moth.eye(3))
    end},
    {"diag", {1, 2}, function(y) return moth.diag(y) end},
    {"cdist", {2, 3, 4, 5, 6}, function(y) return moth.cdist(y, y) end},
    {"pdist", {2}, function(y) return F.pdist(y) end},
    {"group_norm", {2, 3, 4, 5, 6},
      function(y) return F.group_norm(y:repeat_interleave(2, -1), 1) end},
    {"embedding", {2}, function(y) return F.embedding(int(1), y) end},
    {"multinomial", {1, 2}, function(y) return moth.multinomial(y, 2) end},
    {"bincount", {1}, function(y) return moth.bincount(y:long()) end},
    {"dropout2d", {3, 4}, function(y) return F.dropout2d(y) end},
    {"glu", {0, 1, 2, 3, 4, 5, 6}, function(y) return F.glu(y:repeat_interleave(2, -1)) end},
    {"meshgrid", {0, 1}, function(y) return moth.meshgrid {y} end},
    {"nonzero", {0, 1, 2, 3, 4, 5, 6}, function(y) return moth.nonzero(y) end},
    {"cross", {1, 2, 3, 4, 5, 6}, function(y) return linalg.cross(y, y) end},
    {"layer_norm", {1, 2, 3, 4, 5, 6}, function(y) return F.layer_norm(y, {3}) end},
  }
  for _, row in ipairs(rows) do
    it("is checked by " .. row[1], function()
      local name, good, f = unpack(row)
      local accepted = {}
      for _, n in ipairs(good) do accepted[n] = true end
      for n = 0, 6 do
        local shape = {}
        for d = 1, n do shape[d] = 3 end
        local y = moth.ones(shape)
        local ok, problem = pcall(f, y)
        if ok ~= (accepted[n] or false)
          and not (name == "inv" and n < 2) and name ~= "dropout2d" then
          error(("%s of %d dims: %s"):format(name, n, ok and "accepted" or tostring(problem)), 0)
        end
      end
    end)
  end
end)

describe("the numbers of an optimizer's step", function()
  local ops = registry.ops()
  local least = {step = 1, lr = 0, lr_decay = 0, eta = 0, mu = 0, beta1 = 0, beta2 = 0, alpha = 0,
    rho = 0, eps = 0, momentum = 0, weight_decay = 0, etaminus = 0, etaplus = 1, lambd = 0}
  local most = {mu = 1, beta1 = 1, beta2 = 1, rho = 1, etaminus = 1}
  local function call(op, name, value)
    local given = {}
    local arguments = op.examples[1].arguments()
    for k = 1, arguments.n do
      local a = arguments[k]
      if type(a) == "table" and getmetatable(a) == nil and next(a) ~= nil and #a == 0 then
        for key, one in pairs(a) do given[key] = one end
      else
        given[op.args[k].name] = a
      end
    end
    given[name] = value
    return moth.no_grad(function() return op.fn(given) end)
  end
  for _, op in ipairs(ops) do
    if op.name:find "_step_$" then
      it("are checked by " .. op.name, function()
        for _, arg in ipairs(op.args) do
          local low, high = least[arg.name], most[arg.name]
          local function refuses(value)
            local ok, problem = pcall(call, op, arg.name, value)
            if ok then error(("%s = %g was accepted"):format(arg.name, value), 0) end
            assert.is_truthy(tostring(problem):find("bad argument '" .. arg.name, 1, true), problem)
          end
          if low and arg.kind == "float" then
            local ok, problem = pcall(call, op, arg.name, low)
            if not ok then error(("%s = %g: %s"):format(arg.name, low, tostring(problem)), 0) end
            refuses(low - 1e-3)
            refuses(NAN)
            if high then
              assert.is_true((pcall(call, op, arg.name, high)))
              refuses(high + 1e-3)
            end
          end
        end
      end)
    end
  end
end)

describe("the sizes of a gradient", function()
  local hidden = require("moth.binding.bind").ops
  -- {f(size), the right size}: each wrong number is refused
  local rows = {
    pad_back = {function(k) return hidden.pad_back(moth.ones(2, 4, 6), k, {1, 2}) end, {2, 4, 3}},
    avg_pool2d_back = {function(k)
      return hidden.avg_pool2d_back(moth.ones(2, 3, 3, 4), k, {2, 2}, {2, 2}, {0, 0}, false, true)
    end, {6, 8}, 4},
    conv2d_input = {function(k)
      return hidden.conv2d_input(moth.ones(1, 2, 5, 6), moth.ones(2, 3, 2, 2), k)
    end, {6, 7}, 4},
  }
  for name, row in pairs(rows) do
    it("are checked by " .. name, function()
      local f, right = unpack(row)
      local ok, problem = pcall(f, right)
      if not ok then error(problem, 0) end
      for i = 1, #right do
        local wrong = {unpack(right)}
        wrong[i] = right[i] + (row[3] or 1)
        assert.is_false((pcall(f, wrong)))
        wrong[i] = right[i] - (row[3] or 1)
        assert.is_false((pcall(f, wrong)))
      end
    end)
  end
end)
