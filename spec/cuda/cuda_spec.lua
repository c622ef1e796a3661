-- Tensors on a GPU: devices, copies, errors, and that CUDA is opened only at its first use.
-- spec/cuda/golden_spec checks the values of ops.

local ffi = require "ffi"
local moth = require "moth"
local child = require "spec.support.child"
local cuda = require "spec.support.cuda"
local files = require "spec.support.files"
local lib = require "moth.binding.lib"
local process = require "spec.support.process"

local nn, F = moth.nn, moth.nn.functional

describe("a tensor on a GPU", function()
  if not cuda.here then
    pending("goes there and back: " .. cuda.why)
    return
  end

  it("is copied there and back unchanged, in every dtype and layout", function()
    for _, name in ipairs { "bool", "uint8", "int8", "int16", "int32", "int64", "float16",
                            "bfloat16", "float32", "float64" } do
      local x = (moth.randn(3, 4, 5) * 40):to(moth[name])
      for _, y in ipairs { x, x:transpose(1, 3), x[{ {}, { 2, 4, 2 } }], x:narrow(1, 2, 0) } do
        local there = y:to("cuda")
        assert.equal("cuda:0", tostring(there.device))
        assert.is_true(there.is_cuda)
        assert.is_true(there:cpu():equal(y))
        assert.equal(y.dtype, there.dtype)
      end
    end
  end)

  it("is returned itself if it is there already", function()
    local x = moth.ones(2, { device = "cuda" })
    assert.equal(x, x:to("cuda"))
    assert.equal(x, x:cuda())
    assert.is_false(x:cpu().is_cuda)
  end)

  it("is printed, read and listed like any other", function()
    local x = moth.tensor({ { 1, 2 }, { 3, 4 } }, { device = "cuda" })
    assert.same({ { 1, 2 }, { 3, 4 } }, x:tolist())
    assert.equal(4, x[2][2]:item())
    assert.truthy(tostring(x):find("3, 4", 1, true))
    assert.matches("%[moth.float32 of size 2x2, device=cuda:0%]", tostring(x))
    assert.matches("%[moth.float32, device=cuda:0, grad_fn=<Sum>%]",
      tostring(x:requires_grad_():sum()))
  end)

  it("combines with numbers and 0-d CPU tensors, but not with other CPU tensors", function()
    local x = moth.tensor({ 1, 2 }, { device = "cuda" })
    assert.same({ 3, 6 }, (x * 3):tolist())
    assert.same({ 1.5, 2.5 }, (x + moth.tensor(0.5)):tolist())
    assert.has_error_like(function() return x + moth.ones(2) end,
      "bad argument 'other' to 'add' %(it is on cpu, but 'input' on cuda:0; move one of")
    local weight = moth.ones(3, 2)
    assert.has_error_like(function() return F.linear(x, weight) end,
      "bad argument 'weight' to 'linear' %(it is on cpu, but 'input' on cuda:0; move one of")
    local three = { moth.ones(2), moth.ones(2), x }
    assert.has_error_like(function() return moth.cat(three) end,
      "bad argument 'tensors' to 'cat' %(number 3 is on cuda:0, but number 1 on cpu; move one of")
    assert.has_error_like(function() return F.linear(x:cpu(), weight:cuda()) end,
      "bad argument 'weight' to 'linear' %(it is on cuda:0, but 'input' on cpu; move one of")
    assert.equal("E_DEVICE", moth.errcode())
  end)

  it("passes its gradient to a leaf on the CPU", function()
    local x = moth.tensor({ 1, -2, 3 }, { requires_grad = true })
    local y = F.relu(x:cuda()) * 2
    y:backward(moth.ones(3, { device = "cuda" }))
    assert.same({ 2, 0, 2 }, x.grad:tolist())
    assert.is_false(x.grad.is_cuda)
  end)

  it("gets its gradients there, from a loss of one element", function()
    local x = moth.ones({ 1, 2 }, { device = "cuda", requires_grad = true })
    x:view(2):sum():backward()
    assert.same({ { 1, 1 } }, x.grad:tolist())
    local y = moth.ones({ 1 }, { device = "cuda", requires_grad = true })
    y:expand(1, 1):backward()
    assert.is_true(y.grad.is_cuda)
  end)

  it("reports a division by 0 at the next synchronization, with the op's name", function()
    local x = moth.tensor({ 1LL, 0LL }, { device = "cuda" })
    assert.has_error_like(function()
      local y = x:div(x, { rounding_mode = "floor" })
      return y:tolist()
    end, "'div', which ran before on the GPU, divided integers by 0")
    assert.same({ 2, 1 }, (x + 1):tolist())
  end)
end)

