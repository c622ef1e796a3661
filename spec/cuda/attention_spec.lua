-- Attention on a GPU's tensor cores: results and gradients equal those of f32 on the CPU, for any
-- lengths, head sizes, masks and strides.

local moth = require "moth"
local cuda = require "spec.support.cuda"
local process = require "spec.support.process"

local sdpa = moth.nn.functional.scaled_dot_product_attention

-- The tolerance, relative to the largest element or 1: half types round weights and results.
local MOST = { float16 = 2e-3, bfloat16 = 1.6e-2, float32 = 1e-5 }

local function close(there, here, most)
  local x, y = there:cpu():to(moth.float64), here:to(moth.float64)
  local far = (x - y):abs():max():item() / math.max(y:abs():max():item(), 1)
  assert(far <= most, ("%g of the largest element, at most %g"):format(far, most))
end

-- Attention of x[1..3] on the GPU in their dtype, and on the CPU in f32.
local function agree(x, options, most)
  local here, there, mask = {}, {}, options.attn_mask
  for i = 1, 3 do
    here[i] = x[i]:cpu():detach():to(moth.float32):requires_grad_()
    there[i] = (x[i].is_cuda and x[i] or x[i]:cuda()):detach():requires_grad_()
  end
  local function options_of(at, dtype)
    local o = {}
    for name, value in pairs(options) do o[name] = value end
    if mask then o.attn_mask = mask.dtype == moth.bool and mask:to(at) or mask:to(at):to(dtype) end
    return o
  end
  local y = sdpa(here[1], here[2], here[3], options_of("cpu", moth.float32))
  local z = sdpa(there[1], there[2], there[3], options_of("cuda", x[1].dtype))
  close(z, y, most)
  local dy = moth.randn(y.shape):to(x[1].dtype)
  y:backward(dy:to(moth.float32))
  z:backward(dy:transpose(1, 2):contiguous():cuda():transpose(1, 2)) -- not packed
  for i = 1, 3 do
    assert.equal(x[i].dtype, there[i].grad.dtype)
    close(there[i].grad, here[i].grad, 2 * most)
  end
end

local function draw(dtype, ...)
  return moth.randn(...):to(moth[dtype])
end

