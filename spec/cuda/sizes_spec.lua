-- Kernels of a GPU that only large tensors use, in each dtype: sums that are split among blocks,
-- long rows, lists that are radix-sorted. The examples of ops and the golden samples are small.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local nn, F = moth.nn, moth.nn.functional
local ops = require("moth.binding.bind").ops

local FLOATS = { "float16", "bfloat16", "float32", "float64" }
local ALL = { "uint8", "int8", "int16", "int32", "int64", unpack(FLOATS) }
-- The tolerance, relative to the largest element.
local MOST = { float16 = 0.02, bfloat16 = 0.1, float32 = 2e-4, float64 = 1e-9 }

local function draw(dtype, ...)
  local x = moth.randn(...) * (MOST[dtype] and 1 or 9)
  return (dtype == "uint8" and x:abs() or x):to(moth[dtype])
end

local function alike(want, got, name, dtype)
  assert.same({ want.dtype, want.shape }, { got.dtype, got.shape }, name)
  if want:equal(got:cpu()) then return end
  local limit = (MOST[dtype] or 0) * (1 + want:double():abs():max():item())
  local off = (want:double() - got:cpu():double()):abs():max():item()
  assert(off <= limit, ("%s in %s: %g off, %g allowed"):format(name, dtype, off, limit))
end

