-- NVIDIA's libraries, which the plugin opens at run time: substitutes (spec/host) check every call
-- of the interface and compute on the CPU. Each claim has its own process, since a library is
-- opened once.

local cuda = require "spec.support.cuda"
local library = require "spec.support.library"

local built = library.built

--- The substitute of a library computes at once, so launches are synchronous.
local function with(variable, path, settings, code)
  settings.MOTH_CUDA_BLOCKING = settings.MOTH_CUDA_BLOCKING or "1"
  return library.with(variable, path, settings, code)
end

local emulated = cuda.here and cuda.name:find("emulated", 1, true)
local why = "is held to its interface: this wants the GPU that is emulated on the CPU"

describe("moth.backends.cudnn", function()
  local moth = require "moth"

  it("returns its settings", function()
    local cudnn = moth.backends.cudnn
    for name, first in pairs { enabled = true, benchmark = false, allow_tf32 = false } do
      assert.equal(first, cudnn[name])
      cudnn[name] = not first
      assert.equal(not first, cudnn[name])
      cudnn[name] = first
      assert.equal(first, cudnn[name])
    end
  end)

  it("reports a missing library, and has no version then", function()
    assert.equal("false\tnil\nrc=0\n", with("MOTH_CUDNN", "none", {}, [[
      print(moth.backends.cudnn.is_available(), moth.backends.cudnn.version())]]))
  end)

  it("is always deterministic, and accepts that setting", function()
    local cudnn = moth.backends.cudnn
    for _, value in ipairs { true, false } do
      cudnn.deterministic = value
      assert.is_true(cudnn.deterministic)
    end
    assert.has_error_like(function() cudnn.deterministic = 1 end, "a boolean is needed, got 1")
  end)

  it("refuses values that are not booleans, and unknown names", function()
    local backends, cudnn = moth.backends, moth.backends.cudnn
    for _, name in ipairs { "enabled", "benchmark", "allow_tf32" } do
      assert.has_error_like(function() cudnn[name] = 1 end,
        ("bad argument '%s' to 'backends.cudnn' %%(a boolean is needed, got 1"):format(name))
    end
    assert.has_error_like(function() cudnn.version = 9 end,
      "moth.backends.cudnn.version is a function and cannot be assigned")
    assert.has_error_like(function() cudnn.benchmarks = true end, "did you mean 'benchmark'")
    assert.has_error_like(function() return cudnn.fastest end,
      "moth.backends.cudnn has no 'fastest'")
    assert.has_error_like(function() return backends.cudnnn end, "did you mean 'cudnn'")
    assert.has_error_like(function() backends.cudnn = 3 end,
      "moth.backends.cudnn cannot be assigned")
    assert.has_error_like(function() backends.mkl = 3 end, "moth.backends has no 'mkl'")
  end)

  it("has help, as has moth.backends", function()
    local help = require "moth.help"
    assert.matches("cudnn", help.text "backends")
    for _, what in ipairs { "backends.cudnn", "moth.backends.cudnn", moth.backends.cudnn } do
      assert.matches("benchmark.*deterministic", help.text(what))
    end
  end)
end)

describe("moth.backends.cuda.matmul", function()
  local moth = require "moth"
  local cuda_settings = moth.backends.cuda

  it("allows what set_float32_matmul_precision does, and the reverse", function()
    assert.is_false(cuda_settings.matmul.allow_tf32)
    cuda_settings.matmul.allow_tf32 = true
    assert.equal("high", moth.get_float32_matmul_precision())
    moth.set_float32_matmul_precision "highest"
    assert.is_false(cuda_settings.matmul.allow_tf32)
    moth.set_float32_matmul_precision "medium"
    assert.is_true(cuda_settings.matmul.allow_tf32)
    cuda_settings.matmul.allow_tf32 = false
    assert.equal("highest", moth.get_float32_matmul_precision())
  end)

  it("refuses values that are not booleans, and unknown names", function()
    assert.has_error_like(function() cuda_settings.matmul.allow_tf32 = "yes" end,
      "bad argument 'allow_tf32' to 'backends.cuda.matmul' %(a boolean is needed")
    assert.has_error_like(function() cuda_settings.matmul.alow_tf32 = true end,
      "did you mean 'allow_tf32'")
    assert.has_error_like(function() return cuda_settings.matmull end, "did you mean 'matmul'")
    assert.has_error_like(function() cuda_settings.matmul = true end,
      "moth.backends.cuda.matmul cannot be assigned; assign to its fields")
  end)
end)

