-- Products, attention, recurrent layers, linear algebra, indexing, resizing, padding, transforms:
-- results and gradients at sizes on both sides of tiles and blocks.

local moth = require "moth"
local operands = require "spec.support.operands"

local F, nn, linalg = moth.nn.functional, moth.nn, moth.linalg
local r, u, ints, apart = operands.r, operands.u, operands.ints, operands.apart

local function claims(what, rows)
  describe(what, function() operands.claims(it, rows) end)
end

local products = {}
local function product(name, f, make, options)
  products[#products + 1] = {name, f, make, options}
end
for _, s in ipairs {{1, 1, 1}, {1, 7, 1}, {7, 1, 5}, {1, 9, 17}, {17, 33, 1}, {3, 5, 4}, {5, 16,
  16},
  {6, 17, 15}, {12, 8, 48}, {13, 64, 33}, {15, 31, 47}, {16, 100, 65}, {33, 260, 9}, {65, 3, 70}} do
  local m, k, n = unpack(s)
  local size = (" %dx%dx%d"):format(m, k, n)
  product("matmul" .. size, moth.matmul, function() return {r(m, k), r(k, n)} end)
  product("bmm" .. size, moth.bmm, function() return {r(3, m, k), r(3, k, n)} end)
  product("linear" .. size, function(x, w, b) return F.linear(x, w, b) end,
    function() return {r(m, k), r(n, k), r(n)} end)
end
product("matmul with broadcast batches", moth.matmul,
  function() return {r(3, 1, 5, 7), r(2, 7, 4)} end)
product("matmul of a vector", moth.matmul, function() return {r(7), r(2, 7, 4)} end)
product("matmul by a vector", moth.matmul, function() return {r(2, 5, 7), r(7)} end)
product("dot", moth.dot, function() return {r(301), r(301)} end)
product("mv", moth.mv, function() return {r(19, 33), r(33)} end)
product("outer", moth.outer, function() return {r(19), r(33)} end)
product("addmm", function(a, x, y) return moth.addmm(a, x, y, {beta = 0.7, alpha = -1.3}) end,
  function() return {r(1, 9), r(5, 17), r(17, 9)} end)
product("baddbmm", function(a, x, y) return moth.baddbmm(a, x, y, {beta = 0.7, alpha = -1.3}) end,
  function() return {r(5, 9), r(2, 5, 17), r(2, 17, 9)} end)
product("addbmm", function(a, x, y) return moth.addbmm(a, x, y, {beta = 0.7, alpha = -1.3}) end,
  function() return {r(5, 9), r(2, 5, 17), r(2, 17, 9)} end)
product("addmv", function(a, x, y) return moth.addmv(a, x, y, {beta = 0.7, alpha = -1.3}) end,
  function() return {r(5), r(5, 17), r(17)} end)
product("addr", function(a, x, y) return moth.addr(a, x, y, {beta = 0.7, alpha = -1.3}) end,
  function() return {r(5, 9), r(5), r(9)} end)
product("bilinear", function(x, y, w, b) return F.bilinear(x, y, w, b) end,
  function() return {r(5, 4), r(5, 6), r(7, 4, 6), r(7)} end)
product("einsum", function(x, y) return moth.einsum("bij,bkj->bik", x, y) end,
  function() return {r(2, 5, 7), r(2, 4, 7)} end)
product("kron", moth.kron, function() return {r(3, 4), r(2, 5)} end)
product("tensordot", function(x, y) return moth.tensordot(x, y, {dims = 2}) end,
  function() return {r(3, 4, 5), r(4, 5, 2)} end)
product("cross", function(x, y) return linalg.cross(x, y, {dim = 2}) end,
  function() return {r(5, 3, 7), r(5, 3, 7)} end)
product("vecdot", function(x, y) return linalg.vecdot(x, y) end,
  function() return {r(5, 19), r(5, 19)} end)
product("cosine_similarity", function(x, y) return F.cosine_similarity(x, y) end,
  function() return {r(5, 19), r(5, 19)} end)
product("pairwise_distance", function(x, y) return F.pairwise_distance(x, y, {p = 3}) end,
  function() return {r(5, 19), r(5, 19)} end)
for _, p in ipairs {1, 2, 2.5} do
  product("cdist, p = " .. p, function(x, y) return moth.cdist(x, y, {p = p}) end,
    function() return {r(2, 9, 17), r(2, 5, 17)} end)
  product("pdist, p = " .. p, function(x) return F.pdist(x, {p = p}) end,
    function() return {r(9, 17)} end)
end
product("multi_dot", function(...) return linalg.multi_dot {...} end,
  function() return {r(4, 9), r(9, 3), r(3, 7), r(7, 5)} end)
product("matrix_power", function(x) return linalg.matrix_power(x, 5) end,
  function() return {r(2, 4, 4) * 0.5} end,
  {half = false})
claims("a product", products)

local attention = F.scaled_dot_product_attention
local rows = {}
for _, s in ipairs {{1, 1, 1}, {5, 7, 8}, {16, 16, 16}, {33, 65, 24}, {70, 70, 40}} do
  local q, k, e = unpack(s)
  local size = (" %d %d %d"):format(q, k, e)
  rows[#rows + 1] = {"plain" .. size, function(x, y, z) return attention(x, y, z) end,
    function() return {r(2, 3, q, e), r(2, 3, k, e), r(2, 3, k, e)} end}
  rows[#rows + 1] = {"a mask of numbers" .. size, function(x, y, z, m)
    return attention(x, y, z, {attn_mask = m, scale = 0.3})
  end, function() return {r(2, 3, q, e), r(2, 3, k, e), r(2, 3, k, e), r(q, k)} end}
  rows[#rows + 1] = {"a mask for each head" .. size, function(x, y, z, m)
    return attention(x, y, z, {attn_mask = m})
  end, function() return {r(2, 3, q, e), r(2, 3, k, e), r(2, 3, k, e), r(1, 3, q, k)} end}
  rows[#rows + 1] = {"a mask of bools" .. size, function(x, y, z, m)
    return attention(x, y, z, {attn_mask = m})
  end, function()
    local m = moth.rand(2, 1, q, k):gt(0.4)
    m:select(4, 1):fill_(true)
    return {r(2, 3, q, e), r(2, 3, k, e), r(2, 3, k, e), m}
  end}
  rows[#rows + 1] = {"causal" .. size, function(x, y, z) return attention(x, y, z,
    {is_causal = true}) end,
    function() return {r(2, 3, q, e), r(2, 3, k, e), r(2, 3, k, e + 1)} end}
  rows[#rows + 1] = {"grouped heads" .. size, function(x, y, z) return attention(x, y, z,
    {enable_gqa = true}) end,
    function() return {r(2, 4, q, e), r(2, 2, k, e), r(2, 2, k, e)} end}
