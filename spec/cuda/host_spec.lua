-- The CPU cost of an op on a GPU: the calls of the driver, as the emulator (cuda/emulator/) counts
-- them; and a mode of the emulator that does no work, to measure the cost of submitting it.

local ffi = require "ffi"
local moth = require "moth"
local cuda = require "spec.support.cuda"
local process = require "spec.support.process"

local F = moth.nn.functional

describe("the host's share of work on a GPU", function()
  if not (cuda.here and cuda.name:find("emulated", 1, true)) then
    pending("is counted by the emulator: this wants the GPU that is emulated on the CPU")
    return
  end

  pcall(ffi.cdef, "size_t moth_emulated_calls(char *to, size_t n);")
  local stand_in = ffi.load(os.getenv "MOTH_BACKEND_PATH" .. "/libmoth_cuda.so")
  local room = ffi.new "char[4096]"

  -- The number of calls of each CUDA function so far.
  local function calls()
    local list = {}
    local text = ffi.string(room, stand_in.moth_emulated_calls(room, 4096))
    for name, n in text:gmatch "(%S+) (%d+)\n" do list[name] = tonumber(n) end
    return list
  end

  -- The calls that f adds; its first runs allocate blocks and make plans.
  local function asked(f)
    for _ = 1, 3 do f() end
    local before, list = calls(), {}
    f()
    for name, n in pairs(calls()) do
      if n > (before[name] or 0) then list[name] = n - (before[name] or 0) end
    end
    return list
  end

  local function on_gpu(...) return moth.randn(...):to "cuda" end

  it("is one launch and one choice of the device for an op of one kernel", function()
    local a, b = on_gpu(16), on_gpu(16)
    local x, w, bias = on_gpu(8, 16), on_gpu(4, 16), on_gpu(4)
    local images = on_gpu(2, 3, 5, 5)
    for name, f in pairs {
      add = function() return a + b end, add_ = function() a:add_(b) end,
      ["add of a number"] = function() return a + 2 end, relu = function() return a:relu() end,
      sum = function() return x:sum(1) end, softmax = function() return x:softmax(2) end,
      linear = function() return F.linear(x, w, bias) end, zeros = function()
        return moth.zeros(3, { device = "cuda" })
      end, dropout = function() return F.dropout(x, 0.5) end,
      dropout2d = function() return F.dropout2d(images, 0.5) end,
    } do
      assert.same({ cudaLaunchKernel = 1, cudaSetDevice = 1 },
        asked(function() moth.scope(function() f() end) end), name)
    end
  end)

  it("is one launch for a kernel with much shared memory, which is allowed once", function()
    local a, b = on_gpu(256, 64):half(), on_gpu(64, 256):half()
    local q = on_gpu(1, 2, 64, 64):half()
    for _, f in ipairs { function() return a:matmul(b) end, function()
      return F.scaled_dot_product_attention(q, q, q)
    end } do
      local list = asked(function() moth.scope(function() f() end) end)
      assert.equal(1, list.cudaLaunchKernel)
      assert.is_nil(list.moth_emulated_attribute)
    end
  end)

  --- The launches of a training step of net, whose loss is f(scores).
  local function launches(net, optimizer, x, f)
    net:to "cuda"
    optimizer = optimizer(net:parameters(), { lr = 0.01 })
    return asked(function()
      moth.scope(function()
        optimizer:zero_grad()
        f(net(x)):backward()
        optimizer:step()
      end)
    end).cudaLaunchKernel
  end

  it("is few launches for a step of a small network", function()
    local nn, optim = moth.nn, moth.optim
    local target = moth.randint(1, 3, { 64 }):cuda()
    local function loss(y) return F.cross_entropy(y, target) end
    local policy = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
      nn.Linear(64, 2))
    -- 8 products, 2 of relu, 2 of the loss, Adam
    assert.equal(13, launches(policy, optim.Adam, on_gpu(64, 4), loss))
  end)

  it("is few launches to validate a policy's values", function()
    local Categorical = moth.distributions.Categorical
    local scores = on_gpu(64, 2)
    local action = moth.randint(1, 3, { 64 }):cuda()
    local policy = Categorical { logits = scores, validate_args = false }
    local function of(f) return asked(f).cudaLaunchKernel or 0 end
    local function make(checks)
      return of(function() Categorical { logits = scores, validate_args = checks } end)
    end
    -- x == x and all; within the bounds, equal to that, and all
    assert.equal(2, make(true) - make(false))
    local plain = of(function() policy:log_prob(action) end)
    policy.validate_args = true
    assert.equal(3, of(function() policy:log_prob(action) end) - plain)
  end)

  it("is one launch for reading at positions, and for a write without duplicates", function()
    local w, at = on_gpu(5, 3):requires_grad_(), moth.tensor { 5LL, 1LL, 3LL }:cuda()
    local each = moth.tensor { { 5LL, 1LL, 2LL } }:cuda()
    local v, row, full = on_gpu(3, 3), on_gpu(1, 3), w:detach()
    for name, f in pairs {
      embedding = function() return F.embedding(at, w) end,
      index_select = function() return w:index_select(1, at) end,
      gather = function() return w:gather(1, each) end,
      take = function() return w:take(each) end,
      take_along_dim = function() return w:take_along_dim(each, 1) end,
      ["a list between brackets"] = function() return w[{ at }] end,
    } do
      assert.equal(1, asked(function() moth.scope(function() f() end) end).cudaLaunchKernel, name)
    end
    -- slices that may overlap: positions, their order, the write
    for name, case in pairs {
      index_add = { 3, function() full:index_add_(1, at, v) end },
      scatter = { 1, function() full:scatter_(1, each, row) end },
      scatter_add = { 1, function() full:scatter_add_(1, each, row) end },
      write = { 3, function() full[{ at }] = v end },
      embedding = { 4, function()
        local y = F.embedding(at, w)
        y:backward(y)
        w.grad = nil
      end },
      gather = { 2, function()
        local y = w:gather(1, each)
        y:backward(y)
        w.grad = nil
      end },
    } do
      assert.equal(case[1], asked(function() moth.scope(case[2]) end).cudaLaunchKernel, name)
    end
  end)

  it("is one launch for a step of as many parameters as fit a kernel's table", function()
    for _, case in ipairs { { 122, "SGD", {} }, { 98, "SGD", { momentum = 0.9 } },
                            { 81, "Adam", {} }, { 70, "Adam", { amsgrad = true } } } do
      local n, list = case[1], {}
      for i = 1, n + 1 do
        list[i] = on_gpu(3):requires_grad_()
        list[i].grad = on_gpu(3)
      end
      local beyond = moth.optim[case[2]](list, case[3])
      local within = moth.optim[case[2]]({ unpack(list, 1, n) }, case[3])
      assert.equal(1, asked(function() within:step() end).cudaLaunchKernel)
      assert.equal(2, asked(function() beyond:step() end).cudaLaunchKernel)
    end
  end)

  it("is five launches for images through BatchNorm", function()
    -- sums, statistics with scales, the images, both running statistics; the count of batches
    local norm, images = moth.nn.BatchNorm2d(3):cuda(), on_gpu(2, 3, 5, 5)
    assert.equal(5, asked(function()
      moth.scope(function() norm(images) end)
    end).cudaLaunchKernel)
  end)

  it("is three launches for clipping by the norm", function()
    local net = moth.nn.Linear(4, 2):cuda()
    net(on_gpu(64, 4)):sum():backward() -- norms, their total, scaling
    assert.equal(3, asked(function()
      moth.scope(function() moth.nn.utils.clip_grad_norm_(net:parameters(), 1) end)
    end).cudaLaunchKernel)
  end)

  it("is one launch for the gradient of a pooling with overlapping windows", function()
    local x = on_gpu(3, 2, 9, 9):requires_grad_()
    assert.equal(2, asked(function()
      moth.scope(function()
        local y = F.max_pool2d(x, 3, 2, 1)
        y:backward(y)
      end)
      x.grad = nil
    end).cudaLaunchKernel)
  end)

  it("is one launch for a Fourier transform of a cached length", function()
    local x = on_gpu(3, 60)
    assert.same({ cudaLaunchKernel = 1, cudaSetDevice = 3 },
      asked(function() moth.scope(function() moth.fft.rfft(x) end) end))
    for _ = 1, 2 do -- more lengths than the cache holds, also with large prime factors
      for n = 20, 60 do
        local part = x[{ {}, { 1, n } }]
        for _, dtype in ipairs { moth.float32, moth.float64 } do
          local want, got = moth.fft.rfft(part:cpu():to(dtype)), moth.fft.rfft(part:to(dtype))
          assert.is_true(moth.allclose(got:cpu(), want, { rtol = 1e-4, atol = 1e-4 }), n)
          assert.is_true(moth.equal(got, moth.fft.rfft(part:to(dtype))), n)
        end
      end
    end
  end)

  -- Starts a process in which memory is allocated as on a real GPU.
  local COUNTED = [[
      local ffi = require "ffi"
      ffi.cdef "int setenv(const char *, const char *, int);"
      ffi.cdef "size_t moth_emulated_calls(char *to, size_t n);"
      ffi.C.setenv("MOTH_EMULATED_SLAB", "2097152", 1)
      local moth = require "moth"
      local stand_in, room
      local function mallocs()
        stand_in = stand_in or ffi.load(os.getenv "MOTH_BACKEND_PATH" .. "/libmoth_cuda.so")
        room = room or ffi.new "char[4096]"
        local text = ffi.string(room, stand_in.moth_emulated_calls(room, 4096))
        return tonumber(text:match "cudaMalloc (%d+)" or 0)
      end
      local function free() return (moth.cuda.mem_get_info()) end
      moth.zeros(1, { device = "cuda" })
      moth.collect()
      moth.cuda.empty_cache()
  ]]

  it("is one allocation for many small tensors, which is returned whole", function()
    local out = process.lua(COUNTED .. [[
      local before, asked, list = free(), mallocs(), {}
      for i = 1, 2000 do list[i] = moth.full({ 3 + i % 300 }, i, { device = "cuda" }) end
      assert(mallocs() - asked == 1, mallocs() - asked)
      for i = 1, 2000, 7 do
        assert(list[i]:eq(i):all():item() and #list[i] == 3 + i % 300, i)
      end
      local kept = list[1000]
      list = nil
      moth.collect()
      moth.cuda.empty_cache()
      assert(free() < before and kept:eq(1000):all():item())
      local step = moth.capture(function(x) return (x * 2 + 1):tanh():sum() end)
      local x = moth.ones(100, { device = "cuda" })
      for _ = 1, 3 do assert(math.abs(step(x):item() - 100 * math.tanh(3)) < 1e-3) end
      local large = moth.ones(1e6, { device = "cuda" })
      assert(large:sum():item() == 1e6)
      step, x, large, kept = nil, nil, nil, nil
      jit.flush() -- compiled code may hold a tensor as a constant
      moth.collect()
      moth.collect()
      moth.cuda.empty_cache()
      assert(free() == before, before - free())
      print "whole"
    ]])
    assert.matches("whole", out)
    assert.matches("rc=0", out)
  end)

  it("is one allocation for many tensors of up to 2.5 MiB, counted whole", function()
    local out = process.lua(COUNTED .. [[
      local reserved = moth.cuda.memory_reserved
      local before, held, asked, list = free(), reserved(), mallocs(), {}
      for i = 1, 7 do list[i] = moth.full({ i * 90000 }, i, { device = "cuda" }) end
      assert(mallocs() - asked == 1, mallocs() - asked)
      assert(before - free() == 20 * 2 ^ 20, before - free())
      local taken = reserved() - held
      assert(taken > 19 * 2 ^ 20 and taken <= 20 * 2 ^ 20, taken)
      for i = 1, 7 do assert(list[i]:eq(i):all():item(), i) end
      asked = mallocs()
      local large = moth.ones(2 ^ 20, { device = "cuda" })
      assert(mallocs() - asked == 1 and large:sum():item() == 2 ^ 20)
      list, large = nil, nil
      jit.flush() -- compiled code may hold a tensor as a constant
      moth.collect()
      moth.collect()
      moth.cuda.empty_cache()
      assert(free() == before and reserved() == held, before - free())
      print "whole"
    ]])
    assert.matches("whole", out)
    assert.matches("rc=0", out)
  end)

  it("is none for a view", function()
    local x = on_gpu(8, 16)
    assert.same({}, asked(function() return x:view(16, 8), x:t(), x[2] end))
  end)

  it("can be measured alone: with MOTH_EMULATED_NULL no work is done", function()
    local out = process.lua [[
      local ffi = require "ffi"
      ffi.cdef "int setenv(const char *, const char *, int);"
      ffi.C.setenv("MOTH_EMULATED_NULL", "1", 1)
      local moth = require "moth"
      local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
      moth.set_default_device "cuda"
      local net = nn.Linear(4096, 4096)
      local optimizer = optim.Adam(net:parameters(), { lr = 1e-3 })
      local x = moth.zeros(4096, 4096)
      local function step()
        optimizer:zero_grad()
        local loss = net(x):square():mean()
        loss:backward()
        optimizer:step()
        return loss
      end
      for _ = 1, 3 do step() end
      local captured = moth.capture(step)
      for _ = 1, 5 do captured() end
      moth.cuda.synchronize()
      print(captured(), "done")
    ]]
    assert.matches("done", out)
    assert.matches("rc=0", out)
  end)
end)