describe("moth.backends.cuda.enable_cudnn_sdp", function()
  local cuda_settings = require("moth").backends.cuda

  it("is read by cudnn_sdp_enabled, and takes a boolean", function()
    assert.is_true(cuda_settings.cudnn_sdp_enabled())
    cuda_settings.enable_cudnn_sdp(false)
    assert.is_false(cuda_settings.cudnn_sdp_enabled())
    cuda_settings.enable_cudnn_sdp(true)
    assert.is_true(cuda_settings.cudnn_sdp_enabled())
    assert.has_error_like(function() cuda_settings.enable_cudnn_sdp(1) end,
      "bad argument 'enabled' to 'backends.cuda.enable_cudnn_sdp' %(a boolean is needed, got 1")
  end)
end)

describe("convolution by cuDNN", function()
  if not emulated then return pending(why) end

  local path
  setup(function() path = built "dnn" end)
  teardown(function() os.remove(path) end)

  local convolve = [[
    local F = moth.nn.functional
    local function all(device, x, w, b, options, format)
      local where = {device = device, memory_format = format}
      x, w = x:to(where):requires_grad_(), w:to(where):requires_grad_()
      local y = F.conv2d(x, w, b and b:to(device), options.stride, options.padding,
        options.dilation, options.groups)
      local loss = (y * y):sum()
      loss:backward()
      return {y:detach():cpu(), x.grad:cpu(), w.grad:cpu()}
    end
    local function check(x_size, w_size, biased, options, dtype, format)
      moth.manual_seed(1)
      dtype = dtype or moth.float32
      local x, w = moth.randn(x_size, {dtype = dtype}), moth.randn(w_size, {dtype = dtype})
      local b = biased and moth.randn({w_size[1]}, {dtype = dtype}) or nil
      local wanted = all("cpu", x:clone(), w:clone(), b, options or {})
      local got = all("cuda", x, w, b, options or {}, format)
      for i = 1, 3 do
        local off = (wanted[i] - got[i]):abs():max():item() / wanted[i]:abs():max():item()
        assert(off < 1e-5, ("result %d is off by %g"):format(i, off))
      end
    end
  ]]

  local function convolved(settings, code)
    return with("MOTH_CUDNN", path, settings, convolve .. code)
  end

  it("agrees with the CPU in all supported cases, and frees everything", function()
    local text = convolved({}, [[
      check({2, 4, 7, 6}, {6, 4, 3, 3}, true, {padding = 1})
      check({2, 4, 7, 6}, {6, 2, 3, 2}, false, {groups = 2, stride = {2, 1}, dilation = {1, 2}})
      check({1, 5, 4, 4}, {3, 5, 1, 1}, true, {}, moth.float64)
      check({5, 4, 4}, {3, 5, 2, 2}, true, {padding = {0, 1}}, moth.float64)
    ]])
    assert.equal("runs=12 plans=12 left=0 engines=0,6,6\nrc=0\n", text)
  end)

  it("gets channels_last images without a copy, for depthwise filters of any size", function()
    assert.equal("runs=12 plans=12 left=0 engines=0,6,6\nrc=0\n", convolved({}, [[
      local last = moth.channels_last
      check({2, 4, 7, 6}, {6, 4, 3, 3}, true, {padding = 1}, moth.float64, last)
      check({2, 4, 7, 6}, {6, 2, 3, 2}, false, {groups = 2, stride = {2, 1}}, moth.float64, last)
      check({2, 4, 7, 6}, {4, 1, 2, 2}, true, {groups = 4, padding = 1}, nil, last)
      check({1, 5, 4, 4}, {3, 5, 1, 1}, true, {}, nil, last)
    ]]))
    assert.equal("runs=0 plans=12 left=0 engines=0,0,0\nrc=0\n", convolved({ DNN_REFUSES = "100" },
      "check({2, 4, 7, 6}, {6, 4, 3, 3}, true, {padding = 1}, nil, moth.channels_last)"))
  end)

  it("plans a shape once, with deterministic engines that keep full float32", function()
    local text = convolved({}, [[
      for _ = 1, 4 do check({2, 4, 7, 6}, {6, 4, 3, 3}, true, {padding = 1}) end
    ]])
    assert.equal("runs=12 plans=3 left=0 engines=0,0,12\nrc=0\n", text)
    text = convolved({}, [[
      moth.backends.cudnn.allow_tf32 = true
      check({2, 4, 7, 6}, {6, 4, 3, 3}, true, {padding = 1})
    ]])
    assert.equal("runs=3 plans=3 left=0 engines=0,3,0\nrc=0\n", text)
    text = convolved({}, [[
      moth.set_float32_matmul_precision "high" -- for matrix products only
      check({2, 4, 7, 6}, {6, 4, 3, 3}, true, {padding = 1})
    ]])
    assert.equal("runs=3 plans=3 left=0 engines=0,0,3\nrc=0\n", text)
  end)

  it("uses Moth's kernels if cuDNN is switched off", function()
    assert.equal("true\t91934\nrc=0\n", convolved({}, [[
      moth.backends.cudnn.enabled = false
      print(moth.backends.cudnn.is_available(), moth.backends.cudnn.version())
      check({2, 4, 7, 6}, {6, 4, 3, 3}, true, {padding = 1})
    ]]))
  end)

  it("times the suggested plans if cudnn.benchmark is on", function()
    local twice = "for _ = 1, 2 do check({2, 4, 7, 6}, {6, 4, 3, 3}, true, {padding = 1}) end"
    assert.equal("runs=30 plans=6 left=0 engines=0,0,30\nrc=0\n", -- 3 times 2 plans 4 times, 6
      convolved({}, "moth.backends.cudnn.benchmark = true " .. twice))
    assert.equal("runs=6 plans=3 left=0 engines=0,0,6\nrc=0\n",
      convolved({}, [[moth.backends.cudnn.benchmark = true
        moth.use_deterministic_algorithms(true) ]] .. twice))
  end)

  it("is timed once when a step becomes a graph, too", function()
    local text = convolved({ MOTH_CUDA_BLOCKING = "0" }, [[
      moth.backends.cudnn.benchmark = true
      local x, w = moth.randn(2, 4, 6, 6):cuda(), moth.randn(4, 4, 1, 1):cuda()
      local step = moth.capture(function(v)
        for _ = 1, 5 do v = F.conv2d(v, w) end
        return v
      end)
      for _ = 1, 3 do step(x) end
      print(tostring(step))
    ]])
    assert.matches("a call is 1 graph", text)
    assert.matches("plans=2 ", text) -- the two timed plans
  end)

  it("tries the next engine if one refuses to run, and then Moth's kernels", function()
    local check = "for _ = 1, 2 do check({2, 4, 7, 6}, {6, 4, 3, 3}, true, {padding = 1}) end"
    assert.equal("runs=6 plans=4 left=0 engines=0,0,6\nrc=0\n",
      convolved({ DNN_REFUSES = "1" }, check))
    assert.equal("runs=0 plans=6 left=0 engines=0,0,0\nrc=0\n",
      convolved({ DNN_REFUSES = "100" }, check))
  end)
end)

