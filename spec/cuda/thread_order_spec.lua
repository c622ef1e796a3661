-- Blocks and warps of a GPU run in any order, and results must not depend on it. The GPU emulator
-- can run several orders (cuda/emulator/emulated.cpp), which shows missing barriers. Kernels whose
-- threads communicate run in two of them here; other GPU specs can do so with
-- MOTH_EMULATED_ORDER=random set. The same kernels, and kernels that compute positions by
-- divisions, also run as if their tensors were too large for 32 bits.

local cuda = require "spec.support.cuda"

local BEGIN = [[
  local moth = require "moth"
  local bit = require "bit"
  local F, R = moth.nn.functional, moth.randn
  moth.set_default_device("cuda")
  moth.manual_seed(5)
  local function tell(name, ...)
    local hash = 5381
    for i = 1, select("#", ...) do
      local x = select(i, ...):detach():cpu():flatten()
      for _, v in ipairs((x.dtype == moth.bool and x:int() or x):tolist()) do
        local text = string.format("%.17g", v)
        for c = 1, #text do hash = bit.tobit(hash * 33 + text:byte(c)) end
      end
    end
    print(name, hash)
  end
  local function back(name, fn, ...)
    local inputs, grads = { ... }, {}
    for i, x in ipairs(inputs) do inputs[i] = x:requires_grad_() end
    local y = fn(unpack(inputs))
    y:backward(moth.ones(y.shape):mul(0.5))
    for i, x in ipairs(inputs) do grads[i] = x.grad end
    tell(name, y, unpack(grads))
  end
]]

local PROGRAM = BEGIN .. [[
  for _, s in ipairs { { 3, 40 }, { 2, 3000 }, { 2, 70, 37 } } do
    local x, n = R(s), table.concat(s, "x")
    back("softmax " .. n, function(v) return F.softmax(v, 2) end, x)
    tell("logsumexp " .. n, x:logsumexp(2))
    tell("sums " .. n, x:sum(), x:sum(1), x:sum(2), x:var(1), (x:max(2)))
    tell("order " .. n, x:sort(2))
    tell("running " .. n, x:cumsum(2), x:cummax(2))
    tell("norm " .. n, x:norm(2), x:argmax())
    tell("median " .. n, x:median(2))
    tell("nonzero " .. n, x:gt(0.5):nonzero(), x:histc(7))
    back("cross_entropy " .. n, function(v)
      local t = moth.ones(s[3] and { s[1], s[3] } or { s[1] }, { dtype = moth.int64 })
      return F.cross_entropy(v, t)
    end, x)
  end
  local long = R(9000)
  tell("long", long:sum(), long:cumsum(1), long:sort(1), long:argmin(), long:norm(3))
  tell("long rows", R(2, 9000):cumsum(2), R(3, 5000):sort(2))
  tell("selected", R(3, 5000):round():topk(900, 2), R(3, 5000):round():median(2))
  for _, n in ipairs { 40, 1500 } do
    back("layer_norm " .. n, function(x, w, b) return F.layer_norm(x, { n }, w, b) end, R(9, n),
      R(n), R(n))
  end
  for _, s in ipairs { { 700, 40 }, { 20, 3, 19, 8 } } do
    local c = s[2]
    back("batch_norm " .. c, function(x, w, b)
      return F.batch_norm(x, moth.zeros(c), moth.ones(c), w, b, { training = true })
    end, R(s), R(c), R(c))
  end
  back("matmul", function(a, b) return a:matmul(b) end, R(70, 300), R(300, 33))
  back("attention", F.scaled_dot_product_attention, R(2, 70, 20), R(2, 80, 20), R(2, 80, 20))
  back("conv2d", function(x, w) return F.conv2d(x, w, nil, 1, 1) end, R(2, 12, 9, 9),
    R(16, 12, 3, 3))
  back("depthwise", function(x, w) return F.conv2d(x, w, nil, 1, 1, 1, 6) end, R(2, 6, 70, 70),
    R(6, 1, 3, 3))
  back("max_pool2d", function(x) return F.max_pool2d(x, 3, 2) end, R(2, 3, 11, 11))
  back("pooling", function(x) return F.adaptive_max_pool2d(x, { 2, 1 }) end, R(1, 2, 97, 98))
  local at = (moth.rand(5000) * 300):long():add(1)
  tell("index_add", moth.zeros(300, 3):index_add(1, at, R(5000, 3)))
  back("embedding", function(w) return F.embedding(at, w, { max_norm = 1.5 }) end, R(300, 5))
  tell("multinomial", moth.multinomial(moth.rand(2, 700), 300, true),
    moth.multinomial(moth.rand(2, 700), 300))
  local lstm = moth.nn.LSTM(5, 40)
  local y = lstm(R(7, 3, 5))
  y:sum():backward()
  tell("lstm", y, lstm.weight_hh_l0.grad, lstm.bias_hh_l0.grad)
  local wide = R(6, 5, 4, 3)
  local turned, mask = wide:permute(4, 2, 1, 3), wide:gt(0)
  back("turned", function(a, b) return a:transpose(1, 3) * b:permute(3, 2, 1, 4):exp() end, wide,
    R(6, 5, 4, 1))
  tell("turned sums", turned:sum(2), turned:amax { 1, 3 }, turned:prod { 2, 4 },
    turned:logsumexp(3))
  tell("turned copies", turned:contiguous(), turned:half(), turned:to(moth.bfloat16):double())
  tell("choices", moth.where(mask:permute(4, 2, 1, 3), turned, turned:neg()), turned:tril(-1),
    turned:eq(turned:flip(1)), wide:masked_fill(mask:narrow(1, 2, 1), 3))
  local some = (moth.rand(7, 3) * 3):long():add(1)
  tell("picks", wide[{ some, {}, some, 2 }], wide:index_put({ some }, R(7, 3, 5, 4, 3), true),
    turned:index_select(3, some[{ {}, 1 }]), wide:view(24, 15):gather(1, some),
    wide:view(24, 15):scatter_add(2, some, R(7, 3)))
  back("pad", function(v) return F.pad(v, { 1, 2, 2, 1 }, "reflect") end, wide)
  back("border", function(v) return F.pad(v, { 1, 2, -1, 1 }) end, wide)
  back("unfold", function(v) return F.unfold(v, 3, { stride = 2, padding = 1 }) end, R(2, 3, 9, 8))
  back("shares", function(v) return F.adaptive_avg_pool2d(v, { 4, 3 }) end, R(2, 3, 9, 8))
  back("conv3d", function(v, w) return F.conv3d(v, w) end, R(1, 2, 4, 5, 5), R(3, 2, 2, 3, 3))
  back("channels_last", function(v)
    return F.avg_pool2d(F.dropout(v:contiguous { memory_format = moth.channels_last }, 0.4), 2)
  end, R(2, 6, 8, 8))
  tell("clip", moth.nn.utils.clip_grad_norm_(lstm:parameters(), 0.1), lstm.weight_hh_l0.grad)
]]