describe("a module on a GPU", function()
  if not cuda.here then
    pending("keeps its objects: " .. cuda.why)
    return
  end

  it("keeps its objects, and its gradients move with it", function()
    local net = nn.BatchNorm1d(3)
    local weight = net.weight
    weight.grad = moth.ones(3)
    net:to("cuda")
    assert.equal(weight, net.weight)
    assert.is_true(weight.is_cuda and weight.grad.is_cuda and net.num_batches_tracked.is_cuda)
    net:cpu()
    assert.is_false(weight.is_cuda or net.num_batches_tracked.is_cuda)
  end)
end)

describe("memory of a GPU", function()
  if not cuda.here then
    pending("is counted: " .. cuda.why)
    return
  end

  it("is counted, cached and returned", function()
    moth.collect()
    moth.cuda.empty_cache()
    local before, reserved = moth.cuda.memory_allocated(), moth.cuda.memory_reserved()
    moth.scope(function()
      local x = moth.zeros(1000, { device = "cuda" })
      assert.equal(before + 4000, moth.cuda.memory_allocated())
      assert.is_true(x.is_cuda)
    end)
    assert.equal(before, moth.cuda.memory_allocated())
    assert.is_true(moth.cuda.memory_reserved() > before)
    moth.cuda.empty_cache()
    assert.equal(reserved, moth.cuda.memory_reserved())
  end)

  it("fits a large tensor closely, and is reused for one a little smaller", function()
    local MIB = 2^20
    local function empty(mib)
      return moth.empty(mib * MIB, { dtype = moth.uint8, device = "cuda" })
    end
    moth.collect()
    for _, mib in ipairs { 41, 129 } do
      moth.cuda.empty_cache()
      local before = moth.cuda.mem_get_info()
      moth.scope(function() empty(mib) end)
      local taken = before - moth.cuda.mem_get_info()
      assert.is_true(taken >= mib * MIB and taken <= (mib + 2) * MIB, taken / MIB .. " MiB")
      moth.scope(function() empty(mib * 15 / 16) end)
      assert.equal(taken, before - moth.cuda.mem_get_info())
    end
    moth.cuda.empty_cache()
  end)

  it("is returned with the tables of Fourier transforms", function()
    moth.collect()
    moth.cuda.empty_cache()
    local before = moth.cuda.memory_reserved()
    local x = moth.rand(3, 60)
    local function transformed() return moth.fft.rfft(x:cuda()):cpu() end
    local first = transformed()
    assert.is_true(moth.cuda.memory_reserved() > before)
    moth.collect()
    moth.cuda.empty_cache()
    assert.equal(before, moth.cuda.memory_reserved())
    assert.is_true(moth.equal(first, transformed()))
  end)

  it("is counted as free when Lua has collected the tensor", function()
    moth.collect()
    local before, reserved = moth.cuda.memory_allocated(), moth.cuda.memory_reserved()
    local function leave() return moth.ones(1000, 1000, { device = "cuda" }).is_cuda end
    leave()
    collectgarbage()
    collectgarbage()
    moth.cuda.empty_cache()
    assert.is_true(moth.cuda.memory_reserved() <= reserved)
    leave()
    collectgarbage()
    collectgarbage()
    assert.equal(before, moth.cuda.memory_allocated())
  end)

  it("cannot be read by the CPU, where an emulator protects it", function()
    if not cuda.name:find "emulated" then return end
    local x = moth.ones(4, { device = "cuda" })
    local address = ffi.cast("const volatile int *", x:data_ptr())
    assert.is_false(child.run(function() return address[0] >= 0 end))
    assert.is_true(child.run(function() return true end))
  end)

  it("has a limit that can be set", function()
    moth.collect()
    moth.cuda.set_memory_limit(moth.cuda.memory_allocated() + 1000)
    local ok = pcall(moth.zeros, 1000, { device = "cuda" })
    local code = moth.errcode()
    moth.cuda.set_memory_limit(0)
    assert.is_false(ok)
    assert.equal("E_LIMIT", code)
  end)
end)