-- The claim that f(...) returns the same on a GPU and on the CPU, with gradients for floats.
local function agrees(name, dtype, f, ...)
  local given = { ... }
  local function ran(device)
    local inputs, list = {}, {}
    for i, x in ipairs(given) do
      local float = x.dtype == moth[dtype] and MOST[dtype]
      inputs[i] = x:to(device):clone():requires_grad_(float and true or false)
    end
    moth.manual_seed(3)
    for i, y in ipairs { f(unpack(inputs)) } do list[i] = y end
    if list[1].requires_grad then
      list[1]:backward(moth.linspace(0.5, 1, list[1]:numel()):view(list[1].shape)
        :to { dtype = list[1].dtype, device = device })
      for i, x in ipairs(inputs) do
        if x.requires_grad then list[#list + 1] = assert(x.grad, name) end
        inputs[i] = nil
      end
    end
    return list
  end
  local want, got = ran "cpu", ran "cuda"
  for i, x in ipairs(want) do alike(x:detach(), got[i]:detach(), name, dtype) end
end

-- A list of `n` positions from 1 to `limit`, each more than once.
local function positions(n, limit) return moth.arange(n):mul(7):remainder(limit):add(1) end

describe("a large tensor on a GPU", function()
  if not cuda.here then return pending("is computed as on the CPU: " .. cuda.why) end
  before_each(function() moth.manual_seed(1) end)

  it("is reduced by several blocks", function()
    for _, dtype in ipairs(ALL) do
      for _, shape in ipairs { { 16500 }, { 700, 9 } } do
        local x = draw(dtype, shape)
        for _, op in ipairs { "sum", "all", "any", "amax", "argmax", "max" } do
          agrees(op, dtype, function(y) return y[op](y, 1) end, x)
        end
        agrees("prod", dtype, function(y) return y:prod(1) end, x:ge(0):to(x.dtype))
        for _, op in ipairs(MOST[dtype] and { "std", "norm", "logsumexp" } or {}) do
          agrees(op, dtype, function(y)
            if op == "norm" then return y:norm(3, 1) end
            return y[op](y, 1)
          end, x)
        end
        if MOST[dtype] then agrees("norm", dtype, function(y) return y:norm(2, 1) end, x) end
      end
    end
  end)

  it("is scanned by several blocks", function()
    for _, dtype in ipairs(ALL) do
      local x = draw(dtype, 2, 8200) * (MOST[dtype] and 0.02 or 1)
      for _, op in ipairs { "cumsum", "cummax", "cummin" } do
        agrees(op, dtype, function(y) return y[op](y, 2) end, x)
      end
      agrees("cumsum in its dtype", dtype, function(y)
        return y:cumsum(2, { dtype = y.dtype })
      end, x)
      agrees("cumprod", dtype, function(y) return y:cumprod(2) end, x:eq(x):to(x.dtype))
    end
  end)

  it("is sorted", function()
    for _, dtype in ipairs(ALL) do
      local x = draw(dtype, 2, 3000)
      agrees("sort", dtype, function(y) return y:sort(2, true, { stable = true }) end, x)
      agrees("topk", dtype, function(y) return (y:topk(5, 2)) end, x)
      agrees("median", dtype, function(y) return (y:median(2)) end, x)
    end
  end)

  it("is normalised row by row, and channel by channel", function()
    for _, dtype in ipairs(FLOATS) do
      for _, n in ipairs { 39, 40, 1504, 1501 } do
        local x, w, b = draw(dtype, 3, n), draw(dtype, n), draw(dtype, n)
        agrees("softmax", dtype, function(y) return y:softmax(2) end, x)
        agrees("log_softmax", dtype, function(y) return y:log_softmax(2) end, x)
        agrees("layer_norm", dtype, function(...)
          return F.layer_norm((...), { n }, select(2, ...))
        end, x, w, b)
      end
      agrees("softmax along", dtype, function(y) return y:softmax(2) end, draw(dtype, 3, 40, 7))
      agrees("log_softmax along", dtype, function(y)
        return y:log_softmax(2)
      end, draw(dtype, 3, 40, 7))
      for _, c in ipairs { 5, 16 } do
        for _, shape in ipairs { { 300, c }, { 4, c, 8, 16 }, { 3, c, 5, 7 } } do
          local x, w, b = draw(dtype, shape), draw(dtype, c), draw(dtype, c)
          for _, last in ipairs { false, #shape == 4 } do
            agrees("batch_norm", dtype, function(y, weight, bias)
              if last then y = y:contiguous { memory_format = moth.channels_last } end
              return F.batch_norm(y, nil, nil, weight, bias, { training = true })
            end, x, w, b)
          end
        end
      end
    end
  end)

  it("has its loss computed", function()
    for _, dtype in ipairs(FLOATS) do
      for _, n in ipairs { 16640, 5001 } do
        local x, y = draw(dtype, n), draw(dtype, n)
        for _, loss in ipairs { "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss" } do
          agrees(loss, dtype, F[loss], x, y)
        end
        local p = y:sigmoid()
        agrees("bce", dtype, F.binary_cross_entropy, x:sigmoid(), p)
        agrees("bce of logits", dtype, F.binary_cross_entropy_with_logits, x, p)
        agrees("kl_div", dtype, F.kl_div, x, p)
        agrees("kl_div of logs", dtype, function(a, b)
          return F.kl_div { a, b, log_target = true }
        end, x, p:log())
      end
      local x, y = draw(dtype, 2500, 3), positions(2500, 3)
      agrees("cross_entropy", dtype, F.cross_entropy, x, y)
      agrees("cross_entropy, weighted", dtype, F.cross_entropy, x, y,
        draw(dtype, 3):abs():add(0.1))
      agrees("cross_entropy of many", dtype, F.cross_entropy, draw(dtype, 3, 1504),
        positions(3, 1504))
    end
  end)

  it("is added to at a long list of positions", function()
    for _, dtype in ipairs(ALL) do
      local x, y, at = draw(dtype, 6, 3), draw(dtype, 3000, 3), positions(3000, 5)
      agrees("index_add", dtype, function(a, b, i) return a:index_add(1, i, b) end, x, y, at)
      agrees("index_copy", dtype, function(a, b, i)
        return a:index_copy(1, i, b)
      end, x, y:narrow(1, 1, 5), positions(5, 6))
    end
  end)

  it("of bool is added to", function()
    local x, y = draw("int32", 6, 3):gt(5), draw("int32", 3000, 3):gt(12)
    for _, at in ipairs { positions(3000, 5), positions(3000, 2) } do
      agrees("index_add", "bool", function(a, b, i) return a:index_add(1, i, b) end, x, y, at)
    end
  end)

  it("is multiplied, in any layout of both sides", function()
    for _, dtype in ipairs(FLOATS) do
      for _, n in ipairs { 40, 264 } do
        for way = 0, 3 do
          agrees("product", dtype, function(a, b)
            if way % 2 == 1 then a = a:t():contiguous():t() end
            if way > 1 then b = b:t():contiguous():t() end
            return a:matmul(b)
          end, draw(dtype, n, 64), draw(dtype, 64, n))
        end
      end
      agrees("long product", dtype, function(a, b) return a:matmul(b) end, draw(dtype, 8, 3000),
        draw(dtype, 3000, 8))
    end
    moth.set_float32_matmul_precision "high"
    local ok, message = pcall(function()
      for _, n in ipairs { 40, 264 } do
        for way = 0, 3 do
          agrees("product in TF32", "float16", function(a, b)
            a, b = a:float(), b:float()
            if way % 2 == 1 then a = a:t():contiguous():t() end
            if way > 1 then b = b:t():contiguous():t() end
            return a:matmul(b):half()
          end, draw("float16", n, 64), draw("float16", 64, n))
        end
      end
    end)
    moth.set_float32_matmul_precision "highest"
    assert(ok, message)
    for _, dtype in ipairs { "uint8", "int8", "int16", "int32", "int64" } do
      agrees("product", dtype, function(a, b) return a:matmul(b) end, draw(dtype, 70, 600),
        draw(dtype, 600, 66))
    end
  end)

  it("is convolved and pooled", function()
    for _, dtype in ipairs(FLOATS) do
      for _, c in ipairs { 20, 130 } do
        agrees("conv2d", dtype, function(x, w) return F.conv2d(x, w) end, draw(dtype, 1, c, 12, 13),
          draw(dtype, c, c, 2, 2) / 20)
      end
      if dtype ~= "float64" then -- so many filters that their tiles are the widest
        agrees("wide conv2d", dtype, function(x, w) return F.conv2d(x, w) end,
          draw(dtype, 1, 1878, 3, 3), draw(dtype, 130, 1878, 3, 3) / 50)
      end
      for _, side in ipairs { 8, 70 } do
        local x = draw(dtype, 2, 3, side, side)
        agrees("adaptive_avg_pool2d", dtype, function(y) return F.adaptive_avg_pool2d(y, 1) end, x)
        agrees("adaptive_max_pool2d", dtype, function(y) return F.adaptive_max_pool2d(y, 1) end, x)
      end
    end
  end)

  it("is pooled, padded and unfolded, in any layout", function()
    local function cl(x) return x:contiguous { memory_format = moth.channels_last } end
    local function turned(x) return x:transpose(2, 4):contiguous():transpose(2, 4) end
    for _, dtype in ipairs(ALL) do
      local x = draw(dtype, 2, 3, 11, 14)
      for i, v in ipairs { x, cl(x), turned(x), draw(dtype, 2, 1, 1, 40) } do
        local function says(name, ...)
          local list = { ... }
          agrees(("%s, layout %d"):format(name, i), dtype,
            function(y) return F[name](y, unpack(list)) end, v)
        end
        for _, border in ipairs { { 1, 2 }, { 0, 0, 2, 1 }, { -1, 3, 0, 0, 0, 0, 1, 0 } } do
          says("pad", border, "constant", 1)
        end
        if MOST[dtype] then
          for _, mode in ipairs { "reflect", "replicate", "circular" } do
            says("pad", { 2, 1, 0, 0 }, mode)
          end
          for _, size in ipairs { 1, { 3, 4 }, { 13, 5 } } do
            says("adaptive_avg_pool2d", size)
            says("adaptive_max_pool2d", size)
          end
          says("avg_pool2d", { 1, 3 }, { 3, 2 }, { 0, 1 }, false, false)
          says("avg_pool2d", { 1, 2 }, { divisor_override = 3 })
          says("max_pool2d", { 1, 3 }, { 1, 2 }, { 0, 1 }, 3)
          says("max_pool2d", 1, 2 ^ 30)
          says("unfold", { 1, 3 }, { dilation = 2, padding = { 0, 3 }, stride = { 4, 2 } })
        end
      end
    end
  end)

  it("is convolved by its widest tiles", function()
    for _, dtype in ipairs { "float16", "bfloat16", "float32" } do
      agrees("conv2d", dtype, function(x, w) return F.conv2d(x, w) end, draw(dtype, 1, 2, 186, 186),
        draw(dtype, 65, 2, 2, 2))
    end
  end)

  it("is unfolded, and dropped out channel by channel", function()
    for _, dtype in ipairs(FLOATS) do
      agrees("unfold", dtype, function(x) return F.unfold(x, 3) end, draw(dtype, 2, 3, 6, 7))
      for _, drop in ipairs { "dropout", "dropout2d" } do
        agrees(drop, dtype, function(x)
          x = x:contiguous { memory_format = moth.channels_last }:detach():requires_grad_()
          local y = F[drop](x, 0.4)
          return y:detach() + moth.autograd.grad(y, x, x:detach())
        end, draw(dtype, 2, 5, 6, 8))
      end
    end
  end)

  it("is sampled by a grid in each mode, with second derivatives", function()
    for _, dtype in ipairs(FLOATS) do
      for _, shape in ipairs { { 2, 3, 5, 6 }, { 2, 3, 4, 5, 6 } } do
        local sides = #shape - 2
        local grid = (moth.rand(2, 3, sides == 3 and 2 or 1, 4, sides) * 1.6 - 0.8)
        if sides == 2 then grid = grid:squeeze(3) end
        for _, mode in ipairs { "nearest", "bilinear", "bicubic" } do
          agrees(mode, dtype, function(x, at) return F.grid_sample(x, at, { mode = mode }) end,
            draw(dtype, shape), grid:to(moth[dtype]))
          agrees(mode .. " twice", dtype, function(x, at)
            local y = F.grid_sample(x, at, { mode = mode })
            local of = moth.autograd.grad({ (y * y):sum() }, { x }, { create_graph = true })
            return of
          end, draw(dtype, shape), grid:to(moth[dtype]))
          agrees(mode .. "'s weights", dtype, function(at)
            return ops.grid_weights(at, { unpack(shape, 3) }, { mode = mode })
          end, grid:to(moth[dtype]))
        end
      end
    end
  end)

  it("of a half type has the functions of two numbers that are computed in f32", function()
    for _, dtype in ipairs { "float16", "bfloat16" } do
      local x, y = draw(dtype, 64):abs():add(1.5), draw(dtype, 64):abs():add(1)
      for _, f in ipairs { moth.igamma, moth.igammac, moth.special.zeta } do
        agrees("function", dtype, function(a, b) return f(a:detach(), b:detach()) end, x, y)
      end
      agrees("trunc", dtype, function(a, b) return a:div(b, { rounding_mode = "trunc" }) end, x, y)
    end
  end)

  it("is added to another dtype", function()
    for _, dtype in ipairs { "float16", "bfloat16" } do
      local x, y = draw(dtype, 300, 4), draw("float32", 300, 4)
      for _, f in ipairs {
        function(a, b) return a + b end, function(a, b) return b - a end,
        function(a, b) return a:add(b, { alpha = 2 }) end,
        function(a, b) return a:sub(b, { alpha = 2 }) end, function(a, b) return a * b end,
      } do
        agrees("of runs", dtype, f, x, y)
        agrees("apart", dtype, function(a, b) return f(a:t(), b:t():contiguous()) end, x, y)
      end
    end
  end)

  it("is run through a wide LSTM", function()
    local lstm = nn.LSTM(1, 900)
    local copy = nn.LSTM(1, 900):cuda()
    copy:load_state_dict(lstm:state_dict())
    local x = draw("float32", 2, 1, 1)
    local want, got = lstm(x), copy(x:cuda())
    want:sum():backward()
    got:sum():backward()
    alike(want:detach(), got:detach(), "LSTM", "float32")
    alike(lstm.weight_hh_l0.grad, copy.weight_hh_l0.grad, "LSTM's weight", "float32")
  end)

  it("attends by blocks of 128 queries", function()
    for _, dtype in ipairs { "float16", "bfloat16" } do
      for _, head in ipairs { 32, 64, 96, 128 } do
        agrees("attention", dtype, F.scaled_dot_product_attention, draw(dtype, 4, 130, head),
          draw(dtype, 4, 70, head), draw(dtype, 4, 70, head))
      end
    end
    for _, dtype in ipairs(FLOATS) do
      for _, head in ipairs { 20, 180 } do
        agrees("attention", dtype, function(q, k, v) -- this scale excludes tensor cores
          return F.scaled_dot_product_attention(q, k, v, { scale = 1e-30 })
        end, draw(dtype, 2, 70, head), draw(dtype, 2, 70, head), draw(dtype, 2, 70, head))
      end
    end
  end)

  it("is created there in each dtype, random ones with the CPU's bits", function()
    for _, dtype in ipairs(ALL) do
      local function made(name, f)
        agrees(name, dtype, function(x) return f { dtype = x.dtype, device = x.device } end,
          moth.zeros(1, { dtype = moth[dtype] }))
      end
      made("arange", function(o) return moth.arange(1, 100, 2, o) end)
      made("linspace", function(o) return moth.linspace(1, 100, 37, o) end)
      made("eye", function(o) return moth.eye(4, 7, o) end)
      made("arange by halves", function(o) return moth.arange(0, 9, 0.5, o) end)
      made("bernoulli_", function(o) return moth.zeros(300, o):bernoulli_(0.3) end)
      made("geometric_", function(o) return moth.zeros(300, o):geometric_(0.3) end)
      made("randint", function(o) return moth.randint(1, 90, { 300 }, o) end)
      if MOST[dtype] then
        made("randn", function(o) return moth.randn(300, o) end)
        made("rand", function(o) return moth.rand(300, o) end)
        made("exponential_", function(o) return moth.zeros(300, o):exponential_() end)
      end
    end
    for _, dtype in ipairs { moth.float32, moth.float64, moth.int64 } do
      for _, row in ipairs { { 0, 2, 99 }, { -0.1, 0.2, 4 }, { -1, 2, 1001 }, { 3, 9, 1 },
                             { -0x1p1023, 0x1p1023, 5, moth.float64 } } do
        if not row[4] or row[4] == dtype then
          local there = moth.linspace(row[1], row[2], row[3], { dtype = dtype, device = "cuda" })
          assert.is_true(there:cpu():equal(moth.linspace(row[1], row[2], row[3], dtype)))
        end
      end
    end
    for _, made in ipairs {
      moth.arange(0, 2, 1, { dtype = moth.bool, device = "cuda" }),
      moth.arange(0, 1, 0.5, { dtype = moth.bool, device = "cuda" }),
      moth.linspace(0, 1, 2, { dtype = moth.bool, device = "cuda" }),
    } do
      assert.same({ false, true }, made:tolist())
    end
  end)

  it("is divided if no divisor is 0, and refused otherwise", function()
    for _, dtype in ipairs { "uint8", "int8", "int16", "int32", "int64" } do
      local x, y = draw(dtype, 3000), draw(dtype, 3000):abs():add(1):clamp(1, 9)
      agrees("remainder", dtype, function(a, b) return a:remainder(b) end, x, y)
      local function pairwise(name, f) -- of strided inputs
        agrees(name, dtype, function(a, b) return f(a:view(2, -1):t(), b:view(2, -1):t()) end, x, y)
      end
      pairwise("floor", function(a, b) return a:div(b, { rounding_mode = "floor" }) end)
      pairwise("trunc", function(a, b) return a:div(b, { rounding_mode = "trunc" }) end)
      pairwise("fmod", function(a, b) return a:fmod(b) end)
      pairwise("isclose", function(a, b) return a:isclose(b, { atol = 2 }) end)
      pairwise("clamp", function(a) return a:clamp(2, 7) end)
      y[2999] = 0
      assert.has_error_like(function() return x:cuda():remainder(y:cuda()):cpu() end, "by 0")
    end
  end)

  it("of a network is dropped out and trained, by each optimizer", function()
    for _, dtype in ipairs(FLOATS) do
      agrees("dropout", dtype, function(x) return F.dropout(x, 0.3) end, draw(dtype, 3000))
      for _, n in ipairs { 15, 16 } do
        agrees("dropout1d", dtype, function(x) return F.dropout1d(x, 0.3) end, draw(dtype, 9, 7, n))
      end
      for _, name in ipairs { "SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop",
                              "Adagrad", "Adadelta", "ASGD", "Rprop" } do
        agrees(name, dtype, function(x)
          local weight = x:detach():clone():requires_grad_()
          local optimizer = moth.optim[name]({ weight }, { lr = 0.01 })
          for _ = 1, 2 do
            optimizer:zero_grad()
            weight:pow(2):mean():backward()
            nn.utils.clip_grad_norm_({ weight }, 0.5)
            optimizer:step()
          end
          return weight:detach()
        end, draw(dtype, 300))
      end
    end
  end)
end)
