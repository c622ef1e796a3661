--- ops.lua -- the single calls of `moth bench cuda`: launch, gemm, memory, conv, attention.

local moth = require "moth"
local rows = require "gpu.rows"

local F = moth.nn.functional
local op = rows.op

-- ---- launch: overhead per call, L2 warm ----

local function nothing() return {} end

local function launch(name, text, inputs, fn)
  op("launch/" .. name, text, inputs, fn, { l2 = "warm", work = nothing })
end

launch("add16", "a + b", "[16] [16]", function(a, b) return a + b end)
launch("matmul4", "a @ b", "[4,4] [4,4]", function(a, b) return a:matmul(b) end)
launch("square0", "x * x, zero-dimensional: the smallest graph", "*[]",
  function(x) return x * x end)
launch("item", "read one number from the device", "[]", function(x) return x:item() end)

-- ---- gemm: L2 warm ----

local function product(name, text, inputs, fn, variant)
  op("gemm/" .. name, text, inputs, fn, {
    variant = variant, l2 = "warm", both = 3,
    work = function(xs, results) return { flop = 2 * results[1]:numel() * xs[1]:size(-1) } end,
  })
end

local SHAPES = { { 1024, 1024, 1024 }, { 4096, 4096, 4096 }, { 8192, 8192, 8192 },
  { 128, 512, 512 }, { 64, 784, 128 }, { 8192, 8192, 64 } }

for _, variant in ipairs { "f32", "tf32", "bf16", "f16" } do
  for _, s in ipairs(SHAPES) do
    local m, k, n = unpack(s)
    product(("%dx%dx%d"):format(m, k, n), "a @ b", ("[%d,%d] [%d,%d]"):format(m, k, k, n),
      function(a, b) return a:matmul(b) end, variant)
  end
  product("batch64_256x256x256", "a @ b", ("[64,256,256] "):rep(2),
    function(a, b) return a:bmm(b) end, variant)
end
product("linear_gelu_8192x1024x4096", "gelu, exact (erf), of x @ w.t() + b",
  "*[8192,1024] *[4096,1024] *[4096]",
  function(x, w, b) return F.gelu(F.linear(x, w, b)) end, "bf16")

-- ---- memory: bound by memory, L2 cold ----

local function memory(name, text, inputs, fn, options)
  op("memory/" .. name, text, inputs, fn, options)
end

for _, size in ipairs { "1e7", "1e8" } do
  local shape = ("[%d]"):format(tonumber(size))
  for _, variant in ipairs { "f32", "bf16" } do
    local options = { variant = variant }
    memory("add/" .. size, "a + b", shape .. " " .. shape, function(a, b) return a + b end, options)
    memory("gelu/" .. size, "gelu, exact (erf)", shape, function(x) return F.gelu(x) end, options)
    memory("relu/" .. size, "relu", shape, function(x) return x:relu() end, options)
    memory("exp/" .. size, "exp", shape, function(x) return x:exp() end, options)
  end
end
for d = 0, 1 do
  memory("sum/dim" .. d, "over dimension " .. d, "[8192,8192]",
    function(x) return x:sum(d + 1) end)
  memory("max/dim" .. d, "values and positions", "[8192,8192]", function(x)
    local values, positions = x:max(d + 1)
    return values, positions
  end)
end
for _, s in ipairs { { 8192, 8192 }, { 65536, 64 } } do
  local shape = ("*[%d,%d]"):format(s[1], s[2])
  for _, name in ipairs { "softmax", "log_softmax" } do
    memory(("%s/%dx%d"):format(name, s[1], s[2]), "over dimension 1; fwdbwd: 5 passes", shape,
      function(x) return F[name](x, 2) end, { both = 2.5 })
  end
end
memory("layer_norm/16384x1024", "of each row, affine; fwdbwd: 5 passes",
  "*[16384,1024] *[1024] *[1024]",
  function(x, w, b) return F.layer_norm(x, x:size(2), w, b) end, { both = 2.5 })
memory("batch_norm/256x64x56x56", "training, affine; moves the last two inputs; 3 passes, both 8",
  "*[256,64,56,56] *[64] *[64] [64] [64]", function(x, w, b, mean, var)
    return F.batch_norm { x, mean, var, w, b, training = true }
  end, { both = 8 / 3, work = function(_, results)
    return { bytes = 3 * results[1]:numel() * results[1]:element_size() }
  end })
memory("dropout/1e8", "p 0.5, training", "*[100000000]", function(x) return F.dropout(x) end)
memory("randn/1e8", "as many fresh normal numbers", "[100000000]",
  function(x) return moth.randn_like(x) end,
  { work = function(_, results) return rows.traffic({}, results) end })
memory("transpose_copy/16384", "contiguous", "[16384,16384]",
  function(x) return x:t():contiguous() end)
