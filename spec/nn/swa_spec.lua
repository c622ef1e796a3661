-- optim.swa_utils: averages of a network's weights, and their BatchNorm statistics. SWALR's rates
-- are in scheduler_spec.lua.

local moth = require "moth"
local nn, optim, data = moth.nn, moth.optim, moth.data
local swa = optim.swa_utils

local function fill(net, value)
  moth.no_grad(function()
    for _, p in ipairs(net:parameters()) do p:fill_(value) end
  end)
end

local function small() return (nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))) end

describe("an AveragedModel", function()
  it("is a copy at first, and then the mean of its updates", function()
    local net = nn.Linear(2, 1)
    local average = swa.AveragedModel(net)
    local x = moth.randn(4, 2)
    assert.same(net(x):tolist(), average(x):tolist())
    for i, value in ipairs {1, 2, 6} do
      fill(net, value)
      average:update_parameters(net)
      assert.equal(i, tonumber(average.n_averaged:item()))
    end
    assert.close({{3, 3}}, average.module.weight:tolist())
    assert.close({{6, 6}}, net.weight:tolist())
    assert.is_true(average.module.weight.requires_grad)
  end)

  it("supports running means, of all tensors or of each", function()
    local makers = {
      function(net)
        return (swa.AveragedModel(net, {multi_avg_fn = swa.get_ema_multi_avg_fn(0.75)}))
      end,
      function(net) return (swa.AveragedModel(net, {avg_fn = swa.get_ema_avg_fn(0.75)})) end,
      function(net)
        return (swa.AveragedModel {net, avg_fn = function(a, now) return a * 0.75 + now * 0.25 end})
      end,
    }
    for _, make in ipairs(makers) do
      local net = nn.Linear(2, 1)
      local average = make(net)
      fill(net, 1)
      average:update_parameters(net)
      fill(net, 3)
      average:update_parameters(net)
      assert.close({{1.5, 1.5}}, average.module.weight:tolist())
    end
  end)

  it("passes the number of updates to avg_fn", function()
    local net = nn.Linear(2, 1)
    local average = swa.AveragedModel(net, {avg_fn = swa.get_swa_avg_fn()})
    for _, value in ipairs {1, 2, 6} do
      fill(net, value)
      average:update_parameters(net)
    end
    assert.close({{3, 3}}, average.module.weight:tolist())
  end)

  it("has the network's last buffers, or their means", function()
    for _, use_buffers in ipairs {false, true} do
      local net = small()
      local average = swa.AveragedModel(net, {use_buffers = use_buffers})
      for _, value in ipairs {1, 3} do
        net[2].running_mean:fill_(value)
        net[2].num_batches_tracked:fill_(value)
        average:update_parameters(net)
      end
      local wanted = use_buffers and 2 or 3
      assert.close({wanted, wanted, wanted}, average.module[2].running_mean:tolist())
      assert.equal(wanted, tonumber(average.module[2].num_batches_tracked:item()))
    end
  end)

  it("keeps weights of half types in half types", function()
    local net = nn.Linear(2, 1):to(moth.bfloat16)
    local average = swa.AveragedModel(net)
    fill(net, 1)
    average:update_parameters(net)
    fill(net, 2)
    average:update_parameters(net)
    assert.equal(moth.bfloat16, average.module.weight.dtype)
    assert.close({{1.5, 1.5}}, average.module.weight:tolist())
  end)

  it("has PyTorch's names in its state dict, and continues from one", function()
    local net = nn.Linear(2, 1)
    local average = swa.AveragedModel(net)
    fill(net, 1)
    average:update_parameters(net)
    local names = {}
    for name in pairs(average:state_dict()) do names[#names + 1] = name end
    table.sort(names)
    assert.same({"module.bias", "module.weight", "n_averaged"}, names)
    local other = swa.AveragedModel(net)
    other:load_state_dict(average:state_dict())
    fill(net, 3)
    other:update_parameters(net)
    assert.close({{2, 2}}, other.module.weight:tolist())
  end)

  it("raises for other networks, and for both functions at once", function()
    local average = swa.AveragedModel(nn.Linear(2, 1))
    assert.has_error_like(function() average:update_parameters(nn.Linear(3, 1)) end,
      "its tensor 1 is .*f32 %(1, 3%).*, but the average is .*f32 %(1, 2%)")
    assert.has_error_like(function() average:update_parameters(small()) end, "has 2 tensors")
    assert.has_error_like(function() swa.AveragedModel(moth.zeros(2)) end, "a module is needed")
    assert.has_error_like(function()
      swa.AveragedModel(nn.Linear(1, 1), {avg_fn = print, multi_avg_fn = print})
    end, "not both")
    assert.has_error_like(function() swa.get_ema_avg_fn(1.5) end, "'decay' to 'get_ema_avg_fn'")
  end)
end)

describe("update_bn", function()
  it("computes the statistics of the whole data, and changes nothing else", function()
    local x = moth.randn(12, 3) * 2 + 5
    local net = nn.Sequential(nn.BatchNorm1d(3, {momentum = 0.5}), nn.Dropout(0.5))
    net:eval()
    swa.update_bn(data.DataLoader(data.TensorDataset(x, moth.arange(12)), {batch_size = 4}), net)
    assert.close(x:mean(1):tolist(), net[1].running_mean:tolist(), 1e-5)
    assert.equal(0.5, net[1].momentum)
    assert.is_false(net.training)
    assert.equal(3, tonumber(net[1].num_batches_tracked:item()))
  end)

  it("restores the momentum if a batch fails", function()
    local net = nn.Sequential(nn.BatchNorm1d(3, {momentum = 0.5}))
    net:eval()
    assert.has_error_like(function()
      swa.update_bn(data.DataLoader(moth.randn(4, 5), {batch_size = 2}), net)
    end, "5")
    assert.equal(0.5, net[1].momentum)
    assert.is_false(net.training)
  end)

  it("accepts a list of batches, and names its other inputs in errors", function()
    local x, net = moth.randn(12, 3) * 2 + 5, small()
    net[1] = nn.Identity()
    swa.update_bn({x:narrow(1, 1, 6), x:narrow(1, 7, 6)}, net)
    assert.close(x:mean(1):tolist(), net[2].running_mean:tolist(), 1e-5)
    swa.update_bn({{x:narrow(1, 1, 6), 1}, {x:narrow(1, 7, 6), 2}}, net)
    assert.equal(2, tonumber(net[2].num_batches_tracked:item()))
    for _, loader in ipairs {3, x, {x = x}, {1, 2}} do
      assert.has_error_like(function() swa.update_bn(loader, net) end,
        "bad argument 'loader' to 'update_bn' %(a DataLoader, an iterator or a list of batches is "
        .. "needed, got")
      assert.equal(2, tonumber(net[2].num_batches_tracked:item()))
    end
  end)

  it("does not change a network without BatchNorm", function()
    swa.update_bn(function() error "no batch is asked for" end, nn.Linear(2, 1))
  end)
end)
