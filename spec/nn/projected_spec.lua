-- nn.LSTM{proj_size = p}, compared with PyTorch 2.15's numbers for the same weights and inputs.

local moth = require "moth"
local nn = moth.nn
local rnn = nn.utils.rnn

local f64 = {dtype = moth.float64}

local function wave(f, step, ...)
  local n = 1
  for _, size in ipairs {...} do n = n * size end
  return f(moth.arange(n, f64) * step):view(...)
end

local function filled(net)
  for k, p in ipairs(net:parameters()) do
    p.data = (moth.sin(moth.arange(p:numel(), f64) * 0.7 + (k - 1)) * 0.4):view(p.shape)
  end
  return net
end

-- The sum of elements times their positions.
local function weighed(x)
  return (x * moth.arange(1, x:numel() + 1):view(x.shape)):sum():item()
end

local function squares(x) return (x * x):sum():item() end

-- L, N, I, H, P, layers, bidirectional, bias, batch_first, states given (boolean), lengths; then
-- weighted sums of output and h, squares of c, and of gradients: parameters, input, h.
local ROWS = {
  {4, 2, 3, 5, 2, 1, false, true, false, false, false,
    4.0080731287, 0.1955408047, 1.5767982972, 22.6927458924, 0.2009822279, 0},
  {4, 2, 3, 5, 2, 1, false, true, false, true, false,
    2.0666254578, 0.1098163765, 1.3758189782, 20.5612878490, 0.2579406149, 0.0037447552},
  {3, 2, 3, 4, 3, 2, true, true, false, true, false,
    -10.5790016512, -5.2537884140, 4.0176161405, 38.1426051519, 0.1638033487, 0.0283566447},
  {3, 2, 3, 4, 1, 2, true, false, true, true, false,
    -1.3334768042, -0.0454726447, 0.4600232152, 0.6428029245, 0.0778934219, 0.0031057310},
  {4, 3, 2, 4, 2, 2, true, true, false, true, {2, 4, 3},
    -11.8750730419, -5.6031097254, 6.8409603392, 82.3291140514, 0.6742275147, 0.0858473269},
}

describe("an LSTM with projected states", function()
  it("has PyTorch's values and gradients, packed or not, in layers and directions", function()
    for _, row in ipairs(ROWS) do
      local steps, n, inputs, hidden, proj, layers, both, bias, first, given, lengths = unpack(row)
      local lstm = filled(nn.LSTM {inputs, hidden, layers, bias = bias, batch_first = first,
        bidirectional = both, proj_size = proj, dtype = moth.float64})
      local lanes = layers * (both and 2 or 1)
      local x = wave(moth.cos, 0.3, steps, n, inputs)
      if first then x = x:transpose(1, 2):contiguous() end
      x:requires_grad_()
      local h = wave(moth.cos, 0.5, lanes, n, proj):requires_grad_()
      local c = wave(moth.sin, 0.9, lanes, n, hidden):requires_grad_()
      local sequences = lengths
        and rnn.pack_padded_sequence(x, lengths, {enforce_sorted = false}) or x
      local y, last = lstm(sequences, given and {h, c} or nil)
      if lengths then y = y.data end
      local loss = (y * y):sum() + last[1]:sum() + (last[2] * last[2]):sum()
      loss:backward()
      local slopes = 0
      for _, p in ipairs(lstm:parameters()) do slopes = slopes + squares(p.grad) end
      assert.close({row[12], row[13], row[14], row[15], row[16], row[17]},
        {weighed(first and y:transpose(1, 2) or y), weighed(last[1]), squares(last[2]), slopes,
          squares(x.grad), given and squares(h.grad) or 0}, 1e-8)
    end
  end)

  it("has PyTorch's parameters, and prints its size", function()
    local lstm = nn.LSTM {3, 4, 2, bidirectional = true, proj_size = 2}
    assert.are.same({2, 4}, {unpack(lstm.weight_hr_l1_reverse.shape)})
    assert.are.same({16, 2}, {unpack(lstm.weight_hh_l0.shape)})
    assert.are.same({16, 4}, {unpack(lstm.weight_ih_l1.shape)})
    assert.are.equal("weight_hr_l0", lstm:state_dict():keys()[5])
    assert.are.equal("LSTM(3, 4, num_layers=2, bidirectional=true, proj_size=2)", tostring(lstm))
    assert.is_nil(nn.LSTM(3, 4).weight_hr_l0)
  end)

  it("runs without a batch, without grad mode, captured, and has second derivatives", function()
    local lstm = filled(nn.LSTM {3, 4, proj_size = 2, dtype = moth.float64})
    local x, h, c = moth.randn(5, 3, f64), moth.randn(1, 2, f64), moth.randn(1, 4, f64)
    local y, last = lstm(x, {h, c})
    local batched = lstm(x:unsqueeze(2), {h:unsqueeze(2), c:unsqueeze(2)})
    assert.are.same(batched:squeeze(2):tolist(), y:tolist())
    assert.are.same({1, 2}, {unpack(last[1].shape)})
    local step = moth.capture(function(input) return moth.no_grad(lstm, input, {h, c}) end)
    for _ = 1, 3 do assert.are.same(y:tolist(), step(x):tolist()) end
    x:requires_grad_()
    assert.is_true(moth.autograd.gradgradcheck(function(input)
      local out = lstm(input, {h, c})
      return out
    end, {x}))
  end)

  it("raises for wrong sizes and states", function()
    assert.has_error_like(function() nn.LSTM {3, 4, proj_size = 4} end,
      "'proj_size' to 'LSTM' %(0 to hidden_size %- 1, 3, is needed, got 4")
    assert.has_error_like(function() nn.LSTM {3, 4, proj_size = -1} end, "proj_size")
    assert.has_error_like(function() nn.GRU {3, 4, proj_size = 2} end, "proj_size")
    local lstm = nn.LSTM {3, 4, proj_size = 2}
    assert.has_error_like(function()
      lstm(moth.ones(5, 2, 3), {moth.ones(1, 2, 4), moth.ones(1, 2, 4)})
    end, "'hx' to 'LSTM' %({%(1, N, 2%), %(1, N, 4%)} is needed")
    assert.has_error_like(function() lstm(moth.ones(5, 2, 3), moth.ones(1, 2, 2)) end, "'hx'")
  end)
end)
