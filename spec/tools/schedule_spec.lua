-- Profiles by steps, attention kernels by name, and nn.SyncBatchNorm.

local moth = require "moth"
local nn, F, profiler = moth.nn, moth.nn.functional, moth.profiler

describe("moth.profiler.schedule", function()
  local function actions(options, n)
    local schedule, list = profiler.schedule(options), {}
    for step = 0, n - 1 do list[step + 1] = schedule(step) end
    return table.concat(list, " ")
  end

  it("returns the action of each step", function()
    assert.equal("NONE WARMUP RECORD RECORD_AND_SAVE NONE WARMUP RECORD RECORD_AND_SAVE",
      actions({ wait = 1, warmup = 1, active = 2 }, 8))
    assert.equal("NONE NONE WARMUP RECORD_AND_SAVE NONE NONE NONE",
      actions({ wait = 1, warmup = 1, active = 1, skip_first = 1, ["repeat"] = 1 }, 7))
    assert.equal("NONE WARMUP RECORD_AND_SAVE NONE NONE WARMUP",
      actions({ wait = 2, warmup = 1, active = 1, skip_first = 1, skip_first_wait = 1 }, 6))
    assert.equal("RECORD_AND_SAVE "
      .. "RECORD_AND_SAVE", actions({ wait = 0, warmup = 0, active = 1 }, 2))
  end)

  it("raises for values out of range", function()
    assert.error_matches(function() profiler.schedule { wait = 1, warmup = 1, active = 0 } end,
      "bad argument 'active' to 'schedule' (a number from 1 is needed, got 0)", 1, true)
    assert.error_matches(function() profiler.schedule { wait = -1, warmup = 1, active = 1 } end,
      "bad argument 'wait' to 'schedule' (a number from 0 is needed, got -1)", 1, true)
    assert.error_matches(function() profiler.schedule { wait = 1 } end, "'warmup' to 'schedule'", 1,
      true)
  end)

  local function count(prof, key)
    for _, row in ipairs(prof:key_averages()) do
      if row.key == key and row.kind ~= "range" then return row.count end
    end
    return 0
  end

  it("lets a profile record some steps and calls on_trace_ready after each run", function()
    local ready = {}
    local x = moth.ones(2)
    profiler.profile { function(prof)
      for step = 0, 9 do
        for _ = 0, step do x:exp() end
        prof:step()
      end
    end, schedule = profiler.schedule { wait = 1, warmup = 1, active = 2, ["repeat"] = 2 },
      on_trace_ready = function(prof)
        ready[#ready + 1] = { prof.step_num, count(prof, "exp") }
      end }
    assert.same({ { 4, 3 + 4 }, { 8, 7 + 8 } }, ready)
  end)

  it("names the steps, as ranges", function()
    local seen = {}
    local schedule = profiler.schedule { wait = 0, warmup = 0, active = 2 }
    local prof = profiler.profile { schedule = schedule, on_trace_ready = function(prof)
        for _, event in ipairs(prof:events()) do
          if event.kind == "range" then seen[#seen + 1] = event.name end
        end
      end }
    prof:start()
    for _ = 1, 2 do
      moth.ones(2):exp()
      prof:step()
    end
    prof:stop()
    assert.same({ "ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2" }, seen)
  end)

  it("can be any function of the step; without a schedule all steps are recorded", function()
    local calls, x = 0, moth.ones(2)
    profiler.profile { function(prof)
      x:exp()
      prof:step()
      x:exp()
    end, on_trace_ready = function(prof)
      calls = calls + 1
      assert.equal(2, count(prof, "exp"))
    end }
    assert.equal(1, calls)
    assert.error_matches(function()
      profiler.profile { function() end, schedule = function() return 3 end }
    end, "returns one of moth.profiler.ProfilerAction, got 3 for step 0", 1, true)
    local prof = profiler.profile { schedule = function() return "NONE" end }
    assert.error_matches(function() prof:step() end, "start it with :start()", 1, true)
    prof:start():step()
    prof:stop()
  end)
end)

describe("moth.nn.attention.sdpa_kernel", function()
  local attention = nn.attention
  local backend = attention.SDPBackend
  local q = moth.randn(1, 2, 3, 4)

  it("calls its function with the available kernels", function()
    local plain = F.scaled_dot_product_attention(q, q, q)
    for _, backends in ipairs { backend.MATH, { backend.FLASH_ATTENTION, backend.MATH },
                                { backend.CUDNN_ATTENTION, backend.EFFICIENT_ATTENTION } } do
      local y = attention.sdpa_kernel(backends, function()
        return F.scaled_dot_product_attention(q, q, q)
      end)
      assert.is_true(plain:equal(y))
    end
  end)

  it("sets cuDNN's kernel, and restores it, also after an error", function()
    local cuda = moth.backends.cuda
    local before = cuda.cudnn_sdp_enabled()
    attention.sdpa_kernel(backend.MATH, function() assert.is_false(cuda.cudnn_sdp_enabled()) end)
    assert.equal(before, cuda.cudnn_sdp_enabled())
    assert.has_error(function() attention.sdpa_kernel("MATH", function() error "x" end) end)
    assert.equal(before, cuda.cudnn_sdp_enabled())
    attention.sdpa_kernel({ "MATH", "CUDNN_ATTENTION" }, function()
      assert.is_true(cuda.cudnn_sdp_enabled())
    end)
  end)

  it("lists the valid names in its error", function()
    assert.error_matches(function() attention.sdpa_kernel("MAHT", function() end) end,
      "bad argument 'backends' to 'sdpa_kernel' (one of CUDNN_ATTENTION, EFFICIENT_ATTENTION, "
        .. "FLASH_ATTENTION, MATH is needed, got a string ('MAHT'); did you mean 'MATH'?)", 1, true)
    assert.error_matches(function() attention.sdpa_kernel({}, function() end) end,
      "a name of SDPBackend or a list of names is needed", 1, true)
    if not moth.cuda.is_available() then
      assert.error_matches(function()
        attention.sdpa_kernel(backend.CUDNN_ATTENTION, function() end)
      end, "CUDNN_ATTENTION needs a GPU, and there is none here", 1, true)
    end
  end)
end)

describe("nn.SyncBatchNorm", function()
  it("is a BatchNorm of any number of dimensions", function()
    for _, row in ipairs {
      { nn.BatchNorm1d, { 4, 3 } }, { nn.BatchNorm1d, { 4, 3, 5 } },
      { nn.BatchNorm2d, { 4, 3, 2, 2 } }, { nn.BatchNorm3d, { 2, 3, 2, 2, 2 } },
    } do
      local plain, sync = row[1](3), nn.SyncBatchNorm(3)
      local x = moth.randn(row[2])
      moth.testing.assert_close((sync(x)), (plain(x)))
      moth.testing.assert_close(sync.running_var, plain.running_var)
      moth.testing.assert_close((sync:eval()(x)), (plain:eval()(x)))
    end
    local y = nn.SyncBatchNorm(1)(moth.tensor { { 1 }, { 2 }, { 3 } })
    assert.near(-1.2247356, y[1]:item(), 1e-6)
  end)

  it("has PyTorch's arguments", function()
    local layer = nn.SyncBatchNorm { 3, eps = 1e-3, momentum = moth.none, affine = false,
                                     process_group = "all" }
    assert.equal(1e-3, layer.eps)
    assert.is_nil(layer.momentum)
    assert.is_nil(layer.weight)
    assert.is_nil(nn.SyncBatchNorm { 3, bias = false }.bias)
    assert.error_matches(function() nn.SyncBatchNorm(3)(moth.ones(3)) end, "dimensions are "
      .. "needed", 1,
      true)
  end)

  it("replaces all BatchNorm layers of a net, and keeps their parameters", function()
    local net = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3),
      nn.Sequential(nn.ReLU(), nn.BatchNorm2d { 3, affine = false, momentum = moth.none }))
    net(moth.randn(4, 2, 3, 3))
    local weight, mean = net[2].weight, net[2].running_mean
    local keys = {}
    for name in pairs(net:eval():state_dict()) do keys[#keys + 1] = name end
    local x = moth.randn(2, 2, 3, 3)
    local expected = net(x)
    local converted = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert.equal(net, converted)
    assert.equal("SyncBatchNorm", nn.typename(net[2]))
    assert.equal("SyncBatchNorm", nn.typename(net[3][2]))
    assert.is_true(net[2].weight == weight and net[2].running_mean == mean)
    assert.is_nil(net[3][2].momentum)
    assert.is_true(expected:equal(net(x)))
    for _, name in ipairs(keys) do assert.is_not_nil(net:state_dict()[name], name) end
    assert.equal("SyncBatchNorm", nn.typename(
      nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(2))))
  end)
end)