end
claims("attention", rows)

local function layer(make, ...)
  local given = {...}
  return function(...)
    local list = {...}
    moth.manual_seed(4)
    local net = make(unpack(given)):to(list[1].dtype)
    for _, p in ipairs(net:parameters()) do p:requires_grad_(false) end
    if #list == 1 then return net(list[1]) end
    if #list == 2 then return net(list[1], list[2]) end
    return net(list[1], {list[2], list[3]})
  end
end
claims("a recurrent layer", {
  {"RNN", layer(nn.RNN, 5, 7), function() return {r(6, 3, 5), r(1, 3, 7)} end},
  {"RNN of relu, two layers", layer(nn.RNN, 5, 7, {num_layers = 2, nonlinearity = "relu"}),
    function() return {r(6, 3, 5), r(2, 3, 7)} end},
  {"GRU both ways", layer(nn.GRU, 5, 17, {bidirectional = true}),
    function() return {r(6, 3, 5), r(2, 3, 17)} end},
  {"GRU without bias, batch first", layer(nn.GRU, 5, 7, {bias = false, batch_first = true,
    num_layers = 2}),
    function() return {r(3, 6, 5), r(2, 3, 7)} end},
  {"LSTM", layer(nn.LSTM, 5, 16), function() return {r(6, 3, 5), r(1, 3, 16), r(1, 3, 16)} end},
  {"LSTM both ways, two layers", layer(nn.LSTM, 5, 7, {bidirectional = true, num_layers = 2}),
    function() return {r(6, 3, 5), r(4, 3, 7), r(4, 3, 7)} end},
  {"LSTM with projections", layer(nn.LSTM, 5, 9, {proj_size = 4}),
    function() return {r(6, 3, 5), r(1, 3, 4), r(1, 3, 9)} end},
  {"LSTM without a batch", layer(nn.LSTM, 5, 7), function() return {r(6, 5)} end},
  {"RNNCell", layer(nn.RNNCell, 5, 7), function() return {r(3, 5), r(3, 7)} end},
  {"GRUCell", layer(nn.GRUCell, 5, 17), function() return {r(3, 5), r(3, 17)} end},
  {"LSTMCell", layer(nn.LSTMCell, 5, 17), function() return {r(3, 5), r(3, 17), r(3, 17)} end},
})

