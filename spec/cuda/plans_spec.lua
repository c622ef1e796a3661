-- Moth's requests to cuDNN, checked by cuDNN itself without a GPU: it makes plans for a device
-- whose properties are given as text (spec/host/plans.c). The results of plans need a GPU.

local ffi = require "ffi"
local cuda = require "spec.support.cuda"
local library = require "spec.support.library"
local process = require "spec.support.process"

local OLDEST = 91100 -- the first version that reads properties as text

--- Name, capability, multiprocessors, maximal shared memory of a block in bytes.
local CARDS = {
  { "NVIDIA T4", 75, 40, 65536 }, { "NVIDIA A100", 80, 108, 166912 },
  { "NVIDIA H200", 90, 132, 232448 }, { "NVIDIA B200", 100, 148, 232448 },
}

local function properties(card)
  local more = card[2] == 75 and 1024 or 2048 -- threads of a multiprocessor
  return ([[{"deviceName": "%s", "deviceVer": %d, "multiProcessorCount": %d,
    "maxSharedMemoryPerBlockOptin": %d, "maxSharedMemoryPerBlock": 49152, "driverVer": 13000,
    "totalGlobalMem": 100000000000, "l2CacheSize": 50000000, "cudaDeviceId": 0, "warpSize": 32,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "maxThreadsPerBlock": 1024, "maxThreadsPerSM": %d, "maxCtasPerSM": %d, "regsPerBlock": 65536,
    "maxRegistersPerSM": 65536, "reservedSharedMemoryPerBlock": 1024, "supportCoopLaunch": 1,
    "smClockRateKHz": 1700000, "memClockRateKHz": 2000000, "pciDeviceId": 0, "isTccDriver": 0}]])
    :format(card[1], card[2] * 10, card[3], card[4], more, more / 64)
end

local function toolkit()
  return process.shell("command -v nvcc"):match "^(/.*)/bin/nvcc\n"
end

--- The file of cuDNN and its version; nil: there is none.
local function find()
  local files = { os.getenv "MOTH_CUDNN" or "libcudnn.so.9" }
  if toolkit() then files[2] = toolkit() .. "/lib/libcudnn.so.9" end
  pcall(ffi.cdef, "size_t cudnnGetVersion(void);")
  for _, file in ipairs(files) do
    local there, dnn = pcall(ffi.load, file)
    if there then return file, tonumber(dnn.cudnnGetVersion()) end
  end
end

--- The driver loads the kernels that cuDNN compiles at run time. Without a driver, the toolkit's
-- list of driver functions serves to build a substitute that accepts any code. @return a folder
-- with libcuda.so.1, or "" if it is installed; nil: neither exists
local function driver()
  if pcall(ffi.load, "libcuda.so.1") then return "" end
  local folder = os.tmpname()
  local text = process.shell(([[
    stub=$(ls %s/lib*/stubs/libcuda.so | head -1) && rm '%s' && mkdir '%s' || exit 1
    nm -D --defined-only "$stub" | awk '$2 == "T" && $3 ~ /^cu/ {
      loads = $3 ~ /^cu(Library|Kernel|Module|Func)(Load|Get(Kernel|Module|Function)|Unload|Set)/
      if (loads && $3 ~ /Load|Get/) print "int " $3 "(void **to) { *to = (void *)16; return 0; }"
      else print "int " $3 "(void) { return " (loads ? 0 : 34) "; }" }' |
    cc -w -x c -shared -fPIC -o '%s/libcuda.so.1' -]])
    :format(toolkit() or "", folder, folder, folder))
  if text == "rc=0\n" then return folder end
end

local file, version = find()
local drivers = version and version >= OLDEST and driver()

