-- Cases: vmap of functions in their rare forms (other ranks, weights of each sample, ignored
-- classes, lists of positions) equals a loop over the samples.

local moth = require "moth"
local raised = require "spec.support.batching"
local flat = require("spec.support.registry").flat

local F = moth.nn.functional
local S = 4 -- samples
local shared, i64 = moth.none, {dtype = moth.int64}

local function r(...) return moth.rand(...) end
local function at(n, ...) return moth.randint(1, n + 1, {...}, i64) end

-- name, function, its arguments: {tensor with the samples first} or {tensor, shared}
local ROWS = {
  {"t of a matrix", function(x) return x:t() end, {r(S, 2, 3)}},
  {"t of a vector", function(x) return x:t() end, {r(S, 3)}},
  {"sum over all, and its gradient",
    function(x) return moth.func.grad(function(y) return y:sum():sin() end)(x) end, {r(S, 2, 3)}},
  {"sum of a number, and its gradient",
    function(x) return moth.func.grad(function(y) return y:sum():sin() end)(x) end, {r(S)}},
  {"mean over a dim, and its gradient",
    function(x) return moth.func.grad(function(y) return (y:mean(-1) ^ 2):sum() end)(x) end,
      {r(S, 2, 3)}},
  {"split", function(x) return x:split(2, -1) end, {r(S, 3, 4)}},
  {"split of unequal pieces", function(x) return x:split({1, 3}, 2) end, {r(S, 3, 4)}},
  {"roll without dims", function(x) return x:roll(2) end, {r(S, 2, 3)}},
  {"roll with dims", function(x) return x:roll({1, -1}, {1, -1}) end, {r(S, 2, 3)}},
  {"tile to more dims", function(x) return x:tile(2, 1, 3) end, {r(S, 2, 3)}},
  {"repeat to more dims", function(x) return x["repeat"](x, 2, 1, 3) end, {r(S, 3)}},
  {"cat of a shared tensor", function(x, y) return moth.cat({x, y}, -1) end, {r(S, 2, 3)},
    {r(2, 1), shared}},
  {"stack of a shared tensor", function(x, y) return moth.stack({x, y}, -1) end, {r(S, 2)},
    {r(2), shared}},
  {"matmul of vector and matrix", moth.matmul, {r(S, 3)}, {r(3, 2), shared}},
  {"matmul of shared vector", moth.matmul, {r(3), shared}, {r(S, 3, 2)}},
  {"matmul of matrix and vector", moth.matmul, {r(S, 2, 3)}, {r(S, 3)}},
  {"matmul of two vectors", moth.matmul, {r(S, 3)}, {r(S, 3)}},
  {"matmul of a batch and a vector", moth.matmul, {r(S, 5, 2, 3)}, {r(S, 3)}},
  {"matmul of a batch and a matrix", moth.matmul, {r(S, 5, 2, 3)}, {r(S, 3, 4)}},
  {"mv", moth.mv, {r(S, 2, 3)}, {r(3), shared}}, {"dot", moth.dot, {r(S, 3)}, {r(3), shared}},
  {"vdot", moth.vdot, {r(3), shared}, {r(S, 3)}}, {"outer", moth.outer, {r(S, 3)}, {r(2), shared}},
  {"outer of a shared vector", moth.outer, {r(3), shared}, {r(S, 2)}},
  {"addmm", function(x, a, b) return moth.addmm(x, a, b, {beta = 2, alpha = 3}) end, {r(S, 2, 4)},
    {r(S, 2, 3)}, {r(3, 4), shared}},
  {"addmm of beta 0", function(x, a, b) return moth.addmm(x, a, b, {beta = 0}) end, {r(S, 2, 4)},
    {r(2, 3), shared}, {r(S, 3, 4)}},
  {"addmm of shared factors", moth.addmm, {r(S, 2, 4)}, {r(2, 3), shared}, {r(3, 4), shared}},
  {"addmm of shared factors and beta 0", function(x, a, b) return moth.addmm(x, a, b,
    {beta = 0}) end, {r(S, 2, 4)}, {r(2, 3), shared}, {r(3, 4), shared}},
  {"addmv", function(x, a, b) return moth.addmv(x, a, b, {alpha = -1}) end, {r(2), shared},
    {r(S, 2, 3)}, {r(S, 3)}},
  {"baddbmm", moth.baddbmm, {r(4), shared}, {r(S, 5, 2, 3)}, {r(S, 5, 3, 4)}},
  {"linear with weights of each sample", F.linear, {r(5, 3), shared}, {r(S, 2, 3)}, {r(S, 2)}},
  {"linear with a bias of each sample", F.linear, {r(S, 5, 3)}, {r(2, 3), shared}, {r(S, 2)}},
  {"linear of a vector with weights of each sample", F.linear, {r(S, 3)}, {r(S, 2, 3)},
    {r(2), shared}},
  {"gather", function(x, i) return x:gather(-1, i) end, {r(S, 2, 5)}, {at(5, S, 2, 3)}},
  {"gather at shared positions, and its gradient",
    function(x, i) return moth.func.grad(function(y) return (y:gather(1, i) ^ 2):sum() end)(x) end,
      {r(S, 5, 2)}, {at(5, 3, 2), shared}},
  {"scatter", function(x, i, v) return x:scatter(-1, i, v) end, {r(S, 2, 5)}, {at(5, 2, 1), shared},
    {r(S, 2, 1)}},
  {"scatter of a number", function(x, i) return x:scatter(1, i, 7) end, {r(S, 5, 2)},
    {at(5, S, 1, 2)}},
  {"scatter_add", function(x, i, v) return x:scatter_add(2, i, v) end, {r(2, 5), shared},
    {at(5, S, 2, 3)}, {r(S, 2, 3)}},
  {"scatter_reduce", function(x, i, v) return x:scatter_reduce(2, i, v, "amax") end, {r(S, 2, 5)},
    {at(5, S, 2, 3)}, {r(S, 2, 3)}},
  {"take_along_dim", function(x, i) return x:take_along_dim(i, -1) end, {r(S, 2, 5)},
    {at(5, S, 2, 1)}},
  {"take_along_dim of flat positions", function(x, i) return x:take_along_dim(i) end, {r(S, 2, 5)},
    {at(10, S, 3)}},
  {"index_select", function(x, i) return x:index_select(-1, i) end, {r(S, 2, 5)},
    {at(5, 3), shared}},
  {"index_select at positions of each sample", function(x, i) return x:index_select(-2, i) end,
    {r(S, 5, 2)}, {at(5, S, 3)}},
  {"index_select of shared rows", function(x, i) return x:index_select(1, i) end, {r(5, 2), shared},
    {at(5, S, 3)}},
  {"embedding", F.embedding, {at(5, S, 2, 3)}, {r(5, 4), shared}},
  {"embedding of weights of each sample", F.embedding, {at(5, 2, 3), shared}, {r(S, 5, 4)}},
  {"embedding with padding", function(i, w) return F.embedding(i, w, 1) end, {at(5, S, 3)},
    {r(S, 5, 4)}},
  {"embedding of largest norm", function(i, w) return F.embedding(i, w:clone(), {max_norm = 1}) end,
    {at(5, S, 3)}, {r(5, 4), shared}},
  {"positions of one dimension", function(x, i) return x[{i}] end, {r(S, 5, 2)},
    {at(5, 3), shared}},
  {"positions of each sample", function(x, i) return x[{i}] end, {r(S, 5, 2)}, {at(5, S, 3)}},
  {"positions of two dimensions", function(x, i, j) return x[{i, j}] end, {r(S, 5, 4, 2)},
    {at(5, S, 3)}, {at(4, 3), shared}},
  {"positions of the first and the last dimension", function(x, i, j) return x[{i, {}, j}] end,
    {r(S, 5, 2, 4)}, {at(5, 3), shared}, {at(4, 3), shared}},
  {"a row of each sample", function(x, i) return x[{i, 2}] end, {r(S, 5, 2)}, {at(5, S, 3)}},
  {"avg_pool1d without a batch", function(x) return F.avg_pool1d(x, 2) end, {r(S, 3, 6)}},
  {"avg_pool2d", function(x) return F.avg_pool2d(x, 2) end, {r(S, 2, 3, 4, 4)}},
  {"max_pool2d without a batch", function(x) return F.max_pool2d(x, 2) end, {r(S, 3, 4, 4)}},
  {"max_pool2d with indices", function(x) return F.max_pool2d(x, 2, {return_indices = true}) end,
    {r(S, 2, 3, 4, 4)}},
  {"adaptive_avg_pool3d", function(x) return F.adaptive_avg_pool3d(x, 2) end,
    {r(S, 1, 2, 4, 4, 4)}},
  {"conv1d", F.conv1d, {r(S, 2, 3, 6)}, {r(4, 3, 2), shared}, {r(4), shared}},
  {"conv1d without a batch", F.conv1d, {r(S, 3, 6)}, {r(4, 3, 2), shared}},
  {"conv2d with weights of each sample", F.conv2d, {r(2, 3, 5, 5), shared}, {r(S, 4, 3, 2, 2)},
    {r(S, 4)}},
  {"conv2d with weights of each sample, without a batch", F.conv2d, {r(S, 3, 5, 5)},
    {r(S, 4, 3, 2, 2)}},
  {"conv2d in groups with weights of each sample", function(x, w, b) return F.conv2d(x, w, b,
    {groups = 2, stride = 2}) end,
    {r(S, 2, 4, 5, 5)}, {r(S, 6, 2, 2, 2)}, {r(6), shared}},
  {"conv_transpose2d with weights of each sample", F.conv_transpose2d, {r(S, 2, 3, 4, 4)},
    {r(S, 3, 5, 2, 2)}, {r(5), shared}},
  {"conv_transpose1d in groups", function(x, w) return F.conv_transpose1d(x, w, {groups = 2}) end,
    {r(S, 2, 4, 5)}, {r(S, 4, 3, 2)}},
  {"layer_norm with weights of each sample", function(x, w, b) return F.layer_norm(x, {3}, w,
    b) end, {r(S, 2, 3)}, {r(S, 3)}, {r(3), shared}},
  {"layer_norm with a bias of each sample", function(x, w, b) return F.layer_norm(x, {3}, w, b) end,
    {r(S, 2, 3)}, {r(3), shared}, {r(S, 3)}},
  {"layer_norm of a shared input", function(x, w) return F.layer_norm(x, {3}, w) end,
    {r(2, 3), shared}, {r(S, 3)}},
  {"rms_norm with weights of each sample", function(x, w) return F.rms_norm(x, {3}, w) end,
    {r(S, 2, 3)}, {r(S, 3)}},
  {"group_norm", function(x, w) return F.group_norm(x, 2, w) end, {r(S, 3, 4, 2)}, {r(4), shared}},
  {"batch_norm in evaluation", function(x, m, v) return F.batch_norm(x, m, v) end, {r(S, 3, 4)},
    {r(4), shared}, {r(4) + 1, shared}},
  {"batch_norm in training", function(x) return F.batch_norm(x, {training = true}) end,
    {r(S, 3, 4)}},
  {"attention", F.scaled_dot_product_attention, {r(S, 2, 3, 4)}, {r(S, 2, 5, 4)},
    {r(2, 5, 4), shared}},
  {"attention with a mask", F.scaled_dot_product_attention, {r(S, 2, 3, 4)}, {r(2, 5, 4), shared},
    {r(S, 2, 5, 4)}, {r(S, 3, 5)}},
  {"attention with a shared mask", F.scaled_dot_product_attention, {r(S, 2, 3, 4)}, {r(S, 2, 5, 4)},
    {r(S, 2, 5, 4)}, {r(3, 5), shared}},
  {"attention with a mask of more dims", F.scaled_dot_product_attention, {r(S, 3, 4)}, {r(S, 5, 4)},
    {r(S, 5, 4)}, {r(2, 3, 5), shared}},
  {"interpolate", function(x) return F.interpolate(x, {scale_factor = 2, mode = "bilinear"}) end,
    {r(S, 1, 2, 3, 3)}},
  {"interpolate of a row", function(x) return F.interpolate(x, {size = 7}) end, {r(S, 1, 2, 3)}},
  {"mse_loss", F.mse_loss, {r(S, 2, 3)}, {r(2, 3), shared}},
  {"mse_loss, sum", function(x, y) return F.mse_loss(x, y, {reduction = "sum"}) end, {r(S, 2, 3)},
    {r(S, 2, 3)}},
  {"mse_loss, none", function(x, y) return F.mse_loss(x, y, {reduction = "none"}) end, {r(S, 2, 3)},
    {r(S, 2, 3)}},
  {"binary_cross_entropy with weights", function(x, y, w) return F.binary_cross_entropy(x, y,
    w) end, {r(S, 2, 3)}, {r(S, 2, 3)}, {r(S, 3)}},
  {"binary_cross_entropy_with_logits",
    function(x, y, w) return F.binary_cross_entropy_with_logits(x, y, {pos_weight = w}) end,
    {r(S, 2, 3)}, {r(S, 2, 3)}, {r(3), shared}},
  {"kl_div, batchmean", function(x, y) return F.kl_div(x:log(), y, {reduction = "batchmean"}) end,
    {r(S, 2, 3) + 0.1}, {r(S, 2, 3) + 0.1}},
  {"kl_div, sum", function(x, y) return F.kl_div(x:log(), y, {reduction = "sum"}) end,
    {r(S, 2, 3) + 0.1}, {r(2, 3) + 0.1, shared}},
  {"cross_entropy", F.cross_entropy, {r(S, 5, 3)}, {at(3, S, 5)}},
  {"cross_entropy of one row", F.cross_entropy, {r(S, 3)}, {at(3, S)}},
  {"cross_entropy, sum", function(x, y) return F.cross_entropy(x, y, {reduction = "sum"}) end,
    {r(S, 5, 3)}, {at(3, 5), shared}},
  {"cross_entropy, none", function(x, y) return F.cross_entropy(x, y, {reduction = "none"}) end,
    {r(5, 3), shared}, {at(3, S, 5)}},
  {"cross_entropy with ignored classes", function(x, y) return F.cross_entropy(x, y,
    {ignore_index = 2}) end, {r(S, 5, 3)}, {at(3, S, 5)}},
  {"cross_entropy with weights", function(x, y, w) return F.cross_entropy(x, y, w) end,
    {r(S, 5, 3)}, {at(3, S, 5)}, {r(3), shared}},
  {"cross_entropy with weights, sum", function(x, y, w) return F.cross_entropy(x, y, w,
    {reduction = "sum"}) end, {r(S, 5, 3)}, {at(3, S, 5)}, {r(3), shared}},
  {"cross_entropy of places", F.cross_entropy, {r(S, 2, 3, 4)}, {at(3, S, 2, 4)}},
  {"nll_loss", F.nll_loss, {r(S, 5, 3)}, {at(3, S, 5)}},
  {"pad", function(x) return F.pad(x, {1, 2}) end, {r(S, 2, 3)}},
  {"pad by reflection", function(x) return F.pad(x, {1, 1}, "reflect") end, {r(S, 2, 3)}},
}

