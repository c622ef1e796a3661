-- moth.profiler on a GPU: the GPU time of each op, by the GPU's clock, and its position in the
-- trace.

local moth = require "moth"
local bits = require "spec.support.bits"
local cuda = require "spec.support.cuda"
local chrome = require "spec.support.chrome"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local profile = moth.profiler.profile

local function rows_of(prof)
  local rows = {}
  for _, row in ipairs(prof:key_averages()) do rows[row.key] = row end
  return rows
end

-- A training step on the GPU, and its network.
local function training()
  moth.manual_seed(5)
  local net = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 4)):cuda()
  local opt = optim.Adam(net:parameters(), {lr = 0.01})
  local x = moth.randn(16, 20, {device = "cuda"})
  return function()
    opt:zero_grad()
    local loss = net(x):pow(2):mean()
    loss:backward()
    opt:step()
    return loss
  end, net
end

describe("a profile of work on a GPU", function()
  if not cuda.here then
    pending("tells how long each op took there: " .. cuda.why)
    return
  end

  it("reports the GPU time of each op, also in a backward pass", function()
    local step = training()
    step()
    local prof = profile(function()
      for _ = 1, 3 do step() end
      moth.ones(3):exp()
    end)
    local rows = rows_of(prof)
    for _, name in ipairs {"linear", "tanh", "adam_step_", "mean"} do
      assert.is_true(rows[name].self_device_time_total > 0, name)
      assert.is_true(rows[name].device_time_total >= rows[name].self_device_time_total, name)
    end
    assert.equal(6, rows.linear.count)
    assert.equal(0, rows.exp.device_time_total)
    assert.equal(0, rows.backward.self_device_time_total)
    assert.is_true(rows.backward.device_time_total >= rows["linear backward"].device_time_total)
    assert.is_true(rows["linear backward"].device_time_total > 0)
    local text = tostring(prof)
    for _, head in ipairs {"self CUDA", "CUDA total", " on the GPU"} do
      assert.truthy(text:find(head, 1, true), text)
    end
    local sorted = prof:key_averages():table {sort_by = "self_cuda_time_total", row_limit = 1}
    local most = {key = "", self_device_time_total = 0}
    for _, row in pairs(rows) do
      if row.self_device_time_total > most.self_device_time_total then most = row end
    end
    assert.truthy(sorted:find("\n" .. most.key .. " ", 1, true), sorted)
  end)

  it("counts no time twice for ops that call others", function()
    local x = moth.randn(64, 64, {device = "cuda"})
    local prof = profile(function()
      moth.profiler.record_function("both", function()
        F.softmax(x:matmul(x), 2)
        x:cumsum(1, {out = moth.zeros(64, 64, {device = "cuda"})})
      end)
    end)
    local all = 0
    for _, e in ipairs(prof:events()) do
      assert.is_true(e.self_device_time_total >= -1e-6, e.name)
      all = all + e.self_device_time_total
    end
    assert.near(all, rows_of(prof).both.device_time_total, 1e-3)
  end)

  it("shows a CUDA graph as one event for each replay", function()
    local function trained(look)
      local step, net = training()
      local captured = moth.cuda.graph(step)
      local prof
      local function first() for _ = 1, 3 do captured() end end
      local function more() for _ = 1, 4 do captured() end end
      if look then profile(first) else first() end
      if look then prof = profile(more) else more() end
      return bits.state_of(net), prof, tostring(captured)
    end
    local want, _, shown = trained(false)
    local got, prof, seen = trained(true)
    assert.equal(want, got)
    assert.equal(shown, seen)
    local rows = rows_of(prof)
    assert.equal(4, rows.replay.count)
    assert.equal(4, rows.graph.count)
    assert.is_nil(rows.linear)
    assert.is_true(rows.graph.self_device_time_total > 0)
  end)

  it("sees the ops of a captured step that is too short for a graph", function()
    local x = moth.randn(8, {device = "cuda"})
    local step = moth.capture(function(a) return a:exp() end)
    step(x)
    local prof = profile(function() for _ = 1, 3 do step(x) end end)
    local rows = rows_of(prof)
    assert.equal(3, rows.exp.count)
    assert.is_nil(rows.graph)
    assert.is_true(rows.exp.self_device_time_total > 0)
    assert.is_true(rows.replay.self_device_time_total > 0) -- inputs are copied
  end)

  it("reads no GPU times if only the CPU is profiled", function()
    local step = training()
    local prof = profile {step, activities = {"cpu"}}
    for _, row in ipairs(prof:key_averages()) do assert.equal(0, row.device_time_total) end
    assert.falsy(tostring(prof):find("CUDA", 1, true))
    local there = profile {step, activities = {"cuda"}}
    assert.falsy(tostring(there):find("CPU total", 1, true))
    assert.truthy(tostring(there):find("CUDA total", 1, true))
  end)

  it("does not synchronize before the end, where an emulator delays work", function()
    local s = moth.cuda.Stream()
    local x = moth.ones(8, {device = "cuda"})
    moth.cuda.synchronize()
    local waits
    local prof = profile(function()
      moth.cuda.stream(s, function() for _ = 1, 5 do x:exp() end end)
      waits = s:query()
    end)
    if cuda.name:find("emulated", 1, true) then assert.is_false(waits) end
    assert.is_true(s:query())
    assert.is_true(rows_of(prof).exp.self_device_time_total > 0)
  end)

  it("reads the times of many ops on the way, as far as they are done", function()
    local x = moth.ones(1, {device = "cuda"})
    local prof = profile(function()
      moth.scope(function()
        for _ = 1, 5 do
          for _ = 1, 240 do x:exp() end
          moth.cuda.synchronize()
        end
      end)
    end)
    local n = 0
    for _, e in ipairs(prof:events()) do
      if e.self_device_time_total > 0 then n = n + 1 end
    end
    assert.equal(1200, n)
  end)

  it("reports late errors when it ends, and has ended", function()
    local x, at = moth.ones(3, {device = "cuda"}), moth.tensor {4LL}:cuda() - 0
    assert.has_error_like(function()
      profile(function() x:index_select(1, at + 1) end)
    end, "'index_select', which ran before on the GPU, got position 5 of 3")
    moth.cuda.synchronize()
    assert.is_true(rows_of(profile(function() x:exp() end)).exp.self_device_time_total > 0)
  end)

  it("follows the current stream, and records bytes there", function()
    local s = moth.cuda.Stream()
    local prof = profile {function()
      moth.cuda.stream(s, function()
        local x = moth.zeros(1024, {device = "cuda"})
        return x + 1
      end)
    end, profile_memory = true}
    local rows = rows_of(prof)
    assert.is_true(rows.add.self_device_time_total > 0)
    assert.equal(4096, rows.add.self_device_memory_usage)
    assert.equal(0, rows.add.self_cpu_memory_usage)
    assert.truthy(tostring(prof):find("self CUDA memory", 1, true))
  end)

  it("gives each GPU a row in the trace", function()
    local x = moth.randn(100, {device = "cuda"})
    local prof = profile(function() x:exp():sum() end)
    local trace = chrome.trace_of(prof)
    local lanes, there = {}, {}
    for _, e in ipairs(trace.traceEvents) do
      if e.ph == "M" then lanes[e.args.name] = e.tid end
      if e.cat == "cuda" then there[#there + 1] = e end
    end
    assert.equal(0, lanes.CPU)
    assert.equal(1, lanes["cuda:0"])
    assert.equal(2, #there)
    assert.same({"exp", "sum"}, {there[1].name, there[2].name})
    assert.is_true(there[1].dur > 0)
    assert.is_true(there[2].ts >= there[1].ts + there[1].dur - 1)
  end)

  it("ends if an error occurs in it, and can be started again", function()
    local x = moth.randn(3, {device = "cuda"})
    for _ = 1, 3 do
      assert.has_error_like(function()
        profile(function() return (x:exp():view(7)) end)
      end, "does not fit")
    end
    assert.is_true(rows_of(profile(function() x:exp() end)).exp.self_device_time_total > 0)
  end)
end)