describe("CUDA", function()
  local function said(code, settings)
    local pipe = io.popen(settings .. " " .. process.program .. " -e '" .. code .. "' 2>&1")
    local text = pipe:read "*a"
    pipe:close()
    return text
  end

  local ask = [[local moth = require "moth"; print(moth.cuda.is_available(),
    select(2, pcall(function() return moth.zeros(2):to("cuda") end)), moth.zeros(2):sum())]]

  it("is named if the plugin is missing, and the rest works", function()
    local text = said(ask, "MOTH_BACKEND_PATH=/nonexistent")
    assert.truthy(text:find("false", 1, true))
    assert.truthy(text:find("no CUDA device: libmoth_cuda.so was not found in /nonexistent", 1,
      true))
    assert.truthy(text:find("0", 1, true))
  end)

  it("is named if a library of the plugin is missing, with that library", function()
    if jit.os == "Windows" then return pending "plugins are Linux's" end
    files.setup()
    finally(files.teardown)
    local source = assert(io.open(lib.path, "rb")) -- needs libm.so.6
    local library = source:read("*a")
    source:close()
    files.write("libmoth_cuda.so", (library:gsub("libm%.so%.6%z", "libQ.so.6\0")))
    local text = said(ask, "MOTH_BACKEND_PATH=" .. files.folder)
    assert.truthy(text:find("no CUDA device: libmoth_cuda.so cannot be loaded: libQ.so.6: ", 1,
      true), text)
  end)

  it("fails in all later calls after an error, with the names of the last ops", function()
    if not (cuda.here and cuda.name:find "emulated") then return pending(cuda.why) end
    local text = said([[local moth = require "moth"
      local x = moth.ones(4, {device = "cuda"})
      local y = x * 3
      for _, f in ipairs {
        function() return y:cpu() end, function() return x + y end, moth.cuda.synchronize,
        function() return moth.zeros(100000, {device = "cuda"}) end,
      } do print(select(2, pcall(f))) end
      moth.cuda.empty_cache()
      print(moth.ones(4):sum())]], "MOTH_EMULATED_FAILS=2")
    local told = 0
    for line in text:gmatch "[^\n]+" do
      if line:find("the GPU failed in an earlier launch; last launches: mul, ones: unspecified "
        .. "launch failure (cudaErrorLaunchFailure)", 1, true) then told = told + 1 end
    end
    assert.equal(4, told, text)
    assert.matches("\n4 %[moth.float32%]\n$", text)
  end)

  it("frees its cache if a kernel's code does not fit", function()
    if not (cuda.here and cuda.name:find "emulated") then return pending(cuda.why) end
    local text = said([[local moth = require "moth"
      moth.ones(1000000, {device = "cuda"}):free()
      local x = moth.zeros(1000, {device = "cuda"})
      print(x:exp():sqrt():sum():item())]], "MOTH_EMULATED_MEMORY=8000000 "
      .. "MOTH_EMULATED_CODE=1200000")
    assert.equal("1000\n", text)
  end)

  it("is named if the driver is missing", function()
    if not cuda.here then
      pending(cuda.why)
      return
    end
    local text = said(ask, "MOTH_EMULATED_DRIVER=none")
    if cuda.name:find "emulated" then
      assert.truthy(text:find("the NVIDIA driver (libcuda.so.1) is missing", 1, true))
    end
  end)
end)

describe("the default device", function()
  it("is the CPU; when set, new tensors and layers are made there", function()
    assert.equal("cpu", tostring(moth.get_default_device()))
    if not cuda.here then
      pending(cuda.why)
      return
    end
    moth.set_default_device("cuda")
    local ok, made = pcall(function()
      local fft, normal = moth.fft, moth.distributions.Normal(0, 1)
      return { moth.zeros(2), moth.tensor({ 1, 2 }), nn.BatchNorm1d(2).weight,
               moth.arange(3), moth.range(1, 3), moth.randint(1, 4, { 3 }), moth.linspace(0, 1, 3),
               moth.logspace(0, 1, 3), moth.randperm(3), moth.hann_window(3), moth.eye(2),
               moth.tril_indices(2, 2), fft.fftfreq(4), fft.rfftfreq(4), normal:sample({ 2 }),
               nn.Transformer.generate_square_subsequent_mask(2), moth.normal(0, 1, { 2 }),
               moth.ones(2, { device = "cpu" }), moth.zeros_like(moth.ones(2, { device = "cpu" })),
               moth.arange(3, { device = "cpu" }), moth.randint(4, { 3 }, { device = "cpu" }),
               moth.randperm(3, { device = "cpu" }), moth.hann_window(3, { device = "cpu" }) }
    end)
    moth.set_default_device("cpu")
    assert(ok, made)
    for i, x in ipairs(made) do assert.equal(i <= 17, x.is_cuda, i) end
    assert.is_false(moth.zeros(2).is_cuda)
  end)
end)