-- Matrices far from singular, and symmetric ones.
local function matrix(n, ...) return r(...) * 0.3 + moth.diag(moth.arange(1, n + 1):double()) end
local function positive(n, ...)
  local x = matrix(n, ...)
  return x:matmul(x:transpose(-1, -2)) * 0.3 + moth.eye(n, {dtype = moth.float64})
end
local algebra = {}
for _, n in ipairs {1, 2, 3, 5, 9, 17, 33} do
  local function add(name, f, make, options)
    options = options or {}
    options.half, options.single = false, options.single or 1e-3
    algebra[#algebra + 1] = {name .. " of " .. n, f, make, options}
  end
  local function one() return {matrix(n, 2, n, n)} end
  local function spd() return {positive(n, 2, n, n)} end
  local function sym(f) return function(x) return f((x + x:transpose(-1, -2)) / 2) end end
  add("inv", linalg.inv, one)
  if n < 17 then add("det", linalg.det, one) end
  add("slogdet", function(x) return linalg.slogdet(x) end, one)
  add("solve", linalg.solve, function() return {matrix(n, 2, n, n), r(2, n, 3)} end)
  add("solve of a vector", linalg.solve, function() return {matrix(n, n, n), r(n)} end)
  add("solve_triangular", function(x, b) return linalg.solve_triangular(x, b, {upper = true}) end,
    function() return {matrix(n, 2, n, n), r(2, n, 3)} end)
  add("solve_triangular from the right", function(x, b)
    return linalg.solve_triangular(x, b, {upper = false, left = false, unitriangular = true})
  end, function() return {matrix(n, 2, n, n) * 0.5, r(2, 4, n)} end)
  add("cholesky", sym(linalg.cholesky), spd)
  add("cholesky_inverse", function(x) return moth.cholesky_inverse(x:tril()) end, one)
  add("cholesky_solve", function(b, x) return moth.cholesky_solve(b, x:tril()) end,
    function() return {r(2, n, 3), matrix(n, 2, n, n)} end)
  add("qr", function(x) return linalg.qr(x) end,
    function() return {r(2, n + 2, n)} end, {single = 1e-2})
  add("eigvalsh", sym(linalg.eigvalsh), one)
  add("svdvals", linalg.svdvals, function() return {matrix(n, 2, n, n)} end)
  add("pinv", function(x) return linalg.pinv(x) end, function() return {r(2, n + 2, n)} end)
  add("matrix_exp", linalg.matrix_exp, function() return {r(2, n, n) * 0.4} end)
  add("matrix_norm nuc", function(x) return linalg.matrix_norm(x, "nuc") end, one)
  add("matrix_norm 2", function(x) return linalg.matrix_norm(x, 2) end, one)
  add("lu", function(x) local _, l, v = linalg.lu(x) return l, v end, one)
  add("householder_product", function(x, t) return linalg.householder_product(x:tril(-1), t) end,
    function() return {r(2, n + 1, n), r(2, n)} end)
end
claims("linear algebra", algebra)

local I = moth.tensor({{2, 5, 2, 1}, {4, 4, 3, 6}, {1, 1, 1, 1}}, {dtype = moth.int64})
claims("indexing", {
  {"gather", function(x, i) return x:gather(2, i) end,
    function() return {r(3, 7), ints(7, 3, 19)} end},
  {"gather, first dim of 3", function(x, i) return x:gather(1, i) end,
    function() return {r(5, 7, 3), ints(5, 9, 4, 2)} end},
  {"index_select", function(x, i) return x:index_select(2, i) end,
    function() return {r(3, 7, 5), ints(7, 19)} end},
  {"take", function(x, i) return x:take(i) end, function() return {r(3, 7), ints(21, 4, 9)} end},
  {"take_along_dim", function(x, i) return moth.take_along_dim(x, i, 2) end,
    function() return {r(3, 7), ints(7, 3, 5)} end},
  {"scatter", function(x, y) return x:scatter(2, moth.tensor({{2, 5, 1}, {4, 7, 3}},
    {dtype = moth.int64}), y) end,
    function() return {r(3, 7), r(2, 3)} end},
  {"scatter_add", function(x, y) return x:scatter_add(2, I, y) end,
    function() return {r(3, 7), r(3, 4)} end},
  {"scatter_add, first dim", function(x, y, i) return x:scatter_add(1, i, y) end,
    function() return {r(5, 19), r(33, 19), ints(5, 33, 19)} end},
  {"index_add", function(x, y, i) return x:index_add(1, i, y, {alpha = 1.5}) end,
    function() return {r(5, 17), r(9, 17), ints(5, 9)} end},
  {"index_add, last dim", function(x, y, i) return x:index_add(2, i, y) end,
    function() return {r(5, 17), r(5, 33), ints(17, 33)} end},
  {"index_copy", function(x, y) return x:index_copy(2, moth.tensor({4, 1, 6},
    {dtype = moth.int64}), y) end,
    function() return {r(5, 7, 3), r(5, 3, 3)} end},
  {"index_fill", function(x) return x:index_fill(2, moth.tensor({4, 1}, {dtype = moth.int64}),
    3) end,
    function() return {r(5, 7)} end},
  {"index_put, accumulated", function(x, y, i, j) return x:index_put({i, j}, y,
    {accumulate = true}) end,
    function() return {r(5, 7), r(33), ints(5, 33), ints(7, 33)} end},
  {"masked_select", function(x) return x:masked_select((moth.arange(0, 35):view(5,
    7) % 3):eq(0)) end,
    function() return {r(5, 7)} end},
  {"masked_fill", function(x) return x:masked_fill((moth.arange(0, 35):view(5, 7) % 3):eq(0),
    2) end,
    function() return {r(5, 7)} end},
  {"masked_scatter", function(x, y) return x:masked_scatter((moth.arange(0, 35):view(5,
    7) % 3):eq(0), y) end,
    function() return {r(5, 7), r(13)} end},
  {"where", function(x, y) return moth.where((moth.arange(0, 35):view(5, 7) % 3):eq(0), x, y) end,
    function() return {r(5, 7), r(7)} end},
  {"embedding", function(w, i) return F.embedding(i, w, {padding_idx = 3}) end,
    function() return {r(9, 17), ints(9, 4, 5)} end, {smooth = false}},
  {"embedding, scaled", function(w, i) return F.embedding(i, w, {scale_grad_by_freq = true}) end,
    function() return {r(9, 17), ints(9, 4, 5)} end, {smooth = false}},
  {"embedding_bag, sum", function(w, i, p) return F.embedding_bag(i, w, {mode = "sum",
    per_sample_weights = p}) end,
    function() return {r(9, 17), ints(9, 4, 5), r(4, 5)} end},
  {"embedding_bag, mean", function(w, i) return F.embedding_bag(i, w, {mode = "mean",
    padding_idx = 2}) end,
    function() return {r(9, 17), ints(9, 4, 5)} end},
  {"embedding_bag of one number", function(w, i) return F.embedding_bag(i, w, {mode = "sum"}) end,
    function() return {r(9, 1), ints(9, 1, 5)} end},
  {"embedding_bag with offsets", function(w, i, p)
    return F.embedding_bag(i, w, {offsets = moth.tensor({0, 3, 3, 4}, {dtype = moth.int64}),
      mode = "sum", per_sample_weights = p})
  end, function() return {r(9, 17), ints(9, 12), r(12)} end},
  {"embedding_bag, max", function(w, i) return F.embedding_bag(i, w, {mode = "max"}) end,
    function() return {apart(9, 17), ints(9, 4, 5)} end},
  {"tril", function(x) return x:tril(-1) end, function() return {r(2, 17, 9)} end},
  {"triu", function(x) return x:triu(2) end, function() return {r(2, 9, 17)} end},
  {"diagonal", function(x) return x:diagonal(1, 3, 2) end, function() return {r(7, 5, 9)} end},
  {"diag_embed", function(x) return moth.diag_embed(x, {offset = -2}) end,
    function() return {r(3, 9)} end},
  {"unfold", function(x) return x:unfold(2, 5, 3) end, function() return {r(3, 19, 2)} end},
  {"roll", function(x) return x:roll({3, -2}, {1, 2}) end, function() return {r(5, 9)} end},
  {"flip", function(x) return x:flip(1, 3) end, function() return {r(5, 3, 9)} end},
  {"rot90", function(x) return moth.rot90(x, 3) end, function() return {r(5, 9)} end},
  {"repeat", function(x) return x["repeat"](x, 2, 3, 1) end, function() return {r(5, 9)} end},
  {"repeat_interleave", function(x) return x:repeat_interleave(3, 2) end,
    function() return {r(5, 9)} end},
  {"repeat_interleave by counts", function(x)
    return x:repeat_interleave(moth.tensor({2, 0, 3, 1}, {dtype = moth.int64}), 1)
  end, function() return {r(4, 9)} end},
  {"cat", function(...) return moth.cat({...}, 2) end,
    function() return {r(3, 4, 5), r(3, 1, 5), r(3, 9, 5)} end},
  {"stack", function(...) return moth.stack({...}, 2) end,
    function() return {r(3, 5), r(3, 5), r(3, 5)} end},
  {"split", function(x) return unpack(x:split({2, 5, 4}, 2)) end,
    function() return {r(3, 11, 2)} end},
  {"as_strided", function(x) return x:contiguous():as_strided({3, 4, 2}, {2, 3, 1}, 1) end,
    function() return {r(5, 7)} end, {layouts = false}},
  {"diff", function(x) return x:diff {n = 2} end, function() return {r(5, 17)} end},
  {"trapezoid", function(x, y) return moth.trapezoid(x, y) end,
    function() return {r(5, 17), r(17)} end},
  {"cumulative_trapezoid", function(x) return moth.cumulative_trapezoid(x, {dx = 0.3}) end,
    function() return {r(5, 17)} end},
})

local scans = {}
for _, n in ipairs {1, 2, 7, 8, 9, 17, 33, 70} do
  local function add(name, f, make, options)
    scans[#scans + 1] = {name .. " of " .. n, f, make or function() return {r(5, n)} end, options}
  end
  local function of_apart() return {apart(5, n)} end
  add("cumsum", function(x) return x:cumsum(2) end)
  add("cumsum, first dim", function(x) return x:t():cumsum(1) end)
  add("cumprod", function(x) return x:cumprod(2) end, function() return {u(5, n) + 0.6} end)
  add("logcumsumexp", function(x) return x:logcumsumexp(2) end)
  add("cummax", function(x) return (x:cummax(2)) end, of_apart)
  add("cummin", function(x) return (x:cummin(2)) end, of_apart)
  add("softmax", function(x) return x:softmax(2) end)
  add("log_softmax", function(x) return x:log_softmax(2) end)
  add("softmax, first dim", function(x) return x:t():softmax(1) end)
  add("log_softmax, first dim", function(x) return x:t():log_softmax(1) end)
  add("logsumexp", function(x) return x:logsumexp(2) end)
  add("prod", function(x) return x:prod(2) end, function() return {u(5, n) + 0.6} end)
  add("prod of all", function(x) return x:prod() end, function() return {u(2, n) + 0.6} end)
  add("max", function(x) return (x:max(2)) end, of_apart)
  add("amin", function(x) return x:amin(2) end, of_apart)
  add("median", function(x) return (x:median(2)) end, of_apart)
  add("quantile", function(x) return x:quantile(0.4, 2) end, of_apart, {half = false})
  add("sort", function(x) return (x:sort(2, true)) end, of_apart)
  add("topk", function(x) return (x:topk(math.ceil(n / 2), 2)) end, of_apart)
  add("kthvalue", function(x) return (x:kthvalue(math.ceil(n / 2), 2)) end, of_apart)
  add("var", function(x) return x:var(2, {correction = 0}) end)
  add("std", function(x) return x:std(2, {correction = -1}) end, nil, {smooth = n > 1})
  add("norm 2", function(x) return linalg.vector_norm(x, 2, 2) end)
  add("norm 3", function(x) return linalg.vector_norm(x, 3, 2) end)
  add("norm inf", function(x) return linalg.vector_norm(x, 1 / 0, 2) end, of_apart)
  add("sum and mean", function(x) return x:sum(2), x:mean(1), x:mean(), x:sum() end)
end
claims("a function of rows", scans)

local sizes = {}
for _, mode in ipairs {"nearest", "nearest-exact", "bilinear", "bicubic", "area"} do
  for _, size in ipairs {{3, 17}, {12, 8}, {9, 9}, {1, 20}} do
    sizes[#sizes + 1] = {("%s to %dx%d"):format(mode, size[1], size[2]), function(x)
      return F.interpolate(x, {size = size, mode = mode})
    end, function() return {r(2, 3, 7, 9)} end}
    if mode:find "^bi" then
      sizes[#sizes + 1] = {("%s to %dx%d, corners"):format(mode, size[1], size[2]), function(x)
        return F.interpolate(x, {size = size, mode = mode, align_corners = true})
      end, function() return {r(2, 3, 7, 9)} end}
      sizes[#sizes + 1] = {("%s to %dx%d, antialias"):format(mode, size[1], size[2]), function(x)
        return F.interpolate(x, {size = size, mode = mode, antialias = true})
      end, function() return {r(2, 3, 7, 9)} end}
    end
  end
end
sizes[#sizes + 1] = {"linear", function(x) return F.interpolate(x, {scale_factor = 2.5,
  mode = "linear"}) end,
  function() return {r(2, 3, 7)} end}