describe("cuDNN has plans", function()
  if not (cuda.here and cuda.name:find("emulated", 1, true)) then
    return pending "are asked for by the plugin that runs kernels on the CPU"
  elseif not drivers then
    return pending "takes cuDNN from 9.11 on, and CUDA's toolkit or driver"
  end

  local path
  setup(function() path = library.built "plans" end)
  teardown(function()
    os.remove(path)
    if drivers ~= "" then process.shell(("rm -r '%s'"):format(drivers)) end
  end)

  --- Runs code. @return its lines about graphs
  local function planned(card, code)
    return library.with("MOTH_CUDNN", path, {
      MOTH_EMULATED_NULL = "1", MOTH_EMULATED_MAJOR = tostring(math.floor(card[2] / 10)),
      PLANS_CUDNN = file, PLANS_CARD = properties(card),
      LD_LIBRARY_PATH = drivers .. ":" .. (os.getenv "LD_LIBRARY_PATH" or ""),
    }, [[
      local F, last = moth.nn.functional, moth.channels_last
      local last_3d = moth.channels_last_3d
      local function empty(shape, dtype, format)
        local x = moth.empty(shape, {dtype = dtype, device = "cuda"})
        return (format and x:to{memory_format = format} or x):requires_grad_()
      end
    ]] .. code)
  end

  --- Each line is three graphs: the result, and the gradients of images and filters.
  local CONVOLUTIONS = [[
    local n = 0
    local function convolve(convolution, x, w, options, format)
      n = n + 1 -- a batch size for this case
      x[1] = n
      x, w = empty(x, DTYPE, format), empty(w, DTYPE, format)
      local bias = n % 2 == 0 and empty({convolution == F.conv_transpose2d and w:size(2) or
        w:size(1)}, DTYPE) or nil
      local y = convolution(x, w, bias, options)
      y:backward(moth.empty_like(y))
    end
    for _, format in ipairs { false, last } do
      convolve(F.conv2d, {0, 16, 14, 14}, {32, 16, 3, 3}, {padding = 1}, format)
      convolve(F.conv2d, {0, 16, 14, 14}, {32, 16, 3, 3}, {padding = 1}, format)
      convolve(F.conv2d, {0, 3, 32, 32}, {64, 3, 7, 7}, {padding = 3, stride = 2}, format)
      convolve(F.conv2d, {0, 16, 14, 15}, {8, 16, 1, 1}, {stride = 1}, format)
      convolve(F.conv2d, {0, 5, 14, 15}, {7, 5, 3, 2}, {dilation = {1, 2}}, format)
      convolve(F.conv2d, {0, 8, 14, 14}, {12, 4, 3, 3}, {groups = 2}, format)
      convolve(F.conv_transpose2d, {0, 8, 7, 7}, {8, 6, 4, 4}, {stride = 2, padding = 1}, format)
    end
    convolve(F.conv2d, {0, 8, 14, 14}, {8, 1, 3, 2}, {groups = 8, padding = 1}, last)
    convolve(F.conv1d, {0, 8, 30}, {8, 8, 3}, {padding = 1})
    convolve(F.conv3d, {0, 4, 8, 9, 10}, {6, 4, 3, 3, 3}, {padding = 1})
    convolve(F.conv3d, {0, 4, 8, 9, 10}, {6, 4, 3, 3, 3}, {padding = 1}, last_3d)
  ]]

  --- Each line is two graphs without a mask and two with a causal one.
  local ATTENTION = [[
    moth.backends.cudnn.benchmark = true -- a shape is planned at its first use
    local function attend(batch, heads, shared, queries, keys, e, v, turned)
      local function some(h, rows, size)
        local x = empty(turned and {batch, rows, h, size} or {batch, h, rows, size}, DTYPE)
        return (turned and x:transpose(2, 3) or x):detach():requires_grad_()
      end
      local q, k, v = some(heads, queries, e), some(shared, keys, e), some(shared, keys, v)
      for _, is_causal in ipairs { false, true } do
        local y = F.scaled_dot_product_attention(q, k, v,
          {is_causal = is_causal, enable_gqa = heads ~= shared})
        y:backward(moth.empty_like(y))
      end
    end
    attend(2, 4, 4, 256, 256, 64, 64)
    attend(2, 8, 2, 128, 128, 128, 128, true)
    if not ALL then return end -- each is compiled, which takes time
    attend(2, 2, 2, 77, 200, 40, 40)
    attend(1, 2, 2, 5, 3, 64, 128)
    attend(3, 2, 1, 70, 70, 16, 8, true)
    attend(1, 2, 2, 130, 130, 256, 256)
  ]]

  local function convolved(card, dtype, tf32)
    local settings = ("local DTYPE = moth.%s moth.backends.cudnn.allow_tf32 = %s ")
      :format(dtype, tostring(tf32 or false))
    return planned(card, settings .. CONVOLUTIONS)
  end

  for _, card in ipairs(CARDS) do
    it("for every convolution that Moth requests on " .. card[1], function()
      local all, dtypes = "graphs=54 ran=54 refused=0\nrc=0\n", { "float32", "float16", "float64" }
      if card[2] >= 80 then dtypes[4] = "bfloat16" end -- Moth's kernels run it for older versions
      for _, dtype in ipairs(dtypes) do assert.equal(all, convolved(card, dtype), dtype) end
      assert.equal(all, convolved(card, "float32", true), "TF32")
    end)

    it("for attention, forward and backward, on " .. card[1], function()
      local hopper = card[2] == 90
      local graphs = hopper and 24 or card[2] >= 80 and 8 or 0
      assert.equal(("graphs=%d ran=%d refused=0\nrc=0\n"):format(graphs, graphs),
        planned(card, ("local DTYPE, ALL = moth.%s, %s "):format(
          hopper and "bfloat16" or "float16", tostring(hopper)) .. ATTENTION))
    end)
  end
end)