memory("cross_entropy/8192x50257", "mean; fwdbwd: 3 passes", "*[8192,50257] ids[8192]<50257",
  function(x, classes) return F.cross_entropy(x, classes) end, { both = 3 })

local function rows_twice(_, results)
  return { bytes = 2 * results[1]:numel() * results[1]:element_size() }
end

memory("embedding/50257x768", "rows of x; dense gradient, written once",
  "*[50257,768] ids[16384]<50257", function(x, ids) return F.embedding(ids, x) end,
  { work = rows_twice, both = 3.03 })
memory("index_select/50257x768", "rows of x; dense gradient, written once",
  "*[50257,768] ids[16384]<50257", function(x, ids) return x:index_select(1, ids) end,
  { work = rows_twice, both = 3.03 })
memory("gather/8192x8192", "dimension 1", "*[8192,8192] ids[8192,8192]<8192",
  function(x, ids) return x:gather(2, ids) end)
memory("scatter_add/1e7", "x:scatter_add_(1, ids, y)", "[1000000] ids[10000000]<1000000 [10000000]",
  function(x, ids, y) return x:scatter_add_(1, ids, y) end)
memory("masked_select/1e7", "x[mask]", "*[10000000] mask[10000000]",
  function(x, mask) return x:masked_select(mask) end)
memory("sort/1e7", "values and positions, ascending", "[10000000]", function(x)
  local values, positions = x:sort()
  return values, positions
end)
memory("topk/4096x4096_k10", "of each row, sorted, positions", "[4096,4096]", function(x)
  local values, positions = x:topk(10)
  return values, positions
end)
memory("cumsum/4096x4096", "dimension 1", "*[4096,4096]", function(x) return x:cumsum(2) end)
memory("copy/8GB", "x:copy_(y): 8 GB read, 8 GB written", "[2000000000] [2000000000]",
  function(x, y) return x:copy_(y) end, { work = rows_twice })

rows.add("memory/host_copy", "Blocking copy of 256 MiB to or from the device.", function(mode)
  local host = moth.randn { rows.cap(2 ^ 26), device = "cpu" }
  local locked, pinned = pcall(function() return host:pin_memory() end)
  if locked then host = pinned end -- page-locked memory, if Moth has it
  local target, source = host:to "cuda", host
  if mode == "from" then target, source = source, target end
  return function() return target:copy_(source) end, rows.traffic({ host }, {})
end, "cold", { "to", "from" })

-- ---- conv: L2 warm ----

local function conv(name, x, weight, options)
  options = options or {}
  local fn = F[options.fn or "conv2d"]
  local transposed = options.fn == "conv_transpose2d"
  local sizes = {}
  for size in weight:gmatch "%d+" do sizes[#sizes + 1] = size end
  local inputs = ("*[%s] *[%s] *[%s]"):format(x, weight, sizes[transposed and 2 or 1])
  local stride, padding = options.stride or 1, options.padding or 0
  for _, variant in ipairs { "tf32", "bf16", "bf16_cl" } do
    op("conv/" .. name, "x, weight, bias", inputs, function(input, w, b)
      return fn(input, w, b, { stride = stride, padding = padding,
        groups = rows.cap(options.groups or 1) })
    end, { variant = variant, l2 = "warm", both = 3, work = function(xs, results)
      local places = (transposed and xs[1] or results[1]):numel()
      return { flop = 2 * places * xs[2]:numel() / xs[2]:size(1) }
    end })
  end
end

conv("256x64x56x56_k3", "256,64,56,56", "64,64,3,3", { padding = 1 })
conv("256x128x28x28_k3", "256,128,28,28", "128,128,3,3", { padding = 1 })
conv("256x3x224x224_k7s2", "256,3,224,224", "64,3,7,7", { stride = 2, padding = 3 })
conv("256x256x14x14_k1", "256,256,14,14", "1024,256,1,1")
conv("depthwise_256x128x28x28_k3", "256,128,28,28", "128,1,3,3", { padding = 1, groups = 128 })
conv("transpose_64x256x16x16_k4s2", "64,256,16,16", "256,128,4,4",
  { stride = 2, padding = 1, fn = "conv_transpose2d" })
conv("3d_8x16x32x64x64_k3", "8,16,32,64,64", "32,16,3,3,3", { padding = 1, fn = "conv3d" })

-- ---- attention: L2 warm ----

for _, t in ipairs { 1024, 4096 } do
  for _, variant in ipairs { "bf16", "f32" } do
    op(("attention/sdpa_8x16x%dx64"):format(t), "causal; q, k, v: [B,H,T,D]; flop of the causal "
      .. "half, fwdbwd 3.5 times fwd", ("*[8,16,%d,64] "):format(t):rep(3),
      function(q, k, v) return F.scaled_dot_product_attention { q, k, v, is_causal = true } end,
      { variant = variant, l2 = "warm", both = 3.5, work = function(xs, results)
        return { flop = 2 * results[1]:numel() * xs[1]:size(3) }
      end })
  end
end
