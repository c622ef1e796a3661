-- Attention and recurrent layers on a GPU have the CPU's results and gradients, at sizes beyond
-- one tile and with all options; and the report of `moth doctor` on GPUs.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local nn, F = moth.nn, moth.nn.functional

-- Tests if two tensors are equal, with a tolerance relative to the largest element.
local function same(there, here, most)
  local x, y = there:cpu():to(moth.float64), here:to(moth.float64)
  return (x - y):abs():max():item() <= most * (y:abs():max():item() + 1e-9)
end

local MOST = { float32 = 1e-5, float64 = 1e-12, float16 = 5e-3 }

-- Asserts that the result and all gradients of `here(inputs)` equal those of `there` with the
-- inputs on the GPU.
local function agree(here, there, inputs, leaves, their_leaves, most)
  local on_gpu = {}
  for i, x in ipairs(inputs) do on_gpu[i] = x:cuda():requires_grad_() end
  for _, x in ipairs(inputs) do x:requires_grad_() end
  moth.manual_seed(9)
  local y = here(inputs)
  moth.manual_seed(9)
  local z = there(on_gpu)
  assert.is_true(same(z, y, most))
  local dy = moth.randn_like(y)
  y:backward(dy)
  z:backward(dy:cuda())
  for i, x in ipairs(inputs) do assert.is_true(same(on_gpu[i].grad, x.grad, most)) end
  for i, x in ipairs(leaves or {}) do assert.is_true(same(their_leaves[i].grad, x.grad, most)) end
end

describe("attention on a GPU", function()
  if not cuda.here then
    pending("is the CPU's: " .. cuda.why)
    return
  end

  for _, case in ipairs {
    { "causal, beyond one tile", { 70, 20 }, { 70, 20 }, { 70, 33 }, causal = true },
    { "broadcast, with a mask", { 2, 3, 100, 40 }, { 3, 130, 40 }, { 2, 1, 130, 150 },
      mask = { 100, 1 } },
    { "of heads that share keys", { 2, 2, 65, 8 }, { 2, 1, 65, 8 }, { 2, 1, 65, 8 } },
  } do
    for dtype, most in pairs(MOST) do
      it(case[1] .. ", is the CPU's in " .. dtype, function()
        moth.manual_seed(3)
        local inputs, mask = {}, case.mask and moth.randn(case.mask):to(moth[dtype])
        for i = 1, 3 do inputs[i] = moth.randn(case[i + 1]):to(moth[dtype]) end
        local function run(x)
          return F.scaled_dot_product_attention(x[1], x[2], x[3],
            { attn_mask = mask and mask:to(x[1].device), is_causal = case.causal or false })
        end
        agree(run, run, inputs, nil, nil, most)
      end)
    end
  end
end)

describe("a recurrent layer on a GPU", function()
  if not cuda.here then
    pending("is the CPU's: " .. cuda.why)
    return
  end

  local function claim(kind, options, text, units, rows)
    units, rows = units or 7, rows or 3
    for dtype, most in pairs(MOST) do
      it(("%s, %s, is the CPU's in %s"):format(kind, text, dtype), function()
        moth.manual_seed(5)
        local here, there = nn[kind](5, units, options), nn[kind](5, units, options)
        there:load_state_dict(here:state_dict())
        here:to(moth[dtype])
        there:to(moth[dtype]):to("cuda")
        local x = kind:find "Cell" and moth.randn(rows, 5) or moth.randn(4, rows, 5)
        x = x:to(moth[dtype])
        agree(function(xs) return (here(xs[1])) end, function(xs) return (there(xs[1])) end, { x },
          here:parameters(), there:parameters(), most)
      end)
    end
  end

  for _, kind in ipairs { "RNN", "LSTM", "GRU" } do
    claim(kind, { num_layers = 2, bidirectional = true, batch_first = true }, "both ways")
    claim(kind, { num_layers = 2, dropout = 0.4 }, "with dropout")
    claim(kind, { bias = false }, "without biases")
    claim(kind, { bidirectional = true }, "of more units and rows than a block has", 60, 20)
    claim(kind .. "Cell", { bias = true }, "one step")
  end
end)

describe("moth doctor", function()
  it("lists the plugin, the driver, libraries and devices, or what is missing", function()
    local names = {}
    for _, row in ipairs(require("moth.doctor").gpus(require "moth.binding.lib")) do
      names[row[1]] = row[2]
    end
    if not cuda.here then
      assert.truthy(names.GPU:find("CUDA", 1, true))
      return
    end
    for _, name in ipairs { "plugin", "driver", "cuBLASLt", "cuDNN", "cuda:0" } do
      assert.truthy(names[name], name)
    end
    assert.truthy(names["cuda:0"]:find("GiB free", 1, true))
  end)
end)

describe("running statistics that share memory", function()
  local ops = require("moth.binding.bind").ops
  local names = {"mean", "batch mean", "variance", "batch variance"}
  for i = 1, 4 do
    for k = 1, i - 1 do
      it(("are moved as on the CPU: %s and %s"):format(names[k], names[i]), function()
        local values = moth.rand(4, 65) + 0.5
        local function run(device, first)
          local all, list = values:to(device), {}
          for n = 1, 4 do list[n] = all[n]:narrow(1, 1, 64):clone() end
          local both = all[k]:clone()
          list[k], list[i] = both:narrow(1, first, 64), both:narrow(1, 3 - first, 64)
          ops.move_running_(list[1], list[2], list[3], list[4], {momentum = 0.25, factor = 1.5})
          return moth.stack(list):cpu()
        end
        for first = 1, 2 do -- one begins an element after the other
          assert.is_true(moth.allclose(run("cuda", first), run("cpu", first), {rtol = 1e-6}))
        end
      end)
    end
  end
end)