describe("vmap", function()
  for _, row in ipairs(ROWS) do
    it("is a loop over the samples: " .. row[1], function()
      local given, dims = {}, {}
      for k = 3, #row do given[k - 2], dims[k - 2] = row[k][1], row[k][2] or 1 end
      local got = flat(moth.vmap(row[2], {in_dims = dims})(unpack(given)))
      for s = 1, S do
        local own = {}
        for k, x in ipairs(given) do own[k] = dims[k] == 1 and x:select(1, s) or x end
        local want = flat(row[2](unpack(own)))
        assert.equal(#want, #got)
        for k, y in ipairs(want) do
          local z = got[k]:select(1, s)
          assert.is_true(z.dtype == y.dtype)
          assert.same({unpack(y.shape)}, {unpack(z.shape)})
          assert.is_true(moth.allclose(z, y, {rtol = 1e-4, atol = 1e-5}))
        end
      end
      assert.same({}, raised())
    end)

    it("has the gradients of a loop: " .. row[1], function()
      local given, dims, floats = {}, {}, {}
      for k = 3, #row do
        given[k - 2], dims[k - 2] = row[k][1], row[k][2] or 1
        if given[k - 2]:is_floating_point() then
          given[k - 2] = given[k - 2]:clone():requires_grad_()
          floats[#floats + 1] = given[k - 2]
        end
      end
      local function total(list)
        local sum = moth.zeros {}
        for k, y in ipairs(list) do
          if y:is_floating_point() then sum = sum + (y * y * k):sum() end
        end
        return sum
      end
      local batch = total(flat(moth.vmap(row[2], {in_dims = dims})(unpack(given))))
      local loop = moth.zeros {}
      for s = 1, S do
        local own = {}
        for k, x in ipairs(given) do own[k] = dims[k] == 1 and x:select(1, s) or x end
        loop = loop + total(flat(row[2](unpack(own))))
      end
      local one = {moth.autograd.grad(batch, floats, {allow_unused = true})}
      local other = {moth.autograd.grad(loop, floats, {allow_unused = true})}
      for k = 1, #floats do
        local a, b = one[k] or moth.zeros_like(floats[k]), other[k] or moth.zeros_like(floats[k])
        assert.is_true(moth.allclose(a, b, {rtol = 1e-3, atol = 1e-4}))
      end
      assert.same({}, raised())
    end)
  end

  it("draws for each sample, or once for all", function()
    local function noise(x) return x + moth.rand(3) end
    local apart = moth.vmap(noise, {randomness = "different"})(moth.zeros(S, 3))
    assert.is_false(moth.equal(apart[1], apart[2]))
    local same = moth.vmap(noise, {randomness = "same"})(moth.zeros(S, 3))
    assert.is_true(moth.equal(same[1], same[2]))
    assert.is_true(same:min():item() >= 0 and apart:max():item() < 1)
    local dropped = moth.vmap(function(x) return F.dropout2d(x, 0.5, true) end,
      {randomness = "different"})(
      moth.ones(S, 1, 50, 2, 2))
    for s = 1, S do -- whole planes
      local planes = dropped[s][1]:flatten(2)
      assert.is_true(moth.equal(planes:amin(2), planes:amax(2)))
    end
    assert.is_false(moth.equal(dropped[1], dropped[2]))
  end)
end)
