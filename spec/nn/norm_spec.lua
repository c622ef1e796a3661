-- Normalization: running statistics, second derivatives, errors, and the layers' buffers.

local moth = require "moth"
local lib = require "moth.binding.lib"

local nn, F = moth.nn, moth.nn.functional

local function list(x) return x:flatten():tolist() end

describe("batch_norm", function()
  local x = moth.tensor{{1, 2}, {3, 4}, {5, 12}}

  it("updates the running statistics in place, with the unbiased variance", function()
    local mean, var = moth.zeros(2), moth.ones(2)
    F.batch_norm(x, mean, var, {training = true, momentum = 0.5})
    assert.close({1.5, 3}, list(mean))
    assert.close({2.5, 14.5}, list(var))
  end)

  it("does not change them outside training, and uses them", function()
    local mean, var = moth.tensor{1, 2}, moth.tensor{4, 1}
    local y = F.batch_norm(x, mean, var, {eps = 0})
    assert.close({0, 0, 1, 2, 2, 10}, list(y))
    assert.same({1, 2}, list(mean))
  end)

  it("records one node", function()
    local y = F.batch_norm(x:clone():requires_grad_(), {training = true})
    assert.matches("ChannelNorm", tostring(y))
  end)

  it("has the same gradient in one op as written with ops", function()
    local a = moth.randn(4, 3, 5, {dtype = moth.float64}):requires_grad_()
    local w = moth.randn(3, {dtype = moth.float64}):requires_grad_()
    local function input_gradients(create)
      local y = F.batch_norm(a, {weight = w, training = true})
      return {moth.autograd.grad((y * y * y):sum(), {a, w}, {create_graph = create})}
    end
    local p, q = input_gradients(false), input_gradients(true)
    for i = 1, 2 do assert.close(list(p[i]), list(q[i]), 1e-12) end
  end)

  it("has a weight without a bias if a layer is so configured", function()
    local images = moth.randn(2, 4, 3, 3)
    for _, made in ipairs {nn.BatchNorm2d {4, bias = false}, nn.GroupNorm {2, 4, bias = false},
      nn.InstanceNorm2d {4, affine = true, bias = false}, nn.LayerNorm {3, bias = false}} do
      assert.is_nil(made.bias)
      assert.equal(1, #made:parameters())
      made.weight.data:fill_(2)
      local y = made(images)
      assert.is_true(y:mean():abs():item() < 1e-5 and math.abs(y:std():item() - 2) < 0.2)
    end
  end)

  it("raises for one value per channel, one of the two statistics, and the wrong number", function()
    assert.has_error_like(function() F.batch_norm(moth.ones(1, 3), {training = true}) end,
      "'input' to 'batch_norm'.*more than one value per channel")
    assert.has_error_like(function() F.batch_norm(x, moth.zeros(2)) end, "'running_var'")
    assert.has_error_like(function() F.batch_norm(x) end, "'running_mean'.*evaluation mode")
    local mean = moth.zeros(2)
    assert.has_error_like(function()
      F.batch_norm(x, mean, moth.ones(3), {training = true})
    end, "'running_var' to 'batch_norm' %(%(2%) is needed, got f32 %(3%)%)")
    assert.same({0, 0}, list(mean))
  end)

  it("updates both statistics or, if memory runs out, none", function()
    local collect = lib.collect -- a failed allocation is tried again after a collection
    local planes, done = moth.randn(3, 2, 4), 0
    for k = 1, 200 do
      local mean, var = moth.zeros(2), moth.ones(2)
      local norm, input = F.batch_norm, x
      if k % 2 == 0 then norm, input = F.instance_norm, planes end
      lib.collect = function() return false end
      lib.C.moth_fail_allocation(lib.ctx, math.ceil(k / 2))
      local ok = pcall(norm, input, {running_mean = mean, running_var = var,
        [k % 2 == 0 and "use_input_stats" or "training"] = true})
      lib.C.moth_fail_allocation(lib.ctx, 0)
      lib.collect = collect
      if ok then done = done + 1 end
      assert.equal(ok, list(mean)[1] ~= 0 and list(var)[1] ~= 1, "allocation " .. k)
      assert.equal(ok, list(mean)[1] ~= 0 or list(var)[1] ~= 1, "allocation " .. k)
    end
    assert.is_true(done > 10 and done < 190)
  end)

  it("raises for running statistics that need a gradient", function()
    local mean = moth.zeros(2):requires_grad_()
    assert.has_error_like(function()
      F.batch_norm(x, mean, moth.ones(2), {training = true})
    end, "'running_mean'.*requires a gradient")
  end)
end)

describe("layer_norm, rms_norm and group_norm", function()
  it("are 0 for rows of equal numbers", function()
    assert.same({0, 0, 0}, list(F.layer_norm(moth.ones(1, 3), {3})))
    assert.same({0, 0, 0, 0}, list(F.group_norm(moth.ones(1, 4) * 7, 2)))
  end)

  it("keep small deviations from a large mean", function()
    local y = F.layer_norm(moth.tensor{10000, 10001, 10002}, {3})
    assert.close({-1.2247, 0, 1.2247}, list(y), 1e-3)
  end)

  it("compute half types in f32", function()
    local x = moth.tensor{300, -300, 300, -300}:to(moth.float16) -- squares overflow f16
    assert.close({1, -1, 1, -1}, list(F.rms_norm(x, {4})), 1e-3)
    assert.equal(moth.float16, F.layer_norm(x, {4}).dtype)
  end)

  it("name the needed last dimensions of the input", function()
    assert.has_error_like(function() F.layer_norm(moth.ones(2, 3), {4}) end,
      "'normalized_shape' to 'layer_norm' %({4} are not the last sizes of f32 %(2, 3%)%)")
    assert.has_error_like(function() F.group_norm(moth.ones(2, 3), 2) end, "'num_groups'")
    assert.has_error_like(function()
      F.layer_norm(moth.ones(2, 3), {3}, moth.ones(2))
    end, "'weight'.*%(3%) is needed")
  end)
end)

describe("normalising layers", function()
  it("count batches, and average all of them without momentum", function()
    local layer = nn.BatchNorm1d(2, {momentum = moth.none})
    layer(moth.tensor{{1, 1}, {3, 3}})
    layer(moth.tensor{{5, 5}, {7, 7}})
    assert.equal("2LL", tostring(layer.num_batches_tracked:item() + 0LL))
    assert.close({4, 4}, list(layer.running_mean))
  end)

  it("of instances use the unbiased variance of each sample", function()
    local layer = nn.InstanceNorm1d(1, {track_running_stats = true, momentum = 1})
    layer(moth.tensor{{{1, 3}}, {{0, 4}}})
    assert.close({2}, list(layer.running_mean))
    assert.close({5}, list(layer.running_var))
  end)

  it("do not count a batch that raised", function()
    local layer = nn.BatchNorm1d(2)
    assert.is_false(pcall(layer, moth.ones(1, 2)))
    assert.equal(0, tonumber(layer.num_batches_tracked:item()))
  end)

  it("keep PyTorch's names and dtypes in the state", function()
    local state = nn.BatchNorm2d(3):state_dict()
    local names = {}
    for name in pairs(state) do names[#names + 1] = name end
    table.sort(names)
    assert.same({"bias", "num_batches_tracked", "running_mean", "running_var", "weight"}, names)
    assert.equal(moth.int64, state.num_batches_tracked.dtype)
  end)

  it("use the batch in eval mode if nothing is tracked", function()
    local layer = nn.BatchNorm1d(1, {track_running_stats = false, affine = false, eps = 0}):eval()
    assert.close({-1, 1}, list(layer(moth.tensor{{1}, {3}})))
    assert.is_nil(layer.running_mean)
  end)

  it("accept a sample without a batch if PyTorch does", function()
    assert.equal("(3, 5)", tostring(nn.InstanceNorm1d(3)(moth.randn(3, 5)).shape))
    assert.has_error_like(function() nn.BatchNorm2d(3)(moth.randn(3, 5)) end,
      "'input' to 'BatchNorm2d' %(4 dimensions are needed")
  end)
end)

describe("embedding", function()
  it("has no gradient for padding, and adds those of repeated tokens", function()
    local w = moth.ones(3, 2):requires_grad_()
    F.embedding({2, 1, 2}, w, {padding_idx = 1}):sum():backward()
    assert.same({0, 0, 2, 2, 0, 0}, list(w.grad))
  end)

  it("renormalizes long rows in place, for the tokens in its input", function()
    local w = moth.tensor{{3, 4}, {6, 8}}
    local y = F.embedding({1}, w, {max_norm = 1})
    assert.close({0.6, 0.8}, list(y))
    assert.close({0.6, 0.8, 6, 8}, list(w))
  end)

  it("renormalizes no row if the call raises", function()
    local w = moth.tensor{{3, 4}, {6, 8}}
    assert.has_error_like(function()
      F.embedding({1}, w, {max_norm = 1, padding_idx = 9})
    end, "'padding_idx' to 'embedding'")
    assert.same({3, 4, 6, 8}, list(w))
  end)

  it("names the token and the number of rows", function()
    local layer = nn.Embedding(3, 2, {padding_idx = -1})
    assert.equal(3, layer.padding_idx)
    assert.same({0, 0}, list(layer({3})))
    assert.has_error_like(function() layer({4}) end, "token 4 is out of range: there are 3")
    assert.has_error_like(function() nn.Embedding(3, 2, 4) end, "'padding_idx'")
  end)

  it("accepts existing vectors", function()
    local vectors = moth.tensor{{1, 2}, {3, 4}}
    local bag = nn.EmbeddingBag.from_pretrained(vectors, {mode = "sum", padding_idx = 1})
    assert.same("sum", bag.mode)
    assert.is_false(bag.weight.requires_grad)
    assert.same(vectors[2]:tolist(), bag(moth.tensor {{1LL, 2LL}})[1]:tolist())
    assert.is_true(nn.EmbeddingBag:from_pretrained(vectors, false).weight.requires_grad)
    local layer = nn.Embedding.from_pretrained(vectors)
    assert.is_false(layer.weight.requires_grad)
    assert.same({3, 4}, list(layer({2})))
    assert.is_true(nn.Embedding.from_pretrained(vectors, false).weight.requires_grad)
  end)
end)