describe("attention by cuDNN", function()
  if not emulated then return pending(why) end

  local path
  setup(function() path = built "dnn" end)
  teardown(function() os.remove(path) end)

  -- check{queries, keys[, e, v]} for tensors (2, 4, ., .), or with the options `lead`, `shared`
  -- (for keys) and `values`.
  local attend = [[
    local F, cuda = moth.nn.functional, moth.backends.cuda
    moth.backends.cudnn.benchmark = true -- a shape is planned at its first use
    local function shaped(lead, rows, cols)
      local shape = {unpack(lead)}
      shape[#shape + 1], shape[#shape + 2] = rows, cols
      return shape
    end
    local function turned(x) -- its heads are adjacent in memory
      return x:dim() > 2 and x:transpose(-3, -2):contiguous():transpose(-3, -2) or x
    end
    local function all(t, device, dtype, x)
      local own, y = {}
      for i = 1, 3 do
        own[i] = x[i]:to{device = device, dtype = dtype}
        if t.turned then own[i] = turned(own[i]) end
        own[i] = own[i]:detach():requires_grad_()
      end
      local options = {attn_mask = t.mask and t.mask:to(device), is_causal = t.causal or false,
        scale = t.scale, enable_gqa = t.gqa}
      if t.forward ~= nil then cuda.enable_cudnn_sdp(t.forward) end
      y = F.scaled_dot_product_attention(own[1], own[2], own[3], options)
      if t.forward ~= nil then cuda.enable_cudnn_sdp(not t.forward) end
      local dy = x[4]:to{device = device, dtype = dtype}
      y:backward(t.turned and turned(dy) or dy)
      local to = {y:detach()}
      for i = 1, 3 do to[i + 1] = own[i].grad end
      for i = 1, 4 do to[i] = to[i]:to{device = "cpu", dtype = moth.float32} end
      return to
    end
    local function check(t)
      moth.manual_seed(1)
      local dtype, lead = t.dtype or moth.float16, t.lead or {2, 4}
      local e, v, shared = t[3] or 8, t[4] or t[3] or 8, t.shared or lead
      local x = {moth.randn(shaped(lead, t[1], e)), moth.randn(shaped(shared, t[2], e)),
        moth.randn(shaped(t.values or shared, t[2], v)), moth.randn(shaped(lead, t[1], v))}
      for i = 1, 4 do x[i] = x[i]:to(dtype):float() end
      local wanted, got = all(t, "cpu", moth.float32, x), all(t, "cuda", dtype, x)
      for i = 1, 4 do
        local off = (wanted[i] - got[i]):abs():max():item()
        off = off / math.max(0.1, wanted[i]:abs():max():item())
        local most = dtype == moth.bfloat16 and 3e-2 or 4e-3
        assert(off < most, ("result %d is off by %g"):format(i, off))
      end
    end
  ]]

  local function attended(settings, code)
    return with("MOTH_CUDNN", path, settings, attend .. code)
  end

  it("agrees with the CPU in all supported cases, and frees everything", function()
    local text = attended({}, [[
      check{9, 5}
      check{5, 9, 16, 24, causal = true, dtype = moth.bfloat16}
      check{7, 7, causal = true, scale = 0.25, turned = true}
      check{6, 3, lead = {}}
      check{6, 3, lead = {3}, causal = true}
      check{6, 3, lead = {2, 1, 3}, turned = true}
    ]])
    assert.equal("runs=12 plans=12 left=0 engines=12,0,0\nrc=0\n", text)
  end)

  it("supports shared key heads, and sums their gradients", function()
    assert.equal("runs=8 plans=8 left=0 engines=8,0,0\nrc=0\n", attended({}, [[
      check{5, 6, shared = {2, 2}, gqa = true, causal = true}
      check{5, 6, shared = {2, 1}, gqa = true, turned = true}
      check{5, 6, shared = {2, 1}, dtype = moth.bfloat16}
      check{5, 6, lead = {4}, shared = {1}}
    ]]))
  end)

  it("plans a shape once, and at once if shapes are said to repeat", function()
    assert.equal("runs=6 plans=2 left=0 engines=6,0,0\nrc=0\n", attended({},
      "for _ = 1, 3 do check{9, 5, causal = true} end"))
    assert.equal("runs=0 plans=0 left=0 engines=0,0,0\nrc=0\n", attended({},
      "moth.backends.cudnn.benchmark = false for _ = 1, 3 do check{9, 5, causal = true} end"))
  end)

  it("saves the same tensors for gradients as Moth's kernels, and can use theirs", function()
    assert.equal("runs=2 plans=2 left=0 engines=2,0,0\nrc=0\n", attended({}, [[
      check{9, 5, causal = true, forward = true}
      check{9, 5, causal = true, forward = false}
    ]]))
  end)

  it("tries the next engine if one refuses to run, and then Moth's kernels", function()
    local twice = "for _ = 1, 2 do check{9, 5, causal = true} end"
    assert.equal("runs=4 plans=3 left=0 engines=2,2,0\nrc=0\n",
      attended({ DNN_REFUSES = "1" }, twice))
    assert.equal("runs=0 plans=8 left=0 engines=0,0,0\nrc=0\n",
      attended({ DNN_REFUSES = "100" }, twice))
  end)

  it("uses Moth's kernels for unsupported cases, and for versions with errors", function()
    local none = "runs=0 plans=0 left=0 engines=0,0,0\nrc=0\n"
    assert.equal(none, attended({ DNN_VERSION = "91700" }, "check{9, 5}"))
    for major, runs in pairs { [8] = 6, [9] = 4 } do -- on 9, two gradients are wrong
      local wanted = ("runs=%d plans=%d left=0 engines=%d,0,0\nrc=0\n"):format(runs, runs, runs)
      assert.equal(wanted, attended({ MOTH_EMULATED_MAJOR = tostring(major) },
        "check{3, 64} check{64, 64} check{64, 64, causal = true}"))
    end
    assert.equal(none, attended({}, [[
      check{1, 5} check{5, 1} check{9, 5, 12} check{9, 5, 264} check{9, 5, scale = -1}
      check{9, 5, shared = {1, 4}}
      check{9, 5, lead = {2, 4, 4}, shared = {2, 4, 1}, values = {2, 1, 4}}
      check{9, 5, shared = {2, 1}, values = {2, 4}}
    ]]))
    assert.equal("rc=0\n", attended({}, "check{9, 5, mask = moth.randn(9, 5):gt(-1)}"))
  end)

  it("uses Moth's kernels for a gradient whose scratch does not fit", function()
    assert.equal("runs=2 plans=2 left=0 engines=2,0,0\nrc=0\n", attended({}, [[
      local x, wanted = {}, {}
      for i = 1, 3 do
        x[i] = moth.randn({2, 4, 16, 128}, {dtype = moth.float16}):cuda():requires_grad_()
      end
      local y = F.scaled_dot_product_attention(x[1], x[2], x[3])
      local dy = moth.ones_like(y)
      y:backward(dy, {retain_graph = true})
      for i = 1, 3 do wanted[i], x[i].grad = x[i].grad:cpu():float(), nil end
      moth.collect()
      cuda = moth.cuda -- three gradients of 32 KiB fit, but no further 64 KiB
      cuda.set_memory_limit(cuda.memory_allocated() + 140 * 1024)
      local ok, message = pcall(y.backward, y, dy)
      cuda.set_memory_limit(0)
      assert(ok, message)
      for i = 1, 3 do assert(moth.allclose(x[i].grad:cpu():float(), wanted[i], 1e-2, 1e-2)) end
    ]]))
  end)

  it("uses Moth's kernels if it is switched off, or if results must repeat", function()
    for _, off in ipairs { "cuda.enable_cudnn_sdp(false)", "moth.backends.cudnn.enabled = false",
                           "moth.use_deterministic_algorithms(true)" } do
      assert.equal("rc=0\n", attended({}, off .. " check{9, 5}"))
    end
  end)
end)

describe("a matrix product by cuBLASLt", function()
  if not emulated then return pending(why) end

  local path
  setup(function() path = built "blaslt" end)
  teardown(function() os.remove(path) end)

  local function multiplied(settings, code)
    return with("MOTH_CUBLASLT", path, settings, [[
      local function check(f, ...)
        local here, there = {...}, {}
        for i, x in ipairs(here) do there[i] = x:cuda() end
        local wanted, got = f(unpack(here)), f(unpack(there)):cpu()
        local off = (wanted - got):abs():max():item()
        local most = wanted:element_size() == 2 and 0.02 or 1e-5
        assert(off < most * (1 + wanted:abs():max():item()), ("off by %g"):format(off))
      end
      local function r(...) return moth.randn {...} end
      moth.manual_seed(1)
    ]] .. code)
  end

  it("agrees with the CPU for every layout of its factors", function()
    local text = multiplied({}, [[
      check(moth.matmul, r(5, 130), r(130, 3))
      check(moth.matmul, r(130, 5):t(), r(3, 130):t())
      check(moth.matmul, r(9, 140)[{{2, 6}, {3, 132}}], r(130, 8)[{{}, {2, 4}}])
      check(moth.matmul, r(4, 5, 130), r(4, 130, 3))
      check(moth.matmul, r(2, 3, 5, 130), r(3, 130, 2))
      check(moth.matmul, r(1, 130), r(130, 1))
      check(moth.addmm, r(5, 3), r(5, 130), r(130, 3))
      check(moth.nn.functional.linear, r(5, 130), r(3, 130), r(3))
      check(moth.nn.functional.linear, r(5, 130):double(), r(3, 130):double(), r(3):double())
    ]])
    assert.truthy(text:find("^products=%d+ heuristics=%d+ left=0 sums=7\nrc=0\n$"), text)
    assert.truthy(tonumber(text:match "products=(%d+)") >= 9, text)
  end)

  it("applies relu after the library's product, so that a NaN stays", function()
    local text = multiplied({}, [[
      local F = moth.nn.functional
      local function relu(x, w, b) return F.linear(x, w, b, "relu") end
      check(relu, r(5, 130), r(3, 130), r(3))
      check(relu, r(5, 130), r(3, 130))
      check(relu, r(6, 130), r(8, 130), r(8))
      for _, n in ipairs {3, 8} do -- the library adds no bias to these
        check(relu, r(5, 130):double(), r(n, 130):double(), r(n):double())
        check(F.linear, r(5, 130):double(), r(n, 130):double(), r(n):double())
        for _, dtype in ipairs {moth.float16, moth.bfloat16} do
          check(relu, r(5, 130):to(dtype), r(n, 130):to(dtype), r(n):to(dtype))
        end
      end
      local x = moth.full({2, 130}, -1)
      x[{1, 9}] = 0 / 0
      local y = relu(x:cuda(), moth.ones(1, 130):cuda())
      assert(y[1]:isnan():item() and y[2]:item() == 0)
    ]])
    assert.truthy(text:find("^products=12 heuristics=%d+ left=0 sums=7\nrc=0\n$"), text)
  end)

  it("gets the alignment of a bias, which may be any", function()
    local text = multiplied({}, [[
      local x, w, all = r(5, 130), r(8, 130), r(12)
      local a, b, c = x:cuda(), w:cuda(), all:cuda()
      for first = 1, 5 do
        local range = {{first, first + 7}}
        local wanted = moth.nn.functional.linear(x, w, all[range])
        assert(moth.allclose(moth.nn.functional.linear(a, b, c[range]):cpu(), wanted, 1e-5, 1e-6))
      end
    ]])
    assert.equal("products=5 heuristics=4 left=0 sums=7\nrc=0\n", text) -- 4, 8, 16, 256 bytes
  end)

  it("computes a bias's gradient with the weight's, except in float64", function()
    local text = multiplied({}, [[
      local function gradients(device, dtype, shape)
        moth.manual_seed(2)
        local layer = moth.nn.Linear(6, 3):to(device):to(dtype)
        layer(moth.randn(shape):to(dtype):to(device)):square():sum():backward()
        return moth.cat({layer.weight.grad:view(-1), layer.bias.grad}):cpu():float()
      end
      for _, dtype in ipairs {moth.float32, moth.float64, moth.bfloat16} do
        for _, shape in ipairs {{130, 6}, {2, 65, 6}} do
          local wanted, got = gradients("cpu", dtype, shape), gradients("cuda", dtype, shape)
          local most = dtype == moth.bfloat16 and 0.02 or 1e-5
          assert((wanted - got):abs():max():item() < most * wanted:abs():max():item(), dtype)
        end
      end
    ]])
    assert.truthy(text:find("^products=%d+ heuristics=%d+ left=0 sums=%d summed=4\nrc=0\n$"), text)
  end)

  it("uses Moth's kernel for small products, by shape alone", function()
    assert.equal("small\nproducts=2 heuristics=2 left=0 sums=7\nrc=0\n", multiplied({}, [[
      local linear = moth.nn.functional.linear
      for _, dtype in ipairs {moth.float32, moth.float64, moth.float16} do
        check(linear, r(64, 128):to(dtype), r(50, 128):to(dtype), r(50):to(dtype))
      end
      check(moth.bmm, r(6, 200, 16), r(6, 16, 200)) -- 96 tiles
      local layer = moth.nn.Linear(128, 64):cuda()
      layer(r(100, 128):cuda()):sum():backward()
      print "small"
      check(linear, r(3, 129), r(2, 129))
      check(moth.bmm, r(7, 200, 16), r(7, 16, 200))
    ]]))
  end)

  it("is planned once, and is deterministic on request", function()
    assert.equal("products=4 heuristics=1 left=0 sums=6\nrc=0\n", multiplied({}, [[
      moth.use_deterministic_algorithms(true)
      local a, b = r(5, 130), r(130, 3)
      for _ = 1, 4 do check(moth.matmul, a, b) end
    ]]))
  end)

  -- On a GPU, padded copies are worth it from about 10^9 multiplications on.
  local lines = [[
    moth.manual_seed(3)
    moth.set_float32_matmul_precision "high"
    local function whole(rows, cols) return moth.randint(-2, 3, {rows, cols}) end
    for _, dtype in ipairs {moth.bfloat16, moth.float16, moth.float32} do
      local a, b = whole(70, 131), whole(131, 69)
      local function there(x) return x:to(dtype):cuda() end
      local wanted = a:matmul(b):to(dtype)
      local function same(y) assert(moth.equal(y:cpu(), wanted)) end
      same(there(a):matmul(there(b)))
      same(there(a:t():contiguous()):t():matmul(there(b)))
      same(there(a):matmul(there(b:t():contiguous()):t()))
      same(there(moth.cat({whole(70, 1), a}, 2))[{{}, {2, -1}}]:matmul(there(b)))
      local bias = whole(1, 69)[1]:to(dtype)
      local y = moth.nn.functional.linear(there(a), there(b:t():contiguous()), bias:cuda(), "relu")
      assert(moth.equal(y:cpu(), (a:matmul(b) + bias):relu():to(dtype)))
    end
  ]]

  it("gets lines that begin at multiples of 16 bytes, where it is worth it", function()
    local text = multiplied({ LT_ALIGNED = "1", MOTH_EMULATED_SMALL = "1" }, lines)
    assert.equal("products=15 heuristics=12 left=0 sums=7\nrc=0\n", text)
  end)

  it("uses tensor cores with such lines without the library", function()
    assert.equal("rc=0\n", with("MOTH_CUBLASLT", "none", { MOTH_EMULATED_SMALL = "1" }, lines .. [[
      local a, b = moth.randn(70, 131), moth.randn(131, 69)
      local y = a:matmul(b)
      local off = ((a:cuda():matmul(b:cuda()):cpu() - y):abs():max() / y:abs():max()):item()
      assert(off > 2e-6 and off < 2e-3, off) -- TF32
    ]]))
  end)

  it("uses the factors without copies if there is no memory for such lines", function()
    assert.equal("rc=0\n", with("MOTH_CUBLASLT", "none", { MOTH_EMULATED_SMALL = "1" }, [[
      local lib, ffi = require "moth.binding.lib", require "ffi"
      local half = {dtype = moth.float16, device = "cuda"}
      local a, b = moth.ones({70, 131}, half), moth.ones({131, 69}, half)
      moth.cuda.empty_cache()
      moth.cuda.set_memory_limit(moth.cuda.memory_allocated() + 70 * 69 * 2 + 2048)
      local y = a:matmul(b)
      assert(ffi.string(lib.C.moth_error(lib.ctx, 1)) == "", "what was tried is told as a failure")
      moth.cuda.set_memory_limit(0)
      assert(moth.equal(y:cpu():float(), moth.full({70, 69}, 131)))
    ]]))
  end)

  it("uses Moth's kernel if the library fails to run it", function()
    assert.equal("products=0 heuristics=1 left=0 sums=7\nrc=0\n",
      multiplied({ LT_REFUSES = "1" }, "check(moth.matmul, r(5, 130), r(130, 3))"))
  end)
end)