sizes[#sizes + 1] = {"trilinear", function(x) return F.interpolate(x, {size = {5, 3, 8},
  mode = "trilinear"}) end,
  function() return {r(2, 3, 4, 5, 6)} end}
sizes[#sizes + 1] = {"nearest of volumes", function(x) return F.interpolate(x, {scale_factor = {2,
  1.5, 0.5}}) end,
  function() return {r(2, 3, 4, 5, 6)} end}
for _, mode in ipairs {"constant", "reflect", "replicate", "circular"} do
  sizes[#sizes + 1] = {"pad1d " .. mode, function(x) return F.pad(x, {3, 2}, {mode = mode}) end,
    function() return {r(2, 3, 17)} end}
  sizes[#sizes + 1] = {"pad2d " .. mode, function(x) return F.pad(x, {3, 2, 1, 4},
    {mode = mode}) end,
    function() return {r(2, 3, 5, 9)} end}
  sizes[#sizes + 1] = {"pad3d " .. mode, function(x) return F.pad(x, {1, 2, 0, 1, 3, 1},
    {mode = mode}) end,
    function() return {r(2, 3, 4, 5, 6)} end}
end
sizes[#sizes + 1] = {"pad, cut", function(x) return F.pad(x, {-1, 2, 3, -2}, {value = 1.5}) end,
  function() return {r(2, 3, 5, 9)} end}