describe("attention on tensor cores", function()
  if not cuda.here then
    pending("is that of f32 on the CPU: " .. cuda.why)
    return
  end

  it("returns head-major results on request, on the CPU and on a GPU", function()
    local attention = require("moth.binding.bind").ops.attention
    for _, dtype in ipairs { "float32", "bfloat16" } do
      local x = { draw(dtype, 2, 3, 7, 16), draw(dtype, 3, 9, 16), draw(dtype, 3, 9, 8) }
      local dy, got = draw(dtype, 2, 7, 3, 8), {}
      for _, device in ipairs { "cpu", "cuda" } do
        local own = {}
        for i = 1, 3 do own[i] = x[i]:to(device):detach():requires_grad_() end
        local y = attention(own[1], own[2], own[3], { heads_last = true })
        y:backward(dy:to(device))
        got[device] = { y:detach(), own[1].grad, own[2].grad, own[3].grad }
      end
      local plain = attention(x[1], x[2], x[3]):transpose(2, 3)
      close(got.cpu[1], plain, 0)
      for i = 1, 4 do close(got.cuda[i], got.cpu[i], dtype == "float32" and 1e-5 or 3e-2) end
    end
  end)

  for dtype, most in pairs(MOST) do
    for _, head in ipairs { 16, 32, 64, 80, 128 } do
      it(("is that of f32 on the CPU in %s, heads of %d"):format(dtype, head), function()
        moth.manual_seed(head)
        for _, case in ipairs { { 1, 70, 130, false }, { 1, 140, 75, true },
                                { 3, 1, 33, false } } do
          local b, l, s = case[1], case[2], case[3]
          agree({ draw(dtype, b, l, head), draw(dtype, b, s, head), draw(dtype, b, s, head) },
            { is_causal = case[4] }, most)
        end
      end)
    end

    it("supports values of another size and unaligned rows, in " .. dtype, function()
      moth.manual_seed(4)
      local wide = draw(dtype, 3, 90, 2, 71)
      local x = { wide:narrow(-1, 2, 40), wide:narrow(-1, 10, 40), wide:narrow(-1, 30, 23) }
      for i = 1, 3 do x[i] = x[i]:cuda():transpose(1, 2) end
      agree(x, { scale = 0.2 }, most)
      agree({ x[1], draw(dtype, 1, 3, 20, 40), draw(dtype, 1, 1, 20, 9) }, { scale = 1 }, most)
    end)

    it("supports masks, biases, scales and shared key heads, in " .. dtype, function()
      moth.manual_seed(5)
      local q, k, v = draw(dtype, 2, 4, 66, 24), draw(dtype, 2, 2, 100, 24),
        draw(dtype, 2, 2, 100, 24)
      agree({ q, k, v }, { enable_gqa = true, scale = -0.3 }, most)
      local seen = moth.rand(66, 100):gt(0.5)
      seen[3] = false
      agree({ q, k, v }, { enable_gqa = true, attn_mask = seen }, most)
      agree({ q:narrow(2, 1, 2), k, v }, { attn_mask = moth.randn(2, 1, 100) }, most)
    end)
  end

  -- A mask for left padding: the first keys get the most negative number; some rows are fully
  -- masked.
  for dtype, most in pairs(MOST) do
    for _, scale in ipairs { 1, 0.125, 3 } do
      it(("knows masks of large numbers, in %s times %g"):format(dtype, scale), function()
        moth.manual_seed(9)
        local x = { draw(dtype, 2, 40, 32), draw(dtype, 2, 130, 32), draw(dtype, 2, 130, 32) }
        for i = 1, 2 do x[i] = x[i] * 0.3 end
        for _, least in ipairs { -1e9, -1e10, -3e38 } do
          if dtype == "float16" then least = -65504 end
          local mask = moth.zeros(2, 40, 130)
          mask[{ {}, {}, { 1, 70 } }] = least
          mask[{ 2, { 3, 20 } }] = least
          mask = mask:to(moth[dtype])
          local y = sdpa(x[1]:float(), x[2]:float(), x[3]:float(),
            { attn_mask = mask:float(), scale = scale })
          local here, options = {}, { attn_mask = mask:cuda(), scale = scale }
          for i = 1, 3 do here[i] = x[i]:cuda():detach():requires_grad_() end
          local z = sdpa(here[1], here[2], here[3], options)
          close(z, y, 2 * most)
          z:sum():backward()
          for i = 1, 3 do assert(here[i].grad:isfinite():all():item()) end
          mask[{ 2, { 3, 20 } }] = 0
          agree(x, { attn_mask = mask, scale = scale }, most * 2)
        end
      end)
    end
  end

  it("equals f32 for head sizes without a tensor-core kernel", function()
    moth.manual_seed(8)
    for dtype, most in pairs(MOST) do
      agree({ draw(dtype, 2, 70, 144), draw(dtype, 70, 144), draw(dtype, 2, 70, 40) },
        { is_causal = true }, most)
    end
  end)

  it("with a scale of 0 weights all keys equally", function()
    moth.manual_seed(10)
    for dtype, most in pairs(MOST) do
      agree({ draw(dtype, 2, 70, 24), draw(dtype, 90, 24), draw(dtype, 2, 90, 40) },
        { scale = 0 }, most)
    end
  end)

  it("keeps a NaN in its row", function()
    moth.manual_seed(11)
    for dtype in pairs(MOST) do
      local q, k, v = draw(dtype, 1, 70, 16), draw(dtype, 1, 40, 16), draw(dtype, 1, 40, 16)
      q[{1, 3, 5}], v[{1, 9, 7}] = 0 / 0, 0 / 0
      local y = sdpa(q:cuda(), k:cuda(), v:cuda()):isnan():cpu()
      assert.is_true(y[{1, 3}]:all():item() and y[{1, {}, 7}]:all():item())
      assert.equal(16 + 69, y:sum():item())
    end
  end)

  -- A device of compute capability 7.5 has no such instructions; neither has a newer device that
  -- runs code compiled for 7.5. Tensor-core kernels are recognized by their amount of shared
  -- memory.
  local cards = { { "MAJOR=7", false }, { "COMPILED=75", false }, { "SHARED=101376", true } }
  for _, case in ipairs(cards) do
    local card, has_cores = "MOTH_EMULATED_" .. case[1], case[2]
    it("equals f32 on an older device, " .. card, function()
      if not cuda.name:find "emulated" then return end
      local log = os.tmpname()
      local words = card .. " MOTH_EMULATED_LOG=" .. log
      local said = process.shell(words .. [[ MOTH_NO_INSTALL=1 ./moth -e '
        local moth = require "moth"
        moth.manual_seed(1)
        local x, dy = {}, moth.randn(140, 128)
        for i = 1, 3 do x[i] = moth.randn(140, 128):bfloat16() end
        local all = {}
        for i, device in ipairs { "cpu", "cuda" } do
          local own = {}
          for k = 1, 3 do own[k] = (i == 1 and x[k]:float() or x[k]:to(device)):requires_grad_() end
          local y = moth.nn.functional.scaled_dot_product_attention(own[1], own[2], own[3])
          y:backward(dy:to(device):to(y.dtype))
          all[i] = { y, own[1].grad, own[2].grad, own[3].grad }
        end
        local far = 0
        for k = 1, 4 do
          local a, b = all[1][k], all[2][k]:cpu():float()
          far = math.max(far, (a - b):abs():max():item() / a:abs():max():item())
        end
        print(far < 0.03 and "close" or far)']])
      assert.truthy(said:find("close", 1, true), said)
      local file = io.open(log)
      local launched = file:read "*a"
      file:close()
      os.remove(log)
      assert.are.equal(has_cores, launched:find "kernel[^\n]* %d%d%d%d%d\n" ~= nil)
    end)
  end

  it("of f32 uses TF32 only where the chosen precision allows it", function()
    if moth.cuda.get_device_capability() < 8 then return pending "this GPU has no TF32" end
    moth.manual_seed(9)
    for _, head in ipairs { 20, 64, 90, 128 } do
      for _, batches in ipairs { 1, 4 } do -- with larger tiles
        local x = { moth.randn(batches, 70, head), moth.randn(batches, 45, head),
          moth.randn(45, head) }
        local bias = { attn_mask = moth.randn(70, 45) }
        agree(x, bias, 1e-5)
        moth.set_float32_matmul_precision("high")
        local fine, message = pcall(agree, x, bias, 4e-3)
        local exact = pcall(agree, x, bias, 1e-5)
        moth.set_float32_matmul_precision("highest")
        assert(fine, message)
        assert.is_false(exact)
      end
    end
  end)

  it("of f32 is exact over many keys and queries of one sign", function()
    moth.manual_seed(10)
    for _, n in ipairs { { 64, 1500 }, { 1500, 64 } } do
      local q, k, v = moth.randn(1, n[1], 64), moth.randn(1, n[2], 64), moth.rand(1, n[2], 64)
      local here, there = {}, {}
      for i, x in ipairs { q, k, v } do
        here[i] = x:double():requires_grad_()
        there[i] = x:cuda():requires_grad_()
      end
      local y, z = sdpa(unpack(here)), sdpa(unpack(there))
      local dy = moth.rand(y.shape)
      y:backward(dy:double())
      z:backward(dy:cuda())
      local most = here[3].grad:abs():max():item() * 4e-6 -- close() compares small ones with 1
      close(z, y, 4e-6)
      assert.is_true((there[3].grad:cpu():double() - here[3].grad):abs():max():item() <= most)
      for i = 1, 2 do close(there[i].grad, here[i].grad, 8e-6) end
    end
  end)

  it("has the query's memory order, so that heads join without a copy", function()
    for _, dtype in ipairs { "float32", "bfloat16" } do
      local x = {}
      for i = 1, 3 do x[i] = draw(dtype, 2, 9, 3, 16):cuda():transpose(2, 3) end
      local y = sdpa(x[1], x[2], x[3])
      assert.is_true(y:transpose(2, 3):is_contiguous())
      assert.is_true(sdpa(x[1]:contiguous(), x[2], x[3]):is_contiguous())
      agree(x, { is_causal = true }, MOST[dtype])
    end
  end)

  it("agrees in shapes that cuDNN's fused kernels support", function()
    local cudnn, version = moth.backends.cudnn, moth.backends.cudnn.version() or 0
    if version < 91800 then return pending("cuDNN from 9.18 on is needed") end
    cudnn.benchmark = true -- plans are made at the first use
    moth.manual_seed(8)
    for _, dtype in ipairs { "float16", "bfloat16" } do
      for _, n in ipairs { { 130, 130, 64 }, { 77, 200, 128 }, { 5, 3, 40 } } do
        for _, is_causal in ipairs { false, true } do
          local x = { draw(dtype, 2, n[1], 4, n[3]):cuda():transpose(2, 3) }
          for i = 2, 3 do x[i] = draw(dtype, 2, 4, n[2], n[3]) end
          agree(x, { is_causal = is_causal }, MOST[dtype])
        end
      end
      local x = { draw(dtype, 2, 6, 70, 64) }
      for i = 2, 3 do x[i] = draw(dtype, 2, 2, 90, 64) end
      agree(x, { is_causal = true, enable_gqa = true }, MOST[dtype])
    end
    cudnn.benchmark = false
  end)

  it("has finite gradients where all scores of a row are very negative", function()
    local cudnn = moth.backends.cudnn
    cudnn.benchmark = true -- cuDNN's kernels, if installed
    moth.manual_seed(9)
    for _, n in ipairs { { 64, 64 }, { 192, 192 }, { 128, 128 }, { 20, 128 }, { 70, 70 } } do
      for _, is_causal in ipairs { false, true } do
        local x = { draw("bfloat16", 2, n[1], 64) }
        for i = 2, 3 do x[i] = draw("bfloat16", 2, n[2], 64) end
        x[1][{ "...", 1 }], x[2][{ "...", 1 }] = 1, -960 -- scores of -120
        for i = 1, 3 do x[i] = x[i]:cuda():requires_grad_() end
        local y = sdpa(x[1], x[2], x[3], { is_causal = is_causal })
        y:backward(moth.ones_like(y))
        for i = 1, 3 do assert.is_true(x[i].grad:isfinite():all():item()) end
      end
    end
    cudnn.benchmark = false
  end)

  it("returns the same bits each time", function()
    moth.manual_seed(6)
    local function run()
      local x = {}
      moth.manual_seed(7)
      for i = 1, 3 do x[i] = draw("bfloat16", 3, 140, 64):cuda():requires_grad_() end
      local y = sdpa(x[1], x[2], x[3])
      y:backward(moth.ones_like(y))
      return { y, x[1].grad, x[2].grad, x[3].grad }
    end
    local one, two = run(), run()
    for i = 1, 4 do assert.is_true(moth.equal(one[i]:cpu(), two[i]:cpu())) end
  end)
end)