describe("kernels", function()
  if not cuda.here or not cuda.name:find "emulated" then
    pending("give the same bits in whatever order threads run: only the GPU emulator has one")
    return
  end

  local function bits(settings, program)
    local file = os.tmpname()
    local out = assert(io.open(file, "w"))
    out:write(program or PROGRAM)
    out:close()
    local pipe = io.popen(settings .. " MOTH_NO_INSTALL=1 ./moth " .. file .. " 2>&1")
    local text = pipe:read "*a"
    pipe:close()
    os.remove(file)
    return text
  end

  local wanted = bits ""

  it("return the same bits in any order of their threads and blocks", function()
    assert.truthy(wanted:find "clip")
    assert.equal(wanted, bits "MOTH_EMULATED_ORDER=reverse")
    assert.equal(wanted, bits "MOTH_EMULATED_TOGETHER=0")
  end)

  it("return the same bits with 32-bit and 64-bit arithmetic", function()
    assert.equal(wanted, bits "MOTH_EMULATED_SMALL=1")
  end)

  -- Older GPUs have no tensor cores. Where TF32 is allowed, the amount of shared memory also
  -- decides which kernel multiplies the inputs.
  for _, card in ipairs { "MOTH_EMULATED_MAJOR=9", "MOTH_EMULATED_MAJOR=7", "PRECISION=high" } do
    it("are right if a block of an LSTM has shared memory for fewer rows, with " .. card, function()
      local program = BEGIN .. [[
        moth.set_float32_matmul_precision(os.getenv "PRECISION" or "highest")
        for _, net in ipairs { moth.nn.LSTM(3, 256), moth.nn.GRU(3, 40) } do
          local x, grads = R(2, 3, 3), {}
          for _, device in ipairs { "cuda", "cpu" } do
            net:to(device):zero_grad()
            net(x:to(device)):sum():backward()
            grads[device] = net.weight_hh_l0.grad:clone()
          end
          assert(moth.allclose(grads.cuda:cpu(), grads.cpu,
            os.getenv "PRECISION" and 5e-3 or 1e-5, 1e-4))
          tell("back", grads.cuda)
        end
      ]]
      local roomy = bits(card .. " MOTH_EMULATED_TOGETHER=0", program)
      assert.truthy(roomy:find "back.*back", roomy)
      for _, shared in ipairs { 81920, 61440 } do -- the next tile of states is not loaded ahead
        local tight = bits(card .. " MOTH_EMULATED_TOGETHER=0 MOTH_EMULATED_SHARED=" .. shared,
          program)
        assert.truthy(tight:find "back.*back", tight)
        if card:find "MAJOR" then assert.equal(roomy, tight) end
      end
    end)
  end

  -- The race checker follows one block at a time.
  if os.getenv "MOTH_EMULATED_REPORTS" then return end

  local STEPS = [[
    local lstm = moth.nn.LSTM(5, 60):to "cuda"
    tell("lstm", (lstm(R(40, 20, 5))))
    local back = moth.nn.GRU(5, 60):to "cuda"
    back(R(40, 20, 5)):sum():backward()
    tell("back", back.weight_hh_l0.grad)
  ]]

  it("for all steps of a recurrent layer are one, whose blocks wait for each other", function()
    local log = os.tmpname()
    local function launched(settings)
      local n = 0
      io.open(log, "w"):close()
      local text = bits(settings .. " MOTH_EMULATED_LOG=" .. log, BEGIN .. STEPS)
      for line in io.lines(log) do n = n + (line:find "^kernel" and 1 or 0) end
      return text, n
    end
    local text, together = launched ""
    local steps, apart = launched "MOTH_EMULATED_TOGETHER=0"
    os.remove(log)
    assert.truthy(text:find "back")
    assert.equal(steps, text)
    assert.equal(3 * 40 - 2, apart - together)
    assert.equal(steps, (launched "MOTH_EMULATED_ORDER=random"))
    for _, order in ipairs { "ascending", "random" } do -- blocks for other rows, too
      assert.equal(steps, (launched("MOTH_EMULATED_PROCESSORS=132 MOTH_EMULATED_ORDER=" .. order)))
    end
  end)
end)