for _, mode in ipairs {"bilinear", "nearest", "bicubic"} do
  for _, padding in ipairs {"zeros", "border", "reflection"} do
    for _, corners in ipairs {true, false} do
      sizes[#sizes + 1] = {("grid_sample %s, %s, %s"):format(mode, padding, tostring(corners)),
        function(x, g)
        return F.grid_sample(x, g, {mode = mode, padding_mode = padding, align_corners = corners})
      end, function() return {r(2, 3, 5, 7), r(2, 4, 9, 2) * 0.8} end, {half = false,
        smooth = mode ~= "nearest",
        single = 1e-3}}
    end
  end
end
sizes[#sizes + 1] = {"grid_sample of volumes", function(x, g) return F.grid_sample(x, g,
  {align_corners = false}) end,
  function() return {r(2, 3, 4, 5, 3), r(2, 2, 3, 4, 3) * 0.8} end, {half = false, single = 1e-3}}
sizes[#sizes + 1] = {"affine_grid", function(x) return F.affine_grid(x, {2, 3, 5, 7},
  {align_corners = true}) end,
  function() return {r(2, 2, 3)} end}
sizes[#sizes + 1] = {"unfold", function(x) return F.unfold(x, {2, 3}, {stride = {2, 1},
  padding = {1, 0}, dilation = {1, 2}}) end,
  function() return {r(2, 3, 7, 9)} end}
sizes[#sizes + 1] = {"fold", function(x) return F.fold(x, {7, 9}, {2, 3}, {stride = {2, 1},
  padding = {1, 0}, dilation = {1, 2}}) end,
  function() return {r(2, 18, 20)} end}
sizes[#sizes + 1] = {"pixel_shuffle", function(x) return F.pixel_shuffle(x, 3) end,
  function() return {r(2, 18, 5, 7)} end}
sizes[#sizes + 1] = {"pixel_unshuffle", function(x) return F.pixel_unshuffle(x, 3) end,
  function() return {r(2, 2, 6, 9)} end}
sizes[#sizes + 1] = {"channel_shuffle", function(x) return F.channel_shuffle(x, 3) end,
  function() return {r(2, 6, 5, 7)} end}
claims("a picture", sizes)
